"""Example data."""

from pathlib import Path

import pandas as pd

from rapids_slink.metrics import EARTH_RADIUS as EARTH_RADIUS


def load_cities() -> pd.DataFrame:
    """Return the world's cities of at least 15,000 inhabitants.

    Returns
    -------
    DataFrame
        33,961 rows: ``name``, ``country`` (two letters, ISO 3166), ``latitude``, ``longitude`` (degrees, to 4 decimals)
        and ``population``, by country and name.

    Notes
    -----
    From GeoNames, https://www.geonames.org, licensed under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/).
    The table has five of GeoNames' columns, and its coordinates are rounded.

    Examples
    --------
    >>> from rapids_slink.datasets import load_cities
    >>> cities = load_cities()
    >>> cities.loc[cities["population"].idxmax(), "name"]
    'Shanghai'
    """
    return pd.read_csv(Path(__file__).parent / "cities.csv.gz", keep_default_na=False)  # "NA" is Namibia

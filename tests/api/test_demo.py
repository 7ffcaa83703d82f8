"""The data that comes with the package, and what the demo makes of it."""

from pathlib import Path

import numpy as np
import pytest

import rapids_slink
from rapids_slink import cli
from rapids_slink.datasets import EARTH_RADIUS, load_cities
from rapids_slink.points.output import on_host


def test_cities():
    cities = load_cities()
    assert list(cities.columns) == ["name", "country", "latitude", "longitude", "population"]
    assert cities["latitude"].between(-90, 90).all()
    assert cities["longitude"].between(-180, 180).all()
    assert cities["population"].min() >= 15_000
    assert not cities.isna().any(axis=None)
    assert "Windhoek" in set(cities.loc[cities["country"] == "NA", "name"])  # Namibia, not a missing value
    assert (Path(rapids_slink.__file__).parent / "datasets" / "cities.csv.gz").stat().st_size < 2**20


def test_belts(device):
    """Within a belt steps suffice that are shorter than `STEP`; between belts they do not."""
    cities, model = cli.cluster_cities(device)
    tree = on_host(model.mst_)
    belt = cities["belt"].to_numpy()
    same = belt[tree["src"]] == belt[tree["dst"]]
    assert np.array_equal(same, tree["weight"] * EARTH_RADIUS < cli.STEP)
    largest = cli.largest_belts(cities)
    assert len(largest) == cli.BELTS
    for found, row in largest.iterrows():
        people = cities.loc[cities["belt"] == found, "population"]
        assert (people.sum(), people.size) == (row["people"], row["cities"])


def test_map(tmp_path):
    pytest.importorskip("matplotlib")
    cities, model = cli.cluster_cities("cpu")
    path = tmp_path / "cities.svg"
    cli.map_of(cities, model).savefig(path, dpi=110)
    text = path.read_text()
    for name in cli.largest_belts(cities)["around"]:
        assert f" {name} -->" in text, name

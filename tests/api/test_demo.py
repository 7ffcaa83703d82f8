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


@pytest.mark.full
def test_map(tmp_path):
    pytest.importorskip("matplotlib")
    cities, model = cli.cluster_cities("cpu")
    path = tmp_path / "cities.svg"
    cli.map_of(cities, model).savefig(path, dpi=110)
    text = path.read_text()
    for name in cli.largest_belts(cities)["around"]:
        assert f" {name} -->" in text, name


def test_map_has_no_line_over_it():
    """Belts are numbered, and a legend outside the map names them: nothing but numbers lies over places."""
    Figure = pytest.importorskip("matplotlib.figure").Figure
    cities = load_cities().assign(belt=lambda frame: np.arange(len(frame)) // 20)
    axes = Figure().subplots()
    cli._draw_world(cities, axes)
    axes.figure.canvas.draw()
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(1, cli.BELTS + 1)]
    assert all(text.arrow_patch is None for text in axes.texts)
    assert not axes.lines
    assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())

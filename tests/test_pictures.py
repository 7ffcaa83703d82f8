"""The icicle of the condensed tree, the map of the spanning tree, and datashader."""

import importlib.util
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import rapids_slink
from rapids_slink.hierarchy import plots
from rapids_slink.hierarchy.plotted import MAX_POINTS
from rapids_slink.points.output import on_host

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def blobs(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [30, 0], [0, 50]])
    return centres[np.arange(n) % 3] + rng.normal(size=(n, 2))


def bars(ax):
    """The lowest and the highest corner of each bar, and its colour."""
    paths = [(collection.get_paths()[0].vertices, collection.get_facecolor()[0]) for collection in ax.collections]
    return [(path.min(axis=0), path.max(axis=0), to_hex(color).upper()) for path, color in paths]


@pytest.mark.parametrize("n", [100, 10_000])
def test_an_icicle_has_a_bar_for_each_cluster(n, device):
    model = rapids_slink.fit(blobs(n), 3, device=device)
    ax = model.plot_condensed(min_cluster_size=n // 5)
    heights = np.asarray(on_host(model.distances_))
    (low, high, color), *others = bars(ax)
    assert (low[0], high[0], color) == (0, n, plots.OTHERS)  # all rows, until the first split
    assert (low[1], high[1]) == (heights[-1], heights[-1])  # which is at once
    assert len(others) == 4  # two, of which one splits again
    leaves = [bar for bar in others if bar[2] != plots.OTHERS]
    assert len({color for *_, color in leaves}) == 3
    widths = sorted(round(high[0] - low[0]) for low, high, _ in leaves)
    assert widths == sorted(np.bincount(on_host(model.labels_)).tolist())
    assert {high[1] for _, high, _ in leaves} == set(heights[-2:])
    edges = sorted((low[0], high[0]) for low, high, _ in leaves)
    assert all(one[1] <= other[0] for one, other in pairwise(edges))


def test_a_chain_is_one_bar(device):
    """Whose dendrogram is a comb."""
    ax = rapids_slink.fit(np.arange(1000.0)[:, None] ** 1.1, device=device).plot_condensed()
    assert len(bars(ax)) == 1
    assert ax.get_xlabel() == "rows, in branches of at least 10"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_icicles_of_few_rows(n, device):
    assert len(bars(rapids_slink.fit(np.zeros((n, 2)), 1, device=device).plot_condensed())) == 1


def test_icicles_refuse(device):
    model = rapids_slink.fit(blobs(9), 2, device=device)
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2, got 1"):
        model.plot_condensed(min_cluster_size=1)
    with pytest.raises(TypeError, match="min_cluster_size must be an integer"):
        model.plot_condensed(min_cluster_size=2.5)
    with pytest.raises(ValueError, match="distances that are not negative"):
        rapids_slink.fit(blobs(9), 2, metric="inner_product", device=device).plot_condensed()


def lines(ax):
    return [np.array(collection.get_segments()) for collection in ax.collections[:2]]


def test_a_tree_is_drawn_on_the_rows(device):
    X = blobs(90)
    model = rapids_slink.fit(X, 3, device=device)
    within, removed = lines(model.plot_tree(X))
    assert (len(within), len(removed)) == (87, 2)
    ends = on_host(model.mst_)[["src", "dst"]].to_numpy()
    np.testing.assert_array_equal(removed, X[ends[-2:]])  # the two longest
    np.testing.assert_array_equal(within, X[ends[:-2]])
    texts = [text.get_text() for text in plt.gca().get_legend().get_texts()]
    assert texts == ["within clusters (87 edges)", "removed by the cut (2 edges)"]


def test_of_many_edges_the_longest_are_drawn(device):
    X = blobs(MAX_POINTS + 3000)
    model = rapids_slink.fit(X, 3, device=device)
    ax = model.plot_tree(X)
    assert sum(map(len, lines(ax))) == MAX_POINTS
    assert ax.get_legend().get_title().get_text() == "without the 2,999 shortest edges"
    assert len(lines(ax)[1]) == 2
    assert len(ax.collections[2].get_offsets()) <= MAX_POINTS


def test_trees_of_graphs_with_names(device):
    edges = pd.DataFrame({"src": list("abd"), "dst": list("bce"), "weight": [1.0, 2.0, 3.0]})
    model = rapids_slink.fit_graph(edges, device=device)
    places = np.arange(10.0).reshape(5, 2)
    within, removed = lines(model.plot_tree(places))
    assert (len(within), len(removed)) == (3, 0)
    rows = dict(zip(on_host(model.labels_).index, places, strict=True))
    found = {tuple(map(tuple, segment)) for segment in within}
    assert found == {(tuple(rows[a]), tuple(rows[b])) for a, b in ("ab", "bc", "de")}


@pytest.mark.parametrize("n", [1, 2])
def test_trees_of_few_rows(n, device):
    X = blobs(n)
    assert sum(map(len, lines(rapids_slink.fit(X, n, device=device).plot_tree(X)))) == n - 1


def test_trees_refuse_other_rows(device):
    with pytest.raises(ValueError, match="X must have the 9 rows that were clustered, got 8"):
        rapids_slink.fit(blobs(9), 2, device=device).plot_tree(blobs(8))


def shaded_in(ax):
    return [artist for artist in ax.get_children() if hasattr(artist, "get_ds_data")]


def test_datashader_draws_all_of_many_rows(monkeypatch):
    labels = np.arange(200_001) % 3
    labels[:5] = -1
    X = blobs(labels.size)
    if importlib.util.find_spec("datashader"):
        ax = plots.plot_clusters(X, labels)
        (shaded,) = shaded_in(ax)
        assert int(shaded.get_ds_data().sum()) == labels.size
        assert len(ax.get_legend().get_texts()) == 4
        assert not any(len(collection.get_offsets()) for collection in ax.collections)
        plt.close("all")
    monkeypatch.setattr("rapids_slink.hierarchy.plots.find_spec", lambda name: None)
    ax = plots.plot_clusters(X, labels)
    assert not shaded_in(ax)
    assert sum(len(collection.get_offsets()) for collection in ax.collections) <= MAX_POINTS

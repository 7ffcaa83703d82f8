"""The icicle of the condensed tree, the map of the spanning tree, and datashader."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

import rapids_slink
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.plotting import MAX_POINTS
from rapids_slink.points.output import on_host

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.patches import Ellipse, Rectangle  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def blobs(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [30, 0], [0, 50]])
    return centres[np.arange(n) % 3] + rng.normal(size=(n, 2))


def bars(ax):
    """Where each bar begins, its height and its width."""
    rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return sorted((round(p.get_y(), 9), round(p.get_height(), 9), round(p.get_width())) for p in rectangles)


def columns(ax):
    """The places of the icicles."""
    return {round(p.get_x() + p.get_width() / 2, 6) for p in ax.patches if isinstance(p, Rectangle)}


@pytest.mark.parametrize("n", [100, 10_000])
def test_icicles_are_hdbscans(n, device):
    pytest.importorskip("hdbscan")
    model = rapids_slink.fit(blobs(n), 3, device=device)
    _, (ax, other) = plt.subplots(1, 2)
    assert model.plot_condensed(min_cluster_size=n // 5, ax=ax, select_clusters=True) is ax
    model.to_hdbscan(n // 5).condensed_tree_.plot(axis=other, select_clusters=True)
    assert bars(ax) == bars(other)
    assert len(columns(ax)) == 5  # all rows, two clusters, and two of which one splits again
    for drawn in (ax, other):
        assert sum(isinstance(patch, Ellipse) for patch in drawn.get_children()) == 3


def test_a_chain_is_one_icicle(device):
    """Whose dendrogram is a comb."""
    pytest.importorskip("hdbscan")
    assert len(columns(rapids_slink.fit(np.arange(1000.0)[:, None] ** 1.1, device=device).plot_condensed())) == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_icicles_of_few_equal_rows(n, device):
    """They part at an infinite rate, which hdbscan cannot draw."""
    pytest.importorskip("hdbscan")
    assert bars(rapids_slink.fit(np.zeros((n, 2)), 1, device=device).plot_condensed()) == [(0, 1, n)]


def test_icicles_refuse(device):
    with pytest.raises(ValueError, match="no condensed tree of weighted rows"):
        rapids_slink.HDBSCAN(5, device=device).fit(blobs(99), sample_weight=np.full(99, 2.0)).plot_condensed()
    model = rapids_slink.fit(blobs(9), 2, device=device)
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2, got 1"):
        model.plot_condensed(min_cluster_size=1)
    with pytest.raises(TypeError, match="min_cluster_size must be an integer"):
        model.plot_condensed(min_cluster_size=2.5)
    with pytest.raises(ValueError, match="distances that are not negative"):
        rapids_slink.fit(blobs(9), 2, metric="inner_product", device=device).plot_condensed()
    pytest.importorskip("hdbscan")
    with pytest.raises(ValueError, match="no tree of the forest has as many rows as min_cluster_size"):
        rapids_slink.fit(np.arange(9.0)[:, None], None, max_distance=0.5, device=device).plot_condensed()


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
        ax = plotting.plot_clusters(X, labels)
        (shaded,) = shaded_in(ax)
        assert int(shaded.get_ds_data().sum()) == labels.size
        assert len(ax.get_legend().get_texts()) == 4
        assert not any(len(collection.get_offsets()) for collection in ax.collections)
        plt.close("all")
    monkeypatch.setattr("rapids_slink.hierarchy.plotting.find_spec", lambda name: None)
    ax = plotting.plot_clusters(X, labels)
    assert not shaded_in(ax)
    assert sum(len(collection.get_offsets()) for collection in ax.collections) <= MAX_POINTS

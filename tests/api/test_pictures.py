"""The icicle of the condensed tree, the map of the spanning tree, and datashader."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

import rapids_slink
from rapids_slink.datasets import EARTH_RADIUS
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.palette import COLORS
from rapids_slink.hierarchy.plotting import MAX_POINTS
from rapids_slink.points.output import on_host

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def blobs(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [30, 0], [0, 50]])
    return centres[np.arange(n) % 3] + rng.normal(size=(n, 2))


def bars(ax, part=0):
    """The least and the largest height and the width at the top of each bar, of outlines (0) or of colours (1)."""
    corners = [path.vertices[:-1] for path in ax.collections[part].get_paths()]
    return sorted((c[:, 1].min(), c[:, 1].max(), round(np.ptp(c[c[:, 1] == c[:, 1].max(), 0]))) for c in corners)


@pytest.mark.parametrize("n", [99, 9_999])
def test_icicles_are_of_the_condensed_tree(n, device):
    """Which is drawn without the package hdbscan: a bar for each cluster, from its birth, as wide as it is then."""
    model = rapids_slink.fit(blobs(n), 3, device=device)
    ax = plt.figure().gca()
    assert model.plot_condensed(min_cluster_size=n // 5, ax=ax) is ax
    heights = model.to_scipy()[:, 2]
    shown = bars(ax)
    assert len(shown) == 5  # all rows, two clusters, and two of which one splits again
    tops = sorted((top, rows) for _, top, rows in shown)
    third, (second, first) = n // 3, heights[-2:]
    np.testing.assert_allclose(tops, [(second, third), (second, third), (first, third), (first, 2 * third), (first, n)])


def test_icicles_know_the_cut(device):
    """The rows of a cluster have one colour in all pictures, below the line of the cut."""
    X = np.concatenate([blobs(90), [[100.0, 0.0]]])
    model = rapids_slink.fit(X, 4, device=device)
    ax = model.plot_condensed(min_cluster_size=5, ax=plt.figure().gca())
    line = ax.lines[0].get_ydata()[0]
    assert len(np.unique(model.cut(distance_threshold=line))) == 4
    colors = {matplotlib.colors.to_hex(c) for c in ax.collections[1].get_facecolors()}
    assert colors == {color.lower() for color in COLORS[:3]}
    assert ax.collections[1].get_clip_box().transformed(ax.transData.inverted()).y1 == pytest.approx(line)


def test_a_chain_is_one_icicle(device):
    """Whose dendrogram is a comb."""
    assert len(bars(rapids_slink.fit(np.arange(1000.0)[:, None] ** 1.1, device=device).plot_condensed())) == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_icicles_of_few_equal_rows(n, device):
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


def test_a_script_that_draws_places(device):
    """Longitude is across, in degrees of equal length; distances are in kilometres; the index names the leaves."""
    rng = np.random.default_rng(0)
    latitude = np.concatenate([rng.normal(48, 0.5, 60), rng.normal(60, 0.5, 40)])
    longitude = np.concatenate([rng.normal(2, 0.5, 60), rng.normal(25, 0.5, 40)])
    names = [f"place {i}" for i in range(100)]
    places = np.radians(pd.DataFrame({"latitude": latitude, "longitude": longitude}, index=names))
    model = rapids_slink.fit(places, 2, metric="haversine", device=device)
    _, axes = plt.subplots(2, 2)
    on_map = model.plot_clusters(places, ax=axes[0, 0])
    assert (on_map.get_xlabel(), on_map.get_ylabel()) == ("longitude (°)", "latitude (°)")
    points = np.concatenate([part.get_offsets() for part in on_map.collections])
    np.testing.assert_allclose(np.sort(points[:, 0]), np.sort(longitude))
    assert on_map.get_aspect() == pytest.approx(1 / np.cos(np.radians(sum(on_map.get_ylim()) / 2)))
    (bar,), (text,) = on_map.lines, [text.get_text() for text in on_map.texts]
    left, right = np.radians(np.column_stack([bar.get_ydata(), bar.get_xdata()]))
    middle = np.radians(sum(on_map.get_ylim()) / 2)
    assert text == f"{(right - left)[1] * np.cos(middle) * EARTH_RADIUS:,.0f} km"
    dendrogram = model.plot(ax=axes[0, 1])
    assert dendrogram.get_ylabel() == "distance (km)"
    top = max(y for part in dendrogram.collections for path in part.get_paths() for _, y in path.vertices)
    assert top == pytest.approx(model.to_scipy()[-1, 2] * EARTH_RADIUS)
    leaves = [text.get_text() for text in dendrogram.get_xticklabels()]
    assert set(leaves) <= {*names, *(f"({i})" for i in range(2, 99))}
    assert set(leaves) & set(names)
    drawn = {matplotlib.colors.to_hex(c) for part in dendrogram.collections for c in part.get_colors()}
    assert drawn == {"#000000", COLORS[0].lower(), COLORS[1].lower()}  # the 60 rows and the 40
    (line,) = (line.get_ydata()[0] for line in dendrogram.lines)
    assert len(np.unique(model.cut(distance_threshold=line / EARTH_RADIUS))) == 2
    assert model.plot_heights(ax=axes[1, 0]).get_ylabel() == "distance of the next merge (km)"
    assert model.plot_condensed(ax=axes[1, 1]).get_ylabel() == "distance (km)"
    world = np.radians(pd.DataFrame({"latitude": [-89.5, 0.0, 89.9], "longitude": [0.0, 90.0, -170.0]}))
    ax = rapids_slink.fit(world, 2, metric="haversine", device=device).plot_clusters(world, ax=plt.figure().gca())
    assert ax.get_ylim() == (-90, 90)

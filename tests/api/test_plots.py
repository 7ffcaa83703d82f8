"""Plots that are safe at any size and depth: dendrograms, heights, rows, icicles, and maps of the spanning tree."""

import importlib.util
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from models import frame_of, grown
from scipy.cluster import hierarchy

import rapids_slink
from rapids_slink import fit, fit_graph, linkage
from rapids_slink.datasets import EARTH_RADIUS
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.hierarchy.plotting import COLORS, MAX_HEIGHTS, MAX_POINTS, OTHERS, sample_of_heights, sample_of_rows
from rapids_slink.points.output import OutputKind, on_device, on_host

pytestmark = pytest.mark.usefixtures("pyplot")  # which closes them


def chain(n):
    i = np.arange(n - 1, dtype=np.int32)
    return linkage(pd.DataFrame({"src": i, "dst": i + 1, "weight": i + 1.0}), device="cpu")


def plot_dendrogram(frame, **how):
    """Draw the dendrogram of a linkage frame of one tree, whose rows are one cluster."""
    model = Hierarchy()
    model.linkage_, model.n_leaves_, model.n_clusters_ = frame, len(frame) + 1, 1
    model.labels_, model._output = np.zeros(len(frame) + 1, np.int32), OutputKind(is_frame=True, gpu=False)
    return model.plot(**how)


def leaf_labels(ax):
    return [tick.get_text() for tick in ax.get_xticklabels()]


@pytest.mark.parametrize(("n", "p"), [(2, 2), (3, 2), (60, 2), (60, 7), (60, 60), (60, 1000)])
@pytest.mark.parametrize("how", [{}, {"distance_sort": True}])
def test_the_last_merges_are_those_scipy_draws(n, p, how):
    Z = to_scipy(grown(n))
    ax = plot_dendrogram(frame_of(Z), p=p, **how)
    mode = {} if p >= n else {"truncate_mode": "lastp", "p": p}
    expected = hierarchy.dendrogram(Z, no_plot=True, **mode, **how)
    assert leaf_labels(ax) == expected["ivl"]
    links = sorted(path.tolist() for lines in ax.collections for path in (q.vertices[:4] for q in lines.get_paths()))
    drawn = np.stack((expected["icoord"], expected["dcoord"]), axis=-1).tolist()
    assert links == sorted(drawn)


def test_a_deep_chain_is_drawn():
    ax = plot_dendrogram(chain(100_000))
    labels = leaf_labels(ax)
    assert len(labels) == 30
    assert "(99971)" in labels
    assert "99999" in labels
    assert ax.get_xlabel() == "row, or (rows in the cluster)"
    assert ax.get_ylabel() == "distance"


def test_drawing_all_is_up_to_the_caller():
    assert len(leaf_labels(plot_dendrogram(grown(40), truncate_mode=None))) == 40
    with pytest.raises(ValueError, match="a dendrogram of 20000 leaves is too deep for SciPy to draw"):
        plot_dendrogram(chain(20_000), truncate_mode=None)


def test_options_speak_of_the_whole_tree():
    frame = chain(50)
    names = [f"row {i}" for i in range(50)]
    assert {"row 48", "row 49", "(47)"} <= set(leaf_labels(plot_dendrogram(frame, p=4, labels=names)))
    with pytest.raises(ValueError, match="labels must have one entry per row: 50, got 2"):
        plot_dendrogram(frame, labels=["a", "b"])
    seen = []
    plot_dendrogram(frame, p=3, link_color_func=lambda cluster: seen.append(cluster) or "k")
    assert sorted(seen) == [97, 98]
    sideways = plot_dendrogram(frame, ax=plt.figure().gca(), orientation="left", leaf_label_func=str, p=3)
    assert [t.get_text() for t in sideways.get_yticklabels()] == ["49", "48", "96"]
    assert sideways.get_xlabel() == "distance"


def test_axes_are_the_callers(engine):
    ax = plt.figure().gca()
    plt.figure()
    assert plot_dendrogram(on_device(grown(10), engine), ax=ax) is ax
    assert plot_dendrogram(grown(10)) is plt.gca()


@pytest.mark.parametrize("orientation", ["top", "left"])
def test_equal_rows_are_drawn_without_a_warning(orientation):
    ax = fit(np.ones((4, 2)), device="cpu").plot(orientation=orientation)
    assert sum(len(lines.get_paths()) for lines in ax.collections) == 3


def test_one_row_has_nothing_to_draw():
    ax = plot_dendrogram(grown(2).iloc[:0])
    assert not ax.collections
    assert ax.get_ylabel() == "distance"


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"p": 1}, ValueError, "p must be at least 2, got 1"),
        ({"p": 2.5}, TypeError, r"p must be an integer, got 2\.5"),
        ({"truncate_mode": "level"}, ValueError, "truncate_mode must be 'lastp' or None, got 'level'"),
    ],
)
def test_plot_refuses(how, error, message):
    with pytest.raises(error, match=message):
        plot_dendrogram(grown(5), **how)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    X = np.zeros((3, 2))
    model = fit(X, 1, device="cpu")
    for draw in (model.plot, model.plot_heights, lambda: model.plot_clusters(X)):
        with pytest.raises(ImportError, match=r"pip install 'rapids_slink\[plot\]'"):
            draw()


def curve(ax):
    return ax.lines[0].get_xdata(), ax.lines[0].get_ydata()


def test_heights_stand_over_the_number_of_clusters(device):
    X = np.array([[0.0], [1.0], [3.0], [6.0], [10.0]])
    model = fit(X, 3, device=device)
    ax = model.plot_heights()
    x, y = curve(ax)
    assert x.tolist() == [2, 3, 4, 5]
    assert y.tolist() == [4.0, 3.0, 2.0, 1.0]
    assert ax.lines[1].get_xdata()[0] == 3
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["3 clusters (2 < distance ≤ 3)"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("number of clusters", "distance of the next merge")
    for k, label in ((1, "1 cluster (4 < distance)"), (5, "5 clusters (distance ≤ 1)")):
        ax = fit(X, k, device=device).plot_heights(plt.figure().gca(), color="k")
        assert ax.get_legend().get_texts()[0].get_text() == label
        assert ax.lines[0].get_color() == "k"


def test_thresholds_in_the_legend_give_the_cut(device):
    model = fit(np.random.default_rng(0).random((50, 2)), 7, device=device)
    text = model.plot_heights().get_legend().get_texts()[0].get_text()
    low, high = (float(word) for word in text.strip("()").split("(")[1].split(" < distance ≤ "))
    assert model.cut(distance_threshold=(low + high) / 2).tolist() == model.labels_.tolist()


def test_many_heights_are_sampled_on_logarithmic_axes():
    n = 100_000
    edges = pd.DataFrame({"src": np.arange(n - 1), "dst": np.arange(1, n), "weight": np.arange(n - 1.0) ** 2})
    ax = fit_graph(edges, device="cpu").plot_heights()
    x, y = curve(ax)
    assert len(x) <= MAX_HEIGHTS
    assert x[:20].tolist() == list(range(2, 22))
    assert (x[0], x[-1]) == (2, n)
    np.testing.assert_array_equal(y, (n - x.astype(float)) ** 2)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    lower = fit_graph(edges.assign(weight=edges.weight - 1), device="cpu")
    assert lower.plot_heights(plt.figure().gca()).get_yscale() == "linear"


@pytest.mark.parametrize("n", [0, 1, 2, MAX_HEIGHTS, MAX_HEIGHTS + 1, 10**7])
def test_sample_of_heights(n):
    drawn = sample_of_heights(n)
    assert len(drawn) <= MAX_HEIGHTS
    assert (np.diff(drawn) > 0).all()
    assert drawn.tolist() == list(range(n)) if n <= MAX_HEIGHTS else (drawn[0], drawn[-1]) == (0, n - 1)


def test_heights_of_a_forest_and_of_one_row(device):
    edges = pd.DataFrame({"src": [0, 1, 3], "dst": [1, 2, 4], "weight": [-1.0, 2.0, 0.0]})
    ax = fit_graph(edges, n_nodes=6, device=device).plot_heights()
    x, y = curve(ax)
    assert (x.tolist(), y.tolist()) == ([4, 5, 6], [2.0, 0.0, -1.0])
    assert ax.get_legend().get_texts()[0].get_text() == "3 clusters (2 < distance)"
    ax = fit(np.zeros((1, 1)), 1, device=device).plot_heights(plt.figure().gca())
    assert ax.get_legend().get_texts()[0].get_text() == "1 cluster"


def drawn_points(ax):
    """Each colour's points: colour, label and coordinates."""
    return [(part.get_facecolor()[0], part.get_label(), np.asarray(part.get_offsets())) for part in ax.collections]


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_clusters_of_two_columns_are_drawn_as_they_are(device):
    X = pd.DataFrame({"x": [0.0, 0.1, 9.0, 0.2], "y": [1.0, 1.0, 5.0, 1.0]})
    model = fit(X, 2, device=device)
    ax = plt.figure().gca()
    plt.figure()
    assert model.plot_clusters(X, ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert legend_of(ax) == ["0 (3 rows)", "1 (1 row)"]
    first, second = drawn_points(ax)
    assert matplotlib.colors.to_hex(first[0]) == COLORS[0].lower()
    np.testing.assert_array_equal(first[2], X.to_numpy()[[0, 1, 3]])
    np.testing.assert_array_equal(second[2], X.to_numpy()[[2]])


def test_small_clusters_are_grey_together_and_on_top(device):
    X = np.r_[np.zeros(50), np.repeat(np.arange(1, 24) * 10.0, 2)][:, None]
    ax = fit(X, 24, device=device).plot_clusters(X)
    assert legend_of(ax)[0] == "0 (50 rows)"
    assert legend_of(ax)[-1] == "4 others (8 rows)"
    shown = drawn_points(ax)
    assert len(shown[0][2]) == 50
    (grey,) = [points for color, _, points in shown if matplotlib.colors.to_hex(color) == OTHERS]
    assert sorted(grey[:, 0]) == [200, 200, 210, 210, 220, 220, 230, 230]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 0", "")
    assert len(ax.get_yticks()) == 0


def test_more_columns_are_projected(device):
    rng = np.random.default_rng(0)
    X = np.zeros((60, 5))
    X[:, 3], X[:, 1] = rng.normal(0, 100, 60), rng.normal(0, 1, 60)
    ax = fit(X, 2, device=device).plot_clusters(X)
    assert ax.get_xlabel() == "first principal component (100%)"
    assert ax.get_ylabel() == "second principal component (0%)"
    found = np.vstack([points for *_, points in drawn_points(ax)])
    np.testing.assert_allclose(np.sort(np.abs(found[:, 0])), np.sort(np.abs(X[:, 3] - X[:, 3].mean())), rtol=1e-3)
    for odd in (np.ones((4, 3)), np.ones((1, 3)), np.eye(3) * 1e150):
        ax = fit(odd, 1, device=device).plot_clusters(odd, plt.figure().gca())
        assert np.isfinite(drawn_points(ax)[0][2]).all()


def test_many_rows_are_thinned_out():
    X = np.random.default_rng(0).random((30_000, 2))
    labels = np.zeros(30_000, np.int32)
    labels[[5, 29_999]] = 1
    first, second = drawn_points(plotting.plot_clusters(X, labels))
    assert (first[1], second[1]) == ("0 (29,998 rows)", "1 (2 rows)")
    assert len(first[2]) == MAX_POINTS - 2
    np.testing.assert_array_equal(second[2], X[[5, 29_999]])


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=7), st.integers(0, 9))
def test_sample_takes_as_many_of_every_group(sizes, seed):
    group = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = sample_of_rows(group)
    assert (np.diff(rows) > 0).all()
    taken = np.bincount(group[rows], minlength=len(sizes))
    if sum(sizes) <= MAX_POINTS:
        assert taken.tolist() == sizes
    else:
        assert MAX_POINTS - len(sizes) < len(rows) <= MAX_POINTS
        assert taken.tolist() == np.minimum(sizes, taken.max()).tolist()


def test_plot_clusters_refuses(device):
    model = fit(np.zeros((3, 2)), 1, device=device)
    with pytest.raises(ValueError, match="X must have the 3 rows that were clustered, got 2"):
        model.plot_clusters(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="column 1 has 1 NaN"):
        model.plot_clusters(np.array([[0.0, np.nan]] * 1 + [[0.0, 0.0]] * 2))


@pytest.mark.gpu
def test_clusters_of_the_gpus_frames():
    import cudf

    X = pd.DataFrame(np.random.default_rng(0).random((30_000, 3)), columns=list("xyz"))
    frames = cudf.DataFrame(X), X
    on_gpu, on_cpu = (drawn_points(fit(frame, 5).plot_clusters(frame, plt.figure().gca())) for frame in frames)
    for (_, label, points), (_, expected_label, expected) in zip(on_gpu, on_cpu, strict=True):
        assert label == expected_label
        np.testing.assert_array_equal(points, expected)


def test_a_new_figure_has_room_for_the_legend(device):
    X = np.random.default_rng(0).random((30, 2))
    figure = fit(X, 3, device=device).plot_clusters(X).figure
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_legend().get_window_extent().x1 <= figure.bbox.x1


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


@pytest.mark.full  # which compiles functions of its own
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
    monkeypatch.setitem(sys.modules, "datashader", None)
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

"""Plots that are safe at any size and depth."""

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import frame_of, grown
from scipy.cluster import hierarchy

from rapids_slink import fit, fit_graph, linkage
from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.hierarchy.plotting import (
    COLORS,
    MAX_HEIGHTS,
    MAX_POINTS,
    OTHERS,
    plot_clusters,
    plot_dendrogram,
    plot_heights,
    sample_of_heights,
    sample_of_rows,
)
from rapids_slink.points.output import on_device

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def chain(n):
    i = np.arange(n - 1, dtype=np.int32)
    return linkage(pd.DataFrame({"src": i, "dst": i + 1, "weight": i + 1.0}), device="cpu")


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
    drawn = [
        list(map(list, zip(x, y, strict=True))) for x, y in zip(expected["icoord"], expected["dcoord"], strict=True)
    ]
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


# ------------------------------------------------------------------------------------------------- heights


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
    frame = pd.DataFrame({"left": 0, "right": 1, "height": np.arange(n - 1.0) ** 2, "size": 2})
    ax = plot_heights(frame, n)
    x, y = curve(ax)
    assert len(x) <= MAX_HEIGHTS
    assert x[:20].tolist() == list(range(2, 22))
    assert (x[0], x[-1]) == (2, n)
    np.testing.assert_array_equal(y, (n - x.astype(float)) ** 2)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_legend() is None
    assert plot_heights(frame.assign(height=frame.height - 1), n, ax=plt.figure().gca()).get_yscale() == "linear"


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


# ------------------------------------------------------------------------------------------------ clusters


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
    first, second = drawn_points(plot_clusters(X, labels))
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
    on_gpu, on_cpu = (
        drawn_points(fit(frame, 5).plot_clusters(frame, plt.figure().gca())) for frame in (cudf.DataFrame(X), X)
    )
    for (_, label, points), (_, expected_label, expected) in zip(on_gpu, on_cpu, strict=True):
        assert label == expected_label
        np.testing.assert_array_equal(points, expected)


def test_a_new_figure_has_room_for_the_legend(device):
    X = np.random.default_rng(0).random((30, 2))
    figure = fit(X, 3, device=device).plot_clusters(X).figure
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_legend().get_window_extent().x1 <= figure.bbox.x1

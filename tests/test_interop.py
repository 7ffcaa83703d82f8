"""SciPy's matrix, and plots that are safe at any size and depth."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy.cluster import hierarchy

from rapids_slink import fit_graph
from rapids_slink.dendrogram import linkage
from rapids_slink.interop import _last_merges, plot_dendrogram, to_scipy
from rapids_slink.points import on_device

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def frame_of(Z):
    made = pd.DataFrame(Z, columns=["left", "right", "height", "size"])
    return made.astype({"left": "int32", "right": "int32", "size": "int32"})


def grown(n, seed=0):
    return frame_of(hierarchy.linkage(np.random.default_rng(seed).random((n, 2)), "single"))


def chain(n):
    i = np.arange(n - 1, dtype=np.int32)
    return linkage(pd.DataFrame({"src": i, "dst": i + 1, "weight": i + 1.0}), device="cpu")


def leaf_labels(ax):
    return [tick.get_text() for tick in ax.get_xticklabels()]


def test_to_scipy(where):
    Z = hierarchy.linkage(np.random.default_rng(0).random((30, 2)), "single")
    found = to_scipy(on_device(frame_of(Z), where))
    assert found.dtype == np.float64
    assert found.tobytes() == Z.tobytes()
    assert to_scipy(on_device(frame_of(Z[:0]), where)).shape == (0, 4)


def test_to_scipy_refuses():
    with pytest.raises(ValueError, match="columns left, right, height, size; size not found"):
        to_scipy(grown(3).drop(columns="size"))
    with pytest.raises(TypeError, match=r"linkage must be a DataFrame .* got ndarray"):
        to_scipy(np.zeros((2, 4)))
    forest = linkage(pd.DataFrame({"src": [0, 2], "dst": [1, 3], "weight": [1, 2]}), n_nodes=4, device="cpu")
    with pytest.raises(
        ValueError, match="2 merges do not join 3 leaves into one tree: SciPy has no linkage of a forest"
    ):
        to_scipy(forest)


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


def test_the_last_merges_are_a_valid_linkage():
    for seed in range(20):
        Z = to_scipy(grown(50, seed))
        for p in (2, 3, 10, 50):
            top, clusters = _last_merges(Z, p)
            assert len(top) == p - 1
            assert hierarchy.is_valid_linkage(top)
            np.testing.assert_array_equal(top[:, 2], Z[50 - p :, 2])
            assert (top[:, 0] < top[:, 1]).all()
            np.testing.assert_array_equal(np.sort(clusters[p:]), np.arange(99 - (p - 1), 99))


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
    with pytest.raises(ValueError, match="labels must be one a row: 50, got 2"):
        plot_dendrogram(frame, labels=["a", "b"])
    seen = []
    plot_dendrogram(frame, p=3, link_color_func=lambda cluster: seen.append(cluster) or "k")
    assert sorted(seen) == [97, 98]
    sideways = plot_dendrogram(frame, ax=plt.figure().gca(), orientation="left", leaf_label_func=str, p=3)
    assert [t.get_text() for t in sideways.get_yticklabels()] == ["49", "48", "96"]
    assert sideways.get_xlabel() == "distance"


def test_axes_are_the_callers(where):
    ax = plt.figure().gca()
    plt.figure()
    assert plot_dendrogram(on_device(grown(10), where), ax=ax) is ax
    assert plot_dendrogram(grown(10)) is plt.gca()


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
    with pytest.raises(ImportError, match=r"pip install 'rapids_slink\[plot\]'"):
        plot_dendrogram(grown(5))


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2)], []])
def test_a_forest_of_a_tree_and_single_nodes_is_refused(pairs):
    frame = pd.DataFrame({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs], "weight": 1.0})
    forest = fit_graph(frame.astype({"src": "int32", "dst": "int32"}), n_nodes=5, device="cpu")
    for call in (forest.to_scipy, forest.plot):
        with pytest.raises(ValueError, match=f"a forest, and this hierarchy is one of {5 - len(pairs)} trees"):
            call()
    if pairs:
        with pytest.raises(ValueError, match="do not join 3 leaves into one tree"):
            to_scipy(forest.linkage_)

"""SciPy's matrix, NetworkX's and cuGraph's graphs."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from scipy.cluster import hierarchy
from sklearn.exceptions import NotFittedError

from rapids_slink import SingleLinkage, fit, fit_graph
from rapids_slink.dendrogram import linkage
from rapids_slink.device import DeviceUnavailableError, gpu_is_usable, to_host
from rapids_slink.interop import to_cugraph, to_scipy
from rapids_slink.points import on_device


def frame_of(Z):
    made = pd.DataFrame(Z, columns=["left", "right", "height", "size"])
    return made.astype({"left": "int32", "right": "int32", "size": "int32"})


def grown(n, seed=0):
    return frame_of(hierarchy.linkage(np.random.default_rng(seed).random((n, 2)), "single"))


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


def test_to_networkx(device):
    networkx = pytest.importorskip("networkx", reason="NetworkX is not installed")
    X = pd.DataFrame({"x": [3.0, 0.0, 1.5, 9.0]}, index=["a", "a", "b", None])
    model = fit(X, 2, device=device)
    graph = model.to_networkx()
    assert type(graph) is networkx.Graph
    assert list(graph) == [0, 1, 2, 3]
    assert list(graph.edges(data="weight")) == [(0, 2, 1.5), (0, 3, 6.0), (1, 2, 1.5)]
    assert {type(part) for edge in graph.edges(data="weight") for part in edge} == {int, float}
    forest = fit_graph(pd.DataFrame({"src": [2], "dst": [1], "weight": [-4]}), n_nodes=5, device=device).to_networkx()
    assert list(forest) == [0, 1, 2, 3, 4]
    assert networkx.number_connected_components(forest) == 4
    assert forest[1][2] == {"weight": -4.0}
    assert list(fit(np.zeros((1, 2)), 1, device=device).to_networkx()) == [0]


def test_without_networkx_or_cugraph(monkeypatch, device):
    model = fit(np.arange(4.0)[:, None], device=device)
    for name, extra in (("networkx", "networkx"), ("cugraph", "graph-cu13")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=rf"pip install 'rapids_slink\[{extra}\]'"):
            getattr(model, f"to_{name}")()


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_to_cugraph_needs_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cugraph", types.ModuleType("cugraph"))
    with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU"):
        fit(np.arange(4.0)[:, None], device="cpu").to_cugraph()


@pytest.mark.gpu
def test_to_cugraph():
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    cugraph = pytest.importorskip("cugraph", reason="cuGraph is not installed")
    X = np.random.default_rng(0).random((200, 2))
    for device in ("cpu", "cuda"):
        model = fit(X, device=device)
        graph = model.to_cugraph()
        assert isinstance(graph, cugraph.Graph)
        assert not graph.is_directed()
        assert graph.is_weighted()
        assert (graph.number_of_vertices(), graph.number_of_edges()) == (200, 199)
        back = graph.view_edge_list().to_pandas()
        ends = np.sort(back[["src", "dst"]].to_numpy(), axis=1)
        weight = back.drop(columns=["src", "dst"]).iloc[:, 0]
        found = sorted(zip(*ends.T.tolist(), weight.tolist(), strict=True))
        tree = [to_host(model.mst_[c].values).tolist() for c in ("src", "dst", "weight")]
        assert found == sorted(zip(*tree, strict=True))
    with pytest.raises(ValueError, match="the tree has no edges"):
        to_cugraph(model.mst_.iloc[:0])


def test_unfitted_models_say_so():
    model = SingleLinkage()
    for call in (
        model.to_scipy,
        model.to_networkx,
        model.to_cugraph,
        model.plot,
        model.plot_heights,
        lambda: model.plot_clusters(np.zeros((2, 2))),
        lambda: model.save("never.slink"),
    ):
        with pytest.raises(NotFittedError, match="this SingleLinkage is not fitted yet: call fit first"):
            call()

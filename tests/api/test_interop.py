"""A hierarchy as SciPy's matrix and as NetworkX's graph."""

import sys

import numpy as np
import pandas as pd
import pytest
from models import frame_of, grown
from scipy.cluster import hierarchy
from spanning_trees import NAMES

from rapids_slink import fit, fit_graph, linkage
from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.points.output import on_device


def test_to_scipy(engine):
    Z = hierarchy.linkage(np.random.default_rng(0).random((30, 2)), "single")
    found = to_scipy(on_device(frame_of(Z), engine))
    assert found.dtype == np.float64
    assert found.tobytes() == Z.tobytes()
    assert to_scipy(on_device(frame_of(Z[:0]), engine)).shape == (0, 4)


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


@pytest.mark.parametrize("kind", NAMES)
def test_to_networkx_has_the_graphs_own_nodes(kind, device):
    """And no others, a node without an edge in the tree among them."""
    pytest.importorskip("networkx", reason="NetworkX is not installed")
    src, dst = [4, 6, 4, 11, 12, 2], [5, 4, 5, 12, 11, 2]  # node 2 has a loop alone
    names = dict(zip([4, 6, 11, 12, 2, 5], NAMES[kind]([4, 6, 11, 12, 2, 5]).tolist(), strict=True))
    frame = pd.DataFrame({"src": NAMES[kind](src), "dst": NAMES[kind](dst), "weight": [3.0, 2.0, 1.0, 1.0, 5.0, 4.0]})
    graph = fit_graph(frame, device=device).to_networkx()
    assert set(graph) == set(names.values())
    expected = {frozenset((names[u], names[v])): w for u, v, w in [(4, 5, 1.0), (11, 12, 1.0), (6, 4, 2.0)]}
    assert {frozenset(edge[:2]): edge[2] for edge in graph.edges(data="weight")} == expected


def test_without_networkx_or_cugraph(monkeypatch, device):
    model = fit(np.arange(4.0)[:, None], device=device)
    for name, extra in (("networkx", "networkx"), ("cugraph", "graph-cu13")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=rf"pip install 'rapids_slink\[{extra}\]'"):
            getattr(model, f"to_{name}")()

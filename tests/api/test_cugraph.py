"""cuGraph's graphs in and out; where there is no cuGraph, as much of its `Graph` as is used stands in for it."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from spanning_trees import NAMES, edges, kruskal, random_graph

from rapids_slink import fit, fit_graph, minimum_spanning_tree
from rapids_slink.runtime.device import DeviceUnavailableError, gpu_is_usable, to_host


class Graph:
    """As much of `cugraph.Graph` as is used, over a frame; `test_real_graphs` has the real one."""

    __module__ = "cugraph.structure.graph_classes"

    def __init__(self, source="src", destination="dst", directed=False, weighted=True):
        self.source_columns, self.destination_columns = source, destination
        self.directed, self.weighted, self.edges = directed, weighted, None

    def is_directed(self):
        return self.directed

    def is_weighted(self):
        return self.weighted

    def view_edge_list(self):
        return self.edges

    def from_cudf_edgelist(self, edges, source, destination, edge_attr):
        self.edges = edges.rename(columns={edge_attr: "value"})
        self.source_columns, self.destination_columns = source, destination


@pytest.fixture
def fake_cugraph(monkeypatch):
    module = types.ModuleType("cugraph")
    module.Graph = Graph
    monkeypatch.setitem(sys.modules, "cugraph", module)


@pytest.mark.usefixtures("fake_cugraph")
@pytest.mark.parametrize("ends", [("src", "dst"), ("from", "to"), (["from"], ["to"])])
def test_graph_objects(ends):
    frame = random_graph(np.random.default_rng(0), 30, 100, [0.0, 1.0, 2.0])
    names = [end[0] if isinstance(end, list) else end for end in ends]
    graph = Graph(*ends)
    graph.edges = frame.set_axis([*names, "cost"], axis=1)
    found = minimum_spanning_tree(graph, maximum=True, device="cpu")
    assert type(found) is Graph
    expected = minimum_spanning_tree(frame, maximum=True, device="cpu")
    pd.testing.assert_frame_equal(found.view_edge_list().rename(columns={"value": "weight"}), expected)
    model = fit_graph(graph, device="cpu")
    pd.testing.assert_frame_equal(model.mst_, fit_graph(frame, device="cpu").mst_)
    assert list(graph.edges.columns) == [*names, "cost"]


@pytest.mark.usefixtures("fake_cugraph")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"directed": True}, "undirected cugraph.Graph"),
        ({"weighted": False}, "weighted cugraph.Graph: pass weight="),
        ({"source": ["a", "b"], "destination": ["c", "d"]}, r"one column each, got \['a', 'b'\]"),
    ],
)
def test_graph_objects_that_have_no_tree(parameters, message):
    graph = Graph(**parameters)
    graph.edges = edges([0], [1], [1.0])
    for call in (minimum_spanning_tree, fit_graph):
        with pytest.raises(ValueError, match=message):
            call(graph, device="cpu")


@pytest.mark.usefixtures("fake_cugraph")
def test_a_graph_object_has_no_column_for_components():
    with pytest.raises(ValueError, match="component=True adds a column"):
        minimum_spanning_tree(Graph(), component=True, device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("names", [("src", "dst"), ("from", "to")])
@pytest.mark.parametrize("kind", ["numbers", "large", "strings"])
def test_real_graphs(kind, names):
    import cudf

    cugraph = pytest.importorskip("cugraph")
    rng = np.random.default_rng(0)
    u, v = np.nonzero(np.triu(rng.random((60, 60)) < 0.2, 1))
    frame = edges(u, v, rng.permutation(u.size))
    named = frame if kind == "numbers" else frame.assign(**{end: NAMES[kind](frame[end]) for end in ("src", "dst")})
    graph = cugraph.Graph()
    edge_list = cudf.from_pandas(named.set_axis([*names, "cost"], axis=1))
    graph.from_cudf_edgelist(edge_list, source=names[0], destination=names[1], edge_attr="cost")
    found = minimum_spanning_tree(graph, device="cuda")
    assert type(found) is cugraph.Graph
    weights = found.view_edge_list().iloc[:, -1].to_pandas()
    assert sorted(weights) == sorted(frame["weight"].iloc[kruskal(frame)])
    model = fit_graph(graph, 5, device="cuda")
    assert model.mst_["weight"].to_pandas().tolist() == sorted(weights)


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_to_cugraph_needs_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cugraph", types.ModuleType("cugraph"))
    with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU"):
        fit(np.arange(4.0)[:, None], device="cpu").to_cugraph()


@pytest.mark.gpu
def test_to_cugraph(device):
    cugraph = pytest.importorskip("cugraph", reason="cuGraph is not installed")
    model = fit(np.random.default_rng(0).random((200, 2)), device=device)
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
        fit(np.zeros((1, 1)), 1, device=device).to_cugraph()

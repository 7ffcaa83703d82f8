"""Spanning trees against a plain Kruskal: of graphs, of points through short lists, and of any dissimilarity."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.csgraph import minimum_spanning_tree as scipys_tree
from scipy.spatial.distance import pdist, squareform

from rapids_slink import fit_graph, minimum_spanning_tree
from rapids_slink.device import CPU, gpu_is_usable, resolve, to_host
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.contract import Found, NeighborLists
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report
from rapids_slink.spanning_tree import (
    connect,
    count_connected_components,
    couples,
    empty_edges,
    spanning_tree,
)
from rapids_slink.spanning_tree import edges as rounds
from rapids_slink.spanning_tree.forest import NO_EDGE, grow, initial_state, new_state

COLUMNS = ["src", "dst", "weight"]


def edges(src, dst, weight, ids="int64", weights="float64"):
    return pd.DataFrame({"src": np.array(src, ids), "dst": np.array(dst, ids), "weight": np.array(weight, weights)})


def random_graph(rng, n, m, weights=None):
    """`m` edges among `n` nodes, self-loops and parallel edges among them; real weights unless there are few."""
    weight = rng.normal(size=m) if weights is None else rng.choice(weights, m)
    return edges(rng.integers(0, n, m), rng.integers(0, n, m), weight)


def kruskal(frame, maximum=False):
    """The rows of the minimum spanning forest in merge order: by weight, then row. Python's numbers compare exactly."""
    sign = -1 if maximum else 1
    rows = zip(frame["weight"].tolist(), range(len(frame)), frame["src"].tolist(), frame["dst"].tolist(), strict=True)
    parent = {}

    def root(v):
        while parent.setdefault(v, v) != v:
            parent[v] = v = parent[parent[v]]
        return v

    taken = []
    for _, row, u, v in sorted((sign * weight, *rest) for weight, *rest in rows):
        if root(u) != root(v):
            parent[root(u)] = root(v)
            taken.append(row)
    return taken


def assert_is_kruskals(frame, device, **parameters):
    """The forest is made of exactly the rows that Kruskal takes, in their order, with index, types and values kept."""
    found = minimum_spanning_tree(frame, device=device, **parameters)
    expected = frame[COLUMNS].iloc[sorted(kruskal(frame, **parameters))]
    pd.testing.assert_frame_equal(found, expected)


def all_pairs_tree(apart):
    """The minimum spanning tree of a symmetric matrix in the total order, by Prim's algorithm; src < dst."""
    n = len(apart)
    rows = np.arange(n)
    weight, code, outside = np.full(n, np.inf), np.full(n, NO_EDGE), np.ones(n, bool)
    taken, v = [], 0
    for _ in range(n - 1):
        outside[v] = False
        offer = (np.minimum(rows, v) << 32) | np.maximum(rows, v)
        better = outside & ((apart[v] < weight) | ((apart[v] == weight) & (offer < code)))
        weight[better], code[better] = apart[v][better], offer[better]
        lightest = np.flatnonzero(outside & (weight == weight[outside].min()))
        v = lightest[np.argmin(code[lightest])]
        taken.append((weight[v], code[v]))
    weight, code = (np.array(part) for part in zip(*sorted(taken), strict=True))
    return edges(code >> 32, code & 0xFFFFFFFF, weight)


def columns(edges):
    """The columns of an edge frame, or these themselves."""
    return [to_host(c) for c in (edges if isinstance(edges, tuple) else (edges[name].values for name in COLUMNS))]


def assert_same_edges(found, expected):
    for mine, theirs in zip(columns(found), columns(expected), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# ------------------------------------------------------------------------------------- minimum_spanning_tree


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("weights", [None, [0.0], [-1.0, 0.0, 1.0], [-0.0, 0.0, 5e-324], [-np.inf, 3.0, np.inf]])
@pytest.mark.parametrize(("n", "m"), [(1, 5), (2, 9), (30, 20), (60, 300), (400, 3000), (3000, 2000)])
def test_forest_is_kruskals(n, m, weights, maximum, device):
    """From forests of many trees to dense graphs; negative, zero, infinite and equal weights; loops, parallels."""
    graph = random_graph(np.random.default_rng(n + m), n, m, weights)
    assert_is_kruskals(graph, device, maximum=maximum)


@st.composite
def graphs(draw):
    """Small graphs: every type of weight, few distinct weights or any; loops, parallels, both directions, no edges."""
    dtype = np.dtype(
        draw(st.sampled_from(["float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64"]))
    )
    if dtype.kind == "f":
        tiny = [0.0, -0.0, 5e-324 if dtype.itemsize == 8 else 1e-45, np.inf, -np.inf]
        number = st.one_of(st.sampled_from(tiny), st.floats(allow_nan=False, width=8 * dtype.itemsize))
    else:
        info = np.iinfo(dtype)
        number = st.one_of(st.integers(info.min, info.max), st.sampled_from([info.min, info.max, 0, 1, info.max - 1]))
    number = st.one_of(number, st.sampled_from(draw(st.lists(number, min_size=1, max_size=3))))
    node = st.integers(0, draw(st.integers(0, 12)))
    rows = draw(st.lists(st.tuples(node, node, number), max_size=40))
    src, dst, weight = zip(*rows, strict=True) if rows else ((), (), ())
    return edges(src, dst, weight, weights=dtype)


def light_first(where, monkeypatch, light=1.0):
    """Let the lightest edges go first in small graphs too, about so many a node."""
    monkeypatch.setattr(where.kernels("spanning_tree.edges"), "LARGE", 1)
    monkeypatch.setattr(rounds, "DENSE", 0)
    monkeypatch.setattr(rounds, "LIGHT", light)


@pytest.fixture(params=["all at once", "lightest first", "round by round"])
def parts(request, where, monkeypatch):
    """Whether the lightest edges go first, and on a GPU whether one launch does all rounds."""
    if request.param == "lightest first":
        light_first(where, monkeypatch)
    if request.param == "round by round":
        if where.name == "cpu":
            pytest.skip("the CPU knows no others")
        monkeypatch.setattr(where.kernels("spanning_tree.edges"), "FEW", 0)


@pytest.mark.usefixtures("parts")
@settings(max_examples=10 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=graphs(), maximum=st.booleans())
def test_any_small_forest_is_kruskals(device, frame, maximum):
    assert_is_kruskals(frame, device, maximum=maximum)
    names = np.array([f"node {i}" for i in range(13)], object)
    assert_is_kruskals(frame.assign(src=names[frame["src"]], dst=names[frame["dst"]]), device, maximum=maximum)


@pytest.mark.gpu
@settings(max_examples=10 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=graphs(), maximum=st.booleans())
def test_rows_that_are_not_packed(frame, maximum, monkeypatch):
    """Rows beside the words, as for 2³² edges, and room for one edge, so that collecting starts again."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    from rapids_slink.spanning_tree.edges import cuda

    monkeypatch.setattr(cuda, "MOST_PACKED", 0)
    assert_is_kruskals(frame, "cuda", maximum=maximum)
    monkeypatch.setattr(cuda, "FEW", 0)
    assert_is_kruskals(frame, "cuda", maximum=maximum)
    light_first(resolve("cuda"), monkeypatch)
    monkeypatch.setattr(cuda, "LIGHT", 0.0)
    monkeypatch.setattr(cuda, "THREADS", 32)
    assert_is_kruskals(frame, "cuda", maximum=maximum)


def long_shape(shape, weights, n):
    """A tree or a cycle of `n` nodes, its weights in the order of the nodes."""
    i = np.arange(1, n)
    end = {"chain": i - 1, "star": 0 * i, "cycle": i - 1, "caterpillar": np.where(i % 2, i - 1, i - 2)}[shape]
    if shape == "cycle":
        i, end = np.append(i, 0), np.append(end, n - 1)
    return end, i, {"equal": np.ones(i.size), "rising": np.arange(i.size), "falling": -np.arange(i.size)}[weights]


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["random", "equal weights", "many components", "chain", "star", "caterpillar"])
def test_rounds_of_one_launch(kind, weights, monkeypatch):
    """The forest is the same whichever round it begins with, and whether a block has one tile or several."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    from rapids_slink.spanning_tree.edges import cuda

    n, rng = 30_000, np.random.default_rng(0)
    if kind in ("chain", "star", "caterpillar"):  # with pointers of many times JUMPS steps, and isolated nodes
        names = rng.permutation(2 * n)
        end, i, weight = long_shape(kind, "rising", n)
        graph = edges(names[end], names[i], weight, weights=weights)
    else:
        m = {"random": 4 * n, "equal weights": 2 * n, "many components": n // 2}[kind]
        graph = random_graph(rng, n, m, [1.0] if kind == "equal weights" else None).astype({"weight": weights})
    expected = minimum_spanning_tree(graph, component=True, device="cpu")
    assert expected.index.tolist() == sorted(kruskal(graph))
    everywhere = cuda.multiprocessors()
    for few in (0, 5000, 20_000, 2**20):
        for count in (1, 3, everywhere):
            monkeypatch.setattr(cuda, "FEW", few)
            monkeypatch.setattr(cuda, "multiprocessors", lambda count=count: count)
            found = minimum_spanning_tree(graph, component=True, device="cuda")
            pd.testing.assert_frame_equal(found, expected)
    monkeypatch.undo()
    light_first(resolve("cuda"), monkeypatch)
    found = minimum_spanning_tree(graph, component=True, device="cuda")
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0], [7.0]])
def test_lightest_first_in_dense_graphs(weights, maximum, device, monkeypatch):
    """Wherever the line is drawn, among equal weights too."""
    graph = random_graph(np.random.default_rng(0), 200, 20_000, weights)
    expected = sorted(kruskal(graph, maximum=maximum))
    for light in (0.0, 0.3, 2.0, 60.0, 1000.0):
        light_first(resolve(device), monkeypatch, light)
        found = minimum_spanning_tree(graph, maximum=maximum, device=device)
        pd.testing.assert_frame_equal(found, graph.iloc[expected])


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("values", [None, [1.0], [0.0, 1.0, 2.0, 3.0]])
def test_the_lightest_are_few_among_equal_weights(values, maximum, device):
    """About `LIGHT` edges a node, by weight and then by row: what is admitted has room for no more."""
    device, n, m = resolve(device), 20_000, 2_000_000
    rng = np.random.default_rng(1)
    weight = rng.random(m) if values is None else rng.choice(values, m)
    ends = (device.asarray(rng.integers(0, n, m).astype(np.int32)) for _ in range(2))
    limit = rounds._heaviest_of_lightest(rounds.EdgeList(*ends, device.asarray(weight), n, maximum), 0, device)
    sign = -1 if maximum else 1
    before = (sign * weight < sign * weight[limit]) | ((weight == weight[limit]) & (np.arange(m) <= limit))
    assert 0.5 < before.sum() / (rounds.LIGHT * n) < 2


@pytest.mark.parametrize("weights", ["float32", "float64", "int8", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("ids", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("maximum", [False, True])
def test_types_are_kept(ids, weights, maximum, device):
    rng = np.random.default_rng(0)
    assert_is_kruskals(
        edges(rng.integers(0, 50, 300), rng.integers(0, 50, 300), rng.integers(0, 100, 300), ids, weights),
        device, maximum=maximum,
    )  # fmt: skip


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("weights", ["int64", "uint64"])
def test_integer_weights_that_no_float_holds(weights, maximum, device):
    """Neighbours above 2**53 differ, and the least and largest integers have no negative."""
    info = np.iinfo(weights)
    weight = [2**60 + 3, 2**60 + 2, 2**60 + 1, 2**60, info.min, info.max, info.max - 1, info.min + 1]
    src, dst = [0, 1, 2, 0, 3, 4, 5, 3], [1, 2, 0, 3, 4, 5, 3, 5]
    assert_is_kruskals(edges(src, dst, weight, weights=weights), device, maximum=maximum)


@pytest.mark.parametrize("ids", ["int64", "uint64", "int32"])
def test_ids_of_any_size(ids, device):
    rng = np.random.default_rng(0)
    info = np.iinfo(ids)
    names = np.array([info.min, info.min + 1, 7, 10**6, 10**9, *(info.max - i for i in range(20))], ids)
    ends = rng.integers(0, names.size, (2, 200))
    assert_is_kruskals(edges(names[ends[0]], names[ends[1]], rng.integers(0, 4, 200), ids), device)


NAMES = {
    "strings": lambda i: pd.Series([f"node {j}" for j in i], dtype=object),
    "str": lambda i: pd.Series([f"node {j}" for j in i], dtype="string"),
    "categories": lambda i: pd.Series(pd.Categorical([f"node {j}" for j in i], [f"node {j}" for j in range(30)])),
    "own categories": lambda i: pd.Series(pd.Categorical([f"node {j}" for j in i])),
    "dates": lambda i: pd.Series(np.datetime64("2023-09-18", "s") + np.asarray(i)),
    "floats": lambda i: pd.Series(np.asarray(i) + 0.5),
    "negative": lambda i: pd.Series(-5 * np.asarray(i)),
    "large": lambda i: pd.Series(2**40 + np.asarray(i)),
}


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("kind", NAMES)
def test_ids_of_any_kind(kind, maximum, device):
    """The rows are those of the same graph over numbers, with the ids as they came."""
    numbers = random_graph(np.random.default_rng(0), 30, 200, [1.0, 2.0, 3.0])
    frame = pd.DataFrame(
        {"src": NAMES[kind](numbers["src"]), "dst": NAMES[kind](numbers["dst"]), "weight": numbers["weight"]}
    )
    found = minimum_spanning_tree(frame, maximum=maximum, device=device)
    pd.testing.assert_frame_equal(found, frame.iloc[sorted(kruskal(numbers, maximum=maximum))])


def test_ids_that_only_pandas_holds(device):
    frame = pd.DataFrame({"src": [0, "0", (1, 2), "0"], "dst": ["0", (1, 2), 0, "0"], "weight": [3, 1, 2, 0]})
    assert minimum_spanning_tree(frame, device=device).index.tolist() == [1, 2]


def test_ends_of_different_types(device):
    """Their common type in NumPy is float64, which does not tell large ids apart."""
    for large in (2**40, 2**60):
        frame = edges([0, large, large + 1, 5], [large, large + 1, large + 2, 0], [3, 1, 2, 9])
        frame["dst"] = frame["dst"].astype("uint64")
        assert_is_kruskals(frame, device)


@pytest.mark.parametrize("both", [False, True])
def test_total_weight_is_scipys(both, device):
    n, rng = 200, np.random.default_rng(0)
    u, v = np.nonzero(np.triu(rng.random((n, n)) < 0.1, 1))
    frame = edges(u, v, rng.random(u.size) + 0.1)
    graph = coo_array((frame["weight"], (u, v)), shape=(n, n))
    if both:  # the reverse of each edge, the rows shuffled
        frame = pd.concat([frame, frame.set_axis(["dst", "src", "weight"], axis=1)]).sample(frac=1, random_state=0)
    tree = minimum_spanning_tree(frame, device=device)
    np.testing.assert_allclose(tree["weight"].sum(), scipys_tree(graph).sum(), rtol=1e-14)
    assert len(tree) == scipys_tree(graph).nnz
    assert_is_kruskals(frame, device)


def test_rows_keep_index_and_order(device):
    """The index leads back to the other columns."""
    frame = edges([5, 3, 5, 5], [3, 4, 4, 5], [2.0, 1.0, 0.5, -1.0]).assign(name=list("abcd"))
    odd = frame[["name", "weight", "dst", "src"]].set_axis([9, 9, 2, -1])
    expected = edges([3, 5], [4, 4], [1.0, 0.5]).set_axis([9, 2])
    pd.testing.assert_frame_equal(minimum_spanning_tree(odd, device=device), expected)
    assert list(odd.columns) == ["name", "weight", "dst", "src"]
    tree = minimum_spanning_tree(frame, device=device)
    assert frame.loc[tree.index, "name"].tolist() == ["b", "c"]


class Graph:
    """As much of `cugraph.Graph` as is used, over a frame; `test_cugraph` has the real one."""

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
    monkeypatch.setattr(Graph, "__module__", "cugraph.structure.graph_classes")
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
    with pytest.raises(ValueError, match="component=True adds a column"):
        minimum_spanning_tree(Graph(), component=True, device="cpu")


@pytest.mark.parametrize("names", [("src", "dst"), ("from", "to")])
@pytest.mark.parametrize("kind", ["numbers", "large", "strings"])
def test_cugraph(kind, names, where):
    if where.name == "cpu":
        pytest.skip("needs cuDF")
    cugraph = pytest.importorskip("cugraph")
    rng = np.random.default_rng(0)
    u, v = np.nonzero(np.triu(rng.random((60, 60)) < 0.2, 1))
    frame = edges(u, v, rng.permutation(u.size))
    named = frame if kind == "numbers" else frame.assign(**{end: NAMES[kind](frame[end]) for end in ("src", "dst")})
    graph = cugraph.Graph()
    edge_list = where.frames.from_pandas(named.set_axis([*names, "cost"], axis=1))
    graph.from_cudf_edgelist(edge_list, source=names[0], destination=names[1], edge_attr="cost")
    found = minimum_spanning_tree(graph, device="cuda")
    assert type(found) is cugraph.Graph
    weights = found.view_edge_list().iloc[:, -1].to_pandas()
    assert sorted(weights) == sorted(frame["weight"].iloc[kruskal(frame)])
    model = fit_graph(graph, 5, device="cuda")
    assert model.mst_["weight"].to_pandas().tolist() == sorted(weights)


def test_components_are_numbered_by_appearance(device):
    frame = edges([8, 4, 0, 2, 9, 8, 6], [9, 5, 1, 1, 8, 9, 6], [1.0, 1.0, 5.0, 1.0, 0.5, 0.0, 1.0])
    found = minimum_spanning_tree(frame, component=True, device=device)
    assert found["component"].dtype == np.int32
    assert list(zip(found.index, found["component"], strict=True)) == [(1, 0), (2, 1), (3, 1), (5, 2)]
    rng = np.random.default_rng(0)
    frame = random_graph(rng, 5000, 4000)
    found = minimum_spanning_tree(frame, component=True, device=device)
    graph = coo_array((np.ones(len(frame)), (frame["src"], frame["dst"])), shape=(5000, 5000))
    label = connected_components(graph, directed=False)[1]
    np.testing.assert_array_equal(found["component"], pd.factorize(label[found["src"]])[0])
    assert len(minimum_spanning_tree(edges([], [], []), component=True, device=device)) == 0


def test_gpu_frames_are_answered_in_kind(where):
    """A frame of the other library than the device's has its rows picked where it is."""
    if where.name == "cpu":
        pytest.skip("needs cuDF")
    frame = random_graph(np.random.default_rng(0), 50, 200).set_axis(np.arange(200) * 3)
    for weight in ("float64", "float32"):
        frame = frame.astype({"weight": weight})
        for device in ("cpu", "cuda"):
            found = minimum_spanning_tree(where.frames.from_pandas(frame), component=True, device=device)
            assert type(found).__module__.startswith("cudf")
            expected = minimum_spanning_tree(frame, component=True, device="cpu")
            pd.testing.assert_frame_equal(found.to_pandas(), expected)


@pytest.mark.parametrize("maximum", [False, True])
def test_graph_without_edges(maximum, device):
    for frame in (edges([], [], []), edges([3, 3], [3, 3], [1.0, 2.0])):
        found = minimum_spanning_tree(frame, maximum=maximum, device=device)
        assert found.dtypes.tolist() == frame.dtypes.tolist()
        assert len(found) == 0


@pytest.mark.parametrize("weights", ["equal", "rising", "falling"])
@pytest.mark.parametrize("shape", ["chain", "star", "cycle", "caterpillar"])
def test_long_shapes(shape, weights, device):
    """Rising weights on a chain make every node point at its neighbour: pointers as deep as the chain is long."""
    end, i, weight = long_shape(shape, weights, 3000)
    assert_is_kruskals(edges(end, i, weight), device)
    names = np.random.default_rng(0).permutation(3000)
    assert_is_kruskals(edges(names[end], names[i], weight), device)


def test_nullable_types_of_pandas(device):
    rng = np.random.default_rng(0)
    frame = random_graph(rng, 30, 100, [0.0, 1.0])
    for ids in (frame, frame.assign(src=frame["src"] + 2**40)):
        nullable = ids.astype({"src": "Int64", "dst": "Int64", "weight": "Float64"})
        assert_is_kruskals(nullable, device)


@pytest.mark.parametrize("call", [minimum_spanning_tree, fit_graph])
@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (pd.DataFrame({"src": [0], "dst": [1]}), ValueError, "columns src, dst, weight; weight not found"),
        (np.zeros((3, 3)), TypeError, "edges must be a DataFrame with columns src, dst, weight, got ndarray"),
        (pd.DataFrame({"src": [0], "dst": ["1"], "weight": [1.0]}), TypeError,
         "'src' and 'dst' of the edges must hold ids of one kind, got int64 and "),
        (pd.DataFrame({"src": [0], "dst": [1.0], "weight": [1.0]}), TypeError, "of one kind, got int64 and float64"),
        (pd.DataFrame({"src": [[0]], "dst": [[1]], "weight": [1.0]}), TypeError, "ids in src and dst must be hashable"),
        (pd.DataFrame({"src": ["a", None], "dst": ["b", "c"], "weight": [1.0, 2.0]}), ValueError,
         "column 'src' of the edges holds nulls or NaN"),
        (edges([0, 1], [1, np.nan], [1, 2], ids="float64"), ValueError, "column 'dst' of the edges holds nulls or NaN"),
        (edges([0], [1], ["1"], weights="object"), TypeError, "column 'weight' of the edges must hold numbers"),
        (edges([0], [1], [1j], weights="complex"), TypeError, "column 'weight' of the edges must hold numbers"),
        (edges([0], [1], [True], weights="bool"), TypeError, "column 'weight' of the edges must hold numbers"),
        (edges([0, 1], [1, 2], [1.0, np.nan]), ValueError, "column 'weight' of the edges holds nulls or NaN"),
        (edges([0, 1], [1, 2], [np.nan, 1.0], weights="float32"), ValueError, "column 'weight' of the edges holds"),
        (edges(["0", "1"], ["1", "2"], [1.0, -np.nan], ids="object"), ValueError, "column 'weight' of the edges holds"),
        (edges([0], [1], [1.0], weights="longdouble"), TypeError, "column 'weight' of the edges must hold numbers"),
        (pd.DataFrame({"src": [0, 1], "dst": [1, 2], "weight": pd.array([1.0, None], "Float64")}), ValueError,
         "column 'weight' of the edges holds nulls or NaN"),
        (pd.DataFrame({"src": pd.array([0, None], "Int64"), "dst": [1, 2], "weight": [1.0, 2.0]}), ValueError,
         "column 'src' of the edges holds nulls or NaN"),
    ],
)  # fmt: skip
def test_bad_edges(call, frame, error, message, device):
    with pytest.raises(error, match=message):
        call(frame, device=device)


def test_bad_device():
    for call in (minimum_spanning_tree, fit_graph):
        with pytest.raises(ValueError, match="device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"):
            call(edges([0], [1], [1.0]), device="tpu")


# -------------------------------------------------------------------------------------------------- fit_graph


def two_triangles():
    """Nodes 0-2 and 4-6 with a bridge missing, node 3 alone."""
    return edges([0, 1, 2, 4, 5, 6], [1, 2, 0, 5, 6, 4], [1.0, 2.0, 9.0, 1.0, 3.0, 3.5])


def test_forest_is_kept(device):
    model = fit_graph(two_triangles(), device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert model.component_.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert (model.n_leaves_, model.n_clusters_, model.n_connected_components_) == (7, 3, 3)
    assert model.linkage_["height"].tolist() == model.mst_["weight"].tolist() == [1.0, 1.0, 2.0, 3.0]
    assert model.linkage_["left"].tolist() == [0, 4, 2, 6]
    assert model.linkage_["right"].tolist() == [1, 5, 7, 8]
    assert model.linkage_["size"].tolist() == [2, 2, 3, 3]
    assert model.labels_.dtype == model.component_.dtype == np.int32
    assert isinstance(model.labels_, pd.Series)
    assert set(model.report_["seconds"]) >= {"spanning_tree", "linkage", "cut"}


def test_cuts_of_a_forest(device):
    model = fit_graph(two_triangles(), 4, device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 3]
    assert fit_graph(two_triangles(), distance_threshold=2.0, device=device).labels_.tolist() == [0, 0, 1, 2, 3, 3, 4]
    assert model.cut(7).tolist() == list(range(7))
    assert model.cut(distance_threshold=np.inf).tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert model.cut(distance_threshold=1.0).tolist() == list(range(7))
    for n_clusters in (2, 8):
        with pytest.raises(ValueError, match=r"n_clusters must be from 3 to 7.*3 components"):
            model.cut(n_clusters)
        with pytest.raises(ValueError, match=r"n_clusters must be from 3 to 7.*3 components"):
            fit_graph(two_triangles(), n_clusters, device=device)


def test_isolated_nodes_at_the_end(device):
    model = fit_graph(two_triangles(), n_nodes=10, device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 2, 3, 4, 5]
    assert model.n_connected_components_ == 6
    alone = fit_graph(edges([], [], []), n_nodes=4, device=device)
    assert alone.labels_.tolist() == [0, 1, 2, 3]
    assert (len(alone.linkage_), len(alone.mst_)) == (0, 0)
    loops = fit_graph(edges([0, 2], [0, 2], [1.0, 1.0]), device=device)
    assert loops.labels_.tolist() == loops.component_.tolist() == [0, 1, 2]


def test_connected_graph_may_be_demanded(device):
    with pytest.raises(ValueError, match="3 connected components; complete='keep'"):
        fit_graph(two_triangles(), complete="error", device=device)
    bridged = pd.concat([two_triangles(), edges([2, 3], [3, 4], [7.0, 8.0])])
    model = fit_graph(bridged, 2, complete="error", device=device)
    assert model.labels_.tolist() == [0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="complete must be one of 'keep', 'error', got 'random'"):
        fit_graph(bridged, complete="random", device=device)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_nodes": 6}, ValueError, "n_nodes must be at least 7, .* got 6"),
        ({"n_nodes": 7.5}, TypeError, "n_nodes must be an integer, got 7.5"),
        ({"n_nodes": 2**31}, ValueError, "up to 1073741824 nodes are possible, got 2147483648"),
        ({"n_clusters": 3, "distance_threshold": 1.0}, ValueError, "n_clusters.*distance_threshold"),
        ({"n_clusters": 3.0}, TypeError, "n_clusters must be an integer"),
    ],
)
def test_bad_parameters_of_a_graph(parameters, error, message, device):
    with pytest.raises(error, match=message):
        fit_graph(two_triangles(), device=device, **parameters)


@pytest.mark.parametrize("kind", NAMES)
def test_nodes_by_name(kind, device):
    """The hierarchy of the same graph over numbers in order of appearance, indexed by id."""
    src, dst = [4, 6, 4, 11, 12, 13], [5, 4, 5, 12, 11, 11]
    order = [4, 6, 11, 12, 13, 5]
    frame = pd.DataFrame({"src": NAMES[kind](src), "dst": NAMES[kind](dst), "weight": [3.0, 2.0, 1.0, 1.0, 5.0, 4.0]})
    numbers = edges([order.index(v) for v in src], [order.index(v) for v in dst], frame["weight"])
    model, expected = fit_graph(frame, 3, device=device), fit_graph(numbers, 3, device=device)
    ids = pd.Index(NAMES[kind](order))
    assert (
        model.labels_.index.astype(ids.dtype).tolist()
        == model.component_.index.astype(ids.dtype).tolist()
        == ids.tolist()
    )
    assert model.labels_.loc[ids[1]] == model.labels_.iloc[1]
    assert model.labels_.tolist() == expected.labels_.tolist() == [0, 0, 1, 1, 2, 0]
    assert model.component_.tolist() == [0, 0, 1, 1, 1, 0]
    assert model.cut(4).tolist() == expected.cut(4).tolist()
    assert model.cut(4).index.equals(model.labels_.index)
    assert model.cut([3, 4]).index.equals(model.labels_.index)
    pd.testing.assert_frame_equal(model.linkage_, expected.linkage_)
    pd.testing.assert_frame_equal(model.mst_, frame.iloc[[2, 3, 1, 5]].reset_index(drop=True))
    with pytest.raises(ValueError, match="n_nodes is for nodes numbered from 0"):
        fit_graph(frame, n_nodes=20, device=device)


def test_merge_order_is_weight_and_row(device):
    """Integers that float64 rounds keep their order, and -0.0 ties with 0.0."""
    big = 2**60
    model = fit_graph(edges([2, 1, 0], [3, 2, 1], [big + 1, big, big + 1], weights="int64"), device=device)
    assert model.mst_[["src", "dst"]].to_numpy().tolist() == [[1, 2], [2, 3], [0, 1]]
    assert model.linkage_[["left", "right"]].to_numpy().tolist() == [[1, 2], [3, 4], [0, 5]]
    for weights, tiny in (("float32", 1e-45), ("float64", 5e-324)):
        frame = edges([0, 1, 2, 3], [1, 2, 3, 4], [tiny, 0.0, -0.0, -tiny], weights=weights)
        model = fit_graph(frame, device=device)
        assert model.mst_["src"].tolist() == [3, 1, 2, 0]
        assert model.linkage_["height"].tolist() == np.float64(frame["weight"])[[3, 1, 2, 0]].tolist()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_graph_of_all_pairs_is_the_points_dendrogram(sign, both, device):
    """Negative weights included: only their order counts."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    u, v = np.triu_indices(60, 1)
    Z = hierarchy.linkage(X, "single")
    shift = 0.0 if sign > 0 else 1000.0
    frame = edges(u, v, pdist(X) - shift)
    if both:
        frame = pd.concat([frame, frame.set_axis(["dst", "src", "weight"], axis=1)])
    model = fit_graph(frame, 5, device=device)
    np.testing.assert_allclose(model.to_scipy()[:, 2] + shift, Z[:, 2], rtol=1e-15 if sign > 0 else 1e-10)
    np.testing.assert_array_equal(model.to_scipy()[:, [0, 1, 3]], Z[:, [0, 1, 3]])
    np.testing.assert_array_equal(model.labels_, pd.factorize(hierarchy.fcluster(Z, 5, "maxclust"))[0])


@given(
    st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 3)), max_size=40),
    st.integers(0, 4),
)  # fmt: skip
def test_components_below_a_threshold(n, rows, threshold):
    """A cut's clusters are the connected components of the lighter edges."""
    rows = [(u % n, v % n, w) for u, v, w in rows]
    src, dst, weight = np.array(rows or np.empty((0, 3)), int).T
    model = fit_graph(edges(src, dst, weight), n_nodes=n, distance_threshold=threshold, device="cpu")
    light = weight < threshold
    graph = coo_array((np.ones(light.sum()), (src[light], dst[light])), shape=(n, n))
    np.testing.assert_array_equal(model.labels_, pd.factorize(connected_components(graph, directed=False)[1])[0])
    whole = connected_components(coo_array((np.ones(src.size), (src, dst)), shape=(n, n)), directed=False)
    assert model.n_connected_components_ == whole[0]
    np.testing.assert_array_equal(model.component_, pd.factorize(whole[1])[0])


# --------------------------------------------------------------------------------- from lists: grow, connect


class MatrixSearch:
    """Answers a task from a matrix of any symmetric dissimilarities, by looking at all of them."""

    def __init__(self, apart, device):
        self.apart, self.device = apart, device

    def find(self, task):
        rows, group, upper = (to_host(part) for part in (task.rows, task.row_group, task.upper))
        apart = np.where(group[rows][:, None] != group, self.apart[rows], np.inf)
        apart[apart > upper[:, None]] = np.inf
        ids = np.argsort(apart, axis=1, kind="stable")[:, : task.k]
        weights = np.take_along_axis(apart, ids, axis=1)
        ids = np.where(np.isinf(weights), -1, ids).astype(np.int32)
        return Found(*(self.device.asarray(part) for part in (ids, weights, upper)))


def lists_of(apart, k, device):
    """The k least others of each row of a matrix."""
    apart = apart.copy()
    np.fill_diagonal(apart, np.inf)
    ids = np.argsort(apart, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(apart, ids, axis=1)
    return NeighborLists(device.asarray(ids.astype(np.int32)), device.asarray(weights))


def random_matrix(rng, n, values=None):
    """Symmetric, with no triangle inequality; `values` says of which few numbers."""
    apart = rng.random((n, n)) if values is None else rng.choice(values, (n, n))
    apart = np.triu(apart, 1)
    return apart + apart.T


def certain_edges(lists, device):
    """What the lists alone certify, the rows' components afterwards and their number."""
    state = initial_state(lists, device)
    taken, _, chosen, components = grow(lists, state, device)
    assert taken == int(state.taken[0]) == len(to_host(lists.ids)) - components
    assert taken <= chosen <= 2 * taken  # an edge is chosen from one end or from both
    src, dst, weight = (to_host(part)[:taken] for part in (state.src, state.dst, state.weight))
    assert (src < dst).all()
    return np.column_stack([src, dst, weight]), to_host(state.component), components


@pytest.mark.parametrize("values", [None, [0.0], [0.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
@pytest.mark.parametrize("k", [1, 2, 3, 30])
@pytest.mark.parametrize("n", [2, 3, 10, 120])
def test_tree_of_any_dissimilarity(n, k, values, where):
    apart = random_matrix(np.random.default_rng(n * k), n, values)
    lists = lists_of(apart, min(k, n - 1), where)
    report = Report()
    tree = spanning_tree(lists, MatrixSearch(apart, where), where, report)
    assert_same_edges(tree, all_pairs_tree(apart))
    searched = report.get("connect", {}).get("edges_certified_by_search", 0)
    assert report.get("spanning_tree", {}).get("edges_certified_by_lists", 0) + searched == n - 1


@given(st.integers(2, 25), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_tree_under_heavy_ties(n, k, values, seed):
    apart = random_matrix(np.random.default_rng(seed), n, np.arange(float(values)))
    tree = spanning_tree(lists_of(apart, min(k, n - 1), CPU), MatrixSearch(apart, CPU), CPU, Report())
    assert_same_edges(tree, all_pairs_tree(apart))


@given(st.integers(2, 300), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.booleans(),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_tree_of_points_on_small_grids(n, d, k, side, tree_search, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float64)
    search = (TreeSearch if tree_search else TileSearch)(X, CPU, Report())
    found = spanning_tree(neighbor_lists(search, n, k, CPU), search, CPU, Report())
    assert_same_edges(found, all_pairs_tree(squareform(pdist(X, "sqeuclidean"))))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("search", [TileSearch, TreeSearch])
@pytest.mark.parametrize(
    "name",
    ["filaments", "uneven_blobs_8d", "few_big_clusters", "tight_clusters", "integer_grid", "integer_grid_10d",
     "repeated_rows", "all_rows_equal", "equal_weight_path", "chain", "star", "exponential_gaps_12d", "last_bit"],
)  # fmt: skip
def test_tree_of_points(name, search, k, where):
    if search is TreeSearch and where.name != "cpu":
        pytest.skip("the k-d tree is the CPU's")
    X = CASES[name]("float64")
    X = X[:: max(1, len(X) // 350)]
    values = where.asarray(X)
    engine = search(values, where, Report())
    tree = spanning_tree(neighbor_lists(engine, len(X), k, where), engine, where, Report())
    assert_same_edges(tree, all_pairs_tree(squareform(pdist(X, "sqeuclidean"))))


@pytest.mark.parametrize("values", [None, [0.0, 1.0], list(np.arange(20.0))])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_lists_certify_only_edges_of_the_tree(k, values, where):
    rng = np.random.default_rng(k)
    for apart in (random_matrix(rng, 90, values), squareform(pdist(rng.normal(size=(200, 2)) ** 3))):
        n = len(apart)
        lists = lists_of(apart, k, where)
        found, component, components = certain_edges(lists, where)
        expected = {tuple(row) for row in all_pairs_tree(apart).itertuples(index=False)}
        mine = {(min(u, v), max(u, v), w) for u, v, w in found.tolist()}
        assert len(mine) == len(found) == n - components
        assert mine <= expected
        assert len(mine) >= n / 4  # at the start each row's nearest is certain
        graph = coo_array((np.ones(len(found)), found[:, :2].astype(int).T), shape=(n, n))
        _, same = connected_components(graph, directed=False)
        np.testing.assert_array_equal(pd.factorize(component)[0], pd.factorize(same)[0])
        assert (component[component] == component).all()


def test_full_lists_certify_everything(where):
    apart = random_matrix(np.random.default_rng(0), 50, [1.0, 2.0, 3.0])
    found, _, components = certain_edges(lists_of(apart, 49, where), where)
    assert components == 1
    assert len(found) == 49


def test_certificates_wait_for_the_bound(where):
    """0-1 and 2-3 pair up. Then all lists are used up: nothing may be chosen before a search has found 1-2."""
    apart = squareform([1.0, 2.0, 9.0, 1.5, 9.0, 1.2])  # 01 02 03 12 13 23
    found, _, components = certain_edges(lists_of(apart, 1, where), where)
    assert {(min(u, v), max(u, v)) for u, v, _ in found.tolist()} == {(0, 1), (2, 3)}
    assert components == 2
    report = Report()
    tree = spanning_tree(lists_of(apart, 1, where), MatrixSearch(apart, where), where, report)
    assert np.column_stack(columns(tree)).tolist() == [[0, 1, 1.0], [2, 3, 1.2], [1, 2, 1.5]]
    assert report["spanning_tree"]["edges_certified_by_lists"] == 2
    assert report["connect"]["edges_certified_by_search"] == 1


def test_a_tie_at_the_bound_is_not_certain(where):
    """Row 1 lists 0; an unlisted point as far away might come before any edge of equal weight and later code."""
    apart = np.ones((6, 6)) - np.eye(6)
    tree = spanning_tree(lists_of(apart, 1, where), MatrixSearch(apart, where), where, Report())
    assert np.column_stack(columns(tree)).tolist() == [[0, v, 1.0] for v in range(1, 6)]


@pytest.mark.parametrize("kind", ["spread", "grid", "alike"])
def test_couples_join_what_rounds_would(kind, where, monkeypatch):
    """The same tree with all couples of components at once and without, ties between clusters included."""
    rng = np.random.default_rng(0)
    n, at = 1200, 40 * np.eye(12)[rng.integers(0, 7, 1200)]
    X = at + {"spread": rng.normal(size=(n, 12)), "grid": rng.integers(0, 2, (n, 12)), "alike": np.zeros((n, 12))}[kind]
    expected = all_pairs_tree(squareform(pdist(X, "sqeuclidean")))
    engine = TileSearch(where.asarray(X), where, Report())
    lists = neighbor_lists(engine, n, 4, where)
    monkeypatch.setattr(couples, "MOST_CLOSE", n)
    monkeypatch.setattr(couples, "ROUNDS", 10**9)
    for pays in (True, False):
        monkeypatch.setattr(connect, "pays", lambda *_, pays=pays: pays)
        report = Report()
        assert_same_edges(spanning_tree(lists, engine, where, report), expected)
        assert report["connect"].get("joined_at_once", 0) == pays
        assert report["connect"]["edges_certified_by_search"] >= 6


# --------------------------------------------------------------------------------------------- kernels, alone


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 4, 100, 3000])
def test_count_connected_components(n, k, where):
    rng = np.random.default_rng(n)
    k = min(k, n - 1)
    for span in (2, 20, n):  # from many small components to few
        ids = (np.arange(n)[:, None] + rng.integers(1, min(span, n) + 1, (n, k))) % n
        ids = np.where(rng.random((n, k)) < 0.7, ids, ids[:, :1]).astype(np.int32)
        ids[: n // 2] = np.minimum(ids[: n // 2], n // 2 - 1)
        lists = NeighborLists(where.asarray(ids), where.xp.zeros((n, k)))
        graph = coo_array((np.ones(n * k), (np.repeat(np.arange(n), k), ids.ravel())), shape=(n, n))
        assert count_connected_components(lists, where) == connected_components(graph, directed=False)[0]


def test_many_components(where):
    """Pairs, and one long path of neighbours."""
    pairs = where.asarray((np.arange(1000, dtype=np.int32) ^ 1)[:, None])
    assert count_connected_components(NeighborLists(pairs, where.xp.zeros((1000, 1))), where) == 500
    path = where.asarray(np.maximum(np.arange(-1, 999), 0).astype(np.int32)[:, None])
    assert count_connected_components(NeighborLists(path, where.xp.zeros((1000, 1))), where) == 1


@pytest.mark.parametrize("n", [1, 31, 32, 33, 257, 10_000])
def test_all_but_the_largest_component_search(n, where):
    """Of as large ones it is the one of the least label."""
    rng, xp = np.random.default_rng(n), where.xp
    for labels in (rng.integers(0, n, n), np.sort(rng.integers(0, max(1, n // 50), n)), np.full(n, n - 1)):
        state = new_state(where.asarray(labels.astype(np.int32)), xp.zeros(n), xp.zeros(n, "int64"), xp)
        state.best_weight[:], state.best_code[:] = 1.0, 0
        rows = to_host(where.kernels("spanning_tree").unsure_rows(state))
        np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(labels != np.bincount(labels).argmax()))


def test_propose_and_choose(where):
    """One round on components that are already there, against a few lines of NumPy."""
    kernels, rng = where.kernels("spanning_tree"), np.random.default_rng(0)
    n, k = 60, 4
    lists = lists_of(random_matrix(rng, n, [1.0, 2.0, 3.0, 4.0]), k, where)
    state = initial_state(lists, where)
    component = rng.integers(0, 9, n)
    component = np.array([np.flatnonzero(component == c)[0] for c in component], np.int32)
    state.component[:] = where.asarray(component)
    components, certified = kernels.propose(lists, state)
    assert components == np.unique(component).size

    ids, weights = to_host(lists.ids), to_host(lists.weights)
    best, bound = {}, {}

    def key(v, u, w):
        return w, (min(u, v) << 32) | max(u, v)

    for v in range(n):
        outside = np.flatnonzero(component[ids[v]] != component[v])
        assert int(state.cursor[v]) == (outside[0] if outside.size else k)
        c = int(component[v])
        if outside.size:
            u, w = int(ids[v, outside[0]]), float(weights[v, outside[0]])
            for end in (c, int(component[u])):
                best[end] = min(best.get(end, (np.inf, NO_EDGE)), key(v, u, w))
        else:
            bound[c] = min(bound.get(c, (np.inf, NO_EDGE)), key(v, int(ids[v, -1]), float(weights[v, -1])))
    sure = {c for c in best if bound.get(c, (np.inf, NO_EDGE)) >= best[c]}
    for c in np.unique(component).tolist():
        assert (float(state.best_weight[c]), int(state.best_code[c])) == best.get(c, (np.inf, NO_EDGE))
        assert bool(state.certified[c]) == (c in sure)
    assert certified == len(sure) > 0

    kernels.choose(state)
    src, dst, weight = (to_host(part)[: int(state.taken[0])] for part in (state.src, state.dst, state.weight))
    chosen = {(w, (int(min(u, v)) << 32) | int(max(u, v))) for u, v, w in zip(src, dst, weight, strict=True)}
    assert chosen == {best[c] for c in sure}
    assert len(chosen) == src.size
    ends = np.concatenate([np.column_stack([src, dst]), np.column_stack([component, np.arange(n)])])
    graph = coo_array((np.ones(len(ends)), ends.T), shape=(n, n))
    merged = to_host(state.component)
    _, same = connected_components(graph, directed=False)
    np.testing.assert_array_equal(pd.factorize(merged)[0], pd.factorize(same)[0])
    assert (merged[merged] == merged).all()


@pytest.mark.parametrize(("n", "m"), [(1, 0), (5, 0), (1, 3), (2, 1), (500, 2000)])
def test_forest_of_sorted_edges(n, m, where):
    rng = np.random.default_rng(m)
    src, dst = rng.integers(0, n, (2, m)).astype(np.int32)
    weight = where.xp.arange(m, dtype="float64") // 2  # of equal ones the earlier comes first
    taken, root = rounds.spanning_forest(rounds.EdgeList(where.asarray(src), where.asarray(dst), weight, n), where)
    component = rounds.components(where.xp.arange(n, dtype="int32"), root, where)
    expected = np.zeros(m, bool)
    parent = np.arange(n)
    for e in range(m):
        a, b = parent[src[e]], parent[dst[e]]
        expected[e] = a != b
        parent[parent == a] = b
    np.testing.assert_array_equal(to_host(taken), expected)
    np.testing.assert_array_equal(pd.factorize(to_host(component))[0], pd.factorize(parent)[0])


def test_empty_edges(where):
    frame = empty_edges(where)
    assert [str(dtype) for dtype in frame.dtypes] == ["int32", "int32", "float64"]
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 0

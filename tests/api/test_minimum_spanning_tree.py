"""`minimum_spanning_tree` of graphs: exactly the rows that Kruskal's algorithm takes, whatever ids and weights are."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from spanning_trees import COLUMNS, NAMES, by_appearance, edges, kruskal, random_graph

from rapids_slink import fit_graph, minimum_spanning_tree
from rapids_slink.runtime.device import resolve, to_host
from rapids_slink.spanning_tree import graphs as rounds
from rapids_slink.spanning_tree.graphs import kernels as edge_kernels

FOR_EACH = [HealthCheck.function_scoped_fixture]
SMALL_GRAPHS = settings(max_examples=5 * settings().max_examples, suppress_health_check=FOR_EACH)


def assert_is_kruskals(frame, device, **parameters):
    """The forest is made of exactly the rows that Kruskal takes, in their order, with index, types and values kept."""
    found = minimum_spanning_tree(frame, device=device, **parameters)
    expected = frame[COLUMNS].iloc[sorted(kruskal(frame, **parameters))]
    pd.testing.assert_frame_equal(found, expected)


WEIGHTS = {"any": None, "zeros": [0.0], "signs": [-1.0, 0.0, 1.0], "least": [-0.0, 0.0, 5e-324]}
WEIGHTS["endless"] = [-np.inf, 3.0, np.inf]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_forest_is_kruskals(weights, device):
    """From forests of many trees to dense graphs; negative, zero, infinite and equal weights; loops, parallels."""
    for n, m in [(1, 5), (2, 9), (30, 20), (60, 300), (400, 3000), (3000, 2000)]:
        graph = random_graph(np.random.default_rng(n + m), n, m, WEIGHTS[weights])
        for maximum in (False, True):
            assert_is_kruskals(graph, device, maximum=maximum)


@st.composite
def graphs(draw):
    """Small graphs of every type of ids and weights.

    They have few distinct weights or any, loops, parallels, both directions, and no edges.
    """
    ids = draw(st.sampled_from(["int8", "uint16", "int32", "uint32", "int64", "uint64"]))
    types = "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64"
    dtype = np.dtype(draw(st.sampled_from(types)))
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
    return edges(src, dst, weight, ids, weights=dtype)


def light_first(engine, monkeypatch, light=1.0):
    """Let the lightest edges go first in small graphs too, about so many a node."""
    kernels = edge_kernels(engine)
    for module, name, value in ((kernels, "LARGE", 1), (rounds, "DENSE", 0), (rounds, "LIGHT_EDGES", light)):
        monkeypatch.setattr(module, name, value)


@SMALL_GRAPHS
@given(frame=graphs(), maximum=st.booleans())
def test_any_small_forest_is_kruskals(device, frame, maximum):
    assert_is_kruskals(frame, device, maximum=maximum)
    names = np.array([f"node {i}" for i in range(13)], object)
    assert_is_kruskals(frame.assign(src=names[frame["src"]], dst=names[frame["dst"]]), device, maximum=maximum)


@SMALL_GRAPHS
@given(frame=graphs(), maximum=st.booleans())
def test_any_small_forest_by_its_lightest_edges_first(engine, monkeypatch, frame, maximum):
    light_first(engine, monkeypatch)
    assert_is_kruskals(frame, engine.name, maximum=maximum)


@pytest.mark.gpu
@SMALL_GRAPHS
@given(frame=graphs(), maximum=st.booleans())
def test_any_small_forest_of_separate_rows(frame, maximum, monkeypatch):
    """With rows beside the words, as for 2³² edges; then with room for one edge alone."""
    from rapids_slink.spanning_tree.graphs import cuda

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "MOST_PACKED", 0)
        assert_is_kruskals(frame, "cuda", maximum=maximum)
        light_first(resolve("cuda"), patch)
        patch.setattr(cuda, "LIGHT_EDGES", 0.0)
        patch.setattr(cuda, "THREADS", 32)
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
    """The forest is the same whether a block has one tile or several."""
    n, rng = 30_000, np.random.default_rng(0)
    if kind in ("chain", "star", "caterpillar"):  # with long pointers and isolated nodes
        names = rng.permutation(2 * n)
        end, i, weight = long_shape(kind, "rising", n)
        graph = edges(names[end], names[i], weight, weights=weights)
    else:
        m = {"random": 4 * n, "equal weights": 2 * n, "many components": n // 2}[kind]
        graph = random_graph(rng, n, m, [1.0] if kind == "equal weights" else None).astype({"weight": weights})
    expected = minimum_spanning_tree(graph, component=True, device="cpu")
    assert expected.index.tolist() == sorted(kruskal(graph))
    for count in (1, 3, 30):
        monkeypatch.setattr("rapids_slink.runtime.cuda.resident_blocks", lambda *_, count=count: count)
        found = minimum_spanning_tree(graph, component=True, device="cuda")
        pd.testing.assert_frame_equal(found, expected)
    monkeypatch.undo()
    light_first(resolve("cuda"), monkeypatch)
    found = minimum_spanning_tree(graph, component=True, device="cuda")
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0], [7.0]])
def test_lightest_first_in_dense_graphs(weights, maximum, engine, monkeypatch):
    """Wherever the line is drawn, among equal weights too."""
    graph = random_graph(np.random.default_rng(0), 200, 20_000, weights)
    expected = sorted(kruskal(graph, maximum=maximum))
    for light in (0.0, 0.3, 2.0, 60.0, 1000.0):
        light_first(engine, monkeypatch, light)
        found = minimum_spanning_tree(graph, maximum=maximum, device=engine.name)
        pd.testing.assert_frame_equal(found, graph.iloc[expected])


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("values", [None, [1.0], [0.0, 1.0, 2.0, 3.0]])
def test_the_lightest_are_few_among_equal_weights(values, maximum, engine):
    """About `LIGHT_EDGES` a node, by weight and then by row: the estimate of memory has room for no more."""
    n, m = 20_000, 2_000_000
    rng = np.random.default_rng(1)
    weight = rng.random(m) if values is None else rng.choice(values, m)
    ends = (engine.asarray(rng.integers(0, n, m).astype(np.int32)) for _ in range(2))
    limit = rounds._heaviest_of_lightest(rounds.EdgeList(*ends, engine.asarray(weight), n, maximum), 0, engine)
    sign = -1 if maximum else 1
    before = (sign * weight < sign * weight[limit]) | ((weight == weight[limit]) & (np.arange(m) <= limit))
    assert 0.5 < before.sum() / (rounds.LIGHT_EDGES * n) < 2


@pytest.mark.parametrize("ids", ["int64", "uint64", "int32"])
def test_ids_of_any_size(ids, device):
    rng = np.random.default_rng(0)
    info = np.iinfo(ids)
    names = np.array([info.min, info.min + 1, 7, 10**6, 10**9, *(info.max - i for i in range(20))], ids)
    ends = rng.integers(0, names.size, (2, 200))
    assert_is_kruskals(edges(names[ends[0]], names[ends[1]], rng.integers(0, 4, 200), ids), device)


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("kind", NAMES)
def test_ids_of_any_kind(kind, maximum, device):
    """The rows are those of the same graph over numbers, with the ids as they came."""
    numbers = random_graph(np.random.default_rng(0), 30, 200, [1.0, 2.0, 3.0])
    frame = pd.DataFrame({end: NAMES[kind](numbers[end]) for end in ("src", "dst")} | {"weight": numbers["weight"]})
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


def test_nullable_types_of_pandas(device):
    frame = random_graph(np.random.default_rng(0), 30, 100, [0.0, 1.0])
    for ids in (frame, frame.assign(src=frame["src"] + 2**40)):
        assert_is_kruskals(ids.astype({"src": "Int64", "dst": "Int64", "weight": "Float64"}), device)


def test_rows_keep_index_and_order(device):
    """The index leads back to the other columns."""
    frame = edges([5, 3, 5, 5], [3, 4, 4, 5], [2.0, 1.0, 0.5, -1.0]).assign(name=list("abcd"))
    odd = frame[["name", "weight", "dst", "src"]].set_axis([9, 9, 2, -1])
    expected = edges([3, 5], [4, 4], [1.0, 0.5]).set_axis([9, 2])
    pd.testing.assert_frame_equal(minimum_spanning_tree(odd, device=device), expected)
    assert list(odd.columns) == ["name", "weight", "dst", "src"]
    tree = minimum_spanning_tree(frame, device=device)
    assert frame.loc[tree.index, "name"].tolist() == ["b", "c"]


def test_components_are_numbered_by_appearance(device):
    frame = edges([8, 4, 0, 2, 9, 8, 6], [9, 5, 1, 1, 8, 9, 6], [1.0, 1.0, 5.0, 1.0, 0.5, 0.0, 1.0])
    found = minimum_spanning_tree(frame, component=True, device=device)
    assert found["component"].dtype == np.int32
    assert list(zip(found.index, found["component"], strict=True)) == [(1, 0), (2, 1), (3, 1), (5, 2)]
    frame = random_graph(np.random.default_rng(0), 5000, 4000)
    found = minimum_spanning_tree(frame, component=True, device=device)
    graph = coo_matrix((np.ones(len(frame)), (frame["src"], frame["dst"])), shape=(5000, 5000))
    label = connected_components(graph, directed=False)[1]
    np.testing.assert_array_equal(found["component"], by_appearance(label[found["src"]]))
    assert len(minimum_spanning_tree(edges([], [], []), component=True, device=device)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("weight", ["float64", "float32"])
def test_gpu_frames_are_answered_in_kind(weight, device):
    """A frame of the other library than the device's has its rows picked where it is."""
    import cudf

    frame = random_graph(np.random.default_rng(0), 50, 200).set_axis(np.arange(200) * 3).astype({"weight": weight})
    found = minimum_spanning_tree(cudf.from_pandas(frame), component=True, device=device)
    assert type(found).__module__.startswith("cudf")
    expected = minimum_spanning_tree(frame, component=True, device="cpu")
    pd.testing.assert_frame_equal(found.to_pandas(), expected)


@pytest.mark.parametrize("weights", ["equal", "rising", "falling"])
@pytest.mark.parametrize("shape", ["chain", "star", "cycle", "caterpillar"])
def test_long_shapes(shape, weights, device):
    """Rising weights on a chain make every node point at its neighbour: pointers as deep as the chain is long."""
    end, i, weight = long_shape(shape, weights, 3000)
    assert_is_kruskals(edges(end, i, weight), device)
    names = np.random.default_rng(0).permutation(3000)
    assert_is_kruskals(edges(names[end], names[i], weight), device)


@pytest.mark.parametrize(("n", "m"), [(1, 0), (5, 0), (1, 3), (2, 1), (500, 2000)])
def test_forest_of_sorted_edges(n, m, engine):
    """The stage alone, against sets of nodes that are joined one edge after the other."""
    rng = np.random.default_rng(m)
    src, dst = rng.integers(0, n, (2, m)).astype(np.int32)
    weight = engine.xp.arange(m, dtype="float64") // 2  # of equal ones the earlier comes first
    taken, root = rounds.spanning_forest(rounds.EdgeList(engine.asarray(src), engine.asarray(dst), weight, n), engine)
    component = rounds.components(engine.xp.arange(n, dtype="int32"), root, engine)
    expected = np.zeros(m, bool)
    parent = np.arange(n)
    for e in range(m):
        a, b = parent[src[e]], parent[dst[e]]
        expected[e] = a != b
        parent[parent == a] = b
    np.testing.assert_array_equal(to_host(taken), expected)
    np.testing.assert_array_equal(by_appearance(to_host(component)), by_appearance(parent))


@pytest.mark.parametrize("call", [minimum_spanning_tree, fit_graph])
@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (pd.DataFrame({"src": [0], "dst": ["1"], "weight": [1.0]}), TypeError,
         "'src' and 'dst' of the edges must hold ids of one kind, got int64 and "),
        (pd.DataFrame({"src": [0], "dst": [1.0], "weight": [1.0]}), TypeError, "of one kind, got int64 and float64"),
        (edges([0, 1], [1, 2], [np.nan, 1.0], weights="float32"), ValueError, "column 'weight' of the edges holds"),
        (edges(["0", "1"], ["1", "2"], [1.0, -np.nan], ids="object"), ValueError, "column 'weight' of the edges holds"),
    ],
)  # fmt: skip
def test_bad_edges(call, frame, error, message, device):
    """Types that do not match, and weights that are none; test_bad_columns.py has the columns one by one."""
    with pytest.raises(error, match=message):
        call(frame, device=device)


@pytest.mark.parametrize("call", [minimum_spanning_tree, fit_graph])
def test_bad_device(call):
    with pytest.raises(ValueError, match="device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"):
        call(edges([0], [1], [1.0]), device="tpu")

"""Launchers: the arguments of every kernel are those of its source, and what a kernel cannot read is refused."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import fake_gpu
from hard_cases import combinations, full
from launchers import LAUNCHERS, OTHERS, bvh, graph_cuda, launches_of, tree_cuda

from bench import sanitize
from rapids_slink.dendrogram import soonest
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors import prepare_search
from rapids_slink.neighbors.task import NeighborLists, SearchResult, SearchTask
from rapids_slink.neighbors.within import prepare_pairs
from rapids_slink.pipeline import tree_of_points
from rapids_slink.points import output
from rapids_slink.points.check import check_finite
from rapids_slink.points.output import PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import NUMPY_NAMES, cuda_source, launch, parameters
from rapids_slink.runtime.device import cuda
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree.boxes import tree_of_boxes
from rapids_slink.spanning_tree.graphs import EdgeList
from rapids_slink.spanning_tree.lists import Forest
from rapids_slink.spanning_tree.ways import tree_of_rows


def test_parameters_are_found(tmp_path):
    code = 'template <int N> void f(int); extern "C" __global__ void __launch_bounds__(THREADS, 2) f(\n'
    code += "const VALUE* __restrict__ x, long long n,\n  unsigned long long *y, const Search search, float z) {}"
    (tmp_path / "f.cu").write_text(code)
    pointer = "".join(code for code in np.typecodes["AllInteger"] if np.dtype(code).itemsize == 8)
    kinds = parameters(str(tmp_path / "f.cu"), "f", ("-DVALUE=double", "-arch=sm_90a"))
    assert kinds == ("d", np.int64, pointer, np.void, np.float32)


def test_numbers_have_known_types():
    """What is passed by value is of a type that `parameters` knows, or a struct, for which no number is taken."""
    for path in sanitize.PACKAGE.rglob("*.cu"):
        source = cuda_source(str(path.relative_to(sanitize.PACKAGE)))
        structs = set(re.findall(r"struct (?:__align__\(\d+\) )?(\w+)", source))
        for declared in re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\) )?\w+\(([^)]*)\)", source):
            by_value = [part.replace("const ", "").split() for part in declared.split(",") if "*" not in part]
            assert {" ".join(words[:-1]) for words in by_value} <= structs | NUMPY_NAMES.keys()
    kernel = "neighbors/tiles/tiles.cu", "refine_marks"
    with fake_gpu(), pytest.raises(TypeError, match="takes a struct"):
        launch(*kernel, 5, *(None if isinstance(kind, str) else 1 for kind in parameters(*kernel)))


@pytest.mark.parametrize(
    "arguments", [(5.0, "int32", "int32"), (5, "int64", "int32"), (5, "int32", "float32"), (5, "int32")]
)
def test_other_arguments_are_refused(arguments):
    """A number that is no integer, arrays of other types, too few arguments; arrays with gaps."""
    jobs, *types = arguments
    with fake_gpu():
        arrays = [cuda().xp.zeros(5, dtype) for dtype in types]
        with pytest.raises((TypeError, ValueError)):
            launch("spanning_tree/forest.cu", "count_roots", 5, jobs, *arrays)
        here = cuda().xp.zeros(5, "int32")
        with pytest.raises(TypeError, match="contiguous array of its type"):
            launch("spanning_tree/forest.cu", "count_roots", 5, 5, here, np.repeat(here, 2)[::2])


def test_every_kernel_is_launched_with_the_arguments_of_its_source():
    """A launch that differs is refused."""
    launches = [launches_of(launcher, gpu) for launcher in LAUNCHERS + OTHERS for gpu in (80, 90)]
    assert all(launches)
    sources = {cuda_source(source): source for source, _ in sanitize.kernels_of_package()}
    launched = {(sources[launch.code], launch.kernel) for each in launches for launch in each}
    assert launched == sanitize.kernels_of_package()


#: A metric, the type of its rows and their width, and the kernel that its search is by.
SEARCHED = [
    ("euclidean", "float32", 40, "append_survivors"),
    ("cosine", "float64", 300, "append_survivors"),
    ("cityblock", "float32", 40, "append_candidates"),
    ("jaccard", "uint64", 9, "append_survivors"),
    ("hamming", "float32", 40, "put_planes"),
    ("euclidean", "float32", 3, "search"),
]


def rows_of(n, d, dtype, seed=0):
    """Rows, or words with their numbers of ones, and for cosine their norms: nothing of zero."""
    return cuda().xp.array(np.random.default_rng(seed).uniform(1, 9, (n, d))).astype(dtype)


def tasks(n):
    """A k-NN graph, with bounds, with bounds by lists; lists between two parts; each group's least; cores."""
    xp, rows = cuda().xp, cuda().xp.arange(n, dtype="int32")
    bounds, part = xp.full(n, 0.5), (rows >= n // 3).astype("int32")
    yield SearchTask(rows, 5, rows, rows)
    yield SearchTask(rows, 5, rows, rows, upper=bounds)
    yield SearchTask(rows, 5, part, part, upper=bounds, split=n // 3)
    yield SearchTask(rows, 5, rows, rows, bounds_by_lists=lambda ids, weights: bounds)
    yield SearchTask(rows[: n // 2], 1, rows % 7, rows % 7, upper=bounds[: n // 2], only_minima=True)
    yield SearchTask(rows, 5, rows, rows, core=xp.array(np.random.default_rng(0).random(n)))


def compute(launch, redone):
    """The range of values, which are no bytes; some rows have more candidates than there is room for."""
    if launch.kernel == "value_range":
        launch.arguments[-1][...] = 3.0, 200.0, 1.0
    if launch.kernel == "rerank" and redone:
        next(part for part in launch.arguments if isinstance(part, np.ndarray) and part.dtype == bool)[::7] = True


def keep_bounds(keeps):
    """Let the trials of a GPU's products end so."""
    from rapids_slink.neighbors.filter import cuda as products
    from rapids_slink.neighbors.filter import fused

    products._products_keep_bound = fused._fp16_keeps_bound = lambda *_: keeps


#: `precise`: in products; if so, rows are searched again.
@pytest.mark.parametrize(("capability", "precise"), [(75, True), full(75, False), (90, False), full(90, True)])
@pytest.mark.parametrize(("metric", "dtype", "d", "kernel"), SEARCHED)
def test_a_search_runs_to_its_end(metric, dtype, d, kernel, capability, precise):
    """Every kind of task, and queries: no name is missing on the way, and every argument is what its kernel takes."""
    n, metric = 3000, get_metric(metric)
    with fake_gpu(capability) as gpu:
        gpu.run = lambda launch: compute(launch, redone=precise)
        keep_bounds(precise)
        values = rows_of(n, d + metric.rows.have_norms, dtype)
        search = prepare_search(values, cuda(), Report(), metric=metric)
        for task in tasks(n):
            assert search.find(task).ids.shape == (task.rows.size, task.k)
        queries, rows = rows_of(500, values.shape[1], dtype, seed=1), cuda().xp.arange(500, dtype="int32")
        between = prepare_search(values, cuda(), Report(), queries=queries, metric=metric)
        assert between.find(SearchTask(rows, 5, rows, cuda().xp.arange(n, dtype="int32"))).ids.shape == (500, 5)
    assert gpu.launches
    has_filter = dtype != "uint64" or capability >= 80  # of bits
    assert (kernel in {launch.kernel for launch in gpu.launches}) == has_filter


@pytest.mark.parametrize(
    ("searched", "n_queries"), combinations(SEARCHED, (None, 2500), quick=zip(SEARCHED, 3 * (None, 2500), strict=True))
)
def test_a_search_for_pairs_runs_to_its_end(searched, n_queries):
    metric, dtype, d, _ = searched
    n, metric = 3000, get_metric(metric)
    with fake_gpu(90) as gpu:
        gpu.run = lambda launch: compute(launch, redone=False)
        values = rows_of(n, d + metric.rows.have_norms, dtype)
        queries = None if n_queries is None else rows_of(n_queries, values.shape[1], dtype, seed=1)
        search, rows = prepare_pairs(values, queries, 0.4, metric, cuda()), slice(0, n_queries or n)
        assert search.find(rows, 1e6).count == 0
        assert search.count(rows, np.array([0.1, 0.4])).shape == (2,)
    assert gpu.launches


def test_a_metric_needs_no_filter():
    """Three files are a new formula: its filter may follow."""
    metric = replace(get_metric("canberra"), filter="none")
    with fake_gpu(90) as gpu:
        search = prepare_search(rows_of(3000, 20, "float32"), cuda(), Report(), metric=metric)
        for task in tasks(3000):
            search.find(task)
    assert gpu.launches
    assert not {"append_candidates", "append_survivors"} & {launch.kernel for launch in gpu.launches}


def test_few_points_take_few_launches_and_one_copy(monkeypatch):
    """From points to the columns of their tree on the host; the values are looked at there too."""
    n, copied = 100, []
    edges = np.arange(n - 1, dtype="int32"), np.arange(1, n, dtype="int32"), np.arange(1.0, n)

    def write_tree(launch):
        if launch.kernel == "grow_tree_of_matrix":
            for column, values in zip(launch.arguments[-3:], edges, strict=True):
                column[...] = values

    with fake_gpu() as gpu:
        gpu.run = write_tree
        monkeypatch.setattr(output, "to_host", lambda array: copied.append(array.nbytes) or np.array(array))
        metric, values = get_metric("euclidean"), rows_of(n, 3, "float32")
        assert check_finite({"X": SimpleNamespace(values=values, names=None)}, metric, cuda())
        tree, components = tree_of_points(values, Problem(Settings(metric), cuda(), n, 3, 4), Report(), tree_of_rows)
        columns = soonest(tree, n).columns
    assert gpu.launches
    assert [launch.kernel for launch in gpu.launches] == ["all_distances", "grow_tree_of_matrix", "take_roots"]
    assert (components, copied) == (1, [2048])  # columns begin at multiples of 256 bytes
    assert list(columns) == ["src", "dst", "weight"]
    for column, values in zip(columns.values(), edges, strict=True):
        assert type(column) is np.ndarray
        np.testing.assert_array_equal(column, values)


N, K = 40, 3


def i32(*shape):
    return cuda().xp.zeros(shape or N, "int32")


def f64(*shape):
    return cuda().xp.zeros(shape or N)


def forest(**arrays):
    """A `Forest` of N points."""
    given = Forest.of_components(i32(), (f64(), f64().astype("int64")), cuda())
    columns = {name: arrays.pop(name) for name in ("src", "dst", "weight") if name in arrays}
    edges = PreallocatedFrame({**given.edges.columns, **columns}, cuda())
    return replace(given, edges=edges, **arrays)


def points_of_forest():
    given = forest()
    names = "nearest_outside", "nearest_outside_weight", "bound_weight", "bound_code", "best_weight", "best_code"
    return {name: getattr(given, name) for name in ("component", *names, "certified")}


def box_search(**arrays):
    """A search of N points whose arrays are replaced after it is made."""
    search = bvh.BoxSearch(f64(N, K), cuda(), Report())
    spans = arrays.pop("spans", search.tree[2])
    for name, array in arrays.items():
        setattr(search, name, array)
    search.tree = (*search.tree[:2], spans, search.nodes)
    return search


def boxes():
    search = box_search()
    return {name: getattr(search, name) for name in ("points", "order", "leaf_of", "nodes")} | {"spans": search.tree[2]}


def edge_list(src, dst, weight):
    return EdgeList(src, dst, weight, N)


def edges_of_graph():
    return {"src": i32(60), "dst": i32(60), "weight": f64(60).astype("float32")}


def edges_of_forest():
    return {"src": i32(N - 1), "dst": i32(N - 1), "weight": f64(N - 1), "n_taken": i32(1), "cursor": i32()}


#: Launchers, their arrays, and of which of these the sizes say how many there are of something.
CALLS = {
    "grow_forest": (
        lambda ids, weights, **arrays: tree_cuda.grow_forest(NeighborLists(ids, weights), forest(**arrays)),
        lambda: {"ids": i32(N, K), "weights": f64(N, K), **points_of_forest(), **edges_of_forest()},
        {"ids", "component"},
    ),
    "rows_to_search": (lambda **arrays: tree_cuda.rows_to_search(forest(**arrays)), points_of_forest, {"component"}),
    "record_search": (
        lambda rows, ids, weights, upper, **arrays: tree_cuda.record_search(
            forest(**arrays), rows, SearchResult(ids, weights, upper)
        ),
        lambda: {"rows": i32(9), "ids": i32(9, 1), "weights": f64(9, 1), "upper": f64(9), **points_of_forest()},
        {"rows", "component"},
    ),
    "connected_components": (lambda ids: tree_cuda.connected_components(ids), lambda: {"ids": i32(N, K)}, {"ids"}),  # noqa: PLW0108
    "find": (
        lambda rows, row_group, point_group, core, **arrays: box_search(**arrays).find(
            SearchTask(rows, 5, row_group, point_group, core=core)
        ),
        lambda: {"rows": i32(), "row_group": i32(), "point_group": i32(), "core": f64(), **boxes()},
        {"rows", "row_group"},
    ),
    "count_visits": (lambda **arrays: box_search(**arrays).mean_visits(5), boxes, {}),
    "tree_of_boxes": (lambda **arrays: tree_of_boxes(box_search(**arrays), Report()), boxes, {}),
    "spanning_forest": (
        lambda **edges: graph_cuda.spanning_forest(edge_list(**edges), None),
        edges_of_graph,
        {"src"},
    ),
}


def is_refused(call, arrays):
    try:
        call(**arrays)
    except (TypeError, ValueError) as error:
        return any(words in str(error) for words in ("kernel", "contiguous", "must be"))
    return False


@pytest.mark.parametrize("call", CALLS)
def test_arrays_of_other_sizes_are_refused(call):
    """A source does not tell them; its types, layout and GPU are compared by `launch`."""
    call, arrays, sizes = CALLS[call]
    with fake_gpu():
        given = arrays()
        call(**given)
        at_fault = {name for name, array in given.items() if array.size > 1} - set(sizes)
        taken = [name for name in at_fault if not is_refused(call, {**given, name: given[name][:-1]})]
        assert taken == []

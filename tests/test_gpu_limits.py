"""Every launch fits into a block and a multiprocessor of each GPU from Turing on. None of them is needed."""

import re
from functools import cache
from itertools import product

import pytest
from fake_gpu import (
    BLOCK_THREADS,
    CAPABILITIES,
    MULTIPROCESSORS,
    REGISTERS,
    THREAD_REGISTERS,
    WITHOUT_OPTING_IN,
    fake_gpu,
)
from hard_cases import full
from nvrtc import compiled
from test_cuda_sources import PACKAGE, SOURCES, headers

from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.task import NeighborLists, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import cuda

RESERVED = 1024  # bytes of shared memory of a resident block, by CUDA
USAGE = re.compile(r"entry function '(\w+)'.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", re.DOTALL)


@cache
def usage(code, architecture, *options):
    """Registers of a thread and bytes of static shared memory of a block, by kernel, as the assembler says."""
    options = options if any("-arch" in o for o in options) else (*options, f"-arch={architecture}")
    ptx, log = compiled(code, "source.cu", "--std=c++17", *headers(), "--ptxas-options=-v", *options)
    assert ptx is not None, log
    return {name: (int(registers), int(shared or 0)) for name, registers, shared in USAGE.findall(log)}


def resident_blocks(capability, kernel, threads, shared_memory):
    """How many blocks of a kernel, by its code, options and name, a multiprocessor holds."""
    _, room, most_threads, most_blocks = CAPABILITIES[capability]
    code, options, name = kernel
    registers, static = usage(code, f"sm_{capability}", *options)[name]
    shared = static + shared_memory + RESERVED
    return min(most_threads // threads, most_blocks, REGISTERS // registers_of(threads, registers), room // shared)


def registers_of(threads, registers):
    """Of a block, as they are allocated: to four warps at a time, eight a thread."""
    return -(-registers // 8) * 8 * -(-threads // 128) * 128


def assert_fits(launch, capability):
    """Whether the GPU can start it."""
    opted_in = CAPABILITIES[capability][0]
    kernel = launch.code, launch.options, launch.kernel
    registers, static = usage(launch.code, f"sm_{capability}", *launch.options)[launch.kernel]
    what = f"{launch.kernel} {launch.options}: {launch.threads} threads, {registers} registers, {static} + "
    what += f"{launch.shared_memory} bytes"
    assert launch.threads <= BLOCK_THREADS, what
    assert registers <= THREAD_REGISTERS, what
    assert registers_of(launch.threads, registers) <= REGISTERS, what
    if launch.limit:
        assert launch.shared_memory <= launch.limit <= opted_in - static, what
    else:
        assert launch.shared_memory <= WITHOUT_OPTING_IN - static, what
    resident = resident_blocks(capability, kernel, launch.threads, launch.shared_memory)
    assert resident >= 1, what
    if launch.resident or launch.kernel == "append_survivors":
        assert launch.grid[0] <= resident * MULTIPROCESSORS, what


# ------------------------------------------------------------------------------------------------- the launchers


def points(n, d, dtype="float32"):
    return cuda().xp.zeros((n, d), dtype)


def ids(n):
    return cuda().xp.arange(n, dtype="int32")


def exact_kernels():
    """Lists of one and of as many as there is room for, of rows of each type."""
    from rapids_slink.neighbors.exact import cuda as exact

    xp, m = cuda().xp, 300
    for dtype, formula in (("uint8", "euclidean"), ("float32", "euclidean"), ("float64", "cosine")):
        given = ExactPoints(*[points(m, 784, dtype)] * 2, get_metric(formula))
        for k in (1, exact.MAX_LIST):
            top, rows = exact.empty_lists(m, k), ids(m)
            exact.rerank(given, rows, exact.new_candidates(m, k), (rows, rows), xp.full(m, xp.inf), top)
            exact.scan(given, rows, (rows, rows), xp.full(m, xp.inf), k)
        exact.pair_distances(given.points, rows, rows, given.metric)
    exact.all_distances(given.points, given.metric)


def matrix_search():
    from rapids_slink.neighbors.matrix import search

    metric, rows = get_metric("hamming"), ids(300)
    among = search.MatrixSearch(points(300, 40), cuda(), Report(), metric=metric)
    for k in (1, search.MAX_LIST):
        among.find(SearchTask(rows, k, rows, rows))


def box_search():
    """Lists that threads and that warps keep; of groups, where blocks wait for each other."""
    from rapids_slink.neighbors.trees import bvh

    n = 100_000
    among, rows = bvh.BoxSearch(points(n, 3), cuda(), Report()), ids(n)
    for k in (1, 8, 16, 17, 300, bvh.MAX_LIST):
        among.find(SearchTask(rows[:1000], k, rows, rows))
    among.find(SearchTask(rows, 1, rows, rows.copy(), per_group_minimum=True))


def box_tree():
    from rapids_slink.neighbors.trees.bvh import BoxSearch
    from rapids_slink.spanning_tree.boxes.cuda import tree_of_boxes

    for d, dtype in ((3, "float32"), (32, "float64")):
        tree_of_boxes(BoxSearch(points(100_000, d, dtype), cuda(), Report()), Report())


def int8_points():
    from rapids_slink.neighbors.filter.fused import encodings
    from rapids_slink.neighbors.filter.quantize import Scaling

    for d in (1, 784, encodings.MAX_FEATURES):
        given = points(300, d)
        encodings.Int8(given, Scaling(cuda().xp.zeros(d), 1.0)).encode(given, ids(300), 512)


def fused_filter():
    """One to twelve atoms of features, of each type and pass, and the tightening of its bounds."""
    from rapids_slink.neighbors.filter.fused import launch

    for atoms in (*range(1, 10), 12):
        for sum_type, y_type in (("float32", "float16"), ("int32", "int8"), ("int32", "uint8")):
            if y_type == "uint8" and not launch.has_bit_products():
                continue
            append_survivors(launch, atoms, sum_type, y_type)


def append_survivors(launch, atoms, sum_type, y_type):
    from rapids_slink.neighbors.filter.quantize import QuantizedPoints

    xp, n = cuda().xp, 1024
    image = QuantizedPoints(xp.zeros(n * atoms, y_type), xp.zeros(n, sum_type), xp.zeros(n, "float32"))
    radii = launch.Radii(xp.zeros(n, "float32"), xp.zeros(n // launch.TILE, "float32"))
    survivors = launch.Survivors(xp.zeros((n, 5), "int32"), xp.zeros(n, "int32"), None, xp.zeros((n, 5), sum_type))
    products = launch.Products(image, 4, 100, (0, 8), n, (0, 8))
    into = launch.Destination(survivors, xp.zeros(1, "int32"))
    launch.append_survivors(products, image, 4 * atoms - 3, radii, radii.of_tile, into)


def bounds_of_filters():
    """Many buckets, and many survivors of a row."""
    from rapids_slink.neighbors.filter import cuda as filters
    from rapids_slink.neighbors.filter.bounds import UpperBound
    from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling

    xp, n = cuda().xp, 300
    filters.centre_of_rows(points(n, 100), 1)
    filters.value_ranges([points(n, 100)], xp.zeros(100))
    filters.quantize(points(n, 100), Scaling(xp.zeros(100), 1.0))
    given = QuantizedPoints(points(n, 100, "float16"), *xp.zeros((2, n), "float32"), ids(n))
    known = UpperBound.of(100, 1.0, get_metric("euclidean"))
    for k in (1, filters.MAX_BUCKETS // 2):
        filters.seed_bounds(points(n, n), given, given, SearchTask(ids(n), k, ids(n), ids(n)), known, xp.zeros(n))


def tightening():
    from rapids_slink.neighbors.filter.fused.filter import PRECISE, FusedFilter
    from rapids_slink.neighbors.filter.fused.launch import Survivors
    from rapids_slink.neighbors.filter.quantize import Scaling

    xp, n, given = cuda().xp, 300, points(300, 100)
    scaling, metric = Scaling(xp.zeros(100), 1.0), get_metric("euclidean")
    filter_ = FusedFilter(given, given, metric, cuda(), scaling, ExactPoints(given, given), PRECISE)
    filter_.arrange(ids(n))
    for capacity in (60, 8000):
        found = xp.zeros((n, capacity), "int32"), xp.zeros(n, "int32"), None, xp.zeros((n, capacity), "float32")
        filter_.tighten(Survivors(*found), xp.zeros(n), 5, last=True)


def direct_filter():
    from rapids_slink.neighbors.filter.direct import DirectFilter

    n, metric = 300, get_metric("manhattan")
    exact = ExactPoints(*[points(n, 20)] * 2, metric)
    filter_ = DirectFilter(exact, ("manhattan", 2), cuda().xp.zeros(20), 1.0, cuda())
    from rapids_slink.neighbors.exact.cuda import new_candidates

    rows = filter_.quantize(exact.points)
    filter_.append(rows, rows, points(n, 1)[:, 0], (ids(n), ids(n)), new_candidates(n, 5))


def small_batch():
    """Its trial, and searches."""
    from rapids_slink.neighbors import small_batch

    dtypes, metric = ("float32", "float64"), get_metric("euclidean")
    if not small_batch.SmallBatchSearch(300, 5000, 2, metric).fits_gpu:
        return
    for dtype in dtypes:
        small_batch._keeps_bound(dtype, 0)
    small_batch._keeps_bound = lambda *_: True  # nothing is computed
    for d, dtype in product((2, 128, small_batch.MAX_FEATURES), dtypes):
        search = small_batch.SmallBatchSearch(300, 5000, d, metric)
        if search.fits_gpu:
            edges = ids(300), ids(300), cuda().xp.zeros(300)
            search.write_edges(points(300, d, dtype), points(5000, d, dtype), *edges)


def component_samples():
    from rapids_slink.spanning_tree.component_pairs.components import Components
    from rapids_slink.spanning_tree.component_pairs.cuda import sample_components

    xp, n = cuda().xp, 300
    components = Components(ids(n), ids(n), xp.zeros(11, "int64"), ids(n))
    for dtype in ("float32", "float64"):
        sample_components(points(n, 20, dtype), components, xp.zeros(n))


def dendrogram():
    from rapids_slink.dendrogram import cuda as kernels

    n = 100_000
    kernels.merge_in_order(*(ids(n - 1) for _ in range(2)), n, *(ids(n - 1) for _ in range(3)))
    kernels.label_clusters(ids(n // 2), ids(n // 2), n)


def tree_of_matrix():
    from rapids_slink.spanning_tree.pairs.cuda import tree_of_matrix

    n = 3000
    for dtype in ("float32", "float64"):
        columns = ids(n - 1), ids(n - 1), cuda().xp.zeros(n - 1)
        tree_of_matrix(points(n, n, dtype), None, dict(zip(("src", "dst", "weight"), columns, strict=True)))


def tree_of_lists():
    from rapids_slink.spanning_tree.cuda import boruvka_rounds
    from rapids_slink.spanning_tree.forest import Forest

    n = 100_000
    lists = NeighborLists(points(n, 5, "int32"), points(n, 5, "float64"))
    boruvka_rounds(lists, Forest.of_points(lists, cuda()))


def forest_of_edges():
    from rapids_slink.spanning_tree.edges import cuda as kernels
    from rapids_slink.spanning_tree.edges.edge_list import ALL, EdgeList

    n = 100_000
    for dtype in ("float32", "float64"):
        edges = EdgeList(ids(n), ids(n), points(n, 1, dtype)[:, 0], n)
        kernels.boruvka_rounds(edges, kernels.start(edges, ALL), ALL, None)


LAUNCHERS = [
    exact_kernels, matrix_search, box_search, box_tree, int8_points, fused_filter, bounds_of_filters, tightening,
    direct_filter, small_batch, component_samples, dendrogram, tree_of_matrix, tree_of_lists, forest_of_edges,
]  # fmt: skip


def launches_of(launcher, capability):
    with fake_gpu(capability) as gpu:
        gpu.resident = lambda kernel, *sizes: resident_blocks(
            capability, (kernel.code, kernel.options, kernel.name), *sizes
        )
        launcher()
    return gpu.launches


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("capability", [75, *map(full, list(CAPABILITIES)[1:])])
def test_launches_fit(launcher, capability):
    launches = launches_of(launcher, capability)
    assert launches or (launcher is small_batch and capability < 80)
    for launch in launches:
        assert_fits(launch, capability)


def test_launchers_above_have_every_kernel_with_bounds():
    """Of its threads or of its resident blocks, or with shared memory that the launcher sizes."""
    launched = {launch.kernel for launcher in LAUNCHERS for launch in launches_of(launcher, 80)}
    for path in SOURCES:
        for kernel in path.read_text().split("__global__")[1:]:
            if "__launch_bounds__" in kernel.split("(")[0] or re.search(r"extern __shared__", kernel):
                name = re.search(r"(\w+)\(\s*(?:const|long|int)", kernel)[1]
                assert name in launched, f"{name} of {path.relative_to(PACKAGE)}"

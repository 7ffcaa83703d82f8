"""Calls of all launchers, for GPUs that compute nothing: what each would launch at the sizes that take most."""

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import product

import numpy as np
from fake_gpu import fake_gpu

from bench import sanitize
from rapids_slink.items import search
from rapids_slink.items.stored import Sets, SparseRows
from rapids_slink.metrics import distances, get_metric
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter import QuantizedPoints, Scaling, UpperBound, radius_terms
from rapids_slink.neighbors.task import NeighborLists, SearchResult, SearchState, SearchTask
from rapids_slink.neighbors.tiles import Encoded, Terms, order
from rapids_slink.neighbors.tiles.order import Balls, Lists, PlacedTiles, Slots
from rapids_slink.ordering import _sort_by_codes, sort_in_place
from rapids_slink.points.check import squares_are_finite
from rapids_slink.report import Report
from rapids_slink.runtime.device import cuda
from rapids_slink.settings import metric_of
from rapids_slink.spanning_tree.boxes import tree_of_boxes
from rapids_slink.spanning_tree.component_pairs import ComponentPairs, Ends, Separations, pair_numbers
from rapids_slink.spanning_tree.graphs import EdgeList
from rapids_slink.spanning_tree.lists import Forest


class Lazy:
    """A module of the package that needs CuPy, which is imported again on every `fake_gpu`."""

    def __init__(self, name):
        self.name = f"rapids_slink.{name}"

    def __getattr__(self, name):
        return getattr(import_module(self.name), name)


matrix = Lazy("neighbors.matrix")
exact_cuda = Lazy("neighbors.exact.cuda")
bvh = Lazy("neighbors.bvh")
fused = Lazy("neighbors.filter.fused")
fused_filters = Lazy("neighbors.filter.fused.filter")
filter_cuda = Lazy("neighbors.filter.cuda")
tile_cuda = Lazy("neighbors.tiles.cuda")
tree_cuda = Lazy("spanning_tree.cuda")
graph_cuda = Lazy("spanning_tree.graphs.cuda")
dendrogram_cuda = Lazy("dendrogram.cuda")
item_cuda = Lazy("items.cuda")
within_cuda = Lazy("neighbors.within.cuda")


def points(n, d, dtype="float32"):
    return cuda().xp.zeros((n, d), dtype)


def ids(n):
    return cuda().xp.arange(n, dtype="int32")


def exact_kernels():
    """Launch for lists of one and of as many as there is room for, of rows of each type."""
    xp, m = cuda().xp, 300
    for dtype, formula in (("uint8", "euclidean"), ("float32", "euclidean"), ("float64", "cosine")):
        given = ExactPoints(*[points(m, 784, dtype)] * 2, get_metric(formula))
        for k in (1, exact_cuda.MAX_LIST):
            top, rows = exact_cuda.empty_lists(m, k), ids(m)
            exact_cuda.rerank(given, rows, exact_cuda.new_candidates(m, k), (rows, rows), xp.full(m, xp.inf), top)
            exact_cuda.scan(given, rows, (rows, rows), xp.full(m, xp.inf), k)
            state, found = SearchState(xp.zeros(m), top), exact_cuda.empty_lists(m, k)
            exact_cuda.put_lists(state, rows.astype("int64"), xp.zeros(m), found)
        exact_cuda.pair_distances(given.points, rows, rows, given.metric)
    exact_cuda.all_distances(given.points, given.metric)


def matrix_search():
    metric, rows = get_metric("hamming"), ids(300)
    among = matrix.MatrixSearch(points(300, 40), cuda(), Report(), metric=metric)
    for k in (1, matrix.MAX_LIST):
        among.find(SearchTask(rows, k, rows, rows))


def box_search():
    """Launch for lists that threads and that warps keep, and for groups, where blocks wait for each other."""
    n = 100_000
    among, rows = bvh.BoxSearch(points(n, 3), cuda(), Report()), ids(n)
    for k in (1, 8, 16, 17, 300, bvh.MAX_LIST):
        among.find(SearchTask(rows[:1000], k, rows, rows))
    among.find(SearchTask(rows, 1, rows, rows.copy(), only_minima=True))


def box_tree():
    for d, dtype in ((3, "float32"), (32, "float64")):
        tree_of_boxes(bvh.BoxSearch(points(100_000, d, dtype), cuda(), Report()), Report())


def int8_points():
    for d in (1, 784, fused.MAX_FEATURES):
        given = points(300, d)
        fused.Int8(given, Scaling(cuda().xp.zeros(d), 1.0)).encode(given, ids(300), 512)


def fused_filter():
    """Launch for one to twelve atoms of features of each type and pass, and for each tightening of bounds."""
    for atoms in (*range(1, 10), 12):
        for sum_type, y_type in (("float32", "float16"), ("int32", "int8"), ("int32", "uint8")):
            if y_type == "uint8" and not fused.has_bit_products():
                continue
            append_survivors(fused, atoms, sum_type, y_type)


def append_survivors(launch, atoms, sum_type, y_type):
    xp, n = cuda().xp, 1024
    image = QuantizedPoints(xp.zeros(n * atoms, y_type), xp.zeros(n, sum_type), xp.zeros(n, "float32"))
    radii = launch.Radii(xp.zeros(n, "float32"), xp.zeros(n // launch.TILE, "float32"))
    survivors = launch.Survivors(xp.zeros((n, 5), "int32"), xp.zeros(n, "int32"), None, xp.zeros((n, 5), sum_type))
    items = launch.work_items(4, 0, 8, 0, 8)
    into = launch.Destination(survivors, xp.zeros(1, "int32"))
    launch.append_survivors(image, items, n, image, 4 * atoms - 3, radii, radii.by_tile, into)


def bounds_of_filters():
    """Launch for many buckets, and for many survivors of a row."""
    xp, n = cuda().xp, 300
    filter_cuda.centre_of_rows(points(n, 100), 1)
    filter_cuda.value_ranges([points(n, 100)], xp.zeros(100))
    filter_cuda.to_uint8(points(n, 100), Scaling(xp.zeros(100), 1.0, byte_values=True))
    filter_cuda.quantize(points(n, 100), Scaling(xp.zeros(100), 1.0))
    given = QuantizedPoints(points(n, 100, "float16"), *xp.zeros((2, n), "float32"), ids(n))
    known = UpperBound.of(100, 1.0, get_metric("euclidean"))
    for k in (1, filter_cuda.MAX_BUCKETS // 2):
        filter_cuda.seed_bounds(points(n, n), given, given, SearchTask(ids(n), k, ids(n), ids(n)), known, xp.zeros(n))


def tightening():
    xp, n, given = cuda().xp, 300, points(300, 100)
    scaling = Scaling(xp.zeros(100), 1.0)
    exact = ExactPoints(given, given)
    filter_ = fused_filters.FusedFilter(given, given, exact, cuda(), scaling, fused_filters.PRECISE)
    filter_.arrange(ids(n))
    for capacity in (60, 8000):
        found = xp.zeros((n, capacity), "int32"), xp.zeros(n, "int32"), None, xp.zeros((n, capacity), "float32")
        filter_.tighten(fused.Survivors(*found), xp.zeros(n), 5, last=True)
    filter_.is_coarse(fused.Survivors(*found), 60, 0.25)
    filter_.order_by_bound(xp.zeros(n))


def tiles_of_near_points():
    """Launch for the order, rows in slots, what is listed for their blocks, and products; both types and tiers."""
    xp, n, d, m = cuda().xp, 1024, 100, 17
    tiles, blocks, cells = n // 128, n // 256, 2
    places = points(n, m, "float64")
    tile_cuda.leaves(tile_cuda.cut(places, 512, 128, 512), places)
    first_tile = xp.arange(cells + 1, dtype="int32") * 4
    slots = Slots.of(ids(n), np.zeros(1, np.int64), cuda(), slot_of=ids(n))
    slots = Slots(ids(n), xp.arange(tiles, dtype="int32") // 4, np.arange(blocks) // 2, cells)
    given = slots.cell_of_tile, first_tile, ids(n)
    tile_cuda.rows_by_cells(ids(n), ids(n), ids(n), *given, 1024, 64)
    boxes = tile_cuda.boxes(places, points(n, 2, "float64"), slots.rows)
    task = SearchTask(ids(n), 1, ids(n), ids(n))
    rows = tile_cuda.put_rows(slots, task, ids(n), (0, 0), xp.zeros(n), xp.zeros(n))
    tile_cuda.near_in_order(rows.ids, ids(n), ids(n), 33, (ids(n), ids(n)))
    for dtype, k in product(("float32", "float64"), (5, 500)):
        given, near = points(n, d, dtype), tile_cuda.near_in_order(rows.ids, ids(n), ids(n), 32, (ids(n), ids(n)))
        lists = rows.ids, near, (ids(n), ids(n)), rows.bound, exact_cuda.empty_lists(n, k), xp.zeros(n)
        tile_cuda.bound_rows(ExactPoints(given, given), given, 1.0, *lists)
    terms = (0.0,) * 6
    reach = tile_cuda.reach(rows.bound, terms, 1.0)
    groups, in_slots = (ids(blocks), ids(tiles)), order.places_of_slots(places, slots.rows, xp)
    placed = PlacedTiles(boxes, order.turned(boxes, xp), in_slots, 0.0)
    tile_cuda.near_tiles(boxes, placed, rows.where, reach, groups)
    tile_cuda.groups_of_slots(slots.rows, ids(n), 128)
    starts = xp.arange(blocks + 1, dtype="int64")
    listed = Lists(starts[:-1], starts[1:], ids(blocks), 1, np.ones(blocks, np.int64))
    for dtype, fine in product(("float32", "float64"), (False, True)):
        given = points(n, d, dtype)
        origin, scales, squares = xp.zeros(d), xp.zeros(cells), xp.zeros(cells)
        tile_cuda.places_of_points(given, origin, 1.0, points(m - 1, d, "float64"), 0.0)
        centres, between = points(cells, d, "float64"), points(cells, cells, "float64")
        products = xp.zeros((cells, n)), squares, tile_cuda.centred(given, slots.rows, origin)[1]
        tile_cuda.largest_differences(given, slots, origin, centres)
        y, error, length = tile_cuda.encode(given, slots, origin, centres, scales, fine, columns=True)
        sums = tile_cuda.sums_of_cells(slots, error, length)
        encoded = Encoded(slots, centres, scales, y, error, length, fine, *sums)
        near = tile_cuda.near_cells(slots.cell_of_tile, between, encoded, first_tile, 4, 2.0, groups)
        tile_cuda.sample_lists(near, slots.rows, rows, ids(n), points(n, 5, "int32"))
        balls = Balls(products, rows.in_terms, encoded, 0.0, 1.0)
        tile_cuda.near_tiles(boxes, placed, rows.where, reach, groups, balls)
        begins, least = points(cells, n), points(cells, n)
        tile_cuda.put_begins(products, between, encoded, slice(0, cells), 0.0, begins)
        for lists in (near, listed):
            plan = tile_cuda.plan_band(lists, slice(0, 2), slots)
            of_cells = Terms(encoded, 0, 0, products, begins, squares)
            tile_cuda.put_thresholds(of_cells, rows, slots.cell_of_tile, terms, 0.0, plan, least)
            sums, of_rows = (least, begins, rows.cells), (rows.groups, ids(n))
            tile_cuda.append(encoded, encoded, sums, lists, slice(0, 2), plan, of_rows, points(n, 5, "int32"), fine)


def direct_filter():
    n, metric = 300, get_metric("manhattan")
    exact = ExactPoints(*[points(n, 20)] * 2, metric)
    filter_ = filter_cuda.DirectFilter(exact, ("manhattan", 2), cuda().xp.zeros(20), 1.0, cuda())

    rows = filter_.quantize(exact.points)
    filter_.append(rows, rows, points(n, 1)[:, 0], (ids(n), ids(n)), exact_cuda.new_candidates(n, 5))


def small_batch():
    """Launch the trial and the searches for few queries."""
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


def dendrogram():
    n = 100_000
    dendrogram_cuda.merge_in_order(*(ids(n - 1) for _ in range(2)), n, *(ids(n - 1) for _ in range(3)))
    dendrogram_cuda.label_clusters(ids(n // 2), ids(n // 2), n)


def tree_of_matrix():
    n = 3000
    for dtype in ("uint16", "float32", "float64"):
        columns = ids(n - 1), ids(n - 1), cuda().xp.zeros(n - 1)
        tree_cuda.tree_of_matrix(points(n, n, dtype), None, dict(zip(("src", "dst", "weight"), columns, strict=True)))


def trees_of_groups():
    """Launch for teams of each size."""
    largest = max(warps * tree_cuda.WARP * items for warps, items in tree_cuda.TEAMS)
    xp, size = cuda().xp, np.array([2, 64, 65, 256, 257, largest])
    n, begin = int(size.sum()), np.cumsum(size) - size
    for dtype, metric, min_samples in (("float32", "euclidean", 1), ("float64", "cosine", 5), ("uint64", "jaccard", 1)):
        edges = ids(n - size.size), ids(n - size.size), xp.zeros(n - size.size)
        tree_cuda.trees_of_groups(points(n, 5, dtype), get_metric(metric), min_samples, ids(n), begin, size, edges)


def tree_of_lists():
    n = 100_000
    lists = NeighborLists(points(n, 5, "int32"), points(n, 5, "float64"))
    tree_cuda.grow_forest(lists, Forest.of_points(lists, cuda()))


def forest_of_edges():
    n = 100_000
    for dtype in ("float32", "float64"):
        edges = EdgeList(ids(n), ids(n), points(n, 1, dtype)[:, 0], n)
        graph_cuda.spanning_forest(edges, None)


LAUNCHERS = [
    exact_kernels, matrix_search, box_search, box_tree, int8_points, fused_filter, bounds_of_filters, tightening,
    tiles_of_near_points, direct_filter, small_batch, dendrogram, tree_of_matrix, trees_of_groups,
    tree_of_lists, forest_of_edges,
]  # fmt: skip


# ------------------------------------------------------------------------------------- without bounds on their blocks

#: The beginnings of the names of steps that launch what no function of this file does.
STEPS = re.compile(
    "strings|cosine, 20|sums of|condensed|graph, int|catalogue, 2|bits$|pairs, 3|lists, m|expansion|equal rows"
    "|a distance|3 columns|in a box, 3"
)


def steps_of_sanitize():
    """Launch what these steps of `bench.sanitize` do.

    Since nothing is computed some end early, where a result makes no sense.
    """
    for name, step in sanitize.steps():
        if STEPS.match(name):
            with suppress(RuntimeError):
                step(cuda())


def finite_points():
    for dtype in ("float32", "float64"):
        squares_are_finite([points(300, 3, dtype)], cuda())


def lists_kernels():
    xp, n = cuda().xp, 300
    exact_cuda.scatter_min(xp.zeros(n), ids(n), points(n, 5, "float64"))


def boxes_and_cores():
    n = 300
    among, rows = bvh.BoxSearch(points(n, 3), cuda(), Report()), ids(n)
    among.find(SearchTask(rows, 5, rows, rows, core=cuda().xp.zeros(n)))
    among.mean_visits(10)


def pairs_in_space():
    in_space = metric_of("euclidean", box=1.0, scales={(0, 1): 1.0, 2: 1.0}).of_columns(None, 3)
    search = within_cuda.BoxPairs(points(300, 3), None, 1.0, in_space)
    search.find(slice(0, 9), 1e6)
    search.count(slice(0, 9), np.zeros(5))


def friends_of_rows():
    """Launch for cells of many points, and without cells."""
    metric = get_metric("euclidean")
    boxes = tree_cuda.make_boxes(points(300, 3), metric)
    tree_cuda.write_friends(boxes, 1.0, metric, ids(300))
    tree_cuda.unite_others(boxes, ids(300), 1.0, ids(300))
    totals = [cuda().xp.zeros(300) for _ in range(3)]
    tree_cuda.reduce_near_points(boxes, 1.0, metric, None, totals[0], 5.0)
    tree_cuda.reduce_near_points(boxes, 1.0, metric, totals[1], totals[2], None)


def sets():
    xp, n = cuda().xp, 300
    for dtype in ("int32", "int64"):
        given = Sets(get_metric("jaccard"), cuda(), xp.arange(n + 1, dtype="int64"), xp.zeros(n, dtype), None, None, 40)
        given.hashes()
        given.rows_of_bits(128)
        given.distances(ids(n), ids(n))
        search.all_distances(given)


def sparse_rows():
    xp, n = cuda().xp, 300
    for metric, (columns, values) in product(("cosine", "euclidean"), (("int32", "float32"), ("int64", "float64"))):
        arrays = xp.arange(n + 1, dtype="int64"), xp.zeros(n, columns), xp.zeros(n, values), xp.ones(n)
        given = SparseRows(get_metric(metric), cuda(), *arrays, 40)
        given.hashes()
        given.equal(ids(n), ids(n))
        given.distances(ids(n), ids(n))
        search.all_distances(given)


def roots_of_weights():
    distances(get_metric("euclidean"), cuda().xp.zeros(300), (None, None), (None, None), cuda())


def order_of_edges():
    columns = ids(300), ids(300), cuda().xp.zeros(300)
    sort_in_place(dict(zip(("src", "dst", "weight"), columns, strict=True)), cuda().xp)
    _sort_by_codes(cuda().xp.zeros(300), cuda().xp.zeros(300, "int64"), *columns, cuda().xp)


def components():
    xp, n, k = cuda().xp, 300, 10
    supports = tree_cuda.new_supports(k)
    tree_cuda.update_supports(points(n, k), ids(n), 0, supports)
    separations = Separations(QuantizedPoints(points(k, 24, "float16"), None, None), supports, 0.0, 0.0)
    pairs = ComponentPairs(*tree_cuda.measure_pairs(separations, ids(n)))
    terms = radius_terms(20, 1.0, get_metric("euclidean"))
    start, ends = xp.zeros(k + 1, "int64"), Ends(pairs.first, pairs.second)
    upper, number = xp.zeros(pairs.first.size), pair_numbers(ends, ids(k), xp)
    tree_cuda.block_items(ids(n), number, upper, replace(tree_cuda.plan_blocks(ids(n), number, upper), n_items=9))
    keys, plan = points(n, 1, "int64").ravel(), replace(tree_cuda.plan_items(start, ends), n_items=9, n_rows=256)
    tree_cuda.work_items(keys, start, ends, plan)
    limits = tree_cuda.facing_limits(ends, xp.zeros(pairs.first.size), separations, terms)
    tree_cuda.list_facing(points(n, k), ids(n), ids(n), limits, xp.zeros(n, "uint64"), xp.zeros(1, "uint64"))


def cores_of_matrix():
    tree_cuda.find_cores(points(300, 300), 5)
    tree_cuda.find_cores(points(300, 300, "uint8"), 5, points(300, 1, "int64").ravel())


def searched_forest():
    xp, n = cuda().xp, 300
    forest = Forest.of_components(ids(n), (xp.zeros(n), xp.zeros(n, "int64")), cuda())
    tree_cuda.connected_components(points(n, 5, "int32"))
    tree_cuda.unite_pairs(ids(n), ids(9), ids(9))
    tree_cuda.rows_to_search(forest)
    tree_cuda.record_search(forest, ids(9), SearchResult(points(9, 1, "int32"), points(9, 1, "float64"), xp.zeros(9)))


OTHERS = [
    steps_of_sanitize, finite_points, lists_kernels, boxes_and_cores, pairs_in_space, friends_of_rows, sets,
    sparse_rows, roots_of_weights, order_of_edges, components, cores_of_matrix, searched_forest,
]  # fmt: skip


@cache
def launches_of(launcher, capability, resident=None):
    """Return what a launcher of these launches on a GPU of a compute capability, without the arrays: they are large.

    `resident(kernel, threads, shared_memory)` is how many blocks a multiprocessor holds.
    """
    with fake_gpu(capability) as gpu:
        gpu.resident = resident or gpu.resident
        launcher()
    return [replace(launch, arguments=()) for launch in gpu.launches]

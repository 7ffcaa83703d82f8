"""The exact kernels on the GPU: launchers of the sources in this folder. A raw kernel checks nothing, so they do."""

from functools import lru_cache
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric, word_count
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, TopLists, candidate_capacity
from rapids_slink.runtime.cuda import (
    THREADS,
    WARP,
    c_struct,
    constant,
    launch,
    launch_blocks,
    power_of_two,
    value_option,
    warps_that_fit,
)
from rapids_slink.runtime.device import Array

MAX_LIST = 2000  # with its features and waiting entries such a list fits into every GPU's shared memory

ROWS = "neighbors/rows.cu"
RERANK, PAIR_DISTANCES, LISTS, REACHABILITY, ALL_DISTANCES = (
    f"neighbors/exact/{name}.cu"
    for name in ("rerank", "pair_distances", "lists", "mutual_reachability", "all_distances")
)
CANDIDATES = "neighbors/exact/candidates.cuh"
DISTANCE_TILE = constant(ALL_DISTANCES, "TILE")
#: The most warps of a block, in which each row has a warp, or each pair a lane.
RERANK_WARPS = PAIR_WARPS = constant(CANDIDATES, "THREADS") // WARP
SEGMENT = constant(CANDIDATES, "SEGMENT")  # bytes of a candidate that a warp copies into shared memory at a time
#: From `MANY_ROWS` rows on a warp takes `SEVERAL`, one after the other: to start it takes a fourth of a row's time.
MANY_ROWS, SEVERAL = 2**17, 4
SAMPLED = 32  # the sample of the columns that bounds a long list is one column in this number


def new_candidates(rows: int, k: int, capacity: int | None = None) -> Candidates:
    """Allocate empty buffers, of `candidate_capacity` unless another capacity is given."""
    return Candidates(cp.empty((rows, capacity or candidate_capacity(k)), cp.int32), cp.zeros(rows, cp.int32))


def empty_lists(rows: int, k: int) -> TopLists:
    """Return empty lists, (rows, k): their ids are -1 and their weights infinite."""
    top = TopLists(cp.empty((rows, k), cp.int32), cp.empty((rows, k)), cp.empty(rows, bool))
    launch(LISTS, "clear_lists", rows * k, rows, k, top.ids, top.weights, top.overflowed)
    return top


def rerank(
    exact: ExactPoints,
    rows: Array,
    candidates: Candidates,
    groups: Groups | None,
    upper: Array,
    top: TopLists,
    core: Array = None,
    *,
    more_than: int = 0,
    square_bound: Any = None,
) -> None:
    """Insert the candidates of some rows into their lists; see `exact.cpu.rerank`.

    `groups` are the rows' and the points', if there are any: candidates of a row's exclusion id are passed over. Rows
    with at most `more_than` candidates are left as they are; the buffers of the others are emptied. With a
    `square_bound`, a `SquareBound`, upper bounds take the place of the candidates' weights.
    """
    rows_a_warp = WARP if more_than else SEVERAL if rows.size >= MANY_ROWS else 1
    _launch_rerank(
        exact, rows, candidates, groups, upper, top, core, rows_a_warp=rows_a_warp, more_than=more_than,
        square_bound=square_bound,
    )  # fmt: skip


def scan(exact: ExactPoints, rows: Array, groups: Groups, upper: Array, k: int, core: Array = None) -> TopLists:
    """Return the lists of rows with every point of another exclusion id as a candidate; see `exact.cpu.scan`."""
    m, n = rows.size, exact.points.shape[0]
    if k > MAX_LIST:
        distance = _distances_between(exact.queries, exact.points, exact.metric, rows)
        return lists_by_sorting(distance, rows, groups, upper, k, core)
    parts = int(max(1, min(8192 // max(m, 1), n // (WARP * k), 256)))
    part_lists = empty_lists(m * parts, k)
    _launch_rerank(exact, rows, None, groups, upper, part_lists, core, parts=parts)
    top = empty_lists(m, k)
    candidates = Candidates(part_lists.ids.reshape(m, parts * k), cp.full(m, parts * k, cp.int32))
    rerank(exact, rows, candidates, None, upper.copy(), top, core)
    return top


#: The `SquareBound` of a kernel that takes exact distances.
NO_BOUND = c_struct(*[0.0] * 5)


def _launch_rerank(
    exact: ExactPoints,
    rows: Array,
    candidates: Candidates | None,
    groups: Groups | None,
    upper: Array,
    top: TopLists,
    core: Array,
    *,
    parts: int = 1,
    rows_a_warp: int = 1,
    more_than: int = 0,
    square_bound: Any = None,
) -> None:
    """Start `rerank` of the rows' candidates, or of all points, dealt out to `parts` lists of each row.

    A warp has `rows_a_warp` lists.
    """
    queries, points = exact.queries, exact.points
    itemsize, (n, d), (lists, k) = points.dtype.itemsize, points.shape, top.ids.shape
    ids, count, order, capacity = None, None, None, -(-n // parts)
    if candidates is not None:
        ids, count, order, capacity = candidates.ids, candidates.count, candidates.order, candidates.capacity
    row_group, point_group = groups or (None, None)
    features, options = d, _options(points, exact.metric)
    if square_bound is not None:
        features, options = 0, (value_option(points.dtype), "-DMEASURED=1")
    layout, warps, bytes_a_warp = _warp_scratch(k, features, itemsize, alignment(points))
    launch_blocks(
        RERANK, "rerank", (-(-lists // (warps * rows_a_warp)),), warps * WARP, queries, points, d, rows, lists, parts,
        n, ids, count, more_than, rows_a_warp, capacity, order, row_group, point_group, core, upper, layout,
        NO_BOUND if square_bound is None else square_bound, top.ids, top.weights, top.overflowed, options=options,
        shared_memory=warps * bytes_a_warp,
    )  # fmt: skip


def sort_by_reachability(ids: Array, weights: Array, core: Array) -> None:
    """Raise lists' surrogate distances to mutual reachability, and sort them: see `exact.cpu.sort_by_reachability`."""
    n, k = ids.shape
    launch(REACHABILITY, "sort_by_reachability", n, n, k, core, ids, weights)


def flatnonzero(flags: Array) -> Array:
    """Return the indices of the flags that are set, int32, in no order.

    This costs the host a fourth of what CuPy's `flatnonzero` does.
    """
    position, count = cp.empty(flags.size, cp.int32), cp.zeros(1, cp.int32)
    launch(LISTS, "list_set", flags.size, flags.size, flags, position, count)
    return position[: int(count[0])]


def put_lists(into: Any, rows: Array, bound: Array, top: TopLists) -> None:
    """Store the bounds and the lists of some rows in a `SearchState`; see `exact.cpu.put_lists`."""
    (m, k), rows = top.ids.shape, rows.astype(cp.int32, copy=False)
    launch(
        LISTS, "put_lists", m * k, m, k, rows, bound, top.ids, top.weights, top.overflowed, into.upper, into.top.ids,
        into.top.weights, into.top.overflowed,
    )  # fmt: skip


def scatter_min(least: Array, group: Array, weights: Array) -> None:
    """Lower each exclusion id's least weight to the first weights of its rows' lists; see `exact.cpu.scatter_min`.

    CuPy's own scattered minimum was found too low in float64.
    """
    m, k = weights.shape
    launch(LISTS, "scatter_min", m, m, group, weights, k, least)


def pair_distances(values: Array, src: Array, dst: Array, metric: Metric = EUCLIDEAN) -> Array:
    """Return the surrogate distances of pairs of rows, float64."""
    out, m, d = cp.empty(src.size), src.size, values.shape[1]
    layout, threads = _warp_scratch(1, d, values.dtype.itemsize, alignment(values))[0], PAIR_WARPS * WARP
    launch_blocks(
        PAIR_DISTANCES, "pair_distances", (-(-m // threads),), threads, values, d, m, src, dst, layout, out,
        options=_options(values, metric), shared_memory=2 * threads * int(layout["f3"]),
    )  # fmt: skip
    return out


def with_norms(values: Array, centre: bool) -> Array:
    """Return the rows in float64, minus their means if `centre`, each followed by its norm: (n, d + 1)."""
    n, d = values.shape
    rows = cp.empty((n, d + 1))
    launch(ROWS, "put_norms", n, values, n, d, centre, rows, options=(value_option(values.dtype),))
    return rows


def wrapped(values: Array, periods: np.ndarray) -> Array:
    """Return the rows with each column in [0, its period): see `exact.cpu.wrapped`."""
    outside, on_gpu, options = cp.zeros(1, cp.int32), cp.asarray(periods), (value_option(values.dtype),)
    n, d = values.size, values.shape[1]
    launch(ROWS, "wrap", values.size, values, n, d, on_gpu, outside, None, options=options)
    if not int(outside[0]):
        return values
    rows = cp.empty_like(values)
    launch(ROWS, "wrap", values.size, values, n, d, on_gpu, outside, rows, options=options)
    return rows


def words_of(values: Array) -> Array:
    """Return rows of zeros and ones as words, with the features in another order than `exact.cpu.words_of` has."""
    values = values.view(cp.uint8) if values.dtype == bool else values
    n, d = values.shape
    words = cp.empty((n, word_count(d)), cp.uint64)
    launch(ROWS, "put_words", n * WARP, values, n, d, words.shape[1], words, options=(value_option(values.dtype),))
    return words


def hash_rows(values: Array, rows: Array) -> Array:
    """Return a hash of each of some rows, the same for equal rows; `exact.cpu.hash_rows` returns other hashes."""
    m, hashes, options = rows.size, cp.empty(rows.size, cp.uint64), (value_option(values.dtype),)
    launch(ROWS, "hash_rows", m * WARP, values, values.shape[1], rows, m, hashes, options=options)
    return hashes


def equal_rows(values: Array, max_distinct: int) -> tuple[Array, Array, Array] | None:
    """Return which rows are equal, unless more than `max_distinct` are distinct; see `exact.cpu.equal_rows`."""
    (n, d), options = values.shape, (value_option(values.dtype),)
    bits = 1 + max(1, n - 1).bit_length()
    table, slot, listed = cp.zeros(1 << bits, cp.uint32), cp.empty(n, cp.int32), cp.zeros(2, cp.int32)
    launch(ROWS, "enter_rows", n * WARP, values, n, d, 64 - bits, table, slot, listed[:1], options=options)
    first = cp.empty(n, cp.int32)
    launch(ROWS, "list_first", n, n, table, slot, first, listed[1:], options=options)
    crowded, m = listed.tolist()
    if crowded or m > max_distinct:
        return None
    first, count = first[:m], cp.zeros(m, cp.int64)
    first.sort()
    launch(ROWS, "number_rows", n, n, m, first, table, slot, count, options=options)
    return first, slot, count  # the kernel has put the number of each row in place of its slot


def all_distances(values: Array, metric: Metric) -> Array:
    """Return the surrogate distances of all pairs of rows, (n, n) float64."""
    return _distances_between(values, values, metric)


def distances_between(values: Array, rows: Array, points: Array) -> Array:
    """Return the squared Euclidean distances of some rows from each of some others; see `exact.cpu`."""
    return _distances_between(values, values[points], EUCLIDEAN, rows)


def _distances_between(queries: Array, points: Array, metric: Metric, rows: Array = None) -> Array:
    """Return the surrogate distances of some queries, or all, to all points."""
    m, (n, d) = len(queries) if rows is None else rows.size, points.shape
    out, options = cp.empty((m, n)), _options(points, metric)
    grid = -(-n // DISTANCE_TILE), -(-m // DISTANCE_TILE)
    launch_blocks(ALL_DISTANCES, "all_distances", grid, THREADS, queries, points, d, rows, m, n, out, options=options)
    return out


def lists_by_sorting(distance: Array, rows: Array, groups: Groups, upper: Array, k: int, core: Array) -> TopLists:
    """Return the k least of each row's distances to all points of other exclusion ids.

    The array `distance` may be overwritten.
    """
    if core is not None:
        distance = cp.maximum(distance, cp.maximum(core[rows, None], core))
    distance[(distance > upper[:, None]) | (groups[0][:, None] == groups[1])] = cp.inf
    few = _nearest_few(distance, k)
    ids, distance = (None, distance) if few is None else few
    order = cp.argsort(distance, axis=1)[:, :k]  # CuPy's sort is stable: equal distances by id
    weights = cp.take_along_axis(distance, order, axis=1)
    ids = order if ids is None else cp.take_along_axis(ids, order, axis=1)
    ids = cp.where(cp.isinf(weights), -1, ids).astype(cp.int32)
    return TopLists(ids, weights, cp.zeros(len(weights), bool))


def _nearest_few(distance: Array, k: int) -> tuple[Array, Array] | None:
    """Return ids, ascending, and distances of some of each row's columns, which include the k nearest.

    They are the columns within a bound that a sample of the columns suggests. Return None if they would be too many, or
    fewer than k in some row.
    """
    m, n = distance.shape
    in_sample = k / SAMPLED
    last = int(in_sample + 4 * in_sample**0.5) + 2
    if last >= n // SAMPLED:
        return None
    near = distance <= cp.sort(distance[:, ::SAMPLED], axis=1)[:, last, None]
    count = near.sum(axis=1)
    shortest, longest = int(count.min()), int(count.max())
    if shortest < k or longest > n // 2:
        return None
    row, column = cp.nonzero(near)
    position = cp.arange(row.size) - (cp.cumsum(count) - count)[row]
    ids, distances = cp.zeros((m, longest), cp.int32), cp.full((m, longest), cp.inf)
    ids[row, position], distances[row, position] = column, distance[row, column]
    return ids, distances


def _options(points: Array, metric: Metric) -> tuple[str, ...]:
    """Return the compiler's options for points of this type and the metric's formula, or that of bits for words."""
    formula = metric.bit_options if points.dtype == "uint64" else metric.cuda_options
    return value_option(points.dtype), *formula


def alignment(values: Array) -> int:
    """Return the largest of 16, 8 and 4 bytes at multiples of which all rows start."""
    either = values.shape[1] * values.dtype.itemsize | values.data.ptr
    return min(16, max(4, either & -either))


def list_entries(k: int) -> tuple[int, int]:
    """Return the entries of shared memory for a list of k, a power of two, and for the list with those that wait.

    See `TopK` in top_k.cuh.
    """
    size = power_of_two(max(WARP, k))
    return size, size + max(2 * WARP, size // 2)


@lru_cache(maxsize=256)
def _warp_scratch(k: int, d: int, itemsize: int, alignment: int) -> tuple[Any, int, int]:
    """Return the `WarpLayout` of `candidates.cuh`, the warps of a block, and each warp's bytes of shared memory."""
    size, entries = list_entries(k)
    width = min(SEGMENT // itemsize, -(-d * itemsize // 16) * 16 // itemsize)  # features at a time
    pitch = (width * itemsize // 16 | 1) * 16  # no two lanes of a quarter warp share a bank
    bytes_a_warp = -(-(width * 8 + WARP * pitch + entries * 12) // 16) * 16
    return c_struct(k, size, width, pitch, alignment), warps_that_fit(RERANK_WARPS, bytes_a_warp), bytes_a_warp

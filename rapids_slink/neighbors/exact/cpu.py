"""The exact kernels on the CPU: tiles of surrogate distances in Numba, and the lists that they go into.

The type of the rows' values chooses how a tile is computed:

    float32, float64    the formula, feature by feature: formulas.py
    uint64              words of 64 bits, followed by the number of ones: common ones are counted
    uint8, uint16       codes, of which only equality matters; 0 is a missing one if the formula takes these

See neighbors/rows.py for words and codes. The distances are functions of counts, which are exact, so they have the
bits of the formula of the features.

Functions of one pair take the number of a list, never a slice, and tests are one expression without branches:
otherwise Numba updates the arrays' reference counts in each call, for which threads contend.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from rapids_slink.metrics import EUCLIDEAN, OVERFLOW, WORD_BITS, Metric, word_count
from rapids_slink.neighbors.exact import (
    Candidates,
    ExactPoints,
    Groups,
    TopLists,
    candidate_capacity,
)
from rapids_slink.neighbors.exact.formulas import (
    BRAYCURTIS,
    CONTAINMENT,
    COSINE,
    FEATURES,
    HIERCC,
    JACCARD,
    LANES,
    LONG_PASS,
    PASS,
    POINTS,
    PRESENT_UNEQUAL,
    ROWS,
    call_of,
    copy_features,
    hiercc,
    new_tile,
    weigh_squared,
    weigh_values,
)
from rapids_slink.neighbors.task import (
    equal_slices,
    golden_stride,
    low_discrepancy_order,
    rounds_of_blocks,
    row_blocks,
)
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import Progress, for_each_chunk, with_progress, workers

#: Entries of a table that a row is compared with, and a factor whose product's upper bits depend on all bits.
MOST_PROBES, GOLDEN = 1024, np.uint64(0x9E3779B97F4A7C15)

RERANKED = 2**10  # rows at a time
MAX_LIST = 2048  # an entry is inserted where it belongs; longer lists are sorted
TILE_BYTES = sum(part.nbytes for part in new_tile())  # what a thread takes to compute distances
NO_CORE = np.empty(0)


def new_candidates(rows: int, k: int, capacity: int | None = None) -> Candidates:
    """Allocate empty buffers, of `candidate_capacity` unless another capacity is given."""
    return Candidates(np.empty((rows, capacity or candidate_capacity(k)), np.int32), np.zeros(rows, np.int32))


def empty_lists(rows: int, k: int) -> TopLists:
    """Return empty lists, (rows, k): their ids are -1 and their weights infinite."""
    return TopLists(np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf), np.zeros(rows, bool))


def rerank(
    exact: ExactPoints,
    rows: Array,
    candidates: Candidates,
    groups: Array | None,
    upper: Array,
    top: TopLists,
    core: Array = None,
    positions: Array = None,
) -> None:
    """Insert the candidates of m queries, `rows`, with surrogate distances of at most `upper` into their lists.

    `upper`, (m,) float64, is tightened to the last entries of the lists that are full, and ``top.overflowed`` is set
    for rows that lost candidates. `groups` is not used: the filter has left out candidates of the row's exclusion id.
    `core` is that of a `SearchTask`. Bounds and lists may be those of more rows, in which `positions` are the queries'.
    """
    positions = np.arange(rows.size, dtype=np.int32) if positions is None else positions
    formula, queries, points = exact.metric.cpu_formula, read_only(exact.queries), read_only(exact.points)

    def insert_chunk(some: slice) -> None:
        _rerank(
            formula, queries, points, rows[some], positions[some], candidates.ids[some], candidates.count[some],
            NO_CORE if core is None else core, upper, top.ids, top.weights, top.overflowed, new_tile(1),
        )  # fmt: skip

    for_each_chunk(CPU, insert_chunk, row_blocks(rows.size, 1, RERANKED))


def scan(exact: ExactPoints, rows: Array, groups: Groups, upper: Array, k: int, core: Array = None) -> TopLists:
    """Return the lists of `rows` with every point of another exclusion id as a candidate.

    `groups` are the exclusion ids of the rows and the points; the other parameters are those of `rerank`.
    """
    if k > MAX_LIST:
        return _lists_by_sorting(exact, rows, groups, upper, k, core)
    top, stride, (row_group, point_group) = empty_lists(rows.size, k), golden_stride(len(exact.points)), groups
    _scan(
        exact.metric.cpu_formula, read_only(exact.queries), read_only(exact.points), rows, row_group, point_group,
        NO_CORE if core is None else core, upper, top.ids, top.weights, stride, new_tile(),
    )  # fmt: skip
    return top


def _lists_by_sorting(
    exact: ExactPoints, rows: Array, groups: Groups, upper: Array, k: int, core: Array = None
) -> TopLists:
    """Return what `scan` does, for long lists: sort the distances of a row to all points.

    Equal distances stay in the order of ids.
    """
    top, ids = empty_lists(rows.size, k), np.arange(len(exact.points), dtype=np.int32)
    for i in range(rows.size):
        row = rows[i : i + 1]
        distance = distances_between(exact.queries, row, ids, exact.metric, exact.points)[0]
        if core is not None:
            distance = np.maximum(distance, np.maximum(core[row], core))
        near = np.flatnonzero((distance <= upper[i]) & (groups[1] != groups[0][i]))
        if near.size > k:
            near = near[distance[near] <= np.partition(distance[near], k - 1)[k - 1]]
        near = near[stable_order(distance[near], np)[:k]]
        top.ids[i, : near.size], top.weights[i, : near.size] = near, distance[near]
        if near.size == k:
            upper[i] = min(upper[i], distance[near[-1]])
    return top


def scan_each_pair(
    points: Array, metric: Metric, top: TopLists, upper: Array, progress: Progress | None = None, split: int = 0
) -> None:
    """Insert the others with surrogate distances of at most `upper`, which is tightened, into each point's empty list.

    Each distance is computed once, for both its points: of all pairs, or of those with one point before the `split`.
    Blocks of points meet in rounds. In a round a block has one partner, so one thread writes a list.
    """
    n, points = len(points), read_only(points)
    parts = low_discrepancy_order(split, np), split + low_discrepancy_order(n - split, np)
    order = np.concatenate(parts, dtype=np.int32)
    _, rounds = rounds_of_blocks(n, split, max(1, min(2 * workers(CPU), n // POINTS)))

    def scan_two(blocks: tuple[slice, slice]) -> None:
        first, second = (order[block] for block in blocks)
        scan_both(metric.cpu_formula, points, first, second, upper, top.ids, top.weights, new_tile())

    for pairs in with_progress(rounds, len(rounds), progress):
        for_each_chunk(CPU, scan_two, pairs)


def sort_by_reachability(ids: Array, weights: Array, core: Array) -> None:
    """Raise each list's surrogate distances to mutual reachability, and sort the list again."""
    for_each_chunk(
        CPU, lambda rows: _sort_by_reachability(ids, weights, core, rows.start, rows.stop), row_blocks(*ids.shape)
    )


@njit(nogil=True, cache=True)
def components(ids):
    """Return the least row of each row's component in the graph of lists, (n, k) ids: (n,) int64.

    This is Rem's algorithm (Patwary, Blair and Manne, SEA 2010).
    """
    label = np.arange(len(ids))
    for v in range(len(ids)):
        for u in ids[v]:
            a, b = v, np.int64(u)
            while label[a] != label[b]:
                if label[a] < label[b]:
                    a, b = b, a
                above = label[a]
                label[a] = label[b]
                if above == a:
                    break
                a = above
    for v in range(len(ids)):
        label[v] = label[label[v]]
    return label


flatnonzero = np.flatnonzero


def put_lists(into: Any, rows: Array, bound: Array, top: TopLists) -> None:
    """Store the bounds and the lists of some rows in a `SearchState`; rows below zero are none."""
    real = np.flatnonzero(rows >= 0)
    rows, to = rows[real], into.top
    into.upper[rows], to.ids[rows], to.weights[rows] = bound[real], top.ids[real], top.weights[real]
    to.overflowed[rows] = top.overflowed[real]


def scatter_min(least: Array, group: Array, weights: Array) -> None:
    """Lower the least weight of each exclusion id to the first weights of its rows' lists.

    That is, least[group[i]] = min(least[group[i]], weights[i, 0]).
    """
    np.minimum.at(least, group, weights[:, 0])


def pair_distances(values: Array, src: Array, dst: Array, metric: Metric = EUCLIDEAN) -> np.ndarray:
    """Return the surrogate distances of pairs of rows, float64."""
    out = np.empty(src.size)
    src, dst = (np.require(end, np.int32, ["C", "W"]) for end in (src, dst))  # a frame's may be read-only
    weigh_pairs(metric.cpu_formula, read_only(values), src, dst, new_tile(1), out)
    return out


def distances_between(
    values: Array, rows: Array, points: Array, metric: Metric = EUCLIDEAN, others: Array = None
) -> np.ndarray:
    """Return the surrogate distances of some rows from each of some others, (m, n) float64.

    `rows`, (m,), and `points`, (n,), are int32 numbers of rows: of `values` and, if these are given, of `others`.
    """
    out, values = np.empty((rows.size, points.size)), read_only(values)
    others = values if others is None else read_only(others)
    weigh_between(metric.cpu_formula, values, rows, others, points, new_tile(), out)
    return out


def all_distances(values: Array, metric: Metric) -> np.ndarray:
    """Return the surrogate distances of all pairs of rows, (n, n), each computed once."""
    n, points = len(values), read_only(values)
    matrix, ids = np.empty((n, n)), np.arange(n, dtype=np.int32)

    def fill(rows: slice) -> None:
        fill_rows(metric.cpu_formula, points, ids, rows.start, rows.stop, new_tile(), matrix)

    for_each_chunk(CPU, fill, equal_slices(slice(0, n), ROWS))
    return matrix


def with_norms(values: np.ndarray, centre: bool) -> np.ndarray:
    """Return the rows in float64, minus their means if `centre`, each followed by its norm: (n, d + 1)."""
    n, d = values.shape
    rows = np.empty((n, d + 1))
    rows[:, :d] = values
    if centre:
        rows[:, :d] -= rows[:, :d].mean(axis=1, keepdims=True)
    _put_norms(rows)
    return rows


def wrapped(values: np.ndarray, periods: np.ndarray) -> np.ndarray:
    """Return the rows with each column in [0, its period), or `values` itself if they are so: see settings.py.

    The periods are (d,) float64.
    """
    (n, d), repeats, wrapped = values.shape, np.isfinite(periods), None
    least = np.finfo(values.dtype).tiny
    for rows in row_blocks(n, d):
        part = values[rows].astype(np.float64)
        outside = repeats & ((part < 0) | (part >= periods))
        if outside.any():
            wrapped = values.copy() if wrapped is None else wrapped
            with np.errstate(invalid="ignore"):  # an infinite period
                rest = np.mod(part, periods)
            rest[rest < least] = 0
            rest = rest.astype(values.dtype)
            wrapped[rows][outside] = np.where(rest >= periods, 0, rest)[outside]
    return values if wrapped is None else wrapped


def words_of(values: np.ndarray) -> np.ndarray:
    """Return rows of zeros and ones as words: 64 features in each, and one more with the number of ones."""
    n, d = values.shape
    words = np.empty((n, word_count(d)), "uint64")
    for rows in row_blocks(n, d):
        is_one = np.zeros((len(values[rows]), WORD_BITS * (words.shape[1] - 1)), bool)
        is_one[:, :d] = values[rows] != 0
        words[rows, :-1] = np.packbits(is_one.ravel()).view("uint64").reshape(len(is_one), -1)
        words[rows, -1] = is_one.sum(axis=1)
    return words


def hash_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a uint64 for each of some rows; equal rows have the same.

    It is a sum of the values' bits with odd random factors, modulo 2⁶⁴.
    """
    values = values[rows] + values.dtype.type(0)
    factors = np.random.default_rng(0).integers(2**63, 2**64, values.shape[1], np.uint64) | np.uint64(1)
    bits = values.view(f"uint{8 * values.itemsize}").astype(np.uint64)
    bits ^= bits >> np.uint64(32)  # the lower bits of float64 are often zero, and so would a product's be
    return (bits * factors).sum(axis=1, dtype=np.uint64)


def equal_rows(values: np.ndarray, max_distinct: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return which rows are equal; None if more than `max_distinct` are distinct, or if many others have a row's hash.

    The result is the first row of each distinct one, (m,) int32, ascending; which of these each row equals, (n,) int32;
    and how many rows equal each, (m,) int64.
    """
    n, bits = len(values), 1 + max(1, len(values) - 1).bit_length()
    first, number, count = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n, np.int64)
    table = np.full(1 << bits, -1, np.int32)
    has_signs, values = values.dtype.kind == "f", read_only(values)
    in_bits = values.view(f"uint{8 * values.itemsize}")
    factors = np.random.default_rng(0).integers(2**63, 2**64, values.shape[1], np.uint64) | np.uint64(1)
    m = _number_rows(values, in_bits, has_signs, factors, 64 - bits, max_distinct, table, first, number, count)
    return None if m < 0 else (first[:m].copy(), number, count[:m].copy())


@njit(nogil=True, cache=True)
def _number_rows(values, bits, has_signs, factors, shift, max_distinct, table, first, number, count):
    """Write what `equal_rows` returns, by a table of -1 with 2^(64 - shift) entries; return m, or -1 for None.

    A row's slot is the one that its hash gives, as in `hash_rows`, or the next free one.
    """
    m, last, negative_zero = 0, table.size - 1, np.uint64(has_signs) << np.uint64(8 * bits.itemsize - 1)
    for i in range(number.size):
        total = np.uint64(0)
        for f in range(bits.shape[1]):
            b = np.uint64(bits[i, f])
            b = np.uint64(0) if b == negative_zero else b
            total += (b ^ (b >> np.uint64(32))) * factors[f]
        at = np.int64(total * GOLDEN >> np.uint64(shift))
        for _ in range(MOST_PROBES):
            r = table[at]
            if r < 0:
                if m == max_distinct:
                    return -1
                table[at] = r = m
                first[m] = i
                m += 1
                break
            j, differs = first[r], False
            for f in range(values.shape[1]):
                differs |= values[i, f] != values[j, f]
            if not differs:
                break
            at = (at + 1) & last
        else:
            return -1
        number[i] = r
        count[r] += 1
    return m


@njit(nogil=True, cache=True)
def _put_norms(rows):
    """Write each row's norm behind its features.

    Squares are summed as in a dot product: even and odd features separately, and the last of an odd number at the end.
    """
    d = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        even, odd = 0.0, 0.0
        for f in range(0, d - 1, 2):
            even += rows[i, f] * rows[i, f]
            odd += rows[i, f + 1] * rows[i, f + 1]
        rows[i, d] = np.sqrt(even + odd + (rows[i, d - 1] * rows[i, d - 1] if d % 2 else 0.0))


@njit(nogil=True, cache=True)
def _sort_by_reachability(ids, weights, core, begin, end):
    k = ids.shape[1]
    for v in range(begin, end):
        for c in range(k):
            weights[v, c] = reachability(weights[v, c], core, v, ids[v, c])
        gap = k
        while gap > 1:  # Shell's sort: every gap-th entry is sorted by insertion
            gap = 1 if gap < 5 else (5 * gap - 1) // 11
            for c in range(gap, k):
                id_, weight = ids[v, c], weights[v, c]
                at = c
                while at >= gap and comes_before(weight, id_, weights[v, at - gap], ids[v, at - gap]):
                    ids[v, at], weights[v, at] = ids[v, at - gap], weights[v, at - gap]
                    at -= gap
                ids[v, at], weights[v, at] = id_, weight


@njit(nogil=True, cache=True)
def weigh_pairs(formula, values, src, dst, tile, out):
    """Write the surrogate distances of pairs of rows into `out`."""
    weigh_each(formula, values, src, values, dst, tile, out)


@njit(nogil=True, cache=True)
def weigh_between(formula, values, rows, others, points, tile, out):
    """Write the surrogate distances of some rows from each of some others into `out`."""
    for first in range(0, points.size, POINTS):
        some = points[first : first + POINTS]
        for begin in range(0, rows.size, ROWS):
            own = rows[begin : begin + ROWS]
            weigh(formula, values, own, others, some, tile)
            for i in range(own.size):
                for j in range(some.size):
                    out[begin + i, first + j] = tile.total[i, j]


@njit(nogil=True, cache=True)
def fill_rows(formula, values, ids, begin, end, tile, matrix):
    """Write the distances of some rows from themselves and all later rows, in both directions, into `matrix`.

    The rows are those from `begin` up to `end`, and `ids` are the numbers of all rows.
    """
    rows = ids[begin:end]
    for first in range(begin, ids.size, POINTS):
        points = ids[first : first + POINTS]
        weigh(formula, values, rows, values, points, tile)
        for i in range(rows.size):  # no slice is assigned, which takes Numba two seconds to compile
            for j in range(points.size):
                matrix[begin + i, first + j] = tile.total[i, j]
        for j in range(points.size):
            for i in range(rows.size):
                matrix[first + j, begin + i] = tile.total[i, j]


@njit(nogil=True, cache=True)
def _rerank(
    formula, queries, points, rows, positions, candidate, count, core, upper, ids, weights, overflowed, tile
):  # fmt: skip
    """Insert candidates into their rows' lists, as `rerank` says; those of many rows are weighed together."""
    capacity, size = candidate.shape[1], 0
    near, own, position = np.empty(POINTS, np.int32), np.empty(POINTS, np.int32), np.empty(POINTS, np.int32)
    distance = np.empty(POINTS)
    for i in range(rows.size):
        for c in range(min(count[i], capacity)):
            if candidate[i, c] >= 0 and not core_above(core, candidate[i, c], upper[positions[i]]):
                near[size], own[size], position[size], size = candidate[i, c], rows[i], positions[i], size + 1
            if size == POINTS:
                _insert_each(
                    formula, queries, points, core, upper, ids, weights, own, near, position, size, distance, tile
                )
                size = 0
        overflowed[positions[i]] |= count[i] > capacity
    _insert_each(formula, queries, points, core, upper, ids, weights, own, near, position, size, distance, tile)


@njit(nogil=True, cache=True)
def _insert_each(formula, queries, points, core, upper, ids, weights, own, near, position, size, distance, tile):
    """Weigh pairs, and insert them into the lists `position` of their rows."""
    weigh_each(formula, queries, own[:size], points, near[:size], tile, distance)
    for e in range(size):
        if distance[e] <= upper[position[e]]:
            weight = reachability(distance[e], core, own[e], near[e])
            insert_within(upper, ids, weights, position[e], near[e], weight)


@njit(nogil=True, cache=True)
def _scan(formula, queries, points, rows, row_group, point_group, core, upper, ids, weights, stride, tile):
    """Insert every point of another exclusion id into the lists of `rows`, as `scan` says.

    Points are visited in a low-discrepancy order, so that lists are nearly final early, however points are ordered.
    """
    near, n = np.empty(POINTS, np.int32), points.shape[0]
    for first in range(0, rows.size, ROWS):
        together = rows[first : first + ROWS]
        visited, j = 0, 0
        while visited < n:
            size, bound = 0, -np.inf
            for t in range(together.size):
                bound = max(bound, upper[first + t])
            while visited < n and size < POINTS:
                if not core_above(core, j, bound):
                    near[size], size = j, size + 1
                visited, j = visited + 1, j + stride
                j -= n if j >= n else 0
            weigh(formula, queries, together, points, near[:size], tile)
            for t in range(together.size):
                i = first + t
                for c in range(size):
                    if tile.total[t, c] <= upper[i] and point_group[near[c]] != row_group[i]:
                        weight = reachability(tile.total[t, c], core, rows[i], near[c])
                        insert_within(upper, ids, weights, i, near[c], weight)


@njit(nogil=True, cache=True)
def scan_both(formula, points, rows, others, upper, ids, weights, tile):
    """Insert the pairs of two blocks, or of a block with itself, into the lists of both points."""
    is_one, bound = rows[0] == others[0], np.empty(POINTS)
    for first in range(0, rows.size, ROWS):
        for start in range(first if is_one else 0, others.size, POINTS):
            near = others[start : start + POINTS]
            weigh(formula, points, rows[first : first + ROWS], points, near, tile)
            for c in range(near.size):
                bound[c] = upper[near[c]]
            for t in range(min(ROWS, rows.size - first)):
                i, seen = rows[first + t], max(0, first + t + 1 - start) if is_one else 0
                if _any_within(tile.total, t, near.size, upper[i], bound):
                    for c in range(seen, near.size):
                        j, weight = near[c], tile.total[t, c]
                        if weight <= upper[i]:
                            insert_within(upper, ids, weights, i, j, weight)
                        if weight <= bound[c]:
                            insert_within(upper, ids, weights, j, i, weight)
                            bound[c] = upper[j]


@njit(nogil=True, cache=True)
def _any_within(distance, t, size, upper, bound):
    """Return whether row t of a tile has a distance within its own bound or the point's, in vector instructions."""
    count = 0
    for c in range(np.uint64(size)):
        count += (distance[t, c] <= upper) | (distance[t, c] <= bound[c])
    return count > 0


@njit(cache=True)
def core_above(core, j, bound):
    """Return whether point j's core distance alone makes every pair weigh more than `bound`; False without cores."""
    return core[j] > bound if core.size else False


@njit(cache=True)
def reachability(surrogate, core, i, j):
    """Return the mutual reachability of points i and j, or their `surrogate` distance itself if there are no cores."""
    return max(surrogate, core[i], core[j]) if core.size else surrogate


@njit(cache=True)
def comes_before(weight, id_, other_weight, other_id):
    """Return whether (weight, id) comes before the other in the total order on the edges of one point."""
    return (weight < other_weight) | ((weight == other_weight) & (id_ < other_id))


@njit(cache=True)
def comes_before_last(ids, weights, i, id_, weight):
    """Return whether (weight, id) comes before the last entry of the sorted list i, which may be empty."""
    last_id, last = ids[i, -1], weights[i, -1]
    return comes_before(weight, id_, last, last_id) | ((weight == last) & (last_id < 0))


@njit(cache=True)
def insert(ids, weights, i, id_, weight):
    """Put (weight, id) into the sorted list i, and drop the list's last entry."""
    at = ids.shape[1] - 1
    while at > 0 and comes_before(weight, id_, weights[i, at - 1], ids[i, at - 1]):
        ids[i, at], weights[i, at] = ids[i, at - 1], weights[i, at - 1]
        at -= 1
    ids[i, at], weights[i, at] = id_, weight


@njit(cache=True)
def insert_within(upper, ids, weights, i, id_, weight):
    """Insert (weight, id) into list i if it is within the list's bound, which is lowered to the last of a full list."""
    if weight <= upper[i] and comes_before_last(ids, weights, i, id_, weight):
        insert(ids, weights, i, id_, weight)
        upper[i] = min(upper[i], weights[i, -1])


_kernel = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True)


@intrinsic
def weigh(typing_context: Any, formula: Any, x: Any, rows: Any, y: Any, points: Any, tile: Any) -> Any:
    """Set tile.total[i, j] to the surrogate distance of row rows[i] of x and point points[j] of y.

    The type of x chooses the kernel. `formula` is `Metric.cpu_formula`; rows and points are int32. A function around
    the kernels would take as long to compile as they do.
    """
    kernel, dtype = weigh_values, x.dtype
    if isinstance(dtype, types.Integer):
        kernel = weigh_words if x.dtype.bitwidth == 64 else weigh_codes
    return call_of(kernel, typing_context, formula, x, rows, y, points, tile)


@njit(nogil=True, cache=True)
def weigh_in_tiles(formula, x, rows, y, points, tile, out):
    """Compute the distances of pairs, as `weigh_each` does: pairs of one row that follow each other share a tile."""
    begin = 0
    while begin < rows.size:
        end = begin + 1
        while end < min(rows.size, begin + POINTS) and rows[end] == rows[begin]:
            end += 1
        weigh(formula, x, rows[begin : begin + 1], y, points[begin:end], tile)
        for e in range(begin, end):
            out[e] = tile.total[0, e - begin]
        begin = end


@intrinsic
def weigh_each(typing_context: Any, formula: Any, x: Any, rows: Any, y: Any, points: Any, tile: Any, out: Any) -> Any:
    """Set out[p] to the surrogate distance of rows[p] of x and points[p] of y. The `tile` has one row."""
    is_squared = formula is types.none and isinstance(x.dtype, types.Float)
    kernel = weigh_squared if is_squared else weigh_in_tiles
    return call_of(kernel, typing_context, formula, x, rows, y, points, tile, out)


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Return the number of ones of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
def weigh_words(formula, x, rows, y, points, tile):
    """Compute a tile of surrogate distances, as `weigh` does, for rows of words."""
    words = x.shape[1] - 1
    mine, columns, common = tile.rows.view(np.uint64), tile.columns.view(np.uint64), tile.other.view(np.uint64)
    lanes = -(-points.size // LANES) * LANES
    common[: rows.size, :lanes] = 0
    for begin in range(0, words, FEATURES):
        width = min(FEATURES, words - begin)
        copy_features(x, rows, begin, width, mine)
        copy_features(y, points, begin, width, columns.T)
        for i in range(rows.size):
            _add_common(mine, columns, common, i, lanes, width)
    kind = 0
    if formula is not None:
        kind = formula[0]
    others = tile.columns[0]  # which the words have left
    for j in range(points.size):
        others[j] = y[points[j], words]
    for i in range(rows.size):
        _put_distances(kind, common[i], np.float64(x[rows[i], words]), others, tile.total[i], points.size)


@_kernel
def _put_distances(kind, common, ones, others, out, size):
    for j in range(np.uint64(size)):
        out[j] = _of_counts(kind, np.float64(common[j]), ones, others[j])


@_kernel
def _add_common(x, columns, common, i, lanes, width):
    lanes = np.uint64(lanes)
    for f in range(width % PASS):
        for j in range(lanes):
            common[i, j] += popcount(x[i, f] & columns[f, j])
    for f in range(width % PASS, width, PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        for j in range(lanes):
            total = popcount(q & columns[f, j]) + popcount(r & columns[f + 1, j])
            total += popcount(s & columns[f + 2, j]) + popcount(t & columns[f + 3, j])
            common[i, j] += total


@_kernel
def _of_counts(kind, common, ones, others):
    """Return the distance of two rows by the numbers of their ones, of which `common` are in both."""
    if kind == COSINE:
        return 1.0 - max(-1.0, min(1.0, common / (np.sqrt(ones) * np.sqrt(others))))
    total = ones + others
    differ = total - 2 * common
    if kind == JACCARD:
        return differ / (total - common) if total > 0 else 0.0
    if kind == BRAYCURTIS:
        return differ / total if total > 0 else OVERFLOW
    if kind == CONTAINMENT:
        fewer = min(ones, others)
        return (fewer - common) / fewer if fewer > 0 else OVERFLOW
    return differ


@njit(nogil=True, cache=True)
def weigh_codes(formula, x, rows, y, points, tile):
    """Compute a tile of surrogate distances, as `weigh` does, for rows of codes.

    The formulas are those that compare features for equality.
    """
    kind, _ = formula
    d = x.shape[1] - (kind == HIERCC)
    mine, columns = tile.rows.view(x.dtype), tile.columns.view(x.dtype)
    counts = np.empty((2, POINTS + LANES), x.dtype)  # of at most FEATURES features, so that a byte holds them
    lanes = -(-points.size // LANES) * LANES
    tile.total[: rows.size, :lanes], tile.other[: rows.size, :lanes] = 0, 0
    for begin in range(0, d, FEATURES):
        width = min(FEATURES, d - begin)
        copy_features(x, rows, begin, width, mine)
        copy_features(y, points, begin, width, columns.T)
        for i in range(rows.size):
            counts[:, :lanes] = 0
            if kind >= PRESENT_UNEQUAL:
                _count_present(mine, columns, counts, i, lanes, width)
                for j in range(lanes):
                    tile.other[i, j] += counts[1, j]
            else:
                _count_unequal(mine, columns, counts, i, lanes, width)
            for j in range(lanes):
                tile.total[i, j] += counts[0, j]
    if kind >= PRESENT_UNEQUAL:
        _finish_codes(kind, x, rows, y, points, d, tile)


@_kernel
def _finish_codes(kind, x, rows, y, points, d, tile):
    for i in range(rows.size):
        for j in range(points.size):
            differ, common = tile.total[i, j], tile.other[i, j]
            if kind == HIERCC:
                present = max(x[rows[i], d], y[points[j], d])
                tile.total[i, j] = hiercc(differ, common, np.float64(present), d)
            else:
                tile.total[i, j] = differ / common if common > 0 else OVERFLOW


@_kernel
def _count_unequal(x, columns, counts, i, lanes, width):
    lanes = np.uint64(lanes)
    for f in range(0, width, LONG_PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        u, v, w, z = x[i, f + 4], x[i, f + 5], x[i, f + 6], x[i, f + 7]
        for j in range(lanes):
            unequal = (q != columns[f, j]) + (r != columns[f + 1, j]) + (s != columns[f + 2, j])
            unequal += (t != columns[f + 3, j]) + (u != columns[f + 4, j]) + (v != columns[f + 5, j])
            counts[0, j] += unequal + (w != columns[f + 6, j]) + (z != columns[f + 7, j])


@_kernel
def _count_present(x, columns, counts, i, lanes, width):
    """Count the features that differ and those that both rows have; a code of zero is missing."""
    lanes = np.uint64(lanes)
    for f in range(0, width, PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        for j in range(lanes):
            a, b, c, d = columns[f, j], columns[f + 1, j], columns[f + 2, j], columns[f + 3, j]
            has_a, has_b = (a != 0) & (q != 0), (b != 0) & (r != 0)
            has_c, has_d = (c != 0) & (s != 0), (d != 0) & (t != 0)
            counts[0, j] += (has_a & (a != q)) + (has_b & (b != r)) + (has_c & (c != s)) + (has_d & (d != t))
            counts[1, j] += has_a + has_b + has_c + has_d

"""The pairs within a bound on a CPU: by a k-d tree, by products in float32, or by all surrogate distances.

A thread takes a part of the rows at a time. What it finds goes into arrays that grow. At the end all pairs are put into
the order of the rows, and those of a row into the order of the points.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.choose import COSTS, is_searched_by_tree, takes_all_pairs
from rapids_slink.neighbors.exact import ExactPoints, formulas
from rapids_slink.neighbors.exact.cpu import new_candidates, weigh
from rapids_slink.neighbors.exact.formulas import POINTS, ROWS, new_tile
from rapids_slink.neighbors.filter import QuantizedPoints, choose_filter, sure_radius
from rapids_slink.neighbors.filter import cpu as products
from rapids_slink.neighbors.filter.cpu import Tested, points_between
from rapids_slink.neighbors.kdtree import (
    LEAF,
    Queries,
    add_gap,
    build,
    by_leaves,
    count_touched,
    locate,
    mark_near,
    or_in_space,
    surely_above,
    to_points,
    walk,
)
from rapids_slink.neighbors.task import equal_slices
from rapids_slink.neighbors.within import Found, PairSearch, in_tiles
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk, shares, workers

SAMPLED_BALLS = 64  # the balls by which the share of leaves that a ball of the bound touches is estimated
#: Rows of a block of exact tiles; the least and the most rows of a part that searches a tree.
BLOCK_ROWS, LEAST_TREE_ROWS, TREE_ROWS = 256, 2**11, 2**15
#: One test serves several limits if at most one pair in `FEW_BETWEEN` is weighed.
FEW_BETWEEN = 64
FIRST_ROOM = 2**10  # pairs
#: If a row has at most this number of points, each is compared with all others, which takes less time than a sort.
MAX_RANKED = 256


def prepare(values: Array, queries: Array, limit: float, metric: Metric) -> PairSearch:
    """Return the search of `within.prepare_pairs` on a CPU."""
    (n, d), wanted, cost = values.shape, forced().pairs, COSTS["cpu"]
    is_few = takes_all_pairs(n * (n / 2 if queries is None else len(queries)), CPU) and not wanted
    may_have_tree = metric.boxes and d <= cost.low_features and values.dtype.kind == "f" and limit > -np.inf
    if may_have_tree and not is_few and wanted in (None, "tree"):
        search = TreePairs(values, queries, limit, metric)
        if wanted or is_searched_by_tree(n, d, metric, CPU) or search.touched_share() * cost.visit <= 1:
            return search
    tiles = in_tiles(values, queries, limit, metric, CPU)
    if tiles is not None:
        return tiles
    if not is_few and wanted != "distances":
        filter_ = choose_filter(ExactPoints(values if queries is None else queries, values, metric), CPU, limit)
        if filter_ is not None:
            return FilteredPairs(filter_, queries is None, limit)
    return ExactPairs(values, queries, limit, metric)


class Buffer(NamedTuple):
    """Pairs in the order in which they are found."""

    row: np.ndarray  # int32
    point: np.ndarray  # int32
    weight: np.ndarray  # float64


def new_buffer() -> Buffer:
    """Return an empty buffer with little room."""
    return Buffer(np.empty(FIRST_ROOM, np.int32), np.empty(FIRST_ROOM, np.int32), np.empty(FIRST_ROOM))


class _Search(PairSearch):
    """A search for pairs by parts of the rows, which are blocks of them unless it says otherwise."""

    block_rows: int

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Find the pairs of some rows: see `PairSearch.find`.

        Threads share the room without a lock: an update that is lost only overestimates it. A buffer is cut short only
        if there are more pairs than room, and then all buffers are discarded.
        """
        ends, remaining = np.zeros(rows.stop - rows.start + 1, np.int64), int(min(room, 2**62))

        def work(part: Any) -> tuple[int, Any]:
            nonlocal remaining
            if remaining < 0 and not goes_on:
                return 0, None
            buffer, count = self._scan(part, np.array([self.limit]), remaining, np.zeros(1, np.int64))
            remaining -= count
            if remaining < 0:
                return count, None
            _count_by_row(buffer.row, count, rows.start, ends)
            return count, [column[:count].copy() for column in buffer]

        parts = for_each_chunk(CPU, work, self._parts(rows), self.bar(rows))
        total = sum(count for count, _ in parts)
        if total > room:
            return Found(total)
        np.cumsum(ends, out=ends)
        at, src, dst, weight = ends.copy(), np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total)
        waiting = [pairs for _, pairs in parts]

        def put(i: int) -> None:
            row, point, distance = waiting[i]
            _put_pairs(row, point, distance, rows.start, at, src, dst, weight)
            waiting[i] = None  # its memory is free

        del parts
        for_each_chunk(CPU, put, range(len(waiting)))
        for_each_chunk(
            CPU, lambda some: _sort(ends, some.start, some.stop, dst, weight), chunks_for_cores(at.size - 1, 1)
        )
        return Found(total, src, dst, weight)

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Count the pairs of some rows within each limit: see `PairSearch.count`."""

        def work(part: Any) -> np.ndarray:
            counts = np.zeros(limits.size, np.int64)
            self._scan(part, limits, 0, counts)
            return counts

        parts = for_each_chunk(CPU, work, self._parts(rows), self.bar(rows))
        return np.cumsum(np.sum(parts, axis=0, dtype=np.int64))

    def _parts(self, rows: slice) -> list[Any]:
        """Return the parts of some rows."""
        return equal_slices(rows, self.block_rows)

    def _scan(self, rows: Any, limits: np.ndarray, room: int, counts: np.ndarray) -> tuple[Buffer, int]:
        """Find the pairs of a part: return a buffer of them and their number.

        Adds to `counts` how many pairs are within each limit and above the one before. No pair beyond `room` is kept,
        so with a room of 0 pairs are counted alone.
        """
        raise NotImplementedError


class ExactPairs(_Search):
    """A search for pairs by all surrogate distances, each of which is computed once."""

    block_rows = BLOCK_ROWS

    def __init__(self, values: Array, queries: Array, limit: float, metric: Metric) -> None:
        self.limit, self.formula, self.is_one = limit, metric.cpu_formula, queries is None
        self.points = read_only(values)
        self.queries = self.points if queries is None else read_only(queries)
        self.ids = np.arange(max(len(self.queries), len(values)), dtype=np.int32)

    def _scan(self, rows: slice, limits: np.ndarray, room: int, counts: np.ndarray) -> tuple[Buffer, int]:
        both, span = (self.queries, self.points), (rows.start, rows.stop)
        return _scan_block(
            self.formula, both, self.ids, span, self.is_one, limits, new_tile(), room, new_buffer(), counts
        )


class FilteredPairs(_Search):
    """Products in float32 rule pairs out; the distances of those that pass are computed.

    Pairs that products prove to be within are counted without a distance. For several limits these are the pairs that
    are surely within the first, and the others up to the last limit are weighed. Where the latter are many, each half
    of the limits has a test of its own.
    """

    block_rows = products.TILE_ROWS

    def __init__(self, filter_: Any, is_one: bool, limit: float) -> None:
        self.filter, self.exact, self.is_one, self.limit = filter_, filter_.exact, is_one, limit
        exact = filter_.exact
        filter_.arrange(np.arange(len(exact.points), dtype=np.int32))
        self.both = read_only(exact.queries), read_only(exact.points)
        self.groups = (
            np.arange(len(exact.points), dtype=np.int32) if is_one else np.full(len(exact.points), -1, np.int32)
        )

    def _scan(self, rows: slice, limits: np.ndarray, room: int, counts: np.ndarray) -> tuple[Buffer, int]:
        filter_, n, ids = self.filter, len(self.exact.points), np.arange(rows.start, rows.stop, dtype=np.int32)
        queries, buffer, count, tile = filter_.query(ids), new_buffer(), 0, new_tile(1)
        near, within = new_candidates(ids.size, 1, products.TILE_POINTS), np.zeros(limits.size, np.int64)
        radii = [filter_.radius(np.full(ids.size, limit), queries) for limit in limits]
        for to in equal_slices(slice(rows.start if self.is_one else 0, n), products.TILE_POINTS):
            points = filter_.quantized_points.take(to)
            if room <= 0 and filter_.bounds_above:
                self._count(queries, points, (rows.start, to.start), limits, radii, tile, within)
                continue
            near.count[:] = 0
            filter_.append(queries, points, radii[-1], (ids, self.groups), near)
            buffer, count = _scan_candidates(
                self.exact.metric.cpu_formula, self.both, ids, near.ids, near.count, self.is_one, limits, tile, room,
                buffer, count, counts,
            )  # fmt: skip
        counts += np.diff(within, prepend=0)
        return buffer, count + int(within[-1])

    def _count(
        self,
        queries: QuantizedPoints,
        points: QuantizedPoints,
        first: tuple[int, int],
        limits: np.ndarray,
        radii: list[np.ndarray],
        tile: Any,
        within: np.ndarray,
    ) -> None:
        """Add to `within` how many pairs of a tile are within each limit; `first` are its first row and first point."""
        product, waiting = products.product(queries, points), [slice(0, limits.size)]
        metric, tested_points = self.exact.metric, Tested(points.half_norm, points.error, points.error)
        while waiting:
            some = waiting.pop()
            tested_rows = Tested(queries.half_norm, radii[some.stop - 1], queries.error)
            lowest = float(limits[some.start])
            radius, norm_slack = sure_radius(lowest, self.filter.n_features, self.filter.scaling.scale, metric)
            max_between = product.size // FEW_BETWEEN if some.stop > some.start + 1 else -1
            if not _count_products(
                product, tested_rows, tested_points, radius, norm_slack, metric.cpu_formula, self.both, first,
                self.is_one, limits[some], max_between, tile, within[some],
            ):  # fmt: skip
                waiting += equal_slices(some, -(-(some.stop - some.start) // 2))


class TreePairs(_Search):
    """Walks of a k-d tree append the pairs within the limit, or count them."""

    def __init__(self, values: Array, queries: Array, limit: float, metric: Metric) -> None:
        self.limit, self.metric, self.tree, self.is_one = limit, metric, build(values), queries is None
        tree, self.points, self.size = self.tree, self.tree.columns, len(values)
        if queries is not None:
            self.points, self.size = np.ascontiguousarray(queries.T, np.float64), len(queries)
            self.start = locate(metric.cpu_formula, self.points, tree.low, tree.high, tree.first)

    def touched_share(self) -> float:
        """Estimate the share of the leaves that a ball of the bound touches, by a sample."""
        at = np.random.default_rng(0).integers(0, self.size, SAMPLED_BALLS)
        touched = count_touched(self.metric.cpu_formula, self.tree, self.points, at, self.limit)
        return float(touched / (at.size * (self.tree.first.size // 2 + 1)))

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Count the pairs of some rows within each limit: see `PairSearch.count`.

        If all points are rows, each pair is counted from both ends, which lets whole boxes count, and each point with
        itself.
        """
        if not self.is_one or rows.stop - rows.start < self.size:
            return super().count(rows, limits)
        both = copy(self)
        both.is_one, both.start = False, np.arange(self.size)
        return (both.count(rows, limits) - self.size * (limits >= 0)) // 2

    def _parts(self, rows: slice) -> list[Any]:
        """Return some rows in the order of the leaves, in parts."""
        tree, m = self.tree, rows.stop - rows.start
        if self.is_one:
            start = np.arange(m) if m == self.size else np.sort(tree.position[rows]).astype(np.int64)
            queries = Queries(self.points, start, start, tree.order[start])
        else:
            queries = by_leaves(self.points, self.start[rows], rows.start)
        number = max(1, min(m // LEAST_TREE_ROWS, max(4 * workers(CPU), -(-m // TREE_ROWS))))
        return [queries.take(part) for part in shares(slice(0, m), number)]

    def _scan(self, rows: Queries, limits: np.ndarray, room: int, counts: np.ndarray) -> tuple[Buffer, int]:
        formula, after = self.metric.cpu_formula, rows.rows if self.is_one else np.full(rows.rows.size, -1, np.int32)
        buffer, size, begin = new_buffer(), np.zeros(2, np.int64), 0
        while begin < after.size and size[0] < room:
            into = Emit(limits[-1], after[begin:], size, buffer.row, buffer.point, buffer.weight)
            begin += walk(formula, self.tree, rows.take(slice(begin, None)), into)
            buffer = _grown(buffer) if begin < after.size else buffer
        if begin < after.size:
            counted = Count(limits[-1], after[begin:], limits, counts, not self.is_one)
            walk(formula, self.tree, rows.take(slice(begin, None)), counted)
        return buffer, int(size[0] + counts.sum())


@njit(nogil=True, cache=True)
def _grown(buffer):
    """Return the buffer with twice its room."""
    size = buffer.row.size
    row, point, weight = np.empty(2 * size, np.int32), np.empty(2 * size, np.int32), np.empty(2 * size)
    for i in range(size):
        row[i], point[i], weight[i] = buffer.row[i], buffer.point[i], buffer.weight[i]
    return Buffer(row, point, weight)


@njit(nogil=True, cache=True)
def _count_by_row(row, count, first, ends):
    """Add the numbers of pairs of some rows, each to the entry after the row's own."""
    for i in range(count):
        ends[row[i] - first + 1] += 1


@njit(nogil=True, cache=True)
def _put_pairs(row, point, weight, first, at, src, dst, out_weight):
    """Write pairs in their order, those of each row from the position on where the row's pairs begin."""
    for i in range(row.size):
        position = at[row[i] - first]
        at[row[i] - first] += 1
        src[position], dst[position], out_weight[position] = row[i], point[i], weight[i]


@njit(nogil=True, cache=True)
def _sort(ends, begin, end, point, weight):
    """Sort the points of some rows unless they ascend."""
    for row in range(begin, end):
        a, b, ascends = ends[row], ends[row + 1], True
        for e in range(a + 1, b):
            ascends &= point[e - 1] < point[e]
        if ascends:
            continue
        ids, weights = point[a:b].copy(), weight[a:b].copy()
        if b - a <= MAX_RANKED:
            for e in range(b - a):
                position = a + _rank(ids, ids[e])
                point[position], weight[position] = ids[e], weights[e]
        else:
            order = np.argsort(ids)
            for e in range(b - a):
                point[a + e], weight[a + e] = ids[order[e]], weights[order[e]]


@njit(nogil=True, cache=True)
def _rank(ids, id_):
    """Return how many of some points come before one of them; it compiles to vector instructions."""
    count = np.int32(0)
    for e in range(np.uint64(ids.size)):
        count += np.int32(ids[e] < id_)
    return np.int64(count)


@njit(nogil=True, cache=True)
def _append(row, after, points, distance, limit, limits, room, buffer, size, counts):
    """Append a row's pairs with the points numbered above `after` within the limit, and count them by limits."""
    count = 0
    for c in range(np.uint64(points.size)):  # in vector instructions
        count += (distance[c] <= limit) & (points[c] > after)
    if count == 0:
        return buffer, size
    keeps = size + count <= room
    while keeps and buffer.row.size < size + count:
        buffer = _grown(buffer)
    rows, near, weights = buffer.row, buffer.point, buffer.weight
    for c in range(points.size):
        if distance[c] <= limit and points[c] > after:
            counts[_first_limit(limits, np.float64(distance[c]))] += 1
            if keeps:
                rows[size], near[size], weights[size] = row, points[c], distance[c]
            size += 1
    return buffer, size


@njit(nogil=True, cache=True)
def _first_limit(limits, weight):
    """Return the number of the first limit that a distance is within."""
    low, high = 0, limits.size - 1
    while low < high:
        middle = (low + high) // 2
        if weight <= limits[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@njit(nogil=True, cache=True)
def _scan_block(formula, both, ids, span, is_one, limits, tile, room, buffer, counts):
    """Find the pairs of a block of rows; within one set of points they are pairs with later points.

    `ids` are the numbers of all rows and points.
    """
    (queries, points), (begin, end), size = both, span, 0
    for first in range(begin if is_one else 0, points.shape[0], POINTS):
        near = ids[first : min(first + POINTS, points.shape[0])]
        for start in range(begin, end, ROWS):
            rows = ids[start : min(start + ROWS, end)]
            if is_one and near[-1] <= start:
                continue
            weigh(formula, queries, rows, points, near, tile)
            for t in range(rows.size):
                after = rows[t] if is_one else -1
                buffer, size = _append(
                    rows[t], after, near, tile.total[t], limits[-1], limits, room, buffer, size, counts
                )
    return buffer, size


@njit(nogil=True, cache=True)
def _scan_candidates(formula, both, rows, ids, count, is_one, limits, tile, room, buffer, size, counts):
    """Find the pairs of rows with their candidates whose distances are within the limit."""
    queries, points = both
    for i in range(rows.size):
        after = rows[i] if is_one else -1
        for start in range(0, count[i], POINTS):
            near = ids[i, start : min(start + POINTS, count[i])]
            weigh(formula, queries, rows[i : i + 1], points, near, tile)
            buffer, size = _append(rows[i], after, near, tile.total[0], limits[-1], limits, room, buffer, size, counts)
    return buffer, size


@njit(nogil=True, cache=True)
def _count_products(
    product, rows, points, radius, norm_slack, formula, both, first, is_one, limits, max_between, tile, counts
):  # fmt: skip
    """Add to `counts` how many pairs of a tile of products are within each limit; return whether it was done.

    `rows` and `points` are `Tested`, and `first` has the numbers of the first row and the first point. `radius` and
    `norm_slack` are those of `filter.sure_radius`, for the first limit. If more than `max_between` pairs are between
    the bounds and `max_between` is not negative, nothing is added, and the result is False.
    """
    (queries, others), (first_row, first_point) = both, first
    m, n = product.shape
    passed, sure = np.zeros(-(-n // 8) * 8, np.uint8), np.zeros(-(-n // 8) * 8, np.uint8)
    passing, near, one = np.empty(passed.size + 1, np.int64), np.empty(n + 1, np.int32), np.empty(1, np.int32)
    tile_counts, total_between, total_sure = np.zeros(limits.size, np.int64), 0, 0
    for i in range(m):
        seen = first_row + i + 1 - first_point if is_one else 0
        if seen >= n:
            continue
        between, surely = points_between(product, rows, i, points, radius, norm_slack, seen, passed, sure, passing)
        total_sure, total_between = total_sure + surely, total_between + between
        if 0 <= max_between < total_between:
            return False
        one[0] = first_row + i
        for start in range(0, between, POINTS):
            width = min(POINTS, between - start)
            for c in range(width):
                near[c] = first_point + passing[start + c]
            weigh(formula, queries, one, others, near[:width], tile)
            for c in range(width):
                if tile.total[0, c] <= limits[-1]:
                    tile_counts[_first_limit(limits, tile.total[0, c])] += 1
    for e in range(limits.size):
        total_sure += tile_counts[e]
        counts[e] += total_sure
    return True


class Emit(NamedTuple):
    """A reducer: the pairs within a limit, in the order in which they are found.

    A leaf's rows end a walk if they find more than there is room for: `LEAF` pairs beyond the last.
    """

    limit: float
    after: np.ndarray  # (m,) int32, the number after which points count for each row
    size: np.ndarray  # (2,) int64, the number of pairs: of all rows, and of those before the leaf's
    row: np.ndarray  # int32
    point: np.ndarray  # int32
    weight: np.ndarray  # float64

    def meet(self, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest):
        """Append the near points of a leaf, without a branch for each."""
        limit, row, point, weight, order = self.limit, self.row, self.point, self.weight, tree.order
        must_visit, near, a = lanes.must_visit, lanes.near, np.uint64(tree.first[node])
        mark_near(formula, tree, node, wraps, lanes)
        for j in range(m):
            if must_visit[j]:
                to_points(formula, lanes.x, j, tree.columns, a, near, wraps)
                at, own, count = min(self.size[0], row.size - LEAF), self.after[begin + j], 0
                for c in range(np.uint64(tree.last[node]) - a):  # without a branch for each point
                    id_ = order[a + c]
                    row[at + count], point[at + count], weight[at + count] = queries.rows[begin + j], id_, near[c]
                    count += (near[c] <= limit) & (id_ > own)
                self.size[0] += count
        return largest

    def finish(self, queries, begin, m, lanes):
        """Drop the pairs of these rows unless there is room for all."""
        fits = self.size[0] <= self.row.size - LEAF
        if fits:
            self.size[1] = self.size[0]
        self.size[0] = self.size[1]
        return fits


@or_in_space(formulas.farthest_in_space)
def _farthest(formula, lowest, highest, low, high, v):
    """Return an upper bound of the surrogate distances between points of a box and of box v; see `box_to_box`."""
    total = 0.0
    for f in range(lowest.size):
        total = add_gap(formula, total, max(high[v, f] - lowest[f], highest[f] - low[v, f]))
    return surely_above(formula, total)


class Count(NamedTuple):
    """A reducer: how many points are within each limit of the rows, and above the limit before.

    A box whose points are all between the same two limits counts as a whole if all points count.
    """

    limit: float  # the last of the limits
    after: np.ndarray  # (m,) int32, the number after which points count for each row
    limits: np.ndarray  # float64, ascending
    counts: np.ndarray  # int64
    takes_boxes: bool

    def visits(self, formula, tree, node, gap, m, shared_group, wraps, lanes):
        """Count a box as a whole if that is possible; otherwise return True, and the walk visits it."""
        limits, counts = self.limits, self.counts
        if self.takes_boxes:
            farthest = _farthest(formula, lanes.low, lanes.high, tree.low, tree.high, node)
            limit_index = _first_limit(limits, gap)
            if farthest <= self.limit and _first_limit(limits, farthest) == limit_index:
                counts[limit_index] += m * (tree.last[node] - tree.first[node])
                return False
        return True

    def meet(self, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest):
        """Count the near points of a leaf."""
        limits, counts, after, order = self.limits, self.counts, self.after, tree.order
        must_visit, near, a = lanes.must_visit, lanes.near, tree.first[node]
        mark_near(formula, tree, node, wraps, lanes)
        for j in range(m):
            if must_visit[j]:
                to_points(formula, lanes.x, j, tree.columns, a, near, wraps)
                for c in range(tree.last[node] - a):
                    if near[c] <= limits[-1] and order[a + c] > after[begin + j]:
                        counts[_first_limit(limits, near[c])] += 1
        return largest

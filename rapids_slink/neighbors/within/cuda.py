"""The pairs within a bound on a GPU: by boxes, by a fused filter, or by all surrogate distances.

What is found is in no order: a pair is one int64, src in its upper half and dst in the lower, by which pairs are
sorted at the end.
"""

from collections.abc import Callable, Iterator
from copy import copy
from math import inf
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.bvh import BoxSearch
from rapids_slink.neighbors.choose import COSTS, is_searched_by_tree, takes_all_pairs
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.exact.cuda import _distances_between, pair_distances
from rapids_slink.neighbors.filter import choose_filter
from rapids_slink.neighbors.filter.fused import BLOCK_ROWS, TILE
from rapids_slink.neighbors.rows import bound_for_filter
from rapids_slink.neighbors.task import equal_slices, inverse
from rapids_slink.neighbors.within import Found, PairSearch, counts_within, in_tiles
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import check_arrays, constant, launch_blocks
from rapids_slink.runtime.device import Array, cuda
from rapids_slink.runtime.memory import free_bytes, rows_that_fit
from rapids_slink.runtime.threads import progress_bar, with_progress

WITHIN = "neighbors/within/within.cu"
THREADS = constant(WITHIN, "THREADS")
#: A search has room for FIRST_ROOM pairs at first, and counts MOST_LIMITS limits at a time.
FIRST_ROOM, MOST_LIMITS = 2**22, 4096
#: A filter passes at most MOST_CANDIDATES pairs at a time, CANDIDATES_A_ROW for each row and LEAST_CANDIDATES at least;
#: with little memory LEAST_ROOM at least. CANDIDATE_BYTES are those of a pair while distances decide.
MOST_CANDIDATES, CANDIDATE_BYTES = 2**25, 96
LEAST_CANDIDATES, CANDIDATES_A_ROW, LEAST_ROOM = 2**20, 64, 2**16
#: Tiles of points of a work item, by whether items are ruled out by numbers of ones.
ITEM_TILES = {False: 128, True: 64}
#: A filter gives way to a finer one if more than `MANY_PASSED` pairs a row pass, and a share below `LEAST_SHARE` of
#: these is within.
MANY_PASSED, LEAST_SHARE = 32, 1 / 8
#: Distances of a chunk, and their bytes while those within are listed.
MOST_DISTANCES, DISTANCE_BYTES = 2**26, 32


def prepare(values: Array, queries: Array, limit: float, metric: Metric) -> PairSearch:
    """Return the search of `within.prepare_pairs` on a GPU."""
    device, (n, d) = cuda(), values.shape
    wanted = forced().pairs
    by_tree = is_searched_by_tree(n, d, metric, device)
    if wanted:
        by_tree = wanted == "tree" and metric.boxes and d <= COSTS["cuda"].low_features
    if limit > -inf and values.dtype.kind == "f" and by_tree:
        return BoxPairs(values, queries, limit, metric)
    tiles = in_tiles(values, queries, limit, metric, device)
    if tiles is not None:
        return tiles
    is_one, pairs = queries is None, n * (n / 2 if queries is None else len(queries))
    is_few = takes_all_pairs(pairs, device) if wanted is None else wanted == "distances"
    may_rule_out = limit > -inf and (values.dtype.kind == "u" or metric.filter == "product")
    if may_rule_out and values.dtype.kind != "u":
        may_rule_out = bound_for_filter(metric, limit, values, *([] if is_one else [queries])) < inf
    if is_few or not may_rule_out:
        return ExactPairs(values, queries, limit, metric)
    points = values if is_one else cp.concatenate((queries, values))
    filter_ = choose_filter(ExactPoints(points, points, metric), device, limit)
    if filter_ is not None and filter_.is_symmetric:
        return ImagePairs(filter_, 0 if is_one else len(queries), limit)
    return ExactPairs(values, queries, limit, metric)


class BoxPairs(PairSearch):
    """A search for pairs by a bounding volume hierarchy."""

    def __init__(self, values: Array, queries: Array, limit: float, metric: Metric) -> None:
        self.search, self.limit = BoxSearch(values, cuda(), Report(), queries, metric=metric), limit
        self.n_rows = len(values if queries is None else queries)

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Find the pairs of some rows: see `PairSearch.find`."""
        start = self._starter(rows)
        capacity = int(min(room, FIRST_ROOM))
        while True:
            count, pair, weight = cp.zeros(1, cp.uint64), cp.empty(capacity, cp.int64), cp.empty(capacity)
            start("append_within", self.limit, capacity, count, pair, weight)
            total = int(count[0])
            if total <= capacity:
                break
            if total > room:
                return Found(total)
            capacity = total
        return Found.of(pair[:total], weight[:total], cp)

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Count the pairs of some rows within each limit: see `PairSearch.count`."""
        start, counts = self._starter(rows), []
        for part in equal_slices(slice(0, limits.size), MOST_LIMITS):
            some, on_gpu = cp.zeros(len(limits[part]), cp.uint64), cp.asarray(limits[part])
            start("count_within", on_gpu, some.size, some, shared_memory=8 * some.size)
            counts.append(np.cumsum(some.get().astype(np.int64)))
        return np.concatenate(counts)

    def _starter(self, rows: slice) -> Callable[..., None]:
        """Return `start(name, *more)`, which launches a kernel of within.cu for these rows with further arguments."""
        search, m = self.search, rows.stop - rows.start
        onward = search.queries is None and m == self.n_rows
        if onward:
            ids, at = search.order, cp.arange(m, dtype=cp.int32)
        else:
            ids = cp.arange(rows.start, rows.stop, dtype=cp.int32)
            at = (inverse(search.order, cp) if search.start is None else search.start)[ids]
            queue = cp.argsort(at)  # neighbours on the curve visit the same nodes
            ids, at = ids[queue], at[queue]
        search.check()
        check_arrays("int32", ids, at, size=m)

        def start(name: str, *more: Any, shared_memory: int = 0) -> None:
            launch_blocks(
                WITHIN, name, (-(-m // THREADS),), THREADS, search.queries, ids, at, m, onward, search.points,
                search.order, search.leaf_of, search.nodes, *more, options=search._options(),
                shared_memory=shared_memory,
            )  # fmt: skip

        return start


class ExactPairs(PairSearch):
    """A search for pairs by all surrogate distances, a chunk of rows at a time."""

    def __init__(self, values: Array, queries: Array, limit: float, metric: Metric) -> None:
        self.device = cuda()
        self.points, self.limit, self.metric, self.is_one = values, limit, metric, queries is None
        self.queries = values if queries is None else queries

    def parts(self, rows: slice) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of some rows, a chunk of rows at a time: see `PairSearch.parts`."""
        n = len(self.points)
        free = max(free_bytes() / 2, DISTANCE_BYTES * n)  # the check before the run is of a search that lists a few
        chunks = equal_slices(rows, rows_that_fit(max(1, MOST_DISTANCES // n), DISTANCE_BYTES * n, free))
        for chunk in with_progress(chunks, len(chunks), self.bar(rows)):
            first = chunk.start if self.is_one else 0
            among, ids = self.points[first:], cp.arange(chunk.start, chunk.stop, dtype=cp.int32)
            distance = _distances_between(self.queries, among, self.metric, ids)
            within = distance <= self.limit
            if self.is_one:
                within &= cp.arange(first, first + len(among), dtype=cp.int32) > ids[:, None]
            row, point = cp.nonzero(within)
            yield (row + chunk.start) << 32 | (point + first), distance[row, point]


class ImagePairs(PairSearch):
    """A fused filter tests each pair of blocks once, and the distances of those that pass are computed.

    The rows come first, sorted by what the filter's test depends on, then the points that are no rows. A work item is a
    block of rows and some tiles of points; with one set of points, these are tiles from the rows on. Points of large
    error are in no block, but are candidates of every row.
    """

    def __init__(self, filter_: Any, n_queries: int, limit: float) -> None:
        self.filter, self.exact, self.limit, self.device = filter_, filter_.exact, limit, cuda()
        self.n_queries, self.is_one = n_queries, n_queries == 0  # queries are the first of the points

    def parts(self, rows: slice) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of some rows: see `PairSearch.parts`."""
        for _, _, pair, weight in self._arranged(rows)._tested(rows, np.array([self.limit]), counts=False):
            yield pair, weight

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Count the pairs of some rows within each limit: see `PairSearch.count`.

        Pairs that are surely within are counted without a distance. For several limits these are the pairs that are
        surely within the first. If too many are between that and the last, each half of the limits has a test of its
        own.
        """
        if not self.filter.is_of_products:
            return super().count(rows, limits)
        counts = np.zeros(limits.size, np.int64)
        for some, surely, _, weight in self._arranged(rows)._tested(rows, limits, counts=True):
            counts[some] += surely + counts_within(weight, limits[some], self.device)
        return counts

    def _room(self) -> int:
        """Return the most pairs that may pass a filter at a time."""
        wanted = min(MOST_CANDIDATES, max(LEAST_CANDIDATES, CANDIDATES_A_ROW * len(self.exact.points)))
        return int(max(LEAST_ROOM, min(wanted, free_bytes() / 2 / CANDIDATE_BYTES)))

    def _tested(self, rows: slice, limits: np.ndarray, counts: bool) -> Iterator[tuple[slice, int, Array, Array]]:
        """Yield the pairs of some rows up to the last of some of the limits, with these pairs' surrogate distances.

        With them come which limits these are, and how many more pairs are surely within the first: none unless it
        `counts`.
        """
        everyone, room = slice(0, limits.size), self._room()
        waiting = [(np.arange(self.row_blocks), everyone)] if self.row_blocks else []
        with progress_bar(max(1, self.row_blocks), None if counts else self.bar(rows)) as advance:
            while waiting:
                blocks, some = waiting.pop()
                between = float(limits[some.start]) if counts else -inf, float(limits[some.stop - 1])
                items = cp.asarray(self._items(blocks))
                candidates = self.filter.pairs_within(items, between, room, self.row_blocks - 1)
                if candidates is None and some.stop > some.start + 1:
                    waiting += [(blocks, half) for half in equal_slices(some, -(-(some.stop - some.start) // 2))]
                elif candidates is None and counts and not self.filter.is_finest:
                    self._refine()
                    waiting.append((blocks, some))
                elif candidates is None and blocks.size > 1:
                    middle = blocks.size // 2
                    waiting += [(blocks[middle:], some), (blocks[:middle], some)]
                elif candidates is None:
                    yield from ((some, 0, *pairs) for pairs in self._of_block(int(blocks[0])))
                    advance()
                else:
                    (a, b, _), surely = candidates
                    passed, (pair, weight) = a.size, self._within(a, b)
                    del candidates, a, b
                    few_within = pair.size < LEAST_SHARE * passed
                    yield some, surely, pair, weight
                    if waiting and few_within and passed > MANY_PASSED * BLOCK_ROWS * blocks.size:
                        self._refine()
                    for _ in blocks:
                        advance()
        yield from ((everyone, 0, *pairs) for pairs in self._of_far(rows))

    def _arranged(self, rows: slice) -> "ImagePairs":
        """Return a copy with the rows and then the other points in blocks, each sorted by what the test reads of it.

        The copies of the search and of its filter are gone with the run.
        """
        search = copy(self)
        search.filter = copy(self.filter)
        search._arrange(rows)
        return search

    def _arrange(self, rows: slice) -> None:
        n, begin = len(self.exact.points), rows.stop if self.is_one else self.n_queries
        first, self.far = self._in_order(rows.start, rows.stop - rows.start)
        second, self.far_others = self._in_order(begin, n - begin)
        filler = first[-1:].repeat(-first.size % BLOCK_ROWS) if first.size else first
        order = cp.concatenate((first, filler, second)).astype(cp.int32)
        self.row_blocks, self.first_other = -(-first.size // BLOCK_ROWS), (first.size + filler.size) // TILE
        self.tiles = -(-order.size // TILE)
        self.filter.arrange(order, cp.empty(0, cp.int32))

    def _in_order(self, first: int, m: int) -> tuple[Array, Array]:
        """Return m points from `first` on in the filter's order for the limit, and those that the order leaves out."""
        if not m:
            return cp.empty(0, cp.int32), cp.empty(0, cp.int32)
        return self.filter.order_for_limit(self.limit, m, first)

    def _items(self, blocks: np.ndarray) -> np.ndarray:
        """Return the work items of some blocks, (items, 4) int32.

        Items with the same points follow one another, so that these points stay in the cache.
        """
        ones = self.filter.ones_of_tiles()
        size, start = ITEM_TILES[ones is not None], 0 if self.is_one else self.first_other
        begins = np.arange(start, self.tiles, size)
        begin, block = (part.ravel() for part in np.meshgrid(begins, blocks, indexing="ij"))
        items = np.zeros((begin.size, 4), np.int32)
        items[:, 0], items[:, 2] = block * (BLOCK_ROWS // TILE), np.minimum(begin + size, self.tiles)
        items[:, 1] = np.maximum(begin, items[:, 0]) if self.is_one else begin
        wanted = items[:, 1] < items[:, 2]
        if ones is not None:
            low, high = ones
            least, largest = np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins)
            row, next_, at = items[:, 0], np.minimum(items[:, 0] + 1, self.tiles - 1), np.searchsorted(begins, begin)
            lowest, highest = np.minimum(low[row], low[next_]), np.maximum(high[row], high[next_])
            wanted &= may_be_within(self.exact.metric, self.limit, lowest, highest, least[at], largest[at])
        return items[wanted]

    def _within(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return those of some pairs that are within the limit, and their surrogate distances.

        The pairs are of a point or an array of points, and of an array of others, in any order.
        """
        a, b = cp.minimum(a, b), cp.maximum(a, b)
        weight = pair_distances(self.exact.points, a, b, self.exact.metric)
        kept = weight <= self.limit
        src, dst = a[kept].astype(cp.int64), b[kept].astype(cp.int64)
        return src << 32 | (dst - self.n_queries), weight[kept]

    def _of_block(self, block: int) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of a block of rows, row after row, with the points of its work items.

        It serves a block of which more pairs pass than there is room for.
        """
        rows = cp.unique(self.filter.order[block * BLOCK_ROWS :][:BLOCK_ROWS])
        start = block * BLOCK_ROWS if self.is_one else self.first_other * TILE
        points = cp.unique(self.filter.order[start:])
        is_row = cp.isin(points, rows)
        for row in rows.tolist():
            yield self._within(np.int32(row), points[~is_row | (points > row)] if self.is_one else points)

    def _of_far(self, rows: slice) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs that hold a point which is in no block."""
        points = cp.arange(len(self.exact.points), dtype=cp.int32)
        points, near = points[rows.start if self.is_one else self.n_queries :], points[rows.start : rows.stop]
        for row in self.far.tolist():
            points, near = points[points != row], near[near != row]  # two far rows meet once
            yield self._within(np.int32(row), points)
        for point in self.far_others.tolist():
            yield self._within(np.int32(point), near)

    def _refine(self) -> None:
        """Take a finer filter for what is left, if there is one."""
        order = self.filter.order
        finer = self.filter.finer()
        if finer is not None:
            self.filter = finer
            self.filter.arrange(order, cp.empty(0, cp.int32))


def may_be_within(
    metric: Metric, limit: float, low: np.ndarray, high: np.ndarray, least: np.ndarray, largest: np.ndarray
) -> np.ndarray:
    """Return whether rows with `low` to `high` ones and points with `least` to `largest` may be within the limit.

    Of v and w ones at most min(v, w) are common. So the distance is at least |v - w|, or its share of the larger number
    or of both together. This falls as the numbers come closer.
    """
    fewer = np.where(high < least, high, np.where(largest < low, largest, 0)).astype(np.float64)
    more = np.where(high < least, least, np.where(largest < low, low, 0)).astype(np.float64)
    gap = more - fewer
    if metric.formula == "containment":  # the smaller may be part of the larger
        return np.full(gap.shape, limit >= 0)
    if metric.formula == "jaccard":
        gap /= np.maximum(more, 1)
    elif metric.formula == "braycurtis":
        gap /= np.maximum(more + fewer, 1)
    return gap <= limit + 1e-9 * abs(limit)

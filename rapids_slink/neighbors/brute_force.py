"""Search over all pairs: filter, re-rank, prove.

    rows ──▶ filter ──▶ candidates ──▶ re-rank ──▶ lists, and a bound for each row, which each step lowers

Points are visited in a low-discrepancy order, in bands of which each extends the ones before g-fold and so adds about
g·k candidates a row. If there are few pairs, a GPU tests all of them in one band. A row whose candidates all fitted
into its buffer is proven (filter/__init__.py says why). The others are searched again with the bounds that they have
reached. On a GPU a finer filter follows, and then tiles of near points, which have scales of their own. At last every
distance is computed.

For the k-NN graph the fused filter and a CPU's form each pair of points once and test it for both: a symmetric pass, in
slices of pairs. If the lists within two parts of the points are known, only pairs between the parts are formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, cast

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.choose import COSTS, is_worth_a_look, products
from rapids_slink.neighbors.exact import ExactPoints, candidate_capacity, same_candidates, scan_bytes
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import MIN_ROWS, TileFilter, choose_filter, n_seeds
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.task import (
    BLOCK_VALUES,
    ListSearch,
    SearchState,
    SearchTask,
    chunks_of,
    geometric_slices,
)
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes, rows_that_fit
from rapids_slink.runtime.threads import for_each_chunk, with_progress, workers

if TYPE_CHECKING:
    from rapids_slink.neighbors.filter import ProductFilter
    from rapids_slink.neighbors.filter.cpu import BlasFilter
    from rapids_slink.neighbors.filter.fused.filter import ImageFilter

#: Bytes of a value while a CPU quantizes it.
PACKED_BYTES = 32


def estimate_brute_force(
    n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric
) -> MemoryEstimate:
    """Estimate the bytes of a search among n points of d features for the k neighbours of m points or queries."""
    kernels, lists = filter_kernels(device), m * (12 * k + 8)
    if not device.is_gpu and metric.filter != "product":  # without a filter there are tiles, and the lists of a chunk
        from rapids_slink.neighbors.exact.cpu import TILE_BYTES

        a_worker = TILE_BYTES + MIN_ROWS * (12 * k + 64) + scan_bytes(n, k, device)
        return MemoryEstimate(lists + 4 * n, workers(device) * a_worker)
    fused = kernels.fused_filter() if device.is_gpu and metric.filter in ("product", "bits") else None
    a_row = fused.row_bytes(d) if fused else (2 if device.is_gpu else 4) * -(-d // 8) * 8 + 8
    a_row += 4 * d * (metric.filter == "direct")
    quantized = (n + m * (m != n and not device.is_gpu)) * (a_row + d + 8)  # d is for a copy of small integers
    # A CPU quantizes in float64. A GPU's kernel quantizes, and only a random order is made for it.
    packing = 24 * n if device.is_gpu else PACKED_BYTES * min(max(n, m) * d, BLOCK_VALUES)
    chunks = workers(device) * MIN_ROWS * chunk_row_bytes(n, d, k, device)
    if not device.is_gpu:  # a thread sorts the distances of a row
        chunks += workers(device) * scan_bytes(n, k, device)
        if m == n:  # the candidates and lists of all blocks that meet at a time
            block = min(n // (2 * kernels.MIN_PAIRS) + kernels.MIN_BLOCK_ROWS_LOW_MEMORY, kernels.MAX_BLOCK_ROWS)
            chunks += 2 * workers(device) * block * (36 * k + 160)
        else:
            chunks += PACKED_BYTES * workers(device) * min(n, kernels.TILE_POINTS) * d
    seed_products = m * n_seeds(n, k) if metric.filter == "product" else 0  # rows by seeds
    preferred = 4 * min(seed_products, kernels.TILE_ROWS * kernels.TILE_POINTS)
    if fused and m == n:
        preferred += fused.symmetric_bytes(n, k, d)
    return MemoryEstimate(quantized + lists, max(packing, chunks), preferred)


def chunk_row_bytes(n: int, d: int, k: int, device: Device) -> int:
    """Return the bytes of a row of a chunk: its products, quantized features, candidates and lists."""
    product_bytes = 4 * max(filter_kernels(device).TILE_POINTS, n_seeds(n, k))
    filtered = product_bytes + 32 * d + 4 * (64 + candidate_capacity(k)) + 36 * k + 64
    return max(filtered, scan_bytes(n, k, device)) if device.is_gpu else filtered


#: A search again uses this many times as many chunks, so each row has that many times the room for candidates.
MORE_ROOM = 8
#: Before a CPU searches many rows again, it tries this number of them, if they are at most one in `MIN_TRIED`. Unless
#: the filter proves half of those, computing all distances takes less time than the filter and the rows that it leaves.
TRIED_AGAIN, MIN_TRIED = 2**7, 16
#: The share of the rows that may overflow in a slice of a symmetric pass before a finer filter or tiles take over. If
#: tiles can take over, MAX_AT_FIRST is the share that may overflow in the first slice: a row meets 1,024 points there,
#: with a bound from twice as many. It is 0 for noise and topics, 0.07 for documents, 0.16 for Zipf's clusters, and 0.48
#: for clusters far apart.
MAX_OVERFLOWED, MAX_AT_FIRST = 1 / 4, 1 / 32
#: A GPU tests up to this number of pairs in one band: more bands cost more in launches than they save in candidates.
ONE_BAND = 2**26


@dataclass(eq=False, repr=False)
class BruteForceSearch(ListSearch):
    """A search over all pairs of rows and points; see `Search`.

    `max_weight` is the largest surrogate distance that is wanted in most tasks, and `listed` the length of their lists
    if these are full.
    """

    max_weight: float = inf
    listed: int = 0

    is_over_all_pairs = True  # until it is in tiles
    estimate = staticmethod(estimate_brute_force)
    connects_at_once = True

    def __post_init__(self) -> None:
        self.kernels = exact_kernels(self.device)
        self.free_bytes = free_bytes()  # read here, since the threads that work on chunks belong to no run
        exact = ExactPoints(self.values if self.queries is None else self.queries, self.values, self.metric)
        self.filter = choose_filter(exact, self.device, self.max_weight, self.listed)
        self.exact = exact if self.filter is None else self.filter.exact
        self.in_tiles: TileSearch | None = None  # the tiles that replace the filter after it has failed
        self.name = "none"
        if self.filter is not None:
            self.filter.arrange()
            self.name = self.filter.name
            self.ends_lists = self.filter.is_of_products and (self.filter.is_symmetric or not self.device.is_gpu)

    def settle(self, task: SearchTask, reached: SearchState) -> tuple[int, int, int]:
        """Fill the lists of a task's rows: see `ListSearch.settle`."""
        if self.in_tiles:
            return self.in_tiles.settle(task, reached)
        m, few, is_short = task.rows.size, max(16 * task.k, 256), task.k <= self.kernels.MAX_LIST
        if len(self.values) <= few or not m or not is_short or self.filter is None:
            if task.forms_each_pair and task.core is None and is_short and not self.device.is_gpu:
                from rapids_slink.neighbors.exact.cpu import scan_each_pair

                progress = task.progress(self.progress)
                scan_each_pair(self.values, self.metric, reached.top, reached.upper, progress, task.split)
            else:
                self.scan(task, self.device.xp.arange(m, dtype="int32"), reached)
            return 0, 0, m
        passed = self._first_pass(self.filter, task, reached)
        if passed is None:  # tiles take over: the filter would not tell the points of further tasks apart either
            self.filter = None  # the tiles take the memory of its images
            self.in_tiles = tiles = self.tiles
            self.is_over_all_pairs, self.follower = False, lambda: tiles
            self.report.count("neighbors", filter=TileSearch.name)
            return tiles.settle(task, reached)
        unproven, far = passed
        redone = unproven.size
        if redone:
            unproven = self._search_again(task, unproven, reached)
        for rows in (unproven, far):
            if rows.size:
                self.scan(task, rows, reached)
        return m - redone - far.size, redone, unproven.size + far.size

    @property
    def by_products(self) -> ProductFilter | None:
        """Return the filter if it is a product filter, otherwise None."""
        return cast("ProductFilter", self.filter) if self.filter and self.filter.is_of_products else None

    @cached_property
    def _may_have_tiles(self) -> bool:
        """Return whether points that the filter does not tell apart are searched in tiles of near points."""
        by_products = self.device.is_gpu and self.metric.filter == "product" and forced().search != "all pairs"
        if not by_products or self.filter is None or self.filter.has_exact_products:
            return False
        return TileSearch.serves(self.values, self.device, self.metric, self.queries)

    @cached_property
    def tiles(self) -> TileSearch:
        """Return the search in tiles of near points, which is prepared once."""
        return TileSearch(self.values, self.device, self.report, self.queries, self.progress, self.metric)

    def _first_pass(self, filter_: TileFilter, task: SearchTask, reached: SearchState) -> tuple[Array, Array] | None:
        """Filter all rows once; return the rows that are not proven, and the outliers, which the filter leaves out.

        Return None if the finest filter does not tell the points apart, and tiles of near points take over.
        """
        m, none = task.rows.size, task.rows[:0]
        if filter_.is_symmetric and task.forms_each_pair:
            images = cast("ImageFilter", filter_)
            if images.symmetric_bytes(m, task.k, self.values.shape[1]) <= self.free_bytes:
                first = task.for_first_bounds
                falls = filter_.first_bounds(first, task.rows, reached.upper, self._rows_at_once(m, first.k))
                if not task.split:
                    images.arrange(*images.order_by_bound(reached.upper))
                if not task.split or images.arrange_parts(reached.upper, task.split):
                    return self._symmetric_pass(images, task, reached, falls)
        if task.forms_each_pair and not self.device.is_gpu:
            if task.split:
                filter_.arrange_parts(reached.upper, task.split)
            both = cast("BlasFilter", filter_)
            at_once = self._rows_at_once(m, task.k)
            return both.search_each_pair(task, reached, at_once, self.progress), none
        return self._pass(task, filter_, slice(0, m), reached), none

    def _search_again(self, task: SearchTask, unproven: Array, reached: SearchState) -> Array:
        """Search some rows again, at first with the bounds that they have reached; return those still not proven."""
        filter_ = self.filter
        if not self.device.is_gpu and filter_ is not None and unproven.size >= MIN_TRIED * TRIED_AGAIN:
            some = unproven[:: unproven.size // TRIED_AGAIN]
            if 2 * self._pass(task, filter_, some, reached, again=True).size > some.size:
                return unproven
        while unproven.size and filter_ is not None:
            unproven = self._pass(task, filter_, unproven, reached, again=True)
            filter_ = filter_.finer() if unproven.size else None
        if unproven.size < MIN_ROWS or not self._may_have_tiles:
            return unproven
        cast("ImageFilter", self.filter).points_image = None  # until a task needs it again, tiles have its memory
        self.tiles.settle(task, reached, unproven)
        return unproven[:0]

    def _pass(
        self,
        task: SearchTask,
        filter_: TileFilter,
        rows: slice | Array,
        reached: SearchState,
        again: bool = False,
    ) -> Any:
        """Filter and re-rank some of the task's rows, a range or numbers; return those whose lists are not proven.

        Rows that are searched `again` have more room for candidates.
        """
        xp, kernels = self.device.xp, self.kernels
        by_candidates = filter_.max_candidates // (filter_.room * candidate_capacity(task.k))
        preferred = max(MIN_ROWS, min(filter_.max_rows, by_candidates // MIN_ROWS * MIN_ROWS))
        rows_a_chunk = min(self._rows_at_once(preferred, task.k), len(self.exact.queries))

        def search(chunk: Any) -> Any:
            ids = task.rows[chunk]
            groups = task.groups(ids), task.point_group
            in_place = isinstance(chunk, slice)
            bound, top = (
                reached.at(chunk) if in_place else (reached.upper[chunk], kernels.empty_lists(ids.size, task.k))
            )
            if reached.minima is not None:
                xp.minimum(bound, reached.minima[groups[0]], out=bound)
            if not again:
                filter_.first_bounds(task, ids, bound, self._rows_at_once(ids.size, task.k))
            at_once = again or (self.device.is_gpu and ids.size * len(self.values) <= ONE_BAND)
            last = filter_.order.size
            bands = geometric_slices(last if at_once else filter_.first_band, last, filter_.growth)
            # These rows have the memory of a full chunk for their candidates.
            room = rows_a_chunk * filter_.room * candidate_capacity(task.k) // ids.size
            capacity = min(room, len(self.values)) if at_once else None
            for candidates in filter_.by_band(task, ids, groups, bound, bands, capacity):
                kernels.rerank(self.exact, ids, candidates, groups, bound, top, task.core)
                del candidates  # the next band's need the memory
                if reached.minima is not None:
                    kernels.scatter_min(reached.minima, groups[0], top.weights)
                    xp.minimum(bound, reached.minima[groups[0]], out=bound)
            unproven = kernels.flatnonzero(top.overflowed)
            if in_place:
                return unproven + chunk.start if chunk.start else unproven
            kernels.put_lists(reached, chunk, bound, top)
            return chunk[unproven]

        chunks = chunks_of(rows, max(MIN_ROWS, rows_a_chunk // MORE_ROOM) if again else rows_a_chunk)
        return xp.concatenate(for_each_chunk(self.device, search, chunks, task.progress(self.progress)))

    def _symmetric_pass(
        self, filter_: ImageFilter, task: SearchTask, reached: SearchState, bounds_fall: bool
    ) -> tuple[Array, Array] | None:
        """Form every pair of points once, for both; return what `_first_pass` does.

        Points of similar bounds share a tile, since a tile is tested with the largest of its bounds, and tiles are
        visited in a low-discrepancy order. The bounds are tightened from slice to slice by the filter's own products;
        surrogate distances are computed at the end, and before that for rows whose buffers are half full. The task's
        bounds by lists are the lowest, and take the time of several slices: they are made between large slices.

        A few outliers are left out, since the errors of their quantization would let whole tiles pass: each is a
        candidate of every other row. There are none if only pairs between two parts are formed. `bounds_fall` is
        whether all rows have bounds by a sample.
        """
        kernels: Any = self.kernels  # they are a GPU's
        k, split, by_lists, (n, d) = task.k, task.split, task.bounds_by_lists, self.values.shape
        # Few points have no tiles, whose check may read all values.
        may_end_early = filter_.is_finest and is_worth_a_look(n, n, d, self.device) and self._may_have_tiles
        rows, bound = filter_.order, reached.upper[filter_.order]
        top = kernels.empty_lists(rows.size, k)
        # If searching again takes less time than tiles, a row may have this many candidates then.
        searches_again = filter_.is_finest and products(n, n, d) < COSTS[self.device.name].forest
        room_again = MORE_ROOM * candidate_capacity(k) if searches_again else 0
        survivors, slices = filter_.empty_survivors(k), filter_.symmetric_slices(split, bounds_fall, bool(by_lists))
        for at, offsets in enumerate(with_progress(slices, len(slices), task.progress(self.progress))):
            filter_.append_both(offsets, bound, survivors, split)
            is_first = at == 0 and may_end_early
            share = MAX_AT_FIRST if is_first else MAX_OVERFLOWED
            room = max(survivors.capacity, room_again * offsets.stop // slices[-1].stop)
            # `is_coarse` waits for the GPU.
            if (at % 2 or is_first) and filter_.is_coarse(survivors, room, share):
                finer = filter_.finer()
                if finer is None and not self._may_have_tiles:
                    continue
                del survivors, top
                if finer is None:
                    return None
                self.filter = finer
                self.report.count("neighbors", filter=finer.name)
                return self._first_pass(finer, task, reached)
            is_last = offsets is slices[-1]
            if by_lists and offsets.stop >= filter_.listed_offsets and not is_last:
                kernels.rerank(self.exact, rows, survivors, None, bound, top)
                kernels.put_lists(reached, rows, bound, top)
                del survivors  # the bounds take its memory
                self.device.xp.minimum(bound, by_lists(reached.top.ids, reached.top.weights)[rows], out=bound)
                survivors = filter_.empty_survivors(k)
                continue
            filter_.tighten(survivors, bound, k if is_last else task.for_first_bounds.k, is_last)
            kernels.rerank(self.exact, rows, survivors, None, bound, top, more_than=survivors.capacity // 2)
        kernels.rerank(self.exact, rows, survivors, None, bound, top)
        del survivors  # the far rows take less
        if filter_.far.size:
            kernels.rerank(self.exact, rows, same_candidates(filter_.far, rows.size, self.device), None, bound, top)
        kernels.put_lists(reached, rows, bound, top)
        return rows[kernels.flatnonzero(top.overflowed)], filter_.far

    def _rows_at_once(self, preferred: int, k: int) -> int:
        """Return the number of rows of a chunk: `preferred`, or as many as fit into memory."""
        n, d = self.values.shape
        free = self.free_bytes / workers(self.device)
        rows = rows_that_fit(preferred, chunk_row_bytes(n, d, k, self.device), free, MIN_ROWS)
        return rows if rows == preferred else rows // MIN_ROWS * MIN_ROWS

"""All-pairs search by tiles of a matrix product: filter, re-rank, prove.

    rows ──┐
           ├─ product ── keep ── rerank ──▶ lists + a bound a row, tightened from band to band
    columns┘

The columns stand in a scattered order, so that the first band is a fair sample and every later one brings a row
about as many candidates as it is times larger than all before. Where points have cores the columns stand by core
instead, and those whose core is above all rows' bounds are left out: they may be many, since a point amid the others
is near to all. A row's first bound comes from products with a sample of columns. A row whose candidates all fitted into
its buffer is proven (operand.py says why); the others are done again with the bound they have reached, then in float64,
then by computing every distance exactly.

The k-NN graph by the fused filter takes sweeps over pairs of blocks in place of bands, and re-ranks once: see `_sweep`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.device import Device, to_host
from rapids_slink.memory import Need
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.contract import Found, Task, drop_late, growing, shown
from rapids_slink.neighbors.operand import BLOCK, MOST_FEATURES, Ceiling, Operand, Scaling, reach
from rapids_slink.neighbors.rows import unit_rows
from rapids_slink.report import Report

FIRST_BAND = 2048
GROWTH = 4
ROWS_OF_LIKE_BOUND = 2**15  # a launch of the fused filter, where columns above the largest bound are left out
FEW_PAIRS, FUSED_PAIRS, MOST_PAIRS = 2**16, 2**20, 2**26
FEW_PRODUCTS = 2**24  # of few rows with a band
#: Squares of shorter rows lose bits to underflow, and nothing bounds what is computed from them.
SHORTEST = 1e-140
PAIR_BYTES = 48  # found, in its chunk and in all of them together
LEAST_ROWS = 64  # a chunk


class TileSearch:
    """Search among `values` (the columns) for neighbours of `queries` (default: the same points).

    Both are as `rows.metric_rows` makes them for `metric`, whose filter is the product form. `fused` is whether to use
    the filter that writes no tiles, where the GPU has it.
    """

    tiers: tuple[str, ...] = ("filter", "float64")  # of rows that are done again
    first_band = FIRST_BAND

    def __init__(
        self,
        values: Any,
        device: Device,
        report: Report,
        queries: Any = None,
        progress: bool = False,
        fused: bool = True,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.values, self.device, self.report, self.progress = values, device, report, progress
        self.metric, self.features = metric, metric.features(values)
        self.queries = values if queries is None else queries
        self.kernels = device.kernels("neighbors")
        self.room = device.spare  # asked for here, since the threads that work on parts are in no run
        self.space = self.kernels.Workspace()
        self.filter: Any = None
        self.fused: Any = None
        self.exact_values, self.exact_queries = values, self.queries
        self.provable = self._prepare_filter(fused)
        self.core: Any = None  # by which the columns stand, and their cores in that order
        self.ascending: Any = None
        self._arrange(self.kernels.scattered(values.shape[0]))
        report.count("neighbors", filter=self.name if self.provable else "none")

    def _prepare_filter(self, fused: bool) -> bool:
        """Choose the filter and its points; False if nothing could be proven of them."""
        self.points, self.query_points = self.values, self.queries
        if self.features > MOST_FEATURES:
            return False
        if self.metric.kernel == "cosine":
            if float(min(self.values[:, -1].min(), self.queries[:, -1].min())) < SHORTEST:
                return False
            self.points = unit_rows(self.values)
            self.query_points = self.points if self.queries is self.values else unit_rows(self.queries)
        both = [self.points] if self.query_points is self.points else [self.points, self.query_points]
        self.scaling = Scaling.of(*both, device=self.device)
        if self.metric.kernel == "squares":
            self.exact_values = self.kernels.compact(self.values, self.scaling)
            self.exact_queries = self.exact_values
            if self.queries is not self.values:
                self.exact_queries = self.kernels.compact(self.queries, self.scaling)
        self.filter = self.kernels.fused_filter(self.exact_values) if fused else None
        return True

    @property
    def name(self) -> str:
        """The filter's, for reports."""
        return str(self.filter.NAME if self.filter else self.kernels.FILTER_NAME)

    @property
    def tests_pairs(self) -> bool:
        """Whether `pairs_below` can be asked."""
        return self.provable

    @staticmethod
    def need(n: int, m: int, d: int, k: int, itemsize: int, device: Device) -> Need:
        """As of a `kdtree.TreeSearch`; what the tiles take follows from what is left for them."""
        kernels = device.kernels("neighbors")
        fused = kernels.fused_filter()
        a_row = fused.row_bytes(d) if fused else kernels.OPERAND_BYTES * -(-d // 8) * 8 + 8
        operands = n * (a_row + d + 8) + (m * (a_row + d + 4) if m != n else 0)  # d: a compact copy of small integers
        lists = m * (12 * k + 8)
        # In float64: on a GPU a kernel packs the filter's operand, and only a random order is made for it.
        packing = 40 * min(max(n, m) * d, BLOCK) if device.name == "cpu" else 24 * n
        packing_a_tile = 40 * kernels.workers() * min(n, kernels.COLUMNS) * d
        tiles = kernels.workers() * LEAST_ROWS * _bytes_a_row(n, d, k, kernels)
        peak = operands + max(packing, lists + m * 44 + packing_a_tile)
        wanted = 4 * min(m * _seed_columns(n, m, k, fused), kernels.ROWS * kernels.COLUMNS)  # the seeds' products
        if fused and m == n:
            wanted += _sweep_bytes(n, k)
        return Need(peak, kept=operands + lists, chunk=tiles, wanted=wanted)

    def find(self, task: Task) -> Found:
        """The neighbours of a task's rows."""
        xp, kernels, m = self.device.xp, self.kernels, task.rows.size
        if task.core is not None and task.core is not self.core:
            self.core = task.core
            self._arrange(xp.argsort(task.core).astype("int32"))
            self.ascending = task.core[self.order]
        upper = task.bounds(xp)
        best = xp.full(task.row_group.size, xp.inf) if task.shared else None
        left: Any = slice(0, m) if task.core is None else xp.argsort(upper)
        certified, redone, scanned = 0, 0, m
        filters = m and self.provable and max(16 * task.k, 256) < self.values.shape[0] and task.k <= kernels.MAX_LIST
        if filters and self.filter and task.whole and _sweep_bytes(m, task.k) <= self.room:
            top, left = self._sweep(task, upper)
        else:
            top = kernels.new_lists(m, task.k)
            if filters:
                left = self._filter(task, left, upper, top, best, "filter", again=False)
        ids, weights = top.ids, top.weights
        if filters:
            redone = left.size
            for tier in self.tiers:
                if left.size:
                    left = self._filter(task, left, upper, top, best, tier, again=True)
            certified, scanned = m - redone, left.size

        def scan(at: Any) -> None:
            rows = task.rows[at]
            groups = task.groups(rows), task.column_group
            ids[at], weights[at] = kernels.rerank_all(
                self.queries, self.values, rows, *groups, upper[at], task.k, task.core, metric=self.metric
            )

        kernels.each(scan, _chunks(left, self._rows_at_once(kernels.ROWS, task.k)))
        counts = {"rows_certified": certified, "rows_redone": redone, "rows_scanned_exactly": scanned}
        self.report.count("connect" if task.shared else "neighbors", **counts)
        if task.shared:
            drop_late(ids, weights, upper, xp)
        return Found(ids, weights, upper)

    def tested_pairs(self, component: Any) -> int:
        """How many products `pairs_below` would form."""
        sizes = np.bincount(to_host(component), minlength=1)
        ends = np.cumsum(sizes[sizes > 0])
        n = int(ends[-1])
        total = 0
        for a in range(0, n, self.kernels.ROWS):
            same = ends[np.searchsorted(ends, a, side="right")]  # the end of the component that holds position a
            first = a + (int(same) - a) // self.kernels.COLUMNS * self.kernels.COLUMNS if same < n else n
            total += min(self.kernels.ROWS, n - a) * (n - first)
        return total

    def pairs_below(self, component: Any, table: Any, core: Any = None) -> tuple[Any, Any] | None:
        """Every pair of different components whose kernel value is at most its components' entry, and maybe others.

        Parameters
        ----------
        component : (n,) int32 array
            From 0 to K - 1.
        table : (K, K) float64 array, symmetric
        core : (n,) float64 array, optional
            As in a `Task`.

        Returns
        -------
        src, dst : arrays, or None if there are too many
        """
        xp, kernels = self.device.xp, self.kernels
        order = xp.argsort(component, kind="stable").astype("int32")
        if core is not None:  # a point whose core is above all its component's entries is in no such pair
            order = order[core[order] <= table.max(axis=1)[component[order]]]
        n, component = order.size, component[order]
        on_host = to_host(component)
        none = xp.zeros((), "float32")
        far = reach(table, none, self.scaling, self.features, xp, self.metric)

        counts: list[int] = []
        at_once = self._rows_at_once(kernels.ROWS, 1)
        most = min(MOST_PAIRS, self.room // PAIR_BYTES)

        def search(a: int) -> Any:
            rows = slice(a, min(a + at_once, n))
            capacity = FEW_PAIRS
            while sum(counts) + capacity <= most:
                pairs = kernels.new_pairs(capacity)
                for tile in _tiles(slice(a, n), kernels.COLUMNS):
                    if on_host[a] != on_host[tile.stop - 1]:  # sorted: otherwise it is all one component
                        kernels.keep_pairs(
                            self.packed(order[rows]), self.packed(order[tile]), a, tile.start,
                            component[rows], component[tile], far, pairs, self.space,
                        )  # fmt: skip
                count = int(pairs.count[0])
                if count <= capacity:
                    counts.append(count)
                    return order[pairs.at[:count, 0]], order[pairs.at[:count, 1]]
                capacity = count
            return None

        found = kernels.each(search, range(0, n, at_once), "bridges", self.progress)
        if any(part is None for part in found):
            return None
        src, dst = (xp.concatenate(parts) for parts in zip(*found, strict=True))
        return src, dst

    def packs(self, n: int) -> bool:
        """Whether there is room for the fused filter's operand of n points in place of all points'."""
        more = n - self.values.shape[0]
        return bool(more * self.filter.row_bytes(self.features) <= self.room / 4)

    def pairs_of(self, order: Any, items: Any, upper: Any, most: int) -> tuple[Any, Any, Any] | None:
        """The pairs of points whose kernel value is at most their couple's `upper`, maybe others, and their couples.

        Parameters
        ----------
        order : (n',) int32 array
            The points, in blocks of the fused filter, which there has to be; in a block one more than once only in a
            row.
        items : (m, 4) int32 array
            As of its `keep_couples`.
        upper : float64 array
            By couple.
        most : int
            How many pairs there may be: if there are more the answer is None.
        """
        self.fused = None  # the memory of its operand serves for this one
        fused = self._new_fused(order)
        reach = fused.reach_of_bounds(upper, self.features, self.metric)
        for capacity in sorted({min(FUSED_PAIRS, most), min(MOST_PAIRS // 4, most), most}):
            found, n_found = fused.keep_couples(items, reach, capacity)
            if n_found <= capacity:
                a, b, number = found[:, :n_found]
                return a, b, number
        return None

    def _arrange(self, order: Any) -> None:
        """Put the columns into this order."""
        self.order = order
        self.fused = None  # made when it is needed, in the order that suits the task
        self.operand: Any = None  # gone before the next is made
        self.row_operand: Any = None
        if self.provable and self.filter is None:
            xp = self.device.xp
            self.operand = self._pack(self.points, order)
            if self.queries is self.values:  # the rows are the columns, found through the inverse of their order
                self.row_operand = self.operand
                self.row_at = xp.empty_like(order)
                self.row_at[order] = xp.arange(order.size, dtype="int32")
            else:
                self.row_operand = self._pack(self.query_points)
                self.row_at = xp.arange(self.queries.shape[0], dtype="int32")

    def _sweep(self, task: Task, upper: Any) -> tuple[Any, Any]:
        """The k-NN graph by the fused filter, every pair of points formed once: the lists, and the rows not proven.

        A pair is tested for both its points. A tile of columns is tested with the largest of its bounds, hence the
        order: points of similar bounds make a tile, and the tiles are scattered. Between sweeps the filter's own
        products tighten the bounds; exact values are computed in the end, and of rows whose buffers are half full.
        """
        xp, kernels = self.device.xp, self.kernels
        self._seed(task, task.rows, task.row_group, upper)
        self._arrange(self.filter.arrange(upper))
        fused = self._fused()
        rows, bound = self.order, upper[self.order]
        top, found = kernels.new_lists(rows.size, task.k), fused.survivors(task.k)
        sweeps = fused.sweeps()
        for offsets in shown(sweeps, len(sweeps), task.name, self.progress):
            fused.keep_both(offsets, fused.radius(bound, fused.columns, self.features, self.metric), found)
            fused.tighten(found, bound, task.k, self.features, self.metric)
            self._rerank(rows, found, None, bound, top, above=found.capacity // 2)
        self._rerank(rows, found, None, bound, top)
        into = kernels.Lists(*(xp.empty_like(part) for part in (top.ids, top.weights, top.lost)))
        upper[rows], into.ids[rows], into.weights[rows], into.lost[rows] = bound, top.ids, top.weights, top.lost
        return into, kernels.positions(into.lost, task.meanwhile)

    def _filter(self, task: Task, left: Any, upper: Any, into: Any, best: Any, tier: str, again: bool) -> Any:
        """One tier over the rows `left` of the task; fills in their lists and returns the rows whose are not proven.

        A slice of rows is worked on where they stand.
        """
        xp, kernels = self.device.xp, self.kernels
        fused = self._fused() if tier == "filter" else None
        # In the k-NN graph a row's group is itself: one more candidate is cheaper than to look at every hit's group.
        column_group = task.column_group[self.order] if task.shared else None

        def search(at: Any) -> Any:
            rows = task.rows[at]
            group = task.groups(rows)
            bound = upper[at] if best is None else xp.minimum(upper[at], best[group])
            seeded = not again and (task.upper is None or not bool(xp.isfinite(bound).all()))
            if seeded:
                self._seed(task, rows, group, bound)
            if fused:
                packed = fused.prepare_rows(self.exact_queries if fused.BYTES else self.query_points, rows)
            else:
                operand, columns = self._tier(rows, tier)
            top = kernels.new_lists(rows.size, task.k) if again else into.take(at)
            groups = group, task.column_group
            for band in self._bands(task, bound, again, seeded):
                if fused:
                    radius = fused.radius(bound, packed, self.features, self.metric)
                    candidates = fused.keep(packed, band, radius, task.k, group, column_group)
                else:
                    radius = self._reach(bound, operand.error)
                    candidates = kernels.new_candidates(rows.size, task.k)
                    for tile in _tiles(band, kernels.COLUMNS):
                        ids_of_tile = self.order[tile]
                        self._keep(operand, columns(tile), radius, *groups, ids_of_tile, candidates)
                self._rerank(rows, candidates, groups, bound, top, task.core)
                del candidates  # the next band's need the room
                if best is not None:
                    kernels.lower_groups(best, group, top.weights)
                    xp.minimum(bound, best[group], out=bound)
            if not isinstance(at, slice) or best is not None:  # else these are one
                upper[at] = bound
            if not isinstance(at, slice):
                into.ids[at], into.weights[at] = top.ids, top.weights
            lost = kernels.positions(top.lost, task.meanwhile)
            return at.start + lost if isinstance(at, slice) else at[lost]

        size = 4 if tier == "filter" else 8  # bytes of a product: tiles of the same bytes
        most = fused.rows_at_once(task.k) if fused else kernels.ROWS * 4 // size
        most = self._rows_at_once(most, task.k)
        chunks = _chunks(left, most if task.core is None else min(most, ROWS_OF_LIKE_BOUND))
        unproven = kernels.each(search, chunks, task.name, self.progress)
        return unproven[0] if len(unproven) == 1 else xp.concatenate(unproven)

    def _seed(self, task: Task, rows: Any, group: Any, bound: Any) -> None:
        """Lower the rows' bounds by the nearest of some columns."""
        first = slice(0, _seed_columns(self.values.shape[0], rows.size, task.k, self.filter))
        columns, ceiling = self._columns(first), Ceiling.of(self.features, self.scaling, self.metric)
        most = max(LEAST_ROWS, self.kernels.ROWS * self.kernels.COLUMNS // first.stop)  # products as in a tile
        for at in _tiles(slice(0, rows.size), self._rows_at_once(most, task.k)):
            core = None if task.core is None else (rows[at], task.core)
            self.kernels.seed(
                self.packed(rows[at]), columns, group[at], task.column_group, self.order[first], task.k, self.space,
                ceiling, bound[at], core,
            )  # fmt: skip

    def _reach(self, bound: Any, error: Any) -> Any:
        """What the filter's test takes for rows with these bounds."""
        return reach(bound, error, self.scaling, self.features, self.device.xp, self.metric)

    def _keep(self, rows: Any, columns: Any, radius: Any, *groups_ids_into: Any) -> None:
        """Append to the candidates what passes the filter's test; see the kernels' `keep`."""
        self.kernels.keep(rows, columns, radius, *groups_ids_into, self.space)

    def _rerank(
        self, rows: Any, candidates: Any, groups: Any, bound: Any, top: Any, core: Any = None, **which: int
    ) -> None:
        """Merge the candidates' exact values into the lists, and lower the bounds to them.

        `which` rows, by the number of their candidates, only a GPU's kernel can be told.
        """
        self.kernels.rerank(
            self.exact_queries, self.exact_values, rows, candidates, groups, bound, top, core, metric=self.metric,
            **which,
        )  # fmt: skip

    def _pack(self, points: Any, order: Any = None) -> Any:
        """The filter's operand of some points."""
        return self.kernels.pack(points, self.scaling, self.kernels.FILTER_DTYPE, order)

    def _rows_at_once(self, most: int, k: int) -> int:
        """How many rows a chunk has: `most`, or what there is memory for."""
        n, d = self.values.shape
        room = self.room / self.kernels.workers() / _bytes_a_row(n, d, k, self.kernels)
        return most if room >= most else max(LEAST_ROWS, int(room) // LEAST_ROWS * LEAST_ROWS)

    def _bands(self, task: Task, bound: Any, again: bool, seeded: bool) -> list[slice]:
        """The columns that rows with these bounds may look for."""
        last = self.values.shape[0]
        if task.core is not None:
            last = int(self.device.xp.searchsorted(self.ascending, bound.max().reshape(1), side="right")[0])
        first, growth = self.first_band, GROWTH
        if self.filter:
            first, growth = self.filter.FIRST_BAND, self.filter.GROWTH
            if seeded and _few(bound.size, task.k, self.filter):
                first *= growth
        return growing(last if again else first, last, growth)

    def _tier(self, rows: Any, tier: str) -> tuple[Operand, Any]:
        """The rows' operand and a function from a slice of columns to theirs."""
        if tier == "filter":
            return self.packed(rows), self._columns

        def columns(tile: slice) -> Operand:
            return self.kernels.pack(self.points, self.scaling, "float64", self.order[tile])

        return self.kernels.pack(self.query_points, self.scaling, "float64", rows), columns

    def packed(self, ids: Any) -> Operand:
        """The filter's operand of these queries. The fused filter keeps its own: here it is made for the occasion."""
        if self.filter is None:
            return self.row_operand.take(self.row_at[ids])
        return self._pack(self.query_points, ids)

    def _columns(self, at: slice) -> Operand:
        """The filter's operand of the columns at these places of their order."""
        if self.filter is None:
            return self.operand.take(at)
        return self._pack(self.points, self.order[at])

    def _fused(self) -> Any:
        if self.filter and self.fused is None:
            self.fused = self._new_fused(self.order)
        return self.fused

    def _new_fused(self, order: Any) -> Any:
        """The fused filter with its columns in this order."""
        return self.filter(self.exact_values if self.filter.BYTES else self.points, self.scaling, order)


def _chunks(rows: Any, size: int) -> list[Any]:
    if isinstance(rows, slice):
        return _tiles(rows, size)
    return [rows[a : a + size] for a in range(0, rows.size, size)]


def _tiles(band: slice, size: int) -> list[slice]:
    return [slice(a, min(a + size, band.stop)) for a in range(band.start, band.stop, size)]


def _few(m: int, k: int, fused: Any) -> bool:
    """Whether the first bounds of m rows come from all of the fused filter's first band: one launch less."""
    return bool(fused) and k <= FIRST_BAND // 32 and m * fused.FIRST_BAND <= FEW_PRODUCTS


def _seed_columns(n: int, m: int, k: int, fused: Any) -> int:
    """How many of n columns the first bounds of m rows come from."""
    return min(n, fused.FIRST_BAND if _few(m, k, fused) else max(FIRST_BAND, 32 * k))


def _bytes_a_row(n: int, d: int, k: int, kernels: Any) -> int:
    """What a row of a chunk takes: its products, operand, candidates and lists."""
    products = 4 * max(kernels.COLUMNS, _seed_columns(n, 1, k, kernels.fused_filter()))  # a single row's are the most
    return products + 32 * d + 4 * (128 + 12 * k) + 36 * k + 64


def _sweep_bytes(n: int, k: int) -> int:
    """What the fused filter's sweeps take beside the lists: all rows' bounds, survivors and lists at once."""
    return n * (24 + 12 * k + 8 * (48 + 4 * k))

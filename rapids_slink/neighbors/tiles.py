"""All-pairs search by tiles of a matrix product: filter, re-rank, prove.

    rows ──┐
           ├─ product ── keep ── rerank ──▶ lists + a bound a row, tightened from band to band
    columns┘

The columns stand in a scattered order, so that the first band is a fair sample and every later one brings a row
about as many candidates as it is times larger than all before. A row whose candidates all fitted into its buffer is
proven (operand.py says why); the others are done again with the bound they have reached, then in float64, then by
computing every distance exactly.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from rapids_slink.device import Device, to_host
from rapids_slink.neighbors.contract import Found, Task, drop_late
from rapids_slink.neighbors.operand import Operand, Scaling, pack, reach
from rapids_slink.report import Report

FIRST_BAND = 2048
GROWTH = 4
FEW_PAIRS, MOST_PAIRS = 2**16, 2**26


class TileSearch:
    """Search among `values` (the columns) for neighbours of `queries` (default: the same points).

    `fused` is whether to use the filter that writes no tiles, where the GPU has it.
    """

    def __init__(
        self,
        values: Any,
        device: Device,
        report: Report,
        queries: Any = None,
        progress: bool = False,
        fused: bool = True,
    ) -> None:
        self.values, self.device, self.report, self.progress = values, device, report, progress
        self.queries = values if queries is None else queries
        self.kernels = device.kernels("neighbors")
        self.space = self.kernels.Workspace()
        xp, n = device.xp, values.shape[0]
        self.order = scattered(n, xp)
        self.scaling = Scaling.of(values, *([] if queries is None else [queries]), xp=xp)
        self.operand = pack(values, self.scaling, self.kernels.FILTER_DTYPE, xp, self.order)
        if queries is None:  # the rows are the columns, found through the inverse of their order
            self.row_operand = self.operand
            self.row_at = xp.empty_like(self.order)
            self.row_at[self.order] = xp.arange(n, dtype="int32")
        else:
            self.row_operand = pack(queries, self.scaling, self.kernels.FILTER_DTYPE, xp)
            self.row_at = xp.arange(queries.shape[0], dtype="int32")
        self.fused = self.kernels.fused_filter(self.operand, self.order) if fused else None
        report.count("neighbors", filter=self.fused.NAME if self.fused else self.kernels.FILTER_NAME)

    def find(self, task: Task) -> Found:
        """The neighbours of a task's rows."""
        xp, m = self.device.xp, task.rows.size
        ids, weights = xp.full((m, task.k), -1, "int32"), xp.full((m, task.k), xp.inf)
        upper = task.upper.copy()
        best = xp.full(int(task.row_group.max()) + 1, xp.inf) if task.shared and m else None
        left = xp.arange(m)
        redone = 0
        filtered = max(16 * task.k, 256) < self.values.shape[0] and task.k <= self.kernels.MAX_LIST
        if filtered:
            left = self._filter(task, left, upper, ids, weights, best, "filter", again=False)
            redone = left.size
            for tier in ("filter", "float64"):
                left = self._filter(task, left, upper, ids, weights, best, tier, again=True)

        def scan(at: Any) -> None:
            rows = task.rows[at]
            ids[at], weights[at] = self.kernels.rerank_all(
                self.queries, self.values, rows, task.row_group[rows], task.column_group, upper[at], task.k
            )

        self.kernels.each(scan, _chunks(left, self.kernels.ROWS))
        certified = m - redone if filtered else 0
        counts = {"rows_certified": certified, "rows_redone": redone, "rows_scanned_exactly": left.size}
        self.report.count("connect" if task.shared else "neighbors", **counts)
        if task.shared:
            drop_late(ids, weights, upper)
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

    def pairs_below(self, component: Any, table: Any) -> tuple[Any, Any, Any] | None:
        """Every pair of different components whose kernel value is at most its components' entry, and maybe others.

        Parameters
        ----------
        component : (n,) int32 array
            From 0 to K - 1.
        table : (K, K) float64 array, symmetric

        Returns
        -------
        src, dst, weight : arrays, or None if there are too many
        """
        xp, kernels, n = self.device.xp, self.kernels, self.values.shape[0]
        order = xp.argsort(component, kind="stable").astype("int32")
        place = self.row_at[order]
        component = component[order]
        on_host = to_host(component)
        none = xp.zeros((), self.operand.error.dtype)
        far = reach(table, none, self.scaling, self.values.shape[1], xp)

        counts: list[int] = []

        def search(a: int) -> Any:
            rows = slice(a, min(a + kernels.ROWS, n))
            capacity = FEW_PAIRS
            while sum(counts) + capacity <= MOST_PAIRS:
                pairs = kernels.new_pairs(capacity)
                for tile in _tiles(slice(a, n), kernels.COLUMNS):
                    if on_host[a] != on_host[tile.stop - 1]:  # sorted: otherwise it is all one component
                        kernels.keep_pairs(
                            self.row_operand.take(place[rows]), self.row_operand.take(place[tile]), a, tile.start,
                            component[rows], component[tile], far, pairs, self.space,
                        )  # fmt: skip
                count = int(pairs.count[0])
                if count <= capacity:
                    counts.append(count)
                    src, dst = order[pairs.at[:count, 0]], order[pairs.at[:count, 1]]
                    return src, dst, kernels.pair_values(self.values, src, dst)
                capacity = count
            return None

        found = kernels.each(search, range(0, n, kernels.ROWS), "bridges", self.progress)
        if any(part is None for part in found):
            return None
        src, dst, weight = (xp.concatenate(parts) for parts in zip(*found, strict=True))
        return src, dst, weight

    def _filter(
        self, task: Task, left: Any, upper: Any, ids: Any, weights: Any, best: Any, tier: str, again: bool
    ) -> Any:
        """One tier over the rows `left` of the task; fills in what it proves and returns the rest."""
        xp, kernels = self.device.xp, self.kernels
        fused = self.fused if tier == "filter" else None
        # In the k-NN graph a row's group is itself: one more candidate is cheaper than to look at every hit's group.
        column_group = task.column_group[self.order] if task.shared else None

        def search(at: Any) -> Any:
            rows = task.rows[at]
            operand, columns = self._tier(rows, tier)
            group = task.row_group[rows]
            bound = upper[at] if best is None else xp.minimum(upper[at], best[group])
            if not again and not bool(xp.isfinite(bound).all()):
                bound = xp.minimum(bound, self._seed(task, rows, group, operand, columns))
            image = fused.prepare_rows(operand) if fused else None
            top = kernels.new_lists(rows.size, task.k)
            complete = xp.ones(rows.size, bool)
            groups = group, task.column_group
            for band in self._bands(again):
                radius = reach(bound, operand.error, self.scaling, self.values.shape[1], xp)
                if fused:
                    candidates = fused.new_candidates(rows.size, task.k, band.stop - band.start)
                    fused.keep(image, band, radius, group, column_group, candidates)
                else:
                    candidates = kernels.new_candidates(rows.size, task.k)
                    for tile in _tiles(band, kernels.COLUMNS):
                        ids_of_tile = self.order[tile]
                        kernels.keep(operand, columns(tile), radius, *groups, ids_of_tile, candidates, self.space)
                complete &= candidates.complete()
                kernels.rerank(self.queries, self.values, rows, candidates, groups, bound, top)
                del candidates  # the next band's need the room
                bound = xp.minimum(bound, top.weights[:, -1])
                if best is not None:
                    kernels.lower_groups(best, group, top.weights)
                    bound = xp.minimum(bound, best[group])
            upper[at] = bound
            done = xp.flatnonzero(complete)
            ids[at[done]], weights[at[done]] = top.ids[done], top.weights[done]
            return at[xp.flatnonzero(~complete)]

        size = self.operand.half_norm.itemsize if tier == "filter" else 8  # of a product: tiles of the same bytes
        chunks = _chunks(left, fused.rows_at_once(task.k) if fused else kernels.ROWS * 4 // size)
        unproven = kernels.each(search, chunks, task.name, self.progress)
        return xp.concatenate(unproven) if unproven else left

    def _seed(self, task: Task, rows: Any, group: Any, operand: Operand, columns: Any) -> Any:
        """A first bound of each row, from the likeliest columns of the first band."""
        n = self.values.shape[0]
        first = slice(0, min(n, max(FIRST_BAND, 32 * task.k)))
        columns = columns(first)
        top = self.kernels.new_lists(rows.size, task.k)
        bound = self.device.xp.full(rows.size, self.device.xp.inf)
        for at in _tiles(slice(0, rows.size), self.kernels.ROWS):
            likely = self.kernels.seed(
                operand.take(at), columns, group[at], task.column_group, self.order[first], task.k, self.space
            )
            part = type(top)(top.ids[at], top.weights[at])
            groups = group[at], task.column_group
            self.kernels.rerank(self.queries, self.values, rows[at], likely, groups, bound[at], part)
        return top.weights[:, -1]

    def _bands(self, again: bool) -> list[slice]:
        n = self.values.shape[0]
        if again:
            return [slice(0, n)]
        ends, end = [], FIRST_BAND
        while end < n:
            ends.append(end)
            end *= self.fused.GROWTH if self.fused else GROWTH
        return [slice(a, b) for a, b in zip([0, *ends], [*ends, n], strict=True)]

    def _tier(self, rows: Any, tier: str) -> tuple[Operand, Any]:
        """The rows' operand and a function from a slice of columns to theirs."""
        if tier == "filter":
            return self.row_operand.take(self.row_at[rows]), self.operand.take
        xp = self.device.xp

        def columns(tile: slice) -> Operand:
            return pack(self.values, self.scaling, "float64", xp, self.order[tile])

        return pack(self.queries, self.scaling, "float64", xp, rows), columns


def scattered(n: int, xp: Any) -> Any:
    """A permutation of n rows of which every leading part is spread evenly over all of them.

    Place i holds row i times a stride near n/φ, modulo n, that shares no factor with n.
    """
    stride = max(1, round(n * 0.6180339887498949))
    while gcd(stride, n) != 1:
        stride += 1
    return (xp.arange(n, dtype="int64") * stride % n).astype("int32")


def _chunks(rows: Any, size: int) -> list[Any]:
    return [rows[a : a + size] for a in range(0, rows.size, size)]


def _tiles(band: slice, size: int) -> list[slice]:
    return [slice(a, min(a + size, band.stop)) for a in range(band.start, band.stop, size)]

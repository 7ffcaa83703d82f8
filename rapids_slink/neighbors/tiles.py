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

from rapids_slink.device import Device
from rapids_slink.neighbors.contract import Found, Task
from rapids_slink.neighbors.operand import Operand, Scaling, pack, reach
from rapids_slink.report import Report

FIRST_BAND = 2048
GROWTH = 4


class TileSearch:
    """Search among `values` (the columns) for neighbours of `queries` (default: the same points).

    Attributes
    ----------
    name : str
        The filter's name, for reports.
    """

    def __init__(
        self, values: Any, device: Device, report: Report, queries: Any = None, progress: bool = False
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
        report.count("neighbors", filter=self.kernels.FILTER_NAME)

    def find(self, task: Task) -> Found:
        """The neighbours of a task's rows."""
        xp, m = self.device.xp, task.rows.size
        ids, weights = xp.full((m, task.k), -1, "int32"), xp.full((m, task.k), xp.inf)
        upper = task.upper.copy()
        best = xp.full(int(task.row_group.max()) + 1, xp.inf) if task.shared and m else None
        left = xp.arange(m)
        redone = 0
        if max(16 * task.k, 256) < self.values.shape[0] and task.k <= self.kernels.MAX_LIST:
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
        if not task.shared:
            self.report.count("neighbors", rows_redone=redone, rows_scanned_exactly=left.size)
        # What a row listed before another row of its group lowered the bound need not be its nearest.
        late = weights > upper[:, None]
        ids[late], weights[late] = -1, xp.inf
        return Found(ids, weights, upper)

    def _filter(
        self, task: Task, left: Any, upper: Any, ids: Any, weights: Any, best: Any, tier: str, again: bool
    ) -> Any:
        """One tier over the rows `left` of the task; fills in what it proves and returns the rest."""
        xp, kernels = self.device.xp, self.kernels

        def search(at: Any) -> Any:
            rows = task.rows[at]
            operand, columns = self._tier(rows, tier)
            group = task.row_group[rows]
            bound = upper[at]
            if best is not None:
                bound = xp.minimum(bound, best[group])
            if not again and not bool(xp.isfinite(bound).all()):
                bound = xp.minimum(bound, self._seed(task, rows, group, operand, columns))
            top = kernels.new_lists(rows.size, task.k)
            complete = xp.ones(rows.size, bool)
            for band in self._bands(again):
                candidates = kernels.new_candidates(rows.size, task.k)
                radius = reach(bound, operand.error, self.scaling, self.values.shape[1], xp)
                for tile in _tiles(band, kernels.COLUMNS):
                    kernels.keep(
                        operand, columns(tile), radius, group, task.column_group, self.order[tile], candidates, self.space
                    )
                complete &= candidates.count <= candidates.capacity
                kernels.rerank(self.queries, self.values, rows, candidates, bound, top)
                bound = xp.minimum(bound, top.weights[:, -1])
                if best is not None:
                    kernels.scatter_min(best, group, top.weights[:, 0])
                    bound = xp.minimum(bound, best[group])
            upper[at] = bound
            done = xp.flatnonzero(complete)
            ids[at[done]], weights[at[done]] = top.ids[done], top.weights[done]
            return at[xp.flatnonzero(~complete)]

        unproven = kernels.each(search, _chunks(left, kernels.ROWS), task.name, self.progress)
        return xp.concatenate(unproven) if unproven else left

    def _seed(self, task: Task, rows: Any, group: Any, operand: Operand, columns: Any) -> Any:
        """A first bound of each row, from the likeliest columns of the first band."""
        n = self.values.shape[0]
        first = slice(0, min(n, max(FIRST_BAND, 32 * task.k)))
        candidates = self.kernels.seed(
            operand, columns(first), group, task.column_group, self.order[first], task.k, self.space
        )
        top = self.kernels.new_lists(rows.size, task.k)
        bound = self.device.xp.full(rows.size, self.device.xp.inf)
        self.kernels.rerank(self.queries, self.values, rows, candidates, bound, top)
        return top.weights[:, -1]

    def _bands(self, again: bool) -> list[slice]:
        n = self.values.shape[0]
        if again:
            return [slice(0, n)]
        ends, end = [], FIRST_BAND
        while end < n:
            ends.append(end)
            end *= GROWTH
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

    Row i stands at i times a stride near n/φ that shares no factor with n.
    """
    stride = max(1, round(n * 0.6180339887498949))
    while gcd(stride, n) != 1:
        stride += 1
    return (xp.arange(n, dtype="int64") * stride % n).astype("int32")


def _chunks(rows: Any, size: int) -> list[Any]:
    return [rows[a : a + size] for a in range(0, rows.size, size)]


def _tiles(band: slice, size: int) -> list[slice]:
    return [slice(a, min(a + size, band.stop)) for a in range(band.start, band.stop, size)]

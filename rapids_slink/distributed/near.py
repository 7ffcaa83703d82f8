"""Blocks of a Dask collection that are parts of one tree of cuts: the rows of a block are near each other.

    sample ──cells_of_sample──▶ cells ──cells_of_rows──▶ each row's cell ──make_near_blocks──▶ blocks of whole cells

The tree of cuts is that of a search in tiles (neighbors/tiles/order.py), of a sample. Its leaves are cells, and a block
is as many cells in their order as have about n / b rows. What two blocks may need of each other is in facing.py.

Nothing about exactness rests on the sample, the cuts or the blocks. Rows of a block ascend by their numbers among all
rows, and so do those of several blocks in one array: the total order is that of all rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
from distributed import Future

from rapids_slink.distributed.cluster import Run, owners_of_blocks, work
from rapids_slink.distributed.facing import (
    MAX_NEAR_BLOCKS,
    bounds_to_hubs,
    choose_strays,
    hubs_of_cells,
    minimax,
    reach_of_rows,
    tree_of_sample,
)
from rapids_slink.distributed.points import Blocks, Partitions
from rapids_slink.metrics import Rows
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.tiles.order import Axes, kernels
from rapids_slink.runtime.device import Array, Device, device_of, is_on_gpu, resolve, to_host
from rapids_slink.settings import Settings

#: Rows of the sample, by device; it has one row in `MIN_STEP` at most.
SAMPLE, MIN_STEP = {"cpu": 2**13, "cuda": 2**16}, 4
#: Cells of a block, and rows of the sample that a block has at least.
CELLS, MIN_SAMPLED = 32, 2**7
#: How many times its share of the rows the largest block may have.
MAX_UNEVEN = 2


@dataclass(frozen=True)
class Near:
    """Cells of near rows, and blocks of them."""

    route: Future  # by which a row's cell is found
    sampled: np.ndarray  # (s,) int64, the numbers of the sample's rows among all, ascending
    block_of_sampled: np.ndarray  # (s,) int64
    block_of_cell: np.ndarray  # (cells,) int32
    hubs: np.ndarray  # (cells,) int32, the number of the row that is each cell's hub
    between: tuple[np.ndarray, np.ndarray, np.ndarray]  # the edges of the hubs' tree: see `bounds_to_hubs`
    strays: float  # the share of the rows that are strays

    @property
    def count(self) -> int:
        """The number of blocks."""
        return int(self.block_of_cell.max()) + 1


def serves(settings: Settings) -> bool:
    """Whether boxes bound the distances of the metric."""
    metric = settings.metric
    return metric.boxes and metric.space is None and metric.rows in (Rows.GIVEN, Rows.SPHERE)


def plan_near(run: Run, points: Partitions, count: int, always: bool = False) -> Near | None:
    """About `count` blocks of near rows; None if they do not serve, or if others take less time.

    The latter is not asked if they are `always` better: of few features, in several blocks for lack of memory.
    """
    settings = points.settings
    n, sizes = points.n_rows, np.array(points.layout.sizes)
    size = min(n // MIN_STEP, SAMPLE[settings.device])
    if not serves(settings) or not 2 <= count <= MAX_NEAR_BLOCKS or size < count * MIN_SAMPLED:
        return None
    sampled = np.unique(np.random.default_rng(0).integers(0, n, size))
    stops = np.cumsum(sizes)
    part_of = np.searchsorted(stops, sampled, side="right")
    pieces: list[Future] = []
    order: list[np.ndarray] = []
    for g, (group, read, holder) in enumerate(points.read):
        wanted = [(i, sampled[part_of == p] - (stops[p] - sizes[p])) for i, p in enumerate(group)]
        order.extend(sampled[part_of == p] for p in group)
        pieces.append(run.task("sample", _some_rows, read, wanted, index=(g,), worker=holder))
    rank = np.argsort(np.concatenate(order))
    cells = run.task("cells", cells_of_sample, settings, pieces, rank, points.dtype, sampled, (count, always))
    (plan,) = run.gather([run.task("cells-plan", getitem, cells, "plan")])
    if plan is None:
        return None
    return Near(route=run.task("route", getitem, cells, "route"), sampled=sampled, **plan)


def _some_rows(part: dict[str, Any], wanted: list[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    values = [(part["values"][i], rows) for i, rows in wanted if rows.size]
    return [to_host(some[device_of(some).asarray(rows)]) for some, rows in values]


def cells_of_sample(
    settings: Settings,
    pieces: list[list[np.ndarray]],
    rank: np.ndarray,
    dtype: str,
    sampled: np.ndarray,
    how: tuple[int, bool],
) -> dict[str, Any]:
    """The ``route`` by which a row's cell is found, and the rest of `Near`, ``plan``: None as `plan_near` says."""
    device = resolve(settings.device)
    values = np.concatenate([rows for piece in pieces for rows in piece])[rank].astype(dtype, copy=False)
    both: dict[str, Any] = work(_cells_of_sample, device, settings, device.asarray(values), sampled, how)
    return both


def _cells_of_sample(
    device: Device, settings: Settings, values: Array, sampled: np.ndarray, how: tuple[int, bool]
) -> dict[str, Any]:
    (count, always), metric, s = how, settings.metric, len(values)
    rows = metric_rows(metric, values, device, alone=False)
    axes, of = Axes.of(rows, device), kernels(device)
    places = axes.places(rows)[0]
    leaf = s // (CELLS * count)
    cuts = of.cut(places, s, leaf, max(2, leaf // 4))
    begins, cell, members = np.unique(to_host(of.leaves(cuts, places)), return_inverse=True, return_counts=True)
    cell_of_leaf = np.zeros(s + 1, np.int32)
    cell_of_leaf[begins] = np.arange(begins.size)
    middle = np.cumsum(members) - members / 2
    block_of_cell = np.unique((middle * count / s).astype(np.int32), return_inverse=True)[1].astype(np.int32)
    block = block_of_cell[cell]
    shares, nothing = np.bincount(block) / s, {"plan": None}
    if shares.size < 2 or shares.max() > MAX_UNEVEN / count:
        return nothing
    edges = tree_of_sample(device, settings, values, None)
    hub = hubs_of_cells(edges, cell, begins.size)
    bound, own, between = bounds_to_hubs(edges, s, hub, device)
    heaviest, cells = minimax(begins.size, *between), device.asarray(cell.astype(np.int32))
    of_rows = rows, cells, reach_of_rows(bound, own, cells, heaviest), device.asarray(block)
    strays = choose_strays(*of_rows, heaviest, block_of_cell, count, always, metric, device)
    if strays is None:
        return nothing
    route = (axes.centre, axes.unit, axes.axes, axes.departure), tuple(cuts)[:3], cell_of_leaf
    plan = {
        "block_of_sampled": block,
        "block_of_cell": block_of_cell,
        "hubs": sampled[hub].astype(np.int32),
        "between": between,
        "strays": strays,
    }
    return {"route": route, "plan": plan}


def make_near_blocks(run: Run, points: Partitions, near: Near) -> Blocks:
    """The points in blocks of near rows, in ascending order of their numbers."""
    settings, count = points.settings, near.count
    device = settings.device if points.layout.output.gpu else "cpu"
    stops = np.cumsum(points.layout.sizes)
    starts = (stops - points.layout.sizes).tolist()
    held = [Counter[int]() for _ in range(count)]
    numbers: dict[str | None, int] = {worker: w for w, worker in enumerate(run.workers)}
    group_of_part = {p: g for g, (group, *_) in enumerate(points.read) for p in group}
    group_of_sampled = [group_of_part[p] for p in np.searchsorted(stops, near.sampled, side="right").tolist()]
    for g, b in zip(group_of_sampled, near.block_of_sampled.tolist(), strict=True):
        if (w := numbers.get(points.read[g][2])) is not None:
            held[b][w] += 1
    owners = owners_of_blocks(held, max(1, len(run.workers)), count * (count - 1) // 2)
    by_holder = defaultdict[str | None, list[int]](list)
    for g, (group, _, holder) in enumerate(points.read):
        if any(points.layout.sizes[p] for p in group):
            by_holder[holder].append(g)
    order = [p for gs in by_holder.values() for g in gs for p in points.read[g][0] if points.layout.sizes[p]]
    pieces: list[list[Future]] = [[] for _ in range(count)]
    for h, (holder, gs) in enumerate(by_holder.items()):
        parts, firsts = [points.read[g][1] for g in gs], [[starts[p] for p in points.read[g][0]] for g in gs]
        cells = run.task("route", cells_of_rows, settings, near.route, parts, index=(h,), worker=holder)
        for b in range(count):
            through_host = holder != run.worker(owners[b]) and run.copies_through_host(settings)
            arguments = parts, cells, near.block_of_cell == b, firsts, through_host
            pieces[b].append(run.task("block-piece", _near_piece, *arguments, index=(b, h), worker=holder))
    keepers = [run.worker(owner) for owner in owners]
    blocks = [
        run.task("block", _near_block, pieces[b], order, points.dtype, device, index=(b,), worker=keepers[b])
        for b in range(count)
    ]
    rows, row_numbers, row_cells, totals = (
        [run.task(f"block-{i}", getitem, block, i, index=(b,), worker=keepers[b]) for b, block in enumerate(blocks)]
        for i in range(4)
    )
    sizes, sums = zip(*run.gather(totals), strict=True)
    n = points.n_rows
    if sum(sizes) != n or sum(sums) != n * (n - 1) // 2 or not all(sizes):
        raise RuntimeError("workers do not agree about the cells of rows: please report this")
    return Blocks(rows, np.cumsum([0, *sizes]).tolist(), owners, settings, row_numbers, row_cells)


def cells_of_rows(settings: Settings, route: Any, parts: list[dict[str, Any]]) -> list[list[Any]]:
    """The cell of each row of partitions, int32, where their values are; None of a partition without rows."""
    device = resolve(settings.device)

    def find(values: Array) -> Any:
        cells = work(_cells_of_rows, device, settings, route, device.asarray(values))
        return cells if is_on_gpu(values) else to_host(cells)

    return [[None if values is None else find(values) for values in part["values"]] for part in parts]


def _cells_of_rows(device: Device, settings: Settings, route: Any, values: Array) -> Array:
    (centre, unit, axes, departure), cuts, cell_of_leaf = route
    of = kernels(device)
    placing = Axes(device.asarray(centre), unit, device.asarray(axes), departure, device)
    places = placing.places(metric_rows(settings.metric, values, device, alone=False))[0]
    leaf = of.leaves(of.Cuts(*map(device.asarray, cuts), None), places)
    return device.asarray(cell_of_leaf)[leaf]


def _near_piece(
    parts: list[dict[str, Any]],
    cells: list[list[Any]],
    is_inside: np.ndarray,
    firsts: list[list[int]],
    through_host: bool,
) -> list[Any]:
    pieces = []
    for part, of_part, first_rows in zip(parts, cells, firsts, strict=True):
        for values, cell, first in zip(part["values"], of_part, first_rows, strict=True):
            if values is not None:
                xp = device_of(values).xp
                at = xp.flatnonzero(xp.asarray(is_inside)[cell])
                piece = values[at], (at + first).astype("int32"), cell[at]
                pieces.append(tuple(map(to_host, piece)) if through_host else piece)
    return pieces


def _near_block(
    pieces: list[list[Any]], order: list[int], dtype: str, device: str
) -> tuple[Any, Any, Any, tuple[int, int]]:
    """The rows of the pieces, their numbers and their cells; how many there are, and the numbers' sum."""
    xp, flat = resolve(device).xp, [piece for part in pieces for piece in part]
    rows, numbers, cells = (xp.concatenate([xp.asarray(flat[i][part]) for i in np.argsort(order)]) for part in range(3))
    return rows.astype(dtype, copy=False), numbers, cells, (len(rows), int(numbers.sum(dtype="int64")))

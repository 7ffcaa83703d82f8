"""All pairs of rows within a distance, of blocks: each two blocks that may be near each other meet once.

    blocks ──pairs_of_block──▶ the pairs of two blocks ──joined_pairs──▶ a partition for each block of rows

Blocks that are farther apart than the distance do not meet; see near.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Future

from rapids_slink.distributed.cluster import Run, on_worker, with_bytes
from rapids_slink.distributed.points import Partitions, block_starts, make_blocks, read_points
from rapids_slink.distributed.trees import Boxes
from rapids_slink.neighbors.rows import check_zeros_between
from rapids_slink.neighbors.within import Found, NearPairs, PairPoints, PairTask, estimate_pairs, room_for_pairs
from rapids_slink.points import Points
from rapids_slink.points.check import check_same_columns
from rapids_slink.points.output import OutputKind, is_collection
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import frame_of
from rapids_slink.runtime.memory import check_memory
from rapids_slink.settings import Settings

#: Rows of a block at least, and blocks of a device that meet each other.
MIN_BLOCK_ROWS, BLOCKS_A_DEVICE = {"cpu": 2**12, "cuda": 2**17}, 2


def near_blocks(
    run: Run, X: Any, Y: Any, task: PairTask, device: str, work: Callable[..., Any]
) -> tuple[list[list[Future]], Settings]:
    """The results of `work` for each block of rows with the blocks that may be near it, in their order."""
    metric = task.metric
    if metric.missing:
        raise ValueError("missing= takes points in one piece, not a Dask collection")
    distance = float(task.distances[-1])
    settings = with_bytes(Settings(metric, device, task.memory_limit, max_distance=distance))
    if not is_collection(X):
        raise TypeError("pairs with a Dask Y take a Dask X")
    points = read_points(run, X, settings)
    task = replace(task, metric=points.settings.metric)  # of known columns
    if Y is None:
        points = points.check_zeros()
        starts = block_starts(points.n_rows, _count(run, points))
        blocks, boxes = make_blocks(run, points, len(starts) - 1), Boxes.of(run, points)
        every = len(blocks)
        met = {(b, b) for b in range(every)} | {(a, b) for a in range(every) for b in range(a + 1, every)}
        if boxes is not None:
            met = {(b, b) for b in range(every)} | {pair for pair in boxes.pairs(starts) if len(pair) == 2}
        others = blocks
    else:
        more = read_points(run, Y, settings, name="Y")
        check_same_columns((points.n_features, points.names), (more.n_features, more.names))
        check_zeros_between(points.zeros, more.zeros, metric)
        both = np.result_type(points.dtype, more.dtype).str
        blocks, others = (
            make_blocks(run, replace(part, dtype=both), _count(run, part), name)
            for part, name in ((points, "query"), (more, "block"))
        )
        met = {(a, b) for a in range(len(blocks)) for b in range(len(others))}
    results: list[list[Future]] = []
    for a in range(len(blocks)):
        row = []
        for b in sorted(b for first, b in met if first == a):
            second = None if Y is None and a == b else others.rows[b]
            numbers = blocks.starts[a], others.starts[b]
            index, worker = (a, b), run.worker(blocks.owners[a])
            row.append(
                run.task(
                    "near", work, blocks.settings, task, blocks.rows[a], second, numbers, index=index, worker=worker
                )
            )
        results.append(row)
    run.wait([part for row in results for part in row])
    return results, blocks.settings


def _count(run: Run, points: Partitions) -> int:
    """The number of blocks: a few for each device, unless they would be small."""
    name = points.settings.device
    return max(1, min(BLOCKS_A_DEVICE * run.devices(name == "cuda"), points.n_rows // MIN_BLOCK_ROWS[name]))


def _search(device: Device, task: PairTask, rows: Array, others: Array) -> NearPairs:
    x, y = (
        Points(part, None, None, OutputKind(False, device.is_gpu))
        for part in (rows, rows if others is None else others)
    )
    given = PairPoints(x, y, (x.values, y.values), others is None)
    m, _, d = given.shape
    estimate = estimate_pairs(given.shape, rows.dtype.itemsize, given.is_one, task.metric, device)
    check_memory(device, estimate, f"a block of {counted(m, 'row')} of {counted(d, 'feature')}")
    return NearPairs(given, task, device)


@on_worker
def pairs_of_block(
    device: Device, settings: Settings, task: PairTask, rows: Array, others: Array, starts: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """The pairs of two blocks, None for one with itself, that begin at these rows: src, dst and distance."""
    near = _search(device, task, rows, others)
    every = slice(0, len(rows))
    found: Found = near.find(every, room_for_pairs(device))
    if found.src is None:
        near.refuse(found.count, every, room_for_pairs(device))
    return found.src + np.int32(starts[0]), found.dst + np.int32(starts[1]), found.weight


@on_worker
def count_of_block(
    device: Device, settings: Settings, task: PairTask, rows: Array, others: Array, starts: tuple[int, int]
) -> list[int]:
    """The number of pairs of two blocks within each distance."""
    counts: list[int] = _search(device, task, rows, others).count(slice(0, len(rows))).tolist()
    return counts


@on_worker
def joined_pairs(device: Device, settings: Settings, parts: list[tuple[Array, Array, Array]]) -> Any:
    """The frame of the pairs of a block of rows: those with later blocks follow, row by row."""
    xp = device.xp
    columns = [xp.concatenate(column) for column in zip(*parts, strict=True)]
    order = xp.argsort(columns[0], kind="stable")  # dst ascends from part to part
    return frame_of(
        device, {name: column[order] for name, column in zip(("src", "dst", "weight"), columns, strict=True)}
    )

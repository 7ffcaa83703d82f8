"""Pairs within a distance of Dask collections: each two blocks that may have near rows meet once.

blocks ──pairs_within──▶ blocks that may be near ──pairs_of_block, count_of_block──▶ their pairs, or counts
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from distributed import Future

from rapids_slink.dendrogram.cutting import number_of_clusters
from rapids_slink.distributed.cluster import Run, on_worker, with_bytes
from rapids_slink.distributed.points import (
    Blocks,
    Partitions,
    block_starts,
    extremes_of_partitions,
    make_blocks,
    model_attributes,
    read_points,
    without_values,
)
from rapids_slink.forced import forced
from rapids_slink.metrics import PRECOMPUTED, surrogate_bound
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import check_zeros_between
from rapids_slink.neighbors.within import NearPairs, PairPoints, PairTask, estimate_pairs
from rapids_slink.points import Points
from rapids_slink.points.check import check_same_columns
from rapids_slink.points.output import EDGE_TYPES, OutputKind, frame_of, is_collection
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.memory import DeviceMemoryError, check_memory
from rapids_slink.settings import DensityRule, Settings
from rapids_slink.spanning_tree import kernels as tree_kernels
from rapids_slink.spanning_tree.boxes import CoreRows, most_pairs

#: For pairs within a distance: the least number of rows of a block, and the number of blocks for each device.
MIN_BLOCK_ROWS, BLOCKS_A_DEVICE = {"cpu": 2**12, "cuda": 2**17}, 2


def near_blocks(
    run: Run, X: Any, Y: Any, task: PairTask, device: str, work: Callable[..., Any]
) -> tuple[list[list[Future]], Settings]:
    """Return the results of `work` for each block of X with each block that may be near it, and the settings.

    The results are futures, by block of X, in the order of the other blocks.
    """
    metric = task.metric
    if metric.missing:
        raise ValueError("missing= takes points in one piece, not a Dask collection")
    distance = float(task.distances[-1])
    settings = with_bytes(Settings(metric, device, task.memory_limit, max_distance=distance))
    if not is_collection(X):
        raise TypeError("pairs with a Dask Y take a Dask X")
    points = read_points(run, X, settings)
    task = replace(task, metric=points.settings.metric)  # now for known columns
    if Y is None:
        blocks, met = near_blocks_of(run, points.check_zeros())
        others = blocks
    else:
        more = read_points(run, Y, settings, name="Y")
        blocks, others = blocks_of_both(run, points, more, _count_near_blocks)
        met = {(a, b) for a in range(len(blocks)) for b in range(len(others))}
    return meet(run, blocks, None if Y is None else others, met, work, task), blocks.settings


def near_blocks_of(run: Run, points: Partitions) -> tuple[Blocks, set[tuple[int, int]]]:
    """Return the points in blocks, and the pairs of blocks that may be near, among them each block with itself."""
    starts = block_starts(points.n_rows, _count_near_blocks(run, points))
    blocks, pairs = make_blocks(run, points, len(starts) - 1), pairs_within(run, points, starts)
    return blocks, {*pairs, *((b, b) for b in range(len(blocks)))}


def meet(
    run: Run, blocks: Blocks, others: Blocks | None, met: set[tuple[int, int]], work: Callable[..., Any], detail: Any
) -> list[list[Future]]:
    """Return the results of `work` for each block with the others that it meets, in order, as futures.

    `others` is None if the blocks meet those of their own set. `work` gets the `detail`, the rows of both blocks and
    the numbers of their first rows; the second rows are None for a block with itself.
    """
    results: list[list[Future]] = []
    second = blocks if others is None else others
    for a, (rows, owner) in enumerate(zip(blocks.rows, blocks.owners, strict=True)):
        row = []
        for b in sorted(b for first, b in met if first == a):
            other = None if others is None and a == b else second.rows[b]
            starts, worker = (blocks.starts[a], second.starts[b]), run.worker(owner)
            row.append(
                run.task("near", work, blocks.settings, detail, rows, other, starts, index=(a, b), worker=worker)
            )
        results.append(row)
    run.wait([part for row in results for part in row])
    return results


def blocks_of_both(
    run: Run, queries: Partitions, points: Partitions, count: Callable[[Run, Partitions], int]
) -> tuple[Blocks, Blocks]:
    """Return the blocks of X and of Y, of one type; raise unless columns agree and all distances are defined."""
    check_same_columns((queries.n_features, queries.names), (points.n_features, points.names))
    check_zeros_between(queries.zeros, points.zeros, queries.settings.metric)
    both = np.result_type(queries.dtype, points.dtype).str
    x, y = (
        make_blocks(run, replace(part, dtype=both), count(run, part), name)
        for part, name in ((queries, "query"), (points, "block"))
    )
    return x, y


def _count_near_blocks(run: Run, points: Partitions) -> int:
    """Return the number of blocks: a few for each device, unless they would be small."""
    name = points.settings.device
    blocks = min(BLOCKS_A_DEVICE * run.devices(name == "cuda"), points.n_rows // MIN_BLOCK_ROWS[name])
    return forced().blocks or max(1, blocks)


def near_pairs_of(device: Device, task: PairTask, rows: Array, others: Array) -> NearPairs:
    """Return the pairs of two blocks, or of one if `others` is None; raise unless the search fits into memory."""
    x, y = (
        Points(part, None, None, OutputKind(False, device.is_gpu))
        for part in (rows, rows if others is None else others)
    )
    both = PairPoints(x, y, (x.values, y.values), others is None)
    m, _, d = both.shape
    estimate = estimate_pairs(both.shape, rows.dtype.itemsize, both.is_one, task.metric, device)
    check_memory(device, estimate, f"a block of {counted(m, 'row')} of {counted(d, 'feature')}")
    return NearPairs(both, task, device)


@on_worker
def pairs_of_block(
    device: Device, settings: Settings, task: PairTask, rows: Array, others: Array, starts: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """Return src, dst and distance of the pairs of two blocks, whose rows are numbered from `starts` on."""
    some = near_pairs_of(device, task, rows, others).find_all(slice(0, len(rows)))
    return some.src + np.int32(starts[0]), some.dst + np.int32(starts[1]), some.weight


@on_worker
def count_of_block(
    device: Device, settings: Settings, task: PairTask, rows: Array, others: Array, starts: tuple[int, int]
) -> list[int]:
    """Return the number of pairs of two blocks within each distance."""
    return near_pairs_of(device, task, rows, others).count(slice(0, len(rows))).tolist()


@on_worker
def frame_of_pairs(device: Device, settings: Settings, parts: list[tuple[Array, Array, Array]]) -> Any:
    """Return the frame of the pairs of a block of rows, row by row; those with later blocks follow."""
    xp = device.xp
    columns = {name: xp.concatenate([part[i] for part in parts]) for i, name in enumerate(EDGE_TYPES)}
    order = xp.argsort(columns["src"], kind="stable")  # dst ascends from part to part
    return frame_of(device, {name: column[order] for name, column in columns.items()})


def pairs_within(run: Run, points: Partitions, starts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of blocks that may have points within `max_distance`, by the box of each block.

    These are all pairs if there is no such distance or if boxes do not bound the metric's distances. `starts` has the
    first row number of each block, then the number of rows.
    """
    settings, sizes = points.settings, np.array(points.layout.sizes)
    metric, distance, pairs = settings.metric, settings.max_distance, list(combinations(range(len(starts) - 1), 2))
    if not pairs or distance is None or not metric.boxes or metric.rows != "given":
        return pairs
    order = [p for group, *_ in points.read for p in group if sizes[p]]
    extremes = np.array(extremes_of_partitions(run, points.read))[np.argsort(order)]
    last = np.cumsum(sizes)[sizes > 0]
    first, boxes = last - sizes[sizes > 0], []
    for start, stop in pairwise(starts):
        inside = extremes[(first < stop) & (last > start)]
        boxes.append((inside[:, 0].min(axis=0), inside[:, 1].max(axis=0)))
    gaps = [np.maximum(boxes[b][0] - boxes[a][1], boxes[a][0] - boxes[b][1]) for a, b in pairs]
    # A gap is the difference of two points, no farther apart than any two of the boxes: rounding is monotone.
    corners = np.maximum(np.nextafter([np.zeros_like(gaps[0]), *gaps], -np.inf), 0)
    ids = np.arange(len(corners), dtype=np.int32)
    weight = kernels(CPU).pair_distances(corners, np.zeros_like(ids), ids, metric)[1:]
    max_weight = surrogate_bound(metric, distance, points.n_features)
    return [pair for pair, w in zip(pairs, weight, strict=True) if w <= max_weight]


# --------------------------------------------------------------------------------------------------------------- DBSCAN
#
# What the pairs of each two blocks tell of core rows is put together on one worker:
#
# blocks that may be near ──CoreRows──▶ weights, united rows, other pairs ──▶ labels ──▶ partitions


def check_settings(settings: Settings) -> None:
    """Raise ValueError for settings that a Dask collection does not take."""
    if settings.metric is PRECOMPUTED:
        raise ValueError("metric='precomputed' takes a matrix in one piece, not a Dask collection")
    if settings.metric.missing:  # rows without a common feature are looked for among all rows
        raise ValueError("missing= takes points in one piece, not a Dask collection")
    one_device_settings = {
        "prediction_data=True": settings.prediction_data,
        "store_centers": settings.store_centers is not None,
        "sample_weight": settings.weights is not None,
    }
    if refused := [name for name, asked in one_device_settings.items() if asked]:
        raise ValueError(f"{refused[0]} is for rows on one device, and X is a Dask collection")


def fit_dbscan(X: Any, settings: Settings, rule: DensityRule) -> dict[str, Any]:
    """Return the attributes of a `DBSCAN` fitted to a Dask collection; see `dbscan._fit`."""
    check_settings(settings)
    if settings.groups is not None:
        raise ValueError("groups of DBSCAN are for rows on one device, and X is a Dask collection")
    report = Report(device="", metric=settings.metric.name, way="pairs")
    with Run() as run:
        with report.stage("input", CPU):
            settings = replace(with_bytes(settings), max_distance=rule.eps)
            points = read_points(run, X, settings).check_zeros()
            settings, n = points.settings, points.n_rows
            report["device"] = settings.device
        with report.stage("pairs", CPU):
            blocks, met = near_blocks_of(run, points)
            parts = meet(run, blocks, None, met, _core_rows_of_blocks, rule)
            labelled = run.task("labels", _label, settings, rule, [part for row in parts for part in row], n)
        points = points.without_rows()
        del blocks, parts
        report.count("pairs", pairs_of_blocks=len(met))
        fitted = model_attributes(run, labelled, points, report)
    others = "n_leaves_", "n_connected_components_"  # of a tree
    return {name: value for name, value in fitted.items() if name.endswith("_") and name not in others}


@on_worker
def _core_rows_of_blocks(
    device: Device, settings: Settings, rule: DensityRule, rows: Array, others: Array, starts: tuple[int, int]
) -> dict[str, Any]:
    """Return what the pairs of two blocks tell of their rows, which are numbered from `starts` on."""
    xp, m = device.xp, len(rows)
    near, between = near_pairs_of(device, PairTask.of(settings, rule.eps), rows, others), others is not None
    ids = xp.arange(starts[0], starts[0] + m, dtype="int32")
    if between:
        ids = xp.concatenate((ids, xp.arange(starts[1], starts[1] + len(others), dtype="int32")))
    told = CoreRows(xp.ones(ids.size), rule.min_samples, device)
    for src, dst, _ in near.parts(most_pairs(ids.size, device)):
        told.add(src, dst + xp.int32(m) if between else dst)
    if told.kept is None:
        raise DeviceMemoryError(f"not enough memory for the pairs of {ids.size:,} rows that may be core: take fewer")
    united = xp.flatnonzero(told.parent != xp.arange(ids.size, dtype="int32"))
    pairs = united, told.parent[united]
    return {
        "ids": ids,
        "weight": told.total - 1,
        "united": [ids[end] for end in pairs],
        "kept": [ids[end] for end in told.kept],
    }


@on_worker
def _label(
    device: Device, settings: Settings, rule: DensityRule, parts: list[dict[str, Any]], n: int
) -> dict[str, Any]:
    """Return the attributes of n rows, from what the pairs of all blocks tell."""
    xp = device.xp
    rows = CoreRows(xp.ones(n), rule.min_samples, device)
    for part in parts:
        rows.total[part["ids"]] += part["weight"]
        tree_kernels(device).unite_pairs(rows.parent, part["united"][0], part["united"][1])
    rows.kept = xp.concatenate([part["kept"][0] for part in parts]), xp.concatenate([part["kept"][1] for part in parts])
    labels = rows.labels(lambda: [])
    return {
        "labels_": without_values(n, device).labels(labels),
        "n_clusters_": number_of_clusters(labels),
        "core_sample_indices_": to_host(xp.flatnonzero(rows.is_core)),
    }

"""DBSCAN of a Dask collection: what the pairs of each two blocks tell of core rows, put together on one worker.

blocks that may be near ──CoreRows──▶ weights, united rows, other pairs ──▶ labels ──▶ partitions
"""

from dataclasses import replace
from time import perf_counter
from typing import Any

from rapids_slink.dendrogram.cutting import number_of_clusters
from rapids_slink.density import DensityRule
from rapids_slink.distributed.cluster import Run, on_worker, with_bytes
from rapids_slink.distributed.points import attributes, model_attributes, read_points, without_values
from rapids_slink.distributed.within import meet, near_blocks_of, near_pairs_of
from rapids_slink.metrics import PRECOMPUTED
from rapids_slink.neighbors.within import PairTask
from rapids_slink.pipeline import size_attributes
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.memory import DeviceMemoryError
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import kernels
from rapids_slink.spanning_tree.boxes import CoreRows, most_pairs


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
    """Return the attributes of a `DBSCAN` fitted to a Dask collection; see `density.fit`."""
    check_settings(settings)
    if settings.groups is not None:
        raise ValueError("groups of DBSCAN are for rows on one device, and X is a Dask collection")
    report, start = Report(device="", metric=settings.metric.name, way="pairs"), perf_counter()
    with Run() as run:
        with report.stage("input", CPU):
            settings = replace(with_bytes(settings), max_distance=rule.eps)
            points = read_points(run, X, settings).check_zeros()
            settings, layout, n = points.settings, points.layout, points.n_rows
            sizes = size_attributes(n, points.n_features, 1, points.names)
            report["device"] = settings.device
        with report.stage("pairs", CPU):
            blocks, met = near_blocks_of(run, points)
            parts = meet(run, blocks, None, met, _core_rows_of_blocks, rule)
            labelled = run.task("labels", _label, settings, rule, [part for row in parts for part in row], n)
        del points, blocks, parts
        fitted = attributes(run, labelled, layout)
        report.count("pairs", pairs_of_blocks=len(met))
        report.count("cluster", **run.counts())
    fitted |= {name: value for name, value in sizes.items() if "feature" in name}
    fitted = model_attributes(fitted, layout, report, start)
    return {name: value for name, value in fitted.items() if name.endswith("_")}


@on_worker
def _core_rows_of_blocks(
    device: Device, settings: Settings, rule: DensityRule, rows: Array, others: Array, starts: tuple[int, int]
) -> dict[str, Any]:
    """Return what the pairs of two blocks tell of their rows, which are numbered from `starts` on.

    `others` is None for the pairs within one block.
    """
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
        kernels(device).join_pairs(rows.parent, part["united"][0], part["united"][1])
    rows.kept = xp.concatenate([part["kept"][0] for part in parts]), xp.concatenate([part["kept"][1] for part in parts])
    labels = rows.labels(lambda: [])
    return {
        "labels_": without_values(n, device).labels(labels),
        "n_clusters_": number_of_clusters(labels, None),
        "core_sample_indices_": to_host(xp.flatnonzero(rows.is_core)),
    }

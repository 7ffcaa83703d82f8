"""Dask collections: points, edges and linkages in partitions, on the cluster of the current client.

    partitions ──▶ blocks ──▶ a tree for each pair of blocks ──▶ one tree ──▶ linkage, labels ──▶ partitions
    points.py                 trees.py (search.py for cores)     forest.py   one worker          collections.py

Whatever the partitions and the workers are, the results have the bits of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from distributed import Future

from rapids_slink.dendrogram import build_linkage
from rapids_slink.dendrogram.cutting import COLUMNS, cut_frame
from rapids_slink.distributed.cluster import Run, Settings, free_for_task, on_worker
from rapids_slink.distributed.collections import Layout, attribute, frame_collection, frame_of_parts, gathered
from rapids_slink.distributed.points import Partitions, make_blocks, read_points
from rapids_slink.distributed.search import lists_of_blocks, search_blocks
from rapids_slink.distributed.trees import list_length, may_have_lists, tree_of_blocks
from rapids_slink.metrics import PRECOMPUTED, get_metric
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.neighbors.plan import is_searched_by_tree
from rapids_slink.ordering import sort_in_place
from rapids_slink.pipeline import PointHierarchy, estimate_tree
from rapids_slink.points import Points
from rapids_slink.points.output import OutputKind, is_collection, library_of
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Device, is_on_gpu, resolve
from rapids_slink.runtime.estimate import MemoryEstimate, sequential, size_text
from rapids_slink.runtime.frames import PreallocatedFrame, frame_of
from rapids_slink.runtime.memory import DeviceMemoryError
from rapids_slink.spanning_tree import plan

#: Blocks at most: 496 pairs of them.
MAX_BLOCKS = 32
#: The fewest blocks are taken whose expected time is so many times the least: each goes to every other.
NEAR_LEAST = 9 / 8
#: A block of m rows of d features takes less time than its tasks, by device, if m²d is below this.
MIN_BLOCK_WORK = {"cpu": 2**28, "cuda": 2**45}
#: Of an entry of a neighbour list.
LIST_BYTES = 12


def fit(model: PointHierarchy, X: Any) -> None:
    """`PointHierarchy.fit` of a Dask collection."""
    metric, n_neighbors, min_samples = model._parameters()
    if metric is PRECOMPUTED:
        raise ValueError("metric='precomputed' takes a matrix in one piece, not a Dask collection")
    settings = Settings.of(model.device, model.memory_limit, metric)
    with Run() as run:
        report = Report(device="", metric=metric.name)
        with report.stage("input", CPU):
            points = read_points(run, X, settings).check_zeros()
            n = points.n_rows
            model._check_rows(n)
            samples = model._samples_among(min_samples, n)
            k = n_neighbors
            if samples > 1:
                k = plan.list_length(k, samples, metric, resolve(points.settings.device))
            points = replace(points, settings=replace(points.settings, n_neighbors=k, min_samples=samples))
            blocks = make_blocks(run, points, count_blocks(run, points))
        report["device"] = points.settings.device
        tree = tree_of_blocks(run, blocks, report, model.progress)
        with report.stage("linkage", CPU):
            found = run.task("linkage", finish, points.settings, type(model)(**model.get_params()), tree, n)
            _set_result(run, model, points.layout, found)
        report.count("cluster", **run.counts())
    model.n_leaves_, model.n_features_in_ = n, points.n_features
    model.n_connected_components_, model.report_ = 1, report
    model._name_features(points.names)


def count_blocks(run: Run, points: Partitions) -> int:
    """How many blocks there should be: few for each worker, and of as many rows as its memory holds."""
    n, settings, wanted = points.n_rows, points.settings, 1
    if not is_searched_by_tree(n, points.n_features, settings.metric, resolve(settings.device)):
        wanted = wanted_blocks(n, points.n_features, run.devices(settings.device == "cuda"), settings.device)
    (count,) = run.gather([run.task("plan", _fitting_blocks, settings, n, points.n_features, points.dtype, wanted)])
    return int(count)


def wanted_blocks(n: int, d: int, devices: int, device: str) -> int:
    """The fewest blocks of n rows of d features that take little longer than the best number would."""
    most = min(MAX_BLOCKS, int(n * sqrt(d / MIN_BLOCK_WORK[device])))
    times = {count: expected_time(count, devices) for count in range(1, most + 1)}
    return next((count for count in times if times[count] <= NEAR_LEAST * min(times.values())), 1)


def expected_time(blocks: int, devices: int) -> float:
    """How long lists and pairs' trees take, in that of one device for all rows: it tests half of the pairs of rows.

    A block's lists test half of its pairs of rows, and a pair's tree all pairs between its blocks.
    """
    pairs = blocks * (blocks - 1) // 2
    return (-(-blocks // devices) + 2 * -(-pairs // devices)) / blocks**2


def _fitting_blocks(settings: Settings, n: int, d: int, dtype: str, wanted: int) -> int:
    """From `wanted` up, the first number of blocks of which this worker's memory holds two and their tree.

    With room for what makes that fast, if there is one.
    """
    device, itemsize = resolve(settings.device), np.dtype(dtype).itemsize
    free, k = free_for_task(settings, device), list_length(settings, device)
    if free is None:
        return wanted

    def pair(count: int) -> MemoryEstimate:
        m = n if count == 1 else 2 * -(-n // count)
        values = m * d * itemsize
        if count > 1:  # the blocks and their lists, if there are any, and both in one array
            values = 2 * (values + (m * LIST_BYTES * k if may_have_lists(settings, m, d, device) else 0))
        tree = estimate_tree(m, d, itemsize, settings.n_neighbors, settings.min_samples, settings.metric, device)
        return sequential(MemoryEstimate(values, values), tree)

    most = max(wanted, min(MAX_BLOCKS, n // 2))
    pairs = {count: pair(count) for count in range(wanted, most + 1)}
    fitting = [count for count in pairs if pairs[count].least <= free]
    if not fitting:
        what, needed = f"{counted(n, 'row')} of {counted(d, 'feature')} in {most} blocks", size_text(pairs[most].least)
        raise DeviceMemoryError(f"not enough memory on a worker for {what}: needs {needed}, {size_text(free)} are free")
    return next((count for count in fitting if pairs[count].preferred <= free), fitting[0])


@on_worker
def finish(device: Device, settings: Settings, model: PointHierarchy, tree: Any, n: int) -> dict[str, Any]:
    """The tree by distances, its linkage, and what the model makes of that: a value a row, or less."""
    columns = {
        name: tree[given].values.copy() for name, given in (("src", "src"), ("dst", "dst"), ("weight", "distance"))
    }
    if settings.metric.changes_order:
        sort_in_place(columns, device.xp)
    edges = PreallocatedFrame.of(device, columns)
    merges = build_linkage(edges, n)
    rows = Points(device.xp.empty((n, 0)), None, None, OutputKind(is_frame=True, gpu=device.is_gpu))
    parameters = set(vars(model))
    model._flatten(merges, rows, device, Report())
    found = {name: value for name, value in vars(model).items() if name not in parameters}
    return {"linkage_": merges.frame, "mst_": edges.frame, **found}


def _set_result(run: Run, model: PointHierarchy, layout: Layout, found: Future) -> None:
    """Set the attributes: what has a value a row as a collection in the partitions' layout."""
    (dimensions,) = run.gather([run.task("attributes", _dimensions, found)])
    for name, ndim in dimensions.items():
        value = attribute(run, found, name)
        if ndim == 1:  # a Series
            result = layout.collection(run, name, value)
        else:
            result = frame_collection(run, name, value) if ndim else run.gather([value])[0]
        setattr(model, name, result)
    model._output, model._index, model._layout = layout.output, None, layout


def _dimensions(found: dict[str, Any]) -> dict[str, int]:
    """Of the Series and frames, 0 of all else."""
    return {name: value.ndim if library_of(value) else 0 for name, value in found.items()}


def cut_of_model(model: Any, given: tuple[Any, Any, int]) -> Any:
    """`Hierarchy.cut` of a model that was fitted on a Dask collection."""
    with Run() as run:
        whole = gathered(run, model.linkage_, COLUMNS, "linkage")
        labels = run.task("cut", _cut, whole, model.n_leaves_, given)
        return model._layout.collection(run, "labels", labels)


def _cut(linkage: Any, n: int, given: tuple[Any, Any, int]) -> Any:
    return cut_frame(linkage, n, given, OutputKind(is_frame=True, gpu=is_on_gpu(linkage)))


def on_one_worker(
    function: Callable[..., Any], frame: Any, columns: Sequence[str], name: str, **parameters: Any
) -> Any:
    """A function of a frame, done by a worker that gets all partitions; a frame that it returns is a collection.

    The function reads these columns of the frame, which is its argument `name`.
    """
    with Run() as run:
        whole = gathered(run, frame, columns, name)
        result = run.task(function.__name__, partial(function, **parameters), whole)
        (is_collected,) = run.gather([run.task("kind", _is_frame, result)])
        return frame_collection(run, name, result) if is_collected else run.gather([result])[0]


def _is_frame(result: Any) -> bool:
    return hasattr(result, "iloc")


def knn_graph(X: Any, n_neighbors: int, metric: str, p: float, device: str, memory_limit: Any) -> Any:
    """`rapids_slink.knn_graph` of a Dask collection: a partition of edges for each block of rows."""
    k, settings = check_n_neighbors(n_neighbors), Settings.of(device, memory_limit, get_metric(metric, p))
    with Run() as run:
        points = read_points(run, X, settings).check_zeros()
        if k > points.n_rows - 1:
            raise ValueError(f"n_neighbors must be at most n - 1 = {points.n_rows - 1}, got {k}")
        blocks = make_blocks(run, points, count_blocks(run, points))
        lists = lists_of_blocks(run, blocks, k)
        return _edges(run, blocks.settings, lists, blocks.starts)


def nearest_neighbors(X: Any, Y: Any, metric: str, p: float, device: str, memory_limit: Any) -> Any:
    """`rapids_slink.nearest_neighbors`, where X or both are Dask collections."""
    settings = Settings.of(device, memory_limit, get_metric(metric, p))
    with Run() as run:
        if not is_collection(X):
            raise TypeError("nearest_neighbors of a Dask Y takes a Dask X")
        queries = read_points(run, X, settings)
        points = read_points(run, Y, settings, name="Y")
        if queries.n_features != points.n_features:
            raise ValueError(
                f"X and Y must have the same number of features, got {queries.n_features} and {points.n_features}"
            )
        Points(None, queries.names, None, queries.layout.output).check_same_columns(
            Points(None, points.names, None, points.layout.output)
        )
        if queries.zeros and points.zeros:
            raise ValueError(
                f"row {queries.zeros[0]} of X and row {points.zeros[0]} of Y are zero in every column: their {metric} "
                "distance is not defined. Drop one of them."
            )
        both = np.result_type(queries.dtype, points.dtype).str
        query_blocks, blocks = (
            make_blocks(run, replace(part, dtype=both), count_blocks(run, part), name)
            for part, name in ((queries, "query"), (points, "block"))
        )
        lists = [search_blocks(run, rows, blocks, 1, (-1 - b,)) for b, rows in enumerate(query_blocks.rows)]
        return _edges(run, query_blocks.settings, lists, query_blocks.starts)


def _edges(run: Run, settings: Settings, lists: list[Future], starts: list[int]) -> Any:
    """A collection of edges, a partition for each block."""
    parts = [run.task("edges", _edge_frame, settings, found, starts[b], index=(b,)) for b, found in enumerate(lists)]
    run.wait(parts)
    (meta,) = run.gather([run.task("edges-meta", _no_edges, parts[0])])
    return frame_of_parts(parts, meta)


@on_worker
def _edge_frame(device: Device, settings: Settings, lists: Any, start: int) -> Any:
    ids, _, length = lists
    n, k = ids.shape
    src = device.xp.repeat(device.xp.arange(start, start + n, dtype="int32"), k)
    return frame_of(device, {"src": src, "dst": ids.ravel(), "weight": length.ravel()})


def _no_edges(frame: Any) -> Any:
    return frame[:0]

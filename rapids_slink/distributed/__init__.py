"""Dask collections: points, edges and linkages in partitions, on the cluster of the current client.

    partitions ──▶ blocks ──▶ a tree for each pair of blocks ──▶ one tree ──▶ linkage, labels ──▶ partitions
    points.py                 trees.py                           trees.py    one worker          points.py

`cluster.py` runs tasks on the workers and decides which worker does which task. Two blocks whose rows are all farther
apart than `max_distance` have no tree together (`pairs_within` of within.py).

For pairs within a distance any two blocks that may be near each other meet once (within.py), and a partition of pairs
is made for each block. The tree of a group is made where the group's partition is (trees.py).

The results have the bits of one device for any partitions and workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never, cast

import numpy as np
from distributed import Future

from rapids_slink import pipeline
from rapids_slink.dendrogram.cutting import COLUMNS, ClusterRule, Cut, GroupedCut
from rapids_slink.distributed.cluster import MAX_BLOCKS, Run, free_for_task, on_worker, wanted_blocks, with_bytes
from rapids_slink.distributed.points import (
    Blocks,
    Partitions,
    attributes,
    block_starts,
    frame_of_tasks,
    gathered,
    make_blocks,
    model_attributes,
    read_points,
)
from rapids_slink.distributed.trees import (
    fit_block,
    fit_groups,
    fit_trees,
    lists_of_blocks,
    search_blocks,
    tree_of_blocks,
    with_keys,
)
from rapids_slink.distributed.within import (
    blocks_of_both,
    check_settings,
    count_of_block,
    frame_of_pairs,
    near_blocks,
    pairs_of_block,
    pairs_within,
)
from rapids_slink.distributed.within import fit_dbscan as fit_dbscan
from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.neighbors.choose import is_searched_by_tree
from rapids_slink.neighbors.queries import NearestTask
from rapids_slink.neighbors.within import PairTask
from rapids_slink.pipeline import LIST_BYTES, estimate_fit
from rapids_slink.points.output import EDGE_TYPES, frame_of, is_collection
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Device, resolve
from rapids_slink.runtime.memory import DeviceMemoryError, MemoryEstimate, size_text
from rapids_slink.runtime.threads import Progress
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree.lists import TREE_LISTED, list_length

#: The bytes of an edge with its weight and its distance.
EDGE_BYTES = 24


def fit(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model fitted on a Dask collection; see `pipeline.fit`."""
    check_settings(settings)
    settings, more = with_bytes(settings), {}
    if isinstance(rule, Cut):
        rule = replace(rule, warns=False)  # on a worker nobody would see it
    if settings.groups is not None:
        assert isinstance(rule, Cut)
        X, settings, key_columns = with_keys(X, settings)
        more = {"_key_columns_": key_columns, "_cut_per_group_": rule.distance_threshold is None}
    report = Report(device="", metric=settings.metric.name)
    with Run() as run:
        with report.stage("input", CPU):
            points = read_points(run, X, settings)
            settings, n = points.settings, points.n_rows
            if settings.groups is None:
                points.check_zeros()
                rule.check_rows(n)
                settings = settings.for_rows(n)
            else:
                GroupedCut(cast(Cut, rule), None, None, None).check_rows(n)
            if not settings.clipped or settings.min_samples > 1:
                report["min_samples"] = settings.min_samples
            report["device"], points = settings.device, replace(points, settings=settings)
        if settings.groups is None:
            with report.stage("input", CPU):
                blocks, pairs = _blocks_of(run, points)
            points = points.without_rows()
            results = _fit_blocks(run, blocks, pairs, rule, report)
            del blocks
        else:
            results = fit_groups(run, points, cast(Cut, rule), report)
            points = points.without_rows()
        return model_attributes(run, results, points, report) | more


def _blocks_of(run: Run, points: Partitions) -> tuple[Blocks, list[tuple[int, int]]]:
    """Return the points in blocks, and the pairs of blocks that have a tree together."""
    settings, n, count = points.settings, points.n_rows, count_blocks(run, points)
    pairs = pairs_within(run, points, block_starts(n, count))
    if settings.min_samples > 1 and count > 1:
        points = replace(points, settings=replace(settings, n_neighbors=list_length(settings)))
    return make_blocks(run, points, count, n_pairs=len(pairs)), pairs


def _fit_blocks(run: Run, blocks: Blocks, pairs: list[tuple[int, int]], rule: ClusterRule, report: Report) -> Future:
    """Return the attributes of points in blocks, as a future."""
    settings, n = blocks.settings, blocks.starts[-1]
    report.count("spanning_tree", blocks=len(blocks), pairs=len(pairs))
    if len(blocks) == 1:
        return run.task("fit", fit_block, settings, rule, blocks.rows[0])
    with report.stage("spanning_tree", CPU):
        bar = Progress("Searching pairs of blocks", n, settings.progress) if settings.progress else None
        trees = tree_of_blocks(run, blocks, pairs, bar)
    return run.task("linkage", fit_trees, settings, rule, trees, n)


def count_blocks(run: Run, points: Partitions) -> int:
    """Return the number of blocks: one if a tree of boxes searches, else few for each device, which fit into memory."""
    n, settings, wanted, blocks = points.n_rows, points.settings, 1, forced().blocks
    if blocks:
        return min(blocks, n)
    devices = run.devices(settings.device == "cuda")
    if not is_searched_by_tree(n, points.n_features, settings.metric, resolve(settings.device)):
        wanted = wanted_blocks(n, points.n_features, devices, settings.device)
    (count,) = run.gather([run.task("plan", _fitting_blocks, settings, n, points.n_features, points.dtype, wanted)])
    return int(count)


def _fitting_blocks(settings: Settings, n: int, d: int, dtype: str, wanted: int) -> int:
    """Return the least number of blocks, from `wanted` up, so that two blocks and their tree fit on this worker.

    If possible, they also leave room for the chunks that a search prefers. Raises DeviceMemoryError if none fits.
    """
    device, itemsize = resolve(settings.device), np.dtype(dtype).itemsize
    free = free_for_task(settings, device)
    if free is None:
        return wanted

    def pair(count: int) -> MemoryEstimate:
        m = n if count == 1 else 2 * -(-n // count)
        values = m * d * itemsize
        if count > 1:  # the blocks and both in one array; and their trees, whose edges are listed, if there are any
            has_trees = not is_searched_by_tree(m, d, settings.metric, device)
            values = 2 * values + has_trees * m * (EDGE_BYTES + LIST_BYTES * TREE_LISTED)
        return MemoryEstimate(values) + estimate_fit(Problem(settings, device, m, d, itemsize))

    max_blocks = max(wanted, min(MAX_BLOCKS, n // 2))
    pairs = {count: pair(count) for count in range(wanted, max_blocks + 1)}
    fitting = [count for count in pairs if pairs[count].least <= free]
    if not fitting:
        what = f"{counted(n, 'row')} of {counted(d, 'feature')} in {max_blocks} blocks"
        needed = size_text(pairs[max_blocks].least)
        raise DeviceMemoryError(f"not enough memory on a worker for {what}: needs {needed}, {size_text(free)} are free")
    return next((count for count in fitting if pairs[count].preferred <= free), fitting[0])


def on_one_worker(
    function: Callable[..., Any], frame: Any, *, columns: Sequence[str], name: str, **parameters: Any
) -> Any:
    """Call a function of a frame on one worker, which gets all partitions; return its result as a collection.

    The function reads these `columns` of the frame, and messages call the frame `name`.
    """
    with Run() as run:
        whole = gathered(run, frame, columns, name)
        results = run.task(function.__name__, _named, name, partial(function, **parameters), whole)
        return attributes(run, results)[name]


def _named(name: str, function: Callable[..., Any], whole: Any) -> dict[str, Any]:
    return {name: function(whole)}


EDGES = tuple(EDGE_TYPES)
fit_graph = partial(on_one_worker, pipeline.fit_graph, columns=EDGES, name="edges")
minimum_spanning_tree = partial(on_one_worker, pipeline.minimum_spanning_tree, columns=EDGES, name="edges")
linkage = partial(on_one_worker, pipeline.linkage, columns=EDGES, name="tree")
cut = partial(on_one_worker, pipeline.cut, columns=COLUMNS, name="linkage")


def refusing(message: str) -> Callable[..., Never]:
    """Return a function of the engine that raises TypeError with this message, whatever it is called with."""

    def refuse(*inputs: Any, **parameters: Any) -> Never:
        raise TypeError(message)

    return refuse


append = refusing("X is a Dask collection, and append takes rows in one piece: compute it")
predict = refusing("X is a Dask collection, and a model answers for rows in one piece: use map_partitions")
connect = refusing("connect takes a graph and points in one piece; of a Dask collection fit makes the tree")
iter_pairs = refusing("X is a Dask collection, whose pairs are in partitions: take pairs(...).partitions")


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: str, memory_limit: Any) -> Any:
    """Return the k-NN graph of a Dask collection, with a partition of edges for each block of rows."""
    k, settings = check_n_neighbors(n_neighbors), with_bytes(Settings(metric, device, memory_limit))
    with Run() as run:
        points = read_points(run, X, settings).check_zeros()
        if k > points.n_rows - 1:
            raise ValueError(f"n_neighbors must be at most n - 1 = {points.n_rows - 1}, got {k}")
        blocks = make_blocks(run, points, count_blocks(run, points))
        lists = lists_of_blocks(run, blocks, k)
        return _edges(run, blocks.settings, lists, blocks.starts)


def nearest_neighbors(X: Any, Y: Any, task: NearestTask, device: str) -> Any:
    """Return the nearest rows of Y for each row of a Dask X, with a partition of edges for each block of X."""
    for parameter, is_set in (("groups", task.by is not None), ("output='arrays'", task.as_arrays)):
        if is_set:
            raise ValueError(f"{parameter} of nearest_neighbors is for rows on one device: compute the Dask collection")
    settings = with_bytes(Settings(task.metric, device, task.memory_limit))
    with Run() as run:
        if not is_collection(X):
            raise TypeError("nearest_neighbors of a Dask Y takes a Dask X")
        queries = read_points(run, X, settings)
        points = read_points(run, Y, settings, name="Y")
        task.check_points(points.n_rows)
        query_blocks, blocks = blocks_of_both(run, queries, points, count_blocks)
        lists = [search_blocks(run, rows, blocks, task.k, (-1 - b,)) for b, rows in enumerate(query_blocks.rows)]
        return _edges(run, query_blocks.settings, lists, query_blocks.starts)


def pairs(X: Any, Y: Any, task: PairTask, device: str) -> Any:
    """Return the near pairs of a Dask X, or of it and a Dask Y, with a partition of pairs for each block of rows."""
    if task.names:
        raise ValueError("names=True is for rows on one device, and X is a Dask collection: merge its index by number")
    with Run() as run:
        rows, settings = near_blocks(run, X, Y, task, device, pairs_of_block)
        parts = [run.task("pairs", frame_of_pairs, settings, row, index=(b,)) for b, row in enumerate(rows)]
        return frame_of_tasks(run, "pairs", parts)


def count_pairs(X: Any, Y: Any, task: PairTask, device: str) -> np.ndarray:
    """Count the pairs of Dask collections within each of the task's distances: add up the blocks' counts."""
    with Run() as run:
        rows, _ = near_blocks(run, X, Y, task, device, count_of_block)
        counts = run.gather([part for row in rows for part in row])
        return np.array(counts, np.int64).sum(axis=0)


def _edges(run: Run, settings: Settings, lists: list[Future], starts: list[int]) -> Any:
    """Return a collection of edges with a partition for each block."""
    parts = [run.task("edges", _edge_frame, settings, part, starts[b], index=(b,)) for b, part in enumerate(lists)]
    return frame_of_tasks(run, "edges", parts)


@on_worker
def _edge_frame(device: Device, settings: Settings, lists: Any, start: int) -> Any:
    ids, _, length = lists
    n, k = ids.shape
    src = device.xp.repeat(device.xp.arange(start, start + n, dtype="int32"), k)
    return frame_of(device, {"src": src, "dst": ids.ravel(), "weight": length.ravel()})

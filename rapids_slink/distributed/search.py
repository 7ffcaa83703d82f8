"""Neighbour lists of points in blocks: a search within each block, and one in each other block.

    block i ──own_lists──▶ lists ──▶ bounds ──block_lists──▶ i's neighbours in j ──merge_lists──▶ lists of i

The neighbours of a row in its own block bound the distances of its nearest neighbours among all rows. Lists are merged
by (surrogate distance, id), which is the total order for one row. A list is three arrays: ids among all rows, -1 in
unused entries; surrogate distances; distances.
"""

from typing import Any

from distributed import Future

from rapids_slink.distributed.cluster import Run, on_worker
from rapids_slink.distributed.points import Blocks
from rapids_slink.metrics import distances
from rapids_slink.neighbors import estimate_search, prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import check_memory
from rapids_slink.settings import Settings

#: The number of blocks whose lists are merged at a time, so that few lists wait in memory.
MERGED = 8


def core_distances(run: Run, blocks: Blocks) -> list[Future]:
    """The surrogate distance of each row's `min_samples`-th nearest other, by block."""
    lists = lists_of_blocks(run, blocks, blocks.settings.min_samples)
    return [run.task("core", last_weights, blocks.settings, part, index=(b,)) for b, part in enumerate(lists)]


def lists_of_blocks(run: Run, blocks: Blocks, k: int) -> list[Future]:
    """Each row's k nearest others among all rows, by block."""
    settings, numbers = blocks.settings, range(len(blocks))
    own = [run.task("own", own_lists, settings, blocks.rows[b], blocks.starts[b], k, index=(b,)) for b in numbers]
    if len(blocks) == 1:
        return own
    bounds = [run.task("bound", last_weights, settings, part, index=(b,)) for b, part in enumerate(own)]
    return [search_blocks(run, blocks.rows[b], blocks, k, (b,), own[b], bounds[b]) for b in numbers]


def search_blocks(
    run: Run, queries: Future, blocks: Blocks, k: int, name: tuple[int, ...], own: Any = None, bound: Array = None
) -> Future:
    """The k nearest of each query in all blocks. If the queries are a block, `own` holds their lists within it."""
    settings, starts, count = blocks.settings, blocks.starts, len(blocks)
    lists: list[Any] = [] if own is None else [own]
    first = name[-1] if own is not None else -1
    others = [b % count for b in range(first + 1, first + count + (own is None))]  # every call starts at another block
    for b in others:
        arguments = queries, blocks.rows[b], starts[b], k, bound
        lists.append(run.task("neighbors", block_lists, settings, *arguments, index=(*name, b)))
        if len(lists) > MERGED or b == others[-1]:
            lists = [run.task("merge", merge_lists, settings, lists, k, index=(*name, b))]
    return lists[0]


@on_worker
def own_lists(device: Device, settings: Settings, rows: Array, start: int, k: int) -> Any:
    """Each row's nearest others in its own block."""
    ids = device.xp.arange(len(rows), dtype="int32")
    return _lists(device, settings, (rows, rows), start, k, SearchTask(ids, max(1, min(k, len(rows) - 1)), ids, ids))


@on_worker
def block_lists(
    device: Device, settings: Settings, queries: Array, rows: Array, start: int, k: int, upper: Array
) -> Any:
    """The nearest rows of a block to each query, within the query's bound `upper` if there is one."""
    xp = device.xp
    ids, no_group = xp.arange(len(queries), dtype="int32"), xp.full(len(rows), -1, "int32")
    task = SearchTask(ids, min(k, len(rows)), ids, no_group, upper)
    return _lists(device, settings, (queries, rows), start, k, task)


def _lists(device: Device, settings: Settings, points: tuple[Any, Any], start: int, k: int, task: SearchTask) -> Any:
    """The answer of a search task as lists of k."""
    xp, metric, (queries, rows) = device.xp, settings.metric, points
    n, d = rows.shape
    m = None if queries is rows else len(queries)
    estimate = estimate_search(n, d, rows.dtype.itemsize, k, device, n_queries=m, metric=metric)
    check_memory(device, estimate, f"a block of {n:,} rows")
    prepared = [metric_rows(metric, part, device, alone=False) for part in ((rows,) if m is None else (rows, queries))]
    ids, weights = xp.full((len(queries), k), -1, "int32"), xp.full((len(queries), k), xp.inf)
    length = xp.full((len(queries), k), xp.inf)
    if m is not None or n > 1:
        queries = None if m is None else prepared[1]
        search = prepare_search(prepared[0], device, Report(), queries=queries, metric=metric)
        result = search.find(task)
        at, place = xp.nonzero(result.ids >= 0)
        dst, weight = result.ids[at, place], result.weights[at, place]
        ids[at, place], weights[at, place] = dst + start, weight
        length[at, place] = distances(metric, weight, (at, dst), points, device)
    return ids, weights, length


@on_worker
def merge_lists(device: Device, settings: Settings, parts: list[Any], k: int) -> Any:
    """The first k entries of each row's lists by (surrogate distance, id)."""
    xp = device.xp
    ids, weights, length = (xp.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    order = xp.argsort(ids, axis=1, kind="stable")
    by_id = xp.take_along_axis(weights, order, axis=1)
    order = xp.take_along_axis(order, xp.argsort(by_id, axis=1, kind="stable"), axis=1)[:, :k]
    return tuple(xp.take_along_axis(part, order, axis=1) for part in (ids, weights, length))


@on_worker
def last_weights(device: Device, settings: Settings, lists: Any) -> Any:
    """The surrogate distance of each list's last entry, infinite if the list is not full."""
    return device.xp.ascontiguousarray(lists[1][:, -1])

"""The spanning tree of points in blocks: a tree for each pair of blocks, and the forest of all their edges.

    blocks ──tree_of_parts──▶ a tree for each ──tree_of_parts──▶ a tree for each pair ──forest_of_trees──▶ one tree

Every edge of the tree of all points is in the tree of each part that holds its two ends: a lighter path within the part
would be a lighter path among all points. Any two points are in some pair of blocks. So the tree of the union of the
pairs' trees is the tree of all points, in the total order, whatever the blocks are. (Jin et al., "DiSC: a distributed
single-linkage hierarchical clustering algorithm using MapReduce", 2013.) The edges within a block are taken
from its own tree, and those between two blocks from the tree of both, which one device makes. That has no edge within a
block that the block's tree lacks. So only pairs between the blocks are searched. Where all pairs are not searched, as
by a tree of boxes, a block's tree saves little: there the tree of two blocks has the edges within them, too, and the
first that holds a block keeps these. With a `max_distance` only blocks that may have points within it have a tree
together.

Mutual reachability needs the core distances among all points first; they come from each row's combined lists, of a
search within each block and one in each other block:

    block i ──lists_in_block──▶ lists ──▶ bounds ──lists_in_block──▶ i's neighbours in j ──combine_lists──▶ lists of i

The neighbours of a row in its own block bound the distances of its nearest neighbours among all rows. Lists are
combined by (surrogate distance, id), which is the total order for one row. A list is three arrays: ids among all rows,
-1 in unused entries; surrogate distances; distances.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from operator import getitem, itemgetter
from typing import Any

import numpy as np
from distributed import Future

from rapids_slink.dendrogram import build_linkage
from rapids_slink.dendrogram.cutting import ClusterRule, Cut, GroupedCut
from rapids_slink.distributed.cluster import Run, concatenate, on_worker, one_frame, pairs_of_workers
from rapids_slink.distributed.points import (
    Blocks,
    Partitions,
    is_frame,
    without_values,
)
from rapids_slink.metrics import distances
from rapids_slink.neighbors import estimate_search, prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.ordering import edge_codes, sort_in_place, stable_order
from rapids_slink.pipeline import estimate_fit, flat_attributes, tree_of_points, within_distance
from rapids_slink.points.keys import GroupBy, names_of, numbered
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame, frame_of, is_collection, on_device, with_frames
from rapids_slink.report import Report, counted, listed
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.memory import check_memory
from rapids_slink.runtime.threads import Progress
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, reported_cores
from rapids_slink.spanning_tree.graphs import EdgeList, spanning_forest
from rapids_slink.spanning_tree.lists import tree_of_two_parts
from rapids_slink.spanning_tree.ways import estimate_groups, forest_of_groups, prepared_ways, tree_by, tree_of_rows

#: The number of trees whose edges are put together at a time.
TREES_AT_ONCE = 8
#: The columns of a pair's tree that become those of `EDGE_TYPES` in the tree of all rows.
DISTANCE_COLUMNS = ("src", "dst", "distance")


def tree_of_blocks(run: Run, blocks: Blocks, pairs: list[tuple[int, int]], progress: Progress | None) -> list[Future]:
    """Return trees whose edges together hold the minimum spanning tree, as `tree_of_parts` returns them.

    `pairs` are the numbers of the blocks that have a tree together.
    """
    settings, owners, numbers = blocks.settings, blocks.owners, range(len(blocks))
    run.wait(blocks.rows)  # a GPU that searches would make the others wait for their pieces
    cores: list[Any] = [None] * len(blocks)
    if settings.min_samples > 1:
        lists = lists_of_blocks(run, blocks, settings.min_samples)
        cores = [run.task("core", cores_of_lists, settings, part, index=(b,)) for b, part in enumerate(lists)]

    def make(name: str, parts: list[Any], index: tuple[int, ...], w: int, are_wanted: list[bool]) -> Future:
        starts = [blocks.starts[b] for b in index]
        return run.task(name, tree_of_parts, settings, parts, starts, are_wanted, index=index, worker=run.worker(w))

    met, with_edges = {b for pair in pairs for b in pair}, set[int]()
    results = [make("own-tree", [[blocks.rows[b], cores[b], None]], (b,), owners[b], [b not in met]) for b in numbers]
    here: list[Any] = [[blocks.rows[b], cores[b], results[b]] for b in numbers]
    order = pairs_of_workers(owners, max(1, len(run.workers)), pairs)
    sent = dict(enumerate(here))
    if run.copies_through_host(settings):
        for b in sorted({b for pair, w in order for b in pair if owners[b] != w}):
            sent[b] = run.task("send", _on_host, here[b], index=(b,), worker=run.worker(owners[b]))
    trees = results.copy()
    for pair, w in order:
        parts, are_wanted = [here[b] if owners[b] == w else sent[b] for b in pair], [b not in with_edges for b in pair]
        results.append(make("tree", parts, pair, w, are_wanted))
        with_edges.update(pair)
        trees.append(results[-1])
        level = 0  # trees of more and more pairs are put together, as the digits of a counter carry over
        while len(trees) >= TREES_AT_ONCE and (len(results) // TREES_AT_ONCE**level) % TREES_AT_ONCE == 0:
            tree = run.task("forest", forest_of_trees, settings, trees[-TREES_AT_ONCE:], index=(level, len(results)))
            trees[-TREES_AT_ONCE:] = [tree]
            level += 1
    run.wait(results, progress)
    return trees


def _on_host(parts: list[Any]) -> list[Any]:
    """Return copies of a block's arrays on the host, to be sent; they are made while no other task uses the GPU."""
    rows, core, tree = parts
    tree = tree and {**tree, "edges": on_device(tree["edges"], CPU)}
    return [to_host(rows), None if core is None else to_host(core), tree]


@on_worker
def tree_of_parts(
    device: Device, settings: Settings, parts: list[tuple[Array, Array, Any]], starts: list[int], are_wanted: list[bool]
) -> dict[str, Any] | None:
    """Return edges of the tree of one or two blocks, numbered among all points, and the counts of its report.

    `parts` are the rows, core distances and tree of each block, if it has a tree already. One block has one if pairs
    of blocks save work by it, or if it `is_wanted` in any case. Two blocks have the edges between them and, where
    a block has no tree, those within it if these are wanted.
    """
    xp, metric, report = device.xp, settings.metric, Report()
    blocks, cores, own_trees = zip(*parts, strict=True)
    values, split = concatenate(blocks, device), len(blocks[0])
    problem = checked_problem(device, settings, values)
    prepared = metric_rows(metric, values, device, alone=False, compact=True)
    core, core_distance = (None, None) if cores[0] is None else map(xp.ascontiguousarray, concatenate(cores, device).T)
    problem = replace(problem.of_rows(prepared), core=core)
    if all(own_trees):
        trees = [_own_columns(tree["edges"], start) for tree, start in zip(own_trees, starts, strict=True)]
        tree = tree_of_two_parts(prepared, split, trees, problem, report)
    else:
        ways = prepared_ways(problem, prepared, report)
        first = next(ways)
        if are_wanted == [False] and not first.is_over_all_pairs:
            return None
        tree, _ = tree_by(chain([first], ways), report)
    report.pop("seconds", None)
    src, dst, weight = tree.columns.values()
    if len(blocks) > 1:
        has_own = xp.asarray([is_wanted and not tree for is_wanted, tree in zip(are_wanted, own_trees, strict=True)])
        sides = [(end >= split).astype("int8") for end in (src, dst)]
        kept = (sides[0] != sides[1]) | has_own[sides[0]]
        src, dst, weight = src[kept], dst[kept], weight[kept]
    distance = distances(metric, weight, (src, dst), (values, values), device, core=core_distance)
    numbers = xp.concatenate([xp.arange(start, start + len(rows)) for start, rows in zip(starts, blocks, strict=True)])
    src, dst = (numbers[end].astype("int32") for end in (src, dst))
    frame = frame_of(device, {"src": src, "dst": dst, "weight": weight, "distance": distance})
    return {"edges": frame, "report": report}


def _own_columns(edges: Any, start: int) -> dict[str, Array]:
    """Return the columns of a block's tree, by numbers within the block, whose first point is number `start`."""
    return {name: edges[name].values - (0 if name == "weight" else start) for name in EDGE_TYPES}


def checked_problem(device: Device, settings: Settings, values: Array) -> Problem:
    """Return the problem of the tree of some points; raise DeviceMemoryError unless it fits into memory."""
    n, d = values.shape
    problem = Problem(settings, device, n, d, values.dtype.itemsize)
    check_memory(device, estimate_fit(problem), f"{counted(n, 'row')} of {counted(d, 'feature')}")
    return problem


@on_worker
def forest_of_trees(device: Device, settings: Settings, trees: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the minimum spanning forest of the edges of several trees, and what their reports count together."""
    report = Report()
    return {"edges": _edges_of_trees(device, trees, report), "report": report}


def _edges_of_trees(device: Device, trees: list[dict[str, Any]], report: Report) -> Any:
    trees = [tree for tree in trees if tree]
    for tree in trees:
        report.add(tree["report"])
    edges = one_frame([tree["edges"] for tree in trees])
    return edges if len(trees) == 1 else forest_of_frame(edges, device)


def forest_of_frame(edges: Any, device: Device) -> Any:
    """Return the edges of the minimum spanning forest, in the total order.

    `edges` has ``src`` < ``dst``, ``weight`` and other columns, which stay with their edge. An edge may occur several
    times.
    """
    if not len(edges):
        return edges
    xp = device.xp
    edges = edges.iloc[stable_order(edge_codes(edges["src"].values, edges["dst"].values, xp), xp)]
    src, dst, weight = (xp.ascontiguousarray(edges[name].values) for name in ("src", "dst", "weight"))
    in_forest, _ = spanning_forest(EdgeList(src, dst, weight, 1 + int(dst.max())), device)
    edges = edges.iloc[xp.flatnonzero(in_forest)]
    return edges.iloc[stable_order(edges["weight"].values, xp)].reset_index(drop=True)


@on_worker
def fit_trees(
    device: Device, settings: Settings, rule: ClusterRule, trees: list[dict[str, Any]], n: int
) -> dict[str, Any]:
    """Return the attributes of n rows, from trees whose edges together hold the tree of all rows."""
    report = Report()
    with report.stage("spanning_tree", device):
        tree = _edges_of_trees(device, trees, report)
    columns = {name: tree[column].values.copy() for name, column in zip(EDGE_TYPES, DISTANCE_COLUMNS, strict=True)}
    if settings.metric.changes_order:
        sort_in_place(columns, device.xp)
    edges = within_distance(PreallocatedFrame.of(device, columns), settings.max_distance)
    return attributes_of_tree(device, rule, edges, n, report)


@on_worker
def fit_block(device: Device, settings: Settings, rule: ClusterRule, values: Array) -> dict[str, Any]:
    """Return the attributes of rows in one block, by the pipeline of one device."""
    report = Report()
    edges, _ = tree_of_points(values, checked_problem(device, settings, values), report, tree_of_rows)
    return attributes_of_tree(device, rule, edges, len(values), report)


def attributes_of_tree(
    device: Device, rule: ClusterRule, edges: PreallocatedFrame, n: int, report: Report
) -> dict[str, Any]:
    """Return the linkage of a tree, the clusters that the rule chooses, and the report of this work."""
    with report.stage("linkage", device):
        merges = build_linkage(edges, n, rule.merge_groups)
    flat = flat_attributes(rule.choose(merges, n, device, report), without_values(n, device))
    return {"linkage_": merges.frame, "mst_": edges.frame, **with_frames(flat), "report_": report}


#: The number of blocks whose lists are combined at a time, so that few lists wait in memory.
COMBINED = 8


def lists_of_blocks(run: Run, blocks: Blocks, k: int) -> list[Future]:
    """Return each row's k nearest others among all rows, as a future for each block."""
    settings, numbers = blocks.settings, range(len(blocks))
    own = [
        run.task("own", lists_in_block, settings, None, blocks.rows[b], blocks.starts[b], k, None, index=(b,))
        for b in numbers
    ]
    if len(blocks) == 1:
        return own
    bounds = [run.task("bound", last_weights, settings, part, index=(b,)) for b, part in enumerate(own)]
    return [search_blocks(run, blocks.rows[b], blocks, k, (b,), own[b], bounds[b]) for b in numbers]


def search_blocks(
    run: Run, queries: Future, blocks: Blocks, k: int, name: tuple[int, ...], own: Any = None, bound: Array = None
) -> Future:
    """Return the k nearest rows of each query in all blocks, as a future.

    If the queries are a block, `own` holds their lists within it.
    """
    settings, starts, count = blocks.settings, blocks.starts, len(blocks)
    lists: list[Any] = [] if own is None else [own]
    first = name[-1] if own is not None else -1
    others = [b % count for b in range(first + 1, first + count + (own is None))]  # every call starts at another block
    for b in others:
        rows, index = blocks.rows[b], (*name, b)
        lists.append(run.task("neighbors", lists_in_block, settings, queries, rows, starts[b], k, bound, index=index))
        if len(lists) > COMBINED or b == others[-1]:
            lists = [run.task("combine", combine_lists, settings, lists, k, index=(*name, b))]
    return lists[0]


@on_worker
def lists_in_block(
    device: Device, settings: Settings, queries: Array, rows: Array, start: int, k: int, upper: Array
) -> Any:
    """Return the nearest rows of a block to each query, as lists of k, within the query's bound `upper`, if any.

    Without queries they are the nearest others of each row of the block, whose first row has the number `start`.
    """
    xp, metric, (n, d), m = device.xp, settings.metric, rows.shape, None if queries is None else len(queries)
    estimate = estimate_search(n, d, rows.dtype.itemsize, k, device, n_queries=m, metric=metric)
    check_memory(device, estimate, f"a block of {n:,} rows")
    number = xp.arange(n if m is None else m, dtype="int32")
    if m is None:
        queries, prepared_queries, task = rows, None, SearchTask(number, max(1, min(k, n - 1)), number, number)
    else:
        prepared_queries = metric_rows(metric, queries, device, alone=False)
        task = SearchTask(number, min(k, n), number, xp.full(n, -1, "int32"), upper)
    prepared = metric_rows(metric, rows, device, alone=False)
    ids, (weights, length) = xp.full((number.size, k), -1, "int32"), xp.full((2, number.size, k), xp.inf)
    if m is not None or n > 1:
        result = prepare_search(prepared, device, Report(), queries=prepared_queries, metric=metric).find(task)
        at, column = xp.nonzero(result.ids >= 0)
        dst, weight = result.ids[at, column], result.weights[at, column]
        ids[at, column], weights[at, column] = dst + start, weight
        length[at, column] = distances(metric, weight, (at, dst), (queries, rows), device)
    return ids, weights, length


@on_worker
def combine_lists(device: Device, settings: Settings, parts: list[Any], k: int) -> Any:
    """Return the first k entries of each row's lists by (surrogate distance, id)."""
    xp = device.xp
    ids, weights, length = (xp.concatenate([part[i] for part in parts], axis=1) for i in range(3))
    order = xp.argsort(ids, axis=1, kind="stable")
    by_id = xp.take_along_axis(weights, order, axis=1)
    order = xp.take_along_axis(order, xp.argsort(by_id, axis=1, kind="stable"), axis=1)[:, :k]
    return tuple(xp.take_along_axis(part, order, axis=1) for part in (ids, weights, length))


@on_worker
def cores_of_lists(device: Device, settings: Settings, lists: Any) -> Any:
    """Return the core distance of each row, (n, 2) float64: the surrogate distance, and the reported one."""
    weight, length = (part[:, -1] for part in lists[1:])
    return device.xp.stack([weight, device.xp.where(weight > 0, length, 0.0)], axis=1)


@on_worker
def last_weights(device: Device, settings: Settings, lists: Any) -> Any:
    """Return the surrogate distance of each list's last entry, infinite if the list is not full."""
    return device.xp.ascontiguousarray(lists[1][:, -1])


# ------------------------------------------------------------------------------------------------------- groups of rows
#
# The trees of groups that lie whole in a partition are made where it is:
#
# partitions ──keys──▶ one table of groups ──▶ whole groups stay, the rows of others meet ──▶ trees ──▶ one forest


#: The number of meetings for each worker. At a meeting the rows of groups that lie in several partitions come together.
MEETINGS = 2


def fit_groups(run: Run, points: Partitions, rule: Cut, report: Report) -> Future:
    """Return the attributes of points with `Settings.groups`, as a future."""
    settings, sizes = replace(points.settings, groups=None), points.layout.sizes
    filled = [(p, read, i, holder) for group, read, holder in points.read for i, p in enumerate(group) if sizes[p]]
    filled.sort(key=itemgetter(0))
    with report.stage("groups", CPU):
        tables = [run.task("keys", _table_of_keys, read, i, index=(p,), worker=holder) for p, read, i, holder in filled]
        own = [run.task("key-table", getitem, table, 1, index=(p,)) for p, table in enumerate(tables)]
        starts = [sum(sizes[:p]) for p, *_ in filled]
        groups = run.task("groups", _number_groups, own, starts, MEETINGS * max(1, len(run.workers)))
        (meetings,) = run.gather([run.task("meetings", getitem, groups, "meetings")])
    together = defaultdict[Any, list[Any]](list)  # the rows of each partition's groups that stay, and of each meeting
    with report.stage("spanning_tree", CPU):
        for position, (p, read, i, holder) in enumerate(filled):
            for at in meetings[position]:
                through_host = at >= 0 and run.copies_through_host(settings)
                piece = run.task(
                    "group-rows", _rows_that_meet, read, i, tables[position], groups, position, at, through_host,
                    index=(p, at), worker=holder,
                )  # fmt: skip
                together[at, p if at < 0 else -1].append(piece)
        trees = [
            run.task("trees", _trees_of_groups, settings, pieces, points.dtype, index=meeting)
            for meeting, pieces in sorted(together.items())
        ]
        run.wait(trees)
    report["way"] = "groups"
    return run.task("linkage", _fit_forest, settings, rule, trees, groups, points.n_rows)


def with_keys(X: Any, settings: Settings) -> tuple[Any, Settings, tuple[Any, ...]]:
    """Return a frame with the keys as columns, settings that name them, and the columns of `X` that are keys."""
    by = settings.groups
    if not is_frame(X):
        raise ValueError("groups of a Dask Array have no column: make a Dask DataFrame of it and the keys")
    if is_collection(by.groups) and getattr(by.groups, "ndim", 0) == 1 and is_frame(by.groups):
        name = by.groups.name
        name = "group" if name is None or name in X.columns else name
        return X.assign(**{name: by.groups}), replace(settings, groups=GroupBy([name], by.dropna)), ()
    names = None if is_collection(by.groups) else names_of(X, by.groups)
    if names is None:
        others = [name for name in by.groups if name not in X.columns] if isinstance(by.groups, list) else []
        got = f", and {others[0]!r} is not in [{listed(X.columns)}]" if others else ""
        raise ValueError(f"groups of a Dask DataFrame must be a column, columns, or a Dask Series like it{got}")
    return X, replace(settings, groups=GroupBy(names, by.dropna)), tuple(names)


def _table_of_keys(read: dict[str, Any], i: int) -> tuple[Any, dict[str, Any]]:
    """Return the number of each row's group in one partition, and a table of each group's key, rows and first row."""
    groups = numbered(read["keys"][i], CPU)
    return groups.number, {"keys": groups.keys, "sizes": groups.sizes, "first": groups.first}


def _number_groups(tables: list[dict[str, Any]], starts: list[int], meetings: int) -> dict[str, Any]:
    """Return the groups of all partitions, in order of first appearance.

    ``numbers`` has the number of each partition's groups; ``sizes``, ``first`` and ``keys`` are those of `GroupedCut`;
    ``meeting`` is where the rows of a group meet, -1 if they are all in one partition; ``meetings`` are those of each
    partition's rows.
    """
    frames = [table["keys"] for table in tables]
    groups, lengths = numbered(one_frame(frames), CPU), list(map(len, frames))
    number = groups.number
    sizes = np.bincount(number, weights=np.concatenate([table["sizes"] for table in tables]))
    first = np.concatenate([table["first"] + start for table, start in zip(tables, starts, strict=True)])[groups.first]
    meeting = np.where(groups.sizes > 1, np.arange(len(groups)) % meetings, -1)
    numbers = np.split(number, np.cumsum(lengths)[:-1])
    rows = sizes.astype(np.int64)
    meetings_of_rows = [np.unique(meeting[part]).tolist() for part in numbers]
    return {
        "numbers": numbers, "starts": starts, "keys": groups.keys, "sizes": rows, "first": first, "meeting": meeting,
        "meetings": meetings_of_rows,
    }  # fmt: skip


def _rows_that_meet(
    read: dict[str, Any],
    i: int,
    table: tuple[Any, Any],
    groups: dict[str, Any],
    position: int,
    at: int,
    through_host: bool,
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the values, groups and numbers of a partition's rows that go to meeting `at`, or that stay if it is -1."""
    group = groups["numbers"][position][table[0]]
    rows = np.flatnonzero(groups["meeting"][group] == at)
    values = read["values"][i]
    values = values if rows.size == len(values) else values[rows]
    numbers = (groups["starts"][position] + rows).astype(np.int32)
    return to_host(values) if through_host else values, group[rows], numbers


@on_worker
def _trees_of_groups(device: Device, settings: Settings, pieces: list[Any], dtype: str) -> dict[str, Any]:
    """Return the trees of all groups among these rows: edges numbered among all rows, and how they were made."""
    values, group, numbers = (concatenate([piece[i] for piece in pieces], device) for i in range(3))
    values, report, metric = values.astype(dtype, copy=False), Report(), settings.metric
    (n, d), groups = values.shape, numbered(device.frames.DataFrame({"group": group}), device)
    problem = Problem(settings, device, n, d, values.dtype.itemsize)
    check_memory(device, estimate_groups(problem, groups.sizes), f"{counted(n, 'row')} of {counted(d, 'feature')}")
    rows = metric_rows(metric, values, device, alone=False, compact=True)
    forest, components = forest_of_groups(problem.of_rows(rows), rows, groups, values, report, numbers)
    src, dst, weight = forest.columns.values()
    core = reported_cores(forest, values, rows, problem, groups)
    distance = distances(metric, weight, (src, dst), (values, values), device, core=core)
    columns = {"src": numbers[src], "dst": numbers[dst], "weight": weight, "distance": distance, "group": group[src]}
    report.pop("seconds", None)
    return {"edges": frame_of(device, columns), "report": report, "components": components}


@on_worker
def _fit_forest(
    device: Device, settings: Settings, rule: Cut, trees: list[dict[str, Any]], groups: dict[str, Any], n: int
) -> dict[str, Any]:
    """Return the attributes of n rows from the trees of all their groups."""
    xp, report = device.xp, Report()
    with report.stage("spanning_tree", device):
        for part in trees:
            report.add(part["report"])
        edges = one_frame([part["edges"] for part in trees])
        columns = {name: edges[name].values for name in edges}
        order = stable_order(edge_codes(columns["src"], columns["dst"], xp), xp)
        order = order[stable_order(columns["distance" if settings.metric.changes_order else "weight"][order], xp)]
        ordered = {name: columns[name][order] for name in (*DISTANCE_COLUMNS, "group")}
        forest = dict(zip(EDGE_TYPES, (ordered[name] for name in DISTANCE_COLUMNS), strict=True))
        tree = within_distance(PreallocatedFrame.of(device, forest), settings.max_distance)
    merge_group = ordered["group"][: len(tree.columns["src"])].astype("int32")
    keys, sizes, first = groups["keys"], *(to_host(groups[name]) for name in ("sizes", "first"))
    grouped_cut = GroupedCut(rule, keys, sizes, first, merge_group)
    components = sum(part["components"] for part in trees)
    return {**attributes_of_tree(device, grouped_cut, tree, n, report), "components": components}

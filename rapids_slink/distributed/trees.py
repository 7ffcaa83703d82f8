"""The spanning tree of points in blocks: a tree for each pair of blocks, and the forest of all their edges.

    blocks ──lists_of_block──▶ their neighbour lists ──pair_tree──▶ a tree for each pair ──join_trees──▶ one tree

Every edge of the tree of all points is in the tree of each part that holds its two ends: a lighter path within the part
would be a lighter path among all points. Any two points are in some pair of blocks. So the tree of the union of the
pairs' trees is the tree of all points, in the total order, whatever the blocks are. (Jin et al., "DiSC: a distributed
single-linkage hierarchical clustering algorithm using MapReduce", 2013.) Only one pair has the edges between its two
blocks. The edges within a block are taken from one pair as well: the first that holds the block. One device makes a
pair's tree. If it searches all pairs of points, the lists within each block are made once, for all pairs of blocks.

Mutual reachability needs the core distances among all points first; they come from each row's merged lists (search.py).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from operator import getitem
from typing import Any

from distributed import Future

from rapids_slink.distributed.cluster import Run, concatenate, on_worker, work
from rapids_slink.distributed.points import Blocks
from rapids_slink.distributed.search import core_distances
from rapids_slink.metrics import distances
from rapids_slink.neighbors import estimate_search, neighbor_lists, prepare_search
from rapids_slink.neighbors.plan import is_searched_by_tree
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import PartLists
from rapids_slink.pipeline import estimate_fit
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu, resolve, to_host
from rapids_slink.runtime.frames import frame_of
from rapids_slink.runtime.memory import check_memory
from rapids_slink.runtime.threads import Progress
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.lists import list_length
from rapids_slink.spanning_tree.problem import Problem
from rapids_slink.spanning_tree.relational import spanning_forest
from rapids_slink.spanning_tree.ways import grow_tree, way_of

#: The number of trees that are joined at a time.
JOINED = 8


def tree_of_blocks(run: Run, blocks: Blocks, report: Report, progress: bool) -> Future:
    """The edges of the minimum spanning tree: ``weight`` is the surrogate distance, ``distance`` the distance."""
    settings, numbers = blocks.settings, range(len(blocks))
    cores: list[Any] = [None] * len(blocks)
    own: list[Any] = [None]
    if len(blocks) > 1:
        own = [run.task("lists", lists_of_block, settings, blocks.rows[b], index=(b,)) for b in numbers]
    if settings.min_samples > 1:
        with report.stage("neighbors", CPU):
            cores = core_distances(run, blocks, progress)
    pairs: list[tuple[int, ...]] = list(combinations(numbers, 2)) or [(0,)]
    results, joined = [], []
    first_pair = {b: pair for pair in reversed(pairs) for b in pair}
    for pair in pairs:
        is_first = [first_pair[b] == pair for b in numbers]
        arguments = [[part[b] for b in pair] for part in (blocks.rows, cores, own, blocks.starts, is_first)]
        results.append(run.task("tree", pair_tree, settings, *arguments, index=pair))
        joined.append(run.task("edges", getitem, results[-1], "edges", index=pair))
        level = 0
        while len(joined) >= JOINED and (len(results) // JOINED**level) % JOINED == 0:  # as counters carry over
            tree = run.task("join", join_trees, settings, joined[-JOINED:], index=(level, len(results)))
            joined[-JOINED:] = [tree]
            level += 1
    with report.stage("spanning_tree", CPU):
        run.wait(results, Progress("Searching pairs of blocks", blocks.starts[-1]) if progress else None)
        tree = run.task("join", join_trees, settings, joined, index=("all",))
        run.wait([tree])
    tasks = [run.task("counts", getitem, result, "counts", index=(i,)) for i, result in enumerate(results)]
    for counts in run.gather(tasks):
        for stage, entry in counts.items():
            report.count(stage, **entry)
    report.count("spanning_tree", blocks=len(blocks), pairs=len(pairs))
    return tree


def lists_of_block(settings: Settings, rows: Array) -> Any:
    """Ids and surrogate distances of each row's nearest others in its block, on a GPU or the host like the block.

    None if the trees of the block's pairs are not made from lists.
    """
    device = resolve(settings.device)
    lists = work(_lists_of_block, device, settings, device.asarray(rows))
    return lists if lists is None or is_on_gpu(rows) else tuple(to_host(part) for part in lists)


def _lists_of_block(device: Device, settings: Settings, rows: Array) -> Any:
    (n, d), k, metric = rows.shape, list_length(settings), settings.metric
    if n <= k or not may_have_lists(settings, 2 * n, d, device):
        return None
    prepared = metric_rows(metric, rows, device, alone=False, compact=True)
    estimate = estimate_search(n, d, rows.dtype.itemsize, k, device, metric=metric)
    check_memory(device, estimate, f"a block of {n:,} rows")
    lists = neighbor_lists(prepare_search(prepared, device, Report(), metric=metric), n, k, device)
    return lists.ids, lists.weights


def may_have_lists(settings: Settings, n: int, n_features: int, device: Device) -> bool:
    """Whether the tree of two blocks, of n points together, starts from the lists within the blocks.

    It does not where a tree searches, which takes about as long without these lists.
    """
    core = () if settings.min_samples > 1 else None  # their values do not matter here
    problem = Problem(settings, device, n, n_features, itemsize=8, core=core)
    return way_of(problem) == "lists" and not is_searched_by_tree(n, problem.d, settings.metric, device)


def lists_within_blocks(own: list[Any], device: Device) -> PartLists | None:
    """The lists of two blocks, numbered for the points of both in one array."""
    if len(own) < 2 or any(lists is None for lists in own):
        return None
    (ids, weights), (more_ids, more_weights) = own
    first = len(ids)
    both = concatenate((ids, more_ids + device.xp.int32(first)), device), concatenate((weights, more_weights), device)
    return PartLists(*both, first)


@on_worker
def pair_tree(
    device: Device,
    settings: Settings,
    rows: list[Any],
    cores: list[Any],
    own: list[Any],
    starts: list[int],
    within: list[bool],
) -> dict[str, Any]:
    """Edges of the tree of the points of one or two blocks, numbered among all points, and the counts of its report.

    The edges between the blocks are kept, and those within a block if its entry of `within` is true.
    """
    xp, metric, values, report = device.xp, settings.metric, concatenate(rows, device), Report()
    n, d = values.shape
    problem = Problem(settings, device, n, d, values.dtype.itemsize)
    check_memory(device, estimate_fit(problem), f"{counted(n, 'row')} of {counted(d, 'feature')}")
    core = None if cores[0] is None else concatenate(cores, device)
    prepared = metric_rows(metric, values, device, alone=False, compact=True)
    problem = replace(problem.of_rows(prepared), core=core, part_lists=lists_within_blocks(own, device))
    tree, _ = grow_tree(problem, prepared, report)
    first = len(rows[0])
    sides = [tree.columns[end] >= first for end in ("src", "dst")]
    kept = (sides[0] != sides[1]) | xp.asarray([within[0], within[-1]])[sides[0].astype("int8")]
    src, dst, weight = (column[kept] for column in tree.columns.values())
    distance = distances(metric, weight, (src, dst), (values, values), device)
    src, dst = (xp.where(end < first, end + starts[0], end - first + starts[-1]) for end in (src, dst))
    counts = {stage: entry for stage, entry in report.items() if isinstance(entry, dict) and stage != "seconds"}
    columns = {"src": src.astype("int32"), "dst": dst.astype("int32"), "weight": weight, "distance": distance}
    return {"edges": frame_of(device, columns), "counts": counts}


@on_worker
def join_trees(device: Device, settings: Settings, trees: list[Any]) -> Any:
    """The minimum spanning forest of the edges of several trees."""
    if len(trees) == 1:
        return trees[0]
    return spanning_forest(device.frames.concat(trees, ignore_index=True), device)

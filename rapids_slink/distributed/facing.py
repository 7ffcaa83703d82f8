"""Which rows of blocks of near rows face each other, and the trees between them.

    blocks ──block_tree──▶ their trees and the rows' bounds ──facing──▶ rows that face others ──facing_tree──▶ trees

*The bound.* No edge of the tree is heavier than all edges of a path between its two ends. Each cell has a hub, a row
of the sample. Let m(x) be the heaviest edge between row x and the hub of its cell in the tree of its block, and C(s, t)
the heaviest between the hubs of two cells, by the trees of the blocks and that of the sample. Then an edge of the tree
between a row x of cell s and a row y of cell t weighs at most

    max(m(x), C(s, t), m(y)),

and its surrogate distance is no larger, by mutual reachability too. m is infinite where a row is not joined to its hub
within the block, and with a `max_distance` no bound is above that. With M(t) the largest m of a cell, x has such an
edge only if cell t has a point within max(m(x), C(s, t), M(t)) of it, which the box of t tells: x *faces* the block of
t. The tree of the rows of two blocks that face each other holds each edge of the whole tree that joins two of them
(trees.py). The edges within a block are in the tree of the block.

*Strays.* A few rows of large m, noise between clusters, would let all rows of other blocks face their cells. So a cell
has two boxes, each with an M: one of its strays, the rows of the largest m of all, and one of the others. The strays of
all blocks are one more block. It has a tree of those that face strays of others, and one with each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import inf
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from distributed import Future

from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.distributed.cluster import Run, concatenate, on_worker, pairs_of_workers
from rapids_slink.distributed.points import Blocks
from rapids_slink.distributed.trees import Joins, core_distances, edges_frame, tree_of_values
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.trees import boxes_of_groups, facing_blocks
from rapids_slink.runtime.device import CPU, Array, Device, device_of, to_host
from rapids_slink.runtime.threads import Progress
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.problem import Problem

if TYPE_CHECKING:
    from rapids_slink.distributed.near import Near

#: The bits of a row: a block that it faces, the strays of others after the last block, and whether it is a stray.
MAX_NEAR_BLOCKS, STRAY = 30, 31
#: Shares of all rows that may be strays.
STRAYS = 0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4
QUANTILES = 256  # by which the bounds of a block's rows are described
#: A tree between blocks: the blocks that it is of, and its parts: a block's rows or strays that face another.
Trees: TypeAlias = dict[tuple[int, ...], list[tuple[int, bool, int]]]
#: All cells, those without strays and then those of strays, as `facing_blocks` takes them: the lowest and the highest
#: values of their rows, the limits, and the block and the bit of each.
AllCells: TypeAlias = tuple[Array, Array, Array, Array, Array]


def hubs_of_cells(edges: tuple[Array, Array, Array], cell: np.ndarray, cells: int) -> np.ndarray:
    """The row of each cell whose lightest edge in a tree, sorted and of all of two or more rows, is the lightest."""
    src, dst, _ = map(to_host, edges)
    row, first = np.unique(np.stack((src, dst), axis=1), return_index=True)
    by_edge = row[np.argsort(first, kind="stable")]
    hub = np.full(cells, -1)
    hub[cell[by_edge][::-1]] = by_edge[::-1]
    return hub


def bounds_to_hubs(
    edges: tuple[Array, Array, Array], n: int, hubs: np.ndarray, device: Device
) -> tuple[Array, Array, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The heaviest edge between each row and the first hub that it is joined to, (n,) float64, and that hub.

    Infinite and -1 if there is none. Hubs are known by their place among `hubs`, some of the n rows of a forest whose
    sorted edges are given. And the edges of the hubs' own tree: two of them, and the heaviest edge between.
    """
    xp, (src, dst, weight) = device.xp, edges
    m = src.size
    first, second, size = xp.empty((3, m), "int32")
    if m:
        dendrogram_kernels(device).merge_in_order(src, dst, n, first, second, size)
    merge, parent, hub = (
        xp.arange(n, n + m, dtype="int32"),
        xp.arange(n + m, dtype="int32"),
        xp.full(n + m, -1, "int32"),
    )
    parent[first] = parent[second] = merge
    marked = xp.asarray(hubs)
    hub[marked] = xp.arange(hubs.size, dtype="int32")
    above = parent
    while marked.size:  # clusters ever more levels above learn that they hold a hub, until no more do
        up, own = above[marked], hub[marked]
        fresh = xp.flatnonzero(hub[up] < 0)
        if not fresh.size:
            break
        xp.maximum.at(hub, up[fresh], own[fresh])
        marked, above = xp.flatnonzero(hub >= 0), above[above]
    within, before = xp.where(hub >= 0, xp.arange(n + m, dtype="int32"), parent), None
    while before is None or not bool((within == before).all()):
        before, within = within, within[within]
    node = within[:n]
    own, at = hub[node], xp.maximum(node - n, 0)
    bound = xp.where(own < 0, inf, xp.where(node < n, 0.0, weight[at] if m else 0.0))
    joined = xp.flatnonzero((hub[first] >= 0) & (hub[second] >= 0))
    between = hub[first[joined]], hub[second[joined]], weight[joined]
    return bound, own, tuple(map(to_host, between))  # type: ignore[return-value]


def minimax(count: int, first: np.ndarray, second: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The least of the heaviest edges of all ways between two of `count` hubs, (count, count); infinite of none."""
    heaviest = np.full((count, count), inf)
    np.fill_diagonal(heaviest, 0)
    members, label = [np.array([hub]) for hub in range(count)], np.arange(count)
    for e in np.argsort(weight, kind="stable"):
        a, b = label[first[e]], label[second[e]]
        if a != b:
            heaviest[np.ix_(members[a], members[b])] = heaviest[np.ix_(members[b], members[a])] = weight[e]
            label[members[b]] = a
            members[a] = np.concatenate((members[a], members[b]))
    return heaviest


def reach_of_rows(bound: Array, own: Array, cell: Array, heaviest: np.ndarray) -> Array:
    """The heaviest edge between each row and the hub of its cell, by way of its `own` hub: `heaviest` is from that."""
    device = device_of(bound)
    way = device.asarray(np.pad(heaviest, ((0, 1), (0, 0)), constant_values=inf))  # the last is of no hub
    reach: Array = device.xp.maximum(bound, way[own, cell])
    return reach


def quantiles(bound: Array) -> np.ndarray:
    """Bounds of rows at even places in their order, the last the largest: (`QUANTILES`,) float64 on the host."""
    device = device_of(bound)
    at = device.asarray(np.maximum(np.arange(1, QUANTILES + 1) * bound.size // QUANTILES - 1, 0))
    chosen: np.ndarray = to_host(device.xp.sort(bound)[at])
    return chosen


def least_of_strays(of_blocks: Sequence[np.ndarray], sizes: Sequence[int], share: float) -> float:
    """About above which bound this share of all rows is, by `quantiles` of parts of these sizes."""
    values, weights = np.concatenate(of_blocks), np.repeat(np.array(sizes) / QUANTILES, QUANTILES)
    order = np.argsort(values, kind="stable")
    at = int(np.searchsorted(np.cumsum(weights[order]), (1 - share) * sum(sizes)))
    return float(values[order[min(at, order.size - 1)]])


def see_cells(
    rows: Array, cell: Array, bound: Array, cells: np.ndarray, usual: float, device: Device
) -> dict[str, np.ndarray]:
    """The boxes of some cells that others see: of their rows of a `usual` bound at most, and then of strays.

    ``low`` and ``high``, (2, cells, d), and ``largest``, (2, cells), the largest bounds of their rows: float64 on the
    host. Nothing is near to the box of no rows. `cells` ascend, and have all rows.
    """
    xp = device.xp
    group = xp.searchsorted(device.asarray(cells), cell) + cells.size * (bound > usual)
    low, high, largest = boxes_of_groups(rows, bound, group.astype("int32"), 2 * cells.size, device)
    shape = 2, cells.size, rows.shape[1]
    return {"low": low.reshape(shape), "high": high.reshape(shape), "largest": largest.reshape(shape[:2])}


def all_cells(
    seen: dict[str, np.ndarray], heaviest: np.ndarray, block_of_cell: np.ndarray, max_weight: float
) -> AllCells:
    """All cells, by what others see of them and the heaviest edges between their hubs."""
    low, high = (seen[end].reshape(-1, seen[end].shape[-1]) for end in ("low", "high"))
    limit = np.minimum(np.maximum(np.tile(heaviest, 2), seen["largest"].ravel()), max_weight)
    of_strays = np.full_like(block_of_cell, block_of_cell.max() + 1)
    return low, high, limit, np.tile(block_of_cell, 2), np.concatenate((block_of_cell, of_strays))


def faces(
    rows: Array,
    cell: Array,
    bound: Array,
    is_stray: Array,
    of_cells: AllCells,
    own: int,
    metric: Metric,
    device: Device,
) -> Array:
    """The bits of each row of block `own`, (n,) uint32: the blocks that it faces, and whether it is a stray."""
    blocks = facing_blocks(rows, cell, bound, *of_cells, own, metric, device)
    bits: Array = blocks | (is_stray.astype("uint32") << device.xp.uint32(STRAY))
    return bits


def count_faces(bits: Array, count: int) -> np.ndarray:
    """How many rows without strays, and how many strays, face each of `count` blocks and strays, (2, count + 1)."""
    xp = device_of(bits).xp
    is_stray = (bits >> xp.uint32(STRAY)) == 1
    faced = [(bits >> xp.uint32(b)) & 1 == 1 for b in range(count + 1)]
    sums = xp.stack([(one & kind).sum() for kind in (~is_stray, is_stray) for one in faced])
    counts: np.ndarray = to_host(sums).reshape(2, count + 1)
    return counts


def trees_between(sizes: np.ndarray) -> Trees:
    """The trees between blocks, by how many rows of each block face which, as `count_faces` has them."""
    count = len(sizes)

    def some(a: int, is_stray: bool, faced: int) -> list[tuple[int, bool, int]]:
        return [(a, is_stray, faced)] if sizes[a, int(is_stray), faced] else []

    pairs: Trees = {(a, b): some(a, False, b) + some(b, False, a) for a, b in combinations(range(count), 2)}
    trees = {pair: parts for pair, parts in pairs.items() if len(parts) == 2}
    for a in range(count):
        strays = [part for b in range(count) if b != a for part in some(b, True, a)]
        if strays and some(a, False, count):
            trees[(a,)] = some(a, False, count) + strays
    strays = [part for b in range(count) for part in some(b, True, count)]
    return trees | ({(): strays} if len(strays) > 1 else {})


def choose_strays(
    rows: Array,
    cell: Array,
    bound: Array,
    block: Array,
    heaviest: np.ndarray,
    block_of_cell: np.ndarray,
    planned: int,
    always: bool,
    metric: Metric,
    device: Device,
) -> float | None:
    """The share of strays by which trees test the fewest pairs of rows; None if that is more than all, unless `always`.

    The rows, with their cells, bounds and blocks, are a sample. Blocks of rows in their order, of which `planned` were
    to be made, test each pair once. A worker has memory for a tree of two of these; if no share serves, None as well.
    """
    xp, count, tests = device.xp, int(block_of_cell.max()) + 1, dict[float, int]()
    for share in STRAYS:
        usual = least_of_strays([quantiles(bound)], [len(rows)], share)
        seen, is_stray = see_cells(rows, cell, bound, np.arange(block_of_cell.size), usual, device), bound > usual
        of_cells = tuple(map(device.asarray, all_cells(seen, heaviest, block_of_cell, inf)))
        sizes = np.empty((count, 2, count + 1), int)
        for own in range(count):
            at = xp.flatnonzero(block == own)
            some = rows[at], cell[at], bound[at], is_stray[at]
            sizes[own] = count_faces(faces(*some, of_cells, own, metric, device), count)
        of_trees = [sum(sizes[a, int(kind), b] for a, kind, b in tree) for tree in trees_between(sizes).values()]
        if max(of_trees, default=0) * planned <= 2 * len(rows):
            tests[share] = sum(int(size) ** 2 for size in of_trees)
    if not tests:
        return None
    best = min(tests, key=lambda share: tests[share])
    of_blocks = int((to_host(xp.bincount(block)) ** 2).sum())
    return best if always or of_blocks + tests[best] <= len(rows) ** 2 else None


def tree_of_near_blocks(run: Run, blocks: Blocks, progress: Progress | None, near: Near) -> tuple[list[Future], int]:
    """See `trees.tree_of_blocks`, of blocks of near rows."""
    settings, owners, numbers = blocks.settings, blocks.owners, range(len(blocks))
    keepers, by_cores = [run.worker(owner) for owner in owners], settings.min_samples > 1
    rows, cells = blocks.rows, blocks.cells
    run.wait(rows)

    def on_each(name: str, function: Any, *args: Any) -> list[Future]:
        """A task for each block where it is kept. Of a list it gets the block's entry."""
        return [
            run.task(
                name,
                function,
                *(part[b] if isinstance(part, list) else part for part in args),
                index=(b,),
                worker=keepers[b],
            )
            for b in numbers
        ]

    def who_meets(bounds: list[Future]) -> tuple[list[Future], np.ndarray]:
        """See `trees.WhoMeets`."""
        of_cells = run.task("all-boxes", cells_of_blocks, settings, near.block_of_cell, see("boxes", bounds, inf), None)
        bits, sizes = face("meeting", bounds, of_cells, inf)
        return bits, sizes.sum(axis=1)[:, :-1] > 0

    def face(name: str, bounds: list[Future], of_cells: Future, usual: float) -> tuple[list[Future], np.ndarray]:
        both = on_each(name, facing, settings, rows, cells, bounds, of_cells, list(numbers), usual)
        bits, sizes = (on_each(f"{name}-{i}", getitem, both, i) for i in range(2))
        return bits, np.array(run.gather(sizes))

    def see(name: str, bounds: list[Future], usual: float) -> list[Future]:
        return on_each(name, cells_of_block, settings, rows, cells, bounds, near.block_of_cell, list(numbers), usual)

    cores: list[Any] = core_distances(run, blocks, who_meets) if by_cores else [None] * len(blocks)
    of_all = near.hubs, near.block_of_cell
    made = on_each("tree", block_tree, settings, rows, blocks.numbers, cells, cores, *of_all, list(numbers))
    trees, bounds, about = (on_each(f"tree-{i}", getitem, made, i) for i in range(3))
    hub_edges, of_bounds = zip(*run.gather(about), strict=True)
    usual = least_of_strays(of_bounds, np.diff(blocks.starts).tolist(), near.strays)
    between = near.between
    if by_cores:
        some = on_each("sampled", rows_with_numbers, settings, rows, blocks.numbers, cores, near.sampled)
        (between,) = run.gather([run.task("sample-tree", hubs_between, settings, some, near.hubs)])
    seen, edges = see("cells", bounds, usual), [between, *hub_edges]
    of_cells = run.task("all-cells", cells_of_blocks, settings, near.block_of_cell, seen, edges)
    bits, sizes = face("facing", bounds, of_cells, usual)
    wanted = trees_between(sizes)
    joined, results = Joins(run, settings), []
    for tree in trees:
        joined.add(tree)
    for key, w in pairs_of_workers(owners, max(1, len(run.workers)), list(wanted)):
        parts = []
        for a, is_stray, faced in wanted[key]:
            through_host = owners[a] != w and run.copies_through_host(settings)
            arguments = rows[a], blocks.numbers[a], cores[a], bits[a], is_stray, faced, through_host
            parts.append(run.task("rows", facing_rows, *arguments, index=(*key, -1 - a, faced), worker=keepers[a]))
        origins = [a for a, *_ in wanted[key]]
        results.append(run.task("tree-between", facing_tree, settings, parts, origins, index=key, worker=run.worker(w)))
        joined.add(results[-1])
    run.wait([*trees, *results], progress)
    return joined.trees, len(results)


def tree_of_sample(device: Device, settings: Settings, values: Array, core: Array) -> tuple[Array, Array, Array]:
    """The edges of the tree of these rows, whatever their distances."""
    samples = (
        1 if core is None else settings.min_samples
    )  # the sample's own core distances would say nothing of all rows'
    settings = replace(settings, max_distance=None, n_neighbors=None, min_samples=samples)
    return tree_of_values(device, settings, values, core)[0]


@on_worker
def block_tree(
    device: Device,
    settings: Settings,
    rows: Array,
    numbers: Array,
    cell: Array,
    core: Array,
    hubs: Array,
    block_of_cell: Array,
    b: int,
) -> tuple[dict[str, Any], Array, tuple[Any, np.ndarray]]:
    """The tree of block b as `trees.pair_tree` returns it; the rows' bounds; hubs' edges, and the bounds' quantiles."""
    xp, n = device.xp, len(rows)
    edges, report = tree_of_values(device, settings, rows, core)
    cells = np.flatnonzero(to_host(block_of_cell) == b)
    wanted = hubs[device.asarray(cells)]
    at = xp.minimum(xp.searchsorted(numbers, wanted), n - 1)
    is_here = to_host((numbers[at] == wanted) & (cell[at] == device.asarray(cells)))
    with_hub, at = cells[is_here], to_host(at)[is_here]  # the other hubs are elsewhere, if places are rounded otherwise
    bound, own, (first, second, weight) = bounds_to_hubs(edges, n, at, device)
    heaviest = np.full((at.size, block_of_cell.size), inf)
    heaviest[:, with_hub] = minimax(at.size, first, second, weight)
    bound = xp.minimum(reach_of_rows(bound, own, cell, heaviest), max_weight_of(settings, rows.shape[1]))
    tree = {"edges": edges_frame(device, settings, edges, rows, core, numbers), "report": report}
    return tree, bound, ((with_hub[first], with_hub[second], weight), quantiles(bound))


@on_worker
def cells_of_block(
    device: Device,
    settings: Settings,
    rows: Array,
    cell: Array,
    bound: Array,
    block_of_cell: Array,
    b: int,
    usual: float,
) -> dict[str, np.ndarray]:
    """`see_cells` of block b."""
    prepared = metric_rows(settings.metric, rows, device, alone=False)
    return see_cells(prepared, cell, bound, np.flatnonzero(to_host(block_of_cell) == b), usual, device)


@on_worker
def rows_with_numbers(
    device: Device, settings: Settings, rows: Array, numbers: Array, core: Array, wanted: Array
) -> tuple[Array, Array, Array]:
    """The rows of a block that have the wanted numbers, with these and their core distances."""
    at = device.xp.flatnonzero(device.xp.isin(numbers, wanted))
    return rows[at], numbers[at], core[at]


@on_worker
def hubs_between(device: Device, settings: Settings, parts: list[Any], hubs: Array) -> tuple[np.ndarray, ...]:
    """`Near.between` by mutual reachability."""
    rows, numbers, core = (concatenate(column, device) for column in zip(*parts, strict=True))
    order = device.xp.argsort(numbers)
    edges = tree_of_sample(device, settings, rows[order], core[order])
    at = to_host(device.xp.searchsorted(numbers[order], hubs))
    return tuple(bounds_to_hubs(edges, len(rows), at, device)[2])


def cells_of_blocks(
    settings: Settings, block_of_cell: np.ndarray, seen: list[dict[str, Any]], between: list[Any] | None
) -> AllCells:
    """`all_cells` of what blocks see of theirs, which they have in order, and of the edges `between` hubs.

    Without these edges only rows have bounds.
    """
    order, together = np.argsort(block_of_cell, kind="stable"), {}
    for name in ("low", "high", "largest"):
        parts = np.concatenate([of_block[name] for of_block in seen], axis=1)
        together[name] = np.empty_like(parts)
        together[name][:, order] = parts
    if between is None:
        heaviest, together["largest"] = np.full((order.size, order.size), -inf), np.full((2, order.size), -inf)
    else:
        heaviest = minimax(order.size, *map(np.concatenate, zip(*between, strict=True)))
    return all_cells(together, heaviest, block_of_cell, max_weight_of(settings, together["low"].shape[-1]))


def max_weight_of(settings: Settings, d: int) -> float:
    """`Problem.max_weight` of rows of d features."""
    return Problem(settings, CPU, 2, d, itemsize=8).max_weight


@on_worker
def facing(
    device: Device,
    settings: Settings,
    rows: Array,
    cell: Array,
    bound: Array,
    of_cells: AllCells,
    own: int,
    usual: float,
) -> tuple[Array, np.ndarray]:
    """The bits of the rows of block `own`, and `count_faces` of them."""
    metric, is_stray, count = settings.metric, bound > usual, int(of_cells[-1].max())
    prepared = metric_rows(metric, rows, device, alone=False)
    bits = faces(prepared, cell, bound, is_stray, of_cells, own, metric, device)
    return bits, count_faces(bits, count)


def facing_rows(
    rows: Any, numbers: Any, core: Any, bits: Any, is_stray: bool, faced: int, through_host: bool
) -> tuple[Any, ...]:
    """The rows of a block, or its strays, that face another, with their numbers and core distances."""
    here = device_of(rows)  # the host, if the partitions are there
    xp, bits = here.xp, here.asarray(bits)
    at = xp.flatnonzero((bits >> xp.uint32(faced)) & 1 & ((bits >> xp.uint32(STRAY)) == int(is_stray)))
    some = rows[at], numbers[at], None if core is None else here.asarray(core)[at]
    return tuple(part if part is None else to_host(part) for part in some) if through_host else some


@on_worker
def facing_tree(
    device: Device, settings: Settings, parts: list[tuple[Array, Array, Array]], origins: list[int]
) -> dict[str, Any]:
    """The edges between rows of different blocks in the tree of all these rows, as `trees.pair_tree` returns them."""
    xp = device.xp
    rows, numbers, cores = zip(*parts, strict=True)
    values, number = concatenate(rows, device), concatenate(numbers, device)
    origin = concatenate([xp.full(len(part), a, "int32") for a, part in zip(origins, rows, strict=True)], device)
    order = xp.argsort(number)
    values, number, origin = values[order], number[order], origin[order]
    core = None if cores[0] is None else concatenate(cores, device)[order]
    (src, dst, weight), report = tree_of_values(device, settings, values, core)
    crosses = origin[src] != origin[dst]
    edges = src[crosses], dst[crosses], weight[crosses]
    return {"edges": edges_frame(device, settings, edges, values, core, number), "report": report}

"""The edges that new points may have in the tree, found by one pass over their pairs, on a GPU.

Let T be the old points' tree and β(u, v) the *bottleneck* of two of them, the heaviest edge on T's path from u to v.
If u is any old point, p a new one, and (p, v) is heavier than (p, u) and β(u, v), then it is the heaviest edge of the
cycle p, u, ..., v, and not in the minimum spanning tree. So if u is near to p, few of p's edges are candidates. Nor is
an edge between new points p and q that is heavier than (p, u), (q, u') and β(u, u').

The old points are put into the order of the leaves of T's dendrogram. The *gap* before a leaf is its bottleneck with
the leaf before it, and the bottleneck of any two leaves is the largest gap between them. So all pairs of p and a tile
of the order have one bound: the largest gap from u to the tile's far end. The fused filter tests each pair by the
bound of its row and tile. Large gaps are put between two tiles, which repeated points fill up.
"""

from typing import Any

import numpy as np

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter.product import ProductFilter
from rapids_slink.neighbors.slices import equal_slices, geometric_slices
from rapids_slink.neighbors.task import Search, SearchTask
from rapids_slink.runtime.cuda import check_arrays, constant, launch, launch_blocks
from rapids_slink.runtime.device import Array, to_host

SOURCE = "spanning_tree/added.cu"
BLOCK_ROWS, TILE = (constant("neighbors/filter/fused/mma.cu", name) for name in ("ROWS", "TILE"))
#: The near point of a new one is the nearest of one old point in SAMPLED, or of MIN_SAMPLE.
SAMPLED, MIN_SAMPLE = 16, 2048
#: A gap between tiles is LARGE times the median, and no more than one point in SEGMENT has one.
LARGE, SEGMENT = 4, 512
#: How many pairs there may be, and how many bounds of rows and tiles at a time.
MAX_PAIRS, MAX_BOUNDS = 2**24, 2**27
PAIR_BYTES = 64
PART = constant(SOURCE, "PART")  # tiles
MAX_NEW = 2**22


def candidate_edges(
    rows: Array, merges: tuple[Array, Array, Array], weight: Array, search: Search, n_old: int
) -> tuple[Array, Array, Array] | None:
    """A superset of the tree's edges that have a new point; None if there is no fused filter or they are too many.

    `rows` are the old points and then the new ones, among all of which `search` is; `merges` (left, right, size) and
    `weight`, the merges' ascending surrogate distances, are the linkage of the old points' tree. An edge, of the arrays
    src, dst and weight, may come more than once.
    """
    if not isinstance(search, BruteForceSearch) or not isinstance(search.filter, ProductFilter):
        return None
    if not search.device.is_gpu or n_old < TILE or len(rows) - n_old > MAX_NEW:
        return None
    xp, filter_, n = search.device.xp, search.filter, len(rows)
    new = xp.arange(n_old, n, dtype="int32")
    near = _near_points(new, search, n_old)
    reach = search.distances(new, near)
    position, order, gap = leaf_order(*merges, weight, xp)
    first, start, points, gaps = tiles_of_leaves(order, gap, weight, xp)
    at = position[near].astype("int64")
    part = xp.searchsorted(first, at, side="right") - 1
    own_tile = ((start[part] + at - first[part]) // TILE).astype("int32")
    by_tile = xp.argsort(own_tile)[xp.minimum(xp.arange(-(-new.size // BLOCK_ROWS) * BLOCK_ROWS), new.size - 1)]
    filter_.arrange(xp.concatenate((points, new[by_tile])))
    pairs = _pairs_within(filter_, own_tile[by_tile], reach[by_tile], gaps, search.free_bytes)
    if pairs is None:
        filter_.arrange(filter_.first_order())
        return None
    kept = xp.flatnonzero(pairs[1] < pairs[0])  # a pair of new points once
    src, dst = pairs[1][kept], pairs[0][kept]
    return src, dst, search.distances(src, dst)


def _near_points(new: Array, search: Any, n_old: int) -> Any:
    """An old point near to each new one."""
    xp, filter_, kernels = search.device.xp, search.filter, search.kernels
    sample = kernels.low_discrepancy_order(n_old)[: max(n_old // SAMPLED, min(n_old, MIN_SAMPLE))]
    filter_.arrange(sample)
    near = xp.empty_like(new)
    points = xp.arange(n_old + new.size, dtype="int32")
    for at in equal_slices(slice(0, new.size), filter_.rows_at_once(1)):
        ids, bound = new[at], xp.full(new[at].size, xp.inf)
        task, top = SearchTask(ids, 1, ids, points), kernels.empty_lists(ids.size, 1)
        filter_.seed(task, ids, bound, ids.size)
        queries = filter_.query(ids)
        for band in geometric_slices(filter_.first_band, sample.size, filter_.growth):
            candidates = filter_.candidates(queries, band, bound, (None, None), task)
            kernels.rerank(search.exact, ids, candidates, None, bound, top)
        near[at] = xp.maximum(top.ids[:, 0], 0)
    return near


def leaf_order(left_child: Array, right_child: Array, size: Array, height: Array, xp: Any) -> tuple[Any, Any, Any]:
    """The leaves' positions in an order of the dendrogram, the leaves in that order, and the gap before each.

    The larger of two clusters comes first.
    """
    n = left_child.size + 1
    check_arrays("int32", left_child, right_child, size)
    check_arrays("float64", height)
    merges, link = (np.int32(n), left_child, right_child, size), xp.empty(n - 1, "uint64")
    position, order, gap = xp.empty(n, "int32"), xp.empty(n, "int32"), xp.empty(n)
    launch(SOURCE, "link_merges", n - 1, *merges, link)
    launch(SOURCE, "order_leaves", n - 1, *merges, height, link, position, order, gap)
    return position, order, gap


def tiles_of_leaves(order: Array, gap: Array, height: Array, xp: Any) -> tuple[Any, Any, Any, Any]:
    """Leaves in whole tiles. `height` has all gaps in ascending order.

    Returns the positions and the places, int64, at which the parts of the order begin that have their own tiles; the
    leaf at each place and the gap before it, 0 where the leaf before is repeated.
    """
    n = order.size
    large = xp.maximum(LARGE * height[n // 2 - 1], height[-max(1, n // SEGMENT)])
    begins = gap > large
    begins[0] = True
    ends = np.append(to_host(xp.flatnonzero(begins)), n)  # few: fewer launches on the host
    padded = -(-np.diff(ends) // TILE) * TILE
    first, start = xp.asarray(ends), xp.asarray(np.cumsum(padded) - padded)
    places = -(-int(padded.sum()) // BLOCK_ROWS) * BLOCK_ROWS
    points, gaps = xp.empty(places, "int32"), xp.empty(places)
    sizes = np.int32(places), np.int32(start.size)
    launch(SOURCE, "fill_tiles", places, *sizes, first, start, order, gap, points, gaps)
    return first[:-1], start, points, gaps


def _pairs_within(filter_: Any, own_tile: Array, reach: Array, gaps: Array, free_bytes: float) -> Any:
    """The pairs of new points, the filter's last, and all points that are within their bounds, and maybe others."""
    xp = filter_.device.xp
    tiles, new_tiles, m = gaps.size // TILE, reach.size // TILE, reach.size
    of_tile = gaps.reshape(tiles, TILE)
    bounds = xp.concatenate((reach, of_tile[:, 1:].max(axis=1), of_tile[:, 0]))
    radii = filter_.radii(bounds, None, -(-bounds.size // TILE) * TILE)
    inner, lead = radii.of_row[m : m + 2 * tiles].reshape(2, tiles)
    parts = xp.zeros((2, -(-tiles // PART) * PART), "float32")
    parts[0, :tiles], parts[1, : tiles - 1] = xp.maximum(lead, inner), xp.maximum(lead[1:], inner[:-1])
    rightward, leftward = parts.reshape(2, -1, PART).max(axis=2)
    check_arrays("int32", own_tile)
    check_arrays("float32", radii.of_row, radii.of_tile, inner, lead, rightward, leftward)
    all_tiles, pairs = tiles + new_tiles, []
    rows_at_once = int(min(MAX_BOUNDS, free_bytes / 16)) // all_tiles // BLOCK_ROWS * BLOCK_ROWS
    capacity = int(min(MAX_PAIRS, free_bytes / PAIR_BYTES))
    for rows in equal_slices(slice(0, m), max(BLOCK_ROWS, rows_at_once)):
        n, first_row = rows.stop - rows.start, tiles * TILE + rows.start
        thresholds = xp.empty((all_tiles, n), "float32")
        blocks, size, to_old = n // BLOCK_ROWS, np.int32(n), (inner, lead, rightward, leftward, thresholds)
        start = np.int32(rows.start), np.int32(tiles)
        grid = blocks, rightward.size
        launch_blocks(SOURCE, "bottlenecks_by_tile", grid, BLOCK_ROWS, size, *start, own_tile, radii.of_row, *to_old)
        to_new, grid = (radii.of_tile, thresholds, thresholds[tiles:]), (blocks, new_tiles)
        launch_blocks(SOURCE, "bottlenecks_by_new_tile", grid, BLOCK_ROWS, size, own_tile, *to_new)
        items = xp.asarray(_work_items(first_row, n // BLOCK_ROWS, all_tiles))
        pairs.append(filter_.pairs_of_items(items, thresholds, capacity, first_row))
        if pairs[-1] is None:
            return None
        capacity -= pairs[-1].shape[1]
    return xp.concatenate(pairs, axis=1)


def _work_items(first_row: int, blocks: int, tiles: int) -> Any:
    """Items of each block of rows and some tiles: those of the same tiles follow one another, which share them."""
    from rapids_slink.neighbors.filter.fused.launch import item_splits

    share = -(-tiles // item_splits(blocks, tiles))
    first, block = np.meshgrid(np.arange(0, tiles, share), np.arange(blocks), indexing="ij")
    row_tile = first_row // TILE + block * (BLOCK_ROWS // TILE)
    parts = row_tile, first, np.minimum(first + share, tiles), np.zeros_like(first)
    return np.stack(parts, axis=-1).reshape(-1, 4).astype(np.int32)

"""Tiles on a GPU: launchers of the sources in this folder, and of the fused filter's kernel."""

from dataclasses import replace
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups
from rapids_slink.neighbors.exact.cuda import rerank as rerank
from rapids_slink.neighbors.filter import QuantizedPoints, accumulation_bound
from rapids_slink.neighbors.filter.fused import (
    ATOM_STEPS,
    QUANTIZE,
    Destination,
    LocalTerms,
    append_survivors,
    fp16_keeps_bound,
    square_bound,
)
from rapids_slink.neighbors.task import SearchTask, golden_stride
from rapids_slink.neighbors.tiles.order import (
    BLOCK,
    ENCODE,
    ORDER,
    ROUND_UP,
    TILE,
    TILES,
    TINY,
    Balls,
    CommonGroups,
    Cuts,
    Lists,
    PlacedTiles,
    Reach,
    Rows,
    check_key_bits,
    sample_stride,
)
from rapids_slink.runtime.cuda import (
    WARP,
    c_struct,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    multiprocessors,
    value_option,
)
from rapids_slink.runtime.device import Array

CUT_THREADS, MOST_CUTS = constant(ORDER, "THREADS"), 1024  # threads of a block that cuts nodes, and blocks at a time
LEVELS, CHECKED = 64, 8  # the most levels of the tree, and after how many levels the host asks whether there are more
MARK_THREADS = 256
GROUP = constant(TILES, "GROUP")  # coordinates that are looked at together
RESIDENT = 4  # blocks of a multiprocessor that decide which marked tiles are near
CELLS_AT_ONCE = 16  # blocks that share the cells of a column of terms
FEW = 4095  # numbers of a list that come to the host together with their count
ITEM_TILES = 32  # the most tiles of a work item
TERM_TYPES = "float32", "float32"


class Band(NamedTuple):
    """The arrays of a band of lists."""

    needed: Array  # (blocks, cells) bool: the cells of points that hold a block's tiles
    items: Array  # (items, 4) int32, as fused/pass.cuh reads them
    next_item: Array  # (1,) int32, 0
    count: Array  # (rows,) int32, 0: the number of candidates


def lost_by_sums(n_features: int, fine: bool) -> float:
    """Return the most that sums of products of rows lose, relative to the product of both lengths.

    If `fine`, these are sums of three products of fp16. In two of these a number is at most 2⁻¹⁰ as long as its row, so
    that all sizes add up to less than 1 + 2⁻⁸ lengths.
    """
    return accumulation_bound(3 * (n_features + 16)) * (1 + 2.0**-8) if fine else accumulation_bound(n_features + 16)


def products_are_precise() -> bool:
    """Return whether sums of fp16 products lose no more than the bounds assume."""
    return fp16_keeps_bound()


def places_of_points(
    points: Array, centre: Array, unit: float, axes: Array, departure: float
) -> tuple[Array, Array, float, float]:
    """Return the places of points and their errors: see `rapids_slink.neighbors.tiles.cpu.places_of_points`."""
    (n, d), m = points.shape, len(axes)
    out, errors, largest = cp.empty((n, m + 1)), cp.empty((n, 2)), cp.zeros(2)
    launch(
        ENCODE, "find_places", n, points, n, d, centre, unit, axes, m, departure, out, errors, largest,
        options=_options(points),
    )  # fmt: skip
    square, error = largest.tolist()
    return out, errors, square**0.5, error


def cut(places: Array, size: int, leaf: int, min_side: int) -> Cuts:
    """Cut a sample of the places into leaves: see `rapids_slink.neighbors.tiles.cpu.cut`."""
    (n, m), room = places.shape, 2 * size + 1
    nodes, ends, values = cp.empty((room, 4), cp.int32), cp.empty(room, cp.int32), cp.empty(room, cp.float32)
    middles, breaks, cuts = cp.empty((room, m), cp.float32), cp.zeros(size + 1, cp.int32), cp.zeros(LEVELS, cp.int32)
    sample, order, moved = cp.empty((size, m), cp.float32), cp.empty(size, cp.int32), cp.empty(size, cp.int32)
    launch(ORDER, "begin_tree", size * m, places, n, m, size, sample_stride(n, size), sample, order, nodes, ends)
    for level in range(LEVELS):
        blocks = min(2**level, MOST_CUTS)
        launch_blocks(
            ORDER, "cut_nodes", (blocks,), CUT_THREADS, sample, m, order, moved, nodes, ends, values, middles, breaks,
            cuts, level, leaf, min_side,
        )  # fmt: skip
        if level >= int(size / leaf).bit_length() and level % CHECKED == 0 and not int(cuts[level]):
            break
    return Cuts(nodes, values, middles, breaks)


def leaves(cuts: Cuts, places: Array) -> Array:
    """Return where the leaf of each place begins, (n,) int32: see `rapids_slink.neighbors.tiles.cpu.leaves`."""
    n, m = places.shape
    leaf = cp.empty(n, cp.int32)
    launch(ORDER, "find_leaves", n, cuts.nodes, cuts.values, cuts.middles, places, m, n, leaf)
    return leaf


def rows_by_cells(
    rows: Array,
    index: Array,
    slot_of: Array,
    cell_of_tile: Array,
    first_tile: Array,
    group: Array,
    size: int,
    many: int,
) -> tuple[Array, np.ndarray, np.ndarray]:
    """Sort the rows of a task by cell, component and slot: see `rapids_slink.neighbors.tiles.cpu.rows_by_cells`."""
    check_key_bits(first_tile.size - 1, size)
    m, shift = rows.size if index is None else index.size, size.bit_length() - 1
    keys, by_key, begins = cp.empty(m, cp.int64), cp.empty(m, cp.int32), cp.zeros(m + 1, cp.uint64)
    launch(ORDER, "put_keys", m, m, rows, index, slot_of, cell_of_tile, first_tile, group, shift, keys)
    order = cp.argsort(keys)
    launch(ORDER, "start_runs", m, m, keys, order, index, shift, many, by_key, begins)
    listed = _listed(begins)
    return by_key, listed & 0xFFFFFFFF, (listed >> 32).astype(np.int32)


def _listed(counted: Array) -> np.ndarray:
    """Return the entries of an array that begins with their number, on the host, sorted by the lower 32 bits.

    A few entries come with their number, so that the host waits once.
    """
    head = cp.asnumpy(counted[: 1 + FEW])
    count = int(head[0])
    listed = (head if count < head.size else cp.asnumpy(counted[: 1 + count]))[1 : 1 + count].astype(np.int64)
    return listed[np.argsort(listed & 0xFFFFFFFF)]


def fill_slots(rows: Array, blocks: np.ndarray, slot_of: Array = None) -> tuple[Array, Array]:
    """Return rows in slots and the cells of their tiles: see `rapids_slink.neighbors.tiles.cpu.fill_slots`."""
    begins, counts, cells = cp.asarray(blocks)
    slots, cell_of_tile = cp.empty(cells.size * BLOCK, cp.int32), cp.empty(cells.size * BLOCK // TILE, cp.int32)
    launch_blocks(ORDER, "fill_slots", (cells.size,), BLOCK, rows, begins, counts, cells, slots, cell_of_tile, slot_of)
    return slots, cell_of_tile


def boxes(places: Array, errors: Array, slots: Array) -> Array:
    """Return the boxes of tiles, (tiles, 2, m) float64: see `rapids_slink.neighbors.tiles.cpu.boxes`."""
    tiles, m = slots.size // TILE, places.shape[1]
    out = cp.empty((tiles, 2, m))
    launch_blocks(TILES, "bound_tiles", (tiles,), TILE, places, errors, m, slots, out)
    return out


def near_tiles(
    row_boxes: Array, points: PlacedTiles, where: Array, reach: Reach, common: CommonGroups, balls: Balls | None = None
) -> Lists:
    """Return for each block of rows the tiles with a point within reach of one of them: see `tiles.cpu.near_tiles`."""
    (boxes, turned, places, lost), (block_group, tile_group) = points, common or (None, None)
    (n_tiles, _, m), n_blocks = boxes.shape, reach.blocks.size
    words, stride = -(-n_tiles // WARP), golden_stride(n_tiles)
    marks, counts = cp.empty((n_blocks, words), cp.uint32), cp.zeros(n_blocks, cp.int32)
    launch_blocks(
        TILES, "mark_near_tiles", (n_blocks, -(-n_tiles // MARK_THREADS)), MARK_THREADS, row_boxes, turned, m, n_tiles,
        stride, reach.blocks, block_group, tile_group, words, marks, shared_memory=16 * m,
    )  # fmt: skip
    cells, most_off = 0 if balls is None else len(balls.products[0]), np.nextafter(np.float32(lost), np.float32(np.inf))
    shares = min(-(-RESIDENT * multiprocessors() // n_blocks), -(-words // (BLOCK // WARP)))
    launch_blocks(
        TILES, "refine_marks", (n_blocks, shares), BLOCK, places, places.shape[1], m, where, reach.rows, turned,
        None if block_group is None else row_boxes, most_off, _balls(balls), cells, n_tiles, stride, words, marks,
        counts, shared_memory=4 * ((GROUP * -(-(m - 1) // GROUP) + 2) * BLOCK + 2 * m + -(-cells // 16)),
    )  # fmt: skip
    lengths = cp.asnumpy(counts).astype(np.int64)
    up_to, tiles = np.cumsum(lengths), cp.empty(max(1, int(lengths.sum())), cp.int32)
    begins, ends = cp.asarray(np.stack((up_to - lengths, up_to)))
    launch_blocks(TILES, "list_marks", (n_blocks,), MARK_THREADS, n_tiles, stride, words, marks, begins, tiles)
    return Lists(begins, ends, tiles, int(lengths.max()), lengths)


def _balls(balls: Balls | None) -> Any:
    """Return the balls as the struct of tiles.cu, with null pointers if there are none."""
    if balls is None:
        return c_struct(*[np.int64(0)] * 9, 0.0, 0.0)
    points, (n_points, arrays) = balls.points, (balls.products[0].shape[1], [*balls.products])
    arrays += [points.largest_error, points.largest_length, points.scales]
    check_arrays("float64", *arrays)
    check_arrays("int32", balls.where, points.slots.cell_of_tile)
    addresses = (part.data.ptr for part in (*arrays, balls.where, points.slots.cell_of_tile))
    return c_struct(*map(np.int64, (*addresses, n_points)), balls.rounding, balls.shrink)


def put_rows(
    slots: Any, task: SearchTask, slot_of: Array, first: tuple[int, int], upper: Array = None, least: Array = None
) -> Rows:
    """Return the rows of a search with their ids and bounds: see `rapids_slink.neighbors.tiles.cpu.put_rows`."""
    n = slots.rows.size
    ids, real, groups, where, in_terms = cp.empty((5, n), cp.int32)
    bound, cells, (first_slot, first_cell) = cp.empty(n), cp.empty(n // TILE, cp.int32), first
    launch(
        TILES, "put_rows", n, n, slots.rows, slots.cell_of_tile, task.rows, task.row_group, upper, least, slot_of,
        first_slot, first_cell, ids, real, groups, bound, where, in_terms, cells,
    )  # fmt: skip
    return Rows(ids, real, groups, bound, where, in_terms, cells)


def near_in_order(ids: Array, position_of: Array, order: Array, width: int, groups: Groups) -> Candidates:
    """Return rows' neighbours in the order as candidates: see `tiles.cpu.near_in_order`.

    Here they include points of a row's own exclusion id: `bound_rows` looks at the ids.
    """
    near = Candidates(cp.empty((ids.size, width), cp.int32), cp.empty(ids.size, cp.int32))
    launch(
        TILES, "list_in_order", near.ids.size, ids.size, width, order.size, ids, position_of, order, near.ids,
        near.count,
    )  # fmt: skip
    return near


def sample_lists(lists: Lists, points: Array, rows: Rows, point_group: Array, ids: Array) -> Candidates:
    """Return some points of each block's tiles as candidates: see `tiles.cpu.sample_lists`.

    Here they include points of a row's own exclusion id: `bound_rows` looks at the ids.
    """
    m, size = ids.shape
    into = Candidates(ids, cp.empty(m, cp.int32))
    launch(
        TILES, "sample_lists", m * size, m, size, rows.bound, lists.begins, lists.ends, lists.tiles, points, ids,
        into.count,
    )  # fmt: skip
    return into


def bound_rows(exact: ExactPoints, points: Array, unit: float, *more: Any) -> None:
    """Insert upper bounds of candidates' weights into the lists of rows, and tighten their bounds.

    See `tiles.cpu.bound_rows`. Distances are computed in float32, from differences times a power of two, `unit`, and
    are rounded up.
    """
    exact = replace(exact, queries=points, points=points)
    rerank(exact, *more, square_bound=square_bound(points, unit, exact.metric))


def centred(points: Array, rows: Array, origin: Array) -> tuple[Array, Array]:
    """Return points in slots counted from the origin, and the squares of their lengths: see `tiles.cpu.centred`."""
    (n, d) = rows.size, points.shape[1]
    out, norms = cp.empty((n, d)), cp.empty(n)
    launch(ENCODE, "centre_slots", n * WARP, points, d, rows, n, origin, out, norms, options=_options(points))
    return out, norms


def groups_of_slots(rows: Array, group: Array, size: int) -> tuple[Array, Array]:
    """Return each slot's exclusion id, and the id that `size` of them share: see `tiles.cpu.groups_of_slots`."""
    slot_group, common = cp.empty(rows.size, cp.int32), cp.empty(rows.size // size, cp.int32)
    launch_blocks(TILES, "share_groups", (common.size,), size, rows, group, slot_group, common)
    return slot_group, common


def reach(bound: Array, terms: tuple[float, ...], stretch: float) -> Reach:
    """Return how far points may be from the place of each row, and the most of a block: see `tiles.cpu.reach`."""
    n = bound.size
    out = Reach(cp.empty(n, cp.float32), cp.empty(n // BLOCK))
    launch_blocks(TILES, "put_reach", (n // BLOCK,), BLOCK, bound, c_struct(*terms), stretch, out.rows, out.blocks)
    return out


def near_cells(
    row_cell: Array, between: Array, points: Any, first_tile: Array, size: int, deviations: float, common: CommonGroups
) -> Lists:
    """Return the tiles of two near cells for each block of rows: see `rapids_slink.neighbors.tiles.cpu.near_cells`."""
    blocks, cells, longest = row_cell.size * TILE // BLOCK, len(between), 2 * size
    (begins, ends), tiles = cp.empty((2, blocks), cp.int64), cp.empty(blocks * longest, cp.int32)
    block_group, tile_group = common or (None, None)
    launch(
        TILES, "list_near_cells", blocks * WARP, blocks, cells, longest,
        2 * deviations / points.centres.shape[1] ** 0.5, row_cell, between, points.squares, points.sizes, points.scales,
        first_tile, tile_group, block_group, begins, ends, tiles,
    )  # fmt: skip
    return Lists(begins, ends, tiles, longest, None)


def largest_differences(points: Array, slots: Any, origin: Array, centres: Array) -> Array:
    """Return the largest difference of a cell's points from its centre: see `tiles.cpu.largest_differences`."""
    largest = cp.zeros(len(centres))
    launch_blocks(
        ENCODE, "find_largest_differences", (slots.cell_of_tile.size,), MARK_THREADS, points, points.shape[1],
        slots.rows, slots.cell_of_tile, origin, centres, largest, options=_options(points),
    )  # fmt: skip
    return largest


def encode(
    points: Array, slots: Any, origin: Array, centres: Array, scales: Array, fine: bool, columns: bool
) -> tuple[Array, Array, Array]:
    """Return rows in slots as an image of fp16, with their errors and lengths.

    See `rapids_slink.neighbors.tiles.cpu.encode`. If `fine`, a value has two such numbers.
    """
    n, d = slots.rows.size, points.shape[1]
    atoms = -(-_steps(d, fine) // ATOM_STEPS)
    y, (error, length) = cp.empty(n * atoms * 64, cp.float16), cp.empty((2, n), cp.float32)
    launch(
        QUANTIZE, "quantize", n * WARP, points, d, slots.rows, n, n, origin, 1, slots.cell_of_tile, centres, scales, 0,
        ROUND_UP, TINY, 2 * -(-d // 16), atoms, WARP, fine, columns, y, length, error, options=_options(points),
    )  # fmt: skip
    return y, error, length


def sums_of_cells(slots: Any, error: Array, length: Array) -> Array:
    """Return the sums of each cell, (4, cells) float64: see `rapids_slink.neighbors.tiles.cpu.sums_of_cells`."""
    sums = cp.zeros((4, slots.cells))
    launch_blocks(
        TILES, "sum_up_cells", (slots.cell_of_tile.size,), TILE, error, length, slots.rows, slots.cell_of_tile, sums[0],
        sums[1], sums[2], sums[3],
    )  # fmt: skip
    return sums


def plan_band(lists: Lists, band: slice, slots: Any) -> Band:
    """Return the arrays of a band of lists: the cells that a block needs, and the work items."""
    blocks, width = lists.begins.size, min(band.stop, lists.longest) - band.start
    listed = blocks * lists.longest if lists.lengths is None else int(lists.lengths.sum())
    size = max(1, min(ITEM_TILES, listed // (16 * multiprocessors())))
    if lists.lengths is None:
        max_items = blocks * -(-width // size)
    else:
        max_items = int(-(-np.clip(lists.lengths - band.start, 0, width) // size).sum())
    needed, items = cp.empty((blocks, slots.cells), bool), cp.empty((max_items, 4), cp.int32)
    zeros = cp.zeros(2 + blocks * BLOCK, cp.int32)
    launch_blocks(
        TILES, "plan_band", (blocks,), MARK_THREADS, lists.begins, lists.ends, lists.tiles, band.start,
        band.start + width, size, lists.lengths is None, slots.cell_of_tile, slots.cells, needed, items, zeros[:1],
    )  # fmt: skip
    return Band(needed, items, zeros[1:2], zeros[2:])


def put_thresholds(
    terms: Any, rows: Rows, row_cell: Array, reach: tuple[float, ...], rounding: float, plan: Band, out: Array
) -> None:
    """Put the thresholds of rows' products into `out`.

    See `rapids_slink.neighbors.tiles.cpu.put_thresholds`. Only the cells that the band needs get thresholds.
    """
    product, centre_norms, norms = terms.products
    (cells, n_points), n = product.shape, rows.bound.size
    launch_blocks(
        TILES, "put_thresholds", (n // BLOCK, min(cells, CELLS_AT_ONCE)), BLOCK, n, cells, n_points, product,
        centre_norms, norms, rows.in_terms, rows.bound, c_struct(*reach), row_cell, terms.columns.scales, terms.squares,
        rounding, plan.needed, out,
    )  # fmt: skip


def put_begins(products: Any, between: Array, points: Any, cells: slice, eta: float, out: Array) -> None:
    """Put the begins of sums of all points into `out`: see `rapids_slink.neighbors.tiles.cpu.put_begins`."""
    product, centre_norms, norms = products
    n_cells, n = product.shape
    grid = -(-n // MARK_THREADS), min(n_cells, CELLS_AT_ONCE)
    launch_blocks(
        TILES, "put_begins", grid, MARK_THREADS, n, n_cells, cells.start, product, centre_norms, norms,
        points.slots.rows, points.error, points.length, points.slots.cell_of_tile, points.slots.cells, between,
        points.scales, points.largest_length, points.largest_error, eta, out,
    )  # fmt: skip


def append(
    rows: Any, points: Any, terms: Any, lists: Lists, band: slice, plan: Band, groups: Groups, ids: Array, fine: bool
) -> Candidates:
    """Return the points that pass for each block's rows as candidates in `ids`: see `tiles.cpu.append`."""
    (least, first_sums, row_cell), (row_group, point_group) = terms, groups
    into = Candidates(ids, plan.count, points.slots.rows)
    if len(plan.items):
        image, queries = (QuantizedPoints(part.y, None, None) for part in (points, rows))
        destination = Destination(into, plan.next_item, row_group, point_group)
        local = LocalTerms(lists.tiles, row_cell, points.slots.cell_of_tile, first_sums, least)
        steps, n_points = _steps(points.centres.shape[1], fine), points.slots.rows.size
        append_survivors(queries, plan.items, n_points, image, steps, None, None, destination, local)
    return into


def _steps(d: int, fine: bool) -> int:
    """Return the number of tensor core instructions that a row of d features takes."""
    return -(-d // 16) * (3 if fine else 1)


def _options(points: Array) -> tuple[str, ...]:
    return (value_option(points.dtype),)

"""Tiles on a GPU: launchers of the sources in this folder, and of the fused filter's kernel."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates, Groups
from rapids_slink.neighbors.filter.bounds import QuantizedPoints
from rapids_slink.neighbors.filter.fused.encodings import ATOM_STEPS, fp16_keeps_bound
from rapids_slink.neighbors.filter.fused.launch import Destination, LocalTerms, Products, append_survivors
from rapids_slink.neighbors.slices import golden_stride
from rapids_slink.neighbors.tiles.sizes import BLOCK, ORDER, TILE, TILES
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
LEVELS, CHECKED = 64, 8  # of the tree at most, and after how many it is seen whether there are more
MARK_THREADS = 256
CELLS_AT_ONCE = 16  # blocks that share the cells of a column of terms
ITEM_TILES = 32  # of a work item
ROUND_UP, TINY = 1 + 2.0**-22, 1e-30


class Cuts(NamedTuple):
    """As `rapids_slink.neighbors.tiles.cpu.Cuts`."""

    nodes: Array
    values: Array
    middles: Array
    breaks: Array


def products_are_precise() -> bool:
    """As `rapids_slink.neighbors.tiles.cpu.products_are_precise`: of fp16."""
    return fp16_keeps_bound()


def cut(sample: Array, leaf: int, min_run: int) -> Cuts:
    """As `rapids_slink.neighbors.tiles.cpu.cut`."""
    check_arrays("float32", sample)
    s, m = sample.shape
    size = 2 * s + 1
    nodes, ends, values = cp.empty((size, 4), cp.int32), cp.empty(size, cp.int32), cp.empty(size, cp.float32)
    middles, breaks = cp.empty((size, m), cp.float32), cp.zeros(s + 1, cp.int32)
    nodes[0], ends[0] = cp.asarray([-1, 0, 0, 0], cp.int32), s
    order, moved = cp.arange(s, dtype=cp.int32), cp.empty(s, cp.int32)
    level = cp.asarray([0, 1, 1], cp.int32)
    for depth in range(LEVELS):
        blocks = min(2**depth, MOST_CUTS)
        launch_blocks(
            ORDER, "cut_nodes", (blocks,), CUT_THREADS, sample, np.int32(m), order, moved, nodes, ends, values, middles,
            breaks, level, np.int32(leaf), np.int32(min_run),
        )  # fmt: skip
        launch_blocks(ORDER, "next_level", (1,), 1, level)
        if depth >= int(s / leaf).bit_length() and depth % CHECKED == 0:
            begin, end, _ = level.tolist()
            if begin == end:
                break
    return Cuts(nodes, values, middles, cp.flatnonzero(breaks).astype(cp.int32))


def leaves(cuts: Cuts, places: Array) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.leaves`."""
    check_arrays("float32", places)
    n, m = places.shape
    leaf = cp.empty(n, cp.int32)
    launch(ORDER, "find_leaves", n, cuts.nodes, cuts.values, cuts.middles, places, np.int32(m), np.int64(n), leaf)
    return leaf


def boxes(places: Array, errors: Array, slots: Array) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.boxes`."""
    check_arrays("float64", places, errors)
    check_arrays("int32", slots)
    tiles, m = slots.size // TILE, places.shape[1]
    out = cp.empty((tiles, 2, m))
    launch_blocks(TILES, "bound_tiles", (tiles,), TILE, places, errors, np.int32(m), slots, out)
    return out


def near_tiles(
    blocks: Array, tiles: Array, reach: Array, block_group: Array, tile_group: Array
) -> tuple[tuple[Array, Array], int]:
    """As `rapids_slink.neighbors.tiles.cpu.near_tiles`."""
    check_arrays("float64", blocks, reach)
    check_arrays("int32", block_group)
    (n_blocks, _, m), n_tiles = blocks.shape, len(tiles)
    order = (cp.arange(n_tiles, dtype=cp.int64) * golden_stride(n_tiles) % n_tiles).astype(cp.int32)
    in_order = cp.ascontiguousarray(tiles[order].transpose(1, 2, 0))
    words = -(-n_tiles // WARP)
    marks, counts = cp.empty((n_blocks, words), cp.uint32), cp.empty(n_blocks * words, cp.int32)
    grid = -(-n_tiles // MARK_THREADS), n_blocks
    launch_blocks(
        TILES, "mark_near_tiles", grid, MARK_THREADS, blocks, in_order, np.int32(m), np.int32(n_tiles), reach,
        block_group, tile_group[order], np.int32(words), marks, shared_memory=16 * m,
    )  # fmt: skip
    launch(TILES, "count_marks", counts.size, np.int64(counts.size), marks, counts)
    ends = cp.cumsum(counts, dtype=cp.int64)
    starts = cp.concatenate((cp.zeros(1, cp.int64), ends[words - 1 :: words]))
    total, longest = cp.stack((starts[-1], (starts[1:] - starts[:-1]).max())).tolist()
    listed = cp.empty(total, cp.int32)
    launch(TILES, "list_marks", counts.size, np.int64(counts.size), np.int32(words), marks, ends, order, listed)
    return (starts, listed), longest


def centred(points: Array, rows: Array, origin: Array) -> tuple[Array, Array]:
    """As `rapids_slink.neighbors.tiles.cpu.centred`."""
    check_arrays(points.dtype, points)
    check_arrays("int32", rows)
    check_arrays("float64", origin)
    (n, d) = rows.size, points.shape[1]
    out, norms = cp.empty((n, d)), cp.empty(n)
    launch(
        TILES, "centre_slots", n * WARP, points, np.int32(d), rows, np.int64(n), origin, out, norms,
        options=_options(points),
    )  # fmt: skip
    return out, norms


def groups_of_slots(rows: Array, group: Array, size: int) -> tuple[Array, Array]:
    """As `rapids_slink.neighbors.tiles.cpu.groups_of_slots`."""
    check_arrays("int32", rows, group)
    of_slots, common = cp.empty(rows.size, cp.int32), cp.empty(rows.size // size, cp.int32)
    launch_blocks(TILES, "share_groups", (common.size,), size, rows, group, of_slots, common)
    return of_slots, common


def reach(bound: Array, rows: Array, terms: tuple[float, ...], stretch: float) -> tuple[Array, Array, Array]:
    """As `rapids_slink.neighbors.tiles.cpu.reach`."""
    check_arrays("float64", bound)
    check_arrays("int32", rows)
    n = rows.size
    within, reaches, of_blocks = cp.empty(n), cp.empty(n, cp.float32), cp.empty(n // BLOCK)
    arguments = bound, rows, c_struct(*map(float, terms)), np.float64(stretch), within, reaches, of_blocks
    launch_blocks(TILES, "put_reach", (n // BLOCK,), BLOCK, *arguments)
    return within, reaches, of_blocks


def runs(cell: Array, group: Array, many: int) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.runs`."""
    check_arrays("int32", cell, group)
    begins = cp.empty(cell.size, cp.int32)
    launch(TILES, "mark_runs", cell.size, np.int64(cell.size), cell, group, np.int32(many), begins)
    return cp.cumsum(begins)


def near_cells(
    row_cell: Array, between: Array, spread: Array, first_tile: Array, tile_group: Array, block_group: Array
) -> tuple[Array, Array]:
    """As `rapids_slink.neighbors.tiles.cpu.near_cells`."""
    check_arrays("int32", row_cell, first_tile, tile_group, block_group)
    check_arrays("float64", between, spread)
    blocks, cells = block_group.size, spread.size
    near = cp.empty((blocks, 2), cp.int32)
    launch(
        TILES, "find_near_cells", blocks * WARP, np.int32(blocks), np.int32(cells), row_cell, between, spread,
        first_tile, tile_group, block_group, near,
    )  # fmt: skip
    size = cp.append(first_tile[1:] - first_tile[:-1], cp.zeros(1, cp.int32))  # the last for none
    starts = cp.zeros(blocks + 1, cp.int64)
    cp.cumsum(size[near].sum(axis=1), out=starts[1:])
    tiles = cp.empty(2 * blocks * int(size.max()), cp.int32)
    launch(TILES, "list_near_cells", blocks, np.int32(blocks), near, first_tile, starts, tiles)
    return starts, tiles


def largest_differences(points: Array, slots: Any, origin: Array, centres: Array) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.largest_differences`."""
    check_arrays(points.dtype, points)
    check_arrays("int32", slots.rows, slots.cell_of_tile)
    check_arrays("float64", origin, centres)
    largest, n = cp.zeros(len(centres)), slots.rows.size
    launch(
        TILES, "find_largest_differences", n * WARP, points, np.int32(points.shape[1]), slots.rows, np.int64(n),
        slots.cell_of_tile, origin, centres, largest, options=_options(points),
    )  # fmt: skip
    return largest


def encode(
    points: Array, slots: Any, origin: Array, centres: Array, scales: Array, fine: bool, columns: bool
) -> tuple[Array, Array, Array]:
    """As `rapids_slink.neighbors.tiles.cpu.encode`, as an image of fp16; `fine`, of two such numbers a value."""
    check_arrays(points.dtype, points)
    check_arrays("int32", slots.rows, slots.cell_of_tile)
    check_arrays("float64", origin, centres, scales)
    n, d = slots.rows.size, points.shape[1]
    atoms = -(-_steps(d, fine) // ATOM_STEPS)
    y, (error, length) = cp.empty(n * atoms * 64, cp.float16), cp.empty((2, n), cp.float32)
    launch(
        TILES, "encode_slots", n * WARP, points, np.int32(d), slots.rows, np.int64(n), slots.cell_of_tile, origin,
        centres, scales, np.int32(-(-d // 16) * 16), np.int32(columns), np.int32(atoms), np.float64(ROUND_UP),
        np.float64(TINY), y, error, length, options=_options(points, fine),
    )  # fmt: skip
    return y, error, length


def sums_of_cells(slots: Any, error: Array, length: Array) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.sums_of_cells`."""
    check_arrays("float32", error, length)
    sums = cp.zeros((4, slots.cells))
    launch_blocks(
        TILES, "sum_up_cells", (slots.cell_of_tile.size,), TILE, error, length, slots.rows, slots.cell_of_tile, *sums
    )
    return sums


def outside_candidates(ids: Array, groups: Groups) -> Candidates:
    """As `rapids_slink.neighbors.tiles.cpu.outside_candidates`; a GPU's `rerank` looks at the groups."""
    return Candidates(ids, cp.full(len(ids), ids.shape[1], cp.int32))


def needed_cells(listed: Any, band: slice, slots: Any) -> Array:
    """As `rapids_slink.neighbors.tiles.cpu.needed_cells`, (blocks, cells) bool."""
    starts, tiles = listed
    blocks = starts.size - 1
    needed = cp.zeros((blocks, slots.cells), bool)
    launch_blocks(
        TILES, "mark_needed_cells", (blocks,), MARK_THREADS, starts, tiles, np.int32(band.start), np.int32(band.stop),
        slots.cell_of_tile, np.int32(slots.cells), needed,
    )  # fmt: skip
    return needed


def put_thresholds(
    products: Any, where: Array, within: Array, rows: Any, points: Any, missing: float, needed: Array, out: Array
) -> None:
    """As `rapids_slink.neighbors.tiles.cpu.put_thresholds`, of the cells that are needed."""
    product, centre_norms, norms = products
    check_arrays("float64", product, centre_norms, norms, within)
    check_arrays("int32", where)
    (cells, n_points), n = product.shape, within.size
    launch_blocks(
        TILES, "put_thresholds", (n // BLOCK, min(cells, CELLS_AT_ONCE)), BLOCK, np.int64(n), np.int32(cells),
        np.int64(n_points), product, centre_norms, norms, where, within, rows.error, rows.slots.cell_of_tile,
        points.scales, points.largest_error, points.largest_length, np.float64(missing), needed, out,
    )  # fmt: skip


def put_begins(products: Any, between: Array, points: Any, cells: slice, eta: float, out: Array) -> None:
    """As `rapids_slink.neighbors.tiles.cpu.put_begins`."""
    product, centre_norms, norms = products
    check_arrays("float64", product, centre_norms, norms, between)
    n_cells, n = product.shape
    grid = -(-n // MARK_THREADS), min(n_cells, CELLS_AT_ONCE)
    launch_blocks(
        TILES, "put_begins", grid, MARK_THREADS, np.int64(n), np.int32(n_cells), np.int32(cells.start), product,
        centre_norms, norms, points.slots.rows, points.error, points.length, points.slots.cell_of_tile,
        np.int32(points.slots.cells), between, points.scales, points.largest_length, np.float64(eta), out,
    )  # fmt: skip


def append(rows: Any, points: Any, terms: Any, listed: Any, groups: Groups, into: Candidates, fine: bool) -> None:
    """As `rapids_slink.neighbors.tiles.cpu.append`."""
    (starts, tiles, band), (least, first_sums, first_cell) = listed, terms
    lengths = cp.clip(starts[1:] - starts[:-1] - band.start, 0, band.stop - band.start)
    size = max(1, min(ITEM_TILES, tiles.size // (16 * multiprocessors())))
    ends = cp.cumsum(-(-lengths // size), dtype=cp.int32)
    items = cp.empty((int(ends[-1]), 4), cp.int32)
    if not len(items):
        return
    sizes = map(np.int32, (band.start, band.stop, size))
    launch(TILES, "list_items", ends.size, np.int32(ends.size), starts, ends, *sizes, items)
    image, queries = (QuantizedPoints(part.y, None, None) for part in (points, rows))
    products = Products(queries, len(items), 1, (0, 0), points.slots.rows.size)
    destination = Destination(into, cp.zeros(1, cp.int32), *groups, items=items)
    row_cell = rows.slots.cell_of_tile - np.int32(first_cell)
    local = LocalTerms(tiles, row_cell, points.slots.cell_of_tile, first_sums, least)
    append_survivors(products, image, _steps(rows.centres.shape[1], fine), None, None, destination, local)


def _steps(d: int, fine: bool) -> int:
    """Tensor core instructions that a row of d features takes."""
    return -(-d // 16) * (3 if fine else 1)


def _options(points: Array, fine: bool = False) -> tuple[str, ...]:
    return value_option(points.dtype), f"-DFINE={int(fine)}"


def refine(
    listed: tuple[Array, Array], blocks: Array, boxes: Array, places: Array, where: Array, reach: Array, lost: float
) -> tuple[tuple[Array, Array], int]:
    """As `rapids_slink.neighbors.tiles.cpu.refine`."""
    (starts, tiles), (m, n_slots) = listed, places.shape
    check_arrays("float32", places, reach)
    check_arrays("int32", where, tiles)
    check_arrays("float64", blocks, boxes)
    kept = cp.empty(tiles.size, cp.int32)
    launch_blocks(
        TILES, "refine_lists", (starts.size - 1,), BLOCK, places, np.int64(n_slots), np.int32(m), where, reach, boxes,
        blocks, np.float32(lost), starts, tiles, kept, shared_memory=4 * (m * BLOCK + 2 * m + BLOCK + BLOCK // WARP),
    )  # fmt: skip
    upto = cp.cumsum(kept, dtype=cp.int32)
    begins = cp.where(starts > 0, upto[cp.maximum(starts - 1, 0)], 0).astype(cp.int64) if tiles.size else starts
    total, longest = cp.stack((begins[-1], (begins[1:] - begins[:-1]).max())).tolist()
    out = cp.empty(total, cp.int32)
    launch(TILES, "keep_tiles", tiles.size, np.int64(tiles.size), kept, upto, tiles, out)
    return (begins, out), longest

"""Tiles on a CPU: BLAS for products, Numba for the rest."""

from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON, Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups
from rapids_slink.neighbors.exact.cpu import rerank as rerank
from rapids_slink.neighbors.filter import accumulation_bound
from rapids_slink.neighbors.task import SearchTask, golden_stride, row_blocks
from rapids_slink.neighbors.tiles.order import (
    BLOCK,
    GROUP_BITS,
    ROUND_UP,
    TILE,
    TILES,
    TINY,
    UNDERFLOW,
    Balls,
    CommonGroups,
    Cuts,
    Lists,
    PlacedTiles,
    Reach,
    Rows,
    check_key_bits,
    cut_sample,
    find_leaves,
    sample_stride,
)
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import for_each_chunk

MAPPED = 2**18  # values at a time
ROUTED = 2**14  # rows at a time
STRIDE = constant(TILES, "STRIDE")
TILES_AT_ONCE = 16  # the most tiles of a product
LARGEST = 1e30  # beyond this number nothing is ruled out
#: The types of the test's terms, coarse and fine. With float64 terms a pair does not pass only because float32 cannot
#: tell its terms apart.
TERM_TYPES = "float32", "float64"


def products_are_precise() -> bool:
    """Return True: a CPU's sums of products lose no more than the bounds assume."""
    return True


def lost_by_sums(n_features: int, fine: bool) -> float:
    """Return the most that sums of products of rows lose, relative to the product of both lengths."""
    return (n_features + 16) * EPSILON if fine else accumulation_bound(n_features + 16)


def places_of_points(
    points: Array, centre: Array, unit: float, axes: Array, departure: float
) -> tuple[Array, Array, float, float]:
    """Return the places of (n, d) points on the `axes`, (m, d), and their errors: see `order.Axes`.

    The errors, (n, 2), bound how far the coordinates and the length of the rest may be off. The third result is the
    largest distance of a place from the origin, and the fourth is the largest error. A point whose squared length
    overflows has its place at the origin, with an infinite error.
    """
    (n, d), m = points.shape, len(axes)
    places, errors, farthest = np.empty((n, m + 1)), np.empty((n, 2)), 0.0
    for rows in row_blocks(n, d, MAPPED):
        w = (points[rows] - centre) * unit
        z, square = w @ axes.T, (w * w).sum(axis=1)
        overflows = ~(square < np.inf)
        z[overflows], square[overflows] = 0, np.inf
        places[rows, :m] = z
        rounding = (d + 8) * EPSILON
        errors[rows, 0] = rounding * np.sqrt(square) * (1 + departure)
        if m == d:  # nothing is left out
            places[rows, m], errors[rows, 1] = 0, 0
        else:
            rest = np.sqrt(np.maximum(square - (z * z).sum(axis=1), 0))
            rest[overflows] = 0
            missing = (departure + 2 * rounding) * square
            places[rows, m] = rest
            errors[rows, 1] = np.minimum(np.sqrt(missing), missing / np.maximum(rest, 1e-300))
        farthest = max(farthest, float(square.max()))
    return places, errors, farthest**0.5, float(errors.max())


def cut(places: Array, size: int, leaf: int, min_side: int) -> Cuts:
    """Cut a sample of `size` of the places, (n, m) float64, as float32, into leaves of up to `leaf` rows.

    `min_side` is the fewest rows on either side of a gap or a jump that is a break.
    """
    n, m = places.shape
    sample = places[np.arange(size) * sample_stride(n, size) % n].astype(np.float32)
    room = 2 * size + 1
    nodes, values, middles = np.empty((room, 4), np.int32), np.zeros(room, np.float32), np.zeros((room, m), np.float32)
    breaks = np.zeros(size + 1, np.bool_)
    used = cut_sample(sample, leaf, min_side, nodes, values, middles, breaks)
    return Cuts(nodes[:used], values[:used], middles[:used], breaks)


def leaves(cuts: Cuts, places: Array) -> Array:
    """Return where the leaf of each place begins, (n,) int32."""
    out = np.empty(len(places), np.int32)

    def route(rows: slice) -> None:
        with np.errstate(over="ignore"):  # infinite places are as good: only the order rests on them
            find_leaves(cuts.nodes, cuts.values, cuts.middles, places[rows].astype(np.float32), out[rows])

    for_each_chunk(CPU, route, row_blocks(len(places), 1, ROUTED))
    return out


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
    """Sort the rows of a task, or those of an `index`, by cell, by component if there are several, and by slot.

    Returns int32 positions among the task's rows, and on the host the positions at which rows begin a block, ascending
    and with the first, and their cells. Rows begin a block at another cell, and at another component if that or the one
    before has at least `many` rows of the cell. Cells have up to `size` slots.
    """
    check_key_bits(first_tile.size - 1, size)
    index = np.arange(rows.size, dtype=np.int32) if index is None else index.astype(np.int32)
    slot = slot_of[rows[index]]
    cell, row_groups = cell_of_tile[slot // TILE], np.zeros(1, np.int64) if group is None else group[rows[index]]
    key = (cell.astype(np.int64) << GROUP_BITS | row_groups) * size + slot - first_tile[cell] * TILE
    order = np.argsort(key)
    cell, part = cell[order], key[order] // size
    change, next_cell = part[1:] != part[:-1], cell[1:] != cell[:-1]
    number = np.concatenate(([0], np.cumsum(change)))
    is_large = (np.bincount(number) >= many)[number]
    begins = np.flatnonzero(np.concatenate(([True], next_cell | (change & (is_large[1:] | is_large[:-1])))))
    return index[order], begins, cell[begins]


def fill_slots(rows: Array, blocks: np.ndarray, slot_of: Array = None) -> tuple[Array, Array]:
    """Return rows in slots, -1 where one is empty, and the cells of their tiles; put the rows' slots into `slot_of`.

    `blocks`, (3, blocks) int32 on the host, has for each block where its rows begin, how many there are, and its cell.
    """
    begins, counts, cells = blocks
    position = np.arange(BLOCK)
    is_real = position < counts[:, None]
    slots = np.where(is_real, rows[np.where(is_real, begins[:, None] + position, 0)], np.int32(-1)).ravel()
    if slot_of is not None:
        slot_of[slots[slots >= 0]] = np.flatnonzero(slots >= 0)
    return slots, np.repeat(cells, BLOCK // TILE)


def boxes(places: Array, errors: Array, slots: Array) -> Array:
    """Return the boxes of tiles, (tiles, 2, m) float64: the lowest and highest of their places, infinite if empty."""
    tiles, m = slots.size // TILE, places.shape[1]
    out = np.empty((tiles, 2, m))

    def put(some: slice) -> None:
        rows = slots.reshape(tiles, TILE)[some]
        place, error = places[rows], errors[rows][..., [0] * (m - 1) + [1]]
        place[rows < 0] = np.nan
        out[some, 0], out[some, 1] = np.fmin.reduce(place - error, axis=1), np.fmax.reduce(place + error, axis=1)

    for_each_chunk(CPU, put, row_blocks(tiles, TILE * m, MAPPED))
    out[np.isnan(out[:, 0]).all(axis=1)] = [[np.inf], [-np.inf]]
    return out


def near_tiles(
    row_boxes: Array, points: PlacedTiles, where: Array, reach: Reach, common: CommonGroups, balls: Balls | None = None
) -> Lists:
    """Return the tiles that may have a point within the reach of a row of each block, in one low-discrepancy order.

    A tile is ruled out if its box is not within the largest reach of the block's box; then if the ball about its cell
    is within the reach of no row. A GPU goes on: a tile is ruled out if its box is within the reach of no row's place
    or, where there are exclusion ids, if none of its points' places is within the largest reach of the block's box.

    `row_boxes` are those of the rows' tiles, and `where`, (s,) int32, has the rows' slots. A tile whose points all have
    the exclusion id of a block's rows is left out.
    """
    boxes, (row_reach, block_reach) = points.boxes, reach
    edges = row_boxes.reshape(-1, BLOCK // TILE, *row_boxes.shape[1:])
    blocks = np.stack((edges[:, :, 0].min(axis=1), edges[:, :, 1].max(axis=1)), axis=1)
    n_blocks, n_tiles = len(blocks), len(boxes)
    block_group, tile_group = common or (np.full(n_blocks, -1, np.int32), np.full(n_tiles, -1, np.int32))
    flags = np.empty((n_blocks, n_tiles), np.bool_)

    @np.errstate(over="ignore", invalid="ignore")  # a tile is near if its gap is no number
    def mark(some: slice) -> None:
        begin, end = some.start, some.stop
        gaps = np.maximum(boxes[:, 0] - blocks[some, None, 1], blocks[some, None, 0] - boxes[:, 1])
        reached = block_reach[some, None]
        is_far = (np.maximum(gaps, 0) ** 2).sum(axis=2) > reached * reached
        is_same = (block_group[some, None] >= 0) & (block_group[some, None] == tile_group)
        flags[some] = ~(is_far | is_same | (reached < 0))
        if balls is not None:
            (products, centre_norms, norms), encoded = balls.products, balls.points
            radius = (encoded.largest_length + encoded.largest_error) / encoded.scales
            _drop_far_cells(
                row_reach, balls.shrink, products, centre_norms, norms, balls.where, encoded.slots.cell_of_tile,
                balls.rounding, radius, begin, end, flags,
            )  # fmt: skip

    for_each_chunk(CPU, mark, row_blocks(n_blocks, 1, 4))
    order, lengths = np.arange(n_tiles) * golden_stride(n_tiles) % n_tiles, flags.sum(axis=1)
    tiles, ends = order[np.nonzero(flags[:, order])[1]].astype(np.int32), np.cumsum(lengths)
    return Lists(ends - lengths, ends, tiles, int(lengths.max()), lengths)


@njit(nogil=True, cache=True)
def _drop_far_cells(
    reach, shrink, products, centre_norms, norms, where, cell_of_tile, rounding, radius, begin, end, flags
):
    for b in range(begin, end):
        state = np.full(radius.size, -1, np.int8)
        for t in range(flags.shape[1]):
            c = cell_of_tile[t]
            if flags[b, t] and state[c] < 0:
                state[c] = 0
                for i in range(b * BLOCK, (b + 1) * BLOCK):
                    within, at = reach[i] * shrink + radius[c], where[i]
                    lengths = norms[at] + centre_norms[c]
                    square = lengths - rounding * (lengths + UNDERFLOW) - 2 * products[c, at]
                    if not (reach[i] < 0 or square > within * within * (1 + 1e-12)):
                        state[c] = 1
                        break
            flags[b, t] = state[c] > 0 and flags[b, t]


def bound_rows(exact: ExactPoints, _points: Array, _unit: float, *more: Any) -> None:
    """Insert the weights of candidates, or upper bounds of them, into the lists of rows, and tighten their bounds.

    The further arguments are those of `rerank`. A CPU takes exact distances. A GPU reads the points of products, and
    the unit of places.
    """
    rerank(exact, *more)


def centred(points: Array, rows: Array, origin: Array) -> tuple[Array, Array]:
    """Return points in slots from the origin, (s, d) float64, 0 in empty slots, and the squares of their lengths."""
    w = points[rows] - origin
    w[rows < 0] = 0
    return w, np.einsum("ij,ij->i", w, w)


def groups_of_slots(rows: Array, group: Array, size: int) -> tuple[Array, Array]:
    """Return each slot's exclusion id, -1 if it is empty, and the id that `size` of them share, -1 if none."""
    slot_group = np.where(rows >= 0, group[rows], np.int32(-1))
    parts = slot_group.reshape(-1, size)
    largest = parts.max(axis=1)
    least = np.where(parts < 0, largest[:, None], parts).min(axis=1)
    return slot_group, np.where(least == largest, largest, np.int32(-1))


def reach(bound: Array, terms: tuple[float, ...], stretch: float) -> Reach:
    """Return how far points may be from the places of rows with these bounds.

    `terms` are those of `_within`; places may be `stretch` times as far apart as rows.
    """
    within = _within(bound, terms)
    stretched = np.where(within < 0, -1.0, within * stretch)
    up = np.nextafter(stretched.astype(np.float32), np.float32(np.inf))
    return Reach(up, stretched.reshape(-1, BLOCK).max(axis=1))


def _within(bound: Array, terms: tuple[float, ...]) -> Array:
    """Return how far points may be from each row: -1 if its bound is -infinity, and infinity if that is no number.

    `terms` are those of `Metric.true_distance_bound`, a factor and what is added last.
    """
    *rounding, longer, more = terms
    wanted = bound > -np.inf
    within = Metric.true_distance_bound(np.where(wanted, bound, 0), np, *rounding) * longer + more
    return np.where(wanted, np.where(within >= 0, within, np.inf), -1.0)


def near_cells(
    row_cell: Array, between: Array, points: Any, first_tile: Array, size: int, deviations: float, common: CommonGroups
) -> Lists:
    """Return the tiles of two cells, of `size` at most, for each block of rows.

    The first cell is the nearest on average, and the second one may have nearer points. Points near the centre of all
    are near on average, though none of them may be nearer than the others. Squared distances of a row from points of
    mean square r about their centre, in all d features alike, deviate from their mean m by 2√(mr/d): the second cell is
    the least by some `deviations` below m.

    Cells whose first and last blocks begin with tiles of the block's exclusion id are left out.
    """
    spread, own = points.squares / np.maximum(points.sizes, 1) / points.scales**2, row_cell[:: BLOCK // TILE]
    squares = (between + spread)[own]
    squares[:, points.sizes == 0] = np.inf  # cells of queries alone
    if common is not None:
        block_group, tile_group = common
        first, last = tile_group[first_tile[:-1]], tile_group[first_tile[1:] - BLOCK // TILE]  # whose first row is real
        squares[(block_group[:, None] >= 0) & (block_group[:, None] == first) & (first == last)] = np.inf
    mean = np.maximum(squares + spread[own, None], 0)
    with np.errstate(invalid="ignore"):
        least = mean - 2 * deviations / points.centres.shape[1] ** 0.5 * np.sqrt(mean * spread)
    least[squares == np.inf] = np.inf
    least[np.arange(own.size), squares.argmin(axis=1)] = np.inf
    near, distance = (np.stack([of(by, axis=1) for by in (squares, least)], axis=1) for of in (np.argmin, np.min))
    is_allowed = distance < np.inf
    none = np.empty(0, np.int32)
    lists = [
        np.concatenate([none, *(np.arange(first_tile[c], first_tile[c + 1], dtype=np.int32) for c in cells[some])])
        for cells, some in zip(near, is_allowed, strict=True)
    ]
    ends = np.cumsum([part.size for part in lists])
    return Lists(np.concatenate(([0], ends[:-1])), ends, np.concatenate(lists), 2 * size, None)


def largest_differences(points: Array, slots: Any, origin: Array, centres: Array) -> Array:
    """Return the largest |x - origin - centre| of any feature of a cell's points, (cells,) float64."""
    tile_largest, cells = np.zeros(slots.cell_of_tile.size), slots.cell_of_tile

    def measure(tiles: slice) -> None:
        for t in range(tiles.start, tiles.stop):
            rows = slots.rows[t * TILE : (t + 1) * TILE]
            tile_largest[t] = np.abs(points[rows[rows >= 0]] - origin - centres[cells[t]]).max(initial=0)

    for_each_chunk(CPU, measure, row_blocks(tile_largest.size, 1, 64))
    largest = np.zeros(len(centres))
    np.maximum.at(largest, cells, tile_largest)
    return largest


def encode(
    points: Array, slots: Any, origin: Array, centres: Array, scales: Array, fine: bool, columns: bool
) -> tuple[Array, Array, Array]:
    """Return rows in slots, how far rounding moved each at most, and how long each is at most.

    Rows are (x - origin - centre)·scale in float32 or, if `fine`, in float64. Empty slots have zeros.
    """
    cells, y = slots.cell_of_tile, np.zeros((slots.rows.size, points.shape[1]), np.float64 if fine else np.float32)
    error, length = np.zeros((2, slots.rows.size), np.float32)

    def fill(tiles: slice) -> None:
        for t in range(tiles.start, tiles.stop):
            at = slice(t * TILE, (t + 1) * TILE)
            real = slots.rows[at] >= 0
            z = (points[slots.rows[at][real]] - origin - centres[cells[t]]) * scales[cells[t]]
            y[at][real] = z
            rounded = y[at][real].astype(np.float64)
            moved = np.sqrt(((rounded - z) ** 2).sum(axis=1)) + np.sqrt((z * z).sum(axis=1)) * EPSILON
            error[at][real] = moved * ROUND_UP + TINY
            length[at][real] = np.sqrt((rounded * rounded).sum(axis=1)) * ROUND_UP

    for_each_chunk(CPU, fill, row_blocks(cells.size, 1, 64))
    return y, error, length


def put_rows(
    slots: Any, task: SearchTask, slot_of: Array, first: tuple[int, int], upper: Array = None, least: Array = None
) -> Rows:
    """Return the rows of a search with their ids and bounds; `slots` have their positions among the task's rows.

    Bounds are infinite without `upper`, and no larger than the `least` of their exclusion id. Terms begin at `first`, a
    slot of points and a cell.
    """
    is_real = slots.rows >= 0
    index = np.where(is_real, slots.rows, slots.rows[0])
    bound, ids = np.where(is_real, np.inf if upper is None else upper[index], -np.inf), task.rows[index]
    groups, where = task.row_group[ids], slot_of[ids]
    if least is not None:
        np.minimum(bound, least[groups], out=bound)
    real = np.where(is_real, ids, np.int32(-1))
    return Rows(ids, real, groups, bound, where, where - np.int32(first[0]), slots.cell_of_tile - np.int32(first[1]))


def sums_of_cells(slots: Any, error: Array, length: Array) -> Array:
    """Return by cell the largest error and length, the sum of squared lengths and the number of rows, (4, cells)."""
    by_tile = error.reshape(-1, TILE), length.reshape(-1, TILE).astype(np.float64)
    sums = np.zeros((4, slots.cells))
    for cell_largest, tile_groups in zip(sums, by_tile, strict=False):
        np.maximum.at(cell_largest, slots.cell_of_tile, tile_groups.max(axis=1))
    np.add.at(sums[2], slots.cell_of_tile, (by_tile[1] ** 2).sum(axis=1))
    np.add.at(sums[3], slots.cell_of_tile, (slots.rows.reshape(-1, TILE) >= 0).sum(axis=1))
    return sums


def near_in_order(ids: Array, position_of: Array, order: Array, width: int, groups: Groups) -> Candidates:
    """Return the candidates of rows: `width` neighbours in the order, -1 for those of a row's own exclusion id."""
    first = np.clip(position_of[ids] - width // 2, 0, order.size - width)
    near = order[first[:, None] + np.arange(width, dtype=np.int32)]
    near[groups[1][near] == groups[0][:, None]] = -1
    return Candidates(near, np.full(ids.size, width, np.int32))


def sample_lists(lists: Lists, points: Array, rows: Rows, point_group: Array, ids: Array) -> Candidates:
    """Put some of the `points` in slots into `ids`, and return them as the rows' candidates.

    They are spread evenly over the tiles of a block's list, and -1 where a slot is empty or of the row's exclusion id.
    Empty slots have none.
    """
    m, size = ids.shape
    begins, slots = (np.repeat(part, BLOCK)[:, None] for part in (lists.begins, (lists.ends - lists.begins) * TILE))
    slots = np.where(rows.bound[:, None] > -np.inf, slots, 0)
    at = (np.arange(m * size).reshape(m, size) * STRIDE % 2**32 * slots) >> 32
    listed = np.append(lists.tiles, 0)[begins + at // TILE]
    near = points[listed * TILE + at % TILE]
    ids[:] = np.where(point_group[near] == rows.groups[:, None], -1, near)
    return Candidates(ids, np.where(slots[:, 0] > 0, size, 0).astype(np.int32))


def plan_band(lists: Lists, band: slice, slots: Any) -> None:
    """Return None: a CPU needs no arrays for a band of all lists."""


def put_thresholds(
    terms: Any, rows: Rows, row_cell: Array, reach: tuple[float, ...], rounding: float, plan: None, out: Array
) -> None:
    """Put the thresholds of rows' products, by cells of points, into `out`, (cells, rows) of `TERM_TYPES`.

    `terms` are the `Terms` of the rows' cells; `row_cell` is the cell of each of the rows' tiles. No point beyond a
    row's bound, by the terms of `reach`, is wanted. The sum of the `squares` of the cells of points and of those of the
    rows, times `rounding`, is E of the test.
    """
    (product, centre_norms, norms), within = terms.products, _within(rows.bound, reach)
    where, points, row_cell = rows.in_terms, terms.columns, np.repeat(row_cell, TILE)
    scale = points.scales[row_cell] / 2
    with np.errstate(over="ignore", invalid="ignore"):
        lost = norms[where] + 2 * centre_norms[row_cell] + terms.squares[:, None]
        value = norms[where] + centre_norms[:, None] - 2 * product[:, where] - within**2 - rounding * lost
        value *= scale * points.scales[:, None]
        np.nextafter(value.astype(out.dtype), out.dtype.type(-np.inf), out=out)
    out[~(abs(out) < LARGEST)] = -np.inf
    out[:, within < 0] = np.inf


def put_begins(products: Any, between: Array, points: Any, cells: slice, eta: float, out: Array) -> None:
    """Put the begins of sums of all points, by some cells of rows, into `out`, (cells, points) of `TERM_TYPES`.

    `products` are those of these cells' centres with the points, and the squares of either's lengths; `between` are the
    squared distances of the centres from those of all cells.
    """
    product, centre_norms, norms = products
    cell = points.slots.cell_of_tile
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.repeat(between[:, cell], TILE, axis=1) - (norms + centre_norms[:, None] - 2 * product)
        value *= np.repeat(points.scales[cell] / 2, TILE) * points.scales[cells, None]
        value += points.largest_length[cells, None] * (points.error + eta * points.length)
        value += points.largest_error[cells, None] * (points.error.astype("float64") + points.length)
        value += 2 * eta * abs(value)
        np.nextafter(value.astype(out.dtype), out.dtype.type(np.inf), out=out)
    out[~(abs(out) < LARGEST)] = np.inf
    out[:, points.slots.rows < 0] = -np.inf


def append(
    rows: Any, points: Any, terms: Any, lists: Lists, band: slice, plan: None, groups: Groups, ids: Array, fine: bool
) -> Candidates:
    """Return the candidates, in `ids`, of each block's rows: the points that pass, of the tiles in a band of its list.

    No product is above that of both lengths, which leaves some tiles out.

    `terms` are the thresholds of cells of points and rows, what sums begin at by cells of rows and points, and the
    cells of the rows' tiles among these.
    """
    (least, first_sums, row_cells), (row_group, point_group), cells_of_tiles = terms, groups, points.slots.cell_of_tile
    into = Candidates(ids, np.zeros(len(ids), np.int32))
    lengths = points.length.reshape(-1, TILE).max(axis=1)
    some, (d, kind) = TILE * TILES_AT_ONCE, (points.y.shape[1], points.y.dtype)

    def fill(blocks: slice) -> None:
        columns, product = np.empty((TILES_AT_ONCE, TILE, d), kind), np.empty(BLOCK * some, kind)
        for b in range(blocks.start, blocks.stop):
            at = slice(b * BLOCK, (b + 1) * BLOCK)
            cell, longest = row_cells[b * BLOCK // TILE], np.float64(rows.length[at].max())
            block_tiles = lists.tiles[lists.begins[b] : lists.ends[b]][band]
            reached = longest * lengths[block_tiles] + first_sums[cell].reshape(-1, TILE)[block_tiles].max(axis=1)
            block_tiles = block_tiles[~(reached < least[:, at].min(axis=1)[cells_of_tiles[block_tiles]])]
            for part in row_blocks(block_tiles.size, TILE, some):
                own = block_tiles[part]
                np.take(points.y.reshape(-1, TILE, d), own, axis=0, out=columns[: own.size])
                sums = product[: BLOCK * own.size * TILE].reshape(BLOCK, -1)
                np.matmul(rows.y[at], columns[: own.size].reshape(-1, d).T, out=sums)
                _append(sums, own, cells_of_tiles, least[:, at], first_sums[cell], row_group[at], point_group,
                        points.slots.rows, into.ids[at], into.count[at])  # fmt: skip

    for_each_chunk(CPU, fill, row_blocks(lists.begins.size, 1, 4))
    return into


@njit(nogil=True, cache=True)
def _append(product, tiles, cell_of_tile, thresholds, begin, row_group, point_group, ids, out, count):
    for t in range(tiles.size):
        first, threshold = tiles[t] * TILE, thresholds[cell_of_tile[tiles[t]]]
        for i in range(product.shape[0]):
            passed = np.uint8(0)
            for j in range(TILE):
                passed |= product[i, t * TILE + j] + begin[first + j] >= threshold[i]
            if not passed:
                continue
            for j in range(TILE):
                if product[i, t * TILE + j] + begin[first + j] >= threshold[i]:
                    if row_group[i] == point_group[first + j]:
                        continue
                    if count[i] < out.shape[1]:
                        out[i, count[i]] = ids[first + j]
                    count[i] += 1

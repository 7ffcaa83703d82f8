"""The sizes and lists of tiles, for both devices, and an order in which near points follow each other.

    points ──▶ places ──▶ cuts ──▶ order ──▶ tiles of `TILE` slots, in blocks of two and in cells
               Axes       kernels            Tiles

The *place* of a point has its coordinates on up to `AXES` principal axes, and the length of what these leave out
(filter/__init__.py has the proof that no two places are farther apart than their points). A tree cuts a sample of the
places. A node is cut

- at a gap, if one on its widest axis is a fifth of its extent;
- or at a radius, if the distances from its middle jump threefold there: a dense core leaves its surroundings;
- or at the median of its widest axis.

If no gap leaves many points on either side, and the farthest of many points is sixteen times as far from the middle as
half of them are, the cut is at the radius between. So points of a heavy tail, or outliers, are in cells with others as
far out: the largest of a cell's points sets its scale.

All points go down the tree, and a leaf's points follow each other. No tile holds points from both sides of a gap or
jump that has many points on either side, nor those of a tail and others: what follows it begins a new block. Nothing
about exactness rests on the order.
"""

from dataclasses import dataclass
from functools import partial
from math import frexp
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.task import golden_stride, inverse
from rapids_slink.ordering import keys_of_floats, stable_order
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device, half, to_host

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)
#: The sources of the folder's kernels.
ORDER, TILES, ENCODE = (f"neighbors/tiles/{name}.cu" for name in ("order", "tiles", "encode"))
#: Slots of a tile of points, and of a block of rows.
TILE, BLOCK = constant(TILES, "TILE"), constant(TILES, "BLOCK")
#: The least number of slots of a cell. With many points cells are larger: there are at most about `MOST_CELLS`, since
#: each cell has a term for each point.
CELL, MOST_CELLS = 1024, 512
#: The largest exponent of a unit, so that it is a finite number, and so is what is multiplied by it.
MAX_EXPONENT = 1000
#: A place has up to AXES axes. They are found on AXIS_ROWS rows, in MULTIPLICATIONS products with their covariance.
AXES, AXIS_ROWS, MULTIPLICATIONS = constant(ENCODE, "MOST_AXES"), 2**12, 3
#: The places' centre is the median of up to MEDIAN_SAMPLE rows, and a cell's is the mean of CENTRE_POINTS of its own.
MEDIAN_SAMPLE, CENTRE_POINTS = 127, 32
#: The tree cuts at most SAMPLE places. A block begins at a cut with at least MIN_SIDE points on either side, and at
#: least SAMPLED_SIDE of the sample: most nodes of a few points have a gap.
SAMPLE, MIN_SIDE, SAMPLED_SIDE = 2**16, 512, 16
ROUND_UP, TINY = 1 + 2.0**-22, 1e-30
UNDERFLOW = 1e-306  # added to squares: its part of E is more than what products of tiny numbers lose
#: The bits of an exclusion id in a key; the ids are int32.
GROUP_BITS = constant(ORDER, "GROUP_BITS")
#: A node's cut is the number of an axis, `BALL` for a radius, or `LEAF` for none. See order.cu for the others.
BALL, LEAF, JUMP, TAIL, INNERMOST, MIN_JUMP, MEDIAN_ROWS = (
    constant(ORDER, name) for name in ("BALL", "LEAF", "JUMP", "TAIL", "INNERMOST", "MIN_JUMP", "MEDIAN_ROWS")
)
GAP = 0.2  # a cut is at a gap above this share of the extent


class Cuts(NamedTuple):
    """A tree of cuts over a sample of places."""

    nodes: Array  # (nodes, 4) int32: an axis, `BALL` or `LEAF`; its children; where its points begin
    values: Array  # (nodes,) float32, a coordinate or a squared radius: what is less goes to the first child
    middles: Array  # (nodes, m) float32: the points from which radii are measured
    breaks: Array  # (sample + 1,) bool, a GPU's int32: where points begin that are apart from those before


class Lists(NamedTuple):
    """A list of tiles of points for each block of rows."""

    begins: Array  # (blocks,) int64: where a block's list begins in `tiles`, and where the last ends
    ends: Array
    tiles: Array  # int32; a GPU's are one at least
    longest: int  # at least the number of tiles of the longest list
    lengths: Any  # (blocks,) int64 of NumPy's, on the host; None where they are not known there


class Rows(NamedTuple):
    """The rows of a search in s slots."""

    ids: Array  # (s,) int32, a row; any where a slot is empty
    real: Array  # (s,) int32, the same, -1 where a slot is empty
    groups: Array  # (s,) int32, exclusion ids
    bound: Array  # (s,) float64, -infinity where a slot is empty
    where: Array  # (s,) int32, their slots among all points
    in_terms: Array  # (s,) int32, their slots counted from the first slot of the terms
    cells: Array  # (s / TILE,) int32, their tiles' cells, counted from the first of the terms


class Reach(NamedTuple):
    """How far points may be from the places of rows in slots; -1 for rows that want none."""

    rows: Array  # (s,) float32
    blocks: Array  # (blocks,) float64, the largest of each block's rows


#: The exclusion id that a block's rows, or a tile's points, share, int32, -1 if none; None if each row has its own.
CommonGroups: TypeAlias = tuple[Array, Array] | None


class PlacedTiles(NamedTuple):
    """The tiles of points, as `near_tiles` looks at them."""

    boxes: Array  # (tiles, 2, m) float64
    turned: Array  # as `turned` returns them: a GPU reads these first
    places: Array  # (m, slots) float32, as `places_of_slots` returns them
    lost: float  # what places and boxes' edges together are off by, at most


class Balls(NamedTuple):
    """The balls about the cells' centres that hold their points, and some rows' distances from the centres."""

    #: products of centres and points, (cells, points) float64; squares of either's lengths. The rows are at `where`
    products: tuple[Array, Array, Array]
    where: Array
    points: Any  # encoded by cells
    rounding: float  # what a squared distance from a centre may be off by, by the squares of both lengths
    shrink: float  # two rows may be farther apart than their places by this factor


def cell_size(n: int) -> int:
    """Return the number of slots of a cell, a power of two, for n points."""
    return max(CELL, 1 << (-(-n // MOST_CELLS) - 1).bit_length())


def check_key_bits(cells: int, size: int) -> None:
    """Raise AssertionError unless a key of a cell, an exclusion id and one of its `size` slots fits into 63 bits."""
    assert cells * size <= 2 ** (63 - GROUP_BITS), f"{cells} cells of {size} slots have no keys of 63 bits"


def sample_stride(n: int, size: int) -> int:
    """Return the stride, modulo n, of a sample of n rows: even, and not the distance of a likely pattern."""
    return golden_stride(n) if size < n else 1


def unit_of(largest: float) -> float:
    """Return the power of two that makes a number about one; 1 for zero."""
    return 2.0 ** max(-MAX_EXPONENT, min(MAX_EXPONENT, -frexp(largest)[1])) if largest > 0 else 1.0


@dataclass(frozen=True)
class Axes:
    """The map from points to places, which are in units of about the largest difference from the centre.

    With d features the coordinates and the square of a length are off by (d + 8)2⁻⁵² of the length, and of that square,
    at most: a feature's difference from the centre by 2⁻⁵³ of itself, and a sum of d products, in whatever order they
    are added and whether or not fused, by d 2⁻⁵³ of their sizes' sum.
    """

    centre: Array  # (d,) float64
    unit: float  # what a length is multiplied by, a power of two
    axes: Array  # (m, d) float64, nearly orthonormal rows
    departure: float  # the norm of the difference of their products from the unit matrix
    device: Device

    @classmethod
    def of(cls, points: Array, device: Device) -> Self:
        """Return nearly the leading principal axes of a sample of (n, d) points, with its centre and unit."""
        n, d = points.shape
        sample, centre, unit = centred_sample(points, min(n, AXIS_ROWS), device.xp)
        m = min(AXES, d)
        axes = np.random.default_rng(0).standard_normal((d, m))
        for _ in range(MULTIPLICATIONS):
            product = to_host(sample.T @ (sample @ device.asarray(axes * unit)))
            axes = np.linalg.qr(product * unit)[0]  # in units, whose squares do not overflow
        departure = float(abs(axes.T @ axes - np.eye(m)).sum()) + d * m * EPSILON
        return cls(centre, unit, device.asarray(np.ascontiguousarray(axes.T)), departure, device)

    @property
    def stretch(self) -> float:
        """Return by which factor two points' places may be farther apart than the points."""
        return float((1 + self.departure + self.departure**2) ** 0.5 * (1 + 1e-12)) * self.unit

    def places(self, points: Array) -> tuple[Array, Array, float, float]:
        """Return the places of (n, d) points, (n, m + 1) float64, and their errors.

        The errors, (n, 2), bound how far the coordinates and the length of the rest may be off. The third result is the
        largest distance of a place from the origin, and the fourth is the largest error.
        """
        return kernels(self.device).places_of_points(points, self.centre, self.unit, self.axes, self.departure)


@dataclass(frozen=True)
class Slots:
    """Rows in slots; the rows of a block are near each other."""

    rows: Array  # (s,) int32, -1 where a slot is empty; s is a multiple of `BLOCK`
    cell_of_tile: Array  # (s / TILE,) int32, ascending from 0: tiles with one centre
    cell_of_block: np.ndarray  # (s / BLOCK,) int32, on the host
    cells: int

    @classmethod
    def of(
        cls,
        rows: Array,
        begins: np.ndarray,
        device: Device,
        cell_of_section: np.ndarray | None = None,
        cells: int = 0,
        slot_of: Array = None,
    ) -> Self:
        """Put some rows into slots in their order; a new block begins where `begins`, ascending from 0, says.

        A cell has up to `cell_size` slots of a section, unless `cell_of_section` gives each section one of `cells`.
        `slot_of` gets the slots of the rows.
        """
        counts = np.diff(begins, append=rows.size)
        blocks_of_section = -(-counts // BLOCK)
        section = np.repeat(np.arange(begins.size), blocks_of_section)
        in_section = np.arange(section.size) - (np.cumsum(blocks_of_section) - blocks_of_section)[section]
        if cell_of_section is None:
            size = cell_size(rows.size) // BLOCK
            cells_of_section = -(-blocks_of_section // size)
            ends = np.cumsum(cells_of_section)
            cell, cells = (ends - cells_of_section)[section] + in_section // size, int(cells_of_section.sum())
        else:
            cell = cell_of_section[section]
        remaining = counts[section] - BLOCK * in_section
        blocks = np.stack((begins[section] + BLOCK * in_section, np.minimum(remaining, BLOCK), cell)).astype(np.int32)
        in_slots, cell_of_tile = kernels(device).fill_slots(rows, blocks, slot_of)
        return cls(in_slots, cell_of_tile, blocks[2], cells)

    def some(self, blocks: np.ndarray, device: Device) -> Self:
        """Return some of the blocks, which an array of their numbers selects."""
        cell = self.cell_of_block[blocks]
        spans = np.stack((BLOCK * blocks, np.full(blocks.size, BLOCK), cell)).astype(np.int32)
        rows, cell_of_tile = kernels(device).fill_slots(self.rows, spans)
        return type(self)(rows, cell_of_tile, cell, self.cells)

    def blocks(self, begin: int, end: int) -> Self:
        """Return the blocks from `begin` up to, not including, `end`."""
        rows, tiles = (slice(begin * size, end * size) for size in (BLOCK, BLOCK // TILE))
        return type(self)(self.rows[rows], self.cell_of_tile[tiles], self.cell_of_block[begin:end], self.cells)


def centred_sample(points: Array, size: int, xp: Any) -> tuple[Array, Array, float]:
    """Return a sample of (n, d) points minus a centre, (size, d) float64; the centre, (d,); its unit: see `unit_of`.

    The centre is the median of each feature, by some of the sample. Far points draw a mean so far from all others that
    these round to one place.
    """
    n, some = len(points), min(size, MEDIAN_SAMPLE)
    sample = points[xp.arange(size) * sample_stride(n, size) % n].astype("float64")
    centre = xp.sort(sample[:: size // some][:some], axis=0)[some // 2]
    sample -= centre
    return sample, centre, unit_of(float(abs(sample).max()))


def order_by_leaf(leaf: Array, breaks: Array, xp: Any) -> tuple[Array, Array, np.ndarray]:
    """Return the order of rows by their leaves, (n,) int32, the position of each row in it, and its breaks.

    The breaks are positions in the order, on the host; they ascend and include the first.
    """
    order = stable_order(leaf, xp).astype("int32")
    section = xp.cumsum(breaks)[leaf[order]]
    return order, inverse(order, xp), np.append(0, 1 + np.flatnonzero(to_host(section[1:] != section[:-1])))


def turned(boxes: Array, xp: Any) -> Array:
    """Return boxes by coordinates, (2, m, tiles), with the tiles in a low-discrepancy order."""
    n = len(boxes)
    return xp.ascontiguousarray(boxes[xp.arange(n) * golden_stride(n) % n].transpose(1, 2, 0))


def places_of_slots(places: Array, rows: Array, xp: Any) -> Array:
    """Return the places of the points in slots by coordinates, (m, slots) float32; empty slots have point 0's."""
    return xp.ascontiguousarray(places.astype("float32")[xp.maximum(rows, 0)].T)


def centres_of_cells(points: Array, slots: Slots, first_tile: Array, origin: Array, xp: Any) -> Array:
    """Return the means of some points of each cell, (cells, d) float64, counted from the origin."""
    begins, ends = (TILE * part[:, None].astype("int64") for part in (first_tile[:-1], first_tile[1:]))
    some = slots.rows[begins + (ends - begins) * xp.arange(CENTRE_POINTS) // CENTRE_POINTS]
    some = xp.where(some < 0, slots.rows[begins], some)
    return (points[some].astype("float64") - origin).sum(axis=1) / CENTRE_POINTS


def squares_between(centres: Array) -> tuple[Array, Array]:
    """Return the squares of the centres' lengths, (cells,), and of the distances of all pairs, (cells, cells)."""
    products = centres @ centres.T
    squares = products.diagonal().copy()
    return squares, squares[:, None] + squares - 2 * products


def squares_of_cells(centre_norms: Array, points: Any) -> Array:
    """Return 4‖b‖² + 2M²/t² + `UNDERFLOW` of each cell of points, (cells,) float64.

    `centre_norms` are the squares of the centres' lengths, ‖b‖².
    """
    radius = (points.largest_length + points.largest_error) / points.scales
    return UNDERFLOW + 4 * centre_norms + 2 * radius * radius


def near_order(places: Array, device: Device) -> tuple[Array, Array, np.ndarray]:
    """Return an order of n places, (n,) int32, each one's position in it, and where new blocks begin, on the host."""
    n, of = len(places), kernels(device)
    step = -(-n // SAMPLE)
    cuts = of.cut(places, n // step, max(2, TILE // step), max(SAMPLED_SIDE, MIN_SIDE // step))
    return order_by_leaf(of.leaves(cuts, places), cuts.breaks, device.xp)


@njit(nogil=True, cache=True)
def _square(x, middle):
    total = np.float32(0)
    for f in range(middle.size):
        difference = x[f] - middle[f]
        total += difference * difference
    return total


@njit(nogil=True, cache=True)
def find_leaves(nodes, values, middles, places, out):
    """For each of some places, (n, m) float32, put the position at which its leaf begins into `out`, (n,) int32."""
    for i in range(len(places)):
        v = 0
        while nodes[v, 0] != LEAF:
            key = _square(places[i], middles[v]) if nodes[v, 0] == BALL else places[i, nodes[v, 0]]
            v = nodes[v, 1] if key < values[v] else nodes[v, 2]
        out[i] = nodes[v, 3]


@njit(nogil=True, cache=True)
def _widest_axis(sample, rows):
    """Return the axis of the largest variance."""
    best, largest = 0, np.float64(-1)
    for f in range(sample.shape[1]):
        total, square, first = 0.0, 0.0, np.float64(sample[rows[0], f])
        for r in rows:
            value = sample[r, f] - first
            total += value
            square += value * value
        variance = square - total * total / rows.size
        if variance > largest:
            best, largest = f, variance
    return best


@njit(nogil=True, cache=True)
def _stable_order(values):
    """Return the order of float32 values, ascending; of equal values the first comes first.

    The lower half of a value's key is its number, because Numba may take five seconds to compile its own stable sort.
    """
    key = keys_of_floats(values.view(np.uint32))
    for i in range(key.size):
        key[i] = key[i] << np.uint64(32) | np.uint64(i)
    key.sort()
    for i in range(key.size):
        key[i] &= np.uint64(0xFFFFFFFF)
    return key.view(np.int64)


@njit(nogil=True, cache=True)
def _middle(sample, rows, middle):
    """Put the median of some of the rows, axis by axis, into `middle`."""
    some = rows[:: max(1, rows.size // MEDIAN_ROWS)]
    for f in range(middle.size):
        middle[f] = np.sort(sample[some, f])[some.size // 2]


@njit(nogil=True, cache=True)
def _between(low, high, value):
    """Return `value`, or `high` if `value` was rounded to `low`, so that `low` is below the result."""
    return value if value > low else high


#: What a cut is at: the middle; a gap or a jump, where a block begins if there are many points on either side; or a
#: tail, whose points are always apart.
MIDDLE, GAP_OR_JUMP, TAIL_OF_MANY = range(3)


@njit(nogil=True, cache=True)
def _find_cut(sample, rows, middle, min_side):
    """Return the axis or `BALL`, the value to cut at, the number of rows below it, and what the cut is at.

    The rows are put in order.
    """
    n, axis = rows.size, _widest_axis(sample, rows)
    key = np.empty(n, np.float32)
    for i in range(n):
        key[i] = sample[rows[i], axis]
    order = _stable_order(key)
    key, rows[:] = key[order], rows[order]
    extent = key[-1] - key[0]
    if not extent > 0:
        return np.int64(LEAF), np.float32(0), 0, MIDDLE
    gap = np.diff(key)
    at = np.argmax(gap) + 1
    if not gap[at - 1] > GAP * extent:
        at = 0
    if min(at, n - at) < min_side and n >= MIN_JUMP:
        _middle(sample, rows, middle)
        square = np.empty(n, np.float32)
        for i in range(n):
            square[i] = _square(sample[rows[i]], middle)
        by_radius = _stable_order(square)
        square = square[by_radius]
        if n >= 4 * min_side and 0 < np.float32(TAIL) * square[n // 2] < square[-1]:
            value = np.sqrt(square[n // 2]) * np.sqrt(square[-1])
            rows[:] = rows[by_radius]
            return np.int64(BALL), value, np.searchsorted(square, value), TAIL_OF_MANY
        best, ratio = 0, np.float32(JUMP)
        for i in range(INNERMOST, n if at == 0 else 0):
            if square[i] > ratio * square[i - 1]:
                best = i
                ratio = square[i] / square[i - 1] if square[i - 1] > 0 else np.float32(np.inf)
        if best:
            rows[:] = rows[by_radius]
            inner, outer = square[best - 1], square[best]
            return np.int64(BALL), _between(inner, outer, np.sqrt(inner) * np.sqrt(outer)), best, GAP_OR_JUMP
    if at:
        return axis, _between(key[at - 1], key[at], key[at - 1] + gap[at - 1] / 2), at, GAP_OR_JUMP
    low = high = n // 2
    while low > 0 and key[low - 1] == key[low]:
        low -= 1
    while high < n and key[high] == key[high - 1]:
        high += 1
    at = low if low > 0 and (high == n or n // 2 - low <= high - n // 2) else high
    return axis, key[at], at, MIDDLE


@njit(nogil=True, cache=True)
def cut_sample(sample, leaf, min_side, nodes, values, middles, breaks):
    """Fill a tree with cuts of a sample, (n, m) float32, and return the number of its nodes.

    The tree's arrays are those of `Cuts`.
    """
    rows = np.arange(sample.shape[0])
    ends = np.empty(nodes.shape[0], np.int64)
    nodes[0, 3], ends[0], used = 0, rows.size, 1
    for v in range(nodes.shape[0]):
        if v == used:
            break
        begin, end = np.int64(nodes[v, 3]), ends[v]
        nodes[v, 0] = LEAF
        if end - begin <= leaf:
            continue
        axis, value, below, kind = _find_cut(sample, rows[begin:end], middles[v], min_side)
        if axis == LEAF:
            continue
        nodes[v, 0], nodes[v, 1], nodes[v, 2], values[v] = axis, used, used + 1, value
        nodes[used, 3], ends[used] = begin, begin + below
        nodes[used + 1, 3], ends[used + 1] = begin + below, end
        if kind == TAIL_OF_MANY:
            breaks[begin + below] = breaks[end] = True
        elif kind == GAP_OR_JUMP and min(below, end - begin - below) >= min_side:
            breaks[begin + below] = True
        used += 2
    return used

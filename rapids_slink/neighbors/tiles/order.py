"""The sizes and lists of tiles, for both devices, and an order in which near points follow each other.

    points ──▶ places ──▶ cuts ──▶ order ──▶ tiles of `TILE` slots, in blocks of two and in cells
               Axes       kernels            Tiles

The *place* of a point has its coordinates on up to `AXES` principal axes, and the length of what these leave out
(filter/bounds.py has the proof that no two places are farther apart than their points). A tree cuts a sample of the
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
from typing import Any, NamedTuple, Self

import numpy as np

from rapids_slink.neighbors.task import golden_stride
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device, half, to_host

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)
#: The sources of the folder's kernels.
ORDER, TILES, ENCODE, BOUND = (f"neighbors/tiles/{name}.cu" for name in ("order", "tiles", "encode", "bound"))
#: Slots of a tile of points, and of a block of rows.
TILE, BLOCK = constant(TILES, "TILE"), constant(TILES, "BLOCK")
#: The least number of slots of a cell. With many points cells are larger: there are at most about `MOST_CELLS`, since
#: each cell has a term for each point.
CELL, MOST_CELLS = 1024, 512
#: The largest exponent of a unit, so that it is a finite number.
MAX_EXPONENT = constant(ENCODE, "MAX_EXPONENT")
#: Axes of a place, rows of the sample that they are found by, and how often that is multiplied by its covariance.
AXES, AXIS_ROWS, MULTIPLICATIONS = constant(ENCODE, "MOST_AXES"), 2**12, 3
#: Places that the tree cuts, at most; the fewest points on either side of a cut at which a block begins, and the fewest
#: of the sample: of nodes of a few most have a gap.
SAMPLE, MIN_RUN, SAMPLED_RUN = 2**16, 512, 16
EPSILON = 2.0**-52
#: The bits of a group in a key; groups' numbers are int32.
GROUP_BITS = constant(ORDER, "GROUP_BITS")


class Lists(NamedTuple):
    """A list of tiles of points for each block of rows."""

    begins: Array  # (blocks,) int64: where a block's begin among the tiles, and where they end
    ends: Array
    tiles: Array  # int32; a GPU's are one at least
    longest: int  # at least the number of tiles of the longest list
    lengths: Any  # (blocks,) int64 of NumPy's, on the host; None where they are not known there


class Rows(NamedTuple):
    """The rows of a search in s slots."""

    ids: Array  # (s,) int32, a row; any where a slot is empty
    real: Array  # (s,) int32, the same, -1 where a slot is empty
    groups: Array  # (s,) int32
    bound: Array  # (s,) float64, -infinity where a slot is empty
    where: Array  # (s,) int32, their slots among all points
    in_terms: Array  # (s,) int32, the same counted from the first slot of the terms
    cells: Array  # (s / TILE,) int32, their tiles' cells, counted from the first of the terms


class Balls(NamedTuple):
    """The balls about the cells' centres that hold their points, and some rows' distances from the centres."""

    #: of the centres with points, (cells, points) float64; the squares of either's lengths. The rows are at `where`
    products: tuple[Array, Array, Array]
    where: Array
    points: Any  # encoded by cells
    rounding: float  # what a squared distance from a centre may be off by, by the squares of both lengths
    shrink: float  # by which factor two rows may be farther apart than their places


def cell_size(n: int) -> int:
    """Return the number of slots of a cell, a power of two, for n points."""
    return max(CELL, 1 << (-(-n // MOST_CELLS) - 1).bit_length())


def check_key_bits(cells: int, size: int) -> None:
    """Raise AssertionError unless a key of a cell, a group and one of `size` slots of the cell fits into 63 bits."""
    assert cells * size <= 2 ** (63 - GROUP_BITS), f"{cells} cells of {size} slots have no keys of 63 bits"


def sample_stride(n: int, size: int) -> int:
    """Return the stride, modulo n, of a sample of n rows: even, and not the distance of a likely pattern."""
    return golden_stride(n) if size < n else 1


def float32_above(x: float) -> np.float32:
    """Return a number as float32, rounded up."""
    rounded = np.float32(x)
    return rounded if rounded >= x else np.nextafter(rounded, np.float32(np.inf))


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
        sample, centre, unit = kernels(device).centred_sample(points, min(n, AXIS_ROWS))
        m = min(AXES, d)
        axes = np.random.default_rng(0).standard_normal((d, m))
        for _ in range(MULTIPLICATIONS):
            product = to_host(sample.T @ (sample @ device.asarray(axes)))
            axes = np.linalg.qr(product)[0]
        departure = float(abs(axes.T @ axes - np.eye(m)).sum()) + d * m * EPSILON
        return cls(centre, unit, device.asarray(np.ascontiguousarray(axes.T)), departure, device)

    @property
    def stretch(self) -> float:
        """Return by which factor two points' places may be farther apart than the points."""
        return float((1 + self.departure + self.departure**2) ** 0.5 * (1 + 1e-12)) * self.unit

    def places(self, points: Array) -> tuple[Array, Array, float, float]:
        """Return the places of (n, d) points, (n, m + 1) float64, and their errors.

        These are how far coordinates and the rest may be off, (n, 2). The third result is how far a place is from the
        origin at most, and the fourth is the largest error.
        """
        placed: tuple[Array, Array, float, float] = kernels(self.device).places_of_points(
            points, self.centre, self.unit, self.axes, self.departure
        )
        return placed


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
        cell_of_run: np.ndarray | None = None,
        cells: int = 0,
        slot_of: Array = None,
    ) -> Self:
        """Put some rows into slots in their order; a new block begins where `begins`, ascending from 0, says.

        A cell has up to `cell_size` slots of a run, unless `cell_of_run` gives each run one of `cells`. `slot_of` gets
        the slots of the rows.
        """
        counts = np.diff(begins, append=rows.size)
        blocks_of_run = -(-counts // BLOCK)
        run = np.repeat(np.arange(begins.size), blocks_of_run)
        in_run = np.arange(run.size) - (np.cumsum(blocks_of_run) - blocks_of_run)[run]
        if cell_of_run is None:
            size = cell_size(rows.size) // BLOCK
            cells_of_run = -(-blocks_of_run // size)
            cell, cells = (np.cumsum(cells_of_run) - cells_of_run)[run] + in_run // size, int(cells_of_run.sum())
        else:
            cell = cell_of_run[run]
        remaining = counts[run] - BLOCK * in_run
        blocks = np.stack((begins[run] + BLOCK * in_run, np.minimum(remaining, BLOCK), cell)).astype(np.int32)
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


def near_order(places: Array, device: Device) -> tuple[Array, Array, np.ndarray]:
    """Return an order of n places, (n,) int32, the position of each in it, and where new blocks begin, on the host."""
    n, of = len(places), kernels(device)
    step = -(-n // SAMPLE)
    cuts = of.cut(places, n // step, max(2, TILE // step), max(SAMPLED_RUN, MIN_RUN // step))
    order, place_of, begins = of.order_by_leaf(of.leaves(cuts, places), cuts.breaks)
    return order, place_of, begins

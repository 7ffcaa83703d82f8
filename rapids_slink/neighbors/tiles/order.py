"""An order in which near points follow each other, and tiles of it.

    points ──▶ places ──▶ cuts ──▶ order ──▶ tiles of `TILE` slots, in blocks of two and in cells
               Axes       kernels            Tiles

The *place* of a point has its coordinates on up to `AXES` principal axes, and the length of what these leave out
(`filter/product.py` has the proof that no two places are farther apart than their points). A tree cuts a sample of the
places. A node is cut

- at a gap, if one on its widest axis is a fifth of its extent;
- or at a radius, if the distances from its middle jump threefold there: a dense core leaves its surroundings;
- or at the median of its widest axis.

All points go down the tree, and a leaf's points follow each other. No tile holds points from both sides of a gap or
jump that has many points on either side: what follows it begins a new block. Nothing about exactness rests on the
order.
"""

from dataclasses import dataclass
from math import frexp
from typing import Self

import numpy as np

from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.neighbors.tiles.kernels import kernels
from rapids_slink.neighbors.tiles.sizes import BLOCK, TILE, cell_size
from rapids_slink.runtime.device import Array, Device, to_host

#: Axes of a place, rows of the sample that they are found by, and how often that is multiplied by its covariance.
AXES, AXIS_ROWS, MULTIPLICATIONS = 16, 2**12, 3
#: Binary digits of a unit at most, so that it is a finite number.
MAX_EXPONENT = 1000
#: Places that the tree cuts, at most, and the fewest points on either side of a cut at which a block begins.
SAMPLE, MIN_RUN = 2**16, 512
AT_ONCE = {"cpu": 2**18, "cuda": 2**26}  # values that are mapped
EPSILON = 2.0**-52


@dataclass(frozen=True)
class Axes:
    """The map from points to places, which are in units of about the largest difference from the centre."""

    centre: Array  # (d,) float64
    unit: float  # what a length is multiplied by, a power of two
    axes: Array  # (d, m) float64, nearly orthonormal columns
    departure: float  # of their products from the unit matrix, a norm
    device: Device

    @classmethod
    def of(cls, points: Array, device: Device) -> Self:
        """The leading principal axes of a sample of (n, d) points, nearly."""
        n, d = points.shape
        sample = points[_sample(n, AXIS_ROWS, device)].astype("float64")
        centre = sample.sum(axis=0) / len(sample)
        sample -= centre
        largest = float(abs(sample).max())
        unit = 2.0 ** max(-MAX_EXPONENT, min(MAX_EXPONENT, -frexp(largest)[1])) if largest > 0 else 1.0
        sample *= unit  # squares of larger numbers could overflow
        m = min(AXES, d)
        axes = np.random.default_rng(0).standard_normal((d, m))
        for _ in range(MULTIPLICATIONS):
            product = to_host(sample.T @ (sample @ device.asarray(axes)))
            axes = np.linalg.qr(product)[0]
        departure = float(abs(axes.T @ axes - np.eye(m)).sum()) + d * m * EPSILON
        return cls(centre, unit, device.asarray(np.ascontiguousarray(axes)), departure, device)

    @property
    def stretch(self) -> float:
        """How many times as far apart as two points their places may be."""
        return float((1 + self.departure + self.departure**2) ** 0.5 * (1 + 1e-12)) * self.unit

    def places(self, points: Array) -> tuple[Array, Array]:
        """The places of (n, d) points, (n, m + 1) float64; how far coordinates and the rest may be off, (n, 2)."""
        xp, (n, d), m = self.device.xp, points.shape, self.axes.shape[1]
        places, errors = xp.empty((n, m + 1)), xp.empty((n, 2))
        for rows in row_blocks(n, d, AT_ONCE[self.device.name]):
            w = (points[rows] - self.centre) * self.unit
            z, square = w @ self.axes, (w * w).sum(axis=1)
            places[rows, :m] = z
            rounding = (d + 8) * EPSILON
            errors[rows, 0] = rounding * xp.sqrt(square) * (1 + self.departure)
            if m == d:  # nothing is left out
                places[rows, m], errors[rows, 1] = 0, 0
                continue
            rest = xp.sqrt(xp.maximum(square - (z * z).sum(axis=1), 0))
            missing = (self.departure + 2 * rounding) * square
            places[rows, m] = rest
            errors[rows, 1] = xp.minimum(xp.sqrt(missing), missing / xp.maximum(rest, 1e-300))
        return places, errors


@dataclass(frozen=True)
class Slots:
    """Rows in slots of which whole blocks are near each other."""

    rows: Array  # (s,) int32, -1 where a slot is empty; s is a multiple of `BLOCK`
    cell_of_tile: Array  # (s / TILE,) int32, ascending from 0: tiles with one centre
    cells: int

    @classmethod
    def of(cls, rows: Array, run: Array, device: Device, cell_of_row: Array = None, cells: int = 0) -> Self:
        """Those of some rows, in their order. `run` counts how often a new block begins, up to each row.

        Cells are of up to `cell_size` slots of a run, unless `cell_of_row` names some of `cells`, one for each run.
        """
        xp = device.xp
        begin = xp.concatenate((xp.zeros(1, "int64"), xp.flatnonzero(run[1:] != run[:-1]) + 1))
        counts = xp.concatenate((begin[1:], xp.full(1, run.size))) - begin
        padded = (counts + BLOCK - 1) // BLOCK * BLOCK
        first_slot = xp.cumsum(padded) - padded
        slots = xp.full(int(padded.sum()), -1, "int32")
        slots[(first_slot - begin)[run] + xp.arange(rows.size)] = rows
        tile = xp.arange(slots.size // TILE) * TILE
        run_of_tile = xp.searchsorted(first_slot, tile, side="right") - 1
        if cell_of_row is not None:
            return cls(slots, cell_of_row[begin][run_of_tile], cells)
        size = cell_size(rows.size)
        of_runs = -(-padded // size)
        cell = (xp.cumsum(of_runs) - of_runs)[run_of_tile] + (tile - first_slot[run_of_tile]) // size
        return cls(slots, cell.astype("int32"), int(of_runs.sum()))


def _sample(n: int, size: int, device: Device) -> Array:
    """Some of n rows, spread evenly but at no regular distances, which could be those of a pattern."""
    return exact_kernels(device).low_discrepancy_order(n)[:size] if size < n else device.xp.arange(n)


def near_order(places: Array, device: Device) -> tuple[Array, Array]:
    """The order of n places, (n,) int32, and how often a new block begins up to each place of it, (n,) int32."""
    xp, n = device.xp, len(places)
    coordinates = places.astype("float32")
    step = -(-n // SAMPLE)
    sample = xp.ascontiguousarray(coordinates[_sample(n, n // step, device)])
    cuts = kernels(device).cut(sample, max(2, TILE // step), max(1, MIN_RUN // step))
    leaf = kernels(device).leaves(cuts, coordinates)
    order = xp.argsort(leaf, kind="stable").astype("int32")
    return order, xp.searchsorted(cuts.breaks, leaf[order], side="right").astype("int32")

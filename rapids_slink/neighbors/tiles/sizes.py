"""The sizes, lists and rows of tiles, for both devices, and which module has a device's kernels."""

from functools import partial
from math import frexp
from typing import Any, NamedTuple

from rapids_slink.neighbors.slices import golden_stride
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)
#: The sources of the folder's kernels.
ORDER, TILES, ENCODE = (f"neighbors/tiles/{name}.cu" for name in ("order", "tiles", "encode"))
#: Slots of a tile of points, and of a block of rows.
TILE, BLOCK = constant(TILES, "TILE"), constant(TILES, "BLOCK")
#: Slots of a cell at least. Of many points cells are larger: there are at most `MOST_CELLS`, about, since each has a
#: term for each point.
CELL, MOST_CELLS = 1024, 512
#: Binary digits of a unit at most, so that it is a finite number.
MAX_EXPONENT = constant(ENCODE, "MAX_EXPONENT")


class Lists(NamedTuple):
    """A list of tiles of points for each block of rows."""

    begins: Array  # (blocks,) int64: where a block's begin among the tiles, and where they end
    ends: Array
    tiles: Array  # int32; a GPU's are one at least
    longest: int  # the most tiles of a list, or more
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


def cell_size(n: int) -> int:
    """Slots of a cell of n points, a power of two."""
    return max(CELL, 1 << (-(-n // MOST_CELLS) - 1).bit_length())


def sample_stride(n: int, size: int) -> int:
    """By which a sample of n rows goes on, modulo n: evenly, but at no distance that could be that of a pattern."""
    return golden_stride(n) if size < n else 1


def unit_of(largest: float) -> float:
    """The power of two that makes a number about one; 1 for zero."""
    return 2.0 ** max(-MAX_EXPONENT, min(MAX_EXPONENT, -frexp(largest)[1])) if largest > 0 else 1.0

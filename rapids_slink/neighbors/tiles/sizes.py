"""How many slots tiles, blocks and cells have, and what both devices count by."""

from math import frexp

from rapids_slink.neighbors.slices import golden_stride
from rapids_slink.runtime.cuda import constant

#: The sources of the folder's kernels.
ORDER, TILES, ENCODE = (f"neighbors/tiles/{name}.cu" for name in ("order", "tiles", "encode"))
#: Slots of a tile of points, and of a block of rows.
TILE, BLOCK = constant(TILES, "TILE"), constant(TILES, "BLOCK")
#: Slots of a cell at least. Of many points cells are larger: there are at most `MOST_CELLS`, about, since each has a
#: term for each point.
CELL, MOST_CELLS = 1024, 512
#: Binary digits of a unit at most, so that it is a finite number.
MAX_EXPONENT = constant(ENCODE, "MAX_EXPONENT")


def cell_size(n: int) -> int:
    """Slots of a cell of n points, a power of two."""
    return max(CELL, 1 << (-(-n // MOST_CELLS) - 1).bit_length())


def sample_stride(n: int, size: int) -> int:
    """By which a sample of n rows goes on, modulo n: evenly, but at no distance that could be that of a pattern."""
    return golden_stride(n) if size < n else 1


def unit_of(largest: float) -> float:
    """The power of two that makes a number about one; 1 for zero."""
    return 2.0 ** max(-MAX_EXPONENT, min(MAX_EXPONENT, -frexp(largest)[1])) if largest > 0 else 1.0

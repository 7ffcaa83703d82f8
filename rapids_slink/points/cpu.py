"""The kernels of the points' values on a CPU."""

import numpy as np

from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import for_each_chunk

TILE = 2**8  # rows and columns that are compared with their transpose at a time


def squares_are_finite(*parts: np.ndarray) -> list[bool]:
    """Whether the sum of squares of each array is at most an eighth of the largest number of the sum's type.

    It does not use BLAS, whose threads spin for a tenth of a second after a call, on cores that the search needs.
    """
    flat = [values.ravel() for values in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        return [bool(np.einsum("i,i->", values, values) <= np.finfo(values.dtype).max / 8) for values in flat]


def is_symmetric(matrix: np.ndarray) -> bool:
    """Whether a square matrix is finite and symmetric."""
    tiles = [slice(a, a + TILE) for a in range(0, len(matrix), TILE)]

    def check(i: int) -> bool:
        for columns in tiles[i:]:
            upper = matrix[tiles[i], columns]
            if not ((upper == matrix[columns, tiles[i]].T).all() and np.isfinite(upper).all()):
                return False
        return True

    return all(for_each_chunk(CPU, check, range(len(tiles))))

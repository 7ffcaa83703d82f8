"""The kernel of the points' values on a CPU."""

from __future__ import annotations

import numpy as np


def squares_are_finite(*parts: np.ndarray) -> list[bool]:
    """Whether the sum of squares of each array is at most an eighth of the largest number of the sum's type.

    It does not use BLAS, whose threads spin for a tenth of a second after a call, on cores that the search needs.
    """
    flat = [values.ravel() for values in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        return [bool(np.einsum("i,i->", values, values) <= np.finfo(values.dtype).max / 8) for values in flat]

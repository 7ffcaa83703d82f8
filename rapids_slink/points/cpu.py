"""What a CPU does with all values of the points."""

from __future__ import annotations

import numpy as np


def squares_are_finite(*parts: np.ndarray) -> list[bool]:
    """Of each array, whether the sum of its squares is at most an eighth of the largest number of the sum's type.

    Not by BLAS, whose threads spin for a tenth of a second after a call, on cores that the search needs.
    """
    flat = [values.ravel() for values in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        return [bool(np.einsum("i,i->", values, values) <= np.finfo(values.dtype).max / 8) for values in flat]

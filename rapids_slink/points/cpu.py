"""What a CPU does with all values of the points."""

from __future__ import annotations

import numpy as np


def squares_are_finite(values: np.ndarray) -> bool:
    """Whether the sum of all squares is at most an eighth of the largest number of the type that it is summed in."""
    flat = values.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.dot(flat, flat) <= np.finfo(values.dtype).max / 8)

"""Rows of which only some entries are stored, one row after the other: sparse matrices, and what is read of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rapids_slink.items.kind import without_features
from rapids_slink.metrics import Metric
from rapids_slink.points import is_sparse
from rapids_slink.points.check import InputTypeError, check_shape
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Array, Device, all_true, on_current_gpu

#: Raises if values, (m,), of rows with these starts are not valid for the argument of this name.
Check = Callable[[Array, Array, str], None]


@dataclass(frozen=True)
class StoredRows:
    """n rows on a device: what sets and sparse rows have alike of `Items`."""

    metric: Metric
    device: Device
    starts: Array  # (n + 1,) int64

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """Refuse."""
        raise ValueError(f"prediction_data=True takes the rows' features, and {without_features(metric)}")

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    def classes(self) -> Array | None:
        """All rows have distances."""
        return None


@njit(nogil=True, cache=True)
def mixed(h: Any) -> Any:
    """A word of 64 bits of which every bit depends on all of a uint64: `mixed` of mixing.cuh."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def entries_of(starts: Array, rows: Array, xp: Any) -> tuple[Array, Array]:
    """Where some rows start if they are stored one after the other, and where their entries are now."""
    sizes = starts[rows + 1] - starts[rows]
    begins = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(sizes)))
    at = xp.arange(int(begins[-1]), dtype="int64")
    row = xp.searchsorted(begins, at, side="right") - 1
    return begins, at - begins[row] + starts[rows][row]


def stored_entries(inputs: dict[str, Any], device: Device, check: Check) -> tuple[Array, Array, Array, int]:
    """The entries of sparse matrices of SciPy or CuPy that are not zero, one matrix after the other.

    The rows' starts, (n + 1,) int64, the columns and the values, (m,) each, in the order in which they are stored, and
    the number of columns. `check` sees the values before the zeros are gone.
    """
    parts, widths = [], []
    for name, X in inputs.items():
        if not is_sparse(X):
            raise InputTypeError(f"{name} must be a sparse matrix as the other rows are, got {type(X).__name__}")
        if X.dtype.kind not in "biuf":
            what = "Complex data not supported" if X.dtype.kind == "c" else "X must hold numbers"
            raise InputTypeError(f"{what}: {name} has dtype {X.dtype}")
        if len(X.shape) != 2:
            raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead: {name}")
        rows = on_current_gpu(X).tocsr()
        check_shape(rows.shape, name)
        starts, columns = device.asarray(rows.indptr, "int64"), device.asarray(rows.indices)
        values = device.asarray(rows.data)
        check(values, starts, name)
        is_stored = values != 0
        if not all_true(is_stored):
            before = device.xp.concatenate((device.xp.zeros(1, "int64"), device.xp.cumsum(is_stored)))
            starts, columns, values = before[starts], columns[is_stored], values[is_stored]
        parts.append((starts, columns, values))
        widths.append(int(rows.shape[1]))
    if len(set(widths)) > 1:
        raise ValueError(f"X and Y must have the same number of features, got {' and '.join(map(str, widths))}")
    if len(parts) == 1:
        return *parts[0], widths[0]
    xp = device.xp
    sizes = xp.concatenate([starts[1:] - starts[:-1] for starts, *_ in parts])
    columns, values = (xp.concatenate([part[i] for part in parts]) for i in (1, 2))
    return xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(sizes))), columns, values, widths[0]

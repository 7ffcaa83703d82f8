"""Rows that have no coordinates, such as strings, sets and sparse rows: the functions that each kind of items has.

Of distances that no feature gives a bound of, most are ruled out by something that has one:

- keys: two items within t share a key. Those that share one are found by a sort.
- a projection: dense rows of a metric that the package searches exactly. Two items within t have projections within a
  bound, so the pairs of these are candidates.

The definition decides about every candidate, in float64 and with the same bits on either device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from rapids_slink.metrics import Formula, Metric
from rapids_slink.points import is_sparse
from rapids_slink.points.check import InputTypeError, check_shape
from rapids_slink.runtime.device import Array, Device, all_true, half, on_current_gpu

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)
#: Raises if values, (m,), of rows with these starts are not valid for the argument of this name.
Check = Callable[[Array, Array, str], None]


def without_features(metric: Metric) -> str:
    """Why items have no rows of features, for errors."""
    if metric.formula is Formula.ITEMS:
        return f"metric={metric.name!r} has none"
    return "sets and sparse rows are none: pass X.toarray()"


class Projection(NamedTuple):
    """Dense rows for items, whose pairs within the bound hold all pairs of items within a distance but for some."""

    values: Array  # (n, d), as `points.as_points` returns them
    metric: Metric
    surrogate_bound: float  # of the metric's surrogate distances
    large: Array = None  # (m,) integers, optional: items whose pairs with each other may be farther than the bound


class Items(Protocol):
    """Items on a device. `read` makes those of several inputs, one after the other."""

    @property
    def device(self) -> Device:
        """Where they are."""
        ...

    @property
    def n_features(self) -> int:
        """`n_features_in_` of a model of them."""
        ...

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """The rows of all inputs, by the names of the arguments. Raises InputTypeError or ValueError for others."""
        ...

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """The rows as an array of the host that `read` takes, for a model that predicts. Raises if there is none."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> Self:
        """Some of the items, by an (m,) array of integers."""
        ...

    def classes(self) -> Array | None:
        """(n,) integers from 0 to some bound: items of two classes are infinitely far apart. None for one class."""
        ...

    def hashes(self, seed: int) -> Array:
        """(n,) uint64, the same for equal items."""
        ...

    def equal(self, src: Array, dst: Array) -> Array:
        """(m,) bool: whether the items of each pair, two (m,) int32 arrays, are equal: at the same distances to all."""
        ...

    def distances(self, src: Array, dst: Array, cutoff: float) -> Array:
        """(m,) float64: the distances of these pairs by definition. Above the cutoff any larger number will do."""
        ...

    def steps(self) -> float:
        """Return how many steps `matrix` takes, of about two nanoseconds on a core."""
        ...

    def matrix(self) -> Array:
        """Return the distances of all pairs, (n, n) float64 on a CPU. What is on the diagonal has no meaning."""
        ...

    def matrix_bytes(self) -> float:
        """Return the bytes of a distance of `matrix` on a GPU, infinite if it makes none."""
        ...

    def keys_an_item(self, limit: float) -> float:
        """How many keys an item has on average, for pairs within a limit; infinite if there are none for it."""
        ...

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """The items of a range, (k,) int32, and their keys, (k,) uint64: different items within the limit share one."""
        ...

    def projection(self, limit: float) -> Projection:
        """The projection for pairs within a limit."""
        ...


# -------------------------------------------------------------------------------- rows of which some entries are stored


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

    def matrix_bytes(self) -> float:
        """There is no matrix on a GPU."""
        return np.inf


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

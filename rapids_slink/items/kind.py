"""Rows that have no coordinates, such as strings, sets and sparse rows: the functions that each kind of items has.

No feature bounds the distance of such rows. So most pairs are ruled out by something else:

- keys: two items within a distance t share a key. A sort finds the items that share one.
- a projection: dense rows of a metric that the package searches exactly. Two items within t have projections within a
  bound, so the pairs of near projections are candidates.

The definition decides about every candidate, in float64 and with the same bits on either device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from rapids_slink.metrics import Formula, Metric
from rapids_slink.ordering import stable_order
from rapids_slink.points import is_sparse
from rapids_slink.points.check import InputTypeError, check_shape
from rapids_slink.runtime.device import CPU, Array, Device, all_true, half, on_current_gpu

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)
#: A function that raises if the values, (m,), of rows with these starts are not valid for the argument of this name.
Check = Callable[[Array, Array, str], None]


def without_features(metric: Metric) -> str:
    """Return the words of an error that say why these items have no rows of features."""
    if metric.formula is Formula.ITEMS:
        return f"metric={metric.name!r} has none"
    return "sets and sparse rows are none: pass X.toarray()"


class Projection(NamedTuple):
    """Dense rows of items. All pairs of items within a distance, except two of `large`, have rows within the bound."""

    values: Array  # (n, d), as `points.as_points` returns them
    metric: Metric
    surrogate_bound: float  # of the metric's surrogate distances
    large: Array = None  # (m,) integers, optional: items whose pairs with each other may be farther than the bound


class Items(Protocol):
    """Items on a device. `read` makes those of several inputs, one after the other."""

    device: Device
    n_features: int  # the `n_features_in_` of a model that is fitted to the items

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """Return the items of all inputs, one after the other; raise InputTypeError or ValueError for invalid ones.

        `inputs` has the value of each argument by its name.
        """
        ...

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """Return the rows as a host array that `read` takes, for a model that predicts, or raise ValueError."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> Self:
        """Return the items of these rows, an (m,) array of integers, in their order."""
        ...

    def classes(self) -> Array | None:
        """Return the class of each item, (n,) integers from 0 on; None if all items are in one class.

        Items of two classes are infinitely far apart.
        """
        return None

    def hashes(self, seed: int) -> Array:
        """Return a hash of each item, (n,) uint64, the same for equal items."""
        ...

    def equal(self, src: Array, dst: Array) -> Array:
        """Return whether the two items of each pair are equal, (m,) bool; `src` and `dst` are (m,) int32.

        Equal items are at the same distances to all others.
        """
        ...

    def distances(self, src: Array, dst: Array, cutoff: float) -> Array:
        """Return the distances of these pairs by definition, (m,) float64.

        Any number above the cutoff may stand for a distance above it.
        """
        ...

    @property
    def distance_type(self) -> np.dtype:
        """Return the type of the distances of `distances_of_rows`: float64 or, of strings, small integers."""
        return np.dtype("float64")

    @property
    def errors(self) -> Array | None:
        """Return the most by which the square of an item's distance is above that of its lower bound, (n,) float64.

        None if `distances_of_rows` returns no bounds but distances.
        """
        return None

    def distances_of_rows(self, rows: Array, points: slice) -> Array:
        """Return the distances of some items, (m,) int32, from a range of items, (m, p), or lower bounds on them.

        All are of one class.
        """
        ...

    def is_stored(self, limit: float) -> bool:
        """Return whether all distances are computed for the pairs within a limit, since no other search takes less."""
        return limit == inf

    def keys_an_item(self, limit: float) -> float:
        """Return the mean number of keys of an item, for pairs within a limit; infinite if no keys serve that limit."""
        return inf

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """Return the items of a range, (k,) int32, each once for each of its keys, and the keys, (k,) uint64.

        Two different items within the limit of each other share a key.
        """
        ...

    def projection(self, limit: float) -> Projection:
        """Return dense rows whose near pairs hold the pairs of items within a limit."""
        ...


# -------------------------------------------------------------------------------- rows of which some entries are stored


class Holders(NamedTuple):
    """The entries of some rows, column by column."""

    starts: Array  # (c + 1,) int64: where the entries of each number of a column begin; see `column_numbers`
    rows: Array  # (m,) int32, the row of each entry, ascending in each column
    values: Array  # (m,) float32 or float64; None for sets


@dataclass(frozen=True)
class StoredRows(Items):
    """The shared implementation of `Items` for sets and sparse rows: n rows on a device."""

    metric: Metric
    device: Device
    starts: Array  # (n + 1,) int64
    columns: Array  # int32 or int64; those of row i ascend from starts[i] to starts[i + 1], each once
    values: Array  # float32 or float64, none of them zero; None for sets
    norms: Array  # (n,) float64, as the cosine of dense rows has them; None for sets
    n_features: int

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """Raise ValueError: a model that predicts takes rows of features."""
        raise ValueError(f"prediction_data=True takes the rows' features, and {without_features(metric)}")

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    def take(self, rows: Array) -> Self:
        """Return these rows, in their order."""
        xp, rows = self.device.xp, self.device.asarray(rows, "int64")
        first = self.starts[rows]
        begins = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(self.starts[rows + 1] - first)))
        row = row_of_entries(begins, self.device)
        at = xp.arange(row.size) + (first - begins[:-1])[row]
        some = replace(self, starts=begins, columns=self.columns[at])
        return some if self.values is None else replace(some, values=self.values[at], norms=self.norms[rows])

    def hashes(self, seed: int) -> Array:
        """Return a hash of each row, (n,) uint64, the same for equal rows."""
        return kernels(self.device).hash_rows(self, seed)

    def equal(self, src: Array, dst: Array) -> Array:
        """Return whether both rows of each pair have the same entries, (m,) bool."""
        return kernels(self.device).compare_rows("equal_rows", self, src, dst)

    @cached_property
    def column_numbers(self) -> Array:
        """Return the number of each entry's column, (m,) integers, in the order of the columns.

        Columns that are not empty are numbered from 0; if there are few others, all columns are.
        """
        if self.fit(4 * self.columns.size + 1024):
            return self.columns
        return self.device.xp.unique(self.columns, return_inverse=True)[1].reshape(-1)

    @cached_property
    def holders(self) -> Holders:
        """Return the rows that hold each column."""
        xp, number = self.device.xp, self.column_numbers
        row, entries = row_of_entries(self.starts, self.device).astype("int32"), stable_order(number, xp)
        begins = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(xp.bincount(number))))
        return Holders(begins, row[entries], None if self.values is None else self.values[entries])

    def fit(self, width: int) -> bool:
        """Return whether all columns are numbers from 0 to below `width`."""
        return not self.columns.size or (int(self.columns.min()) >= 0 and int(self.columns.max()) < width)

    def sample(self, size: int) -> tuple[Self, np.ndarray, np.ndarray]:
        """Return up to `size` rows, evenly spread, on a CPU, and both ends of all their pairs, (p,) int32."""
        some = self.take(np.linspace(0, len(self) - 1, min(len(self), size)).astype(np.int64))
        arrays = {name: getattr(some, name) for name in ("starts", "columns", "values", "norms")}
        arrays = {name: CPU.asarray(array) for name, array in arrays.items() if array is not None}
        first, second = (end.astype(np.int32) for end in np.triu_indices(len(some), 1))
        return replace(some, device=CPU, **arrays), first, second


def cheapest_size(sizes: Sequence[int], least: float, measure: Callable[[int], tuple[float, float, bool]]) -> int:
    """Return the number of bits or axes with which a search takes the least time.

    `measure` returns the time of a pair, that of those that pass, and whether more bits or axes change nothing. `least`
    is the time of the pairs that pass with every size.
    """
    best, time = sizes[0], np.inf
    for size in sizes:
        pair_time, passing, is_last = measure(size)
        if pair_time + passing < time:
            best, time = size, pair_time + passing
        if pair_time + least >= time or is_last:  # more cannot take less
            break
    return best


def row_of_entries(starts: Array, device: Device) -> Array:
    """Return the row of each entry, (m,) int64."""
    if device.is_gpu:
        return device.xp.searchsorted(starts, device.xp.arange(int(starts[-1])), side="right") - 1
    return np.repeat(np.arange(starts.size - 1), np.diff(starts))


def ascending(starts: Array, columns: Array, device: Device) -> tuple[Array, Array]:
    """Return the starts and the columns, with those of each row in ascending order, each once.

    If they are so already, the arguments themselves are returned.
    """
    xp, row = device.xp, row_of_entries(starts, device)
    is_first = xp.ones(row.size, bool)
    is_first[1:] = row[1:] != row[:-1]
    if all_true(is_first[1:] | (columns[1:] > columns[:-1])):
        return starts, columns
    columns = kernels(device).sort_rows(starts, columns, row)
    is_first[1:] |= columns[1:] != columns[:-1]
    return xp.searchsorted(row[is_first], xp.arange(starts.size), side="left"), columns[is_first]


def stored_entries(inputs: dict[str, Any], device: Device, check: Check) -> tuple[Array, Array, Array, int]:
    """Return the nonzero entries of sparse matrices of SciPy or CuPy, one matrix after the other.

    They are the rows' starts, (n + 1,) int64, the columns and the values, (m,) each, in the order in which they are
    stored, and the number of columns. `check` sees the values before the zeros are dropped. Raises InputTypeError for
    what is no sparse matrix of numbers, and ValueError if the numbers of columns differ.
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

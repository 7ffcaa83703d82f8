"""Rows that have no coordinates, or only few of them stored: strings, sets and sparse rows; what each kind has.

    X ──kind_of──▶ Items ──ItemSearch──▶ pairs within a distance ──▶ the tree, as that of any points
                   strings.py, stored.py        search.py

No feature bounds the distance of such rows. So most pairs are ruled out by something else:

- keys: two items within a distance t share a key. A sort finds the items that share one.
- a projection: dense rows of a metric that the package searches exactly. Two items within t have projections within a
  bound, so the pairs of near projections are candidates.

The definition decides about every candidate, in float64 and with the same bits on either device.
"""

from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from rapids_slink.metrics import Formula, Metric
from rapids_slink.runtime.device import Array, Device, half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)


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
    starts: Array  # (n + 1,) int64: where the characters or the entries of each item begin, and their end
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

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    @property
    def sizes(self) -> Array:
        """Return the number of characters or entries of each item, (n,) int64."""
        return self.starts[1:] - self.starts[:-1]

    def take(self, rows: Array) -> Self:
        """Return the items of these rows, an (m,) array of integers, in their order."""
        ...

    def classes(self) -> Array | None:
        """Return the class of each item, (n,) integers from 0 on; None if all items are in one class.

        Items of two classes are infinitely far apart.
        """
        return None

    def hashes(self) -> Array:
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
        """Return the type of the distances of `distances_of_rows`: float64 or, for strings, small integers."""
        return np.dtype("float64")

    @property
    def errors(self) -> Array | None:
        """Return the most by which squared distances of an item exceed those of their lower bounds, (n,) float64.

        It is None if `distances_of_rows` returns distances and no bounds.
        """
        return None

    def distances_of_rows(self, rows: Array, points: slice) -> Array:
        """Return the distances of some items, (m,) int32, from a range of items, (m, p), or lower bounds on them.

        All items are of one class.
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
        """Return dense rows whose near pairs include all pairs of items within a limit."""
        ...


def row_of_entries(starts: Array, device: Device) -> Array:
    """Return the row of each entry, (m,) int64."""
    if device.is_gpu:
        return device.xp.searchsorted(starts, device.xp.arange(int(starts[-1])), side="right") - 1
    return np.repeat(np.arange(starts.size - 1), np.diff(starts))


def entries_of(starts: Array, rows: Array, device: Device) -> tuple[Array, Array]:
    """Return the starts of some rows, one after the other, and the positions of their entries, int64."""
    xp, first = device.xp, starts[rows]
    begins = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(starts[rows + 1] - first)))
    row = row_of_entries(begins, device)
    return begins, xp.arange(row.size) + (first - begins[:-1])[row]

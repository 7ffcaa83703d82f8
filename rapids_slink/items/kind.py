"""Rows that have no coordinates, such as strings, sets and sparse rows: the functions that each kind of items has.

Of distances that no feature gives a bound of, most are ruled out by something that has one:

- keys: two items within t share a key. Those that share one are found by a sort.
- a projection: dense rows of a metric that the package searches exactly. Two items within t have projections within a
  bound, so the pairs of these are candidates.

The definition decides about every candidate, in float64 and with the same bits on either device.
"""

from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from rapids_slink.metrics import Formula, Metric
from rapids_slink.runtime.device import Array, Device


def without_features(metric: Metric) -> str:
    """Why items have no rows of features, for errors."""
    if metric.formula is Formula.ITEMS:
        return f"metric={metric.name!r} has none"
    return "sets and sparse rows are none: pass X.toarray()"


class Projection(NamedTuple):
    """Dense rows for items, whose pairs within the bound hold all pairs of items within a distance."""

    values: Array  # (n, d), as `points.as_points` returns them
    metric: Metric
    surrogate_bound: float  # of the metric's surrogate distances


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
    def serves(cls, metric: Metric, X: Any) -> bool:
        """Whether rows of such a type are items of this kind for the metric."""
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

    def keys_an_item(self, limit: float) -> float:
        """How many keys an item has on average, for pairs within a limit; infinite if there are none for it."""
        ...

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """The items of a range, (k,) int32, and their keys, (k,) uint64: different items within the limit share one."""
        ...

    def projection(self, limit: float) -> Projection:
        """The projection for pairs within a limit."""
        ...

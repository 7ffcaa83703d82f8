"""The input and the output of a search for pairs within a bound; the package's docstring has the plan."""

from dataclasses import dataclass
from math import inf
from typing import Protocol, Self

import numpy as np

from rapids_slink.metrics import Metric, distances, surrogate_bound
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import Progress


@dataclass(frozen=True)
class Limit:
    """The surrogate distances of the pairs within a distance."""

    surrogate: float  # they are at most this
    decides: bool  # and no pair beyond the distance is

    @classmethod
    def of(cls, metric: Metric, distance: float, n_features: int) -> Self:
        """The limit of rows whose input has this number of features."""
        bound = surrogate_bound(metric, distance, n_features)
        if metric.changes_order:
            return cls(bound, decides=False)
        if metric.distance == "value":
            return cls(distance, decides=True)
        given = np.empty((0, n_features))

        def is_within(surrogate: float) -> bool:
            with np.errstate(over="ignore", invalid="ignore"):  # far beyond all distances
                weight = distances(metric, np.array([surrogate]), (None, None), (given, given), CPU)
            return bool(weight[0] <= distance)

        if not is_within(0.0):
            return cls(-inf, decides=True)
        # Floats of one sign have the order of their bits. Mostly the limit is just below the bound.
        low, high = (int(np.float64(end).view(np.int64)) for end in (bound * (1 - 1e-8), bound))
        low = low if is_within(bound * (1 - 1e-8)) else 0
        while low < high:
            middle = (low + high + 1) // 2
            if is_within(float(np.int64(middle).view(np.float64))):
                low = middle
            else:
                high = middle - 1
        return cls(float(np.int64(low).view(np.float64)), decides=True)


@dataclass(frozen=True)
class Found:
    """The pairs of a range of rows, sorted by (src, dst)."""

    count: int
    #: None if there are more than there is room for: then they are counted alone
    src: Array = None  # (count,) int32
    dst: Array = None  # (count,) int32
    weight: Array = None  # (count,) float64, surrogate distances


class PairSearch(Protocol):
    """A search for the pairs of some points, or of queries and points, within a bound."""

    progress: bool

    def find(self, rows: slice, room: float) -> Found:
        """The pairs of these rows, if there are at most `room`."""
        ...

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """The numbers of pairs of these rows within surrogate distances, which ascend up to the bound; int64."""
        ...


def bar(search: PairSearch, rows: slice) -> Progress | None:
    """The search's progress bar over some rows, if it shows one."""
    return Progress("Searching pairs", rows.stop - rows.start) if search.progress else None

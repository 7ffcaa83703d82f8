"""Surrogate distances in float64, and each row's least k of them.

    candidates ──rerank──▶ TopLists ◀──scan── every point

`formulas.py` and `formulas.cuh` hold the formulas, operation by operation the same. Each device's module has the
kernels under the same names.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.runtime.device import Array, Device, half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)


@dataclass(frozen=True)
class ExactPoints:
    """The points and queries of which surrogate distances are computed."""

    #: `queries` and `points`: (m, d) and (n, d), as the metric's formula reads them, of one type; maybe the same array
    queries: Array
    points: Array
    metric: Metric = EUCLIDEAN


@dataclass(frozen=True)
class Candidates:
    """Survivors of a filter."""

    ids: Array  # (rows, capacity) int32
    count: Array  # (rows,) int32, how many there were, including those beyond the capacity
    order: Array = None  # (n,) int32, optional; if given, `ids` are positions in this order of the points

    @property
    def capacity(self) -> int:
        """Return the most candidates of a row that are stored."""
        return int(self.ids.shape[1])


@dataclass(frozen=True)
class TopLists:
    """The least `k` found so far, sorted in the total order."""

    ids: Array  # (rows, k) int32, -1 where there is none
    weights: Array  # (rows, k) float64, infinite there
    overflowed: Array  # (rows,) bool, whether a row had more candidates than the capacity


#: The groups of some rows, and of all points by id: int32 arrays.
Groups: TypeAlias = tuple[Array, Array]


def same_candidates(ids: Array, rows: int, device: Device) -> Candidates:
    """Return `ids` as the candidates of each of a number of rows."""
    return Candidates(device.xp.tile(ids, (rows, 1)), device.xp.full(rows, ids.size, "int32"))


def candidate_capacity(k: int) -> int:
    """Return the capacity for a row's candidates of one band, about k of which are kept."""
    return forced().candidates or 64 + 12 * k


#: The sample of the columns that bounds a long list is one column in this number.
SAMPLED = 32


def lists_by_sorting(
    distance: Array, rows: Array, groups: Groups, upper: Array, k: int, core: Array, xp: Any
) -> TopLists:
    """Return the k least of each row's distances to all points of other groups.

    The array `distance` may be overwritten.
    """
    if core is not None:
        distance = xp.maximum(distance, xp.maximum(core[rows, None], core))
    distance[(distance > upper[:, None]) | (groups[0][:, None] == groups[1])] = xp.inf
    few = _nearest_few(distance, k, xp)
    ids, distance = (None, distance) if few is None else few
    order = xp.argsort(distance, axis=1, kind="stable")[:, :k]  # equal distances by id
    weights = xp.take_along_axis(distance, order, axis=1)
    ids = order if ids is None else xp.take_along_axis(ids, order, axis=1)
    ids = xp.where(xp.isinf(weights), -1, ids).astype("int32")
    return TopLists(ids, weights, xp.zeros(len(weights), bool))


def _nearest_few(distance: Array, k: int, xp: Any) -> tuple[Array, Array] | None:
    """Return ids, ascending, and distances of some of each row's columns, which include the k nearest.

    They are the columns within a bound that a sample of the columns suggests. Return None if they would be too many, or
    fewer than k in some row.
    """
    m, n = distance.shape
    in_sample = k / SAMPLED
    last = int(in_sample + 4 * in_sample**0.5) + 2
    if last >= n // SAMPLED:
        return None
    near = distance <= xp.sort(distance[:, ::SAMPLED], axis=1)[:, last, None]
    count = near.sum(axis=1)
    shortest, longest = int(count.min()), int(count.max())
    if shortest < k or longest > n // 2:
        return None
    row, column = xp.nonzero(near)
    place = xp.arange(row.size) - (xp.cumsum(count) - count)[row]
    ids, distances = xp.zeros((m, longest), "int32"), xp.full((m, longest), xp.inf)
    ids[row, place], distances[row, place] = column, distance[row, column]
    return ids, distances

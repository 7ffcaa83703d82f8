"""Surrogate distances in float64, and the k least of each row.

    candidates ──rerank──▶ TopLists ◀──scan── every point

`formulas.py` and `formulas.cuh` hold the formulas, operation by operation the same. Each device's module has the
kernels under the same names.
"""

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

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
    """The least `k` entries found so far for each row, sorted in the total order."""

    ids: Array  # (rows, k) int32, -1 in an empty entry
    weights: Array  # (rows, k) float64, infinite in an empty entry
    overflowed: Array  # (rows,) bool, whether a row had more candidates than the capacity


#: The exclusion ids of some rows, and of all points by id: int32 arrays.
Groups: TypeAlias = tuple[Array, Array]


def same_candidates(ids: Array, rows: int, device: Device) -> Candidates:
    """Return `ids` as the candidates of each of a number of rows."""
    return Candidates(device.xp.tile(ids, (rows, 1)), device.xp.full(rows, ids.size, "int32"))


def scan_bytes(n: int, k: int, device: Device) -> int:
    """Return the bytes that `scan` takes for a row, without its list; for a long list all n distances are sorted."""
    return 40 * n if k > kernels(device).MAX_LIST else 0


def candidate_capacity(k: int) -> int:
    """Return the capacity for a row's candidates of one band, about k of which are kept."""
    return forced().candidates or 64 + 12 * k

"""The product filter's kernels on the CPU: BLAS for the products, Numba for the rest."""

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.exact.cpu import NO_CORE
from rapids_slink.neighbors.filter.bounds import UpperBound
from rapids_slink.neighbors.filter.quantize import MAX_EXACT_INTEGER, QuantizedPoints, Scaling, ValueRange
from rapids_slink.neighbors.filter.quantize import quantize as quantize_by_array
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.compiling import njit

FILTER_DTYPE = "float32"
FILTER_NAME = "float32 tiles"
ITEM_BYTES = 4  # of a feature
TILE_ROWS = 512  # a tile of products stays in the second-level cache
TILE_POINTS = 1024
FAR_ROW = 4  # times the median distance from the mean


class Workspace(threading.local):
    """Each thread's memory for a filter's tiles of products: fresh memory would cost more than the product."""

    def __init__(self) -> None:
        self._memory: Any = None

    def product(self, rows: QuantizedPoints, points: QuantizedPoints) -> np.ndarray:
        """The tile of products of two sets, (rows, points), valid until the thread's next call."""
        size = rows.y.shape[0] * points.y.shape[0]
        if self._memory is None or self._memory.size < size:
            self._memory = np.empty(size, rows.y.dtype)
        return np.matmul(rows.y, points.y.T, out=self._memory[:size].reshape(rows.y.shape[0], points.y.shape[0]))


def quantize(values: Any, scaling: Scaling, dtype: str, order: Any = None) -> QuantizedPoints:
    """`values`, in the order of the rows `order` (default: as they are), rounded to `dtype`."""
    return quantize_by_array(values, scaling, dtype, np, order)


def centre_of_rows(values: Any, step: int) -> np.ndarray:
    """The mean of every `step`-th row, without outliers.

    0 where it is not finite: the filter is exact with any finite centre.
    """
    sample = values[::step].astype("float64")
    with np.errstate(over="ignore", invalid="ignore"):
        sq_distance = ((sample - sample.mean(axis=0)) ** 2).sum(axis=1)
        near = ~(sq_distance > FAR_ROW**2 * np.median(sq_distance))
        mean = sample[near].mean(axis=0)
    return np.where(np.isfinite(mean), mean, 0.0)


def value_ranges(point_sets: Iterable[Any], centre: Any) -> list[ValueRange]:
    """The range of each array of points."""
    return [_value_range(values, centre) for values in point_sets]


def _value_range(values: Any, centre: Any) -> ValueRange:
    deviation, largest, integral, like_bytes = 0.0, 0.0, True, True
    for rows in row_blocks(*values.shape):
        part = values[rows]
        highest, lowest = float(part.max()), float(part.min())
        deviation, largest = max(deviation, float(np.abs(part - centre).max())), max(largest, highest, -lowest)
        integral = integral and largest <= MAX_EXACT_INTEGER and bool((part == np.rint(part)).all())
        like_bytes = integral and like_bytes and lowest >= 0 and highest <= 255
    return ValueRange(deviation, largest, small_integers=integral, byte_values=like_bytes)


def to_uint8(values: Any, scaling: Scaling) -> Any:
    """The values themselves: only a GPU re-ranks bytes faster."""
    return values


def append_candidates(
    product: np.ndarray,
    rows: QuantizedPoints,
    points: QuantizedPoints,
    radius: Any,
    groups: tuple[Any, Any],
    ids: Any,
    into: Candidates,
) -> None:
    """Append to each row's candidates the points that pass the test of `bounds` and are of another group.

    Parameters
    ----------
    product : (m, n) array
        Of the two sets, as `Workspace` has it.
    rows, points : QuantizedPoints
    radius : (m,) array
        `bounds.filter_radius` of the rows.
    groups : (m,) and (N,) int32 arrays
        The rows', and by id.
    ids : (n,) int32 array
        Of the points.
    into : Candidates
    """
    norms = rows.half_norm, radius, points.half_norm, points.error
    _append_candidates(product, norms, *groups, ids, into.ids, into.count)


def seed_bounds(
    product: np.ndarray,
    queries: QuantizedPoints,
    points: QuantizedPoints,
    task: SearchTask,
    rows: Any,
    ids: Any,
    upper_bound: UpperBound,
    bound: Any,
) -> None:
    """Tighten bounds to what the k-th nearest point of each of a task's rows is at most.

    The bound is the k-th of the nearest points of other groups in each of some buckets.

    Parameters
    ----------
    product : (m, n) array
        Of the two sets, as `Workspace` has it.
    queries, points : QuantizedPoints
        The rows, and a sample of the points.
    task : SearchTask
    rows, ids : (m,) and (n,) int32 arrays
        Of the rows and of the sample.
    upper_bound : UpperBound
    bound : (m,) float64 array
    """
    norms = queries.half_norm, queries.error, points.half_norm, points.error
    groups = task.groups(rows), task.point_group
    cores = (ids, NO_CORE) if task.core is None else (rows, task.core)
    nearest = np.empty((len(product), max(32, 2 * task.k)))
    _bound_buckets(product, norms, groups, ids, upper_bound.terms, cores, nearest)
    np.minimum(bound, np.partition(nearest, task.k - 1, axis=1)[:, task.k - 1], out=bound)


@njit(cache=True)
def _passes(product, half_norm, radius, point_half_norm, point_error, passed):
    """The filter's test of one row, in a function of its own so that it is compiled to vector instructions."""
    for j in range(product.size):
        q = radius + point_error[j]
        passed[j] = product[j] >= half_norm + point_half_norm[j] - q * q


@njit(cache=True, inline="always")
def _append_passed(passed, row_group, point_group, ids, out, count):
    """Append the points that passed for a row and are of another group; returns how many it has now, kept or not.

    The length of `passed` is a multiple of eight.
    """
    words = passed.view(np.uint64)  # few points pass, so eight are tested together
    for word in range(words.size):
        if words[word] == 0:
            continue
        for j in range(8 * word, 8 * word + 8):
            if passed[j] and point_group[ids[j]] != row_group:
                if count < out.size:
                    out[count] = ids[j]
                count += 1
    return count


@njit(nogil=True, cache=True)
def _append_candidates(product, norms, row_group, point_group, ids, out, count):
    half_norm, radius, point_half_norm, point_error = norms
    n_rows, n_points = product.shape
    passed = np.zeros(-(-n_points // 8) * 8, np.uint8)
    for i in range(n_rows):
        _passes(product[i], half_norm[i], radius[i], point_half_norm, point_error, passed)
        count[i] = _append_passed(passed, row_group[i], point_group, ids, out[i], count[i])


@njit(nogil=True, cache=True)
def _bound_buckets(product, norms, groups, ids, upper_bound, cores, nearest):
    """What the nearest point of each row in each bucket is at most."""
    half_norm, error, point_half_norm, point_error = norms
    row_group, point_group = groups
    rows, core = cores
    norm_slack, absolute_slack, inverse_scale, more, factor, surrogate_error = upper_bound
    n_rows, n_points = product.shape
    buckets = nearest.shape[1]
    least, best = np.empty(buckets, product.dtype), np.empty(buckets, np.int64)
    for i in range(n_rows):
        least[:] = np.inf
        best[:] = -1
        for start in range(0, n_points, buckets):
            for b in range(min(buckets, n_points - start)):
                j = start + b
                half = point_half_norm[j] - product[i, j]
                if half < least[b] and point_group[ids[j]] != row_group[i]:
                    least[b] = half
                    best[b] = j
        for b in range(buckets):
            nearest[i, b] = np.inf
            if best[b] >= 0:
                j = best[b]
                half = np.float64(half_norm[i]) + least[b]
                half_norms = np.float64(half_norm[i]) + point_half_norm[j]
                # What is missing of `half` by the float32 subtraction above, and more.
                square = max(half + abs(half) * 2.0**-22 + norm_slack * half_norms + absolute_slack, 0.0)
                distance = (np.sqrt(square) + point_error[j] + error[i]) * inverse_scale + more
                nearest[i, b] = distance * distance * factor + surrogate_error
                if core.size:
                    nearest[i, b] = max(nearest[i, b], core[rows[i]], core[ids[j]])

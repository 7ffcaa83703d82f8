"""Sums over the members of clusters on a CPU."""

from typing import TYPE_CHECKING

import numpy as np

from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

if TYPE_CHECKING:
    from rapids_slink.catalogue import Members

PART = constant("catalogue/catalogue.cu", "PART")
MIN_CLUSTERS = 64  # that a thread takes


def means(values: np.ndarray, members: "Members", box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each cluster's rows, (clusters, d), of `values`, (n, d); and its mass, (clusters,); float64."""
    clusters = members.start.size - 1
    mean, mass = np.empty((clusters, values.shape[1])), np.empty(clusters)

    def work(part: slice) -> None:
        _write_means(values, *_fields(members), box, part.start, part.stop, mean, mass)

    for_each_chunk(CPU, work, chunks_for_cores(clusters, MIN_CLUSTERS))
    return mean, mass


def deviations(
    values: np.ndarray, members: "Members", box: np.ndarray, mean: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The largest distance of each cluster's rows from its mean, and the root of the mean square of all of them."""
    clusters = members.start.size - 1
    radius, spread = np.empty(clusters), np.empty(clusters)

    def work(part: slice) -> None:
        _write_deviations(values, *_fields(members), box, mean, mass, part.start, part.stop, radius, spread)

    for_each_chunk(CPU, work, chunks_for_cores(clusters, MIN_CLUSTERS))
    return radius, spread


def _fields(members: "Members") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return members.rows, members.start, np.empty(0) if members.weight is None else members.weight


@njit(nogil=True, cache=True, inline="always")
def _nearest(gap, length):
    """The gap between two coordinates, one of which is moved by whole lengths to where it is nearest."""
    return gap - length * np.rint(gap / length) if length < np.inf else gap


@njit(nogil=True, cache=True, inline="always")
def _into_box(x, length):
    """The coordinate from 0 on, below the length."""
    if not length < np.inf:
        return x
    x -= length * np.floor(x / length)
    return x if x < length else 0.0


@njit(nogil=True, cache=True)
def _write_means(values, rows, start, weight, box, begin, end, mean, mass):
    d, sums, total = values.shape[1], np.empty(values.shape[1]), np.empty(values.shape[1])
    for c in range(begin, end):
        first, whole = rows[start[c]], 0.0
        total[:] = 0.0
        for part in range(start[c], start[c + 1], PART):
            sums[:], of_part = 0.0, 0.0
            for i in range(part, min(part + PART, start[c + 1])):
                row = rows[i]
                w = weight[row] if weight.size else 1.0
                of_part += w
                for f in range(d):
                    gap = _nearest(np.float64(values[row, f]) - np.float64(values[first, f]), box[f])
                    sums[f] += w * gap
            whole += of_part
            for f in range(d):
                total[f] += sums[f]
        mass[c] = whole
        for f in range(d):
            mean[c, f] = _into_box(np.float64(values[first, f]) + total[f] / whole, box[f])


@njit(nogil=True, cache=True)
def _write_deviations(values, rows, start, weight, box, mean, mass, begin, end, radius, spread):
    for c in range(begin, end):
        largest, total = 0.0, 0.0
        for part in range(start[c], start[c + 1], PART):
            of_part = 0.0
            for i in range(part, min(part + PART, start[c + 1])):
                row, square = rows[i], 0.0
                for f in range(values.shape[1]):
                    gap = _nearest(np.float64(values[row, f]) - mean[c, f], box[f])
                    square += gap * gap
                largest = max(largest, square)
                of_part += (weight[row] if weight.size else 1.0) * square
            total += of_part
        radius[c], spread[c] = np.sqrt(largest), np.sqrt(total / mass[c])

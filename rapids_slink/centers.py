"""Points in the middle of clusters: means and medoids."""

from typing import Any

import numpy as np

from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.threads import for_each_chunk

#: Pairs whose distances are computed at a time.
BLOCK = 2**20


def centroids(values: Array, labels: np.ndarray, strength: np.ndarray, k: int, device: Device) -> Array:
    """The mean of each label's rows, weighted by their strength, (k, d) float64."""
    xp, means = device.xp, device.xp.empty((k, values.shape[1]))
    for label in range(k):
        rows = np.flatnonzero(labels == label)
        weight = device.asarray(strength[rows])[:, None]
        means[label] = (values[device.asarray(rows)] * weight).sum(axis=0, dtype="float64") / weight.sum()
    return xp.ascontiguousarray(means)


def medoids(values: Array, labels: np.ndarray, strength: np.ndarray, k: int, metric: Metric, device: Device) -> Any:
    """The row of each label with the least sum of distances, weighted by the other rows' strength, (k,) int64."""
    reading, chosen = metric_rows(metric, values, device), np.empty(k, np.int64)
    for label in range(k):
        rows = np.flatnonzero(labels == label)
        total = _distance_sums(values, reading, device.asarray(rows.astype(np.int32)), strength[rows], metric, device)
        chosen[label] = rows[int(total.argmin())]
    return chosen


def _distance_sums(values: Array, reading: Array, rows: Array, strength: Any, metric: Metric, device: Device) -> Array:
    """The weighted sum of each row's distances to all of them."""
    xp, m, weight = device.xp, rows.size, device.asarray(strength)
    total = xp.empty(m)

    def add(block: slice) -> None:
        some = rows[block]
        src, dst = xp.repeat(some, m), xp.tile(rows, some.size)
        surrogate = kernels(device).pair_distances(reading, src, dst, metric)
        length = distances(metric, surrogate, (src, dst), (values, values), device)
        total[block] = (length.reshape(some.size, m) * weight).sum(axis=1)

    for_each_chunk(device, add, row_blocks(m, m, BLOCK))
    return total

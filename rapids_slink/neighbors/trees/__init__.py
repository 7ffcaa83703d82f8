"""Trees of boxes over points: `kdtree.py` on a CPU and `bvh.py` on a GPU. A sample shows which points suit them.

The sample shows whether the points' dimension is high, and how near each other they are. It is evenly spread, but its
rows do not follow each other at a distance that a pattern could have, such as noise in each tenth row.

In D dimensions a ball that is twice as wide holds 2^D times as many points (Karger and Ruhl 2002). A mean over balls
also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show clusters
of high dimension if each has many points in the sample.
"""

from typing import Any

import numpy as np

from rapids_slink.neighbors.task import golden_stride, row_blocks
from rapids_slink.runtime.cuda import WARP, check_arrays, constant, launch, launch_blocks, value_option
from rapids_slink.runtime.device import Array, Device, to_host

SOURCE = "neighbors/trees/dimension.cu"
#: The numbers of balls and of the sample's points, and the threads of a block.
BALLS, POINTS, THREADS = (constant(SOURCE, name) for name in ("BALLS", "POINTS", "THREADS"))
#: `SOME` points' nearest others are found among all points, `AT_ONCE` values at a time. Up to `OF_MEAN` points estimate
#: the mean; where they have many features fewer do, of `OF_MEAN_VALUES` in all, since the host computes it.
SOME, AT_ONCE, OF_MEAN, OF_MEAN_VALUES = 2**6, 2**26, 2**10, 2**18
SHARES = 16  # blocks of threads that share the others of a point


def expansion(values: Array, device: Device, times: float = 2) -> float:
    """Return the share of a sample of points that is within `times` the distance from a row to its nearest.

    It is a mean over `BALLS` rows, by Euclidean distances, whatever the metric. `values` are (n, d), with n at least
    `POINTS`.
    """
    n, d = values.shape
    if device.is_gpu:
        check_arrays(values.dtype, values)
        within = device.xp.empty(BALLS, "int32")
        launch_blocks(
            SOURCE, "count_within", (BALLS,), THREADS, values, np.int64(n), np.int32(d), np.int64(golden_stride(n)),
            np.float64(times**2), within, options=(value_option(values.dtype),),
        )  # fmt: skip
        return float(to_host(within).sum()) / (BALLS * POINTS)
    from rapids_slink.neighbors.exact.cpu import distances_between

    order = np.arange(POINTS + BALLS) * golden_stride(n) % n
    points, centres = np.split(order.astype("int32"), [POINTS])
    squares = distances_between(values, centres, points)
    squares[centres[:, None] == points] = np.inf
    return float((squares <= times**2 * squares.min(axis=1)[:, None]).mean())


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # then no point seems near
def nearest_by_spread(values: Array, device: Device) -> float:
    """Return how far a point's nearest other is, divided by the root mean square distance of points from their mean.

    It is the median over `SOME` of the (n, d) points: about 1 for noise of many features, and next to nothing for
    points in tiny clusters. Distances are Euclidean, in float32, whatever the metric.
    """
    size = max(SOME, min(OF_MEAN, OF_MEAN_VALUES // values.shape[1]))
    sample = _sample(values, min(len(values), size), device).astype("float64")
    mean = sample.mean(axis=0)
    per_spread = np.sqrt(len(sample) / ((sample - mean) ** 2).sum())
    some = ((sample[:SOME] - mean) * per_spread).astype("float32")
    least = _least_squares_on_gpu if device.is_gpu else _least_squares
    squares = np.nan_to_num(least(values, some, mean, per_spread, device), nan=np.inf)
    return float(np.sqrt(max(np.median(squares), 0)))


def _sample(values: Array, size: int, device: Device) -> Any:
    """Return `size` points, evenly spread over all, on the host."""
    n, d = values.shape
    if not device.is_gpu:
        return values[np.arange(size) * golden_stride(n) % n]
    check_arrays(values.dtype, values)
    out, options = device.xp.empty((size, d), values.dtype), (value_option(values.dtype),)
    launch(
        SOURCE, "gather_sample", out.size, values, np.int32(d), np.int64(n), np.int64(golden_stride(n)), np.int64(size),
        out, options=options,
    )  # fmt: skip
    return to_host(out)


def _least_squares(values: Array, some: Array, mean: Array, per_spread: float, _: Device) -> Array:
    """Return the squared distances of `SOME` points from their nearest others, all scaled as `some` are."""
    (n, d), norms = values.shape, (some * some).sum(axis=1)
    least, at = np.full(SOME, np.inf, "float32"), np.arange(SOME) * golden_stride(n) % n
    for rows in row_blocks(n, d, AT_ONCE):
        others = ((values[rows] - mean) * per_spread).astype("float32")
        squares = norms[:, None] + (others * others).sum(axis=1) - 2 * (some @ others.T)
        squares[at[:, None] == np.arange(rows.start, rows.stop)] = np.inf
        np.minimum(least, squares.min(axis=1), out=least)
    return least


def _least_squares_on_gpu(values: Array, some: Array, mean: Array, per_spread: float, device: Device) -> Array:
    """Return what `_least_squares` does, except that squares which rounding makes negative are 0."""
    check_arrays(values.dtype, values)
    xp, (n, d), options = device.xp, values.shape, (value_option(values.dtype),)
    least, centre, queries = (
        device.asarray(np.full(SOME, np.inf, "float32")),
        device.asarray(mean),
        device.asarray(some),
    )
    own = device.asarray((some * some).sum(axis=1))
    for rows in row_blocks(n, d, AT_ONCE):
        m = rows.stop - rows.start
        others, norms = xp.empty((m, d), "float32"), xp.empty(m, "float32")
        launch(
            SOURCE, "scale_points", m * WARP, values[rows], np.int32(d), np.int64(m), centre, np.float64(per_spread),
            others, norms, options=options,
        )  # fmt: skip
        products = xp.matmul(queries, others.T)
        sizes = map(np.int64, (rows.start, m, n, golden_stride(n)))
        launch_blocks(
            SOURCE, "lower_least", (SOME, SHARES), THREADS, products, own, norms, *sizes, least, options=options
        )
    return to_host(least)

"""What a sample shows of points: whether their dimension is high, and how near each other they are.

Of points in D dimensions a ball that is twice as wide holds 2^D times as many (Karger and Ruhl 2002). A mean over balls
also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show clusters
of high dimension if each has many points in the sample.
"""

import numpy as np

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.cuda import check_arrays, constant, launch_blocks, value_option
from rapids_slink.runtime.device import Array, Device, to_host

SOURCE = "neighbors/trees/dimension.cu"
#: Balls, and the points of the sample.
BALLS, POINTS = constant(SOURCE, "BALLS"), constant(SOURCE, "POINTS")
#: Points whose nearest is found among all, points by which a mean is estimated, and the values that are read at once.
SOME, OF_MEAN, AT_ONCE = 2**6, 2**12, 2**26


def expansion(values: Array, device: Device) -> float:
    """The share of a sample of (n, d) points, at least `POINTS`, within twice the distance to the nearest, on average.

    By Euclidean distances, whatever the metric.
    """
    n, d = values.shape
    if device.is_gpu:
        check_arrays(values.dtype, values)
        within, threads = device.xp.empty(BALLS, "int32"), constant(SOURCE, "THREADS")
        arguments = values, np.int64(n), np.int32(d), within
        launch_blocks(SOURCE, "count_within", (BALLS,), threads, *arguments, options=(value_option(values.dtype),))
        return float(to_host(within).sum()) / (BALLS * POINTS)
    points, centres = (np.arange(0, n, n // size, dtype="int32")[:size] for size in (POINTS, BALLS))
    centres += n // POINTS // 2
    src, dst = np.repeat(centres, POINTS), np.tile(points, BALLS)
    squares = kernels(device).pair_distances(values, src, dst, EUCLIDEAN)
    squares[src == dst] = np.inf
    squares = squares.reshape(BALLS, POINTS)
    return float((squares <= 4 * squares.min(axis=1)[:, None]).mean())


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # then no point seems near
def nearest_by_spread(values: Array, device: Device) -> float:
    """How far the nearest of (n, d) points is, the median of some, by the root mean square distance from the mean.

    About 1 for noise of many features, and next to nothing for points in tiny clusters. By Euclidean distances in
    float32, whatever the metric.
    """
    xp, (n, d) = device.xp, values.shape
    sample = values[:: -(-n // OF_MEAN)].astype("float64")
    mean = sample.sum(axis=0) / len(sample)
    per_spread = xp.sqrt(len(sample) / ((sample - mean) ** 2).sum())
    at = xp.arange(SOME) * (n // SOME) + n // SOME // 2
    some = ((values[at] - mean) * per_spread).astype("float32")
    nearest = xp.full(SOME, xp.inf, "float32")
    for rows in row_blocks(n, d, AT_ONCE):
        others = ((values[rows] - mean) * per_spread).astype("float32")
        squares = (some * some).sum(axis=1)[:, None] + (others * others).sum(axis=1) - 2 * (some @ others.T)
        squares[at[:, None] == xp.arange(rows.start, rows.stop)] = xp.inf
        nearest = xp.minimum(nearest, squares.min(axis=1))
    squares = np.nan_to_num(to_host(nearest), nan=np.inf)
    return float(np.sqrt(max(np.median(squares), 0)))

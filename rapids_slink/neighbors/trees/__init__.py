"""Trees of boxes over points: `kdtree.py` on a CPU and `bvh.py` on a GPU. A sample shows which points suit them.

The sample shows whether the points' dimension is high, and how near each other they are. It is evenly spread, but its
rows do not follow each other at a distance that a pattern could have, such as noise in each tenth row.

In D dimensions a ball that is twice as wide holds 2^D times as many points (Karger and Ruhl 2002). A mean over balls
also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show clusters
of high dimension if each has many points in the sample.
"""

import numpy as np

from rapids_slink.neighbors.task import golden_stride
from rapids_slink.runtime.cuda import constant, launch_blocks, value_option
from rapids_slink.runtime.device import Array, Device, to_host

SOURCE = "neighbors/trees/dimension.cu"
#: The numbers of balls and of the sample's points, and the threads of a block.
BALLS, POINTS, THREADS = (constant(SOURCE, name) for name in ("BALLS", "POINTS", "THREADS"))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # then no point seems near
def expansion(values: Array, device: Device, times: float = 2) -> tuple[float, float]:
    """Return the share of a sample that is within `times` a row's distance to its nearest, and that distance.

    The share is a mean over `BALLS` rows. The distance to the nearest of the sample is the rows' median, divided by the
    root mean square distance of points from their mean: about 1 for noise of many features, and next to nothing for
    points in tiny clusters. Distances are Euclidean, whatever the metric. `values` are (n, d), with n at least
    `POINTS`.
    """
    n, d = values.shape
    if device.is_gpu:
        within, squares = device.xp.empty(BALLS, "int32"), device.xp.empty((2, BALLS))
        launch_blocks(
            SOURCE, "count_within", (BALLS,), THREADS, values, n, d, golden_stride(n), times**2, within, squares,
            options=(value_option(values.dtype),),
        )  # fmt: skip
        count, (nearest, total) = to_host(within).sum(), to_host(squares)
    else:
        from rapids_slink.neighbors.exact.cpu import distances_between

        order = np.arange(POINTS + BALLS) * golden_stride(n) % n
        points, centres = np.split(order.astype("int32"), [POINTS])
        square = distances_between(values, centres, points)
        square[centres[:, None] == points] = np.inf
        nearest, total = square.min(axis=1), square.sum(axis=1, where=square < np.inf)
        count = (square <= times**2 * nearest[:, None]).sum()
    pairs = BALLS * POINTS
    by_spread = np.sqrt(2 * pairs * np.median(nearest) / total.sum())
    return float(count / pairs), float(np.nan_to_num(by_spread, nan=np.inf))

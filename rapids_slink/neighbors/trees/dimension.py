"""The expansion of points: a sample shows whether their dimension is high.

Of points in D dimensions a ball that is twice as wide holds 2^D times as many (Karger and Ruhl 2002). A mean over balls
also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show clusters
of high dimension if each has many points in the sample.
"""

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors.exact.kernels import kernels
from rapids_slink.runtime.device import Array, Device

#: Balls, and the points of the sample.
BALLS, POINTS = 2**8, 2**11


def expansion(values: Array, device: Device) -> float:
    """The share of a sample of (n, d) points, at least `POINTS`, within twice the distance to the nearest, on average.

    By Euclidean distances, whatever the metric.
    """
    xp, n = device.xp, len(values)
    points, centres = (xp.arange(0, n, n // size, dtype="int32")[:size] for size in (POINTS, BALLS))
    centres += n // POINTS // 2
    src, dst = xp.repeat(centres, POINTS), xp.tile(points, BALLS)
    squares = kernels(device).pair_distances(values, src, dst, EUCLIDEAN)
    squares[src == dst] = xp.inf
    squares = squares.reshape(BALLS, POINTS)
    return float((squares <= 4 * squares.min(axis=1)[:, None]).mean())

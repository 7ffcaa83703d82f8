"""Whether points of many features are of low dimension: along curves or surfaces, or in small clusters far apart.

Then a ball of neighbours touches few leaves of a tree, and a GPU searches by boxes in less time than all pairs take.
Trees of two thousand points tell. Those of a sample may show that the dimension is high. They do not show that it is
low, for a cluster of which the sample has few points looks like a point. So the leaves are counted in trees of all
points around some.
"""

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.kernels import kernels
from rapids_slink.runtime.device import Array, Device

#: Points of a tree and, at most, of a leaf: powers of two.
TREE_SIZE, LEAF_SIZE = 2**11, 2**5
LEAVES = TREE_SIZE // LEAF_SIZE
#: Balls in each tree, and the points in each.
BALLS, BALL_POINTS = 16, 16
#: The share of a sample's leaves above which the dimension is high.
HIGH_SHARE = 0.65
#: Points around which trees are made.
REGIONS = 8
#: A ball may touch a leaf for each of this number of all points, and a number of leaves at most.
POINTS_PER_LEAF, MAX_LEAVES = 50_000, 24


def is_low_dimensional(values: Array, metric: Metric, device: Device) -> bool:
    """Whether boxes would search (n, d) points, more than `TREE_SIZE`, in less time than a filter."""
    xp, n = device.xp, len(values)
    sample = values[:: n // TREE_SIZE][:TREE_SIZE]
    if leaves_touched(sample[None], device) > HIGH_SHARE * LEAVES:
        return False
    regions = range(n // (2 * REGIONS), n, n // REGIONS)
    around = xp.stack([values[_nearest(values, p, metric, device)] for p in regions[:REGIONS]])
    return leaves_touched(around, device) <= min(n / POINTS_PER_LEAF, MAX_LEAVES)


def leaves_touched(points: Array, device: Device) -> float:
    """How many leaves of a tree a ball touches on average, in that of some sets of points where it touches most.

    `points` are (sets, `TREE_SIZE`, d), each set of a k-d tree. Balls are Euclidean, whatever the metric of a search.
    """
    xp, (sets, size, d) = device.xp, points.shape
    nodes = points
    while nodes.shape[1] > LEAF_SIZE:  # halves, by the widest side
        widest = (nodes.max(axis=1) - nodes.min(axis=1)).argmax(axis=1)
        order = xp.take_along_axis(nodes, widest[:, None, None], axis=2)[:, :, 0].argsort(axis=1)
        nodes = xp.take_along_axis(nodes, order[:, :, None], axis=1).reshape(-1, nodes.shape[1] // 2, d)
    low, high = (box.reshape(sets, 1, LEAVES, d) for box in (nodes.min(axis=1), nodes.max(axis=1)))
    centres = nodes.reshape(sets, size, d)[:, :: size // BALLS, None]

    def squares_to(others: Array) -> Array:
        return ((centres - others) ** 2).sum(axis=3)

    radii = xp.sort(squares_to(points[:, None]), axis=2)[:, :, BALL_POINTS - 1, None]
    touched = squares_to(xp.clip(centres, low, high)) <= radii
    return float(touched.sum(axis=2).mean(axis=1).max())


def _nearest(values: Array, p: int, metric: Metric, device: Device) -> Array:
    """The `TREE_SIZE` points that are nearest to point p."""
    xp, n = device.xp, len(values)
    distance = kernels(device).pair_distances(values, xp.full(n, p, "int32"), xp.arange(n, dtype="int32"), metric)
    return xp.argpartition(distance, TREE_SIZE)[:TREE_SIZE]

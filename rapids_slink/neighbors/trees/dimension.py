"""Whether points of many features are of low dimension: along curves or surfaces, or in small clusters far apart.

Then a ball of neighbours touches few leaves of a tree, and a GPU searches by boxes in less time than all pairs take.
The host finds that out by trees of two thousand points. Those of a sample may show that the dimension is high. They
do not show that it is low, for a cluster of which the sample has few points looks like a point. So the leaves are
counted in trees of all points around some.
"""

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.kernels import kernels
from rapids_slink.neighbors.trees.tree import LEAF, build, touched_share
from rapids_slink.runtime.device import Array, Device, to_host

#: Points of a tree, and the share of a sample's leaves above which the dimension is high.
TREE_POINTS, HIGH_SHARE = 2**11, 0.65
#: Points around which trees are made.
REGIONS = 8
#: A ball may touch a leaf for each of this number of all points, and a number of leaves at most.
POINTS_PER_LEAF, MAX_LEAVES = 50_000, 24


def is_low_dimensional(values: Array, metric: Metric, device: Device) -> bool:
    """Whether boxes would search (n, d) points in less time than a filter."""
    n = len(values)
    sample = to_host(values[:: max(1, n // TREE_POINTS)][:TREE_POINTS])
    if touched_share(build(sample), metric) > HIGH_SHARE:
        return False
    limit = min(n / POINTS_PER_LEAF, MAX_LEAVES)
    regions = range(n // (2 * REGIONS), n, n // REGIONS)
    return all(leaves_touched(values, p, metric, device) <= limit for p in regions)


def leaves_touched(values: Array, p: int, metric: Metric, device: Device) -> float:
    """How many leaves a ball touches, on average, among the points that are nearest to point p."""
    xp, n = device.xp, len(values)
    size = min(TREE_POINTS, n - 1)
    ends = xp.full(n, p, "int32"), xp.arange(n, dtype="int32")
    around = xp.argpartition(kernels(device).pair_distances(values, *ends, metric), size)[:size]
    return touched_share(build(to_host(values[around])), metric) * -(-size // LEAF)

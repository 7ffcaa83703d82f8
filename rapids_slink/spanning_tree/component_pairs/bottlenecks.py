"""Path bottlenecks of a tree, the heaviest edge between any two nodes: a sparse table over the dendrogram's leaves."""

from typing import Any

import numpy as np

from rapids_slink.dendrogram.cpu import merge_in_order
from rapids_slink.runtime.compiling import njit


def path_bottlenecks(src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A table of the heaviest edge on the path between any two nodes of a tree. The tree's edges come in any order.

    With the nodes in the order of the dendrogram's leaves, that edge is the largest height between their positions. The
    first of the (1 + levels, n) rows holds each node's position among the leaves. Further rows hold the largest of the
    1, 2, 4, ... heights from a position on.
    """
    rows, n = np.argsort(weight), weight.size + 1
    left_child, right_child, size = np.empty((3, n - 1), np.int32)
    merge_in_order(src[rows].astype(np.int32), dst[rows].astype(np.int32), n, left_child, right_child, size)
    position, height = _order_leaves(left_child, right_child, size, weight[rows])
    largest = [height]
    while 1 << len(largest) < n:
        following = np.minimum(np.arange(n) + (1 << len(largest) - 1), n - 1)
        largest.append(np.maximum(largest[-1], largest[-1][following]))
    return np.stack([position, *largest])


@njit(cache=True)
def _order_leaves(left_child: Any, right_child: Any, size: Any, weight: Any) -> Any:
    """The leaves' positions, and the height between each and the next."""
    n = weight.size + 1
    start, height = np.zeros(2 * n - 1, np.int64), np.zeros(n)
    for i in range(n - 2, -1, -1):  # the leaves of a merge: those of its left child, then those of its right one
        first, second = left_child[i], right_child[i]
        start[first] = start[n + i]
        start[second] = start[n + i] + (1 if first < n else size[first - n])
        height[start[second] - 1] = weight[i]
    return start[:n], height

"""The condensed dendrogram by pointer doubling, for a GPU: `condense.condense` takes a pass of dependent steps.

Every node of the dendrogram, leaf or merge, points at the merge that joins it. Pointers are followed within parts that
are too small, from each leaf to the largest of these, which says when the leaf falls out; and up to the nearest side of
a split, which says of which cluster.
"""

from typing import Any

import numpy as np

from rapids_slink.dendrogram.condense import Condensed, Merges
from rapids_slink.runtime.device import Array, all_true, to_host


def condense_by_doubling(merges: Merges, min_size: int, xp: Any) -> Condensed:
    """As `condense.condense` for one tree without weights; what it says of points stays on the device."""
    left_child, right_child, height, size = merges
    n = left_child.size + 1
    nodes, above, count = _pointers(left_child, right_child, size, xp)
    with np.errstate(divide="ignore", over="ignore"):
        rate = xp.where(height > 0, 1 / height, xp.inf)
    departure = rate[_first_of_size(nodes, above, count, min_size, xp)]
    splits = (xp.minimum(count[left_child], count[right_child]) >= min_size) & (rate < xp.inf)
    split = xp.flatnonzero(splits)[::-1]  # from the top down
    sides = xp.stack([left_child[split], right_child[split]], axis=1).ravel()
    number = xp.zeros(2 * n - 1, "int32")
    number[sides] = xp.arange(1, sides.size + 1, dtype="int32")
    cluster = number[_follow(xp.where(number > 0, nodes, above))]
    return Condensed(
        np.concatenate([[-1], to_host(xp.repeat(cluster[n + split], 2))]).astype(np.int32),
        np.concatenate([[0.0], to_host(xp.repeat(rate[split], 2))]),
        np.concatenate([[n], to_host(count[sides])]).astype(np.int32),
        cluster[:n],
        departure,
    )


def heights_of_size(left_child: Array, right_child: Array, height: Array, size: Array, min_size: int, xp: Any) -> Any:
    """The height at which each leaf of a tree first is in a cluster of at least `min_size` leaves, or of all."""
    return height[_first_of_size(*_pointers(left_child, right_child, size, xp), min_size, xp)]


def _pointers(left_child: Array, right_child: Array, size: Array, xp: Any) -> tuple[Any, Any, Any]:
    """The nodes, leaves first; the merge above each, which of the last is itself; and how many leaves each has."""
    n = left_child.size + 1
    nodes = xp.arange(2 * n - 1, dtype="int32")
    above, count = nodes.copy(), xp.ones(2 * n - 1, "int32")
    above[left_child] = above[right_child] = nodes[n:]
    count[n:] = size
    return nodes, above, count


def _first_of_size(nodes: Array, above: Array, count: Array, min_size: int, xp: Any) -> Any:
    """The first merge above each leaf that has at least `min_size` leaves, or the last merge."""
    n = nodes.size // 2 + 1
    top = _follow(xp.where(count[above] < min_size, above, nodes))[:n]
    return above[top] - n


def _follow(pointer: Array) -> Array:
    """The end of each node's pointers; ends point at themselves."""
    while True:
        further = pointer[pointer]
        if all_true(further == pointer):
            return pointer
        pointer = further

"""The condensed dendrogram by pointer doubling, for a GPU: `condense.condense` takes a pass of dependent steps.

Every node of the dendrogram, leaf or merge, points at the merge that joins it. Pointers are followed within parts that
are too small, from each leaf to the largest of these, which says when the leaf falls out; and up to the nearest side of
a split, which says of which cluster.
"""

from typing import Any

import numpy as np

from rapids_slink.dendrogram.condense import Condensed
from rapids_slink.runtime.device import Array, all_true, to_host


def condense_by_doubling(left: Array, right: Array, height: Array, size: Array, min_size: int, xp: Any) -> Condensed:
    """As `condense.condense` for one tree without weights; the result is on the host."""
    n = left.size + 1
    nodes = xp.arange(2 * n - 1, dtype="int32")
    above, count = nodes.copy(), xp.ones(2 * n - 1, "int32")
    above[left] = above[right] = nodes[n:]
    count[n:] = size
    with np.errstate(divide="ignore", over="ignore"):
        rate = xp.where(height > 0, 1 / height, xp.inf)
    top = _follow(xp.where(count[above] < min_size, above, nodes))[:n]
    departure = rate[above[top] - n]
    splits = (xp.minimum(count[left], count[right]) >= min_size) & (rate < xp.inf)
    split = xp.flatnonzero(splits)[::-1]  # from the top down
    sides = xp.stack([left[split], right[split]], axis=1).ravel()
    number = xp.zeros(2 * n - 1, "int32")
    number[sides] = xp.arange(1, sides.size + 1, dtype="int32")
    cluster = number[_follow(xp.where(number > 0, nodes, above))]
    return Condensed(
        np.concatenate([[-1], to_host(xp.repeat(cluster[n + split], 2))]).astype(np.int32),
        np.concatenate([[0.0], to_host(xp.repeat(rate[split], 2))]),
        np.concatenate([[n], to_host(count[sides])]).astype(np.int32),
        to_host(cluster[:n]),
        to_host(departure),
    )


def _follow(pointer: Array) -> Array:
    """The end of each node's pointers; ends point at themselves."""
    while True:
        further = pointer[pointer]
        if all_true(further == pointer):
            return pointer
        pointer = further

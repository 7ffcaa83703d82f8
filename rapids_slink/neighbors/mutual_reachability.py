"""Mutual reachability: the weights of HDBSCAN's hierarchy.

A point's core distance is the surrogate distance of its m-th nearest other, and the weight of a pair is the largest of
its surrogate distance and the core distances of its two points. Distances are monotone in surrogate distances, so the
same holds of them:

    weight(i, j) = max(core(i), core(j), distance(i, j))

This is the definition of Campello, Moulavi and Sander ("Density-based clustering based on hierarchical density
estimates", 2013), with m counted as the package hdbscan counts it, the point itself left out. For m = 1 no core
distance is above any of its point's distances, and the weights are the distances.

**The bound of a list.** A list holds a point's k nearest in the order of (surrogate distance, id), then sorted again by
(weight, id). The lower bound of unlisted points is the last entry (w, l) before that sort. An unlisted point j comes
after it in the first order, and its weight is at least its surrogate distance. So the weight is above w or, if it is w,
the surrogate distance is w too and j > l: then the edge to j has the larger code. Listed entries may have a larger
weight than the bound, however.
"""

from typing import Any

from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.runtime.device import Array, Device


def mutual_reachability(surrogate: Array, core: Array, src: Array, dst: Array, xp: Any) -> Any:
    """The mutual reachability of pairs by their surrogate distances."""
    return xp.maximum(surrogate, xp.maximum(core[src], core[dst]))


def by_mutual_reachability(lists: NeighborLists, core: Array, device: Device) -> NeighborLists:
    """The same neighbours, with mutual reachability by (n,) core distances for weights, sorted again.

    `lists` have surrogate distances, and their arrays are used for the result.
    """
    unlisted_lower_bound = lists.ids[:, -1].copy(), lists.weights[:, -1].copy()
    kernels(device).sort_by_reachability(lists.ids, lists.weights, core)
    return NeighborLists(lists.ids, lists.weights, core, unlisted_lower_bound)

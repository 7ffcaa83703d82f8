"""Mutual reachability: the weights of HDBSCAN's hierarchy.

A point's core distance is the surrogate distance of its m-th nearest other, and a pair weighs the largest of its own
surrogate distance and the core distances of its two points. Distances are monotone in surrogate distances, so the same
holds of them:

    weight(i, j) = max(core(i), core(j), distance(i, j))

This is the definition of Campello, Moulavi and Sander ("Density-based clustering based on hierarchical density
estimates", 2013), with m counted as the package hdbscan counts it, the point itself left out. For m = 1 no core
distance is above any of its point's distances, and every pair weighs its distance.

**The bound of a list.** A list holds a point's k nearest in the order of (surrogate distance, id), then sorted
again by (weight, id). The bound of what it does not list is its last entry (w, l) of before. An unlisted point j comes
after that in the first order, and weighs no less than its surrogate distance. So its weight is above w or, if it is w,
its surrogate distance is w too and j > l: then the edge to j has the larger code. Listed entries may weigh more than
the bound, however: being listed is not being near.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.runtime.device import Device


def mutual_reachability(surrogate: Any, core: Any, src: Any, dst: Any, xp: Any) -> Any:
    """What pairs weigh whose surrogate distances are given."""
    return xp.maximum(surrogate, xp.maximum(core[src], core[dst]))


def by_mutual_reachability(lists: NeighborLists, core: Any, device: Device) -> NeighborLists:
    """The same neighbours, weighed and sorted by mutual reachability.

    Parameters
    ----------
    lists : NeighborLists
        Of surrogate distances. Its arrays are used for the result.
    core : (n,) float64 array
        The points' core distances.
    device : Device
    """
    unlisted_lower_bound = lists.ids[:, -1].copy(), lists.weights[:, -1].copy()
    device.kernels("neighbors.exact").sort_by_reachability(lists.ids, lists.weights, core)
    return NeighborLists(lists.ids, lists.weights, core, unlisted_lower_bound)

"""Mutual reachability: the weights of HDBSCAN's hierarchy.

A point's core is the kernel value of its m-th nearest other, and a pair weighs the largest of its own kernel value and
the cores of its two points. Distances are monotone in kernel values, so the same holds of them:

    weight(i, j) = max(core(i), core(j), distance(i, j))

This is the definition of Campello, Moulavi and Sander ("Density-based clustering based on hierarchical density
estimates", 2013), with m counted as the package hdbscan counts it, the point itself left out. For m = 1 no core is
above any of its point's distances, and every pair weighs its distance.

**The bound of a list.** A list holds a point's k >= m nearest in the order of (kernel value, id), then sorted again by
(weight, id). Its bound is its last entry (w, l) of before. An unlisted point j comes after that in the first order,
and weighs no less than its kernel value. So its weight is above w or, if it is w, its kernel value is w too and j > l:
then the edge to j has the larger code. Listed entries may weigh more than the bound, however: being listed is not
being near.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.device import Device
from rapids_slink.neighbors.contract import NeighborLists


def mutual_reachability(values: Any, core: Any, src: Any, dst: Any, xp: Any) -> Any:
    """What pairs weigh whose kernel values are `values`."""
    return xp.maximum(values, xp.maximum(core[src], core[dst]))


def by_mutual_reachability(lists: NeighborLists, min_samples: int, device: Device) -> NeighborLists:
    """The same neighbours, weighed and sorted by mutual reachability.

    Parameters
    ----------
    lists : NeighborLists
        Of kernel values, at least `min_samples` long. Its arrays are used for the result.
    min_samples : int
        Which neighbour's kernel value is a point's core, counted from 1.
    """
    bound = lists.ids[:, -1].copy(), lists.weights[:, -1].copy()
    core = lists.weights[:, min_samples - 1].copy()
    device.kernels("neighbors").sort_by_reachability(lists.ids, lists.weights, core)
    return NeighborLists(lists.ids, lists.weights, core, bound)

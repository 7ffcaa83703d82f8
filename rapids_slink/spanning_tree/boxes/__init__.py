"""Borůvka on a tree of boxes: the minimum spanning tree of points of few features.

Each point first finds its nearest few. In a round each component looks for its lightest edge to a point outside. Nodes
whose points are all of the component are passed over. An edge that is found bounds the component, for all its points,
and what a point has learnt serves it in the next rounds:

- its candidate, the lightest edge known, which bounds its component again as long as it leaves it; then the next of its
  nearest few that is outside takes its place;
- its floor: no edge to a point outside its component is lighter, and components only grow. It need not search while its
  candidate attains it, or while its component has a lighter edge.

*Each edge taken is in the tree.* Say C searches, and let e be the lightest edge that leaves it in the total order, from
point v. No bound of C is below the weight of e, as bounds are weights of edges that leave C. The floor of v is not
above it either, so v searches, or its candidate attains the floor. A search passes over what is above the bound, what
is within C, and what weighs as much as a candidate and comes after it; so the candidate of v is e. The edge taken for C
is the first in the total order of its points' candidates that attain the bound, which is e, and the cut property does
the rest.

The largest component waits: those that search do merge. Neighbouring points search together: on a CPU those of a leaf
of a k-d tree (`cpu`, `packets`), on a GPU those of a warp, on a bounding volume hierarchy (`cuda`).
"""

from __future__ import annotations

from typing import Any

from rapids_slink.report import Report
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import PreallocatedFrame

#: At the peak, in bytes a point: what is known of it, and its edge.
POINT_BYTES = {"cpu": 184, "cuda": 56}


def estimate_tree(n: int, device: Device) -> MemoryEstimate:
    """Bytes of `tree_of_boxes` of n points beside the search's own."""
    return MemoryEstimate(POINT_BYTES[device.name] * n)


def tree_of_boxes(search: Any, device: Device, report: Report) -> PreallocatedFrame:
    """The minimum spanning tree of all pairs.

    Parameters
    ----------
    search : TreeSearch or BoxSearch
        Of the points, by boxes; it may give its memory to the tree, and is of no use afterwards.
    device : Device
    report : Report

    Returns
    -------
    PreallocatedFrame
        n - 1 edges in no order, weighing surrogate distances.
    """
    tree: PreallocatedFrame = device.kernels("spanning_tree.boxes").tree_of_boxes(search, report)
    return tree

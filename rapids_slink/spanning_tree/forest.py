"""Borůvka on neighbour lists, taking only edges that are certain to be in the minimum spanning tree.

In a round every point v of a component C proposes the edge to its first listed neighbour outside C. It proposes the
edge to the components of both ends, and `best(C)` is the lightest proposal to C. Each point also has a lower bound:
every edge to a point that it does not list comes after the bound. C is *certified* if no lower bound of a point in C is
below best(C). Then best(C) is the lightest of all edges that leave C, and by the cut property it is in the tree.
Nothing here uses the triangle inequality: it is enough that a distance is the same in both directions. So the proof
holds for rows with missing values too, whose dissimilarities are no metrics (missing.py). A list may have entries above
its bound, if it is sorted by mutual reachability or ends at a search's bound. So the bounds of all points count, not
only those of exhausted lists.

A list is sorted and components only grow, so a cursor into it never steps back: all rounds together read it once. Each
device runs the rounds in ``grow_forest(lists, forest)``.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.ordering import NO_EDGE, edge_codes
from rapids_slink.runtime.device import Array, Device, half
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__package__)

#: If fewer than one component in LEAST_SHARE is certified, another round merges too little. Then a search certifies all
#: others.
LEAST_SHARE = 32


@dataclass(frozen=True)
class Forest:
    """A forest under construction. The kernels write into the arrays, of length n except `edges` and `n_taken`."""

    #: int32, the label of each point's component: the number of one of its points, the component's root
    component: Array
    cursor: Array  # int32, the position in each point's list up to which it has been read; k when it is exhausted
    #: int32 and float64, the result of the last search, -1 if there was none
    nearest_outside: Array
    nearest_outside_weight: Array
    #: float64 and int64: every edge from the point to an unlisted one outside its component comes after this key or
    #: equals it; after a search, every edge to one outside
    bound_weight: Array
    bound_code: Array
    #: float64, int64 and bool, by component root: the lightest edge seen in the last round, and whether it is certain
    best_weight: Array
    best_code: Array
    certified: Array
    edges: PreallocatedFrame  # the edges taken so far, ``src < dst``, in the first of its n - 1 rows
    n_taken: Array  # int32 array of shape (1,), the number of edges taken so far

    @classmethod
    def of_points(cls, lists: NeighborLists, device: Device) -> Self:
        """A forest without edges: every point is a component, with the lower bound of its list."""
        xp, n = device.xp, lists.ids.shape[0]
        rows = xp.arange(n, dtype="int32")
        if lists.complete and lists.unlisted_lower_bound is None:
            return cls.of_components(rows, (xp.full(n, xp.inf), xp.full(n, NO_EDGE)), device)
        ids, weights = lists.unlisted_lower_bound or (lists.ids[:, -1], lists.weights[:, -1])
        return cls.of_components(rows, (weights.copy(), edge_codes(rows, ids, xp)), device)

    @classmethod
    def of_components(
        cls, component: Array, bound: tuple[Array, Array], device: Device, edges: PreallocatedFrame | None = None
    ) -> Self:
        """These components, without lists: only the lower bounds (weights, codes) of their points are known."""
        xp, n = device.xp, component.size
        return cls(
            component=component,
            cursor=xp.zeros(n, "int32"),
            nearest_outside=xp.full(n, -1, "int32"),
            nearest_outside_weight=xp.full(n, xp.inf),
            bound_weight=bound[0],
            bound_code=bound[1],
            best_weight=xp.empty(n),
            best_code=xp.empty(n, "int64"),
            certified=xp.zeros(n, bool),
            edges=edges or PreallocatedFrame.empty(device, n - 1, EDGE_TYPES),
            n_taken=xp.zeros(1, "int32"),
        )


@dataclass(frozen=True)
class Growth:
    """The outcome of rounds of Borůvka."""

    edges: int  # the number of edges taken
    rounds: int
    certified: int  # how many times, over all rounds, a component chose a certain edge
    components: int  # how many remain; the forest holds the proposals of a last round that was not merged

"""Borůvka on neighbour lists, taking only edges that are certain to be in the minimum spanning tree.

A round looks at each component C. Every point v of C proposes its first listed neighbour outside C, to both ends'
components; `best(C)` is the lightest proposal seen. Each point knows a bound too: whatever it does not list lies
above. C is *certified* if no bound of a point in C is below best(C). Then best(C) is the lightest edge of all that
leave C, and by the cut property it is in the tree. Nothing here uses the triangle inequality. In a list of nearest
points no entry is above the bound, and only the bounds of used-up lists matter; sorted by mutual reachability, a list
may go on above its bound.

A list is sorted and components only grow, so a cursor into it never steps back: all rounds together read it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rapids_slink.device import Device
from rapids_slink.neighbors.contract import NeighborLists
from rapids_slink.ordering import NO_EDGE, edge_codes


@dataclass(frozen=True)
class ForestState:
    """What is known while the forest grows; the kernels write into the arrays, all of length n.

    Attributes
    ----------
    component : int32
        The label of each point's component, which is the number of one of its points (the component's root).
    cursor : int32
        How far into its list a point has come; k when it is used up.
    found, found_weight : int32, float64
        The nearest outside point of the last search, -1 if there was none.
    bound_weight, bound_code : float64, int64
        Every edge from the point to an unlisted one outside its component comes after this key or equals it; after a
        search, every edge to one outside.
    best_weight, best_code, certified : float64, int64, bool
        By component root: the lightest edge seen in the last round, and whether it is certain.
    src, dst, weight : int32, int32, float64
        The edges taken so far, ``src < dst``, in the first rows.
    taken : int32 array of shape (1,)
        How many.
    """

    component: Any
    cursor: Any
    found: Any
    found_weight: Any
    bound_weight: Any
    bound_code: Any
    best_weight: Any
    best_code: Any
    certified: Any
    src: Any
    dst: Any
    weight: Any
    taken: Any


def initial_state(lists: NeighborLists, device: Device) -> ForestState:
    """Every point a component of its own, with the bound of its list."""
    xp = device.xp
    n = lists.ids.shape[0]
    rows = xp.arange(n, dtype="int32")
    if lists.complete:
        bound_weight, bound_code = xp.full(n, xp.inf), xp.full(n, NO_EDGE)
    else:
        last_ids, last_weights = lists.bound or (lists.ids[:, -1], lists.weights[:, -1])
        bound_weight, bound_code = last_weights.copy(), edge_codes(rows, last_ids, xp)
    return new_state(rows, bound_weight, bound_code, xp)


def new_state(component: Any, bound_weight: Any, bound_code: Any, xp: Any) -> ForestState:
    """Components of which nothing is known but the bounds of their points; the arrays become the state's."""
    n = component.size
    return ForestState(
        component=component,
        cursor=xp.zeros(n, "int32"),
        found=xp.full(n, -1, "int32"),
        found_weight=xp.full(n, xp.inf),
        bound_weight=bound_weight,
        bound_code=bound_code,
        best_weight=xp.empty(n),
        best_code=xp.empty(n, "int64"),
        certified=xp.zeros(n, bool),
        src=xp.empty(n, "int32"),
        dst=xp.empty(n, "int32"),
        weight=xp.empty(n),
        taken=xp.zeros(1, "int32"),
    )


#: Below this share of certified components a round merges too little: searching then settles the others at once.
ENOUGH = 1 / 32


def grow(lists: NeighborLists, state: ForestState, device: Device) -> tuple[int, int, int, int]:
    """Borůvka's rounds until the lists can certify no more components, or hardly any.

    Returns
    -------
    edges : int
        How many were taken.
    rounds : int
    certified : int
        How many components, in all rounds, chose an edge that was certain.
    components : int
        How many are left; `state` holds the proposals of a last round that was not merged.
    """
    kernels = device.kernels("spanning_tree")
    components, certified = kernels.propose(lists, state)
    started, rounds, chosen = components, 0, 0
    while components > 1 and certified >= max(1, ENOUGH * components):
        kernels.choose(state)
        chosen += certified
        rounds += 1
        components, certified = kernels.propose(lists, state)
    return started - components, rounds, chosen, components

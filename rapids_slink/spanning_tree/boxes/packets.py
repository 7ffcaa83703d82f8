"""The search on a CPU: points of one leaf look together for edges that leave their components.

A packet steps up from its leaf and goes down the sibling of each node that it comes from, as far as any of its points
has to. Its points are weighed against a node's box in vector instructions, one point a lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rapids_slink.neighbors.exact.formulas import box_to_box, to_boxes, to_points
from rapids_slink.neighbors.trees.query import ANY_ID, first_leaf, rows_together
from rapids_slink.neighbors.trees.tree import LEAF
from rapids_slink.runtime.compiling import njit


class Packet(NamedTuple):
    """Points that search together, by lane, and room for what they look at.

    Attributes
    ----------
    point, component : int32 arrays
    x : (d, LEAF) float64 array, their features
    low, high : (d,) float64 arrays, their bounding box
    bound : float64 array
        The lowest bound that each has searched under; below any weight in a lane without a point.
    last : int32 array
        An edge that weighs as much as the bound is of no interest if its other end is this row, or one after it.
    gap : float64 array
        No edge from each to a point of the node at hand weighs less.
    distance : float64 array, of one of them and some points of a leaf
    nodes, gaps : int64 and float64 arrays, the nodes to search, and the gaps from the packet's box
    """

    point: np.ndarray
    component: np.ndarray
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bound: np.ndarray
    last: np.ndarray
    gap: np.ndarray
    distance: np.ndarray
    nodes: np.ndarray
    gaps: np.ndarray


@njit(nogil=True, cache=True)
def search(formula, tree, growth, active):
    """Find the candidates of active points, and raise their floors.

    Several threads lower bounds without a lock: a value read late or an update lost leaves a bound that is too high,
    which costs time and never an edge. A point's floor is by the bounds that its own search has read.
    """
    columns, order, _, _, last, _, _, _ = tree
    d, n = columns.shape[0], order.size
    packet = Packet(
        np.zeros(LEAF, np.int32), np.zeros(LEAF, np.int32), np.zeros((d, LEAF)), np.empty(d), np.empty(d),
        np.empty(LEAF), np.empty(LEAF, np.int32), np.empty(LEAF), np.empty(min(LEAF, n)),
        np.empty(128, np.int64), np.empty(128),
    )  # fmt: skip
    begin, leaf = np.int64(0), first_leaf(active, last)  # no literal: `_load` would be compiled for it too
    while begin < active.size:
        leaf, m = rows_together(active, begin, last, leaf)
        shared = _load(columns, growth, active, begin, m, packet)
        _climb(formula, tree, growth, packet, m, shared, leaf)
        for j in range(m):
            p = packet.point[j]
            growth.floor[p] = max(growth.floor[p], min(growth.weight[p], packet.bound[j]))
        begin += m


# The parts of `search`. All but the last are inlined: calls would cost a quarter of its time.


@njit(nogil=True, cache=True, forceinline=True)
def _load(columns, growth, active, begin, m, packet):
    """Put m active points into the packet, without candidates; returns the component that they share, or -1."""
    point, component, x, low, high, bound, last = packet[:7]
    shared = growth.component[active[begin]]
    bound[:], last[:] = -1.0, ANY_ID
    for j in range(m):
        p = active[begin + j]
        point[j], component[j], bound[j] = p, growth.component[p], np.inf
        growth.candidate[p], growth.weight[p] = -1, np.inf
        shared = shared if component[j] == shared else -1
    for f in range(x.shape[0]):
        low[f], high[f] = np.inf, -np.inf
        for j in range(m):
            x[f, j] = columns[f, point[j]]
            low[f], high[f] = min(low[f], x[f, j]), max(high[f], x[f, j])
    return shared


@njit(nogil=True, cache=True, forceinline=True)
def _climb(formula, tree, growth, packet, m, shared, leaf):
    """Search the whole tree, from the leaf of m points on.

    Of two children at one distance that with the least row comes first: among equal points few are compared then.
    """
    least, leaves = tree.least, tree.first.size // 2
    nodes, gaps = packet.nodes, packet.gaps
    reach = _tighten(growth, packet, m)
    v = visit = leaf
    while True:
        nodes[0], gaps[0], height = visit, _box_gap(formula, tree, packet, visit), 1
        while height:
            height -= 1
            node, gap = nodes[height], gaps[height]
            is_own = growth.node_component[node] == shared and shared >= 0
            if gap > reach or is_own or not _concerns(formula, tree, growth, packet, m, node, gap):
                continue
            if node < leaves:
                farther, nearer = 2 * node + 1, 2 * node + 2
                farther_gap = _box_gap(formula, tree, packet, farther)
                nearer_gap = _box_gap(formula, tree, packet, nearer)
                if farther_gap < nearer_gap or (farther_gap == nearer_gap and least[farther] < least[nearer]):
                    farther, nearer, farther_gap, nearer_gap = nearer, farther, nearer_gap, farther_gap
                nodes[height], gaps[height] = farther, farther_gap
                height += farther_gap <= reach
                nodes[height], gaps[height] = nearer, nearer_gap
                height += nearer_gap <= reach
            elif _search_leaf(formula, tree, growth, packet, m, node):
                reach = _tighten(growth, packet, m)
        if v == 0:
            return
        visit = v + 1 if v % 2 else v - 1
        v = (v - 1) // 2


@njit(nogil=True, cache=True, forceinline=True)
def _box_gap(formula, tree, packet, node):
    """No edge between a point of the packet and one of the node weighs less."""
    return box_to_box(formula, packet.low, packet.high, tree.low, tree.high, node)


@njit(nogil=True, cache=True, forceinline=True)
def _tighten(growth, packet, m):
    """Take over the bounds of the points' components; returns the largest."""
    reach = 0.0
    for j in range(m):
        bound = growth.bound[packet.component[j]]
        if bound < packet.bound[j]:
            packet.bound[j], packet.last[j] = bound, ANY_ID
        reach = max(reach, packet.bound[j])
    return reach


@njit(nogil=True, cache=True, forceinline=True)
def _concerns(formula, tree, growth, packet, m, node, gap):
    """Whether any point has to look at a node, whose gap from the packet's box is given; sets the points' gaps."""
    if m == 1:
        packet.gap[0] = gap
    else:
        to_boxes(formula, packet.x, tree.low, tree.high, node, packet.gap)
    count = 0
    for j in range(m):
        count += _is_concerned(tree, growth, packet, j, node)
    return count > 0


@njit(nogil=True, cache=True, forceinline=True)
def _is_concerned(tree, growth, packet, j, node):
    gap, bound = packet.gap[j], packet.bound[j]
    within = (gap < bound) | ((gap == bound) & (tree.least[node] < packet.last[j]))
    return within & (growth.node_component[node] != packet.component[j])


@njit(nogil=True, cache=True, forceinline=True)
def _search_leaf(formula, tree, growth, packet, m, leaf):
    """The candidates of m points among those of a leaf; returns whether a bound of theirs has fallen.

    As many points are read for each leaf; a short one's neighbours are read with it, which does no harm.
    """
    order, bound, candidate, weight = tree.order, packet.bound, growth.candidate, growth.weight
    a = min(tree.first[leaf], order.size - packet.distance.size)
    has_fallen = False
    for j in range(m):
        if not _is_concerned(tree, growth, packet, j, leaf):
            continue
        p, own = packet.point[j], packet.component[j]
        to_points(formula, packet.x, j, tree.columns, a, packet.distance)
        nearest = _least_outside(growth.component, own, a, packet.distance)
        if nearest > bound[j]:
            continue
        for c in range(packet.distance.size):
            if packet.distance[c] == nearest and (
                nearest < weight[p] or (nearest == weight[p] and order[a + c] < order[candidate[p]])
            ):
                candidate[p], weight[p] = a + c, nearest
        packet.last[j] = order[candidate[p]]
        if nearest < bound[j]:
            bound[j] = growth.bound[own] = nearest
            has_fallen = True
    return has_fallen


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _least_outside(component, own, a, distance):
    """Make distances to points of a point's own component infinite; returns the least."""
    a, least = np.uint64(a), np.inf
    for c in range(np.uint64(distance.size)):
        distance[c] = distance[c] if component[a + c] != own else np.inf
        least = min(least, distance[c])
    return least

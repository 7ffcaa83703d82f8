"""Borůvka on a k-d tree: the minimum spanning tree of points of few features, on a CPU.

In a round each component looks for its lightest edge to a point outside. Active points of one leaf search together, as
a packet: they step up from their leaf and go down the sibling of each node that they come from, as far as any of them
has to. Nodes whose points are all of the packet's one component are passed over. An edge that is found bounds the
components of both its ends, for all their points, and what a point has learnt in one round serves it in the next:

- its candidate, the lightest edge found, which bounds its component again as long as it leaves it;
- its floor: no edge to a point outside its component is lighter, and components only grow. It need not search while its
  candidate attains it, or while its component has a lighter edge.

The largest component can wait, and so can all that are much larger than the mean: those that search do merge.
Points go by their positions in the tree; their ids matter where weights tie. Edges weigh surrogate distances or, if
there are core distances, mutual reachability.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from rapids_slink.neighbors.exact.formulas import box_to_box, to_boxes, to_points
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.neighbors.trees.kdtree import TreeSearch
from rapids_slink.neighbors.trees.tree import LEAF, Tree, least_of_nodes
from rapids_slink.ordering import edge_code, lighter, sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.threads import Progress, for_each_chunk
from rapids_slink.union_find import find_root

MIN_CHUNK, MAX_CHUNKS = 1024, 64  # points that a thread searches at a time
#: Components of more points than so many times the mean wait in a round.
MAX_SIZE = 4.0
#: Core distances by position, and the least of each node.
Cores = tuple[np.ndarray, np.ndarray] | None
UNBOUNDED = np.finfo(np.float64).max
#: At the peak, in bytes a point: what is known of it, and the edges while they are sorted.
POINT_BYTES = 112


class Growth(NamedTuple):
    """What is known while the tree grows, by position in the k-d tree if not by root or node; a root is a position.

    Attributes
    ----------
    component : int32 array
        The root of each point's component.
    candidate : int32 array
        The other end of the point's lightest known edge that leaves its component, or -1.
    weight : float64 array
        What that edge weighs.
    floor : float64 array
        No edge from the point to one outside its component weighs less.
    bound : float64 array
        By root, what some edge that leaves the component weighs.
    size : int32 array
        By root, how many points.
    chosen : int32 array
        By root, the point whose candidate is the lightest edge that leaves the component, or -1.
    node_component : int32 array
        By node, the component that all its points share, or -1.
    """

    component: np.ndarray
    candidate: np.ndarray
    weight: np.ndarray
    floor: np.ndarray
    bound: np.ndarray
    size: np.ndarray
    chosen: np.ndarray
    node_component: np.ndarray


class Packet(NamedTuple):
    """Points that search together, by lane, and room for what they look at.

    Attributes
    ----------
    point, component : int32 arrays
    x : (d, LEAF) float64 array, their features
    low, high : (d,) float64 arrays, their bounding box
    bound : float64 array
        The lowest bound that each has searched under; below any weight in a lane without a point.
    gap : float64 array, how far each is from a leaf's box
    distance : float64 array, of one of them and some points of a leaf
    nodes, gaps : int64 and float64 arrays, the nodes to search, and how far they are from the packet's box
    """

    point: np.ndarray
    component: np.ndarray
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bound: np.ndarray
    gap: np.ndarray
    distance: np.ndarray
    nodes: np.ndarray
    gaps: np.ndarray


def estimate_tree(n: int) -> MemoryEstimate:
    """Bytes of `tree_of_boxes` of n points beside the search's own."""
    return MemoryEstimate(POINT_BYTES * n)


def tree_of_boxes(search: TreeSearch, core: np.ndarray | None, report: Report) -> PreallocatedFrame:
    """The minimum spanning tree of all pairs.

    Parameters
    ----------
    search : TreeSearch
        Of the points.
    core : (n,) float64 array, optional
        By row, core distances: edges weigh mutual reachability then.
    report : Report

    Returns
    -------
    PreallocatedFrame
        n - 1 edges in the total order, weighing surrogate distances or mutual reachability.
    """
    tree, formula = search.tree, search.metric.cpu_formula
    n = components = tree.order.size
    edges = PreallocatedFrame.empty(CPU, n - 1, EDGE_TYPES)
    core = None if core is None else core[tree.order]
    cores = None if core is None else (core, least_of_nodes(tree.first, tree.last, core))
    growth, largest = _nothing_known(tree, cores), -1
    while components > 1:
        most = MAX_SIZE * n / components
        active = _begin_round(tree.first, tree.last, growth, most, largest)
        for_each_chunk(
            CPU,
            lambda at, active=active: _search(formula, tree, growth, cores, active[at]),
            equal_slices(slice(0, active.size), max(MIN_CHUNK, active.size // MAX_CHUNKS)),
            Progress("Searching crossing edges", active.size) if search.progress else None,
        )
        columns = tuple(column[n - components :] for column in edges.columns.values())
        taken, largest = _merge(tree.order, growth, most, largest, columns)
        components -= taken
        report.count("spanning_tree", rounds=1, rows_searched=active.size)
    sort_in_place(edges.columns, np)
    return edges


def _nothing_known(tree: Tree, cores: Cores) -> Growth:
    """Every point a component of its own."""
    n, nodes = tree.order.size, tree.first.size
    return Growth(
        component=np.arange(n, dtype=np.int32),
        candidate=np.full(n, -1, np.int32),
        weight=np.full(n, np.inf),
        floor=np.zeros(n) if cores is None else cores[0].copy(),
        bound=np.empty(n),
        size=np.ones(n, np.int32),
        chosen=np.empty(n, np.int32),
        node_component=np.full(nodes, -1, np.int32),
    )


@njit(cache=True, forceinline=True)
def _waits(root, size, most, largest):
    """Whether a component does not search in this round."""
    return size[root] > most or root == largest


@njit(nogil=True, cache=True)
def _begin_round(first, last, growth, most, largest):
    """Bound components by the candidates that still leave them; returns the active points, ascending."""
    component, candidate, weight, floor, bound, size, chosen, node_component = growth
    n = component.size
    _update_nodes(first, last, component, node_component)
    for p in range(n):
        bound[p], chosen[p] = UNBOUNDED, -1
    for p in range(n):
        if candidate[p] >= 0:
            own, other = component[p], component[candidate[p]]
            if own == other:
                candidate[p] = -1
            else:
                bound[own], bound[other] = min(bound[own], weight[p]), min(bound[other], weight[p])
    active, m = np.empty(n, np.int32), 0
    for p in range(n):
        own = component[p]
        is_known = candidate[p] >= 0 and weight[p] == floor[p]
        if not is_known and floor[p] <= bound[own] and not _waits(own, size, most, largest):
            active[m] = p
            m += 1
    return active[:m].copy()


@njit(nogil=True, cache=True)
def _update_nodes(first, last, component, node_component):
    """The component that all points of a node share: they do for good once they do."""
    nodes = first.size
    for v in range(nodes - 1, -1, -1):
        if node_component[v] >= 0:
            node_component[v] = component[first[v]]
        elif 2 * v + 1 < nodes:
            left, right = node_component[2 * v + 1], node_component[2 * v + 2]
            node_component[v] = left if left == right else -1
        else:
            shared = component[first[v]]
            for p in range(first[v], last[v]):
                if component[p] != shared:
                    shared = -1
                    break
            node_component[v] = shared


@njit(nogil=True, cache=True)
def _search(formula, tree, growth, cores, active):
    """Find the candidates of active points, and raise their floors.

    Several threads lower bounds without a lock: a value read late or an update lost leaves a bound that is too high,
    which costs time and never an edge. A point's floor is by the bounds that its own search has read.
    """
    columns, order, _, first, last, _, _, _ = tree
    d, n, leaves = columns.shape[0], order.size, first.size // 2
    packet = Packet(
        np.empty(LEAF, np.int32), np.empty(LEAF, np.int32), np.zeros((d, LEAF)), np.empty(d), np.empty(d),
        np.empty(LEAF), np.empty(LEAF), np.empty(min(LEAF, n)), np.empty(128, np.int64), np.empty(128),
    )  # fmt: skip
    leaf, begin = 0, 0
    while active.size and leaf < leaves:
        leaf = 2 * leaf + 1 if active[0] < last[2 * leaf + 1] else 2 * leaf + 2
    while begin < active.size:
        while active[begin] >= last[leaf]:
            leaf += 1
        end = begin + 1
        while end < active.size and active[end] < last[leaf]:
            end += 1
        shared = _load(columns, growth, active, begin, end, packet)
        _climb(formula, tree, growth, cores, packet, end - begin, shared, leaf)
        for j in range(end - begin):
            p = packet.point[j]
            growth.floor[p] = max(growth.floor[p], min(growth.weight[p], packet.bound[j]))
        begin = end


@njit(nogil=True, cache=True, forceinline=True)
def _load(columns, growth, active, begin, end, packet):
    """Put some active points into the packet, without candidates; returns the component that they share, or -1."""
    point, component, x, low, high, bound = packet[:6]
    shared = growth.component[active[begin]]
    bound[:] = -1.0
    for j in range(end - begin):
        p = active[begin + j]
        point[j], component[j], bound[j] = p, growth.component[p], UNBOUNDED
        growth.candidate[p], growth.weight[p] = -1, np.inf
        shared = shared if component[j] == shared else -1
    for f in range(x.shape[0]):
        low[f], high[f] = np.inf, -np.inf
        for j in range(end - begin):
            x[f, j] = columns[f, point[j]]
            low[f], high[f] = min(low[f], x[f, j]), max(high[f], x[f, j])
    return shared


@njit(nogil=True, cache=True, forceinline=True)
def _climb(formula, tree, growth, cores, packet, m, shared, leaf):
    """Search the whole tree, from the leaf of m points on.

    Of two children at one distance that with the least row comes first: among equal points few are compared then.
    """
    least, leaves = tree.least, tree.first.size // 2
    nodes, gaps = packet.nodes, packet.gaps
    reach = _tighten(growth, packet, m)
    v = visit = leaf
    while True:
        nodes[0], gaps[0], height = visit, _gap(formula, tree, growth, cores, packet, visit), 1
        while height:
            height -= 1
            node, gap = nodes[height], gaps[height]
            is_own = growth.node_component[node] == shared and shared >= 0
            if gap > reach or is_own or (gap == reach and _comes_late(tree, growth, packet, m, node, reach)):
                continue
            if node < leaves:
                farther, nearer = 2 * node + 1, 2 * node + 2
                farther_gap = _gap(formula, tree, growth, cores, packet, farther)
                nearer_gap = _gap(formula, tree, growth, cores, packet, nearer)
                if farther_gap < nearer_gap or (farther_gap == nearer_gap and least[farther] < least[nearer]):
                    farther, nearer, farther_gap, nearer_gap = nearer, farther, nearer_gap, farther_gap
                nodes[height], gaps[height] = farther, farther_gap
                height += farther_gap <= reach
                nodes[height], gaps[height] = nearer, nearer_gap
                height += nearer_gap <= reach
            elif _search_leaf(formula, tree, growth, cores, packet, m, node):
                reach = _tighten(growth, packet, m)
        if v == 0:
            return
        visit = v + 1 if v % 2 else v - 1
        v = (v - 1) // 2


@njit(nogil=True, cache=True, forceinline=True)
def _gap(formula, tree, growth, cores, packet, node):
    """No pair of a point of the packet and one of the node weighs less."""
    gap = box_to_box(formula, packet.low, packet.high, tree.low, tree.high, node)
    if cores is None:
        return gap
    return max(gap, cores[1][node])


@njit(nogil=True, cache=True, forceinline=True)
def _tighten(growth, packet, m):
    """Take over the bounds of the points' components; returns the largest."""
    reach = 0.0
    for j in range(m):
        packet.bound[j] = min(packet.bound[j], growth.bound[packet.component[j]])
        reach = max(reach, packet.bound[j])
    return reach


@njit(nogil=True, cache=True)
def _comes_late(tree, growth, packet, m, node, weight):
    """Whether edges of this weight to a node's points come after the candidates of all whose bound it is."""
    for j in range(m):
        p = packet.point[j]
        if packet.bound[j] == weight and not (
            growth.weight[p] == weight and tree.least[node] >= tree.order[growth.candidate[p]]
        ):
            return False
    return True


@njit(nogil=True, cache=True, forceinline=True)
def _search_leaf(formula, tree, growth, cores, packet, m, leaf):
    """The candidates of m points among those of a leaf; returns whether a bound of theirs has fallen.

    The points that are looked at are as many for each leaf: those after it, or before the last one, are as good.
    """
    order, bound, candidate = tree.order, packet.bound, growth.candidate
    a = min(tree.first[leaf], order.size - packet.distance.size)
    to_boxes(formula, packet.x, tree.low, tree.high, leaf, packet.gap)
    has_fallen = False
    for j in range(m):
        p, own, gap = packet.point[j], packet.component[j], packet.gap[j]
        if cores is not None:
            gap = max(gap, cores[0][p], cores[1][leaf])
        if gap > bound[j] or growth.node_component[leaf] == own:
            continue
        if gap == growth.weight[p] and tree.least[leaf] >= order[candidate[p]]:
            continue
        to_points(formula, packet.x, j, tree.columns, a, packet.distance)
        nearest = _least_outside(growth.component, cores, p, own, a, packet.distance)
        if nearest > bound[j]:
            continue
        for c in range(packet.distance.size):
            if packet.distance[c] == nearest and (
                nearest < growth.weight[p] or (nearest == growth.weight[p] and order[a + c] < order[candidate[p]])
            ):
                candidate[p], growth.weight[p] = a + c, nearest
        if nearest < bound[j]:
            bound[j] = growth.bound[own] = nearest
            has_fallen = True
        across = growth.component[candidate[p]]
        growth.bound[across] = min(growth.bound[across], growth.weight[p])
    return has_fallen


@njit(nogil=True, cache=True, forceinline=True, fastmath={"nnan", "nsz", "reassoc"})
def _least_outside(component, cores, p, own, a, distance):
    """Turn distances of point p into weights, infinite within its component, and return the least."""
    a, least = np.uint64(a), np.inf
    if cores is not None:
        core = cores[0]
        for c in range(np.uint64(distance.size)):
            distance[c] = max(distance[c], core[p], core[a + c])
    for c in range(np.uint64(distance.size)):
        distance[c] = distance[c] if component[a + c] != own else np.inf
        least = min(least, distance[c])
    return least


@njit(nogil=True, cache=True)
def _merge(order, growth, most, largest, edges):
    """Merge each component that has searched along its lightest edge; returns how many edges, and the largest root."""
    component, candidate, weight, _, bound, size, chosen, _ = growth
    (src, dst, weights), n, m = edges, component.size, 0
    for p in range(n):
        if candidate[p] >= 0:
            code = edge_code(order[p], order[candidate[p]])
            for root in (component[p], component[candidate[p]]):
                if weight[p] <= bound[root]:
                    q = chosen[root]
                    if q < 0 or lighter(weight[p], code, weight[q], edge_code(order[q], order[candidate[q]])):
                        chosen[root] = p
    for root in range(n):
        p = chosen[root]
        if p >= 0 and not _waits(root, size, most, largest):
            a, b = find_root(component, p), find_root(component, candidate[p])
            if a != b:  # equal when the other side has taken the same edge
                component[max(a, b)] = min(a, b)
                u, v = order[p], order[candidate[p]]
                src[m], dst[m], weights[m] = min(u, v), max(u, v), weight[p]
                m += 1
    size[:] = 0
    for p in range(n):
        component[p] = find_root(component, p)
        size[component[p]] += 1
    return m, size.argmax()

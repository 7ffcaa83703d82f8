"""The rounds on a CPU, on a k-d tree.

Points go by their positions in the tree; their ids matter where weights tie.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from rapids_slink.neighbors.task import SearchTask
from rapids_slink.neighbors.trees.kdtree import TreeSearch
from rapids_slink.neighbors.trees.tree import Tree, update_node_groups
from rapids_slink.ordering import edge_code, lighter
from rapids_slink.report import Report
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.threads import Progress, chunks_for_cores, for_each_chunk
from rapids_slink.spanning_tree.boxes import packets
from rapids_slink.union_find import find_root

NEAREST = 7  # others that each point knows from the start: few points search again, and longer lists take more time
MIN_CHUNK, MAX_CHUNK = 512, 8192  # points that a thread searches at a time
MIN_PASSED = 2**14  # points that a thread passes over before a round, at least
BOUNDING_STRIDE = 1024  # one in so many points of components without a bound searches before the others
UNBOUNDED = np.finfo(np.float64).max


class Growth(NamedTuple):
    """What is known while the tree grows, by position in the k-d tree if not by root or node; a root is a position.

    Attributes
    ----------
    component : int32 array
        The root of each point's component.
    nearest, distance : (n, k) int32 and float64 arrays
        Each point's nearest others in the total order, and their distances; -1 in front once they are of no more use.
    candidate : int32 array
        The other end of the point's lightest known edge that leaves its component, or -1.
    weight : float64 array
        What that edge weighs.
    floor : float64 array
        No edge from the point to one outside its component weighs less.
    bound : float64 array
        By root, what some edge that leaves the component weighs.
    chosen : int32 array
        By root, the point whose candidate is the lightest edge that leaves the component, or -1.
    node_component : int32 array
        By node, the component that all its points share, or -1.
    """

    component: np.ndarray
    nearest: np.ndarray
    distance: np.ndarray
    candidate: np.ndarray
    weight: np.ndarray
    floor: np.ndarray
    bound: np.ndarray
    chosen: np.ndarray
    node_component: np.ndarray


def tree_of_boxes(search: TreeSearch, report: Report) -> PreallocatedFrame:
    """As `rapids_slink.spanning_tree.boxes.tree_of_boxes`."""
    tree = search.tree
    n = components = tree.order.size
    edges = PreallocatedFrame.empty(CPU, n - 1, EDGE_TYPES)
    growth, largest = _nearest_known(search), -1
    report.count("spanning_tree", rows_searched=n)
    while components > 1:
        active = _begin_round(tree, growth, largest)
        _find_candidates(search, growth, active)
        columns = tuple(column[n - components :] for column in edges.columns.values())
        taken, largest = _merge(tree.order, growth, largest, columns)
        components -= taken
        report.count("spanning_tree", rounds=1, rows_searched=active.size)
    return edges


def _nearest_known(search: TreeSearch) -> Growth:
    """Every point a component of its own, with its nearest others."""
    order, nodes = search.tree.order, search.tree.first.size
    n = order.size
    rows = np.arange(n, dtype=np.int32)
    lists = search.find(SearchTask(order, min(NEAREST, n - 1), rows, rows))
    nearest, distance = lists.ids, lists.weights
    search.tree.position.take(nearest, out=nearest, mode="clip")  # else `out` is copied
    weight = distance[:, 0].copy()
    return Growth(
        component=rows,
        nearest=nearest,
        distance=distance,
        candidate=nearest[:, 0].copy(),
        weight=weight,
        floor=weight.copy(),
        bound=np.empty(n),
        chosen=np.empty(n, np.int32),
        node_component=np.full(nodes, -1, np.int32),
    )


def _find_candidates(search: TreeSearch, growth: Growth, active: np.ndarray) -> None:
    """Of components without a bound, which may be large, a few points search first and bound them, and then all."""
    few = active[growth.bound[growth.component[active]] == UNBOUNDED][::BOUNDING_STRIDE].copy()
    for points in filter(len, (few, active)):
        for_each_chunk(
            CPU,
            partial(packets.search, search.metric.cpu_formula, search.tree, growth),
            [points[at] for at in chunks_for_cores(points.size, MIN_CHUNK, MAX_CHUNK)],
            Progress("Searching crossing edges", points.size) if search.progress else None,
        )


def _begin_round(tree: Tree, growth: Growth, largest: int) -> np.ndarray:
    """Bound components by the candidates that still leave them; returns the active points, ascending."""
    update_node_groups(tree.first, tree.last, growth.component, growth.node_component)
    growth.bound.fill(UNBOUNDED)
    growth.chosen.fill(-1)
    parts = chunks_for_cores(growth.component.size, MIN_PASSED)
    for_each_chunk(CPU, lambda part: _bound_components(growth, largest, part.start, part.stop), parts)
    active = for_each_chunk(CPU, lambda part: _active_points(growth, largest, part.start, part.stop), parts)
    return np.concatenate(active)


@njit(nogil=True, cache=True)
def _bound_components(growth, largest, begin, end):
    """Bound components by the candidates of some points; a lost update costs time, never an edge."""
    component, _, _, candidate, weight, _, bound, _, _ = growth
    for p in range(np.uint64(begin), np.uint64(end)):
        own = component[p]
        if candidate[p] >= 0 and own != largest:
            if component[candidate[p]] == own:
                _next_candidate(growth, p)
            if candidate[p] >= 0:
                bound[own] = min(bound[own], weight[p])


@njit(nogil=True, cache=True)
def _active_points(growth, largest, begin, end):
    """Those of some points that have to search, ascending."""
    component, _, _, candidate, weight, floor, bound, _, _ = growth
    active, m = np.empty(end - begin, np.int32), 0
    for p in range(np.uint64(begin), np.uint64(end)):
        own = component[p]
        active[m] = p
        m += (own != largest) & (floor[p] <= bound[own]) & ((candidate[p] < 0) | (weight[p] > floor[p]))
    return active[:m]


@njit(nogil=True, cache=True, forceinline=True)
def _next_candidate(growth, p):
    """The nearest known point of another component; if there is none, no such point is nearer than the last known."""
    component, nearest, distance, candidate, weight, floor = growth[:6]
    candidate[p], k = -1, nearest.shape[1]
    if nearest[p, 0] < 0:
        return
    for e in range(k):
        if component[nearest[p, e]] != component[p]:
            candidate[p], weight[p], floor[p] = nearest[p, e], distance[p, e], distance[p, e]
            return
    floor[p], nearest[p, 0] = distance[p, k - 1], -1


@njit(nogil=True, cache=True)
def _merge(order, growth, largest, edges):
    """Merge each component that has searched along its lightest edge; returns how many edges, and the largest root."""
    component, _, _, candidate, weight, _, bound, chosen, _ = growth
    (src, dst, weights), n, m = edges, component.size, 0
    for p in range(n):
        own = component[p]
        if own != largest and candidate[p] >= 0 and weight[p] <= bound[own]:
            q, code = chosen[own], edge_code(order[p], order[candidate[p]])
            if q < 0 or lighter(weight[p], code, weight[q], edge_code(order[q], order[candidate[q]])):
                chosen[own] = p
    for root in range(n):
        p = chosen[root]
        if p >= 0:
            a, b = find_root(component, p), find_root(component, candidate[p])
            if a != b:  # equal when the other side has taken the same edge
                component[max(a, b)] = min(a, b)
                u, v = order[p], order[candidate[p]]
                src[m], dst[m], weights[m] = min(u, v), max(u, v), weight[p]
                m += 1
    size = np.zeros(n, np.int32)
    for p in range(n):
        component[p] = component[component[p]]  # a root is the least of its component: those before p are done
        size[component[p]] += 1
    return m, size.argmax()

"""Borůvka on a k-d tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.formulas import box_to_box, to_boxes, to_points
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.neighbors.trees.tree import LEAF, build
from rapids_slink.ordering import edge_code, sort_in_place
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.threads import for_each_chunk
from rapids_slink.union_find import find_root

CHUNK = 4096
MOST = np.finfo(np.float64).max
ANY_ID = np.iinfo(np.int32).max


class State(NamedTuple):
    component: np.ndarray
    candidate: np.ndarray
    weight: np.ndarray
    floor: np.ndarray
    bound: np.ndarray
    chosen: np.ndarray
    node_component: np.ndarray


FACTOR = 4.0
STATS = None


def tree_of_points(values: np.ndarray, metric: Metric) -> PreallocatedFrame:
    import time
    t0 = time.perf_counter()
    n = len(values)
    tree = build(values)
    t1 = time.perf_counter()
    formula = metric.cpu_formula
    state = State(
        np.arange(n, dtype=np.int32),
        np.full(n, -1, np.int32),
        np.full(n, np.inf),
        np.zeros(n),
        np.full(n, MOST),
        np.empty(n, np.int32),
        np.full(tree.first.size, -1, np.int32),
    )
    edges = PreallocatedFrame.empty(CPU, n - 1, EDGE_TYPES)
    src, dst, weight = edges.columns.values()
    taken, components, largest = 0, n, -1
    sizes = np.ones(n, np.int64)
    ts = [0.0, 0, 0]
    rounds = []
    while components > 1:
        a = time.perf_counter()
        most = FACTOR * n / components
        active = _prepare(tree.first, tree.last, state, sizes, most, largest)
        b = time.perf_counter()
        ts[0] += b - a
        for_each_chunk(
            CPU, lambda at: _search(formula, tree, state, active[at]), equal_slices(slice(0, active.size), CHUNK)
        )
        c = time.perf_counter()
        ts[1] += c - b
        merged, largest = _merge(tree.order, state, sizes, most, largest, src, dst, weight, taken)
        ts[2] += time.perf_counter() - c
        rounds.append((components, active.size, round((c-b)*1e3,1)))
        taken += merged
        components -= merged
    t2 = time.perf_counter()
    sort_in_place(edges.columns, np)
    if STATS is not None:
        STATS.append(("build %.1f rounds %.1f sort %.1f" % ((t1 - t0) * 1e3, (t2 - t1) * 1e3, (time.perf_counter() - t2) * 1e3), [round(t * 1e3, 1) for t in ts], rounds))
    return edges


@njit(nogil=True, cache=True)
def _prepare(first, last, state, sizes, most, largest):
    component, candidate, weight, floor, bound, chosen, node_component = state
    n, nodes = component.size, first.size
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
    for p in range(n):
        bound[p], chosen[p] = MOST, -1
    for p in range(n):
        own, other = component[p], candidate[p]
        if other >= 0:
            across = component[other]
            if across == own:
                candidate[p] = -1
            else:
                bound[own] = min(bound[own], weight[p])
                bound[across] = min(bound[across], weight[p])
    active, m = np.empty(n, np.int32), 0
    for p in range(n):
        own = component[p]
        exact = candidate[p] >= 0 and weight[p] == floor[p]
        if not exact and floor[p] <= bound[own] and searched(sizes[own], most, own, largest):
            active[m] = p
            m += 1
    return active[:m]


@njit(nogil=True, cache=True)
def _search(formula, tree, state, active):
    columns, order, _, first, last, low, high, least = tree
    component, candidate, weight, floor, bound, chosen, node_component = state
    d, n = columns.shape[0], order.size
    leaves = first.size // 2
    distance, limits, gap, own = np.empty(LEAF), np.empty(LEAF), np.empty(LEAF), np.empty(LEAF, np.int32)
    x = np.zeros((d, LEAF))
    stack, gaps = np.empty(128, np.int64), np.empty(128)
    box_low, box_high = np.empty(d), np.empty(d)
    leaf, begin = 0, 0
    while active.size and leaf < leaves:
        leaf = 2 * leaf + 1 if active[0] < last[2 * leaf + 1] else 2 * leaf + 2
    while begin < active.size:
        while active[begin] >= last[leaf]:
            leaf += 1
        m = 1
        while m < LEAF and begin + m < active.size and active[begin + m] < last[leaf]:
            m += 1
        limits[:] = -1.0
        shared = component[active[begin]]
        for j in range(m):
            p = active[begin + j]
            own[j], limits[j] = component[p], MOST
            candidate[p], weight[p] = -1, np.inf
            if own[j] != shared:
                shared = -1
        for f in range(d):
            box_low[f], box_high[f] = np.inf, -np.inf
            for j in range(m):
                x[f, j] = columns[f, active[begin + j]]
                box_low[f], box_high[f] = min(box_low[f], x[f, j]), max(box_high[f], x[f, j])
        reach = _tighten(own, m, bound, limits)
        v = visit = leaf
        while True:
            stack[0], gaps[0], height = visit, box_to_box(formula, box_low, box_high, low, high, visit), 1
            while height:
                height -= 1
                node = stack[height]
                if gaps[height] > reach or (node_component[node] == shared and shared >= 0):
                    continue
                if node < leaves:
                    farther, nearer = 2 * node + 1, 2 * node + 2
                    farther_gap = box_to_box(formula, box_low, box_high, low, high, farther)
                    nearer_gap = box_to_box(formula, box_low, box_high, low, high, nearer)
                    if farther_gap < nearer_gap or (farther_gap == nearer_gap and least[farther] < least[nearer]):
                        farther, nearer, farther_gap, nearer_gap = nearer, farther, nearer_gap, farther_gap
                    stack[height], gaps[height] = farther, farther_gap
                    height += farther_gap <= reach
                    stack[height], gaps[height] = nearer, nearer_gap
                    height += nearer_gap <= reach
                    continue
                improved = False
                a = min(first[node], n - LEAF)
                if m > 1:
                    to_boxes(formula, x, low, high, node, gap)
                else:
                    gap[0] = gaps[height]
                for j in range(m):
                    if gap[j] > limits[j] or node_component[node] == own[j]:
                        continue
                    p = active[begin + j]
                    if gap[j] == weight[p] and least[node] >= order[candidate[p]]:
                        continue
                    to_points(formula, x, j, columns, a, distance)
                    nearest = _least_foreign(component, own[j], a, distance)
                    if nearest <= limits[j]:
                        other, at = candidate[p], weight[p]
                        for c in range(LEAF):
                            if distance[c] == nearest and component[a + c] != own[j]:
                                if nearest < at or (nearest == at and order[a + c] < order[other]):
                                    other, at = a + c, nearest
                        candidate[p], weight[p] = other, at
                        if at < limits[j]:
                            bound[own[j]] = limits[j] = at
                            improved = True
                        if at < bound[component[other]]:
                            bound[component[other]] = at
                if improved:
                    reach = _tighten(own, m, bound, limits)
            if v == 0:
                break
            visit = v + 1 if v % 2 else v - 1
            v = (v - 1) // 2
        for j in range(m):
            p = active[begin + j]
            floor[p] = max(floor[p], min(weight[p], limits[j]))
        begin += m


@njit(nogil=True, cache=True, forceinline=True, fastmath={"nnan", "nsz", "reassoc"})
def _least_foreign(component, own, a, distance):
    least = np.inf
    a = np.uint64(a)
    for c in range(np.uint64(LEAF)):
        least = min(least, distance[c] if component[a + c] != own else np.inf)
    return least


@njit(nogil=True, cache=True)
def _merge(order, state, sizes, most, largest, src, dst, weights, taken):
    component, candidate, weight, floor, bound, chosen, node_component = state
    n = component.size
    for p in range(n):
        if candidate[p] < 0:
            continue
        own, across = component[p], component[candidate[p]]
        for c in (own, across):
            if weight[p] > bound[c]:
                continue
            q = chosen[c]
            if q < 0 or weight[p] < weight[q] or (weight[p] == weight[q] and edge_code(order[p], order[candidate[p]]) < edge_code(order[q], order[candidate[q]])):
                chosen[c] = p
    m = taken
    for c in range(n):
        if component[c] != c or chosen[c] < 0 or not searched(sizes[c], most, c, largest):
            continue
        p = chosen[c]
        a, b = find_root(component, p), find_root(component, candidate[p])
        if a != b:
            component[max(a, b)] = min(a, b)
            u, v = order[p], order[candidate[p]]
            src[m], dst[m], weights[m] = min(u, v), max(u, v), weight[p]
            m += 1
    for p in range(n):
        sizes[p] = 0
    for p in range(n):
        component[p] = find_root(component, p)
        sizes[component[p]] += 1
    return m - taken, sizes.argmax()


@njit(inline="always")
def searched(size, most, root, largest):
    return size <= most and root != largest


@njit(nogil=True, cache=True, forceinline=True)
def _tighten(own, m, bound, limits):
    reach = 0.0
    for j in range(m):
        limits[j] = min(limits[j], bound[own[j]])
        reach = max(reach, limits[j])
    return reach

"""The spanning-tree kernels on the CPU, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rapids_slink.ordering import NO_EDGE, edge_code, lighter


def connected_components(ids: np.ndarray) -> int:
    """How many connected components the undirected graph of neighbour lists has."""
    return int(_count_components(ids))


def propose(lists: Any, state: Any) -> tuple[int, int]:
    """One round's lightest known edge of each component, and whether it is certified; fills the state's arrays.

    Returns
    -------
    components, certified : int
    """
    s = state
    return _propose(
        lists.ids, lists.weights, s.component, s.cursor, s.found, s.found_weight,
        s.bound_weight, s.bound_code, s.best_weight, s.best_code, s.certified,
    )  # fmt: skip


def choose(state: Any) -> None:
    """Merge every certified component along its edge, and add the edges to those taken, each once."""
    s = state
    parent = np.empty_like(s.component)
    _choose(s.component, s.best_weight, s.best_code, s.certified, parent, s.src, s.dst, s.weight, s.taken)


def unsure_rows(state: Any) -> np.ndarray:
    """The points of uncertified components, but the largest, that may have an edge below their component's best."""
    s = state
    largest = np.bincount(s.component).argmax()
    return _unsure_rows(
        s.component, s.certified, largest, s.bound_weight, s.bound_code, s.best_weight, s.best_code
    )  # fmt: skip


def learn(state: Any, rows: np.ndarray, found: Any) -> None:
    """Keep what a search for each row's nearest outside point has found, and the bounds that it has raised.

    Where nothing was found all outside points are above the bound that was reached, whatever their ids.
    """
    s = state
    ids, weights = found.ids.ravel(), found.weights.ravel()
    _learn(rows, ids, weights, found.upper, s.found, s.found_weight, s.bound_weight, s.bound_code)


@njit(cache=True, inline="always")
def root(parent, v):
    """The root of v's tree; what it passes comes nearer to it."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True)
def _count_components(ids):
    n, k = ids.shape
    parent = np.arange(n, dtype=np.int32)
    count = n
    for v in range(n):
        a = root(parent, v)
        for c in range(k):
            b = root(parent, ids[v, c])
            if a != b:
                parent[max(a, b)] = a = min(a, b)
                count -= 1
    return count


@njit(cache=True)
def _propose(
    ids, weights, component, cursor, found, found_weight, bound_weight, bound_code, best_weight, best_code, certified
):
    n, k = ids.shape
    components = 0
    for v in range(n):
        if component[v] == v:
            best_weight[v], best_code[v], certified[v] = np.inf, NO_EDGE, True
            components += 1
    for v in range(n):
        mine = component[v]
        at = cursor[v]
        while at < k and component[ids[v, at]] == mine:
            at += 1
        cursor[v] = at
        weight, code, other = np.inf, NO_EDGE, -1
        if at < k:
            other, weight = ids[v, at], weights[v, at]
            code = edge_code(v, other)
        if found[v] >= 0 and component[found[v]] != mine:
            again = edge_code(v, found[v])
            if lighter(found_weight[v], again, weight, code):
                other, weight, code = found[v], found_weight[v], again
        if other < 0:
            continue
        theirs = component[other]
        if lighter(weight, code, best_weight[mine], best_code[mine]):
            best_weight[mine], best_code[mine] = weight, code
        if lighter(weight, code, best_weight[theirs], best_code[theirs]):
            best_weight[theirs], best_code[theirs] = weight, code
    for v in range(n):
        mine = component[v]
        if lighter(bound_weight[v], bound_code[v], best_weight[mine], best_code[mine]):
            certified[mine] = False
    sure = 0
    for v in range(n):
        if component[v] == v and best_code[v] == NO_EDGE:
            certified[v] = False
        sure += component[v] == v and certified[v]
    return components, sure


@njit(cache=True)
def _choose(component, best_weight, best_code, certified, parent, src, dst, weight, taken):
    n, m = component.size, taken[0]
    for v in range(n):
        parent[v] = component[v]
    for c in range(n):
        if component[c] != c or not certified[c]:
            continue
        low, high = best_code[c] >> 32, best_code[c] & 0xFFFFFFFF
        a, b = root(parent, low), root(parent, high)
        if a != b:  # equal when the other side has taken the same edge
            parent[max(a, b)] = min(a, b)
            src[m], dst[m], weight[m] = low, high, best_weight[c]
            m += 1
    for v in range(n):
        component[v] = root(parent, v)
    taken[0] = m


@njit(cache=True)
def _unsure_rows(component, certified, largest, bound_weight, bound_code, best_weight, best_code):
    rows, m = np.empty(component.size, np.int32), 0
    for v in range(component.size):
        c = component[v]
        if c == largest or certified[c]:
            continue
        if lighter(bound_weight[v], bound_code[v], best_weight[c], best_code[c]):
            rows[m] = v
            m += 1
    return rows[:m]


@njit(cache=True)
def _learn(rows, ids, weights, upper, found, found_weight, bound_weight, bound_code):
    for i in range(rows.size):
        v = rows[i]
        found[v], found_weight[v] = ids[i], weights[i]
        if ids[i] >= 0:
            bound_weight[v], bound_code[v] = weights[i], edge_code(v, ids[i])
        elif upper[i] >= bound_weight[v]:
            bound_weight[v], bound_code[v] = upper[i], NO_EDGE

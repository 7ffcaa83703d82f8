"""The forest's kernels on the CPU, in Numba."""

from typing import Any

import numpy as np

from rapids_slink.ordering import NO_EDGE, edge_code, edge_codes, lighter
from rapids_slink.runtime.compiling import njit
from rapids_slink.spanning_tree.forest import LEAST_SHARE, Growth
from rapids_slink.union_find import find_root


def grow_forest(lists: Any, forest: Any, least_share: int = LEAST_SHARE) -> Growth:
    """Run rounds until the lists certify no more components, or too few. The forest's arrays are updated."""
    f, best, parent = forest, (forest.best_weight, forest.best_code, forest.certified), np.empty_like(forest.component)
    at_first = rounds = chosen = 0
    while True:
        components, certified = _propose_edges(
            lists.ids, lists.weights, f.component, f.cursor, f.nearest_outside, f.nearest_outside_weight,
            f.bound_weight, f.bound_code, *best,
        )  # fmt: skip
        at_first = at_first or components
        if components == 1 or certified < max(1, components / least_share):
            return Growth(at_first - components, rounds, chosen, components)
        _merge_components(f.component, *best, parent, *f.edges.columns.values(), f.n_taken)
        rounds, chosen = rounds + 1, chosen + certified


def rows_to_search(forest: Any) -> np.ndarray:
    """Points of uncertified components, except the largest, that may have a lighter edge than the component's best."""
    f, own = forest, forest.component
    weight, best = f.bound_weight, f.best_weight[own]
    lower = (weight < best) | ((weight == best) & (f.bound_code < f.best_code[own]))
    lower &= ~f.certified[own] & (own != np.bincount(own).argmax())
    return np.flatnonzero(lower).astype(np.int32)


def rows_of_small_components(forest: Any, rows: np.ndarray, max_rows: int) -> np.ndarray:
    """The rows whose component has at most `max_rows` of them."""
    own = forest.component[rows]
    return rows[np.bincount(own)[own] <= max_rows]


def record_search(forest: Any, rows: np.ndarray, result: Any) -> None:
    """Store the result of a search: each row's nearest point outside its component, and its raised lower bound.

    If a row found none, all outside points are above the bound of its search, whatever their ids.
    """
    f, ids, weights = forest, result.ids.ravel(), result.weights.ravel()
    f.nearest_outside[rows], f.nearest_outside_weight[rows] = ids, weights
    listed, none = ids >= 0, (ids < 0) & (result.upper >= f.bound_weight[rows])
    at = rows[listed]
    f.bound_weight[at], f.bound_code[at] = weights[listed], edge_codes(at, ids[listed], np)
    f.bound_weight[rows[none]], f.bound_code[rows[none]] = result.upper[none], NO_EDGE


def connected_components(ids: np.ndarray) -> int:
    """The number of connected components of the undirected graph of neighbour lists."""
    return int(_connect_listed(ids, np.arange(len(ids), dtype=np.int32)))


@njit(cache=True)
def _connect_listed(ids, parent):
    n, k = ids.shape
    count = n
    for v in range(n):
        a = find_root(parent, v)
        for c in range(k):
            b = find_root(parent, ids[v, c])
            if a != b:
                parent[max(a, b)] = a = min(a, b)
                count -= 1
    return count


@njit(cache=True)
def _propose_edges(
    ids, weights, component, cursor, nearest_outside, nearest_outside_weight,
    bound_weight, bound_code, best_weight, best_code, certified,
):  # fmt: skip
    """Find each component's lightest proposal; returns the number of components and how many are certified."""
    n, k = ids.shape
    components = 0
    for v in range(n):
        if component[v] == v:
            best_weight[v], best_code[v], certified[v] = np.inf, NO_EDGE, True
            components += 1
    for v in range(n):
        own = component[v]
        at = cursor[v]
        while at < k and component[ids[v, at]] == own:
            at += 1
        cursor[v] = at
        weight, code, other = np.inf, NO_EDGE, -1
        if at < k:
            other, weight = ids[v, at], weights[v, at]
            code = edge_code(v, other)
        if nearest_outside[v] >= 0 and component[nearest_outside[v]] != own:
            searched = edge_code(v, nearest_outside[v])
            if lighter(nearest_outside_weight[v], searched, weight, code):
                other, weight, code = nearest_outside[v], nearest_outside_weight[v], searched
        if other < 0:
            continue
        across = component[other]
        if lighter(weight, code, best_weight[own], best_code[own]):
            best_weight[own], best_code[own] = weight, code
        if lighter(weight, code, best_weight[across], best_code[across]):
            best_weight[across], best_code[across] = weight, code
    for v in range(n):  # certified unless an edge that a point does not list may come before the best: see forest.py
        own = component[v]
        if lighter(bound_weight[v], bound_code[v], best_weight[own], best_code[own]):
            certified[own] = False
    n_certified = 0
    for v in range(n):
        if component[v] == v and best_code[v] == NO_EDGE:
            certified[v] = False
        n_certified += component[v] == v and certified[v]
    return components, n_certified


@njit(cache=True)
def _merge_components(component, best_weight, best_code, certified, parent, src, dst, weight, n_taken):
    """Merge every certified component along its edge, and append each edge once to the forest's."""
    n, m = component.size, n_taken[0]
    for v in range(n):
        parent[v] = component[v]
    for c in range(n):
        if component[c] != c or not certified[c]:
            continue
        low, high = best_code[c] >> 32, best_code[c] & 0xFFFFFFFF
        a, b = find_root(parent, low), find_root(parent, high)
        if a != b:  # equal if the other side has taken the same edge
            parent[max(a, b)] = min(a, b)
            src[m], dst[m], weight[m] = low, high, best_weight[c]
            m += 1
    for v in range(n):
        component[v] = find_root(parent, v)
    n_taken[0] = m

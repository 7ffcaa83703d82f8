"""The last components all at once: one look at every pair of points instead of a search a round.

A sample of the points gives, quickly, some bridges that join all K components. Let table(A, B) be the heaviest of
these on the way from A to B. A pair of points of A and B that weighs more closes a cycle with bridges that are all
lighter, so it is not in the minimum spanning tree. The pairs that weigh no more are few; with each component taken
for one node, the minimum spanning tree of these pairs is exactly what was missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from rapids_slink.device import Device, to_host
from rapids_slink.neighbors.contract import NeighborLists
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.ordering import sort_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree.forest import ForestState, new_state

MOST_COMPONENTS = 4096  # the table has the square of this many entries
TABLE_BYTES = 48  # an entry, on both sides and while its reach is found
SAMPLED = 16  # one point in so many, and at least
SMALLEST_SAMPLE = 4096

#: Joins the components of a state by rounds of searches; returns the edges.
Rounds = Callable[[NeighborLists, ForestState, TileSearch, Report], Any]


def pays(search: Any, component: Any, components: int, rows: int) -> bool:
    """Whether one pass over all pairs is cheaper than another round of searches for so many `rows`.

    Not where searches go by the fused filter: the pass writes products to memory, which takes longer than rounds do.
    """
    if not isinstance(search, TileSearch) or not search.tests_pairs or components > MOST_COMPONENTS:
        return False
    if search.filter is not None:
        return False
    if TABLE_BYTES * components**2 > search.room:
        return False
    n = component.size
    return n > 2 * SMALLEST_SAMPLE and search.tested_pairs(component) <= rows * n


def join_components(
    search: TileSearch, core: Any, component: Any, rounds: Rounds, device: Device, report: Report
) -> Any:
    """The bridges that make one tree of all components, or None if the sample bounded them too loosely.

    They are the columns of an edge list. `core` is as in a `Task`: each point's, or None.
    """
    xp = device.xp
    roots, number = xp.unique(component, return_inverse=True)
    number = number.astype("int32")
    spread = device.kernels("neighbors").scattered(number.size)[: max(SMALLEST_SAMPLE, number.size // SAMPLED)]
    sample = xp.unique(xp.concatenate([spread, roots]))  # rows spread evenly, and each component's root
    sample_core = None if core is None else core[sample]
    part = TileSearch(search.values[sample], device, Report(), metric=search.metric)
    upper = _bridges_of_sample(part, sample_core, number[sample], rounds, device)
    src, dst = (to_host(number[sample[end]]) for end in upper[:2])
    table = device.asarray(bottlenecks(src, dst, to_host(upper[2]), int(roots.size)))
    found = search.pairs_below(number, table, core)
    if found is None:
        return None
    src, dst, weight = found
    near = xp.flatnonzero(weight <= table[number[src], number[dst]])
    report.count("connect", table_passes=1, pairs_kept=near.size)
    src, dst, weight = sort_edges(src[near], dst[near], weight[near], xp)
    taken, _ = device.kernels("spanning_tree").forest_of_sorted_edges(number[src], number[dst], int(roots.size))
    return src[taken], dst[taken], weight[taken]


def _bridges_of_sample(search: TileSearch, core: Any, number: Any, rounds: Rounds, device: Device) -> Any:
    """Edges among the sampled points that join all components."""
    xp, n = device.xp, number.size
    rows = xp.arange(n, dtype="int32")
    _, first = xp.unique(number, return_index=True)
    state = new_state(rows[first][number], xp.full(n, -xp.inf), xp.zeros(n, "int64"), xp)  # no bound is known yet
    nobody = NeighborLists(xp.empty((n, 0), "int32"), xp.empty((n, 0)), core)
    return rounds(nobody, state, search, Report())


def bottlenecks(src: np.ndarray, dst: np.ndarray, weight: np.ndarray, n: int) -> np.ndarray:
    """The heaviest edge on each path of a tree of n nodes: (n, n) float64, zero on the diagonal."""
    order = np.argsort(weight, kind="stable")
    return _bottlenecks(src[order], dst[order], weight[order], n)


@njit(cache=True)
def _bottlenecks(src: np.ndarray, dst: np.ndarray, weight: np.ndarray, n: int) -> np.ndarray:
    table = np.zeros((n, n))
    label = np.arange(n)
    following, last = np.full(n, -1), np.arange(n)  # each set as a list that starts at its label
    for e in range(src.size):
        a, b = label[src[e]], label[dst[e]]
        u = a
        while u >= 0:
            v = b
            while v >= 0:
                table[u, v] = table[v, u] = weight[e]
                v = following[v]
            u = following[u]
        v = b
        while v >= 0:
            label[v] = a
            v = following[v]
        following[last[a]], last[a] = b, last[b]
    return table

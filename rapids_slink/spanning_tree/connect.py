"""Connect the forest: the bridges that the neighbour lists could not prove.

Each round searches, for every component that is not certified but the largest, the points that may have an edge
below the best one known, for the nearest point outside, bounded by that best. What a search learnt, the point found
and the raised bound, is kept in the forest's state, so that next time `grow` finds each of these components certain of
its lightest leaving edge. When few large components are left, couples/ may join them all at once instead.
"""

from __future__ import annotations

from math import inf
from typing import Any

from rapids_slink.device import Device
from rapids_slink.memory import Need
from rapids_slink.neighbors.contract import NeighborLists, Task
from rapids_slink.ordering import sort_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree.couples import join_components, pays
from rapids_slink.spanning_tree.forest import ForestState, grow, initial_state

#: At the peak, in bytes a point: the state's arrays, a search's task and answer, and its edges while sorted.
WORKSPACE = 192
#: An edge list's columns: src, dst and weight.
Edges = tuple[Any, Any, Any]


def need(n: int, search: Need) -> Need:
    """Bytes that `spanning_tree` of n points takes beside the lists and the `search`'s own; the tree is kept."""
    return Need(WORKSPACE * n, kept=20 * n, chunk=search.chunk)


def spanning_tree(lists: NeighborLists, search: Any, device: Device, report: Report) -> Edges:
    """The minimum spanning tree of all pairs, from the k-NN lists and a search over all points.

    Returns
    -------
    src, dst, weight : arrays of shape (n - 1,)
        Its edges in the total order.
    """
    edges = _join(lists, initial_state(lists, device), search, device, report)
    with report.stage("spanning_tree", device):
        return sort_edges(*edges, device.xp)


def _join(lists: NeighborLists, state: ForestState, search: Any, device: Device, report: Report) -> Edges:
    """The edges that make one tree of the state's components."""
    taken, searched, most_components = 0, False, inf
    while True:
        with report.stage("spanning_tree", device):
            grown, rounds, certified, components = grow(lists, state, device)
            report.count("spanning_tree", rounds=rounds, components_certified=certified)
        if not searched:
            report.count("spanning_tree", edges_certified_by_lists=grown)
        else:
            report.count("connect", edges_certified_by_search=grown)
            if not grown:
                raise RuntimeError("a search has made no component certain of an edge: please report this")
        taken += grown
        if components == 1:
            return state.src[:taken], state.dst[:taken], state.weight[:taken]
        with report.stage("connect", device):
            report.count("connect", rounds=1)
            rows = device.kernels("spanning_tree").unsure_rows(state)
            if components <= most_components and pays(search, components, rows.size, state.component.size):
                bridges = join_components(search, lists.core, state.component, components, rows.size, device, report)
                if bridges is not None:
                    report.count("connect", edges_certified_by_search=components - 1)
                    for bridge, column in zip(bridges, (state.src, state.dst, state.weight), strict=True):
                        device.copy(bridge, column[taken:-1])
                    return state.src[:-1], state.dst[:-1], state.weight[:-1]
                most_components = components / 2  # before it may be worth another try
            _search_bridges(state, rows, search, lists.core, device, report)
            searched = True


def _search_bridges(state: ForestState, rows: Any, search: Any, core: Any, device: Device, report: Report) -> None:
    """For each of the rows the nearest point outside its component, unless its component has a lighter edge."""
    upper = state.best_weight[state.component[rows]]
    found = search.find(Task(rows, 1, state.component, state.component, upper, shared=True, core=core))
    report.count("connect", rows_searched=rows.size)
    device.kernels("spanning_tree").learn(state, rows, found)

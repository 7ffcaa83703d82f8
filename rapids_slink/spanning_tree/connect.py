"""Connect the forest: the bridges that the neighbour lists could not prove.

Each round searches, for every component that is not certified but the largest, the points that may have an edge
below the best one known, for the nearest point outside, bounded by that best. Afterwards each of these components
has its lightest leaving edge, a certain edge of the tree. What a search learnt, the point found and the raised
bound, stays for later rounds. When few large components are left, table.py joins them all in one pass instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rapids_slink.device import Device
from rapids_slink.memory import Need
from rapids_slink.neighbors.contract import NeighborLists, Task
from rapids_slink.ordering import NO_EDGE, edge_codes, edge_ends, sort_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree.forest import ForestState, grow, initial_state
from rapids_slink.spanning_tree.table import SAMPLED, join_components, pays

#: At the peak, in bytes a point: the state's arrays, a search's task and answer, and its edges' frames while sorted.
WORKSPACE = 192


def need(n: int, search: Need) -> Need:
    """Bytes that `spanning_tree` of n points takes beside the lists; the tree is kept.

    `search` is the need of its searches: of their chunks, and of a sample of the points that has one of its own.
    """
    return Need(WORKSPACE * n + search.kept // SAMPLED, kept=20 * n, chunk=search.chunk)


def spanning_tree(lists: NeighborLists, search: Any, device: Device, report: Report) -> Any:
    """The minimum spanning tree of all pairs, from the k-NN lists and a search over all points.

    Returns
    -------
    tree : edge frame
        n - 1 rows in the total order.
    """
    edges = _join(lists, initial_state(lists, device), search, report, device=device)
    with report.stage("spanning_tree", device):
        return sort_edges(edges)


def _join(lists: NeighborLists, state: ForestState, search: Any, report: Report, *, device: Device) -> Any:
    """The edges that make one tree of the state's components."""
    frames = []
    while True:
        with report.stage("spanning_tree", device):
            grown, rounds, certified, components = grow(lists, state, device)
            frames.append(grown)
            report.count(
                "spanning_tree", rounds=rounds, components_certified=certified, edges_certified_by_lists=len(grown)
            )
        if components == 1:
            return device.frames.concat(frames, ignore_index=True)
        with report.stage("connect", device):
            largest = device.kernels("spanning_tree").largest_component(state.component)
            rows = _unsure_rows(lists, state, largest, device)
            bridges = None
            if pays(search, state.component, components, rows.size):
                bridges = join_components(search, state.component, partial(_join, device=device), device, report)
            if bridges is not None:
                state.component[:] = 0
            else:
                nearest = _search_bridges(state, rows, search, device, report)
                bridges = _lightest_of_each_component(state, largest, nearest, device)
                _regroup(state, bridges, device)
                bridges = bridges[["src", "dst", "weight"]].drop_duplicates(["src", "dst"])
            frames.append(bridges)
            report.count("connect", rounds=1, edges_certified_by_search=len(bridges))


def _search_bridges(state: ForestState, rows: Any, search: Any, device: Device, report: Report) -> tuple[Any, Any, Any]:
    """For each of the rows the nearest point outside its component, unless its component has a lighter edge.

    Returns
    -------
    component, code, weight : arrays
        The edges found.
    """
    xp = device.xp
    upper = state.best_weight[state.component[rows]]
    found = search.find(Task(rows, 1, state.component, state.component, upper, shared=True))
    report.count("connect", rows_searched=rows.size)
    ids, weights = found.ids[:, 0], found.weights[:, 0]
    state.found[rows], state.found_weight[rows] = ids, weights
    hit = xp.flatnonzero(ids >= 0)
    at, codes = rows[hit], edge_codes(rows[hit], ids[hit], xp)
    state.bound_weight[at], state.bound_code[at] = weights[hit], codes
    # Where nothing was found all outside points are above the bound that was reached, whatever their ids.
    miss = xp.flatnonzero((ids < 0) & (found.upper >= state.bound_weight[rows]))
    state.bound_weight[rows[miss]], state.bound_code[rows[miss]] = found.upper[miss], NO_EDGE
    return state.component[at], codes, weights[hit]


def _unsure_rows(lists: NeighborLists, state: ForestState, largest: int, device: Device) -> Any:
    """The points of uncertified components, but the largest, that may have an edge below their component's best."""
    xp, mine = device.xp, state.component
    weight, code = state.best_weight[mine], state.best_code[mine]
    below = (state.bound_weight < weight) | ((state.bound_weight == weight) & (state.bound_code < code))
    used_up = state.cursor == lists.ids.shape[1]
    return xp.flatnonzero(below & used_up & ~state.certified[mine] & (mine != largest)).astype("int32")


def _lightest_of_each_component(state: ForestState, largest: int, bridges: tuple[Any, Any, Any], device: Device) -> Any:
    """The lightest edge leaving each component that is certain of it: all that were certified or searched."""
    xp = device.xp
    rows = xp.arange(state.component.size, dtype="int32")
    certain = (state.component == rows) & (state.certified | (rows != largest))
    known = xp.flatnonzero(certain & (state.best_code != NO_EDGE)).astype("int32")
    proposals = known, state.best_code[known], state.best_weight[known]
    component, code, weight = (xp.concatenate(parts) for parts in zip(proposals, bridges, strict=True))
    edges = device.frame({"component": component, "code": code, "weight": weight})
    edges = edges.sort_values(["weight", "code"]).drop_duplicates("component")
    low, high = edge_ends(edges["code"].values)
    return device.frame(
        {"component": edges["component"].values, "src": low, "dst": high, "weight": edges["weight"].values}
    )


def _regroup(state: ForestState, chosen: Any, device: Device) -> None:
    """Relabel the components after each one in `chosen` has joined the one at its edge's other end."""
    xp = device.xp
    component = chosen["component"].values
    ends = state.component[chosen["src"].values], state.component[chosen["dst"].values]
    label = xp.arange(state.component.size, dtype="int32")
    parent = label.copy()
    parent[component] = xp.where(ends[0] == component, ends[1], ends[0])
    # All keys differ, so the only cycles are pairs that chose the same edge: the smaller label becomes their root.
    parent = xp.where((parent[parent] == label) & (label < parent), label, parent)
    for _ in range(parent.size.bit_length() + 1):  # doubling: paths have at most that many bits
        above = parent[parent]
        if bool((above == parent).all()):
            state.component[:] = parent[state.component]
            return
        parent = above
    raise RuntimeError("the components' lightest edges close a cycle: please report this")

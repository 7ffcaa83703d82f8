"""Connect the forest: the bridges that the neighbour lists could not prove.

Each round searches, for every component that is not certified but the largest, the points that may have an edge
below the best one known, for the nearest point outside, bounded by that best. Afterwards each of these components
has its lightest leaving edge, a certain edge of the tree. What a search learnt, the point found and the raised
bound, stays for later rounds.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.device import Device
from rapids_slink.neighbors.contract import NeighborLists, Task
from rapids_slink.ordering import sort_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree.forest import NO_EDGE, ForestState, grow, initial_state


def spanning_tree(lists: NeighborLists, search: Any, device: Device, report: Report) -> Any:
    """The minimum spanning tree of all pairs, from the k-NN lists and a search over all points.

    Returns
    -------
    tree : edge frame
        n - 1 rows in the total order.
    """
    state = initial_state(lists, device)
    frames: list[Any] = []
    while True:
        with report.stage("spanning_tree", device):
            components = _grow(lists, state, frames, device, report)
        if components == 1:
            break
        with report.stage("connect", device):
            largest = int(device.xp.bincount(state.component).argmax())
            bridges = _search_bridges(lists, state, largest, search, device, report)
            chosen = _lightest_of_each_component(state, largest, bridges, device)
            _regroup(state, chosen, device)
            frames.append(chosen[["src", "dst", "weight"]].drop_duplicates(["src", "dst"]))
            report.count("connect", rounds=1, edges_certified_by_search=len(frames[-1]))
    with report.stage("spanning_tree", device):
        empty = {"src": state.cursor[:0], "dst": state.cursor[:0], "weight": state.found_weight[:0]}
        return sort_edges(device.frames.concat([device.frame(empty), *frames], ignore_index=True))


def _grow(lists: NeighborLists, state: ForestState, frames: list[Any], device: Device, report: Report) -> int:
    components = 0
    for edges, components in grow(lists, state, device):
        if edges is not None:
            frames.append(edges)
            report.count("spanning_tree", rounds=1, edges_certified_by_lists=len(edges))
    return components


def _search_bridges(
    lists: NeighborLists, state: ForestState, largest: int, search: Any, device: Device, report: Report
) -> Any:
    """For each point that is unsure, the nearest outside its component, unless its component has a lighter edge."""
    xp = device.xp
    rows = _unsure_rows(lists, state, largest, device)
    upper = state.best_weight[state.component[rows]]
    found = search.find(Task(rows, 1, state.component, state.component, upper, shared=True))
    report.count("connect", rows_searched=rows.size)
    ids, weights = found.ids[:, 0], found.weights[:, 0]
    low, high = xp.minimum(rows, ids), xp.maximum(rows, ids)
    code = (low.astype("int64") << 32) | high
    state.found[rows], state.found_weight[rows] = ids, weights
    # Where nothing was found all outside points are above the bound that was reached, whatever their ids.
    state.bound_weight[rows] = xp.where(ids >= 0, weights, found.upper)
    state.bound_code[rows] = xp.where(ids >= 0, code, NO_EDGE)
    hit = xp.flatnonzero(ids >= 0)
    component = state.component[rows[hit]]
    return device.frame({"component": component, "src": low[hit], "dst": high[hit], "weight": weights[hit]})


def _unsure_rows(lists: NeighborLists, state: ForestState, largest: int, device: Device) -> Any:
    """The points of uncertified components, but the largest, that may have an edge below their component's best."""
    xp, mine = device.xp, state.component
    weight, code = state.best_weight[mine], state.best_code[mine]
    below = (state.bound_weight < weight) | ((state.bound_weight == weight) & (state.bound_code < code))
    used_up = state.cursor == lists.ids.shape[1]
    return xp.flatnonzero(below & used_up & ~state.certified[mine] & (mine != largest)).astype("int32")


def _lightest_of_each_component(state: ForestState, largest: int, bridges: Any, device: Device) -> Any:
    """The lightest edge leaving each component that is certain of it: all that were certified or searched."""
    xp = device.xp
    is_root = state.component == xp.arange(state.component.size, dtype="int32")
    certain = is_root & state.certified
    certain |= is_root & (xp.arange(state.component.size) != largest)
    known = xp.flatnonzero(certain & (state.best_code != NO_EDGE)).astype("int32")
    code = state.best_code[known]
    low, high = (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32")
    proposals = {"component": known, "src": low, "dst": high, "weight": state.best_weight[known]}
    edges = device.frames.concat([device.frame(proposals), bridges], ignore_index=True)
    return edges.sort_values(["weight", "src", "dst"]).drop_duplicates("component")


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
    while True:
        above = parent[parent]
        if bool((above == parent).all()):
            break
        parent = above
    state.component[:] = parent[state.component]

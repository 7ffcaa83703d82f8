"""Connect the forest: the edges that the neighbour lists could not prove.

Each round searches for every component that is not certified, except the largest. Those of its points search that may
have an edge lighter than the component's best one. They look for the nearest point outside, bounded by that best edge.
The forest records the points found and the raised bounds, so the next round of Borůvka certifies the lightest edge of
each of these components. If most points would search, and most of these are in large components, the small ones are
searched for alone: when few large ones remain, component_pairs/ may connect them all at once instead.
"""

from math import inf
from typing import Any

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.task import NeighborLists, Search, SearchTask
from rapids_slink.ordering import NO_EDGE, sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.spanning_tree.component_pairs import (
    MIN_ROUND_PAIRS,
    MIN_ROWS_PER_COMPONENT,
    connect_components,
    is_worthwhile,
)
from rapids_slink.spanning_tree.forest import LEAST_SHARE, Forest, kernels

#: Bytes per point at the peak: the forest's arrays, a search's task and answer, and the edges during the sort. Before,
#: `join_weights` takes no more.
POINT_BYTES = {"cpu": 144, "cuda": 192}


def estimate_connect(n: int, device: Device) -> MemoryEstimate:
    """Bytes of `spanning_tree` of n points, in addition to the lists and the search."""
    return MemoryEstimate(POINT_BYTES[device.name] * n)


def spanning_tree(
    lists: NeighborLists, search: Search, device: Device, report: Report, max_weight: float = inf
) -> PreallocatedFrame:
    """The minimum spanning tree of all pairs, from the k-NN lists and a search over all points.

    n - 1 edges in the total order, weighing surrogate distances. If `max_weight` is finite, those of the tree up to it,
    and maybe some above.
    """
    forest = Forest.of_points(lists, device)
    connect_forest(forest, lists, search, device, report, max_weight)
    with report.stage("spanning_tree", device):
        edges = forest.edges if max_weight == inf else forest.edges.head(int(forest.n_taken[0]))
        sort_in_place(edges.columns, device.xp)
    return edges


def connect_forest(
    forest: Forest,
    lists: NeighborLists,
    search: Search,
    device: Device,
    report: Report,
    max_weight: float = inf,
    among_all: Search | None = None,
) -> None:
    """Append edges to the forest until it is a tree, or until no component has an edge up to `max_weight`.

    `among_all` is a search over all points if `search` looks for some pairs only, which are enough.

    A component whose rows are all bounded by `max_weight` is finished: no edge up to it leaves the component. In the
    end all except the largest are finished, and an edge that leaves the largest enters another.
    """
    searched, most_components, is_bounded = False, inf, max_weight < inf
    least_share = forest.component.size if is_bounded else LEAST_SHARE  # of many finished components few are certified
    whole = search if among_all is None else among_all
    while True:
        with report.stage("spanning_tree", device):
            grown = kernels(device).boruvka_rounds(lists, forest, least_share)
            report.count("spanning_tree", rounds=grown.rounds, components_certified=grown.certified)
        if not searched:
            report.count("spanning_tree", edges_certified_by_lists=grown.edges)
        else:
            report.count("connect", edges_certified_by_search=grown.edges)
            if not grown.edges and not is_bounded:
                raise RuntimeError("a search has made no component certain of an edge: please report this")
        if grown.components == 1:
            return
        with report.stage("connect", device):
            report.count("connect", rounds=1)
            rows = kernels(device).rows_to_search(forest)
            if is_bounded:
                weight, code = forest.bound_weight[rows], forest.bound_code[rows]
                rows = rows[(weight < max_weight) | ((weight == max_weight) & (code < NO_EDGE))]
                if not rows.size:
                    return
            small = _of_small_components(forest, rows, whole)
            if 0 < small.size <= rows.size / 2:
                rows, least_share = small, forest.component.size  # of all components few may be small
            elif (
                not is_bounded
                and grown.components <= most_components
                and is_worthwhile(whole, grown.components, forest, rows)
            ):
                edges = connect_components(whole, lists.core, forest.component, grown.components, rows, report)
                if edges is not None:
                    report.count("connect", edges_certified_by_search=grown.components - 1)
                    _append(forest, edges, device)
                    return
                most_components = grown.components / 2  # try again when half of them remain
            _search_crossing_edges(forest, rows, search, lists.core, device, report, max_weight)
            searched = True


def _of_small_components(forest: Forest, rows: Array, search: Search) -> Array:
    """Those of the rows that are in components with few of them; none if all rows take little time."""
    m, n = rows.size, forest.component.size
    if not isinstance(search, BruteForceSearch):
        return rows[:0]
    device = search.device
    if m < n / 4 or m * n < MIN_ROUND_PAIRS[device.name]:
        return rows[:0]
    return kernels(device).rows_of_small_components(forest, rows, MIN_ROWS_PER_COMPONENT)


def _search_crossing_edges(
    forest: Forest, rows: Array, search: Search, core: Array, device: Device, report: Report, max_weight: float
) -> None:
    """Find the nearest point outside its component for each of the rows, unless the component has a lighter edge."""
    upper = forest.best_weight[forest.component[rows]]
    if max_weight < inf:
        upper = device.xp.minimum(upper, max_weight)
    component = forest.component
    result = search.find(SearchTask(rows, 1, component, component, upper, per_group_minimum=True, core=core))
    report.count("connect", rows_searched=rows.size)
    kernels(device).record_search(forest, rows, result)


def _append(forest: Forest, edges: tuple[Any, Any, Any], device: Device) -> None:
    """Append the last edges, which may be the host's, to the forest's frame."""
    for column, values in zip(forest.edges.columns.values(), edges, strict=True):
        column[column.size - len(values) :] = device.asarray(values)

"""The minimum spanning tree of points to which new ones are added.

The edges of the new tree are in the old one or have a new end, as `docs/algorithms.md` proves under "Rows added to a
tree". Borůvka's rounds (`lists`) run on neighbour lists of these edges alone. A new point lists its nearest others. An
old one lists its nearest new points, up to a height of the old tree, and its lightest edges of that tree; its lower
bound is that of the first edge it does not list, of either kind. A search (`AppendedSearch`) looks for the nearest new
point of an old one, among the points, and for its lightest unlisted edge of the old tree.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from rapids_slink.dendrogram import build_linkage
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.neighbors import estimate_search, prepare_search
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import NeighborLists, Search, SearchResult, SearchTask
from rapids_slink.ordering import NO_EDGE, edge_codes, sort_in_place, stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate
from rapids_slink.spanning_tree.lists import Forest, connect_forest
from rapids_slink.spanning_tree.problem import Problem

#: How many new points and how many edges of the old tree an old point lists. With many features one point in 15 has
#: more than four edges, and each of these would keep the components around it uncertain.
NEW_LISTED, TREE_LISTED = 2, 8
#: How many others a new point lists.
LISTED_BY_NEW = 6
#: An old point lists new points up to the height at which its cluster is expected to hold this number of them.
NEW_A_CLUSTER = 4
#: Bytes of an entry of a list.
ENTRY_BYTES = 12


@dataclass(frozen=True)
class TreeEdges:
    """Edges of the old tree from each of their ends, by row and then in the total order."""

    #: `row` and `other`: int32 arrays
    row: Array
    other: Array
    weight: Array  # float64 array
    place: Array  # int array: 0, 1, ... along the edges of a row

    @classmethod
    def of(cls, columns: dict[str, Array], xp: Any) -> Self:
        """Return the edges of a tree from both ends; `columns` are its frame's, in the total order."""
        src, dst, weight = columns.values()
        row, other = (xp.stack(ends, axis=1).ravel() for ends in ((src, dst), (dst, src)))
        order = stable_order(row, xp)
        row = row[order]
        return cls(row, other[order], xp.repeat(weight, 2)[order], xp.arange(row.size) - xp.searchsorted(row, row))

    def at(self, kept: Array) -> Self:
        """Return the edges at these positions."""
        return type(self)(self.row[kept], self.other[kept], self.weight[kept], self.place[kept])


class AppendedSearch(Search):
    """The nearest point outside a row's component: for an old row among new points and its unlisted tree edges."""

    def __init__(self, rows: Array, n_old: int, among_all: Search, problem: Problem, report: Report) -> None:
        device, metric, progress = problem.device, problem.metric, problem.settings.progress
        self.n_old, self.xp, self.among_all = n_old, device.xp, among_all
        self.among_new: Search = prepare_search(rows[n_old:].copy(), device, report, rows, progress, metric)
        self.unlisted: TreeEdges

    def find(self, task: SearchTask) -> SearchResult:
        """Return one neighbour outside its component for each row of a task, whose groups are the components."""
        xp, m = self.xp, task.rows.size
        is_new = task.rows >= self.n_old
        result = SearchResult(xp.empty((m, 1), "int32"), xp.empty((m, 1)), xp.empty(m))
        for chosen, search, first in ((is_new, self.among_all, 0), (~is_new, self.among_new, self.n_old)):
            at = xp.flatnonzero(chosen)
            if at.size:
                group = task.point_group[first:]
                nearest = search.find(replace(task, rows=task.rows[at], point_group=group, upper=task.upper[at]))
                result.ids[at] = xp.where(nearest.ids < 0, -1, nearest.ids + first)
                result.weights[at], result.upper[at] = nearest.weights, nearest.upper
        self._add_tree_edges(task, result)
        return result

    def _add_tree_edges(self, task: SearchTask, result: SearchResult) -> None:
        """Replace each row's neighbour by the other end of its lightest unlisted tree edge, if that comes before."""
        xp, group, edges = self.xp, task.point_group, self.unlisted
        edges = edges.at(xp.flatnonzero(group[edges.row] != group[edges.other]))
        if not edges.row.size:
            return
        first = xp.searchsorted(edges.row, task.rows)
        at = xp.minimum(first, edges.row.size - 1)
        other, weight = edges.other[at], edges.weight[at]
        ids, weights = result.ids[:, 0], result.weights[:, 0]
        before = (ids < 0) | (weight < weights) | ((weight == weights) & (other < ids))
        replaced = xp.flatnonzero((edges.row[at] == task.rows) & (weight <= result.upper) & before)
        ids[replaced], weights[replaced] = other[replaced], weight[replaced]


def tree_of_appended(
    rows: Array,
    n_old: int,
    edges: tuple[Array, Array],
    merges: tuple[Array, Array, Array],
    problem: Problem,
    report: Report,
) -> PreallocatedFrame:
    """Return the tree of old and new points, in the total order; the weights are surrogate distances.

    `rows`, (n, d), are the old points and then the new ones, as `neighbors.rows.metric_rows` makes them. `edges`, int32
    src and dst, are the old points' tree, or those of its edges that are within `Settings.max_distance`; `merges`,
    int32 left, right and size, are the linkage of these edges in their order.
    """
    device, xp, n = problem.device, problem.device.xp, problem.n
    with report.stage("neighbors", device):
        progress, metric = problem.settings.progress, problem.metric
        among_all = prepare_search(rows, device, report, progress=progress, metric=metric)
        weight = kernels(device).pair_distances(rows, edges[0], edges[1], metric)
        columns = {"src": edges[0].copy(), "dst": edges[1].copy(), "weight": weight}
        if not all_true(weight[1:] >= weight[:-1]):  # distances that are rounded may have another order
            sort_in_place(columns, xp)
            merged = build_linkage(PreallocatedFrame(columns, device), n_old).columns
            weight, merges = merged["height"], (merged["left"], merged["right"], merged["size"])
        sort_in_place(columns, xp)
        search = AppendedSearch(rows, n_old, among_all, problem, report)
        old_edges = TreeEdges.of(columns, xp)
        search.unlisted = old_edges.at(xp.flatnonzero(old_edges.place >= TREE_LISTED))
        upper, min_size = xp.full(n_old, xp.inf), NEW_A_CLUSTER * max(1, n_old // (n - n_old))
        if weight.size == n_old - 1 > 0:
            first, second, size = merges
            upper = dendrogram_kernels(device).heights_of_size(first, second, columns["weight"], size, min_size)
        lists, bound = _lists(search, old_edges, upper, n, device)
    forest = Forest.of_components(xp.arange(n, dtype="int32"), bound, device)
    connect_forest(forest, lists, search, device, report, among_all=among_all)
    with report.stage("spanning_tree", device):
        sort_in_place(forest.edges.columns, xp)
    return forest.edges


def _lists(
    search: AppendedSearch, edges: TreeEdges, upper: Array, n: int, device: Device
) -> tuple[NeighborLists, tuple[Any, Any]]:
    """Return the lists, and the weight and code of a lower bound of the edges that each point does not list."""
    xp, n_old, width = device.xp, search.n_old, NEW_LISTED + TREE_LISTED
    k_old, k_new = min(NEW_LISTED, n - n_old), min(LISTED_BY_NEW, n - 1)
    rows = xp.arange(n, dtype="int32")
    ids, weights = xp.repeat(rows[:, None], width, axis=1), xp.full((n, width), xp.inf)  # a row itself is passed over
    no_group = xp.full(n - n_old, -1, "int32")
    old_nearest = search.among_new.find(SearchTask(rows[:n_old], k_old, rows, no_group, upper))
    old_nearest.ids[old_nearest.ids >= 0] += n_old
    new_nearest = search.among_all.find(SearchTask(rows[n_old:], k_new, rows, rows))
    bound, code = xp.full(n, xp.inf), xp.full(n, NO_EDGE)
    for part, nearest, k, is_complete in (
        (slice(0, n_old), old_nearest, k_old, k_old == n - n_old),
        (slice(n_old, n), new_nearest, k_new, k_new == n - 1),
    ):
        own, last = rows[part, None], nearest.ids[:, k - 1]
        ids[part, :k] = xp.where(nearest.ids < 0, own, nearest.ids)
        weights[part, :k] = nearest.weights
        last_weight = xp.inf if is_complete else nearest.weights[:, k - 1]
        bound[part] = xp.where(last < 0, nearest.upper, last_weight)  # all up to the bound are listed
        if not is_complete:
            code[part] = xp.where(last < 0, NO_EDGE, edge_codes(rows[part], last, xp))
    listed = edges.at(xp.flatnonzero(edges.place < TREE_LISTED))
    column = NEW_LISTED + listed.place
    ids[listed.row, column], weights[listed.row, column] = listed.other, listed.weight
    first = edges.at(xp.flatnonzero(edges.place == TREE_LISTED))  # the first edge that a row does not list
    first_code = edge_codes(first.row, first.other, xp)
    before = (first.weight < bound[first.row]) | ((first.weight == bound[first.row]) & (first_code < code[first.row]))
    lower = xp.flatnonzero(before)
    bound[first.row[lower]], code[first.row[lower]] = first.weight[lower], first_code[lower]
    kernels(device).sort_by_reachability(ids, weights, xp.full(n, -xp.inf))
    return NeighborLists(ids, weights), (bound, code)


def estimate_appended(problem: Problem, n_old: int) -> MemoryEstimate:
    """Return the bytes that `tree_of_appended` takes, its rows included."""
    n, d, itemsize, device, metric = problem.n, problem.n_features, problem.itemsize, problem.device, problem.metric
    lists = MemoryEstimate(n * (NEW_LISTED + TREE_LISTED) * ENTRY_BYTES)
    among_all = estimate_search(n, d, itemsize, LISTED_BY_NEW, device, metric=metric, later=TREE_BYTES[device.name])
    among_new = estimate_search(n - n_old, d, itemsize, NEW_LISTED, device, n_queries=n, metric=metric)
    return among_all + among_new + lists

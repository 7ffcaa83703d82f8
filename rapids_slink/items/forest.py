"""The minimum spanning forest of items: of all pairs within a distance, or of all pairs.

    distinct items ──▶ the trees of large groups, of stored distances or by lists ──▶ forest ──▶ with copies
                       the pairs of small groups, or all pairs within a distance  ──▶

The distances of all pairs of a group are stored if they fit into memory. Otherwise the tree is made like that of
points: from the nearest items of each item and Borůvka's rounds (`spanning_tree.lists`), because `RowSearch` is a
`Search`. The same is done where lower bounds on the distances take less time than the distances.
"""

from collections.abc import Iterable
from math import inf

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items import Items
from rapids_slink.items.search import (
    Distinct,
    ItemSearch,
    Pairs,
    RowSearch,
    all_distances,
    are_large,
    distinct_items,
    one_of_each,
)
from rapids_slink.neighbors import DEFAULT_NEIGHBORS, neighbor_lists
from rapids_slink.neighbors.task import by_mutual_reachability, core_positions
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.memory import free_bytes, room_bytes
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Tree
from rapids_slink.spanning_tree import kernels as tree_kernels
from rapids_slink.spanning_tree.graphs import EdgeList, components, core_distances_of, forest_of_edges, spanning_forest
from rapids_slink.spanning_tree.lists import tree_of_lists
from rapids_slink.spanning_tree.ways import connect_copies

#: The most bytes of the distances that a CPU stores, and the share of the free memory that they take at most.
MAX_BYTES, MATRIX_SHARE = 2**30, 1 / 2
#: The most times that a GPU reads a row of stored distances for its core distance.
MOST_SAMPLES = 2**8
#: How many edges wait before the forest is found anew, and the bytes that each takes then.
WAITING, WAITING_BYTES = 2**22, 64


def forest_of_items(
    items: Items, number: Array, settings: Settings, report: Report, old: tuple[int, Pairs] | None = None
) -> Tree:
    """Return the minimum spanning forest of items in groups, and the number of its trees.

    `number`, (n,) int32, has the group of each item. `old` is how many of the first items have a forest already, and
    its edges.
    """
    device, n = items.device, len(items)
    with report.stage("neighbors", device):
        distinct = distinct_items(items, number)
        report.count("neighbors", distinct_items=len(distinct.items))
    limit = inf if settings.max_distance is None else settings.max_distance
    growing = _Growing(distinct, limit, settings.progress, report)
    if old is not None:
        n_old, edges = old
        growing.append(n_old, edges)
    elif settings.min_samples > 1:
        samples = device.xp.minimum(min(settings.min_samples, n), device.xp.bincount(number)[number] - 1)
        growing.from_nothing(samples[distinct.copies.first])
    else:
        growing.from_nothing()
    with report.stage("spanning_tree", device):
        tree = connect_copies(distinct.copies, growing.forest, growing.core, device)
        assert tree is not None  # items have no pair lighter than copies
        weight = tree.columns["weight"]
        tree = tree.head(int(((weight <= limit) & (weight < inf)).sum()))
    return tree, n - tree.columns["weight"].size


class _Growing:
    """The minimum spanning forest of distinct items, from the edges added so far, and their core distances."""

    def __init__(self, distinct: Distinct, limit: float, progress: bool | str, report: Report) -> None:
        self.distinct, self.limit, self.progress, self.report = distinct, limit, progress, report
        self.items, self.groups, self.device = distinct.items, distinct.groups, distinct.items.device
        self.xp, self.n = self.device.xp, len(distinct.items)
        self.counts = distinct.copies.count  # the number of equal rows that each item stands for
        self.forest = PreallocatedFrame.empty(self.device, 0, EDGE_TYPES)
        #: zero without `samples`; infinite, or above the limit, for an item with too few others within it
        self.core = self.xp.zeros(self.n)

    def from_nothing(self, samples: Array | None = None) -> None:
        """Add the edges of all trees, and maybe some beyond the limit.

        With `samples`, the `min_samples` of each item, the weights are mutual reachability.
        """
        items, groups, device, xp, limit = self.items, self.groups, self.device, self.xp, self.limit
        is_done, edges = xp.zeros(self.n, bool), []
        if samples is not None:
            self.core = xp.where(self.counts > samples, 0.0, inf)
        may_be_whole = limit == inf or device.is_gpu
        for group in np.flatnonzero(are_large(groups, device) & may_be_whole).tolist():
            rows = groups.order[groups.starts[group] : groups.starts[group + 1]]
            own, m = items if rows.size == self.n else items.take(rows), 1 if samples is None else int(samples[rows[0]])
            counts = None if samples is None else self.counts[rows]
            is_stored = self._is_stored(own, m)
            if not is_stored and limit < inf:
                continue
            is_done[rows] = True
            if counts is not None and int(counts.sum()) <= m:
                continue  # no item has as many others
            (src, dst, weight), core = self._stored(own, m, counts) if is_stored else self._by_lists(own, m, counts)
            edges.append((rows[src], rows[dst], weight))
            if core is not None:
                self.core[rows] = core
        self._add(edges)
        if not bool(is_done.all()):
            self._add_within(limit, ~is_done, samples)

    def append(self, n_old: int, edges: Pairs) -> None:
        """Add the edges of the first rows' forest and those that the other rows need.

        By the cycle property the forest of all is within the old one and the pairs that have a new row. Such pairs up
        to the heaviest old edge may replace an old edge. Heavier pairs only connect new rows to what is left. These are
        all items that are not connected to the first one of their group, which is an old one if there is any.
        """
        (src, dst, weight), row, xp = edges, self.distinct.of_row, self.xp
        self._add([(row[src], row[dst], weight)])
        is_new = xp.ones(self.n, bool)
        is_new[row[:n_old]] = False
        heaviest = float(weight.max()) if weight.size else 0.0
        self._add_within(heaviest if self.limit == inf else self.limit, is_new)
        if self.limit == inf:
            src, dst, weight = self.forest.columns.values()
            _, parent = spanning_forest(EdgeList(src, dst, weight, self.n), self.device)
            component = components(xp.arange(self.n), parent, self.device)
            first = self.device.asarray(self.groups.first)[self.groups.number]
            self._add_within(inf, component != component[first])

    def _is_stored(self, items: Items, samples: int) -> bool:
        """Return whether all distances of these items are stored, for core distances or for pairs within the limit."""
        size, device = items.distance_type.itemsize * len(items) ** 2, self.device
        if forced().items not in (None, "stored") or items.errors is not None or not items.is_stored(self.limit):
            return False
        is_soon = samples <= MOST_SAMPLES if device.is_gpu else size <= MAX_BYTES
        return is_soon and size <= MATRIX_SHARE * min(free_bytes(), room_bytes(device))

    def _stored(self, items: Items, samples: int, counts: Array | None) -> tuple[Pairs, Array | None]:
        """Return the edges of the items' tree, (n - 1,) each, and the core distances, (n,), by stored distances.

        For core distances `samples` is `min_samples`, and `counts`, (n,) int64, is how many equal rows each item stands
        for. Without `counts` there are none.
        """
        with self.report.stage("spanning_tree", self.device):
            n, on_device, matrix = len(items), tree_kernels(self.device), all_distances(items)
            self.report.count("spanning_tree", pairs_weighed=n * (n - 1) // 2)
            core = None if counts is None else on_device.find_cores(matrix, samples, counts)
            edges = PreallocatedFrame.empty(self.device, n - 1, EDGE_TYPES)
            on_device.tree_of_matrix(matrix, core, edges.columns)
            src, dst, weight = edges.columns.values()
        return (src, dst, weight), core

    def _by_lists(self, items: Items, samples: int, counts: Array | None) -> tuple[Pairs, Array | None]:
        """Return what `_stored` returns, by the nearest items of each."""
        device, n, core = self.device, len(items), None
        search = RowSearch(items, self.report, self.progress)
        with self.report.stage("neighbors", device):
            lists = neighbor_lists(search, n, DEFAULT_NEIGHBORS + (0 if counts is None else samples), device)
            if counts is not None:
                core = lists.weights[self.xp.arange(n), core_positions(lists.ids, counts + 0.0, samples, self.xp)]
                core = self.xp.where(counts > samples, 0.0, core)
                lists = by_mutual_reachability(lists, core, samples, device)
        src, dst, weight = tree_of_lists(lists, search, device, self.report).columns.values()
        return (src, dst, weight), core

    def _add_within(self, limit: float, wanted: Array, samples: Array | None = None) -> None:
        """Add the pairs within a limit of the wanted items, (n,) bool; see `from_nothing` for the samples."""
        parts, xp = ItemSearch(self.items, self.groups, limit, self.progress).parts(wanted), self.xp
        if samples is not None:
            with self.report.stage("neighbors", self.device):
                src, dst, weight = one_of_each(list(parts), self.device)
                core = core_distances_of((src, dst), weight, self.counts + 0.0, samples, xp)
                self.core = core = xp.where(wanted, core, self.core)
                weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
                within = (weight <= limit) & (weight < inf)
                parts = iter([(src[within], dst[within], weight[within])])
        self._add(parts)

    def _add(self, parts: Iterable[Pairs]) -> None:
        """Add edges, each of which may come several times. Whenever many wait, only those of their forest are kept."""
        max_waiting = max(4 * self.n, min(WAITING, free_bytes() / 4 / WAITING_BYTES))
        waiting, count = [tuple(self.forest.columns.values())], 0
        with self.report.stage("neighbors", self.device):
            for part in parts:
                if part[0].size:
                    waiting.append(part)
                    count += part[0].size
                if count > max_waiting:
                    waiting, count = [self._forest_of(waiting)], 0
        if len(waiting) > 1:
            with self.report.stage("spanning_tree", self.device):
                self._forest_of(waiting)

    def _forest_of(self, parts: list[Pairs]) -> Pairs:
        """Make the forest of these edges, and return its edges."""
        src, dst, weight = (self.xp.concatenate(columns) for columns in zip(*parts, strict=True))
        (self.forest, _), _ = forest_of_edges(EdgeList(src, dst, weight, self.n), 1, self.device)
        src, dst, weight = self.forest.columns.values()
        return src, dst, weight

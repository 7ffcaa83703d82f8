"""The minimum spanning forest of items: of all pairs within a distance, or of all pairs.

    distinct items ──▶ the trees of large groups, of all distances (`dense`) or by lists ──▶ forest ──▶ with copies
                       the pairs of other groups, or all pairs within a distance          ──▶

Where the distances of a group do not fit into memory, its tree is made as that of points is: by the nearest items of
each and Borůvka's rounds (`spanning_tree.lists`), on a search that computes the distances of some rows at a time.
"""

from math import inf

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items import dense
from rapids_slink.items.kind import Items
from rapids_slink.items.search import (
    SMALL_GROUP,
    Distinct,
    ItemSearch,
    Pairs,
    RowSearch,
    distinct_items,
    one_of_each,
)
from rapids_slink.neighbors import DEFAULT_NEIGHBORS, neighbor_lists
from rapids_slink.neighbors.task import by_mutual_reachability, core_places
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.graphs import EdgeList, components, core_distances_of, forest_of_edges, spanning_forest
from rapids_slink.spanning_tree.lists import tree_of_lists
from rapids_slink.spanning_tree.problem import Tree

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
    growing, samples = _Growing(len(distinct.items), device, settings.progress), None
    if settings.min_samples > 1:
        samples = device.xp.minimum(settings.min_samples, device.xp.bincount(number)[number] - 1)
        samples = samples[distinct.copies.first]
    if old is None:
        core = _grow(growing, distinct, samples, limit, report)
    else:
        core = device.xp.zeros(len(distinct.items))
        n_old, edges = old
        _append(growing, distinct, n_old, edges, limit, report)
    with report.stage("spanning_tree", device):
        tree = distinct.copies.join(growing.forest, core, device)
        assert tree is not None  # items have no pair lighter than copies
        weight = tree.columns["weight"]
        tree = tree.head(int(((weight <= limit) & (weight < inf)).sum()))
    return tree, n - tree.columns["weight"].size


class _Growing:
    """The minimum spanning forest of n nodes by the edges that were added."""

    def __init__(self, n: int, device: Device, progress: bool | str) -> None:
        self.n, self.device, self.count, self.progress = n, device, 0, progress
        self.most_waiting = max(4 * n, min(WAITING, free_bytes() / 4 / WAITING_BYTES))
        self.waiting: list[Pairs] = []
        self.forest = PreallocatedFrame.empty(device, 0, EDGE_TYPES)

    @property
    def edges(self) -> Pairs:
        """Return the edges of the forest, without those that wait."""
        src, dst, weight = self.forest.columns.values()
        return src, dst, weight

    def add(self, pairs: Pairs) -> None:
        """Add edges; an edge may be added several times."""
        if pairs[0].size:
            self.waiting.append(pairs)
            self.count += pairs[0].size
        if self.count > self.most_waiting:
            self.settle()

    def settle(self) -> None:
        """Add the waiting edges to the forest, and drop those that are not in it."""
        if not self.waiting:
            return
        src, dst, weight = (self.device.xp.concatenate(part) for part in zip(self.edges, *self.waiting, strict=True))
        self.waiting, self.count = [], 0
        (self.forest, _), _ = forest_of_edges(EdgeList(src, dst, weight, self.n), 1, self.device)

    def component(self) -> Array:
        """Return the number of each node's tree, (n,) int32."""
        src, dst, weight = self.edges
        _, parent = spanning_forest(EdgeList(src, dst, weight, self.n), self.device)
        return components(self.device.xp.arange(self.n), parent, self.device)


def _grow(growing: _Growing, distinct: Distinct, samples: Array | None, limit: float, report: Report) -> Array:
    """Add the edges of all trees, and maybe some beyond the limit; return the core distances, (n,) float64.

    With `samples` the weights are mutual reachability. A core distance is infinite if too few items are within the
    limit. Without `samples` all are zero.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    xp, n, counts = device.xp, len(items), distinct.copies.counts(device.xp) + 1
    core, is_done = xp.zeros(n) if samples is None else xp.where(counts > samples, 0.0, inf), xp.zeros(n, bool)
    smallest = {None: SMALL_GROUP[device.name], "stored": SMALL_GROUP[device.name], "distances": n}
    largest_by_pairs = smallest.get(forced().items, 1) if limit == inf or device.is_gpu else n
    for group in np.flatnonzero(groups.sizes > largest_by_pairs).tolist():
        rows = groups.order[groups.starts[group] : groups.starts[group + 1]]
        own, by_cores, own_samples = items if rows.size == n else items.take(rows), None, 1
        if samples is not None:
            by_cores, own_samples = (counts[rows], samples[rows]), int(samples[rows[0]])
        is_dense = dense.serves(own, own_samples, limit)
        if not is_dense and limit < inf:
            continue
        is_done[rows] = True
        if by_cores is not None and int(by_cores[0].sum()) <= own_samples:
            continue  # no item has as many others
        if is_dense:
            with report.stage("spanning_tree", device):
                report.count("spanning_tree", pairs_weighed=rows.size * (rows.size - 1) // 2)
                (src, dst, weight), own_core = dense.tree_of_items(own, by_cores)
        else:
            (src, dst, weight), own_core = _tree_by_lists(own, by_cores, own_samples, growing.progress, report)
        growing.add((rows[src], rows[dst], weight))
        if own_core is not None:
            core[rows] = own_core
    growing.settle()
    return core if bool(is_done.all()) else _add_within(growing, distinct, limit, ~is_done, report, samples, core)


def _tree_by_lists(
    items: Items, by_cores: tuple[Array, Array] | None, samples: int, progress: bool | str, report: Report
) -> tuple[Pairs, Array | None]:
    """Return what `dense.tree_of_items` returns, by the nearest items of each; `samples` is that of all."""
    device, n, core = items.device, len(items), None
    xp, search = device.xp, RowSearch(items, report, progress)
    with report.stage("neighbors", device):
        lists = neighbor_lists(search, n, DEFAULT_NEIGHBORS + (samples if by_cores else 0), device)
        if by_cores is not None:
            counts = by_cores[0].astype("float64")
            core = lists.weights[xp.arange(n), core_places(lists.ids, counts, samples, xp)]
            core = xp.where(counts > samples, 0.0, core)
            lists = by_mutual_reachability(lists, core, samples, device)
    src, dst, weight = tree_of_lists(lists, search, device, report).columns.values()
    return (src, dst, weight), core


def _append(growing: _Growing, distinct: Distinct, n_old: int, old: Pairs, limit: float, report: Report) -> None:
    """Add the edges of the first rows' forest and those that the other rows need.

    By the cycle property the forest of all is within the old one and the pairs that have a new row. Such pairs up to
    the heaviest old edge may replace an old edge. Heavier pairs only connect new rows to what is left. These are all
    items that are not connected to the first one of their group, which is an old one if there is any.
    """
    device, row, groups = distinct.items.device, distinct.of_row, distinct.groups
    growing.add((row[old[0]], row[old[1]], old[2]))
    is_new = device.xp.ones(len(distinct.items), bool)
    is_new[row[:n_old]] = False
    heaviest = limit if limit < inf else float(old[2].max()) if old[2].size else 0.0
    _add_within(growing, distinct, heaviest, is_new, report)
    if limit == inf:
        component = growing.component()
        first = device.asarray(groups.first)[groups.number]
        _add_within(growing, distinct, inf, component != component[first], report)


def _add_within(
    growing: _Growing, distinct: Distinct, limit: float, wanted: Array, report: Report,
    samples: Array | None = None, core: Array | None = None,
) -> Array | None:  # fmt: skip
    """Add the pairs within a limit of the wanted items, (n,) bool; return the core distances.

    See `_grow` for `samples` and `core`.
    """
    items, device = distinct.items, distinct.items.device
    xp = device.xp
    with report.stage("neighbors", device):
        parts = ItemSearch(items, distinct.groups, limit, growing.progress).parts(wanted)
        if samples is not None:
            src, dst, weight = one_of_each(list(parts), device)
            counts = distinct.copies.counts(xp) + 1.0
            core = xp.where(wanted, core_distances_of((src, dst), weight, counts, samples, xp), core)
            weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
            within = (weight <= limit) & (weight < inf)
            parts = iter([(src[within], dst[within], weight[within])])
        for part in parts:
            growing.add(part)
    with report.stage("spanning_tree", device):
        growing.settle()
    return core

"""The minimum spanning forest of items: of all pairs within a distance, or of all pairs.

`dense` serves groups of up to some thousands of items on a CPU, and on a GPU those whose distances fit into memory,
unless a small distance is given. Else the forest grows by levels.
The edges of a spanning tree up to a level are those of the whole tree, and every other one has an end outside the
largest component of its group. So the next level searches for the pairs of those items alone, up to a distance that a
sample of them has to its nearest other components. When few pairs are left all are compared.

With `min_samples` the same holds for mutual reachability. An item whose core distance is above the level is a component
of its own, and the next level searches for its pairs even if no component is larger. So the pairs that are found hold
all its neighbours up to the level.
"""

from math import inf

import numpy as np

from rapids_slink.items import dense
from rapids_slink.items.kind import Items
from rapids_slink.items.search import (
    SMALL_GROUP,
    Distinct,
    ItemSearch,
    Pairs,
    are_few,
    distinct_items,
    next_level,
    one_of_each,
)
from rapids_slink.points.keys import Groups, groups_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.graphs import EdgeList, components, core_distances_of, forest_of_edges, spanning_forest
from rapids_slink.spanning_tree.problem import Tree

#: If at most this number of pairs of items is left, all are compared.
FEW_PAIRS = {"cpu": 2**22, "cuda": 2**26}
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
    is_done, core = _add_dense(growing, distinct, samples, limit, report, is_appended=old is not None)
    if not is_done.all():
        if old is not None:
            _append(growing, distinct, *old, limit, report)
        else:
            core = _grow(growing, distinct, ~is_done, limit, report, samples, core)
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
        edges = EdgeList(*self.edges, self.n)
        _, parent = spanning_forest(edges, self.device)
        return components(self.device.xp.arange(self.n), parent, self.device)


def _grow(
    growing: _Growing, distinct: Distinct, outside: Array, limit: float, report: Report,
    samples: Array | None = None, core: Array | None = None,
) -> Array | None:  # fmt: skip
    """Add the edges up to a limit, or all that the trees of the groups need; return the core distances.

    `outside`, (n,) bool, tells which items are in no tree of their whole group yet. With `samples` the weights are
    mutual reachability. `core`, (n,), has the core distances that are known, and infinity for other items. So have
    those that are returned, up to the limit.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    level, wanted, nearest, alone = limit if limit < inf else -inf, outside, 1, device.xp.arange(len(items))
    if samples is not None:
        nearest = int(samples.max())
    component = growing.component()
    while (n_pairs := _pairs_left(outside, groups)) > 0:
        if limit == inf:
            few, part = are_few(n_pairs, FEW_PAIRS[device.name]), component if samples is None else alone
            level = inf if few else next_level(items, groups, outside, part, level, nearest)
        core = _add_within(growing, distinct, level, outside, component, report, samples, core)
        if level in (limit, inf):
            break
        component = growing.component()
        outside = _outside(component, groups, device)
        if core is not None:
            outside = wanted & (outside | (core == inf))
    return core


def _append(growing: _Growing, distinct: Distinct, n_old: int, old: Pairs, limit: float, report: Report) -> None:
    """Add the edges of the first rows' forest and those that the other rows need.

    By the cycle property the forest of all is within the old one and the pairs that have a new row. Such pairs up to
    the heaviest old edge may replace an old edge. Heavier pairs only connect the components that are left.
    """
    xp, of_row = distinct.items.device.xp, distinct.of_row
    growing.add((of_row[old[0]], of_row[old[1]], old[2]))
    is_new = xp.ones(len(distinct.items), bool)
    is_new[of_row[:n_old]] = False
    heaviest = limit if limit < inf else float(old[2].max()) if old[2].size else 0.0
    _add_within(growing, distinct, heaviest, is_new, xp.arange(is_new.size), report)
    if limit == inf:
        _grow(growing, distinct, _outside(growing.component(), distinct.groups, distinct.items.device), inf, report)


def _add_dense(
    growing: _Growing, distinct: Distinct, samples: Array | None, limit: float, report: Report, is_appended: bool
) -> tuple[Array, Array]:
    """Add the trees of the groups whose distances are all stored; return the items of these groups, and core distances.

    The items are (n,) bool, and the core distances (n,) float64: zero without `samples`, else infinite for other items
    unless they have enough copies. Edges beyond the limit may be added. A CPU stores no distances for an append, since
    those of the new rows are few.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    xp, n, most = device.xp, len(items), 1
    is_done, core, counts = xp.zeros(n, bool), xp.zeros(n), distinct.copies.counts(xp) + 1
    if samples is not None:
        core, most = xp.where(counts > samples, 0.0, inf), int(samples.max())
    if not dense.may_serve(device, most, limit) or (is_appended and not device.is_gpu):
        return is_done, core
    for group in np.flatnonzero(groups.sizes > SMALL_GROUP[device.name]).tolist():
        rows = groups.order[groups.starts[group] : groups.starts[group + 1]]
        own = items if rows.size == n else items.take(rows)
        if not dense.serves(own, limit):
            continue
        with report.stage("spanning_tree", device):
            report.count("spanning_tree", pairs_weighed=rows.size * (rows.size - 1) // 2)
            by_cores = None if samples is None else (counts[rows], samples[rows])
            (src, dst, weight), own_core = dense.tree_of_items(own, by_cores)
            growing.add((rows[src], rows[dst], weight))
            is_done[rows] = True
            if own_core is not None:
                core[rows] = own_core
    growing.settle()
    return is_done, core


def _add_within(
    growing: _Growing, distinct: Distinct, level: float, outside: Array, component: Array, report: Report,
    samples: Array | None = None, core: Array | None = None,
) -> Array | None:  # fmt: skip
    """Add the pairs within a level of the items that search, `outside`, (n,) bool; return the core distances.

    Only pairs of items in two components are added; `component` is (n,). See `_grow` for `samples` and `core`.
    """
    items, device = distinct.items, distinct.items.device
    xp = device.xp
    with report.stage("neighbors", device):
        parts = ItemSearch(items, distinct.groups, level, growing.progress).parts(outside)
        if samples is not None:
            src, dst, weight = one_of_each(list(parts), device)
            counts = distinct.copies.counts(xp) + 1.0
            core = xp.where(outside, core_distances_of((src, dst), weight, counts, samples, xp), core)
            weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
            within = (weight <= level) & (weight < inf)
            parts = iter([(src[within], dst[within], weight[within])])
        for src, dst, weight in parts:
            joins = component[src] != component[dst]
            growing.add((src[joins], dst[joins], weight[joins]))
    with report.stage("spanning_tree", device):
        growing.settle()
    return core


def _pairs_left(outside: Array, groups: Groups) -> int:
    """Return the number of pairs of an item outside the largest component with any item of its group."""
    own = np.bincount(to_host(groups.number[outside]), minlength=len(groups))
    return int((own * (groups.sizes - 1)).sum())


def _outside(component: Array, groups: Groups, device: Device) -> Array:
    """Return which items are not in the largest component of their group, (n,) bool.

    Of equally large components the one with the first item counts as the largest.
    """
    xp, n = device.xp, component.size
    of_component = groups_of(component, n, device)
    sizes, group = of_component.sizes, to_host(groups.number)[of_component.first]
    order = np.lexsort((of_component.first, -sizes, group))
    largest = order[np.concatenate((np.ones(1, bool), group[order][1:] != group[order][:-1]))]
    is_largest = np.zeros(sizes.size, bool)
    is_largest[largest] = True
    return ~xp.asarray(is_largest)[of_component.number]

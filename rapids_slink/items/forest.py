"""The minimum spanning forest of items: of all pairs within a distance, or of all pairs.

`dense` serves groups of up to some thousands of items on a CPU, and of strings on a GPU those whose edits fit into
memory, unless a small distance is given. Else the forest grows by levels.
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
    growing, core = _Growing(len(distinct.items), device, settings.progress), device.xp.zeros(len(distinct.items))
    if settings.min_samples > 1:
        samples = device.xp.minimum(settings.min_samples, device.xp.bincount(number)[number] - 1)
        core = _grow_by_cores(growing, distinct, samples[distinct.copies.first], settings, report)
    elif old is None:
        is_done, _ = _add_dense(growing, distinct, None, limit, report)
        if not is_done.all():
            _grow(growing, distinct.items, distinct.groups, limit, report, ~is_done if is_done.any() else None)
    else:
        _append(growing, distinct, *old, limit, report)
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
    growing: _Growing, items: Items, groups: Groups, limit: float, report: Report, wanted: Array | None = None
) -> None:
    """Add the edges up to a limit, or all that the trees of the groups need.

    Within a limit only pairs that have a `wanted` item, (n,) bool, are found; None if all are wanted.
    """
    device = items.device
    if limit < inf:
        outside = None if wanted is None else (wanted, growing.component())
        _add_within(growing, items, groups, limit, outside, report)
        return
    level, component = -inf, growing.component()
    outside = _outside(component, groups, device) if growing.edges[0].size else device.xp.ones(len(items), bool)
    while (n_pairs := _pairs_left(outside, groups)) > 0:
        few = are_few(n_pairs, FEW_PAIRS[device.name])
        level = inf if few else next_level(items, groups, outside, component, level)
        _add_within(growing, items, groups, level, (outside, component), report)
        if level == inf:
            return
        component = growing.component()
        outside = _outside(component, groups, device)


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
    component = xp.arange(is_new.size, dtype="int32")
    _add_within(growing, distinct.items, distinct.groups, heaviest, (is_new, component), report)
    if limit == inf:
        _grow(growing, distinct.items, distinct.groups, inf, report)


def _add_dense(
    growing: _Growing, distinct: Distinct, samples: Array | None, limit: float, report: Report
) -> tuple[Array, Array]:
    """Add the trees of the groups whose distances are all stored; return the items of these groups, and core distances.

    The items are (n,) bool, and the core distances (n,) float64, infinite for other items. Edges beyond the limit may
    be added.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    counts = None if samples is None else distinct.copies.counts(device.xp) + 1.0
    is_done, core = device.xp.zeros(len(items), bool), device.xp.full(len(items), inf)
    if not dense.may_serve(device, samples is not None, limit):
        return is_done, core
    for group in np.flatnonzero(groups.sizes > SMALL_GROUP[device.name]).tolist():
        rows = groups.order[groups.starts[group] : groups.starts[group + 1]]
        own = items if rows.size == len(items) else items.take(rows)
        if not dense.serves(own, limit):
            continue
        with report.stage("spanning_tree", device):
            report.count("spanning_tree", pairs_weighed=rows.size * (rows.size - 1) // 2)
            by_cores = None if samples is None or counts is None else (counts[rows], samples[rows])
            (src, dst, weight), own_core = dense.tree_of_items(own, by_cores)
            growing.add((rows[src], rows[dst], weight))
            is_done[rows] = True
            if own_core is not None:
                core[rows] = own_core
    growing.settle()
    return is_done, core


def _add_within(
    growing: _Growing,
    items: Items,
    groups: Groups,
    limit: float,
    components: tuple[Array, Array] | None,
    report: Report,
) -> None:
    """Add the pairs within a limit.

    `components` tells which items search, (n,) bool, and the component of each item, (n,): only the pairs of these
    items that are in two components are added. If it is None, all pairs are.
    """
    device = items.device
    outside, component = components or (None, None)
    with report.stage("neighbors", device):
        search = ItemSearch(items, groups, limit, growing.progress)
        for src, dst, weight in search.parts(outside):
            if component is None:
                growing.add((src, dst, weight))
            else:
                joins = component[src] != component[dst]
                growing.add((src[joins], dst[joins], weight[joins]))
    with report.stage("spanning_tree", device):
        growing.settle()


def _grow_by_cores(growing: _Growing, distinct: Distinct, samples: Array, settings: Settings, report: Report) -> Array:
    """Add the edges by mutual reachability; return the core distances, (n,), infinite above `max_distance`.

    `samples`, (n,) integers, is `min_samples` for each item, or the number of all others in a smaller group.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    xp, n = device.xp, len(items)
    counts = distinct.copies.counts(xp) + 1.0
    core, is_done, alone = xp.where(counts > samples, 0.0, inf), xp.zeros(n, bool), xp.arange(n, dtype="int32")
    if settings.max_distance is None:
        is_done, core_of_done = _add_dense(growing, distinct, samples, inf, report)
        core = xp.where(is_done, core_of_done, core)
    outside = ~is_done
    level = -inf if settings.max_distance is None else settings.max_distance
    while (n_pairs := _pairs_left(outside, groups)) > 0:
        if settings.max_distance is None:
            few = are_few(n_pairs, FEW_PAIRS[device.name])
            level = inf if few else next_level(items, groups, outside, alone, level, settings.min_samples)
        with report.stage("neighbors", device):
            parts = ItemSearch(items, groups, level, settings.progress).parts(outside)
            src, dst, weight = one_of_each(list(parts), device)
            core = xp.where(outside, core_distances_of((src, dst), weight, counts, samples, xp), core)
            weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
            within = (weight <= level) & (weight < inf)
        with report.stage("spanning_tree", device):
            growing.add((src[within], dst[within], weight[within]))
            growing.settle()
        if settings.max_distance is not None or level == inf:
            break
        outside = (_outside(growing.component(), groups, device) | (core == inf)) & ~is_done
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

"""The minimum spanning forest of items: of all pairs within a distance, or of all pairs.

Without a distance the forest grows by levels. The edges of a spanning tree up to a level are those of the whole tree,
and every other one has an end outside the largest component of its group. So the next level searches for the pairs of
those items alone, up to a distance that a sample of them has to its nearest other components. When few pairs are left
all are compared.

With `min_samples` the same holds of mutual reachability: an item whose core distance is above the level is a component
of its own. The next level searches for its pairs, also if no component is larger. So these have all its neighbours up
to there.
"""

from math import inf

import numpy as np

from rapids_slink.items.kind import Items
from rapids_slink.items.search import (
    Distinct,
    ItemSearch,
    Pairs,
    are_few,
    distinct_items,
    next_level,
    of_copies,
    of_equal,
    one_of_each,
)
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.keys import Groups, groups_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.graphs import EdgeList, components, core_distances_of, forest_of_edges, spanning_forest
from rapids_slink.spanning_tree.problem import Tree

#: Up to this number of pairs of items that are left all are compared.
FEW_PAIRS = {"cpu": 2**22, "cuda": 2**26}
#: Edges that wait until they become a part of the forest.
WAITING = 2**22


def forest_of_items(
    items: Items, number: Array, settings: Settings, report: Report, old: tuple[int, Pairs] | None = None
) -> Tree:
    """The forest of items in groups, by `number`, (n,) int32, and the number of its trees.

    `old` is how many of the items, the first ones, have a forest, and that.
    """
    device, n = items.device, len(items)
    with report.stage("neighbors", device):
        distinct = distinct_items(items, number)
        report.count("neighbors", distinct_items=len(distinct.items))
    if settings.min_samples > 1:
        sizes = device.xp.bincount(number)[number]
        forest = _of_reachability(distinct, device.xp.minimum(settings.min_samples, sizes - 1), settings, report)
    else:
        growing = _Growing(len(distinct.items), device, settings.progress)
        if old is None:
            _grow(growing, distinct.items, distinct.groups, settings.max_distance, report)
        else:
            _append(growing, distinct, *old, settings.max_distance, report)
        forest = _with_copies(growing.kept, distinct, settings.max_distance)
    with report.stage("spanning_tree", device):
        tree = PreallocatedFrame.empty(device, forest[0].size, EDGE_TYPES)
        for column, values in zip(tree.columns.values(), forest, strict=True):
            column[...] = values
        sort_in_place(tree.columns, device.xp)
    return tree, n - forest[0].size


class _Growing:
    """The forest of the edges that were added, of n nodes."""

    def __init__(self, n: int, device: Device, progress: bool) -> None:
        xp, self.progress = device.xp, progress
        self.n, self.device, self.count = n, device, 0
        self.waiting: list[Pairs] = []
        self.kept: Pairs = (xp.empty(0, "int32"), xp.empty(0, "int32"), xp.empty(0))

    def add(self, pairs: Pairs) -> None:
        """Add edges, of which one may come several times."""
        if pairs[0].size:
            self.waiting.append(pairs)
            self.count += pairs[0].size
        if self.count > max(WAITING, 4 * self.n):
            self.settle()

    def settle(self) -> None:
        """Keep the edges of the forest alone."""
        if not self.waiting:
            return
        src, dst, weight = (self.device.xp.concatenate(part) for part in zip(self.kept, *self.waiting, strict=True))
        self.waiting, self.count = [], 0
        (forest, _), _ = forest_of_edges(EdgeList(src, dst, weight, self.n), 1, self.device)
        self.kept = tuple(forest.columns.values())

    def component(self) -> Array:
        """(n,) int32, the number of each node's tree."""
        edges = EdgeList(*self.kept, self.n)
        _, parent = spanning_forest(edges, self.device)
        return components(self.device.xp.arange(self.n), parent, self.device)


def _grow(growing: _Growing, items: Items, groups: Groups, limit: float | None, report: Report) -> None:
    """Add the edges up to a limit, or all that the trees of the groups need."""
    device = items.device
    if limit is not None:
        _add_within(growing, items, groups, limit, None, report)
        return
    level, component = -inf, growing.component()
    outside = _outside(component, groups, device) if growing.kept[0].size else device.xp.ones(len(items), bool)
    while (n_pairs := _pairs_left(outside, groups)) > 0:
        few = are_few(n_pairs, FEW_PAIRS[device.name])
        level = inf if few else next_level(items, groups, outside, component, level)
        _add_within(growing, items, groups, level, (outside, component), report)
        if level == inf:
            return
        component = growing.component()
        outside = _outside(component, groups, device)


def _append(growing: _Growing, distinct: Distinct, n_old: int, old: Pairs, limit: float | None, report: Report) -> None:
    """Add the edges of the first rows' forest and what the other rows need.

    By the cycle property the forest of all is within the old one and the pairs that have a new row. Of these the ones
    up to the heaviest old edge may replace one. Heavier ones only join what that leaves apart.
    """
    xp, of_row = distinct.items.device.xp, distinct.of_row
    growing.add((of_row[old[0]], of_row[old[1]], old[2]))
    is_new = xp.ones(len(distinct.items), bool)
    is_new[of_row[:n_old]] = False
    heaviest = limit if limit is not None else float(old[2].max()) if old[2].size else 0.0
    component = xp.arange(is_new.size, dtype="int32")
    _add_within(growing, distinct.items, distinct.groups, heaviest, (is_new, component), report)
    if limit is None:
        _grow(growing, distinct.items, distinct.groups, None, report)


def _add_within(
    growing: _Growing,
    items: Items,
    groups: Groups,
    limit: float,
    components: tuple[Array, Array] | None,
    report: Report,
) -> None:
    """Add the edges within a limit, of the items and between the components that are left."""
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


def _with_copies(forest: Pairs, distinct: Distinct, limit: float | None) -> Pairs:
    """The forest of rows: that of the first rows, and an edge of each copy to the first one, at distance zero."""
    if limit is not None and limit < 0:
        return forest
    xp, first = distinct.items.device.xp, distinct.first
    number = xp.arange(distinct.of_row.size, dtype="int32")
    of_row = first[distinct.of_row]
    copy = xp.flatnonzero(of_row != number).astype("int32")
    src, dst = (first[end] for end in forest[:2])
    return (
        xp.concatenate((src, of_row[copy])),
        xp.concatenate((dst, copy)),
        xp.concatenate((forest[2], xp.zeros(copy.size))),
    )


def _of_reachability(distinct: Distinct, samples: Array, settings: Settings, report: Report) -> Pairs:
    """The forest by mutual reachability, of rows: copies are rows of their own, since they have core distances.

    `samples`, (n,) integers, is `min_samples` for each row: those of a small group take all of it.
    """
    items, groups, device = distinct.items, distinct.groups, distinct.items.device
    xp, n = device.xp, distinct.of_row.size
    of_rows = groups_of(groups.number[distinct.of_row], len(groups), device)
    growing, core = _Growing(n, device, settings.progress), xp.full(n, inf)
    outside, component = xp.ones(n, bool), xp.arange(n, dtype="int32")
    level = -inf if settings.max_distance is None else settings.max_distance
    while (n_pairs := _pairs_left(outside, of_rows)) > 0:
        wanted = xp.zeros(len(items), bool)
        wanted[distinct.of_row[outside]] = True
        if settings.max_distance is None:
            few = are_few(n_pairs, FEW_PAIRS[device.name])
            alone = xp.arange(len(items))
            level = inf if few else next_level(items, groups, wanted, alone, level, settings.min_samples)
        with report.stage("neighbors", device):
            parts = [
                part
                for pairs in ItemSearch(items, groups, level, settings.progress).parts(wanted)
                for part in of_copies(pairs, distinct)
            ]
            src, dst, weight = one_of_each([*parts, *of_equal(distinct, level)], device)
            of_level = core_distances_of((src, dst), weight, xp.ones(n), samples, xp)
            core = xp.where(outside, of_level, core)
            weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
            within = (weight <= level) & (weight < inf)
        with report.stage("spanning_tree", device):
            growing.add((src[within], dst[within], weight[within]))
            growing.settle()
        if settings.max_distance is not None or level == inf:
            break
        component = growing.component()
        outside = _outside(component, of_rows, device) | (core == inf)
    return growing.kept


def _pairs_left(outside: Array, groups: Groups) -> int:
    """The pairs of an item outside the largest component with any of its group."""
    own = np.bincount(to_host(groups.number[outside]), minlength=len(groups))
    return int((own * (groups.sizes - 1)).sum())


def _outside(component: Array, groups: Groups, device: Device) -> Array:
    """(n,) bool: which items are not in the largest component of their group, the first of equals."""
    xp, n = device.xp, component.size
    of_component = groups_of(component, n, device)
    sizes, group = of_component.sizes, to_host(groups.number)[of_component.first]
    order = np.lexsort((of_component.first, -sizes, group))
    largest = order[np.concatenate((np.ones(1, bool), group[order][1:] != group[order][:-1]))]
    is_largest = np.zeros(sizes.size, bool)
    is_largest[largest] = True
    return ~xp.asarray(is_largest)[of_component.number]

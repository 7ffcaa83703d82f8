"""Trees of boxes: the minimum spanning tree of points of few features or low dimension, friends, and DBSCAN's clusters.

`docs/algorithms.md` has the proofs, under "Borůvka on a tree of boxes" and "Friends of friends".

**The tree**, on a GPU, by Borůvka's algorithm on the bounding volume hierarchy of `neighbors/bvh.py`. Each point
first finds its nearest few points. In a round each component but the largest looks for its lightest edge to a point
outside, and skips the nodes whose points all belong to it. Neighbouring points (a warp) search together. A point keeps
two results for later rounds:

- its candidate, the lightest edge that it knows. It bounds the component as long as it leaves the component; then the
  next of the point's nearest few that is outside replaces it;
- its floor, a weight: no edge from the point to the outside is lighter. A floor stays valid because components only
  grow. A point need not search while its candidate weighs the floor, or while its component has a lighter edge.

If there is a largest weight, no bound is above it, boxes beyond it are passed over, and the last round is the one that
takes no edge.

**Friends of friends** are the clusters of rows that steps of at most a distance connect, without the tree of the rows.

    rows ──▶ tree of boxes ──▶ unions of near points ──▶ labels
             neighbors/bvh.py  `write_friends`

Two points are united if they are within the distance, or if a box around both is so small that they must be. Nodes of
one component keep the number of pairs small where many points are within the distance of each other. A CPU unites
points from the leaves up, so that it knows all such nodes. On a GPU each point is united with those that follow it
along the curve. A node is *tight* if its points are all within the distance of each other: it is one component from the
start. The first points of tight nodes search first; the others then pass over most nodes, which are of one component.

**DBSCAN.** A row is *core* if the weights of the rows within the distance of it, itself among them, are enough
together. The clusters are the components of core rows by steps of at most the distance, numbered by their first core
rows. A row that is not core takes the least label among the core rows within the distance of it: scikit-learn's
expansion ends one cluster before it begins the next, so the first of these clusters reaches it first. Other rows are
noise.

    pairs within the distance ──▶ weights around each row ──▶ core rows ──▶ their components ──▶ borders

*By boxes*, where rows have few features: a walk for each row ends when its weights are enough. The components are the
friends of friends of core rows alone, and a walk for each other row finds its label.

*By pairs* of any kind: each pair comes once, in portions, and is kept until both of its rows are known to be core. Then
it connects them. If no weight is negative, a core row stays one, and few pairs are kept: each has a row that is not
core, which, if rows weigh 1, is in fewer pairs than are enough. If rows weigh less, more pairs may be left. Then none
is kept, and all come once more for each step.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import frexp, inf, ldexp
from typing import TYPE_CHECKING

import numpy as np

from rapids_slink.dendrogram.cutting import OUTLIER
from rapids_slink.neighbors import estimate_search, tree_class
from rapids_slink.neighbors.task import Search
from rapids_slink.neighbors.within import Limit, room_for_pairs
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import WARP, constant, number_a_block
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.memory import MemoryEstimate, release_cached
from rapids_slink.spanning_tree import Prepared, Problem, Tree, TreeInput, graphs, kernels

if TYPE_CHECKING:
    from rapids_slink.neighbors.bvh import BoxSearch

SOURCE = "spanning_tree/boxes.cu"
NEAREST, MAX_ROUNDS = (constant(SOURCE, name) for name in ("NEAREST", "MAX_ROUNDS"))
#: The bytes of a point's state and edge while the tree is made, without the search; and those of its edge and its
#: linkage once the search is gone.
POINT_BYTES, LINKED_BYTES = 28, 116


def estimate(problem: Problem, chosen: Search | None = None) -> MemoryEstimate:
    """Return the bytes of the rows, their tree of boxes, and the state of each point."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric, chosen=chosen)
    return replace(search, peak=max(search.peak + POINT_BYTES * n, LINKED_BYTES * n))


def prepare(inputs: TreeInput) -> Prepared | None:
    """Return the way by the tree of boxes that searches the points; None if another search suits them."""
    problem, report, search = inputs.problem, inputs.report, inputs.search.by_boxes
    if search is None:
        return None
    del inputs.search
    needed = estimate(problem, search)

    def make() -> Tree:
        nonlocal search
        release_cached()
        with report.stage("spanning_tree", problem.device):
            edges = tree_of_boxes(search, report, problem.max_weight)
            del search
            release_cached()
            sort_in_place(edges.columns, problem.device.xp)
        return edges, 1

    return Prepared(make, lambda: needed)


def tree_of_boxes(search: "BoxSearch", report: Report, max_weight: float = np.inf) -> PreallocatedFrame:
    """Return the minimum spanning tree of the points of a search, n - 1 edges in any order.

    The weights are surrogate distances. Edges above `max_weight` are missing. The tree takes over the search's memory,
    so the search cannot be used afterwards.
    """
    xp, n = search.device.xp, search.order.size
    search.check()
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    # Separate arrays fit into the gaps in memory that the search has left.
    candidate, component, size, chosen = (xp.empty(n, xp.int32) for _ in range(4))
    first_leaf, parent = search.leaf_of[::WARP].copy(), search.leaf_of
    following = xp.empty((NEAREST - 1, n), xp.int16)
    weight, bound = xp.empty(n), xp.empty(n)
    counters = xp.zeros(4 + 2 * MAX_ROUNDS, xp.uint64)
    above = np.nextafter(max_weight, np.inf)
    search.launch(
        "find_nearest", n, search.points, search.order, first_leaf, n, search.nodes, above, candidate, following,
        weight, source=SOURCE,
    )  # fmt: skip
    search.launch_resident(
        "grow_tree_of_boxes", n, search.points, search.order, first_leaf, *search.tree, max_weight, above, candidate,
        following, weight, component, size, chosen, parent, bound, number_a_block(SOURCE), *tree.columns.values(),
        counters, source=SOURCE,
    )  # fmt: skip
    _, n_edges, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree.head(n_edges)


# ------------------------------------------------------------------------------------------------------------- friends

#: A CPU holds these bytes for a point at its peak: its parent, its component, its label, and the counts along the rows.
#: On a GPU this is less than what is free again once the tree of boxes is made.
FRIEND_BYTES = 24


def estimate_friends(problem: Problem) -> MemoryEstimate:
    """Return the bytes of the rows' tree of boxes, of the components and the labels, and of the rows that are kept."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric)
    return search if problem.device.is_gpu else search + MemoryEstimate(n * (FRIEND_BYTES + d * itemsize))


def label_friends(rows: Array, problem: Problem, labels: Array, report: Report) -> int:
    """Write the label of each row, (n,) int32, in the order of first appearance; return the number of clusters."""
    assert problem.settings.friends_within is not None
    device, metric = problem.device, problem.metric
    device_kernels, limit = kernels(device), Limit.of(metric, problem.settings.friends_within, problem.n_features)
    report.count("neighbors", filter=tree_class(device).name)
    with report.stage("neighbors", device):
        boxes = device_kernels.make_boxes(rows, metric)
    with report.stage("friends", device):
        clusters: int = device_kernels.write_friends(boxes, limit.surrogate, metric, labels)
    return clusters


# --------------------------------------------------------------------------------------------------------------- DBSCAN

#: Portions of pairs; each pair comes once: src and dst (int32), and maybe distances, which are not read.
Parts = Callable[[], Iterable[tuple[Array, ...]]]
#: A portion has up to PAIRS_A_ROW pairs for each row, and LEAST_PAIRS more. At most this number of pairs is kept, or
#: for each row the number of pairs that make it a core row, if that is more.
PAIRS_A_ROW, LEAST_PAIRS = 16, 2**24
#: Sums of integers that have up to this number of bits have no rounding errors in float64.
EXACT_BITS = 52
#: Weights are shifted by at most this number of bits, so that the least sum can be shifted, too.
MOST_SHIFT = 900


def in_units(weights: Array, least: float, device: Device) -> tuple[Array, float]:
    """Return the weights, (n,) float64, and the least sum in units of a power of two, in which all sums are exact.

    So sums are the same in any order. Weights are rounded to units; the largest weight is 2²⁰ units or more.
    """
    if all_true(weights == device.xp.rint(weights)) and float(abs(weights).sum()) < 2.0**EXACT_BITS:
        return weights, least
    shift = min(MOST_SHIFT, EXACT_BITS - frexp(float(abs(weights).max()))[1] - weights.size.bit_length())
    return device.xp.rint(device.xp.ldexp(weights, shift)), ldexp(least, shift)


def most_pairs(n: int, device: Device, enough: float = 0) -> float:
    """Return the most pairs of a portion. With `enough`, the weight of a core row, return the most that are kept."""
    return min(max(PAIRS_A_ROW, enough) * n + LEAST_PAIRS, room_for_pairs(device) / 4)


class CoreRows:
    """What is known of core rows among n rows, while their pairs come once each."""

    def __init__(self, weights: Array, enough: float, device: Device) -> None:
        xp = device.xp
        self.weights, self.enough, self.device, self.grows = weights, enough, device, all_true(weights >= 0)
        self.total = weights.copy()  # the weight around each row, by the pairs that have come
        #: (n,) int32: a forest of core rows, whose roots are their components
        self.parent = xp.arange(weights.size, dtype="int32")
        #: the pairs that are left; None if all have to come again
        self.kept: tuple[Array, Array] | None = (xp.empty(0, "int32"), xp.empty(0, "int32"))

    @property
    def is_core(self) -> Array:
        """Return whether each row is core, (n,) bool, by the pairs that have come."""
        return self.total >= self.enough

    def add(self, src: Array, dst: Array) -> None:
        """Add a portion of the pairs to the totals, unite core rows, and keep the other pairs."""
        xp = self.device.xp
        for one, other in ((src, dst), (dst, src)):
            xp.add.at(self.total, one, self.weights[other])
        if self.kept is None:
            return
        src, dst = (xp.concatenate(both) for both in zip(self.kept, (src, dst), strict=True))
        self.kept = self.unite(src, dst) if self.grows else (src, dst)
        if self.kept[0].size > most_pairs(self.total.size, self.device, self.enough):
            self.kept = None

    def unite(self, src: Array, dst: Array) -> tuple[Array, Array]:
        """Unite the rows of pairs of core rows, and return the other pairs."""
        xp, is_core = self.device.xp, self.is_core
        both = is_core[src] & is_core[dst]
        united, others = xp.flatnonzero(both), xp.flatnonzero(~both)
        kernels(self.device).unite_pairs(self.parent, src[united], dst[united])
        return src[others], dst[others]

    def labels(self, parts: Parts) -> Array:
        """Return the label of each row, (n,) int32, when all pairs have come.

        If no pairs are kept, `parts` has all of them again.
        """
        kept = self.kept
        again: Parts = parts if kept is None else lambda: [kept]
        for src, dst, *_ in again():
            self.unite(src, dst)
        xp, is_core = self.device.xp, self.is_core
        core, labels = xp.flatnonzero(is_core), xp.full(self.total.size, OUTLIER, "int32")
        labels[core] = graphs.components(core, self.parent, self.device)
        label_borders(labels, is_core, again(), self.device)
        return labels


def label_borders(labels: Array, is_core: Array, parts: Iterable[tuple[Array, ...]], device: Device) -> None:
    """Write the labels of rows that are not core: the least label of core rows within the distance, or noise.

    The `parts` hold all pairs of such rows with core rows.
    """
    xp, none = device.xp, labels.size
    labels[~is_core] = none
    for src, dst, *_ in parts:
        for row, other in ((src, dst), (dst, src)):
            at = xp.flatnonzero(is_core[other] & ~is_core[row])
            xp.minimum.at(labels, row[at], labels[other[at]])
    labels[labels == none] = OUTLIER


def label_by_pairs(parts: Parts, weights: Array, enough: float, device: Device) -> tuple[Array, Array]:
    """Return the labels, (n,) int32, and which rows are core, (n,) bool, by all pairs within the distance."""
    rows = CoreRows(weights, enough, device)
    for src, dst, *_ in parts():
        rows.add(src, dst)
    return rows.labels(parts), rows.is_core


def label_by_boxes(
    rows: Array, problem: Problem, weights: Array | None, enough: float, report: Report
) -> tuple[Array, Array]:
    """Return what `label_by_pairs` returns, by trees of boxes; `Problem.finds_friends` says where.

    `rows` is the result of `neighbors.rows.metric_rows`. Without `weights` each row weighs 1.
    """
    device, metric, settings, n = problem.device, problem.metric, problem.settings, len(rows)
    assert settings.friends_within is not None
    xp, limit = device.xp, Limit.of(metric, settings.friends_within, problem.n_features)
    stops = enough if weights is None or all_true(weights >= 0) else inf
    with report.stage("neighbors", device):
        boxes, total = kernels(device).make_boxes(rows, metric), xp.zeros(n)
        kernels(device).reduce_near_points(boxes, limit.surrogate, metric, weights, total, stops)
        is_core = total >= enough
        core = xp.flatnonzero(is_core)
    labels = xp.full(n, OUTLIER, "int32")
    if not core.size:
        return labels, is_core
    core_labels = xp.zeros(core.size, "int32")
    if core.size > 1:
        label_friends(rows if core.size == n else rows[core], problem, core_labels, report)
    labels[core] = core_labels
    if core.size < n:
        with report.stage("borders", device):
            least = xp.where(is_core, labels.astype("float64"), inf)
            kernels(device).reduce_near_points(boxes, limit.surrogate, metric, least, least, None)
            labels = xp.where(least < inf, least, OUTLIER).astype("int32")
    return labels, is_core

"""HDBSCAN's clusters: the condensed dendrogram, the choice among its clusters, and the points' depths in them.

From the top down, a merge of two large parts splits a cluster into two. At any other merge the points of the small part
fall out of the cluster, and the cluster continues. λ is 1 / height, infinite at zero and where it overflows. A cluster
is born at the λ of its split, and a point leaves it at the λ at which it falls out. The stability of a cluster is the
sum of the times, in λ, that its points are in it (Campello, Moulavi and Sander, PAKDD 2013).

`condense` takes linear time, on the host: a dendrogram is a chain of dependent steps. A GPU follows pointers: see
`cuda.condense`.
"""

from typing import Any, NamedTuple

import numpy as np

from rapids_slink.points.check import require_numbers
from rapids_slink.points.output import PreallocatedFrame
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array, Device, device_of, half, to_host


class Merges(NamedTuple):
    """The columns of the linkage of n leaves in c trees, (n - c,) arrays of either device, by ascending height."""

    left_child: Array
    right_child: Array
    height: Array
    size: Array

    @classmethod
    def of(cls, linkage: Any) -> "Merges":
        """Return the columns of a linkage frame on the host, or those that a mapping holds."""
        return cls(*(getattr(linkage[name], "values", linkage[name]) for name in ("left", "right", "height", "size")))


class Condensed(NamedTuple):
    """A condensed dendrogram of n points. Cluster 0 is all points, and clusters come before those within them."""

    parent: np.ndarray  # (c,) int32, the cluster that each cluster split off from, -1 for the first
    birth: np.ndarray  # (c,) float64, the λ of that split, 0 for the first
    size: np.ndarray  # (c,) array, points in the cluster at its birth, or their weight
    cluster: Array  # (n,) int32, the cluster that each point falls out of
    departure: Array  # (n,) float64, the λ at which it falls out. `cluster` and this are arrays of either device


class Weighting(NamedTuple):
    """The weights of points that count as several equal ones."""

    weight: np.ndarray  # (n,) float64
    rate: np.ndarray  # (n,) float64, the λ at which the copies of each point part: 1 / its core distance, or infinite


NOTHING = np.empty(0)
#: The columns of a `CondensedTree`, with the types that the package hdbscan gives them.
CONDENSED = {"parent": np.intp, "child": np.intp, "lambda_val": np.float64, "child_size": np.intp}


def condense(merges: Merges, n: int, min_size: int, weighting: Weighting | None = None) -> Condensed:
    """Return the condensed dendrogram of a linkage of n leaves on the host, whose heights are not negative.

    The trees of a forest merge at infinity, where λ is 0. `min_size`, at least 2, is the least number of points of a
    large part, or the least sum of their weights. With weights, a point of that weight is a large part by itself,
    except in a merge at its core distance, where its copies part.
    """
    if merges.height.size < n - 1:
        merges = _as_one_tree(merges, n)
    weight, own_rate = (NOTHING, NOTHING) if weighting is None else weighting
    total: float = n
    if weight.size:
        merges = merges._replace(size=weigh(merges.left_child, merges.right_child, weight))
        total = float(weight.sum())
    max_clusters = 2 * max(1, min(n, int(total // min_size)))  # clusters that do not split further are disjoint
    types = np.int32, np.float64, merges.size.dtype
    parent, birth, cluster_size = (np.empty(max_clusters, dtype) for dtype in types)
    cluster_size[0] = total
    tree = Condensed(parent, birth, cluster_size, np.zeros(n, np.int32), np.full(n, np.inf))
    count = _condense(merges, min(min_size, np.iinfo(np.int64).max), weight, own_rate, tree)
    return tree._replace(parent=tree.parent[:count], birth=tree.birth[:count], size=tree.size[:count])


def _as_one_tree(merges: Merges, n: int) -> Merges:
    """Return a forest's merges, and then merges at infinity that add its trees to the largest one, in order of size.

    Small trees merge last, so that they fall out of the cluster of all points, not out of another tree's cluster.
    """
    m, size = merges.size.size, merges.size
    is_root = np.ones(n + m, bool)
    is_root[merges.left_child] = is_root[merges.right_child] = False
    roots = np.flatnonzero(is_root)
    sizes = np.concatenate([np.ones(n, size.dtype), size])[roots]
    order = np.argsort(-sizes, kind="stable")
    roots, sizes = roots[order], np.cumsum(sizes[order])
    before = np.concatenate([roots[:1], n + m + np.arange(roots.size - 2)])
    added = before, roots[1:], np.full(roots.size - 1, np.inf), sizes[1:]
    columns = zip(merges, added, strict=True)
    return Merges(*(np.concatenate(parts).astype(parts[0].dtype) for parts in columns))


def columns_of(tree: Condensed, weighting: Weighting | None = None, device: Device = CPU) -> dict[str, Array]:
    """Return the columns of a `CondensedTree`: first the rows of the clusters, then those of the points.

    The values of the dendrogram's points are on this device. The weights are on the host.
    """
    xp, n, clusters = device.xp, tree.cluster.size, tree.parent.size
    parent, birth, sizes = (device.asarray(column[1:]) for column in (tree.parent, tree.birth, tree.size))
    size = device.asarray(np.ones(n, np.int64) if weighting is None else weighting.weight)
    return {
        "parent": xp.concatenate([parent, tree.cluster]).astype("int64") + n,
        "child": xp.concatenate([xp.arange(n + 1, n + clusters), xp.arange(n)]),
        "lambda_val": xp.concatenate([birth, tree.departure]),
        "child_size": xp.concatenate([sizes, size]).astype(size.dtype),
    }


def condensed_frame(tree: Condensed, weighting: Weighting | None, device: Device) -> PreallocatedFrame:
    """Return the frame of a `CondensedTree` on a device. The values of points are there, or on the host."""
    columns = columns_of(tree, weighting, device_of(tree.cluster))
    return PreallocatedFrame.of(device, {name: device.asarray(column) for name, column in columns.items()})


def from_frame(frame: Any, n: int) -> Condensed:
    """Return the condensed dendrogram of n points that the columns of a `CondensedTree` hold.

    Raises ValueError if these are not the columns that `columns_of` makes of such a dendrogram.
    """
    require_numbers(frame, "condensed tree", parent="iu", child="iu", lambda_val="f", child_size="iuf")
    parent, child, rate, size = (to_host(frame[name].values) for name in CONDENSED)
    c = parent.size - n  # the number of clusters without that of all points
    later = np.concatenate([np.arange(c), np.full(n, c)])  # a cluster follows its parent
    in_order = c >= 0 and np.array_equal(child, np.concatenate([np.arange(c) + n + 1, np.arange(n)]))
    if not in_order or ((parent < n) | (parent - n > later)).any():
        raise ValueError(f"the condensed tree must hold clusters, each below its parent, and {n} rows, in order")
    return Condensed(
        np.concatenate([[-1], parent[:c] - n]).astype(np.int32),
        np.concatenate([[0.0], rate[:c]]),
        np.concatenate([[size[c:].sum()], size[:c]]),
        (parent[c:] - n).astype(np.int32),
        rate[c:],
    )


@njit(nogil=True, cache=True)
def _condense(merges, min_size, weight, own_rate, tree):
    """Write the condensed dendrogram of a linkage into arrays with room for it; return the number of its clusters."""
    left_child, right_child, height, size = merges.left_child, merges.right_child, merges.height, merges.size
    parent, birth, cluster_size, cluster, falls_at = tree.parent, tree.birth, tree.size, tree.cluster, tree.departure
    n = cluster.size
    parent[0], birth[0], count = -1, 0.0, 1
    # Merges are visited from the top down. For each, `within` is the cluster of its points before it, and `fallen` is
    # the λ at which they fell out, -1 if they did not.
    within, fallen = np.zeros(n, np.int32), np.full(n, -1.0)
    for i in range(n - 2, -1, -1):
        rate = 1 / height[i] if height[i] > 0 else np.inf
        left_is_large = _is_large(left_child[i], rate, min_size, size, weight, own_rate)
        right_is_large = _is_large(right_child[i], rate, min_size, size, weight, own_rate)
        splits = left_is_large and right_is_large and rate < np.inf  # points at distance zero stay together
        for child, is_large in ((left_child[i], left_is_large), (right_child[i], right_is_large)):
            own, at = within[i], fallen[i]
            if at < 0 and splits:
                own = count
                parent[own], birth[own], cluster_size[own] = within[i], rate, _points(child, size, n, weight)
                count += 1
            elif at < 0 and not is_large:
                at = rate
            if child >= n:
                within[child - n], fallen[child - n] = own, at
            else:
                cluster[child] = own
                falls_at[child] = at if at >= 0 else max(rate, own_rate[child]) if own_rate.size else rate
    return count


@njit(nogil=True, cache=True)
def weigh(left_child, right_child, weight):
    """Return the total weight of each merge's points, (merges,) float64."""
    n = weight.size
    total = np.empty(left_child.size)
    for i in range(left_child.size):
        total[i] = 0.0
        for child in (left_child[i], right_child[i]):
            total[i] += weight[child] if child < n else total[child - n]
    return total


@njit(nogil=True, cache=True)
def _is_large(node, rate, min_size, size, weight, own_rate):
    """Return whether a part of a merge at λ = `rate` may be a cluster.

    Its size must be at least `min_size`. A single point that stands for several copies must not split into its copies
    at this λ or at a smaller one.
    """
    n = size.size + 1
    return _points(node, size, n, weight) >= min_size and (node >= n or own_rate[node] > rate)


@njit(nogil=True, cache=True)
def _points(node, size, n, weight):
    """Return the number of points of a leaf or a merge, or their total weight if points have weights."""
    return size[node - n] if node >= n else weight[node] if weight.size else 1


class Rule(NamedTuple):
    """The rule by which clusters are selected from a condensed dendrogram."""

    #: whether to select the clusters that do not split further. Otherwise excess of mass decides: a cluster is
    #: preferred to those within it unless these are more stable together
    leaves: bool = False
    allow_single: bool = False  # whether all points may be one cluster
    #: the largest number of points of a cluster at its birth; ignored with `leaves`. The cluster of all points counts
    #: the points of its child clusters instead, as in the package hdbscan
    max_size: float = np.inf
    epsilon: float = 0.0  # clusters that split off below this height are merged into the one that they split from
    max_epsilon: float = np.inf  # clusters that split off above this height are not selected; ignored with `leaves`


class Selected(NamedTuple):
    """Selected clusters, numbered in the order in which they first appear among the points.

    Values of points are on the points' device.
    """

    labels: np.ndarray  # (n,) int32, -1 for noise
    #: (n,) float64, how deep in its cluster a point is: its λ over the largest λ of the cluster
    probabilities: np.ndarray
    persistence: np.ndarray  # (clusters,) float64, each stability as a share of its value if no point left
    clusters: np.ndarray  # (clusters,) int32, their numbers in the condensed dendrogram


class Summary(NamedTuple):
    """Values of each cluster of a condensed dendrogram, arrays on the host."""

    stability: np.ndarray  # (c,) float64
    largest: np.ndarray  # (c,) float64, the largest λ at which a point falls out or a cluster splits off
    first: np.ndarray  # (c,) int32, the first of the points that fall out of it, n if none does


def summarize(tree: Condensed, device: Device = CPU, weighting: Weighting | None = None) -> Summary:
    """Return the summary of a dendrogram whose points are on this device, a GPU only if there are no weights."""
    weight = NOTHING if weighting is None else weighting.weight
    summary = Summary(*half(device, __package__).sum_up_clusters(tree.cluster, tree.departure, tree.birth, weight))
    outer, birth = tree.parent[1:], tree.birth[1:]
    with np.errstate(over="ignore"):
        np.add.at(summary.stability, outer, (birth - tree.birth[outer]) * tree.size[1:])
    np.maximum.at(summary.largest, outer, birth)
    return summary


def select(tree: Condensed, rule: Rule, summary: Summary, device: Device = CPU) -> Selected:
    """Return the clusters that a rule selects, their persistence, and the label and the depth of each point in them."""
    stability, largest, _ = summary
    if rule.leaves:  # the clusters that do not split, and never that of all points
        selected = np.ones(tree.parent.size, bool)
        selected[0] = selected[tree.parent[1:]] = False
    else:
        selected = _most_stable(tree.parent, stability.copy(), _allowed(tree, rule))
    if rule.epsilon > 0:
        selected = _above(tree.parent, _heights(tree.birth), selected, rule.epsilon, rule.allow_single)
    labels, probabilities, numbers = _label(tree, selected, summary, rule.epsilon, device)
    ever = largest.max()
    if 0 < ever < np.inf:  # a stability may overflow
        persistence = np.minimum(stability[numbers] / ever / tree.size[numbers], 1.0)
    else:
        persistence = np.ones(numbers.size)
    return Selected(labels, probabilities, persistence, numbers)


def outlier_scores(tree: Condensed, summary: Summary, device: Device = CPU) -> Array:
    """Return the GLOSH score of each point, (n,) float64: 1 - λ / λ', and 0 for the densest points.

    λ' is the largest λ in the point's cluster and the clusters within it. Source: Campello, Moulavi, Zimek and Sander,
    "Hierarchical density estimates for data clustering, visualization, and outlier detection", TKDD 2015.
    """
    largest = summary.largest.copy()
    raise_to_those_within(tree.parent, largest)
    return half(device, __package__).score_points(tree.cluster, tree.departure, largest)


@njit(nogil=True, cache=True)
def raise_to_those_within(parent, largest):
    """Replace each cluster's value by the largest of its own and those of the clusters within it."""
    for c in range(largest.size - 1, 0, -1):
        largest[parent[c]] = max(largest[parent[c]], largest[c])


def _allowed(tree: Condensed, rule: Rule) -> np.ndarray:
    """Return which clusters the rule lets excess of mass select, (c,) bool."""
    size, birth = tree.size.astype(np.float64), tree.birth.copy()
    size[0] = size[1:][tree.parent[1:] == 0].sum()
    allowed = size <= rule.max_size
    allowed[0] &= rule.allow_single
    if rule.max_epsilon < np.inf:
        birth[0] = min(float(tree.departure.min()), birth[1:].min(initial=np.inf))  # the λ where all points first part
        allowed &= _heights(birth) <= rule.max_epsilon
    return allowed


def _heights(rate: np.ndarray) -> np.ndarray:
    """Return 1 / λ, the height that each λ stands for.

    These are two roundings away from the heights of the merges. The package hdbscan compares the same values.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / rate


def _most_stable(parent: np.ndarray, best: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return which clusters have the largest excess of mass, (c,) bool.

    `best` holds the stabilities and is overwritten. NumPy makes the arrays, because Numba takes long to compile their
    making.
    """
    within = np.zeros(best.size)  # the sum of the best values of the clusters within each
    selected, covered = np.zeros((2, best.size), np.bool_)
    _select_stable(parent, best, allowed, within, selected, covered)
    return selected & ~covered


@njit(nogil=True, cache=True)
def _select_stable(parent, best, allowed, within, selected, covered):
    """Mark in `selected` the clusters that are preferred to those within them, and in `covered` all within these."""
    for c in range(best.size - 1, -1, -1):
        selected[c] = allowed[c] and best[c] >= within[c]
        if not selected[c]:
            best[c] = within[c]
        if c > 0:
            within[parent[c]] += best[c]
    for c in range(1, best.size):
        covered[c] = covered[parent[c]] or selected[parent[c]]


@njit(nogil=True, cache=True)
def _above(parent, split_at, selected, epsilon, allow_single):
    """Replace each selected cluster that split off below `epsilon` by the first one around it that did so above.

    A selected cluster that split off at exactly `epsilon` stays. A cluster around a selected one is passed over if it
    split off there. The package hdbscan does the same. So a cluster that stays may be within one that replaces others.
    It is dropped if that one is the cluster of all points: there the package has a cluster without points.
    """
    raised = np.zeros(selected.size, np.bool_)
    outermost = 0 if allow_single else 1
    for c in range(selected.size):
        if selected[c]:
            outer = c
            if split_at[c] < epsilon:
                while parent[outer] >= outermost:
                    outer = parent[outer]
                    if split_at[outer] > epsilon:
                        break
            raised[outer] = True
    if raised[0]:
        raised[1:] = False
    return raised


def enclosing(parent: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Return the selected cluster that equals or contains each cluster, (c,) int32, -1 where there is none."""
    around = np.empty(selected.size, np.int32)
    _enclose(parent, selected, around)
    return around


@njit(nogil=True, cache=True)
def _enclose(parent, selected, around):
    for c in range(selected.size):
        around[c] = c if selected[c] else around[parent[c]] if c > 0 else -1


def _label(
    tree: Condensed, selected: np.ndarray, summary: Summary, epsilon: float, device: Device
) -> tuple[Array, Array, np.ndarray]:
    """Return the labels and the probabilities of points, (n,) each, and the cluster of each label."""
    around = enclosing(tree.parent, selected)
    first = np.full(selected.size, tree.cluster.size)
    np.minimum.at(first, around[around >= 0], summary.first[around >= 0])
    clusters = np.flatnonzero(selected).astype(np.int32)
    clusters = clusters[np.argsort(first[clusters])]
    number = np.full(selected.size + 1, -1, np.int32)  # the last is that of no cluster
    number[clusters] = np.arange(clusters.size)
    stay = 0.0
    if selected[0]:  # all points are one cluster, and those that leave it before its end, or before epsilon, are noise
        stay = 1 / epsilon if epsilon > 0 else float(summary.largest[0])
    labels, depth = half(device, __package__).label_points(
        tree.cluster, tree.departure, number[around], summary.largest[around], stay
    )
    if selected[0]:
        clusters = clusters[: int(labels.max() >= 0)]
    return labels, depth, clusters


class Layer(NamedTuple):
    """A range of smallest sizes of clusters at which the clusters that do not split further are the same ones."""

    min_size: int  # the first of these sizes
    last_size: int
    persistence: int  # the sum over its clusters of the number of sizes at which each one lasts
    n_clusters: int


def layers(merges: Merges, n: int) -> list[Layer]:
    """Return the layers that persist longer than those beside them, the longest first.

    The linkage of n leaves is on the host. A side of a merge is a cluster up to the size of the smaller side. It does
    not split from the first size on that is above the smaller side of every merge within it. So each side is a cluster
    without splits in one range of sizes, and the persistence of a size is the sum of the lengths of the ranges that
    hold it (Bot, McInnes and Aerts, "Persistent multiscale density-based clustering", arXiv 2512.16558).
    """
    if merges.height.size < n - 1:
        merges = _as_one_tree(merges, n)
    begin, end = _ranges_of_sizes(merges, n)
    lasts = begin < end
    begin, end = begin[lasts] + 1, end[lasts] + 1
    sizes = np.unique(np.concatenate([begin, end]))
    change = np.zeros((2, sizes.size + 1), np.int64)
    for at, sign in ((begin, 1), (end, -1)):
        np.add.at(change[0], np.searchsorted(sizes, at), sign * (end - begin))
        np.add.at(change[1], np.searchsorted(sizes, at), sign)
    persistence, clusters = np.cumsum(change, axis=1)
    before = np.concatenate([[0], persistence[:-2]])
    peaks = np.flatnonzero((persistence[:-1] > before) & (persistence[:-1] >= persistence[1:]))
    peaks = peaks[np.argsort(-persistence[peaks], kind="stable")]
    return [Layer(*map(int, (sizes[i], sizes[i + 1] - 1, persistence[i], clusters[i]))) for i in peaks]


@njit(nogil=True, cache=True)
def _ranges_of_sizes(merges, n):
    """Return the sizes (first, last] at which each side of a merge is a cluster that does not split: two (2m,) int64.

    Sizes are at least 2, and points at distance zero stay together.
    """
    left_child, right_child, height, size = merges.left_child, merges.right_child, merges.height, merges.size
    m = left_child.size
    within = np.ones(n + m, np.int64)  # the largest size at which anything in a leaf or a merge splits, at least 1
    first, last = np.ones(2 * m, np.int64), np.ones(2 * m, np.int64)
    for i in range(m):
        a, b = left_child[i], right_child[i]
        smaller = min(size[a - n] if a >= n else 1, size[b - n] if b >= n else 1)
        if height[i] > 0 and 1 / height[i] < np.inf:
            first[2 * i], first[2 * i + 1] = within[a], within[b]
            last[2 * i] = last[2 * i + 1] = smaller
        else:
            smaller = 1
        within[n + i] = max(smaller, within[a], within[b])
    return first, last

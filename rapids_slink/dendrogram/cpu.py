"""The dendrogram kernels on the CPU: union-find over a sorted tree, one pass down a dendrogram, sums over clusters."""

from typing import TYPE_CHECKING

import numpy as np

from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

if TYPE_CHECKING:
    from rapids_slink.dendrogram import Members

#: The number of points of a cluster whose times are summed at a time.
SUMMED = constant("dendrogram/clusters.cu", "SUMMED")
#: The number of groups whose edges a thread merges at a time.
GROUPS_OF_CHUNK = 2**11


@njit(cache=True, inline="always")
def find_root(parent, v):
    """Return the root of v's set, and halve the path to it (Tarjan and van Leeuwen, 1984). A root is its own parent."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


def merge_in_order(src, dst, n, left_child, right_child, size, groups=None):
    """Merge the clusters at the ends of the edges of a tree of n leaves, (m,) int32 `src` and `dst`, in turn.

    Writes the two clusters that each edge merges, the lesser first, and the number of leaves that they have together,
    (m,) int32. Returns the number of edges that merge clusters: fewer than m if the next one closes a cycle. Union by
    size with path halving is O(m α(m)).

    `groups` holds the group of each edge, (m,) int32, and the number of groups, which share no leaf and have no cycle.
    All cores take groups in turn, and the edges of a group find their sets in a core's cache.
    """
    parent = np.arange(n, dtype=np.int32)  # NumPy makes the arrays: Numba takes long to compile that
    sets = np.empty((n, 2), np.int32)
    sets[:, 0], sets[:, 1] = 1, parent
    if groups is None:
        return _merge_edges(None, src, dst, n, parent, sets, left_child, right_child, size)
    group, n_groups = groups
    order, start = _order_by_group(group, n_groups)

    def merge_some(some: slice) -> None:
        edges = order[start[some.start] : start[some.stop]]
        _merge_edges(edges, src, dst, n, parent, sets, left_child, right_child, size)

    for_each_chunk(CPU, merge_some, chunks_for_cores(n_groups, GROUPS_OF_CHUNK, GROUPS_OF_CHUNK))
    return len(src)


@njit(nogil=True, cache=True)
def _merge_edges(edges, src, dst, n, parent, sets, left_child, right_child, size):
    """Merge the clusters at the ends of these edges in turn; return how many there are before one within a cluster.

    None stands for all edges. A root's row of `sets` holds, in one cache line, the size and the cluster of its set.
    """
    merged = 0
    for e in range(len(src) if edges is None else len(edges)):
        i = e if edges is None else edges[e]
        u, v = find_root(parent, src[i]), find_root(parent, dst[i])
        if u == v:
            break
        if sets[u, 0] < sets[v, 0]:
            u, v = v, u
        parent[v] = u
        left_child[i] = min(sets[u, 1], sets[v, 1])
        right_child[i] = max(sets[u, 1], sets[v, 1])
        size[i] = sets[u, 0] + sets[v, 0]
        sets[u, 0], sets[u, 1] = size[i], n + i
        merged += 1
    return merged


@njit(cache=True)
def _order_by_group(group, n_groups):
    """Return the entries of each group, one group after another, (m,) int32, and where each begins, (n_groups + 1,)."""
    start = np.zeros(n_groups + 1, np.int64)
    for k in group:
        start[k + 1] += 1
    for k in range(n_groups):
        start[k + 1] += start[k]
    at, order = start[:-1].copy(), np.empty(group.size, np.int32)
    for i in range(group.size):
        order[at[group[i]]] = i
        at[group[i]] += 1
    return order, start


@njit(cache=True)
def label_clusters(left_child, right_child, n, kept=None):
    """Return the flat clusters that m merges of n leaves make: of each leaf, then of each merge, (n + m,) int32.

    The children of these merges are two arrays, (m,) int32 each. Clusters are numbered in the order of their first
    leaves. `kept`, (m,) bool, marks the merges that take place, and all merges within them. Then only the labels of
    leaves are valid.
    """
    m = len(left_child)
    flat, number, n_numbered = np.empty(n + m, np.int32), np.empty(n + m, np.int32), 0
    for c in range(n + m):
        flat[c], number[c] = c, -1
    for i in range(m - 1, -1, -1):
        if kept is None or kept[i]:
            flat[left_child[i]] = flat[right_child[i]] = flat[n + i]
    for leaf in range(n):
        if number[flat[leaf]] < 0:
            number[flat[leaf]] = n_numbered
            n_numbered += 1
    for c in range(n + m):
        flat[c] = number[flat[c]]
    return flat


def label_points(cluster, departure, label, largest, stay):
    """Return the labels of points in condensed clusters, (n,) int32, and their depths in these, (n,) float64.

    `label` and `largest` hold a label and the largest λ for each cluster. Points that leave before λ = `stay` have no
    label. Points without a label have the label -1 and the depth 0.
    """
    labels, largest = np.where(departure >= stay, label[cluster], np.int32(-1)), largest[cluster]
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = np.where(departure < largest, departure / largest, 1.0)
    return labels, np.where(labels < 0, 0.0, depth)


def score_points(cluster, departure, largest):
    """Return the outlier scores of points, (n,) float64, from the largest λ of each cluster."""
    largest = largest[cluster]
    with np.errstate(invalid="ignore"):
        return np.where(departure >= largest, 0.0, 1 - departure / largest)


@njit(cache=True)
def heights_of_size(left_child, right_child, height, size, min_size):
    """Return the height at which each leaf of a tree enters its first cluster of at least `min_size` leaves, (n,).

    If there is none, it is the height of the last merge.
    """
    n = height.size + 1
    leaf_height, merge_height = np.empty(n), height.copy()
    for i in range(n - 2, -1, -1):
        for child in (left_child[i], right_child[i]):
            if child < n:
                leaf_height[child] = merge_height[i]
            elif size[child - n] < min_size:
                merge_height[child - n] = merge_height[i]
    return leaf_height


@njit(cache=True)
def mark_upwards(left_child, right_child, mark):
    """Return whether each leaf, and then each merge, has a leaf that `mark`, (n,) bool, marks: (n + m,) bool."""
    n, m = mark.size, left_child.size
    holds = np.empty(n + m, np.bool_)
    holds[:n] = mark
    for i in range(m):
        holds[n + i] = holds[left_child[i]] or holds[right_child[i]]
    return holds


@njit(cache=True)
def ranks_in_groups(group, n_groups):
    """Count for each entry those before it that have its group, a number below `n_groups`: (m,) int64."""
    rank, seen = np.empty(group.size, np.int64), np.zeros(n_groups, np.int64)
    for i in range(group.size):
        rank[i] = seen[group[i]]
        seen[group[i]] += 1
    return rank


@njit(nogil=True, cache=True)
def sum_up_clusters(cluster, departure, birth, weight):
    """Sum up the points that fall out of each of the c clusters of a condensed dendrogram.

    `cluster`, `departure` and `birth` are those of `Condensed`. `weight` is the weight of each point, (n,) float64, or
    an empty array if each has 1. Returns three arrays of shape (c,). The first is the sum of the times, in λ, that
    points are in a cluster before they fall out of it, float64. The second is the largest λ of these points, float64.
    The third is the first of these points, int32, n if there is none. Both devices sum `SUMMED` points of a cluster one
    after another, and then these sums, so that they agree in all bits.
    """
    n, c = cluster.size, birth.size
    total, part, largest = np.zeros(c), np.zeros(c), np.zeros(c)
    first, count = np.full(c, n, np.int32), np.zeros(c, np.int32)
    for p in range(n):
        at = cluster[p]
        if not count[at]:
            first[at] = p
        elif count[at] % SUMMED == 0:
            total[at] += part[at]
            part[at] = 0.0
        part[at] += (departure[p] - birth[at]) * (weight[p] if weight.size else 1.0)
        count[at] += 1
        largest[at] = max(largest[at], departure[p])
    return total + part, largest, first


# ----------------------------------------------------------------------------------------------------- rows of clusters

#: The number of rows of a cluster that are summed at a time.
PART = constant("dendrogram/catalogue.cu", "PART")
MIN_CLUSTERS = 64  # the least number of clusters that a thread takes


def means_of_clusters(values: np.ndarray, members: "Members", box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each cluster's rows of `values`, (clusters, d), and its mass, (clusters,); both float64."""
    clusters = members.start.size - 1
    mean, mass = np.empty((clusters, values.shape[1])), np.empty(clusters)

    def work(part: slice) -> None:
        _write_means(values, *_fields(members), box, part.start, part.stop, mean, mass)

    for_each_chunk(CPU, work, chunks_for_cores(clusters, MIN_CLUSTERS))
    return mean, mass


def deviations_of_clusters(
    values: np.ndarray, members: "Members", box: np.ndarray, mean: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest distance of each cluster's rows from its mean, and their spread: (clusters,) float64 each.

    The spread is the root of the weighted mean of the squares of these distances.
    """
    clusters = members.start.size - 1
    radius, spread = np.empty(clusters), np.empty(clusters)

    def work(part: slice) -> None:
        _write_deviations(values, *_fields(members), box, mean, mass, part.start, part.stop, radius, spread)

    for_each_chunk(CPU, work, chunks_for_cores(clusters, MIN_CLUSTERS))
    return radius, spread


def _fields(members: "Members") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return members.rows, members.start, np.empty(0) if members.weight is None else members.weight


@njit(nogil=True, cache=True, inline="always")
def _nearest_gap(gap, length):
    """Return the gap between two coordinates after one was moved by whole lengths to where it is nearest."""
    return gap - length * np.rint(gap / length) if length < np.inf else gap


@njit(nogil=True, cache=True, inline="always")
def _into_box(x, length):
    """Return the coordinate, moved by whole lengths to at least 0 and below the length if that is finite."""
    if not length < np.inf:
        return x
    x -= length * np.floor(x / length)
    return x if x < length else 0.0


@njit(nogil=True, cache=True)
def _write_means(values, rows, start, weight, box, begin, end, mean, mass):
    d, sums, total = values.shape[1], np.empty(values.shape[1]), np.empty(values.shape[1])
    for c in range(begin, end):
        first, whole = rows[start[c]], 0.0
        total[:] = 0.0
        for part in range(start[c], start[c + 1], PART):
            sums[:], part_mass = 0.0, 0.0
            for i in range(part, min(part + PART, start[c + 1])):
                row = rows[i]
                w = weight[row] if weight.size else 1.0
                part_mass += w
                for f in range(d):
                    gap = _nearest_gap(np.float64(values[row, f]) - np.float64(values[first, f]), box[f])
                    sums[f] += w * gap
            whole += part_mass
            for f in range(d):
                total[f] += sums[f]
        mass[c] = whole
        for f in range(d):
            mean[c, f] = _into_box(np.float64(values[first, f]) + total[f] / whole, box[f])


@njit(nogil=True, cache=True)
def _write_deviations(values, rows, start, weight, box, mean, mass, begin, end, radius, spread):
    for c in range(begin, end):
        largest, total = 0.0, 0.0
        for part in range(start[c], start[c + 1], PART):
            part_sum = 0.0
            for i in range(part, min(part + PART, start[c + 1])):
                row, square = rows[i], 0.0
                for f in range(values.shape[1]):
                    gap = _nearest_gap(np.float64(values[row, f]) - mean[c, f], box[f])
                    square += gap * gap
                largest = max(largest, square)
                part_sum += (weight[row] if weight.size else 1.0) * square
            total += part_sum
        radius[c], spread[c] = np.sqrt(largest), np.sqrt(total / mass[c])

"""The dendrogram kernels on the GPU: launchers of `dendrogram.cu`, `clusters.cu` and `catalogue.cu`.

A linkage in parallel, after PANDORA (Sao, Prokopenko, Lebrun-Grandié, 2024). The edges are sorted, so an edge's
position is its *rank*, and all ranks differ. D is the dendrogram: an edge's parent is the edge that merges the cluster
it made.

*Contraction.* Every part (at first a node) points across its lightest edge. These edges are contracted, which makes the
parts of the next level, at most half as many. The edges that are the lightest at neither end (alpha edges) remain for
the next level, until none remains. This is Borůvka on the tree.

*Chains.* Let e be an edge contracted on some level, S1 ⊂ S2 ⊂ ... the parts that hold it on the levels above, and
top(S) the lightest edge that leaves S. The chain of e is the first S with top(S) > e. The edges of a chain S follow one
another in D in the order of their ranks, and top(S) comes after the last of them:

1. Let h be inside S and heavier than top(S') for each smaller S' that holds it, and f an edge that leaves such an S'
   or S. All edges between h and f on their path are lighter than the heavier of the two. Each such edge, g, was the
   lightest at one of its ends. Go on over that end: the next edge of the path on g's level is heavier, and so on up to
   f, or to an edge of a higher level, where the same holds, or to the part S' that holds h; but then the edge before
   is top(S'), and h is heavier.
2. S was made of parts that point at each other along ever lighter edges, down to two that share theirs, core_edge(S).
   An edge h of chain S is one of these edges, or it is inside a part and heavier than the edge that leaves the part. By
   (1), the cluster that h makes holds core_edge(S). So of two edges of chain S the lighter lies below the heavier in D.
3. An edge x inside S that is lighter than top(S) and of another chain belongs to the chain of a smaller part R in S and
   is lighter than top(R). The cluster that it makes stays in R, which does not hold core_edge(S). So x lies above no
   edge of chain S. The cluster of the last edge of chain S does not leave S before top(S), and top(S) merges it by (1).

So an edge's children are the edge before it in its chain and the end of the chain of the part whose lightest edge it
was. The first edge of a chain is core_edge(S), with a part at both ends. No chain above the leaves is empty. Sizes are
sums along the chains of each edge's children, level by level, because children are of a lower level.

The numbers of parts depend on the order of threads; the result does not. The time does not depend on the depth of the
dendrogram: there are at most log2(n) levels, and chains are followed by pointer doubling.
"""

from typing import TYPE_CHECKING, Any

import cupy as cp
import numpy as np

from rapids_slink.dendrogram import cpu
from rapids_slink.dendrogram.condense import Condensed
from rapids_slink.runtime.cuda import check_arrays, constant, launch, launch_resident, number_a_block, value_option
from rapids_slink.runtime.device import Array

if TYPE_CHECKING:
    from rapids_slink.dendrogram import Members

SOURCE, SUMS, CATALOGUE = (f"dendrogram/{name}.cu" for name in ("dendrogram", "clusters", "catalogue"))
MAX_LEVELS = constant(SOURCE, "MAX_LEVELS")
COUNTERS = 512  # more than a launch needs: two per level and one per round of pointer doubling


def merge_in_order(
    src: Array, dst: Array, n: int, left_child: Any, right_child: Any, size: Any, groups: Any = None
) -> int:
    """Merge the clusters at the ends of a tree's edges, as `rapids_slink.dendrogram.cpu.merge_in_order` does.

    The groups are not needed, because a GPU merges all edges at once anyway.
    """
    m = src.size
    if not m:
        return 0
    lightest_exit = cp.empty(2 * n, cp.int64)  # a level has at most half the parts of the level before
    key = cp.empty(m, cp.int64)
    children, kept, pointer = cp.empty((m, 2), cp.int32), cp.empty((6, m), cp.int32), cp.empty(n, cp.int32)
    levels = cp.zeros(MAX_LEVELS + 4, cp.int32)
    _launch("contract", n, np.int32(m), np.int32(n), src, dst, lightest_exit, children, pointer, kept, key, levels)
    del lightest_exit, kept, pointer  # the sort may reuse their memory
    key.sort()
    _launch(
        "merge_along_chains", m, np.int32(m), np.int32(n), levels, children, key, cp.empty(n + 1, cp.int32),
        cp.empty(m, cp.uint32), number_a_block(SOURCE), left_child, right_child, size,
    )  # fmt: skip
    if not int(levels[1]):
        return m
    # Union-find finds the first edge that closes a cycle.
    return cpu.merge_in_order(cp.asnumpy(src), cp.asnumpy(dst), n, *np.empty((3, m), np.int32))


def label_clusters(left_child: Any, right_child: Any, n: int, kept: Any = None) -> Any:
    """Return the flat cluster of each leaf and each merge, as `rapids_slink.dendrogram.cpu.label_clusters` does.

    The kernel takes kept merges alone, so these are numbered anew.
    """
    if kept is not None:
        rows, new = cp.flatnonzero(kept), cp.arange(n + kept.size, dtype=cp.int32)
        new[n + rows] = cp.arange(n, n + rows.size, dtype=cp.int32)
        left_child, right_child = new[left_child[rows]], new[right_child[rows]]
    clusters = n + left_child.size
    pointer, first_leaf, label = cp.empty((3, clusters), cp.int32)
    number = cp.empty(n, cp.uint32)
    _launch(
        "label_clusters", clusters, np.int32(n), np.int32(left_child.size), left_child, right_child, pointer,
        first_leaf, number, number_a_block(SOURCE), label,
    )  # fmt: skip
    return label


def mark_upwards(left_child: Array, right_child: Array, mark: Array) -> Array:
    """Return whether each leaf and each merge holds a marked leaf, as `rapids_slink.dendrogram.cpu.mark_upwards` does.

    In each round a mark goes to where its node's pointer leads, and pointers reach twice as far. Before a round a merge
    has the marks of all nodes that are fewer steps below it than its pointers reach.
    """
    m, n = left_child.size, mark.size
    holds, pointer = cp.zeros(n + m, bool), cp.arange(n + m, dtype=cp.int32)
    holds[:n] = mark
    pointer[left_child] = pointer[right_child] = cp.arange(n, n + m, dtype=cp.int32)
    for _ in range(m.bit_length()):  # a path has at most m pointers
        holds[pointer[holds]] = True
        pointer = pointer[pointer]
    return holds


def ranks_in_groups(group: Any, n_groups: int) -> Any:
    """Count for each entry those before it in its group, as `rapids_slink.dendrogram.cpu.ranks_in_groups` does."""
    order, begin = cp.argsort(group), cp.zeros(n_groups + 1, cp.int64)  # CuPy sorts stably
    cp.cumsum(cp.bincount(group, minlength=n_groups), out=begin[1:])
    rank = cp.empty(group.size, cp.int64)
    rank[order] = cp.arange(group.size) - begin[group[order]]
    return rank


def condense(left_child: Array, right_child: Array, height: Array, size: Array, min_size: int) -> Condensed:
    """Return the condensed dendrogram of one tree without weights. The values of points stay on the GPU.

    Every node of the dendrogram, leaf or merge, points at the merge that takes it. From each leaf, pointers within
    parts that are too small are followed to the first merge that is large enough: it tells when the leaf falls out.
    Other pointers are followed up to the nearest side of a split: it tells which cluster the leaf falls out of.
    """
    n = left_child.size + 1
    (large, side), rate, split = _follow_parts(left_child, right_child, height, size, min_size)
    top_down = cp.asarray(np.ascontiguousarray(np.sort(split.get())[::-1]))
    splits, leaves = np.int32(top_down.size), np.int32(n)
    number, birth = cp.zeros(2 * n - 1, cp.int32), cp.empty(2 * top_down.size)
    parent, points = cp.empty((2, 2 * top_down.size), cp.int32)
    cluster, departure = cp.empty(n, cp.int32), cp.empty(n)
    launch(
        SUMS, "number_sides", n, splits, top_down, leaves, left_child, right_child, size, rate, number, birth, points
    )
    launch(SUMS, "place_leaves", n, splits, top_down, leaves, large, side, rate, number, cluster, departure, parent)
    root_first = ((-1, parent), (0.0, birth), (n, points))
    outer, rates, sizes = (np.append(np.array([root], a.dtype), a.get()) for root, a in root_first)
    return Condensed(outer, rates, sizes, cluster, departure)


def label_points(
    cluster: Array, departure: Array, label: np.ndarray, largest: np.ndarray, stay: float
) -> tuple[Array, Array]:
    """Return the labels of points and their depths, as `rapids_slink.dendrogram.cpu.label_points` does."""
    labels, depth = cp.empty_like(cluster), cp.empty_like(departure)
    launch(
        SUMS, "label_points", cluster.size, cluster.size, cluster, departure, cp.asarray(label), cp.asarray(largest),
        stay, labels, depth,
    )  # fmt: skip
    return labels, depth


def score_points(cluster: Array, departure: Array, largest: np.ndarray) -> Array:
    """Return the outlier scores of points, as `rapids_slink.dendrogram.cpu.score_points` does."""
    score = cp.empty_like(departure)
    launch(SUMS, "score_points", cluster.size, cluster.size, cluster, departure, cp.asarray(largest), score)
    return score


def heights_of_size(left_child: Array, right_child: Array, height: Array, size: Array, min_size: int) -> Array:
    """Return the height at which each leaf enters its first large cluster, as `dendrogram.cpu.heights_of_size` does."""
    (large, _), *_ = _follow_parts(left_child, right_child, height, size, min_size)
    return height[large[: height.size + 1] - np.int32(height.size + 1)]


def _follow_parts(
    left_child: Array, right_child: Array, height: Array, size: Array, min_size: int
) -> tuple[Array, Array, Array]:
    """Return the ends of `condense`'s pointers, (2, nodes), the λ of each merge, and the splits in no order."""
    m, nodes = height.size, 2 * height.size + 1
    pointer, rate = cp.empty((2, nodes), cp.int32), cp.empty(m)
    split, count = cp.empty(m, cp.int32), cp.zeros(1, cp.int32)
    launch(
        SUMS, "begin_parts", m, m + 1, left_child, right_child, height, size, min(min_size, m + 2), rate, pointer[0],
        pointer[1], split, count,
    )  # fmt: skip
    for _ in range(m.bit_length()):  # a path has at most m pointers
        launch(SUMS, "follow", 2 * nodes, nodes, pointer)
    return pointer, rate, split[: int(count[0])]


def sum_up_clusters(cluster: Array, departure: Array, birth: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sum up the points of each cluster, as `rapids_slink.dendrogram.cpu.sum_up_clusters` does.

    Raises ValueError if the points have weights. The results are on the host.
    """
    if weight.size:
        raise ValueError("a GPU sums up clusters of points without weights")
    n, c = cluster.size, birth.size
    key, start = cp.empty(n, cp.uint64), cp.empty(c + 1, cp.int64)
    points, clusters = np.int32(n), np.int32(c)
    launch(SUMS, "pack_clusters", n, points, cluster, key)
    key.sort()
    launch(SUMS, "find_starts", n + 1, points, clusters, key, start)
    ends = np.cumsum(-(-np.diff(start.get()) // cpu.SUMMED))
    first_part, max_parts = cp.asarray(np.append(np.zeros(1, np.int64), ends)), n // cpu.SUMMED + c
    (sums, maxima), (total, largest), first = cp.empty((2, max_parts)), cp.empty((2, c)), cp.empty(c, cp.int32)
    launch(
        SUMS, "sum_parts", max_parts, points, clusters, key, start, first_part, departure, cp.asarray(birth), sums,
        maxima,
    )  # fmt: skip
    launch(SUMS, "sum_clusters", c, points, clusters, key, start, first_part, sums, maxima, total, largest, first)
    return total.get(), largest.get(), first.get()


def _launch(kernel: str, jobs: int, *arguments: Any) -> None:
    """Start a cooperative kernel with as many blocks as this number of jobs needs."""
    launch_resident(SOURCE, kernel, jobs, *arguments, cp.zeros(COUNTERS, cp.uint64))


# ----------------------------------------------------------------------------------------------------- rows of clusters

PART = constant(CATALOGUE, "PART")  # the number of rows of a cluster that are summed at a time


def means_of_clusters(values: Array, members: "Members", box: Array) -> tuple[Array, Array]:
    """Return the mean of each cluster's rows and its mass, as `rapids_slink.dendrogram.cpu.means_of_clusters` does."""
    clusters, d = members.start.size - 1, values.shape[1]
    first_part, max_parts = _cut_into_parts(values, members, box)
    sums, mean, mass = cp.empty((max_parts, d + 1)), cp.empty((clusters, d)), cp.empty(clusters)
    options = (value_option(values.dtype),)
    launch(
        CATALOGUE, "sum_gaps", max_parts * (d + 1), values, d, members.rows, members.start, first_part, clusters,
        members.weight, box, sums, options=options,
    )  # fmt: skip
    launch(
        CATALOGUE, "write_means", clusters * d, values, d, members.rows, members.start, first_part, clusters, box, sums,
        mean, mass, options=options,
    )  # fmt: skip
    return mean, mass


def deviations_of_clusters(
    values: Array, members: "Members", box: Array, mean: Array, mass: Array
) -> tuple[Array, Array]:
    """Return the largest distance from each cluster's mean, and the spread, as `cpu.deviations_of_clusters` does."""
    clusters, d = members.start.size - 1, values.shape[1]
    first_part, max_parts = _cut_into_parts(values, members, box)
    check_arrays("float64", mean, size=clusters * d)
    check_arrays("float64", mass, size=clusters)
    largest, sums = cp.empty((2, max_parts))
    radius, spread = cp.empty((2, clusters))
    options = (value_option(values.dtype),)
    launch(
        CATALOGUE, "sum_squares", max_parts, values, d, members.rows, members.start, first_part, clusters,
        members.weight, box, mean, largest, sums, options=options,
    )  # fmt: skip
    launch(
        CATALOGUE, "write_deviations", clusters, clusters, first_part, largest, sums, mass, radius, spread,
        options=options,
    )  # fmt: skip
    return radius, spread


def _cut_into_parts(values: Array, members: "Members", box: Array) -> tuple[Array, int]:
    """Check the arrays that describe the rows of clusters, and cut these rows into parts.

    Returns the number of each cluster's first part, closed by the number of parts, and an upper bound of the latter.
    """
    check_arrays("float64", members.weight, size=len(values))
    check_arrays("float64", box, size=values.shape[1])
    first_part = cp.zeros_like(members.start)
    first_part[1:] = cp.cumsum(-(-cp.diff(members.start) // PART))
    return first_part, members.rows.size // PART + members.start.size - 1

"""The condensed dendrogram of HDBSCAN: its clusters of a minimum size; `selection` chooses among them.

From the top down, a merge of two large parts splits a cluster into two. At any other merge the points of the small part
fall out of the cluster, and the cluster continues. λ is 1 / height, infinite at zero and where it overflows. A cluster
is born at the λ of its split, and a point leaves it at the λ at which it falls out (Campello, Moulavi and Sander, PAKDD
2013).

Everything here takes linear time, on the host: a dendrogram is a chain of dependent steps. `condense_parallel` is for a
GPU.
"""

from typing import Any, NamedTuple

import numpy as np

from rapids_slink.points.check import require_numbers
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array, Device, to_host


class Merges(NamedTuple):
    """The columns of the linkage of n leaves in c trees, (n - c,) arrays of either device, by ascending height."""

    left_child: Array
    right_child: Array
    height: Array
    size: Array


class Condensed(NamedTuple):
    """A condensed dendrogram of n points. Cluster 0 is all points, and clusters come before those within them."""

    parent: np.ndarray  # (c,) int32, the cluster that each cluster split off from, -1 of the first
    birth: np.ndarray  # (c,) float64, the λ of that split, 0 of the first
    size: np.ndarray  # (c,) array, points in the cluster at its birth, or their weight
    cluster: Array  # (n,) int32, the cluster that each point falls out of
    departure: Array  # (n,) float64, the λ at which it does; like `cluster` of either device


class Weighting(NamedTuple):
    """Points that count as several equal ones."""

    weight: np.ndarray  # (n,) float64
    rate: np.ndarray  # (n,) float64, the λ at which the copies of each point part: 1 / its core distance, or infinite


NOTHING = np.empty(0)
#: The columns of a `CondensedTree`, with the types that the package hdbscan gives them.
CONDENSED = {"parent": np.intp, "child": np.intp, "lambda_val": np.float64, "child_size": np.intp}


def condense(merges: Merges, n: int, min_size: int, weighting: Weighting | None = None) -> Condensed:
    """The condensed dendrogram of a linkage of n leaves on the host, whose heights are not negative.

    The trees of a forest merge at infinity, where λ is 0. `min_size`, at least 2, is the least number of points of a
    large part, or the least sum of their weights. Then a point of that weight is a large part by itself, except in a
    merge at its core distance, where its copies part.
    """
    if merges.height.size < n - 1:
        merges = _joined(merges, n)
    weight, own_rate = (NOTHING, NOTHING) if weighting is None else weighting
    total: float = n
    if weight.size:
        merges = merges._replace(size=_weigh(merges.left_child, merges.right_child, weight))
        total = float(weight.sum())
    max_clusters = 2 * max(1, min(n, int(total // min_size)))  # clusters that do not split further are disjoint
    types = np.int32, np.float64, merges.size.dtype
    parent, birth, cluster_size = (np.empty(max_clusters, dtype) for dtype in types)
    cluster_size[0] = total
    tree = Condensed(parent, birth, cluster_size, np.zeros(n, np.int32), np.full(n, np.inf))
    count = _condense(merges, min_size, (weight, own_rate), tree)
    return tree._replace(parent=tree.parent[:count], birth=tree.birth[:count], size=tree.size[:count])


def _joined(merges: Merges, n: int) -> Merges:
    """A forest's merges and then those of its trees at infinity, each with all before, the largest tree first.

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
    """The columns of a `CondensedTree`: first the rows of the clusters, then the points'."""
    xp, n, clusters = device.xp, tree.cluster.size, tree.parent.size

    def column(of_clusters: np.ndarray, of_points: Array, dtype: Any) -> Array:
        values = xp.empty(clusters - 1 + n, dtype)
        values[: clusters - 1], values[clusters - 1 :] = device.asarray(of_clusters), device.asarray(of_points)
        return values

    size = xp.ones(1, "int64") if weighting is None else weighting.weight
    parent = column(tree.parent[1:], tree.cluster, "int64")
    parent += n
    return {
        "parent": parent,
        "child": column(np.arange(n + 1, n + clusters), xp.arange(n), "int64"),
        "lambda_val": column(tree.birth[1:], tree.departure, "float64"),
        "child_size": column(tree.size[1:], size, size.dtype),
    }


def from_frame(frame: Any, n: int) -> Condensed:
    """The condensed dendrogram of n points in the columns of a `CondensedTree`.

    Raises ValueError if these are not `columns_of` such a dendrogram.
    """
    require_numbers(frame, "condensed tree", parent="iu", child="iu", lambda_val="f", child_size="iuf")
    parent, child, rate, size = (to_host(frame[name].values) for name in CONDENSED)
    c = parent.size - n  # clusters, without that of all points
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
def _condense(merges, min_size, weighting, tree):
    left_child, right_child, height, size = merges
    (parent, birth, cluster_size, cluster, falls_at), (weight, own_rate) = tree, weighting
    n = cluster.size
    parent[0], birth[0], count = -1, 0.0, 1
    # From the top down: the cluster of each merge's points before it, and the λ at which they fell out.
    within, fallen = np.zeros(n, np.int32), np.full(n, -1.0)
    for i in range(n - 2, -1, -1):
        rate = 1 / height[i] if height[i] > 0 else np.inf
        left_is_large = _is_large(left_child[i], rate, min_size, size, weighting)
        right_is_large = _is_large(right_child[i], rate, min_size, size, weighting)
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
def _weigh(left_child, right_child, weight):
    """The weight of each merge's points."""
    n = weight.size
    total = np.empty(left_child.size)
    for i in range(left_child.size):
        total[i] = 0.0
        for child in (left_child[i], right_child[i]):
            total[i] += weight[child] if child < n else total[child - n]
    return total


@njit(nogil=True, cache=True)
def _is_large(node, rate, min_size, size, weighting):
    """Whether a part of a merge at λ = `rate` may be a cluster. A point whose copies part there is none, nor before."""
    weight, own_rate = weighting
    n = size.size + 1
    return _points(node, size, n, weight) >= min_size and (node >= n or own_rate[node] > rate)


@njit(nogil=True, cache=True)
def _points(node, size, n, weight):
    """The number of points of a leaf or a merge, or their weight."""
    return size[node - n] if node >= n else weight[node] if weight.size else 1

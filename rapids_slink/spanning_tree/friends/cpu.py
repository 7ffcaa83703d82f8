"""Friends of friends on a CPU, by a k-d tree."""

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.trees.tree import (
    LEAF,
    SERIAL_POINTS,
    Tree,
    add_gap,
    box_to_box,
    build,
    groups_of_nodes,
    to_boxes,
    to_points,
)
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import for_each_chunk, workers
from rapids_slink.union_find import find_root


def make_boxes(rows: Array, metric: Metric) -> Tree:
    """The k-d tree of rows."""
    return build(rows)


def write_labels(tree: Tree, limit: float, metric: Metric, labels: Array) -> tuple[int, int]:
    """Write the label of each row, (n,) int32, of clusters by steps of surrogate distances of at most `limit`.

    Returns the number of clusters, and how many rows are not the first of their cells.

    Threads join the leaves of a subtree each, and then one thread joins leaves of different subtrees. A thread writes
    parents of its own subtree's points alone: where both roots are of other subtrees, as those of cells that hold the
    whole subtree, there is nothing to join within it.
    """
    formula, n, leaves = metric.cpu_formula, labels.size, tree.first.size // 2
    group, parent = np.full(tree.first.size, -1, np.int32), np.arange(n, dtype=np.int32)
    in_cells = _mark_cells(formula, tree, limit, group, parent)
    parts = 2 ** (workers(CPU) - 1).bit_length() if n > SERIAL_POINTS else 1
    top = min(parts, leaves + 1) - 1  # the first of the nodes that are as many subtrees

    def join(v: int) -> None:
        if group[v] < 0:
            _join_leaves(formula, tree, limit, group, parent, tree.first[v], tree.last[v], tree.last[v], 0)

    for_each_chunk(CPU, join, range(top, 2 * top + 1))
    if top:
        _flatten(parent)
        group = groups_of_nodes(tree.first, parent)
        for v in range(top, 2 * top):
            _join_leaves(formula, tree, limit, group, parent, tree.first[v], tree.last[v], n, tree.last[v])
    return int(_number(parent, tree.position, labels)), int(in_cells)


@njit(nogil=True, cache=True)
def _mark_cells(formula, tree, limit, group, parent):
    """Mark the nodes whose points are all within the limit of each other by the first of them, and join these.

    Rounding is monotone, so the formula of a box's sides is no less than that of two points inside. Returns how many
    points are not the first of the largest marked node that holds them.
    """
    others = 0
    for v in range(group.size):
        total, a, b = 0.0, tree.first[v], tree.last[v]
        for f in range(tree.low.shape[1]):
            total = add_gap(formula, total, tree.high[v, f] - tree.low[v, f])
        if total <= limit:
            group[v] = a
            if v == 0 or group[(v - 1) // 2] < 0:
                parent[a:b] = a
                others += b - a - 1
    return others


@njit(nogil=True, cache=True)
def _join(parent, p, q):
    """Join the components of two points: the later root goes under the other."""
    a, b = find_root(parent, p), find_root(parent, q)
    parent[max(a, b)] = min(a, b)


@njit(nogil=True, cache=True)
def _join_leaves(formula, tree, limit, group, parent, begin, end, last, first):
    """Join the points of the leaves from `begin` to `end` to those within the limit after them, up to `last`.

    If `first` is not 0, only to those from it on. Nodes of one component that is the leaf's own are passed over.
    """
    leaves, distance, gaps, stack = tree.first.size // 2, np.empty(LEAF), np.empty(LEAF), np.empty(128, np.int64)
    points = np.empty((tree.low.shape[1], LEAF))
    leaf = leaves + np.searchsorted(tree.first[leaves:], begin)
    while leaf < tree.first.size and tree.first[leaf] < end:
        a, b = tree.first[leaf], tree.last[leaf]
        if first == 0 and group[leaf] < 0:
            for p in range(a, b):
                _join_to_leaf(formula, tree, limit, parent, p, p + 1, b, False, distance)
        points[:] = tree.columns[:, a : a + LEAF]
        after, depth, stack[0] = max(b, first), 1, 0
        while depth:
            depth -= 1
            v = stack[depth]
            if tree.last[v] <= after or tree.first[v] >= last:
                continue
            if box_to_box(formula, tree.low[leaf], tree.high[leaf], tree.low, tree.high, v) > limit:
                continue
            if group[v] >= 0 and group[leaf] >= 0 and find_root(parent, group[v]) == find_root(parent, group[leaf]):
                continue
            if v < leaves:
                stack[depth], stack[depth + 1] = 2 * v + 2, 2 * v + 1
                depth += 2
                continue
            to_boxes(formula, points, tree.low, tree.high, v, gaps)
            for p in range(a, b):
                if gaps[p - a] > limit:
                    continue
                if group[v] >= 0 and find_root(parent, group[v]) == find_root(parent, p):
                    continue
                is_near = _join_to_leaf(
                    formula, tree, limit, parent, p, tree.first[v], tree.last[v], group[v] >= 0, distance
                )
                if is_near and group[v] >= 0 and group[leaf] >= 0:
                    break
        leaf += 1


@njit(nogil=True, cache=True)
def _join_to_leaf(formula, tree, limit, parent, p, a, b, is_one, distance):
    """Join a point to those of a..b within the limit, to the first alone if they are one component already."""
    to_points(formula, tree.columns, p, tree.columns, a, distance[: b - a])
    for j in range(b - a):
        if distance[j] <= limit:
            _join(parent, p, a + j)
            if is_one:
                return True
    return False


@njit(nogil=True, cache=True)
def _flatten(parent):
    """Each point's root; parents come before their points."""
    for p in range(parent.size):
        parent[p] = parent[parent[p]]


@njit(nogil=True, cache=True)
def _number(parent, position, labels):
    """Labels in the order of rows; returns how many clusters there are."""
    number, count = np.full(parent.size, -1, np.int32), 0
    _flatten(parent)
    for row in range(labels.size):
        root = parent[position[row]]
        if number[root] < 0:
            number[root] = count
            count += 1
        labels[row] = number[root]
    return count

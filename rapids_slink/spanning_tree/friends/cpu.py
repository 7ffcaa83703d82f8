"""Friends of friends on a CPU, by a k-d tree.

Nodes are joined from the leaves up: the points of a leaf, then the two children of each node. So it is known of most
nodes whether their points are of one component, and two nodes of which both are need one pair of near points, or none.
"""

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.trees.tree import (
    LEAF,
    SERIAL_POINTS,
    Tree,
    box_to_box,
    build,
    may_wrap,
    to_boxes,
    to_points,
)
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import for_each_chunk, workers
from rapids_slink.union_find import find_root

#: Pairs of nodes that wait: splitting one of a pair leaves one more, and a tree has at most 32 levels.
STACK = 128


def make_boxes(rows: Array, metric: Metric) -> Tree:
    """The k-d tree of rows."""
    return build(rows)


def write_labels(tree: Tree, limit: float, metric: Metric, labels: Array) -> int:
    """Write the label of each row, (n,) int32, of clusters by steps of surrogate distances of at most `limit`.

    Returns the number of clusters. Threads join the nodes of a subtree each, whose points' parents are its own.
    """
    one, parent = np.zeros(tree.first.size, bool), np.arange(labels.size, dtype=np.int32)
    levels, upper = tree.first.size.bit_length(), 0  # of the tree, and of those that one thread joins at the end
    if labels.size > SERIAL_POINTS:
        upper = min(levels - 1, (workers(CPU) - 1).bit_length())

    def join(root: int) -> None:
        _join_nodes(metric.cpu_formula, tree, limit, one, parent, root, levels - upper)

    for_each_chunk(CPU, join, range(2**upper - 1, 2 ** (upper + 1) - 1))
    if upper:
        _join_nodes(metric.cpu_formula, tree, limit, one, parent, 0, upper)
    return int(_number(parent, tree.position, labels))


@njit(nogil=True, cache=True)
def _join_nodes(formula, tree, limit, one, parent, root, levels):
    """Join the points of the nodes of a subtree, the lowest of some levels first, to those of the node's other child.

    `one` is whether the points of a node are of one component, written for each.
    """
    leaves, distance, gaps = tree.first.size // 2, np.empty(LEAF), np.empty(LEAF)
    points, pairs, more = (
        np.empty((tree.low.shape[1], LEAF)),
        np.empty((STACK, 2), np.int64),
        np.empty((STACK, 2), np.int64),
    )
    begin, count = root, 1
    for _ in range(levels - 1):
        begin, count = 2 * begin + 1, 2 * count
    while count:
        for v in range(begin, begin + count):
            a, b = tree.first[v], tree.last[v]
            if v < leaves:
                left, right = 2 * v + 1, 2 * v + 2
                _join_pairs(formula, tree, limit, one, parent, left, right, pairs, more, points, gaps, distance)
                joined = one[left] and one[right]
                one[v] = joined and find_root(parent, tree.first[left]) == find_root(parent, tree.first[right])
                continue
            wraps = may_wrap(formula, tree.low[v], tree.high[v], tree.low, tree.high, v)
            for p in range(a, b - 1):
                to_points(formula, tree.columns, p, tree.columns, p + 1, distance[: b - p - 1], wraps)
                for j in range(b - p - 1):
                    if distance[j] <= limit:
                        _join(parent, p, p + 1 + j)
            own, one[v] = find_root(parent, a), True
            for p in range(a + 1, b):
                one[v] &= find_root(parent, p) == own
        begin, count = (begin - 1) // 2, count // 2


@njit(nogil=True, cache=True)
def _join(parent, p, q):
    """Join the components of two points: the later root goes under the other."""
    a, b = find_root(parent, p), find_root(parent, q)
    parent[max(a, b)] = min(a, b)


@njit(nogil=True, cache=True)
def _join_pairs(formula, tree, limit, one, parent, left, right, pairs, more, points, gaps, distance):
    """Join the points of two nodes within the limit."""
    leaves, pairs[0, 0], pairs[0, 1], depth = tree.first.size // 2, left, right, 1
    while depth:
        depth -= 1
        a, b = pairs[depth]
        if box_to_box(formula, tree.low[a], tree.high[a], tree.low, tree.high, b) > limit:
            continue
        if one[a] and one[b]:
            if find_root(parent, tree.first[a]) != find_root(parent, tree.first[b]) and _are_near(
                formula, tree, limit, a, b, more, points, gaps, distance
            ):
                _join(parent, tree.first[a], tree.first[b])
        elif a >= leaves and b >= leaves:
            _join_leaves(formula, tree, limit, one, parent, a, b, points, gaps, distance)
        else:
            depth = _split(tree, a, b, pairs, depth)


@njit(nogil=True, cache=True)
def _split(tree, a, b, pairs, depth):
    """Let the pairs of one node's children wait in place of the pair: of the node with more points."""
    if tree.last[a] - tree.first[a] > tree.last[b] - tree.first[b]:
        pairs[depth, 0], pairs[depth, 1] = 2 * a + 1, b
        pairs[depth + 1, 0], pairs[depth + 1, 1] = 2 * a + 2, b
    else:
        pairs[depth, 0], pairs[depth, 1] = a, 2 * b + 1
        pairs[depth + 1, 0], pairs[depth + 1, 1] = a, 2 * b + 2
    return depth + 2


@njit(nogil=True, cache=True)
def _are_near(formula, tree, limit, a, b, pairs, points, gaps, distance):
    """Whether some point of a node is within the limit of one of another."""
    leaves, pairs[0, 0], pairs[0, 1], depth = tree.first.size // 2, a, b, 1
    while depth:
        depth -= 1
        a, b = pairs[depth]
        if box_to_box(formula, tree.low[a], tree.high[a], tree.low, tree.high, b) > limit:
            continue
        if a < leaves or b < leaves:
            depth = _split(tree, a, b, pairs, depth)
            continue
        first, size = tree.first[b], tree.last[b] - tree.first[b]
        points[:] = tree.columns[:, tree.first[a] : tree.first[a] + LEAF]
        wraps = may_wrap(formula, tree.low[a], tree.high[a], tree.low, tree.high, b)
        to_boxes(formula, points, tree.low, tree.high, b, gaps, wraps)
        for i in range(tree.last[a] - tree.first[a]):
            if gaps[i] <= limit:
                to_points(formula, tree.columns, tree.first[a] + i, tree.columns, first, distance[:size], wraps)
                for j in range(size):
                    if distance[j] <= limit:
                        return True
    return False


@njit(nogil=True, cache=True)
def _join_leaves(formula, tree, limit, one, parent, a, b, points, gaps, distance):
    """Join the points of two leaves within the limit; of a leaf of one component each point meets one."""
    if one[a]:
        a, b = b, a
    first, size = tree.first[b], tree.last[b] - tree.first[b]
    points[:] = tree.columns[:, tree.first[a] : tree.first[a] + LEAF]
    wraps = may_wrap(formula, tree.low[a], tree.high[a], tree.low, tree.high, b)
    to_boxes(formula, points, tree.low, tree.high, b, gaps, wraps)
    for i in range(tree.last[a] - tree.first[a]):
        p = tree.first[a] + i
        if gaps[i] > limit or (one[b] and find_root(parent, p) == find_root(parent, first)):
            continue
        to_points(formula, tree.columns, p, tree.columns, first, distance[:size], wraps)
        for j in range(size):
            if distance[j] <= limit:
                _join(parent, p, first + j)
                if one[b]:
                    break


@njit(nogil=True, cache=True)
def _number(parent, position, labels):
    """Labels in the order of rows; returns how many clusters there are."""
    number, count = np.full(parent.size, -1, np.int32), 0
    for p in range(parent.size):
        parent[p] = parent[parent[p]]  # parents come before their points
    for row in range(labels.size):
        root = parent[position[row]]
        if number[root] < 0:
            number[root] = count
            count += 1
        labels[row] = number[root]
    return count

"""How lists begin, in the search by a k-d tree: with the nearest points of the leaf that the rows start in, sorted.

Each distance of a row is compared with all, in vector instructions. Inserted one by one, 12 of a leaf's 30
points would go into a list of five, and which ones cannot be foretold.
"""

import numpy as np

from rapids_slink.neighbors.exact.cpu import reachability
from rapids_slink.neighbors.trees.gaps import to_points
from rapids_slink.neighbors.trees.tree import LEAF
from rapids_slink.runtime.compiling import njit

MIN_RANKED = 3  # the length of a list from which on this takes less time than to insert points


@njit(nogil=True, cache=True, inline="always")
def begin_lists(formula, tree, leaf, queries, begin, m, excluded, lanes, reached):
    """The lists of m rows from `begin` on, of the points in their leaf, and the rows' bounds."""
    x, _, _, _, own_group, bound, last_id, _, must_visit = lanes
    group, core, ids, weights = excluded.group, excluded.core, reached.ids, reached.weights
    near, own_rows, nearest = np.empty(LEAF), np.empty(LEAF), np.empty(LEAF, np.int64)
    a, k = tree.first[leaf], ids.shape[1]
    count = tree.last[leaf] - a
    for c in range(count):
        own_rows[c] = tree.order[a + c]
    for j in range(m):
        if not must_visit[j]:
            continue
        q = queries.rows[begin + j]
        to_points(formula, x, j, tree.columns, a, near)
        for c in range(count):
            weight = reachability(near[c], core, queries.start[begin + j], a + c)
            near[c] = weight if (weight <= bound[j]) & (group[a + c] != own_group[j]) else np.inf
        for e in range(min(k, _rank(near, own_rows, count, nearest))):
            ids[q, e], weights[q, e] = tree.order[a + nearest[e]], near[nearest[e]]
        if ids[q, k - 1] >= 0:
            bound[j], last_id[j] = weights[q, k - 1], ids[q, k - 1]


@njit(nogil=True, cache=True, inline="always")
def _rank(near, row, count, nearest):
    """Sort the points at finite distances, by these and by their rows, which are float64 for vector instructions.

    Returns how many there are.
    """
    near[count:] = np.inf
    n_ranked = 0
    for c in range(np.uint64(count)):
        if near[c] < np.inf:
            distance, own, rank = near[c], row[c], np.int64(0)
            for e in range(np.uint64(LEAF)):
                rank += (near[e] < distance) | ((near[e] == distance) & (row[e] < own))
            nearest[rank] = c
            n_ranked += 1
    return n_ranked

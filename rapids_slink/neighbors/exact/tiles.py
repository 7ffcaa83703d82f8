"""Tiles of distances and the lists that they go into: the CPU's kernels.

Functions of one pair take the number of a list, never a slice, and tests are one expression without branches:
otherwise Numba updates the arrays' reference counts in each call, for which threads contend.
"""

import numpy as np

from rapids_slink.neighbors.exact.formulas import POINTS, ROWS
from rapids_slink.neighbors.exact.weigh import weigh
from rapids_slink.runtime.compiling import njit


@njit(nogil=True, cache=True)
def weigh_pairs(formula, values, src, dst, tile, out):
    """The distances of pairs of rows."""
    for i in range(src.size):
        weigh(formula, values, src[i : i + 1], values, dst[i : i + 1], tile)
        out[i] = tile.total[0, 0]


@njit(nogil=True, cache=True)
def fill_rows(formula, values, ids, begin, end, tile, matrix):
    """The distances of some rows from themselves and from all later ones, and those in the other direction.

    `ids` are the numbers of all rows.
    """
    rows = ids[begin:end]
    for first in range(begin, ids.size, POINTS):
        points = ids[first : first + POINTS]
        weigh(formula, values, rows, values, points, tile)
        for i in range(rows.size):  # no slice is assigned, which takes Numba two seconds to compile
            for j in range(points.size):
                matrix[begin + i, first + j] = tile.total[i, j]
        for j in range(points.size):
            for i in range(rows.size):
                matrix[first + j, begin + i] = tile.total[i, j]


@njit(nogil=True, cache=True)
def rerank(formula, points, rows, candidates, state, overflowed, tile):
    """See `rapids_slink.neighbors.exact.cpu.rerank`."""
    (queries, others), (candidate, count), (core, upper, ids, weights) = points, candidates, state
    near, capacity = np.empty(POINTS, np.int32), candidate.shape[1]
    for i in range(rows.size):
        c, listed = 0, min(count[i], capacity)
        while c < listed:
            size = 0
            while c < listed and size < POINTS:
                if candidate[i, c] >= 0 and not core_above(core, candidate[i, c], upper[i]):
                    near[size], size = candidate[i, c], size + 1
                c += 1
            weigh(formula, queries, rows[i : i + 1], others, near[:size], tile)
            for e in range(size):
                if tile.total[0, e] <= upper[i]:
                    weight = reachability(tile.total[0, e], core, rows[i], near[e])
                    insert_within(upper, ids, weights, i, near[e], weight)
        overflowed[i] |= count[i] > capacity


@njit(nogil=True, cache=True)
def scan(formula, points, rows, groups, state, stride, tile):
    """Points are visited in a low-discrepancy order, so that lists are near their end early, whatever the order."""
    (queries, others), (row_group, point_group), (core, upper, ids, weights) = points, groups, state
    near, n = np.empty(POINTS, np.int32), others.shape[0]
    for first in range(0, rows.size, ROWS):
        together = rows[first : first + ROWS]
        visited, j = 0, 0
        while visited < n:
            size, bound = 0, -np.inf
            for t in range(together.size):
                bound = max(bound, upper[first + t])
            while visited < n and size < POINTS:
                if not core_above(core, j, bound):
                    near[size], size = j, size + 1
                visited, j = visited + 1, j + stride
                j -= n if j >= n else 0
            weigh(formula, queries, together, others, near[:size], tile)
            for t in range(together.size):
                i = first + t
                for c in range(size):
                    if tile.total[t, c] <= upper[i] and point_group[near[c]] != row_group[i]:
                        weight = reachability(tile.total[t, c], core, rows[i], near[c])
                        insert_within(upper, ids, weights, i, near[c], weight)


@njit(nogil=True, cache=True)
def scan_both(formula, points, rows, others, state, tile):
    """Insert the pairs of two blocks, or of a block with itself, into the lists of both points."""
    upper, ids, weights = state
    is_one, bound = rows[0] == others[0], np.empty(POINTS)
    for first in range(0, rows.size, ROWS):
        for start in range(first if is_one else 0, others.size, POINTS):
            near = others[start : start + POINTS]
            weigh(formula, points, rows[first : first + ROWS], points, near, tile)
            for c in range(near.size):
                bound[c] = upper[near[c]]
            for t in range(min(ROWS, rows.size - first)):
                i, seen = rows[first + t], max(0, first + t + 1 - start) if is_one else 0
                if _any_within(tile.total, t, near.size, upper[i], bound):
                    for c in range(seen, near.size):
                        j, weight = near[c], tile.total[t, c]
                        if weight <= upper[i]:
                            insert_within(upper, ids, weights, i, j, weight)
                        if weight <= bound[c]:
                            insert_within(upper, ids, weights, j, i, weight)
                            bound[c] = upper[j]


@njit(nogil=True, cache=True)
def _any_within(distance, t, size, upper, bound):
    """Whether row t of a tile has a distance within one of two bounds, in vector instructions."""
    count = 0
    for c in range(np.uint64(size)):
        count += (distance[t, c] <= upper) | (distance[t, c] <= bound[c])
    return count > 0


@njit(cache=True)
def core_above(core, j, bound):
    """Whether every pair with point j has a weight above `bound` by its core distance alone; False without cores."""
    return core[j] > bound if core.size else False


@njit(cache=True)
def reachability(surrogate, core, i, j):
    """The mutual reachability of points i and j, whose surrogate distance is given; itself if there are no cores."""
    return max(surrogate, core[i], core[j]) if core.size else surrogate


@njit(cache=True)
def comes_before(weight, id_, other_weight, other_id):
    """The total order on the edges of one point."""
    return (weight < other_weight) | ((weight == other_weight) & (id_ < other_id))


@njit(cache=True)
def comes_before_last(ids, weights, i, id_, weight):
    """Whether (weight, id) belongs into the sorted list i, which is full."""
    last_id, last = ids[i, -1], weights[i, -1]
    return comes_before(weight, id_, last, last_id) | ((weight == last) & (last_id < 0))


@njit(cache=True)
def insert(ids, weights, i, id_, weight):
    """Put (weight, id) into the sorted list i, dropping its last."""
    at = ids.shape[1] - 1
    while at > 0 and comes_before(weight, id_, weights[i, at - 1], ids[i, at - 1]):
        ids[i, at], weights[i, at] = ids[i, at - 1], weights[i, at - 1]
        at -= 1
    ids[i, at], weights[i, at] = id_, weight


@njit(cache=True)
def insert_within(upper, ids, weights, i, id_, weight):
    """Insert (weight, id) into list i if it is within the list's bound, which is lowered to the last of a full list."""
    if weight <= upper[i] and comes_before_last(ids, weights, i, id_, weight):
        insert(ids, weights, i, id_, weight)
        upper[i] = min(upper[i], weights[i, -1])

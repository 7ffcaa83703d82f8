"""The trees of small groups on a CPU: each thread takes groups in turn, by Prim's algorithm."""

from itertools import pairwise

import numpy as np

from rapids_slink.metrics import OVERFLOW
from rapids_slink.neighbors.exact.cpu import weigh
from rapids_slink.neighbors.exact.formulas import PASS, POINTS, ROWS, new_tile
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import for_each_chunk, workers
from rapids_slink.spanning_tree.grouped.trees import Trees, is_stored
from rapids_slink.spanning_tree.pairs.cpu import STRIP, prim, put_cores

#: Chunks a thread, so that none waits long for the last. A group costs GROUP_WORK pairs on top of its own.
CHUNKS, GROUP_WORK = 8, 100


def grow_trees(trees: Trees) -> int:
    """Write the edges. Returns the number of a group with a pair of `OVERFLOW`, or -1, if rows may miss values."""
    metric, rows = trees.metric, read_only(trees.rows)
    stored = is_stored(metric, trees.min_samples, rows.dtype.kind == "u")
    begin = np.concatenate([[0], np.cumsum(trees.size - 1)])

    def grow_some(part: slice) -> int:
        own = trees.first[part], trees.size[part], begin[part]
        src, dst, weight = trees.edges
        if not stored:
            _trees_of_rows(metric.cpu_formula, rows, trees.order, *own, src, dst, weight)
            return -1
        bad: int = _trees_by_matrix(
            metric.cpu_formula, rows, trees.order, *own, trees.min_samples, src, dst, weight, new_tile()
        )
        return bad if bad < 0 else part.start + bad

    undefined = [bad for bad in for_each_chunk(CPU, grow_some, chunks_of_groups(trees.size)) if bad >= 0]
    return min(undefined) if undefined and metric.missing else -1


def chunks_of_groups(sizes: np.ndarray) -> list[slice]:
    """Groups of these sizes in slices of about the same work."""
    work = np.cumsum(sizes.astype(np.float64) ** 2 + GROUP_WORK)
    count = max(1, min(sizes.size, CHUNKS * workers(CPU)))
    stops = np.unique(np.searchsorted(work, work[-1] * np.arange(1, count) / count, side="right"))
    bounds = [0, *stops[(stops > 0) & (stops < sizes.size)].tolist(), sizes.size]
    return [slice(*pair) for pair in pairwise(bounds)]


@njit(nogil=True, cache=True)
def _trees_of_rows(formula, rows, order, first, size, begin, src, dst, weight):
    """No distance is stored. A group's features are copied, a column for each row."""
    d, largest = rows.shape[1], 0
    for g in range(size.size):
        largest = max(largest, size[g])
    columns = np.zeros((d + -d % PASS, largest + STRIP))
    nothing, nobody = np.empty((0, 0)), np.empty(0)
    for g in range(size.size):
        n, at = size[g], first[g]
        for i in range(n):
            row = order[at + i]
            for f in range(d):
                columns[f, i] = rows[row, f]
        a, b = begin[g], begin[g] + n - 1
        prim(formula, (n, d), columns, nothing, nobody, src[a:b], dst[a:b], weight[a:b])
        for e in range(a, b):
            src[e], dst[e] = order[at + src[e]], order[at + dst[e]]


@njit(nogil=True, cache=True)
def _trees_by_matrix(formula, rows, order, first, size, begin, min_samples, src, dst, weight, tile):
    """Trees of rows of any kind. Returns the number of the first group with a pair of `OVERFLOW`, or -1."""
    undefined, nothing, nobody = -1, np.empty((0, 0)), np.empty(0)
    for g in range(size.size):
        n, at = size[g], first[g]
        own, matrix = order[at : at + n], np.empty((n, n))
        largest = _fill(formula, rows, own, matrix, tile)
        if largest >= OVERFLOW and undefined < 0:
            undefined = g
        core = nobody
        if min(min_samples, n - 1) > 1:
            core = np.empty(n)
            put_cores(matrix, 0, n, min(min_samples, n - 1), core)
        a, b = begin[g], begin[g] + n - 1
        prim(None, (n, n), nothing, matrix, core, src[a:b], dst[a:b], weight[a:b])
        for e in range(a, b):
            src[e], dst[e] = own[src[e]], own[dst[e]]
    return undefined


@njit(nogil=True, cache=True)
def _fill(formula, rows, own, matrix, tile):
    """Write the distances of all pairs of some rows; returns the largest of them."""
    n, largest = own.size, -np.inf
    for begin in range(0, n, ROWS):
        block = own[begin : begin + ROWS]
        for first in range(begin, n, POINTS):
            points = own[first : first + POINTS]
            weigh(formula, rows, block, rows, points, tile)
            for i in range(block.size):
                for j in range(points.size):
                    distance = tile.total[i, j]
                    matrix[begin + i, first + j] = distance
                    matrix[first + j, begin + i] = distance
                    if begin + i != first + j:
                        largest = max(largest, distance)
    return largest

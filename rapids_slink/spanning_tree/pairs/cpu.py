"""The minimum spanning tree of all pairs, by Prim's algorithm."""

from collections.abc import Mapping

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.cpu import NO_CORE, insert_within, reachability
from rapids_slink.neighbors.exact.formulas import PASS, add_features
from rapids_slink.ordering import NO_EDGE, edge_code, sort_in_place
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

STRIP = 128  # points whose distances are computed together, and stay in the first-level cache
CHAINS = 4  # of minima, none of which waits for another
MIN_ROWS = 64  # whose core distances a thread finds, at least
NOTHING = np.empty((0, 0))


def prim_on_rows(values: np.ndarray, metric: Metric, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of rows, as `neighbors.rows.metric_rows` makes them, in the total order. No distance is stored.

    `edges` are the columns of an edge frame, n - 1 rows; the weights are surrogate distances.
    """
    n, d = values.shape
    columns = np.zeros((d + -d % PASS, n + STRIP))  # a point each, and zeros that the last are filled up with
    columns[:d, :n] = values.T
    _prim(metric.cpu_formula, (n, d), columns, NOTHING, NO_CORE, *edges.values())
    sort_in_place(edges, np)


def tree_of_matrix(matrix: np.ndarray, core: Array, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of (n, n) distances and, if weights are mutual reachability, (n,) core distances."""
    _prim(None, matrix.shape, NOTHING, matrix, NO_CORE if core is None else core, *edges.values())
    sort_in_place(edges, np)


def find_cores(matrix: np.ndarray, min_samples: int) -> np.ndarray:
    """The distance of each point from its `min_samples`-th nearest other, (n,) float64."""
    core = np.empty(len(matrix))
    chunks = chunks_for_cores(core.size, MIN_ROWS)
    for_each_chunk(CPU, lambda rows: _find_cores(matrix, rows.start, rows.stop, min_samples, core), chunks)
    return core


@njit(nogil=True, cache=True)
def _find_cores(matrix, begin, end, min_samples, core):
    upper, ids, weights = np.empty(1), np.empty((1, min_samples), np.int32), np.empty((1, min_samples))
    for i in range(begin, end):
        upper[:], ids[:], weights[:] = np.inf, -1, np.inf
        for j in range(matrix.shape[0]):
            if matrix[i, j] <= upper[0] and j != i:
                insert_within(upper, ids, weights, 0, j, np.float64(matrix[i, j]))
        core[i] = upper[0]


@njit(nogil=True, cache=True)
def _prim(formula, shape, columns, matrix, core, src, dst, weight):
    """Points outside the tree come first, in `columns` as well, which are read if there is no matrix.

    `lightest` and `inner` are the weight of each one's lightest edge into the tree and its end there.
    """
    n, d = shape
    outside, position = np.arange(n), np.arange(n)
    lightest, inner = np.full(n + CHAINS, np.inf), np.zeros(n, np.int64)
    distance, point = np.empty((1, n + STRIP)), np.empty((1, columns.shape[0]))
    sums, joined = (distance, np.empty((1, n + STRIP))), n - 1
    for m in range(n - 1, 0, -1):
        at = position[joined]
        outside[at], lightest[at], inner[at] = outside[m], lightest[m], inner[m]
        position[outside[m]], position[joined], lightest[m] = at, -1, np.inf
        if matrix.size:
            for i in range(m):
                other = outside[i]
                distance[0, i] = reachability(np.float64(matrix[joined, other]), core, joined, other)
        else:
            for f in range(columns.shape[0]):
                point[0, f] = columns[f, at]
                columns[f, at] = columns[f, m]
            for a in range(0, m, STRIP):
                add_features(formula, point, columns, sums, 0, (a, a + STRIP), (0, d))
        _update(joined, distance[0], lightest, inner, m)
        code = _lightest_code(outside, lightest, inner, m)
        src[m - 1], dst[m - 1] = code >> 32, code & 0xFFFFFFFF
        joined = src[m - 1] if position[src[m - 1]] >= 0 else dst[m - 1]
        weight[m - 1] = lightest[position[joined]]


@njit(nogil=True, cache=True)
def _update(joined, distance, lightest, inner, m):
    """Lower each of m outside points' lightest edge to that to the point that has joined.

    Of two edges of one point that weigh the same, that to the smaller id comes first in the total order.
    """
    for i in range(m):
        if distance[i] < lightest[i] or (distance[i] == lightest[i] and joined < inner[i]):
            lightest[i], inner[i] = distance[i], joined


@njit(nogil=True, cache=True)
def _lightest_code(outside, lightest, inner, m):
    """The code of the first of m edges in the total order. Unsigned indices let LLVM vectorize the loop."""
    least, code = _least(lightest, m), NO_EDGE
    for i in range(np.uint64(m)):
        code = min(code, edge_code(outside[i], inner[i]) if lightest[i] == least else NO_EDGE)
    return code


@njit(nogil=True, cache=True)
def _least(values, m):
    """The least of m values that infinite ones follow, in chains that do not wait for each other."""
    a, b, c, d = np.inf, np.inf, np.inf, np.inf
    for i in range(0, m, CHAINS):
        a, b, c, d = min(a, values[i]), min(b, values[i + 1]), min(c, values[i + 2]), min(d, values[i + 3])
    return min(a, b, c, d)

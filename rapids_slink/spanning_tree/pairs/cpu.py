"""The minimum spanning tree of all pairs, by Prim's algorithm."""

from collections.abc import Mapping

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.cpu import NO_CORE, insert_within, reachability
from rapids_slink.neighbors.exact.formulas import LANES, PASS, add_features
from rapids_slink.ordering import edge_code, sort_in_place
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

STRIP = 128  # points whose distances are computed together, and stay in the first-level cache
MIN_ROWS = 64  # whose core distances a thread finds, at least
NOTHING = np.empty((0, 0))


def prim_on_rows(values: np.ndarray, metric: Metric, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of rows, as `neighbors.rows.metric_rows` makes them, in the total order. No distance is stored.

    `edges` are the columns of an edge frame, n - 1 rows; the weights are surrogate distances.
    """
    n, d = values.shape
    columns = np.zeros((d + -d % PASS, n + STRIP))  # a point each, and zeros that the last are filled up with
    columns[:d, :n] = values.T
    prim(metric.cpu_formula, (n, d), columns, NOTHING, NO_CORE, *edges.values())
    sort_in_place(edges, np)


def tree_of_matrix(matrix: np.ndarray, core: Array, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of (n, n) distances and, if weights are mutual reachability, (n,) core distances."""
    prim(None, matrix.shape, NOTHING, matrix, NO_CORE if core is None else core, *edges.values())
    sort_in_place(edges, np)


def find_cores(matrix: np.ndarray, min_samples: int) -> np.ndarray:
    """The distance of each point from its `min_samples`-th nearest other, (n,) float64."""
    core = np.empty(len(matrix))
    chunks = chunks_for_cores(core.size, MIN_ROWS)
    for_each_chunk(CPU, lambda rows: put_cores(matrix, rows.start, rows.stop, min_samples, core), chunks)
    return core


@njit(nogil=True, cache=True)
def put_cores(matrix, begin, end, min_samples, core):
    """Write the core distances of some points."""
    upper, ids, weights = np.empty(1), np.empty((1, min_samples), np.int32), np.empty((1, min_samples))
    for i in range(begin, end):
        upper[:], ids[:], weights[:] = np.inf, -1, np.inf
        for j in range(matrix.shape[0]):
            if matrix[i, j] <= upper[0] and j != i:
                insert_within(upper, ids, weights, 0, j, np.float64(matrix[i, j]))
        core[i] = upper[0]


@njit(nogil=True, cache=True)
def prim(formula, shape, columns, matrix, core, src, dst, weight):
    """Write the tree of all pairs, in any order, by the points' numbers.

    Points outside the tree come first, in `columns` as well, which are read if there is no matrix.

    `lightest` and `inner` are the weight of each one's lightest edge into the tree and its end there.
    """
    n, d = shape
    outside, lightest, inner = np.arange(n), np.full(n, np.inf), np.zeros(n, np.int64)
    distance, point = np.empty((1, n + STRIP)), np.empty((1, max(columns.shape[0], PASS)))
    sums, joined, at = (distance, np.empty((1, n + STRIP))), n - 1, n - 1
    for m in range(n - 1, 0, -1):
        outside[at], lightest[at], inner[at] = outside[m], lightest[m], inner[m]
        if matrix.size:
            for i in range(m):
                other = outside[i]
                distance[0, i] = reachability(np.float64(matrix[joined, other]), core, joined, other)
            _update(joined, distance[0], lightest, inner, m)
        else:
            for f in range(columns.shape[0]):
                point[0, f] = columns[f, at]
                columns[f, at] = columns[f, m]
            if formula is None and d <= PASS:
                _update_by_squares(joined, point[0], columns, d, lightest, inner, m)
            else:
                for a in range(0, m, STRIP):
                    lanes = a, a + min(STRIP, m - a + (a - m) % LANES)
                    add_features(formula, point, columns, sums, 0, lanes, (0, d))
                _update(joined, distance[0], lightest, inner, m)
        at = _first_edge(outside, lightest, inner, m)
        joined, other, weight[m - 1] = outside[at], inner[at], lightest[at]
        src[m - 1], dst[m - 1] = min(joined, other), max(joined, other)


@njit(nogil=True, cache=True)
def _update(joined, distance, lightest, inner, m):
    """Lower each of m outside points' lightest edge to that to the point that has joined.

    Of two edges of one point that weigh the same, that to the smaller id comes first in the total order.
    """
    for i in range(m):
        if distance[i] < lightest[i] or (distance[i] == lightest[i] and joined < inner[i]):
            lightest[i], inner[i] = distance[i], joined


@njit(nogil=True, cache=True)
def _update_by_squares(joined, point, columns, d, lightest, inner, m):
    """Lower the edges by squared distances of one pass of features, not stored. Unsigned indices are vectorized."""
    q, r, s, t = point[0], point[1], point[2], point[3]
    if d <= 2:
        for i in range(np.uint64(m)):
            a, b = q - columns[0, i], r - columns[1, i]
            distance = a * a + b * b
            if distance < lightest[i] or (distance == lightest[i] and joined < inner[i]):
                lightest[i], inner[i] = distance, joined
        return
    for i in range(np.uint64(m)):
        a, b, c, e = q - columns[0, i], r - columns[1, i], s - columns[2, i], t - columns[3, i]
        distance = ((a * a + b * b) + c * c) + e * e
        if distance < lightest[i] or (distance == lightest[i] and joined < inner[i]):
            lightest[i], inner[i] = distance, joined


@njit(nogil=True, cache=True)
def _first_edge(outside, lightest, inner, m):
    """The place of the point whose edge is the first of m in the total order."""
    least = _least(lightest, m)
    place, count = _places_of(least, lightest, m)
    if count > 1:
        first, begin = edge_code(outside[place], inner[place]), place + 1
        for i in range(begin, m):
            if lightest[i] == least and edge_code(outside[i], inner[i]) < first:
                first, place = edge_code(outside[i], inner[i]), i
    return place


@njit(nogil=True, cache=True)
def _places_of(value, values, m):
    """The first place of a value among m, and how many there are; LLVM vectorizes no more than one such loop."""
    first, count = np.int64(m), 0
    for i in range(np.int64(m)):
        is_there = values[i] == value
        first = min(first, i if is_there else np.int64(m))
        count += is_there
    return first, count


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _least(values, m):
    """The least of m values, none of which is NaN; of two zeros either. Only so may LLVM take several at a time."""
    least = np.inf
    for i in range(np.uint64(m)):
        least = values[i] if values[i] < least else least
    return least

"""The minimum spanning tree of few points, by Prim's algorithm: every distance is computed once and none is stored."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.formulas import surrogate_distance, to_points
from rapids_slink.ordering import NO_EDGE, edge_code, sort_in_place
from rapids_slink.runtime.compiling import njit

LANES = 128  # distances that are computed together, in vector instructions


def grow_tree(values: np.ndarray, metric: Metric, min_samples: int, edges: Mapping[str, np.ndarray]) -> None:
    """Write the minimum spanning tree of all pairs, in the total order.

    Parameters
    ----------
    values : (n, d) array
        As `neighbors.rows.metric_rows` makes them.
    metric : Metric
    min_samples : int
        1: there are no core distances here.
    edges : dict of arrays
        The columns of an edge frame, n - 1 rows; the weights are surrogate distances.
    """
    assert min_samples == 1
    columns = edges.values()
    if metric.boxes:
        _prim_of_columns(metric.cpu_formula, _columns(values), len(values), *columns)
    else:
        _prim_of_rows(metric.cpu_formula, values, *columns)
    sort_in_place(edges, np)


def _columns(values: np.ndarray) -> np.ndarray:
    """A column a point, and columns of zeros for the last `LANES` to read on."""
    n, d = values.shape
    columns = np.zeros((d, n + LANES))
    columns[:, :n] = values.T
    return columns


@njit(nogil=True, cache=True)
def _prim_of_columns(formula, columns, n, src, dst, weight):
    """Prim's algorithm on points stored in columns, of which those outside the tree come first."""
    d = columns.shape[0]
    outside, lightest, inner = _nothing_joined(n)
    point, distance, position = np.empty((d, 1)), np.empty(n + LANES), n - 1
    for m in range(n - 1, 0, -1):
        joined = outside[position]
        for f in range(d):
            point[f, 0] = columns[f, position]
            columns[f, position] = columns[f, m]
        outside[position], lightest[position], inner[position] = outside[m], lightest[m], inner[m]
        for a in range(0, m, LANES):
            to_points(formula, point, 0, columns, a, distance[a : a + LANES])
        _update(joined, outside, distance, lightest, inner, m)
        position = _next(outside, lightest, inner, m)
        src[m - 1], dst[m - 1], weight[m - 1] = inner[position], outside[position], lightest[position]


@njit(nogil=True, cache=True)
def _prim_of_rows(formula, values, src, dst, weight):
    """The same, one pair at a time."""
    n = values.shape[0]
    outside, lightest, inner = _nothing_joined(n)
    distance, position = np.empty(n), n - 1
    for m in range(n - 1, 0, -1):
        joined = outside[position]
        outside[position], lightest[position], inner[position] = outside[m], lightest[m], inner[m]
        for i in range(m):
            distance[i] = surrogate_distance(formula, values, outside[i], values, joined, np.inf)
        _update(joined, outside, distance, lightest, inner, m)
        position = _next(outside, lightest, inner, m)
        src[m - 1], dst[m - 1], weight[m - 1] = inner[position], outside[position], lightest[position]


@njit(nogil=True, cache=True)
def _nothing_joined(n):
    """The points outside the tree, and each one's lightest edge into it: what it weighs, and its end there."""
    outside, lightest = np.empty(n, np.int32), np.empty(n)
    for i in range(n):
        outside[i], lightest[i] = i, np.inf
    return outside, lightest, np.empty(n, np.int32)


@njit(nogil=True, cache=True)
def _update(joined, outside, distance, lightest, inner, m):
    """Lower each of m outside points' lightest edge to that to the point that has joined."""
    for i in range(m):
        if distance[i] <= lightest[i]:
            tie = distance[i] == lightest[i]
            if not tie or edge_code(outside[i], joined) < edge_code(outside[i], inner[i]):
                lightest[i], inner[i] = distance[i], joined


@njit(nogil=True, cache=True)
def _next(outside, lightest, inner, m):
    """The outside point of the lightest edge in the total order."""
    least, best, code = _least(lightest, m), 0, NO_EDGE
    for i in range(m):
        if lightest[i] == least and edge_code(outside[i], inner[i]) < code:
            best, code = i, edge_code(outside[i], inner[i])
    return best


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _least(values, m):
    """The least of m values, none of which is NaN, in vector instructions."""
    least = np.inf
    for i in range(np.uint64(m)):
        least = min(least, values[i])
    return least

"""The exact kernels on the CPU, in Numba.

Functions take the number of a list, never a slice, and tests are one expression without branches: otherwise Numba
updates the arrays' reference counts in each call, for which threads contend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, TopLists, candidate_capacity
from rapids_slink.neighbors.exact.formulas import dot, surrogate_distance
from rapids_slink.neighbors.slices import golden_stride, row_blocks
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import for_each_chunk

HASHED = 2**18  # values that are hashed at a time

MAX_LIST = 2**31  # lists of any length
NO_CORE = np.empty(0)


def new_candidates(rows: int, k: int, capacity: int | None = None) -> Candidates:
    """Empty buffers, of `candidate_capacity` unless another is given."""
    return Candidates(np.empty((rows, capacity or candidate_capacity(k)), np.int32), np.zeros(rows, np.int32))


def empty_lists(rows: int, k: int) -> TopLists:
    """Lists of nothing."""
    return TopLists(np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf), np.zeros(rows, bool))


def low_discrepancy_order(n: int) -> np.ndarray:
    """A permutation of n points, int32, of which every leading part is spread evenly over all of them."""
    return (np.arange(n, dtype=np.int64) * golden_stride(n) % n).astype(np.int32)


def rerank(
    exact: ExactPoints, rows: Any, candidates: Candidates, groups: Any, upper: Any, top: TopLists, core: Any = None
) -> None:
    """Merge the candidates with surrogate distances of at most `upper` into the lists.

    Parameters
    ----------
    exact : ExactPoints
    rows : (m,) int32 array
        Which of the queries.
    candidates : Candidates
        Of these rows.
    groups
        Not used: the filter has left out candidates of a row's own group.
    upper : (m,) float64 array
        Tightened to the last entries of the lists that are full.
    top : TopLists
        Of these rows; `overflowed` is set for those that lost candidates.
    core : (n,) float64 array, optional
        As in a `SearchTask`.
    """
    core, lists = NO_CORE if core is None else core, (top.ids, top.weights)
    points = exact.queries, exact.points
    _rerank(
        exact.metric.cpu_formula, points, rows, candidates.ids, candidates.count, core, upper, lists, top.overflowed
    )


def scan(exact: ExactPoints, rows: Any, groups: tuple[Any, Any], upper: Any, k: int, core: Any = None) -> TopLists:
    """The lists of `rows` with every point of another group as a candidate.

    `groups` are the rows' and the points'; the other parameters are those of `rerank`.
    """
    top = empty_lists(rows.size, k)
    core, lists = NO_CORE if core is None else core, (top.ids, top.weights)
    _scan(exact.metric.cpu_formula, (exact.queries, exact.points), rows, groups, core, upper, lists)
    return top


def scan_bytes(n: int, k: int) -> int:
    """Bytes that `scan` takes for a row, its list not included."""
    return 0


def sort_by_reachability(ids: Any, weights: Any, core: Any) -> None:
    """Raise each list's surrogate distances to mutual reachability, and sort it again."""
    for_each_chunk(
        CPU, lambda rows: _sort_by_reachability(ids, weights, core, rows.start, rows.stop), row_blocks(*ids.shape)
    )


def flatnonzero(flags: np.ndarray) -> np.ndarray:
    """Where `flags` are set."""
    return np.flatnonzero(flags)


def scatter_min(least: Any, group: Any, weights: Any) -> None:
    """least[group[i]] = min(itself, weights[i, 0])."""
    np.minimum.at(least, group, weights[:, 0])


def pair_distances(values: Any, src: Any, dst: Any, metric: Metric = EUCLIDEAN) -> np.ndarray:
    """The surrogate distances of pairs of rows."""
    return _pair_distances(metric.cpu_formula, values, src, dst)


def with_norms(values: np.ndarray, centre: bool) -> np.ndarray:
    """The rows in float64, minus their means if `centre`, each followed by its norm: (n, d + 1)."""
    n, d = values.shape
    rows = np.empty((n, d + 1))
    rows[:, :d] = values
    if centre:
        rows[:, :d] -= rows[:, :d].mean(axis=1, keepdims=True)
    _put_norms(rows)
    return rows


def hash_rows(values: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """A uint64 for each row, or each of some, the same for equal rows.

    It is a sum of the values' bits with odd random factors, modulo 2⁶⁴.
    """
    values = values if rows is None else values[rows]
    n, d = values.shape
    factors = np.random.default_rng(0).integers(2**63, 2**64, d, np.uint64) | np.uint64(1)
    found = np.empty(n, np.uint64)
    for block in row_blocks(n, d, HASHED):
        bits = (values[block] + values.dtype.type(0)).view(f"uint{8 * values.dtype.itemsize}").astype(np.uint64)
        bits ^= bits >> np.uint64(32)  # the lower bits of float64 are often zero, and so would a product's be
        found[block] = (bits * factors).sum(axis=1, dtype=np.uint64)
    return found


@njit(nogil=True, cache=True)
def _pair_distances(formula, values, src, dst):
    out = np.empty(src.size)
    for i in range(src.size):
        out[i] = surrogate_distance(formula, values, src[i], values, dst[i], np.inf)
    return out


@njit(nogil=True, cache=True)
def _put_norms(rows):
    d = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        rows[i, d] = np.sqrt(dot(rows, i, rows, i, d))


@njit(cache=True)
def comes_before(weight, id_, other_weight, other_id):
    """The total order on the edges of one point."""
    return (weight < other_weight) | ((weight == other_weight) & (id_ < other_id))


@njit(cache=True)
def insert(ids, weights, i, id_, weight):
    """Put (weight, id) into the sorted list i, dropping its last."""
    at = ids.shape[1] - 1
    while at > 0 and comes_before(weight, id_, weights[i, at - 1], ids[i, at - 1]):
        ids[i, at], weights[i, at] = ids[i, at - 1], weights[i, at - 1]
        at -= 1
    ids[i, at], weights[i, at] = id_, weight


@njit(cache=True)
def comes_before_last(ids, weights, i, id_, weight):
    """Whether (weight, id) belongs into the sorted list i, which is full."""
    last_id, last = ids[i, -1], weights[i, -1]
    return comes_before(weight, id_, last, last_id) | ((weight == last) & (last_id < 0))


@njit(cache=True)
def core_above(core, j, bound):
    """Whether every pair with point j has a weight above `bound` by its core distance alone; False without cores."""
    return core[j] > bound if core.size else False


@njit(cache=True)
def reachability(surrogate, core, i, j):
    """The mutual reachability of points i and j, whose surrogate distance is given; itself if there are no cores."""
    return max(surrogate, core[i], core[j]) if core.size else surrogate


@njit(nogil=True, cache=True)
def _sort_by_reachability(ids, weights, core, begin, end):
    k = ids.shape[1]
    for v in range(begin, end):
        for c in range(k):
            weights[v, c] = reachability(weights[v, c], core, v, ids[v, c])
        gap = k
        while gap > 1:  # Shell's sort: every gap-th entry is sorted by insertion
            gap = 1 if gap < 5 else (5 * gap - 1) // 11
            for c in range(gap, k):
                id_, weight = ids[v, c], weights[v, c]
                at = c
                while at >= gap and comes_before(weight, id_, weights[v, at - gap], ids[v, at - gap]):
                    ids[v, at], weights[v, at] = ids[v, at - gap], weights[v, at - gap]
                    at -= gap
                ids[v, at], weights[v, at] = id_, weight


@njit(nogil=True, cache=True)
def _rerank(formula, points, rows, candidates, count, core, upper, lists, overflowed):
    (queries, others), (ids, weights) = points, lists
    capacity = candidates.shape[1]
    for i in range(rows.size):
        for c in range(min(count[i], capacity)):
            j = candidates[i, c]
            if j >= 0 and not core_above(core, j, upper[i]):
                surrogate = surrogate_distance(formula, queries, rows[i], others, j, upper[i])
                weight = reachability(surrogate, core, rows[i], j)
                if weight <= upper[i] and comes_before_last(ids, weights, i, j, weight):
                    insert(ids, weights, i, j, weight)
        upper[i] = min(upper[i], weights[i, -1])
        overflowed[i] |= count[i] > capacity


@njit(nogil=True, cache=True)
def _scan(formula, points, rows, groups, core, upper, lists):
    (queries, others), (row_group, point_group), (ids, weights) = points, groups, lists
    for i in range(rows.size):
        for j in range(others.shape[0]):
            if point_group[j] != row_group[i] and not core_above(core, j, upper[i]):
                surrogate = surrogate_distance(formula, queries, rows[i], others, j, upper[i])
                weight = reachability(surrogate, core, rows[i], j)
                if weight <= upper[i] and comes_before_last(ids, weights, i, j, weight):
                    insert(ids, weights, i, j, weight)

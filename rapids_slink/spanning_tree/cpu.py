"""The kernels of trees on a CPU, in NumPy and Numba: forests by lists, pairs, groups, pairs of components, friends.

Prim's algorithm makes the tree of all pairs, and that of each small group: a thread takes groups in turn.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.metrics import OVERFLOW, Metric
from rapids_slink.neighbors.exact.cpu import NO_CORE, components, fill_rows, insert_within, reachability
from rapids_slink.neighbors.exact.formulas import LANES, PASS, ROWS, add_features, new_tile
from rapids_slink.neighbors.kdtree import (
    LEAF,
    SERIAL_POINTS,
    Queries,
    Tree,
    box_to_box,
    build,
    largest_bound,
    mark_near,
    may_wrap,
    to_boxes,
    to_points,
    walk,
)
from rapids_slink.neighbors.rows import Copies
from rapids_slink.ordering import NO_EDGE, edge_code, edge_codes, lighter, sort_in_place
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk, shares, workers
from rapids_slink.spanning_tree.component_pairs import ROUNDING, Separations
from rapids_slink.spanning_tree.lists import Growth
from rapids_slink.spanning_tree.ways import is_stored

# --------------------------------------------------------------------------------------------------------------- copies


def connect_copies(
    copies: Copies, own: np.ndarray, tree: Mapping[str, np.ndarray], whole: Mapping[str, np.ndarray]
) -> tuple[bool, bool]:
    """Write the edges of the tree of all rows, by the tree of the distinct rows; see `ways.connect_copies`.

    The first result is whether a row with copies has a pair that is lighter than the edges between its copies. If not,
    the second is whether the edges are in the total order: they are if all copies have one weight.
    """
    m = copies.first.size
    end, start, copy = np.arange(m, dtype=np.int32), np.zeros(m + 1, np.int64), np.empty(copies.repeated, np.int32)
    if _has_lighter(*tree.values(), own, copies.count, end):
        return True, False
    _sort_copies(copies.first, copies.number, copies.count, end, start, copy)
    weight = own[copies.number[copy]]
    is_sorted = bool((weight == weight[:1]).all())
    _write_all_edges(copies.first, copies.number, end, copy, weight, is_sorted, *tree.values(), *whole.values())
    return False, is_sorted


@njit(nogil=True, cache=True)
def _has_lighter(src, dst, weight, own, count, end):
    """Return whether an edge of the tree is lighter than the edges between copies of one of its ends.

    If not, `end` becomes, for each distinct row r, the least of r and the rows joined to it by an edge of that weight.
    """
    for e in range(src.size):
        a, b, w = src[e], dst[e], weight[e]
        if (count[a] > 1 and w < own[a]) or (count[b] > 1 and w < own[b]):
            return True
        if w == own[b]:
            end[b] = min(end[b], a)
    return False


@njit(nogil=True, cache=True)
def _sort_copies(first, number, count, end, start, copy):
    """Write the copies in the order of the codes of their edges, which lead to the first row equal to their `end`."""
    for r in range(first.size):
        start[end[r] + 1] += count[r] - 1
    for r in range(first.size):
        start[r + 1] += start[r]
    for i in range(number.size):
        r = number[i]
        if first[r] != i:
            copy[start[end[r]]] = i
            start[end[r]] += 1


@njit(nogil=True, cache=True)
def _write_all_edges(first, number, end, copy, own, in_order, src, dst, weight, all_src, all_dst, all_weight):
    """Write the edges of the copies and of the tree: in the total order if `in_order`, or one kind after the other."""
    k, e = 0, 0
    for position in range(all_src.size):
        is_copy = e == src.size
        if k < copy.size:
            u, v, w = first[end[number[copy[k]]]], copy[k], own[k]
            is_copy = is_copy or not in_order
            if not is_copy:
                a, b = first[src[e]], first[dst[e]]
                is_copy = lighter(w, edge_code(u, v), weight[e], edge_code(a, b))
        if is_copy:
            k += 1
        else:
            u, v, w = first[src[e]], first[dst[e]], weight[e]
            e += 1
        all_src[position], all_dst[position], all_weight[position] = u, v, w


# ----------------------------------------------------------------------------------------------------- forests by lists


def grow_forest(lists: Any, forest: Any) -> Growth:
    """Run rounds of Borůvka until the lists certify no more components; update the forest's arrays."""
    f, parent, at_first, rounds, chosen = forest, np.empty_like(forest.component), 0, 0, 0
    while True:
        components, certified = _propose_edges(
            lists.ids, lists.weights, f.component, f.cursor, f.nearest_outside, f.nearest_outside_weight,
            f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified,
        )  # fmt: skip
        at_first = at_first or components
        if components == 1 or not certified:
            return Growth(at_first - components, rounds, chosen, components)
        _connect_components(
            f.component, f.best_weight, f.best_code, f.certified, parent, *f.edges.columns.values(), f.n_taken
        )
        rounds, chosen = rounds + 1, chosen + certified


def rows_to_search(forest: Any) -> np.ndarray:
    """Return the points, int32, that may have an edge lighter than the best of their component.

    They are in components that are not certified, except the largest component.
    """
    f, own = forest, forest.component
    weight, best = f.bound_weight, f.best_weight[own]
    lower = (weight < best) | ((weight == best) & (f.bound_code < f.best_code[own]))
    lower &= ~f.certified[own] & (own != np.bincount(own).argmax())
    return np.flatnonzero(lower).astype(np.int32)


def record_search(forest: Any, rows: np.ndarray, result: Any) -> None:
    """Store the result of a search: each row's nearest point outside its component, and its raised lower bound.

    If a row found none, all outside points are above the bound of its search, whatever their ids.
    """
    f, ids, weights = forest, result.ids.ravel(), result.weights.ravel()
    f.nearest_outside[rows], f.nearest_outside_weight[rows] = ids, weights
    listed, none = ids >= 0, (ids < 0) & (result.upper >= f.bound_weight[rows])
    at = rows[listed]
    f.bound_weight[at], f.bound_code[at] = weights[listed], edge_codes(at, ids[listed], np)
    f.bound_weight[rows[none]], f.bound_code[rows[none]] = result.upper[none], NO_EDGE


def last_listed(ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight and the code of the edge to the last entry of each row's list."""
    return weights[:, -1].copy(), edge_codes(np.arange(len(ids), dtype=np.int32), ids[:, -1], np)


@njit(cache=True)
def connected_components(ids):
    """Return the number of connected components of the undirected graph of neighbour lists."""
    label = components(ids)
    return np.sum(label == np.arange(label.size))


@njit(cache=True)
def unite_pairs(parent, src, dst):
    """Unite the trees of both ends of every pair in `parent`, (n,) int32, whose roots are the least of their trees."""
    for pair in range(src.size):
        _unite_points(parent, src[pair], dst[pair])


@njit(cache=True)
def _propose_edges(
    ids, weights, component, cursor, nearest_outside, nearest_outside_weight,
    bound_weight, bound_code, best_weight, best_code, certified,
):  # fmt: skip
    """Find each component's lightest proposal; return the number of components and how many are certified."""
    n, k = ids.shape
    components = 0
    for v in range(n):
        if component[v] == v:
            best_weight[v], best_code[v], certified[v] = np.inf, NO_EDGE, True
            components += 1
    for v in range(n):
        own = component[v]
        at = cursor[v]
        while at < k and component[ids[v, at]] == own:
            at += 1
        cursor[v] = at
        weight, code, other = np.inf, NO_EDGE, -1
        if at < k:
            other, weight = ids[v, at], weights[v, at]
            code = edge_code(v, other)
        if nearest_outside[v] >= 0 and component[nearest_outside[v]] != own:
            searched = edge_code(v, nearest_outside[v])
            if lighter(nearest_outside_weight[v], searched, weight, code):
                other, weight, code = nearest_outside[v], nearest_outside_weight[v], searched
        if other < 0:
            continue
        across = component[other]
        if lighter(weight, code, best_weight[own], best_code[own]):
            best_weight[own], best_code[own] = weight, code
        if lighter(weight, code, best_weight[across], best_code[across]):
            best_weight[across], best_code[across] = weight, code
    for v in range(n):  # no component is certified if an unlisted edge may come before its best: see lists.py
        own = component[v]
        if lighter(bound_weight[v], bound_code[v], best_weight[own], best_code[own]):
            certified[own] = False
    n_certified = 0
    for v in range(n):
        if component[v] == v and best_code[v] == NO_EDGE:
            certified[v] = False
        n_certified += component[v] == v and certified[v]
    return components, n_certified


@njit(cache=True)
def _connect_components(component, best_weight, best_code, certified, parent, src, dst, weight, n_taken):
    """Connect every certified component along its edge, and append each edge once to the forest's."""
    n, m = component.size, n_taken[0]
    for v in range(n):
        parent[v] = component[v]
    for c in range(n):
        if component[c] != c or not certified[c]:
            continue
        low, high = best_code[c] >> 32, best_code[c] & 0xFFFFFFFF
        a, b = find_root(parent, low), find_root(parent, high)
        if a != b:  # they are equal if the other side has taken the same edge
            parent[max(a, b)] = min(a, b)
            src[m], dst[m], weight[m] = low, high, best_weight[c]
            m += 1
    for v in range(n):
        component[v] = find_root(parent, v)
    n_taken[0] = m


# ------------------------------------------------------------------------------------------------------------ all pairs

STRIP = 128  # points whose distances are computed together, and stay in the first-level cache
MIN_ROWS = 64  # the fewest rows whose core distances a thread finds
NO_MATRIX, NO_COUNTS = np.empty((0, 0)), np.empty(0, np.int64)


def prim_on_rows(values: np.ndarray, metric: Metric, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of rows in the total order, without storing distances.

    `values` is the result of `neighbors.rows.metric_rows`, and `edges` are the columns of an edge frame of n - 1 rows.
    The weights are surrogate distances.
    """
    rows, zero, size = np.arange(len(values), dtype=np.int32), np.zeros(1, np.int64), np.array([len(values)])
    _trees_of_rows(metric.cpu_formula, read_only(values), rows, zero, size, zero, *edges.values())
    sort_in_place(edges, np)


def tree_of_matrix(matrix: np.ndarray, core: Array, edges: Mapping[str, np.ndarray]) -> None:
    """Write the tree of (n, n) distances in the total order; with (n,) core distances by mutual reachability."""
    prim(None, matrix.shape, NO_MATRIX, matrix, NO_CORE if core is None else core, *edges.values())
    sort_in_place(edges, np)


def find_cores(matrix: np.ndarray, min_samples: int, counts: Array = None) -> np.ndarray:
    """Return the distance within which each point has `min_samples` others, (n,) float64; see `cuda.find_cores`."""
    core, counts = np.empty(len(matrix)), NO_COUNTS if counts is None else counts
    chunks = chunks_for_cores(core.size, MIN_ROWS)
    for_each_chunk(CPU, lambda rows: put_cores(matrix, counts, rows.start, rows.stop, min_samples, core), chunks)
    return core


@njit(nogil=True, cache=True)
def put_cores(matrix, counts, begin, end, min_samples, core):
    """Write the core distances of some points. Without `counts` each stands for one."""
    n = matrix.shape[0]
    upper, ids, weights = np.empty(1), np.empty((1, min_samples), np.int32), np.empty((1, min_samples))
    for i in range(begin, end):
        lacking = min_samples - (counts[i] - 1 if counts.size else 0)
        upper[:], ids[:], weights[:], core[i] = np.inf, -1, np.inf, np.inf if lacking > 0 else 0.0
        if lacking <= 0:
            continue
        for j in range(n):
            if matrix[i, j] <= upper[0] and j != i:
                insert_within(upper, ids, weights, 0, j, np.float64(matrix[i, j]))
        for e in range(min(min_samples, n - 1)):
            lacking -= counts[ids[0, e]] if counts.size else 1
            if lacking <= 0:
                core[i] = weights[0, e]
                break


@njit(nogil=True, cache=True)
def prim(formula, shape, columns, matrix, core, src, dst, weight):
    """Write the tree of all pairs, in any order, by the points' numbers.

    The points outside the tree come first in all arrays. `columns` hold the points, and are read and reordered if there
    is no matrix. `lightest` is the weight of each outside point's lightest edge into the tree, `inner` its end there.
    """
    n, d = shape
    outside, lightest, inner = np.arange(n), np.full(n, np.inf), np.zeros(n, np.int64)
    distance, point = np.empty((1, n + STRIP)), np.empty((1, max(columns.shape[0], PASS)))
    sums, added, at = (distance, np.empty((1, n + STRIP))), n - 1, n - 1
    for m in range(n - 1, 0, -1):
        outside[at], lightest[at], inner[at] = outside[m], lightest[m], inner[m]
        if matrix.size:
            for i in range(m):
                other = outside[i]
                distance[0, i] = reachability(np.float64(matrix[added, other]), core, added, other)
            _lower_edges(added, distance[0], lightest, inner, m)
        else:
            for f in range(columns.shape[0]):
                point[0, f] = columns[f, at]
                columns[f, at] = columns[f, m]
            if formula is None and d <= PASS:
                _lower_by_squares(added, point[0], columns, d, lightest, inner, m)
            else:
                for a in range(0, m, STRIP):
                    lanes = a, a + min(STRIP, m - a + (a - m) % LANES)
                    add_features(formula, point, columns, sums, 0, lanes, (0, d))
                _lower_edges(added, distance[0], lightest, inner, m)
        at = _first_edge(outside, lightest, inner, m)
        added, other, weight[m - 1] = outside[at], inner[at], lightest[at]
        src[m - 1], dst[m - 1] = min(added, other), max(added, other)


@njit(nogil=True, cache=True)
def _lower_edges(added, distance, lightest, inner, m):
    """Replace the edges of m outside points by those to the point that has entered the tree where these come before.

    Of two edges of one point that weigh the same, that to the smaller id comes first in the total order.
    """
    for i in range(m):
        if distance[i] < lightest[i] or (distance[i] == lightest[i] and added < inner[i]):
            lightest[i], inner[i] = distance[i], added


@njit(nogil=True, cache=True)
def _lower_by_squares(added, point, columns, d, lightest, inner, m):
    """Replace edges as `_lower_edges` does, by squared distances of one pass of features, which are not stored.

    Loops over unsigned indices are vectorized.
    """
    q, r, s, t = point[0], point[1], point[2], point[3]
    if d <= 2:
        for i in range(np.uint64(m)):
            a, b = q - columns[0, i], r - columns[1, i]
            distance = a * a + b * b
            if distance < lightest[i] or (distance == lightest[i] and added < inner[i]):
                lightest[i], inner[i] = distance, added
        return
    for i in range(np.uint64(m)):
        a, b, c, e = q - columns[0, i], r - columns[1, i], s - columns[2, i], t - columns[3, i]
        distance = ((a * a + b * b) + c * c) + e * e
        if distance < lightest[i] or (distance == lightest[i] and added < inner[i]):
            lightest[i], inner[i] = distance, added


@njit(nogil=True, cache=True)
def _first_edge(outside, lightest, inner, m):
    """Return the position of the point whose edge is the first of m in the total order."""
    position, least = 0, lightest[0]
    for i in range(1, m):
        if lightest[i] <= least and (
            lightest[i] < least or edge_code(outside[i], inner[i]) < edge_code(outside[position], inner[position])
        ):
            position, least = i, lightest[i]
    return position


# --------------------------------------------------------------------------------------------------------------- groups

#: A thread takes this number of chunks, so that none waits long for the last. A group costs GROUP_WORK pairs more than
#: it has.
CHUNKS, GROUP_WORK = 8, 100


def trees_of_groups(
    rows: np.ndarray, metric: Metric, min_samples: int, order: Array, first: np.ndarray, size: np.ndarray,
    edges: Sequence[Array],
) -> int:  # fmt: skip
    """Write the tree of each of m groups; return the number of a group with a pair of `OVERFLOW`, or -1.

    The result is -1 unless rows may miss values. `rows`, (n, d), are as the metric's formula reads them, and `order`
    has them by group, (n,) int32. `first` and `size`, (m,) int64 on the host, say where the rows of each group are, at
    least two. A core distance reaches `min_samples` other rows, or in a group that has fewer, all of them. `edges` are
    src, dst and weight, size - 1 for each group in turn, which come in any order.
    """
    rows, begin = read_only(rows), np.concatenate([[0], np.cumsum(size - 1)])
    stored, (src, dst, weight) = is_stored(metric, min_samples, rows.dtype.kind == "u"), edges

    def grow_some(part: slice) -> int:
        own_first, own_size, own_begin = first[part], size[part], begin[part]
        if not stored:
            _trees_of_rows(metric.cpu_formula, rows, order, own_first, own_size, own_begin, src, dst, weight)
            return -1
        bad: int = _trees_by_matrix(
            metric.cpu_formula, rows, order, own_first, own_size, own_begin, min_samples, src, dst, weight, new_tile()
        )
        return bad if bad < 0 else part.start + bad

    undefined = [bad for bad in for_each_chunk(CPU, grow_some, chunks_of_groups(size)) if bad >= 0]
    return min(undefined) if undefined and metric.formula.is_undefined_without_common else -1


def chunks_of_groups(sizes: np.ndarray) -> list[slice]:
    """Return slices of groups of these sizes that take about the same work."""
    work = np.cumsum(sizes.astype(np.float64) ** 2 + GROUP_WORK)
    count = max(1, min(sizes.size, CHUNKS * workers(CPU)))
    stops = np.unique(np.searchsorted(work, work[-1] * np.arange(1, count) / count, side="right"))
    bounds = [0, *stops[(stops > 0) & (stops < sizes.size)].tolist(), sizes.size]
    return list(starmap(slice, pairwise(bounds)))


@njit(nogil=True, cache=True)
def _trees_of_rows(formula, rows, order, first, size, begin, src, dst, weight):
    """Write the trees of some groups without storing distances, from copies with a column for each row."""
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
    """Write the trees of some groups of rows of any kind; return the first group with a pair of `OVERFLOW`, or -1."""
    undefined, nothing, nobody = -1, np.empty((0, 0)), np.empty(0)
    for g in range(size.size):
        n, at = size[g], first[g]
        own, matrix = order[at : at + n], np.empty((n, n))
        for i in range(0, n, ROWS):
            fill_rows(formula, rows, own, i, min(i + ROWS, n), tile, matrix)
        overflows = False
        for i in range(n):
            for j in range(i):
                overflows |= matrix[i, j] >= OVERFLOW
        if overflows and undefined < 0:
            undefined = g
        core = nobody
        if min(min_samples, n - 1) > 1:
            core = np.empty(n)
            put_cores(matrix, NO_COUNTS, 0, n, min(min_samples, n - 1), core)
        a, b = begin[g], begin[g] + n - 1
        prim(None, (n, n), nothing, matrix, core, src[a:b], dst[a:b], weight[a:b])
        for e in range(a, b):
            src[e], dst[e] = own[src[e]], own[dst[e]]
    return undefined


# -------------------------------------------------------------------------------------------------- pairs of components


def new_supports(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the support values and points of every two of k components before `update_supports`."""
    return np.full((k, k), -np.inf, np.float32), np.zeros((k, k), np.int32)


@njit(cache=True)
def update_supports(product, number, first, supports):
    """Raise the support values of every two components by some points, and record these points.

    The value of (a, b) is the largest product with b's centroid minus that with a's, over the points of a. `product`,
    (m, K) float32, has the products of m points with all centroids, and `number` their components. `first` is the
    position of the first of these points among all, sorted by component.
    """
    value, position = supports
    for i in range(number.size):
        a = number[i]
        for b in range(product.shape[1]):
            more = product[i, b] - product[i, a]
            if more > value[a, b]:
                value[a, b], position[a, b] = more, first + i


def measure_pairs(separations: Separations, order: np.ndarray) -> tuple[Any, ...]:
    """Return all pairs of K components as the fields of `ComponentPairs`.

    The supports are updated with all points, in this `order`.
    """
    (value, position), y = separations.supports, separations.centroids.y.astype(np.float64)
    first, second = (end.astype(np.int32) for end in np.triu_indices(len(y), 1))
    inner = y @ y.T
    norm = inner.diagonal()
    length = np.sqrt(norm[first] + norm[second] - 2 * inner[first, second] + 2 * ROUNDING * norm.max())
    between = -(value[first, second].astype(np.float64) + value[second, first]) - separations.error
    separation = np.full_like(length, -np.inf)
    np.divide(between, length, out=separation, where=between > 0)
    support = order[np.stack([position[first, second], position[second, first]])]
    return first, second, separation - separations.moved, support


# -------------------------------------------------------------------------------------------------------------- friends

#: Pairs of nodes that wait: splitting a node of a pair adds one pair, and a tree has at most 32 levels.
STACK = 128


def make_boxes(rows: Array, metric: Metric) -> Tree:
    """Return the k-d tree of rows."""
    return build(rows)


def reduce_near_points(
    tree: Tree, limit: float, metric: Metric, values: Array | None, total: Array, enough: float | None
) -> None:
    """Reduce the values of the rows within a surrogate distance of each row, itself among them, into its total.

    A total is a sum of values, which ends when it is `enough`. If `enough` is None, an infinite total becomes the least
    value, and a finite total stays. `values` and `total` are float64, (n,); `values` is None where each is 1.
    """
    n, adds = tree.order.size, enough is not None
    along, totals = np.ones(n) if values is None else values[tree.order], total[tree.order]
    queries = Queries(tree.columns, np.arange(n), np.arange(n), np.arange(n, dtype=np.int32))

    def work(part: slice) -> None:
        walk(metric.cpu_formula, tree, queries.take(part), Reduce(limit, along, totals, adds, enough or 0.0))

    for_each_chunk(CPU, work, shares(slice(0, n), 1 if n < SERIAL_POINTS else 4 * workers(CPU)))
    total[tree.order] = totals


class Reduce(NamedTuple):
    """A reducer: the sum, or the least, of values of the points within a limit, as `reduce_near_points` says.

    Values and totals are by position. A leaf meets itself first, because many of its points are near.
    """

    limit: float
    values: np.ndarray  # (n,) float64
    total: np.ndarray  # (n,) float64
    adds: bool
    enough: float

    def load(self, queries, begin, m, lanes):
        """Let only those rows search whose totals may still change."""
        total, adds, limit, bound, rows = self.total, self.adds, self.limit, lanes.bound, queries.rows
        for j in range(m):
            bound[j] = limit if adds or total[rows[begin + j]] == np.inf else -1.0
        return largest_bound(bound), np.int64(-1)

    def meet(self, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest):
        """Reduce the values of a leaf's near points."""
        values, total, adds, limit = self.values, self.total, self.adds, self.limit
        must_visit, near, bound, first = lanes.must_visit, lanes.near, lanes.bound, tree.first[node]
        mark_near(formula, tree, node, wraps, lanes)
        for j in range(m):
            if must_visit[j]:
                p = queries.rows[begin + j]
                to_points(formula, lanes.x, j, tree.columns, first, near, wraps)
                for c in range(tree.last[node] - first):
                    if near[c] <= limit:
                        value = values[first + c]
                        total[p] = total[p] + value if adds else min(total[p], value)
                if adds and total[p] >= self.enough:
                    bound[j] = -1.0
        return largest_bound(bound)


def write_friends(tree: Tree, limit: float, metric: Metric, labels: Array) -> int:
    """Write the label of each row, (n,) int32, and return the number of clusters.

    Steps of surrogate distances of at most `limit` connect the rows of a cluster. Each thread unites the nodes of a
    subtree, and reads and writes the parents of the subtree's points alone.
    """
    one, parent = np.zeros(tree.first.size, bool), np.arange(labels.size, dtype=np.int32)
    levels, upper = tree.first.size.bit_length(), 0  # levels of the tree, and those that one thread unites at the end
    if labels.size > SERIAL_POINTS:
        upper = min(levels - 1, (workers(CPU) - 1).bit_length())

    def unite(root: int) -> None:
        _unite_nodes(metric.cpu_formula, tree, limit, one, parent, root, levels - upper)

    for_each_chunk(CPU, unite, range(2**upper - 1, 2 ** (upper + 1) - 1))
    if upper:
        _unite_nodes(metric.cpu_formula, tree, limit, one, parent, 0, upper)
    return int(_number_friends(parent, tree.position, labels))


@njit(nogil=True, cache=True)
def _unite_nodes(formula, tree, limit, one, parent, root, levels):
    """Unite the near points of a subtree's nodes, from the lowest of some levels up.

    The points of a leaf are united with each other, and the points of a node's one child with those of the other. `one`
    is whether the points of a node are of one component, and is written for each node.
    """
    leaves, distance, gaps = tree.first.size // 2, np.empty(LEAF), np.empty(LEAF)
    points, pairs = np.empty((tree.low.shape[1], LEAF)), np.empty((STACK, 2), np.int64)
    begin, count = root, 1
    for _ in range(levels - 1):
        begin, count = 2 * begin + 1, 2 * count
    while count:
        for v in range(begin, begin + count):
            a, b = tree.first[v], tree.last[v]
            if v < leaves:
                lower, higher = 2 * v + 1, 2 * v + 2
                _unite_node_pair(formula, tree, limit, one, parent, lower, higher, pairs, points, gaps, distance)
                both_one = one[lower] and one[higher]
                one[v] = both_one and find_root(parent, tree.first[lower]) == find_root(parent, tree.first[higher])
                continue
            wraps = may_wrap(formula, tree.low[v], tree.high[v], tree.low, tree.high, v)
            for p in range(a, b - 1):
                to_points(formula, tree.columns, p, tree.columns, p + 1, distance[: b - p - 1], wraps)
                for j in range(b - p - 1):
                    if distance[j] <= limit:
                        _unite_points(parent, p, p + 1 + j)
            own, one[v] = find_root(parent, a), True
            for p in range(a + 1, b):
                one[v] &= find_root(parent, p) == own
        begin, count = (begin - 1) // 2, count // 2


@njit(nogil=True, cache=True)
def _unite_points(parent, p, q):
    """Unite the components of two points by putting the later root under the other."""
    a, b = find_root(parent, p), find_root(parent, q)
    parent[max(a, b)] = min(a, b)


@njit(nogil=True, cache=True)
def _unite_node_pair(formula, tree, limit, one, parent, v, w, pairs, points, gaps, distance):
    """Unite the points of two nodes that are within the limit.

    If each of two nodes is of one component, no further pair is needed after the first near one.
    """
    leaves, pairs[0, 0], pairs[0, 1], depth = tree.first.size // 2, v, w, 1
    while depth:
        depth -= 1
        a, b = pairs[depth]
        if box_to_box(formula, tree.low[a], tree.high[a], tree.low, tree.high, b) > limit:
            continue
        if one[a] and one[b] and find_root(parent, tree.first[a]) == find_root(parent, tree.first[b]):
            continue
        if a >= leaves and b >= leaves:
            _unite_leaves(formula, tree, limit, one, parent, a, b, points, gaps, distance)
        else:
            for v in (a, b):  # what is known of a node's points is known of its children's
                if one[v] and v < leaves:
                    one[2 * v + 1], one[2 * v + 2] = True, True
            depth = _split_pair(tree, a, b, pairs, depth)


@njit(nogil=True, cache=True)
def _split_pair(tree, a, b, pairs, depth):
    """Let the pairs of one node's children wait in place of the pair; return how many wait.

    The children are those of the node with more points, or of the only one that is no leaf.
    """
    leaves, size, other_size = tree.first.size // 2, tree.last[a] - tree.first[a], tree.last[b] - tree.first[b]
    if b >= leaves or (a < leaves and size > other_size):
        pairs[depth, 0], pairs[depth, 1] = 2 * a + 1, b
        pairs[depth + 1, 0], pairs[depth + 1, 1] = 2 * a + 2, b
    else:
        pairs[depth, 0], pairs[depth, 1] = a, 2 * b + 1
        pairs[depth + 1, 0], pairs[depth + 1, 1] = a, 2 * b + 2
    return depth + 2


@njit(nogil=True, cache=True)
def _unite_leaves(formula, tree, limit, one, parent, a, b, points, gaps, distance):
    """Unite the points of two leaves that are within the limit.

    If a leaf is of one component, each point of the other needs only one near point in it.
    """
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
                _unite_points(parent, p, first + j)
                if one[b]:
                    break


@njit(nogil=True, cache=True)
def _number_friends(parent, position, labels):
    """Write labels in the order of rows; return the number of clusters."""
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

"""The neighbour kernels on the CPU: BLAS for the products, Numba for the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import joblib
import numpy as np
import threadpoolctl
from numba import njit

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.contract import shown, stride
from rapids_slink.neighbors.operand import SMALL, Ceiling, Extent, Operand, Scaling, blocks
from rapids_slink.neighbors.operand import pack as pack_plain
from rapids_slink.neighbors.pairs import dot, value

FILTER_DTYPE = "float32"
FILTER_NAME = "float32 tiles"
OPERAND_BYTES = 4  # a feature
MAX_LIST = 2**31  # lists of any length
ROWS = 512  # a tile of products stays in the second-level cache
COLUMNS = 1024
NO_CORE = np.empty(0)


@dataclass(frozen=True)
class Candidates:
    """Survivors of the filter: `ids` (rows, capacity) int32 and how many each row had, kept or not."""

    ids: np.ndarray
    count: np.ndarray

    @property
    def capacity(self) -> int:
        """How many survivors a row can hold."""
        return int(self.ids.shape[1])


@dataclass(frozen=True)
class Lists:
    """The least `k` found so far, sorted: `ids` (rows, k) int32, -1 where none; `weights` float64, infinite there.

    `lost` (rows,) tells which rows had more candidates than they could hold.
    """

    ids: np.ndarray
    weights: np.ndarray
    lost: np.ndarray

    def take(self, at: Any) -> Lists:
        """The lists of the rows `at`: a slice shares their memory."""
        return Lists(self.ids[at], self.weights[at], self.lost[at])


@dataclass(frozen=True)
class Pairs:
    """Pairs found: `at` (capacity, 2) int32 positions and their number, kept or not, in `count` (1,)."""

    at: np.ndarray
    count: np.ndarray


def new_pairs(capacity: int) -> Pairs:
    """An empty buffer."""
    return Pairs(np.empty((capacity, 2), np.int32), np.zeros(1, np.int64))


class Workspace(threading.local):
    """Each thread's memory for a tile of products: fresh memory would cost more than the product."""

    def __init__(self) -> None:
        self._space: dict[str, np.ndarray] = {}

    def product(self, rows: Operand, columns: Operand) -> np.ndarray:
        """The tile of products of two operands, (rows, columns), valid until the thread's next call."""
        size = rows.y.shape[0] * columns.y.shape[0]
        space = self._space.get(rows.accumulator)
        if space is None or space.size < size:
            self._space[rows.accumulator] = space = np.empty(size, rows.y.dtype)
        return np.matmul(rows.y, columns.y.T, out=space[:size].reshape(rows.y.shape[0], columns.y.shape[0]))


def each(work: Callable[[Any], Any], parts: Iterable[Any], what: str = "", progress: bool = False) -> list[Any]:
    """`work` of every part, one thread a core; `what` names it on a progress bar.

    The threads share nothing, so BLAS gets one thread in each: two pools that wait for each other by spinning would
    take each other's cores.
    """
    parts = list(parts)
    pool = ThreadPoolExecutor(workers())
    with _controller().limit(limits=1, user_api="blas"):
        try:
            return list(shown(pool.map(work, parts), len(parts), what, progress))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C the parts that wait are not begun


def workers() -> int:
    """How many parts `each` works on at a time."""
    return int(joblib.cpu_count())


@lru_cache(maxsize=1)
def _controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def fused_filter(values: Any = None) -> Any:
    """None: BLAS forms tiles in memory."""
    return None


def few_queries(n_queries: int, n_columns: int, n_features: int, metric: Metric, dtype: str) -> Any:
    """None: the search that needs nothing beforehand is a GPU's."""
    return None


def pack(values: Any, scaling: Scaling, dtype: str, order: Any = None) -> Operand:
    """The operand of `values` in the order of the rows `order` (default: as they are)."""
    return pack_plain(values, scaling, dtype, np, order)


def centre(values: Any, step: int) -> np.ndarray:
    """The mean of every `step`-th row, 0 where it is not finite: any finite centre serves."""
    sample = values[::step]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (np.ones(len(sample), sample.dtype) @ sample).astype("float64") / len(sample)
    return np.where(np.isfinite(mean), mean, 0.0)


def extents(parts: Iterable[Any], centre: Any) -> list[Extent]:
    """Of each array of points, how far the features reach, and what kind of numbers they are."""
    return [_extent(values, centre) for values in parts]


def _extent(values: Any, centre: Any) -> Extent:
    moved, largest, even, like_bytes = 0.0, 0.0, True, True
    for at in blocks(*values.shape):
        part = values[at]
        highest, lowest = float(part.max()), float(part.min())
        moved, largest = max(moved, float(np.abs(part - centre).max())), max(largest, highest, -lowest)
        even = even and largest <= SMALL and bool((part == np.rint(part)).all())
        like_bytes = even and like_bytes and lowest >= 0 and highest <= 255
    return Extent(moved, largest, small_integers=even, byte_values=like_bytes)


def compact(values: Any, scaling: Scaling) -> Any:
    """The values as `rerank` reads them."""
    return values


def new_candidates(rows: int, k: int) -> Candidates:
    """Empty buffers."""
    return Candidates(np.empty((rows, 64 + 12 * k), np.int32), np.zeros(rows, np.int64))


def scattered(n: int) -> np.ndarray:
    """A permutation of n rows, int32, of which every leading part is spread evenly over all of them."""
    return (np.arange(n, dtype=np.int64) * stride(n) % n).astype(np.int32)


def new_lists(rows: int, k: int) -> Lists:
    """Empty lists."""
    return Lists(np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf), np.zeros(rows, bool))


def keep(
    rows: Operand,
    columns: Operand,
    radius: Any,
    row_group: Any,
    column_group: Any,
    ids: Any,
    into: Candidates,
    space: Workspace,
) -> None:
    """Append to each row's candidates the columns that pass operand.py's test and are of another group."""
    args = (space.product(rows, columns), rows.half_norm, radius, columns.half_norm, columns.error)
    _keep(*args, row_group, column_group, ids, into.ids, into.count)


def seed(
    rows: Operand,
    columns: Operand,
    row_group: Any,
    column_group: Any,
    ids: Any,
    k: int,
    space: Workspace,
    ceiling: Ceiling,
    bound: Any,
    core: tuple[Any, Any] | None = None,
) -> None:
    """Lower each row's bound, (rows,) float64, to what its k-th nearest column is at most.

    The columns are those of the `ids`, of other groups, and the nearest of each of some buckets are looked at. `core`
    are the rows' ids and all cores, if there are any.
    """
    norms = rows.half_norm, rows.error, columns.half_norm, columns.error
    of_rows, cores = (ids, NO_CORE) if core is None else core
    _seed(
        space.product(rows, columns), *norms, row_group, column_group, ids, k, max(32, 2 * k), ceiling.numbers,
        of_rows, cores, bound,
    )  # fmt: skip


def rerank(
    queries: Any,
    values: Any,
    rows: Any,
    candidates: Candidates,
    groups: tuple[Any, Any],
    upper: Any,
    top: Lists,
    core: Any = None,
    *,
    metric: Metric = EUCLIDEAN,
) -> None:
    """Merge the candidates' exact kernel values, as far as they are at most `upper`, into the lists.

    `upper` is lowered to the last entries of the lists that are full, and rows that lost candidates are noted.
    `groups` are the rows' and the columns'; the filter has passed over candidates of a row's own group already.
    `core` is the task's.
    """
    core = NO_CORE if core is None else core
    found = candidates.ids, candidates.count
    _rerank(metric.rule, queries, values, rows, *found, core, upper, top.ids, top.weights, top.lost)


def rerank_all(
    queries: Any,
    values: Any,
    rows: Any,
    row_group: Any,
    column_group: Any,
    upper: Any,
    k: int,
    core: Any = None,
    *,
    metric: Metric = EUCLIDEAN,
) -> tuple[Any, Any]:
    """The lists of `rows` with every column of another group as a candidate."""
    top = new_lists(rows.size, k)
    core = NO_CORE if core is None else core
    _rerank_all(metric.rule, queries, values, rows, row_group, column_group, core, upper, top.ids, top.weights)
    return top.ids, top.weights


def sort_by_reachability(ids: Any, weights: Any, core: Any) -> None:
    """Raise each list's kernel values to mutual reachability, and sort it again."""
    each(lambda rows: _sort_by_reachability(ids, weights, core, rows.start, rows.stop), blocks(*ids.shape))


def positions(flags: np.ndarray, meanwhile: Any = None) -> np.ndarray:
    """Where `flags` are set; there is nothing to wait for."""
    return np.flatnonzero(flags)


def lower_groups(least: Any, group: Any, weights: Any) -> None:
    """least[group[i]] = min(itself, weights[i, 0])."""
    np.minimum.at(least, group, weights[:, 0])


def keep_pairs(
    rows: Operand,
    columns: Operand,
    first_row: int,
    first_column: int,
    component: Any,
    column_component: Any,
    table: Any,
    into: Pairs,
    space: Workspace,
) -> None:
    """Append the positions of every pair of different components that passes with its components' reach in `table`."""
    _keep_pairs(
        space.product(rows, columns), first_row, first_column, rows.half_norm, rows.error, columns.half_norm,
        columns.error, component, column_component, table, into.at, into.count,
    )  # fmt: skip


def pair_values(values: Any, src: Any, dst: Any, *, metric: Metric = EUCLIDEAN) -> np.ndarray:
    """The kernel values of pairs of rows."""
    return _pair_values(metric.rule, values, src, dst)


def with_norms(values: np.ndarray, centre: bool) -> np.ndarray:
    """The rows in float64, minus their means if `centre`, with their norms behind them: (n, d + 1)."""
    n, d = values.shape
    rows = np.empty((n, d + 1))
    rows[:, :d] = values
    if centre:
        rows[:, :d] -= rows[:, :d].mean(axis=1, keepdims=True)
    _put_norms(rows)
    return rows


@njit(cache=True)
def _test(product, half_norm, radius, column_half_norm, column_error, passed):
    """The filter's test of one row, in a function of its own so that it is compiled to vector instructions."""
    for j in range(product.size):
        q = radius + column_error[j]
        passed[j] = product[j] >= half_norm + column_half_norm[j] - q * q


@njit(cache=True, inline="always")
def append_passed(passed, mine, column_group, ids, out, filled):
    """Append the columns of a row that passed and are of another group; returns how many there are now, kept or not.

    The length of `passed` is a multiple of eight.
    """
    eights = passed.view(np.uint64)  # few columns pass, so eight are looked at together
    for word in range(eights.size):
        if eights[word] == 0:
            continue
        for j in range(8 * word, 8 * word + 8):
            if passed[j] and column_group[ids[j]] != mine:
                if filled < out.size:
                    out[filled] = ids[j]
                filled += 1
    return filled


@njit(nogil=True, cache=True)
def _keep(product, half_norm, radius, column_half_norm, column_error, row_group, column_group, ids, out, count):
    n_rows, n_columns = product.shape
    passed = np.zeros(-(-n_columns // 8) * 8, np.uint8)
    for i in range(n_rows):
        _test(product[i], half_norm[i], radius[i], column_half_norm, column_error, passed)
        count[i] = append_passed(passed, row_group[i], column_group, ids, out[i], count[i])


@njit(nogil=True, cache=True)
def _keep_pairs(
    product, first_row, first_column, half_norm, error, column_half_norm, column_error, component, column_component,
    table, out, count,
):  # fmt: skip
    n_rows, n_columns = product.shape
    radius = np.empty_like(column_error)
    passed = np.zeros(-(-n_columns // 8) * 8, np.uint8)
    for i in range(n_rows):
        mine = component[i]
        if i == 0 or mine != component[i - 1]:
            for j in range(n_columns):
                radius[j] = table[mine, column_component[j]] + column_error[j]
        _test(product[i], half_norm[i], error[i], column_half_norm, radius, passed)
        eights = passed.view(np.uint64)
        for word in range(eights.size):
            if eights[word] == 0:
                continue
            for j in range(8 * word, 8 * word + 8):
                if passed[j] and column_component[j] != mine and first_row + i < first_column + j:
                    if count[0] < out.shape[0]:
                        out[count[0], 0], out[count[0], 1] = first_row + i, first_column + j
                    count[0] += 1


@njit(nogil=True, cache=True)
def _pair_values(rule, values, src, dst):
    out = np.empty(src.size)
    for i in range(src.size):
        out[i] = value(rule, values, src[i], values, dst[i], np.inf)
    return out


@njit(nogil=True, cache=True)
def _put_norms(rows):
    d = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        rows[i, d] = np.sqrt(dot(rows, i, rows, i, d))


@njit(nogil=True, cache=True)
def _seed(
    product, half_norm, error, column_half_norm, column_error, row_group, column_group, ids, k, buckets, ceiling, rows,
    core, bound,
):  # fmt: skip
    n_rows, n_columns = product.shape
    excess, lost, unscale, more, factor, off = ceiling
    least, best, value = np.empty(buckets, product.dtype), np.empty(buckets, np.int64), np.empty(buckets)
    for i in range(n_rows):
        least[:] = np.inf
        best[:] = -1
        for start in range(0, n_columns, buckets):
            for b in range(min(buckets, n_columns - start)):
                j = start + b
                half = column_half_norm[j] - product[i, j]
                if half < least[b] and column_group[ids[j]] != row_group[i]:
                    least[b] = half
                    best[b] = j
        for b in range(buckets):
            value[b] = np.inf
            if best[b] >= 0:
                j = best[b]
                half = np.float64(half_norm[i]) + least[b]
                norms = np.float64(half_norm[i]) + column_half_norm[j]
                # What is missing of `half` by the float32 subtraction above, and more.
                square = max(half + abs(half) * 2.0**-22 + excess * norms + lost, 0.0)
                distance = (np.sqrt(square) + column_error[j] + error[i]) * unscale + more
                value[b] = distance * distance * factor + off
                if core.size:
                    value[b] = max(value[b], core[rows[i]], core[ids[j]])
        bound[i] = min(bound[i], np.sort(value)[k - 1])


# The lists are rows of arrays that are not sliced, and tests are one expression without branches: otherwise Numba
# counts references to the arrays at each call, and the threads wait for each other's counts.


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
def out_of_reach(core, j, bound):
    """Whether no pair with point j weighs as little as `bound`; without cores, not to be known from j alone."""
    return core[j] > bound if core.size else False


@njit(cache=True)
def reachability(value, core, i, j):
    """The mutual reachability of points i and j, whose kernel value is given; that value if there are no cores."""
    return max(value, core[i], core[j]) if core.size else value


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
def _rerank(rule, queries, values, rows, candidates, count, core, upper, ids, weights, lost):
    capacity = candidates.shape[1]
    for i in range(rows.size):
        for c in range(min(count[i], capacity)):
            j = candidates[i, c]
            if j >= 0 and not out_of_reach(core, j, upper[i]):
                weight = reachability(value(rule, queries, rows[i], values, j, upper[i]), core, rows[i], j)
                if weight <= upper[i] and comes_before_last(ids, weights, i, j, weight):
                    insert(ids, weights, i, j, weight)
        upper[i] = min(upper[i], weights[i, -1])
        lost[i] |= count[i] > capacity


@njit(nogil=True, cache=True)
def _rerank_all(rule, queries, values, rows, row_group, column_group, core, upper, ids, weights):
    for i in range(rows.size):
        for j in range(values.shape[0]):
            if column_group[j] != row_group[i] and not out_of_reach(core, j, upper[i]):
                weight = reachability(value(rule, queries, rows[i], values, j, upper[i]), core, rows[i], j)
                if weight <= upper[i] and comes_before_last(ids, weights, i, j, weight):
                    insert(ids, weights, i, j, weight)

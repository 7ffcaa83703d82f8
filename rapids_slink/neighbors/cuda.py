"""The neighbour kernels on the GPU: cuBLAS for the products, and for the rest `.cu` files beside this one.

A raw kernel checks nothing, so its launcher here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import cublas

from rapids_slink.device import c_name, check_arrays, cuda_kernel, launch, multiprocessors, struct
from rapids_slink.metrics import EPSILON, EUCLIDEAN, Metric, accumulation_bound
from rapids_slink.neighbors.contract import shown, stride
from rapids_slink.neighbors.operand import EXTRA_FEATURES, TINY, Ceiling, Extent, Operand, Scaling, growth, shrinkage
from rapids_slink.neighbors.operand import pack as pack_plain

FILTER_DTYPE = "float16"
FILTER_NAME = "fp16 tensor cores (cuBLAS)"
OPERAND_BYTES = 2  # a feature
ROWS = 8192
COLUMNS = 8192
MAX_LIST = 1024  # longer lists do not fit into shared memory on every GPU

LISTS = "neighbors/lists.cu"
WARP = 32
WARPS = 2  # a block, in the kernels that give each row a warp
SEGMENT = 128  # bytes of a candidate that a warp brings into shared memory at a time
ROWS_PER_BLOCK, THREADS, COLUMNS_PER_THREAD = 32, 256, 4  # as in filter.cu


@dataclass(frozen=True)
class Candidates:
    """Survivors of the filter.

    Attributes
    ----------
    ids : (rows, capacity) int32 array
    count : (rows,) int32 array
        How many there were, kept or not.
    order : (n,) int32 array, optional
        If given, `ids` are places in this order of the columns.
    """

    ids: Any
    count: Any
    order: Any = None

    @property
    def capacity(self) -> int:
        """How many survivors a row can hold."""
        return int(self.ids.shape[1])


@dataclass(frozen=True)
class Lists:
    """The least `k` found so far, sorted.

    Attributes
    ----------
    ids : (rows, k) int32 array
        -1 where there is none.
    weights : (rows, k) float64 array
        Infinite there.
    lost : (rows,) bool array
        Whether a row had more candidates than it could hold.
    """

    ids: Any
    weights: Any
    lost: Any

    def take(self, at: Any) -> Lists:
        """The lists of the rows `at`: a slice shares their memory."""
        return Lists(self.ids[at], self.weights[at], self.lost[at])


@dataclass(frozen=True)
class Pairs:
    """Pairs found: `at` (capacity, 2) int32 positions and their number, kept or not, in `count` (1,)."""

    at: Any
    count: Any


@dataclass(frozen=True)
class Packed:
    """What `pack.cu` writes for rows: `y`, `tails` (or None), and `half_norm` and `error` as in an `Operand`."""

    y: Any
    tails: Any
    half_norm: Any
    error: Any


def pack(values: Any, scaling: Scaling, dtype: str, order: Any = None) -> Operand:
    """The operand of `values` in the order of the rows `order` (default: as they are)."""
    if dtype != FILTER_DTYPE:
        return pack_plain(values, scaling, dtype, cp, order)
    n = values.shape[0] if order is None else order.size
    packed = pack_rows(values, scaling, order, n)
    return Operand(packed.y.reshape(n, -1), packed.half_norm, packed.error)


def pack_rows(values: Any, scaling: Scaling, rows: Any, padded: int, atoms: int = 0, tails: bool = False) -> Packed:
    """The fp16 operand of `rows` (None: all) of `values`, filled up to `padded` rows.

    It is laid out row by row, or in `atoms` atoms as `hopper.cu` has it, with tails if they are wanted.
    """
    check_arrays(values.dtype, values)
    check_arrays("float64", scaling.centre)
    if rows is not None:
        check_arrays("int32", rows)
    d, m = values.shape[1], values.shape[0] if rows is None else rows.size
    chunks = -(-d // 8)
    width = chunks * 8
    shrink = shrinkage(width + EXTRA_FEATURES, "float32")
    y = cp.empty(padded * (64 * atoms or width), cp.float16)
    tail = cp.empty(padded * 16, cp.float16) if tails else None
    half_norm, error = cp.empty(padded, cp.float32), cp.empty(padded, cp.float32)
    # The accumulator's error is relative to |y_i . y_j| + half_norm_j: hence one more of its bound for the tail.
    tail_shrink = 1 - accumulation_bound(width + EXTRA_FEATURES, "float32")
    none = np.uintp(0)
    if padded:
        kernel = cuda_kernel("neighbors/pack.cu", "pack", value_option(values.dtype))
        kernel(
            (-(-padded // WARPS),), (WARPS * WARP,),
            (values, np.int32(d), none if rows is None else rows, np.int64(m), np.int64(padded),
             scaling.centre, np.float64(scaling.scale), np.float64(shrink / 2),
             np.float64(growth(EPSILON["float32"])), np.float64(TINY), np.float64(tail_shrink),
             np.int32(chunks), np.int32(atoms), y, none if tail is None else tail, half_norm, error),
        )  # fmt: skip
    return Packed(y, tail, half_norm, error)


def centre(values: Any, step: int) -> Any:
    """The mean of every `step`-th row, 0 where it is not finite: any finite centre serves."""
    check_arrays(values.dtype, values)
    n, d = values.shape
    mean = cp.empty(d)
    kernel = cuda_kernel("neighbors/pack.cu", "mean_of_rows", value_option(values.dtype))
    kernel((-(-d // WARP),), (WARP * WARP,), (values, np.int64(n), np.int32(d), np.int64(step), mean))
    return mean


def extents(parts: Sequence[Any], centre: Any) -> list[Extent]:
    """Of each array of points, how far the features reach, and what kind of numbers they are."""
    check_arrays("float64", centre)
    found = cp.zeros((len(parts), 4))
    for values, into in zip(parts, found, strict=True):
        check_arrays(values.dtype, values)
        n, d = values.shape
        if values.size:
            blocks = min(-(-n // WARPS), 16 * multiprocessors())
            kernel = cuda_kernel("neighbors/pack.cu", "extent", value_option(values.dtype))
            kernel((blocks,), (WARPS * WARP,), (values, np.int64(n), np.int32(d), centre, into))
    return [
        Extent(moved, largest, small_integers=uneven == 0, byte_values=unlike_bytes == 0)
        for moved, largest, uneven, unlike_bytes in found.tolist()
    ]


def compact(values: Any, scaling: Scaling) -> Any:
    """The values as `rerank` reads them fastest.

    Integers from 0 to 255 become bytes, rows filled up with zeros to a multiple of 16; all else stays.
    """
    n, d = values.shape
    if not scaling.byte_values or d >= 2**16:
        return values
    packed = cp.zeros((n, -(-d // 16) * 16), cp.uint8)
    packed[:, :d] = values
    return packed


def new_pairs(capacity: int) -> Pairs:
    """An empty buffer."""
    return Pairs(cp.empty((capacity, 2), cp.int32), cp.zeros(1, cp.uint64))


class Workspace:
    """Device memory that every tile of a search uses again."""

    def __init__(self) -> None:
        self._space: dict[str, Any] = {}

    def product(self, rows: Operand, columns: Operand) -> Any:
        """The tile of products of two operands, (rows, columns), valid until the next call."""
        size = rows.y.shape[0] * columns.y.shape[0]
        dtype = rows.accumulator
        space = self._space.get(dtype)
        if space is None or space.size < size:
            self._space[dtype] = space = cp.empty(size, dtype)
        tile = space[:size].reshape(rows.y.shape[0], columns.y.shape[0])
        if rows.y.dtype == cp.float16:
            _half_product(rows.y, columns.y, tile)
        else:
            cp.matmul(rows.y, columns.y.T, out=tile)
        return tile


def each(work: Callable[[Any], Any], parts: Iterable[Any], what: str = "", progress: bool = False) -> list[Any]:
    """`work` of every part, one after the other: each fills the GPU. `what` names it on a progress bar."""
    parts = list(parts)
    return [work(part) for part in shown(parts, len(parts), what, progress)]


def workers() -> int:
    """How many parts `each` works on at a time."""
    return 1


def fused_filter(values: Any = None) -> Any:
    """The class of the filter that forms no tiles in memory, or None where the GPU lacks what it needs.

    For `values` as `compact` gives them, the fastest that can have them for its columns.
    """
    from rapids_slink.neighbors import hopper

    if not hopper.usable():
        return None
    return hopper.ByteFilter if values is not None and hopper.ByteFilter.holds(values) else hopper.FusedFilter


def few_queries(n_queries: int, n_columns: int, n_features: int, metric: Metric, dtype: str) -> Any:
    """The search that suits few queries on the current GPU, or None where another is wanted."""
    from rapids_slink.neighbors.nearest import FewQueries

    found = FewQueries(n_queries, n_columns, n_features, metric, dtype)
    return found if found.serves else None


def new_candidates(rows: int, k: int) -> Candidates:
    """Empty buffers."""
    return Candidates(cp.empty((rows, 64 + 12 * k), cp.int32), cp.zeros(rows, cp.int32))


def scattered(n: int) -> Any:
    """A permutation of n rows, int32, of which every leading part is spread evenly over all of them."""
    order = cp.empty(n, cp.int32)
    launch(LISTS, "scatter", n, np.int64(n), np.int64(stride(n)), order)
    return order


def new_lists(rows: int, k: int) -> Lists:
    """Empty lists."""
    top = Lists(cp.empty((rows, k), cp.int32), cp.empty((rows, k)), cp.empty(rows, bool))
    launch(LISTS, "clear_lists", rows * k, np.int64(rows), np.int32(k), top.ids, top.weights, top.lost)
    return top


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
    product = space.product(rows, columns)
    m, n = product.shape
    check_arrays(product.dtype, rows.half_norm, radius, columns.half_norm, columns.error)
    check_arrays("int32", row_group, column_group, ids, into.ids, into.count)
    grid = (-(-n // (THREADS * COLUMNS_PER_THREAD)), -(-m // ROWS_PER_BLOCK))
    _filter("keep_near", product.dtype)(
        grid, (THREADS,),
        (product, np.int32(m), np.int32(n), rows.half_norm, radius, columns.half_norm, columns.error,
         row_group, column_group, ids, np.int32(into.capacity), into.ids, into.count),
    )  # fmt: skip


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
    product = space.product(rows, columns)
    m, n = product.shape
    buckets = -(-max(WARP, 2 * k) // WARP) * WARP if 2 * k <= 1024 else -(-k // WARP) * WARP
    none = np.uintp(0)
    check_arrays("float64", bound)
    check_arrays("float32", product, rows.half_norm, rows.error, columns.half_norm, columns.error)
    check_arrays("int32", row_group, column_group, ids)
    if core is not None:
        check_arrays("int32", core[0])
        check_arrays("float64", core[1])
    if m:
        norms = rows.half_norm, rows.error, columns.half_norm, columns.error
        cuda_kernel("neighbors/filter.cu", "seed_bounds", f"-DEACH={buckets // WARP}")(
            (m,), (buckets,),
            (product, np.int32(n), *norms, row_group, column_group, ids, np.int32(k), struct(*ceiling.numbers),
             *((none, none) if core is None else core), bound),
        )  # fmt: skip


def rerank(
    queries: Any,
    values: Any,
    rows: Any,
    candidates: Candidates,
    groups: tuple[Any, Any] | None,
    upper: Any,
    top: Lists,
    core: Any = None,
    *,
    metric: Metric = EUCLIDEAN,
    above: int = 0,
) -> None:
    """Merge the candidates' exact kernel values, as far as they are at most `upper`, into the lists.

    `upper` is lowered to the last entries of the lists that are full, and rows that lost candidates are noted.
    `groups` are the rows' and the columns', if there are any: candidates of a row's own group are passed over.
    `core` is the task's. Rows with at most `above` candidates are left as they are; the others' buffers are emptied.
    """
    m, k = top.ids.shape
    groups = (np.uintp(0), np.uintp(0)) if groups is None else groups
    core = np.uintp(0) if core is None else core
    check_arrays("int32", rows, candidates.ids, candidates.count, *(g for g in groups if g.ndim), top.ids)
    check_arrays("float64", upper, top.weights, *([core] if core.ndim else []))
    check_arrays("bool", top.lost)
    capacity = np.int32(candidates.capacity)
    order = np.uintp(0) if candidates.order is None else candidates.order
    rows_a_warp = WARP if above else 1
    which = np.int32(above), np.int32(rows_a_warp)
    arguments = rows, np.int32(m), candidates.ids, candidates.count, *which, capacity, order, *groups, core, upper
    jobs = -(-m // rows_a_warp)
    _launch_by_warp("rerank", metric, jobs, k, queries, values, arguments, (top.ids, top.weights, top.lost))


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
    m, n = rows.size, values.shape[0]
    check_arrays("int32", rows, row_group, column_group)
    check_arrays("float64", upper, *([] if core is None else [core]))
    if k > MAX_LIST:
        return _by_sorting(metric, queries, values, rows, row_group, column_group, upper, k, core)
    parts = int(max(1, min(8192 // max(m, 1), n // (WARP * k), 256)))
    ids = cp.empty((m, parts * k), cp.int32)
    _launch_by_warp(
        "rerank_all", metric, m * parts, k, queries, values,
        (rows, np.int32(m), row_group, column_group, np.int32(n), np.int32(parts),
         np.uintp(0) if core is None else core, upper), (ids,),
    )  # fmt: skip
    top = new_lists(m, k)
    likely = Candidates(ids, cp.full(m, parts * k, cp.int32))
    rerank(queries, values, rows, likely, (row_group, column_group), upper.copy(), top, core, metric=metric)
    return top.ids, top.weights


def sort_by_reachability(ids: Any, weights: Any, core: Any) -> None:
    """Raise each list's kernel values to mutual reachability, and sort it again."""
    check_arrays("int32", ids)
    check_arrays("float64", weights, core)
    n, k = ids.shape
    source = "neighbors/mutual_reachability.cu"
    launch(source, "sort_by_reachability", n, np.int64(n), np.int32(k), core, ids, weights)


def positions(flags: Any, meanwhile: Callable[[], Any] | None = None) -> Any:
    """Where `flags` are set, in no order: a fourth of what CuPy's `flatnonzero` costs the host.

    `meanwhile` is called before the host waits for their number; it need not find the memory that it asks for.
    """
    check_arrays("bool", flags)
    at, count = cp.empty(flags.size, cp.int32), cp.zeros(1, cp.int32)
    launch(LISTS, "list_set", flags.size, np.int64(flags.size), flags, at, count)
    if meanwhile is not None:
        with suppress(MemoryError):
            meanwhile()
    return at[: int(count[0])]


def lower_groups(least: Any, group: Any, weights: Any) -> None:
    """least[group[i]] = min(itself, weights[i, 0]); CuPy's own scattered minimum was found too low in float64."""
    check_arrays("int32", group)
    check_arrays("float64", least, weights)
    m, k = weights.shape
    if m:
        kernel = _rerank_kernel("lower_groups", cp.float32)
        kernel((-(-m // THREADS),), (THREADS,), (np.int32(m), group, weights, np.int32(k), least))


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
    product = space.product(rows, columns)
    m, n = product.shape
    check_arrays(product.dtype, rows.half_norm, rows.error, columns.half_norm, columns.error, table)
    check_arrays("int32", component, column_component, into.at)
    grid = (-(-n // (THREADS * COLUMNS_PER_THREAD)), -(-m // ROWS_PER_BLOCK))
    _filter("keep_pairs", product.dtype)(
        grid, (THREADS,),
        (product, np.int32(m), np.int32(n), np.int32(first_row), np.int32(first_column), rows.half_norm, rows.error,
         columns.half_norm, columns.error, component, column_component, table, np.int32(table.shape[0]),
         np.int64(into.at.shape[0]), into.at, into.count),
    )  # fmt: skip


def pair_values(values: Any, src: Any, dst: Any, *, metric: Metric = EUCLIDEAN) -> Any:
    """The kernel values of pairs of rows."""
    check_arrays(values.dtype, values)
    check_arrays("int32", src, dst)
    out = cp.empty(src.size)
    if src.size:
        kernel = _rerank_kernel("pair_values", values.dtype, metric)
        args = (values, np.int32(values.shape[1]), np.int64(src.size), src, dst, out)
        kernel((-(-src.size // THREADS),), (THREADS,), args)
    return out


def with_norms(values: Any, centre: bool) -> Any:
    """The rows in float64, minus their means if `centre`, with their norms behind them: (n, d + 1)."""
    check_arrays(values.dtype, values)
    n, d = values.shape
    rows = cp.empty((n, d + 1))
    kernel = cuda_kernel("neighbors/rows.cu", "put_norms", value_option(values.dtype))
    kernel((-(-n // THREADS),), (THREADS,), (values, np.int64(n), np.int32(d), np.bool_(centre), rows))
    return rows


def _by_sorting(
    metric: Metric,
    queries: Any,
    values: Any,
    rows: Any,
    row_group: Any,
    column_group: Any,
    upper: Any,
    k: int,
    core: Any,
) -> tuple[Any, Any]:
    n, d = values.shape
    ids, weights = cp.empty((rows.size, k), cp.int32), cp.empty((rows.size, k))
    step = max(1, 2**26 // n)
    check_arrays(values.dtype, queries, values)
    kernel = _rerank_kernel("all_values", values.dtype, metric)
    for start in range(0, rows.size, step):
        at = slice(start, min(start + step, rows.size))
        m = at.stop - at.start
        out = cp.empty((m, n))
        args = (queries, values, np.int32(d), rows[at], np.int32(m), row_group[at], column_group, np.int32(n), out)
        kernel((-(-m * n // THREADS),), (THREADS,), args)
        if core is not None:
            out = cp.maximum(out, cp.maximum(core[rows[at], None], core))
        out[out > upper[at, None]] = cp.inf
        order = cp.argsort(out, axis=1)[:, :k]  # CuPy's sort is stable: equal values by column
        ids[at], weights[at] = order, cp.take_along_axis(out, order, axis=1)
    ids[cp.isinf(weights)] = -1
    return ids, weights


def _launch_by_warp(
    name: str, metric: Metric, jobs: int, k: int, queries: Any, values: Any, arguments: tuple, outputs: tuple
) -> None:
    """Start a kernel of `rerank.cu` with a warp for each of the jobs, which keeps k entries."""
    check_arrays(values.dtype, queries, values)
    itemsize, d = values.dtype.itemsize, values.shape[1]
    aligned = d * itemsize % 16 == 0 and values.data.ptr % 16 == 0
    space, warps, size = _warp_space(k, d, itemsize, aligned)
    if jobs:
        _rerank_kernel(name, values.dtype, metric)(
            (-(-jobs // warps),), (warps * WARP,), (queries, values, np.int32(d), *arguments, space, *outputs),
            shared_mem=warps * size,
        )  # fmt: skip


@lru_cache(maxsize=256)
def _warp_space(k: int, d: int, itemsize: int, aligned: bool) -> tuple[Any, int, int]:
    """What `rerank.cu` calls a `Space`, the warps of a block, and the bytes that each has."""
    size = 1 << max(6, (k + WARP - 1).bit_length())  # a power of two that holds the list and 32 more
    width = min(SEGMENT // itemsize, -(-d * itemsize // 16) * 16 // itemsize)  # features at a time
    pitch = (width * itemsize // 16 | 1) * 16  # no two lanes of a quarter warp share a bank
    bytes_a_warp = -(-(width * 8 + WARP * pitch + size * 12) // 16) * 16
    warps = max(1, min(WARPS, 48 * 1024 // bytes_a_warp))
    return struct(k, size, width, pitch, aligned), warps, bytes_a_warp


def _half_product(a: Any, b: Any, out: Any) -> None:
    """out = a @ b.T of fp16 matrices, accumulated and written in float32."""
    m, n, d = a.shape[0], b.shape[0], a.shape[1]
    check_arrays("float16", a, b)
    one, zero = np.float32(1).reshape(1), np.float32(0).reshape(1)
    half, single, compute, default = 2, 0, 68, -1  # CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
    cublas.gemmEx(
        cp.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, n, m, d,
        one.ctypes.data, b.data.ptr, half, d, a.data.ptr, half, d, zero.ctypes.data, out.data.ptr, single, n,
        compute, default,
    )  # fmt: skip


def _filter(name: str, dtype: Any) -> Any:
    return cuda_kernel("neighbors/filter.cu", name, f"-DREAL={c_name(dtype)}")


def _rerank_kernel(name: str, dtype: Any, metric: Metric = EUCLIDEAN) -> Any:
    return cuda_kernel("neighbors/rerank.cu", name, value_option(dtype), *metric.options)


@cache
def value_option(dtype: Any) -> str:
    """What tells a kernel's source the type of the points."""
    return f"-DVALUE={c_name(dtype)}"

"""What a GPU does for the product filter beside the fused kernel: it quantizes, and finds first bounds by cuBLAS."""

from collections.abc import Sequence
from functools import cache

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import cublas

from rapids_slink.neighbors.filter.bounds import (
    ROUND_UP,
    TINY,
    QuantizedPoints,
    Scaling,
    UpperBound,
    ValueRange,
    allowed_range,
    revealing_pairs,
    shrink_factor,
)
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import (
    WARP,
    c_struct,
    check_arrays,
    launch_blocks,
    multiprocessors,
    power_of_two,
    value_option,
)
from rapids_slink.runtime.device import Array, cuda, current_gpu
from rapids_slink.runtime.memory import outside_pool

TILE_ROWS = 8192
TILE_POINTS = 8192

FILTER, QUANTIZE = "neighbors/filter/filter.cu", "neighbors/filter/quantize.cu"
QUANTIZE_WARPS = 2  # a block, of which each has a row
MAX_BUCKETS, MAX_THREADS = 2048, 1024
PROBED_ROWS, PROBED_POINTS, PROBED_FEATURES = 2**8, 2**11, 2**10  # of the product that is tried


def products_keep_bound() -> bool:
    """Whether `product` on the current GPU is as precise as `bounds.accumulation_bound` says, by cuBLAS's kernels.

    It is tried once per process and GPU, in the shape of first bounds.
    """
    return _products_keep_bound(current_gpu())


@cache
def _products_keep_bound(_gpu: int) -> bool:
    rows, points = revealing_pairs(PROBED_FEATURES)
    least, largest = allowed_range(rows, points)
    row, point = np.resize(np.arange(len(rows)), PROBED_ROWS), np.resize(np.arange(len(rows)), PROBED_POINTS)
    with outside_pool(cuda()):  # which may have a limit
        a, b = cp.asarray(rows.astype(np.float16)[row]), cp.asarray(points.astype(np.float16)[point])
        out = cp.empty((len(a), len(b)), cp.float32)
        form_product(a, b, out)
        products = out.get()
    own = row[:, None] == point
    pair, products = np.broadcast_to(row[:, None], own.shape)[own], products[own]
    return bool(((least[pair] <= products) & (products <= largest[pair])).all())


def product(rows: QuantizedPoints, points: QuantizedPoints) -> Array:
    """The tile of products of two sets, (rows, points) float32."""
    tile = cp.empty((len(rows.y), len(points.y)), cp.float32)
    form_product(rows.y, points.y, tile)
    return tile


def form_product(a: Array, b: Array, out: Array) -> None:
    """out = a @ b.T, of fp16 and in float32."""
    m, n, d = a.shape[0], b.shape[0], a.shape[1]
    check_arrays("float16", a, b)
    one, zero = np.float32(1).reshape(1), np.float32(0).reshape(1)
    half, single, compute, default = 2, 0, 68, -1  # CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
    cublas.gemmEx(
        cp.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, n, m, d,
        one.ctypes.data, b.data.ptr, half, d, a.data.ptr, half, d, zero.ctypes.data, out.data.ptr, single, n,
        compute, default,
    )  # fmt: skip


def quantize(values: Array, scaling: Scaling, order: Array = None) -> QuantizedPoints:
    """`values`, in the order of the rows `order` (default: as they are), rounded to fp16."""
    ids = cp.arange(len(values), dtype=cp.int32) if order is None else order
    image = quantize_rows(values, scaling, ids, ids.size)
    return QuantizedPoints(image.y.reshape(ids.size, -1), image.half_norm, image.error, ids)


def quantize_rows(values: Array, scaling: Scaling, rows: Array, padded: int, atoms: int = 0) -> QuantizedPoints:
    """The fp16 points of `rows` of `values`, filled up to `padded` rows.

    They are laid out row by row, or as an image of `atoms` atoms a row: see `fused/pass.cuh`.
    """
    check_arrays(values.dtype, values)
    check_arrays("float64", scaling.centre)
    check_arrays("int32", rows)
    d, m = values.shape[1], rows.size
    chunks = -(-d // 8)
    width = chunks * 8
    shrink = shrink_factor(width)
    y = cp.empty(padded * (64 * atoms or width), cp.float16)
    half_norm, error = cp.empty(padded, cp.float32), cp.empty(padded, cp.float32)
    launch_blocks(
        QUANTIZE, "quantize", (-(-padded // QUANTIZE_WARPS),), QUANTIZE_WARPS * WARP,
        values, np.int32(d), rows, np.int64(m), np.int64(padded), scaling.centre, np.float64(scaling.scale),
        np.float64(scaling.limit), np.float64(shrink / 2), np.float64(ROUND_UP),
        np.float64(TINY), np.int32(chunks), np.int32(atoms), y, half_norm, error,
        options=(value_option(values.dtype),),
    )  # fmt: skip
    return QuantizedPoints(y, half_norm, error)


def centre_of_rows(values: Array, step: int) -> Array:
    """See `rapids_slink.neighbors.filter.cpu.centre_of_rows`, by a median of means."""
    check_arrays(values.dtype, values)
    n, d = values.shape
    centre = cp.zeros(d)  # of means that are not numbers none is the median
    arguments, options = (values, np.int64(n), np.int32(d), np.int64(step), centre), (value_option(values.dtype),)
    launch_blocks(QUANTIZE, "centre_of_rows", (-(-d // WARP),), WARP * WARP, *arguments, options=options)
    return centre


def value_ranges(point_sets: Sequence[Array], centre: Array) -> list[ValueRange]:
    """The range of each array of points."""
    check_arrays("float64", centre)
    ranges = cp.zeros((len(point_sets), 3))
    for values, into in zip(point_sets, ranges, strict=True):
        check_arrays(values.dtype, values)
        n, d = values.shape
        blocks = min(-(-n // QUANTIZE_WARPS), 16 * multiprocessors())
        arguments, options = (values, np.int64(n), np.int32(d), centre, into), (value_option(values.dtype),)
        launch_blocks(QUANTIZE, "value_range", (blocks,), QUANTIZE_WARPS * WARP, *arguments, options=options)
    return [
        ValueRange(deviation, largest, byte_values=not other_numbers)
        for deviation, largest, other_numbers in ranges.tolist()
    ]


def to_uint8(values: Array, scaling: Scaling) -> Array:
    """The values as they are re-ranked fastest.

    Integers from 0 to 255 become bytes, rows padded with zeros to a multiple of 16; all else stays.
    """
    n, d = values.shape
    if not scaling.byte_values or d >= 2**16:
        return values
    padded = cp.zeros((n, -(-d // 16) * 16), cp.uint8)
    padded[:, :d] = values
    return padded


def seed_bounds(
    product: Array,
    queries: QuantizedPoints,
    points: QuantizedPoints,
    task: SearchTask,
    upper_bound: UpperBound,
    bound: Array,
) -> None:
    """See `rapids_slink.neighbors.filter.cpu.seed_bounds`."""
    (m, n), k = product.shape, task.k
    buckets = min(MAX_BUCKETS, power_of_two(max(WARP, 2 * k)))
    if k > buckets:
        raise ValueError(f"bounds for lists of {k} cannot be taken from {buckets} buckets")
    rows, ids, core = queries.ids, points.ids, task.core
    groups = task.groups(rows), task.point_group
    check_arrays("float64", bound, core)
    check_arrays("float32", product, queries.half_norm, queries.error, points.half_norm, points.error)
    check_arrays("int32", *groups, rows, ids)
    launch_blocks(
        FILTER, "seed_bounds", (m,), min(MAX_THREADS, buckets),
        product, np.int32(n), queries.half_norm, queries.error, points.half_norm, points.error, *groups, ids,
        np.int32(k), c_struct(*upper_bound.terms), rows, core, bound,
        options=(f"-DKEYS_PER_LANE={buckets // WARP}",),
    )  # fmt: skip

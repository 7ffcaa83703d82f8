"""A GPU's filters: points quantized, first bounds by cuBLAS, and the direct filter; the fused kernels are in `fused`.

A direct filter sums the formula itself, of points rounded to float32, in tiles of rows and points (`direct.cu`).
Let z be a row's features, scaled by a power of two so that |z| <= 1, and centred where only differences count; y is z
in float32. With u = 2⁻²⁴ a float32 sum of d terms that are not negative is off by less than a factor of 1 ± (d + 1)u.
The terms, and the tests that no pair with a surrogate distance up to w fails:

norms (manhattan, chebyshev, minkowski)
    ‖y_i - y_j‖ <= U + e_i + e_j by the triangle inequality, with e = Σ|z - y|, which is above every p-norm of z - y,
    and U the scaled norm that w stands for. Powers are tested as powers. A p-norm is not below a q-norm if q >= p: for
    exponents that are no multiple of a half, and for large ones, the filter takes the next that is.
canberra
    A term is at most 1, and rounding x and y moves it by less than 12u.
braycurtis
    Numerator a and denominator b are both off by at most e_i + e_j = q: a <= w(b + q) + q.
inner_product
    Off by at most (d + 4)2u‖z_i‖‖z_j‖.

Every bound is enlarged by more roundings than there are, and by `TINY`, which is above what underflow may take. A row
whose candidates all fit into its buffer, while its bound holds, is proven; the others are compared with all points
exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import frexp, isfinite
from typing import Any

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import cublas

from rapids_slink.metrics import EPSILON, OVERFLOW, WORD_BITS
from rapids_slink.neighbors.exact import Candidates, ExactPoints
from rapids_slink.neighbors.filter import (
    SEEDS_BY_DISTANCE,
    SMALLEST_NORMAL,
    QuantizedPoints,
    Scaling,
    TileFilter,
    UpperBound,
    ValueRange,
    allowed_range,
    filter_formula,
    revealing_pairs,
)
from rapids_slink.neighbors.filter.fused import (
    MAX_FEATURES,
    QUANTIZE,
    QUANTIZE_WARPS,
    fp16_keeps_bound,
    has_bit_products,
    has_products,
    quantize_rows,
)
from rapids_slink.neighbors.filter.fused.filter import MAX_BITS, CountFilter, FusedFilter
from rapids_slink.neighbors.task import SearchTask, row_blocks
from rapids_slink.runtime.cuda import (
    WARP,
    c_struct,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    multiprocessors,
    power_of_two,
    value_option,
)
from rapids_slink.runtime.device import Array, Device, cuda, current_gpu, to_host
from rapids_slink.runtime.memory import outside_pool

TILE_ROWS = 8192
TILE_POINTS = 8192

FILTER, DIRECT = "neighbors/filter/filter.cu", "neighbors/filter/direct.cu"
MAX_BUCKETS, MAX_THREADS = 2048, 1024
PROBED_ROWS, PROBED_POINTS, PROBED_FEATURES = 2**8, 2**11, 2**10  # sizes of the product that is tried
NORMS = ("manhattan", "chebyshev", "minkowski")
#: Its p-th power is above what float32 loses to underflow.
SMALLEST_TERM = 1e-30
MAX_DIRECT_FEATURES = 2**18  # so that d times float32's spacing stays small
UNIT = 2.0**-23  # 2u


def filter_of_products(
    points: Array, queries: Array, exact: ExactPoints, scaling: Scaling, within: float, listed: int
) -> TileFilter:
    """Return the filter of points and queries in product form.

    `within` is the largest distance that is wanted, and `listed` the length of full lists.
    """
    if exact.metric.formula == "squared_euclidean":
        values = to_uint8(points, scaling)
        exact = replace(exact, points=values, queries=values if queries is points else to_uint8(queries, scaling))
    return FusedFilter(points, queries, exact, cuda(), scaling, within=within, listed=listed)


def filter_of_sums(exact: ExactPoints) -> TileFilter | None:
    """Return the filter for bits or for metrics without a product form; None if these values or the GPU have none."""
    if exact.points.dtype == "uint64":
        is_served = has_bit_products() and WORD_BITS * exact.points.shape[1] <= MAX_BITS
        return CountFilter(exact, cuda()) if is_served else None
    return direct_filter(exact, cuda())


def fused_filter() -> Any:
    """Return the class of the fused filter; None on a GPU without its products."""
    return FusedFilter if has_products() else None


def serves(n_features: int) -> bool:
    """Return whether the current GPU has a product filter for this number of features."""
    return has_products() and (n_features <= MAX_FEATURES or fp16_keeps_bound())


def products_keep_bound() -> bool:
    """Return whether `product`, by cuBLAS on the current GPU, is as precise as `filter.accumulation_bound` says.

    It is tried once per process and GPU, in the shape of first bounds.
    """
    return _products_keep_bound(current_gpu())


@cache
def _products_keep_bound(_gpu: int) -> bool:
    rows, points = revealing_pairs(PROBED_FEATURES)
    least, largest = allowed_range(rows, points)
    row, point = np.resize(np.arange(len(rows)), PROBED_ROWS), np.resize(np.arange(len(rows)), PROBED_POINTS)
    with outside_pool(cuda()):  # since the pool may have a limit
        a, b = cp.asarray(rows.astype(np.float16)[row]), cp.asarray(points.astype(np.float16)[point])
        out = cp.empty((len(a), len(b)), cp.float32)
        form_product(a, b, out)
        products = out.get()
    own = row[:, None] == point
    pair, products = np.broadcast_to(row[:, None], own.shape)[own], products[own]
    return bool(((least[pair] <= products) & (products <= largest[pair])).all())


def product(rows: QuantizedPoints, points: QuantizedPoints) -> Array:
    """Return the tile of products of two sets, (rows, points) float32."""
    tile = cp.empty((len(rows.y), len(points.y)), cp.float32)
    form_product(rows.y, points.y, tile)
    return tile


def form_product(a: Array, b: Array, out: Array) -> None:
    """Put a @ b.T into `out`: the operands are fp16, the sums float32."""
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
    """Return the rows `order` of `values` (default: all rows), centred, scaled and rounded to fp16."""
    ids = cp.arange(len(values), dtype=cp.int32) if order is None else order
    image = quantize_rows(values, scaling, ids, ids.size)
    return QuantizedPoints(image.y.reshape(ids.size, -1), image.half_norm, image.error, ids)


def centre_of_rows(values: Array, step: int) -> Array:
    """Return a centre, (d,) float64, that outliers do not move: the median of means of every `step`-th row."""
    n, d = values.shape
    centre = cp.zeros(d)  # a coordinate stays 0 if its means are no numbers: then none of them is the median
    launch_blocks(
        QUANTIZE, "centre_of_rows", (-(-d // WARP),), WARP * WARP, values, n, d, step, centre,
        options=(value_option(values.dtype),),
    )  # fmt: skip
    return centre


def value_ranges(point_sets: Sequence[Array], centre: Array) -> list[ValueRange]:
    """Return the range of each array of points."""
    ranges = cp.zeros((len(point_sets), 3))
    for values, into in zip(point_sets, ranges, strict=True):
        n, d = values.shape
        blocks = min(-(-n // QUANTIZE_WARPS), 16 * multiprocessors())
        launch_blocks(
            QUANTIZE, "value_range", (blocks,), QUANTIZE_WARPS * WARP, values, n, d, centre, into,
            options=(value_option(values.dtype),),
        )  # fmt: skip
    return [
        ValueRange(deviation, largest, byte_values=not other_numbers)
        for deviation, largest, other_numbers in ranges.tolist()
    ]


def to_uint8(values: Array, scaling: Scaling) -> Array:
    """Return the values in the type that is re-ranked fastest.

    Integers from 0 to 255 become bytes, in rows that zeros fill up to a multiple of 16; other values stay as they are.
    """
    n, d = values.shape
    if not scaling.byte_values or d >= 2**16:
        return values
    padded = cp.empty((n, -(-d // 16) * 16), cp.uint8)
    options = (value_option(values.dtype),)
    launch(QUANTIZE, "put_bytes", padded.size, values, n, d, padded.shape[1], padded, options=options)
    return padded


def seed_bounds(
    product: Array,
    queries: QuantizedPoints,
    points: QuantizedPoints,
    task: SearchTask,
    upper_bound: UpperBound,
    bound: Array,
) -> None:
    """Tighten the bounds of a task's rows to an upper bound of the distance to each one's k-th nearest point.

    The bound, (m,) float64, is the k-th of the nearest points of other exclusion ids in some buckets. `product`,
    (m, n), is that of the rows with a sample of the points.
    """
    (m, n), k = product.shape, task.k
    buckets = min(MAX_BUCKETS, power_of_two(max(WARP, 2 * k)))
    if k > buckets:
        raise ValueError(f"bounds for lists of {k} cannot be taken from {buckets} buckets")
    rows = queries.ids
    launch_blocks(
        FILTER, "seed_bounds", (m,), min(MAX_THREADS, buckets), product, n, queries.half_norm, queries.error,
        points.half_norm, points.error, task.groups(rows), task.point_group, points.ids, k, c_struct(*upper_bound),
        rows, task.core, bound, options=(f"-DKEYS_PER_LANE={buckets // WARP}",),
    )  # fmt: skip


def direct_filter(exact: ExactPoints, device: Device) -> DirectFilter | None:
    """Return the direct filter for some points and queries; None if it cannot serve their formula or values."""
    formula, points, queries = filter_formula(exact.metric), exact.points, exact.queries
    if formula is None or points.shape[1] > MAX_DIRECT_FEATURES:
        return None
    centre = device.xp.zeros(points.shape[1])
    if formula[0] in NORMS:
        sample = to_host(points[:: max(1, points.shape[0] // 1024)])
        centre = device.asarray(np.median(sample, axis=0).astype("float64"))
    both = [points] if queries is points else [points, queries]
    ranges = value_ranges(both, centre)
    largest = max(one.deviation for one in ranges)
    if not isfinite(largest):
        return None
    scale = 2.0 ** -max(frexp(largest)[1], -500)
    return DirectFilter(exact, formula, centre, scale, device)


class DirectFilter(TileFilter):
    """The filter of metrics without a product form.

    `formula` is that of `filter_formula`, and z = scale·(x - centre), with a (d,) float64 centre.
    """

    name = "float32 terms"
    first_band, max_rows = 4 * SEEDS_BY_DISTANCE, TILE_ROWS

    def __init__(self, exact: ExactPoints, formula: tuple[str, int], centre: Any, scale: float, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact, device)
        self.centre, self.scale = centre, scale
        self.formula, self.halves = formula

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """Return the values of `order` (default: all), centred, scaled and rounded, with the tests' errors e_i."""
        xp, d = self.device.xp, self.n_features
        ids = xp.arange(len(values), dtype="int32") if order is None else order
        n = ids.size
        y, error = xp.empty((n, d), "float32"), xp.zeros(n)
        for rows in row_blocks(n, d):
            z = (values[ids[rows]].astype("float64") - self.centre) * self.scale
            y[rows] = z
            if self.formula in (*NORMS, "braycurtis"):
                moved = xp.abs(z - y[rows].astype("float64")).sum(axis=1) + d * SMALLEST_NORMAL
                error[rows] = moved * self._slack() + SMALLEST_TERM ** (2 / self.halves)
            elif self.formula == "inner_product":
                error[rows] = ((2 * d + 16) * UNIT) ** 0.5 * xp.sqrt((z * z).sum(axis=1)) + SMALLEST_TERM**0.5
        return QuantizedPoints(y, None, error.astype("float32"), ids)

    def radius(self, bound: Any, rows: QuantizedPoints) -> Any:
        """Return the thresholds of the tests, (m,) float32."""
        name, xp = self.formula, self.device.xp
        if name in NORMS:
            return (rows.error + self._norm_bound(bound) * (self.scale * self._slack())).astype("float32")
        if name == "canberra":
            return (bound * self._slack() + 16 * self.n_features * UNIT).astype("float32")
        if name == "inner_product":
            # The distance's products lose at most this to underflow; what else it rounds is in the errors.
            scaled = (bound + self.n_features * 5e-324) * self.scale * self.scale
            return (scaled + xp.abs(scaled) * (4 * UNIT) + SMALLEST_TERM).astype("float32")
        return ((bound + 5e-324) * self._slack()).astype("float32")

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        (m, d), n, (row_group, point_group) = rows.y.shape, points.y.shape[0], groups
        tile, threads = constant(DIRECT, "TILE"), constant(DIRECT, "THREADS")
        launch_blocks(
            DIRECT, "append_candidates", (-(-n // tile), -(-m // tile)), threads, rows.y, m, points.y, n, d, radius,
            rows.error, points.error, row_group, point_group, points.ids, into.capacity, into.ids, into.count,
            options=(f"-DFORMULA={self.formula}", f"-DHALVES={self.halves}"),
        )  # fmt: skip

    def _slack(self) -> float:
        return 1 + (3 * self.n_features + 16) * UNIT

    def _norm_bound(self, bound: Any) -> Any:
        """Return an upper bound of the true norm of pairs whose computed surrogate distance is at most `bound`.

        Its relative error is below (d + 4p)2⁻⁵³ except for powers that underflow, which is all that is left of the
        factor and of the summand under the root. `OVERFLOW` stands for any distance above it.
        """
        d, p = self.n_features, self.metric.p
        if not self.metric.formula.has_powers:
            return (bound + d * 5e-324) * (1 + (d + 8) * EPSILON)
        norm = (bound + d * 1e-300) ** (1 / p) * (1 + (d + 4 * p + 8) * EPSILON / p + 1e-12)
        return self.device.xp.where(bound < OVERFLOW, norm, np.inf)

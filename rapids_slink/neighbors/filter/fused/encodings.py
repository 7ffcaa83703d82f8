"""Points as the fused filter's images: fp16, or int8 after a rotation, on all features or on principal axes.

An int8 image holds y, the rounding of s·M(x - c), where M is linear and lengthens no vector by more than `stretch`:
‖M v‖ <= stretch·‖v‖. So a pair of points within U is within stretch·s·U in the image, and the test of `bounds` loses no
neighbour. M is a rotation, which spreads a row's values evenly over the features: then eight bits lose little.

A rotation orders the features anew, changes some signs and multiplies each 32 of them by a Hadamard matrix over √32,
twice. In float32 the differences w = x - c are rounded twice, and each of the two times five additions of a transform
once (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 24: an error of √32·5·2⁻²⁴ at most, relative
to the transform's length): M w is off by less than `ROTATION_ERROR`·‖M w‖. Integers that are bytes anyway are not
rotated, and nothing is lost. Small ones are scaled up to bytes, so that half a norm, rounded down, loses little.

Sums of fp16 serve on a GPU only if they keep the bound on their error: `fp16_keeps_bound` tries the kernel.
"""

from functools import cache, cached_property

import cupy as cp
import numpy as np

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.bounds import (
    ABSOLUTE_SLACK,
    ROUND_UP,
    SMALLEST_NORMAL,
    TINY,
    FilterCosts,
    Projection,
    QuantizedPoints,
    Scaling,
    Trial,
    UpperBound,
    shrink_factor,
    worthwhile_projection,
)
from rapids_slink.neighbors.filter.fused import (
    ATOM_STEPS,
    BLOCK_ROWS,
    STEP_BYTES,
    TILE,
    Destination,
    Products,
    Radii,
    append_survivors,
    is_hopper,
)
from rapids_slink.neighbors.task import BLOCK, equal_slices
from rapids_slink.runtime.cuda import WARP, check_arrays, launch_blocks, value_option, warps_that_fit
from rapids_slink.runtime.device import Array, Device, cuda, current_gpu
from rapids_slink.runtime.memory import outside_pool

QUANTIZE, QUANTIZE_WARPS = "neighbors/filter/quantize.cu", 2  # a block, of which each has a row
ATOM_BYTES = ATOM_STEPS * STEP_BYTES  # of a row
MIXED = 32  # features that a Hadamard matrix mixes
MIXES = 2
#: Above the relative error of a rotation: (2 + 2·5·√32)·2⁻²⁴ and terms of second order.
ROTATION_ERROR = 2.0**-18
#: Rows that the scale is found by. A row with values above `LARGEST` times their median of maxima is cut off: its error
#: is large.
SCALE_ROWS, LARGEST = 2**12, 4
#: Warps of a block that quantizes to int8, a row each; fewer where rows take much shared memory.
INT8_WARPS = 8
#: With more features, a row and its mix would not fit into shared memory.
MAX_FEATURES = 4096
#: Coordinates are worked out in at most this many parts: each takes some time on the host.
MAX_PARTS = 16

#: By Hopper's own instructions or not, read on an H100. A coordinate is rounded to a 25th of their root mean square.
COSTS = {
    hopper: FilterCosts(product, survivor=3e-10, byte=4e-13, rounding=1 / 25 / 12**0.5)
    for hopper, product in ((True, 1.0e-15), (False, 1.9e-15))
}
#: With more features fp16 takes less time whatever the number of points: see bench/NOTES.md.
MAX_INT8 = 1024
#: Seconds by which a product of one feature takes longer in fp16, and how many survivors of a Gaussian point it saves.
FP16_TIME, FP16_SURVIVORS = {True: 0.85e-15, False: 1.7e-15}, 200


def quantize_rows(values: Array, scaling: Scaling, rows: Array, padded: int, atoms: int = 0) -> QuantizedPoints:
    """The fp16 points of `rows` of `values`, filled up to `padded` rows.

    They are laid out row by row, or as an image of `atoms` atoms a row: see `pass.cuh`.
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


class Fp16:
    """The points as `quantize_rows` has them: float32 sums, which `bounds.accumulation_bound` bounds."""

    name = "fp16 tensor cores (fused)"
    sum_type = "float32"
    stretch = 1.0
    is_finest = True

    def __init__(self, n_features: int, scaling: Scaling) -> None:
        self.scaling, self.scale = scaling, scaling.scale
        self.norm_slack = UpperBound.of(n_features, scaling.scale, EUCLIDEAN).norm_slack
        self.steps = -(-n_features // 16)

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """The image of some rows, filled up to `size` rows."""
        return quantize_rows(values, self.scaling, rows, size, -(-self.steps // ATOM_STEPS))

    def missing(self, half_norm: Array) -> float:
        """The most that a half squared distance of rows with these half norms lacks."""
        return -2 * self.norm_slack * float(half_norm.min()) + ABSOLUTE_SLACK


class Int8:
    """Signed bytes, whose products are exact. `scaling` is the first scale; another one follows the rotation."""

    name = "int8 tensor cores (fused)"
    sum_type = "int32"

    def __init__(self, points: Array, scaling: Scaling) -> None:
        n, d = points.shape
        self.steps = -(-d // MIXED)
        self.width, self.atoms = self.steps * MIXED, -(-self.steps // ATOM_STEPS)
        self.rotates = not scaling.byte_values
        self.is_finest = not self.rotates
        self.centre = scaling.centre if self.rotates else cp.full(d, 2.0 ** (scaling.bits - 1))
        self.error = ROTATION_ERROR if self.rotates else 0.0
        self.stretch, self.lost = 1.0, 0.0  # beside what is relative
        self.first_scale, self.last_scale = (scaling.scale if self.rotates else 2.0 ** (8 - scaling.bits)), 1.0
        self.scale = self.first_scale
        if self.rotates:
            self.last_scale = self._scale_of(points, cp.arange(0, n, max(1, n // SCALE_ROWS), dtype=cp.int32))
            self.scale = self.first_scale * self.last_scale * MIXED
            self.lost = max(1.0, self.first_scale) * self.last_scale * MIXED * d**0.5 * SMALLEST_NORMAL

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """The image of some rows, filled up to `size` rows."""
        image = self._empty(size)
        self._launch(values, rows, rows.size, size, image)
        return image

    def missing(self, half_norm: Array) -> float:
        """The most that a half squared distance lacks: halves are rounded down."""
        return 1.0

    def _empty(self, size: int) -> QuantizedPoints:
        y = cp.empty(size * self.atoms * ATOM_BYTES, cp.int8)
        return QuantizedPoints(y, cp.empty(size, cp.int32), cp.empty(size, cp.float32))

    def _launch(
        self, values: Array, rows: Array, m: int, size: int, image: QuantizedPoints | None, z: Array = None
    ) -> None:
        """The image of m rows, or their z."""
        check_arrays(values.dtype, values)
        check_arrays("int32", rows)
        d = values.shape[1]
        outputs = (None, None, None) if image is None else (image.y, image.half_norm, image.error)
        buffers = 2 * 4 * self.width  # bytes of a row
        warps = warps_that_fit(INT8_WARPS, buffers)
        launch_blocks(
            QUANTIZE, "quantize_int8", (-(-size // warps),), warps * WARP,
            values, np.int32(d), rows, np.int64(m), np.int64(size), self.centre, np.float64(self.first_scale),
            np.float64(self.last_scale), np.int32(self.width), self._shuffles, np.float64(self.error),
            np.float64(self.lost), np.float64(ROUND_UP), np.float64(TINY),
            np.int32(self.atoms), *outputs, z, options=(value_option(values.dtype),), shared_memory=warps * buffers,
        )  # fmt: skip

    @cached_property
    def _shuffles(self) -> Array:
        """The order of the features before each transform; a feature whose sign changes is ~f."""
        if not self.rotates:
            return None
        rng = np.random.default_rng(0)
        shuffles = np.stack([rng.permutation(self.width) for _ in range(MIXES)])
        return cp.asarray(np.where(rng.random(shuffles.shape) < 0.5, ~shuffles, shuffles).astype(np.int32))

    def _scale_of(self, points: Array, sample: Array) -> float:
        """The scale that maps the sample's largest value, outliers aside, to 127."""
        z = cp.empty((sample.size, self.width), cp.float32)
        self._launch(points, sample, sample.size, sample.size, None, z)
        largest = abs(z).max(axis=1)
        top = float(cp.minimum(largest.max(), LARGEST * cp.median(largest))) or float(largest.max())
        return 127 / top if top > 0 else 1.0


class Projected(Int8):
    """Signed bytes of the coordinates of a projection."""

    def __init__(self, points: Array, projection: Projection) -> None:
        sample = projection.coordinates(points[:: max(1, len(points) // SCALE_ROWS)])
        super().__init__(sample, Scaling(cp.zeros(sample.shape[1]), 1.0))
        self.lost += projection.error * self.last_scale * MIXED
        self.scale *= projection.scaling.scale
        self.stretch, self.projection = projection.stretch, projection
        self.name = f"{Int8.name}, {sample.shape[1]} coordinates for {points.shape[1]} features"

    def missing(self, half_norm: Array) -> float:
        """A partial distance bounds no distance from above."""
        return float("inf")

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """The image of some rows, filled up to `size` rows."""
        image, tile_bytes = self._empty(size), self.atoms * ATOM_BYTES
        tiles = -(-max(BLOCK // values.shape[1], -(-size // MAX_PARTS)) // TILE)
        for part in equal_slices(slice(0, size), tiles * TILE):
            first, own = part.start, rows[part]
            rest = QuantizedPoints(image.y[first * tile_bytes :], image.half_norm[first:], image.error[first:])
            self._launch(self.projection.coordinates(values[own]), None, own.size, part.stop - first, rest)
        return image


def cheapest(points: Array, n_queries: int, scaling: Scaling, device: Device, within: float) -> Fp16 | Int8:
    """The encoding with which the queries take the least time.

    fp16 takes longer for the products, by `FP16_TIME` for each, and leaves fewer survivors: of Gaussian points
    `FP16_SURVIVORS` fewer a query, and more with many features, since distances then differ by less than eight bits
    move a point. Bytes are exact in int8, and only int8 serves where sums of fp16 are not precise.
    """
    (n, d), cost = points.shape, COSTS[is_hopper()]
    projection = worthwhile_projection(points, n_queries, scaling, cost, device, within)
    if projection:
        return Projected(points, projection)
    saves_time = n * d * FP16_TIME[is_hopper()] > FP16_SURVIVORS * cost.survivor and d <= MAX_INT8
    if scaling.byte_values or saves_time or not fp16_keeps_bound():
        return Int8(points, scaling)
    return Fp16(d, scaling)


TRIED_FEATURES, TRIED_STEPS = 2**10, 2**6  # of the rows that are tried, and the instructions that they take


def fp16_keeps_bound() -> bool:
    """Whether the kernel's sums of fp16 products are as precise as `bounds.accumulation_bound` says.

    It is tried once per process and GPU. The sums of int8 and of bits are exact and need no trial.
    """
    return _fp16_keeps_bound(is_hopper(), current_gpu())


@cache
def _fp16_keeps_bound(_hopper: bool, _gpu: int) -> bool:
    trial = Trial(TRIED_FEATURES)
    m, n = len(trial.rows), len(trial.points)
    with outside_pool(cuda()):  # which may have a limit
        rows, points = (_image(part) for part in (trial.rows, trial.points))
        rows = QuantizedPoints(rows.y, cp.asarray(-trial.padded_thresholds(BLOCK_ROWS)), rows.error)
        points = QuantizedPoints(points.y, cp.zeros(BLOCK_ROWS, cp.float32), points.error)
        none = Radii(cp.zeros(BLOCK_ROWS, cp.float32), cp.zeros(BLOCK_ROWS // TILE, cp.float32))
        candidates = Candidates(cp.empty((m, n), cp.int32), cp.zeros(m, cp.int32))
        into = Destination(candidates, cp.zeros(1, cp.int32))
        append_survivors(Products(rows, 1, 1, (0, 1), n), points, TRIED_STEPS, none, none.of_tile, into)
        return trial.is_passed(candidates.ids.get(), candidates.count.get())


def _image(values: np.ndarray) -> QuantizedPoints:
    """The image of a block of rows that fp16 holds."""
    scaling, ids = Scaling(cp.zeros(TRIED_FEATURES), 1.0), cp.arange(len(values), dtype=cp.int32)
    return quantize_rows(cp.asarray(values), scaling, ids, BLOCK_ROWS, TRIED_STEPS // ATOM_STEPS)

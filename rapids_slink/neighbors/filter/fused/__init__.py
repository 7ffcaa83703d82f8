"""The fused product filter: products are tested in registers by a GPU's tensor cores and never written.

Here are the arguments of the kernel, the body that suits the GPU, and points as it reads them.

- filter.py: the filters of products and of bits, and groups of rows that have filters of their own
- pass.cuh: what the kernel's two bodies share (image.cuh, tile_test.cuh, survivors.cuh); wgmma.cu (wgmma.cuh,
  ring.cuh) is for Hopper, mma.cu (mma.cuh, ../tensor_cores.cuh) for all others
- tighten.cu: bounds from what passed

Points are images of fp16, or of int8 after a rotation, on all features or on principal axes.

An int8 image holds y, the rounding of s·M(x - c), where M is linear and lengthens no vector by more than `stretch`:
‖M v‖ <= stretch·‖v‖. So a pair of points within U is within stretch·s·U in the image, and the test of `filter` loses no
neighbour. M is a rotation, which spreads a row's values evenly over the features: then eight bits lose little.

A rotation orders the features anew, changes some signs and multiplies each 32 of them by a Hadamard matrix over √32,
twice. In float32 the differences w = x - c are rounded twice, and each of the two times five additions of a transform
once (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 24: an error of √32·5·2⁻²⁴ at most, relative
to the transform's length): M w is off by less than `ROTATION_ERROR`·‖M w‖. Integers that are bytes anyway are not
rotated, and nothing is lost. Small ones are scaled up to bytes, so that half a norm, rounded down, loses little.

Sums of fp16 serve on a GPU only if they keep the bound on their error: `fp16_keeps_bound` tries the kernel.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import cupy as cp
import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.choose import COSTS, int8_saves_time, worthwhile_projection
from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter import (
    ABSOLUTE_SLACK,
    ROUND_UP,
    SMALLEST_NORMAL,
    TINY,
    PrincipalAxes,
    QuantizedPoints,
    Scaling,
    Trial,
    UpperBound,
    shrink_factor,
    sure_radius,
)
from rapids_slink.neighbors.task import BLOCK_VALUES, equal_slices
from rapids_slink.runtime.cuda import (
    WARP,
    c_struct,
    capability,
    check_arrays,
    constant,
    cuda_kernel,
    launch,
    launch_blocks,
    multiprocessors,
    power_of_two,
    value_option,
    warps_that_fit,
)
from rapids_slink.runtime.device import Array, Device, cuda, current_gpu
from rapids_slink.runtime.memory import outside_pool

MMA, WGMMA, COUNTS, TIGHTEN = (f"neighbors/filter/fused/{name}.cu" for name in ("mma", "wgmma", "counts", "tighten"))
BLOCK_ROWS, TILE = constant(MMA, "ROWS"), constant(MMA, "COLUMNS")  # rows of a work item, points of a tile
ATOM_STEPS, STEP_BYTES = 4, 32  # tensor core instructions that an atom of features takes, and a row's bytes in each
PIECE_BYTES, NORM_BYTES = constant(MMA, "PIECE_BYTES"), 4 * TILE  # bytes of a tile's rows in an atom, and half norms
#: Stages of wgmma.cu by the number of atoms that stay in shared memory: with more none stays.
WGMMA_STAGES = 4, 8, 8, 6, 5, 8, 7, 6, 5
WGMMA_WARPS, QUEUE_BYTES = constant(WGMMA, "WARPS"), 8 * constant(MMA, "QUEUE")  # that test; a warp's survivors
RESERVED_BYTES = 1024  # CUDA reserves these bytes of shared memory for each block
#: Warps of a block of mma.cu, its stages, and blocks of a multiprocessor: the first that fits is taken. The last fits
#: into Turing's 64 KiB. Copies are not asynchronous there, so a second stage would hide little.
MMA_SHAPES = (4, 3, 2), (4, 2, 2), (8, 3, 1), (8, 2, 1), (4, 2, 1), (8, 1, 1)
MIN_CAPABILITY, MIN_BITS_CAPABILITY, HOPPER = 75, 80, 90
#: Work items per multiprocessor, for load balancing; the least and the most tiles of an item.
WORK_ITEMS_PER_SM, MIN_ITEM_TILES, MAX_ITEM_TILES = 24, 8, (1 << constant(MMA, "COLUMN_BITS")) // TILE


def is_hopper() -> bool:
    """Return whether the current GPU is a Hopper (9.0), whose instructions no other has."""
    return capability() == HOPPER


def has_products() -> bool:
    """Return whether the current GPU has tensor cores for bytes."""
    return capability() >= MIN_CAPABILITY


def has_bit_products() -> bool:
    """Return whether the current GPU has tensor cores that count common bits."""
    return capability() >= MIN_BITS_CAPABILITY


@dataclass(frozen=True)
class Radii:
    """The filter radii, float32: `by_row` (padded,), and `by_tile`, the largest of each `TILE`.

    For bits they are the lines of `counts.cu`: (padded, 2), and the largest slope and intercept of each tile.
    """

    by_row: Array
    by_tile: Array


@dataclass(frozen=True)
class Survivors(Candidates):
    """Candidates collected over the slices of a symmetric pass."""

    #: (rows, capacity) float32 or int32: half of each one's squared distance as the converse in `filter` has it
    half_sq_dist: Array = None


@dataclass(frozen=True)
class Destination:
    """Where survivors go."""

    candidates: Candidates
    next_item: Array  # int: the work item that the next block takes, less the number of blocks; 0 at first
    row_group: Array = None  # int32, exclusion ids by position; between components the rows' components
    point_group: Array = None  # the same for the points; between components the order
    thresholds: Array = None  # float32, between components: what is added to the rows' radii, by component pair
    pair_numbers: Array = None  # (K, K) int32, for tiles of several components: the numbers of the components' pairs
    once: bool = False  # whether a pair of positions comes once
    counts_sure: bool = False  # whether pairs surely within are counted, after the number of pairs


class LocalTerms(NamedTuple):
    """The terms by which products of rows and points of several cells are tested; see `tiles`."""

    tiles: Array  # int32, lists of tiles of points
    row_cell: Array  # (tiles of rows,) int32
    point_cell: Array  # (tiles,) int32
    begins: Array  # (cells of rows, points) float32
    thresholds: Array  # (cells of points, rows) float32


def append_survivors(
    rows: QuantizedPoints,
    items: Array,
    n_points: int,
    image: QuantizedPoints,
    steps: int,
    radii: Radii | None,
    tile_error: Array,
    into: Destination,
    local: LocalTerms | None = None,
) -> None:
    """Form the products of some rows with tiles of an image, and append the pairs that pass.

    The rows are an image, `items`, (m, 4) int32, the work items of pass.cuh, and points from `n_points` on padding.
    A row's features take a number of tensor core instructions, `steps`. The `radii` are the rows', and `tile_error`,
    (tiles,) float32, has the largest error of each tile of the image. Every pair is tested for both its points if it
    goes into `Survivors`. Between cells `local` has the items' tiles, and what takes the place of radii and half norms.
    """
    survivors = into.candidates
    half_sq_dist = getattr(survivors, "half_sq_dist", None)
    half_sq_bits, count, next_item = (  # the bits of numbers that are no int32, as the kernel reads them
        part if part is None or part.dtype == cp.int32 else part.view(cp.uint32)
        for part in (half_sq_dist, survivors.count, into.next_item)
    )
    radii = radii or Radii(None, None)
    check_arrays(image.y.dtype, image.y, rows.y)  # the kernel reads these as bytes
    if local is None:
        check_arrays(image.half_norm.dtype, image.half_norm, rows.half_norm, half_sq_dist)
        check_arrays("float32", radii.by_row, radii.by_tile)
        if len(radii.by_row) != rows.half_norm.size:
            raise ValueError(f"{rows.half_norm.size} rows, of which {len(radii.by_row)} have a radius")
    else:
        check_arrays("int32", local.tiles, local.row_cell, local.point_cell)
        check_arrays("float32", local.begins, local.thresholds)
    types = image.half_norm is not None and image.half_norm.dtype == cp.int32, image.y.dtype == cp.uint8
    kind = half_sq_dist is not None, into.thresholds is not None, local is not None, into.counts_sure, *types
    body = _compiled(steps, kind, is_hopper(), current_gpu())
    table = into.pair_numbers
    numbers_at, columns = (np.uint64(0), int(into.once)) if table is None else (np.uint64(table.data.ptr), len(table))
    addresses = [np.uint64(0)] * 5 if local is None else [np.uint64(part.data.ptr) for part in local]
    sizes = (0, 0) if local is None else (local.thresholds.shape[1], local.begins.shape[1])
    grid = (min(len(items) * (BLOCK_ROWS // body.rows), body.blocks * multiprocessors()),)
    launch_blocks(
        body.source, "append_survivors", grid, body.threads, rows.y, image.y, image.half_norm, -(-steps // ATOM_STEPS),
        items, len(items), n_points, rows.half_norm, radii.by_row, radii.by_tile, tile_error,
        into.row_group, into.point_group, survivors.capacity, survivors.ids, half_sq_bits, count, next_item,
        into.thresholds, c_struct(numbers_at, columns),
        c_struct(*addresses, *map(np.int64, sizes)), options=body.options, shared_memory=body.shared,
    )  # fmt: skip


def work_items(blocks: int, first: int, last: int, begin: int = 0, n: int = 0) -> Array:
    """Return work items of blocks of rows with a range of tiles, (m, 4) int32; see `list_items` in tighten.cu.

    Some blocks have several times the work of others, since in an order by bounds points that are near to many come
    together. There are enough items to balance that: each goes to the multiprocessor that is ready first.
    """
    tiles = last - first
    by_work = min(tiles // MIN_ITEM_TILES, -(-WORK_ITEMS_PER_SM * multiprocessors() // max(1, blocks)))
    splits = max(1, -(-tiles // MAX_ITEM_TILES), by_work)
    items = cp.empty((blocks * splits, 4), cp.int32)
    launch(TIGHTEN, "list_items", len(items), len(items), splits, first, last, begin, n, items)
    return items


MOST_UNIT = 2.0**100  # the largest unit in float32
FLUSHED = 3 * 2.0**-126  # what float32 loses of a difference at most, since it has no denormal numbers here


def square_bound(points: Array, unit: float, metric: Metric) -> np.void:
    """Return the `SquareBound` of measured.cuh, where points' differences are multiplied by a power of two, `unit`."""
    more, factor, error = metric.surrogate_bound_terms(points.shape[1])
    if points.dtype == "float32":
        unit = min(max(unit, 1 / MOST_UNIT), MOST_UNIT)
        more += FLUSHED * points.shape[1] ** 0.5
    return c_struct(unit, 1 / unit, more, factor, error)


def padded(n: int, size: int) -> int:
    """Return n, rounded up to a multiple of `size`."""
    return -(-n // size) * size


@dataclass(frozen=True)
class _Body:
    """A kernel: rows and threads of a block, blocks of a multiprocessor, and a block's bytes of shared memory."""

    source: str
    options: tuple[str, ...]
    rows: int
    threads: int
    blocks: int
    shared: int


@cache
def _compiled(steps: int, kind: tuple[bool, ...], hopper: bool, gpu: int) -> _Body:
    body = _body(steps, kind, hopper, gpu)
    cuda_kernel(body.source, "append_survivors", body.options).max_dynamic_shared_size_bytes = body.shared
    return body


def source_of(
    steps: int, symmetric: bool = False, between: bool = False, local: bool = False, int8: bool = False
) -> tuple[str, ...]:
    """Return the source and the options of the body that serves rows of `steps` instructions on the current GPU."""
    body = _body(steps, (symmetric, between, local, False, int8, False), is_hopper(), current_gpu())
    return body.source, *body.options


def _body(steps: int, kind: tuple[bool, ...], hopper: bool, gpu: int) -> _Body:
    atoms, is_local = -(-steps // ATOM_STEPS), kind[2]
    names = "RESIDENT_ATOMS", "LAST_STEPS", "SYMMETRIC", "BETWEEN_COMPONENTS", "LOCAL", "COUNT", "INT8", "BITS"
    more: tuple[str, ...]
    if hopper:
        resident = atoms if atoms < len(WGMMA_STAGES) else 0
        stages, rows = WGMMA_STAGES[resident], TILE if resident > 4 else BLOCK_ROWS
        pieces = rows // TILE * resident * (2 if resident == 1 else 1) + (1 if resident else 3) * stages
        shared = pieces * PIECE_BYTES + stages * (NORM_BYTES + 4 * rows * is_local) + WGMMA_WARPS * QUEUE_BYTES
        source, threads, blocks, more = WGMMA, constant(WGMMA, "THREADS"), 1, ("-arch=sm_90a", f"-DSTAGES={stages}")
    else:
        resident = int(atoms == 1)
        warps, stages, blocks = _shape(resident, gpu)
        shared = _mma_bytes(resident, warps, stages)
        rows = threads = 32 * warps
        source, more = MMA, (f"-DWARPS={warps}", f"-DSTAGES={stages}")
    values = resident, steps - (atoms - 1) * ATOM_STEPS, *kind
    options = (*more, *(f"-D{name}={int(value)}" for name, value in zip(names, values, strict=True)))
    return _Body(source, options, rows, threads, blocks, shared)


def _mma_bytes(resident: int, warps: int, stages: int) -> int:
    """Return the bytes of shared memory that a block takes, without its queues."""
    tiles = warps * 32 // TILE
    return resident * tiles * PIECE_BYTES + stages * ((1 if resident else 1 + tiles) * PIECE_BYTES + NORM_BYTES)


def _shape(resident: int, gpu: int) -> tuple[int, int, int]:
    """Return the first of `MMA_SHAPES` that fits the GPU; raise RuntimeError if none fits."""
    attributes = cp.cuda.Device(gpu).attributes
    for warps, stages, blocks in MMA_SHAPES:
        block = _mma_bytes(resident, warps, stages) + warps * QUEUE_BYTES + RESERVED_BYTES
        fits = blocks * block <= attributes["MaxSharedMemoryPerMultiprocessor"]
        if fits and block <= attributes["MaxSharedMemoryPerBlockOptin"]:
            return warps, stages, blocks
    raise RuntimeError(f"the fused filter needs {block} bytes of shared memory a block, more than this GPU has")


QUANTIZE, QUANTIZE_WARPS = "neighbors/filter/quantize.cu", 2  # warps of a block
ATOM_BYTES = ATOM_STEPS * STEP_BYTES  # bytes of a row in an atom
MIXED = 32  # features that a Hadamard matrix mixes
MIXES = 2
#: Above the relative error of a rotation: (2 + 2·5·√32)·2⁻²⁴ and terms of second order.
ROTATION_ERROR = 2.0**-18
#: The scale is found by `SCALE_ROWS` rows. A row is cut off, and has a large error, if its largest value is above
#: `LARGEST` times the median of these rows' largest values.
SCALE_ROWS, LARGEST = 2**12, 4
#: Warps of a block that quantizes to int8, a row each; fewer where rows take much shared memory.
INT8_WARPS = 8
#: With more features, a row and its mix would not fit into shared memory.
MAX_FEATURES = 4096
#: Coordinates are worked out in at most this many parts: each takes some time on the host.
MAX_PARTS = 16

#: With more features fp16 takes less time whatever the number of points: see bench/NOTES.md.
MAX_INT8 = 1024
#: The factor by which a listed neighbour counts more for queries that are other rows: see bench/NOTES.md.
FP16_QUERIES = 16


def quantize_rows(values: Array, scaling: Scaling, rows: Array, padded: int, atoms: int = 0) -> QuantizedPoints:
    """Return the fp16 points of `rows` of `values`, filled up to `padded` rows.

    They are laid out row by row, or as an image of `atoms` atoms a row: see `pass.cuh`.
    """
    d, m = values.shape[1], rows.size
    chunks = -(-d // 8)
    width = chunks * 8
    shrink = shrink_factor(width)
    y = cp.empty(padded * (64 * atoms or width), cp.float16)
    half_norm, error = cp.empty(padded, cp.float32), cp.empty(padded, cp.float32)
    lanes = min(WARP, power_of_two(8 * atoms or chunks))
    launch_blocks(
        QUANTIZE, "quantize", (-(-padded * lanes // (QUANTIZE_WARPS * WARP)),), QUANTIZE_WARPS * WARP, values, d, rows,
        m, padded, scaling.centre, scaling.scale, None, None, None, shrink / 2, ROUND_UP, TINY, chunks, atoms, lanes,
        False, False, y, half_norm, error, options=(value_option(values.dtype),),
    )  # fmt: skip
    return QuantizedPoints(y, half_norm, error)


class Fp16:
    """The points as `quantize_rows` has them: float32 sums, which `filter.accumulation_bound` bounds."""

    name = "fp16 tensor cores (fused)"
    sum_type = "float32"
    stretch = 1.0
    is_finest = True

    def __init__(self, n_features: int, scaling: Scaling) -> None:
        self.scaling, self.scale = scaling, scaling.scale
        self.norm_slack = UpperBound.of(n_features, scaling.scale, EUCLIDEAN).norm_slack
        self.steps = -(-n_features // 16)

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """Return the image of some rows, filled up to `size` rows."""
        return quantize_rows(values, self.scaling, rows, size, -(-self.steps // ATOM_STEPS))

    def sure_terms(self, n_features: int, limit: float, metric: Metric) -> tuple[float, float, float]:
        """Return the radius, the norms' slack and the absolute slack of the test that a pair is surely within.

        See `filter.sure_radius`.
        """
        radius, norm_slack = sure_radius(limit, n_features, self.scale, metric)
        return float(radius), float(norm_slack), ABSOLUTE_SLACK

    def missing(self, half_norm: Array) -> float:
        """Return the most that half a squared distance lacks, if it is computed from rows with these half norms."""
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
        self.stretch, self.lost = 1.0, 0.0  # `lost` is added to the relative error
        self.first_scale, self.last_scale = (scaling.scale if self.rotates else 2.0 ** (8 - scaling.bits)), 1.0
        self.scale = self.first_scale
        if self.rotates:
            self.last_scale = self._scale_of(points, cp.arange(0, n, max(1, n // SCALE_ROWS), dtype=cp.int32))
            self.scale = self.first_scale * self.last_scale * MIXED
            self.lost = max(1.0, self.first_scale) * self.last_scale * MIXED * d**0.5 * SMALLEST_NORMAL

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """Return the image of some rows, filled up to `size` rows."""
        image = self._empty(size)
        self._launch(values, rows, rows.size, size, image)
        return image

    def sure_terms(self, n_features: int, limit: float, metric: Metric) -> tuple[float, float, float]:
        """Return the terms of `Fp16.sure_terms`: sums are exact, and halves are rounded down."""
        return float(sure_radius(limit, n_features, self.scale, metric)[0]), 0.0, 2.0

    def missing(self, half_norm: Array) -> float:
        """Return how much a computed half of a squared distance may lack, because halves are rounded down."""
        return 1.0

    def _empty(self, size: int) -> QuantizedPoints:
        y = cp.empty(size * self.atoms * ATOM_BYTES, cp.int8)
        return QuantizedPoints(y, cp.empty(size, cp.int32), cp.empty(size, cp.float32))

    def _launch(
        self, values: Array, rows: Array, m: int, size: int, image: QuantizedPoints | None, z: Array = None
    ) -> None:
        """Write the image of m rows, filled up to `size` rows, or their z, (m, width) float32, if `image` is None."""
        d = values.shape[1]
        y, half_norm, error = (
            (None, None, None) if image is None else (image.y.view(cp.uint32), image.half_norm, image.error)
        )
        buffers = 2 * 4 * self.width  # bytes of a row
        warps = warps_that_fit(INT8_WARPS, buffers)
        launch_blocks(
            QUANTIZE, "quantize_int8", (-(-size // warps),), warps * WARP, values, d, rows, m, size, self.centre,
            self.first_scale, self.last_scale, self.width, self._shuffles, self.error, self.lost, ROUND_UP, TINY,
            self.atoms, y, half_norm, error, z, options=(value_option(values.dtype),), shared_memory=warps * buffers,
        )  # fmt: skip

    @cached_property
    def _shuffles(self) -> Array:
        """Return the order of the features before each transform, (`MIXES`, width) int32; None without a rotation.

        A feature f whose sign changes is ~f.
        """
        if not self.rotates:
            return None
        rng = np.random.default_rng(0)
        shuffles = np.stack([rng.permutation(self.width) for _ in range(MIXES)])
        return cp.asarray(np.where(rng.random(shuffles.shape) < 0.5, ~shuffles, shuffles).astype(np.int32))

    def _scale_of(self, points: Array, sample: Array) -> float:
        """Return the scale that maps the sample's largest value, except outliers, to 127."""
        z = cp.empty((sample.size, self.width), cp.float32)
        self._launch(points, sample, sample.size, sample.size, None, z)
        largest = abs(z).max(axis=1).get()
        top = float(min(largest.max(), LARGEST * np.median(largest)) or largest.max())
        return 127 / top if top > 0 else 1.0


class Projected(Int8):
    """Signed bytes of the coordinates of a projection."""

    def __init__(self, points: Array, projection: PrincipalAxes) -> None:
        sample = projection.coordinates(points[:: max(1, len(points) // SCALE_ROWS)])
        super().__init__(sample, Scaling(cp.zeros(sample.shape[1]), 1.0))
        self.lost += projection.error * self.last_scale * MIXED
        self.scale *= projection.scaling.scale
        self.stretch, self.projection = projection.stretch, projection
        self.name = f"{Int8.name}, {sample.shape[1]} coordinates for {points.shape[1]} features"

    def sure_terms(self, n_features: int, limit: float, metric: Metric) -> tuple[float, float, float]:
        """Return terms that make no pair sure: a partial distance bounds no distance from above."""
        return -1.0, 0.0, 0.0

    def missing(self, half_norm: Array) -> float:
        """Return infinity: a partial distance bounds no distance from above."""
        return float("inf")

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """Return the image of some rows, filled up to `size` rows."""
        image, tile_bytes = self._empty(size), self.atoms * ATOM_BYTES
        tiles = -(-max(BLOCK_VALUES // values.shape[1], -(-size // MAX_PARTS)) // TILE)
        for part in equal_slices(slice(0, size), tiles * TILE):
            first, own = part.start, rows[part]
            rest = QuantizedPoints(image.y[first * tile_bytes :], image.half_norm[first:], image.error[first:])
            self._launch(self.projection.coordinates(values[own]), None, own.size, part.stop - first, rest)
        return image


def cheapest(
    points: Array, n_queries: int, scaling: Scaling, device: Device, within: float, listed: int
) -> Fp16 | Int8:
    """Return the encoding with which the queries take the least time.

    Bytes are exact in int8, and only int8 serves where sums of fp16 are not precise.
    """
    (n, d), cost = points.shape, COSTS["cuda" if is_hopper() else "mma.sync"]
    projection = worthwhile_projection(points, n_queries, scaling, cost, device, within)
    if projection:
        return Projected(points, projection)
    wanted = forced().filter
    saves_time = wanted == "int8" if wanted in ("int8", "fp16") else int8_saves_time(n, d, listed, cost)
    saves_time = saves_time and d <= MAX_INT8
    if scaling.byte_values or saves_time or not fp16_keeps_bound():
        return Int8(points, scaling)
    return Fp16(d, scaling)


TRIED_FEATURES, TRIED_STEPS = 2**10, 2**6  # features of the rows that are tried, and their instructions


def fp16_keeps_bound() -> bool:
    """Return whether the kernel's sums of fp16 products are as precise as `filter.accumulation_bound` says.

    The kernel is tried once per process and GPU. The sums of int8 and of bits are exact and need no trial.
    """
    return _fp16_keeps_bound(is_hopper(), current_gpu())


@cache
def _fp16_keeps_bound(_hopper: bool, _gpu: int) -> bool:
    trial = Trial(TRIED_FEATURES)
    m, n = len(trial.rows), len(trial.points)
    with outside_pool(cuda()):  # since the pool may have a limit
        scaling, atoms = Scaling(cp.zeros(TRIED_FEATURES), 1.0), TRIED_STEPS // ATOM_STEPS
        rows, points = (
            quantize_rows(cp.asarray(part), scaling, cp.arange(len(part), dtype=cp.int32), BLOCK_ROWS, atoms)
            for part in (trial.rows, trial.points)
        )
        rows = QuantizedPoints(rows.y, cp.asarray(-trial.padded_thresholds(BLOCK_ROWS)), rows.error)
        points = QuantizedPoints(points.y, cp.zeros(BLOCK_ROWS, cp.float32), points.error)
        none = Radii(cp.zeros(BLOCK_ROWS, cp.float32), cp.zeros(BLOCK_ROWS // TILE, cp.float32))
        candidates = Candidates(cp.empty((m, n), cp.int32), cp.zeros(m, cp.int32))
        into = Destination(candidates, cp.zeros(1, cp.int32))
        item = cp.asarray([[0, 0, 1, 0]], cp.int32)
        append_survivors(rows, item, n, points, TRIED_STEPS, none, none.by_tile, into)
        return trial.is_passed(candidates.ids.get(), candidates.count.get())

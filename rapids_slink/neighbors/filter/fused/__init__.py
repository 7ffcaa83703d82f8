"""The fused product filter: products are tested in registers by a GPU's tensor cores and never written.

Here are the arguments of the kernel, and the body that suits the GPU.

- filter.py: the filters of products and of bits, and groups of rows that have filters of their own
- encodings.py: points as they read them, the errors of these, and whether fp16 sums keep the bound on their error
- pass.cuh: what the kernel's two bodies share (image.cuh, tile_test.cuh, survivors.cuh); wgmma.cu (wgmma.cuh,
  ring.cuh) is for Hopper, mma.cu (mma.cuh, ../tensor_cores.cuh) for all others
- tighten.cu: bounds from what passed
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.bounds import QuantizedPoints
from rapids_slink.runtime.cuda import (
    NULL,
    c_struct,
    capability,
    check_arrays,
    constant,
    cuda_kernel,
    multiprocessors,
)
from rapids_slink.runtime.device import Array, current_gpu

FUSED = "neighbors/filter/fused/"
MMA, WGMMA = FUSED + "mma.cu", FUSED + "wgmma.cu"
BLOCK_ROWS, TILE = constant(MMA, "ROWS"), constant(MMA, "COLUMNS")  # rows of a work item, points of a tile
ATOM_STEPS, STEP_BYTES = 4, 32  # tensor core instructions that an atom of features takes, and a row's bytes in each
PIECE_BYTES, NORM_BYTES = constant(MMA, "PIECE_BYTES"), 4 * TILE  # of a tile's rows of one atom; of half norms
#: Stages of wgmma.cu by the number of atoms that stay in shared memory: with more none stays.
WGMMA_STAGES = 4, 8, 8, 6, 5, 8, 7, 6, 5
WGMMA_WARPS, QUEUE_BYTES = constant(WGMMA, "WARPS"), 8 * constant(MMA, "QUEUE")  # that test; a warp's survivors
RESERVED_BYTES = 1024  # of shared memory, by CUDA for each block
#: Warps of a block of mma.cu, its stages, and blocks of a multiprocessor: the first that fits is taken. The last fits
#: into Turing's 64 KiB. Copies are not asynchronous there, so a second stage would hide little.
MMA_SHAPES = (4, 3, 2), (4, 2, 2), (8, 3, 1), (8, 2, 1), (4, 2, 1), (8, 1, 1)
MIN_CAPABILITY, MIN_BITS_CAPABILITY, HOPPER = 75, 80, 90
#: Work items per multiprocessor, for load balancing; the least and the most tiles of an item.
WORK_ITEMS_PER_SM, MIN_ITEM_TILES, MAX_ITEM_TILES = 24, 8, (1 << constant(MMA, "COLUMN_BITS")) // TILE


def is_hopper() -> bool:
    """Whether the current GPU has Hopper's own instructions."""
    return capability() == HOPPER


def has_products() -> bool:
    """Whether the current GPU has tensor cores for bytes."""
    return capability() >= MIN_CAPABILITY


def has_bit_products() -> bool:
    """Whether the current GPU has tensor cores that count common bits."""
    return capability() >= MIN_BITS_CAPABILITY


@dataclass(frozen=True)
class Radii:
    """The filter radii, float32: `of_row` (padded,), and `of_tile`, the largest of each `TILE`.

    Of bits the lines of `counts.cu`: (padded, 2), and the largest slope and intercept of each tile.
    """

    of_row: Array
    of_tile: Array


@dataclass(frozen=True)
class Survivors(Candidates):
    """Candidates collected over the slices of a symmetric pass."""

    #: (rows, capacity) float32 or int32: half of each one's squared distance as the converse in `bounds` has it
    half_sq_dist: Array = None


@dataclass(frozen=True)
class Products:
    """Which products a launch forms."""

    rows: QuantizedPoints  # an image
    blocks: int  # of rows, or given work items
    splits: int  # into how many items each is divided
    #: the first tile of points and the one after the last; in a symmetric pass counted from the block's own
    tiles: tuple[int, int]
    n_points: int  # points after these are padding
    #: in a symmetric pass, the first tile that a block's own number is counted from, and the number of tiles
    among: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Destination:
    """Where survivors go."""

    candidates: Candidates
    next_item: Array  # int: the work item that the next block takes, less the number of blocks; 0 at first
    row_group: Array = None  # int32, by position: pairs of one group are left out
    point_group: Array = None  # the same of the points; between components the order
    items: Array = None  # (m, 4) int32: between components, the work items
    thresholds: Array = None  # float32: what is added to the rows' radii, by component pair


class LocalTerms(NamedTuple):
    """The terms by which products of rows and points of several cells are tested; see `tiles`."""

    tiles: Array  # int32, lists of tiles of points
    row_cell: Array  # (tiles of rows,) int32
    point_cell: Array  # (tiles,) int32
    begins: Array  # (cells of rows, points) float32
    thresholds: Array  # (cells of points, rows) float32


def append_survivors(
    products: Products,
    image: QuantizedPoints,
    steps: int,
    radii: Radii | None,
    tile_error: Array,
    into: Destination,
    local: LocalTerms | None = None,
) -> None:
    """Form the products of some rows with tiles of an image, and append the pairs that pass.

    Parameters
    ----------
    products : Products
    image : QuantizedPoints
        The points.
    steps : int
        Tensor core instructions that a row's features take.
    radii : Radii
        Of the rows.
    tile_error : (tiles,) float32 array
        The largest error of each tile of the image.
    into : Destination
        `Survivors` if every pair is tested for both its points.
    local : LocalTerms, optional
        Between cells: the items' tiles, and what takes the place of `radii` and half norms.
    """
    rows, survivors = products.rows, into.candidates
    half_sq_dist = getattr(survivors, "half_sq_dist", None)
    radii = radii or Radii(None, None)
    check_arrays(image.y.dtype, image.y, rows.y)
    if local is None:
        check_arrays(image.half_norm.dtype, image.half_norm, rows.half_norm, half_sq_dist)
        check_arrays("float32", radii.of_row, radii.of_tile, tile_error, into.thresholds)
        if len(radii.of_row) != rows.half_norm.size:
            raise ValueError(f"{rows.half_norm.size} rows, of which {len(radii.of_row)} have a radius")
    else:
        check_arrays("int32", local.tiles, local.row_cell, local.point_cell)
        check_arrays("float32", local.begins, local.thresholds)
    check_arrays("int32", survivors.ids, into.row_group, into.point_group, into.items)
    atoms = -(-steps // ATOM_STEPS)
    types = image.half_norm is not None and image.half_norm.dtype == cp.int32, image.y.dtype == cp.uint8
    kind = half_sq_dist is not None, into.items is not None and local is None, local is not None, *types
    body = _compiled(atoms, steps - (atoms - 1) * ATOM_STEPS, kind, is_hopper(), current_gpu())
    addresses = [np.uint64(0)] * 5 if local is None else [np.uint64(part.data.ptr) for part in local]
    sizes = (0, 0) if local is None else (local.thresholds.shape[1], local.begins.shape[1])
    arguments = (
        rows.y, image.y, image.half_norm, np.int32(atoms), np.int32(products.blocks), np.int32(products.splits),
        *map(np.int32, products.tiles), c_struct(*products.among), np.uint32(products.n_points), rows.half_norm,
        radii.of_row, radii.of_tile, tile_error, into.row_group, into.point_group, np.int32(survivors.capacity),
        survivors.ids, half_sq_dist, survivors.count, into.next_item, into.items, into.thresholds,
        c_struct(*addresses, *map(np.int64, sizes)),
    )  # fmt: skip
    items = products.blocks * products.splits * (BLOCK_ROWS // body.rows)
    if blocks := min(items, body.blocks * multiprocessors()):
        arguments = tuple(NULL if a is None else a for a in arguments)
        body.kernel((blocks,), (body.threads,), arguments, shared_mem=body.shared)


def item_splits(blocks: int, tiles: int) -> int:
    """The number of work items into which a band's tiles are divided for each block of rows.

    Some blocks have several times the work of others, since in an order by bounds points that are near to many come
    together. There are enough items to balance that: each goes to the multiprocessor that is ready first.
    """
    by_work = min(tiles // MIN_ITEM_TILES, -(-WORK_ITEMS_PER_SM * multiprocessors() // max(1, blocks)))
    return max(1, -(-tiles // MAX_ITEM_TILES), by_work)


def padded(n: int, size: int) -> int:
    """n, rounded up to a multiple."""
    return -(-n // size) * size


@dataclass(frozen=True)
class _Body:
    """A compiled kernel: rows and threads of a block, blocks of a multiprocessor, a block's bytes of shared memory."""

    kernel: Any
    rows: int
    threads: int
    blocks: int
    shared: int


@cache
def _compiled(atoms: int, last_steps: int, kind: tuple[bool, ...], hopper: bool, gpu: int) -> _Body:
    source, options, shape, shared = _body(atoms, last_steps, kind, hopper, gpu)
    kernel = cuda_kernel(source, "append_survivors", *options)
    kernel.max_dynamic_shared_size_bytes = shared
    return _Body(kernel, *shape, shared)


def source_of(
    steps: int, symmetric: bool = False, between: bool = False, local: bool = False, int8: bool = False
) -> tuple[str, ...]:
    """The source, and the options, of the body that serves rows of this many instructions on the current GPU."""
    atoms = -(-steps // ATOM_STEPS)
    kind = symmetric, between, local, int8, False
    source, options, *_ = _body(atoms, steps - (atoms - 1) * ATOM_STEPS, kind, is_hopper(), current_gpu())
    return source, *options


def _body(
    atoms: int, last_steps: int, kind: tuple[bool, ...], hopper: bool, gpu: int
) -> tuple[str, tuple[str, ...], tuple[int, int, int], int]:
    """The source, its options, the shape of a `_Body`, and its shared memory."""
    names = "RESIDENT_ATOMS", "LAST_STEPS", "SYMMETRIC", "BETWEEN_COMPONENTS", "LOCAL", "INT8", "BITS"
    more: tuple[str, ...]
    if hopper:
        resident = atoms if atoms < len(WGMMA_STAGES) else 0
        stages, rows = WGMMA_STAGES[resident], TILE if resident > 4 else BLOCK_ROWS
        pieces = rows // TILE * resident + (1 if resident else 3) * stages
        shared = pieces * PIECE_BYTES + stages * NORM_BYTES + WGMMA_WARPS * QUEUE_BYTES
        source, shape, more = WGMMA, (rows, constant(WGMMA, "THREADS"), 1), ("-arch=sm_90a", f"-DSTAGES={stages}")
    else:
        resident = int(atoms == 1)
        warps, stages, blocks = _shape(resident, gpu)
        shared = _mma_bytes(resident, warps, stages)
        source, shape, more = MMA, (32 * warps, 32 * warps, blocks), (f"-DWARPS={warps}", f"-DSTAGES={stages}")
    values = resident, last_steps, *kind
    options = (*more, *(f"-D{name}={int(value)}" for name, value in zip(names, values, strict=True)))
    return source, options, shape, shared


def _mma_bytes(resident: int, warps: int, stages: int) -> int:
    """Shared memory of a block, except its queues."""
    tiles = warps * 32 // TILE
    return resident * tiles * PIECE_BYTES + stages * ((1 if resident else 1 + tiles) * PIECE_BYTES + NORM_BYTES)


def _shape(resident: int, gpu: int) -> tuple[int, int, int]:
    """The first of `MMA_SHAPES` that fits."""
    attributes = cp.cuda.Device(gpu).attributes
    for warps, stages, blocks in MMA_SHAPES:
        block = _mma_bytes(resident, warps, stages) + warps * QUEUE_BYTES + RESERVED_BYTES
        fits = blocks * block <= attributes["MaxSharedMemoryPerMultiprocessor"]
        if fits and block <= attributes["MaxSharedMemoryPerBlockOptin"]:
            return warps, stages, blocks
    raise RuntimeError(f"the fused filter needs {block} bytes of shared memory a block, more than this GPU has")

"""The launch of `fused.cu`: its arguments, and the compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.quantize import QuantizedPoints
from rapids_slink.runtime.cuda import NULL, c_struct, check_arrays, cuda_kernel, current_gpu, multiprocessors

FUSED = "neighbors/filter/hopper/fused.cu"
BLOCK_ROWS, TILE = 256, 128  # rows of a block, points of a tile, as in fused.cu
ATOM_STEPS = 4  # wgmmas that an atom of features takes, 128 bytes
PIECE_BYTES, NORM_BYTES = 128 * 128, 128 * 32  # of 128 rows of one atom, and of their norm columns
TEST_WARPS = 16
QUEUE_BYTES = TEST_WARPS * 64 * 8  # of survivors that are not written yet
THREADS = 128 + 32 * TEST_WARPS
#: Work items per multiprocessor, for load balancing; the least and the most tiles of an item.
WORK_ITEMS_PER_SM, MIN_ITEM_TILES, MAX_ITEM_TILES = 24, 8, 2**19


def is_hopper() -> bool:
    """Whether the current GPU is a Hopper."""
    return _is_hopper(current_gpu())


@cache
def _is_hopper(gpu: int) -> bool:
    return str(cp.cuda.Device(gpu).compute_capability) == "90"


@dataclass(frozen=True)
class Radii:
    """The thresholds: `of_row` (padded,), and `of_tile`, the largest of each `TILE`; float32, int32 for bytes."""

    of_row: Any
    of_tile: Any


@dataclass(frozen=True)
class Survivors(Candidates):
    """Candidates collected over the slices of a symmetric pass.

    Attributes
    ----------
    half_sq_dist : (rows, capacity) array
        Half of each one's squared distance as the converse in `bounds` has it; float32, int32 for bytes.
    """

    half_sq_dist: Any = None


@dataclass(frozen=True)
class Products:
    """Which products a launch forms.

    Attributes
    ----------
    rows : QuantizedPoints
        An image.
    blocks, splits : int
        Blocks of rows, or given work items, and into how many items each is divided.
    tiles : (int, int)
        The first tile of points and the one after the last; in a symmetric pass counted from the block's own.
    n_points : int
        Points after these are padding.
    among : (int, int)
        In a symmetric pass, the first tile that a block's own number is counted from, and the number of tiles.
    """

    rows: QuantizedPoints
    blocks: int
    splits: int
    tiles: tuple[int, int]
    n_points: int
    among: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Destination:
    """Where survivors go.

    Attributes
    ----------
    found : Candidates
    next_item : int array
        The work item that the next block takes, less the number of blocks; 0 at first.
    row_group, point_group : int32 arrays, optional
        By position: pairs of one group are left out. Between components, `point_group` is the order.
    items : (m, 4) int32 array, optional
        Between components, the work items.
    thresholds : array, optional
        Between components, what is added to the rows' radii, by component pair.
    """

    found: Candidates
    next_item: Any
    row_group: Any = None
    point_group: Any = None
    items: Any = None
    thresholds: Any = None


def append_survivors(
    products: Products, image: QuantizedPoints, steps: int, radii: Radii, tile_error: Any, into: Destination
) -> None:
    """Form the products of some rows with tiles of an image, and append the pairs that pass.

    Parameters
    ----------
    products : Products
    image : QuantizedPoints
        The points, with norm columns.
    steps : int
        wgmmas that a row's features take.
    radii : Radii
        Of the rows.
    tile_error : (tiles,) float32 array, or None for bytes
        The largest error of each tile of the image.
    into : Destination
        `Survivors` if every pair is tested for both its points.
    """
    rows, found = products.rows, into.found
    half_sq_dist = getattr(found, "half_sq_dist", None)
    of_bytes = tile_error is None
    check_arrays("int32" if of_bytes else "float32", radii.of_row, radii.of_tile, half_sq_dist, into.thresholds)
    check_arrays("int32", found.ids, into.row_group, into.point_group, into.items)
    if radii.of_row.size != rows.half_norm.size:
        raise ValueError(f"{rows.half_norm.size} rows, of which {radii.of_row.size} have a radius")
    atoms = -(-steps // ATOM_STEPS)
    kind = half_sq_dist is not None, into.items is not None, of_bytes
    kernel, shared = _compiled(atoms, steps - (atoms - 1) * ATOM_STEPS, kind, current_gpu())
    arguments = (
        rows.y, image.y, image.norm_columns, np.int32(atoms), np.int32(products.blocks), np.int32(products.splits),
        *map(np.int32, products.tiles), c_struct(*products.among), np.uint32(products.n_points), rows.half_norm,
        radii.of_row, radii.of_tile, tile_error, into.row_group, into.point_group, np.int32(found.capacity), found.ids,
        half_sq_dist, found.count, into.next_item, into.items, into.thresholds,
    )  # fmt: skip
    if blocks := min(products.blocks * products.splits, multiprocessors()):
        kernel((blocks,), (THREADS,), tuple(NULL if a is None else a for a in arguments), shared_mem=shared)


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


@cache
def _compiled(atoms: int, last_steps: int, kind: tuple[bool, bool, bool], _gpu: int) -> tuple[Any, int]:
    """The kernel, configured for its dynamic shared memory, and the bytes of that."""
    resident = atoms if atoms <= 4 else 0
    names = "RESIDENT_ATOMS", "LAST_STEPS", "SYMMETRIC", "BETWEEN_COMPONENTS", "BYTES"
    values = resident, last_steps, *kind
    options = "-arch=sm_90a", *(f"-D{name}={int(value)}" for name, value in zip(names, values, strict=True))
    kernel = cuda_kernel(FUSED, "append_survivors", *options)
    stages = (4, 8, 8, 6, 5)[resident]  # these and the norm columns as in fused.cu
    norm_slots = -(-stages // resident) if resident else 1
    pieces = 2 * resident + (1 if resident else 3) * stages
    shared = pieces * PIECE_BYTES + norm_slots * NORM_BYTES + QUEUE_BYTES
    kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared

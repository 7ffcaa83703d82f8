"""The fused filter of Hopper GPUs: launchers of `hopper.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import check_arrays, cuda_kernel, launch, multiprocessors, struct
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.contract import growing, stride
from rapids_slink.neighbors.cuda import LISTS, WARP, WARPS, Candidates, Packed, pack_rows
from rapids_slink.neighbors.operand import Ceiling, Scaling, reach_numbers

ROWS, COLUMNS = 256, 128  # a block of rows, a tile of columns, as in hopper.cu
STEPS = 4  # wgmmas that an atom of features takes, 128 bytes
PIECE, TAIL = 128 * 128, 128 * 32  # bytes of 128 rows of one atom, and of their tail
WARPS_THAT_TEST = 16
QUEUES = WARPS_THAT_TEST * 64 * 8  # bytes of survivors that are not written yet
THREADS = 128 + 32 * WARPS_THAT_TEST
ITEMS, LEAST_TILES = 24, 8  # parts of the work for each multiprocessor, and tiles of columns in one
#: Tiles in a part at most: what `COLUMN_BITS` of hopper.cu tell apart.
MOST_TILES = 2**19


@dataclass(frozen=True)
class Reach:
    """How far rows look: `of_row` (padded,), and `of_tile`, the largest of each `COLUMNS`; float32, int32 for bytes."""

    of_row: Any
    of_tile: Any


@dataclass(frozen=True)
class Survivors(Candidates):
    """Candidates that are collected from sweep to sweep.

    Attributes
    ----------
    apart : (rows, capacity) array
        Half of each one's squared distance as operand.py's converse has it; float32, int32 for bytes.
    """

    apart: Any = None


def usable() -> bool:
    """Whether the current GPU is a Hopper."""
    return _is_hopper(cp.cuda.runtime.getDevice())


@cache
def _is_hopper(device: int) -> bool:
    return str(cp.cuda.Device(device).compute_capability) == "90"


class FusedFilter:
    """`cuda.keep` over a whole band of columns in one launch.

    Parameters
    ----------
    values : (n, d) array
        The columns.
    scaling : Scaling
    order : (n,) int32 array
        The column at each place of their order: a scattered one or, for `keep_couples`, blocks.
    """

    NAME = "fp16 tensor cores (fused)"
    BLOCK, TILE = ROWS, COLUMNS
    BYTES = False  # whether the values are those of `cuda.compact`
    STEP = 16  # features a wgmma takes
    REAL = "float32"
    #: There are few rows, and a band brings each about 7k survivors; `room` says how many it can keep.
    FIRST_BAND, GROWTH = 2**14, 8
    #: In blocks of rows. There are many rows: a launch costs little, a survivor much.
    FIRST_SWEEP, SWEEP_GROWTH = 4, 2
    MOST_ROWS = 2**18  # a launch: enough blocks to fill the GPU evenly
    MOST_CANDIDATES = 2**26  # a launch

    def __init__(self, values: Any, scaling: Scaling, order: Any) -> None:
        self.scaling, self.order, self.n = scaling, order, order.size
        self.steps = -(-values.shape[1] // self.STEP)
        self.atoms = -(-self.steps // STEPS)
        self._pack_columns(values)

    def _pack_columns(self, values: Any) -> None:
        self.columns = columns = self._pack(values, self.order, tails=True)
        tiles = columns.error.size // COLUMNS
        self.tile_norm, self.tile_error = cp.empty(tiles, cp.float32), cp.empty(tiles, cp.float32)
        cuda_kernel("neighbors/reach.cu", "largest_of_tiles")(
            (tiles,), (COLUMNS,), (np.int64(self.n), columns.half_norm, columns.error, self.tile_norm, self.tile_error)
        )

    @staticmethod
    def arrange(bound: Any) -> Any:
        """An order for `keep_both`: tiles of points with similar bounds, scattered."""
        n, order = bound.size, cp.empty(bound.size, cp.int32)
        by_bound = cp.argsort(bound.astype(cp.float32))  # half the digits to sort by
        launch(LISTS, "scatter_tiles", n, np.int64(n), np.int64(stride(n // COLUMNS)), by_bound, order)
        return order

    @staticmethod
    def row_bytes(d: int) -> int:
        """What the operand of a row of d features takes, its tail included."""
        return 128 * -(-d // (FusedFilter.STEP * STEPS)) + 40

    def radius(self, bound: Any, rows: Packed, n_features: int, metric: Metric) -> Reach:
        """What the test takes for rows that look for kernel values up to `bound`: `operand.reach` in one launch."""
        check_arrays("float32", rows.error)
        return self._reach("reach", bound, rows.half_norm.size, rows.error, self._reach_of(n_features, metric))

    def _reach_of(self, n_features: int, metric: Metric) -> Any:
        return struct(*reach_numbers(n_features, self.scaling.scale, metric))

    def _reach(self, kernel: str, bound: Any, size: int, *arguments: Any) -> Reach:
        check_arrays("float64", bound)
        found = Reach(cp.empty(size, self.REAL), cp.empty(size // COLUMNS, self.REAL))
        if size:
            outputs = found.of_row, found.of_tile
            cuda_kernel("neighbors/reach.cu", kernel)(
                (size // COLUMNS,), (COLUMNS,), (np.int64(bound.size), bound, *arguments, *outputs)
            )
        return found

    @staticmethod
    def room(k: int) -> int:
        """How many survivors of a band a row can keep. For k = 1 one row in 10⁸ has more, if bands come in no order."""
        return 128 + 12 * k

    def rows_at_once(self, k: int) -> int:
        """How many rows a launch should have."""
        return max(ROWS, min(self.MOST_ROWS, self.MOST_CANDIDATES // self.room(k) // ROWS * ROWS))

    def prepare_rows(self, queries: Any, rows: Any) -> Packed:
        """The rows' operand, for `keep`."""
        return self._pack(queries, rows)

    def keep(self, rows: Packed, band: slice, radius: Reach, k: int, row_group: Any, column_group: Any) -> Candidates:
        """Each row's candidates: the columns of `band` that pass operand.py's test.

        Those of the row's own group are left out if `column_group` is given: by place, like the columns.
        """
        check_arrays("int32", row_group)
        if column_group is not None:
            check_arrays("int32", column_group)
        if band.start % COLUMNS:
            raise ValueError(f"a band starts at a multiple of {COLUMNS} columns, got {band.start}")
        tiles = band.start // COLUMNS, -(-band.stop // COLUMNS)
        m = row_group.size
        counts = cp.zeros(m + 1, cp.int32)
        found = Candidates(cp.empty((m, self.room(k)), cp.int32), counts[:m], self.order)
        self._keep(rows, tiles, min(band.stop, self.n), radius, found, counts[m:], None, row_group, column_group)
        return found

    def sweeps(self) -> list[slice]:
        """Ranges of offsets, in blocks of rows, that together form every pair of blocks once; see `keep_both`."""
        blocks = self.columns.half_norm.size // ROWS
        return growing(min(self.FIRST_SWEEP, max(1, blocks // 16)), blocks // 2 + 1, self.SWEEP_GROWTH)

    def survivors(self, k: int) -> Survivors:
        """Empty buffers for `keep_both`: a sweep brings a row about k, as many stay, and the rest is room."""
        shape = self.n, self.room_of_sweeps(k)
        ids, count = cp.empty(shape, cp.int32), cp.zeros(self.n, cp.int32)
        return Survivors(ids, count, self.order, cp.empty(shape, self.REAL))

    @staticmethod
    def room_of_sweeps(k: int) -> int:
        """How many survivors a row can keep between two sweeps."""
        return 48 + 4 * k

    def keep_both(self, offsets: slice, radius: Reach, into: Survivors) -> None:
        """Append to the candidates of every column, taken as a row in that order, those of the blocks at these offsets.

        Offset s stands for the pairs of each block of rows with the s-th block after it, around the end: what passes
        for either of the two is kept for that one.
        """
        tiles = 2 * offsets.start, 2 * offsets.stop
        self._keep(self.columns, tiles, self.n, radius, into, cp.zeros(1, cp.int32), into.apart)

    def keep_couples(self, items: Any, reach: Any, capacity: int) -> tuple[Any, int]:
        """The pairs of the items that may be within their couples' reach.

        Parameters
        ----------
        items : (m, 4) int32 array
            A block of rows by the number of its first tile; the first tile of columns and the one after the last, at
            most `MOST_TILES`; and the number of its couple.
        reach : array
            By couple, as `reach_of_bounds` gives it.

        Returns
        -------
        found : (3, capacity) int32 array
            The pairs' points, none for those that stand in a block once more, and their couples.
        n_found : int
            How many there are, or some number above the capacity.
        """
        check_arrays("int32", items)
        check_arrays(self.REAL, reach)
        counts = cp.zeros(2, cp.uint64)
        found = Candidates(cp.empty((3, capacity), cp.int32), counts[:1])
        own = cp.zeros_like(self.columns.half_norm) if self.columns.error is None else self.columns.error
        self._start(
            (False, True), self.columns, (len(items), 1, 0, 0, self.n), (own, None), found, counts[1:],
            groups=(None, self.order), given=(items, reach),
        )  # fmt: skip
        return found.ids, int(counts[0])

    def reach_of_bounds(self, bound: Any, n_features: int, metric: Metric) -> Any:
        """What `keep_couples` takes for kernel values up to `bound`."""
        return self._reach("reach", bound, _tiles(bound.size), np.uintp(0), self._reach_of(n_features, metric)).of_row

    def tighten(self, found: Survivors, bound: Any, k: int, n_features: int, metric: Metric) -> None:
        """Lower the bounds to what each row's k-th survivor is at most, and drop those that cannot be within them."""
        ceiling = struct(*Ceiling.of(n_features, self.scaling, metric).numbers)
        operand = self.columns.half_norm, self.columns.error, self.tile_norm, self.tile_error
        self._tighten("tighten", found, bound, k, *operand, self._reach_of(n_features, metric), ceiling)

    def _tighten(self, kernel: str, found: Survivors, bound: Any, k: int, *known: Any) -> None:
        check_arrays("int32", found.ids, found.count)
        check_arrays(self.REAL, found.apart)
        check_arrays("float64", bound)
        sizes = np.int32(self.n), np.int32(k), np.int32(found.capacity)
        cuda_kernel("neighbors/reach.cu", kernel, f"-DEACH={-(-found.capacity // WARP)}")(
            (-(-self.n // WARPS),), (WARP * WARPS,), (*sizes, *known, bound, found.ids, found.apart, found.count)
        )

    def _keep(
        self, rows: Packed, tiles: tuple[int, int], last: int, radius: Reach, into: Candidates, next_item: Any,
        apart: Any = None, row_group: Any = None, column_group: Any = None,
    ) -> None:  # fmt: skip
        check_arrays(self.REAL, radius.of_row, radius.of_tile)
        check_arrays("int32", into.ids, into.count, next_item)
        size, both = rows.half_norm.size, rows is self.columns
        if radius.of_row.size != size:
            raise ValueError(f"{size} rows, of which {radius.of_row.size} have a reach")
        blocks = size // ROWS
        splits = _splits(blocks, tiles[1] - tiles[0])
        far, farthest = radius.of_row, radius.of_tile if both else None
        self._start(
            (both, False), rows, (blocks, splits, *tiles, last), (far, farthest), into, next_item, apart,
            (row_group, column_group),
        )  # fmt: skip

    def _start(
        self, kind: tuple[bool, bool], rows: Packed, numbers: tuple[int, ...], radius: tuple[Any, Any],
        into: Candidates, next_item: Any, apart: Any = None, groups: tuple[Any, Any] = (None, None),
        given: tuple[Any, Any] = (None, None),
    ) -> None:  # fmt: skip
        """Start `keep_near`, of a kind: SYMMETRIC or not, COUPLES or not."""
        blocks, splits, first, last, n_columns = numbers
        last_steps = self.steps - (self.atoms - 1) * STEPS
        kernel, shared = _keep_near(self.atoms, last_steps, *kind, self.BYTES, cp.cuda.runtime.getDevice())
        far, farthest, apart, row_group, column_group, items, reach = (
            np.uintp(0) if part is None else part for part in (*radius, apart, *groups, *given)
        )
        kernel(
            (min(blocks * splits, multiprocessors()),), (THREADS,),
            (rows.y, self.columns.y, self.columns.tails, np.int32(self.atoms), np.int32(blocks), np.int32(splits),
             np.int32(first), np.int32(last), np.uint32(n_columns), rows.half_norm, far, farthest, self.tile_error,
             row_group, column_group, np.int32(into.capacity), into.ids, apart, into.count, next_item, items, reach),
            shared_mem=shared,
        )  # fmt: skip

    def _pack(self, values: Any, rows: Any, tails: bool = False) -> Packed:
        return pack_rows(values, self.scaling, rows, -(-rows.size // ROWS) * ROWS, self.atoms, tails)


class ByteFilter(FusedFilter):
    """The same for squared distances of integers from 0 to 255, without error and at twice the rate."""

    NAME = "uint8 tensor cores (fused)"
    BYTES = True
    STEP = 32
    REAL = "int32"
    MOST_FEATURES = 32_000  # sums of more would leave int32
    #: How far the halves of the columns' squared norms may lie apart: what 32 bytes in units of 1, 1, 255, ... tell.
    MOST_SPREAD = 254 + 30 * 255 * 128
    EVERYTHING = 2**30  # half of a bound that all pairs are within
    NOWHERE = 2**31 - 1  # the half norm of a row that there is not

    @classmethod
    def holds(cls, values: Any) -> bool:
        """Whether these can be the columns."""
        if values.dtype != np.uint8 or values.shape[1] > cls.MOST_FEATURES:
            return False
        half_norm = pack_bytes(values, None, len(values)).half_norm
        return int(half_norm.max() - half_norm.min()) <= cls.MOST_SPREAD

    def _pack_columns(self, values: Any) -> None:
        self.tile_error = np.uintp(0)
        packed = self._halves(values, self.order)
        self.least = int(packed.half_norm[: self.n].min())
        tails = cp.empty(packed.half_norm.size * TAIL // COLUMNS, cp.uint8)
        launch(
            "neighbors/pack.cu", "pack_byte_tails", packed.half_norm.size, packed.half_norm, np.int32(self.least),
            np.int64(self.n), np.int64(packed.half_norm.size), tails,
        )  # fmt: skip
        self.columns = self._with_base(packed, self.n, tails)

    def radius(self, bound: Any, rows: Packed, n_features: int, metric: Metric) -> Reach:
        """Half of each bound, rounded down."""
        return self._reach("reach_of_bytes", bound, rows.half_norm.size, np.int32(self.EVERYTHING))

    def reach_of_bounds(self, bound: Any, n_features: int, metric: Metric) -> Any:
        """Half of each, rounded down."""
        return self._reach("reach_of_bytes", bound, _tiles(bound.size), np.int32(self.EVERYTHING)).of_row

    def tighten(self, found: Survivors, bound: Any, k: int, n_features: int, metric: Metric) -> None:
        """As above: what half a squared distance is rounded down by is at most 1."""
        self._tighten("tighten_bytes", found, bound, k, np.int32(self.EVERYTHING))

    def prepare_rows(self, queries: Any, rows: Any) -> Packed:
        """The rows' operand, for `keep`."""
        return self._with_base(self._halves(queries, rows), rows.size)

    def _halves(self, values: Any, rows: Any) -> Packed:
        return pack_bytes(values, rows, -(-rows.size // ROWS) * ROWS, self.atoms)

    def _with_base(self, packed: Packed, m: int, tails: Any = None) -> Packed:
        """Norms as the test takes them for rows, of which there are m: the columns' are less by the least."""
        base = packed.half_norm + cp.int32(self.least)
        base[m:] = self.NOWHERE
        return Packed(packed.y, tails, base, None)


def pack_bytes(values: Any, rows: Any, padded: int, atoms: int = 0) -> Packed:
    """The operand of `rows` (None: all) of `values` as `cuda.compact` gives them, filled up to `padded` rows.

    It has so many `atoms`, or is left out.
    """
    check_arrays("uint8", values)
    if rows is not None:
        check_arrays("int32", rows)
    m, pitch = len(values) if rows is None else rows.size, values.shape[1]
    if pitch % 16:
        raise ValueError(f"rows of bytes start at multiples of 16, got {pitch} bytes a row")
    y, half_norm = cp.empty(padded * atoms * 128, cp.uint8), cp.empty(padded, cp.int32)
    if padded:
        kernel = cuda_kernel("neighbors/pack.cu", "pack_bytes")
        kernel(
            (-(-padded // WARPS),), (WARPS * WARP,),
            (values, np.int32(pitch), np.uintp(0) if rows is None else rows, np.int64(m), np.int64(padded),
             np.int32(atoms or -(-pitch // 128)), y if atoms else np.uintp(0), half_norm),
        )  # fmt: skip
    return Packed(y, None, half_norm, None)


def _splits(blocks: int, tiles: int) -> int:
    """Into how many parts to divide a band's tiles for each block of rows.

    Points that are near to many, which stand together in the order of `arrange`, make some blocks several times as much
    work as others: there are enough parts for that to even out, each for the multiprocessor that is ready first.
    """
    return max(1, -(-tiles // MOST_TILES), min(tiles // LEAST_TILES, -(-ITEMS * multiprocessors() // blocks)))


def _tiles(n: int) -> int:
    """As many as fill tiles of columns."""
    return -(-n // COLUMNS) * COLUMNS


@cache
def _keep_near(
    atoms: int, last_steps: int, symmetric: bool, couples: bool, of_bytes: bool, _device: int
) -> tuple[Any, int]:
    """The kernel, and its shared memory, for which it is made ready on the device."""
    resident = atoms if atoms <= 4 else 0
    flags = {
        "RESIDENT": resident, "LAST_STEPS": last_steps, "SYMMETRIC": symmetric, "COUPLES": couples, "BYTES": of_bytes
    }  # fmt: skip
    options = "-arch=sm_90a", *(f"-D{name}={int(value)}" for name, value in flags.items())
    kernel = cuda_kernel("neighbors/hopper.cu", "keep_near", *options)
    stages = (4, 8, 8, 6, 5)[resident]  # these and the tails as in hopper.cu
    tails = -(-stages // resident) if resident else 1
    shared = (2 * resident + (1 if resident else 3) * stages) * PIECE + tails * TAIL + QUEUES
    kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared

"""The nearest column of few queries on a GPU (cuSLINK's Algorithm 4): the launcher of `nearest.cu`.

All else makes operands, orders and first bounds beforehand, which pays when there are many rows to look for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import Layout, check_arrays, cuda_kernel, cuda_memory, multiprocessors, struct
from rapids_slink.memory import Need
from rapids_slink.metrics import EPSILON, Metric, accumulation_bound
from rapids_slink.neighbors.cuda import value_option
from rapids_slink.neighbors.operand import EXTRA_FEATURES, TINY, Ceiling, Scaling, growth, reach_numbers, shrinkage

SOURCE = "neighbors/nearest.cu"
TILE, THREADS, STEP = 128, 256, 16  # as in nearest.cu
STAGES = 2 * TILE * (2 * (4 * STEP + 8) + 16)  # bytes
#: The norms' sums in float32 may be off by what so many features more would be, and once more for the converse.
SUMMED = 64
#: So many products, by what one costs: beyond, operands and orders that are made once pay. Of many points in space or
#: in a plane fp16 tells too few apart, and what is spent in vain counts.
MOST_WORK, MOST_WORK_IN_SPACE = 4e11, 5e10
MIN_CAPABILITY = 80  # mma of fp16 with 16 features, and copies that do not wait
MOST_SHARED_MEMORY = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
CHOOSERS = 8  # warps of a block that chooses, as there
QUERY, KEPT = 4, 2  # numbers of 32 bits, as there
#: Beyond, `SUMMED` would be too few.
MOST_FEATURES = 1024
#: Columns that are kept for a query: at least, at most, and bytes for those of all. About five are, and
#: if they come in no order one query in 10⁸ has more than 32; of tight clusters a whole one may be. With a thousand
#: queries of 256 features all memory is in `ROOM`.
LEAST_KEPT, MOST_KEPT, KEPT_BYTES = 60, 480, 15 * 2**15
ROOM = 2**20  # bytes of nearest.cu's own memory, as there

_of_thread = threading.local()  # `told`: `_told()`


@dataclass(frozen=True)
class Found:
    """What a search leaves in its memory, until the next.

    Attributes
    ----------
    rows : (m', 4) float32 array
        A `Query` a row, filled up to whole tiles; the last number is an integer.
    kept : (m', capacity, 2) int32 array
        The `Kept` of each.
    frame : (d + 2,) float64 array
        The centre, the scale and its inverse.
    state : (2,) int32 array
        A `State`.
    """

    rows: Any
    kept: Any
    frame: Any
    state: Any


@dataclass(frozen=True)
class FewQueries:
    """m queries among n columns of d features, float32 or float64, by a metric of squares, on the current GPU.

    A small search works in memory that stands ready, and is every search's.
    """

    m: int
    n: int
    d: int
    metric: Metric
    dtype: str

    @property
    def serves(self) -> bool:
        """Whether the GPU can do it, and there are few enough."""
        capability, shared = _abilities(cp.cuda.runtime.getDevice())
        work = self.n * self.m * (max(self.d, STEP) + 2 * STEP)
        few = work <= (MOST_WORK if self.d > 3 else MOST_WORK_IN_SPACE)
        return few and capability >= MIN_CAPABILITY and self.d <= MOST_FEATURES and self._shared <= shared

    @cached_property
    def need(self) -> Need:
        """Bytes that it takes, besides what stands ready."""
        return Need(0 if self._ready else self._layout.size)

    def write(self, queries: Any, values: Any, src: int, dst: int, distance: int) -> tuple[Callable[[], bool], Found]:
        """Write the edges from each query to its nearest column.

        A sample of the columns lowers how far the queries look before any is kept: the nearest of each, unless
        something stands in the way, and a few more, of which it is chosen. All by one kernel: what stands ready is one
        search's at a time, since all are on one stream.

        Parameters
        ----------
        queries, values : (m, d) and (n, d) arrays
            They may hold anything.
        src, dst, distance : int
            Addresses of m int32, int32 and float64 numbers on the GPU.

        Returns
        -------
        proven : callable
            Waits, and says whether all is proven: else no edge is to be trusted. To be asked before this thread's next.
        found : Found
        """
        check_arrays(self.dtype, values, queries)
        y, rows, kept, frame, state = self._ready or self._layout.arrays()
        told, address = _told()
        told[0] = 0
        work, outputs = (y, rows, kept, frame, state), map(np.uintp, (src, dst, distance))
        arguments = values, queries, self._search, *work, *outputs, address
        self._kernel((self._blocks,), (THREADS,), arguments, shared_mem=self._shared)

        def proven() -> bool:
            cp.cuda.get_current_stream().synchronize()
            return not told[0]

        return proven, Found(rows, kept, frame, state)

    @cached_property
    def _width(self) -> int:
        return -(-self.d // STEP) * STEP

    @cached_property
    def _tiles(self) -> int:
        return -(-self.m // TILE)

    @cached_property
    def _capacity(self) -> int:
        return max(LEAST_KEPT, min(MOST_KEPT, KEPT_BYTES // (4 * KEPT * TILE * self._tiles)))

    @cached_property
    def _shared(self) -> int:
        return STAGES + 2 * TILE * (self._width + 8)

    @cached_property
    def _layout(self) -> Layout:
        padded = self._tiles * TILE
        return Layout(
            ((padded, self._width), "float16"), ((padded, QUERY), "float32"),
            ((padded, self._capacity, KEPT), "int32"), ((self.d + 2,), "float64"), ((2,), "int32"),
        )  # fmt: skip

    @cached_property
    def _ready(self) -> list[Any]:
        """The same in nearest.cu's own memory, if they fit."""
        fits = self._layout.size <= ROOM
        return self._layout.on(cuda_memory(SOURCE, "room", self._option)) if fits else []

    @cached_property
    def _option(self) -> str:
        return value_option(np.dtype(self.dtype))

    @cached_property
    def _kernel(self) -> Any:
        kernel = cuda_kernel(SOURCE, "find_nearest", self._option)
        kernel.max_dynamic_shared_size_bytes = _abilities(cp.cuda.runtime.getDevice())[1]
        return kernel

    @cached_property
    def _column_tiles(self) -> int:
        return -(-self.n // TILE)

    @cached_property
    def _grids(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Blocks that keep, for a sample of the columns and for all: tiles of them, by shares of queries."""
        tiles, at_once = self._column_tiles, self._at_once
        sample = min(tiles, max(tiles // 64, 8, min(tiles // 8, at_once // self._tiles)))
        first, last = ((some, min(self._tiles, max(1, at_once // some))) for some in (sample, tiles))
        return first, last

    @cached_property
    def _blocks(self) -> int:
        keeping = sum(across * shares for across, shares in self._grids)
        return self._tiles + keeping + min(-(-self.m // CHOOSERS), self._at_once)

    @property
    def _at_once(self) -> int:
        """Blocks that run at a time."""
        return 2 * multiprocessors()

    @cached_property
    def _constants(self) -> tuple[tuple[np.float32, ...], tuple[float, ...], tuple[float, ...]]:
        """The last four of nearest.cu's `Rounding`, its `Ceiling` and its `Reach`, these for a scale of 1."""
        features = self._width + SUMMED + EXTRA_FEATURES
        half, tail = shrinkage(features, "float32") / 2, 1 - accumulation_bound(features, "float32")
        rounding = tuple(map(np.float32, (half, tail, growth(EPSILON["float32"]), TINY)))
        ceiling = Ceiling.of(self._width + 2 * SUMMED, Scaling(None, 1.0), self.metric)
        return rounding, ceiling.numbers, reach_numbers(self.d, 1.0, self.metric)

    @cached_property
    def _search(self) -> Any:
        """What nearest.cu calls a `Search`."""
        rounding, ceiling, reach = self._constants
        sizes = np.int64(self.n), self.m, self._tiles, self._column_tiles, self._capacity
        (sample, all_), root = self._grids, self.metric.distance == "root"
        return struct(*sizes, *sample, *all_, root, self.d, self._width // STEP, *rounding, *ceiling, *reach)


def _told() -> tuple[np.ndarray, Any]:
    """A number of this thread's and its address, in the host's memory, to which GPUs write: a copy takes 40 µs more."""
    if not hasattr(_of_thread, "told"):
        told = np.frombuffer(cp.cuda.alloc_pinned_memory(4), np.int32, 1)
        _of_thread.told = told, np.uintp(told.ctypes.data)
    return _of_thread.told


@cache
def _abilities(device: int) -> tuple[int, int]:
    shared = cp.cuda.runtime.deviceGetAttribute(MOST_SHARED_MEMORY, device)
    return int(cp.cuda.Device(device).compute_capability), int(shared) - 1024  # and what a block has by itself

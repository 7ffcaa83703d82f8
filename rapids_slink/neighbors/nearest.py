"""The nearest column of few queries on a GPU (cuSLINK's Algorithm 4): launchers of `nearest.cu`.

All else makes operands, orders and first bounds beforehand, which pays when there are many rows to look for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import ALIGNED, check_arrays, cuda_kernel, in_one_block, multiprocessors, struct
from rapids_slink.memory import Need
from rapids_slink.metrics import EPSILON, Metric, accumulation_bound
from rapids_slink.neighbors.cuda import launch_by_warp, value_option
from rapids_slink.neighbors.operand import EXTRA_FEATURES, TINY, Ceiling, Scaling, growth, shrinkage

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
QUERY, KEPT = 4, 2  # numbers of 32 bits, as in nearest.cuh
#: Beyond, `SUMMED` would be too few.
MOST_FEATURES = 1024
#: Columns that are kept for a query: at least, at most, and bytes for those of all. About five are, and
#: if they come in no order one query in 10⁸ has more than 32; of tight clusters a whole one may be.
LEAST_KEPT, MOST_KEPT, KEPT_BYTES = 64, 512, 2**19
SEGMENT = 512  # bytes of a candidate at a time, for there are few


@dataclass(frozen=True)
class Found:
    """What `keep_nearest` leaves.

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

    @property
    def proven(self) -> bool:
        """Whether nothing stood in the way: to be asked once `choose` is done, for which this waits."""
        return not self.state.get()[1]


@dataclass(frozen=True)
class FewQueries:
    """m queries among n columns of d features."""

    m: int
    n: int
    d: int

    @property
    def serves(self) -> bool:
        """Whether the GPU can do it, and there are few enough."""
        capability, shared = _abilities(cp.cuda.runtime.getDevice())
        work = self.n * self.m * (max(self.d, STEP) + 2 * STEP)
        few = work <= (MOST_WORK if self.d > 3 else MOST_WORK_IN_SPACE)
        return few and capability >= MIN_CAPABILITY and self.d <= MOST_FEATURES and self._shared <= shared

    @property
    def need(self) -> Need:
        """Bytes that it takes."""
        a_row = 2 * self._width + 4 * QUERY + 4 * KEPT * self._capacity
        return Need(self._tiles * TILE * a_row + 8 * self.d + 3 * ALIGNED)

    def keep(self, queries: Any, values: Any, metric: Metric) -> Found:
        """What the filter keeps: the nearest column of each query, unless something stands in the way, and a few more.

        A sample of the columns lowers how far the queries look before any is kept.

        Parameters
        ----------
        queries, values : (m, d) and (n, d) arrays
            Of one type, float32 or float64; they may hold anything.
        metric : Metric
            One of squares.
        """
        check_arrays(values.dtype, values, queries)
        padded, capacity = self._tiles * TILE, np.int32(self._capacity)
        y, rows, kept, frame, state = in_one_block(
            ((padded, self._width), "float16"), ((padded, QUERY), "float32"),
            ((padded, self._capacity, KEPT), "int32"), ((self.d + 2,), "float64"), ((2,), "int32"),
        )  # fmt: skip
        rounding, ceiling, reach = _constants(self.d, metric)
        n, option = np.int64(self.n), value_option(values.dtype)
        cuda_kernel(SOURCE, "pack_queries", option)(
            (self._tiles,), (THREADS,),
            (values, n, queries, np.int32(self.m), rounding, y, rows, frame, state),
            shared_mem=8 * self.d,
        )  # fmt: skip
        keep_nearest = _keep_nearest(option, cp.cuda.runtime.getDevice())
        tiles, at_once = -(-self.n // TILE), 2 * multiprocessors()
        sample = min(tiles, max(tiles // 64, 8, min(tiles // 8, at_once // self._tiles)))
        for some, into in ((sample, np.uintp(0)), (tiles, kept)):
            parts = min(self._tiles, max(1, at_once // some))
            keep_nearest(
                (some, parts), (THREADS,),
                (values, n, np.int32(tiles), np.int32(tiles // some), rounding, y, np.int32(self._tiles), rows, frame,
                 state, ceiling, reach, capacity, into),
                shared_mem=self._shared,
            )  # fmt: skip
        return Found(rows, kept, frame, state)

    def choose(
        self, found: Found, queries: Any, values: Any, metric: Metric, src: Any, dst: Any, distance: Any
    ) -> None:
        """Write the edges to the nearest of what was kept, which are not to be trusted unless all is proven.

        Parameters
        ----------
        found : Found
            By `keep`, of the same points.
        src, dst : (m,) int32 arrays
        distance : (m,) float64 array
        """
        check_arrays("int32", src, dst)
        check_arrays("float64", distance)
        root = np.bool_(metric.distance == "root")
        arguments = np.int32(self.m), found.rows, found.kept, np.int32(self._capacity), found.state, root
        outputs = src, dst, distance
        launch_by_warp("nearest_of_kept", metric, self.m, 1, queries, values, arguments, outputs, segment=SEGMENT)

    @cached_property
    def _width(self) -> int:
        return -(-self.d // STEP) * STEP

    @cached_property
    def _tiles(self) -> int:
        return -(-self.m // TILE)

    @cached_property
    def _capacity(self) -> int:
        return max(LEAST_KEPT, min(MOST_KEPT, KEPT_BYTES // (4 * KEPT * TILE * self._tiles)))

    @property
    def _shared(self) -> int:
        return STAGES + 2 * TILE * (self._width + 8)


@cache
def _abilities(device: int) -> tuple[int, int]:
    shared = cp.cuda.runtime.deviceGetAttribute(MOST_SHARED_MEMORY, device)
    return int(cp.cuda.Device(device).compute_capability), int(shared) - 1024  # and what a block has by itself


@cache
def _constants(d: int, metric: Metric) -> tuple[Any, Any, Any]:
    """What nearest.cu calls a `Rounding`, a `Ceiling` and a `Reach`, the last two for a scale of 1."""
    width = -(-d // STEP) * STEP
    features = width + SUMMED + EXTRA_FEATURES
    fields = [*((name, "i4") for name in ("d", "steps")), *((name, "f4") for name in ("half", "tail", "grow", "tiny"))]
    numbers = (
        d, width // STEP, shrinkage(features, "float32") / 2, 1 - accumulation_bound(features, "float32"),
        growth(EPSILON["float32"]), TINY,
    )  # fmt: skip
    ceiling = Ceiling.of(width + 2 * SUMMED, Scaling(None, 1.0), metric)
    reach = struct(*metric.margins(d), 1.0, growth(EPSILON["float32"]), TINY)
    return np.array(numbers, fields)[()], struct(*ceiling.numbers), reach


@cache
def _keep_nearest(option: str, device: int) -> Any:
    """The kernel, made ready on the device for all the shared memory that there is."""
    kernel = cuda_kernel(SOURCE, "keep_nearest", option)
    kernel.max_dynamic_shared_size_bytes = _abilities(device)[1]
    return kernel

"""The nearest point of few queries on a GPU (cuSLINK's Algorithm 4): launchers of `nearest.cu`.

All other searches quantize, order and bound the points beforehand, which is worthwhile only for many queries.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.choose import is_worth_a_look
from rapids_slink.neighbors.filter import (
    ROUND_UP,
    TINY,
    Trial,
    UpperBound,
    accumulation_bound,
    radius_terms,
    shrink_factor,
)
from rapids_slink.runtime.cuda import (
    c_struct,
    capability,
    constant,
    cuda_kernel,
    launch_blocks,
    multiprocessors,
    value_option,
)
from rapids_slink.runtime.device import Array, cuda, current_gpu
from rapids_slink.runtime.memory import MemoryEstimate, outside_pool

SOURCE = "neighbors/small_batch/nearest.cu"
TILE, THREADS, STEP, RERANK_WARPS, PITCH, PIPELINE_STAGES = (
    constant(SOURCE, name) for name in ("TILE", "THREADS", "STEP", "RERANK_WARPS", "PITCH", "PIPELINE_STAGES")
)
QUERY_NUMBERS, CANDIDATE_NUMBERS = 4, 2  # a query and a candidate take these numbers of 32 bits
STAGE_BYTES = PIPELINE_STAGES * TILE * (2 * PITCH + 4 * QUERY_NUMBERS)
#: The float32 sums of norms add the error of this number of further features, and `UpperBound` counts it twice.
SUM_FEATURES = 72
#: In a plane a pair takes as long as one of this number of features: fp16 resolves few distances, and queries fail.
PLANE_FEATURES = 2**12
MIN_CAPABILITY = 80  # mma of fp16 with 16 features, and asynchronous copies
MAX_SHARED_MEMORY = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
#: With more features `SUM_FEATURES` would be too small.
MAX_FEATURES = 1024
#: Candidates per query: the least and the largest capacity, and bytes for all. About five pass; for points in random
#: order one query in 10⁸ has more than 32, but a whole tight cluster may pass.
MIN_CANDIDATES, MAX_CANDIDATES, CANDIDATE_BYTES = 60, 480, 15 * 2**15


@dataclass(frozen=True)
class SmallBatchSearch:
    """m queries among n points of d features, float32 or float64, by squared Euclidean distance, on the current GPU."""

    m: int
    n: int
    d: int
    metric: Metric

    @property
    def is_supported(self) -> bool:
        """Return whether the metric and the GPU are supported, and there are few enough queries."""
        d, wanted = self.d if self.d > 2 else PLANE_FEATURES, forced().search
        few = wanted == "few queries" if wanted else not is_worth_a_look(self.m, self.n, d, cuda())
        is_plain = self.metric.formula == "squared_euclidean" and self.metric.rows == "given"
        return few and self.d <= MAX_FEATURES and is_plain and self.fits_gpu

    @property
    def fits_gpu(self) -> bool:
        """Return whether the GPU has the instructions, and the shared memory for this number of features."""
        return capability() >= MIN_CAPABILITY and self._shared_memory <= _most_shared_memory()

    @property
    def estimate(self) -> MemoryEstimate:
        """Return the bytes that `write_edges` takes."""
        padded = self._tiles * TILE
        a_row = 2 * self._width + 4 * QUERY_NUMBERS + 4 * CANDIDATE_NUMBERS * self._capacity
        return MemoryEstimate(padded * a_row + 8 * self.d + 4096)

    def write_edges(self, queries: Array, points: Array, src: Array, dst: Array, distance: Array) -> bool:
        """Write the edges from each query to its nearest point, and return whether every edge is proven.

        If not, no edge may be used. A sample of the points tightens the queries' radii before any candidate is kept.
        `queries` and `points` may hold any values, NaN and infinity included.
        """
        if not _keeps_bound(points.dtype.name, current_gpu()):
            return False
        padded, options = self._tiles * TILE, (value_option(points.dtype),)
        y, rows = cp.empty((padded, self._width), cp.float16), cp.empty((padded, QUERY_NUMBERS), cp.float32)
        candidates = cp.empty((padded, self._capacity, CANDIDATE_NUMBERS), cp.int32)
        centring, state, search = cp.empty(self.d + 2), cp.empty(2, cp.int32), self._search()
        launch_blocks(
            SOURCE, "quantize_queries", (self._tiles,), THREADS, points, queries, search, y, rows, centring, state,
            options=options, shared_memory=8 * self.d,
        )  # fmt: skip
        for grid, into in zip(self._grids, (None, candidates), strict=True):
            self.find_near(grid, points, search, y, rows, centring, state, into)
        launch_blocks(
            SOURCE, "rerank_near", (-(-self.m // RERANK_WARPS),), THREADS, points, queries, search, rows, state,
            candidates, src, dst, distance, options=options,
        )  # fmt: skip
        return not int(state[1])

    def find_near(self, grid: tuple[int, int], points: Array, *arguments: Any) -> None:
        """Start the kernel `find_near` with a grid of blocks."""
        option = value_option(points.dtype)
        cuda_kernel(SOURCE, "find_near", (option,)).max_dynamic_shared_size_bytes = _most_shared_memory()
        launch_blocks(
            SOURCE, "find_near", grid, THREADS, points, *arguments, options=(option,), shared_memory=self._shared_memory
        )

    @property
    def _width(self) -> int:
        return -(-self.d // STEP) * STEP

    @property
    def _tiles(self) -> int:
        return -(-self.m // TILE)

    @property
    def _point_tiles(self) -> int:
        return -(-self.n // TILE)

    @property
    def _capacity(self) -> int:
        fitting = CANDIDATE_BYTES // (4 * CANDIDATE_NUMBERS * TILE * self._tiles)
        return forced().candidates or max(MIN_CANDIDATES, min(MAX_CANDIDATES, fitting))

    @property
    def _shared_memory(self) -> int:
        return STAGE_BYTES + 2 * TILE * (self._width + 8)

    @property
    def _grids(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the grids of blocks for a sample of the points and for all: tiles of points by shares of queries."""
        tiles, resident = self._point_tiles, 2 * multiprocessors()
        sample = min(tiles, max(tiles // 64, 8, min(tiles // 8, resident // self._tiles)))
        first, last = ((some, min(self._tiles, max(1, resident // some))) for some in (sample, tiles))
        return first, last

    def _search(self, has_norms: bool = True) -> Any:
        """Return the struct `Search` of nearest.cu, with `UpperBound` and `FilterRadius` for a scale of 1.

        Without norms sums begin at 0.
        """
        features = self._width + SUM_FEATURES
        half, norm = has_norms * shrink_factor(features) / 2, 1 - accumulation_bound(features)
        upper_bound = UpperBound.of(self._width + 2 * SUM_FEATURES, 1.0, self.metric)
        radius = radius_terms(self.d, 1.0, self.metric)
        root = self.metric.distance == "root"
        return c_struct(
            np.int64(self.n), self.m, self._tiles, self._point_tiles, self._capacity, root, self.d, self._width // STEP,
            np.float32(half), np.float32(norm), np.float32(ROUND_UP), np.float32(TINY), *upper_bound, *radius,
        )  # fmt: skip


def _most_shared_memory() -> int:
    """Return the bytes of dynamic shared memory that a block may have: the limit less its static shared memory."""
    return int(cp.cuda.runtime.deviceGetAttribute(MAX_SHARED_MEMORY, current_gpu())) - 1024


@cache
def _keeps_bound(dtype: str, _gpu: int) -> bool:
    """Return whether `find_near` forms products as precisely as assumed.

    It is tried once per process, GPU and type of points.
    """
    d = min(MAX_FEATURES, ((_most_shared_memory() - STAGE_BYTES) // (2 * TILE) - 8) // STEP * STEP)
    trial = Trial(d)
    m, n = len(trial.rows), len(trial.points)
    search, queries = SmallBatchSearch(m, n, d, EUCLIDEAN), np.zeros((TILE, d), np.float16)
    queries[:m] = trial.rows
    state_of_rows = np.zeros((TILE, QUERY_NUMBERS), np.float32)
    state_of_rows[:, 0] = trial.padded_thresholds(TILE)  # in place of half norms, beside radii of 0
    with outside_pool(cuda()):  # the pool may have a limit
        centring = cp.concatenate((cp.zeros(d), cp.ones(2)))  # the centre, the scale and its inverse
        rows, candidates = cp.asarray(state_of_rows), cp.empty((TILE, search._capacity, CANDIDATE_NUMBERS), cp.int32)
        points, state = cp.asarray(trial.points.astype(dtype)), cp.zeros(2, cp.int32)
        search.find_near((1, 1), points, search._search(False), cp.asarray(queries), rows, centring, state, candidates)
        return trial.is_passed(candidates[:m, :, 0].get(), rows.get().view(np.int32)[:m, 3])

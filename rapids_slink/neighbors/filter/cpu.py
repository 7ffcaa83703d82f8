"""The product filter on a CPU: tiles of products by BLAS, tested in memory by Numba's kernels."""

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.choose import COSTS, worthwhile_projection
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, candidate_capacity
from rapids_slink.neighbors.filter import (
    ABSOLUTE_SLACK,
    MIN_ROWS,
    ROUND_UP,
    TINY,
    PrincipalAxes,
    ProductFilter,
    QuantizedPoints,
    Scaling,
    TileFilter,
    ValueRange,
    filter_radius,
    n_seeds,
    shrink_factor,
)
from rapids_slink.neighbors.task import (
    BLOCK_VALUES,
    SearchState,
    SearchTask,
    equal_slices,
    rounds_of_blocks,
    row_blocks,
)
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array, Device
from rapids_slink.runtime.threads import for_each_chunk, one_blas_thread, with_progress, workers

TILE_ROWS, TILE_POINTS = 512, 1024  # a tile of products stays in the second-level cache
MAX_BLOCK_ROWS = 4096  # points of a block that meets others
MIN_BLOCK_ROWS = 640
MIN_BLOCK_ROWS_LOW_MEMORY = 128
MIN_PAIRS = 8  # the least number of pairs of blocks, if there are many points
BUCKETS = 32  # of a sample of points, for first bounds: at least this many


def filter_of_products(
    points: Array, queries: Array, exact: ExactPoints, scaling: Scaling, within: float, _listed: int
) -> TileFilter:
    """Return the filter of points and queries in product form; `within` is the largest distance that is wanted."""
    with one_blas_thread():
        projection = worthwhile_projection(points, len(queries), scaling, COSTS["cpu"], CPU, within)
    if projection is None:
        return BlasFilter(points, queries, exact, CPU, scaling)
    return ProjectedFilter(points, queries, exact, CPU, scaling, projection)


class BlasFilter(ProductFilter):
    """The product filter of a CPU: BLAS forms products in float32, and Numba's kernels test them."""

    name = "float32 tiles"
    max_rows = TILE_ROWS
    stretch = 1.0  # the largest factor by which coordinates lie farther apart than their points
    bounds_above = True  # whether products bound distances from above, too

    def quantize(self, values: Array, order: Array = None) -> QuantizedPoints:
        """Return the values of `order` (default: all), centred, scaled and rounded."""
        return quantize(values, self.scaling, order)

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by the surrogate distances of some points that products show to be near.

        These are the nearest, by products, of some buckets of a sample.
        """
        k, points = task.k, self.quantized_points.take(slice(0, n_seeds(len(self.points), task.k)))
        buckets, tile_rows = max(BUCKETS, 2 * k), max(MIN_ROWS, TILE_ROWS * TILE_POINTS // points.ids.size)
        ids = np.append(points.ids, np.int32(-1))  # the last one where a bucket has no point
        for at in equal_slices(slice(0, rows.size), min(most_rows, tile_rows)):
            m, groups = rows[at].size, (task.groups(rows[at]), task.point_group[points.ids])
            least, nearest = np.full((m, buckets), np.inf, np.float32), np.full((m, buckets), -1, np.int32)
            find_nearest(product(self.query(rows[at]), points), points.half_norm, *groups, least, nearest)
            few = ids[np.take_along_axis(nearest, np.argpartition(least, k - 1, axis=1)[:, :k], axis=1)]
            candidates, top = Candidates(few, np.full(m, k, np.int32)), self.exact_kernels.empty_lists(m, k)
            self.exact_kernels.rerank(self.exact, rows[at], candidates, None, bound[at], top, task.core)

    def radius(self, bound: Array, rows: QuantizedPoints) -> Array:
        """Return the rows' `filter.filter_radius`, (m,) float32."""
        scale = self.scaling.scale * self.stretch
        with np.errstate(over="ignore"):  # a bound far above all distances: every point passes
            return filter_radius(bound, rows.error, scale, self.n_features, self.device.xp, self.metric)

    @staticmethod
    def append(rows: Any, points: Any, radius: Array, groups: Groups, into: Candidates, back: Any = None) -> None:
        """Append the points of a tile that pass the test and have another exclusion id to the rows' candidates.

        `back` is a pair: the points' own radii, (n,), and their candidates among the rows.
        """
        # A point that wants no row has its error for its radius, which changes no test.
        point_radius, point_candidates = back or (points.error, Candidates(into.ids[:0], into.count[:0]))
        tested_rows = Tested(rows.half_norm, radius, rows.error)
        tested_points = Tested(points.half_norm, point_radius, points.error)
        _append_candidates(
            product(rows, points), tested_rows, tested_points, *groups, rows.ids, points.ids, into.ids, into.count,
            point_candidates.ids, point_candidates.count,
        )  # fmt: skip

    def meet(self, blocks: tuple[slice, slice], task: SearchTask, reached: SearchState) -> None:
        """Test the pairs of two blocks of the order, or of one with itself, once for both points, for the k-NN graph.

        What passes goes into the lists of both blocks.
        """
        sides = []
        for block in blocks[: 1 + (blocks[0] != blocks[1])]:
            points = self.quantized_points.take(block)
            candidates = self.exact_kernels.new_candidates(points.ids.size, task.k, candidate_capacity(task.k) // 2)
            sides.append((points, self.radius(reached.upper[points.ids], points), candidates))
        first, last = sides[0], sides[-1]
        for at in equal_slices(slice(0, first[1].size), TILE_ROWS):
            rows, radius, into = _part(first, at)
            groups = task.groups(rows.ids), task.point_group
            if first is last:
                self.append(rows, rows, radius, groups, into)
            for to in equal_slices(slice(at.stop if first is last else 0, last[1].size), TILE_POINTS):
                points, *back = _part(last, to)
                self.append(rows, points, radius, groups, into, back)
        for points, _, candidates in sides:
            self.exact_kernels.rerank(
                self.exact, points.ids, candidates, None, reached.upper, reached.top, positions=points.ids
            )

    def search_each_pair(
        self, task: SearchTask, reached: SearchState, rows_at_once: int, progress: bool | str
    ) -> Array:
        """Find the lists, with every pair of points tested once for both; return the rows that are not proven.

        Blocks of points meet in rounds. In a round a block has one partner, and so a row has one thread. Bounds are
        tightened after each meeting, and by the task from all lists after rounds 1, 2, 4, ... `rows_at_once` is how
        many rows a thread has memory for.
        """
        n, cores, split = task.rows.size, workers(self.device), task.split
        size = 2 * max(split, n - split) if split else n
        by_memory = cores * -(-size // (cores * min(rows_at_once, 2 * MAX_BLOCK_ROWS)))
        wanted = max(by_memory, min(MIN_PAIRS, size // (2 * MIN_BLOCK_ROWS)))
        blocks, rounds = rounds_of_blocks(n, split, max(1, min(wanted, size // (2 * MIN_BLOCK_ROWS_LOW_MEMORY))))
        first, upper = task.for_first_bounds, reached.upper
        for_each_chunk(
            self.device, lambda rows: self.first_bounds(first, task.rows[rows], upper[rows], rows_at_once), blocks
        )
        for at, meetings in enumerate(with_progress(rounds, len(rounds), task.progress(progress)), 1):
            for_each_chunk(self.device, lambda two: self.meet(two, task, reached), meetings)
            if task.bounds_by_lists and at < len(rounds) and at & (at - 1) == 0:
                np.minimum(reached.upper, task.bounds_by_lists(reached.top.ids, reached.top.weights), out=reached.upper)
        return np.flatnonzero(reached.top.overflowed)


class ProjectedFilter(BlasFilter):
    """The filter on the coordinates of a projection."""

    bounds_above = False

    def __init__(
        self,
        points: Array,
        queries: Array,
        exact: ExactPoints,
        device: Device,
        scaling: Scaling,
        projection: PrincipalAxes,
    ) -> None:
        super().__init__(points, queries, exact, device, scaling)
        self.projection, self.stretch = projection, projection.stretch
        d, width = projection.axes.shape
        self.name = f"{self.name}, {width + projection.rest} coordinates for {d} features"

    def quantize(self, values: Array, order: Array = None) -> QuantizedPoints:
        """Return the coordinates of the values of `order` (default: all), rounded."""
        ids = np.arange(len(values), dtype=np.int32) if order is None else order
        n, c = ids.size, self.projection.axes.shape[1] + self.projection.rest
        y, half_norm, error = np.empty((n, c), np.float32), np.empty(n, np.float32), np.empty(n, np.float32)

        def put(rows: slice) -> None:
            part = quantize(self.projection.coordinates(values[ids[rows]]), Scaling(np.zeros(c), 1.0))
            y[rows], half_norm[rows] = part.y, part.half_norm
            error[rows] = part.error + np.float32(self.projection.error)

        for_each_chunk(self.device, put, row_blocks(n, values.shape[1], BLOCK_VALUES // workers(self.device)))
        return QuantizedPoints(y, half_norm, error, ids)


def _part(side: Any, at: slice) -> Any:
    """Return a part of a block's points, with their radii and candidates."""
    points, radius, candidates = side
    return points.take(at), radius[at], Candidates(candidates.ids[at], candidates.count[at])


FAR_ROW = 4  # times the median distance from the mean


class _Kept(threading.local):
    """Each thread's memory for tiles of products: fresh memory would cost more than the product."""

    memory = np.empty(0, np.float32)


_kept = _Kept()


def products_keep_bound() -> bool:
    """Return True: sums of float32, in any order, are as precise as `filter.accumulation_bound` says."""
    return True


def product(rows: QuantizedPoints, points: QuantizedPoints) -> np.ndarray:
    """Return the tile of products of two sets, (rows, points) float32, valid until the thread's next call."""
    shape = len(rows.y), len(points.y)
    size = shape[0] * shape[1]
    if _kept.memory.size < size:
        _kept.memory = np.empty(size, np.float32)
    return np.matmul(rows.y, points.y.T, out=_kept.memory[:size].reshape(shape))


def quantize(values: Array, scaling: Scaling, order: Array = None) -> QuantizedPoints:
    """Return the rows `order` of `values` (default: all rows), centred, scaled and rounded to float32."""
    ids = np.arange(len(values), dtype=np.int32) if order is None else order
    n, d = ids.size, values.shape[1]
    y, half_norm, error = np.empty((n, d), np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    for rows in row_blocks(n, d):
        z = (values[ids[rows]] - scaling.centre) * scaling.scale
        y[rows] = z
        rounded = y[rows].astype(np.float64)
        half_norm[rows] = (rounded * rounded).sum(axis=1) * (shrink_factor(d) / 2)
        moved = np.sqrt(((rounded - z) ** 2).sum(axis=1)) + np.sqrt((z * z).sum(axis=1)) * EPSILON
        error[rows] = moved * ROUND_UP + TINY
    return QuantizedPoints(y, half_norm, error, ids)


def centre_of_rows(values: Array, step: int) -> np.ndarray:
    """Return the mean of every `step`-th row without outliers, (d,) float64.

    A coordinate is 0 where the mean is not finite: the filter is exact with any finite centre.
    """
    sample = values[::step].astype("float64")
    with np.errstate(over="ignore", invalid="ignore"):
        sq_distance = ((sample - sample.mean(axis=0)) ** 2).sum(axis=1)
        near = ~(sq_distance > FAR_ROW**2 * np.median(sq_distance))
        mean = sample[near].mean(axis=0)
    return np.where(np.isfinite(mean), mean, 0.0)


def value_ranges(point_sets: Iterable[Array], centre: Array) -> list[ValueRange]:
    """Return the range of each array of points."""
    ranges = []
    for values in point_sets:
        deviation, largest, like_bytes = 0.0, 0.0, True
        for rows in row_blocks(*values.shape):
            part = values[rows]
            highest, lowest = float(part.max()), float(part.min())
            deviation, largest = max(deviation, float(np.abs(part - centre).max())), max(largest, highest, -lowest)
            like_bytes = like_bytes and lowest >= 0 and highest <= 255 and bool((part == np.rint(part)).all())
        ranges.append(ValueRange(deviation, largest, byte_values=like_bytes))
    return ranges


class Tested(NamedTuple):
    """What the test reads of rows or points."""

    half_norm: np.ndarray  # (m,) float32
    radius: np.ndarray  # (m,) float32
    error: np.ndarray  # (m,) float32


@njit(cache=True)
def _passes(product, i, row, points, passed):
    """Apply the filter's test to row i: set `passed` for each point that passes.

    The larger of the row's and the point's radius decides. The function stands alone so that it compiles to vector
    instructions.
    """
    half_norm, radius, error = row.half_norm[i], row.radius[i], row.error[i]
    for j in range(product.shape[1]):
        q = max(radius + points.error[j], points.radius[j] + error)
        passed[j] = product[i, j] >= half_norm + points.half_norm[j] - q * q


@njit(cache=True)
def listed(passed, near):
    """Put the numbers of the points that passed into `near`, and return how many there are."""
    words, size = passed.view(np.uint64), 0
    for word in range(words.size):
        if words[word]:  # few points pass, so eight are tested together
            for j in range(8 * word, 8 * word + 8):
                near[size], size = j, size + passed[j]
    return size


@njit(cache=True)
def points_between(product, rows, i, points, sure_radius, norm_slack, seen, passed, sure, near):
    """Put the points from `seen` on that are between the bounds of row i into `near`.

    Returns how many these are, and how many points are surely within. A point that is surely within passes the test,
    too. Each of `passed` and `sure`, (m,) uint8, and `near`, (m + 1,) int64, has room for the points and up to eight
    more.
    """
    _passes(product, i, rows, points, passed)
    _surely_within(product, i, rows, points, sure_radius, norm_slack, sure)
    count = 0
    for j in range(np.uint64(max(seen, 0))):
        passed[j] = sure[j] = 0
    for j in range(np.uint64(product.shape[1])):
        count += sure[j]
        passed[j] &= 1 - sure[j]
    return listed(passed, near), count


@njit(cache=True)
def _surely_within(product, i, rows, points, radius, norm_slack, sure):
    """Apply the converse of the test to row i: set `sure` for each point that is surely within.

    `filter.sure_radius` has the proof. `radius` and `norm_slack` are float32, as is all that is computed. The function
    stands alone for the same reason as `_passes`.
    """
    half_norm, radius = rows.half_norm[i], radius - rows.error[i] * np.float32(1 + 2.0**-20)
    for j in range(product.shape[1]):
        q = max(radius - points.error[j], np.float32(0))
        half_norms = half_norm + points.half_norm[j]
        least = half_norms + (half_norms * norm_slack + np.float32(ABSOLUTE_SLACK)) - q * q
        sure[j] = (product[i, j] >= least) & (q > 0)


@njit(cache=True)
def _passes_alone(product, rows, i, points, j):
    """Return whether a product passes the test of row i by the row's own radius."""
    q = rows.radius[i] + points.error[j]
    return product >= rows.half_norm[i] + points.half_norm[j] - q * q


@njit(nogil=True, cache=True)
def _append_candidates(
    product, rows, points, row_group, point_group, row_ids, ids, out, count, point_out, point_count
):  # fmt: skip
    """Do the work of `BlasFilter.append`; `rows` and `points` are `Tested`."""
    passed = np.zeros(-(-product.shape[1] // 8) * 8, np.uint8)
    near = np.empty(passed.size + 1, np.int64)
    for i in range(product.shape[0]):
        _passes(product, i, rows, points, passed)
        for c in range(listed(passed, near)):
            j = near[c]
            if point_group[ids[j]] == row_group[i]:
                continue
            if _passes_alone(product[i, j], rows, i, points, j):
                if count[i] < out.shape[1]:
                    out[i, count[i]] = ids[j]
                count[i] += 1
            if point_count.size and _passes_alone(product[i, j], points, j, rows, i):
                if point_count[j] < point_out.shape[1]:
                    point_out[j, point_count[j]] = row_ids[i]
                point_count[j] += 1


@njit(nogil=True, cache=True)
def find_nearest(product, half_norm, row_group, point_group, least, nearest):
    """Find each row's nearest point of another exclusion id in each bucket, by products.

    `product`, (m, n), is that of the rows with points, whose half norms and exclusion ids are (n,). `least` and
    `nearest`, (m, buckets), hold infinity and -1 at first, then half a squared distance less the row's half norm, and
    the number of the point.
    """
    for i in range(product.shape[0]):
        own_least, own_nearest = least[i], nearest[i]
        for start in range(0, product.shape[1], own_least.size):
            _lower_least(product, i, half_norm, point_group, row_group[i], start, own_least, own_nearest)


@njit(cache=True)
def _lower_least(product, i, half_norm, groups, group, start, least, nearest):
    """Lower the least of each bucket by the next points, one for each bucket; it compiles to vector instructions."""
    for b in range(np.uint64(min(least.size, product.shape[1] - start))):
        j = np.uint64(start) + b
        half = half_norm[j] - product[i, j]
        is_less = (half < least[b]) & (groups[j] != group)
        least[b] = half if is_less else least[b]
        nearest[b] = np.int32(j) if is_less else nearest[b]

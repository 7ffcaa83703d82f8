"""The product filter on a CPU: tiles of products by BLAS, tested in memory."""

from typing import Any

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, TopLists, candidate_capacity
from rapids_slink.neighbors.filter import cpu
from rapids_slink.neighbors.filter.bounds import filter_radius
from rapids_slink.neighbors.filter.product import ProductFilter
from rapids_slink.neighbors.filter.projection import REST, Projection
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling
from rapids_slink.neighbors.slices import BLOCK, equal_slices, rounds_between, rounds_of_pairs, row_blocks
from rapids_slink.neighbors.task import Reached, SearchTask
from rapids_slink.runtime.device import CPU, Array, Device
from rapids_slink.runtime.threads import for_each_chunk, shares, with_progress, workers

#: Points of a block that meets others: at most; at least, and at least where memory is short. Pairs of blocks at least,
#: of many points.
MOST_ROWS, FEW_ROWS, LEAST_ROWS, MIN_PAIRS = 4096, 640, 128, 8


class BlasFilter(ProductFilter):
    """Products in float32."""

    name = "float32 tiles"
    stretch = 1.0  # how many times as far apart as two points what is multiplied may be

    def radius(self, bound: Array, rows: QuantizedPoints) -> Array:
        """`bounds.filter_radius` of the rows."""
        scale = self.scaling.scale * self.stretch
        with np.errstate(over="ignore"):  # a bound far above all distances: every point passes
            return filter_radius(bound, rows.error, scale, self.n_features, self.device.xp, self.metric)

    def append(self, rows: Any, points: Any, radius: Array, groups: Groups, into: Candidates, back: Any = None) -> None:
        """Append the points of a tile that pass to the rows' candidates; `back` is that of `cpu.append_candidates`."""
        cpu.append_candidates(cpu.product(rows, points), rows, points, radius, groups, into, self.check, back)

    def append_both(
        self, blocks: tuple[slice, slice], bound: Array, task: SearchTask
    ) -> list[tuple[Array, Candidates]]:
        """Test the pairs of two blocks of the order, or of one with itself, once for both points, for the k-NN graph.

        `bound`, (n,) float64, is by id. Returns the ids of each block and their candidates.
        """
        sides = []
        for block in blocks[: 1 + (blocks[0] != blocks[1])]:
            points = self.points_at(block)
            candidates = self.exact_kernels.new_candidates(points.ids.size, task.k, candidate_capacity(task.k) // 2)
            sides.append((points, self.radius(bound[points.ids], points), candidates))
        first, last = sides[0], sides[-1]
        for at in equal_slices(slice(0, first[1].size), cpu.TILE_ROWS):
            rows, radius, into = _part(first, at)
            groups = rows.ids, task.point_group
            if first is last:
                self.append(rows, rows, radius, groups, into)
            for to in equal_slices(slice(at.stop if first is last else 0, last[1].size), cpu.TILE_POINTS):
                points, point_radius, of_points = _part(last, to)
                self.append(rows, points, radius, groups, into, (point_radius, of_points))
        return [(points.ids, candidates) for points, _, candidates in sides]

    def search_each_pair(
        self, task: SearchTask, reached: Reached, exact: ExactPoints, rows_at_once: int, progress: bool
    ) -> Array:
        """The k-NN graph, with every pair of points tested once for both; returns the rows that are not proven.

        Of points whose lists within two parts are known only pairs between the parts are tested.

        Blocks of points meet in rounds, in which a block has one partner, and so a row one thread. Bounds are tightened
        after each meeting, and by the task from all lists after rounds 1, 2, 4, ... `rows_at_once` is how many rows a
        thread has memory for.
        """
        n, cores, parts = task.rows.size, workers(self.device), task.part_lists
        size = n if parts is None else 2 * max(parts.split, n - parts.split)
        by_memory = cores * -(-size // (cores * min(rows_at_once, 2 * MOST_ROWS)))
        pairs = max(1, min(max(by_memory, min(MIN_PAIRS, size // (2 * FEW_ROWS))), size // (2 * LEAST_ROWS)))
        if parts is None:
            blocks = shares(slice(0, n), 2 * pairs)
            rounds = rounds_of_pairs(blocks)
        else:
            pairs = min(pairs, parts.split, n - parts.split)
            blocks, others = shares(slice(0, parts.split), pairs), shares(slice(parts.split, n), pairs)
            rounds = rounds_between(blocks, others)
            reached.top.ids[:], reached.top.weights[:] = parts.ids, parts.weights

        def seed(rows: slice) -> None:
            self.first_bounds(task.for_first_bounds, task.rows[rows], reached.upper[rows], rows_at_once)

        def meet(two: tuple[slice, slice]) -> None:
            for ids, candidates in self.append_both(two, reached.upper, task):
                bound, lists = reached.upper[ids], reached.top
                top = TopLists(lists.ids[ids], lists.weights[ids], lists.overflowed[ids])
                self.exact_kernels.rerank(exact, ids, candidates, None, bound, top)
                reached.put(ids, bound, top)
                lists.overflowed[ids] = top.overflowed

        for_each_chunk(self.device, seed, blocks)
        for at, meetings in enumerate(with_progress(rounds, len(blocks), task.progress(progress)), 1):
            for_each_chunk(self.device, meet, meetings)
            if task.bounds_by_lists and at < len(blocks) and at & (at - 1) == 0:
                np.minimum(reached.upper, task.bounds_by_lists(reached.top.ids, reached.top.weights), out=reached.upper)
        return np.flatnonzero(reached.top.overflowed)

    def seed_queries(self, rows: Array) -> Any:
        """Some queries, as they are tested."""
        return self.query(rows)

    def seed_points(self, positions: slice) -> Any:
        """The points at these positions of the order, likewise."""
        return self.points_at(positions)


class ProjectedFilter(BlasFilter):
    """The filter on the coordinates of a projection; pairs that pass are checked by all features."""

    def __init__(
        self, points: Array, queries: Array, metric: Metric, device: Device, scaling: Scaling, projection: Projection
    ) -> None:
        super().__init__(points, queries, metric, device, scaling)
        self.projection, self.stretch = projection, projection.stretch
        d, width = projection.axes.shape
        self.name = f"{self.name}, {width + REST} coordinates for {d} features"
        precision = np.finfo(points.dtype)
        stretch, tiny = 1 + (d + 4) * float(precision.eps), d * float(precision.tiny)
        self.check = cpu.Check(queries, points, 2**0.5 / scaling.scale, stretch, tiny)

    def quantize(self, values: Array, order: Array = None) -> QuantizedPoints:
        """The coordinates of the values of `order` (default: all), rounded."""
        xp, n = self.device.xp, len(values) if order is None else order.size
        width = self.projection.axes.shape[1] + REST
        unscaled, ids = Scaling(xp.zeros(width), 1.0), xp.arange(n, dtype="int32") if order is None else order
        parts = for_each_chunk(
            self.device,
            lambda rows: cpu.quantize(self.projection.coordinates(values[ids[rows]]), unscaled),
            row_blocks(n, values.shape[1], BLOCK // workers(self.device)),
        )
        y, half_norm, error = (
            xp.concatenate([getattr(part, name) for part in parts]) for name in ("y", "half_norm", "error")
        )
        return QuantizedPoints(y, half_norm, error + error.dtype.type(self.projection.error), ids)


def meeting_bytes(n: int, k: int) -> int:
    """Bytes of the candidates and lists of all blocks of n points that meet at a time."""
    return 2 * workers(CPU) * min(n // (2 * MIN_PAIRS) + LEAST_ROWS, MOST_ROWS) * (36 * k + 160)


def _part(side: Any, at: slice) -> Any:
    """Some points of a block, their radii and candidates."""
    points, radius, candidates = side
    return points.take(at), radius[at], Candidates(candidates.ids[at], candidates.count[at])

"""Blocks of points that are farther apart than `max_distance`: no edge of the tree joins them, so they never meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Self

import numpy as np

from rapids_slink.distributed.cluster import Run
from rapids_slink.distributed.points import Partitions, extremes_of_partitions
from rapids_slink.neighbors.exact import kernels
from rapids_slink.runtime.device import CPU
from rapids_slink.spanning_tree.problem import Problem


@dataclass(frozen=True)
class Boxes:
    """The box of each partition that has rows."""

    low: np.ndarray  # (partitions, d) float64: the least and
    high: np.ndarray  # the greatest value of each column
    first: np.ndarray  # the number of the partition's first row, and
    last: np.ndarray  # of the one after its last
    problem: Problem  # of all rows

    @classmethod
    def of(cls, run: Run, points: Partitions) -> Self | None:
        """None without a `max_distance`, or if boxes do not bound the metric's distances."""
        settings, sizes = points.settings, np.array(points.layout.sizes)
        metric = settings.metric
        if settings.max_distance is None or settings.min_samples > 1 or not metric.boxes or metric.rows != "given":
            return None
        order = [p for group, *_ in points.read for p in group if sizes[p]]
        extremes = np.array(extremes_of_partitions(run, points.read))[np.argsort(order)]
        last = np.cumsum(sizes)[sizes > 0]
        problem = Problem(settings, CPU, points.n_rows, points.n_features, itemsize=8)
        return cls(extremes[:, 0], extremes[:, 1], last - sizes[sizes > 0], last, problem)

    def pairs(self, starts: Sequence[int]) -> list[tuple[int, ...]]:
        """The pairs of blocks that may have points within the distance, and alone each block that is in none of them.

        `starts` has the first row number of each block, then the number of rows.
        """
        ends = []
        for start, stop in pairwise(starts):
            inside = (self.first < stop) & (self.last > start)
            ends.append((self.low[inside].min(axis=0), self.high[inside].max(axis=0)))
        pairs = list(combinations(range(len(ends)), 2))
        gaps = [np.maximum(ends[b][0] - ends[a][1], ends[a][0] - ends[b][1]) for a, b in pairs]
        # As two points, which are no farther apart than any two of the boxes: rounding is monotone.
        points = np.maximum(np.nextafter([np.zeros_like(self.low[0]), *gaps], -np.inf), 0)
        ids = np.arange(len(points), dtype=np.int32)
        weight = kernels(CPU).pair_distances(points, np.zeros_like(ids), ids, self.problem.metric)[1:]
        near: list[tuple[int, ...]] = [p for p, w in zip(pairs, weight, strict=True) if w <= self.problem.max_weight]
        met = {b for pair in near for b in pair}
        return near + [(b,) for b in range(len(ends)) if b not in met]


def pairs_of_blocks(boxes: Boxes | None, starts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The blocks whose trees together hold the tree: all pairs, or those of `Boxes.pairs`."""
    return list(combinations(range(len(starts) - 1), 2)) if boxes is None else boxes.pairs(starts)

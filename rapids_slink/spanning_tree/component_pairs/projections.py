"""The pairs of points between components that may be near, on a CPU: those of near projections on the line between."""

from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Array
from rapids_slink.spanning_tree.component_pairs.components import ComponentPairs, Components, Projections
from rapids_slink.spanning_tree.component_pairs.context import ROUNDING, JoinContext, PointPairs

#: Cost model, in units of one filter pair: a float64 projection, and a comparison of two.
PROJECTION_COST, COMPARISON_COST = 512, 2
PROJECTION_BYTES = 16
FIRST_PAIRS, MAX_COMPARISONS = 2**22, 2**31 - 1
UNDERFLOW = 1e-290  # above the error of products of tiny numbers
ROOT_OF_UNDERFLOW = 1.5e-154  # above the error of the root of a tiny square
PROJECTED = 2**18  # features, or projections, at a time


def by_projection(context: JoinContext, pairs: ComponentPairs, upper: np.ndarray, radius: float) -> PointPairs:
    """The pairs of points that weigh at most their component pair's `upper`, and some others.

    Projections are (x - o)·w, where o is the centre of the scaling and w leads from one centroid to the other.
    The error is below (d + 4) roundings of float64, relative to |x - o||w|; `radius` is the largest |x - o|.
    """
    components, centroids, filter_ = context.components, context.samples[1], context.filter
    end = np.cumsum(components.size[pairs.first] + components.size[pairs.second])
    n_projections, d = int(end[-1]), centroids.shape[1]
    if PROJECTION_COST * n_projections > context.budget or n_projections > context.capacity(PROJECTION_BYTES):
        return None
    length = np.empty_like(upper)
    for at in context.blocks(length.size, d):
        between = centroids[pairs.second[at]] - centroids[pairs.first[at]]
        length[at] = np.sqrt((between**2).sum(axis=1)) + d**0.5 * ROOT_OF_UNDERFLOW
    error = 4 * (d + 8) * EPSILON * radius
    distance = context.search.metric.true_distance_bound(upper, filter_.n_features, np)
    max_difference = (distance * (1 + ROUNDING) + error) * length + UNDERFLOW  # of two points' projections
    value = project(filter_.points, filter_.scaling.centre, components, centroids, pairs, end)
    projected = Projections(value, end, max_difference)
    near, count = near_points(projected, components, pairs, upper, context.core)
    comparisons = int((count[:, 0].astype("int64") * count[:, 1]).sum())
    if COMPARISON_COST * comparisons > context.budget or comparisons > MAX_COMPARISONS:
        return None
    capacity = min(comparisons, FIRST_PAIRS, context.max_pairs)
    while capacity <= context.max_pairs:
        close_pairs, n_pairs = near_pairs(projected, near, count, components, pairs, capacity)
        if n_pairs <= capacity:
            src, dst, pair = close_pairs[:, :n_pairs]
            return src, dst, pair
        capacity = n_pairs
    return None


def project(
    points: np.ndarray,
    origin: np.ndarray,
    components: Components,
    centroids: np.ndarray,
    pairs: ComponentPairs,
    end: Any,
) -> np.ndarray:
    """The values of `Projections`, which end at `end`."""
    value, size = np.empty(int(end[-1])), components.size
    begin = end - size[pairs.first] - size[pairs.second]
    for ends, others, at, sign in (
        (pairs.first, pairs.second, begin, 1.0),
        (pairs.second, pairs.first, begin + size[pairs.first], -1.0),
    ):
        order = np.argsort(ends, kind="stable")
        for which in np.split(order, np.flatnonzero(np.diff(ends[order])) + 1):
            own = ends[which[0]]
            between = sign * (centroids[others[which]] - centroids[own])
            of_own = components.order[components.start[own] : components.start[own + 1]]
            for some in row_blocks(of_own.size, max(points.shape[1], which.size), PROJECTED):
                projected = between @ (points[of_own[some]] - origin).T
                for row, to in zip(projected, at[which], strict=True):
                    value[to + some.start : to + some.stop] = row
    return value


def near_points(
    projected: Projections, components: Components, pairs: ComponentPairs, upper: np.ndarray, core: Array
) -> tuple[np.ndarray, np.ndarray]:
    """The points of each component that have a point of the other within the largest difference of projections.

    With core distances, only those with one of at most `upper`. Returns their numbers within their component, at the
    beginning of the component's part of the projections, and how many each component of a pair has, (M, 2).
    """
    near, count = np.empty(projected.value.size, np.int32), np.empty((projected.end.size, 2), np.int32)
    _near_points(projected, _layout(components, pairs), upper, core, near, count)
    return near, count


def near_pairs(
    projected: Projections, near: Any, count: Any, components: Components, pairs: ComponentPairs, capacity: int
) -> tuple[np.ndarray, int]:
    """The pairs of such points whose projections differ by at most `Projections.max_difference`.

    Returns both points and the number of the component pair, (3, capacity), and how many there are, stored or not.
    """
    close_pairs = np.empty((3, capacity), np.int32)
    return close_pairs, int(_near_pairs(projected, near, count, _layout(components, pairs), close_pairs))


def _layout(components: Components, pairs: ComponentPairs) -> tuple[Any, ...]:
    return components.order, components.start, pairs.first, pairs.second


@njit(cache=True)
def _near_points(projected, layout, upper, core, near, count):
    (value, end, max_difference), (order, start, first, second) = projected, layout
    for c in range(end.size):
        size_a = start[first[c] + 1] - start[first[c]]
        size_b = start[second[c] + 1] - start[second[c]]
        middle = end[c] - size_b
        begin = middle - size_a
        largest, least = value[begin:middle].max(), value[middle : end[c]].min()
        for side in range(2):
            at, size, position = (middle, size_b, start[second[c]]) if side else (begin, size_a, start[first[c]])
            kept = 0
            for i in range(size):
                difference = value[at + i] - largest if side else least - value[at + i]
                is_near = not difference > max_difference[c]
                if core is not None and is_near:
                    is_near = core[order[position + i]] <= upper[c]
                if is_near:
                    near[at + kept] = i
                    kept += 1
            count[c, side] = kept


@njit(cache=True)
def _near_pairs(projected, near, count, layout, close_pairs):
    (value, end, max_difference), (order, start, first, second) = projected, layout
    n_pairs = 0
    for c in range(end.size):
        middle = end[c] - (start[second[c] + 1] - start[second[c]])
        begin = middle - (start[first[c] + 1] - start[first[c]])
        for i in near[begin : begin + count[c, 0]]:
            for j in near[middle : middle + count[c, 1]]:
                if value[middle + j] - value[begin + i] > max_difference[c]:
                    continue
                if n_pairs < close_pairs.shape[1]:
                    close_pairs[0, n_pairs] = order[start[first[c]] + i]
                    close_pairs[1, n_pairs] = order[start[second[c]] + j]
                    close_pairs[2, n_pairs] = c
                n_pairs += 1
    return n_pairs

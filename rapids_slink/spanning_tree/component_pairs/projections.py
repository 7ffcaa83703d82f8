"""The pairs of points between components that may be near, on a CPU: those of near projections on the line between."""

from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.spanning_tree.component_pairs.components import ComponentPairs, Components
from rapids_slink.spanning_tree.component_pairs.context import ROUNDING, JoinContext, PointPairs

#: The cost of a float64 projection, in units of one filter pair.
PROJECTION_COST = 512
PROJECTION_BYTES = 16
UNDERFLOW = 1e-290  # above the error of products of tiny numbers
ROOT_OF_UNDERFLOW = 1.5e-154  # above the error of the root of a tiny square
PROJECTED = 2**18  # features, or projections, at a time


def by_projection(context: JoinContext, pairs: ComponentPairs, upper: np.ndarray, radius: float) -> PointPairs:
    """The pairs of points that weigh at most their component pair's `upper`, and some others.

    Projections are (x - o)·w, where o is the centre of the scaling and w leads from one centroid to the other.
    The error is below (d + 4) roundings of float64, relative to |x - o||w|; `radius` is the largest |x - o|.
    """
    components, centroids, filter_, core = context.components, context.samples[1], context.filter, context.core
    n_projections, d = int((components.size[pairs.first] + components.size[pairs.second]).sum()), centroids.shape[1]
    if PROJECTION_COST * n_projections > context.budget or n_projections > context.capacity(PROJECTION_BYTES):
        return None
    length = np.empty_like(upper)
    for at in context.blocks(length.size, d):
        between = centroids[pairs.second[at]] - centroids[pairs.first[at]]
        length[at] = np.sqrt((between**2).sum(axis=1)) + d**0.5 * ROOT_OF_UNDERFLOW
    error = 4 * (d + 8) * EPSILON * radius
    distance = context.search.metric.true_distance_bound(upper, filter_.n_features, np)
    max_difference = (distance * (1 + ROUNDING) + error) * length + UNDERFLOW  # of two points' projections
    projected = project(filter_.points, filter_.scaling.centre, components, centroids, pairs)
    close_pairs, room = [np.empty((3, 0), np.int32)], context.max_pairs
    for c, ends in enumerate(zip(pairs.first, pairs.second, strict=True)):
        sides = [(components.points(end), values[c]) for end, values in zip(ends, projected, strict=True)]
        if core is not None:
            sides = [(ids[low], values[low]) for ids, values in sides for low in [core[ids] <= upper[c]]]
        (first, of_first), (second, of_second) = sides
        near = near_pairs(of_first, of_second, max_difference[c], room)
        if near is None:
            return None
        room -= near[0].size
        close_pairs.append(np.stack([first[near[0]], second[near[1]], np.full(near[0].size, c, np.int32)]))
    src, dst, pair = np.concatenate(close_pairs, axis=1)
    return src, dst, pair


def project(
    points: np.ndarray, origin: np.ndarray, components: Components, centroids: np.ndarray, pairs: ComponentPairs
) -> tuple[list[Any], list[Any]]:
    """(x - origin)·(centroid of the second - centroid of the first) of each pair's points, by component."""
    of_first, of_second = ([None] * pairs.first.size for _ in range(2))
    for ends, others, sign, values in (
        (pairs.first, pairs.second, 1.0, of_first),
        (pairs.second, pairs.first, -1.0, of_second),
    ):
        order = np.argsort(ends, kind="stable")
        for which in np.split(order, np.flatnonzero(np.diff(ends[order])) + 1):
            own = ends[which[0]]
            between, ids = sign * (centroids[others[which]] - centroids[own]), components.points(own)
            blocks = row_blocks(ids.size, max(points.shape[1], which.size), PROJECTED)
            projected = np.concatenate([between @ (points[ids[some]] - origin).T for some in blocks], axis=1)
            for c, row in zip(which.tolist(), projected, strict=True):
                values[c] = row
    return of_first, of_second


def near_pairs(first: np.ndarray, second: np.ndarray, max_difference: float, room: int) -> tuple[Any, Any] | None:
    """All i and j with second[j] <= first[i] + max_difference; None if there are more than `room`.

    The sum is rounded, by less than the error that `by_projection` adds.
    """
    reach = first + max_difference
    near = np.flatnonzero(reach >= second.min(initial=np.inf))
    facing = np.flatnonzero(second <= reach.max(initial=-np.inf))
    facing = facing[np.argsort(second[facing])]
    count = np.searchsorted(second[facing], reach[near], side="right")
    total = int(count.sum())
    if total > room:
        return None
    return np.repeat(near, count), facing[np.arange(total) - np.repeat(np.cumsum(count) - count, count)]

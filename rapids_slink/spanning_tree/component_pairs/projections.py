"""The pairs of points between components that may be near: those of near projections on the line between.

A CPU finds them in this way, and a GPU where no filter tells the points of two components apart, since they are much
farther apart than they are wide.
"""

from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.device import Array, to_host
from rapids_slink.spanning_tree.component_pairs.components import ComponentPairs, Components
from rapids_slink.spanning_tree.component_pairs.context import ROUNDING, JoinContext, PointPairs

#: The cost of a float64 projection, in units of one filter pair.
PROJECTION_COST = 512
PROJECTION_BYTES = 16
UNDERFLOW = 1e-290  # above the error of products of tiny numbers
ROOT_OF_UNDERFLOW = 1.5e-154  # above the error of the root of a tiny square
PROJECTED = 2**18  # features, or projections, at a time


def by_projection(context: JoinContext, pairs: ComponentPairs, upper: Array, radius: float) -> PointPairs:
    """The pairs of points that weigh at most their component pair's `upper`, and some others.

    Projections are (x - o)·w, where o is the centre of the scaling and w leads from one centroid to the other.
    The error is below (d + 4) roundings of float64, relative to |x - o||w|; `radius` is the largest |x - o|.
    """
    components, filter_, core, xp = context.components, context.filter, context.core, context.device.xp
    first, second, size = (to_host(part) for part in (pairs.first, pairs.second, components.size))
    n_projections, d = int((size[first] + size[second]).sum()), filter_.n_features
    if PROJECTION_COST * n_projections > context.budget or n_projections > context.capacity(PROJECTION_BYTES):
        return None
    centroids, length = context.samples[1], xp.empty_like(upper)
    for at in context.blocks(length.size, d):
        between = centroids[pairs.second[at]] - centroids[pairs.first[at]]
        length[at] = xp.sqrt((between**2).sum(axis=1)) + d**0.5 * ROOT_OF_UNDERFLOW
    error = 4 * (d + 8) * EPSILON * radius
    ends = first, second
    projected = project(filter_.points, filter_.scaling.centre, components, centroids, ends, xp)
    points = [[components.points(number) for number in end] for end in ends]
    highest = xp.stack([ids[values.argmax()] for ids, values in zip(points[0], projected[0], strict=True)])
    lowest = xp.stack([ids[values.argmin()] for ids, values in zip(points[1], projected[1], strict=True)])
    context.tighten(upper, highest, lowest, xp.arange(first.size, dtype="int32"))
    distance = context.search.metric.true_distance_bound(upper, d, xp)
    max_difference = to_host((distance * (1 + ROUNDING) + error) * length + UNDERFLOW)  # of two points' projections
    close_pairs, room = [xp.empty((3, 0), "int32")], context.max_pairs
    for c in range(first.size):
        sides = [(ids[c], values[c]) for ids, values in zip(points, projected, strict=True)]
        if core is not None:
            sides = [(ids[low], values[low]) for ids, values in sides for low in [core[ids] <= upper[c]]]
        (ids, values), (others, other_values) = sides
        near = near_pairs(values, other_values, float(max_difference[c]), room, xp)
        if near is None:
            return None
        room -= near[0].size
        close_pairs.append(xp.stack([ids[near[0]], others[near[1]], xp.full(near[0].size, c, "int32")]))
    src, dst, pair = xp.concatenate(close_pairs, axis=1)
    return src, dst, pair


def project(
    points: Array,
    origin: Array,
    components: Components,
    centroids: Array,
    ends: tuple[np.ndarray, np.ndarray],
    xp: Any,
) -> tuple[list[Any], list[Any]]:
    """(x - origin)·(centroid of the second end - centroid of the first) of each pair's points, by component."""
    of_first, of_second = ([None] * ends[0].size for _ in range(2))
    for (own, others), sign, values in ((ends, 1.0, of_first), (ends[::-1], -1.0, of_second)):
        order = np.argsort(own, kind="stable")
        for which in np.split(order, np.flatnonzero(np.diff(own[order])) + 1):
            number = int(own[which[0]])
            between = sign * (centroids[xp.asarray(others[which])] - centroids[number])
            ids = components.points(number)
            blocks = row_blocks(ids.size, max(points.shape[1], which.size), PROJECTED)
            projected = [between @ (points[ids[some]] - origin).T for some in blocks]
            for c, row in zip(which.tolist(), xp.concatenate(projected, axis=1), strict=True):
                values[c] = row
    return of_first, of_second


def near_pairs(first: Array, second: Array, max_difference: float, room: int, xp: Any) -> tuple[Any, Any] | None:
    """All i and j with second[j] <= first[i] + max_difference; None if there are more than `room`.

    The sum is rounded, by less than the error that `by_projection` adds.
    """
    if not (first.size and second.size):
        return xp.empty(0, "int64"), xp.empty(0, "int64")
    reach = first + max_difference
    near, facing = xp.flatnonzero(reach >= second.min()), xp.flatnonzero(second <= reach.max())
    facing = facing[xp.argsort(second[facing])]
    count = xp.searchsorted(second[facing], reach[near], side="right")
    total = int(count.sum())
    if total > room:
        return None
    end, number = xp.cumsum(count), xp.arange(total)
    row = xp.searchsorted(end, number, side="right")
    return near[row], facing[number - (end - count)[row]]

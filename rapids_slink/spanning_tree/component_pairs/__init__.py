"""Connect the last components all at once, by bounds on all pairs of them, instead of by a search in each round.

Let w be the vector from the centroid of a component A to that of another, B. With

    separation(A, B) = (least x_b·w of B's points - largest x_a·w of A's) / |w|

no point of A is nearer to one of B than their separation. The two points that attain it, the *support points*, are
nearly the closest pair if the components are well separated.

1. The products of all points with all centroids give every separation and the support points. Where the separation is
   small, or negative, samples of both components are compared as well.
2. The weights of these pairs of points give a spanning tree of the components. A pair of points of A and B that is
   heavier than the bottleneck, the heaviest edge on the tree's path from A to B, closes a cycle of lighter edges and so
   is not in the minimum spanning tree.
3. Few component pairs have a separation below their bottleneck, and few pairs of points are left of these. They are
   found by the fused filter, if the GPU has it and fp16 resolves the distances, or by the points' projections x·w.
4. The minimum spanning tree of the components by these pairs of points completes the forest.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.metrics import EPSILON
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter.bounds import (
    EPSILONS,
    NORM_FEATURES,
    accumulation_bound,
    shrink_factor,
)
from rapids_slink.neighbors.filter.product import ProductFilter
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Device, to_host
from rapids_slink.spanning_tree.component_pairs.bottlenecks import path_bottlenecks
from rapids_slink.spanning_tree.component_pairs.components import (
    SAMPLED,
    ComponentPairs,
    Components,
    Projections,
    SeparationErrors,
)
from rapids_slink.spanning_tree.component_pairs.context import FOUND_BYTES, ROUNDING, JoinContext
from rapids_slink.spanning_tree.component_pairs.kernels import kernels
from rapids_slink.spanning_tree.edges import EdgeList, spanning_forest

MAX_COMPONENTS = 4096  # their pairs are listed
PAIR_BYTES, CENTROID_BYTES = 128, 24  # of each pair while separations are measured, and of a centroid's feature
MAX_OVERLAPPING = 32  # pairs of no or a small separation, for each component
MIN_SAMPLED = 8  # points of a component, to be compared with another's
FEW_EDGES = 2**15  # whose tree takes less time on the host than a GPU's calls do
#: Pairs of points in a round of searches: below, rounds take less time than this.
MIN_ROUND_PAIRS = {"cpu": 2**23, "cuda": 2**32}
#: The least share of all points, and the least rows per component, that have to search if components are separated.
MIN_ROW_SHARE, MIN_ROWS_PER_COMPONENT = 1 / 16, 48
ROUNDS = 3  # of searches, by estimate, that this replaces
#: Cost model, in units of one filter pair: a float64 projection, a comparison of two, an exact weight.
PROJECTION_COST, COMPARISON_COST, WEIGHT_COST = 512, 2, 1024
PROJECTION_BYTES = 16
FIRST_PAIRS, MAX_PAIRS, MAX_COMPARISONS = 2**22, 2**26, 2**31 - 1
UNDERFLOW = 1e-290  # more than products of tiny numbers lose
ROOT_OF_UNDERFLOW = 1.5e-154  # more than the root of a square loses

#: Pairs of points, src and dst, and which component pair's they are, or None if they are too many.
PointPairs = tuple[Any, Any, Any] | None


def is_worthwhile(search: Any, components: int, forest: Any, rows: Any) -> bool:
    """Whether to connect so many components at once costs less than rounds of searches of the `rows`.

    Many points of a component have to search if it is well separated: their neighbours are all in it.
    """
    if not isinstance(search, BruteForceSearch) or not isinstance(search.filter, ProductFilter):
        return False
    n, m = forest.component.size, rows.size
    if components > MAX_COMPONENTS or m * n < MIN_ROUND_PAIRS[search.device.name]:
        return False
    if m < max(MIN_ROWS_PER_COMPONENT * components, MIN_ROW_SHARE * n):
        return False
    taken = PAIR_BYTES * components**2 / 2 + CENTROID_BYTES * components * search.filter.n_features
    return bool(taken <= search.free_bytes / 4)


def connect_components(
    search: BruteForceSearch, core: Any, component: Any, k: int, rows: Any, report: Report
) -> tuple[Any, Any, Any] | None:
    """The edges that make one tree of all k components, or None if too many pairs of points may be among them.

    Parameters
    ----------
    search : BruteForceSearch
    core : (n,) float64 array, optional
        As in a `SearchTask`.
    component : (n,) int32 array
        The label of each point's component.
    k : int
    rows : array
        The points that would have to search otherwise.
    report : Report

    Returns
    -------
    src, dst, weight : arrays of the device or the host, or None
        ``src < dst``, in the total order.
    """
    components = Components(*kernels(search.device).sort_by_component(component, k))
    context = JoinContext(search, core, components, ROUNDS * rows.size * component.size)
    pairs, radius = _separations(context)
    weight = context.pair_weights(*pairs.support)
    if not _compare_samples(context, pairs, weight):
        return None
    pairs, upper = _within_bottlenecks(context, pairs, weight)
    del weight
    found = _by_filter(context, pairs, upper)
    if found is None:
        found = _by_projection(context, pairs, upper, radius)
    if found is None:
        return None
    return _lightest_edges(context, found, upper, report)


def _separations(context: JoinContext) -> tuple[ComponentPairs, float]:
    """All pairs, and an upper bound of the points' distances from the centre of the scaling.

    Quantizing moves a point by at most e, and a product with a quantized centroid m is off by at most η|y||m|. A
    separation is a sum of four products.
    """
    components, filter_, xp = context.components, context.filter, context.device.xp
    dtype = filter_.kernels.FILTER_DTYPE
    centroids = filter_.kernels.quantize(context.samples[1], filter_.scaling, dtype)
    supports = context.kernels.new_supports(len(components))
    n, half_norm, error = components.order.size, centroids.half_norm.max(), xp.zeros((), "float32")
    of_a_tile = filter_.kernels.TILE_ROWS * filter_.kernels.TILE_POINTS // len(components)
    by_memory = context.capacity(8 * (len(components) + filter_.n_features) + 64)
    for at in equal_slices(slice(0, n), max(1, min(n, of_a_tile, by_memory))):
        rows = filter_.quantized(components.order[at])
        product = filter_.workspace.product(rows, centroids)
        context.kernels.update_supports(product, components.number[at], at.start, supports)
        half_norm, error = xp.maximum(half_norm, rows.half_norm.max()), xp.maximum(error, rows.error.max())
    y = centroids.y.astype("float64")
    width = centroids.y.shape[1] + NORM_FEATURES
    rounding = 2 * EPSILONS["float32"]
    square = 2 * float(half_norm) / shrink_factor(width, "float32") * (1 + rounding)  # of the longest y
    moved = 2**0.5 * float(error)
    product_error = 4 * (accumulation_bound(width, "float32") + rounding) * square
    errors = SeparationErrors(product_error, ROUNDING * square, 2 * moved)
    pairs = ComponentPairs(*context.kernels.measure_pairs(supports, components.order, y @ y.T, errors))
    return pairs, (square**0.5 + moved) / filter_.scaling.scale


def _compare_samples(context: JoinContext, pairs: ComponentPairs, weight: Any) -> bool:
    """Lower the weights of pairs of small separation to the least of their samples; False if there are too many."""
    near = context.kernels.overlapping(pairs, weight, context.radius_terms)
    width = min(SAMPLED, int((context.budget / WEIGHT_COST / max(1, near.size)) ** 0.5))
    if near.size > MAX_OVERLAPPING * len(context.components) or width < MIN_SAMPLED:
        return False
    for at in context.blocks(near.size, SAMPLED**2):
        sampled = context.kernels.pair_samples(context.samples[0], pairs, near[at], -(-SAMPLED // width))
        context.tighten(weight, *sampled)
    return True


def _within_bottlenecks(context: JoinContext, pairs: ComponentPairs, weight: Any) -> tuple[ComponentPairs, Any]:
    """The pairs that the tree of these weights does not rule out, and their bottlenecks."""
    on = _device_for(weight.size, context)
    first, second, weight = (on.asarray(part) for part in (pairs.first, pairs.second, weight))
    taken = _tree(first, second, weight, len(context.components), on)
    tree = (to_host(column[taken]) for column in (first, second, weight))
    bottlenecks = context.device.asarray(path_bottlenecks(*tree))
    at, upper = context.kernels.within_bottlenecks(pairs, bottlenecks, context.radius_terms)
    return pairs.take(at), upper


def _by_filter(context: JoinContext, pairs: ComponentPairs, upper: Any) -> PointPairs:
    """The pairs of points of weight at most their component pair's `upper`, and some others, by the fused filter.

    Each component is padded to whole blocks of rows, so that a tile has points of one component pair.
    """
    if not context.filter.is_symmetric:
        return None
    from rapids_slink.spanning_tree.component_pairs.cuda import plan_items, work_items

    filter_: Any = context.filter
    plan = plan_items(context.components, pairs)
    if plan.formed > context.budget or plan.n_items > context.capacity(FOUND_BYTES):
        return None
    image = filter_.row_bytes(filter_.n_features)
    if (plan.n_rows - context.components.order.size) * image > context.search.free_bytes / 4:
        return None
    order, items = work_items(context.components, pairs, plan)
    found: PointPairs = filter_.component_pairs(order, items, upper, _most_found(context))
    return found


def _by_projection(context: JoinContext, pairs: ComponentPairs, upper: Any, radius: float) -> PointPairs:
    """The same by the points' projections (x - o)·w, where o is the centre of the scaling.

    It is off by less than (d + 4) of float64's roundings, relative to |x - o||w|; `radius` is the largest |x - o|.
    """
    components, centroids, xp = context.components, context.samples[1], context.device.xp
    filter_ = context.filter
    end = xp.cumsum(components.size[pairs.first] + components.size[pairs.second])
    n_projections, d = int(end[-1]), centroids.shape[1]
    if PROJECTION_COST * n_projections > context.budget or n_projections > context.capacity(PROJECTION_BYTES):
        return None
    length = xp.empty_like(upper)
    for at in context.blocks(length.size, d):
        between = centroids[pairs.second[at]] - centroids[pairs.first[at]]
        length[at] = xp.sqrt((between**2).sum(axis=1)) + d**0.5 * ROOT_OF_UNDERFLOW
    error = 4 * (d + 8) * EPSILON * radius
    distance = context.search.metric.true_distance_bound(upper, filter_.n_features, xp)
    most = (distance * (1 + ROUNDING) + error) * length + UNDERFLOW  # that two points' projections may differ by
    origin = filter_.scaling.centre
    projected = Projections(
        context.kernels.project(filter_.points, origin, components, centroids, pairs, end), end, most
    )
    near, count = context.kernels.near_points(projected, components, pairs, upper, context.core)
    comparisons = int((count[:, 0].astype("int64") * count[:, 1]).sum())
    if COMPARISON_COST * comparisons > context.budget or comparisons > MAX_COMPARISONS:
        return None
    most_found = _most_found(context)
    capacity = min(comparisons, FIRST_PAIRS, most_found)
    while capacity <= most_found:
        found, n_found = context.kernels.near_pairs(projected, near, count, components, pairs, capacity)
        if n_found <= capacity:
            src, dst, pair = found[:, :n_found]
            return src, dst, pair
        capacity = n_found
    return None


def _lightest_edges(context: JoinContext, found: Any, upper: Any, report: Report) -> tuple[Any, Any, Any]:
    """The minimum spanning tree of the components by the pairs of points that were found."""
    weight = context.tighten(upper, *found)  # only the lightest of each component pair is needed
    src, dst, pair = found
    light = context.search.kernels.flatnonzero(weight <= upper[pair])
    report.count("connect", joined_at_once=1, pairs_kept=light.size)
    on, of_point = _device_for(light.size, context), context.components.of_point
    columns = {"src": on.asarray(src[light]), "dst": on.asarray(dst[light]), "weight": on.asarray(weight[light])}
    sort_in_place(columns, on.xp)
    src, dst, weight = columns.values()
    first, second = (on.asarray(of_point[context.device.asarray(end)]) for end in (src, dst))
    taken = _tree(first, second, weight, len(context.components), on)
    if taken.size != len(context.components) - 1:
        raise RuntimeError("some components are not connected by any pair of points: please report this")
    return src[taken], dst[taken], weight[taken]


def _tree(first: Any, second: Any, weight: Any, k: int, device: Device) -> Any:
    """The positions, ascending, of the edges in the minimum spanning tree of k components; ties go to the earlier."""
    taken, _ = spanning_forest(EdgeList(first, second, weight, k), device)
    return device.xp.flatnonzero(taken)


def _device_for(edges: int, context: JoinContext) -> Device:
    """The device on which the tree of so many edges is computed."""
    return CPU if edges <= FEW_EDGES else context.device


def _most_found(context: JoinContext) -> int:
    """How many pairs of points may be left."""
    return min(context.budget // WEIGHT_COST, context.capacity(FOUND_BYTES), MAX_PAIRS)

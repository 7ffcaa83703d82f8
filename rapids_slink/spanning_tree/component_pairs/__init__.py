"""Connect the last components all at once, by bounds on all pairs of them, instead of by a search in each round.

Let w be the vector from the centroid of a component A to the centroid of another, B. With

    separation(A, B) = (least x_b·w of B's points - largest x_a·w of A's points) / |w|

no point of A is nearer to a point of B than their separation. The two points that attain it, the *support points*, are
nearly the closest pair if the components are well separated.

1. The products of all points with all centroids give every separation and the support points. If the separation is
   small or negative, samples of both components are compared as well.
2. The weights of these pairs of points give a spanning tree of the components. The bottleneck of A and B is the
   heaviest edge on the tree's path from A to B. A pair of points of A and B that is heavier closes a cycle of lighter
   edges, so it is not in the minimum spanning tree.
3. Few component pairs have a separation below their bottleneck, and they have few pairs of points to test. A GPU finds
   these by the fused filter. A CPU, and a GPU if too many pass the filter, finds them by the points' projections x·w.
4. The minimum spanning tree of the components over these pairs of points completes the forest.
"""

from functools import partial
from typing import Any, TypeGuard

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter.bounds import FLOAT32_EPSILON, accumulation_bound, shrink_factor
from rapids_slink.neighbors.filter.product import ProductFilter
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.neighbors.task import Search
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Array, Device, half, to_host
from rapids_slink.spanning_tree.component_pairs.bottlenecks import path_bottlenecks
from rapids_slink.spanning_tree.component_pairs.components import SAMPLED, ComponentPairs, Components, SeparationErrors
from rapids_slink.spanning_tree.component_pairs.context import (
    FOUND_BYTES,
    ROUNDING,
    WEIGHT_COST,
    JoinContext,
    PointPairs,
)
from rapids_slink.spanning_tree.component_pairs.projections import by_projection
from rapids_slink.spanning_tree.edges import EdgeList, spanning_forest
from rapids_slink.spanning_tree.forest import Forest

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

MAX_COMPONENTS = 4096  # their pairs are listed
PAIR_BYTES, CENTROID_BYTES = 128, 24  # per pair while separations are measured, and per feature of a centroid
MAX_OVERLAPPING = 32  # pairs of small or negative separation, per component
MIN_SAMPLED = 8  # points of a component that are compared with another's
FEW_EDGES = 2**15  # the tree of fewer edges takes less time on the host than a GPU's calls do
#: Rounds of searches of fewer pairs of points, of up to `FEATURES` features, take less time than connecting at once.
MIN_ROUND_PAIRS, FEATURES = {"cpu": 2**23, "cuda": 2**32}, 128
#: The least share of all points, and the least rows per component, that have to search if components are separated.
MIN_ROW_SHARE, MIN_ROWS_PER_COMPONENT = 1 / 16, 48
ROUNDS = 3  # the estimated number of rounds of searches that this replaces


def is_worthwhile(search: Search, components: int, forest: Forest, rows: Array) -> TypeGuard[BruteForceSearch]:
    """Whether connecting that many components at once costs less than rounds of searches of the `rows`.

    Many points of a well separated component have to search, because all their neighbours are in it. It takes products
    that are as precise as the separations assume.
    """
    if not isinstance(search, BruteForceSearch) or not isinstance(search.filter, ProductFilter):
        return False
    n, m = forest.component.size, rows.size
    products = m * n * max(1.0, search.filter.n_features / FEATURES)
    if components > MAX_COMPONENTS or products < MIN_ROUND_PAIRS[search.device.name]:
        return False
    if m < max(MIN_ROWS_PER_COMPONENT * components, MIN_ROW_SHARE * n):
        return False
    needed = PAIR_BYTES * components**2 / 2 + CENTROID_BYTES * components * search.filter.n_features
    return bool(needed <= search.free_bytes / 4) and search.filter.kernels.products_keep_bound()


def connect_components(
    search: BruteForceSearch, core: Array, component: Array, k: int, rows: Array, report: Report
) -> tuple[Any, Any, Any] | None:
    """The edges that join all k components into one tree, or None if too many pairs of points are candidates.

    `core` is as in a `SearchTask`, `component` is each point's label, and `rows` are the points that would otherwise
    have to search. The edges, arrays of the device or the host, are in the total order, ``src < dst``.
    """
    components = Components(*kernels(search.device).sort_by_component(component, k))
    context = JoinContext(search, core, components, ROUNDS * rows.size * component.size)
    pairs, radius = _separations(context)
    weight = context.pair_weights(*pairs.support)
    if not _compare_samples(context, pairs, weight):
        return None
    pairs, upper = _within_bottlenecks(context, pairs, weight)
    del weight
    close_pairs = _by_filter(context, pairs, upper) if search.device.is_gpu else None
    if close_pairs is None:
        close_pairs = by_projection(context, pairs, upper, radius)
    return None if close_pairs is None else _lightest_edges(context, close_pairs, upper, report)


def _separations(context: JoinContext) -> tuple[ComponentPairs, float]:
    """All pairs, and an upper bound of the points' distances from the centre of the scaling.

    Quantizing moves a point by at most e, and the error of a product with a quantized centroid m is at most η|y||m|. A
    separation is a sum of four products.
    """
    components, filter_, xp = context.components, context.filter, context.device.xp
    centroids = filter_.kernels.quantize(context.samples[1], filter_.scaling)
    supports = context.kernels.new_supports(len(components))
    n, half_norm, error = components.order.size, centroids.half_norm.max(), xp.zeros((), "float32")
    of_a_tile = filter_.kernels.TILE_ROWS * filter_.kernels.TILE_POINTS // len(components)
    by_memory = context.capacity(8 * (len(components) + filter_.n_features) + 64)
    for at in equal_slices(slice(0, n), max(1, min(n, of_a_tile, by_memory))):
        rows = filter_.kernels.quantize(filter_.points, filter_.scaling, components.order[at])
        product = filter_.kernels.product(rows, centroids)
        context.kernels.update_supports(product, components.number[at], at.start, supports)
        del product  # the next one takes its memory
        half_norm, error = xp.maximum(half_norm, rows.half_norm.max()), xp.maximum(error, rows.error.max())
    y = centroids.y.astype("float64")
    width = centroids.y.shape[1]
    rounding = 2 * FLOAT32_EPSILON
    square = 2 * float(half_norm) / shrink_factor(width) * (1 + rounding)  # of the longest y
    moved = 2**0.5 * float(error)
    product_error = 4 * (accumulation_bound(width) + rounding) * square
    errors = SeparationErrors(product_error, ROUNDING * square, 2 * moved)
    pairs = ComponentPairs(*context.kernels.measure_pairs(supports, components.order, y @ y.T, errors))
    return pairs, (square**0.5 + moved) / filter_.scaling.scale


def _compare_samples(context: JoinContext, pairs: ComponentPairs, weight: Array) -> bool:
    """Lower the weights of pairs of small separation to the least of their samples; False if they are too many."""
    near = context.kernels.overlapping(pairs, weight, context.radius_terms)
    width = min(SAMPLED, int((context.budget / WEIGHT_COST / max(1, near.size)) ** 0.5))
    if near.size > MAX_OVERLAPPING * len(context.components) or width < MIN_SAMPLED:
        return False
    for at in context.blocks(near.size, SAMPLED**2):
        sampled = context.kernels.pair_samples(context.samples[0], pairs, near[at], -(-SAMPLED // width))
        context.tighten(weight, *sampled)
    return True


def _within_bottlenecks(context: JoinContext, pairs: ComponentPairs, weight: Array) -> tuple[ComponentPairs, Any]:
    """The pairs that the tree of these weights does not rule out, and their bottlenecks."""
    device = _device_for(weight.size, context)
    first, second, weight = (device.asarray(part) for part in (pairs.first, pairs.second, weight))
    in_tree = _tree(first, second, weight, len(context.components), device)
    tree = (to_host(column[in_tree]) for column in (first, second, weight))
    bottlenecks = context.device.asarray(path_bottlenecks(*tree))
    at, upper = context.kernels.within_bottlenecks(pairs, bottlenecks, context.radius_terms)
    return pairs.take(at), upper


def _by_filter(context: JoinContext, pairs: ComponentPairs, upper: Array) -> PointPairs:
    """The pairs of points that weigh at most their component pair's `upper`, and some others, by the fused filter.

    By a finer one if too many others pass, as of components that are much farther apart than they are wide. Each
    component is padded to whole blocks of rows, so a tile has points of one component pair only.
    """
    from rapids_slink.spanning_tree.component_pairs.cuda import plan_items, work_items

    filter_: Any = context.filter
    plan = plan_items(context.components, pairs)
    if plan.formed > context.budget or plan.n_items > context.capacity(FOUND_BYTES):
        return None
    image = filter_.row_bytes(filter_.n_features)
    if (plan.n_rows - context.components.order.size) * image > context.search.free_bytes / 4:
        return None
    order, items = work_items(context.components, pairs, plan)
    close_pairs: PointPairs = None
    while filter_ and close_pairs is None:
        close_pairs = filter_.component_pairs(order, items, upper, context.max_pairs)
        filter_ = filter_.finer() if close_pairs is None else None
    return close_pairs


def _lightest_edges(context: JoinContext, close_pairs: Any, upper: Array, report: Report) -> tuple[Any, Any, Any]:
    """The minimum spanning tree of the components by these pairs of points."""
    weight = context.tighten(upper, *close_pairs)  # only the lightest of each component pair is needed
    src, dst, pair = close_pairs
    light = context.search.kernels.flatnonzero(weight <= upper[pair])
    report.count("connect", joined_at_once=1, pairs_kept=light.size)
    device, of_point = _device_for(light.size, context), context.components.of_point
    columns = {name: device.asarray(column[light]) for name, column in (("src", src), ("dst", dst), ("weight", weight))}
    sort_in_place(columns, device.xp)
    src, dst, weight = columns.values()
    first, second = (device.asarray(of_point[context.device.asarray(end)]) for end in (src, dst))
    in_tree = _tree(first, second, weight, len(context.components), device)
    if in_tree.size != len(context.components) - 1:
        raise RuntimeError("some components are not connected by any pair of points: please report this")
    return src[in_tree], dst[in_tree], weight[in_tree]


def _tree(first: Any, second: Any, weight: Array, k: int, device: Device) -> Any:
    """The ascending positions of the edges in the minimum spanning tree of k components; the earlier of ties wins."""
    in_tree, _ = spanning_forest(EdgeList(first, second, weight, k), device)
    return device.xp.flatnonzero(in_tree)


def _device_for(edges: int, context: JoinContext) -> Device:
    """The device that computes a tree of that many edges."""
    return CPU if edges <= FEW_EDGES else context.device

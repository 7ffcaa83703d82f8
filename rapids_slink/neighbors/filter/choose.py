"""The choice of a filter."""

from dataclasses import replace
from math import frexp, inf
from typing import Any

import numpy as np

from rapids_slink.metrics import WORD_BITS, Metric
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter.bounds import MAX_FEATURES, Scaling, scale_of
from rapids_slink.neighbors.filter.direct import direct_filter
from rapids_slink.neighbors.filter.product import FilterCosts, TileFilter, worthwhile_projection
from rapids_slink.neighbors.rows import product_form
from rapids_slink.runtime.device import Array, Device, half

#: Rows, about, that the centre is found by.
CENTRE_ROWS = 2**10
#: Read on two cores, which multiply a pair once for both points; float32 moves no coordinate far.
CPU_COSTS = FilterCosts(1.2e-11, 0, 6e-11, rounding=1e-6)
#: Squares of shorter rows lose bits to underflow, and no bound holds for what is computed from them.
SHORTEST_ROW = 1e-140


def choose_filter(exact: ExactPoints, device: Device, max_weight: float = inf) -> tuple[TileFilter | None, ExactPoints]:
    """The filter for some points and queries, and these in the type that is re-ranked fastest.

    There is none if it could prove nothing for these values, if the metric or the GPU has none, or if computing the
    distances takes as little time: on a CPU, and of bits or codes. No surrogate distance above `max_weight` is wanted.
    """
    metric = exact.metric
    if exact.points.dtype == "uint64":
        return _filter_of_bits(exact, device), exact
    if metric.filter in ("bits", "codes", "none"):
        return None, exact
    if metric.filter == "direct":
        return direct_filter(exact, device) if device.is_gpu else None, exact
    if not all(serves_products(rows, metric, device) for rows in (exact.points, exact.queries)):
        return None, exact
    fused, points = fused_filter(device), product_form(exact.points, metric)
    queries = points if exact.queries is exact.points else product_form(exact.queries, metric)
    scaling = scaling_of(*([points] if queries is points else [points, queries]), device=device)
    within = float(metric.true_distance_bound(np.float64(max_weight), points.shape[1], np))
    if fused:
        if metric.formula == "squared_euclidean":
            from rapids_slink.neighbors.filter.cuda import to_uint8

            values = to_uint8(points, scaling)
            exact = replace(exact, points=values, queries=values if queries is points else to_uint8(queries, scaling))
        return fused(points, queries, metric, device, scaling, exact, within=within), exact
    from rapids_slink.neighbors.filter.cpu import BlasFilter, ProjectedFilter

    projection = worthwhile_projection(points, len(queries), scaling, CPU_COSTS, device, within)
    if projection is None:
        return BlasFilter(points, queries, metric, device, scaling), exact
    return ProjectedFilter(points, queries, metric, device, scaling, projection), exact


def serves_products(rows: Array, metric: Metric, device: Device) -> bool:
    """Whether products of low precision prove something of such rows of a metric with a product form."""
    fused, d = fused_filter(device), rows.shape[1]
    if d > MAX_FEATURES or (device.is_gpu and not (fused and fused.serves(d))):
        return False
    return metric.formula != "cosine" or float(rows[:, -1].min()) >= SHORTEST_ROW


def _filter_of_bits(exact: ExactPoints, device: Device) -> TileFilter | None:
    if not device.is_gpu:
        return None
    from rapids_slink.neighbors.filter.fused.counts import MAX_BITS, CountFilter
    from rapids_slink.neighbors.filter.fused.launch import has_bit_products

    is_served = has_bit_products() and WORD_BITS * exact.points.shape[1] <= MAX_BITS
    return CountFilter(exact, device) if is_served else None


def scaling_of(*point_sets: Any, device: Device) -> Scaling:
    """The scaling of one or several arrays of points, the first of them centred."""
    centre = half(device, __package__).centre_of_rows(point_sets[0], max(1, len(point_sets[0]) // CENTRE_ROWS))
    ranges = half(device, __package__).value_ranges(point_sets, centre)
    deviation = max(one.deviation for one in ranges)
    scale = min(scale_of(deviation, points) for points in point_sets)
    byte_values = all(one.byte_values for one in ranges)
    bits = min(8, max(1, frexp(max(one.largest for one in ranges))[1]))
    return Scaling(centre, scale, byte_values, bits)


def fused_filter(device: Device) -> Any:
    """The class of the fused filter; None on a CPU, and on a GPU without its products."""
    if not device.is_gpu:
        return None
    from rapids_slink.neighbors.filter.fused.filter import FusedFilter
    from rapids_slink.neighbors.filter.fused.launch import has_products

    return FusedFilter if has_products() else None

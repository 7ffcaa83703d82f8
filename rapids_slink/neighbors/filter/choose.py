"""The choice of a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter.bounds import MAX_FEATURES
from rapids_slink.neighbors.filter.direct import direct_filter
from rapids_slink.neighbors.filter.product import ProductFilter, TileFilter
from rapids_slink.neighbors.filter.quantize import Scaling
from rapids_slink.neighbors.rows import unit_rows
from rapids_slink.runtime.device import Device

#: Squares of shorter rows lose bits to underflow, and no bound holds for what is computed from them.
SHORTEST_ROW = 1e-140


def choose_filter(exact: ExactPoints, device: Device, fused: bool = True) -> tuple[TileFilter | None, ExactPoints]:
    """The filter for some points and queries, and these in the type that is re-ranked fastest.

    Parameters
    ----------
    exact : ExactPoints
    device : Device
    fused : bool
        Whether to use the fused filter, if the GPU supports it.

    Returns
    -------
    filter : TileFilter or None
        None if it could prove nothing for these values.
    exact : ExactPoints
    """
    metric, kernels = exact.metric, device.kernels("neighbors.filter")
    if metric.filter == "direct":
        return direct_filter(exact, device), exact
    if exact.points.shape[1] > MAX_FEATURES or not kernels.keeps_accumulation_bound(kernels.FILTER_DTYPE):
        return None, exact
    points, queries = exact.points, exact.queries
    if metric.formula == "cosine":
        if float(min(points[:, -1].min(), queries[:, -1].min())) < SHORTEST_ROW:
            return None, exact
        points = unit_rows(exact.points)
        queries = points if exact.queries is exact.points else unit_rows(exact.queries)
    scaling = Scaling.of(*([points] if queries is points else [points, queries]), device=device)
    if metric.formula == "squared_euclidean":
        found = kernels.to_uint8(points, scaling)
        exact = replace(exact, points=found, queries=found if queries is points else kernels.to_uint8(queries, scaling))
    kind = fused_filter(device, exact.points) if fused else None
    if kind is None:
        return ProductFilter(points, queries, metric, device, scaling), exact
    return kind(points, queries, metric, device, scaling, exact), exact


def fused_filter(device: Device, values: Any = None) -> Any:
    """The class of the fused filter, or None if the device does not support it.

    With `values`, the points as they are re-ranked, the fastest class that supports them.
    """
    if not device.is_gpu:
        return None
    from rapids_slink.neighbors.filter.hopper import ByteFilter, FusedFilter, is_hopper

    if not is_hopper() or not device.kernels("neighbors.filter").keeps_accumulation_bound("float16"):
        return None
    return ByteFilter if values is not None and ByteFilter.supports(values) else FusedFilter

"""k-NN graphs and nearest neighbours, exact.

    points ──▶ rows of the metric ──▶ search ──▶ SearchResult: ids and surrogate distances in order, bound reached
    rows.py                           plan.py

A search solves a `task.SearchTask`: for some rows, find the k nearest points outside the row's group. The k-NN graph is
the task in which every point is a group; the search of connect has the components for groups and k = 1;
`nearest_neighbors` has two point sets and no groups.

    exact/           surrogate distances in float64, and lists of the least
    filter/          tests in low precision that rule pairs out: matrix products, fused on a GPU; float32 terms
    brute_force.py   all pairs: filter, re-rank, prove
    matrix/          all distances of codes, stored, on a GPU
    trees/           few features, low dimension: a k-d tree, a bounding volume hierarchy
    small_batch/     few queries, on a GPU
    within/          all pairs within a distance, not by tasks: near_pairs.py makes frames of them

Points may have core distances: then a search is by mutual reachability (task.py), for HDBSCAN's
hierarchy.
"""

from math import inf
from typing import Any

from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors.plan import estimate_search, prepare_search
from rapids_slink.neighbors.rows import check_zeros_between, in_one_type, metric_rows, zero_rows
from rapids_slink.neighbors.task import (
    BoundsByLists,
    NeighborLists,
    PartLists,
    Search,
    SearchResult,
    SearchTask,
    by_mutual_reachability,
)
from rapids_slink.points import as_points
from rapids_slink.points.check import as_integer, check_finite, check_same_columns
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, sequential

#: Bytes of an edge in a frame.
EDGE_BYTES = 16
#: A search for few queries may take this number of bytes even if the other search takes less.
SMALL_BATCH_BYTES = 2**28
#: cuDF counts rows in int32.
MAX_FRAME_ROWS = 2**31 - 1


def neighbor_lists(
    search: Search,
    n: int,
    k: int,
    device: Device,
    min_samples: int = 1,
    core: Array = None,
    part_lists: PartLists | None = None,
    max_weight: float = inf,
    bounds_by_lists: BoundsByLists | None = None,
) -> NeighborLists:
    """Each of the n points' k nearest others.

    The weights are mutual reachability if `min_samples` is above 1 or core distances are given. The
    `part_lists` of that length within two parts of the points are not searched for again. If neither is the case,
    points at more than `max_weight` are not listed, nor those above what `bounds_by_lists` makes; see `_within`.
    """
    rows = device.xp.arange(n, dtype="int32")
    if (bounds_by_lists or max_weight < inf) and part_lists is None and core is None and min_samples == 1:
        upper = device.xp.full(n, max_weight) if max_weight < inf else None
        task = SearchTask(rows, min(k, n - 1), rows, rows, upper, bounds_by_lists=bounds_by_lists)
        return _within(search.find(task), rows, device)
    nearest = search.find(SearchTask(rows, min(k, n - 1), rows, rows, part_lists=part_lists))
    lists = NeighborLists(nearest.ids, nearest.weights)
    if core is None and min_samples > 1:
        core = lists.weights[:, min_samples - 1].copy()
    return lists if core is None else by_mutual_reachability(lists, core, device)


def _within(result: SearchResult, rows: Array, device: Device) -> NeighborLists:
    """Lists up to a search's bounds. A row that has fewer lists itself, which is in no round outside its component.

    Every edge from a row to a point that it does not list is above its bound, or comes after the last one within it.
    """
    xp = device.xp
    last, weight = result.ids[:, -1], result.weights[:, -1]
    is_full = (last >= 0) & (weight <= result.upper)
    bound = xp.where(is_full, last, 0), xp.where(is_full, weight, xp.nextafter(result.upper, inf))
    ids = xp.where(result.ids < 0, rows[:, None], result.ids)
    return NeighborLists(ids, result.weights, unlisted_lower_bound=bound)


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: Device) -> Any:
    """`api.knn_graph` on a device, within a run."""
    n_neighbors = check_n_neighbors(n_neighbors)

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return _estimate_graph(n, d, itemsize, n_neighbors, metric, device)

    points = as_points(X, device, following, metric=metric, categories=True)
    values, (n, d) = points.values, points.values.shape
    metric = metric.of_columns(points.names, d)
    edges = PreallocatedFrame.empty(device, n * n_neighbors, EDGE_TYPES)
    search = prepare_search(metric_rows(metric, values, device, compact=True), device, Report(), metric=metric)
    lists = neighbor_lists(search, n, n_neighbors, device)
    src, dst, weight = edges.columns.values()
    src.reshape(n, n_neighbors)[...] = device.xp.arange(n, dtype="int32")[:, None]
    dst[...] = lists.ids.ravel()
    weight[...] = distances(metric, lists.weights.ravel(), (src, dst), (values, values), device)
    return points.frame(edges.frame)


def nearest_neighbors(X: Any, Y: Any, metric: Metric, device: Device) -> Any:
    """`api.nearest_neighbors` on a device, within a run."""
    queries = as_points(X, device, metric=metric, checked=False)
    m, d = queries.values.shape

    small: Array = None

    def search(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return _estimate_nearest((m, n, d), max(itemsize, queries.values.dtype.itemsize), metric, device)

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        nonlocal small
        small = _small_batch((m, n, d), (itemsize, queries.values.dtype.itemsize), metric, device)
        if small and small.estimate.least > SMALL_BATCH_BYTES and small.estimate.least > search(n, d, itemsize).least:
            small = None
        return small.estimate if small else search(n, d, itemsize)

    points = as_points(Y, device, following, metric=metric, name="Y", checked=False)
    check_same_columns((d, queries.names), (points.values.shape[1], points.names))
    metric = metric.of_columns(points.names or queries.names, d)
    edges = PreallocatedFrame.empty(device, m, EDGE_TYPES)
    both = in_one_type(queries.values, points.values)
    if small and small.write_edges(*both, *edges.columns.values()):
        return queries.frame(edges.frame)
    bounded = check_finite({"X": queries, "Y": points}, metric, device)
    if small:
        check_memory(device, search(len(points.values), d, both[1].dtype.itemsize), "nearest_neighbors")
    _write_nearest(both, bounded, edges.columns, metric, device)
    return queries.frame(edges.frame)


def _write_nearest(both: tuple[Any, Any], bounded: bool, edges: dict[str, Any], metric: Metric, device: Device) -> None:
    """Write the edges from each query to its nearest point; `bounded`: all squared distances are known to be finite."""
    xp = device.xp
    queries, values = (
        metric_rows(metric, part, device, name=name, alone=False) for part, name in zip(both, "XY", strict=True)
    )
    if metric.is_undefined_for_zeros:
        x, y = (zero_rows(part, device) for part in both)
        check_zeros_between(x, y, metric)
    search = prepare_search(values, device, Report(), queries=queries, metric=metric)
    rows, no_group = xp.arange(len(queries), dtype="int32"), xp.full(len(values), -1, "int32")
    nearest = search.find(SearchTask(rows, 1, rows, no_group))
    surrogate, dst = nearest.weights[:, 0], nearest.ids[:, 0]
    if not (bounded and metric.formula == "squared_euclidean") and not float(surrogate.max()) < xp.inf:
        raise ValueError(f"The {metric.name} distances between X and Y overflow float64. Rescale both.")
    edges["src"][...], edges["dst"][...] = rows, dst
    edges["weight"][...] = distances(metric, surrogate, (rows, dst), both, device)


def _small_batch(shape: tuple[int, int, int], itemsizes: tuple[int, int], metric: Metric, device: Device) -> Any:
    """The search for few queries (m, n, d), on a GPU that has it; None where another is wanted."""
    if not device.is_gpu or itemsizes[0] != itemsizes[1]:
        return None
    from rapids_slink.neighbors.small_batch import SmallBatchSearch

    small = SmallBatchSearch(*shape, metric)
    return small if small.is_supported else None


def _estimate_nearest(shape: tuple[int, int, int], itemsize: int, metric: Metric, device: Device) -> MemoryEstimate:
    """Bytes of the nearest of n points to m queries of d features, with copies in one type and the result's frame."""
    m, n, d = shape
    copies = itemsize * d * (m + n) + EDGE_BYTES * m
    search = estimate_search(n, d, itemsize, 1, device, n_queries=m, metric=metric)
    return sequential(MemoryEstimate(copies, copies), search)


def _estimate_graph(n: int, d: int, itemsize: int, k: int, metric: Metric, device: Device) -> MemoryEstimate:
    """Bytes of `knn_graph` once it has the points; refuses more neighbours than there are, or than a frame holds."""
    if k > n - 1:
        raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {k}")
    if device.is_gpu and n * k > MAX_FRAME_ROWS:
        raise ValueError(f"n_neighbors={k} makes {n * k:,} edges, and a cuDF frame holds {MAX_FRAME_ROWS:,} rows")
    frame = MemoryEstimate(EDGE_BYTES * n * k, EDGE_BYTES * n * k)
    return sequential(frame, estimate_search(n, d, itemsize, k, device, metric=metric), frame)


def check_n_neighbors(n_neighbors: Any, name: str = "n_neighbors") -> int:
    """The number of neighbours as Python's integer, whose products do not overflow; refuse what is none."""
    k = as_integer(n_neighbors, name)
    if k < 1:
        raise ValueError(f"{name} must be at least 1, got {n_neighbors}")
    return k

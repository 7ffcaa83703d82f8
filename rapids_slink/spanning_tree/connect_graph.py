"""`api.connect`: the exact tree of points from their k-NN graph, by frames."""

from typing import Any

from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.plan import estimate_search, prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import as_points
from rapids_slink.points.columns import column_values, require_edges
from rapids_slink.points.output import OutputKind, on_device
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame, frame_of
from rapids_slink.spanning_tree.relational import connect_lists

#: Bytes of a pair or of a point's bound in the frames of a round.
PAIR_BYTES = 192


def connect_graph(graph: Any, X: Any, certified: bool, metric: Metric, device: Device) -> Any:
    """`api.connect` on a device, within a run."""
    graph, _ = OutputKind.of(graph, device)
    require_edges(graph, "graph")

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        search = estimate_search(n, d, itemsize, 1, device, metric=metric)
        return sequential(search, MemoryEstimate(PAIR_BYTES * (n + len(graph))))

    points = as_points(X, device, following, metric=metric)
    values, n = points.values, len(points.values)
    src, dst = _row_numbers(on_device(graph, device), n, device)
    tree = PreallocatedFrame.empty(device, n - 1, EDGE_TYPES)
    if n > 1:
        rows = metric_rows(metric, values, device, compact=True)
        weight = kernels(device).pair_distances(rows, src, dst, metric)
        bounds = _bounds((src, dst, weight), n, certified, device)
        ends = device.xp.minimum(src, dst), device.xp.maximum(src, dst)
        edges = frame_of(device, dict(zip(EDGE_TYPES, (*ends, weight), strict=True)))
        search = prepare_search(rows, device, Report(), metric=metric)
        connected = connect_lists(edges, bounds, search, device)
        for name, column in tree.columns.items():
            column[...] = column_values(connected[name], device)
    src, dst, weight = tree.columns.values()
    weight[...] = distances(metric, weight, (src, dst), (values, values), device)
    if metric.changes_order:
        sort_in_place(tree.columns, device.xp)
    return points.frame(tree.frame)


def _row_numbers(graph: Any, n: int, device: Device) -> tuple[Array, Array]:
    """The ends of the graph's edges without loops."""
    ends = [column_values(graph[end], device) for end in ("src", "dst")]
    for name, end in zip(("src", "dst"), ends, strict=True):
        if end.size and not (int(end.min()) >= 0 and int(end.max()) < n):
            raise ValueError(f"column {name!r} of the graph must hold row numbers of X, from 0 to {n - 1}")
    src, dst = (end.astype("int32") for end in ends)
    return src[src != dst], dst[src != dst]


def _bounds(lists: tuple[Array, Array, Array], n: int, certified: bool, device: Device) -> Any:
    """A lower bound for each row: no pair that the row does not list comes before it in the total order.

    The bound is the last entry of a certified list. It is above all edges if the list is complete, and below all edges
    if the list is not certified.
    """
    xp, (src, dst, weight) = device.xp, lists
    rows = xp.arange(n, dtype="int32")
    if not certified:
        return frame_of(device, {"src": rows, "dst": rows, "weight": xp.full(n, -xp.inf)})
    length = xp.bincount(src, minlength=n)
    k = src.size // n
    if not bool((length == k).all()) or not k:
        raise ValueError(
            "graph must list equally many neighbours of every row, as knn_graph returns them; for another graph, or "
            "one whose lists may lack a neighbour, pass certified=False"
        )
    if k >= n - 1:
        return frame_of(device, {"src": rows, "dst": rows, "weight": xp.full(n, xp.inf)})
    order = xp.lexsort(xp.stack((dst.astype("float64"), weight, src.astype("float64"))))
    last = order[k - 1 :: k]
    ends = xp.minimum(rows, dst[last]), xp.maximum(rows, dst[last])
    return frame_of(device, dict(zip(EDGE_TYPES, (*ends, weight[last]), strict=True)))

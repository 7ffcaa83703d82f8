"""`api.connect` by frames: the exact tree of points from their k-NN graph, in Borůvka's rounds by groupby and merge.

These loops are an executable definition of what `lists` does in kernels, and are not the fastest way.

In a round every component takes the lightest edge that crosses its border: a groupby of the edges' ranks in the total
order. It then points at the component across that edge: a merge of these ranks with the edges. Pointers are followed to
the root of each tree of components. The roots replace the ends of the edges, and edges within one component are
dropped.

Lighter edges than the listed ones may leave a component, so the bounds of its points are ranked among the edges. A
component whose least rank belongs to a bound takes no edge. If no component takes an edge, the points with such bounds
search for their nearest point outside. `docs/algorithms.md` has the proof.
"""

from typing import Any

from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors import estimate_search, prepare_search
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import Search, SearchTask
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import as_points
from rapids_slink.points.check import column_values, require_edges
from rapids_slink.points.output import EDGE_TYPES, OutputKind, PreallocatedFrame, frame_of, on_device
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.memory import MemoryEstimate

#: Bytes of a pair or of a point's bound in the frames of a round.
PAIR_BYTES = 192


def connect_graph(graph: Any, X: Any, certified: bool, metric: Metric, device: Device) -> Any:
    """Return what `api.connect` returns, on a device, within a run."""
    graph, _ = OutputKind.of(graph, device)
    require_edges(graph, "graph")

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        search = estimate_search(n, d, itemsize, 1, device, metric=metric, later=PAIR_BYTES)
        return search + MemoryEstimate(PAIR_BYTES * len(graph))

    points = as_points(X, device, following, metric=metric, codes={})
    values, (n, d) = points.values, points.values.shape
    metric = metric.of_columns(points.names, d)
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
    """Return the ends of the graph's edges, int32, without loops; raise ValueError if they are no row numbers."""
    ends = [column_values(graph[end], device) for end in ("src", "dst")]
    for name, end in zip(("src", "dst"), ends, strict=True):
        if end.size and not (int(end.min()) >= 0 and int(end.max()) < n):
            raise ValueError(f"column {name!r} of the graph must hold row numbers of X, from 0 to {n - 1}")
    src, dst = (end.astype("int32") for end in ends)
    return src[src != dst], dst[src != dst]


def _bounds(lists: tuple[Array, Array, Array], n: int, certified: bool, device: Device) -> Any:
    """Return a lower bound for each row: no pair that the row does not list comes before it in the total order.

    The bound is the last entry of a certified list. It is above all edges if the list is complete, and below all edges
    if the list is not certified.
    """
    xp, (src, dst, weight) = device.xp, lists
    rows = xp.arange(n, dtype="int32")
    ends, bound = (rows, rows), xp.full(n, xp.inf if certified else -xp.inf)
    if certified:
        k = src.size // n
        if not bool((xp.bincount(src, minlength=n) == k).all()) or not k:
            raise ValueError(
                "graph must list equally many neighbours of every row, as knn_graph returns them; for another graph, "
                "or one whose lists may lack a neighbour, pass certified=False"
            )
        if k < n - 1:
            last = xp.lexsort(xp.stack((dst.astype("float64"), weight, src.astype("float64"))))[k - 1 :: k]
            ends, bound = (xp.minimum(rows, dst[last]), xp.maximum(rows, dst[last])), weight[last]
    return frame_of(device, dict(zip(EDGE_TYPES, (*ends, bound), strict=True)))


#: The total order's columns: no two edges are equal in them.
ORDER = ["weight", "src", "dst"]


def connect_lists(edges: Any, bounds: Any, search: Search, device: Device) -> Any:
    """Return the minimum spanning tree of n points, from their k-NN graph and a search over all of them.

    `edges` are the listed pairs, ``src`` < ``dst``, and ``weight``, their surrogate distances; a pair may come twice.
    The result is an edge frame with these columns and n - 1 rows in the total order. `bounds` has these columns and a
    row for each point: in the total order, each pair of the point that is not listed comes after this row or equals it.
    """
    xp, n = device.xp, len(bounds)
    tree: list[Any] = []
    n_edges = 0
    component = points = xp.arange(n, dtype="int32")
    while True:
        # An edge comes before a bound that is equal to it, whose point lists the edge.
        ranked = device.frames.concat([edges.drop_duplicates().assign(point=-1), bounds.assign(point=points)])
        ranked = ranked.sort_values([*ORDER, "point"], ignore_index=True)
        is_bound = ranked["point"].values >= 0
        rank_of_bound = xp.empty(n, "int64")
        rank_of_bound[ranked["point"].values[is_bound]] = xp.flatnonzero(is_bound)
        listed = xp.flatnonzero(~is_bound)
        while True:
            crossing = _crossing(ranked, component, listed)
            point_ranks = device.frames.DataFrame({"component": component, "rank": rank_of_bound})
            certain, component = _connect_components(crossing, point_ranks, component, device)
            tree.append(ranked.iloc[certain["rank"].drop_duplicates()][ORDER])
            n_edges += len(tree[-1])
            if n_edges == n - 1:
                return device.frames.concat(tree).sort_values(ORDER, ignore_index=True)[["src", "dst", "weight"]]
            if not len(certain):
                break
        edges, bounds = _search_outside(ranked, (listed, rank_of_bound), component, search, device)


def _crossing(edges: Any, component: Array, rows: Array) -> Any:
    """Return the edges between two components, among some rows: columns a and b, the components, and rank, the row."""
    edges = edges[["src", "dst"]].iloc[rows]
    a, b = (component[edges[end].values] for end in ("src", "dst"))
    crossing = edges.assign(a=a, b=b, rank=edges.index)[["a", "b", "rank"]]
    return crossing[a != b]


def _lightest(crossing: Any, bounds: Any, device: Device) -> Any:
    """Return the least rank of each component among the edges that cross its border and its points' bounds."""
    sides = [crossing[[side, "rank"]].rename(columns={side: "component"}) for side in ("a", "b")]
    sides += [] if bounds is None else [bounds]
    return device.frames.concat(sides, ignore_index=True).groupby("component", as_index=False).agg({"rank": "min"})


def _connect_components(crossing: Any, bounds: Any, component: Array, device: Device) -> tuple[Any, Array]:
    """Connect each component whose lightest edge is certain along it; return these edges and all points' components."""
    xp = device.xp
    certain = _lightest(crossing, bounds, device).merge(crossing, on="rank")  # a bound's rank is no edge's
    own, a, b = (certain[name].values for name in ("component", "a", "b"))
    across, parent = a + b - own, xp.arange(component.size, dtype=component.dtype)
    parent[own] = across
    # Two that point at each other took the same edge: the lesser is the root.
    parent[own] = xp.where((parent[across] == own) & (own < across), own, across)
    root = parent[own]
    while not all_true((further := parent[root]) == root):
        parent[own] = root = further
    return certain, parent[component]


def _search_outside(
    ranked: Any, ranks: tuple[Array, Array], component: Array, search: Search, device: Device
) -> tuple[Any, Any]:
    """Find the nearest outside of points whose bound comes before their component's best; return edges and bounds."""
    xp, (listed, rank_of_bound), n = device.xp, ranks, component.size
    lightest = _lightest(_crossing(ranked, component, listed), None, device)
    best_rank = xp.full(n, len(ranked), "int64")
    best_rank[lightest["component"].values] = lightest["rank"].values
    sizes = device.frames.DataFrame({"component": component}).groupby("component", as_index=False).size()
    largest = int(sizes.sort_values("size", ignore_index=True)["component"].iloc[-1])
    rows = xp.flatnonzero((rank_of_bound < best_rank[component]) & (component != largest)).astype("int32")
    weights = xp.concatenate([ranked["weight"].values, xp.full(1, xp.inf)])
    upper = weights[best_rank[component[rows]]]
    result = search.find(SearchTask(rows, 1, component, component, upper, only_minima=True))
    ids, weight = result.ids[:, 0], result.weights[:, 0]
    bounds = ranked.iloc[rank_of_bound][ORDER]
    src, dst, bound = (bounds[name].values.copy() for name in ("src", "dst", "weight"))
    nearest, none = ids >= 0, (ids < 0) & (result.upper >= bound[rows])
    at, to = rows[nearest], ids[nearest]
    src[at], dst[at], bound[at] = xp.minimum(at, to), xp.maximum(at, to), weight[nearest]
    src[rows[none]], dst[rows[none]], bound[rows[none]] = n, n, result.upper[none]  # all outside are above
    bounds = device.frames.DataFrame({"src": src, "dst": dst, "weight": bound})
    return device.frames.concat([ranked.iloc[listed][bounds.columns], bounds.iloc[at]], ignore_index=True), bounds

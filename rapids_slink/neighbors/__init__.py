"""k-NN graphs and nearest neighbours, exact.

    points ──▶ rows of the metric ──▶ search (tiles | a tree) ──▶ Found: ids and kernel values in order, bound reached
    rows.py    metrics.py's table       tiles.py, direct.py, kdtree.py, bvh.py

A search answers a `contract.Task`: for some rows, the k least columns outside the row's group. The k-NN graph is the
task in which every point is a group; the search of connect has the components for groups and k = 1;
`nearest_neighbors` has two point sets and no groups. Points may have cores: then a search goes by mutual reachability
(mutual_reachability.py), for HDBSCAN's hierarchy.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.device import Device, resolve
from rapids_slink.metrics import EUCLIDEAN, Metric, distances, get_metric
from rapids_slink.neighbors.contract import NeighborLists, Task
from rapids_slink.neighbors.mutual_reachability import by_mutual_reachability
from rapids_slink.neighbors.rows import metric_rows, zero_rows
from rapids_slink.points import as_integer, as_points
from rapids_slink.report import Report

#: Up to this many features a tree is faster than all pairs (Gaussian points, 20,000 on a CPU, 200,000 on a GPU).
TREE_FEATURES = {"cpu": 8, "cuda": 6}


def prepare(
    values: Any,
    device: Device,
    report: Report,
    queries: Any = None,
    progress: bool = False,
    metric: Metric = EUCLIDEAN,
) -> Any:
    """The search that suits the metric, the device and the points, which are as `metric_rows` makes them."""
    if metric.boxes and values.shape[1] <= TREE_FEATURES[device.name]:
        if device.name == "cuda":
            from rapids_slink.neighbors.bvh import BoxSearch

            return BoxSearch(values, device, report, queries, progress, metric)
        from rapids_slink.neighbors.kdtree import TreeSearch

        return TreeSearch(values, device, report, queries, progress, metric)
    if metric.filter == "direct":
        from rapids_slink.neighbors.direct import DirectSearch

        return DirectSearch(values, device, report, queries, progress, metric=metric)
    from rapids_slink.neighbors.tiles import TileSearch

    return TileSearch(values, device, report, queries, progress, metric=metric)


def neighbor_lists(search: Any, n: int, k: int, device: Device, min_samples: int = 1) -> NeighborLists:
    """Each of the n points' k nearest others, weighed by mutual reachability if `min_samples` is above 1."""
    xp = device.xp
    rows = xp.arange(n, dtype="int32")
    found = search.find(Task(rows, min(k, n - 1), rows, rows, xp.full(n, xp.inf)))
    lists = NeighborLists(found.ids, found.weights)
    return lists if min_samples == 1 else by_mutual_reachability(lists, min_samples, device)


def knn_graph(X: Any, n_neighbors: int, *, metric: str = "euclidean", p: float = 2.0, device: str = "auto") -> Any:
    """The exact k-nearest-neighbour graph of the rows of `X`.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        cuDF or pandas DataFrame, CuPy or NumPy array, or anything with DLPack.
    n_neighbors : int
        Neighbours a row, itself not counted; at most n - 1.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard" (booleans), "inner_product" (-x·y) or "haversine" (latitude and
        longitude in radians); `rapids_slink.metrics` defines them.
    p : float
        The exponent of minkowski, above 0.
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    DataFrame
        n·k rows ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), by ``src`` and then from the
        nearest on; neighbours whose kernel values (squared distances, for euclidean) are equal go by ``dst``. cuDF if
        `X` is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        If `X` or a parameter is not valid, or a row has no distance in this metric; the message names it.
    """
    chosen = get_metric(metric, p)
    place = resolve(device, X)
    check_n_neighbors(n_neighbors)
    with place.working():
        points = as_points(X, place)
        n = points.values.shape[0]
        if n_neighbors > n - 1:
            raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {n_neighbors}")
        rows = metric_rows(chosen, points.values, place)
        lists = neighbor_lists(prepare(rows, place, Report(), metric=chosen), n, n_neighbors, place)
        src, dst = place.xp.repeat(place.xp.arange(n, dtype="int32"), n_neighbors), lists.ids.ravel()
        weight = distances(chosen, lists.weights.ravel(), (src, dst), (points.values, points.values), place)
        graph = place.frame({"src": src, "dst": dst, "weight": weight})
    return points.frame(place.keep(graph))


def nearest_neighbors(X: Any, Y: Any, *, metric: str = "euclidean", p: float = 2.0, device: str = "auto") -> Any:
    """For each row of `X` the nearest row of `Y` (the fused 1-NN of cuSLINK's Algorithm 4), exact.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
    metric, p, device : see `knn_graph`

    Returns
    -------
    DataFrame
        n rows ``src``, ``dst`` (int32 row numbers in `X` and `Y`) and ``weight`` (float64 distance). Of several rows of
        the same kernel value (squared distance, for euclidean), the first.

    Raises
    ------
    ValueError, TypeError
        If an input or a parameter is not valid; the message names it.
    """
    chosen = get_metric(metric, p)
    place = resolve(device, X, Y)
    with place.working():
        points, others = as_points(X, place), as_points(Y, place)
        (n, d), (m, other_d) = points.values.shape, others.values.shape
        if d != other_d:
            raise ValueError(f"X and Y must have the same number of features, got {d} and {other_d}")
        xp = place.xp
        rows = xp.arange(n, dtype="int32")
        common = xp.promote_types(points.values.dtype, others.values.dtype)
        both = points.values.astype(common, copy=False), others.values.astype(common, copy=False)
        queries, values = (
            metric_rows(chosen, part, place, name=name, alone=False) for part, name in zip(both, "XY", strict=True)
        )
        if chosen.kernel == "braycurtis":
            _refuse_zero_rows(*both, place)
        search = prepare(values, place, Report(), queries=queries, metric=chosen)
        groups = xp.zeros(n, "int32"), xp.ones(m, "int32")
        found = search.find(Task(rows, 1, *groups, xp.full(n, xp.inf)))
        dst = found.ids[:, 0]
        if not bool(xp.isfinite(found.weights).all()):
            raise ValueError(f"The {chosen.name} distances between X and Y overflow float64. Rescale both.")
        weight = distances(chosen, found.weights[:, 0], (rows, dst), both, place)
        nearest = place.frame({"src": rows, "dst": dst, "weight": weight})
    return points.frame(place.keep(nearest))


def _refuse_zero_rows(X: Any, Y: Any, device: Device) -> None:
    x, y = zero_rows(X, device), zero_rows(Y, device)
    if x.size and y.size:
        raise ValueError(
            f"row {int(x[0])} of X and row {int(y[0])} of Y are zero in every column: their braycurtis distance is not "
            "defined. Drop one of them."
        )


def check_n_neighbors(n_neighbors: Any, name: str = "n_neighbors") -> None:
    """Refuse what is no number of neighbours."""
    if as_integer(n_neighbors, name) < 1:
        raise ValueError(f"{name} must be at least 1, got {n_neighbors}")

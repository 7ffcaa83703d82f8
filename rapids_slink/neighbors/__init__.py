"""k-NN graphs and nearest neighbours, exact.

    values ──▶ search (tiles | a tree) ──▶ Found: ids and kernel values in the total order, bound reached

A search answers a `contract.Task`: for some rows, the k least columns outside the row's group. The k-NN graph is the
task in which every point is a group; the search of connect has the components for groups and k = 1;
`nearest_neighbors` has two point sets and no groups. Points may have cores: then a search goes by mutual reachability
(mutual_reachability.py), for HDBSCAN's hierarchy.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.device import Device, resolve
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.contract import NeighborLists, Task
from rapids_slink.neighbors.mutual_reachability import by_mutual_reachability
from rapids_slink.points import as_integer, as_points
from rapids_slink.report import Report

#: Up to this many features a tree is faster than all pairs (Gaussian points, 20,000 on a CPU, 200,000 on a GPU).
TREE_FEATURES = {"cpu": 8, "cuda": 6}


def prepare(values: Any, device: Device, report: Report, queries: Any = None, progress: bool = False) -> Any:
    """The search that suits the points and the device."""
    if values.shape[1] <= TREE_FEATURES[device.name]:
        if device.name == "cuda":
            from rapids_slink.neighbors.bvh import BoxSearch

            return BoxSearch(values, device, report, queries, progress)
        from rapids_slink.neighbors.kdtree import TreeSearch

        return TreeSearch(values, device, report, queries, progress)
    from rapids_slink.neighbors.tiles import TileSearch

    return TileSearch(values, device, report, queries, progress)


def neighbor_lists(search: Any, n: int, k: int, device: Device, min_samples: int = 1) -> NeighborLists:
    """Each of the n points' k nearest others, weighed by mutual reachability if `min_samples` is above 1."""
    xp = device.xp
    rows = xp.arange(n, dtype="int32")
    found = search.find(Task(rows, min(k, n - 1), rows, rows, xp.full(n, xp.inf)))
    lists = NeighborLists(found.ids, found.weights)
    return lists if min_samples == 1 else by_mutual_reachability(lists, min_samples, device)


def knn_graph(X: Any, n_neighbors: int, *, metric: str = "euclidean", device: str = "auto") -> Any:
    """The exact k-nearest-neighbour graph of the rows of `X`.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        cuDF or pandas DataFrame, CuPy or NumPy array, or anything with DLPack.
    n_neighbors : int
        Neighbours a row, itself not counted; at most n - 1.
    metric : {"euclidean", "sqeuclidean"}
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    DataFrame
        n·k rows ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), by ``src`` and then from the
        nearest on; neighbours whose squared distances are equal go by ``dst``. cuDF if `X` is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        If `X` or a parameter is not valid; the message names it.
    """
    chosen = get_metric(metric)
    place = resolve(device, X)
    check_n_neighbors(n_neighbors)
    with place.working():
        points = as_points(X, place)
        n = points.values.shape[0]
        if n_neighbors > n - 1:
            raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {n_neighbors}")
        lists = neighbor_lists(prepare(points.values, place, Report()), n, n_neighbors, place)
        src = place.xp.repeat(place.xp.arange(n, dtype="int32"), n_neighbors)
        weight = chosen.distance(lists.weights.ravel())
        graph = place.frame({"src": src, "dst": lists.ids.ravel(), "weight": weight})
    return points.frame(place.keep(graph))


def nearest_neighbors(X: Any, Y: Any, *, metric: str = "euclidean", device: str = "auto") -> Any:
    """For each row of `X` the nearest row of `Y` (the fused 1-NN of cuSLINK's Algorithm 4), exact.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
    metric, device : see `knn_graph`

    Returns
    -------
    DataFrame
        n rows ``src``, ``dst`` (int32 row numbers in `X` and `Y`) and ``weight`` (float64 distance). Of several rows at
        the same squared distance, the first.

    Raises
    ------
    ValueError, TypeError
        If an input or a parameter is not valid; the message names it.
    """
    chosen = get_metric(metric)
    place = resolve(device, X, Y)
    with place.working():
        points, others = as_points(X, place), as_points(Y, place)
        (n, d), (m, other_d) = points.values.shape, others.values.shape
        if d != other_d:
            raise ValueError(f"X and Y must have the same number of features, got {d} and {other_d}")
        xp = place.xp
        rows = xp.arange(n, dtype="int32")
        common = xp.promote_types(points.values.dtype, others.values.dtype)
        values, queries = (part.values.astype(common, copy=False) for part in (others, points))
        search = prepare(values, place, Report(), queries=queries)
        groups = xp.zeros(n, "int32"), xp.ones(m, "int32")
        found = search.find(Task(rows, 1, *groups, xp.full(n, xp.inf)))
        if not bool(xp.isfinite(found.weights).all()):
            raise ValueError("Squared distances between X and Y overflow float64. Rescale both.")
        weight = chosen.distance(found.weights[:, 0])
        nearest = place.frame({"src": rows, "dst": found.ids[:, 0], "weight": weight})
    return points.frame(place.keep(nearest))


def check_n_neighbors(n_neighbors: Any, name: str = "n_neighbors") -> None:
    """Refuse what is no number of neighbours."""
    if as_integer(n_neighbors, name) < 1:
        raise ValueError(f"{name} must be at least 1, got {n_neighbors}")

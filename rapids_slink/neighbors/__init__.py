"""k-NN graphs and nearest neighbours, exact.

    points ──▶ rows of the metric ──▶ search ──▶ SearchResult: ids and surrogate distances in order, bound reached
    rows.py                           prepare_search

A search solves a `task.SearchTask`: for some rows, find the k nearest points outside the row's group. The k-NN graph is
the task in which every point is a group; the search of connect has the components for groups and k = 1;
`nearest_neighbors` has two point sets and no groups.

    exact/           surrogate distances in float64, and lists of the least
    filter/          tests in low precision that rule pairs out: matrix products, fused on a GPU; float32 terms
    brute_force.py   all pairs: filter, re-rank, prove; `filter.choose_filter` chooses its filter
    tiles/           all pairs of tiles of near points, of structured points
    matrix/          all distances of codes, stored, on a GPU
    trees/           few features, low dimension: a k-d tree, a bounding volume hierarchy
    small_batch/     few queries, on a GPU
    queries.py       the k nearest rows of another table, and frames of them
    within/          all pairs within a distance, not by tasks, and frames of them

`prepare_search` chooses the search by the points, the metric and the device. Points may have core distances: then a
search is by mutual reachability (task.py), for HDBSCAN's hierarchy.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, isqrt
from typing import Any

from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, Metric, Rows, distances
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import fused_filter
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import (
    BLOCK,
    BoundsByLists,
    NeighborLists,
    PartLists,
    Search,
    SearchResult,
    SearchTask,
    by_mutual_reachability,
)
from rapids_slink.neighbors.tiles import MAX_SHARE, TileSearch
from rapids_slink.neighbors.trees import expansion, nearest_by_spread
from rapids_slink.points import as_points
from rapids_slink.points.check import as_integer
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import SEARCH_BYTES, MemoryEstimate, free_bytes

#: Bytes of an edge in a frame.
EDGE_BYTES = 16
#: cuDF counts rows in int32.
MAX_FRAME_ROWS = 2**31 - 1
#: Up to this many features points are searched by a tree.
TREE_FEATURES = {"cpu": 8, "cuda": 6}
#: On a GPU a tree also searches points of 7 and of 8 features, from these numbers of points on: the first with the
#: fused filter, the second with another. All pairs are about as fast then for Gaussian points, and take many times as
#: long for points along curves: see bench/NOTES.md.
TREE_POINTS = {7: (300_000, 30_000), 8: (1_200_000, 60_000)}
#: The numbers of features, and the fewest points, for which the values decide: a tree searches the points if a ball of
#: neighbours touches few of its nodes. For fewer points all pairs take about as long as it takes to find that out.
LOW_DIMENSIONAL = {"cpu": (range(9, 65), 2**13), "cuda": (range(9, 33), 2**18)}
MAX_TOUCHED_SHARE = 1 / 16  # on a CPU
#: The largest expansion, of `trees`, for which a GPU makes a tree.
MAX_EXPANSION = 0.015
#: Points may be searched in tiles of near points from this number on, if few pairs of tiles are needed, and if by
#: `trees` at most `MAX_SPREAD` of them are within `TIMES` the distance to the nearest, and that is within this share of
#: their spread.
STRUCTURED_POINTS = {"cpu": 2**13, "cuda": 2**16}
#: On a GPU so may fewer points, if all pairs of them have this number of features in all.
FEWEST_STRUCTURED, STRUCTURED_WORK = 2**14, {"cpu": inf, "cuda": 2**38}
TIMES, MAX_SPREAD, MAX_NEAREST = 3, 0.4, 0.1
#: From `CLUSTERED_POINTS` on, tiles also serve clusters that are about as wide as they are far apart, if at most
#: `MAX_CLUSTER` of a sample is within `TIMES` the distance to the nearest: then most tile pairs are of two clusters.
CLUSTERED_POINTS, MAX_CLUSTER = {"cpu": inf, "cuda": 700_000}, 0.15
#: The searches in tiles that may be prescribed.
TILES = "tiles", "tiles for lists"
#: Neighbours of each row when no number is asked for. With more the k-NN graph takes longer, with fewer connecting
#: does; the result is the same.
DEFAULT_NEIGHBORS = 8
#: Bytes of a value while a CPU looks for codes, beside the rows that it reads.
CODING_BYTES = 28
#: The same while it wraps coordinates into a box.
WRAPPING_BYTES = 40
#: Bytes that a point's core distance adds: in the lists, in the search's order, by node, and in the bound of its list.
CORE_BYTES = 48


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
    """Return each of the n points' k nearest others, or all others if there are fewer.

    The weights are mutual reachability if `min_samples` is above 1 or core distances are given. `part_lists`, of that
    length, are known lists within two parts of the points, which are not searched for again. With distances as weights
    and without known lists, points above `max_weight` are not listed, nor those above the bounds that `bounds_by_lists`
    makes; see `_within`.
    """
    rows = device.xp.arange(n, dtype="int32")
    if (bounds_by_lists or max_weight < inf) and part_lists is None and core is None and min_samples == 1:
        upper = device.xp.full(n, max_weight) if max_weight < inf else None
        task = SearchTask(rows, min(k, n - 1), rows, rows, upper, bounds_by_lists=bounds_by_lists)
        return _within(search.find(task), rows, device)
    nearest = search.find(SearchTask(rows, min(k, n - 1), rows, rows, part_lists=part_lists))
    if n > 1 and not exact_kernels(device).are_full(nearest.ids):
        raise RuntimeError("a search has not found all neighbours: please report this")
    lists = NeighborLists(nearest.ids, nearest.weights)
    by_distance = core is None and min_samples == 1
    return lists if by_distance else by_mutual_reachability(lists, core, min_samples, device)


def _within(result: SearchResult, rows: Array, device: Device) -> NeighborLists:
    """Return the lists up to the bounds that a search has reached.

    A row that has fewer neighbours lists itself in the places left: no round takes the edge to itself, since that does
    not leave the row's component. Every edge from a row to a point that it does not list is above its bound, or comes
    after the last edge within it.
    """
    xp = device.xp
    last, weight = result.ids[:, -1], result.weights[:, -1]
    is_full = (last >= 0) & (weight <= result.upper)
    bound = xp.where(is_full, last, 0), xp.where(is_full, weight, xp.nextafter(result.upper, inf))
    ids = xp.where(result.ids < 0, rows[:, None], result.ids)
    return NeighborLists(ids, result.weights, unlisted_lower_bound=bound)


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: Device) -> Any:
    """Return the result of `api.knn_graph`, computed on a device within a run."""
    n_neighbors = check_n_neighbors(n_neighbors)

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return _estimate_graph(n, d, itemsize, n_neighbors, metric, device)

    points = as_points(X, device, following, metric=metric, codes={})
    values, (n, d) = points.values, points.values.shape
    metric = metric.of_columns(points.names, d)
    edges = PreallocatedFrame.empty(device, n * n_neighbors, EDGE_TYPES)
    rows = metric_rows(metric, values, device, compact=True)
    search = prepare_search(rows, device, Report(), metric=metric, listed=n_neighbors)
    lists = neighbor_lists(search, n, n_neighbors, device)
    src, dst, weight = edges.columns.values()
    src.reshape(n, n_neighbors)[...] = device.xp.arange(n, dtype="int32")[:, None]
    dst[...] = lists.ids.ravel()
    weight[...] = distances(metric, lists.weights.ravel(), (src, dst), (values, values), device)
    return points.frame(edges.frame)


def _estimate_graph(n: int, d: int, itemsize: int, k: int, metric: Metric, device: Device) -> MemoryEstimate:
    """Estimate the bytes of `knn_graph` once it has the points.

    Raise ValueError if there are fewer neighbours than k, or more edges than a frame holds.
    """
    if k > n - 1:
        raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {k}")
    if device.is_gpu and n * k > MAX_FRAME_ROWS:
        raise ValueError(f"n_neighbors={k} makes {n * k:,} edges, and a cuDF frame holds {MAX_FRAME_ROWS:,} rows")
    edges = EDGE_BYTES * n * k * (1 if device.is_gpu else 2)  # beside the result, which is not in a GPU's pool
    return MemoryEstimate(edges) + estimate_search(n, d, itemsize, k, device, metric=metric)


def check_n_neighbors(n_neighbors: Any, name: str = "n_neighbors") -> int:
    """Return the number of neighbours as Python's integer, whose products do not overflow.

    Raise TypeError if the parameter `name` is no integer, ValueError if it is below 1.
    """
    k = as_integer(n_neighbors, name)
    if k < 1:
        raise ValueError(f"{name} must be at least 1, got {n_neighbors}")
    return k


def prepare_search(
    values: Array,
    device: Device,
    report: Report,
    queries: Array = None,
    progress: bool | str = False,
    metric: Metric = EUCLIDEAN,
    max_weight: float = inf,
    n: int | None = None,
    listed: int = 0,
) -> Search:
    """Return the search that suits the metric, the device and the points, which are as `rows.metric_rows` makes them.

    Most tasks want no surrogate distance above `max_weight`, and full lists of `listed` neighbours unless that is 0. A
    filter may be chosen by these. If `n` is given, the points are a sample of n, and the search is the one that suits n
    points.
    """
    n, has_numbers = n or len(values), values.dtype.kind != "u"  # no words, nor a CPU's codes
    kind = _search_class(n, values.shape[1], metric, device) if has_numbers else BruteForceSearch
    search: Search | None = None
    may_choose = kind is BruteForceSearch and has_numbers
    wanted = forced().search
    all_pairs = partial(BruteForceSearch, values, device, report, queries, progress, metric)
    if may_choose and queries is None and may_be_low_dimensional(n, values.shape[1], metric, device):
        by_tree = partial(_tree_class(device), values, device, report, None, progress, metric)
        search = _low_dimensional(values, device, metric, by_tree, all_pairs)
    if may_choose and not search and wanted in (None, *TILES):
        for_wide = None if wanted == TILES[0] else all_pairs
        search = search_in_tiles(values, device, report, queries, progress, metric, for_wide, n, wanted=bool(wanted))
    if search is None and kind is BruteForceSearch:
        search = all_pairs(max_weight=max_weight, listed=listed)
    elif search is None:
        search = kind(values, device, report, queries, progress, metric)
    report.count("neighbors", filter=search.name)
    return search


def search_in_tiles(
    values: Array,
    device: Device,
    report: Report,
    queries: Array = None,
    progress: bool | str = False,
    metric: Metric = EUCLIDEAN,
    all_pairs: Callable[[], Search] | None = None,
    n: int = 0,
    within: float = inf,
    wanted: bool = False,
) -> TileSearch | None:
    """Return the search in tiles of near points if few pairs of tiles are needed, or if it serves and is `wanted`.

    See `prepare_search`. Clusters that are as wide as they are far apart are connected by the search that `all_pairs`
    makes. If `within` is finite, all points up to that surrogate distance are wanted, otherwise the nearest.
    """
    n = n or len(values)
    is_near = wanted and all_pairs is None
    if not wanted:
        fewest = n if queries is None else min(n, len(queries))
        is_wide = fewest >= FEWEST_STRUCTURED and fewest**2 * values.shape[1] >= STRUCTURED_WORK[device.name]
        if metric.filter != "product" or (fewest < STRUCTURED_POINTS[device.name] and not is_wide):
            return None
        share = expansion(values, device, TIMES)
        is_near = share <= MAX_SPREAD and nearest_by_spread(values, device) <= MAX_NEAREST
        if not is_near and (share > MAX_CLUSTER or n < CLUSTERED_POINTS[device.name]):
            return None
    if not TileSearch.serves(values, device, metric, queries):
        return None
    search = TileSearch(values, device, report, queries, progress, metric, None if is_near else all_pairs)
    return search if wanted or search.share(within) <= MAX_SHARE[device.name] else None


def estimate_search(
    n: int,
    d: int,
    itemsize: int,
    k: int,
    device: Device,
    n_queries: int | None = None,
    min_samples: int = 1,
    metric: Metric = EUCLIDEAN,
    chosen: Search | None = None,
    later: int = SEARCH_BYTES,
) -> MemoryEstimate:
    """Estimate the bytes of the metric's rows, the search, and the lists of k neighbours.

    `chosen` is the search, if the points' values have decided which it is. `later` is the bytes of a row that has a
    list in the stages after the search.
    """
    m = n if n_queries is None else n_queries
    rows = metric.rows.row_bytes(d) * (n if n_queries is None else n + m)
    d = metric.rows.width(d) if metric.rows is Rows.SPHERE else d
    sizes = n, m, d, max(1, min(k, n - (n_queries is None))), itemsize, device, metric
    kinds: list[Any] = [chosen or _search_class(n, d, metric, device)]
    if k > exact_kernels(device).MAX_LIST or (chosen and chosen.for_lists):
        kinds.append(BruteForceSearch)
    if chosen is None and n_queries is None and not device.is_gpu and may_be_low_dimensional(n, d, metric, device):
        kinds.append(_tree_class(device))
    a_value = CODING_BYTES * (metric.filter == "codes") + WRAPPING_BYTES * (metric.rows is Rows.PLACED)
    coding = a_value * min(n * d, BLOCK) * (not device.is_gpu)
    search = MemoryEstimate.either(*(kind.estimate(*sizes) for kind in kinds))
    if min_samples > 1:  # the points are put into the order of their core distances
        search += MemoryEstimate(CORE_BYTES * n, 0 if device.is_gpu else 40 * min(n * d, BLOCK))
    return replace(search, peak=rows + max(coding, search.peak + later * m))


def is_searched_by_tree(n: int, n_features: int, metric: Metric, device: Device) -> bool:
    """Return whether a tree searches n points of this number of features: a row's time then hardly grows with n."""
    if not metric.boxes:
        return False
    if forced().search:
        return forced().search == "tree" and n_features < LOW_DIMENSIONAL[device.name][0].stop
    if n_features <= TREE_FEATURES[device.name]:
        return True
    if not device.is_gpu or n_features not in TREE_POINTS:
        return False
    fused = metric.filter == "product" and fused_filter(device) is not None
    return n >= TREE_POINTS[n_features][0 if fused else 1]


def _has_memory_for_all_pairs(values: Array, device: Device, metric: Metric) -> bool:
    """Return whether a search over all pairs of the points, for the nearest of each, fits into memory."""
    (n, d), itemsize = values.shape, values.dtype.itemsize
    return BruteForceSearch.estimate(n, n, d, 1, itemsize, device, metric).least <= free_bytes()


def _search_class(n: int, n_features: int, metric: Metric, device: Device) -> Any:
    """Return the class of searches that suits n points of this number of features."""
    if device.is_gpu and metric.filter == "codes":
        from rapids_slink.neighbors.matrix import MatrixSearch

        return MatrixSearch
    if not is_searched_by_tree(n, n_features, metric, device):
        return BruteForceSearch
    return _tree_class(device)


def _tree_class(device: Device) -> Any:
    """Return the class of searches by the device's tree."""
    if device.is_gpu:
        from rapids_slink.neighbors.trees.bvh import BoxSearch

        return BoxSearch
    from rapids_slink.neighbors.trees.kdtree import TreeSearch

    return TreeSearch


def may_be_low_dimensional(n: int, d: int, metric: Metric, device: Device) -> bool:
    """Return whether the values should decide if a tree searches points of many features after all."""
    features, min_points = LOW_DIMENSIONAL[device.name]
    return not forced().search and metric.boxes and d in features and n >= min_points


def _low_dimensional(
    values: Array, device: Device, metric: Metric, by_tree: Callable[..., Any], all_pairs: Callable[[], Search]
) -> Search | None:
    """Return the search that `by_tree` makes, or None if a ball of neighbours touches too many of its nodes.

    It is also None if a GPU lacks the memory for the tree.
    """
    if device.is_gpu:
        (n, d), itemsize = values.shape, values.dtype.itemsize
        needed = _tree_class(device).estimate(n, n, d, DEFAULT_NEIGHBORS, itemsize, device, metric).peak
        if needed > free_bytes() or expansion(values, device) > MAX_EXPANSION:
            return None
        search: Any = by_tree()
        limit = isqrt(n)  # with more visits the filter takes less time: see bench/NOTES.md
        return search if search.mean_visits(2 * limit) < limit else None
    from rapids_slink.neighbors.trees.tree import touched_share

    may_follow = metric.filter == "product" and _has_memory_for_all_pairs(values, device, metric)
    search = by_tree(all_pairs if may_follow else None)
    return search if touched_share(search.tree, metric) <= MAX_TOUCHED_SHARE else None

"""k-NN graphs and nearest neighbours, exact.

    points ──▶ rows of the metric ──▶ search ──▶ SearchResult: ids and surrogate distances in order, bound reached
    rows.py                           prepare_search

A search solves a `task.SearchTask`: for some rows, find the k nearest points whose exclusion ids (`group` in names) are
not the row's. In the k-NN graph each point has an id of its own. In the search of connect a component has one, and k is
1. `nearest_neighbors` has two point sets and no exclusion ids.

    exact/           surrogate distances in float64, and lists of the least
    filter/          tests in low precision that rule pairs out: matrix products, fused on a GPU; float32 terms
    brute_force.py   all pairs: filter, re-rank, prove; `filter.choose_filter` chooses its filter
    tiles/           all pairs of tiles of near points, of structured points
    matrix/          all distances of codes, stored, on a GPU
    kdtree.py        few features, low dimension, on a CPU; bvh.py by a bounding volume hierarchy on a GPU
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
from rapids_slink.neighbors.choose import (
    COSTS,
    TILES,
    expansion,
    is_searched_by_tree,
    is_worth_a_look,
    max_expansion,
    may_be_low_dimensional,
    possible_tiles,
    products,
    takes_less,
)
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import (
    BLOCK_VALUES,
    BoundsByLists,
    NeighborLists,
    Search,
    SearchResult,
    SearchTask,
    by_mutual_reachability,
)
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.points import as_points
from rapids_slink.points.check import as_integer
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.memory import SEARCH_BYTES, MemoryEstimate, free_bytes

#: Bytes of an edge in a frame.
EDGE_BYTES = 16
#: cuDF counts rows in int32.
MAX_FRAME_ROWS = 2**31 - 1
#: Neighbours of each row when no number is asked for. With more the k-NN graph takes longer, with fewer connecting
#: does; the result is the same.
DEFAULT_NEIGHBORS = 8
#: Bytes of a value while a CPU looks for codes, beside the rows that it reads.
CODING_BYTES = 28
#: Bytes of a value while a CPU wraps coordinates into a box.
WRAPPING_BYTES = 40
#: Bytes that a point's core distance adds: in the lists, by node, and in the bound of its list.
CORE_BYTES = 48


def neighbor_lists(
    search: Search,
    n: int,
    k: int,
    device: Device,
    min_samples: int = 1,
    core: Array = None,
    max_weight: float = inf,
    bounds_by_lists: BoundsByLists | None = None,
) -> NeighborLists:
    """Return each of the n points' k nearest others, or all others if there are fewer.

    The weights are mutual reachability if `min_samples` is above 1 or core distances are given. With
    distances as weights, points above `max_weight` are not listed, nor those above the bounds that `bounds_by_lists`
    makes; see `lists_within`.
    """
    rows = device.xp.arange(n, dtype="int32")
    if (bounds_by_lists or max_weight < inf) and core is None and min_samples == 1:
        upper = device.xp.full(n, max_weight) if max_weight < inf else None
        task = SearchTask(rows, min(k, n - 1), rows, rows, upper, bounds_by_lists=bounds_by_lists)
        return lists_within(search.find(task), rows, device)
    nearest = search.find(SearchTask(rows, min(k, n - 1), rows, rows))
    if n > 1 and not all_true(nearest.ids[:, -1] >= 0):
        raise RuntimeError("a search has not found all neighbours: please report this")
    lists = NeighborLists(nearest.ids, nearest.weights)
    by_distance = core is None and min_samples == 1
    return lists if by_distance else by_mutual_reachability(lists, core, min_samples, device)


def lists_within(result: SearchResult, rows: Array, device: Device) -> NeighborLists:
    """Return the lists up to the bounds that a search has reached.

    A row that has fewer neighbours fills its list up with itself: no round takes the edge to itself, since that does
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
        count = n * n_neighbors
        if n_neighbors > n - 1:
            raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {n_neighbors}")
        if device.is_gpu and count > MAX_FRAME_ROWS:
            raise ValueError(
                f"n_neighbors={n_neighbors} makes {count:,} edges, and a cuDF frame holds {MAX_FRAME_ROWS:,} rows"
            )
        edges = EDGE_BYTES * count * (1 if device.is_gpu else 2)  # beside the result, which is not in a GPU's pool
        return MemoryEstimate(edges) + estimate_search(n, d, itemsize, n_neighbors, device, metric=metric)

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
    n, d, has_numbers = n or len(values), values.shape[1], values.dtype.kind != "u"  # neither words nor a CPU's codes
    kind = _search_class(n, d, metric, device) if has_numbers else BruteForceSearch
    all_pairs = partial(BruteForceSearch, values, device, report, queries, progress, metric)
    search: Search | None = None
    if kind is not BruteForceSearch:
        search = kind(values, device, report, queries, progress, metric)
    elif has_numbers:
        if queries is None and may_be_low_dimensional(n, d, metric, device):
            search = _low_dimensional(values, device, report, progress, metric, all_pairs)
        search = search or search_in_tiles(values, device, report, queries, progress, metric, all_pairs, n)
    search = search or all_pairs(max_weight=max_weight, listed=listed)
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
) -> TileSearch | None:
    """Return the search in tiles of near points; None unless few pairs of tiles are needed, or tiles are prescribed.

    See `prepare_search`. Clusters that are as wide as they are far apart are connected by the search that `all_pairs`
    makes. If `within` is finite, all points up to that surrogate distance are wanted, otherwise the nearest.
    """
    wanted, n, d = forced().search if within == inf else forced().pairs, n or len(values), values.shape[1]
    m = n if queries is None else len(queries)
    if not wanted and (metric.filter != "product" or not is_worth_a_look(min(m, n), min(m, n), d, device)):
        return None
    all_products = products(m, n, d)
    kind = wanted or possible_tiles(values, n, all_products if within == inf else inf, device)
    if kind not in TILES or not TileSearch.serves(values, device, metric, queries):
        return None
    search = TileSearch(values, device, report, queries, progress, metric, None if kind == TILES[0] else all_pairs)
    if wanted:
        return search
    share = search.share(within) * COSTS[device.name].tile
    return search if takes_less("tiles", all_products, share, report) else None


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
    listed = max(1, min(k, n - (n_queries is None)))
    kinds: list[Any] = [chosen or _search_class(n, d, metric, device)]
    if k > exact_kernels(device).MAX_LIST or (chosen and chosen.for_lists):
        kinds.append(BruteForceSearch)
    if chosen is None and n_queries is None and not device.is_gpu and may_be_low_dimensional(n, d, metric, device):
        kinds.append(tree_class(device))
    a_value = CODING_BYTES * (metric.filter == "codes") + WRAPPING_BYTES * (metric.rows is Rows.PLACED)
    coding = a_value * min(n * d, BLOCK_VALUES) * (not device.is_gpu)
    estimates = (kind.estimate(n, m, d, listed, itemsize, device, metric) for kind in kinds)
    search = MemoryEstimate.either(*estimates)
    if min_samples > 1:
        search += MemoryEstimate(CORE_BYTES * n)
    return replace(search, peak=rows + max(coding, search.peak + later * m))


def _search_class(n: int, n_features: int, metric: Metric, device: Device) -> Any:
    """Return the class of searches that suits n points of this number of features."""
    if device.is_gpu and metric.filter == "codes":
        from rapids_slink.neighbors.matrix import MatrixSearch

        return MatrixSearch
    if not is_searched_by_tree(n, n_features, metric, device):
        return BruteForceSearch
    return tree_class(device)


def tree_class(device: Device) -> Any:
    """Return the class of searches by the device's tree."""
    if device.is_gpu:
        from rapids_slink.neighbors.bvh import BoxSearch

        return BoxSearch
    from rapids_slink.neighbors.kdtree import TreeSearch

    return TreeSearch


def _low_dimensional(
    values: Array, device: Device, report: Report, progress: bool | str, metric: Metric, all_pairs: Callable[[], Search]
) -> Search | None:
    """Return the search by a tree, or None if a ball of neighbours touches too many of its nodes.

    What counts are the leaves that a ball touches or, on a GPU, the nodes that a warp visits, over √n: with more of
    them the filter takes less time, by bench/NOTES.md. It is also None if a GPU lacks the memory for the tree. The
    search that `all_pairs` makes may connect the lists of a CPU's tree.
    """
    (n, d), itemsize, kind = values.shape, values.dtype.itemsize, tree_class(device)
    if device.is_gpu:
        needed = kind.estimate(n, n, d, DEFAULT_NEIGHBORS, itemsize, device, metric).peak
        if needed > free_bytes() or expansion(values, device)[0] > max_expansion(n):
            return None
        search, limit = kind(values, device, report, None, progress, metric), isqrt(n)
        share = search.mean_visits(2 * limit) / limit
    else:
        from rapids_slink.neighbors.kdtree import touched_share

        fits = BruteForceSearch.estimate(n, n, d, 1, itemsize, device, metric).least <= free_bytes()
        follower = all_pairs if metric.filter == "product" and fits else None
        search = kind(values, device, report, None, progress, metric, follower)
        share = touched_share(search.tree, metric)
    return search if takes_less("tree", products(n, n, d), share * COSTS[device.name].visit, report) else None

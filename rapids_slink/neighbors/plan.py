"""The choice of the neighbour search, and the estimate of its memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf, isqrt
from typing import Any

from rapids_slink.metrics import EUCLIDEAN, Metric, Rows
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter.choose import fused_filter
from rapids_slink.neighbors.slices import BLOCK
from rapids_slink.neighbors.task import Search
from rapids_slink.neighbors.tiles import MAX_SHARE, TileSearch
from rapids_slink.neighbors.trees.dimension import expansion, nearest_by_spread
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import MemoryEstimate, either, free_bytes, sequential

#: Up to this many features points are searched by a tree.
TREE_FEATURES = {"cpu": 8, "cuda": 6}
#: On a GPU also points of 7 and of 8, from this many points on: the first number with the fused filter, the second with
#: another. All pairs are about as fast then for Gaussian points, and take many times as long for points along curves:
#: see bench/NOTES.md.
TREE_POINTS = {7: (300_000, 30_000), 8: (1_200_000, 60_000)}
#: The features, and the fewest points, of which the values decide: a tree searches them if a ball of neighbours touches
#: few of its nodes. Of fewer points all pairs take about as long as to find that out.
LOW_DIMENSIONAL = {"cpu": (range(9, 65), 2**13), "cuda": (range(9, 33), 2**18)}
MAX_TOUCHED_SHARE = 1 / 16  # on a CPU
#: The largest expansion, of trees/dimension.py, for which a GPU makes a tree.
MAX_EXPANSION = 0.015
#: Points may be searched in tiles of near points from this number on, if by trees/dimension.py their expansion is at
#: most `MAX_SPREAD` and the nearest within this share of their spread, and if few pairs of tiles are needed.
STRUCTURED_POINTS = {"cpu": 2**13, "cuda": 2**16}
MAX_SPREAD, MAX_NEAREST = 0.4, 0.1
#: Neighbours a row when none are asked for. More cost time in the k-NN graph, fewer in connecting, for one result.
DEFAULT_NEIGHBORS = 8
#: Bytes of a value while a CPU looks for codes, beside the rows that it reads.
CODING_BYTES = 28
#: The same while it wraps coordinates into a box.
WRAPPING_BYTES = 40
#: Bytes of a point's core distance: in the lists, in the search's order and by node, and the bound of its list.
CORE_BYTES = 48


def prepare_search(
    values: Array,
    device: Device,
    report: Report,
    queries: Array = None,
    progress: bool = False,
    metric: Metric = EUCLIDEAN,
    max_weight: float = inf,
) -> Search:
    """The search that suits the metric, the device and the points, which are as `rows.metric_rows` makes them.

    No surrogate distance above `max_weight` is wanted in most tasks: a filter may be chosen by that.
    """
    n, d = values.shape
    if values.dtype.kind == "u":  # words, or a CPU's codes
        return BruteForceSearch(values, device, report, queries, progress, metric=metric)
    expansion_of = cache(lambda: expansion(values, device))  # for either choice
    if queries is None and may_be_low_dimensional(n, d, metric, device):
        search = _low_dimensional(values, device, report, progress, metric, expansion_of)
        if search is not None:
            return search
    kind = _search_class(n, d, metric, device)
    if kind is not BruteForceSearch:
        search_by: Search = kind(values, device, report, queries, progress, metric=metric)
        return search_by
    if queries is None and _may_be_structured(values, device, metric, expansion_of):
        tiles = TileSearch(values, device, report, progress=progress, metric=metric)
        if tiles.share() <= MAX_SHARE[device.name]:
            report.count("neighbors", filter="tiles of near points")
            return tiles
    return BruteForceSearch(values, device, report, queries, progress, metric, max_weight)


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
) -> MemoryEstimate:
    """Bytes of the metric's rows, the search and the lists of k neighbours, all of which are retained.

    `chosen` is the search, if the points' values have decided which it is.
    """
    m = n if n_queries is None else n_queries
    rows = metric.rows.row_bytes(d) * (n if n_queries is None else n + m)
    d = metric.rows.width(d) if metric.rows is Rows.SPHERE else d
    sizes = n, m, d, max(1, min(k, n - 1)), itemsize, device, metric
    kind: Any = type(chosen) if chosen else _search_class(n, d, metric, device)
    search = kind.estimate(*sizes)
    if chosen is None and n_queries is None and not device.is_gpu and may_be_low_dimensional(n, d, metric, device):
        search = either(search, _tree_class(device).estimate(*sizes))
    a_value = CODING_BYTES * (metric.filter == "codes") + WRAPPING_BYTES * (metric.rows is Rows.PLACED)
    a_value *= not device.is_gpu
    estimate = sequential(MemoryEstimate(rows + a_value * min(n * d, BLOCK), rows), search)
    if min_samples == 1:
        return estimate
    arranging = 40 * min(n * d, BLOCK)  # points put into the order of their core distances
    peak, retained = estimate.peak + CORE_BYTES * n, estimate.retained + CORE_BYTES * n + arranging
    return replace(estimate, peak=peak, retained=retained)


def is_searched_by_tree(n: int, n_features: int, metric: Metric, device: Device) -> bool:
    """Whether n points of this number of features are searched by a tree: then the time hardly grows with n."""
    if not metric.boxes:
        return False
    if n_features <= TREE_FEATURES[device.name]:
        return True
    if not device.is_gpu or n_features not in TREE_POINTS:
        return False
    fused = metric.filter == "product" and fused_filter(device) is not None
    return n >= TREE_POINTS[n_features][0 if fused else 1]


def _search_class(n: int, n_features: int, metric: Metric, device: Device) -> Any:
    """The class of searches that suits n points of this number of features."""
    if device.is_gpu and metric.filter == "codes":
        from rapids_slink.neighbors.matrix import MatrixSearch

        return MatrixSearch
    if not is_searched_by_tree(n, n_features, metric, device):
        return BruteForceSearch
    return _tree_class(device)


def _tree_class(device: Device) -> Any:
    """The class of searches by a tree."""
    if device.is_gpu:
        from rapids_slink.neighbors.trees.bvh import BoxSearch

        return BoxSearch
    from rapids_slink.neighbors.trees.kdtree import TreeSearch

    return TreeSearch


def may_be_low_dimensional(n: int, d: int, metric: Metric, device: Device) -> bool:
    """Whether to see if points of many features are searched by a tree after all."""
    features, min_points = LOW_DIMENSIONAL[device.name]
    return metric.boxes and d in features and n >= min_points


def _may_be_structured(values: Array, device: Device, metric: Metric, expansion_of: Callable[[], float]) -> bool:
    """Whether to see if points are searched in tiles: if most lie much nearer to others than all are far apart."""
    if metric.filter != "product" or len(values) < STRUCTURED_POINTS[device.name]:
        return False
    near = expansion_of() <= MAX_SPREAD and nearest_by_spread(values, device) <= MAX_NEAREST
    return near and TileSearch.serves(values, device, metric)


def _low_dimensional(
    values: Array, device: Device, report: Report, progress: bool, metric: Metric, expansion_of: Callable[[], float]
) -> Search | None:
    """The search by a tree, or None if a ball of neighbours touches too many of its nodes."""
    kind: Any = _tree_class(device)
    if device.is_gpu:
        (n, d), itemsize = values.shape, values.dtype.itemsize
        needed = kind.estimate(n, n, d, DEFAULT_NEIGHBORS, itemsize, device, metric).peak
        if needed > free_bytes() or expansion_of() > MAX_EXPANSION:
            return None
        search = kind(values, device, report, progress=progress, metric=metric)
        limit = isqrt(n)  # of visits; with more the filter takes less time: see bench/NOTES.md
        return search if search.mean_visits(2 * limit) < limit else None
    from rapids_slink.neighbors.trees.tree import touched_share

    search = kind(values, device, report, progress=progress, metric=metric)
    return search if touched_share(search.tree, metric) <= MAX_TOUCHED_SHARE else None

"""k-NN graphs and nearest neighbours, exact.

    points ──▶ rows of the metric ──▶ search (tiles | a tree) ──▶ Found: ids and kernel values in order, bound reached
    rows.py    metrics.py's table       tiles.py, direct.py, kdtree.py, bvh.py

A search answers a `contract.Task`: for some rows, the k least columns outside the row's group. The k-NN graph is the
task in which every point is a group; the search of connect has the components for groups and k = 1;
`nearest_neighbors` has two point sets and no groups, and on a GPU few queries have a search of their own, which
prepares nothing (nearest.py). Points may have cores: then a search goes by mutual reachability
(mutual_reachability.py), for HDBSCAN's hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from rapids_slink.device import Device, FrameAhead, resolve
from rapids_slink.memory import Need, in_turn
from rapids_slink.metrics import EUCLIDEAN, Metric, distances, get_metric
from rapids_slink.neighbors.contract import EDGE_TYPES, NeighborLists, Task
from rapids_slink.neighbors.mutual_reachability import by_mutual_reachability
from rapids_slink.neighbors.operand import BLOCK
from rapids_slink.neighbors.rows import metric_rows, row_bytes, zero_rows
from rapids_slink.points import Points, as_integer, as_points, check_finite
from rapids_slink.report import Report

#: Up to this many features points go by a tree.
TREE_FEATURES = {"cpu": 8, "cuda": 6}
#: With more as well on a GPU, from so many points on, where the fused filter serves and where another does. All pairs
#: are about as fast then for Gaussian points, and take ten times as long for points along curves: see bench/NOTES.md.
TREE_POINTS = {7: (4_000_000, 200_000), 8: (10_000_000, 500_000)}
#: What an edge takes in a frame, and while that is made as well as when it is kept.
FRAME_BYTES, EDGE_BYTES = 16, 2 * 16
#: Up to so many a k-NN graph's frame is made while the search is under way, as that of nearest neighbours always is.
FEW_EDGES = 2**23
#: Few queries may take so many bytes even if the other search takes less.
MUCH_FOR_FEW = 2**28
#: Of a point's core: in the lists, in the search's order and by node, and the bound of its list.
CORE_BYTES = 48
#: cuDF counts rows in int32.
MOST_FRAME_ROWS = 2**31 - 1


def prepare(
    values: Any,
    device: Device,
    report: Report,
    queries: Any = None,
    progress: bool = False,
    metric: Metric = EUCLIDEAN,
) -> Any:
    """The search that suits the metric, the device and the points, which are as `metric_rows` makes them."""
    n, d = values.shape
    return _search(n, d, metric, device)(values, device, report, queries, progress, metric=metric)


def need(
    n: int,
    d: int,
    itemsize: int,
    k: int,
    device: Device,
    n_queries: int | None = None,
    min_samples: int = 1,
    metric: Metric = EUCLIDEAN,
) -> Need:
    """Bytes that the metric's rows, `prepare` and the search for k neighbours take; the search and lists are kept."""
    m = n if n_queries is None else n_queries
    made = row_bytes(metric, d) * (n if n_queries is None else n + m)
    d = 3 if metric.rows == "sphere" else d
    found: Need = _search(n, d, metric, device).need(n, m, d, max(1, min(k, n - 1)), itemsize, device)
    found = in_turn(Need(made, made), found)
    if min_samples == 1:
        return found
    again = 40 * min(n * d, BLOCK)  # to put the columns into the order of their cores
    return replace(found, peak=found.peak + CORE_BYTES * n, kept=found.kept + CORE_BYTES * n + again)


def _search(n: int, n_features: int, metric: Metric, device: Device) -> Any:
    """The class of searches that suits n points of so many features."""
    if not metric.boxes or not _few_features(n, n_features, metric, device):
        from rapids_slink.neighbors.direct import all_pairs_search

        return all_pairs_search(metric)
    if device.name == "cuda":
        from rapids_slink.neighbors.bvh import BoxSearch

        return BoxSearch
    from rapids_slink.neighbors.kdtree import TreeSearch

    return TreeSearch


def _few_features(n: int, n_features: int, metric: Metric, device: Device) -> bool:
    """Whether a tree pays."""
    if n_features <= TREE_FEATURES[device.name]:
        return True
    if device.name == "cpu" or n_features not in TREE_POINTS:
        return False
    fused = metric.filter == "product" and device.kernels("neighbors").fused_filter() is not None
    return n >= TREE_POINTS[n_features][0 if fused else 1]


def neighbor_lists(
    search: Any, n: int, k: int, device: Device, min_samples: int = 1, meanwhile: Callable[[], Any] | None = None
) -> NeighborLists:
    """Each of the n points' k nearest others, weighed by mutual reachability if `min_samples` is above 1."""
    rows = device.xp.arange(n, dtype="int32")
    found = search.find(Task(rows, min(k, n - 1), rows, rows, meanwhile=meanwhile))
    lists = NeighborLists(found.ids, found.weights)
    return lists if min_samples == 1 else by_mutual_reachability(lists, min_samples, device)


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    p: float = 2.0,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """The exact k-nearest-neighbour graph of the rows of `X`.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        A cuDF or pandas DataFrame, CuPy or NumPy array, or anything with DLPack.
    n_neighbors : int
        Neighbours a row, itself not counted; at most n - 1.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard" (booleans), "inner_product" (-x·y) or "haversine" (latitude and
        longitude in radians); `rapids_slink.metrics` defines them.
    p : float
        The exponent of minkowski, above 0.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        An edge a row, n·k in all: ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), by ``src``
        and then from the nearest on; neighbours whose kernel values (squared distances, for euclidean) are equal go by
        ``dst``. cuDF if `X` is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        If `X` or a parameter is not valid, or a row has no distance in this metric; the message names it.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.
    """
    chosen = get_metric(metric, p)
    place = resolve(device, X)
    n_neighbors = check_n_neighbors(n_neighbors)
    with place.working(memory_limit=memory_limit):
        return _knn_graph(X, n_neighbors, chosen, place)


def _knn_graph(X: Any, n_neighbors: int, metric: Metric, device: Device) -> Any:
    points = as_points(X, device, lambda n, d, itemsize: _graph_need(n, d, itemsize, n_neighbors, metric, device))
    values, n = points.values, points.values.shape[0]
    search = prepare(metric_rows(metric, values, device), device, Report(), metric=metric)

    @cache
    def ahead() -> tuple[Any, FrameAhead]:
        src = device.xp.repeat(device.xp.arange(n, dtype="int32"), n_neighbors)
        return src, FrameAhead(device, src.size, EDGE_TYPES).make()

    lists = neighbor_lists(search, n, n_neighbors, device, meanwhile=ahead if n * n_neighbors <= FEW_EDGES else None)
    (src, frame), dst = ahead(), lists.ids.ravel()
    weight = distances(metric, lists.weights.ravel(), (src, dst), (values, values), device)
    return points.frame(frame.fill({"src": src, "dst": dst, "weight": weight}))


def nearest_neighbors(
    X: Any,
    Y: Any,
    *,
    metric: str = "euclidean",
    p: float = 2.0,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """For each row of `X` the nearest row of `Y` (the fused 1-NN of cuSLINK's Algorithm 4), exact.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        As `knn_graph` takes it.
    metric, p : str, float
        See `knn_graph`.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        An edge a row of `X`: ``src``, ``dst`` (int32 row numbers in `X` and `Y`) and ``weight`` (float64 distance). Of
        several rows of the same kernel value (squared distance, for euclidean), the first.

    Raises
    ------
    ValueError, TypeError
        If an input or a parameter is not valid; the message names it.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.
    """
    chosen = get_metric(metric, p)
    place = resolve(device, X, Y)
    with place.working(memory_limit=memory_limit):
        return _nearest_neighbors(X, Y, chosen, place)


def _nearest_neighbors(X: Any, Y: Any, metric: Metric, device: Device) -> Any:
    points = as_points(X, device, checked=False)
    n, d = points.values.shape
    plan: Any = None

    def following(m: int, d: int, itemsize: int) -> Need:
        nonlocal plan
        itemsizes = points.values.dtype.itemsize, itemsize
        plan = _plan((n, m, d), itemsizes, _copied(points, X), metric, device, device.ordinal, device.limited)
        return plan.need

    others = as_points(Y, device, following, name="Y", checked=False)
    m, other_d = others.values.shape
    if d != other_d:
        raise ValueError(f"X and Y must have the same number of features, got {d} and {other_d}")
    both = points.values, others.values
    if both[0].dtype != both[1].dtype:
        both = tuple(values.astype("float64", copy=False) for values in both)
    ahead = FrameAhead(device, n, EDGE_TYPES)
    if plan.few and _written_for_few(plan.few, both, ahead):
        return points.frame(ahead.frame())
    bounded = check_finite({"X": points, "Y": others}, device)
    if plan.few:
        copied = _copied(others, Y)
        device.admit(in_turn(Need(copied, copied), plan.whole()), "nearest_neighbors", taken=copied + plan.before.kept)
    xp = device.xp
    queries, values = (
        metric_rows(metric, part, device, name=name, alone=False) for part, name in zip(both, "XY", strict=True)
    )
    if metric.kernel == "braycurtis":
        _refuse_zero_rows(*both, device)
    search = prepare(values, device, Report(), queries=queries, metric=metric)
    rows, of_others = xp.arange(n, dtype="int32"), xp.full(m, -1, "int32")  # no row's group
    nearest = search.find(Task(rows, 1, rows, of_others, meanwhile=ahead.make))
    if not (bounded and metric.kernel == "squares") and not float(nearest.weights.max()) < xp.inf:
        raise ValueError(f"The {metric.name} distances between X and Y overflow float64. Rescale both.")
    dst = nearest.ids[:, 0]
    weight = distances(metric, nearest.weights[:, 0], (rows, dst), both, device)
    return points.frame(ahead.fill({"src": rows, "dst": dst, "weight": weight}))


def _copied(points: Points, given: Any) -> int:
    """Bytes of the points that are not those of what was given."""
    return 0 if points.values is given else int(points.values.nbytes)


@dataclass(frozen=True)
class _Plan:
    """What `nearest_neighbors` needs.

    Attributes
    ----------
    few : FewQueries or None
        The search that comes first.
    before : Need
        What is taken before any search.
    of_few : Need or None
        What it takes with `few`.
    whole : callable
        The need with the search that serves any points, which is seldom asked for where `few` comes first.
    """

    few: Any
    before: Need
    of_few: Need | None
    whole: Callable[[], Need]

    @property
    def need(self) -> Need:
        """What it takes at first."""
        return self.of_few or self.whole()


@lru_cache(maxsize=256)
def _plan(
    shape: tuple[int, int, int],
    itemsizes: tuple[int, int],
    copied: int,
    metric: Metric,
    device: Device,
    ordinal: int,
    limited: bool,
) -> _Plan:
    """For (queries, columns, features), bytes of either's values and of a copy of the queries.

    Plans are remembered, for one takes the host a third of the time that few queries take the GPU: also by the GPU's
    `ordinal`, and by whether there is a ``memory_limit``.
    """
    n, m, d = shape
    wide = max(itemsizes)
    widened = wide * d * sum(rows for rows, size in zip((n, m), itemsizes, strict=True) if size < wide)
    taken = copied + widened
    before = in_turn(Need(taken, taken), _frame_ahead(n))

    def search() -> Need:
        return need(m, d, wide, 1, device, n_queries=n, metric=metric)

    few = None
    if metric.kernel == "squares" and metric.rows == "given":
        dtype = "float32" if wide == 4 else "float64"
        few = device.kernels("neighbors").few_queries(n, m, d, metric, dtype)
    if few and few.need.least > (0 if limited else MUCH_FOR_FEW) and few.need.least > search().least:
        few = None
    of_few = in_turn(before, few.need) if few else None
    return _Plan(few, before, of_few, lambda: in_turn(before, _rows(n), search(), Need(EDGE_BYTES * n)))


def _written_for_few(few: Any, both: tuple[Any, Any], ahead: FrameAhead) -> bool:
    """Write the edges to where the frame's columns are; whether all are proven."""
    proven, _ = few.write(*both, *ahead.addresses)
    ahead.make()  # while the GPU works
    return proven()


def _refuse_zero_rows(X: Any, Y: Any, device: Device) -> None:
    x, y = zero_rows(X, device), zero_rows(Y, device)
    if x.size and y.size:
        raise ValueError(
            f"row {int(x[0])} of X and row {int(y[0])} of Y are zero in every column: their braycurtis distance is not "
            "defined. Drop one of them."
        )


def _graph_need(n: int, d: int, itemsize: int, k: int, metric: Metric, device: Device) -> Need:
    """Bytes that `knn_graph` takes once it has the points; refuses more neighbours than there are, or can be shown."""
    if k > n - 1:
        raise ValueError(f"n_neighbors must be at most n - 1 = {n - 1}, got {k}")
    if device.name == "cuda" and n * k > MOST_FRAME_ROWS:
        raise ValueError(f"n_neighbors={k} makes {n * k:,} edges, and a cuDF frame holds {MOST_FRAME_ROWS:,} rows")
    ahead = [_frame_ahead(n * k), _rows(n * k)] if n * k <= FEW_EDGES else []
    return in_turn(*ahead, need(n, d, itemsize, k, device, metric=metric), Need(EDGE_BYTES * n * k))


def _frame_ahead(edges: int) -> Need:
    """What a frame that is made during the search takes all the while."""
    size = FRAME_BYTES * edges
    return Need(size, kept=size, lasting=size)


def _rows(edges: int) -> Need:
    """And the rows' numbers."""
    return Need(4 * edges, kept=4 * edges)


def check_n_neighbors(n_neighbors: Any, name: str = "n_neighbors") -> int:
    """The number of neighbours as Python's integer, whose products do not overflow; refuse what is none."""
    k = as_integer(n_neighbors, name)
    if k < 1:
        raise ValueError(f"{name} must be at least 1, got {n_neighbors}")
    return k

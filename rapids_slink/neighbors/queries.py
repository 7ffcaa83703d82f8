"""The nearest rows of another table for each row, exact; and the nearest earlier row within a distance.

    X, Y ──▶ rows of the metric ──▶ one search, or one a group ──▶ lists ──▶ edges, or arrays of ids and distances
    X ──▶ rows in order ──▶ lists ──▶ rows that go on asking ──▶ the first half ──▶ the nearest of these ──▶ the second

**Of another table.** The lists are those of a `SearchTask` whose queries are the rows of X. Where rows have groups, a
large one has a search of its own. In small ones every row of Y is a candidate of every row of X, and `rerank` keeps the
nearest, many groups at a time.

**Earlier rows.** No list of pairs is kept. A list has a row's nearest others, up to the distance. Its first entry that
is an earlier row is the nearest earlier one, and without such an entry there is none, unless the list is full: then the
row goes on asking. Where only rows that stay count, which are the rows without an earlier row, a row also goes on
asking if it is not known of an entry whether that stays.

The first half of the rows is then done in the same way, and each row behind it that asks looks for the nearest one in
it; the second half follows. Pairs of few rows are found and seen one after the other.

Text, sets, and metrics whose reported distances alone tell which pairs are within, have their pairs found in ranges of
rows. Pairs come sorted by (src, dst), so all pairs of a row with earlier rows are seen before the row is a ``src``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors import EDGE_BYTES, MAX_FRAME_ROWS, estimate_search, prepare_search
from rapids_slink.neighbors.choose import takes_all_pairs
from rapids_slink.neighbors.exact import Candidates, ExactPoints, kernels
from rapids_slink.neighbors.rows import check_zeros_between, in_one_type, metric_rows, rows_of_both, zero_rows
from rapids_slink.neighbors.task import BLOCK_VALUES, SearchResult, SearchTask
from rapids_slink.neighbors.within import Limit, NearPairs, PairFrames, PairPoints, PairTask, prepare_pairs
from rapids_slink.ordering import stable_order
from rapids_slink.points import Points, as_points, codes_of
from rapids_slink.points.check import check_finite, check_same_columns
from rapids_slink.points.keys import ROW_BYTES, GroupBy, Groups, check_keys, keys_of_both, numbered_with
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame, as_known
from rapids_slink.report import Report
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory
from rapids_slink.runtime.threads import Progress, for_each_chunk, progress_bar

#: A search for few queries may take this number of bytes even if the other search takes less.
SMALL_BATCH_BYTES = 2**28
#: Bytes of an entry of a list, if there are several for a query, while lists become results.
RESULT_BYTES = 24
#: The length of lists in which earlier rows are looked for.
LISTED = 16
#: How many rows' pairs are found at once for earlier rows, and how many pairs these may be.
PAIRED_ROWS = {"cpu": 2**12, "cuda": 2**16}
ROOM = {"cpu": 2**18, "cuda": 2**19}
#: About how many pairs are seen at once where all pairs are.
PART = 2**24
#: The groups of rows that are all in one.
NO_GROUPS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class Together:
    """Which rows of X and of Y belong together, by a user's groups."""

    query_group: Array  # (m,) int32, the group of each row of X, or the number of groups if no row of Y is in it
    point_groups: Groups  # the groups of the rows of Y

    def lengths(self, k: int, device: Device) -> Array:
        """Return the number of rows of Y that each row of X lists, (m,) int64."""
        sizes = np.minimum(np.append(self.point_groups.sizes, 0), k)
        return device.asarray(sizes)[self.query_group]


@dataclass(frozen=True)
class NearestTask:
    """The nearest rows that a call asks for."""

    metric: Metric
    k: int = 1
    as_arrays: bool = False  # instead of a frame
    by: GroupBy | None = None
    memory_limit: Any = None

    def check_points(self, n: int) -> None:
        """Raise ValueError if Y, of n rows, has fewer than k."""
        if self.k > n:
            raise ValueError(f"n_neighbors must be at most the number of rows of Y, {n}, got {self.k}")


class NearestEdges:
    """The result of a task, which is allocated before the search: edges in a frame, or arrays of ids and distances.

    Each of m rows has k entries or, if rows have groups, as many as `together` says.
    """

    def __init__(self, task: NearestTask, m: int, together: Together | None, device: Device) -> None:
        self.task, self.m, self.device = task, m, device
        self.lengths = None if together is None else together.lengths(task.k, device)
        self.count = m * task.k if self.lengths is None else int(self.lengths.sum())
        if device.is_gpu and not task.as_arrays and self.count > MAX_FRAME_ROWS:
            raise ValueError(
                f"n_neighbors={task.k} makes {self.count:,} edges, and a cuDF frame holds {MAX_FRAME_ROWS:,} rows: "
                "pass output='arrays'"
            )
        self.frame: PreallocatedFrame

    def allocate(self) -> tuple[Array, Array, Array]:
        """Allocate and return src, dst and weight; src is not in the result if that is of arrays."""
        device, as_arrays = self.device, self.task.as_arrays
        size = self.m * self.task.k if as_arrays else self.count
        types = {name: dtype for name, dtype in EDGE_TYPES.items() if not (as_arrays and name == "src")}
        self.frame = PreallocatedFrame.empty(device, size, types)
        columns = self.frame.columns
        return columns["src"] if "src" in columns else device.xp.empty(size, "int32"), columns["dst"], columns["weight"]

    @cached_property
    def listed(self) -> Any:
        """Return which entries of m lists of k, one after the other, hold a row of Y: a slice or indices."""
        if self.lengths is None:
            return slice(None)
        xp = self.device.xp
        return xp.flatnonzero((xp.arange(self.task.k) < self.lengths[:, None]).ravel())

    @property
    def rows(self) -> Array:
        """Return the row of X of each entry that is listed, int32."""
        xp, shape = self.device.xp, (self.m, self.task.k)
        return xp.broadcast_to(xp.arange(self.m, dtype="int32")[:, None], shape).ravel()[self.listed]

    def write(self, edges: tuple[Array, Array, Array], ends: tuple[Array, Array], distance: Array) -> None:
        """Write the entries that are listed into what `allocate` has returned."""
        src, dst, weight = edges
        into = slice(None)
        if self.task.as_arrays:
            into = self.listed
            if self.lengths is not None:
                dst[...], weight[...] = -1, np.inf
        else:
            src[...] = ends[0]
        dst[into], weight[into] = ends[1], distance

    def result(self, queries: Points) -> Any:
        """Return the frame or the arrays in the type of X."""
        if not self.task.as_arrays:
            return queries.frame(self.frame.frame)
        shape = self.m, self.task.k
        return tuple(queries.output.array(self.frame.columns[name].reshape(shape)) for name in ("weight", "dst"))


def nearest_neighbors(X: Any, Y: Any, task: NearestTask, device: Device) -> Any:
    """Return the result of `api.nearest_neighbors`, computed on a device within a run."""
    metric, k, together = task.metric, task.k, None
    X, Y = as_known(X), as_known(Y)
    if task.by is not None:
        X, Y, together = read_together(X, Y, task.by, device)
    codes = codes_of(Y, metric, device)
    queries = as_points(X, device, metric=metric, checked=False, codes=codes)
    m, d = queries.values.shape
    if together is not None:
        check_keys(together.query_group.size, m, "X")
    result = NearestEdges(task, m, together, device)
    small: Any = None

    def search(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return _estimate((m, n, d), max(itemsize, queries.values.dtype.itemsize), task, device)

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        nonlocal small
        small = None
        task.check_points(n)
        if together is not None:
            check_keys(together.point_groups.number.size, n, "Y")
        elif k == 1 and device.is_gpu and itemsize == queries.values.dtype.itemsize:  # both are of one type
            from rapids_slink.neighbors.small_batch import SmallBatchSearch

            small = SmallBatchSearch(m, n, d, metric)
            small = small if small.is_supported else None
        if small and small.estimate.least > SMALL_BATCH_BYTES and small.estimate.least > search(n, d, itemsize).least:
            small = None
        return small.estimate if small else search(n, d, itemsize)

    points = as_points(Y, device, following, metric=metric, name="Y", checked=False, codes=codes)
    check_same_columns((d, queries.names), (points.values.shape[1], points.names))
    metric = metric.of_columns(points.names or queries.names, d)
    edges, both = result.allocate(), in_one_type(queries.values, points.values)
    src, dst, weight = edges
    if not (small and small.write_edges(both[0], both[1], src, dst, weight)):
        bounded = check_finite({"X": queries, "Y": points}, metric, device)
        if small:
            check_memory(device, search(len(points.values), d, both[1].dtype.itemsize), "nearest_neighbors")
        lists = _lists(both, k, together, metric, device)
        ends, surrogate = (result.rows, lists.ids.ravel()[result.listed]), lists.weights.ravel()[result.listed]
        is_finite = bounded and metric.formula == "squared_euclidean"
        if not is_finite and surrogate.size and not float(surrogate.max()) < np.inf:
            raise ValueError(f"The {metric.name} distances between X and Y overflow float64. Rescale both.")
        result.write(edges, ends, distances(metric, surrogate, ends, both, device))
    return result.result(queries)


def _lists(both: tuple[Any, Any], k: int, together: Together | None, metric: Metric, device: Device) -> SearchResult:
    """Return the lists of all queries among the points; `both` holds the queries and the points, in this order.

    Raise ValueError if the distance of a query and a point that are compared is not defined.
    """
    xp = device.xp
    queries, points = rows_of_both(metric, both, device)
    if metric.formula.is_undefined_for_zeros:
        x, y = (zero_rows(part, device) for part in both)
        if together is None:
            check_zeros_between(x, y, metric)
        else:
            x_group, y_group = together.query_group[x], together.point_groups.number[y]
            for group in xp.intersect1d(x_group, y_group)[:1]:
                check_zeros_between(x[x_group == group], y[y_group == group], metric)
    if together is not None:
        return _lists_within_groups(queries, points, k, together, metric, device)
    return search_lists(queries, points, k, metric, device)


def search_lists(
    queries: Array,
    points: Array,
    k: int,
    metric: Metric,
    device: Device,
    upper: Array = None,
    progress: bool | str = False,
) -> SearchResult:
    """Return the lists of all queries among all points, both as the metric reads them.

    `upper`, (m,) float64, is the surrogate distance up to which each query's points are wanted, by default any.
    """
    xp = device.xp
    listed = k if upper is None else 0
    search = prepare_search(points, device, Report(), queries, progress, metric, listed=listed)
    rows, no_group = xp.arange(len(queries), dtype="int32"), xp.full(len(points), -1, "int32")
    return search.find(SearchTask(rows, k, rows, no_group, upper))


def _lists_within_groups(
    queries: Array, points: Array, k: int, together: Together, metric: Metric, device: Device
) -> SearchResult:
    """Return the lists of all queries, each among the points of its group.

    A list whose group has fewer than k points is filled up with -1 and infinity.
    """
    xp, groups = device.xp, together.point_groups
    sizes, starts = np.append(groups.sizes, 0), groups.starts
    order = stable_order(together.query_group, xp).astype("int32")
    asked = to_host(xp.bincount(together.query_group, minlength=sizes.size))
    first = np.concatenate(([0], np.cumsum(asked)))
    m = len(queries)
    lists = SearchResult(xp.full((m, k), -1, "int32"), xp.full((m, k), xp.inf), xp.full(m, xp.inf))
    searches = (forced().search is not None) | (sizes > kernels(device).MAX_LIST)  # a list may have the whole group
    is_large = (asked > 0) & (searches | ~takes_all_pairs(asked * sizes, device))
    for group in np.flatnonzero(is_large & (sizes > 0)).tolist():
        rows, own = order[first[group] : first[group + 1]], groups.order[starts[group] : starts[group + 1]]
        nearest = search_lists(queries[rows], points[own], min(k, own.size), metric, device)
        lists.ids[rows, : own.size], lists.weights[rows, : own.size] = own[nearest.ids], nearest.weights
    rows_are_large = np.repeat(is_large, asked)
    small_rows, their_sizes = order[device.asarray(~rows_are_large)], np.repeat(sizes, asked)[~rows_are_large]
    by_size = np.argsort(-their_sizes, kind="stable")
    small_rows, their_sizes = small_rows[device.asarray(by_size)], their_sizes[by_size]
    exact, begins = ExactPoints(queries, points, metric), device.asarray(starts)

    def keep_nearest(chunk: slice) -> None:
        rows, capacity = small_rows[chunk], int(their_sizes[chunk.start])
        position = begins[together.query_group[rows]][:, None] + xp.arange(capacity)
        ids = groups.order[xp.minimum(position, len(points) - 1)]
        count = device.asarray(their_sizes[chunk].astype(np.int32))
        top = kernels(device).empty_lists(rows.size, min(k, capacity))
        kernels(device).rerank(exact, rows, Candidates(ids, count), None, xp.full(rows.size, xp.inf), top)
        lists.ids[rows, :capacity], lists.weights[rows, :capacity] = top.ids, top.weights

    for_each_chunk(device, keep_nearest, list(_chunks_of_groups(their_sizes)))
    return lists


def _chunks_of_groups(sizes: np.ndarray) -> Iterator[slice]:
    """Yield slices of rows that have at most `BLOCK_VALUES` candidates in all, or of one row.

    `sizes` are those of the rows' groups, and descend. Rows without a candidate are in no slice.
    """
    begin, count = 0, int(np.count_nonzero(sizes))
    while begin < count:
        end = min(count, begin + max(1, BLOCK_VALUES // int(sizes[begin])))
        yield slice(begin, end)
        begin = end


def read_together(X: Any, Y: Any, by: GroupBy, device: Device) -> tuple[Any, Any, Together]:
    """Return X and Y without their key columns, and which of their rows belong together."""
    X, Y, keys, y_keys = keys_of_both(X, Y, by, device)
    check_memory(device, MemoryEstimate(ROW_BYTES * (len(keys) + len(y_keys))), "the keys of X and Y")
    return X, Y, Together(*numbered_with(keys, y_keys, device))


def _estimate(shape: tuple[int, int, int], itemsize: int, task: NearestTask, device: Device) -> MemoryEstimate:
    """Estimate the bytes of the k nearest of n points to m queries of d features, with copies in one type and results.

    `shape` is (m, n, d). Rows that have groups are copied once more, and have keys and lists.
    """
    (m, n, d), k = shape, task.k
    copies = itemsize * d * (m + n) + (EDGE_BYTES * (not device.is_gpu) + RESULT_BYTES * (k > 1)) * m * k
    search = estimate_search(n, d, itemsize, k, device, n_queries=m, metric=task.metric)
    if task.by is not None:
        copies += (itemsize * d + task.metric.rows.row_bytes(d) + ROW_BYTES) * (m + n) + 12 * m * k
    return MemoryEstimate(copies) + search


# ------------------------------------------------------------------------------------------------ earlier rows


def nearest_earlier(
    points: PairPoints, task: PairTask, device: Device, *, leaders: bool, group: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest earlier row of each row, (n,) int32, or -1, and its distance, (n,) float64, or infinity.

    If several are at one distance, the first is returned. If `leaders`, only rows that have no such row themselves
    count as earlier rows. If `group`, (n,) int32, is given, only rows of a row's own group count.
    """
    values, n = points.queries.values, len(points.queries.values)
    metric = task.metric.of_columns(points.queries.names, values.shape[1])
    limit = Limit.of(metric, float(task.distances[-1]), values.shape[1])
    if not limit.decides:
        return nearest_of_pairs(NearPairs(points, task, device), leaders=leaders, group=group)
    order = np.arange(n) if group is None else np.argsort(group, kind="stable")
    rows = metric_rows(metric, values, device)
    halves = _Halves(
        rows if group is None else rows[device.asarray(order)], limit.surrogate, metric, device, leaders,
        NO_GROUPS if group is None else group[order],
    )  # fmt: skip
    shown = Progress("Searching pairs", n, task.progress) if task.progress else None
    with progress_bar(n, shown) as halves.advance:
        halves.solve(0, n)
    nearest, distance = np.full(n, -1, np.int32), np.full(n, np.inf)
    at = np.flatnonzero(halves.nearest >= 0)
    nearest[order[at]] = order[halves.nearest[at]]
    ends = tuple(device.asarray(end.astype(np.int32)) for end in (order[at], order[halves.nearest[at]]))
    weight = device.asarray(halves.weight[at])
    distance[order[at]] = to_host(distances(metric, weight, ends, (values, values), device))
    return nearest, distance


def nearest_elsewhere(points: PairPoints, task: PairTask, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest row of Y of each row of X, (m,) int32, or -1, and its distance; see `nearest_earlier`."""
    (m, _, d), xp = points.shape, device.xp
    metric = task.metric.of_columns(points.queries.names or points.points.names, d)
    limit = Limit.of(metric, float(task.distances[-1]), d)
    if not limit.decides:
        return nearest_of_pairs(NearPairs(points, task, device))
    queries, others = rows_of_both(metric, points.both, device)
    lists = search_lists(queries, others, 1, metric, device, xp.full(m, limit.surrogate), task.progress)
    ids, weight = lists.ids[:, 0], lists.weights[:, 0]
    nearest, distance = np.full(m, -1, np.int32), np.full(m, np.inf)
    at = xp.flatnonzero((ids >= 0) & (weight <= limit.surrogate)).astype("int32")
    nearest[to_host(at)] = to_host(ids[at])
    distance[to_host(at)] = to_host(distances(metric, weight[at], (at, ids[at]), points.both, device))
    return nearest, distance


def nearest_of_pairs(
    near: PairFrames, *, leaders: bool = False, group: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return `nearest_earlier` of one set of rows, `nearest_elsewhere` of two, by all pairs within the distance."""
    n, group = near.n_rows, NO_GROUPS if group is None else group
    nearest, distance = np.full(n, -1, np.int32), np.full(n, np.inf)
    for src, dst, weight in near.parts(PART):
        rows, others = map(to_host, (dst, src) if near.is_one else (src, dst))
        _lower(rows, others, to_host(weight), group, leaders, nearest, distance)
    return nearest, distance


class _Halves:
    """The nearest earlier rows of rows in order, which are as `metric_rows` makes them.

    `nearest` and `weight` are what is known so far, on the host: the weight is the least surrogate distance, and just
    above the limit where there is none. A row `asks` until they are known.
    """

    advance: Callable[..., None]

    def __init__(
        self, rows: Array, limit: float, metric: Metric, device: Device, leaders: bool, group: np.ndarray
    ) -> None:
        self.rows, self.limit, self.metric, self.device = rows, limit, metric, device
        self.leaders, self.group = leaders, group
        self.nearest, self.weight = np.full(len(rows), -1, np.int32), np.full(len(rows), np.nextafter(limit, np.inf))
        self.asks = np.ones(len(rows), bool)

    def solve(self, begin: int, end: int) -> None:
        """Find the nearest earlier row, among the rows of a range, of each of these that asks."""
        size, most_rows = end - begin, forced().block or PAIRED_ROWS[self.device.name]
        if not self.asks[begin:end].any() or (size <= most_rows and self._by_pairs(begin, end)):
            self.advance(size)
            return
        if not self.leaders or size == len(self.rows):
            self._by_lists(begin, end)
        middle = (begin + end) // 2
        self.solve(begin, middle)
        self._across(begin, middle, end)
        self.solve(middle, end)

    def _asking(self, begin: int, end: int) -> np.ndarray:
        """Return the rows of the range that ask, int32."""
        return np.flatnonzero(self.asks[begin:end]).astype(np.int32) + np.int32(begin)

    def _points(self, begin: int, end: int) -> np.ndarray:
        """Return the rows of the range that may count as earlier rows, int32."""
        rows = np.arange(begin, end, dtype=np.int32)
        return rows[self.nearest[begin:end] < 0] if self.leaders else rows

    def _by_pairs(self, begin: int, end: int) -> bool:
        """Find the nearest earlier rows among the pairs of the range; return whether these were few enough.

        The pairs are those of the rows that ask with the rows that count, or of all rows if these are about as many.
        """
        size, asking, points = end - begin, self._asking(begin, end), self._points(begin, end)
        if size < 2 or not points.size:
            return True
        among, queries = self.rows[begin:end], None
        if 2 * asking.size * points.size > size * size:
            asking = points = np.arange(begin, end, dtype=np.int32)
        else:
            among, queries = (self.rows[self.device.asarray(some)] for some in (points, asking))
        search, rows = prepare_pairs(among, queries, self.limit, self.metric, self.device), slice(0, asking.size)
        room = ROOM[self.device.name]
        if search.count(rows, np.array([self.limit]))[0] > room:
            return False
        near_pairs = search.find(rows, room)
        src, dst, weight = map(to_host, (near_pairs.src, near_pairs.dst, near_pairs.weight))
        row, other = (points[dst], points[src]) if queries is None else (asking[src], points[dst])
        earlier = slice(None) if queries is None else other < row
        _lower(row[earlier], other[earlier], weight[earlier], self.group, self.leaders, self.nearest, self.weight)
        return True

    def _by_lists(self, begin: int, end: int) -> None:
        """Find the nearest earlier rows of a range in lists; rows whose lists are too short for that keep asking."""
        xp, asking, size = self.device.xp, self._asking(begin, end), end - begin
        rows, k, everyone = self.rows[begin:end], min(LISTED, size - 1), xp.arange(size, dtype="int32")
        some = everyone if asking.size == size else self.device.asarray(asking - np.int32(begin))
        upper = self.device.asarray(self.weight[asking])
        search = prepare_search(rows, self.device, Report(), metric=self.metric, max_weight=self.limit)
        lists = search.find(SearchTask(some, k, everyone, everyone, upper))
        ids, weights = lists.ids, lists.weights
        is_full = (ids[:, -1] >= 0) & (weights[:, -1] <= lists.upper) & (k < size - 1)
        at, column = xp.nonzero((ids >= 0) & (ids < some[:, None]) & (weights < upper[:, None]))
        row, other, weight = map(to_host, (some[at], ids[at, column], weights[at, column]))
        row, other = row + np.int32(begin), other + np.int32(begin)
        _read_lists(
            asking, to_host(is_full), row, other, weight, self.group, self.leaders, self.asks, self.nearest, self.weight
        )

    def _across(self, begin: int, middle: int, end: int) -> None:
        """Find the nearest of the rows before the middle for each asking row from the middle on."""
        if self.group.size:  # these are sorted: only rows of the group around the middle have others across it
            own = self.group[middle]
            begin = begin + int(np.searchsorted(self.group[begin:middle], own, side="left"))
            end = middle + int(np.searchsorted(self.group[middle:end], own, side="right"))
        points, behind = self._points(begin, middle), self._asking(middle, end)
        if not points.size or not behind.size:
            return
        device = self.device
        queries, others = (self.rows[device.asarray(some)] for some in (behind, points))
        lists = search_lists(queries, others, 1, self.metric, device, device.asarray(self.weight[behind]))
        ids, weight = to_host(lists.ids[:, 0]), to_host(lists.weights[:, 0])
        nearer = (ids >= 0) & (weight < self.weight[behind])
        self.nearest[behind[nearer]], self.weight[behind[nearer]] = points[ids[nearer]], weight[nearer]


@njit(nogil=True, cache=True)
def _lower(rows: Any, others: Any, weight: Any, group: Any, leaders: Any, nearest: Any, least: Any) -> None:
    """Lower the nearest of some rows, each with another row of which all pairs with earlier ones have been seen."""
    for e in range(rows.size):
        row, other = rows[e], others[e]
        if leaders and nearest[other] >= 0:
            continue
        if weight[e] < least[row] and (group.size == 0 or group[row] == group[other]):
            nearest[row], least[row] = other, weight[e]


@njit(nogil=True, cache=True)
def _read_lists(
    asking: Any, is_full: Any, rows: Any, others: Any, weight: Any, group: Any, leaders: Any, asks: Any, nearest: Any,
    least: Any,
) -> None:  # fmt: skip
    """Read the earlier rows in the lists of the asking rows, each list in its order; note which rows keep asking."""
    e = 0
    for a in range(asking.size):
        row, goes_on, is_known = asking[a], is_full[a], False
        while e < rows.size and rows[e] == row:
            other = others[e]
            counts = group.size == 0 or group[row] == group[other]
            if not is_known and counts and leaders and asks[other]:
                goes_on = is_known = True  # that row may stay or not
            elif not is_known and counts and not (leaders and nearest[other] >= 0):
                nearest[row], least[row] = other, weight[e]
                goes_on, is_known = False, True
            e += 1
        asks[row] = goes_on

"""The nearest earlier row within a distance of each row, or the nearest of another table; no list of pairs is kept.

    rows in order ──▶ lists ──▶ rows that go on asking ──▶ the first half ──▶ the nearest of these ──▶ the second half

A list has a row's nearest others, up to the distance. Its first entry that is an earlier row is the nearest earlier
one, and without such an entry there is none, unless the list is full: then the row goes on asking. Where only rows that
stay count, which are the rows without an earlier row, a row also goes on asking if it is not known of an entry whether
that stays.

The first half of the rows is then done in the same way, and each row behind it that asks looks for the nearest one in
it; the second half follows. Pairs of few rows are found and seen one after the other.

Text, sets, and metrics whose reported distances alone tell which pairs are within, have their pairs found in ranges of
rows. Pairs come sorted by (src, dst), so all pairs of a row with earlier rows are seen before the row is a ``src``.
"""

from collections.abc import Callable

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors import prepare_search
from rapids_slink.neighbors.queries import search_lists
from rapids_slink.neighbors.rows import metric_rows, rows_of_both
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.neighbors.within import (
    Limit,
    NearPairs,
    PairFrames,
    PairPoints,
    PairTask,
    prepare_pairs,
)
from rapids_slink.report import Report
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.threads import Progress, progress_bar

#: The length of lists.
LISTED = 16
#: How many rows' pairs are found at once, and how many pairs these may be.
BLOCK = {"cpu": 2**12, "cuda": 2**16}
ROOM = {"cpu": 2**18, "cuda": 2**19}
#: About how many pairs are seen at once where all pairs are.
PART = 2**24
#: The groups of rows that are all in one.
NO_GROUPS = np.zeros(0, np.int32)


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
        size, most_rows = end - begin, forced().block or BLOCK[self.device.name]
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
        """Find the nearest earlier rows of a range in lists; rows whose lists do not tell go on asking."""
        xp, asking, size = self.device.xp, self._asking(begin, end), end - begin
        rows, k, everyone = self.rows[begin:end], min(LISTED, size - 1), xp.arange(size, dtype="int32")
        some = everyone if asking.size == size else self.device.asarray(asking - np.int32(begin))
        upper = self.device.asarray(self.weight[asking])
        search = prepare_search(rows, self.device, Report(), metric=self.metric, max_weight=self.limit)
        lists = search.find(SearchTask(some, k, everyone, everyone, upper))
        ids, weights = lists.ids, lists.weights
        is_full = (ids[:, -1] >= 0) & (weights[:, -1] <= lists.upper) & (k < size - 1)
        at, place = xp.nonzero((ids >= 0) & (ids < some[:, None]) & (weights < upper[:, None]))
        row, other, weight = map(to_host, (some[at], ids[at, place], weights[at, place]))
        row, other = row + np.int32(begin), other + np.int32(begin)
        _read_lists(
            asking, to_host(is_full), row, other, weight, self.group, self.leaders, self.asks, self.nearest, self.weight
        )

    def _across(self, begin: int, middle: int, end: int) -> None:
        """Find the nearest of the rows before the middle for each row behind it that asks."""
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
def _lower(rows, others, weight, group, leaders, nearest, least):
    """Lower the nearest of some rows, each with another row of which all pairs with earlier ones have been seen."""
    for e in range(rows.size):
        row, other = rows[e], others[e]
        if leaders and nearest[other] >= 0:
            continue
        if weight[e] < least[row] and (group.size == 0 or group[row] == group[other]):
            nearest[row], least[row] = other, weight[e]


@njit(nogil=True, cache=True)
def _read_lists(asking, is_full, rows, others, weight, group, leaders, asks, nearest, least):
    """Read the earlier rows in lists, those of each row that asks in their order; note the rows that go on asking."""
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

"""All pairs of rows within a distance, exact: the stages of `rapids_slink.pairs` and its relatives on one device.

    points ──▶ rows of the metric ──▶ PairSearch ──▶ src, dst, surrogate distances ──▶ frame
               rows.py                cpu.py, cuda.py    of a range of rows, in order   of X's library

    tree of boxes                          few features: rows that are near each other share a walk of the tree
    tiles of near points                   structured points: lists of the points within the bound
    filter by products or counts           many features: each pair of tiles once, without lists; survivors exactly
    exact tiles                            everything else
    distinct rows                          counts where few rows are distinct, whose pairs count for all

A `PairSearch` is prepared for one bound. The pairs of a range of rows are those whose `src` is in it, so that ranges
together hold each pair once: of one set of points src < dst, of two sets src is a query and dst a point. Ranges make
frames that follow one another. A frame that would not fit into memory is refused with the number of its pairs, which
are counted to the end.

The bound is of surrogate distances. Where the reported distance is a growing function of these, `Limit` is the largest
one whose distance is within: rounded functions that grow keep the order, so nothing else decides. Otherwise (an angle,
a power) the bound is a little too large, and the distances decide at the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, Never, Self

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric, distances, largest, surrogate_bound
from rapids_slink.neighbors import MAX_FRAME_ROWS, estimate_search, search_in_tiles
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import (
    Copies,
    check_zeros_between,
    find_repeats,
    in_one_type,
    metric_rows,
    require_common_features_with,
    rows_of_both,
    zero_rows,
)
from rapids_slink.neighbors.task import SearchTask, chunks_of, equal_slices, golden_stride
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.points import Points, as_points, codes_of
from rapids_slink.points.check import check_finite, check_same_columns
from rapids_slink.points.output import OutputKind, as_known, frame_of
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device, half, to_host
from rapids_slink.runtime.memory import (
    DeviceMemoryError,
    MemoryEstimate,
    check_memory,
    free_bytes,
    room_bytes,
    rows_that_fit,
    size_text,
)
from rapids_slink.runtime.threads import Progress
from rapids_slink.settings import Settings

#: Bytes of a pair while it is collected: its columns as they are found, in order, and as distances. Bytes of the
#: buffers in which few pairs are collected.
PAIR_BYTES, BUFFER_BYTES = {"cpu": 48, "cuda": 72}, 2**21
#: How many rows' pairs are found at a time where only distances tell which pairs are within.
COUNTED_ROWS = 2**16
#: The length of the first lists, and the factor by which further ones are longer.
FIRST_LISTED, LONGER = 32, 8
#: The rows by which the share of full lists is estimated, and the largest such share with which lists serve.
SAMPLED_ROWS, MAX_FULL = 2**10, 1 / 16
#: The most rows that are listed at a time, the bytes of an entry of a list while pairs are taken from it, and the
#: number of pairs whose distances are computed at a time.
LISTED_ROWS, ENTRY_BYTES, AT_ONCE = 2**21, 64, 2**24
#: Pairs of this number of rows are counted by their distinct rows if these are at most `MAX_DISTINCT`, and each comes
#: `COPIED` times on average.
MIN_COUNTED, MAX_COUNTED, MAX_DISTINCT, COPIED = 2**12, 2**26, 2**12, 4
ADVICE = "iter_pairs makes them a range of rows at a time, and count_pairs counts them"


@dataclass(frozen=True)
class Limit:
    """The limit of a distance: the surrogate distances of the pairs within it."""

    surrogate: float  # pairs within the distance have at most this
    decides: bool  # whether no pair beyond the distance has such a surrogate distance

    @classmethod
    def of(cls, metric: Metric, distance: float, n_features: int) -> Self:
        """Return the limit of a distance of the metric, for rows whose input has `n_features` features."""
        bound = surrogate_bound(metric, distance, n_features)
        if metric.changes_order:
            return cls(bound, decides=False)
        if metric.distance == "value":
            return cls(distance, decides=True)
        no_rows = np.empty((0, n_features))

        def is_within(surrogate: float) -> bool:
            with np.errstate(over="ignore", invalid="ignore"):  # far beyond all distances
                weight = distances(metric, np.array([surrogate]), (None, None), (no_rows, no_rows), CPU)
            return bool(weight[0] <= distance)

        if not is_within(0.0):
            return cls(-inf, decides=True)
        below = bound * (1 - 1e-8)  # mostly the limit is just below the bound
        return cls(largest(is_within, below if is_within(below) else 0.0, bound), decides=True)


@dataclass(frozen=True)
class Found:
    """The pairs of a range of rows, sorted by (src, dst)."""

    count: int
    #: None if there are more pairs than there is room for: then these are only counted
    src: Array = None  # (count,) int32
    dst: Array = None  # (count,) int32
    weight: Array = None  # (count,) float64, surrogate distances

    @classmethod
    def of(cls, pair: Array, weight: Array, xp: Any) -> Self:
        """Return pairs in their order; a pair is an int64, src in its upper half and dst in the lower."""
        order = xp.argsort(pair)
        pair, weight = pair[order], weight[order]
        return cls(pair.size, (pair >> 32).astype("int32"), (pair & 0xFFFFFFFF).astype("int32"), weight)


class PairSearch:
    """A search for the pairs of some points, or of queries and points, within a bound.

    It may outlive the run that prepares it, and keeps no array that a later run makes. Its pairs come in parts, as
    `Found.of` takes them, unless it has a `find` and a `count` of its own.
    """

    progress: bool | str = False
    device: Device
    limit: float

    def parts(self, rows: slice) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of some rows and their surrogate distances, in parts and in no order."""
        raise NotImplementedError

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Return the pairs of these rows if they are at most `room`, and otherwise only their number.

        Unless it `goes_on`, the search stops above `room`, and returns some number above it.
        """
        total, pairs, weights = 0, [], []
        for pair, weight in self.parts(rows):
            total += pair.size
            if total <= room:
                pairs.append(pair)
                weights.append(weight)
            else:
                pairs, weights = [], []
                if not goes_on:
                    break
        if total > room:
            return Found(total)
        xp = self.device.xp
        pair, weight = (part[0] if len(part) == 1 else xp.concatenate(part) for part in (pairs, weights))
        return Found.of(pair, weight, xp)

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Return the numbers of pairs of these rows within surrogate distances, (limits,) int64.

        The limits ascend up to the bound.
        """
        counts = np.zeros(limits.size, np.int64)
        for _, weight in self.parts(rows):
            counts += counts_within(weight, limits, self.device)
        return counts

    def bar(self, rows: slice) -> Progress | None:
        """Return a progress bar over some rows; None if none is shown."""
        return Progress("Searching pairs", rows.stop - rows.start, self.progress) if self.progress else None


def counts_within(weight: Array, limits: np.ndarray, device: Device, pairs: Array = None) -> np.ndarray:
    """Return how many pairs weigh at most each of the ascending limits, (limits,) int64 on the host.

    A weight is that of one pair or of as many as `pairs` says, float64, all together less than 2⁵³.
    """
    xp = device.xp
    counts = xp.bincount(xp.searchsorted(device.asarray(limits), weight), pairs, minlength=limits.size + 1)
    return np.cumsum(to_host(counts)[:-1]).astype(np.int64)


class CopyCounts(PairSearch):
    """A count of the pairs of all rows, made from the pairs of the few distinct rows."""

    def __init__(self, copies: Copies, rows: Array, limit: float, metric: Metric, device: Device) -> None:
        first = copies.first
        self.device, self.count_of = device, copies.count.astype("float64")
        self.own = kernels(device).pair_distances(rows, first, first, metric)
        few = first.size > 1
        self.search = prepare_pairs(rows[first], None, limit, metric, device) if few else None

    @classmethod
    def of(cls, rows: Array, limit: float, metric: Metric, device: Device) -> Self | None:
        """Return the count of pairs of some rows; None unless many are equal."""
        if not MIN_COUNTED <= len(rows) <= MAX_COUNTED or metric.missing:
            return None
        copies = find_repeats(rows, device, min(MAX_DISTINCT, len(rows) / COPIED))
        return None if copies is None else cls(copies, rows, limit, metric, device)

    def count(self, rows: slice, limits: np.ndarray) -> np.ndarray:
        """Count the pairs of all rows within each limit: see `PairSearch.count`."""
        of = self.count_of
        counts = counts_within(self.own, limits, self.device, of * (of - 1) / 2)
        if self.search is not None:
            pairs = self.search.find(slice(0, of.size), np.inf)
            counts += counts_within(pairs.weight, limits, self.device, of[pairs.src] * of[pairs.dst])
        return counts


def prepare_pairs(
    values: Array, queries: Array, limit: float, metric: Metric, device: Device, progress: bool | str = False
) -> PairSearch:
    """Return the search that suits the points, (n, d), and the queries, None for the points themselves.

    Both are arrays that `rows.metric_rows` makes, of one type. No surrogate distance above `limit` is wanted.
    `progress` is whether to show a progress bar.
    """
    search: PairSearch = half(device, __package__).prepare(values, queries, limit, metric)
    search.progress = progress
    return search


def in_tiles(values: Array, queries: Array, limit: float, metric: Metric, device: Device) -> "TilePairs | None":
    """Return the search for the pairs of structured points; None unless lists within the limit serve them.

    A sample of rows shows beforehand whether few lists are full. If most rows have many points within the bound, other
    searches serve, which make no lists.
    """
    n, wanted = len(values), forced().pairs
    if values.dtype.kind != "f" or not -np.inf < limit < np.inf or wanted not in (None, "tiles"):
        return None
    search = search_in_tiles(values, device, Report(), queries, metric=metric, within=limit)
    if search is None:
        return None
    pairs = TilePairs(search, n, limit, device)
    return pairs if wanted or pairs.share_full() <= MAX_FULL else None


class TilePairs(PairSearch):
    """A search for pairs in tiles of near points, by lists of each row's nearest points within the limit.

    A list that is not full has all points within the limit. The rows of full lists get longer ones.
    """

    def __init__(self, search: TileSearch, n: int, limit: float, device: Device) -> None:
        self.search, self.n, self.limit, self.device = search, n, limit, device
        self.n_rows, self.is_one = len(search.exact.queries), not search.first_query

    def share_full(self) -> float:
        """Estimate the share of rows that have at least `FIRST_LISTED` points within the limit."""
        size = min(self.n_rows, SAMPLED_ROWS)
        rows = self.device.asarray((np.arange(size) * golden_stride(self.n_rows) % self.n_rows).astype(np.int32))
        return float(self._lists(self.search, rows, FIRST_LISTED)[2].mean())

    def parts(self, rows: slice) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of some rows: see `PairSearch.parts`."""
        xp, search = self.device.xp, self.search.copy()  # what it makes in this run is gone with it
        most_rows = rows_that_fit(LISTED_ROWS, ENTRY_BYTES * FIRST_LISTED, free_bytes() / 4)
        for chunk in equal_slices(rows, most_rows):
            waiting, k = xp.arange(chunk.start, chunk.stop, dtype="int32"), FIRST_LISTED
            while waiting.size and k <= search.exact_kernels.MAX_LIST:
                ids, weights, is_full = self._lists(search, waiting, k)
                listed = (ids >= 0) & (weights <= self.limit) & ~is_full[:, None]
                if self.is_one:
                    listed &= ids > waiting[:, None]
                at, column = xp.nonzero(listed)
                yield waiting[at].astype("int64") << 32 | ids[at, column], weights[at, column]
                waiting, k = waiting[is_full], LONGER * k
            for some in chunks_of(waiting, max(1, AT_ONCE // self.n)):
                yield self._all_of(some)

    def _lists(self, search: TileSearch, rows: Array, k: int) -> tuple[Array, Array, Array]:
        """Return lists of k of the points within the limit of some rows, and whether a list may lack some of them."""
        xp, max_points = self.device.xp, self.n - self.is_one
        everyone = xp.arange(self.n_rows, dtype="int32")
        point_group = everyone if self.is_one else xp.full(self.n, -1, "int32")
        upper = xp.full(rows.size, self.limit)
        rows = everyone if self.is_one and rows.size == self.n_rows else rows
        result = search.find(SearchTask(rows, min(k, max_points), everyone, point_group, upper))
        last = result.ids[:, -1], result.weights[:, -1]
        return result.ids, result.weights, (last[0] >= 0) & (last[1] <= self.limit) & (k < max_points)

    def _all_of(self, rows: Array) -> tuple[Array, Array]:
        """Return the pairs of rows with all points, which are compared one by one."""
        xp, of = self.device.xp, self.search.rows
        row, point = xp.repeat(rows, self.n), xp.tile(xp.arange(self.n, dtype="int32"), rows.size)
        if self.is_one:
            row, point = row[point > row], point[point > row]
        weight = kernels(self.device).pair_distances(of.points, row + self.search.first_query, point, of.metric)
        within = weight <= self.limit
        return row[within].astype("int64") << 32 | point[within], weight[within]


@dataclass(frozen=True)
class PairTask:
    """The question of a call: which pairs of rows are within some distances."""

    metric: Metric
    #: (t,) float64, ascending: pairs up to the last are wanted, and counts up to each
    distances: np.ndarray
    names: bool = False  # whether rows go by their names in the index
    counts: bool = False  # whether the pairs of all rows are only counted
    missing_values: tuple[Any, ...] = ()
    memory_limit: Any = None
    progress: bool | str = False

    @classmethod
    def of(cls, settings: Settings, distance: float) -> Self:
        """Return the task of a fit with these settings that asks for the pairs within a distance."""
        return cls(
            settings.metric,
            np.array([distance]),
            missing_values=settings.missing_values,
            memory_limit=settings.memory_limit,
            progress=settings.progress,
        )


class PairPoints(NamedTuple):
    """The points and queries of a search for pairs."""

    queries: Points  # X
    points: Points  # Y, or X itself
    both: tuple[Array, Array]  # the values of the queries and the points, in one type
    is_one: bool  # whether both are X

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of queries, points and features."""
        (m, d), n = self.both[0].shape, len(self.both[1])
        return m, n, d


def read_pairs(X: Any, Y: Any, task: PairTask, device: Device) -> PairPoints:
    """Return the checked rows of X and of Y, None for X itself, on a device, within a run."""
    metric = task.metric

    def following(n: int, d: int, itemsize: int) -> MemoryEstimate:
        m = n if Y is None else len(queries.values)
        return estimate_pairs((m, n, d), itemsize, Y is None, metric, device)

    Y, alone = as_known(Y), Y is None
    how: dict[str, Any] = {"metric": metric, "missing_values": task.missing_values}
    how["codes"] = {} if alone else codes_of(Y, metric, device)
    queries = as_points(X, device, following if alone else None, checked=alone, **how)
    check_names(queries, "X", task)
    if alone:
        return PairPoints(queries, queries, (queries.values, queries.values), is_one=True)
    points = as_points(Y, device, following, name="Y", checked=False, **how)
    check_names(points, "Y", task)
    check_same_columns((queries.values.shape[1], queries.names), (points.values.shape[1], points.names))
    both = in_one_type(queries.values, points.values)
    check_finite({"X": queries, "Y": points}, metric, device)
    if metric.formula.is_undefined_for_zeros:
        x, y = (zero_rows(part, device) for part in both)
        check_zeros_between(x, y, metric)
    if metric.formula.is_undefined_without_common:
        require_common_features_with(both[0], both[1], device)
    return PairPoints(queries, points, both, is_one=False)


def check_names(points: Points, name: str, task: PairTask) -> None:
    """Raise ValueError if rows go by names and have none."""
    if task.names and points.index is None:
        raise ValueError(f"names=True takes the rows' names from the index of pandas or cuDF, and {name} has none")


def estimate_pairs(
    shape: tuple[int, int, int], itemsize: int, is_one: bool, metric: Metric, device: Device
) -> MemoryEstimate:
    """Return the bytes of a search among n points for the pairs of m queries; `shape` is (m, n, d).

    Both are in one type, and together in one array.
    """
    m, n, d = shape
    copies = 0 if is_one else (itemsize * d + metric.rows.row_bytes(d)) * (m + n)
    search = estimate_search(n, d, itemsize, 1, device, n_queries=None if is_one else m, metric=metric)
    return MemoryEstimate(copies + BUFFER_BYTES) + search


def room_for_pairs(device: Device) -> float:
    """Return how many pairs fit into a frame and into memory, within a run."""
    room = room_bytes(device) / PAIR_BYTES[device.name]
    return min(room, MAX_FRAME_ROWS) if device.is_gpu else room


class PairFrames:
    """The pairs of rows of two sets, or of one, and frames of them."""

    n_features: int

    def __init__(self, x: Points, y: Points, is_one: bool, task: PairTask, device: Device) -> None:
        self.ends, self.is_one, self.task, self.device = (x, y), is_one, task, device
        self.n_rows = len(x.values)

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Return the pairs of a range of rows with their distances; of more than `room` pairs, only the number.

        Unless it `goes_on`, the search stops above `room`, and returns some number above it.
        """
        raise NotImplementedError

    def count(self, rows: slice) -> np.ndarray:
        """Count the pairs of a range of rows within each distance, (distances,) int64."""
        raise NotImplementedError

    def check_memory(self) -> None:
        """Raise DeviceMemoryError if a search does not fit into memory, in a run after that which prepared it."""

    def parts(
        self, max_pairs: float, rows: slice | None = None, goes_on: bool = True
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the pairs of a range of rows, by default all, in parts of about `max_pairs` pairs.

        A part has all pairs of some rows: src, dst and the distances, in the order of `find`, which has `goes_on`. A
        later part has later rows. Raises DeviceMemoryError if the pairs of one row do not fit into memory.
        """
        waiting, room = [rows or slice(0, self.n_rows)], min(max_pairs, room_for_pairs(self.device) / 2)
        while waiting:
            part = waiting.pop()
            size = part.stop - part.start
            result = self.find(part, max(room, room_for_pairs(self.device) if size == 1 else 0), goes_on)
            if result.src is not None:
                yield result.src, result.dst, result.weight
            elif size == 1:
                self.refuse(result.count, part, room_for_pairs(self.device))
            else:
                step = int(size * room / (2 * result.count))
                waiting += reversed(equal_slices(part, max(1, min(step, size // 2))))

    def find_all(self, rows: slice, advice: str = ADVICE) -> Found:
        """Return the pairs of a range of rows; raise DeviceMemoryError, with advice, if they do not fit."""
        room = room_for_pairs(self.device)
        result = self.find(rows, room)
        if result.src is None:
            self.refuse(result.count, rows, room, advice)
        return result

    def frame(self, rows: slice) -> Any:
        """Return the frame of the pairs of a range of rows; raise DeviceMemoryError if it does not fit."""
        device, (x, y), result = self.device, self.ends, self.find_all(rows)
        frame = frame_of(device, {"src": result.src, "dst": result.dst, "weight": result.weight})
        if self.task.names:
            for name, points in (("src", x), ("dst", y)):
                frame[name] = OutputKind(True, device.is_gpu).index(points.index).take(frame[name].values)
        return x.frame(frame)

    def refuse(self, count: int, rows: slice, room: float, advice: str = ADVICE) -> Never:
        """Raise DeviceMemoryError, since these pairs of some rows do not fit."""
        what = f"{count:,} pairs of rows within {self.task.distances[-1]:g}"
        if rows.stop - rows.start < self.n_rows:
            what = f"the {count:,} pairs of rows {rows.start:,} to {rows.stop - 1:,} within {self.task.distances[-1]:g}"
        name = self.device.name
        if room >= MAX_FRAME_ROWS and self.device.is_gpu:
            raise DeviceMemoryError(f"{what} are more than the {MAX_FRAME_ROWS:,} rows of a cuDF frame. {advice}")
        needed, free = size_text(PAIR_BYTES[name] * count), size_text(PAIR_BYTES[name] * room)
        limit = self.task.memory_limit
        if limit is not None:
            raise DeviceMemoryError(f"memory_limit={limit!r} is too small for {what}: they need {needed}. {advice}")
        raise DeviceMemoryError(f"not enough memory for {what}: they need {needed}, {free} are free. {advice}")


class NearPairs(PairFrames):
    """The pairs of some points within the distances of a task; made and used within a run."""

    def __init__(self, pair_points: PairPoints, task: PairTask, device: Device) -> None:
        x = pair_points.both[0]
        n_features = x.shape[1]
        metric = task.metric.of_columns(pair_points.queries.names or pair_points.points.names, n_features)
        task = replace(task, metric=metric)
        super().__init__(pair_points.queries, pair_points.points, pair_points.is_one, task, device)
        self.pair_points, self.n_features = pair_points, n_features
        self.limits = [Limit.of(metric, float(distance), n_features) for distance in task.distances]
        self.search: PairSearch | None = None  # one row has no pairs and no search
        limit = self.limits[-1].surrogate
        if not pair_points.is_one:
            queries, points = rows_of_both(metric, pair_points.both, device)
            self.search = prepare_pairs(points, queries, limit, metric, device, task.progress)
        elif len(x) > 1:
            rows = metric_rows(metric, x, device, compact=True)
            if task.counts and all(one.decides for one in self.limits):
                self.search = CopyCounts.of(rows, limit, metric, device)
            self.search = self.search or prepare_pairs(rows, None, limit, metric, device, task.progress)

    @classmethod
    def read(cls, X: Any, Y: Any, task: PairTask, device: Device) -> Self:
        """Return the pairs of the rows of X and of Y, None for X itself, within a run."""
        return cls(read_pairs(X, Y, task, device), task, device)

    def check_memory(self) -> None:
        """Raise DeviceMemoryError if a search does not fit into memory: see `PairFrames.check_memory`."""
        points, (m, _, d), device = self.pair_points, self.pair_points.shape, self.device
        itemsize = points.both[0].dtype.itemsize
        estimate = estimate_pairs(points.shape, itemsize, points.is_one, self.task.metric, device)
        what = f"{counted(m, 'row')} of {counted(d, 'feature')}"
        check_memory(device, estimate, what, already_taken=estimate.peak)

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Return the pairs of a range of rows with their distances: see `PairFrames.find`."""
        xp = self.device.xp
        if self.search is None:
            return Found(0, xp.empty(0, "int32"), xp.empty(0, "int32"), xp.empty(0))
        result, limit = self.search.find(rows, room, goes_on), self.limits[-1]
        if result.src is None:
            return result if limit.decides or not goes_on else Found(int(self.count(rows)[-1]))
        src, dst, metric = result.src, result.dst, self.task.metric
        weight = distances(metric, result.weight, (src, dst), self.pair_points.both, self.device)
        if limit.decides:
            return Found(result.count, src, dst, weight)
        kept = weight <= self.task.distances[-1]
        return Found(int(kept.sum()), src[kept], dst[kept], weight[kept])

    def count(self, rows: slice) -> np.ndarray:
        """Count the pairs of a range of rows within each distance, (distances,) int64."""
        if self.search is None:
            return np.zeros(len(self.limits), np.int64)
        if all(limit.decides for limit in self.limits):
            return self.search.count(rows, np.array([limit.surrogate for limit in self.limits]))
        counts = np.zeros(len(self.limits), np.int64)  # only the reported distances tell
        for some in equal_slices(rows, COUNTED_ROWS):
            for _, _, weight in self.parts(np.inf, some, goes_on=False):
                counts += counts_within(weight, self.task.distances, self.device)
        return counts


def distances_between(points: PairPoints, ends: tuple[Any, Any], metric: Metric, device: Device) -> np.ndarray:
    """Return the distances of pairs of rows of one set, (m,) float64 on the host.

    `ends` are two (m,) int32 arrays on the host.
    """
    values = points.queries.values
    metric = metric.of_columns(points.queries.names, values.shape[1])
    rows, (src, dst) = metric_rows(metric, values, device, compact=True), map(device.asarray, ends)
    weight = kernels(device).pair_distances(rows, src, dst, metric)
    return to_host(distances(metric, weight, (src, dst), (values, values), device))

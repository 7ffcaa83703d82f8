"""Which kind of items the inputs hold; pairs of items within a distance; nearest items.

    items ──▶ distinct items ──▶ candidates: all pairs, pairs that share a key, or pairs of projections ──▶ distances

Pairs come in parts that fit into memory. Each item has the number of its group, and only pairs within a group are
wanted. Equal items of a group are one item until the end, so copies cost nothing. A pair that shares several keys is
found several times.

*The nearest items* of some rows come from the distances of a block of rows at a time from all others, of which the
least are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items import Items, kernels
from rapids_slink.items.stored import Sets, SparseRows, holds_sets
from rapids_slink.items.strings import Strings
from rapids_slink.metrics import SET_METRICS, SPARSE_ROW_METRICS, Formula, Metric
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.queries import NearestEdges, NearestTask, read_together
from rapids_slink.neighbors.rows import Copies, metric_rows
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask, equal_slices
from rapids_slink.neighbors.within import (
    Found,
    PairFrames,
    PairTask,
    check_names,
    counts_within,
    prepare_pairs,
    room_for_pairs,
)
from rapids_slink.ordering import stable_order
from rapids_slink.points import Points, is_sparse
from rapids_slink.points.keys import Groups, check_keys, groups_of
from rapids_slink.points.output import OutputKind, column_names, is_dataframe, number_of_rows
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.memory import DeviceMemoryError, MemoryEstimate, check_memory, free_bytes
from rapids_slink.runtime.threads import Progress, for_each_chunk, progress_bar, workers

#: Pairs of two rows, (src, dst, weight).
Pairs = tuple[Array, Array, Array]
#: In groups of up to this number of items all pairs are compared.
SMALL_GROUP = {"cpu": 64, "cuda": 256}
#: The most keys of an item on average: more take too much memory.
MOST_KEYS = 1024
#: The number of items whose keys are made at a time.
KEYED_ITEMS = 2**21
#: The pairs of projections that the first range of rows compares. Its share of candidates tells the next range.
FIRST_PAIRS = {"cpu": 2**24, "cuda": 2**34}
#: The most pairs that are compared at a time, and the bytes of each.
MOST_PAIRS, PAIR_BYTES = {"cpu": 2**21, "cuda": 2**25}, 64
#: A core of a CPU finds the distances of at most CPU_ROWS rows from all items at a time, in at most BLOCK_BYTES. The
#: work on a block takes as much memory as BLOCKS of them.
CPU_ROWS, BLOCK_BYTES, BLOCKS = 128, 2**24, 8
#: The most pairs that wait before the nearest are chosen, and the bytes of an entry of a list of the nearest.
MOST_LISTED, LISTED_BYTES = {"cpu": 2**23, "cuda": 2**26}, 48
#: The bytes of an item, from its hash to its edges, and of a chunk at its smallest.
ITEM_BYTES, LEAST_CHUNK = 200, 2**22
#: The bytes of a key: while it is made, as a word, and while words are put together.
KEY_BYTES = 40
#: Factors that give equal items of two groups different hashes and keys; see `_mixed`.
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def kind_of(metric: Metric, *inputs: Any) -> type[Items] | None:
    """Return the class of items that the inputs hold for a metric; None if they are points.

    A metric of strings makes `Strings` of any input, so that the error about numbers names the metric.
    """
    if metric.formula is Formula.ITEMS:
        return Strings
    if metric.name in SET_METRICS:
        return Sets if any(map(holds_sets, inputs)) else None
    takes_sparse_rows = metric.name in SPARSE_ROW_METRICS and not metric.missing and metric.space is None
    return SparseRows if takes_sparse_rows and any(map(is_sparse, inputs)) else None


def read_items(
    inputs: dict[str, Any], metric: Metric, device: Device, is_kept: bool = False
) -> tuple[Items, list[Points]]:
    """Return the items of all inputs together, and each input as points, for the type of results.

    The points have no values, or those that a model keeps if `is_kept`.
    """
    kind = kind_of(metric, *inputs.values())
    assert kind is not None
    unwrapped = {name: OutputKind.of(X, device) for name, X in inputs.items()}
    items = kind.read({name: X for name, (X, _) in unwrapped.items()}, metric, device)
    parts = []
    for X, output in unwrapped.values():
        index = output.index_of(X)
        n = len(items) if len(inputs) == 1 else number_of_rows(X)
        names = column_names(X) if is_dataframe(X) else None
        values = kind.kept(X, metric, device) if is_kept else np.empty((n, 0))
        parts.append(Points(values, names, index, output))
    return items, parts


class Costs(NamedTuple):
    """Nanoseconds that each kind of work takes, about, on two cores or on an H100."""

    key: float  # to make a key, to sort it and to read it
    pair: float  # to compare a pair of items
    tested: float  # to compare a pair of projections, with the candidates' share
    group: float  # to prepare a search among a group's projections


COSTS = {"cpu": Costs(50, 60, 2, 1e6), "cuda": Costs(1, 0.1, 0.05, 3e6)}


@dataclass(frozen=True)
class Distinct:
    """Items without their copies."""

    items: Items
    copies: Copies
    groups: Groups  # the users' groups of the distinct items

    @property
    def of_row(self) -> Array:
        """Return the distinct item of each row, (n,) int32."""
        return self.copies.number

    @cached_property
    def rows(self) -> Groups:
        """Return the rows of each distinct item, as groups."""
        return groups_of(self.of_row, len(self.items), self.items.device)


def distinct_items(items: Items, number: Array, later_bytes: int = 0) -> Distinct:
    """Return the items that differ within each group; `number`, (n,) int32, has the group of each item.

    This stage comes first, so it raises DeviceMemoryError unless the later stages fit into memory, too.
    """
    device, n = items.device, len(items)
    check_memory(device, MemoryEstimate(ITEM_BYTES * n + later_bytes, min_chunk=LEAST_CHUNK), counted(n, "row"))
    xp, classes = device.xp, items.classes()
    if classes is not None:  # pairs of two classes are in two groups
        codes = number.astype("int64") * (int(classes.max()) + 1) + classes if n else number
        number = xp.unique(codes, return_inverse=True)[1].reshape(-1).astype("int32")
    row = xp.arange(n, dtype="int32")
    hashes = items.hashes() + number.astype("uint64") * xp.uint64(MULTIPLIERS[0])
    _, first, same = xp.unique(hashes, return_index=True, return_inverse=True)
    first_equal = first[same.reshape(-1)].astype("int32")
    copy = xp.flatnonzero(first_equal != row).astype("int32")
    equals = first_equal[copy]
    differ = copy[~((number[copy] == number[equals]) & items.equal(copy, equals))]
    first_equal[differ] = differ  # an item with the hash of another one stays distinct, even if it has equals
    copies = Copies.of(first_equal, xp)
    first = copies.first
    own = items if first.size == n else items.take(first)
    number = number[first]
    count = int(number.max()) + 1 if n else 0
    return Distinct(own, copies, groups_of(number, count, device))


def are_large(groups: Groups, device: Device) -> np.ndarray:
    """Return which groups have too many items to compare all their pairs one by one, (g,) bool."""
    small = {None: SMALL_GROUP[device.name], "stored": SMALL_GROUP[device.name], "distances": inf}
    return groups.sizes > small.get(forced().items, 1)


class ItemSearch:
    """The pairs of distinct items of a group within a limit. `progress` shows bars."""

    def __init__(self, items: Items, groups: Groups, limit: float, progress: bool | str = False) -> None:
        self.items, self.groups, self.limit, self.device = items, groups, limit, items.device
        self.progress = progress
        is_large = are_large(groups, self.device) & (limit < inf)
        self.projected, self.compared = np.flatnonzero(is_large), np.flatnonzero((groups.sizes > 1) & ~is_large)

    def parts(self, src: Array = None, dst: Array = None) -> Iterator[Pairs]:
        """Yield the pairs with src < dst, in int32, and their distances, in float64, a part at a time.

        A pair may be in several parts. `src` and `dst`, (n,) bool, tell which items are wanted as one end and as the
        other; by default all are.
        """
        if self.limit < 0:
            return
        if src is not None and dst is None and all_true(src):
            src = None
        candidates = self._that_share_a_key() if self.is_by_keys(src) else self._candidates_of_groups(src)
        for a, b in candidates:
            a, b = self._wanted(a, b, src, dst)
            if a.size:
                weight = self.items.distances(a, b, self.limit)
                kept = weight <= self.limit
                yield a[kept], b[kept], weight[kept]

    def is_by_keys(self, src: Array = None) -> bool:
        """Return whether keys take less time than comparing the wanted items with all others of their groups."""
        keys, sizes = self.items.keys_an_item(self.limit) if self.limit < inf else inf, self.groups.sizes
        if keys > MOST_KEYS or forced().items not in (None, "keys"):
            return False
        if forced().items:
            return True
        wanted = sizes / 2 if src is None else np.bincount(to_host(self.groups.number[src]), minlength=sizes.size)
        cost, pairs = COSTS[self.device.name], wanted * sizes
        pair_cost = cost.pair * pairs[self.compared].sum() + cost.tested * pairs[self.projected].sum()
        return bool(cost.key * keys * len(self.items) < pair_cost + cost.group * self.projected.size)

    def _wanted(self, a: Array, b: Array, src: Array, dst: Array) -> tuple[Array, Array]:
        xp = self.device.xp
        a, b = xp.minimum(a, b), xp.maximum(a, b)
        kept = a != b
        if src is not None:
            kept &= (src[a] & dst[b]) | (src[b] & dst[a]) if dst is not None else src[a] | src[b]
        return a[kept], b[kept]

    def _that_share_a_key(self) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs that share a key.

        A key and its item make one word, and the words are sorted, so that equal keys are neighbours. A key loses the
        bits that its item takes. So pairs of two groups, and pairs without a common key, may be found as well. Pairs
        of two groups are dropped here.
        """
        xp, n, number = self.device.xp, len(self.items), self.groups.number
        bits = max(1, (n - 1).bit_length())
        mask, shift = xp.uint64(2**bits - 1), xp.uint64(bits)
        total = int(self.items.keys_an_item(self.limit) * n) + 1
        passes = 1 if free_bytes() == inf else max(1, ceil(KEY_BYTES * total / (free_bytes() / 2)))
        for turn in range(passes):
            words = []
            for start in range(0, n, KEYED_ITEMS):
                item, key = self.items.keys(self.limit, slice(start, min(start + KEYED_ITEMS, n)))
                key = _mixed(key + number[item].astype("uint64") * xp.uint64(MULTIPLIERS[0]), xp)
                if passes > 1:
                    in_turn = key % xp.uint64(passes) == turn
                    item, key = item[in_turn], key[in_turn]
                words.append((key & ~mask) | item.astype("uint64"))
            sorted_ = words[0] if len(words) == 1 else xp.concatenate(words)
            del words, item, key
            sorted_.sort()
            if sorted_.size:  # one item may have a key many times, such as a run of one letter
                sorted_ = sorted_[xp.concatenate((xp.ones(1, bool), sorted_[1:] != sorted_[:-1]))]
            equal = (sorted_[1:] ^ sorted_[:-1]) <= mask
            none = xp.zeros(min(1, sorted_.size), bool)
            after, before = xp.concatenate((equal, none)), xp.concatenate((none, equal))
            shared = sorted_[after | before]
            del sorted_, equal, after, before
            item = (shared & mask).astype("int32")
            end = _ends(shared >> shift, xp)
            position = xp.arange(item.size, dtype="int64")
            for owner, member in pairs_of_ranges(position + 1, end - position - 1, self.device, self.progress):
                a, b = item[owner], item[member]
                kept = number[a] == number[b]
                yield a[kept], b[kept]

    def _candidates_of_groups(self, src: Array) -> Iterator[tuple[Array, Array]]:
        """Yield all pairs of small groups, or of all groups without a limit, and the candidates of large groups."""
        device, order = self.device, self.groups.order
        xp = device.xp
        starts = device.asarray(self.groups.starts)
        if self.compared.size:
            is_compared = xp.zeros(len(self.groups), bool)
            is_compared[device.asarray(self.compared)] = True
            number = self.groups.number[order]
            position = xp.flatnonzero(is_compared[number])
            end, first = starts[number[position] + 1], position + 1
            if src is not None:  # the pairs of each wanted item with all others, once
                wanted = src[order[position]]
                position, first, end = position[wanted], starts[number[position[wanted]]], end[wanted]
            for owner, member in pairs_of_ranges(first, end - first, device, self.progress):
                yield self._once(order[position[owner]], order[member], src)
        for group in self.projected.tolist():
            rows = order[self.groups.starts[group] : self.groups.starts[group + 1]]
            yield from self._candidates_by_projection(rows, src)

    def _candidates_by_projection(self, rows: Array, src: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of a group's items whose projections are within their bound."""
        device, queries, asked = self.device, None, rows
        some = None if src is None else device.xp.flatnonzero(src[rows])
        if some is not None and not some.size:
            return
        own = self.items if rows.size == len(self.items) else self.items.take(rows)
        values, metric, bound, large = own.projection(self.limit)
        if some is not None:
            queries, asked = metric_rows(metric, values[some], device, alone=False), rows[some]
        points = metric_rows(metric, values, device, compact=queries is None, alone=queries is None)
        search = prepare_pairs(points, queries, bound, metric, device)
        capacity, start, step = room(device), 0, max(1, FIRST_PAIRS[device.name] // rows.size)
        bar = Progress("Searching pairs", asked.size, self.progress) if self.progress else None
        with progress_bar(asked.size, bar) as advance:
            while start < asked.size:
                part = slice(start, min(start + step, asked.size))
                pairs = search.find(part, capacity)
                if pairs.src is not None:
                    yield self._once(asked[pairs.src], rows[pairs.dst], src)
                    start = part.stop
                    advance(part.stop - part.start)
                elif step == 1:
                    raise DeviceMemoryError(f"not enough memory for the {pairs.count:,} candidates of one row")
                step = max(1, min(4 * step, int(step * capacity / (2 * pairs.count + 1))))  # for half of the room
        if large is not None:
            position = device.xp.arange(large.size, dtype="int64")
            for owner, member in pairs_of_ranges(position + 1, large.size - position - 1, device):
                yield rows[large[owner]], rows[large[member]]

    def _once(self, a: Array, b: Array, src: Array) -> tuple[Array, Array]:
        """Return the pairs of wanted items with all others, each once.

        A pair of two wanted items comes from both ends, and is dropped from one of them.
        """
        if src is None:
            return a, b
        once = ~src[b] | (a < b)
        return a[once], b[once]


def all_distances(items: Items) -> Array:
    """Return the distances of all pairs of items of one class, or lower bounds on them, (n, n); see `Items`.

    What is on the diagonal has no meaning.
    """
    device, n = items.device, len(items)
    matrix, row = device.xp.empty((n, n), items.distance_type), device.xp.arange(n, dtype="int32")

    def fill(rows: slice) -> None:
        distances = items.distances_of_rows(row[rows], slice(rows.start, n))
        matrix[rows, rows.start :], matrix[rows.start :, rows] = distances, distances.T

    for_each_chunk(device, fill, equal_slices(slice(0, n), rows_at_a_time(items, n)))
    return matrix


class RowSearch(Search):
    """The nearest of all items from the `first` one on, for rows whose distances from all of these are computed.

    All items are of one class. Lower bounds on the distances give each row a bound: the distance of its nearest item by
    the lower bounds. Every pair within it is compared.
    """

    is_over_all_pairs = True

    def __init__(self, items: Items, report: Report, progress: bool | str = False, first: int = 0) -> None:
        self.items, self.device, self.report, self.progress = items, items.device, report, progress
        self.points = slice(first, len(items))

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest items of a task's rows, as a `SearchResult`."""
        m, n = task.rows.size, self.points.stop - self.points.start
        lists, upper = exact_kernels(self.device).empty_lists(m, task.k), task.bounds(self.device.xp)

        def search(part: slice) -> None:
            self._put_lists(task, task.rows[part], upper[part], lists.ids[part], lists.weights[part])

        parts = equal_slices(slice(0, m), rows_at_a_time(self.items, n))
        for_each_chunk(self.device, search, parts, task.progress(self.progress))
        stage = "connect" if task.only_minima else "neighbors"
        self.report.count(stage, rows_certified=0, rows_redone=0, rows_scanned_exactly=m)
        return SearchResult(lists.ids, lists.weights, upper)

    def _put_lists(self, task: SearchTask, rows: Array, upper: Array, ids: Array, weights: Array) -> None:
        """Write the lists of some rows; their bounds may become lower."""
        xp, groups, put = self.device.xp, (task.groups(rows), task.point_group), kernels(self.device).put_least
        distance = self.items.distances_of_rows(rows, self.points)
        if self.items.errors is not None:
            put(distance, rows, groups, task.core, upper.copy(), ids, weights)
            square = weights[:, -1] * weights[:, -1]
            xp.minimum(upper, xp.sqrt(square + self.items.errors[rows]), out=upper)
            near, point = xp.nonzero((distance <= upper[:, None]) & (groups[0][:, None] != groups[1]))
            distance[near, point] = self.items.distances(rows[near], (point + self.points.start).astype("int32"), inf)
            ids[:], weights[:] = -1, inf
        put(distance, rows, groups, task.core, upper, ids, weights)


def room(device: Device) -> int:
    """Return how many pairs are compared at a time."""
    return int(max(1024, min(MOST_PAIRS[device.name], free_bytes() / 4 / PAIR_BYTES)))


def rows_at_a_time(items: Items, n: int) -> int:
    """Return how many items' distances from n others are found at a time."""
    device, size = items.device, items.distance_type.itemsize * n
    if device.is_gpu:
        return max(1, room(device) // n)
    return int(max(1, min(CPU_ROWS, min(BLOCK_BYTES, free_bytes() / (BLOCKS * workers(device))) / size)))


def pairs_of_ranges(
    first: Array, count: Array, device: Device, progress: bool | str = False
) -> Iterator[tuple[Array, Array]]:
    """Yield each owner with each position of its range, int64, some pairs at a time.

    Owner i has the `count[i]` positions from `first[i]` on; both arrays are (m,).
    """
    xp, total, capacity, begin = device.xp, int(count.sum()), room(device), 0
    ends = xp.cumsum(count, dtype="int64")
    bar = Progress("Comparing pairs", total, progress, " pairs") if progress else None
    with progress_bar(max(1, ceil(total / capacity)), bar) as advance:
        while begin < total:
            stop = min(begin + capacity, total)
            pair = xp.arange(begin, stop, dtype="int64")
            low, high = (int(xp.searchsorted(ends, xp.asarray([at]), side="right")[0]) for at in (begin, stop - 1))
            own = slice(low, high + 1)
            if device.is_gpu:
                owner = xp.searchsorted(ends, pair, side="right")
            else:
                size = np.minimum(ends[own], stop) - np.maximum(ends[own] - count[own], begin)
                owner = np.repeat(np.arange(low, high + 1), size)
            yield owner, first[owner] + (pair - (ends[owner] - count[owner]))
            begin = stop
            advance()


def pairs_of_rows(pairs: Pairs, distinct: Distinct, limit: float) -> Iterator[Pairs]:
    """Yield the pairs of rows within a limit that pairs of distinct items stand for, and those of equal rows."""
    rows, device, (a, b, weight) = distinct.rows, distinct.items.device, pairs
    if len(distinct.items) == distinct.of_row.size or limit < 0:
        yield pairs
        return
    xp, order = device.xp, rows.order
    starts, sizes = device.asarray(rows.starts), device.asarray(rows.sizes)
    for pair, member in pairs_of_ranges(xp.zeros_like(a, dtype="int64"), sizes[a] * sizes[b], device):
        i, j = xp.divmod(member, sizes[b[pair]])
        src, dst = order[starts[a[pair]] + i], order[starts[b[pair]] + j]
        yield xp.minimum(src, dst), xp.maximum(src, dst), weight[pair]
    following = xp.arange(1, order.size + 1, dtype="int64")
    for owner, member in pairs_of_ranges(following, starts[distinct.of_row[order] + 1] - following, device):
        yield order[owner], order[member], xp.zeros(owner.size)


def one_of_each(parts: list[Pairs], device: Device) -> Pairs:
    """Return the pairs of all parts in the order of (src, dst), each once."""
    xp = device.xp
    if not parts:
        return xp.empty(0, "int32"), xp.empty(0, "int32"), xp.empty(0)
    src, dst, weight = (xp.concatenate([part[i] for part in parts]) for i in range(3))
    code = src.astype("int64") << 32 | dst
    order = stable_order(code, xp)
    code, weight = code[order], weight[order]
    once = xp.concatenate([xp.ones(min(1, code.size), bool), code[1:] != code[:-1]])
    code = code[once]
    return (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32"), weight[once]


def _ends(values: Array, xp: Any) -> Array:
    """Return for each of sorted values the end of the run of values equal to it, int64."""
    last = xp.flatnonzero(xp.concatenate((values[1:] != values[:-1], xp.ones(min(1, values.size), bool))))
    run = xp.searchsorted(last, xp.arange(values.size))
    return last[run] + 1


def _mixed(words: Array, xp: Any) -> Array:
    """Return words of 64 bits, each bit of which depends on all bits of the word given.

    This is the end of SplitMix (Steele, Lea and Flood, 2014).
    """
    for shift, factor in ((30, MULTIPLIERS[1]), (27, MULTIPLIERS[2]), (31, None)):
        words = words ^ (words >> xp.uint64(shift))
        words = words if factor is None else words * xp.uint64(factor)
    return words


def nearest_items(
    items: Items, m: int, limit: float = inf, k: int = 1, number: Array | None = None
) -> tuple[Array, Array]:
    """Return for each of the first m items the k nearest of the later items in its group, and their distances.

    Both are (m, k), int32 and float64, in the order of distance and then of row. `number`, (n,) int32, has the groups.
    After the items within the limit and at a finite distance come the first others at an infinite distance, then -1.
    """
    device, n = items.device, len(items)
    xp = device.xp
    number = xp.zeros(n, "int32") if number is None else number
    distinct = distinct_items(items, number, LISTED_BYTES * m * k)
    count, item_of_row = len(distinct.items), distinct.of_row
    order = stable_order(item_of_row[m:], xp).astype("int32") + np.int32(m)
    counts = xp.bincount(item_of_row[m:], minlength=count)
    starts, is_query = xp.cumsum(counts) - counts, xp.zeros(count, bool)
    is_query[item_of_row[:m]] = True
    first_row = xp.where(counts > 0, order[xp.minimum(starts, order.size - 1)], -1)
    parts: list[Pairs] = []
    max_pairs = MOST_LISTED[device.name]
    for query, item, distance in _near_pairs(distinct, is_query, first_row, limit, k):
        for pair, member in pairs_of_ranges(starts[item], xp.minimum(counts[item], k), device):
            parts.append((query[pair], order[member], distance[pair]))
        if sum(rows.size for _, rows, _ in parts) > max_pairs:
            parts = [_first_of_each(parts, k, xp)]
            max_pairs = max(max_pairs, 2 * parts[0][0].size)
    if limit < inf or items.classes() is not None:  # others may be at an infinite distance
        listed, asked = _first_of_each(parts, k, xp), xp.flatnonzero(is_query)
        sizes, group = xp.bincount(number[m:], minlength=int(number.max()) + 1), number[distinct.copies.first[asked]]
        by_group = stable_order(number[m:], xp).astype("int32") + np.int32(m)
        parts = [listed]
        for owner, at in pairs_of_ranges((xp.cumsum(sizes) - sizes)[group], xp.minimum(sizes[group], k), device):
            query, row = asked[owner], by_group[at]
            other = ~xp.isin(query << 32 | row, listed[0] << 32 | listed[1])
            parts.append((query[other], row[other], xp.full(int(other.sum()), inf)))
    query, row, distance = _first_of_each(parts, k, xp)
    nearest, weight = xp.full((count, k), -1, "int32"), xp.full((count, k), inf)
    position = xp.arange(query.size) - xp.searchsorted(query, query)
    nearest[query, position], weight[query, position] = row, distance
    return nearest[item_of_row[:m]], weight[item_of_row[:m]]


def _near_pairs(distinct: Distinct, is_query: Array, first_row: Array, limit: float, k: int) -> Iterator[Pairs]:
    """Yield pairs of a query and an item that has rows of its own, with their distances.

    All pairs within the limit are among them or, for each query, the k first by distance and first row. `first_row`,
    (n,), is -1 for items without rows.
    """
    items, groups, device, is_point = distinct.items, distinct.groups, distinct.items.device, first_row >= 0
    xp, is_searched = device.xp, are_large(groups, device) & (limit == inf)
    listed = device.asarray(is_searched)[groups.number]
    own = xp.flatnonzero(is_query & is_point)
    yield own, own, xp.zeros(own.size)
    for a, b, distance in ItemSearch(items, groups, limit).parts(is_query & ~listed, is_point):
        for query, point in ((a, b), (b, a)):
            kept = is_query[query] & is_point[point]
            yield query[kept], point[kept], distance[kept]
    for group in np.flatnonzero(is_searched).tolist():
        rows = groups.order[groups.starts[group] : groups.starts[group + 1]]
        query, point = rows[is_query[rows]], rows[is_point[rows]]
        if query.size and point.size:
            point = point[stable_order(first_row[point], xp)]
            own_items = items.take(xp.concatenate((query, point)))
            ones, row = xp.ones(max(query.size, point.size), "int32"), xp.arange(query.size, dtype="int32")
            task = SearchTask(row, min(k, point.size), ones, 0 * ones[: point.size])
            lists = RowSearch(own_items, Report(), first=query.size).find(task)
            at, column = xp.nonzero(lists.ids >= 0)
            yield query[at], point[lists.ids[at, column]], lists.weights[at, column]


def _first_of_each(parts: list[Pairs], k: int, xp: Any) -> Pairs:
    """Return the k first pairs of each query by (distance, row), each once, query by query."""
    query, row, distance = (xp.concatenate([part[i] for part in parts] or [xp.empty(0, "int64")]) for i in range(3))
    order = stable_order(row, xp)
    for column in (distance, query):
        order = order[stable_order(column[order], xp)]
    query, row, distance = query[order], row[order], distance[order]
    is_first = xp.ones(query.size, bool)
    is_first[1:] = (query[1:] != query[:-1]) | (row[1:] != row[:-1])
    query, row, distance = query[is_first], row[is_first], distance[is_first]
    is_near = xp.arange(query.size) - xp.searchsorted(query, query) < k
    return query[is_near], row[is_near], distance[is_near]


def nearest_neighbors(X: Any, Y: Any, task: NearestTask, device: Device) -> Any:
    """Return for items what `queries.nearest_neighbors` returns for points; within a run."""
    together, number = None, None
    if task.by is not None:
        X, Y, together = read_together(X, Y, task.by, device)
    items, (x, y) = read_items({"X": X, "Y": Y}, task.metric, device)
    m, n = len(x.values), len(y.values)
    task.check_points(n)
    if together is not None:
        check_keys(together.query_group.size, m, "X")
        check_keys(together.point_groups.number.size, n, "Y")
        number = device.xp.concatenate((together.query_group, together.point_groups.number))
    result = NearestEdges(task, m, together, device)
    edges = result.allocate()
    ids, weight = (part.ravel()[result.listed] for part in nearest_items(items, m, k=task.k, number=number))
    result.write(edges, (result.rows, ids - np.int32(m)), weight)
    return result.result(x)


class NearItems(PairFrames):
    """The pairs of some items within the distances of a task; with `groups` only pairs of one group."""

    def __init__(self, X: Any, Y: Any, task: PairTask, device: Device, groups: Groups | None = None) -> None:
        items, points = read_items({"X": X} if Y is None else {"X": X, "Y": Y}, task.metric, device)
        for part, name in zip(points, "XY", strict=False):
            check_names(part, name, task)
        super().__init__(points[0], points[-1], Y is None, task, device)
        if groups is not None:
            check_keys(groups.number.size, len(items))
        number = device.xp.zeros(len(items), "int32") if groups is None else groups.number
        self.distinct, self.n_features = distinct_items(items, number), items.n_features

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Return the pairs of a range of rows, or their number alone if they are more than `room`; see `PairFrames`."""
        parts: list[Pairs] = []
        total = 0
        for part in self._pairs_of_rows(rows, room):
            total += part[0].size
            parts = [*parts, part] if total <= room else []
        return Found(total) if total > room else Found(total, *one_of_each(parts, self.device))

    def count(self, rows: slice) -> np.ndarray:
        """Count the pairs of a range of rows within each of the task's distances; see `PairFrames`."""
        counts = np.zeros(self.task.distances.size, np.int64)
        for _, _, weight in self._pairs_of_rows(rows, room_for_pairs(self.device)):
            counts += counts_within(weight, self.task.distances, self.device)
        return counts

    def _pairs_of_rows(self, rows: slice, room: float) -> Iterator[Pairs]:
        """Yield the pairs of a range of rows, each once, in no order, in parts whose items' pairs fit into memory."""
        waiting = [rows]
        while waiting:
            part = waiting.pop()
            pairs = self._pairs_of_items(part, room)
            if pairs is None:
                if part.stop - part.start == 1:
                    raise DeviceMemoryError(f"not enough memory for the pairs of row {part.start}")
                middle = (part.start + part.stop) // 2
                waiting += [slice(middle, part.stop), slice(part.start, middle)]
                continue
            for src, dst, weight in pairs_of_rows(pairs, self.distinct, float(self.task.distances[-1])):
                kept = (src >= part.start) & (src < part.stop)
                if not self.is_one:
                    kept &= dst >= self.n_rows
                first = 0 if self.is_one else self.n_rows
                yield src[kept], dst[kept] - np.int32(first), weight[kept]

    def _pairs_of_items(self, rows: slice, room: float) -> Pairs | None:
        """Return the pairs of distinct items of which one has a copy among these rows; None if over `room`."""
        items, item_of_row, device = self.distinct.items, self.distinct.of_row, self.device
        limit, parts, count = float(self.task.distances[-1]), [], 0
        src, dst = (device.xp.zeros(len(items), bool) for _ in range(2))
        src[item_of_row[rows]] = True
        dst[item_of_row[0 if self.is_one else self.n_rows :]] = True
        every = self.is_one and rows == slice(0, self.n_rows)
        search = ItemSearch(items, self.distinct.groups, limit, self.task.progress)
        for part in search.parts(*(() if every else (src, dst))):
            parts.append(part)
            count += part[0].size
            if count > room:
                parts = [one_of_each(parts, device)]
                count = parts[0][0].size
                if count > room:
                    return None
        return one_of_each(parts, device)

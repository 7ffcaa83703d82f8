"""The pairs of items within a distance, in parts that fit into memory; the nearest items of a second set.

    items ──▶ distinct items ──▶ candidates: all pairs, pairs that share a key, or pairs of projections ──▶ distances

Groups are numbers, one for each item: no pair of two groups is wanted. Equal items of a group are one item until the
end, so that copies cost nothing. A pair may be found several times, because it shares several keys.

*The k nearest items.* An item with k copies in the second set is nearest to these, or to earlier items at distance
zero, such as larger sets by containment. For other items the search widens: up to the distance that half of a sample
has to its k-th nearest item, then again for those that found fewer, until few pairs are left and all are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Any, NamedTuple, Self

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items.kind import Items
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.within import prepare_pairs
from rapids_slink.ordering import stable_order
from rapids_slink.points.keys import Groups, groups_of
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.memory import DeviceMemoryError, MemoryEstimate, check_memory, free_bytes
from rapids_slink.runtime.threads import Progress, progress_bar, with_progress
from rapids_slink.spanning_tree.copies import Copies

#: Pairs of two rows, (src, dst, weight).
Pairs = tuple[Array, Array, Array]
#: In groups of up to this number of items all pairs are compared.
SMALL_GROUP = {"cpu": 64, "cuda": 256}
#: Items whose distances tell the next level of a search, and the factor by which the level grows if they do not.
SAMPLE, GROWTH = 32, 1.25
#: The most keys of an item on average: more take too much memory.
MOST_KEYS = 1024
#: The most seeds of hashes that are tried until only equal items have equal hashes.
MOST_SEEDS = 8
#: Items of which keys are made at a time.
KEYED_ITEMS = 2**21
#: Pairs of projections that are compared for a first range of rows. The share of candidates tells the next range.
FIRST_PAIRS = {"cpu": 2**24, "cuda": 2**34}
#: If at most this number of pairs is left, all are compared for nearest items.
FEW_PAIRS = {"cpu": 2**23, "cuda": 2**28}
#: Pairs that are compared at a time, and their bytes.
MOST_PAIRS, PAIR_BYTES = {"cpu": 2**21, "cuda": 2**25}, 64
#: Pairs that wait until the nearest are kept, and bytes of an entry of a list of the nearest.
MOST_LISTED, LISTED_BYTES = {"cpu": 2**23, "cuda": 2**26}, 48
#: Bytes of an item, from its hash to its edges, and of chunks at their smallest.
ITEM_BYTES, LEAST_CHUNK = 200, 2**22
#: Bytes of a key: as it is made, as a word, and as words are put together.
KEY_BYTES = 40
#: Factors that give equal items of two groups different hashes and keys; see `_mixed`.
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Costs(NamedTuple):
    """About how many nanoseconds each kind of work takes, on two cores or on an H100."""

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
    of_row: Array  # (n,) int32: the distinct item of each row
    groups: Groups  # of the distinct items

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
    for seed in range(MOST_SEEDS):
        hashes = items.hashes(seed) + number.astype("uint64") * xp.uint64(MULTIPLIERS[0])
        _, first, same = xp.unique(hashes, return_index=True, return_inverse=True)
        first_equal = first[same.reshape(-1)].astype("int32")
        copy = xp.flatnonzero(first_equal != row).astype("int32")
        equals = first_equal[copy]
        differ = copy[~((number[copy] == number[equals]) & items.equal(copy, equals))]
        if not differ.size:
            break
    first_equal[differ] = differ  # an item that no seed tells from another stays distinct, even if it has equals
    copies = Copies.of(first_equal, xp)
    first = copies.first
    of_row = xp.searchsorted(first, first_equal).astype("int32")
    own = items if first.size == n else items.take(first)
    number = number[first]
    count = int(number.max()) + 1 if n else 0
    return Distinct(own, copies, of_row, groups_of(number, count, device))


class ItemSearch:
    """The pairs of distinct items of a group within a limit. `progress` shows bars."""

    def __init__(self, items: Items, groups: Groups, limit: float, progress: bool | str = False) -> None:
        self.items, self.groups, self.limit, self.device = items, groups, limit, items.device
        self.progress = progress
        wanted = forced().items
        small = SMALL_GROUP[self.device.name] if wanted is None else inf if wanted == "distances" else 1
        is_large = (groups.sizes > small) & (limit < inf)
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
        candidates = self._that_share_a_key() if self.is_by_keys(src) else self._of_groups(src)
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
        of_pairs = cost.pair * pairs[self.compared].sum() + cost.tested * pairs[self.projected].sum()
        return bool(cost.key * keys * len(self.items) < of_pairs + cost.group * self.projected.size)

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
                    of_turn = key % xp.uint64(passes) == turn
                    item, key = item[of_turn], key[of_turn]
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
            for owner, place in pairs_of_ranges(position + 1, end - position - 1, self.device, self.progress):
                a, b = item[owner], item[place]
                kept = number[a] == number[b]
                yield a[kept], b[kept]

    def _of_groups(self, src: Array) -> Iterator[tuple[Array, Array]]:
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
            for owner, place in pairs_of_ranges(first, end - first, device, self.progress):
                yield self._once(order[position[owner]], order[place], src)
        for group in self.projected.tolist():
            rows = order[self.groups.starts[group] : self.groups.starts[group + 1]]
            yield from self._of_projections(rows, src)

    def _of_projections(self, rows: Array, src: Array) -> Iterator[tuple[Array, Array]]:
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
            for owner, place in pairs_of_ranges(position + 1, large.size - position - 1, device):
                yield rows[large[owner]], rows[large[place]]

    def _once(self, a: Array, b: Array, src: Array) -> tuple[Array, Array]:
        """Return the pairs of wanted items with all others, each once.

        A pair of two wanted items comes from both ends, and is dropped from one of them.
        """
        if src is None:
            return a, b
        once = ~src[b] | (a < b)
        return a[once], b[once]


def are_few(n_pairs: int, most: int) -> bool:
    """Return whether at most `most` pairs are left, so that all are compared; False if levels are prescribed."""
    return n_pairs <= most and forced().items in (None, "distances")


def next_level(items: Items, groups: Groups, wanted: Array, part: Array, level: float, nearest: int = 1) -> float:
    """Return the next distance above `level` up to which pairs are searched for; infinite if the sample has none.

    It is the median distance of a sample of the wanted items to their `nearest`-th items in other parts; or the largest
    of these, or a multiple of `level`, whichever first is above `level`. `wanted` is (n,) bool, and `part`, (n,), tells
    which part each item is in.
    """
    xp, rng = items.device.xp, np.random.default_rng(0)
    rows, distances = to_host(xp.flatnonzero(wanted)), []
    for row in rng.choice(rows, min(SAMPLE, rows.size), replace=False).tolist():
        group = int(groups.number[row])
        others = groups.order[groups.starts[group] : groups.starts[group + 1]]
        others = others[part[others] != part[row]]
        if others.size >= nearest:
            distance = items.distances(xp.full(others.size, row, "int32"), others, inf)
            distances.append(float(xp.sort(distance)[nearest - 1]))
    levels = [float(np.median(distances)), max(distances), level * GROWTH] if distances else []
    return next((higher for higher in levels if higher > level), inf)


def room(device: Device) -> int:
    """Return how many pairs are compared at a time."""
    return int(max(1024, min(MOST_PAIRS[device.name], free_bytes() / 4 / PAIR_BYTES)))


def pairs_of_ranges(
    first: Array, count: Array, device: Device, progress: bool | str = False
) -> Iterator[tuple[Array, Array]]:
    """Yield each owner with each place of its range, int64, some pairs at a time.

    Owner i has the `count[i]` places from `first[i]` on; both arrays are (m,).
    """
    total = int(count.sum())
    bar = Progress("Comparing pairs", total, progress, " pairs") if progress else None
    yield from with_progress(_parts_of_ranges(first, count, total, device), max(1, ceil(total / room(device))), bar)


def _parts_of_ranges(first: Array, count: Array, total: int, device: Device) -> Iterator[tuple[Array, Array]]:
    xp = device.xp
    ends = xp.cumsum(count, dtype="int64")
    capacity, begin = room(device), 0
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


def of_copies(pairs: Pairs, distinct: Distinct) -> Iterator[Pairs]:
    """Yield the pairs of rows that pairs of distinct items stand for: each row of one with each row of the other."""
    rows, device = distinct.rows, distinct.items.device
    a, b, weight = pairs
    if len(distinct.items) == distinct.of_row.size:
        yield pairs
        return
    xp = device.xp
    starts, sizes = device.asarray(rows.starts), device.asarray(rows.sizes)
    for pair, place in pairs_of_ranges(xp.zeros_like(a, dtype="int64"), sizes[a] * sizes[b], device):
        i, j = xp.divmod(place, sizes[b[pair]])
        src, dst = rows.order[starts[a[pair]] + i], rows.order[starts[b[pair]] + j]
        yield xp.minimum(src, dst), xp.maximum(src, dst), weight[pair]


def of_equal(distinct: Distinct, limit: float) -> Iterator[Pairs]:
    """Yield the pairs of equal rows, at distance zero, unless the limit is below it."""
    rows, device = distinct.rows, distinct.items.device
    if limit < 0 or len(distinct.items) == distinct.of_row.size:
        return
    xp, order, starts = device.xp, rows.order, device.asarray(rows.starts)
    position = xp.arange(order.size, dtype="int64")
    end = starts[distinct.of_row[order] + 1]
    for owner, place in pairs_of_ranges(position + 1, end - position - 1, device):
        yield order[owner], order[place], xp.zeros(owner.size)


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


@dataclass(frozen=True)
class Held:
    """The rows of the second set by distinct item."""

    order: Array  # (r,) int32, the rows, ascending for each item
    starts: Array  # (u,) int64: where the rows of each item begin
    counts: Array  # (u,) int64, how many of them are wanted
    device: Device

    @classmethod
    def of(cls, of_row: Array, m: int, count: int, k: int, device: Device) -> Self:
        """Return the rows from m on by item, of `count` items; at most the first k rows of an item are wanted."""
        xp = device.xp
        order, counts = stable_order(of_row[m:], xp).astype("int32"), xp.bincount(of_row[m:], minlength=count)
        return cls(order + np.int32(m), xp.cumsum(counts) - counts, xp.minimum(counts, k), device)

    def rows(self, query: Array, item: Array, distance: Array) -> Iterator[Pairs]:
        """Yield the pairs of a query and a row, for pairs of a query and an item."""
        first, count = self.starts[item], self.counts[item]
        if int(count.sum()) == item.size:  # each item has one row
            yield query, self.order[first], distance
            return
        for pair, place in pairs_of_ranges(first, count, self.device):
            yield query[pair], self.order[place], distance[pair]


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
    count, of_row, groups = len(distinct.items), distinct.of_row, distinct.groups
    held = Held.of(of_row, m, count, k, device)
    of_points = _restricted(groups, held.counts > 0, device)
    reachable = xp.bincount(groups.number[of_row[m:]], minlength=len(groups))[groups.number]
    needed = xp.minimum(reachable, k)
    nearest, weight = xp.full((count, k), -1, "int32"), xp.full((count, k), inf)
    pending = xp.zeros(count, bool)
    pending[of_row[:m]] = True
    asked = xp.flatnonzero(pending)

    def settle(wanted: Array, level: float) -> None:
        query, row, distance = _nearest_within(distinct, wanted, held, level, k)
        place = xp.arange(query.size) - xp.searchsorted(query, query)
        nearest[query, place], weight[query, place] = row, distance
        pending[wanted & ((nearest >= 0).sum(axis=1) >= needed)] = False

    copied, own = pending & (held.counts >= needed), xp.arange(count)
    if bool(copied.any()):
        settle(copied, 0.0)
    level = -inf
    while level < limit and bool(pending.any()):
        n_pairs = int(device.asarray(of_points.sizes)[groups.number[pending]].sum())
        is_last = limit < inf or are_few(n_pairs, FEW_PAIRS[device.name])
        level = limit if is_last else next_level(distinct.items, of_points, pending, own, level, k)
        settle(pending.copy(), level)
    _list_infinite(nearest, asked, number[distinct.copies.first], number[m:], m, device)
    return nearest[of_row[:m]], weight[of_row[:m]]


def _restricted(groups: Groups, kept: Array, device: Device) -> Groups:
    """Return the groups with the kept items alone, (u,) bool, in their order."""
    sizes = to_host(device.xp.bincount(groups.number[kept], minlength=len(groups)))
    return Groups(groups.number, groups.order[kept[groups.order]], np.concatenate(([0], np.cumsum(sizes))))


def _nearest_within(distinct: Distinct, wanted: Array, held: Held, level: float, k: int) -> Pairs:
    """Return the k nearest rows within the level of each wanted item: items, rows and distances, item by item."""
    device, is_point = distinct.items.device, held.counts > 0
    xp = device.xp
    own = xp.flatnonzero(wanted & is_point)
    parts, most = list(held.rows(own, own, xp.zeros(own.size))), MOST_LISTED[device.name]
    for a, b, distance in ItemSearch(distinct.items, distinct.groups, level).parts(wanted, is_point):
        for query, point in ((a, b), (b, a)):
            kept = wanted[query] & is_point[point]
            for part in held.rows(query[kept], point[kept], distance[kept]):
                parts.append(part)
        if sum(rows.size for _, rows, _ in parts) > most:
            parts = [_first_of_each(parts, k, xp)]
            most = max(most, 2 * parts[0][0].size)
    return _first_of_each(parts, k, xp)


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


def _list_infinite(nearest: Array, asked: Array, of_item: Array, of_point: Array, m: int, device: Device) -> None:
    """Fill the lists, (u, k), of the asked items with the first rows at an infinite distance.

    `of_item` has the group of each item, and `of_point` that of each row from m on.
    """
    xp, k = device.xp, nearest.shape[1]
    sizes = xp.bincount(of_point, minlength=int(of_item.max()) + 1)
    listed = (nearest[asked] >= 0).sum(axis=1)
    is_short = listed < xp.minimum(sizes[of_item[asked]], k)
    if not bool(is_short.any()):
        return
    short, listed = asked[is_short], listed[is_short]
    by_group, size = stable_order(of_point, xp) + m, sizes[of_item[short]]
    place = (xp.cumsum(sizes) - sizes)[of_item[short]][:, None] + xp.arange(k)
    row = by_group[xp.minimum(place, by_group.size - 1)]
    first_code = xp.arange(short.size)[:, None] * (m + by_group.size + 1)  # and one of -1
    is_free = ~xp.isin(first_code + row, first_code + nearest[short]) & (xp.arange(k) < size[:, None])
    place = listed[:, None] + xp.cumsum(is_free, axis=1) - 1
    at, column = xp.nonzero(is_free & (place < k))
    nearest[short[at], place[at, column]] = row[at, column]

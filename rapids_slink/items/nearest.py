"""The nearest item of a second set for each of a first one.

What has a copy in the second set is nearest to it, or to an earlier item at distance zero, such as a larger set by
containment. For the others the search widens: up to the distance that half of a sample has to its nearest item, then
again for those that found none, until few pairs are left and all are compared.
"""

from math import inf

from rapids_slink.items.kind import Items
from rapids_slink.items.search import Distinct, ItemSearch, distinct_items, next_level
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.device import Array

#: Up to this number of pairs all are compared.
FEW_PAIRS = {"cpu": 2**23, "cuda": 2**28}


def nearest_items(items: Items, m: int, limit: float = inf) -> tuple[Array, Array]:
    """For each of the first m items the nearest of the others, the first of equally near ones, and its distance.

    int32 and float64, (m,). Where none is within the limit, and at a finite distance, it is the first one, and the
    distance is infinite.
    """
    device, n = items.device, len(items)
    xp = device.xp
    distinct = distinct_items(items, xp.zeros(n, "int32"))
    count, of_row = len(distinct.items), distinct.of_row
    first = xp.full(count, n, "int32")  # the first row of the second set of each distinct item
    xp.minimum.at(first, of_row[m:], xp.arange(m, n, dtype="int32"))
    is_point = first < n
    nearest, weight = xp.full(count, m, "int32"), xp.full(count, inf)
    asked = xp.zeros(count, bool)
    asked[of_row[:m]] = True
    pending, copied = asked & ~is_point, asked & is_point

    def settle(wanted: Array, level: float) -> None:
        query, row, distance = _nearest_within(distinct, wanted, first, level)
        nearest[query], weight[query], pending[query] = row, distance, False

    if bool(copied.any()):
        settle(copied, 0.0)
    level = -inf
    while level < limit and bool(pending.any()):
        left = int(pending.sum()) * int(is_point.sum())
        is_last = limit < inf or left <= FEW_PAIRS[device.name]
        level = limit if is_last else next_level(distinct.items, distinct.groups, pending, is_point, level)
        settle(pending, level)
    return nearest[of_row[:m]], weight[of_row[:m]]


def _nearest_within(distinct: Distinct, wanted: Array, first: Array, level: float) -> tuple[Array, Array, Array]:
    """The wanted items that have a row within the level, the first of their nearest rows, and its distance.

    `first`, (u,) int32, is the first row of each item in the second set, or the number of all rows.
    """
    xp, is_point = distinct.items.device.xp, first < distinct.of_row.size
    own = xp.flatnonzero(wanted & is_point)
    found = [own], [first[own]], [xp.zeros(own.size)]
    for a, b, distance in ItemSearch(distinct.items, distinct.groups, level).parts(wanted, is_point):
        for query, point in ((a, b), (b, a)):
            kept = wanted[query] & is_point[point]
            for column, part in zip(found, (query, first[point], distance), strict=True):
                column.append(part[kept])
    query, row, distance = map(xp.concatenate, found)
    order = stable_order(row, xp)
    for column in (distance, query):
        order = order[stable_order(column[order], xp)]
    query, row, distance = query[order], row[order], distance[order]
    best = xp.concatenate((xp.ones(min(1, query.size), bool), query[1:] != query[:-1]))
    return query[best], row[best], distance[best]

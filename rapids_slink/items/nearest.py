"""The nearest item of a second set for each of a first one.

What has a copy in the second set is nearest to it. For the others the search widens: up to the distance that half of a
sample has to its nearest item, then again for those that found none, until few pairs are left and all are compared.
"""

from math import inf

import numpy as np

from rapids_slink.items.kind import Items
from rapids_slink.items.search import Distinct, ItemSearch, distinct_items
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.device import Array, to_host

#: Up to this number of pairs all are compared.
FEW_PAIRS = {"cpu": 2**23, "cuda": 2**28}
#: Items whose distances tell how far to search, and how much farther at least.
SAMPLE, GROWTH = 16, 1.25


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
    nearest, weight = xp.where(is_point, first, m).astype("int32"), xp.where(is_point, 0.0, inf)
    pending = xp.zeros(count, bool)
    pending[of_row[:m]] = True
    pending &= ~is_point
    level = -inf
    while level < limit and bool(pending.any()):
        left = int(pending.sum()) * int(is_point.sum())
        is_last = limit < inf or left <= FEW_PAIRS[device.name]
        level = limit if is_last else _next_level(distinct, pending, is_point, level)
        found = [xp.empty(0, "int32")], [xp.empty(0, "int32")], [xp.empty(0)]
        for a, b, distance in ItemSearch(distinct.items, distinct.groups, level).parts(pending, is_point):
            asked = pending[a]
            for column, part in zip(
                found, (xp.where(asked, a, b), first[xp.where(asked, b, a)], distance), strict=True
            ):
                column.append(part)
        query, row, distance = map(xp.concatenate, found)
        order = stable_order(row, xp)
        for column in (distance, query):
            order = order[stable_order(column[order], xp)]
        query, row, distance = query[order], row[order], distance[order]
        best = xp.concatenate((xp.ones(min(1, query.size), bool), query[1:] != query[:-1]))
        query = query[best]
        nearest[query], weight[query], pending[query] = row[best], distance[best], False
    return nearest[of_row[:m]], weight[of_row[:m]]


def _next_level(distinct: Distinct, pending: Array, is_point: Array, level: float) -> float:
    """The median of a sample's distances to its nearest points, above the last level."""
    items, groups, rng = distinct.items, distinct.groups, np.random.default_rng(0)
    xp, rows, found = items.device.xp, to_host(items.device.xp.flatnonzero(pending)), []
    for row in rng.choice(rows, min(SAMPLE, rows.size), replace=False).tolist():
        group = int(groups.number[row])
        others = groups.order[groups.starts[group] : groups.starts[group + 1]]
        others = others[is_point[others]]
        if others.size:
            found.append(float(items.distances(xp.full(others.size, row, "int32"), others, inf).min()))
    levels = [float(np.median(found)), max(found), level * GROWTH] if found else []
    return next((higher for higher in levels if higher > level), inf)

"""The pairs within a bound of points in tiles of near points, by lists of each row's nearest points within the bound.

A list that is not full has all points within the bound. The rows of full lists get longer ones. A sample of rows shows
beforehand that few lists are full: where most rows have many points within the bound, other searches list no points.
"""

from collections.abc import Iterator

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors import search_in_tiles
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import SearchTask, chunks_of, equal_slices, golden_stride
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.neighbors.within import PairSearch
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import free_bytes, rows_that_fit

#: The length of the first lists, and how many times as long further ones are.
FIRST_LISTED, LONGER = 32, 8
#: Rows by which the share of full lists is estimated, and the largest such share.
SAMPLED_ROWS, MAX_FULL = 2**10, 1 / 16
#: The most rows that are listed at a time, the bytes of an entry of a list while pairs are taken from it, and how many
#: pairs have their distances computed at a time.
LISTED_ROWS, ENTRY_BYTES, AT_ONCE = 2**21, 64, 2**24


def in_tiles(values: Array, queries: Array, limit: float, metric: Metric, device: Device) -> "TilePairs | None":
    """Return the search for the pairs of structured points; None unless lists within the limit serve them."""
    n, wanted = len(values), forced().pairs
    if values.dtype.kind != "f" or not -np.inf < limit < np.inf or wanted not in (None, "tiles"):
        return None
    search = search_in_tiles(values, device, Report(), queries, metric=metric, within=limit)
    if search is None:
        return None
    pairs = TilePairs(search, n, limit, device)
    return pairs if wanted or pairs.share_full() <= MAX_FULL else None


class TilePairs(PairSearch):
    """A search for pairs by lists of the points within the limit."""

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
                at, place = xp.nonzero(listed)
                yield waiting[at].astype("int64") << 32 | ids[at, place], weights[at, place]
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

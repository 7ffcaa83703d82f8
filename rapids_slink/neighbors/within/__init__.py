"""All pairs of rows within a distance, exact.

    rows ──▶ search ──▶ pairs of a range of rows, by (src, dst) ──▶ frame
             cpu.py, cuda.py

    k-d tree, bounding volume hierarchy    few features: rows that are near each other on the tree walk together
    filter by products or counts           many features: each pair of tiles once, without lists; survivors exactly
    exact tiles                            every other metric

A `PairSearch` is prepared for one bound. The pairs of a range of rows are those whose `src` is in it, so that ranges
together hold each pair once: of one set of points src < dst, of two sets src is a query and dst a point. Ranges make
frames that follow one another, and what fits into no frame is counted.

The bound is of surrogate distances. Where the reported distance is a growing function of these, `Limit` is the largest
one whose distance is within: rounded functions that grow keep the order, so nothing else decides. Otherwise (an angle,
a power) the bound is a little too large, and the distances decide at the end.
"""

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.within.task import PairSearch
from rapids_slink.runtime.device import Array, Device, half


def prepare_pairs(
    values: Array, queries: Array, limit: float, metric: Metric, device: Device, progress: bool = False
) -> PairSearch:
    """The search that suits the points, (n, d), and the queries, None for the points themselves.

    Both are as `rows.metric_rows` makes them, of one type. No surrogate distance above `limit` is wanted.
    `progress` is whether to show a progress bar.
    """
    search: PairSearch = half(device, __package__).prepare(values, queries, limit, metric)
    search.progress = progress
    return search

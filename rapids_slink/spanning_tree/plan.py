"""Which way leads to the tree of points, and what it takes.

    pairs    every pair is weighed                                  few/
    boxes    Borůvka on a tree of boxes                             boxes/
    lists    k-NN lists, their forest, and searches to connect it   forest.py, connect.py

The memory estimate and the run take the same way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.plan import (
    default_neighbors,
    estimate_search,
    is_low_dimensional,
    is_searched_by_tree,
    may_have_boxes,
)
from rapids_slink.neighbors.rows import row_bytes, row_features
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, either, sequential
from rapids_slink.spanning_tree import boxes, few
from rapids_slink.spanning_tree.connect import estimate_connect

#: Bytes of a tree's edge.
EDGE_BYTES = 20
PAIRS, BOXES, LISTS = "pairs", "boxes", "lists"


def ways(
    n: int, d: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device, core: Any = None
) -> tuple[str, ...]:
    """What suits n points whose rows have d values; where there are two, `way_by` takes one when there is a search.

    Where a tree would search for lists, boxes take less time than the lists alone (bench/NOTES.md). Core distances come
    from lists but among few points, and with the lists most of the tree is known.
    """
    if n_neighbors is None and core is None and few.is_worthwhile(n, d, metric, min_samples, device):
        return (PAIRS,)
    if min_samples > 1 or core is not None or not may_have_boxes(n, d, metric, device):
        return (LISTS,)
    return (BOXES,) if is_searched_by_tree(n, d, metric, device) else (BOXES, LISTS)


def way_by(search: Any, suitable: tuple[str, ...]) -> str:
    """The one way of these: boxes where there is the choice and a ball of neighbours touches few of them."""
    if len(suitable) == 1:
        return suitable[0]
    return BOXES if is_low_dimensional(search) else LISTS


def list_length(n_neighbors: int | None, min_samples: int, metric: Metric, device: Device) -> int:
    """How long neighbour lists are: longer than the core, so that a point's nearest in a denser place is certain."""
    k = n_neighbors or default_neighbors(metric, device)
    return k if min_samples == 1 else max(k, min_samples + 1)


def estimate_tree(
    n: int, d: int, itemsize: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device
) -> MemoryEstimate:
    """Bytes of the metric's rows and the tree of n points of d features, of which the tree is retained."""
    features = row_features(metric, d)

    def estimate(way: str) -> MemoryEstimate:
        if way == PAIRS:
            rows = row_bytes(metric, d) * n
            return sequential(MemoryEstimate(rows, rows), few.estimate_tree(n, features, device))
        if way == BOXES:  # no lists
            search = estimate_search(n, d, itemsize, 1, device, n_queries=0, metric=metric)
            return sequential(search, boxes.estimate_tree(n, device))
        k = list_length(n_neighbors, min_samples, metric, device)
        search = estimate_search(n, d, itemsize, k, device, min_samples=min_samples, metric=metric)
        return sequential(search, estimate_connect(n))

    suitable = ways(n, features, n_neighbors, min_samples, metric, device)
    return replace(either(*map(estimate, suitable)), retained=EDGE_BYTES * n)

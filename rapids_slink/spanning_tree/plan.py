"""Which way leads to the tree of points, and what it takes.

    pairs    every pair is weighed                                  few/
    boxes    Borůvka on a tree of boxes, on a GPU                   boxes.py
    lists    k-NN lists, their forest, and searches to connect it   forest.py, connect.py

The memory estimate and the run take the same way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.plan import default_neighbors, estimate_search, is_searched_by_tree
from rapids_slink.neighbors.rows import row_bytes, row_features
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.spanning_tree import few
from rapids_slink.spanning_tree.connect import estimate_connect

#: Bytes of a tree's edge.
EDGE_BYTES = 20
PAIRS, BOXES, LISTS = "pairs", "boxes", "lists"


def way(
    n: int, d: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device, core: Any = None
) -> str:
    """The way for n points whose rows have d values.

    Where a GPU's tree would search for lists, boxes take less time than the lists alone; on a CPU they gain a tenth
    (bench/NOTES.md). Core distances come from lists except among few points, and with the lists most of the tree is
    known.
    """
    if n_neighbors is None and core is None and few.is_worthwhile(n, d, metric, min_samples, device):
        return PAIRS
    by_boxes = device.is_gpu and min_samples == 1 and core is None and is_searched_by_tree(n, d, metric, device)
    return BOXES if by_boxes else LISTS


def list_length(n_neighbors: int | None, min_samples: int, metric: Metric, device: Device) -> int:
    """How long neighbour lists are: longer than the core, so that a point's nearest in a denser place is certain."""
    k = n_neighbors or default_neighbors(metric, device)
    return k if min_samples == 1 else max(k, min_samples + 1)


def estimate_tree(
    n: int, d: int, itemsize: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device
) -> MemoryEstimate:
    """Bytes of the metric's rows and the tree of n points of d features, of which the tree is retained."""
    features = row_features(metric, d)
    chosen = way(n, features, n_neighbors, min_samples, metric, device)
    if chosen == PAIRS:
        rows = row_bytes(metric, d) * n
        tree = sequential(MemoryEstimate(rows, rows), few.estimate_tree(n, features, device))
    elif chosen == BOXES:
        from rapids_slink.spanning_tree import boxes  # CuPy's

        search = estimate_search(n, d, itemsize, 1, device, n_queries=0, metric=metric)
        tree = sequential(search, boxes.estimate_tree(n))
    else:
        k = list_length(n_neighbors, min_samples, metric, device)
        search = estimate_search(n, d, itemsize, k, device, min_samples=min_samples, metric=metric)
        tree = sequential(search, estimate_connect(n))
    return replace(tree, retained=EDGE_BYTES * n)

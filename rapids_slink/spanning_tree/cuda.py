"""The forest's kernels on the GPU: launchers of `forest.cu`."""

from __future__ import annotations

from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import check_arrays, launch

_launch = partial(launch, "spanning_tree/forest.cu")


def connected_components(ids: Any) -> int:
    """How many connected components the undirected graph of neighbour lists has."""
    n, k = ids.shape
    parent = cp.arange(n, dtype=cp.int32)
    _launch("join_neighbors", n * k, np.int64(n), np.int32(k), ids, parent)
    counts = cp.zeros(2, cp.int32)
    _launch("count_components", n, np.int64(n), parent, None, counts)
    return int(counts[0])


def propose_edges(lists: Any, forest: Any) -> tuple[int, int]:
    """As `rapids_slink.spanning_tree.cpu.propose_edges`."""
    f, (n, k) = forest, lists.ids.shape
    size, nearest = np.int64(n), (f.nearest_outside, f.nearest_outside_weight)
    known = (size, np.int32(k), lists.ids, lists.weights, f.component, f.cursor, *nearest)
    counts = cp.zeros(2, cp.int32)
    _launch("reset_components", n, size, f.component, f.best_weight, f.best_code, f.certified)
    _launch("propose_weights", n, *known, f.best_weight)
    _launch("propose_codes", n, *known, f.best_weight, f.best_code)
    _launch("certify", n, size, f.component, f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified)
    _launch("count_components", n, size, f.component, f.certified, counts)
    components, certified = counts.tolist()
    return components, certified


def merge_components(forest: Any) -> None:
    """As `rapids_slink.spanning_tree.cpu.merge_components`."""
    f, n = forest, forest.component.size
    size, parent = np.int64(n), cp.empty(n, cp.int32)
    best = f.best_weight, f.best_code, f.certified
    _launch("hook_components", n, size, f.component, *best, parent, f.taken, f.src, f.dst, f.weight)
    _launch("relabel", n, size, parent, f.component)


def rows_to_search(forest: Any) -> Any:
    """As `rapids_slink.spanning_tree.cpu.rows_to_search`; in no order."""
    f, n = forest, forest.component.size
    size = np.int64(n)
    members, largest = cp.zeros(n, cp.int32), cp.zeros(1, cp.uint64)  # CuPy's bincount would take a gigabyte
    _launch("count_members", n, size, f.component, members)
    _launch("find_largest", n, size, members, largest)
    rows, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    known = (f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified)
    _launch("list_rows_to_search", n, size, f.component, largest, *known, rows, count)
    return rows[: int(count[0])]


def record_search(forest: Any, rows: Any, found: Any) -> None:
    """As `rapids_slink.spanning_tree.cpu.record_search`."""
    f, m = forest, rows.size
    check_arrays("int32", rows, found.ids)
    check_arrays("float64", found.weights, found.upper)
    known = (f.nearest_outside, f.nearest_outside_weight, f.bound_weight, f.bound_code)
    _launch("record_search", m, np.int64(m), rows, found.ids, found.weights, found.upper, *known)

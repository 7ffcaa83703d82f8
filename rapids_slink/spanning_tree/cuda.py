"""The spanning-tree kernels on the GPU: launchers of `forest.cu`."""

from __future__ import annotations

from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import check_arrays, launch

_launch = partial(launch, "spanning_tree/forest.cu")


def connected_components(ids: Any) -> int:
    """How many connected components the undirected graph of neighbour lists has."""
    n, k = ids.shape
    parent = cp.arange(n, dtype=cp.int32)
    _launch("join_neighbors", n * k, np.int64(n), np.int32(k), ids, parent)
    return int((parent == cp.arange(n, dtype=cp.int32)).sum())


def propose(lists: Any, state: Any) -> tuple[int, int]:
    """One round's lightest known edge of each component, and whether it is certified; fills the state's arrays.

    Returns
    -------
    components, certified : int
    """
    s, (n, k) = state, lists.ids.shape
    size, width = np.int64(n), np.int32(k)
    near = (size, width, lists.ids, lists.weights, s.component, s.cursor, s.found, s.found_weight)
    counts = cp.zeros(2, cp.int32)
    _launch("reset_components", n, size, s.component, s.best_weight, s.best_code, s.certified)
    _launch("propose_weights", n, *near, s.best_weight)
    _launch("propose_codes", n, *near, s.best_weight, s.best_code)
    bounds = (s.bound_weight, s.bound_code, s.best_weight, s.best_code, s.certified)
    _launch("certify", n, size, s.component, *bounds)
    _launch("count_components", n, size, s.component, s.certified, counts)
    components, certified = counts.tolist()
    return components, certified


def choose(state: Any) -> None:
    """Merge every certified component along its edge, and add the edges to those taken, each once."""
    s, n = state, state.component.size
    size = np.int64(n)
    parent = cp.empty(n, cp.int32)
    _launch(
        "hook_components", n, size, s.component, s.best_weight, s.best_code, s.certified,
        parent, s.taken, s.src, s.dst, s.weight,
    )  # fmt: skip
    _launch("relabel", n, size, parent, s.component)


def unsure_rows(state: Any) -> Any:
    """As `rapids_slink.spanning_tree.cpu.unsure_rows`; in no order."""
    s, n = state, state.component.size
    size = np.int64(n)
    members, largest = cp.zeros(n, cp.int32), cp.zeros(1, cp.uint64)  # CuPy's bincount would take a gigabyte
    _launch("count_members", n, size, s.component, members)
    _launch("find_largest", n, size, members, largest)
    rows, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    bounds = (s.bound_weight, s.bound_code, s.best_weight, s.best_code, s.certified)
    _launch("list_unsure", n, size, s.component, largest, *bounds, rows, count)
    return rows[: int(count[0])]


def learn(state: Any, rows: Any, found: Any) -> None:
    """As `rapids_slink.spanning_tree.cpu.learn`."""
    s, m = state, rows.size
    check_arrays("int32", rows, found.ids)
    check_arrays("float64", found.weights, found.upper)
    known = (s.found, s.found_weight, s.bound_weight, s.bound_code)
    _launch("learn", m, np.int64(m), rows, found.ids, found.weights, found.upper, *known)

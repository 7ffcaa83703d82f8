"""The forest's kernels on the GPU: launchers of `forest.cu`."""

from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import check_arrays, constant, launch, launch_resident
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.frames import EDGE_TYPES
from rapids_slink.spanning_tree.forest import LEAST_SHARE, Growth

SOURCE = "spanning_tree/forest.cu"
MAX_ROUNDS = constant(SOURCE, "MAX_ROUNDS")
_launch = partial(launch, SOURCE)


def connected_components(ids: Array) -> int:
    """The number of connected components of the undirected graph of neighbour lists."""
    check_arrays("int32", ids)
    n, k = ids.shape
    parent = cp.arange(n, dtype=cp.int32)
    _launch("join_neighbors", n * k, np.int64(n), np.int32(k), ids, parent)
    count = cp.zeros(1, cp.int32)
    _launch("count_roots", n, np.int64(n), parent, count)
    return int(count[0])


def grow_forest(lists: Any, forest: Any, least_share: int = LEAST_SHARE) -> Growth:
    """See `rapids_slink.spanning_tree.cpu.grow_forest`, in one launch whose blocks wait for each other."""
    f, (n, k) = forest, lists.ids.shape
    _check(forest)
    check_arrays("int32", lists.ids)
    check_arrays("float64", lists.weights, size=n * k)
    check_arrays("int32", f.component, f.cursor, size=n)
    check_arrays("int32", f.n_taken, size=1)
    for name, column in f.edges.columns.items():
        check_arrays(EDGE_TYPES[name], column, size=n - 1)
    rounds = cp.zeros(6 + 2 * MAX_ROUNDS, cp.int32)
    launch_resident(
        SOURCE, "grow_forest", n, np.int64(n), np.int32(k), lists.ids, lists.weights, f.component,
        f.cursor, f.nearest_outside, f.nearest_outside_weight, f.bound_weight, f.bound_code, f.best_weight,
        f.best_code, f.certified, cp.empty(n, cp.int32), f.n_taken, *f.edges.columns.values(), rounds,
        np.int32(least_share),
    )  # fmt: skip
    at_first, components, chosen, merged = rounds[2:6].tolist()
    return Growth(at_first - components, merged, chosen, components)


def rows_to_search(forest: Any) -> Array:
    """See `rapids_slink.spanning_tree.cpu.rows_to_search`, in any order."""
    f, n = forest, forest.component.size
    _check(forest)
    size = np.int64(n)
    members, largest = cp.zeros(n, cp.int32), cp.zeros(1, cp.uint64)  # CuPy's bincount would take a gigabyte
    _launch("count_members", n, size, f.component, members)
    _launch("find_largest", n, size, members, largest)
    rows, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    state = (f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified)
    _launch("list_rows_to_search", n, size, f.component, largest, *state, rows, count)
    return rows[: int(count[0])]


def rows_of_small_components(forest: Any, rows: Array, max_rows: int) -> Array:
    """See `rapids_slink.spanning_tree.cpu.rows_of_small_components`."""
    check_arrays("int32", forest.component)
    own, members = forest.component[rows], cp.zeros(forest.component.size, cp.int32)
    _launch("count_members", rows.size, np.int64(rows.size), own, members)
    return rows[members[own] <= max_rows]


def record_search(forest: Any, rows: Array, result: Any) -> None:
    """See `rapids_slink.spanning_tree.cpu.record_search`."""
    f, m = forest, rows.size
    _check(forest)
    check_arrays("int32", rows, result.ids, size=m)
    check_arrays("float64", result.weights, result.upper, size=m)
    state = (f.nearest_outside, f.nearest_outside_weight, f.bound_weight, f.bound_code)
    _launch("record_search", m, np.int64(m), rows, result.ids, result.weights, result.upper, *state)


def _check(forest: Any) -> None:
    """Raise unless the arrays of the forest's points are as the kernels read them."""
    f, n = forest, forest.component.size
    check_arrays("int32", f.component, f.nearest_outside, size=n)
    check_arrays("float64", f.nearest_outside_weight, f.bound_weight, f.best_weight, size=n)
    check_arrays("int64", f.bound_code, f.best_code, size=n)
    check_arrays("bool", f.certified, size=n)

"""The rounds on the GPU: launchers of `edges.cu`.

All rounds on a worklist are one launch whose blocks wait for each other. Rows are packed into the words if key and row
fit into 64 bits: weights of four bytes and fewer than 2³² edges. Such a word is an exactly altered weight.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import THREADS, check_arrays, constant, launch, launch_resident
from rapids_slink.runtime.device import Array
from rapids_slink.spanning_tree.graphs import ALL, LIGHT_EDGES, LIGHTEST, EdgeList

ZEROS = 512  # counters of the rounds, more than they can use
MOST_PACKED = 2**32 - 1  # the most edges whose rows fit into the words
SPARE = 1.25  # capacity, as a multiple of the number of edges that the sample predicts
LARGE = 2**22  # from this many edges on, a second set of rounds, with its synchronizations, is worthwhile
SOURCE = "spanning_tree/graphs/edges.cu"
KINDS = {"u": constant(SOURCE, "UNSIGNED"), "i": constant(SOURCE, "SIGNED"), "f": constant(SOURCE, "FLOATING")}
ITEMS = constant(SOURCE, "ITEMS")  # edges or components of a thread
_launch = partial(launch, SOURCE, items=ITEMS)


@dataclass
class State:
    """The state that is kept over the rounds."""

    parent: Array  # int32 array of shape (n,)
    best: Any  # uint64 array of shape (n,), the least word offered to a component; `NOTHING` for all between rounds
    best_row: Any  # uint64 array of shape (n,), or None if the word holds the row
    in_forest: Any  # bool array of shape (m,)
    #: uint64 arrays of shape (2 or 3, capacity), two worklists that change places; edges.cu explains the planes
    lists: list[Any]
    roots: list[Any]  # int32 arrays, the components that had an edge, likewise in two arrays

    @property
    def packed(self) -> bool:
        """Return whether words hold rows."""
        return self.best_row is None


def workspace(first: int, m: int, n: int, itemsize: int) -> int:
    """Return the bytes of a `State` with room for `first` edges in each of two worklists."""
    planes = _planes(m, itemsize)
    return 2 * 8 * planes * first + (8 * planes - 1) * n + m + 2**14


def _planes(m: int, itemsize: int) -> int:
    return 2 if itemsize == 4 and m <= MOST_PACKED else 3


def start(edges: EdgeList, part: int) -> State:
    """Return the state in which every node is a component, and no edge is taken.

    There is room for the `part` of the edges that goes first.
    """
    m, n = edges.src.size, edges.n_nodes
    planes = _planes(m, edges.weight.dtype.itemsize)
    packed = planes == 2
    capacity = m if part == ALL else min(m, int(SPARE * LIGHT_EDGES * n) + THREADS)
    parent, in_forest = cp.empty(n, cp.int32), cp.empty(m, bool)
    best, best_row = cp.empty(n, cp.uint64), None if packed else cp.empty(n, cp.uint64)
    _launch("start_forest", max(n, m), n, m, parent, best, best_row, in_forest)
    return State(
        parent=parent,
        best=best,
        best_row=best_row,
        in_forest=in_forest,
        lists=[cp.empty((planes, capacity), cp.uint64)],
        roots=[cp.empty(n // 2, cp.int32), cp.empty(n // 4, cp.int32)],  # a round leaves at most half
    )


def run_rounds(edges: EdgeList, state: State, part: int, limit: int | None) -> None:
    """Fill the worklist with a part of the edges and run all rounds on it, as `cpu.run_rounds` does."""
    m, n = edges.src.size, edges.n_nodes
    check_arrays("int32", state.parent, size=n)
    check_arrays("uint64", state.best, state.best_row, size=n)
    check_arrays("bool", state.in_forest, size=m)
    state.lists.sort(key=lambda worklist: worklist.shape[1], reverse=True)
    state.roots.sort(key=len, reverse=True)
    component = None if part in (ALL, LIGHTEST) else state.parent
    while True:
        counts = cp.zeros(3, cp.uint64)
        worklist = state.lists[0]
        _launch(
            "collect_edges", m, m, *_columns(edges), edges.maximum, part, limit or 0, component, worklist.shape[1],
            worklist, state.packed, state.best, counts,
        )  # fmt: skip
        collected = m if m <= worklist.shape[1] else int(counts[0])  # without a wait if all m fit
        if collected <= worklist.shape[1]:
            break
        # The sample was misleading: collect again with capacity for all.
        state.lists[0] = cp.empty((worklist.shape[0], collected), cp.uint64)
    if len(state.lists) == 1 or state.lists[1].shape[1] < collected:
        state.lists[1:] = [cp.empty((worklist.shape[0], collected), cp.uint64)]
    other = state.lists[1]
    launch_resident(
        SOURCE, "boruvka_rounds", -(-max(collected, n) // ITEMS), counts, worklist, worklist.shape[1], other,
        other.shape[1], state.packed, state.best, state.best_row, state.parent, state.in_forest, n, *state.roots,
        cp.zeros(ZEROS, cp.uint64),
    )  # fmt: skip


def flatten(parent: Array) -> None:
    """Point every node at its root."""
    while parent.size:
        pending = cp.zeros(1, cp.uint64)
        _launch("flatten", parent.size, parent.size, parent, pending)
        if not int(pending[0]):
            return


def keys_of_rows(edges: EdgeList, rows: Array) -> Any:
    """Return the keys of the weights of these rows."""
    keys = cp.empty(rows.size, cp.uint64)
    _launch("keys_of_rows", rows.size, rows.size, rows, *_columns(edges)[3:], edges.maximum, keys)
    return keys


def number_by_appearance(labels: Array, n_labels: int) -> Any:
    """Return labels below `n_labels` as int32 numbers 0..k-1, in order of first appearance."""
    first = cp.full(n_labels, -1, cp.int64).view(cp.uint64)  # `NOTHING` of edges.cu
    _launch("find_first", labels.size, labels.size, labels, first)
    first_row = first[labels].astype(cp.int64)
    return (cp.cumsum(first_row == cp.arange(labels.size)) - 1).astype(cp.int32)[first_row]


def inspect(src: Array, dst: Array, weight: Array) -> tuple[int, int, bool]:
    """Return the least and the largest id, and whether a weight is NaN; the columns must not be empty."""
    extremes = cp.zeros(3, cp.uint64)
    edges = EdgeList(src, dst, weight, 0)
    _launch("inspect_edges", min(src.size, 2**20), src.size, *_columns(edges), extremes)
    high, low, nan = extremes.tolist()
    return (2**64 - 1 - low) - 2**63, high - 2**63, bool(nan)


def _columns(edges: EdgeList) -> tuple[Any, ...]:
    """Return the columns in the form that the kernels take; raise TypeError for types that they do not take."""
    src, dst, weight = edges.src, edges.dst, edges.weight
    if src.dtype != dst.dtype or src.dtype not in (np.int32, np.int64) or not src.size == dst.size == weight.size:
        raise TypeError(f"ends must be two int32 or two int64 arrays of one size, got {src.dtype} and {dst.dtype}")
    if weight.dtype.kind not in KINDS or weight.dtype.itemsize not in (4, 8):
        raise TypeError(f"weights must be numbers of four or eight bytes, got {weight.dtype}")
    check_arrays(src.dtype, src, dst)
    return src, dst, src.dtype.itemsize, weight, weight.dtype.itemsize, KINDS[weight.dtype.kind]

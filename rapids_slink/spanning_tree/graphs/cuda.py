"""The rounds on the GPU: launchers of `edges.cu`.

All rounds on a worklist are one launch whose blocks wait for each other. Rows are packed into the words if key and row
fit into 64 bits: weights of four bytes and fewer than 2³² edges. Such a word is an exactly altered weight.
"""

from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import THREADS, check_arrays, constant, launch, launch_resident
from rapids_slink.runtime.device import Array
from rapids_slink.spanning_tree.graphs import ALL, LIGHT_EDGES, LIGHTEST, REST, EdgeList, flatten

ZEROS = 512  # counters of the rounds, more than they can use
MOST_PACKED = 2**32 - 1  # the most edges whose rows fit into the words
SPARE = 1.25  # capacity, as a multiple of the number of edges that the sample predicts
LARGE = 2**22  # from this many edges on, a second set of rounds, with its synchronizations, is worthwhile
SOURCE = "spanning_tree/graphs/edges.cu"
KINDS = {"u": constant(SOURCE, "UNSIGNED"), "i": constant(SOURCE, "SIGNED"), "f": constant(SOURCE, "FLOATING")}
ITEMS = constant(SOURCE, "ITEMS")  # edges or components of a thread
_launch = partial(launch, SOURCE, items=ITEMS)


def workspace(first: int, m: int, n: int, itemsize: int) -> int:
    """Return the bytes of `spanning_forest` with room for `first` edges in each of two worklists."""
    planes = _planes(m, itemsize)
    return 2 * 8 * planes * first + (8 * planes - 1) * n + m + 2**14


def _planes(m: int, itemsize: int) -> int:
    return 2 if itemsize == 4 and m <= MOST_PACKED else 3


def spanning_forest(edges: EdgeList, limit: int | None) -> tuple[Array, Array]:
    """Return the forest and the pointers as `cpu.spanning_forest` does.

    `best` is the least word offered to a component; it is `NOTHING` between rounds. A worklist has 2 or 3 planes, which
    edges.cu explains. Two of them change places from round to round, and so do two lists of the components that had an
    edge.
    """
    m, n, planes = edges.src.size, edges.n_nodes, _planes(edges.src.size, edges.weight.dtype.itemsize)
    packed = planes == 2
    parent, in_forest = cp.empty(n, cp.int32), cp.empty(m, bool)
    best, best_row = cp.empty(n, cp.uint64), None if packed else cp.empty(n, cp.uint64)
    _launch("start_forest", max(n, m), n, m, parent, best, best_row, in_forest)
    capacity = m if limit is None else min(m, int(SPARE * LIGHT_EDGES * n) + THREADS)
    lists = [cp.empty((planes, capacity), cp.uint64)]
    roots, next_roots = cp.empty(n // 2, cp.int32), cp.empty(n // 4, cp.int32)  # a round leaves at most half
    for part in (ALL,) if limit is None else (LIGHTEST, REST):
        if part == REST:
            flatten(parent)
        component = parent if part == REST else None
        lists.sort(key=lambda worklist: worklist.shape[1], reverse=True)
        while True:
            counts, worklist = cp.zeros(3, cp.uint64), lists[0]
            _launch(
                "collect_edges", m, m, *_columns(edges), edges.maximum, part, limit or 0, component, worklist.shape[1],
                worklist, packed, best, counts,
            )  # fmt: skip
            collected = m if m <= worklist.shape[1] else int(counts[0])  # the GPU is not waited for if all m fit
            if collected <= worklist.shape[1]:
                break
            # The sample was misleading: collect again with capacity for all.
            lists[0] = cp.empty((planes, collected), cp.uint64)
        if len(lists) == 1 or lists[1].shape[1] < collected:
            lists[1:] = [cp.empty((planes, collected), cp.uint64)]
        other = lists[1]
        launch_resident(
            SOURCE, "boruvka_rounds", -(-max(collected, n) // ITEMS), counts, worklist, worklist.shape[1], other,
            other.shape[1], packed, best, best_row, parent, in_forest, n, roots, next_roots, cp.zeros(ZEROS, cp.uint64),
        )  # fmt: skip
    return in_forest, parent


def _columns(edges: EdgeList) -> tuple[Any, ...]:
    """Return the columns in the form that the kernels take; raise TypeError for types that they do not take."""
    src, dst, weight = edges.src, edges.dst, edges.weight
    if src.dtype != dst.dtype or src.dtype not in (np.int32, np.int64) or not src.size == dst.size == weight.size:
        raise TypeError(f"ends must be two int32 or two int64 arrays of one size, got {src.dtype} and {dst.dtype}")
    if weight.dtype.kind not in KINDS or weight.dtype.itemsize not in (4, 8):
        raise TypeError(f"weights must be numbers of four or eight bytes, got {weight.dtype}")
    check_arrays(src.dtype, src, dst)
    return src, dst, src.dtype.itemsize, weight, weight.dtype.itemsize, KINDS[weight.dtype.kind]

"""The trees of small groups on a GPU: a launch each for groups of up to 64 rows, of up to 256, and larger ones."""

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import THREADS, WARP, check_arrays, launch_blocks, value_option
from rapids_slink.spanning_tree.grouped.trees import Trees

SOURCE = "spanning_tree/grouped/grouped.cu"
#: Warps of a team and rows a thread: a team makes the tree of a group of at most WARP times both.
TEAMS = ((1, 2), (1, 8), (8, 8))
NONE = np.iinfo(np.int32).max


def largest_group() -> int:
    """The most rows of a group."""
    return max(warps * WARP * items for warps, items in TEAMS)


def grow_trees(trees: Trees) -> int:
    """Write the edges. Returns the number of a group with a pair of `OVERFLOW`, or -1, if rows may miss values."""
    rows, metric, edges = trees.rows, trees.metric, trees.edges
    check_arrays(rows.dtype, rows)
    check_arrays("int32", trees.order, *edges[:2])
    check_arrays("float64", edges[2])
    n, d = rows.shape
    size, first = cp.asarray(trees.size.astype(np.int32)), cp.asarray(trees.first)
    begin = cp.cumsum(size - 1, dtype=cp.int64) - (size - 1)
    values = cp.empty_like(rows)
    core = cp.empty(n) if trees.min_samples > 1 else None
    undefined = cp.full(1, NONE, cp.int32)
    options = value_option(rows.dtype), *(metric.bit_options if rows.dtype == "uint64" else metric.cuda_options)
    smallest = 2
    for warps, items in TEAMS:
        largest = warps * WARP * items
        these = cp.flatnonzero((size >= smallest) & (size <= largest)).astype(cp.int32)
        smallest, blocks = largest + 1, -(-these.size * warps * WARP // THREADS)
        launch_blocks(
            SOURCE, "grow_trees", (blocks,), THREADS, rows, np.int32(d), np.int32(these.size), these, first, size,
            begin, trees.order, np.int32(trees.min_samples), values, core, *edges, undefined,
            options=(*options, f"-DTEAM_WARPS={warps}", f"-DROWS_A_THREAD={items}"),
        )  # fmt: skip
    bad = int(undefined[0]) if metric.missing else NONE
    return -1 if bad == NONE else bad

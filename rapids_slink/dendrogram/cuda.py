"""The dendrogram kernels on the GPU: launchers of `dendrogram.cu`.

A linkage in parallel, after PANDORA (Sao, Prokopenko, Lebrun-Grandié, 2024). Edges come sorted, so an edge's position
is its *rank*, and all ranks differ. D is the dendrogram: an edge's parent is the next edge to take in what it made.

*Contraction.* Every part (at first a node) points across its lightest edge. These edges are contracted, which makes the
parts of the next level, at most half as many; the edges that are the lightest at neither end (alpha edges) remain, and
so on until none does. This is Borůvka on the tree.

*Chains.* Of an edge e contracted on some level, look at the parts that hold it on the levels above, S1 ⊂ S2 ⊂ ..., and
let top(S) be the lightest edge that leaves S. The chain of e is the first S with top(S) > e. The edges of a chain S
follow one another in D in the order of their ranks, and after the last of them comes top(S):

1. Let h be inside S and heavier than top(S') for each smaller S' that holds it, and f an edge that leaves such an S'
   or S. All edges between h and f on their path are lighter than the heavier of the two. For such an edge, g, was the
   lightest at one of its ends. Go on over that end: the next edge of the path on g's level is heavier, and so on up to
   f, or to an edge of a higher level, where the same holds, or to the part S' that holds h; but then the edge before
   is top(S'), and h is heavier.
2. S was made of parts that point at each other along ever lighter edges, down to two that share theirs, core_edge(S).
   An edge h of chain S is one of these edges, or inside a part and heavier than the one that leaves it; with (1), what
   h makes holds core_edge(S). So of two edges of chain S the lighter lies below the heavier in D.
3. An edge x inside S, lighter than top(S) and of another chain, is of that of a smaller part R in S and lighter than
   top(R): what it makes stays in R, which does not hold core_edge(S). So x lies above no edge of chain S. What the last
   edge of chain S makes does not leave S before top(S), and top(S) takes it in (1).

So an edge's children are the edge before it in its chain and the end of the chain of the part whose lightest edge it
was; the chain's first is core_edge(S), with a part at both ends. No chain above the leaves is empty. Sizes are sums
along the chains of each edge's children, level by level, since children are of a lower level.

Of few leaves one thread joins the ends of each edge in turn, as a CPU does, in less time than those launches take.

The numbers that parts get depend on the order of threads; what is made of them does not. No step costs depth: there are
at most log2(n) levels, and pointers are doubled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.dendrogram import cpu
from rapids_slink.ordering import NO_EDGE
from rapids_slink.runtime.cuda import THREADS, check_arrays, launch, launch_blocks

SOURCE = "dendrogram/dendrogram.cu"
_launch = partial(launch, SOURCE)
FEW = 2**12  # leaves, at most, whose union-find one thread does in shared memory
JUMP_FACTOR = 4  # HOPS + 1 in dendrogram.cu: how many times as far a pointer leads after a round


def merge_in_order(src: Any, dst: Any, n: int) -> tuple[Any, Any, Any]:
    """As `rapids_slink.dendrogram.cpu.merge_in_order`, for CuPy arrays."""
    check_arrays("int32", src, dst)
    if n <= FEW:
        columns, merged = [cp.empty_like(src) for _ in range(3)], cp.zeros(1, cp.int32)
        arguments = np.int32(n), np.int32(src.size), src, dst, *columns, merged
        launch_blocks(SOURCE, "merge_few", (1,), THREADS, *arguments, shared_memory=12 * n)
        count = int(merged[0])
        left, right, size = (column[:count] for column in columns)
        return left, right, size
    contraction = _contract(src, dst, n)
    if contraction is None:  # union-find tells which edge is the first to close a cycle
        left, right, size = cpu.merge_in_order(cp.asnumpy(src), cp.asnumpy(dst), n)
        return cp.asarray(left), cp.asarray(right), cp.asarray(size)
    return _merge_along_chains(contraction, n)


def follow_pointers(pointers: Any) -> None:
    """As `rapids_slink.dendrogram.cpu.follow_pointers`, for a CuPy array."""
    check_arrays("int32", pointers)
    size, rounds = pointers.size, 0
    while JUMP_FACTOR**rounds < size:
        rounds += 1
    pending = cp.zeros(rounds, cp.int32)
    for i in range(rounds):
        _launch("follow_pointers", size, np.int64(size), pointers, pending, np.int32(i))


def first_rows(groups: Any, n_groups: int) -> Any:
    """As `rapids_slink.dendrogram.cpu.first_rows`, for a CuPy array."""
    check_arrays("int32", groups)
    first = cp.full(n_groups, groups.size, cp.int32)
    _launch("find_first_rows", groups.size, np.int64(groups.size), groups, first)
    return first


@dataclass(frozen=True)
class _Contraction:
    """How a forest shrank.

    Attributes
    ----------
    children : (m, 2) int32 array
        By rank, the part whose lightest edge it was, and -1; both parts if it was that at both its ends.
    lightest_exit : int64 array
        By part, rank of the lightest edge that leaves it << 32 | the next level's part that it is a piece of; `NO_EDGE`
        where none leaves.
    first : list of int
        The number of each level's first part, and one past the last of all. Level 0 are the n leaves.
    """

    children: Any
    lightest_exit: Any
    first: list[int]


def _contract(src: Any, dst: Any, n: int) -> _Contraction | None:
    """Borůvka's rounds on a forest in ascending order; None if the edges close a cycle.

    The lightest edge at a part never is the heaviest of a cycle, so that one stays until both its ends are in one part.
    """
    children = cp.empty((src.size, 2), cp.int32)
    lightest_exit = cp.full(2 * n, NO_EDGE, cp.int64)  # each level has at most half the parts of the one before
    first = [0, n]
    m, u, v, rank = src.size, src, dst, None
    while m:
        parts = first[-1] - first[-2]
        level = (np.int64(parts), np.int32(first[-2]))
        pointer = cp.empty(parts, cp.int32)
        counts = cp.zeros(3, cp.int32)
        kept = [cp.empty(m, cp.int32) for _ in range(3)]
        edges = (np.int64(m), u, v, rank)
        _launch("offer_edges", m, *edges, lightest_exit)
        _launch("hook_parts", parts, *level, np.int32(first[-1]), lightest_exit, pointer, counts)
        follow_pointers(pointer)
        _launch("name_successors", parts, *level, pointer, lightest_exit)
        _launch("contract_edges", m, *edges, lightest_exit, children, *kept, counts)
        made, m, cycle = counts.tolist()
        if cycle:
            return None
        first.append(first[-1] + made)
        u, v, rank = kept
    return _Contraction(children, lightest_exit, first)


def _merge_along_chains(contraction: _Contraction, n: int) -> tuple[Any, Any, Any]:
    """Z's left, right and size."""
    children, lightest_exit, first = contraction.children, contraction.lightest_exit, contraction.first
    m = len(children)
    left, right, size = (cp.empty(m, cp.int32) for _ in range(3))
    if not m:
        return left, right, size
    edges, leaves = np.int64(m), np.int32(n)
    key = cp.empty(m, cp.int64)
    _launch("find_chains", m, edges, children, lightest_exit, key)
    key.sort()
    chains = first[-1] - n
    start = cp.empty(chains + 1, cp.int32)
    _launch("mark_starts", m, edges, leaves, np.int64(chains), key, start)
    total = cp.empty(m, cp.uint32)
    bounds = start[cp.asarray(first[1:]) - n].tolist()
    for low, high in pairwise(bounds):
        _launch("sum_leaves", high - low, np.int64(low), np.int64(high), leaves, key, children, start, total)
        total[low:high] = cp.cumsum(total[low:high], dtype=cp.uint32)
    _launch("write_merges", m, edges, leaves, key, children, start, total, left, right, size)
    return left, right, size

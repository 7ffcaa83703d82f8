"""The rounds on the CPU, in Numba: serial passes over arrays, fast if neighbouring nodes have near numbers."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.ordering import ascending_bits
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.spanning_tree.graphs import ALL, LIGHTEST, EdgeList

LARGE = 2**15  # from this many edges on, a second set of rounds is worthwhile
SPARE = 1.0  # the share of the worklist that is written: unwritten pages take no memory
FLOATING, SIGNED = ord("f"), ord("i")  # NumPy's kinds


@dataclass
class State:
    """The state that is kept over the rounds."""

    parent: np.ndarray  # int32 array of shape (n,)
    #: array of shape (n,), a component's best edge by its place in the worklist; -1 for none and between rounds
    best: np.ndarray
    in_forest: np.ndarray  # bool array of shape (m,)
    roots: np.ndarray  # int32 array, the components that had an edge, in ascending order
    worklist: tuple[np.ndarray, ...]  # the two ends, the key and the row of each edge, in the order of the rows


def workspace(first: int, m: int, n: int, itemsize: int) -> int:
    """Return the bytes of a `State` of which the first edges of the worklist, `first` of them, are written."""
    place = 4 if m < 2**31 else 8
    return first * (8 + itemsize + place) + m + n * (8 + place)


def start(edges: EdgeList, _part: int) -> State:
    """Return the state in which every node is a component, and no edge is taken."""
    m, n = edges.src.size, edges.n_nodes
    place = np.int32 if m < 2**31 else np.int64
    types = (np.int32, np.int32, _bits(edges.weight).dtype, place)
    return State(
        parent=np.arange(n, dtype=np.int32),
        best=np.full(n, -1, place),
        in_forest=np.zeros(m, bool),
        roots=np.empty(n, np.int32),
        worklist=tuple(np.empty(m, dtype) for dtype in types),  # unwritten pages take no memory
    )


def run_rounds(edges: EdgeList, state: State, part: int, limit: int | None) -> None:
    """Fill the worklist with a part of the edges and run all rounds on it.

    Parts other than `ALL` need flat pointers, and `limit`, the row with which the lightest part ends.
    """
    a, b, keys, rows = state.worklist
    roots = np.flatnonzero(state.parent == np.arange(edges.n_nodes))
    state.roots[: roots.size] = roots
    active = roots.size
    size = _collect(
        read_only(edges.src), read_only(edges.dst), read_only(_bits(edges.weight)), *_weight_kind(edges), part,
        limit or 0, state.parent, state.best, a, b, keys, rows,
    )  # fmt: skip
    while True:
        _hook(a, b, rows, size, state.best, state.parent, state.in_forest)
        active = _compress(state.roots, active, state.parent, state.best)
        if not size:
            return
        size = _contract(a, b, keys, rows, size, state.parent, state.best)


def keys_of_rows(edges: EdgeList, rows: np.ndarray) -> np.ndarray:
    """Return the keys of the weights of these rows."""
    return ascending_bits(edges.weight[rows]) ^ _weight_kind(edges)[2]


def number_by_appearance(labels: np.ndarray, n_labels: int) -> np.ndarray:
    """Return labels below `n_labels` as int32 numbers 0..k-1, in order of first appearance."""
    return pd.factorize(labels)[0].astype(np.int32)


def inspect(src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> tuple[int, int, bool]:
    """Return the least and the largest id, and whether a weight is NaN; the columns must not be empty."""
    low, high = min(src.min(), dst.min()), max(src.max(), dst.max())
    return int(low), int(high), weight.dtype.kind == "f" and bool(np.isnan(weight).any())


def _bits(weight: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weight).view(f"u{weight.dtype.itemsize}")


def _weight_kind(edges: EdgeList) -> tuple[int, np.uint64, np.uint64]:
    """Return the kind of the weights, their sign bit, and the mask that inverts their keys."""
    top = 1 << (8 * edges.weight.dtype.itemsize - 1)
    return ord(edges.weight.dtype.kind), np.uint64(top), np.uint64(2 * top - 1 if edges.maximum else 0)


@njit(cache=True, inline="always")
def _key(bits, kind, top, invert):
    """Return the bits of a weight as an unsigned integer of the same order; both zeros have the same one."""
    key = np.uint64(bits)
    if kind == FLOATING:
        if key == top:
            key = np.uint64(0)
        key ^= (top | (top - np.uint64(1))) if key & top else top
    elif kind == SIGNED:
        key ^= top
    return key ^ invert


@njit(cache=True, inline="always")
def _offer(best, component, keys, i):
    """Offer edge i to a component.

    Rows ascend along the worklist, so the first of equal keys wins.
    """
    if best[component] < 0 or keys[i] < keys[best[component]]:
        best[component] = i


@njit(cache=True)
def _collect(src, dst, bits, kind, top, invert, part, limit, parent, best, a, b, keys, rows):
    limit_key = _key(bits[limit], kind, top, invert) if part != ALL else np.uint64(0)
    size = 0
    for row in range(bits.size):
        key = _key(bits[row], kind, top, invert)
        if part != ALL:
            light = key < limit_key or (key == limit_key and row <= limit)
            if light != (part == LIGHTEST):
                continue
        u, v = parent[src[row]], parent[dst[row]]
        if u == v:
            continue
        a[size], b[size], keys[size], rows[size] = u, v, key, row
        _offer(best, u, keys, size)
        _offer(best, v, keys, size)
        size += 1
    return size


@njit(cache=True)
def _contract(a, b, keys, rows, size, parent, best):
    kept = 0
    for i in range(size):
        u, v = parent[a[i]], parent[b[i]]
        if u == v:
            continue
        a[kept], b[kept], keys[kept], rows[kept] = u, v, keys[i], rows[i]
        _offer(best, u, keys, kept)
        _offer(best, v, keys, kept)
        kept += 1
    return kept


@njit(cache=True)
def _hook(a, b, rows, size, best, parent, in_forest):
    for i in range(size):
        u, v = a[i], b[i]
        from_u, from_v = best[u] == i, best[v] == i
        if from_u and (not from_v or v < u):
            parent[u] = v
        if from_v and (not from_u or u < v):
            parent[v] = u
        if from_u or from_v:
            in_forest[rows[i]] = True


@njit(cache=True)
def _compress(roots, active, parent, best):
    """Point the round's components at their roots and keep the roots that had an edge."""
    kept = 0
    for i in range(active):
        c = roots[i]
        if parent[c] != c:
            parent[c] = find_root(parent, c)
        elif best[c] >= 0:
            best[c] = -1
            roots[kept] = c
            kept += 1
    return kept


@njit(cache=True)
def flatten(parent):
    """Point every node at its root."""
    for v in range(parent.size):
        parent[v] = find_root(parent, v)

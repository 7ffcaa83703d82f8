"""The rounds on the CPU, in Numba: serial passes over arrays, fast if neighbouring nodes have near numbers."""

import numpy as np

from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.spanning_tree.graphs import ALL, LIGHTEST, REST, EdgeList, flatten

LARGE = 2**15  # from this many edges on, a second set of rounds is worthwhile
SPARE = 1.0  # the share of the worklist that is written: unwritten pages take no memory
FLOATING, SIGNED = ord("f"), ord("i")  # NumPy's kinds


def workspace(first: int, m: int, n: int, itemsize: int) -> int:
    """Return the bytes of `spanning_forest` if the first edges of the worklist, `first` of them, are written."""
    index_size = 4 if m < 2**31 else 8
    return first * (8 + itemsize + index_size) + m + n * (8 + index_size)


def spanning_forest(edges: EdgeList, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what `graphs.spanning_forest` returns; the lightest edges, up to that in the row `limit`, go first.

    If that is None, all edges go at once. The worklist has two ends, the key and the row of each edge, in the order of
    the rows. The best edge of a component is its position in the worklist; it is -1 for none, and between rounds.
    """
    m, n, src, dst = edges.src.size, edges.n_nodes, read_only(edges.src), read_only(edges.dst)
    kind, size = ord(edges.weight.dtype.kind), edges.weight.dtype.itemsize
    bits, top = read_only(np.ascontiguousarray(edges.weight).view(f"u{size}")), 1 << (8 * size - 1)
    top, invert = np.uint64(top), np.uint64(2 * top - 1 if edges.maximum else 0)
    index_type = np.int32 if m < 2**31 else np.int64
    parent, best, in_forest = np.arange(n, dtype=np.int32), np.full(n, -1, index_type), np.zeros(m, bool)
    a, b, keys, rows = (np.empty(m, dtype) for dtype in (np.int32, np.int32, bits.dtype, index_type))
    for part in (ALL,) if limit is None else (LIGHTEST, REST):
        if part == REST:
            flatten(parent)
        roots = np.flatnonzero(parent == np.arange(n)).astype(np.int32)  # the components that had an edge, ascending
        active, row = roots.size, limit or 0
        size = _collect(src, dst, bits, kind, top, invert, part, row, parent, best, a, b, keys, rows)
        while True:
            _hook(a, b, rows, size, best, parent, in_forest)
            active = _compress(roots, active, parent, best)
            if not size:
                break
            size = _contract(a, b, keys, rows, size, parent, best)
    return in_forest, parent


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
    """Offer edge i to a component; rows ascend along the worklist, so the first of equal keys wins."""
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

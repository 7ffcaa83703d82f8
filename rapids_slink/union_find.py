"""Disjoint sets for Numba's kernels on the CPU: an array `parent` in which a root is its own parent."""

from rapids_slink.runtime.compiling import njit


@njit(cache=True, inline="always")
def find_root(parent, v):
    """The root of v's set, with path halving (Tarjan and van Leeuwen, 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v

"""The total order on edges: (weight, smaller id, larger id). Nothing else defines "lighter".

Weights are float64 and ids fit in 31 bits, so an edge's ids pack into one non-negative int64
whose order is that of (smaller id, larger id). All keys are distinct, so the minimum spanning tree is
unique; it is what every stage, on either device, computes. `ordering.cuh` is the same order in CUDA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, inline="always")
def edge_code(u, v):
    """The ids of edge {u, v} as one int64, the smaller in the upper half."""
    return (np.int64(min(u, v)) << np.int64(32)) | np.int64(max(u, v))


@njit(cache=True, inline="always")
def lighter(weight, code, other_weight, other_code):
    """Whether edge (weight, code) comes before (other_weight, other_code)."""
    return weight < other_weight or (weight == other_weight and code < other_code)


#: After every edge's code.
NO_EDGE = 2**63 - 1


def edge_codes(u: Any, v: Any, xp: Any) -> Any:
    """`edge_code` of arrays."""
    return (xp.minimum(u, v).astype("int64") << 32) | xp.maximum(u, v).astype("int64")


def edge_ends(codes: Any) -> tuple[Any, Any]:
    """The smaller and the larger ids of edges, int32."""
    return (codes >> 32).astype("int32"), (codes & 0xFFFFFFFF).astype("int32")


def sort_edges(edges: Any) -> Any:
    """An edge frame in the total order, with ``src < dst`` in every row."""
    src, dst = edges["src"], edges["dst"]
    low, high = src.where(src < dst, dst), dst.where(src < dst, src)
    edges = edges.assign(src=low, dst=high)
    return edges.sort_values(["weight", "src", "dst"], ignore_index=True)

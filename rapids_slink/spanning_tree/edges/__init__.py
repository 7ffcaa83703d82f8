"""The minimum spanning forest of a list of edges, by Borůvka's algorithm on a worklist that shrinks.

    columns ──collect──▶ worklist ──merge──contract──▶ worklist ──▶ … ──▶ nothing left

- Edges are ordered by (weight, row). All differ, so the forest is unique, and every device returns it. A weight is
  compared as its *key*, the unsigned integer of its width that has its order; -0.0 equals 0.0. Inverted keys give the
  maximum spanning forest.
- Every edge of the worklist names the two components that it joins by their roots, and is offered to both.
- Merge: each component takes its best edge, which is in the forest by the cut property, and points at the component
  across. If two chose the same edge, the smaller stays a root. The order is total, so there are no other cycles. Then
  every pointer is moved on to its root. A component without an edge is complete and not visited again.
- Contract: the ends of the edges become roots again, and edges within one component are dropped. At least half of
  the components that had an edge are gone after each round.
- In a dense graph nearly all edges lie within a component once the lightest are merged. So the rounds run first on
  about `LIGHT_EDGES` lightest edges per node, found by a sample, and then on the other edges that still join two
  components. The result does not depend on where the edges are divided.

The modules of both devices have ``boruvka_rounds``, ``flatten`` and the small kernels around them under the same names.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rapids_slink.ordering import stable_order
from rapids_slink.report import counted
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device, half, to_host
from rapids_slink.runtime.memory import MemoryEstimate

LIGHT_EDGES = 1.5  # edges per node in the part that goes first

#: Parts of the edges.
ALL, LIGHTEST, REST = (constant("spanning_tree/edges/worklist.cuh", name) for name in ("ALL", "LIGHTEST", "REST"))


@dataclass(frozen=True)
class EdgeList:
    """A weighted graph over nodes numbered from 0."""

    #: `src` and `dst`: int32 or int64 arrays of shape (m,), both of one type, on the device, contiguous
    src: Array
    dst: Array
    weight: Array  # array of shape (m,), of four or eight bytes, integers or floats, no NaN
    n_nodes: int  # above every number in `src` and `dst`, at most 2³¹ - 1
    maximum: bool = False  # whether heavier edges come first; equal ones keep the order of their rows in both cases


#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

DENSE = 4  # from this many edges per node on the lightest go first
SAMPLE = 4096  # weights that decide which these are


def estimate_forest(edges: EdgeList, device: Device) -> MemoryEstimate:
    """Bytes of `spanning_forest` and of the copy of its edges."""
    on_device = kernels(device)
    m, n = edges.src.size, edges.n_nodes
    first = int(on_device.SPARE * LIGHT_EDGES * n) if _is_dense(m, n, on_device.LARGE) else m
    workspace = on_device.workspace(min(m, first), m, n, edges.weight.dtype.itemsize)
    return MemoryEstimate(workspace + 24 * n, m + 8 * n)


def size_text(edges: EdgeList) -> str:
    """The size of a graph in words."""
    return f"{counted(edges.src.size, 'edge')} of {counted(edges.n_nodes, 'node')}"


def spanning_forest(edges: EdgeList, device: Device) -> tuple[Any, Any]:
    """Which edges are in the minimum spanning forest, (m,) bool, and pointers from each node to its component's root.

    The pointers, (n,) int32, are for `components`.
    """
    rounds = kernels(device)
    limit = _heaviest_of_lightest(edges, rounds.LARGE, device)
    parts = (ALL,) if limit is None else (LIGHTEST, REST)
    state = rounds.start(edges, parts[0])
    for part in parts:
        if part == REST:
            rounds.flatten(state.parent)
        rounds.boruvka_rounds(edges, state, part, limit)
    return state.in_forest, state.parent


def components(nodes: Any, parent: Array, device: Device) -> Any:
    """The components of these nodes, numbered 0..c-1 in order of first appearance: an int32 array."""
    kernels(device).flatten(parent)
    return kernels(device).number_by_appearance(parent[nodes], parent.size)


def merge_order(edges: EdgeList, rows: Array, device: Device) -> Any:
    """The rows in the order of their edges; `rows` must ascend."""
    keys = kernels(device).keys_of_rows(edges, rows)
    return rows[stable_order(keys, device.xp)]


def inspect(src: Array, dst: Array, weight: Array, device: Device) -> tuple[int, int, bool]:
    """The least and the largest id, and whether a weight is NaN; the columns must not be empty."""
    return kernels(device).inspect(src, dst, weight)


def promote_weights(array: Array) -> Any:
    """Numbers in the smallest type of four or eight bytes that holds them."""
    if array.dtype.itemsize >= 4:
        return array
    return array.astype({"i": "int32", "u": "uint32", "f": "float32"}[array.dtype.kind])


def _heaviest_of_lightest(edges: EdgeList, smallest: int, device: Device) -> int | None:
    """The row of the heaviest of the lightest edges, about `LIGHT_EDGES` per node, by a sample.

    None if all edges are processed at once, as in graphs of fewer than `smallest` edges.
    """
    m, n = edges.src.size, edges.n_nodes
    if not _is_dense(m, n, smallest):
        return None
    rows = np.random.default_rng(0).integers(0, m, SAMPLE)
    keys = to_host(kernels(device).keys_of_rows(edges, device.asarray(rows)))
    place = min(int(SAMPLE * LIGHT_EDGES * n / m), SAMPLE - 1)
    last = np.partition(keys, place)[place]
    return int(np.sort(rows[keys == last])[place - np.count_nonzero(keys < last)])  # the earlier of equal ones first


def _is_dense(m: int, n: int, smallest: int) -> bool:
    return m >= smallest and m >= DENSE * n

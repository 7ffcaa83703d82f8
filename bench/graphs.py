"""Graphs, for the stages that start from edges.

Grids with gaps stand in for road networks: they have as few edges a node, edges as local, and the numbers of nodes of
the cuSLINK paper's table 3. Scale-free graphs are their opposite: they have few hops, hubs, many edges a node, parallel
edges and self-loops.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rapids_slink.runtime.device import Device, current_gpu, stream_resources

SEED = 20230918
KEPT = 0.609  # the share of a grid's edges that is kept: 1.218 a node, as in the road network of the USA
THETA = (0.57, 0.19, 0.19, 0.05)  # the quadrants' shares in a scale-free graph: Graph500's
Columns = dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A weighted graph.

    Attributes
    ----------
    name : str
    n : int
        Nodes.
    edges : callable
        ``edges(device)`` gives ``src``, ``dst`` and ``weight``, arrays of the device.
    parallels : bool
        Whether there are parallel edges and self-loops, which others do not take.
    """

    name: str
    n: int
    edges: Callable[[Device], Columns]
    parallels: bool = False


def road(name: str, height: int, width: int, dtype: type = np.int32) -> Graph:
    """Return a grid of which each edge is kept with probability `KEPT`; weights 1..9999; the same bits on any device.

    Nodes are numbered row by row, edges are listed by their first node.
    """

    def edges(device: Device) -> Columns:
        rng = np.random.default_rng(SEED)
        node = np.arange(height * width, dtype=np.int32).reshape(height, width, 1)
        kept = rng.random((height, width, 2), np.float32) < KEPT
        kept[:, -1, 0] = kept[-1, :, 1] = False  # no neighbour to the right, none below
        src = np.broadcast_to(node, kept.shape)[kept]
        dst = (node + np.array([1, width], np.int32))[kept]
        weight: Any = rng.integers(1, 10_000, src.size, np.int32).astype(dtype)
        return {"src": device.asarray(src), "dst": device.asarray(dst), "weight": device.asarray(weight)}

    return Graph(name, height * width, edges)


def rmat(scale: int, degree: int) -> Graph:
    """Return a scale-free graph of 2**scale nodes with `degree` edges a node, float32 weights uniform in [0, 1).

    On a GPU it is pylibraft's, elsewhere one of the same distribution.
    """

    def edges(device: Device) -> Columns:
        m = degree << scale
        if device.is_gpu and importlib.util.find_spec("pylibraft") is not None:
            src, dst = _rmat_of_pylibraft(scale, m, device)
            weight = device.xp.random.default_rng(SEED).random(m, dtype=np.float32)
        else:
            rng = np.random.default_rng(SEED)
            src, dst = (device.asarray(ends) for ends in _rmat(scale, m, rng))
            weight = device.asarray(rng.random(m, np.float32))
        return {"src": src, "dst": dst, "weight": weight}

    return Graph(f"rmat-{scale}-{degree}", 1 << scale, edges, parallels=True)


def _rmat_of_pylibraft(scale: int, m: int, device: Device) -> tuple[Any, Any]:
    from pylibraft.random import rmat

    xp = device.xp
    handle = stream_resources(xp.cuda.get_current_stream().ptr, current_gpu())
    pairs = xp.empty((m, 2), np.int32)
    rmat(pairs, xp.asarray(np.tile(np.array(THETA, np.float32), scale)), scale, scale, seed=SEED, handle=handle)
    device.synchronize()
    return xp.ascontiguousarray(pairs[:, 0]), xp.ascontiguousarray(pairs[:, 1])


def _rmat(scale: int, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the ends of m edges, two arrays of int32: one quadrant for each bit of the ids, from the highest on."""
    src, dst = np.zeros(m, np.int32), np.zeros(m, np.int32)
    a, b, c, _ = np.cumsum(THETA)
    for _ in range(scale):
        draw = rng.random(m, np.float32)
        src = src << 1 | (draw >= b)
        dst = dst << 1 | (((draw >= a) & (draw < b)) | (draw >= c))
    return src.astype(np.int32), dst.astype(np.int32)


#: Height and width of grids with as many nodes as the networks of the table, from New York to the whole USA.
SIDES = {
    "road-263k": (513, 513),
    "road-321k": (567, 567),
    "road-436k": (660, 660),
    "road-1.07m": (1034, 1035),
    "road-1.21m": (1099, 1099),
    "road-1.52m": (1234, 1235),
    "road-1.89m": (1375, 1375),
    "road-2.76m": (1661, 1661),
    "road-3.60m": (1897, 1897),
    "road-6.26m": (2502, 2503),
    "road-14.1m": (3752, 3753),
    "road-24m": (4896, 4891),
}
GRAPHS: tuple[Graph, ...] = (
    *(road(name, height, width) for name, (height, width) in SIDES.items()),
    road("road-24m-float64", *SIDES["road-24m"], np.float64),
    rmat(12, 16),
    rmat(24, 16),
)

"""The edge list of a graph, and the parts in which its edges are processed."""

from dataclasses import dataclass

from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array

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

"""Minimum spanning trees: of a point set, through its k-NN lists or on a tree of boxes, and of any weighted graph.

    lists ──Borůvka──▶ forest, certain edges only ──connect──▶ tree         forest.py, connect.py, component_pairs/
    points of few features, on a GPU ──Borůvka on a tree of boxes──▶ tree   boxes.py
    few points; one feature; repeated rows                                  few/; line.py; repeats.py
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs.py, edges/

`plan.py` chooses. Why an edge is in the tree: `forest.py` says it of lists, `boxes.py` of boxes, `component_pairs/` of
the last components, and `line.py` and `repeats.py` of what they take. An edge frame has the columns ``src``, ``dst``,
``weight``. Among points, ties go by the total order of `ordering`; in a graph to the earlier row.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.runtime.device import Device, device_of
from rapids_slink.runtime.estimate import sequential
from rapids_slink.runtime.memory import check_memory, copy_out
from rapids_slink.spanning_tree.connect import spanning_tree
from rapids_slink.spanning_tree.edges import components, estimate_forest, size_text, spanning_forest
from rapids_slink.spanning_tree.graphs import COLUMNS, read_graph
from rapids_slink.spanning_tree.kernels import kernels

__all__ = ["count_connected_components", "spanning_tree", "tree_of_edges"]


def tree_of_edges(frame: Any, device: Device, *, maximum: bool, component: bool) -> Any:
    """`api.minimum_spanning_tree` of a frame, on a device, within a run."""
    graph = read_graph(frame, device, maximum=maximum)
    estimate = sequential(graph.estimate, estimate_forest(graph.edges, device))
    check_memory(device, estimate, size_text(graph.edges), graph.estimate.retained)
    taken, parent = spanning_forest(graph.edges, device)
    columns = frame if list(frame.columns) == COLUMNS else frame[COLUMNS]
    tree = columns[device_of(frame).asarray(taken)]
    if component:
        number = components(graph.edges.src[taken], parent, device)
        tree = tree.assign(component=device_of(frame).asarray(copy_out(device, number)))
    return tree


def count_connected_components(lists: NeighborLists, device: Device) -> int:
    """Connected components of the undirected graph of neighbour lists."""
    return int(kernels(device).connected_components(lists.ids))

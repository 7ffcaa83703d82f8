"""Minimum spanning trees: of a point set, on a tree of boxes or through its k-NN lists, and of any weighted graph.

    lists ──Borůvka──▶ forest, certain edges only ──connect──▶ tree         forest.py, connect.py, component_pairs/
    points of few features ──Borůvka on a tree of boxes──▶ tree             boxes/
    few points; one feature; repeated rows                                  few/; line.py; repeats.py
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs.py, edges/

`plan.py` chooses. Why an edge is in the tree: `forest.py` says it of lists, `boxes/` of boxes, `component_pairs/` of
the last components, and `line.py` and `repeats.py` of what they take. An edge frame has the columns ``src``, ``dst``,
``weight``. Among points, ties go by the total order of `ordering`; in a graph to the earlier row.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.points.output import OutputKind, distributed, is_collection
from rapids_slink.runtime.device import Device, device_of, resolve
from rapids_slink.runtime.estimate import sequential
from rapids_slink.runtime.memory import check_memory, copy_out, run_scope
from rapids_slink.spanning_tree.connect import spanning_tree
from rapids_slink.spanning_tree.edges import components, estimate_forest, size_text, spanning_forest
from rapids_slink.spanning_tree.graphs import COLUMNS, as_cugraph, as_frame, is_cugraph, read_graph

__all__ = ["count_connected_components", "minimum_spanning_tree", "spanning_tree"]


def minimum_spanning_tree(
    edges: Any,
    *,
    maximum: bool = False,
    component: bool = False,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """The minimum spanning tree of a weighted undirected graph, or its forest if it is not connected.

    Parameters
    ----------
    edges : DataFrame (cuDF or pandas) or cugraph.Graph
        ``src`` and ``dst``, the ends: integers of any range, strings or any other values that the frame can hold,
        both of one kind. ``weight``: a number; negative and zero weights count like any other. An edge may stand in
        one direction or both; self-loops are ignored; of parallel edges the lightest counts. A ``cugraph.Graph`` has
        to be undirected and weighted; its edges are those of ``view_edge_list()``.
    maximum : bool
        The maximum spanning tree instead.
    component : bool
        Add a column ``component`` (int32): which tree of the forest the edge is in. Trees are numbered from 0 in the
        order in which they first appear in the result.
    device : {"auto", "cpu", "cuda"}
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame or cugraph.Graph
        The rows of `edges` that are in the tree, as ``edges[mask][["src", "dst", "weight"]]`` would give them: in their
        order, with their types and index, so that ``edges.loc[tree.index]`` has the other columns. Of equal weights
        the earlier row is taken. For a ``cugraph.Graph``, a graph of these edges; nodes without an edge are not in it.

    Raises
    ------
    ValueError, TypeError
        Columns are missing or of the wrong type, or hold nulls or NaN; the graph is directed or not weighted.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.2 of the cuSLINK paper. Its weight alteration, which cannot keep zeros, is replaced by the order of
    (weight, row), in which no two edges are equal: the tree is unique, and the same on either device.
    """
    if is_collection(edges):
        given = {"maximum": maximum, "component": component, "device": device, "memory_limit": memory_limit}
        return distributed().on_one_worker(minimum_spanning_tree, edges, COLUMNS, "edges", **given)
    if component and is_cugraph(edges):
        raise ValueError("component=True adds a column, and a cugraph.Graph has none: pass its edges as a DataFrame")
    frame = as_frame(edges)
    on = resolve(device, frame)
    frame, output = OutputKind.of(frame, on)
    with run_scope(on, memory_limit):
        tree = _spanning_tree(frame, on, maximum=maximum, component=component)
    return as_cugraph(tree) if is_cugraph(edges) else output.frame(tree)


def _spanning_tree(frame: Any, device: Device, *, maximum: bool, component: bool) -> Any:
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
    return int(device.kernels("spanning_tree").connected_components(lists.ids))

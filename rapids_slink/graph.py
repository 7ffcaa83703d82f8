"""Single linkage of a weighted graph."""

from dataclasses import replace
from typing import Any

from rapids_slink.dendrogram import build_linkage, cut_labels, soonest
from rapids_slink.dendrogram.cutting import Cut, CutParameters
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.points.check import MAX_ROWS, as_integer
from rapids_slink.points.output import EDGE_TYPES, OutputKind, PreallocatedFrame, Rows, frame_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, device_of
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, check_memory
from rapids_slink.spanning_tree.graphs import (
    COLUMNS,
    NO_NODES,
    GivenGraph,
    Graph,
    edges_text,
    forest_bytes,
    merge_order,
    read_graph,
    spanning_forest,
)
from rapids_slink.spanning_tree.graphs.constrained import constrained_bytes, constrained_forest, marks_of_nodes

COMPLETE = ("keep", "error")


class GraphHierarchy(Hierarchy):
    """The single-linkage hierarchy of a graph; see `fit_graph`.

    Leaf i of the hierarchy is node i, or the i-th of `nodes_` if ids are names.

    Attributes
    ----------
    labels_ : Series of shape (n,), int32
        Its index holds the nodes' ids, except in Polars and Arrow, which have no index.
    nodes_ : Index, or a column of Polars or Arrow
        The nodes' ids, in the order of `labels_`.
    mst_ : DataFrame
        The spanning forest in the order in which its edges merge: ``src``, ``dst`` (int32 node numbers, or the names of
        the input) and ``weight`` (float64). Equal weights merge in the order of their rows.
    n_connected_components_ : int
        The number of connected components of the graph, which is the number of trees of the hierarchy. With
        `cannot_link` it is the number of trees that are left.
    component_ : Series of shape (n,), int32
        The connected component of each node, or its tree, 0..c-1 in order of first appearance, with the index of
        `labels_`.
    report_ : dict
        The seconds of each stage, and the number of edges that were refused.
    """

    n_connected_components_: int
    component_: Rows

    @property
    def _nodes(self) -> Any:
        return range(self.n_leaves_) if self._index is None else self._index


def fit_graph(
    source: GivenGraph, rule: Cut, n_nodes: Any, complete: str, cannot_link: Any, device: Device, report: Report
) -> GraphHierarchy:
    """Return the hierarchy of a graph on a device, as `api.fit_graph` describes it; within a run."""
    with report.stage("input", device):
        frame, output = OutputKind.of(source.frame, device)
        n_nodes = source.n_nodes if n_nodes is None else n_nodes
        graph = read_graph(frame, device, most_numbers=None if n_nodes is None else MAX_ROWS)
        n = _count_nodes(graph, n_nodes)
        edges = replace(graph.edges, n_nodes=n)
        ids = graph.ids if source.names is None else source.names
        marks = None if cannot_link is None else marks_of_nodes(cannot_link, ids, n)
        tree, m = TREE_BYTES[device.name] * n, edges.src.size
        later = max(forest_bytes(edges, device), tree) if marks is None else constrained_bytes(m, marks) + tree
        check_memory(device, MemoryEstimate(graph.nbytes + later), edges_text(edges), graph.nbytes)
    with report.stage("spanning_tree", device):
        if marks is None:
            in_forest, _ = spanning_forest(edges, device)
            rows = merge_order(edges, device.xp.flatnonzero(in_forest), device)
        else:
            rows, refused = constrained_forest(edges, marks, device)
            report.count("spanning_tree", refused=refused)
        columns = dict(zip(COLUMNS, (edges.src[rows], edges.dst[rows], edges.weight[rows]), strict=True))
        # The frame's conversion keeps subnormal weights; CuPy's would turn them into zeros.
        forest = frame_of(device, columns).astype(EDGE_TYPES)
    components = n - len(forest)
    if complete == "error" and components > 1:
        raise ValueError(f"the graph has {components} connected components; complete='keep' keeps a tree for each")
    if rule.n_clusters is None and rule.distance_threshold is None:
        rule = replace(rule, n_clusters=components)
    rule.check_rows(n, components)
    with report.stage("linkage", device):
        edges_in_order = PreallocatedFrame({name: forest[name].values for name in EDGE_TYPES}, device)
        merges = build_linkage(soonest(edges_in_order, n), n)
    flat = rule.choose(merges, n, device, report)
    component = cut_labels(merges, n, CutParameters(components)).columns["label"]
    if graph.ids is not None:
        named = frame[COLUMNS].iloc[device_of(frame).asarray(rows)].reset_index(drop=True)
        forest = named.astype({"weight": "float64"})
    result = GraphHierarchy()
    result._output, result._index = output, ids
    result.linkage_, result.mst_ = output.frame(merges.on(device).frame), output.frame(forest)
    if source.names is not None:
        ends = {end: ids.take(result.mst_[end].to_numpy()) for end in ("src", "dst")}
        result.mst_ = result.mst_.assign(**ends)
    kind = output.from_cuml_setting()
    result.labels_ = kind.labels(flat.rows["labels_"], ids)
    result.component_ = kind.labels(component, ids, name="component")
    result.n_leaves_, result.n_connected_components_ = n, components
    result.n_clusters_ = flat.n_clusters
    result.__dict__.update(flat.values)
    return result


def _count_nodes(graph: Graph, n_nodes: Any) -> int:
    n = graph.edges.n_nodes
    if not (n or n_nodes):
        raise ValueError(NO_NODES)
    if n_nodes is not None:
        if graph.ids is not None:
            raise ValueError("n_nodes is for nodes numbered from 0, and src and dst hold other ids: leave it out")
        if as_integer(n_nodes, "n_nodes") < n:
            raise ValueError(f"n_nodes must be at least {n}, one more than the largest node number, got {n_nodes}")
        n = int(n_nodes)
    if n > MAX_ROWS:
        raise ValueError(f"up to {MAX_ROWS} nodes are possible, got {n}")
    return n

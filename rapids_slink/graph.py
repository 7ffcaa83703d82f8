"""Single linkage of a weighted graph."""

from __future__ import annotations

from typing import Any

from rapids_slink.dendrogram import build_linkage, cut_labels
from rapids_slink.dendrogram.cutting import check_cut
from rapids_slink.device import resolve
from rapids_slink.hierarchy import Hierarchy, number_of_clusters
from rapids_slink.points import MOST_ROWS, Caller, as_integer, on_device, require_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree import sorted_forest

COMPLETE = ("keep", "error")


class GraphHierarchy(Hierarchy):
    """The single-linkage hierarchy of a graph; see `fit_graph`.

    Attributes
    ----------
    labels_ : Series of shape (n_leaves_,), int32
    n_connected_components_ : int
        Of the graph: the hierarchy is a forest of as many trees.
    component_ : Series of shape (n_leaves_,), int32
        The connected component of each node, 0..c-1 in order of first appearance.
    report_ : dict
        The seconds of each stage.
    """

    n_connected_components_: int
    component_: Any
    report_: Report


def fit_graph(
    edges: Any,
    n_clusters: int | None = None,
    *,
    n_nodes: int | None = None,
    distance_threshold: float | None = None,
    complete: str = "keep",
    device: str = "auto",
) -> GraphHierarchy:
    """Single-linkage clustering of a weighted undirected graph: any dissimilarity, given as edges.

    Parameters
    ----------
    edges : DataFrame (cuDF or pandas)
        ``src``, ``dst`` (node numbers from 0), ``weight`` (the dissimilarity, any number). One direction or both;
        self-loops are ignored; of parallel edges the lightest counts.
    n_clusters : int, optional
        From the number of connected components to the number of nodes.
    n_nodes : int, optional
        One more than the largest number in `edges`, unless there are nodes without an edge after it.
    distance_threshold : float, optional
        Merge below this only. With neither cut given, every connected component is a cluster.
    complete : {"keep", "error"}
        What to do with a graph that is not connected: keep a tree for each component, or refuse.
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    GraphHierarchy
        With `labels_`, `linkage_`, `mst_`, `cut` and the other attributes of `SingleLinkage`. A forest has fewer rows
        in `linkage_`: no merge of infinite height stands in for what is not connected.

    Raises
    ------
    ValueError, TypeError
        If the edges or a parameter are not valid, or the graph is not connected and ``complete="error"``.
    """
    if complete not in COMPLETE:
        raise ValueError(f"complete must be one of {', '.join(map(repr, COMPLETE))}, got {complete!r}")
    place = resolve(device, edges)
    report = Report(device=place.name)
    with place.working():
        with report.stage("input", place):
            edges, caller = Caller.of(edges, place)
            require_edges(edges, "edges")
            n = _count_nodes(edges, n_nodes)
            kept = on_device(edges[["src", "dst", "weight"]], place).reset_index(drop=True)
            kept = kept.astype({"src": "int32", "dst": "int32", "weight": "float64"})
        with report.stage("spanning_tree", place):
            forest, _ = sorted_forest(kept, kept["src"].values, kept["dst"].values, n, place)
        components = n - len(forest)
        if complete == "error" and components > 1:
            raise ValueError(f"the graph has {components} connected components; complete='keep' keeps a tree for each")
        if n_clusters is None and distance_threshold is None:
            n_clusters = components
        check_cut(n, components, n_clusters, distance_threshold)
        with report.stage("linkage", place):
            merges = build_linkage(forest, n, place)
        with report.stage("cut", place):
            labels = cut_labels(merges, n, n_clusters=n_clusters, distance_threshold=distance_threshold)
        component = cut_labels(merges, n, n_clusters=components)
    merges, forest, labels, component = (place.keep(part) for part in (merges, forest, labels, component))
    result = GraphHierarchy()
    result.linkage_, result.mst_ = caller.frame(merges), caller.frame(forest)
    result.labels_ = caller.series(labels, name="label")
    result.component_ = caller.series(component, name="component")
    result.n_leaves_, result.n_connected_components_ = n, components
    result.n_clusters_ = number_of_clusters(labels)
    result.report_ = report
    result._caller = caller
    return result


def _count_nodes(edges: Any, n_nodes: Any) -> int:
    low, n = 0, 1
    if len(edges):
        low = min(int(edges["src"].min()), int(edges["dst"].min()))
        n = max(int(edges["src"].max()), int(edges["dst"].max())) + 1
    if low < 0:
        raise ValueError(f"node numbers in src and dst must be from 0 on, found {low}")
    if n_nodes is not None:
        if as_integer(n_nodes, "n_nodes") < max(n, 1):
            raise ValueError(f"n_nodes must be at least {n}, one more than the largest node number, got {n_nodes}")
        n = int(n_nodes)
    if n > MOST_ROWS:
        raise ValueError(f"node numbers must be below {MOST_ROWS}, found {n - 1}")
    return n

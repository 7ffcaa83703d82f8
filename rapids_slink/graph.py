"""Single linkage of a weighted graph, also where some nodes may not be in one cluster.

    graph ──read_graph──▶ EdgeList ──spanning_forest──▶ merges ──▶ linkage, cut, labels
    sources, or pairs ──▶ Marks ──constrained_forest──▶

With `cannot_link` the forest is that of Kruskal's algorithm: edges are taken in merge order, in turn, on the host, and
what would merge two clusters with a mark in common is refused. A *mark* is something that no cluster may have twice. A
source of records is a mark of all its records, and each pair of nodes that may not meet is a mark of these two. Two
clusters may merge if they have no mark in common. What is refused once would be refused later as well, since clusters
only grow. The user's source for each node is a column, an array or a Series, and pairs of nodes are a frame or an array
of two columns.

The cluster with fewer marks hands them to the other one, so that a mark moves at most log₂ of their number times. Two
clusters are compared by looking up the marks of the one that has fewer. An edge costs as many steps as that, at most.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from rapids_slink.dendrogram import build_linkage, cut_labels, soonest
from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.dendrogram.cutting import Cut, CutParameters
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.points.check import MAX_ROWS, InputTypeError, as_integer
from rapids_slink.points.keys import GroupBy, keys_of
from rapids_slink.points.output import (
    EDGE_TYPES,
    FRAMES,
    OutputKind,
    PreallocatedFrame,
    Rows,
    as_known,
    column_names,
    frame_of,
    is_collection,
    library_of,
    on_host,
)
from rapids_slink.report import Report, counted
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Device, device_of, to_host
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, check_memory
from rapids_slink.spanning_tree.graphs import (
    COLUMNS,
    NO_NODES,
    EdgeList,
    GivenGraph,
    Graph,
    edges_text,
    forest_bytes,
    merge_order,
    read_graph,
    spanning_forest,
)

COMPLETE = ("keep", "error")
CANNOT_LINK = "cannot_link"
#: The bytes of an edge and of a mark of a node.
EDGE_BYTES, MARK_BYTES = 56, 128


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


# ---------------------------------------------------------------------------------------------------------- cannot_link


@dataclass(frozen=True)
class Marks:
    """Which nodes have which marks."""

    #: `node` and `mark`: (t,) int64 arrays of the host. No node has a mark twice
    node: np.ndarray
    mark: np.ndarray

    @classmethod
    def of_sources(cls, source: np.ndarray) -> Self:
        """Return the marks of nodes with one source each, (n,) integers, negative for none."""
        node = np.flatnonzero(source >= 0)
        return cls(node, source[node].astype(np.int64))

    @classmethod
    def of_pairs(cls, u: np.ndarray, v: np.ndarray) -> Self:
        """Return the marks of pairs of nodes, which differ."""
        pair = np.arange(u.size)
        return cls(np.concatenate((u, v)).astype(np.int64), np.concatenate((pair, pair)))


def marks_of_nodes(cannot_link: Any, ids: Any, n: int) -> Marks:
    """Return the marks of the n nodes of a graph by the parameter of `fit_graph`.

    `ids` are the nodes' ids; None if these are their numbers. Ids that are no node's are ignored.
    """
    cannot_link = _known(cannot_link)
    index = pd.RangeIndex(n) if ids is None else pd.Index(on_host(ids))
    pairs = _pairs_of(cannot_link)
    if pairs is not None:
        u, v = (index.get_indexer(pd.Index(end)) for end in pairs)
        is_known = (u >= 0) & (v >= 0)
        return _marks_of_pairs(u[is_known], v[is_known], index)
    is_by_id = isinstance(cannot_link, dict) or library_of(cannot_link) in FRAMES
    sources = _series_of(cannot_link)
    if is_by_id:
        if not sources.index.is_unique:
            twice = sources.index[sources.index.duplicated()].tolist()[0]
            raise ValueError(f"{CANNOT_LINK} has several sources of node {twice!r}: its index must hold each id once")
        return Marks.of_sources(_codes_of_sources(sources.reindex(index)))
    if ids is not None:
        raise ValueError(
            f"{CANNOT_LINK} must tell whose sources it holds: pass a Series whose index holds the nodes' ids"
        )
    if len(sources) != n:
        raise ValueError(
            f"{CANNOT_LINK} must hold one source for each of {counted(n, 'node')}, got {len(sources)}: pass n_nodes, "
            f"or a Series whose index holds the nodes' ids; or pairs of nodes, in two columns"
        )
    return Marks.of_sources(_codes_of_sources(sources))


def read_rows(X: Any, cannot_link: Any, device: Device) -> tuple[Any, tuple[Any, ...]]:
    """Return `X` without the column that the parameter of `fit` names, and the pairs of rows or the rows' sources."""
    cannot_link = _known(cannot_link)
    pairs = _pairs_of(cannot_link)
    if pairs is not None:
        return X, pairs
    X, keys, _ = keys_of(X, GroupBy(cannot_link, dropna=False, name=CANNOT_LINK), device)
    if keys.shape[1] > 1:
        raise ValueError(f"{CANNOT_LINK} must name one column of sources, got {keys.shape[1]}")
    return X, (_codes_of_sources(on_host(keys.iloc[:, 0])),)


def marks_of_rows(marked: tuple[Any, ...], n: int) -> Marks:
    """Return the marks of n rows by the second result of `read_rows`."""
    if len(marked) == 1:
        (source,) = marked
        if source.size != n:
            rows = counted(n, "row")
            raise ValueError(
                f"{CANNOT_LINK} must hold one source for each of {rows}, got {source.size}; or pairs of rows, in two "
                "columns"
            )
        return Marks.of_sources(source)
    ends = [np.asarray(end) for end in marked]
    for end in ends:
        if end.dtype.kind not in "iu" and end.size:
            raise InputTypeError(
                f"pairs in {CANNOT_LINK} must be of row numbers, which are integers, got dtype {end.dtype}"
            )
        bad = end[(end < 0) | (end >= n)] if end.size else end
        if bad.size:
            raise ValueError(f"pairs in {CANNOT_LINK} must be of row numbers from 0 to {n - 1}, got {bad[0]}")
    u, v = (end.astype(np.int64) for end in ends)
    return _marks_of_pairs(u, v, pd.RangeIndex(n))


def _known(cannot_link: Any) -> Any:
    if is_collection(cannot_link):
        raise InputTypeError(f"{CANNOT_LINK} is a Dask collection: compute it")
    return as_known(cannot_link)


def _pairs_of(cannot_link: Any) -> tuple[Any, Any] | None:
    """Return the two columns of pairs, on the host; None for what has one dimension."""
    names = column_names(cannot_link)
    if names is None and isinstance(cannot_link, list | tuple):
        is_nested = len(cannot_link) == 0 or all(isinstance(pair, list | tuple | np.ndarray) for pair in cannot_link)
        if not is_nested:
            return None
        frame = pd.DataFrame(cannot_link, columns=None if len(cannot_link) else ["src", "dst"])
    elif names is not None:
        frame = on_host(cannot_link)
    elif getattr(cannot_link, "ndim", 1) == 2:
        frame = pd.DataFrame(to_host(cannot_link))
    else:
        return None
    if names is not None and {"src", "dst"} <= set(names):
        frame = frame[["src", "dst"]]
    if frame.shape[1] == 1:
        return None
    if frame.shape[1] != 2:
        raise ValueError(
            f"{CANNOT_LINK} must hold pairs in two columns, or sources in one, got {frame.shape[1]} columns"
        )
    if frame.isna().to_numpy().any():
        raise ValueError(f"{CANNOT_LINK} holds pairs with nulls or NaN: drop them")
    return frame.iloc[:, 0], frame.iloc[:, 1]


def _marks_of_pairs(u: np.ndarray, v: np.ndarray, index: pd.Index) -> Marks:
    if (u == v).any():
        raise ValueError(f"{CANNOT_LINK} holds the pair of {index[u[np.argmax(u == v)]]!r} and itself")
    return Marks.of_pairs(u, v)


def _series_of(sources: Any) -> pd.Series:
    """Return one source for each node as a Series of pandas."""
    if isinstance(sources, str) or not hasattr(sources, "__len__"):
        raise InputTypeError(f"{CANNOT_LINK} must hold a source for each node, or pairs of nodes, got {sources!r}")
    values = on_host(sources)
    if column_names(values) is not None:
        values = values.iloc[:, 0]
    if library_of(values):
        return values
    return pd.Series(values if isinstance(values, dict | list | tuple) else np.asarray(values))


def _codes_of_sources(sources: pd.Series) -> np.ndarray:
    """Return an integer for each source, the same for equal ones, and -1 for what is missing."""
    try:
        return np.asarray(pd.factorize(sources)[0])
    except TypeError as error:
        raise InputTypeError(f"sources in {CANNOT_LINK} must be hashable: {error}") from error


def constrained_bytes(edges: int, marks: Marks) -> int:
    """Return the bytes of `constrained_forest` without those of nodes."""
    return EDGE_BYTES * edges + MARK_BYTES * int(marks.node.size)


def constrained_forest(edges: EdgeList, marks: Marks, device: Device) -> tuple[Any, int]:
    """Return the rows of the edges that merge clusters, in merge order, on the device, and how many edges were refused.

    Edges are taken by (weight, row). An edge within a cluster is not refused, and a refused one is counted each time
    that it is in the list.
    """
    rows = merge_order(edges, device.xp.arange(edges.src.size), device)
    src, dst = (np.ascontiguousarray(to_host(end[rows]), np.int32) for end in (edges.src, edges.dst))
    merging, refused = merge_unless_marked(src, dst, edges.n_nodes, marks)
    return rows[device.asarray(merging)], refused


def merge_unless_marked(src: np.ndarray, dst: np.ndarray, n: int, marks: Marks) -> tuple[np.ndarray, int]:
    """Return the positions of the edges among n nodes that merge clusters, in this order, and how many are refused."""
    size = marks.node.size
    index_type = np.int32 if size < 2**31 else np.int64
    first, last, following = (np.full(length, -1, index_type) for length in (n, n, size))
    parent, count = np.arange(n, dtype=np.int32), np.zeros(n, index_type)
    merging = np.empty(min(max(n - 1, 0), src.size), np.int64)
    merged, refused = _merge(src, dst, marks.node, marks.mark, first, last, count, following, parent, merging)
    return merging[:merged], int(refused)


@njit(nogil=True, cache=True)
def _merge(src, dst, node, mark, first, last, count, following, parent, merging):
    """Merge the clusters of the ends of the edges in turn; return how many did, and how many were refused.

    The marks of a cluster are a list of positions in `mark`, from `first` to `last`. Each mark and its cluster are also
    in a set, as one number.
    """
    n = np.int64(parent.size) | 1  # odd: numbers of one cluster differ in their low bits, by which the set places them
    held = {np.int64(-1)}
    for entry in range(node.size):
        owner = node[entry]
        following[entry] = first[owner]
        if first[owner] < 0:
            last[owner] = entry
        first[owner] = entry
        count[owner] += 1
        held.add(mark[entry] * n + owner)
    merged = refused = 0
    for i in range(src.size):
        fewer, more = find_root(parent, src[i]), find_root(parent, dst[i])
        if fewer == more:
            continue
        if count[fewer] > count[more]:
            fewer, more = more, fewer
        entry = first[fewer]
        while entry >= 0 and mark[entry] * n + more not in held:
            entry = following[entry]
        if entry >= 0:
            refused += 1
            continue
        entry = first[fewer]
        while entry >= 0:
            held.discard(mark[entry] * n + fewer)
            held.add(mark[entry] * n + more)
            entry = following[entry]
        if count[fewer]:
            following[last[fewer]] = first[more]
            first[more] = first[fewer]
            count[more] += count[fewer]
        parent[fewer] = more
        merging[merged] = i
        merged += 1
    return merged, refused

"""Minimum spanning forests of graphs: of the user's, over nodes of any ids, and of given distances.

    frame, sparse matrix, graph ──given_graph──▶ frame ──read_graph──▶ EdgeList, nodes' ids ──tree_of_edges──▶ frame
                                                                       EdgeList of a matrix ──forest_of_edges──▶ tree

**The forest of a list of edges** is found by Borůvka's algorithm on a worklist that shrinks.

    columns ──collect──▶ worklist ──connect──contract──▶ worklist ──▶ … ──▶ nothing left

- Edges are ordered by (weight, row). All differ, so the forest is unique, and every device returns it. A weight is
  compared as its *key*, the unsigned integer of its width that has its order; -0.0 equals 0.0. Inverted keys give the
  maximum spanning forest.
- Every edge of the worklist names the two components that it connects by their roots, and is offered to both.
- Connect: each component takes its best edge and points at the component across. If two chose the same edge, the
  smaller stays a root. Then every pointer is moved on to its root. A component without an edge is complete and not
  visited again.
- Contract: the ends of the edges become roots again, and edges within one component are dropped.
- In a dense graph nearly all edges lie within a component once the lightest are taken. So the rounds run first on
    about `LIGHT_EDGES` lightest edges per node, found by a sample, and then on the other edges that still connect two
  components. The result does not depend on where the edges are divided.

**Given distances.** Some of them may be missing: those of a graph, or of a matrix with infinities. A pair without a
distance is no edge. A core distance is the `min_samples`-th least of a row's given distances, infinite if it has
fewer. Pairs of infinite mutual reachability are left out.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rapids_slink.ordering import ascending_bits, edge_codes, sort_in_place, stable_order
from rapids_slink.points import is_sparse
from rapids_slink.points.check import InputTypeError, column_values, require_columns
from rapids_slink.points.output import (
    EDGE_TYPES,
    TABLES,
    OutputKind,
    PreallocatedFrame,
    as_known,
    column_names,
    library_of,
    take_rows,
)
from rapids_slink.report import counted
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import (
    CPU,
    Array,
    Device,
    all_true,
    device_of,
    half,
    is_on_gpu,
    on_current_gpu,
    to_host,
)
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, copy_out
from rapids_slink.spanning_tree import Tree

LIGHT_EDGES = 1.5  # edges per node in the part that goes first

#: Parts of the edges.
ALL, LIGHTEST, REST = (constant("spanning_tree/graphs/edges.cu", name) for name in ("ALL", "LIGHTEST", "REST"))


@dataclass(frozen=True)
class EdgeList:
    """A weighted graph over nodes numbered from 0."""

    #: `src` and `dst`: int32 or int64 arrays of shape (m,), both of one type, on the device, contiguous
    src: Array
    dst: Array
    weight: Array  # array of shape (m,), of four or eight bytes, integers or floats, no NaN
    n_nodes: int  # more than every number in `src` and `dst`, at most 2³¹ - 1
    maximum: bool = False  # whether heavier edges come first; equal ones keep the order of their rows in both cases


#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

DENSE = 4  # from this many edges per node on, the lightest go first
SAMPLE = 4096  # weights that decide which edges these are


def forest_bytes(edges: EdgeList, device: Device) -> int:
    """Return the bytes of `spanning_forest` and of the copy of its edges."""
    on_device = kernels(device)
    m, n = edges.src.size, edges.n_nodes
    first = int(on_device.SPARE * LIGHT_EDGES * n) if _is_dense(m, n, on_device.LARGE) else m
    return int(on_device.workspace(min(m, first), m, n, edges.weight.dtype.itemsize)) + 24 * n


def edges_text(edges: EdgeList) -> str:
    """Return the size of a graph in words."""
    return f"{counted(edges.src.size, 'edge')} of {counted(edges.n_nodes, 'node')}"


def spanning_forest(edges: EdgeList, device: Device) -> tuple[Any, Any]:
    """Return which edges are in the minimum spanning forest, (m,) bool, and pointers from nodes to their roots.

    A node's pointers lead to the root of its component. They are (n,) int32, and are for `components`.
    """
    on_device = kernels(device)
    return on_device.spanning_forest(edges, _heaviest_of_lightest(edges, on_device.LARGE, device))


def components(nodes: Any, parent: Array, device: Device) -> Any:
    """Return the components of these nodes, int32, numbered 0..c-1 in order of first appearance."""
    xp = device.xp
    flatten(parent)
    root = parent[nodes]
    position, first = xp.arange(root.size, dtype="int32"), xp.full(parent.size, root.size, "int32")
    xp.minimum.at(first, root, position)
    first = first[root]
    return (xp.cumsum(first == position) - 1).astype("int32")[first]


def flatten(parent: Array) -> None:
    """Point every node at its root."""
    while not all_true((further := parent[parent]) == parent):
        parent[...] = further


def merge_order(edges: EdgeList, rows: Array, device: Device) -> Any:
    """Return the rows in the order of their edges; `rows` must ascend."""
    return rows[stable_order(_keys_of_rows(edges, rows, device.xp), device.xp)]


def _keys_of_rows(edges: EdgeList, rows: Array, xp: Any) -> Any:
    """Return the sort keys of the weights of these edges; see above."""
    keys = ascending_bits(edges.weight[rows], xp)
    return keys ^ np.uint64(2 ** (8 * edges.weight.dtype.itemsize) - 1) if edges.maximum else keys


def _heaviest_of_lightest(edges: EdgeList, smallest: int, device: Device) -> int | None:
    """Return the row of the heaviest of the lightest edges, about `LIGHT_EDGES` per node, by a sample.

    None if all edges are processed at once, as in graphs of fewer than `smallest` edges.
    """
    m, n = edges.src.size, edges.n_nodes
    if not _is_dense(m, n, smallest):
        return None
    rows = np.random.default_rng(0).integers(0, m, SAMPLE)
    keys = to_host(_keys_of_rows(edges, device.asarray(rows), device.xp))
    position = min(int(SAMPLE * LIGHT_EDGES * n / m), SAMPLE - 1)
    last = np.partition(keys, position)[position]
    return int(np.sort(rows[keys == last])[position - np.count_nonzero(keys < last)])  # the earlier of equal ones first


def _is_dense(m: int, n: int, smallest: int) -> bool:
    return m >= smallest and m >= DENSE * n


# ---------------------------------------------------------------------------------------------------- the user's graphs

COLUMNS = ["src", "dst", "weight"]
MAX_NODES = 2**31 - 1  # int32
NO_NODES = "the graph has no nodes: there are no edges, and n_nodes is not given"
#: Bytes per edge that reading takes: both ends and the weight, and for ids that are not numbers a table of them.
NUMBERS, NAMES = 24, 96


@dataclass(frozen=True)
class Graph:
    """A weighted graph on a device."""

    edges: EdgeList  # one row for each of the frame's
    ids: Array = None  # the nodes' ids, as they first appear in ``src``, then ``dst``; None if ids are node numbers

    @property
    def nbytes(self) -> int:
        """Return the bytes of its arrays, which may be the frame's: an upper bound."""
        return int(self.edges.src.nbytes + self.edges.dst.nbytes + self.edges.weight.nbytes)


@dataclass(frozen=True)
class GivenGraph:
    """A user's graph."""

    frame: Any  # DataFrame of ``src``, ``dst``, ``weight``; a tree of the graph is some of its rows
    n_nodes: int | None = None  # the number of nodes, if the graph tells; then ``src`` and ``dst`` hold node numbers
    names: Any = None  # the nodes' names, if they are not their numbers
    as_graph: Callable[[Any], Any] | None = None  # the graph of the caller's type with these rows of the frame


def is_graph(X: Any) -> bool:
    """Return whether this is a graph by its type, or a frame of edges."""
    is_frame = bool(library_of(X)) and {*COLUMNS} <= {*(column_names(X) or ())}
    return is_frame or is_sparse(X) or _is_of("cugraph", X) or _is_of("networkx", X)


def given_graph(graph: Any) -> GivenGraph:
    """Return a sparse matrix or a graph of NetworkX or cuGraph as a frame of edges; anything else as it is."""
    graph = as_known(on_current_gpu(graph))
    if _is_of("cugraph", graph):
        return GivenGraph(_cugraph_edges(graph), as_graph=as_cugraph)
    if _is_of("networkx", graph):
        return _of_networkx(graph)
    if library_of(graph) in TABLES:
        return GivenGraph(graph, as_graph=partial(_rows_of_table, graph))
    return _of_sparse(graph) if is_sparse(graph) else GivenGraph(graph)


def _is_of(package: str, graph: Any) -> bool:
    """Return whether this is a ``Graph`` of a package, which is not imported."""
    return any(base.__module__.split(".")[0] == package and base.__name__ == "Graph" for base in type(graph).__mro__)


def _rows_of_table(table: Any, tree: Any) -> Any:
    """Return the rows of a Polars or Arrow table that are in a tree, with any further columns of the tree."""
    rows, library = take_rows(table.select(COLUMNS), tree.index.to_numpy()), library_of(table)
    more = {name: OutputKind(True, False, library).series(tree[name], name=name) for name in tree.columns.drop(COLUMNS)}
    if library == "polars":
        return rows.with_columns(**more)
    return sys.modules[library].table(dict(zip(COLUMNS, rows.columns, strict=True)) | more)


def _of_sparse(matrix: Any) -> GivenGraph:
    """Return the stored entries of a square sparse matrix, zeros among them, as edges."""
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a sparse matrix of edges must be square, got shape {tuple(matrix.shape)}")
    entries = matrix.tocsr().tocoo()  # SciPy adds up entries at the same position
    frame = device_of(entries.data).frames.DataFrame({"src": entries.row, "dst": entries.col, "weight": entries.data})

    def as_matrix(tree: Any) -> Any:
        data, *ends = (tree[name].values for name in ("weight", "src", "dst"))
        return type(entries)((data, tuple(ends)), shape=matrix.shape).asformat(matrix.format)

    return GivenGraph(frame, int(matrix.shape[0]), None, as_matrix)


def _of_networkx(graph: Any) -> GivenGraph:
    """Return the edges of an undirected graph of NetworkX; an edge without a weight has weight 1, as in NetworkX."""
    if graph.is_directed():
        raise ValueError("edges must be an undirected graph of NetworkX: G.to_undirected()")
    frames, names = CPU.frames, list(graph)
    number = {name: i for i, name in enumerate(names)}
    edges = list(graph.edges(data=True, **({"keys": True} if graph.is_multigraph() else {})))
    frame = frames.DataFrame({
        "src": np.fromiter((number[edge[0]] for edge in edges), np.int64, len(edges)),
        "dst": np.fromiter((number[edge[1]] for edge in edges), np.int64, len(edges)),
        "weight": np.array([edge[-1].get("weight", 1) for edge in edges], dtype=None if edges else np.float64),
    })  # fmt: skip

    def as_networkx(tree: Any) -> Any:
        result = graph.__class__()
        result.add_nodes_from(graph.nodes(data=True))
        result.add_edges_from(edges[row] for row in tree.index)
        return result

    labels = None if names == list(range(len(names))) else frames.Index(names, tupleize_cols=False)
    return GivenGraph(frame, len(names), labels, as_networkx)


def _cugraph_edges(graph: Any) -> Any:
    """Return the edges of a ``cugraph.Graph`` as a frame of ``src``, ``dst``, ``weight``."""
    if graph.is_directed():
        raise ValueError("edges must be an undirected cugraph.Graph, or a DataFrame")
    if not graph.is_weighted():
        raise ValueError("edges must be a weighted cugraph.Graph: pass weight= to from_cudf_edgelist")
    edges = graph.view_edge_list()
    ends = []
    for names, usual in ((graph.source_columns, "src"), (graph.destination_columns, "dst")):
        names = names if isinstance(names, list) else [names]
        if len(names) > 1:
            raise ValueError(f"edges must be a cugraph.Graph whose vertices have one column each, got {names}")
        ends.append(names[0] if names[0] in edges.columns else usual)
    # The weights keep the caller's name or get another, depending on how the graph was made.
    (weight,) = (column for column in edges.columns if column not in ends)
    edges = edges[[*ends, weight]]
    edges.columns = COLUMNS
    return edges


def as_cugraph(tree: Any) -> Any:
    """Return a cuDF frame of edges as a ``cugraph.Graph``."""
    graph = sys.modules["cugraph"].Graph()
    graph.from_cudf_edgelist(tree, source="src", destination="dst", edge_attr="weight")
    return graph


def read_graph(frame: Any, device: Device, *, maximum: bool = False, most_numbers: int | None = None) -> Graph:
    """Return the checked edges of a frame on `device`.

    Integer ids are node numbers if none is negative and all are below `most_numbers`, by default a small multiple of
    the number of edges. Other ids are names, which are numbered.
    """
    require_columns(frame, tuple(COLUMNS), "edges")
    columns = {name: frame[name] for name in COLUMNS}  # taken once, because that takes longer than a round of Borůvka
    _check_columns(columns)
    m, ids, high = len(frame), None, -1
    src, dst = columns["src"], columns["dst"]
    numbers = src.dtype.kind in "iu" and dst.dtype.kind in "iu"
    check_memory(device, MemoryEstimate(m * (NUMBERS if numbers else NAMES)), counted(m, "edge"))
    weight = _array(columns["weight"], device)
    if weight.dtype.itemsize < 4:  # the kernels take weights of four and of eight bytes
        weight = weight.astype({"i": "int32", "u": "uint32", "f": "float32"}[weight.dtype.kind])
    if numbers:
        src, dst = _signed(_array(src, device), _array(dst, device))
        high = max(int(src.max()), int(dst.max())) if m else -1
        numbers = high < (min(4 * m + 1024, MAX_NODES) if most_numbers is None else most_numbers)
        numbers = numbers and (not m or min(int(src.min()), int(dst.min())) >= 0)
    if not numbers:
        codes, ids = _factorize(columns["src"], columns["dst"])
        codes = device.asarray(codes, "int64")
        src, dst = codes[:m], codes[m:]
        high = len(ids) - 1
        if high >= MAX_NODES:
            raise ValueError(f"the edges have {high + 1} nodes; up to {MAX_NODES} are possible")
    if weight.dtype.kind == "f" and not all_true(~device.xp.isnan(weight)):
        raise ValueError("column 'weight' of the edges holds nulls or NaN")
    return Graph(EdgeList(src, dst, weight, high + 1, maximum), ids if m else None)


def tree_of_edges(frame: Any, device: Device, *, maximum: bool, component: bool) -> Any:
    """Return what `api.minimum_spanning_tree` returns for a frame, on a device, within a run."""
    graph = read_graph(frame, device, maximum=maximum)
    needed = MemoryEstimate(graph.nbytes + forest_bytes(graph.edges, device))
    check_memory(device, needed, edges_text(graph.edges), graph.nbytes)
    in_forest, parent = spanning_forest(graph.edges, device)
    columns = frame if list(frame.columns) == COLUMNS else frame[COLUMNS]
    tree = columns[device_of(frame).asarray(in_forest)]
    if component:
        number = components(graph.edges.src[in_forest], parent, device)
        tree = tree.assign(component=device_of(frame).asarray(copy_out(device, number)))
    return tree


def _check_columns(columns: dict[str, Any]) -> None:
    """Raise unless the weights are numbers, the ids are of one kind, and nothing is missing. NaN is checked later."""
    dtype = columns["weight"].dtype
    if dtype.kind not in "iuf" or getattr(dtype, "itemsize", 8) > 8:
        raise InputTypeError(f"column 'weight' of the edges must hold numbers, got dtype {dtype}")
    src, dst = (columns[end].dtype for end in ("src", "dst"))
    if _kind(src) != _kind(dst):
        raise InputTypeError(f"columns 'src' and 'dst' of the edges must hold ids of one kind, got {src} and {dst}")
    for name, column in columns.items():
        if isinstance(column.dtype, np.dtype) and not column.dtype.isnative:  # pandas takes no rows of such a column
            raise InputTypeError(f"column {name!r} of the edges has dtype {column.dtype}: its bytes are swapped")
        if column.dtype.kind not in ("iuf" if name == "weight" else "iu"):
            gaps = column.isna().any()
        elif is_on_gpu(column):
            gaps = column.null_count > 0
        else:
            gaps = not isinstance(column.dtype, np.dtype) and column.isna().any()
        if gaps:
            raise ValueError(f"column {name!r} of the edges holds nulls or NaN")


def _kind(dtype: Any) -> str:
    """Return NumPy's letter for a type of ids: one for all integers, and one for all strings and objects."""
    if hasattr(dtype, "categories"):
        dtype = dtype.categories.dtype
    return "i" if dtype.kind == "u" else "O" if dtype.kind in "OSTU" else dtype.kind


def _array(column: Array, device: Device) -> Any:
    """Return the values of a column of numbers without gaps, contiguous on `device`."""
    return device.xp.ascontiguousarray(column_values(column, device))


def _signed(src: Array, dst: Array) -> tuple[Any, Any]:
    """Return both ends as int32 or int64. An id beyond both becomes negative, so ids count as names."""
    narrow = all(end.dtype.itemsize < 4 or end.dtype == np.int32 for end in (src, dst))
    ends = (end.view("int64") if end.dtype == np.uint64 else end for end in (src, dst))
    src, dst = (end.astype("int32" if narrow else "int64", copy=False) for end in ends)
    return src, dst


def _factorize(src: Array, dst: Array) -> tuple[Any, Any]:
    """Return codes of the ids, of ``src`` and then ``dst``, in order of first appearance, and the ids of the codes."""
    if src.dtype != dst.dtype:
        src, dst = (c.astype(c.dtype.categories.dtype) if hasattr(c.dtype, "categories") else c for c in (src, dst))
    if src.dtype != dst.dtype and src.dtype.kind in "iu":  # int64 and uint64 would meet in float64
        low, high = (min(int(src.min()), int(dst.min())), max(int(src.max()), int(dst.max())))
        if low < 0 and high >= 2**63:
            raise ValueError(f"src and dst hold ids from {low} to {high}: they must fit into int64, or into uint64")
        src, dst = (end.astype("int64" if high < 2**63 else "uint64") for end in (src, dst))
    try:
        return device_of(src).frames.concat([src, dst], ignore_index=True).factorize()
    except TypeError as error:
        raise InputTypeError(f"ids in src and dst must be hashable: {error}") from error


# ------------------------------------------------------------------------------------------------------ given distances

#: Bytes per given distance at the peak, without and with core distances, which read it from both ends.
FOREST_BYTES, CORE_BYTES = 96, 224


def estimate_given(edges: int, nodes: int, min_samples: int) -> MemoryEstimate:
    """Return the bytes of `forest_of_edges`."""
    return MemoryEstimate(edges * (CORE_BYTES if min_samples > 1 else FOREST_BYTES) + 64 * nodes)


def edges_of_matrix(matrix: Array, device: Device) -> EdgeList:
    """Return the finite entries above the diagonal as edges."""
    xp = device.xp
    src, dst = (end.astype("int32") for end in xp.nonzero(xp.triu(xp.isfinite(matrix), 1)))
    return EdgeList(src, dst, matrix[src, dst], len(matrix))


def forest_of_edges(edges: EdgeList, min_samples: int, device: Device, row_weight: Array = None) -> tuple[Tree, Array]:
    """Return the minimum spanning forest in the total order with its number of trees, and the core distances.

    The lightest of parallel edges counts; loops and infinite weights do not. If `min_samples` is above 1, the weights
    become mutual reachability; else the core distances are None. `row_weight`, (n,) float64, is how many equal rows
    each row counts for.
    """
    xp, n = device.xp, edges.n_nodes
    connects = (edges.src != edges.dst) & (edges.weight < xp.inf)
    weight = edges.weight[connects].astype("float64")
    code = edge_codes(edges.src[connects], edges.dst[connects], xp)
    order = stable_order(weight, xp)
    order = order[stable_order(code[order], xp)]
    code, weight = code[order], weight[order]
    first = xp.flatnonzero(xp.concatenate([xp.ones(min(1, code.size), bool), code[1:] != code[:-1]]))
    code, weight = code[first], weight[first]
    src, dst = (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32")
    core = None
    if min_samples > 1:
        row_weight = xp.ones(n) if row_weight is None else row_weight
        core = core_distances_of((src, dst), weight, row_weight, min_samples, xp)
        weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
        src, dst, weight = (part[weight < xp.inf] for part in (src, dst, weight))
    in_forest, _ = spanning_forest(EdgeList(src, dst, weight, n), device)
    rows = xp.flatnonzero(in_forest)  # in the order of (weight, row), which is the total order
    forest = PreallocatedFrame.empty(device, rows.size, EDGE_TYPES)
    for column, values in zip(forest.columns.values(), (src, dst, weight), strict=True):
        column[...] = values[rows]
    sort_in_place(forest.columns, xp)
    return (forest, n - rows.size), core


def core_distances_of(ends: tuple[Array, Array], weight: Array, row_weight: Array, min_samples: Any, xp: Any) -> Array:
    """Return the least weight within which each row has `min_samples` others, (n,) float64, infinite if it has fewer.

    `min_samples` is a number, or an (n,) array of a number for each row.
    """
    n, node, other = row_weight.size, xp.concatenate(ends), xp.concatenate(ends[::-1])
    both = xp.concatenate([weight, weight])
    order = stable_order(both, xp)
    order = order[stable_order(node[order], xp)]
    node, count = node[order], xp.cumsum(row_weight[other[order]])
    start = xp.searchsorted(node, xp.arange(n))
    before = xp.where(start > 0, count[xp.maximum(start, 1) - 1], 0.0) if count.size else xp.zeros(n)
    copies = row_weight - 1  # they are at no distance
    at = xp.searchsorted(count, before + xp.maximum(min_samples - copies, 0) * (1 - 2.0**-40))
    core, has = xp.full(n, xp.inf), xp.flatnonzero(at < xp.concatenate([start[1:], xp.full(1, count.size)]))
    core[has] = both[order[at[has]]]
    return xp.where(copies >= min_samples, 0.0, core)

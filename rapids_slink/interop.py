"""A hierarchy in the terms of others: SciPy's linkage matrix, NetworkX's and cuGraph's graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.device import CPU, resolve, to_host
from rapids_slink.points import Caller, on_device, on_host, require_columns


def to_scipy(linkage: Any) -> np.ndarray:
    """A linkage frame as the matrix that ``scipy.cluster.hierarchy`` takes.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of one tree over n leaves.

    Returns
    -------
    ndarray of shape (n - 1, 4), float64
        SciPy's Z.

    Raises
    ------
    InputTypeError
        `linkage` is not a DataFrame.
    ValueError
        It lacks a column, or is the linkage of a forest, which SciPy's matrix cannot express.
    """
    linkage, _ = Caller.of(linkage, CPU)
    require_columns(linkage, COLUMNS, "linkage")
    Z = np.empty((len(linkage), 4))
    for i, column in enumerate(COLUMNS):
        Z[:, i] = to_host(linkage[column].values)
    n = len(Z) + 1
    if len(Z) and (Z[-1, 3] != n or (Z[:, :2].max(axis=1) >= n + np.arange(len(Z))).any()):
        raise ValueError(f"the {n - 1} merges do not join {n} leaves into one tree: SciPy has no linkage of a forest")
    return Z


def to_networkx(tree: Any, nodes: Any) -> Any:
    """A tree or forest as a graph of NetworkX.

    Parameters
    ----------
    tree : DataFrame (cuDF or pandas)
        Columns ``src``, ``dst`` (of `nodes`) and ``weight``.
    nodes : Index or range
        All nodes, those without an edge included.

    Returns
    -------
    networkx.Graph
        Its nodes come in the order of `nodes`, its edges, which carry their ``weight``, in that of `tree`. All numbers
        are Python's own.

    Raises
    ------
    ImportError
        NetworkX is not installed.
    """
    try:
        import networkx
    except ImportError as error:
        raise ImportError("to_networkx needs NetworkX: pip install 'rapids_slink[networkx]'") from error
    tree = on_host(tree)
    src, dst, weight = (tree[column].tolist() for column in ("src", "dst", "weight"))
    graph = networkx.Graph()
    graph.add_nodes_from(nodes if isinstance(nodes, range) else on_host(nodes).tolist())
    graph.add_weighted_edges_from(zip(src, dst, weight, strict=True))
    return graph


def to_cugraph(tree: Any) -> Any:
    """A tree or forest as a graph of cuGraph.

    Parameters
    ----------
    tree : DataFrame (cuDF or pandas)
        Columns ``src``, ``dst`` and ``weight``, at least one row.

    Returns
    -------
    cugraph.Graph
        Undirected and weighted, its vertices those of `tree`. cuGraph keeps no vertex without an edge.

    Raises
    ------
    ImportError
        cuGraph is not installed.
    DeviceUnavailableError
        There is no usable GPU.
    ValueError
        `tree` has no edges, and cuGraph no graph without.
    """
    try:
        import cugraph
    except ImportError as error:
        raise ImportError("to_cugraph needs cuGraph: pip install 'rapids_slink[graph-cu13]'") from error
    place = resolve("cuda")
    tree, _ = Caller.of(tree, place)
    if not len(tree):
        raise ValueError("the tree has no edges, and cuGraph has no graph without")
    graph = cugraph.Graph()
    graph.from_cudf_edgelist(on_device(tree, place), source="src", destination="dst", edge_attr="weight")
    return graph

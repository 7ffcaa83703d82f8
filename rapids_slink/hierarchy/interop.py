"""A hierarchy for other packages: SciPy's linkage matrix, graphs of NetworkX and cuGraph, hdbscan's clusters."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.points.columns import as_integer, require_columns
from rapids_slink.points.output import OutputKind, on_device, on_host
from rapids_slink.runtime.device import CPU, resolve, to_host


def to_scipy(linkage: Any) -> np.ndarray:
    """A linkage frame as SciPy's linkage matrix.

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
    linkage, _ = OutputKind.of(linkage, CPU)
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
        All nodes, also those without an edge.

    Returns
    -------
    networkx.Graph
        Its nodes are in the order of `nodes`, its edges, with their ``weight``, in the order of `tree`. All numbers are
        Python's own.

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
        Undirected and weighted, over the vertices of `tree`. cuGraph has no vertices without an edge.

    Raises
    ------
    ImportError
        cuGraph is not installed.
    DeviceUnavailableError
        There is no usable GPU.
    ValueError
        `tree` has no edges, and cuGraph has no graph without edges.
    """
    try:
        import cugraph
    except ImportError as error:
        raise ImportError("to_cugraph needs cuGraph: pip install 'rapids_slink[graph-cu13]'") from error
    device = resolve("cuda")
    tree, _ = OutputKind.of(tree, device)
    if not len(tree):
        raise ValueError("the tree has no edges, and cuGraph has no graph without edges")
    graph = cugraph.Graph()
    graph.from_cudf_edgelist(on_device(tree, device), source="src", destination="dst", edge_attr="weight")
    return graph


def to_hdbscan(Z: np.ndarray, min_cluster_size: int, min_samples: int, metric: str, options: dict[str, Any]) -> Any:
    """A hierarchy as a fitted `hdbscan.HDBSCAN`; see `Hierarchy.to_hdbscan`.

    Parameters
    ----------
    Z : ndarray of shape (n - 1, 4), float64
        The result of `to_scipy`.
    min_cluster_size : int
    min_samples, metric
        Parameters of the hierarchy, which become parameters of the result.
    options : dict
        Parameters of hdbscan for choosing clusters from the condensed tree.

    Returns
    -------
    hdbscan.HDBSCAN

    Raises
    ------
    ImportError
        hdbscan is not installed.
    ValueError, TypeError
        `min_cluster_size` is not an integer from 2 on, there is only one row, or hdbscan does not have an option.
    """
    try:
        import hdbscan
        from hdbscan.hdbscan_ import _tree_to_labels  # the half of its fit that comes after the tree
    except ImportError as error:
        raise ImportError("to_hdbscan needs hdbscan: pip install 'rapids_slink[hdbscan]'") from error
    if as_integer(min_cluster_size, "min_cluster_size") < 2:
        raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
    if not len(Z):
        raise ValueError("hdbscan needs at least two rows, and this hierarchy has one")
    settled = {"X", "single_linkage_tree", "min_cluster_size", "match_reference_implementation"}
    names = [name for name in signature(_tree_to_labels).parameters if name not in settled]
    for name in options:
        if name not in names:
            raise TypeError(f"to_hdbscan takes hdbscan's {', '.join(names)}, got {name!r}")
    # hdbscan itself ignores unknown parameters.
    clusterer = hdbscan.HDBSCAN(int(min_cluster_size), min_samples=min_samples, metric=metric, **options)
    chosen = {name: value for name, value in clusterer.get_params().items() if name in names}
    clusters = _tree_to_labels(None, Z, clusterer.min_cluster_size, **chosen)
    clusterer.labels_, clusterer.probabilities_, clusterer.cluster_persistence_ = clusters[:3]
    clusterer.condensed_tree_, clusterer.single_linkage_tree_ = clusters[3:]
    return clusterer


def condensed_tree(columns: Any, labels: np.ndarray) -> Any:
    """The columns of `HDBSCAN.condensed_tree_`, or its frame of pandas, as a ``CondensedTree`` of hdbscan."""
    try:
        from hdbscan.plots import CondensedTree
    except ImportError as error:
        raise ImportError("plot_condensed needs hdbscan: pip install 'rapids_slink[hdbscan]'") from error
    rate = np.asarray(columns["lambda_val"])
    drawn = np.minimum(rate, rate[rate < np.inf].max(initial=0.0) or 1.0)  # equal rows part at an infinite one
    types = {"parent": np.intp, "child": np.intp, "lambda_val": np.float64, "child_size": np.intp}
    frame = pd.DataFrame(columns).assign(lambda_val=drawn).astype(types)
    return CondensedTree(frame.to_records(index=False), labels)

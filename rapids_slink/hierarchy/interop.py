"""A hierarchy for other packages: SciPy's linkage matrix, graphs of NetworkX and cuGraph, hdbscan's clusters."""

from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.points.columns import as_integer, require_columns
from rapids_slink.points.output import OutputKind, on_device, on_host
from rapids_slink.runtime.device import CPU, resolve, to_host


def to_scipy(linkage: Any) -> np.ndarray:
    """`Hierarchy.to_scipy` of a linkage frame. Raises ValueError if it lacks a column or is a forest's."""
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
    """`Hierarchy.to_networkx` of an edge frame. Nodes and edges keep their order; all numbers are Python's own."""
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
    """`Hierarchy.to_cugraph` of an edge frame."""
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
    """`Hierarchy.to_hdbscan` of SciPy's matrix; `options` are hdbscan's for choosing clusters."""
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

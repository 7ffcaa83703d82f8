"""Exports of a hierarchy: matrices, graphs, text, tables."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.points.check import as_integer, check_index, require_columns
from rapids_slink.points.keys import without_columns
from rapids_slink.points.output import (
    TABLES,
    Frame,
    Index,
    Later,
    OutputKind,
    Rows,
    as_known,
    column_names,
    on_device,
    on_host,
)
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Array, resolve, to_host
from rapids_slink.spanning_tree.graphs import as_cugraph

#: Text that a name without quotes must not hold: a special character, or nothing at all.
SPECIAL = re.compile(r"""[\s()\[\]{}'":;,_\\]|^$""")


def to_scipy(linkage: Any) -> np.ndarray:
    """Return SciPy's matrix of a linkage frame, (n - 1, 4). Raise ValueError if it lacks a column or is a forest's."""
    linkage, _ = OutputKind.of(linkage, CPU)
    require_columns(linkage, COLUMNS, "linkage")
    Z = np.empty((len(linkage), 4))
    for i, column in enumerate(COLUMNS):
        Z[:, i] = to_host(linkage[column].values)
    n = len(Z) + 1
    if len(Z) and (Z[-1, 3] != n or (Z[:, :2].max(axis=1) >= n + np.arange(len(Z))).any()):
        raise ValueError(f"the {n - 1} merges do not join {n} leaves into one tree: SciPy has no linkage of a forest")
    return Z


@contextmanager
def needs(sentence: str, extra: str) -> Iterator[None]:
    """Raise an ImportError with this sentence, and the extra to install, if an import in this context fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{sentence}: pip install 'rapids_slink[{extra}]'") from error


def networkx() -> Any:
    """Import NetworkX. Raise an ImportError that names the extra if it is missing."""
    with needs("to_networkx needs NetworkX", "networkx"):
        import networkx
    return networkx


def graph_of(mst: Any, nodes: Iterable[Any]) -> Any:
    """Return NetworkX's graph of all nodes and of the weighted edges in an edge frame."""
    tree, graph = on_host(mst), networkx().Graph()
    graph.add_nodes_from(nodes)
    src, dst, weight = (tree[column].tolist() for column in ("src", "dst", "weight"))  # Python's own numbers
    graph.add_weighted_edges_from(zip(src, dst, weight, strict=True))
    return graph


class Deferred:
    """A frame that is made from a `Later` when it is first asked for.

    To make a frame takes as long as a fit of a hundred rows, or as the tree takes if that is made later too.
    """

    def __set_name__(self, kind: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self
        if self.name not in vars(model):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {self.name!r}")
        frame = vars(model)[self.name]
        if isinstance(frame, Later):
            frame = vars(model)[self.name] = frame.frame()
        return frame

    def __set__(self, model: Any, frame: Any) -> None:
        vars(model)[self.name] = frame


class Exports:
    """The exports of `Hierarchy`, and the attributes that they and its plots read. `Hierarchy` describes these."""

    linkage_: Frame = Deferred()  # type: ignore[assignment]
    mst_: Frame = Deferred()  # type: ignore[assignment]
    labels_: Rows
    n_leaves_: int
    n_clusters_: int
    report_: Report
    _output: OutputKind
    _index: Index | None = None  # the index of the input's rows, if the input was a frame
    _layout: Any = None  # the layout of the input's partitions, if the input was a Dask collection
    _least_size_: int = 1  # the least number of rows of a cluster that has a label
    _small_clusters_: int = 0  # the number of clusters without a label, because they are smaller
    _split_above_: int | None = None  # the most rows of a cluster, if larger ones were split further
    groups_: Frame  # only of a model with groups, like the next two
    _merge_group_: Frame  # column ``group``, the number of each merge's group
    _key_columns_: tuple[Any, ...] = ()  # the columns of the input that are keys of groups
    _cut_per_group_: bool = False  # whether `labels_` are cuts by a number of clusters in each group

    @property
    def nodes_(self) -> Index | range | Any:
        """Return the ids of a graph's nodes, or the index of the input's rows, in the order of `labels_`.

        They are a column of Polars or Arrow if the input was a table of these, and otherwise an Index. They are row
        numbers if there is no index.
        """
        self._require_fit()
        nodes = range(self.n_leaves_) if self._index is None else self._index
        return self._output.series(np.asarray(nodes)) if self._output.wrapper in TABLES else nodes

    @property
    def _nodes(self) -> Any:
        """Return all nodes of `mst_`."""
        return range(self.n_leaves_)

    @property
    def _cut_clusters(self) -> int:
        """Return the number of clusters of the cut of `labels_`, with those that are too small for a label."""
        return self.n_clusters_ + self._small_clusters_

    @property
    def _labels_are_a_cut(self) -> bool:
        """Return whether `labels_` are a cut at one height."""
        return not self._cut_per_group_ and self._split_above_ is None

    def _require_fit(self) -> None:
        if not hasattr(self, "labels_"):  # `linkage_` may not be made yet
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _features(self, X: Any) -> Any:
        """Return the rows that were clustered without the columns that are keys of groups. Raise for another index."""
        X = as_known(X)
        check_index(X, self._index, "X", "model.labels_")
        names = column_names(X) or []
        keys = [name for name in self._key_columns_ if name in names]
        return without_columns(X, keys) if keys else X

    def _rows_of(self, ends: Any) -> Array:
        """Return the row numbers of the nodes in a column of `mst_`, which holds the names of a graph's nodes."""
        if isinstance(self._nodes, range):
            return ends.values
        return pd.Index(on_host(self._nodes)).get_indexer(on_host(ends))

    def _require_one_group(self, method: str) -> None:
        if hasattr(self, "groups_"):
            raise ValueError(f"{method} is for models without groups, and this one was fitted with groups=")

    def _require_tree(self, instead: str = "linkage_ has its merges") -> None:
        """Raise for a forest. The error says what to use `instead`."""
        self._require_fit()
        trees = self.n_leaves_ - len(self.linkage_)
        if trees != 1:
            raise ValueError(f"SciPy has no linkage of a forest, and this hierarchy is one of {trees} trees: {instead}")

    def to_scipy(self) -> np.ndarray:
        """Return the hierarchy as SciPy's linkage matrix.

        Returns
        -------
        ndarray of shape (n - 1, 4), float64
            SciPy's Z.

        Raises
        ------
        ValueError
            The hierarchy is a forest, which SciPy's matrix cannot express.
        """
        self._require_tree()
        return to_scipy(self.linkage_)

    def to_networkx(self) -> Any:
        """Return the minimum spanning tree as a graph of NetworkX.

        Its nodes are those of `mst_`: the nodes of the graph that was clustered, or otherwise row numbers. They are
        never the labels of the input's index, because these may repeat. If the labels are unique,
        ``networkx.relabel_nodes(graph, dict(enumerate(df.index)))`` replaces the numbers by them.

        Returns
        -------
        networkx.Graph
            It has all nodes, also those without an edge. Each edge has its ``weight``.

        Raises
        ------
        ImportError
            NetworkX is not installed.
        """
        self._require_fit()
        return graph_of(self.mst_, self._nodes if isinstance(self._nodes, range) else on_host(self._nodes).tolist())

    def to_cugraph(self) -> Any:
        """Return the minimum spanning tree as a graph of cuGraph.

        Returns
        -------
        cugraph.Graph
            Undirected and weighted, over the nodes of `mst_`. cuGraph has no nodes without an edge.

        Raises
        ------
        ImportError
            cuGraph is not installed.
        DeviceUnavailableError
            There is no usable GPU.
        ValueError
            The tree has no edges, and cuGraph has no graph without edges.
        """
        self._require_fit()
        with needs("to_cugraph needs cuGraph", "graph-cu13"):
            import cugraph  # noqa: F401
        device = resolve("cuda")
        tree, _ = OutputKind.of(self.mst_, device)
        if not len(tree):
            raise ValueError("the tree has no edges, and cuGraph has no graph without edges")
        return as_cugraph(on_device(tree, device))

    def to_hdbscan(self, min_cluster_size: int = 5, **options: Any) -> Any:
        """Return the hierarchy as a fitted model of the package hdbscan, which chooses flat clusters from it.

        With ``min_samples=m`` the heights are those of ``hdbscan.HDBSCAN(min_samples=m, algorithm="generic")``. The
        clusters are the same too, except for rows that tie: a core distance is often the height of several merges, and
        each package merges these in its own order. Without ``min_samples`` the tree is that of ``min_samples=1``.

        Parameters
        ----------
        min_cluster_size : int
            The points of smaller branches of the tree fall out of a cluster. At least 2.
        **options
            The parameters of `hdbscan.HDBSCAN` that choose clusters: ``cluster_selection_method``,
            ``cluster_selection_epsilon``, ``allow_single_cluster``, ``max_cluster_size`` and others of its release.

        Returns
        -------
        hdbscan.HDBSCAN
            Fitted: ``labels_`` (-1 is noise), ``probabilities_``, ``cluster_persistence_``, ``outlier_scores_``,
            ``condensed_tree_``, and ``single_linkage_tree_``, hdbscan's `SingleLinkageTree`. All arrays are NumPy's.
            Attributes that need the points (``minimum_spanning_tree_``, prediction) are missing.

        Raises
        ------
        ImportError
            hdbscan is not installed.
        ValueError, TypeError
            A parameter is not valid, there is only one row, the rows have weights, or the hierarchy is a forest.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import SingleLinkage
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9)][:, None]
        >>> model = SingleLinkage(min_samples=3, device="cpu").fit(X)
        >>> model.to_hdbscan(min_cluster_size=4).labels_.tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
        """
        with needs("to_hdbscan needs hdbscan", "hdbscan"):
            import hdbscan
            from hdbscan.hdbscan_ import _tree_to_labels  # the half of its fit that comes after the tree
        if as_integer(min_cluster_size, "min_cluster_size") < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
        if hasattr(self, "_weighted_"):
            raise ValueError("hdbscan counts rows, and these have weights: fit without sample_weight")
        Z, min_samples = self.to_scipy(), self.report_.get("min_samples", 1)
        if not len(Z):
            raise ValueError("hdbscan needs at least two rows, and this hierarchy has one")
        settled = {"X", "single_linkage_tree", "min_cluster_size", "match_reference_implementation"}
        names = [name for name in signature(_tree_to_labels).parameters if name not in settled]
        for name in options:
            if name not in names:
                raise TypeError(f"to_hdbscan takes hdbscan's {', '.join(names)}, got {name!r}")
        metric = getattr(self, "metric", "precomputed")
        # hdbscan itself ignores unknown parameters.
        clusterer = hdbscan.HDBSCAN(int(min_cluster_size), min_samples=min_samples, metric=metric, **options)
        chosen = {name: value for name, value in clusterer.get_params().items() if name in names}
        clusters = _tree_to_labels(None, Z, clusterer.min_cluster_size, **chosen)
        clusterer.labels_, clusterer.probabilities_, clusterer.cluster_persistence_ = clusters[:3]
        clusterer.condensed_tree_, clusterer.single_linkage_tree_ = clusters[3:]
        return clusterer

    def to_newick(self) -> str:
        """Return the hierarchy as a tree in Newick's format, for programs that draw and compare trees.

        Returns
        -------
        str
            A line for each tree of the hierarchy, with a semicolon at its end. The leaves' names are the labels of the
            input's index, or row numbers; names that need it are quoted. The length of a branch is the difference of
            the heights at its ends, and leaves are at zero, so that two rows merge at half of the length of the path
            between them.

        Examples
        --------
        >>> import pandas as pd, rapids_slink
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 4.0]}, index=["a", "b", "c d"])
        >>> rapids_slink.fit(df, device="cpu").to_newick()
        "('c d':3.0,(a:1.0,b:1.0):2.0);"
        """
        self._require_fit()
        names = range(self.n_leaves_) if self._index is None else on_host(self._index).tolist()
        return to_newick(on_host(self.linkage_), names)

    def to_frame(self, *, medoids: bool = False) -> pd.DataFrame:
        """Return the clusters of `labels_` as a table.

        Parameters
        ----------
        medoids : bool
            Add the column ``medoid``, for a model with ``prediction_data=True``. This takes the distances of all pairs
            of rows in each cluster.

        Returns
        -------
        DataFrame (pandas)
            A row for each label. ``size``: the number of rows. ``height``: the weight of the heaviest edge of `mst_`
            within the cluster, 0 for a single row. ``first_row``: the index label of its first row, or the row's
            number. ``medoid``, likewise: the row with the least sum of distances to the others.

        Raises
        ------
        ValueError
            `medoids` is true, and the model keeps no rows.
        """
        self._require_fit()
        n = self.n_clusters_
        label, first, number = np.unique(np.asarray(on_host(self.labels_)), return_index=True, return_inverse=True)
        labels = number - int(label[0] < 0)  # 0..n-1, also where names were kept
        tree = on_host(self.mst_)
        src, dst = (self._rows_of(tree[end]) for end in ("src", "dst"))
        within = labels[src] == labels[dst]
        height = np.zeros(n + 1)  # the last is the height of noise
        np.maximum.at(height, labels[src][within], tree["weight"].to_numpy()[within])
        rows = {"first_row": first[label >= 0], **(self._central_rows(labels) if medoids else {})}
        index = None if self._index is None else on_host(self._index)
        columns = {name: part if index is None else index.take(part) for name, part in rows.items()}
        size = np.bincount(labels + 1, minlength=n + 1)[1:]
        clusters = pd.DataFrame({"size": size, "height": height[:n], **columns})
        return (clusters if label[-1] < n else clusters.set_axis(label[label >= 0])).rename_axis("label")

    def _central_rows(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Return the column ``medoid``: the row of each cluster with the least sum of distances. Raise without rows."""
        raise ValueError("medoids are of rows with features, and this hierarchy has none")


def to_newick(linkage: pd.DataFrame, names: Sequence[Any]) -> str:
    """Return the trees of a linkage over leaves of these names in Newick's format, a line for each tree.

    There is no recursion, because a chain is as deep as it is long.
    """
    n = len(names)
    left_child, right_child, height = (linkage[column].tolist() for column in COLUMNS[:3])
    is_root = np.ones(n + len(left_child), bool)
    is_root[left_child] = is_root[right_child] = False
    written: list[str] = []
    for root in np.flatnonzero(is_root).tolist():
        stack: list[Any] = [(root, None)]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                written.append(item)
                continue
            node, above = item
            merge = node - n
            own = height[merge] if merge >= 0 else 0.0
            length = "" if above is None else f":{above - own!r}"
            if merge < 0:
                written.append(f"{_quoted(str(names[node]))}{length}")
            else:
                written.append("(")
                stack += [f"){length}", (right_child[merge], own), ",", (left_child[merge], own)]
        written.append(";\n")
    return "".join(written).rstrip("\n")


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'" if SPECIAL.search(name) else name

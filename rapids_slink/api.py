"""The public functions. Each hands its input to the engine that serves it: see `engines`."""

from __future__ import annotations

from os import PathLike
from typing import Any

from rapids_slink.dendrogram.cutting import CutParameters
from rapids_slink.engines import engine_of
from rapids_slink.graph import COMPLETE, GraphHierarchy
from rapids_slink.hdbscan import HDBSCAN as HDBSCAN
from rapids_slink.hierarchy import storage
from rapids_slink.metrics import get_metric
from rapids_slink.runtime.device import DeviceUnavailableError as DeviceUnavailableError
from rapids_slink.runtime.memory import DeviceMemoryError as DeviceMemoryError
from rapids_slink.runtime.memory import free_memory as free_memory
from rapids_slink.runtime.versions import show_versions as show_versions
from rapids_slink.single_linkage import SingleLinkage as SingleLinkage


def fit(X: Any, n_clusters: int | None = None, **parameters: Any) -> SingleLinkage:
    """Cluster the rows of `X`: ``SingleLinkage(n_clusters, **parameters).fit(X)``.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        As `SingleLinkage.fit` takes it.
    n_clusters : int, optional
        2 unless it or ``distance_threshold`` is given.
    **parameters
        Those of `SingleLinkage`.

    Returns
    -------
    SingleLinkage
        Fitted; see its attributes.
    """
    if n_clusters is None and parameters.get("distance_threshold") is None:
        n_clusters = 2
    return SingleLinkage(n_clusters, **parameters).fit(X)


def fit_graph(
    edges: Any,
    n_clusters: int | None = None,
    *,
    n_nodes: int | None = None,
    distance_threshold: float | None = None,
    complete: str = "keep",
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> GraphHierarchy:
    """Single-linkage clustering of a weighted undirected graph: any dissimilarity, given as edges.

    Parameters
    ----------
    edges : DataFrame (cuDF or pandas) or cugraph.Graph
        ``src``, ``dst``, the ends: integers, strings or any other values that the frame can hold, both of one kind.
        ``weight``: the dissimilarity, any number. One direction or both; self-loops are ignored; of parallel edges
        the lightest counts. Integers from 0 to four times the number of edges plus 1,023 are node numbers, and all
        numbers up to the largest are nodes, with or without an edge. Other ids are names, and the nodes are those that
        occur.
    n_clusters : int, optional
        From the number of connected components to the number of nodes.
    n_nodes : int, optional
        Ids are node numbers, however large, and so many are nodes, with or without an edge.
    distance_threshold : float, optional
        Merge below this only. With neither cut given, every connected component is a cluster.
    complete : {"keep", "error"}
        What to do with a graph that is not connected: keep a tree for each component, or refuse.
    device : {"auto", "cpu", "cuda"}
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    GraphHierarchy
        With `labels_`, `linkage_`, `mst_`, `cut` and the other attributes of `SingleLinkage`. A forest has fewer rows
        in `linkage_`: no merge of infinite height stands in for what is not connected.

    Raises
    ------
    ValueError, TypeError
        If the edges or a parameter are not valid, or the graph is not connected and ``complete="error"``.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.
    """
    if complete not in COMPLETE:
        raise ValueError(f"complete must be one of {', '.join(map(repr, COMPLETE))}, got {complete!r}")
    result: GraphHierarchy = engine_of(edges).fit_graph(
        edges,
        n_clusters=n_clusters,
        distance_threshold=distance_threshold,
        n_nodes=n_nodes,
        complete=complete,
        device=device,
        memory_limit=memory_limit,
    )
    return result


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    p: float = 2.0,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """The exact k-nearest-neighbour graph of the rows of `X`.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        A cuDF or pandas DataFrame, CuPy or NumPy array, anything with DLPack, or a Dask collection of such.
    n_neighbors : int
        Neighbours a row, itself not counted; at most n - 1.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard" and "dice" (booleans), "inner_product" (-x·y) or "haversine"
        (latitude and longitude in radians); `rapids_slink.metrics` defines them.
    p : float
        The exponent of minkowski, above 0.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        An edge a row, n·k in all: ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), by ``src``
        and then from the nearest on; neighbours whose surrogate distances (squared, for euclidean) are equal go by
        ``dst``. cuDF if `X` is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        If `X` or a parameter is not valid, or a row has no distance in this metric; the message names it.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.
    """
    return engine_of(X).knn_graph(X, n_neighbors, get_metric(metric, p), device, memory_limit)


def nearest_neighbors(
    X: Any,
    Y: Any,
    *,
    metric: str = "euclidean",
    p: float = 2.0,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """For each row of `X` the nearest row of `Y` (the fused 1-NN of cuSLINK's Algorithm 4), exact.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        As `knn_graph` takes it.
    metric, p : str, float
        See `knn_graph`.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        An edge a row of `X`: ``src``, ``dst`` (int32 row numbers in `X` and `Y`) and ``weight`` (float64 distance). Of
        several rows of the same surrogate distance (squared, for euclidean), the first.

    Raises
    ------
    ValueError, TypeError
        If an input or a parameter is not valid; the message names it.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.
    """
    return engine_of(X, Y).nearest_neighbors(X, Y, get_metric(metric, p), device, memory_limit)


def connect(
    graph: Any,
    X: Any,
    *,
    certified: bool = True,
    metric: str = "euclidean",
    p: float = 2.0,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Any:
    """The exact minimum spanning tree of the rows of `X`, from a k-NN graph of theirs.

    Parameters
    ----------
    graph : DataFrame (cuDF or pandas)
        ``src``, ``dst`` (row numbers of `X`) and ``weight``, as `knn_graph` returns it. Weights are computed anew.
    X : dataframe or array, (n, d)
        As `knn_graph` takes it, but for Dask collections.
    certified : bool
        Whether every row lists its k nearest, and nothing else: then a row's last neighbour bounds its distance from
        what it does not list, and most edges are certain without a search. False for any other graph, such as an
        approximate one: each row is searched at least once, for the same tree.
    metric, p : str, float
        See `knn_graph`.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``src``, ``dst`` (int32), ``weight`` (float64 distance): n - 1 edges in the order in which they merge, the
        `mst_` of `SingleLinkage`. cuDF if `X` is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        If an input or a parameter is not valid; the message names it.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.2.1 of the cuSLINK paper joins the components of the graph by edges that need not be in the tree. Here
    Borůvka's rounds go on, by groupby and merge of frames, and take edges that are certain alone.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [10.0], [12.0]])
    >>> graph = rapids_slink.knn_graph(X, 1, device="cpu")
    >>> rapids_slink.connect(graph, X, device="cpu")["weight"].tolist()
    [1.0, 2.0, 9.0]
    """
    return engine_of(graph, X).connect(
        graph, X, certified=certified, metric=get_metric(metric, p), device=device, memory_limit=memory_limit
    )


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
    return engine_of(edges).minimum_spanning_tree(
        edges, maximum=maximum, component=component, device=device, memory_limit=memory_limit
    )


def linkage(
    tree: Any, *, n_nodes: int | None = None, device: str = "auto", memory_limit: int | str | None = None
) -> Any:
    """The single-linkage dendrogram of a weighted tree.

    Parameters
    ----------
    tree : DataFrame (cuDF or pandas)
        Columns ``src``, ``dst`` (integer node ids) and ``weight``, one row an edge, in any order. Other columns are
        ignored.
    n_nodes : int, optional
        The number of nodes, for a forest or where some nodes have no edge. By default the edges must be one tree over
        nodes 0 to the number of edges.
    device : {"auto", "cpu", "cuda"}
        Where to compute. The result is of the kind that `tree` is, whatever the device.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``left``, ``right`` (int32), ``height`` (float64, the weight) and ``size`` (int32): the columns of
        ``scipy.cluster.hierarchy.linkage(X, "single")``, whose row i makes cluster ``n + i``. Edges of equal weight
        merge in the order of (smaller id, larger id).

    Raises
    ------
    ValueError
        Columns are missing, hold nulls or NaN, ids are not in range, or the edges close a cycle.
    InputTypeError
        `tree` is not a DataFrame, ids are not integers or weights not numbers.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.3.1 of the cuSLINK paper, which does this on the host. Here a GPU does it in parallel: `dendrogram.cuda`.
    """
    return engine_of(tree).linkage(tree, n_nodes=n_nodes, device=device, memory_limit=memory_limit)


def cut(
    linkage: Any,
    *,
    n_clusters: Any = None,
    distance_threshold: Any = None,
    min_cluster_size: int = 1,
    n_leaves: int | None = None,
    method: str = "kernel",
) -> Any:
    """Flat clusters from a dendrogram.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        As `rapids_slink.linkage` returns it: ``left``, ``right``, ``height``, ``size``.
    n_clusters : int or sequence of int, optional
        How many clusters to leave, from 1 to the number of leaves: the last ``n_clusters - 1`` merges are undone. It
        is met exactly, heights that tie included. A list, tuple, range or 1-d array makes a cut for each value.
    distance_threshold : float or sequence of float, optional
        Clusters at or above this distance are not merged (scikit-learn's meaning). Give this or `n_clusters`.
    min_cluster_size : int
        Clusters of fewer leaves are labelled -1, the others 0..k-1. They still count in `n_clusters`.
    n_leaves : int, optional
        The number of leaves, for a forest's linkage; by default one more than the number of merges.
    method : {"kernel", "merge"}
        How labels are inherited: by gathers in one launch on a GPU and one pass on a CPU, or by groupby and merge of
        frames, which takes longer. The labels are the same.

    Returns
    -------
    Series or DataFrame of int32
        A label 0..k-1 for each leaf, numbered in order of first appearance, of the kind that `linkage` is. For a
        sequence of cuts a frame with a column for each, whose name is the value.

    Raises
    ------
    ValueError
        Both or neither cut is given, one is out of range or given twice, or `linkage` is not the dendrogram of
        `n_leaves` leaves.
    TypeError
        `n_clusters` is not an integer, `distance_threshold` not a number, `linkage` not a DataFrame.
    DeviceMemoryError
        It takes more memory than there is.

    Notes
    -----
    Section 3.3.2 of the cuSLINK paper inherits labels level by level; a chain has as many levels as leaves.
    """
    parameters = CutParameters(n_clusters, distance_threshold, min_cluster_size, method)
    return engine_of(linkage).cut(linkage, parameters, n_leaves)


def load(path: str | PathLike[str], *, device: str = "auto") -> Any:
    """Read a hierarchy that was saved.

    Parameters
    ----------
    path : path
        Written by ``model.save(path)``. Opening a file from somebody else runs no code of theirs.
    device : {"auto", "cpu", "cuda"}
        "auto" gives the frames, Series and arrays in the kinds they had, cuDF's and CuPy's as pandas' and NumPy's
        where there is no GPU; "cpu" gives pandas' and NumPy's, "cuda" cuDF's and CuPy's. Pandas' are what this
        process calls pandas: proxies under ``cudf.pandas``, and otherwise not, whichever they were when they were
        saved. The bits are the same. The model's own parameter ``device``, which its next fit goes by, stays as it
        was.

    Returns
    -------
    SingleLinkage, HDBSCAN or GraphHierarchy
        Fitted, as it was saved.

    Raises
    ------
    ValueError
        The file is damaged, is no hierarchy, or has another version of the format.
    DeviceUnavailableError
        ``device="cuda"`` and there is no usable GPU.
    FileNotFoundError, ImportError
        There is no such file, or no pyarrow to read it with.

    Examples
    --------
    >>> import tempfile, numpy as np, rapids_slink
    >>> model = rapids_slink.fit(np.array([[0.0], [0.1], [5.0]]), n_clusters=2, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/three.slink")
    ...     rapids_slink.load(f"{folder}/three.slink").labels_.tolist()
    [0, 0, 1]
    """
    return storage.read(path, device, (GraphHierarchy, HDBSCAN, SingleLinkage))

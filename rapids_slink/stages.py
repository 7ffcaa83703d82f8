"""The public functions of single stages, and of pairs within a distance.

Each passes its input to an engine, see `engine_of`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import product
from numbers import Real
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import numpy as np

from rapids_slink.dendrogram.cutting import MEANINGS, CutOptions, CutParameters, distance_limit, warn_of_heavy_rows
from rapids_slink.metrics import Metric, MetricName
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.neighbors.queries import NearestTask
from rapids_slink.neighbors.within import PairTask
from rapids_slink.points.check import MAX_ROWS, as_integer, column_values, require_edges
from rapids_slink.points.keys import GroupBy
from rapids_slink.points.output import Distances, Frame, Numbers, OutputKind, Rows, Values, library_of
from rapids_slink.report import with_hints
from rapids_slink.runtime.device import device_of, resolve
from rapids_slink.runtime.memory import as_bytes
from rapids_slink.runtime.threads import shown_progress
from rapids_slink.settings import metric_of, missing_values_of
from rapids_slink.single_linkage import engine_of

#: What `nearest_neighbors` returns.
OUTPUTS = "frame", "arrays"


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Frame:
    """Return the exact k-nearest-neighbour graph of the rows of `X`.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        A DataFrame of cuDF, pandas, Polars or Arrow, a CuPy or NumPy array, an object with DLPack, or a Dask DataFrame
        or Array.
    n_neighbors : int
        Neighbours per row, without the row itself; at most n - 1.
    metric, p, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".

    Returns
    -------
    DataFrame
        One row per edge, n·k in all: ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance). Edges are
        sorted by ``src``, then by distance. Neighbours of equal surrogate distance (the square, for euclidean) are
        sorted by ``dst``. In the library of `X`; for an array cuDF if it is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError
        `X` or a parameter is not valid, or a row has no distance in this metric. The message names it.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.
    """
    chosen = metric_of(metric, p, None, box, scales)
    return engine_of(X, metric=chosen).knn_graph(X, n_neighbors, chosen, device, memory_limit)


class NearestOptions(TypedDict, total=False):
    """The parameters of `nearest_neighbors` that do not change the type of its result, for typing tools."""

    groups: Any
    dropna: bool
    metric: MetricName
    p: float
    box: float | Collection[float] | None
    scales: Mapping[Any, float] | None
    device: str
    memory_limit: int | str | None


@overload
def nearest_neighbors(
    X: Any, Y: Any, n_neighbors: int = 1, *, output: Literal["frame"] = "frame", **options: Unpack[NearestOptions]
) -> Frame: ...
@overload
def nearest_neighbors(
    X: Any, Y: Any, n_neighbors: int = 1, *, output: Literal["arrays"], **options: Unpack[NearestOptions]
) -> tuple[Values, Values]: ...
def nearest_neighbors(
    X: Any,
    Y: Any,
    n_neighbors: int = 1,
    *,
    groups: Any = None,
    dropna: bool = True,
    output: str = "frame",
    metric: MetricName = "euclidean",
    p: float = 2.0,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Frame | tuple[Values, Values]:
    """Find the exact nearest rows of `Y` for each row of `X`.

    Parameters
    ----------
    X, Y : dataframe or array, (m, d) and (n, d)
        See `knn_graph`. For metrics of text, sets and sparse rows see `SingleLinkage.fit`.
    n_neighbors : int
        Neighbours of each row of `X`, from 1 to n. A row of `Y` that equals the row of `X` is one of them.
    groups : column name, list of names, or pair of Series, arrays or DataFrames, optional
        Compare only rows of `X` and `Y` with equal keys. Names are those of columns of both tables, which are then no
        features. A pair ``(a, b)`` has a key for each row of `X` and a key for each row of `Y`. If `Y` has fewer than
        `n_neighbors` rows of a key, the rows of `X` with this key get fewer edges, or none.
    dropna : bool
        Whether missing keys are an error. False makes them a group of their own.
    output : {"frame", "arrays"}
        Whether to return a frame of edges, or arrays of distances and of row numbers.
    metric, p, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".

    Returns
    -------
    DataFrame
        An edge for each row of `X` and neighbour, m·k in all without groups: ``src``, ``dst`` (int32 row numbers in `X`
        and `Y`) and ``weight`` (float64 distance). They are sorted by ``src``, then by distance. Rows of equal
        surrogate distance (the square, for euclidean) are sorted by ``dst``, and the first ones are taken. In the
        library of `X`; for an array cuDF if it is on a GPU, else pandas.
    distances, indices : ndarray, (m, k)
        With ``output="arrays"``: float64 distances and int32 row numbers of `Y`, in this order. If a group has fewer
        than k rows, the remaining distances are infinite and the remaining row numbers -1. The arrays are CuPy's if
        `X` is on a GPU, else NumPy's.

    Raises
    ------
    ValueError, TypeError
        `X`, `Y`, the keys or a parameter are not valid, or a row has no distance in this metric. The message names it.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.

    See Also
    --------
    knn_graph : The nearest other rows of the same table.
    pairs : All pairs of rows within a distance.
    rapids_slink.sklearn.NearestNeighbors : The same with scikit-learn's methods.

    Notes
    -----
    One neighbour is the fused 1-NN of cuSLINK's Algorithm 4.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X, Y = np.array([[0.0], [4.0]]), np.array([[1.0], [3.0], [-1.0]])
    >>> rapids_slink.nearest_neighbors(X, Y, 2, device="cpu")
       src  dst  weight
    0    0    0     1.0
    1    0    2     1.0
    2    1    1     1.0
    3    1    0     3.0
    >>> keys = ["a", "b"], ["b", "a", "a"]
    >>> distances, indices = rapids_slink.nearest_neighbors(X, Y, 2, groups=keys, output="arrays", device="cpu")
    >>> indices.tolist(), distances.tolist()
    ([[2, 1], [0, -1]], [[1.0, 3.0], [3.0, inf]])
    """
    chosen = metric_of(metric, p, None, box, scales)
    if output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(map(repr, OUTPUTS))}, got {output!r}")
    by = None if groups is None else GroupBy(groups, dropna)
    task = NearestTask(chosen, check_n_neighbors(n_neighbors), output == "arrays", by, memory_limit)
    return engine_of(X, Y, metric=chosen).nearest_neighbors(X, Y, task, device)


def connect(
    graph: Any,
    X: Any,
    *,
    certified: bool = True,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Frame:
    """Return the exact minimum spanning tree of the rows of `X`, found from their k-NN graph.

    Parameters
    ----------
    graph : DataFrame (cuDF, pandas, Polars or Arrow)
        ``src``, ``dst`` (row numbers of `X`) and ``weight``, as `knn_graph` returns it. Weights are computed again.
    X : dataframe or array, (n, d)
        See `knn_graph`, except Dask collections.
    certified : bool
        Whether every row lists exactly its k nearest others. Then the distance of a row's last neighbour is a lower
        bound for all rows that it does not list, and most edges are certain without a search. False for any other
        graph, such as an approximate one: each row searches at least once, and the tree is the same.
    metric, p, box, scales, device, memory_limit : optional
        See `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``src``, ``dst`` (int32), ``weight`` (float64 distance): n - 1 edges in the order in which they merge, the
        `mst_` of `SingleLinkage`. In the library of `X`; for an array cuDF if it is on a GPU, else pandas.

    Raises
    ------
    ValueError, TypeError, DeviceMemoryError
        See `knn_graph`.

    Notes
    -----
    Section 3.2.1 of the cuSLINK paper connects the components of the graph by edges that need not be in the tree. Here
    Borůvka's rounds continue, by groupby and merge of frames, and take only edges that are certain.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [10.0], [12.0]])
    >>> graph = rapids_slink.knn_graph(X, 1, device="cpu")
    >>> rapids_slink.connect(graph, X, device="cpu")["weight"].tolist()
    [1.0, 2.0, 9.0]
    """
    chosen = metric_of(metric, p, None, box, scales)
    return engine_of(graph, X, metric=chosen, rows=(X,)).connect(
        graph, X, certified=certified, metric=chosen, device=device, memory_limit=memory_limit
    )


def minimum_spanning_tree(
    edges: Any,
    *,
    maximum: bool = False,
    component: bool = False,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Frame | Any:
    """Return the minimum spanning tree of a weighted undirected graph, or its forest if it is not connected.

    Parameters
    ----------
    edges : DataFrame (cuDF, pandas, Polars or Arrow), sparse matrix, or graph of NetworkX or cuGraph
        See `fit_graph`, except that integer ids may have any range. A ``cugraph.Graph`` must be undirected and
        weighted; its edges are those of ``view_edge_list()``.
    maximum : bool
        Return the maximum spanning tree instead.
    component : bool
        Add a column ``component`` (int32): the number of the edge's tree in the forest. Trees are numbered from 0 in
        the order in which they first appear in the result.
    device, memory_limit : str, int or str
        See `SingleLinkage`.

    Returns
    -------
    DataFrame, sparse matrix or graph
        The columns ``src``, ``dst`` and ``weight`` of the rows of `edges` that are in the tree. Their order, types and
        index are those of `edges`, so ``edges.loc[tree.index]`` has the other columns. The earlier row wins among equal
        weights. A sparse matrix gives a matrix of its format with these entries, and a graph gives a graph of its class
        with these edges; a ``cugraph.Graph`` lacks the nodes that have no edge.

    Raises
    ------
    ValueError, TypeError
        Columns are missing, have the wrong type, or hold nulls or NaN; or the graph is directed or not weighted.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.2 of the cuSLINK paper alters equal weights, which cannot keep zeros. Here edges are compared by (weight,
    row). No two edges are equal in this order, so the tree is unique, and the same on either device.
    """
    return engine_of(edges).minimum_spanning_tree(
        edges, maximum=maximum, component=component, device=device, memory_limit=memory_limit
    )


def linkage(
    tree: Any, *, n_nodes: int | None = None, device: str = "auto", memory_limit: int | str | None = None
) -> Frame:
    """Return the single-linkage dendrogram of a weighted tree.

    Parameters
    ----------
    tree : DataFrame (cuDF, pandas, Polars or Arrow)
        Columns ``src``, ``dst`` (integer node ids) and ``weight``, one row per edge, in any order. Other columns are
        ignored.
    n_nodes : int, optional
        The number of nodes, if the edges form a forest or some nodes have no edge. By default the edges must form one
        tree over nodes 0 to the number of edges.
    device, memory_limit : str, int or str
        See `SingleLinkage`. The result has the type of `tree` on either device.

    Returns
    -------
    DataFrame
        ``left``, ``right`` (int32), ``height`` (float64, the weight) and ``size`` (int32): the columns of
        ``scipy.cluster.hierarchy.linkage(X, "single")``. Row i forms cluster n + i of n nodes. Edges of equal weight
        merge in the order of (smaller id, larger id).

    Raises
    ------
    ValueError
        Columns are missing or hold nulls or NaN, ids are not in range, or the edges close a cycle.
    InputTypeError
        `tree` is not a DataFrame, ids are not integers, or weights are not numbers.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.3.1 of the cuSLINK paper does this on the host. Here a GPU does it in parallel: see `dendrogram.cuda`.
    """
    return engine_of(tree).linkage(tree, n_nodes=n_nodes, device=device, memory_limit=memory_limit)


@overload
def cut(
    linkage: Any,
    *,
    n_clusters: int | str | None = None,
    distance_threshold: float | None = None,
    n_leaves: int | None = None,
    method: str = "kernel",
    **options: Unpack[CutOptions],
) -> Rows: ...
@overload
def cut(
    linkage: Any,
    *,
    n_clusters: Sequence[int] | np.ndarray[Any, Any],
    distance_threshold: None = None,
    n_leaves: int | None = None,
    method: str = "kernel",
    **options: Unpack[CutOptions],
) -> Frame: ...
@overload
def cut(
    linkage: Any,
    *,
    n_clusters: None = None,
    distance_threshold: Sequence[float] | np.ndarray[Any, Any],
    n_leaves: int | None = None,
    method: str = "kernel",
    **options: Unpack[CutOptions],
) -> Frame: ...
@with_hints(MEANINGS)
def cut(
    linkage: Any,
    *,
    n_clusters: Numbers | str | None = None,
    distance_threshold: Distances | None = None,
    min_cluster_size: int | None = None,
    max_cluster_size: int | None = None,
    count_small: bool = True,
    closed: str = "left",
    names: str = "number",
    n_leaves: int | None = None,
    method: str = "kernel",
    sample_weight: Any = None,
) -> Rows | Frame:
    """Cut a dendrogram into flat clusters.

    Parameters
    ----------
    linkage : DataFrame (cuDF, pandas, Polars or Arrow)
        The result of `rapids_slink.linkage`: ``left``, ``right``, ``height``, ``size``.
    n_clusters : int, sequence of int, or "widest_gap", optional
        The number of clusters, from 1 to the number of leaves: the last ``n_clusters - 1`` merges are undone. The
        number is exact, even if heights tie. A list, tuple, range or 1-d array makes a cut for each value.
        "widest_gap" cuts between the two successive merges that are farthest apart, among the cuts with at least two
        clusters of `min_cluster_size`. So a few outliers are not the clusters.
    distance_threshold : float or sequence of float, optional
        Clusters at or above this distance are not merged (scikit-learn's meaning). Give either this or `n_clusters`.
    min_cluster_size : int, optional
        Clusters of fewer leaves are labelled -1, the others 0..k-1. They still count in `n_clusters`. By default 1; for
        "widest_gap" a hundredth of the leaves, at least 5.
    max_cluster_size : int, optional
        Split clusters of more leaves as the tree splits them, until none has more: the result is the coarsest clusters
        of at most this size, below a `distance_threshold` if one is given. `n_clusters` must be None. Merges of equal
        height are undone in the reverse of their order, so every cluster can be split. A warning counts the leaves
        whose own `sample_weight` is larger.
    count_small : bool
        Whether clusters below `min_cluster_size` count in `n_clusters`. False makes `n_clusters` clusters of at least
        that size. Of the cuts with that number of such clusters it takes the coarsest, which labels the fewest leaves
        -1.
    closed : {"left", "right"}
        "right" also merges clusters at exactly `distance_threshold`: "at most 10 alleles".
    names : {"number", "first_row"}
        "first_row" labels each cluster by its smallest row number in place of 0..k-1. Such a label stays when rows are
        appended, unless the cluster merges with one of a smaller row number.
    n_leaves : int, optional
        The number of leaves, for a forest's linkage; by default one more than the number of merges.
    method : {"kernel", "merge"}
        How labels are inherited. "kernel" uses gathers, in one launch on a GPU and one pass on a CPU. "merge" uses
        groupby and merge of frames, which takes longer. The labels are the same.
    sample_weight : array or Series of shape (n_leaves,), optional
        Numbers above 0. The size of a cluster is then the sum of its weights, not its number of leaves.

    Returns
    -------
    Series or DataFrame of int32
        A label 0..k-1 for each leaf, numbered in order of first appearance, in the library of `linkage`. A sequence of
        cuts gives a frame with a column for each value. Its name is the value, in Polars and Arrow the value's text.

    Raises
    ------
    ValueError
        `n_clusters` and `distance_threshold` are both given, or neither is and `max_cluster_size` is None. A value is
        out of range or occurs twice, no cut has that number of large clusters, or `linkage` is not the dendrogram of
        `n_leaves` leaves.
    TypeError
        `n_clusters` is not an integer, `distance_threshold` is not a number, or `linkage` is not a DataFrame.
    DeviceMemoryError
        The work needs more memory than there is.

    Notes
    -----
    Section 3.3.2 of the cuSLINK paper inherits labels level by level. A chain has as many levels as leaves.
    """
    parameters = CutParameters(
        n_clusters, distance_threshold, min_cluster_size, method, closed, names, sample_weight,
        max_cluster_size=max_cluster_size, count_small=count_small,
    ).checked()  # fmt: skip
    labels: Rows | Frame = engine_of(linkage).cut(linkage, parameters=parameters, n_leaves=n_leaves)
    if sample_weight is not None:
        warn_of_heavy_rows(parameters, len(labels))
    return labels


# ---------------------------------------------------------------------------------------------- pairs within a distance


def pairs(
    X: Any,
    Y: Any = None,
    *,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    names: bool = False,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
    progress: bool | str = "auto",
) -> Frame:
    """Return every pair of rows within a distance, once: two rows of `X`, or a row of `X` and a row of `Y`.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        See `knn_graph`. For metrics of text, sets and sparse rows see `SingleLinkage.fit`.
    max_distance : float
        The largest distance. Pairs at exactly this distance are in the result.
    min_similarity : float
        The least similarity, in place of `max_distance`, for jaccard, dice, containment, bit_jaccard, cosine and
        correlation. Pairs of exactly this similarity are in the result. See `SingleLinkage`.
    names : bool
        Whether ``src`` and ``dst`` are names from the index of a frame of pandas or cuDF, not row numbers.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".
    progress : bool or "auto"
        Show a progress bar; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), sorted by ``src``, then by ``dst``.
        Without `Y` src < dst; otherwise ``src`` is a row of `X` and ``dst`` one of `Y`. In the library of `X`; for an
        array cuDF if it is on a GPU, else pandas; for a Dask collection a Dask DataFrame.

    Raises
    ------
    ValueError, TypeError
        `X`, `Y` or a parameter is not valid, or a row has no distance in this metric. The message names it.
    DeviceMemoryError
        The search or the pairs do not fit into memory or into `memory_limit`. For pairs the message has their number,
        and `iter_pairs` makes them in parts.

    See Also
    --------
    count_pairs : The number of pairs alone.
    iter_pairs : The pairs in parts, a frame for each range of rows.
    to_csr : The frame as a sparse matrix, such as for ``DBSCAN(metric="precomputed")``.
    deduplicate : The groups that the pairs connect, without the pairs.

    Notes
    -----
    A filter in low precision rules pairs out under a proven bound, and the float64 distances of the others decide. So
    no pair is missing and none is wrong. `fit_graph`, `minimum_spanning_tree` and cuGraph take the frame as it is.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [1.5], [9.0], [9.0]])
    >>> rapids_slink.pairs(X, max_distance=1.0, device="cpu")
       src  dst  weight
    0    0    1     1.0
    1    1    2     0.5
    2    3    4     0.0
    """
    chosen = metric_of(metric, p, missing, box, scales)
    limit = [limit_of(chosen, max_distance, min_similarity)]
    task = task_of(limit, chosen, missing, missing_value, memory_limit, names, progress)
    return engine_of(X, Y, metric=chosen).pairs(X, Y, task, device)


def count_pairs(
    X: Any,
    Y: Any = None,
    *,
    max_distance: Distances | None = None,
    min_similarity: Distances | None = None,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
    progress: bool | str = "auto",
) -> int | Values:
    """Count the pairs of rows within a distance, or within each of several, without making the pairs.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        See `pairs`.
    max_distance, min_similarity : float or sequence of float
        See `pairs`. One limit, or several in any order, which one pass counts.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".
    progress : bool or "auto"
        Show a progress bar; see `SingleLinkage`.

    Returns
    -------
    int, or ndarray of int64
        The number of rows that `pairs` would return. For several limits an array of NumPy has a count for each, in
        their order.

    Raises
    ------
    ValueError, TypeError, DeviceMemoryError
        See `pairs`.

    Notes
    -----
    SciPy's ``KDTree.count_neighbors`` of a tree with itself counts each pair twice, and each row with itself.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [1.5], [9.0], [9.0]])
    >>> rapids_slink.count_pairs(X, max_distance=[0, 1, 10], device="cpu").tolist()
    [1, 3, 10]
    """
    chosen = metric_of(metric, p, missing, box, scales)
    limits: tuple[Any, Any] = max_distance, min_similarity
    are_one = [isinstance(value, Real) or np.ndim(value) == 0 for value in limits]
    distances, similarities = ([limit] if is_one else limit for limit, is_one in zip(limits, are_one, strict=True))
    several = [limit_of(chosen, distance, similarity) for distance, similarity in product(distances, similarities)]
    if not several:
        raise ValueError("max_distance must hold at least one distance, or min_similarity one similarity, got none")
    task = task_of(several, chosen, missing, missing_value, memory_limit, progress=progress)
    counts: Values = engine_of(X, Y, metric=chosen).count_pairs(X, Y, task, device)
    if all(are_one):
        return int(counts[0])
    return counts[np.searchsorted(task.distances, np.asarray(several, np.float64))]


def iter_pairs(
    X: Any,
    Y: Any = None,
    *,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    rows: int = 2**16,
    names: bool = False,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> Iterator[Frame]:
    """Return an iterator over the frame of `pairs` in parts, one for each range of rows.

    It is for pairs that do not fit into memory at once.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        See `pairs`, except Dask collections, whose pairs already are in partitions.
    max_distance, min_similarity : float
        See `pairs`.
    rows : int
        The number of rows of `X` whose pairs are in one frame.
    names : bool
        See `pairs`.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".

    Returns
    -------
    iterator of DataFrame
        The first frame has the pairs whose ``src`` is among the first `rows` rows, the second those of the next `rows`
        rows, and so on: ⌈n / `rows`⌉ frames, which put together are the frame of `pairs`.

    Raises
    ------
    ValueError, TypeError, DeviceMemoryError
        See `pairs`. If a range's pairs do not fit, take fewer `rows`.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [1.5], [9.0], [9.0]])
    >>> [len(part) for part in rapids_slink.iter_pairs(X, max_distance=1.0, rows=2, device="cpu")]
    [2, 1, 0]
    """
    if as_integer(rows, "rows") < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    chosen = metric_of(metric, p, missing, box, scales)
    limit = [limit_of(chosen, max_distance, min_similarity)]
    task = task_of(limit, chosen, missing, missing_value, memory_limit, names)
    return engine_of(X, Y, metric=chosen).iter_pairs(X, Y, task, int(rows), device)


def to_csr(pairs: Any, n_rows: int | None = None, n_columns: int | None = None) -> Any:
    """Return the sparse matrix of a frame of `pairs`.

    Parameters
    ----------
    pairs : DataFrame (cuDF, pandas, Polars or Arrow)
        ``src``, ``dst`` (row numbers) and ``weight``.
    n_rows : int
        The number of rows of `X`, which the pairs do not tell. It must be given.
    n_columns : int, optional
        The number of rows of `Y` if the pairs are of two sets. By default they are of one: the matrix is symmetric.

    Returns
    -------
    csr_matrix
        A matrix of float64, CuPy's for a frame of cuDF, otherwise SciPy's. A stored zero is a distance of zero. An
        entry that is not stored is a distance above the limit of the pairs. The entries of a row are sorted by
        distance, and a symmetric matrix stores its diagonal, so ``sklearn.cluster.DBSCAN(eps, metric="precomputed")``
        takes it without a copy or a warning.

    Raises
    ------
    ValueError, TypeError
        `pairs` is no such frame, or holds row numbers beyond the matrix.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[0.0], [1.0], [9.0]])
    >>> rapids_slink.to_csr(rapids_slink.pairs(X, max_distance=1.0, device="cpu"), len(X)).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 0.]])
    """
    device = resolve("auto", pairs) if library_of(pairs) == "cudf" else resolve("cpu")
    frame, _ = OutputKind.of(pairs, device)
    require_edges(frame, "pairs")
    device = device_of(frame)
    xp, is_one = device.xp, n_columns is None
    if n_rows is None:
        raise TypeError("to_csr needs the number of rows, such as to_csr(pairs, len(X))")
    shape = tuple(
        as_integer(n, name) for n, name in ((n_rows, "n_rows"), (n_rows if is_one else n_columns, "n_columns"))
    )
    src, dst = (column_values(frame[name], device).astype("int64") for name in ("src", "dst"))
    weight = column_values(frame["weight"], device).astype("float64")
    for name, ids, size in (("src", src, shape[0]), ("dst", dst, shape[1])):
        if not 0 <= size <= MAX_ROWS:
            raise ValueError(f"the matrix must have from 0 to {MAX_ROWS} rows and columns, got {shape}")
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise ValueError(f"column {name!r} of the pairs must hold row numbers from 0 to {size - 1}")
    if is_one:
        own = xp.arange(shape[0], dtype="int64")
        off = src != dst
        src, dst = xp.concatenate((own, src[off], dst[off])), xp.concatenate((own, dst[off], src[off]))
        weight = xp.concatenate((xp.zeros(shape[0]), weight[off], weight[off]))
    order = xp.lexsort(xp.stack((dst.astype("float64"), weight, src.astype("float64"))))
    counts = xp.bincount(src, minlength=shape[0]) if src.size else xp.zeros(shape[0], "int64")
    starts = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(counts)))
    small = src.size < 2**31
    sparse = import_module("cupyx.scipy.sparse" if device.is_gpu else "scipy.sparse")
    indices, starts = (part.astype("int32" if small else "int64") for part in (dst[order], starts))
    return sparse.csr_matrix((weight[order], indices, starts), shape=shape)


def require_one(max_distance: Any, min_similarity: Any) -> None:
    """Raise TypeError unless there is a limit: `max_distance` or `min_similarity`."""
    if max_distance is None and min_similarity is None:
        raise TypeError("max_distance must be a number, got None: give it or min_similarity")


def limit_of(metric: Metric, max_distance: Any, min_similarity: Any) -> float:
    """Return the largest distance that is wanted, from a distance or a similarity."""
    require_one(max_distance, min_similarity)
    return cast(float, distance_limit(metric, max_distance, min_similarity))


def task_of(
    limits: list[float],
    metric: Metric,
    missing: str | None,
    missing_value: Any,
    memory_limit: Any,
    names: bool = False,
    progress: bool | str = False,
) -> PairTask:
    """Return the checked task of a call."""
    as_bytes(memory_limit)  # raises unless it is valid
    return PairTask(
        metric,
        np.unique(np.asarray(limits, np.float64)),
        names=bool(names),
        missing_values=missing_values_of(missing_value, missing),
        memory_limit=memory_limit,
        progress=shown_progress(progress),
    )

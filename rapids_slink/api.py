"""The public names. The functions of whole runs are here and those of single stages in `stages`.

Each passes its input to the engine that serves it: see `engines`.
"""

from os import PathLike
from typing import Any

from rapids_slink import local
from rapids_slink.engines import engine_of
from rapids_slink.graph import COMPLETE, GraphHierarchy
from rapids_slink.hdbscan import HDBSCAN as HDBSCAN
from rapids_slink.hierarchy import storage
from rapids_slink.points.output import is_collection
from rapids_slink.report import Report
from rapids_slink.runtime.device import DeviceUnavailableError as DeviceUnavailableError
from rapids_slink.runtime.memory import DeviceMemoryError as DeviceMemoryError
from rapids_slink.runtime.memory import free_memory as free_memory
from rapids_slink.runtime.versions import show_versions as show_versions
from rapids_slink.single_linkage import SingleLinkage as SingleLinkage
from rapids_slink.stages import connect as connect
from rapids_slink.stages import cut as cut
from rapids_slink.stages import knn_graph as knn_graph
from rapids_slink.stages import linkage as linkage
from rapids_slink.stages import minimum_spanning_tree as minimum_spanning_tree
from rapids_slink.stages import nearest_neighbors as nearest_neighbors


def fit(X: Any, n_clusters: int | None = None, **parameters: Any) -> SingleLinkage:
    """Cluster the rows of `X`: ``SingleLinkage(n_clusters, **parameters).fit(X)``.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        See `SingleLinkage.fit`.
    n_clusters : int, optional
        By default 2, unless ``distance_threshold`` or ``max_distance`` is given.
    **parameters
        The other parameters of `SingleLinkage`.

    Returns
    -------
    SingleLinkage
        The fitted model; see its attributes.
    """
    if n_clusters is None and all(parameters.get(name) is None for name in ("distance_threshold", "max_distance")):
        n_clusters = 2
    return SingleLinkage(n_clusters, **parameters).fit(X)


def plan(X: Any, **parameters: Any) -> Report:
    """Tell what `fit` would do with these points: the way to the tree, the filter, and the memory.

    The points are read, and the search is prepared as `fit` prepares it, which takes a small part of a fit's time. If
    `X` does not fit into memory, or is a shape, standard normal points stand for its values.

    Parameters
    ----------
    X : dataframe or array of shape (n, d), or the shape itself as a tuple (n, d)
        See `SingleLinkage.fit`, except Dask collections. A shape is one of float64 values.
    **parameters
        The parameters of `SingleLinkage`.

    Returns
    -------
    Report
        A dictionary that prints as text. ``device``, ``metric``, ``way`` and, if there is a search,
        ``neighbors["filter"]`` have the values of `report_`. ``memory["peak_bytes"]`` is the estimated peak on top of
        `X`. ``fits`` is False if `fit` would refuse: then ``refused`` is its error and ``instead`` names what fits.

    Raises
    ------
    ValueError, TypeError
        `X` or a parameter is not valid.
    DeviceUnavailableError
        ``device="cuda"``, and there is no usable GPU.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.plan((1_000_000, 16), device="cpu")["way"]
    'lists'
    """
    if is_collection(X):
        raise TypeError("X is a Dask collection, whose fit no plan covers: pass the shape of a partition, (n, d)")
    return local.plan(X, SingleLinkage(**parameters)._settings())


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
    """Single-linkage clustering of a weighted undirected graph, whose edges give any dissimilarity.

    Parameters
    ----------
    edges : DataFrame (cuDF, pandas, Polars or Arrow), sparse matrix, or graph of NetworkX or cuGraph
        A square sparse matrix (SciPy's or CuPy's) joins what it stores. The columns of a frame are these.
        ``src``, ``dst``, the ends: integers, strings or any other values that a frame can hold, both of the same type.
        ``weight``: the dissimilarity, any number. An edge may have one direction or both. Self-loops are ignored, and
        the lightest of parallel edges counts. Integers from 0 to four times the number of edges plus 1,023 are node
        numbers, and all numbers up to the largest are nodes, with or without an edge. Other ids are names, and only
        the names that occur are nodes.
    n_clusters : int, optional
        From the number of connected components to the number of nodes.
    n_nodes : int, optional
        The number of nodes, with or without an edge. All ids are node numbers then, however large.
    distance_threshold : float, optional
        Merge only below this distance. By default, without `n_clusters`, every connected component is a cluster.
    complete : {"keep", "error"}
        What to do if the graph is not connected: keep a tree for each component, or raise an error.
    device, memory_limit : str, int or str
        See `SingleLinkage`.

    Returns
    -------
    GraphHierarchy
        With `labels_`, `linkage_`, `mst_`, `cut` and the other attributes of `SingleLinkage`. `nodes_` are the ids, in
        the order of `labels_`; they are the index of a Series of pandas or cuDF. The `linkage_` of a forest has fewer
        rows: there are no merges of infinite height between its trees.

    Raises
    ------
    ValueError, TypeError
        The edges or a parameter are not valid, or the graph is not connected and ``complete="error"``.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.
    """
    if complete not in COMPLETE:
        raise ValueError(f"complete must be one of {', '.join(map(repr, COMPLETE))}, got {complete!r}")
    cut = n_clusters, distance_threshold
    result: GraphHierarchy = engine_of(edges).fit_graph(
        edges, cut=cut, n_nodes=n_nodes, complete=complete, device=device, memory_limit=memory_limit
    )
    return result


def load(path: str | PathLike[str], *, device: str = "auto") -> Any:
    """Read a saved hierarchy.

    Parameters
    ----------
    path : path
        A file written by ``model.save(path)``. Opening it runs no code from the file.
    device : {"auto", "cpu", "cuda"}
        "auto" restores the frames, Series and arrays in their libraries; without a GPU cuDF becomes pandas and CuPy
        becomes NumPy. "cpu" gives pandas and NumPy, and Polars or Arrow where these were saved; "cuda" gives cuDF and
        CuPy. Objects of pandas are proxies if ``cudf.pandas`` is active in this process, whatever they were when they
        were saved. The bits are the same. The model's own parameter ``device``, for its next fit, is restored
        unchanged.

    Returns
    -------
    SingleLinkage, HDBSCAN or GraphHierarchy
        The fitted model.

    Raises
    ------
    ValueError
        The file is damaged, does not hold a hierarchy, or has another version of the format.
    DeviceUnavailableError
        ``device="cuda"``, and there is no usable GPU.
    DeviceMemoryError
        The hierarchy does not fit into memory.
    FileNotFoundError, ImportError
        The file does not exist, or pyarrow is not installed.

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

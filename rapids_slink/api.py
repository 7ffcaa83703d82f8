"""The public functions. Whole runs, and what precedes them, are here; `stages` has single stages and pairs.

Each passes its input to the engine that serves it: one device, or the cluster of a Dask client. See `engine_of`.
"""

import platform
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions
from os import PathLike
from typing import Any, Literal, Never

import numpy as np

from rapids_slink import planning
from rapids_slink.dbscan import DBSCAN as DBSCAN
from rapids_slink.dendrogram.cutting import MEANINGS, Cut
from rapids_slink.duplicates import Duplicates as Duplicates
from rapids_slink.duplicates import deduplicate as deduplicate
from rapids_slink.files import deduplicate_files as deduplicate_files
from rapids_slink.graph import COMPLETE, GraphHierarchy
from rapids_slink.hdbscan import HDBSCAN as HDBSCAN
from rapids_slink.hierarchy import storage
from rapids_slink.items import without_features
from rapids_slink.items.search import kind_of
from rapids_slink.metrics import Metric, MetricName, Rows, get_metric
from rapids_slink.points import Scaled as Scaled
from rapids_slink.points.keys import GroupBy
from rapids_slink.points.output import is_collection
from rapids_slink.report import Report, with_hints
from rapids_slink.runtime.device import Device, current_gpu, gpu_is_usable, resolve
from rapids_slink.runtime.device import DeviceUnavailableError as DeviceUnavailableError
from rapids_slink.runtime.memory import DeviceMemoryError as DeviceMemoryError
from rapids_slink.runtime.memory import free_memory as free_memory
from rapids_slink.runtime.memory import usable_cores
from rapids_slink.runtime.threads import Progress, progress_bar
from rapids_slink.single_linkage import PARAMETERS, engine_of
from rapids_slink.single_linkage import SingleLinkage as SingleLinkage
from rapids_slink.stages import connect as connect
from rapids_slink.stages import count_pairs as count_pairs
from rapids_slink.stages import cut as cut
from rapids_slink.stages import iter_pairs as iter_pairs
from rapids_slink.stages import knn_graph as knn_graph
from rapids_slink.stages import linkage as linkage
from rapids_slink.stages import minimum_spanning_tree as minimum_spanning_tree
from rapids_slink.stages import nearest_neighbors as nearest_neighbors
from rapids_slink.stages import pairs as pairs
from rapids_slink.stages import to_csr as to_csr
from rapids_slink.version import __version__

#: What the names of the packages begin with, whatever their builds for a version of CUDA are called.
PACKAGES = (
    "numpy", "pandas", "scipy", "scikit-learn", "numba", "pyarrow", "matplotlib", "cudf", "pylibraft", "cugraph",
    "cuml", "cupy", "nvidia-cuda-nvrtc",
)  # fmt: skip
#: By device, the rows and features of the tables that `compile` clusters: few rows, whose pairs are all compared; few
#: features; many of both.
SHAPES = {"cpu": ((500, 16), (9000, 3), (9000, 16)), "cuda": ((500, 16), (100_000, 3), (20_000, 32), (100_000, 64))}
#: The number of places that the rows of the second table of each shape are near. The first table is noise.
PLACES = 300


def fit(
    X: Any,
    n_clusters: int | str | None = None,
    *,
    distance_threshold: float | None = None,
    min_cluster_size: int | None = None,
    max_cluster_size: int | None = None,
    count_small: bool = True,
    metric: MetricName | Literal["precomputed"] = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    n_neighbors: int | None = None,
    min_samples: int | None = None,
    device: str = "auto",
    progress: bool | str = "auto",
    memory_limit: int | str | None = None,
    prediction_data: bool = False,
    groups: Any = None,
    dropna: bool = True,
    cannot_link: Any = None,
    **unknown: Never,
) -> SingleLinkage:
    """Cluster the rows of `X` by single linkage, as ``SingleLinkage(n_clusters, ...).fit(X)`` does.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        A row for each point: a table of cuDF, pandas, Polars or Arrow, an array, nested lists, or a Dask collection.
        Some metrics take text, sets or sparse matrices, and "precomputed" takes distances; see `SingleLinkage.fit`.
    n_clusters : int or "widest_gap", optional
        Cut the tree into exactly this many clusters, or at the widest gap between merges; see `cut`. By default 2,
        unless `distance_threshold`, `max_cluster_size`, `max_distance` or `min_similarity` is given.
    distance_threshold : float, optional
        Cut the tree at this distance instead: clusters at or above it are not merged.
    min_cluster_size : int, optional
        Label the rows of smaller clusters -1, so that a few outliers do not form a cluster.
    max_cluster_size : int, optional
        Split larger clusters further, until none has more rows; see `cut`.
    count_small : bool
        Whether smaller clusters count in `n_clusters`. False makes `n_clusters` clusters of at least
        `min_cluster_size` rows.
    metric : str
        The name of the distance, such as "euclidean", "cosine", "cityblock", "haversine" (radians), "hamming",
        "jaccard" or "levenshtein" (text). `SingleLinkage` lists all of them. "precomputed": `X` holds distances.
    p : float
        The exponent of minkowski, above 0.
    missing : {"pairwise", "hiercc"}, optional
        How rows with missing values are compared. "pairwise" leaves out the features that either row lacks. "hiercc"
        corrects for them as HierCC does. By default missing values are refused.
    missing_value : number, text, or list of these, optional
        Values that mean missing, besides nulls and NaN, such as 0 or "-".
    box : float or sequence of float, optional
        The length after which coordinates repeat: one for all columns, or one for each.
    scales : dict, optional
        Groups of columns, and the number by which each group's distance is divided, such as
        ``{("x", "y"): 500.0, "t": 3600.0}``. The distance of two rows is the largest of their groups' distances.
    max_distance : float, optional
        Do not merge clusters that are farther apart, and do not search beyond this distance. Without `n_clusters` and
        `distance_threshold` each tree of the forest is a cluster.
    min_similarity : float, optional
        Do not merge clusters that are less similar. It takes the place of `max_distance` for metrics that have a
        similarity, and is not rounded.
    n_neighbors : int, optional
        The length of the neighbour lists with which the search starts. It changes the time, never the result.
    min_samples : int, optional
        Cluster by mutual reachability, the distance of HDBSCAN. A row's core distance is that to its `min_samples`-th
        nearest other row.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" raises an error if there is none.
    progress : bool or "auto"
        Show a progress bar. "auto" shows one on a terminal or in Jupyter if the run will take more than ten seconds.
    memory_limit : int or str, optional
        The most memory that the run may take on top of its input: bytes, or text such as "8GiB". By default the free
        memory.
    prediction_data : bool
        Keep a copy of the rows, for `predict` and `append`.
    groups : column name, list of names, Series, array or DataFrame, optional
        Cluster the rows of each group by themselves. A column or columns of `X` name the groups, or a key for each row.
    dropna : bool
        Whether missing keys are an error. False makes them a group of their own.
    cannot_link : column name, Series, array or DataFrame, optional
        Rows that may not be in one cluster: pairs of row numbers, or a source for each row, of which a cluster may have
        one row. It needs `max_distance` or `min_similarity`; see `SingleLinkage.fit`.
    **unknown
        Any other name raises TypeError, whose message suggests the parameter that was meant.

    Returns
    -------
    SingleLinkage
        The fitted model; see its attributes.
    """
    parameters = locals()
    model = SingleLinkage(**{name: parameters[name] for name in PARAMETERS}, **unknown)
    return model.fit(X, groups=groups, dropna=dropna, cannot_link=cannot_link)


def plan(
    X: Any,
    n_clusters: int | str | None = None,
    *,
    distance_threshold: float | None = None,
    min_cluster_size: int | None = None,
    max_cluster_size: int | None = None,
    count_small: bool = True,
    metric: MetricName | Literal["precomputed"] = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    n_neighbors: int | None = None,
    min_samples: int | None = None,
    device: str = "auto",
    progress: bool | str = "auto",
    memory_limit: int | str | None = None,
    prediction_data: bool = False,
    groups: Any = None,
    dropna: bool = True,
    **unknown: Never,
) -> Report:
    """Tell what `fit` would do with these points: the way to the tree, the filter, the memory and the time.

    The points are read, the search is prepared as `fit` prepares it, and samples are clustered, for a few seconds. If
    `X` does not fit into memory, or is a shape, standard normal points stand for its values.

    Parameters
    ----------
    X : dataframe or array of shape (n, d), or the shape itself as a tuple (n, d)
        What `SingleLinkage.fit` takes, except Dask collections. A shape stands for float64 values.
    n_clusters, distance_threshold, min_cluster_size, max_cluster_size, count_small, metric, p, missing : optional
        See `fit`.
    missing_value, box, scales : optional
        See `fit`.
    max_distance, min_similarity, n_neighbors, min_samples, device, progress, memory_limit, prediction_data : optional
        See `fit`.
    groups, dropna : optional
        See `fit`. A shape takes no groups.
    **unknown
        Any other name raises TypeError, whose message suggests the parameter that was meant.

    Returns
    -------
    Report
        A dictionary that prints as text. ``device``, ``metric``, ``way`` and, if there is a search,
        ``neighbors["filter"]`` have the values of `report_`. ``memory["peak_bytes"]`` is the estimated peak on top of
        `X`. ``time["about_minutes"]`` estimates the time of the tree on this machine, from the time that samples take
        and the work that all rows need. It is missing if `fit` would make labels without a tree. ``fits`` is False if
        `fit` would raise an error: then ``refused`` is its message and ``instead`` names what fits.

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
    parameters = locals()
    if is_collection(X):
        raise TypeError("X is a Dask collection, whose fit no plan covers: pass the shape of a partition, (n, d)")
    model = SingleLinkage(**{name: parameters[name] for name in PARAMETERS}, **unknown)
    settings = model._settings()
    rule = model._cluster_rule(settings)
    if kind_of(settings.metric, X):
        raise ValueError(f"a plan is of rows of features, and {without_features(settings.metric)}")
    if groups is not None:
        return planning.plan(X, replace(settings, groups=GroupBy(groups, dropna)))
    return planning.plan(X, replace(settings, friends_within=rule.friends_within))


@with_hints(MEANINGS)
def fit_graph(
    edges: Any,
    n_clusters: int | str | None = None,
    *,
    n_nodes: int | None = None,
    distance_threshold: float | None = None,
    min_cluster_size: int | None = None,
    max_cluster_size: int | None = None,
    count_small: bool = True,
    complete: str = "keep",
    cannot_link: Any = None,
    device: str = "auto",
    memory_limit: int | str | None = None,
) -> GraphHierarchy:
    """Cluster the nodes of a weighted undirected graph by single linkage; a weight is any dissimilarity.

    Parameters
    ----------
    edges : DataFrame (cuDF, pandas, Polars or Arrow), sparse matrix, or graph of NetworkX or cuGraph
        A square sparse matrix (SciPy's or CuPy's) has an edge for each stored entry. A frame has these columns:
        ``src`` and ``dst``, the ends, both of one type: integers, strings or any other values that a frame can hold.
        ``weight``, the dissimilarity, any number. An edge may have one direction or both. Self-loops are ignored, and
        the lightest of parallel edges counts. Ids are node numbers if they are integers from 0 to four times the
        number of edges plus 1,023. Then all numbers up to the largest are nodes, with or without an edge. Other ids
        are names, and only the names that occur are nodes.
    n_clusters : int or "widest_gap", optional
        The number of clusters, from the number of connected components to the number of nodes. For "widest_gap" see
        `cut`.
    n_nodes : int, optional
        The number of nodes, with or without an edge. If it is given, all ids are node numbers, however large.
    distance_threshold : float, optional
        Merge only below this distance. By default, without `n_clusters`, every connected component is a cluster.
    min_cluster_size, max_cluster_size, count_small : optional
        See `cut`.
    complete : {"keep", "error"}
        What to do if the graph is not connected: keep a tree for each component, or raise an error.
    cannot_link : Series, dict, array or DataFrame, optional
        Nodes that may not be in one cluster. Either a source for each node: a cluster may have one node of each source,
        and null means no source. The sources are a Series whose index holds the ids, a dictionary by id, or an array if
        ids are node numbers. Or pairs of ids: a frame or an array of two columns. Ids that are no nodes are ignored.
        Edges are taken in ascending order of weight, equal ones in the order of their rows. An edge merges the clusters
        of its ends unless the new cluster would hold nodes that may not be together.
    device, memory_limit : str, int or str
        See `SingleLinkage`.

    Returns
    -------
    GraphHierarchy
        The model has `labels_`, `linkage_`, `mst_`, `cut` and the other attributes of `SingleLinkage`. `nodes_` holds
        the ids in the order of `labels_`, whose index they are if `labels_` is a Series of pandas or cuDF. The
        `linkage_` of n nodes in t trees has n - t rows: no merge connects two trees. With `cannot_link` a tree is a
        cluster that no further edge may merge, and ``report_["spanning_tree"]["refused"]`` is the number of edges that
        would have merged two clusters that may not be one.

    Raises
    ------
    ValueError, TypeError
        The edges or a parameter are not valid, or the graph is not connected and ``complete="error"``.
    DeviceMemoryError
        The work needs more memory than there is or than `memory_limit`.

    Examples
    --------
    Two sources, each without duplicates, so that a cluster has one record of each:

    >>> import pandas as pd, rapids_slink
    >>> edges = pd.DataFrame({"src": ["a1", "a1", "a2"], "dst": ["b1", "b2", "b1"], "weight": [0.1, 0.2, 0.3]})
    >>> source = {"a1": "A", "a2": "A", "b1": "B", "b2": "B"}
    >>> model = rapids_slink.fit_graph(edges, cannot_link=source, device="cpu")
    >>> model.labels_.to_dict()
    {'a1': 0, 'a2': 1, 'b1': 0, 'b2': 2}
    >>> model.report_["spanning_tree"]["refused"]
    2
    """
    if complete not in COMPLETE:
        raise ValueError(f"complete must be one of {', '.join(map(repr, COMPLETE))}, got {complete!r}")
    if complete == "error" and cannot_link is not None:
        raise ValueError("complete='error' asks for one tree, and cannot_link keeps trees apart: leave complete out")
    cut = Cut(
        n_clusters, distance_threshold, min_cluster_size, max_cluster_size=max_cluster_size, count_small=count_small
    ).checked()
    return engine_of(edges).fit_graph(
        edges,
        cut=cut,
        n_nodes=n_nodes,
        complete=complete,
        cannot_link=cannot_link,
        device=device,
        memory_limit=memory_limit,
    )


def load(path: str | PathLike[str], *, device: str = "auto") -> SingleLinkage | HDBSCAN | GraphHierarchy:
    """Read a saved hierarchy.

    Parameters
    ----------
    path : path
        A file written by ``model.save(path)``. Opening it runs no code from the file.
    device : {"auto", "cpu", "cuda"}
        "auto" restores the frames, Series and arrays in their libraries; without a GPU cuDF becomes pandas and CuPy
        becomes NumPy. "cpu" gives pandas and NumPy, and Polars or Arrow where these were saved; "cuda" gives cuDF and
        CuPy. Objects of pandas are proxies if ``cudf.pandas`` is active now. The bits are the same, and the model keeps
        its parameter ``device`` for its next fit.

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


def compile(device: str = "auto", *, metrics: Collection[str] = ("euclidean",), progress: bool = False) -> float:
    """Compile what usual fits need, so that no first fit on this machine waits for it.

    It clusters random tables of several shapes by `SingleLinkage` and `HDBSCAN`, in float32 and float64. The compiled
    kernels are kept on disk, those of a CPU in ``NUMBA_CACHE_DIR`` and those of a GPU in ``CUPY_CACHE_DIR`` if these
    are set. Call it where an image for containers is built, or once on every machine of a cluster. A GPU's kernels are
    compiled for the current GPU's architecture alone.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        The device whose kernels are compiled. "auto" takes a GPU if there is one.
    metrics : collection of str
        The metrics of the fits.
    progress : bool
        Show a progress bar.

    Returns
    -------
    float
        The seconds that it took.

    Raises
    ------
    ValueError
        A metric is not known, or is "precomputed", which computes no distances. The message lists the valid ones.
    DeviceUnavailableError
        There is no GPU for ``device="cuda"``.

    Examples
    --------
    >>> import rapids_slink
    >>> seconds = rapids_slink.compile(device="cpu")  # doctest: +SKIP
    """
    start, chosen = time.perf_counter(), resolve(device)
    names = [metrics] if isinstance(metrics, str) else metrics
    kinds: tuple[Any, ...] = SingleLinkage, HDBSCAN
    fits = [
        (kind(metric=metric.name, device=chosen.name), rows)
        for metric in map(get_metric, names)
        for rows in _tables(metric, SHAPES[chosen.name])
        for kind in kinds
    ]
    with progress_bar(
        len(fits), Progress("compiling", sum(len(rows) for _, rows in fits)) if progress else None
    ) as advance:
        if chosen.is_gpu:
            with ThreadPoolExecutor(min(len(fits), usable_cores())) as threads:
                for _ in threads.map(partial(_fit_on, current_gpu(), chosen), fits):
                    advance()
        else:  # Numba compiles one function at a time
            for model, rows in fits:
                model.fit(rows)
                advance()
    return time.perf_counter() - start


def _fit_on(gpu: int, device: Device, fit: tuple[Any, np.ndarray]) -> None:
    """Fit a model on this GPU in a thread, whose current GPU may be another one."""
    with device.xp.cuda.Device(gpu):
        fit[0].fit(fit[1])


def _tables(metric: Metric, shapes: Collection[tuple[int, int]]) -> Iterator[np.ndarray]:
    """Yield tables of rows that the metric takes, for each shape.

    All values are random. A metric of numbers gets two tables for each shape, noise and rows near few places, and each
    of them in float32 and in float64.
    """
    rng = np.random.default_rng(0)
    for n, d in shapes:
        if metric.rows.are_packed:
            yield rng.integers(0, 256, (n, d), np.uint8)
        elif metric.rows is Rows.BOOLEAN:
            yield (rng.random((n, d)) < 0.5) | (np.arange(d) == 0)  # no row of zeros alone
        elif metric.rows is Rows.SPHERE:
            yield rng.uniform(-1, 1, (n, 2))
        else:
            places = 10 * rng.standard_normal((PLACES, d))
            for rows in (rng.standard_normal((n, d)), rng.standard_normal((n, d)) + places[rng.integers(0, PLACES, n)]):
                yield from (rows.astype("float32"), rows)


def show_versions() -> None:
    """Print the versions of this package, of Python and of the installed dependencies, and the GPU.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.show_versions()  # doctest: +ELLIPSIS
    rapids_slink  ...
    """
    lines = [("rapids_slink", __version__), ("Python", sys.version.split()[0])]
    lines.append(("system", f"{platform.system()} {platform.release()}, {platform.machine()}"))
    lines += sorted({(d.name, d.version) for d in distributions() if (d.name or "").startswith(PACKAGES)})
    lines.append(("GPU", _gpu()))
    width = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{width}}{number}" for name, number in lines))


def _gpu() -> str:
    if not gpu_is_usable():
        return "none that can be used"
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return (
        f"{properties['name'].decode()}, compute capability {properties['major']}.{properties['minor']}, "
        f"CUDA {runtime.runtimeGetVersion()}, driver for CUDA {runtime.driverGetVersion()}"
    )

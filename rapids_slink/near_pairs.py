"""The public functions of pairs within a distance; each passes its input to an engine, see `engine_of`."""

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from itertools import product
from numbers import Real
from typing import Any, cast

import numpy as np

from rapids_slink.dendrogram.cutting import distance_limit
from rapids_slink.metrics import Metric, MetricName
from rapids_slink.neighbors.within import PairTask
from rapids_slink.points.check import MAX_ROWS, as_integer, column_values, require_edges
from rapids_slink.points.output import Distances, Frame, OutputKind, Values, library_of
from rapids_slink.runtime.device import device_of, resolve
from rapids_slink.runtime.memory import as_bytes
from rapids_slink.runtime.threads import shown_progress
from rapids_slink.settings import metric_of, missing_values_of
from rapids_slink.single_linkage import engine_of


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
    """Return all pairs of rows of `X` within a distance, or of a row of `X` and one of `Y`; exact, each pair once.

    Parameters
    ----------
    X, Y : dataframe or array, (n, d) and (m, d)
        See `knn_graph`. Without `Y` the pairs are of two rows of `X`.
    max_distance : float
        The largest distance; pairs at exactly this distance are among the result.
    min_similarity : float
        In place of it, the least similarity, for jaccard, dice, containment, bit_jaccard, cosine and correlation; pairs
        of exactly this similarity are among the result. See `SingleLinkage`.
    names : bool
        Whether ``src`` and ``dst`` are the rows' names in the index of a frame of pandas or cuDF, not row numbers.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".
    progress : bool or "auto"
        Show a progress bar; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``src``, ``dst`` (int32 row numbers) and ``weight`` (float64 distance), sorted by ``src``, then by ``dst``.
        Without `Y` src < dst; otherwise ``src`` is a row of `X` and ``dst`` one of `Y`. In the library of `X`; for an
        array cuDF if it is on a GPU, else pandas. Of a Dask collection a Dask DataFrame.

    Raises
    ------
    ValueError, TypeError
        `X`, `Y` or a parameter is not valid, or a row has no distance in this metric. The message names it.
    DeviceMemoryError
        The pairs do not fit into memory or into `memory_limit`; the message has their number. `iter_pairs` makes them
        in parts. Or the search does not fit.

    See Also
    --------
    count_pairs : Their number alone.
    iter_pairs : Frames of ranges of rows.
    to_csr : The frame as a sparse matrix, such as for ``DBSCAN(metric="precomputed")``.
    deduplicate : The groups that the pairs connect, without the pairs.

    Notes
    -----
    A filter in low precision rules pairs out under a proven bound, and the distances of the others decide, so no pair
    is lost and none is too many. `fit_graph`, `minimum_spanning_tree` and cuGraph take the frame as it is.

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
        See `pairs`. One, or several in any order, whose counts come from one pass.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".
    progress : bool or "auto"
        Show a progress bar; see `SingleLinkage`.

    Returns
    -------
    int, or ndarray of int64
        How many rows `pairs` would return; for several distances an array of NumPy with a count for each.

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
        See `pairs`, except Dask collections, whose pairs are in partitions.
    max_distance, min_similarity : float
        See `pairs`.
    rows : int
        How many rows of `X` have their pairs in a frame.
    names : bool
        See `pairs`.
    metric, p, missing, missing_value, box, scales, device, memory_limit : optional
        See `SingleLinkage`, except "precomputed".

    Returns
    -------
    iterator of DataFrame
        The pairs whose ``src`` is among the first `rows` rows, then those of the next, and so on, n / `rows` frames in
        all; one after the other they are the frame of `pairs`.

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
    frames: Iterator[Frame] = engine_of(X, Y, metric=chosen).iter_pairs(X, Y, task, int(rows), device)
    return frames


def to_csr(pairs: Any, n_rows: int | None = None, n_columns: int | None = None) -> Any:
    """Return the sparse matrix of a frame of `pairs`.

    Parameters
    ----------
    pairs : DataFrame (cuDF, pandas, Polars or Arrow)
        ``src``, ``dst`` (row numbers) and ``weight``.
    n_rows : int
        The number of rows of `X`, of which some may have no pair.
    n_columns : int, optional
        The number of rows of `Y` if the pairs are of two sets. By default they are of one: the matrix is symmetric.

    Returns
    -------
    csr_matrix
        SciPy's or, of cuDF's frames, CuPy's, float64. A stored zero is a distance of zero; what is not stored is more
        than the pairs' distance. A symmetric matrix stores its diagonal, too, and each row is sorted by distance: so
        ``sklearn.cluster.DBSCAN(eps, metric="precomputed")`` takes it without a copy or a warning.

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

"""SciPy's ``linkage`` for scripts that call it, and its functions of a linkage for arrays on a GPU.

``from rapids_slink.scipy import cophenet, fcluster, leaves_list, linkage``
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

# SciPy's own, also where a script puts these functions in their place.
from scipy.cluster.hierarchy import cophenet as scipys_cophenet
from scipy.cluster.hierarchy import fcluster as scipys_fcluster
from scipy.cluster.hierarchy import leaves_list as scipys_leaves_list
from scipy.cluster.hierarchy import linkage as scipys_linkage
from scipy.cluster.hierarchy import optimal_leaf_ordering
from scipy.spatial import distance

from rapids_slink.api import fit
from rapids_slink.metrics import METRICS
from rapids_slink.points import warn_of_distances
from rapids_slink.points.output import array_of, as_frame, library_of
from rapids_slink.runtime.device import CPU, cuda, is_on_gpu, to_host
from rapids_slink.runtime.memory import usual_errors

#: The methods that SciPy computes.
OTHER_METHODS = ("average", "centroid", "complete", "median", "ward", "weighted")
#: SciPy's metrics that are computed here, for rows of any numbers. SciPy's `pdist`, which takes any number as a
#: boolean, computes the others.
OWN_METRICS = {name for name, own in METRICS.items() if own.rows != "boolean"} & set(distance.__all__)


def linkage(
    y: Any, method: str = "single", metric: Any = "euclidean", optimal_ordering: bool = False, *, device: str = "auto"
) -> np.ndarray:
    """Return what `scipy.cluster.hierarchy.linkage` returns; ``method="single"`` is computed here, on a GPU or a CPU.

    Parameters
    ----------
    y : array
        Observations, (n, d), or a condensed distance vector, (n(n - 1)/2,), in NumPy, CuPy or any other type that
        `rapids_slink.fit` takes.
    method : str
        Any method except "single" is passed on to SciPy, with a warning.
    metric : str or callable
        A metric of SciPy. `scipy.spatial.distance.pdist` computes those that this package lacks.
    optimal_ordering : bool
        Whether SciPy reorders the leaves, in O(n²).
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one.

    Returns
    -------
    ndarray of shape (n - 1, 4), float64
        SciPy's Z: the heights to the last bit, and all of Z if no two distances tie.

    Raises
    ------
    ValueError
        When SciPy's function raises it.
    DeviceUnavailableError, DeviceMemoryError
        See `rapids_slink.fit`.

    Examples
    --------
    >>> from rapids_slink.scipy import linkage
    >>> linkage([[0.0], [1.0], [5.0]], "single", device="cpu").tolist()
    [[0.0, 1.0, 1.0, 2.0], [2.0, 3.0, 4.0, 3.0]]
    """
    if method != "single":
        if method in OTHER_METHODS:
            warnings.warn(f"method={method!r} is handed to SciPy, which computes it on the CPU", stacklevel=2)
        return scipys_linkage(to_host(_as_array(y)), method, metric, optimal_ordering)
    y = _as_array(y)
    if y.ndim == 2 and not (y.shape[0] > 1 and y.shape[1] and metric in OWN_METRICS):
        y = to_host(y)
        with usual_errors():
            warn_of_distances(y, CPU)
        y = distance.pdist(y, metric)
    if y.ndim == 1:
        condensed = to_host(y)
        distance.is_valid_y(condensed, throw=True, name="y")
        distance.num_obs_y(condensed)  # refuses an empty vector
        if not np.isfinite(condensed).all():
            raise ValueError("The condensed distance matrix must contain only finite values.")
        metric = "precomputed"
    elif y.ndim != 2:
        raise ValueError("`y` must be 1 or 2 dimensional.")
    Z = fit(y, n_clusters=1, metric=metric, device=device).to_scipy()
    return optimal_leaf_ordering(Z, to_host(y), metric) if optimal_ordering else Z


def fcluster(
    Z: Any, t: float, criterion: str = "inconsistent", depth: int = 2, R: Any = None, monocrit: Any = None
) -> Any:
    """Return what `scipy.cluster.hierarchy.fcluster` computes, for a `Z` on a GPU too.

    Parameters
    ----------
    Z : array or DataFrame, (n - 1, 4)
        A linkage in NumPy or CuPy, or a model's `linkage_`.
    t, criterion, depth, R, monocrit
        See SciPy's function; the arrays may be on a GPU.

    Returns
    -------
    ndarray of shape (n,), int32
        The cluster of each row, from 1 on: an array of CuPy if `Z` is on a GPU.

    Raises
    ------
    ValueError, TypeError
        When SciPy's function raises them.

    Examples
    --------
    >>> from rapids_slink.scipy import fcluster, linkage
    >>> fcluster(linkage([[0.0], [1.0], [5.0]], device="cpu"), 2, "distance").tolist()
    [1, 1, 2]
    """
    R, monocrit = (None if array is None else to_host(array) for array in (R, monocrit))
    return _by_scipy(scipys_fcluster, Z, t, criterion, depth, R, monocrit)


def cophenet(Z: Any, Y: Any = None) -> Any:
    """Return what `scipy.cluster.hierarchy.cophenet` computes, for a `Z` on a GPU too.

    Parameters
    ----------
    Z : array or DataFrame, (n - 1, 4)
        A linkage in NumPy or CuPy, or a model's `linkage_`.
    Y : array, (n(n - 1)/2,), optional
        The distances of all pairs, to correlate with.

    Returns
    -------
    ndarray of shape (n(n - 1)/2,), float64
        The height at which each pair is merged: an array of CuPy if `Z` is on a GPU. With `Y` the result is a tuple of
        the correlation of both, a number, and these heights.

    Raises
    ------
    ValueError, TypeError
        When SciPy's function raises them.

    Examples
    --------
    >>> from rapids_slink.scipy import cophenet, linkage
    >>> cophenet(linkage([[0.0], [1.0], [5.0]], device="cpu")).tolist()
    [1.0, 4.0, 4.0]
    """
    return _by_scipy(scipys_cophenet, Z, None if Y is None else to_host(_as_array(Y)))


def leaves_list(Z: Any) -> Any:
    """Return what `scipy.cluster.hierarchy.leaves_list` computes, for a `Z` on a GPU too.

    Parameters
    ----------
    Z : array or DataFrame, (n - 1, 4)
        A linkage in NumPy or CuPy, or a model's `linkage_`.

    Returns
    -------
    ndarray of shape (n,), int32
        The rows from left to right in the dendrogram: an array of CuPy if `Z` is on a GPU.

    Raises
    ------
    ValueError, TypeError
        When SciPy's function raises them.

    Examples
    --------
    >>> from rapids_slink.scipy import leaves_list, linkage
    >>> leaves_list(linkage([[0.0], [5.0], [1.0]], device="cpu")).tolist()
    [1, 0, 2]
    """
    return _by_scipy(scipys_leaves_list, Z)


def _by_scipy(function: Callable[..., Any], Z: Any, *rest: Any) -> Any:
    """Return the result of a function of SciPy for a linkage, with its arrays on the device of the linkage."""
    Z = _as_array(Z)
    result = function(to_host(Z), *rest)
    if not is_on_gpu(Z):
        return result
    move = cuda().asarray
    return (
        tuple(move(part) if np.ndim(part) else part for part in result) if isinstance(result, tuple) else move(result)
    )


def _as_array(y: Any) -> Any:
    """Return `y` as an array, of CuPy if it is on a GPU, else of NumPy; raise SciPy's error unless it has numbers."""
    if library_of(y):
        y = array_of(as_frame(y))
    if is_on_gpu(y):
        return y
    is_plain = hasattr(y, "ndim") and getattr(y.dtype, "kind", "f") in "biufc"
    return y if is_plain else np.asarray(y, np.float64)

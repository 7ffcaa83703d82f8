"""SciPy's ``linkage`` for scripts that call it, and its functions of a linkage for arrays on a GPU.

>>> from rapids_slink.scipy import cophenet, fcluster, leaves_list, linkage
>>> Z = linkage([[0.0], [5.0], [1.0]], device="cpu")
>>> fcluster(Z, 2, "distance").tolist()
[1, 2, 1]
>>> cophenet(Z).tolist()
[4.0, 1.0, 4.0]
>>> leaves_list(Z).tolist()
[1, 0, 2]
"""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial import distance

from rapids_slink.api import fit
from rapids_slink.metrics import METRICS
from rapids_slink.points import warn_of_distances
from rapids_slink.points.output import array_of, as_frame, library_of
from rapids_slink.runtime.device import CPU, cuda, is_on_gpu, to_host
from rapids_slink.runtime.memory import usual_errors

#: SciPy's own, also where a script puts the function of this module in its place.
scipys_linkage = hierarchy.linkage
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
    return hierarchy.optimal_leaf_ordering(Z, to_host(y), metric) if optimal_ordering else Z


def _of_linkage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return SciPy's function of a linkage as one that takes a linkage on a GPU too, or a model's `linkage_`."""

    @wraps(function, ("__name__", "__qualname__"))
    def on_its_device(Z: Any, *others: Any, **more: Any) -> Any:
        Z = _as_array(Z)
        result = function(to_host(Z), *map(_on_host, others), **{name: _on_host(value) for name, value in more.items()})
        if not is_on_gpu(Z):
            return result
        move = cuda().asarray
        if isinstance(result, tuple):
            return tuple(move(part) if np.ndim(part) else part for part in result)
        return move(result)

    on_its_device.__doc__ = f"""Return what SciPy's `{function.__name__}` does, also for a linkage on a GPU.

    Parameters and errors are those of SciPy's function. `Z` is a linkage, (n - 1, 4), in NumPy or CuPy, or a model's
    `linkage_`. Other arrays may be on a GPU, too. The arrays of the result are CuPy's if `Z` is on a GPU, else NumPy's.
    """
    return on_its_device


cophenet, fcluster, leaves_list = map(_of_linkage, (hierarchy.cophenet, hierarchy.fcluster, hierarchy.leaves_list))


def _on_host(value: Any) -> Any:
    return to_host(_as_array(value)) if library_of(value) or is_on_gpu(value) else value


def _as_array(y: Any) -> Any:
    """Return `y` as an array, of CuPy if it is on a GPU, else of NumPy; raise SciPy's error unless it has numbers."""
    if library_of(y):
        y = array_of(as_frame(y))
    if is_on_gpu(y):
        return y
    is_plain = hasattr(y, "ndim") and getattr(y.dtype, "kind", "f") in "biufc"
    return y if is_plain else np.asarray(y, np.float64)

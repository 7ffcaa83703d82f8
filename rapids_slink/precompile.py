"""Compiling before a first fit, for images of containers and the workers of clusters."""

import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from rapids_slink.hdbscan import HDBSCAN
from rapids_slink.metrics import Metric, Rows, get_metric
from rapids_slink.runtime.device import Device, current_gpu, resolve
from rapids_slink.runtime.memory import usable_cores
from rapids_slink.runtime.threads import Progress, progress_bar
from rapids_slink.single_linkage import SingleLinkage

#: By device, the rows and features of the tables: few rows, whose pairs are all compared; few features; many of both.
SHAPES = {"cpu": ((500, 16), (9000, 3), (9000, 16)), "cuda": ((500, 16), (100_000, 3), (20_000, 32), (100_000, 64))}
#: The number of places that the rows of the second table of each shape are near. The first table is noise.
PLACES = 300


def compile(device: str = "auto", *, metrics: Collection[str] = ("euclidean",), progress: bool = False) -> float:
    """Compile what usual fits need, so that no first fit on this machine waits for it.

    Tables of random rows are clustered, of few and many rows and features, in float32 and float64, by `SingleLinkage`
    and `HDBSCAN`. The compiled kernels are kept on disk, a CPU's in ``NUMBA_CACHE_DIR`` and a GPU's in
    ``CUPY_CACHE_DIR`` if these are set. Call it where an image for containers is built, or once on every machine of a
    cluster. What runs on a GPU is compiled for the kind of the current one alone.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        Whose kernels; "auto" takes a GPU if there is one.
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
        A metric is not known, or is "precomputed", which computes no distances. The message has the valid ones.
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

    They are random. Of metrics of numbers there is a second table of rows that are near few places, and each table is
    in float32 and in float64.
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

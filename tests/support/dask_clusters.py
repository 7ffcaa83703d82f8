"""Clusters of Dask on this machine, and frames in partitions; a module that imports it is skipped without Dask."""

import numpy as np
import pandas as pd
import pytest

dask_distributed = pytest.importorskip("distributed", reason="distributed is not installed")
dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")

from distributed.utils import get_mp_context  # noqa: E402

from rapids_slink.points.output import on_host  # noqa: E402


def start(workers, **more):
    """Start a cluster of processes, forked from one that has imported what they need.

    The next cluster comes up in no time.
    """
    # CPython 3.11 may deadlock if a thread ends while the profiler looks at all threads (gh-106883).
    dask.config.set(
        {"distributed.worker.profile.enabled": False, "distributed.worker.multiprocessing-method": "forkserver"}
    )
    get_mp_context().set_forkserver_preload(["distributed", "rapids_slink.distributed"])
    return _local(workers, processes=True, **more)


def workers_within_this_process(n_workers):
    """Start a cluster of threads whose workers have no limit of memory.

    Dask pauses a worker while its process has more than 80 % of the worker's limit, and counts all that the process
    has. This process keeps what earlier tests have compiled: the workers might never go on.
    """
    return _local(n_workers, processes=False, memory_limit=0)


def _local(n_workers, **how):
    return dask_distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50, **how
    )


def collection(X, sizes):
    """Return rows as a frame, and as a Dask DataFrame in partitions of these sizes without known divisions."""
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(np.shape(X)[1])])
    stops = np.cumsum(sizes)
    assert stops[-1] == len(frame)
    parts = [frame.iloc[stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]
    return frame, from_delayed(parts)


def from_delayed(parts):
    """Return a collection of these partitions, which says that all have the columns of the first."""
    return dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[0].head(0), verify_meta=False)


def assert_same(found, expected):
    """Assert that two models have the same frames and labels."""
    for name in ("linkage_", "mst_", "labels_"):
        ours, theirs = on_host(getattr(found, name)), on_host(getattr(expected, name))
        if isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)
        elif theirs.ndim == 2:
            pd.testing.assert_frame_equal(ours, theirs)
        else:
            pd.testing.assert_series_equal(ours, theirs)

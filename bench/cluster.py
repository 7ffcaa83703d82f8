"""A Dask cluster on this machine, for the stage that works on a Dask frame."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rapids_slink.runtime.device import Device


@contextmanager
def cluster_of(workers: int, device: Device) -> Iterator[Any]:
    """Start a cluster whose client is the current one: a GPU for each worker, or one for all where there are too few.

    Several GPUs move their blocks through UCX, if it is installed.
    """
    from distributed import Client, LocalCluster

    kind: Any = LocalCluster
    how = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    if device.is_gpu and workers <= device.xp.cuda.runtime.getDeviceCount():
        from dask_cuda import LocalCUDACluster

        kind = LocalCUDACluster
        if workers > 1 and importlib.util.find_spec("distributed_ucxx"):
            how["protocol"] = "ucx"
    with kind(**how) as cluster, Client(cluster) as client:
        yield client

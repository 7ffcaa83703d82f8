"""The kernels of linkages and cuts that each device has."""

from typing import Any, Protocol

import numpy as np

from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    def merge_in_order(
        self, src: Array, dst: Array, n: int, left_child: Array, right_child: Array, size: Array
    ) -> int: ...
    def label_clusters(self, left_child: Array, right_child: Array, n: int) -> Array: ...
    def sum_up_clusters(self, cluster: Array, departure: Array, birth: np.ndarray, weight: np.ndarray) -> Any: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.dendrogram import cuda

        return cuda
    from rapids_slink.dendrogram import cpu

    return cpu

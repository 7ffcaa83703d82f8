"""The kernels of the tree of a distance matrix that each device has."""

from collections.abc import Mapping
from typing import Protocol

from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    def find_cores(self, matrix: Array, min_samples: int) -> Array: ...
    def tree_of_matrix(self, matrix: Array, core: Array, edges: Mapping[str, Array]) -> None: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.spanning_tree.pairs import cuda

        return cuda
    from rapids_slink.spanning_tree.pairs import cpu

    return cpu

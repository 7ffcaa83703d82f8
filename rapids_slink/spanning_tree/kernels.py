"""The kernels of forests of neighbour lists that each device has."""

from typing import Protocol

from rapids_slink.neighbors.task import NeighborLists, SearchResult
from rapids_slink.runtime.device import Array, Device
from rapids_slink.spanning_tree.forest import LEAST_SHARE, Forest, Growth


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    def connected_components(self, ids: Array) -> int: ...
    def boruvka_rounds(self, lists: NeighborLists, forest: Forest, least_share: int = LEAST_SHARE) -> Growth: ...
    def rows_to_search(self, forest: Forest) -> Array: ...
    def rows_of_small_components(self, forest: Forest, rows: Array, max_rows: int) -> Array: ...
    def record_search(self, forest: Forest, rows: Array, result: SearchResult) -> None: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.spanning_tree import cuda

        return cuda
    from rapids_slink.spanning_tree import cpu

    return cpu

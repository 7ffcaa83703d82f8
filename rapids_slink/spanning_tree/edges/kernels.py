"""The kernels of forests of edge lists that each device has."""

from typing import Any, Protocol

from rapids_slink.runtime.device import Array, Device
from rapids_slink.spanning_tree.edges.edge_list import EdgeList


class Kernels(Protocol):
    """`cpu` or `cuda`. Each keeps its own state over the rounds, with `in_forest` and `parent`."""

    LARGE: int
    SPARE: float

    def workspace(self, first: int, m: int, n: int, itemsize: int) -> int: ...
    def start(self, edges: EdgeList, part: int) -> Any: ...
    def boruvka_rounds(self, edges: EdgeList, state: Any, part: int, limit: int | None) -> None: ...
    def flatten(self, parent: Array) -> None: ...
    def keys_of_rows(self, edges: EdgeList, rows: Array) -> Array: ...
    def number_by_appearance(self, labels: Array, n_labels: int) -> Array: ...
    def inspect(self, src: Array, dst: Array, weight: Array) -> tuple[int, int, bool]: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.spanning_tree.edges import cuda

        return cuda
    from rapids_slink.spanning_tree.edges import cpu

    return cpu

"""What either device does for tiles."""

from typing import Any, Protocol

from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    def cut(self, sample: Array, leaf: int, min_run: int) -> Any: ...
    def leaves(self, cuts: Any, coordinates: Array) -> Array: ...


def kernels(device: Device) -> Any:
    """Those of the device."""
    if device.is_gpu:
        from rapids_slink.neighbors.tiles import cuda

        return cuda
    from rapids_slink.neighbors.tiles import cpu

    return cpu

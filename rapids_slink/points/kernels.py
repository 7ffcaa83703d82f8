"""The kernels of the points' values that each device has."""

from typing import Protocol

from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    def squares_are_finite(self, *parts: Array) -> list[bool]: ...
    def is_symmetric(self, matrix: Array) -> bool: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.points import cuda

        return cuda
    from rapids_slink.points import cpu

    return cpu

"""What either device does for the product filter."""

from collections.abc import Sequence
from typing import Protocol

from rapids_slink.neighbors.filter.bounds import UpperBound
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling, ValueRange
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    TILE_ROWS: int
    TILE_POINTS: int

    def products_keep_bound(self) -> bool: ...
    def quantize(self, values: Array, scaling: Scaling, order: Array = None) -> QuantizedPoints: ...
    def product(self, rows: QuantizedPoints, points: QuantizedPoints) -> Array: ...
    def centre_of_rows(self, values: Array, step: int) -> Array: ...
    def value_ranges(self, point_sets: Sequence[Array], centre: Array) -> list[ValueRange]: ...
    def seed_bounds(
        self,
        product: Array,
        queries: QuantizedPoints,
        points: QuantizedPoints,
        task: SearchTask,
        upper_bound: UpperBound,
        bound: Array,
    ) -> None: ...


def kernels(device: Device) -> Kernels:
    """Those of the device."""
    if device.is_gpu:
        from rapids_slink.neighbors.filter import cuda

        return cuda
    from rapids_slink.neighbors.filter import cpu

    return cpu

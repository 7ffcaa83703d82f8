"""What either device does for the product filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.bounds import UpperBound
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling, ValueRange
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.device import Device


class Kernels(Protocol):
    """`cpu` or `cuda`; each has a workspace of its own for tiles of products."""

    FILTER_DTYPE: str
    FILTER_NAME: str
    ITEM_BYTES: int
    TILE_ROWS: int
    TILE_POINTS: int
    Workspace: Any

    def keeps_accumulation_bound(self, dtype: str) -> bool: ...
    def quantize(self, values: Array, scaling: Scaling, dtype: str, order: Array = None) -> QuantizedPoints: ...
    def centre_of_rows(self, values: Array, step: int) -> Array: ...
    def value_ranges(self, point_sets: Sequence[Array], centre: Array) -> list[ValueRange]: ...
    def to_uint8(self, values: Array, scaling: Scaling) -> Array: ...
    def append_candidates(
        self,
        product: Array,
        rows: QuantizedPoints,
        points: QuantizedPoints,
        radius: Array,
        groups: tuple[Array, Array],
        ids: Array,
        into: Candidates,
    ) -> None: ...
    def seed_bounds(
        self,
        product: Array,
        rows: QuantizedPoints,
        points: QuantizedPoints,
        groups: tuple[Array, Array],
        ids: Array,
        k: int,
        upper_bound: UpperBound,
        bound: Array,
        core: tuple[Array, Array] | None = None,
    ) -> None: ...


def kernels(device: Device) -> Kernels:
    """Those of the device."""
    if device.is_gpu:
        from rapids_slink.neighbors.filter import cuda

        return cuda
    from rapids_slink.neighbors.filter import cpu

    return cpu

"""What either device does for tiles."""

from typing import Any, NamedTuple

from rapids_slink.runtime.device import Array, Device


class Lists(NamedTuple):
    """A list of tiles of points for each block of rows."""

    begins: Array  # (blocks,) int64: where a block's begin among the tiles, and where they end
    ends: Array
    tiles: Array  # int32; a GPU's are one at least
    longest: int  # the most tiles of a list, or more
    lengths: Any  # (blocks,) int64 of NumPy's, on the host; None where they are not known there


class Rows(NamedTuple):
    """The rows of a search in s slots."""

    ids: Array  # (s,) int32, a row; any where a slot is empty
    real: Array  # (s,) int32, the same, -1 where a slot is empty
    groups: Array  # (s,) int32
    bound: Array  # (s,) float64, -infinity where a slot is empty
    where: Array  # (s,) int32, their slots among all points
    in_terms: Array  # (s,) int32, the same counted from the first slot of the terms
    cells: Array  # (s / TILE,) int32, their tiles' cells, counted from the first of the terms


def kernels(device: Device) -> Any:
    """Those of the device."""
    if device.is_gpu:
        from rapids_slink.neighbors.tiles import cuda

        return cuda
    from rapids_slink.neighbors.tiles import cpu

    return cpu

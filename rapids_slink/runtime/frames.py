"""Dataframes over arrays: columns that are allocated first, written by kernels, and handed on as a frame.

The edge lists of a run are such frames, with the columns of `EDGE_TYPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rapids_slink.runtime.device import Device
from rapids_slink.runtime.memory import outside_pool

#: The columns of an edge frame.
EDGE_TYPES = {"src": "int32", "dst": "int32", "weight": "float64"}
#: Bytes that columns in one block start at multiples of, as device allocations do.
ALIGNMENT = 256


@dataclass(frozen=True)
class PreallocatedFrame:
    """A dataframe and its columns, which share memory: what is written into the arrays is in the frame.

    Attributes
    ----------
    frame : DataFrame
        pandas' or cuDF's, without nulls.
    columns : dict of str to array
        Of the device. NaN must not be written into them.
    """

    frame: Any
    columns: dict[str, Any]

    @classmethod
    def empty(cls, device: Device, rows: int, dtypes: Mapping[str, Any]) -> PreallocatedFrame:
        """A frame whose values are still to be written; a GPU's outlives the run's pool."""
        with outside_pool(device):
            return cls._over(_empty_columns(device.xp, rows, dtypes), device)

    @classmethod
    def _over(cls, columns: dict[str, Any], device: Device) -> PreallocatedFrame:
        """The frame of some arrays, which it shares."""
        sharing = {"nan_as_null": False} if device.is_gpu else {"copy": False}
        return cls(device.frames.DataFrame(columns, **sharing), columns)


def frame_of(device: Device, columns: Mapping[str, Any]) -> Any:
    """A frame of the given arrays of the device, which hold no NaN; a GPU's are copied out of the run's pool."""
    if not device.is_gpu:
        return PreallocatedFrame._over(dict(columns), device).frame
    rows = max((array.size for array in columns.values()), default=0)
    made = PreallocatedFrame.empty(device, rows, {name: array.dtype for name, array in columns.items()})
    for name, array in columns.items():
        made.columns[name][...] = array
    return made.frame


def _empty_columns(xp: Any, rows: int, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays in one block of memory: a GPU's allocations take longer than what is written into them."""
    sizes = [-(-rows * xp.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT for dtype in dtypes.values()]
    block, start, columns = xp.empty(sum(sizes), "uint8"), 0, {}
    for (name, dtype), size in zip(dtypes.items(), sizes, strict=True):
        columns[name] = block[start : start + rows * xp.dtype(dtype).itemsize].view(dtype)
        start += size
    return columns

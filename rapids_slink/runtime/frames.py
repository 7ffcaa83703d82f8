"""Dataframes over arrays: columns are allocated first, kernels write them, and the next stage gets a frame.

The edge lists of a run are such frames, with the columns of `EDGE_TYPES`.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.memory import outside_pool

#: The columns of an edge frame.
EDGE_TYPES = {"src": "int32", "dst": "int32", "weight": "float64"}
#: Columns in one block start at multiples of this many bytes, like device allocations.
ALIGNMENT = 256


@dataclass(frozen=True)
class PreallocatedFrame:
    """A dataframe over columns that are written first. Stages pass it to each other."""

    columns: dict[str, Any]  # dict of str to array of the device, without NaN
    device: Device
    block: Array = None  # uint8, what holds the columns of a GPU, if they are as `empty` makes them

    @classmethod
    def empty(cls, device: Device, rows: int, dtypes: Mapping[str, Any]) -> Self:
        """Return a frame whose values are not yet written. On a GPU it outlives the run's pool."""
        if not device.is_gpu:
            return cls({name: np.empty(rows, dtype) for name, dtype in dtypes.items()}, device)
        with outside_pool(device):
            block = device.xp.empty(sum(_sizes(rows, dtypes)), "uint8")
        return cls(_columns_of(block, rows, dtypes), device, block)

    @classmethod
    def of(cls, device: Device, columns: Mapping[str, Any]) -> Self:
        """Return the frame of these arrays of the device without NaN, a GPU's arrays copied out of the run's pool."""
        if not device.is_gpu:
            return cls(dict(columns), device)
        rows = max((array.size for array in columns.values()), default=0)
        frame = cls.empty(device, rows, {name: array.dtype for name, array in columns.items()})
        for name, array in columns.items():
            frame.columns[name][...] = array
        return frame

    def head(self, rows: int) -> Self:
        """Return the first rows, copied out of a GPU's run unless they are all."""
        columns = {name: column[:rows] for name, column in self.columns.items()}
        return self if all(column.size <= rows for column in self.columns.values()) else self.of(self.device, columns)

    def on(self, device: Device) -> Self:
        """Return the frame with its columns on this device: itself if they are there."""
        if device.is_gpu == self.device.is_gpu:
            return self
        if device.is_gpu:
            return self.of(device, {name: device.asarray(column) for name, column in self.columns.items()})
        if self.block is None:
            return type(self)({name: to_host(column) for name, column in self.columns.items()}, device)
        dtypes = {name: column.dtype for name, column in self.columns.items()}
        rows = next(iter(self.columns.values())).size
        return type(self)(_columns_of(to_host(self.block), rows, dtypes), device)  # one copy takes less than three

    @cached_property
    def frame(self) -> Any:
        """Return the pandas or cuDF frame, which shares the columns' memory and has no nulls.

        Read it only after the columns are written: cuDF may spill a frame's memory to the host.
        """
        if not self.device.is_gpu:
            return self.device.frames.DataFrame(self.columns, copy=False)
        library = importlib.import_module("pylibcudf")  # cuDF takes several times as long to make a frame of arrays
        table = library.Table([
            library.Column(_cudf_type(array.dtype), array.size, _Span(array), None, 0, 0, [])
            for array in self.columns.values()
        ])  # fmt: skip
        return self.device.frames.DataFrame.from_pylibcudf(table, {"columns": list(self.columns)})


class Later(NamedTuple):
    """A frame that is yet to be made, and the kind of output that it will be."""

    columns: PreallocatedFrame | Callable[[], PreallocatedFrame]
    output: Any  # `points.output.OutputKind`


def frame_of(device: Device, columns: Mapping[str, Any]) -> Any:
    """Return the dataframe of `PreallocatedFrame.of`."""
    return PreallocatedFrame.of(device, columns).frame


class _Span:
    """An array's memory in the form that pylibcudf reads."""

    def __init__(self, array: Array) -> None:
        self.array, self.ptr, self.size = array, array.data.ptr, array.nbytes
        self.__cuda_array_interface__ = {
            "data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3,
        }  # fmt: skip


@cache
def _cudf_type(dtype: Any) -> Any:
    """Return pylibcudf's type for a type of NumPy."""
    library = importlib.import_module("pylibcudf")
    return library.DataType(library.TypeId["BOOL8" if dtype.kind == "b" else dtype.name.upper()])


def _columns_of(block: Array, rows: int, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns in one block of memory, because an allocation on a GPU takes longer than filling it."""
    start, columns = 0, {}
    for (name, dtype), size in zip(dtypes.items(), _sizes(rows, dtypes), strict=True):
        columns[name] = block[start : start + rows * np.dtype(dtype).itemsize].view(dtype)
        start += size
    return columns


def _sizes(rows: int, dtypes: Mapping[str, Any]) -> list[int]:
    """Return the bytes of each column in a block."""
    return [-(-rows * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT for dtype in dtypes.values()]

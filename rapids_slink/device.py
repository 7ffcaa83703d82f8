"""The two devices a pipeline runs on, and nothing else that differs between them.

A stage asks its device for the array module, the frame module and its own kernels:

    device.xp                     numpy        or cupy
    device.frames                 pandas       or cudf
    device.kernels("neighbors")   .cpu         or .cuda of that stage's folder
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NAMES = ("auto", "cpu", "cuda")
#: A block, in kernels that have a thread for each job.
THREADS = 256

_working = threading.local()  # `pool`: the memory pool of the run that is under way in this thread


class DeviceUnavailableError(ValueError):
    """``device="cuda"`` was asked for and there is no usable GPU."""


class DeviceMemoryError(ValueError, MemoryError):
    """The work does not fit into the device's memory."""


@dataclass(frozen=True)
class Device:
    """Where a pipeline runs.

    Attributes
    ----------
    name : {"cpu", "cuda"}
    xp : module
        NumPy or CuPy.
    """

    name: str
    xp: ModuleType

    @property
    def frames(self) -> ModuleType:
        """pandas or cuDF."""
        return importlib.import_module("cudf" if self.name == "cuda" else "pandas")

    def kernels(self, stage: str) -> ModuleType:
        """The module that holds this device's kernels of a stage's folder."""
        return importlib.import_module(f"rapids_slink.{stage}.{self.name}")

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        """`array` on this device, copied only if it has to be."""
        if self.name == "cpu":
            return to_host(array) if dtype is None else to_host(array).astype(dtype, copy=False)
        return self.xp.asarray(array, dtype=dtype)

    def frame(self, columns: dict[str, Any]) -> Any:
        """A dataframe over the given columns, which are arrays of this device without NaN."""
        if self.name == "cpu":
            return self.frames.DataFrame(columns)
        return self.frames.DataFrame(columns, nan_as_null=False)  # spares a count of NaN in every column

    @contextmanager
    def working(self, reserve: int = 0) -> Iterator[None]:
        """Work on this device: its memory comes from a pool of its own, and running out of it is a clear error.

        The pool stands on the allocator in force, rmm's or CuPy's, and gives all back at the end. Without it every
        temporary array would cost a device allocation and, when freed, a wait for the GPU. A result that outlives
        the block must be copied out of it (`keep`), since a small array can hold a large piece of the pool.
        `reserve` bytes are asked for at once, for the pool to split: short work is over before many allocations are.
        """
        if self.name == "cpu":
            yield
            return
        cuda = self.xp.cuda
        if importlib.util.find_spec("cudf") is not None:
            importlib.import_module("cudf")  # which sets CuPy's allocator, and could not while another is in force
        pool = cuda.MemoryPool(cuda.get_allocator())
        outer, _working.pool = getattr(_working, "pool", None), pool
        try:
            with cuda.using_allocator(pool.malloc):
                if reserve:
                    pool.malloc(reserve)  # and free at once: what follows is cut from it
                yield
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower().replace("_", " "):
                raise
            free, total = cuda.runtime.memGetInfo()
            raise DeviceMemoryError(
                f"not enough GPU memory: {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free ({error})"
            ) from error
        finally:
            _working.pool = outer

    def trim(self) -> None:
        """Between two stages: give back what the first needed and the second may need in other sizes."""
        pool = getattr(_working, "pool", None)
        if pool is not None:
            pool.free_all_blocks()

    def keep(self, result: Any) -> Any:
        """A result (frame or array) that outlives `working`."""
        return result if self.name == "cpu" else result.copy()

    def synchronize(self) -> None:
        """Wait for the work of the current stream."""
        if self.name == "cuda":
            self.resources().sync()

    def resources(self) -> Any:
        """RAFT's resources over CuPy's current stream.

        pylibraft's default stream is not CuPy's, hence the explicit one. Without pylibraft the
        stream itself serves: it can be waited for all the same.
        """
        stream = self.xp.cuda.get_current_stream()
        if importlib.util.find_spec("pylibraft") is None:
            return _Stream(stream)
        from pylibraft.common import DeviceResources

        return DeviceResources(stream=stream)


@dataclass(frozen=True)
class _Stream:
    stream: Any

    def sync(self) -> None:
        self.stream.synchronize()


CPU = Device("cpu", np)


def is_on_gpu(x: Any) -> bool:
    """Whether `x` (array, frame or series) lives in GPU memory."""
    if type(x).__module__.split(".")[0] in ("cudf", "cupy"):
        return True
    if isinstance(x, np.ndarray):
        return False
    if hasattr(x, "__cuda_array_interface__"):
        return True
    kind = getattr(x, "__dlpack_device__", None)
    return kind is not None and int(kind()[0]) == 2  # kDLCUDA


def gpu_is_usable() -> bool:
    """Whether CuPy and cuDF are installed and there is a GPU."""
    if importlib.util.find_spec("cupy") is None or importlib.util.find_spec("cudf") is None:
        return False
    import cupy

    return bool(cupy.is_available())


@cache
def cuda() -> Device:
    """The GPU, whether or not there is all that it needs."""
    import cupy

    return Device("cuda", cupy)


def resolve(name: str, *inputs: Any) -> Device:
    """The device for a run.

    ``"auto"`` is the GPU where there is one and cuDF is installed, or where an input lives on it;
    otherwise the CPU. ``"cuda"`` never falls back.
    """
    if name not in NAMES:
        raise ValueError(f"device must be one of {', '.join(map(repr, NAMES))}, got {name!r}")
    if name == "cpu":
        return CPU
    if name == "cuda":
        if not gpu_is_usable():
            raise DeviceUnavailableError(
                "device='cuda' needs an NVIDIA GPU with CuPy and cuDF (pip install 'rapids_slink[cu13]'), and there is "
                "none. Use device='cpu' or device='auto'."
            )
        return cuda()
    return resolve("cuda") if any(is_on_gpu(x) for x in inputs) or gpu_is_usable() else CPU


def to_host(array: Any) -> np.ndarray:
    """`array` as a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        import cupy

        return cupy.asnumpy(cupy.asarray(array))
    return np.asarray(array)


def cuda_source(source: str) -> str:
    """The text of a ``.cu`` file, named by its path in this package, with our own headers put in as text.

    CuPy's compile cache does not see what an ``#include`` brings in: a changed header would
    otherwise leave the old machine code in use.
    """
    lines = []
    for line in (Path(__file__).parent / source).read_text().splitlines():
        if line.startswith('#include "'):
            lines.append(cuda_source(line.split('"')[1]))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@cache
def _cuda_module(source: str, *options: str) -> Any:
    cupy = sys.modules["cupy"]
    return cupy.RawModule(code=cuda_source(source), options=("--std=c++17", *options))


@cache
def cuda_kernel(source: str, name: str, *options: str) -> Any:
    """A kernel of the ``.cu`` file `source`, compiled once a process, GPU and set of options.

    It is looked up at every launch, of which short runs have hundreds: hence the cache over strings.
    """
    return _cuda_module(source, *options).get_function(name)


def launch(source: str, name: str, jobs: int, *arguments: Any, items: int = 1) -> None:
    """Start a kernel of a ``.cu`` file with a thread for every `items` of the `jobs`; arrays must be contiguous."""
    array = sys.modules["cupy"].ndarray
    for argument in arguments:
        if isinstance(argument, array) and not argument.flags.c_contiguous:
            raise TypeError(f"{name} needs contiguous arrays")
    if jobs:
        cuda_kernel(source, name)((-(-jobs // (THREADS * items)),), (THREADS,), arguments)


def check_arrays(dtype: Any, *arrays: Any) -> None:
    """Refuse arrays that a kernel would misread."""
    for array in arrays:
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise TypeError(f"a kernel needs contiguous {dtype} arrays, got {array.dtype} {array.strides}")

"""The two devices a pipeline runs on, and nothing else that differs between them.

A stage asks its device for the array module, the frame module and its own kernels:

    device.xp                     numpy        or cupy
    device.frames                 pandas       or cudf
    device.kernels("neighbors")   .cpu         or .cuda of that stage's folder
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import inf, prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rapids_slink.memory import Need, as_bytes, free_on_gpu, free_on_host, in_words

NAMES = ("auto", "cpu", "cuda")
#: A block, in kernels that have a thread for each job.
THREADS = 256
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount

#: How much more than its arrays a memory pool may hold, in pieces that fit none of them.
FRAGMENTED = 1.25
#: And for small arrays, which take at least half a KiB, and what CuPy's sorts and sums take for themselves.
ROUNDED = 2**21
#: Bytes that arrays in one block start at multiples of, as device allocations do.
ALIGNED = 256
#: A share of the free memory that is asked for at once.
RESERVED = 1 / 8
#: Needs below so many bytes are met without asking how much is free.
UNCHECKED = 2**26

#: NumPy's types as C++ calls them.
C_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip

_working = threading.local()  # `run`: the one that is under way in this thread
_retired: list[Any] = []  # pools of runs that are over, of which something was still in use
_retiring = threading.Lock()


class DeviceUnavailableError(ValueError):
    """``device="cuda"`` was asked for and there is no usable GPU."""


class DeviceMemoryError(ValueError, MemoryError):
    """The work does not fit into the device's memory or into ``memory_limit``."""


@dataclass
class _Run:
    """Work that is under way.

    Its ``memory_limit`` as it was given and in bytes, a GPU's pool and the allocator under it, and room for chunks.
    """

    given: Any = None
    limit: int | None = None
    pool: Any = None
    allocator: Any = None
    spare: float = inf

    def allocate(self, size: int) -> Any:
        """A GPU's memory, from the pool, which is made when it is first asked."""
        if self.pool is None:
            self.pool = sys.modules["cupy"].cuda.MemoryPool(self.allocator)
            if self.limit is not None:
                self.pool.set_limit(size=min(self.limit, sys.maxsize))
        return self.pool.malloc(size)


def _run() -> _Run:
    return getattr(_working, "run", None) or _Run()


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

    def copy(self, array: Any, into: Any) -> None:
        """Copy an array, maybe the host's, into one of this device, of the same type."""
        if self.name == "cuda" and isinstance(array, np.ndarray):
            into.set(array)
        else:
            into[:] = array

    def frame(self, columns: dict[str, Any]) -> Any:
        """A dataframe of the given columns, which are arrays of this device without NaN."""
        rows = max((array.size for array in columns.values()), default=0)
        return FrameAhead(self, rows, {name: array.dtype for name, array in columns.items()}).fill(columns)

    @contextmanager
    def working(self, reserve: int = 0, memory_limit: Any = None) -> Iterator[None]:
        """Work on this device: in memory that all comes back, and running out of it is a clear error.

        A GPU's memory comes from a pool that stands on the allocator in force, rmm's or CuPy's, and gives all back at
        the end. Without it every temporary array would cost a device allocation and, when freed, a wait for the GPU.
        No array of the pool should outlive the block: the work is a function of its own, so that its variables are
        gone when the block ends, and returns copies of its results (`keep`, `frame`). `reserve` bytes are asked for at
        once, for the pool to split: short work is over before many allocations are. The pool never grows beyond
        `memory_limit`. What cuDF allocates is not the pool's, and what comes with kernels (`cuda_memory`) stays.

        All of it runs on the default stream, since that is cuDF's; the caller's stream waits for it.
        """
        run = _Run(memory_limit, as_bytes(memory_limit))
        outer = getattr(_working, "run", None)
        try:
            _working.run = run
            if self.name == "cpu":
                yield
            else:
                with _ordered(self.xp.cuda), self._pool(run, reserve):
                    yield
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, DeviceMemoryError) or not _is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)  # they hold the arrays that filled the memory
            _give_back()
            raise DeviceMemoryError(f"not enough {self._memory}: {self._state(run)} ({error})") from error
        except KeyboardInterrupt as error:
            traceback.clear_frames(error.__traceback__)  # as above: Jupyter keeps the traceback
            _give_back()
            raise
        finally:
            _working.run = outer

    @contextmanager
    def _pool(self, run: _Run, reserve: int) -> Iterator[None]:
        """Take CuPy's memory from a pool of the run's own."""
        cuda = self.xp.cuda
        _import_cudf()
        run.allocator = cuda.get_allocator()

        def clear() -> None:  # the limit counts free blocks of other sizes, and only CUDA's own errors free them
            gc.collect()
            self.trim()

        try:
            with cuda.using_allocator(_twice(run.allocate, clear)):
                if reserve and (run.limit is None or reserve <= run.limit):
                    run.allocate(reserve)  # and free at once: what follows is cut from it
                yield
        finally:
            if run.pool is not None:
                _retired.append(run.pool)
            _give_back()

    def admit(self, need: Need, what: str, taken: int = 0, reserve: bool = False) -> None:
        """Raise unless what the run needs for `what` fits; what is left then is `spare`, for chunks of work.

        Parameters
        ----------
        taken : int
            Bytes of the need that the run has taken already.
        reserve : bool
            Ask for the bytes at once, with those of chunks as they are wanted, if they are a small part of what is
            free, for the pool to split.
        """
        run = _run()
        least = need.least if self.name == "cpu" else int(need.least * FRAGMENTED) + ROUNDED
        if run.limit is not None and least > run.limit:
            raise DeviceMemoryError(
                f"memory_limit={run.given!r} is too small for {what}: "
                f"needs at least {in_words(least)} of {self._memory}"
            )
        free = None if least < UNCHECKED else self._free(run)
        if free is not None and least > free + taken:
            raise DeviceMemoryError(
                f"not enough {self._memory} for {what}: "
                f"needs about {in_words(least)}, {in_words(free + taken)} are free"
            )
        room = min(inf if run.limit is None else run.limit, inf if free is None else free + taken)
        run.spare = room - (least - need.chunk)
        reserved = need.peak - need.lasting + need.wanted
        if reserve and run.allocator is not None and run.limit is None and 0 < reserved <= room * RESERVED:
            with suppress(MemoryError):
                run.allocate(reserved)

    @property
    def ordinal(self) -> int:
        """The current GPU's number; 0 for the CPU."""
        return 0 if self.name == "cpu" else int(self.xp.cuda.runtime.getDevice())

    @property
    def limited(self) -> bool:
        """Whether the run that is under way has a ``memory_limit``."""
        return _run().limit is not None

    @property
    def spare(self) -> float:
        """Bytes that the chunks of a stage's work may take at a time in the run that is under way."""
        return _run().spare

    @property
    def _memory(self) -> str:
        return "GPU memory" if self.name == "cuda" else "memory"

    def _free(self, run: _Run) -> int | None:
        if self.name == "cpu":
            return free_on_host()
        free = free_on_gpu(self.xp.cuda)
        return free if free is None or run.pool is None else free + run.pool.free_bytes()

    def _state(self, run: _Run) -> str:
        if run.limit is not None and run.allocator is not None:
            return f"memory_limit={run.given!r} was reached"
        free = self._free(run)
        return "it ran out" if free is None else f"{in_words(free)} are free"

    def trim(self) -> None:
        """Between two stages: give back what the first needed and the second may need in other sizes."""
        if (pool := _run().pool) is not None:
            pool.free_all_blocks()

    def keep(self, array: Any) -> Any:
        """An array that outlives `working`."""
        if self.name == "cpu":
            return array
        with self._lasting():
            return array.copy()

    def _lasting_allocator(self) -> Callable[[int], Any]:
        """Of a GPU's memory outside the run's pool; what is missing may lie idle in that."""
        return _twice(_run().allocator or self.xp.cuda.get_allocator(), self.trim)

    @contextmanager
    def _lasting(self) -> Iterator[None]:
        """Take memory outside the run's pool, for what is copied out of it."""
        with self.xp.cuda.using_allocator(self._lasting_allocator()):
            yield
        stream, default = self.xp.cuda.get_current_stream(), self.xp.cuda.Stream.null
        if stream.ptr != default.ptr:  # which is cuDF's, and on which the pool's memory is used again
            stream.synchronize()
            default.synchronize()

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


class FrameAhead:
    """What becomes a dataframe, with no NaN in it.

    A GPU's columns are there to be written into, and outlive `Device.working`; a CPU's are those it is filled with.
    """

    def __init__(self, device: Device, rows: int, dtypes: dict[str, Any]) -> None:
        self._device, self._rows, self._dtypes, self._frame = device, rows, dtypes, None

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The arrays to be written into; without any on a CPU."""
        if self._device.name == "cpu":
            return {}
        return dict(zip(self._dtypes, self._layout.on(self._block), strict=True))

    @property
    def addresses(self) -> list[int]:
        """Where a GPU's columns are, for a kernel that has no need of arrays."""
        return [self._block.ptr + start for _, _, start in self._layout.parts]

    @cached_property
    def _layout(self) -> Layout:
        return _columns_layout(self._rows, *self._dtypes.values())

    @cached_property
    def _block(self) -> Any:
        """A GPU's memory for the columns, taken when it is first asked for."""
        return self._device._lasting_allocator()(self._layout.size)

    def make(self) -> FrameAhead:
        """Make a GPU's frame now, while its columns are being written.

        Where cuDF may spill it is made when it is filled: one that was spilled would not get what is written then.
        """
        if self._device.name == "cuda" and not self._device.frames.get_option("spill"):
            self.frame()
        return self

    def fill(self, columns: dict[str, Any]) -> Any:
        """The frame of these columns."""
        if not self.columns:
            return self._device.frames.DataFrame(columns)
        with self._device._lasting():
            for name, array in columns.items():
                self.columns[name][...] = array
        return self.frame()

    def frame(self) -> Any:
        """A GPU's frame of what is written into its columns: cuDF takes twice as long to make one of arrays."""
        if self._frame is None:
            library = importlib.import_module("pylibcudf")
            table = library.Table([
                library.Column(
                    _column_type(library, dtype), self._rows, _Span(self._block, start, self._rows * dtype.itemsize),
                    None, 0, 0, [],
                )
                for _, dtype, start in self._layout.parts
            ])  # fmt: skip
            self._frame = self._device.frames.DataFrame.from_pylibcudf(table, {"columns": list(self._dtypes)})
        return self._frame


@cache
def _column_type(library: Any, dtype: np.dtype) -> Any:
    return library.DataType(library.TypeId["BOOL8" if dtype.kind == "b" else dtype.name.upper()])


class _Span:
    """A part of a GPU's memory as pylibcudf takes it: an array that CuPy describes takes it five times as long."""

    def __init__(self, block: Any, start: int, size: int) -> None:
        self.block, self.ptr, self.size = block, block.ptr + start, size
        self.__cuda_array_interface__ = {
            "data": (self.ptr, False), "shape": (size,), "strides": None, "typestr": "|u1", "version": 3,
        }  # fmt: skip


def _twice(allocate: Callable[[int], Any], clear: Callable[[], None]) -> Callable[[int], Any]:
    """`allocate`, and once more after `clear` where it finds no memory."""

    def patient(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError:
            clear()
            return allocate(size)

    return patient


def _give_back() -> None:
    """Give back what the pools of ended runs have, and forget those of which nothing is in use any more.

    A pool that is merely let go of keeps its memory for good: CuPy's blocks and the lists of them hold each other.
    """
    with _retiring:
        for pool in _retired:
            pool.free_all_blocks()
        _retired[:] = [pool for pool in _retired if pool.total_bytes()]


@contextmanager
def _ordered(cuda: Any) -> Iterator[None]:
    """Work on the default stream, after what is on the current one and before what will be."""
    current, default = cuda.get_current_stream(), cuda.Stream.null
    if current.ptr == default.ptr:
        yield
        return
    default.wait_event(current.record())
    try:
        with default:
            yield
    finally:
        current.wait_event(default.record())


def _is_out_of_memory(error: Exception) -> bool:
    words = str(error).lower().replace("_", " ")
    return isinstance(error, MemoryError) or "out of memory" in words or "alloc failed" in words  # cuBLAS's


@dataclass(frozen=True)
class _Stream:
    stream: Any

    def sync(self) -> None:
        self.stream.synchronize()


CPU = Device("cpu", np)


def is_on_gpu(x: Any) -> bool:
    """Whether `x` (array, frame or series) lives in GPU memory."""
    package = type(x).__module__.partition(".")[0]
    if package in ("cudf", "cupy"):
        return True
    if package == "pandas" and "cudf.pandas" not in sys.modules:  # else it may be a proxy of a GPU's
        return False  # a frame asked for an attribute that it lacks makes an index of its columns
    if isinstance(x, np.ndarray | type):  # a class has the attributes of its objects
        return False
    if hasattr(x, "__cuda_array_interface__"):
        return True
    kind = getattr(x, "__dlpack_device__", None)
    return kind is not None and int(kind()[0]) == 2  # kDLCUDA


@cache
def gpu_is_usable() -> bool:
    """Whether CuPy and cuDF are installed and there is a GPU."""
    if importlib.util.find_spec("cupy") is None or importlib.util.find_spec("cudf") is None:
        return False
    import cupy

    return bool(cupy.is_available())


@cache
def _import_cudf() -> None:
    """Have cuDF, if it is there, set CuPy's allocator: it could not while another is in force."""
    if importlib.util.find_spec("cudf") is not None:
        importlib.import_module("cudf")


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


@cache
def c_name(dtype: Any) -> str:
    """A type of numbers as a kernel's source calls it."""
    return C_NAMES[np.dtype(dtype).name]


def cuda_memory(source: str, name: str, *options: str) -> Any:
    """A ``__device__`` array of the ``.cu`` file `source`: memory that comes with its kernels, on each GPU."""
    return _cuda_module(source, *options).get_global(name)


def launch(source: str, name: str, jobs: int, *arguments: Any, items: int = 1) -> None:
    """Start a kernel of a ``.cu`` file with a thread for every `items` of the `jobs`; arrays must be contiguous."""
    array = sys.modules["cupy"].ndarray
    for argument in arguments:
        if isinstance(argument, array) and not argument.flags.c_contiguous:
            raise TypeError(f"{name} needs contiguous arrays")
    if jobs:
        cuda_kernel(source, name)((-(-jobs // (THREADS * items)),), (THREADS,), arguments)


@lru_cache(maxsize=1024, typed=True)
def struct(*numbers: Any) -> Any:
    """A C struct, as a kernel takes it by value: Python's numbers are bool, int and double, NumPy's of their types."""
    types = {bool: np.bool_, int: np.int32, float: np.float64}
    fields = [(f"f{i}", types.get(type(number), type(number))) for i, number in enumerate(numbers)]
    return np.array(numbers, np.dtype(fields, align=True))[()]


def multiprocessors() -> int:
    """Of the current GPU."""
    runtime = sys.modules["cupy"].cuda.runtime
    return int(runtime.deviceGetAttribute(MULTIPROCESSORS, runtime.getDevice()))


class Layout:
    """A GPU's arrays of these shapes and types by one allocation: a device's is dear.

    Attributes
    ----------
    size : int
        Bytes that they take.
    parts : list of (shape, dtype, start)
        Each array's, and where it starts.
    """

    def __init__(self, *kinds: tuple[tuple[int, ...], Any]) -> None:
        self.size: int = 0
        self.parts: list[tuple[tuple[int, ...], np.dtype, int]] = []
        for shape, dtype in kinds:
            self.parts.append((shape, np.dtype(dtype), self.size))
            self.size += -(-prod(shape) * np.dtype(dtype).itemsize // ALIGNED) * ALIGNED

    def arrays(self) -> list[Any]:
        """New ones, with nothing in them."""
        return self.on(sys.modules["cupy"].cuda.alloc(self.size))

    def on(self, block: Any) -> list[Any]:
        """Those in a block of memory."""
        cupy = sys.modules["cupy"]
        return [cupy.ndarray(shape, dtype, block + start) for shape, dtype, start in self.parts]


@lru_cache(maxsize=256)
def _columns_layout(rows: int, *dtypes: Any) -> Layout:
    return Layout(*(((rows,), dtype) for dtype in dtypes))


def check_arrays(dtype: Any, *arrays: Any) -> None:
    """Refuse arrays that a kernel would misread."""
    dtype = np.dtype(dtype)
    for array in arrays:
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise TypeError(f"a kernel needs contiguous {dtype} arrays, got {array.dtype} {array.strides}")

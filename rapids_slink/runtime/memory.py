"""A run's memory: how much there is, what a stage takes, the run's pool and limit.

    with run_scope(device, memory_limit):           every public function works in one
        check_memory(device, estimate, "what")      raises, or sets how many bytes chunks of work may take
        ...
        return copy_out(device, result)             a result on a GPU outlives the pool

What work needs is a sum: the bytes that a search keeps for its points and lists, and `TREE_BYTES` for all else that a
row takes, in whatever stage. Everything else is a chunk, whose size is what `free_bytes` leaves. Work that does not fit
is refused before it starts. The values may choose another search than the one in the sum. Then `rows_that_fit` may
refuse its first chunk. A run may take less than the sum. On a GPU the run's memory pool enforces the limit, whatever
the sum is. Results are allocated beside the pool, so a GPU's sum is without them.

A pool allocates from the current allocator, rmm's or CuPy's. Without a pool every temporary array would cost a device
allocation and a wait for the GPU when it is freed. All idle pools together keep up to `IDLE_BYTES` for the next run.
"""

import gc
import importlib
import importlib.util
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from math import inf
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.runtime.compiling import watch_numba
from rapids_slink.runtime.device import Array, Device

UNITS = {"B": 1} | {f"{c}B": 1000**i for i, c in enumerate("kMGT", 1)}
UNITS |= {f"{c}iB": 1024**i for i, c in enumerate("KMGT", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*((?:[kmgt]i?)?b)?\s*", re.IGNORECASE)
ROOT = Path("/")
#: All idle pools together keep at most these bytes. So does a run's pool between two stages, unless it has a limit or a
#: reservation.
IDLE_BYTES = 2**30
_idle_lock = threading.Lock()
#: A pool may hold this many times the bytes of its arrays, in pieces too small for any of them.
FRAGMENTATION = 1.25
#: Bytes added for small arrays, which take at least half a KiB, and for the scratch memory of CuPy's sorts and sums.
ROUNDING_BYTES = 2**21
#: An estimate's bytes are pre-allocated, for the pool to split, if they are at most this share of free memory.
RESERVED_SHARE = 1 / 8
#: Estimates below this many bytes pass without a look at how much memory is free.
UNCHECKED_BYTES = 2**26
#: The bytes of a row besides what its search keeps: its bound, its positions in orders, and what is made from its list.
#: And those of a row whose tree is made, in the stage that takes most: the search, the forest, the sort of its edges,
#: linkage, or labels.
SEARCH_BYTES, TREE_BYTES = 48, {"cpu": 144, "cuda": 112}


# ----------------------------------------------------------------------------------------------------- estimates


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that work takes. A sum has the bytes of both parts, and the larger chunks."""

    peak: int  # bytes at its peak, without the chunks of its work
    min_chunk: int = 0  # the chunks at their smallest
    preferred_chunk: int = 0  # the chunks if there is room

    @property
    def least(self) -> int:
        """Return the bytes that the stage needs."""
        return self.peak + self.min_chunk

    @property
    def preferred(self) -> int:
        """Return the bytes with which the stage is fastest."""
        return self.peak + max(self.min_chunk, self.preferred_chunk)

    def __add__(self, other: "MemoryEstimate") -> "MemoryEstimate":
        return replace(self.either(self, other), peak=self.peak + other.peak)

    @classmethod
    def either(cls, *stages: Self) -> Self:
        """Return the bytes of stages of which one works at a time: `least` is that of the largest.

        A stage without chunks may then hold more than `peak`, as much more as the chunk of another stage.
        """
        chunk, preferred = (max(getattr(stage, name) for stage in stages) for name in ("min_chunk", "preferred_chunk"))
        return cls(max(stage.least for stage in stages) - chunk, chunk, preferred)


def as_bytes(limit: Any) -> int | None:
    """Return ``memory_limit`` in bytes, None if it is None: it is a number, or text such as "8GiB" or "500 MB"."""
    if limit is None:
        return None
    valid = "memory_limit must be a number of bytes or text such as '8GiB' or '500MB'"
    if isinstance(limit, str):
        match = _SIZE.fullmatch(limit)
        if not match:
            raise ValueError(f"{valid}, got {limit!r}")
        unit = next(size for name, size in UNITS.items() if name.lower() == (match[2] or "B").lower())
        size = int(Fraction(match[1]) * unit)
    elif isinstance(limit, bool) or not isinstance(limit, Integral):
        raise TypeError(f"{valid}, got {limit!r}")
    else:
        size = int(limit)
    if size < 1:
        raise ValueError(f"memory_limit must be at least 1 byte, got {limit!r}")
    return size


def size_text(size: float) -> str:
    """Return a number of bytes as text, rounded up: "31.2 GiB"."""
    unit = "GiB" if size >= 2**30 else "MiB"
    return f"{-(-size * 10 // UNITS[unit]) / 10:.1f} {unit}"


def free_on_gpu(cuda: Any) -> int | None:
    """Return an upper bound of the bytes that the current GPU has free or that an allocator may hand out again.

    The whole size of rmm's pools counts as free, since nothing else is known of them. Other resources that keep memory
    do not even tell their size: with one of these the bound is the GPU's whole memory. The result is None if a GPU uses
    the host's memory. `cuda` is CuPy's module.
    """
    free, total = cuda.runtime.memGetInfo()
    free += sys.modules["cupy"].get_default_memory_pool().free_bytes()
    allowed = total
    rmm: Any = sys.modules.get("rmm")
    resource: Any = rmm and rmm.mr.get_current_device_resource()
    while hasattr(resource, "upstream_mr"):
        if hasattr(resource, "get_allocation_limit"):
            allowed = min(allowed, resource.get_allocation_limit() - resource.get_allocated_bytes())
        elif hasattr(resource, "pool_size"):
            free += resource.pool_size()
        elif not type(resource).__name__.endswith("Adaptor"):
            free = total
        resource = resource.upstream_mr
    kind = type(resource).__name__
    if kind.startswith(("Managed", "System", "Sam", "Pinned")):
        return None
    return int(min(allowed, free if resource is None or kind == "CudaMemoryResource" else total))


# ------------------------------------------------------------------------------------------------------ the host


def free_on_host(root: Path = ROOT) -> int | None:
    """Return the bytes that this process may still take; None if unknown.

    They are Linux' MemAvailable, or less in a control group.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    return min([total, *_free_in_groups(root)])


@cache
def usable_cores(root: Path = ROOT) -> int:
    """Return the number of cores that this process may run on, or its control groups' quota if that is less.

    A quota of a part of a core is rounded up.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *_cores_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group that has a limit."""
    first = "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"
    for limit, used, stat in _read_in_groups("memory", first, ("memory.max", "memory.current", "memory.stat"), root):
        reclaimable = max(map(int, re.findall(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)), default=0)
        with suppress(ValueError):  # "max", or a text of another form
            yield max(0, int(limit) - int(used) + reclaimable)


def _cores_in_groups(root: Path) -> Iterator[int]:
    """Yield the quota of each control group that has one, in cores, rounded up."""
    for texts in _read_in_groups("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"), ("cpu.max",), root):
        with suppress(ValueError):  # "max", or a text of another form
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:
                yield -(-quota // period)


def _read_in_groups(
    controller: str, first: tuple[str, ...], second: tuple[str, ...], root: Path
) -> Iterator[list[str]]:
    """Yield what files say in each control group of this process that has them: their names in either version."""
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = top / path.lstrip("/")
        # In a container the path may be the host's, and the container's own group the top.
        for folder in {top, group, *(parent for parent in group.parents if top in parent.parents)}:
            try:
                texts = [(folder / name).read_text().strip() for name in (first if controllers else second)]
            except OSError:
                continue
            yield texts


# ------------------------------------------------------------------------------------------------ pools of a GPU


@dataclass(frozen=True)
class Pool:
    """A CuPy memory pool, the allocator under it, and the GPU whose memory it holds."""

    pool: Any
    allocator: Any
    gpu: int

    def release(self, keep: int = 0) -> int:
        """Free unused memory if the pool holds more bytes than `keep`; return how many it holds afterwards."""
        with sys.modules["cupy"].cuda.Device(self.gpu):
            if self.pool.total_bytes() > keep:
                self.pool.free_all_blocks()
            return int(self.pool.total_bytes())


_idle_pools: list[Pool] = []


@contextmanager
def taken_pool(cuda: Any, limit: int | None) -> Iterator[Pool]:
    """Take a block's CuPy memory from a pool, which holds at most `limit` bytes if that is not None."""
    _import_cudf()
    pool = _take_pool(cuda)
    if limit is not None:
        pool.pool.free_all_blocks()  # they may exceed the limit
    pool.pool.set_limit(size=0 if limit is None else min(limit, sys.maxsize))

    def clear() -> None:  # the limit counts free blocks of other sizes, and only CUDA's own errors free them
        gc.collect()
        pool.pool.free_all_blocks()

    try:
        with cuda.using_allocator(retrying(pool.pool.malloc, clear)):
            yield pool
    finally:
        with _idle_lock:
            _idle_pools.append(pool)
        _keep_idle(IDLE_BYTES)


def _take_pool(cuda: Any) -> Pool:
    """Return an idle pool of the current allocator, with no memory in use, or a new pool."""
    allocator, gpu = cuda.get_allocator(), int(cuda.runtime.getDevice())
    with _idle_lock:
        for i, idle in enumerate(_idle_pools):
            if idle.gpu == gpu and idle.allocator == allocator and not idle.pool.used_bytes():
                return _idle_pools.pop(i)
    return Pool(cuda.MemoryPool(allocator), allocator, gpu)


@cache
def _import_cudf() -> None:
    """Let cuDF, if it is installed, set CuPy's allocator now: it could not while another one is active."""
    if importlib.util.find_spec("cudf") is not None:
        importlib.import_module("cudf")


def retrying(allocate: Callable[[int], Any], clear: Callable[[], None]) -> Callable[[int], Any]:
    """Return a function that calls `allocate`, and again after `clear` if there is not enough memory."""

    def retry(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError:
            clear()
        return allocate(size)

    return retry


def free_memory() -> None:
    """Free the GPU memory that is kept for the next call, at most 1 GiB on all GPUs together.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.free_memory()
    """
    _keep_idle(0)


def _keep_idle(max_bytes: int) -> None:
    """Empty idle pools, the oldest first, until all of them together hold at most `max_bytes`."""
    with _idle_lock:
        for idle in reversed(_idle_pools[:]):
            held = idle.release(keep=max_bytes)
            max_bytes = max(0, max_bytes - held)
            if not held:
                _idle_pools.remove(idle)


@contextmanager
def on_default_stream(cuda: Any) -> Iterator[None]:
    """Run a block on the default stream, after the earlier and before the later work of the current stream."""
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


# ---------------------------------------------------------------------------------------------------------- runs


class DeviceMemoryError(ValueError, MemoryError):
    """The work does not fit into the device's memory or into ``memory_limit``."""


@dataclass
class Run:
    """What a run may take."""

    #: the parameter `memory_limit`; `limit` is the same in bytes
    memory_limit: Any = None
    limit: int | None = None
    pool: Pool | None = None  # on a GPU
    reserved: int = 0  # bytes that were pre-allocated for its stages
    interrupted: bool = False  # whether Ctrl-C was pressed
    free_bytes: float = inf  # bytes that the chunks of a stage's work may take at a time
    estimate: MemoryEstimate | None = None  # what was checked last, even if it did not fit
    start: float = 0.0  # when the run began, by `time.perf_counter`; 0 outside a run


_current: ContextVar[Run | None] = ContextVar("run", default=None)


def current_run() -> Run:
    """Return the current run of this thread. Outside a run return a new one without a limit, which nobody keeps."""
    return _current.get() or Run()


def free_bytes() -> float:
    """Return the bytes that the chunks of a stage's work may take at a time in the current run."""
    prescribed = forced().chunk_bytes
    return current_run().free_bytes if prescribed is None else prescribed


def room_bytes(device: Device) -> float:
    """Return the bytes that results may take beside the work that was checked last, as far as is known."""
    run = current_run()
    free = free_on(device)
    checked = 0 if run.estimate is None else run.estimate.peak
    return min(inf if run.limit is None else max(0, run.limit - checked), inf if free is None else free)


def rows_that_fit(rows: int, row_bytes: float, free: float, least: int = 1) -> int:
    """Return how many of some rows a chunk of work takes: all of them, or as many as fit into the `free` bytes.

    Raises DeviceMemoryError if `least` rows do not fit.
    """
    if rows * row_bytes <= free:
        return rows
    if least * row_bytes > free:
        needed, room = size_text(least * row_bytes), size_text(max(0, free))
        raise DeviceMemoryError(f"not enough memory for a chunk of {least} rows: needs {needed}, {room} are free")
    return int(free / row_bytes)


#: A block or a function with it treats floating-point errors as NumPy does, whatever the caller has set: small values
#: underflow in the course of the work, which ``np.seterr(all="raise")`` would take for an error.
usual_errors = partial(np.errstate, divide="warn", over="warn", under="ignore", invalid="warn")


@contextmanager
def run_scope(device: Device, memory_limit: Any = None) -> Iterator[None]:
    """Run a block that gives all its device memory back at its end; raise `DeviceMemoryError` if memory runs out.

    No array of a GPU's pool may outlive the block. So the work is a separate function, whose variables are gone when
    the block ends, and it returns copies of its results (`copy_out`, `frame_of`). The pool never grows beyond
    `memory_limit`; cuDF's allocations are not part of it.

    On a GPU the work runs on the default stream, which is cuDF's; the caller's stream waits for it. So runs on one GPU
    do not overlap, and a CUDA graph cannot capture one.
    """
    run = Run(memory_limit, as_bytes(memory_limit), start=time.perf_counter())
    watch_numba()
    outer = _current.set(run)
    try:
        with usual_errors():
            if device.is_gpu:
                cuda = device.xp.cuda
                with on_default_stream(cuda), taken_pool(cuda, run.limit) as run.pool, _noting_interruptions(run):
                    yield
            else:
                yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, DeviceMemoryError) or not _is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the arrays that filled the memory
        free_memory()
        if run.interrupted and str(error) == "std::bad_alloc":  # Ctrl-C during an allocation for Thrust
            raise KeyboardInterrupt from error
        raise DeviceMemoryError(f"not enough {_kind(device)}: {_state(device, run)} ({error})") from error
    except KeyboardInterrupt as error:
        traceback.clear_frames(error.__traceback__)  # as above: Jupyter keeps the traceback
        free_memory()
        raise
    finally:
        _current.reset(outer)


def check_memory(device: Device, estimate: MemoryEstimate, what: str, already_taken: int = 0) -> None:
    """Raise unless the estimate for `what` fits; set `free_bytes`, for chunks of work, to the bytes that remain.

    The peak and the preferred chunk bytes are pre-allocated from the pool if they are a small part of free memory. The
    run has `already_taken` bytes of the estimate.
    """
    run = current_run()
    run.estimate = estimate
    least = required_bytes(device, estimate)
    if run.limit is not None and least > run.limit:
        raise DeviceMemoryError(
            f"memory_limit={run.memory_limit!r} is too small for {what}: "
            f"needs at least {size_text(least)} of {_kind(device)}"
        )
    free = None if least < UNCHECKED_BYTES else free_on(device)
    if free is not None and least > free + already_taken:
        raise DeviceMemoryError(
            f"not enough {_kind(device)} for {what}: "
            f"needs about {size_text(least)}, {size_text(free + already_taken)} are free"
        )
    allowed = min(inf if run.limit is None else run.limit, inf if free is None else free + already_taken)
    run.free_bytes = allowed - (least - estimate.min_chunk)
    reserved = estimate.peak + estimate.preferred_chunk - already_taken
    run.reserved = 0
    if run.pool is not None and run.limit is None and 0 < reserved <= allowed * RESERVED_SHARE:
        with suppress(MemoryError):
            run.pool.pool.malloc(reserved)  # which is freed at once
            run.reserved = reserved


def required_bytes(device: Device, estimate: MemoryEstimate) -> int:
    """Return the bytes that must be free: a GPU's pool needs more than its arrays."""
    return int(estimate.least * FRAGMENTATION) + ROUNDING_BYTES if device.is_gpu else estimate.least


def release_cached() -> None:
    """Free the pool's unused blocks between two stages, which may need other sizes, unless they are reserved."""
    run = current_run()
    if run.pool is not None and not run.reserved:
        run.pool.release(IDLE_BYTES if run.limit is None else 0)


def copy_out(device: Device, array: Array) -> Any:
    """Return an array that outlives the run: a copy on a GPU, the array itself on a CPU."""
    if not device.is_gpu:
        return array
    with outside_pool(device):
        return array.copy()


def outside_pool(device: Device) -> AbstractContextManager[Any]:
    """Allocate a block's GPU memory outside the run's pool, for results; the pool frees its own if necessary."""
    pool = current_run().pool if device.is_gpu else None
    if pool is None:
        return nullcontext()
    return device.xp.cuda.using_allocator(retrying(pool.allocator, pool.pool.free_all_blocks))


@contextmanager
def _noting_interruptions(run: Run) -> Iterator[None]:
    """Note Ctrl-C in a block, because Thrust does not report it.

    Python handles signals in its main thread only, so other threads note nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def note(number: int, frame: Any) -> None:
        run.interrupted = True
        handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _is_out_of_memory(error: Exception) -> bool:
    words = str(error).lower().replace("_", " ")
    return isinstance(error, MemoryError) or "out of memory" in words or "alloc failed" in words  # cuBLAS's


def _kind(device: Device) -> str:
    return "GPU memory" if device.is_gpu else "memory"


def free_on(device: Device) -> float | None:
    """Return the bytes that are free on a device, those of the current run's pool among them; None if unknown."""
    if forced().free_bytes is not None:
        return forced().free_bytes
    if not device.is_gpu:
        return free_on_host()
    free, pool = free_on_gpu(device.xp.cuda), current_run().pool
    return free if free is None or pool is None else free + pool.pool.free_bytes()


def _state(device: Device, run: Run) -> str:
    if run.limit is not None and device.is_gpu:
        return f"memory_limit={run.memory_limit!r} was reached"
    free = free_on(device)
    return "it ran out" if free is None else f"{size_text(free)} are free"

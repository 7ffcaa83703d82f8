"""A run's memory: its pool, its limit, and the check before each stage that the stage fits.

    with run_scope(device, memory_limit):           every public function works in one
        check_memory(device, estimate, "what")      raises, or sets how many bytes chunks of work may take
        ...
        return copy_out(device, result)             a result on a GPU outlives the pool

A GPU's pool allocates from the current allocator, rmm's or CuPy's. Without a pool every temporary array would cost a
device allocation and a wait for the GPU when it is freed. All idle pools together keep up to `IDLE_BYTES` for the next
run.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.compiling import close_line, watch_numba
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, as_bytes, free_on_gpu, size_text
from rapids_slink.runtime.host import free_on_host

#: A pool may hold this many times the bytes of its arrays, in pieces too small for any of them.
FRAGMENTATION = 1.25
#: Added for small arrays, which take at least half a KiB, and for the scratch memory of CuPy's sorts and sums.
ROUNDING_BYTES = 2**21
#: Pre-allocate an estimate's bytes, for the pool to split, if they are at most this share of free memory.
RESERVED_SHARE = 1 / 8
#: Estimates below this pass without a look at how much memory is free.
UNCHECKED_BYTES = 2**26
#: Bytes that all idle pools keep together, and a run's pool between two stages without a limit or a reservation.
IDLE_BYTES = 2**29

_thread = threading.local()  # `run`: the current run of this thread
_idle_pools: list[_Pool] = []
_idle_lock = threading.Lock()


class DeviceMemoryError(ValueError, MemoryError):
    """The work does not fit into the device's memory or into ``memory_limit``."""


@dataclass(frozen=True)
class _Pool:
    """A CuPy memory pool, the allocator under it, and the GPU whose memory it holds."""

    pool: Any
    allocator: Any
    gpu: int

    def release(self, keep: int = 0) -> int:
        """Free unused memory if the pool holds more bytes than `keep`; returns how many it holds afterwards."""
        with sys.modules["cupy"].cuda.Device(self.gpu):
            if self.pool.total_bytes() > keep:
                self.pool.free_all_blocks()
            return int(self.pool.total_bytes())


@dataclass
class _Run:
    """The current run.

    Attributes
    ----------
    memory_limit, limit : int or str, int, optional
        The parameter, and the same in bytes.
    pool : _Pool, optional
        On a GPU.
    reserved : int
        Bytes that were pre-allocated for its stages.
    interrupted : bool
        Whether Ctrl-C was pressed.
    free_bytes : float
        Bytes that the chunks of a stage's work may take at a time.
    estimate : MemoryEstimate, optional
        What was checked last.
    """

    memory_limit: Any = None
    limit: int | None = None
    pool: _Pool | None = None
    reserved: int = 0
    interrupted: bool = False
    free_bytes: float = inf
    estimate: MemoryEstimate | None = None


def _run() -> _Run:
    return getattr(_thread, "run", None) or _Run()


def free_bytes() -> float:
    """Bytes that the chunks of a stage's work may take at a time in the current run."""
    return _run().free_bytes


def limit_bytes() -> float:
    """The limit of the current run in bytes, infinite if it has none."""
    limit = _run().limit
    return inf if limit is None else limit


def checked_estimate() -> tuple[MemoryEstimate | None, int]:
    """The estimate that the current run checked last, whether or not it fits, and the bytes pre-allocated for it."""
    return _run().estimate, _run().reserved


@contextmanager
def run_scope(device: Device, memory_limit: Any = None) -> Iterator[None]:
    """A block that gives all its device memory back at its end. Running out of memory raises `DeviceMemoryError`.

    No array of a GPU's pool may outlive the block. So the work is a separate function, whose variables are gone when
    the block ends, and it returns copies of its results (`copy_out`, `frames.frame_of`). The pool never grows beyond
    `memory_limit`; cuDF's allocations are not part of it.

    On a GPU the work runs on the default stream, which is cuDF's; the caller's stream waits for it.
    """
    run, outer = _Run(memory_limit, as_bytes(memory_limit)), getattr(_thread, "run", None)
    _thread.run = run
    try:
        if device.is_gpu:
            with _on_default_stream(device.xp.cuda), _pooled(device, run), _noting_interruptions(run):
                yield
        else:
            watch_numba()
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
        _thread.run = outer
        close_line()


def check_memory(device: Device, estimate: MemoryEstimate, what: str, already_taken: int = 0) -> None:
    """Raise unless the estimate for `what` fits; the remaining bytes become `free_bytes`, for chunks of work.

    The peak and the preferred chunk bytes are pre-allocated from the pool if they are a small part of free memory.

    Parameters
    ----------
    device, estimate, what
    already_taken : int
        Bytes of the estimate that the run has already taken.
    """
    run = _run()
    run.estimate = estimate
    least = required_bytes(device, estimate)
    if run.limit is not None and least > run.limit:
        raise DeviceMemoryError(
            f"memory_limit={run.memory_limit!r} is too small for {what}: "
            f"needs at least {size_text(least)} of {_kind(device)}"
        )
    free = None if least < UNCHECKED_BYTES else _free(device, run)
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
    """The bytes that must be free: a GPU's pool needs more than its arrays."""
    return int(estimate.least * FRAGMENTATION) + ROUNDING_BYTES if device.is_gpu else estimate.least


def release_cached() -> None:
    """Free the pool's unused blocks between two stages, which may need other sizes, unless they are reserved."""
    run = _run()
    if run.pool is not None and not run.reserved:
        run.pool.release(IDLE_BYTES if run.limit is None else 0)


def copy_out(device: Device, array: Array) -> Any:
    """An array that outlives the run."""
    if not device.is_gpu:
        return array
    with outside_pool(device):
        return array.copy()


@contextmanager
def outside_pool(device: Device) -> Iterator[None]:
    """Allocate GPU memory outside the run's pool, for results that outlive it. The pool frees its own if necessary."""
    run = _run()
    if not device.is_gpu or run.pool is None:
        yield
        return
    with device.xp.cuda.using_allocator(_retrying(run.pool.allocator, run.pool.pool.free_all_blocks)):
        yield


def free_memory() -> None:
    """Free the GPU memory that is kept for the next call, at most 512 MiB on all GPUs together.

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
def _pooled(device: Device, run: _Run) -> Iterator[None]:
    """Take CuPy's memory from a pool of this run."""
    cuda = device.xp.cuda
    _import_cudf()
    run.pool = pool = _take_pool(cuda)
    if run.limit is not None:
        pool.pool.free_all_blocks()  # they may exceed the limit
    pool.pool.set_limit(size=0 if run.limit is None else min(run.limit, sys.maxsize))

    def clear() -> None:  # the limit counts free blocks of other sizes, and only CUDA's own errors free them
        gc.collect()
        pool.pool.free_all_blocks()

    try:
        with cuda.using_allocator(_retrying(pool.pool.malloc, clear)):
            yield
    finally:
        with _idle_lock:
            _idle_pools.append(pool)
        _keep_idle(IDLE_BYTES)


def _take_pool(cuda: Any) -> _Pool:
    """An idle pool of the current allocator, with no memory in use, or a new pool."""
    allocator, gpu = cuda.get_allocator(), int(cuda.runtime.getDevice())
    with _idle_lock:
        for i, idle in enumerate(_idle_pools):
            if idle.gpu == gpu and idle.allocator == allocator and not idle.pool.used_bytes():
                return _idle_pools.pop(i)
    return _Pool(cuda.MemoryPool(allocator), allocator, gpu)


@cache
def _import_cudf() -> None:
    """Let cuDF, if it is installed, set CuPy's allocator now: it could not while another one is active."""
    if importlib.util.find_spec("cudf") is not None:
        importlib.import_module("cudf")


def _retrying(allocate: Callable[[int], Any], clear: Callable[[], None]) -> Callable[[int], Any]:
    """`allocate`, repeated once after `clear` if there is not enough memory."""

    def retry(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError:
            clear()
        return allocate(size)

    return retry


@contextmanager
def _noting_interruptions(run: _Run) -> Iterator[None]:
    """Note Ctrl-C, which Thrust does not report. Python handles signals in its main thread only."""
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


@contextmanager
def _on_default_stream(cuda: Any) -> Iterator[None]:
    """Work on the default stream, after the earlier and before the later work of the current stream."""
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


def _kind(device: Device) -> str:
    return "GPU memory" if device.is_gpu else "memory"


def _free(device: Device, run: _Run) -> int | None:
    if not device.is_gpu:
        return free_on_host()
    free = free_on_gpu(device.xp.cuda)
    return free if free is None or run.pool is None else free + run.pool.pool.free_bytes()


def _state(device: Device, run: _Run) -> str:
    if run.limit is not None and device.is_gpu:
        return f"memory_limit={run.memory_limit!r} was reached"
    free = _free(device, run)
    return "it ran out" if free is None else f"{size_text(free)} are free"

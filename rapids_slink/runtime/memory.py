"""A run's memory: its pool, its limit, and the check before each stage that the stage fits.

    with run_scope(device, memory_limit):           every public function works in one
        check_memory(device, estimate, "what")      raises, or sets how many bytes chunks of work may take
        ...
        return copy_out(device, result)             a GPU's result that outlives the pool

A GPU's pool allocates from the current allocator, rmm's or CuPy's. Without one every temporary array would cost a
device allocation and, when freed, a wait for the GPU. Pools that have become idle keep up to `IDLE_BYTES` together for
the next run.
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

from rapids_slink.runtime.compiling import watch_numba
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, as_bytes, free_on_gpu, size_text
from rapids_slink.runtime.host import free_on_host

#: How much more than its arrays a pool may hold, in pieces that fit none of them.
FRAGMENTATION = 1.25
#: And for small arrays, which take at least half a KiB, and the scratch memory of CuPy's sorts and sums.
ROUNDING_BYTES = 2**21
#: Pre-allocate an estimate's bytes, for the pool to split, if they are at most this share of free memory.
RESERVED_SHARE = 1 / 8
#: Estimates below this pass without a look at how much memory is free.
UNCHECKED_BYTES = 2**26
#: What idle pools keep together, and a run's pool between two stages without a limit or a reservation.
IDLE_BYTES = 2**29

_thread = threading.local()  # `run`: the one under way in this thread
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
        """Give back what is not in use if the pool holds more bytes than `keep`; returns how many it holds now."""
        with sys.modules["cupy"].cuda.Device(self.gpu):
            if self.pool.total_bytes() > keep:
                self.pool.free_all_blocks()
            return int(self.pool.total_bytes())


@dataclass
class _Run:
    """A run under way.

    Attributes
    ----------
    memory_limit, limit : int or str, int, optional
        As it was given, and in bytes.
    pool : _Pool, optional
        A GPU's.
    is_reserved, interrupted : bool
        Whether what its stages are estimated to take was pre-allocated, and whether Ctrl-C was pressed.
    free_bytes : float
        What the chunks of a stage's work may take at a time.
    """

    memory_limit: Any = None
    limit: int | None = None
    pool: _Pool | None = None
    is_reserved: bool = False
    interrupted: bool = False
    free_bytes: float = inf


def _run() -> _Run:
    return getattr(_thread, "run", None) or _Run()


def free_bytes() -> float:
    """Bytes that the chunks of a stage's work may take at a time in the run under way."""
    return _run().free_bytes


def limit_bytes() -> float:
    """Bytes that the run under way may take at all, if it has a limit."""
    limit = _run().limit
    return inf if limit is None else limit


@contextmanager
def run_scope(device: Device, memory_limit: Any = None) -> Iterator[None]:
    """A block whose device memory is all given back at its end; running out of memory raises `DeviceMemoryError`.

    No array of a GPU's pool should outlive the block: the work is a function of its own, so that its variables are
    gone when the block ends, and returns copies of its results (`copy_out`, `frames.frame_of`). The pool never grows
    beyond `memory_limit`; what cuDF allocates is not the pool's.

    A GPU's work runs on the default stream, since that is cuDF's; the caller's stream waits for it.
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


def check_memory(device: Device, estimate: MemoryEstimate, what: str, already_taken: int = 0) -> None:
    """Raise unless the estimate for `what` fits; what is left is then `free_bytes`, for chunks of work.

    The peak and the preferred chunk bytes are pre-allocated from the pool if they are a small part of free memory.

    Parameters
    ----------
    device, estimate, what
    already_taken : int
        Bytes of the estimate that the run has taken.
    """
    run = _run()
    least = int(estimate.least * FRAGMENTATION) + ROUNDING_BYTES if device.is_gpu else estimate.least
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
    most = min(inf if run.limit is None else run.limit, inf if free is None else free + already_taken)
    run.free_bytes = most - (least - estimate.min_chunk)
    reserved = estimate.peak + estimate.preferred_chunk - already_taken
    run.is_reserved = False
    if run.pool is not None and run.limit is None and 0 < reserved <= most * RESERVED_SHARE:
        with suppress(MemoryError):
            run.pool.pool.malloc(reserved)  # and free again at once
            run.is_reserved = True


def release_cached() -> None:
    """Between two stages: give back what the first took and the second may need in other sizes, unless reserved."""
    run = _run()
    if run.pool is not None and not run.is_reserved:
        run.pool.release(IDLE_BYTES if run.limit is None else 0)


def copy_out(device: Device, array: Any) -> Any:
    """An array that outlives the run."""
    if not device.is_gpu:
        return array
    with outside_pool(device):
        return array.copy()


@contextmanager
def outside_pool(device: Device) -> Iterator[None]:
    """Allocate a GPU's memory outside the run's pool, for what outlives it; the pool gives way where it has to."""
    run = _run()
    if not device.is_gpu or run.pool is None:
        yield
        return
    with device.xp.cuda.using_allocator(_retrying(run.pool.allocator, run.pool.pool.free_all_blocks)):
        yield


def free_memory() -> None:
    """Give back the GPU memory that is kept for the next call, at most 512 MiB of all GPUs together.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.free_memory()
    """
    _keep_idle(0)


def _keep_idle(most: int) -> None:
    """Empty idle pools, those idle the longest first, until all together hold at most so many bytes."""
    with _idle_lock:
        for idle in reversed(_idle_pools[:]):
            held = idle.release(keep=most)
            most = max(0, most - held)
            if not held:
                _idle_pools.remove(idle)


@contextmanager
def _pooled(device: Device, run: _Run) -> Iterator[None]:
    """Take CuPy's memory from a pool that is this run's alone."""
    cuda = device.xp.cuda
    _import_cudf()
    run.pool = pool = _take_pool(cuda)
    if run.limit is not None:
        pool.pool.free_all_blocks()  # what is kept idle may be more
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
    """An idle pool on the allocator in force of which nothing is in use, or a new one."""
    allocator, gpu = cuda.get_allocator(), int(cuda.runtime.getDevice())
    with _idle_lock:
        for i, idle in enumerate(_idle_pools):
            if idle.gpu == gpu and idle.allocator == allocator and not idle.pool.used_bytes():
                return _idle_pools.pop(i)
    return _Pool(cuda.MemoryPool(allocator), allocator, gpu)


@cache
def _import_cudf() -> None:
    """Have cuDF, if it is there, set CuPy's allocator: it could not while another is in force."""
    if importlib.util.find_spec("cudf") is not None:
        importlib.import_module("cudf")


def _retrying(allocate: Callable[[int], Any], clear: Callable[[], None]) -> Callable[[int], Any]:
    """`allocate`, and once more after `clear` where it finds no memory."""

    def retry(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError:
            clear()
        return allocate(size)

    return retry


@contextmanager
def _noting_interruptions(run: _Run) -> Iterator[None]:
    """Note Ctrl-C, of which Thrust tells nobody; Python handles signals in its main thread alone."""
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

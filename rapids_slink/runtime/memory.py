"""A run's memory: its pool, its limit, and the check before each stage that the stage fits.

    with run_scope(device, memory_limit):           every public function works in one
        check_memory(device, estimate, "what")      raises, or sets how many bytes chunks of work may take
        ...
        return copy_out(device, result)             a result on a GPU outlives the pool

`pools` has a GPU's pools.
"""

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from rapids_slink.runtime.compiling import watch_numba
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate, as_bytes, free_on_gpu, size_text
from rapids_slink.runtime.host import free_on_host
from rapids_slink.runtime.pools import IDLE_BYTES, Pool, free_memory, on_default_stream, retrying, taken_pool

#: A pool may hold this many times the bytes of its arrays, in pieces too small for any of them.
FRAGMENTATION = 1.25
#: Added for small arrays, which take at least half a KiB, and for the scratch memory of CuPy's sorts and sums.
ROUNDING_BYTES = 2**21
#: Pre-allocate an estimate's bytes, for the pool to split, if they are at most this share of free memory.
RESERVED_SHARE = 1 / 8
#: Estimates below this pass without a look at how much memory is free.
UNCHECKED_BYTES = 2**26

_thread = threading.local()  # `run`: the current run of this thread


class DeviceMemoryError(ValueError, MemoryError):
    """The work does not fit into the device's memory or into ``memory_limit``."""


@dataclass
class _Run:
    """The current run."""

    #: the parameter, and the same in bytes
    memory_limit: Any = None
    limit: int | None = None
    pool: Pool | None = None  # on a GPU
    reserved: int = 0  # bytes that were pre-allocated for its stages
    interrupted: bool = False  # whether Ctrl-C was pressed
    free_bytes: float = inf  # bytes that the chunks of a stage's work may take at a time
    estimate: MemoryEstimate | None = None  # what was checked last


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
def usual_errors() -> Iterator[None]:
    """NumPy's own treatment of floating-point errors in a block or a function, whatever the caller has set.

    Small values underflow in the course of the work, which ``np.seterr(all="raise")`` would take for an error.
    """
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        yield


@contextmanager
def run_scope(device: Device, memory_limit: Any = None) -> Iterator[None]:
    """A block that gives all its device memory back at its end. Running out of memory raises `DeviceMemoryError`.

    No array of a GPU's pool may outlive the block. So the work is a separate function, whose variables are gone when
    the block ends, and it returns copies of its results (`copy_out`, `frames.frame_of`). The pool never grows beyond
    `memory_limit`; cuDF's allocations are not part of it.

    On a GPU the work runs on the default stream, which is cuDF's; the caller's stream waits for it. So runs on one GPU
    do not overlap, and a CUDA graph cannot capture one.
    """
    run, outer = _Run(memory_limit, as_bytes(memory_limit)), getattr(_thread, "run", None)
    watch_numba()
    _thread.run = run
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
        _thread.run = outer


def check_memory(device: Device, estimate: MemoryEstimate, what: str, already_taken: int = 0) -> None:
    """Raise unless the estimate for `what` fits; the remaining bytes become `free_bytes`, for chunks of work.

    The peak and the preferred chunk bytes are pre-allocated from the pool if they are a small part of free memory. The
    run has `already_taken` bytes of the estimate.
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
    with device.xp.cuda.using_allocator(retrying(run.pool.allocator, run.pool.pool.free_all_blocks)):
        yield


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

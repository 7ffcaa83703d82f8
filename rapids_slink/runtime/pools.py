"""Pools of a GPU's memory, each of a run, and of the next ones after it.

A pool allocates from the current allocator, rmm's or CuPy's. Without a pool every temporary array would cost a device
allocation and a wait for the GPU when it is freed. All idle pools together keep up to `IDLE_BYTES` for the next run.
"""

import gc
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

#: Bytes that all idle pools keep together, and a run's pool between two stages without a limit or a reservation.
IDLE_BYTES = 2**29

_idle_lock = threading.Lock()


@dataclass(frozen=True)
class Pool:
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


_idle_pools: list[Pool] = []


@contextmanager
def taken_pool(cuda: Any, limit: int | None) -> Iterator[Pool]:
    """Take CuPy's memory from a pool that holds at most `limit` bytes, if there is one."""
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
    """An idle pool of the current allocator, with no memory in use, or a new pool."""
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
    """`allocate`, repeated once after `clear` if there is not enough memory."""

    def retry(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError:
            clear()
        return allocate(size)

    return retry


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
def on_default_stream(cuda: Any) -> Iterator[None]:
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

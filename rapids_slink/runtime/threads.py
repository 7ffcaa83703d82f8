"""Work in chunks: on all cores of a CPU, or one after the other on a GPU, which each chunk fills."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import threadpoolctl

from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.host import usable_cores


class Progress(NamedTuple):
    """The text of a progress bar and the number of rows that it counts."""

    label: str
    rows: int


@contextmanager
def progress_bar(total: int, progress: Progress | None) -> Iterator[Callable[[], Any]]:
    """What to call after each of the `total` equal parts of some work; there is no bar if `progress` is None."""
    if progress is None:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=progress.rows, desc=progress.label, unit=" rows", unit_scale=True, leave=False) as bar:
        yield lambda: bar.update(progress.rows / total)


def with_progress(parts: Iterable[Any], total: int, progress: Progress | None) -> Iterator[Any]:
    """Iterate over these parts, with that bar."""
    with progress_bar(total, progress) as advance:
        for part in parts:
            yield part
            advance()


def workers(device: Device) -> int:
    """How many chunks are worked on at a time."""
    return 1 if device.is_gpu else usable_cores()


def chunks_for_cores(n: int, least: int, most: int | None = None) -> list[slice]:
    """0 to n in slices of equal sizes, as many for each core of a CPU.

    None is longer than `most`, and none, if there is more than one, shorter than `least`, which comes first.
    """
    cores = workers(CPU)
    of_a_core = 1 if most is None else -(-n // (cores * most))
    parts = max(1, min(n // least, cores * of_a_core))
    return [slice(n * p // parts, n * (p + 1) // parts) for p in range(parts)]


class _Kept(threading.local):
    """For each thread that works in chunks, the pool of those that help it, and the process that it was started in.

    The pool is kept from run to run, since to start and stop one takes a millisecond.
    """

    pool: ThreadPoolExecutor | None = None
    process: int | None = None

    def started(self) -> ThreadPoolExecutor:
        """The pool; threads do not outlive a fork."""
        if self.pool is None or self.process != os.getpid():
            self.pool, self.process = ThreadPoolExecutor(max(1, usable_cores() - 1), "rapids_slink"), os.getpid()
        return self.pool


_kept = _Kept()


def for_each_chunk(
    device: Device, work: Callable[[Any], Any], chunks: Iterable[Any], progress: Progress | None = None
) -> list[Any]:
    """`work` of every chunk, and the results in order.

    On a CPU by all cores, if there is more than one chunk: by this thread and a pool's, which take chunk after chunk.
    BLAS is limited to one thread in each: its own pool, which waits by spinning, would compete for the cores.
    """
    chunks = list(chunks)
    results, waiting = [None] * len(chunks), enumerate(chunks)
    with progress_bar(len(chunks), progress) as advance:

        def take_chunks() -> None:
            try:
                for i, chunk in waiting:
                    results[i] = work(chunk)
                    advance()
            except BaseException:
                list(waiting)  # after an error or Ctrl-C no further chunk is started
                raise

        helpers = min(len(chunks), workers(device)) - 1
        if helpers > 0:
            _with_helpers(take_chunks, helpers)
        else:
            take_chunks()
    return results


def _with_helpers(take_chunks: Callable[[], None], helpers: int) -> None:
    """`take_chunks` by this thread and by so many of its pool."""
    pool = _kept.started()
    with _one_blas_thread:
        try:
            helping = [pool.submit(take_chunks) for _ in range(helpers)]
            take_chunks()
            for helped in helping:
                helped.result()
        except BaseException:
            _kept.pool = None
            pool.shutdown()
            raise


class _OneBlasThread:
    """A block in which BLAS has one thread; of blocks that overlap the last gives back what the first has found."""

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._limits = _blas_controller().limit(limits=1, user_api="blas")
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                _let_any_thread_limit_blas()
                self._limits.restore_original_limits()
                _let_any_thread_limit_blas()


_one_blas_thread = _OneBlasThread()


def _let_any_thread_limit_blas() -> None:
    """From threadpoolctl 3.8 on limits of a thread are ignored as long as another, which set some earlier, is alive."""
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas_controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()

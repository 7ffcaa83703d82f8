"""Work in chunks: on all cores of a CPU, or one chunk after the other on a GPU, which a chunk fills."""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from rapids_slink.forced import forced
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import current_run, usable_cores

#: With progress="auto" a bar appears in a run that will take more than LONG seconds, by what TRIED seconds have done.
LONG, TRIED = 10.0, 2.0


class Progress(NamedTuple):
    """A progress bar."""

    label: str
    rows: int  # the number of rows that it counts
    shown: bool | str = True  # "auto": in a long run
    unit: str = " rows"


def shown_progress(progress: Any) -> bool | str:
    """Return the checked `progress`; "auto" becomes False where nobody sees a bar: no terminal and no Jupyter."""
    if progress == "auto":
        errors = sys.stderr
        watched = errors is not None and (errors.isatty() or type(errors).__module__.startswith("ipykernel"))
        return "auto" if watched else False
    if not isinstance(progress, bool | np.bool_):
        raise ValueError(f"progress must be True, False or 'auto', got {progress!r}")
    return bool(progress)


@contextmanager
def progress_bar(
    total: int, progress: Progress | None, now: Callable[[], float] = time.perf_counter
) -> Iterator[Callable[..., Any]]:
    """Yield a function to call after each of the `total` equal parts of some work, or with a number of parts.

    A bar of tqdm is shown at once, or as soon as the run is known to be long by the clock `now`. It stays, so that its
    line ends. There is no bar if `progress` is None.
    """
    if progress is None:
        yield lambda parts=1: None
        return
    label, rows, shown, unit = progress
    start, done, lock = now(), 0, threading.Lock()
    run_start = current_run().start or start

    def show() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets Jupyter has a bar of text
            from tqdm.auto import tqdm

        initial = rows * done / total if total else 0
        return tqdm(total=rows, desc=label, unit=unit, unit_scale=True, initial=initial)

    bar = None if shown == "auto" else show()

    def advance(parts: int = 1) -> None:
        nonlocal bar, done
        with lock:
            done += parts
            elapsed = now() - start
            if bar is not None:
                bar.update(rows * parts / total)
            elif elapsed >= TRIED and start - run_start + elapsed * total / done > LONG:
                bar = show()

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()


def with_progress(parts: Iterable[Any], total: int, progress: Progress | None) -> Iterator[Any]:
    """Yield these parts, with a progress bar."""
    with progress_bar(total, progress) as advance:
        for part in parts:
            yield part
            advance()


def workers(device: Device) -> int:
    """Return the number of chunks that are processed at the same time."""
    return 1 if device.is_gpu else forced().cores or usable_cores()


def shares(whole: slice, number: int) -> list[slice]:
    """Divide a slice into `number` slices, whose sizes differ by one at most."""
    n = whole.stop - whole.start
    return [slice(whole.start + n * i // number, whole.start + n * (i + 1) // number) for i in range(number)]


def chunks_for_cores(n: int, shortest: int, longest: int | None = None) -> list[slice]:
    """Divide 0 to n into slices of equal size, the same number for each core of a CPU.

    A slice has at least `shortest` items unless it is the only one, and at most `longest` if that does not conflict.
    """
    cores = workers(CPU)
    slices_of_a_core = 1 if longest is None else -(-n // (cores * longest))
    return shares(slice(0, n), max(1, min(n // shortest, cores * slices_of_a_core)))


class _Helpers:
    """Threads that help one thread with its chunks.

    Tasks and their errors go through queues that CPython implements in C. An interruption of the caller cannot come
    while it holds a lock of theirs, as it can with the locks of an executor; then no helper would ever end.
    """

    threads: Sequence[threading.Thread] = ()

    def __init__(self) -> None:
        self.process = os.getpid()
        self.tasks, self.ended = SimpleQueue[Callable[[], None] | None](), SimpleQueue[BaseException | None]()
        help_ = partial(_help, self.tasks, self.ended)
        self.threads = [
            threading.Thread(target=help_, name=f"rapids_slink_{i}", daemon=True)
            for i in range(max(1, usable_cores() - 1))
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End the threads after the chunks that they have begun."""
        self.__del__()
        for thread in self.threads:
            thread.join()

    def __del__(self) -> None:
        """Let the threads end: put a None for each, which is surplus if the thread has ended."""
        for _ in self.threads:
            self.tasks.put(None)


def _help(tasks: SimpleQueue[Callable[[], None] | None], ended: SimpleQueue[BaseException | None]) -> None:
    """Do tasks until there is a None in place of one."""
    while (task := tasks.get()) is not None:
        try:
            task()
            ended.put(None)
        except BaseException as error:
            ended.put(error)
        del task  # which holds the arrays of its run


class _Kept(threading.local):
    """The helpers of each thread. They are kept from run to run, because to start and stop them takes a millisecond."""

    helpers: _Helpers | None = None
    shares_chunks = False  # whether this thread is within a chunk of those that it and others take


_kept = _Kept()


def for_each_chunk(
    device: Device, work: Callable[[Any], Any], chunks: Iterable[Any], progress: Progress | None = None
) -> list[Any]:
    """Call `work` for every chunk, and return the results in order.

    On a CPU all cores work if there is more than one chunk: this thread and its helpers take chunk after chunk.
    BLAS is limited to one thread meanwhile: its own pool waits by spinning and would compete for the cores. A call
    within such a chunk is done by its thread alone: the helpers' queues tell the end of the outer call's chunks.
    """
    chunks = list(chunks)
    n_helping = 0 if _kept.shares_chunks else min(len(chunks), workers(device)) - 1
    results, waiting = [None] * len(chunks), enumerate(chunks)
    with progress_bar(len(chunks), progress) as advance:

        def take_chunks() -> None:
            before, _kept.shares_chunks = _kept.shares_chunks, _kept.shares_chunks or n_helping > 0
            try:
                for i, chunk in waiting:
                    results[i] = work(chunk)
                    advance()
            except BaseException:
                list(waiting)  # so that no further chunk starts after an error or Ctrl-C
                raise
            finally:
                _kept.shares_chunks = before

        if n_helping < 1:
            take_chunks()
            return results
        if _kept.helpers is None or _kept.helpers.process != os.getpid():  # threads do not outlive a fork
            _kept.helpers = _Helpers()
        helpers = _kept.helpers
        with one_blas_thread():
            try:
                for _ in range(n_helping):
                    helpers.tasks.put(take_chunks)
                take_chunks()
                for _ in range(n_helping):
                    if (error := helpers.ended.get()) is not None:
                        raise error
            except BaseException:
                _kept.helpers = None
                helpers.stop()
                raise
    return results


#: For each block of `one_blas_thread` the limits that it has set; only the first of overlapping blocks sets any.
_blas_limits: list[Any] = []
_blas_lock = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run a block in which BLAS has one thread. If blocks overlap, the last one restores the setting before the first.

    It is for work whose parts are small: BLAS's threads wait for each other by spinning, which keeps cores busy.
    """
    with _blas_lock:
        _blas_limits.append(None if _blas_limits else _blas_controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _blas_lock:
            first = _blas_limits[0]
            _blas_limits.pop()
            if not _blas_limits:
                _let_any_thread_limit_blas()
                first.restore_original_limits()
                _let_any_thread_limit_blas()


def _let_any_thread_limit_blas() -> None:
    """Let any thread limit BLAS's threads from now on.

    Since threadpoolctl 3.8 only the thread that first set a limit may set limits, as long as it is alive.
    """
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas_controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()

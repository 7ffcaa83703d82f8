"""Work in chunks: on all cores of a CPU, or one chunk after the other on a GPU, which a chunk fills."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import threadpoolctl

from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import usable_cores


class Progress(NamedTuple):
    """The text of a progress bar and the number of rows that it counts."""

    label: str
    rows: int


@contextmanager
def progress_bar(total: int, progress: Progress | None) -> Iterator[Callable[[], Any]]:
    """A function to call after each of the `total` equal parts of some work. There is no bar if `progress` is None."""
    if progress is None:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=progress.rows, desc=progress.label, unit=" rows", unit_scale=True, leave=False) as bar:
        yield lambda: bar.update(progress.rows / total)


def with_progress(parts: Iterable[Any], total: int, progress: Progress | None) -> Iterator[Any]:
    """Iterate over these parts with a progress bar."""
    with progress_bar(total, progress) as advance:
        for part in parts:
            yield part
            advance()


def workers(device: Device) -> int:
    """The number of chunks that are processed at the same time."""
    return 1 if device.is_gpu else usable_cores()


def shares(whole: slice, number: int) -> list[slice]:
    """A slice in `number` slices, whose sizes differ by one at most."""
    n = whole.stop - whole.start
    return [slice(whole.start + n * i // number, whole.start + n * (i + 1) // number) for i in range(number)]


def chunks_for_cores(n: int, shortest: int, longest: int | None = None) -> list[slice]:
    """0 to n in slices of equal size, the same number for each core of a CPU.

    A slice has at least `shortest` items unless it is the only one, and at most `longest` if that does not conflict.
    """
    cores = workers(CPU)
    of_a_core = 1 if longest is None else -(-n // (cores * longest))
    return shares(slice(0, n), max(1, min(n // shortest, cores * of_a_core)))


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
        """Let the threads end: there is a None for each, which is surplus once it has ended."""
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


_kept = _Kept()


def for_each_chunk(
    device: Device, work: Callable[[Any], Any], chunks: Iterable[Any], progress: Progress | None = None
) -> list[Any]:
    """Call `work` for every chunk; returns the results in order.

    On a CPU all cores work if there is more than one chunk: this thread and its helpers take chunk after chunk.
    BLAS is limited to one thread meanwhile: its own pool waits by spinning and would compete for the cores.
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
                list(waiting)  # so that no further chunk starts after an error or Ctrl-C
                raise

        n_helping = min(len(chunks), workers(device)) - 1
        if n_helping < 1:
            take_chunks()
            return results
        if _kept.helpers is None or _kept.helpers.process != os.getpid():  # threads do not outlive a fork
            _kept.helpers = _Helpers()
        helpers = _kept.helpers
        with one_blas_thread:
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


class _OneBlasThread:
    """A block in which BLAS has one thread. If blocks overlap, the last one restores the setting before the first."""

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


#: Around work of BLAS whose parts are small: its threads wait for each other by spinning, and take a core from others.
one_blas_thread = _OneBlasThread()


def _let_any_thread_limit_blas() -> None:
    """Since threadpoolctl 3.8 only the thread that first set a limit may set limits, as long as it is alive."""
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas_controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()

"""The one clock, and the peak of device memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rapids_slink.runtime.memory import free_memory

#: Seconds of calls before one counts: the clocks of an idle GPU take time to rise, and the threads that BLAS and OpenMP
#: keep spin on the CPU's cores for a while after what they did before.
WARM_UP = 0.3
#: Timed calls take at least these seconds in all, so that short calls are made many times.
TIMED = 0.3


@dataclass(frozen=True)
class Clock:
    """Times calls on one device.

    Attributes
    ----------
    on_gpu : bool
        Whether to wait for the whole device before either end of the time. The whole device, because peers work on
        streams of their own.
    repeats : int
        Timed calls, if the budget is enough, and more if they take less than `TIMED`. If 0, the first call's time has
        to do.
    budget : float
        Seconds that the timed calls of one measurement may take in all; one is always made.
    """

    on_gpu: bool
    repeats: int = 7
    budget: float = 10.0

    def median(self, call: Callable[[], Any], read: Callable[[Any], float] | None = None) -> float:
        """Return the median of `seconds`."""
        return statistics.median(self.seconds(call, read))

    def seconds(self, call: Callable[[], Any], read: Callable[[Any], float] | None = None) -> list[float]:
        """Return the seconds of each timed call that follows the warm-up, or what `read` finds in its result."""
        seconds: list[float] = []
        spent = 0.0
        begun = time.perf_counter()
        while not seconds or (
            (len(seconds) < self.repeats or spent < TIMED) and spent + spent / len(seconds) <= self.budget
        ):
            self.synchronize()
            start = time.perf_counter()
            result = call()
            self.synchronize()
            elapsed = time.perf_counter() - start
            if start + elapsed < begun + WARM_UP:
                continue
            spent += elapsed
            seconds.append(elapsed if read is None else read(result))
            del result
        return seconds

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            import cupy

            cupy.cuda.Device().synchronize()

    def warm_up(self, call: Callable[[], Any]) -> tuple[Any, float, int | None]:
        """Make a first call; return its result, its seconds and the bytes of device memory at its peak, None on a CPU.

        The peak counts what is allocated through rmm during the call, input excluded: cuDF allocates there, and so
        does CuPy once cuDF is imported. It is an exact count, not a sample, and costs nothing that is timed. It does
        not see the CUDA context, the workspaces of cuBLAS, or what comes with kernels.
        """
        if not self.on_gpu:
            start = time.perf_counter()
            result = call()
            return result, time.perf_counter() - start, None
        import cudf  # noqa: F401 (points CuPy at rmm)
        import rmm.statistics

        free_memory()  # memory that a call reuses from a pool would not be counted
        with rmm.statistics.statistics():
            start = time.perf_counter()
            result = call()
            self.synchronize()
            elapsed = time.perf_counter() - start
            counted = rmm.statistics.get_statistics()
        return result, elapsed, None if counted is None else int(counted.peak_bytes)

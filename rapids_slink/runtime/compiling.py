"""Kernels are compiled at first use on a machine; after two seconds of that a message is logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

LOGGER = logging.getLogger("rapids_slink")
#: Seconds of compilation in a process that pass without a message.
SILENT = 2.0
TEXT = "kernels are being compiled for this machine, which takes some seconds and happens once"


@dataclass
class _Clock:
    """How long this process has compiled. Nested compilations count once, as do those of threads at the same time."""

    depth: int = 0
    started: float = 0.0
    seconds: float = 0.0
    announced: bool = False

    def start(self) -> None:
        if not self.depth:
            self.started = time.perf_counter()
        self.depth += 1

    def stop(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.seconds += time.perf_counter() - self.started
        if self.seconds > SILENT and not self.announced:
            self.announced = True
            LOGGER.warning(TEXT)


_clock = _Clock()


@contextmanager
def compiling() -> Iterator[None]:
    """A block that may compile."""
    _clock.start()
    try:
        yield
    finally:
        _clock.stop()


@cache
def watch_numba() -> None:
    """Count what Numba compiles of this package from now on."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if _is_ours(event):
                _clock.start()

        def on_end(self, event: Any) -> None:
            if _is_ours(event):
                _clock.stop()

    event.register("numba:compile", Listener())


def _is_ours(event: Any) -> bool:
    return bool(event.data["dispatcher"].py_func.__module__.startswith("rapids_slink"))

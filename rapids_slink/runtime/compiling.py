"""Kernels are compiled when they are first needed on a machine: after two seconds of that, one line says so."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

LOGGER = logging.getLogger("rapids_slink")
#: Seconds of compilation in a process that nobody is told of.
SILENT = 2.0
TEXT = "kernels are being compiled for this machine, which takes some seconds and happens once"


@dataclass
class _Clock:
    """How long this process has compiled. Compilations may be within one another; where threads overlap it is less."""

    depth: int = 0
    begun: float = 0.0
    seconds: float = 0.0
    told: bool = False

    def start(self) -> None:
        if not self.depth:
            self.begun = time.perf_counter()
        self.depth += 1

    def stop(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.seconds += time.perf_counter() - self.begun
        if self.seconds > SILENT and not self.told:
            self.told = True
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

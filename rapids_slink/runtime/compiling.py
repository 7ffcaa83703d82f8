"""Kernels are compiled at their first use on a machine. If that takes more than two seconds, a message is logged.

Numba's machine code is kept on disk in a folder whose name is a hash of the package's sources. Numba's own check looks
only at the file of a function, not at the files of the functions that it inlines.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numba

LOGGER = logging.getLogger("rapids_slink")
#: Seconds of compilation in a process that pass without a message.
SILENT = 2.0
TEXT = "kernels are being compiled for this machine, which takes some seconds"
NO_FOLDER = (
    "kernels are compiled again in every process: neither the package's folder nor the home folder is writable. "
    "NUMBA_CACHE_DIR names another one."
)
PACKAGE = Path(__file__).parent.parent
CONFIG: Any = numba.config


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Numba's decorator. Its ``cache=True`` uses the disk cache if there is a folder for it."""

    def compiled(function: Callable[..., Any]) -> Any:
        folder, usual = cache_folder(), CONFIG.CACHE_DIR
        if folder is None:
            return numba.njit(**{**options, "cache": False})(function)
        CONFIG.CACHE_DIR = str(folder)  # read by the decorator
        try:
            return numba.njit(**options)(function)
        finally:
            CONFIG.CACHE_DIR = usual

    return compiled


@cache
def cache_folder() -> Path | None:
    """The folder of the sources' machine code: in ``NUMBA_CACHE_DIR``, in the package, or in the home folder.

    It is None, and a message is logged, if none of these is writable.
    """
    sources = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        sources.update(path.read_bytes())
    name = f"rapids_slink-{sources.hexdigest()[:16]}"
    in_package = PACKAGE / "__pycache__"
    for parent in filter(None, (CONFIG.CACHE_DIR, in_package, _home_cache())):
        folder = Path(parent, name)
        older = list(in_package.glob("rapids_slink-*")) if parent == in_package and not folder.exists() else []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        for stale in older:
            shutil.rmtree(stale, ignore_errors=True)
        return folder
    LOGGER.warning(NO_FOLDER)
    return None


def _home_cache() -> Path | None:
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # there is no home
        return None


@dataclass
class _Clock:
    """How long this process has compiled. Nested and simultaneous compilations count once."""

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

"""Compiling kernels at their first use on a machine. If that takes more than two seconds, a message is logged.

`Report` shows the seconds apart from those of the stages.

Numba's machine code is kept on disk in a folder whose name is a hash of the package's sources. Numba's own check looks
only at the file of a function, not at the files of the functions that it inlines.
"""

import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np

LOGGER = logging.getLogger("rapids_slink")
#: The seconds that a process may compile without a message.
SILENT = 2.0
#: The seconds of a run after which its progress bar appears.
SHOWN = 0.2
TEXT = "kernels are being compiled for this machine, which takes some seconds, once"
AGAIN = "kernels are compiled again in every process: "
NO_FOLDER = (
    f"{AGAIN}neither the package's folder nor the home folder is writable for this user, and not for all others. "
    "NUMBA_CACHE_DIR names another one."
)
NO_FILES = f"{AGAIN}how Numba {numba.__version__} keeps them on disk is not known."
PACKAGE = Path(__file__).parent.parent
CONFIG: Any = numba.config


def keep_apart(file: Any) -> None:
    """Give each version of a function's machine code a file of its own on disk, whose name nobody else takes.

    Numba numbers the files. Two processes that compile different signatures at the same time take the same number, and
    then the index names the code of one signature for the other. Here the index may lose an entry, which is compiled
    again.

    Raises AttributeError for the files of a Numba that calls their parts, which are not public, by other names.
    """
    pattern, save_data = file._data_name_pattern, file._save_data
    load_index, save_index = file._load_index, file._save_index

    def save(key: Any, data: Any) -> None:
        name = pattern.format(number=uuid.uuid4().int)
        save_data(name, data)
        save_index({**load_index(), key: name})

    file.save = save


#: How many functions of each name were decorated.
_names: Counter[str] = Counter()


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return Numba's decorator; its ``cache=True`` uses the disk cache if there is a folder for it.

    Functions that one factory makes get names of their own. Numba tells functions of one name apart by the order in
    which the process compiles them. Code from the disk has the order of another process, and where two names meet the
    linker takes the code that was there first, silently.
    """
    options = {"no_cfunc_wrapper": True, **options}  # C calls no kernel, so that a wrapper is of no use

    def compiled(function: Callable[..., Any]) -> Any:
        name = f"{function.__module__}.{function.__qualname__}"
        function.__qualname__ += f"_{_names[name]}" if _names[name] else ""
        _names[name] += 1
        folder, usual = cache_folder(), CONFIG.CACHE_DIR
        if folder is not None and options.get("cache"):
            CONFIG.CACHE_DIR = str(folder)  # read by the decorator
            try:
                dispatcher = numba.njit(**options)(function)
                keep_apart(dispatcher._cache._cache_file)
                return dispatcher
            except (AttributeError, NameError):
                _warn_of_files()
            finally:
                CONFIG.CACHE_DIR = usual
        return numba.njit(**{**options, "cache": False})(function)

    return compiled


@cache
def _warn_of_files() -> None:
    LOGGER.warning(NO_FILES)


def read_only(values: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written: a kernel is compiled once, whether or not the caller's array can be."""
    view = values.view()
    view.flags.writeable = False
    return view


@cache
def hash_of_sources() -> str:
    """Return a short hash of all sources of the package."""
    sources = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.cu", "*.cuh") for path in PACKAGE.rglob(kind)):
        sources.update(path.read_bytes())
    return sources.hexdigest()[:16]


@cache
def cache_folder(configured: str | None = None, package: Path = PACKAGE) -> Path | None:
    """Return the folder of the sources' machine code: in ``NUMBA_CACHE_DIR``, the package, or the home folder.

    `configured` stands for that variable if it is not None. Whoever can write there decides what runs. So a folder of
    another user, or one that all may write, is not used. If none is left, a message is logged, and the result is None.
    """
    name = f"rapids_slink-{hash_of_sources()}"
    in_package = package / "__pycache__"
    for parent in filter(None, (CONFIG.CACHE_DIR if configured is None else configured, in_package, _home_cache())):
        folder = Path(parent, name)
        is_new = parent == in_package and not folder.exists()
        older = {*in_package.glob("rapids_slink-*")} - {folder} if is_new else set()  # another process may make it now
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            if _others_may_write(folder):
                continue
        except OSError:
            continue
        for stale in older:
            shutil.rmtree(stale, ignore_errors=True)
        return folder
    LOGGER.warning(NO_FOLDER)
    return None


def _others_may_write(folder: Path) -> bool:
    """Return whether the folder belongs to another user than this one or root, or any user may write there."""
    status = folder.stat()
    return hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or bool(status.st_mode & stat.S_IWOTH))


def _home_cache() -> Path | None:
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # there is no home
        return None


@dataclass
class _Clock:
    """How long this process has compiled. Nested and simultaneous compilations count once."""

    now: Callable[[], float] = time.perf_counter
    lock: Any = field(default_factory=threading.Lock)
    depth: int = 0
    started: float = 0.0
    seconds: float = 0.0
    announced: bool = False
    advance: Callable[[], Any] | None = None  # moves a progress bar on

    def start(self) -> None:
        with self.lock:
            if not self.depth:
                self.started = self.now()
            self.depth += 1

    def stop(self) -> None:
        with self.lock:
            self.depth -= 1
            elapsed = self.now() - self.started
            if not self.depth:
                self.seconds, elapsed = self.seconds + elapsed, 0.0
            announces = not self.announced and self.seconds + elapsed > SILENT
            self.announced |= announces
        if self.advance is not None:
            self.advance()
        if announces:
            LOGGER.warning(TEXT)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time of a block, which may compile."""
        self.start()
        try:
            yield
        finally:
            self.stop()


clock = _Clock()
compiling = clock.counting


@contextmanager
def compiling_bar(delay: float = SHOWN) -> Iterator[None]:
    """Show a progress bar that counts a block's compilations; it appears with the first that takes time."""
    from tqdm.auto import tqdm

    before = clock.advance
    with tqdm(desc="compiling, once on this machine", unit=" kernels", delay=delay, mininterval=0) as bar:
        clock.advance = bar.update
        try:
            yield
        finally:
            clock.advance = before


@cache
def watch_numba() -> None:
    """Count the time in which Numba compiles this package's functions from now on, if this Numba tells it."""
    try:
        from numba.core import event
    except ImportError:  # it is not public
        return

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if _is_ours(event):
                clock.start()

        def on_end(self, event: Any) -> None:
            if _is_ours(event):
                clock.stop()

    event.register("numba:compile", Listener())


def _is_ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("rapids_slink")  # None of code that is made up

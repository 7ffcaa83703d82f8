"""Atomic writes of files."""

import os
import threading
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it to `path`: readers see the old file or the new one."""
    path = path.resolve()
    if not path.parent.is_dir():  # else the error would name the draft
        raise FileNotFoundError(f"cannot write {path}: no such folder: {path.parent}")
    draft = path.with_name(f".{path.stem}.{os.getpid()}.{threading.get_ident()}{path.suffix}")
    try:
        write(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)

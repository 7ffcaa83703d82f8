"""How the rows of a case are drawn, and how work on long arrays is done a block at a time, on all cores.

Only work that releases Python's lock is faster then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

#: ``rows(folder, extra)`` draws n + extra rows, or reads those of a file in a folder.
Rows = Callable[[Path | None, int], Any]


def as_rows(draw: Callable[..., Any]) -> Callable[..., Rows]:
    """Return a function of the parameters of ``draw(n, ...)`` that returns the `Rows` of n rows and the extra ones."""

    @wraps(draw)
    def family(n: int, *shape: Any, **how: Any) -> Rows:
        return wraps(draw)(lambda _folder, extra: draw(n + extra, *shape, **how))

    return family


def in_blocks(work: Callable[[slice], Any], n: int, size: int) -> list[Any]:
    """Call `work` for each slice of `size` from 0 to n, on all cores, and return the results in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, (slice(a, min(a + size, n)) for a in range(0, n, size))))

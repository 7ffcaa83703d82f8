"""Work on long arrays a block at a time, on all cores: for what releases Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_blocks(work: Callable[[slice], Any], n: int, size: int) -> list[Any]:
    """Call `work` for each slice of `size` from 0 to n, on all cores, and return the results in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, (slice(a, min(a + size, n)) for a in range(0, n, size))))

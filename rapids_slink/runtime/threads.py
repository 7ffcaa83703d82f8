"""Work in chunks: on all cores of a CPU, or one after the other on a GPU, which each chunk fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import joblib
import threadpoolctl

from rapids_slink.runtime.device import Device


def progress_bar(parts: Iterable[Any], total: int, label: str, shown: bool) -> Iterable[Any]:
    """`parts`, behind a progress bar if one is to be shown."""
    if not shown:
        return parts
    from tqdm.auto import tqdm

    return tqdm(parts, total=total, desc=label, leave=False)


def workers(device: Device) -> int:
    """How many chunks are worked on at a time."""
    return 1 if device.is_gpu else int(joblib.cpu_count())


def for_each_chunk(
    device: Device, work: Callable[[Any], Any], chunks: Iterable[Any], label: str = "", progress: bool = False
) -> list[Any]:
    """`work` of every chunk, and the results in order; `label` is on the progress bar.

    On a CPU one thread a core. They share nothing, so BLAS gets one thread in each: two pools that wait for each
    other by spinning would take each other's cores.
    """
    chunks = list(chunks)
    if device.is_gpu:
        return [work(chunk) for chunk in progress_bar(chunks, len(chunks), label, progress)]
    pool = ThreadPoolExecutor(workers(device))
    with _blas_controller().limit(limits=1, user_api="blas"):
        try:
            return list(progress_bar(pool.map(work, chunks), len(chunks), label, progress))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C the chunks that wait are not begun


@lru_cache(maxsize=1)
def _blas_controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()

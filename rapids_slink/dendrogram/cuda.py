"""The linkage of a tree that lies on the GPU: by way of the host, where union-find takes a few tenths of a second."""

from __future__ import annotations

from typing import Any

import cupy

from rapids_slink.dendrogram import cpu


def merge_in_order(src: Any, dst: Any, n: int) -> tuple[Any, Any, Any]:
    """As `rapids_slink.dendrogram.cpu.merge_in_order`, for CuPy arrays."""
    left, right, size = cpu.merge_in_order(cupy.asnumpy(src), cupy.asnumpy(dst), n)
    return cupy.asarray(left), cupy.asarray(right), cupy.asarray(size)

"""The direct filter on the GPU: the launcher of `direct.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.direct import FilterFormula, RoundedPoints
from rapids_slink.runtime.cuda import check_arrays, launch_blocks

THREADS, TILE = 256, 128  # as in direct.cu


def append_candidates(
    formula: FilterFormula,
    rows: RoundedPoints,
    points: RoundedPoints,
    radius: Any,
    groups: tuple[Any, Any],
    ids: Any,
    into: Candidates,
) -> None:
    """As `rapids_slink.neighbors.filter.direct.cpu.append_candidates`."""
    (m, d), n = rows.y.shape, points.y.shape[0]
    check_arrays("float32", rows.y, points.y, radius, rows.error, points.error)
    check_arrays("int32", *groups, ids, into.ids, into.count)
    launch_blocks(
        "neighbors/filter/direct/direct.cu", "append_candidates", (-(-n // TILE), -(-m // TILE)), THREADS,
        rows.y, np.int64(m), points.y, np.int64(n), np.int32(d), radius, rows.error, points.error, *groups, ids,
        np.int32(into.capacity), into.ids, into.count,
        options=(f"-DFORMULA={formula.name}", f"-DHALVES={formula.halves}"),
    )  # fmt: skip

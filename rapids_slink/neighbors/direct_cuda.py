"""The direct filter on the GPU: the launcher of `direct.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.device import check_arrays, cuda_kernel
from rapids_slink.neighbors.cuda import Candidates
from rapids_slink.neighbors.direct import DirectOperand, Form

THREADS, TILE = 256, 128  # as in direct.cu


def keep(
    form: Form,
    rows: DirectOperand,
    columns: DirectOperand,
    radius: Any,
    row_group: Any,
    column_group: Any,
    ids: Any,
    into: Candidates,
) -> None:
    """Append to each row's candidates the columns that pass direct.py's test and are of another group."""
    (m, d), n = rows.y.shape, columns.y.shape[0]
    check_arrays("float32", rows.y, columns.y, radius, rows.error, columns.error)
    check_arrays("int32", row_group, column_group, ids, into.ids, into.count)
    if not m or not n:
        return
    options = f"-DFORM={form.kernel}", f"-DHALVES={form.halves}"
    cuda_kernel("neighbors/direct.cu", "keep_near", *options)(
        (-(-n // TILE), -(-m // TILE)), (THREADS,),
        (rows.y, np.int64(m), columns.y, np.int64(n), np.int32(d), radius, rows.error, columns.error, row_group,
         column_group, ids, np.int32(into.capacity), into.ids, into.count),
    )  # fmt: skip

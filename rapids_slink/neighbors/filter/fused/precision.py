"""Whether the fused filter's kernel keeps the bound on its error on the current GPU."""

from functools import cache

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter.bounds import QuantizedPoints, Scaling, Trial
from rapids_slink.neighbors.filter.cuda import quantize_rows
from rapids_slink.neighbors.filter.fused.launch import (
    ATOM_STEPS,
    BLOCK_ROWS,
    TILE,
    Destination,
    Products,
    Radii,
    append_survivors,
    is_hopper,
)
from rapids_slink.runtime.device import cuda, current_gpu
from rapids_slink.runtime.memory import outside_pool

FEATURES, STEPS = 2**10, 2**6  # of the rows that are tried, and the instructions that they take


def fp16_keeps_bound() -> bool:
    """Whether the kernel's sums of fp16 products are as precise as `bounds.accumulation_bound` says.

    It is tried once per process and GPU. The sums of int8 and of bits are exact and need no trial.
    """
    return _fp16_keeps_bound(is_hopper(), current_gpu())


@cache
def _fp16_keeps_bound(_hopper: bool, _gpu: int) -> bool:
    trial = Trial(FEATURES)
    m, n = len(trial.rows), len(trial.points)
    with outside_pool(cuda()):  # which may have a limit
        rows, points = (_image(part) for part in (trial.rows, trial.points))
        rows = QuantizedPoints(rows.y, cp.asarray(-trial.padded_thresholds(BLOCK_ROWS)), rows.error)
        points = QuantizedPoints(points.y, cp.zeros(BLOCK_ROWS, cp.float32), points.error)
        none = Radii(cp.zeros(BLOCK_ROWS, cp.float32), cp.zeros(BLOCK_ROWS // TILE, cp.float32))
        candidates = Candidates(cp.empty((m, n), cp.int32), cp.zeros(m, cp.int32))
        into = Destination(candidates, cp.zeros(1, cp.int32))
        append_survivors(Products(rows, 1, 1, (0, 1), n), points, STEPS, none, none.of_tile, into)
        return trial.is_passed(candidates.ids.get(), candidates.count.get())


def _image(values: np.ndarray) -> QuantizedPoints:
    """The image of a block of rows that fp16 holds."""
    scaling, ids = Scaling(cp.zeros(FEATURES), 1.0), cp.arange(len(values), dtype=cp.int32)
    return quantize_rows(cp.asarray(values), scaling, ids, BLOCK_ROWS, STEPS // ATOM_STEPS)

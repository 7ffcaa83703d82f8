"""The fused filter of Hopper GPUs: launchers of `hopper.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import cuda_module
from rapids_slink.metrics import accumulation_bound
from rapids_slink.neighbors.cuda import Candidates, check_arrays
from rapids_slink.neighbors.operand import EXTRA_FEATURES, Operand

ROWS, COLUMNS = 256, 128  # a block of rows, a tile of columns, as in hopper.cu
STEP, STEPS = 16, 4  # features a wgmma takes, and how many of those make an atom
#: A row's extra features; a column's are its half norm in units of these.
PARTS = (2.0**15, 2.0**8, 1.0, 2.0**-7, 2.0**-14, 0.0, 0.0, 0.0)
PIECE = 128 * 128  # bytes of 128 rows of one atom
THREADS = 384
MOST_SPLITS = 16


def usable() -> bool:
    """Whether the current GPU is a Hopper."""
    return str(cp.cuda.Device().compute_capability) == "90"


class FusedFilter:
    """`cuda.keep` over a whole band of columns in one launch.

    Parameters
    ----------
    columns : Operand
        fp16, all columns in their scattered order.
    ids : (n,) int32 array
        The column at each place of that order.
    """

    NAME = "fp16 tensor cores (fused)"
    GROWTH = 2  # of the bands: a launch costs little, a survivor much
    MOST_ROWS = 2**18  # a launch: enough blocks to fill the GPU evenly
    MOST_CANDIDATES = 2**26  # a launch

    def __init__(self, columns: Operand, ids: Any) -> None:
        self.n, width = columns.y.shape
        self.steps = -(-(width + EXTRA_FEATURES) // STEP)
        tiles = -(-self.n // COLUMNS)
        self.ids = ids
        # |y_i . y_j| + half_norm_j is what the accumulator's error is relative to, hence one more of its bound.
        half_norm = columns.half_norm * (1 - accumulation_bound(width + EXTRA_FEATURES, "float32"))
        self.image = pack_image(columns.y, -in_parts(half_norm), COLUMNS)
        error = cp.zeros(tiles * COLUMNS, cp.float32)
        error[: self.n] = columns.error
        self.tile_error = error.reshape(tiles, COLUMNS).max(axis=1)

    def rows_at_once(self, k: int) -> int:
        """How many rows a launch should have."""
        return max(ROWS, min(self.MOST_ROWS, self.MOST_CANDIDATES // (64 + 12 * k) // ROWS * ROWS))

    def new_candidates(self, rows: int, k: int, columns: int) -> Candidates:
        """Empty buffers of `rows` rows for a band of so many columns."""
        splits = self._splits(-(-rows // ROWS), -(-columns // COLUMNS))
        part = (64 + 12 * k) // splits + 16 * (splits > 1)
        out = cp.empty((rows, splits * part), cp.int32)
        return Candidates(out, cp.zeros((rows, splits), cp.int32), order=self.ids)

    def prepare_rows(self, rows: Operand) -> tuple[Any, Any]:
        """The rows' packed image and norms, for `keep`."""
        m = rows.y.shape[0]
        half_norm = cp.full(-(-m // ROWS) * ROWS, cp.inf, cp.float32)  # a row that is none needs an infinite product
        half_norm[:m] = rows.half_norm
        return pack_image(rows.y, cp.asarray(PARTS, cp.float16).reshape(1, -1), ROWS), half_norm

    def keep(
        self, rows: tuple[Any, Any], band: slice, radius: Any, row_group: Any, column_group: Any, into: Candidates
    ) -> None:
        """Append to each row's candidates the columns of `band` that pass operand.py's test.

        Those of the row's own group are left out if `column_group` is given: by place, like the columns.
        """
        image, half_norm = rows
        m = radius.size
        far = cp.zeros(half_norm.size, cp.float32)
        far[:m] = radius
        splits = into.count.shape[1]
        check_arrays("float32", half_norm, far, self.tile_error)
        check_arrays("int32", row_group, into.ids, into.count)
        if column_group is not None:
            check_arrays("int32", column_group)
        if band.start % COLUMNS:
            raise ValueError(f"a band starts at a multiple of {COLUMNS} columns, got {band.start}")
        blocks, first, last = half_norm.size // ROWS, band.start // COLUMNS, -(-band.stop // COLUMNS)
        count = cp.zeros((half_norm.size, splits), cp.int32)
        atoms = -(-self.steps // STEPS)
        kernel, shared = _keep_near(atoms, self.steps - (atoms - 1) * STEPS)
        kernel(
            (min(blocks * splits, _multiprocessors()),), (THREADS,),
            (image, self.image, np.int32(atoms), np.int32(blocks), np.int32(splits),
             np.int32(first), np.int32(last), np.uint32(min(band.stop, self.n)), half_norm, far, self.tile_error,
             row_group, column_group if column_group is not None else np.uintp(0), np.int32(into.capacity),
             into.ids, count),
            shared_mem=shared,
        )  # fmt: skip
        into.count[...] = count[:m]

    def _splits(self, blocks: int, tiles: int) -> int:
        """Into how many parts to divide a band, so that the last wave of blocks is not mostly idle."""
        waves = _multiprocessors()
        most = max(1, min(MOST_SPLITS, tiles // 8))

        def waste(splits: int) -> float:
            items = blocks * splits
            return -(-items // waves) * waves / items + splits / 64

        return min(range(1, most + 1), key=waste)


def in_parts(half_norm: Any) -> Any:
    """fp16 parts (n, 8) whose sum in units of `PARTS` is at most `half_norm`, which is below 2³⁰.

    Every part is rounded down, so that what is left is never negative; in the end it is less than 2⁻³⁰ of the whole, or
    than 2⁻³⁸.
    """
    parts = cp.zeros((half_norm.size, len(PARTS)), cp.float16)
    rest = half_norm.astype(cp.float64)
    for i, unit in enumerate(PARTS):
        if unit:
            part = (rest / unit).astype(cp.float16)
            above = part.astype(cp.float64) * unit > rest
            part = (part.view(cp.int16) - above).view(cp.float16)  # the next value towards zero
            parts[:, i] = part
            rest = rest - part.astype(cp.float64) * unit
    return parts


def pack_image(y: Any, extra: Any, multiple: int) -> Any:
    """The packed image of an fp16 matrix and `extra` features (a row each, or one for all), zeros to fill it up.

    Its rows are a multiple of `multiple`.
    """
    check_arrays("float16", y, extra)
    n, width = y.shape
    atoms = -(-(width + EXTRA_FEATURES) // (STEP * STEPS))
    rows = -(-n // multiple) * multiple
    image = cp.empty(rows // 128 * atoms * PIECE // 2, cp.float16)
    total = image.size // 8
    if total:
        kernel = cuda_module(Path(__file__).parent / "hopper.cu", "-arch=sm_90a").get_function("pack_rows")
        step = np.int32(extra.shape[0] > 1)
        args = (y, np.int32(width // 8), extra, step, np.int64(n), np.int32(atoms), np.int64(total), image)
        kernel((-(-total // 256),), (256,), args)
    return image


def _keep_near(atoms: int, last_steps: int) -> tuple[Any, int]:
    resident = atoms if atoms <= 4 else 0
    options = ("-arch=sm_90a", f"-DRESIDENT={resident}", f"-DLAST_STEPS={last_steps}")
    kernel = cuda_module(Path(__file__).parent / "hopper.cu", *options).get_function("keep_near")
    shared = 1024 + (14 if resident else 4 * 3) * PIECE
    kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared


def _multiprocessors() -> int:
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])

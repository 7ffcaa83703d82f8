"""The fused filter of Hopper GPUs: launchers of `hopper.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import cuda_module
from rapids_slink.neighbors.cuda import Candidates, check_arrays
from rapids_slink.neighbors.operand import Operand

ROWS, COLUMNS, FEATURES = 256, 128, 64  # a block of rows, a tile of columns, an atom; as in hopper.cu
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
    ROWS = 2**18  # rows a launch: enough blocks to fill the GPU evenly, candidates of bounded size

    def __init__(self, columns: Operand, ids: Any) -> None:
        self.n, width = columns.y.shape
        self.atoms = -(-width // FEATURES)
        tiles = -(-self.n // COLUMNS)
        self.ids = ids
        self.image = pack_image(columns.y, cp.arange(self.n, dtype=cp.int32), COLUMNS)
        self.half_norm = cp.full(tiles * COLUMNS, cp.inf, cp.float32)
        self.half_norm[: self.n] = columns.half_norm
        error = cp.zeros(tiles * COLUMNS, cp.float32)
        error[: self.n] = columns.error
        self.tile_error = error.reshape(tiles, COLUMNS).max(axis=1)

    def new_candidates(self, rows: int, k: int, columns: int) -> Candidates:
        """Empty buffers of `rows` rows for a band of so many columns."""
        splits = self._splits(-(-rows // ROWS), -(-columns // COLUMNS))
        part = 64 + 12 * k if splits == 1 else 32 + 24 * k // splits
        return Candidates(cp.empty((rows, splits * part), cp.int32), cp.zeros((rows, splits), cp.int32))

    def prepare_rows(self, rows: Operand) -> tuple[Any, Any]:
        """The rows' packed image and norms, for `keep`."""
        m = rows.y.shape[0]
        half_norm = cp.full(-(-m // ROWS) * ROWS, cp.inf, cp.float32)  # a row that is none needs an infinite product
        half_norm[:m] = rows.half_norm
        return pack_image(rows.y, cp.arange(m, dtype=cp.int32), ROWS), half_norm

    def keep(
        self, rows: tuple[Any, Any], band: slice, radius: Any, row_group: Any, column_group: Any, into: Candidates
    ) -> None:
        """Append to each row's candidates the columns of `band` that pass operand.py's test outside the row's group."""
        image, half_norm = rows
        m = radius.size
        far = cp.zeros(half_norm.size, cp.float32)
        far[:m] = radius
        splits = into.count.shape[1]
        check_arrays("float32", half_norm, far, self.half_norm, self.tile_error)
        check_arrays("int32", row_group, column_group, self.ids, into.ids, into.count)
        if band.start % COLUMNS:
            raise ValueError(f"a band starts at a multiple of {COLUMNS} columns, got {band.start}")
        blocks, first, last = half_norm.size // ROWS, band.start // COLUMNS, -(-band.stop // COLUMNS)
        count = cp.zeros((half_norm.size, splits), cp.int32)
        kernel, shared = _keep_near(self.atoms)
        kernel(
            (min(blocks * splits, _multiprocessors()),), (THREADS,),
            (image, self.image, np.int32(self.atoms), np.int32(blocks), np.int32(splits), np.int32(first),
             np.int32(last), np.uint32(min(band.stop, self.n)), half_norm, far, self.half_norm, self.tile_error,
             row_group, column_group, self.ids, np.int32(into.capacity), into.ids, count),
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


def pack_image(y: Any, at: Any, multiple: int) -> Any:
    """The packed image of rows `at` of an fp16 matrix, filled up with zeros to a multiple of so many rows."""
    check_arrays("float16", y)
    check_arrays("int32", at)
    atoms = -(-y.shape[1] // FEATURES)
    rows = -(-at.size // multiple) * multiple
    image = cp.empty(rows // 128 * atoms * PIECE // 2, cp.float16)
    total = image.size // 8
    if total:
        kernel = cuda_module(Path(__file__).parent / "hopper.cu", "-arch=sm_90a").get_function("pack_rows")
        args = (y, np.int32(y.shape[1] // 8), at, np.int64(at.size), np.int32(atoms), np.int64(total), image)
        kernel((-(-total // 256),), (256,), args)
    return image


def _keep_near(atoms: int) -> tuple[Any, int]:
    resident = 2 if atoms <= 2 else 0
    options = ("-arch=sm_90a", f"-DRESIDENT={resident}")
    kernel = cuda_module(Path(__file__).parent / "hopper.cu", *options).get_function("keep_near")
    shared = 1024 + (resident * 2 + 8 if resident else 4 * 3) * PIECE
    kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared


def _multiprocessors() -> int:
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])

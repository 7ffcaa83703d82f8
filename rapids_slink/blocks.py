"""Vectors of files on disk in pieces, and blocks of near rows, of which each two near rows meet in one.

    files ──▶ pieces of rows in their order ──▶ pivots, cells and blocks of cells ──▶ the rows that meet in a block

`neighbors.pivots` deals out rows to blocks, and says why no near row is missed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.neighbors.pivots import candidates, deal_out, pivots_of
from rapids_slink.parquet import on_all_cores
from rapids_slink.runtime.device import Device, to_host

#: How many rows a thread takes at a time from pieces.
TAKEN = 2**14
#: The file that says which rows are compared among themselves.
KEYS = "keys.npy"
#: A search of two parts of a block's rows and visitors: the block, and where each part begins. They are one if all fit.
Search: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Pieces:
    """The vectors of all rows in files of NumPy, which workers of Dask read, too."""

    folder: Path
    bounds: tuple[int, ...]  # the number of the first row of each piece, and behind them the number of rows

    def path(self, piece: int) -> Path:
        """Return the file of a piece. What was written before the machine started again may not be on its disk."""
        return self.folder / f"piece-{boot()}-{piece}.npy"

    def load(self, piece: int) -> np.ndarray:
        """Return a piece, mapped into memory."""
        return np.asarray(np.load(self.path(piece), mmap_mode="r"))

    def keys(self) -> np.ndarray | None:
        """Return the number of the group of each row, int64, -1 if it is compared with no other; None for one group."""
        path = self.folder / KEYS
        return np.load(path, mmap_mode="r") if path.exists() else None

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors of rows, in their order."""
        parts = [self.load(piece) for piece in range(len(self.bounds) - 1)]
        values = np.empty((numbers.size, parts[0].shape[1]), parts[0].dtype)
        order = np.argsort(numbers, kind="stable")
        places = np.searchsorted(numbers[order], self.bounds)
        chunks = [
            (piece, start, min(start + TAKEN, stop))
            for piece, (begin, stop) in enumerate(pairwise(places.tolist()))
            for start in range(begin, stop, TAKEN)
        ]

        def copy(chunk: tuple[int, int, int]) -> None:
            piece, start, stop = chunk
            at = order[start:stop]
            values[at] = parts[piece][numbers[at] - self.bounds[piece]]

        on_all_cores(copy, chunks)
        return values


@dataclass(frozen=True)
class Blocks:
    """Which block each row is in, and which earlier ones it visits; without pivots all rows are in one block."""

    pieces: Pieces
    count: int
    max_rows: int  # how many rows are searched together

    def path(self, piece: int) -> Path:
        """Return the file with the blocks of the rows of a piece, as `blocks_of_piece` makes them."""
        return self.pieces.folder / f"blocks-{piece}.npy"

    @cached_property
    def searches(self) -> dict[Search, int]:
        """Return the searches in which all rows of a block meet each other and its visitors, with their sizes."""
        sizes: dict[Search, int] = {}
        for block in range(self.count):
            own, visiting = map(len, self._rows_of(block))
            size, step = own + visiting, self._step(own + visiting)
            for first, second in [*combinations(range(0, size, step), 2)] or [(0, 0)]:
                if first < own:  # else both are parts of visitors
                    sizes[block, first, second] = min(step, size - first) + (second > first) * min(step, size - second)
        return sizes

    def _step(self, size: int) -> int:
        """Return the number of rows of a part of a block, which has this many rows and visitors."""
        return max(1, size if size <= self.max_rows else self.max_rows // 2)

    def pairs_of_rows(self) -> int:
        """Return how many pairs of rows meet in all searches."""
        return sum(size * (size - 1) // 2 for size in self.searches.values())

    def rows(self, search: Search) -> np.ndarray:
        """Return the numbers of the rows of a search."""
        block, *starts = search
        own, visiting = self._rows_of(block)
        step, parts = self._step(len(own) + len(visiting)), []
        for start in sorted({*starts}):
            low, high = (max(0, end - len(own)) for end in (start, start + step))
            parts += [own[start : start + step], visiting[low:high]]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    def _rows_of(self, block: int) -> tuple[Any, Any]:
        """Return the rows of a block, and those of later blocks that visit it, ascending."""
        if self.count == 1:
            return range(self.pieces.bounds[-1]), range(0)
        own, visiting = [], []
        for piece, first in enumerate(self.pieces.bounds[:-1]):
            block_of_row, *visited = np.load(self.path(piece), mmap_mode="r")
            visits = (visited[block // 16] >> np.uint16(block % 16)) & 1 == 1
            own.append(first + np.flatnonzero(block_of_row == block))
            visiting.append(first + np.flatnonzero(visits & (block_of_row > block)))
        return np.concatenate(own), np.concatenate(visiting)


def pivots_of_pieces(pieces: Pieces, radius: float, is_cosine: bool, count: int, device: Device) -> np.ndarray:
    """Return pivots of the rows of pieces, (k, 2 + d) float32: see `neighbors.pivots.pivots_of`."""
    rows = pieces.take(candidates(pieces.bounds[-1], count))
    return to_host(pivots_of(device.asarray(rows), radius, is_cosine, count, device))


def blocks_of_piece(
    values: np.ndarray, pivots: np.ndarray, radius: float, is_cosine: bool, device: Device
) -> np.ndarray:
    """Return the block of each row, and bits of the blocks that may have a row near it, (1 + words, m) uint16."""
    blocks = np.zeros((1 + -(-(int(pivots[-1, 0]) + 1) // 16), len(values)), np.uint16)
    for some, block, may_be_near in deal_out(values, pivots, radius, is_cosine, device):
        blocks[0, some] = to_host(block)
        for b, visits in enumerate(to_host(may_be_near)):
            blocks[1 + b // 16, some] |= visits.astype(np.uint16) << np.uint16(b % 16)
    return blocks


def boot() -> str:
    """Return the name of the time since which this machine has run; "" if it is not known."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def saved(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the array in a file; first make it, and write it to the disk, if it is not there."""
    if not path.exists():
        save(path, make())
    array: np.ndarray = np.load(path)
    return array


def save(path: Path, array: np.ndarray) -> None:
    """Save an array to a file, which is on the disk when it has its name."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())

    replace_file(path, write)

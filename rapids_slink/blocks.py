"""Vectors of files on disk in pieces, and blocks of near rows, of which each two near rows meet in one.

    files ──▶ pieces of rows in their order ──▶ pivots, cells and blocks of cells ──▶ the rows that meet in a block

`neighbors.pivots` deals out rows to blocks, and says why no near row is missed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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
#: A search: a block, the first of those of its rows that meet others, and the first of these, which are later rows of
#: the block and then its visitors.
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
    most: int  # how many rows are searched together

    def path(self, piece: int) -> Path:
        """Return the file with the blocks of the rows of a piece, as `blocks_of_piece` makes them."""
        return self.pieces.folder / f"blocks-{piece}.npy"

    @cached_property
    def searches(self) -> dict[Search, int]:
        """Return the searches in which all rows of a block meet each other and its visitors, with their sizes."""
        half, found = max(1, self.most // 2), {}
        for block in range(self.count):
            own, visiting = (len(part) for part in self._rows_of(block))
            if own + visiting <= self.most:
                found[block, 0, own] = own + visiting
                continue
            for start in range(0, own, half):
                behind = min(start + half, own)
                for other in range(behind, own + visiting, half) or [behind] * (start == 0):
                    found[block, start, other] = behind - start + min(half, own + visiting - other)
        return found

    def pairs_of_rows(self) -> int:
        """Return how many pairs of rows meet in all searches."""
        return sum(size * (size - 1) // 2 for size in self.searches.values())

    def rows(self, search: Search) -> np.ndarray:
        """Return the numbers of the rows of a search."""
        block, start, other = search
        own, visiting = self._rows_of(block)
        half = max(1, self.most // 2) if len(own) + len(visiting) > self.most else self.most
        low, high = max(0, other - len(own)), max(0, other + half - len(own))
        behind = own[other : other + half] if other > start else own[:0]
        parts = own[start : min(start + half, other)], behind, visiting[low:high]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    def _rows_of(self, block: int) -> tuple[Any, Any]:
        """Return the rows of a block, and those of later blocks that visit it, ascending."""
        if self.count == 1:
            return range(self.pieces.bounds[-1]), range(0)
        own, visiting = [], []
        for piece, first in enumerate(self.pieces.bounds[:-1]):
            found = np.load(self.path(piece), mmap_mode="r")
            of_row = found[0]
            visits = (found[1 + block // 16] >> np.uint16(block % 16)) & 1 == 1
            own.append(first + np.flatnonzero(of_row == block))
            visiting.append(first + np.flatnonzero(visits & (of_row > block)))
        return np.concatenate(own), np.concatenate(visiting)


def pivots_of_pieces(pieces: Pieces, radius: float, is_cosine: bool, count: int, device: Device) -> np.ndarray:
    """Return pivots of the rows of pieces, (k, 2 + d) float32: see `neighbors.pivots.pivots_of`."""
    rows = pieces.take(candidates(pieces.bounds[-1], count))
    return to_host(pivots_of(device.asarray(rows), radius, is_cosine, count, device))


def blocks_of_piece(
    values: np.ndarray, pivots: np.ndarray, radius: float, is_cosine: bool, device: Device
) -> np.ndarray:
    """Return the block of each row, and bits of the blocks that may have a row near it, (1 + words, m) uint16."""
    found = np.zeros((1 + -(-(int(pivots[-1, 0]) + 1) // 16), len(values)), np.uint16)
    for some, block, may_be_near in deal_out(values, pivots, radius, is_cosine, device):
        found[0, some] = to_host(block)
        for b, visits in enumerate(to_host(may_be_near)):
            found[1 + b // 16, some] |= visits.astype(np.uint16) << np.uint16(b % 16)
    return found


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

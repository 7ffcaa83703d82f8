"""Vectors of files on disk in pieces, and blocks of near rows, of which each two near rows meet in one.

    files ──▶ pieces of rows in their order ──▶ pivots, cells and blocks of cells ──▶ the rows that meet in a block

Some rows are pivots. A row is in the cell of its nearest pivot, and near pivots make a block. A row also visits each
earlier block that may have a row near it. So two near rows of two blocks meet in the earlier one, where the second
visits, and a block need only be searched by itself. This saves work where the rows have structure. Otherwise the rows
visit most blocks, and all pairs of rows meet.

Why no near row is missed: let d be the distance of x to its nearest pivot, and y a row within r of x, whose nearest
pivot is c. Then |y - c| is at most the distance of y to the pivot of x, which is at most r + d. So |x - c| <= 2r + d,
and x visits the block of c, as y visits that of x. Here the distances are of float16 or float32 products. If a square
is wrong by at most e, |y - c|² may be 2e above that of the pivot of x, and then |x - c| <= r + sqrt((r + d)² + 2e).
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
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.filter.bounds import accumulation_bound
from rapids_slink.parquet import on_all_cores
from rapids_slink.runtime.device import Array, Device, half, to_host

#: How many rows a thread takes at a time from pieces.
TAKEN = 2**14
#: One of how many rows is a pivot, so that finding cells takes a small part of the products of all pairs; and at most
#: how many rows are.
ROWS_A_PIVOT, MOST_PIVOTS = 256, 2**16
#: Products that are in memory at a time.
PRODUCTS = {"cpu": 2**24, "cuda": 2**28}
#: A search: a block, the first of those of its rows that meet others, and the first of these, which are later rows of
#: the block and then its visitors.
Search: TypeAlias = tuple[int, int, int]
#: Rows of lengths beyond these are not scaled.
LENGTHS = 1e-30, 1e30


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


def radius_of(metric: Metric, distance: float, device: Device) -> float | None:
    """Return a bound of the Euclidean distance of near rows, of unit rows for cosine; None if there is none.

    It is also None on a GPU whose sums of products are not known to be as precise as `error_of` says.
    """
    if not half(device, "rapids_slink.neighbors.filter").products_keep_bound():
        return None
    if metric.missing or metric.space is not None or metric.name not in ("euclidean", "sqeuclidean", "cosine"):
        return None
    square = {"euclidean": distance * distance, "sqeuclidean": distance, "cosine": 2 * distance}[metric.name]
    return float(np.sqrt(max(square, 0.0)) * (1 + 1e-6))


def pivots_of(pieces: Pieces, is_cosine: bool, count: int) -> np.ndarray:
    """Return the pivots, scaled, behind the number of the block of each and the scale: (k, 2 + d) float32, by block."""
    n, longest = pieces.bounds[-1], 1.0 if is_cosine else _longest(pieces)
    k = max(1, min(MOST_PIVOTS, n // ROWS_A_PIVOT))
    if not LENGTHS[0] < longest < LENGTHS[1]:
        k = 1
    pivots = _scaled(pieces.take(np.arange(k) * n // k), is_cosine, np.float32(1 / longest), np)
    block = np.zeros(k, np.int64)
    _split(pivots, np.arange(k), min(count, k), block)
    order = np.argsort(block, kind="stable")
    return np.column_stack((block[order], np.full(k, 1 / longest), pivots[order])).astype(np.float32)


def blocks_of_piece(
    values: np.ndarray, pivots: np.ndarray, radius: float, is_cosine: bool, device: Device
) -> np.ndarray:
    """Return the block of each row, and bits of the blocks that may have a row near it, (1 + words, m) uint16."""
    (block, scale), pivots, xp, (m, d) = pivots[:, :2].T, pivots[:, 2:], device.xp, values.shape
    bounds = np.searchsorted(block, np.arange(int(block[-1]) + 2)).tolist()
    kind, filler = "float16" if device.is_gpu else "float32", -(d + 1) % 8  # tensor cores read eight values at a time
    sides = np.column_stack((pivots, -0.5 * (pivots * pivots).sum(axis=1), np.zeros((len(pivots), filler))))
    pivots_of_blocks = [device.asarray(sides[low:high].astype(kind)) for low, high in pairwise(bounds)]
    rounding = (8 + d) * 2.0**-24  # of float64 rows, of lengths and of the scale
    near, error = radius * float(scale[0]) + 2 * rounding, np.float32(error_of(sides.shape[1]))
    found = np.zeros((1 + -(-len(pivots_of_blocks) // 16), m), np.uint16)
    step = max(1, PRODUCTS[device.name] // int(np.diff(bounds).max()))
    for start in range(0, m, step):
        rows = _scaled(device.asarray(values[start : start + step]), is_cosine, scale[0], xp)
        square, one = (rows * rows).sum(axis=1), xp.ones((len(rows), 1 + filler), "float32")
        rows = xp.concatenate((rows, one), axis=1).astype(kind)
        least = xp.empty((len(pivots_of_blocks), len(rows)), "float32")
        for b, others in enumerate(pivots_of_blocks):
            least[b] = square - 2 * _products(rows, others, device).max(axis=1)
        nearest = xp.sqrt(xp.maximum(least.min(axis=0), 0) + error)
        reach = near + xp.sqrt((near + nearest) ** 2 + 2 * error)
        may_be_near = ~(xp.sqrt(xp.maximum(least - error, 0)) > reach * np.float32(1 + 1e-5))
        found[0, start : start + step] = to_host(least.argmin(axis=0))
        for b, visits in enumerate(to_host(may_be_near)):
            found[1 + b // 16, start : start + step] |= visits.astype(np.uint16) << np.uint16(b % 16)
    return found


def error_of(width: int) -> float:
    """Return a bound of the error of a squared distance by products of `width` values, of rows of at most length 1.

    In float16 each of both rows is wrong by 2^-11 of its length, and the half square by 2^-12. The sum has the error of
    `accumulation_bound` of both lengths, which are at most sqrt(2) and sqrt(1.25) with what stands behind the features.
    The square is twice the product.
    """
    return 2 * (3 * 2.0**-11 + 1.6 * accumulation_bound(width))


def _products(rows: Array, others: Array, device: Device) -> Array:
    """Return the products of rows with others, (m, k) float32."""
    if not device.is_gpu:
        return rows @ others.T
    from rapids_slink.neighbors.filter.cuda import form_product

    products = device.xp.empty((len(rows), len(others)), "float32")
    form_product(rows, others, products)
    return products


def _scaled(values: Array, is_cosine: bool, scale: Any, xp: Any) -> Array:
    """Return rows times a scale in float32, or of length 1 for cosine."""
    rows = values.astype("float64" if values.dtype.itemsize == 8 else "float32")
    if is_cosine:
        rows = rows / xp.abs(rows).max(axis=1, keepdims=True)
        rows = rows / xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows if is_cosine else rows * scale).astype("float32")


def _longest(pieces: Pieces) -> float:
    """Return a bound of the length of all rows."""
    largest: list[float] = [0.0]
    for piece in range(len(pieces.bounds) - 1):
        values = pieces.load(piece)

        def look(start: int, values: np.ndarray = values) -> None:
            part: Any = values[start : start + TAKEN].astype("float32" if values.dtype.itemsize <= 2 else "float64")
            largest.append(float(np.einsum("ij,ij->i", part, part).max()))

        on_all_cores(look, range(0, len(values), TAKEN))
    return float(np.sqrt(max(largest)) * (1 + 1e-3))


def _split(pivots: np.ndarray, ids: np.ndarray, count: int, block: np.ndarray) -> None:
    """Give numbers of blocks to some pivots, halves of halves along the line between two that are far apart."""
    if count == 1:
        return

    def farthest(other: np.ndarray) -> np.ndarray:
        gaps = pivots[ids] - other
        return np.asarray(pivots[ids[int((gaps * gaps).sum(axis=1).argmax())]])

    one = farthest(pivots[ids[0]])
    along = np.argsort(pivots[ids] @ (farthest(one) - one), kind="stable")
    first = count // 2
    cut = ids.size * first // count
    block[ids[along[cut:]]] += first
    _split(pivots, ids[along[:cut]], first, block)
    _split(pivots, ids[along[cut:]], count - first, block)


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

"""Orders and slices in which a search visits its points."""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, gcd
from typing import Any

from rapids_slink.runtime.device import Array

#: Values converted at a time.
BLOCK = 2**21


def golden_stride(n: int) -> int:
    """A number near n/φ that shares no factor with n: its multiples modulo n visit all of 0..n-1, evenly at any time.

    In such a low-discrepancy order every leading part is a fair sample.
    """
    step = max(1, round(n * 0.6180339887498949))
    while gcd(step, n) != 1:
        step += 1
    return step


def inverse(order: Array, xp: Any) -> Array:
    """Where each number of an order, an int32 array that holds each of 0..n-1 once, stands in it."""
    position = xp.empty_like(order)
    position[order] = xp.arange(order.size, dtype="int32")
    return position


def geometric_slices(first: int, last: int, growth: float) -> list[slice]:
    """0 to `last` in slices, of which the first ends at `first` and each further one `growth` times as far."""
    ends, end = [0], first
    while end < last:
        ends.append(end)
        end = ceil(end * growth)
    return [slice(a, b) for a, b in pairwise([*ends, last]) if a < b]


def equal_slices(whole: slice, size: int) -> list[slice]:
    """A slice in slices of `size`, the last of what is left."""
    return [slice(a, min(a + size, whole.stop)) for a in range(whole.start, whole.stop, size)]


def chunks_of(rows: slice | Array, size: int) -> list[Any]:
    """A range of rows, or numbers of rows, in parts of `size`."""
    if isinstance(rows, slice):
        return equal_slices(rows, size)
    return [rows[part] for part in equal_slices(slice(0, rows.size), size)]


def row_blocks(n: int, d: int, size: int = BLOCK) -> list[slice]:
    """Slices of rows of d values, each with about `size` values."""
    return equal_slices(slice(0, n), max(1, size // d))


def rounds_of_pairs(blocks: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Pairs of blocks, of which there is an even number: each with itself, then as in a round-robin tournament."""
    *others, last = blocks
    yield [(block, block) for block in blocks]
    for turn, first in enumerate(others):
        yield [(first, last), *((others[turn - i], others[turn + i - len(others)]) for i in range(1, len(blocks) // 2))]


def rounds_between(blocks: list[Any], others: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Pairs of each block with each of the others, of which there are as many, in rounds that hold each block once."""
    for turn in range(len(blocks)):
        yield list(zip(blocks, others[turn:] + others[:turn], strict=True))

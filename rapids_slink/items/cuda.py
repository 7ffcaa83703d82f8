"""Items on a GPU: launchers of `strings.cu`, with a thread for each pair or string, `edits.cu` and `rows.cu`."""

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import WORD_BITS
from rapids_slink.neighbors.matrix import put_least as put_least
from rapids_slink.neighbors.task import equal_slices
from rapids_slink.runtime.cuda import (
    MIN_SHARED_MEMORY,
    WARP,
    c_name,
    constant,
    launch,
    launch_blocks,
    value_option,
)
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.memory import free_bytes

STRINGS, EDITS, ROWS = "items/strings.cu", "items/edits.cu", "items/rows.cu"
#: The most bytes of scratch for strings of more than a word, and the fewest pairs of them at a time.
EDGE_BYTES, FEWEST = 2**30, 2**10
WORD = constant(STRINGS, "WORD")
#: Steps of a pair besides its characters, and a cutoff above every number of edits.
PAIR_STEPS, NO_CUTOFF = 5, 2**31 - 1
#: The words of the longest strings of which all edits are found at once, and the characters of half a word.
MOST_WORDS, HALF_WORD = 8, WORD // 2
#: The kernels that compare two rows, with the types of their results and the threads of a pair.
ROW_PAIRS = {
    "count_common": (cp.int64, WARP),
    "dot_products": (cp.float64, 1),
    "squared_distances": (cp.float64, 1),
    "equal_rows": (cp.bool_, 1),
}


# -------------------------------------------------------------------------------------------------------------- strings


def edits(strings: Any, src: Array, dst: Array, cutoff: int) -> Array:
    """Return the number of edits of each pair, (m,) float64, infinite above `cutoff`."""
    distance, longest = cp.empty(src.size), strings.longest if strings.longest > WORD else 0
    size = max(FEWEST, int(min(EDGE_BYTES, free_bytes() / 4)) // longest) if longest else max(1, src.size)
    edges = cp.empty(min(size, src.size) * longest, cp.int8)
    for part in equal_slices(slice(0, src.size), size):
        launch(
            STRINGS, "count_edits", part.stop - part.start, strings.codes, strings.starts, src[part], dst[part],
            part.stop - part.start, cutoff, edges, longest, distance[part],
        )  # fmt: skip
    return distance


def steps(strings: Any) -> float:
    """Return how many steps all edits take; a step takes a character of one string with a word of the other."""
    return float((-(-strings.sizes // WORD)).sum()) * (strings.codes.size + PAIR_STEPS * len(strings)) / 2


def edits_of_rows(strings: Any, rows: Array, points: slice) -> Array:
    """Return the numbers of edits between some strings and a range of strings, (m, p), of `Strings.distance_type`."""
    (words, mask), (m, p) = _words(strings), (rows.size, points.stop - points.start)
    shared_memory = strings.n_characters * words * WARP * mask.itemsize
    if words > MOST_WORDS or shared_memory > MIN_SHARED_MEMORY:
        return _pair_by_pair(strings, edits, rows, points)
    out, height, threads = cp.empty((m, p), strings.distance_type), constant(EDITS, "ROWS"), constant(EDITS, "THREADS")
    options = f"-DMASK={c_name(mask)}", f"-DWORDS={words}", f"-DCOUNT={c_name(out.dtype)}"
    launch_blocks(
        EDITS, "put_edits", (-(-p // WARP), -(-m // height)), threads, strings.codes, strings.starts, rows, m,
        points.start, p, strings.n_characters, out, options=options, shared_memory=shared_memory,
    )  # fmt: skip
    return out


def differences_of_rows(strings: Any, rows: Array, points: slice) -> Array:
    """Return at how many positions some strings differ from each of a range of strings, as `edits_of_rows` does."""
    return _pair_by_pair(strings, differences, rows, points)


def _pair_by_pair(strings: Any, find: Callable[..., Array], rows: Array, points: slice) -> Array:
    """Return the distances that a function finds pair by pair."""
    numbers = cp.arange(points.start, points.stop, dtype=cp.int32)
    src, dst = cp.repeat(rows, numbers.size), cp.tile(numbers, rows.size)
    return find(strings, src, dst, NO_CUTOFF).astype(strings.distance_type).reshape(rows.size, -1)


def _words(strings: Any) -> tuple[int, np.dtype]:
    """Return how many words the longest string takes, and their type."""
    if strings.longest <= HALF_WORD:
        return 1, np.dtype("uint32")
    return -(-strings.longest // WORD), np.dtype("uint64")


def differences(strings: Any, src: Array, dst: Array, cutoff: int) -> Array:
    """Return at how many positions each pair differs, (m,) float64, infinite above `cutoff` or for unequal lengths."""
    distance = cp.empty(src.size)
    launch(STRINGS, "count_differences", src.size, strings.codes, strings.starts, src, dst, src.size, cutoff, distance)
    return distance


def hash_strings(strings: Any) -> Array:
    """Return a hash of each string, (n,) uint64, the same for equal strings."""
    n, hashes = len(strings), cp.empty(len(strings), cp.uint64)
    launch(STRINGS, "hash_strings", n, strings.codes, strings.starts, n, hashes)
    return hashes


def make_keys(strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    """Write the hashes that a string of a range has without some characters; see `cpu.make_keys`."""
    launch(
        STRINGS, "delete_characters", first.size, strings.codes, strings.starts, rows.start, first.size, deleted,
        strings.classes() is not None, first, item, key,
    )  # fmt: skip


def project_strings(strings: Any, ones: int, buckets: int, bits: int) -> Array:
    """Return the projection of each string, (n, bits / 8) uint8; see `cpu.project_strings`."""
    n = len(strings)
    values, counts = cp.zeros((n, bits // 8), cp.uint8), cp.zeros(n * buckets if ones else 0, cp.uint8)
    launch(STRINGS, "project_strings", n, strings.codes, strings.starts, n, ones, buckets, bits // 8, counts, values)
    return values


# ------------------------------------------------------------------------------------------------- sets and sparse rows


def sort_rows(_starts: Array, columns: Array, row: Array) -> Array:
    """Return the entries' columns, ascending within each row; `row` is the row of each entry."""
    return columns[cp.lexsort(cp.stack((columns.astype(cp.int64), row)))]


def hashed_bits(sets: Any, width: int, fit: bool) -> tuple[Array, Array]:
    """Return the bits to which each set's elements are hashed, and the numbers of ones; see `cpu`."""
    n, options = len(sets), _row_options(sets)
    words, ones = cp.zeros((n, width // WORD_BITS), cp.uint64), cp.empty(n, cp.int64)
    launch(ROWS, "put_bits", WARP * n, sets.starts, sets.columns, n, width, fit, words, ones, options=options)
    return words, ones


def hash_rows(rows: Any) -> Array:
    """Return a hash of each row, (n,) uint64, the same for equal rows."""
    out = cp.empty(len(rows), cp.uint64)
    options = _row_options(rows)
    launch(ROWS, "hash_rows", WARP * out.size, rows.starts, rows.columns, rows.values, out.size, out, options=options)
    return out


def sums_of_rows(stored: Any, rows: Array, points: slice) -> Array:
    """Return what some rows have in common with each of a range of rows, (m, p), as `cpu.sums_of_rows` does."""
    (m, p), holders = (rows.size, points.stop - points.start), stored.holders
    more: tuple[Any, ...] = ()
    name, dtype, width = "count_all_common", "int32", constant(ROWS, "COUNTED")
    if stored.values is not None:
        name, dtype, width = "sum_all_products", "float64", constant(ROWS, "SUMMED")
        more = stored.columns, stored.values, holders.values, stored.n_features
    sums, across = cp.empty((m, p), dtype), -(-p // (width * constant(ROWS, "WARPS")))
    launch_blocks(
        ROWS, name, (m, across), constant(ROWS, "THREADS"), stored.starts, stored.column_numbers, holders.starts,
        holders.rows, rows, points.start, p, sums, *more, options=_row_options(stored),
    )  # fmt: skip
    return sums


def compare_rows(how: str, rows: Any, src: Array, dst: Array) -> Array:
    """Return what a kernel of `ROW_PAIRS` finds for each pair of rows, (m,)."""
    m, (dtype, threads) = src.size, ROW_PAIRS[how]
    out = cp.empty(m, dtype)
    launch(
        ROWS, how, threads * m, rows.starts, rows.columns, rows.values, src, dst, m, rows.n_features, out,
        options=_row_options(rows),
    )  # fmt: skip
    return out


def _row_options(rows: Any) -> tuple[str, ...]:
    """Return the compiler's options for the kernels of rows."""
    column = f"-DCOLUMN={c_name(rows.columns.dtype)}"
    return (column,) if rows.values is None else (value_option(rows.values.dtype), column)

"""Items on a GPU: launchers of `strings.cu`, with a thread for each pair or string, `sets.cu` and `sparse.cu`."""

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.items.kind import Holders
from rapids_slink.metrics import WORD_BITS
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.runtime.cuda import (
    MIN_SHARED_MEMORY,
    WARP,
    c_name,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    value_option,
)
from rapids_slink.runtime.device import Array, cuda
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.spanning_tree.cuda import find_cores

STRINGS, EDITS, SETS, SPARSE = "items/strings.cu", "items/edits.cu", "items/sets.cu", "items/sparse.cu"
COMMON = "items/common.cu"
#: Counts and sums of all rows that are found at a time.
SUMS_AT_A_TIME = 2**24
#: The most bytes of scratch for long strings, and the fewest pairs of them at a time.
EDGE_BYTES, FEWEST = 2**30, 2**10
WORD = constant(STRINGS, "WORD")
#: The words of the longest strings of which all edits are found at once, and the characters of half a word.
MOST_WORDS, HALF_WORD = 8, WORD // 2


# -------------------------------------------------------------------------------------------------------------- strings


def edits(strings: Any, src: Array, dst: Array, cutoff: int) -> Array:
    """Return the number of edits of each pair, (m,) float64, infinite above `cutoff`."""
    distance = cp.empty(src.size)
    _count_edits(strings, src, dst, cutoff, None, distance)
    if strings.longest <= WORD:
        return distance
    long = cp.flatnonzero(distance < 0)
    size = max(FEWEST, int(min(EDGE_BYTES, free_bytes() / 4)) // strings.longest)
    for begin in range(0, long.size, size):
        part = long[begin : begin + size]
        edges, of_part = cp.empty(part.size * strings.longest, cp.int8), cp.empty(part.size)
        _count_edits(strings, src[part], dst[part], cutoff, edges, of_part)
        distance[part] = of_part
    return distance


def _count_edits(strings: Any, src: Array, dst: Array, cutoff: int, edges: Array, distance: Array) -> None:
    _check_strings(strings, src, dst)
    n, longest = np.int64(src.size), np.int64(strings.longest)
    arguments = strings.codes, strings.starts, src, dst, n, np.int32(cutoff), edges, longest, distance
    launch(STRINGS, "count_edits", src.size, *arguments)


def finds_all_edits(strings: Any) -> bool:
    """Return whether a block has room for the masks of its strings."""
    words, mask = _words(strings)
    return words <= MOST_WORDS and strings.n_characters * words * WARP * mask.itemsize <= MIN_SHARED_MEMORY


def all_edits(strings: Any) -> Array:
    """Return the numbers of edits of all pairs, (n, n), as the smallest integers that hold them."""
    _check_strings(strings)
    n, (words, mask), out = len(strings), _words(strings), cp.empty((len(strings),) * 2, edit_type(strings))
    rows, threads = constant(EDITS, "ROWS"), constant(EDITS, "THREADS")
    options = f"-DMASK={c_name(mask)}", f"-DWORDS={words}", f"-DCOUNT={c_name(out.dtype)}"
    launch_blocks(
        EDITS, "put_edits", (-(-n // WARP), -(-n // rows)), threads, strings.codes, strings.starts, np.int32(n),
        np.int32(strings.n_characters), out, options=options,
        shared_memory=strings.n_characters * words * WARP * mask.itemsize,
    )  # fmt: skip
    return out


def edit_type(strings: Any) -> np.dtype:
    """Return the type of the numbers that `all_edits` returns."""
    return np.dtype("uint8" if strings.longest < 2**8 else "uint16")


def _words(strings: Any) -> tuple[int, np.dtype]:
    """Return how many words the longest string takes, and their type."""
    if strings.longest <= HALF_WORD:
        return 1, np.dtype("uint32")
    return -(-strings.longest // WORD), np.dtype("uint64")


def differences(strings: Any, src: Array, dst: Array, cutoff: int) -> Array:
    """Return in how many places each pair differs, (m,) float64, infinite above `cutoff` and for different lengths."""
    _check_strings(strings, src, dst)
    distance = cp.empty(src.size)
    arguments = strings.codes, strings.starts, src, dst, np.int64(src.size), np.int32(cutoff), distance
    launch(STRINGS, "count_differences", src.size, *arguments)
    return distance


def hash_strings(strings: Any, seed: int) -> Array:
    """Return a hash of each string, (n,) uint64, the same for equal strings."""
    _check_strings(strings)
    n, hashes = len(strings), cp.empty(len(strings), cp.uint64)
    launch(STRINGS, "hash_strings", n, strings.codes, strings.starts, np.int64(n), np.uint64(seed), hashes)
    return hashes


def copy_strings(strings: Any, rows: Array, starts: Array, codes: Array) -> None:
    """Copy the strings of some rows into `codes`, one after the other, each to its new start."""
    _check_strings(strings, rows)
    check_arrays("int64", starts, size=rows.size + 1)
    check_arrays("int32", codes)
    arguments = strings.codes, strings.starts, rows, np.int64(rows.size), starts, codes
    launch(STRINGS, "copy_strings", rows.size, *arguments)


def delete_characters(strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    """Write each hash that a string of a range has after up to `deleted` deletions; see `cpu.delete_characters`."""
    _make_keys("delete_characters", strings, rows, deleted, first, item, key)


def mask_characters(strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    """Write each hash that a string of a range has without `deleted` of its places; see `cpu.mask_characters`."""
    _make_keys("mask_characters", strings, rows, deleted, first, item, key)


def _make_keys(name: str, strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    _check_strings(strings, item)
    check_arrays("int64", first, size=rows.stop - rows.start)
    check_arrays("uint64", key, size=item.size)
    arguments = strings.codes, strings.starts, np.int64(rows.start), np.int64(first.size), np.int32(deleted)
    launch(STRINGS, name, first.size, *arguments, first, item, key)


def project_strings(strings: Any, ones: int, buckets: int, bits: int) -> Array:
    """Return the projection of each string, (n, bits / 8) uint8; see `cpu.project_strings`."""
    _check_strings(strings)
    n = len(strings)
    values, counts = cp.zeros((n, bits // 8), cp.uint8), cp.zeros(n * buckets if ones else 0, cp.uint8)
    sizes = np.int32(ones), np.int32(buckets), np.int32(bits // 8)
    launch(STRINGS, "project_strings", n, strings.codes, strings.starts, np.int64(n), *sizes, counts, values)
    return values


def _check_strings(strings: Any, *rows: Array) -> None:
    check_arrays("int32", strings.codes, *rows)
    check_arrays("int64", strings.starts, size=len(strings) + 1)


# ----------------------------------------------------------------------------------------------------------------- sets


def ascending(starts: Array, elements: Array) -> tuple[Array, Array]:
    """Return the starts and the elements, with those of each set in ascending order, each once; see `cpu`."""
    n, m = starts.size - 1, elements.size
    if m < 2:
        return starts, elements
    row = cp.searchsorted(starts, cp.arange(m, dtype=cp.int64), side="right") - 1
    if bool(((elements[1:] > elements[:-1]) | (row[1:] != row[:-1])).all()):
        return starts, elements
    order = cp.lexsort(cp.stack((elements.astype(cp.int64), row)))
    row, elements = row[order], elements[order]
    once = cp.concatenate((cp.ones(1, bool), (elements[1:] != elements[:-1]) | (row[1:] != row[:-1])))
    return cp.searchsorted(row[once], cp.arange(n + 1), side="left"), elements[once]


def hashed_bits(starts: Array, elements: Array, width: int, fit: bool) -> tuple[Array, Array]:
    """Return the bits to which each set's elements are hashed, and the numbers of ones; see `cpu`."""
    n = starts.size - 1
    check_arrays("int64", starts)
    words, ones = cp.zeros((n, width // WORD_BITS), cp.uint64), cp.empty(n, cp.int64)
    launch(
        SETS, "put_bits", WARP * n, starts, elements, np.int64(n), np.int32(width), np.bool_(fit), words, ones,
        options=_of_sets(elements),
    )  # fmt: skip
    return words, ones


def common_elements(starts: Array, elements: Array, src: Array, dst: Array) -> Array:
    """Return the number of common elements of each pair of sets, (m,) int64."""
    m = src.size
    check_arrays("int64", starts)
    check_arrays("int32", src, dst, size=m)
    common = cp.empty(m, cp.int64)
    launch(SETS, "count_common", WARP * m, starts, elements, src, dst, np.int64(m), common, options=_of_sets(elements))
    return common


def all_common(starts: Array, number: Array, use: Callable[[slice, Array], None]) -> None:
    """Call `use` with ranges of sets and the numbers of elements that each has in common with all; see `cpu`."""
    _use_sums(starts, number, "int32", constant(COMMON, "COUNTED"), use)


def hash_sets(starts: Array, elements: Array, seed: int) -> Array:
    """Return a hash of each set, (n,) uint64, the same for equal sets."""
    n = starts.size - 1
    check_arrays("int64", starts)
    out = cp.empty(n, cp.uint64)
    launch(SETS, "hash_sets", WARP * n, starts, elements, np.int64(n), np.uint64(seed), out, options=_of_sets(elements))
    return out


def _of_sets(elements: Array) -> tuple[str, ...]:
    """Return the compiler's options for the kernels of sets."""
    return (f"-DELEMENT={c_name(elements.dtype)}",)


# ---------------------------------------------------------------------------------------------------------- sparse rows


def dot_products(rows: Any, src: Array, dst: Array) -> Array:
    """Return the dot products of pairs of rows, (m,) float64."""
    return _of_row_pairs("dot_products", rows, src, dst, cp.float64)


def all_dot_products(rows: Any, number: Array, use: Callable[[slice, Array], None]) -> None:
    """Call `use` with ranges of rows and their dot products with all, (r, n) float64; see `cpu`."""
    _use_sums(rows.starts, number, "float64", constant(COMMON, "SUMMED"), use, rows)


def squared_distances(rows: Any, src: Array, dst: Array) -> Array:
    """Return the squared distances of pairs of rows, (m,) float64."""
    return _of_row_pairs("squared_distances", rows, src, dst, cp.float64)


def equal_rows(rows: Any, src: Array, dst: Array) -> Array:
    """Return whether the rows of each pair have the same entries, (m,) bool."""
    return _of_row_pairs("equal_rows", rows, src, dst, cp.bool_)


def hash_rows(rows: Any, seed: int) -> Array:
    """Return a hash of each row, (n,) uint64, the same for equal rows."""
    out = cp.empty(len(rows), cp.uint64)
    check_arrays("int64", rows.starts, size=out.size + 1)
    launch(
        SPARSE, "hash_rows", WARP * out.size,
        rows.starts, rows.columns, rows.values, np.int64(out.size), np.uint64(seed), out, options=_of_rows(rows),
    )  # fmt: skip
    return out


def _of_row_pairs(name: str, rows: Any, src: Array, dst: Array, dtype: Any) -> Array:
    m = src.size
    check_arrays("int64", rows.starts, size=len(rows) + 1)
    check_arrays("int32", src, dst, size=m)
    out = cp.empty(m, dtype)
    launch(
        SPARSE, name, m,
        rows.starts, rows.columns, rows.values, src, dst, np.int64(m), np.int64(rows.n_features), out,
        options=_of_rows(rows),
    )  # fmt: skip
    return out


def _of_rows(rows: Any) -> tuple[str, ...]:
    """Return the compiler's options for the kernels of sparse rows."""
    return value_option(rows.values.dtype), f"-DCOLUMN={c_name(rows.columns.dtype)}"


# -------------------------------------------------------------------------------------------------- all pairs of items


def core_distances(matrix: Array, counts: Array, samples: Array) -> Array:
    """Return the distance within which each item has as many other rows as `samples`, (n,) float64; see `dense`."""
    return find_cores(matrix, 0, counts.astype("int64"), samples.astype("int64"))


def _use_sums(
    starts: Array, number: Array, dtype: str, rows_a_warp: int, use: Callable[[slice, Array], None], rows: Any = None
) -> None:
    """Call `use` with ranges of rows and the sums of each with all, (r, n); without `rows` the sums are counts."""
    n, holders, number = starts.size - 1, Holders.of(starts, number, cuda()), number.astype("int32", copy=False)
    check_arrays("int64", starts, holders.starts)
    columns, values, held, d, options = None, None, None, 0, ()
    if rows is not None:
        columns, values, held, d = rows.columns, rows.values, rows.values[holders.entries], rows.n_features
        options = _of_rows(rows)
    holding, threads = holders.rows.astype("int32"), constant(COMMON, "THREADS")
    across = -(-n // (rows_a_warp * threads // WARP))
    for part in row_blocks(n, n, SUMS_AT_A_TIME):
        sums = cp.empty((part.stop - part.start, n), dtype)
        launch_blocks(
            COMMON, "put_sums", (len(sums), across), threads,
            starts, number, columns, values, holders.starts, holding, held, np.int32(n), np.int64(d),
            np.int32(part.start), sums, options=options,
        )  # fmt: skip
        use(part, sums)

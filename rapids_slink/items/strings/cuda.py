"""Launchers of `strings.cu`: the functions of `cpu` on a GPU, with a thread for each pair or string."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import check_arrays, constant, launch
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.memory import free_bytes

SOURCE = "items/strings/strings.cu"
#: Bytes for long strings, at most, and pairs of them at a time, at least.
EDGE_BYTES, FEWEST = 2**30, 2**10
WORD = constant(SOURCE, "WORD")


def edits(strings: Any, src: Array, dst: Array, most: int) -> Array:
    """The edits of each pair, (m,) float64, infinite above `most`."""
    distance = cp.empty(src.size)
    _count_edits(strings, src, dst, most, None, distance)
    if strings.longest <= WORD:
        return distance
    long = cp.flatnonzero(distance < 0)
    size = max(FEWEST, int(min(EDGE_BYTES, free_bytes() / 4)) // strings.longest)
    for begin in range(0, long.size, size):
        part = long[begin : begin + size]
        edges, of_part = cp.empty(part.size * strings.longest, cp.int8), cp.empty(part.size)
        _count_edits(strings, src[part], dst[part], most, edges, of_part)
        distance[part] = of_part
    return distance


def _count_edits(strings: Any, src: Array, dst: Array, most: int, edges: Array, distance: Array) -> None:
    _check(strings, src, dst)
    n, longest = np.int64(src.size), np.int64(strings.longest)
    given = strings.codes, strings.starts, src, dst, n, np.int32(most), edges, longest, distance
    launch(SOURCE, "count_edits", src.size, *given)


def differences(strings: Any, src: Array, dst: Array, most: int) -> Array:
    """In how many places each pair differs, (m,) float64, infinite above `most` and for different lengths."""
    _check(strings, src, dst)
    distance = cp.empty(src.size)
    given = strings.codes, strings.starts, src, dst, np.int64(src.size), np.int32(most), distance
    launch(SOURCE, "count_differences", src.size, *given)
    return distance


def hash_strings(strings: Any, seed: int) -> Array:
    """(n,) uint64."""
    _check(strings)
    n, hashes = len(strings), cp.empty(len(strings), cp.uint64)
    launch(SOURCE, "hash_strings", n, strings.codes, strings.starts, np.int64(n), np.uint64(seed), hashes)
    return hashes


def copy_strings(strings: Any, rows: Array, starts: Array, codes: Array) -> None:
    """Copy some strings one after the other, to where they start."""
    _check(strings, rows)
    check_arrays("int64", starts, size=rows.size + 1)
    check_arrays("int32", codes)
    given = strings.codes, strings.starts, rows, np.int64(rows.size), starts, codes
    launch(SOURCE, "copy_strings", rows.size, *given)


def delete_characters(strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    """Write the hashes of the strings of a range with up to `deleted` characters less, from `first` of each on."""
    _make_keys("delete_characters", strings, rows, deleted, first, item, key)


def mask_characters(strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    """Write the hashes of the strings of a range without `deleted` places, from `first` of each on."""
    _make_keys("mask_characters", strings, rows, deleted, first, item, key)


def _make_keys(name: str, strings: Any, rows: slice, deleted: int, first: Array, item: Array, key: Array) -> None:
    _check(strings, item)
    check_arrays("int64", first, size=rows.stop - rows.start)
    check_arrays("uint64", key, size=item.size)
    given = strings.codes, strings.starts, np.int64(rows.start), np.int64(first.size), np.int32(deleted)
    launch(SOURCE, name, first.size, *given, first, item, key)


def project(strings: Any, ones: int, buckets: int, bits: int) -> Array:
    """(n, bits / 8) uint8: the bits of counts up to `ones` in buckets, or of places with characters for 0 ones."""
    _check(strings)
    n = len(strings)
    values, counts = cp.zeros((n, bits // 8), cp.uint8), cp.zeros(n * buckets if ones else 0, cp.uint8)
    sizes = np.int32(ones), np.int32(buckets), np.int32(bits // 8)
    launch(SOURCE, "project_strings", n, strings.codes, strings.starts, np.int64(n), *sizes, counts, values)
    return values


def _check(strings: Any, *rows: Array) -> None:
    check_arrays("int32", strings.codes, *rows)
    check_arrays("int64", strings.starts, size=len(strings) + 1)

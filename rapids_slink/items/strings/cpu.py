"""Strings on a CPU: their distances, hashes, keys and bits.

Edits are found by bit-parallel columns (Myers, JACM 1999, as Hyyrö 2003 has them): 64 characters of the shorter string
are a word, whose bits are the differences of a column of the table from one row to the next. Longer strings take a word
after the other, each of which reads what the one above it leaves at its lower edge.
"""

from typing import Any

import numpy as np

from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

#: Pairs, and strings, that a thread takes at a time, at least.
FEWEST = 2**12
#: An odd number and its inverse modulo 2⁶⁴.
FACTOR = constant("items/strings/strings.cu", "FACTOR")
INVERSE = pow(FACTOR, -1, 2**64)
WORD = constant("items/strings/strings.cu", "WORD")
R, R_INVERSE, ONE, ZERO, ALL = (np.uint64(x) for x in (FACTOR, INVERSE, 1, 0, 2**64 - 1))


def edits(strings: Any, src: np.ndarray, dst: np.ndarray, most: int) -> np.ndarray:
    """The edits of each pair, (m,) float64, infinite above `most`."""
    distance = np.empty(src.size)

    def work(part: slice) -> None:
        room = np.zeros(max(1, strings.n_characters), np.uint64), np.empty(strings.longest, np.int8)
        _edits(strings.codes, strings.starts, src[part], dst[part], most, *room, distance[part])

    for_each_chunk(CPU, work, chunks_for_cores(src.size, FEWEST))
    return distance


def differences(strings: Any, src: np.ndarray, dst: np.ndarray, most: int) -> np.ndarray:
    """In how many places each pair differs, (m,) float64, infinite above `most` and for different lengths."""
    distance = np.empty(src.size)

    def work(part: slice) -> None:
        _differences(strings.codes, strings.starts, src[part], dst[part], most, distance[part])

    for_each_chunk(CPU, work, chunks_for_cores(src.size, FEWEST))
    return distance


def hash_strings(strings: Any, seed: int) -> np.ndarray:
    """(n,) uint64."""
    hashes = np.empty(len(strings), np.uint64)

    def work(part: slice) -> None:
        _hashes(strings.codes, strings.starts, part.start, seed, hashes[part])

    for_each_chunk(CPU, work, chunks_for_cores(hashes.size, FEWEST))
    return hashes


def copy_strings(strings: Any, rows: np.ndarray, starts: np.ndarray, codes: np.ndarray) -> None:
    """Copy some strings one after the other, to where they start."""
    _copy(strings.codes, strings.starts, rows, starts, codes)


def delete_characters(
    strings: Any, rows: slice, deleted: int, first: np.ndarray, item: np.ndarray, key: np.ndarray
) -> None:
    """Write the hashes of the strings of a range with up to `deleted` characters less, from `first` of each on."""
    _for_each_string(_delete, strings, rows, deleted, first, item, key)


def mask_characters(
    strings: Any, rows: slice, deleted: int, first: np.ndarray, item: np.ndarray, key: np.ndarray
) -> None:
    """Write the hashes of the strings of a range without `deleted` places, from `first` of each on."""
    _for_each_string(_mask, strings, rows, deleted, first, item, key)


def _for_each_string(make: Any, strings: Any, rows: slice, deleted: int, first: np.ndarray, *keys: np.ndarray) -> None:
    def work(part: slice) -> None:
        make(strings.codes, strings.starts, rows.start + part.start, deleted, first[part], *keys)

    for_each_chunk(CPU, work, chunks_for_cores(first.size, FEWEST))


def project(strings: Any, ones: int, buckets: int, bits: int) -> np.ndarray:
    """(n, bits / 8) uint8: the bits of counts up to `ones` in buckets, or of places with characters for 0 ones."""
    values = np.zeros((len(strings), bits // 8), np.uint8)

    def work(part: slice) -> None:
        _project(strings.codes, strings.starts, part.start, ones, buckets, bits, values[part])

    for_each_chunk(CPU, work, chunks_for_cores(len(values), FEWEST))
    return values


# ------------------------------------------------------------------------------------------------------- kernels


@njit(nogil=True, cache=True)
def _edits(codes, starts, src, dst, most, masks, edge, distance):
    """`masks`, zeros, and `edge` are room for a word of each character and a byte of each place."""
    for pair in range(src.size):
        a, a_end = starts[src[pair]], starts[src[pair] + 1]
        b, b_end = starts[dst[pair]], starts[dst[pair] + 1]
        if a_end - a > b_end - b:
            a, a_end, b, b_end = b, b_end, a, a_end
        distance[pair] = np.inf
        if (b_end - b) - (a_end - a) > most:
            continue
        while a < a_end and codes[a] == codes[b]:
            a, b = a + 1, b + 1
        while a < a_end and codes[a_end - 1] == codes[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
        if a == a_end:
            distance[pair] = b_end - b
            continue
        found = _columns(codes, a, a_end, b, b_end, most, masks, edge)
        if found <= most:
            distance[pair] = found


@njit(nogil=True, cache=True)
def _columns(codes, a, a_end, b, b_end, most, masks, edge):
    """The edits between two parts of `codes`, the first of which is not longer and not empty; or more than `most`."""
    n = b_end - b
    value = a_end - a
    for j in range(n):
        edge[j] = 1
    for word in range(a, a_end, WORD):
        end = min(word + WORD, a_end)
        for i in range(word, end):
            masks[codes[i]] |= ONE << np.uint64(i - word)
        last = np.uint64(end - 1 - word)
        is_lowest = end == a_end
        plus, minus = ALL, ZERO
        for j in range(n):
            above = edge[j]
            equal = masks[codes[b + j]]
            vertical = equal | minus
            if above < 0:
                equal |= ONE
            horizontal = (((equal & plus) + plus) ^ plus) | equal
            up, down = minus | ~(horizontal | plus), plus & horizontal
            below = np.int64((up >> last) & ONE) - np.int64((down >> last) & ONE)
            edge[j] = below
            up, down = up << ONE, down << ONE
            if above > 0:
                up |= ONE
            elif above < 0:
                down |= ONE
            plus, minus = down | ~(vertical | up), up & vertical
            if is_lowest:
                value += below
                if value - (n - 1 - j) > most:
                    value = most + 1
                    break
        for i in range(word, end):
            masks[codes[i]] = ZERO
    return value


@njit(nogil=True, cache=True)
def _differences(codes, starts, src, dst, most, distance):
    for pair in range(src.size):
        a, b = starts[src[pair]], starts[dst[pair]]
        n = starts[src[pair] + 1] - a
        distance[pair] = np.inf
        if starts[dst[pair] + 1] - b != n:
            continue
        count = 0
        for i in range(n):
            count += codes[a + i] != codes[b + i]
            if count > most:
                break
        if count <= most:
            distance[pair] = count


@njit(nogil=True, cache=True)
def _sum(codes, begin, end, power):
    """The sum of a string's characters, each times the power of its place."""
    total = ZERO
    for i in range(begin, end):
        total += np.uint64(codes[i] + 1) * power
        power *= R
    return total


@njit(nogil=True, cache=True)
def _hashes(codes, starts, first, seed, hashes):
    for k in range(hashes.size):
        total = _sum(codes, starts[first + k], starts[first + k + 1], ONE + np.uint64(2 * seed))
        hashes[k] = total ^ (total >> np.uint64(32))


@njit(nogil=True, cache=True)
def _copy(codes, starts, rows, new_starts, new_codes):
    for k in range(rows.size):
        first = starts[rows[k]] - new_starts[k]
        for i in range(new_starts[k], new_starts[k + 1]):
            new_codes[i] = codes[first + i]


@njit(nogil=True, cache=True)
def _delete(codes, starts, first_row, deleted, first, item, key):
    for k in range(first.size):
        row, at = first_row + k, first[k]
        begin, end = starts[row], starts[row + 1]
        whole = _sum(codes, begin, end, ONE)
        item[at], key[at] = row, whole
        at += 1
        before, power = ZERO, ONE
        for i in range(begin, end if deleted else begin):
            # `before` are the characters up to i, `after_one` those behind i
            own = np.uint64(codes[i] + 1) * power
            after_one = whole - before - own
            item[at], key[at] = row, before + after_one * R_INVERSE
            at += 1
            if deleted > 1:
                between, of_j = ZERO, power
                for j in range(i + 1, end):
                    of_j *= R
                    second = np.uint64(codes[j] + 1) * of_j
                    behind = after_one - between - second
                    item[at], key[at] = row, before + (between + behind * R_INVERSE) * R_INVERSE
                    at += 1
                    between += second
            before += own
            power *= R


@njit(nogil=True, cache=True)
def _mask(codes, starts, first_row, deleted, first, item, key):
    for k in range(first.size):
        row, at = first_row + k, first[k]
        begin, end = starts[row], starts[row + 1]
        whole = _sum(codes, begin, end, ONE)
        masked = min(deleted, end - begin)
        if masked == 0:
            item[at], key[at] = row, whole
            continue
        power = ONE
        for i in range(begin, end):
            without = whole - np.uint64(codes[i] + 1) * power
            if masked == 1:
                item[at], key[at] = row, without ^ (np.uint64(i - begin) << np.uint64(40))
                at += 1
            else:
                of_j = power
                for j in range(i + 1, end):
                    of_j *= R
                    places = np.uint64(i - begin) << np.uint64(40) | np.uint64(j - begin) << np.uint64(20)
                    item[at], key[at] = row, (without - np.uint64(codes[j] + 1) * of_j) ^ places
                    at += 1
            power *= R


@njit(nogil=True, cache=True)
def _project(codes, starts, first_row, ones, buckets, bits, values):
    counts = np.zeros(buckets, np.int64)
    for k in range(len(values)):
        counts[:] = 0
        begin = starts[first_row + k]
        for i in range(begin, starts[first_row + k + 1]):
            if ones == 0:
                bit = (np.uint64(codes[i] + 1) * R + np.uint64(i - begin) * R_INVERSE) >> np.uint64(32)
                bit %= np.uint64(bits)
            else:
                bucket = np.int64(codes[i]) % buckets
                if counts[bucket] == ones:
                    continue
                bit = np.uint64(bucket * ones + counts[bucket])
                counts[bucket] += 1
            values[k, bit >> np.uint64(3)] |= np.uint8(1 << (bit & np.uint64(7)))

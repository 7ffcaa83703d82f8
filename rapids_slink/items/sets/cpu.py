"""Sets on a CPU."""

import numpy as np

from rapids_slink.items.compressed import mixed
from rapids_slink.metrics import WORD_BITS
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

#: Sets, and pairs of them, of a thread's share at least.
LEAST_SETS, LEAST_PAIRS = 2**6, 2**10


def ascending(starts: np.ndarray, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts and the elements with those of each set in ascending order, each once: themselves if they are so."""
    shares, starts, given = chunks_for_cores(starts.size - 1, LEAST_SETS), read_only(starts), read_only(elements)
    if all(for_each_chunk(CPU, lambda part: _ascend(starts, given, part.start, part.stop), shares)):
        return starts, elements
    ordered, kept = np.empty_like(elements), np.empty(starts.size - 1, np.int64)
    for_each_chunk(CPU, lambda part: _sort(starts, given, part.start, part.stop, ordered, kept), shares)
    begins = np.concatenate(([0], np.cumsum(kept)))
    if begins[-1] == elements.size:
        return starts, ordered
    once = np.empty(begins[-1], elements.dtype)
    for_each_chunk(CPU, lambda part: _gather(starts, ordered, begins, part.start, part.stop, once), shares)
    return begins, once


def hashed_bits(starts: np.ndarray, elements: np.ndarray, width: int, fit: bool) -> tuple[np.ndarray, np.ndarray]:
    """The bits to which the elements of each set are hashed, (n, width / 64) uint64, and the numbers of ones, (n,).

    If they `fit`, element i is bit i.
    """
    n = starts.size - 1
    words, ones = np.zeros((n, width // WORD_BITS), np.uint64), np.zeros(n, np.int64)
    given = read_only(starts), read_only(elements), width, fit

    def work(part: slice) -> None:
        _put_bits(*given, part.start, part.stop, words, ones)

    for_each_chunk(CPU, work, chunks_for_cores(n, LEAST_SETS))
    return words, ones


def common_elements(starts: np.ndarray, elements: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """The numbers of common elements of pairs of sets, (m,) int64."""
    common = np.empty(src.size, np.int64)
    arrays = [read_only(array) for array in (starts, elements, src, dst)]

    def work(part: slice) -> None:
        _count_common(*arrays, part.start, part.stop, common)

    for_each_chunk(CPU, work, chunks_for_cores(src.size, LEAST_PAIRS))
    return common


def hashes(starts: np.ndarray, elements: np.ndarray, seed: int) -> np.ndarray:
    """A number for each set, (n,) uint64: the sum of its elements' hashes."""
    out = np.empty(starts.size - 1, np.uint64)
    given = read_only(starts), read_only(elements), np.uint64(seed)
    for_each_chunk(CPU, lambda part: _hash(*given, part.start, part.stop, out), chunks_for_cores(out.size, LEAST_SETS))
    return out


@njit(nogil=True, cache=True)
def _ascend(starts, elements, first, last):
    """Whether the elements of each of some sets ascend, each once."""
    for i in range(first, last):
        for e in range(starts[i] + 1, starts[i + 1]):
            if elements[e - 1] >= elements[e]:
                return False
    return True


@njit(nogil=True, cache=True)
def _sort(starts, elements, first, last, ordered, kept):
    """Sort the elements of some sets, and put each once at the set's start; `kept` are their numbers."""
    for i in range(first, last):
        row = np.sort(elements[starts[i] : starts[i + 1]])
        at = starts[i]
        for e in range(row.size):
            if e == 0 or row[e] != row[e - 1]:
                ordered[at], at = row[e], at + 1
        kept[i] = at - starts[i]


@njit(nogil=True, cache=True)
def _gather(starts, ordered, begins, first, last, once):
    for i in range(first, last):
        for e in range(begins[i + 1] - begins[i]):
            once[begins[i] + e] = ordered[starts[i] + e]


@njit(nogil=True, cache=True)
def _hash(starts, elements, seed, first, last, out):
    for i in range(first, last):
        total = seed
        for e in range(starts[i], starts[i + 1]):
            total += mixed(np.uint64(elements[e]) + seed)
        out[i] = total


@njit(nogil=True, cache=True)
def _put_bits(starts, elements, width, fit, first, last, words, ones):
    for i in range(first, last):
        count = 0
        for e in range(starts[i], starts[i + 1]):
            bit = np.uint64(elements[e])
            if not fit:
                bit = ((mixed(bit) >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32)
            word, mask = bit >> np.uint64(6), np.uint64(1) << (bit & np.uint64(63))
            count += (words[i, word] & mask) == 0
            words[i, word] |= mask
        ones[i] = count


@njit(nogil=True, cache=True)
def _count_common(starts, elements, src, dst, first, last, common):
    """Merge the elements of pairs of sets. A step has no branch, since none could be foretold."""
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        i_end, j_end, count = starts[src[p] + 1], starts[dst[p] + 1], 0
        while i < i_end and j < j_end:
            a, b = elements[i], elements[j]
            count += a == b
            i += a <= b
            j += b <= a
        common[p] = count

"""Items on a CPU: the distances, hashes, keys and bits of strings, sets and sparse rows.

Edits of strings are counted by bit-parallel columns (Myers, JACM 1999, in Hyyrö's form of 2003). 64 characters of the
shorter string are a word, whose bits are the differences between successive rows in a column of the table. Longer
strings take one word after the other, and each word reads what the word above it leaves at its lower edge.

Sums over sparse rows are float64, term by term in the order of the columns, as `rows.cu` has them.
"""

from typing import Any

import numpy as np

from rapids_slink.metrics import METRICS, WORD_BITS
from rapids_slink.neighbors.exact.cpu import NO_CORE, distances_between, insert_within, popcount, reachability
from rapids_slink.neighbors.task import equal_slices
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

#: A thread's least share of work: strings or their pairs, sets, sparse rows, and pairs of sets or of sparse rows.
LEAST_STRINGS, LEAST_SETS, LEAST_ROWS, LEAST_PAIRS = 2**12, 2**6, 2**8, 2**10
#: An odd number and its inverse modulo 2⁶⁴.
FACTOR = constant("items/strings.cu", "FACTOR")
INVERSE = pow(FACTOR, -1, 2**64)
WORD = constant("items/strings.cu", "WORD")
#: The strings that a string passes at once, and a cutoff above every number of edits.
LANES, NO_CUTOFF = 128, 2**62
#: A search for one element in a longer row takes as much time as this number of steps of a pass over both.
SEARCH_STEPS = 32
R, R_INVERSE, ONE, ZERO, ALL = (np.uint64(x) for x in (FACTOR, INVERSE, 1, 0, 2**64 - 1))


@njit(nogil=True, cache=True)
def mixed(h: Any) -> Any:
    """Return a uint64, each bit of which depends on all bits of `h`, as `mixed` of mixing.cuh does."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


# -------------------------------------------------------------------------------------------------------------- strings


def edits(strings: Any, src: np.ndarray, dst: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the number of edits of each pair, (m,) float64, infinite above `cutoff`."""
    distance = np.empty(src.size)

    def work(part: slice) -> None:
        masks, edge = np.zeros(max(1, strings.n_characters), np.uint64), np.empty(strings.longest, np.int8)
        _edits(strings.codes, strings.starts, src[part], dst[part], cutoff, masks, edge, distance[part])

    for_each_chunk(CPU, work, chunks_for_cores(src.size, LEAST_STRINGS))
    return distance


def edits_of_rows(strings: Any, rows: np.ndarray, points: slice) -> np.ndarray:
    """Return the numbers of edits between some strings and a range of strings, (m, p), of `Strings.distance_type`."""
    out = np.empty((rows.size, points.stop - points.start), strings.distance_type)
    masks = np.zeros((max(1, strings.n_characters), LANES), np.uint32 if strings.longest <= WORD // 2 else np.uint64)
    alone, edge = np.zeros(len(masks), np.uint64), np.empty(strings.longest, np.int8)
    codes, starts = read_only(strings.codes), read_only(strings.starts)
    for part in equal_slices(slice(0, rows.size), LANES):
        columns = np.empty((out.shape[1], LANES), out.dtype)
        _edits_of_rows(codes, starts, rows[part], points.start, masks, alone, edge, columns)
        out[part] = columns.T[: part.stop - part.start]
    return out


def differences_of_rows(strings: Any, rows: np.ndarray, points: slice) -> np.ndarray:
    """Return at how many positions some strings differ from each of a range, all equally long; see `edits_of_rows`."""
    numbers = np.arange(points.start, points.stop, dtype=np.int32)
    return distances_between(strings.table, rows, numbers, METRICS["hamming"]).astype(strings.distance_type)


def differences(strings: Any, src: np.ndarray, dst: np.ndarray, cutoff: int) -> np.ndarray:
    """Return at how many positions each pair differs, (m,) float64, infinite above `cutoff` or for unequal lengths."""
    codes, starts, distance = strings.codes, strings.starts, np.empty(src.size)
    shares = chunks_for_cores(src.size, LEAST_STRINGS)
    for_each_chunk(CPU, lambda own: _differences(codes, starts, src[own], dst[own], cutoff, distance[own]), shares)
    return distance


def hash_strings(strings: Any) -> np.ndarray:
    """Return a hash of each string, (n,) uint64, the same for equal strings."""
    hashes, shares = np.empty(len(strings), np.uint64), chunks_for_cores(len(strings), LEAST_STRINGS)
    for_each_chunk(CPU, lambda own: _hash_strings(strings.codes, strings.starts, own.start, hashes[own]), shares)
    return hashes


def make_keys(strings: Any, rows: slice, deleted: int, first: np.ndarray, item: np.ndarray, key: np.ndarray) -> None:
    """Write each hash that a string of a range has after up to `deleted` deletions, which are at most two.

    If only equally long strings are compared, the hash also depends on the positions that are deleted. The hashes of
    the i-th string are in `key` from `first[i]` on, and its row is beside each of them in `item`.
    """
    is_placed = np.uint64(strings.classes() is not None)

    def work(part: slice) -> None:
        _delete(strings.codes, strings.starts, rows.start + part.start, deleted, is_placed, first[part], item, key)

    for_each_chunk(CPU, work, chunks_for_cores(first.size, LEAST_STRINGS))


def project_strings(strings: Any, ones: int, buckets: int, bits: int) -> np.ndarray:
    """Return the projection of each string, (n, bits / 8) uint8.

    Characters are hashed into buckets, and each bucket has as many ones as characters, up to `ones`. If `ones` is 0,
    each character with its position sets one bit.
    """
    values = np.zeros((len(strings), bits // 8), np.uint8)

    def work(part: slice) -> None:
        _project_strings(strings.codes, strings.starts, part.start, ones, buckets, bits, values[part])

    for_each_chunk(CPU, work, chunks_for_cores(len(values), LEAST_STRINGS))
    return values


@njit(nogil=True, cache=True)
def _edits(codes, starts, src, dst, cutoff, masks, edge, distance):
    """Write the number of edits of each pair.

    `masks`, of zeros, has room for a word of each character, and `edge` for a byte of each position.
    """
    for pair in range(src.size):
        distance[pair] = _edits_of_pair(codes, starts, src[pair], dst[pair], cutoff, masks, edge)


@njit(nogil=True, cache=True)
def _edits_of_pair(codes, starts, src, dst, cutoff, masks, edge):
    a, a_end, b, b_end = starts[src], starts[src + 1], starts[dst], starts[dst + 1]
    if a_end - a > b_end - b:
        a, a_end, b, b_end = b, b_end, a, a_end
    if (b_end - b) - (a_end - a) > cutoff:
        return np.inf
    while a < a_end and codes[a] == codes[b]:
        a, b = a + 1, b + 1
    while a < a_end and codes[a_end - 1] == codes[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    count = b_end - b
    if a < a_end:
        count = _edits_of_parts(codes, a, a_end, b, b_end, cutoff, masks, edge)
    return np.float64(count) if count <= cutoff else np.inf


@njit(nogil=True, cache=True)
def _edits_of_rows(codes, starts, rows, first, masks, alone, edge, out):
    """Write how many edits up to `LANES` strings are from each string from `first` on: a column of `out` for each lane.

    A lane has a string of up to a word, and the others pass all lanes a character at a time, as in `_edits_of_parts`.
    The last column of the table begins with their length, and its steps are the bits of both words. Longer strings take
    a pair at a time. `masks` has a word of 32 or 64 bits for each character and lane, of zeros.
    """
    one, whole = masks.dtype.type(1), np.zeros(LANES, np.uint64)
    plus, minus = np.empty(LANES, masks.dtype), np.empty(LANES, masks.dtype)
    for lane in range(rows.size):
        begin, size = starts[rows[lane]], starts[rows[lane] + 1] - starts[rows[lane]]
        if 0 < size <= WORD:
            whole[lane] = ALL >> np.uint64(WORD - size)
            for i in range(size):
                masks[codes[begin + i], lane] |= one << masks.dtype.type(i)
    for j in range(len(out)):
        begin, end = starts[first + j], starts[first + j + 1]
        for lane in range(LANES):
            plus[lane], minus[lane] = ~masks.dtype.type(0), 0
        for i in range(begin, end):
            _pass_character(masks, codes[i], plus, minus)
        for lane in range(LANES):
            ups, downs = popcount(plus[lane] & whole[lane]), popcount(minus[lane] & whole[lane])
            out[j, lane] = end - begin + np.int64(ups) - np.int64(downs)
    for lane in range(rows.size):
        begin, end = starts[rows[lane]], starts[rows[lane] + 1]
        if end - begin > WORD:
            for j in range(len(out)):
                out[j, lane] = _edits_of_pair(codes, starts, rows[lane], first + j, NO_CUTOFF, alone, edge)
            continue
        for i in range(begin, end):
            masks[codes[i], lane] = 0


@njit(nogil=True, cache=True)
def _pass_character(masks, character, plus, minus):
    """Advance all lanes by a character: one vector operation for several lanes, since their number is a constant.

    Numba computes in 64 bits, so every result is narrowed at once.
    """
    T = masks.dtype.type
    for lane in range(LANES):
        equal, up, down = masks[character, lane], plus[lane], minus[lane]
        vertical = T(equal | down)
        horizontal = T(T(T(T(equal & up) + up) ^ up) | equal)
        above, below = T(down | T(~T(horizontal | up))), T(up & horizontal)
        above = T(T(above + above) + T(1))
        plus[lane], minus[lane] = T(T(below + below) | T(~T(vertical | above))), T(above & vertical)


@njit(nogil=True, cache=True)
def _edits_of_parts(codes, a, a_end, b, b_end, cutoff, masks, edge):
    """Return the number of edits between two parts of `codes`, or any number above `cutoff` if there are more.

    The first part is not empty, and not longer than the second.
    """
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
                if value - (n - 1 - j) > cutoff:
                    value = cutoff + 1
                    break
        for i in range(word, end):
            masks[codes[i]] = ZERO
    return value


@njit(nogil=True, cache=True)
def _differences(codes, starts, src, dst, cutoff, distance):
    for pair in range(src.size):
        a, b = starts[src[pair]], starts[dst[pair]]
        n = starts[src[pair] + 1] - a
        distance[pair] = np.inf
        if starts[dst[pair] + 1] - b != n:
            continue
        count = 0
        for i in range(n):
            count += codes[a + i] != codes[b + i]
            if count > cutoff:
                break
        if count <= cutoff:
            distance[pair] = count


@njit(nogil=True, cache=True)
def _sum_of_string(codes, begin, end):
    """Return the sum of a string's characters, each times the power of its position."""
    total, power = ZERO, ONE
    for i in range(begin, end):
        total += np.uint64(codes[i] + 1) * power
        power *= R
    return total


@njit(nogil=True, cache=True)
def _hash_strings(codes, starts, first, hashes):
    """Write the hash of each string: the sum of the hashes of its characters with their positions."""
    for k in range(hashes.size):
        total = ZERO
        for position in range(starts[first + k + 1] - starts[first + k]):
            character = np.uint64(codes[starts[first + k] + position] + 1)
            total += mixed(np.uint64(position) << np.uint64(32) | character)
        hashes[k] = total


@njit(nogil=True, cache=True)
def _delete(codes, starts, first_row, deleted, is_placed, first, item, key):
    for k in range(first.size):
        row, at = first_row + k, first[k]
        begin, end = starts[row], starts[row + 1]
        whole = _sum_of_string(codes, begin, end)
        item[at], key[at] = row, whole
        at += 1
        before, power = ZERO, ONE
        for i in range(begin, end if deleted else begin):
            # `before` is the sum of the characters before i, and `after_one` that of those behind i
            own = np.uint64(codes[i] + 1) * power
            after_one = whole - before - own
            place = is_placed * np.uint64(i - begin) << np.uint64(40)
            item[at], key[at] = row, before + after_one * R_INVERSE ^ place
            at += 1
            if deleted > 1:
                between, power_of_j = ZERO, power
                for j in range(i + 1, end):
                    power_of_j *= R
                    second = np.uint64(codes[j] + 1) * power_of_j
                    behind = after_one - between - second
                    places = place | is_placed * np.uint64(j - begin) << np.uint64(20)
                    item[at], key[at] = row, before + (between + behind * R_INVERSE) * R_INVERSE ^ places
                    at += 1
                    between += second
            before += own
            power *= R


@njit(nogil=True, cache=True)
def _project_strings(codes, starts, first_row, ones, buckets, bits, values):
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


# ----------------------------------------------------------------------------------------------------------------- sets


def sort_rows(starts: np.ndarray, columns: np.ndarray, _row: np.ndarray) -> np.ndarray:
    """Return the entries' columns, ascending within each row."""
    shares, view, ordered = chunks_for_cores(starts.size - 1, LEAST_SETS), read_only(columns), np.empty_like(columns)
    for_each_chunk(CPU, lambda part: _sort(read_only(starts), view, part.start, part.stop, ordered), shares)
    return ordered


def hashed_bits(sets: Any, width: int, fit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits to which each set's elements are hashed, (n, width / 64) uint64, and the numbers of ones, (n,).

    If the elements `fit`, element i is bit i.
    """
    n = len(sets)
    words, ones = np.zeros((n, width // WORD_BITS), np.uint64), np.zeros(n, np.int64)
    starts, columns, shares = read_only(sets.starts), read_only(sets.columns), chunks_for_cores(n, LEAST_SETS)
    for_each_chunk(CPU, lambda own: _put_bits(starts, columns, width, fit, own.start, own.stop, words, ones), shares)
    return words, ones


@njit(nogil=True, cache=True)
def _sort(starts, columns, first, last, ordered):
    for i in range(first, last):
        ordered[starts[i] : starts[i + 1]] = np.sort(columns[starts[i] : starts[i + 1]])


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
def _position(values, value, begin, end):
    """Return the position of the first of ascending values that is not below a value."""
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(nogil=True, cache=True)
def _shorter_first(starts, row, other):
    """Return the ranges of two rows, the shorter one first.

    The last result is whether it is so short that searches for its entries take less time than a pass over both rows.
    """
    i, i_end, j, j_end = starts[row], starts[row + 1], starts[other], starts[other + 1]
    if i_end - i > j_end - j:
        i, i_end, j, j_end = j, j_end, i, i_end
    return i, i_end, j, j_end, (i_end - i) * SEARCH_STEPS < j_end - j


@njit(nogil=True, cache=True)
def _count_common(starts, elements, _values, src, dst, _d, first, last, common):
    """Count the common elements of some pairs of sets in one pass over both.

    A step of the pass has no branch, since no branch could be predicted. The elements of a much shorter set are
    searched for in the other.
    """
    for p in range(first, last):
        i, i_end, j, j_end, is_short = _shorter_first(starts, src[p], dst[p])
        count = 0
        if is_short:
            for e in range(i, i_end):
                j = _position(elements, elements[e], j, j_end)
                count += j < j_end and elements[j] == elements[e]
            common[p] = count
            continue
        while i < i_end and j < j_end:
            a, b = elements[i], elements[j]
            count += a == b
            i += a <= b
            j += b <= a
        common[p] = count


# ---------------------------------------------------------------------------------------------------------- sparse rows


def sums_of_rows(stored: Any, rows: np.ndarray, points: slice) -> np.ndarray:
    """Return what some rows have in common with each of a range of rows, (m, p).

    For sets it is the number of elements, int32, and for sparse rows the dot product, float64.
    """
    are_sets, holders = stored.values is None, stored.holders
    sums = np.zeros((1 if are_sets else 3, rows.size, points.stop - points.start), np.int32 if are_sets else np.float64)
    _add_of_rows(
        stored.starts, stored.columns, stored.values, stored.column_numbers, holders.starts, holders.rows,
        holders.values, stored.n_features, rows, points.start, sums,
    )  # fmt: skip
    return sums[0] if are_sets else (sums[0] + sums[1]) + sums[2]


def hash_rows(rows: Any) -> np.ndarray:
    """Return a hash of each row, (n,) uint64: the sum of its entries' hashes."""
    out = np.empty(len(rows), np.uint64)
    bits = None if rows.values is None else read_only(rows.values.view(f"uint{8 * rows.values.itemsize}"))
    starts, columns, shares = read_only(rows.starts), read_only(rows.columns), chunks_for_cores(out.size, LEAST_ROWS)
    for_each_chunk(CPU, lambda own: _hash_rows(starts, columns, bits, own.start, own.stop, out), shares)
    return out


def compare_rows(how: str, rows: Any, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return what a kernel of `ROW_PAIRS` finds for each pair of rows, (m,)."""
    kernel, dtype = ROW_PAIRS[how]
    starts, columns, src, dst = (read_only(array) for array in (rows.starts, rows.columns, src, dst))
    values = None if rows.values is None else read_only(rows.values)
    out: np.ndarray = np.empty(src.size, dtype)
    d, shares = rows.n_features, chunks_for_cores(src.size, LEAST_PAIRS)
    for_each_chunk(CPU, lambda own: kernel(starts, columns, values, src, dst, d, own.start, own.stop, out), shares)
    return out


@njit(nogil=True, cache=True)
def _dot_products(starts, columns, values, src, dst, d, first, last, out):
    """Write the dot products of some pairs of rows.

    Even and odd columns are summed separately. If the number of columns is odd, the last one is added at the end.
    """
    for p in range(first, last):
        i, i_end, j, j_end, is_short = _shorter_first(starts, src[p], dst[p])
        even, odd, lone = 0.0, 0.0, 0.0
        while i < i_end and j < j_end:
            if is_short:
                j = _position(columns, columns[i], j, j_end)
                if j == j_end:
                    break
            a, b = columns[i], columns[j]
            if a == b:
                product = np.float64(values[i]) * np.float64(values[j])
                if a & 1:
                    odd += product
                elif a == d - 1:
                    lone = product
                else:
                    even += product
            i += a <= b
            j += b <= a
        out[p] = (even + odd) + lone


@njit(nogil=True, cache=True)
def _add_of_rows(starts, columns, values, number, column_starts, holders, held, d, rows, first, sums):
    """Add what some rows have in common with those from `first` on to sums of zeros, (1 or 3, m, p).

    Sets have ones, in one sum. The three sums of the others are those of `_dot_products`, in its order.
    """
    last_row = first + sums.shape[2]
    for i in range(rows.size):
        for e in range(starts[rows[i]], starts[rows[i] + 1]):
            a, begin, end = columns[e], column_starts[number[e]], column_starts[number[e] + 1]
            begin, end = _position(holders, first, begin, end), _position(holders, last_row, begin, end)
            if values is None:
                for h in range(begin, end):
                    sums[0, i, holders[h] - first] += 1
            else:
                total, x = sums[1 if a & 1 else 2 if a == d - 1 else 0, i], np.float64(values[e])
                for h in range(begin, end):
                    total[holders[h] - first] += x * np.float64(held[h])


@njit(nogil=True, cache=True)
def _squared_distances(starts, columns, values, src, dst, d, first, last, out):
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        i_end, j_end = starts[src[p] + 1], starts[dst[p] + 1]
        total = 0.0
        while i < i_end or j < j_end:
            a = columns[i] if i < i_end else d
            b = columns[j] if j < j_end else d
            x = np.float64(values[i]) if a <= b else 0.0
            y = np.float64(values[j]) if b <= a else 0.0
            difference = x - y
            total += difference * difference
            i += a <= b
            j += b <= a
        out[p] = total


@njit(nogil=True, cache=True)
def _equal_rows(starts, columns, values, src, dst, d, first, last, out):
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        size = starts[src[p] + 1] - i
        equal = starts[dst[p] + 1] - j == size
        e = 0
        while equal and e < size:
            equal = columns[i + e] == columns[j + e] and (values is None or values[i + e] == values[j + e])
            e += 1
        out[p] = equal


@njit(nogil=True, cache=True)
def _hash_rows(starts, columns, bits, first, last, out):
    for i in range(first, last):
        total = ZERO
        for e in range(starts[i], starts[i + 1]):
            total += mixed(mixed(np.uint64(columns[e]) + ONE) ^ (ZERO if bits is None else np.uint64(bits[e])))
        out[i] = total


#: The kernels that compare two rows, and the types of their results.
ROW_PAIRS = {
    "count_common": (_count_common, np.int64),
    "dot_products": (_dot_products, np.float64),
    "squared_distances": (_squared_distances, np.float64),
    "equal_rows": (_equal_rows, np.bool_),
}


# -------------------------------------------------------------------------------------------------- all pairs of items


def put_least(
    distance: np.ndarray, rows: np.ndarray, groups: tuple[Array, Array], core: Array, upper: np.ndarray,
    ids: np.ndarray, weights: np.ndarray,
) -> None:  # fmt: skip
    """Insert the points of other exclusion ids into the lists of rows, by their distances, (m, n); see `SearchTask`."""
    row_group, point_group = groups
    _insert_rows(distance, rows, row_group, point_group, NO_CORE if core is None else core, upper, ids, weights)


@njit(nogil=True, cache=True)
def _insert_rows(distance, rows, row_group, point_group, core, upper, ids, weights):
    for i in range(len(distance)):
        for j in range(distance.shape[1]):
            if distance[i, j] <= upper[i] and point_group[j] != row_group[i]:
                weight = reachability(np.float64(distance[i, j]), core, rows[i], j)
                insert_within(upper, ids, weights, i, j, weight)

"""The tree of cuts of order.py on a CPU: how it is made of a sample, and where it sends places."""

import numpy as np

from rapids_slink.neighbors.tiles.order import ORDER
from rapids_slink.ordering import keys_of_floats
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant

#: A node's cut is the number of an axis, `BALL` for a radius, or `LEAF` for none. See order.cu for the others.
BALL, LEAF, JUMP, TAIL, INNERMOST, MIN_JUMP, MEDIAN_ROWS = (
    constant(ORDER, name) for name in ("BALL", "LEAF", "JUMP", "TAIL", "INNERMOST", "MIN_JUMP", "MEDIAN_ROWS")
)
GAP = 0.2  # of the extent


@njit(nogil=True, cache=True)
def _square(x, middle):
    total = np.float32(0)
    for f in range(middle.size):
        difference = x[f] - middle[f]
        total += difference * difference
    return total


@njit(nogil=True, cache=True)
def find_leaves(nodes, values, middles, places, out):
    """Put where the leaf of each of some places, (n, m) float32, begins into `out`, (n,) int32."""
    for i in range(len(places)):
        v = 0
        while nodes[v, 0] != LEAF:
            key = _square(places[i], middles[v]) if nodes[v, 0] == BALL else places[i, nodes[v, 0]]
            v = nodes[v, 1] if key < values[v] else nodes[v, 2]
        out[i] = nodes[v, 3]


@njit(nogil=True, cache=True)
def _widest_axis(sample, rows):
    """Return the axis of the largest variance."""
    best, largest = 0, np.float64(-1)
    for f in range(sample.shape[1]):
        total, square, first = 0.0, 0.0, np.float64(sample[rows[0], f])
        for r in rows:
            value = sample[r, f] - first
            total += value
            square += value * value
        variance = square - total * total / rows.size
        if variance > largest:
            best, largest = f, variance
    return best


@njit(nogil=True, cache=True)
def _stable_order(values):
    """Return the order of float32 values, ascending; of equal values the first comes first.

    The lower half of a value's key is its number: Numba may compile its own stable sort for five seconds.
    """
    key = keys_of_floats(values.view(np.uint32))
    for i in range(key.size):
        key[i] = key[i] << np.uint64(32) | np.uint64(i)
    key.sort()
    for i in range(key.size):
        key[i] &= np.uint64(0xFFFFFFFF)
    return key.view(np.int64)


@njit(nogil=True, cache=True)
def _middle(sample, rows, middle):
    """Put the median of some of the rows, axis by axis, into `middle`."""
    some = rows[:: max(1, rows.size // MEDIAN_ROWS)]
    for f in range(middle.size):
        middle[f] = np.sort(sample[some, f])[some.size // 2]


@njit(nogil=True, cache=True)
def _between(low, high, value):
    """Return `value`, or `high` if `value` was rounded to `low`, so that `low` is below the result."""
    return value if value > low else high


#: What a cut is at: the middle; a gap or a jump, where a block begins if there are many points on either side; or a
#: tail, whose points are always apart.
MIDDLE, GAP_OR_JUMP, TAIL_OF_MANY = range(3)


@njit(nogil=True, cache=True)
def _find_cut(sample, rows, middle, min_run):
    """Return the axis or `BALL`, the value to cut at, the number of rows below it, and what the cut is at.

    The rows are put in order.
    """
    n, axis = rows.size, _widest_axis(sample, rows)
    key = np.empty(n, np.float32)
    for i in range(n):
        key[i] = sample[rows[i], axis]
    order = _stable_order(key)
    key, rows[:] = key[order], rows[order]
    extent = key[-1] - key[0]
    if not extent > 0:
        return np.int64(LEAF), np.float32(0), 0, MIDDLE
    gap = np.diff(key)
    at = np.argmax(gap) + 1
    if not gap[at - 1] > GAP * extent:
        at = 0
    if min(at, n - at) < min_run and n >= MIN_JUMP:
        _middle(sample, rows, middle)
        square = np.empty(n, np.float32)
        for i in range(n):
            square[i] = _square(sample[rows[i]], middle)
        by_radius = _stable_order(square)
        square = square[by_radius]
        if n >= 4 * min_run and 0 < np.float32(TAIL) * square[n // 2] < square[-1]:
            value = np.sqrt(square[n // 2]) * np.sqrt(square[-1])
            rows[:] = rows[by_radius]
            return np.int64(BALL), value, np.searchsorted(square, value), TAIL_OF_MANY
        best, ratio = 0, np.float32(JUMP)
        for i in range(INNERMOST, n if at == 0 else 0):
            if square[i] > ratio * square[i - 1]:
                best = i
                ratio = square[i] / square[i - 1] if square[i - 1] > 0 else np.float32(np.inf)
        if best:
            rows[:] = rows[by_radius]
            inner, outer = square[best - 1], square[best]
            return np.int64(BALL), _between(inner, outer, np.sqrt(inner) * np.sqrt(outer)), best, GAP_OR_JUMP
    if at:
        return axis, _between(key[at - 1], key[at], key[at - 1] + gap[at - 1] / 2), at, GAP_OR_JUMP
    low = high = n // 2
    while low > 0 and key[low - 1] == key[low]:
        low -= 1
    while high < n and key[high] == key[high - 1]:
        high += 1
    at = low if low > 0 and (high == n or n // 2 - low <= high - n // 2) else high
    return axis, key[at], at, MIDDLE


@njit(nogil=True, cache=True)
def cut_sample(sample, leaf, min_run, nodes, values, middles, breaks):
    """Fill a tree with cuts of a sample, (n, m) float32, and return the number of its nodes.

    The tree's arrays are those of `cpu.Cuts`.
    """
    rows = np.arange(sample.shape[0])
    ends = np.empty(nodes.shape[0], np.int64)
    nodes[0, 3], ends[0], used = 0, rows.size, 1
    for v in range(nodes.shape[0]):
        if v == used:
            break
        begin, end = np.int64(nodes[v, 3]), ends[v]
        nodes[v, 0] = LEAF
        if end - begin <= leaf:
            continue
        axis, value, below, kind = _find_cut(sample, rows[begin:end], middles[v], min_run)
        if axis == LEAF:
            continue
        nodes[v, 0], nodes[v, 1], nodes[v, 2], values[v] = axis, used, used + 1, value
        nodes[used, 3], ends[used] = begin, begin + below
        nodes[used + 1, 3], ends[used + 1] = begin + below, end
        if kind == TAIL_OF_MANY:
            breaks[begin + below] = breaks[end] = True
        elif kind == GAP_OR_JUMP and min(below, end - begin - below) >= min_run:
            breaks[begin + below] = True
        used += 2
    return used

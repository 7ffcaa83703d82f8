"""The couples' kernels on the CPU, in NumPy and Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rapids_slink.metrics import apart_at_most
from rapids_slink.neighbors.operand import blocks
from rapids_slink.spanning_tree.cpu import root

SAMPLED = 64  # points of a component
SHADOWS = 2**18  # features, or shadows, at a time


def sort_by_component(component: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """Points by any labels, of which there are k: the fields of `Components`."""
    order = np.argsort(component, kind="stable").astype(np.int32)
    label = component[order]
    start = np.concatenate([[0], np.flatnonzero(label[1:] != label[:-1]) + 1, [label.size]])
    number = np.repeat(np.arange(k, dtype=np.int32), np.diff(start))
    of_point = np.empty_like(number)
    of_point[order] = number
    return order, number, start, of_point


def sample_components(points: np.ndarray, parts: Any, otherwise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some points of each component, of small ones several times, and their means.

    Parameters
    ----------
    points : (n, d) array
    parts : Components
        K of them.
    otherwise : (d,) float64 array
        The features of means that are no numbers.

    Returns
    -------
    sample : (K, SAMPLED) int32 array
    middles : (K, d) float64 array
    """
    sample = parts.order[parts.start[:-1, None] + np.arange(SAMPLED) * parts.size[:, None] // SAMPLED]
    return sample, _means(points, sample, otherwise)


def raise_largest(largest: np.ndarray, half_norm: np.ndarray, error: np.ndarray | None = None) -> None:
    """Raise two numbers to the largest half norm, and to the largest error if these are given."""
    largest[0] = max(largest[0], half_norm.max())
    if error is not None:
        largest[1] = max(largest[1], error.max())


def new_supports(n: int) -> tuple[np.ndarray, np.ndarray]:
    """What `offer_supports` keeps for each two of n components."""
    return np.full((n, n), -np.inf, np.float32), np.zeros((n, n), np.int32)


def offer_supports(product: np.ndarray, number: np.ndarray, first: int, supports: Any) -> None:
    """Keep how much larger the product with one component's middle is than that with their own, for the points of each.

    Parameters
    ----------
    product : (m, K) float32 array
        The points' with all middles.
    number : (m,) int32 array
        The points' components.
    first : int
        Of all the points, sorted by component, the place of the first of these.
    """
    _offer_supports(product, number, first, *supports)


def couples(supports: Any, order: np.ndarray, inner: np.ndarray, lost: float, more: float, moved: float) -> Any:
    """All couples of K components: the columns of `Couples`.

    Parameters
    ----------
    supports
        What `offer_supports` has kept of all points, which are in this `order`.
    inner : (K, K) float64 array
        The products of the middles.
    lost, more, moved : float
        What the four products of a gap are off by together, what a squared distance of middles is off by, and how
        far two points were moved.
    """
    value, place = supports
    first, second = (end.astype(np.int32) for end in np.triu_indices(len(inner), 1))
    norm = inner.diagonal()
    apart = np.sqrt(norm[first] + norm[second] - 2 * inner[first, second] + more)
    between = -(value[first, second].astype(np.float64) + value[second, first]) - lost
    gap = np.full_like(apart, -np.inf)
    np.divide(between, apart, out=gap, where=between > 0)
    return first, second, gap - moved, order[np.stack([place[first, second], place[second, first]])]


def take(couples: Any, at: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of the couples at these places."""
    return couples.first[at], couples.second[at], couples.gap[at], couples.facing[:, at]


def list_tree(taken: np.ndarray, couples: Any, weight: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """The n edges that couples were taken for, of a tree, on the host."""
    return couples.first[taken], couples.second[taken], weight[taken]


@njit(cache=True)
def tree_of_all(weight: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """The edges of a minimum spanning tree of n components, of the weights of all couples in the order of `couples`.

    Prim's algorithm.
    """
    src, dst, least = np.empty(n - 1, np.int32), np.empty(n - 1, np.int32), np.empty(n - 1)
    outside, nearest, near = np.arange(1, n), np.full(n - 1, np.inf), np.zeros(n - 1, np.int32)
    new = 0
    for last in range(n - 2, -1, -1):
        lightest = 0
        for i in range(last + 1):
            a, b = min(new, outside[i]), max(new, outside[i])
            apart = weight[(a * (2 * n - a - 1) >> 1) + b - a - 1]
            if apart < nearest[i]:
                nearest[i], near[i] = apart, new
            if nearest[i] < nearest[lightest]:
                lightest = i
        new = outside[lightest]
        src[last], dst[last], least[last] = near[lightest], new, nearest[lightest]
        outside[lightest], nearest[lightest], near[lightest] = outside[last], nearest[last], near[last]
    return src, dst, least


@njit(cache=True)
def joining(src: np.ndarray, dst: np.ndarray, n: int) -> np.ndarray:
    """Whether each of these edges, one after the other, joins two trees of the n nodes."""
    parent, joins = np.arange(n), np.empty(src.size, np.bool_)
    for e in range(src.size):
        a, b = root(parent, src[e]), root(parent, dst[e])
        joins[e] = a != b
        parent[b] = a
    return joins


def close(couples: Any, weight: np.ndarray, reach: tuple[float, ...]) -> np.ndarray:
    """Which couples' gap is less than half of how far points are apart at most that weigh as much as the couple.

    `reach` are the filter's `reach_numbers`.
    """
    return np.flatnonzero(couples.gap < _far(weight, reach) / 2).astype(np.int32)


def pair_samples(sample: np.ndarray, couples: Any, at: np.ndarray, step: int) -> tuple[Any, Any, Any]:
    """Every `step`-th of the sampled points of the couples' first components with every one of their second's.

    Both points, and the couple.
    """
    sample = sample[:, ::step]
    a, b = np.broadcast_arrays(sample[couples.first[at], :, None], sample[couples.second[at], None, :])
    return a.ravel(), b.ravel(), np.repeat(at, sample.shape[1] ** 2)


def heaviest_on_ways(src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What tells the heaviest edge on the way between any two nodes of a tree of these edges, in any order.

    With the nodes in the order of a dendrogram's leaves it is the largest height between their places.

    Returns
    -------
    ways : (1 + levels, n) float64 array
        Each node's place among the leaves; and in further rows the largest of the 1, 2, 4, ... heights from a place on.
    """
    rows = np.argsort(weight)
    return _heaviest(src[rows], dst[rows], weight[rows])


def within(couples: Any, ways: np.ndarray, reach: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Which couples' gap is at most how far the heaviest edge on the way between them reaches, and that edge."""
    place, heaviest = ways[0].astype(np.int32), ways[1:]
    return _within(couples.first, couples.second, couples.gap, place, heaviest, _far(heaviest, reach))


def shadows(points: np.ndarray, origin: np.ndarray, parts: Any, middles: np.ndarray, couples: Any, end: Any) -> Any:
    """(x - origin)·(middle of the second - middle of the first) of the points of each couple, float64.

    Those of a couple end at `end`, the first component's before the second's.
    """
    shadow, size = np.empty(int(end[-1])), parts.size
    begin = end - size[couples.first] - size[couples.second]
    for ends, others, at, sign in (
        (couples.first, couples.second, begin, 1.0),
        (couples.second, couples.first, begin + size[couples.first], -1.0),
    ):
        order = np.argsort(ends, kind="stable")
        for which in np.split(order, np.flatnonzero(np.diff(ends[order])) + 1):
            mine = ends[which[0]]
            between = sign * (middles[others[which]] - middles[mine])
            of_mine = parts.order[parts.start[mine] : parts.start[mine + 1]]
            for some in blocks(of_mine.size, max(points.shape[1], which.size), SHADOWS):
                cast = between @ (points[of_mine[some]] - origin).T
                for row, to in zip(cast, at[which], strict=True):
                    shadow[to + some.start : to + some.stop] = row
    return shadow


def facing_points(
    shadow: np.ndarray, parts: Any, couples: Any, end: Any, far: np.ndarray, upper: np.ndarray, core: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The points that may be in a pair of a couple whose shadows are no farther apart than `far`.

    Returns
    -------
    near : (shadows,) int32 array
        Their numbers within their component, at the beginning of its part of the shadows.
    count : (M, 2) int32 array
        How many they are. If points have cores, theirs are at most `upper`.
    """
    near, count = np.empty(shadow.size, np.int32), np.empty((end.size, 2), np.int32)
    _keep_facing(shadow, parts.order, parts.start, couples.first, couples.second, end, far, upper, core, near, count)
    return near, count


def facing_pairs(
    shadow: Any, near: Any, count: Any, parts: Any, couples: Any, end: Any, far: Any, capacity: int
) -> tuple[np.ndarray, int]:
    """Every two of a couple's points that face each other and whose shadows are no farther apart than `far`.

    Returns
    -------
    found : (3, capacity) int32 array
        Both points and the number of the couple.
    n_found : int
        How many there are, those for which there was no room included.
    """
    found = np.empty((3, capacity), np.int32)
    two = couples.first, couples.second
    return found, int(_pair_facing(shadow, near, count, parts.order, parts.start, *two, end, far, found))


def keep_light(pairs: Any, weight: np.ndarray, upper: np.ndarray, of_point: np.ndarray) -> tuple[Any, Any]:
    """The pairs that weigh no more than their couple may.

    Parameters
    ----------
    pairs
        Both points and the couple.
    weight, upper : float64 arrays
        The pairs', and by couple.

    Returns
    -------
    kept : (m, 4) int32 array
        Their points and these's components.
    weight : (m,) float64 array
    """
    src, dst, couple = pairs
    light = np.flatnonzero(weight <= upper[couple])
    src, dst = src[light], dst[light]
    return np.column_stack([src, dst, of_point[src], of_point[dst]]), weight[light]


@njit(cache=True)
def _offer_supports(product, number, first, value, place):
    for i in range(number.size):
        a = number[i]
        for b in range(product.shape[1]):
            more = product[i, b] - product[i, a]
            if more > value[a, b]:
                value[a, b], place[a, b] = more, first + i


@njit(cache=True)
def _means(points, sample, otherwise):
    k, sampled = sample.shape
    means = np.empty((k, points.shape[1]))
    for a in range(k):
        sums = np.zeros(points.shape[1])
        for s in range(sampled):
            sums += points[sample[a, s]]
        for f in range(sums.size):
            mean = sums[f] / sampled
            means[a, f] = mean if np.isfinite(mean) else otherwise[f]
    return means


def _far(weight: np.ndarray, reach: tuple[float, ...]) -> np.ndarray:
    *margins, scale = reach[:5]
    return scale * apart_at_most(weight, margins, np)


@njit(cache=True)
def _within(first, second, gap, place, heaviest, far):
    at, upper, kept = np.empty(gap.size, np.int32), np.empty(gap.size), 0
    for c in range(gap.size):
        a, b = place[first[c]], place[second[c]]
        low, high = min(a, b), max(a, b)
        level = 0
        while 2 << level <= high - low:
            level += 1
        last = high - (1 << level)
        if gap[c] <= max(far[level, low], far[level, last]):
            at[kept], upper[kept] = c, max(heaviest[level, low], heaviest[level, last])
            kept += 1
    return at[:kept], upper[:kept]


@njit(cache=True)
def _keep_facing(shadow, order, start, first, second, end, far, upper, core, near, count):
    for c in range(end.size):
        size_a = start[first[c] + 1] - start[first[c]]
        size_b = start[second[c] + 1] - start[second[c]]
        middle = end[c] - size_b
        begin = middle - size_a
        most, least = shadow[begin:middle].max(), shadow[middle : end[c]].min()
        for side in range(2):
            at, size, place = (middle, size_b, start[second[c]]) if side else (begin, size_a, start[first[c]])
            kept = 0
            for i in range(size):
                apart = shadow[at + i] - most if side else least - shadow[at + i]
                faces = not apart > far[c]
                if core is not None and faces:
                    faces = core[order[place + i]] <= upper[c]
                if faces:
                    near[at + kept] = i
                    kept += 1
            count[c, side] = kept


@njit(cache=True)
def _pair_facing(shadow, near, count, order, start, first, second, end, far, found):
    n_found = 0
    for c in range(end.size):
        middle = end[c] - (start[second[c] + 1] - start[second[c]])
        begin = middle - (start[first[c] + 1] - start[first[c]])
        for i in near[begin : begin + count[c, 0]]:
            for j in near[middle : middle + count[c, 1]]:
                if shadow[middle + j] - shadow[begin + i] > far[c]:
                    continue
                if n_found < found.shape[1]:
                    found[0, n_found] = order[start[first[c]] + i]
                    found[1, n_found] = order[start[second[c]] + j]
                    found[2, n_found] = c
                n_found += 1
    return n_found


@njit(cache=True)
def _heaviest(src, dst, weight):
    n = weight.size + 1
    parent, last = np.arange(n), np.arange(n)
    following, edge = np.full(n, -1), np.full(n, -1)
    for e in range(n - 1):  # each set is a list of leaves that starts at its root
        a, b = root(parent, src[e]), root(parent, dst[e])
        following[last[a]], edge[last[a]] = b, e
        last[a], parent[b] = last[b], a
    levels = 1
    while 1 << levels < n:
        levels += 1
    ways = np.zeros((1 + levels, n))
    place, heaviest = ways[0], ways[1:]
    leaf = root(parent, 0)
    for i in range(n):
        place[leaf] = i
        if i < n - 1:
            heaviest[0, i] = weight[edge[leaf]]
        leaf = following[leaf]
    for level in range(1, levels):
        length = 1 << level - 1
        for i in range(n):
            heaviest[level, i] = max(heaviest[level - 1, i], heaviest[level - 1, min(i + length, n - 1)])
    return ways

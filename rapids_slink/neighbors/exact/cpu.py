"""The exact kernels on the CPU. Distances are computed in tiles (`tiles`), in Numba."""

from typing import Any

import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact import (
    WORD_BITS,
    Candidates,
    ExactPoints,
    Groups,
    TopLists,
    candidate_capacity,
    tiles,
    word_count,
)
from rapids_slink.neighbors.exact.formulas import POINTS, ROWS, new_tile
from rapids_slink.neighbors.exact.tiles import comes_before, reachability
from rapids_slink.neighbors.slices import equal_slices, golden_stride, rounds_of_pairs, row_blocks
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU, Array
from rapids_slink.runtime.threads import Progress, for_each_chunk, shares, with_progress, workers

HASHED = 2**18  # values that are hashed at a time

MAX_LIST = 2**31  # lists of any length
TILE_BYTES = sum(part.nbytes for part in new_tile())  # what a thread takes to compute distances
NO_CORE = np.empty(0)


def new_candidates(rows: int, k: int, capacity: int | None = None) -> Candidates:
    """Empty buffers, of `candidate_capacity` unless another is given."""
    return Candidates(np.empty((rows, capacity or candidate_capacity(k)), np.int32), np.zeros(rows, np.int32))


def empty_lists(rows: int, k: int) -> TopLists:
    """Lists of nothing."""
    return TopLists(np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf), np.zeros(rows, bool))


def low_discrepancy_order(n: int) -> np.ndarray:
    """A permutation of n points, int32, of which every leading part is spread evenly over all of them."""
    return (np.arange(n, dtype=np.int64) * golden_stride(n) % n).astype(np.int32)


def rerank(
    exact: ExactPoints,
    rows: Array,
    candidates: Candidates,
    groups: Array,
    upper: Array,
    top: TopLists,
    core: Array = None,
) -> None:
    """Merge the candidates of m queries, `rows`, with surrogate distances of at most `upper` into their lists.

    `upper`, (m,) float64, is tightened to the last entries of the lists that are full, and ``top.overflowed`` is set
    for rows that lost candidates. `groups` is not used: the filter has left out candidates of a row's own group. `core`
    is that of a `SearchTask`.
    """
    points, listed = (read_only(exact.queries), read_only(exact.points)), (candidates.ids, candidates.count)
    state = NO_CORE if core is None else core, upper, top.ids, top.weights
    tiles.rerank(exact.metric.cpu_formula, points, rows, listed, state, top.overflowed, new_tile(1))


def scan(exact: ExactPoints, rows: Array, groups: Groups, upper: Array, k: int, core: Array = None) -> TopLists:
    """The lists of `rows` with every point of another group as a candidate.

    `groups` are the rows' and the points'; the other parameters are those of `rerank`.
    """
    top, stride = empty_lists(rows.size, k), golden_stride(len(exact.points))
    state = NO_CORE if core is None else core, upper, top.ids, top.weights
    points = read_only(exact.queries), read_only(exact.points)
    tiles.scan(exact.metric.cpu_formula, points, rows, groups, state, stride, new_tile())
    return top


def scan_each_pair(
    points: Array, metric: Metric, top: TopLists, upper: Array, progress: Progress | None = None
) -> None:
    """Merge all others with surrogate distances of at most `upper`, which is tightened, into each point's empty list.

    Each distance is computed once, for both its points. Blocks of points meet in rounds, in which a block has one
    partner, and so a list one thread.
    """
    n, points, state = len(points), read_only(points), (upper, top.ids, top.weights)
    order, count = low_discrepancy_order(n), 2 * max(1, min(2 * workers(CPU), n // POINTS))
    rounds = rounds_of_pairs([order[block] for block in shares(slice(0, n), count)])

    def scan_two(blocks: tuple[Any, Any]) -> None:
        tiles.scan_both(metric.cpu_formula, points, *blocks, state, new_tile())

    for pairs in with_progress(rounds, count, progress):
        for_each_chunk(CPU, scan_two, pairs)


def scan_bytes(n: int, k: int) -> int:
    """Bytes that `scan` takes for a row, its list not included."""
    return 0


def sort_by_reachability(ids: Array, weights: Array, core: Array) -> None:
    """Raise each list's surrogate distances to mutual reachability, and sort it again."""
    for_each_chunk(
        CPU, lambda rows: _sort_by_reachability(ids, weights, core, rows.start, rows.stop), row_blocks(*ids.shape)
    )


def flatnonzero(flags: np.ndarray) -> np.ndarray:
    """Where `flags` are set."""
    return np.flatnonzero(flags)


def scatter_min(least: Array, group: Array, weights: Array) -> None:
    """least[group[i]] = min(itself, weights[i, 0])."""
    np.minimum.at(least, group, weights[:, 0])


def gather_min(bound: Array, least: Array, group: Array) -> None:
    """bound[i] = min(itself, least[group[i]])."""
    np.minimum(bound, least[group], out=bound)


def drop_above_bound(ids: Array, weights: Array, upper: Array) -> None:
    """Empty the entries above the bound that a task of minima per group reached.

    A row may have listed a point before another row of its group lowered the bound; that point is not known to be the
    row's nearest.
    """
    above = weights > upper[:, None]
    np.copyto(ids, -1, where=above)
    np.copyto(weights, np.inf, where=above)


def pair_distances(values: Array, src: Array, dst: Array, metric: Metric = EUCLIDEAN) -> np.ndarray:
    """The surrogate distances of pairs of rows."""
    out = np.empty(src.size)
    src, dst = (np.require(end, np.int32, ["C", "W"]) for end in (src, dst))  # a frame's may be read-only
    tiles.weigh_pairs(metric.cpu_formula, read_only(values), src, dst, new_tile(1), out)
    return out


def all_distances(values: Array, metric: Metric) -> np.ndarray:
    """The surrogate distances of all pairs of rows, (n, n), each computed once."""
    n, points = len(values), read_only(values)
    matrix, ids = np.empty((n, n)), np.arange(n, dtype=np.int32)

    def fill(rows: slice) -> None:
        tiles.fill_rows(metric.cpu_formula, points, ids, rows.start, rows.stop, new_tile(), matrix)

    for_each_chunk(CPU, fill, equal_slices(slice(0, n), ROWS))
    return matrix


def with_norms(values: np.ndarray, centre: bool) -> np.ndarray:
    """The rows in float64, minus their means if `centre`, each followed by its norm: (n, d + 1)."""
    n, d = values.shape
    rows = np.empty((n, d + 1))
    rows[:, :d] = values
    if centre:
        rows[:, :d] -= rows[:, :d].mean(axis=1, keepdims=True)
    _put_norms(rows)
    return rows


def words_of(values: np.ndarray) -> np.ndarray:
    """Rows of zeros and ones as words: 64 features in each, and one more with the number of ones."""
    n, d = values.shape
    words = np.empty((n, word_count(d)), "uint64")
    for rows in row_blocks(n, d):
        is_one = np.zeros((len(values[rows]), WORD_BITS * (words.shape[1] - 1)), bool)
        is_one[:, :d] = values[rows] != 0
        words[rows, :-1] = np.packbits(is_one.ravel()).view("uint64").reshape(len(is_one), -1)
        words[rows, -1] = is_one.sum(axis=1)
    return words


def hash_rows(values: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """A uint64 for each row, or each of some, the same for equal rows.

    It is a sum of the values' bits with odd random factors, modulo 2⁶⁴.
    """
    values = values if rows is None else values[rows]
    n, d = values.shape
    factors = np.random.default_rng(0).integers(2**63, 2**64, d, np.uint64) | np.uint64(1)
    hashes = np.empty(n, np.uint64)
    for block in row_blocks(n, d, HASHED):
        bits = (values[block] + values.dtype.type(0)).view(f"uint{8 * values.dtype.itemsize}").astype(np.uint64)
        bits ^= bits >> np.uint64(32)  # the lower bits of float64 are often zero, and so would a product's be
        hashes[block] = (bits * factors).sum(axis=1, dtype=np.uint64)
    return hashes


@njit(nogil=True, cache=True)
def _put_norms(rows):
    """Squares are summed as a dot product is: even and odd features apart, and the last of an odd number at the end."""
    d = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        even, odd = 0.0, 0.0
        for f in range(0, d - 1, 2):
            even += rows[i, f] * rows[i, f]
            odd += rows[i, f + 1] * rows[i, f + 1]
        rows[i, d] = np.sqrt(even + odd + (rows[i, d - 1] * rows[i, d - 1] if d % 2 else 0.0))


@njit(nogil=True, cache=True)
def _sort_by_reachability(ids, weights, core, begin, end):
    k = ids.shape[1]
    for v in range(begin, end):
        for c in range(k):
            weights[v, c] = reachability(weights[v, c], core, v, ids[v, c])
        gap = k
        while gap > 1:  # Shell's sort: every gap-th entry is sorted by insertion
            gap = 1 if gap < 5 else (5 * gap - 1) // 11
            for c in range(gap, k):
                id_, weight = ids[v, c], weights[v, c]
                at = c
                while at >= gap and comes_before(weight, id_, weights[v, at - gap], ids[v, at - gap]):
                    ids[v, at], weights[v, at] = ids[v, at - gap], weights[v, at - gap]
                    at -= gap
                ids[v, at], weights[v, at] = id_, weight

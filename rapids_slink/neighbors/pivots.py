"""Blocks of near rows around pivots: any two near rows meet in one block.

    some rows ──pivots_of──▶ pivots ──deal_out──▶ the block of each row, and the blocks that may have a row near it

Some rows are candidates. Of candidates that are near each other the first is a pivot, so a cluster has one or few.
A row belongs to its nearest pivot, and near pivots make a block. A row also visits each earlier block that may
have a row near it. So two near rows of two blocks meet in the earlier one, where the second visits, and a block need
only be searched by itself. This saves work where the rows have structure. Otherwise the rows visit most blocks, and all
pairs of rows meet.

Why no near row is missed: let d be the distance of x to its nearest pivot, and y a row within r of x, whose nearest
pivot is c. Then |y - c| is at most the distance of y to the pivot of x, which is at most r + d. So |x - c| <= 2r + d,
and x visits the block of c, as y visits that of x. Here the distances are of float16 or float32 products. If a square
is wrong by at most e, |y - c|² may be 2e above that of the pivot of x, and then |x - c| <= r + sqrt((r + d)² + 2e).

A row that is longer than all pivots may be too long for these products. It is in the last block and visits all others,
so it meets every row.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from rapids_slink.metrics import Metric, Rows
from rapids_slink.neighbors.filter import accumulation_bound
from rapids_slink.runtime.device import Array, Device, half, to_host

#: One row in `ROWS_A_CANDIDATE` is a candidate, so that the products of all candidates take little time beside the
#: search. There are at least `CANDIDATES_A_BLOCK` of them for each block, and at most `MOST_CANDIDATES` in all.
ROWS_A_CANDIDATE, CANDIDATES_A_BLOCK, MOST_CANDIDATES = 128, 16, 2**19
#: A candidate is no pivot if an earlier one is about as near to it as others are: within `TIMES` the median distance of
#: `SAMPLED` candidates to their nearest, plus twice the radius.
TIMES, SAMPLED = 1.25, 2**10
#: Products that are in memory at a time.
PRODUCTS = {"cpu": 2**24, "cuda": 2**28}
#: Rows of lengths beyond these are not scaled.
LENGTHS = 1e-30, 1e30
#: A row whose scaled length has a square up to this is not long; unit rows may be a little above 1.
NOT_LONG = 1 + 1e-5


def radius_of(metric: Metric, max_weight: float, n_features: int, device: Device) -> float | None:
    """Return a bound of the Euclidean distance of two rows within a surrogate distance; for cosine, of unit rows.

    It is None if there is no such bound, or on a GPU whose sums of products are not known to be as precise as
    `error_of` says.
    """
    by_products = metric.filter == "product" and metric.rows in (Rows.GIVEN, Rows.NORMED)
    if not by_products or metric.missing or metric.space is not None or not max_weight < np.inf:
        return None
    if not half(device, "rapids_slink.neighbors.filter").products_keep_bound():
        return None
    return float(metric.true_distance_bound(max_weight, np, *metric.rounding_terms(n_features))) * (1 + 1e-6)


def candidates(n: int, count: int) -> np.ndarray:
    """Return the numbers of evenly spread rows of n, the candidates for the pivots of `count` blocks."""
    k = min(n, MOST_CANDIDATES, max(n // ROWS_A_CANDIDATE, CANDIDATES_A_BLOCK * count))
    return np.arange(k) * n // k


def pivots_of(rows: Array, radius: float, is_cosine: bool, count: int, device: Device) -> Array:
    """Choose pivots among candidates; return each one's block, the scale of rows, and its row: (k, 2 + d) float32.

    They are scaled, in the order of their blocks. There are up to `count` of these, or one if the lengths are extreme.
    """
    xp, longest = device.xp, 1.0
    if not is_cosine:
        squares = rows.astype("float64")
        longest = float(xp.sqrt((squares * squares).sum(axis=1).max())) * (1 + 1e-3)
    if not LENGTHS[0] < longest < LENGTHS[1]:
        return xp.zeros((1, 2 + rows.shape[1]), "float32")
    every = _scaled(rows, is_cosine, np.float32(1 / longest), xp)
    first, size = xp.unique(_leaders(every, radius / longest, device), return_counts=True)
    pivots, block = every[first], xp.zeros(first.size, "int64")
    _split(pivots, size, xp.arange(first.size), count, block, xp)
    order = xp.argsort(block, kind="stable")
    return xp.column_stack((block[order], xp.full(first.size, 1 / longest), pivots[order])).astype("float32")


def _leaders(rows: Array, radius: float, device: Device) -> Array:
    """Return for each candidate the first that is about as near to it as others are, (k,) int32.

    If two pivots were nearer, rows around them would visit each other's block. A row is mostly as far from its pivot as
    candidates are from each other, which a sample tells.
    """
    xp, k = device.xp, len(rows)
    squares, number, columns = (rows * rows).sum(axis=1), xp.arange(k, dtype="int32"), _columns(rows, device)
    some = slice(0, k, -(-k // SAMPLED))
    closeness = _closeness(_rows(rows[some], columns, device), columns, device)[:, :k]
    closeness[number[: len(closeness)], number[some]] = -np.inf
    nearest = xp.sqrt(xp.maximum(squares[some] - 2 * closeness.max(axis=1), 0))
    reach, step = 2 * radius + TIMES * float(np.median(to_host(nearest))), max(1, PRODUCTS[device.name] // k)
    least, parts = (squares - reach**2) / 2, []
    for start in range(0, k, step):
        some = slice(start, start + step)
        is_near = _closeness(_rows(rows[some], columns, device), columns, device)[:, :k] >= least[some, None]
        parts.append(xp.minimum(xp.where(is_near, number, np.int32(k)).min(axis=1), number[some]))
    return xp.concatenate(parts)


def deal_out(
    values: Array, pivots: Array, radius: float, is_cosine: bool, device: Device
) -> Iterator[tuple[slice, Array, Array]]:
    """Yield ranges of rows, the block of each row, (m,), and whether a block may have a row near it, (blocks, m) bool.

    `values` may be on the host.
    """
    xp, block, scale = device.xp, to_host(pivots[:, 0]), np.float32(float(pivots[0, 1]))
    pivots, d = device.asarray(pivots[:, 2:]), pivots.shape[1] - 2
    bounds = np.searchsorted(block, np.arange(int(block[-1]) + 2)).tolist()
    columns = [_columns(pivots[low:high], device) for low, high in pairwise(bounds)]
    rounding = (8 + d) * 2.0**-24  # bounds the roundings of float64 rows, of lengths and of the scale
    near, error = radius * float(scale) + 2 * rounding, np.float32(error_of(columns[0].shape[1]))
    step = max(1, PRODUCTS[device.name] // max(map(len, columns)))
    for start in range(0, len(values), step):
        some = slice(start, min(start + step, len(values)))
        with np.errstate(over="ignore", invalid="ignore"):  # rows that are too long overflow
            rows = _scaled(device.asarray(values[some]), is_cosine, scale, xp)
            square, rows = (rows * rows).sum(axis=1), _rows(rows, columns[0], device)
            least = xp.empty((len(columns), len(rows)), "float32")
            for b, block_pivots in enumerate(columns):
                least[b] = square - 2 * _closeness(rows, block_pivots, device).max(axis=1)
            nearest = xp.sqrt(xp.maximum(least.min(axis=0), 0) + error)
            reach = near + xp.sqrt((near + nearest) ** 2 + 2 * error)
            is_long = ~(square <= np.float32(NOT_LONG))
            may_be_near = is_long | ~(xp.sqrt(xp.maximum(least - error, 0)) > reach * np.float32(1 + 1e-5))
            block_of_row = xp.where(is_long, len(least) - 1, least.argmin(axis=0))
        yield some, block_of_row, may_be_near


def error_of(width: int) -> float:
    """Return a bound of the error of a squared distance by products of `width` values, of rows of at most length 1.

    In float16 each of both rows is wrong by 2^-11 of its length, and the half square by 2^-12. The sum has the error of
    `accumulation_bound` of both lengths, which are at most sqrt(2) and sqrt(1.25) with what stands behind the features.
    The square is twice the product.
    """
    return 2 * (3 * 2.0**-11 + 1.6 * accumulation_bound(width))


def _columns(pivots: Array, device: Device) -> Array:
    """Return pivots p, each followed by -|p|²/2, for `_closeness`.

    Tensor cores read eight values at a time, and write eight products: the last pivot fills them up.
    """
    xp, (k, d) = device.xp, pivots.shape
    columns = xp.zeros((k + -k % 8, d + 1 + -(d + 1) % 8), "float16" if device.is_gpu else "float32")
    columns[:k, :d] = pivots
    columns[:k, d] = -0.5 * (pivots * pivots).sum(axis=1)
    columns[k:] = columns[k - 1]
    return columns


def _rows(rows: Array, columns: Array, device: Device) -> Array:
    """Return rows, each followed by 1, in the type of the columns."""
    xp, (m, d) = device.xp, rows.shape
    padded = xp.zeros((m, columns.shape[1]), columns.dtype)
    padded[:, :d], padded[:, d] = rows, 1
    return padded


def _closeness(rows: Array, columns: Array, device: Device) -> Array:
    """Return x·p - |p|²/2 of each row x and each column of a pivot p, (m, k) float32."""
    if not device.is_gpu:
        return rows @ columns.T
    from rapids_slink.neighbors.filter.cuda import form_product

    products = device.xp.empty((len(rows), len(columns)), "float32")
    form_product(rows, columns, products)
    return products


def _scaled(values: Array, is_cosine: bool, scale: Any, xp: Any) -> Array:
    """Return rows times a scale in float32, or of length 1 for cosine."""
    rows = values.astype("float64" if values.dtype.itemsize == 8 else "float32")
    if is_cosine:
        rows = rows / xp.abs(rows).max(axis=1, keepdims=True)
        rows = rows / xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows if is_cosine else rows * scale).astype("float32")


def _split(pivots: Array, size: Array, ids: Array, count: int, block: Array, xp: Any) -> None:
    """Give each of some pivots the number of its block: halve them along the line between two far ones, and so on.

    A pivot counts as many times as rows belong to it, its `size`.
    """
    count = min(count, ids.size)
    if count == 1:
        return
    own, first = pivots[ids], count // 2

    def farthest(other: Array) -> Array:
        gaps = own - other
        return own[int((gaps * gaps).sum(axis=1).argmax())]

    one = farthest(own[0])
    along = xp.argsort(own @ (farthest(one) - one), kind="stable")
    up_to = to_host(xp.cumsum(size[ids[along]]))
    cut = int(np.clip(np.searchsorted(up_to, up_to[-1] * first / count), first, ids.size - (count - first)))
    block[ids[along[cut:]]] += first
    _split(pivots, size, ids[along[:cut]], first, block, xp)
    _split(pivots, size, ids[along[cut:]], count - first, block, xp)

"""Rows that are near each other for how far they look, as in a cluster far from all others.

No scale for all points serves such a cluster: fp16 rounds by more than the distances within. About one of its points z
is precise, and what is far away is cut off, by `Scaling.limit`: a projection onto a cube. It moves no two points apart,
so that the test of `bounds` loses no neighbour. But then products bound no distance from above.
"""

from collections.abc import Iterator
from math import log2

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact.cuda import pair_distances
from rapids_slink.runtime.device import Array

#: How many times as far as a row looks its centre may be, and how many times as far as another of its group it may
#: look: fp16 moves a row by up to 2⁻¹² of its distance from the centre.
MAX_RATIO, LEVEL = 2**6, 4
#: The most centres, and the fewest rows of a group: of fewer all distances are computed in as little time.
MAX_CENTRES, MIN_MEMBERS = 2**10, 2**6
LEVELS, SMALLEST = 2**11, 1e-308  # more than there are levels of float64 numbers from here on


def surroundings(values: Array, rows: Array, reach: Array) -> Iterator[tuple[Array, int | None, float]]:
    """Groups of rows about some of them that look about as far.

    A next centre is the row without one that is farthest from all for how far it looks (Gonzalez 1985). It takes all
    rows without a centre that are near it.

    Parameters
    ----------
    values : (n, d) array
    rows : (m,) int32 array
        Of the values.
    reach : (m,) float64 array
        The distance up to which each looks.

    Yields
    ------
    members : int32 array
        Which of the m. Each comes once, those of no group at last.
    centre : int, optional
        A row of the values.
    radius : float
        Within which of it all are that the members look for.
    """
    m, centres = rows.size, list[int]()
    if m < MIN_MEMBERS:
        yield cp.arange(m, dtype=cp.int32), None, 0.0
        return
    nearest, own, of = cp.full(m, cp.inf), cp.full(m, cp.inf), cp.full(m, -1, cp.int32)
    limit = (MAX_RATIO * reach) ** 2  # squares of distances, like `nearest` and, of a row's own centre, `own`
    limit[limit == cp.inf] = 0  # of these and of rows that look nowhere no scale is made
    while len(centres) < min(MAX_CENTRES, m // MIN_MEMBERS):
        ratio = cp.where((of < 0) & (limit > 0), nearest / limit, 0)
        farthest = int(ratio.argmax())
        if ratio[farthest] == 0:
            break
        centre = rows[farthest : farthest + 1]
        square = pair_distances(values, cp.repeat(centre, m), rows)
        near = (of < 0) & (square <= limit) & (limit > 0)
        of, own = cp.where(near, cp.int32(len(centres)), of), cp.where(near, square, own)
        nearest = cp.minimum(square, nearest)
        centres.append(int(centre[0]))
    level = (cp.log2(cp.maximum(reach, SMALLEST)) // log2(LEVEL)).astype(cp.int32)
    group = cp.where(of < 0, -1, of * LEVELS + level + LEVELS // 2)
    radius, by_group = cp.sqrt(own) + reach, cp.argsort(group).astype(cp.int32)
    numbers, starts = np.unique(group[by_group].get(), return_index=True)
    others = []
    for number, members in zip(numbers.tolist(), cp.split(by_group, starts[1:].tolist()), strict=True):
        if number >= 0 and members.size >= MIN_MEMBERS:
            yield members, centres[number // LEVELS], float(radius[members].max())
        else:
            others.append(members)
    if others:
        yield cp.concatenate(others), None, 0.0

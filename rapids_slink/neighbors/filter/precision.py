"""Rows whose products show how much a GPU's sums of fp16 products lose, whatever its tensor cores are.

`bounds.accumulation_bound` is about the tensor cores that are known. Those of later generations need not be as precise,
and a filter that takes their sums for more precise than they are loses neighbours. So each kernel that forms such
products is tried by these rows before a process uses it on a GPU. What fails is not used.
"""

import numpy as np

from rapids_slink.neighbors.filter.bounds import accumulation_bound

#: Beside the square of this all that is below float32's spacing is lost, and what is above it by as much as it is cut.
LARGE = 2.0**12
#: What the small products are, in units of that spacing, about. Where sums have a bit less than float32, the second and
#: later ones lose more than the bound allows.
SPACINGS = 1, 2, 4, 8
N_RANDOM = 8


def revealing_pairs(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows x and y of d features, (m, d) float32 that fp16 holds; it is the products x_i·y_i that lose much.

    In the first pairs all products are positive and have all their bits: each addition is cut, and always downwards
    where it is not rounded. In the others one product is much larger than the rest: it comes first, last, or first and
    with the other sign last.
    """
    random = np.random.default_rng(0).integers(2**10, 2**11, (2, N_RANDOM, d)) / 2**10
    x, y = [random[0]], [random[1]]
    for spacings in SPACINGS:
        small, factor = np.full((3, d), 1 - 2.0**-10), np.full((3, d), 2.0 * spacings)
        for row, end in ((0, 0), (1, -1), (2, 0), (2, -1)):
            small[row, end] = factor[row, end] = LARGE
        factor[2, -1] = -LARGE
        x.append(small)
        y.append(factor)
    return np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)


def allowed_range(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest value of each x_i·y_i that `bounds.accumulation_bound` allows, (m,) float32."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    exact, lengths = (x * y).sum(axis=1), np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    error = accumulation_bound(x.shape[1]) * lengths
    return (exact - error).astype(np.float32), (exact + error).astype(np.float32)


class Trial:
    """A trial of a kernel that keeps the points whose products with a row are at least the row's threshold.

    Nobody sees those products. So each row comes twice: with its own point it must pass at the least value that is
    allowed, and must not pass above the largest.
    """

    rows: np.ndarray  # (2m, d) float32
    points: np.ndarray  # (m, d) float32, of which row i has the one of number i modulo m
    thresholds: np.ndarray  # (2m,) float32

    def __init__(self, d: int) -> None:
        x, self.points = revealing_pairs(d)
        least, largest = allowed_range(x, self.points)
        self.rows = np.concatenate((x, x))
        self.thresholds = np.concatenate((least, np.nextafter(largest, np.float32(np.inf))))

    def padded_thresholds(self, rows: int) -> np.ndarray:
        """The thresholds of that many rows, of which the last, that nothing passes, are no rows."""
        return np.pad(self.thresholds, (0, rows - len(self.rows)), constant_values=np.inf)

    def is_passed(self, ids: np.ndarray, count: np.ndarray) -> bool:
        """Whether the kernel is as precise as assumed, by each row's first `count` kept points, (2m, capacity)."""
        m = len(self.points)
        own = (ids == np.tile(np.arange(m), 2)[:, None]) & (np.arange(ids.shape[1]) < count[:, None])
        passes = own.any(axis=1)
        return bool(passes[:m].all() and not passes[m:].any())

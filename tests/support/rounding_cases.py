"""Points that rounding is worst for, of any number of features, and rows of bytes."""

import numpy as np


def rows_hard_to_round(rng, d):
    """Return 160 rows of d features, float64, whose squared distances are hard to round.

    They have long sums of one sign, or halves between two numbers of the filter's type, or they nearly coincide.
    """
    between = (1 + 2.0**-11 + 2.0**-24) * rng.choice([1.0, -1.0], (40, d))
    near = np.full((40, d), 1.0) + rng.integers(-2, 3, (40, d)) * 2.0 ** -rng.integers(8, 52, (40, 1))
    positive = np.abs(rng.normal(size=(40, d))) + 100
    return np.concatenate([between, near, positive, -positive])


def pairs_hard_to_sum(rng, d):
    """Return rows x and y, fp16 values in float64, whose products are hard to sum.

    The products x_i·y_i cancel, absorb each other or differ widely in size.
    """
    a, b = rng.normal(size=(2, 16, d))
    twice, opposite = np.resize(a, (16, d)), b.copy()
    twice[:, d // 2 :], opposite[:, d // 2 :] = a[:, : d - d // 2], -b[:, : d - d // 2]
    wide = rng.choice([-1.0, 1.0], (2, 16, d)) * 2.0 ** rng.uniform(-9, 9, (2, 16, d))
    # Beside 4096² = 2²⁴ a product of 1.998 is just under the spacing of float32.
    small, two = np.full((16, d), 0.999), np.full((16, d), 2.0)
    small[:, 0] = two[:, 0] = 4096.0  # in the way from the start,
    late, two_late = small[:, ::-1], two[:, ::-1]  # at the end,
    both_ends, cancelling = np.maximum(small, late), np.maximum(two, two_late)
    cancelling[:, -1] = -4096.0  # or until it cancels
    pairs = (twice, opposite), (abs(a), abs(b)), wide, (small, two), (late, two_late)
    pairs += (both_ends, cancelling), (small, two_late)
    return tuple(np.vstack(part).astype(np.float16).astype(np.float64) for part in zip(*pairs, strict=True))


#: Rows of bytes: functions of a generator and a shape.
BYTES = {
    "any": lambda rng, n, d: rng.integers(0, 256, (n, d)),
    "like photos": lambda rng, n, d: np.clip(rng.normal(128, 40, (n, d)).round(), 0, 255),
    "clusters": lambda rng, n, d: rng.integers(0, 253, (9, d))[rng.integers(0, 9, n)] + rng.integers(0, 3, (n, d)),
    "alike": lambda rng, n, d: np.full((n, d), 255),
    "black or grey": lambda rng, n, d: np.repeat(rng.choice([0, 128], (n, 1)), d, axis=1),
}

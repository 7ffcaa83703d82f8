"""Point sets that break single linkage that is only nearly exact. ``CASES[name](dtype)`` makes one, always the same.

Tests take them by `cases` or `case_dtypes`, which leave all but a few to the full set, as `combinations` does with the
combinations of other parameters and `every` with all of them. Of long products of parameters `covering` draws a sample.
"""

import itertools
import zlib
from functools import cache, partial

import numpy as np
import pytest

CASES = {}
#: What each case is hard by.
FAMILY = {}

# The cases of the quick set: together they have several blocks of rows, bytes, ties, offsets, every extreme of
# magnitude, outliers, repeated rows, one feature and the smallest inputs. The dtype is the one in which the case is
# harder.
QUICK = {
    "uneven_blobs_8d": "float32",
    "images": "float32",
    "offset_1e7": "float32",
    "largest_magnitude": "float64",
    "squares_underflow": "float64",
    "denormals": "float32",
    "mixed_magnitudes": "float64",
    "two_far_outliers": "float32",
    "decimal_grid": "float64",
    "repeated_rows": "float64",
    "last_bit": "float32",
    "equal_weight_path": "float32",
    "exponential_gaps": "float64",
    "one_row": "float64",
    "two_equal_rows": "float32",
    "three_rows": "float32",
}

#: Those of the quick set for what is built on the searches, whose own tests have all of `QUICK`.
SOME = ("images", "squares_underflow", "two_far_outliers", "repeated_rows", "last_bit", "one_row", "two_equal_rows")


def full(*values):
    """Return the values of a parameter set that only the full set tries."""
    return pytest.param(*values, marks=pytest.mark.full)


def covering(every, traits, quick=(), also=()):
    """Return a sample of parameter sets, always the same, in which each trait of any of them occurs.

    `traits` makes a set of a parameter set. All `quick` ones are in the sample, and those that are `also`; all but the
    quick ones are left to the full set. In place of `quick` may be a number of sets, of which each has the most values
    that those before it lack.
    """
    count, quick = (quick, set()) if isinstance(quick, int) else (0, set(quick))
    chosen = quick.union(also)
    assert chosen <= set(every)
    missing = set().union(*map(traits, every)) - set().union(*map(traits, chosen))
    drawn = [every[i] for i in np.random.default_rng(0).permutation(len(every))]
    for least in range(max(map(len, map(traits, every))), 0, -1):  # those with many missing traits first
        for values in drawn:
            new = missing & traits(values)
            if len(new) >= least:
                chosen.add(values)
                missing -= new
    for _ in range(count):
        seen = {place for values in quick for place in enumerate(values)}
        others = [values for values in drawn if values in chosen - quick]
        quick.add(max(others, key=lambda values: len(set(enumerate(values)) - seen)))
    return [values if values in quick else full(*values) for values in every if values in chosen]


def combinations(*factors, quick, also=()):
    """Return a sample of combinations in which each pair of values of two factors occurs, as `covering` does."""
    whole = list(itertools.product(*factors))
    return covering(whole, lambda values: set(itertools.combinations(enumerate(values), 2)), quick, also)


def every(*factors, quick):
    """Return all combinations; all but the `quick` ones are left to the full set."""
    return [values if values in quick else full(*values) for values in itertools.product(*factors)]


@cache
def shape(name):
    """Return the numbers of rows and of features of a case."""
    return CASES[name]("float32").shape


def cases(min_rows=1):
    """Return the parameters ``name`` of the cases with at least `min_rows` rows; `SOME` are quick."""
    return [name if name in SOME else full(name) for name in CASES if shape(name)[0] >= min_rows]


def case_dtypes(min_rows=1, quick=tuple(QUICK)):
    """Return the parameters ``name, dtype``: one of the two dtypes of each quick case is quick."""
    return [
        (name, dtype) if name in quick and QUICK[name] == dtype else full(name, dtype)
        for name in CASES
        if shape(name)[0] >= min_rows
        for dtype in ("float32", "float64")
    ]


def register(**functions):
    """Register generators ``(rng, dtype) -> (n, d) array``; results are rounded to the dtype that is asked for."""

    def make(name, dtype):
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return np.ascontiguousarray(functions[name](rng, np.dtype(dtype)), dtype=dtype)

    for name in functions:
        CASES[name], FAMILY[name] = partial(make, name), family


def case(function):
    register(**{function.__name__: function})
    return function


def _blobs(rng, n, d, centers, deviations):
    """Return `n` points shared out among as many Gaussian blobs as there are deviations."""
    which = rng.integers(0, len(deviations), n)
    return centers[which] + rng.normal(size=(n, d)) * np.asarray(deviations)[which, None]


family = "structure"  # large enough for bands, several chunks of rows and many rounds of connecting


@case
def filaments(rng, dtype):
    """Return 30 random walks whose step varies by a factor of 30 along and between them."""
    walks = []
    for i in range(30):
        steps = 4000 * (i + 1) // 30 - 4000 * i // 30
        scale = 10 ** rng.uniform(-2.5, -1) * (1 + 5 * rng.random((steps, 1)) ** 4)
        walks.append(rng.uniform(-3, 3, 3) + np.cumsum(rng.normal(size=(steps, 3)) * scale, axis=0))
    return np.concatenate(walks)


@case
def tight_clusters(rng, dtype):
    """Return clusters of 200 points, a thousand times tighter than they are apart.

    To a rough filter each is a single point.
    """
    centers = np.repeat(rng.normal(size=(20, 12)), 200, axis=0)
    return centers + rng.normal(size=centers.shape) * 1e-3


@case
def copies_of_copies(rng, dtype):
    """Return near duplicates of near duplicates of near duplicates, in no order."""
    points = rng.normal(size=(10, 20))
    for apart in (1e-2, 1e-4, 1e-6):
        points = np.repeat(points, 4, axis=0)
        points += apart * rng.normal(size=points.shape)
    return rng.permutation(points)


@case
def walks(rng, dtype):
    """Return ten trajectories in twelve features that set out from one place, at speeds from one to a thousand."""
    steps = rng.normal(size=(10, 80, 12)) * np.geomspace(1, 1e3, 10)[:, None, None]
    return np.cumsum(steps, axis=1).reshape(-1, 12)


@case
def shells(rng, dtype):
    """Return spheres about one centre, each ten times as large as the one inside it."""
    direction = rng.normal(size=(700, 10))
    radius = 10.0 ** (np.arange(700) % 7)
    return direction / np.linalg.norm(direction, axis=1, keepdims=True) * radius[:, None]


@case
def images(rng, dtype):
    """Return uint8 pixels, mostly zero, ten prototypes with noise: integers that fp16 holds exactly."""
    prototypes = rng.integers(0, 256, (10, 64)) * (rng.random((10, 64)) < 0.3)
    noise = rng.integers(-20, 21, (1500, 64))
    return np.clip(prototypes[rng.integers(0, 10, 1500)] + noise, 0, 255)


@case
def sphere_of_radius_1e6(rng, dtype):
    """Return points on a sphere of radius 10⁶; half of them are within a few units of each other."""
    direction = rng.normal(size=(1000, 12))
    direction[500:] = direction[0] + rng.normal(size=(500, 12)) * 1e-6
    return direction / np.linalg.norm(direction, axis=1, keepdims=True) * 1e6


@case
def one_wide_feature(rng, dtype):
    X = rng.normal(size=(1000, 10))
    X[:, 3] *= 1e6
    return X


register(
    uneven_blobs_2d=lambda rng, dtype: _blobs(rng, 4000, 2, rng.normal(size=(20, 2)) * 5, np.geomspace(1e-2, 1, 20)),
    uneven_blobs_8d=lambda rng, dtype: _blobs(rng, 4000, 8, rng.normal(size=(20, 8)) * 5, np.geomspace(1e-2, 1, 20)),
    uneven_blobs_32d=lambda rng, dtype: _blobs(rng, 4000, 32, rng.normal(size=(20, 32)) * 5, np.geomspace(1e-2, 1, 20)),
    # Well separated clusters: the last components hold all rows, so that they are joined at once.
    few_big_clusters=lambda rng, dtype: _blobs(rng, 8400, 16, rng.normal(size=(6, 16)) * 6, np.ones(6)),
    cauchy=lambda rng, dtype: rng.standard_cauchy((1500, 10)),
    cauchy_3d=lambda rng, dtype: rng.standard_cauchy((1500, 3)),
)


family = "magnitudes"


@case
def one_far_outlier(rng, dtype):
    """Return points and an outlier that sets the scale.

    To a rough filter everything else becomes one point.
    """
    X = rng.normal(size=(600, 10))
    X[123] = 1e9
    return X


@case
def two_far_outliers(rng, dtype):
    """Return points and two outliers that balance, so that the other points are near the centre.

    The norms of the others are next to nothing beside the outliers'.
    """
    X = rng.normal(size=(900, 10))
    X[123], X[456] = 1e7, -1e7
    return X


@case
def two_far_outliers_7d(rng, dtype):
    X = rng.normal(size=(900, 7))
    X[0, 0], X[1, 0] = 3e6, -3e6
    return X


@case
def one_far_outlier_2d(rng, dtype):
    X = rng.normal(size=(600, 2))
    X[321] = -1e12
    return X


register(
    offset_1e4=lambda rng, dtype: _blobs(rng, 600, 10, np.repeat([[0.0], [6.0]], 10, axis=1), [1, 1]) + 1e4,
    # Blobs where the spacing of float32 numbers is 1: nearly all distances tie.
    offset_1e7=lambda rng, dtype: _blobs(rng, 600, 10, np.repeat([[0.0], [6.0]], 10, axis=1), [1, 1]) + 1e7,
    blobs_1e4_apart=lambda rng, dtype: _blobs(rng, 600, 10, np.repeat([[0.0], [1e4]], 10, axis=1), [1, 1]),
    blobs_1e7_apart=lambda rng, dtype: _blobs(rng, 600, 3, np.repeat([[0.0], [1e7]], 3, axis=1), [1, 1]),
    magnitude_1e_30=lambda rng, dtype: rng.normal(size=(400, 10)) * 1e-30,
    magnitude_1e30=lambda rng, dtype: rng.normal(size=(400, 10)) * 1e30,
    # Points whose squared distances just fit into float64; float32's own range ends long before.
    largest_magnitude=lambda rng, dtype: rng.normal(size=(300, 12)) * (1e37 if dtype == np.float32 else 1e152),
    # Points whose squared differences are subnormal numbers of float64, and many tie. As float32 all rows are
    # equal.
    squares_underflow=lambda rng, dtype: rng.normal(size=(400, 10)) * 1e-161,
    # Small multiples of the smallest number that the dtype has.
    denormals=lambda rng, dtype: rng.integers(0, 50, (300, 9)).astype(dtype) * np.finfo(dtype).smallest_subnormal,
    mixed_magnitudes=lambda rng, dtype: rng.normal(size=(400, 10)) * 10.0 ** rng.integers(-30, 30, (400, 1)),
)


family = "ties"


@case
def last_bit(rng, dtype):
    """Return rows that differ by one unit in the last place of one feature."""
    X = np.repeat(rng.normal(size=(1, 10)).astype(dtype), 300, axis=0)
    at = np.arange(300), rng.integers(0, 10, 300)
    X[at] = np.nextafter(X[at], rng.choice([-np.inf, np.inf], 300).astype(dtype))
    return X


@case
def equal_weight_path_10d(rng, dtype):
    """Return a path of unit steps whose ends drift apart.

    Each row is one step along the next axis.
    """
    axis = np.arange(500) % 10
    return rng.permutation(np.cumsum(np.eye(10)[axis], axis=0))


register(
    integer_grid=lambda rng, dtype: rng.permutation(np.argwhere(np.ones((20, 20)))),
    integer_grid_10d=lambda rng, dtype: rng.permutation(np.argwhere(np.ones((2,) * 10))),
    # Grid of tenths. Distances that are equal on paper differ in the last bit, and some only before the root is
    # taken.
    decimal_grid=lambda rng, dtype: rng.permutation(np.argwhere(np.ones((18, 18)))) * 0.1,
    repeated_rows=lambda rng, dtype: rng.normal(size=(40, 10))[rng.integers(0, 40, 500)],
    repeated_rows_2d=lambda rng, dtype: rng.integers(0, 6, (500, 2)) / 7,
    all_rows_equal=lambda rng, dtype: np.repeat(rng.normal(size=(1, 9)), 400, axis=0),
    all_rows_equal_1d=lambda rng, dtype: np.full((300, 1), 0.1),
    equal_weight_path=lambda rng, dtype: rng.permutation(np.arange(500.0))[:, None],
    # Counts, half of them zero: there are ties everywhere, and a few rows repeat.
    half_empty_counts=lambda rng, dtype: rng.poisson(np.log(2), (600, 9)),
    # Points that are all equally far apart.
    simplex=lambda rng, dtype: np.eye(60),
)


family = "shapes of trees"


@case
def exponential_gaps(rng, dtype):
    """Return points, each with the point before it as its nearest neighbour, in no order.

    The distances are from the smallest to the largest.
    """
    points = 1.25 ** np.arange(-360, 361) if dtype == np.float32 else 2.0 ** np.arange(-450, 451)
    return rng.permutation(points)[:, None]


@case
def exponential_gaps_12d(rng, dtype):
    points = 1.25 ** np.arange(-360, 361) if dtype == np.float32 else 2.0 ** np.arange(-450, 451)
    return rng.permutation(points)[:, None] * np.eye(12)[5]


register(
    # Points at steps that grow along a line, so that the tree merges one point at a time.
    chain=lambda rng, dtype: np.cumsum(np.linspace(1, 2, 500))[rng.permutation(500), None] * np.ones((1, 2)),
    # Hub whose spokes point along different axes, each end nearer to the hub than to any other end.
    star=lambda rng, dtype: np.concatenate([np.zeros((1, 100)), np.diag(rng.uniform(1, 1.3, 100))]),
    one_feature=lambda rng, dtype: rng.normal(size=(1000, 1)),
    more_features_than_rows=lambda rng, dtype: rng.normal(size=(50, 300)),
)


family = "smallest"


register(
    one_row=lambda rng, dtype: np.array([[1.5, -2.0]]),
    two_rows=lambda rng, dtype: np.array([[0.1, 0.2], [0.3, -0.4]]),
    two_equal_rows=lambda rng, dtype: np.ones((2, 3)),
    three_rows=lambda rng, dtype: np.array([[0.0], [0.7], [0.3]]),
    three_wide_rows=lambda rng, dtype: rng.normal(size=(3, 20)),
)

"""The product filter's proof: no pair fails its test, and none is above its upper bound, however numbers round."""

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes, full
from oracles import squared_distances
from rounding_cases import pairs_hard_to_sum, rows_hard_to_round

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors import filter as filters
from rapids_slink.neighbors.filter import cpu, filter_radius, scaling_of
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.device import CPU, to_host

MANY_FEATURES = pytest.mark.parametrize("d", [1, 64, full(7), full(1000)])


@pytest.fixture
def kernels(engine):
    return filter_kernels(engine)


def quantized(X, engine):
    """The scaling of some points, and these as the filter's kernels read them."""
    values = engine.asarray(X)
    scaling = scaling_of(values, device=engine)
    return scaling, filter_kernels(engine).quantize(values, scaling)


def few_rows(name, dtype):
    X = CASES[name](dtype)
    return X[:: max(1, len(X) // 120)]


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_no_pair_beyond_a_limit_is_surely_within(name, dtype):
    """Limits just below each of some distances, and far above all: then every pair is."""
    X = few_rows(name, dtype)
    scaling, points = quantized(X, CPU)
    product, distances, d = cpu.product(points, points).copy(), squared_distances(X), X.shape[1]
    tested = cpu.Tested(points.half_norm, points.error, points.error)
    sizes = -(-len(X) // 8) * 8
    passed, sure, near = np.zeros(sizes, np.uint8), np.zeros(sizes, np.uint8), np.empty(sizes + 1, np.int64)
    some = np.unique(distances[np.isfinite(distances)])[:: max(1, distances.size // 200)]
    for limit in np.nextafter(some, -np.inf):
        terms = filters.sure_radius(float(limit), d, scaling.scale, EUCLIDEAN)
        for i in range(len(X)):
            _, count = cpu.points_between(product, tested, i, tested, *terms, 0, passed, sure, near)
            assert count == sure[: len(X)].sum()
            assert not (sure[: len(X)].astype(bool) & (distances[i] > limit)).any()


def test_most_pairs_within_a_limit_are_surely():
    X = np.random.default_rng(0).standard_normal((300, 64))
    scaling, points = quantized(X, CPU)
    tested, distances = cpu.Tested(points.half_norm, points.error, points.error), squared_distances(X)
    product, limit = cpu.product(points, points).copy(), float(np.median(distances))
    passed, sure, near, counts = np.zeros(304, np.uint8), np.zeros(304, np.uint8), np.empty(305, np.int64), []
    rows = tested._replace(radius=filter_radius(limit, points.error, scaling.scale, 64, np))
    for i in range(300):
        terms = filters.sure_radius(limit, 64, scaling.scale, EUCLIDEAN)
        counts.append(cpu.points_between(product, rows, i, tested, *terms, 0, passed, sure, near))
    between, within = np.sum(counts, axis=0)
    assert between < 0.01 * within
    assert within <= (distances <= limit).sum() <= within + between


def pairs_that_fail(X, engine, kernels):
    """How many of all pairs the filter would lose at the tightest bound that must let them pass."""
    xp, n, d = engine.xp, *X.shape
    scaling, points = quantized(X, engine)
    product = kernels.product(points, points)
    distances = engine.asarray(squared_distances(X))
    rows = xp.arange(n)
    failed = 0
    for shift in range(n):
        others = (rows + shift) % n
        radius = filter_radius(distances[rows, others], points.error, scaling.scale, d, xp)
        q = radius + points.error[others]
        assert q.dtype == product.dtype == points.half_norm.dtype
        passes = product[rows, others] >= points.half_norm + points.half_norm[others] - q * q
        failed += n - int(passes.sum())
    return failed


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_no_pair_fails_at_its_own_distance(name, dtype, engine, kernels):
    assert pairs_that_fail(few_rows(name, dtype), engine, kernels) == 0


@MANY_FEATURES
def test_no_pair_fails_where_rounding_is_worst(d, engine, kernels):
    X = rows_hard_to_round(np.random.default_rng(d), d)
    assert pairs_that_fail(X, engine, kernels) == 0


def test_the_test_is_tight(engine, kernels):
    """A filter that lets everything pass would prove nothing."""
    X = np.random.default_rng(0).normal(size=(500, 30))
    scaling, points = quantized(X, engine)
    product = kernels.product(points, points)
    distances = squared_distances(X)
    bound = np.sort(distances, axis=1)[:, 10]
    radius = filter_radius(engine.asarray(bound), points.error, scaling.scale, 30, engine.xp)
    q = radius[:, None] + points.error
    passes = to_host(product >= points.half_norm[:, None] + points.half_norm - q * q)
    assert passes[distances <= bound[:, None]].all()
    assert passes.sum() <= 1.2 * (distances <= bound[:, None]).sum()


def shares_of_upper_bound(X, engine, kernels):
    """Each pair's squared distance over what the filter says it is at most."""
    xp, n = engine.xp, len(X)
    scaling, points = quantized(X, engine)
    upper_bound = filters.UpperBound.of(X.shape[1], scaling.scale, EUCLIDEAN)
    task = SearchTask(points.ids, 1, xp.zeros(n, "int32"), xp.ones(n, "int32"))
    if engine.is_gpu:
        columns = [xp.full(n, xp.inf) for _ in range(n)]
        for j, bound in enumerate(columns):
            one = points.take(slice(j, j + 1))
            kernels.seed_bounds(kernels.product(points, one), points, one, task, upper_bound, bound)
        most = np.stack([to_host(column) for column in columns], axis=1)
    else:
        norms = points.half_norm[:, None] + points.half_norm.astype(np.float64)
        half = norms - kernels.product(points, points) + upper_bound.norm_slack * norms + upper_bound.absolute_slack
        distance = np.sqrt(np.maximum(half, 0)) + points.error + points.error[:, None]
        most = (distance * upper_bound.inverse_scale + upper_bound.more) ** 2 * upper_bound.factor + upper_bound.error
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(squared_distances(X) / most)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_no_pair_is_above_its_upper_bound(name, dtype, engine, kernels):
    assert shares_of_upper_bound(few_rows(name, dtype), engine, kernels).max() <= 1


@MANY_FEATURES
def test_upper_bounds_where_rounding_is_worst(d, engine, kernels):
    rng = np.random.default_rng(d)
    assert shares_of_upper_bound(rows_hard_to_round(rng, d), engine, kernels).max() <= 1
    even = shares_of_upper_bound(rng.normal(size=(90, d)), engine, kernels)
    np.fill_diagonal(even, 1.0)
    assert even.min() > (0.9 if d > 1 else 0)  # a bound of everything would be of no use


def lengths(x):
    return np.sqrt((x * x).sum(axis=1))


@pytest.mark.parametrize("d", [8, 256, 4096, *map(full, (16, 104, 784))])
def test_products_keep_their_bound(d, engine, kernels):
    """What the filter forgives a product for is more than it is ever off, on data made to be hard to sum."""
    x, y = pairs_hard_to_sum(np.random.default_rng(d), d)
    if not engine.is_gpu:  # the bits that fp16 has not
        x, y = (part * np.random.default_rng(d).uniform(1, 1.001, part.shape) for part in (x, y))
    x, y = (part.astype("float16" if engine.is_gpu else "float32") for part in (x, y))
    none = engine.xp.zeros(len(x), "float32")
    rows, points = (filters.QuantizedPoints(engine.asarray(part), none, none) for part in (x, y))
    found = to_host(kernels.product(rows, points)).astype(np.longdouble)
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    bound = filters.accumulation_bound(d) * lengths(x)[:, None] * lengths(y)
    assert (np.abs(found - x @ y.T) < bound).all()
    smaller = to_host(kernels.product(rows.take(slice(3, 9)), points.take(slice(5, 40))))  # in the same memory
    assert (np.abs(smaller - x[3:9] @ y[5:40].T) < bound[3:9, 5:40]).all()


def test_quantized_points_are_what_they_claim(engine, kernels):
    X = np.random.default_rng(0).normal(size=(200, 13)) * 1e5 + 3e5
    values = engine.asarray(X)
    scaling = scaling_of(values, device=engine)
    order = engine.asarray(np.random.default_rng(1).permutation(200)[:150].astype(np.int32))
    points = kernels.quantize(values, scaling, order)
    y = to_host(points.y).astype(np.float64)
    z = (X[to_host(order)] - to_host(scaling.centre)) * scaling.scale
    assert np.frexp(scaling.scale)[0] == 0.5  # a power of two
    largest = np.abs((X - to_host(scaling.centre)) * scaling.scale).max()
    assert largest <= 2**15
    assert 13 * largest**2 / 2 <= 2**30 < 13 * (4 * largest) ** 2 / 2  # no larger power of two but one is sure to fit
    assert points.y.shape[1] == (16 if engine.is_gpu else 13)
    assert (y[:, 13:] == 0).all()
    moved = np.linalg.norm(y[:, :13] - z, axis=1)
    assert (to_host(points.error) >= moved / 2**0.5).all()
    np.testing.assert_allclose(to_host(points.error), moved / 2**0.5, rtol=1e-5, atol=1e-9)
    assert (2 * to_host(points.half_norm).astype(float) <= (y * y).sum(axis=1)).all()
    np.testing.assert_allclose(2 * to_host(points.half_norm), (y * y).sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "step"), [(1, 1, 1), (1, 40, 3), (700, 33, 1), (5000, 3, 7)])
def test_centre_is_amid_a_sample(n, d, step, dtype, engine, kernels):
    """On a CPU it is the mean of the sample's rows but those far out, on a GPU a median of means; always a number."""
    X = np.random.default_rng(n).uniform(4, 6, (n, d)).astype(dtype)
    expected = X[::step].astype(np.float64).mean(axis=0)
    precision = 1e-5 if engine.name == "cpu" else 0.05
    np.testing.assert_allclose(to_host(kernels.centre_of_rows(engine.asarray(X), step)), expected, precision)
    if n > 1:
        X[0] = 1e6
        moved = np.abs(to_host(kernels.centre_of_rows(engine.asarray(X), step)) - expected)
        assert (moved < 0.25).all()
    X[0, 0] = X[-1, 0] = np.finfo(dtype).max
    assert np.isfinite(to_host(kernels.centre_of_rows(engine.asarray(X), 1))).all()


@pytest.mark.parametrize(("value", "bytes_"), [(255, True), (256, False), (-1, False), (0.5, False)])
def test_value_ranges(value, bytes_, engine, kernels):
    X = np.random.default_rng(0).integers(0, 100, (300, 7)).astype(np.float64)
    X[211, 5] = value
    (found,) = kernels.value_ranges([engine.asarray(X)], engine.xp.full(7, 3.0))
    assert found.byte_values == bytes_
    assert found.largest == max(abs(value), 99)
    assert found.deviation == max(abs(value - 3), 96)

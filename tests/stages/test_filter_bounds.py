"""The product filter's proof: no pair fails its test, and none is above its upper bound, however numbers round."""

from dataclasses import replace

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes, full
from oracles import squared_distances
from rounding_cases import pairs_hard_to_sum, rows_hard_to_round

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors import filter as filters
from rapids_slink.neighbors.exact.cpu import new_candidates
from rapids_slink.neighbors.filter import PrincipalAxes, cpu, filter_radius, scaling_of
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.filter.cpu import ProjectedFilter
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
    tested = cpu.Tested(points.half_norm, points.error, points.error, points.longer)
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
    tested, distances = cpu.Tested(points.half_norm, points.error, points.error, points.longer), squared_distances(X)
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
    most = [xp.full(n, xp.inf) for _ in range(n)]
    for j, bound in enumerate(most):
        one = points.take(slice(j, j + 1))
        kernels.seed_bounds(kernels.product(points, one), points, one, task, upper_bound, bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(squared_distances(X) / np.stack([to_host(column) for column in most], axis=1))


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


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2))
def test_the_check_loses_no_pair_and_bounds_from_above(name, dtype):
    """At each pair's own distance, with the constants that a projected filter takes, whatever the product was."""
    X = few_rows(name, dtype)
    n, d = X.shape
    values, scaling, points = X, *quantized(X, CPU)
    axes = PrincipalAxes(scaling, np.eye(d)[:, :1], 0.0, 0.0, CPU)
    check = ProjectedFilter(values, values, EUCLIDEAN, CPU, scaling, axes).check
    passing = replace(points, half_norm=np.full(n, -np.inf, np.float32))
    distances, rows = squared_distances(X), np.arange(n, dtype=np.int32)
    upper_bound, seen = filters.UpperBound.of(d, scaling.scale, EUCLIDEAN), np.zeros((1, 1), np.float32)
    for i, j in np.argwhere(np.isfinite(distances) & ~np.eye(n, dtype=bool))[:: max(1, n * n // 700)]:
        row, point = passing.take(slice(i, i + 1)), passing.take(slice(j, j + 1))
        radius = filter_radius(distances[i, j : j + 1], row.error, scaling.scale, d, np)
        into, bound = new_candidates(1, 1), np.full(1, np.inf)
        groups = rows[i : i + 1], rows
        cpu.append_candidates(seen, row, point, radius, groups, into, check)
        assert into.count[0] == 1
        cpu.seed_bounds(seen, row, point, SearchTask(rows, 1, rows, rows), upper_bound, bound, check)
        assert bound[0] >= distances[i, j]
        if 1e-30 < distances[i, j] < 1e30:
            assert bound[0] < distances[i, j] * (1 + 1e-3)


def read_of(points, radius):
    """What the test reads of points with these radii."""
    return cpu.Tested(points.half_norm, radius, points.error, points.longer)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2))
def test_the_second_test_loses_no_pair(name, dtype):
    """At each pair's own distance, by all coordinates, whatever the product of the first was."""
    X = few_rows(name, dtype)
    n, d = X.shape
    m, scaling = min(d, 6), scaling_of(X, device=CPU)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0][:, :m]
    projection = PrincipalAxes.of(X, scaling, np.ascontiguousarray(axes), CPU, rest=1, first=-(-m // 2))
    filter_ = ProjectedFilter(X, X, EUCLIDEAN, CPU, scaling, projection)
    points = replace(filter_.quantize(X), half_norm=np.full(n, -np.inf, np.float32))
    assert points.longer.shape == (n, m + 1)
    distances, seen = squared_distances(X), np.zeros((1, 1), np.float32)
    passed, near = np.zeros(8, np.uint8), np.empty(9, np.int64)
    for i, j in np.argwhere(np.isfinite(distances) & ~np.eye(n, dtype=bool))[:: max(1, n * n // 700)]:
        row, point = points.take(slice(i, i + 1)), points.take(slice(j, j + 1))
        radius = filter_.radius(distances[i, j : j + 1], row)
        assert cpu.near_points(seen, read_of(row, radius), 0, read_of(point, point.error), passed, near) == 1


def test_the_second_test_is_tight():
    """What it lets pass is within the bound by all coordinates, whichever point's bound is larger."""
    X = np.random.default_rng(0).normal(size=(400, 40)).astype(np.float32)
    scaling = scaling_of(X, device=CPU)
    projection = PrincipalAxes.of(X, scaling, np.eye(40)[:, :31], CPU, rest=1, first=3)
    filter_ = ProjectedFilter(X, X, EUCLIDEAN, CPU, scaling, projection)
    points, distances = filter_.quantize(X), squared_distances(X)
    bound = np.sort(distances, axis=1)[np.arange(400), 2 + np.arange(400) % 9]
    test = read_of(points, filter_.radius(bound, points))
    product, passed, near = cpu.product(points, points), np.zeros(400, np.uint8), np.empty(401, np.int64)
    by_coordinates = squared_distances(projection.coordinates(X)[1] / scaling.scale)
    within = by_coordinates <= np.maximum(bound[:, None], bound)
    for i in range(400):
        found = near[: cpu.near_points(product, test, i, test, passed, near)]
        assert np.isin(np.flatnonzero(within[i]), found).all()
        assert np.isin(found, np.flatnonzero(by_coordinates[i] <= np.maximum(bound[i], bound) * 1.01)).all()
    assert within.sum() < 0.5 * within.size


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

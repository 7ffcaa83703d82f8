"""The product filter's kernels alone, against the definition in `neighbors.filter`."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hard_cases import combinations, full
from nvrtc import compiled
from oracles import squared_distances

from rapids_slink import knn_graph
from rapids_slink.metrics import EUCLIDEAN, METRICS
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import UpperBound, cpu, filter_radius, scaling_of
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import cuda_source
from rapids_slink.runtime.device import CPU, resolve, to_host


@pytest.fixture
def kernels(engine):
    return filter_kernels(engine)


def rows_and_points(X, m, engine, kernels):
    """The first m rows of X and the others, quantized alike."""
    values = engine.asarray(X)
    scaling = scaling_of(values, device=engine)
    points = kernels.quantize(values, scaling)
    return scaling, points.take(slice(0, m)), points.take(slice(m, len(X)))


SIZES = [(1, 1), (1, 700), (70, 1), (33, 1025), (100, 130)]


@pytest.mark.parametrize(("m", "n"), SIZES)
def test_append_candidates(m, n):
    engine, kernels, new_candidates = CPU, cpu, exact_kernels(CPU).new_candidates
    rng = np.random.default_rng(m + n)
    X = rng.normal(size=(m + n, 9))
    scaling, rows, points = rows_and_points(X, m, engine, kernels)
    row_group, point_group = rng.integers(0, 3, m).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    ids = rng.permutation(n).astype(np.int32)
    radius = filter_radius(engine.asarray(rng.uniform(0, 20, m)), rows.error, scaling.scale, 9, engine.xp)
    candidates = new_candidates(m, 1)
    groups = engine.asarray(row_group), engine.asarray(point_group)
    for _ in range(2):  # a second tile is appended to the first
        cpu.BlasFilter.append(rows, replace(points, ids=ids), radius, groups, candidates)
    product = kernels.product(rows, points)
    q = to_host(radius)[:, None] + to_host(points.error)
    passes = to_host(product) >= to_host(rows.half_norm)[:, None] + to_host(points.half_norm) - q * q
    passes &= row_group[:, None] != point_group[ids]
    assert passes.any() or (m, n) == (1, 1)
    count, found = to_host(candidates.count), to_host(candidates.ids)
    np.testing.assert_array_equal(count, 2 * passes.sum(axis=1))
    for i in range(m):
        expected = ids[np.flatnonzero(passes[i])]
        if count[i] <= candidates.capacity:
            assert sorted(found[i, : count[i]]) == sorted([*expected, *expected])
        else:
            assert np.isin(found[i], expected).all()


def test_a_pair_is_tested_for_both_points():
    """Each by its own radius."""
    rng, m, n, d = np.random.default_rng(0), 130, 333, 40
    X = rng.normal(size=(m + n, d)).astype(np.float32)
    scaling, rows, points = rows_and_points(X, m, CPU, cpu)
    bound = rng.uniform(30, 60, m + n)
    parts = rows, points
    radii = [filter_radius(bound[part.ids], part.error, scaling.scale, d, np) for part in parts]
    ids = np.arange(m + n, dtype=np.int32)
    of_rows, of_points = (exact_kernels(CPU).new_candidates(s, 40) for s in (m, n))
    cpu.BlasFilter.append(*parts, radii[0], (ids[:m], ids), of_rows, (radii[1], of_points))
    distances = squared_distances(X[:m], X[m:])
    for candidates, within, first in (
        (of_rows, distances <= bound[:m, None], m), (of_points, bound[m:, None] >= distances.T, 0)
    ):  # fmt: skip
        assert within.any(axis=1).mean() > 0.5
        for i, expected in enumerate(within):
            listed = np.sort(candidates.ids[i, : candidates.count[i]]) - first
            np.testing.assert_array_equal(listed, np.flatnonzero(expected))


@pytest.mark.parametrize(
    ("size", "k", "cores"),
    combinations(
        SIZES, (1, 20, 100), (False, True),
        quick=[(SIZES[0], 1, False), (SIZES[1], 20, True), (SIZES[3], 1, True), (SIZES[3], 20, False),
               (SIZES[4], 100, False), (SIZES[4], 20, True)],
    ),
)  # fmt: skip
def test_seed_bounds(size, k, cores, engine, kernels):
    """At least k points of other groups are within a row's bound, hardly above the nearest of some buckets."""
    m, n = size
    rng = np.random.default_rng(m + n)
    X = rng.normal(size=(m + n, 9))
    scaling, rows, points = rows_and_points(X, m, engine, kernels)
    row_group, point_group = rng.integers(0, 4, m).astype(np.int32), rng.integers(0, 4, n).astype(np.int32)
    ids = rng.permutation(n).astype(np.int32)
    core = rng.uniform(0, 20, m + n)
    of_rows = (rng.permutation(m) + n).astype(np.int32)
    row_groups = np.full(m + n, -1, np.int32)
    row_groups[of_rows] = row_group
    task = SearchTask(
        engine.asarray(of_rows),
        k,
        engine.asarray(row_groups),
        engine.asarray(point_group),
        core=engine.asarray(core) if cores else None,
    )
    rows, points = replace(rows, ids=task.rows), replace(points, ids=engine.asarray(ids))
    upper_bound = UpperBound.of(9, scaling.scale, EUCLIDEAN)
    in_rows, in_points = np.empty((m + n, 9)), np.empty((n, 9))
    in_rows[of_rows], in_points[ids] = X[:m], X[m:]

    def tightened(bound):
        bound = engine.asarray(bound.copy())
        if engine.is_gpu:
            kernels.seed_bounds(kernels.product(rows, points), rows, points, task, upper_bound, bound)
        else:
            filter_ = cpu.BlasFilter(in_points, in_rows, ExactPoints(in_rows, in_points), CPU, scaling)
            filter_.arrange(ids)
            filter_.seed(task, of_rows, bound, m)
        return to_host(bound)

    bound = tightened(np.full(m, np.inf))
    half = np.where(np.arange(m) % 2, 0.5 * bound, 2 * bound)  # of which some hold already
    np.testing.assert_array_equal(tightened(half), np.minimum(half, bound))
    distances = squared_distances(X[:m], X[m:])
    if cores:
        distances = np.maximum(distances, np.maximum(core[of_rows, None], core[ids]))
    distances[row_group[:, None] == point_group[ids]] = np.inf
    within = (distances <= bound[:, None]).sum(axis=1)
    assert (within[bound < np.inf] >= k).all()
    if cores:  # which point is the nearest of its bucket does not show
        return
    buckets = max(32, 2 * k) if engine.name == "cpu" else 1 << (max(32, 2 * k) - 1).bit_length()
    nearest = np.full((m, buckets), np.inf)
    for b in range(min(buckets, n)):
        nearest[:, b] = distances[:, b::buckets].min(axis=1)
    expected = np.sort(nearest, axis=1)[:, k - 1]
    assert (np.isinf(bound) == np.isinf(expected)).all()
    finite = np.isfinite(bound)
    assert (bound[finite] >= expected[finite] * (1 - 1e-12)).all()
    assert (bound[finite] <= expected[finite] * 1.01).all()


@pytest.mark.parametrize("resident", [0, 2])
def test_fused_filter_stops_where_shared_memory_is_not_aligned(resident):
    """Its swizzle goes by the lower ten bits of an address, which nothing but a trap holds to be zero."""
    source = cuda_source("neighbors/filter/fused/wgmma.cu")
    off = (f"-D{name}=0" for name in ("SYMMETRIC", "INT8", "BITS", "BETWEEN_COMPONENTS", "LOCAL", "COUNT"))
    ptx, log = compiled(source, "-arch=sm_90a", f"-DRESIDENT_ATOMS={resident}", "-DLAST_STEPS=4", *off)
    assert ptx, log
    assert re.search(r"and\.b32\s+%r\d+, %r\d+, 1023;", ptx)
    assert re.search(r"^\s*trap;", ptx, re.MULTILINE)


@pytest.fixture(params=["wgmma", "mma"])
def body(request, fused_body):
    """Each body of the kernel, where the GPU has its instructions."""
    if not fused_body(request.param).has_bit_products():
        pytest.skip("this GPU does not count common bits")


def exact_points(metric, X):
    import cupy

    rows = metric_rows(metric, cupy.asarray(X), resolve("cuda"), compact=True)
    return ExactPoints(rows, rows, metric)


def bits(rng, n, d):
    """Rows from nearly none to nearly all ones, some of them equal."""
    X = rng.random((n, d)) < rng.choice([0.01, 0.2, 0.5, 0.95], n)[:, None]
    X[: n // 4] = X[n // 4 : n // 2]
    X[:, 0] |= ~X.any(axis=1)
    return X


def kept_and_wanted(filter_, exact, rng, n):
    """By row: the points of a band that pass, those within the bound, and how many are not."""
    import cupy

    distances = to_host(filter_.exact_kernels.all_distances(exact.points, exact.metric))
    some = rng.integers(0, n, 300).astype(np.int32)
    bound = distances[some, rng.integers(0, n, 300)]
    bound[::40] = np.inf
    group = np.arange(n, dtype=np.int32) // 2
    groups = cupy.asarray(group[some]), cupy.asarray(group)
    task = SearchTask(some, n // 12 + 1, *groups, only_minima=True)
    filter_.arrange()
    order = filter_.order
    band = slice(256, n)
    tested = cupy.asarray(bound), groups, task
    kept = filter_.candidates(filter_.query(cupy.asarray(some)), band, *tested)
    positions, count = to_host(kept.ids), to_host(kept.count)
    assert count.max() <= kept.capacity
    ids = positions if kept.order is None else to_host(kept.order)[positions % n]
    inside = np.isin(np.arange(n), to_host(order)[band])
    for i, row in enumerate(some):
        wanted = np.flatnonzero(inside & (group != group[row]) & (distances[row] <= bound[i]))
        passed = ids[i, : count[i]]
        assert np.unique(passed).size == passed.size
        yield passed, wanted, (inside & (group != group[row])).sum() - wanted.size


@pytest.mark.gpu
@pytest.mark.usefixtures("body")
@pytest.mark.parametrize("metric", ["jaccard", "dice", "containment", "hamming"])
@pytest.mark.parametrize("d", [1, 65, 300, 2048, *map(full, (63, 64, 1024, 4097))])
def test_of_bits_what_passes_is_near(d, metric):
    from rapids_slink.neighbors.filter.fused.filter import CountFilter

    rng, n = np.random.default_rng(d), 900
    exact = exact_points(METRICS[metric], bits(rng, n, d))
    assert exact.points.dtype == "uint64"
    filter_ = CountFilter(exact, resolve("cuda"))
    surplus = unwanted = 0
    for passed, wanted, others in kept_and_wanted(filter_, exact, rng, n):
        assert np.isin(wanted, passed).all()
        surplus, unwanted = surplus + passed.size - wanted.size, unwanted + others
    # A tile takes the line of its least number of ones, and seven tiles have them all. A chord is loose in the middle.
    assert surplus <= (0.9 if metric == "containment" else 0.4) * unwanted


@pytest.mark.gpu
@pytest.mark.usefixtures("body")
def test_a_symmetric_pass_tests_a_pair_for_both_its_rows():
    import cupy

    from rapids_slink.neighbors.filter.fused.filter import CountFilter

    rng, n = np.random.default_rng(0), 1000
    exact = exact_points(METRICS["jaccard"], bits(rng, n, 200))
    filter_ = CountFilter(exact, resolve("cuda"))
    distances = to_host(filter_.exact_kernels.all_distances(exact.points, exact.metric))
    bound = np.sort(distances, axis=1)[:, 20]
    filter_.arrange(*filter_.order_by_bound(cupy.asarray(bound)))
    order = to_host(filter_.order)
    assert sorted(order) == list(range(n))
    survivors = filter_.empty_survivors(600)
    for offsets in filter_.symmetric_slices():
        filter_.append_both(offsets, cupy.asarray(bound[order]), survivors)
    ids, count = to_host(survivors.ids), to_host(survivors.count)
    assert count.max() <= survivors.capacity
    for position, row in enumerate(order):
        passed = order[ids[position, : count[position]]]
        wanted = np.flatnonzero(distances[row] <= bound[row])
        assert np.unique(passed).size == passed.size
        assert np.isin(wanted[wanted != row], passed).all()
    tight = cupy.asarray(np.full(n, np.inf))
    filter_.tighten(survivors, tight, 20, False)
    np.testing.assert_allclose(to_host(tight), np.sort(distances[order], axis=1)[:, 20], rtol=1e-6)
    assert (to_host(tight) >= np.sort(distances[order], axis=1)[:, 20]).all()


@pytest.mark.gpu
@pytest.mark.usefixtures("body")
@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_rows_without_ones(metric):
    """Their number of ones, negated, must not be a negative zero."""
    X = bits(np.random.default_rng(0), 3000, 200)
    X[::20] = False
    of_either = [knn_graph(X, 8, metric=metric, device=device) for device in ("cuda", "cpu")]
    assert of_either[0].equals(of_either[1])

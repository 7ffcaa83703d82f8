"""The fused filter of Hopper GPUs: what it keeps, what it knows of it, and searches by it."""

from dataclasses import replace

import numpy as np
import pytest
from hard_cases import full
from oracles import assert_lists, least, squared_distances, without_self
from rounding_cases import BYTES, pairs_hard_to_sum

from rapids_slink.metrics import EUCLIDEAN, METRICS
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter.bounds import (
    ABSOLUTE_SLACK,
    NORM_FEATURES,
    UpperBound,
    accumulation_bound,
    filter_radius,
)
from rapids_slink.neighbors.filter.choose import scaling_of
from rapids_slink.neighbors.filter.quantize import Scaling
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host

pytestmark = pytest.mark.gpu
FUSED = "rapids_slink.neighbors.filter.hopper.fused"


@pytest.fixture
def hopper():
    """The fused filters, where the GPU has what they need."""
    from rapids_slink.neighbors.filter import hopper

    if not hopper.is_hopper():
        pytest.skip("the fused filter is for Hopper GPUs")
    return hopper


def fused_filter(kind, points, scaling, order=None, queries=None, exact=None, metric=EUCLIDEAN):
    """A filter with its points in the given order."""
    queries = points if queries is None else queries
    engine = resolve("cuda")
    found = kind(points, queries, metric, engine, scaling, exact or ExactPoints(queries, points, metric))
    found.arrange(engine.xp.arange(len(points), dtype="int32") if order is None else order)
    return found


def unscaled(d, **more):
    return Scaling(resolve("cuda").xp.zeros(d), 1.0, **more)


def lengths(x):
    return np.sqrt((x * x).sum(axis=1))


def norms_in_columns(norm_columns):
    """What the norm columns make the tensor cores add, by row."""
    units = 2.0**15, 2.0**8, 1.0, 2.0**-7, 2.0**-14, 0.0, 0.0, 0.0  # as fused.cu says
    columns = to_host(norm_columns).reshape(-1, 2, 8).astype(np.float64)
    row = np.arange(len(columns))
    swizzled = row % 128 // 4 % 2
    assert (columns[row, 1 - swizzled] == 0).all()
    return columns[row, swizzled] @ np.asarray(units)


def test_norms_in_parts_are_rounded_down():
    """The norm columns hold, in units, the half norms that the tensor cores subtract."""
    import cupy

    from rapids_slink.neighbors.filter.cuda import quantize_rows

    numbers = 2.0 ** np.arange(-30, 16, 0.25)[:, None] * np.random.default_rng(0).uniform(0.5, 0.9, (184, 4))
    X = cupy.asarray(np.append(numbers.ravel(), [0.0, 5e-6, 1e-45])[:, None])
    made = quantize_rows(X, unscaled(1), None, 768, 1, with_norms=True)
    assert (X.size, made.half_norm.size) == (739, 768)
    norms = to_host(made.half_norm).astype(np.float64)
    subtracted = -norms_in_columns(made.norm_columns)
    most = 24 * 2.0**-23  # what the columns' norm may be smaller by, and 2**-38 beside it
    assert (subtracted[:739] <= norms[:739]).all()
    assert (subtracted[:739] >= norms[:739] * (1 - 2 * most) - 2.0**-38).all()
    shrunk = norms[:739] * (1 - accumulation_bound(8 + NORM_FEATURES, "float32"))
    assert (subtracted[:739] >= shrunk - ABSOLUTE_SLACK).all()
    assert np.isinf(norms[739:]).all()
    assert (subtracted[739:] > 2.0**30).all()


@pytest.mark.parametrize("d", [8, 256, 4096, *map(full, (16, 104, 300, 784))])
def test_products_keep_their_bound(d, hopper):
    """Nobody sees the products, but whether they pass: their values are bisected."""
    import cupy

    from rapids_slink.neighbors.filter.hopper.launch import TILE, Radii

    x, y = pairs_hard_to_sum(np.random.default_rng(d), d)
    n = len(x)
    filter_ = fused_filter(hopper.FusedFilter, cupy.asarray(y), unscaled(d), queries=cupy.asarray(x))
    ids = cupy.arange(n, dtype="int32")
    rows, group = filter_.query(ids), cupy.zeros(n, "int32")
    size = rows.half_norm.size
    none = Radii(cupy.zeros(size, "float32"), cupy.zeros(size // TILE, "float32"))
    filter_.radii = lambda *_: none
    norms = -norms_in_columns(filter_.image().norm_columns)[:n]  # the products come with these subtracted
    exact = x @ y.T - norms
    assumed = accumulation_bound(-(-d // 8) * 8 + NORM_FEATURES, "float32") * (lengths(x)[:, None] * lengths(y) + norms)

    def passes(threshold, point):
        """Whether each row's product with its point is at least the row's threshold."""
        half_norm = cupy.full(size, cupy.inf, "float32")
        half_norm[:n] = cupy.asarray(threshold)
        task = SearchTask(ids, n // 12 + 1, group, group)  # room for all points
        found = filter_.candidates(
            replace(rows, half_norm=half_norm), slice(0, n), cupy.zeros(n), (group, group), task
        )  # fmt: skip
        assert found.capacity >= n
        count, passed = to_host(found.count), to_host(found.ids)
        return ((passed == point[:, None]) & (np.arange(found.capacity) < count[:, None])).any(axis=1)

    worst = 0.0
    for shift in (0, 1, 16, 50):
        point = (np.arange(n) + shift) % n
        middle, slack = exact[np.arange(n), point], assumed[np.arange(n), point]
        low, high = middle - 2 * slack, middle + 2 * slack
        assert passes(low, point).all()
        assert not passes(high, point).any()
        for _ in range(16):
            threshold = ((low + high) / 2).astype(np.float32)
            above = passes(threshold, point)
            low, high = np.where(above, threshold, low), np.where(above, high, threshold)
        worst = max(worst, float((np.abs((low + high) / 2 - middle) / slack).max()))
    assert 1e-6 < worst < 1


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("d", [1, 16, 129, 784, *map(full, (15, 17, 33, 120, 128, 300, 600, 4096))])
def test_byte_filter_is_exact(d, kind, hopper):
    """What it keeps of each row's pairs: all within the bound, and none above what the halves leave open."""
    import cupy

    from rapids_slink.neighbors.filter import cuda

    n, rng = 700, np.random.default_rng(d)
    X = BYTES[kind](rng, n, d).astype(np.uint8)
    given, scaling = cupy.asarray(X, "float32"), unscaled(d, byte_values=True)
    values = cuda.to_uint8(given, scaling)
    half_norms = squared_distances(np.full((1, values.shape[1]), 128), to_host(values)).ravel() // 2
    spread = half_norms.max() - half_norms.min()
    assert hopper.ByteFilter.supports(values) == (spread <= 979_454)
    if spread > 979_454:
        assert d > 119
        return
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    filter_ = fused_filter(hopper.ByteFilter, given, scaling, order, exact=ExactPoints(values, values))
    some = rng.integers(0, n, 300).astype(np.int32)
    distances = squared_distances(X[some], X)
    bound = distances[np.arange(300), rng.integers(0, n, 300)] + rng.choice([-1.0, 0.0, 0.0], 300)
    bound[::50] = np.inf
    rows, component = filter_.query(cupy.asarray(some)), rng.integers(0, 2, n).astype(np.int32)
    groups = cupy.asarray(component[some]), cupy.asarray(component)
    for band, per_group_minimum in ((slice(0, n), False), (slice(256, 400), True)):
        task = SearchTask(some, n // 12 + 1, *groups, per_group_minimum=per_group_minimum)
        kept = filter_.candidates(rows, band, cupy.asarray(bound), groups, task)
        inside = np.isin(np.arange(n), to_host(order[band]))
        for i, (ids, count) in enumerate(zip(to_host(order[kept.ids % n]), to_host(kept.count), strict=True)):
            found = ids[:count]
            wanted = inside & ((component != component[some[i]]) if per_group_minimum else True)
            assert np.unique(found).size == found.size
            assert wanted[found].all()
            assert np.isin(np.flatnonzero(wanted & (distances[i] <= bound[i])), found).all()
            assert (distances[i, found] <= bound[i] + 2).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("m", [1, 255, 700])
def test_radii(m, metric, hopper):
    """To the bits of `filter_radius`, nothing for the rows that fill up the last block, and each tile's largest."""
    import cupy

    rng, metric = np.random.default_rng(m), METRICS[metric]
    X = cupy.asarray(rng.normal(size=(m, 20)).astype(np.float32))
    bytes_ = cupy.asarray(rng.integers(0, 256, (m, 32)).astype(np.uint8))
    bound = rng.uniform(0, 2, m) * 10.0 ** rng.integers(-300, 5, m)
    bound[::7], bound[1::7] = np.inf, 0.0
    fused = fused_filter(hopper.FusedFilter, X, Scaling(cupy.zeros(20), 2.0**9), metric=metric)
    of_bytes = fused_filter(hopper.ByteFilter, bytes_, unscaled(32, byte_values=True))
    expected = filter_radius(bound, to_host(fused.image().error)[:m], 2.0**9, 20, np, metric)
    halves = np.minimum(bound / 2, of_bytes.UNBOUNDED).astype(np.int32)
    for filter_, values in ((fused, expected), (of_bytes, halves)):
        image = filter_.image()
        found = filter_.radii(cupy.asarray(bound), image.error, image.half_norm.size)
        padded = np.pad(values, (0, -m % 256))
        np.testing.assert_array_equal(to_host(found.of_row), padded)
        np.testing.assert_array_equal(to_host(found.of_tile), padded.reshape(-1, 128).max(axis=1))


# ------------------------------------------------------------------------------------------- the symmetric pass


def all_survive(filter_, n, monkeypatch):
    """Each point's survivors when nothing bounds them: everyone else."""
    import cupy

    monkeypatch.setattr(f"{FUSED}.survivor_capacity", lambda k: n - 1)
    found = filter_.empty_survivors(1)
    filter_.append_both(slice(0, filter_.symmetric_slices()[-1].stop), cupy.full(n, cupy.inf), found)
    assert (to_host(found.count) == n - 1).all()
    return found


@pytest.mark.parametrize("of_bytes", [False, True])
@pytest.mark.parametrize(("n", "split"), [(1500, 256), (1500, 768), (1500, 1280), (512, 256), (257, 256)])
def test_pairs_between_two_parts_survive_once(n, split, of_bytes, hopper, monkeypatch):
    import cupy

    from rapids_slink.neighbors.filter import cuda

    rng = np.random.default_rng(split)
    values = cupy.asarray(rng.integers(0, 256, (n, 64)).astype(np.float32))
    scaling = scaling_of(values, device=resolve("cuda"))
    exact = ExactPoints(*[cuda.to_uint8(values, scaling)] * 2)
    filter_ = fused_filter(hopper.ByteFilter if of_bytes else hopper.FusedFilter, values, scaling, exact=exact)
    assert filter_.arrange_parts(cupy.asarray(rng.random(n)), split)
    order = to_host(filter_.order)
    assert sorted(order[:split]) == list(range(split))
    monkeypatch.setattr(f"{FUSED}.survivor_capacity", lambda k: n)
    found = filter_.empty_survivors(1)
    for offsets in filter_.symmetric_slices(split):
        filter_.append_both(offsets, cupy.full(n, cupy.inf), found, split)
    sides = np.arange(split), np.arange(split, n)
    for row, (count, ids) in enumerate(zip(to_host(found.count), to_host(found.ids), strict=True)):
        np.testing.assert_array_equal(np.sort(ids[:count]), sides[row < split])


@pytest.mark.parametrize("n_far", [0, 1, 30, 200])
def test_rows_far_from_all_others(n_far, hopper):
    """A few are left out of the image, scanned, and offered to all others; many are points like any."""
    import cupy

    n, k, rng, report, device = 3000, 5, np.random.default_rng(n_far), Report(), resolve("cuda")
    X = rng.normal(size=(n, 64)).astype(np.float32)
    X[rng.choice(n, n_far, replace=False)] *= 1e6
    search = BruteForceSearch(cupy.asarray(X), device, report)
    assert isinstance(search.filter, hopper.FusedFilter)
    assert_lists(neighbor_lists(search, n, k, device), least(without_self(squared_distances(X)), k))
    counts = report["neighbors"]
    if n_far <= 32:
        assert counts["rows_scanned_exactly"] == n_far
        assert counts["rows_redone"] < n / 10


KINDS = [
    (kind, d) for kind in ("normal", "offset", "outlier", "twins", *BYTES) for d in (5, 128, 300)
    if kind != "black or grey" or d < 120  # whose norms are too far apart then
]  # fmt: skip


@pytest.mark.parametrize(("kind", "d"), KINDS)
@pytest.mark.parametrize("k", [16, full(1), full(40)])
def test_tighten(k, kind, d, hopper, monkeypatch):
    """Bounds come down to just above the k-th of the survivors, of which those within them stay."""
    import cupy

    from rapids_slink.neighbors.filter import cuda

    n, rng = 700, np.random.default_rng(d)
    if kind in BYTES:
        X = BYTES[kind](rng, n, d).astype(np.float32)
    else:
        X = rng.normal(size=(n, d)) + (1e3 if kind == "offset" else 0)
        if kind == "outlier":
            X[17] *= 1e4
        if kind == "twins":
            X[::2] = X[1::2] + 1e-9
    values = cupy.asarray(X)
    scaling = scaling_of(values, device=resolve("cuda"))
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    exact = ExactPoints(*[cuda.to_uint8(values, scaling)] * 2)
    class_ = hopper.ByteFilter if kind in BYTES else hopper.FusedFilter
    assert hopper.ByteFilter.supports(exact.points) == (kind in BYTES)
    filter_ = fused_filter(class_, values, scaling, order, exact=exact)
    at = to_host(order)
    distances = squared_distances(X)[at][:, at]
    bound, found = cupy.full(n, cupy.inf), all_survive(filter_, n, monkeypatch)
    everyone_else = np.array([[j for j in range(n) if j != i] for i in range(n)])
    np.testing.assert_array_equal(np.sort(to_host(found.ids), axis=1), everyone_else)
    held = np.sort(distances, axis=1)[::3, k // 2]  # bounds that hold already
    bound[::3] = cupy.asarray(held)
    lost = np.zeros(n, bool)
    lost[5::50] = True
    found.count[5::50] = n + found.capacity  # as if some had been lost: all stay
    count = to_host(found.count)
    filter_.tighten(found, bound, k)
    tightened, kth = to_host(bound), np.sort(without_self(distances), axis=1)[:, k - 1]
    np.testing.assert_array_equal(tightened[::3], held)
    own = (np.arange(n) % 3 > 0) & ~lost
    assert (tightened[own] >= kth[own]).all()
    if kind in ("normal", "any", "like photos"):
        assert (tightened[own] <= kth[own] * 1.01 + 2).all()
    left, ids = to_host(found.count), to_host(found.ids)
    np.testing.assert_array_equal(left[lost], count[lost])
    assert (left[~lost] <= count[~lost]).all()
    for i in np.flatnonzero(~lost):
        kept = ids[i, : left[i]]
        assert np.unique(kept).size == kept.size
        within = np.flatnonzero(without_self(distances)[i] <= tightened[i])
        assert np.isin(within, kept).all()
        if kind == "normal":
            assert kept.size <= 1.3 * within.size + 3


@pytest.mark.parametrize("kind", ["hard to sum", "directions", "offset"])
@pytest.mark.parametrize("d", [8, 784, *map(full, (104, 300))])
def test_survivors_carry_half_their_squared_distance(d, kind, hopper, monkeypatch):
    """A pair's half is off by no more, either way, than `UpperBound` has it."""
    import cupy

    from rapids_slink.neighbors.filter import cuda

    rng = np.random.default_rng(d)
    X = np.vstack(pairs_hard_to_sum(rng, d)) if kind == "hard to sum" else rng.normal(size=(300, d))
    if kind == "directions":
        X /= lengths(X)[:, None]
    if kind == "offset":
        X += 1e3
    n, values = len(X), cupy.asarray(X)
    scaling = unscaled(d) if kind == "hard to sum" else scaling_of(values, device=resolve("cuda"))
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    filter_ = fused_filter(hopper.FusedFilter, values, scaling, order)
    found = all_survive(filter_, n, monkeypatch)
    ids, half = to_host(found.ids), to_host(found.half_sq_dist).astype(np.longdouble)
    y = to_host(cuda.quantize(values, scaling, "float16", order).y).astype(np.longdouble)
    norm = to_host(filter_.image().half_norm)[:n].astype(np.longdouble)
    true = np.stack([((y[i] - y[ids[i]]) ** 2).sum(axis=1) / 2 for i in range(n)])
    known = UpperBound.of(d, scaling.scale, EUCLIDEAN)
    allowed = known.norm_slack * (norm[:, None] + norm[ids]) + known.absolute_slack + np.abs(half) * 2.0**-22
    assert (np.abs(half - true) <= allowed).all()


# -------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("kind", ["any", "like photos", "clusters", "alike"])
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [(600, 3, 4), (5000, 100, 16), full(3000, 16, 1), full(2500, 784, 33), full(1100, 1500, 8)],
)
def test_lists_of_bytes(n, d, k, kind, hopper):
    """By the tensor cores for bytes, each pair formed once; a few features too."""
    X = BYTES[kind](np.random.default_rng(n), n, d).astype(np.float32)
    report, engine = Report(), resolve("cuda")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    assert report["neighbors"]["filter"] == hopper.ByteFilter.name
    lists = neighbor_lists(search, n, k, engine)
    assert report["neighbors"]["rows_certified"] > 0 or kind == "alike"
    expected = neighbor_lists(BruteForceSearch(X, CPU, Report()), n, k, CPU)
    assert_lists(lists, (expected.ids, expected.weights))


@pytest.mark.parametrize("is_knn_graph", [False, True])
@pytest.mark.parametrize("of_bytes", [False, True])
def test_rows_that_overflow(of_bytes, is_knn_graph, monkeypatch, hopper):
    """With little room most rows are searched again: by bands after the symmetric pass, in float64 after those."""
    engine, n, k = resolve("cuda"), 3000, 5
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (n, 20)).astype(np.float32) if of_bytes else rng.normal(size=(n, 20))
    capacity = "survivor_capacity" if is_knn_graph else "candidate_capacity"
    monkeypatch.setattr(f"{FUSED}.{capacity}", lambda k: k + 1)
    report, rows = Report(), engine.xp.arange(n, dtype="int32")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    task = SearchTask(rows, k, rows, rows) if is_knn_graph else SearchTask(rows, k, rows.copy(), rows.copy())
    assert task.is_knn_graph == is_knn_graph
    assert_lists(search.find(task), least(without_self(squared_distances(X)), k))
    assert report["neighbors"]["rows_redone"] > n / 10


@pytest.mark.parametrize(
    ("kind", "d", "k"),
    [("bytes", 600, 16), ("normal", 600, 16), ("bytes", 128, 16), ("normal", 64, 16), ("normal", 20, 1000)],
)
def test_blocks_that_take_many_work_items(kind, d, k, hopper, monkeypatch):
    """On a few multiprocessors, with rows that stay in shared memory and with rows that do not; of one set and two."""
    monkeypatch.setattr("rapids_slink.neighbors.filter.hopper.launch.multiprocessors", lambda: 4)
    engine, n, rng = resolve("cuda"), 20_000, np.random.default_rng(d)
    X = BYTES["like photos"](rng, n, d) if kind == "bytes" else rng.normal(size=(n, d))
    X, report = X.astype(np.float32), Report()
    lists = neighbor_lists(BruteForceSearch(engine.asarray(X), engine, report), n, k, engine)
    assert report["neighbors"]["filter"] == (hopper.ByteFilter if kind == "bytes" else hopper.FusedFilter).name
    assert report["neighbors"]["rows_certified"] > 0.99 * n
    some = rng.permutation(n)[:40]
    distances = squared_distances(X[some], X)
    distances[np.arange(40), some] = np.inf
    expected = least(distances, k)
    np.testing.assert_array_equal(to_host(lists.ids)[some], expected[0])
    np.testing.assert_array_equal(to_host(lists.weights)[some], expected[1])
    half, rows = engine.asarray(X[: n // 2]), engine.xp.arange(n // 2, dtype="int32")
    between = BruteForceSearch(engine.asarray(X[n // 2 :]), engine, report, half)
    found = between.find(SearchTask(rows, 3, rows, engine.xp.full(n // 2, -1, "int32")))
    ids, weights = least(squared_distances(X[:30], X[n // 2 :]), 3)
    np.testing.assert_array_equal(to_host(found.ids)[:30], ids)
    np.testing.assert_array_equal(to_host(found.weights)[:30], weights)

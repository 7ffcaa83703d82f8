"""The fused filter: what it keeps, what it knows of it, and searches by it; by either body of its kernel."""

from dataclasses import replace

import numpy as np
import pytest
from hard_cases import full
from oracles import assert_lists, assert_neighbors, least, squared_distances, without_self
from rounding_cases import BYTES, pairs_hard_to_sum

from rapids_slink.forced import force
from rapids_slink.metrics import EUCLIDEAN, METRICS
from rapids_slink.neighbors import filter as filters
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter import Scaling, filter_radius, scaling_of
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import c_struct
from rapids_slink.runtime.device import CPU, resolve, to_host

pytestmark = pytest.mark.gpu
FUSED = "rapids_slink.neighbors.filter.fused"


@pytest.fixture(params=["wgmma", "mma", full("mma, one stage")], autouse=True)
def body(request, fused_body):
    """Each body of the kernel, where the GPU has its instructions; of mma also the shape for the least memory."""
    fused_body(request.param)


def fused_filter(points, scaling, order=None, queries=None, exact=None, metric=EUCLIDEAN, tier=1):
    """A filter with its points in the given order."""
    from rapids_slink.neighbors.filter.fused.filter import FusedFilter

    queries, engine = points if queries is None else queries, resolve("cuda")
    exact = exact or ExactPoints(queries, points, metric)
    filter_ = FusedFilter(points, queries, exact, engine, scaling, tier)
    filter_.arrange(engine.xp.arange(len(points), dtype="int32") if order is None else order)
    return filter_


def int8_points(filter_, n):
    """The n points of an image, out of its tiles and pieces, and how far each was moved."""
    image, atoms, row = filter_.image(), -(-filter_.encoding.steps // 4), np.arange(128)[:, None]
    pieces = to_host(image.y).reshape(-1, atoms, 128, 8, 16)[:, :, row, np.arange(8) ^ (row & 7)]
    y = pieces.transpose(0, 2, 1, 3, 4).reshape(-1, 128 * atoms)[:n].astype(np.longdouble)
    return y, to_host(image.error)[:n].astype(np.longdouble) * np.sqrt(np.longdouble(2))


@pytest.mark.parametrize("n", [0, 5, 128, 1000, 128 * 128 + 7, full(128 * 5000)])
def test_tiles_in_strides(n):
    """All points, of which those that follow each other are in different tiles if there are many of these."""
    order = strided(np.ones(n))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    tiles = n // 128
    np.testing.assert_array_equal(order[128 * tiles :], np.arange(n - 128 * tiles)[::-1])
    tile = np.empty(n, int)
    tile[order] = np.arange(n) // 128
    if tiles >= 128:
        assert (tile[n - 128 * tiles : -1] != tile[n - 128 * tiles + 1 :]).all()


def test_outliers_are_not_dealt_out():
    """Points with keys far above those of the tiles that would share out theirs stay in the tiles that they fill."""
    key = np.ones(128 * 256)
    key[-300:] = 1e8
    order = strided(key)
    np.testing.assert_array_equal(np.sort(order), np.arange(key.size))
    assert np.unique(np.flatnonzero(np.isin(order, np.arange(key.size)[:300])) // 128).size == 3


def strided(keys):
    """The points, the last first, of which these are the keys in turn, in strides."""
    from rapids_slink.neighbors.filter.fused.filter import tiles_in_strides

    bits = keys.astype(np.float32).view(np.uint32) | np.uint32(1 << 31)  # of numbers above zero
    packed = bits.astype(np.uint64) << np.uint64(32) | np.arange(keys.size, dtype=np.uint64)[::-1]
    return to_host(tiles_in_strides(resolve("cuda").asarray(packed), keys.size))


def test_sorted_keys():
    """In the order of float32, equal ones by their places."""
    from rapids_slink.neighbors.filter.fused.filter import numbers_and_positions, sorted_keys

    values = np.array([3.0, np.inf, -1.5, 1e300, 0, 3, -2])
    numbers, places = numbers_and_positions(to_host(sorted_keys(resolve("cuda").asarray(values))))
    assert numbers.tolist() == [-2, -1.5, 0, 3, 3, np.inf, np.inf]
    assert places.tolist() == [6, 2, 4, 0, 5, 1, 3]


def unscaled(d, **more):
    return Scaling(resolve("cuda").xp.zeros(d), 1.0, **more)


def lengths(x):
    return np.sqrt((x * x).sum(axis=1))


@pytest.mark.parametrize("d", [8, 256, 4096, *map(full, (16, 104, 300, 784))])
def test_products_keep_their_bound(d):
    """Nobody sees the products, but whether they pass: their values are bisected."""
    import cupy

    from rapids_slink.neighbors.filter.fused import TILE, Radii

    x, y = pairs_hard_to_sum(np.random.default_rng(d), d)
    n = len(x)
    filter_ = fused_filter(cupy.asarray(y), unscaled(d), queries=cupy.asarray(x), tier=2)
    ids = cupy.arange(n, dtype="int32")
    rows, group = filter_.query(ids), cupy.zeros(n, "int32")
    size = rows.half_norm.size
    none = Radii(cupy.zeros(size, "float32"), cupy.zeros(size // TILE, "float32"))
    filter_.radii = lambda *_: none
    norms = -to_host(filter_.image().half_norm)[:n].astype(float)  # the products come with these subtracted
    exact = x @ y.T - norms
    assumed = filters.accumulation_bound(-(-d // 8) * 8) * (lengths(x)[:, None] * lengths(y) + norms)

    def passes(threshold, point):
        """Whether each row's product with its point is at least the row's threshold."""
        half_norm = cupy.full(size, -cupy.inf, "float32")
        half_norm[:n] = -cupy.asarray(threshold)
        task = SearchTask(ids, n // 12 + 1, group, group)  # room for all points
        found = filter_.candidates(
            replace(rows, half_norm=half_norm), slice(0, n), cupy.zeros(n), (None, None), task
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


@pytest.mark.parametrize("kind", ["normal", *BYTES])
@pytest.mark.parametrize("d", [1, 16, 129, 784, *map(full, (15, 17, 33, 120, 128, 300, 600, 768, 1000, 4096))])
def test_int8_loses_no_pair(d, kind):
    """What it keeps of each row's pairs: all within the bound, and of bytes none above what the halves leave open."""
    import cupy

    from rapids_slink.neighbors.filter import cuda

    n, rng = 700, np.random.default_rng(d)
    X = BYTES[kind](rng, n, d).astype(np.uint8) if kind in BYTES else rng.normal(size=(n, d))
    given = cupy.asarray(X, "float32")
    X = to_host(given).astype(float)
    scaling = scaling_of(given, device=resolve("cuda"))
    values = cuda.to_uint8(given, scaling)
    assert (values.dtype == "uint8") == (kind in BYTES)
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    filter_ = fused_filter(given, scaling, order, exact=ExactPoints(values, values))
    assert filter_.encoding.sum_type == "int32"
    some = rng.integers(0, n, 300).astype(np.int32)
    distances = squared_distances(X[some], X)
    bound = distances[np.arange(300), rng.integers(0, n, 300)] + rng.choice([-1.0, 0.0, 0.0], 300)
    bound[::50] = np.inf
    rows, component = filter_.query(cupy.asarray(some)), rng.integers(0, 2, n).astype(np.int32)
    groups = cupy.asarray(component[some]), cupy.asarray(component)
    for band, only_minima in ((slice(0, n), False), (slice(256, 400), True)):
        task = SearchTask(some, n // 12 + 1, *groups, only_minima=only_minima)
        kept = filter_.candidates(rows, band, cupy.asarray(bound), groups, task)
        inside = np.isin(np.arange(n), to_host(order[band]))
        for i, (ids, count) in enumerate(zip(to_host(order[kept.ids % n]), to_host(kept.count), strict=True)):
            found = ids[:count]
            wanted = inside & ((component != component[some[i]]) if only_minima else True)
            assert np.unique(found).size == found.size
            assert wanted[found].all()
            assert np.isin(np.flatnonzero(wanted & (distances[i] <= bound[i])), found).all()
            if kind in BYTES:
                assert (distances[i, found] <= max(bound[i], 0) * (1 + 1e-5) + 2).all()


@pytest.mark.parametrize("kind", ["normal", "offset", "outlier", "tiny", "zeros", "one feature", "float32"])
@pytest.mark.parametrize("d", [1, 33, 300])
def test_int8_errors_are_what_is_lost(d, kind):
    """‖y_i - y_j‖ is off the scaled distance by no more than the two errors."""
    import cupy

    n, rng = 300, np.random.default_rng(d)
    X = rng.normal(size=(n, d)) + (1e4 if kind == "offset" else 0)
    X[17] *= 1e5 if kind == "outlier" else 1
    X *= {"tiny": 1e-170, "zeros": 0.0}.get(kind, 1.0)
    if kind == "one feature":
        X[:, 1:] = 0
    X = X.astype(np.float32 if kind == "float32" else np.float64)
    values = cupy.asarray(X)
    filter_ = fused_filter(values, scaling_of(values, device=resolve("cuda")))
    y, error = int8_points(filter_, n)
    np.testing.assert_array_equal(to_host(filter_.image().half_norm)[:n], -((y * y).sum(axis=1) // 2))
    x = X.astype(np.longdouble) * filter_.encoding.scale
    for i in range(0, n, 7):
        distance = lengths(x - x[i])
        assert (np.abs(lengths(y - y[i]) - distance) <= error + error[i] + 1e-12 * distance).all()
    if kind == "normal" and d > 1:
        assert np.median(error) < 0.35 * (d + 32) ** 0.5


@pytest.mark.parametrize("kind", ["falling", "low rank", "offset", "outlier"])
@pytest.mark.parametrize("m", [28, 60, 124])
def test_partial_distances_bound_distances(m, kind):
    """‖y_i - y_j‖ is above the scaled distance by no more than the two errors, and the search on axes is exact."""
    import cupy

    from rapids_slink.neighbors.filter.fused import Projected

    n, d, k, rng = 1500, 200, 5, np.random.default_rng(m)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.7
    if kind == "low rank":
        X[:, 20:] = 0
    X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0] + (1e3 if kind == "offset" else 0)
    X[17] *= 1e4 if kind == "outlier" else 1
    device, values = resolve("cuda"), cupy.asarray(X)
    search = BruteForceSearch(values, device, Report())
    search.filter = filter_ = fused_filter(values, scaling_of(values, device=device))
    axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:m].T
    projection = filters.PrincipalAxes.of(values, filter_.scaling, cupy.asarray(axes), device)
    filter_.encoding = encoding = Projected(values, projection)
    y, error = int8_points(filter_, n)
    x = X.astype(np.longdouble) * encoding.scale
    close = 0
    for i in range(0, n, 97):
        distance = lengths(x - x[i]) * encoding.stretch
        assert (lengths(y - y[i]) <= distance + error + error[i] + 1e-12 * distance).all()
        close += (lengths(y - y[i]) >= 0.5 * distance - error - error[i]).mean()
    assert close > 8
    filter_.arrange(filter_.order)
    filter_.radius_struct = c_struct(*filters.radius_terms(d, encoding.scale * encoding.stretch, EUCLIDEAN))
    assert_neighbors(neighbor_lists(search, n, k, device), X, k)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("m", [1, 255, 700])
def test_radii(m, metric, precise):
    """To the bits of `filter_radius`, nothing for the rows that fill up the last block, and each tile's largest."""
    import cupy

    rng, metric = np.random.default_rng(m), METRICS[metric]
    X = cupy.asarray(rng.normal(size=(m, 20)).astype(np.float32))
    bound = rng.uniform(0, 2, m) * 10.0 ** rng.integers(-300, 5, m)
    bound[::7], bound[1::7] = np.inf, 0.0
    filter_ = fused_filter(X, Scaling(cupy.zeros(20), 2.0**9), metric=metric, tier=2 * precise)
    image, scale = filter_.image(), filter_.encoding.scale * filter_.encoding.stretch
    expected = filter_radius(bound, to_host(image.error)[:m], scale, 20, np, metric)
    radii = filter_.radii(cupy.asarray(bound), image.error, image.half_norm.size)
    padded = np.pad(expected, (0, -m % 256))
    np.testing.assert_array_equal(to_host(radii.by_row), padded)
    np.testing.assert_array_equal(to_host(radii.by_tile), padded.reshape(-1, 128).max(axis=1))


@pytest.mark.parametrize(
    ("blocks", "first", "last", "begin", "n"),
    [(1, 0, 1, 0, 0), (3, 5, 40, 0, 0), (20, 0, 9, 0, 40), (20, 30, 42, 0, 40), (9, 0, 4, 18, 4), (2, 7, 7, 0, 4)],
)
def test_work_items(blocks, first, last, begin, n, monkeypatch):
    """Each block meets each tile of its range once, counted from its own or not."""
    from rapids_slink.neighbors.filter import fused

    monkeypatch.setattr(fused, "multiprocessors", lambda: 1)
    met = []
    for row_tile, start, end, more in to_host(fused.work_items(blocks, first, last, begin, n)).tolist():
        assert more == n
        met += [(row_tile, tile if not n or tile < begin + n else tile - n) for tile in range(start, end)]
    own = [(row_tile, tile) for row_tile in range(0, 2 * blocks, 2) for tile in range(first, last)]
    expected = [(row, begin + (row + tile) % n) for row, tile in own] if n else own
    assert sorted(met) == sorted(expected)


# ------------------------------------------------------------------------------------------- the symmetric pass


def all_survive(filter_, n):
    """Each point's survivors when nothing bounds them: everyone else."""
    import cupy

    with force(candidates=n - 1):
        found = filter_.empty_survivors(1)
    filter_.append_both(slice(0, filter_.symmetric_slices()[-1].stop), cupy.full(n, cupy.inf), found)
    assert (to_host(found.count) == n - 1).all()
    return found


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("d", [64, 700, *map(full, (300, 1000))])
@pytest.mark.parametrize(("n", "split"), [(1500, 256), (1500, 768), (1500, 1280), (512, 256), (257, 256)])
def test_pairs_between_two_parts_survive_once(n, split, d, precise):
    import cupy

    rng = np.random.default_rng(split)
    values = cupy.asarray(rng.integers(0, 256, (n, d)).astype(np.float32))
    scaling = scaling_of(values, device=resolve("cuda"))
    filter_ = fused_filter(values, scaling, tier=2 * precise)
    assert filter_.arrange_parts(cupy.asarray(rng.random(n)), split)
    order = to_host(filter_.order)
    assert sorted(order[:split]) == list(range(split))
    with force(candidates=n):
        found = filter_.empty_survivors(1)
    for offsets in filter_.symmetric_slices(split):
        filter_.append_both(offsets, cupy.full(n, cupy.inf), found, split)
    sides = np.arange(split), np.arange(split, n)
    for row, (count, ids) in enumerate(zip(to_host(found.count), to_host(found.ids), strict=True)):
        np.testing.assert_array_equal(np.sort(ids[:count]), sides[row < split])


@pytest.mark.parametrize("n_far", [0, 1, 30, 200])
def test_rows_far_from_all_others(n_far):
    """A few are left out of the image, scanned, and offered to all others; many are points like any."""
    import cupy

    n, k, rng, report, device = 3000, 5, np.random.default_rng(n_far), Report(), resolve("cuda")
    X = rng.normal(size=(n, 64)).astype(np.float32)
    X[rng.choice(n, n_far, replace=False)] *= 1e6
    search = BruteForceSearch(cupy.asarray(X), device, report)
    assert "fused" in search.filter.name
    assert_neighbors(neighbor_lists(search, n, k, device), X, k)
    counts = report["neighbors"]
    if n_far <= 32:
        assert counts["rows_scanned_exactly"] == n_far
        assert counts["rows_redone"] < n / 10


KINDS = [(kind, d) for kind in ("normal", "offset", "outlier", "twins", *BYTES) for d in (5, 128, 300)]


@pytest.mark.parametrize(("kind", "d"), KINDS)
@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("k", [16, full(1), full(40)])
def test_tighten(k, precise, kind, d):
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
    filter_ = fused_filter(values, scaling, order, exact=exact, tier=2 * precise)
    at = to_host(order)
    distances = squared_distances(X)[at][:, at]
    bound, found = cupy.full(n, cupy.inf), all_survive(filter_, n)
    everyone_else = np.array([[j for j in range(n) if j != i] for i in range(n)])
    np.testing.assert_array_equal(np.sort(to_host(found.ids), axis=1), everyone_else)
    held = np.sort(distances, axis=1)[::3, k // 2]  # bounds that hold already
    bound[::3] = cupy.asarray(held)
    lost = np.zeros(n, bool)
    lost[5::50] = True
    found.count[5::50] = n + found.capacity  # as if some had been lost: all stay
    kth, own = np.sort(without_self(distances), axis=1)[:, k - 1], (np.arange(n) % 3 > 0) & ~lost
    for last in (False, True):
        count = to_host(found.count)
        filter_.tighten(found, bound, k, last)
        tightened = to_host(bound)
        np.testing.assert_array_equal(tightened[::3], held)
        assert (tightened[own] >= kth[own]).all()
        if kind in ("normal", "any", "like photos"):
            slack = 1.01 if precise or kind != "normal" else 1.4  # int8 has fewer digits
            assert (tightened[own] <= kth[own] * slack + 2).all()
        left, ids = to_host(found.count), to_host(found.ids)
        np.testing.assert_array_equal(left[lost], count[lost])
        assert (left[~lost] <= count[~lost]).all()
        for i in np.flatnonzero(~lost):
            kept = ids[i, : left[i]]
            assert np.unique(kept).size == kept.size
            within = np.flatnonzero(without_self(distances)[i] <= tightened[i])
            assert np.isin(within, kept).all()
            if kind == "normal" and (precise or last):
                assert kept.size <= (1.3 if precise else 1.1) * within.size + 3


@pytest.mark.parametrize("kind", ["hard to sum", "directions", "offset"])
@pytest.mark.parametrize("d", [8, 784, *map(full, (104, 300))])
def test_survivors_carry_half_their_squared_distance(d, kind):
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
    filter_ = fused_filter(values, scaling, order, tier=2)
    found = all_survive(filter_, n)
    ids, half = to_host(found.ids), to_host(found.half_sq_dist).astype(np.longdouble)
    y = to_host(cuda.quantize(values, scaling, order).y).astype(np.longdouble)
    norm = -to_host(filter_.image().half_norm)[:n].astype(np.longdouble)
    true = np.stack([((y[i] - y[ids[i]]) ** 2).sum(axis=1) / 2 for i in range(n)])
    known = filters.UpperBound.of(d, scaling.scale, EUCLIDEAN)
    allowed = known.norm_slack * (norm[:, None] + norm[ids]) + known.absolute_slack + np.abs(half) * 2.0**-22
    assert (np.abs(half - true) <= allowed).all()


# -------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("kind", ["any", "like photos", "clusters", "alike"])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(600, 3, 4), (5000, 100, 16), full(3000, 16, 1), full(2500, 784, 33), full(1100, 1500, 8)]
)
def test_lists_of_bytes(n, d, k, kind):
    """By the tensor cores for bytes, each pair formed once; a few features too."""
    X = BYTES[kind](np.random.default_rng(n), n, d).astype(np.float32)
    report, engine = Report(), resolve("cuda")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    assert search.name == "int8 tensor cores (fused)"
    lists = neighbor_lists(search, n, k, engine)
    assert report["neighbors"]["rows_certified"] > 0 or kind == "alike"
    expected = neighbor_lists(BruteForceSearch(X, CPU, Report()), n, k, CPU)
    assert_lists(lists, (expected.ids, expected.weights))


@pytest.mark.parametrize("is_knn_graph", [False, True])
@pytest.mark.parametrize("of_bytes", [False, True])
def test_rows_that_overflow(of_bytes, is_knn_graph, monkeypatch, prescribe):
    """With little room most rows are searched again: by bands after the symmetric pass, in float64 after those."""
    engine, n, k = resolve("cuda"), 3000, 5
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (n, 20)).astype(np.float32) if of_bytes else rng.normal(size=(n, 20))
    monkeypatch.setattr("rapids_slink.neighbors.brute_force.ONE_BAND", 0)
    prescribe(search="all pairs", candidates=k + 1)
    report, rows = Report(), engine.xp.arange(n, dtype="int32")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    task = SearchTask(rows, k, rows, rows) if is_knn_graph else SearchTask(rows, k, rows.copy(), rows.copy())
    assert task.is_knn_graph == is_knn_graph
    assert_neighbors(search.find(task), X, k)
    assert report["neighbors"]["rows_redone"] > n / 10


@pytest.mark.parametrize(
    ("kind", "d", "k"),
    [*(("bytes", d, 16) for d in (128, 600, 1000)), ("normal", 64, 16), ("normal", 600, 16), ("normal", 20, 1000)],
)
def test_blocks_that_take_many_work_items(kind, d, k, monkeypatch):
    """On a few multiprocessors, with rows that stay in shared memory and with rows that do not; of one set and two."""
    monkeypatch.setattr("rapids_slink.neighbors.filter.fused.multiprocessors", lambda: 4)
    engine, n, rng = resolve("cuda"), 20_000, np.random.default_rng(d)
    X = BYTES["like photos"](rng, n, d) if kind == "bytes" else rng.normal(size=(n, d))
    X, report = X.astype(np.float32), Report()
    search, kind = BruteForceSearch(engine.asarray(X), engine, report), "int8" if kind == "bytes" else "fp16"
    assert search.name == f"{kind} tensor cores (fused)"
    lists = neighbor_lists(search, n, k, engine)
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

"""Kernels whose sums lose more than the filter's bound allows are found out, and are not used."""

from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import fake_gpu
from hard_cases import full
from oracles import assert_lists, least, squared_distances, without_self
from rounding_cases import BYTES

from rapids_slink import nearest_neighbors
from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter import QuantizedPoints, Trial, allowed_range, revealing_pairs
from rapids_slink.report import Report
from rapids_slink.runtime.device import resolve, to_host


def summed(x, y, bits=24, together=4):
    """x·y of all rows: a few products at a time are added to the sum so far, all cut to `bits` at the largest one's."""
    x, y = (np.asarray(part, np.float64) for part in (x, y))
    total = np.zeros((len(x), len(y), 1))
    for f in range(0, x.shape[1], together):
        addends = np.concatenate((total, x[:, None, f : f + together] * y[None, :, f : f + together]), axis=2)
        unit = 2.0 ** (np.frexp(abs(addends).max(axis=2, keepdims=True))[1] - bits)
        total = (np.trunc(addends / unit) * unit).sum(axis=2, keepdims=True)
        unit = 2.0 ** (np.frexp(abs(total))[1] - bits)
        total = np.trunc(total / unit) * unit
    return total[:, :, 0]


#: Sums, and whether they are as precise as assumed: like those of the tensor cores that are known, and some that lose a
#: bit or more.
SUMS = pytest.mark.parametrize(
    ("bits", "together", "is_precise"),
    [(24, 4, True), (24, 16, True), (25, 8, True), (23, 4, False), (22, 16, False), (14, 4, False)],
)


@pytest.mark.parametrize("d", [224, 1024])
def test_pairs_are_fp16_and_lose_much(d):
    x, y = revealing_pairs(d)
    for part in (x, y):
        np.testing.assert_array_equal(part.astype(np.float16), part)
    _, largest = allowed_range(x, y)
    exact = (x.astype(float) * y).sum(axis=1)
    lost = (exact - np.diag(summed(x, y))) / (largest - exact)
    assert lost.max() > 0.7
    assert (abs(lost) < 1).all()


def kept(trial, products):
    """The ids and counts of what a kernel keeps of these products, the last first."""
    passes = products >= trial.thresholds[:, None]
    return np.argsort(passes, axis=1, kind="stable")[:, ::-1], passes.sum(axis=1)


@SUMS
def test_trial(bits, together, is_precise):
    trial = Trial(512)
    assert trial.is_passed(*kept(trial, summed(trial.rows, trial.points, bits, together))) == is_precise


def test_trial_fails_for_sums_that_are_too_large():
    trial = Trial(512)
    products = trial.rows.astype(float) @ trial.points.T
    assert trial.is_passed(*kept(trial, products))
    assert not trial.is_passed(*kept(trial, products * (1 + 2.0**-12)))
    assert not trial.is_passed(*kept(trial, np.full_like(products, np.nan)))


@SUMS
def test_fused_filter_is_tried(bits, together, is_precise, monkeypatch):
    with fake_gpu(80):
        from rapids_slink.neighbors.filter import fused as encodings

        def quantized(values, scaling, ids, size, atoms):
            assert (scaling.scale, values.dtype, atoms) == (1.0, "float32", values.shape[1] // 64)
            y = np.zeros((size, values.shape[1]), np.float16)
            y[: len(values)] = values
            return QuantizedPoints(y, None, None)

        def append(rows, items, n_points, image, steps, radii, tile_error, into):
            assert (items.tolist(), steps, n_points) == ([[0, 0, 1, 0]], image.y.shape[1] // 16, 20)
            for zeros in (radii.by_row, tile_error, image.half_norm):
                assert not zeros.any()
            sums = summed(rows.y, image.y[:n_points], bits, together)
            ids, count = into.candidates.ids, into.candidates.count
            for row, column in zip(*np.nonzero(sums >= -np.asarray(rows.half_norm)[:, None]), strict=True):
                ids[row, count[row]], count[row] = column, count[row] + 1

        monkeypatch.setattr(encodings, "quantize_rows", quantized)
        monkeypatch.setattr(encodings, "append_survivors", append)
        assert encodings.fp16_keeps_bound() == is_precise


@SUMS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_batch_is_tried(bits, together, is_precise, dtype, monkeypatch):
    with fake_gpu(86):
        from rapids_slink.neighbors import small_batch

        def find_near(self, grid, points, search, queries, rows, centring, state, found):
            assert (grid, points.dtype, queries.dtype) == ((1, 1), dtype, "float16")
            assert self.fits_gpu
            np.testing.assert_array_equal(centring[-2:], 1)
            np.testing.assert_array_equal(rows[:, 1:], 0)
            sums, count = summed(queries, points, bits, together), np.asarray(rows)[:, 3].view(np.int32)
            for row, column in zip(*np.nonzero(sums >= np.asarray(rows)[:, :1]), strict=True):
                found[row, count[row], 0], count[row] = column, count[row] + 1

        monkeypatch.setattr(small_batch.SmallBatchSearch, "find_near", find_near)
        assert small_batch._keeps_bound(dtype, 0) == is_precise


@SUMS
def test_products_of_cublas_are_tried(bits, together, is_precise, monkeypatch, set_constants):
    with fake_gpu(80):
        from rapids_slink.neighbors.filter import cuda

        set_constants(cuda, PROBED_ROWS=40, PROBED_POINTS=50)

        def form_product(a, b, out):
            assert a.dtype == b.dtype == "float16"
            out[:] = summed(a, b, bits, together)

        monkeypatch.setattr(cuda, "form_product", form_product)
        assert cuda.products_keep_bound() == is_precise


def test_a_gpu_is_tried_once(watch):
    with fake_gpu(80, count=2):
        from rapids_slink.neighbors.filter import cuda

        tried = watch(cuda, "form_product", lambda *_: cuda.current_gpu())
        for _ in range(3):
            assert not cuda.products_keep_bound()
            with cuda.cp.cuda.Device(1):
                assert not cuda.products_keep_bound()
        assert tried == [0, 1]


@pytest.fixture(params=["wgmma", "mma", full("mma, one stage")])
def encodings(request, fused_body, monkeypatch):
    """The module that tries each body of the fused kernel, without what it knows."""
    encodings = fused_body(request.param)
    monkeypatch.setattr(encodings, "_fp16_keeps_bound", encodings._fp16_keeps_bound.__wrapped__)
    return encodings


@pytest.mark.gpu
def test_this_gpu_keeps_the_bound(encodings, monkeypatch):
    """And would not if its sums were smaller or larger by more than is allowed."""
    assert encodings.fp16_keeps_bound()
    append, (least, largest) = encodings.append_survivors, allowed_range(*revealing_pairs(encodings.TRIED_FEATURES))
    allowed = np.tile((largest.astype(float) - least) / 2, 2)
    for off in (-1.5, 1.5):

        def shifted(rows, *rest, off=off):
            half_norm = to_host(rows.half_norm)
            half_norm[: allowed.size] += off * allowed
            append(replace(rows, half_norm=resolve("cuda").asarray(half_norm)), *rest)

        monkeypatch.setattr(encodings, "append_survivors", shifted)
        assert not encodings.fp16_keeps_bound()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_other_kernels_keep_the_bound(dtype):
    from rapids_slink.neighbors import small_batch
    from rapids_slink.neighbors.filter import cuda

    assert cuda.products_keep_bound()
    if not small_batch.SmallBatchSearch(1, 1, 1, EUCLIDEAN).is_supported:
        pytest.skip("needs compute capability 8.0")
    assert small_batch._keeps_bound(dtype, 0)


@pytest.fixture
def without_fp16(monkeypatch):
    monkeypatch.setattr("rapids_slink.neighbors.filter.fused._fp16_keeps_bound", lambda hopper, gpu: False)


def assert_exact(X, k=5, **expected):
    """The lists of a search, and counts of its report."""
    report, engine = Report(), resolve("cuda")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    counts = {"filter": search.name}
    lists = neighbor_lists(search, len(X), k, engine)
    counts |= report["neighbors"]
    if X.shape[1] < 2000:
        assert_lists(lists, least(without_self(squared_distances(X.astype(float))), k))
    assert {name: counts[name] for name in expected} == expected
    return counts


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["normal", "any", "clusters", "far clusters"])
def test_int8_serves_where_fp16_does_not(kind, without_fp16):
    """What it leaves open is compared with all points."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 40)) if kind in ("normal", "far clusters") else BYTES[kind](rng, 3000, 40)
    if kind == "far clusters":  # of which int8 tells no points apart, and fp16 would
        X += 1e6 * rng.integers(0, 2, (3000, 1))
    counts = assert_exact(X.astype(np.float64), filter="int8 tensor cores (fused)")
    if kind == "far clusters":
        assert counts["rows_scanned_exactly"] > 0


@pytest.mark.gpu
def test_no_filter_serves_more_features_than_int8_has_without_fp16(without_fp16):
    X = np.random.default_rng(0).normal(size=(600, 5000)).astype(np.float32)
    assert_exact(X, filter="none", rows_scanned_exactly=600)


@pytest.mark.gpu
@pytest.mark.parametrize("clusters", [1, 20])
def test_first_bounds_without_products(clusters, monkeypatch, watch, set_costs):
    """By distances, and components are connected by rounds of searches."""
    from rapids_slink import SingleLinkage
    from rapids_slink.neighbors.filter import cuda

    monkeypatch.setattr(cuda, "products_keep_bound", lambda: False)
    formed = watch(cuda, "product")
    set_costs(look=0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 40)) + 100 * rng.normal(size=(clusters, 40))[rng.integers(0, clusters, 4000)]
    assert_exact(X)
    found, expected = (SingleLinkage(n_clusters=3, device=device).fit(X) for device in ("cuda", "cpu"))
    np.testing.assert_array_equal(found.linkage_, expected.linkage_)
    assert "joined_at_once" not in found.report_.get("connect", {})
    assert not formed


@pytest.mark.gpu
def test_few_queries_without_products(monkeypatch):
    from rapids_slink.neighbors import small_batch

    X, Y = np.random.default_rng(0).normal(size=(2, 3000, 20))
    expected = nearest_neighbors(X[:100], Y, device="cpu")
    monkeypatch.setattr(small_batch, "_keeps_bound", lambda *_: False)
    assert nearest_neighbors(X[:100], Y, device="cuda").equals(expected)

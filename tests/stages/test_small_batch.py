"""The nearest point of few queries on a GPU: the edges against all distances in float64, and the filter's proof."""

from types import SimpleNamespace

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes, combinations, full, shape
from oracles import least, squared_distances
from rounding_cases import rows_hard_to_round

from rapids_slink import nearest_neighbors
from rapids_slink.forced import force
from rapids_slink.metrics import EUCLIDEAN, METRICS
from rapids_slink.neighbors.filter import accumulation_bound
from rapids_slink.runtime.device import to_host

pytestmark = pytest.mark.gpu
DTYPES = pytest.mark.parametrize("dtype", ["float32", full("float64")])
#: Cases of which fp16 has no picture: some numbers are far out of a sample's range.
UNSUITED = {"magnitude_1e_30", "magnitude_1e30", "largest_magnitude", "exponential_gaps", "exponential_gaps_12d"}
#: The others that shared memory is enough for.
SUITED = [given for given in case_dtypes() if (name := getattr(given, "values", given)[0]) not in UNSUITED
          and shape(name)[1] <= 400]  # fmt: skip


@pytest.fixture
def small_batch():
    """The launchers, where the GPU has what they need."""
    from rapids_slink.neighbors import small_batch

    if not small_batch.SmallBatchSearch(1, 1, 1, EUCLIDEAN).is_supported:
        pytest.skip("needs compute capability 8.0")
    for dtype in ("float32", "float64"):  # which is tried once, before a test changes what the module has
        assert small_batch._keeps_bound(dtype, 0)
    return small_batch


def written(search, X, Y):
    """What is written for (src, dst, distance), or None if it is not proven."""
    import cupy

    m = len(X)
    out = cupy.full(m, -7, "int32"), cupy.full(m, -7, "int32"), cupy.empty(m)
    proven = search.write_edges(cupy.asarray(X), cupy.asarray(Y), *out)
    return [to_host(part) for part in out] if proven else None


def edges(small_batch, X, Y, metric=EUCLIDEAN):
    """The edges of a `SmallBatchSearch`, None if they are not proven."""
    search = small_batch.SmallBatchSearch(len(X), *Y.shape, metric)
    assert search.is_supported
    return written(search, X, Y)


def assert_edges(found, X, Y, root=True):
    ids, weights = least(squared_distances(X, Y), 1)
    np.testing.assert_array_equal(found[0], np.arange(len(X)))
    np.testing.assert_array_equal(found[1], ids[:, 0])
    np.testing.assert_array_equal(found[2], np.sqrt(weights[:, 0]) if root else weights[:, 0])


def columns(frame):
    return [frame[column].to_numpy() for column in ("src", "dst", "weight")]


@DTYPES
@pytest.mark.parametrize(
    ("m", "n", "d"),
    [
        (1, 1, 1), (1, 5, 3), (3, 1000, 7), (128, 128, 16), (129, 5000, 65), (257, 3000, 33), (5, 9001, 17),
        (2000, 129, 100), (1000, 700, 64), (64, 4000, 480), (300, 2000, 259), (1000, 20_000, 100), (700, 9000, 200),
        (1100, 16_000, 130),
    ],
)  # fmt: skip
def test_edges_of_every_size(m, n, d, dtype, small_batch):
    """The last have blocks of several tiles of queries and several stages each, and shares that differ."""
    rng = np.random.default_rng(m + n + d)
    X, Y = rng.normal(size=(m, d)).astype(dtype), rng.normal(size=(n, d)).astype(dtype)
    assert_edges(edges(small_batch, X, Y), X, Y)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_edges_of_hard_cases(name, dtype, small_batch):
    """Proven or not: what is not proven is searched in another way."""
    X = CASES[name](dtype)[:1500]
    queries, points = X[::7], X[len(X) % 5 :: 2] if len(X) > 3 else X
    if X.shape[1] <= 400 and (found := edges(small_batch, queries, points)) is not None:
        assert_edges(found, queries, points)
    assert_edges(columns(nearest_neighbors(queries, points, device="cuda")), queries, points)


@pytest.mark.parametrize("name", ["images", "offset_1e4", "integer_grid_10d", "simplex"])
def test_these_are_proven_at_once(name, small_batch):
    X = CASES[name]("float64")[:1500]
    assert edges(small_batch, X[::7], X) is not None


@pytest.mark.parametrize("order", ["ascending", "descending", "clusters"])
def test_points_in_an_unlucky_order(order, small_batch):
    """A point is kept if it is nearer than those seen before; blocks of points are from all over."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(20_000, 24))
    if order == "clusters":
        Y = np.repeat(rng.normal(size=(1000, 24)), 20, axis=0) + 1e-2 * Y
        X = Y[::100] + 1e-3
    else:
        Y, X = Y[np.argsort((Y * Y).sum(axis=1))], np.zeros((3, 24))
        Y = Y if order == "ascending" else Y[::-1].copy()
    assert_edges(edges(small_batch, X, Y), X, Y)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("start", [0, 1])
def test_rows_that_start_anywhere_and_equal_distances(start, metric, small_batch):
    """Numbers of a few values, so that many points are equally near: the first is taken."""
    import cupy

    rng = np.random.default_rng(start)
    numbers = rng.integers(0, 4, 3000 * 8 + 1).astype(np.float32)
    held = cupy.asarray(numbers)[start : start + 3000 * 8].reshape(3000, 8)
    Y = to_host(held)
    X = Y[:50] + np.float32(0.25)
    assert_edges(edges(small_batch, X, held, METRICS[metric]), X, Y, root=metric == "euclidean")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(np.nan, "float64"), (np.inf, "float32"), (-np.inf, "float64"), (1e200, "float64"), (3e38, "float32")],
)
@pytest.mark.parametrize("row", [0, -1])  # the first is in the sample of the points
@pytest.mark.parametrize("where", ["query", "point"])
def test_rows_beyond_fp16_are_not_proven(where, row, value, dtype, small_batch):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 20)).astype(dtype), rng.normal(size=(3000, 20)).astype(dtype)
    (X if where == "query" else Y)[row, 3] = value
    assert edges(small_batch, X, Y) is None


def test_more_candidates_than_there_is_room_for(small_batch, prescribe):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 20)), rng.normal(size=(3000, 20))
    assert edges(small_batch, X, Y) is not None
    assert edges(small_batch, X, np.ones((3000, 20))) is None
    most = small_batch.MAX_CANDIDATES
    assert_edges(edges(small_batch, X[:1], np.ones((most, 20))), X[:1], np.ones((most, 20)))
    assert edges(small_batch, X[:1], np.ones((most + 1, 20))) is None
    prescribe(candidates=1)
    assert edges(small_batch, X, Y) is None


def test_what_is_supported(small_batch):
    def supported(m, n, d, metric="euclidean"):
        return small_batch.SmallBatchSearch(m, n, d, METRICS[metric]).is_supported

    assert supported(1000, 1000, 300)
    assert supported(1000, 1000, 300, "sqeuclidean")
    assert not supported(1000, 1000, 10_000)  # shared memory
    assert not supported(1_000_000, 1_000_000, 10)
    assert not supported(1000, 1000, 300, "cosine")


@pytest.fixture
def proven(small_batch, watch):
    """Whether each search for few queries was proven, in turn."""
    return watch(small_batch.SmallBatchSearch, "write_edges", lambda result, *_: result)


def test_both_searches_agree(small_batch, proven, prescribe):
    """Proven at once, not proven and so searched in the other way, and that way from the start."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(700, 40)), rng.normal(size=(9000, 40))
    quick = nearest_neighbors(X, Y, device="cuda")
    assert_edges(columns(quick), X, Y)
    prescribe(candidates=1)
    assert nearest_neighbors(X, Y, device="cuda").equals(quick)
    assert proven == [True, False]
    prescribe(search="all pairs")
    assert nearest_neighbors(X, Y, device="cuda").equals(quick)
    assert proven == [True, False]


def test_many_queries_are_not_few(proven):
    """The candidates of each take more memory than the other search."""
    rng, Y = np.random.default_rng(0), np.eye(5, 9, dtype=np.float32)
    for m, expected in ((1_200_000, []), (30_000, [True])):
        X = rng.normal(size=(m, 9)).astype(np.float32)
        assert_edges(columns(nearest_neighbors(X, Y, device="cuda")), X, Y)
        assert proven == expected


class Launches:
    """What the kernels of one search were given, and so what they left in memory."""

    def __init__(self, small_batch, monkeypatch):
        launch_blocks = small_batch.launch_blocks

        def noted(source, kernel, grid, threads, *given, **more):
            if kernel == "quantize_queries":
                *_, self.rows, self.centring, self.state = given
            if kernel == "rerank_near":
                self.candidates = given[5]
            launch_blocks(source, kernel, grid, threads, *given, **more)

        monkeypatch.setattr(small_batch, "launch_blocks", noted)


def constants(search):
    """Of nearest.cu's `Search`: how norms are rounded, the terms of the upper bound, those of the radius."""
    fields = search._search().tolist()
    assert len(fields) == 25
    return fields[8:12], fields[12:18], fields[18:]


def all_pairs(small_batch, X, Y, monkeypatch):
    """All pairs as the filter sees them, by an upper bound that tightens nothing; None if the numbers do not suit."""
    search = small_batch.SmallBatchSearch(len(X), *Y.shape, EUCLIDEAN)
    known, upper_bound = constants(search), small_batch.UpperBound
    endless = SimpleNamespace(of=lambda *given: upper_bound.of(*given)._replace(factor=np.inf))
    monkeypatch.setattr(small_batch, "UpperBound", endless)
    launches = Launches(small_batch, monkeypatch)
    with force(candidates=len(Y)):
        if written(search, X, Y) is None:
            return None
    m, centring = len(X), to_host(launches.centring)
    rows, candidates = to_host(launches.rows)[:m], to_host(launches.candidates)[:m]
    assert (rows[:, 3].view(np.int32) == len(Y)).all()
    ids, product = candidates[:, :, 0], candidates[:, :, 1].copy().view(np.float32)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.tile(np.arange(len(Y)), (m, 1)))
    return known, rows, ids, product, centring, to_host(launches.state).view(np.float32)[0]


def filter_radius(terms, distances, scale, error):
    """How far a query looks for a squared distance."""
    rounding, stretch, factor, more, _, round_up, tiny = terms
    root = np.sqrt((distances + rounding) * stretch) * factor + more
    return np.float32(error + (scale * root * round_up + tiny))


def assert_proof(small_batch, X, Y, monkeypatch):
    """No pair fails the test at its own distance, and none is above its upper bound."""
    found = all_pairs(small_batch, X, Y, monkeypatch)
    (_, upper_bound, radius_terms), rows, ids, product, centring, error = found
    d = X.shape[1]
    scale, inverse = centring[d : d + 2]
    assert scale * inverse == 1
    distances = np.take_along_axis(squared_distances(X, Y), ids, axis=1)
    half_norm, own_error = (rows[:, c].astype(np.float64)[:, None] for c in (0, 1))
    # In float32, as the kernel has it; a fused multiply-add rounds less.
    both = filter_radius(radius_terms, distances, scale, own_error) + error
    assert (product >= np.float32(half_norm) - both * both).all()
    norm_slack, absolute_slack, unscale, more, factor, off = upper_bound
    half = half_norm - product
    longest = half_norm[:, 0].max() + squared_distances(Y * scale, centring[:d][None] * scale).max() / 2
    slack = norm_slack * longest * (1 + 2.0**-10) + absolute_slack
    square = np.maximum(half + np.abs(half) * 2.0**-22 + slack, 0)
    distance = (np.sqrt(square) + error + own_error) * unscale * inverse * (1 + 2.0**-20) + more
    assert (distances <= distance * distance * factor + off).all()


@pytest.mark.parametrize(("name", "dtype"), SUITED)
def test_proof_of_hard_cases(name, dtype, small_batch, monkeypatch):
    X = CASES[name](dtype)
    X = X[:: max(1, len(X) // 120)]
    assert_proof(small_batch, X[:90], X, monkeypatch)


@pytest.mark.parametrize(("name", "dtype"), combinations(
    sorted(UNSUITED), ("float32", "float64"), quick=[("magnitude_1e30", "float32"), ("exponential_gaps", "float64")]
))  # fmt: skip
def test_numbers_that_do_not_suit_fp16(name, dtype, small_batch, monkeypatch):
    X = CASES[name](dtype)
    X = X[:: max(1, len(X) // 120)]
    assert all_pairs(small_batch, X[:90], X, monkeypatch) is None


def suits_fp16(X):
    """Whether no row is far beyond the 32 from all over that the scale is taken from."""
    sample = X[:: len(X) // min(len(X), 32)][:32].astype(np.float64)
    spread = np.ptp(sample, axis=0).max()
    scale = 1.0
    if spread >= 2.0**-126:  # of float32, whose smaller numbers CuPy makes zeros of
        if not 2.0**-50 <= spread < 2.0**100:
            return False
        scale = 2.0 ** (7 - np.floor(np.log2(spread)))
    with np.errstate(over="ignore"):
        y = ((X - sample.mean(axis=0)) * scale).astype(np.float16).astype(np.float64)
    return bool(((y * y).sum(axis=1) < 1e13).all())


@pytest.mark.parametrize(("name", "dtype"), SUITED)
def test_queries_look_as_far_as_their_nearest(name, dtype, small_batch, monkeypatch):
    """How far each looks in the end is not less, and its nearest is among its candidates."""
    X = CASES[name](dtype)[:1500]
    queries = X[::11]
    search = small_batch.SmallBatchSearch(len(queries), *X.shape, EUCLIDEAN)
    launches = Launches(small_batch, monkeypatch)
    found = written(search, queries, X)
    if not suits_fp16(X):
        assert found is None
        return
    rows, candidates, centring = map(to_host, (launches.rows, launches.candidates, launches.centring))
    m, d, radius_terms = len(queries), X.shape[1], constants(search)[2]
    ids, distances = least(squared_distances(queries, X), 1)
    own_error = rows[:m, 1].astype(np.float64)
    assert (rows[:m, 2] >= filter_radius(radius_terms, distances[:, 0], centring[d], own_error)).all()
    count = rows[:m, 3].view(np.int32)
    assert (count > 0).all()
    assert (found is None) == (count > candidates.shape[1]).any()
    for i in np.flatnonzero(count <= candidates.shape[1]):
        assert ids[i, 0] in candidates[i, : count[i], 0]


@pytest.mark.parametrize("d", [1, 64, *map(full, (7, 480))])
def test_proof_where_rounding_is_worst(d, small_batch, monkeypatch):
    X = rows_hard_to_round(np.random.default_rng(d), d)
    assert_proof(small_batch, X, X, monkeypatch)


@DTYPES
@pytest.mark.parametrize("d", [1, 100, *map(full, (8, 480))])
def test_products_norms_and_errors_are_what_they_claim(d, dtype, small_batch, monkeypatch):
    """Against float64, of the numbers rounded to fp16: each is off, its way, by no more than its bound."""
    rng = np.random.default_rng(d)
    X, Y = (rng.normal(size=(count, d)).astype(dtype) + 3 for count in (40, 100))
    (rounding, *_), rows, ids, product, centring, error = all_pairs(small_batch, X, Y, monkeypatch)
    scale = centring[d]
    z = [(part.astype(np.float64) - centring[:d]) * scale for part in (X, Y)]
    x, y = (part.astype(dtype).astype(np.float16).astype(np.float64) for part in z)
    norm, moved = (x * x).sum(axis=1), np.sqrt(((x - z[0]) ** 2).sum(axis=1) / 2)
    assert (rows[:, 0] <= norm / 2).all()
    assert (rows[:, 0] >= norm / 2 * (1 - 2.0**-12)).all()
    assert (rows[:, 1] >= moved).all()
    assert (rows[:, 1] <= moved * 1.01 + np.sqrt(norm) * 2.0**-20 + 1e-12).all()
    assert error >= np.sqrt(((y - z[1]) ** 2).sum(axis=1) / 2).max()
    half = (y * y).sum(axis=1) * rounding[0] * rounding[1]
    exact = np.take_along_axis(x @ y.T - half, ids, axis=1)
    eta = accumulation_bound(d + 8)
    allowed = eta * (np.sqrt(norm)[:, None] * np.sqrt((y * y).sum(axis=1))[ids] + 2 * half[ids])
    assert (np.abs(product - exact) <= allowed).all()

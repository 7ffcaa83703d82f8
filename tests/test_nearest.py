"""The nearest column of few queries on a GPU: the edges against all distances in float64, and the filter's proof."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hard_cases import CASES
from test_neighbors import least, rows_hard_to_round, squares

from rapids_slink import nearest_neighbors, neighbors
from rapids_slink.device import to_host
from rapids_slink.metrics import EUCLIDEAN, METRICS, accumulation_bound
from rapids_slink.neighbors.operand import EXTRA_FEATURES

pytestmark = pytest.mark.gpu
DTYPES = ["float32", "float64"]
#: Cases of which fp16 has no picture: some numbers are far out of a sample's range.
UNSUITED = {"magnitude_1e_30", "magnitude_1e30", "largest_magnitude", "exponential_gaps", "exponential_gaps_12d"}


@pytest.fixture
def few():
    """The launchers, where the GPU has what they need."""
    cupy = pytest.importorskip("cupy")
    if not cupy.is_available():
        pytest.skip("no usable NVIDIA GPU")
    from rapids_slink.neighbors import nearest

    if not nearest.FewQueries(1, 1, 1, EUCLIDEAN, "float32").serves:
        pytest.skip("needs compute capability 8.0")
    return nearest


def written(search, X, Y):
    """What is written for (src, dst, distance), whether it is proven, and what is left in memory."""
    import cupy

    m = len(X)
    out = cupy.full(m, -7, "int32"), cupy.full(m, -7, "int32"), cupy.empty(m)
    proven, found = search.write(cupy.asarray(X), cupy.asarray(Y), *(part.data.ptr for part in out))
    return out, proven(), found


def edges(few, X, Y, metric=EUCLIDEAN):
    """The edges of `FewQueries`, None if they are not proven."""
    search = few.FewQueries(len(X), *Y.shape, metric, Y.dtype.name)
    assert search.serves
    out, proven, _ = written(search, X, Y)
    return [to_host(part) for part in out] if proven else None


def assert_edges(found, X, Y, root=True):
    ids, weights = least(squares(X, Y), 1)
    np.testing.assert_array_equal(found[0], np.arange(len(X)))
    np.testing.assert_array_equal(found[1], ids[:, 0])
    np.testing.assert_array_equal(found[2], np.sqrt(weights[:, 0]) if root else weights[:, 0])


# ------------------------------------------------------------------------------------------------ the edges


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "n", "d"),
    [
        (1, 1, 1), (1, 5, 3), (3, 1000, 7), (128, 128, 16), (129, 5000, 65), (257, 3000, 33), (5, 9001, 17),
        (2000, 129, 100), (1000, 700, 64), (64, 4000, 480), (300, 2000, 259), (1000, 20_000, 100), (700, 9000, 200),
        (1100, 16_000, 130),
    ],
)  # fmt: skip
def test_edges_of_every_size(m, n, d, dtype, few):
    """The last have blocks of several tiles of queries and several stages each, and shares that differ."""
    rng = np.random.default_rng(m + n + d)
    X, Y = rng.normal(size=(m, d)).astype(dtype), rng.normal(size=(n, d)).astype(dtype)
    assert_edges(edges(few, X, Y), X, Y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_edges_of_every_hard_case(name, dtype, few, device):
    """Proven or not: what is not proven is searched in another way."""
    X = CASES[name](dtype)[:1500]
    queries, points = X[::7], X[len(X) % 5 :: 2] if len(X) > 3 else X
    if X.shape[1] <= 400 and (found := edges(few, queries, points)) is not None:
        assert_edges(found, queries, points)
    frame = nearest_neighbors(queries, points, device=device)
    assert_edges([frame[column].to_numpy() for column in ("src", "dst", "weight")], queries, points)


@pytest.mark.parametrize("name", ["images", "offset_1e4", "integer_grid_10d", "simplex"])
def test_these_are_proven_at_once(name, few):
    X = CASES[name]("float64")[:1500]
    assert edges(few, X[::7], X) is not None


@pytest.mark.parametrize("order", ["ascending", "descending", "clusters"])
def test_columns_in_an_unlucky_order(order, few):
    """A column is kept if it is nearer than those seen before; blocks of columns are from all over."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(20_000, 24))
    if order == "clusters":
        Y = np.repeat(rng.normal(size=(1000, 24)), 20, axis=0) + 1e-2 * Y
        X = Y[::100] + 1e-3
    else:
        Y, X = Y[np.argsort((Y * Y).sum(axis=1))], np.zeros((3, 24))
        Y = Y if order == "ascending" else Y[::-1].copy()
    assert_edges(edges(few, X, Y), X, Y)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("start", [0, 1])
def test_rows_that_start_anywhere_and_equal_distances(start, metric, few):
    """Numbers of a few values, so that many columns are equally near: the first is taken."""
    import cupy

    rng = np.random.default_rng(start)
    numbers = rng.integers(0, 4, 3000 * 8 + 1).astype(np.float32)
    held = cupy.asarray(numbers)[start : start + 3000 * 8].reshape(3000, 8)
    Y = to_host(held)
    X = Y[:50] + np.float32(0.25)
    assert_edges(edges(few, X, held, METRICS[metric]), X, Y, root=metric == "euclidean")


# ------------------------------------------------------------------------------------------ what is not proven


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(np.nan, "float64"), (np.inf, "float32"), (-np.inf, "float64"), (1e200, "float64"), (3e38, "float32")],
)
@pytest.mark.parametrize("row", [0, -1])  # the first is in the sample of the columns
@pytest.mark.parametrize("place", ["query", "column"])
def test_rows_beyond_fp16_are_not_proven(place, row, value, dtype, few):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 20)).astype(dtype), rng.normal(size=(3000, 20)).astype(dtype)
    (X if place == "query" else Y)[row, 3] = value
    assert edges(few, X, Y) is None


def test_more_columns_than_are_kept(few, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 20)), rng.normal(size=(3000, 20))
    assert edges(few, X, Y) is not None
    assert edges(few, X, np.ones((3000, 20))) is None
    room = few.MOST_KEPT
    assert_edges(edges(few, X[:1], np.ones((room, 20))), X[:1], np.ones((room, 20)))
    assert edges(few, X[:1], np.ones((room + 1, 20))) is None
    monkeypatch.setattr(few, "LEAST_KEPT", 1)
    monkeypatch.setattr(few, "MOST_KEPT", 1)
    assert edges(few, X, Y) is None


def test_who_is_served(few):
    assert few.FewQueries(1000, 1000, 300, EUCLIDEAN, "float32").serves
    assert not few.FewQueries(1000, 1000, 10_000, EUCLIDEAN, "float32").serves  # shared memory
    assert not few.FewQueries(1_000_000, 1_000_000, 10, EUCLIDEAN, "float32").serves


@pytest.fixture
def ways(monkeypatch):
    """Whether each search for few queries was proven, in turn."""
    found, search = [], neighbors._written_for_few
    monkeypatch.setattr(neighbors, "_written_for_few", lambda *given: found.append(search(*given)) or found[-1])
    return found


@pytest.mark.parametrize("spilling", [False, True])
def test_both_ways_agree(spilling, device, few, ways, monkeypatch):
    """Proven at once, not proven and so searched in the other way, and that way from the start."""
    if device == "cpu":
        pytest.skip("a GPU has two ways")
    cudf = pytest.importorskip("cudf")
    if spilling:  # a frame is then made when its columns are there
        option = cudf.get_option
        monkeypatch.setattr(cudf, "get_option", lambda name: name == "spill" or option(name))
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(700, 40)), rng.normal(size=(9000, 40)).astype(np.float32)
    quick = nearest_neighbors(X, Y, device=device)
    monkeypatch.setattr(neighbors, "_plan", neighbors._plan.__wrapped__)  # none of these is remembered
    monkeypatch.setattr(few, "LEAST_KEPT", 1)
    monkeypatch.setattr(few, "MOST_KEPT", 1)
    assert nearest_neighbors(X, Y, device=device).equals(quick)
    assert ways == [True, False]
    monkeypatch.setattr(few, "MOST_WORK", 0)
    assert nearest_neighbors(X, Y, device=device).equals(quick)
    assert ways == [True, False]


def test_threads_share_what_stands_ready(few, ways):
    """Their searches are of different sizes, in one memory."""
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    sizes = [(1 + 97 * i, 5000 + 100 * i, 8 + 16 * i) for i in range(6)]
    given = [[cupy.asarray(rng.normal(size=(rows, d)), "float32") for rows in (m, n)] for m, n, d in sizes]
    assert all(few.FewQueries(m, n, d, EUCLIDEAN, "float32").need.peak == 0 for m, n, d in sizes)
    expected = [nearest_neighbors(X, Y) for X, Y in given]

    def again(i):
        return nearest_neighbors(*given[i % 6]).equals(expected[i % 6])

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(again, range(300)))
    assert ways == [True] * 306


def test_many_queries_are_not_few(device, few, ways):
    """Where memory is limited: the room for what is kept of each is more than the other way takes."""
    if device == "cpu":
        pytest.skip("a GPU has two ways")
    X, Y = np.random.default_rng(0).normal(size=(300_000, 9)).astype(np.float32), np.eye(5, 9, dtype=np.float32)
    for limit, expected in (("1GiB", []), (None, [True])):
        found = nearest_neighbors(X, Y, device=device, memory_limit=limit)
        assert_edges([found[column].to_numpy() for column in ("src", "dst", "weight")], X, Y)
        assert ways == expected


# ------------------------------------------------------------------------------------------ the filter's proof


def everything_kept(few, X, Y, monkeypatch):
    """All pairs as the filter sees them, by a ceiling that lowers nothing; None if the numbers do not suit it."""
    monkeypatch.setattr(few, "LEAST_KEPT", len(Y))
    monkeypatch.setattr(few, "MOST_KEPT", len(Y))
    search = few.FewQueries(len(X), *Y.shape, EUCLIDEAN, Y.dtype.name)
    rounding, ceiling, reach = constants = search._constants
    *numbers, _, off = ceiling
    monkeypatch.setitem(vars(search), "_constants", (rounding, (*numbers, np.inf, off), reach))
    *_, found = written(search, X, Y)
    m = len(X)
    rows, kept, frame = to_host(found.rows)[:m], to_host(found.kept)[:m], to_host(found.frame)
    if to_host(found.state)[1]:
        return None
    assert (rows[:, 3].view(np.int32) == len(Y)).all()
    ids, near = kept[:, :, 0], kept[:, :, 1].copy().view(np.float32)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.tile(np.arange(len(Y)), (m, 1)))
    return constants, rows, ids, near, frame, to_host(found.state).view(np.float32)[0]


def looks(reach, apart, scale, error):
    """How far a query looks for a kernel value."""
    off, stretch, longer, more, _, grow, tiny = reach
    return np.float32(error + (scale * (np.sqrt((apart + off) * stretch) * longer + more) * grow + tiny))


def assert_proof(few, X, Y, monkeypatch):
    """No pair fails the test at its own distance, and none is above its ceiling."""
    (_, ceiling, reach), rows, ids, near, frame, error = everything_kept(few, X, Y, monkeypatch)
    d = X.shape[1]
    scale, inverse = frame[d : d + 2]
    assert scale * inverse == 1
    apart = np.take_along_axis(squares(X, Y), ids, axis=1)
    half_norm, own_error = (rows[:, c].astype(np.float64)[:, None] for c in (0, 1))
    # In float32, as the kernel has it; a fused multiply-add rounds less.
    both = looks(reach, apart, scale, own_error) + error
    bound = np.float32(half_norm) - both * both
    assert (near >= bound).all()
    excess, lost, unscale, more, factor, off = ceiling
    half = half_norm - near
    longest = (half_norm[:, 0].max() + squares(Y * scale, frame[:d][None] * scale).max() / 2) * (1 + 2.0**-10)
    square = np.maximum(half + np.abs(half) * 2.0**-22 + excess * longest + lost, 0)
    distance = (np.sqrt(square) + error + own_error) * unscale * inverse * (1 + 2.0**-20) + more
    assert (apart <= distance * distance * factor + off).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_proof_of_every_hard_case(name, dtype, few, monkeypatch):
    X = CASES[name](dtype)
    if X.shape[1] > 400:
        pytest.skip("too many features")
    X = X[:: max(1, len(X) // 120)]
    if name in UNSUITED:
        assert everything_kept(few, X[:90], X, monkeypatch) is None
    else:
        assert_proof(few, X[:90], X, monkeypatch)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(set(CASES) - UNSUITED))
def test_queries_look_as_far_as_their_nearest(name, dtype, few):
    """How far each looks in the end is not less, and its nearest is among what is kept."""
    X = CASES[name](dtype)[:1500]
    queries = X[::11]
    if X.shape[1] > 400:
        pytest.skip("too many features")
    search = few.FewQueries(len(queries), *X.shape, EUCLIDEAN, X.dtype.name)
    *_, found = written(search, queries, X)
    rows, kept, frame = (to_host(part) for part in (found.rows, found.kept, found.frame))
    m, d, reach = len(queries), X.shape[1], search._constants[2]
    if to_host(found.state)[1]:
        pytest.skip("numbers that do not suit fp16")
    ids, apart = least(squares(queries, X), 1)
    assert (rows[:m, 2] >= looks(reach, apart[:, 0], frame[d], rows[:m, 1].astype(np.float64))).all()
    count = rows[:m, 3].view(np.int32)
    assert (count > 0).all()
    for i in np.flatnonzero(count <= kept.shape[1]):
        assert ids[i, 0] in kept[i, : count[i], 0]


@pytest.mark.parametrize("d", [1, 7, 64, 480])
def test_proof_where_rounding_is_worst(d, few, monkeypatch):
    X = rows_hard_to_round(np.random.default_rng(d), d)
    assert_proof(few, X, X, monkeypatch)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 8, 100, 480])
def test_products_norms_and_errors_are_what_they_claim(d, dtype, few, monkeypatch):
    """Against float64, of the numbers rounded to fp16: each is off, its way, by no more than its bound."""
    rng = np.random.default_rng(d)
    X, Y = (rng.normal(size=(count, d)).astype(dtype) + 3 for count in (40, 100))
    (rounding, *_), rows, ids, near, frame, error = everything_kept(few, X, Y, monkeypatch)
    scale = frame[d]
    z = [(part.astype(np.float64) - frame[:d]) * scale for part in (X, Y)]
    x, y = (part.astype(dtype).astype(np.float16).astype(np.float64) for part in z)
    norm, moved = (x * x).sum(axis=1), np.sqrt(((x - z[0]) ** 2).sum(axis=1) / 2)
    assert (rows[:, 0] <= norm / 2).all()
    assert (rows[:, 0] >= norm / 2 * (1 - 2.0**-12)).all()
    assert (rows[:, 1] >= moved).all()
    assert (rows[:, 1] <= moved * 1.01 + np.sqrt(norm) * 2.0**-20 + 1e-12).all()
    assert error >= np.sqrt(((y - z[1]) ** 2).sum(axis=1) / 2).max()
    half = (y * y).sum(axis=1) * float(rounding[0]) * float(rounding[1])
    exact = np.take_along_axis(x @ y.T - half, ids, axis=1)
    eta = accumulation_bound(d + EXTRA_FEATURES, "float32")
    allowed = eta * (np.sqrt(norm)[:, None] * np.sqrt((y * y).sum(axis=1))[ids] + 2 * half[ids])
    assert (np.abs(near - exact) <= allowed).all()
    print(f"{d} features: worst {float((np.abs(near - exact) / allowed).max()):.3g} of what is allowed")

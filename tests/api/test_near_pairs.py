"""Pairs within a distance: against brute force, in every kind of input, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, SOME, case_dtypes, combinations, every, full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import ALL_METRICS, points, with_cases, without_zeros
from numba import njit
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from sklearn.cluster import DBSCAN

from rapids_slink import count_pairs, deduplicate, fit, fit_graph, iter_pairs, minimum_spanning_tree, pairs, to_csr
from rapids_slink.forced import force
from rapids_slink.metrics import METRICS, OVERFLOW, distances, get_metric, largest_distance
from rapids_slink.neighbors import within
from rapids_slink.neighbors.exact import formulas, kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.within import Limit
from rapids_slink.neighbors.within import cpu as within_cpu
from rapids_slink.points.output import on_device
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.runtime.memory import DeviceMemoryError


def all_weights(X, metric="euclidean", p=2.0):
    """The distance of each pair of rows as `fit` reports it, without any search: src, dst, weight, sorted.

    Infinite beyond float64, where `fit` refuses it.
    """
    metric = get_metric(metric, p)
    src, dst = (ends.astype(np.int32) for ends in np.triu_indices(len(X), 1))
    rows = metric_rows(metric, X, CPU)
    surrogate, weight = kernels(CPU).pair_distances(rows, src, dst, metric), np.full(src.size, np.inf)
    fits = surrogate < OVERFLOW
    weight[fits] = distances(metric, surrogate[fits], (src[fits], dst[fits]), (X, X), CPU)
    return src, dst, weight


def columns(frame):
    return tuple(to_host(frame[name].values) for name in ("src", "dst", "weight"))


def assert_pairs(frame, expected, t):
    kept = expected[2] <= t
    assert [str(dtype) for dtype in frame.dtypes] == ["int32", "int32", "float64"]
    for found, column in zip(columns(frame), expected, strict=True):
        np.testing.assert_array_equal(found, column[kept])


def thresholds(weight):
    """Some of the distances themselves: ties at the bound; one between two, and none."""
    weight = weight[np.isfinite(weight)]
    some = np.quantile(weight, [0, 0.01, 0.2], method="nearest") if weight.size else np.array([1.0])
    return [*np.unique(some), np.nextafter(some[0], -np.inf), np.nextafter(some[-1], np.inf)]


def assert_all(X, device, metric="euclidean", p=2.0):
    expected = all_weights(X, metric, p)
    how = {"metric": metric, "p": p, "device": device}
    ts = thresholds(expected[2])
    for t in ts:
        assert_pairs(pairs(X, max_distance=t, **how), expected, t)
    counts = count_pairs(X, max_distance=ts, **how)
    assert counts.dtype == np.int64
    assert counts.tolist() == [int((expected[2] <= t).sum()) for t in ts]


#: By a tree, which points of few features have, only one kind of formula is quick.
EACH_METRIC = [
    *with_cases([("euclidean", 2.0)], "decimal_grid", "repeated_rows"),
    *with_cases([one for one in ALL_METRICS if one[0] != "euclidean"], "repeated_rows"),
]


@pytest.mark.parametrize(("metric", "p", "name"), EACH_METRIC)
def test_each_metric(metric, p, name, device):
    X = without_zeros(points(name, metric).copy(), metric)
    if METRICS[metric].rows in ("normed", "centred"):  # rows that have norms
        X = X / (3 * np.abs(X).max()) + np.arange(1, 1 + X.shape[1]) if X.shape[1] > 1 else np.abs(X) + 1
    if metric == "correlation" and X.shape[1] == 1:
        pytest.skip("one feature has no correlation")
    assert_all(X, device, metric, p)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(quick=SOME))
def test_hard_cases(name, dtype, device):
    assert_all(CASES[name](dtype)[:500], device)


FEATURES = (1, 2, 3, 8, 9, 40, 300)


@pytest.mark.parametrize(
    ("n", "d"), combinations((255, 1100), FEATURES, quick=[*((255, d) for d in FEATURES[:-1]), (1100, 3), (1100, 40)])
)
@pytest.mark.parametrize("metric", ["euclidean", "cosine", *map(full, ("chebyshev", "cityblock"))])
def test_each_search(metric, n, d, device):
    """Trees, filters and exact tiles, on a grid with many ties."""
    X = np.random.default_rng(d).integers(1, 6, (n, d)) / 4
    assert_all(X, device, metric)


@pytest.mark.parametrize("metric", ["bit_jaccard", "bit_hamming", "jaccard", "dice", "hamming", "rogerstanimoto"])
def test_bits(metric, device):
    bits = np.random.default_rng(0).random((700, 256)) < np.random.default_rng(1).uniform(0.01, 0.4, (700, 1))
    bits[::10] = bits[1::10]
    bits[:, 0] |= ~bits.any(axis=1)
    assert_all(np.packbits(bits, axis=1) if metric.startswith("bit_") else bits.astype(np.float64), device, metric)


def test_subnormal_distances(device):
    """What rounds to a distance may be half a spacing above it, which is a large part of a subnormal number."""
    X = np.array([[0.0], [3.0], [10.0]]) * 5e-324
    X = np.concatenate([X, X + 1])
    assert_all(np.tile(X, (1, 2)), device, "minkowski", 0.6)
    height = to_host(fit(X[:3], 1, metric="minkowski", p=0.6, device=device).linkage_["height"].values)
    for t in height:
        assert len(fit(X[:3], max_distance=t, metric="minkowski", p=0.6, device=device).mst_) == (height <= t).sum()


def test_angles(device):
    X = np.random.default_rng(0).uniform(-1, 1, (700, 2))
    X[::7] = X[1::7]
    assert_all(X, device, "haversine")
    assert_all(X * 1e-9, device, "haversine")


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 4), st.floats(-1, 4), st.integers(0, 2**32 - 1))
def test_any_points(device, n, d, span, t, seed):
    X = np.random.default_rng(seed).integers(0, span + 1, (n, d)).astype(float)
    assert_pairs(pairs(X, max_distance=t, device=device), all_weights(X), t)


OF_TWO_SETS = "euclidean", "cityblock", "cosine", "canberra", "minkowski", "hamming"
TWO_SIZES = (1, 700, 3), (600, 1, 3), (500, 700, 3), (500, 700, 30), (5, 4, 2)
QUICK_SETS = [("euclidean", size) for size in TWO_SIZES[:3]]
QUICK_SETS += [(metric, TWO_SIZES[3]) for metric in OF_TWO_SETS if metric != "minkowski"]


@pytest.mark.parametrize(("metric", "size"), every(OF_TWO_SETS, TWO_SIZES, quick=QUICK_SETS))
def test_two_sets(metric, size, device):
    n, m, d = size
    rng = np.random.default_rng(0)
    X, Y = rng.integers(1, 6, (n, d)) / 4, rng.integers(1, 6, (m, d)) / 4
    together = np.concatenate((X, Y))
    src, dst, weight = all_weights(together, metric, 3.0)
    across = (src < n) & (dst >= n)
    expected = src[across], dst[across] - n, weight[across]
    how = {"metric": metric, "p": 3.0, "device": device}
    for t in thresholds(expected[2]):
        assert_pairs(pairs(X, pd.DataFrame(Y), max_distance=t, **how), expected, t)
        assert count_pairs(X, Y, max_distance=t, **how) == (expected[2] <= t).sum()


def test_a_set_with_itself(device):
    """Y may be X: then these are two sets, and each row is at zero from itself."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    assert len(pairs(X, X, max_distance=0, device=device)) == 300


@pytest.mark.parametrize("missing", ["pairwise", "hiercc"])
@pytest.mark.parametrize("as_text", [False, True])
def test_missing_values(missing, as_text, device):
    rng = np.random.default_rng(0)
    X = rng.integers(1, 4, (400, 30)).astype(float)
    X[:, 1:][rng.random((400, 29)) < 0.1] = 0
    how = {"metric": "hamming", "missing": missing, "missing_value": 0, "device": device}
    height = to_host(fit(X, 1, **how).linkage_["height"].values)
    t = float(np.median(height))
    given = pd.DataFrame(X.astype(int).astype(str)) if as_text else X
    found = pairs(given, max_distance=t, **how)
    assert 400 > fit_graph(found, n_nodes=400, device=device).n_connected_components_ > 1
    tree = minimum_spanning_tree(found, device=device)
    np.testing.assert_array_equal(np.sort(to_host(tree["weight"].values)), height[height <= t])
    half = pairs(X[:150], X[150:], max_distance=t, **how)
    src, dst, weight = columns(found)
    across = (src < 150) & (dst >= 150)
    assert_pairs(half, (src[across], dst[across] - 150, weight[across]), t)


@pytest.mark.parametrize(("rows", "d"), combinations((1, 7, 100, 1000), (3, 30), quick=[(7, 3), (100, 30), (1000, 3)]))
def test_ranges_of_rows(d, rows, device, watch):
    """Of one search, which is prepared once."""
    prepared = watch(within, "prepare_pairs")
    X = np.random.default_rng(0).integers(0, 4, (300, d)) / 2
    t = {3: 0.5, 30: 3.0}[d]
    frames = list(iter_pairs(X, max_distance=t, rows=rows, device=device))
    assert len(frames) == -(-300 // rows)
    assert len(prepared) == 1
    for i, frame in enumerate(frames):
        src = columns(frame)[0]
        assert ((src >= i * rows) & (src < (i + 1) * rows)).all()
    whole = [np.concatenate(parts) for parts in zip(*map(columns, frames), strict=True)]
    for found, expected in zip(whole, columns(pairs(X, max_distance=t, device=device)), strict=True):
        np.testing.assert_array_equal(found, expected)
    of_two = list(iter_pairs(X, X[:200], max_distance=t, rows=rows, device=device))
    assert sum(map(len, of_two)) == count_pairs(X, X[:200], max_distance=t, device=device)


def test_a_box_is_surely_within_a_limit():
    """Powers that are no multiples of a half need not be monotone: the bound of a whole box is above their error."""

    @njit
    def farthest(formula, low, high):
        return within_cpu._farthest(formula, low[0], high[0], low, high, 1)

    low, high = np.array([[0.0, 0], [3, 4]]), np.array([[1.0, 1], [5, 7]])
    for p, more in ((2.3, 2.0**-44), (2.5, 0)):
        formula = get_metric("minkowski", p).cpu_formula
        exact = sum(formulas.power(gap, p) for gap in (5.0, 7.0))
        assert farthest(formula, low, high) == exact * (1 + more)


def test_counts_of_many_points_as_scipy_counts(device):
    X = np.random.default_rng(0).random((5000, 3))
    radii = [0.5, 0.01, 0.1, 2.0, 0.1]
    tree = cKDTree(X)
    found = count_pairs(X, max_distance=radii, device=device)
    assert found.tolist() == ((tree.count_neighbors(tree, radii) - len(X)) // 2).tolist()
    Y = np.random.default_rng(1).random((3000, 3))
    found = count_pairs(X, Y, max_distance=radii, device=device)
    assert found.tolist() == tree.count_neighbors(cKDTree(Y), radii).tolist()


def _of_lengths(rng, shape, length):
    points = rng.standard_normal(shape)
    return points / np.linalg.norm(points, axis=1, keepdims=True) * length[:, None]


#: Points whose distances are far apart in size, so that many are far below a limit.
SPREAD = {
    "core": lambda rng, n, d: rng.standard_normal((n, d)) * np.where(np.arange(n) % 2, 1.0, 1e-3)[:, None],
    "documents": lambda rng, n, d: _of_lengths(rng, (n, d), rng.random(n) ** 3),
    "shells": lambda rng, n, d: _of_lengths(rng, (n, d), np.exp(rng.integers(0, 8, n))),
    "heavy": lambda rng, n, d: rng.standard_t(2, (n, d)),
    "far": lambda rng, n, d: rng.standard_normal((n, d)) + 1e4 * rng.standard_normal((8, d))[rng.integers(8, size=n)],
}


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    every(
        SPREAD, ((700, 20), (300, 5)), ("float32", "float64"),
        quick=[(name, *one) for name in SPREAD for one in (((700, 20), "float32"), ((300, 5), "float64"))],
    ),
)  # fmt: skip
def test_counts_by_two_bounds(name, size, dtype, device):
    """Limits are distances that occur; one row in ten is a copy. Of one set and of two, one limit and several."""
    n, d = size
    X = SPREAD[name](np.random.default_rng(0), n, d).astype(dtype)
    X[::10] = X[1::10]
    src, dst, weight = all_weights(X)
    ts = np.quantile(weight, [0, 0.05, 0.3, 0.5, 0.9, 1], method="nearest")
    with force(pairs="filter"):
        for rows, of_rows in (((X,), weight), ((X[: n // 3], X[n // 3 :]), weight[(src < n // 3) & (dst >= n // 3)])):
            expected = [int((of_rows <= t).sum()) for t in ts]
            assert count_pairs(*rows, max_distance=ts, device=device).tolist() == expected
            assert [count_pairs(*rows, max_distance=t, device=device) for t in ts] == expected


def test_kinds_of_frames(engine):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), index=[f"row {i}" for i in range(50)])
    expected = pairs(X.to_numpy(), max_distance=1.0, device=engine.name)
    found = pairs(on_device(X, engine), max_distance=1.0, device=engine.name)
    assert type(found) is type(on_device(expected, engine))
    assert columns(found)[1].tolist() == columns(expected)[1].tolist()
    named = on_device(X, engine)
    named = pairs(named, max_distance=1.0, names=True, device=engine.name)
    named = named.to_pandas() if hasattr(named, "to_pandas") else named
    assert named["src"].tolist() == [f"row {i}" for i in columns(expected)[0]]
    assert named["dst"].tolist() == [f"row {i}" for i in columns(expected)[1]]


def test_names_of_two_sets(device):
    X = pd.DataFrame({"x": [0.0, 5.0]}, index=["a", "b"])
    Y = pd.DataFrame({"x": [5.0, 0.5, 9.0]}, index=[10, 20, 30])
    found = pairs(X, Y, max_distance=1.0, names=True, device=device)
    assert found.to_numpy().tolist() == [["a", 20, 0.5], ["b", 10, 0.0]]
    with pytest.raises(ValueError, match=r"names=True takes the rows' names from the index .* Y has none"):
        pairs(X, Y.to_numpy(), max_distance=1.0, names=True, device=device)


def test_few_rows(device):
    for X in (np.zeros((1, 3)), np.zeros((1, 30))):
        assert len(pairs(X, max_distance=1, device=device)) == 0
        assert count_pairs(X, max_distance=1, device=device) == 0
        assert to_host(deduplicate(X, max_distance=1, device=device)).tolist() == [0]
    assert columns(pairs(np.zeros((2, 3)), max_distance=0, device=device))[1].tolist() == [1]


def test_every_pair_is_within_infinity(device):
    X = np.random.default_rng(0).normal(size=(400, 20))
    assert len(pairs(X, max_distance=np.inf, device=device)) == 400 * 399 // 2
    assert count_pairs(X, max_distance=np.inf, device=device) == 400 * 399 // 2
    for metric in ("rogerstanimoto", "hamming", "minkowski", "jaccard", "cosine", "chebyshev"):
        bits = (X > 0).astype(float)
        assert count_pairs(bits, max_distance=np.inf, metric=metric, p=3.0, device=device) == 400 * 399 // 2
        assert count_pairs(bits, max_distance=1e300, metric=metric, p=3.0, device=device) == 400 * 399 // 2


@pytest.mark.parametrize("d", [3, full(30)])
def test_what_does_not_fit_is_counted(d, device):
    X = np.random.default_rng(0).random((3000, d))
    count = 3000 * 2999 // 2
    with pytest.raises(DeviceMemoryError, match=rf"memory_limit='50MB' is too small for {count:,} pairs .*iter_pairs"):
        pairs(X, max_distance=100.0, memory_limit="50MB", device=device)
    assert count_pairs(X, max_distance=100.0, memory_limit="50MB", device=device) == count
    parts = iter_pairs(X, max_distance=100.0, rows=200, memory_limit="100MB", device=device)
    assert sum(map(len, parts)) == count
    with pytest.raises(DeviceMemoryError, match=r"pairs of rows 0 to 2,499 within 100"):
        next(iter_pairs(X, max_distance=100.0, rows=2500, memory_limit="100MB", device=device))


@pytest.mark.full
def test_powers_that_do_not_fit_are_counted(device):
    X = np.random.default_rng(0).random((2400, 3))
    how = {"metric": "minkowski", "p": 3.0, "memory_limit": "16MB", "device": device}
    with pytest.raises(DeviceMemoryError, match=f"{2400 * 2399 // 2:,} pairs"):
        pairs(X, max_distance=100.0, **how)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_graphs_take_the_pairs(metric, device):
    """The forest of the pairs is that of `fit`."""
    X = np.random.default_rng(0).normal(size=(500, 12))
    X[::5] = X[1::5]
    height = to_host(fit(X, 1, metric=metric, device=device).linkage_["height"].values)
    t = height[300]
    found = pairs(X, max_distance=t, metric=metric, device=device)
    model, graph = fit(X, max_distance=t, metric=metric, device=device), fit_graph(found, n_nodes=500, device=device)
    np.testing.assert_array_equal(to_host(graph.labels_), to_host(model.labels_))
    for name in ("left", "right", "height", "size"):
        np.testing.assert_array_equal(to_host(graph.linkage_[name].values), to_host(model.linkage_[name].values))


@pytest.mark.parametrize("min_samples", [1, 2, 5])
def test_dbscan_takes_the_matrix(min_samples, device):
    """Labels as by the rows themselves, without a warning, with pairs at a distance of zero."""
    rng = np.random.default_rng(0)
    repeated = np.repeat(rng.normal(size=(5, 2)), 4, axis=0) + 9
    X = np.concatenate([rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) * 0.1 + 5, repeated])
    for eps in (0.05, 0.2, 0.5):
        matrix = to_csr(pairs(X, max_distance=eps, device=device), len(X))
        matrix = matrix.get() if hasattr(matrix, "get") else matrix
        labels = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(matrix).labels_
        np.testing.assert_array_equal(labels, DBSCAN(eps=eps, min_samples=min_samples).fit(X).labels_)
        n_trees, groups = connected_components(matrix, directed=False)
        assert n_trees == fit(X, max_distance=eps, device=device).n_clusters_
        first = to_host(deduplicate(X, max_distance=eps, device=device))
        assert len(np.unique(np.stack((groups, first)), axis=1).T) == n_trees


def test_the_matrix_of_two_sets():
    X, Y = np.array([[0.0], [3.0]]), np.array([[0.5], [0.0], [9.0]])
    matrix = to_csr(pairs(X, Y, max_distance=1.0, device="cpu"), 2, 3)
    assert matrix.shape == (2, 3)
    assert matrix.nnz == 2  # one of them zero
    np.testing.assert_array_equal(matrix.toarray(), [[0.5, 0, 0], [0, 0, 0]])
    empty = to_csr(pairs(X, max_distance=1.0, device="cpu"), 2)
    assert empty.shape == (2, 2)
    assert not empty.toarray().any()


PAIR = pd.DataFrame({"src": [0], "dst": [5], "weight": [1.0]})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((PAIR, 3), ValueError, "column 'dst' of the pairs must hold"),
        ((PAIR[["src", "weight"]], 3), ValueError, "'?dst'? not found"),
        ((np.zeros((3, 3)), 3), TypeError, "pairs must be a DataFrame"),
        ((PAIR,), TypeError, "to_csr needs the number of rows"),
    ],
)
def test_a_matrix_of_nothing_valid(arguments, error, message):
    with pytest.raises(error, match=message):
        to_csr(*arguments)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"max_distance": np.nan}, ValueError, "max_distance must not be NaN"),
        ({"max_distance": "1"}, TypeError, "max_distance must be a number, got '1'"),
        ({"max_distance": True}, TypeError, "max_distance must be a number, got True"),
        ({"max_distance": None}, TypeError, "max_distance must be a number, got None"),
        ({"max_distance": 1, "metric": "precomputed"}, ValueError, "metric must be one of"),
        ({"max_distance": 1, "missing": "pairwise", "metric": "cosine"}, ValueError, "missing='pairwise' takes"),
        ({"max_distance": 1, "memory_limit": "much"}, ValueError, "memory_limit must be"),
        ({"max_distance": 1, "names": True}, ValueError, "names=True takes the rows' names from the index"),
    ],
)
def test_parameters_are_checked(how, error, message):
    with pytest.raises(error, match=re.escape(message)):
        pairs(np.ones((3, 2)), device="cpu", **how)


def test_input_is_checked():
    X = np.ones((3, 2))
    with pytest.raises(ValueError, match="column 0 has 1 NaN"):
        pairs(np.array([[np.nan, 1.0]]), max_distance=1, device="cpu")
    with pytest.raises(ValueError, match="X and Y must have the same number of features, got 2 and 3"):
        pairs(X, np.ones((3, 3)), max_distance=1, device="cpu")
    with pytest.raises(ValueError, match="contains values that are not finite"):
        pairs(X, np.array([[np.inf, 1.0]]), max_distance=1, device="cpu")
    with pytest.raises(ValueError, match="max_distance must hold at least one distance"):
        count_pairs(X, max_distance=[], device="cpu")
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        iter_pairs(X, max_distance=1, rows=0, device="cpu")
    with pytest.raises(ValueError, match="row 1 of X and row 0 of Y are zero in every column"):
        pairs(np.eye(2)[:, :1], np.zeros((1, 1)), max_distance=1, metric="braycurtis", device="cpu")


@pytest.mark.parametrize("metric", [name for name, metric in METRICS.items() if not metric.changes_order])
def test_the_limit_is_the_largest_surrogate_within(metric):
    """The next number beyond it has a distance above."""
    metric, given = METRICS[metric], np.empty((0, 37))

    def weight(surrogate):
        return float(distances(metric, np.array([surrogate]), (None, None), (given, given), CPU)[0])

    for t in (0.0, 1e-200, 0.1, 0.3, 1 / 3, 0.7, 12.34):
        limit = Limit.of(metric, t, 37)
        assert limit.decides
        assert weight(limit.surrogate) <= t
        if t < 1 or metric.distance != "tanimoto":
            assert weight(np.nextafter(limit.surrogate, np.inf)) > t
    if metric.distance != "value":
        assert Limit.of(metric, -1.0, 37).surrogate == -np.inf


@pytest.fixture(scope="module")
def client():
    from dask_clusters import dask_distributed, workers_within_this_process

    with workers_within_this_process(2) as cluster, dask_distributed.Client(cluster) as client:
        yield client


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("metric", "d"), every(("euclidean", "cosine", "jaccard"), (3, 30), quick=[("euclidean", 3)]))
def test_dask(client, d, metric, prescribe):
    """The bits of one device, in partitions of blocks, of which those far apart do not meet."""
    dd = pytest.importorskip("dask.dataframe")
    prescribe(blocks=5)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, d)) + np.sort(rng.integers(1, 5, 600))[:, None] * 20.0
    X = (X % 2 > 1) | (np.arange(d) == 0) if metric == "jaccard" else X
    X = pd.DataFrame(X.astype(float), columns=[f"x{i}" for i in range(d)])
    how = {"metric": metric, "device": "cpu"}
    weight = all_weights(np.ascontiguousarray(X), metric)[2]
    t = float(np.quantile(weight, 0.05, method="nearest"))
    expected = pairs(X, max_distance=t, **how)
    found = pairs(dd.from_pandas(X, npartitions=7), max_distance=t, **how)
    assert found.npartitions == 5
    pd.testing.assert_frame_equal(found.compute().reset_index(drop=True), expected)
    counts = count_pairs(dd.from_pandas(X, npartitions=7), max_distance=[t, t / 2], **how)
    assert counts.tolist() == [len(expected), int((expected["weight"] <= t / 2).sum())]
    two = pairs(dd.from_pandas(X, npartitions=3), dd.from_pandas(X[:250], npartitions=2), max_distance=t, **how)
    pd.testing.assert_frame_equal(two.compute().reset_index(drop=True), pairs(X, X[:250], max_distance=t, **how))
    first = deduplicate(dd.from_pandas(X, npartitions=7), max_distance=t, **how)
    assert first.compute().tolist() == deduplicate(X, max_distance=t, **how).tolist()


# ------------------------------------------------------------------------------------------------------ similarities

SHARES = ("jaccard", "dice", "containment", "bit_jaccard")


def similar_rows(metric, n=250):
    """Rows of which many pairs have a similarity of two digits exactly."""
    rng = np.random.default_rng(0)
    if get_metric(metric).formula.is_of_unit_rows:
        return rng.integers(-3, 4, (n, 4)) + np.array([9.0, 0, 0, 0]) * rng.integers(0, 2, (n, 1))
    X = rng.random((n, 24)) < rng.choice([0.2, 0.4, 0.9], (n, 1))
    X[:, 0] = True
    return np.packbits(X, axis=1) if metric.startswith("bit_") else X.astype(float)


def similarities(X, metric):
    """The similarity of each pair of rows by its definition, in float64, in the order of `all_weights`."""
    src, dst = np.triu_indices(len(X), 1)
    if metric not in SHARES:
        return 1 - all_weights(X, metric)[2]  # which is exact
    X = (np.unpackbits(X, axis=1) if metric.startswith("bit_") else X).astype(np.int64)
    common, ones = (X @ X.T)[src, dst], X.sum(axis=1)
    if metric == "dice":
        return 2 * common / (ones[src] + ones[dst])
    of = np.minimum(ones[src], ones[dst]) if metric == "containment" else ones[src] + ones[dst] - common
    return common / of


TWO_DIGITS = [k / 100 for k in range(1, 100)]


@pytest.mark.parametrize(
    "metric", ["jaccard", "dice", "cosine", *map(full, ("containment", "bit_jaccard", "correlation"))]
)
def test_similarities(metric, device):
    """Pairs of exactly the least similarity are among those found, which 1 minus it loses."""
    X = similar_rows(metric)
    similarity, how = similarities(X, metric), {"metric": metric, "device": device}
    asked = [one for s in TWO_DIGITS for one in (s, float(np.nextafter(s, 1)), float(np.nextafter(s, 0)))]
    asked = [one for one in asked if metric in SHARES or one >= 0.5]
    counts = [int((similarity >= one).sum()) for one in asked]
    assert count_pairs(X, min_similarity=asked, **how).tolist() == counts
    some = 0.8 if metric in SHARES else 0.75
    expected, found = np.flatnonzero(similarity >= some), pairs(X, min_similarity=some, **how)
    src, dst, weight = all_weights(X, metric)
    for column, whole in zip(columns(found), (src, dst, weight), strict=True):
        np.testing.assert_array_equal(column, whole[expected])
    parts = [len(part) for part in iter_pairs(X, min_similarity=some, rows=100, **how)]
    assert sum(parts) == len(found) == count_pairs(X, min_similarity=some, **how)
    graph = np.zeros((len(X), len(X)))
    graph[src[expected], dst[expected]] = 1
    count, labels = connected_components(graph)
    model = fit(X, min_similarity=some, **how)
    assert model.n_clusters_ == count < len(X)
    np.testing.assert_array_equal(to_host(model.labels_), labels)
    whole = fit(X, 1, **how)
    np.testing.assert_array_equal(to_host(whole.cut(min_similarity=some)), labels)
    first = np.array([np.flatnonzero(labels == label)[0] for label in labels])
    np.testing.assert_array_equal(to_host(deduplicate(X, min_similarity=some, **how)), first)
    if metric in SHARES:
        assert count_pairs(X, max_distance=1 - 0.8, **how) < len(found)


def test_a_share_of_many_members(device):
    """The distance of a share tells which fraction it is, whatever the numbers are."""
    rng = np.random.default_rng(0)
    size = np.concatenate([np.arange(1, 2000), rng.integers(1, 2**26, 5000)])
    common = (size * rng.random(size.size)).astype(np.int64)
    similarity, distance = common / size, (size - common) / size
    asked = np.concatenate([rng.choice(similarity, 200), [0.0, 1.0, 5e-324, 2.0**-60]])
    for one in (*asked, *np.nextafter(asked, -1).clip(0), *np.nextafter(asked, 2).clip(max=1)):
        within = distance <= largest_distance(METRICS["jaccard"], float(one))
        np.testing.assert_array_equal(within, similarity >= one)
    assert [largest_distance(METRICS["dice"], s) for s in (0.8, 0.0, 1.0)] == [0.2, 1.0, 0.0]


def test_no_cosine_is_lost():
    """Not even a small one, whose distance is rounded."""
    cosine = np.concatenate([np.linspace(-1, 1, 2001), 0.3 + np.arange(-9, 10) * 2.0**-54, [1 + 2.0**-52]])
    for one in [*np.linspace(-1, 1, 201), *cosine[-20:-1]]:
        within = 1 - cosine <= largest_distance(METRICS["cosine"], float(one))
        assert within[cosine >= one].all()
        assert not within[cosine < one - (2.0**-53 if one < 0.5 else 0)].any() or one < 0


def test_similarities_of_sets_and_sparse_rows(device):
    sets = [{1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 9}]
    how = {"metric": "jaccard", "device": device}
    assert to_host(pairs(sets, min_similarity=0.8, **how)["weight"].values).tolist() == [0.2]
    assert len(pairs(sets, max_distance=1 - 0.8, **how)) == 0
    assert to_host(fit(sets, min_similarity=0.8, **how).labels_).tolist() == [0, 0, 1]
    model = fit(sets, 1, **how)
    cuts = model.cut(min_similarity=[0.8, 0.1])
    assert np.asarray(to_host(cuts)).T.tolist() == [[0, 0, 1], [0, 0, 0]]
    named = fit(pd.Series(sets), 1, **how).cut(min_similarity=[0.8, 0.1])
    assert list(named.columns) == [0.8, 0.1]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"min_similarity": 1, "max_distance": 0}, ValueError, "give one of max_distance and min_similarity, got both"),
        ({}, TypeError, "max_distance must be a number, got None: give it or min_similarity"),
        ({"min_similarity": 80}, ValueError, "min_similarity must be from 0 to 1, got 80"),
        ({"min_similarity": np.nan}, ValueError, "min_similarity must not be NaN"),
        ({"min_similarity": "0.8"}, TypeError, "min_similarity must be a number, got '0.8'"),
        (
            {"min_similarity": 0.8, "metric": "euclidean"},
            ValueError,
            "min_similarity takes the metrics 'cosine', 'correlation', 'jaccard', 'bit_jaccard', 'dice', "
            "'containment', got 'euclidean': give a distance",
        ),
        ({"min_similarity": 0.8, "metric": "levenshtein"}, ValueError, "min_similarity takes the metrics 'cosine'"),
    ],
)
def test_similarities_are_checked(how, error, message):
    X, how = np.eye(3), {"metric": "jaccard", "device": "cpu", **how}
    for function in (pairs, count_pairs, iter_pairs, deduplicate, *[fit] * ("min_similarity" in how)):
        with pytest.raises(error, match=re.escape(message)):
            function(X, **how)


def test_cuts_by_a_similarity_are_checked():
    model = fit(np.eye(3), min_similarity=0.5, metric="jaccard", device="cpu")
    with pytest.raises(ValueError, match="give exactly one of n_clusters, distance_threshold and min_similarity"):
        model.cut(2, min_similarity=0.5)
    with pytest.raises(ValueError, match=r"distance_threshold must be at most max_distance=0\.5, got 0\.6"):
        model.cut(min_similarity=0.4)
    graph = fit_graph(pd.DataFrame({"src": [0], "dst": [1], "weight": [0.2]}), 1, device="cpu")
    for one in (graph, fit(1 - np.eye(3), 1, metric="precomputed", device="cpu")):
        with pytest.raises(ValueError, match=r"min_similarity takes the metrics .* got 'precomputed': give a distance"):
            one.cut(min_similarity=0.5)

"""The search that computes all distances of codes against the definitions."""

import numpy as np
import pytest
from hard_cases import full

import rapids_slink
from rapids_slink.metrics import METRICS, OVERFLOW, PRECOMPUTED
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import cuda, to_host
from rapids_slink.settings import with_missing
from rapids_slink.spanning_tree.ways import tree_of_pairs

pytestmark = pytest.mark.gpu
HAMMING = METRICS["hamming"]
GAPS = {kind: with_missing(HAMMING, kind) for kind in ("pairwise", "hiercc")}
KINDS = {"hamming": HAMMING, **GAPS}


def rows_of(values, kind):
    """Rows as the formula reads them."""
    import cupy

    values = np.asarray(values, np.float32 if np.abs(np.nan_to_num(values)).max() < 2**20 else np.float64)
    if kind == "hiercc":
        values = np.column_stack([values, (values == values).sum(axis=1)]).astype(values.dtype)
    return cupy.asarray(values)


def all_pairs(X, Y, kind):
    """The surrogate distances by the definition."""
    present = ~np.isnan(X), ~np.isnan(Y)
    d, out = X.shape[1], np.empty((len(X), len(Y)))
    for i, row in enumerate(X):
        both = present[0][i] & present[1]
        x, c = ((row != Y) & both).sum(axis=1).astype(float), both.sum(axis=1).astype(float)
        if kind == "hamming":
            out[i] = x
            continue
        none = c == 0
        if kind == "hiercc":
            enough = np.maximum(present[0][i].sum(), present[1].sum(axis=1)) - 0.05 * d
            x, c = x + np.maximum(enough - c, 0), np.maximum(enough, c)
        with np.errstate(all="ignore"):
            out[i] = x / c if kind == "pairwise" else np.floor(x / c * d + 0.5)
        out[i, none] = OVERFLOW if kind == "pairwise" else d
    return out


def codes(name, n, d, kind):
    """Families of rows that differ in few features or in many."""
    rng, gaps = np.random.default_rng(d), kind in GAPS
    X = rng.integers(0, 40, (9, d))[rng.integers(0, 9, n)].astype(float)
    changed = rng.random((n, d)) < rng.choice([0, 0.05, 0.5], n)[:, None]
    X = np.where(changed, rng.integers(0, 40, (n, d)), X)
    spans = {"one": 1, "two": 2, "255": 255, "256": 256, "257": 257, "65536": 2**16, "65537": 2**16 + 1}
    if name in spans:
        X %= spans[name]
        X[0, 0] = spans[name] - 1
    elif name == "reals":
        X = (X / 7 - 2).astype(np.float32).astype(float)
        X[0] *= -1
    elif name == "zeros of either sign":
        X[X < 20] = 0.0
        X *= rng.choice([-1, 1], X.shape)
        X[X != 0] = 0.5
    elif name == "huge":
        X = X * 2.0**40 - 2.0**44
    elif name == "negative":
        X -= 33
    if gaps:
        X[rng.random((n, d)) < rng.choice([0, 0.03, 0.3, 0.95], n)[:, None]] = np.nan
        X[n // 2] = np.nan
    return X


CASES = ["codes", "one", "two", "257", "65536", "65537", "reals", "zeros of either sign", "huge", "negative"]


def search_of(X, kind, queries=None):
    from rapids_slink.neighbors.matrix import MatrixSearch

    return MatrixSearch(rows_of(X, kind), cuda(), Report(), queries, metric=KINDS[kind])


def assert_nearest(search, task, distances):
    """`distances` are those of the task's rows from all points, infinite where a pair is excluded."""
    found = search.find(task)
    ids, weights = to_host(found.ids), to_host(found.weights)
    upper = np.full(len(ids), np.inf) if task.upper is None else to_host(task.upper)
    for i, row in enumerate(distances):
        order = np.argsort(row, kind="stable")[: task.k]
        order = order[(row[order] <= upper[i]) & (row[order] < np.inf)]
        assert ids[i, : order.size].tolist() == order.tolist()
        assert (ids[i, order.size :] == -1).all()
        np.testing.assert_array_equal(weights[i, : order.size], row[order])


def check(name, n, d, kind, k=3):
    import cupy

    X = codes(name, n, d, kind)
    distances, search = all_pairs(X, X, kind), search_of(X, kind)
    rows = cupy.arange(n, dtype=cupy.int32)
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    assert_nearest(search, SearchTask(rows, k, rows, rows), apart)
    rng = np.random.default_rng(n)
    some, group = rng.permutation(n)[: n // 2 + 1].astype(np.int32), (np.arange(n) // 5).astype(np.int32)
    apart = np.where(group[some, None] == group, np.inf, distances[some])
    upper, groups = cupy.asarray(np.sort(apart, axis=1)[:, n // 2]), cupy.asarray(group)
    assert_nearest(search, SearchTask(cupy.asarray(some), 1, groups, groups, upper, only_minima=True), apart)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_the_nearest_are_those_of_the_definition(name, kind):
    check(name, 300, 70, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 31, 32, 33, 500, *map(full, (64, 513, 4097))])
def test_any_number_of_features(d, kind):
    check("codes", 200, d, kind)


@pytest.mark.parametrize("n", [2, 127, 128, 129, 1000])
@pytest.mark.parametrize("kind", ["hamming", "hiercc"])
def test_any_number_of_rows_and_neighbours(n, kind):
    check("codes", n, 40, kind, min(40, n - 1))
    check("codes", n, 40, kind, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_in_parts(kind, prescribe):
    prescribe(chunk_bytes=2)
    check("codes", 400, 70, kind)
    assert search_of(codes("codes", 400, 70, kind), kind)._rows_at_once(1) == 128


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["codes", "reals"])
def test_queries(name, kind):
    import cupy

    X, Y = (codes(name, n, 50, kind) for n in (300, 150))
    search = search_of(X, kind, rows_of(Y, kind))
    rows, groups = cupy.arange(150, dtype=cupy.int32), cupy.full(300, -1, cupy.int32)
    assert_nearest(search, SearchTask(rows, 2, rows, groups), all_pairs(Y, X, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_mutual_reachability_and_long_lists(kind, set_constants):
    import cupy

    from rapids_slink.neighbors import matrix

    X = codes("codes", 200, 50, kind)
    distances, search = all_pairs(X, X, kind), search_of(X, kind)
    core = np.sort(distances, axis=1)[:, 4].copy()
    reachable = np.maximum(distances, np.maximum(core[:, None], core))
    np.fill_diagonal(reachable, np.inf)
    rows = cupy.arange(200, dtype=cupy.int32)
    for most in (2000, 5):
        set_constants(matrix, MAX_LIST=most)
        assert_nearest(search, SearchTask(rows, 7, rows, rows, core=cupy.asarray(core)), reachable)
        np.fill_diagonal(distances, np.inf)
        assert_nearest(search, SearchTask(rows, 150, rows, rows), distances)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "min_samples"), [(2, 1), (129, 1), (129, 5), (1000, 1), (1000, 32)])
def test_trees_of_all_distances(kind, n, min_samples):
    from rapids_slink.neighbors.matrix import all_distances

    X, device = codes("codes", n, 40, kind), cuda()
    values = rows_of(X, kind)
    given, expected = all_pairs(X, X, kind), exact_kernels(device).all_distances(values, KINDS[kind])
    found = all_distances(values, KINDS[kind])
    np.testing.assert_array_equal(to_host(found).astype(float), given)
    trees = [tree_of_pairs(matrix, PRECOMPUTED, min_samples, device) for matrix in (found, expected)]
    for column, other in zip(*(tree.columns.values() for tree in trees), strict=True):
        np.testing.assert_array_equal(to_host(column), to_host(other))


def test_many_codes_take_all_distances(prescribe):
    X = codes("codes", 8300, 40, "hamming")
    model = rapids_slink.fit(X, metric="hamming", device="cuda")
    assert model.report_["way"] == "pairs"
    prescribe(tree="lists")
    expected = rapids_slink.fit(X, metric="hamming", device="cuda")
    np.testing.assert_array_equal(model.children_, expected.children_)
    np.testing.assert_array_equal(model.distances_, expected.distances_)

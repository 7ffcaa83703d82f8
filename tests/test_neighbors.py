"""Neighbour lists against all distances in float64: both searches, every tier, every kernel, and the filter's proof."""

from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist, squareform

from rapids_slink import knn_graph, nearest_neighbors
from rapids_slink.device import CPU, gpu_is_usable, resolve, to_host
from rapids_slink.metrics import EUCLIDEAN, METRICS, accumulation_bound
from rapids_slink.neighbors import _search, neighbor_lists
from rapids_slink.neighbors.contract import Task
from rapids_slink.neighbors.kdtree import TreeSearch, build
from rapids_slink.neighbors.operand import EXTRA_FEATURES, LOST, Ceiling, Operand, Scaling, reach
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report

SEARCHES = {"tiles": TileSearch, "tree": TreeSearch, "portable tiles": partial(TileSearch, fused=False)}


@pytest.fixture(params=SEARCHES)
def make(request, where):
    """A function from NumPy points to a search on the device, whatever suits their dimension."""
    if request.param == "portable tiles" and where.name == "cpu":
        pytest.skip("the CPU's tiles are portable anyway")

    def search(values, queries=None):
        kind = SEARCHES[request.param]
        if kind is TreeSearch and where.name == "cuda":
            from rapids_slink.neighbors.bvh import BoxSearch

            if values.shape[1] > 8:
                pytest.skip("boxes are for few features")
            kind = BoxSearch
        queries = None if queries is None else where.asarray(queries)
        return kind(where.asarray(values), where, Report(), queries)

    return search


@pytest.fixture
def kernels(where):
    return where.kernels("neighbors")


@pytest.fixture
def hopper():
    """The launchers of the fused filter, where the GPU has what they need."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    from rapids_slink.neighbors import hopper

    if not hopper.usable():
        pytest.skip("the fused filter is for Hopper GPUs")
    return hopper


def squares(X, Y=None):
    """All squared distances from their definition: float64, feature after feature."""
    X, Y = X.astype(np.float64), (X if Y is None else Y).astype(np.float64)
    total = np.zeros((len(X), len(Y)))
    for f in range(X.shape[1]):
        total += (X[:, None, f] - Y[None, :, f]) ** 2
    return total


def least(apart, k):
    """The ids and values of each row's k least columns; equal values go by column; -1 for columns at infinity."""
    ids = np.argsort(apart, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(apart, ids, axis=1)
    return np.where(np.isinf(weights), -1, ids), weights


def others(apart):
    """Distances without those of each row to itself."""
    apart = apart.copy()
    np.fill_diagonal(apart, np.inf)
    return apart


def assert_lists(found, expected):
    np.testing.assert_array_equal(to_host(found.ids), expected[0])
    np.testing.assert_array_equal(to_host(found.weights), expected[1])


def test_the_oracle_is_scipys():
    for name in ("filaments", "uneven_blobs_32d", "cauchy"):
        X = CASES[name]("float32")[:300].astype(np.float64)
        np.testing.assert_array_equal(squares(X), squareform(pdist(X, "sqeuclidean")))
        np.testing.assert_array_equal(squares(X), cdist(X, X, "sqeuclidean"))


# ------------------------------------------------------------------------------------------------ the lists


@pytest.mark.parametrize("k", [1, 3, 8, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_lists_of_every_hard_case(name, dtype, k, where, make):
    X = CASES[name](dtype)[:1100]
    n = len(X)
    if n == 1:
        pytest.skip("a single row has no neighbours")
    found = neighbor_lists(make(X), n, k, where)
    assert_lists(found, least(others(squares(X)), min(k, n - 1)))
    assert found.complete == (k >= n - 1)


@pytest.mark.parametrize(("n", "k"), [(700, 43), (700, 44), (700, 699), (2000, 100), (2000, 1500), (20, 19)])
@pytest.mark.parametrize("d", [2, 11])
def test_long_lists(n, k, d, where, make):
    X = np.random.default_rng(n + k).integers(0, 40, (n, d)).astype(np.float32)
    assert_lists(neighbor_lists(make(X), n, k, where), least(others(squares(X)), k))


def test_many_points_of_few_features_go_by_a_tree(where):
    def kind(n, d, metric):
        return _search(n, d, METRICS[metric], where).__name__

    tree = "TreeSearch" if where.name == "cpu" else "BoxSearch"
    for metric, all_pairs in (("euclidean", "TileSearch"), ("cityblock", "DirectSearch")):
        assert kind(100, 1, metric) == kind(10**7, 7, metric) == kind(10**7, 8, metric) == tree
        assert kind(10**7, 9, metric) == all_pairs
        assert kind(1000, 7, metric) == (tree if where.name == "cpu" else all_pairs)
    assert kind(600_000, 8, "cityblock") == tree
    assert kind(10**7, 3, "cosine") == "TileSearch"


@pytest.mark.parametrize("n", [3000, 9000])
def test_several_bands_and_chunks(n, where, make):
    """Enough columns for the thresholds to be tightened between bands."""
    X = np.random.default_rng(n).normal(size=(n, 9)) * np.geomspace(1, 0.01, n)[:, None]
    rows = np.arange(0, n, 7)
    found = neighbor_lists(make(X), n, 5, where)
    apart = squares(X[rows], X)
    apart[np.arange(rows.size), rows] = np.inf
    expected = least(apart, 5)
    np.testing.assert_array_equal(to_host(found.ids)[rows], expected[0])
    np.testing.assert_array_equal(to_host(found.weights)[rows], expected[1])


@given(
    st.integers(2, 700), st.integers(1, 10), st.integers(1, 4), st.integers(1, 30), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_lists_on_grids_of_few_values(n, d, side, k, tree, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32)
    search = (TreeSearch if tree else TileSearch)(X, CPU, Report())
    assert_lists(neighbor_lists(search, n, k, CPU), least(others(squares(X)), min(k, n - 1)))


@pytest.mark.parametrize("name", ["offset_1e7", "one_far_outlier", "tight_clusters", "images", "exponential_gaps_12d"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_queries_and_points_that_differ(name, dtype, where, make):
    X = CASES[name](dtype)
    Y, X = X[400:], X[:300]
    rows = where.xp.arange(len(X), dtype="int32")
    groups = where.xp.zeros(len(X), "int32"), where.xp.ones(len(Y), "int32")
    found = make(Y, queries=X).find(Task(rows, 4, *groups, where.xp.full(len(X), where.xp.inf)))
    assert_lists(found, least(squares(X, Y), 4))


# What is hard for the filter's bounds, in numbers that bring several bands and sweeps; (n, d) float64.
ADVERSARIAL = {
    "sphere_of_radius_1e6": lambda rng, n, d: 1e6 * directions(rng, n, d) + rng.normal(size=(n, d)),
    "clusters_1000_times_tighter": lambda rng, n, d: (
        np.repeat(1000 * rng.normal(size=(-(-n // 200), d)), 200, axis=0)[:n] + rng.normal(size=(n, d))
    ),
    "all_rows_equal": lambda rng, n, d: np.full((n, d), 0.7),
    "last_bit": lambda rng, n, d: 1 + rng.integers(0, 2, (n, d)) * 2.0**-23,
    "last_bit_of_float64": lambda rng, n, d: 1 + rng.integers(0, 2, (n, d)) * 2.0**-52,
    "one_feature_1e6_times_larger": lambda rng, n, d: (
        rng.normal(size=(n, d)) * np.where(np.arange(d) == d // 2, 1e6, 1)
    ),
    "denormal_float32": lambda rng, n, d: 1e-40 * rng.normal(size=(n, d)),
    "denormal_float64": lambda rng, n, d: 1e-310 * rng.normal(size=(n, d)),
    "denormal_squares": lambda rng, n, d: 1e-157 * rng.normal(size=(n, d)),
    "bytes": lambda rng, n, d: rng.integers(0, 256, (n, d)),
    "integers_to_2048": lambda rng, n, d: rng.integers(-2048, 2049, (n, d)),
}


def directions(rng, n, d):
    points = rng.normal(size=(n, d))
    return points / np.linalg.norm(points, axis=1)[:, None]


def assert_lists_of_rows(found, X, k, step):
    """Every `step`-th row's list against all its distances."""
    rows = np.arange(0, len(X), step)
    apart = cdist(X[rows].astype(np.float64), X.astype(np.float64), "sqeuclidean")
    apart[np.arange(rows.size), rows] = np.inf
    ids, weights = least(apart, k)
    np.testing.assert_array_equal(to_host(found.ids)[rows], ids)
    np.testing.assert_array_equal(to_host(found.weights)[rows], weights)


@pytest.fixture
def make_large(request, make):
    """`make`, which refuses a tree in many dimensions: it would look at all pairs, one by one."""

    def search(values):
        if values.shape[1] > 8 and request.node.callspec.params["make"] == "tree":
            pytest.skip("a tree is for few features")
        return make(values)

    return search


@pytest.mark.parametrize(
    ("d", "dtype", "k"), [(3, "float32", 1), (3, "float64", 16), (40, "float32", 16), (40, "float64", 64)]
)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_lists_of_adversarial_rows(name, d, dtype, k, where, make_large):
    X = np.ascontiguousarray(ADVERSARIAL[name](np.random.default_rng(d), 3001, d), dtype)
    assert_lists_of_rows(neighbor_lists(make_large(X), len(X), k, where), X, k, 4)


@pytest.mark.parametrize("k", [1, 16, 64, 100])
@pytest.mark.parametrize("n", [3072, 3200, 3333])
def test_lists_of_every_length_and_fraction_of_a_tile(n, k, where, make_large):
    """Rows fill blocks of 256 and tiles of 128 columns, only the tiles, or neither."""
    X = np.random.default_rng(n).normal(size=(n, 20)).astype(np.float32)
    assert_lists_of_rows(neighbor_lists(make_large(X), n, k, where), X, k, 4)


@pytest.mark.parametrize(("d", "step"), [(1, 4), (4096, 60)])
def test_lists_of_one_feature_and_of_thousands(d, step, where, make_large):
    X = np.random.default_rng(d).normal(size=(3001, d)).astype(np.float32)
    assert_lists_of_rows(neighbor_lists(make_large(X), len(X), 16, where), X, 16, step)


@pytest.mark.parametrize(("dtype", "high"), [("uint8", 256), ("int16", 2049), ("int64", 100_000), ("bool", 2)])
def test_lists_of_integers(dtype, high, device):
    X = np.random.default_rng(high).integers(0, high, (3100, 50)).astype(dtype)
    rows = np.arange(0, len(X), 7)
    apart = cdist(X[rows].astype(np.float64), X.astype(np.float64), "sqeuclidean")
    apart[np.arange(rows.size), rows] = np.inf
    ids, weights = least(apart, 16)
    graph = knn_graph(X, 16, metric="sqeuclidean", device=device)
    np.testing.assert_array_equal(graph["dst"].to_numpy().reshape(len(X), 16)[rows], ids)
    np.testing.assert_array_equal(graph["weight"].to_numpy().reshape(len(X), 16)[rows], weights)


# ------------------------------------------------------------------------------------------- public functions


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("d", [2, 20])
def test_knn_graph(d, metric, device):
    X = np.random.default_rng(d).integers(0, 9, (400, d)) / 8
    graph = knn_graph(X, 6, metric=metric, device=device)
    ids, weights = least(others(squares(X)), 6)
    assert isinstance(graph, pd.DataFrame)
    assert [str(dtype) for dtype in graph.dtypes] == ["int32", "int32", "float64"]
    np.testing.assert_array_equal(graph["src"], np.repeat(np.arange(400), 6))
    np.testing.assert_array_equal(graph["dst"], ids.ravel())
    np.testing.assert_array_equal(
        graph["weight"], np.sqrt(weights.ravel()) if metric == "euclidean" else weights.ravel()
    )


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize(("n", "m", "d"), [(300, 1000, 3), (300, 1000, 20), (1, 500, 9), (500, 1, 9), (7, 5, 2)])
def test_nearest_neighbors(n, m, d, metric, device):
    rng = np.random.default_rng(n + m)
    X, Y = rng.integers(0, 5, (n, d)) / 4, pd.DataFrame(rng.integers(0, 5, (m, d)) / 4)
    found = nearest_neighbors(X, Y, metric=metric, device=device)
    ids, weights = least(squares(X, Y.to_numpy()), 1)
    np.testing.assert_array_equal(found["src"], np.arange(n))
    np.testing.assert_array_equal(found["dst"], ids[:, 0])
    np.testing.assert_array_equal(found["weight"], np.sqrt(weights[:, 0]) if metric == "euclidean" else weights[:, 0])
    assert [str(dtype) for dtype in found.dtypes] == ["int32", "int32", "float64"]


def test_nearest_neighbors_of_sets_far_apart_and_of_different_types(device):
    """The queries' distance from the points, not the points' own spread, sets the scale."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 12)) + 1e6, rng.normal(size=(600, 12)).astype(np.float32)
    found = nearest_neighbors(X, Y, device=device)
    ids, weights = least(squares(X, Y), 1)
    np.testing.assert_array_equal(found["dst"], ids[:, 0])
    np.testing.assert_array_equal(found["weight"], np.sqrt(weights[:, 0]))


def test_refusals(device):
    X = np.random.default_rng(0).normal(size=(10, 3))
    for n_neighbors, error, message in [
        (0, ValueError, "n_neighbors must be at least 1, got 0"),
        (10, ValueError, "n_neighbors must be at most n - 1 = 9, got 10"),
        (2.5, TypeError, "n_neighbors must be an integer, got 2.5"),
    ]:
        with pytest.raises(error, match=message):
            knn_graph(X, n_neighbors, device=device)
    with pytest.raises(ValueError, match=r"metric must be one of 'euclidean', .*, got 'l3'"):
        knn_graph(X, 2, metric="l3", device=device)
    with pytest.raises(ValueError, match="same number of features, got 3 and 2"):
        nearest_neighbors(X, X[:, :2], device=device)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        nearest_neighbors(X, X[:0], device=device)


# ----------------------------------------------------------------------------------------------------- groups


def grouped(X, rng, groups):
    """Groups of the rows and all distances, infinite within a group."""
    group = rng.integers(0, groups, len(X)).astype(np.int32)
    apart = squares(X)
    apart[group[:, None] == group] = np.inf
    return group, apart


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "integer_grid_10d", "tight_clusters", "cauchy", "repeated_rows"])
@pytest.mark.parametrize("groups", [1, 2, 40])
@pytest.mark.parametrize("k", [1, 6])
def test_nearest_outside_ones_group(name, groups, k, where, make):
    """Some rows only, each with a bound: infinite, one that cuts the list short, one equal to a value, zero."""
    rng = np.random.default_rng(groups)
    X = CASES[name]("float64")[::-1][:: 3 if name == "tight_clusters" else 1][:900]
    group, apart = grouped(X, rng, groups)
    rows = np.sort(rng.choice(len(X), len(X) * 2 // 3, replace=False)).astype(np.int32)
    apart = apart[rows]
    upper = np.sort(apart, axis=1)[np.arange(rows.size), rng.integers(0, 2 * k, rows.size)]
    upper[::4], upper[1::16] = np.inf, 0.0
    expected = least(np.where(apart <= upper[:, None], apart, np.inf), k)
    arrays = [where.asarray(array) for array in (rows, group, upper)]
    found = make(X).find(Task(arrays[0], k, arrays[1], arrays[1], arrays[2]))
    assert_lists(found, expected)
    np.testing.assert_array_equal(to_host(arrays[2]), upper)  # the task is left alone
    assert_unlisted_are_above(found, apart)


def assert_unlisted_are_above(found, apart):
    """What a row does not list comes after its last entry, or after its bound if the list is not full."""
    ids, weights, upper = (to_host(part) for part in (found.ids, found.weights, found.upper))
    column = np.arange(apart.shape[1])
    for i in range(len(ids)):
        listed = ids[i][ids[i] >= 0]
        unlisted = np.isfinite(apart[i]) & ~np.isin(column, listed)
        if listed.size == ids.shape[1]:
            after = (apart[i] > weights[i, -1]) | ((apart[i] == weights[i, -1]) & (column > ids[i, -1]))
        else:
            after = apart[i] > upper[i]
        assert after[unlisted].all()


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "integer_grid_10d", "tight_clusters", "cauchy", "all_rows_equal"])
@pytest.mark.parametrize("groups", [2, 30, 130])
def test_least_pair_of_each_group(name, groups, where, make):
    """With a shared bound, a group's least pair in the total order is found, and every bound is one."""
    rng = np.random.default_rng(groups)
    X = CASES[name]("float64")[::3][:900]
    n = len(X)
    group, apart = grouped(X, rng, groups)
    bound = np.where(np.arange(groups) % 3 == 0, np.inf, rng.choice(apart[np.isfinite(apart)], groups))
    arrays = [where.asarray(array) for array in (np.arange(n, dtype=np.int32), group, bound[group])]
    found = make(X).find(Task(arrays[0], 1, arrays[1], arrays[1], arrays[2], shared=True))
    ids, weights = to_host(found.ids)[:, 0], to_host(found.weights)[:, 0]

    hit = np.flatnonzero(ids >= 0)
    np.testing.assert_array_equal(weights[hit], apart[hit, ids[hit]])
    assert (weights[hit] <= bound[group[hit]]).all()
    assert np.isinf(weights[ids < 0]).all()
    assert_unlisted_are_above(found, apart)

    def lightest(rows, columns, values):
        low, high = np.minimum(rows, columns), np.maximum(rows, columns)
        at = np.lexsort((high, low, values))[0]
        return values[at], low[at], high[at]

    for g in np.unique(group):
        members = np.flatnonzero(group == g)
        at, columns = np.nonzero(np.isfinite(apart[members]) & (apart[members] <= bound[g]))
        mine = hit[group[hit] == g]
        assert (mine.size > 0) == (at.size > 0)
        if mine.size:
            expected = lightest(members[at], columns, apart[members[at], columns])
            assert lightest(mine, ids[mine], weights[mine]) == expected


def test_no_rows_and_nobody_outside(where, make):
    X = np.random.default_rng(0).normal(size=(400, 9))
    xp = where.xp
    search, one = make(X), xp.zeros(400, "int32")
    for shared in (False, True):
        none = search.find(Task(xp.empty(0, "int32"), 1, one, one, xp.empty(0), shared=shared))
        assert (none.ids.shape, none.weights.shape, none.upper.shape) == ((0, 1), (0, 1), (0,))
        rows = xp.arange(400, dtype="int32")
        found = search.find(Task(rows, 1, one, one, xp.full(400, xp.inf), shared=shared))
        assert (to_host(found.ids) == -1).all()
        assert np.isinf(to_host(found.weights)).all()


# ------------------------------------------------------------------------------------------ the filter's proof


def pairs_that_fail(X, dtype, where, kernels):
    """How many of all pairs the filter would lose at the tightest bound that must let them pass."""
    xp, n, d = where.xp, *X.shape
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    operand = kernels.pack(values, scaling, dtype)
    product = kernels.Workspace().product(operand, operand)
    apart = where.asarray(squares(X))
    rows = xp.arange(n)
    failed = 0
    for shift in range(n):
        columns = (rows + shift) % n
        radius = reach(apart[rows, columns], operand.error, scaling, d, xp)
        q = radius + operand.error[columns]
        assert q.dtype == product.dtype == operand.half_norm.dtype
        passes = product[rows, columns] >= operand.half_norm + operand.half_norm[columns] - q * q
        failed += n - int(passes.sum())
    return failed


@pytest.mark.parametrize("tier", ["filter", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_no_pair_fails_the_test_at_its_own_distance(name, dtype, tier, where, kernels):
    X = CASES[name](dtype)
    X = X[:: max(1, len(X) // 120)]
    assert pairs_that_fail(X, kernels.FILTER_DTYPE if tier == "filter" else "float64", where, kernels) == 0


def rows_hard_to_round(rng, d):
    """Long sums of one sign, halves between two numbers of the operand's type, and rows that nearly coincide."""
    between = (1 + 2.0**-11 + 2.0**-24) * rng.choice([1.0, -1.0], (40, d))
    near = np.full((40, d), 1.0) + rng.integers(-2, 3, (40, d)) * 2.0 ** -rng.integers(8, 52, (40, 1))
    positive = np.abs(rng.normal(size=(40, d))) + 100
    return np.concatenate([between, near, positive, -positive])


@pytest.mark.parametrize("tier", ["filter", "float64"])
@pytest.mark.parametrize("d", [1, 7, 64, 1000])
def test_no_pair_fails_where_rounding_is_worst(d, tier, where, kernels):
    X = rows_hard_to_round(np.random.default_rng(d), d)
    assert pairs_that_fail(X, kernels.FILTER_DTYPE if tier == "filter" else "float64", where, kernels) == 0


def pairs_above(X, where, kernels):
    """Each pair's kernel value over what the filter says it is at most."""
    xp, n = where.xp, len(X)
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    operand, ceiling = kernels.pack(values, scaling, kernels.FILTER_DTYPE), Ceiling.of(X.shape[1], scaling, EUCLIDEAN)
    groups, ids, space = (xp.zeros(n, "int32"), xp.ones(1, "int32")), xp.zeros(1, "int32"), kernels.Workspace()
    most = [xp.full(n, xp.inf) for _ in range(n)]
    for j, bound in enumerate(most):
        kernels.seed(operand, operand.take(slice(j, j + 1)), *groups, ids, 1, space, ceiling, bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(squares(X) / np.stack([to_host(column) for column in most], axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_no_pair_is_above_its_ceiling(name, dtype, where, kernels):
    X = CASES[name](dtype)
    assert pairs_above(X[:: max(1, len(X) // 120)], where, kernels).max() <= 1


@pytest.mark.parametrize("d", [1, 7, 64, 1000])
def test_ceilings_where_rounding_is_worst(d, where, kernels):
    rng = np.random.default_rng(d)
    assert pairs_above(rows_hard_to_round(rng, d), where, kernels).max() <= 1
    even = pairs_above(rng.normal(size=(90, d)), where, kernels)
    np.fill_diagonal(even, 1.0)
    assert even.min() > (0.9 if d > 1 else 0)  # a ceiling of everything would be of no use


def norms_in_tails(tails):
    """What the fused filter's tails make the tensor cores add, by row."""
    units = 2.0**15, 2.0**8, 1.0, 2.0**-7, 2.0**-14, 0.0, 0.0, 0.0  # as hopper.cu says
    tails = to_host(tails).reshape(-1, 2, 8).astype(np.float64)
    row = np.arange(len(tails))
    swizzled = row % 128 // 4 % 2
    assert (tails[row, 1 - swizzled] == 0).all()
    return tails[row, swizzled] @ np.asarray(units)


def pairs_hard_to_sum(rng, d):
    """Rows x and y, fp16 values, whose products x_i . y_i cancel, absorb each other or differ widely in size."""
    a, b = rng.normal(size=(2, 16, d))
    twice, opposite = np.resize(a, (16, d)), b.copy()
    twice[:, d // 2 :], opposite[:, d // 2 :] = a[:, : d - d // 2], -b[:, : d - d // 2]
    wide = rng.choice([-1.0, 1.0], (2, 16, d)) * 2.0 ** rng.uniform(-9, 9, (2, 16, d))
    # Beside 4096² = 2²⁴ a product of 1.998 is just under the spacing of float32.
    small, two = np.full((16, d), 0.999), np.full((16, d), 2.0)
    small[:, 0] = two[:, 0] = 4096.0  # in the way from the start,
    late, two_late = small[:, ::-1], two[:, ::-1]  # at the end,
    between, back = np.maximum(small, late), np.maximum(two, two_late)
    back[:, -1] = -4096.0  # or until it cancels
    pairs = (
        (twice, opposite),
        (abs(a), abs(b)),
        wide,
        (small, two),
        (late, two_late),
        (between, back),
        (small, two_late),
    )
    return tuple(np.vstack(part).astype(np.float16).astype(np.float64) for part in zip(*pairs, strict=True))


def lengths(x):
    return np.sqrt((x * x).sum(axis=1))


@pytest.mark.parametrize("tier", ["filter", "float64"])
@pytest.mark.parametrize("d", [8, 16, 104, 256, 784, 4096])
def test_product_keeps_its_bound(d, tier, where, kernels):
    """What the filter forgives a product for is more than it is ever off, on data made to be hard to sum."""
    x, y = pairs_hard_to_sum(np.random.default_rng(d), d)
    dtype = kernels.FILTER_DTYPE if tier == "filter" else "float64"
    if dtype != "float16":  # the bits that fp16 has not
        x, y = (part * np.random.default_rng(d).uniform(1, 1.001, part.shape) for part in (x, y))
    x, y = (part.astype(dtype) for part in (x, y))
    none = where.xp.zeros(len(x), "float32")
    operands = [Operand(where.asarray(part), none, none) for part in (x, y)]
    found = to_host(kernels.Workspace().product(*operands)).astype(np.longdouble)
    assert operands[0].accumulator == ("float64" if dtype == "float64" else "float32")
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    bound = accumulation_bound(d, operands[0].accumulator)
    worst = float((np.abs(found - x @ y.T) / (lengths(x)[:, None] * lengths(y))).max())
    print(f"{where.name}, {dtype}, {d} features: worst error {worst:.3g}, assumed {bound:.3g}")
    assert worst < bound


@pytest.mark.gpu
@pytest.mark.parametrize("d", [8, 16, 104, 256, 300, 784, 4096])
def test_fused_product_keeps_its_bound(d, hopper):
    """The same for the fused filter. Nobody sees its products, but whether they pass: their values are bisected."""
    import cupy

    x, y = pairs_hard_to_sum(np.random.default_rng(d), d)
    n, scaling = len(x), Scaling(cupy.zeros(d), 1.0)
    fused = hopper.FusedFilter(cupy.asarray(y), scaling, cupy.arange(n, dtype="int32"))
    rows = fused.prepare_rows(cupy.asarray(x), cupy.arange(n, dtype="int32"))
    norms = -norms_in_tails(fused.columns.tails)[:n]  # the products come with these subtracted
    exact = x @ y.T - norms
    assumed = accumulation_bound(-(-d // 8) * 8 + EXTRA_FEATURES, "float32") * (
        lengths(x)[:, None] * lengths(y) + norms
    )
    reaches = (cupy.zeros(size, "float32") for size in (rows.half_norm.size, rows.half_norm.size // hopper.COLUMNS))
    radius, group = hopper.Reach(*reaches), cupy.zeros(n, "int32")

    def passes(threshold, column):
        """Whether each row's product with its column is at least the row's threshold."""
        half_norm = cupy.full(rows.half_norm.size, cupy.inf, "float32")
        half_norm[:n] = cupy.asarray(threshold)
        k = n // 12 + 1  # room for all columns
        kept = fused.keep(replace(rows, half_norm=half_norm), slice(0, n), radius, k, group, None)
        assert kept.capacity >= n
        count, ids = to_host(kept.count), to_host(kept.ids)
        return ((ids == column[:, None]) & (np.arange(kept.capacity) < count[:, None])).any(axis=1)

    worst = 0.0
    for shift in (0, 1, 16, 50):
        column = (np.arange(n) + shift) % n
        middle, room = exact[np.arange(n), column], assumed[np.arange(n), column]
        low, high = middle - 2 * room, middle + 2 * room
        assert passes(low, column).all()
        assert not passes(high, column).any()
        for _ in range(16):
            threshold = ((low + high) / 2).astype(np.float32)
            above = passes(threshold, column)
            low, high = np.where(above, threshold, low), np.where(above, high, threshold)
        worst = max(worst, float((np.abs((low + high) / 2 - middle) / room).max()))
    print(f"fused, {d} features: worst error {worst:.3g} of what is assumed")
    assert 1e-6 < worst < 1


BYTES = {
    "any": lambda rng, n, d: rng.integers(0, 256, (n, d)),
    "like photos": lambda rng, n, d: np.clip(rng.normal(128, 40, (n, d)).round(), 0, 255),
    "clusters": lambda rng, n, d: rng.integers(0, 253, (9, d))[rng.integers(0, 9, n)] + rng.integers(0, 3, (n, d)),
    "alike": lambda rng, n, d: np.full((n, d), 255),
    "black or grey": lambda rng, n, d: np.repeat(rng.choice([0, 128], (n, 1)), d, axis=1),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("d", [1, 15, 16, 17, 33, 120, 128, 129, 300, 600, 784, 4096])
def test_byte_filter_is_exact(d, kind, hopper):
    """What it keeps of each row's pairs: all within the bound, and none above what the halves leave open."""
    import cupy

    from rapids_slink.neighbors import cuda

    n, rng = 700, np.random.default_rng(d)
    X = BYTES[kind](rng, n, d).astype(np.uint8)
    values = cuda.compact(cupy.asarray(X, "float32"), Scaling(cupy.zeros(d), 1.0, byte_values=True))
    half_norms = squares(np.full((1, values.shape[1]), 128), to_host(values)).ravel() // 2
    spread = half_norms.max() - half_norms.min()
    assert hopper.ByteFilter.holds(values) == (spread <= 979_454)
    if spread > 979_454:
        assert d > 119
        return
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    fused = hopper.ByteFilter(values, None, order)
    some = rng.integers(0, n, 300).astype(np.int32)
    apart = squares(X[some], X)
    bound = apart[np.arange(300), rng.integers(0, n, 300)] + rng.choice([-1.0, 0.0, 0.0], 300)
    bound[::50] = np.inf
    rows = fused.prepare_rows(values, cupy.asarray(some))
    radius = fused.radius(cupy.asarray(bound), rows, d, None)
    component = rng.integers(0, 2, n).astype(np.int32)
    for band, groups in ((slice(0, n), None), (slice(256, 400), cupy.asarray(component)[order])):
        kept = fused.keep(rows, band, radius, n // 12 + 1, cupy.asarray(component[some]), groups)
        inside = np.isin(np.arange(n), to_host(order[band]))
        for i, (ids, kept_of_row) in enumerate(zip(to_host(order[kept.ids % n]), to_host(kept.count), strict=True)):
            found = ids[:kept_of_row]
            wanted = inside & ((component != component[some[i]]) if groups is not None else True)
            assert np.unique(found).size == found.size
            assert wanted[found].all()
            assert np.isin(np.flatnonzero(wanted & (apart[i] <= bound[i])), found).all()
            assert (apart[i, found] <= bound[i] + 2).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["any", "like photos", "clusters", "alike"])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(600, 3, 4), (3000, 16, 1), (5000, 100, 16), (2500, 784, 33), (1100, 1500, 8)]
)
def test_lists_of_bytes(n, d, k, kind, hopper):
    """By the tensor cores for bytes, each pair formed once; a few features too."""
    import cupy

    X = BYTES[kind](np.random.default_rng(n), n, d).astype(np.float32)
    report, where = Report(), resolve("cuda")
    search = TileSearch(cupy.asarray(X), where, report)
    assert report["neighbors"]["filter"] == "uint8 tensor cores (fused)"
    lists = neighbor_lists(search, n, k, where)
    assert report["neighbors"]["rows_certified"] > 0 or kind == "alike"
    expected = neighbor_lists(TileSearch(X, CPU, Report()), n, k, CPU)
    np.testing.assert_array_equal(to_host(lists.ids), expected.ids)
    np.testing.assert_array_equal(to_host(lists.weights), expected.weights)


def test_the_test_is_tight(where, kernels):
    """A filter that lets everything pass would prove nothing."""
    X = np.random.default_rng(0).normal(size=(500, 30))
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    operand = kernels.pack(values, scaling, kernels.FILTER_DTYPE)
    product = kernels.Workspace().product(operand, operand)
    apart = squares(X)
    bound = np.sort(apart, axis=1)[:, 10]
    radius = reach(where.asarray(bound), operand.error, scaling, 30, where.xp)
    q = radius[:, None] + operand.error
    passes = to_host(product >= operand.half_norm[:, None] + operand.half_norm - q * q)
    assert passes[apart <= bound[:, None]].all()
    assert passes.sum() <= 1.2 * (apart <= bound[:, None]).sum()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_operands_are_what_they_claim(dtype, where, kernels):
    X = np.random.default_rng(0).normal(size=(200, 13)) * 1e5 + 3e5
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    order = where.asarray(np.random.default_rng(1).permutation(200)[:150].astype(np.int32))
    operand = kernels.pack(values, scaling, dtype, order)
    y = to_host(operand.y).astype(np.float64)
    z = (X[to_host(order)] - to_host(scaling.centre)) * scaling.scale
    assert np.frexp(scaling.scale)[0] == 0.5  # a power of two
    largest = np.abs((X - to_host(scaling.centre)) * scaling.scale).max()
    assert largest <= 2**15
    assert 13 * largest**2 / 2 <= 2**30 < 13 * (4 * largest) ** 2 / 2  # no larger power of two but one is sure to fit
    assert operand.y.shape[1] == (16 if dtype == "float16" else 13)
    assert (y[:, 13:] == 0).all()
    moved = np.linalg.norm(y[:, :13] - z, axis=1)
    assert (to_host(operand.error) >= moved / 2**0.5).all()
    np.testing.assert_allclose(to_host(operand.error), moved / 2**0.5, rtol=1e-5, atol=1e-9)
    assert (2 * to_host(operand.half_norm).astype(float) <= (y * y).sum(axis=1)).all()
    np.testing.assert_allclose(2 * to_host(operand.half_norm), (y * y).sum(axis=1), rtol=1e-4)
    part = operand.take(slice(5, 9))
    np.testing.assert_array_equal(to_host(part.y), to_host(operand.y)[5:9])
    np.testing.assert_array_equal(to_host(part.error), to_host(operand.error)[5:9])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "step"), [(1, 1, 1), (1, 40, 3), (700, 33, 1), (5000, 3, 7)])
def test_centre_is_the_mean_of_a_sample(n, d, step, dtype, where, kernels):
    X = np.random.default_rng(n).normal(5, 2, (n, d)).astype(dtype)
    np.testing.assert_allclose(to_host(kernels.centre(where.asarray(X), step)), X[::step].mean(axis=0), rtol=1e-5)
    X[0, 0] = X[-1, 0] = np.finfo(dtype).max
    assert np.isfinite(to_host(kernels.centre(where.asarray(X), 1))).all()


def test_small_integers_are_not_moved(where, kernels):
    X = np.random.default_rng(0).integers(0, 256, (100, 10)).astype(np.float32)
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    assert (to_host(scaling.centre) == 0).all()
    y = to_host(kernels.pack(values, scaling, "float16").y).astype(np.float64)
    np.testing.assert_array_equal(y[:, :10], X.astype(np.float64) * scaling.scale)


# ------------------------------------------------------------------------------------------------- the tiers


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_rows_whose_candidates_overflow_go_to_the_next_tier(failing, shared, where, kernels, monkeypatch):
    """The first tiers get buffers for two candidates. Whichever tier proves a row, its list is right."""
    n, k = 1200, 1 if shared else 5
    X = np.random.default_rng(failing).normal(size=(n, 20))
    chunks = -(-n // kernels.ROWS)
    made, roomy = count(1), kernels.new_candidates

    def cramped(rows, k):
        new = roomy(rows, k)
        return type(new)(new.ids[:, :2].copy(), new.count) if next(made) <= failing * chunks else new

    monkeypatch.setattr(kernels, "new_candidates", cramped)
    report, rows = Report(), where.xp.arange(n, dtype="int32")
    search = TileSearch(where.asarray(X), where, report, fused=False)
    infinite = where.xp.full(n, where.xp.inf)
    if shared:
        group = (rows % 7).astype("int32")
        found = search.find(Task(rows, 1, group, group, infinite, shared=True))
        apart = squares(X)
        apart[to_host(group)[:, None] == to_host(group)] = np.inf
        best = [to_host(found.weights)[g::7].min() for g in range(7)]
        assert best == [apart[g::7].min() for g in range(7)]
        assert_unlisted_are_above(found, apart)
    else:
        assert_lists(search.find(Task(rows, k, rows, rows, infinite)), least(others(squares(X)), k))
        counts = report["neighbors"]
        assert (counts["rows_redone"] > n / 2) == (failing > 0)
        assert (counts["rows_scanned_exactly"] > n / 2) == (failing == 3)


@pytest.mark.gpu
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("of_bytes", [False, True])
def test_rows_that_overflow_in_the_fused_filter(of_bytes, whole, monkeypatch, hopper):
    """With little room most rows are done again: by `keep` if they came from `keep_both`, else in float64."""
    where, n, k = resolve("cuda"), 3000, 5
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (n, 20)).astype(np.float32) if of_bytes else rng.normal(size=(n, 20))
    room = "room_of_sweeps" if whole else "room"
    monkeypatch.setattr(hopper.FusedFilter, room, staticmethod(lambda k: k + 1))
    report, rows = Report(), where.xp.arange(n, dtype="int32")
    search = TileSearch(where.asarray(X), where, report)
    task = Task(rows, k, rows, rows) if whole else Task(rows, k, rows.copy(), rows.copy())
    assert task.whole == whole
    assert_lists(search.find(task), least(others(squares(X)), k))
    assert report["neighbors"]["rows_redone"] > n / 10


def test_more_features_than_the_proof_allows(where, monkeypatch):
    """Every distance is computed then."""
    monkeypatch.setattr("rapids_slink.neighbors.tiles.MOST_FEATURES", 19)
    X, report = np.random.default_rng(0).normal(size=(400, 20)), Report()
    lists = neighbor_lists(TileSearch(where.asarray(X), where, report), 400, 3, where)
    assert_lists(lists, least(others(squares(X)), 3))
    counts = {"rows_certified": 0, "rows_redone": 0, "rows_scanned_exactly": 400}
    assert report["neighbors"] == {"filter": "none", **counts}


@pytest.mark.parametrize("name", ["one_far_outlier", "tight_clusters", "blobs_1e4_apart", "all_rows_equal"])
def test_data_that_no_rough_filter_can_tell_apart(name, where):
    """An outlier, or the distance between clusters, leaves the filter's type too few bits: later tiers must act."""
    X, report = CASES[name]("float64"), Report()
    if name == "one_far_outlier":
        X[123] = 1e12
    if name == "blobs_1e4_apart":
        X = np.where(X > 5e3, X * 1e5, X)
    search = TileSearch(where.asarray(X), where, report)
    assert_lists(neighbor_lists(search, len(X), 4, where), least(others(squares(X)), 4))
    if name != "tight_clusters":
        assert report["neighbors"]["rows_redone"] > 0


# ---------------------------------------------------------------------------------------------- pairs of tiles


@pytest.mark.parametrize("name", ["few_big_clusters", "integer_grid_10d", "repeated_rows", "cauchy", "offset_1e7"])
def test_pairs_below_a_table(name, where):
    """No pair of two components that is at most their entry is missing."""
    X = CASES[name]("float32")[:1100]
    n = len(X)
    rng = np.random.default_rng(1)
    component = rng.integers(0, 5, n).astype(np.int32)
    apart = squares(X)
    table = np.array([[np.partition(apart[component == a][:, component == b].ravel(), 40)[40] for b in range(5)]
                      for a in range(5)])  # fmt: skip
    table[0, 1] = table[1, 0] = 0.0
    search = TileSearch(where.asarray(X), where, Report())
    src, dst = (to_host(part) for part in search.pairs_below(where.asarray(component), where.asarray(table)))
    assert (component[src] != component[dst]).all()
    found = np.zeros((n, n), bool)
    found[src, dst] = True
    assert found.sum() == src.size  # each once
    assert not (found & found.T).any()
    wanted = (apart <= table[component[:, None], component]) & (component[:, None] != component)
    assert (found | found.T)[wanted].all()


# -------------------------------------------------------------------------------------------- kernels, alone


def operands(X, where, kernels):
    values = where.asarray(X)
    scaling = Scaling.of(values, device=where)
    return values, scaling, kernels.pack(values, scaling, kernels.FILTER_DTYPE)


SIZES = pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 700), (70, 1), (33, 1025), (100, 130)])


@SIZES
def test_keep(m, n, where, kernels):
    rng = np.random.default_rng(m + n)
    X = rng.normal(size=(m + n, 9))
    _, scaling, operand = operands(X, where, kernels)
    rows, columns = operand.take(slice(0, m)), operand.take(slice(m, m + n))
    row_group, column_group = rng.integers(0, 3, m).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    ids = rng.permutation(n).astype(np.int32)
    radius = reach(where.asarray(rng.uniform(0, 20, m)), rows.error, scaling, 9, where.xp)
    candidates = kernels.new_candidates(m, 1)
    groups = where.asarray(row_group), where.asarray(column_group)
    for _ in range(2):  # a second tile is appended to the first
        kernels.keep(rows, columns, radius, *groups, where.asarray(ids), candidates, kernels.Workspace())
    product = to_host(kernels.Workspace().product(rows, columns))
    q = to_host(radius)[:, None] + to_host(columns.error)
    passes = product >= to_host(rows.half_norm)[:, None] + to_host(columns.half_norm) - q * q
    passes &= row_group[:, None] != column_group[ids]
    count, kept = to_host(candidates.count).ravel(), to_host(candidates.ids)
    np.testing.assert_array_equal(count, 2 * passes.sum(axis=1))
    for i in range(m):
        expected = ids[np.flatnonzero(passes[i])]
        if count[i] <= candidates.capacity:
            assert sorted(kept[i, : count[i]]) == sorted([*expected, *expected])
        else:
            assert np.isin(kept[i], expected).all()


@SIZES
@pytest.mark.parametrize("k", [1, 20, 100])
@pytest.mark.parametrize("cores", [False, True])
def test_seed(m, n, k, cores, where, kernels):
    """At least k columns of other groups are within a row's bound, hardly above the nearest of some buckets."""
    rng = np.random.default_rng(m + n)
    X = rng.normal(size=(m + n, 9))
    _, scaling, operand = operands(X, where, kernels)
    rows, columns = operand.take(slice(0, m)), operand.take(slice(m, m + n))
    row_group, column_group = rng.integers(0, 4, m).astype(np.int32), rng.integers(0, 4, n).astype(np.int32)
    ids = rng.permutation(n).astype(np.int32)
    groups = where.asarray(row_group), where.asarray(column_group)
    core = rng.uniform(0, 20, m + n)
    of_rows = (rng.permutation(m) + n).astype(np.int32)
    given = (where.asarray(of_rows), where.asarray(core)) if cores else None
    ceiling = Ceiling.of(9, scaling, EUCLIDEAN)

    def lowered(bound):
        bound = where.asarray(bound.copy())
        kernels.seed(rows, columns, *groups, where.asarray(ids), k, kernels.Workspace(), ceiling, bound, given)
        return to_host(bound)

    bound = lowered(np.full(m, np.inf))
    half = np.where(np.arange(m) % 2, 0.5 * bound, 2 * bound)  # of which some hold already
    np.testing.assert_array_equal(lowered(half), np.minimum(half, bound))
    apart = squares(X[:m], X[m:])
    if cores:
        apart = np.maximum(apart, np.maximum(core[of_rows, None], core[ids]))
    apart[row_group[:, None] == column_group[ids]] = np.inf
    within = (apart <= bound[:, None]).sum(axis=1)
    assert (within[bound < np.inf] >= k).all()
    buckets = max(32, 2 * k) if where.name == "cpu" else -(-max(32, 2 * k) // 32) * 32
    nearest = np.full((m, buckets), np.inf)
    for b in range(min(buckets, n)):
        nearest[:, b] = apart[:, b::buckets].min(axis=1)
    if not cores:  # of these, which is the nearest of its bucket does not show
        expected = np.sort(nearest, axis=1)[:, k - 1]
        assert (np.isinf(bound) == np.isinf(expected)).all()
        finite = np.isfinite(bound)
        assert (bound[finite] >= expected[finite] * (1 - 1e-12)).all()
        assert (bound[finite] <= expected[finite] * 1.01).all()


def all_survive(fused, n, d):
    """Each point's survivors when nothing bounds them: everyone else."""
    import cupy

    fused.room_of_sweeps = lambda k: n - 1
    found = fused.survivors(1)
    everything = fused.radius(cupy.full(n, cupy.inf), fused.columns, d, EUCLIDEAN)
    fused.keep_both(slice(0, fused.sweeps()[-1].stop), everything, found)
    assert (to_host(found.count) == n - 1).all()
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["normal", "offset", "outlier", "twins", *BYTES])
@pytest.mark.parametrize("k", [1, 16, 40])
@pytest.mark.parametrize("d", [5, 128, 300])
def test_tighten(d, k, kind, hopper):
    """Bounds come down to just above the k-th of the survivors, of which those within them stay."""
    import cupy

    from rapids_slink.neighbors import cuda

    n, rng = 700, np.random.default_rng(d)
    if kind in BYTES:
        X = BYTES[kind](rng, n, d).astype(np.float32)
    else:
        X = rng.normal(size=(n, d)) + (1e3 if kind == "offset" else 0)
        if kind == "outlier":
            X[17] *= 1e4
        if kind == "twins":
            X[::2] = X[1::2] + 1e-9
    where, values = resolve("cuda"), cupy.asarray(X)
    scaling = Scaling.of(values, device=where)
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    compact = cuda.compact(values, scaling)
    if kind in BYTES:
        if not hopper.ByteFilter.holds(compact):
            pytest.skip("norms too far apart for the filter of bytes")
        fused = hopper.ByteFilter(compact, scaling, order)
    else:
        fused = hopper.FusedFilter(values, scaling, order)
    at = to_host(order)
    apart = squares(X)[at][:, at]
    bound = cupy.full(n, cupy.inf)
    found = all_survive(fused, n, d)
    everyone_else = np.array([[j for j in range(n) if j != i] for i in range(n)])
    np.testing.assert_array_equal(np.sort(to_host(found.ids), axis=1), everyone_else)
    some = cupy.arange(n) % 3 == 0  # bounds that hold already
    bound[some] = cupy.asarray(np.sort(apart, axis=1)[::3, k // 2])
    count = found.count.copy()
    found.count[5::50] = n + found.capacity  # as if some had been lost: all stay
    fused.tighten(found, bound, k, d, EUCLIDEAN)
    tightened, kth = to_host(bound), np.sort(others(apart), axis=1)[:, k - 1]
    assert (tightened[::3] == np.sort(apart, axis=1)[::3, k // 2]).all()
    own = np.arange(n) % 3 > 0
    lost = np.zeros(n, bool)
    lost[5::50] = True
    assert (tightened[own & ~lost] >= kth[own & ~lost]).all()
    if kind in ("normal", "any", "like photos"):
        assert (tightened[own & ~lost] <= kth[own & ~lost] * 1.01 + 2).all()
    assert (to_host(found.count)[lost] == n + found.capacity).all()
    assert (to_host(found.count)[~lost] <= to_host(count)[~lost]).all()
    for i in np.flatnonzero(~lost):
        kept = to_host(found.ids[i, : int(found.count[i])])
        assert np.unique(kept).size == kept.size
        within = np.flatnonzero(others(apart)[i] <= tightened[i])
        assert np.isin(within, kept).all()
        if kind == "normal":
            assert kept.size <= 1.3 * within.size + 3


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["hard to sum", "directions", "offset"])
@pytest.mark.parametrize("d", [8, 104, 300, 784])
def test_survivors_carry_half_their_distance(d, kind, hopper):
    """A pair's half is off by no more, either way, than `Ceiling` has it."""
    import cupy

    from rapids_slink.neighbors import cuda

    rng = np.random.default_rng(d)
    X = np.vstack(pairs_hard_to_sum(rng, d)) if kind == "hard to sum" else rng.normal(size=(300, d))
    if kind == "directions":
        X /= lengths(X)[:, None]
    if kind == "offset":
        X += 1e3
    n, values = len(X), cupy.asarray(X)
    scaling = Scaling(cupy.zeros(d), 1.0) if kind == "hard to sum" else Scaling.of(values, device=resolve("cuda"))
    order = cupy.asarray(rng.permutation(n).astype(np.int32))
    fused = hopper.FusedFilter(values, scaling, order)
    found = all_survive(fused, n, d)
    ids, half = to_host(found.ids), to_host(found.apart).astype(np.longdouble)
    y = to_host(cuda.pack(values, scaling, "float16", order).y).astype(np.longdouble)
    norm = to_host(fused.columns.half_norm)[:n].astype(np.longdouble)
    true = np.stack([((y[i] - y[ids[i]]) ** 2).sum(axis=1) / 2 for i in range(n)])
    ceiling = Ceiling.of(d, scaling, EUCLIDEAN)
    allowed = ceiling.excess * (norm[:, None] + norm[ids]) + ceiling.lost + np.abs(half) * 2.0**-22
    print(f"{kind}, {d} features: worst {float((np.abs(half - true) / allowed).max()):.3g} of what is allowed")
    assert (np.abs(half - true) <= allowed).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "d", "k"),
    [("bytes", 600, 16), ("normal", 600, 16), ("bytes", 128, 16), ("normal", 64, 16), ("normal", 20, 1000)],
)
def test_lists_where_blocks_take_many_work_items(kind, d, k, hopper, monkeypatch):
    """On a few multiprocessors, with rows that stay in shared memory and with rows that do not; of one set and two."""
    monkeypatch.setattr(hopper, "multiprocessors", lambda: 4)
    where, n, rng = resolve("cuda"), 20_000, np.random.default_rng(d)
    X = BYTES["like photos"](rng, n, d) if kind == "bytes" else rng.normal(size=(n, d))
    X, report = X.astype(np.float32), Report()
    lists = neighbor_lists(TileSearch(where.asarray(X), where, report), n, k, where)
    assert report["neighbors"]["filter"] == (hopper.ByteFilter if kind == "bytes" else hopper.FusedFilter).NAME
    assert report["neighbors"]["rows_certified"] > 0.99 * n
    some = rng.permutation(n)[:40]
    apart = squares(X[some], X)
    apart[np.arange(40), some] = np.inf
    expected = least(apart, k)
    np.testing.assert_array_equal(to_host(lists.ids)[some], expected[0])
    np.testing.assert_array_equal(to_host(lists.weights)[some], expected[1])
    half, rows = where.asarray(X[: n // 2]), where.xp.arange(n // 2, dtype="int32")
    between = TileSearch(where.asarray(X[n // 2 :]), where, report, half)
    found = between.find(Task(rows, 3, rows, where.xp.full(n // 2, -1, "int32")))
    ids, weights = least(squares(X[:30], X[n // 2 :]), 3)
    np.testing.assert_array_equal(to_host(found.ids)[:30], ids)
    np.testing.assert_array_equal(to_host(found.weights)[:30], weights)


def assert_reranked(X, m, where, rerank, candidates, row_group, column_group, upper, k):
    """`rerank` gives the lists of the first m points among the candidates (a boolean matrix)."""
    apart = np.where(candidates & (row_group[:, None] != column_group), squares(X)[:m], np.inf)
    expected = least(np.where(apart <= upper[:, None], apart, np.inf), k)
    if expected[0].shape[1] < k:
        wide = (0, 0), (0, k - expected[0].shape[1])
        expected = np.pad(expected[0], wide, constant_values=-1), np.pad(expected[1], wide, constant_values=np.inf)
    ids, weights = rerank()
    np.testing.assert_array_equal(to_host(ids), expected[0])
    np.testing.assert_array_equal(to_host(weights), expected[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 5, 8, 9, 32, 33, 70])
@pytest.mark.parametrize("k", [1, 7, 33])
def test_rerank(d, k, dtype, where, kernels):
    """Candidates in two parts, with gaps (-1), equal values and bounds; a list is merged with what it held."""
    rng = np.random.default_rng(d)
    n, m, each = 200, 30, 80
    X = rng.integers(0, 5, (n, d)).astype(dtype)
    X[::2] += rng.normal(size=(n // 2, d)).astype(dtype)
    upper = np.where(np.arange(m) % 2, np.inf, np.median(squares(X)[:m], axis=1))
    top = kernels.new_lists(m, k)
    chosen = np.stack([rng.permutation(n)[: 2 * each] for _ in range(m)]).astype(np.int32)
    chosen[:, ::9] = -1
    listed = np.zeros((m, n), bool)
    counts = rng.integers(0, each + 1, (2, m))
    counts[:, 0] = 0
    rows, values = np.arange(m, dtype=np.int32), where.asarray(X)
    groups = np.zeros(m, np.int32), np.ones(n, np.int32)
    on_device = tuple(where.asarray(group) for group in groups)
    bound = where.asarray(upper.copy())
    for part in range(2):
        ids = np.ascontiguousarray(chosen[:, part * each : (part + 1) * each])
        for i in range(m):
            seen = ids[i, : counts[part, i]]
            listed[i, seen[seen >= 0]] = True
        empty = kernels.new_candidates(m, 1)
        count = where.asarray(counts[part]).astype(empty.count.dtype).reshape(empty.count.shape)
        candidates = type(empty)(where.asarray(ids), count)
        kernels.rerank(values, values, where.asarray(rows), candidates, on_device, bound, top)
        np.testing.assert_array_equal(to_host(bound), np.minimum(upper, to_host(top.weights)[:, -1]))
        assert not to_host(top.lost).any()
    assert_reranked(X, m, where, lambda: (top.ids, top.weights), listed, *groups, upper, k)


@pytest.mark.parametrize("k", [1, 33])
def test_rerank_notes_rows_that_lost_candidates(k, where, kernels):
    X = np.random.default_rng(0).normal(size=(9, 5))
    values, rows = where.asarray(X), where.xp.arange(9, dtype="int32")
    top, made = kernels.new_lists(9, k), kernels.new_candidates(9, 1)
    for counts in ([3, 4, 5, 0, 9, 4, 4, 4, 4], [0, 0, 0, 8, 0, 0, 0, 0, 4]):
        count = where.asarray(np.array(counts)).astype(made.count.dtype)
        ids = where.asarray(np.tile(np.arange(4, dtype=np.int32), (9, 1)))
        groups = where.xp.zeros(9, "int32"), where.xp.ones(9, "int32")
        bound = where.xp.full(9, where.xp.inf)
        kernels.rerank(values, values, rows, type(made)(ids, count), groups, bound, top)
    assert to_host(top.lost).tolist() == [False, False, True, True, True, False, False, False, False]


@pytest.mark.parametrize(("m", "n"), [(0, 10), (1, 1), (1, 500), (40, 300)])
@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("k", [1, 20, 1500])
def test_rerank_all(m, n, d, k, where, kernels):
    rng = np.random.default_rng(n)
    X = rng.integers(0, 4, (max(m, n), d)).astype(np.float32)
    k = min(k, n)
    row_group, column_group = rng.integers(0, 3, m).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    upper = rng.choice([0.0, 4.0, 20.0, np.inf], m)
    values = where.asarray(X)
    arrays = [where.asarray(a) for a in (np.arange(m, dtype=np.int32), row_group, column_group, upper)]
    everyone = np.ones((m, n), bool)

    def rerank():
        return kernels.rerank_all(values, values[:n], *arrays, k)

    apart_of = X[:n] if n >= m else X
    assert_reranked(apart_of, m, where, rerank, everyone, row_group, column_group, upper, k)


def test_kernels_of_no_rows(where, kernels):
    X = np.random.default_rng(0).normal(size=(20, 9))
    values, _, _ = operands(X, where, kernels)
    top, candidates = kernels.new_lists(0, 3), kernels.new_candidates(0, 3)
    src = where.xp.empty(0, "int32")
    kernels.rerank(values, values, src, candidates, (src, where.xp.zeros(20, "int32")), where.xp.empty(0), top)
    assert top.ids.shape == top.weights.shape == (0, 3)
    assert kernels.pair_values(values, src, src).shape == (0,)
    least_of = where.asarray(np.array([3.0, 4.0]))
    kernels.lower_groups(least_of, src, where.xp.empty((0, 3)))
    assert to_host(least_of).tolist() == [3.0, 4.0]


def test_fresh_buffers(kernels):
    top, candidates = kernels.new_lists(4, 3), kernels.new_candidates(4, 3)
    assert (to_host(top.ids) == -1).all()
    assert np.isinf(to_host(top.weights)).all()
    assert to_host(candidates.count).ravel().tolist() == [0] * 4
    assert candidates.ids.shape == (4, candidates.capacity)
    assert candidates.capacity >= 3


@pytest.mark.parametrize("n", [0, 1, 31, 5000])
@pytest.mark.parametrize("share", [0.0, 0.01, 1.0])
def test_positions(n, share, where, kernels):
    flags = np.random.default_rng(n).random(n) < share
    assert sorted(to_host(kernels.positions(where.asarray(flags)))) == np.flatnonzero(flags).tolist()


def test_what_the_host_does_meanwhile_need_not_find_memory(where, kernels):
    asked = []

    def refused():
        asked.append(True)
        raise MemoryError

    assert to_host(kernels.positions(where.asarray(np.arange(40) == 7), refused)).tolist() == [7]
    assert asked == ([] if where.name == "cpu" else [True])


@pytest.mark.gpu
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("m", [1, 255, 700])
def test_reach_of_fused_rows(m, metric, hopper):
    """To the bits of `operand.reach`, nothing for the rows that fill up the last block, and each tile's largest."""
    import cupy

    rng = np.random.default_rng(m)
    rows = cupy.arange(m, dtype="int32")
    X = cupy.asarray(rng.normal(size=(m, 20)).astype(np.float32))
    bytes_ = cupy.asarray(rng.integers(0, 256, (m, 32)).astype(np.uint8))
    bound = rng.uniform(0, 2, m) * 10.0 ** rng.integers(-300, 5, m)
    bound[::7], bound[1::7] = np.inf, 0.0
    scaling, metric = Scaling(cupy.zeros(20), 2.0**9), METRICS[metric]
    fused = hopper.FusedFilter(X, scaling, rows)
    expected = reach(bound, to_host(fused.columns.error)[:m], scaling, 20, np, metric)
    of_bytes = hopper.ByteFilter(bytes_, None, rows)
    for among, values in ((fused, expected), (of_bytes, np.minimum(bound / 2, of_bytes.EVERYTHING).astype(np.int32))):
        found = among.radius(cupy.asarray(bound), among.columns, 20, metric)
        padded = np.pad(values, (0, -m % 256))
        np.testing.assert_array_equal(to_host(found.of_row), padded)
        np.testing.assert_array_equal(to_host(found.of_tile), padded.reshape(-1, 128).max(axis=1))


@pytest.mark.parametrize("m", [1, 1000])
def test_lower_groups(m, where, kernels):
    """Bits that float32 would lose, both signs of the exponent, and groups that nobody lowers."""
    rng = np.random.default_rng(m)
    before, group = 1 + rng.random(20), rng.integers(0, 15, m).astype(np.int32)
    weights = 1 + rng.random((m, 3))
    weights[::5] = np.inf
    weights[1::50, 0], weights[2::50, 0] = 1e-300, 0.0
    expected = before.copy()
    np.minimum.at(expected, group, weights[:, 0])
    lowered = where.asarray(before.copy())
    kernels.lower_groups(lowered, where.asarray(group), where.asarray(weights))
    np.testing.assert_array_equal(to_host(lowered), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 9, 100])
def test_pair_values(d, dtype, where, kernels):
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(50, d)) * 10.0 ** rng.integers(-10, 10, (50, 1))).astype(dtype)
    src, dst = rng.integers(0, 50, (2, 300)).astype(np.int32)
    found = kernels.pair_values(where.asarray(X), where.asarray(src), where.asarray(dst))
    np.testing.assert_array_equal(to_host(found), squares(X)[src, dst])


@pytest.mark.parametrize("capacity", [3, 100_000])
def test_keep_pairs(capacity, where, kernels):
    """Pairs of different components, each once, that pass with their components' reach; counted even if not kept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 9))
    _, scaling, operand = operands(X, where, kernels)
    component = np.sort(rng.integers(0, 4, 150)).astype(np.int32)
    none = where.xp.zeros((), operand.error.dtype)
    table = reach(where.asarray(rng.uniform(1, 9, (4, 4))), none, scaling, 9, where.xp)
    rows, columns = operand.take(slice(20, 90)), operand.take(slice(60, 150))
    pairs = kernels.new_pairs(capacity)
    components = where.asarray(component[20:90]), where.asarray(component[60:150])
    kernels.keep_pairs(rows, columns, 20, 60, *components, table, pairs, kernels.Workspace())
    product, far = to_host(kernels.Workspace().product(rows, columns)), to_host(table)
    i, j = np.arange(20, 90)[:, None], np.arange(60, 150)
    q = to_host(rows.error)[:, None] + (far[component[i], component[j]] + to_host(columns.error))
    passes = product >= to_host(rows.half_norm)[:, None] + to_host(columns.half_norm) - q * q
    passes &= (component[i] != component[j]) & (i < j)
    expected = np.argwhere(passes) + np.array([20, 60])
    assert int(pairs.count[0]) == len(expected) > 3
    kept = to_host(pairs.at)[: min(capacity, len(expected))].tolist()
    assert len({tuple(pair) for pair in kept}) == len(kept)
    assert {tuple(pair) for pair in kept} <= {tuple(pair) for pair in expected.tolist()}


@pytest.mark.parametrize("m", [1, 65])
def test_product(m, where, kernels):
    _, _, operand = operands(np.random.default_rng(0).normal(size=(80, 21)), where, kernels)
    space = kernels.Workspace()
    large, small = space.product(operand, operand), None
    assert large.shape == (80, 80)
    small = to_host(space.product(operand.take(slice(0, m)), operand.take(slice(m, 80))))
    y = to_host(operand.y).astype(np.float64)
    np.testing.assert_allclose(small, y[:m] @ y[m:].T, rtol=1e-4, atol=1e-4 * (y * y).sum(axis=1).max())


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4096, 10_000])
def test_scattered_is_a_permutation_spread_evenly(n, kernels):
    order = to_host(kernels.scattered(n))
    assert order.dtype == np.int32
    assert sorted(order) == list(range(n))
    if n >= 1000:
        early = np.bincount(order[: n // 5] * 10 // n, minlength=10)
        assert early.max() <= 1.1 * early.min()


@pytest.mark.parametrize(
    "name", ["filaments", "cauchy_3d", "repeated_rows_2d", "all_rows_equal_1d", "one_row", "two_rows"]
)
def test_tree_is_a_partition_in_boxes(name):
    X = CASES[name]("float32")
    tree = build(X)
    assert sorted(tree.order) == list(range(len(X)))
    np.testing.assert_array_equal(tree.order[tree.at], np.arange(len(X)))
    points = tree.columns[:, : len(X)].T
    np.testing.assert_array_equal(points, X[tree.order].astype(np.float64))
    leaves = (tree.low.shape[0] + 1) // 2
    assert (tree.first[0], tree.last[0]) == (0, len(X))
    for v in range(tree.low.shape[0]):
        inside = points[tree.first[v] : tree.last[v]]
        if len(inside):
            np.testing.assert_array_equal(tree.low[v], inside.min(axis=0))
            np.testing.assert_array_equal(tree.high[v], inside.max(axis=0))
        if v < leaves - 1:
            left, right = 2 * v + 1, 2 * v + 2
            assert (tree.first[left], tree.last[right]) == (tree.first[v], tree.last[v])
            assert tree.last[left] == tree.first[right]
            assert abs(tree.last[left] - tree.first[left] - (tree.last[right] - tree.first[right])) <= 1


@pytest.mark.gpu
def test_norms_in_parts_are_rounded_down():
    """The tails of the fused filter's columns hold, in units, the norms that the tensor cores subtract."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    import cupy

    from rapids_slink.neighbors.cuda import pack_rows

    lengths = 2.0 ** np.arange(-30, 16, 0.25)[:, None] * np.random.default_rng(0).uniform(0.5, 0.9, (184, 4))
    X = cupy.asarray(np.append(lengths.ravel(), [0.0, 5e-6, 1e-45])[:, None])
    packed = pack_rows(X, Scaling(cupy.zeros(1), 1.0), None, 768, 1, tails=True)
    assert (X.size, packed.half_norm.size) == (739, 768)
    norms = to_host(packed.half_norm).astype(np.float64)
    subtracted = -norms_in_tails(packed.tails)
    most = 24 * 2.0**-23  # what the tail's norm may be smaller by, and 2**-38 beside it
    assert (subtracted[:739] <= norms[:739]).all()
    assert (subtracted[:739] >= norms[:739] * (1 - 2 * most) - 2.0**-38).all()
    shrunk = norms[:739] * (1 - accumulation_bound(8 + EXTRA_FEATURES, "float32"))
    assert (subtracted[:739] >= shrunk - LOST).all()
    assert np.isinf(norms[739:]).all()
    assert (subtracted[739:] > 2.0**30).all()


def test_errors_name_the_set(device):
    good, bad = [[0.0], [1.0]], [[0.0], [np.nan]]
    with pytest.raises(TypeError, match="column 'a' of Y has dtype object"):
        nearest_neighbors(good, pd.DataFrame({"a": ["x"]}, dtype=object), device=device)
    with pytest.raises(ValueError, match="column 'a' of Y has 1 missing value"):
        nearest_neighbors(good, pd.DataFrame({"a": pd.array([1, None], "Int32")}), device=device)
    with pytest.raises(ValueError, match="X contains values that are not finite: column 0 has 1 NaN"):
        nearest_neighbors(bad, good, device=device)
    with pytest.raises(ValueError, match="Y contains values that are not finite: column 0 has 1 NaN"):
        nearest_neighbors(good, bad, device=device)
    with pytest.raises(ValueError, match=r"the values of column 0 span 2e\+155.*Rescale Y"):
        nearest_neighbors(good, [[1e155], [-1e155]], device=device)


def test_distances_between_sets_that_overflow(device):
    with pytest.raises(ValueError, match="distances between X and Y overflow float64"):
        nearest_neighbors([[1e155]], [[-1e155], [-9.5e154]], device=device)

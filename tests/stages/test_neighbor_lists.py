"""The lists of every search against all distances in float64."""

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes, combinations, full, shape
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_lists, assert_neighbors, case_lists, least, searches, squared_distances, without_self
from scipy.spatial.distance import cdist, pdist, squareform

from rapids_slink.neighbors import kdtree, neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU


def test_the_oracle_is_scipys():
    for name in ("filaments", "uneven_blobs_32d", "cauchy"):
        X = CASES[name]("float32")[:300].astype(np.float64)
        np.testing.assert_array_equal(squared_distances(X), squareform(pdist(X, "sqeuclidean")))
        np.testing.assert_array_equal(squared_distances(X), cdist(X, X, "sqeuclidean"))


@pytest.mark.parametrize("min_samples", [1, 3])
def test_lists_that_are_short_are_an_error(min_samples, engine):
    ids, weights = np.int32([[1, 2], [0, -1], [0, 1]]), np.array([[1.0, 2], [1, np.inf], [2, 3]])
    search = Search(engine.asarray(weights), engine, Report())
    search.find = lambda task: SearchResult(*map(engine.asarray, (ids, weights, weights[:, 1].copy())))
    with pytest.raises(RuntimeError, match="a search has not found all neighbours"):
        neighbor_lists(search, 3, 2, engine, min_samples)


@pytest.mark.parametrize(
    ("make_search", "name", "dtype"),
    searches(*case_dtypes(min_rows=2), features=lambda name, dtype: shape(name)[1], in_turn=True),
)
def test_lists_of_hard_cases(make_search, name, dtype):
    X, (ids, weights) = case_lists(name, dtype, 1100, 40)
    search = make_search(X)
    for k in (1, 3, 8, 40):
        found = neighbor_lists(search, len(X), k, make_search.engine)
        assert_lists(found, (ids[:, :k], weights[:, :k]))
        assert found.ids.shape == (len(X), min(k, len(X) - 1))


def features_given(d, *_):
    return d


SIZES = [(700, 43), (700, 44), (20, 19), (700, 699), (2000, 100), (1200, 1100), (2300, 2020), (2300, 2060)]
SIZES += [(2, 1), (130, 129), (600, 200)]  # empty slots of tiles pass where nothing bounds a list till its end
QUICK_SIZES = [(11, (700, 43)), (11, (700, 44)), (2, (20, 19)), (11, (20, 19)), (2, (700, 43))]


@pytest.mark.parametrize(
    ("make_search", "d", "size"),
    [
        case
        for case in searches(*combinations((2, 11), SIZES, quick=QUICK_SIZES), features=features_given, in_turn=True)
        if case.values[2][1] < 2000 or case.values[0].device == "cuda"  # which has other kernels for these
    ],
)
def test_long_lists(make_search, d, size):
    """Of no more than 16 times k points all distances are computed."""
    n, k = size
    X = np.random.default_rng(n + k).integers(0, 40, (n, d)).astype(np.float32)
    found = neighbor_lists(make_search(X), n, k, make_search.engine)
    assert_neighbors(found, X, k)


@given(
    st.integers(2, 700), st.integers(1, 10), st.integers(1, 4), st.integers(1, 30), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_lists_on_grids_of_few_values(n, d, side, k, tree, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32)
    search = (TreeSearch if tree else BruteForceSearch)(X, CPU, Report())
    assert_lists(neighbor_lists(search, n, k, CPU), least(without_self(squared_distances(X)), min(k, n - 1)))


def test_rows_search_together_from_the_leaf_in_which_they_start():
    """A walk from another leaf finds the same lists in more time."""
    last = np.array([40, 20, 40, 10, 20, 30, 40])  # of each node of a tree of four leaves
    start = np.repeat([0, 9, 10, 25, 39], [3, 2, 1, kdtree.LEAF + 2, 1])
    begin, leaf, together = 0, kdtree._first_leaf.py_func(start, last), []
    while begin < start.size:
        leaf, m = kdtree._rows_together.py_func(start, begin, last, leaf)
        together.append((leaf, m))
        begin += m
    assert together == [(3, 5), (4, 1), (5, kdtree.LEAF), (5, 2), (6, 1)]


OF_TWO_SETS = "offset_1e7", "one_far_outlier", "tight_clusters", "images", "exponential_gaps_12d"
TWO_SETS = combinations(OF_TWO_SETS, ("float32", "float64"), quick=3)


@pytest.mark.parametrize(
    ("make_search", "name", "dtype"), searches(*TWO_SETS, features=lambda name, dtype: shape(name)[1], two_sets=True)
)
def test_queries_and_points_that_differ(make_search, name, dtype):
    X = CASES[name](dtype)
    Y, X = X[400:], X[:300]
    xp = make_search.engine.xp
    groups = xp.zeros(len(X), "int32"), xp.ones(len(Y), "int32")
    task = SearchTask(xp.arange(len(X), dtype="int32"), 4, *groups, xp.full(len(X), xp.inf))
    assert_lists(make_search(Y, queries=X).find(task), least(squared_distances(X, Y), 4))


def directions(rng, n, d):
    points = rng.normal(size=(n, d))
    return points / np.linalg.norm(points, axis=1)[:, None]


# What is hard for the filter's bounds; (n, d) float64.
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
}  # fmt: skip


def many_rows(*parameters, features, in_turn=False):
    """`searches`, without trees in many dimensions: they would look at all pairs, one by one."""
    return [
        given
        for given in searches(*parameters, features=features, in_turn=in_turn)
        if given.values[0].way != "tree" or features(*given.values[1:]) <= 8
    ]


SHAPES = [(3, "float32", 1), (3, "float64", 16), (40, "float32", 16), (40, "float64", 64)]


@pytest.mark.parametrize(
    ("make_search", "given", "name"),
    many_rows(
        *combinations(SHAPES, ADVERSARIAL, quick=4),
        features=lambda given, name: given[0],
        in_turn=True,
    ),
)
def test_lists_of_adversarial_rows(make_search, given, name):
    d, dtype, k = given
    X = np.ascontiguousarray(ADVERSARIAL[name](np.random.default_rng(d), 3001, d), dtype)
    assert_neighbors(neighbor_lists(make_search(X), len(X), k, make_search.engine), X, k, 8)


@pytest.mark.parametrize(
    ("make_search", "n", "k"),
    many_rows(
        *combinations((3072, 3200, 3333), (1, 16, 64, 100), quick=[(3333, 16), (3200, 1)]), features=lambda n, k: 20
    ),
)
def test_lists_of_every_length_and_fraction_of_a_tile(make_search, n, k):
    """Rows fill blocks of 256 and tiles of 128 points, only the tiles, or neither."""
    X = np.random.default_rng(n).normal(size=(n, 20)).astype(np.float32)
    assert_neighbors(neighbor_lists(make_search(X), n, k, make_search.engine), X, k, 8)


@pytest.mark.parametrize(("make_search", "d"), many_rows((1,), full(1030), full(4096), features=features_given))
def test_lists_of_one_feature_and_of_thousands(make_search, d):
    X = np.random.default_rng(d).normal(size=(2100, d)).astype(np.float32)
    assert_neighbors(neighbor_lists(make_search(X), len(X), 16, make_search.engine), X, 16, 40)


@pytest.mark.parametrize("make_search", searches(features=lambda: 9, in_turn=True))
def test_several_bands_and_chunks(make_search):
    """Enough points for the thresholds to be tightened between bands."""
    n = 9000
    X = np.random.default_rng(n).normal(size=(n, 9)) * np.geomspace(1, 0.01, n)[:, None]
    assert_neighbors(neighbor_lists(make_search(X), n, 5, make_search.engine), X, 5, 7)

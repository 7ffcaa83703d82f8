"""Mutual reachability against its definition: heights, trees, lists, and what the estimator says of it."""

from functools import cache

import numpy as np
import pytest
from hard_cases import CASES, SOME, case_dtypes, full
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_tree, blobs, core_distances, heights_of, mutual_reachability, squared_distances, tree_of
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.base import clone
from spanning_trees import bits

from rapids_slink import SingleLinkage, fit
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.spanning_tree.lists import tree_of_lists

SAMPLES = [1, 2, 5, 15]


def rows_of(name, dtype, most=600):
    return CASES[name](dtype)[:most]


@cache
def heights(name, dtype, m):
    """SciPy's, of the matrix of mutual reachability distances."""
    distances = squareform(pdist(rows_of(name, dtype).astype(np.float64)))
    return heights_of(mutual_reachability(distances, core_distances(distances, m)))


def heights_by_prim(X, m):
    """Like `heights`, row by row: for points too many for a matrix."""
    X, n = X.astype(np.float64), len(X)
    core = np.array([np.partition(cdist(X[v : v + 1], X)[0], m)[m] for v in range(n)])
    best, outside, v, taken = np.full(n, np.inf), np.ones(n, bool), 0, []
    for _ in range(n - 1):
        outside[v] = False
        np.minimum(best, np.maximum(cdist(X[v : v + 1], X)[0], np.maximum(core, core[v])), out=best)
        v = int(np.argmin(np.where(outside, best, np.inf)))
        taken.append(best[v])
    return np.sort(taken)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2, quick=SOME))
def test_heights_are_those_of_the_definition(name, dtype):
    """On a CPU; `test_gpu_and_cpu_give_the_same_bits` is the other half."""
    X = rows_of(name, dtype)
    for m in (m for m in SAMPLES if m < len(X)):
        for n_neighbors in (1, 3, None):
            model = fit(X, 1, min_samples=m, n_neighbors=n_neighbors, device="cpu")
            np.testing.assert_array_equal(model.to_scipy()[:, 2], heights(name, dtype, m))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=3))
def test_gpu_and_cpu_give_the_same_bits(name, dtype):
    X = CASES[name](dtype)
    for m in (m for m in (2, 15) if m < len(X)):
        on_gpu, on_cpu = (fit(X, 1, min_samples=m, n_neighbors=1, device=device) for device in ("cuda", "cpu"))
        assert bits(on_gpu) == bits(on_cpu)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=3))
def test_tree_is_the_one_of_the_total_order(name, dtype, device):
    """Edge by edge: cores tie whole neighbourhoods, and which edge is taken must not depend on the search."""
    X = rows_of(name, dtype, 250)
    distances = squared_distances(X)
    for m in (m for m in (2, 5) if m < len(X)):
        expected = tree_of(mutual_reachability(distances, core_distances(distances, m)))
        for n_neighbors in (1, 8):
            model = fit(X, 1, min_samples=m, n_neighbors=n_neighbors, metric="sqeuclidean", device=device)
            assert_tree(model.mst_, expected)


@pytest.mark.parametrize("name", ["uneven_blobs_2d", *map(full, ("filaments", "uneven_blobs_32d", "few_big_clusters"))])
def test_many_rows(name, device):
    X = CASES[name]("float32")
    model = fit(X, 1, min_samples=5, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_by_prim(X, 5))


@given(st.integers(2, 320), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.booleans(),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_tree_of_points_on_small_grids(n, d, k, m, side, tree_search, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float64)
    m = min(m, n - 1)
    search = (TreeSearch if tree_search else BruteForceSearch)(X, CPU, Report())
    found = tree_of_lists(neighbor_lists(search, n, max(k, m), CPU, m), search, CPU, Report())
    distances = squared_distances(X)
    assert_tree(found.frame, tree_of(mutual_reachability(distances, core_distances(distances, m))))


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "cauchy", "integer_grid", "three_wide_rows"])
def test_one_sample_is_none(name, device):
    """No core is above a distance of its point then."""
    X = rows_of(name, "float64")
    assert bits(fit(X, 2, min_samples=1, device=device)) == bits(fit(X, 2, device=device))


def test_lists(engine):
    """Sorted by (weight, id), with the bound of the order they had before."""
    X = np.random.default_rng(0).integers(0, 5, (150, 2)).astype(np.float64)
    distances = squared_distances(X)
    for m, k in ((2, 2), (3, 8), (15, 40), (149, 149)):
        lists = neighbor_lists(BruteForceSearch(engine.asarray(X), engine, Report()), 150, k, engine, m)
        core = core_distances(distances, m)
        near = np.lexsort((np.tile(np.arange(150), (150, 1)), distances + np.diag(np.full(150, np.inf))), axis=1)[:, :k]
        weights = np.take_along_axis(mutual_reachability(distances, core), near, axis=1)
        order = np.lexsort((near, weights), axis=1)
        np.testing.assert_array_equal(to_host(lists.ids), np.take_along_axis(near, order, axis=1))
        np.testing.assert_array_equal(to_host(lists.weights), np.take_along_axis(weights, order, axis=1))
        np.testing.assert_array_equal(to_host(lists.core), core)
        np.testing.assert_array_equal(to_host(lists.unlisted_lower_bound[0]), near[:, -1])
        np.testing.assert_array_equal(to_host(lists.unlisted_lower_bound[1]), distances[np.arange(150), near[:, -1]])


def test_one_row_has_no_neighbours(device):
    with pytest.raises(ValueError, match="min_samples must be at most n - 1 = 0, got 1"):
        fit(np.zeros((1, 1)), 1, min_samples=1, device=device)


def test_report_and_parameters(device):
    model = SingleLinkage(3, min_samples=np.int64(4), device=device)
    assert clone(model).get_params()["min_samples"] == 4
    assert SingleLinkage().min_samples is None
    report = model.set_params(n_neighbors=8).fit(blobs(0)).report_
    assert report["min_samples"] == 4
    assert "min_samples 4" in str(report)
    assert "min_samples 4" in model._repr_html_()
    assert "min_samples" not in fit(blobs(0), device=device).report_
    counts = report["spanning_tree"]["edges_certified_by_lists"]
    assert counts + report.get("connect", {}).get("edges_certified_by_search", 0) == 439


def test_enough_neighbours_for_the_cores(device):
    """The k-NN graph holds at least one more than a core needs."""
    X = blobs(1)
    few, many = (fit(X, min_samples=12, n_neighbors=k, device=device) for k in (1, 13))
    assert few.n_connected_components_ == many.n_connected_components_ < fit(X, n_neighbors=1, device=device).n_leaves_
    assert bits(few) == bits(many)
    assert len(fit(X[:13], min_samples=12, device=device).mst_) == 12

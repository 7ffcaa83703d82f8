"""Borůvka on a tree of boxes, on a GPU: against the tree of all pairs in the total order, and that made by lists."""

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes, full
from hypothesis import given
from hypothesis import strategies as st
from oracles import MAX_TREE_FEATURES, SearchKind, assert_tree, blobs, squared_distances, tree_of

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.exact import cpu
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, cuda
from rapids_slink.spanning_tree.lists import tree_of_lists

pytestmark = pytest.mark.gpu
METRICS = [("cityblock", 2.0), ("chebyshev", 2.0), ("minkowski", 3.0), ("minkowski", 1.7), ("haversine", 2.0)]


def grown(X, metric=EUCLIDEAN, report=None):
    from rapids_slink.spanning_tree.boxes import tree_of_boxes

    tree = tree_of_boxes(SearchKind("cuda", "tree")(X, metric=metric), Report() if report is None else report)
    sort_in_place(tree.columns, cuda().xp)
    return tree.frame.to_pandas()


def by_lists(X, k):
    search = SearchKind("cuda", "tree")(X)
    return tree_of_lists(neighbor_lists(search, len(X), k, cuda()), search, cuda(), Report()).frame.to_pandas()


def every_distance(X, metric):
    """Those of all pairs, from the formula."""
    src, dst = (end.astype(np.int32) for end in np.triu_indices(len(X), 1))
    matrix = np.zeros((len(X), len(X)))
    matrix[src, dst] = matrix[dst, src] = cpu.pair_distances(X, src, dst, metric)
    return matrix


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2))
def test_tree_is_the_one_of_the_total_order(name, dtype):
    X = np.ascontiguousarray(CASES[name](dtype)[:400, :MAX_TREE_FEATURES])
    assert_tree(grown(X), tree_of(squared_distances(X)))


@given(st.integers(2, 300), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_ties_on_small_grids(n, d, side, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32 if seed % 2 else np.float64)
    assert_tree(grown(X), tree_of(squared_distances(X)))


@pytest.mark.parametrize("n", [2, 3, 8, 9, 31, 32, 33, 65, 2048, 2049])
@pytest.mark.parametrize("kind", ["normal", "equal", "two values"])
def test_few_points(n, kind):
    rng = np.random.default_rng(n)
    X = {"normal": rng.normal(size=(n, 2)), "equal": np.ones((n, 2)), "two values": rng.integers(0, 2, (n, 1)) * 1e-3}
    assert_tree(grown(X[kind]), tree_of(squared_distances(X[kind])))


@pytest.mark.parametrize(("name", "p"), METRICS)
@pytest.mark.parametrize("side", [4, 1000])
def test_metrics(name, p, side):
    metric = get_metric(name, p)
    X = np.random.default_rng(0).integers(0, side, (300, 2)) / side
    X = metric_rows(metric, X, CPU)
    assert_tree(grown(X, metric), tree_of(every_distance(X, metric)))


@pytest.mark.parametrize(
    "name", ["uneven_blobs_8d", *map(full, ("filaments", "uneven_blobs_32d", "few_big_clusters", "cauchy_3d"))]
)
def test_many_points(name):
    X = np.ascontiguousarray(CASES[name]("float32")[:, :MAX_TREE_FEATURES])
    assert grown(X).equals(by_lists(X, 8))


def test_neighbours_far_along_the_curve():
    """Two strips near the middle of the box: half of a point's nearest are more positions away than 16 bits tell."""
    rng = np.random.default_rng(0)
    strips = np.column_stack([rng.choice([-1e-6, 1e-6], 150_000), rng.uniform(-1, 1, 150_000)])
    X = np.concatenate([strips, [[-1, 0], [1, 0]]])
    assert grown(X).equals(by_lists(X, 8))


def test_a_deep_hook():
    """Each point's nearest is the next: all components of a round hang in one chain."""
    X = np.column_stack([2.0 ** -np.arange(500), np.zeros(500)])
    assert_tree(grown(X), tree_of(squared_distances(X)))


def test_equal_points_are_not_all_compared():
    """A search that visits each of its equals takes minutes here."""
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 100_000, axis=0)
    tree = grown(X)
    assert (tree["weight"] == 0).sum() == len(X) - 3
    of_first = tree["src"].to_numpy()[: len(X) - 3]
    assert set(of_first) == {0, 100_000, 200_000}


def test_visits():
    """Of points along a curve a search visits few nodes, of points in space more than are counted."""
    rng = np.random.default_rng(0)
    along = np.sin(rng.uniform(0, 50, (9000, 1)) * rng.normal(size=(1, 12)))
    assert 1 < SearchKind("cuda", "tree")(along).mean_visits(10**6) < 300
    assert SearchKind("cuda", "tree")(rng.normal(size=(9000, 12))).mean_visits(200) == 200
    assert 1 < SearchKind("cuda", "tree")(rng.normal(size=(33, 12))).mean_visits(10**6) < 66


def test_neighbours_have_no_say():
    """Where boxes serve no lists are made, however long they are asked for."""
    X = blobs(3, d=3, n=9000)  # of fewer all pairs would be weighed
    models = [rapids_slink.fit(X, 4, device="cuda", n_neighbors=k) for k in (None, 1, 30)]
    for model in models:
        assert model.n_connected_components_ == 1
        assert set(model.report_["spanning_tree"]) == {"rounds", "rows_searched"}
        assert "connect" not in model.report_
        assert model.mst_.equals(models[0].mst_)
    assert models[0].mst_[["src", "dst"]].equals(by_lists(X, 3)[["src", "dst"]])


def test_report():
    """All points search in the first round, and at least half of the components merge in each."""
    report = Report()
    X = blobs(1, d=2, n=2000)
    grown(X, report=report)
    counts = report["spanning_tree"]
    assert counts["rows_searched"] > len(X)
    assert 2 <= counts["rounds"] <= 1 + np.log2(len(X))

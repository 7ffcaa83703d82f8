"""Trees of all pairs, whose distances are computed or given, against SciPy and against the way by lists."""

from itertools import product

import numpy as np
import pytest
from hard_cases import CASES, QUICK, case_dtypes, combinations, full
from oracles import core_distances, mutual_reachability, tree_of
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink.forced import force
from rapids_slink.metrics import EUCLIDEAN, PRECOMPUTED, get_metric
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU, Device, to_host
from rapids_slink.runtime.memory import run_scope
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, ways

METRICS = ("cityblock", "chebyshev", "minkowski", "canberra", "cosine", "hamming", "jaccard", "inner_product")


def by_lists(X, **parameters):
    """The tree as it is found where not all pairs are weighed."""
    with force(tree="lists"):
        return rapids_slink.fit(X, device="cpu", n_clusters=1, **parameters).mst_


def by_pairs(X, metric, min_samples, engine):
    rows = metric_rows(metric, engine.asarray(X), engine)
    tree = ways.tree_of_pairs(rows, metric, min_samples, engine)
    return {name: to_host(column) for name, column in tree.columns.items()}


def assert_edges(tree, expected):
    for end in ("src", "dst"):
        np.testing.assert_array_equal(tree[end], expected[end])


@pytest.fixture(params=["stored", "not stored"])
def stores(request, device, monkeypatch):
    """Distances are stored, or on a CPU not."""
    if request.param == "stored":
        monkeypatch.setattr(ways, "stores_distances", lambda *_: True)


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_heights_are_scipys_and_edges_those_of_the_total_order(name, dtype, engine):
    X = CASES[name](dtype)[:1500]
    if len(X) < 2:
        return
    tree = by_pairs(X, EUCLIDEAN, 1, engine)
    np.testing.assert_array_equal(np.sqrt(tree["weight"]), linkage(X.astype(np.float64), "single")[:, 2])
    assert_edges(tree, by_lists(X))


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize(
    ("metric", "d"),
    [full(*one) if one[0] in ("minkowski", "inner_product") else one for one in product(METRICS, (7, 130))],
)
def test_metrics(metric, d, engine):
    X = np.random.default_rng(0).integers(0, 2 if metric == "jaccard" else 4, (60, d)) + (metric == "cosine")
    X = np.unique(X, axis=0).astype(np.float32)
    tree = by_pairs(X, get_metric(metric, 2.5), 1, engine)
    assert_edges(tree, by_lists(X, metric=metric, p=2.5))


BOTH = [(*one, m) for one in QUICK.items() for m in (2, 32)]
HALF = [one for i, one in enumerate(BOTH) if i // 2 % 2 == i % 2]


@pytest.mark.parametrize(
    ("name", "dtype", "min_samples"), combinations(CASES, ("float32", "float64"), (2, 9, 32, 40), quick=HALF, also=BOTH)
)
def test_mutual_reachability(name, dtype, min_samples, engine):
    X = CASES[name](dtype)[:1500]
    if len(X) <= min_samples:
        return
    tree = by_pairs(X, EUCLIDEAN, min_samples, engine)
    expected = by_lists(X, min_samples=min_samples)
    assert_edges(tree, expected)
    np.testing.assert_array_equal(np.sqrt(tree["weight"]), expected["weight"])


@pytest.mark.parametrize("dtype", [full("float32"), "float64"])
@pytest.mark.parametrize("min_samples", [1, 3, 50])
def test_given_distances_with_ties_and_below_zero(dtype, min_samples, engine):
    n = 130
    upper = np.triu(np.random.default_rng(0).integers(-2, 40, (n, n)), 1)
    matrix = (upper + upper.T).astype(dtype)
    tree = by_pairs(matrix, PRECOMPUTED, min_samples, engine)
    weights = matrix.astype(np.float64)
    if min_samples > 1:
        weights = mutual_reachability(weights, core_distances(weights, min_samples))
    for column, expected in zip(tree.values(), tree_of(weights), strict=True):
        np.testing.assert_array_equal(column, expected)


def test_rule():
    gpu = Device("cuda", np)

    def chooses(n, d, metric="euclidean", min_samples=1, device=CPU):
        return ways.pairs_serve(Problem(Settings(get_metric(metric, 2.5), min_samples=min_samples), device, n, d, 8))

    assert chooses(1000, 3)
    assert chooses(2000, 3)
    assert not chooses(2001, 3)  # a tree's points
    assert not chooses(100_000, 3)
    assert chooses(5_000, 16)
    assert chooses(2_000, 10_000)
    assert not chooses(3_000, 10_000)
    assert not chooses(100, 3, min_samples=2)
    assert chooses(2_000, 30, min_samples=2)
    assert not chooses(2_001, 30, min_samples=2)
    assert chooses(5_000, 3, min_samples=5, device=gpu)
    assert not chooses(5_000, 3, min_samples=50, device=gpu)
    assert not chooses(20_000, 16, device=gpu)
    assert not chooses(8_000, 3, "minkowski", device=gpu)
    with run_scope(CPU, "64MiB"):
        assert chooses(2_000, 3, device=gpu)
        assert not chooses(5_000, 3, device=gpu)
    with run_scope(CPU, "8MiB"):
        assert chooses(1_000, 64)
        assert not chooses(1_000, 65)


def test_lists_are_made_where_neighbours_are_asked_for():
    X = np.random.default_rng(0).normal(size=(100, 9))
    assert "neighbors" not in rapids_slink.fit(X, device="cpu").report_
    assert rapids_slink.fit(X, device="cpu").report_["spanning_tree"]["pairs_weighed"] == 4950
    asked = rapids_slink.fit(X, device="cpu", n_neighbors=1)
    assert "neighbors" in asked.report_
    assert asked.n_connected_components_ > 1

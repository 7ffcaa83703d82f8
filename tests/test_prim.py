"""Prim's algorithm on few points, against SciPy and against the way by lists."""

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU
from rapids_slink.spanning_tree import prim

METRICS = ("cityblock", "chebyshev", "minkowski", "canberra", "cosine", "hamming", "jaccard", "inner_product")


def by_lists(monkeypatch, X, **parameters):
    """The tree as it is found where Prim's algorithm is not taken."""
    with monkeypatch.context() as patch:
        patch.setattr(prim, "is_worthwhile", lambda *_: False)
        return rapids_slink.fit(X, device="cpu", n_clusters=1, **parameters).mst_


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_heights_are_scipys_and_edges_those_of_the_total_order(name, dtype, monkeypatch):
    X = CASES[name](dtype)[:1500]
    if len(X) < 2:
        return
    tree = prim.tree_of_few(X, EUCLIDEAN).frame
    np.testing.assert_array_equal(np.sqrt(tree["weight"]), linkage(X.astype(np.float64), "single")[:, 2])
    expected = by_lists(monkeypatch, X)
    np.testing.assert_array_equal(tree["src"], expected["src"])
    np.testing.assert_array_equal(tree["dst"], expected["dst"])


@pytest.mark.parametrize("metric", METRICS)
def test_metrics(metric, monkeypatch):
    X = np.random.default_rng(0).integers(0, 2 if metric == "jaccard" else 4, (60, 7)) + (metric == "cosine")
    X = np.unique(X, axis=0).astype(np.float32)
    chosen = get_metric(metric, 2.5)
    tree = prim.tree_of_few(metric_rows(chosen, X, CPU), chosen).frame
    expected = by_lists(monkeypatch, X, metric=metric, p=2.5)
    np.testing.assert_array_equal(tree[["src", "dst"]], expected[["src", "dst"]])


def test_rule():
    def chooses(n, d, metric="euclidean", device=CPU):
        return prim.is_worthwhile(n, d, get_metric(metric, 2.0), device)

    assert chooses(1000, 3)
    assert not chooses(100_000, 3)
    assert not chooses(5_000, 3)  # a tree's points
    assert chooses(5_000, 16)
    assert chooses(200, 16, "cosine")
    assert not chooses(2_000, 16, "cosine")


def test_lists_are_made_where_neighbours_are_asked_for():
    X = np.random.default_rng(0).normal(size=(100, 9))
    assert "neighbors" not in rapids_slink.fit(X, device="cpu").report_
    assert rapids_slink.fit(X, device="cpu").report_["spanning_tree"]["pairs_weighed"] == 4950
    asked = rapids_slink.fit(X, device="cpu", n_neighbors=1)
    assert "neighbors" in asked.report_
    assert asked.n_connected_components_ > 1

"""Few points, all pairs of which are weighed, against SciPy and against the way by lists."""

import numpy as np
import pytest
from hard_cases import CASES, case_dtypes
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU, Device, resolve, to_host
from rapids_slink.runtime.memory import run_scope
from rapids_slink.spanning_tree import few

METRICS = ("cityblock", "chebyshev", "minkowski", "canberra", "cosine", "hamming", "jaccard", "inner_product")


def by_lists(monkeypatch, X, **parameters):
    """The tree as it is found where not all pairs are weighed."""
    with monkeypatch.context() as patch:
        patch.setattr(few, "is_worthwhile", lambda *_: False)
        return rapids_slink.fit(X, device="cpu", n_clusters=1, **parameters).mst_


def by_all_pairs(X, metric, min_samples, engine):
    rows = metric_rows(metric, engine.asarray(X), engine)
    tree = few.tree_of_few(rows, metric, min_samples, engine)
    return {name: to_host(column) for name, column in tree.columns.items()}


@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
def test_heights_are_scipys_and_edges_those_of_the_total_order(name, dtype, engine, monkeypatch):
    X = CASES[name](dtype)[:1500]
    if len(X) < 2:
        return
    tree = by_all_pairs(X, EUCLIDEAN, 1, engine)
    np.testing.assert_array_equal(np.sqrt(tree["weight"]), linkage(X.astype(np.float64), "single")[:, 2])
    expected = by_lists(monkeypatch, X)
    np.testing.assert_array_equal(tree["src"], expected["src"])
    np.testing.assert_array_equal(tree["dst"], expected["dst"])


@pytest.mark.parametrize("metric", METRICS)
def test_metrics(metric, engine, monkeypatch):
    X = np.random.default_rng(0).integers(0, 2 if metric == "jaccard" else 4, (60, 7)) + (metric == "cosine")
    X = np.unique(X, axis=0).astype(np.float32)
    chosen = get_metric(metric, 2.5)
    tree = by_all_pairs(X, chosen, 1, engine)
    expected = by_lists(monkeypatch, X, metric=metric, p=2.5)
    for end in ("src", "dst"):
        np.testing.assert_array_equal(tree[end], expected[end])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), case_dtypes())
@pytest.mark.parametrize("min_samples", [2, 9, 32])
def test_mutual_reachability(name, dtype, min_samples, monkeypatch):
    X = CASES[name](dtype)[:1500]
    if len(X) <= min_samples:
        return
    tree = by_all_pairs(X, EUCLIDEAN, min_samples, resolve("cuda"))
    expected = by_lists(monkeypatch, X, min_samples=min_samples)
    for end in ("src", "dst"):
        np.testing.assert_array_equal(tree[end], expected[end])
    np.testing.assert_array_equal(np.sqrt(tree["weight"]), expected["weight"])


def test_rule():
    gpu = Device("cuda", np)

    def chooses(n, d, metric="euclidean", min_samples=1, device=CPU):
        return few.is_worthwhile(n, d, get_metric(metric, 2.5), min_samples, device)

    assert chooses(1000, 3)
    assert not chooses(100_000, 3)
    assert not chooses(5_000, 3)  # a tree's points
    assert chooses(5_000, 16)
    assert chooses(200, 16, "cosine")
    assert not chooses(2_000, 16, "cosine")
    assert not chooses(100, 3, min_samples=2)
    assert chooses(5_000, 3, min_samples=5, device=gpu)
    assert not chooses(5_000, 3, min_samples=50, device=gpu)
    assert not chooses(20_000, 16, device=gpu)
    assert not chooses(8_000, 3, "minkowski", device=gpu)
    with run_scope(CPU, "64MiB"):
        assert chooses(2_000, 3, device=gpu)
        assert not chooses(5_000, 3, device=gpu)


def test_lists_are_made_where_neighbours_are_asked_for():
    X = np.random.default_rng(0).normal(size=(100, 9))
    assert "neighbors" not in rapids_slink.fit(X, device="cpu").report_
    assert rapids_slink.fit(X, device="cpu").report_["spanning_tree"]["pairs_weighed"] == 4950
    asked = rapids_slink.fit(X, device="cpu", n_neighbors=1)
    assert "neighbors" in asked.report_
    assert asked.n_connected_components_ > 1

"""Repeated rows join at zero, and the tree is the one that a search of all rows finds."""

from dataclasses import replace

import numpy as np
import pytest
from hard_cases import CASES, full

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors import neighbor_lists, prepare_search
from rapids_slink.neighbors.exact import cpu
from rapids_slink.neighbors.task import PartLists
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree.ways import find_repeats, tree_of_rows


def levels(rng, n=3000):
    """Rows of small integers, each of which comes many times."""
    return rng.integers(0, 3, (n, 5)).astype(np.float64)


def fit(X, device, **parameters):
    return rapids_slink.fit(X, n_clusters=1, n_neighbors=3, device=device, **parameters)


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("euclidean", lambda X: X.astype(np.float32)),
        (
            "euclidean",
            lambda X: X * np.where(np.arange(len(X)) % 2, 1.0, -1.0)[:, None] * (X > 0),
        ),  # zeros of both signs
        ("hamming", lambda X: X),
        ("jaccard", lambda X: X > 0),
        full("cityblock", lambda X: X),
        full("canberra", lambda X: X),
        full("haversine", lambda X: X[:, :2] / 10),
    ],
)
def test_tree_is_that_of_all_rows(device, metric, change, prescribe):
    X = change(levels(np.random.default_rng(0)))
    found = fit(X, device, metric=metric)
    assert found.report_["spanning_tree"]["repeated_rows"] == len(X) - len(np.unique(X + 0.0, axis=0))
    prescribe(tree="lists")
    expected = fit(X, device, metric=metric)
    assert "repeated_rows" not in expected.report_["spanning_tree"]
    assert found.mst_.equals(expected.mst_)
    assert found.linkage_.equals(expected.linkage_)


@pytest.mark.parametrize("parameters", [{}, {"min_samples": 4}, {"min_samples": 30}], ids=str)
def test_distinct_rows_at_distance_zero(parameters, device, prescribe):
    """Squares underflow: the edges of such rows come amid those of equal ones."""
    X = np.repeat(np.random.default_rng(0).normal(size=(100, 3)) * 1e-170, 20, axis=0)
    X = X[np.random.default_rng(1).permutation(len(X))]
    found = fit(X, device, **parameters)
    prescribe(tree="lists")
    assert found.mst_.equals(fit(X, device, **parameters).mst_)


@pytest.mark.parametrize("parameters", [{}, {"min_samples": 3}], ids=str)
def test_rows_all_equal(parameters, device):
    model = fit(np.ones((5000, 4)), device, **parameters)
    assert not model.distances_.any()
    np.testing.assert_array_equal(model.mst_["src"].to_numpy(), 0)
    np.testing.assert_array_equal(model.mst_["dst"].to_numpy(), np.arange(1, 5000))


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("euclidean", lambda X: X.astype(np.float32)),
        ("cosine", lambda X: X + 1),
        full("euclidean", lambda X: X[:, :1]),
        full("hamming", lambda X: X),
        full("jaccard", lambda X: X > 0),
        full("cityblock", lambda X: (X + np.arange(len(X))[:, None] / 2)[np.arange(len(X)) // 6 * 6]),
        full("cosine", lambda X: (X + 1) * 3.0 ** (np.arange(len(X)) % 3 - 1)[:, None]),  # parallel, but not equal
    ],
)
def test_tree_by_mutual_reachability_is_that_of_all_rows(device, metric, change, prescribe):
    """Whether a core is within a row's copies, ties with others at it, or is far beyond them."""
    X = change(levels(np.random.default_rng(0)))
    samples = (2, 5, 12, 40)
    found = [fit(X, device, metric=metric, min_samples=m) for m in samples]
    prescribe(tree="lists")
    for m, model in zip(samples, found, strict=True):
        expected = fit(X, device, metric=metric, min_samples=m)
        assert "repeated_rows" not in expected.report_["spanning_tree"]
        assert model.report_["spanning_tree"]["repeated_rows"] == len(X) - len(np.unique(X, axis=0))
        assert model.mst_.equals(expected.mst_)
        assert model.linkage_.equals(expected.linkage_)


def test_known_lists_of_two_parts_are_not_of_the_distinct_rows(engine):
    """As a cluster's blocks have them: they are numbered by all rows."""
    rng, xp = np.random.default_rng(0), engine.xp
    X = rng.normal(size=(3000, 16))
    X[rng.permutation(3000)[:600]] = X[rng.integers(0, 5, 600)]
    rows, report = engine.asarray(X), Report()
    a, b = (
        neighbor_lists(prepare_search(part, engine, Report()), 1500, 4, engine) for part in (rows[:1500], rows[1500:])
    )
    known = PartLists(xp.concatenate([a.ids, b.ids + np.int32(1500)]), xp.concatenate([a.weights, b.weights]), 1500)
    problem = Problem(Settings(EUCLIDEAN, engine.name, n_neighbors=4), engine, 3000, 16, 8)
    found, expected = (
        tree_of_rows(replace(problem, part_lists=lists), rows, report)[0].frame for lists in (known, None)
    )
    assert report["spanning_tree"]["repeated_rows"] >= 2 * 500
    assert found.equals(expected)


def test_which_rows_are_equal():
    X = levels(np.random.default_rng(0))
    found = find_repeats(X, CPU)
    _, first, number = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.first, np.sort(first))
    np.testing.assert_array_equal(found.first[found.number], first[number.reshape(-1)][found.repeated])
    assert "repeated_rows" not in fit(X, "cpu", metric="inner_product").report_["spanning_tree"]
    assert find_repeats(CASES["uneven_blobs_8d"]("float32"), CPU) is None


def test_hashes_that_collide_are_no_repeats(monkeypatch):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    monkeypatch.setattr(
        cpu, "hash_rows", lambda values, rows=None: np.zeros(len(values if rows is None else rows), "u8")
    )
    assert find_repeats(X, CPU) is None

"""The ways to the tree of points of one feature, by a sort, and of repeated rows, which join at zero."""

import math

import numpy as np
import pytest
from hard_cases import CASES, full
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors.exact import cpu
from rapids_slink.neighbors.rows import find_repeats, metric_rows
from rapids_slink.runtime.device import CPU
from rapids_slink.settings import metric_of
from rapids_slink.spanning_tree.ways import tree_of_line, tree_of_pairs

METRICS = ("euclidean", "sqeuclidean", "cityblock", "chebyshev")
NEARLY_TIED = [0.0, -0.0, 1e-200, 1.0, 1 + 2**-52, 1e16, 1e16 + 2]


def assert_same(found, expected, counted):
    """The tree is that of the way by lists, which does not count what this one does."""
    assert counted not in expected.report_["spanning_tree"]
    assert found.mst_.equals(expected.mst_)
    assert found.linkage_.equals(expected.linkage_)


# --- one feature: where rounding makes pairs tie there is no tree by a sort


def edges(tree):
    return list(tree.frame.itertuples(index=False, name=None))


@pytest.mark.hypothesis
@given(
    st.one_of(
        hnp.arrays(np.float64, st.integers(2, 40), elements=st.integers(-6, 6)),
        hnp.arrays(np.float32, st.integers(2, 40), elements=st.floats(-4, 4, width=16)),
        hnp.arrays(np.float64, st.integers(2, 12), elements=st.sampled_from(NEARLY_TIED)),
    ),
    st.sampled_from(METRICS),
    st.sampled_from([None, math.inf, 5.0, 0.3, 1e17]),
    st.sampled_from([None, 0.7]),
)
def test_tree_is_that_of_all_pairs(x, name, box, scale):
    metric = metric_of(name, box=box, scales=None if scale is None or name == "sqeuclidean" else {0: scale})
    metric = metric.of_columns(None, 1)
    rows = metric_rows(metric, x[:, None], CPU)
    tree = tree_of_line(rows, metric, CPU)
    if tree is not None:
        assert edges(tree) == edges(tree_of_pairs(rows, metric, 1, CPU))


@pytest.mark.parametrize("x", [[0.0, 1e-200, 1.0], [0.0, 1.0, 1e16, 1e16 + 2], [1.0, 1 + 2**-52, 2.0**53]], ids=str)
def test_ties_by_rounding_are_seen(x):
    """A longer difference that weighs as little might be the edge of the tree."""
    assert tree_of_line(np.array(x)[:, None], EUCLIDEAN, CPU) is None


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.normal(size=3000),
        lambda rng: rng.integers(0, 200, 3000),
        lambda rng: np.cumsum(rng.exponential(size=3000)) + 1.7e9,
    ],
    ids=["distinct", "repeats", "time stamps"],
)
@pytest.mark.parametrize("box", [None, 3.0, full(100.0), full(math.inf)])
def test_the_same_as_by_lists(make, name, box, device, prescribe):
    X = make(np.random.default_rng(0))[:, None]
    found = rapids_slink.fit(X, 5, metric=name, box=box, device=device)
    assert found.report_["spanning_tree"] == {"rows_sorted": 3000}
    assert found.n_connected_components_ == 1
    prescribe(tree="lists")
    assert_same(found, rapids_slink.fit(X, 5, metric=name, box=box, n_neighbors=4, device=device), "rows_sorted")


def test_two_equal_points(device):
    assert rapids_slink.fit([[3.0], [3.0]], 1, device=device).mst_.iloc[0].tolist() == [0, 1, 0.0]


@pytest.mark.parametrize(("name", "X"), [("canberra", [[1.0], [2.0]]), ("euclidean", [[1.0, 2.0], [3.0, 4.0]])])
def test_others_are_not_sorted(name, X):
    assert rapids_slink.fit(X, 1, metric=name, device="cpu").report_["way"] == "pairs"


# --- repeated rows


def levels(rng, n=3000):
    """Rows of small integers, each of which comes many times."""
    return rng.integers(0, 3, (n, 5)).astype(np.float64)


def fit(X, device, **parameters):
    return rapids_slink.fit(X, n_clusters=1, n_neighbors=3, device=device, **parameters)


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("euclidean", lambda X: X.astype(np.float32)),
        ("euclidean", lambda X: X * (1.0 - 2 * (np.arange(len(X)) % 2))[:, None] * (X > 0)),  # zeros of both signs
        ("hamming", lambda X: X),
        ("jaccard", lambda X: X > 0),
        full("cityblock", lambda X: X),
        full("canberra", lambda X: X),
        full("haversine", lambda X: X[:, :2] / 10),
    ],
)
def test_tree_of_repeats_is_that_of_all_rows(device, metric, change, prescribe):
    X = change(levels(np.random.default_rng(0)))
    found = fit(X, device, metric=metric)
    assert found.report_["spanning_tree"]["repeated_rows"] == len(X) - len(np.unique(X + 0.0, axis=0))
    prescribe(tree="lists")
    assert_same(found, fit(X, device, metric=metric), "repeated_rows")


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
        assert model.report_["spanning_tree"]["repeated_rows"] == len(X) - len(np.unique(X, axis=0))
        assert_same(model, fit(X, device, metric=metric, min_samples=m), "repeated_rows")


def test_which_rows_are_equal():
    X = levels(np.random.default_rng(0))
    found = find_repeats(X, CPU)
    _, first, number = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.first, np.sort(first))
    np.testing.assert_array_equal(found.first[found.number], first[number.reshape(-1)])
    np.testing.assert_array_equal(found.count, np.bincount(found.number))
    assert "repeated_rows" not in fit(X, "cpu", metric="inner_product").report_["spanning_tree"]
    assert find_repeats(CASES["uneven_blobs_8d"]("float32"), CPU) is None


@pytest.mark.parametrize("colliding", [50, 2000])
def test_different_rows_of_one_hash(colliding):
    """They are told apart, unless they are so many that a search of the table would take long."""
    factors = cpu.hash_rows(np.eye(2, dtype=np.uint64), np.arange(2))
    mixed = np.random.default_rng(0).integers(0, 2**64, (colliding, 2), np.uint64)
    mixed[:, 1] = -mixed[:, 0] * factors[0] * np.uint64(pow(int(factors[1]), -1, 2**64))
    X = (mixed ^ (mixed >> np.uint64(32)))[np.random.default_rng(1).integers(0, colliding, 10_000)]
    assert not cpu.hash_rows(X, np.arange(len(X))).any()
    found = cpu.equal_rows(X, len(X))
    assert (found is None) == (colliding > cpu.MOST_PROBES)
    if found is not None:
        np.testing.assert_array_equal(X[found[0]][found[1]], X)
        assert found[0].size == colliding


@pytest.mark.parametrize("metric", ["euclidean", "jaccard", full("cosine"), full("hamming")])
def test_pairs_are_counted_by_those_of_distinct_rows(metric, device):
    X = levels(np.random.default_rng(0), 4100)
    if metric == "cosine":
        X[:, 0] = 1  # only equal rows are parallel
    X = X > 0 if metric == "jaccard" else X
    limits = np.linspace(0, {"euclidean": 2, "hamming": 1}.get(metric, 0.5), 9) + 1e-9
    counts = rapids_slink.count_pairs(X, max_distance=limits, metric=metric, device=device)
    frames = rapids_slink.iter_pairs(X, max_distance=limits[-1], metric=metric, device=device)
    found = np.sort(np.concatenate([np.asarray(frame["weight"]) for frame in frames]))
    np.testing.assert_array_equal(counts, np.searchsorted(found, limits, side="right"))
    assert counts[0] == sum(c * (c - 1) // 2 for c in np.unique(X, axis=0, return_counts=True)[1].tolist())

"""Rows of a weight, against as many equal rows."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations
from oracles import blobs
from scipy.spatial.distance import pdist, squareform

from rapids_slink import HDBSCAN, cut, fit
from rapids_slink.points.output import on_host


def weighted_rows(seed):
    """Rows with weights, some of which are clusters by themselves, and the rows as often as that."""
    rng = np.random.default_rng(seed)
    X = blobs(seed, n=150, noise=20)
    weight = rng.integers(1, 5, len(X))
    weight[rng.integers(0, len(X), 6)] = 25
    return X, weight, X.repeat(weight, axis=0)


@pytest.mark.parametrize(
    ("seed", "min_samples", "metric"),
    combinations(range(4), (1, 3, 8), ("euclidean", "cityblock", "precomputed", "haversine"), quick=5),
)
@pytest.mark.parametrize("options", [{}, {"cluster_selection_method": "leaf"}, {"max_cluster_size": 60}], ids=str)
def test_a_weight_is_as_many_rows(seed, min_samples, metric, options, device):
    X, weight, repeated = weighted_rows(seed)
    if metric == "precomputed":
        X, repeated = squareform(pdist(X)), squareform(pdist(repeated))
    elif metric == "haversine":
        X, repeated = X / 20, repeated / 20
    model = HDBSCAN(12, min_samples, metric=metric, device=device, **options)
    expected = HDBSCAN(12, min_samples, metric=metric, device=device, **options).fit(repeated)
    first = np.cumsum(weight) - weight
    for given in (weight, weight.astype(np.float32), weight.tolist(), pd.Series(weight)):
        model.fit(X, sample_weight=given)
        np.testing.assert_array_equal(on_host(model.labels_), on_host(expected.labels_)[first])
        np.testing.assert_array_equal(on_host(model.probabilities_), on_host(expected.probabilities_)[first])
    np.testing.assert_allclose(on_host(model.cluster_persistence_), on_host(expected.cluster_persistence_), rtol=1e-9)
    assert model.n_clusters_ > 3
    tree = model.condensed_tree_.frame
    assert tree["child_size"][-len(X) :].tolist() == weight.tolist()


@pytest.mark.parametrize("min_samples", [1, 4, 6])
def test_a_row_is_no_cluster_at_its_core_distance(min_samples, device):
    """Its copies part there, so that a cluster of this row alone would end where it begins."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(600, 2)), rng.integers(1, 5, 600)
    tree = HDBSCAN(2, min_samples, device=device).fit(X, sample_weight=weight).condensed_tree_.frame
    tree = pd.DataFrame({name: on_host(tree[name].values) for name in tree})
    born = tree.set_index("child")["lambda_val"]
    alone = tree[(tree["child"] < 600) & ~tree["parent"].duplicated(keep=False) & (tree["parent"] > 600)]
    assert len(alone) > 1
    assert (alone["lambda_val"].to_numpy() > born[alone["parent"]].to_numpy()).all()


def test_ones_change_nothing(device):
    X = blobs(0)
    model = HDBSCAN(10, 4, device=device).fit(X)
    weighted = HDBSCAN(10, 4, device=device).fit(X, sample_weight=np.ones(len(X)))
    for name in ("labels_", "probabilities_", "outlier_scores_", "distances_", "cluster_persistence_"):
        np.testing.assert_array_equal(on_host(getattr(weighted, name)), on_host(getattr(model, name)))
    np.testing.assert_array_equal(on_host(weighted.fit_predict(X, None, np.ones(len(X)))), on_host(model.labels_))


def test_weights_below_one(device):
    """Ten rows of a tenth each count as one row, once there are others."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(400, 2)), rng.normal(size=(40, 2)) + 30])
    weight = np.repeat([0.1, 1.0], [400, 40])
    assert HDBSCAN(10, 2, device=device).fit(X).n_clusters_ >= 2
    labels = on_host(HDBSCAN(38, 2, device=device).fit(X, sample_weight=weight).labels_)
    assert set(labels[:400]) - {-1} == {0}
    assert set(labels[400:]) - {-1} == {1}
    assert on_host(HDBSCAN(50, 2, device=device).fit(X, sample_weight=weight).labels_).max() == -1


def test_defaults_count_copies(device):
    """Three rows are too few for the default min_samples, but not with their copies."""
    X, weight = np.array([[0.0], [1.0], [9.0]]), [10, 10, 10]
    model = HDBSCAN(5, device=device).fit(X, sample_weight=weight)
    expected = HDBSCAN(5, device=device).fit(X.repeat(weight, axis=0))
    assert model.report_["min_samples"] == expected.report_["min_samples"] == 5
    np.testing.assert_array_equal(on_host(model.labels_), on_host(expected.labels_)[::10])


@pytest.mark.parametrize("n", [500, 3000])
def test_weights_on_the_device(n, engine, device):
    """Few merges are cut on the host, whatever the model's device is."""
    X, weights = np.random.default_rng(0).random((n, 2)), np.random.default_rng(1).integers(1, 4, n)
    model = fit(X, device=device)
    expected = model.cut(9, min_cluster_size=40, sample_weight=weights)
    given = model.cut(9, min_cluster_size=40, sample_weight=engine.asarray(weights))
    np.testing.assert_array_equal(on_host(given), on_host(expected))
    assert np.unique(on_host(given)).size > 1


def test_cuts_compare_weights(device):
    X, weight, repeated = weighted_rows(1)
    model, expected = fit(X, 30, device=device), fit(repeated, 30, device=device)
    first = np.cumsum(weight) - weight
    for values in (30, [5, 30, 100]):
        labels = on_host(model.cut(values, min_cluster_size=12, sample_weight=weight))
        np.testing.assert_array_equal(labels, on_host(expected.cut(values, min_cluster_size=12))[first])
    assert (labels == -1).any()
    labels = cut(model.linkage_, n_clusters=30, min_cluster_size=12, sample_weight=pd.Series(weight))
    np.testing.assert_array_equal(on_host(labels), on_host(model.cut(30, min_cluster_size=12, sample_weight=weight)))
    with pytest.raises(ValueError, match="sample_weight is for method='kernel'"):
        cut(model.linkage_, n_clusters=3, method="merge", sample_weight=weight)


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        ([1, 2], ValueError, r"sample_weight must hold one number for each of 30 rows, got shape \(2,\)"),
        (np.ones((30, 1)), ValueError, r"got shape \(30, 1\)"),
        ([0, *[1] * 29], ValueError, r"above zero and finite: that of row 0 is 0\.0"),
        ([*[1] * 29, -2], ValueError, r"that of row 29 is -2\.0"),
        ([1, np.nan, *[1] * 28], ValueError, "that of row 1 is nan"),
        (["a"] * 30, TypeError, "sample_weight must hold numbers"),
    ],
)
def test_what_is_no_weight(weight, error, message, device):
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(error, match=message):
        HDBSCAN(3, device=device).fit(X, sample_weight=weight)
    with pytest.raises(error, match=message):
        fit(X, device=device).cut(3, sample_weight=weight)


def test_weights_of_another_index(device):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), index=range(5, 35))
    weight = pd.Series(np.arange(1.0, 31.0), index=X.index)
    expected = on_host(HDBSCAN(3, device=device).fit(X, sample_weight=weight).labels_)
    for plain in (weight.to_numpy(), weight.tolist()):
        labels = HDBSCAN(3, device=device).fit(X, sample_weight=plain).labels_
        np.testing.assert_array_equal(on_host(labels), expected)
    for other in (weight[::-1], weight.reset_index(drop=True)):
        with pytest.raises(ValueError, match=r"^sample_weight has another index than X: pass sample_weight\.reindex"):
            HDBSCAN(3, device=device).fit(X, sample_weight=other)
        words = r"another index than model\.labels_: pass sample_weight\.reindex\(model\."
        with pytest.raises(ValueError, match=words):
            fit(X, device=device).cut(3, sample_weight=other)
        HDBSCAN(3, device=device).fit(X.to_numpy(), sample_weight=other)


def test_hdbscan_takes_no_weights(device):
    pytest.importorskip("hdbscan")
    model = HDBSCAN(3, device=device).fit(np.arange(9.0)[:, None], sample_weight=np.full(9, 2))
    with pytest.raises(ValueError, match="hdbscan counts rows, and these have weights: fit without sample_weight"):
        model.to_hdbscan(3)

"""`rapids_slink.sklearn.AgglomerativeClustering` in the place of scikit-learn's class."""

import numpy as np
import pandas as pd
import pytest
from sklearn import cluster
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_distances
from sklearn.neighbors import kneighbors_graph
from tests_of_others import run_tests_of

from rapids_slink.sklearn import AgglomerativeClustering


@pytest.fixture
def X():
    return make_moons(200, noise=0.05, random_state=0)[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_clusters": 3},
        {"n_clusters": None, "distance_threshold": 0.15},
        {"metric": "manhattan", "compute_distances": True},
        {"metric": lambda X: pairwise_distances(X, metric="chebyshev")},
        {"connectivity": lambda X: kneighbors_graph(X, 3), "n_clusters": 4},
    ],
)
@pytest.mark.filterwarnings("ignore:the number of connected components")
def test_attributes_are_scikit_learns(parameters, X):
    expected = cluster.AgglomerativeClustering(linkage="single", **parameters).fit(X)
    found = AgglomerativeClustering(linkage="single", **parameters).fit(X)
    assert adjusted_rand_score(found.labels_, expected.labels_) == 1
    for name in ("n_clusters_", "n_leaves_", "n_connected_components_", "n_features_in_"):
        assert getattr(found, name) == getattr(expected, name)
    if hasattr(expected, "distances_"):
        np.testing.assert_allclose(found.distances_, expected.distances_, rtol=1e-14)
    np.testing.assert_array_equal(np.sort(found.children_), np.sort(expected.children_))
    assert hasattr(found, "distances_") == hasattr(expected, "distances_")


def test_precomputed_distances(X):
    matrix = pairwise_distances(X)
    expected = AgglomerativeClustering(linkage="single").fit(X)
    found = AgglomerativeClustering(linkage="single", metric="precomputed").fit(matrix)
    np.testing.assert_array_equal(found.labels_, expected.labels_)


@pytest.mark.parametrize("metric", ["russellrao", "rogerstanimoto"])  # scikit-learn's alone, and ours
@pytest.mark.filterwarnings("ignore:Data was converted to boolean")
def test_any_number_is_a_boolean(metric):
    true = 3.5 * np.unique(np.random.default_rng(0).random((60, 12)) < 0.4, axis=0)
    parameters = {"linkage": "single", "metric": metric, "compute_distances": True}
    found = AgglomerativeClustering(**parameters).fit(true)
    expected = cluster.AgglomerativeClustering(**parameters).fit(true)
    np.testing.assert_allclose(found.distances_, expected.distances_, rtol=1e-14)


def test_names_of_features(X):
    model = AgglomerativeClustering(linkage="single").fit(pd.DataFrame(X, columns=["a", "b"]))
    assert model.feature_names_in_.tolist() == ["a", "b"]


def test_other_linkages_are_scikit_learns(X):
    with pytest.warns(UserWarning, match="linkage='ward' is handed to scikit-learn") as warned:
        found = AgglomerativeClustering().fit(X)
    assert warned[0].filename == __file__  # not a file of scikit-learn
    np.testing.assert_array_equal(found.labels_, cluster.AgglomerativeClustering().fit(X).labels_)


@pytest.mark.full
def test_tests_of_scikit_learn(device):
    """All of its tests of hierarchical clustering: those of other linkages come back from scikit-learn."""
    assert run_tests_of("sklearn.cluster.tests.test_hierarchical", device) >= 20

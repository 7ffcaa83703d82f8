"""`rapids_slink.sklearn` in the place of scikit-learn's classes: `AgglomerativeClustering` and `NearestNeighbors`."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hard_cases import full
from scipy import sparse
from sklearn import cluster, neighbors
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_distances
from sklearn.neighbors import kneighbors_graph
from tests_of_others import run_tests_of

from rapids_slink.sklearn import AgglomerativeClustering, NearestNeighbors


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


def assert_same(found, expected):
    """Distances, and row numbers where no two are equal."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"metric": "cityblock", "algorithm": "brute"},
        {"metric": "cosine"},
        {"p": 3},
        {"metric": "braycurtis", "algorithm": "brute"},  # scikit-learn's, whose tree finds others
        {"metric": "mahalanobis", "metric_params": {"VI": np.eye(2)}},
        *map(full, ({"metric": lambda x, y: abs(x - y).max()}, {"algorithm": "kd_tree"})),
        full({"metric": "minkowski", "p": None, "metric_params": {"p": 1.5}}),
    ],
)
@pytest.mark.filterwarnings("ignore:Parameter p is found", "ignore:.* is handed to scikit-learn")
def test_neighbours_are_scikit_learns(parameters, X):
    kinds = NearestNeighbors, neighbors.NearestNeighbors
    found, expected = (kind(n_neighbors=4, radius=0.2, **parameters).fit(X[:150]) for kind in kinds)
    for queries in (X[150:], None):
        assert_same(found.kneighbors(queries), expected.kneighbors(queries))
        ours, theirs = (model.radius_neighbors(queries, sort_results=True) for model in (found, expected))
        assert_same(ours, theirs)
        for name in ("kneighbors_graph", "radius_neighbors_graph"):
            graphs = [getattr(model, name)(queries, mode="distance") for model in (found, expected)]
            np.testing.assert_allclose(*(graph.toarray() for graph in graphs), rtol=1e-7, atol=1e-12)


def test_first_rows_are_nearest_where_distances_tie():
    rows = np.zeros((5, 2))
    model = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(rows)
    assert model.kneighbors([[0.0, 1.0]], return_distance=False).tolist() == [[0, 1, 2]]
    assert model.radius_neighbors([[0.0, 1.0]], 1.0, return_distance=False)[0].tolist() == [0, 1, 2, 3, 4]


def test_an_estimator_of_a_pipeline_and_of_a_frame(X):
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = clone(NearestNeighbors(n_neighbors=2)).fit(frame)
    assert model.algorithm == "auto"
    assert model.feature_names_in_.tolist() == ["a", "b"]
    expected = model.kneighbors(frame)
    for part, again in zip(expected, pickle.loads(pickle.dumps(model)).kneighbors(frame), strict=True):
        np.testing.assert_array_equal(part, again)
    with pytest.raises(ValueError, match="Expected n_neighbors <= n_samples_fit"):
        model.kneighbors(frame, 201)


@pytest.mark.parametrize(
    ("rows", "parameters", "message"),
    [
        (sparse.csr_matrix(np.eye(9)), {}, "sparse X is handed to scikit-learn"),
        (np.eye(9), {"metric": "braycurtis"}, "metric='braycurtis' is handed to scikit-learn"),
    ],
)
def test_what_is_handed_to_scikit_learn(rows, parameters, message):
    with pytest.warns(UserWarning, match=message) as warned:
        NearestNeighbors(**parameters).fit(rows)
    assert warned[0].filename == __file__


@pytest.mark.full
def test_tests_of_scikit_learn_of_neighbors(device):
    """All of those of `NearestNeighbors` except one, which reads a private attribute for the name of a tree."""
    others = "classifier", "regressor", "predict", "loocv", "auto_algorithm and not valid_brute"
    selected = " and ".join(f"not ({name})" for name in others)
    assert run_tests_of("sklearn.neighbors.tests.test_neighbors", device, selected=selected) > 100

"""hdbscan beside mutual reachability: the same heights and clusters, and what its options and attributes become.

Its own tests and scikit-learn's of HDBSCAN run with our class; `tests_of_hdbscan` says which do not apply.
"""

import sys

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from hard_cases import combinations, full
from oracles import blobs, core_distances, generic_hdbscan
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import haversine_distances
from spanning_trees import by_appearance
from tests_of_others import run_tests_of

from rapids_slink import HDBSCAN, fit, fit_graph
from rapids_slink.datasets import load_cities
from rapids_slink.points.output import on_host

hdbscan = pytest.importorskip("hdbscan")


@pytest.mark.parametrize(
    ("seed", "d", "m"), combinations((0, 1, 2, 3), (2, 10), (1, 3, 5, 10), quick=[(0, 2, 1), (1, 10, 5), (2, 2, 10)])
)
def test_hdbscans_heights_and_clusters(seed, d, m, device):
    """Labels differ at most where ties decide: at points whose core is a height of several merges."""
    X = blobs(seed, d)
    theirs = generic_hdbscan(X, m, min_cluster_size=10)
    model = fit(X, min_samples=m, device=device)
    ours = model.to_hdbscan(min_cluster_size=10)
    merges = model.to_scipy()[:, 2]
    np.testing.assert_array_equal(merges, theirs.single_linkage_tree_.to_numpy()[:, 2])
    np.testing.assert_array_equal(ours.single_linkage_tree_.to_numpy(), model.to_scipy())
    height, times = np.unique(merges, return_counts=True)
    tied = np.isin(core_distances(squareform(pdist(X)), m), height[times > 1]) if m > 1 else np.zeros(len(X), bool)
    assert tied.mean() < 0.4
    mine, other = (by_appearance(np.where(tied, -1, one.labels_)) for one in (ours, theirs))
    np.testing.assert_array_equal(mine, other)
    assert mine.max() >= 1
    if np.array_equal(
        by_appearance(ours.labels_), by_appearance(theirs.labels_)
    ):  # a cluster's are parts of its largest
        np.testing.assert_array_equal(ours.probabilities_[~tied], theirs.probabilities_[~tied])
    else:
        assert m > 1  # otherwise nothing ties
    assert len(ours.cluster_persistence_) == ours.labels_.max() + 1 == theirs.labels_.max() + 1
    assert ours.outlier_scores_.shape == (len(X),)
    assert set(ours.condensed_tree_.to_pandas()["child"]) >= set(range(len(X)))


def test_hdbscans_own_distances():
    """By a matrix product, ‖x‖² being some 1e4 times a small squared distance: eleven or twelve digits are left."""
    X = blobs(0)
    theirs = hdbscan.HDBSCAN(min_samples=5, algorithm="generic").fit(X).single_linkage_tree_.to_numpy()
    np.testing.assert_allclose(fit(X, min_samples=5, device="cpu").to_scipy()[:, 2], theirs[:, 2], rtol=1e-10)


def test_scikit_learn_counts_the_point_itself():
    X = blobs(3)
    theirs = sklearn.cluster.HDBSCAN(
        min_cluster_size=10, min_samples=6, metric="precomputed", algorithm="brute", copy=True
    )
    theirs.fit(squareform(pdist(X)))
    model = fit(X, min_samples=5, device="cpu")
    ours = model.to_hdbscan(min_cluster_size=10)
    assert (by_appearance(ours.labels_) != by_appearance(theirs.labels_)).sum() <= 2  # ties
    np.testing.assert_array_equal(theirs._single_linkage_tree_["value"], model.distances_)


@pytest.mark.parametrize("rows", [600, full(6000)])
def test_cities_beside_scikit_learn(rows, device):
    """On the sphere, by the matrix of angles."""
    cities = load_cities()
    X = np.radians(cities[["latitude", "longitude"]].to_numpy())[:: len(cities) // rows][:rows]
    theirs = sklearn.cluster.HDBSCAN(min_cluster_size=15, min_samples=16, metric="precomputed", copy=True)
    theirs.fit(haversine_distances(X))
    ours, given = (HDBSCAN(15, metric=metric, device=device) for metric in ("haversine", "precomputed"))
    np.testing.assert_array_equal(on_host(ours.fit_predict(X)), on_host(given.fit_predict(haversine_distances(X))))
    np.testing.assert_allclose(on_host(ours.distances_), theirs._single_linkage_tree_["value"], rtol=1e-13, atol=4e-15)
    assert abs(ours.n_clusters_ - theirs.labels_.max() - 1) <= 1  # ties
    assert adjusted_rand_score(on_host(ours.labels_), theirs.labels_) > 0.98


@pytest.mark.parametrize(
    "options",
    [
        {"cluster_selection_method": "leaf"},
        {"cluster_selection_epsilon": 1.5},
        {"allow_single_cluster": True, "min_cluster_size": 150},
        {"max_cluster_size": 60},
    ],
)
def test_options_choose_the_clusters(options):
    X = blobs(0)
    options = {"min_cluster_size": 10, **options}
    theirs = generic_hdbscan(X, 1, **options)
    ours = fit(X, min_samples=1, device="cpu").to_hdbscan(**options)
    np.testing.assert_array_equal(by_appearance(ours.labels_), by_appearance(theirs.labels_))
    np.testing.assert_array_equal(ours.probabilities_, theirs.probabilities_)
    default = fit(X, device="cpu").to_hdbscan(10)
    assert not np.array_equal(default.labels_, ours.labels_)
    assert {name: ours.get_params()[name] for name in options} == options


def test_what_is_spec_of_the_tree():
    X = blobs(0)
    model = fit(X, min_samples=7, metric="sqeuclidean", device="cpu")
    made = model.to_hdbscan()
    assert (made.min_samples, made.metric, made.min_cluster_size) == (7, "sqeuclidean", 5)
    assert fit(X, device="cpu").to_hdbscan().min_samples == 1
    assert HDBSCAN(8, device="cpu").fit(X).to_hdbscan(8).min_samples == 8
    assert HDBSCAN(8, device="cpu").fit(X[:6]).set_params(min_samples=3).to_hdbscan().min_samples == 5
    src, dst = np.triu_indices(len(X), 1)
    graph = fit_graph(pd.DataFrame({"src": src, "dst": dst, "weight": pdist(X)}), device="cpu")
    from_graph = graph.to_hdbscan()
    assert from_graph.metric == "precomputed"
    np.testing.assert_array_equal(from_graph.labels_, fit(X, device="cpu").to_hdbscan().labels_)


def test_what_hdbscan_cannot_have(monkeypatch):
    model = fit(blobs(0), min_samples=3, device="cpu")
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2, got 1"):
        model.to_hdbscan(min_cluster_size=1)
    with pytest.raises(TypeError, match=r"min_cluster_size must be an integer, got 2\.5"):
        model.to_hdbscan(min_cluster_size=2.5)
    with pytest.raises(TypeError, match=r"takes hdbscan's cluster_selection_method, .*, got 'gen_min_span_tree'"):
        model.to_hdbscan(gen_min_span_tree=True)
    with pytest.raises(ValueError, match="at least two rows"):
        fit(np.zeros((1, 2)), 1, device="cpu").to_hdbscan()
    with pytest.raises(ValueError, match="2 trees"):
        fit_graph(pd.DataFrame({"src": [0], "dst": [1], "weight": [1.0]}), n_nodes=3, device="cpu").to_hdbscan()
    monkeypatch.setitem(sys.modules, "hdbscan", None)
    with pytest.raises(ImportError, match=r"pip install 'rapids_slink\[hdbscan\]'"):
        model.to_hdbscan()


@pytest.mark.full
@pytest.mark.parametrize("module", ["hdbscan.tests.test_hdbscan", "sklearn.cluster.tests.test_hdbscan"])
def test_their_tests(module, device):
    assert run_tests_of(module, device, "tests_of_hdbscan") > 100

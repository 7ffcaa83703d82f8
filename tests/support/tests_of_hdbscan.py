"""A plugin of pytest for the tests of hdbscan and of scikit-learn's HDBSCAN: our class in the place of theirs."""

import os
import warnings
from collections import Counter

import pytest

from rapids_slink import hdbscan as ours

device = os.environ.get("DEVICE", "cpu")
counts = Counter()


class Here(ours.HDBSCAN):
    """hdbscan's class, of which every parameter is given by name."""

    _counted = 0  # how many samples of a core are the row itself

    def __init__(self, min_cluster_size=5, min_samples=None, **options):
        super().__init__(min_cluster_size, min_samples, device=device, **options)

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in ours.HDBSCAN._defaults()}

    def _settings(self, **more):
        counts["fits"] += 1
        return super()._settings(**more)


class HereAsInScikitLearn(Here):
    """scikit-learn's class: it counts the row itself."""

    def _settings(self, **more):
        given = self.min_samples, self.min_cluster_size if self.min_samples is None else self.min_samples
        try:
            self.min_samples = max(1, given[1] - 1)
            return super()._settings(**more)
        finally:
            self.min_samples = given[0]


def pytest_collection_modifyitems(items):
    for item in items:
        module, package = item.module, item.module.__name__.partition(".")[0]
        module.HDBSCAN = HereAsInScikitLearn if package == "sklearn" else Here
        for name in ours.__all__[1:]:
            if hasattr(module, name):
                setattr(module, name, getattr(ours, name))
        for reason, names in NOT_HERE.items():
            if {item.name, item.originalname, f"{package}: {item.originalname}"} & set(names):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"calls here: {counts['fits']}")


ALGORITHMS = "kd_tree", "ball_tree"
PARAMETRIZED = (
    "euclidean l2 l1 manhattan cityblock braycurtis canberra chebyshev correlation cosine dice hamming jaccard "
    "mahalanobis matching minkowski rogerstanimoto russellrao seuclidean sokalsneath sqeuclidean yule wminkowski "
    "nan_euclidean haversine"
)
#: Tests that do not apply, by the reason.
NOT_HERE = {
    "rows with missing or infinite features are refused": [
        "test_missing_data",
        "test_outlier_data",
        "test_dbscan_clustering_outlier_data",
    ],
    "a metric that is not here, or its parameters": [
        "test_hdbscan_high_dimensional",
        "test_hdbscan_best_balltree_metric",
        "test_hdbscan_callable_metric",
        *(f"test_hdbscan_algorithms[{m}-{a}]" for m in PARAMETRIZED.split() for a in ALGORITHMS),
    ],
    "a method under another name: cut, store_centers": [
        "test_hdbscan_centroids_medoids",
        "test_hdbscan_no_centroid_medoid_for_noise",
    ],
    "generate_prediction_data, or the attribute prediction_data_": [
        "test_hdbscan_approximate_predict_score",
        "test_hdbscan_all_points_membership_vectors",
    ],
    "clusters are numbered in order of first appearance": ["test_hdbscan_approximate_predict"],
    "heights tie: hdbscan's choice from our tree is ours": ["test_hdbscan_allow_single_cluster_with_epsilon"],
    "a parameter that is not here": ["test_hdbscan_persistence_threshold"],
    "a warning of a change in scikit-learn": ["test_hdbscan_default_copy_warning"],
    "a sparse matrix is a graph, not points": ["test_hdbscan_sparse"],
    "several components are served": [
        "test_hdbscan_sparse_distances_too_few_nonzero",
        "test_hdbscan_sparse_distances_disconnected_graph",
    ],
    "the error has another text, or algorithm= has no effect": [
        "sklearn: test_hdbscan_distance_matrix",
        "test_hdbscan_precomputed_non_brute",
        "test_hdbscan_tree_invalid_metric",
        "test_hdbscan_too_many_min_samples",
        "test_hdbscan_precomputed_dense_nan",
        "test_hdbscan_error_precomputed_and_store_centers",
        "test_hdbscan_cosine_metric_invalid_algorithm",
    ],
    "no matrix of distances: its diagonal is not zero": [
        "test_hdbscan_usable_inputs[kwargs0-X0]",
        "test_hdbscan_usable_inputs[kwargs1-X1]",
    ],
    "a private attribute": ["test_labelling_distinct"],
}
warnings.filterwarnings("ignore", category=DeprecationWarning)

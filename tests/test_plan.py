"""Which way leads to a tree, and which search a CPU takes for points of many features."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import plan
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.problem import Problem
from rapids_slink.spanning_tree.ways import estimate_tree, way_of


def test_way(engine):
    """Boxes for a GPU's points of few features, unless there are cores."""

    def chosen(n, d, n_neighbors=8, min_samples=1, name="euclidean", core=None):
        settings = Settings(get_metric(name), n_neighbors=n_neighbors, min_samples=min_samples)
        return way_of(Problem(settings, engine, n, d, 8, core))

    by_tree = "boxes" if engine.is_gpu else "lists"
    assert chosen(10_000, 6) == chosen(10_000, 6, None) == chosen(10_000, 2, name="cityblock") == by_tree
    assert chosen(10_000, 9) == chosen(10_000, 6, min_samples=2) == chosen(10_000, 6, core=np.ones(1)) == "lists"
    assert chosen(300, 6, name="canberra") == "lists"
    assert chosen(300, 6, None) == chosen(300, 6, None, name="canberra") == "pairs"


def test_estimate_is_that_of_the_way(engine):
    """It grows with the lists, where there are any."""
    for d, min_samples in ((6, 1), (6, 2), (9, 1), (128, 1)):
        short, long = (
            estimate_tree(Problem(Settings(EUCLIDEAN, "auto", None, k, min_samples), engine, 10**6, d, 8)).peak
            for k in (8, 80)
        )
        assert short == long if (d, min_samples, engine.is_gpu) == (6, 1, True) else short < long


def curve(rng, n, d):
    return np.sin(rng.uniform(0, 50, (n, 1)) * rng.normal(size=(1, d))) + 1e-3 * rng.normal(size=(n, d))


def far_clusters(rng, n, d):
    return 20 * rng.normal(size=(30, d))[rng.integers(0, 30, n)] + rng.normal(size=(n, d))


@pytest.mark.parametrize(
    ("points", "n", "d", "expected"),
    [
        (curve, 10_000, 16, "k-d tree"),
        (far_clusters, 10_000, 12, "k-d tree"),
        (lambda rng, n, d: rng.normal(size=(n, d)), 10_000, 16, "float32 tiles"),
        (curve, 1_000, 16, "float32 tiles"),  # too few
        (curve, 10_000, 65, "float32 tiles"),  # too many features
    ],
)
def test_trees_serve_points_of_low_dimension(points, n, d, expected):
    X = points(np.random.default_rng(0), n, d)
    assert rapids_slink.fit(X, device="cpu", n_neighbors=4).report_["neighbors"]["filter"] == expected


def test_either_search_gives_the_same_tree(monkeypatch):
    X = far_clusters(np.random.default_rng(0), 2000, 12).astype(np.float32)
    monkeypatch.setitem(plan.LOW_DIMENSIONAL, "points", 0)
    by_tree = rapids_slink.fit(X, device="cpu", n_neighbors=3)
    assert by_tree.report_["neighbors"]["filter"] == "k-d tree"
    np.testing.assert_array_equal(by_tree.distances_, linkage(X.astype(np.float64), "single")[:, 2])
    monkeypatch.setattr(plan, "MAX_TOUCHED_SHARE", -1)
    assert by_tree.mst_.equals(rapids_slink.fit(X, device="cpu", n_neighbors=3).mst_)

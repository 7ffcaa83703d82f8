"""The part of the tree up to a distance: the same bits as the whole tree's, and what is refused."""

from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, combinations, full
from hypothesis import given
from hypothesis import strategies as st

from rapids_slink import SingleLinkage, fit
from rapids_slink.metrics import get_metric
from rapids_slink.points.output import on_device
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, TreeInput, lists


def rows_of(frame):
    return {name: to_host(frame[name].values) for name in frame}


def heights_of(model):
    return to_host(model.linkage_["height"].values)


def assert_same_part(X, t, device, whole=None, **how):
    """All merges up to t, and the labels of cuts, are those of the whole tree, which is made unless it is given."""
    whole = fit(X, 1, device=device, **how) if whole is None else whole
    part = fit(X, max_distance=t, device=device, **how)
    height = heights_of(whole)
    kept = int((height <= t).sum())
    for name in ("linkage_", "mst_"):
        expected, found = rows_of(getattr(whole, name)), rows_of(getattr(part, name))
        for column in expected:
            assert found[column].tobytes() == expected[column][:kept].tobytes(), (name, column)
    assert part.n_clusters_ == len(X) - kept
    thresholds = sorted({float(t), float(t) / 2})
    for closed in ("left", "right") if t >= 0 else ():
        np.testing.assert_array_equal(
            to_host(part.cut(distance_threshold=thresholds, closed=closed)),
            to_host(whole.cut(distance_threshold=thresholds, closed=closed)),
        )
    cut = {"distance_threshold": t, "closed": "right"} if t >= 0 else {"n_clusters": len(X)}
    np.testing.assert_array_equal(to_host(part.labels_), to_host(whole.cut(**cut)))
    return part


OF_PARTS = ["euclidean", "cityblock", "cosine", "hamming", "jaccard", "rogerstanimoto", "minkowski"]


@pytest.mark.parametrize(
    ("metric", "n_neighbors"), combinations(OF_PARTS, (None, 1, 3), quick=zip(OF_PARTS, cycle((None, 1)), strict=False))
)
def test_the_part_of_the_tree(metric, n_neighbors, device):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))[rng.integers(0, 40, 400)] + rng.normal(size=(400, 12)) * 0.1
    X = np.round(X * 2) + 9 * (metric == "cosine") if metric in ("hamming", "cosine") else X
    X = (X > 0).astype(float) if metric in ("jaccard", "rogerstanimoto") else X
    how = {"metric": metric, "p": 3.0, "n_neighbors": n_neighbors}
    whole = fit(X, 1, device=device, **how)
    height = heights_of(whole)
    for t in (-1.0, 0.0, height[0], height[50], (height[199] + height[200]) / 2, height[300], height[-1], 1e300):
        assert_same_part(X, t, device, whole, **how)


QUICK = {"uneven_blobs_8d", "decimal_grid", "repeated_rows"}


@pytest.mark.parametrize("name", [name if name in QUICK else full(name) for name in CASES])
def test_the_part_of_hard_trees(name, device):
    X = CASES[name]("float64")[:900]
    for n_neighbors in (None, 1, 2):
        whole = fit(X, 1, n_neighbors=n_neighbors, device=device)
        height = heights_of(whole)
        for t in {0.0, *np.quantile(height, [0.1, 0.5, 0.9, 0.99], method="nearest")} if len(X) > 1 else {1.0}:
            assert_same_part(X, t, device, whole, n_neighbors=n_neighbors)


@given(st.integers(2, 150), st.integers(1, 12), st.integers(1, 4), st.sampled_from([None, 1, 2, 5]),
       st.sampled_from([1, 1, 3]), st.floats(0, 4), st.integers(0, 2**32 - 1))  # fmt: skip
def test_the_part_of_any_tree(device, n, d, span, n_neighbors, min_samples, t, seed):
    X = np.random.default_rng(seed).integers(0, span + 1, (n, d)).astype(float)
    assert_same_part(X, t, device, n_neighbors=n_neighbors, min_samples=min(min_samples, n - 1))


@pytest.mark.parametrize("kind", ["uniform", "grid", "islands"])
@pytest.mark.parametrize("d", [2, 3])
def test_friends_of_friends(kind, d, device):
    """Points of few features, of which boxes farther apart are passed over."""
    rng = np.random.default_rng(d)
    X = rng.random((6000, d)) if kind == "uniform" else rng.integers(0, 40, (6000, d)) * 1.0
    if kind == "islands":
        X = 50 * rng.random((300, d))[rng.integers(0, 300, 6000)] + rng.normal(size=(6000, d)) * 1e-3
    whole = fit(X, 1, device=device)
    for t in (-1.0, 0.0, *np.quantile(heights_of(whole), [0.01, 0.3, 0.9, 0.999, 1], method="nearest")):
        assert_same_part(X, t, device, whole)


@pytest.mark.parametrize("scale", [1e-170, 1e-155, 1e-9, 1e150])
def test_extreme_distances(scale, device):
    X = np.random.default_rng(0).normal(size=(300, 9)) * scale
    height = heights_of(fit(X, 1, device=device))
    for t in (height[100], height[299 - 10]):
        assert_same_part(X, t, device, n_neighbors=2)


def test_gaps_angles_and_given_distances(device):
    X = np.random.default_rng(0).integers(1, 4, (300, 20)).astype(float)
    X[:, 1:][np.random.default_rng(1).random((300, 19)) < 0.1] = np.nan
    for t in (2, 7.0):
        assert_same_part(X, t, device, metric="hamming", missing="hiercc", n_neighbors=2)
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    for angles in (X, X * 1e-9):
        height = heights_of(fit(angles, 1, metric="haversine", device=device))
        for t in (height[0], height[150], height[290], 4.0):
            assert_same_part(angles, t, device, metric="haversine", n_neighbors=1)
    D = np.abs(np.subtract.outer(np.arange(30.0) ** 1.5, np.arange(30.0) ** 1.5))
    assert_same_part(D, 5.0, device, metric="precomputed")


def test_a_frame_and_searches_that_end(engine):
    """Components farther apart than the distance are not searched for again."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(300, 16)) * 100, 10, axis=0) + rng.normal(size=(3000, 16))
    model = fit(on_device(pd.DataFrame(X), engine), max_distance=20.0, n_neighbors=3, device=engine.name)
    assert model.n_clusters_ == 300
    assert model.labels_.dtype == np.int32
    assert model.report_.get("connect", {}).get("rows_searched", 0) <= 2 * len(X)


def test_cuts_that_the_part_does_not_have(device):
    X = np.array([[0.0, 0], [1, 0], [5, 0], [5.5, 0]])
    model = fit(X, max_distance=2, device=device)
    assert to_host(model.labels_).tolist() == [0, 0, 1, 1]
    assert to_host(model.cut(3)).tolist() == [0, 1, 2, 2]
    with pytest.raises(ValueError, match="n_clusters must be from 2 to 4"):
        model.cut(1)
    with pytest.raises(ValueError, match=r"distance_threshold must be at most max_distance=2, got 2\.5"):
        model.cut(distance_threshold=[1, 2.5])
    with pytest.raises(ValueError, match="distance_threshold must be at most max_distance=2, got 3"):
        fit(X, distance_threshold=3, max_distance=2, device=device)
    with pytest.raises(ValueError, match="SciPy has no linkage of a forest"):
        model.to_scipy()
    with pytest.raises(ValueError, match="distance_threshold must be at most max_distance=2, got 3"):
        model.set_params(max_distance=9).cut(distance_threshold=3)  # of a tree that was made before
    assert SingleLinkage(3, max_distance=2, device=device).fit(X).n_clusters_ == 3


@pytest.mark.gpu
@pytest.mark.parametrize("step", [125, 1000])  # outliers of a whole tile and the last one, or few
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_outliers_share_tiles(metric, step):
    """All bounds are equal. A tile with a point of large error would let all pairs pass."""
    X = np.random.default_rng(0).normal(size=(20_000, 40)).astype(np.float32)
    X[::step] *= 1e4
    how = {"max_distance": 6.0 if metric == "euclidean" else 0.4, "metric": metric}
    models = [fit(X, device=device, **how) for device in ("cuda", "cpu")]
    np.testing.assert_array_equal(models[0].distances_, models[1].distances_)
    assert len(models[0].distances_) > 100
    counts = models[0].report_["neighbors"]
    assert counts["rows_redone"] + counts["rows_scanned_exactly"] < 1000


def around_topics(n, d, topic=500):
    """Rows around random places, the last twentieth of which are near copies of others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n // topic, d))[rng.integers(0, n // topic, n)] + 0.3 * rng.normal(size=(n, d))
    X[-(n // 20) :] = X[: n // 20] + 0.01 * rng.normal(size=(n // 20, d))
    return X


KINDS = "topics", "topics in float32", "topics in float16", "grid", "noise", "long"


NEAR = [("euclidean", "grid"), ("euclidean", "topics"), ("sqeuclidean", "topics in float16"), ("cosine", "long")]


@pytest.mark.parametrize(("metric", "kind"), combinations(("euclidean", "sqeuclidean", "cosine"), KINDS, quick=NEAR))
def test_blocks_of_near_rows(metric, kind, device, prescribe):
    """Rows that are dealt out to blocks around pivots, many or few of which visit others."""
    prescribe(tree="blocks")
    rng = np.random.default_rng(1)
    X = around_topics(2500, 24)
    if kind == "grid":
        X = rng.integers(0, 3, (2500, 9)).astype(float) + 1
    elif kind == "noise":
        X = rng.normal(size=(2500, 24))
    elif kind == "long":
        X[3::90] *= 1e9
        X[[5, 700]] = X[3]
    elif kind != "topics":
        X = X.astype(kind.split()[-1])
    whole = fit(X, 1, metric=metric, device=device)
    for t in np.quantile(heights_of(whole), [0.03, 0.6, 0.99], method="nearest"):
        model = assert_same_part(X, t, device, whole, metric=metric)
        assert model.report_["way"] == "blocks"
        assert "blocks" in model.report_["neighbors"]


@pytest.mark.full
def test_the_values_choose_blocks():
    """By how many pairs meet in them, of a sample of rows: rows around topics are chosen, noise is not."""
    n, noise = 3 * 2**16, np.random.default_rng(0).normal(size=(3 * 2**16, 80))
    problem = Problem(Settings(get_metric("euclidean"), "cpu", max_distance=0.5), CPU, n, 80, 4)
    for X, is_served in ((around_topics(n, 80, topic=2000), True), (noise, False)):
        assert (lists.prepare_blocks(TreeInput(problem, X.astype("float32"), Report())) is not None) == is_served

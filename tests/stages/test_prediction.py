"""New rows beside a fitted model: hdbscan's answers, nearest rows, what a model keeps and what it refuses."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs

from rapids_slink import HDBSCAN, SingleLinkage, fit, load
from rapids_slink import hdbscan as ours
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import CPU

theirs = pytest.importorskip("hdbscan")


def fitted_and_new(seed, d):
    """600 rows in six clusters, and 300 new ones, some of them between the clusters and some far away."""
    X, _ = make_blobs(600, d, centers=6, cluster_std=np.linspace(0.3, 1.5, 6), random_state=seed)
    Y, _ = make_blobs(300, d, centers=8, cluster_std=1.5, random_state=seed)
    return X, Y


def both(X, min_cluster_size, min_samples, device, **options):
    """Our model, hdbscan's of the same tree, whose rows may tie, and the label there of each label here."""
    model = HDBSCAN(min_cluster_size, min_samples, prediction_data=True, device=device, **options).fit(X)
    other = model.to_hdbscan(min_cluster_size, **options)
    other._raw_data = X
    other.generate_prediction_data()
    labels = on_host(model.labels_)
    renamed = np.array([other.labels_[labels == k][0] for k in range(model.n_clusters_)], int)
    np.testing.assert_array_equal(np.append(renamed, -1)[labels], other.labels_)
    return other, model, renamed


CASES = [(1, 5, 3, 8), (2, 10, 5, 15), (3, 3, 1, 5), (4, 2, 10, 20), (5, 4, 2, 10)]
CASES = combinations(CASES, ("eom", "leaf"), quick=3)


@pytest.mark.parametrize(("case", "method"), CASES)
def test_predictions_are_hdbscans(case, method, device):
    seed, d, min_samples, min_cluster_size = case
    X, Y = fitted_and_new(seed, d)
    other, model, renamed = both(X, min_cluster_size, min_samples, device, cluster_selection_method=method)
    label, probability, row = (on_host(part) for part in ours.approximate_predict(model, Y, True))
    expected = theirs.approximate_predict(other, Y, True)
    np.testing.assert_array_equal(row, expected[2])
    np.testing.assert_array_equal(np.append(renamed, -1)[label], expected[0])
    np.testing.assert_array_equal(probability, expected[1])
    assert -1 in label
    assert label.max() >= 2
    np.testing.assert_array_equal(on_host(model.predict(Y)), label)
    assert model.report_["predict"] == {"rows": 300, "noise": int((label < 0).sum())}
    np.testing.assert_allclose(
        on_host(ours.approximate_predict_scores(model, Y)),
        theirs.prediction.approximate_predict_scores(other, Y),
        rtol=1e-12,
    )


def unique_nearest(model, cluster, rate):
    """Where one cluster is the nearest in the tree: among several hdbscan takes the first of its own order."""
    rates = model._density().rates(cluster, rate, CPU)
    return (rates == rates.max(axis=1, keepdims=True)).sum(axis=1) == 1


@pytest.mark.parametrize(("case", "method"), CASES)
def test_memberships_are_hdbscans(case, method, device):
    seed, d, min_samples, min_cluster_size = case
    X, Y = fitted_and_new(seed, d)
    other, model, renamed = both(X, min_cluster_size, min_samples, device, cluster_selection_method=method)
    density = model._density()
    rows = unique_nearest(model, density.tree.cluster, density.tree.departure)
    vectors = on_host(model.all_points_membership_vectors())
    expected = theirs.all_points_membership_vectors(other)[:, renamed]
    np.testing.assert_allclose(vectors[rows], expected[rows], rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(vectors, on_host(ours.all_points_membership_vectors(model)))
    assert rows.mean() > 0.3
    _, _, anchor, rate = density.anchors(Y, CPU)
    rows = unique_nearest(model, density.tree.cluster[anchor], np.minimum(rate, density.tree.departure[anchor]))
    vectors = on_host(model.membership_vector(Y))
    expected = theirs.membership_vector(other, Y)[:, renamed]
    np.testing.assert_allclose(vectors[rows], expected[rows], rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(vectors, on_host(ours.membership_vector(model, Y)))
    assert vectors.sum(axis=1).max() <= 1 + 1e-12
    assert rows.mean() > 0.3


def test_exemplars_are_hdbscans(device):
    X, _ = fitted_and_new(1, 5)
    other, model, renamed = both(X, 8, 3, device)
    for k, exemplars in enumerate(model.exemplars_):
        expected = other.exemplars_[renamed[k]]
        np.testing.assert_array_equal(np.unique(on_host(exemplars), axis=0), np.unique(expected, axis=0))


def test_one_cluster_and_none(device):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    model = HDBSCAN(150, 5, prediction_data=True, device=device).fit(X)
    assert model.n_clusters_ == 0
    labels, probabilities = model.approximate_predict(X[:7])
    assert on_host(labels).tolist() == [-1] * 7
    assert on_host(probabilities).tolist() == [0.0] * 7
    assert model.membership_vector(X[:7]).shape == (7, 0)
    assert model.all_points_membership_vectors().shape == (200, 0)
    assert model.exemplars_ == []
    model = HDBSCAN(150, 5, prediction_data=True, allow_single_cluster=True, device=device).fit(X)
    assert on_host(model.predict(X[:7])).tolist() == [0] * 7  # hdbscan calls them noise


def test_equal_rows(device):
    """λ is infinite between them. hdbscan's results are NaN then."""
    X = np.repeat(np.array([[0.0, 0.0], [9.0, 9.0]]), 20, axis=0)
    X = np.r_[X, X + np.random.default_rng(0).normal(size=X.shape)]
    model = HDBSCAN(10, 3, prediction_data=True, device=device).fit(X)
    assert model.n_clusters_ == 2
    labels, probabilities = (on_host(part) for part in model.approximate_predict([[0.0, 0.0], [9.0, 9.0], [9.1, 9.0]]))
    assert labels.tolist() == [0, 1, 1]
    assert probabilities[:2].tolist() == [1.0, 1.0]
    assert 0 <= probabilities[2] < 1
    for vectors in (model.membership_vector(X), model.all_points_membership_vectors()):
        vectors = on_host(vectors)
        assert np.isfinite(vectors).all()
        np.testing.assert_array_equal(vectors.argmax(axis=1)[:40], np.repeat([0, 1], 20))


def test_few_rows(device):
    """Fewer than 2m: hdbscan fails."""
    X = np.arange(6.0)[:, None]
    model = HDBSCAN(3, prediction_data=True, allow_single_cluster=True, device=device).fit(X)
    assert on_host(model.predict([[2.5], [99.0]])).shape == (2,)
    model = HDBSCAN(3, prediction_data=True, device=device).fit(X[:1])
    assert on_host(model.predict([[2.5]])).tolist() == [-1]


def expected_labels(model, X, Y, height, metric):
    distance = cdist(Y, X, metric)
    nearest = distance.argmin(axis=1)
    return np.where(distance[np.arange(len(Y)), nearest] < height, on_host(model.labels_)[nearest], -1)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock", "chebyshev", "canberra"])
def test_the_nearest_rows_label(metric, device):
    X, Y = fitted_and_new(0, 6)
    threshold = fit(X, 12, metric=metric, device="cpu").distances_[-11]
    model = SingleLinkage(None, distance_threshold=threshold, metric=metric, prediction_data=True, device=device).fit(X)
    labels = on_host(model.predict(Y))
    np.testing.assert_array_equal(labels, expected_labels(model, X, Y, model.distance_threshold, metric))
    assert labels.dtype == np.int32
    assert -1 in labels
    assert labels.max() > 1
    np.testing.assert_array_equal(on_host(model.predict(X)), on_host(model.labels_))


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 600])
def test_below_the_height_of_the_cut(n_clusters, device):
    X, Y = fitted_and_new(0, 2)
    model = fit(X, n_clusters, prediction_data=True, device=device)
    height = np.inf if n_clusters == 1 else on_host(model.distances_)[600 - n_clusters]
    labels = on_host(model.predict(Y))
    np.testing.assert_array_equal(labels, expected_labels(model, X, Y, height, "euclidean"))
    assert (-1 in labels) == (n_clusters > 1)
    assert model.report_["predict"] == {"rows": 300, "noise": int((labels < 0).sum())}
    assert model.report_["seconds"]["predict"] > 0


def test_at_the_height_of_the_cut(device):
    model = fit(np.array([[0.0], [1.0], [3.0]]), 2, prediction_data=True, device=device)
    assert on_host(model.predict([[5.0], [np.nextafter(5, 0)], [2.0], [0.5]])).tolist() == [-1, 1, 0, 0]
    model = SingleLinkage(None, distance_threshold=1.5, prediction_data=True, device=device).fit([[0.0], [1.0], [3.0]])
    assert on_host(model.set_params(distance_threshold=9.0).predict([[4.5], [4.0]])).tolist() == [-1, 1]  # as fitted
    model = fit([[0.0], [1.0], [3.0]], max_distance=1, prediction_data=True, device=device)
    assert on_host(model.predict([[4.0], [np.nextafter(4, 5)], [2.0], [30.0]])).tolist() == [1, -1, 0, -1]


def test_frames_go_by_name(device):
    X, Y = fitted_and_new(0, 3)
    frame = pd.DataFrame(Y, columns=list("abc"), index=[f"new {i}" for i in range(300)])
    for model in (SingleLinkage(5, prediction_data=True), HDBSCAN(10, 3, prediction_data=True)):
        model.set_params(device=device).fit(pd.DataFrame(X, columns=list("abc")))
        labels = model.predict(frame[["c", "a", "b"]])
        assert isinstance(labels, pd.Series)
        pd.testing.assert_index_equal(labels.index, frame.index)
        np.testing.assert_array_equal(labels.to_numpy(), on_host(model.predict(Y)))
        for wrong in (frame[["a", "b"]], frame.rename(columns={"b": "x"}), frame.assign(d=1.0)):
            with pytest.raises(ValueError, match=r"X must have the columns .* fitted on, \['a', 'b', 'c'\], got"):
                model.predict(wrong)


@pytest.mark.parametrize("names", [[0, 1, 2], ["a", 1, 2.5], [("a", 0), ("a", 1), ("b", 0)], ["a", "a", "b"]], ids=str)
def test_columns_of_any_names(names, tmp_path, device):
    X, Y = (pd.DataFrame(values) for values in fitted_and_new(0, 3))
    for frame in X, Y:
        frame.columns = pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else names
    model = fit(X, 5, prediction_data=True, device=device)
    model.save(tmp_path / "model.slink")
    for again in model, load(tmp_path / "model.slink"):
        expected = on_host(again.predict(Y.to_numpy()))
        np.testing.assert_array_equal(again.predict(Y).to_numpy(), expected)
        turned = Y.iloc[:, ::-1]
        if len(set(names)) == 3:
            np.testing.assert_array_equal(again.predict(turned).to_numpy(), expected)
        for wrong in (Y.iloc[:, :2], Y.iloc[:, [0, 1, 1]]) if len(set(names)) == 3 else (turned,):
            with pytest.raises(ValueError, match="X must have the columns that SingleLinkage was fitted on"):
                again.predict(wrong)


@pytest.mark.gpu
def test_kinds_of_the_gpu():
    import cudf
    import cupy

    X, Y = fitted_and_new(1, 5)
    expected = HDBSCAN(8, 3, prediction_data=True, device="cpu").fit(X)
    model = HDBSCAN(8, 3, prediction_data=True, device="cuda").fit(cupy.asarray(X))
    labels, probabilities = model.approximate_predict(cudf.DataFrame(Y))
    assert isinstance(labels, cudf.Series)
    np.testing.assert_array_equal(labels.to_numpy(), expected.approximate_predict(Y)[0])
    np.testing.assert_array_equal(probabilities.to_numpy(), expected.approximate_predict(Y)[1])
    vectors = model.membership_vector(cupy.asarray(Y))
    assert isinstance(vectors, cupy.ndarray)
    np.testing.assert_allclose(cupy.asnumpy(vectors), expected.membership_vector(Y), rtol=1e-6, atol=1e-12)
    assert isinstance(model.all_points_membership_vectors(), cupy.ndarray)
    assert isinstance(model.exemplars_[0], cupy.ndarray)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_saved_and_pickled_models_predict_the_same(dtype, tmp_path, device):
    X, Y = fitted_and_new(1, 5)
    X = X.astype(dtype)
    for model in (SingleLinkage(5, prediction_data=True), HDBSCAN(10, 3, prediction_data=True)):
        model.set_params(device=device).fit(X)
        labels = on_host(model.predict(Y))
        model.save(tmp_path / "model.slink")
        for again in (load(tmp_path / "model.slink"), pickle.loads(pickle.dumps(model))):
            assert on_host(again._points_).dtype == dtype
            assert on_host(again._points_).tobytes() == X.tobytes()
            np.testing.assert_array_equal(on_host(again.predict(Y)), labels)
            if isinstance(model, HDBSCAN):
                vectors = on_host(model.membership_vector(Y))
                np.testing.assert_array_equal(on_host(again.membership_vector(Y)), vectors)


def test_the_rows_are_a_copy(device):
    X, Y = fitted_and_new(1, 5)
    model = fit(X, 5, prediction_data=True, device=device)
    labels = on_host(model.predict(Y))
    X[:] = 0
    np.testing.assert_array_equal(on_host(model.predict(Y)), labels)


def test_a_fit_without_forgets_the_rows(device):
    X, Y = fitted_and_new(1, 5)
    model = HDBSCAN(8, 3, prediction_data=True, device=device).fit(X)
    model.set_params(prediction_data=False).fit(X)
    assert not hasattr(model, "predict")
    for ask in (model.approximate_predict, model.membership_vector, lambda _: model.all_points_membership_vectors()):
        with pytest.raises(ValueError, match="this HDBSCAN keeps no rows: fit it with prediction_data=True"):
            ask(Y)
    assert not hasattr(model, "_core_")


def test_what_is_refused():
    X, Y = fitted_and_new(1, 5)
    model = fit(X, 5, prediction_data=True, device="cpu")
    with pytest.raises(ValueError, match="X has 4 features, but SingleLinkage is expecting 5 features as input"):
        model.predict(Y[:, :4])
    with pytest.raises(ValueError, match="X contains values that are not finite"):
        model.predict(np.full((2, 5), np.nan))
    with pytest.raises(ValueError, match=r"metric='precomputed' has none"):
        fit(cdist(X, X), 5, metric="precomputed", prediction_data=True, device="cpu")
    with pytest.raises(ValueError, match="min_samples: use HDBSCAN"):
        fit(X, 5, min_samples=3, prediction_data=True, device="cpu").predict(Y)
    with pytest.raises(AttributeError, match="keeps no rows for predict: set prediction_data=True and fit"):
        _ = fit(X, 5, device="cpu").predict
    with pytest.raises(ValueError, match="keeps no rows: fit it with prediction_data=True"):
        fit(X, 5, device="cpu").set_params(prediction_data=True).predict(Y)
    with pytest.raises(ValueError, match="not fitted"):
        SingleLinkage(prediction_data=True).predict(Y)

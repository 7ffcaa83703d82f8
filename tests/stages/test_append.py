"""`append`: rows added to a model, against `fit` of all rows, bit for bit."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, SOME, case_dtypes, combinations, full
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from metric_cases import ALL_METRICS, takes_booleans, without_zeros
from spanning_trees import bits

from rapids_slink import HDBSCAN, SingleLinkage, fit
from rapids_slink.points.output import on_host
from rapids_slink.spanning_tree.lists import NEW_LISTED, TREE_LISTED


def appended(X, sizes, device, **parameters):
    """A model of the first rows, to which the others are added in parts of these sizes; None is all others."""
    first, *sizes = sizes
    model = fit(X[:first], 1, prediction_data=True, device=device, **parameters)
    for size in sizes:
        first, start = first + (len(X) - first if size is None else size), first
        assert model.append(X[start:first]) is model
    assert first == len(X)
    return model


def assert_as_fitted(model, X, device, **parameters):
    assert model.report_["way"] == "append"
    assert bits(model) == bits(fit(X, 1, device=device, **parameters))
    assert model.n_leaves_ == len(X)


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2, quick=SOME))
def test_hard_cases(name, dtype, device):
    X = CASES[name](dtype)[:1500]
    n, few = len(X), max(1, len(X) // 50)
    for sizes in [(n - 1, 1), (1, None), (n - few, few), (n // 2, None)]:
        if sizes[0] > 0:
            assert_as_fitted(appended(X, sizes, device), X, device)


QUICK = [("cosine", 2.0), ("cityblock", 2.0), ("jaccard", 2.0)]  # a filter, a tree of boxes, rows of words


@pytest.mark.parametrize(("metric", "p"), [one if one in QUICK else full(*one) for one in ALL_METRICS])
def test_metrics(metric, p, device):
    X = np.random.default_rng(0).normal(size=(260, 2 if metric == "haversine" else 7))
    X = (X > 0).astype(float) if takes_booleans(metric) else X
    X = without_zeros(X * (0.1 if metric == "haversine" else 1), metric)
    for sizes in [(240, 20), (259, 1), (100, None)]:
        assert_as_fitted(appended(X, sizes, device, metric=metric, p=p), X, device, metric=metric, p=p)


@pytest.mark.parametrize(("size", "d"), combinations((1, 10, 1000), (2, 20), quick=[(1, 20), (1000, 2)]))
def test_again_and_again_in_any_order(size, d, device):
    rng = np.random.default_rng(size)
    X = rng.normal(size=(2300, d)) * rng.choice([0.01, 0.1, 1], (2300, 1)) + rng.choice([0, 20], (2300, 1))
    X = X[:330] if size == 1 else X
    for _ in range(2):
        first, times = len(X) % 1000, (len(X) - len(X) % 1000) // size
        if size == 1:
            first, times = 300, 30
        assert_as_fitted(appended(X, (first, *[size] * times), device), X, device)
        X = rng.permutation(X)


def test_one_row_that_is_there_or_joins_two_clusters(device):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 8)), rng.normal(size=(200, 8)) + 40])
    for new in (X[17], X[399], np.full(8, 20.0), np.full(8, 1e6)):
        whole = np.concatenate([X, new[None]])
        model = appended(whole, (400, 1), device)
        assert_as_fitted(model, whole, device)
        np.testing.assert_array_equal(on_host(model.cut(3)), on_host(fit(whole, 3, device=device).labels_))


def test_rows_of_many_tree_edges(device):
    """Most edges of the hub are in no list, and every second of them is in the new tree."""
    star = np.concatenate([np.zeros((1, 100)), np.diag(1 + np.arange(100) / 300)])
    new = np.diag(0.5 + np.arange(100) / 300)[::2]
    X = np.concatenate([star, new, star[:3], star[-2:] + 1e-3])
    model = appended(X, (101, None), device)
    assert_as_fitted(model, X, device)
    before = fit(star, 1, device=device)
    hub = np.bincount(np.concatenate([on_host(before.mst_[end]) for end in ("src", "dst")])).max()
    assert hub > 9 * (NEW_LISTED + TREE_LISTED)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_hub_between_new_rows(scale, device):
    """Searches find the edges of the old tree that no list holds."""
    rng = np.random.default_rng(1)
    star = np.concatenate([np.zeros((1, 40)), np.eye(40) * (1 + np.arange(40) / 50)[:, None]])
    X = np.concatenate([star, rng.normal(size=(300, 40)) * scale + np.eye(40)[rng.integers(0, 40, 300)]])
    model = appended(X, (41, 150, None), device)
    assert_as_fitted(model, X, device)


@pytest.mark.parametrize(("d", "limit"), [(9, 2.5), (9, 1e3), (2, 0.3)])
def test_a_tree_up_to_a_distance(d, limit, device):
    X = np.random.default_rng(0).normal(size=(900, d))
    X[::2] += 50
    how = {"n_clusters": None, "max_distance": limit, "device": device}
    whole = SingleLinkage(**how).fit(X)
    assert (len(whole.mst_) == 899) == (limit == 1e3)
    for first in (800, 899, 1):
        model = SingleLinkage(prediction_data=True, **how).fit(X[:first]).append(X[first:])
        assert bits(model) == bits(whole)
    for other in (None, limit * 1.01):
        with pytest.raises(ValueError, match=f"continues a fit with max_distance={limit}, and it is now {other}"):
            model.set_params(n_clusters=450, max_distance=other).append(X[:1])
    how["max_distance"] = limit / 10
    model.set_params(n_clusters=None, max_distance=limit / 10).append(X[:1])
    assert bits(model) == bits(SingleLinkage(**how).fit(np.concatenate([X, X[:1]])))


SHAPES = st.tuples(st.integers(2, 40), st.integers(1, 4))


@given(hnp.arrays(np.float64, SHAPES, elements=st.sampled_from([0.0, 0.5, 1.0, 2.5])), st.data())
def test_ties_in_any_parts(X, data):
    """On small grids nearly all distances tie, and many rows are equal."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(X) - 1), min_size=1, max_size=3)))
    sizes = np.diff([0, *cuts, len(X)]).tolist()
    assert_as_fitted(appended(X, sizes, "cpu"), X, "cpu")


def test_labels_are_those_of_the_parameters(device):
    X = np.random.default_rng(0).normal(size=(300, 3))
    for parameters in ({"n_clusters": 5}, {"n_clusters": None, "distance_threshold": 0.5}):
        model = SingleLinkage(prediction_data=True, device=device, **parameters).fit(X[:250]).append(X[250:])
        whole = SingleLinkage(device=device, **parameters).fit(X)
        assert bits(model) == bits(whole)
        assert model.n_clusters_ == whole.n_clusters_
        np.testing.assert_array_equal(on_host(model.predict(X)), on_host(whole.labels_))


def test_hdbscan_without_core_distances(device):
    X = np.random.default_rng(0).normal(size=(300, 3))
    how = {"prediction_data": True, "store_centers": "both", "device": device}
    model = HDBSCAN(5, 1, **how).fit(X[:250]).append(X[250:])
    whole = HDBSCAN(5, 1, **how).fit(X)
    assert bits(model) == bits(whole)
    for name in ("centroids_", "medoids_"):
        np.testing.assert_array_equal(on_host(getattr(model, name)), on_host(getattr(whole, name)))
    np.testing.assert_array_equal(on_host(model.probabilities_), on_host(whole.probabilities_))
    np.testing.assert_array_equal(on_host(model.membership_vector(X)), on_host(whole.membership_vector(X)))


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32"), ("int8", "int16")])
def test_types_meet_as_in_a_fit(dtypes, device):
    X = np.random.default_rng(0).normal(size=(90, 3)) * 50
    parts = X[:60].astype(dtypes[0]), X[60:].astype(dtypes[1])
    model = fit(parts[0], 1, prediction_data=True, device=device).append(parts[1])
    assert bits(model) == bits(fit(np.concatenate(parts), 1, device=device))


def test_frames_and_their_indexes(device):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3)), columns=list("abc"))
    X.index = [f"row {i}" for i in range(90)]
    model = fit(X[:60], 4, prediction_data=True, device=device).append(X[60:][["c", "b", "a"]])
    expected = fit(X, 4, device=device)
    pd.testing.assert_series_equal(model.labels_, expected.labels_)
    pd.testing.assert_frame_equal(model.linkage_, expected.linkage_)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.append(X[:2].to_numpy())  # which has no names
    assert model.labels_.index[-2:].tolist() == [90, 91]
    with pytest.raises(ValueError, match=r"X must have the columns"):
        model.append(X[["a", "b"]])
    numbered = fit(X[:60].reset_index(drop=True), 4, prediction_data=True, device=device).append(X[60:].to_numpy())
    assert numbered.labels_.index.tolist() == list(range(90))


@pytest.mark.gpu
def test_kinds_of_the_gpu():
    import cudf
    import cupy

    X = np.random.default_rng(0).normal(size=(3000, 30))
    expected = fit(X, 4, device="cpu")
    model = fit(cupy.asarray(X[:2900]), 4, prediction_data=True).append(X[2900:])
    assert isinstance(model.labels_, cupy.ndarray)
    assert bits(model) == bits(expected)
    model = fit(cudf.DataFrame(X[:2900]), 4, prediction_data=True).append(cudf.DataFrame(X[2900:]))
    assert isinstance(model.labels_, cudf.Series)
    assert bits(model) == bits(expected)


def test_what_is_refused(device):
    X = np.random.default_rng(0).normal(size=(90, 3))
    places = SingleLinkage(min_samples=2, metric="haversine", prediction_data=True, device=device).fit(X[:, :2] / 9)
    with pytest.raises(ValueError, match="append is for min_samples=1"):
        places.append(X[:, :2] / 9)
    for model in (SingleLinkage(min_samples=3), HDBSCAN(5)):
        model.set_params(prediction_data=True, device=device).fit(X[:60])
        before = bits(model)
        with pytest.raises(ValueError, match="append is for min_samples=1: with new rows core distances fall"):
            model.append(X[60:])
        assert bits(model) == before
    model = fit(X[:60], 4, prediction_data=True, device=device)
    before = bits(model)
    with pytest.raises(ValueError, match="X has 2 features, but SingleLinkage is expecting 3"):
        model.append(X[60:, :2])
    with pytest.raises(ValueError, match="not finite"):
        model.append(np.full((1, 3), np.inf))
    with pytest.raises(ValueError, match="euclidean distances may overflow float64"):
        model.append(np.array([[1e155, 0, 0]]))
    with pytest.raises(ValueError, match="continues a fit by euclidean, and metric is now 'cosine'"):
        model.set_params(metric="cosine").append(X[60:])
    assert bits(model) == before
    with pytest.raises(AttributeError, match="keeps no rows for append: set prediction_data=True"):
        _ = fit(X, 4, device=device).append

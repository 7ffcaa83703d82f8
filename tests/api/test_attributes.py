"""What a fitted model holds, in the caller's kind, and every parameter and input that is refused."""

import numpy as np
import pandas as pd
import pytest
from calls import Failing
from scipy.cluster import hierarchy
from sklearn.base import clone
from spanning_trees import bits

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage, fit
from rapids_slink.points.output import OutputKind
from rapids_slink.runtime.device import DeviceUnavailableError, gpu_is_usable


def blobs(n=60, d=3, seed=0):
    """Three clusters, row i in cluster i % 3."""
    rng = np.random.default_rng(seed)
    return np.eye(3, d)[np.arange(n) % 3] * 40 + rng.normal(size=(n, d))


def test_attributes_for_an_array(device):
    X = blobs()
    before = X.copy()
    model = fit(X, 3, n_neighbors=2, device=device)
    n = len(X)
    assert list(model.linkage_.columns) == ["left", "right", "height", "size"]
    assert [str(dtype) for dtype in model.linkage_.dtypes] == ["int32", "int32", "float64", "int32"]
    assert list(model.mst_.columns) == ["src", "dst", "weight"]
    assert [str(dtype) for dtype in model.mst_.dtypes] == ["int32", "int32", "float64"]
    assert isinstance(model.linkage_, pd.DataFrame)
    assert isinstance(model.mst_, pd.DataFrame)
    assert model.linkage_.index.equals(pd.RangeIndex(n - 1))
    assert model.mst_.index.equals(pd.RangeIndex(n - 1))
    Z = hierarchy.linkage(X, "single")
    np.testing.assert_array_equal(model.linkage_.to_numpy(float), Z)
    assert type(model.children_) is type(model.distances_) is type(model.labels_) is np.ndarray
    assert model.children_.dtype.kind == "i"
    np.testing.assert_array_equal(model.children_, Z[:, :2])
    np.testing.assert_array_equal(model.distances_, Z[:, 2])
    assert model.labels_.dtype == np.int32
    assert model.labels_.tolist() == [0, 1, 2] * (n // 3)
    assert (model.n_clusters_, model.n_leaves_, model.n_features_in_) == (3, n, 3)
    assert not hasattr(model, "feature_names_in_")
    scipy = model.to_scipy()
    assert scipy.dtype == np.float64
    np.testing.assert_array_equal(scipy, Z)
    np.testing.assert_array_equal(X, before)


def test_frame_in_frame_out(device):
    X = pd.DataFrame(blobs(), columns=["x", "y", "z"], index=[f"row {i}" for i in range(60)][::-1])
    model = fit(X, 3, device=device)
    assert isinstance(model.labels_, pd.Series)
    assert model.labels_.dtype == np.int32
    pd.testing.assert_index_equal(model.labels_.index, X.index)
    np.testing.assert_array_equal(model.labels_.to_numpy(), fit(X.to_numpy(), 3, device=device).labels_)
    assert isinstance(model.linkage_, pd.DataFrame)
    assert isinstance(model.mst_, pd.DataFrame)
    assert type(model.children_) is type(model.distances_) is np.ndarray
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    assert model.feature_names_in_.dtype == object
    again = model.cut(distance_threshold=1e9)
    assert isinstance(again, pd.Series)
    pd.testing.assert_index_equal(again.index, X.index)
    assert again.to_numpy().tolist() == [0] * 60


def test_feature_names_follow_the_last_fit(device):
    model = SingleLinkage(device=device)
    X = blobs()
    assert model.fit(pd.DataFrame(X, columns=list("abc"))).feature_names_in_.tolist() == list("abc")
    assert not hasattr(model.fit(X), "feature_names_in_")
    assert not hasattr(model.fit(pd.DataFrame(X)), "feature_names_in_")  # integers are no names
    assert model.fit(pd.DataFrame(X[:, :2], columns=list("uv"))).feature_names_in_.tolist() == list("uv")
    assert model.n_features_in_ == 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["auto", "cuda", "cpu"])
def test_kinds_of_the_gpu_come_back(name):
    import cudf
    import cupy

    X = blobs()
    expected = fit(X, 3, device="cpu")
    model = fit(cudf.DataFrame(pd.DataFrame(X, columns=list("abc"), index=range(100, 160))), 3, device=name)
    assert isinstance(model.labels_, cudf.Series)
    assert model.labels_.index.to_pandas().tolist() == list(range(100, 160))
    assert isinstance(model.linkage_, cudf.DataFrame)
    assert isinstance(model.mst_, cudf.DataFrame)
    assert isinstance(model.children_, cupy.ndarray)
    assert isinstance(model.distances_, cupy.ndarray)
    assert bits(model) == bits(expected)
    model = fit(cupy.asarray(X), 3, device=name)
    assert isinstance(model.labels_, cupy.ndarray)
    assert isinstance(model.cut(2), cupy.ndarray)
    assert bits(model) == bits(expected)


def test_one_row(device):
    model = fit(np.array([[1.0, 2.0]]), 1, device=device)
    assert model.labels_.tolist() == [0]
    assert (len(model.linkage_), len(model.mst_)) == (0, 0)
    assert model.to_scipy().shape == (0, 4)
    assert model.children_.shape == (0, 2)
    assert (model.n_clusters_, model.n_leaves_, model.n_connected_components_) == (1, 1, 1)
    assert model.cut(distance_threshold=1.0).tolist() == [0]
    assert [str(dtype) for dtype in model.mst_.dtypes] == ["int32", "int32", "float64"]


def test_parameters_as_scikit_learn_wants_them(device):
    parameters = {
        "n_clusters": None,
        "distance_threshold": 1.5,
        "min_cluster_size": 4,
        "max_cluster_size": 9,
        "count_small": True,
        "metric": "minkowski",
        "p": 3.0,
        "missing": None,
        "missing_value": None,
        "box": None,
        "scales": None,
        "max_distance": None,
        "min_similarity": None,
        "n_neighbors": 4,
        "min_samples": 3,
        "device": device,
        "progress": True,
        "memory_limit": "1GiB",
        "prediction_data": True,
    }
    model = SingleLinkage(**parameters)
    assert model.get_params() == parameters
    assert clone(model).get_params() == parameters
    assert not hasattr(clone(model.set_params(progress=False).fit(blobs())), "labels_")
    with pytest.raises(TypeError, match="positional argument"):
        SingleLinkage(2, None)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_clusters": 0}, ValueError, "n_clusters .*1.*60.*got 0"),
        ({"n_clusters": 61}, ValueError, "n_clusters .*1.*60.*got 61"),
        ({"n_clusters": -3}, ValueError, "n_clusters .*got -3"),
        ({"n_clusters": 1.5}, TypeError, "n_clusters must be an integer, got 1.5"),
        ({"n_clusters": "2"}, TypeError, "n_clusters must be an integer, got '2'"),
        ({"n_clusters": True}, TypeError, "n_clusters must be an integer, got True"),
        ({"n_clusters": np.array([2])}, TypeError, r"n_clusters must be an integer, got array\(\[2\]\)"),
        ({"min_cluster_size": 0}, ValueError, "min_cluster_size must be at least 1, got 0"),
        ({"min_cluster_size": "5"}, TypeError, "min_cluster_size must be an integer, got '5'"),
        ({"n_clusters": None, "distance_threshold": np.nan}, ValueError, "distance_threshold.*NaN"),
        ({"n_clusters": None, "distance_threshold": "far"}, TypeError, "distance_threshold.*'far'"),
        ({"n_clusters": None, "distance_threshold": 10**400}, ValueError, "distance_threshold must fit into float64"),
        ({"n_clusters": None, "distance_threshold": 1j}, TypeError, "distance_threshold must be a number, got 1j"),
        ({"n_clusters": None, "distance_threshold": [0.5]}, TypeError, r"distance_threshold must be a number, got \["),
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": -1}, ValueError, "n_neighbors must be at least 1, got -1"),
        ({"n_neighbors": 2.5}, TypeError, "n_neighbors must be an integer, got 2.5"),
        ({"n_neighbors": True}, TypeError, "n_neighbors must be an integer, got True"),
        ({"n_neighbors": "8"}, TypeError, "n_neighbors must be an integer, got '8'"),
        ({"min_samples": 0}, ValueError, "min_samples must be at least 1, got 0"),
        ({"min_samples": 60}, ValueError, "min_samples must be at most n - 1 = 59, got 60"),
        ({"min_samples": -3}, ValueError, "min_samples must be at least 1, got -3"),
        ({"min_samples": 1.5}, TypeError, "min_samples must be an integer, got 1.5"),
        ({"min_samples": True}, TypeError, "min_samples must be an integer, got True"),
        ({"min_samples": "5"}, TypeError, "min_samples must be an integer, got '5'"),
        ({"max_distance": np.nan}, ValueError, "max_distance must not be NaN"),
        ({"max_distance": "1"}, TypeError, "max_distance must be a number, got '1'"),
        ({"max_distance": True}, TypeError, "max_distance must be a number, got True"),
        ({"device": "tpu"}, ValueError, "device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
    ],
)
def test_bad_parameters(parameters, error, message, device):
    model = SingleLinkage(**{"device": device, **parameters})
    with pytest.raises(error, match=message):
        model.fit(blobs())
    assert not hasattr(model, "labels_")


@pytest.mark.parametrize("metric", ["unknown", "", None, 3, np.sum, ["euclidean"], b"euclidean"])
def test_what_names_no_metric(metric, device):
    with pytest.raises((ValueError, TypeError), match="metric must be one of 'euclidean'"):
        fit(blobs(), metric=metric, device=device)


@pytest.mark.parametrize("n_neighbors", [100, 10**30, np.int64(2), np.uint8(59)])
@pytest.mark.parametrize("n_clusters", [1, 3, np.int8(2)])
def test_parameters_of_other_integer_types_and_of_any_size(n_clusters, n_neighbors, device):
    model = fit(blobs(), n_clusters, n_neighbors=n_neighbors, device=device)
    assert sorted(set(model.labels_.tolist())) == list(range(n_clusters))


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_cuda_without_a_gpu_never_falls_back():
    for call in (
        lambda: fit(blobs(), device="cuda"),
        lambda: rapids_slink.knn_graph(blobs(), 2, device="cuda"),
        lambda: rapids_slink.nearest_neighbors(blobs(), blobs(), device="cuda"),
    ):
        with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU"):
            call()
    assert fit(blobs(), device="auto").report_["device"] == "cpu"


MODELS = [SingleLinkage(3, prediction_data=True), HDBSCAN(3, prediction_data=True)]  # whose fit makes all frames


@pytest.mark.parametrize("model", MODELS, ids=["SingleLinkage", "HDBSCAN"])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_fit_that_fails_changes_nothing(model, fails_at, device, monkeypatch):
    """Not even one that fails when the labels are there."""
    before = vars(model.set_params(device=device).fit(blobs(50))).copy()
    with monkeypatch.context() as patch:
        patch.setattr(OutputKind, "frame", Failing(OutputKind.frame, KeyboardInterrupt(), fails_at).as_method())
        with pytest.raises(KeyboardInterrupt):
            model.fit(pd.DataFrame(blobs(80), columns=list("abc")))
    assert {name: id(value) for name, value in vars(model).items()} == {name: id(before[name]) for name in before}
    assert len(model.fit(pd.DataFrame(blobs(80), columns=list("abc"))).labels_) == 80
    assert list(model.feature_names_in_) == list("abc")
    assert not hasattr(model.fit(blobs(50)), "feature_names_in_")


def test_a_script_of_mistakes(device):
    """Each error names what was given, what is valid, and what to do."""
    X, own, at = blobs(), {"device": device}, {"distance_threshold": 1.0}
    assert SingleLinkage(**at, **own).fit(X).n_clusters_ == fit(X, **at, **own).n_clusters_
    assert fit(X[:1], **own).n_clusters_ == SingleLinkage(**own).fit(X[:1]).n_clusters_ == 1
    near = fit(X, max_distance=0.1, **own)
    of_groups = fit(X, 2, groups=np.arange(len(X)) % 2, **own)
    too_low = {"distance_threshold": -1}
    mistakes = [
        (lambda: SingleLinkage(2, distance_threshold=1.0, **own).fit(X), "got both$"),
        (lambda: fit(X, **too_low, **own), "distance_threshold must be at least 0, as euclidean .*, got -1$"),
        (lambda: near.cut(distance_threshold=-0.5), r"distance_threshold must be at least 0, .* got -0\.5$"),
        (lambda: fit(X, n_cluster=3, **own), "SingleLinkage has no parameter 'n_cluster'. Did you mean 'n_clusters'.$"),
        (lambda: near.cut(t=1), "cut has no parameter 't'. Did you mean 'distance_threshold'.$"),
        (lambda: near.cut(threshold=1), "cut has no parameter 'threshold'. Did you mean 'distance_threshold'.$"),
        (lambda: rapids_slink.cut(near.linkage_, k=3), "cut has no parameter 'k'. Did you mean 'n_clusters'.$"),
        (lambda: near.cut(colour=1), "cut has no parameter 'colour', only .'n_clusters', 'distance_threshold', "),
        (lambda: fit(X, metric=max, **own), r"pdist.* has the distances .*, for fit\(\.\.\., metric='precomputed'\)$"),
        (lambda: fit(X, metric="mahalanobis", **own), "got 'mahalanobis'. .*metric='precomputed'.$"),
        (lambda: near.cut(2), r"n_clusters must be from \d+ to 60, .*, got 2 \(max_distance=0\.1 leaves \d+ trees\)$"),
        (of_groups.plot, r"one of 2 trees: plot_condensed\(\), plot_heights\(\) and plot_clusters\(X\) draw one$"),
    ]
    for mistake, message in mistakes:
        with pytest.raises((TypeError, ValueError), match=message):
            mistake()
    assert fit(X, **too_low, metric="inner_product", **own).n_clusters_ >= 1

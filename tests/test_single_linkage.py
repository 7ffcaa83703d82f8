"""End to end: SciPy's dendrogram to the last bit on every hard case, the estimator's attributes, and every refusal."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone

import rapids_slink
from rapids_slink import SingleLinkage, fit
from rapids_slink.device import DeviceUnavailableError, gpu_is_usable, to_host
from rapids_slink.single_linkage import DEFAULT_NEIGHBORS

NEIGHBORS = [1, 2, 3, 8, None]
FEW = 1100  # rows up to which all distances are compared with each other
EVERY_CASE = pytest.mark.parametrize("name", CASES)
BOTH_TYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


@cache
def points(name, dtype):
    X = CASES[name](dtype)
    X.flags.writeable = False
    return X


@cache
def scipys(name, dtype, metric="euclidean"):
    """SciPy's Z of a case."""
    X = points(name, dtype).astype(np.float64)
    return hierarchy.linkage(X, "single", metric) if len(X) > 1 else np.empty((0, 4))


@cache
def has_ties(name, dtype):
    distances = pdist(points(name, dtype).astype(np.float64))
    return np.unique(distances).size < distances.size


def bits(model):
    """All that a fit found, as bytes."""
    frames = [to_host(frame[c].values) for frame in (model.linkage_, model.mst_) for c in frame.columns]
    return b"".join(array.tobytes() for array in [*frames, to_host(model.labels_)])


def by_appearance(labels):
    """Labels renumbered 0, 1, ... in the order in which they first appear."""
    return pd.factorize(np.asarray(labels))[0]


def blobs(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return np.eye(3, d)[np.arange(n) % 3] * 40 + rng.normal(size=(n, d))


# ---------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize("n_neighbors", NEIGHBORS)
@BOTH_TYPES
@EVERY_CASE
def test_dendrogram_is_scipys(name, dtype, n_neighbors, device):
    X, expected = points(name, dtype), scipys(name, dtype)
    model = fit(X, 1, n_neighbors=n_neighbors, device=device)
    found = model.to_scipy()
    np.testing.assert_array_equal(found[:, 2], expected[:, 2])  # to the last bit
    np.testing.assert_array_equal(to_host(model.mst_["weight"].values), expected[:, 2])
    if len(X) <= FEW and not has_ties(name, dtype):
        np.testing.assert_array_equal(found, expected)
    elif len(X) > 1:
        assert hierarchy.is_valid_linkage(found)


def test_some_cases_tie_and_some_do_not():
    """Otherwise the test above would never compare more than the heights, or never meet a tie."""
    few = [name for name in CASES if len(points(name, "float64")) <= FEW]
    tied = {name for name in few if has_ties(name, "float64")}
    assert {"integer_grid", "all_rows_equal", "last_bit", "denormals"} <= tied
    assert {"offset_1e4", "sphere_of_radius_1e6", "magnitude_1e_30", "more_features_than_rows"} <= set(few) - tied


@BOTH_TYPES
@EVERY_CASE
def test_tree_spans_and_weighs_what_its_rows_are_apart(name, dtype, device):
    X = points(name, dtype).astype(np.float64)
    tree = fit(X, 1, n_neighbors=2, device=device).mst_
    src, dst, weight = (to_host(tree[c].values) for c in ("src", "dst", "weight"))
    assert (src < dst).all()
    total = np.zeros(len(tree))
    for f in range(X.shape[1]):
        total += (X[src, f] - X[dst, f]) ** 2
    np.testing.assert_array_equal(weight, np.sqrt(total))
    graph = coo_array((np.ones(len(tree)), (src, dst)), shape=(len(X), len(X)))
    assert len(tree) == len(X) - 1
    assert connected_components(graph, directed=False)[0] == 1


@BOTH_TYPES
@EVERY_CASE
def test_cuts_are_scipys_partitions(name, dtype, device):
    expected = scipys(name, dtype)
    n = len(expected) + 1
    model = fit(points(name, dtype), 1, device=device)
    heights = expected[:, 2]
    for k in sorted({1, 2, 3, 5, n // 10, n // 3, n - 1, n} & set(range(1, n + 1))):
        labels = to_host(model.cut(k))
        assert labels.max() == k - 1
        assert (by_appearance(labels) == labels).all()
        if k in (1, n):
            continue
        below, above = heights[n - k - 1], heights[n - k]
        if below < above:  # otherwise another choice among equal heights is as good
            flat = hierarchy.fcluster(expected, below, "distance")
            np.testing.assert_array_equal(labels, by_appearance(flat))
            np.testing.assert_array_equal(to_host(model.cut(distance_threshold=above)), labels)


@pytest.mark.parametrize(
    "name", ["filaments", "few_big_clusters", "tight_clusters", "integer_grid", "images", "last_bit"]
)
def test_same_bits_whatever_the_neighbors_and_twice_in_a_row(name, device):
    X = points(name, "float32")
    expected = bits(fit(X, 5, device=device))
    for n_neighbors in (None, 1, 2, 5, 33):
        assert bits(fit(X, 5, n_neighbors=n_neighbors, device=device)) == expected


@pytest.mark.gpu
@BOTH_TYPES
@EVERY_CASE
def test_gpu_and_cpu_give_the_same_bits(name, dtype):
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    X = points(name, dtype)
    for n_neighbors in (1, None):
        on_gpu, on_cpu = (fit(X, 1, n_neighbors=n_neighbors, device=device) for device in ("cuda", "cpu"))
        assert bits(on_gpu) == bits(on_cpu)
        assert on_gpu.n_connected_components_ == on_cpu.n_connected_components_


@pytest.mark.gpu
def test_mnist_on_the_gpu():
    """60,000 images: the squared lengths of the tree are integers, known from several independent programs."""
    path = Path(os.environ.get("RAPIDS_SLINK_BENCH_DATA", "")) / "mnist.npz"
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    if not path.is_file():
        pytest.skip("RAPIDS_SLINK_BENCH_DATA names no folder with mnist.npz")
    X = np.load(path)["X"]
    assert X.shape == (60_000, 784)
    weight = to_host(fit(X, 10, metric="sqeuclidean", device="cuda").mst_["weight"].values)
    assert int(weight.sum()) == 75_925_569_788
    assert int(weight.max()) == 4_673_609


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "images", "offset_1e7", "last_bit", "decimal_grid", "three_rows"])
@BOTH_TYPES
def test_sqeuclidean_is_scipys(name, dtype, device):
    model = fit(points(name, dtype), 1, metric="sqeuclidean", n_neighbors=3, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], scipys(name, dtype, "sqeuclidean")[:, 2])


@pytest.mark.parametrize("n_neighbors", [7, 8, 9, 1000])
@pytest.mark.parametrize("d", [2, 12])
def test_as_many_neighbors_as_rows(d, n_neighbors, device):
    X = np.random.default_rng(d).normal(size=(8, d))
    model = fit(X, 2, n_neighbors=n_neighbors, device=device)
    np.testing.assert_array_equal(model.to_scipy(), hierarchy.linkage(X, "single"))
    assert model.n_connected_components_ == 1
    assert "connect" not in model.report_


# ------------------------------------------------------------------------------------------ the attributes


def test_attributes_for_an_array(device):
    X = blobs()
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
def test_kinds_of_the_gpu_come_back():
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    cudf, cupy = pytest.importorskip("cudf"), pytest.importorskip("cupy")
    X = blobs()
    expected = fit(X, 3, device="cpu")
    for device in ("auto", "cuda", "cpu"):
        model = fit(cudf.DataFrame(pd.DataFrame(X, columns=list("abc"), index=range(100, 160))), 3, device=device)
        assert isinstance(model.labels_, cudf.Series)
        assert model.labels_.index.to_pandas().tolist() == list(range(100, 160))
        assert isinstance(model.linkage_, cudf.DataFrame)
        assert isinstance(model.mst_, cudf.DataFrame)
        assert isinstance(model.children_, cupy.ndarray)
        assert isinstance(model.distances_, cupy.ndarray)
        assert bits(model) == bits(expected)
        model = fit(cupy.asarray(X), 3, device=device)
        assert isinstance(model.labels_, cupy.ndarray)
        assert isinstance(model.cut(2), cupy.ndarray)
        assert bits(model) == bits(expected)


def test_input_is_left_alone(device):
    X = blobs()
    before = X.copy()
    fit(X, 3, device=device)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("n_neighbors", [1, 2, 4])
@pytest.mark.parametrize("name", ["filaments", "few_big_clusters", "integer_grid", "tight_clusters", "three_rows"])
def test_connected_components_are_those_of_the_knn_graph(name, n_neighbors, device):
    X = points(name, "float64")[:1500]
    n, k = len(X), min(n_neighbors, len(X) - 1)
    apart = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1, kind="stable")[:, :k]
    graph = coo_array((np.ones(n * k), (np.repeat(np.arange(n), k), nearest.ravel())), shape=(n, n))
    model = fit(X, 1, n_neighbors=k, device=device)
    assert model.n_connected_components_ == connected_components(graph, directed=False)[0]


# -------------------------------------------------------------------------------------------------- cutting


@pytest.mark.parametrize("name", ["uneven_blobs_2d", "integer_grid", "few_big_clusters", "cauchy"])
def test_cutting_again_is_fitting_again(name, device):
    X = points(name, "float64")[:1500]
    model = fit(X, 2, device=device)
    before = bits(model)
    for k in (1, 7, len(X)):
        np.testing.assert_array_equal(model.cut(n_clusters=k), fit(X, k, device=device).labels_)
    t = float(np.median(model.distances_))
    other = fit(X, distance_threshold=t, device=device)
    np.testing.assert_array_equal(model.cut(distance_threshold=t), other.labels_)
    assert other.n_clusters_ == 1 + (model.distances_ >= t).sum()
    assert bits(model) == before  # a cut changes nothing


def test_threshold_does_not_merge_at_the_distance_itself(device):
    X = np.array([[0.0], [1.0], [3.0], [6.0]])
    model = fit(X, device=device)

    def cut(threshold):
        return model.cut(distance_threshold=threshold).tolist()

    assert cut(0.0) == cut(1.0) == [0, 1, 2, 3]
    assert cut(np.nextafter(1.0, 2.0)) == cut(2.0) == [0, 0, 1, 2]
    assert cut(3.0) == [0, 0, 0, 1]
    assert cut(3.5) == cut(np.inf) == [0, 0, 0, 0]


def test_exactly_as_many_clusters_as_asked_for_under_ties(device):
    X = np.arange(50.0)[:, None]
    for k in (1, 2, 17, 49, 50):
        labels = fit(X, k, device=device).labels_
        assert np.unique(labels).tolist() == list(range(k))


def test_two_clusters_unless_told_otherwise(device):
    X = blobs()
    assert fit(X, device=device).n_clusters_ == 2
    assert SingleLinkage(device=device).fit(X).n_clusters_ == 2
    assert fit(X, distance_threshold=15.0, device=device).n_clusters_ == 3


# ------------------------------------------------------------------------------------------------ the report


@pytest.mark.parametrize("n_neighbors", NEIGHBORS)
@pytest.mark.parametrize("name", ["filaments", "uneven_blobs_32d", "few_big_clusters", "integer_grid_10d", "star"])
def test_report_counts_every_edge_once(name, n_neighbors, device):
    X = points(name, "float64")
    model = fit(X, n_neighbors=n_neighbors, device=device)
    report = model.report_
    certified = report["spanning_tree"]["edges_certified_by_lists"]
    searched = report.get("connect", {}).get("edges_certified_by_search", 0)
    assert certified + searched == len(X) - 1
    # What the k-NN graph leaves apart no list can join.
    assert searched >= model.n_connected_components_ - 1
    assert certified >= 1
    if searched:
        assert 1 <= report["connect"]["rounds"] <= searched
        assert report["connect"].get("rows_searched", 0) + report["connect"].get("joined_at_once", 0) >= 1
    assert report["spanning_tree"]["rounds"] >= 1
    assert (report["device"], report["metric"]) == (device, "euclidean")
    assert report["spanning_tree"]["components_certified"] >= certified
    if "rows_certified" in report["neighbors"]:  # a tree has no filter
        rows = [report["neighbors"][f"rows_{what}"] for what in ("certified", "redone", "scanned_exactly")]
        assert rows == [0, 0, len(X)] or (rows[0] + rows[1] == len(X) and 0 <= rows[2] <= rows[1])


def test_few_large_components_are_joined_at_once():
    """Otherwise no hard case would have gone through it on a CPU (a GPU asks for larger ones)."""
    connect = fit(points("few_big_clusters", "float32"), device="cpu").report_["connect"]
    assert connect["joined_at_once"] == 1
    assert connect["pairs_kept"] >= 5


def test_report_times_every_stage(device):
    report = fit(points("few_big_clusters", "float64"), n_neighbors=2, device=device).report_
    seconds = report["seconds"]
    assert set(seconds) >= {"input", "neighbors", "spanning_tree", "connect", "linkage", "cut"}
    assert all(0 < value < 600 for value in seconds.values())
    text = str(report)
    for word in ("neighbors", "edges_certified_by_lists", str(report["spanning_tree"]["edges_certified_by_lists"])):
        assert word in text


def test_one_row(device):
    model = fit(np.array([[1.0, 2.0]]), 1, device=device)
    assert model.labels_.tolist() == [0]
    assert (len(model.linkage_), len(model.mst_)) == (0, 0)
    assert model.to_scipy().shape == (0, 4)
    assert model.children_.shape == (0, 2)
    assert (model.n_clusters_, model.n_leaves_, model.n_connected_components_) == (1, 1, 1)
    assert model.cut(distance_threshold=1.0).tolist() == [0]
    assert [str(dtype) for dtype in model.mst_.dtypes] == ["int32", "int32", "float64"]


# -------------------------------------------------------------------------------------------- scikit-learn


def test_parameters_as_scikit_learn_wants_them(device):
    parameters = {
        "n_clusters": None,
        "distance_threshold": 1.5,
        "metric": "minkowski",
        "p": 3.0,
        "n_neighbors": 4,
        "min_samples": 3,
        "device": device,
        "progress": True,
        "memory_limit": "1GiB",
    }
    model = SingleLinkage(**parameters)
    assert model.get_params() == parameters
    assert clone(model).get_params() == parameters
    assert not hasattr(clone(model.set_params(progress=False).fit(blobs())), "labels_")
    with pytest.raises(TypeError, match="positional argument"):
        SingleLinkage(2, None)


def test_fit_predict_and_fit_returns_itself(device):
    X = blobs()
    model = SingleLinkage(3, device=device)
    labels = model.fit_predict(X)
    assert model.fit(X) is model
    np.testing.assert_array_equal(labels, model.labels_)
    assert labels.tolist() == [0, 1, 2] * 20


def test_progress_bar_changes_nothing(device, capsys):
    X = points("few_big_clusters", "float32")
    quiet = fit(X, device=device)
    assert capsys.readouterr() == ("", "")
    shown = fit(X, device=device, progress=True)
    assert "neighbours" in capsys.readouterr().err
    assert bits(quiet) == bits(shown)


# -------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"metric": "cosin"}, ValueError, "metric must be one of 'euclidean', .*, got 'cosin'"),
        ({"n_clusters": 0}, ValueError, "n_clusters .*1.*60.*got 0"),
        ({"n_clusters": 61}, ValueError, "n_clusters .*1.*60.*got 61"),
        ({"n_clusters": -3}, ValueError, "n_clusters .*got -3"),
        ({"n_clusters": 1.5}, TypeError, "n_clusters must be an integer, got 1.5"),
        ({"n_clusters": "2"}, TypeError, "n_clusters must be an integer, got '2'"),
        ({"n_clusters": True}, TypeError, "n_clusters must be an integer, got True"),
        ({"n_clusters": 2, "distance_threshold": 1.0}, ValueError, "n_clusters.*distance_threshold"),
        ({"n_clusters": None}, ValueError, "n_clusters.*distance_threshold"),
        ({"n_clusters": None, "distance_threshold": np.nan}, ValueError, "distance_threshold.*NaN"),
        ({"n_clusters": None, "distance_threshold": "far"}, TypeError, "distance_threshold.*'far'"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": -1}, ValueError, "n_neighbors must be at least 1, got -1"),
        ({"n_neighbors": 2.5}, TypeError, "n_neighbors must be an integer, got 2.5"),
        ({"n_neighbors": True}, TypeError, "n_neighbors must be an integer, got True"),
        ({"n_neighbors": "8"}, TypeError, "n_neighbors must be an integer, got '8'"),
        ({"device": "tpu"}, ValueError, "device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
    ],
)
def test_bad_parameters(parameters, error, message, device):
    model = SingleLinkage(**{"device": device, **parameters})
    with pytest.raises(error, match=message):
        model.fit(blobs())
    assert not hasattr(model, "labels_")


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.array([[1.0, np.nan], [2.0, np.nan]]), ValueError, "column 1 has 2 NaN"),
        (np.array([[1.0, np.inf]]), ValueError, "column 1 has 1 infinity"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, 1.0]}), ValueError, "column 'b' has 1 NaN"),
        (pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}), TypeError, "column 'name'"),
        (np.empty((0, 3)), ValueError, r"0 sample\(s\)"),
        (np.empty((3, 0)), ValueError, r"0 feature\(s\)"),
        (np.arange(5.0), ValueError, "Expected 2D array, got 1D array"),
        (np.ones((2, 2), complex), TypeError, "[Cc]omplex"),
    ],
)
def test_bad_input(X, error, message, device):
    with pytest.raises(error, match=message):
        fit(X, 1, device=device)


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


def test_complete_linkage_is_refused():
    with pytest.raises(TypeError, match="linkage"):
        SingleLinkage(linkage="complete")


@pytest.mark.parametrize("value", [0.0, 1e300, 1e308, -1e308])
def test_constant_columns_of_any_size(value, device):
    """Distances are zero or one, however large the constant next to them is."""
    X = np.full((300, 12), value)
    X[:, 4] = np.arange(300.0)[::-1]
    assert (fit(X, device=device).distances_ == 1.0).all()


def test_default_neighbors_are_the_documented_ones(device):
    X = points("uneven_blobs_2d", "float64")
    named = fit(X, n_neighbors=DEFAULT_NEIGHBORS, device=device)
    assert fit(X, device=device).n_connected_components_ == named.n_connected_components_
    assert fit(X, n_neighbors=1, device=device).n_connected_components_ > named.n_connected_components_


@pytest.mark.gpu
def test_arrays_of_the_host_on_the_gpu_in_a_new_process():
    """Nothing has imported cuDF before: importing it sets CuPy's allocator."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    script = """
import numpy as np, rapids_slink
X = np.random.default_rng(0).normal(size=(500, 9))
assert rapids_slink.fit(X, 3, device="cuda").labels_.max() == 2
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

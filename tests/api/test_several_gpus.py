"""The current GPU serves a call, wherever its inputs are."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fake_gpu import FakeGpu, fake_gpu

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage
from rapids_slink.points import as_distances, as_points
from rapids_slink.points.check import check_weights
from rapids_slink.points.output import OutputKind, on_host
from rapids_slink.runtime.cuda import check_arrays, launch
from rapids_slink.runtime.device import cuda, is_on_gpu, on_current_gpu

RNG = np.random.default_rng(0)
FEW, MANY = RNG.normal(size=(300, 3)), RNG.normal(size=(20_000, 24)).astype(np.float32)


@pytest.fixture
def two_gpus():
    """Two that compute nothing; the first is current. Yields a maker of arrays on the second."""
    with fake_gpu(count=2) as gpu:

        def there(values):
            with cuda().xp.cuda.Device(1):
                return cuda().xp.array(values)

        yield SimpleNamespace(there=there, gpu=gpu)


def test_kernels_refuse_arrays_of_another_gpu(two_gpus):
    here, there = cuda().xp.zeros(5, "int32"), two_gpus.there(np.zeros(5, np.int32))
    check_arrays("int32", here, None)
    with pytest.raises(ValueError, match="a kernel of GPU 0 got an array of GPU 1"):
        check_arrays("int32", here, None, there)
    launch("spanning_tree/forest.cu", "count_roots", 5, np.int64(5), here, here)
    with pytest.raises(ValueError, match="a kernel of GPU 0 got an array of GPU 1"):
        launch("spanning_tree/forest.cu", "count_roots", 5, np.int64(5), here, there)
    with cuda().xp.cuda.Device(1):
        check_arrays("int32", there)
        launch("spanning_tree/forest.cu", "count_roots", 5, np.int64(5), there, None)
    assert len(two_gpus.gpu.launches) == 2


@pytest.mark.parametrize("values", [FEW, FEW[::2, 1:], np.asfortranarray(FEW), FEW.astype(np.int16)])
def test_arrays_are_copied_to_the_current_gpu(values, two_gpus):
    X = two_gpus.there(values)
    for copied in (cuda().asarray(X), on_current_gpu(X), as_points(X, cuda()).values):
        assert copied.gpu == FakeGpu.current == 0
        np.testing.assert_array_equal(copied, values)
    with cuda().xp.cuda.Device(1):
        assert cuda().asarray(X) is on_current_gpu(X) is X
        assert as_points(X, cuda()).values.gpu == FakeGpu.current == 1


def test_an_array_of_the_current_gpu_is_not_copied(two_gpus):
    X = cuda().xp.array(FEW)
    assert as_points(X, cuda()).values is X


def test_weights_and_distances_are_copied(two_gpus):
    matrix = np.abs(FEW[:, :1] - FEW[:, 0])
    assert as_distances(two_gpus.there(matrix), cuda())[0].values.gpu == 0
    assert as_distances(two_gpus.there(matrix[np.triu_indices(300, 1)]), cuda())[0].values.gpu == 0
    assert check_weights(two_gpus.there(np.ones(300)), 300, cuda()).gpu == 0


def test_copies_count_as_memory(two_gpus):
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rapids_slink.points.check_memory", lambda device, estimate, what: asked.append(estimate.peak))
        as_points(cuda().xp.array(FEW), cuda())
        as_points(two_gpus.there(FEW), cuda())
    assert asked == [FEW.nbytes]


class DataFrame:
    """As cuDF's: its parts tell where it is, and those of its pickle are made on the current GPU."""

    __module__ = "cudf.core.dataframe"

    def __init__(self, values):
        self.part = cuda().xp.array(values)

    def device_serialize(self):
        return {}, [np.zeros(0), self.part]

    def __reduce__(self):
        assert self.part.gpu == FakeGpu.current
        return new_frame, (self.part.get(),)


def new_frame(values):
    return DataFrame(values)


def test_frames_are_copied_to_the_current_gpu(two_gpus):
    frame = DataFrame(FEW)
    assert OutputKind.of(frame, cuda())[0] is frame
    with cuda().xp.cuda.Device(1):
        there = DataFrame(FEW)
    moved, _ = OutputKind.of(there, cuda())
    assert moved.part.gpu == FakeGpu.current == 0
    np.testing.assert_array_equal(moved.part, FEW)


@pytest.fixture
def second():
    """The GPU that is not current, and a check that the other stays so."""
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    assert cupy.cuda.runtime.getDevice() == 0
    yield cupy.cuda.Device(1)
    assert cupy.cuda.runtime.getDevice() == 0


def gpu_of(result):
    """The GPU that holds an array or a column of a frame, None for the host."""
    import cupy

    if not is_on_gpu(result):
        return None
    return cupy.cuda.runtime.pointerGetAttributes(result.__cuda_array_interface__["data"][0]).device


def as_torch(X):
    return pytest.importorskip("torch").from_numpy(X).to("cuda:1")


def as_numba(X):
    """What has ``__cuda_array_interface__`` and no more."""
    import cupy

    array = cupy.asarray(X)
    return SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__, array=array)


def as_frame(X):
    import cudf

    return cudf.DataFrame(X, index=cudf.Index([f"row {i}" for i in range(len(X))]))


def as_array(X):
    import cupy

    return cupy.asarray(X)


def as_view(X):
    """Every second column and row of an array."""
    import cupy

    wide = cupy.zeros((2 * len(X), 2 * X.shape[1]), X.dtype)
    wide[::2, ::2] = cupy.asarray(X)
    return wide[::2, ::2]


KINDS = pytest.mark.parametrize("kind", [as_array, as_view, as_frame, as_torch, as_numba])


@pytest.mark.gpu
@KINDS
@pytest.mark.parametrize("X", [FEW, MANY], ids=["few features", "many rows"])
def test_fit_of_rows_elsewhere(X, kind, second):
    expected = SingleLinkage(n_clusters=5, device="cpu").fit(X)
    with second:
        given = kind(X)
    model = SingleLinkage(n_clusters=5, device="cuda").fit(given)
    for name in ("linkage_", "mst_"):
        frame = getattr(model, name)
        assert gpu_of(frame[frame.columns[0]]) == 0
        pd.testing.assert_frame_equal(frame.to_pandas(), getattr(expected, name))
    assert gpu_of(model.labels_) == 0
    if kind is as_frame:
        assert model.labels_.index.to_pandas().tolist() == [f"row {i}" for i in range(len(X))]


@pytest.mark.gpu
def test_fit_on_the_second_gpu(second):
    """By the rows of either GPU and of the host; afterwards the model answers on the first."""
    expected = SingleLinkage(n_clusters=5, prediction_data=True, device="cpu").fit(MANY)
    here = as_array(MANY)
    with second:
        for given, gpu in ((MANY, None), (here, 1), (as_array(MANY), 1)):
            model = SingleLinkage(n_clusters=5, prediction_data=True, device="cuda").fit(given)
            assert gpu_of(model.linkage_["height"]) == gpu
            pd.testing.assert_frame_equal(on_host(model.linkage_), expected.linkage_)
    labels = model.predict(as_array(MANY[:50]))
    assert gpu_of(labels) == 0
    np.testing.assert_array_equal(on_host(labels), expected.predict(MANY[:50]))
    for answer in (lambda of: of.cut(7), lambda of: of.children_, lambda of: of.distances_):
        assert gpu_of(answer(model)) == 0
        np.testing.assert_array_equal(on_host(answer(model)), answer(expected))
    np.testing.assert_array_equal(model.to_scipy(), expected.to_scipy())
    appended = model.append(as_array(MANY[:50] + 1))
    pd.testing.assert_frame_equal(appended.linkage_.to_pandas(), expected.append(MANY[:50] + 1).linkage_)


@pytest.mark.gpu
def test_hdbscan_of_frames_elsewhere(second):
    """The model, too, is on the other GPU."""
    parameters = {"min_cluster_size": 5, "min_samples": 3, "prediction_data": True}
    frame = pd.DataFrame(FEW, columns=["a", "b", "c"])
    expected = HDBSCAN(**parameters, device="cpu").fit(frame)
    with second:
        given = as_frame(FEW)
        given.columns = frame.columns.tolist()
        model, queries = HDBSCAN(**parameters, device="cuda").fit(given), given[::-1]
    assert gpu_of(model.labels_) == 1
    labels, probabilities = model.approximate_predict(queries)
    expected_labels, expected_probabilities = expected.approximate_predict(frame[::-1])
    assert gpu_of(labels) == 0
    np.testing.assert_array_equal(on_host(labels), expected_labels)
    np.testing.assert_array_equal(on_host(probabilities), expected_probabilities)
    for rows, expected_rows in zip(model.exemplars_, expected.exemplars_, strict=True):
        np.testing.assert_array_equal(on_host(rows), expected_rows)
    pd.testing.assert_frame_equal(model.condensed_tree_.to_pandas(), expected.condensed_tree_.to_pandas())


@pytest.mark.gpu
@KINDS
def test_stages_of_rows_elsewhere(kind, second):
    with second:
        given, queries = kind(MANY), kind(MANY[:100] + np.float32(0.1))
    here = as_array(MANY)
    for X, Y in ((queries, given), (queries, here), (here[:100], given)):
        found = rapids_slink.nearest_neighbors(X, Y)
        host = MANY[:100] + np.float32(0.1) if X is queries else MANY[:100]
        pd.testing.assert_frame_equal(found.to_pandas(), rapids_slink.nearest_neighbors(host, MANY))
    graph = rapids_slink.knn_graph(given, 4)
    assert gpu_of(graph["weight"]) == 0
    pd.testing.assert_frame_equal(graph.to_pandas(), rapids_slink.knn_graph(MANY, 4, device="cpu"))


def weighted_graph():
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 2000, (2, 20_000))
    return pd.DataFrame({"src": src, "dst": dst, "weight": rng.random(20_000)})


@pytest.mark.gpu
@pytest.mark.parametrize("names", [False, True])
def test_graphs_elsewhere(names, second):
    import cudf

    edges = weighted_graph()
    if names:
        edges = edges.astype({"src": str, "dst": str})
    with second:
        given = cudf.from_pandas(edges)
    found = on_host(rapids_slink.minimum_spanning_tree(given))
    assert found.index.tolist() == rapids_slink.minimum_spanning_tree(edges, device="cpu").index.tolist()
    found, expected = rapids_slink.fit_graph(given), rapids_slink.fit_graph(edges, device="cpu")
    np.testing.assert_array_equal(on_host(found.linkage_), expected.linkage_)
    assert on_host(found.labels_).index.tolist() == expected.labels_.index.tolist()


@pytest.mark.gpu
def test_trees_and_merges_elsewhere(second):
    import cudf

    tree = SingleLinkage(n_clusters=2, device="cpu").fit(FEW).mst_
    merges = rapids_slink.linkage(tree, device="cpu")
    with second:
        given = cudf.from_pandas(tree), cudf.from_pandas(merges)
    pd.testing.assert_frame_equal(on_host(rapids_slink.linkage(given[0])), merges)
    found = on_host(rapids_slink.cut(given[1], n_clusters=[5, 50]))
    pd.testing.assert_frame_equal(found, rapids_slink.cut(merges, n_clusters=[5, 50]))


@pytest.mark.gpu
def test_sparse_matrices_elsewhere(second):
    sparse = pytest.importorskip("scipy.sparse")
    of_gpu = pytest.importorskip("cupyx.scipy.sparse")
    edges = weighted_graph()
    matrix = sparse.coo_matrix((edges["weight"], (edges["src"], edges["dst"])), shape=(2000, 2000)).tocsr()
    with second:
        given = of_gpu.csr_matrix(matrix)
    found, expected = rapids_slink.minimum_spanning_tree(given), rapids_slink.minimum_spanning_tree(matrix)
    np.testing.assert_array_equal(found.toarray().get(), expected.toarray())


@pytest.mark.gpu
def test_distances_and_weights_elsewhere(second):
    distances = np.sqrt(((FEW[:, None] - FEW) ** 2).sum(axis=2))
    condensed, weights = distances[np.triu_indices(len(FEW), 1)], RNG.integers(1, 4, len(FEW)).astype(float)
    expected = SingleLinkage(n_clusters=4, metric="precomputed", device="cpu").fit(distances)
    with second:
        given = as_array(distances), as_array(condensed), as_view(distances)
        counts = as_array(weights)
    for X in given:
        model = SingleLinkage(n_clusters=4, metric="precomputed", device="cuda").fit(X)
        pd.testing.assert_frame_equal(model.linkage_.to_pandas(), expected.linkage_)
    sized = {"n_clusters": 9, "min_cluster_size": 5}
    found = model.cut(**sized, sample_weight=counts)
    np.testing.assert_array_equal(on_host(found), expected.cut(**sized, sample_weight=weights))
    found = HDBSCAN(device="cuda").fit(as_array(FEW), sample_weight=counts).labels_
    np.testing.assert_array_equal(on_host(found), HDBSCAN(device="cpu").fit(FEW, sample_weight=weights).labels_)


@pytest.mark.gpu
def test_connect_of_graphs_elsewhere(second):
    import cudf

    graph = rapids_slink.knn_graph(MANY, 4, device="cpu")
    with second:
        given, X = cudf.from_pandas(graph), as_array(MANY)
    found = rapids_slink.connect(given, X)
    pd.testing.assert_frame_equal(found.to_pandas(), rapids_slink.connect(graph, MANY, device="cpu"))

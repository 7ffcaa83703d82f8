"""Sparse rows against dense ones, and against plain float64 sums in the same order."""

import numpy as np
import pandas as pd
import pytest
from item_cases import EVERY_SPARSE_METRIC, all_ends, rows, table
from scipy import sparse

import rapids_slink
from rapids_slink import SingleLinkage
from rapids_slink.items import search
from rapids_slink.items.stored import SparseRows
from rapids_slink.metrics import get_metric
from rapids_slink.runtime.device import CPU, cuda, to_host


def of_rows(X, metric):
    return SparseRows.read({"X": sparse.csr_matrix(X)}, get_metric(metric), CPU)


def ends(n):
    return (end.astype(np.int32) for end in np.triu_indices(n, 1))


@EVERY_SPARSE_METRIC
def test_distances_are_plain_sums(metric):
    """A CPU searches in a row that has many more entries for those of the others."""
    uneven = rows(30, 401, 0.01, seed=2)
    uneven[3], uneven[7, 397:] = np.random.default_rng(0).normal(size=401), 1
    src, dst = all_ends(30)
    for X in (uneven, *(rows(30, d, 0.4, seed=d) for d in (1, 2, 7, 40))):
        np.testing.assert_array_equal(of_rows(X, metric).distances(src, dst), table(metric, X)[src, dst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 7, 40, 301])
@EVERY_SPARSE_METRIC
def test_the_matrix_of_all_distances(metric, d, dtype):
    """By euclidean it has bounds from below, and squared distances are above theirs by little."""
    for kind, scale in ((np.int32, 1), (np.int64, 1e-160 if dtype == np.float64 else 1e-30)):
        X = sparse.csr_matrix(rows(90, d, 0.2, seed=d, dtype=dtype) * dtype(scale))
        X.indices, X.indptr = X.indices.astype(kind), X.indptr.astype(kind)
        if metric == "cosine" and scale == 1e-160:
            continue
        made = of_rows(X, metric)
        src, dst = all_ends(90)
        matrix, error, expected = search.all_distances(made), made.errors, made.distances(src, dst)
        matrix = matrix.ravel()
        if metric == "cosine":
            assert error is None
            np.testing.assert_array_equal(matrix, expected)
            continue
        assert (matrix <= expected).all()
        assert (expected**2 <= matrix**2 + error[src]).all()
        assert error.max() <= 1e-12 * (expected**2).max() + 1e-318


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("kind", ["integers", "far from the origin", "copies"])
def test_trees_of_bounds_are_those_of_all_distances(kind, samples, prescribe):
    """Many distances are equal, or far smaller than the rows, or many rows are equal."""
    rng = np.random.default_rng(7)
    X = np.where(rng.random((150, 40)) < 0.2, rng.integers(1, 4, (150, 40)), 0).astype(float)
    if kind == "far from the origin":
        X[:, 0] = 1e6 + 1e-3 * rng.random(150)
    if kind == "copies":
        X[100:] = X[rng.integers(0, 30, 50)]
    models = []
    for way in ("projections", "distances"):
        prescribe(items=way)
        model = SingleLinkage(150, metric="euclidean", min_samples=samples, device="cpu")
        models.append(model.fit(sparse.csr_matrix(X)))
    assert models[0].report_["neighbors"]["rows_scanned_exactly"] >= 99
    assert "rows_scanned_exactly" not in models[1].report_["neighbors"]
    pd.testing.assert_frame_equal(models[0].mst_, models[1].mst_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 64, 301])
@EVERY_SPARSE_METRIC
def test_distances_are_those_of_dense_rows(metric, d, dtype):
    X = rows(80, d, seed=d, dtype=dtype)
    src, dst = ends(len(X))
    dense = rapids_slink.pairs(X, max_distance=1e6, metric=metric, device="cpu")["weight"].to_numpy()
    equal = (X[src] == X[dst]).all(axis=1)
    assert equal.any()
    np.testing.assert_array_equal(of_rows(X, metric).equal(src, dst), equal)
    assert dense[equal].max() <= 4.5e-16
    np.testing.assert_array_equal(of_rows(X, metric).distances(src, dst), np.where(equal, 0, dense))


@pytest.mark.parametrize("way", ["distances", "projections"])
@EVERY_SPARSE_METRIC
def test_squares_next_to_zero(metric, way, prescribe):
    """Their roundings are as large as the gaps between distances."""
    prescribe(items=way)
    X = np.round(np.random.default_rng(0).normal(size=(90, 200)) * 2) * 1e-160
    found = rapids_slink.pairs(X, max_distance=2, metric=metric, device="cpu")
    limit = found["weight"].median()
    within = rapids_slink.pairs(sparse.csr_matrix(X), max_distance=limit, metric=metric, device="cpu")
    pd.testing.assert_frame_equal(within, found[found["weight"] <= limit].reset_index(drop=True))


@pytest.mark.parametrize(
    ("metric", "scale"), [("cosine", 1e-3), ("cosine", 1e100), *(("euclidean", 10.0**e) for e in (-300, -150, 0, 100))]
)
@pytest.mark.parametrize("n_axes", [4, 32, 2000])
def test_dense_rows_are_no_farther_than_the_bound(metric, n_axes, scale):
    X = rows(100, 300, seed=5)
    X = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    made = of_rows(X * scale, metric)
    src, dst = ends(len(X))
    exact = made.distances(src, dst)
    values = made.dense_rows(n_axes, made._scale())
    assert values.dtype == np.float32
    squares = ((values[src].astype(float) - values[dst]) ** 2).sum(axis=1)
    for distance in np.quantile(exact, [0, 0.01, 0.5, 1]):
        within = exact <= distance
        assert (squares[within] <= made._bound(distance, values.shape[1], made._scale())).all()
    if n_axes == 2000:  # columns for all: as near as float32 tells
        far = np.quantile(exact, 0.5)
        assert (squares[exact > 1.01 * far] > made._bound(far, values.shape[1], made._scale())).all()


def test_few_pairs_of_texts_pass_that_are_not_near():
    rng = np.random.default_rng(0)
    X = np.zeros((300, 8000))
    for row in X:
        words = np.minimum(rng.zipf(1.3, 150), 8000) - 1
        np.add.at(row, words, 1)
    X *= np.log(301 / (1 + (X > 0).sum(axis=0)))
    X = X[X.any(axis=1)]
    made = of_rows(X, "cosine")
    src, dst = ends(len(X))
    projection = made.projection(0.3)
    squares = ((projection.values[src].astype(float) - projection.values[dst]) ** 2).sum(axis=1)
    passes = (squares <= projection.surrogate_bound).sum() - (made.distances(src, dst) <= 0.3).sum()
    assert 0 <= passes < 0.01 * src.size


def test_types_of_input():
    X = np.round(rows(40, 20, seed=6), 1) * 10
    expected = rapids_slink.pairs(sparse.csr_matrix(X), max_distance=30, device="cpu")
    stored = sparse.coo_matrix(X)
    at = np.r_[stored.row, stored.row, 3], np.r_[stored.col, stored.col, 5]
    twice = sparse.coo_matrix((np.r_[stored.data - 1, np.ones(stored.nnz), 0], at), X.shape)
    by_rows = twice.tocsr()
    unsorted = sparse.csr_matrix(X)
    for row in range(len(X)):
        part = slice(*unsorted.indptr[row : row + 2])
        for values in (unsorted.data, unsorted.indices):
            values[part] = values[part][::-1].copy()
    unsorted.has_sorted_indices = unsorted.has_canonical_format = False
    before = unsorted.indices.copy()
    for given in (stored, twice, by_rows, unsorted, sparse.csc_array(X), sparse.csr_matrix(X).astype(np.int16)):
        pd.testing.assert_frame_equal(rapids_slink.pairs(given, max_distance=30, device="cpu"), expected)
    np.testing.assert_array_equal(unsorted.indices, before)


def test_wide_matrices():
    wide = sparse.csr_matrix((np.ones(4), np.array([2**40, 7, 2**40, 8]), np.array([0, 1, 2, 4])), (3, 2**41 + 1))
    found = rapids_slink.pairs(wide, max_distance=1.5, device="cpu")
    np.testing.assert_array_equal(found["weight"], [np.sqrt(2), 1])
    assert SparseRows.read({"X": wide}, get_metric("euclidean"), CPU).projection(1.0).values.shape == (3, 3)


def test_rows_of_zeros():
    X = sparse.csr_matrix([[0, 0], [3, 4], [0, 0]])
    assert rapids_slink.fit(X, 1, device="cpu").distances_.tolist() == [0, 5]
    with pytest.raises(ValueError, match="row 0 of X has no cosine distance: its squares sum to zero"):
        rapids_slink.fit(X, 1, metric="cosine", device="cpu")
    with pytest.raises(ValueError, match="row 1 of Y has no cosine distance: its squares sum to zero"):
        rapids_slink.pairs(X[1:2], X[1:], max_distance=1, metric="cosine", device="cpu")
    assert rapids_slink.fit(sparse.csr_matrix((3, 4)), 1, device="cpu").distances_.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("X", "metric", "words"),
    [
        ([[1.0, np.nan]], "cosine", "row 0 of X has the value nan, which is not finite"),
        ([[1.0, 0.0], [0.0, -np.inf]], "euclidean", "row 1 of X has the value -inf, which is not finite"),
        ([[1, 0], [0, 1e200]], "euclidean", r"euclidean distances may overflow float64: row 1 of X has .* 1e\+200"),
        ([[1e-200, 0.0], [0.0, 1.0]], "cosine", "row 0 of X has no cosine distance: its squares sum to zero"),
        ([[1j]], "cosine", "Complex data not supported"),
        (np.empty((0, 2)), "cosine", "0 sample"),
    ],
)
def test_what_is_refused(X, metric, words):
    with pytest.raises(ValueError, match=words):
        rapids_slink.fit(sparse.csr_matrix(X), 1, metric=metric, device="cpu")


def test_graphs_are_no_rows():
    """A sparse matrix may be one."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    graph = rapids_slink.to_csr(rapids_slink.pairs(X, max_distance=1.0, device="cpu"), len(X))
    assert rapids_slink.fit_graph(graph, device="cpu").n_leaves_ == len(X)
    assert rapids_slink.minimum_spanning_tree(graph, device="cpu").shape == graph.shape
    with pytest.raises(ValueError, match="connect is of rows of features, and sets and sparse rows are none"):
        rapids_slink.connect(rapids_slink.knn_graph(X, 2, device="cpu"), graph, device="cpu")
    with pytest.raises(TypeError, match="graph must be a DataFrame with columns src, dst, weight"):
        rapids_slink.connect(graph, X, device="cpu")


def test_models_of_dense_rows_take_no_matrix():
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = rapids_slink.SingleLinkage(2, prediction_data=True, device="cpu").fit(X)
    for call in (model.append, model.predict):
        with pytest.raises(TypeError, match=r"Sparse input is not supported: pass X\.toarray\(\)"):
            call(sparse.csr_matrix(X))


def test_a_dense_array_beside_a_matrix_is_refused():
    X = sparse.eye(3, format="csr")
    with pytest.raises(TypeError, match="Y must be a sparse matrix as the other rows are, got ndarray"):
        rapids_slink.pairs(X, X.toarray(), max_distance=1, device="cpu")
    with pytest.raises(ValueError, match="X and Y must have the same number of features, got 3 and 4"):
        rapids_slink.pairs(X, sparse.eye(4), max_distance=1, device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("d", "dtype", "kind"), [(40, np.float32, np.int32), (301, np.float64, np.int64)])
@EVERY_SPARSE_METRIC
def test_all_distances_on_a_gpu(metric, d, dtype, kind):
    X = sparse.csr_matrix(rows(3500, d, 0.1, seed=d, dtype=dtype))
    X.indices, X.indptr = X.indices.astype(kind), X.indptr.astype(kind)
    on_cpu, on_gpu = (SparseRows.read({"X": X}, get_metric(metric), where) for where in (CPU, cuda()))
    np.testing.assert_array_equal(to_host(search.all_distances(on_gpu)), search.all_distances(on_cpu))

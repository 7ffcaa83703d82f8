"""Distances that are given, as a matrix or a vector, against SciPy on the same numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, cases
from oracles import core_distances, heights_of, mutual_reachability
from scipy.cluster.hierarchy import ClusterWarning, linkage
from scipy.spatial.distance import pdist, squareform

import rapids_slink
from rapids_slink.runtime.device import to_host


def fit(X, **parameters):
    return rapids_slink.fit(X, metric="precomputed", **parameters)


@pytest.mark.parametrize("name", cases())
def test_heights_are_scipys(name, engine):
    X = CASES[name]("float64")[:400]
    if len(X) < 2:
        return
    condensed = pdist(X)
    matrix = squareform(condensed)
    given = [condensed, matrix, matrix.astype(np.float32)] if condensed.max() < 1e38 else [condensed, matrix]
    for distances in given:
        expected = linkage(condensed, "single")[:, 2] if distances.ndim == 1 else heights_of(distances.astype(float))
        for n_neighbors in (None, 1, 3):
            model = fit(engine.asarray(distances), n_neighbors=n_neighbors, device=engine.name)
            np.testing.assert_array_equal(to_host(model.distances_), expected)
    assert model.n_features_in_ == model.n_leaves_ == len(X)


@pytest.mark.parametrize("n", [16, 100])
def test_the_lower_triangle_is_warned_of(n, engine):
    """By its triangles; not where the rows of the upper triangle break the inequality, or both keep it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 3))[rng.integers(0, 5, n)] + rng.normal(0, 0.1, (n, 3))
    condensed = pdist(X)
    lower = squareform(condensed)[np.tril_indices(n, -1)]
    with pytest.warns(UserWarning, match=rf"which RDKit makes.* D = numpy\.zeros\(\({n}, {n}\)\)"):
        fit(engine.asarray(lower), device=engine.name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*RDKit")
        noise = pdist(rng.normal(size=(n, 500)))
        for other in (condensed, condensed**2, pdist(X, "cosine"), noise, squareform(noise)[np.tril_indices(n, -1)]):
            fit(engine.asarray(other), device=engine.name)


def test_ties_go_by_ids(engine):
    distances = np.random.default_rng(0).integers(1, 4, 60 * 59 // 2).astype(np.float32)
    u, v = np.triu_indices(60, 1)
    order = np.lexsort((v, u, distances))
    graph = pd.DataFrame({"src": u[order], "dst": v[order], "weight": distances[order]})
    expected = rapids_slink.minimum_spanning_tree(graph, device="cpu")
    tree = fit(engine.asarray(distances), device=engine.name).mst_
    np.testing.assert_array_equal(tree[["src", "dst", "weight"]].to_numpy(), expected.to_numpy())


def test_mutual_reachability(engine):
    X = np.random.default_rng(0).normal(size=(300, 3))
    matrix = squareform(pdist(X))
    expected = heights_of(mutual_reachability(matrix, core_distances(matrix, 4)))
    model = fit(engine.asarray(matrix), min_samples=4, device=engine.name)
    np.testing.assert_array_equal(to_host(model.distances_), expected)


@pytest.mark.parametrize(
    "kind", ["list", "tuple", "polars", "arrow", "pandas", pytest.param("cudf", marks=pytest.mark.gpu)]
)
def test_condensed_vectors_of_other_kinds(kind, device):
    condensed = pdist(np.array([[0.0], [1], [10], [12]]))
    make = {
        "list": np.ndarray.tolist,
        "tuple": lambda values: tuple(values.tolist()),
        "polars": lambda values: pytest.importorskip("polars").Series(values),
        "arrow": lambda values: pytest.importorskip("pyarrow").chunked_array([values]),
    }.get(kind, lambda values: pytest.importorskip(kind).Series(values, index=range(6, 0, -1)))
    model = fit(make(condensed), n_clusters=2, device=device)
    assert isinstance(model.labels_, np.ndarray) is (kind != "cudf")
    assert model.labels_.tolist() == [0, 0, 1, 1]
    assert model.distances_.tolist() == [1, 2, 9]
    assert fit(squareform(condensed).tolist(), n_clusters=2, device=device).distances_.tolist() == [1, 2, 9]


def test_frame_keeps_its_index():
    names = list("abcd")
    matrix = pd.DataFrame(squareform(pdist(np.array([[0.0], [1], [10], [11]]))), index=names, columns=names)
    labels = fit(matrix, n_clusters=2, device="cpu").labels_
    pd.testing.assert_series_equal(labels, pd.Series([0, 0, 1, 1], names, dtype="int32", name="label"))


def test_rounding_is_not_asymmetry(engine):
    """As scikit-learn's pairwise_distances leaves it: the upper triangle counts, as SciPy's squareform has it."""
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(300, 3))))
    noisy = matrix * (1 + 1e-15 * np.random.default_rng(1).integers(-2, 3, matrix.shape))
    given = engine.asarray(noisy)
    found = fit(given, n_neighbors=2, device=engine.name)
    np.testing.assert_array_equal(to_host(found.distances_), heights_of(noisy))
    np.testing.assert_array_equal(to_host(given), noisy)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_on_the_diagonal(engine, dtype):
    """As `1 - cosine_similarity(X)` and `1 - np.corrcoef(X)` leave it."""
    X = np.random.default_rng(0).normal(size=(50, 9)).astype(dtype)
    for similarity in (X @ X.T / np.outer(*2 * [np.linalg.norm(X, axis=1)]), np.corrcoef(X).astype(dtype)):
        matrix = 1 - similarity
        matrix.flat[:: len(X) + 1] -= np.finfo(dtype).eps
        for min_samples in (None, 3):
            found = fit(engine.asarray(matrix), min_samples=min_samples, device=engine.name)
            np.fill_diagonal(matrix, 0)
            expected = fit(engine.asarray(matrix), min_samples=min_samples, device=engine.name)
            np.testing.assert_array_equal(to_host(found.distances_), to_host(expected.distances_))


def test_negative_dissimilarities_and_one_row():
    matrix = np.array([[0.0, -2, 1], [-2, 0, 3], [1, 3, 0]])
    np.testing.assert_array_equal(fit(matrix, device="cpu").distances_, [-2, 1])
    assert fit(np.zeros((1, 1)), n_clusters=1, device="cpu").labels_.tolist() == [0]


def test_infinity_is_no_distance(engine):
    """As a condensed vector, a square matrix and a frame: the forest of the finite distances."""
    X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9], [0, 9]], 20, axis=0)
    matrix = squareform(pdist(X))
    matrix[np.arange(60)[:, None] // 20 != np.arange(60) // 20] = np.inf
    u, v = np.triu_indices(60, 1)
    pairs = pd.DataFrame({"src": u, "dst": v, "weight": matrix[u, v]}).query("weight < inf").reset_index(drop=True)
    graph = rapids_slink.fit_graph(pairs, device="cpu")
    for distances in (matrix, squareform(matrix), matrix.astype(np.float32)):
        model = fit(engine.asarray(distances), n_clusters=3, device=engine.name)
        if distances.dtype == np.float64:
            np.testing.assert_array_equal(to_host(model.distances_), graph.distances_)
            np.testing.assert_array_equal(model.mst_[["src", "dst"]].to_numpy(), graph.mst_[["src", "dst"]].to_numpy())
        assert to_host(model.labels_).tolist() == np.repeat([0, 1, 2], 20).tolist()
        assert (model.n_connected_components_, len(model.linkage_), model.n_leaves_) == (3, 57, 60)
        assert len(set(to_host(model.cut(5)).tolist())) == 5
    named = pd.DataFrame(matrix, [f"row {i}" for i in range(60)])
    assert fit(named, n_clusters=3, device=engine.name).labels_["row 45"] == 2
    with pytest.raises(ValueError, match=r"n_clusters must be from 3 to 60, .* 3 components, which nothing joins"):
        fit(engine.asarray(matrix), n_clusters=2, device=engine.name)
    with pytest.raises(ValueError, match="linkage of a forest"):
        model.to_scipy()


def test_rounding_beside_infinity(engine):
    matrix = changed(280, 3, np.inf)
    matrix[3, 280], matrix[5, 5] = np.inf, 1e-9
    matrix[9, 4] *= 1 + 1e-15
    model = fit(engine.asarray(matrix), device=engine.name)
    assert model.n_connected_components_ == 1
    assert to_host(model.distances_)[0] == 1


def changed(row, column, value):
    matrix = squareform(np.arange(1.0, 300 * 299 // 2 + 1))
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (changed(280, 3, 7.5), r"symmetric, but the distance of rows 3 and 280 is 1171\.0 and .* 280 and 3 is 7\.5"),
        (changed(280, 3, np.inf), r"symmetric, but the distance of rows 3 and 280 is 1171\.0 and .* 280 and 3 is inf"),
        (changed(280, 3, -np.inf), "distance of rows 280 and 3 is -inf: X must hold numbers, or infinity"),
        (changed(2, 299, np.nan), "distance of rows 2 and 299 is nan"),
        (changed(299, 299, 1), "row 299 to itself is 1.0, not zero"),
        (np.zeros((3, 4)), r"square matrix or a condensed vector, got shape \(3, 4\)"),
        (np.ones(4), r"n\(n - 1\)/2 entries for some n, got 4"),
        (np.array([1.0, np.nan, 2]), "distance of rows 0 and 2 is nan"),
    ],
)
def test_what_is_no_distance_matrix(X, message, engine):
    with pytest.raises(ValueError, match=message):
        fit(engine.asarray(X), device=engine.name)


SQUARE = squareform(pdist(np.random.default_rng(0).normal(size=(300, 3))))


def square_with(row, column, value):
    matrix = SQUARE.copy()
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", [rapids_slink.SingleLinkage(2), rapids_slink.HDBSCAN(3)], ids=["linkage", "hdbscan"])
def test_distances_among_points_are_warned_of(model, dtype, engine):
    noisy = SQUARE * (1 + 1e-9 * np.random.default_rng(1).integers(-2, 3, SQUARE.shape))
    model.set_params(device=engine.name, metric="euclidean")
    for matrix in (SQUARE, noisy):
        with pytest.warns(ClusterWarning, match=r"X looks like .* its rows are taken for points: pass metric='precomp"):
            model.fit(engine.asarray(matrix.astype(dtype)))
    with pytest.warns(ClusterWarning, match="X looks like"):
        rapids_slink.fit(pd.DataFrame(SQUARE), metric="cosine", device=engine.name)
    model.set_params(metric="precomputed").fit(engine.asarray(SQUARE))


@pytest.mark.parametrize(
    "points",
    [SQUARE[:299], SQUARE[:, :299], square_with(299, 299, 1e-3), square_with(7, 290, 9.0), square_with(290, 280, -1e-3),
     -SQUARE, np.triu(SQUARE), np.zeros((1, 1)), np.zeros((9, 9)), np.array([[0, 1e308], [-1e308, 0]])],
    ids=["wide", "high", "diagonal", "asymmetric", "negative", "all negative", "triangle", "one row", "equal rows",
         "huge"],
)  # fmt: skip
@pytest.mark.filterwarnings("error:X looks like")
def test_points_that_are_no_distances_are_not_warned_of(points, engine):
    rapids_slink.fit(engine.asarray(points), 1, metric="hamming", device=engine.name)


@pytest.mark.filterwarnings("error:X looks like")
def test_other_stages_and_predictions_are_not_warned(device):
    rapids_slink.knn_graph(SQUARE, 2, device=device)
    rapids_slink.nearest_neighbors(SQUARE, SQUARE, device=device)

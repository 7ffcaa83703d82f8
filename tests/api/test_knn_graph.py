"""`knn_graph` and `nearest_neighbors`: their frames, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
from oracles import assert_edges, least, squared_distances
from scipy.spatial.distance import cdist

from rapids_slink import knn_graph, nearest_neighbors
from rapids_slink.runtime import cuda


@pytest.mark.parametrize(("dtype", "high"), [("uint8", 256), ("int16", 2049), ("int64", 100_000), ("bool", 2)])
def test_lists_of_integers(dtype, high, device):
    X = np.random.default_rng(high).integers(0, high, (3100, 50)).astype(dtype)
    rows = np.arange(0, len(X), 20)
    distances = cdist(X[rows].astype(np.float64), X.astype(np.float64), "sqeuclidean")
    distances[np.arange(rows.size), rows] = np.inf
    ids, weights = least(distances, 16)
    graph = knn_graph(X, 16, metric="sqeuclidean", device=device)
    np.testing.assert_array_equal(graph["dst"].to_numpy().reshape(len(X), 16)[rows], ids)
    np.testing.assert_array_equal(graph["weight"].to_numpy().reshape(len(X), 16)[rows], weights)


def test_nearest_neighbors_of_sets_far_apart_and_of_different_types(device):
    """The queries' distance from the points, not the points' own spread, sets the scale."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 12)) + 1e6, rng.normal(size=(600, 12)).astype(np.float32)
    found = nearest_neighbors(X, Y, device=device)
    ids, squares = least(squared_distances(X, Y), 1)
    assert_edges(found, (ids, np.sqrt(squares)))


@pytest.mark.parametrize(
    ("n_neighbors", "error", "message"),
    [
        (0, ValueError, "n_neighbors must be at least 1, got 0"),
        (10, ValueError, "n_neighbors must be at most n - 1 = 9, got 10"),
        (2.5, TypeError, "n_neighbors must be an integer, got 2.5"),
    ],
)
def test_numbers_of_neighbors_are_checked(n_neighbors, error, message, device):
    with pytest.raises(error, match=message):
        knn_graph(np.eye(10), n_neighbors, device=device)


@pytest.mark.parametrize(
    ("X", "Y", "error", "message"),
    [
        (np.eye(3), np.eye(3)[:, :2], ValueError, "same number of features, got 3 and 2"),
        (np.eye(3), np.eye(3)[:0], ValueError, r"0 sample\(s\)"),
        ([[0.0]], pd.DataFrame({"a": ["x"]}, dtype=object), TypeError, "column 'a' of Y has dtype object"),
        ([[0.0]], pd.DataFrame({"a": pd.array([1, None], "Int32")}), ValueError, "column 'a' of Y has 1 missing value"),
        ([[0.0], [np.nan]], [[0.0]], ValueError, "X contains values that are not finite: column 0 has 1 NaN"),
        ([[0.0]], [[0.0], [np.nan]], ValueError, "Y contains values that are not finite: column 0 has 1 NaN"),
        ([[0.0]], [[1e155], [-1e155]], ValueError, r"the values of column 0 span 2e\+155.*Rescale Y"),
        ([[1e155]], [[-1e155], [-9.5e154]], ValueError, "distances between X and Y overflow float64"),
    ],
)
def test_errors_of_two_sets_name_the_set(X, Y, error, message, device):
    with pytest.raises(error, match=message):
        nearest_neighbors(X, Y, device=device)


@pytest.mark.gpu
def test_few_lengths_of_lists_are_compiled(watch):
    """Not one kernel for each number of neighbours."""
    calls = watch(cuda, "cuda_kernel")
    rng = np.random.default_rng(0)
    sets = rng.normal(size=(3000, 3)), rng.normal(size=(3000, 20))
    for X in sets:
        for k in range(1, 41):
            knn_graph(X, k, device="cuda")
    compiled = set(calls)
    kernels = {one[:2] for one in compiled}
    assert ("neighbors/nearest.cu", "search") in kernels
    assert ("neighbors/exact/rerank.cu", "rerank") in kernels
    most = max(sum(one[:2] == kernel for one in compiled) for kernel in kernels)
    assert most <= 5

"""`nearest_neighbors`: the k nearest rows of one table for each row of another, against all distances, and groups."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, combinations, full
from metric_cases import ALL_METRICS, takes_booleans
from oracles import least, squared_distances
from scipy.spatial.distance import cdist

from rapids_slink import DeviceMemoryError, knn_graph, nearest_neighbors
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU, on_current_gpu, to_host

LENGTHS = (1, 2, 33, 100)


def lists_of(distances, k, surrogate=None, apart=False):
    """Each row's k first columns by (surrogate distance, column), -1 for those `apart`, and their distances."""
    ids, _ = least(np.where(apart, np.inf, distances if surrogate is None else surrogate), k)
    return ids, np.where(ids < 0, np.inf, np.take_along_axis(distances, ids, axis=1))


def assert_nearest(expected, X, Y, k, **how):
    """Both outputs are the expected ids and distances, to the last bit."""
    ids, distances = expected
    found = nearest_neighbors(X, Y, k, output="arrays", **how)
    assert [part.dtype for part in found] == ["float64", "int32"]
    np.testing.assert_array_equal(to_host(found[1]), ids)
    np.testing.assert_array_equal(to_host(found[0]), distances)
    frame, (src, place) = nearest_neighbors(X, Y, k, **how), np.nonzero(ids >= 0)
    assert [str(dtype) for dtype in frame.dtypes] == ["int32", "int32", "float64"]
    for name, column in (("src", src), ("dst", ids[src, place]), ("weight", distances[src, place])):
        np.testing.assert_array_equal(to_host(frame[name].values), column)


def two_sets(name, n=300):
    """Rows of a case, some of which are in both sets and some twice in the second."""
    X = CASES[name]("float64")[:n]
    return X[: len(X) // 3].copy(), np.concatenate((X[len(X) // 4 :], X[::7]))


@pytest.mark.parametrize(
    ("d", "k"), combinations((2, 20), (*LENGTHS, 2500, 4200), quick=[(2, 1), (20, 2), (2, 33), (20, 100), (20, 2500)])
)
def test_lists_of_any_length(d, k, device):
    """Of values that tie, and of rows that repeat: up to all rows of Y."""
    rng = np.random.default_rng(d)
    X, Y = rng.integers(0, 5, (40, d)) / 4, rng.integers(0, 5, (4200, d)) / 4
    squares = squared_distances(X, Y)
    assert_nearest(lists_of(np.sqrt(squares), k, squares), X, Y, k, device=device)


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "cauchy_3d", "last_bit", full("images"), full("simplex")])
@pytest.mark.parametrize("k", [1, 2, 33])
def test_hard_cases(name, k, device):
    X, Y = two_sets(name)
    k = min(k, len(Y))
    squares = squared_distances(X, Y)
    assert_nearest(lists_of(np.sqrt(squares), k, squares), X, Y, k, device=device)


@pytest.mark.parametrize("dtype", ["float32", full("uint8")])
def test_many_rows_through_the_filter(dtype, device):
    rng = np.random.default_rng(0)
    X, Y = (100 * rng.random((n, 40)) for n in (300, 9000))
    X, Y = X.astype(dtype), Y.astype(dtype)
    squares = squared_distances(X, Y)
    for k in (10, 100):
        assert_nearest(lists_of(np.sqrt(squares), k, squares), X, Y, k, device=device)


@pytest.mark.parametrize(("metric", "p"), [(m, p) for m, p in ALL_METRICS if m != "haversine"])
def test_every_metric(metric, p, device):
    """Distances by SciPy, in the order of the metric's definition in float64."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 12)), rng.normal(size=(400, 12))
    X[:5] = Y[:5]
    if takes_booleans(metric):
        X, Y = (X > 0).astype(float), (Y > 0).astype(float)
    elif metric == "hamming":
        X, Y = X.round(), Y.round()
    chosen = get_metric(metric, p)
    both = metric_rows(chosen, np.concatenate((X, Y)), CPU, alone=False)
    surrogate = kernels(CPU).all_distances(both, chosen)[:50, 50:]
    k = 33
    ids, _ = lists_of(surrogate, k)
    found = nearest_neighbors(X, Y, k, metric=metric, p=p, output="arrays", device=device)
    np.testing.assert_array_equal(to_host(found[1]), ids)
    if metric in ("containment", "inner_product", "minkowski"):
        return
    distances = np.take_along_axis(cdist(X, Y, metric), ids, axis=1)
    np.testing.assert_allclose(to_host(found[0]), distances, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", ["tree", "all pairs"])
def test_either_search(way, device, prescribe):
    prescribe(search=way)
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 9, (60, 5)) / 8, rng.integers(0, 9, (3000, 5)) / 8
    squares = squared_distances(X, Y)
    assert_nearest(lists_of(np.sqrt(squares), 33, squares), X, Y, 33, device=device)


def test_one_table_with_itself_has_its_graph(device):
    """Without ties and copies the first neighbour is the row itself, and the others are those of `knn_graph`."""
    X = np.random.default_rng(0).normal(size=(400, 9))
    graph = knn_graph(X, 5, device=device)
    distances, ids = (to_host(part) for part in nearest_neighbors(X, X, 6, output="arrays", device=device))
    np.testing.assert_array_equal(ids[:, 0], np.arange(400))
    np.testing.assert_array_equal(ids[:, 1:].ravel(), to_host(graph["dst"].values))
    np.testing.assert_array_equal(distances[:, 1:].ravel(), to_host(graph["weight"].values))


@pytest.mark.gpu
def test_arrays_are_of_the_kind_of_x():
    import cudf
    import cupy

    X, Y = np.eye(4, dtype="float32"), np.eye(4, dtype="float32")[:3]
    for queries_, kind in ((cupy.asarray(X), cupy.ndarray), (cudf.DataFrame(X), cupy.ndarray), (X, np.ndarray)):
        for how in ({}, {"groups": (np.zeros(4), np.zeros(3))}):
            found = nearest_neighbors(queries_, Y, 2, output="arrays", device="cuda", **how)
            assert {type(on_current_gpu(part)) for part in found} == {kind}


def keys_of_two(m, n, rng):
    """Keys of two tables: some of one alone, some of few rows, one of most."""
    shares = [0.02, 0.68, 0.1, 0.1, 0.1]
    return (rng.choice([0, 3, 5, 7, 11], size=size, p=shares) + rng.integers(0, 2, size) for size in (m, n))


FOUND_BY = [(None, 20), ("tree", 3), ("all pairs", 20)]


@pytest.mark.parametrize(
    ("way", "k"),
    combinations(FOUND_BY, (1, 2, 33, 100, 1200), quick=zip(2 * FOUND_BY, (1, 33, 2, 100, 1200, 33), strict=True)),
)
def test_groups(way, k, device, prescribe):
    """Rows of Y with the same key alone, whether each group is searched or all of its rows are compared."""
    search, d = way
    prescribe(search=search)
    rng = np.random.default_rng(k)
    X, Y = rng.integers(0, 5, (150, d)) / 4, rng.integers(0, 5, (1200, d)) / 4
    x, y = keys_of_two(150, 1200, rng)
    squares = squared_distances(X, Y)
    expected = lists_of(np.sqrt(squares), k, squares, x[:, None] != y)
    assert_nearest(expected, X, Y, k, groups=(x, y), device=device)


@pytest.mark.parametrize("search", [None, "all pairs"])
@pytest.mark.parametrize("metric", ["cosine", full("cityblock"), "jaccard", "hamming", full("minkowski")])
def test_metrics_of_groups(metric, search, device, prescribe):
    prescribe(search=search)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 12)), rng.normal(size=(400, 12))
    if metric in ("jaccard", "hamming"):
        X, Y = (X > 0).astype(float), (Y > 0).astype(float)
    x, y = keys_of_two(60, 400, rng)
    found = nearest_neighbors(X, Y, 9, groups=(x, y), metric=metric, p=3, output="arrays", device=device)
    for key in np.unique(x):
        rows, own = np.flatnonzero(x == key), np.flatnonzero(y == key)
        k = min(9, own.size)
        assert (to_host(found[1])[rows, k:] == -1).all()
        assert np.isinf(to_host(found[0])[rows, k:]).all()
        if k:
            alone = nearest_neighbors(X[rows], Y[own], k, metric=metric, p=3, output="arrays", device=device)
            np.testing.assert_array_equal(to_host(found[1])[rows, :k], own[to_host(alone[1])])
            np.testing.assert_array_equal(to_host(found[0])[rows, :k], to_host(alone[0]))


def test_columns_are_keys(device):
    """One or several, in frames, whatever their order in the table; keys of text and dates, too."""
    rng = np.random.default_rng(0)
    x, y = keys_of_two(80, 300, rng)
    X, Y = rng.normal(size=(80, 3)), rng.normal(size=(300, 3))
    expected = nearest_neighbors(X, Y, 4, groups=(x, y), device=device)
    tables = []
    for values, keys in ((X, x), (Y, y)):
        frame = pd.DataFrame(values, columns=list("abc"))
        frame.insert(1, "name", np.char.mod("%d", keys))
        frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(keys, "D")
        frame["key"] = keys
        tables.append(frame)
    for names in ("name", "day", "key"):
        used = [frame[["a", "b", "c", names]] for frame in tables]
        pd.testing.assert_frame_equal(nearest_neighbors(*used, 4, groups=names, device=device), expected)
    several = nearest_neighbors(*tables, 4, groups=["name", "day", "key"], device=device)
    pd.testing.assert_frame_equal(several, expected)
    pairs = tables[0]["name"], tables[1]["name"].tolist()
    pd.testing.assert_frame_equal(nearest_neighbors(X, Y, 4, groups=pairs, device=device), expected)
    categories = tables[0]["name"].astype("category"), tables[1]["name"].astype("category")
    pd.testing.assert_frame_equal(nearest_neighbors(X, Y, 4, groups=categories, device=device), expected)


def test_missing_keys_are_a_group_of_their_own(device):
    X, Y = np.array([[0.0], [1.0]]), np.array([[0.0], [2.0], [3.0]])
    keys = pd.Series(["a", None]), pd.Series(["a", None, None])
    with pytest.raises(ValueError, match=r"groups has 1 missing key.*dropna=False"):
        nearest_neighbors(X, Y, groups=keys, device=device)
    found = nearest_neighbors(X, Y, 2, groups=keys, dropna=False, device=device)
    assert found.to_numpy().tolist() == [[0, 0, 0], [1, 1, 1], [1, 2, 2]]


def test_a_table_whose_keys_are_all_alone(device):
    for k in (1, 3):
        assert_nearest((np.full((4, k), -1), np.full((4, k), np.inf)), np.eye(4), np.eye(4)[:3], k,
                       groups=([1, 1, 2, 2], [3, 4, 5]), device=device)  # fmt: skip


def test_rows_of_zeros_meet_within_their_group_alone(device):
    X, Y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="row 0 of X and row 0 of Y are zero in every column"):
        nearest_neighbors(X, Y, groups=([0, 1], [0, 1]), metric="braycurtis", device=device)
    found = nearest_neighbors(X, Y, groups=([0, 1], [1, 0]), metric="braycurtis", device=device)
    assert found["dst"].to_numpy().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": 4}, ValueError, "n_neighbors must be at most the number of rows of Y, 3, got 4"),
        ({"n_neighbors": 1.5}, TypeError, "n_neighbors must be an integer, got 1.5"),
        ({"output": "array"}, ValueError, "output must be one of 'frame', 'arrays', got 'array'"),
        ({"metric": "precomputed"}, ValueError, "metric must be one"),
        ({"groups": [1, 2]}, ValueError, "groups must name columns of X and Y, or be a pair"),
        ({"groups": "a"}, ValueError, "groups='a' names a column, and X is"),
        ({"groups": ([1, 2], [1, 2])}, ValueError, "one key for each of 3 rows of Y, got 2"),
        ({"groups": ([1, 2, 3], [1, 2, 3])}, ValueError, "one key for each of 2 rows, got 3"),
        ({"groups": ([1, 2], ["1", "2", "3"])}, TypeError, "keys of dtype int64 for X and .* for Y, .*convert one"),
        ({"groups": (pd.DataFrame([[1, 2], [3, 4]]), [1, 2, 3])}, ValueError, "2 columns of keys for X and 1"),
    ],
)
def test_refused(how, error, message, device):
    with pytest.raises(error, match=message):
        nearest_neighbors(np.eye(3)[:2], np.eye(3), **how, device=device)


def test_a_column_of_keys_that_one_table_lacks(device):
    X, Y = pd.DataFrame({"x": [0.0], "key": [1]}), pd.DataFrame({"x": [0.0], "name": [1]})
    with pytest.raises(ValueError, match=r"groups must name a column of Y.*'key' is not in"):
        nearest_neighbors(X, Y, groups="key", device=device)
    with pytest.raises(ValueError, match=r"groups must name a column of X.*'name' is not in"):
        nearest_neighbors(X, Y, groups="name", device=device)


def test_what_does_not_fit_is_refused(device):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(3000, 9)), rng.normal(size=(4000, 9))
    with pytest.raises(DeviceMemoryError, match="memory_limit='64MB' is too small"):
        nearest_neighbors(X, Y, 3000, memory_limit="64MB", device=device)


def test_distances_beyond_float64(device):
    X, Y = np.array([[1e154]]), np.array([[-1e153], [-9e153]])
    assert nearest_neighbors(X, Y, device=device)["dst"].to_numpy().tolist() == [0]
    for how in ({}, {"groups": ([0], [0, 0])}):
        with pytest.raises(ValueError, match="overflow float64"):
            nearest_neighbors(X, Y, 2, **how, device=device)

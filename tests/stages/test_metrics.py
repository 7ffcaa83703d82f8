"""Every metric against SciPy's `pdist` on the hard cases, what it refuses, and what the table promises."""

import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import oracles
import pandas as pd
import pytest
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import ALL_METRICS, PACKED, SCIPYS, points, takes_booleans, with_cases, without_zeros
from oracles import assert_lists, core_distances, heights_of, least, mutual_reachability, without_self
from scipy.cluster import hierarchy
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics.pairwise import haversine_distances

from rapids_slink import HDBSCAN, SingleLinkage, fit, knn_graph, metrics, nearest_neighbors, pairs
from rapids_slink.metrics import FORMULAS, MEANINGS, METRICS, NAMES, get_metric
from rapids_slink.neighbors import neighbor_lists, prepare_search
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import ExactPoints, formulas
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import choose_filter, filter_formula
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.points.output import on_device
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host
from rapids_slink.settings import MISSING

EVERY_METRIC = pytest.mark.parametrize(("metric", "p"), SCIPYS)


def all_pairs(X, metric, p, Y=None):
    """SciPy's distances of X's pairs, condensed, or of X and Y."""
    options = {"p": p} if metric == "minkowski" else {}
    with np.errstate(all="ignore"):
        return pdist(X, metric, **options) if Y is None else cdist(X, Y, metric, **options)


def tree_weights(condensed):
    """The heights of SciPy's linkage; infinite distances, which it refuses, come last."""
    largest = np.finfo(float).max
    heights = hierarchy.linkage(np.minimum(condensed, largest), "single")[:, 2]
    return np.where(heights < largest, heights, np.inf)


def assert_scipys(found, expected, metric, p):
    """The same bits, but for minkowski, whose powers are a library's."""
    if get_metric(metric, p).formula != "minkowski":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_max_ulp(found, expected, 4)


# -------------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize(
    ("metric", "p", "name"),
    with_cases(SCIPYS, "uneven_blobs_8d", "repeated_rows", also=("decimal_grid", "mixed_magnitudes")),
)
def test_heights_are_scipys(metric, p, name):
    """On a CPU; `test_gpu_and_cpu_give_the_same_bits` is the other half."""
    X = points(name, metric)
    expected = all_pairs(X, metric, p)
    heights = tree_weights(np.where(np.isfinite(expected), expected, np.inf))
    if np.isnan(expected).any() or np.isinf(heights).any():
        with pytest.raises(ValueError, match=rf"no {metric} distance|{metric} distance (of rows|is not defined)"):
            fit(X, 1, metric=metric, p=p, device="cpu")
        return
    for n_neighbors in (1, 3, None):
        model = fit(X, 1, metric=metric, p=p, n_neighbors=n_neighbors, device="cpu")
        found = model.to_scipy()
        assert_scipys(found[:, 2], heights, metric, p)
        assert (np.diff(found[:, 2]) >= 0).all()
        src, dst, weight = (to_host(model.mst_[column].values) for column in ("src", "dst", "weight"))
        np.testing.assert_array_equal(weight, found[:, 2])
        assert_scipys(weight, squareform(expected)[src, dst], metric, p)


@pytest.mark.parametrize(
    ("metric", "p", "dtype"),
    [
        full(*metric, dtype) if metric[0] == "minkowski" else (*metric, dtype)
        for metric, dtype in product(SCIPYS, ("float32", "bool", "int16"))
    ],
)
def test_types_are_taken_at_their_value(metric, p, dtype, device):
    X = np.random.default_rng(5).integers(0, 2 if takes_booleans(metric) or dtype == "bool" else 50, (120, 17))
    X[X.max(axis=1) == X.min(axis=1), 0] += 1
    X = X.astype(dtype)
    model = fit(X, 1, metric=metric, p=p, n_neighbors=2, device=device)
    expected = hierarchy.linkage(all_pairs(X.astype(np.float64), metric, p), "single")
    assert_scipys(model.to_scipy()[:, 2], expected[:, 2], metric, p)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("metric", "p", "name"), with_cases(ALL_METRICS, "uneven_blobs_8d", "decimal_grid", "mixed_magnitudes", "images")
)
def test_gpu_and_cpu_give_the_same_bits(metric, p, name):
    X = points(name, metric)
    for n_neighbors in (1, None):
        found = []
        for device in ("cuda", "cpu"):
            try:
                model = fit(X, 1, metric=metric, p=p, n_neighbors=n_neighbors, device=device)
            except ValueError as error:
                found.append(str(error))
                continue
            frames = (model.linkage_, model.mst_)
            found.append(b"".join(to_host(frame[c].values).tobytes() for frame in frames for c in frame.columns))
        assert found[0] == found[1]


@pytest.mark.parametrize("d", [9, full(2), full(30)])
@EVERY_METRIC
def test_knn_graph(metric, p, d, device):
    X = np.random.default_rng(d).integers(1, 9, (400, d)) / 8
    X = (X > 0.5).astype(float) if takes_booleans(metric) else X + np.arange(d) / 64
    X = without_zeros(X, metric)
    graph = knn_graph(X, 6, metric=metric, p=p, device=device)
    assert isinstance(graph, pd.DataFrame)
    assert [str(dtype) for dtype in graph.dtypes] == ["int32", "int32", "float64"]
    distances = without_self(squareform(all_pairs(X, metric, p)))
    expected = np.sort(distances, axis=1)[:, :6].ravel()
    src, dst, weight = (graph[column].to_numpy() for column in ("src", "dst", "weight"))
    np.testing.assert_array_equal(src, np.repeat(np.arange(400), 6))
    assert_scipys(weight, expected, metric, p)
    assert_scipys(weight, distances[src, dst], metric, p)
    if get_metric(metric, p).formula != "minkowski":
        np.testing.assert_array_equal(dst, np.argsort(distances, axis=1, kind="stable")[:, :6].ravel())


@pytest.mark.parametrize(
    ("n", "m", "d"), [(300, 1000, 20), full(7, 5, 2), full(300, 1000, 3), full(1, 500, 9), full(500, 1, 9)]
)
@EVERY_METRIC
def test_nearest_neighbors(metric, p, n, m, d, device):
    rng = np.random.default_rng(n + m)
    X, Y = rng.integers(1, 5, (n, d)) / 4 + np.arange(d), rng.integers(1, 5, (m, d)) / 4 + np.arange(d)
    if takes_booleans(metric):
        X, Y = (without_zeros(part % 1 > 0.3, metric) for part in (X, Y))
    found = nearest_neighbors(X, pd.DataFrame(Y), metric=metric, p=p, device=device)
    expected = all_pairs(X, metric, p, Y)
    assert [str(dtype) for dtype in found.dtypes] == ["int32", "int32", "float64"]
    np.testing.assert_array_equal(found["src"], np.arange(n))
    # cdist's cosine and correlation sum in another order than pdist's.
    loose = get_metric(metric).formula == "cosine"
    near = expected[np.arange(n), found["dst"].to_numpy()]
    if loose:
        np.testing.assert_allclose(found["weight"], expected.min(axis=1), rtol=0, atol=1e-15)
        np.testing.assert_allclose(found["weight"], near, rtol=0, atol=1e-15)
    else:
        assert_scipys(found["weight"].to_numpy(), expected.min(axis=1), metric, p)
        assert_scipys(found["weight"].to_numpy(), near, metric, p)
        if get_metric(metric, p).formula != "minkowski":
            np.testing.assert_array_equal(found["dst"], expected.argmin(axis=1))


@pytest.mark.parametrize("d", [3, 12])
def test_inner_product_gives_the_maximum_spanning_tree_of_dot_products(d, device):
    X = np.random.default_rng(d).integers(-9, 10, (300, d)).astype(np.float64)
    expected = heights_of(1000 - X @ X.T) - 1000
    for n_neighbors in (1, None):
        model = fit(X, 3, metric="inner_product", n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)
    assert expected[0] < 0
    graph = knn_graph(X, 2, metric="inner_product", device=device)
    others = X @ X.T
    np.fill_diagonal(others, -np.inf)
    np.testing.assert_array_equal(graph["weight"].to_numpy()[::2], -others.max(axis=1))


@pytest.mark.parametrize("d", [3, 70])
def test_containment_is_the_share_of_the_smaller_that_is_not_common(d, device):
    rng = np.random.default_rng(d)
    X = rng.random((300, d)) < rng.choice([0.1, 0.5, 0.9], 300)[:, None]
    X[~X.any(axis=1), 0] = True
    common, ones = X.astype(np.int64) @ X.T.astype(np.int64), X.sum(axis=1)
    fewer = np.minimum(ones[:, None], ones)
    distances = (fewer - common) / fewer
    for n_neighbors in (1, None):
        model = fit(X, 3, metric="containment", n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(distances))
    found = nearest_neighbors(X[:50], X[50:], metric="containment", device=device)
    np.testing.assert_array_equal(found["weight"].to_numpy(), distances[:50, 50:].min(axis=1))
    within = pairs(X, max_distance=0.3, metric="containment", device=device)
    np.testing.assert_array_equal(within[["src", "dst"]].to_numpy(), np.argwhere(np.triu(distances <= 0.3, 1)))


def rows_of(name, metric):
    """Rows of a case that the metric takes."""
    X = points(name, metric)
    if metric in PACKED:
        return np.packbits(np.median(X, axis=0) < X, axis=1)
    if metric == "haversine":
        return X[:, :2] % 1.5
    return without_zeros(X.round() if metric == "inner_product" else X.copy(), metric)


def matrix_of(X, metric, p):
    """The distances of all pairs of rows from their definition, (n, n)."""
    if metric == "haversine":
        return haversine_distances(X)
    if metric == "inner_product":
        return -X @ X.T
    if metric == "containment":
        fewer = np.minimum(X.sum(axis=1)[:, None], X.sum(axis=1))
        return (fewer - X @ X.T) / fewer
    bits, metric = (np.unpackbits(X, axis=1), metric[4:]) if metric in PACKED else (X, metric)
    return squareform(all_pairs(bits, metric, p))


def reachability_heights(distances, min_samples):
    """SciPy's heights of the matrix of mutual reachability distances, and that matrix."""
    weights = mutual_reachability(distances, core_distances(distances, min_samples))
    least = weights.min()  # SciPy refuses negative distances
    return heights_of(weights - least) + least, weights


@pytest.mark.parametrize("name", ["uneven_blobs_8d", *map(full, ("tight_clusters", "images", "repeated_rows"))])
@pytest.mark.parametrize(
    "metric",
    [
        metric if metric in ("cityblock", "canberra", "hamming", "jaccard", "cosine", "haversine") else full(metric)
        for metric in METRICS
    ],
)
def test_mutual_reachability_in_every_metric(metric, name, device):
    X, p = rows_of(name, metric), 3.0
    distances = matrix_of(X, metric, p)
    for min_samples in (2, 6):
        expected, weights = reachability_heights(distances, min_samples)
        for n_neighbors in (1, None):
            how = {"metric": metric, "p": p, "min_samples": min_samples, "n_neighbors": n_neighbors}
            model = fit(X, 1, device=device, **how)
            src, dst, weight = (to_host(model.mst_[column].values) for column in ("src", "dst", "weight"))
            for found, sought in ((model.to_scipy()[:, 2], expected), (weight, weights[src, dst])):
                if metric == "haversine":
                    np.testing.assert_allclose(found, sought, rtol=1e-13, atol=4e-15)
                else:
                    assert_scipys(found, sought, metric, p)


# ------------------------------------------------------------------------------------------------ on the sphere


def places(n=900, seed=0):
    """Latitudes and longitudes: the poles, the date line, equal places and antipodes among them."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.arcsin(rng.uniform(-1, 1, n)), rng.uniform(-np.pi, np.pi, n)])
    X[0], X[1], X[2], X[3] = (np.pi / 2, 0), (-np.pi / 2, 1), (0.3, np.pi), (0.3, -np.pi)
    X[4], X[5] = X[6], (-X[7, 0], X[7, 1] - np.pi)
    X[8:20] = X[20:32] + rng.normal(size=(12, 2)) * 1e-9
    return X


@pytest.mark.parametrize(("copies", "min_samples"), [(1, 1), (1, 6), (3, 2), full(1, 2), full(3, 6)])
def test_core_distances_on_the_sphere(min_samples, copies, device):
    """They are great circles, with the bits that `knn_graph` reports, in whatever way the tree is made."""
    X = np.repeat(places(300), copies, axis=0)
    n = len(X)
    graph = knn_graph(X, n - 1, metric="haversine", device=device)
    distances = np.zeros((n, n))
    distances[to_host(graph["src"].values), to_host(graph["dst"].values)] = to_host(graph["weight"].values)
    np.testing.assert_allclose(distances, haversine_distances(X), rtol=1e-13, atol=4e-15)
    expected, weights = reachability_heights(distances, min_samples)
    order = np.arange(n) % 2  # two groups, of every second row
    for how in ({}, {"n_neighbors": 1}, {"max_distance": float(np.median(expected))}, {"groups": order}):
        model = fit(X, None, metric="haversine", min_samples=min_samples, device=device, **how)
        src, dst, weight = (to_host(model.mst_[column].values) for column in ("src", "dst", "weight"))
        if "groups" in how:
            parts = [np.flatnonzero(order == g) for g in range(2)]
            halves = [reachability_heights(distances[np.ix_(rows, rows)], min_samples)[0] for rows in parts]
            np.testing.assert_array_equal(weight, np.sort(np.concatenate(halves)))
        else:
            np.testing.assert_array_equal(weight, expected[expected <= how.get("max_distance", np.inf)])
            np.testing.assert_array_equal(weight, weights[src, dst])
    weighted = HDBSCAN(5, min_samples, metric="haversine", device=device).fit(X, sample_weight=np.ones(n))
    np.testing.assert_array_equal(to_host(weighted.mst_["weight"].values), expected)


def test_haversine_of_two_sets_and_lists(device):
    X, Y = places(200, 1), places(700, 2)
    expected = np.sort(haversine_distances(X, Y), axis=1)
    for k in (1, 7):
        found = nearest_neighbors(X, Y, k, metric="haversine", output="arrays", device=device)
        np.testing.assert_allclose(to_host(found[0]), expected[:, :k], rtol=1e-13, atol=4e-15)
    graph = knn_graph(X, 5, metric="haversine", device=device)
    expected = np.sort(without_self(haversine_distances(X)), axis=1)[:, :5]
    np.testing.assert_allclose(graph["weight"].to_numpy().reshape(-1, 5), expected, rtol=1e-13, atol=4e-15)


@pytest.mark.parametrize(("n_rows", "row"), [(2, 1), (300, 299)])
def test_longitudes_that_look_like_degrees_are_warned_of(n_rows, row, device):
    """Near the equator latitudes in degrees pass."""
    X = np.column_stack([np.linspace(-1.3, 1.3, n_rows), np.linspace(1, 103.8, n_rows)])
    for call in (lambda: fit(X, 1, metric="haversine", device=device),
                 lambda: knn_graph(X, 1, metric="haversine", device=device),
                 lambda: nearest_neighbors(X, X[:1] / 100, metric="haversine", device=device)):  # fmt: skip
        with pytest.warns(UserWarning, match=f"row {row} of X has the longitude 103.8, .* takes radians") as warned:
            call()
        assert {one.filename for one in warned} == {__file__}
    X[:, 1] = np.linspace(-2 * np.pi, 2 * np.pi, n_rows)  # from -π to π, or from 0 to 2π
    fit(X.astype(np.float32), 1, metric="haversine", device=device)


# -------------------------------------------------------------------------------------------------- refusals


ZEROS = [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("metric", "X", "message"),
    [
        ("cosine", ZEROS, "row 1 of X has no cosine distance: its squares sum to zero"),
        ("correlation", [[1.0, 2.0], [3.0, 3.0]], "row 1 of X has no correlation distance: all its values are equal"),
        ("cosine", [[1.0, 2.0], [1e155, 1e155]], "cosine distances may overflow"),
        ("cosine", [[1e300, 2.0], [1e300, 1.0]], "row 0 of X has no cosine distance: its values are too large"),
        ("braycurtis", ZEROS, "rows 1 and 2 of X are zero in every column"),
        ("braycurtis", [[1.0, -2.0], [-1.0, 2.0]], "the braycurtis distance of rows 0 and 1 is not finite"),
        ("jaccard", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.5]], "takes booleans .*: row 2 of X"),
        ("dice", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.5]], "metric='dice' takes booleans .*: row 2 of X"),
        ("dice", [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], "rows 1 and 3 of X are zero .* their dice distance"),
        ("containment", [[0, 1], [0, 0], [1, 0]], "row 1 of X has no containment distance: it is zero in every"),
        ("inner_product", [[1e300, 2.0], [1e300, 1.0]], "row 0 of X is too long for metric='inner_product'"),
        ("haversine", [[0.0, 1.0, 2.0]] * 2, "takes two columns, .*; X has 3"),
        ("haversine", [[0, 1], [52.5, 13.4]], "row 1 of X has 52.5. Latitude comes first; convert degrees to radians"),
        ("haversine", [[0.5, 3e6], [0.5, 1.0]], "takes longitudes .*: row 0 of X has 3e.06"),
    ],
)
def test_rows_without_a_distance_are_refused(metric, X, message, device):
    for call in (fit, knn_graph):
        with pytest.raises(ValueError, match=message):
            call(X, 1, metric=metric, device=device)


def test_minkowski_beyond_float64_is_refused_only_where_it_matters(device):
    X = np.concatenate([np.arange(40.0), 1e120 + np.arange(40.0) * 1e106])[:, None] * np.ones(9)
    with pytest.raises(ValueError, match=r"the minkowski distance of rows \d+ and \d+ is not finite in float64"):
        fit(X, 2, metric="minkowski", p=3, device=device)
    graph = knn_graph(X, 3, metric="minkowski", p=2.5, device=device)
    assert np.isfinite(graph["weight"]).all()


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev", "hamming"])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_values_whose_squares_overflow(metric, d, device):
    """Distances that SciPy has, as long as they are finite."""
    for n, k in ((40, None), (600, 2)):
        X = np.random.default_rng(0).normal(size=(n, d)).round(1) * 1e300
        found = fit(X, 1, metric=metric, n_neighbors=k, device=device).distances_
        np.testing.assert_array_equal(found, hierarchy.linkage(X, "single", metric)[:, 2])


def test_two_sets_without_a_distance_are_refused(device):
    with pytest.raises(ValueError, match="row 1 of X and row 0 of Y are zero in every column"):
        nearest_neighbors(ZEROS[:2], ZEROS[1:2], metric="braycurtis", device=device)
    with pytest.raises(ValueError, match="row 0 of Y has no cosine distance"):
        nearest_neighbors(ZEROS[:1], ZEROS[1:], metric="cosine", device=device)
    found = nearest_neighbors(ZEROS[:1], ZEROS[1:], metric="braycurtis", device=device)
    assert found["dst"].tolist() == [2]


def test_where_scipy_gives_a_number_for_rows_of_zeros(device):
    for metric in ("canberra", "hamming", "cityblock", "chebyshev"):
        model = fit(ZEROS, 1, metric=metric, device=device)
        np.testing.assert_array_equal(model.to_scipy(), hierarchy.linkage(pdist(ZEROS, metric), "single"))
    model = fit(np.array(ZEROS) > 0, 1, metric="jaccard", device=device)
    expected = hierarchy.linkage(pdist(np.array(ZEROS) > 0, "jaccard"), "single")
    np.testing.assert_array_equal(model.to_scipy()[:, 2], expected[:, 2])


@pytest.mark.parametrize(
    ("metric", "p", "error", "message"),
    [
        ("cosin", 2, ValueError, "metric must be one that is known, got 'cosin'. Did you mean 'cosine'"),
        (None, 2, ValueError, "metric must be one of .*, got None"),
        ("minkowski", 0, ValueError, r"p must be above 0, got 0\.0"),
        ("minkowski", math.nan, ValueError, "p must be above 0, got nan"),
        ("minkowski", 10**400, ValueError, "p must be at most 1.8e308, .*'chebyshev'"),
        ("minkowski", "3", TypeError, "p must be a number, got '3'"),
        ("minkowski", True, TypeError, "p must be a number, got True"),
    ],
)
def test_parameters_are_checked(metric, p, error, message, device):
    X = np.eye(3)
    for call in (fit, knn_graph):
        with pytest.raises(error, match=message):
            call(X, 1, metric=metric, p=p, device=device)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("euclidian", "euclidean"), ("Euclidean", "euclidean"), ("manhatten", "manhattan"), ("Tanimoto", "jaccard"),
     ("bray-curtis", "braycurtis"), ("great-circle", "haversine"), ("cos", "cosine"), ("pearson", "correlation")],
)  # fmt: skip
def test_the_metric_that_was_meant_is_suggested(name, meant, device):
    for call in (lambda: fit(ZEROS, metric=name, device=device), lambda: knn_graph(ZEROS, 1, metric=name)):
        with pytest.raises(ValueError, match=f"got '{name}'. Did you mean '{meant}'\\?$"):
            call()


def test_metrics_that_are_not_here_resemble_none(device):
    for name in ("seuclidean", "mahalanobis", "yule", "", "x"):
        with pytest.raises(ValueError, match=f"'precomputed', got '{name}'. scipy.spatial.distance.pdist"):
            fit(ZEROS, metric=name, device=device)
    with pytest.raises(ValueError, match=r"known, got 'pre-computed'. Did you mean 'precomputed'\?"):
        fit(ZEROS, metric="pre-computed", device=device)
    with pytest.raises(ValueError, match=r"'string_hamming', got 'precomputed'"):
        knn_graph(ZEROS, 1, metric="precomputed", device=device)


def test_other_names_of_metrics_are_of_those_here():
    assert set(MEANINGS) & set(NAMES) == set()
    assert {MEANINGS[name] for name in MEANINGS} - {*NAMES, "precomputed"} == {"seuclidean"}


# ---------------------------------------------------------------------------------------------- the table


def test_aliases_and_special_powers():
    assert {alias: NAMES[alias].name for alias in ("manhattan", "l1", "l2")} == {
        "manhattan": "cityblock", "l1": "cityblock", "l2": "euclidean",
    }  # fmt: skip
    assert [get_metric("minkowski", p).name for p in (1, 2, np.inf, 3)] == [
        "cityblock", "euclidean", "chebyshev", "minkowski",
    ]  # fmt: skip


def test_documentation_names_every_metric_as_the_table_has_it():
    """The module's own table says of each metric what its row says; the docstring of `SingleLinkage` names them all."""
    rows = dict(re.findall(r"^(\w+) +.*?(product|direct|codes|bits|none) +(?:yes|no)$", metrics.__doc__, re.MULTILINE))
    boxes = dict(re.findall(r"^(\w+) +.* (yes|no)$", metrics.__doc__, re.MULTILINE))
    assert rows == {name: metric.filter for name, metric in METRICS.items()}
    assert boxes == {name: "yes" if metric.boxes else "no" for name, metric in METRICS.items()}
    assert set(NAMES) - {"l2"} <= set(re.findall(r'"(\w+)"', SingleLinkage.__doc__))


def test_every_formula_has_its_struct():
    source = Path(metrics.__file__).parent / "neighbors/exact/formulas.cuh"
    structs = re.findall(r"^struct (\w+)", source.read_text(), re.MULTILINE)
    of_bits = ("bit_counts", "bit_hamming", "bit_jaccard", "bit_braycurtis", "bit_containment")
    others = (*of_bits, "sum_of_terms", "present_features", "Space")
    assert sorted(structs) == sorted((*(set(FORMULAS) - {"jaccard", "containment"}), *others))
    of_missing = {formula for names in MISSING.values() for formula, *_ in names.values()}
    assert {metric.formula for metric in METRICS.values()} | of_missing == set(FORMULAS)
    assert {metric.bit_options[0] for metric in METRICS.values()} == {f"-DFORMULA={name}" for name in of_bits[1:]}


# -------------------------------------------------------------------------------------- what a user holds


def test_a_frame_a_pipeline_and_the_report(device):
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 3)), columns=list("abc"), index=range(100, 150))
    model = SingleLinkage(3, metric="manhattan", device=device).fit(frame)
    assert model.report_["metric"] == "cityblock"
    assert model.labels_.index.equals(frame.index)
    assert (model.get_params()["metric"], model.get_params()["p"]) == ("manhattan", 2.0)
    assert fit(frame, 3, metric="minkowski", p=1, device=device).report_["metric"] == "cityblock"


@pytest.mark.parametrize("metric", METRICS)
def test_frames_and_arrays_of_every_metric(metric, engine):
    X = np.random.default_rng(0).random((50, 2 if metric == "haversine" else 12))
    X = X < 0.4 if takes_booleans(metric) else np.packbits(X < 0.4, axis=1) if metric in PACKED else X
    X = without_zeros(X, metric)
    of_array, of_frame = (
        fit(data, 2, metric=metric, device=engine.name).to_scipy()
        for data in (engine.asarray(X), on_device(pd.DataFrame(X), engine))
    )
    np.testing.assert_array_equal(of_frame, of_array)


def test_one_row_of_every_metric(device):
    for name in METRICS:
        X = np.array([[1, 0]], np.uint8 if name in PACKED else float)
        assert fit(X, 1, metric=name, device=device).n_clusters_ == 1


def test_the_search_suits_the_metric():
    X = np.random.default_rng(0).random((50, 3))
    for name, metric in METRICS.items():
        report = Report()
        found = prepare_search(X, CPU, report, metric=metric)
        assert type(found) is (TreeSearch if metric.boxes else BruteForceSearch), name
        filters = {"product": "float32 tiles", "direct": "none", "codes": "none", "bits": "none", "none": "none"}
        assert report["neighbors"]["filter"] == ("k-d tree" if metric.boxes else filters[metric.filter]), name


def distances_of_all_pairs(metric, rows):
    """The formula's values on the CPU."""
    return exact_kernels(CPU).all_distances(rows, metric)


@pytest.mark.parametrize(
    ("metric", "p", "name"), with_cases(ALL_METRICS, "uneven_blobs_8d", also=("last_bit", "cauchy_3d"))
)
def test_searches_find_the_least_values(metric, p, name, engine):
    """Every search that serves, in groups and with bounds, in the total order."""
    metric = get_metric(metric, p)
    X = points(name, metric.name)
    try:
        rows = metric_rows(metric, X, CPU)
    except ValueError as refused:
        with pytest.raises(ValueError, match=re.escape(str(refused))):
            metric_rows(metric, engine.asarray(X), engine)
        return
    rng, n = np.random.default_rng(0), len(rows)
    distances = distances_of_all_pairs(metric, rows)
    ways = ["brute_force", *["tree"] * metric.boxes]
    searches = [oracles.SearchKind(engine.name, way) for way in ways]
    everyone = np.arange(n, dtype=np.int32)
    for group, k in ((everyone, 4), (rng.integers(0, 5, n).astype(np.int32), 1)):
        upper = np.where(rng.random(n) < 0.5, np.inf, 1.0) if k == 1 else np.full(n, np.inf)
        wanted = (group[:, None] != group) & (distances <= upper[:, None])
        ids, weights = least(np.where(wanted, distances, np.inf), k)
        wide = (0, 0), (0, k - ids.shape[1])
        expected = np.pad(ids, wide, constant_values=-1), np.pad(weights, wide, constant_values=np.inf)
        for search in searches:
            if search.serves(rows.shape[1]):
                on_rows, groups, bounds = (engine.asarray(part) for part in (everyone, group, upper))
                found = search(rows, metric=metric).find(SearchTask(on_rows, k, groups, groups, bounds))
                assert_lists(found, expected)


@pytest.mark.parametrize(("metric", "p"), [(m, p) for m, p in ALL_METRICS if m not in ("minkowski", "haversine")])
def test_lists_between_two_parts(metric, p, engine):
    metric, n, k, split = get_metric(metric, p), 700, 5, 256
    X = np.random.default_rng(0).normal(size=(n, 30))
    X = (X > 0).astype(np.float64) if takes_booleans(metric.name) else X
    rows, part = metric_rows(metric, X, CPU), (np.arange(n) >= split).astype(np.int32)
    distances = np.where(part[:, None] == part, np.inf, distances_of_all_pairs(metric, rows))
    on_rows, groups = engine.xp.arange(n, dtype="int32"), engine.asarray(part)
    search = oracles.SearchKind(engine.name, "brute_force")(rows, metric=metric)
    assert_lists(search.find(SearchTask(on_rows, k, groups, groups, split=split)), least(distances, k))


#: Metrics with each device that filters them.
FILTERED = [
    pytest.param(metric, p, device, marks=[pytest.mark.gpu] if device == "cuda" else [])
    for metric, p in ALL_METRICS
    for device in oracles.DEVICES
    if (kind := get_metric(metric, p).filter) == "product"
    or (kind == "direct" and device == "cuda" and filter_formula(get_metric(metric, p)))
]


def filters(metric, rows, engine):
    """All filters that the device has for some rows, from the coarsest on."""
    filter_ = choose_filter(ExactPoints(*[engine.asarray(rows)] * 2, metric), engine)
    filter_.arrange()
    while filter_ is not None:
        yield filter_
        filter_ = filter_.finer()


def passed(filter_, bound, engine):
    """What passes for every row with these bounds, all points being wanted."""
    xp, n = engine.xp, bound.size
    ids = xp.arange(n, dtype="int32")
    groups = xp.zeros(n, "int32"), xp.ones(n, "int32")
    task = SearchTask(ids, 1, *groups)
    return filter_.candidates(filter_.query(ids), slice(0, n), bound, groups, task)


@pytest.mark.parametrize("d", [40, full(9), full(300)])
@pytest.mark.parametrize(("metric", "p", "device"), FILTERED, indirect=["device"])
def test_no_pair_fails_the_filter_at_its_own_value(metric, p, d, engine):
    """Rows as near, as far and as uneven as float64 has them; every pair must pass when its value is the bound."""
    metric = get_metric(metric, p)
    rng = np.random.default_rng(d)
    X = rng.normal(size=(60, d)) * 10.0 ** rng.integers(-12, 12, (60, 1))
    X[20:40] = X[:20] * (1 + rng.normal(size=(20, d)) * 10.0 ** rng.integers(-16, -1, (20, 1)))
    X[40:50] = np.round(X[40:50]) + np.arange(d) % 5
    if takes_booleans(metric.name):
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, X, CPU)
    distances = distances_of_all_pairs(metric, rows)
    i = np.arange(60)
    for filter_ in filters(metric, rows, engine):
        for shift in range(1, 60):
            other = (i + shift) % 60
            found = passed(filter_, engine.asarray(distances[i, other]), engine)
            ids = to_host(found.ids if found.order is None else found.order[found.ids % 60])  # % for what is unwritten
            written = np.arange(found.capacity) < to_host(found.count)[:, None]
            assert ((ids == other[:, None]) & written).any(axis=1).all()


@pytest.mark.parametrize(
    ("metric", "p", "device"),
    [case for case in FILTERED if case.values[0] != "minkowski" or case.values[1] in (1.5, 3.0)],
    indirect=["device"],
)
def test_the_filter_is_tight(metric, p, engine):
    """A filter that lets everything pass would prove nothing."""
    metric = get_metric(metric, p)
    X = np.random.default_rng(0).normal(size=(500, 30))
    if takes_booleans(metric.name):
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, X, CPU)
    distances = distances_of_all_pairs(metric, rows)
    bound = np.sort(distances, axis=1)[:, 12]
    found = passed(next(filters(metric, rows, engine)), engine.asarray(bound), engine)
    assert int(found.count.sum()) <= 1.2 * (distances <= bound[:, None]).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 127, 128, 129, 136, 257, 1000, 2500])
@pytest.mark.parametrize("centre", [False, True])
def test_norms_and_means(centre, d, dtype, engine):
    """NumPy's mean and SciPy's norm, to the bit; SciPy shows its norm in the cosine of orthogonal rows only."""
    rng = np.random.default_rng(d)
    X = ((rng.normal(size=(40, d)) + 3) * 10.0 ** rng.integers(-5, 5, (40, 1))).astype(dtype)
    rows = to_host(exact_kernels(engine).with_norms(engine.asarray(X), centre))
    expected = X.astype(np.float64)
    if centre:
        expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_array_equal(rows[:, :d], expected)
    np.testing.assert_allclose(rows[:, d], np.linalg.norm(expected, axis=1), rtol=1e-14)


@given(st.floats(0, 1e300), st.floats(0.01, 60))
def test_general_powers_are_right_to_two_units(t, p):
    with np.errstate(over="ignore", under="ignore"):
        exact = np.longdouble(t) ** np.longdouble(p)
    found = formulas.general_power(t, p)
    if exact > np.finfo(np.float64).max:
        assert found > 1e308
    elif exact > 1e-300:
        assert abs(found - exact) <= 2 * np.spacing(np.float64(exact))
    else:
        assert found <= 2e-300


@pytest.mark.parametrize("p", [1.5, 2.3, 7.7])
def test_powers_on_the_device_are_the_cpus(p, engine):
    rng = np.random.default_rng(0)
    X = (10.0 ** rng.uniform(-150, 100, 5000) * rng.uniform(1, 10, 5000))[:, None]
    X[::7] = 1 + rng.integers(-50, 50, (len(X[::7]), 1)) * 2.0**-52
    X = np.concatenate([np.zeros((1, 1)), X])
    src, dst = np.zeros(5000, np.int32), np.arange(1, 5001, dtype=np.int32)
    metric = get_metric("minkowski", p)
    found = exact_kernels(engine).pair_distances(*map(engine.asarray, (X, src, dst)), metric=metric)
    expected = np.minimum([formulas.power(x, p) for x in X[1:, 0]], metrics.OVERFLOW)
    np.testing.assert_array_equal(to_host(found), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [11, 15, 16, 127])
@pytest.mark.parametrize("name", ["cosine", "correlation", "inner_product"])
def test_a_gpu_sums_all_features_of_float32(name, d):
    """The formula sums an even number of them, and a row is copied 16 bytes at a time."""
    metric, lists = get_metric(name, 2.0), []
    X = np.random.default_rng(d).normal(size=(3000, d)).astype(np.float32)
    for device in (CPU, resolve("cuda")):
        rows = metric_rows(metric, device.asarray(X), device)
        lists.append(neighbor_lists(BruteForceSearch(rows, device, Report(), metric=metric), 3000, 5, device))
    np.testing.assert_array_equal(to_host(lists[1].ids), lists[0].ids)
    np.testing.assert_array_equal(to_host(lists[1].weights), lists[0].weights)

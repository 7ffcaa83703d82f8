"""Every metric against SciPy's `pdist` on the hard cases, what it refuses, its kernels, and what the table promises."""

import math
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import haversine_distances

import rapids_slink
from rapids_slink import SingleLinkage, fit, fit_graph, knn_graph, metrics, nearest_neighbors
from rapids_slink.device import CPU, gpu_is_usable, resolve, to_host
from rapids_slink.metrics import KERNELS, METRICS, NAMES, get_metric
from rapids_slink.neighbors import neighbor_lists, pairs, prepare
from rapids_slink.neighbors.contract import Task
from rapids_slink.neighbors.direct import DirectSearch
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report

#: (name, p) of everything that SciPy has.
SCIPYS = [
    *((name, 2.0) for name in METRICS if name not in ("minkowski", "inner_product", "haversine")),
    *(("minkowski", p) for p in (1.0, 1.5, 2.0, 2.3, 3.0, 4.0, 12.0, 40.5, math.inf)),
]
HARD = [name for name in CASES if name != "one_row"]  # SciPy has no linkage of one
EVERY_METRIC = pytest.mark.parametrize(("metric", "p"), SCIPYS)


@cache
def points(name, metric):
    """A case, at most 450 rows of it; for jaccard whether each value is above its column's median."""
    X = CASES[name]("float64")
    X = X[:: -(-len(X) // 450)]
    if metric == "jaccard":
        X = (np.median(X, axis=0) < X).astype(np.float64)
    X = np.ascontiguousarray(X)
    X.flags.writeable = False
    return X


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
    if get_metric(metric, p).kernel != "powers":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_max_ulp(found, expected, 4)


# -------------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize("name", HARD)
@EVERY_METRIC
def test_heights_are_scipys(metric, p, name, device):
    X = points(name, metric)
    expected = all_pairs(X, metric, p)
    heights = tree_weights(np.where(np.isfinite(expected), expected, np.inf))
    if np.isnan(expected).any() or np.isinf(heights).any():
        with pytest.raises(ValueError, match=rf"no {metric} distance|{metric} distance (of rows|is not defined)"):
            fit(X, 1, metric=metric, p=p, device=device)
        return
    for n_neighbors in (1, 2, 3, 8, None):
        model = fit(X, 1, metric=metric, p=p, n_neighbors=n_neighbors, device=device)
        found = model.to_scipy()
        assert_scipys(found[:, 2], heights, metric, p)
        assert (np.diff(found[:, 2]) >= 0).all()
        src, dst, weight = (to_host(model.mst_[column].values) for column in ("src", "dst", "weight"))
        np.testing.assert_array_equal(weight, found[:, 2])
        assert_scipys(weight, squareform(expected)[src, dst], metric, p)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int16"])
@EVERY_METRIC
def test_types_are_taken_at_their_value(metric, p, dtype, device):
    X = np.random.default_rng(5).integers(0, 2 if metric == "jaccard" or dtype == "bool" else 50, (120, 17))
    X[X.max(axis=1) == X.min(axis=1), 0] += 1
    X = X.astype(dtype)
    model = fit(X, 1, metric=metric, p=p, n_neighbors=2, device=device)
    expected = hierarchy.linkage(all_pairs(X.astype(np.float64), metric, p), "single")
    assert_scipys(model.to_scipy()[:, 2], expected[:, 2], metric, p)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(("metric", "p"), [*SCIPYS, ("minkowski", 0.7), ("inner_product", 2.0)])
def test_proven_lists_are_right(metric, p, name, where):
    """Every row's list against its values with all others: a tree made of wrong lists may be right all the same."""
    X, metric = np.ascontiguousarray(points(name, metric), float), get_metric(metric, p)
    try:
        rows = metric_rows(metric, where.asarray(X), where)
    except ValueError:
        pytest.skip("a row has no distances")
    n, xp = len(rows), where.xp
    everyone, no_bound = xp.arange(n, dtype="int32"), xp.full(n, xp.inf)
    for k in (1, 5):
        lists = neighbor_lists(prepare(rows, where, Report(), metric=metric), n, k, where)
        kernels = where.kernels("neighbors")
        some = everyone[:: max(1, n // 400)]
        ids, weights = kernels.rerank_all(
            rows, rows, some, some, everyone, no_bound[: some.size], min(k, n - 1), metric=metric
        )
        np.testing.assert_array_equal(to_host(lists.ids[some]), to_host(ids))
        np.testing.assert_array_equal(to_host(lists.weights[some]), to_host(weights))


@pytest.mark.gpu
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(("metric", "p"), [*SCIPYS, ("minkowski", 0.7), ("inner_product", 2.0)])
def test_gpu_and_cpu_give_the_same_bits(metric, p, name):
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
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


@pytest.mark.parametrize("d", [2, 9, 30])
@EVERY_METRIC
def test_knn_graph(metric, p, d, device):
    X = np.random.default_rng(d).integers(1, 9, (400, d)) / 8
    X = (X > 0.5).astype(float) if metric == "jaccard" else X + np.arange(d) / 64
    graph = knn_graph(X, 6, metric=metric, p=p, device=device)
    apart = squareform(all_pairs(X, metric, p))
    np.fill_diagonal(apart, np.inf)
    expected = np.sort(apart, axis=1)[:, :6].ravel()
    src, dst, weight = (graph[column].to_numpy() for column in ("src", "dst", "weight"))
    assert_scipys(weight, expected, metric, p)
    assert_scipys(weight, apart[src, dst], metric, p)
    if get_metric(metric, p).kernel != "powers":
        np.testing.assert_array_equal(dst, np.argsort(apart, axis=1, kind="stable")[:, :6].ravel())


@pytest.mark.parametrize(("n", "m", "d"), [(300, 1000, 3), (300, 1000, 20), (1, 500, 9), (500, 1, 9), (7, 5, 2)])
@EVERY_METRIC
def test_nearest_neighbors(metric, p, n, m, d, device):
    rng = np.random.default_rng(n + m)
    X, Y = rng.integers(1, 5, (n, d)) / 4 + np.arange(d), rng.integers(1, 5, (m, d)) / 4 + np.arange(d)
    if metric == "jaccard":
        X, Y = X % 1 > 0.3, Y % 1 > 0.3
    found = nearest_neighbors(X, Y, metric=metric, p=p, device=device)
    expected = all_pairs(X, metric, p, Y)
    np.testing.assert_array_equal(found["src"], np.arange(n))
    # cdist's cosine and correlation sum in another order than pdist's.
    loose = get_metric(metric).kernel == "cosine"
    near = expected[np.arange(n), found["dst"].to_numpy()]
    if loose:
        np.testing.assert_allclose(found["weight"], expected.min(axis=1), rtol=0, atol=1e-15)
        np.testing.assert_allclose(found["weight"], near, rtol=0, atol=1e-15)
    else:
        assert_scipys(found["weight"].to_numpy(), expected.min(axis=1), metric, p)
        assert_scipys(found["weight"].to_numpy(), near, metric, p)


@pytest.mark.parametrize("d", [3, 12])
def test_inner_product_gives_the_maximum_spanning_tree_of_dot_products(d, device):
    X = np.random.default_rng(d).integers(-9, 10, (300, d)).astype(np.float64)
    expected = hierarchy.linkage(squareform(1000 - X @ X.T, checks=False), "single")[:, 2] - 1000
    for n_neighbors in (1, None):
        model = fit(X, 3, metric="inner_product", n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)
    assert expected[0] < 0
    graph = knn_graph(X, 2, metric="inner_product", device=device)
    others = X @ X.T
    np.fill_diagonal(others, -np.inf)
    np.testing.assert_array_equal(graph["weight"].to_numpy()[::2], -others.max(axis=1))


@pytest.mark.parametrize("draw", ["normal", "integers"])
def test_a_dissimilarity_of_ones_own_is_a_graph(draw, device):
    """No triangle inequality, negative values, and ties among the integers."""
    rng = np.random.default_rng(0)
    src, dst = np.triu_indices(80, 1)
    own = rng.normal(size=src.size) if draw == "normal" else rng.integers(-3, 90, src.size).astype(float)
    Z = hierarchy.linkage(own, "single")
    shuffled = rng.permutation(src.size)
    edges = pd.DataFrame({"src": dst, "dst": src, "weight": own}).iloc[shuffled]
    model = fit_graph(edges, 5, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], Z[:, 2])
    threshold = float(np.median(Z[:, 2]))
    below = own < threshold
    _, expected = connected_components(coo_array((below[below], (src[below], dst[below])), shape=(80, 80)))
    assert adjusted_rand_score(expected, to_host(model.cut(distance_threshold=threshold).values)) == 1


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "tight_clusters", "images", "repeated_rows"])
@pytest.mark.parametrize("metric", ["cityblock", "chebyshev", "canberra", "braycurtis", "hamming", "jaccard", "cosine"])
def test_mutual_reachability_in_every_metric(metric, name, device):
    X = points(name, metric)
    apart = squareform(all_pairs(X, metric, 2.0))
    for min_samples in (2, 5):
        core = np.sort(apart, axis=1)[:, min_samples]
        weights = np.maximum(apart, np.maximum(core[:, None], core))
        np.fill_diagonal(weights, 0.0)
        expected = hierarchy.linkage(squareform(weights, checks=False), "single")[:, 2]
        for n_neighbors in (1, None):
            model = fit(X, 1, metric=metric, min_samples=min_samples, n_neighbors=n_neighbors, device=device)
            np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


# ------------------------------------------------------------------------------------------------ on the sphere


def places(n=900, seed=0):
    """Latitudes and longitudes: the poles, the date line, equal places and antipodes among them."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.arcsin(rng.uniform(-1, 1, n)), rng.uniform(-np.pi, np.pi, n)])
    X[0], X[1], X[2], X[3] = (np.pi / 2, 0), (-np.pi / 2, 1), (0.3, np.pi), (0.3, -np.pi)
    X[4], X[5] = X[6], (-X[7, 0], X[7, 1] - np.pi)
    X[8:20] = X[20:32] + rng.normal(size=(12, 2)) * 1e-9
    return X


@pytest.mark.parametrize("n_neighbors", [1, 3, None])
def test_haversine_is_the_great_circle(n_neighbors, device):
    X = places()
    model = fit(X, 4, metric="haversine", n_neighbors=n_neighbors, device=device)
    apart = haversine_distances(X)
    expected = hierarchy.linkage(squareform(apart, checks=False), "single")[:, 2]
    np.testing.assert_allclose(model.to_scipy()[:, 2], expected, rtol=1e-13, atol=4e-15)
    src, dst, weight = (to_host(model.mst_[column].values) for column in ("src", "dst", "weight"))
    np.testing.assert_allclose(weight, apart[src, dst], rtol=1e-13, atol=1e-16)
    assert (np.diff(weight) >= 0).all()


def test_haversine_of_two_sets_and_lists(device):
    X, Y = places(200, 1), places(700, 2)
    found = nearest_neighbors(X, Y, metric="haversine", device=device)
    np.testing.assert_allclose(found["weight"], haversine_distances(X, Y).min(axis=1), rtol=1e-13, atol=4e-15)
    graph = knn_graph(X, 5, metric="haversine", device=device)
    apart = haversine_distances(X)
    np.fill_diagonal(apart, np.inf)
    expected = np.sort(apart, axis=1)[:, :5]
    np.testing.assert_allclose(graph["weight"].to_numpy().reshape(-1, 5), expected, rtol=1e-13, atol=4e-15)


# -------------------------------------------------------------------------------------------------- refusals


ZEROS = [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("metric", "X", "message"),
    [
        ("cosine", ZEROS, "row 1 of X has no cosine distance: its squares sum to zero"),
        ("correlation", [[1.0, 2.0], [3.0, 3.0]], "row 1 of X has no correlation distance: all its values are equal"),
        ("cosine", [[1.0, 2.0], [1e155, 1e155]], "Squared distances overflow"),
        ("cosine", [[1e300, 2.0], [1e300, 1.0]], "row 0 of X has no cosine distance: its values are too large"),
        ("braycurtis", ZEROS, "rows 1 and 2 of X are zero in every column"),
        ("braycurtis", [[1.0, -2.0], [-1.0, 2.0]], "the braycurtis distance of rows 0 and 1 is not finite"),
        ("jaccard", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.5]], "takes booleans .*: row 2 of X"),
        ("inner_product", [[1e300, 2.0], [1e300, 1.0]], "row 0 of X is too long for metric='inner_product'"),
        ("haversine", [[0.0, 1.0, 2.0]] * 2, "takes two columns, .*; X has 3"),
        ("haversine", [[0.0, 1.0], [52.5, 13.4]], "row 1 of X has 52.5. Convert degrees to radians"),
    ],
)
def test_rows_without_a_distance_are_refused(metric, X, message, device):
    for call in (
        lambda: fit(X, 1, metric=metric, device=device),
        lambda: knn_graph(X, 1, metric=metric, device=device),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_minkowski_beyond_float64_is_refused_only_where_it_matters(device):
    X = np.concatenate([np.arange(40.0), 1e120 + np.arange(40.0) * 1e106])[:, None] * np.ones(9)
    with pytest.raises(ValueError, match=r"the minkowski distance of rows \d+ and \d+ is not finite in float64"):
        fit(X, 2, metric="minkowski", p=3, device=device)
    graph = knn_graph(X, 3, metric="minkowski", p=2.5, device=device)
    assert np.isfinite(graph["weight"]).all()


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
        ("cosin", 2, ValueError, "metric must be one of 'euclidean', .*'haversine', got 'cosin'"),
        (None, 2, ValueError, "metric must be one of .*, got None"),
        ("minkowski", 0, ValueError, r"p must be above 0, got 0\.0"),
        ("minkowski", math.nan, ValueError, "p must be above 0, got nan"),
        ("minkowski", "3", TypeError, "p must be a number, got '3'"),
        ("minkowski", True, TypeError, "p must be a number, got True"),
    ],
)
def test_parameters_are_checked(metric, p, error, message, device):
    X = np.eye(3)
    for call in (
        SingleLinkage(1, metric=metric, p=p, device=device).fit,
        lambda X: knn_graph(X, 1, metric=metric, p=p),
    ):
        with pytest.raises(error, match=message):
            call(X)


# ---------------------------------------------------------------------------------------------- the table


def test_aliases_and_special_powers():
    assert {alias: NAMES[alias].name for alias in ("manhattan", "l1", "l2")} == {
        "manhattan": "cityblock", "l1": "cityblock", "l2": "euclidean",
    }  # fmt: skip
    assert [get_metric("minkowski", p).name for p in (1, 2, np.inf, 3)] == [
        "cityblock", "euclidean", "chebyshev", "minkowski",
    ]  # fmt: skip


def test_documentation_names_every_metric_as_the_table_has_it():
    """The module's own table says of each metric what its row says; the functions' docstrings name them all."""
    rows = dict(re.findall(r"^(\w+) +.*?(product|direct) +(?:yes|no)$", metrics.__doc__, re.MULTILINE))
    boxes = dict(re.findall(r"^(\w+) +.* (yes|no)$", metrics.__doc__, re.MULTILINE))
    assert rows == {name: metric.filter for name, metric in METRICS.items()}
    assert boxes == {name: "yes" if metric.boxes else "no" for name, metric in METRICS.items()}
    for documented in (SingleLinkage, knn_graph):
        assert set(NAMES) - {"l2"} <= set(re.findall(r'"(\w+)"', documented.__doc__))


def test_every_kernel_has_its_struct():
    source = (metrics.__file__.rpartition("/")[0]) + "/neighbors/canonical.cuh"
    with open(source) as file:
        structs = re.findall(r"^struct (\w+)", file.read(), re.MULTILINE)
    assert sorted(structs) == sorted(KERNELS)
    assert {metric.kernel for metric in METRICS.values()} == set(KERNELS)


# ------------------------------------------------------------------------------------- kernels and searches


def searches(metric, X, where):
    """All searches that can serve the metric."""
    yield (TileSearch if metric.filter == "product" else DirectSearch)(X, where, Report(), metric=metric)
    if metric.boxes and X.shape[1] <= 8:
        if where.name == "cuda":
            from rapids_slink.neighbors.bvh import BoxSearch

            yield BoxSearch(X, where, Report(), metric=metric)
        else:
            yield TreeSearch(X, where, Report(), metric=metric)


def exact_lists(metric, rows, group, upper, k):
    """Each row's k least in the total order, from all the kernel's values on the CPU."""
    n = len(rows)
    src, dst = (part.ravel().astype(np.int32) for part in np.indices((n, n)))
    from rapids_slink.neighbors.cpu import pair_values

    apart = pair_values(rows, src, dst, metric=metric).reshape(n, n)
    apart[(group[:, None] == group) | (apart > upper[:, None])] = np.inf
    ids = np.argsort(apart, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(apart, ids, axis=1)
    return np.where(np.isinf(weights), -1, ids), weights


OURS = [*SCIPYS, ("minkowski", 0.6), ("inner_product", 2.0)]


@pytest.mark.parametrize(
    "name", ["uneven_blobs_8d", "cauchy_3d", "tight_clusters", "images", "repeated_rows", "mixed_magnitudes",
             "one_far_outlier", "offset_1e7", "exponential_gaps_12d", "last_bit"]
)  # fmt: skip
@pytest.mark.parametrize(("metric", "p"), OURS)
def test_searches_find_the_least_values(metric, p, name, where):
    """In groups and with bounds, in the total order, from the kernel's values of all pairs on the CPU."""
    metric = get_metric(metric, p)
    X = points(name, metric.name)[:700]
    try:
        rows = metric_rows(metric, X, CPU)
    except ValueError:
        pytest.skip("rows without a distance")
    rng = np.random.default_rng(0)
    n = len(X)
    everyone = np.arange(n, dtype=np.int32)
    for group, k in ((everyone, 4), (rng.integers(0, 5, n).astype(np.int32), 1)):
        upper = np.where(rng.random(n) < 0.5, np.inf, 1.0) if k == 1 else np.full(n, np.inf)
        expected = exact_lists(metric, rows, group, upper, k)
        for search in searches(metric, where.asarray(rows), where):
            task = Task(
                *(where.asarray(part) for part in (everyone,)), k, *[where.asarray(group)] * 2, where.asarray(upper)
            )
            found = search.find(task)
            np.testing.assert_array_equal(to_host(found.ids), expected[0])
            np.testing.assert_array_equal(to_host(found.weights), expected[1])


@pytest.mark.parametrize("d", [9, 40, 300])
@pytest.mark.parametrize(("metric", "p"), OURS)
def test_no_pair_fails_the_filter_at_its_own_value(metric, p, d, where):
    """Rows as near, as far and as uneven as float64 has them; every pair must be kept when its value is the bound."""
    metric = get_metric(metric, p)
    rng = np.random.default_rng(d)
    X = rng.normal(size=(60, d)) * 10.0 ** rng.integers(-12, 12, (60, 1))
    X[20:40] = X[:20] * (1 + rng.normal(size=(20, d)) * 10.0 ** rng.integers(-16, -1, (20, 1)))
    X[40:50] = np.round(X[40:50]) + np.arange(d) % 5
    if metric.kernel == "jaccard":
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, where.asarray(X), where)
    search = (TileSearch if metric.filter == "product" else DirectSearch)(
        rows, where, Report(), metric=metric, **({"fused": False} if metric.filter == "product" else {})
    )
    if not search.provable:
        pytest.skip("no filter")
    xp, n, kernels = where.xp, len(X), where.kernels("neighbors")
    groups = xp.zeros(n, "int32"), xp.ones(n, "int32")
    ids = xp.arange(n, dtype="int32")
    operand = search.packed(ids)
    columns = search._pack(search.points)
    for shift in range(1, n):
        other = (ids + shift) % n
        value = kernels.pair_values(rows, ids, other.astype("int32"), metric=metric)
        candidates = kernels.new_candidates(n, 1)
        search._keep(operand, columns, search._reach(value, operand.error), *groups, ids, candidates)
        kept, count = to_host(candidates.ids), to_host(candidates.count).ravel()
        for i in range(n):
            assert (i + shift) % n in kept[i, : count[i]]


@pytest.mark.parametrize(("metric", "p"), [(m, p) for m, p in OURS if m not in ("minkowski",) or p in (1.5, 3.0)])
def test_the_filter_is_tight(metric, p, where):
    """A filter that lets everything pass would prove nothing."""
    metric = get_metric(metric, p)
    X = np.random.default_rng(0).normal(size=(500, 30))
    if metric.kernel == "jaccard":
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, where.asarray(X), where)
    kind = TileSearch if metric.filter == "product" else DirectSearch
    search = kind(rows, where, Report(), metric=metric, fused=False)
    found = neighbor_lists(search, 500, 12, where)
    xp, kernels = where.xp, where.kernels("neighbors")
    ids, bound = xp.arange(500, dtype="int32"), found.weights[:, -1]
    operand = search.packed(ids)
    candidates = kernels.new_candidates(500, 40)
    groups = xp.zeros(500, "int32"), xp.ones(500, "int32")
    search._keep(operand, search._pack(search.points), search._reach(bound, operand.error), *groups, ids, candidates)
    src, dst = (xp.asarray(part.ravel().astype("int32")) for part in np.indices((500, 500)))
    within = kernels.pair_values(rows, src, dst, metric=metric).reshape(500, 500) <= bound[:, None]
    assert int(candidates.count.sum()) <= 1.2 * int(within.sum())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 127, 128, 129, 136, 257, 1000, 2500])
@pytest.mark.parametrize("centre", [False, True])
def test_norms_and_means(centre, d, dtype, where):
    """NumPy's mean and SciPy's norm, to the bit; SciPy shows its norm in the cosine of orthogonal rows only."""
    rng = np.random.default_rng(d)
    X = ((rng.normal(size=(40, d)) + 3) * 10.0 ** rng.integers(-5, 5, (40, 1))).astype(dtype)
    rows = to_host(where.kernels("neighbors").with_norms(where.asarray(X), centre))
    expected = X.astype(np.float64)
    if centre:
        expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_array_equal(rows[:, :d], expected)
    np.testing.assert_allclose(rows[:, d], np.linalg.norm(expected, axis=1), rtol=1e-14)


@given(st.floats(0, 1e300), st.floats(0.01, 60))
def test_general_powers_are_right_to_two_units(t, p):
    with np.errstate(over="ignore", under="ignore"):
        exact = np.longdouble(t) ** np.longdouble(p)
    found = pairs.general_power(t, p)
    if exact > np.finfo(np.float64).max:
        assert found > 1e308
    elif exact > 1e-300:
        assert abs(found - exact) <= 2 * np.spacing(np.float64(exact))
    else:
        assert found <= 2e-300


@pytest.mark.parametrize("p", [1.5, 2.3, 7.7])
def test_powers_on_the_device_are_the_cpus(p, where):
    rng = np.random.default_rng(0)
    X = (10.0 ** rng.uniform(-150, 100, 5000) * rng.uniform(1, 10, 5000))[:, None]
    X[::7] = 1 + rng.integers(-50, 50, (len(X[::7]), 1)) * 2.0**-52
    X = np.concatenate([np.zeros((1, 1)), X])
    src, dst = np.zeros(5000, np.int32), np.arange(1, 5001, dtype=np.int32)
    metric = get_metric("minkowski", p)
    found = where.kernels("neighbors").pair_values(*map(where.asarray, (X, src, dst)), metric=metric)
    expected = np.minimum([pairs.power(x, p) for x in X[1:, 0]], metrics.BEYOND)
    np.testing.assert_array_equal(to_host(found), expected)


@pytest.mark.parametrize(
    ("metric", "p"),
    [("euclidean", 2.0), ("cityblock", 2.0), ("chebyshev", 2.0), ("minkowski", 3.0), ("minkowski", 1.7)],
)
def test_boxes_are_nearer_than_their_points(metric, p):
    rule = get_metric(metric, p).rule
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e-12):
        inside = 1 + scale * rng.normal(size=(3, 20_000))
        x = 1 + 3 * scale * rng.normal(size=(3, 16))
        around = x.min(axis=1), x.max(axis=1)
        values, to_boxes = np.empty(20), np.empty(16)
        for at in range(0, 20_000, 20):
            part = inside[:, at : at + 20]
            box = part.min(axis=1)[None], part.max(axis=1)[None], 0
            pairs.to_boxes(rule, x, *box, to_boxes)
            assert pairs.box_to_box(rule, *around, *box) <= to_boxes.min()
            i = at // 20 % 16
            point = x[:, i].copy()
            assert pairs.box_to_box(rule, point, point, *box) == to_boxes[i]
            pairs.to_points(rule, x, i, inside, at, values)
            assert to_boxes[i] <= values.min()
            of_rows = [pairs.value(rule, x.T, i, inside.T, at + j, np.inf) for j in range(20)]
            np.testing.assert_array_equal(values, of_rows)


# -------------------------------------------------------------------------------------- what a user holds


def test_a_frame_a_pipeline_and_the_report(device):
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 3)), columns=list("abc"), index=range(100, 150))
    model = SingleLinkage(3, metric="manhattan", device=device).fit(frame)
    assert model.report_["metric"] == "cityblock"
    assert model.labels_.index.equals(frame.index)
    assert (model.get_params()["metric"], model.get_params()["p"]) == ("manhattan", 2.0)
    assert rapids_slink.fit(frame, 3, metric="minkowski", p=1, device=device).report_["metric"] == "cityblock"


def test_one_row_of_every_metric(device):
    for name in METRICS:
        X = [[1.0, 0.0]]
        assert fit(X, 1, metric=name, device=device).n_clusters_ == 1


def test_the_search_suits_the_metric():
    X = np.random.default_rng(0).random((50, 3))
    for name, metric in METRICS.items():
        kind = type(prepare(X, resolve("cpu"), Report(), metric=metric))
        expected = TreeSearch if metric.boxes else TileSearch if metric.filter == "product" else DirectSearch
        assert kind is expected, name

"""Partial distances on principal axes: a bound, and a filter where it pays."""

import numpy as np
import pytest
from hard_cases import combinations, full
from oracles import assert_lists, least, squared_distances, without_self
from scipy.spatial.distance import cdist

import rapids_slink
from rapids_slink.forced import force
from rapids_slink.metrics import METRICS
from rapids_slink.neighbors import choose, neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter import PrincipalAxes, scaling_of
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.points.output import on_host
from rapids_slink.report import Report
from rapids_slink.runtime.device import resolve, to_host


def falling(n, d, power, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -power) @ np.linalg.qr(rng.normal(size=(d, d)))[0]


KINDS = ("falling", "low rank", "offset", "outlier", "slanted axes")


@pytest.mark.parametrize(("kind", "m"), combinations(KINDS, (1, 28, 96), quick=[(kind, 28) for kind in KINDS]))
def test_coordinates_are_no_farther_apart_than_points(m, kind, engine):
    n, d = 200, 96
    X = falling(n, d, 1.0)
    if kind == "low rank":
        X = X[:, :5] @ X[:5]
    X += 1e4 if kind == "offset" else 0
    X[7] *= 1e5 if kind == "outlier" else 1
    axes = np.linalg.svd(X - X.mean(axis=0))[2][:m].T
    axes = axes + (1e-3 * np.random.default_rng(1).normal(size=axes.shape) if kind == "slanted axes" else 0)
    values = engine.asarray(X)
    map_ = PrincipalAxes.of(
        values, scaling_of(values, device=engine), engine.asarray(np.ascontiguousarray(axes)), engine
    )
    z = to_host(map_.coordinates(values)).astype(np.longdouble)
    x = X.astype(np.longdouble) * map_.scaling.scale
    for i in range(0, n, 13):
        distance = np.sqrt(((x - x[i]) ** 2).sum(axis=1))
        partial = np.sqrt(((z - z[i]) ** 2).sum(axis=1))
        assert (partial <= map_.stretch * distance + 2 * map_.error).all()
    if kind == "falling" and m > 1:
        assert map_.stretch < 1 + 1e-9
        assert partial.mean() > 0.5 * distance.mean()


@pytest.mark.parametrize("d", [40, 300, full(3000)])
def test_axes_are_the_leading_ones(d, engine):
    """Of fewer features than rows of the sample and of more, the first axes hold what the best ones would."""
    noise = np.random.default_rng(0).normal(size=(200, d))
    X = noise * np.arange(1, d + 1) ** -0.8 + 3
    values = engine.asarray(X)
    axes = to_host(choose._leading_axes(values, scaling_of(values, device=engine), False, engine.xp))
    m = min(d, 200)
    assert axes.shape == (d, m)
    np.testing.assert_allclose(axes.T @ axes, np.eye(m), atol=1e-9)
    centred = X - X.mean(axis=0)
    variance, best = ((centred @ axes) ** 2).sum(axis=0).cumsum(), (np.linalg.svd(centred)[1] ** 2).cumsum()
    for first in (4, 16, 64):
        assert variance[min(first, m) - 1] > 0.8 * best[min(first, m) - 1]
    values = engine.asarray(noise)
    no_few = choose._leading_axes(values, scaling_of(values, device=engine), True, engine.xp) is None
    assert no_few == (d < 3000)  # of more the sample does not tell


@pytest.mark.parametrize("metric", ["euclidean", full("cosine")])
def test_axes_are_taken_where_the_spectrum_falls(metric, engine, set_costs):
    set_costs(forest=0, **({"product": 1e-12, "survivor": 1e-9, "byte": 0, "rounding": 0.01} if engine.is_gpu else {}))
    n, k = 3000 if engine.is_gpu else 1500, 5
    for power, projects in ((0.0, False), (1.5, True)):
        X, report = falling(n, 160, power).astype(np.float32), Report()
        rows = metric_rows(METRICS[metric], engine.asarray(X), engine)
        search = BruteForceSearch(rows, engine, report, metric=METRICS[metric])
        assert ("coordinates" in search.name) == projects
        lists = neighbor_lists(search, n, k, engine)
        assert report["neighbors"]["rows_certified"] > n / 2
        if metric == "euclidean":
            assert_lists(lists, least(without_self(squared_distances(X.astype(float))), k))
        else:
            with force(filter="products"):
                plain = neighbor_lists(BruteForceSearch(rows, engine, Report(), metric=METRICS[metric]), n, k, engine)
            assert_lists(lists, (to_host(plain.ids), to_host(plain.weights)))


@pytest.mark.parametrize("metric", ["cosine", full("euclidean")])
def test_lists_and_pairs_by_coordinates(metric, set_costs):
    """Lists, connecting searches and pairs within a distance."""
    X = falling(3000, 200, 0.9).astype(np.float32)
    X[1500:] += np.float32(0.05)
    found = []
    for least_products in (0, np.inf):
        set_costs(forest=least_products, product=1e-11, survivor=0, byte=1e-10, axis=0)
        tree = rapids_slink.fit(X, 3, metric=metric, n_neighbors=2, device="cpu")
        near = rapids_slink.pairs(X, max_distance=tree.linkage_["height"].median(), metric=metric, device="cpu")
        found.append((tree.linkage_["height"], *(near[name] for name in ("src", "dst", "weight"))))
        assert ("coordinates" in tree.report_["neighbors"]["filter"]) == (least_products == 0)
    assert found[0][1].size > 0
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_components_are_connected_with_all_features(engine, set_costs):
    """By their pairs, whose separations are of whole points."""
    X, trees = falling(9000 if engine.is_gpu else 4000, 100, 1.2), []
    for least_products in (0, np.inf):
        set_costs(forest=least_products)
        trees.append(rapids_slink.fit(X, 3, metric="cosine", device=engine.name))
    heights = [to_host(tree.linkage_["height"].values) for tree in trees]
    assert "coordinates" in trees[0].report_["neighbors"]["filter"] or engine.is_gpu
    np.testing.assert_array_equal(*heights)


@pytest.mark.parametrize("n", [1, 7, 9, 31, 33])
def test_fewer_points_than_a_query_has_neighbors(n, device, prescribe):
    """Among all points, or among the quarter that shows how survivors grow."""
    prescribe(filter="axes")
    X, Y = falling(400, 96, 1.5), falling(n, 96, 1.5, seed=1)
    found = on_host(rapids_slink.nearest_neighbors(X, Y, device=device))
    distances = cdist(X, Y, "sqeuclidean")
    np.testing.assert_array_equal(found["dst"], distances.argmin(axis=1))
    model = rapids_slink.fit(Y, 1, prediction_data=True, device=device)
    assert not to_host(model.predict(X)).any()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_few_axes_do_for_a_short_distance(metric, engine, set_costs):
    """Of near duplicates, whatever the spectrum."""
    set_costs(forest=0, **({"product": 1e-12, "survivor": 1e-9, "byte": 0, "rounding": 0.01} if engine.is_gpu else {}))
    X = falling(1000, 160, 0.0)
    X = np.concatenate([X, X + 1e-3 * np.random.default_rng(1).standard_normal(X.shape)]).astype(np.float32)
    near = rapids_slink.fit(X, max_distance=0.05, metric=metric, n_neighbors=3, device=engine.name)
    assert "coordinates" in near.report_["neighbors"]["filter"]
    whole = rapids_slink.fit(X, 1, metric=metric, n_neighbors=3, device=engine.name)
    heights = to_host(whole.linkage_["height"].values)
    np.testing.assert_array_equal(to_host(near.linkage_["height"].values), heights[heights <= 0.05])


@pytest.mark.gpu
@pytest.mark.parametrize(("block", "parts"), [(2**21, 1), (96, 5), (96 * 500, 3)])
def test_images_in_parts(block, parts, watch, set_constants):
    """The image of coordinates is the same in however many parts it is made."""
    import cupy

    from rapids_slink.neighbors.filter import fused as encodings

    engine, X = resolve("cuda"), falling(1500, 96, 1.0).astype(np.float32)
    values, axes = cupy.asarray(X), cupy.asarray(np.ascontiguousarray(np.linalg.svd(X)[2][:28].T, np.float64))
    encoding = encodings.Projected(values, PrincipalAxes.of(values, scaling_of(values, device=engine), axes, engine))
    order = cupy.arange(1500, dtype="int32")[::-1].copy()
    expected = encoding.encode(values, order, 1536)
    calls = watch(encoding, "_launch")
    set_constants(encodings, BLOCK_VALUES=block, MAX_PARTS=5)
    found = encoding.encode(values, order, 1536)
    assert len(calls) <= parts
    for name in ("y", "half_norm", "error"):
        np.testing.assert_array_equal(to_host(getattr(found, name)), to_host(getattr(expected, name)))

"""Strings, sets and sparse rows: pairs, nearest items, trees and clusters from the distances of all pairs."""

from itertools import product
from math import inf

import item_cases
import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations, full
from item_cases import EVERY_ITEM_METRIC, ITEM_METRICS, SETS, SPARSE, STRINGS, families, forms, some_items, table, words

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage
from rapids_slink.items import search
from rapids_slink.runtime.device import to_host

LIMITS = dict.fromkeys(STRINGS, (0, 0.5, 1, 2, 3, 5, 100)) | dict.fromkeys(SETS, (0, 0.3, 0.7, 1))
LIMITS |= {"cosine": (0, 0.2, 0.8, 1e300), "euclidean": (0, 0.2, 0.8, 4, 1e300)}


WAYS = None, "stored", "distances", "projections", "keys"
#: Each way with a metric of each kind, and each metric with two ways or more; `-m full` has all.
KINDS = STRINGS, SETS, SPARSE
QUICK = [(way, kind[(i + j) % len(kind)]) for i, way in enumerate(WAYS) for j, kind in enumerate(KINDS)]
EVERY_WAY = pytest.mark.parametrize(
    ("way", "metric"), [one if one in QUICK else full(*one) for one in product(WAYS, ITEM_METRICS)], indirect=["way"]
)


def drawn(name, values):
    """`QUICK` with one of the values in turn; `-m full` has all."""
    every = [(*one, values[i % len(values)]) for i, one in enumerate(product(WAYS, ITEM_METRICS))]
    cases = combinations(WAYS, ITEM_METRICS, values, quick=[one for one in every if one[:2] in QUICK], also=every)
    return pytest.mark.parametrize(("way", "metric", name), cases, indirect=["way"])


def limits(metric, way, turn=0):
    """Every second limit: of two tests each way has all of them."""
    return LIMITS[metric][(WAYS.index(way) + turn) % 2 :: 2]


@pytest.fixture
def way(request, prescribe, monkeypatch, set_constants):
    """The search that these few items would have, and each that others have, with several parts."""
    if request.param:
        prescribe(items=request.param)
        monkeypatch.setitem(search.MOST_PAIRS, "cpu", 1024)
        set_constants(search, KEYED_ITEMS=100)
    return request.param


@EVERY_WAY
def test_pairs(metric, way):
    values = words(90, seed=2) + item_cases.SPECIAL[:15] if metric in STRINGS else some_items(metric, 100, 1)
    distances, how = table(metric, values), {"metric": metric, "device": "cpu"}
    for limit in limits(metric, way):
        expected = item_cases.pairs_within(distances, limit)
        for X in forms(metric, values, way):
            pd.testing.assert_frame_equal(rapids_slink.pairs(X, max_distance=limit, **how), expected)
        assert rapids_slink.count_pairs(X, max_distance=limit, **how) == len(expected)
        parts = list(rapids_slink.iter_pairs(X, max_distance=limit, rows=40, **how))
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), expected)


@EVERY_WAY
def test_pairs_of_two_collections(metric, way):
    x, y, how = some_items(metric, 60, 3), some_items(metric, 80, 4), {"metric": metric, "device": "cpu"}
    x[:5] = y[:5]
    distances = table(metric, x, y)
    for limit in limits(metric, way, turn=1):
        src, dst = np.nonzero(distances <= limit)
        for X, Y in zip(forms(metric, x, way), forms(metric, y, way), strict=True):
            found = rapids_slink.pairs(X, Y, max_distance=limit, **how)
            np.testing.assert_array_equal(found[["src", "dst"]].to_numpy(), np.column_stack((src, dst)))
            np.testing.assert_array_equal(found["weight"], distances[src, dst])
        counts = rapids_slink.count_pairs(X, Y, max_distance=[limit, 0], **how)
        assert counts.tolist() == [src.size, int((distances == 0).sum())]
        parts = list(rapids_slink.iter_pairs(X, Y, max_distance=limit, rows=40, **how))
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), found)


@drawn("k", [1, 2, 33, 90])
def test_nearest(metric, k, way):
    """Of all, and of those with the same key; those at an infinite distance come last, the first ones first."""
    x, y = some_items(metric, 70, 10), some_items(metric, 90, 11)
    x[:5] = y[:5]
    distances, column = table(metric, x, y), np.broadcast_to(np.arange(90), (70, 90))
    for apart, groups in (
        (np.zeros((70, 90), bool), None),
        (np.arange(70)[:, None] % 4 != np.arange(90) % 5, (np.arange(70) % 4, np.arange(90) % 5)),
    ):
        ids = np.lexsort((column, distances, apart), axis=1)[:, :k]
        src, place = np.nonzero(~np.take_along_axis(apart, ids, axis=1))
        for X, Y in zip(forms(metric, x, way), forms(metric, y, way), strict=True):
            found = rapids_slink.nearest_neighbors(X, Y, k, metric=metric, groups=groups, device="cpu")
            np.testing.assert_array_equal(found["src"], src)
            np.testing.assert_array_equal(found["dst"], ids[src, place])
            np.testing.assert_array_equal(found["weight"], distances[src, ids[src, place]])


@drawn("samples", [1, 2, 5])
def test_trees_are_those_of_all_distances(metric, samples, way):
    """The same edges among equal weights, too."""
    for values in (some_items(metric, 90, 6), *(item_cases.tied_items(metric, n, samples) for n in (8, 70))):
        n, distances = len(values), table(metric, values)
        for limit in (None, -1, *LIMITS[metric][1:3]):
            how = {"min_samples": samples, "device": "cpu"}
            given = np.where(distances <= (inf if limit is None else limit), distances, inf)
            np.fill_diagonal(given, 0)
            exact = SingleLinkage(n, metric="precomputed", **how).fit(given)
            for X in forms(metric, values, way):
                found = SingleLinkage(n, metric=metric, max_distance=limit, **how).fit(X)
                pd.testing.assert_frame_equal(found.mst_, exact.mst_)
                pd.testing.assert_frame_equal(found.linkage_, exact.linkage_)


@pytest.mark.parametrize("way", [None, "projections", *map(full, ("stored", "distances", "keys"))], indirect=True)
@EVERY_ITEM_METRIC
def test_hdbscan(metric, way):
    values = families(100, elements=200, seed=5) if metric in SETS else some_items(metric, 100, 8)
    exact = HDBSCAN(4, 3, metric="precomputed", device="cpu").fit(table(metric, values))
    for X in forms(metric, values, way):
        found = HDBSCAN(4, 3, metric=metric, device="cpu").fit(X)
        np.testing.assert_array_equal(found.linkage_["height"], exact.linkage_["height"])
        np.testing.assert_array_equal(found.labels_, exact.labels_)


@pytest.mark.parametrize("samples", [1, 3])
@EVERY_ITEM_METRIC
def test_groups(metric, samples):
    values, keys = some_items(metric, 120, 9), np.random.default_rng(0).integers(0, 4, 120)
    for limit in (None, LIMITS[metric][2]):
        how = {"metric": metric, "max_distance": limit, "distance_threshold": LIMITS[metric][2], "device": "cpu"}
        for X in forms(metric, values):
            model = SingleLinkage(None, min_samples=samples, **how).fit(X, groups=keys)
            given = SingleLinkage(None, min_samples=samples, **how).fit(X, groups=keys.tolist())
            np.testing.assert_array_equal(given.labels_, model.labels_)
            labels, heights, count = np.empty(120, int), [], 0
            for key in range(4):
                own = np.flatnonzero(keys == key)
                part = X[own] if hasattr(X, "nnz") else [X[i] for i in own]
                alone = SingleLinkage(None, min_samples=samples, **how).fit(part)
                labels[own] = count + alone.labels_
                count += alone.n_clusters_
                heights += alone.linkage_["height"].tolist()
            assert model.n_clusters_ == count
            np.testing.assert_array_equal(pd.factorize(model.labels_)[0], pd.factorize(labels)[0])
            np.testing.assert_array_equal(model.linkage_["height"], sorted(heights))


@EVERY_ITEM_METRIC
def test_few_items_and_equal_ones(metric):
    some, large = some_items(metric, 30, 5)[:2], [[set(range(5000)), {7}]] * (metric in SETS)
    equal = some[:1] * 40 if metric not in SPARSE else np.repeat(some[:1], 40, axis=0)
    for values in (some[:1], some, equal, *large):
        distances, X = table(metric, values).astype(float), forms(metric, values)[0] if metric in SPARSE else values
        pairs = rapids_slink.pairs(X, max_distance=0.5, metric=metric, device="cpu")
        pd.testing.assert_frame_equal(pairs, item_cases.pairs_within(distances, 0.5))
        model = rapids_slink.fit(X, None, max_distance=1e300, metric=metric, device="cpu")
        assert model.n_leaves_ == len(values)
        merges = len(values) - 1 if np.isfinite(distances).all() else 0
        assert model.linkage_["height"].tolist() == [distances[0, -1]] * merges


@pytest.mark.gpu
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("groups", [1, 2, 4])  # of the four one is too small to be stored
@EVERY_ITEM_METRIC
def test_stored_trees_on_a_gpu_are_those_of_the_cpu(metric, groups, samples, prescribe):
    if metric in STRINGS:
        many = [words(1300, letters="ABCD", longest=20, seed=25)]
        if metric == "string_hamming":  # only words of one length have finite distances
            many = [[word.ljust(9, "A")[:9] for word in many[0]]]
    elif metric in SETS:
        many = [families(1250, seed=14) + families(50, seed=14)]
    else:
        X = np.round(3 * item_cases.rows(1300, 61, 0.1, seed=3))
        X[~X.any(axis=1), 0] = 1
        many = [forms(metric, X)[0], forms(metric, item_cases.rows(1300, 61, 0.1, seed=3))[0]]
    keys, limits = np.minimum(np.arange(1300) // 400, groups - 1), [None, 3] if metric in STRINGS else [None]
    for X, limit in ((X, limit) for X in many for limit in limits):
        models = []
        for device in ("cuda", "cpu"):
            prescribe(items="stored" if device == "cuda" and metric in STRINGS else None)
            model = SingleLinkage(
                distance_threshold=0.5, metric=metric, max_distance=limit, min_samples=samples, device=device
            )
            models.append(model.fit(X, groups=keys))
        is_stored = "pairs_weighed" in models[0].report_.get("spanning_tree", {})
        assert is_stored == (metric != "euclidean" and (limit is None or metric == "levenshtein"))
        for name in ("src", "dst", "weight"):
            np.testing.assert_array_equal(*(to_host(model.mst_[name].to_numpy()) for model in models))

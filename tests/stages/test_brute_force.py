"""Brute force: rows that a filter cannot settle, chunks that memory allows, and what it takes."""

import math

import numpy as np
import pytest
from hard_cases import CASES, full
from oracles import assert_lists, assert_neighbors, assert_unlisted_are_above, least, squared_distances, without_self

from rapids_slink import knn_graph
from rapids_slink.metrics import METRICS
from rapids_slink.neighbors import _search_class, brute_force, estimate_search, neighbor_lists, prepare_search
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import MAX_FEATURES
from rapids_slink.neighbors.filter.cpu import BlasFilter
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host
from rapids_slink.runtime.memory import DeviceMemoryError


@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize("only_minima", [False, True])
def test_rows_whose_candidates_overflow_are_searched_again(failing, only_minima, monkeypatch, prescribe, watch):
    """The first passes get buffers that are too small. Whichever pass proves a row, its list is right."""
    engine, n, k = CPU, 1200, 1 if only_minima else 5
    X = np.random.default_rng(failing).normal(size=(n, 20))
    row_bytes = brute_force.chunk_row_bytes(n, 20, k, engine)
    prescribe(cores=2, chunk_bytes=2 * brute_force.MIN_ROWS * row_bytes)  # so that few rows are many chunks
    kernels = exact_kernels(engine)
    new_candidates = kernels.new_candidates
    calls = [
        watch(owner, name, lambda *_, again=False, **more: again)
        for owner, name in ((BlasFilter, "search_each_pair"), (BruteForceSearch, "_pass"))
    ]

    def cramped(rows, k, capacity):
        new = new_candidates(rows, k, capacity)
        return type(new)(new.ids[:, : k // 4].copy(), new.count) if sum(map(len, calls)) < failing else new

    monkeypatch.setattr(kernels, "new_candidates", cramped)
    report, rows = Report(), engine.xp.arange(n, dtype="int32")
    search = BruteForceSearch(engine.asarray(X), engine, report)
    if only_minima:
        group = (rows % 7).astype("int32")
        found = search.find(SearchTask(rows, 1, group, group, only_minima=True))
        distances = squared_distances(X)
        distances[to_host(group)[:, None] == to_host(group)] = np.inf
        best = [to_host(found.weights)[g::7].min() for g in range(7)]
        assert best == [distances[g::7].min() for g in range(7)]
        assert_unlisted_are_above(found, distances)
    else:
        assert_lists(search.find(SearchTask(rows, k, rows, rows)), least(without_self(squared_distances(X)), k))
        counts = report["neighbors"]
        assert (counts["rows_redone"] > n / 2) == (failing > 0)
        assert (counts["rows_scanned_exactly"] > n / 2) == (failing == 2)
    passes = [again for each in calls for again in each]
    assert passes == [False, True][: len(passes)]
    assert len(passes) >= min(failing + 1, 2)


def clusters(rng, n, d):
    """Four, a million times as far apart as wide."""
    return (1e6 * rng.normal(size=(4, d)))[np.arange(n) % 4] + rng.normal(size=(n, d))


def a_dense_and_a_wide_cluster(rng, n, d):
    dense = (np.arange(n) % 2)[:, None]
    return rng.normal(size=(n, d)) * np.where(dense, 1e-4, 1) + 100 * dense


def far_apart_in_one_feature(rng, n, d):
    return rng.normal(size=(n, d)) + 1e5 * (np.arange(n) % 3)[:, None] * np.eye(d)[3]


def twins_and_clusters(rng, n, d):
    """Some rows look for nothing but their twin, at no distance."""
    X = clusters(rng, n, d)
    X[1::10] = X[::10]
    return X


def test_few_rows_try_whether_a_second_pass_proves_them(watch):
    """A cluster that float32 takes for a point: some of its rows say so, and all distances follow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 20))
    X[::2] = 1 + 1e-7 * X[::2]
    passed = watch(BruteForceSearch, "_pass", lambda result, search, task, filter_, rows, *_, **more: len(rows))
    report, rows = Report(), np.arange(6000, dtype="int32")
    found = BruteForceSearch(X, CPU, report).find(SearchTask(rows, 5, rows, rows))
    assert_lists(found, least(without_self(squared_distances(X)), 5))
    assert report["neighbors"]["rows_scanned_exactly"] == report["neighbors"]["rows_redone"] >= 3000
    assert brute_force.TRIED_AGAIN <= sum(passed) < 2 * brute_force.TRIED_AGAIN


def test_tiles_connect_what_the_filter_did_not_tell_apart(monkeypatch):
    """They make the lists, too, and have the memory of its images."""
    X, report = clusters(np.random.default_rng(0), 3000, 20), Report()
    monkeypatch.setattr(BruteForceSearch, "_first_pass", lambda *_: None)
    search = BruteForceSearch(X, CPU, report)
    assert search.for_connecting(None)() is search
    lists = neighbor_lists(search, 3000, 5, CPU)
    assert_neighbors(lists, X, 5)
    assert search.filter is None
    assert search.for_connecting(lists.ids)() is search.in_tiles
    assert not search.is_over_all_pairs
    assert report["neighbors"]["filter"] == search.in_tiles.name


@pytest.mark.gpu
@pytest.mark.parametrize("points", [clusters, a_dense_and_a_wide_cluster, far_apart_in_one_feature, twins_and_clusters])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [6, 40])
def test_queries_that_fp16_does_not_tell_apart_are_in_tiles(points, d, dtype, prescribe):
    """With room for few candidates, too, so that a whole cluster has none."""
    engine, n, k = resolve("cuda"), 6000, 3
    prescribe(candidates=16)
    X, report = points(np.random.default_rng(d), n, d).astype(dtype), Report()
    search = BruteForceSearch(engine.asarray(X), engine, report, engine.asarray(X))
    rows, distances = engine.xp.arange(n, dtype="int32"), squared_distances(X)
    found = search.find(SearchTask(rows, k, rows.copy(), rows.copy()))
    assert_lists(found, least(without_self(distances), k))
    counts = report["neighbors"]
    assert counts["rows_redone"] > n / 10
    assert counts["rows_scanned_exactly"] < n / 5
    group = (rows % 7).astype("int32")
    found = search.find(SearchTask(rows, 1, group, group, only_minima=True))
    distances[to_host(group)[:, None] == to_host(group)] = np.inf
    assert [to_host(found.weights)[g::7].min() for g in range(7)] == [distances[g::7].min() for g in range(7)]
    assert_unlisted_are_above(found, distances)


def seeded(search, task, monkeypatch):
    """How many rows each call for first bounds is for."""
    sizes, seed = [], search.filter.seed
    with monkeypatch.context() as patch:
        patch.setattr(search.filter, "seed", lambda task, ids, *more: sizes.append(ids.size) or seed(task, ids, *more))
        search.find(task)
    return sizes


def test_rows_without_a_bound_get_one(engine, monkeypatch):
    search = BruteForceSearch(engine.asarray(np.random.default_rng(0).normal(size=(600, 40))), engine, Report())
    ids, upper = engine.xp.arange(600, dtype="int32"), engine.xp.full(600, 50.0)
    upper[::6] = engine.xp.inf
    assert sum(seeded(search, SearchTask(ids, 1, ids % 7, ids % 7, upper), monkeypatch)) == 100
    upper[:] = 50.0
    assert seeded(search, SearchTask(ids, 1, ids % 7, ids % 7, upper), monkeypatch) == []


@pytest.mark.gpu
@pytest.mark.parametrize(("bound", "infinite", "sizes"), [(1e9, 0, [10, 600]), (1e-9, 0, [10]), (1e-9, 5, [10, 5])])
def test_a_few_rows_try_whether_a_sample_lowers_bounds(bound, infinite, sizes, monkeypatch):
    engine = resolve("cuda")
    search = BruteForceSearch(engine.asarray(np.random.default_rng(0).normal(size=(600, 40))), engine, Report())
    ids, upper = engine.xp.arange(600, dtype="int32"), engine.xp.full(600, bound)
    upper[1 : 1 + infinite] = engine.xp.inf
    assert seeded(search, SearchTask(ids, 3, ids, ids, upper), monkeypatch) == sizes


@pytest.mark.parametrize("bound", [1e9, full(25.0)])
def test_a_loose_bound_makes_no_buffer_overflow(bound):
    engine, n, report = CPU, 2000, Report()
    X = np.random.default_rng(0).normal(size=(n, 20))
    search = BruteForceSearch(engine.asarray(X), engine, report)
    ids, upper = engine.xp.arange(n, dtype="int32"), engine.xp.full(n, bound)
    wanted = without_self(squared_distances(X))
    expected = least(np.where(wanted <= bound, wanted, np.inf), 3)[1]
    np.testing.assert_array_equal(to_host(search.find(SearchTask(ids, 3, ids, ids, upper)).weights), expected)
    assert report["neighbors"]["rows_redone"] == 0


def test_more_features_than_the_proof_allows(engine):
    """Every distance is computed then."""
    X, report = np.random.default_rng(0).normal(size=(4, MAX_FEATURES + 1)), Report()
    search = BruteForceSearch(engine.asarray(X), engine, report)
    assert search.name == "none"
    assert_neighbors(neighbor_lists(search, 4, 3, engine), X, 3)
    assert report["neighbors"] == {"rows_certified": 0, "rows_redone": 0, "rows_scanned_exactly": 4}


@pytest.mark.parametrize(
    "name", ["one_far_outlier", "all_rows_equal", *map(full, ("tight_clusters", "blobs_1e4_apart"))]
)
def test_data_that_no_rough_filter_can_tell_apart(name, engine):
    """An outlier, or the distance between clusters, leaves the filter's type too few bits: later passes must act."""
    X, report = CASES[name]("float64"), Report()
    if name == "one_far_outlier":
        X[123] = 1e12
    if name == "blobs_1e4_apart":
        X = np.where(X > 5e3, X * 1e5, X)
    search = BruteForceSearch(engine.asarray(X), engine, report)
    assert_lists(neighbor_lists(search, len(X), 4, engine), least(without_self(squared_distances(X)), 4))
    if name != "tight_clusters":
        assert report["neighbors"]["rows_redone"] > 0


@pytest.mark.parametrize("free", [math.inf, 2**24])
def test_chunks_are_as_large_as_memory_allows(free, engine):
    X = np.random.default_rng(0).normal(size=(2000, 9))
    search = BruteForceSearch(engine.asarray(X), engine, Report())
    assert search.free_bytes == math.inf  # there is no run
    search.free_bytes = free
    rows = search._rows_at_once(2000, 3)
    assert isinstance(rows, int)
    if free == math.inf:
        assert rows == 2000
    else:
        assert rows % 64 == 0
        assert 64 <= rows < 2000
    assert_neighbors(neighbor_lists(search, 2000, 3, engine), X, 3)
    search.free_bytes = 1
    with pytest.raises(DeviceMemoryError, match="a chunk of 64 rows"):
        search._rows_at_once(2000, 3)


@pytest.mark.parametrize("d", [3, full(20)])
def test_long_lists_take_what_was_estimated(d, device, engine):
    """Above so many entries all distances of some rows are sorted: that is part of the estimate, and fits into it."""
    most = exact_kernels(engine).MAX_LIST
    X = np.random.default_rng(0).normal(size=(2400, d)).astype(np.float32)
    for k in (most - 100, most + 100) if device == "cuda" else (most + 100,):
        with pytest.raises(DeviceMemoryError, match="needs at least") as refused:
            knn_graph(X, k, device=device, memory_limit=1000)
        least_bytes = str(refused.value).split("needs at least ")[1].split(" of ")[0]
        graph = knn_graph(X, k, device=device, memory_limit=least_bytes)
        some = slice(0, 2400, 240)
        distances = squared_distances(X[some], X)
        distances[np.arange(10), np.arange(0, 2400, 240)] = np.inf
        ids, weights = least(distances, k)
        np.testing.assert_array_equal(graph["dst"].to_numpy().reshape(2400, k)[some], ids)
        np.testing.assert_array_equal(graph["weight"].to_numpy().reshape(2400, k)[some], np.sqrt(weights))


@pytest.mark.gpu
def test_estimate_holds_the_distances_that_long_lists_are_sorted_from():
    engine, n = resolve("cuda"), 100_000
    most = exact_kernels(engine).MAX_LIST
    short, long = (estimate_search(n, 20, 4, k, engine) for k in (most, most + 1))
    sorted_at_once = 2 * 8 * 64 * n  # distances and their order, of the fewest rows
    assert long.min_chunk >= short.min_chunk + sorted_at_once


def test_many_points_of_few_features_go_by_a_tree(engine):
    def kind(n, d, metric):
        return _search_class(n, d, METRICS[metric], engine).__name__

    tree = "TreeSearch" if engine.name == "cpu" else "BoxSearch"
    for metric in ("euclidean", "cityblock"):
        assert kind(100, 1, metric) == kind(10**7, 7, metric) == kind(10**7, 8, metric) == tree
        assert kind(10**7, 9, metric) == "BruteForceSearch"
        assert kind(1000, 7, metric) == (tree if engine.name == "cpu" else "BruteForceSearch")
    assert kind(600_000, 8, "cityblock") == tree
    assert kind(10**7, 3, "cosine") == "BruteForceSearch"
    assert type(prepare_search(engine.xp.zeros((9, 9)), engine, Report())) is BruteForceSearch

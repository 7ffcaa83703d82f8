"""Searches for a tree that end where points join a large cluster."""

import numpy as np
import pytest
from hard_cases import CASES, every, full
from oracles import assert_unlisted_are_above, least, squared_distances, without_self

import rapids_slink
from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.neighbors import prepare_search
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host
from rapids_slink.spanning_tree import lists
from rapids_slink.spanning_tree.lists import growth_weights

LARGE = 8  # points of a large cluster


@pytest.fixture
def listed_from(monkeypatch, device):
    """Call it with the offset from which on lists give a GPU's filter its bounds."""

    def listed_from(offset):
        if device == "cuda":
            from rapids_slink.neighbors.filter.fused.filter import ImageFilter

            monkeypatch.setattr(ImageFilter, "listed_offsets", offset)

    return listed_from


@pytest.fixture
def early(listed_from, prescribe):
    """Bounds by lists for few rows, of which several threads make several blocks, and large clusters of few points."""
    prescribe(tree="lists", large_cluster=LARGE, cores=4)
    listed_from(1)


def join_weights_one_by_one(src, dst, weight, n):
    """The same by merging one edge after another."""
    parent, members, joined = np.arange(n, dtype=np.int32), {v: [v] for v in range(n)}, np.full(n, np.inf)
    for e in np.argsort(weight, kind="stable"):
        u, v = find_root(parent, src[e]), find_root(parent, dst[e])
        if u == v:
            continue
        both = members.pop(v), members[u]
        if sum(map(len, both)) >= LARGE:
            for cluster in both:
                if len(cluster) < LARGE:
                    joined[cluster] = weight[e]
        parent[v], members[u] = u, both[0] + both[1]
    return joined


@pytest.mark.parametrize("k", [1, 5])
def test_weights_at_which_points_join_large_clusters(k, engine, early):
    X = np.random.default_rng(k).normal(size=(700, 3))
    ids, weights = least(without_self(squared_distances(X)), k)
    ids[::7, k // 2 :], weights[::7, k // 2 :] = -1, np.inf  # some lists are short, or empty
    src, dst = np.repeat(np.arange(700), k), ids.ravel()
    found = growth_weights(engine.asarray(ids.astype(np.int32)), engine.asarray(weights), engine)
    there = dst >= 0
    expected = join_weights_one_by_one(src[there], dst[there], weights.ravel()[there], 700)
    found = to_host(found)
    assert np.isinf(expected).any() == (k == 1)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    assert (found >= expected).all()
    assert (found == expected).mean() > 0.95


NAMES = ["uneven_blobs_8d", "integer_grid_10d", full("tight_clusters"), "cauchy", full("repeated_rows")]


def assert_complete(search, X, k, engine, bounds):
    """The lists of a search with these bounds by lists are those of all pairs, up to the bounds that it says."""
    distances = without_self(squared_distances(X))
    rows = engine.xp.arange(len(X), dtype="int32")
    found = search.find(SearchTask(rows, k, rows, rows, bounds_by_lists=bounds))
    assert_unlisted_are_above(found, distances)
    upper, weights = to_host(found.upper)[:, None], to_host(found.weights)
    expected = least(np.where(distances <= upper, distances, np.inf), k)[0]
    np.testing.assert_array_equal(np.where(weights <= upper, to_host(found.ids), -1), expected)


class Bounds:
    """Some share of each row's middle neighbour so far, and how often they were asked for."""

    def __init__(self, share):
        self.share, self.calls = share, 0

    def __call__(self, ids, weights):
        self.calls += 1
        return weights[:, weights.shape[1] // 2] * self.share


@pytest.mark.parametrize(("k", "share"), every((1, 2, 6), (0.25, 1.0), quick=[(2, 1.0), (6, 0.25)]))
@pytest.mark.parametrize("name", NAMES)
def test_lists_are_complete_up_to_the_bounds_reached(name, share, k, engine, early):
    """Whatever the bounds are."""
    X, bounds = np.tile(CASES[name]("float64")[:900], (1, 2)), Bounds(share)
    assert_complete(prepare_search(engine.asarray(X), engine, Report()), X, k, engine, bounds)
    assert bounds.calls


def test_rows_with_too_many_candidates(engine, early, monkeypatch, prescribe):
    """They are searched again, up to the bounds that they have reached."""
    X, bounds, report = CASES["integer_grid_10d"]("float64")[:900], Bounds(1.0), Report()
    if engine is CPU:
        prescribe(candidates=4)
    else:
        monkeypatch.setattr("rapids_slink.neighbors.filter.SEED_POINTS", 64)
        prescribe(candidates=8)
    assert_complete(prepare_search(engine.asarray(X), engine, report), X, 6, engine, bounds)
    assert bounds.calls
    assert report["neighbors"]["rows_redone"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("way", ["far rows", "a finer filter"])
def test_far_rows_and_a_finer_filter(way, listed_from, monkeypatch, prescribe):
    """Rows that the filter leaves out; and a filter that gives way after bounds by lists have been used."""
    from rapids_slink.neighbors.filter.fused.filter import FusedFilter

    listed_from(1)
    engine, rng, bounds, report = resolve("cuda"), np.random.default_rng(0), Bounds(1.0), Report()
    X = rng.normal(size=(3000, 20))
    if way == "far rows":
        X[::300] *= 1e6
    else:
        prescribe(filter="int8", search="all pairs")
        monkeypatch.setattr(FusedFilter, "is_coarse", lambda *_: bounds.calls == 1)
    assert_complete(prepare_search(engine.asarray(X), engine, report), X, 6, engine, bounds)
    assert bounds.calls > 1
    assert (report["neighbors"]["rows_scanned_exactly"] > 0) == (way == "far rows")


@pytest.mark.parametrize(
    "name", [name if name == "uneven_blobs_8d" else full(name) for name in CASES if name != "one_row"]
)
def test_trees_are_the_same(name, device, early, watch, prescribe):
    X = CASES[name]("float64")
    X = np.hstack([X] * -(-9 // X.shape[1]))  # enough features for a filter
    calls = watch(lists, "growth_weights")
    prescribe(search="all pairs")  # which tiles follow otherwise, once a GPU's first slice tells too few points apart
    found = rapids_slink.fit(X, device=device)
    assert calls or name != "uneven_blobs_8d"
    prescribe(large_cluster=0)
    calls.clear()
    expected = rapids_slink.fit(X, device=device)
    assert not calls
    for frame in ("mst_", "linkage_"):
        for column in getattr(expected, frame):
            a, b = (to_host(getattr(model, frame)[column].values) for model in (found, expected))
            assert a.tobytes() == b.tobytes()


@pytest.mark.full
def test_near_copies(device, listed_from, prescribe):
    """They do not end each other's lists, nor fill them: nearly all edges are certain."""
    rng, n = np.random.default_rng(0), 2**15
    X = rng.normal(size=(n // 4, 12)).astype(np.float32)[rng.permutation(n) // 4]
    X += 1e-5 * rng.normal(size=X.shape).astype(np.float32)
    prescribe(large_cluster=lists.LARGE)
    listed_from(8)
    report = rapids_slink.fit(X, device=device).report_
    assert report["spanning_tree"]["edges_certified_by_lists"] > 0.9 * n
    assert report["connect"]["rows_searched"] < 0.2 * n

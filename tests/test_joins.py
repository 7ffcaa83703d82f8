"""Searches for a tree that end where points join a large cluster."""

import numpy as np
import pytest
from hard_cases import CASES, full
from oracles import assert_unlisted_are_above, least, squared_distances, without_self

import rapids_slink
from rapids_slink.neighbors.filter import blas
from rapids_slink.neighbors.plan import prepare_search
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import to_host
from rapids_slink.spanning_tree import joins, lists, pairs
from rapids_slink.union_find import find_root


@pytest.fixture
def early(monkeypatch, device):
    """Bounds by lists for few rows, and large clusters of few points."""
    monkeypatch.setattr(joins, "LARGE", 8)
    monkeypatch.setattr(lists, "MIN_ROWS", {"cpu": 0, "cuda": 0})
    monkeypatch.setattr(pairs, "is_worthwhile", lambda *_: False)
    if device == "cpu":
        monkeypatch.setattr(blas, "FEW_ROWS", 8)
        monkeypatch.setattr(blas, "LEAST_ROWS", 8)
    else:
        from rapids_slink.neighbors.filter.fused.image import ImageFilter

        monkeypatch.setattr(ImageFilter, "listed_offsets", 1)


def join_weights_one_by_one(src, dst, weight, n):
    """The same by merging one edge after another."""
    parent, members, joined = np.arange(n, dtype=np.int32), {v: [v] for v in range(n)}, np.full(n, np.inf)
    for e in np.argsort(weight, kind="stable"):
        u, v = find_root(parent, src[e]), find_root(parent, dst[e])
        if u == v:
            continue
        both = members.pop(v), members[u]
        if sum(map(len, both)) >= joins.LARGE:
            for cluster in both:
                if len(cluster) < joins.LARGE:
                    joined[cluster] = weight[e]
        parent[v], members[u] = u, both[0] + both[1]
    return joined


@pytest.mark.parametrize("k", [1, 5])
def test_weights_at_which_points_join_large_clusters(k, engine, early):
    X = np.random.default_rng(k).normal(size=(700, 3))
    ids, weights = least(without_self(squared_distances(X)), k)
    ids[::7, k // 2 :], weights[::7, k // 2 :] = -1, np.inf  # some lists are short, or empty
    src, dst = np.repeat(np.arange(700), k), ids.ravel()
    found = joins.join_weights(engine.asarray(ids.astype(np.int32)), engine.asarray(weights), engine)
    there = dst >= 0
    expected = join_weights_one_by_one(src[there], dst[there], weights.ravel()[there], 700)
    found = to_host(found)
    assert np.isinf(expected).any() == (k == 1)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    assert (found >= expected).all()
    assert (found == expected).mean() > 0.95


NAMES = ["uneven_blobs_8d", "integer_grid_10d", full("tight_clusters"), "cauchy", full("repeated_rows")]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_lists_are_complete_up_to_the_bounds_reached(name, share, engine, early):
    """Whatever the bounds are."""
    X, k = np.tile(CASES[name]("float64")[:900], (1, 2)), 6
    distances = without_self(squared_distances(X))
    rows, calls = engine.xp.arange(len(X), dtype="int32"), []

    def bounds(ids, weights):
        calls.append(len(ids))
        return weights[:, 2] * share if share else engine.xp.zeros(len(ids))

    search = prepare_search(engine.asarray(X), engine, Report())
    found = search.find(SearchTask(rows, k, rows, rows, bounds_by_lists=bounds))
    assert calls
    assert_unlisted_are_above(found, distances)
    within = distances <= to_host(found.upper)[:, None]
    expected, listed = least(np.where(within, distances, np.inf), k)[0], to_host(found.ids)
    listed = np.where(to_host(found.weights) <= to_host(found.upper)[:, None], listed, -1)
    np.testing.assert_array_equal(listed, expected)


@pytest.mark.parametrize("n_neighbors", [1, None])
@pytest.mark.parametrize("name", [full(name) for name in CASES if name != "one_row"])
def test_trees_are_the_same(name, n_neighbors, device, early, monkeypatch):
    X = CASES[name]("float64")
    X = np.hstack([X] * -(-9 // X.shape[1]))  # enough features for a filter
    found = rapids_slink.fit(X, n_neighbors=n_neighbors, device=device)
    monkeypatch.setattr(lists, "MIN_ROWS", {device: len(X) + 1})
    expected = rapids_slink.fit(X, n_neighbors=n_neighbors, device=device)
    for frame in ("mst_", "linkage_"):
        for column in getattr(expected, frame):
            a, b = (to_host(getattr(model, frame)[column].values) for model in (found, expected))
            assert a.tobytes() == b.tobytes()

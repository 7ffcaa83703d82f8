"""Blocks of near rows: the same bits, few rows that meet, and the bounds that decide which."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from dask_clusters import assert_same, collection, workers_within_this_process
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import points
from scipy.spatial.distance import cdist

from rapids_slink import HDBSCAN, fit
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.trees import facing_blocks
from rapids_slink.runtime.device import to_host

dask_distributed = pytest.importorskip("distributed", reason="distributed is not installed")

from rapids_slink import distributed  # noqa: E402
from rapids_slink.distributed import facing, near  # noqa: E402

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def here():
    """The client of two workers within this process, where constants may be set."""
    with workers_within_this_process(2) as cluster, dask_distributed.Client(cluster) as client:
        yield client


def always(*args):
    """`choose_strays` where blocks of near rows are wanted, few rows or many."""
    return facing.choose_strays(*args[:6], 1, True, *args[8:])


@pytest.fixture
def near_blocks(here, blocks, set_constants, monkeypatch):
    """Sets how many blocks of near rows there are, wherever they serve."""
    set_constants(near, MIN_SAMPLED=4, CELLS=6, MIN_STEP=3)
    monkeypatch.setattr(near, "choose_strays", always)
    return blocks


def nested(n, d, seed=0):
    """Clusters of clusters, with noise between."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4, d))[rng.integers(0, 4, n)] * 30 + rng.normal(size=(3, d))[rng.integers(0, 3, n)] * 3
    X += rng.normal(size=(n, d)) * 0.3
    X[::9] = rng.uniform(-60, 60, (len(X[::9]), d))
    return X


def fitted(X, sizes, device="cpu", **how):
    """A fit of a collection, checked against that of one CPU."""
    frame, parts = collection(X, sizes)
    model = fit(parts, device=device, **how)
    assert_same(model, fit(frame, device="cpu", **how))
    return model.report_["spanning_tree"]


@pytest.mark.parametrize(
    "how",
    [{}, {"min_samples": 4}, {"n_neighbors": 1}, {"max_distance": 3.0}, full({"max_distance": 0.4, "n_neighbors": 2})],
    ids=str,
)
@pytest.mark.parametrize("d", [2, 20])
def test_the_same_bits(d, how, near_blocks):
    near_blocks(5)
    X = nested(700, d).astype("float32" if d == 20 else "float64")
    counts = fitted(X, [100, 0, 350, 250], **how)
    assert counts["blocks"] == 5
    assert counts["pairs"] > 0 or "max_distance" in how


@pytest.mark.gpu
@pytest.mark.parametrize("how", [{}, {"min_samples": 4}, {"max_distance": 3.0}], ids=str)
@pytest.mark.parametrize("d", [2, 20])
def test_the_same_bits_on_a_gpu(d, how, near_blocks):
    near_blocks(5)
    assert fitted(nested(700, d).astype("float32"), [100, 0, 350, 250], device="cuda", **how)["blocks"] == 5


@pytest.mark.parametrize("metric", ["cityblock", "haversine", *map(full, ("sqeuclidean", "chebyshev", "minkowski"))])
def test_metrics(metric, near_blocks):
    near_blocks(4)
    X = points("uneven_blobs_2d", metric)[:400] % 1.5
    for min_samples in (1, 3):
        how = {"metric": metric, "min_samples": min_samples, "p": 1.5 if metric == "minkowski" else 2.0}
        assert fitted(X, [150, 250], **how)["blocks"] == 4


@pytest.mark.parametrize("metric", ["cosine", "hamming"])
def test_metrics_that_boxes_do_not_bound_have_blocks_in_order(metric, near_blocks, monkeypatch):
    monkeypatch.setattr(near, "cells_of_sample", None)  # which would fail
    assert fitted(nested(300, 3).round(1), [300], metric=metric)["pairs"] == 3


def test_ties_and_equal_rows(near_blocks):
    """A lattice whose rows come again in other partitions: of equal edges the one of smaller numbers is in the tree."""
    near_blocks(4)
    X = np.random.default_rng(0).integers(0, 12, (900, 2)).astype(float)
    assert fitted(X, [300, 300, 300])["blocks"] == 4
    assert fitted(np.repeat(X[:2], 200, axis=0), [400])["pairs"] == 6  # two cells at most: blocks in their order


@pytest.mark.full
@pytest.mark.hypothesis
@given(st.integers(60, 200), st.integers(1, 3), st.integers(2, 12), st.integers(0, 2**32 - 1), st.sampled_from([1, 3]))
def test_random_rows(here, n, d, values, seed, min_samples):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, values, (n, d)) * rng.choice([1.0, 1e-3, 1e3], (n, 1))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_SAMPLED": 2, "CELLS": 3, "MIN_STEP": 2, "choose_strays": always}.items():
            patch.setattr(near, name, value)
        patch.setattr(distributed, "count_blocks", lambda *_: 4)
        fitted(X, [n // 2, n - n // 2], min_samples=min_samples)


def test_blocks_of_several_workers_and_groups_of_partitions(near_blocks):
    """Partitions that one worker holds give each block one piece, and every row is in one block."""
    near_blocks(4)
    X = nested(800, 3)
    frame, parts = collection(X, [100] * 8)
    parts = parts.persist()
    dask_distributed.wait(parts)
    assert_same(fit(parts, device="cpu"), fit(frame, device="cpu"))


def test_rows_that_other_workers_would_put_elsewhere(near_blocks, monkeypatch):
    """Hubs that are in other cells are not used, and rows that are in two blocks are an error."""
    near_blocks(4)
    cells_of_rows, rng = near.cells_of_rows, np.random.default_rng(0)

    def moved(settings, route, parts):
        found = cells_of_rows(settings, route, parts)
        return [
            [cell if cell is None else np.where(rng.random(cell.size) < 0.3, cell[::-1], cell) for cell in part]
            for part in found
        ]

    monkeypatch.setattr(near, "cells_of_rows", moved)
    fitted(nested(600, 3), [300, 300])
    near_piece = near._near_piece
    monkeypatch.setattr(
        near, "_near_piece", lambda *args: [tuple(part[:-1] for part in piece) for piece in near_piece(*args)]
    )
    with pytest.raises(RuntimeError, match="cells of rows"):
        fit(collection(nested(600, 3), [300, 300])[1], device="cpu")


def test_trees_that_a_worker_has_no_memory_for(near_blocks, monkeypatch):
    """Of more rows than two blocks in order would have: then blocks are in order."""
    near_blocks(4)
    monkeypatch.setattr(near, "choose_strays", lambda *args: facing.choose_strays(*args[:6], 10**6, True, *args[8:]))
    assert fitted(nested(600, 3), [300, 300])["pairs"] == 6


def test_hdbscan(near_blocks):
    frame, parts = collection(nested(600, 8), [200, 400])
    found, expected = (HDBSCAN(6, device="cpu").fit(X) for X in (parts, frame))
    assert_same(found, expected)
    assert found.report_["spanning_tree"]["blocks"] == 3


def test_few_rows_meet(here, blocks, set_constants, monkeypatch):
    """Of uniform rows in any order those on either side of a border do, and of noise alone all would."""
    met, trees_between = [], facing.trees_between

    def spy(sizes):
        trees = trees_between(sizes)
        met.append(sum(sizes[a, int(kind), faced] for tree in trees.values() for a, kind, faced in tree))
        return trees

    monkeypatch.setattr(facing, "trees_between", spy)
    blocks(4)
    X = np.random.default_rng(0).random((12_000, 2))
    assert fitted(X, [6000, 6000])["blocks"] == 4
    assert met[-1] < len(X) / 3
    noise = np.random.default_rng(0).normal(size=(4000, 40))
    assert fitted(noise, [2000, 2000])["pairs"] == 6
    assert len(met) == 6 + len(facing.STRAYS) - 1 + 1  # no blocks of near rows were made of it


# ------------------------------------------------------------------------------------------------------------ the bound


def random_tree(n, rng):
    """The edges of a tree with ties, in the total order of a fit."""
    tree = fit(rng.integers(0, 9, (n, 2)).astype(float), device="cpu").mst_
    return tuple(tree[name].to_numpy() if hasattr(tree[name], "to_numpy") else tree[name] for name in tree)


def heaviest_between(edges, n):
    """By the definition: the heaviest edge between each two rows of a forest."""
    heaviest = np.full((n, n), np.inf)
    np.fill_diagonal(heaviest, 0)
    label = np.arange(n)
    for a, b, w in zip(*edges, strict=True):
        one, other = label == label[a], label == label[b]
        heaviest[np.ix_(one, other)] = heaviest[np.ix_(other, one)] = w
        label[other] = label[a]
    return heaviest


@pytest.mark.parametrize("kept", [1.0, 0.7])
@pytest.mark.parametrize("hubs", [1, 5, 40])
def test_bounds_to_hubs(hubs, kept, engine):
    rng = np.random.default_rng(hubs)
    n = 120
    edges = tuple(part[: int(kept * (n - 1))] for part in random_tree(n, rng))
    chosen = rng.permutation(n)[:hubs]
    on_device = tuple(engine.asarray(np.ascontiguousarray(part)) for part in edges)
    bound, own, between = facing.bounds_to_hubs(on_device, n, chosen, engine)
    bound, own, expected = to_host(bound), to_host(own), heaviest_between(edges, n)
    np.testing.assert_array_equal(bound, expected[:, chosen].min(axis=1))
    reached = own >= 0
    np.testing.assert_array_equal(expected[np.flatnonzero(reached), chosen[own[reached]]], bound[reached])
    heaviest = facing.minimax(hubs, *between)
    np.testing.assert_array_equal(heaviest, expected[np.ix_(chosen, chosen)])
    cell = rng.integers(0, hubs, n)
    reach = facing.reach_of_rows(engine.asarray(bound), engine.asarray(own), engine.asarray(cell), heaviest)
    np.testing.assert_array_equal(to_host(reach), expected[np.arange(n), chosen[cell]])


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", "minkowski"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_face_cells(dtype, metric, engine):
    """Whoever is within its bound of a point of a cell, or within the cells' limit."""
    rng = np.random.default_rng(0)
    X, cells, blocks = rng.integers(-9, 9, (300, 3)).astype(dtype), 12, 4
    cell = rng.integers(0, cells, 300).astype("int32")
    X += (40 * rng.normal(size=(cells, 3)))[cell].astype(dtype)
    block_of_cell = np.sort(rng.integers(0, blocks, cells)).astype("int32")
    chosen = get_metric(metric, 1.5) if metric == "minkowski" else get_metric(metric)
    exact = {"euclidean": "sqeuclidean"}.get(metric, metric)
    distance = cdist(X.astype(float), X.astype(float), exact, **({"p": 1.5} if metric == "minkowski" else {}))
    distance = distance**1.5 if metric == "minkowski" else distance
    bound, limit = rng.uniform(0, np.median(distance) / 2, 300), rng.uniform(0, np.median(distance) / 2, (cells, cells))
    low, high = (np.array([getattr(X[cell == t], end)(axis=0) for t in range(cells)], float) for end in ("min", "max"))
    arrays = [engine.asarray(part) for part in (X, cell, bound)]
    of_cells = [engine.asarray(part) for part in (low, high, limit, block_of_cell, block_of_cell)]
    found = to_host(facing_blocks(*arrays, *of_cells, 1, chosen, engine))
    faced = (found[:, None] >> np.arange(32, dtype=np.uint32)) & 1 == 1
    most = np.maximum(bound[:, None], limit[cell][:, cell]) * (1 - 1e-9)
    for b in range(blocks):
        is_near = ((distance <= most) & (block_of_cell[cell] == b)).any(axis=1)
        assert not faced[:, b].any() if b == 1 else faced[is_near, b].all()
        assert b == 1 or 0 < faced[:, b].sum() < 300
    assert not faced[:, blocks:].any()


def test_the_trees_between_blocks():
    sizes = np.zeros((3, 2, 4), int)
    sizes[0, 0, 1] = sizes[1, 0, 0] = 5
    sizes[0, 0, 2] = 7  # whom nobody faces
    sizes[2, 1, 1] = sizes[1, 0, 3] = 2
    sizes[2, 1, 3] = 1  # strays that face no others
    assert facing.trees_between(sizes) == {(0, 1): [(0, False, 1), (1, False, 0)], (1,): [(1, False, 3), (2, True, 1)]}
    sizes[0, 1, 3] = 1
    assert facing.trees_between(sizes)[()] == [(0, True, 3), (2, True, 3)]


def test_quantiles():
    parts = [np.arange(1000.0), np.full(3, 5000.0), np.zeros(500)]
    of_blocks = [facing.quantiles(part) for part in parts]
    sizes = [part.size for part in parts]
    assert facing.least_of_strays(of_blocks, sizes, 0.0) == 5000
    for share in (1 / 16, 1 / 4):
        assert np.mean(np.concatenate(parts) > facing.least_of_strays(of_blocks, sizes, share)) == pytest.approx(
            share, abs=0.01
        )


def test_all_pairs_of_blocks_share_a_tree():
    assert set(combinations(range(4), 2)) == set(facing.trees_between(np.ones((4, 2, 5), int))) - {
        (),
        (0,),
        (1,),
        (2,),
        (3,),
    }

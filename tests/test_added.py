"""The edges that an appended row may have, found by a GPU's fused filter."""

import numpy as np
import pytest
from spanning_trees import bits

from rapids_slink import fit
from rapids_slink.dendrogram import build_linkage
from rapids_slink.neighbors import prepare_search
from rapids_slink.report import Report
from rapids_slink.runtime.device import cuda, to_host
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.spanning_tree import added, append
from rapids_slink.spanning_tree.component_pairs import path_bottlenecks

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(9, 20))
POINTS = {
    "normal": RNG.normal(size=(1500, 20)),
    "clusters": CENTERS[RNG.integers(0, 9, 2500)] + 0.05 * RNG.normal(size=(2500, 20)),
    "uneven": RNG.normal(size=(2000, 9)) * 10.0 ** RNG.uniform(-3, 1, (2000, 1)),
    "grid": RNG.integers(0, 4, (1500, 7)).astype(float),
    "path": np.cumsum(RNG.normal(size=(1500, 8)), axis=0),
    "equal": np.repeat(RNG.normal(size=(300, 8)), 5, axis=0),
}


def largest_gaps(gap, a, b):
    """The largest of the gaps between two positions."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.array([gap[i + 1 : j + 1].max(initial=0) for i, j in zip(low, high, strict=True)])


@pytest.mark.parametrize("name", POINTS)
def test_gaps_of_the_order_are_bottlenecks(name):
    tree = fit(POINTS[name], 1, device="cpu").mst_
    src, dst, weight = (tree[column].to_numpy() for column in ("src", "dst", "weight"))
    gpu, n = cuda(), len(POINTS[name])
    columns = {"src": gpu.asarray(src), "dst": gpu.asarray(dst), "weight": gpu.asarray(weight)}
    left, right, height, size = build_linkage(PreallocatedFrame(columns, gpu), n).columns.values()
    position, order, gap = added.leaf_order(left, right, size, height, gpu.xp)
    np.testing.assert_array_equal(to_host(order[position]), np.arange(n))
    a, b = RNG.integers(0, n, (2, 500))
    table = path_bottlenecks(src, dst, weight)
    place = table[0].astype(int)
    low, high = np.sort([place[a], place[b]], axis=0)
    expected = [table[1, i:j].max(initial=0) for i, j in zip(low, high, strict=True)]
    np.testing.assert_array_equal(largest_gaps(to_host(gap), to_host(position)[a], to_host(position)[b]), expected)
    first, start, points, gaps = map(to_host, added.tiles_of_leaves(order, gap, height, gpu.xp))
    assert points.size % added.BLOCK_ROWS == 0
    assert (start % added.TILE == 0).all()
    kept = np.flatnonzero(np.diff(points, prepend=-1) != 0)
    np.testing.assert_array_equal(points[kept], to_host(order))
    np.testing.assert_array_equal(gaps[kept], to_host(gap))
    assert gaps.sum() == pytest.approx(float(gap.sum()))
    np.testing.assert_array_equal(points[start], to_host(order)[first])


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("m", [1, 300, 1000])
def test_candidates_hold_the_edges_of_new_rows(name, m, monkeypatch):
    """Also in several parts, and by lists if they are too many."""
    X = POINTS[name]
    expected = fit(X, 1, device="cpu")
    model = fit(X[:-m], 1, prediction_data=True, device="cuda").append(X[-m:])
    search = prepare_search(cuda().asarray(X), cuda(), Report())
    if not search.filter.is_symmetric:
        pytest.skip("this GPU has no fused filter")
    assert bits(model) == bits(expected)
    assert model.report_["neighbors"]["candidate_edges"] >= m
    monkeypatch.setattr(added, "MAX_BOUNDS", 1)
    in_parts = fit(X[:-m], 1, prediction_data=True, device="cuda").append(X[-m:])
    assert bits(in_parts) == bits(expected)
    assert in_parts.report_["neighbors"]["candidate_edges"] == model.report_["neighbors"]["candidate_edges"]
    monkeypatch.setattr(added, "MAX_PAIRS", 0)
    by_lists = fit(X[:-m], 1, prediction_data=True, device="cuda").append(X[-m:])
    assert bits(by_lists) == bits(expected)
    assert "candidate_edges" not in by_lists.report_["neighbors"]


def test_few_pairs_are_candidates():
    """Of 20,000 rows in 20 clusters and 200 new ones, about 30 of each new row's."""
    centers = RNG.normal(size=(20, 128))
    X = (centers[RNG.integers(0, 20, 20_200)] + 0.1 * RNG.normal(size=(20_200, 128))).astype(np.float32)
    model = fit(X[:-200], 1, prediction_data=True, device="cuda").append(X[-200:])
    assert bits(model) == bits(fit(X, 1, device="cuda"))
    assert append.candidate_edges is added.candidate_edges
    assert model.report_["neighbors"].get("candidate_edges", 0) < 60 * 200

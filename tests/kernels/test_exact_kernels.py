"""The kernels of surrogate distances and lists alone."""

import numpy as np
import pytest
from hard_cases import combinations, full
from oracles import least, squared_distances

from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.neighbors.exact import ExactPoints, TopLists, cpu
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.rows import metric_rows, norms_are_within, product_form
from rapids_slink.neighbors.task import (
    NeighborLists,
    SearchState,
    by_mutual_reachability,
    drop_above_bound,
    low_discrepancy_order,
)
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.spanning_tree import kernels as tree_kernels


@pytest.fixture
def kernels(engine):
    return exact_kernels(engine)


def expected_lists(distances, upper, k):
    """The k least up to the bounds; lists that are not full end with (-1, inf)."""
    ids, weights = least(np.where(distances <= upper[:, None], distances, np.inf), k)
    wide = (0, 0), (0, k - ids.shape[1])
    return np.pad(ids, wide, constant_values=-1), np.pad(weights, wide, constant_values=np.inf)


def assert_top(top, expected):
    np.testing.assert_array_equal(to_host(top.ids), expected[0])
    np.testing.assert_array_equal(to_host(top.weights), expected[1])


@pytest.mark.parametrize(
    ("d", "k", "dtype"),
    combinations(
        (1, 5, 8, 9, 32, 33, 70), (1, 7, 33), ("float32", "float64"),
        quick=[(1, 7, "float32"), (8, 1, "float32"), (9, 33, "float64"), (70, 7, "float32")],
    ),
)  # fmt: skip
def test_rerank(d, k, dtype, engine, kernels):
    """Candidates in two parts, with gaps (-1), equal values and bounds; a list is merged with what it held."""
    rng = np.random.default_rng(d)
    n, m, each = 200, 30, 80
    X = rng.integers(0, 5, (n, d)).astype(dtype)
    X[::2] += rng.normal(size=(n // 2, d)).astype(dtype)
    distances = squared_distances(X)[:m]
    upper = np.where(np.arange(m) % 2, np.inf, np.median(distances, axis=1))
    top, bound = kernels.empty_lists(m, k), engine.asarray(upper.copy())
    chosen = np.stack([rng.permutation(n)[: 2 * each] for _ in range(m)]).astype(np.int32)
    chosen[:, ::9] = -1
    counts = rng.integers(0, each + 1, (2, m))
    counts[:, 0] = 0
    listed = np.zeros((m, n), bool)
    exact, rows = ExactPoints(*[engine.asarray(X)] * 2), engine.xp.arange(m, dtype="int32")
    groups = engine.xp.zeros(m, "int32"), engine.xp.ones(n, "int32")
    for part in range(2):
        ids = np.ascontiguousarray(chosen[:, part * each : (part + 1) * each])
        for i in range(m):
            seen = ids[i, : counts[part, i]]
            listed[i, seen[seen >= 0]] = True
        empty = kernels.new_candidates(m, 1)
        candidates = type(empty)(engine.asarray(ids), engine.asarray(counts[part], "int32"))
        kernels.rerank(exact, rows, candidates, groups, bound, top)
        np.testing.assert_array_equal(to_host(bound), np.minimum(upper, to_host(top.weights)[:, -1]))
        assert not to_host(top.overflowed).any()
    assert_top(top, expected_lists(np.where(listed, distances, np.inf), upper, k))


@pytest.mark.parametrize(("name", "d"), [("euclidean", 130), ("euclidean", 3), ("cosine", 3)])
def test_rerank_among_more_rows(name, d):
    """Some of the points, in any order, whose lists are among those of all; more pairs than are weighed together."""
    rng, n, k, metric = np.random.default_rng(d), 150, 3, get_metric(name)
    values = metric_rows(metric, rng.normal(size=(n, d)), CPU)
    rows, each = rng.permutation(n)[:80].astype(np.int32), 9
    top, upper = cpu.empty_lists(n, k), np.full(n, np.inf)
    candidates = cpu.new_candidates(rows.size, k, each)
    candidates.ids[:] = np.stack([rng.permutation(n)[:each] for _ in rows])
    candidates.count[:] = rng.integers(0, each + 2, rows.size)
    cpu.rerank(ExactPoints(values, values, metric), rows, candidates, None, upper, top, positions=rows)
    distances = np.full((n, n), np.inf)
    for i, ids, count in zip(rows, candidates.ids, candidates.count, strict=True):
        distances[i, ids[:count]] = cpu.distances_between(values, np.full(1, i, np.int32), ids[:count], metric)
    assert_top(top, expected_lists(distances, np.full(n, np.inf), k))
    np.testing.assert_array_equal(upper, top.weights[:, -1])
    np.testing.assert_array_equal(np.flatnonzero(top.overflowed), np.sort(rows[candidates.count > each]))


@pytest.mark.parametrize("k", [1, 33])
def test_rerank_notes_rows_that_lost_candidates(k, engine, kernels):
    values, rows = engine.asarray(np.random.default_rng(0).normal(size=(9, 5))), engine.xp.arange(9, dtype="int32")
    top, made = kernels.empty_lists(9, k), kernels.new_candidates(9, 1)
    assert not to_host(top.overflowed).any()
    for counts in ([3, 4, 5, 0, 9, 4, 4, 4, 4], [0, 0, 0, 8, 0, 0, 0, 0, 4]):
        count = engine.asarray(np.array(counts), "int32")
        ids = engine.asarray(np.tile(np.arange(4, dtype=np.int32), (9, 1)))
        groups = engine.xp.zeros(9, "int32"), engine.xp.ones(9, "int32")
        bound = engine.xp.full(9, engine.xp.inf)
        kernels.rerank(ExactPoints(values, values), rows, type(made)(ids, count), groups, bound, top)
    assert to_host(top.overflowed).tolist() == [False, False, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("size", "d", "k"),
    [
        *combinations(
            [(0, 10), (1, 1), (1, 500), (40, 300)], (3, 40), (1, 20, 300),
            quick=[((0, 10), 3, 1), ((1, 1), 3, 20), ((1, 500), 40, 20), ((40, 300), 3, 300), ((40, 300), 40, 1)],
        ),
        full((20, 2500), 3, 1500),
    ],
)  # fmt: skip
def test_scan(size, d, k, engine, kernels):
    """Lists above 1,024 are made in another way on a GPU."""
    m, n = size
    rng = np.random.default_rng(n)
    X = rng.integers(0, 4, (max(m, n), d)).astype(np.float32)
    k = min(k, n)
    row_group, point_group = rng.integers(0, 3, m).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    upper, values = rng.choice([0.0, 4.0, 20.0, np.inf], m), engine.asarray(X)
    rows, *groups, bound = (engine.asarray(a) for a in (np.arange(m, dtype=np.int32), row_group, point_group, upper))
    top = kernels.scan(ExactPoints(values, values[:n]), rows, tuple(groups), bound, k)
    distances = squared_distances(X[:m], X[:n])
    distances[row_group[:, None] == point_group] = np.inf
    assert_top(top, expected_lists(distances, upper, k))


@pytest.mark.parametrize(
    ("name", "with_core"),
    [("euclidean", False), ("euclidean", True), ("cosine", False), ("cosine", True), ("inner_product", False)],
)
@pytest.mark.parametrize("d", [7, 100])
def test_scan_with_any_bound(name, with_core, d, engine, kernels):
    """Bounds below zero, as inner products have and rounded cosines may have; core distances; several parts a row."""
    rng, m, n, k = np.random.default_rng(d), 30, 1500, 3
    metric, X = get_metric(name), rng.normal(size=(n, d))
    X[5] = X[700] = 3 * X[2]
    values = metric_rows(metric, engine.asarray(X), engine)
    rows, point_group = engine.xp.arange(m, dtype="int32"), engine.xp.arange(n, dtype="int32")
    distances = to_host(kernels.all_distances(values, metric))[:m]
    core = rng.choice([0.0, 0.5, 1.0], n) * np.median(distances) if with_core else None
    weight = distances if core is None else np.maximum(np.maximum(distances, core[:m, None]), core)
    weight[np.arange(m), np.arange(m)] = np.inf
    upper = np.quantile(distances, rng.choice([0.0, 0.001, 0.01, 0.5], m))
    upper[:5] = np.inf
    upper[2] = weight[2].min()  # of a cosine below zero, or of zero
    given = None if core is None else engine.asarray(core)
    top = kernels.scan(ExactPoints(values, values, metric), rows, (rows, point_group), engine.asarray(upper), k, given)
    assert (name == "inner_product") == (np.median(upper[5:]) < 0)
    assert_top(top, expected_lists(weight, upper, k))


def test_kernels_of_no_rows(engine, kernels):
    xp = engine.xp
    values, none = engine.asarray(np.random.default_rng(0).normal(size=(20, 9))), xp.empty(0, "int32")
    top, candidates = kernels.empty_lists(0, 3), kernels.new_candidates(0, 3)
    kernels.rerank(ExactPoints(values, values), none, candidates, (none, xp.zeros(20, "int32")), xp.empty(0), top)
    assert top.ids.shape == top.weights.shape == (0, 3)
    assert kernels.pair_distances(values, none, none).shape == (0,)
    lowered = engine.asarray(np.array([3.0, 4.0]))
    kernels.scatter_min(lowered, none, xp.empty((0, 3)))
    assert to_host(lowered).tolist() == [3.0, 4.0]
    drop_above_bound(xp.empty((0, 3), "int32"), xp.empty((0, 3)), xp.empty(0), xp)


@pytest.mark.parametrize("n", [0, 1, 31, 5000])
@pytest.mark.parametrize("share", [0.0, 0.01, 1.0])
def test_flatnonzero(n, share, engine, kernels):
    flags = np.random.default_rng(n).random(n) < share
    assert sorted(to_host(kernels.flatnonzero(engine.asarray(flags)))) == np.flatnonzero(flags).tolist()


@pytest.mark.parametrize("m", [1, 1000])
def test_scatter_min(m, engine, kernels):
    """Bits that float32 would lose, both signs of the exponent, and groups that nobody lowers."""
    rng = np.random.default_rng(m)
    before, group = 1 + rng.random(20), rng.integers(0, 15, m).astype(np.int32)
    weights = 1 + rng.random((m, 3))
    weights[::5] = np.inf
    weights[1::50, 0], weights[2::50, 0] = 1e-300, 0.0
    expected = before.copy()
    np.minimum.at(expected, group, weights[:, 0])
    lowered = engine.asarray(before.copy())
    kernels.scatter_min(lowered, engine.asarray(group), engine.asarray(weights))
    np.testing.assert_array_equal(to_host(lowered), expected)


def test_drop_above_bound(engine):
    ids, upper = np.arange(12, dtype=np.int32).reshape(4, 3), np.array([1.0, 2.0, np.inf, -1.0])
    weights = np.array([[1.0, np.nextafter(1, 2), 5], [0, 2, np.inf], [3, 4, np.inf], [0, 1, 2]])
    lists = engine.asarray(ids.copy()), engine.asarray(weights.copy())
    drop_above_bound(*lists, engine.asarray(upper), engine.xp)
    kept = weights <= upper[:, None]
    np.testing.assert_array_equal(to_host(lists[0]), np.where(kept, ids, -1))
    np.testing.assert_array_equal(to_host(lists[1]), np.where(kept, weights, np.inf))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 9, 100])
def test_pair_distances(d, dtype, engine, kernels):
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(50, d)) * 10.0 ** rng.integers(-10, 10, (50, 1))).astype(dtype)
    src, dst = rng.integers(0, 50, (2, 300)).astype(np.int32)
    found = kernels.pair_distances(engine.asarray(X), engine.asarray(src), engine.asarray(dst))
    np.testing.assert_array_equal(to_host(found), squared_distances(X)[src, dst])


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4096, 10_000])
def test_low_discrepancy_order_is_a_permutation_spread_evenly(n, engine):
    order = to_host(low_discrepancy_order(n, engine.xp))
    assert order.dtype == np.int32
    assert sorted(order) == list(range(n))
    if n >= 1000:
        early = np.bincount(order[: n // 5] * 10 // n, minlength=10)
        assert early.max() <= 1.1 * early.min()


@pytest.mark.parametrize(("n", "k"), [(0, 3), (2, 1), (60, 2), (60, 16), (500, 33), full(700, 300)])
def test_sort_by_reachability(n, k, engine, kernels):
    rng = np.random.default_rng(k)
    ids = np.array([rng.permutation(n)[:k] for _ in range(n)], np.int32).reshape(n, k)
    weights, core = rng.integers(0, 9, (n, k)).astype(float), rng.integers(0, 12, n).astype(float)
    expected = np.maximum(weights, np.maximum(core[:, None], core[ids]))
    order = np.lexsort((ids, expected), axis=1)
    found = engine.asarray(ids.copy()), engine.asarray(weights.copy())
    kernels.sort_by_reachability(*found, engine.asarray(core))
    np.testing.assert_array_equal(to_host(found[0]), np.take_along_axis(ids, order, axis=1))
    np.testing.assert_array_equal(to_host(found[1]), np.take_along_axis(expected, order, axis=1))


def test_what_lists_by_reachability_begin_with(engine):
    """Last entries and core distances."""
    ids, weights = np.int32([[1, 2, 3], [0, 2, 3]]), np.array([[1.0, 2, 5], [1, 3, np.inf]])
    found = by_mutual_reachability(NeighborLists(*map(engine.asarray, (ids, weights))), None, 2, engine)
    assert [to_host(part).tolist() for part in found.unlisted_lower_bound] == [[3, 3], [5, np.inf]]
    assert to_host(found.core).tolist() == [2, 3]


@pytest.mark.parametrize("n", [0, 1, 100])
def test_norms_and_unit_rows(n, engine):
    rows = np.random.default_rng(0).uniform(1, 2, (n, 4))
    on_device = engine.asarray(rows)
    assert norms_are_within(on_device, 1.0, 2.0)
    np.testing.assert_array_equal(to_host(product_form(on_device, METRICS["cosine"])), rows[:, :3] / rows[:, 3:])
    for norm in (0.5, 1.0, 2.5, np.nan, -np.nan) if n else ():
        rows[-1, 3] = norm
        assert not norms_are_within(engine.asarray(rows), 1.0, 2.0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lists_are_put_where_their_rows_are(dtype, engine, kernels):
    xp, reached = engine.xp, SearchState(engine.xp.zeros(5), kernels.empty_lists(5, 2))
    ids, weights, lost = np.int32([[1, 2], [0, 0], [3, -1]]), [[0.5, 1], [0, 0], [2, np.inf]], [True, True, False]
    found = TopLists(*(engine.asarray(np.array(part)) for part in (ids, weights, lost)))
    kernels.put_lists(reached, *map(engine.asarray, (np.array([4, -1, 1], dtype), np.array([1.0, 3.0, 7.0]))), found)
    assert to_host(reached.upper).tolist() == [0, 7, 0, 0, 1]
    assert to_host(reached.top.ids).tolist() == [[-1, -1], [3, -1], [-1, -1], [-1, -1], [1, 2]]
    assert to_host(reached.top.weights)[[1, 4]].tolist() == [[2, np.inf], [0.5, 1]]
    assert to_host(reached.top.overflowed).tolist() == [False, False, False, False, True]
    kernels.put_lists(reached, xp.empty(0, dtype), xp.empty(0), kernels.empty_lists(0, 2))


def test_last_entries(engine):
    kernels = tree_kernels(engine)
    ids, weights = (engine.asarray(part) for part in (np.int32([[1, 2], [0, 2], [1, 0]]), np.arange(6.0).reshape(3, 2)))
    weight, code = map(to_host, kernels.last_listed(ids, weights))
    assert weight.tolist() == [1, 3, 5]
    assert code.tolist() == [2, 1 << 32 | 2, 2]

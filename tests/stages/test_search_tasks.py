"""What every search answers where groups are excluded, bounds given and only each group's least wanted."""

import numpy as np
import oracles
import pytest
from hard_cases import CASES, combinations, full, shape
from oracles import assert_lists, least, searches, squared_distances, without_self

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, to_host

NAMES = ["uneven_blobs_8d", "integer_grid_10d", "tight_clusters", "cauchy", "repeated_rows", "all_rows_equal"]


def grouped(X, rng, groups):
    """Groups of the rows and all distances, infinite within a group."""
    group = rng.integers(0, groups, len(X)).astype(np.int32)
    distances = squared_distances(X)
    distances[group[:, None] == group] = np.inf
    return group, distances


def by_case(*parameters, in_turn=False):
    return searches(*parameters, features=lambda name, *_: shape(name)[1], in_turn=in_turn)


@pytest.mark.parametrize(
    ("make_search", "name", "groups", "k"),
    by_case(*combinations(NAMES, (1, 2, 40), (1, 6, 50), quick=4), in_turn=True),
)
def test_nearest_outside_ones_group(make_search, name, groups, k):
    """Some rows only, each with a bound: infinite, one that cuts the list short, one equal to a value, zero."""
    rng, engine = np.random.default_rng(groups), make_search.engine
    X = CASES[name]("float64")[::-1][:: 3 if name == "tight_clusters" else 1][:900]
    group, distances = grouped(X, rng, groups)
    rows = np.sort(rng.choice(len(X), len(X) * 2 // 3, replace=False)).astype(np.int32)
    distances = distances[rows]
    upper = np.sort(distances, axis=1)[np.arange(rows.size), rng.integers(0, 2 * k, rows.size)]
    upper[::4], upper[1::16] = np.inf, 0.0
    on_rows, on_groups, on_upper = (engine.asarray(array) for array in (rows, group, upper))
    found = make_search(X).find(SearchTask(on_rows, k, on_groups, on_groups, on_upper))
    assert_lists(found, least(np.where(distances <= upper[:, None], distances, np.inf), k))
    np.testing.assert_array_equal(to_host(on_upper), upper)  # the task is left alone
    oracles.assert_unlisted_are_above(found, distances)


@pytest.mark.parametrize(
    ("make_search", "name", "groups"),
    by_case(*combinations(NAMES, (2, 30, 130), quick=4), in_turn=True),
)
def test_least_pair_of_each_group(make_search, name, groups):
    """A group's least pair in the total order is found, and every bound that is reached is one."""
    rng, engine = np.random.default_rng(groups), make_search.engine
    X = CASES[name]("float64")[::3][:900]
    n = len(X)
    group, distances = grouped(X, rng, groups)
    bound = np.where(np.arange(groups) % 3 == 0, np.inf, rng.choice(distances[np.isfinite(distances)], groups))
    rows, on_groups, upper = (engine.asarray(a) for a in (np.arange(n, dtype=np.int32), group, bound[group]))
    found = make_search(X).find(SearchTask(rows, 1, on_groups, on_groups, upper, only_minima=True))
    ids, weights = to_host(found.ids)[:, 0], to_host(found.weights)[:, 0]

    hit = np.flatnonzero(ids >= 0)
    np.testing.assert_array_equal(weights[hit], distances[hit, ids[hit]])
    assert (weights[hit] <= bound[group[hit]]).all()
    assert np.isinf(weights[ids < 0]).all()
    oracles.assert_unlisted_are_above(found, distances)

    def lightest(rows, columns, values):
        low, high = np.minimum(rows, columns), np.maximum(rows, columns)
        at = np.lexsort((high, low, values))[0]
        return values[at], low[at], high[at]

    for g in np.unique(group):
        members = np.flatnonzero(group == g)
        at, columns = np.nonzero(np.isfinite(distances[members]) & (distances[members] <= bound[g]))
        mine = hit[group[hit] == g]
        assert (mine.size > 0) == (at.size > 0)
        if mine.size:
            expected = lightest(members[at], columns, distances[members[at], columns])
            assert lightest(mine, ids[mine], weights[mine]) == expected


@pytest.mark.parametrize(
    ("make_search", "name", "split", "k"),
    by_case(*combinations(NAMES, (1, 256, 512, 700), (1, 6, 40), quick=4), in_turn=True),
)
def test_lists_between_two_parts(make_search, name, split, k):
    """Points in order, so that one part says little of the other; every third row has a bound."""
    engine = make_search.engine
    X = CASES[name]("float64")[:: 3 if name == "tight_clusters" else 1][:900]
    X, split = X[np.argsort(X[:, 0], kind="stable")], min(split, len(X) - 1)
    part = (np.arange(len(X)) >= split).astype(np.int32)
    distances = np.where(part[:, None] == part, np.inf, squared_distances(X))
    upper = np.where(np.arange(len(X)) % 3, np.inf, np.sort(distances, axis=1)[:, k // 2])
    rows, groups, bounds = (engine.asarray(array) for array in (np.arange(len(X), dtype=np.int32), part, upper))
    found = make_search(X).find(SearchTask(rows, k, groups, groups, bounds, split=split))
    oracles.assert_unlisted_are_above(found, distances)
    ids, weights = to_host(found.ids), to_host(found.weights)
    expected_ids, expected = least(distances, min(k, split))
    within = expected <= upper[:, None]
    np.testing.assert_array_equal(ids[:, : expected.shape[1]][within], expected_ids[within])
    np.testing.assert_array_equal(weights[:, : expected.shape[1]][within], expected[within])
    np.testing.assert_array_equal(to_host(bounds), upper)  # the task is left alone


@pytest.mark.parametrize(("make_search", "n"), searches((1,), (5,), (300,), (400,), features=lambda n: 8))
def test_no_rows_and_nobody_outside(make_search, n):
    """Nothing bounds rows without neighbours: empty slots of tiles pass the test, too, and there is room for these."""
    xp = make_search.engine.xp
    search, one = make_search(np.random.default_rng(0).normal(size=(n, 8))), xp.zeros(n, "int32")
    for least_only in (False, True):
        none = search.find(SearchTask(xp.empty(0, "int32"), 1, one, one, xp.empty(0), only_minima=least_only))
        assert (none.ids.shape, none.weights.shape, none.upper.shape) == ((0, 1), (0, 1), (0,))
        rows = xp.arange(n, dtype="int32")
        found = search.find(SearchTask(rows, 1, one, one, xp.full(n, xp.inf), only_minima=least_only))
        assert (to_host(found.ids) == -1).all()
        assert np.isinf(to_host(found.weights)).all()


SIZES = [(2, 40, 4), (2, 900, 9), (12, 900, 2), (10, 3000, 1000), (3, 3000, 1000)]


def test_points_at_a_minimum_that_another_row_has_lowered():
    """A point at the new bound counts, though its id is above that of the point at the row's bound before."""
    one = np.arange(1.0, 31)[:, None]
    own = [[0, 0], [0, -40], *(one * [-10, 0])]  # rows 1 and 2 are one group's, in one leaf
    beside = [[3, -40], *(one * [1000, 0] - [0, 10])]  # row 2's nearest, in the next leaf, as is row 0: row 1's first
    above = [[0, 3], *np.repeat(one * [0, 1e6], 3, axis=0)[:63]]  # row 1's nearest, as near as row 2's
    X = np.vstack(([[5, 0]], own, beside, above))
    group = np.ones(128, np.int32)
    group[1:33] = 0
    search = TreeSearch(X, CPU, Report())
    found = search.find(SearchTask(np.arange(128, dtype=np.int32), 1, group, group, only_minima=True))
    np.testing.assert_array_equal(found.ids[1:3, 0], [64, 33])
    np.testing.assert_array_equal(found.weights[1:3, 0], 9)


@pytest.mark.parametrize(
    ("make_search", "size", "only_minima", "bounded"),
    searches(
        *combinations(
            SIZES, (False, True), (False, True),
            quick=[
                (SIZES[0], True, False), (SIZES[1], False, True), (SIZES[2], False, True), (SIZES[2], True, True),
                (SIZES[3], True, False),
            ],
        ),
        features=lambda size, *_: size[0], in_turn=True,
    ),
)  # fmt: skip
def test_search_with_cores(make_search, size, only_minima, bounded):
    """Against all pairs: any cores, groups, bounds; ties between weights and between ids."""
    d, n, side = size
    rng, engine = np.random.default_rng(n + d), make_search.engine
    X = rng.integers(0, side, (n, d)).astype(np.float32)
    distances = squared_distances(X)
    core = rng.choice(np.quantile(distances, [0.0, 0.01, 0.02, 0.05, 0.3]), n)
    group = rng.integers(0, 7, n).astype(np.int32)
    rows = rng.permutation(n)[: n // 2].astype(np.int32)
    upper = np.quantile(distances, rng.uniform(0, 0.05, 7))[group[rows]] if bounded else np.full(rows.size, np.inf)
    k = 1 if only_minima else 3
    outside = np.where(group[rows, None] == group, np.inf, oracles.mutual_reachability(distances, core)[rows])
    expected = ids, weights = least(np.where(outside <= upper[:, None], outside, np.inf), k)
    given = [engine.asarray(array) for array in (rows, group, upper, core)]
    found = make_search(X).find(
        SearchTask(given[0], k, given[1], given[1], given[2], only_minima=only_minima, core=given[3])
    )
    if not only_minima:
        assert_lists(found, expected)
        return
    oracles.assert_unlisted_are_above(found, outside)
    found_ids, found_weights = to_host(found.ids)[:, 0], to_host(found.weights)[:, 0]
    hit = found_ids >= 0
    np.testing.assert_array_equal(found_ids[hit], ids[hit, 0])
    np.testing.assert_array_equal(found_weights[hit], weights[hit, 0])
    for g in range(7):  # each group's least is there
        mine = group[rows] == g
        assert found_weights[mine].min() == weights[mine].min()


@pytest.mark.parametrize(("make_search", "k"), searches((1100,), full(2050), features=lambda k: 9))
def test_long_lists_with_cores(make_search, k):
    """Longer than a GPU's shared memory holds."""
    engine = make_search.engine
    n = k + 50
    X = np.random.default_rng(0).integers(0, 40, (n, 9)).astype(np.float64)
    rows = np.arange(0, n, 100, dtype=np.int32)
    distances = squared_distances(X)
    core = oracles.core_distances(distances, 30)
    weights = without_self(oracles.mutual_reachability(distances, core))
    everyone, on_rows = (engine.asarray(a) for a in (np.arange(n, dtype=np.int32), rows))
    task = SearchTask(on_rows, k, everyone, everyone, core=engine.asarray(core))
    assert_lists(make_search(X).find(task), least(weights[rows], k))


def test_groups_may_change_in_place_between_tasks(engine):
    """As those of components do: then a search is what it would be at first, also in what its filter passes."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 2000).astype(np.int32)
    X = engine.asarray((9 * rng.normal(size=(4, 40))[label] + rng.normal(size=(2000, 40))).astype(np.float32))
    rows, redone = engine.xp.arange(2000, dtype="int32"), []
    for before in ([rows], []):
        report, group = Report(), engine.asarray(label)
        search = BruteForceSearch(X, engine, report)
        for other in before:
            group[...] = other
            search.find(SearchTask(rows, 1, group, group, only_minima=True))
        report.clear()
        group[...] = engine.asarray(label)
        found = search.find(SearchTask(rows, 1, group, group, only_minima=True))
        redone.append((report["connect"]["rows_redone"], to_host(found.ids).tolist()))
    assert redone[0] == redone[1]

"""Every metric's searches, filters and formulas: least values, proofs, norms and powers."""

import re

import numpy as np
import pytest
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import ALL_METRICS, points, takes_booleans, with_cases
from oracles import SearchKind, assert_lists, least

from rapids_slink import metrics
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import ExactPoints, formulas
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import choose_filter, filter_formula
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import PartLists, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host


def distances_of_all_pairs(metric, rows):
    """The formula's values on the CPU."""
    return exact_kernels(CPU).all_distances(rows, metric)


@pytest.mark.parametrize(("metric", "p", "name"), with_cases(ALL_METRICS, "uneven_blobs_8d", "cauchy_3d", "last_bit"))
def test_searches_find_the_least_values(metric, p, name, engine):
    """Every search that serves, in groups and with bounds, in the total order."""
    metric = get_metric(metric, p)
    X = points(name, metric.name)
    try:
        rows = metric_rows(metric, X, CPU)
    except ValueError as refused:
        with pytest.raises(ValueError, match=re.escape(str(refused))):
            metric_rows(metric, engine.asarray(X), engine)
        return
    rng, n = np.random.default_rng(0), len(rows)
    distances = distances_of_all_pairs(metric, rows)
    ways = ["brute_force", *["tree"] * metric.boxes]
    searches = [SearchKind(engine.name, way) for way in ways]
    everyone = np.arange(n, dtype=np.int32)
    for group, k in ((everyone, 4), (rng.integers(0, 5, n).astype(np.int32), 1)):
        upper = np.where(rng.random(n) < 0.5, np.inf, 1.0) if k == 1 else np.full(n, np.inf)
        wanted = (group[:, None] != group) & (distances <= upper[:, None])
        ids, weights = least(np.where(wanted, distances, np.inf), k)
        wide = (0, 0), (0, k - ids.shape[1])
        expected = np.pad(ids, wide, constant_values=-1), np.pad(weights, wide, constant_values=np.inf)
        for search in searches:
            if search.serves(rows.shape[1]):
                on_rows, groups, bounds = (engine.asarray(part) for part in (everyone, group, upper))
                found = search(rows, metric=metric).find(SearchTask(on_rows, k, groups, groups, bounds))
                assert_lists(found, expected)


@pytest.mark.parametrize(("metric", "p"), [(m, p) for m, p in ALL_METRICS if m not in ("minkowski", "haversine")])
def test_lists_known_within_two_parts(metric, p, engine):
    metric, n, k, split = get_metric(metric, p), 700, 5, 256
    X = np.random.default_rng(0).normal(size=(n, 30))
    X = (X > 0).astype(np.float64) if takes_booleans(metric.name) else X
    rows, part = metric_rows(metric, X, CPU), np.arange(n) >= split
    distances = distances_of_all_pairs(metric, rows)
    np.fill_diagonal(distances, np.inf)
    ids, weights = least(np.where(part[:, None] == part, distances, np.inf), k)
    known = PartLists(engine.asarray(ids.astype(np.int32)), engine.asarray(weights), split)
    on_rows = engine.xp.arange(n, dtype="int32")
    search = SearchKind(engine.name, "brute_force")(rows, metric=metric)
    assert_lists(search.find(SearchTask(on_rows, k, on_rows, on_rows, part_lists=known)), least(distances, k))


# -------------------------------------------------------------------------------------------------- filters


#: Metrics with each device that filters them.
FILTERED = [
    pytest.param(metric, p, device, marks=[pytest.mark.gpu] if device == "cuda" else [])
    for metric, p in ALL_METRICS
    for device in ("cpu", "cuda")
    if (kind := get_metric(metric, p).filter) == "product"
    or (kind == "direct" and device == "cuda" and filter_formula(get_metric(metric, p)))
]


def filters(metric, rows, engine):
    """All filters that the device has for some rows, from the coarsest on."""
    filter_, _ = choose_filter(ExactPoints(*[engine.asarray(rows)] * 2, metric), engine)
    filter_.arrange(exact_kernels(engine).low_discrepancy_order(len(rows)))
    while filter_ is not None:
        yield filter_
        filter_ = filter_.finer()


def passed(filter_, bound, engine):
    """What passes for every row with these bounds, all points being wanted."""
    xp, n = engine.xp, bound.size
    ids = xp.arange(n, dtype="int32")
    groups = xp.zeros(n, "int32"), xp.ones(n, "int32")
    task = SearchTask(ids, 1, *groups)
    return filter_.candidates(filter_.query(ids), slice(0, n), bound, filter_.tested_groups(groups, task), task)


@pytest.mark.parametrize("d", [40, full(9), full(300)])
@pytest.mark.parametrize(("metric", "p", "device"), FILTERED, indirect=["device"])
def test_no_pair_fails_the_filter_at_its_own_value(metric, p, d, engine):
    """Rows as near, as far and as uneven as float64 has them; every pair must pass when its value is the bound."""
    metric = get_metric(metric, p)
    rng = np.random.default_rng(d)
    X = rng.normal(size=(60, d)) * 10.0 ** rng.integers(-12, 12, (60, 1))
    X[20:40] = X[:20] * (1 + rng.normal(size=(20, d)) * 10.0 ** rng.integers(-16, -1, (20, 1)))
    X[40:50] = np.round(X[40:50]) + np.arange(d) % 5
    if takes_booleans(metric.name):
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, X, CPU)
    distances = distances_of_all_pairs(metric, rows)
    i = np.arange(60)
    for filter_ in filters(metric, rows, engine):
        for shift in range(1, 60):
            other = (i + shift) % 60
            found = passed(filter_, engine.asarray(distances[i, other]), engine)
            ids = to_host(found.ids if found.order is None else found.order[found.ids % 60])  # % for what is unwritten
            written = np.arange(found.capacity) < to_host(found.count)[:, None]
            assert ((ids == other[:, None]) & written).any(axis=1).all()


@pytest.mark.parametrize(
    ("metric", "p", "device"),
    [case for case in FILTERED if case.values[0] != "minkowski" or case.values[1] in (1.5, 3.0)],
    indirect=["device"],
)
def test_the_filter_is_tight(metric, p, engine):
    """A filter that lets everything pass would prove nothing."""
    metric = get_metric(metric, p)
    X = np.random.default_rng(0).normal(size=(500, 30))
    if takes_booleans(metric.name):
        X = (X > 0).astype(np.float64)
    rows = metric_rows(metric, X, CPU)
    distances = distances_of_all_pairs(metric, rows)
    bound = np.sort(distances, axis=1)[:, 12]
    found = passed(next(filters(metric, rows, engine)), engine.asarray(bound), engine)
    assert int(found.count.sum()) <= 1.2 * (distances <= bound[:, None]).sum()


# -------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 127, 128, 129, 136, 257, 1000, 2500])
@pytest.mark.parametrize("centre", [False, True])
def test_norms_and_means(centre, d, dtype, engine):
    """NumPy's mean and SciPy's norm, to the bit; SciPy shows its norm in the cosine of orthogonal rows only."""
    rng = np.random.default_rng(d)
    X = ((rng.normal(size=(40, d)) + 3) * 10.0 ** rng.integers(-5, 5, (40, 1))).astype(dtype)
    rows = to_host(exact_kernels(engine).with_norms(engine.asarray(X), centre))
    expected = X.astype(np.float64)
    if centre:
        expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_array_equal(rows[:, :d], expected)
    np.testing.assert_allclose(rows[:, d], np.linalg.norm(expected, axis=1), rtol=1e-14)


@given(st.floats(0, 1e300), st.floats(0.01, 60))
def test_general_powers_are_right_to_two_units(t, p):
    with np.errstate(over="ignore", under="ignore"):
        exact = np.longdouble(t) ** np.longdouble(p)
    found = formulas.general_power(t, p)
    if exact > np.finfo(np.float64).max:
        assert found > 1e308
    elif exact > 1e-300:
        assert abs(found - exact) <= 2 * np.spacing(np.float64(exact))
    else:
        assert found <= 2e-300


@pytest.mark.parametrize("p", [1.5, 2.3, 7.7])
def test_powers_on_the_device_are_the_cpus(p, engine):
    rng = np.random.default_rng(0)
    X = (10.0 ** rng.uniform(-150, 100, 5000) * rng.uniform(1, 10, 5000))[:, None]
    X[::7] = 1 + rng.integers(-50, 50, (len(X[::7]), 1)) * 2.0**-52
    X = np.concatenate([np.zeros((1, 1)), X])
    src, dst = np.zeros(5000, np.int32), np.arange(1, 5001, dtype=np.int32)
    metric = get_metric("minkowski", p)
    found = exact_kernels(engine).pair_distances(*map(engine.asarray, (X, src, dst)), metric=metric)
    expected = np.minimum([formulas.power(x, p) for x in X[1:, 0]], metrics.OVERFLOW)
    np.testing.assert_array_equal(to_host(found), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [11, 15, 16, 127])
@pytest.mark.parametrize("name", ["cosine", "correlation", "inner_product"])
def test_a_gpu_sums_all_features_of_float32(name, d):
    """The formula sums an even number of them, and a row is copied 16 bytes at a time."""
    metric, lists = get_metric(name, 2.0), []
    X = np.random.default_rng(d).normal(size=(3000, d)).astype(np.float32)
    for device in (CPU, resolve("cuda")):
        rows = metric_rows(metric, device.asarray(X), device)
        lists.append(neighbor_lists(BruteForceSearch(rows, device, Report(), metric=metric), 3000, 5, device))
    np.testing.assert_array_equal(to_host(lists[1].ids), lists[0].ids)
    np.testing.assert_array_equal(to_host(lists[1].weights), lists[0].weights)

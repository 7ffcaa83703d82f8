"""The filter of bits keeps every pair within the bound, and few others; by either body."""

import numpy as np
import pytest
from hard_cases import full

from rapids_slink import knn_graph
from rapids_slink.metrics import METRICS
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.device import resolve, to_host

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["wgmma", "mma"], autouse=True)
def body(request, fused_body):
    """Each body of the kernel, where the GPU has its instructions."""
    if not fused_body(request.param).has_bit_products():
        pytest.skip("this GPU does not count common bits")


def exact_points(metric, X):
    import cupy

    rows = metric_rows(metric, cupy.asarray(X), resolve("cuda"), compact=True)
    return ExactPoints(rows, rows, metric)


def bits(rng, n, d):
    """Rows from nearly none to nearly all ones, some of them equal."""
    X = rng.random((n, d)) < rng.choice([0.01, 0.2, 0.5, 0.95], n)[:, None]
    X[: n // 4] = X[n // 4 : n // 2]
    X[:, 0] |= ~X.any(axis=1)
    return X


def kept_and_wanted(filter_, exact, rng, n):
    """By row: the points of a band that pass, those within the bound, and how many are not."""
    import cupy

    distances = to_host(filter_.exact_kernels.all_distances(exact.points, exact.metric))
    some = rng.integers(0, n, 300).astype(np.int32)
    bound = distances[some, rng.integers(0, n, 300)]
    bound[::40] = np.inf
    group = np.arange(n, dtype=np.int32) // 2
    groups = cupy.asarray(group[some]), cupy.asarray(group)
    task = SearchTask(some, n // 12 + 1, *groups, per_group_minimum=True)
    order = filter_.first_order()
    filter_.arrange(order)
    band = slice(256, n)
    tested = cupy.asarray(bound), filter_.tested_groups(groups, task), task
    kept = filter_.candidates(filter_.query(cupy.asarray(some)), band, *tested)
    positions, count = to_host(kept.ids), to_host(kept.count)
    assert count.max() <= kept.capacity
    ids = positions if kept.order is None else to_host(kept.order)[positions % n]
    inside = np.isin(np.arange(n), to_host(order)[band])
    for i, row in enumerate(some):
        wanted = np.flatnonzero(inside & (group != group[row]) & (distances[row] <= bound[i]))
        passed = ids[i, : count[i]]
        assert np.unique(passed).size == passed.size
        yield passed, wanted, (inside & (group != group[row])).sum() - wanted.size


@pytest.mark.parametrize("metric", ["jaccard", "dice", "containment", "hamming"])
@pytest.mark.parametrize("d", [1, 65, 300, 2048, *map(full, (63, 64, 1024, 4097))])
def test_of_bits_what_passes_is_near(d, metric):
    from rapids_slink.neighbors.filter.fused.filter import CountFilter

    rng, n = np.random.default_rng(d), 900
    exact = exact_points(METRICS[metric], bits(rng, n, d))
    assert exact.points.dtype == "uint64"
    filter_ = CountFilter(exact, resolve("cuda"))
    surplus = unwanted = 0
    for passed, wanted, others in kept_and_wanted(filter_, exact, rng, n):
        assert np.isin(wanted, passed).all()
        surplus, unwanted = surplus + passed.size - wanted.size, unwanted + others
    # A tile takes the line of its least number of ones, and seven tiles have them all. A chord is loose in the middle.
    assert surplus <= (0.9 if metric == "containment" else 0.4) * unwanted


def test_a_symmetric_pass_tests_a_pair_for_both_its_rows():
    import cupy

    from rapids_slink.neighbors.filter.fused.filter import CountFilter

    rng, n = np.random.default_rng(0), 1000
    exact = exact_points(METRICS["jaccard"], bits(rng, n, 200))
    filter_ = CountFilter(exact, resolve("cuda"))
    distances = to_host(filter_.exact_kernels.all_distances(exact.points, exact.metric))
    bound = np.sort(distances, axis=1)[:, 20]
    filter_.arrange(*filter_.order_by_bound(cupy.asarray(bound)))
    order = to_host(filter_.order)
    assert sorted(order) == list(range(n))
    survivors = filter_.empty_survivors(600)
    for offsets in filter_.symmetric_slices():
        filter_.append_both(offsets, cupy.asarray(bound[order]), survivors)
    ids, count = to_host(survivors.ids), to_host(survivors.count)
    assert count.max() <= survivors.capacity
    for position, row in enumerate(order):
        passed = order[ids[position, : count[position]]]
        wanted = np.flatnonzero(distances[row] <= bound[row])
        assert np.unique(passed).size == passed.size
        assert np.isin(wanted[wanted != row], passed).all()
    tight = cupy.asarray(np.full(n, np.inf))
    filter_.tighten(survivors, tight, 20, False)
    np.testing.assert_allclose(to_host(tight), np.sort(distances[order], axis=1)[:, 20], rtol=1e-6)
    assert (to_host(tight) >= np.sort(distances[order], axis=1)[:, 20]).all()


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_rows_without_ones(metric):
    """Their number of ones, negated, must not be a negative zero."""
    X = bits(np.random.default_rng(0), 3000, 200)
    X[::20] = False
    of_either = [knn_graph(X, 8, metric=metric, device=device) for device in ("cuda", "cpu")]
    assert of_either[0].equals(of_either[1])

"""Near duplicates: each rule against its definition on all pairs, ranks, groups, another table, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from arrow_tables import to_stream
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import ALL_METRICS, points, without_zeros
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from rapids_slink import Scaled, deduplicate
from rapids_slink.forced import force
from rapids_slink.metrics import distances, get_metric
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.within import Limit
from rapids_slink.points.output import on_device, on_host
from rapids_slink.runtime.device import CPU

EVERY = [*ALL_METRICS, ("haversine", 2.0)]
QUICK = [("euclidean", 2.0), ("cosine", 2.0), ("jaccard", 2.0), ("minkowski", 2.3), ("haversine", 2.0)]
RULES = ("components", "ranked", "leaders")


def matrices(X, metric="euclidean", p=2.0):
    """The distances of all pairs of rows, and by what of two the nearer is chosen."""
    metric, n = get_metric(metric, p), len(X)
    src, dst = (ends.ravel().astype(np.int32) for ends in np.indices((n, n)))
    surrogate = kernels(CPU).pair_distances(metric_rows(metric, X, CPU), src, dst, metric)
    weight = distances(metric, surrogate.copy(), (src, dst), (X, X), CPU)
    by = surrogate if Limit.of(metric, 1.0, X.shape[1]).decides else weight
    return weight.reshape(n, n), by.reshape(n, n)


def expected(weight, by, t, rule, order, group=None):
    """Which row each row goes to, by the definition."""
    n = len(weight)
    near = (weight <= t) & ~np.eye(n, dtype=bool)
    near &= near.T
    if group is not None:
        near &= group[:, None] == group
    place, result = np.empty(n, int), np.arange(n)
    place[order] = np.arange(n)
    if rule == "components":
        _, component = connected_components(near, directed=False)
        for row in range(n):
            result[row] = min(np.flatnonzero(component == component[row]), key=place.__getitem__)
        return result
    for row in order:
        others = [o for o in np.flatnonzero(near[row]) if place[o] < place[row]]
        if rule == "leaders":
            others = [o for o in others if result[o] == o]
        if others:
            result[row] = min(others, key=lambda other: (by[row, other], place[other]))
    return result


def assert_rules(X, weight, by, t, device, order=None, keep="first", group=None, **how):
    order = np.arange(len(weight)) if order is None else order
    given = {} if group is None else {"groups": group}
    for rule in RULES:
        found = deduplicate(X, max_distance=t, by=rule, keep=keep, details=True, device=device, **given, **how)
        of = np.asarray(on_host(found.duplicate_of))
        np.testing.assert_array_equal(of, expected(weight, by, t, rule, order, group), err_msg=rule)
        assert of.dtype == np.int32
        rows = np.arange(len(of))
        length = np.where(of == rows, 0.0, weight[rows, of])
        np.testing.assert_array_equal(np.asarray(on_host(found.distance)), length, err_msg=rule)
        assert found.report_["rows"]["kept"] == (of == rows).sum()
        assert found.report_["rows"]["removed"] == (of != rows).sum()
        assert found.report_["rows"]["largest_group"] == np.bincount(of).max()


@pytest.mark.parametrize(("metric", "p"), [pair if pair in QUICK else full(*pair) for pair in EVERY])
@pytest.mark.parametrize("block", [None, 9])
def test_rules_of_every_metric(metric, p, block, device):
    """With ties at the distance itself, in halves of blocks of nine rows too."""
    X = points("decimal_grid", metric)[::4]
    X = without_zeros(X[:, :2] / 50 if metric == "haversine" else X.copy(), metric)
    if metric in ("cosine", "correlation"):
        X = X[np.ptp(X, axis=1) > 0]
    weight, by = matrices(X, metric, p)
    others = weight[np.triu_indices(len(X), 1)]
    keep = np.random.default_rng(1).integers(0, 9, len(X))
    order = np.lexsort((np.arange(len(X)), -keep))
    with force(block=block):
        for share in (0.005, 0.1):
            t = np.quantile(others, share, method="nearest")
            assert_rules(X, weight, by, t, device, metric=metric, p=p)
            assert_rules(X, weight, by, t, device, order, keep, metric=metric, p=p)


@given(st.data())
def test_random_rows(data):
    """Few features, many ties and copies, any rank and group."""
    n = data.draw(st.integers(1, 40))
    values = st.lists(st.integers(0, 6), min_size=2 * n, max_size=2 * n)
    X = np.array(data.draw(values), float).reshape(n, 2)
    keep = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)))
    group = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    t = data.draw(st.sampled_from([0.0, 1.0, 1.5, 2.0, 9.0]))
    weight, by = matrices(X)
    with force(block=data.draw(st.sampled_from([1, 2, 5, None]))):
        assert_rules(X, weight, by, t, "cpu", np.lexsort((np.arange(n), -keep)), keep, group)


@pytest.mark.parametrize("d", [2, full(40)])
def test_halves_of_many_rows(d, device):
    """The same rows in one block, in halves, and where the pairs of a block are too many."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(5000, d)).astype(np.float32)
    X[:2600] *= 0.01  # 3.4 million pairs
    t, how = 0.1 * np.sqrt(d), {"device": device, "details": True}
    for rule in RULES[1:]:
        found = deduplicate(X, max_distance=t, by=rule, **how)
        with force(block=600):
            again = deduplicate(X, max_distance=t, by=rule, **how)
        for one, other in ((found.duplicate_of, again.duplicate_of), (found.distance, again.distance)):
            np.testing.assert_array_equal(on_host(one), on_host(other))
        of = on_host(found.duplicate_of)
        stays = of == np.arange(len(X))
        assert 0 < stays.sum() < 3500
        if rule == "leaders":
            assert stays[of].all()


def test_ranks(engine):
    """The last row, a column of a frame, which is no feature, and the index and type of the result."""
    X = pd.DataFrame({"x": [5.0, 0.0, 5.1, 7.0, 5.2], "score": [1, 9, 3, 9, 2]}, index=list("abcde"))
    frame, how = on_device(X, engine), {"max_distance": 0.15, "device": engine.name}
    for by, first, last, best in (
        ("components", [0, 1, 0, 3, 0], [4, 1, 4, 3, 4], [2, 1, 2, 3, 2]),
        ("ranked", [0, 1, 0, 3, 2], [2, 1, 4, 3, 4], [2, 1, 2, 3, 2]),
        ("leaders", [0, 1, 0, 3, 4], [0, 1, 4, 3, 4], [2, 1, 2, 3, 2]),
    ):
        assert on_host(deduplicate(frame[["x"]], by=by, **how)).tolist() == first
        assert on_host(deduplicate(frame[["x"]], by=by, keep="last", **how)).tolist() == last
        found = on_host(deduplicate(frame, by=by, keep="score", **how))
        assert (found.tolist(), found.name, list(found.index)) == (best, "duplicate_of", list("abcde"))
        assert on_host(deduplicate(frame[["x"]], by=by, keep=frame["score"], **how)).tolist() == best
    pl = pytest.importorskip("polars")
    table = deduplicate(pl.DataFrame({"x": [5.0, 0.0, 5.1]}), by="leaders", keep="last", **how)
    assert isinstance(table, pl.Series)
    assert table.to_list() == [2, 1, 2]


def test_groups(engine):
    """A column, in which rows of another group are no duplicates, and keys."""
    X = pd.DataFrame({"x": [0.0, 0.0, 0.1, 0.1, 5.0], "user": list("abbab")})
    frame, how = on_device(X, engine), {"max_distance": 0.2, "device": engine.name}
    for by in RULES:
        assert on_host(deduplicate(frame, groups="user", by=by, **how)).tolist() == [0, 1, 1, 0, 4]
        assert on_host(deduplicate(frame[["x"]], groups=X["user"].tolist(), by=by, **how)).tolist() == [0, 1, 1, 0, 4]
    assert on_host(deduplicate(frame, groups="user", **how)).tolist() == [0, 1, 1, 0, 4]


def test_another_table(engine):
    """Rows near it go first, and then rows near one of those that are left."""
    X = np.array([[5.0], [0.0], [5.1], [7.0], [5.2], [9.0]])
    Y, how = np.array([[7.1], [0.0], [5.0]]), {"max_distance": 0.15, "device": engine.name, "details": True}
    x, y = engine.asarray(X), engine.asarray(Y)
    found = deduplicate(x, against=y, **how)
    assert on_host(found.duplicate_of).tolist() == [-1, -1, -1, -1, 4, 5]
    assert on_host(found.against).tolist() == [2, 1, 2, 0, -1, -1]
    np.testing.assert_allclose(on_host(found.distance), [0, 0, 0.1, 0.1, 0, 0], atol=1e-12)
    x = engine.asarray(np.concatenate((X, [[5.25]])))
    for by in RULES:
        found = deduplicate(x, against=y, by=by, **how)
        assert on_host(found.duplicate_of).tolist() == [-1, -1, -1, -1, 4, 5, 4]
        found = deduplicate(x, against=y, by=by, keep="last", **how)
        assert on_host(found.duplicate_of).tolist() == [-1, -1, -1, -1, 6, 5, 6]
    assert on_host(deduplicate(y, against=y, by="leaders", **how).duplicate_of).tolist() == [-1, -1, -1]


def test_another_table_of_many_rows(device):
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(3000, 5)), rng.normal(size=(2000, 5))
    found = deduplicate(X, against=Y, max_distance=0.7, device=device, details=True)
    near = cdist(X, Y)
    np.testing.assert_array_equal(on_host(found.against), np.where(near.min(axis=1) <= 0.7, near.argmin(axis=1), -1))


def test_rows_without_coordinates(device):
    words, how = ["kitten", "sitting", "mitten", "", "kitten", "smitten"], {"metric": "levenshtein", "device": device}
    for by, of in (("components", [0, 1, 0, 3, 0, 0]), ("ranked", [0, 1, 0, 3, 0, 2]), ("leaders", [0, 1, 0, 3, 0, 5])):
        found = deduplicate(words, max_distance=1, by=by, details=True, **how)
        assert on_host(found.duplicate_of).tolist() == of
    assert on_host(deduplicate(words, max_distance=1, by="leaders", keep="last", **how)).tolist() == [4, 1, 5, 3, 4, 5]
    found = deduplicate(words, max_distance=1, against=["bitten"], **how)
    assert on_host(found).tolist() == [-1, 1, -1, 3, -1, 5]
    sets = [{1, 2, 3}, {1, 2}, {7}, {1, 2, 3}]
    found = deduplicate(sets, min_similarity=0.6, by="leaders", metric="jaccard", device=device)
    assert on_host(found).tolist() == [0, 0, 2, 0]


def test_numbers_as_embeddings_come(device):
    """Of which rows are taken in another order."""
    rows, scale = np.array([[40], [0], [41], [56], [42]], np.int8), [0.125, 1.0, 0.125, 0.125, 0.125]
    for X in (Scaled(rows, 0.125), Scaled(rows, scale), Scaled(rows, np.array(scale)), (rows / 8).tolist()):
        for by in RULES[1:]:
            found = deduplicate(X, max_distance=0.125, by=by, keep="last", device=device)
            assert on_host(found).tolist() == ([2, 1, 4, 3, 4] if by == "ranked" else [0, 1, 4, 3, 4])
    narrow = pytest.importorskip("ml_dtypes").bfloat16
    found = deduplicate((rows / 8).astype(narrow), max_distance=0.125, by="ranked", keep="last", device=device)
    assert on_host(found).tolist() == [2, 1, 4, 3, 4]


def test_the_column_of_ranks_is_no_feature_of_the_other_table(device):
    X, Y = pd.DataFrame({"x": [0.0, 0.1, 5.0], "score": [1, 2, 3]}), pd.DataFrame({"x": [5.1], "score": [9]})
    for table in (Y, Y[["x"]]):
        found = deduplicate(X, against=table, by="leaders", keep="score", max_distance=0.15, device=device)
        assert on_host(found).tolist() == [1, 1, -1]


def test_tables_that_export_a_stream(device):
    """What is known of such a table is read from its stream, as its number of rows."""
    frame = pd.DataFrame({"x": [0.0, 5.0, 0.1, 5.2, 9.0], "rank": [1, 3, 2, 0, 9]})
    for how in ({"by": "ranked"}, {"by": "leaders"}, {"keep": "rank"}, {"against": frame[3:]}):
        streams = {name: to_stream(value) if name == "against" else value for name, value in how.items()}
        found = deduplicate(to_stream(frame), max_distance=0.3, device=device, **streams)
        expected = deduplicate(frame, max_distance=0.3, device=device, **how)
        assert np.asarray(found).tolist() == on_host(expected).tolist(), how


def test_input_is_not_changed(device):
    X, keep = np.array([[0.0], [1.0], [0.1]]), np.array([1, 2, 3])
    X.flags.writeable = keep.flags.writeable = False
    deduplicate(X, max_distance=0.5, by="leaders", keep=keep, device=device)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"by": "first"}, ValueError, "by must be one of 'components', 'ranked', 'leaders', got 'first'"),
        ({"keep": "score"}, ValueError, "keep must be 'first', 'last', a column of X or a number for each row"),
        ({"keep": [1.0, 2.0]}, ValueError, r"keep must hold one number for each of 3 rows, got shape \(2,\)"),
        ({"keep": ["a", "b", "c"]}, TypeError, "keep must hold numbers, got dtype"),
        ({"keep": [1.0, np.nan, 0.0]}, ValueError, "keep must have no missing values, got 1 NaN"),
        ({"groups": [1, 2], "by": "ranked"}, ValueError, "groups must hold one key for each of 3 rows, got 2"),
        ({"groups": [1, 2, 2], "against": np.ones((1, 2))}, TypeError, "groups are of one table"),
        ({"against": np.ones((2, 3))}, ValueError, "X and Y must have the same number of features, got 2 and 3"),
        ({"by": "leaders", "min_samples": 3}, TypeError, "n_neighbors and min_samples are for by='components'"),
        ({"by": "leaders", "metric": "precomputed"}, ValueError, "metric='precomputed' takes by='components'"),
        ({"max_distance": None}, TypeError, "max_distance must be a number, got None"),
        ({"n_clusters": 3}, TypeError, "no parameter 'n_clusters'. Did you mean 'max_distance'"),
        ({"kep": "last"}, TypeError, "Did you mean 'keep'"),
    ],
)
def test_input_is_checked(how, error, message):
    with pytest.raises(error, match=message):
        deduplicate(np.ones((3, 2)), device="cpu", **{"max_distance": 1.0, **how})

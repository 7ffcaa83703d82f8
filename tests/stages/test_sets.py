"""Sets, in matrices and columns, against plain Python over all pairs and against rows of booleans."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import every
from item_cases import EVERY_SET_METRIC, SETS, all_ends, families, matrix, pairs_within, table
from scipy import sparse

import rapids_slink
from rapids_slink import SingleLinkage
from rapids_slink.items import search
from rapids_slink.items.stored import OF_BITS, WIDTHS, Sets, distances_of
from rapids_slink.metrics import get_metric
from rapids_slink.runtime.device import CPU, cuda, to_host


def sets_of(X, metric="jaccard"):
    return Sets.read({"X": X}, get_metric(metric), CPU)


@EVERY_SET_METRIC
def test_the_matrix_of_all_distances(metric):
    sets, far = families(90, seed=12), [{2**40 * e for e in held} for held in families(40, seed=12)]
    for values in (sets, far, matrix(sets), [{1}], [{1}, {2}, {1}]):
        made = sets_of(values, metric)
        src, dst = all_ends(len(made))
        np.testing.assert_array_equal(search.all_distances(made).ravel(), made.distances(src, dst))
    assert (search.all_distances(sets_of([set(), set(), {1}])) == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]).all()
    assert (search.all_distances(sets_of([set(), set()])) == 0).all()


@pytest.mark.parametrize("way", ["distances", "projections", "keys"])
def test_the_first_of_all_sets_at_distance_zero_is_nearest(way, prescribe):
    """By containment a set within another is at distance zero, and so is its copy."""
    prescribe(items=way)
    points = [{9}, {1, 2, 3}, {1, 2}, {1}]
    found = rapids_slink.nearest_neighbors([{1}, {1, 2}, {1, 2, 3}], points, metric="containment", device="cpu")
    assert found["dst"].tolist() == [1, 1, 1]
    assert found["weight"].tolist() == [0, 0, 0]


def test_groups_by_a_column():
    frame = pd.DataFrame({"key": list("aabb"), "items": [[1, 2], [2, 1], [1, 2], [3]]})
    model = SingleLinkage(None, max_distance=0.5, metric="jaccard", device="cpu").fit(frame, groups="key")
    assert model.labels_.tolist() == [0, 0, 1, 2]


def test_a_dense_table_beside_sets_is_refused():
    with pytest.raises(TypeError, match="Y must be a column of sets as the other rows are, got 2 dimensions"):
        rapids_slink.pairs([{1}], np.eye(2), max_distance=1, metric="jaccard", device="cpu")
    with pytest.raises(TypeError, match="row 0 of Y must be a set or a list of elements, got 1"):
        rapids_slink.pairs([{1}], [1, 2], max_distance=1, metric="jaccard", device="cpu")


def test_near_duplicates():
    shingles = pd.Series([{"a", "b", "c"}, {"x"}, {"c", "b", "a"}, {"a", "b", "c", "d"}, {"y"}], index=list("pqrst"))
    found = rapids_slink.deduplicate(shingles, max_distance=0.3, metric="jaccard", device="cpu")
    assert found.tolist() == [0, 1, 0, 0, 4]
    assert found.index.tolist() == list("pqrst")


@pytest.mark.parametrize(("metric", "step"), every(SETS, (1, 7919, -1), quick=[*zip(SETS, (1, 7919, -1), strict=True)]))
def test_rows_of_bits_are_no_farther_than_the_sets(metric, step):
    """Of elements that fit into the bits, of any integers, and of hashed text."""
    sets = families(120, seed=7)
    X = [{step * e if step > 0 else f"e{e}" for e in held} for held in sets]
    made = sets_of(X, metric)
    src, dst = np.triu_indices(len(sets), 1)
    exact = table(metric, sets)[src, dst]
    for width in (*WIDTHS[:4], 4096):
        bits = np.unpackbits(made.rows_of_bits(width)[0], axis=1).astype(np.int64)
        np.testing.assert_array_equal(bits.sum(axis=1), made.sizes)
        common = (bits @ bits.T)[src, dst]
        lower = distances_of(get_metric(metric), common, made.sizes[src], made.sizes[dst], np)
        assert (lower <= exact).all()
        if width >= 3000 and step == 1:
            np.testing.assert_array_equal(lower, exact)
    projection = made.projection(0.5)
    assert projection.metric is OF_BITS[metric]
    assert projection.surrogate_bound == 0.5


@pytest.mark.full
@EVERY_SET_METRIC
def test_a_few_large_sets_do_not_make_all_rows_of_bits_long(metric):
    """Their own rows are too short for them, so they are compared with each other."""
    rng = np.random.default_rng(0)
    sets = [set(rng.integers(0, 10**6, 20).tolist()) for _ in range(300)]
    sets[::100] = [set(range(size, 40 * size)) | sets[1] for size in (5000, 5001, 300)]
    made, distances = sets_of(sets, metric), table(metric, sets)
    for width in (128, 4096):
        bits, large = made.rows_of_bits(width)
        assert bits.shape[1] < 2 * width / 8
        assert set(large.tolist()) == {0, 100, 200}
        bits = np.unpackbits(bits, axis=1).astype(np.int64)
        sizes = bits.sum(axis=1)
        lower = distances_of(get_metric(metric), bits @ bits.T, sizes[:, None], sizes, np)
        assert (np.delete(lower, large, axis=0) <= np.delete(distances, large, axis=0)).all()
    for limit in (0.2, 0.95):
        for how in (sets, sets[::-1]):
            found = rapids_slink.pairs(how, max_distance=limit, metric=metric, device="cpu")
            pd.testing.assert_frame_equal(found, pairs_within(table(metric, how), limit))
    parts = rapids_slink.iter_pairs(sets, max_distance=0.5, rows=150, metric=metric, device="cpu")
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), pairs_within(distances, 0.5))


def test_a_set_is_searched_for_in_a_much_longer_one():
    sets = [set(range(0, 3000, 3)), {0, 3, 4, 2997, 2998}, {5}, set(), {2999}, {0}, set(range(2990, 2996))]
    src, dst = all_ends(7)
    expected = table("jaccard", sets).ravel()
    np.testing.assert_array_equal(sets_of(sets).distances(src, dst), expected)


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.5, 0.9, 0.999])
@EVERY_SET_METRIC
def test_sets_within_the_limit_share_a_key(metric, limit):
    sets = families(150, seed=9)
    made, distances = sets_of(sets, metric), table(metric, sets)
    item, key = made.keys(limit, slice(0, 100))
    more = made.keys(limit, slice(100, 150))
    item, key = np.concatenate([item, more[0]]), np.concatenate([key, more[1]])
    held = [set(key[item == row].tolist()) for row in range(len(sets))]
    assert all(len(keys) <= len(own) for keys, own in zip(held, sets, strict=True))
    for i, j in np.argwhere(np.triu(distances <= limit, 1)):
        assert held[i] & held[j]
    if metric != "containment":
        assert np.mean([len(keys) for keys in held]) <= 1 + (limit + 0.05) * made.sizes.mean() * (1.4 if limit else 1)


def test_sets_without_a_key(prescribe):
    prescribe(items="projections")
    found = rapids_slink.pairs([set(), set()], max_distance=0.3, metric="jaccard", device="cpu")
    assert found.to_numpy().tolist() == [[0, 1, 0]]


def test_keys_are_taken_where_few_pairs_share_one():
    rng = np.random.default_rng(0)
    rare = sets_of(list(rng.integers(0, 10**6, (2000, 20))))
    assert rare.keys_an_item(0.2) == pytest.approx(5, abs=0.1)
    assert rare.keys_an_item(1.0) == np.inf
    common = sets_of([set(rng.integers(0, 8, 4).tolist()) for _ in range(2000)])
    assert common.keys_an_item(0.2) == np.inf


def test_few_pairs_of_sketches_pass_that_are_not_near():
    rng = np.random.default_rng(0)
    sketches = rng.integers(0, 2**63, (400, 1000), np.int64)
    sketches[200:, :750] = sketches[:200, :750]  # 0.6 of each pair's union
    made = sets_of(list(sketches))
    width = made.suitable_size(0.5)
    assert 1024 < width <= 4096
    bits = np.unpackbits(made.rows_of_bits(width)[0], axis=1).astype(np.float32)
    common = np.triu(bits @ bits.T, 1)
    assert (common / (2000 - common) >= 0.5).sum() < 220


def test_types_of_input():
    sets = families(30, seed=8)
    expected = rapids_slink.pairs(sets, max_distance=0.9, metric="jaccard", device="cpu")
    rows = [sorted(held) for held in sets]
    arrays = np.empty(len(rows), object)
    arrays[:] = [np.array(row + row[:1], np.uint16) for row in rows]  # with an element twice, in no order
    X = matrix(sets)
    stored = sparse.csr_matrix((X.data.astype(float), X.indices[::-1].copy(), X.indptr), X.shape)
    stored.indices[:] = X.indices
    for row in range(len(rows)):
        part = slice(*X.indptr[row : row + 2])
        stored.indices[part] = X.indices[part][::-1]
    stored.has_sorted_indices = False
    zeros = X.astype(np.int8).tolil()
    explicit = sparse.csr_matrix(zeros)
    explicit = sparse.csr_matrix(
        (np.append(explicit.data, 0), np.append(explicit.indices, 5), np.append(explicit.indptr[:-1], X.nnz + 1)),
        X.shape,
    )
    for given in (
        list(map(frozenset, sets)), tuple(sets), pd.Series(rows), pd.Series(map(tuple, rows)), arrays,
        pd.DataFrame({"x": rows}), pd.Series([[str(e) for e in row] for row in rows]),
        pd.Series([[(e, "of two") for e in row] for row in rows]), X, X.tocsc(), X.tocoo(), sparse.csr_array(X),
        X.astype(np.int64), X.astype(np.float32), stored, explicit,
    ):  # fmt: skip
        found = rapids_slink.pairs(given, max_distance=0.9, metric="jaccard", device="cpu")
        pd.testing.assert_frame_equal(found, expected)


def test_integers_of_64_bits():
    large = [{2**64 - 1, 5}, {2**63, 5}, {2**64 - 1, 5}]
    signed = [{-1, 5}, {2**63, 5}, {-1, 5}]
    for X in (large, signed, [np.array(sorted(held), np.uint64) for held in large]):
        X = X if isinstance(X[0], set) else pd.Series(X)
        found = rapids_slink.pairs(X, max_distance=0.5, metric="jaccard", device="cpu")
        assert found[["src", "dst"]].to_numpy().tolist() == [[0, 2]]
    wide = sparse.csr_matrix((np.ones(3), np.array([2**40, 7, 2**40]), np.array([0, 1, 2, 3])), (3, 2**41))
    assert len(rapids_slink.pairs(wide, max_distance=0, metric="jaccard", device="cpu")) == 1


def test_arrow():
    arrow = pytest.importorskip("pyarrow")
    rows = [[1, 2, 3], [2, 3, 1], [7], [7, 8]]
    expected = rapids_slink.pairs(pd.Series(rows), max_distance=0.5, metric="jaccard", device="cpu")
    for given in (arrow.array(rows), arrow.chunked_array([rows[:1], rows[1:]]), arrow.table({"x": rows})):
        found = rapids_slink.pairs(given, max_distance=0.5, metric="jaccard", device="cpu")
        assert isinstance(found, arrow.Table)
        pd.testing.assert_frame_equal(found.to_pandas(), expected)


def test_polars():
    polars = pytest.importorskip("polars")
    column = polars.Series("x", [[1, 2, 3], [2, 3, 1], [7], [7, 8]])
    for given in (column, column.to_frame()):
        found = rapids_slink.pairs(given, max_distance=0.5, metric="jaccard", device="cpu")
        assert isinstance(found, polars.DataFrame)
        assert found.rows() == [(0, 1, 0.0), (2, 3, 0.5)]


def test_tables_of_booleans_are_no_sets():
    X = np.random.default_rng(0).random((40, 12)) < 0.5
    plain = rapids_slink.pairs(X, max_distance=0.4, metric="jaccard", device="cpu")
    for given in (X.tolist(), pd.DataFrame(X)):
        found = rapids_slink.pairs(given, max_distance=0.4, metric="jaccard", device="cpu")
        pd.testing.assert_frame_equal(found, plain)


@pytest.mark.parametrize("kind", [bool, np.uint8, float, list])
def test_vectors_of_bits_are_no_sets(kind):
    """Which would all hold the elements 0 and 1."""
    bits = np.random.default_rng(0).random((5, 4)) < 0.5
    column = pd.Series(bits.astype(int).tolist() if kind is list else list(bits.astype(kind)))
    with pytest.raises(TypeError, match=r"X holds vectors of 0 and 1, not sets of elements: numpy\.stack\(X\)"):
        rapids_slink.pairs(column, max_distance=0.5, metric="jaccard", device="cpu")
    assert len(rapids_slink.pairs(pd.Series([[0, 1, 1], [1, 0]]), max_distance=0, metric="jaccard", device="cpu")) == 1


def test_empty_sets():
    model = rapids_slink.fit([set(), {1}, set(), {2}], None, distance_threshold=0.5, metric="jaccard", device="cpu")
    assert model.labels_.tolist() == [0, 1, 0, 2]
    assert rapids_slink.fit([{1}, set(), {2}], 1, metric="dice", device="cpu").distances_.tolist() == [1, 1]
    none = sparse.csr_matrix((2, 3), dtype=bool)
    for metric, words, *rows in (
        ("dice", "row 1 of X and row 2 of X are empty sets: their dice distance is not defined", [{1}, set(), set()]),
        ("dice", "row 0 of X and row 1 of Y are empty sets", [set(), {1}], [{1}, set()]),
        ("containment", "row 1 of X is an empty set, which has no containment distance", [{1}, set()]),
        ("containment", "X must be a sparse matrix as the other rows are", [{1}], none),
        ("containment", "row 0 of Y is an empty set", sparse.eye(3, format="csr"), none),
    ):
        with pytest.raises(ValueError, match=words):
            rapids_slink.pairs(*rows, max_distance=1, metric=metric, device="cpu")


@pytest.mark.parametrize("way", ["distances", "projections", "keys"])
def test_empty_sets_of_one_input_are_not_compared(way, prescribe):
    prescribe(items=way)
    X, Y = [set(), {1}, set()], [{1}, {2}]
    for x, y, pairs in ((X, Y, [(1, 0)]), (Y, X, [(0, 1)])):
        found = rapids_slink.pairs(x, y, max_distance=0.5, metric="dice", device="cpu")
        assert list(zip(found["src"], found["dst"], strict=True)) == pairs
    assert rapids_slink.nearest_neighbors(X, Y, metric="dice", device="cpu")["weight"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        ([None, {1}], ValueError, r"row 0 of X is missing \(null or NaN\)"),
        (pd.Series([np.nan, {1}]), ValueError, r"row 0 of X is missing \(null or NaN\)"),
        (pd.Series([pd.NA, [1]]), ValueError, r"row 0 of X is missing \(null or NaN\)"),
        ([{1}, None], ValueError, r"row 1 of X is missing \(null or NaN\)"),
        (pd.Series([[1], np.nan]), ValueError, "row 1 of X is missing"),
        ([{1}, "abc"], TypeError, "row 1 of X must be a set or a list of elements, got 'abc'"),
        ([{1}, {"a": 1}], TypeError, "row 1 of X must be a set or a list"),
        ([{1}, 3], TypeError, "row 1 of X must be a set or a list of elements, got 3"),
        (pd.Series([[1], np.eye(2)]), TypeError, "row 1 of X must be a set or a list"),
        (pd.Series([["a"], ["b", None]]), ValueError, "row 1 of X holds a missing element"),
        (pd.Series([["a"], [["b"]]]), TypeError, "the elements of sets must be hashable"),
        (pd.DataFrame({"x": [1], "y": [[1]]}), TypeError, "X must be one column of sets, got a frame of 2 columns"),
        (sparse.csr_matrix([[1.0, 0.0], [0.0, 0.5]]), ValueError, r"takes booleans \(0, 1\): row 1 of X has others"),
        (sparse.csr_matrix([[1.0, 0.0], [0.0, np.nan]]), ValueError, "row 1 of X has others"),
        (sparse.csr_matrix([[1j, 0.0]]), TypeError, "Complex data not supported"),
        (sparse.csr_matrix((0, 3)), ValueError, "0 sample"),
        (sparse.csr_matrix((3, 0)), ValueError, "0 feature"),
        (pd.Series([[1]])[:0], ValueError, "Expected 2D array"),
    ],
)
def test_what_is_refused(X, error, words):
    with pytest.raises(error, match=words):
        rapids_slink.fit(X, 1, metric="jaccard", device="cpu")


def test_what_needs_rows_of_features_is_refused():
    X = sparse.eye(5, format="csr", dtype=bool)
    words = r"sets and sparse rows are none: pass X\.toarray\(\)"
    with pytest.raises(ValueError, match="prediction_data=True takes the rows' features, and " + words):
        SingleLinkage(2, metric="jaccard", prediction_data=True, device="cpu").fit(X)
    with pytest.raises(ValueError, match="knn_graph is of rows of features, and " + words):
        rapids_slink.knn_graph(X, 2, metric="jaccard", device="cpu")
    with pytest.raises(ValueError, match="a plan is of rows of features, and " + words):
        rapids_slink.plan(X, metric="jaccard", device="cpu")


@pytest.mark.gpu
@EVERY_SET_METRIC
def test_all_distances_on_a_gpu(metric):
    rng = np.random.default_rng(13)
    many = rng.random((5000, 90)) < rng.random(90) ** 3
    many[:, 0] = True
    for X in (sparse.csr_matrix(many), families(130), [{2**40 * e for e in held} for held in families(70)]):
        on_cpu, on_gpu = (Sets.read({"X": X}, get_metric(metric), where) for where in (CPU, cuda()))
        np.testing.assert_array_equal(to_host(search.all_distances(on_gpu)), search.all_distances(on_cpu))

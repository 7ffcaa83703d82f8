"""Rows with missing values against scikit-learn's distances, HierCC's rule as a loop, and what is refused."""

from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations, full
from hypothesis import given
from hypothesis import strategies as st
from oracles import core_distances, heights_of, mutual_reachability
from sklearn.metrics.pairwise import nan_euclidean_distances

from rapids_slink import SingleLinkage, fit, load, pairs
from rapids_slink.points.output import on_device
from rapids_slink.runtime.device import resolve, to_host

NAN = np.nan
EVERY = [("euclidean", "pairwise"), ("sqeuclidean", "pairwise"), ("cityblock", "pairwise"), ("hamming", "pairwise"),
         ("hamming", "hiercc")]  # fmt: skip
UNDEFINED_WITHOUT_COMMON = [one for one in EVERY if one[1] != "hiercc"]


def in_pairs(X, metric, missing):
    """The distances of all pairs by the definitions, feature by feature."""
    n, d = X.shape
    distances, present = np.zeros((n, n)), ~np.isnan(X)
    for i in range(n):
        for j in range(i):
            both = present[i] & present[j]
            c, x = float(both.sum()), 0.0
            for gap in (X[i] - X[j])[both].astype(float):
                x += {"hamming": float(gap != 0), "cityblock": abs(gap)}.get(metric, gap * gap)
            if missing == "hiercc":
                enough = max(present[i].sum(), present[j].sum()) - 0.05 * d
                if enough > c:
                    x, c = x + (enough - c), enough
                x = int(x / c * d + 0.5) if c > 0 else d
            else:
                x = x / c if metric == "hamming" else x / c * d
            distances[i, j] = distances[j, i] = x
    return np.sqrt(distances) if metric == "euclidean" else distances


def with_gaps(rng, X, share):
    """A copy in which this share is missing, and nothing of the first feature."""
    X = X.astype(np.float64)
    X[:, 1:][rng.random(X[:, 1:].shape) < share] = NAN
    return X


def hard(name, n=70, d=23):
    rng = np.random.default_rng(3)
    codes = rng.integers(1, 5, (n, d))
    return {
        "codes": lambda: with_gaps(rng, codes, 0.2),
        "reals": lambda: with_gaps(rng, rng.normal(size=(n, d)), 0.2),
        "half": lambda: with_gaps(rng, codes, 0.6),
        "nearly_all": lambda: with_gaps(rng, codes, 0.97),
        "all_but_one": lambda: with_gaps(rng, codes, 1.0),
        "nothing": lambda: codes.astype(float),
        "all_equal": lambda: with_gaps(rng, np.ones((n, d)), 0.3),
        "ties": lambda: with_gaps(rng, 1 + codes % 2, 0.1),
        "one_feature": lambda: codes[:, :1].astype(float),
        "one_column_missing": lambda: np.column_stack([codes[:, 0], np.full(n, NAN), codes[:, 1]]).astype(float),
        "two_rows": lambda: with_gaps(rng, codes[:2], 0.3),
        "wide": lambda: with_gaps(rng, rng.integers(1, 9, (50, 300)), 0.1),
        "large_codes": lambda: with_gaps(rng, codes * 2.0**40, 0.2),
        "many_rows": lambda: with_gaps(rng, rng.integers(1, 9, (700, 9)), 0.1),
    }[name]()


CASES = ["codes", "reals", "half", "nearly_all", "all_but_one", "nothing", "all_equal", "ties", "one_feature",
         "one_column_missing", "two_rows", "wide", "large_codes"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*HierCC takes numbers up to 0 for missing")  # the rows of "reals" hold such
@pytest.mark.parametrize(
    ("how", "name"),  # counts of more features than a byte holds have kernels of their own
    combinations(EVERY, CASES, quick=[(EVERY[i % len(EVERY)], name) for i, name in enumerate(CASES) if name != "wide"]),
)
def test_heights_are_those_of_the_definition(how, name, device):
    X, (metric, missing) = hard(name), how
    expected = heights_of(in_pairs(X, metric, missing))
    for n_neighbors in (None, 1, 3):
        model = fit(X, 1, metric=metric, missing=missing, n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


@pytest.mark.parametrize("n_neighbors", [None, 1, 8])
def test_heights_are_those_of_nan_euclidean_distances(n_neighbors, device):
    for name in ("codes", "half", "ties", "many_rows"):  # integers, which scikit-learn's products keep exactly
        X = hard(name)
        expected = heights_of(nan_euclidean_distances(X))
        model = fit(X, 1, missing="pairwise", n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


@given(st.integers(2, 60), st.integers(1, 70), st.floats(0, 1), st.sampled_from(EVERY), st.sampled_from([None, 1, 2]),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_any_gaps(device, n, d, share, metric, n_neighbors, seed):
    rng = np.random.default_rng(seed)
    X = with_gaps(rng, rng.integers(1, 5, (n, d)), share)
    model = fit(X, 1, metric=metric[0], missing=metric[1], n_neighbors=n_neighbors, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(in_pairs(X, *metric)))


@pytest.mark.parametrize("dtype", ["float64", full("float32"), "compact"])
@pytest.mark.parametrize("share", [0.6, 0.9, 1.0])
def test_genomes_without_a_common_locus_differ_in_every_locus_as_in_hiercc(share, dtype, device):
    """In its loop a pair without a common locus has the distance d, as have two genomes without any."""
    rng, d = np.random.default_rng(5), 12
    X = rng.integers(1, 3, (60, d)).astype(float) * (1 if dtype == "compact" else 0.37)
    X[rng.random(X.shape) < share] = NAN
    X[7], X[30], X[31] = NAN, NAN, 1
    X = X.astype("float64" if dtype == "compact" else dtype)
    distances = in_pairs(X, "hamming", "hiercc")
    how = {"metric": "hamming", "missing": "hiercc", "device": device}
    assert distances[7, 30] == distances[7, 31] == distances.max() == d
    for options in ({}, {"n_neighbors": 2}, {"min_samples": 3}):
        core = core_distances(distances, options.get("min_samples", 1))
        heights = fit(X, 1, **options, **how).to_scipy()[:, 2]
        np.testing.assert_array_equal(heights, heights_of(mutual_reachability(distances, core)))
    groups = np.arange(60) // 20
    of_groups = np.sort(np.concatenate([heights_of(distances[g : g + 20, g : g + 20]) for g in (0, 20, 40)]))
    np.testing.assert_array_equal(np.sort(fit(X, 1, groups=groups, **how).distances_), of_groups)
    near = pairs(X, max_distance=d - 1, **how)
    assert len(near) == (distances[np.triu_indices(60, 1)] <= d - 1).sum()
    model = SingleLinkage(None, distance_threshold=d, prediction_data=True, **how).fit(X[:50])
    assert to_host(model.predict(X[7:8])).tolist() == [-1]
    np.testing.assert_array_equal(model.append(X[50:]).to_scipy()[:, 2], heights_of(distances))


@pytest.mark.parametrize(("metric", "missing"), EVERY)
def test_core_distances_of_rows_with_gaps(metric, missing, device):
    X = hard("codes")
    distances = in_pairs(X, metric, missing)
    expected = heights_of(mutual_reachability(distances, core_distances(distances, 4)))
    for n_neighbors in (None, 5):
        model = fit(X, 1, metric=metric, missing=missing, min_samples=4, n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


# ------------------------------------------------------------------------------------------------------- the input


def frames_with_gaps():
    X = with_gaps(np.random.default_rng(0), np.random.default_rng(1).integers(1, 9, (40, 6)), 0.2)
    plain = pd.DataFrame(X, columns=list("abcdef"), index=range(7, 47))
    return {
        "NaN": plain,
        "float32": plain.astype("float32"),
        "nullable": plain.astype("Int16"),
        "mixed": plain.astype({"a": "int64", "b": "Int8", "c": "Float64", "d": "float32"}),
        "objects": plain.astype(object).where(plain.notna(), None),
        "NA": plain.astype(object).where(plain.notna(), pd.NA),
    }


@pytest.mark.parametrize("kind", frames_with_gaps())
@pytest.mark.parametrize(("metric", "missing"), [("euclidean", "pairwise"), ("hamming", "hiercc")])
def test_frames_with_nulls(kind, metric, missing, engine):
    frame = frames_with_gaps()[kind]
    expected = heights_of(in_pairs(frames_with_gaps()["NaN"].to_numpy(), metric, missing))
    X = frame if kind in ("objects", "NA") else on_device(frame, engine)  # cuDF has no objects
    model = fit(X, 2, metric=metric, missing=missing, device=engine.name)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)
    assert to_host(model.labels_.index.values).tolist() == list(range(7, 47))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float32", "float64"])
def test_a_value_that_means_missing(dtype, engine):
    X = np.nan_to_num(hard("codes")).astype(dtype)
    expected = heights_of(in_pairs(hard("codes"), "hamming", "hiercc"))
    rows = engine.asarray(X)
    before = rows.copy()
    for codes in (rows, on_device(pd.DataFrame(X), engine)):
        model = SingleLinkage(1, metric="hamming", missing="hiercc", missing_value=0, device=engine.name).fit(codes)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)
    assert (rows == before).all()


# ------------------------------------------------------------------------------------------------ tables of text


def alleles():
    """Profiles as text, in which some marks mean missing, and the same as numbers with NaN."""
    rng = np.random.default_rng(0)
    codes = rng.integers(1, 6, (40, 12))
    gone = rng.random(codes.shape) < 0.2
    gone[:, 0] = False
    text = np.where(gone, rng.choice(MARKS, codes.shape), codes.astype(str)).astype(object)
    return text, np.where(gone, NAN, codes)


def some_numbers(text):
    """Some columns as integers and text, and these as floats, too, in some rows."""
    mixed = text.copy()
    for column in range(0, 12, 2):
        mixed[:, column] = [int(value) if value.isdigit() else value for value in text[:, column]]
        mixed[::3, column] = [float(value) if value.isdigit() else value for value in text[::3, column]]
    return mixed


def to_library(name, values):
    return pytest.importorskip(name), {f"locus {f}": values[:, f].tolist() for f in range(12)}


MARKS = ["0", "-", "LNF", "NIPH"]
ALL = [*MARKS, *"12345", "?", "never"]
COUNTS = "pairwise", "hiercc"
AS_READ = {
    "text": lambda text: pd.DataFrame(text).astype(str),
    "objects": pd.DataFrame,
    "strings": lambda text: pd.DataFrame(text).astype("string"),
    "categories": lambda text: pd.DataFrame(text).astype("category"),
    "unused categories": lambda text: pd.DataFrame(text).astype(pd.CategoricalDtype(ALL)),
    "numbers and text": lambda text: pd.DataFrame(some_numbers(text)),
    "categories of both": lambda text: pd.DataFrame(some_numbers(text)).astype("category"),
    "a column of numbers": lambda text: pd.DataFrame(text).astype({0: "int64"}),
    "decimals and blanks": lambda text: pd.DataFrame(text).replace({"1": "1.0", "2": " 2", "0": "0.0", "3": "+3"}),
    "some decimals": lambda text: pd.concat([pd.DataFrame(text[:9]).replace("1", "1.0"), pd.DataFrame(text[9:])]),
    "array of objects": some_numbers,
    "array of text": lambda text: text.astype(str),
    "lists": lambda text: some_numbers(text).tolist(),
    "polars": lambda text: (lambda pl, columns: pl.DataFrame(columns))(*to_library("polars", text)),
    "polars, categorical": lambda text: AS_READ["polars"](text).cast(to_library("polars", text)[0].Categorical),
    "arrow": lambda text: (lambda pa, columns: pa.table(columns))(*to_library("pyarrow", text)),
    "arrow, of a dictionary": lambda text: (
        lambda pa, columns: pa.table({name: pa.array(column).dictionary_encode() for name, column in columns.items()})
    )(*to_library("pyarrow", text)),
}


@pytest.mark.parametrize(
    ("form", "missing"), combinations(AS_READ, COUNTS, quick=zip(AS_READ, cycle(COUNTS), strict=False))
)
def test_alleles_are_the_same_however_they_are_read(form, missing, device):
    text, values = alleles()
    X = AS_READ[form](text)
    expected = heights_of(in_pairs(values, "hamming", missing))
    for marks in (MARKS, (0, *MARKS[1:]), {*MARKS}, frozenset([0.0, *MARKS[1:]])):
        model = fit(X, 1, metric="hamming", missing=missing, missing_value=marks, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


@pytest.mark.gpu
def test_alleles_of_cudf():
    text, values = alleles()
    expected = heights_of(in_pairs(values, "hamming", "hiercc"))
    for form in ("text", "categories", "unused categories", "a column of numbers", "some decimals"):
        X = on_device(AS_READ[form](text).reset_index(drop=True), resolve("cuda"))
        for device in ("cpu", "cuda"):
            model = fit(X, 1, metric="hamming", missing="hiercc", missing_value=MARKS, device=device)
            np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "text"])
def test_integers_that_float64_rounds_are_different_categories(dtype, device):
    """They are where they stand in a file as text; also in arrays, beside floats, and where one means missing."""
    a = [2**53, 2**53 + 1, 2**62, 2**62 + 1, 7]
    frame = pd.DataFrame({"a": pd.array(a, dtype="Int64"), "b": [0.5, 0.5, 1.5, 1.5, 0.5]})
    frame = frame.astype({"a": str if dtype == "text" else dtype})
    model = fit(frame, distance_threshold=0.6, metric="hamming", device=device)
    assert to_host(model.distances_).tolist() == [0.5, 0.5, 0.5, 1]
    assert to_host(model.labels_).tolist() == [0, 0, 1, 1, 0]
    codes = frame[["a"]].astype({"a": "uint64"}) if dtype == "text" else frame[["a"]]
    for X in (codes, codes.to_numpy("uint64" if dtype == "Int64" else None)):
        assert to_host(fit(X, 1, metric="hamming", device=device).distances_).tolist() == [1, 1, 1, 1]
    how = {"metric": "hamming", "missing": "hiercc", "missing_value": 2**53 + 1, "device": device}
    with_gap = fit(frame, 1, **how)
    expected = frame.assign(a=np.array([1, NAN, 2, 3, 4]))
    np.testing.assert_array_equal(with_gap.to_scipy(), fit(expected, 1, **{**how, "missing_value": None}).to_scipy())


def test_one_missing_value_of_a_table_of_text(device):
    X = pd.DataFrame({"a": ["0", "1", "2"], "b": ["1", "1", "3"]})
    for table in (X, X.astype(int), X.astype(int).astype("category"), X.to_numpy()):
        for mark in (0, "0", [0], "0.0"):
            model = fit(table, 1, metric="hamming", missing="pairwise", missing_value=mark, device=device)
            assert model.to_scipy()[:, 2].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [("5", 5, True), ("5.0", 5, True), (" 5", "5", True), ("1e3", "1000", True), (0.1, "0.1", True), (-0.0, "0", True),
     ("9007199254740993", 9007199254740993, True), ("9007199254740993", "9007199254740992", False),
     ("1e999", "2e999", False), ("1_0", "10", False), ("nan", "NaN", False), ("a", "a ", False), ("5a", "5", False),
     ("inf", "Infinity", False), (True, "True", False)],
)  # fmt: skip
def test_what_counts_as_one_category(left, right, is_same, device):
    X = pd.DataFrame({"a": pd.Series([left, right, "text"], dtype=object)})
    assert fit(X, 1, metric="hamming", device=device).to_scipy()[0, 2] == (0 if is_same else 1)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock", "hamming"])
def test_text_of_numbers_beside_marks(metric, device):
    """As in files with a "?" for what is missing: all metrics with missing values, and new rows."""
    values = with_gaps(np.random.default_rng(0), np.random.default_rng(1).integers(0, 9, (30, 5)) / 4, 0.2)
    text = pd.DataFrame(np.where(np.isnan(values), "?", values.astype(str))).astype({0: float})
    how = {"metric": metric, "missing": "pairwise", "device": device}
    model = fit(text, 1, missing_value="?", prediction_data=True, **how)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(in_pairs(values, metric, "pairwise")))
    expected = fit(values, 1, prediction_data=True, **how).predict(values)
    np.testing.assert_array_equal(model.predict(text.iloc[::-1]).to_numpy()[::-1], to_host(expected))
    with pytest.raises(TypeError, match=r"column 1 has .* text, such as '\?'; name it in missing_value if it means"):
        fit(text, 1, prediction_data=True, **how)


@pytest.mark.parametrize("value", [pd.Timestamp(0), (1, 2), 10**400, np.inf, 1j, "inf", "nan"], ids=repr)
def test_what_is_no_number_beside_text_is_refused_by_name(value, device):
    X = pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series(["1", value], dtype=object)})
    with pytest.raises(TypeError, match=r"column 'b' has dtype object, .* numeric: it holds .*; name it in missing"):
        fit(X, 1, missing="pairwise", device=device)


def test_values_without_a_hash_are_no_categories(device):
    X = pd.DataFrame({"a": pd.Series(["1", [2]], dtype=object)})
    with pytest.raises(TypeError, match="column 'a' has dtype object, and its values are no categories: unhashable"):
        fit(X, 1, metric="hamming", device=device)


def test_text_is_not_read_as_numbers_where_nothing_is_missing(device):
    X = pd.DataFrame({"a": ["1", "2"], "b": [1.0, 2.0]})
    with pytest.raises(TypeError, match=r"column 'a' has dtype .* numeric"):
        fit(X, 1, device=device)
    with pytest.raises(TypeError, match="column 'a' has dtype category, which is not numeric"):
        fit(X.astype({"a": "category"}), 1, missing="pairwise", device=device)


NEGATIVE = pd.DataFrame({"a": [3, 1, 2, 1], "b": [1, -1, 2, 0], "c": [-9, 4, 1, 4]})
FORMS = {
    "integers": lambda frame: frame,
    "small integers": lambda frame: frame.astype("int8"),
    "array": pd.DataFrame.to_numpy,
    "text": lambda frame: frame.astype(str),
    "text in one column": lambda frame: frame.astype({"b": str}),
    "categories": lambda frame: frame.astype("category"),
    "decimals as text": lambda frame: frame.astype(float).astype(str),
}


@pytest.mark.parametrize("prediction_data", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_up_to_one_are_missing(form, prediction_data, device):
    """As all numbers up to 0 are in HierCC and GrapeTree."""
    if form == "categories" and prediction_data:
        pytest.skip("new rows would have other categories")
    X, gaps = FORMS[form](NEGATIVE), NEGATIVE.where(NEGATIVE > 0).to_numpy()
    how = {"metric": "hamming", "missing": "hiercc", "prediction_data": prediction_data, "device": device}
    for marks in ("<=0", ["-", "<=0"], "<= 0", ["<=-5", "<=0"], ["<=-1", 0]):
        model = fit(X, 1, missing_value=marks, **how)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(in_pairs(gaps, "hamming", "hiercc")))
    gaps = NEGATIVE.where(NEGATIVE > -5).to_numpy()
    model = fit(X, 1, missing_value="<=-5", **{**how, "missing": "pairwise"})
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(in_pairs(gaps, "hamming", "pairwise")))


@pytest.mark.parametrize("form", FORMS)
def test_alleles_that_hiercc_takes_for_missing_are_warned_of(form, device):
    X, how = FORMS[form](NEGATIVE), {"metric": "hamming", "missing": "hiercc", "device": device}
    advice = "a value like any other; HierCC takes numbers up to 0 for missing, as missing_value='<=0' does"
    with pytest.warns(UserWarning, match=f"column .* holds .*, {advice}") as warned:
        fit(X, 1, missing_value=-9, **how)
    assert {one.filename for one in warned} == {__file__}
    assert len(warned) == 1
    label = "1" if form == "array" else "'b'"
    assert str(warned[0].message).startswith(f"column {label} holds -1")
    fit(X, 1, missing_value=[0, -1, -9], **how)
    fit(X, 1, **{**how, "missing": "pairwise"})
    codes = np.arange(1, 5)[:, None]
    model = SingleLinkage(1, prediction_data=True, **how).fit(codes)
    with pytest.warns(UserWarning, match="column 0 holds -3"):
        model.predict(-codes[:3])


def test_a_limit_of_what_is_missing_is_a_number():
    for mark in ("<=", "<=x", "<=nan"):
        with pytest.raises(ValueError, match=f"missing_value='{mark}' must have a number after <="):
            fit(NEGATIVE, 1, metric="hamming", missing="hiercc", missing_value=mark, device="cpu")


@pytest.mark.parametrize("mark", ["-", "", "?", "NA"])
def test_a_text_that_usually_means_missing_is_warned_of(mark, device):
    X = pd.DataFrame({"a": ["1", "2", "1"], "b": ["1", mark, "1"], "c": [mark, mark, "LNF"], "d": [1, 2, 3]})
    how = {"metric": "hamming", "device": device}
    with pytest.warns(UserWarning, match=r"column 'b' holds '\W*\w*' \(1 other column likewise\)") as warned:
        fit(X, 1, missing="hiercc", missing_value=["0"], **how)
    assert [(repr(mark) in str(one.message), one.filename) for one in warned] == [(True, __file__)]
    fit(X, 1, missing="hiercc", missing_value=mark, **how)
    fit(X, 1, **how)  # categories that may have any names


@pytest.mark.parametrize("marks", [[0, "-"], {0, "-"}, (0, "-"), "-"], ids=str)
def test_files_keep_what_means_missing(marks, tmp_path, device):
    X = pd.DataFrame({"a": ["1", "2", "-", "3"], "b": ["1", "2", "2", "-"], "c": ["1", "1", "1", "1"]})
    how = {"metric": "hamming", "missing": "pairwise", "missing_value": marks, "prediction_data": True}
    model = SingleLinkage(2, device=device, **how).fit(X)
    model.save(tmp_path / "model")
    opened = load(tmp_path / "model")
    assert set(opened.missing_value) == set(marks)
    np.testing.assert_array_equal(opened.predict(X).to_numpy(), model.predict(X).to_numpy())


def test_masked_arrays(device):
    X = hard("codes")
    masked = np.ma.masked_invalid(X)
    model = fit(np.ma.array(np.nan_to_num(X), mask=masked.mask), 1, missing="pairwise", device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(in_pairs(X, "euclidean", "pairwise")))


def test_one_row(device):
    assert fit(np.array([[NAN, 1.0]]), 1, missing="pairwise", device=device).labels_.tolist() == [0]


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(("metric", "missing"), UNDEFINED_WITHOUT_COMMON)
@pytest.mark.parametrize(
    ("rows", "pair"),
    [
        ([[1, 1, NAN, NAN], [1, 2, 3, 4], [NAN, NAN, 1, 1]], "rows 0 and 2"),
        ([[1, 2, 3, 4], [NAN] * 4, [1, 2, 3, 4]], "rows 0 and 1"),
        ([[NAN] * 4, [1, 2, 3, 4], [1, 2, 3, 4]], "rows 0 and 1"),
        ([[1, 2, 3, NAN], [1, 2, 3, 4], [NAN, NAN, NAN, 4]], "rows 0 and 2"),
    ],
)
def test_rows_without_a_common_feature_are_refused(rows, pair, metric, missing, device):
    with pytest.raises(ValueError, match=f"{pair} of X have no feature that is present in both"):
        fit(np.array(rows), 1, metric=metric, missing=missing, device=device)


@pytest.mark.parametrize(("d", "at"), [(3, (5, 2999)), full(700, (1400, 1401))])
def test_the_pair_without_a_common_feature_is_found_among_many(d, at, device):
    X = np.ones((3000, d))
    X[at[0], : d // 2 + 1] = NAN
    X[at[1], d // 2 + 1 :] = NAN
    with pytest.raises(ValueError, match=f"rows {at[0]} and {at[1]} of X have no feature"):
        fit(X, 1, missing="pairwise", device=device)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({}, ValueError, "column 1 has 1 NaN"),
        ({"missing": "drop"}, ValueError, "missing must be None or one of 'pairwise', 'hiercc', got 'drop'"),
        ({"missing": 1}, ValueError, "missing must be None or one of .*, got 1"),
        ({"missing": "pairwise", "metric": "cosine"}, ValueError, "takes the metrics 'euclidean', .*'cosine'"),
        ({"missing": "pairwise", "metric": "precomputed"}, ValueError, "missing='pairwise' takes the metrics"),
        ({"missing": "hiercc"}, ValueError, "missing='hiercc' takes the metrics 'hamming', got 'euclidean'"),
        ({"missing_value": 0}, ValueError, "missing_value=0 needs missing='pairwise' or missing='hiercc'"),
        ({"missing_value": ["-"]}, ValueError, r"missing_value=\['-'\] needs missing='pairwise' or missing='hiercc'"),
        ({"missing": "pairwise", "missing_value": True}, TypeError, "must be a number, a text, or a list .*got True"),
        ({"missing": "pairwise", "missing_value": [0, b"-"]}, TypeError, "or a list of these, got b'-'"),
        ({"missing": "pairwise", "missing_value": {"a": 0}}, TypeError, "or a list of these, got {'a': 0}"),
    ],
)  # fmt: skip
def test_parameters_are_checked(how, error, message, device):
    with pytest.raises(error, match=message):
        fit(np.array([[1.0, NAN], [2.0, 3.0]]), 1, device=device, **how)


def test_infinity_and_overflow_are_refused_beside_gaps(device):
    X = np.array([[1.0, NAN], [2.0, np.inf]])
    with pytest.raises(ValueError, match=r"column 1 has 1 infinity\. The first is in row 1"):
        fit(X, 1, missing="pairwise", device=device)
    with pytest.raises(ValueError, match="euclidean distances may overflow float64: the values of column 0"):
        fit(np.array([[1e200, NAN], [-1e200, 1.0]]), 1, missing="pairwise", device=device)


def test_text_beside_nulls_is_refused():
    with pytest.raises(TypeError, match=r"column 'a' has dtype object, .* it holds text, such as 'x'"):
        fit(pd.DataFrame({"a": [1, None, "x"]}, dtype=object), 1, missing="pairwise", device="cpu")


@pytest.mark.parametrize(("metric", "missing"), EVERY)
def test_new_rows(metric, missing, device):
    """Each is labelled by its nearest row, and appended rows give the bits of a fit of all."""
    rng = np.random.default_rng(0)
    X = with_gaps(rng, rng.integers(1, 5, (150, 12)) if metric == "hamming" else rng.normal(size=(150, 12)), 0.2)
    how = {"metric": metric, "missing": missing, "device": device}
    model = SingleLinkage(5, prediction_data=True, **how).fit(X[:120])
    distances = in_pairs(X, metric, missing)[120:, :120]
    labels = np.where(distances.min(axis=1) < model._cut_height(), to_host(model.labels_)[distances.argmin(axis=1)], -1)
    np.testing.assert_array_equal(to_host(model.predict(X[120:])), labels)
    whole, grown = SingleLinkage(5, **how).fit(X), model.append(X[120:])
    np.testing.assert_array_equal(grown.to_scipy(), whole.to_scipy())
    np.testing.assert_array_equal(to_host(grown.labels_), to_host(whole.labels_))


def test_new_rows_with_a_missing_value_or_without_common_features(device, tmp_path):
    X = np.random.default_rng(0).integers(0, 5, (60, 6)).astype(float)
    how = {"metric": "hamming", "missing": "hiercc", "missing_value": 0, "device": device}
    X[:, 0] = np.maximum(X[:, 0], 1)
    SingleLinkage(3, prediction_data=True, **how).fit(X[:50]).save(tmp_path / "model.slink")
    model = load(tmp_path / "model.slink")
    predicted = to_host(model.predict(X[50:]))
    as_nan = {**how, "missing_value": None}
    other = SingleLinkage(3, prediction_data=True, **as_nan).fit(np.where(X[:50] == 0, NAN, X[:50]))
    np.testing.assert_array_equal(predicted, to_host(other.predict(np.where(X[50:] == 0, NAN, X[50:]))))
    np.testing.assert_array_equal(model.append(X[50:]).to_scipy(), SingleLinkage(3, **how).fit(X).to_scipy())
    how = {"metric": "hamming", "missing": "pairwise", "missing_value": 0, "device": device}
    model = SingleLinkage(3, prediction_data=True, **how).fit(X[:50])
    alone = np.zeros((1, 6))
    alone[0, 1:] = X[7, 1:] == 0
    with pytest.raises(ValueError, match=r"row 0 of X and row \d+ of the fitted rows have no feature that is present"):
        model.predict(alone)
    full, lacking = np.ones((3, 6)), np.array([[1.0, 0, 0, 0, 0, 0]])  # the fitted row is the one with few features
    sparse = SingleLinkage(1, prediction_data=True, **how).fit(np.concatenate([full, lacking]))
    with pytest.raises(ValueError, match="row 1 of X and row 3 of the fitted rows"):
        sparse.predict(np.array([[1.0] * 6, [0.0] + [1.0] * 5]))

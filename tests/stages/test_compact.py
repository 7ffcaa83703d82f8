"""Rows as words of bits and as codes: SciPy's distances to the bit, and which rows are stored so."""

from itertools import cycle, product

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations, full
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import cdist, pdist, squareform

from rapids_slink import connect, count_pairs, fit, knn_graph, nearest_neighbors, pairs
from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import compact_rows, metric_rows
from rapids_slink.points.output import on_device, on_host
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.settings import metric_of

OF_COUNTS = ["euclidean", "sqeuclidean", "cosine", "cityblock", "braycurtis"]
OF_BITS = ["jaccard", "dice", "rogerstanimoto", "hamming", *OF_COUNTS]
#: 1 to 4,097 bits, and both sides of a word's and a tile's end.
LENGTHS = [1, 65, 128, 4097, 2, 63, 64, 700, 2048]
ROWS = ["rows", "empty rows", "all equal", "full rows", "ties"]


def bits(name, d, n=90):
    """0/1 rows, each with a one unless the case says otherwise."""
    rng = np.random.default_rng(d)
    X = rng.random((n, d)) < rng.random((n, 1)) * 0.4
    X[np.arange(n), rng.integers(0, d, n)] = True
    if name == "empty rows":
        X[[0, 5, 7]] = False
    if name == "all equal":
        X[:] = X[0]
    if name == "full rows":
        X[::2] = True
    if name == "ties":
        X = rng.random((n, d)) < 0.5 / d
    return X


def heights_of(X, metric):
    with np.errstate(all="ignore"):
        return hierarchy.linkage(pdist(X.astype(np.float64), metric), "single")[:, 2]


def is_defined(X, metric):
    """Whether SciPy has numbers for all pairs."""
    with np.errstate(all="ignore"):
        return np.isfinite(pdist(X.astype(np.float64), metric)).all()


BITS = [*product(OF_BITS[:4], LENGTHS[:4], ROWS[::2])]


@pytest.mark.parametrize(
    ("metric", "d", "name"), combinations(OF_BITS, LENGTHS, ROWS, quick=BITS[::2], also=BITS)
)  # full: other kinds of formulas
def test_heights_of_bits_are_scipys(metric, d, name, device):
    X = bits(name, d)
    if metric == "cosine" or not is_defined(X, metric):
        X[~X.any(axis=1), 0] = True
    expected = heights_of(X, metric)
    for n_neighbors in (None, 1, 5):
        model = fit(X, 1, metric=metric, n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)


@pytest.mark.parametrize(("metric", "d", "n"), combinations(("jaccard", "hamming"), (8, 72, 1024), (80, 700), quick=3))
def test_packed_rows(metric, d, n, engine):
    X = bits("empty rows", d, n)
    packed = engine.asarray(np.packbits(X, axis=1))
    expected = heights_of(X, metric)
    for n_neighbors in (None, 1, 4):
        model = fit(packed, 1, metric=f"bit_{metric}", n_neighbors=n_neighbors, device=engine.name)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], expected)
        assert model.n_features_in_ == d // 8


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_neighbours_of_packed_rows(metric, engine):
    X, Y = bits("rows", 100, 300), bits("empty rows", 100, 50)
    d = 104  # with packbits' padding
    X, Y = (np.pad(part, ((0, 0), (0, d - 100))) for part in (X, Y))
    packed = [engine.asarray(np.packbits(part, axis=1)) for part in (X, Y)]
    graph = knn_graph(packed[0], 4, metric=f"bit_{metric}", device=engine.name)
    distances = squareform(pdist(X, metric))
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(to_host(graph["weight"].values), np.sort(distances, axis=1)[:, :4].ravel())
    nearest = nearest_neighbors(*packed, metric=f"bit_{metric}", device=engine.name)
    np.testing.assert_array_equal(to_host(nearest["weight"].values), cdist(X, Y, metric).min(axis=1))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_packed_rows_are_bytes(dtype, device):
    for metric in ("bit_jaccard", "bit_hamming"):
        with pytest.raises(TypeError, match=f"metric='{metric}' takes uint8 .*: X has dtype {dtype}"):
            fit(np.ones((3, 2), dtype), 1, metric=metric, device=device)


@pytest.mark.parametrize("spans", [[2, 5, 255, 256], full([257, 65535, 65536, 65537])])  # a byte, two, and none
@given(st.integers(2, 60), st.integers(1, 140), st.sampled_from(range(4)), st.sampled_from([0, -3, 2**24, 2**40]),
       st.sampled_from([None, 1, 2]), st.integers(0, 2**32 - 1))  # fmt: skip
def test_heights_of_codes_are_scipys(spans, device, n, d, span, offset, n_neighbors, seed):
    rng, span = np.random.default_rng(seed), spans[span]
    X = rng.integers(0, 3, (n, d)) * (rng.integers(0, span, d) // 2) + offset
    X[0, 0] = offset + span - 1
    model = fit(X, 1, metric="hamming", n_neighbors=n_neighbors, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(X, "hamming"))


@pytest.mark.parametrize(
    ("missing", "span", "d", "dtype"),
    [
        (missing, span, d, dtype) if (span, dtype) == (3, "float64") and d < 255 else full(missing, span, d, dtype)
        for missing, span, d, dtype in product(
            (None, "pairwise", "hiercc"), (3, 400), (1, 7, 8, 9, 63, 64, 65, 500), ("float32", "float64")
        )
    ],
)  # quick: codes of one byte
def test_codes_have_the_distances_of_their_features(missing, span, d, dtype):
    """The kernel of the features is the definition."""
    rng = np.random.default_rng(d)
    X = rng.integers(1, span, (300, d)).astype(dtype)
    if missing:
        X[:, 1:][rng.random((300, d - 1)) < 0.2] = np.nan
    metric = metric_of("hamming", missing=missing)
    codes, features = (metric_rows(metric, X, CPU, compact=compact) for compact in (True, False))
    assert codes.dtype == ("uint8" if (span == 3 and d < 255) or (missing != "hiercc" and span == 3) else "uint16")
    assert features.dtype == dtype
    np.testing.assert_array_equal(*(kernels(CPU).all_distances(rows, metric) for rows in (codes, features)))


def alleles():
    rng = np.random.default_rng(0)
    return pd.DataFrame({f"locus {f}": rng.choice(["a", "bb", "ccc", "D"], 80) for f in range(9)}, index=range(5, 85))


@pytest.mark.parametrize("dtype", [object, "category", "string", "mixed"])
def test_frames_of_text(dtype, engine):
    frame = alleles()
    codes = np.column_stack([pd.factorize(frame[name])[0] for name in frame])
    typed = frame.astype({"locus 2": "category"}).assign(number=1.5) if dtype == "mixed" else frame.astype(dtype)
    codes = np.column_stack([codes, np.ones(80)]) if dtype == "mixed" else codes
    X = on_device(typed, engine)
    model = fit(X, 3, metric="hamming", device=engine.name)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_of(codes, "hamming"))
    assert model.feature_names_in_.tolist() == list(typed)
    graph = knn_graph(X, 2, metric="hamming", device=engine.name)
    expected = squareform(pdist(codes.astype(float), "hamming")) + np.diag([np.inf] * 80)
    np.testing.assert_array_equal(to_host(graph["weight"].values), np.sort(expected, axis=1)[:, :2].ravel())


@pytest.mark.parametrize("dtype", [object, "string", "str"])
def test_no_categories_are_made_of_text(dtype, watch):
    """For a column of few rows pandas takes a millisecond."""
    frame = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (50, 30)))
    text, how = frame.astype(str).astype(dtype), {"metric": "hamming", "device": "cpu"}
    made = watch(pd.Categorical, "__init__")
    np.testing.assert_array_equal(fit(text, 4, **how).linkage_, fit(frame, 4, **how).linkage_)
    assert not made


@pytest.mark.parametrize("dtype", [object, "category"])
def test_text_with_nulls(dtype, engine):
    frame = alleles()
    frame.iloc[3, 2] = frame.iloc[7, 8] = None
    X = on_device(frame.astype(dtype), engine)
    with pytest.raises(ValueError, match=r"column .locus 2. has 1 (NaN|missing value)"):
        fit(X, 3, metric="hamming", device=engine.name)
    codes = np.column_stack([pd.factorize(frame[name])[0] for name in frame]) + 1
    expected = fit(codes, 3, metric="hamming", missing="pairwise", missing_value=0, device="cpu").to_scipy()
    found = fit(X, 3, metric="hamming", missing="pairwise", device=engine.name).to_scipy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("of_text", ["string", "large_string", "dictionary"])
def test_text_of_arrow(of_text):
    arrow = pytest.importorskip("pyarrow")
    plain = {"string": arrow.string, "large_string": arrow.large_string}
    dtype = plain[of_text]() if of_text in plain else arrow.dictionary(arrow.int32(), arrow.string())
    frame, options = alleles(), {"metric": "hamming", "device": "cpu"}
    typed, gaps = frame.astype(pd.ArrowDtype(dtype)), (frame == "D") & (np.arange(9) > 4)
    np.testing.assert_array_equal(fit(typed, 3, **options).distances_, fit(frame, 3, **options).distances_)
    options["missing"] = "pairwise"
    expected = fit(frame.mask(gaps), 3, **options).distances_
    np.testing.assert_array_equal(fit(typed.mask(gaps), 3, **options).distances_, expected)


@pytest.mark.parametrize("dtype", ["Int64", "category", "some categories", "text"])
def test_a_missing_value_is_no_code(dtype, engine):
    """What means missing is a value of the frame, not the number that stands for it."""
    values = np.random.default_rng(0).integers(1, 5, (80, 25))
    frame = pd.DataFrame(values)
    if dtype == "text":
        frame[1] = frame[1].map({1: "d", 2: "c", 3: "b", 4: "a"})
        values = np.column_stack([values[:, :1], values[:, 1] + 10, values[:, 2:]])
    else:
        frame = frame.astype(dict.fromkeys([0, 3], "category") if dtype == "some categories" else dtype)
    options = {"metric": "hamming", "missing": "pairwise", "missing_value": 2}
    expected = fit(values, 3, **options, device="cpu").to_scipy()
    model = fit(on_device(frame, engine), 3, **options, device=engine.name)
    np.testing.assert_array_equal(model.to_scipy(), expected)


FORMS = {
    "text": lambda frame: frame,
    "categories": lambda frame: frame.astype("category"),
    "arrow": lambda frame: pytest.importorskip("pyarrow").table(frame.to_dict("list")),
    "array": lambda frame: frame.to_numpy().astype(str),
    "lists": lambda frame: frame.to_numpy().tolist(),
}


@pytest.mark.parametrize(
    ("form", "form_of_y"),
    combinations(FORMS, ("text", "categories"), quick=zip(FORMS, cycle(("text", "categories")), strict=False)),
)
def test_text_of_two_sets(form, form_of_y, device):
    """Rows of which neither holds all values; columns of numbers in the one and of the same as text in the other."""
    X, Y = alleles()[:50].replace({"locus 2": {"a": "5"}}), alleles()[50:].replace({"locus 1": {"bb": "new"}})
    numbers = np.arange(80) % 4
    X, Y = X.assign(n=numbers[:50].astype(str), m="7"), Y.assign(n=numbers[50:], m=7.0)
    both = pd.concat([X, Y]).astype(str).replace({"m": {"7.0": "7"}})
    codes = np.column_stack([pd.factorize(both[name])[0] for name in both])
    expected = cdist(codes[:50], codes[50:], "hamming")
    x, y, how = FORMS[form](X.astype(str)), FORMS[form_of_y](Y), {"metric": "hamming", "device": device}
    for first, second, between in ((x, y, expected), (y, x, expected.T)):
        nearest = on_host(nearest_neighbors(first, second, **how))
        np.testing.assert_array_equal(nearest["dst"], between.argmin(axis=1))
        np.testing.assert_array_equal(nearest["weight"], between.min(axis=1))
        near = on_host(pairs(first, second, max_distance=0.5, **how))
        np.testing.assert_array_equal(near[["src", "dst"]].to_numpy(), np.argwhere(between <= 0.5))
        assert count_pairs(first, second, max_distance=0.5, **how) == len(near)
    graph = knn_graph(x, 3, **how)
    tree = on_host(fit(x, 1, **how).mst_)
    pd.testing.assert_frame_equal(on_host(connect(graph, x, **how)), tree)


def test_text_of_two_sets_with_missing_values(device):
    X, Y = pd.DataFrame({"a": ["x", "-", "y"], "b": ["1", "2", "0"]}), pd.DataFrame({"a": ["y", "z"], "b": [2, 1]})
    how = {"metric": "hamming", "missing": "pairwise", "missing_value": [0, "-"], "device": device}
    assert count_pairs(X, Y, max_distance=[0, 0.5], **how).tolist() == [2, 3]


def test_text_is_for_hamming_of_all_rows(engine):
    X = on_device(alleles(), engine)
    with pytest.raises(TypeError, match=r"column .locus 0. has dtype .*not numeric|it holds text"):
        fit(X, 3, device=engine.name)
    with pytest.raises(TypeError, match=r"not numeric|it holds text"):
        nearest_neighbors(X, X, device=engine.name)
    with pytest.raises(TypeError, match=r"not numeric|it holds text"):  # X's codes would not be those of rows to come
        fit(X, 3, metric="hamming", prediction_data=True, device=engine.name)


@pytest.mark.parametrize(
    ("metric", "values", "dtype"),
    [
        ("jaccard", np.ones((2, 3)), "uint64"),
        ("hamming", np.eye(3), "uint64"),
        ("hamming", 2 * np.eye(3), "uint8"),
        ("hamming", 300 * np.eye(3), "uint16"),
        ("hamming", 2.0**16 * np.eye(3), None),
        ("hamming", np.eye(3) / 2, None),
        ("hamming", 2.0**53 * np.ones((2, 2)), None),
        ("euclidean", np.eye(100), "uint64"),
        ("euclidean", np.eye(9), None),
        ("euclidean", 2 * np.eye(100), None),
        ("cosine", np.eye(100), "uint64"),
        ("correlation", np.eye(100), None),
        ("canberra", np.eye(100), None),
        ("chebyshev", np.eye(100), None),
    ],
)
def test_which_rows_are_compact_on_a_cpu(metric, values, dtype):
    metric = get_metric(metric)
    rows = metric_rows(metric, values, CPU) if metric.rows == "boolean" else compact_rows(metric, values, CPU)
    assert (rows is None) if dtype is None else rows.dtype == dtype

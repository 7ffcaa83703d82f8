"""Input of every kind to points, results back in that kind, and every refusal."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rapids_slink.points import InputTypeError, as_points, interleave
from rapids_slink.points.output import frame_of, on_device
from rapids_slink.runtime.device import CPU, cuda, to_host

TABLE = np.array([[1.0, -2.0, 3.5], [0.0, -0.0, 1e-30]])


def values(X, engine):
    points = as_points(X, engine)
    assert isinstance(points.values, engine.xp.ndarray)
    assert points.values.flags.c_contiguous
    return to_host(points.values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_keep_type_and_bits(engine, dtype, order):
    X = np.asarray(TABLE, dtype=dtype, order=order)
    found = values(X, engine)
    assert found.dtype == dtype
    assert found.tobytes() == np.ascontiguousarray(X).tobytes()  # -0.0 stays -0.0


def test_other_numbers_become_the_float_that_holds_them(engine):
    for expected, dtypes in {
        "float32": ["bool", "int8", "uint8", "int16", "uint16", "float16", ">f4"],
        "float64": ["int32", "uint32", "int64", "uint64", "object", "longdouble"],
    }.items():
        for dtype in dtypes:
            found = values(np.array([[0, 1], [1, 1]]).astype(dtype), engine)
            assert found.dtype == expected, dtype
            np.testing.assert_array_equal(found, [[0, 1], [1, 1]])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16"])
def test_small_integers_convert_exactly(dtype):
    limits = np.iinfo(dtype)
    X = np.arange(limits.min, limits.max + 1).astype(dtype)[:, None]
    np.testing.assert_array_equal(as_points(X, CPU).values.astype(np.int64), X)


def frame(engine, data, **kwargs):
    """A frame of the device's own kind."""
    return on_device(pd.DataFrame(data, **kwargs), engine)


def test_frame_of_mixed_types_takes_the_common_type(engine):
    data = {"a": np.array([1, 2], dtype=np.int8), "b": np.array([0.5, 1.5], dtype=np.float32), "c": [True, False]}
    assert values(frame(engine, data), engine).dtype == np.float32
    mixed = values(frame(engine, {**data, "d": [1 << 40, 3]}), engine)
    assert mixed.dtype == np.float64
    np.testing.assert_array_equal(mixed, [[1, 0.5, 1, 1 << 40], [2, 1.5, 0, 3]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_frame_of_one_type(engine, dtype):
    X = TABLE.astype(dtype)
    found = values(frame(engine, X, columns=["x", "y", "z"], index=[7, 9]), engine)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(values(frame(engine, X[:, :1], columns=["x"]), engine), X[:, :1])


@pytest.mark.parametrize("dtype", ["Int8", "Int64", "Float32", "Float64", "boolean", "Sparse[float32]"])
def test_extension_types_of_pandas(engine, dtype):
    X = pd.DataFrame({"a": pd.Series([0, 1, 1]).astype(dtype), "b": [0.5, 1.5, 2.5]})
    np.testing.assert_array_equal(values(X, engine), [[0, 0.5], [1, 1.5], [1, 2.5]])
    only = as_points(X[["a"]], CPU).values
    assert only.dtype == (np.float64 if dtype in ("Int64", "Float64") else np.float32)


@pytest.mark.parametrize("name", ["int32", "float64", "bool_"])
def test_arrow_types(engine, name):
    pa = pytest.importorskip("pyarrow")
    X = pd.DataFrame({"a": pd.Series([0, 1], dtype=pd.ArrowDtype(getattr(pa, name)()))})
    np.testing.assert_array_equal(values(X, engine), [[0], [1]])
    X.loc[1, "a"] = None
    with pytest.raises(ValueError, match="column 'a' has 1 missing value"):
        as_points(X, engine)


def test_duplicate_and_odd_column_names(engine):
    points = as_points(pd.DataFrame(TABLE, columns=["x", "x", 3]), engine)
    assert points.names == ["x", "x", 3]
    np.testing.assert_array_equal(to_host(points.values), TABLE)


class ByDlpack:
    """An array behind DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_and_array_protocols(engine):
    X = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(values(ByDlpack(X), engine), X)
    array = type("ByArray", (), {"__array__": X.__array__})()
    np.testing.assert_array_equal(values(array, engine), X)


@pytest.mark.gpu
def test_gpu_input_on_either_device(engine):
    import cudf
    import cupy

    X = cupy.asarray(TABLE)
    for given_array in (X, type("ByCuda", (), {"__cuda_array_interface__": X.__cuda_array_interface__})(), ByDlpack(X)):
        points = as_points(given_array, engine)
        np.testing.assert_array_equal(to_host(points.values), TABLE)
        assert isinstance(points.labels(engine.xp.arange(2)), cupy.ndarray)
    points = as_points(cudf.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}, index=[5, 6]), engine)
    np.testing.assert_array_equal(to_host(points.values), [[1, 0.5], [2, 1.5]])
    labels = points.labels(engine.xp.arange(2))
    assert isinstance(labels, cudf.Series)
    assert labels.index.to_pandas().tolist() == [5, 6]
    assert isinstance(points.frame(frame_of(engine, {"src": engine.xp.arange(2)})), cudf.DataFrame)
    with pytest.raises(ValueError, match="column 'a' has 1 missing value"):
        as_points(cudf.DataFrame({"a": [1, None]}), engine)
    with pytest.raises(ValueError, match="column 'a' has 1 missing value"):
        as_points(cudf.DataFrame({"a": [True, None]}), engine)
    with pytest.raises(InputTypeError, match=r"column 'a' has dtype .* not numeric"):
        as_points(cudf.DataFrame({"a": ["x", "y"]}), engine)
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        as_points(cudf.Series([1.0]), engine)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int8", "uint16", "int32", "uint64"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 40), (127, 31), (128, 32), (129, 33), (1000, 3), (300, 200)])
def test_columns_of_cudf_become_rows(n, d, dtype):
    """Whole frames, parts of them whose columns begin later, and frames with nulls."""
    import cudf

    whole = np.random.default_rng(n).integers(0, 2 if dtype == "bool" else 100, (n + 7, d)).astype(dtype)
    target = np.result_type(np.float32, np.dtype(dtype)) if dtype != "bool" else np.dtype(np.float32)
    frame = cudf.DataFrame({f"x{c}": whole[:, c] for c in range(d)})

    def rows_of(frame):
        return interleave(frame.to_pylibcudf()[0].columns(), np.dtype(dtype), target, cuda())

    for part in (slice(None), slice(5, None), slice(3, n + 3)):
        found = rows_of(frame.iloc[part])
        assert found.flags.c_contiguous
        assert found.dtype == target
        np.testing.assert_array_equal(to_host(found), whole[part].astype(target))
    frame["x0"] = frame["x0"].where(cudf.Series(np.arange(n + 7) != 1))
    assert rows_of(frame) is None


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"Expected 2D array, got 1D array instead\. Reshape your data"),
        (pd.Series([1.0]), ValueError, r"Expected 2D array, got 1D array instead\..*to_frame"),
        (pd.Series([1.0], index=["tocsr"]), ValueError, "Expected 2D array, got 1D array instead"),
        (pd.Series(["a"]), ValueError, r"\. X holds text, which the metrics 'levenshtein', 'string_hamming' take\.$"),
        (np.array(["a"]), ValueError, r"\. X holds text, which the metrics 'levenshtein', 'string_hamming' take\.$"),
        (["a"], TypeError, r"not of rows of numbers\. It holds text, which the metrics 'levenshtein', .* take$"),
        (pd.Series([{1}]), ValueError, r"\. X holds sets, which the metrics 'jaccard', 'dice', 'containment' take\.$"),
        ([{1}], TypeError, r"not of rows of numbers\. It holds sets, which the metrics 'jaccard', .* take$"),
        (3.0, ValueError, "Expected 2D array, got scalar array instead"),
        (np.zeros((2, 2, 2)), ValueError, "Found array with dim 3, while dim <= 2 is required"),
        (np.empty((0, 3)), ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required"),
        (pd.DataFrame(index=[1, 2]), ValueError, r"0 feature\(s\) \(shape=\(2, 0\)\)"),
        (np.array([[{"a": 1}, 2]], dtype=object), TypeError, "argument must be a string or a real number"),
        (pd.DataFrame({"o": pd.Series([1, None], dtype=object)}), ValueError, "column 'o' has 1 missing value "),
        (pd.DataFrame({"n": pd.array([1, None, None])}), ValueError, r"'n' has 2 missing values \(null or NaN\)"),
        ([[1, np.nan], [np.nan, np.inf]], ValueError, "column 0 has 1 NaN; column 1 has 1 NaN and 1 infinity"),
        (np.float32([[1, 2], [1, -np.inf], [1, np.inf]]), ValueError, "column 1 has 2 infinity. The first is in row 1"),
        (np.full((1, 9), np.nan), ValueError, "column 4 has 1 NaN and 4 more columns"),
        ([[1.7e308], [-1.7e308]], ValueError, "overflow float64: the values of column 0 span inf"),
        (pd.DataFrame({"far": [0, 2e154]}), ValueError, "column 'far' span 2e.154"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_refusals(engine, X, error, message):
    """What the errors say; test_any_input.py has all that is refused."""
    with pytest.raises(error, match=message):
        as_points(X, engine)


def test_refusals_are_both_kinds_of_error():
    assert issubclass(InputTypeError, TypeError)
    assert issubclass(InputTypeError, ValueError)


def test_values_are_fine_where_squared_distances_are(engine):
    """Although squares overflow."""
    far = [np.array([[scale, -scale], [0, 1]], dtype=np.float32) for scale in (1e-30, 1e30, 3e38)]
    for X in (np.array([[1e300, 1.0], [1e300, 2.0]]), *far):
        np.testing.assert_array_equal(values(X, engine), X)


@given(arrays(np.float64, (3, 2), elements=st.floats(width=64)))
def test_refused_or_all_squared_distances_are_finite(X):
    """Whatever the values: refused, or no squared distance overflows."""
    try:
        kept = as_points(X, CPU).values
    except ValueError:
        assert not np.isfinite(X).all() or np.ptp(X / 4, axis=0).max() > 1e153
        return
    squared = ((kept[:, None] - kept[None]) ** 2).sum(axis=2)
    assert np.isfinite(squared).all()

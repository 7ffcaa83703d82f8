"""bfloat16, float8 and int8 with scales: the floats that they stand for, from arrays, DLPack and tensors."""

import tracemalloc
from ctypes import c_char_p, c_uint8, c_void_p, py_object, pythonapi
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations

import rapids_slink
from rapids_slink import HDBSCAN, Scaled, count_pairs, deduplicate, fit, iter_pairs, knn_graph, nearest_neighbors, pairs
from rapids_slink.points import as_points
from rapids_slink.points.narrow import NARROW
from rapids_slink.runtime.device import CPU, to_host

TYPES = pytest.mark.parametrize("name", NARROW)
#: DLPack's code of each type, as its header has them, and the bits of exponent and mantissa.
CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
FIELDS = {"bfloat16": (8, 7), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}


def number(code, name):
    """The number of a code by the definition of its type."""
    exponent_bits, mantissa_bits = FIELDS[name]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent, mantissa = (code >> mantissa_bits) % 2**exponent_bits, code % 2**mantissa_bits
    bias, full = 2 ** (exponent_bits - 1) - 1, exponent == 2**exponent_bits - 1
    if name == "float8_e4m3fn":
        if full and mantissa == 7:
            return np.nan
    elif full:
        return np.nan if mantissa else sign * np.inf
    fraction = mantissa / 2**mantissa_bits
    return sign * (1 + fraction if exponent else fraction) * 2.0 ** (max(exponent, 1) - bias)


class Tensor:
    """A tensor of a narrow type behind DLPack, with NumPy's or CuPy's memory."""

    def __init__(self, bits, name):
        self.bits, self.name = bits, name

    def __dlpack__(self, **options):
        capsule = self.bits.__dlpack__(**options)
        of_name, of_pointer = pythonapi.PyCapsule_GetName, pythonapi.PyCapsule_GetPointer
        of_name.restype, of_name.argtypes = c_char_p, [py_object]
        of_pointer.restype, of_pointer.argtypes = c_void_p, [py_object, c_char_p]
        kind = of_name(capsule)
        start = of_pointer(capsule, kind) + (0 if kind == b"dltensor" else 32)
        c_uint8.from_address(start + 20).value = CODES[self.name]
        return capsule

    def __dlpack_device__(self):
        return self.bits.__dlpack_device__()


def some_rows(name, n=120, d=6, seed=0):
    """Bits of moderate numbers of a type, and the numbers as float32."""
    kind = NARROW[name][1]
    codes = np.arange(2 ** (8 * np.dtype(kind).itemsize)).astype(kind)
    values = np.array([number(int(code), name) for code in codes])
    with np.errstate(invalid="ignore"):
        codes = codes[(abs(values) < 100) & (abs(values) > 1e-3)]
    bits = np.random.default_rng(seed).choice(codes, (n, d))
    return bits, np.array([[number(int(code), name) for code in row] for row in bits], np.float32)


@TYPES
def test_every_number_keeps_its_value(name, engine):
    kind = NARROW[name][1]
    codes = np.arange(2 ** (8 * np.dtype(kind).itemsize)).astype(kind)
    expected = np.array([number(int(code), name) for code in codes], np.float32)
    points = as_points(Tensor(codes[:, None], name), engine, checked=False)
    found = to_host(points.values)[:, 0]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[finite].view(np.uint32), expected[finite].view(np.uint32))  # signs of zero


CALLS = {
    "fit": lambda X, device: fit(X, 3, device=device).linkage_,
    "groups": lambda X, device: fit(X, 2, groups=np.arange(120) % 2, device=device).linkage_,
    "HDBSCAN": lambda X, device: HDBSCAN(device=device).fit(X).probabilities_,
    "knn_graph": lambda X, device: knn_graph(X, 4, device=device),
    "nearest_neighbors": lambda X, device: nearest_neighbors(X, X, device=device),
    "pairs": lambda X, device: pairs(X, max_distance=40, device=device),
    "pairs of two": lambda X, device: pairs(X, X, max_distance=40, device=device),
    "iter_pairs": lambda X, device: list(iter_pairs(X, max_distance=40, rows=50, device=device))[1],
    "count_pairs": lambda X, device: count_pairs(X, max_distance=[20, 40], device=device),
    "deduplicate": lambda X, device: deduplicate(X, max_distance=20, device=device),
    "connect": lambda X, device: rapids_slink.connect(knn_graph(X, 4, device=device), X, device=device),
    "predict": lambda X, device: fit(X, 3, prediction_data=True, device=device).predict(X),
    "append": lambda X, device: fit(X, 3, prediction_data=True, device=device).append(X).linkage_,
}


def same(found, expected):
    found, expected = (part.to_numpy() if hasattr(part, "to_numpy") else to_host(part) for part in (found, expected))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:of . clusters")
@pytest.mark.parametrize(("call", "name"), combinations(CALLS, NARROW, quick=zip(CALLS, cycle(NARROW), strict=False)))
def test_everything_takes_tensors(call, name, device):
    bits, values = some_rows(name)
    same(CALLS[call](Tensor(bits, name), device), CALLS[call](values, device))


@pytest.mark.filterwarnings("ignore:of . clusters")
@TYPES
@pytest.mark.parametrize("call", ["fit", "pairs", "predict"])
def test_arrays_of_ml_dtypes(call, name, device):
    """Whole, as views and as lists of lists."""
    dtype = getattr(pytest.importorskip("ml_dtypes"), name)
    _, values = some_rows(name)
    X = values.astype(dtype)
    whole = X, np.asfortranarray(X), list(map(list, X))
    for given, expected in (*((form, values) for form in whole), (X[:, ::-2], values[:, ::-2])):
        before = given.tobytes() if given is X else None
        same(CALLS[call](given, device), CALLS[call](expected, device))
        assert before is None or given.tobytes() == before


@TYPES
def test_distances_of_a_narrow_type(name, device):
    dtype = getattr(pytest.importorskip("ml_dtypes"), name)
    _, values = some_rows(name, 12, 12)
    matrix = abs(values + values.T).astype(dtype).astype(np.float32)
    np.fill_diagonal(matrix, 0)
    condensed = matrix[np.triu_indices(12, 1)]
    for given in (matrix, condensed):
        assert fit(given.astype(dtype), 2, metric="precomputed", device=device).linkage_.equals(
            fit(given, 2, metric="precomputed", device=device).linkage_
        )


@pytest.mark.filterwarnings("ignore:of . clusters")
@TYPES
def test_tensors_of_torch(name, device):
    torch = pytest.importorskip("torch")
    _, values = some_rows(name)
    X = torch.from_numpy(values).to(getattr(torch, name))
    where = [X] + ([X.to("cuda")] if device == "cuda" and torch.cuda.is_available() else [])
    for tensor in where:
        same(fit(tensor, 3, device=device).labels_, fit(values, 3, device=device).labels_)
        same(fit(tensor[:, :4], 3, device=device).labels_, fit(values[:, :4], 3, device=device).labels_)


@pytest.mark.gpu
@TYPES
def test_tensors_in_gpu_memory(name, engine):
    """Behind DLPack; and the labels of rows on a GPU are there."""
    import cupy

    bits, values = some_rows(name)
    tensor = Tensor(cupy.asarray(bits), name)
    np.testing.assert_array_equal(to_host(as_points(tensor, engine).values), values)
    assert isinstance(fit(tensor, 3).labels_, cupy.ndarray)
    assert isinstance(fit(Scaled(cupy.asarray(bits.view(np.int8)[:, :4]), cupy.float32(0.5)), 3).labels_, cupy.ndarray)


@TYPES
def test_gaps_and_infinities_are_refused_as_in_other_floats(name, device):
    bits, values = some_rows(name)
    largest = number(int(bits.max()), name)
    assert np.isfinite(largest)
    bits[3, 2] = np.iinfo(bits.dtype).max  # NaN in each type
    with pytest.raises(ValueError, match=r"not finite: column 2 has 1 NaN\. The first is in row 3"):
        fit(Tensor(bits, name), device=device)
    if name != "float8_e4m3fn":  # which has no infinity
        bits[3, 2] = {"bfloat16": 0x7F80, "float8_e5m2": 0x7C}[name]
        with pytest.raises(ValueError, match="Y contains values that are not finite: column 2 has 1 infinity"):
            nearest_neighbors(values, Tensor(bits, name), device=device)


def quantized(n=120, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-128, 128, (n, d)).astype(np.int8), rng.random(n).astype(np.float32) / 7


@pytest.mark.filterwarnings("ignore:of . clusters")
@pytest.mark.parametrize("call", CALLS)
def test_everything_takes_int8_with_scales(call, device):
    rows, scale = quantized()
    products = rows * scale.astype(np.float64)[:, None]
    same(CALLS[call](Scaled(rows, scale), device), CALLS[call](products, device))


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [
        (0.25, np.float32),
        (3, np.float32),
        (0.0, np.float32),
        (2.0**-126, np.float32),
        (2.0**119, np.float32),
        (2.0**120, np.float64),
        (2.0**-127, np.float64),
        (np.float16(0.1), np.float32),
        (np.float32(0.1), np.float64),
        (0.1, np.float64),
        (np.array([0.5, 0.1], np.float32), np.float64),
        ([0.5, 3.0], np.float32),
        (pd.Series([0.5, 3.0], index=[7, 8]), np.float32),
    ],
)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_products_are_of_the_smallest_exact_type(scale, dtype, kind, engine):
    rows = np.array([[255, 1, 128], [0, 77, 254]], np.uint8).view(kind)
    found = to_host(as_points(Scaled(rows, scale), engine).values)
    assert found.dtype == dtype
    factor = np.broadcast_to(np.asarray(scale, np.float64), 2)[:, None]
    np.testing.assert_array_equal(found, rows.astype(np.float64) * factor)


def test_scales_of_a_narrow_type(device):
    rows, _ = quantized(2)
    scale = Tensor(np.array([0x3F00, 0x3DCC], np.uint16), "bfloat16")  # 0.5, 0.0996
    found = as_points(Scaled(rows, scale), CPU).values
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, rows * np.array([[0.5], [0.099609375]]))


@pytest.mark.parametrize(
    ("values", "scale", "message"),
    [
        (np.zeros((3, 2)), 1.0, "values of Scaled must be int8 or uint8: those of X have dtype float64"),
        (np.zeros((3, 2), np.int16), 1.0, "those of X have dtype int16"),
        (np.zeros(3, np.int8), 1.0, r"values of Scaled must be of shape \(n, d\): those of X are of shape \(3,\)"),
        (np.zeros((3, 2), np.int8), [1.0, 2.0], r"hold one for each of 3 rows, got shape \(2,\)"),
        (np.zeros((3, 2), np.int8), np.ones((3, 1)), r"got shape \(3, 1\)"),
        (np.zeros((3, 2), np.int8), [1.0, -1.0, 2.0], "finite and not negative: number 1 is -1.0"),
        (np.zeros((3, 2), np.int8), [1.0, 2.0, np.nan], "finite and not negative: number 2 is nan"),
        (np.zeros((3, 2), np.int8), np.inf, "finite and not negative: number 0 is inf"),
        (np.zeros((3, 2), np.int8), np.array(["a", "b", "c"]), "scale of Scaled must hold numbers"),
        (np.zeros((0, 2), np.int8), 1.0, r"Found array with 0 sample\(s\)"),
    ],
)
def test_refusals_of_scaled_rows(values, scale, message, device):
    with pytest.raises(ValueError, match=message):
        fit(Scaled(values, scale), device=device)


@pytest.mark.parametrize("values", [[[1, 2]], pd.DataFrame({"a": [1, 2]}, dtype=np.int8), None])
def test_scaled_rows_are_an_array(values):
    with pytest.raises(TypeError, match=r"values of Scaled must be an array of int8 or uint8, got .*: pass "):
        Scaled(values, 1.0)


def test_a_model_of_scaled_rows_takes_others(device):
    rows, scale = quantized()
    products = rows * scale.astype(np.float64)[:, None]
    model = fit(Scaled(rows, scale), 3, prediction_data=True, device=device)
    expected = fit(products, 3, prediction_data=True, device=device)
    more, _ = quantized(9, seed=1)
    same(model.predict(Scaled(more, 0.125)), expected.predict(more * 0.125))
    same(model.append(Scaled(more, 0.125)).linkage_, expected.append(more * 0.125).linkage_)


def test_first_columns_are_copied_alone():
    """Of a view one copy of its own values is made, and what is narrow is not widened before."""
    n, d, kept = 2000, 512, 32
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    bits = (X.view(np.uint32) >> 16).astype(np.uint16)
    rows = np.ones((n, d), np.int8)
    for given, size in (
        (X[:, :kept], 4),
        (X, 0),
        (Tensor(bits[:, :kept], "bfloat16"), 4),
        (Scaled(rows[:, :kept], 0.5), 4),
        (Scaled(rows[:, :kept], np.full(n, 0.1)), 8),
    ):
        as_points(given, CPU, checked=False)
        tracemalloc.start()
        try:
            values = as_points(given, CPU, checked=False).values
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert values.shape[1] == (kept if size else d)
        assert peak <= size * n * kept + 64 * n  # and the scales

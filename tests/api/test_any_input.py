"""Whatever is handed in as points counts for the numbers in it or is refused by name, and stays as it was."""

import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from calls import fingerprint, points
from scipy import sparse
from spanning_trees import bits

import rapids_slink
from rapids_slink import cut, fit, fit_graph, knn_graph, nearest_neighbors, pairs
from rapids_slink.points.check import MAX_ROWS

TABLE = np.random.default_rng(0).normal(size=(6, 3))
FRAME = pd.DataFrame(TABLE, columns=["a", "b", "c"])
READ_ONLY = TABLE.copy()
READ_ONLY.flags.writeable = False
VALID = {
    **{dtype: (TABLE * 50).astype(dtype) for dtype in ("bool", "int8", "uint16", "int64", "float16", "float32")},
    **{dtype: TABLE.astype(dtype) for dtype in ("longdouble", ">f8", ">i4", "O")},
    "huge integers": np.array([[10**30, 1], [2, 3]]),
    "uint64": np.array([[2**64 - 1], [0], [5]], np.uint64),
    "Fortran": np.asfortranarray(TABLE),
    "strided": np.random.default_rng(1).normal(size=(12, 6))[::2, ::-2],
    "broadcast": np.broadcast_to(TABLE[0], (5, 3)),
    "read-only": READ_ONLY,
    "masked, but nothing is": np.ma.masked_array(TABLE),
    "matrix": np.asmatrix(TABLE),
    "list": TABLE.tolist(),
    "tuple": tuple(map(tuple, TABLE)),
    "frame": FRAME,
    "columns of one name": FRAME.set_axis(["a", "a", "b"], axis=1),
    "columns of levels": FRAME.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]), axis=1),
    "rows of levels": FRAME.set_index([["x"] * 6, list(range(6))]),
    "rows of one name": FRAME.set_axis([0] * 6),
    "nullable": FRAME.astype("Float64"),
    "sparse columns": pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 1.0])}),
    "decimals": pd.DataFrame({"a": [Decimal("1.5"), Decimal("2"), Decimal("-3")]}),
}


def changed(row, column, value, dtype=float):
    """The table with one other value."""
    table = TABLE.astype(dtype)
    table[row, column] = value
    return table


NOT_2D = "Expected 2D array, got (1D|scalar) array"
#: What is refused, and the words of the error; {X} stands for the argument's name, {of} for " of Y" where that is Y.
REFUSED = {
    "NaN": (changed(2, 1, np.nan), "^{X} contains values that are not finite: column 1 has 1 NaN"),
    "infinity": (changed(0, 0, -np.inf), "^{X} contains values that are not finite: column 0 has 1 infinity"),
    "None": (changed(0, 2, None, object), "^{X} contains values that are not finite: column 2 has 1 NaN"),
    "overflow": (np.array([[1e300, 0, 0], [-1e300, 0, 0]]), "overflow float64: the values of column 0 .* Rescale {X}"),
    "text among objects": (changed(1, 1, "x", object), "^{X} has dtype object, and not all of it is numeric"),
    "complex": (TABLE.astype(complex), "^Complex data not supported: {X} has dtype complex128"),
    "text in an array": (TABLE.astype("U5"), "^{X} has dtype <U5, which is not numeric"),
    "bytes in an array": (TABLE.astype("S5"), r"^{X} has dtype \|S5, which is not numeric"),
    "dates": (np.arange(6).astype("M8[D]").reshape(6, 1), r"^{X} has dtype datetime64\[D\], which is not numeric"),
    "spans of time": (np.arange(6).astype("m8[s]").reshape(6, 1), r"^{X} has dtype timedelta64\[s\]"),
    "void": (np.zeros((3, 2), "V4"), r"^{X} has dtype \|V4, which is not numeric"),
    "structured": (np.zeros(4, dtype=[("x", float), ("y", float)]), NOT_2D),
    "masked": (np.ma.masked_array(TABLE, TABLE > 1), "^{X} has 1 masked values"),
    "one dimension": (np.zeros(2), NOT_2D),
    "no dimension": (np.zeros(()), NOT_2D),
    "three dimensions": (np.zeros((2, 2, 2)), "Found array with dim 3"),
    "no rows": (np.empty((0, 3)), r"Found array with 0 sample\(s\)"),
    "no columns": (np.empty((3, 0)), r"Found array with 0 feature\(s\)"),
    "ragged": ([[1, 2], [3]], "^{X} is not a table of numbers with rows of equal length"),
    "nested": ([[[1], [2]], [[3], [4, 5]]], "^{X} is not a table of numbers with rows of equal length"),
    "empty list": ([], NOT_2D),
    "generator": ((row for row in TABLE), NOT_2D),
    "range": (range(5), NOT_2D),
    "set": ({1.0, 2.0}, NOT_2D),
    "dict": ({"a": [1, 2]}, NOT_2D),
    "text": ("abc", NOT_2D),
    "bytes": (b"abc", NOT_2D),
    "nothing": (None, NOT_2D),
    "a number": (3, NOT_2D),
    "a class": (np.ndarray, NOT_2D),
    "a function": (np.sum, NOT_2D),
    "a module": (np, NOT_2D),
    "series": (FRAME["a"], NOT_2D),
    "index": (FRAME.index, NOT_2D),
    "frame without columns": (pd.DataFrame(index=range(4)), r"Found array with 0 feature\(s\)"),
    "frame without rows": (FRAME[:0], r"Found array with 0 sample\(s\)"),
    "nullable with a gap": (FRAME.astype("Float64").mask(FRAME > 1), "^column 'a'{of} has 1 missing value"),
    "nullable integers": (pd.DataFrame({"a": pd.array([1, None, 3], "Int32")}), "^column 'a'{of} has 1 missing value"),
    "sparse gaps": (pd.DataFrame({"a": pd.arrays.SparseArray([np.nan, 0.0])}), "^column 'a'{of} has 1 missing value"),
    "categories": (FRAME.assign(a=pd.Categorical(list("xyxyxy"))), "^column 'a'{of} has dtype category"),
    "strings": (FRAME.assign(b="1.5"), "^column 'b'{of} has dtype .*, (which is not|and not all of it is) numeric"),
    "dates in a frame": (FRAME.assign(c=pd.date_range("2020", periods=6)), "^column 'c'{of} has dtype datetime64"),
    "zones": (FRAME.assign(c=pd.date_range("2020", periods=6, tz="UTC")), "^column 'c'{of} has dtype datetime64"),
    "periods": (FRAME.assign(c=pd.period_range("2020", periods=6, freq="M")), "^column 'c'{of} has dtype period"),
    "lists in a frame": (FRAME.assign(c=[[1], [2], [3], [4], [5], [6]]), "^column 'c'{of} has dtype object, and not"),
    "complex in a frame": (FRAME.assign(c=1j), "^Complex data not supported: column 'c'{of} has dtype complex128"),
    "intervals": (pd.DataFrame({"a": pd.interval_range(0, 3)}), "^column 'a'{of} has dtype interval"),
    "huge": (pd.DataFrame({"b": [1, 10**400]}, dtype=object), "column 'b'{of} holds an integer beyond float64's range"),
}


class AstropyTable:
    """A stand-in: an array of it has a type with a name for each column."""

    dtype, to_pandas = np.dtype([("x", float), ("y", float)]), None

    def __len__(self):
        return 4

    def __array__(self, dtype=None, copy=None):
        return np.zeros(4, self.dtype)


#: What is no table, and what the error says that it is.
NO_TABLES = {
    "nothing": (None, "{} is None$"),
    "dict": ({"a": [1, 2]}, r"{0} is of type dict\. Pass pandas\.DataFrame\({0}\)$"),
    "generator": ((row for row in TABLE), r"{0} is of type generator\. Pass list\({0}\)$"),
    "set": ({1.0, 2.0}, "{} is of type set$"),
    "objects": ([object(), object()], "{} is a list of object, not of rows of numbers$"),
    "fields": (np.zeros(4, [("x", float), ("y", float)]), r"{0} is of type ndarray\. Pass pandas\.DataFrame\({0}\)$"),
    "astropy": (AstropyTable(), r"{0} is of type AstropyTable\. Pass {0}\.to_pandas\(\)$"),
    "igraph": (type("Graph", (), {"to_networkx": None})(), r"{0} is of type Graph\. Pass {0}\.to_networkx\(\)$"),
    "texts": (["a", "b"], "{} is a list of str, not of rows of numbers. It holds text, which .* take$"),
}
CALLS = {
    "fit": lambda X, **how: fit(X, 1, **how).mst_,
    "knn_graph": lambda X, **how: knn_graph(X, 1, **how),
    "nearest_neighbors": lambda X, **how: nearest_neighbors(X, X, **how),
    "nearest_neighbors of Y": lambda Y, **how: nearest_neighbors(np.ones((4, np.shape(Y)[1])), Y, **how),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", VALID)
def test_tables_of_every_kind_are_the_numbers_in_them(name, call, device):
    X, call = VALID[name], CALLS[call]
    before = fingerprint(X)
    plain = X.to_numpy(np.float64) if isinstance(X, pd.DataFrame) else np.array(X, np.float64)
    assert bits(call(X, device=device)) == bits(call(plain, device=device))
    assert fingerprint(X) == before


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", REFUSED)
def test_other_things_are_refused_by_name(name, call, device):
    X, words = REFUSED[name]
    of_y = call == "nearest_neighbors of Y"
    before = fingerprint(X)
    with pytest.raises((ValueError, TypeError), match=words.format(X="Y" if of_y else "X", of=" of Y" if of_y else "")):
        nearest_neighbors(TABLE, X, device=device) if of_y else CALLS[call](X, device=device)
    assert fingerprint(X) == before


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.lil_matrix])
@pytest.mark.parametrize(
    "how",
    [{"metric": "cityblock"}, {"metric": "hamming"}, {"missing": "pairwise"}, {"box": 9.0}, {"scales": {(0, 1, 2): 2}}],
)
def test_sparse_matrices_of_other_metrics_are_refused(how, kind, device):
    X, words = kind(TABLE), r"^Sparse input is not supported: pass {}\.toarray\(\)"
    if "metric" in how:
        words += r"\. The metrics 'jaccard', 'dice', 'containment', 'cosine', 'euclidean' take it$"
    with pytest.raises(TypeError, match=words.format("X")):
        fit(X, 1, device=device, **how)
    with pytest.raises(TypeError, match=words.format("X")):
        pairs(X, max_distance=1, device=device, **how)
    with pytest.raises(TypeError, match=words.format("Y")):
        pairs(TABLE, X, max_distance=1, device=device, **how)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64])
def test_small_types_of_parameters_do_not_overflow(kind, device):
    X = points(500, 9)
    assert bits(fit(X, kind(100), n_neighbors=kind(100), device=device)) == bits(fit(X, 100, device=device))
    assert bits(knn_graph(X, kind(100), device=device)) == bits(knn_graph(X, 100, device=device))
    assert bits(fit(X, 2, device=device).cut(kind(100))) == bits(fit(X, 100, device=device).labels_)


@pytest.mark.parametrize("name", NO_TABLES)
def test_what_is_no_table_is_named(name, device):
    X, words = NO_TABLES[name]
    for how in ({}, {"metric": "precomputed"}):
        with pytest.raises(TypeError, match="Expected 2D array, got .* array instead: " + words.format("X")):
            fit(X, device=device, **how)
    with pytest.raises(TypeError, match="instead: " + words.format("Y")):
        nearest_neighbors(TABLE, X, device=device)


def test_a_lazy_frame_is_not_collected(device):
    X = type("LazyFrame", (), {"columns": property(lambda self: 1 / 0)})()  # Polars warns of whoever asks for these
    calls = {
        "X": lambda: fit(X, device=device),
        "edges": lambda: fit_graph(X, device=device),
        "tree": lambda: rapids_slink.linkage(X, device=device),
        "linkage": lambda: cut(X, n_clusters=2),
        "graph": lambda: rapids_slink.connect(X, TABLE, device=device),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"LazyFrame\. Pass {name}\.collect\(\)$"):
            call()


@pytest.mark.parametrize("edges", [[(0, 1, 2.0)], ((0, 1, 2.0),), np.ones((1, 3))], ids=["list", "tuple", "array"])
def test_edges_that_are_no_frame(edges, device):
    with pytest.raises(TypeError, match=r"Pass pandas\.DataFrame\(edges, columns=\['src', 'dst', 'weight'\]\)"):
        rapids_slink.minimum_spanning_tree(edges, device=device)


class ExplicitBitVect:
    """A stand-in for RDKit's."""

    def __init__(self, values):
        self.values, self.GetNumBits = values, values.__len__


def test_bit_vectors_of_rdkit(monkeypatch, device):
    def in_bytes(vector):
        return np.packbits(vector.values, bitorder="little").tobytes()

    monkeypatch.setitem(sys.modules, "rdkit", ModuleType("rdkit"))
    monkeypatch.setitem(sys.modules, "rdkit.DataStructs", SimpleNamespace(BitVectToBinaryText=in_bytes))
    values = np.random.default_rng(0).integers(0, 2, (20, 13))
    vectors = [ExplicitBitVect(row) for row in values]
    for metric in ("jaccard", "euclidean"):
        assert bits(fit(vectors, metric=metric, device=device)) == bits(fit(values, metric=metric, device=device))
    with pytest.raises(TypeError, match=r"metric='bit_jaccard' takes uint8 with eight bits in each"):
        fit(vectors, metric="bit_jaccard", device=device)
    with pytest.raises(ValueError, match=r"X is not a table with rows of equal length: .* \[12, 13\] bits"):
        fit([*vectors, ExplicitBitVect(values[0, :12])], device=device)
    for row, several in ((20, [*vectors, None]), (0, (None, *vectors))):
        with pytest.raises(TypeError, match=f"row {row} of X is None, not an ExplicitBitVect of RDKit: drop it"):
            fit(several, metric="jaccard", device=device)
    sparse_vector = type("SparseBitVect", (), {"__len__": lambda self: 2**32 - 1})()  # would be read bit by bit
    words = r"row 0 of Y is SparseBitVect.*pass \[set\(bits\.GetOnBits\(\)\) for bits in Y"
    with pytest.raises(TypeError, match=words):
        nearest_neighbors(values, [sparse_vector], metric="jaccard", device=device)
    with pytest.raises(ValueError, match=r"X holds ExplicitBitVects of RDKit: pass list\(X\)\.$"):
        fit(pd.Series(vectors), metric="jaccard", device=device)
    with pytest.raises(TypeError, match=r"column 'bits' .* it holds ExplicitBitVects of RDKit: pass list\(column\)$"):
        fit(pd.DataFrame({"bits": vectors}), metric="jaccard", device=device)


@pytest.mark.parametrize("kind", ["lists", "arrays", "polars", "Polars' lists", "arrow", "Arrow's type in pandas"])
def test_columns_of_vectors_are_refused_with_advice(kind, device):
    """In a frame, and alone."""
    if kind.lower().startswith("polars"):
        column = pytest.importorskip("polars").Series("e", TABLE if kind == "polars" else TABLE.tolist())
        frame = column.to_frame()
    elif kind.lower().startswith("arrow"):
        arrow = pytest.importorskip("pyarrow")
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(TABLE.ravel()), 3)
        frame = arrow.table({"e": column})
        if kind != "arrow":
            column = pd.Series(column, dtype=pd.ArrowDtype(column.type))
            frame = pd.DataFrame({"e": column})
    else:
        column = pd.Series(TABLE.tolist() if kind == "lists" else list(TABLE))
        frame = pd.DataFrame({"e": column, "x": 1.0})
    for metric in ("euclidean", "hamming"):
        with pytest.raises(TypeError, match=r"^column 'e' has dtype .* numpy\.stack\(column\) makes an array$"):
            knn_graph(frame, 1, metric=metric, device=device)
    with pytest.raises(ValueError, match=r"X holds vectors, of which numpy\.stack\(X\) makes an array\.$"):
        knn_graph(column, 1, device=device)


def test_objects_with_annotations_are_refused_with_advice(device):
    X = type("AnnData", (), {})()
    with pytest.raises(TypeError, match=r"^X is of type AnnData\. Pass X\.obsm\['X_pca'\], or X\.X$"):
        fit(X, device=device)


def test_columns_in_another_order():
    with pytest.raises(ValueError, match=r"same order, but column 0 is 'a' in X and 'b' in Y"):
        nearest_neighbors(FRAME, FRAME[["b", "a", "c"]], device="cpu")
    with pytest.raises(ValueError, match="column 1 is 'b' in X and 'z' in Y"):
        nearest_neighbors(FRAME, FRAME.rename(columns={"b": "z"}), device="cpu")
    expected = nearest_neighbors(FRAME, FRAME, device="cpu")
    numbered = FRAME.set_axis([0, 1, 2], axis=1)
    pd.testing.assert_frame_equal(nearest_neighbors(FRAME, numbered, device="cpu"), expected)


@pytest.mark.parametrize("path", ["points.csv", Path("points.csv")])
def test_path_in_the_place_of_a_table(path):
    for function in (fit, rapids_slink.HDBSCAN().fit, lambda X: knn_graph(X, 1)):
        with pytest.raises(TypeError, match=r"X is the text 'points\.csv'. Read a file first"):
            function(path)


def test_column_that_is_there_twice():
    merges = fit(FRAME, device="cpu").linkage_
    edges = pd.DataFrame([[0, 1, 1.0, 2.0]], columns=["src", "dst", "weight", "weight"])
    for function in (rapids_slink.minimum_spanning_tree, rapids_slink.linkage, fit_graph):
        with pytest.raises(ValueError, match="'weight' is there 2 times"):
            function(edges, device="cpu")
    with pytest.raises(ValueError, match="'height' is there 2 times"):
        cut(pd.concat([merges, merges[["height"]]], axis=1), n_clusters=2)


def test_more_leaves_than_can_be_numbered():
    with pytest.raises(ValueError, match=f"n_leaves must be at most {MAX_ROWS}"):
        cut(fit(FRAME, device="cpu").linkage_, n_clusters=2**31 - 5, n_leaves=2**31)


@pytest.mark.parametrize(("p", "error"), [(-1, ValueError), (np.nan, ValueError), ("2", TypeError), (True, TypeError)])
def test_p_of_any_metric(p, error):
    with pytest.raises(error, match="p must be"):
        fit(FRAME, p=p, device="cpu")


class Tensor:
    """A stand-in for a tensor of PyTorch whose sign is still to be applied."""

    def __init__(self, values, is_resolved=False):
        self.values, self.is_resolved = values, is_resolved

    def detach(self):
        return self

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return Tensor(-self.values, is_resolved=True)

    def __array__(self, dtype=None, copy=None):
        if not self.is_resolved:
            raise RuntimeError(
                "Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy()"
            )
        return np.asarray(self.values, dtype)


def test_tensor_with_a_negative_bit():
    found = fit(Tensor(-TABLE), device="cpu")
    np.testing.assert_array_equal(found.distances_, fit(TABLE, device="cpu").distances_)

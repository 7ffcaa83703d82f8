"""Answers in the kind that cuML's global output type names, and as proxies of ``cudf.pandas`` where these went in."""

import copy
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pytest
from arrow_tables import Exported, LabelledArray, to_arrow, to_batch, to_polars, to_stream
from calls import points
from repository import run
from spanning_trees import bits

import rapids_slink
from rapids_slink import DBSCAN, HDBSCAN, SingleLinkage, cut, fit, fit_graph, minimum_spanning_tree, pairs
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import to_host

FRAME = pd.DataFrame(points(90, 12), columns=list("abcdefghijkl"), index=pd.RangeIndex(5, 95))
ARRAY = FRAME.to_numpy()
KINDS = {"numpy": "ndarray", "cupy": "ndarray", "pandas": "Series", "cudf": "Series"}


def kind_of(answer):
    """Its package and class."""
    return type(answer).__module__.split(".")[0], type(answer).__name__


def kinds_of_answers(X, device):
    """The kinds of all that is one value a row or a merge, and of all that is several."""
    model = fit(X, 3, device=device)
    ones = [model.labels_, model.cut(4), model.distances_, SingleLinkage(3, device=device).fit_predict(X)]
    ones += [cut(model.linkage_, n_clusters=3)]
    many = [model.children_, model.cut([2, 3]), cut(model.linkage_, n_clusters=[2, 3])]
    assert [answer.ndim for answer in (*ones, *many)] == [1] * len(ones) + [2] * len(many)
    return [set(map(kind_of, answers)) for answers in (ones, many)]


def set_output_type(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "cuml", SimpleNamespace(global_settings=SimpleNamespace(output_type=name)))


@pytest.mark.parametrize("X", [FRAME, ARRAY], ids=["frame", "array"])
@pytest.mark.parametrize("name", ["numpy", "pandas"])
def test_cumls_output_type(monkeypatch, X, name, device):
    set_output_type(monkeypatch, name)
    one, many = kinds_of_answers(X, device)
    assert one == {(name, KINDS[name])}
    assert many == {(name, "ndarray" if name == "numpy" else "DataFrame")}
    model = fit(X, 3, device=device)
    assert isinstance(model.linkage_, pd.DataFrame)  # a frame whatever is asked
    if name == "pandas":
        index = FRAME.index if X is FRAME else pd.RangeIndex(90)
        pd.testing.assert_index_equal(model.labels_.index, index, exact=False)
        assert list(model.cut([2, 3]).columns) == [2, 3]
    edges = model.mst_.astype({"src": str, "dst": str})
    found = fit_graph(edges, 3, device=device)
    assert {kind_of(answer) for answer in (found.labels_, found.component_, found.cut(2))} == {(name, KINDS[name])}


@pytest.mark.parametrize("name", [None, "input", "mirror", "array", "numba"])
def test_output_types_that_name_no_kind_mirror_the_input(monkeypatch, name, device):
    expected = [kinds_of_answers(X, device) for X in (FRAME, ARRAY)]
    set_output_type(monkeypatch, name)
    assert [kinds_of_answers(X, device) for X in (FRAME, ARRAY)] == expected
    assert expected[0][0] == {("pandas", "Series"), ("numpy", "ndarray")}


def test_a_cuml_without_settings_is_no_matter(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuml", SimpleNamespace())
    assert isinstance(fit(FRAME, 3, device="cpu").labels_, pd.Series)


def test_the_type_that_cumls_accelerator_sets_is_not_the_users(monkeypatch):
    set_output_type(monkeypatch, "numpy")
    monkeypatch.setitem(sys.modules, "cuml.accel", SimpleNamespace(enabled=lambda: True))
    assert isinstance(fit(FRAME, 3, device="cpu").labels_, pd.Series)


@pytest.mark.parametrize(("X", "name"), [(FRAME, "numpy"), (ARRAY, "pandas")], ids=["frame", "array"])
def test_files_and_copies_under_an_output_type(monkeypatch, tmp_path, device, X, name):
    set_output_type(monkeypatch, name)
    model = fit(X, 3, device=device)
    model.save(tmp_path / "model")
    for other in (rapids_slink.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.copy(model)):
        assert bits(other) == bits(model)
    assert "90 rows in 3 clusters" in model._repr_html_()


TABLES = {"polars": to_polars, "pyarrow": to_arrow, "a batch of pyarrow": to_batch, "a stream of pyarrow": to_stream}
tables = pytest.mark.parametrize("library", TABLES)
WEIGHTED = pd.DataFrame({"src": [0, 1, 0, 3], "dst": [1, 2, 2, 4], "weight": [1.5, 2.5, 0.5, 9.0]})
WEIGHTED["road"] = list("abcd")


def values_of(answer):
    """Those of a table's columns, or of one column."""
    if not hasattr(answer, "columns"):
        return np.asarray(answer).tolist()
    names = getattr(answer, "column_names", answer.columns)
    return [np.asarray(answer[name]).tolist() for name in names]


def assert_same(answers, of_pandas, library):
    for answer, expected in zip(answers, of_pandas, strict=True):
        assert kind_of(answer)[0] == library.split()[-1]
        assert values_of(answer) == values_of(expected)


@tables
def test_points_in_tables(library, device):
    frame = FRAME.reset_index(drop=True).assign(a=lambda f: (f["a"] * 9).astype("int8"), b=lambda f: f["b"] > 0)

    def answers(X, turned):
        """Stages and models, each result of a library; columns go by name."""
        graph = rapids_slink.knn_graph(X, 4, device=device)
        model = fit(X, 3, prediction_data=True, device=device)
        dense = HDBSCAN(4, prediction_data=True, device=device).fit(X)
        plain = DBSCAN(4.0, 3, device=device).fit(X)
        grown = fit(X, 3, prediction_data=True, device=device).append(X)
        assert model.feature_names_in_.tolist() == list(frame)
        yield from (graph, rapids_slink.connect(graph, X, device=device))
        yield rapids_slink.nearest_neighbors(X, X, device=device)
        yield from (model.labels_, model.linkage_, model.mst_, model.cut(4), model.cut([2, 3]))
        yield from (model.predict(X), model.predict(turned))
        yield from (grown.labels_, grown.linkage_, dense.labels_, dense.condensed_tree_.frame)
        yield from (plain.labels_, plain.components_, pairs(X, max_distance=4.0, device=device))
        yield model.catalogue(X, min_size=1)
        yield from dense.approximate_predict(X)
        yield from (rapids_slink.linkage(model.mst_, device=device), cut(model.linkage_, n_clusters=3))
        yield from (cut(model.linkage_, n_clusters=[2, 3]), minimum_spanning_tree(graph, device=device))

    turned = frame.iloc[:, ::-1]
    assert_same(answers(*map(TABLES[library], (frame, turned))), answers(frame, turned), library)


def test_a_stream_that_is_read_once():
    """Its points and its groups."""
    table = to_arrow(FRAME.assign(film=np.repeat(["a", "b"], 45)))
    for groups in ("film", table.select(["film"]).to_reader()):
        X = table if isinstance(groups, str) else table.drop_columns("film")
        labels = SingleLinkage(2, device="cpu").fit(X.to_reader(), groups=groups).labels_
        assert kind_of(labels)[0] == "pyarrow"
        assert labels == SingleLinkage(2, device="cpu").fit(table, groups="film").labels_


def test_columns_that_export_a_stream(device):
    keys = np.repeat(["a", "b"], 45)
    column = Exported(pytest.importorskip("pyarrow", "18").chunked_array([keys]))
    assert fit(ARRAY, 1, groups=column, device=device).labels_.tolist() == [0] * 45 + [1] * 45
    assert fit(column, 2, metric="levenshtein", device=device).labels_.to_pylist() == [0] * 45 + [1] * 45


def test_arrays_that_export_a_stream_are_arrays(device):
    """Of numbers, distances, keys, text and weights."""
    model = fit(LabelledArray(ARRAY), 3, prediction_data=True, device=device)
    assert bits(model) == bits(fit(ARRAY, 3, device=device))
    assert kind_of(model.labels_) == ("numpy", "ndarray")
    keys, numbers = np.repeat(["a", "b"], 45), np.arange(1.0, 91.0)
    grouped = fit(LabelledArray(ARRAY), 2, groups=LabelledArray(keys), device=device)
    assert bits(grouped) == bits(fit(ARRAY, 2, groups=keys, device=device))
    distances = np.abs(numbers - numbers[:, None])
    by_distance = fit(LabelledArray(distances), metric="precomputed", device=device)
    assert bits(by_distance) == bits(fit(distances, metric="precomputed", device=device))
    assert fit(LabelledArray(keys), 2, metric="levenshtein", device=device).labels_.tolist() == [0] * 45 + [1] * 45
    ours, plain = (model.catalogue(make(ARRAY), min_size=1, columns=make(numbers), weights=make(numbers))
                   for make in (LabelledArray, np.asarray))  # fmt: skip
    pd.testing.assert_frame_equal(on_host(ours), on_host(plain))


def test_a_stream_needs_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="Exported is read through Arrow, which needs pyarrow: pip install"):
        fit(Exported(None), device="cpu")


@tables
def test_models_of_tables_draw_export_and_move(library, tmp_path, device):
    frame = FRAME.reset_index(drop=True)
    model, plain = (fit(X, 3, prediction_data=True, device=device) for X in (TABLES[library](frame), frame))
    np.testing.assert_array_equal(model.to_scipy(), plain.to_scipy())
    np.testing.assert_array_equal(model.children_, plain.children_)
    np.testing.assert_array_equal(model.distances_, plain.distances_)
    pd.testing.assert_frame_equal(model.to_frame(medoids=True), plain.to_frame(medoids=True))
    assert model.to_newick() == plain.to_newick()
    assert "90 rows in 3 clusters" in model._repr_html_()
    model.save(tmp_path / "model")
    opened = rapids_slink.load(tmp_path / "model")
    found, expected = ((one.labels_, one.linkage_, one.cut(4)) for one in (opened, plain))
    assert_same(found, expected, library)
    assert isinstance(pickle.loads(pickle.dumps(model)).labels_, pd.Series)  # it opens without the library
    assert kind_of(copy.copy(model).labels_) == kind_of(model.labels_)


@tables
def test_trees_of_hdbscan_have_a_tables_columns(library, tmp_path, device):
    frame = FRAME.reset_index(drop=True)
    model, plain = (HDBSCAN(4, gen_min_span_tree=True, device=device).fit(X) for X in (TABLES[library](frame), frame))
    model.save(tmp_path / "model")
    for one in (model, rapids_slink.load(tmp_path / "model")):
        assert_same([one.condensed_tree_.frame], [plain.condensed_tree_.frame], library)
        for tree in ("condensed_tree_", "single_linkage_tree_", "minimum_spanning_tree_"):
            pd.testing.assert_frame_equal(getattr(one, tree).to_pandas(), getattr(plain, tree).to_pandas())
        assert to_host(one.minimum_spanning_tree_.rows).tolist() == frame.to_numpy().tolist()


def test_plots_of_tables():
    X = to_arrow(FRAME[["a", "b"]])
    model = fit(X, 3, device="cpu")
    for drawn in (model.plot(), model.plot_heights(), model.plot_clusters(X), model.plot_tree(X)):
        drawn.figure.clear()


@tables
@pytest.mark.parametrize("ids", [int, str])
def test_edges_in_tables(library, ids, device, tmp_path):
    frame = WEIGHTED.astype({"src": ids, "dst": ids})
    edges = TABLES[library](frame)
    model, expected = fit_graph(edges, device=device), fit_graph(frame, device=device)
    assert_same((model.labels_, model.component_, model.mst_, model.linkage_),
                (expected.labels_, expected.component_, expected.mst_, expected.linkage_), library)  # fmt: skip
    assert np.asarray(model.nodes_).tolist() == expected.labels_.index.tolist() == list(expected.nodes_)
    model.save(tmp_path / "graph")
    opened = rapids_slink.load(tmp_path / "graph")
    assert_same((opened.nodes_, opened.labels_, opened.mst_), (model.nodes_, model.labels_, model.mst_), library)
    names = pickle.loads(pickle.dumps(model)).component_.index
    assert names.tolist() == list(expected.nodes_)
    for how in ({}, {"component": True}, {"maximum": True}):
        tree = minimum_spanning_tree(edges, device=device, **how)
        assert_same([tree], [minimum_spanning_tree(frame, device=device, **how)], library)
    of_points = fit(edges, metric="precomputed", n_clusters=2, device=device)
    assert_same([of_points.labels_], [fit(frame, metric="precomputed", n_clusters=2, device=device).labels_], library)


def test_trees_have_the_types_of_their_edges(device):
    pl = pytest.importorskip("polars")
    edges = to_polars(WEIGHTED).cast({"src": pl.Int16, "dst": pl.Int16, "weight": pl.Float32})
    assert minimum_spanning_tree(edges, device=device).schema == edges.select("src", "dst", "weight").schema
    named = edges.with_columns(pl.col("src", "dst").cast(pl.String).cast(pl.Categorical))
    assert minimum_spanning_tree(named, device=device).schema["src"] == pl.Categorical


@tables
def test_gaps_in_tables_are_refused_by_name(library, device):
    columns = {"a": [1, None, 3], "b": [True, False, None]}
    X = pytest.importorskip("polars").DataFrame(columns) if library == "polars" else pyarrow.table(columns)
    with pytest.raises(ValueError, match="column 'b' has 1 missing value"):
        fit(X, device=device)
    with pytest.raises(ValueError, match="column 'a' has 1 NaN"):
        fit(X.select(["a"]), device=device)


@pytest.mark.gpu
@pytest.mark.parametrize("name", KINDS)
def test_the_real_cumls_output_type(name):
    import cudf
    import cupy

    cuml = pytest.importorskip("cuml")
    for X in (FRAME, ARRAY, cudf.from_pandas(FRAME), cupy.asarray(ARRAY)):
        with cuml.using_output_type(name):
            one, many = kinds_of_answers(X, "cuda")
            model = fit(X, 3, device="cuda")
            labels = model.labels_
        assert one == {(name, KINDS[name])}
        assert many == {(name, "ndarray" if KINDS[name] == "ndarray" else "DataFrame")}
        if KINDS[name] == "Series" and hasattr(X, "index"):
            assert to_host(labels.index.values).tolist() == FRAME.index.tolist()
        assert bits(labels) == bits(fit(X, 3, device="cuda").labels_)
        assert type(fit(X, 3, device="cuda").children_) is type(model.children_)  # asked for when it is read


@pytest.mark.gpu
def test_proxies_of_cudf_pandas_go_the_gpus_way(tmp_path):
    """What a user of ``python -m cudf.pandas`` sees: proxies in, proxies out, and the GPU unless it is refused."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import cudf.pandas
import numpy as np
import pandas as pd
from rapids_slink import cut, fit, fit_graph, knn_graph, linkage, minimum_spanning_tree

is_proxy = cudf.pandas.is_proxy_object
X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
df = pd.DataFrame(X, columns=list("abc"), index=pd.RangeIndex(7, 307))
assert is_proxy(df)
found = {}
for device in ("auto", "cuda", "cpu"):
    model = fit(df, 4, device=device)
    assert model.report_["device"] == ("cpu" if device == "cpu" else "cuda"), device
    answers = [model.labels_, model.linkage_, model.mst_, model.cut(3), model.cut([2, 3])]
    answers += [knn_graph(df, 3, device=device), minimum_spanning_tree(model.mst_, device=device)]
    answers += [linkage(model.mst_, device=device), cut(model.linkage_, n_clusters=4)]
    answers += [fit_graph(model.mst_, 4, device=device).labels_]
    for i, answer in enumerate(answers):
        assert is_proxy(answer), (device, i, type(answer))
    assert list(model.labels_.index) == list(df.index)
    assert not is_proxy(fit(X, 4, device=device).labels_)  # an array is an array
    found[device] = [a.to_numpy().tobytes() for a in answers]
assert found["auto"] == found["cuda"] == found["cpu"]
mixed = df.assign(d="x")
try:
    fit(mixed, 4)
except TypeError as error:
    assert "column 'd'" in str(error), error
else:
    raise AssertionError("text was clustered")
print("fine")
"""
    )
    assert run("-W", "ignore", "-m", "cudf.pandas", script).stdout == "fine\n"

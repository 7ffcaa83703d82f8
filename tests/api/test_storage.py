"""Saving and loading: every bit and name comes back; damaged, foreign and older files are refused or read."""

import io
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import FRAME, assert_same
from repository import python, run

from rapids_slink import HDBSCAN, DeviceMemoryError, SingleLinkage, __version__, fit, fit_graph, load
from rapids_slink.hierarchy import storage
from rapids_slink.hierarchy.storage import VERSION
from rapids_slink.points.output import OutputKind, on_host
from rapids_slink.runtime.device import CPU, DeviceUnavailableError, gpu_is_usable
from rapids_slink.runtime.memory import run_scope


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.slink"


def saved(model, path):
    model.save(path)
    return load(path)


TIMES = pd.date_range("2024-03-30", periods=6, freq="6h", tz="Europe/Berlin", name="when")
INDEXES = {
    "range": pd.RangeIndex(10, 22, 2, name="row"),
    "integers": pd.Index([5, 3, 3, -1, 2**62, 0], name=("a", 1)),
    "unsigned": pd.Index(np.array([2**64 - 1, 0, 1, 2, 3, 4], np.uint64)),
    "floats": pd.Index([0.1, np.nan, -0.0, np.inf, 1e-300, 2.0]),
    "booleans": pd.Index([True, False, True, True, False, False]),
    "strings": pd.Index([*list("abcde"), "ü\x00🦆"]),
    "strings as objects": pd.Index(list("abcdef"), dtype=object),
    "objects": pd.Index([1, "1", 1.5, None, ("a", 2), float("inf")], dtype=object, tupleize_cols=False),
    "times": TIMES,
    "times without frequency": pd.DatetimeIndex(["2020-01-01 12:00:00.123456789", None, "1970-01-01"] * 2),
    "times in seconds": pd.date_range("1066", periods=6, unit="s"),
    "time spans": pd.timedelta_range("1 h", periods=6, freq="90min"),
    "periods": pd.period_range("2020-01", periods=6, freq="M"),
    "intervals": pd.interval_range(0.0, 3.0, 6, closed="left"),
    "categories": pd.CategoricalIndex(list("aabbca"), categories=list("cbax"), ordered=True),
    "nullable": pd.Index([1, None, 3, 4, 5, 6], dtype="Int16"),
    "levels": pd.MultiIndex.from_arrays([list("aabbcc"), TIMES.tolist(), list(range(6))], names=["x", None, 3]),
    "categories of numbers": pd.CategoricalIndex([3, 2, 2, 1, 1, 1]),
    "levels of strings": pd.MultiIndex.from_arrays([pd.Index(list("abcdef"), dtype=object), list("aabbcc")]),
    "levels of objects": pd.MultiIndex.from_arrays([[1, "a", 2, "b", 3, "c"], [1.5] * 6]),
}


@pytest.mark.parametrize(
    "X",
    [FRAME, FRAME.to_numpy(), FRAME.to_numpy()[:1], FRAME.set_axis([3, 7], axis=1), FRAME[["x"]].iloc[:1]],
    ids=["frame", "array", "one row", "names that are no strings", "frame of one row"],
)
def test_all_comes_back(X, device, path):
    model = fit(X, 1, n_neighbors=2, device=device)
    found = saved(model, path)
    assert_same(found, model)
    assert type(found.cut(1)) is type(model.cut(1))
    assert found.to_scipy().tobytes() == model.to_scipy().tobytes()
    assert found._repr_html_() == model._repr_html_()
    assert found.fit(X).labels_.tolist() == model.labels_.tolist()


def test_other_classes_come_back(device, path):
    model = HDBSCAN(2, device=device).fit(FRAME.set_axis(INDEXES["levels"]))
    assert_same(saved(model, path), model)
    assert load(path).cut(3).tolist() == model.cut(3).tolist()
    edges = pd.DataFrame({"src": [0, 1, 3], "dst": [1, 2, 4], "weight": [-0.0, -1.5, 0.0]})
    graph = fit_graph(edges, n_nodes=6, device=device)
    found = saved(graph, path)
    assert_same(found, graph)
    assert found.cut(n_clusters=4).tolist() == graph.cut(n_clusters=4).tolist()


@pytest.mark.parametrize("ids", [list("zyxw"), [1, "a", None, (2.5, "b")], pd.date_range("2020", periods=4)])
def test_frames_of_any_columns_come_back(ids, path):
    model = fit_graph(pd.DataFrame({"src": [0, 1], "dst": [1, 2], "weight": [1, 2]}), n_nodes=4, device="cpu")
    ids = pd.Series(ids)
    model.mst_ = model.mst_.assign(src=ids[:2], dst=ids[2:].reset_index(drop=True))
    assert_same(saved(model, path), model)


@pytest.mark.parametrize(
    "parameters", [{"n_clusters": None, "distance_threshold": np.inf}, {"n_clusters": np.int64(3), "p": 0.1 + 0.2}]
)
def test_parameters_come_back(parameters, path):
    found = saved(SingleLinkage(**parameters, device="cpu").fit(FRAME), path)
    assert found.get_params() == {**SingleLinkage(device="cpu").get_params(), **parameters}


def test_parameters_without_effect_come_back(path):
    given = {"memory": "folder", "build_kwds": {"n_clusters": 4}, "device_ids": (0, 1), "verbose": 2}
    found = saved(HDBSCAN(2, **given, device="cpu").fit(FRAME), path).get_params()
    assert {name: found[name] for name in given} == given
    assert type(found["build_kwds"]) is dict


@pytest.mark.parametrize("name", INDEXES)
def test_any_index_comes_back(name, path):
    index = INDEXES[name]
    model = fit(FRAME.set_axis(index), 3, device="cpu")
    found = saved(model, path)
    assert_same(found, model)
    assert [type(a) for a in found.labels_.index] == [type(a) for a in index]
    assert found.labels_.index.names == index.names
    pd.testing.assert_index_equal(found.cut(2).index, index, exact=True)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.tuples(st.text(), st.integers())


@given(st.lists(PLAIN, min_size=1, max_size=6))
def test_any_plain_labels_come_back(tmp_path_factory, labels):
    index = pd.Index(labels, dtype=object, tupleize_cols=False)
    path = tmp_path_factory.getbasetemp() / "any.slink"
    found = saved(fit(FRAME.iloc[: len(labels)].set_axis(index), 1, device="cpu"), path).labels_.index
    assert list(map(repr, found)) == list(map(repr, index))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("_index", pd.Index([object()] * 6), "^index cannot be saved: it holds <object .*>, of type object"),
        ("_index", pd.Index(np.arange(6) * 1j), "^index cannot be saved: .*complex128"),
        ("_index", pd.CategoricalIndex([1, 2], categories=[2, 1]), "^index cannot be saved: Parquet does not give"),
        ("_index", pd.date_range("2020", periods=6, freq=pd.DateOffset(months=1)), "^index cannot .* frequency"),
        ("_index", pd.RangeIndex(6, name=frozenset()), r"^index cannot be saved: it holds frozenset\(\)"),
        ("labels_", pd.Series(0, index=range(1, 7)), "^labels_ cannot be saved: its index is not that of the input"),
        ("memory_limit", object(), "^memory_limit cannot be saved: it holds <object"),
        ("__class__", type("Mine", (SingleLinkage,), {}), "^only rapids_slink's own classes can be saved, got Mine"),
    ],
)
def test_what_cannot_be_kept_is_refused(name, value, message, path):
    model = fit(FRAME, 2, device="cpu")
    setattr(model, name, value)
    path.write_text("old")
    with pytest.raises(TypeError, match=message):
        model.save(path)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_model_without_clusters_and_long_text_come_back(path, set_constants):
    """Text that could be packed too well for a file is not packed."""
    set_constants(storage, MAX_UNPACKED=1000)
    frame = FRAME.set_axis(pd.Index(["the same" * 1000] * len(FRAME), dtype=object))
    model = HDBSCAN(6, device="cpu", prediction_data=True).fit(frame)
    assert model.n_clusters_ == 0
    assert_same(saved(model, path), model)


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = fit(FRAME, 2, device="cpu")
    model.save("plain")
    model.save("plain")  # over itself
    assert os.listdir() == ["plain"]
    assert_same(load(Path("plain")), model)
    with pytest.raises(FileNotFoundError, match="nothing"):
        load("nothing")
    with pytest.raises(FileNotFoundError, match=r"file: no such folder: .*nowhere$"):
        model.save("nowhere/file")


def test_nothing_in_a_file_is_pickled(path):
    fit(FRAME.set_axis(INDEXES["objects"]), 2, device="cpu").save(path)
    with zipfile.ZipFile(path) as archive:
        assert {Path(name).suffix for name in archive.namelist()} == {".json", ".parquet"}
        assert not any(b"\x80\x04" in archive.read(n)[:4] for n in archive.namelist())


def test_without_pyarrow(monkeypatch, path):
    model = fit(FRAME, 2, device="cpu")
    model.save(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: model.save(path), lambda: load(path)):
        with pytest.raises(ImportError, match=r"need pyarrow: pip install 'rapids_slink\[parquet\]'"):
            call()


def test_devices(path):
    fit(FRAME, 2, device="cpu").save(path)
    assert isinstance(load(path, device="cpu").labels_, pd.Series)
    with pytest.raises(ValueError, match="device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"):
        load(path, device="tpu")
    if not gpu_is_usable():
        with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU"):
            load(path, device="cuda")


@pytest.mark.full
def test_a_file_from_a_gpu_opens_without_one(path):
    """In a process that has no GPU package."""
    model = fit(FRAME, 2, device="cpu")
    model._output = OutputKind(is_frame=True, gpu=True)
    model.save(path)
    code = """
import sys
sys.modules.update(cudf=None, cupy=None)
import rapids_slink
model = rapids_slink.load(sys.argv[1])
print(type(model.labels_), model.cut(3).tolist(), model.children_.shape)
"""
    assert python(code, path) == f"{pd.Series} [0, 0, 0, 1, 1, 2] (5, 2)\n"


@pytest.mark.gpu
def test_kinds_of_the_gpu(path):
    import cudf
    import cupy

    named = FRAME.set_axis(INDEXES["times"])
    for X, labels in ((cudf.DataFrame(named), cudf.Series), (cupy.asarray(FRAME), cupy.ndarray)):
        model = fit(X, 3)
        model.save(path)
        for device in ("auto", "cuda"):
            found = load(path, device=device)
            assert_same(found, model)
            assert kinds(found) == kinds(model)
            assert kinds(found)[:3] == [labels, cudf.DataFrame, cudf.DataFrame]
        found = load(path, device="cpu")
        assert kinds(found)[1:3] == [pd.DataFrame, pd.DataFrame]
        assert found.cut(2).tolist() == on_host(model.cut(2)).tolist()
    fit(FRAME, 3).save(path)
    assert isinstance(load(path).labels_, pd.Series)
    assert isinstance(load(path, device="cuda").labels_, cudf.Series)


def kinds(model):
    answers = (model.labels_, model.linkage_, model.mst_, model.cut(2), model.cut([2, 3]), model.children_)
    return [type(answer) for answer in answers]


def test_frames_of_pandas_are_what_the_process_calls_pandas(cudf_pandas, monkeypatch, path):
    """Proxies come back as proxies under cudf.pandas and as pandas' elsewhere, and the other way round."""
    Proxy = cudf_pandas.as_proxy_object
    plain, array = fit(FRAME, 3, device="cpu"), fit(FRAME.to_numpy(), 3, device="cpu")
    edges = pd.DataFrame({"src": list("abc"), "dst": list("bca"), "weight": [1.0, 2.0, 3.0]})
    proxied, graph = fit(Proxy(FRAME), 3, device="cpu"), fit_graph(Proxy(edges), device="cpu")
    for model in (plain, proxied, graph):
        model.save(path)
        for device in ("auto", "cpu"):
            found = load(path, device=device)
            assert kinds(found) == [Proxy] * 6
            assert_same(found, model)
    assert kinds(saved(array, path)) == kinds(array)
    proxied.save(path)
    cudf_pandas.LOADED = False  # imported, and not installed
    assert kinds(load(path)) == kinds(plain)
    monkeypatch.delitem(sys.modules, "cudf.pandas")
    assert kinds(load(path)) == kinds(plain)
    assert load(path).labels_.equals(plain.labels_)


@pytest.mark.gpu
def test_under_cudf_pandas(path):
    """Whose proxies stand for the frames: save, load, pickle and draw."""
    code = """
import pickle, sys
import cudf.pandas
import pandas as pd
import rapids_slink
from rapids_slink.points.output import OutputKind, on_host
df = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.2]}, index=list("abcd"))
for fitted_on in ("cpu", "cuda"):
    model = rapids_slink.fit(df, 2, device=fitted_on)
    model.save(sys.argv[1])
    for device in ("auto", "cpu", "cuda"):
        same = rapids_slink.load(sys.argv[1], device=device)
        answers = same.labels_, same.linkage_, same.mst_, same.cut(2), same.cut([2, 3])
        assert same._output.gpu == ("cuda" in (device, fitted_on) and device != "cpu"), (fitted_on, device)
        assert all(map(cudf.pandas.is_proxy_object, answers)), (fitted_on, device, list(map(type, answers)))
        assert isinstance(same.labels_, pd.Series) and isinstance(same.linkage_, pd.DataFrame)
        assert df.assign(cluster=same.labels_)["cluster"].tolist() == [0, 0, 1, 1]
other = pickle.loads(pickle.dumps(model))
assert on_host(other.labels_).tolist() == on_host(other.cut(2)).tolist() == [0, 0, 1, 1]
assert "4 rows in 2 clusters" in model._repr_html_()
assert model.plot_heights().lines[0].get_xdata().tolist() == [2, 3, 4]
model.plot_clusters(df)
"""
    script = path.with_suffix(".py")
    script.write_text(code)
    run("-m", "cudf.pandas", script, path)
    assert type(load(path).labels_) is type(load(path).cut(2)) is pd.Series


ERROR = rf" is damaged, or no hierarchy that rapids_slink {re.escape(__version__)} reads: "


def test_any_byte_may_be_damaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    model = fit(FRAME, 2, device="cpu")
    model.save(folder / "good")
    good = (folder / "good").read_bytes()

    @given(st.integers(0, len(good) - 1), st.integers(1, 255))
    def damage(place, change):
        (folder / "bad").write_bytes(good[:place] + bytes([good[place] ^ change]) + good[place + 1 :])
        try:
            found = load(folder / "bad")
        except ValueError:
            with pytest.raises(ValueError, match=f"^{re.escape(str(folder))}/bad{ERROR}"):  # the file is named
                load(folder / "bad")
        else:  # a byte that says nothing: a time stamp, padding
            assert_same(found, model)

    @given(st.integers(0, len(good) - 1))
    def cut_short(length):
        (folder / "bad").write_bytes(good[:length])
        with pytest.raises(ValueError, match=ERROR):
            load(folder / "bad")

    damage()
    cut_short()


def rewritten(path, change):
    """The file with its model.json changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(parts["model.json"])
    change(content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, "model.json": json.dumps(content)}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "somebody's"}, "its format is not 'rapids_slink hierarchy'"),
        ({"version": 1, "written_by": "0.1.0"}, rf"rapids_slink 0\.1\.0 wrote version 1 of the format, not {VERSION}"),
        ({"version": 2, "written_by": "0.2.0"}, rf"rapids_slink 0\.2\.0 wrote version 2 of the format, not {VERSION}"),
        ({"version": 9, "written_by": "9.9"}, rf"rapids_slink 9\.9 wrote version 9 of the format, not {VERSION}"),
        ({"class": "Popen"}, "'Popen'"),
        ({"attributes": {}}, "has no attribute 'n_leaves_'"),
    ],
)
def test_foreign_contents(change, message, path):
    fit(FRAME, 2, device="cpu").save(path)
    rewritten(path, lambda content: content.update(change))
    with pytest.raises(ValueError, match=f"{ERROR}.*{message}"):
        load(path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("n_leaves_", 5, "6 labels, 5 merges, 5 edges, but 5 leaves"),
        ("n_clusters_", 2.5, "n_clusters_ or the kind of output is not valid"),
        ("linkage_", lambda z: z[["left"]], "linkage must be a DataFrame with columns left, right, height, size"),
        ("linkage_", lambda z: z.assign(left=[0, 1, 99, 3, 4]), "'left' of the linkage must hold cluster ids from 0"),
        ("linkage_", lambda z: z.assign(left=[-1, 1, 2, 3, 4]), "'left' of the linkage must hold cluster ids from 0"),
        ("linkage_", lambda z: z[::-1], "row 0 of the linkage merges a cluster that no earlier row has made"),
        ("linkage_", lambda z: z.assign(left=z["right"].iloc[0], right=range(5)), "merges some cluster twice"),
        ("linkage_", lambda z: z.assign(height=z["height"].to_numpy()[::-1]), "'height' of the linkage must not fall"),
        ("linkage_", lambda z: z.assign(size=7), "'size' of the linkage must hold how many leaves each cluster has"),
        ("mst_", lambda t: t[["src", "dst"]], "tree must be a DataFrame with columns src, dst, weight"),
    ],
)
def test_what_is_no_dendrogram(name, change, message, path):
    model = fit(FRAME, 2, device="cpu")
    setattr(model, name, change(getattr(model, name)) if callable(change) else change)
    model.save(path)
    with pytest.raises(ValueError, match=f"{ERROR}.*{message}"):
        load(path)


VALUE = {"kind": "value"}


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("cut", {"value": "text"}, "SingleLinkage has no attribute 'cut' for a file to hold"),
        ("__class__", {"value": "text"}, "SingleLinkage has no attribute '__class__'"),
        ("_layout", {"value": "text"}, "SingleLinkage has no attribute '_layout'"),
        ("_", {"value": "text"}, "SingleLinkage has no attribute '_'"),
        ("store_everything", {"value": 5}, "SingleLinkage has no attribute 'store_everything'"),
        ("n_leaves_", {"value": "6"}, "n_leaves_ must be Real, got str"),
        ("n_clusters_", {"value": "<script>"}, "n_clusters_ must be Real, got str"),
        ("n_clusters", {"value": [2]}, r"n_clusters must be numbers.Real \| str \| None, got tuple"),
        ("progress", {"value": "yes"}, "progress must be True, False or 'auto', got 'yes'"),
        ("labels_", {"value": 1}, r"labels_ must be pandas.*Series \| numpy.ndarray, got int"),
        ("linkage_", {"value": [1]}, "linkage_ must be DataFrame, got tuple"),
        ("report_", {"value": "text"}, "report_ must be Report, got str"),
        ("_index", {"value": "text"}, r"_index must be pandas.*Index \| None, got str"),
        ("_output", {"value": None}, "_output must be OutputKind, got NoneType"),
        ("_output", {"kind": "output", "value": [True, False, ["polars"]]}, "n_clusters_ or the kind of output is not"),
        ("device", {"value": 3}, "device must be str, got int"),
        ("device", {"value": "cuda; rm"}, "device must be one of 'auto', 'cpu', 'cuda', got 'cuda; rm'"),
        ("metric", {"value": "guess"}, "metric must be one of .*, got 'guess'"),
        ("memory_limit", {"value": "much"}, "memory_limit must be a number of bytes or text"),
        ("missing", {"value": "guess"}, "missing must be None or one of"),
        ("min_samples", {"value": 0}, "min_samples must be at least 1, got 0"),
    ],
)
def test_a_file_sets_what_the_class_declares(name, spec, message, path):
    fit(FRAME, 2, device="cpu").save(path)
    rewritten(path, lambda content: content["attributes"].update({name: VALUE | spec}))
    with pytest.raises(ValueError, match=f"{ERROR}{message}"):
        load(path)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [({"device": "tpu"}, "device must be one of"), ({"store_centers": "mode"}, "store_centers must be one of")],
)
def test_what_no_file_may_set_is_not_saved(parameter, message, path):
    model = HDBSCAN(2, device="cpu").fit(FRAME).set_params(**parameter)
    with pytest.raises(ValueError, match=message):
        model.save(path)
    model.set_params(device="cpu", store_centers=None).note = "mine"
    with pytest.raises(TypeError, match="HDBSCAN has no attribute 'note' for a file to hold"):
        model.save(path)
    assert not path.exists()


def change_ids(name, *columns):
    """The model's frame with other numbers in these columns."""

    def change(model):
        frame = getattr(model, name)
        setattr(model, name, frame.assign(**{column: frame[column].to_numpy() + 10**9 for column in columns}))

    return change


def shorten(name):
    return lambda model: setattr(model, name, getattr(model, name)[:-1])


ROWS = "has 5 rows, but there are 6 leaves"
IDS = "columns 'src' and 'dst' of the tree must hold row numbers from 0 to 5"
CONDENSED = "the condensed tree must hold clusters, each below its parent, and 6 rows, in order"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_ids("mst_", "src"), IDS),
        (change_ids("mst_", "dst"), IDS),
        (change_ids("_condensed_", "parent"), CONDENSED),
        (change_ids("_condensed_", "child"), CONDENSED),
        (lambda m: setattr(m, "_condensed_", m._condensed_.replace({"parent": {6: 7}})), CONDENSED),
        (shorten("_condensed_"), CONDENSED),
        (shorten("_points_"), f"_points_ {ROWS}"),
        (shorten("_core_"), f"_core_ {ROWS}"),
        (lambda m: setattr(m, "_drawn_", m._points_[:-1]), f"_drawn_ {ROWS}"),
        (lambda m: setattr(m, "_drawn_", m._points_[:, 0]), "Expected 2D array, got 1D array instead"),
        (shorten("outlier_scores_"), f"outlier_scores_ {ROWS}"),
        (lambda m: m._points_.fill(np.nan), "contains values that are not finite"),
        (lambda m: setattr(m, "labels_", m.labels_ + 10**6), "labels_ must hold integers from -1 to 1"),
        (lambda m: setattr(m, "labels_", m.labels_ - 10**6), "labels_ must hold integers from -1 to 1"),
        (lambda m: setattr(m, "labels_", m.labels_ / 2), "labels_ must hold integers from -1 to 1"),
    ],
)
def test_row_numbers_are_those_of_rows(change, message, path):
    """Compiled code looks nothing up twice: with other numbers, predictions and `append` read what is not theirs."""
    model = HDBSCAN(2, min_samples=1, prediction_data=True, device="cpu").fit(FRAME.to_numpy())
    change(model)
    model.save(path)
    with pytest.raises(ValueError, match=f"{ERROR}.*{message}"):
        load(path)


def test_sizes_are_checked_before_anything_is_unpacked(path, set_constants):
    """300 KB of blanks would be 300 MB, and a table of a few bytes may have any number of rows."""
    model = fit(FRAME, 2, device="cpu")
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def load_with(name, data):
        set_constants(storage, MAX_UNPACKED=2**20)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for part, content in {**parts, name: data}.items():
                archive.writestr(part, content)
        return load(path)

    assert_same(load_with("model.json", parts["model.json"]), model)
    for name in parts:
        with pytest.raises(ValueError, match=rf"{ERROR}{name} of \d+ bytes unpacks to 2\.\d MiB"):
            load_with(name, parts[name] + b" " * 2**21)
    table = io.BytesIO()
    pd.DataFrame({"0": np.zeros(10**6, np.int32)}).to_parquet(table)
    with pytest.raises(ValueError, match=f"{ERROR}labels_.parquet has 1000000 rows, too many for so small a file"):
        load_with("labels_.parquet", table.getvalue())
    assert_same(load_with("model.json", parts["model.json"]), model)
    table = io.BytesIO()
    pd.DataFrame({"0": np.zeros(20_000, np.int32)}).to_parquet(table)
    parts["labels_.parquet"] = table.getvalue()
    size = len(parts["model.json"]) * storage.JSON_BYTES + sum(map(len, parts.values()))
    for limit in (size - 1, size):  # of the parts, then of the tables in memory
        text = f"memory_limit={limit} is too small for {path}: needs at least"
        with pytest.raises(DeviceMemoryError, match=text), run_scope(CPU, limit):
            load_with("labels_.parquet", table.getvalue())


@pytest.mark.parametrize("content", [b"", b"PK", b"a,b\n1,2\n", bytes(1000)])
def test_files_of_others(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=ERROR + "File is not a zip file"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    with pytest.raises(ValueError, match=ERROR + "\"There is no item named 'model.json' in the archive\""):
        load(path)

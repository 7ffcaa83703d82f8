"""Saving and loading: every bit and every name comes back; damaged, foreign and newer files get a clear error."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapids_slink import SingleLinkage, fit, fit_graph, load
from rapids_slink.hierarchy.storage import FORMAT
from rapids_slink.points.output import on_host
from rapids_slink.report import Report
from rapids_slink.runtime.device import DeviceUnavailableError, gpu_is_usable

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROOT = Path(__file__).parent.parent
FRAME = pd.DataFrame({"x": [0.0, 0.1, 0.3, 5.0, 5.4, 9.0], "y": [0.0, 0.0, 0.0, 5.0, 5.0, 0.0]})


def assert_same(found, expected):
    """The same attributes to the last bit, on the host."""
    assert type(found) is type(expected)
    assert vars(found).keys() == vars(expected).keys()
    for name, value in vars(expected).items():
        other, value = on_host(vars(found)[name]), on_host(value)
        assert type(other) is type(value), name
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(other, value, check_exact=True)
            for column in value.select_dtypes("number").columns:
                assert other[column].to_numpy().tobytes() == value[column].to_numpy().tobytes()
        elif isinstance(value, pd.Series):
            pd.testing.assert_series_equal(other, value, check_exact=True)
        elif isinstance(value, pd.Index):
            pd.testing.assert_index_equal(other, value, exact=True)
        elif isinstance(value, np.ndarray):
            assert other.dtype == value.dtype
            assert other.tolist() == value.tolist()
        else:
            assert other == value, name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.slink"


def saved(model, path):
    model.save(path)
    return load(path)


@pytest.mark.parametrize(
    "X",
    [FRAME, FRAME.to_numpy(), FRAME.to_numpy()[:1], FRAME.set_axis([3, 7], axis=1), FRAME[["x"]].iloc[:1]],
    ids=["frame", "array", "one row", "names that are no strings", "frame of one row"],
)
def test_all_comes_back(X, device, path):
    model = fit(X, 1, n_neighbors=2, device=device)
    found = saved(model, path)
    assert_same(found, model)
    assert isinstance(found.report_, Report)
    assert type(found.cut(1)) is type(model.cut(1))
    assert found.to_scipy().tobytes() == model.to_scipy().tobytes()
    assert found._repr_html_() == model._repr_html_()
    assert found.fit(X).labels_.tolist() == model.labels_.tolist()


def test_a_graphs_hierarchy_comes_back(device, path):
    edges = pd.DataFrame({"src": [0, 1, 3], "dst": [1, 2, 4], "weight": [-0.0, -1.5, 0.0]})
    model = fit_graph(edges, n_nodes=6, device=device)
    found = saved(model, path)
    assert_same(found, model)
    assert found.cut(n_clusters=4).tolist() == model.cut(n_clusters=4).tolist()


@pytest.mark.parametrize("ids", [list("zyxw"), [1, "a", None, (2.5, "b")], pd.date_range("2020", periods=4)])
def test_frames_of_any_columns_come_back(ids, path):
    model = fit_graph(pd.DataFrame({"src": [0, 1], "dst": [1, 2], "weight": [1, 2]}), n_nodes=4, device="cpu")
    ids = pd.Series(ids)
    model.mst_ = model.mst_.assign(src=ids[:2], dst=ids[2:].reset_index(drop=True))
    assert_same(saved(model, path), model)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_clusters": None, "distance_threshold": np.inf},
        {"n_clusters": None, "distance_threshold": 0.1 + 0.2},
        {"n_clusters": np.int64(3)},
    ],
)
def test_parameters_come_back(parameters, path):
    found = saved(SingleLinkage(**parameters, device="cpu").fit(FRAME), path)
    assert found.get_params() == {**SingleLinkage(device="cpu").get_params(), **parameters}


TIMES = pd.date_range("2024-03-30", periods=6, freq="6h", tz="Europe/Berlin", name="when")
INDEXES = {
    "range": pd.RangeIndex(10, 22, 2, name="row"),
    "integers": pd.Index([5, 3, 3, -1, 2**62, 0], name=("a", 1)),
    "unsigned": pd.Index(np.array([2**64 - 1, 0, 1, 2, 3, 4], np.uint64)),
    "small integers": pd.Index(np.arange(6, dtype=np.int8)),
    "floats": pd.Index([0.1, np.nan, -0.0, np.inf, 1e-300, 2.0]),
    "float32": pd.Index(np.arange(6, dtype=np.float32)),
    "booleans": pd.Index([True, False, True, True, False, False]),
    "strings": pd.Index([*list("abcde"), "ü\x00🦆"]),
    "strings as objects": pd.Index(list("abcdef"), dtype=object),
    "strings with nulls": pd.Index(["a", None, "c", "d", "e", "f"]),
    "objects": pd.Index([1, "1", 1.5, None, ("a", 2), float("inf")], dtype=object, tupleize_cols=False),
    "integers as objects": pd.Index([1, None, 2, 3, 4, 2**70], dtype=object),
    "times": TIMES,
    "times without frequency": pd.DatetimeIndex(["2020-01-01 12:00:00.123456789", None, "1970-01-01"] * 2),
    "times in seconds": pd.date_range("1066", periods=6, unit="s"),
    "time spans": pd.timedelta_range("1 h", periods=6, freq="90min"),
    "periods": pd.period_range("2020-01", periods=6, freq="M"),
    "intervals": pd.interval_range(0.0, 3.0, 6, closed="left"),
    "categories": pd.CategoricalIndex(list("aabbca"), categories=list("cbax"), ordered=True),
    "nullable": pd.Index([1, None, 3, 4, 5, 6], dtype="Int16"),
    "levels": pd.MultiIndex.from_arrays([list("aabbcc"), TIMES.tolist(), list(range(6))], names=["x", None, 3]),
    "levels of objects": pd.MultiIndex.from_arrays([[1, "a", 2, "b", 3, "c"], [1.5] * 6]),
}


@pytest.mark.parametrize("name", INDEXES)
def test_any_index_comes_back(name, path):
    index = INDEXES[name]
    model = fit(FRAME.set_axis(index), 3, device="cpu")
    found = saved(model, path)
    assert_same(found, model)
    assert [type(a) for a in found.labels_.index] == [type(a) for a in index]
    assert found.labels_.index.names == index.names
    pd.testing.assert_index_equal(found.cut(2).index, index, exact=True)
    with zipfile.ZipFile(path) as archive:  # one copy serves the labels and the later cuts
        assert len([part for part in archive.namelist() if part.startswith("index.")]) <= 1


@given(
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.tuples(st.text(), st.integers())),
        min_size=1,
        max_size=6,
    )
)
def test_any_plain_labels_come_back(tmp_path_factory, labels):
    index = pd.Index(labels, dtype=object, tupleize_cols=False)
    path = tmp_path_factory.getbasetemp() / "any.slink"
    found = saved(fit(FRAME.iloc[: len(labels)].set_axis(index), 1, device="cpu"), path).labels_.index
    assert list(map(repr, found)) == list(map(repr, index))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (pd.Index([object() for _ in range(6)]), "the index cannot be saved: it holds <object .*>, of type object"),
        (pd.Index(np.arange(6) * 1j), "the index, of complex128, cannot be saved"),
        (pd.RangeIndex(6, name=frozenset()), r"a name of the index cannot be saved: it holds frozenset\(\)"),
    ],
)
def test_what_cannot_be_kept_is_refused(index, message, path):
    model = fit(FRAME.set_axis(index), 2, device="cpu")
    path.write_text("old")
    with pytest.raises(TypeError, match=message):
        model.save(path)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.slink: no such folder: .*nowhere$"):
        fit(FRAME, 2, device="cpu").save(tmp_path / "nowhere" / "model.slink")


def test_only_our_classes_are_saved(path):
    class Mine(SingleLinkage):
        pass

    with pytest.raises(TypeError, match="only GraphHierarchy, HDBSCAN, SingleLinkage can be saved, got Mine"):
        Mine(device="cpu").fit(FRAME).save(path)


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = fit(FRAME, 2, device="cpu")
    model.save("plain")
    model.save("plain")  # over itself
    assert os.listdir() == ["plain"]
    assert_same(load(Path("plain")), model)
    with pytest.raises(FileNotFoundError, match="nothing"):
        load("nothing")
    with pytest.raises(OSError, match="nowhere"):
        model.save("nowhere/file")


def test_unfitted_parts_of_a_model_stay_unfitted(path):
    model = fit(FRAME.to_numpy(), 2, device="cpu")
    assert not hasattr(saved(model, path), "feature_names_in_")


def rewritten(path, change):
    """The file with its model.json changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(parts["model.json"])
    change(content)
    parts["model.json"] = json.dumps(content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_nothing_in_a_file_is_pickled(path):
    fit(FRAME.set_axis(INDEXES["objects"]), 2, device="cpu").save(path)
    with zipfile.ZipFile(path) as archive:
        assert {Path(name).suffix for name in archive.namelist()} == {".json", ".parquet"}
        assert not any(b"\x80\x04" in archive.read(n)[:4] for n in archive.namelist())
        assert json.loads(archive.read("model.json"))["format"] == FORMAT


def test_without_pyarrow(monkeypatch, path):
    model = fit(FRAME, 2, device="cpu")
    model.save(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: model.save(path), lambda: load(path)):
        with pytest.raises(
            ImportError, match=r"saving and loading need pyarrow: pip install 'rapids_slink\[parquet\]'"
        ):
            call()


# ------------------------------------------------------------------------------------------------- devices


def test_devices(path):
    fit(FRAME, 2, device="cpu").save(path)
    assert isinstance(load(path, device="cpu").labels_, pd.Series)
    with pytest.raises(ValueError, match="device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"):
        load(path, device="tpu")
    if not gpu_is_usable():
        with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU"):
            load(path, device="cuda")


def test_a_file_from_a_gpu_opens_without_one(path):
    """As pandas' and NumPy's, in a process that has no GPU package."""
    if gpu_is_usable():
        import cudf

        model = fit(cudf.DataFrame(FRAME), 2)
    else:
        model = fit(FRAME, 2, device="cpu")
    model.save(path)
    rewritten(path, lambda content: content["attributes"].update(_caller={"caller": [True, True]}))
    code = """
import sys
for name in ("cudf", "cupy"):
    sys.modules[name] = None
import pandas as pd, rapids_slink
model = rapids_slink.load(sys.argv[1])
assert type(model.labels_) is pd.Series and type(model.linkage_) is pd.DataFrame
print(model.labels_.tolist(), model.cut(3).tolist(), model.children_.shape)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[0, 0, 0, 1, 1, 1] [0, 0, 0, 1, 1, 2] (5, 2)\n", done.stderr


@pytest.mark.gpu
def test_kinds_of_the_gpu(path):
    import cudf
    import cupy

    for X, labels in (
        (cudf.DataFrame(FRAME.set_axis(list("abcdef"))), cudf.Series),
        (cupy.asarray(FRAME), cupy.ndarray),
    ):
        model = fit(X, 3)
        model.save(path)
        for device in ("auto", "cuda"):
            found = load(path, device=device)
            assert_same(found, model)
            assert type(found.labels_) is type(found.cut(2)) is labels
            assert isinstance(found.linkage_, cudf.DataFrame)
            assert isinstance(found.mst_, cudf.DataFrame)
            assert isinstance(found.children_, cupy.ndarray)
        found = load(path, device="cpu")
        assert type(found.children_) is np.ndarray
        assert isinstance(found.linkage_, pd.DataFrame)
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
    plain = fit(FRAME, 3, device="cpu")
    proxied = fit(Proxy(FRAME), 3, device="cpu")
    edges = pd.DataFrame({"src": list("abc"), "dst": list("bca"), "weight": [1.0, 2.0, 3.0]})
    graph = fit_graph(Proxy(edges), device="cpu")
    array = fit(FRAME.to_numpy(), 3, device="cpu")
    assert kinds(proxied) == kinds(graph) == [Proxy] * 6
    for model in (plain, proxied):
        model.save(path)
        for device in ("auto", "cpu"):
            found = load(path, device=device)
            assert kinds(found) == kinds(proxied)
            assert found.cut(2).inner.equals(plain.cut(2))
            assert found.cut(2).inner.index.equals(FRAME.index)
            assert_same(found, model)
            assert_same(saved(found, path), model)
            model.save(path)
    assert_same(saved(graph, path), graph)
    assert kinds(load(path)) == [Proxy] * 6
    assert type(load(path).component_) is Proxy
    assert kinds(saved(array, path)) == kinds(array)
    proxied.save(path)
    cudf_pandas.LOADED = False  # imported, and not installed
    assert kinds(load(path)) == kinds(plain)
    monkeypatch.delitem(sys.modules, "cudf.pandas")
    assert kinds(load(path)) == kinds(plain)
    assert load(path).labels_.equals(plain.labels_)


def test_files_that_say_nothing_of_proxies(path):
    """As those did that were written first."""
    model = fit(FRAME, 3, device="cpu")
    model.save(path)
    rewritten(path, lambda content: content["attributes"].update(_caller={"caller": [True, False]}))
    assert_same(load(path), model)


@pytest.mark.gpu
def test_under_cudf_pandas(path):
    """Whose proxies stand for the frames: save, load, pickle, draw and hand on."""
    code = """
import pickle, sys
import cudf, cudf.pandas
import matplotlib
matplotlib.use("Agg")
import pandas as pd
import rapids_slink
from rapids_slink.points.output import on_host
is_proxy = cudf.pandas.is_proxy_object
df = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.2]}, index=list("abcd"))
for on in ("cpu", "cuda"):
    model = rapids_slink.fit(df, 2, device=on)
    model.save(sys.argv[1])
    for device in ("auto", "cpu", "cuda"):
        same = rapids_slink.load(sys.argv[1], device=device)
        answers = same.labels_, same.linkage_, same.mst_, same.cut(2), same.cut([2, 3])
        assert same._output.gpu == (device == "cuda" or (device == "auto" and on == "cuda")), (on, device)
        assert all(is_proxy(answer) for answer in answers), (on, device, list(map(type, answers)))
        assert isinstance(same.labels_, pd.Series) and isinstance(same.linkage_, pd.DataFrame), (on, device)
        assert df.assign(cluster=same.labels_)["cluster"].tolist() == [0, 0, 1, 1]
        assert same.cut(3).index.tolist() == list("abcd")
own = rapids_slink.fit(cudf.DataFrame({"x": [0.0, 0.1, 5.0, 5.2]}), 2)
own.save(sys.argv[1])
assert type(rapids_slink.load(sys.argv[1]).labels_) is cudf.Series
model.save(sys.argv[1])
for other in (rapids_slink.load(sys.argv[1]), pickle.loads(pickle.dumps(model))):
    assert on_host(other.labels_).index.tolist() == list("abcd")
    assert on_host(other.labels_).tolist() == on_host(other.cut(2)).tolist() == [0, 0, 1, 1]
    assert other.to_scipy().tobytes() == model.to_scipy().tobytes()
assert "4 rows in 2 clusters" in model._repr_html_()
assert model.plot_heights().lines[0].get_xdata().tolist() == [2, 3, 4]
model.plot_clusters(df)
"""
    script = path.with_suffix(".py")
    script.write_text(code)
    run = [sys.executable, "-m", "cudf.pandas", str(script), str(path)]
    path_of_modules = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(run, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path_of_modules})
    assert done.returncode == 0, done.stderr
    found = load(path)
    assert type(found.labels_) is type(found.cut(2)) is pd.Series
    assert type(found.linkage_) is type(found.mst_) is pd.DataFrame
    assert found.cut(2).index.tolist() == list("abcd")

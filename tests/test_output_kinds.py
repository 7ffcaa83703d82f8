"""Answers in the kind that cuML's global output type names, and as proxies of ``cudf.pandas`` where these went in."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from calls import points
from spanning_trees import bits

import rapids_slink
from rapids_slink import SingleLinkage, cut, fit, fit_graph
from rapids_slink.runtime.device import to_host

ROOT = Path(__file__).parent.parent
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
    run = [sys.executable, "-W", "ignore", "-m", "cudf.pandas", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.stdout == "fine\n", done.stderr

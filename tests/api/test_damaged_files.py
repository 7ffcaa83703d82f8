"""Files that are damaged, foreign or of another version: a clear error, whichever byte is wrong."""

import io
import json
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import FRAME, assert_same

from rapids_slink import HDBSCAN, DeviceMemoryError, SingleLinkage, __version__, fit, load
from rapids_slink.hierarchy import storage
from rapids_slink.hierarchy.storage import VERSION
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.memory import run_scope

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ERROR = rf" is damaged, or no hierarchy that rapids_slink {re.escape(__version__)} reads: "


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.slink"


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


def as_version_2(content):
    """What version 2 of the format wrote in place of this content."""
    attributes = content["attributes"]
    content["version"] = 2
    attributes["_output"]["value"] = [True, False, False]
    for name, older in (("_condensed_", "condensed_tree_"), ("_missing_values_", "_missing_value_")):
        if name in attributes:
            attributes[older] = attributes.pop(name)
    if "_missing_value_" in attributes:
        (value,) = attributes["_missing_value_"]["value"] or [None]
        attributes["_missing_value_"]["value"] = value


@pytest.mark.parametrize(
    "model",
    [
        SingleLinkage(2, device="cpu"),
        SingleLinkage(2, prediction_data=True, device="cpu"),
        SingleLinkage(2, missing="pairwise", missing_value=7.0, prediction_data=True, device="cpu"),
        HDBSCAN(2, prediction_data=True, device="cpu"),
    ],
)
def test_files_of_version_2(model, path):
    model.fit(FRAME.assign(z=[1.0, 1, 1, 2, 2, 2])).save(path)
    rewritten(path, as_version_2)
    assert_same(load(path), model)


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

"""Files that are damaged, foreign or newer: a clear error, whichever byte is wrong."""

import json
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_storage import FRAME, assert_same, rewritten

import rapids_slink
from rapids_slink import fit, load
from rapids_slink.hierarchy.storage import FORMAT, VERSION

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


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
            with pytest.raises(ValueError, match=f"^{re.escape(str(folder))}"):  # the file is named
                load(folder / "bad")
        else:  # a byte that says nothing: a time stamp, padding
            assert_same(found, model)

    @given(st.integers(0, len(good) - 1))
    def cut_short(length):
        (folder / "bad").write_bytes(good[:length])
        with pytest.raises(ValueError, match=r"is damaged or cut short|is not a hierarchy that rapids_slink saved"):
            load(folder / "bad")

    damage()
    cut_short()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "somebody's"}, "is an archive, but not a hierarchy that rapids_slink saved"),
        (
            {"version": VERSION + 1, "written_by": "9.9"},
            rf"has version {VERSION + 1} of the format, written by rapids_slink 9\.9: this one, "
            rf"{rapids_slink.__version__}, reads versions up to {VERSION}",
        ),
        ({"class": "Popen"}, "is damaged or cut short: 'Popen'"),
        ({"parameters": {"shell": True}}, "unexpected keyword argument 'shell'"),
        ({"attributes": {}}, "has no attribute '_output'|has no attribute 'n_leaves_'"),
    ],
)
def test_foreign_contents(change, message, path):
    fit(FRAME, 2, device="cpu").save(path)
    rewritten(path, lambda content: content.update(change))
    with pytest.raises(ValueError, match=message):
        load(path)


def frame(part, *columns):
    return {"frame": f"{part}.parquet", "columns": columns, "others": {}}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_leaves_", 5, "6 labels, 5 merges, 5 edges, but 5 leaves"),
        ("n_leaves_", "6", "but 6 leaves"),
        ("linkage_", frame("mst_", "src"), "linkage must be a DataFrame with columns left, right, height, size"),
        ("mst_", frame("linkage_"), "tree must be a DataFrame with columns src, dst, weight"),
        ("mst_", frame("../../etc/passwd"), "no item named"),
        ("n_clusters_", {"code": "import os"}, "no kind of value called 'code'"),
        ("n_clusters_", None, "an attribute is not what it should be"),
    ],
)
def test_parts_that_do_not_fit(name, value, message, path):
    fit(FRAME, 2, device="cpu").save(path)
    rewritten(path, lambda content: content["attributes"].update({name: value}))
    with pytest.raises(ValueError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z: z.assign(left=[0, 1, 99, 3, 4]), "column 'left' of the linkage must hold cluster ids from 0 to 9"),
        (lambda z: z.assign(left=[-1, 1, 2, 3, 4]), "column 'left' of the linkage must hold cluster ids from 0 to 9"),
        (lambda z: z[::-1], "row 0 of the linkage merges a cluster that no earlier row has made"),
        (lambda z: z.assign(left=z["right"].iloc[0], right=range(5)), "merges some cluster twice"),
        (lambda z: z.assign(height=z["height"].to_numpy()[::-1]), "'height' of the linkage must not fall"),
        (lambda z: z.assign(size=7), "column 'size' of the linkage must hold how many leaves each cluster has"),
    ],
)
def test_what_is_no_dendrogram(change, message, path):
    model = fit(FRAME, 2, device="cpu")
    model.linkage_ = change(model.linkage_)
    model.save(path)
    with pytest.raises(ValueError, match=message):
        load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"a,b\n1,2\n", bytes(1000)])
def test_files_of_others(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is not a hierarchy that rapids_slink saved|is damaged or cut short"):
        load(path)


def test_archives_of_others(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    with pytest.raises(ValueError, match="is an archive, but not a hierarchy that rapids_slink saved"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", json.dumps([FORMAT]))
    with pytest.raises(ValueError, match="is an archive, but not a hierarchy that rapids_slink saved"):
        load(path)

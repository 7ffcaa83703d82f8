"""Files that are damaged, foreign or of another version: a clear error, whichever byte is wrong."""

import json
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_storage import FRAME, assert_same

from rapids_slink import __version__, fit, load
from rapids_slink.hierarchy.storage import VERSION

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
        ("n_leaves_", "6", "but 6 leaves"),
        ("n_clusters_", "<script>", "n_clusters_ or the kind of output is not valid"),
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


@pytest.mark.parametrize("content", [b"", b"PK", b"a,b\n1,2\n", bytes(1000)])
def test_files_of_others(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=ERROR + "File is not a zip file"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    with pytest.raises(ValueError, match=ERROR + "\"There is no item named 'model.json' in the archive\""):
        load(path)

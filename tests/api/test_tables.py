"""What the command line reads: points at 0.1, 0.9 and 1.1, however a file holds them, are in the clusters 0, 1, 1."""

import bz2
import gzip
import io
import lzma
import shlex
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from rapids_slink import cli
from rapids_slink.tables import SAMPLE_LINES, read_table

XY = "x,y\n0.1,0\n0.9,0\n1.1,0\n"
ROWS = ["0", "1", "2"]
HAMMING = "--metric hamming"
MANY_NAMES = "a\twho\n" + "".join(f"{i % 7}\t{i}\n" for i in range(1500))
SEMICOLONS = "separator ';'; decimal comma\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line on a file of this content: what names the rows of its output, and its line on stderr."""
    monkeypatch.chdir(tmp_path)

    def call(content, arguments="", name="points.csv"):
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            asked = [name, "--device", "cpu", "--output", "labels.csv", "--labels-only"]
            status = cli.main([*asked, *shlex.split(arguments)])
        except SystemExit as stop:
            status = stop.code
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        if status:
            return None, said
        _, *rows = Path("labels.csv").read_text().splitlines()
        index, labels = zip(*(row.rsplit(",", 1) for row in rows), strict=True)
        assert labels == ("0", "1", "1")
        return list(index), said

    return call


@pytest.mark.parametrize(
    ("content", "arguments", "index", "said"),
    [
        (XY, "", ROWS, "3 rows of 2 columns: 'x', 'y'\n"),
        # separators
        ("x;y\n0,1;0,0\n0,9;0,0\n1,1;0,0\n", "--decimal ,", ROWS, f"'x', 'y'; {SEMICOLONS}"),
        ("x\ty\n0,1\t0\n0,9\t0\n1,1\t0\n", "--decimal ,", ROWS, "separator tab; decimal comma\n"),
        ("x|y\n0.1|0\n0.9|0\n1.1|0\n", "", ROWS, "separator '|'\n"),
        ("  x     y\n0.1   0\n 0.9\t0 \n1.1   0\n", "", ROWS, "separator blanks\n"),
        ("x y\n0,1 0\n0,9 0\n1,1 0\n", "--decimal ,", ROWS, "separator blanks; decimal comma\n"),
        ("New York\t.1\nRio\t.9\nLima\t1.1\n", "--exclude 0 --no-header", ROWS, "separator tab; no header\n"),
        ("x:y\n0.1:0\n0.9:0\n1.1:0\n", "--sep :", ROWS, "separator ':'\n"),
        ("x\ty\n.1\t0\n.9\t0\n1.1\t0\n", "--sep tab", ROWS, "separator tab\n"),
        # decimal signs
        ("x\n0,1\n0,9\n1,1\n", "--decimal ,", ROWS, "1 column: 'x'; decimal comma\n"),
        ("x\n0,1\n1,9\n2,9\n", "--sep ,", ROWS, "1 column: 'x'; index without a name\n"),
        ('"0,1"\n"0,9"\n"1,1"\n', "--decimal ,", ROWS, "1 column: '0'; decimal comma; no header\n"),
        ("x;y\n1,000;2\n1,800;2\n2,000;2\n", "--decimal ,", ROWS, SEMICOLONS),
        # headers
        ("0,1;0,0\n0,9;0,0\n1,1;0,0\n", "--decimal ,", ROWS, "'0', '1'; separator ';'; decimal comma; no header\n"),
        ("0.1,0\n0.9,0\n1.1,0\n", "", ROWS, "'0', '1'; no header\n"),
        ("0.1\n0.9\n1.1\n", "", ROWS, "1 column: '0'; no header\n"),
        ("petal length\n0.1\n0.9\n1.1\n", "", ROWS, "1 column: 'petal length'\n"),
        ("0,1\n0.1,0\n0.9,0\n1.1,0\n", "--header", ROWS, "2 columns: '0', '1'\n"),
        ("0\n8\n10\n", "--no-header", ROWS, "1 column: '0'; no header\n"),
        ("False,0\nTrue,0\nTrue,0\n", "", ROWS, "2 columns: '0', '1'; no header\n"),
        ('\n"x","y, z"\n\n.1,0\n.9,0\n1.1,0\n', "", ROWS, "2 columns: 'x', 'y, z'\n"),
        ('x,"y, z"\n.1,0\n.9,0\n1.1,0\n', """--columns '"y, z",x'""", ROWS, "2 columns: 'y, z', 'x'\n"),
        # the index
        (",x,y\n0,0.1,0\n1,0.9,0\n2,1.1,0\n", "", ROWS, "'x', 'y'; index without a name\n"),
        (",0,1\nNA,0.1,0\n007,0.9,0\n1e3,1.1,0\n", "", ["NA", "007", "1e3"], "'0', '1'; index without a name\n"),
        (",,x\na,1,.1\na,2,.9\nb,1,1.1\n", "", ["a,1", "a,2", "b,1"], "1 column: 'x'; index without a name\n"),
        ('"x" "y"\n"a" .1 0\n"b" .9 0\n"c" 1.1 0\n', "", list("abc"), "index without a name; separator blanks\n"),
        ('"";"x"\n"a";0,1\n"b";0,9\n"c";1,1\n', "--decimal ,", list("abc"), f"index without a name; {SEMICOLONS}"),
        (",k,x\n5,a,.1\n6,b,.9\n7,c,1.1\n", "--index-column k", list("abc"), "without 'Unnamed: 0' (no name)\n"),
        ("1,.1\n2,.9\n3,1.1\n", "--index-column 0", ["1", "2", "3"], "1 column: '1'; index '0'; no header\n"),
        ("0,8\n1,.9\n2,1.1\n", "--columns 0,1", ROWS, "2 columns: '0', '1'; no header\n"),
        # columns that are left out
        ("n,x,y\na,.1,0\nb,.9,0\nc,1.1,0\n", "--exclude n", ROWS, "'x', 'y'; without 'n' (--exclude)\n"),
        ("n,x,y\na,.1,0\nb,.9,0\nc,1.1,0\n", "--columns x", ROWS, "'x'; without 'n', 'y' (not in --columns)\n"),
        ("x;y;\n,1;0;\n,9;0;\n1,1;0;\n", "--decimal ,", ROWS, f"'x', 'y'; without 'Unnamed: 2' (empty); {SEMICOLONS}"),
        ("x,y\n.1,0,\n.9,0,\n1.1,0,\n", "", ROWS, "'x', 'y'; without 'Unnamed: 2' (empty)\n"),
    ],
)
def test_text(run, content, arguments, index, said):
    rows, line = run(content, arguments)
    assert rows == index
    assert line.startswith("points.csv: 3 rows of ")
    assert line.endswith(said)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("", "", "it is empty"),
        ("\n\n", "", "it is empty"),
        ("x,y\n", "", "it has a header and no rows"),
        ("0,1\n", "--header", "it has a header and no rows"),
        ("x,y\n1,2\n3,4,5\n", "", "line 3 has 3 cells, others have 2: correct it, or say --sep or --decimal"),
        ("x,y\n1,2\n3\n", "", "line 3 has 1 cell, others have 2"),
        ("x,y,z\n1,2\n3,4\n", "", "line 1 has 3 cells, others have 2"),
        ("x,y\n" + "1,2\n" * 30000 + "1,2,3\n", "", "Expected 2 fields in line 30002, saw 3"),
        # lines that end early, whose last cells pandas takes for empty ones
        ("x,y\n" + "1,2\n" * 150 + "3\n1,2\n", "--missing pairwise", "line 152 has 1 cell, others have 2: correct it"),
        ("\n\nx,y\n\n1,2\n3\n", "", "line 6 has 1 cell, others have 2"),
        ("x,y,n\n" + '1,2,"a\nb"\n' * 150 + "3,4\n", "--exclude n", "line 302 has 2 cells, others have 3"),
        ("x y z\n" + "\n1 2\t3\n" * 150 + " 1  2\n", "--missing pairwise", "line 302 has 2 cells, others have 3"),
        ("a\tb\tc\n" + "1\t2\tx\n" * 150 + "1\t\t\n1\t2\n", "--metric hamming", "line 153 has 2 cells, others have 3"),
        (("x,y\n" + "1,2\n" * 150 + "3\n").encode("utf-16"), "--missing pairwise", "line 152 has 1 cell"),
        (gzip.compress(b"1,2\n" * 150 + b"3\n", mtime=0), "--no-header --missing pairwise", "line 151 has 1 cell"),
        ("x" * 200_000, "", "its lines are long and have no separator: say --sep"),
        # separators and decimal signs
        ("12,5\n3\n", "", "say --sep or --decimal"),
        ("x\n1,5\n2,5\n", "", "line 1 has 1 cell, others have 2: correct it, or say --sep or --decimal"),
        ("x;y\n0,1;0,0\n0,9;0,0\n1,1;0,0\n", "", "column 'x' is not of numbers, as '0,1' in row 0"),
        ("x\ty\n0,1\t0\n0,9\t0\n1,1\t0\n", "", "or say how it is written (--decimal, --sep)"),
        ("x y\n0,1 0\n0,9 0\n1,1 0\n", "", "column 'x' is not of numbers, as '0,1' in row 0"),
        ("0,1;0,0\n0,9;0,0\n1,1;0,0\n", "", "the separator may be ',' or ';': say --sep"),
        ('"";"x"\n"a";0,1\n"b";0,9\n"c";1,1\n', "", "column 'x' is not of numbers, as '0,1' in row 0"),
        ("x;y;\n0,1;0;\n0,9;0;\n1,1;0;\n", "", "column 'x' is not of numbers, as '0,1' in row 0"),
        ("a;b;1,5\nc;d;2,5\n", "", "the separator may be ',' or ';': say --sep"),
        ("x;y\n1.5;2,5\n", "", "column 'y' is not of numbers, as '2,5' in row 0"),
        ("x;y\n1,234;5,678\n", "", "column 'x' is not of numbers, as '1,234' in row 0"),
        ('x,y\n"1,234","5"\n', "", "column 'x' is not of numbers, as '1,234' in row 0"),
        ("x;y\n0,5;1\nabc;2\n", "--decimal ,", "column 'x' is not of numbers, as 'abc' in row 1"),
        ("x y,z\n1,2\na,4\n", "", "leave it out (--exclude 'x y'), or say how it is written (--decimal, --sep)"),
        ("x,y\n1,2\n", "--sep ab", "--sep: 'ab' is not one character, tab or blanks"),
        # headers
        ("0,1,2\n0.5,1,2\n", "", "its first row, '0,1,2', may be a header: say --header or --no-header"),
        ("0\n1\n", "", "may be a header: say --header or --no-header"),
        ("n,2019,2020\na,1,2\nb,3,4\n", "", "may be a header"),
        ("a,1,2\nb,3,4\n", "", "may be a header"),
        ("?,2\n3,4\n", "", "may be a header"),
        ("New York\t.1\nRio\t.9\nLima\t1.1\n", "--exclude 0", "may be a header: say --header or --no-header"),
        (",5,7\n1,2,3\n", "", "may be a header"),
        # columns
        ("0,.1\n1,.9\n2,1.1\n", "", "its first column counts the rows: say --index-column 0, or"),
        ("x,y\n1,2\n", "--exclude x,y", "no column remains to be clustered of 'x', 'y'"),
        ("x,y\n1,2\n", "--exclude z", "unknown column 'z'; the table has 'x', 'y'"),
        ("x,y\n1,2\n", "--index-column z", "unknown column 'z'; the table has 'x', 'y'"),
        # columns that name the rows
        ("isolate\ta\nX1\t1\nX2\t1\nX3\t5\n", HAMMING, "'isolate' is called as names of rows are: say --index-column"),
        ("#Strain\ta\n1\t1\n1\t1\n", HAMMING, "or --exclude '#Strain', or --columns '*' to use every column"),
        ("a\tST\n1\t1\n1\t1\n", HAMMING, "column 'ST' is called as names of rows are"),
        ("FILE\ta\n1\t1\n1\t1\n", HAMMING, "column 'FILE' is called"),
        ("k\tsample id\ta\nq\t1\t1\n", f"{HAMMING} --index-column k", "column 'sample id' is called"),
        ("id,x\n5,1\n7,2\n", "", "column 'id' is called as names of rows are: say --index-column id, or"),
        ("a\tlane\n1\tX1\n1\tX2\n5\tX3\n", HAMMING, "column 'lane' differs in every row, as names of rows do: say"),
        (MANY_NAMES, HAMMING, "column 'who' differs in every row"),
        # encodings
        ("x,y\n1,2\n", "--encoding nonsense", "--encoding: unknown encoding: nonsense"),
        ("é,y\n1,2\n".encode("latin-1"), "", "say --encoding, such as latin-1"),
        (("x,y\n" + "1,2\n" * 30000 + "é,2").encode("latin-1"), "", "say --encoding, such as latin-1"),
        (XY.encode("utf-16-le"), "", "it holds null characters; say --encoding, such as latin-1 or utf-16-le"),
    ],
)
def test_what_is_refused(run, content, arguments, message):
    assert message in run(content, arguments)[1]


def test_what_may_be_a_locus(tmp_path):
    """A column with a value twice, also beyond the first thousand rows; of two rows any; and what is asked for."""
    path = tmp_path / "points.csv"
    same = MANY_NAMES.replace("\t1499\n", "\t3\n")
    every = {"columns": "*"}
    for content, asked, columns in (
        ("a,b\n1,1\n2,1\n", {}, ["a", "b"]),
        (same, {}, ["a", "who"]),
        (MANY_NAMES, every, ["a", "who"]),
        ("ST,b\n1,1\n2,1\n", every, ["ST", "b"]),
        ("k,ST,b\nx,1,1\ny,2,1\n", {**every, "index_column": "k"}, ["ST", "b"]),
        ("k,ST,b\nx,1,1\ny,2,1\n", {**every, "exclude": "k"}, ["ST", "b"]),
        ("ST,b\n1,1\n2,1\n", {"columns": "ST"}, ["ST"]),
        ("name\n1\n2\n3\n", {}, ["name"]),
    ):
        path.write_text(content)
        assert list(read_table(path, text=True, categories=True, **asked).points) == columns
    path.write_text("x,y\n1,1\n2,5\n3,6\n")
    for text in (False, True):
        assert list(read_table(path, text=text).points) == ["x", "y"]  # coordinates differ in every row


def test_empty_cells_at_the_end_are_no_lines_that_end_early(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n" + "1,2\n" * 150 + "3,\n\n4,\n")
    points = read_table(path).points
    assert (len(points), int(points["y"].isna().sum())) == (152, 2)


@pytest.mark.parametrize("sep", [",", "\t", " "])
def test_integers_beyond_float64_beside_empty_cells(tmp_path, sep):
    """They are themselves, not the nearest floats, and so in the output."""
    path, ids = tmp_path / "points.csv", [2**53 + 1, 2**53, -(2**53) - 1, 5]
    path.write_text(sep.join("ab") + "\n" + "".join(f"{value}{sep}1\n" for value in ids) + f'""{sep}1.5\n')
    points = read_table(path, text=True, columns="a,b").points
    assert points["a"].tolist()[:-1] == ids
    assert points["a"].isna().tolist() == [False] * 4 + [True]
    assert points["b"].tolist() == [1, 1, 1, 1, 1.5]


def test_missing_values_are_no_names(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("nan,NA\n3,4\n")
    assert read_table(path)[0].shape == (2, 2)


def test_first_lines_that_end_within_quotes(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,note\n" + '1.5,"a\nb"\n' * SAMPLE_LINES)
    assert read_table(path, exclude="note")[0]["x"].tolist() == [1.5] * SAMPLE_LINES


@pytest.mark.parametrize(
    ("encoding", "arguments", "said"),
    [("utf-8-sig", "", ""), ("utf-16", "", "; encoding utf-16"), ("cp1252", "--encoding cp1252", "; encoding cp1252")],
)
def test_encodings(run, encoding, arguments, said):
    line = run(XY.replace("x", "é").encode(encoding), arguments)[1]
    assert line.endswith(f"columns: 'é', 'y'{said}\n")


def zipped(content, names=("points.csv",)):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zipped])
@pytest.mark.parametrize("name", ["points", "points.csv.gz", "points.tab"])
def test_files_are_what_they_hold(run, pack, name):
    assert run(pack(XY.encode()), name=name)[0] == ROWS


def test_zstandard(run):
    zstandard = pytest.importorskip("zstandard")
    assert run(zstandard.compress(XY.encode()))[0] == ROWS


def test_damaged_archives_and_those_of_more_than_a_table(run):
    assert "it is an archive of 2 files, not of one table as text" in run(zipped(XY, ("a.csv", "b.csv")))[1]
    assert "cannot read points.csv" in run(gzip.compress(XY.encode(), mtime=0)[:-9])[1]


POINTS = pd.DataFrame({"x": [0.1, 0.9, 1.1], "y": 0.0})
SAVED = pd.DataFrame({"Unnamed: 0": [5, 6, 7], "x": [0.1, 0.9, 1.1]})  # what pandas read from its own CSV


@pytest.mark.parametrize(
    ("frame", "arguments", "written", "said"),
    [
        (POINTS.set_axis([0, 1], axis="columns"), "--columns 0,1", "row,label 0 1 2", "'0', '1'\n"),
        (POINTS.set_axis([5, 7, 8]).rename_axis("x"), "", "x,label 5 7 8", "'x', 'y'; index 'x'\n"),
        (POINTS.rename_axis("k"), "", "k,label 0 1 2", "'x', 'y'; index 'k'\n"),
        (POINTS.assign(k=["a", "b", "c"]), "--index-column k", "k,label a b c", "'x', 'y'; index 'k'\n"),
        (SAVED, "", "row,label 5 6 7", "'x'; index without a name\n"),
    ],
)
def test_parquet(run, frame, arguments, written, said):
    header, *index = written.split()
    rows, line = run(frame.to_parquet(), arguments)
    assert rows == index
    assert line.endswith(said)
    assert Path("labels.csv").read_text().startswith(f"{header}\n")


@pytest.mark.parametrize(
    ("frame", "arguments", "message"),
    [
        (POINTS.assign(n="a"), "", "column 'n' is not of numbers, as 'a' in row 0: leave it out (--exclude n)"),
        (POINTS, "--sep tab", "this is Parquet"),
    ],
)
def test_parquet_that_is_refused(run, frame, arguments, message):
    assert message in run(frame.to_parquet(), arguments)[1]

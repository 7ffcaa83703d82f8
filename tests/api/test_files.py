"""Near duplicates of Parquet files: equal to those of the array in blocks of any size, also after runs that ended."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from calls import Failing
from hard_cases import combinations, full

from rapids_slink import deduplicate, deduplicate_files, files, parquet
from rapids_slink.cli import main
from rapids_slink.forced import force
from rapids_slink.neighbors import pivots
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import resolve, to_host

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RULES = ("components", "ranked", "leaders")
MOST = {None: None, "components": 90, "ranked": 200, "leaders": 90}  # rows at once
SIZES = (0, 130, 131, 360)  # the first rows of three files, and the number of all
SCORE = np.random.default_rng(3).integers(0, 40, SIZES[-1])


def rows_of(seed=0, d=5):
    """Rows of a coarse grid, with many ties, copies and chains."""
    return np.random.default_rng(seed).integers(0, 3, (SIZES[-1], d)).astype(np.float32)


def lists(X, fixed=True):
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    return column if fixed else column.cast(pa.list_(column.type.value_type))


def write(folder, X, column=lists, sizes=SIZES, **how):
    """Write rows in three files with ids and scores; return the folder."""
    folder.mkdir(exist_ok=True)
    for i, (start, stop) in enumerate(pairwise(sizes)):
        ids, score = np.arange(start, stop), SCORE[start:stop]
        table = pa.table({"id": ids, "vector": column(X[start:stop]), "score": score, "text": ids.astype(str)})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=50, **how)
    return folder


def ids_in(folder):
    return pq.read_table(folder, columns=["id"])["id"].to_numpy().tolist()


def reasons_in(folder):
    """The rows that go, the row that each goes to, and their distances, numbered over all files."""
    table = pq.read_table(folder)
    first = dict(zip(["0", "1", "2"], SIZES, strict=False))

    def numbers(file, row):
        places = zip(*(table[c].to_pylist() for c in (file, row)), strict=True)
        return [first[Path(name).stem] + at for name, at in places]

    return numbers("file", "row"), numbers("kept_file", "kept_row"), table["distance"].to_pylist()


@pytest.mark.parametrize(
    ("by", "keep", "most"),
    [
        (by, keep, most) if keep == "score" and (by, most) in MOST.items() else full(by, keep, most)
        for by in RULES
        for keep in ("first", "last", "score")
        for most in (None, 200, 90)
    ],
)
def test_files_are_as_one_array(tmp_path, by, keep, most, device):
    """Of 360 rows one component has nearly all: 90 rows at once are pieces of 45 and chunks of them."""
    X = rows_of()
    source, how = write(tmp_path / "in", X), {"max_distance": 1.0, "by": by, "device": device}
    expected = deduplicate(X, keep=SCORE if keep == "score" else keep, details=True, **how)
    to, distance = np.asarray(on_host(expected.duplicate_of)), np.asarray(on_host(expected.distance))
    goes = np.flatnonzero(to != np.arange(len(X)))
    assert goes.size > 100
    with force(file_rows=most):
        report = deduplicate_files(source, tmp_path / "kept", keep=keep, **how)
        deduplicate_files([source], tmp_path / "rows", column=["vector"], keep=keep, rows=True, **how)
    assert ids_in(tmp_path / "kept") == np.flatnonzero(to == np.arange(len(X))).tolist()
    rows, kept, lengths = reasons_in(tmp_path / "rows")
    assert (rows, kept, lengths) == (goes.tolist(), to[goes].tolist(), distance[goes].tolist())
    assert report["rows"] == expected.report_["rows"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]


@pytest.mark.parametrize(("by", "most"), combinations(MOST, (None, 200, 90), quick=[(None, None), ("leaders", 90)]))
def test_another_table(tmp_path, by, most, device):
    """The rows of other files are none of the result, and they are not compared among themselves."""
    X, how = rows_of(), {"max_distance": 1.0, "by": by, "device": device}
    others = write(tmp_path / "others", X[:131], sizes=(0, 60, 131))
    own = write(tmp_path / "in", X[131:], sizes=(0, 229))
    expected = deduplicate(X[131:], against=X[:131:], details=True, keep="last", **how)
    parts = expected.duplicate_of, expected.against, expected.distance
    to, near, distance = (np.asarray(on_host(part)) for part in parts)
    goes = np.flatnonzero(to != np.arange(229))
    assert 20 < goes.size < 229
    with force(file_rows=most):
        report = deduplicate_files(own, tmp_path / "kept", against=others, keep="last", **how)
        files = [others / "0.parquet", others / "1.parquet"]
        deduplicate_files(own, tmp_path / "rows", against=files, keep="last", rows=True, **how)
    assert ids_in(tmp_path / "kept") == np.delete(np.arange(229), goes).tolist()
    assert report["rows"] == expected.report_["rows"]
    table = pq.read_table(tmp_path / "rows").to_pydict()
    named = [str(others / f"{int(row >= 60)}.parquet") if row >= 0 else str(own / "0.parquet") for row in near[goes]]
    kept = [row - 60 * (row >= 60) if row >= 0 else to[at] for at, row in zip(goes, near[goes], strict=True)]
    assert (table["row"], table["kept_file"], table["kept_row"]) == (goes.tolist(), named, kept)
    assert table["distance"] == distance[goes].tolist()


@pytest.mark.parametrize(("by", "most"), combinations(RULES, (None, 90), quick=[("components", 90), ("ranked", None)]))
def test_groups(tmp_path, by, most, device):
    """Keys are text, and each file has others first."""
    X, how = rows_of(), {"max_distance": 1.0, "by": by, "device": device}
    source, group = write(tmp_path / "in", X), SCORE % 7
    for i, (start, stop) in enumerate(pairwise(SIZES)):
        table = pq.read_table(source / f"{i}.parquet").append_column("user", pa.array(group[start:stop].astype(str)))
        pq.write_table(table, source / f"{i}.parquet")
    to = np.asarray(on_host(deduplicate(X, groups=group, **how)))
    with force(file_rows=most):
        deduplicate_files(source, tmp_path / "kept", groups="user", column="vector", **how)
    assert ids_in(tmp_path / "kept") == np.flatnonzero(to == np.arange(len(X))).tolist()
    assert 20 < (to != np.arange(len(X))).sum() < 330
    with pytest.raises(ValueError, match=r"0\.parquet has no column 'who'"):
        deduplicate_files(source, tmp_path / "out", groups="who", column="vector", **how)
    with pytest.raises(TypeError, match="groups are of one table"):
        deduplicate_files(source, tmp_path / "out", groups="user", against=source, column="vector", **how)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("how", ["fixed", "lists", "columns"])
def test_kinds_of_columns(tmp_path, dtype, how):
    X = (rows_of(1) + 1).astype(dtype)
    expected = np.flatnonzero(deduplicate(X, max_distance=0.2, metric="cosine", device="cpu") == np.arange(len(X)))
    if how == "columns":
        table = pa.table({"id": np.arange(len(X)), **{f"v{i}": X[:, i] for i in range(5)}})
        pq.write_table(table, tmp_path / "a.parquet")
        source, column = tmp_path / "a.parquet", [f"v{i}" for i in range(5)]
    else:
        source, column = write(tmp_path / "in", X, partial(lists, fixed=how == "fixed")), None
    with force(file_rows=250):
        deduplicate_files(source, tmp_path / "out", column=column, max_distance=0.2, metric="cosine", device="cpu")
    assert ids_in(tmp_path / "out") == expected.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("how", ["fixed", "lists", "columns", "bytes"])
def test_bits_of_types_that_parquet_lacks(tmp_path, dtype, how):
    X = rows_of(1) + 1  # 1, 2 and 3, which each of these types holds
    of_value = {
        "bfloat16": np.array([0, 0x3F80, 0x4000, 0x4040], np.uint16),
        "float8_e4m3fn": np.array([0, 0x38, 0x40, 0x44], np.uint8),
        "float8_e5m2": np.array([0, 0x3C, 0x40, 0x42], np.uint8),
    }[dtype]
    bits = of_value[X.astype(int)]
    column = {
        "fixed": lambda: {"v": lists(bits)},
        "lists": lambda: {"v": lists(bits, fixed=False)},
        "columns": lambda: {f"v{i}": bits[:, i] for i in range(5)},
        "bytes": lambda: {"v": pa.array([row.tobytes() for row in bits], pa.binary(bits[0].nbytes))},
    }[how]()
    pq.write_table(pa.table({"id": np.arange(len(X)), **column}), tmp_path / "a.parquet", row_group_size=50)
    names = list(column) if how == "columns" else None
    how = {"max_distance": 0.2, "metric": "cosine", "device": "cpu", "column": names}
    expected = np.flatnonzero(deduplicate(X, max_distance=0.2, metric="cosine", device="cpu") == np.arange(len(X)))
    with force(file_rows=250):
        deduplicate_files(tmp_path / "a.parquet", tmp_path / "out", dtype=dtype, **how)
    assert ids_in(tmp_path / "out") == expected.tolist()
    other = "bfloat16" if dtype != "bfloat16" else "float8_e5m2"
    if "v" not in column or pa.types.is_fixed_size_binary(column["v"].type):
        return
    with pytest.raises(TypeError, match=rf"column 'v' of .* is .*: with dtype='{other}' a vector is a list of uint"):
        deduplicate_files(tmp_path / "a.parquet", tmp_path / "other", dtype=other, **how)


def test_bits_are_refused_unless_they_are_named(tmp_path):
    table = pa.table({"v": pa.array([b"abc", b"def"], pa.binary(3))})
    pq.write_table(table, tmp_path / "a.parquet")
    how = {"max_distance": 0.2, "device": "cpu", "column": "v", "output": tmp_path / "out"}
    with pytest.raises(TypeError, match=r"is fixed_size_binary\[3\]: a vector is a list .* take dtype='bfloat16'"):
        deduplicate_files(tmp_path / "a.parquet", **how)
    words = "with dtype='bfloat16' a vector is a list of uint16, several columns of uint16"
    with pytest.raises(TypeError, match=words):
        deduplicate_files(tmp_path / "a.parquet", dtype="bfloat16", **how)
    with pytest.raises(ValueError, match="dtype must be one of 'bfloat16', 'float8_e4m3fn', 'float8_e5m2', or None"):
        deduplicate_files(tmp_path / "a.parquet", dtype="float64", **how)
    nan = pa.table({"v": lists(np.array([[0x3F80, 0x4000], [0x3F80, 0x7FC0]], np.uint16))})
    pq.write_table(nan, tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"row 1 of .*b\.parquet has a value that is not finite"):
        deduplicate_files(tmp_path / "b.parquet", dtype="bfloat16", **how)


@pytest.mark.parametrize("codec", ["zstd", "none", "lz4"])
def test_files_stay_as_they_are(tmp_path, codec):
    """Schema, metadata, compression, other columns, and the number of rows of a row group."""
    X, source = rows_of(), tmp_path / "a.parquet"
    table = pa.table({"x": pa.array([{"a": [i]} for i in range(len(X))]), "vector": lists(X)})
    pq.write_table(table.replace_schema_metadata({"who": "me"}), source, row_group_size=100, compression=codec)
    deduplicate_files(source, tmp_path / "out", max_distance=0.0, device="cpu")
    kept = np.flatnonzero(deduplicate(X, max_distance=0.0, device="cpu") == np.arange(len(X)))
    made, group = pq.read_table(tmp_path / "out" / "a.parquet"), pq.read_metadata(tmp_path / "out" / "a.parquet")
    assert made.equals(pq.read_table(source).take(kept))
    assert made.schema.equals(pq.read_schema(source), check_metadata=True)
    sizes = [group.row_group(i).num_rows for i in range(group.num_row_groups)]
    assert sizes == [*[100] * (len(kept) // 100), *([len(kept) % 100] if len(kept) % 100 else [])]
    name = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert {group.row_group(0).column(i).compression for i in range(group.num_columns)} == {name}


@pytest.fixture
def renames(monkeypatch):
    """The calls of `Path.replace`, which ends the run where its `fails_at` says."""
    renames = Failing(Path.replace, KeyboardInterrupt())
    monkeypatch.setattr(Path, "replace", renames.as_method())
    return renames


@pytest.mark.parametrize("by", ["ranked", *map(full, ("components", "leaders"))])
def test_a_run_that_ended_goes_on(tmp_path, by, renames):
    """It is ended at five random places, where a file is about to get its name; the bytes are those of one run."""
    source = write(tmp_path / "in", rows_of())
    how = {"max_distance": 1.0, "by": by, "keep": "score", "rows": True, "device": "cpu"}
    with force(file_rows=120):
        deduplicate_files(source, tmp_path / "whole", **how)
        total, rng = renames.calls, np.random.default_rng(len(by))
        for end in np.sort(rng.choice(np.arange(1, total), 5, replace=False)).tolist():
            renames.fails_at = total + end
            with pytest.raises(KeyboardInterrupt):
                deduplicate_files(source, tmp_path / "ended", **how)
            assert not (tmp_path / "whole" / files.UNFINISHED).exists()
        deduplicate_files(source, tmp_path / "ended", **how)
    # a whole run and five ended ones rename few more files than one run, since no work is done twice
    assert renames.calls <= 2 * total + 15
    for path in sorted((tmp_path / "whole").iterdir()):
        assert path.read_bytes() == (tmp_path / "ended" / path.name).read_bytes()
    assert len(list((tmp_path / "ended").iterdir())) == 3


def test_unfinished_runs_of_others_are_refused(tmp_path, renames):
    source, how = write(tmp_path / "in", rows_of()), {"device": "cpu", "output": tmp_path / "out"}
    renames.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        deduplicate_files(source, max_distance=1.0, **how)
    assert json.loads((tmp_path / "out" / files.UNFINISHED / "manifest.json").read_text())["plan"]["by"] == "components"
    with pytest.raises(ValueError, match="has other max_distance: pass the same to go on"):
        deduplicate_files(source, max_distance=0.5, **how)
    deduplicate_files(source, max_distance=1.0, **how)
    with pytest.raises(ValueError, match=r"the output has .*0\.parquet: remove it"):
        deduplicate_files(source, max_distance=1.0, **how)


def bad(value):
    def change(X):
        X[200] = value
        return X

    return change


def ragged(X):
    return pa.array([row[: 4 if i == 69 else 5] for i, row in enumerate(X.tolist())], pa.list_(pa.float32()))


def with_null(X):
    return pa.array([None if i == 69 else row for i, row in enumerate(X.tolist())], pa.list_(pa.float32(), 5))


@pytest.mark.parametrize(
    ("change", "column", "message"),
    [
        (bad(np.nan), lists, r"row 69 of .*2\.parquet has a value that is not finite"),
        (bad(-np.inf), lists, r"row 69 of .*2\.parquet has a value that is not finite"),
        (bad(0), lists, r"row 69 of .*2\.parquet is zero in every value"),
        (bad(-0.0), lists, r"row 69 of .*2\.parquet is zero in every value"),
        (bad(1), ragged, r"row 69 of .*parquet has 4 values in column 'vector', and rows before it 5"),
        (bad(1), with_null, r"row 69 of .*parquet has no value in column 'vector'"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, column, message):
    source = write(tmp_path / "in", change(rows_of() + 1), column)
    for most in (None, 100):
        with force(file_rows=most), pytest.raises(ValueError, match=message):
            deduplicate_files(source, tmp_path / "out", max_distance=0.1, metric="cosine", device="cpu")
        assert not list((tmp_path / "out").iterdir())


def test_bad_files_are_named(tmp_path):
    source, how = write(tmp_path / "in", rows_of()), {"max_distance": 0.1, "device": "cpu", "output": tmp_path / "out"}
    for more, error, message in (
        ({"column": "nothing"}, ValueError, r"0\.parquet has no column 'nothing', only 'id'"),
        ({"column": "text"}, TypeError, "column 'text' of .* is string: a vector is a list of float16"),
        ({"keep": "best"}, ValueError, r"0\.parquet has no column 'best'"),
        ({"keep": "text"}, TypeError, r"column 'text' of .* must hold numbers"),
        ({"by": "best"}, ValueError, "by must be one of 'components', 'ranked', 'leaders'"),
        ({"max_distance": None}, TypeError, "max_distance must be a number"),
        ({"metric": "precomputed"}, ValueError, r"use deduplicate"),
        ({"columns": "vector"}, TypeError, r"no parameter 'columns'. Did you mean 'column'"),
        ({"memory_limit": 100}, ValueError, r"memory_limit of .* holds no search"),
    ):
        with pytest.raises(error, match=message):
            deduplicate_files(source, **{**how, **more})
    with pytest.raises(ValueError, match="the input is in the folder of the output"):
        deduplicate_files(source, tmp_path / "in", max_distance=0.1, device="cpu")
    with pytest.raises(FileNotFoundError, match=r"no such file: .*other"):
        deduplicate_files(tmp_path / "other", **how)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"there is no \*.parquet in"):
        deduplicate_files(tmp_path / "empty", **how)
    with pytest.raises(ValueError, match="a file is there twice"):
        deduplicate_files([source, source / "0.parquet"], **how)
    (tmp_path / "in" / "9.parquet").write_bytes(b"PAR1, and nothing")
    with pytest.raises(ValueError, match=r"cannot read .*9\.parquet"):
        deduplicate_files(source, **how)
    pq.write_table(pa.table({"vector": lists(rows_of(d=4))}), tmp_path / "in" / "9.parquet")
    with pytest.raises(ValueError, match=r"9\.parquet has vectors of 4 values, and .*0\.parquet 5"):
        deduplicate_files(source, **how)
    pq.write_table(pa.table({"vector": lists(rows_of().astype("float64"))}), tmp_path / "in" / "9.parquet")
    with pytest.raises(ValueError, match=r"9\.parquet has float64 vectors, and .*0\.parquet float32"):
        deduplicate_files(source, **how)
    pq.write_table(pa.table({"a": lists(rows_of()), "b": lists(rows_of())}), tmp_path / "in" / "9.parquet")
    with pytest.raises(ValueError, match=r"name the column of the vectors of .* it may be one of 'a', 'b'"):
        deduplicate_files(tmp_path / "in" / "9.parquet", **how)


def test_missing_scores_are_named(tmp_path):
    table = pa.table({"vector": lists(rows_of()[:4]), "score": pa.array([1.0, 2.0, None, 3.0])})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"row 2 of .*a\.parquet has no value in column 'score'"):
        deduplicate_files(tmp_path / "a.parquet", tmp_path / "out", max_distance=0.1, keep="score", device="cpu")


def test_a_dry_run_writes_nothing(tmp_path):
    source = write(tmp_path / "in", rows_of())
    with force(file_rows=100):
        report = deduplicate_files(source, tmp_path / "out", max_distance=1.0, dry_run=True, device="cpu")
    assert not (tmp_path / "out").exists()
    assert report["rows"] == {"rows": 360, "features": 5, "rows_together": 100, "searches": 28}
    assert report["disk"] == {"pieces_bytes": 360 * 5 * 4}
    assert report["time"]["about_minutes"] > 0
    assert report["memory"]["peak_bytes"] > 0


def test_the_command_line(tmp_path, capsys):
    source, X = write(tmp_path / "in", rows_of()), rows_of()
    names = [str(source / f"{i}.parquet") for i in range(3)]
    command = ["deduplicate", *names, "--column", "vector", "--max-distance", "1", "--keep", "score", "--device", "cpu"]
    assert main([*command, "--by", "leaders", "--output", str(tmp_path / "out")]) == 0
    of = deduplicate(X, max_distance=1.0, keep=SCORE, by="leaders", device="cpu")
    assert ids_in(tmp_path / "out") == np.flatnonzero(of == np.arange(360)).tolist()
    assert f"kept {(of == np.arange(360)).sum()}" in capsys.readouterr().out
    others = ["--against", names[0], "--groups", "score"]
    assert main(["deduplicate", *names[1:], *command[4:], *others, "--output", str(tmp_path / "some")]) == 1
    assert "groups are of one table" in capsys.readouterr().err
    assert main(["deduplicate", *names[1:], *command[4:], *others[:2], "--output", str(tmp_path / "some")]) == 0
    of = deduplicate(X[130:], against=X[:130], max_distance=1.0, device="cpu")
    assert ids_in(tmp_path / "some") == (130 + np.flatnonzero(of == np.arange(230))).tolist()
    assert main([*command, "--rows", "--output", str(tmp_path / "rows")]) == 0
    assert pq.read_schema(tmp_path / "rows" / "0.parquet").names == ["file", "row", "kept_file", "kept_row", "distance"]
    assert main([*command, "--dry-run", "--output", str(tmp_path / "dry")]) == 0
    assert "about minutes" in capsys.readouterr().out
    assert not (tmp_path / "dry").exists()
    assert main([*command, "--output", str(tmp_path / "out")]) == 1
    assert "error: the output has" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["deduplicate", names[0], "--max-distance", "1"])
    assert "--output" in capsys.readouterr().err


def test_the_workers_of_dask_search(tmp_path):
    """With the bytes of one process."""
    dask_clusters = pytest.importorskip("dask_clusters")
    source = write(tmp_path / "in", rows_of())
    how = {"max_distance": 1.0, "by": "leaders", "rows": True, "device": "cpu"}
    with force(file_rows=120):
        deduplicate_files(source, tmp_path / "alone", **how)
        with dask_clusters.workers_within_this_process(2) as cluster, cluster.get_client():
            deduplicate_files(source, tmp_path / "workers", **how)
    for path in (tmp_path / "alone").iterdir():
        assert path.read_bytes() == (tmp_path / "workers" / path.name).read_bytes()


@pytest.fixture
def few_products(set_constants):
    """Few rows have several pivots."""
    set_constants(pivots, PRODUCTS=400)


@pytest.mark.parametrize(
    ("metric", "dtype"), combinations(("euclidean", "sqeuclidean", "cosine"), ("float16", "float64"), quick=2)
)
def test_blocks_of_near_rows(tmp_path, metric, dtype, few_products, device):
    """Rows around few places are in blocks that meet few others, and no near pair is lost."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(9, 16))[rng.integers(0, 9, 360)] + 0.2 * rng.normal(size=(360, 16))
    X[300:] = X[:60] + 0.02 * rng.normal(size=(60, 16))
    X = (300 * X).astype(dtype)
    t = {"euclidean": 40.0, "sqeuclidean": 1600.0, "cosine": 2e-3}[metric]
    source, how = write(tmp_path / "in", X), {"max_distance": t, "metric": metric, "by": "leaders", "device": device}
    of = np.asarray(on_host(deduplicate(X, keep=SCORE, **how)))
    assert 40 < (of != np.arange(360)).sum() < 120
    for most in (120, 50):  # blocks of 30 rows with visitors fit, or not all of them
        with force(file_rows=most):
            report = deduplicate_files(source, tmp_path / f"out{most}", keep="score", **how)
        assert ids_in(tmp_path / f"out{most}") == np.flatnonzero(of == np.arange(360)).tolist()
        assert report["search"]["pairs_of_rows"] < 360 * 359 / 2
    assert report["search"]["searches"] > 15


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_each_near_pair_meets(metric, scale, few_products, device):
    """At any scale a row visits each block that has a row near it, of noise too, and with small radii not all."""
    X = np.random.default_rng(6).normal(size=(240, 3))
    X[7::50] *= 1e60  # which are longer than all pivots, and beyond float32
    X, is_cosine, on, visits = scale * X, metric == "cosine", resolve(device), []
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) if is_cosine else X
    gap = np.sqrt(((unit[:, None] - unit[None]) ** 2).sum(axis=2))
    others = np.delete(np.arange(240), np.s_[7::50])
    for radius in np.quantile(gap[np.ix_(others, others)], [0.01, 0.1, 0.5]):
        around = pivots.pivots_of(on.asarray(X[others[:128]]), radius / 9, is_cosine, 8, on)
        dealt = list(pivots.deal_out(X, around, radius, is_cosine, on))
        block, may_be_near = (np.concatenate([to_host(part[i]) for part in dealt], axis=-1) for i in (1, 2))
        near = np.nonzero(gap <= radius)
        own = block[np.array(near)]
        first = own.argmin(axis=0), np.arange(own.shape[1])
        earlier, later = np.array(near)[first], np.array(near)[::-1][first]
        assert ((block[earlier] == block[later]) | may_be_near[block[earlier], later]).all()
        visits.append(may_be_near.mean())
    assert visits[0] < visits[1] <= visits[2]


def test_each_two_rows_meet_in_a_search(tmp_path):
    """In one block, in one that is too large with those that visit it, and in all of them."""
    for most in (1, 2, 3, 5, 8, 30):
        whole = parquet.Blocks(parquet.Pieces(tmp_path, (0, 17)), 1, most)
        met = np.zeros((17, 17), bool)
        for search, size in whole.searches.items():
            rows = whole.rows(search)
            met[np.ix_(rows, rows)] = True
            assert np.unique(rows).size == rows.size == size <= max(2, most)
        assert met.all()


def test_a_block_without_rows_has_no_search(tmp_path):
    """All rows are in the second of three blocks, and none visits another."""
    whole = parquet.Blocks(parquet.Pieces(tmp_path, (0, 5)), 3, 30)
    np.save(whole.path(0), np.array([[1] * 5, [0] * 5], np.uint16))
    assert whole.searches == {(1, 0, 0): 5}
    assert whole.rows((1, 0, 0)).tolist() == [*range(5)]

"""The command line, end to end; the demo and its data; the check for ``rapids doctor``."""

import gzip
import os
import subprocess
import sys
import tomllib
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations, full
from repository import ROOT

import rapids_slink
from rapids_slink import DeviceUnavailableError, api, cli
from rapids_slink.datasets import EARTH_RADIUS, load_cities
from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.metrics import ITEM_METRICS, METRICS
from rapids_slink.points.output import on_host
from rapids_slink.report import counted
from rapids_slink.runtime.compiling import TEXT
from rapids_slink.runtime.device import gpu_is_usable

POINTS = pd.DataFrame({"x": [0.0, 0.1, 0.3, 5.0, 5.4, 9.0], "y": [0.0, 0.0, 0.0, 5.0, 5.0, 0.0]})
POINTS["name"] = ["ab", "cd", "ef", "gh", "ij", "kl"]
SAID = "points.csv: 6 rows of 2 columns: 'x', 'y'; without 'name' (not in --columns)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the same table in both formats."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    POINTS.to_csv("points.csv", index=False)
    POINTS.set_index(pd.Index(range(100, 106), name="key")).to_parquet("points.parquet")
    return tmp_path


@pytest.fixture
def run(folder, capsys):
    """Run the command line on the CPU: (exit status, stdout, stderr)."""

    def call(*arguments):
        try:
            status = cli.main(["--device", "cpu", *map(str, arguments)])
        except SystemExit as stop:
            status = stop.code
        return (status, *capsys.readouterr())

    return call


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_csv_to_csv(run):
    status, out, err = run("points.csv", "--columns", "x,y", "--n-clusters", 3, "--output", "labels.csv")
    assert (status, err) == (0, SAID)
    assert out == "6 rows in 3 clusters, written to labels.csv\n"
    written = pd.read_csv("labels.csv")
    assert list(written) == ["row", "x", "y", "name", "label"]
    pd.testing.assert_frame_equal(written[["x", "y", "name"]], POINTS)
    assert written["row"].tolist() == list(range(6))
    assert written["label"].tolist() == [0, 0, 0, 1, 1, 2]
    run("points.csv", "--columns", "x,y", "--n-clusters", 3, "--output", "labels.csv", "--labels-only")
    assert Path("labels.csv").read_text() == "row,label\n0,0\n1,0\n2,0\n3,1\n4,1\n5,2\n"


def test_columns_that_are_not_used_are_written_as_they_are_read(run):
    """Those that are used are numbers, which may be written in another way."""
    cells = {"id": ["007", "1e3", "NA", "", "a,b", "8"], "year": [2001, 2002, 2003, 2004, 2005, 2006]}
    table = POINTS[["x"]].assign(**cells, spread=[0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    table.to_csv("points.csv", index=False)
    assert run("points.csv", "--columns", "x", "--output", "labels.csv")[0] == 0
    written = pd.read_csv("labels.csv", dtype=str, keep_default_na=False)
    assert written["id"].tolist() == cells["id"]
    assert run("points.csv", "--columns", "x", "--output", "labels.parquet")[0] == 0
    pd.testing.assert_frame_equal(pd.read_parquet("labels.parquet")[list(table)], table)


def test_several_cuts(run):
    status, out, _ = run("points.csv", "--columns", "x,y", "--n-clusters", "2,3,2", "--output", "labels.csv")
    assert (status, out) == (0, "label_2: 6 rows in 2 clusters\nlabel_3: 6 rows in 3 clusters, written to labels.csv\n")
    expected = rapids_slink.fit(POINTS[["x", "y"]], device="cpu").cut([2, 3])
    assert np.array_equal(pd.read_csv("labels.csv")[["label_2", "label_3"]], expected)
    options = ["--distance-threshold", "0.3,1", "--label", "at", "--min-cluster-size", 2]
    status, out, _ = run("points.csv", "--columns", "x,y", *options)
    assert out == "at_0.3: 6 rows in 1 cluster, 3 rows of noise\nat_1: 6 rows in 2 clusters, 1 row of noise\n"


def test_cuts_by_sizes(run):
    model, large = rapids_slink.fit(POINTS[["x", "y"]], device="cpu"), {"count_small": False}
    for options, labels in [
        (["--max-cluster-size", 2], model.cut(max_cluster_size=2)),
        (["--max-distance", 0.4, "--max-cluster-size", 1], model.cut(max_cluster_size=1)),
        (["--n-clusters=2", "--min-cluster-size=2", "--count-large"], model.cut(2, min_cluster_size=2, **large)),
    ]:
        assert run("points.csv", "--columns", "x,y", *options, "--output", "labels.csv")[0] == 0
        assert pd.read_csv("labels.csv")["label"].tolist() == labels.tolist()


def test_labels_within_a_distance_need_no_tree(run, watch):
    """Unless it is asked for, up to that distance."""
    cuts = watch(rapids_slink.SingleLinkage, "cut")
    model = rapids_slink.fit(POINTS[["x", "y"]], max_distance=0.4, device="cpu")
    options = ["--columns", "x,y", "--max-distance", "0.4", "--output", "labels.csv"]
    for more in ([], ["--linkage", "z.csv"]):
        assert run("points.csv", *options, *more)[0] == 0
        assert pd.read_csv("labels.csv")["label"].tolist() == model.labels_.tolist()
        assert more or not cuts
    assert len(pd.read_csv("z.csv")) == len(model.linkage_)


def test_hdbscan(run):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(np.r_[rng.normal(size=(40, 2)), rng.normal(9, 4, size=(40, 2))], columns=["x", "y"]).round(3)
    rows.to_csv("points.csv", index=False)
    chosen = {"min_cluster_size": 8, "min_samples": 4, "cluster_selection_method": "leaf"}
    options = [part for name, value in chosen.items() for part in (f"--{name.replace('_', '-')}", value)]
    status, out, _ = run("points.csv", "--hdbscan", *options, "--output", "labels.parquet")
    model = rapids_slink.HDBSCAN(**chosen, device="cpu").fit(rows)
    noise = int((model.labels_ < 0).sum())
    assert (status, noise > 0) == (0, True)
    assert (
        out == f"80 rows in {model.n_clusters_} clusters, {counted(noise, 'row')} of noise, written to labels.parquet\n"
    )
    written = pd.read_parquet("labels.parquet")
    assert written["label"].tolist() == model.labels_.tolist()
    assert written["probability"].tolist() == model.probabilities_.tolist()


@pytest.mark.parametrize("model", ["--max-distance=0.5", "--hdbscan"])
def test_labels_that_are_called_as_probabilities(run, model):
    status, out, _ = run("points.csv", "--columns", "x,y", model, "--label", "probability")
    assert status == 0
    assert out.startswith("6 rows in ")


def test_labels_within_a_similarity(run):
    rows = pd.DataFrame([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1]], columns=list("abcde"))
    rows.to_csv("bits.csv", index=False)
    asked = "bits.csv", "--metric", "jaccard", "--min-similarity", "0.8", "--output", "labels.csv"
    assert run(*asked)[0] == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 0, 1]
    assert run(*asked, "--min-cluster-size", "2")[0] == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 0, -1]


def test_groups(run):
    table = pd.DataFrame({"patient": ["01", "1", "01", "1", "01"], "x": [0.0, 9.0, 0.1, 9.1, 5.0]})
    table.to_csv("points.csv", index=False)
    status, _, err = run("points.csv", "--groups", "patient", "--output", "labels.csv")
    assert (status, err) == (0, "points.csv: 5 rows of 1 column: 'x'; groups 'patient'\n")
    model = rapids_slink.fit(table, 2, groups="patient", device="cpu")
    assert pd.read_csv("labels.csv")["label"].tolist() == model.labels_.tolist() == [0, 1, 0, 2, 3]
    status, out, _ = run("points.csv", "--groups", "patient", "--n-clusters", "1,2")
    assert out == "label_1: 5 rows in 2 clusters\nlabel_2: 5 rows in 4 clusters\n"
    table.assign(patient=["a", "", "a", "b", "b"]).to_csv("points.csv", index=False)
    assert (
        "column 'patient' of --groups is empty in row 1: give it a value" in run("points.csv", "--groups", "patient")[2]
    )
    assert "column 'patient' is of groups" in run("points.csv", "--groups", "patient", "--columns", "x,patient")[2]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_text(run, kind):
    """Strings are read as they are written."""
    text = ["0012", "0013", "1e9", "0.10", "+7", "0.1"]
    table = pd.DataFrame({"name": text, "gene": list("aaaabb"), "other": 1.5})
    getattr(table, f"to_{kind}")(f"points.{kind}", index=False)
    asked = f"points.{kind}", "--metric", "levenshtein", "--max-distance", "1", "--output", "labels.csv"
    assert run(*asked, "--columns", "name")[0] == 0
    written = pd.read_csv("labels.csv", dtype=str, keep_default_na=False)
    assert written["name"].tolist() == text
    assert written["label"].tolist() == ["0", "0", "1", "2", "3", "2"]
    assert run(*asked, "--columns", "name", "--groups", "gene")[0] == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 0, 1, 2, 3, 4]
    assert run(*asked[:3], "--columns", "name", "--hdbscan", "--min-cluster-size", "2")[0] == 0
    if kind == "csv":
        Path("points.csv").write_text("word,\nkitten,\nsitting,\n")
        assert "'word,', may be a header: say --header or --no-header" in run(*asked)[2]
        status, out, err = run(*asked[:5], "--header")
        assert (status, out.splitlines()[0]) == (0, "2 rows in 2 clusters:")
        assert "without 'Unnamed: 1' (empty)" in err
        table.to_csv("points.csv", index=False)
    assert run(*asked[:3], "--columns", "other")[0] == (0 if kind == "csv" else 1)  # of numbers, which are no text


@pytest.mark.parametrize("metric", ["euclidean", "hamming"])
def test_missing_values(run, metric):
    table = pd.DataFrame({"a": ["1", "1", "2", "-"], "b": ["1", "", "3", "3"], "c": ["0", "1", "3", "3"]})
    table.to_csv("points.csv", index=False)
    status, out, _ = run("points.csv", "--missing", "pairwise", "--missing-value", "-", "--metric", metric)
    assert (status, out.splitlines()[0]) == (0, "4 rows in 2 clusters:")
    assert "column 'a'" in run("points.csv", "--missing-value", "0", "--missing", "pairwise")[2]


def test_categories(run):
    status, out, err = run("points.csv", "--metric", "hamming", "--n-clusters", "3", "--columns", "*")
    assert (status, err) == (0, "points.csv: 6 rows of 3 columns: 'x', 'y', 'name'\n")
    assert out.startswith("6 rows in 3 clusters:\n")


def test_alleles_and_the_names_of_isolates(run):
    """The names are no locus: the two equal profiles are one cluster."""
    Path("points.csv").write_text("isolate\ta\tb\tc\td\nX1\t1\t2\t3\t4\nX2\t1\t2\t3\t4\nX3\t5\t6\t7\t8\n")
    asked = ("points.csv", "--metric", "hamming", "--missing", "hiercc", "--missing-value", "0,-")
    asked += ("--distance-threshold", "1")
    status, _, err = run(*asked)
    assert (status, err.count("\n")) == (1, 1)
    assert "column 'isolate' is called as names of rows are: say --index-column isolate" in err
    assert run(*asked, "--index-column", "isolate")[1].startswith("3 rows in 2 clusters:\n")


def test_warnings_are_one_line(run):
    Path("points.csv").write_text("a\tb\n1\t-1\n1\t1\n2\t1\n")
    asked = ("points.csv", "--metric", "hamming", "--missing", "hiercc")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        status, _, err = run(*asked)
    assert (status, err.count("\n")) == (0, 2)
    assert "rapids_slink: warning: column 'b' holds -1, a value like any other; HierCC takes" in err
    status, _, err = run(*asked, "--missing-value", "<=0")
    assert (status, err.count("\n")) == (0, 1)


def test_integers_of_64_bits(run):
    """Alleles that are hashes: neighbours beyond 2⁵³ are different, and written as they were read."""
    hashes = [2**53, 2**53 + 1, 2**53, None]
    pd.DataFrame({"a": pd.array(hashes, "Int64"), "b": [1, 1, 1, 2]}).to_csv("points.csv", index=False)
    asked = ("--metric", "hamming", "--missing", "pairwise", "--distance-threshold", "0.1", "--output", "labels.csv")
    assert run("points.csv", *asked, "--labels-only")[0] == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 1, 0, 2]
    assert run("points.csv", *asked)[0] == 0
    assert [line.split(",")[1] for line in Path("labels.csv").read_text().splitlines()[1:]] == [
        *map(str, hashes[:3]), "",
    ]  # fmt: skip
    pd.DataFrame({"a": hashes[:3], "b": 1}).to_csv("points.csv", index=False)
    assert run("points.csv", *asked)[0] == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 1, 0]


@pytest.mark.parametrize("blank", ["", "NA", "None", "nan", "-"])
def test_cells_that_mean_no_text(run, blank):
    """They are no clonotype of their own, unless they are asked for."""
    receptors = pd.DataFrame({"cdr3": ["CAS", blank, "CAT", blank, "CQQQ"], "n": [1, 2, 3, 4, 5]})
    receptors.to_csv("points.csv", index=False)
    asked = ["points.csv", "--columns", "cdr3", "--metric", "levenshtein", "--max-distance", "1"]
    asked += ["--output", "labels.csv"]
    status, _, err = run(*asked)
    assert (status, err.count("\n")) == (1, 1)
    assert (
        f"column 'cdr3' holds no text in 2 rows, as {blank!r} in row 1: leave these rows out (--empty-text drop)" in err
    )
    status, _, err = run(*asked, "--empty-text", "drop")
    assert (status, "without 2 rows of no text (--empty-text)" in err) == (0, True)
    assert Path("labels.csv").read_text() == "row,cdr3,n,label\n0,CAS,1,0\n2,CAT,3,0\n4,CQQQ,5,1\n"
    assert run(*asked, "--empty-text", "keep")[0] == 0
    written = pd.read_csv("labels.csv", keep_default_na=False)
    assert written["cdr3"].tolist() == receptors["cdr3"].tolist()
    assert written["label"].tolist() == [0, 1, 0, 1, 2]


def test_text_of_parquet_with_nulls(run):
    pd.DataFrame({"cdr3": ["CAS", None, "CAT"]}).to_parquet("points.parquet")
    asked = ["points.parquet", "--metric", "levenshtein", "--max-distance", "1", "--output", "labels.csv"]
    assert "column 'cdr3' holds no text in 1 row, as nan in row 1" in run(*asked)[2]
    assert run(*asked, "--empty-text", "drop")[0] == 0
    assert Path("labels.csv").read_text() == "row,cdr3,label\n0,CAS,0\n2,CAT,0\n"


def test_the_standard_output(run):
    """The table and nothing else; what is said of it goes to standard error."""
    status, out, err = run("points.csv", "--columns", "x,y", "--output", "-")
    assert (status, out.replace("\r", "")) == (0, LABELS)
    assert err == f"{SAID}6 rows in 2 clusters, written to the standard output\n"
    status, out, err = run("points.csv", "--columns", "x,z", "--output", "-")
    assert (status, out) == (1, "")
    assert "cannot write -: the suffix" in run("points.csv", "--columns", "x,y", "--linkage", "-")[2]


def test_degrees(run):
    """Distances are in kilometres: thresholds, the largest one, epsilons and the heights of the tree."""
    cities = pd.DataFrame({"lat": [0.0, 0.0, 0.0, 60.0], "lon": [0.0, 1.0, 3.0, 100.0]})  # a degree is 111.2 km
    cities.to_csv("points.csv", index=False)
    asked = ["points.csv", "--metric", "haversine", "--degrees", "--output", "labels.csv", "--labels-only"]
    for options, labels in (
        (["--distance-threshold", "112"], [0, 0, 1, 2]),
        (["--distance-threshold", "111,223"], [(0, 0), (1, 0), (2, 0), (3, 1)]),
        (["--max-distance", "111.3"], [0, 0, 1, 2]),
        (["--n-clusters", "2", "--linkage", "z.csv"], [0, 0, 0, 1]),
    ):
        status, _, err = run(*asked, *options)
        assert (status, err.count("\n")) == (0, 1)
        written = pd.read_csv("labels.csv").iloc[:, 1:]
        assert [row[0] if len(row) == 1 else row for row in written.itertuples(index=False, name=None)] == labels
    assert list(pd.read_csv("labels.csv")) == ["row", "label"]
    radians = rapids_slink.fit(np.radians(cities), 2, metric="haversine", device="cpu")
    np.testing.assert_array_equal(pd.read_csv("z.csv")["height"], radians.linkage_["height"] * EARTH_RADIUS)
    assert "does not take --degrees" in run("points.csv", "--degrees")[2]
    cities[["lon", "lat"]].to_csv("points.csv", index=False)
    assert "--degrees takes the latitude first, from -90 to 90, and column 'lon' has 100 in row 3" in run(*asked)[2]


def test_degrees_of_hdbscan(run, monkeypatch):
    rng = np.random.default_rng(0)
    towns = np.repeat([[40.0, 40.0], [41.0, 41.0]], 30, axis=0)
    cities = pd.DataFrame(towns + rng.normal(0, 0.05, (60, 2)), columns=["lat", "lon"])
    cities.to_csv("points.csv", index=False)
    asked = ["points.csv", "--metric", "haversine", "--degrees", "--hdbscan", "--output", "labels.csv"]
    assert run(*asked, "--cluster-selection-epsilon", "30")[0] == 0
    model = rapids_slink.HDBSCAN(metric="haversine", cluster_selection_epsilon=30 / EARTH_RADIUS, device="cpu")
    labels = model.fit(np.radians(pd.read_csv("points.csv"))).labels_
    assert pd.read_csv("labels.csv")["label"].tolist() == labels.tolist()
    assert len(set(labels)) > 1


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--n-cluster", "--n-clusters"), ("--min_samples=3", "--min-samples"), ("--outputs", "--output"), ("--zzz", None)],
)
def test_unknown_options_name_what_was_meant(run, option, meant):
    status, _, err = run("points.csv", option, "3")
    assert status == 2
    assert err.endswith(f" Did you mean {meant}?\n" if meant else f"unrecognized arguments: {option} 3\n")


def test_the_metrics_are_in_the_help(run):
    text = " ".join(run("--help")[1].split())
    for name in [*METRICS, *ITEM_METRICS]:
        assert f" {name}" in text


@pytest.mark.parametrize("name", ["id", "0"])
def test_parquet_of_integers_with_nulls(run, name):
    """They are columns of the output as they are, not rounded to floats."""
    pyarrow = pytest.importorskip("pyarrow")
    ids = [2**53, 2**53 + 1, None]
    table = pyarrow.table({"day": [None, 1, 2], "x": [0.0, 0.1, 5.0], name: ids})
    pyarrow.parquet.write_table(table, "points.parquet")
    assert run("points.parquet", "--columns", "x", "--output", "labels.parquet")[0] == 0
    written = pyarrow.parquet.read_table("labels.parquet")
    assert written[name].to_pylist() == ids
    assert written.schema.field("day").type == "int64"
    assert run("points.parquet", "--columns", "x", "--index-column", name, "--output", "labels.csv")[0] == 0
    assert [line.split(",")[0] for line in Path("labels.csv").read_text().splitlines()[1:]] == [*map(str, ids[:2]), ""]
    table.to_pandas(integer_object_nulls=True).astype({name: "Int64"}).set_index(name).to_parquet("indexed.parquet")
    assert run("indexed.parquet", "--columns", "x", "--output", "labels.csv")[0] == 0
    assert [line.split(",")[0] for line in Path("labels.csv").read_text().splitlines()[1:]] == [*map(str, ids[:2]), ""]
    status, _, err = run("points.parquet", "--columns", f"x,{name}")
    assert status == 1
    assert f"column {name!r} has 1 missing value" in err


def test_parquet_keeps_the_index_and_writes_the_linkage(run):
    arguments = ["--columns", "x,y", "--distance-threshold", 0.3, "--output", "labels.parquet", "--linkage", "z.csv"]
    assert run("points.parquet", *arguments)[0] == 0
    labels = pd.read_parquet("labels.parquet")
    assert labels["key"].tolist() == list(range(100, 106))
    assert labels["label"].tolist() == [0, 0, 0, 1, 2, 3]
    merges = pd.read_csv("z.csv")
    assert list(merges.columns) == ["left", "right", "height", "size"]
    expected = rapids_slink.fit(POINTS[["x", "y"]], device="cpu").to_scipy()
    np.testing.assert_array_equal(merges["height"], expected[:, 2])


@pytest.mark.parametrize(
    ("index", "header"),
    [
        (pd.Index(list("abcdef"), name="label"), "row,label"),
        (pd.MultiIndex.from_product([[1, 2], list("abc")], names=["label", None]), "level_0,level_1,label"),
        (pd.MultiIndex.from_product([[1, 2], list("abc")], names=["x", "y"]), "x,y,label"),
    ],
)
def test_index_of_the_output(run, index, header):
    POINTS[["x"]].set_axis(index).to_parquet("points.parquet")
    assert run("points.parquet", "--output", "labels.csv", "--labels-only")[0] == 0
    written = pd.read_csv("labels.csv", index_col=list(range(index.nlevels)))
    assert Path("labels.csv").read_text().startswith(f"{header}\n")
    assert written["label"].tolist() == [0, 0, 0, 1, 1, 1]
    assert written.index.tolist() == index.tolist()


def test_summary_without_output(run, folder):
    before = files(folder)
    status, out, err = run("points.csv", "--columns", "x,y")
    assert (status, err) == (0, SAID)
    assert [line.split() for line in out.splitlines()] == [
        ["6", "rows", "in", "2", "clusters:"],
        ["cluster", "size"],
        ["0", "3"],
        ["1", "3"],
    ]
    assert files(folder) == before
    assert run("points.csv", "--columns", "x,y", "--n-clusters", "1")[1].startswith("6 rows in 1 cluster:\n")


@pytest.mark.filterwarnings("always:of .* clusters the largest has:UserWarning")
def test_the_widest_gap_is_between_large_clusters(run):
    """What the warning of outliers names can be typed."""
    x = np.r_[np.arange(100), np.arange(1000, 1100), 3000, 9000].astype(float)
    pd.DataFrame({"x": x, "y": 0.0}).to_csv("points.csv", index=False)
    assert "widest_gap" in run("points.csv")[2]
    run("points.csv", "--n-clusters", "widest_gap", "--output", "labels.csv")
    assert pd.read_csv("labels.csv")["label"].tolist() == [0] * 100 + [1] * 100 + [-1] * 2
    expected = rapids_slink.fit(x.reshape(-1, 1), "widest_gap", device="cpu").labels_
    assert np.array_equal(pd.read_csv("labels.csv")["label"], expected)


def test_options_reach_the_model(run, watch):
    calls = watch(rapids_slink, "fit", lambda result, frame, **given: given)
    options = ["--metric", "minkowski", "--p", 3, "--n-neighbors", 2, "--min-samples", 3, "--progress"]
    options += ["--memory-limit", "1GiB"]
    run("points.csv", "--columns", "x,y", *options)
    given = {"metric": "minkowski", "p": 3.0, "n_neighbors": 2, "min_samples": 3, "device": "cpu", "progress": True}
    given |= {"n_clusters": 2, "count_small": True, "groups": None, "memory_limit": "1GiB"}
    others = ["min_cluster_size", "max_cluster_size", "missing", "missing_value", "max_distance", "min_similarity"]
    assert calls == [given | dict.fromkeys(others)]


@pytest.mark.parametrize("name", ["tree.png", full("tree.svg"), full("tree.pdf")])
def test_plot(run, name):
    assert run("points.csv", "--columns", "x,y", "--plot", name)[0] == 0
    assert Path(name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "give one table of points, or --demo"),
        (["points.csv", "--demo"], 2, "give one table of points, or --demo"),
        (["--demo", "--n-clusters", "3"], 2, "--demo does not take --n-clusters"),
        (["nowhere.csv"], 2, "no such file: nowhere.csv"),
        (["."], 2, "cannot read .: it is a folder"),
        ([os.devnull], 1, f"cannot read {os.devnull}: it is empty"),
        (["points.csv", "--output", "labels.txt"], 2, "cannot write labels.txt: the suffix must be one of .csv"),
        (["points.csv", "--output", "gone/labels.csv"], 2, "cannot write gone/labels.csv: no such folder: gone"),
        (["points.csv", "--plot", "tree.bmp"], 2, "cannot write tree.bmp: the suffix must be one of .pdf"),
        (["points.csv", "--output", "points.csv"], 2, "the input and the files to write must all be different"),
        (["points.csv", "--n-clusters", "2", "--distance-threshold", "1"], 2, "not allowed with argument --n-clusters"),
        (["points.csv", "--n-clusters", "two"], 2, "invalid int value: 'two'"),
        (["points.csv", "--distance-threshold", "1,,2"], 2, "invalid float value: '1,,2'"),
        (["points.csv", "--hdbscan", "--n-clusters", "2"], 2, "--hdbscan does not take --n-clusters\n"),
        (["points.csv", "--hdbscan", "--groups", "x"], 2, "--hdbscan does not take --groups"),
        (["points.csv", "--allow-single-cluster"], 2, "without --hdbscan, does not take --allow-single-cluster"),
        (["points.csv", "--hdbscan", "--count-large"], 2, "--hdbscan does not take --count-large"),
        (["points.csv", "--columns", "x", "--n-clusters", "2", "--max-cluster-size", "9"], 2, "not take --n-clusters"),
        (["points.csv", "--max-distance", "9", "--plot", "a.png"], 2, "one tree, does not take --max-distance"),
        (["points.csv", "--columns", "x,z"], 1, "unknown column 'z'; the table has 'x', 'y', 'name'"),
        (["points.csv", "--columns", "x,name"], 1, "name"),
        (["ragged.csv"], 1, "cannot read ragged.csv: "),
        (["empty.csv"], 1, "cannot read empty.csv: "),
        (["broken.parquet"], 1, "cannot read broken.parquet: "),
    ],
)
def test_errors_are_one_line(run, folder, arguments, status, message):
    Path("ragged.csv").write_text("x,y\n1,2\n3,4,5\n")
    Path("empty.csv").write_text("")
    Path("broken.parquet").write_bytes(b"PAR1 no PAR1")
    before = files(folder)
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert err.startswith("rapids_slink: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert files(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "x,y", "--n-clusters", "7"], "n_clusters"),
        (["--columns", "x,y", "--n-clusters", "0"], "n_clusters"),
        (["--columns", "x,y", "--metric", "nonsense"], "nonsense"),
        (["--columns", "x,hole"], "'hole'"),
        (["--columns", "x,name", "--metric", "levenshtein"], "takes one column of text, and there are more"),
        (["--columns", "x,y", "--min-cluster-size", "0"], "min_cluster_size must be at least 1"),
        (["--columns", "x,y", "--output", "labels.csv", "--label", "y"], "two columns 'y': name the labels otherwise"),
    ],
)
def test_errors_of_a_fit_follow_what_was_read(run, arguments, message):
    POINTS.assign(hole=[1, 2, None, 4, 5, 6]).to_csv("points.csv", index=False)
    status, out, err = run("points.csv", *arguments)
    assert (status, out) == (1, "")
    read, error = err.splitlines()
    assert read.startswith("points.csv: 6 rows of 2 columns")
    assert error.startswith("rapids_slink: error: ")
    assert message in error


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_no_gpu_is_an_error(run):
    status, _, err = run("points.csv", "--columns", "x,y", "--device", "cuda")
    assert status == 1
    assert err.startswith("rapids_slink: error: device='cuda' needs an NVIDIA GPU")


def test_failed_write_leaves_the_old_file(folder):
    target = folder / "labels.csv"
    target.write_text("old")
    before = files(folder)

    def fail_half_way(draft):
        draft.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(target, fail_half_way)
    assert target.read_text() == "old"
    assert files(folder) == before


def test_demo(run):
    status, out, err = run("--demo")
    assert (status, err) == (0, "")
    assert "33,961 cities" in out
    assert "1        Shanghai" in out
    assert "seconds" in out
    assert f"The map is in the file {Path('cities.png').resolve()}." in out
    assert Path("cities.png").read_bytes().startswith(b"\x89PNG")


def test_demo_without_matplotlib(run, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    before = files(folder)
    status, out, err = run("--demo")
    assert (status, err) == (0, "")
    assert "No map was drawn: matplotlib is missing" in out
    assert files(folder) == before
    status, _, err = run("points.csv", "--plot", "tree.png")
    assert status == 2
    assert "--plot needs matplotlib" in err


def test_parquet_without_pyarrow(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = run("points.csv", "--columns", "x,y", "--output", "labels.parquet")
    assert status == 2
    assert "Parquet files need pyarrow" in err


COMMAND = [sys.executable, "-m", "rapids_slink", "--device", "cpu", "--columns", "x,y"]


def as_process(*arguments, command=COMMAND, **how):
    """Run a process in the working folder: (exit status, stdout, stderr)."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **how.pop("env", {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    done = subprocess.run([*command, *arguments], env=environment, check=False, **streams, timeout=300)
    return done.returncode, *((said or b"").decode().replace(f"{TEXT}\n", "") for said in (done.stdout, done.stderr))


@pytest.mark.full
def test_as_a_module(folder):
    status, out, err = as_process("points.csv")
    assert (status, err) == (0, SAID)
    assert "6 rows in 2 clusters:" in out
    assert as_process("--version")[1] == f"rapids_slink {rapids_slink.__version__}\n"


LABELS = """row,x,y,name,label
0,0.0,0.0,ab,0
1,0.1,0.0,cd,0
2,0.3,0.0,ef,0
3,5.0,5.0,gh,1
4,5.4,5.0,ij,1
5,9.0,0.0,kl,1
"""


@pytest.mark.parametrize(("name", "pack"), combinations(("-", "/dev/stdin"), (bytes, gzip.compress), quick=[]))
def test_the_standard_input(folder, name, pack):
    if name != "-" and not Path(name).exists():
        pytest.skip("the system has no such file")
    status, _, err = as_process(name, "--output", "labels.csv", input=pack(Path("points.csv").read_bytes()))
    assert (status, err) == (0, SAID.replace("points.csv", "standard input" if name == "-" else name))
    assert Path("labels.csv").read_text() == LABELS


@pytest.mark.full
def test_no_standard_input(folder):
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND]
    status, out, err = as_process("-", command=closed)
    assert (status, out, err) == (1, "", "rapids_slink: error: cannot read standard input: it is closed\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("table", [*map(full, ("points.csv", "points.parquet"))])
def test_a_pipe_with_a_name(folder, table):
    """Such as a shell's <(...) is."""
    os.mkfifo("pipe")
    with subprocess.Popen(["cp", table, "pipe"]) as writer:
        try:
            status, _, err = as_process("pipe", "--output", "labels.csv")
            assert (status, writer.wait(60)) == (0, 0), err
        finally:
            writer.kill()  # it waits for a reader
    assert pd.read_csv("labels.csv")["label"].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.full
@pytest.mark.parametrize(("stdout", "stderr"), [(True, False), (False, True), (True, True)])
def test_readers_that_have_gone(folder, stdout, stderr):
    """Such as ``head``: the run ends well, and says nothing of it."""
    read, write = os.pipe()
    os.close(read)
    gone = {name: write for name, is_gone in (("stdout", stdout), ("stderr", stderr)) if is_gone}
    try:
        status, out, err = as_process("points.csv", "--output", "labels.csv", **gone)
        assert (status, err) == (0, "" if stderr else SAID)
        assert out == ("" if stdout else "6 rows in 2 clusters, written to labels.csv\n")
        assert Path("labels.csv").read_text() == LABELS
        assert as_process("--help", **gone)[::2] == (0, "")
    finally:
        os.close(write)


@pytest.mark.full
def test_encodings_without_a_name(folder):
    """What the terminal cannot show is escaped, and is in the file as it was."""
    POINTS.set_axis(pd.Index(["Málaga", "東京", *"abcd"], name="é")).to_csv("points.csv")
    where = {"env": {"PYTHONIOENCODING": "ascii"}}
    status, out, err = as_process("points.csv", "--index-column", "é", "--output", "größe.csv", **where)
    assert (status, out) == (0, "6 rows in 2 clusters, written to gr\\xf6\\xdfe.csv\n")
    assert "index '\\xe9'" in err
    text = Path("größe.csv").read_text(encoding="utf-8")
    assert text.startswith("é,x,y,name,label\nMálaga,0.0,0.0,ab,0\n東京,0.1,0.0,cd,0\n")


@pytest.mark.full
def test_demo_without_an_encoding(folder):
    status, out, err = as_process(command=[*COMMAND[:5], "--demo"], env={"PYTHONIOENCODING": "ascii"})
    assert (status, err) == (0, "")
    assert "S\\xe3o Paulo" in out


# --- the demo: the data that comes with the package, and what is made of it


def test_cities():
    cities = load_cities()
    assert list(cities.columns) == ["name", "country", "latitude", "longitude", "population"]
    assert cities["latitude"].between(-90, 90).all()
    assert cities["longitude"].between(-180, 180).all()
    assert cities["population"].min() >= 15_000
    assert not cities.isna().any(axis=None)
    assert "Windhoek" in set(cities.loc[cities["country"] == "NA", "name"])  # Namibia, not a missing value
    assert (Path(rapids_slink.__file__).parent / "datasets" / "cities.csv.gz").stat().st_size < 2**20


def test_belts(device):
    """Within a belt steps suffice that are shorter than `STEP`; between belts they do not."""
    cities, model = cli.cluster_cities(device)
    tree = on_host(model.mst_)
    belt = cities["belt"].to_numpy()
    same = belt[tree["src"]] == belt[tree["dst"]]
    assert np.array_equal(same, tree["weight"] * EARTH_RADIUS < cli.STEP)
    largest = cli.largest_belts(cities)
    assert len(largest) == cli.BELTS
    for found, row in largest.iterrows():
        people = cities.loc[cities["belt"] == found, "population"]
        assert (people.sum(), people.size) == (row["people"], row["cities"])


@pytest.mark.full
def test_map(tmp_path):
    cities, model = cli.cluster_cities("cpu")
    path = tmp_path / "cities.svg"
    cli.map_of(cities, model).savefig(path, dpi=110)
    text = path.read_text()
    for name in cli.largest_belts(cities)["around"]:
        assert f" {name} -->" in text, name


def test_map_has_no_line_over_it():
    """Belts are numbered, and a legend outside the map names them: nothing but numbers lies over places."""
    Figure = pytest.importorskip("matplotlib.figure").Figure
    cities = load_cities().assign(belt=lambda frame: np.arange(len(frame)) // 20)
    axes = Figure().subplots()
    cli._draw_world(cities, axes)
    axes.figure.canvas.draw()
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(1, cli.BELTS + 1)]
    assert all(text.arrow_patch is None for text in axes.texts)
    assert not axes.lines
    assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


# --- rapids doctor


def test_rapids_cli_finds_it():
    """By the name of the group of entry points that rapids-cli reads, and called as it calls checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["rapids_doctor_check"]["rapids_slink"].split(":")
    assert getattr(import_module(module), name) is cli.check
    assert cli.check.__doc__.splitlines()[0]  # which rapids-cli prints


@pytest.mark.gpu
def test_a_gpu_passes():
    assert cli.check(verbose=True, later=1) == "the heights of 4,999 merges are the CPU's to the last bit"


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_no_gpu_fails():
    with pytest.raises(DeviceUnavailableError, match="needs an NVIDIA GPU with CuPy and cuDF"):
        cli.check()


@pytest.mark.parametrize(("error", "text"), [(0.0, None), (1e-9, "heights differ in 4999 merges")])
def test_other_heights_fail(error, text, monkeypatch):
    """Here the GPU is a CPU that adds an error."""
    fit = api.fit

    class Hierarchy:
        def __init__(self, Z):
            self.to_scipy = lambda: Z

    def fit_on(rows, n_clusters, device):
        model = fit(rows, n_clusters=n_clusters, device="cpu")
        return Hierarchy(model.to_scipy() + error * (device == "cuda")) if error else model

    monkeypatch.setattr(api, "fit", fit_on)
    if text is None:
        assert "4,999" in cli.check()
    else:
        with pytest.raises(RuntimeError, match=text):
            cli.check()

"""The benchmark harness: cases are as named, wrong results are told, files say what was measured on what."""

import dataclasses
import importlib.util
import json
import math
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hard_cases import full
from metric_cases import PACKED
from scipy.spatial import cKDTree

from bench import __main__ as harness
from bench import cases, checks, choice, regression, report, results
from bench.cases import CASES, uniform
from bench.cluster import cluster_of
from bench.peers import NAMES, faiss_pairs, peers_of, scipy_products
from bench.sparse import sketches, tfidf
from bench.stages import LISTED, READERS, STAGES, GraphWork, TreeWork, Work, work_on
from bench.text import receptors
from rapids_slink.forced import Forced
from rapids_slink.metrics import METRICS
from rapids_slink.runtime.device import CPU

QUICK = ["--repeats", "1", "--budget", "1", "--date", "2001-02-03", "--commit", "0" * 40]


@pytest.mark.full
def test_file_says_what_was_measured_on_what(tmp_path, device):
    given = ["--cases", "digits", "rmat-12-16", "--stages", "fit", "cut", "spanning_tree", "--peers", "scipy"]
    assert harness.main([*given, "--out", str(tmp_path), "--device", device, *QUICK]) == 0
    run = json.loads(next(tmp_path.glob("2001-02-03-*.json")).read_text())
    assert (run["commit"], run["driver"] is None) == ("0" * 40, device == "cpu")
    assert {"numpy", "scipy", "rapids_slink"} <= set(run["versions"])
    assert {(row["case"], row["stage"], row["n"]) for row in run["results"]} == {
        ("digits", "fit", 1797), ("digits", "cut", 1797), ("digits", "spanning_tree", 1797),
        ("rmat-12-16", "spanning_tree", 4096),
    }  # fmt: skip
    assert all(row["exact"] and row["checked_against"] and row["device"] == run["device"] for row in run["results"])
    assert all(("scipy" in row["peers"]) == (device == "cpu") for row in run["results"])  # a host's, beside a host
    assert all(row["seconds"] >= row["least_seconds"] > 0 for row in run["results"])


def test_later_result_replaces_the_earlier_one(tmp_path):
    """One without peers keeps theirs, and the commit that they were measured beside."""
    header = {"commit": "a", "date": "2001-02-03", "device": "NVIDIA H100 80GB HBM3", "driver": "580", "versions": {}}
    for commit, peers in (("a", {"x": 9.0}), ("b", {}), ("c", {})):
        path = results.save(tmp_path, {**header, "commit": commit}, {"case": "d", "stage": "fit", "peers": peers})
    (row,) = report.load(tmp_path)
    assert path.name == row["file"] == "2001-02-03-h100-80gb-hbm3.json"
    assert (row["commit"], row["peers"], row["peers_commit"]) == ("c", {"x": 9.0}, "a")


def test_nothing_is_saved_unless_a_folder_is_given(monkeypatch, capsys, tmp_path):
    """What git tracks stays as it is."""
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in results.FOLDER.iterdir()}
    assert harness.main(["--cases", "digits", "--stages", "cut", "--peers", "--device", "cpu", *QUICK]) == 0
    assert "digits" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in results.FOLDER.iterdir()} == before
    assert not [*tmp_path.iterdir()]


def test_wrong_results_are_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(checks.CHECKS, "cut", lambda work, result: (False, "nothing"))
    arguments = ["--cases", "digits", "--stages", "cut", "--peers", "--device", "cpu", "--out", str(tmp_path), *QUICK]
    assert harness.main(arguments) == 1
    assert "NOT EXACT" in capsys.readouterr().out
    assert "| **no** |" in report.table(report.load(tmp_path))


def test_a_way_that_was_chosen_wrongly_is_told():
    def is_fast(**seconds):
        return choice.is_fast({way: choice.Answer(time) for way, time in seconds.items()})

    assert is_fast(chosen=0.301, tree=0.2, tiles=float("inf"))
    assert is_fast(chosen=0.0029, tree=0.001)  # so little is noise
    assert not is_fast(chosen=0.31, tree=0.2)
    assert set(choice.QUICK) < set(choice.CASES)
    assert len(choice.QUICK) == 8
    assert len(choice.CASES) == 40
    fields = {field.name for field in dataclasses.fields(Forced)}
    assert all(ways.keys() <= fields for case in choice.CASES.values() for ways in case.ways.values())


def test_ways_are_compared(monkeypatch, capsys):
    """In processes of their own. One that fails or has no memory ends no run; only an error changes the exit status."""
    case = choice.CASES["scaling-1000-3"]
    assert choice.called(case, case.rows(100), {}, "cpu") == "pairs"
    monkeypatch.setitem(case.ways, "refused", {"tree": "lists", "search": "all pairs", "chunk_bytes": 2**10})
    answers = choice.compared("scaling-1000-3", "cpu")
    assert answers.keys() == {"chosen", *case.ways}
    assert 0 < answers["chosen"].seconds < float("inf")
    assert answers["refused"] == (float("inf"), "", "")
    assert not any(answer.error for answer in answers.values())
    monkeypatch.setitem(case.ways, "failing", {"nonsense": 1})
    assert choice.main(["--device", "cpu", "--cases", "scaling-1000-3"]) == 1
    assert "failing TypeError: " in capsys.readouterr().out


def test_a_regression_of_half_is_told(monkeypatch, capsys):
    seconds = {"a": (1.49, 1.0), "b": (0.2, 0.1)}
    monkeypatch.setattr(regression, "in_turn", lambda first, second, case, stage: seconds[case])
    folder = str(regression.ROOT)
    assert regression.main([folder, "--cases", "a", "--stages", "fit"]) == 0
    assert regression.main([folder, "--cases", "a", "b", "--stages", "fit"]) == 1
    assert regression.main([folder, "--cases", "a", "--stages", "fit", "--limit", "1.4"]) == 1
    assert [line.endswith("SLOWER") for line in capsys.readouterr().out.splitlines()] == [False, False, True, True]
    assert set(regression.CASES) <= set(CASES)
    assert set(regression.STAGES) <= set(STAGES)


@pytest.mark.full
def test_two_trees_are_measured_in_turn():
    ours, theirs = regression.in_turn(regression.ROOT, regression.ROOT, "tiny-100-8", "fit")
    assert 0 < min(ours, theirs) < max(ours, theirs) < 1
    assert all(map(math.isnan, regression.in_turn(regression.ROOT, regression.ROOT, "tiny-100-8", "none")))


CHECKED = [stage for stage in STAGES if stage not in (*READERS, "dask")]


@pytest.mark.parametrize("stage", [*CHECKED[::2], *map(full, [*CHECKED[1::2], "dask"])])
def test_checks_can_fail(stage):
    """One unit in the last place, or one label, must be enough."""
    work = Work(CASES["digits"], CPU, None)
    with cluster_of(1, CPU) if stage == "dask" else nullcontext():
        result = STAGES[stage](work)()
        merges = result.to_scipy() if stage in ("fit", "fit-array", "hdbscan", "dask") else None
    assert stage == "dask" or checks.CHECKS[stage](work, result)[0] is True
    if merges is not None:
        merges[3, 2] = np.nextafter(merges[3, 2], np.inf)
        result = SimpleNamespace(to_scipy=lambda: merges)
    elif stage == "append":
        wrong = result.linkage_.assign(height=np.nextafter(result.linkage_["height"], np.inf))
        result = SimpleNamespace(linkage_=wrong)
    elif stage == "groups":
        wrong = result.mst_.assign(weight=np.nextafter(result.mst_["weight"], np.inf))
        result = SimpleNamespace(mst_=wrong)
    elif stage == "count":
        result += 1
    elif stage in LISTED:
        distances, ids = result
        wrong = ids[:, ::-1] if ids.shape[1] > 1 else ids + 1
        assert checks.CHECKS[stage](work, (distances, wrong))[0] is False
        result = np.nextafter(distances, np.inf), ids
    elif stage in ("friends", "dbscan", "deduplicate"):
        result[5] += 1
    elif stage in ("cut", "cuts", "hdbscan_many"):
        result = result.copy()
        result.iloc[5] = 3
    else:
        column = "height" if stage == "linkage" else "weight"
        result = result.assign(**{column: np.nextafter(result[column], np.inf)})
    assert checks.CHECKS[stage](work, result)[0] is False


@pytest.mark.parametrize("case", cases.METRICS, ids=lambda case: case.name)
def test_check_of_a_metric_can_fail(case):
    """By what SciPy or scikit-learn rounds otherwise, and no more."""
    work = Work(replace(case, rows=lambda *given: case.rows(*given)[:300]), CPU, None)
    assert checks.heights(work, work.model) == (True, "scipy.cluster.hierarchy.linkage")
    heights = work.model.to_scipy()
    off = {"minkowski": 9 * np.spacing(heights[200, 2]), "haversine": 1e-14}
    heights[200, 2] += off.get(case.metric, np.spacing(heights[200, 2]))
    assert checks.heights(work, SimpleNamespace(to_scipy=lambda: heights))[0] is False


@pytest.fixture
def as_of_many_rows(set_constants):
    """Few rows are checked as more than SciPy takes are."""
    set_constants(checks, SCIPY_ROWS=0, ALL_PAIRS_WORK=0, CYCLE_ROWS=500)


@pytest.mark.parametrize(
    ("case", "rows"),
    [("gauss-20k-16", cases.gauss(500, 3, np.float32)), full("places-20k-haversine", cases.places(500))],
)
@pytest.mark.usefixtures("as_of_many_rows")
def test_check_of_large_cases_can_fail(case, rows):
    """A tree that is not minimal, weights that are off, an edge that is missing."""
    work = Work(replace(CASES[case], rows=rows), CPU, None)
    tree, metric = work.tree, work.case.metric
    assert checks.heights(work, work.model) == (True, "cycle property of 500 rows' pairs with all others")
    lengths = np.array([checks._length(work.points, i, i + 1, metric == "haversine") for i in range(499)])
    path = tree.assign(src=range(499), dst=range(1, 500), weight=lengths if metric == "haversine" else lengths**0.5)
    for wrong in (path, tree.assign(weight=tree["weight"] + 1e-14), tree.iloc[1:]):
        assert not checks.cycles(work.points, wrong, np.sort(wrong["weight"].to_numpy()), metric)


@pytest.mark.usefixtures("as_of_many_rows")
def test_check_of_hdbscan_of_many_rows_can_fail():
    """A tree of other distances, and one of mutual reachability that is not minimal."""
    work = Work(replace(CASES["blobs-200k-2"], rows=cases.blobs(500, 2)), CPU, None)
    clusters = STAGES["hdbscan"](work)()
    assert checks.mutual_heights(work, clusters)[0] is True
    assert checks.mutual_heights(work, work.model)[0] is False
    points, m = work.points.astype(np.float64), work.case.min_samples
    core, right = checks._core_squares(work)
    assert right
    np.testing.assert_allclose(core**0.5, cKDTree(points).query(points, m + 1)[0][:, -1])
    path = np.maximum([checks._length(points, i, i + 1, False) for i in range(499)], np.maximum(core[1:], core[:-1]))
    tree = clusters.mst_.assign(src=range(499), dst=range(1, 500), weight=path**0.5)
    assert not checks.cycles(points, tree, np.sort(path**0.5), core=core)


@pytest.mark.parametrize("name", ["unit-20k-768-planted", "uniform-300k-3-near"])
def test_faiss_finds_the_same_pairs(name):
    pytest.importorskip("faiss", reason="faiss is not installed")
    made = {"unit-20k-768-planted": cases.planted(500, 64), "uniform-300k-3-near": uniform(500, 3)}
    work = Work(replace(CASES[name], rows=made[name], near=0.05), CPU, None)
    src, dst = faiss_pairs(work)()
    assert (
        sorted(zip(src.tolist(), dst.tolist(), strict=True))
        == STAGES["pairs"](work)()[["src", "dst"]].apply(tuple, axis=1).tolist()
    )
    assert len(src) > 0


def test_text():
    work = Work(replace(CASES["receptors-20k"], rows=cases.receptors(300), n_clusters=300, near=4), CPU, None)
    assert work.stages == {"fit", "pairs"}
    assert list(work.table) == ["text"]
    found = STAGES["pairs"](work)()
    assert len(STAGES["fit"](work)().labels_) == 300
    grouped = Work(replace(CASES["receptors-8m-grouped"], rows=cases.receptors(300), n_clusters=300), CPU, None)
    assert STAGES["groups"](grouped)().groups_["rows"].sum() == 300
    assert len(set(cases.words(300)(None, 0)[:, 0])) > 250
    if importlib.util.find_spec("rapidfuzz") is None:
        assert checks.near_pairs(work, found) == (None, None)
        return
    assert checks.near_pairs(work, found) == (True, "rapidfuzz of 64 rows")
    everything = found.iloc[:0]
    assert checks.near_pairs(work, everything)[0] is False


def test_peers_are_asked_for_what_they_measure(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    text = work_on(replace(CASES["receptors-20k"], rows=receptors(50)), CPU, None)
    box = work_on(replace(CASES["uniform-10m-3-box"], rows=uniform(50, 3)), CPU, None)
    plain = work_on(replace(box.case, box=None), CPU, None)
    for work, stage, names in (
        (text, "fit", set()),
        (text, "pairs", {"rapidfuzz"}),
        (text, "groups", set()),
        (box, "friends", set()),
        (plain, "friends", {"scipy", "pyfof"}),
        (plain, "pairs", {"scipy", "faiss"}),
        (plain, "fit", {"scipy", "fastcluster", "sklearn", "quitefastmst"}),
        (TreeWork(CASES["chain-1m"], CPU), "cut", {"scipy"}),
        (GraphWork(CASES["rmat-12-16"], CPU), "spanning_tree", {"scipy"}),
    ):
        assert {peer.name for peer in peers_of(stage, NAMES) if peer.can_do(work)} == names


def test_stages_that_take_a_tree_are_given_no_forest():
    case = replace(CASES["digits"], rows=uniform(50, 3))
    of_trees = {"linkage", "cut", "cuts"}
    assert of_trees <= work_on(case, CPU, None).stages
    assert not of_trees & work_on(replace(case, max_distance=0.1), CPU, None).stages


def test_check_of_a_graph_can_fail():
    work = GraphWork(CASES["rmat-12-16"], CPU)
    tree = STAGES["spanning_tree"](work)().sort_values("weight")
    assert checks.forest(work, tree)[0] is True
    assert checks.forest(work, tree.iloc[:-1])[0] is False
    assert checks.forest(work, tree.assign(weight=tree["weight"] + np.arange(len(tree)) // (len(tree) - 1)))[0] is False


@pytest.mark.parametrize("case", [case for case in cases.SPARSE if case.max_distance], ids=lambda case: case.name)
def test_check_of_sparse_rows_can_fail(case):
    """And SciPy's products, the peer, find the same pairs."""
    made = {"sketches-85k": sketches(400, 200), "tfidf-100k-50k": tfidf(400, 3000)}
    work = work_on(replace(case, rows=made[case.name], n_clusters=400), CPU, None)
    found = STAGES["pairs"](work)()
    assert checks.near_pairs(work, found)[0] is True
    assert checks.near_pairs(work, found.assign(weight=found["weight"] + 1e-9))[0] is False
    assert sorted(scipy_products(work)().tolist()) == found[["src", "dst"]].to_numpy().tolist()
    assert STAGES["fit"](work)().n_clusters_ == 400


@pytest.mark.full
def test_cases_are_seeded_and_as_named():
    assert {case.metric for case in cases.METRICS} == set(METRICS) - {"euclidean", *PACKED}
    named = [(CASES[name], re.match(r"[a-z]+-(\d+)(k?)-(\d+)\b", name)) for name in CASES if name[:3] != "nn1"]
    sizes = [(case, int(m[1]) * (1000 if m[2] else 1), int(m[3])) for case, m in named if m]
    small = [(case, n, d) for case, n, d in sizes if n <= 20_000 and isinstance(case, cases.Case)]
    assert len(small) > 20
    for case, n, d in small:
        points = case.points(None)
        assert points.shape == (n, d)
        np.testing.assert_array_equal(points, case.points(None))


def test_seconds_are_shown_in_three_digits():
    times = [report.shown(seconds) for seconds in (0.00193, 0.99999, 8.756, 1806.0)]
    assert times == ["1.93 ms", "1,000 ms", "8.76 s", "1,810 s"]


def test_every_shape_of_data_with_structure_has_noise():
    shapes = [case.name.split("-", 1)[1] for case in cases.STRUCTURED]
    assert {f"gauss-{shape}" for shape in shapes} <= set(CASES)
    assert all(CASES[f"gauss-{shape}"].rows.__name__ == "gauss" for shape in shapes)


def test_times_beside_noise_are_of_one_card():
    """And only of fits whose noise was measured there."""

    def row(case, seconds, device="A", **other):
        shape = {"n": 200_000, "d": 64, "file": "2001-02-03-a.json"}
        return {"case": case, "stage": "fit", "seconds": seconds, "device": device, **shape, **other}

    rows = [
        row("nested-200k-64", 0.03), row("line-200k-64", 0.02), row("gauss-200k-64", 0.02),
        row("core-200k-64", 9, "B"), row("core-200k-64", 9, rmm_pool=True), row("gauss-200k-64", 9, "B"),
        row("blobs-1m-8", 9), row("far-200k-64", 9, stage="connect"),
    ]  # fmt: skip
    first, second, *more = report.beside_noise(rows, "A").splitlines()[2:]
    link = "](bench/results/2001-02-03-a.json)"
    assert first == f"| nested-200k-64 | 200,000 × 64 | [30 ms{link} | [20 ms{link} | 1.5 |"
    assert second.startswith("| line-200k-64 |")
    assert second.endswith("| 1.0 |")
    assert not more
    assert report.beside_noise(rows, "C") == ""


def test_readme_table_is_current():
    every = report.load(results.FOLDER)
    rows, of_cpus = report.readme_rows(every), report.readme_cpu_rows(every)
    assert tuple(row["case"] for row in rows) == report.README_CASES
    assert {row["device"] for row in rows} == {report.README_CARD}
    assert tuple((row["case"], row["stage"]) for row in of_cpus) == report.README_CPU_CASES
    assert all(row["peers"] and row["exact"] and row["device"].endswith(", 2 cores") for row in of_cpus)
    text = report.README.read_text()
    assert report.filled(text, every) == text
    assert report.first_figure(rows).startswith("1,000,000 points of 128 features take ")

"""The benchmark harness, on its smallest case."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage, linkage
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import haversine_distances

import rapids_slink
from bench import __main__ as harness
from bench import arborx, cases, checks, ecl, references, report, results, sanitize
from bench.cases import CASES, DataMissingError
from bench.clock import Clock
from bench.cluster import cluster_of
from bench.first import First
from bench.peers import PEERS
from bench.stages import READERS, STAGES, GraphWork, Work, work_on
from bench.trees import TREES
from rapids_slink.dendrogram.cpu import merge_in_order
from rapids_slink.metrics import METRICS
from rapids_slink.runtime.device import CPU, Device

ROOT = Path(__file__).parent.parent
QUICK = ["--device", "cpu", "--repeats", "1", "--budget", "1", "--date", "2001-02-03", "--commit", "0" * 40]


#: All stages but the one that takes longest, which is `first` with an empty cache.
MEASURED = [stage for stage in STAGES if stage != "first-compiling"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder and the content of a result file of these stages on `digits`."""
    out = tmp_path_factory.mktemp("results")
    given = ["--cases", "digits", "--stages", *MEASURED, "--peers", "scipy", "--out", str(out)]
    assert harness.main([*given, *QUICK]) == 0
    (path,) = out.glob("*.json")
    assert path.name == "2001-02-03-cpu.json"
    return out, json.loads(path.read_text())


def test_result_file(measured):
    _, run = measured
    assert set(run) == {"commit", "date", "device", "driver", "versions", "results"}
    assert (run["commit"], run["date"], run["driver"]) == ("0" * 40, "2001-02-03", None)
    assert {"numpy", "scipy", "rapids_slink"} <= set(run["versions"])
    assert {result["stage"] for result in run["results"]} == set(MEASURED)
    for result in run["results"]:
        assert result["case"] == "digits"
        assert result["seconds"] >= result["least_seconds"] >= 0
        assert result["exact"] is True, result
        assert result["checked_against"]
        assert set(result["peers"]) <= {"scipy"}
        assert result["references"] == {}
        assert all(seconds > 0 for seconds in result["peers"].values())
    assert "scipy" in next(result for result in run["results"] if result["stage"] == "fit")["peers"]


def test_results_merge_by_case_and_stage(tmp_path):
    header = {"commit": "a", "date": "2001-02-03", "device": "NVIDIA H100 80GB HBM3", "driver": "580", "versions": {}}
    alone = {"stage": "fit", "peers": {}}
    results.save(tmp_path, header, {"case": "b", "stage": "fit", "peers": {"x": 9.0}, "seconds": 1.0})
    results.save(tmp_path, header, {"case": "a", **alone, "seconds": 2.0})
    path = results.save(tmp_path, {**header, "commit": "b"}, {"case": "b", **alone, "seconds": 4.0})
    path = results.save(tmp_path, {**header, "commit": "c"}, {"case": "b", **alone, "seconds": 3.0})
    assert path.name == "2001-02-03-h100-80gb-hbm3.json"
    found = [(r["case"], r["seconds"], r["commit"]) for r in json.loads(path.read_text())["results"]]
    assert found == [("a", 2.0, "a"), ("b", 3.0, "c")]
    peers = [(r["peers"], r.get("peers_commit")) for r in json.loads(path.read_text())["results"]]
    assert peers == [({}, None), ({"x": 9.0}, "a")]
    path = results.save(tmp_path, {**header, "date": "2001-03-01"}, {"case": "b", **alone, "seconds": 2.0})
    (later,) = json.loads(path.read_text())["results"]
    assert (later["peers"], later["peers_commit"], later["seconds"]) == ({"x": 9.0}, "a", 2.0)
    for seconds in (1.5, 1.0):
        results.save(
            tmp_path, {**header, "date": "2001-03-01"}, {"case": "b", **alone, "seconds": seconds, "rmm_pool": True}
        )
    found = [(r["seconds"], r["peers"]) for r in json.loads(path.read_text())["results"]]
    assert found == [(2.0, {"x": 9.0}), (1.0, {})]
    assert [row["seconds"] for row in report.load(tmp_path)] == [2.0, 2.0, 1.0]


def test_results_of_another_cpu_take_the_place_of_the_last_ones(tmp_path):
    """But not their peers."""
    header = {"commit": "a", "date": "2001-02-03", "device": "one CPU", "driver": None, "versions": {}}
    fit = {"case": "b", "stage": "fit", "peers": {"x": 9.0}, "seconds": 1.0}
    for result in (fit, {**fit, "stage": "knn"}, {**fit, "case": "c"}):
        results.save(tmp_path, header, result)
    another = {**header, "device": "another CPU"}
    results.save(tmp_path, another, {**fit, "peers": {}, "seconds": 2.0})
    results.save(tmp_path, {**another, "date": "2001-03-01"}, {**fit, "stage": "knn", "peers": {}, "seconds": 3.0})
    found = [(row["stage"], row["case"], row["seconds"], row["peers"], row["device"]) for row in report.load(tmp_path)]
    assert found == [
        ("fit", "b", 2.0, {}, "another CPU"), ("fit", "c", 1.0, {"x": 9.0}, "one CPU"),
        ("knn", "b", 3.0, {}, "another CPU"),
    ]  # fmt: skip


def test_results_without_peers_are_saved_again(tmp_path):
    """Those of `bench.recipe` have none at all."""
    header = {"commit": "a", "date": "2001-02-03", "device": "some CPU", "driver": None, "versions": {}}
    for others in (1, 2):
        path = results.save(tmp_path, header, {"case": "c", "stage": "recipe", "others": others})
    assert [result["others"] for result in json.loads(path.read_text())["results"]] == [2]


def test_wrong_results_are_told(measured, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(checks.CHECKS, "cut", lambda work, result: (False, "nothing"))
    arguments = ["--cases", "digits", "--stages", "cut", "--peers", "--out", str(tmp_path), *QUICK]
    assert harness.main(arguments) == 1
    assert "NOT EXACT" in capsys.readouterr().out


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in READERS])
def test_checks_can_fail(stage):
    """One unit in the last place, or one label, must be enough."""
    work = Work(CASES["digits"], CPU, None)
    with cluster_of(1, CPU) if stage == "dask" else nullcontext():
        result = STAGES[stage](work)()
        merges = result.to_scipy() if stage == "dask" else None
    if stage in ("fit", "hdbscan", "dask"):
        merges = result.to_scipy() if merges is None else merges
        merges[3, 2] = np.nextafter(merges[3, 2], np.inf)
        result.to_scipy = lambda: merges
    elif stage in ("cut", "cuts"):
        result = result.copy()
        result.iloc[5] = 3
    else:
        column = "height" if stage == "linkage" else "weight"
        result = result.assign(**{column: np.nextafter(result[column], np.inf)})
    assert checks.CHECKS[stage](work, result)[0] is False


def test_check_of_a_new_process_can_fail():
    work = Work(CASES["tiny-100-8"], CPU, None)
    heights = rapids_slink.fit(work.points, device="cpu").to_scipy()[:, 2]
    assert checks.first_heights(work, First(1.0, heights))[0] is True
    heights[3] = np.nextafter(heights[3], np.inf)
    assert checks.first_heights(work, First(1.0, heights))[0] is False


def small(case, n=300):
    """A case with few rows."""
    return Work(replace(case, rows=lambda folder, extra: case.rows(folder, extra)[:n]), CPU, None)


def test_every_metric_has_a_case():
    assert {case.metric for case in cases.METRICS} == set(METRICS) - {"euclidean"}
    assert all(len(case.points(None)) == 20_000 for case in cases.METRICS)


@pytest.mark.parametrize("case", cases.METRICS, ids=lambda case: case.name)
def test_check_of_a_metric_can_fail(case):
    """By what SciPy or scikit-learn rounds otherwise, and no more."""
    work = small(case)
    assert checks.heights(work, work.model) == (True, "scipy.cluster.hierarchy.linkage")
    heights = work.model.to_scipy()
    off = {"minkowski": 9 * np.spacing(heights[200, 2]), "haversine": 1e-14}
    heights[200, 2] += off.get(case.metric, np.spacing(heights[200, 2]))
    assert checks.heights(work, SimpleNamespace(to_scipy=lambda: heights))[0] is False


@pytest.mark.parametrize("name", ["scipy", "sklearn", "fastcluster", "quitefastmst"])
@pytest.mark.parametrize("case", cases.METRICS, ids=lambda case: case.name)
def test_peers_measure_by_the_metric_or_not_at_all(case, name):
    (peer,) = (peer for peer in PEERS if (peer.name, peer.stage) == (name, "fit"))
    pytest.importorskip(peer.module, reason=f"{name} is not installed")
    heights = small(case).model.to_scipy()[:, 2]
    cuts = np.flatnonzero(heights[1:] > heights[:-1]) + 1  # between different heights
    work = small(replace(case, n_clusters=300 - int(cuts[cuts < 290][-1])))
    refused = {
        "sklearn": ("minkowski", "inner_product", "braycurtis"),
        "fastcluster": ("chebyshev", "inner_product", "haversine"),
    }
    if name == "quitefastmst" or case.metric in refused.get(name, ()):
        with pytest.raises((NotImplementedError, KeyError), match=case.metric):
            peer.prepare(work)()
        return
    found = peer.prepare(work)()
    if name == "sklearn":
        assert adjusted_rand_score(found.labels_, work.model.labels_) == 1
    else:
        np.testing.assert_allclose(np.sort(found[:, 2]), heights, rtol=1e-14, atol=1e-14)


def test_groups_of_cases_have_tables_of_their_own():
    rows = [{"case": "digits", "stage": "fit"}, {"case": cases.METRICS[0].name, "stage": "fit"}]
    assert report.pick(rows, ["fit", "cut"]) == rows[:1]
    assert report.pick(rows, ["metrics"]) == rows[1:]


def test_what_an_rmm_pool_gave_is_shown_if_asked():
    alone = {"case": "digits", "stage": "fit", "seconds": 1.0, "peers": {}, "exact": True, "device": "x"}
    rows = [{**alone, "date": "", "file": "", "rmm_pool": pool} for pool in (False, True)]
    assert report.pick(rows, ["fit"]) == rows[:1]
    assert report.pick(rows, ["fit"], pool=True) == rows
    assert "| digits | fit, rmm pool |" in report.table(rows)


def test_graphs_are_as_named(tmp_path):
    """A graph has one stage; the others are passed over."""
    arguments = ["--stages", "fit", "spanning_tree", "--peers", "scipy", "--out", str(tmp_path), *QUICK]
    assert harness.main(["--cases", "road-263k", "rmat-12-16", *arguments]) == 0
    run = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert [(r["case"], r["stage"], r["n"]) for r in run["results"]] == [
        ("rmat-12-16", "spanning_tree", 4096),
        ("road-263k", "spanning_tree", 513 * 513),
    ]
    assert all(result["exact"] and "scipy" in result["peers"] for result in run["results"])
    road, scale_free = (CASES[name].edges(CPU) for name in ("road-263k", "rmat-12-16"))
    assert road["src"].size == pytest.approx(1.218 * 513 * 513, rel=0.01)
    assert set(np.unique(road["dst"] - road["src"])) == {1, 513}
    assert (np.diff(road["src"]) >= 0).all()
    assert (road["weight"].min(), road["weight"].max()) == (1, 9999)
    assert scale_free["src"].size == 16 << 12
    for ends in (scale_free["src"], scale_free["dst"]):
        assert np.mean(ends < 2048) == pytest.approx(0.76, abs=0.01)
        assert 3000 < ends.max() < 4096


@pytest.mark.parametrize("case", ["road-263k", "rmat-12-16"])
def test_check_of_a_graph_can_fail(case):
    work = GraphWork(CASES[case], CPU)
    tree = STAGES["spanning_tree"](work)()
    assert checks.forest(work, tree)[0] is True
    assert checks.forest(work, tree.iloc[1:])[0] is False
    heavier = tree["weight"].to_numpy().copy()
    heavier[0] += 1
    assert checks.forest(work, tree.assign(weight=heavier))[0] is False


def test_peer_with_a_clock_of_its_own(tmp_path, monkeypatch):
    """The file is that of the simple graph in both directions; the executable's time is what counts."""
    script = tmp_path / "ecl-mst"
    copied = tmp_path / "graph.egr"
    script.write_text(f"#!/bin/sh\ncp $1 {copied}\necho input: $1\necho 'Dev-:  0.012345678 s'\nsleep 60\n")
    script.chmod(0o755)
    (peer,) = (peer for peer in PEERS if peer.name == "ecl-mst")
    work = GraphWork(CASES["rmat-12-16"], CPU)
    monkeypatch.delenv("ECL_MST", raising=False)
    assert not peer.can_do(work)
    monkeypatch.setenv("ECL_MST", str(script))
    assert Clock(on_gpu=False, repeats=1).median(peer.prepare(work), peer.read) == 0.012345678
    content = np.fromfile(copied, np.int32)
    n, m = content[:2].tolist()
    start, (near, weight) = content[2 : n + 3], content[n + 3 :].reshape(2, m)
    simple = checks.simple(work)
    src, dst = (simple[end].to_numpy() for end in ("src", "dst"))
    both = np.zeros((n, n), np.float32)
    both[src, dst] = both[dst, src] = simple["weight"]
    rows = np.repeat(np.arange(n), np.diff(start))
    assert (n, m, start[0], start[-1]) == (4096, 2 * len(simple), 0, m)
    assert (src != dst).all()
    assert np.array_equal(weight.view(np.float32), both[rows, near])
    assert (np.diff(rows.astype(np.int64) * n + near) > 0).all()
    with pytest.raises(RuntimeError, match="printed no time"):
        ecl.run("true", copied)


@pytest.mark.parametrize(("name", "result"), [("arborx", "dendrogram"), ("arborx-mst", "tree")])
def test_peer_of_few_features(tmp_path, monkeypatch, name, result):
    """It is given a file of float32 points and asked for what its name says; its time is what counts."""
    script = tmp_path / "arborx"
    copied = tmp_path / "points.arborx"
    script.write_text(
        f"#!/bin/sh\ncp $1 {copied}\necho length 2.5\nif [ $2 = {result} ]; then echo seconds 0.00123; fi\n"
    )
    script.chmod(0o755)
    (peer,) = (peer for peer in PEERS if peer.name == name)
    gpu = SimpleNamespace(name="cuda")
    work = Work(CASES["scaling-100-3"], gpu, None)
    monkeypatch.delenv("ARBORX", raising=False)
    assert not peer.can_do(work)
    monkeypatch.setenv("ARBORX", str(script))
    assert peer.can_do(work)
    assert not peer.can_do(Work(CASES["digits"], gpu, None))  # of 64 features
    assert not peer.can_do(Work(CASES["scaling-100-3"], CPU, None))
    call = peer.prepare(work)
    assert Clock(on_gpu=False, repeats=1).median(call, peer.read) == 0.00123
    assert np.fromfile(copied, np.int32, 2).tolist() == [100, 3]
    np.testing.assert_array_equal(np.fromfile(copied, np.float32, offset=8), work.points.ravel())
    with pytest.raises(NotImplementedError, match="haversine"):
        peer.prepare(small(CASES["places-20k-haversine"]))
    arborx.write(copied, np.arange(4.0)[:, None])
    assert np.fromfile(copied, np.float32, offset=8).tolist() == [0, 0, 1, 0, 2, 0, 3, 0]
    with pytest.raises(RuntimeError, match="printed no time"):
        arborx.run("true", copied, result)


def test_peers_take_the_work_of_their_kind(monkeypatch):
    """A graph, not points, is what ECL-MST's file holds."""
    gpu = SimpleNamespace(name="cuda")
    (peer,) = (peer for peer in PEERS if peer.name == "ecl-mst")
    monkeypatch.setenv("ECL_MST", "true")
    assert peer.can_do(GraphWork(CASES["rmat-12-16"], gpu))
    assert not peer.can_do(Work(CASES["digits"], gpu, None))


def test_trees_have_their_stages(tmp_path, capsys):
    arguments = ["--cases", "tree-1k", "--stages", "fit", "linkage", "cut", "cuts", "--peers", "scipy"]
    assert harness.main([*arguments, "--out", str(tmp_path), *QUICK]) == 0
    assert "tree-1k: no stage fit" in capsys.readouterr().err
    found = json.loads((tmp_path / "2001-02-03-cpu.json").read_text())["results"]
    assert [(r["stage"], r["n"], r["exact"], list(r["peers"])) for r in found] == [
        ("cut", 1000, True, ["scipy"]),
        ("cuts", 1000, True, []),
        ("linkage", 1000, True, []),
    ]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_trees_are_trees(tree):
    """Seeded, and of one component."""
    small = replace(tree, n=100)
    columns = small.edges()
    assert {name: column.dtype for name, column in columns.items()} == {
        "src": np.int32,
        "dst": np.int32,
        "weight": np.float64,
    }
    assert merge_in_order(columns["src"], columns["dst"], 100, *np.empty((3, 99), np.int32)) == 99
    for name, column in small.edges().items():
        np.testing.assert_array_equal(column, columns[name])


def test_brute_force_tree():
    points = np.random.default_rng(1).integers(0, 5, (60, 3)).astype(float)
    squares = np.sort(checks.brute_force_tree(np.ascontiguousarray(points.T)))
    np.testing.assert_array_equal(np.sqrt(squares), linkage(points, "single")[:, 2])


def test_clock_keeps_its_budget(monkeypatch):
    """Each call takes a second."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    calls = []
    Clock(on_gpu=False, repeats=5, budget=60).median(lambda: calls.append(1))
    assert len(calls) == 5
    Clock(on_gpu=False, repeats=5, budget=0).median(lambda: calls.append(1))
    assert len(calls) == 6
    assert Clock(on_gpu=False, repeats=3).median(lambda: 7.0, read=float) == 7.0


def test_a_first_call_may_do(tmp_path, monkeypatch):
    """Without repeats the fit is made once."""
    calls, fit = [], STAGES["fit"]
    monkeypatch.setitem(STAGES, "fit", lambda work: lambda: calls.append(1) or fit(work)())
    given = ["--cases", "tiny-100-8", "--stages", "fit", "--peers", "--out", str(tmp_path), *QUICK, "--repeats", "0"]
    assert harness.main(given) == 0
    (result,) = json.loads(next(tmp_path.glob("*.json")).read_text())["results"]
    assert len(calls) == 1
    assert 0 < result["seconds"] == result["least_seconds"]
    assert result["exact"]


def test_clock_makes_short_calls_many(monkeypatch):
    """Each takes a sixteenth of a second and begins as long after the last: two warm up, five take 0.3 s in all."""
    ticks = itertools.count(step=1 / 16)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(Clock, "synchronize", lambda self: None)
    calls = []
    assert Clock(on_gpu=True, repeats=2).median(lambda: calls.append(1)) == 1 / 16
    assert len(calls) == 2 + 5


def test_missing_data_is_skipped(tmp_path, capsys):
    arguments = ["--cases", "mnist-60k-784", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *QUICK]
    assert harness.main(arguments) == 0
    assert "mnist.npz is missing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataMissingError, match=r"cities\.npy"):
        CASES["cities-235k-3"].points(None)


def test_cases_are_seeded_and_as_named():
    case = CASES["gauss-20k-16"]
    points = case.points(None)
    assert points.shape == (20_000, 16)
    np.testing.assert_array_equal(points, case.points(None))
    queries, searched = replace(case, n_queries=100).split(None)
    assert (queries.shape, searched.shape) == ((100, 16), (20_000, 16))
    np.testing.assert_array_equal(searched, points)


@pytest.mark.parametrize("d", [3, 96])
def test_directions(d, monkeypatch):
    """Of length one, the same whatever follows and whoever draws; without decay, uniform on the sphere."""
    points = cases.directions(2000, d, decay=0.5)(None, 0)
    assert (points.shape, points.dtype) == ((2000, d), np.float32)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-6)
    spread = points.std(axis=0)
    np.testing.assert_allclose(spread[0] / spread[2], 3**0.5, rtol=0.25)
    uniform = cases.directions(2000, d)(None, 0)
    np.testing.assert_allclose((uniform**2).mean(axis=0), 1 / d, rtol=0.15)
    monkeypatch.setattr(cases, "BLOCK", 600)
    blocks = cases.directions(2000, d)(None, 0)
    np.testing.assert_array_equal(blocks[:600], uniform[:600])
    assert len(np.unique(blocks, axis=0)) == 2000
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(cases.directions(1300, d)(None, 70), blocks[:1370])


def test_bytes_are_those_of_the_mixture():
    points = cases.mixture(3000, 20)(None, 10)
    found = cases.as_bytes(cases.mixture(3000, 20))(None, 10)
    assert (found.shape, found.dtype) == ((3010, 20), np.uint8)
    np.testing.assert_array_equal(found, np.rint(points * 32 + 128).clip(0, 255))
    assert 0 < np.isin(found, [0, 255]).mean() < 0.01


def test_large_cases_are_as_named():
    assert CASES["sphere-1.87m-3"].points(None).shape == (1_870_000, 3)
    assert {"bytes-1m-128", "sphere-10m-3", "deep-8m-96"} <= set(CASES)
    sizes = {"100": 100, "1k": 1000, "10k": 10_000}
    assert len([name for name in CASES if name.startswith("nn1-")]) == 9
    for name, n_queries in sizes.items():
        queries, searched = CASES[f"nn1-100k-{name}-64"].split(None)
        assert (queries.shape, searched.shape) == ((n_queries, 64), (100_000, 64))


def test_published_seconds_stand_beside_ours(tmp_path, monkeypatch, capsys):
    """They are of stages that their cases have, and are not taken for peers."""
    for case, stage in references.REFERENCES:
        assert stage in work_on(CASES[case], CPU, None).stages
    monkeypatch.setitem(references.REFERENCES, ("digits", "cut"), {"paper (A100)": 0.5})
    arguments = ["--cases", "digits", "--stages", "cut", "--peers", "--out", str(tmp_path), *QUICK]
    assert harness.main(arguments) == 0
    assert ", paper (A100) 0.5 s" in capsys.readouterr().out
    (row,) = report.load(tmp_path)
    assert (row["references"], row["peers"]) == ({"paper (A100)": 0.5}, {})
    assert "| paper (A100) 500 ms |" in report.table([row])


def test_list(capsys):
    assert harness.main(["--list"]) == 0
    assert {*CASES, *STAGES, "scipy"} <= set(capsys.readouterr().out.split())


def checked_by_cycles(name, rows, monkeypatch):
    """The points, the tree and the heights of a case that is small, and taken for a large one."""
    work = Work(replace(CASES[name], rows=rows), CPU, None)
    monkeypatch.setattr(checks, "SCIPY_ROWS", 0)
    monkeypatch.setattr(checks, "PRIM_WORK", 0)
    right, against = checks.heights(work, work.model)
    assert right
    assert "cycle" in against
    return work.points, work.tree, work.model.to_scipy()[:, 2]


def with_longer_edge(tree, distances_from):
    """The tree, but that a leaf is joined to its second nearest point."""
    leaf = np.flatnonzero(np.bincount(tree[["src", "dst"]].to_numpy().ravel()) == 1)[0]
    edge = np.flatnonzero((tree[["src", "dst"]] == leaf).any(axis=1))[0]
    distance, tree = distances_from(leaf), tree.copy()
    other = int(np.argsort(distance)[2])
    tree.iloc[edge] = leaf, other, distance[other]
    return tree


def test_sampled_cycles(monkeypatch):
    """A tree that is not minimal, one that does not span, and a weight in the last place."""
    points, tree, found = checked_by_cycles("gauss-20k-16", cases.gauss(500, 3, np.float32), monkeypatch)
    assert not checks.cycles(points, tree, np.nextafter(found, np.inf))
    raised = tree.assign(weight=np.nextafter(tree["weight"], np.inf))
    assert not checks.cycles(points, raised, np.nextafter(found, np.inf))
    assert not checks.cycles(points, tree.iloc[1:], found[1:])
    twice = tree.copy()
    twice.iloc[1] = twice.iloc[0]
    assert not checks.cycles(points, twice, np.sort(twice["weight"].to_numpy()))
    monkeypatch.setattr(checks, "CYCLE_ROWS", 500)
    assert checks.cycles(points, tree, found)

    def distances_from(leaf):
        return np.sqrt(sum((column - column[leaf]) ** 2 for column in points.astype(np.float64).T))

    longer = with_longer_edge(tree, distances_from)
    assert not checks.cycles(points, longer, np.sort(longer["weight"].to_numpy()))


def test_sampled_cycles_of_angles(monkeypatch):
    """A tree that is not minimal, and weights that are off by more than rounding."""
    monkeypatch.setattr(checks, "CYCLE_ROWS", 400)
    points, tree, found = checked_by_cycles("places-20k-haversine", cases.places(400), monkeypatch)
    assert not checks.cycles(points, tree.assign(weight=tree["weight"] + 1e-14), found + 1e-14, "haversine")
    longer = with_longer_edge(tree, lambda leaf: haversine_distances(points[leaf : leaf + 1], points)[0])
    assert not checks.cycles(points, longer, np.sort(longer["weight"].to_numpy()), "haversine")


def test_nearest_distances_in_blocks(monkeypatch):
    points = np.random.default_rng(0).integers(0, 256, (300, 5)).astype(np.uint8)
    rows = np.array([299, 0, 17])
    distance = np.linalg.norm(points[rows, None].astype(float) - points, axis=2)
    distance[np.arange(3), rows] = np.inf
    monkeypatch.setattr(checks, "BLOCK", 64)
    for k in (1, 44, 100):
        found = checks._nearest_distances(points[rows], points, k, rows)
        np.testing.assert_allclose(found, np.sort(distance, axis=1)[:, :k], rtol=1e-15)


# --- the steps of bench.sanitize, on a CPU, against others' answers


def check_cluster(found, points, metric="euclidean", min_samples=1, **_):
    distance = squareform(pdist(points.astype(float), metric))
    core = np.partition(distance, min_samples, axis=1)[:, min_samples] if min_samples > 1 else np.zeros(len(points))
    distance = np.maximum(distance, np.maximum(core[:, None], core))
    heights = linkage(squareform(distance, checks=False), "single")[:, 2]
    weight = found[4] if metric in ("cityblock", "cosine") else np.sqrt(found[4])
    np.testing.assert_array_equal(weight, heights)


def check_tree(found, points, min_samples=1):
    check_cluster((None, None, *found), points, min_samples=min_samples)


def check_tree_of_matrix(found, points):
    check_cluster((None, None, *found), points[:, :1], metric="cityblock")


def check_equal_rows(found, points):
    assert found == (np.unique(points, axis=0, return_index=True)[1].sum(),)


def check_nearest(found, queries, points, **_):
    distance = cdist(queries.astype(float), points.astype(float))
    np.testing.assert_array_equal(found[0], distance.argmin(axis=1))
    np.testing.assert_array_equal(found[1], distance.min(axis=1))


def check_connect(found, points, **_):
    distance = squareform(pdist(points.astype(float)))
    component = np.arange(len(points)) // 60
    distance[component[:, None] == component] = 0
    heights = linkage(squareform(distance, checks=False), "single")[:, 2]
    np.testing.assert_array_equal(np.sqrt(found[2]), heights[heights > 0])
    np.testing.assert_array_equal(np.sqrt(found[2]), distance[found[0], found[1]])


def check_interleave(found, points):
    np.testing.assert_array_equal(found[0], points)
    assert found[0].dtype == np.float32
    assert found[1].all()


def check_lists(found, points):
    squares = cdist(points[:5], points, "sqeuclidean")
    squares[np.arange(5), np.arange(5)] = -1
    order = np.argsort(squares, axis=1, kind="stable")[:, 1:]
    np.testing.assert_array_equal(found[0], order)
    np.testing.assert_array_equal(found[1], np.take_along_axis(squares, order, axis=1))


def check_forest(found, dtype, maximum=False, **_):
    """Kruskal's algorithm; of equal weights the earlier row comes first."""
    src, dst, weight = sanitize.graph(dtype)
    rows = np.argsort(-weight if maximum else weight, kind="stable")
    label, taken = np.arange(2000), []
    for row in rows:
        u, v = label[src[row]], label[dst[row]]
        if u != v:
            label[label == u] = v
            taken.append(row)
    np.testing.assert_array_equal(np.flatnonzero(found[0]), np.sort(taken))
    np.testing.assert_array_equal(found[2], taken)
    same = label[src[np.sort(taken)]]
    np.testing.assert_array_equal(found[1][:, None] == found[1], same[:, None] == same)
    assert found[3:] == (min(src.min(), dst.min()), max(src.max(), dst.max()), 0)


def check_merges(found, joins, n, **_):
    left, right, size, flat = found
    assert is_valid_linkage(np.column_stack([left, right, np.arange(n - 1), size]).astype(float))
    assert size[-1] == n
    for children in (left, right):
        np.testing.assert_array_equal(flat[children[: n // 2]], flat[n:])
    first = [flat.tolist().index(label) for label in range(n - n // 2)]
    assert first == sorted(first)
    assert set(flat.tolist()) == set(range(n - n // 2))


ORACLES = {
    sanitize.cluster: check_cluster,
    sanitize.cluster_by_metric: check_cluster,
    sanitize.tree_of_few: check_tree,
    sanitize.tree_of_boxes: check_tree,
    sanitize.cluster_given: check_tree_of_matrix,
    sanitize.equal_rows: check_equal_rows,
    sanitize.find_nearest: check_nearest,
    sanitize.find_for_few: check_nearest,
    sanitize.connect: check_connect,
    sanitize.interleave: check_interleave,
    sanitize.list_by_sorting: check_lists,
    sanitize.span: check_forest,
    sanitize.merge: check_merges,
}


@pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in sanitize.steps()])
def test_steps_of_sanitize(step):
    ORACLES[step.func](step(CPU), **step.keywords)


def test_sanitize_tells_a_difference():
    cpu, other = CPU, Device("other", np)
    assert not sanitize.differing(lambda device: (np.arange(3), 1), cpu, other)
    assert sanitize.differing(lambda device: (np.arange(3), device is cpu), cpu, other)


def test_sanitize_refuses_steps_that_it_has_not(capsys):
    with pytest.raises(SystemExit):
        sanitize.main(["nonsense"])
    assert "no step has 'nonsense' in its name" in capsys.readouterr().err


def test_sanitize_knows_the_kernels():
    kernels = sanitize.kernels_of_package()
    assert ("neighbors/filter/filter.cu", "append_candidates") in kernels
    assert ("spanning_tree/edges/edges.cu", "boruvka_rounds") in kernels
    text = "".join((sanitize.PACKAGE / source).read_text() for source in {source for source, _ in kernels})
    assert len(kernels) == text.count("__global__") > 40
    assert {name for kernel in kernels for name in kernel} >= sanitize.HOPPER_ONLY


@pytest.mark.gpu
def test_every_kernel_is_launched_and_right():
    """In a process of its own, as compute-sanitizer has it."""
    done = subprocess.run([sys.executable, "-m", "bench.sanitize"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
def test_peak_counts_all_that_a_call_takes():
    """Also what an earlier call's idle pool holds: the points, as float32, and more."""
    points = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    clock = Clock(on_gpu=True)
    first, second = (clock.warm_up(lambda: rapids_slink.knn_graph(points, 8, device="cuda"))[2] for _ in range(2))
    assert min(first, second) > points.nbytes
    assert second > 0.9 * first


def test_peers_of_few_features_are_asked_for_any_size():
    (peer,) = (peer for peer in PEERS if peer.name == "quitefastmst")
    assert peer.device == "cpu"
    peer = replace(peer, module="numpy")
    few, many = (
        Work(replace(CASES["digits"], rows=cases.gauss(n, d, np.float32)), CPU, None)
        for n, d in ((10**5, 3), (10**5, 9))
    )
    assert peer.can_do(few)
    assert not peer.can_do(many)


def test_table_comes_from_the_files(measured, tmp_path):
    folder, run = measured
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:start -->\nold\n<!-- bench:end -->\nafter\n")
    for _ in range(2):
        assert report.main(["--results", str(folder), "--readme", str(readme)]) == 0
    before, start, _, _, fit, _, end, after, _ = readme.read_text().split("\n")
    assert (before, start, end, after) == ("before", *report.MARKERS, "after")
    seconds = next(result["seconds"] for result in run["results"] if result["stage"] == "fit")
    assert fit.startswith(f"| digits | fit | {report.shown(seconds)} | scipy ")
    assert fit.endswith(f"| yes | {run['device']} | [2001-02-03](bench/results/2001-02-03-cpu.json) |")


def test_no_results_make_no_table(tmp_path):
    text = "a\n<!-- bench:start -->\n<!-- bench:end -->\nb\n"
    assert report.put_between(text, report.table(report.load(tmp_path))) == text
    with pytest.raises(ValueError, match="once each"):
        report.put_between("nothing", "")


def test_plot_comes_from_the_files(measured, tmp_path):
    pytest.importorskip("matplotlib")
    folder, _ = measured
    assert report.main(["--results", str(folder), "--plot", str(tmp_path / "out.png")]) == 0
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_readme_table_is_current():
    """The README's table is what the committed files make of it."""
    rows = report.pick(report.load(results.FOLDER), report.TABLE_STAGES)
    text = (Path(report.README)).read_text()
    assert report.put_between(text, report.table(rows)) == text

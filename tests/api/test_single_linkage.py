"""End to end: SciPy's dendrogram to the last bit on every hard case, cuts of it, and what a run reports."""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hard_cases import CASES, QUICK, case_dtypes, combinations, full
from scipy.cluster import hierarchy
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist
from spanning_trees import bits, by_appearance

from rapids_slink import fit
from rapids_slink.forced import force
from rapids_slink.report import Report
from rapids_slink.runtime import threads
from rapids_slink.runtime.device import to_host

FEW = 1100  # rows up to which all distances are compared with each other
EVERY_CASE = pytest.mark.parametrize(("name", "dtype"), case_dtypes())


@cache
def points(name, dtype):
    X = CASES[name](dtype)
    X.flags.writeable = False
    return X


@cache
def scipys(name, dtype):
    """SciPy's Z of a case."""
    X = points(name, dtype).astype(np.float64)
    return hierarchy.linkage(X, "single") if len(X) > 1 else np.empty((0, 4))


@cache
def has_ties(name, dtype):
    distances = pdist(points(name, dtype).astype(np.float64))
    return np.unique(distances).size < distances.size


@cache
def fitted(name, dtype, n_neighbors, device):
    """A model of a case, which no test may change."""
    return fit(points(name, dtype), 1, n_neighbors=n_neighbors, device=device)


BOTH = [(*one, k) for one in QUICK.items() for k in (1, None)]
HALF = [one for i, one in enumerate(BOTH) if i // 2 % 2 == i % 2]


@pytest.mark.parametrize(
    ("name", "dtype", "n_neighbors"),
    combinations(CASES, ("float32", "float64"), (1, None, 2, 3, 8), quick=HALF, also=BOTH),
)
def test_dendrogram_is_scipys(name, dtype, n_neighbors, device):
    X, expected = points(name, dtype), scipys(name, dtype)
    model = fitted(name, dtype, n_neighbors, device)
    found = model.to_scipy()
    np.testing.assert_array_equal(found[:, 2], expected[:, 2])  # to the last bit
    np.testing.assert_array_equal(to_host(model.mst_["weight"].values), expected[:, 2])
    if len(X) <= FEW and not has_ties(name, dtype):
        np.testing.assert_array_equal(found, expected)
    elif len(X) > 1:
        assert hierarchy.is_valid_linkage(found)


def test_some_cases_tie_and_some_do_not():
    """Otherwise the test above would never compare more than the heights, or never meet a tie."""
    few = [name for name in CASES if len(points(name, "float64")) <= FEW]
    tied = {name for name in few if has_ties(name, "float64")}
    assert {"integer_grid", "all_rows_equal", "last_bit", "denormals"} <= tied
    assert {"offset_1e4", "sphere_of_radius_1e6", "magnitude_1e_30", "more_features_than_rows"} <= set(few) - tied


@EVERY_CASE
def test_tree_spans_and_weighs_what_its_rows_are_apart(name, dtype, device):
    X = points(name, dtype).astype(np.float64)
    tree = fitted(name, dtype, 1, device).mst_
    src, dst, weight = (to_host(tree[c].values) for c in ("src", "dst", "weight"))
    assert (src < dst).all()
    total = np.zeros(len(tree))
    for f in range(X.shape[1]):
        total += (X[src, f] - X[dst, f]) ** 2
    np.testing.assert_array_equal(weight, np.sqrt(total))
    graph = coo_matrix((np.ones(len(tree)), (src, dst)), shape=(len(X), len(X)))
    assert len(tree) == len(X) - 1
    assert connected_components(graph, directed=False)[0] == 1


@EVERY_CASE
def test_cuts_are_scipys_partitions(name, dtype, device):
    expected = scipys(name, dtype)
    n = len(expected) + 1
    model = fitted(name, dtype, None, device)
    heights = expected[:, 2]
    for k in sorted({1, 2, 3, 5, n // 10, n // 3, n - 1, n} & set(range(1, n + 1))):
        labels = to_host(model.cut(k))
        assert labels.max() == k - 1
        assert (by_appearance(labels) == labels).all()
        if k in (1, n):
            continue
        below, above = heights[n - k - 1], heights[n - k]
        if below < above:  # otherwise another choice among equal heights is as good
            flat = hierarchy.fcluster(expected, below, "distance")
            np.testing.assert_array_equal(labels, by_appearance(flat))
            np.testing.assert_array_equal(to_host(model.cut(distance_threshold=above)), labels)


@pytest.mark.parametrize(
    "name", ["images", "integer_grid", *map(full, ["filaments", "few_big_clusters", "tight_clusters", "last_bit"])]
)
def test_same_bits_whatever_the_neighbors_and_twice_in_a_row(name, device):
    X = points(name, "float32")
    expected = bits(fit(X, 5, device=device))
    for n_neighbors in (None, 1, 2, 5, 33):
        assert bits(fit(X, 5, n_neighbors=n_neighbors, device=device)) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("n_neighbors", [1, None])
@EVERY_CASE
def test_gpu_and_cpu_give_the_same_bits(name, dtype, n_neighbors):
    on_gpu, on_cpu = (fitted(name, dtype, n_neighbors, device) for device in ("cuda", "cpu"))
    assert bits(on_gpu) == bits(on_cpu)
    if all("components" in model.report_["seconds"] for model in (on_gpu, on_cpu)):  # both by lists
        assert on_gpu.n_connected_components_ == on_cpu.n_connected_components_


@pytest.mark.gpu
def test_mnist_on_the_gpu():
    """60,000 images: the squared lengths of the tree are integers, known from several independent programs."""
    path = Path(os.environ.get("RAPIDS_SLINK_BENCH_DATA", "")) / "mnist.npz"
    if not path.is_file():
        pytest.skip("RAPIDS_SLINK_BENCH_DATA names no folder with mnist.npz")
    X = np.load(path)["X"]
    assert X.shape == (60_000, 784)
    weight = to_host(fit(X, 10, metric="sqeuclidean", device="cuda").mst_["weight"].values)
    assert int(weight.sum()) == 75_925_569_788
    assert int(weight.max()) == 4_673_609


@pytest.mark.parametrize("n_neighbors", [7, 8, 1000])
@pytest.mark.parametrize("d", [2, 12])
def test_as_many_neighbors_as_rows(d, n_neighbors, device):
    X = np.random.default_rng(d).normal(size=(8, d))
    model = fit(X, 2, n_neighbors=n_neighbors, device=device)
    np.testing.assert_array_equal(model.to_scipy(), hierarchy.linkage(X, "single"))
    assert model.n_connected_components_ == 1
    assert "connect" not in model.report_


@pytest.mark.parametrize("value", [0.0, 1e300, 1e308, -1e308])
def test_constant_columns_of_any_size(value, device):
    """Distances are zero or one, however large the constant next to them is."""
    X = np.full((300, 12), value)
    X[:, 4] = np.arange(300.0)[::-1]
    assert (fit(X, device=device).distances_ == 1.0).all()


@pytest.mark.parametrize("n_neighbors", [1, 4])
@pytest.mark.parametrize("name", ["integer_grid", "tight_clusters", "three_rows", full("filaments")])
def test_connected_components_are_those_of_the_knn_graph(name, n_neighbors, device):
    X = points(name, "float64")[:1500]
    n, k = len(X), min(n_neighbors, len(X) - 1)
    distances = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    graph = coo_matrix((np.ones(n * k), (np.repeat(np.arange(n), k), nearest.ravel())), shape=(n, n))
    model = fit(X, 1, n_neighbors=k, device=device)
    if model.report_["way"] == "boxes":  # without lists
        assert model.n_connected_components_ == 1
        return
    assert model.n_connected_components_ == connected_components(graph, directed=False)[0]


@pytest.mark.parametrize("name", ["integer_grid", "uneven_blobs_2d", full("few_big_clusters"), full("cauchy")])
def test_cutting_again_is_fitting_again(name, device):
    X = points(name, "float64")[:1500]
    model = fit(X, 2, device=device)
    before = bits(model)
    for k in (1, 7, len(X)):
        np.testing.assert_array_equal(model.cut(n_clusters=k), fit(X, k, device=device).labels_)
    t = float(np.median(model.distances_))
    other = fit(X, distance_threshold=t, device=device)
    np.testing.assert_array_equal(model.cut(distance_threshold=t), other.labels_)
    assert other.n_clusters_ == 1 + (model.distances_ >= t).sum()
    assert bits(model) == before  # a cut changes nothing


@pytest.mark.parametrize("n_neighbors", [1, 8, full(2), full(3)])
@pytest.mark.parametrize(
    "name", ["filaments", "integer_grid_10d", *map(full, ["few_big_clusters", "uneven_blobs_32d", "star"])]
)
def test_report_counts_every_edge_once(name, n_neighbors, device):
    X = points(name, "float64")
    model = fitted(name, "float64", n_neighbors, device)
    report = model.report_
    if report["way"] == "boxes":  # without lists
        assert set(report["spanning_tree"]) == {"rounds", "rows_searched"}
        assert "connect" not in report
        return
    certified = report["spanning_tree"]["edges_certified_by_lists"]
    searched = report.get("connect", {}).get("edges_certified_by_search", 0)
    assert certified + searched == len(X) - 1
    # What the k-NN graph leaves apart no list can join.
    assert searched >= model.n_connected_components_ - 1
    assert certified >= 1
    if searched:
        assert 1 <= report["connect"]["rounds"] <= searched
        assert report["connect"].get("rows_searched", 0) + report["connect"].get("joined_at_once", 0) >= 1
    assert report["spanning_tree"]["rounds"] >= 1
    assert (report["device"], report["metric"]) == (device, "euclidean")
    assert report["spanning_tree"]["components_certified"] >= certified
    if "rows_certified" in report["neighbors"]:  # a tree has no filter
        rows = [report["neighbors"][f"rows_{what}"] for what in ("certified", "redone", "scanned_exactly")]
        assert rows == [0, 0, len(X)] or (rows[0] + rows[1] == len(X) and 0 <= rows[2] <= rows[1])


def test_few_large_components_are_joined_at_once():
    """Otherwise no hard case would have gone through it on a CPU (a GPU asks for larger ones)."""
    connect = fitted("few_big_clusters", "float32", 3, "cpu").report_["connect"]
    assert connect["joined_at_once"] == 1
    assert connect["pairs_kept"] >= 5


def test_report_times_every_stage(device):
    report = fit(points("few_big_clusters", "float64"), n_neighbors=2, device=device).report_
    seconds = report["seconds"]
    assert set(seconds) >= {"input", "neighbors", "spanning_tree", "connect", "linkage", "cut"}
    assert all(0 < value < 600 for value in seconds.values())
    frame = report.to_frame()
    assert frame["seconds"].to_dict() == seconds
    by_lists = report["spanning_tree"]["edges_certified_by_lists"]
    assert frame.loc["spanning_tree", "edges_certified_by_lists"] == by_lists > 0
    text = str(report)
    assert f"device {device}" in text
    assert f"edges certified by lists {by_lists:,}" in text


def test_report_of_nothing():
    assert str(Report()) == ""
    assert Report().to_frame().empty


def test_default_neighbors_are_the_documented_ones(device, prescribe):
    prescribe(tree="lists")
    X = points("few_big_clusters", "float64")
    named = fit(X, n_neighbors=8, device=device)
    assert fit(X, device=device).n_connected_components_ == named.n_connected_components_
    assert fit(X, n_neighbors=1, device=device).n_connected_components_ > named.n_connected_components_


def test_a_script_that_takes_long_shows_its_bar(device, capsys, monkeypatch, set_constants):
    """By itself, if somebody sees it: on a terminal or in Jupyter."""
    X = points("few_big_clusters", "float32")

    def said(long=0.0, **how):
        set_constants(threads, LONG=long, TRIED=0.0)
        fit(X, n_neighbors=8, device=device, **how)
        return capsys.readouterr().err

    assert said() == ""  # in a pipe
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "Searching neighbours" in said()
    assert said(progress=False) == ""
    assert said(long=1000.0) == ""  # a short run
    with pytest.raises(ValueError, match="progress must be True, False or 'auto', got 'yes'"):
        fit(X, progress="yes", device=device)


def test_a_bar_tells_long_work_by_what_is_done(capsys):
    clock = [100.0]
    for seconds_a_part, parts, shown in ((0.9, 5, False), (2.5, 5, True), (5.0, 1, False)):
        with threads.progress_bar(parts, threads.Progress("Work", 100, "auto"), lambda: clock[0]) as advance:
            for _ in range(parts):
                clock[0] += seconds_a_part
                advance()
        assert ("Work" in capsys.readouterr().err) == shown


def test_pairs_of_items_are_counted_by_a_bar(capsys):
    sparse = pytest.importorskip("scipy.sparse")
    X = sparse.random(300, 50, density=0.5, format="csr", random_state=0)
    with force(items="distances"):
        fit(X, metric="cosine", progress=True, device="cpu")
    assert "pairs/s" in capsys.readouterr().err


def test_progress_bar_changes_nothing(device, capsys):
    X = points("few_big_clusters", "float32")
    quiet = fit(X, n_neighbors=8, device=device)
    assert capsys.readouterr() == ("", "")
    shown = fit(X, n_neighbors=8, device=device, progress=True)
    said = capsys.readouterr().err
    assert "Searching neighbours" in said
    assert "rows/s" in said
    assert said.endswith("\n")  # what is printed next has a line of its own
    assert bits(quiet) == bits(shown)

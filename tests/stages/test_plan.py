"""Which way leads to a tree, and which search serves points of many features."""

import ast
import re
import tracemalloc

import numpy as np
import pytest
from fake_gpu import fake_gpu
from hard_cases import full
from repository import ROOT
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink import planning, spanning_tree
from rapids_slink.metrics import EUCLIDEAN, METRICS, get_metric
from rapids_slink.neighbors import choose
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.choose import products
from rapids_slink.neighbors.rows import ID_BYTES, metric_rows
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.device import cuda as gpu
from rapids_slink.runtime.memory import size_text
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, ways
from rapids_slink.spanning_tree.ways import WAYS, estimate_tree, prepared_ways, way_of, ways_of


def test_way(engine):
    """Boxes for a GPU's points of few features, unless there are cores."""

    def chosen(n, d, n_neighbors=8, min_samples=1, name="euclidean", core=None):
        settings = Settings(get_metric(name), n_neighbors=n_neighbors, min_samples=min_samples)
        return way_of(Problem(settings, engine, n, d, 8, core))

    by_tree = "boxes" if engine.is_gpu else "lists"
    assert chosen(10_000, 6) == chosen(10_000, 6, None) == chosen(10_000, 2, name="cityblock") == by_tree
    assert chosen(10_000, 9) == chosen(10_000, 6, min_samples=2) == chosen(10_000, 6, core=np.ones(1)) == "lists"
    assert chosen(300, 6, name="canberra") == "lists"
    assert chosen(300, 6, None) == chosen(300, 6, None, name="canberra") == "pairs"


def test_estimate_is_that_of_the_way(engine):
    """It grows with the lists, where there are any."""
    for d, min_samples in ((6, 1), (6, 2), (9, 1), (128, 1)):
        short, long = (
            estimate_tree(Problem(Settings(EUCLIDEAN, "auto", None, k, min_samples), engine, 10**6, d, 8)).peak
            for k in (8, 80)
        )
        assert short == long if (d, min_samples, engine.is_gpu) == (6, 1, True) else short < long


@pytest.mark.parametrize(
    ("device", "n", "d", "how", "expected"),
    [
        (CPU, 900, 1, {}, ["line", "pairs"]),
        (CPU, 9000, 1, {"min_samples": 3}, ["repeats", "lists"]),
        (CPU, 9000, 16, {}, ["repeats", "lists"]),
        (Device("cuda", np), 2**18, 1, {}, ["line", "repeats", "boxes"]),
        (Device("cuda", np), 2**18, 3, {}, ["repeats", "boxes"]),
        (Device("cuda", np), 2**16, 16, {}, ["repeats", "boxes", "lists"]),
        (Device("cuda", np), 2**18, 16, {"min_samples": 3}, ["repeats", "lists"]),
        (Device("cuda", np), 2**18, 33, {}, ["repeats", "boxes", "lists"]),
    ],
)
def test_ways_have_one_order(device, n, d, how, expected):
    """Some look at the values, and the last one, whose memory a fit is checked for, serves whatever they are."""
    problem = Problem(Settings(EUCLIDEAN, **how), device, n, d, 4)
    *looking, certain = ways_of(problem)
    assert [way.name for way in (*looking, certain)] == expected
    assert way_of(problem) == certain.name
    assert not any(way.estimate for way in looking)
    with fake_gpu(90):
        of_line = ways.LINE_BYTES * n if ways.LINE in looking else 0  # its values decide
        assert estimate_tree(problem).peak == max(certain.estimate(problem).peak, of_line)


@pytest.mark.parametrize(("has_boxes", "expected"), [(True, ["boxes", "lists"]), (False, ["lists"])])
def test_a_look_decides_whether_boxes_serve(has_boxes, expected, monkeypatch):
    """Lists never make the tree by boxes, nor look again: they take the search that was found unless it is used up."""
    made = []
    monkeypatch.setattr(spanning_tree, "prepare_search", lambda *_, **__: made.append(object.__new__(kind)) or made[-1])
    monkeypatch.setattr(ways, "find_repeats", lambda *_: None)
    with fake_gpu(90):
        from rapids_slink.neighbors.bvh import BoxSearch

        kind, report = BoxSearch if has_boxes else BruteForceSearch, Report()
        problem = Problem(Settings(EUCLIDEAN), gpu(), 2**18, 16, 4)
        names = [report.pop("way") for _ in prepared_ways(problem, gpu().xp.zeros((2**18, 16), "float32"), report)]
    assert names == expected
    assert len(made) == len(expected)


@pytest.mark.parametrize("name", ["line", "repeats", "curve", "many", "few"])
def test_a_way_that_looks_takes_no_more_than_a_copy_besides(name):
    """Such a copy is made only if it fits: see `find_repeats`."""
    X, how = PLANNED[name]
    n, d = X.shape
    problem = Problem(Settings(EUCLIDEAN, **how), CPU, n, d, 8)
    checked = estimate_tree(problem).peak
    for prepared in prepared_ways(problem, metric_rows(EUCLIDEAN, X, CPU), Report()):
        assert prepared.estimate().peak <= checked + X.nbytes + ID_BYTES * n


def test_rows_that_repeat_are_searched_where_memory_is_short():
    X, how = PLANNED["repeats"]
    assert "repeated_rows" in rapids_slink.fit(X, 1, device="cpu", **how).report_["spanning_tree"]
    least = rapids_slink.plan(X.shape, device="cpu", memory_limit=1)["instead"].split("; ")[0]
    limited = rapids_slink.fit(X, 1, device="cpu", memory_limit=ast.literal_eval(least.partition("=")[2]), **how)
    assert limited.report_["way"] == "lists"
    assert "repeated_rows" not in limited.report_["spanning_tree"]


def curve(rng, n, d):
    return np.sin(rng.uniform(0, 50, (n, 1)) * rng.normal(size=(1, d))) + 1e-3 * rng.normal(size=(n, d))


def far_clusters(rng, n, d):
    return 20 * rng.normal(size=(30, d))[rng.integers(0, 30, n)] + rng.normal(size=(n, d))


def curve_and_outlier(rng, n, d):
    return np.vstack((curve(rng, n - 1, d), np.full(d, 1e6)))


def half_a_curve(rng, n, d):
    return rng.permutation(np.vstack((curve(rng, n // 2, d), rng.uniform(-1, 1, (n - n // 2, d)))))


@pytest.mark.parametrize(
    ("points", "n", "d", "expected"),
    [
        (curve, 10_000, 16, "k-d tree"),
        (far_clusters, 10_000, 12, "k-d tree"),
        (lambda rng, n, d: rng.normal(size=(n, d)), 10_000, 16, "float32 tiles"),
        (curve, 1_000, 16, "float32 tiles"),  # too few
        (curve, 10_000, 65, "tiles of near points"),  # too many features
    ],
)
def test_trees_serve_points_of_low_dimension(points, n, d, expected):
    X = points(np.random.default_rng(0), n, d)
    assert rapids_slink.fit(X, device="cpu", n_neighbors=4).report_["neighbors"]["filter"] == expected


def wide_clusters(rng, n, d):
    """Their boxes overlap, and so a search for the nearest point of another one visits them all."""
    return rng.normal(size=(n, d)) + 4 * rng.normal(size=(40, d))[rng.integers(0, 40, n)]


@pytest.mark.full
@pytest.mark.parametrize(("points", "by_tree"), [(wide_clusters, False), (far_clusters, True), (curve, True)])
def test_all_pairs_connect_what_searches_by_a_tree_would_visit_whole(points, by_tree):
    X = points(np.random.default_rng(1), 2**13, 48).astype(np.float32)
    model = rapids_slink.fit(X, device="cpu")
    assert model.report_["neighbors"]["filter"] == "k-d tree"
    assert {"rows_redone", "joined_at_once"}.isdisjoint(model.report_.get("connect", {})) == by_tree
    np.testing.assert_array_equal(model.distances_, linkage(X.astype(np.float64), "single")[:, 2])


@pytest.mark.full
@pytest.mark.parametrize("joins", [True, False])
def test_all_pairs_join_many_points_of_few_tight_clusters(joins, set_costs):
    """Of which a search by a tree visits a third of the leaves, for each of the points."""
    rng, n = np.random.default_rng(0), 2**13
    X = rng.normal(size=(80, 32))[rng.integers(0, 80, n)] + 0.01 * rng.normal(size=(n, 32))
    set_costs(prepare=products(n, n) / (4 if joins else 3))
    model = rapids_slink.fit(X, device="cpu")
    assert model.report_["neighbors"]["filter"] == "k-d tree"
    assert ("joined_at_once" in model.report_["connect"]) is joins
    np.testing.assert_array_equal(model.distances_, linkage(X, "single")[:, 2])


def manifold_of_5(rng, n, d):
    return np.sin(rng.random((n, 5)) @ rng.normal(size=(5, d)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("points", "d", "filter_"),
    [
        (curve, 9, "bounding volume hierarchy"),
        (curve, 32, "bounding volume hierarchy"),
        (curve_and_outlier, 12, "bounding volume hierarchy"),
        (half_a_curve, 12, "fp16 tensor cores (fused)"),
        (manifold_of_5, 16, "fp16 tensor cores (fused)"),  # by the nodes that searches visit
        (curve, 33, "tiles of near points"),  # too many features
        (lambda rng, n, d: rng.normal(size=(n, d)), 12, "fp16 tensor cores (fused)"),
    ],
)
def test_boxes_serve_points_of_low_dimension_on_a_gpu(points, d, filter_, dtype, set_costs):
    n = 9000
    set_costs(prepare=products(8900, 8900))
    X = points(np.random.default_rng(0), n, d).astype(dtype)
    for how in ({}, {"min_samples": 4}, {"max_distance": 0.1}):
        model = rapids_slink.fit(X, device="cuda", **how)
        assert model.report_["neighbors"]["filter"] == filter_
        assert model.report_["way"] == ("boxes" if filter_.startswith("b") and "min_samples" not in how else "lists")
        np.testing.assert_array_equal(model.distances_, rapids_slink.fit(X, device="cpu", **how).distances_)
    by_either = [rapids_slink.knn_graph(X, 5, device=device) for device in ("cuda", "cpu")]
    assert by_either[0].equals(by_either[1])
    appended = rapids_slink.fit(X[:-90], prediction_data=True, device="cuda").append(X[-90:])
    np.testing.assert_array_equal(appended.distances_, rapids_slink.fit(X, device="cpu").distances_)
    assert rapids_slink.fit(X[:8800], device="cuda").report_["neighbors"]["filter"].startswith("fp16")  # too few


def test_expansion():
    """Of surfaces and a cube, of an outlier and of a few points in space, of clusters with few points in a sample."""
    rng, n = np.random.default_rng(0), 2**18

    def is_low(X):
        return choose.expansion(X.astype("float32"), CPU)[0] <= choose.MAX_EXPANSION

    for m in (2, 3, 4):
        assert is_low(np.sin(rng.random((n, m)) @ rng.normal(size=(m, 16))))
    assert is_low(manifold_of_5(np.random.default_rng(0), 9000, 16))
    assert is_low(curve_and_outlier(rng, n, 16))
    assert not is_low(half_a_curve(rng, n, 16))
    assert not is_low(rng.random((n, 9)))
    centres = 10 * rng.normal(size=(1000, 16))
    assert not is_low(centres[rng.integers(0, 1000, n)] + rng.normal(size=(n, 16)))


# ------------------------------------------------------------------------------------------------- before a run


def rows(n, d, **how):
    return np.random.default_rng(0).standard_normal((n, d)), how


CODES = np.random.default_rng(0).integers(0, 40, (9000, 80))
PLANNED = {
    "line": rows(3000, 1),
    "few": rows(900, 12),
    "few, of a shape with lists": rows(900, 12, n_neighbors=5),
    "few features": rows(20_000, 3),
    "cores": rows(20_000, 3, min_samples=4),
    "curve": (curve(np.random.default_rng(0), 10_000, 16), {}),
    "many": rows(9000, 24),
    "cosine": rows(9000, 24, metric="cosine"),
    "cityblock": rows(9000, 24, metric="cityblock"),
    "booleans": (np.random.default_rng(0).random((9000, 40)) < 0.5, {"metric": "jaccard"}),
    "bits": (np.random.default_rng(0).integers(0, 256, (9000, 40), "uint8"), {"metric": "bit_jaccard"}),
    "sphere": (np.random.default_rng(0).uniform(-1, 1, (9000, 2)), {"metric": "haversine"}),
    "repeats": (np.random.default_rng(0).integers(0, 3, (20_000, 7)).astype(float), {}),
    "codes": (CODES, {"metric": "hamming"}),
    "gaps": (np.where(CODES, CODES, np.nan), {"metric": "hamming", "missing": "hiercc", "max_distance": 79.0}),
    "one row": rows(1, 3),
    "distances": (np.abs(np.subtract.outer(np.arange(50.0), np.arange(50.0))), {"metric": "precomputed"}),
}


def decisions(report):
    return report.get("way"), report.get("neighbors", {}).get("filter")


#: Planned and run as others are.
ALIKE = ("cosine", "booleans", "gaps", "curve", "cityblock", "bits", "repeats", "many", "sphere", "codes")


@pytest.mark.parametrize("name", [full(name) if name in ALIKE else name for name in PLANNED])
def test_a_plan_is_what_the_report_says_afterwards(name, device):
    X, how = PLANNED[name]
    plan = rapids_slink.plan(X, device=device, **how)
    report = rapids_slink.fit(X, 1, device=device, **how).report_
    assert decisions(plan) == decisions(report)
    assert (plan["device"], plan["metric"], plan["fits"]) == (report["device"], report["metric"], True)
    assert "seconds" not in plan
    if name not in ("curve", "repeats"):  # which the shape alone does not tell
        assert decisions(rapids_slink.plan(X.shape, device=device, **how)) == decisions(report)


@pytest.mark.parametrize("name", ["few features", *map(full, ("line", *ALIKE))])
def test_a_plan_covers_the_memory_of_a_run(name):
    X, how = PLANNED[name]
    rapids_slink.fit(X, 1, device="cpu", **how)  # compiles
    planned = rapids_slink.plan(X, device="cpu", **how)["memory"]["peak_bytes"]
    tracemalloc.start()
    try:
        rapids_slink.fit(X, 1, device="cpu", **how)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken - 2**20 <= planned <= 1.5 * taken + 2**20


def test_a_plan_tells_the_minutes(device, monkeypatch):
    """By the time that samples take and by how much more work there is: pairs of rows, or visits of a tree's boxes."""
    made = []

    def grow(values, problem, report, grow):
        made.append(problem.n)
        report["seconds"] = {"neighbors": 0.04 + problem.n**2 * 4e-9, "compiling": 99.0}

    monkeypatch.setattr(planning, "tree_of_points", grow)
    X, how = PLANNED["many"]
    for points in (np.tile(X, (10, 1))[:80_000] + np.arange(80_000)[:, None] * 1e-9, (80_000, 24)):
        made.clear()
        minutes = rapids_slink.plan(points, device=device, **how)["time"]["about_minutes"]
        assert minutes == pytest.approx((80_000**2 * 4e-9 + 0.04) / 60, rel=0.05)
        assert made == [2048, 2048, 8192]
    by_tree = rapids_slink.plan((80_000, 2), device=device)["time"]["about_minutes"]
    assert by_tree < minutes / 5
    assert "about minutes" in str(rapids_slink.plan((80_000, 2), device=device))
    assert "time" not in rapids_slink.plan((80_000, 2), max_distance=0.1, device=device)  # labels alone


def test_a_plan_of_few_rows_takes_all(device):
    X = np.random.default_rng(0).random((3000, 30))
    minutes = rapids_slink.plan(X, device=device)["time"]["about_minutes"]
    assert 0 < minutes < 10


def test_memory_is_printed_in_large_units(device):
    plan = rapids_slink.plan((300_000, 128), device=device)
    assert isinstance(plan["memory"]["peak_bytes"], int)
    assert f"peak {size_text(plan['memory']['peak_bytes'])}" in str(plan)
    text = str(Report(memory={"peak_bytes": 1_288_490_189}, found={"rows": 1_000_000}))
    assert [line.split(maxsplit=1)[1] for line in text.splitlines()] == ["peak 1.3 GiB", "rows 1,000,000"]


def test_what_does_not_fit_is_told_with_what_would(device):
    X, how = rows(20_000, 3, n_neighbors=50, min_samples=2)
    plan = rapids_slink.plan(X, device=device, memory_limit="12MiB", **how)
    with pytest.raises(rapids_slink.DeviceMemoryError) as error:
        rapids_slink.fit(X, 2, device=device, memory_limit="12MiB", **how)
    assert (plan["fits"], plan["refused"]) == (False, str(error.value))
    assert decisions(plan) == decisions(rapids_slink.fit(X, 2, device=device, **how).report_)
    limit, *others = plan["instead"].split("; ")
    assert "a Dask collection" in others[-1]
    fewer = [text for text in others if text.startswith("n_neighbors=")]
    assert len(fewer) == (plan["way"] == "lists" and device == "cpu")  # a tree of boxes lists none
    for parameters in (limit, *fewer):
        name, value = parameters.split("=")
        changed = {"memory_limit": "12MiB", **how, name: ast.literal_eval(value)}
        assert rapids_slink.plan(X, device=device, **changed)["fits"]
        assert rapids_slink.fit(X, 2, device=device, **changed).n_clusters_ == 2
    assert all(line in str(plan) for line in (f"refused       {error.value}", f"instead       {plan['instead']}"))


def test_a_plan_reads_nothing_that_does_not_fit():
    X = np.broadcast_to(np.int8(0), (2**29, 100))  # of one value: 200 GiB if anything copied it
    assert not rapids_slink.plan(X, device="cpu", memory_limit="1GiB")["fits"]


@pytest.mark.parametrize(
    ("X", "error", "text"),
    [
        ((0, 3), ValueError, r"Found array with 0 sample\(s\)"),
        ((3, 0), ValueError, r"Found array with 0 feature\(s\)"),
        ((-3, 2), ValueError, r"X is no shape of points.*\(-3, 2\)"),
        ((3.5, 2), TypeError, "a size of the shape X must be an integer, got 3.5"),
        ((2**31, 2), ValueError, "X has 2147483648 rows"),
        ([[np.nan]], ValueError, "NaN"),
    ],
)
def test_plans_of_nothing(X, error, text):
    with pytest.raises(error, match=text):
        rapids_slink.plan(X, device="cpu")


def test_a_plan_of_a_collection_is_refused():
    frame = pytest.importorskip("dask.dataframe").from_dict({"x": [0.0, 1.0]}, npartitions=1)
    with pytest.raises(TypeError, match="X is a Dask collection"):
        rapids_slink.plan(frame)


# --- what the guide says of the ways


def table(title):
    """The cells of the guide's table whose first column has this title."""
    page = (ROOT / "docs" / "internals.md").read_text()
    rows = page[page.index(f"| {title} |") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in [rows[0], *rows[2:]]]


def test_guide_names_the_ways_in_their_order():
    assert [row[0] for row in table("way")[1:]] == [f"`{way.name}`" for way in WAYS]


LIMIT = re.compile(r"`(\w+)`(?: up to ([\d,]+) rows)?")


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row[0]} features", marks=[pytest.mark.full] * (i % 3 > 0))
     for i, row in enumerate(table("features")[1:])],
)  # fmt: skip
@pytest.mark.parametrize("column", range(1, 5), ids=table("features")[0][1:])
def test_guide_says_which_way_is_taken(row, column, device):
    """Up to a limit, and from the next row on. The ways are asked, and of few rows a plan, which takes their time."""
    column_device = "cuda" if "GPU" in table("features")[0][column] else "cpu"
    if device == "cuda" and column_device == "cpu":
        pytest.skip("a CPU's ways are asked on the CPU")

    def way(n):
        how = {"min_samples": 5} if "min_samples" in table("features")[0][column] else {}
        if device == column_device and n == 100:
            return rapids_slink.plan((n, int(row[0])), device=device, **how)["way"]
        problem = Problem(Settings(EUCLIDEAN, **how), Device(column_device, np), n, int(row[0]), 8)
        # Of the ways that look at the values a line alone serves normal points.
        return next(way.name for way in ways_of(problem) if way.name == "line" or way.estimate)

    first = 100
    for name, limit in LIMIT.findall(row[column]):
        last = int(limit.replace(",", "")) if limit else 2_000_000
        assert way(first) == way(last) == name
        first = last + 1
    assert first == 2_000_001


@pytest.mark.full
def test_guide_says_which_filter_is_used(device):
    """Of points that no tree searches. haversine's has three coordinates, so that one does."""
    column, said = {"cpu": 1, "cuda": 2}[device], {}
    for row in table("metrics")[1:]:
        for metric in row[0].split(", "):
            said[metric] = set(re.findall(r"`([\w ()]+)`", row[column]))
    rng = np.random.default_rng(0)
    for name, metric in METRICS.items():
        X = {"boolean": rng.integers(0, 2, (9000, 100)), "packed": rng.integers(0, 256, (9000, 100), "uint8")}
        points = X.get(metric.rows, rng.normal(size=(9000, 2 if name == "haversine" else 100)) / 9)
        found = rapids_slink.plan(points, metric=name, p=3.0, n_neighbors=8, device=device)["neighbors"]["filter"]
        if name == "haversine":
            assert found == {"cpu": "k-d tree", "cuda": "bounding volume hierarchy"}[device]
        else:
            assert found.partition(",")[0] in said.pop(name)
    bits = rapids_slink.plan(X["boolean"], metric="hamming", n_neighbors=8, device=device)["neighbors"]["filter"]
    assert bits in said.pop("hamming of booleans")
    assert not said

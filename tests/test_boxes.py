"""Borůvka on a tree of boxes, against the tree of all pairs in the total order, and against the way by lists."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, case_dtypes, full
from hypothesis import given
from hypothesis import strategies as st
from oracles import MAX_TREE_FEATURES, SearchKind, assert_tree, blobs, squared_distances, tree_of

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.exact import cpu
from rapids_slink.neighbors.plan import prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.trees.tree import LEAF
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve
from rapids_slink.spanning_tree import boxes, plan, spanning_tree
from rapids_slink.spanning_tree.boxes import cpu as boxes_on_cpu

METRICS = [("cityblock", 2.0), ("chebyshev", 2.0), ("minkowski", 3.0), ("minkowski", 1.7), ("haversine", 2.0)]


def grown(X, device, metric=EUCLIDEAN, report=None):
    search = SearchKind(device, "tree")(X, metric=metric)
    tree = boxes.tree_of_boxes(search, resolve(device), Report() if report is None else report)
    sort_in_place(tree.columns, resolve(device).xp)
    return on_host(tree.frame)


def by_lists(X, device, k):
    search, engine = SearchKind(device, "tree")(X), resolve(device)
    return on_host(spanning_tree(neighbor_lists(search, len(X), k, engine), search, engine, Report()).frame)


def on_host(frame):
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


def every_distance(X, metric):
    """Those of all pairs, from the formula."""
    src, dst = (end.astype(np.int32) for end in np.triu_indices(len(X), 1))
    matrix = np.zeros((len(X), len(X)))
    matrix[src, dst] = matrix[dst, src] = cpu.pair_distances(X, src, dst, metric)
    return matrix


@pytest.mark.parametrize(("name", "dtype"), case_dtypes(min_rows=2))
def test_tree_is_the_one_of_the_total_order(name, dtype, device):
    X = CASES[name](dtype)[:400]
    if not SearchKind(device, "tree").serves(X.shape[1]):
        X = np.ascontiguousarray(X[:, :MAX_TREE_FEATURES])
    assert_tree(grown(X, device), tree_of(squared_distances(X)))


@given(st.integers(2, 300), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_ties_on_small_grids(device, n, d, side, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32 if seed % 2 else np.float64)
    assert_tree(grown(X, device), tree_of(squared_distances(X)))


@pytest.mark.parametrize("n", [2, 3, 8, 9, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF + 1, 2048, 2049])
@pytest.mark.parametrize("kind", ["normal", "equal", "two values"])
def test_few_points(n, kind, device):
    rng = np.random.default_rng(n)
    X = {"normal": rng.normal(size=(n, 2)), "equal": np.ones((n, 2)), "two values": rng.integers(0, 2, (n, 1)) * 1e-3}
    assert_tree(grown(X[kind], device), tree_of(squared_distances(X[kind])))


@pytest.mark.parametrize(("name", "p"), METRICS)
@pytest.mark.parametrize("side", [4, 1000])
def test_metrics(name, p, side, device):
    metric = get_metric(name, p)
    X = np.random.default_rng(0).integers(0, side, (300, 2)) / side
    X = metric_rows(metric, X, CPU)
    assert_tree(grown(X, device, metric), tree_of(every_distance(X, metric)))


@pytest.mark.parametrize(
    "name", ["uneven_blobs_8d", *map(full, ("filaments", "uneven_blobs_32d", "few_big_clusters", "cauchy_3d"))]
)
def test_many_points(name, device):
    X = CASES[name]("float32")[:, : None if device == "cpu" else MAX_TREE_FEATURES]
    X = np.ascontiguousarray(X)
    assert grown(X, device).equals(by_lists(X, device, 8))


def test_neighbours_far_along_the_curve(device):
    """Two strips near the middle of the box: half of a point's nearest are more positions away than 16 bits tell."""
    rng = np.random.default_rng(0)
    strips = np.column_stack([rng.choice([-1e-6, 1e-6], 150_000), rng.uniform(-1, 1, 150_000)])
    X = np.concatenate([strips, [[-1, 0], [1, 0]]])
    assert grown(X, device).equals(by_lists(X, device, 8))


@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_tree_whoever_searches_when(chunk, threads, monkeypatch):
    X = np.round(blobs(0, d=3, n=600), 1)
    expected = tree_of(squared_distances(X))
    monkeypatch.setattr(boxes_on_cpu, "MIN_CHUNK", chunk)
    monkeypatch.setattr(boxes_on_cpu, "MAX_CHUNK", chunk)
    monkeypatch.setattr("rapids_slink.runtime.threads.workers", lambda _: threads)
    assert_tree(grown(X, "cpu"), expected)


def test_a_deep_hook(device):
    """Each point's nearest is the next: all components of a round hang in one chain."""
    X = np.column_stack([2.0 ** -np.arange(500), np.zeros(500)])
    assert_tree(grown(X, device), tree_of(squared_distances(X)))


def test_equal_points_are_not_all_compared(device):
    """A search that visits each of its equals takes minutes here."""
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 100_000, axis=0)
    tree = grown(X, device)
    assert (tree["weight"] == 0).sum() == len(X) - 3
    of_first = tree["src"].to_numpy()[: len(X) - 3]
    assert set(of_first) == {0, 100_000, 200_000}


def test_neighbours_have_no_say(device):
    """Where boxes serve no lists are made, however long they are asked for."""
    X = blobs(3, d=3, n=9000)  # more than a GPU would weigh all pairs of
    models = [rapids_slink.fit(X, 4, device=device, n_neighbors=k) for k in (None, 1, 30)]
    for model in models:
        assert model.n_connected_components_ == 1
        assert set(model.report_["spanning_tree"]) == {"rounds", "rows_searched"}
        assert "connect" not in model.report_
        assert model.mst_.equals(models[0].mst_)
    assert on_host(models[0].mst_)[["src", "dst"]].equals(by_lists(X, device, 3)[["src", "dst"]])


def test_report(device):
    """All points search in the first round, and at least half of the components merge in each."""
    report = Report()
    X = blobs(1, d=2, n=2000)
    grown(X, device, report=report)
    counts = report["spanning_tree"]
    assert counts["rows_searched"] > len(X)
    assert 2 <= counts["rounds"] <= 1 + np.log2(len(X))


def test_way():
    """Boxes for a CPU's points of few features, or of more if they are so in all but name, unless there are cores."""

    def chosen(X, n_neighbors=8, min_samples=1, name="euclidean", core=None):
        metric = get_metric(name, 2.0)
        suitable = plan.ways(*X.shape, n_neighbors, min_samples, metric, CPU, core)
        return plan.way_by(prepare_search(X, CPU, Report(), metric=metric), suitable)

    rng = np.random.default_rng(0)
    few, some, many = (rng.normal(size=(10_000, d)) for d in (8, 9, 16))
    along = np.sin(rng.uniform(0, 20, (10_000, 1)) + np.arange(16))
    assert chosen(few) == chosen(few, name="cityblock") == plan.BOXES
    assert chosen(some) == chosen(many) == plan.LISTS
    assert chosen(along) == chosen(along[:, :9]) == plan.BOXES
    assert chosen(few, min_samples=2) == chosen(along, core=np.ones(10_000)) == plan.LISTS
    assert chosen(few[:300], name="canberra") == plan.LISTS
    assert chosen(few[:300], None) == chosen(few[:300], None, name="canberra") == plan.PAIRS


def test_estimate_is_that_of_the_way():
    """Of the larger where the points decide."""

    def estimate(n, d, n_neighbors, min_samples=1):
        return plan.estimate_tree(n, d, 8, n_neighbors, min_samples, EUCLIDEAN, CPU)

    assert estimate(10**6, 8, 8) == estimate(10**6, 8, 80)
    assert estimate(10**6, 8, 8, 2).peak < estimate(10**6, 8, 80, 2).peak
    for d in (9, 16, 128):
        assert estimate(10**6, d, 8).peak < estimate(10**6, d, 80).peak

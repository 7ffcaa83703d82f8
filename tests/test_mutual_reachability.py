"""Mutual reachability against its definition: heights, trees, searches and kernels alone, and hdbscan beside it."""

import importlib
import json
import pickle
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree as scipys_tree
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone

import rapids_slink
from rapids_slink import SingleLinkage, fit, fit_graph
from rapids_slink.cli import main
from rapids_slink.device import CPU, gpu_is_usable, to_host
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.contract import Task
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report
from rapids_slink.spanning_tree import connect, couples, spanning_tree

SAMPLES = [1, 2, 5, 15]
NEIGHBORS = [1, 2, 3, 8, None]
EVERY_CASE = pytest.mark.parametrize("name", CASES)
BOTH_TYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


# -------------------------------------------------------------------------------------------------- oracles


def rows_of(name, dtype, most=1100):
    return CASES[name](dtype)[:most]


def squares(X):
    return squareform(pdist(X.astype(np.float64), "sqeuclidean"))


def cores(apart, m):
    """Each row's m-th least, itself not counted."""
    return np.sort(apart + np.diag(np.full(len(apart), np.inf)), axis=1)[:, m - 1]


def mutual(apart, core):
    matrix = np.maximum(apart, np.maximum(core[:, None], core))
    np.fill_diagonal(matrix, 0)
    return matrix


@cache
def heights(name, dtype, m):
    """SciPy's, of the matrix of mutual reachability distances."""
    apart = squareform(pdist(rows_of(name, dtype).astype(np.float64)))
    return hierarchy.linkage(squareform(mutual(apart, cores(apart, m)), checks=False), "single")[:, 2]


def tree_of(matrix):
    """The minimum spanning tree in the total order: SciPy's, with each pair's rank in that order for a weight."""
    n = len(matrix)
    src, dst = np.triu_indices(n, 1)
    weight = matrix[src, dst]
    order = np.lexsort((dst, src, weight))
    src, dst, weight = src[order], dst[order], weight[order]
    tree = scipys_tree(coo_array((np.arange(1.0, src.size + 1), (src, dst)), shape=(n, n)))
    taken = np.sort(tree.data).astype(int) - 1
    return src[taken], dst[taken], weight[taken]


def heights_by_prim(X, m):
    """Like `heights`, row by row: for points too many for a matrix."""
    X = X.astype(np.float64)
    n = len(X)

    def row(v):
        total = np.zeros(n)
        for f in range(X.shape[1]):
            total += (X[:, f] - X[v, f]) ** 2
        return np.sqrt(total)

    core = np.array([np.partition(row(v), m)[m] for v in range(n)])
    best, outside, v, taken = np.full(n, np.inf), np.ones(n, bool), 0, []
    for _ in range(n - 1):
        outside[v] = False
        np.minimum(best, np.maximum(row(v), np.maximum(core, core[v])), out=best)
        v = int(np.argmin(np.where(outside, best, np.inf)))
        taken.append(best[v])
    return np.sort(taken)


def columns(frame):
    return [to_host(frame[c].values) for c in ("src", "dst", "weight")]


def assert_tree(found, expected):
    """`found` is an edge frame or its columns."""
    for mine, theirs in zip(found if isinstance(found, tuple) else columns(found), expected, strict=True):
        np.testing.assert_array_equal(to_host(mine), theirs)


def bits(model):
    frames = [to_host(frame[c].values) for frame in (model.linkage_, model.mst_) for c in frame.columns]
    return b"".join(array.tobytes() for array in [*frames, to_host(model.labels_)])


def blobs(seed, d=2, n=400, noise=40):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(6, d)) * 6
    X = centers[rng.integers(0, 6, n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 1.2, (n, 1))
    return np.concatenate([X, rng.uniform(-12, 12, (noise, d))])


# ----------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize("n_neighbors", NEIGHBORS)
@BOTH_TYPES
@EVERY_CASE
def test_heights_are_those_of_the_definition(name, dtype, n_neighbors, device):
    X = rows_of(name, dtype)
    for m in (m for m in SAMPLES if m < len(X)):
        model = fit(X, 1, min_samples=m, n_neighbors=n_neighbors, device=device)
        np.testing.assert_array_equal(model.to_scipy()[:, 2], heights(name, dtype, m))


@pytest.mark.parametrize("m", [2, 5])
@BOTH_TYPES
@EVERY_CASE
def test_tree_is_the_one_of_the_total_order(name, dtype, m, device):
    """Edge by edge: cores tie whole neighbourhoods, and which edge is taken must not depend on the search."""
    X = rows_of(name, dtype, 250)
    if len(X) <= m:
        pytest.skip("too few rows")
    apart = squares(X)
    expected = tree_of(mutual(apart, cores(apart, m)))
    for n_neighbors in (1, 8):
        model = fit(X, 1, min_samples=m, n_neighbors=n_neighbors, metric="sqeuclidean", device=device)
        assert_tree(model.mst_, expected)


@pytest.mark.parametrize("name", ["filaments", "uneven_blobs_2d", "uneven_blobs_32d", "few_big_clusters"])
def test_many_rows(name, device):
    X = CASES[name]("float32")
    model = fit(X, 1, min_samples=5, device=device)
    np.testing.assert_array_equal(model.to_scipy()[:, 2], heights_by_prim(X, 5))


@given(st.integers(2, 320), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.booleans(),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_tree_of_points_on_small_grids(n, d, k, m, side, tree_search, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float64)
    m = min(m, n - 1)
    search = (TreeSearch if tree_search else TileSearch)(X, CPU, Report())
    found = spanning_tree(neighbor_lists(search, n, max(k, m), CPU, m), search, CPU, Report())
    apart = squares(X)
    assert_tree(found, tree_of(mutual(apart, cores(apart, m))))


@pytest.mark.parametrize(
    "name", ["filaments", "uneven_blobs_32d", "tight_clusters", "integer_grid", "images", "last_bit"]
)
def test_same_bits_whatever_the_neighbors_and_twice_in_a_row(name, device):
    X = CASES[name]("float32")
    expected = bits(fit(X, 5, min_samples=4, device=device))
    for n_neighbors in (None, 1, 5, 33):
        assert bits(fit(X, 5, min_samples=4, n_neighbors=n_neighbors, device=device)) == expected


@pytest.mark.gpu
@BOTH_TYPES
@EVERY_CASE
def test_gpu_and_cpu_give_the_same_bits(name, dtype):
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    X = CASES[name](dtype)
    for m in (m for m in (2, 15) if m < len(X)):
        on_gpu, on_cpu = (fit(X, 1, min_samples=m, n_neighbors=1, device=device) for device in ("cuda", "cpu"))
        assert bits(on_gpu) == bits(on_cpu)


@pytest.mark.parametrize("name", ["uneven_blobs_8d", "cauchy", "integer_grid", "three_wide_rows"])
def test_one_sample_is_none(name, device):
    """No core is above a distance of its point then."""
    X = rows_of(name, "float64")
    assert bits(fit(X, 2, min_samples=1, device=device)) == bits(fit(X, 2, device=device))


def test_a_core_is_the_distance_to_the_mth_other_row(device):
    X = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    # Cores to the second other row: 3, 2, 3, 6, 12.
    model = fit(X, 1, min_samples=2, device=device)
    assert model.distances_.tolist() == [3.0, 3.0, 6.0, 12.0]
    assert model.mst_[["src", "dst"]].values.tolist() == [[0, 1], [0, 2], [1, 3], [2, 4]]
    # To the fourth: 15, 14, 12, 8, 15.
    assert fit(X, 1, min_samples=4, device=device).distances_.tolist() == [12.0, 14.0, 15.0, 15.0]


@pytest.mark.parametrize("kind", ["spread", "grid", "alike"])
def test_couples_join_what_rounds_would(kind, where, monkeypatch):
    rng = np.random.default_rng(0)
    n, at = 1200, 40 * np.eye(12)[rng.integers(0, 7, 1200)]
    X = at + {"spread": rng.normal(size=(n, 12)), "grid": rng.integers(0, 2, (n, 12)), "alike": np.zeros((n, 12))}[kind]
    apart = squares(X)
    expected = tree_of(mutual(apart, cores(apart, 3)))
    monkeypatch.setattr(couples, "MOST_CLOSE", n)
    monkeypatch.setattr(couples, "ROUNDS", 10**9)
    for pays in (True, False):
        monkeypatch.setattr(connect, "pays", lambda *_, pays=pays: pays)
        engine, report = TileSearch(where.asarray(X), where, Report()), Report()
        lists = neighbor_lists(engine, n, 4, where, 3)
        assert_tree(spanning_tree(lists, engine, where, report), expected)
        assert report["connect"].get("joined_at_once", 0) == pays


# ----------------------------------------------------------------------------------------------- the parts


def test_lists(where):
    """Sorted by (weight, id), with the bound of the order they had before."""
    X = np.random.default_rng(0).integers(0, 5, (150, 2)).astype(np.float64)
    apart = squares(X)
    for m, k in ((2, 2), (3, 8), (15, 40), (149, 149)):
        lists = neighbor_lists(TileSearch(where.asarray(X), where, Report()), 150, k, where, m)
        core = cores(apart, m)
        near = np.lexsort((np.tile(np.arange(150), (150, 1)), apart + np.diag(np.full(150, np.inf))), axis=1)[:, :k]
        weights = np.take_along_axis(mutual(apart, core), near, axis=1)
        order = np.lexsort((near, weights), axis=1)
        np.testing.assert_array_equal(to_host(lists.ids), np.take_along_axis(near, order, axis=1))
        np.testing.assert_array_equal(to_host(lists.weights), np.take_along_axis(weights, order, axis=1))
        np.testing.assert_array_equal(to_host(lists.core), core)
        np.testing.assert_array_equal(to_host(lists.bound[0]), near[:, -1])
        np.testing.assert_array_equal(to_host(lists.bound[1]), apart[np.arange(150), near[:, -1]])


@pytest.mark.parametrize(("n", "k"), [(0, 3), (2, 1), (60, 2), (60, 16), (500, 33), (700, 300)])
def test_sort_by_reachability(n, k, where):
    rng = np.random.default_rng(k)
    ids = np.array([rng.permutation(n)[:k] for _ in range(n)], np.int32).reshape(n, k)
    weights, core = rng.integers(0, 9, (n, k)).astype(float), rng.integers(0, 12, n).astype(float)
    expected = np.maximum(weights, np.maximum(core[:, None], core[ids]))
    order = np.lexsort((ids, expected), axis=1)
    found = where.asarray(ids.copy()), where.asarray(weights.copy())
    where.kernels("neighbors").sort_by_reachability(*found, where.asarray(core))
    np.testing.assert_array_equal(to_host(found[0]), np.take_along_axis(ids, order, axis=1))
    np.testing.assert_array_equal(to_host(found[1]), np.take_along_axis(expected, order, axis=1))


def searches(where, d):
    """The searches of a device for points of d features."""
    kinds = [TileSearch]
    if where.name == "cpu":
        kinds.append(TreeSearch)
    elif d <= 6:
        kinds.append(importlib.import_module("rapids_slink.neighbors.bvh").BoxSearch)
    return kinds


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("n", "d", "side"), [(40, 2, 4), (900, 2, 9), (900, 12, 2), (3000, 10, 1000), (3000, 3, 1000)])
def test_search_with_cores(n, d, side, shared, bounded, where):
    """Against all pairs: any cores, groups, bounds; ties between weights and between ids."""
    rng = np.random.default_rng(n + d)
    X = rng.integers(0, side, (n, d)).astype(np.float32)
    apart = squares(X)
    core = rng.choice(np.quantile(apart, [0.0, 0.01, 0.02, 0.05, 0.3]), n)
    group = rng.integers(0, 7, n).astype(np.int32)
    rows = rng.permutation(n)[: n // 2].astype(np.int32)
    upper = np.quantile(apart, rng.uniform(0, 0.05, 7))[group[rows]] if bounded else np.full(rows.size, np.inf)
    k = 1 if shared else 3
    matrix = np.where(group[rows, None] == group, np.inf, mutual(apart, core)[rows])
    matrix[matrix > upper[:, None]] = np.inf
    ids = np.argsort(matrix, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(matrix, ids, axis=1)
    for kind in searches(where, d):
        task = Task(*(where.asarray(part) if i != 1 else k for i, part in enumerate((rows, k, group, group, upper))),
                    shared=shared, core=where.asarray(core))  # fmt: skip
        found = kind(where.asarray(X), where, Report()).find(task)
        found_ids, found_weights, reached = (to_host(part) for part in (found.ids, found.weights, found.upper))
        if not shared:
            np.testing.assert_array_equal(found_weights, weights)
            np.testing.assert_array_equal(found_ids, np.where(np.isinf(weights), -1, ids))
            continue
        hit = found_ids[:, 0] >= 0
        np.testing.assert_array_equal(found_weights[hit], weights[hit])
        np.testing.assert_array_equal(found_ids[hit], ids[hit])
        assert (weights[~hit, 0] > reached[~hit]).all() or np.isinf(weights[~hit, 0]).all()
        for g in range(7):  # each group's least is there
            mine = group[rows] == g
            assert found_weights[mine].min() == weights[mine].min()


@pytest.mark.parametrize("k", [1100, 1190])
def test_long_lists_with_cores(k, where):
    """Longer than a GPU's shared memory holds."""
    X = np.random.default_rng(0).integers(0, 40, (1200, 9)).astype(np.float64)
    rows = np.arange(0, 1200, 100, dtype=np.int32)
    apart = squares(X)
    core = cores(apart, 30)
    matrix = mutual(apart, core)
    np.fill_diagonal(matrix, np.inf)
    expected = np.argsort(matrix[rows], axis=1, kind="stable")[:, :k]
    everyone = where.asarray(np.arange(1200, dtype=np.int32))
    upper = where.asarray(np.full(rows.size, np.inf))
    task = Task(where.asarray(rows), k, everyone, everyone, upper, core=where.asarray(core))
    np.testing.assert_array_equal(to_host(TileSearch(where.asarray(X), where, Report()).find(task).ids), expected)


# -------------------------------------------------------------------------------------------- the estimator


@pytest.mark.parametrize(
    ("min_samples", "error", "message"),
    [
        (0, ValueError, "min_samples must be at least 1, got 0"),
        (-3, ValueError, "min_samples must be at least 1, got -3"),
        (2.5, TypeError, "min_samples must be an integer, got 2.5"),
        (True, TypeError, "min_samples must be an integer, got True"),
        ("5", TypeError, "min_samples must be an integer, got '5'"),
        (60, ValueError, "min_samples must be at most n - 1 = 59, got 60"),
    ],
)
def test_bad_min_samples(min_samples, error, message, device):
    with pytest.raises(error, match=message):
        fit(np.arange(60.0)[:, None], min_samples=min_samples, device=device)


def test_one_row_has_no_neighbours(device):
    with pytest.raises(ValueError, match="min_samples must be at most n - 1 = 0, got 1"):
        fit(np.zeros((1, 1)), 1, min_samples=1, device=device)


def test_report_and_parameters(device):
    model = SingleLinkage(3, min_samples=np.int64(4), device=device)
    assert clone(model).get_params()["min_samples"] == 4
    assert SingleLinkage().min_samples is None
    report = model.fit(blobs(0)).report_
    assert report["min_samples"] == 4
    assert "min_samples: 4" in str(report)
    assert "min_samples 4" in model._repr_html_()
    assert "min_samples" not in fit(blobs(0), device=device).report_
    counts = report["spanning_tree"]["edges_certified_by_lists"]
    assert counts + report.get("connect", {}).get("edges_certified_by_search", 0) == 439


def test_enough_neighbours_for_the_cores(device):
    """The k-NN graph holds at least one more than a core needs."""
    X = blobs(1)
    few, many = (fit(X, min_samples=12, n_neighbors=k, device=device) for k in (1, 13))
    assert few.n_connected_components_ == many.n_connected_components_ < fit(X, n_neighbors=1, device=device).n_leaves_
    assert bits(few) == bits(many)
    assert len(fit(X[:13], min_samples=12, device=device).mst_) == 12


def test_kept_in_files_and_pickles(tmp_path, device):
    model = fit(pd.DataFrame(blobs(0)), 3, min_samples=4, device=device)
    model.save(tmp_path / "model.slink")
    for again in (rapids_slink.load(tmp_path / "model.slink"), pickle.loads(pickle.dumps(model))):
        assert again.min_samples == again.report_["min_samples"] == 4
        np.testing.assert_array_equal(again.to_scipy(), model.to_scipy())


def test_command_line(tmp_path, capsys):
    X = pd.DataFrame(blobs(0), columns=["x", "y"])
    X.to_csv(tmp_path / "points.csv", index=False)
    arguments = [str(tmp_path / "points.csv"), "--min-samples", "4", "--device", "cpu", "--linkage"]
    assert main([*arguments, str(tmp_path / "linkage.csv")]) == 0
    written = pd.read_csv(tmp_path / "linkage.csv")["height"]
    np.testing.assert_allclose(written, fit(X, min_samples=4, device="cpu").distances_, rtol=1e-15)
    arguments[2] = "0"
    assert main([*arguments, str(tmp_path / "other.csv")]) == 1
    assert "min_samples must be at least 1, got 0" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- hdbscan


def generic(X, m, **parameters):
    """hdbscan's generic algorithm on SciPy's distances: its own, by a matrix product, are less precise."""
    hdbscan = pytest.importorskip("hdbscan")
    return hdbscan.HDBSCAN(min_samples=m, metric="precomputed", algorithm="generic", **parameters).fit(
        squareform(pdist(X))
    )


def by_appearance(labels):
    """Clusters renumbered in the order in which they first appear; -1 stays."""
    numbers = np.full(labels.size, -1)
    numbers[labels >= 0] = pd.factorize(labels[labels >= 0])[0]
    return numbers


@pytest.mark.parametrize("m", [1, 3, 5, 10])
@pytest.mark.parametrize("d", [2, 10])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_hdbscans_heights_and_clusters(seed, d, m, device):
    """Labels differ at most where ties decide: at points whose core is a height of several merges."""
    X = blobs(seed, d)
    theirs = generic(X, m, min_cluster_size=10)
    model = fit(X, min_samples=m, device=device)
    ours = model.to_hdbscan(min_cluster_size=10)
    merges = model.to_scipy()[:, 2]
    np.testing.assert_array_equal(merges, theirs.single_linkage_tree_.to_numpy()[:, 2])
    np.testing.assert_array_equal(ours.single_linkage_tree_.to_numpy(), model.to_scipy())
    height, times = np.unique(merges, return_counts=True)
    tied = np.isin(cores(squareform(pdist(X)), m), height[times > 1]) if m > 1 else np.zeros(len(X), bool)
    assert tied.mean() < 0.4
    mine, other = (by_appearance(np.where(tied, -1, one.labels_)) for one in (ours, theirs))
    np.testing.assert_array_equal(mine, other)
    assert mine.max() >= 1
    if np.array_equal(
        by_appearance(ours.labels_), by_appearance(theirs.labels_)
    ):  # a cluster's are parts of its largest
        np.testing.assert_array_equal(ours.probabilities_[~tied], theirs.probabilities_[~tied])
    else:
        assert m > 1  # otherwise nothing ties
    assert len(ours.cluster_persistence_) == ours.labels_.max() + 1 == theirs.labels_.max() + 1
    assert ours.outlier_scores_.shape == (len(X),)
    assert set(ours.condensed_tree_.to_pandas()["child"]) >= set(range(len(X)))


def test_hdbscans_own_distances():
    """By a matrix product, ‖x‖² being some 1e4 times a small squared distance: eleven or twelve digits are left."""
    hdbscan = pytest.importorskip("hdbscan")
    X = blobs(0)
    theirs = hdbscan.HDBSCAN(min_samples=5, algorithm="generic").fit(X).single_linkage_tree_.to_numpy()
    np.testing.assert_allclose(fit(X, min_samples=5, device="cpu").to_scipy()[:, 2], theirs[:, 2], rtol=1e-10)


def test_scikit_learn_counts_the_point_itself():
    sklearns = pytest.importorskip("sklearn.cluster")
    X = blobs(3)
    theirs = sklearns.HDBSCAN(min_cluster_size=10, min_samples=6, metric="precomputed", algorithm="brute", copy=True)
    theirs.fit(squareform(pdist(X)))
    model = fit(X, min_samples=5, device="cpu")
    ours = model.to_hdbscan(min_cluster_size=10)
    assert (by_appearance(ours.labels_) != by_appearance(theirs.labels_)).sum() <= 2  # ties
    np.testing.assert_array_equal(theirs._single_linkage_tree_["value"], model.distances_)


@pytest.mark.parametrize(
    "options",
    [
        {"cluster_selection_method": "leaf"},
        {"cluster_selection_epsilon": 1.5},
        {"allow_single_cluster": True, "min_cluster_size": 150},
        {"max_cluster_size": 60},
    ],
)
def test_options_choose_the_clusters(options):
    X = blobs(0)
    options = {"min_cluster_size": 10, **options}
    theirs = generic(X, 1, **options)
    ours = fit(X, min_samples=1, device="cpu").to_hdbscan(**options)
    np.testing.assert_array_equal(by_appearance(ours.labels_), by_appearance(theirs.labels_))
    np.testing.assert_array_equal(ours.probabilities_, theirs.probabilities_)
    default = fit(X, device="cpu").to_hdbscan(10)
    assert not np.array_equal(default.labels_, ours.labels_)
    assert {name: ours.get_params()[name] for name in options} == options


def test_what_is_said_of_the_tree():
    pytest.importorskip("hdbscan")
    X = blobs(0)
    model = fit(X, min_samples=7, metric="sqeuclidean", device="cpu")
    made = model.to_hdbscan()
    assert (made.min_samples, made.metric, made.min_cluster_size) == (7, "sqeuclidean", 5)
    assert fit(X, device="cpu").to_hdbscan().min_samples == 1
    src, dst = np.triu_indices(len(X), 1)
    graph = fit_graph(pd.DataFrame({"src": src, "dst": dst, "weight": pdist(X)}), device="cpu")
    from_graph = graph.to_hdbscan()
    assert from_graph.metric == "precomputed"
    np.testing.assert_array_equal(from_graph.labels_, fit(X, device="cpu").to_hdbscan().labels_)


def test_what_hdbscan_cannot_have(monkeypatch):
    pytest.importorskip("hdbscan")
    model = fit(blobs(0), min_samples=3, device="cpu")
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2, got 1"):
        model.to_hdbscan(min_cluster_size=1)
    with pytest.raises(TypeError, match=r"min_cluster_size must be an integer, got 2\.5"):
        model.to_hdbscan(min_cluster_size=2.5)
    with pytest.raises(TypeError, match=r"takes hdbscan's cluster_selection_method, .*, got 'gen_min_span_tree'"):
        model.to_hdbscan(gen_min_span_tree=True)
    with pytest.raises(ValueError, match="at least two rows"):
        fit(np.zeros((1, 2)), 1, device="cpu").to_hdbscan()
    with pytest.raises(ValueError, match="2 trees"):
        fit_graph(pd.DataFrame({"src": [0], "dst": [1], "weight": [1.0]}), n_nodes=3, device="cpu").to_hdbscan()
    monkeypatch.setitem(sys.modules, "hdbscan", None)
    with pytest.raises(ImportError, match=r"pip install 'rapids_slink\[hdbscan\]'"):
        model.to_hdbscan()


def test_old_files_have_no_min_samples(tmp_path):
    """Files from before there was the parameter."""
    zipfile = importlib.import_module("zipfile")
    fit(blobs(0), device="cpu").save(tmp_path / "new.slink")
    with zipfile.ZipFile(tmp_path / "new.slink") as new, zipfile.ZipFile(tmp_path / "old.slink", "w") as old:
        for part in new.namelist():
            content = new.read(part)
            if part == "model.json":
                said = json.loads(content)
                del said["parameters"]["min_samples"]
                content = json.dumps(said)
            old.writestr(part, content)
    assert rapids_slink.load(tmp_path / "old.slink").min_samples is None

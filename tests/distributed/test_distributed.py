"""Dask collections: the bits of one device, whatever the partitions and workers are, and what is left after errors."""

import gc
import os
import pickle
import signal
import threading
import time
from concurrent.futures import CancelledError
from contextvars import copy_context

import numpy as np
import pandas as pd
import pytest
from dask_clusters import assert_same, collection, dask, dask_distributed, dd, from_delayed, start
from hard_cases import CASES, combinations, full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import PACKED, points, without_zeros
from oracles import blobs

import rapids_slink
from rapids_slink import (
    HDBSCAN,
    SingleLinkage,
    cut,
    distributed,
    fit,
    fit_graph,
    knn_graph,
    linkage,
    minimum_spanning_tree,
    pairs,
)
from rapids_slink import nearest_neighbors as nearest
from rapids_slink.distributed import cluster as runs
from rapids_slink.distributed.cluster import Run
from rapids_slink.distributed.points import make_blocks, read_points
from rapids_slink.distributed.trees import forest_of_frame
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.runtime.device import CPU
from rapids_slink.settings import Settings

da = dask.array
pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


# ------------------------------------------------------------------------------------------------------ the same bits


@pytest.mark.parametrize("name", [one if one in ("images", "repeated_rows", "one_row") else full(one) for one in CASES])
def test_hard_cases(name, client, blocks):
    X = CASES[name]("float64")
    n = len(X)
    frame, parts = collection(X, [n // 4, 0, n - n // 4 - n // 3, n // 3])
    assert_same(fit(parts, 1, device="cpu"), fit(frame, 1, device="cpu"))


PARTITIONS = {"ones": ([1] * 30, 4), "one": ([30], 2), "empty": ([0, 1, 0, 28, 1, 0], 6), "a row": ([29, 1], 1),
              "halves": ([15, 15], 30)}  # fmt: skip
LISTED = [("n_neighbors", 1), ("n_neighbors", 5), ("min_samples", 4)]


@pytest.mark.parametrize(
    ("partitions", "parameter"),
    combinations(PARTITIONS, LISTED, quick=[("empty", LISTED[1]), ("ones", LISTED[2]), ("one", LISTED[0])]),
)
def test_any_partitions(partitions, parameter, client, blocks):
    (sizes, count), parameters = PARTITIONS[partitions], dict([parameter])
    blocks(count)
    X = np.random.default_rng(0).integers(0, 5, (30, 3)).astype(np.float32)
    frame, parts = collection(X, sizes)
    found = fit(parts, n_clusters=4, device="cpu", **parameters)
    assert found.labels_.npartitions == len(sizes)
    assert_same(found, fit(frame, n_clusters=4, device="cpu", **parameters))


@pytest.mark.parametrize("metric", [name if name in ("cosine", "bit_jaccard") else full(name) for name in METRICS])
def test_metrics(metric, client, blocks):
    X = without_zeros(points("uneven_blobs_2d", metric)[:200] % 1.5, metric)  # latitudes and longitudes too
    X = np.packbits(X > 0.7, axis=1) if metric in PACKED else X
    frame, parts = collection(X, [50, 150])
    parameters = {"metric": metric, "p": 1.5 if metric == "minkowski" else 2.0, "device": "cpu"}
    assert_same(fit(parts, 3, **parameters), fit(frame, 3, **parameters))
    found = knn_graph(parts, 4, **parameters).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, knn_graph(frame, 4, **parameters))
    found = nearest(parts, frame.iloc[50:], **parameters).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, nearest(frame, frame.iloc[50:], **parameters))
    found = nearest(parts, frame.iloc[50:], 70, **parameters).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, nearest(frame, frame.iloc[50:], 70, **parameters))


@pytest.mark.parametrize("how", [{}, {"max_distance": 0.1}], ids=str)
def test_core_distances_on_the_sphere(how, client, blocks):
    """Two equal rows in each block, of which some are equal to a third in another."""
    X = np.repeat(points("uneven_blobs_2d", "haversine")[:150] % 1.5, 2, axis=0)
    frame, parts = collection(np.concatenate([X, X[:40]]), [100, 240])
    parameters = {"metric": "haversine", "min_samples": 2, "device": "cpu", **how}
    assert_same(fit(parts, **parameters), fit(frame, **parameters))


@pytest.mark.parametrize("metric", ["euclidean", full("jaccard")])
def test_the_part_of_the_tree(metric, client, blocks):
    """Up to a distance, over blocks of which some have no pair of rows within it."""
    blocks(3)
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 12)), 10, axis=0)
    X += np.random.default_rng(1).normal(size=X.shape) * 0.05
    X = X if metric == "euclidean" else X > 0
    frame, parts = collection(X, [100, 150, 50])
    for t in (0.2, 0.6):
        parameters = {"max_distance": t, "metric": metric, "device": "cpu"}
        assert_same(fit(parts, **parameters), fit(frame, **parameters))


@pytest.mark.parametrize("metric", ["euclidean", full("cosine")])
def test_one_row(metric, client, blocks):
    frame, parts = collection(np.ones((1, 3)), [0, 1])
    parameters = {"metric": metric, "device": "cpu"}
    assert_same(fit(parts, 1, **parameters), fit(frame, 1, **parameters))


def test_every_worker_has_as_many_blocks(client):
    """Wherever the partitions are."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    X = np.random.default_rng(0).normal(size=(20_000, 50))
    parts = collection(X, [15_000, 5_000])[1].persist(workers=workers[:1], allow_other_workers=False)
    with Run() as run:
        rows = make_blocks(run, read_points(run, parts, Settings(get_metric("euclidean"), "cpu")), 4).rows
        run.wait(rows)
        holders = [worker for held in client.who_has(rows).values() for worker in held]
    assert sorted(holders) == sorted(2 * workers)


@pytest.mark.parametrize("workers", [full(1), full(3)])
def test_other_clusters(workers):
    X = blobs(1, 12, n=3000)
    with start(workers) as made, dask_distributed.Client(made):
        parts = da.from_array(X, chunks=(700, 5))
        assert_same(fit(parts, 6, device="cpu"), fit(X, 6, device="cpu"))


@pytest.mark.hypothesis
@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 1000]))
def test_forest_of_frame(edges, parts, seed, weights):
    """Kruskal's, in the total order, of edges that come several times."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, 15, (edges, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    weight = rng.integers(0, weights, (15, 15))[tuple(ends.T)].astype(float)
    frame = pd.DataFrame({"src": ends[:, 0], "dst": ends[:, 1], "weight": weight, "distance": -weight})
    taken, component = [], np.arange(15)
    for w, u, v in sorted(set(zip(weight, *ends.T.tolist(), strict=True))):
        if component[u] != component[v]:
            component[component == component[v]] = component[u]
            taken.append((u, v, w, -w))
    repeated = pd.concat([frame] * parts, ignore_index=True)
    found = forest_of_frame(repeated, CPU)
    assert list(found.itertuples(index=False, name=None)) == taken


def test_hdbscan(client, blocks):
    X = blobs(0)
    frame, parts = collection(X, [100, 0, len(X) - 100])
    ours, theirs = HDBSCAN(8, device="cpu").fit(parts), HDBSCAN(8, device="cpu").fit(frame)
    assert_same(ours, theirs)
    assert ours.report_["min_samples"] == theirs.report_["min_samples"] == 8
    for name in ("probabilities_", "outlier_scores_"):
        pd.testing.assert_series_equal(getattr(ours, name).compute(), getattr(theirs, name))
    pd.testing.assert_frame_equal(ours.condensed_tree_.frame.compute(), theirs.condensed_tree_.frame)
    np.testing.assert_array_equal(ours.cluster_persistence_, theirs.cluster_persistence_)
    for one_piece in (lambda: ours.select(min_cluster_size=[4, 8]), ours.layers):
        words = "takes a model in one piece, and this has partitions: save it and load it"
        with pytest.raises(ValueError, match=words):
            one_piece()
    words = "select takes rows of features on one device: of text, sets, or in partitions"
    with pytest.raises(ValueError, match=words):
        ours.select(parts, min_cluster_size=[4, 8])
    again = pickle.loads(pickle.dumps(ours))
    pd.testing.assert_frame_equal(again.select(min_cluster_size=[4, 8]), theirs.select(min_cluster_size=[4, 8]))


@pytest.mark.parametrize("metric", ["euclidean", *map(full, ("sqeuclidean", "cityblock", "chebyshev", "minkowski"))])
def test_blocks_farther_apart_than_the_distance_never_meet(metric, client, blocks):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 60, (600, 2)).astype(float)
    X = X[np.argsort(X[:, 0], kind="stable")]
    how = {"metric": metric, "p": 3.0, "device": "cpu"}
    blocks(6)
    for t, met in ((1.0, 5), (4.0, 5), (1e4, 15)):  # pairs of neighbours, a step apart or less
        frame, parts = collection(X, [100, 100, 0, 100, 100, 100, 100])
        model = fit(parts, max_distance=t, **how)
        assert_same(model, fit(frame, max_distance=t, **how))
        assert model.report_["spanning_tree"]["pairs"] == met
    frame, parts = collection(X + 1000 * np.repeat(np.arange(6), 100)[:, None], [100] * 6)
    model = fit(parts, max_distance=5.0, **how)
    assert_same(model, fit(frame, max_distance=5.0, **how))
    assert model.report_["spanning_tree"] | {"blocks": 6, "pairs": 0} == model.report_["spanning_tree"]
    shuffled, parts = collection(X[rng.permutation(600)], [300, 300])
    assert_same(fit(parts, max_distance=2.0, **how), fit(shuffled, max_distance=2.0, **how))


def test_float_errors_are_no_errors_of_callers_that_raise_them(client, blocks):
    """Gaps between blocks underflow in this process, everything else in the workers."""
    frame, parts = collection(np.arange(60.0)[:, None] * [1e-200, 1e-310], [20, 20, 20])
    expected = fit(frame, max_distance=2e-200, device="cpu")
    with np.errstate(all="raise"):
        assert_same(fit(parts, max_distance=2e-200, device="cpu"), expected)


# -------------------------------------------------------------------------------------------------------- the results


def test_results_are_collections(client, blocks, tmp_path):
    frame = pd.DataFrame(blobs(0), columns=["x", "y"]).set_index(pd.RangeIndex(100, 540))
    parts = dd.from_pandas(frame, npartitions=5)
    model, expected = SingleLinkage(6, device="cpu").fit(parts), SingleLinkage(6, device="cpu").fit(frame)
    assert_same(model, expected)
    assert model.labels_.divisions == parts.divisions
    assert isinstance(model.linkage_, dd.DataFrame)
    assert isinstance(model.mst_, dd.DataFrame)
    assert model.feature_names_in_.tolist() == ["x", "y"]
    assert (model.n_leaves_, model.n_features_in_, model.n_clusters_) == (440, 2, 6)
    large = {"n_clusters": 3, "min_cluster_size": 9, "count_small": False}
    for how in ({"n_clusters": 9}, {"max_cluster_size": 50}, large):
        pd.testing.assert_series_equal(model.cut(**how).compute(), expected.cut(**how))
    found, cuts = (one.cut(distance_threshold=[1.0, 2.0]) for one in (model, expected))
    pd.testing.assert_frame_equal(found.compute(), cuts)
    np.testing.assert_array_equal(model.to_scipy(), expected.to_scipy())
    np.testing.assert_array_equal(model.distances_.compute(), expected.distances_)
    assert "440 rows in 6 clusters" in model._repr_html_()
    figure = pytest.importorskip("matplotlib.figure").Figure()
    assert len(model.plot_heights(figure.subplots()).lines) == 2
    model.save(tmp_path / "dask.slink")
    for again in (pickle.loads(pickle.dumps(model)), rapids_slink.load(tmp_path / "dask.slink")):
        assert_same(again, expected)
        pd.testing.assert_series_equal(again.cut(9), expected.cut(9))
        pd.testing.assert_series_equal(again.reduce_outliers(), expected.reduce_outliers())
    with pytest.raises(ValueError, match="takes a model in one piece, and this has partitions: save it and load it"):
        model.reduce_outliers()
    assert model.report_["cluster"]["workers"] == 2
    assert model.report_["spanning_tree"]["blocks"] == 3
    with pytest.raises(ValueError, match="n_clusters must be from 1 to 440"):
        model.cut(441)


@pytest.mark.gpu
def test_results_of_a_gpu_are_of_the_input_s_kind(client, blocks):
    frame = pd.DataFrame(blobs(0), columns=["x", "y"])
    model = SingleLinkage(6, device="cuda").fit(dd.from_pandas(frame, npartitions=5))
    expected = SingleLinkage(6, device="cpu").fit(frame)
    for name in ("linkage_", "mst_"):
        pd.testing.assert_frame_equal(getattr(model, name).compute(), getattr(expected, name))
    pd.testing.assert_series_equal(model.cut(9).compute(), expected.cut(9))
    np.testing.assert_array_equal(model.distances_.compute(), expected.distances_)
    pickle.loads(pickle.dumps(model)).cut(9)


@pytest.mark.filterwarnings("ignore:.*inplace keyword")  # Dask's reader
def test_parquet(client, blocks, tmp_path):
    """Whose partitions Dask puts together where few columns are read."""
    frame = pd.DataFrame(blobs(0, 9), columns=[f"x{i}" for i in range(9)])
    frame["text"] = "some more bytes in every row" * 9
    dd.from_pandas(frame, npartitions=6).to_parquet(tmp_path / "parts")
    parts = dd.read_parquet(tmp_path / "parts")[["x0", "x1"]]
    model = fit(parts, 4, device="cpu")
    assert model.labels_.npartitions == parts.npartitions == 6
    assert_same(model, fit(frame[["x0", "x1"]], 4, device="cpu"))
    labelled = parts.assign(label=model.labels_).compute().sort_index()  # Dask aligns by the index
    pd.testing.assert_series_equal(labelled["label"], model.labels_.compute(), check_names=False)
    labelled = beside(parts, model.labels_).compute()
    pd.testing.assert_frame_equal(labelled[["x0", "x1"]], frame[["x0", "x1"]])
    pd.testing.assert_series_equal(labelled["label"], model.labels_.compute())


def beside(parts, labels):
    """The recipe of the guide."""
    return parts.map_partitions(lambda part, label: part.assign(label=label), labels, align_dataframes=False)


@pytest.mark.parametrize(
    ("index", "persisted"),
    combinations(("repeated", "text", "range"), (False, True), quick=[("repeated", False), ("text", True)]),
)
def test_labels_beside_rows_without_divisions(index, persisted, client, blocks):
    """The recipe of the guide: partition by partition, whatever the index is."""
    frame, _ = collection(blobs(0), [440])
    labels = {"repeated": np.arange(440) % 7, "text": np.array(list("abcd") * 110), "range": np.arange(440)}[index]
    frame = frame.set_axis(pd.Index(labels), axis=0)
    parts = from_delayed([frame[:100], frame[100:100], frame[100:340], frame[340:]])
    parts = parts.persist() if persisted else parts
    model = fit(parts, 6, device="cpu")
    assert not model.labels_.known_divisions
    labelled = beside(parts, model.labels_).compute()
    np.testing.assert_array_equal(labelled[["x0", "x1"]], frame)
    np.testing.assert_array_equal(labelled["label"], fit(frame, 6, device="cpu").labels_)
    assert labelled.index.tolist() == frame.index.tolist()


def test_arrays(client, blocks):
    X = blobs(3, 4)
    parts = da.from_array(X, chunks=(111, 3))
    model = fit(parts[parts[:, 0] > 0], 3, device="cpu")  # chunks of unknown sizes
    expected = fit(X[X[:, 0] > 0], 3, device="cpu")
    assert isinstance(model.labels_, da.Array)
    assert_same(model, expected)
    np.testing.assert_array_equal(model.cut([2, 5]).compute(), expected.cut([2, 5]))


def test_frames_of_edges(client):
    frame = pd.DataFrame(blobs(4), columns=["x", "y"])
    edges = knn_graph(frame, 6, device="cpu")
    parts = dd.from_pandas(edges, npartitions=4)
    tree = minimum_spanning_tree(edges, device="cpu")
    pd.testing.assert_frame_equal(minimum_spanning_tree(parts, device="cpu").compute(), tree)
    model = fit(frame, 3, device="cpu")
    merges = linkage(dd.from_pandas(model.mst_, npartitions=3), device="cpu")
    pd.testing.assert_frame_equal(merges.compute(), model.linkage_)
    pd.testing.assert_series_equal(cut(merges, n_clusters=3).compute(), cut(model.linkage_, n_clusters=3))
    found, expected = fit_graph(parts, device="cpu"), fit_graph(edges, device="cpu")
    pd.testing.assert_series_equal(found.labels_, expected.labels_)


# ------------------------------------------------------------------------------------------- columns of the partitions

RESULTS = {
    "fit": lambda X: fit(X, 6, device="cpu").linkage_,
    "HDBSCAN": lambda X: HDBSCAN(8, device="cpu").fit(X).labels_,
    "knn_graph": lambda X: knn_graph(X, 4, device="cpu"),
    "nearest_neighbors": lambda X: nearest(X, X + 1, device="cpu"),
}
GRAPHS = {
    "fit_graph": ("edges", lambda edges: fit_graph(edges, device="cpu").linkage_),
    "minimum_spanning_tree": ("edges", lambda edges: minimum_spanning_tree(edges, device="cpu")),
    "linkage": ("tree", lambda tree: linkage(tree, device="cpu")),
    "cut": ("linkage", lambda merges: cut(merges, n_clusters=3)),
}


COLLECTS = "read_csv", "from_map", "from_delayed"


@pytest.fixture(params=COLLECTS)
def collect(request, tmp_path):
    """Makes a collection of partitions; it says that all have the columns of the first."""

    def read_csv(parts):
        for p, part in enumerate(parts):
            part.to_csv(tmp_path / f"{p}.csv", index=False)
        return dd.read_csv(tmp_path / "*.csv")

    def from_map(parts):
        return dd.from_map(lambda p: parts[p], range(len(parts)), meta=parts[0].head(0), enforce_metadata=False)

    return {"read_csv": read_csv, "from_map": from_map, "from_delayed": from_delayed}[request.param]


def rows_of_eighths():
    """Which a text file keeps."""
    return pd.DataFrame(np.round(8 * blobs(0)) / 8, columns=["x", "y"])


@pytest.mark.parametrize(
    ("name", "collect"),
    combinations(RESULTS, COLLECTS, quick=[*zip(RESULTS, (*COLLECTS, COLLECTS[0]), strict=True)]),
    indirect=["collect"],
)
def test_columns_in_another_order(name, collect, client, blocks):
    frame, result = rows_of_eighths(), RESULTS[name]
    found = result(collect([frame[:200], frame[200:][["y", "x"]]]))
    np.testing.assert_array_equal(found.compute(), result(frame))


SPOILT = [
    (lambda part: part.assign(z=1.0), "columns x, y and no others; it has 'z' too"),
    (lambda part: part[["x"]], r"columns x, y; y not found in \['x'\]"),
    (lambda part: part.rename(columns={"y": "z"}), r"columns x, y; y not found in \['x', 'z'\]"),
]


@pytest.mark.parametrize(
    ("spoilt", "collect"),
    combinations(SPOILT, COLLECTS, quick=zip(SPOILT, COLLECTS, strict=True)),
    indirect=["collect"],
)
def test_other_columns(spoilt, collect, client):
    frame, (spoil, message) = rows_of_eighths(), spoilt
    parts = collect([frame[:200], spoil(frame[200:])])
    for result in RESULTS.values():
        with pytest.raises(ValueError, match=f"partition 1 of X must be a DataFrame with {message}"):
            result(parts)


@pytest.mark.parametrize("labels", [[("a", "x"), ("a", "y")], full([1, 0]), full([None, "x"])], ids=str)
def test_labels_of_any_type(labels, client):
    """And a partition without rows, whatever its columns."""
    frame = rows_of_eighths().set_axis(pd.Index(labels), axis="columns")
    parts = from_delayed([frame[:200], pd.DataFrame(), frame[200:].iloc[:, [1, 0]]])
    assert_same(fit(parts, 6, device="cpu"), fit(frame, 6, device="cpu"))


def test_partitions_that_do_not_match(client):
    frame = rows_of_eighths()
    for X, error, message in [
        (from_delayed([frame, frame[["x", "y", "y"]]]), ValueError, "partition 1 of Y .*; 'y' is there 2 times"),
        (from_delayed([frame, frame["x"]]), TypeError, "partition 1 of Y must be a DataFrame .*, got Series"),
        (blocks_of_width(2, 3, says=2), ValueError, "partition 1 of Y must have 2 columns, as the array says, got 3"),
        (blocks_of_width(3, 3, says=2), ValueError, "partition . of Y must have 2 columns, as the array says, got 3"),
    ]:
        with pytest.raises(error, match=message):
            nearest(dd.from_pandas(frame), X, device="cpu")


def blocks_of_width(*widths, says):
    """An array whose blocks are not what it says."""
    blocks = [da.from_delayed(dask.delayed(np.ones)((5, width)), (5, says), dtype=float) for width in widths]
    return da.concatenate(blocks)


@pytest.mark.parametrize("function", GRAPHS)
def test_columns_of_edges_and_merges(function, client):
    """Others than those that are read may be in any partition or none."""
    name, result = GRAPHS[function]
    tree = fit(rows_of_eighths(), 3, device="cpu").mst_
    frame = linkage(tree, device="cpu") if function == "cut" else tree
    first, last = frame[:200], frame[200:].iloc[:, ::-1].assign(colour="red")
    found = result(from_delayed([first, pd.DataFrame(columns=["src"]), last]))
    np.testing.assert_array_equal(found.compute() if hasattr(found, "compute") else found, result(frame))
    lost = frame.columns[0]
    with pytest.raises(ValueError, match=rf"partition 1 of {name} must .*; {lost} not found in"):
        result(from_delayed([first, last.drop(columns=lost)]))


# ------------------------------------------------------------------------------------------------------------- plans


def test_expected_time():
    assert runs.expected_time(1, 8) == 1
    assert all(runs.expected_time(count, 1) == 1 for count in range(1, 33))
    assert runs.expected_time(4, 2) == 1 / 2
    assert runs.expected_time(6, 4) == 1 / 4
    assert runs.expected_time(6, 8) == (1 + 2 * 2) / 36


@pytest.mark.parametrize(
    ("n", "d", "devices", "device", "blocks"),
    [
        (10**6, 16, 2, "cpu", 4),
        (9, 16, 2, "cpu", 1),
        (10**6, 128, 2, "cuda", 1),
        (10**6, 4096, 2, "cuda", 4),
        (8 * 10**6, 96, 2, "cuda", 4),
        (8 * 10**6, 96, 8, "cuda", 6),
        (10**8, 96, 8, "cuda", 9),
    ],
)
def test_wanted_blocks(n, d, devices, device, blocks):
    assert runs.wanted_blocks(n, d, devices, device) == blocks


def test_blocks_that_fit(monkeypatch):
    settings = Settings(get_metric("euclidean"), "cpu")
    for free, blocks in ((7 * 10**9, 1), (4 * 10**9, 4)):
        monkeypatch.setattr(distributed, "free_for_task", lambda settings, device, free=free: free)
        assert distributed._fitting_blocks(settings, 20_000_000, 2, "<f8", 1) == blocks


def test_blocks(client, monkeypatch):
    frame, parts = collection(blobs(0, 20, n=2000), [1000, 1040])
    assert fit(parts, 2, device="cpu").report_["spanning_tree"]["blocks"] == 1  # both workers are on one host
    monkeypatch.setitem(runs.MIN_BLOCK_WORK, "cpu", 2**10)
    monkeypatch.setattr(runs.Run, "devices", lambda run, gpu: 2)
    model = fit(parts, 2, device="cpu", progress=True)
    assert model.report_["spanning_tree"]["pairs"] == 6
    assert fit(parts[["x0", "x1"]], 2, device="cpu").report_["spanning_tree"]["blocks"] == 1
    small = fit(parts, 2, device="cpu", memory_limit="500KiB")
    assert small.report_["spanning_tree"]["blocks"] > 4
    assert_same(small, fit(frame, 2, device="cpu"))
    with pytest.raises(rapids_slink.DeviceMemoryError, match="memory_limit=20480 is too small"):
        fit(parts, 2, device="cpu", memory_limit="20KiB")


# -------------------------------------------------------------------------------------------------------------- faults


def test_without_a_client():
    with pytest.raises(RuntimeError, match=r"client = Client\(LocalCluster\(\)\)"):
        fit(da.ones((4, 2)), 1)


def test_partitions_too_far_from_each_other(client):
    """Distances within either fit into float64."""
    X = np.array([[-8e153, 0.0], [-8e153, 1.0], [8e153, 0.0], [8e153, 2.0]])
    for sizes in ([2, 2], [4]):
        with pytest.raises(ValueError, match=r"values of column 'x0' span 1\.6e\+154, and up to"):
            fit(collection(X, sizes)[1], 2, device="cpu")
    frame, parts = collection(X / 4, [2, 2])
    assert_same(fit(parts, 2, device="cpu"), fit(frame, 2, device="cpu"))


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda part: part.assign(x1=np.nan), ValueError, r"partition 1 of X: .*column 'x1'"),
        (lambda part: part.assign(x0="a"), ValueError, "partition 1 of X: .*'x0'"),
        (lambda part: part.assign(x0=1e300), ValueError, "x0.*span"),
    ],
)
def test_bad_input_is_named(spoil, error, message, client):
    frame = pd.DataFrame(blobs(0)[:20], columns=["x0", "x1"])
    with pytest.raises(error, match=message):
        fit(from_delayed([frame, spoil(frame), frame]), 2, device="cpu")
    assert_nothing_is_left(client)


def test_refused(client):
    rows, X = collection(blobs(0), [400, 40])
    zeros, centred = collection(np.eye(9)[:, :3] + np.eye(9)[:, 4:7], [5, 4])[1], HDBSCAN(store_centers="both")
    kept, near = fit(rows, 5, prediction_data=True, device="cpu"), {"max_distance": 1.0, "device": "cpu"}
    for call, message in (
        (lambda: fit(X, 2, metric="precomputed"), "takes a matrix in one piece"),
        (lambda: fit(zeros, 2, metric="braycurtis", device="cpu"), "rows 3 and 7 of X are zero in every column"),
        (lambda: nearest(X, X[["x0"]]), "same number of features, got 2 and 1"),
        (lambda: nearest(X, X, 441), "n_neighbors must be at most the number of rows of Y, 440, got 441"),
        (lambda: nearest(X, X, groups="x0"), "groups of nearest_neighbors is for rows on one device"),
        (lambda: nearest(X, X, output="arrays"), "output='arrays' of nearest_neighbors is for rows on one device"),
        (lambda: knn_graph(X, 440), "n_neighbors must be at most n - 1 = 439"),
        (lambda: fit(X, 2, min_samples=440), "min_samples must be at most n - 1 = 439"),
        (lambda: fit(da.ones((4, 2, 2)), 2), "dim 3"),
        (lambda: centred.fit(X), "store_centers is for rows on one device, and X is a Dask collection"),
        (lambda: fit(X, missing="pairwise", device="cpu"), "missing= takes points in one piece, not a Dask collection"),
        (lambda: fit(X, metric="levenshtein"), "metric='levenshtein' takes no Dask collection"),
        (lambda: HDBSCAN(3).fit(X, sample_weight=np.ones(440)), "sample_weight is for rows on one device"),
        (lambda: fit(X, 5, prediction_data=True), "prediction_data=True is for rows on one device"),
        (lambda: fit(X, cannot_link=[(0, 1)], **near), "cannot_link is for rows on one device, and X is a Dask coll"),
        (lambda: pairs(X, names=True, **near), "names=True is for rows on one device"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for call, message in (
        (lambda: kept.predict(X), "use map_partitions"),
        (lambda: fit(rows, cannot_link=X["x0"], **near), "cannot_link is a Dask collection"),
        (lambda: rapids_slink.iter_pairs(X, **near), "pairs are in partitions"),
        (lambda: pairs(rows, X, **near), "pairs with a Dask Y take a Dask X"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert_nothing_is_left(client)


def assert_nothing_is_left(client):
    """No task and no data on the cluster."""
    gc.collect()
    for _ in range(50):
        left = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"{left} tasks are left")


def test_interrupted(client, blocks, monkeypatch):
    """As by Ctrl-C, while trees are made: the next fit is right."""
    wait = runs.Run.wait

    def interrupt(self, futures, progress=None):
        if any(future.key[0].startswith("tree") for future in futures):
            raise KeyboardInterrupt
        wait(self, futures, progress)

    frame, parts = collection(blobs(0), [400, 40])
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(runs.Run, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fit(parts, 2, device="cpu")
        assert_same(fit(parts, 2, device="cpu"), fit(frame, 2, device="cpu"))  # the client is not lost
    del parts
    assert_nothing_is_left(client)


def test_two_at_once(cluster, blocks):
    """From two threads, each with a client of its own."""
    found = {}

    def run(seed):
        with dask_distributed.Client(cluster, set_as_default=False).as_current():
            _, parts = collection(blobs(seed, 9), [300, 140])
            found[seed] = fit(parts, 4, device="cpu").labels_.compute()

    threads = [threading.Thread(target=copy_context().run, args=(run, seed)) for seed in (0, 1)]  # with the blocks
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, labels in found.items():
        np.testing.assert_array_equal(labels, fit(blobs(seed, 9), 4, device="cpu").labels_)
    assert len(found) == 2


def kill(client):
    """End a worker as the kernel does for lack of memory. Returns the workers' addresses before."""
    pids = client.run(os.getpid)
    os.kill(min(pids.values()), signal.SIGKILL)
    return set(pids)


@pytest.mark.full
@pytest.mark.parametrize(
    ("stage", "count"), [("own", 3), ("tree", 3), ("linkage", 3), ("read", 1), ("block", 1), ("fit", 1)]
)
@pytest.mark.parametrize("persisted", [False, True])
def test_a_worker_that_dies(stage, count, persisted, blocks, monkeypatch):
    """It costs time, not the result: a nanny starts another one, and Dask does its tasks again."""
    blocks(count)
    X = blobs(0, 10, n=2000)
    frame, parts = collection(X, [500, 500, 500, len(X) - 1500])
    with start(2) as made, dask_distributed.Client(made) as client:
        if persisted:
            parts = parts.persist()
            dask_distributed.wait(parts)
        task, killed = runs.Run.task, []

        def submit(self, name, *args, **kwargs):
            future = task(self, name, *args, **kwargs)
            if name == stage and not killed:
                killed.append(kill(client))
            return future

        monkeypatch.setattr(runs.Run, "task", submit)
        found = fit(parts, 5, min_samples=3, device="cpu")
        assert killed
        assert_same(found, fit(frame, 5, min_samples=3, device="cpu"))


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 4])
def test_a_worker_that_came_back(count, blocks):
    """It has the partitions, blocks and trees of the next fit again, and labels of the fit before are not lost."""
    blocks(count)
    frame, parts = collection(blobs(0, 10, n=2000), [500, 500, 500, 540])
    expected = fit(frame, 5, device="cpu")
    with start(2) as made, dask_distributed.Client(made) as client:
        before, earlier = fit(parts, 5, device="cpu"), kill(client)
        for _ in range(300):
            workers = set(client.scheduler_info(n_workers=-1)["workers"])
            if len(workers) == 2 and workers != earlier:
                break
            time.sleep(0.1)
        assert_same(before, expected)
        with dask_distributed.get_task_stream(client) as stream:
            found = fit(parts, 5, device="cpu")
        assert_same(found, expected)
        assert found.report_["cluster"]["workers"] == 2
        assert {record["worker"] for record in stream.data} == workers


@pytest.mark.full
def test_a_cluster_that_is_lost(blocks, monkeypatch):
    """The call fails; it does not wait for ever."""
    wait = runs.Run.wait
    with start(1) as made, dask_distributed.Client(made):

        def lose(self, futures, progress=None):
            if any(future.key[0].startswith("tree") for future in futures):
                made.close()
            wait(self, futures, progress)

        monkeypatch.setattr(runs.Run, "wait", lose)
        _, parts = collection(blobs(0), [400, 40])
        with pytest.raises((CancelledError, RuntimeError, OSError)):
            fit(parts, 2, device="cpu")


@pytest.mark.full
def test_a_worker_without_memory():
    """The nanny ends it, and the error says what to do. The cluster is as good as before."""
    X = blobs(0)
    only_once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with only_once, start(1, memory_limit="700 MiB") as made, dask_distributed.Client(made) as client:
        frame, parts = collection(X, [400, 40])
        spoilt = dd.from_delayed([dask.delayed(use_memory)(frame[:40]), dask.delayed(frame[40:])], meta=frame[:0])
        with pytest.raises(dask_distributed.KilledWorker) as error:
            fit(spoilt, 2, device="cpu")
        assert "smaller memory_limit" in "".join(error.value.__notes__)
        assert_same(fit(parts, 2, device="cpu"), fit(frame, 2, device="cpu"))
        del parts, spoilt, error
        assert_nothing_is_left(client)


def use_memory(frame):
    taken = np.ones(2**28)
    time.sleep(10)
    return frame * taken[0]

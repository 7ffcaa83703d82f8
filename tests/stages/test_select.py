"""`HDBSCAN.select`: many answers of one k-NN graph, against fits of their own; and the sizes that persist."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import full
from oracles import blobs
from scipy.spatial.distance import pdist, squareform

from rapids_slink import HDBSCAN, SingleLinkage, load
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import resolve, to_host
from rapids_slink.spanning_tree import lists

SIZES, SAMPLES = [4, 15, 60], [1, 2, 9, 4]


def clusters_and_noise(n=900, d=5):
    rng = np.random.default_rng(n)
    return np.r_[rng.normal(size=(n // 2, d)), rng.normal(4, 0.5, (n // 4, d)), rng.uniform(-5, 9, (n // 4, d))]


def assert_as_fitted(X, device, sizes=SIZES, samples=SAMPLES, **how):
    found = HDBSCAN(device=device, **how).select(X, min_cluster_size=sizes, min_samples=samples)
    assert list(found.columns) == [(size, m) for size in sizes for m in samples]
    assert list(found.columns.names) == ["min_cluster_size", "min_samples"]
    for size in sizes:
        for m in samples:
            own = on_host(HDBSCAN(size, m, device=device, **how).fit(X).labels_)
            pd.testing.assert_series_equal(on_host(found)[size, m], own, check_names=False)


@pytest.mark.parametrize("way", [None, *map(full, ("lists", "pairs"))])
@pytest.mark.parametrize(
    "X",
    [clusters_and_noise(), clusters_and_noise().round(), np.repeat(clusters_and_noise(400), 4, axis=0), blobs(0)],
    ids=["noise", "ties", "repeats", "blobs"],
)
def test_each_answer_is_a_fit_of_its_own(X, way, device, prescribe):
    if way:
        prescribe(tree=way)
    assert_as_fitted(pd.DataFrame(X, index=range(3, len(X) + 3)), device)


@pytest.mark.parametrize("search", ["tree", full("tiles"), "brute force"])
def test_by_every_search(search, device, prescribe):
    prescribe(tree="lists", search=search)
    assert_as_fitted(pd.DataFrame(clusters_and_noise(3000)), device, [5, 40], [3, 12])


@pytest.mark.parametrize(
    "how",
    [
        {"metric": "cosine"},
        {"metric": "minkowski", "p": 3.0},
        {"cluster_selection_method": "leaf"},
        {"cluster_selection_epsilon": 0.4, "allow_single_cluster": True},
        {"n_neighbors": 3},
        {"box": 9.0},
        {"metric": "precomputed"},
    ],
    ids=str,
)
def test_by_every_parameter(how, device, prescribe):
    X = clusters_and_noise(600)
    X = pd.DataFrame(squareform(pdist(X)) if how.get("metric") == "precomputed" else X)
    prescribe(tree="lists")
    assert_as_fitted(X, device, [5, 30], [1, 3, 12], **how)


def test_graphs(device):
    src, dst = np.triu_indices(60, 1)
    weight = pdist(clusters_and_noise(60))
    near = weight < np.quantile(weight, 0.3)
    graph = pd.DataFrame({"src": src[near], "dst": dst[near], "weight": weight[near]})
    assert_as_fitted(graph, device, [3, 8], [1, 3], metric="precomputed")


def test_one_search_serves_all(device, prescribe, watch):
    tasks = watch(lists, "neighbor_lists")
    prescribe(tree="lists")
    HDBSCAN(device=device).select(clusters_and_noise(), min_cluster_size=[4, 9], min_samples=[2, 20, 5])
    assert [task[2] for task in tasks] == [21]


def test_answers_of_a_fitted_model(device, tmp_path):
    """From its tree without rows, and from the rows that it keeps."""
    X = pd.DataFrame(clusters_and_noise(), columns=list("abcde"))
    model = HDBSCAN(9, 4, device=device).fit(X)
    expected = {size: on_host(HDBSCAN(size, 4, device=device).fit(X).labels_) for size in SIZES}
    model.save(tmp_path / "model.slink")
    for one in (model, load(tmp_path / "model.slink")):
        found = one.select(min_cluster_size=SIZES)
        assert list(found.columns) == SIZES
        assert all(on_host(found)[size].equals(expected[size]) for size in SIZES)
        single = on_host(one.select(min_cluster_size=15))
        pd.testing.assert_series_equal(single, expected[15])
        assert on_host(one.select()).equals(on_host(model.labels_))
    with pytest.raises(ValueError, match="this HDBSCAN keeps no rows: fit it with prediction_data=True"):
        model.select(min_samples=5)
    assert on_host(model.select(X, min_samples=5)).equals(on_host(HDBSCAN(9, 5, device=device).fit(X).labels_))
    kept = HDBSCAN(9, 4, prediction_data=True, device=device).fit(X)
    assert list(kept.select(min_samples=[2, 8]).columns) == [2, 8]
    assert on_host(kept.select(min_samples=[2, 8]))[8].equals(on_host(HDBSCAN(9, 8, device=device).fit(X).labels_))
    assert on_host(kept.labels_).equals(on_host(model.labels_))
    array = HDBSCAN(9, device=device).select(X.to_numpy(), min_cluster_size=[4, 15], min_samples=[4, 5])
    assert array.shape == (len(X), 4)
    assert (to_host(array)[:, 2] == expected[15]).all()
    if device == "cuda":
        frame = HDBSCAN(9, device=device).select(
            resolve(device).frames.from_pandas(X), min_cluster_size=[4, 15], min_samples=[4]
        )
        assert type(frame).__module__.startswith("cudf")
        assert on_host(frame)[15, 4].equals(expected[15])
    default = HDBSCAN(7, device=device).select(X, min_cluster_size=15)
    assert on_host(default).equals(on_host(HDBSCAN(15, 7, device=device).fit(X).labels_))
    few = HDBSCAN(7, device=device).select(X[:5], min_cluster_size=[2, 3])
    assert on_host(few)[2].equals(on_host(HDBSCAN(2, 4, device=device).fit(X[:5]).labels_))


def test_selections_that_are_refused(device):
    X = clusters_and_noise(60)
    model = HDBSCAN(device=device)
    for how, error, message in [
        ({"min_cluster_size": 1}, ValueError, "min_cluster_size must be at least 2, got 1"),
        ({"min_cluster_size": [5, 2.5]}, TypeError, r"min_cluster_size must be an integer, got 2\.5"),
        ({"min_cluster_size": []}, ValueError, r"min_cluster_size must be at least 2, got \[\]"),
        ({"min_samples": [3, 3]}, ValueError, "min_samples must not hold a value twice, since each names a column"),
        ({"min_samples": 0}, ValueError, "min_samples must be at least 1, got 0"),
        ({"min_samples": [3, 60]}, ValueError, "min_samples must be at most n - 1 = 59, got 60"),
    ]:
        with pytest.raises(error, match=message):
            model.select(X, **how)
    weighted = HDBSCAN(device=device).fit(X, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="select counts rows, and these have weights: fit without sample_weight"):
        weighted.select(min_cluster_size=3)
    text = HDBSCAN(3, metric="levenshtein", device=device)
    words = "select takes rows of features on one device: of text, sets, or in partitions"
    with pytest.raises(ValueError, match=words):
        text.select(["a", "ab", "b", "abc"], min_cluster_size=[2, 3])
    assert not hasattr(SingleLinkage, "select")


def layers_by_trying(model, n):
    """By the leaf clusters of every size: the persistence of a size counts the sizes that each of its clusters has."""
    clusters, sizes = {}, range(2, n + 1)
    for size in sizes:
        labels = to_host(model.select(min_cluster_size=size))
        clusters[size] = [frozenset(np.flatnonzero(labels == label)) for label in range(labels.max() + 1)]
    lasting = {}
    for size in sizes:
        for cluster in clusters[size]:
            lasting[cluster] = lasting.get(cluster, 0) + 1
    runs = []
    for size in sizes:
        row = [size, size, sum(lasting[cluster] for cluster in clusters[size]), len(clusters[size])]
        if runs and set(clusters[runs[-1][0]]) == set(clusters[size]):
            runs[-1][1] = size
        else:
            runs.append(row)
    total = [0, *(run[2] for run in runs), 0]
    peaks = [run for i, run in enumerate(runs) if total[i] < total[i + 1] >= total[i + 2]]
    return sorted(peaks, key=lambda run: (-run[2], run[0]))


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize(
    "X",
    [blobs(0)[::5], clusters_and_noise(120, 2), clusters_and_noise(120, 2).round(), np.zeros((30, 2)), np.eye(1, 2)],
    ids=["blobs", "noise", "ties", "equal", "one"],
)
def test_layers_are_what_trying_all_sizes_gives(X, m, device):
    model = HDBSCAN(min_samples=min(m, max(1, len(X) - 1)), cluster_selection_method="leaf", device=device)
    model = model.fit(X) if len(X) > 1 else HDBSCAN(cluster_selection_method="leaf", device=device).fit(X)
    found = model.layers()
    assert list(found.columns) == ["min_cluster_size", "last_size", "persistence", "n_clusters"]
    assert to_host(found.values).tolist() == layers_by_trying(model, len(X))
    assert {str(dtype) for dtype in found.dtypes} == {"int64"}


def test_layers_of_forests_and_refusals(device):
    src, dst = np.triu_indices(40, 1)
    weight = pdist(clusters_and_noise(40, 2))
    near = weight < np.quantile(weight, 0.1)
    graph = pd.DataFrame({"src": src[near], "dst": dst[near], "weight": weight[near]})
    model = HDBSCAN(2, 1, metric="precomputed", cluster_selection_method="leaf", device=device).fit(graph)
    assert model.n_leaves_ - len(model.linkage_) > 1
    assert to_host(model.layers().values).tolist() == layers_by_trying(model, model.n_leaves_)
    weighted = HDBSCAN(device=device).fit(clusters_and_noise(40), sample_weight=np.ones(40))
    with pytest.raises(ValueError, match="layers counts rows, and these have weights: fit without sample_weight"):
        weighted.layers()

"""Noise to clusters, against a walk up the tree from each row."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import blobs
from spanning_trees import DEEP, NAMES, SHAPES, TREES, shaped_tree

from rapids_slink import HDBSCAN, SingleLinkage, fit_graph, load
from rapids_slink.points.output import on_device, on_host
from rapids_slink.runtime.device import to_host


def walked(model, labels, max_distance=np.inf, names=None):
    """The definition: from each row up to the first merge whose other part holds rows with labels."""
    tree, linkage, n = on_host(model.mst_), on_host(model.linkage_), len(labels)
    ends = tree[["src", "dst"]].to_numpy() if names is None else names.get_indexer_for(tree[["src", "dst"]].stack())
    ends, children = ends.reshape(-1, 2), linkage[["left", "right"]].to_numpy()
    rows, above = [{i} for i in range(n)], {}
    for i, (left, right) in enumerate(children.tolist()):
        above[left], above[right] = (i, right), (i, left)
        rows.append(rows[left] | rows[right])

    def label(row):
        node = row
        while labels[row] < 0 and node in above:
            merge, other = above[node]
            if linkage["height"][merge] > max_distance:
                return -1
            if any(labels[r] >= 0 for r in rows[other]):
                return next(label(int(end)) for end in ends[merge] if end in rows[other])
            node = n + merge
        return labels[row]

    return [int(label(row)) for row in range(n)]


@given(n=st.integers(1, 90), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), trees=st.integers(1, 3), **TREES)
def test_noise_of_any_tree(engine, n, shape, seed, share, trees):
    """Of forests, too, with weights of few values."""
    rng = np.random.default_rng(seed)
    edges = shaped_tree(rng, n, shape).iloc[trees - 1 :]
    model = fit_graph(on_device(edges, engine), n_nodes=n, device=engine.name)
    labels = np.where(rng.random(n) < share, rng.integers(0, 4, n), rng.integers(-3, 0, n))
    for most in (None, float(rng.integers(0, max(2, n // 3)))):
        found = model.reduce_outliers(engine.asarray(labels), max_distance=most)
        expected = walked(model, np.maximum(labels, -1), np.inf if most is None else most)
        assert to_host(found.values).tolist() == expected
        assert found.dtype == np.int32


def grid():
    """Distances tie everywhere."""
    return np.array(list(itertools.product(range(9), range(6)))) + np.repeat([[0, 0], [20, 3]], 27, axis=0)


@pytest.mark.parametrize("X", [blobs(0)[::3], grid()], ids=["blobs", "ties"])
@pytest.mark.parametrize("least", [4, 9])
def test_noise_of_hdbscan(X, least, device):
    X = pd.DataFrame(X, index=range(7, 7 + len(X)))
    model = HDBSCAN(min_cluster_size=least, min_samples=3, device=device).fit(X)
    labels = on_host(model.labels_)
    found = on_host(model.reduce_outliers())
    assert found.tolist() == walked(model, labels.to_numpy())
    assert found.index.equals(labels.index)
    assert found.name == "label"
    assert (found[labels >= 0] == labels[labels >= 0]).all()
    assert (found >= 0).all() == (labels.max() >= 0)
    for most in on_host(model.linkage_)["height"].quantile([0, 0.5, 0.9]):
        assert on_host(model.reduce_outliers(max_distance=most)).tolist() == walked(model, labels.to_numpy(), most)


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_of_large_trees(engine, shape):
    rng = np.random.default_rng(5)
    model = fit_graph(on_device(shaped_tree(rng, DEEP, shape), engine), device=engine.name)
    labels = np.where(rng.random(DEEP) < 0.01, 5, -1)
    labels[0] = 5
    assert (to_host(model.reduce_outliers(labels).values) == 5).all()


def test_noise_of_groups_graphs_weights_and_files(device, tmp_path):
    X, key = blobs(0)[::3], np.arange(len(blobs(0)[::3])) % 2
    grouped = SingleLinkage(distance_threshold=0.5, min_cluster_size=3, device=device).fit(X, groups=key)
    labels = to_host(grouped.labels_)
    found = to_host(grouped.reduce_outliers())
    assert found.tolist() == walked(grouped, labels)
    assert all(len(set(key[found == label])) == 1 for label in set(found.tolist()) - {-1})
    weighted = HDBSCAN(4, 3, device=device).fit(X, sample_weight=1.0 + key)
    assert to_host(weighted.reduce_outliers()).tolist() == walked(weighted, to_host(weighted.labels_))
    weighted.save(tmp_path / "model.slink")
    loaded = load(tmp_path / "model.slink", device="cpu")
    assert loaded.reduce_outliers().tolist() == to_host(weighted.reduce_outliers()).tolist()
    edges = shaped_tree(np.random.default_rng(0), 30, "random")
    named = pd.DataFrame({"src": NAMES["strings"](edges["src"]), "dst": NAMES["strings"](edges["dst"])})
    graph = fit_graph(named.assign(weight=edges["weight"]), distance_threshold=4, min_cluster_size=4, device="cpu")
    assert {-1, 0} <= set(graph.labels_)
    assert graph.reduce_outliers().tolist() == walked(graph, graph.labels_.to_numpy(), names=graph.nodes_)
    assert graph.reduce_outliers().index.equals(graph.labels_.index)


def test_reductions_that_are_refused(device):
    model = HDBSCAN(4, 3, device=device).fit(pd.DataFrame({"x": np.arange(20.0)}))
    for labels, error, message in [
        ([0] * 19, ValueError, r"labels must hold one label for each of 20 rows, got shape \(19,\)"),
        ([0.0] * 20, TypeError, "labels must hold integers, -1 for noise, got dtype float64"),
        ([2**31] * 20, ValueError, r"labels must be below 2\^31, got 2147483648"),
        (pd.Series([0] * 20, index=range(1, 21)), ValueError, "labels has another index than model.labels_"),
    ]:
        with pytest.raises(error, match=message):
            model.reduce_outliers(labels)
    with pytest.raises(ValueError, match="max_distance must be at least 0, as euclidean distances are, got -1"):
        model.reduce_outliers(max_distance=-1)
    with pytest.raises(TypeError, match="max_distance must be a number, got '1'"):
        model.reduce_outliers(max_distance="1")

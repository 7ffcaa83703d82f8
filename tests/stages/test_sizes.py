"""Cuts by the sizes of clusters, against a walk down the tree."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import blobs
from spanning_trees import TREES, linkage_on, shaped_tree

from rapids_slink import SingleLinkage, cut, fit, fit_graph, load, plan
from rapids_slink.points.output import on_device, on_host
from rapids_slink.runtime.device import resolve, to_host


def parts_of(frame, n, weights=None):
    """The leaves of each cluster of a linkage, their weights, and the children of each merge."""
    children = list(zip(*(to_host(frame[side].values).tolist() for side in ("left", "right")), strict=True))
    leaves = [[i] for i in range(n)]
    weight = [1] * n if weights is None else list(weights)
    for left, right in children:
        leaves.append(leaves[left] + leaves[right])
        weight.append(weight[left] + weight[right])
    return leaves, weight, children


def numbered(clusters, n):
    """Labels in order of first appearance; -1 of rows that are in none."""
    labels = np.full(n, -1)
    for label, leaves in enumerate(sorted(clusters, key=min)):
        labels[leaves] = label
    return labels.tolist()


def split(frame, n, most, below=np.inf, least=1, weights=None):
    """Descend from every root until a cluster is small enough, and below the threshold."""
    leaves, weight, children = parts_of(frame, n, weights)
    heights, kept = to_host(frame["height"].values), []
    open_ = sorted(set(range(n + len(children))) - {child for merge in children for child in merge})
    while open_:
        node = open_.pop()
        if node < n or (weight[node] <= most and heights[node - n] < below):
            kept.append(node)
        else:
            open_ += children[node - n]
    return numbered([leaves[node] for node in kept if weight[node] >= least], n)


def coarsest(frame, n, k, least, weights=None):
    """The labels of the cut with the fewest clusters of which exactly k are large; None if there is none."""
    leaves, weight, children = parts_of(frame, n, weights)
    for kept in range(len(children), -1, -1):
        joined = {child for merge in children[:kept] for child in merge}
        clusters = [c for c in range(n + kept) if c not in joined and weight[c] >= least]
        if len(clusters) == k:
            return numbered([leaves[c] for c in clusters], n)
    return None


@given(n=st.integers(1, 60), most=st.integers(1, 30), trees=st.integers(1, 3), weighted=st.booleans(), **TREES)
def test_clusters_up_to_a_size(engine, n, shape, seed, most, trees, weighted):
    """Of forests, of weights, below thresholds, and with small clusters left out."""
    rng = np.random.default_rng(seed)
    frame = linkage_on(engine, shaped_tree(rng, n, shape).iloc[trees - 1 :], n_nodes=n)
    weights = rng.integers(4, 30, n) / 4 if weighted else None
    how = {"max_cluster_size": most, "n_leaves": n, "sample_weight": weights}
    warns = weighted and (weights > most).any()
    with pytest.warns(UserWarning, match="cannot be split") if warns else nullcontext():
        found = cut(frame, **how)
        assert to_host(found.values).tolist() == split(frame, n, most, weights=weights)
        least = int(rng.integers(1, most + 1))
        found = cut(frame, min_cluster_size=least, **how)
        assert to_host(found.values).tolist() == split(frame, n, most, least=least, weights=weights)
        found = cut(frame, distance_threshold=[2.0, 5.0], **how)
    for t in (2.0, 5.0):
        assert to_host(found[t].values).tolist() == split(frame, n, most, t, weights=weights)
    assert found[5.0].dtype == np.int32


@given(n=st.integers(1, 40), least=st.integers(1, 12), trees=st.integers(1, 3), weighted=st.booleans(), **TREES)
def test_numbers_of_large_clusters(engine, n, shape, seed, least, trees, weighted):
    """All numbers that a tree has, in one call and alone; and one that it has not."""
    rng = np.random.default_rng(seed)
    frame = linkage_on(engine, shaped_tree(rng, n, shape).iloc[trees - 1 :], n_nodes=n)
    weights = rng.integers(4, 30, n) / 4 if weighted else None
    how = {"min_cluster_size": least, "count_small": False, "n_leaves": n, "sample_weight": weights}
    expected = {k: coarsest(frame, n, k, least, weights) for k in range(1, n + 2)}
    there = [k for k, labels in expected.items() if labels is not None]
    for k in there[:3]:
        assert to_host(cut(frame, n_clusters=k, **how).values).tolist() == expected[k]
        assert max(expected[k]) + 1 == k
    if there:
        found = cut(frame, n_clusters=there, **how)
        assert list(found.columns) == there
        assert [to_host(found[k].values).tolist() for k in there] == [expected[k] for k in there]
    with pytest.raises(ValueError, match=rf"no cut has {n + 1} clusters of at least {least} .*: cuts have from \d+ to"):
        cut(frame, n_clusters=n + 1, **how)


def test_sizes_in_fits(device, tmp_path):
    """The same as cuts of the model; what needs a cut at one height refuses."""
    X = pd.DataFrame(blobs(0)[::3], columns=["x", "y"])
    whole = fit(X, 1, device=device)
    model = fit(X, max_cluster_size=40, min_cluster_size=3, prediction_data=True, device=device)
    labels = on_host(model.labels_)
    assert labels.tolist() == split(whole.linkage_, len(X), 40, least=3)
    assert labels.value_counts().drop(-1, errors="ignore").between(3, 40).all()
    assert model.n_clusters_ == labels.max() + 1
    assert on_host(whole.cut(max_cluster_size=40, min_cluster_size=3)).equals(labels)
    with pytest.raises(ValueError, match="predict takes a cut at one height, and clusters of max_cluster_size have"):
        model.predict(X)
    with pytest.raises(ValueError, match="explore shows cuts at one distance, and the clusters of max_cluster_size"):
        model.explore(X)
    assert "clusters" in model._repr_html_()
    model.save(tmp_path / "model.slink")
    loaded = load(tmp_path / "model.slink")
    assert loaded._repr_html_() == model._repr_html_()
    assert not loaded._labels_are_a_cut
    more = model.append(X + 0.01)
    again = fit(pd.concat([X, X + 0.01]), max_cluster_size=40, min_cluster_size=3, device=device)
    assert to_host(more.labels_.values).tolist() == to_host(again.labels_.values).tolist()

    model = SingleLinkage(3, min_cluster_size=8, count_small=False, prediction_data=True, device=device).fit(X)
    assert model.n_clusters_ == 3
    assert on_host(model.labels_).tolist() == coarsest(whole.linkage_, len(X), 3, 8)
    assert on_host(model.cut(3, min_cluster_size=8, count_small=False)).equals(on_host(model.labels_))
    total = model.n_clusters_ + model._small_clusters_
    assert on_host(whole.cut(total, min_cluster_size=8)).equals(on_host(model.labels_))
    assert (on_host(model.predict(X)) == on_host(model.labels_)).all()
    assert plan(X, 3, min_cluster_size=8, count_small=False, device=device)["fits"]


def test_sizes_within_a_distance_groups_and_graphs(device):
    X, key = blobs(0)[::3], np.arange(len(blobs(0)[::3])) % 2
    whole = fit(X, 1, device=device)
    near = fit(X, max_distance=0.4, max_cluster_size=9, device=device)
    expected = split(whole.linkage_, len(X), 9, np.nextafter(0.4, 1))
    assert to_host(near.labels_).tolist() == expected
    assert to_host(fit(X, max_distance=0.4, device=device).cut(max_cluster_size=9)).tolist() == expected
    grouped = fit(X, groups=key, max_cluster_size=12, device=device)
    expected = split(grouped.linkage_, len(X), 12)
    assert to_host(grouped.labels_).tolist() == expected
    assert to_host(fit(X, 1, groups=key, device=device).cut(max_cluster_size=12)).tolist() == expected
    assert on_host(grouped.groups_)["clusters"].sum() == max(expected) + 1
    edges = shaped_tree(np.random.default_rng(0), 50, "random")
    for how, expected in [
        ({"max_cluster_size": 9}, lambda merges: split(merges, 50, 9)),
        ({"n_clusters": 2, "min_cluster_size": 4, "count_small": False}, lambda merges: coarsest(merges, 50, 2, 4)),
    ]:
        graph = fit_graph(on_device(edges, resolve(device)), device=device, **how)
        assert to_host(graph.labels_.values).tolist() == expected(graph.linkage_)
        assert graph.n_clusters_ == to_host(graph.labels_.values).max() + 1


def test_rows_that_are_too_heavy_are_counted(device):
    model = fit(np.arange(5.0)[:, None] ** 2, 1, device=device)
    with pytest.warns(UserWarning, match="1 row of a weight above max_cluster_size=3 cannot be split: it is a cluster"):
        labels = model.cut(max_cluster_size=3, sample_weight=[1.0, 1.0, 9.0, 1.0, 1.0])
    assert to_host(labels).tolist() == [0, 0, 1, 2, 3]
    with pytest.warns(UserWarning, match="2 rows of a weight above max_cluster_size=3 cannot be split: each is a clu"):
        model.cut(max_cluster_size=3, sample_weight=[1.0, 1.0, 9.0, 1.0, 7.0])


LARGE = {"count_small": False, "min_cluster_size": 2}


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"max_cluster_size": 0}, ValueError, "max_cluster_size must be at least 1, got 0"),
        ({"max_cluster_size": 2.0}, TypeError, r"max_cluster_size must be an integer, got 2\.0"),
        ({"max_cluster_size": 2, "min_cluster_size": 3}, ValueError, "must be at least min_cluster_size=3, got 2"),
        ({"max_cluster_size": 2, "n_clusters": 3}, ValueError, "there are more than n_clusters: leave that out"),
        ({"count_small": False, "n_clusters": 3}, ValueError, "takes n_clusters=, a number, and min_cluster_size="),
        ({**LARGE, "distance_threshold": 3}, ValueError, "count_small=False takes n_clusters="),
        ({**LARGE, "n_clusters": "widest_gap"}, ValueError, "count_small=False takes n_clusters="),
        ({**LARGE, "n_clusters": 0}, ValueError, "n_clusters must be at least 1, got 0"),
        ({**LARGE, "n_clusters": 2.0}, TypeError, "n_clusters must be an integer"),
        ({**LARGE, "n_clusters": 9}, ValueError, "no cut has 9 clusters of at least 2 rows: cuts have from 0 to 1"),
    ],
)
def test_sizes_that_are_refused(how, error, message, device):
    X = np.arange(9.0)[:, None] ** 2
    model = fit(X, 1, device=device)
    for call in (model.cut, partial(cut, on_host(model.linkage_)), partial(fit, X, device=device)):
        with pytest.raises(error, match=message):
            call(**how)


def test_sizes_that_only_some_refuse(device):
    model = fit(np.arange(9.0)[:, None] ** 2, groups=[0] * 9, device=device)
    message = "count_small=False is of one tree, and these rows are in groups: leave it out"
    with pytest.raises(ValueError, match=message):
        model.cut(2, min_cluster_size=2, count_small=False)
    with pytest.raises(ValueError, match=message):
        fit(np.arange(9.0)[:, None], 2, min_cluster_size=2, count_small=False, groups=[0] * 9, device=device)
    linkage = on_host(model.linkage_)
    with pytest.raises(ValueError, match="max_cluster_size is for method='kernel'"):
        cut(linkage, max_cluster_size=3, method="merge")
    with pytest.raises(ValueError, match="column 'size' of the linkage must hold how many leaves each cluster has"):
        cut(linkage.assign(size=1), max_cluster_size=3)
    found = cut(linkage, n_clusters=1, min_cluster_size=2, count_small=False, method="merge")
    assert found.tolist() == cut(linkage, n_clusters=1, min_cluster_size=2, count_small=False).tolist()

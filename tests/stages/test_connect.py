"""`connect`: the exact tree from a k-NN graph, by frames, whatever the graph is."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, cases, full
from oracles import blobs

from rapids_slink import connect, fit, knn_graph
from rapids_slink.points.output import on_host


def tree_of(X, **parameters):
    return on_host(fit(X, 1, **parameters).mst_)


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize(("k", "certified"), [(1, True), full(3, True), full(2, False)])
def test_the_tree_is_that_of_fit(name, k, certified, device):
    X = CASES[name]("float64")[:300]
    if len(X) < 2:
        return
    graph = knn_graph(X, min(k, len(X) - 1), device=device)
    found = on_host(connect(graph, X, certified=certified, device=device))
    pd.testing.assert_frame_equal(found, tree_of(X, device=device))


@pytest.mark.parametrize("metric", ["cityblock", "cosine", "haversine", *map(full, ("hamming", "minkowski"))])
def test_metrics(metric, device):
    X = np.random.default_rng(0).integers(1, 5, size=(200, 2)) / 4
    parameters = {"metric": metric, "p": 3, "device": device}
    found = on_host(connect(knn_graph(X, 2, **parameters), X, **parameters))
    pd.testing.assert_frame_equal(found, tree_of(X, **parameters))


@pytest.mark.parametrize("damage", [lambda g: g.iloc[1::2], lambda g: g[:0], lambda g: g.assign(dst=g["src"])])
def test_any_graph_that_is_not_certified(damage, device):
    """Of some edges, of none, or of loops: only the time differs."""
    X = np.asarray(blobs(0))[:200]
    graph = damage(on_host(knn_graph(X, 3, device=device)))
    pd.testing.assert_frame_equal(on_host(connect(graph, X, certified=False, device=device)), tree_of(X, device=device))
    with pytest.raises(ValueError, match=r"equally many neighbours of every row.*pass certified=False"):
        connect(graph, X, device=device)


def test_kinds_and_one_row(device):
    frame = pd.DataFrame(np.asarray(blobs(0))[:50], columns=["x", "y"], index=np.arange(50) * 2)
    graph = knn_graph(frame, 2, device=device)
    assert isinstance(connect(graph, frame, device=device), pd.DataFrame)
    assert len(connect(graph[:0], frame[:1], device=device)) == 0


def test_refused(device):
    X = np.asarray(blobs(0))[:20]
    graph = on_host(knn_graph(X, 2, device=device))
    with pytest.raises(ValueError, match="column 'dst' of the graph must hold row numbers of X, from 0 to 19"):
        connect(graph.assign(dst=graph["dst"] + 1), X, device=device)
    with pytest.raises(ValueError, match="weight not found"):
        connect(graph[["src", "dst"]], X, device=device)

"""A hierarchy as SciPy's matrix, NetworkX's graph, Newick text and a table of clusters; HDBSCAN's validity."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from models import grown
from oracles import blobs
from scipy.cluster import hierarchy
from scipy.spatial.distance import cdist, pdist, squareform
from spanning_trees import NAMES

from rapids_slink import HDBSCAN, SingleLinkage, fit, fit_graph, linkage
from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.points.output import on_host


def read_newick(text):
    """The groups of a tree's leaves with their heights, and each leaf with the branch lengths above it in sum."""
    open_, groups, last = [{}], [], {}
    for token in re.findall(r"'(?:[^']|'')*'|[(),;]|:[^(),;]+|[^(),:;]+", text):
        if token == "(":
            open_.append({})
        elif token in "),;":  # what came before is whole
            open_[-1].update(last)
        elif token.startswith(":"):
            last = {name: depth + float(token[1:]) for name, depth in last.items()}
        else:
            last = {token[1:-1].replace("''", "'") if token.startswith("'") else token: 0.0}
        if token == ")":
            last = open_.pop()
            groups.append((set(last), next(iter(last.values()))))
    return groups, last


def test_newick_has_all_clusters_and_heights(device):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)))
    X.index = [f"row {i}" if i % 3 else f"it's ({i})" if i else "" for i in range(40)]
    model = fit(X, device=device)
    groups, depth = read_newick(model.to_newick())
    Z, members = model.to_scipy(), [{name} for name in X.index]
    for left, right, *_ in Z:
        members.append(members[int(left)] | members[int(right)])
    assert {frozenset(group) for group, _ in groups} == {frozenset(group) for group in members[40:]}
    heights = {frozenset(group): height for group, height in groups}
    for group, height in zip(members[40:], Z[:, 2], strict=True):
        assert heights[frozenset(group)] == pytest.approx(height)
    assert set(depth) == set(X.index)
    np.testing.assert_allclose(list(depth.values()), Z[-1, 2])


@pytest.mark.parametrize("name", ['5" x', '"', "a\\b", "it's", "a[b]", "a_b", ""])
def test_names_with_special_characters_are_quoted(name):
    model = fit(pd.DataFrame({"x": [0.0, 1.0]}, index=["plain", name]), device="cpu")
    quoted = "'" + name.replace("'", "''") + "'"
    assert model.to_newick() == f"(plain:1.0,{quoted}:1.0);"


def test_newick_of_a_chain_and_of_a_forest(device):
    n = 50_000
    chain = fit_graph(pd.DataFrame({"src": range(n - 1), "dst": range(1, n), "weight": range(1, n)}), device=device)
    text = chain.to_newick()
    assert text.count("(") == text.count(",") == n - 1
    assert text.startswith("(" + f"{n - 1}:" if text[1] != "(" else "(")
    forest = pd.DataFrame({"src": ["a", "c"], "dst": ["b", "d"], "weight": [1.0, 2.0]})
    assert fit_graph(forest, device=device).to_newick().splitlines() == ["(a:1.0,b:1.0);", "(c:2.0,d:2.0);"]
    assert fit(np.zeros((1, 1)), 1, device=device).to_newick() == "0;"


def test_table_of_clusters(device):
    X = pd.DataFrame(blobs(0, 3), columns=list("abc"))
    X.index = [f"row {i}" for i in range(len(X))]
    for model in (SingleLinkage(12), HDBSCAN(10, 3)):
        model.set_params(device=device, prediction_data=True).fit(X)
        table, labels = model.to_frame(medoids=True), model.labels_.to_numpy()
        assert table.index.tolist() == list(range(model.n_clusters_))
        assert table["size"].tolist() == np.bincount(labels[labels >= 0]).tolist()
        for label, row in table.iterrows():
            rows = np.flatnonzero(labels == label)
            assert row["first_row"] == X.index[rows[0]]
            assert row["medoid"] == X.index[rows[cdist(X.iloc[rows], X.iloc[rows]).sum(axis=1).argmin()]]
            if isinstance(model, SingleLinkage):
                inside = hierarchy.linkage(X.iloc[rows], "single")[:, 2].max() if len(rows) > 1 else 0.0
                assert row["height"] == inside
    plain = fit(X.to_numpy(), 12, device=device).to_frame()
    assert list(plain.columns) == ["size", "height", "first_row"]
    assert plain["first_row"].tolist() == [X.index.get_loc(name) for name in fit(X, 12).to_frame()["first_row"]]


def test_table_of_a_graphs_clusters(device):
    edges = pd.DataFrame({"src": ["a", "b", "d"], "dst": ["b", "c", "e"], "weight": [1.0, 2.5, 3.0]})
    table = fit_graph(edges, 3, device=device).to_frame()
    assert table["size"].tolist() == [3, 1, 1]
    assert table["height"].tolist() == [2.5, 0.0, 0.0]
    assert table["first_row"].tolist() == ["a", "d", "e"]
    with pytest.raises(ValueError, match="this hierarchy has none"):
        fit_graph(edges, 3, device=device).to_frame(medoids=True)
    with pytest.raises(ValueError, match="keeps no rows: fit it with prediction_data=True"):
        fit(np.arange(9.0)[:, None], device=device).to_frame(medoids=True)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_centers_are_scikit_learns(metric, device):
    X = blobs(0, 3)
    model = HDBSCAN(10, 1, metric=metric, store_centers="both", device=device).fit(X)
    theirs = sklearn.cluster.HDBSCAN(10, min_samples=2, metric=metric, store_centers="both", copy=True).fit(X)
    order = [theirs.labels_[on_host(model.labels_) == k][0] for k in range(model.n_clusters_)]
    np.testing.assert_allclose(on_host(model.centroids_), theirs.centroids_[order], rtol=1e-12)
    np.testing.assert_array_equal(on_host(model.medoids_), theirs.medoids_[order])
    model.set_params(store_centers="medoid").fit(X)
    assert hasattr(model, "medoids_")
    assert not hasattr(model, "centroids_")
    with pytest.raises(ValueError, match="store_centers must be one of"):
        model.set_params(store_centers="mean").fit(X)
    with pytest.raises(ValueError, match="store_centers takes the rows' features"):
        HDBSCAN(metric="precomputed", store_centers="both", device=device).fit(squareform(pdist(X)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"allow_single_cluster": True, "min_cluster_size": 150}])
def test_validity_is_hdbscans(seed, options, device):
    hdbscan = pytest.importorskip("hdbscan")
    X = blobs(seed)
    parameters = {"min_cluster_size": 10, **options}
    model = HDBSCAN(min_samples=1, device=device, **parameters).fit(X)
    theirs = hdbscan.HDBSCAN(min_samples=1, gen_min_span_tree=True, algorithm="prims_kdtree", **parameters).fit(X)
    assert model.relative_validity_ == pytest.approx(theirs.relative_validity_, rel=1e-12)
    assert -1 <= model.relative_validity_ <= 1


def test_to_scipy_refuses():
    with pytest.raises(ValueError, match="columns left, right, height, size; size not found"):
        to_scipy(grown(3).drop(columns="size"))
    with pytest.raises(TypeError, match=r"linkage must be a DataFrame .* got ndarray"):
        to_scipy(np.zeros((2, 4)))
    forest = linkage(pd.DataFrame({"src": [0, 2], "dst": [1, 3], "weight": [1, 2]}), n_nodes=4, device="cpu")
    words = "2 merges do not join 3 leaves into one tree: SciPy has no linkage of a forest"
    with pytest.raises(ValueError, match=words):
        to_scipy(forest)


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2)], []])
def test_a_forest_of_a_tree_and_single_nodes_is_refused(pairs):
    frame = pd.DataFrame({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs], "weight": 1.0})
    forest = fit_graph(frame.astype({"src": "int32", "dst": "int32"}), n_nodes=5, device="cpu")
    for call in (forest.to_scipy, forest.plot):
        with pytest.raises(ValueError, match=f"a forest, and this hierarchy is one of {5 - len(pairs)} trees"):
            call()


def test_to_networkx(device):
    networkx = pytest.importorskip("networkx", reason="NetworkX is not installed")
    X = pd.DataFrame({"x": [3.0, 0.0, 1.5, 9.0]}, index=["a", "a", "b", None])
    model = fit(X, 2, device=device)
    graph = model.to_networkx()
    assert type(graph) is networkx.Graph
    assert list(graph) == [0, 1, 2, 3]
    assert list(graph.edges(data="weight")) == [(0, 2, 1.5), (0, 3, 6.0), (1, 2, 1.5)]
    assert {type(part) for edge in graph.edges(data="weight") for part in edge} == {int, float}
    forest = fit_graph(pd.DataFrame({"src": [2], "dst": [1], "weight": [-4]}), n_nodes=5, device=device).to_networkx()
    assert list(forest) == [0, 1, 2, 3, 4]
    assert networkx.number_connected_components(forest) == 4
    assert forest[1][2] == {"weight": -4.0}
    assert list(fit(np.zeros((1, 2)), 1, device=device).to_networkx()) == [0]


@pytest.mark.parametrize("kind", NAMES)
def test_to_networkx_has_the_graphs_own_nodes(kind, device):
    """And no others, a node without an edge in the tree among them."""
    src, dst = [4, 6, 4, 11, 12, 2], [5, 4, 5, 12, 11, 2]  # node 2 has a loop alone
    names = dict(zip([4, 6, 11, 12, 2, 5], NAMES[kind]([4, 6, 11, 12, 2, 5]).tolist(), strict=True))
    frame = pd.DataFrame({"src": NAMES[kind](src), "dst": NAMES[kind](dst), "weight": [3.0, 2.0, 1.0, 1.0, 5.0, 4.0]})
    graph = fit_graph(frame, device=device).to_networkx()
    assert set(graph) == set(names.values())
    expected = {frozenset((names[u], names[v])): w for u, v, w in [(4, 5, 1.0), (11, 12, 1.0), (6, 4, 2.0)]}
    assert {frozenset(edge[:2]): edge[2] for edge in graph.edges(data="weight")} == expected


def test_without_networkx_or_cugraph(monkeypatch, device):
    model = fit(np.arange(4.0)[:, None], device=device)
    for name, extra in (("networkx", "networkx"), ("cugraph", "graph-cu13")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=rf"pip install 'rapids_slink\[{extra}\]'"):
            getattr(model, f"to_{name}")()

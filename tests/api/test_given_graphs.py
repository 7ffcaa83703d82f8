"""Sparse matrices and graphs of other packages wherever a matrix of distances goes."""

import numpy as np
import pandas as pd
import pytest
from oracles import blobs
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import kneighbors_graph
from spanning_trees import by_appearance, kruskal, random_graph

from rapids_slink import HDBSCAN, SingleLinkage, fit_graph, load, minimum_spanning_tree
from rapids_slink.points.output import on_host

hdbscan = pytest.importorskip("hdbscan")
nx = pytest.importorskip("networkx")
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr"]


def symmetric(graph):
    """The lighter of the two entries of a pair, in both directions."""
    graph = graph.tocoo()
    u, v = np.minimum(graph.row, graph.col), np.maximum(graph.row, graph.col)
    frame = pd.DataFrame({"u": u, "v": v, "w": graph.data})
    frame = frame.groupby(["u", "v"], as_index=False)["w"].min()
    both = [np.concatenate([frame[a], frame[b]]) for a, b in ("uv", "vu")]
    return sparse.csr_matrix((np.concatenate([frame["w"]] * 2), both), graph.shape)


def neighbours(seed=0, k=30, **how):
    return symmetric(kneighbors_graph(blobs(seed, **how), k, mode="distance"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [sparse.coo_matrix, sparse.coo_array])
def test_spanning_trees_of_sparse_matrices(form, kind, device):
    matrix = neighbours(1)
    given = kind(matrix).asformat(form)
    tree = minimum_spanning_tree(given, device=device)
    assert type(tree) is type(given)
    assert tree.shape == given.shape
    expected = csgraph.minimum_spanning_tree(matrix)
    assert tree.nnz == expected.nnz == matrix.shape[0] - 1
    np.testing.assert_array_equal(np.sort(tree.tocoo().data), np.sort(expected.data))
    assert abs(tree.tocsr() - abs(matrix).multiply(tree.tocsr() > 0)).max() == 0  # stored entries
    model = fit_graph(given, 4, device=device)
    assert model.n_leaves_ == matrix.shape[0]
    np.testing.assert_array_equal(model.mst_["weight"].to_numpy(), np.sort(expected.data))


def test_zeros_loops_and_rows_without_entries(device):
    matrix = sparse.coo_matrix(([0.0, 2.0, 7.0, -1.0], ([0, 1, 2, 4], [1, 2, 2, 5])), (7, 7))
    assert minimum_spanning_tree(matrix, device=device).tocoo().data.tolist() == [0.0, 2.0, -1.0]
    assert minimum_spanning_tree(matrix, maximum=True, device=device).nnz == 3
    model = fit_graph(matrix, device=device)
    assert model.component_.tolist() == [0, 0, 0, 1, 2, 2, 3]
    with pytest.raises(ValueError, match=r"must be square, got shape \(3, 4\)"):
        fit_graph(sparse.csr_matrix((3, 4)))
    with pytest.raises(ValueError, match="component=True adds a column, and a coo_matrix has none"):
        minimum_spanning_tree(matrix, component=True)


def test_graphs_of_networkx(device):
    frame = random_graph(np.random.default_rng(0), 40, 100)
    graph = nx.MultiGraph()
    graph.add_nodes_from(f"node {i}" for i in range(45))
    graph.add_weighted_edges_from((f"node {u}", f"node {v}", w) for u, v, w in frame.itertuples(index=False))
    tree = minimum_spanning_tree(graph, device=device)
    expected = nx.minimum_spanning_tree(graph)
    assert nx.utils.graphs_equal(tree, expected)
    model = fit_graph(graph, device=device)
    assert model.n_connected_components_ == nx.number_connected_components(graph)
    assert set(model.labels_.index) == set(graph)
    weights = frame["weight"].iloc[kruskal(frame)].to_numpy()
    np.testing.assert_array_equal(model.mst_["weight"].to_numpy(), weights)
    assert all(graph.has_edge(u, v) for u, v in zip(model.mst_["src"], model.mst_["dst"], strict=True))
    for component in nx.connected_components(graph):
        assert len({model.component_[node] for node in component}) == 1
    assert nx.utils.graphs_equal(model.to_networkx(), nx.Graph(expected))
    plain = nx.path_graph(5)
    assert fit_graph(plain, 2, device=device).mst_["weight"].tolist() == [1.0] * 4
    with pytest.raises(ValueError, match="undirected graph of NetworkX"):
        fit_graph(nx.DiGraph([(0, 1)]))


class StableNumPy:
    """NumPy, except that equal values keep their order: otherwise it depends on the processor."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def argsort(values):
        return np.argsort(values, kind="stable")


@pytest.mark.parametrize(("seed", "min_samples"), [(0, 1), (1, 4), (2, 10)])
def test_hdbscans_clusters_of_a_sparse_matrix(seed, min_samples, device, monkeypatch):
    monkeypatch.setattr("hdbscan.hdbscan_.np", StableNumPy())
    matrix = neighbours(seed, 60)
    assert csgraph.connected_components(matrix)[0] == 1
    options = {"min_cluster_size": 10, "min_samples": min_samples, "metric": "precomputed"}
    model = HDBSCAN(device=device, **options).fit(matrix)
    theirs = hdbscan.HDBSCAN(**options).fit(matrix)
    np.testing.assert_array_equal(on_host(model.distances_), theirs.single_linkage_tree_.to_numpy()[:, 2])
    same = model.to_hdbscan(10)  # of the same tree, whose heights tie
    np.testing.assert_array_equal(on_host(model.labels_), by_appearance(same.labels_))
    np.testing.assert_array_equal(on_host(model.probabilities_), same.probabilities_)
    np.testing.assert_array_equal(on_host(model.labels_), by_appearance(theirs.labels_))
    assert model.n_clusters_ > 2


def test_all_pairs_as_a_graph_are_those_of_the_matrix(device):
    distances = squareform(pdist(blobs(3)))
    u, v = np.triu_indices(len(distances), 1)
    pairs = pd.DataFrame({"src": u, "dst": v, "weight": distances[u, v]})
    graph = nx.from_pandas_edgelist(pairs, "src", "dst", "weight")
    expected = HDBSCAN(10, 4, metric="precomputed", device=device).fit(distances)
    shuffled = pairs.sample(frac=1, random_state=0)
    for given in (sparse.csr_matrix(distances), sparse.triu(distances), pairs, shuffled, graph):
        model = HDBSCAN(10, 4, metric="precomputed", device=device).fit(given)
        assert model.report_["way"] == "edges"
        for name in ("labels_", "probabilities_", "outlier_scores_", "distances_"):
            np.testing.assert_array_equal(np.asarray(getattr(model, name)), on_host(getattr(expected, name)))
        assert isinstance(model.labels_, np.ndarray) == sparse.issparse(given)


def disconnected(min_samples):
    """Three components of 100 rows each, one of 4, and two rows of their own; and the same as a matrix."""
    X = np.concatenate([np.random.default_rng(i).normal(size=(n, 2)) for i, n in enumerate([100, 100, 100, 4, 1, 1])])
    part = np.repeat(range(6), [100, 100, 100, 4, 1, 1])
    matrix = squareform(pdist(X))
    matrix[part[:, None] != part] = np.inf
    stored = np.isfinite(matrix) & ~np.eye(len(X), dtype=bool)
    u, v = np.nonzero(stored)
    return matrix, sparse.coo_matrix((matrix[u, v], (u, v)), matrix.shape), part


@pytest.mark.parametrize("min_samples", [1, 3, 8])
@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_components_are_clusters_of_their_own(min_samples, method, device):
    """hdbscan refuses such a matrix. With great distances between the components its clusters are the same."""
    matrix, stored, part = disconnected(min_samples)
    options = {"min_cluster_size": 10, "min_samples": min_samples, "cluster_selection_method": method}
    model = HDBSCAN(metric="precomputed", device=device, **options).fit(stored)
    labels = on_host(model.labels_)
    for cluster in range(model.n_clusters_):
        assert len(set(part[labels == cluster])) == 1
    assert set(part[labels >= 0]) == {0, 1, 2}
    assert (labels[300:] == -1).all()
    assert model.n_connected_components_ == (6 if min_samples <= 3 else 9)
    assert np.isfinite(on_host(model.cluster_persistence_)).all()
    dense = HDBSCAN(metric="precomputed", device=device, **options).fit(matrix)
    for name in ("labels_", "probabilities_", "outlier_scores_", "distances_", "cluster_persistence_"):
        np.testing.assert_array_equal(on_host(getattr(dense, name)), on_host(getattr(model, name)))
    if min_samples == 1:  # nothing ties among the rows of the large components
        far = hdbscan.HDBSCAN(metric="precomputed", **options).fit(np.where(matrix < np.inf, matrix, 1e9))
        np.testing.assert_array_equal(labels[:300], by_appearance(far.labels_)[:300])
        np.testing.assert_array_equal(on_host(model.probabilities_)[:300], far.probabilities_[:300])


def test_rows_with_too_few_entries_are_noise(device):
    matrix = neighbours(0, 60).tolil()
    matrix[7, :] = matrix[:, 7] = 0
    matrix[7, 3] = matrix[3, 7] = 0.1
    model = HDBSCAN(10, 4, metric="precomputed", device=device).fit(matrix)
    assert on_host(model.labels_)[7] == -1
    assert model.n_connected_components_ == 2
    with pytest.raises(ValueError, match=r"fewer than 4|less than 4"):
        hdbscan.HDBSCAN(10, 4, metric="precomputed").fit(matrix)


def test_names_of_nodes_and_saved_models(device, tmp_path):
    _, stored, part = disconnected(1)
    frame = pd.DataFrame({"src": stored.row, "dst": stored.col, "weight": stored.data})
    named = frame.assign(src="n" + frame["src"].astype(str), dst="n" + frame["dst"].astype(str))
    model = HDBSCAN(10, 1, metric="precomputed", device=device).fit(named)
    assert len(model.labels_) == 304  # two rows have no edge
    assert model.labels_["n0"] == 0
    assert model.labels_["n300"] == -1
    model.save(tmp_path / "model.slink")
    pd.testing.assert_series_equal(load(tmp_path / "model.slink").labels_, model.labels_)
    assert set(part) == set(range(6))


def test_single_linkage_of_a_sparse_matrix(device):
    _, stored, part = disconnected(1)
    model = SingleLinkage(6, metric="precomputed", device=device).fit(stored)
    np.testing.assert_array_equal(on_host(model.labels_), part)
    with pytest.raises(ValueError, match="6 components"):
        SingleLinkage(2, metric="precomputed", device=device).fit(stored)
    with pytest.raises(TypeError, match="Sparse input is not supported"):
        SingleLinkage(2, metric="cityblock", device=device).fit(stored)
    with pytest.raises(ValueError, match="needs distances that are not negative"):
        HDBSCAN(2, metric="precomputed", device=device).fit(-stored)


@pytest.mark.gpu
def test_sparse_matrices_of_cupy():
    import cupy
    from cupyx.scipy import sparse as on_gpu

    matrix = neighbours(1, 60)
    given = on_gpu.csr_matrix(matrix)
    tree = minimum_spanning_tree(given)
    assert type(tree) is type(given)
    expected = minimum_spanning_tree(matrix, device="cpu")
    assert abs(tree.get() - expected).max() == 0
    model = HDBSCAN(10, 4, metric="precomputed").fit(given)
    assert isinstance(model.labels_, cupy.ndarray)
    expected = HDBSCAN(10, 4, metric="precomputed", device="cpu").fit(matrix)
    np.testing.assert_array_equal(cupy.asnumpy(model.labels_), expected.labels_)
    np.testing.assert_array_equal(cupy.asnumpy(model.distances_), expected.distances_)


@pytest.mark.parametrize(
    "graph",
    [pd.DataFrame({"src": [], "dst": [], "weight": []}), sparse.csr_matrix((0, 0)), nx.Graph()],
    ids=["frame", "matrix", "networkx"],
)
def test_a_graph_without_nodes(graph, device):
    how = {"metric": "precomputed", "device": device}
    for fitted in (fit_graph, SingleLinkage(1, **how).fit, HDBSCAN(**how).fit):
        with pytest.raises(ValueError, match="the graph has no nodes"):
            fitted(graph)
    if isinstance(graph, pd.DataFrame):
        assert fit_graph(graph, n_nodes=2, device=device).labels_.tolist() == [0, 1]

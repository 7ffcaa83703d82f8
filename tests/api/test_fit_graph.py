"""`fit_graph`: the hierarchy of a graph, of a forest too, over nodes of any name."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist
from spanning_trees import NAMES, by_appearance, edges

from rapids_slink import fit_graph


def two_triangles():
    """Nodes 0-2 and 4-6 without an edge between them, node 3 alone."""
    return edges([0, 1, 2, 4, 5, 6], [1, 2, 0, 5, 6, 4], [1.0, 2.0, 9.0, 1.0, 3.0, 3.5])


def test_forest_is_kept(device):
    model = fit_graph(two_triangles(), device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert model.component_.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert (model.n_leaves_, model.n_clusters_, model.n_connected_components_) == (7, 3, 3)
    assert model.linkage_["height"].tolist() == model.mst_["weight"].tolist() == [1.0, 1.0, 2.0, 3.0]
    assert model.linkage_["left"].tolist() == [0, 4, 2, 6]
    assert model.linkage_["right"].tolist() == [1, 5, 7, 8]
    assert model.linkage_["size"].tolist() == [2, 2, 3, 3]
    assert model.labels_.dtype == model.component_.dtype == np.int32
    assert isinstance(model.labels_, pd.Series)
    assert set(model.report_["seconds"]) >= {"spanning_tree", "linkage", "cut"}


def test_cuts_of_a_forest(device):
    model = fit_graph(two_triangles(), 4, device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 3]
    assert fit_graph(two_triangles(), distance_threshold=2.0, device=device).labels_.tolist() == [0, 0, 1, 2, 3, 3, 4]
    assert model.cut(7).tolist() == list(range(7))
    assert model.cut(distance_threshold=np.inf).tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert model.cut(distance_threshold=1.0).tolist() == list(range(7))
    for n_clusters in (2, 8):
        with pytest.raises(ValueError, match=r"n_clusters must be from 3 to 7.*3 components"):
            model.cut(n_clusters)
        with pytest.raises(ValueError, match=r"n_clusters must be from 3 to 7.*3 components"):
            fit_graph(two_triangles(), n_clusters, device=device)


def test_isolated_nodes_at_the_end(device):
    model = fit_graph(two_triangles(), n_nodes=10, device=device)
    assert model.labels_.tolist() == [0, 0, 0, 1, 2, 2, 2, 3, 4, 5]
    assert model.n_connected_components_ == 6
    alone = fit_graph(edges([], [], []), n_nodes=4, device=device)
    assert alone.labels_.tolist() == [0, 1, 2, 3]
    assert (len(alone.linkage_), len(alone.mst_)) == (0, 0)
    loops = fit_graph(edges([0, 2], [0, 2], [1.0, 1.0]), device=device)
    assert loops.labels_.tolist() == loops.component_.tolist() == [0, 1, 2]


def test_connected_graph_may_be_demanded(device):
    with pytest.raises(ValueError, match="3 connected components; complete='keep'"):
        fit_graph(two_triangles(), complete="error", device=device)
    connected = pd.concat([two_triangles(), edges([2, 3], [3, 4], [7.0, 8.0])])
    model = fit_graph(connected, 2, complete="error", device=device)
    assert model.labels_.tolist() == [0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="complete must be one of 'keep', 'error', got 'random'"):
        fit_graph(connected, complete="random", device=device)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_nodes": 6}, ValueError, "n_nodes must be at least 7, .* got 6"),
        ({"n_nodes": 7.5}, TypeError, "n_nodes must be an integer, got 7.5"),
        ({"n_nodes": 2**31}, ValueError, "up to 1073741824 nodes are possible, got 2147483648"),
        ({"n_clusters": 3, "distance_threshold": 1.0}, ValueError, "n_clusters.*distance_threshold"),
        ({"n_clusters": 3.0}, TypeError, "n_clusters must be an integer"),
    ],
)
def test_bad_parameters_of_a_graph(parameters, error, message, device):
    with pytest.raises(error, match=message):
        fit_graph(two_triangles(), device=device, **parameters)


@pytest.mark.parametrize("kind", NAMES)
def test_nodes_by_name(kind, device):
    """The hierarchy of the same graph over numbers in order of appearance, indexed by id."""
    src, dst = [4, 6, 4, 11, 12, 13], [5, 4, 5, 12, 11, 11]
    order = [4, 6, 11, 12, 13, 5]
    frame = pd.DataFrame({"src": NAMES[kind](src), "dst": NAMES[kind](dst), "weight": [3.0, 2.0, 1.0, 1.0, 5.0, 4.0]})
    numbers = edges([order.index(v) for v in src], [order.index(v) for v in dst], frame["weight"])
    model, expected = fit_graph(frame, 3, device=device), fit_graph(numbers, 3, device=device)
    ids = pd.Index(NAMES[kind](order))
    for found in (model.labels_, model.component_):
        assert found.index.astype(ids.dtype).tolist() == ids.tolist()
    assert model.labels_.loc[ids[1]] == model.labels_.iloc[1]
    assert model.labels_.tolist() == expected.labels_.tolist() == [0, 0, 1, 1, 2, 0]
    assert model.component_.tolist() == [0, 0, 1, 1, 1, 0]
    assert model.cut(4).tolist() == expected.cut(4).tolist()
    assert model.cut(4).index.equals(model.labels_.index)
    assert model.cut([3, 4]).index.equals(model.labels_.index)
    pd.testing.assert_frame_equal(model.linkage_, expected.linkage_)
    pd.testing.assert_frame_equal(model.mst_, frame.iloc[[2, 3, 1, 5]].reset_index(drop=True))
    with pytest.raises(ValueError, match="n_nodes is for nodes numbered from 0"):
        fit_graph(frame, n_nodes=20, device=device)


def test_sparse_numbers_are_names(device):
    """Unless their count says that all numbers below it are nodes."""
    frame = edges([987654320], [987654321], [1.0])
    model = fit_graph(frame, 1, device=device)
    assert model.labels_.index.tolist() == [987654320, 987654321]
    assert fit_graph(edges([0], [1027], [1.0]), device=device).n_leaves_ == 1028
    assert fit_graph(edges([0], [1028], [1.0]), device=device).n_leaves_ == 2
    assert fit_graph(edges([0], [1028], [1.0]), n_nodes=1029, device=device).n_leaves_ == 1029


def test_merge_order_is_weight_and_row(device):
    """Integers that float64 rounds keep their order, and -0.0 ties with 0.0."""
    big = 2**60
    model = fit_graph(edges([2, 1, 0], [3, 2, 1], [big + 1, big, big + 1], weights="int64"), device=device)
    assert model.mst_[["src", "dst"]].to_numpy().tolist() == [[1, 2], [2, 3], [0, 1]]
    assert model.linkage_[["left", "right"]].to_numpy().tolist() == [[1, 2], [3, 4], [0, 5]]
    for weights, tiny in (("float32", 1e-45), ("float64", 5e-324)):
        frame = edges([0, 1, 2, 3], [1, 2, 3, 4], [tiny, 0.0, -0.0, -tiny], weights=weights)
        model = fit_graph(frame, device=device)
        assert model.mst_["src"].tolist() == [3, 1, 2, 0]
        assert model.linkage_["height"].tolist() == np.float64(frame["weight"])[[3, 1, 2, 0]].tolist()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_graph_of_all_pairs_is_the_points_dendrogram(sign, both, device):
    """Negative weights included: only their order counts."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    u, v = np.triu_indices(60, 1)
    Z = hierarchy.linkage(X, "single")
    shift = 0.0 if sign > 0 else 1000.0
    frame = edges(u, v, pdist(X) - shift)
    if both:
        frame = pd.concat([frame, frame.set_axis(["dst", "src", "weight"], axis=1)])
    model = fit_graph(frame, 5, device=device)
    np.testing.assert_allclose(model.to_scipy()[:, 2] + shift, Z[:, 2], rtol=1e-15 if sign > 0 else 1e-10)
    np.testing.assert_array_equal(model.to_scipy()[:, [0, 1, 3]], Z[:, [0, 1, 3]])
    np.testing.assert_array_equal(model.labels_, by_appearance(hierarchy.fcluster(Z, 5, "maxclust")))


@given(
    st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 3)), max_size=40),
    st.integers(0, 4),
)  # fmt: skip
def test_components_below_a_threshold(device, n, rows, threshold):
    """A cut's clusters are the connected components of the lighter edges."""
    rows = [(u % n, v % n, w) for u, v, w in rows]
    src, dst, weight = np.array(rows or np.empty((0, 3)), int).T
    model = fit_graph(edges(src, dst, weight), n_nodes=n, distance_threshold=threshold, device=device)
    light = weight < threshold
    graph = coo_matrix((np.ones(light.sum()), (src[light], dst[light])), shape=(n, n))
    np.testing.assert_array_equal(model.labels_, by_appearance(connected_components(graph, directed=False)[1]))
    whole = connected_components(coo_matrix((np.ones(src.size), (src, dst)), shape=(n, n)), directed=False)
    assert model.n_connected_components_ == whole[0]
    np.testing.assert_array_equal(model.component_, by_appearance(whole[1]))

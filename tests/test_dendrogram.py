"""Linkage against SciPy's Z, cuts against SciPy's and scikit-learn's partitions, and every refusal."""

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist
from sklearn.cluster import AgglomerativeClustering

from rapids_slink import SingleLinkage, fit_graph, ordering
from rapids_slink.dendrogram import build_linkage, cut, cut_labels, linkage
from rapids_slink.device import CPU, to_host
from rapids_slink.points import on_device

DEEP = 100_000
SHAPES = ["balanced", "caterpillar", "chain", "random", "star"]
ORDERS = ["rising", "falling", "valley", "hill", "shuffled", "bit-reversed"]
DTYPES = {"left": "int32", "right": "int32", "height": "float64", "size": "int32"}


def edges(src, dst, weight, ids=np.int32):
    return pd.DataFrame({"src": np.asarray(src, ids), "dst": np.asarray(dst, ids), "weight": np.asarray(weight, float)})


def grow(tree, where, **parameters):
    """The linkage of a pandas tree, computed and kept on the device."""
    return linkage(on_device(tree, where), device=where.name, **parameters)


def labels_of(frame, **how):
    return to_host(cut(frame, **how).values)


def in_order(frame):
    """An edge frame in the total order."""
    src, dst, weight = (frame[name].values for name in ("src", "dst", "weight"))
    xp = np if isinstance(src, np.ndarray) else sys.modules["cupy"]
    return type(frame)(dict(zip(("src", "dst", "weight"), ordering.sort_edges(src, dst, weight, xp), strict=True)))


@pytest.mark.parametrize(("n", "values"), [(1, 1), (2000, 1), (2000, 3), (5000, 200), (5000, 4000), (1000, 10**9)])
def test_ties_go_by_ids(n, values, where):
    """Runs of one row, of a few and of many."""
    rng = np.random.default_rng(values)
    u, v = rng.permutation(n).astype(np.int32), (n + rng.permutation(n)).astype(np.int32)
    u, v = np.where(rng.random(n) < 0.5, (u, v), (v, u))
    weight = rng.integers(0, values, n) / 7
    found = ordering.sort_edges(*(where.xp.asarray(part) for part in (u, v, weight)), where.xp)
    low, high = np.minimum(u, v), np.maximum(u, v)
    expected = np.lexsort((high, low, weight))
    for part, column in zip(found, (low, high, weight), strict=True):
        np.testing.assert_array_equal(to_host(part), column[expected])


def spanning_tree(X):
    """Kruskal's tree of all pairs of rows, by the total order."""
    u, v = np.triu_indices(len(X), 1)
    parent = list(range(len(X)))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    kept = []
    pairs = in_order(edges(u, v, pdist(X)))
    for i, (a, b) in enumerate(zip(pairs["src"], pairs["dst"], strict=True)):
        if root(a) != root(b):
            parent[root(a)] = root(b)
            kept.append(i)
    return pairs.iloc[kept]


def random_tree(rng, n, shape):
    """A tree of n nodes, its ids shuffled and its weights of few values."""
    i = np.arange(1, n)
    end = {
        "balanced": (i - 1) // 2,
        "caterpillar": np.where(i % 2, np.maximum(i - 2, 0), i - 1),
        "chain": i - 1,
        "random": (rng.random(n - 1) * i).astype(int),
        "star": 0 * i,
    }[shape]
    names = rng.permutation(n)
    return edges(names[end], names[i], rng.integers(0, max(2, n // 3), n - 1))


def rank_edges(rng, tree, order):
    """The tree's edges in a merge order that makes deep, flat or mixed dendrograms."""
    m = len(tree)
    weight = {
        "rising": np.arange(m),
        "falling": -np.arange(m),
        "valley": abs(np.arange(m) - m // 2),
        "hill": -abs(np.arange(m) - m // 2),
        "shuffled": rng.permutation(m),
        "bit-reversed": [int(format(i, "032b")[::-1], 2) for i in range(m)],
    }[order]
    return tree.iloc[np.argsort(weight, kind="stable")]


def matrix(frame):
    return np.column_stack([to_host(frame[c].values) for c in ("left", "right", "height", "size")]).astype(float)


def merge_slowly(tree, n=None):
    """Z of a sorted tree or forest, by sets; it ends before the first edge that closes a cycle."""
    n = len(tree) + 1 if n is None else n
    member = {i: (i, {i}) for i in range(n)}
    rows = []
    for i, edge in enumerate(tree.itertuples(index=False)):
        (a, of_a), (b, of_b) = member[edge.src], member[edge.dst]
        if a == b:
            break
        both = of_a | of_b
        rows.append((min(a, b), max(a, b), edge.weight, len(both)))
        member.update(dict.fromkeys(both, (n + i, both)))
    return np.array(rows, dtype=float).reshape(-1, 4)


def same_partition(a, b):
    pairs = len(set(zip(a, b, strict=True)))
    return pairs == len(set(a)) == len(set(b))


def in_order_of_appearance(labels):
    first = pd.unique(np.asarray(labels))
    return first.tolist() == list(range(len(first)))


@pytest.mark.parametrize("n", [2, 3, 10, 200])
def test_linkage_is_scipys(where, n):
    X = np.random.default_rng(n).random((n, 3))
    expected = hierarchy.linkage(X, "single")
    found = grow(spanning_tree(X).sample(frac=1, random_state=0), where)
    assert found.dtypes.astype(str).to_dict() == DTYPES
    assert matrix(found).tobytes() == expected.tobytes()


def test_heights_are_scipys_under_ties(where):
    X = np.random.default_rng(0).integers(0, 5, (60, 2)).astype(float)
    found = grow(spanning_tree(X), where)
    np.testing.assert_array_equal(matrix(found)[:, 2], hierarchy.linkage(X, "single")[:, 2])
    assert hierarchy.is_valid_linkage(matrix(found))


@given(n=st.integers(1, 40), shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**32 - 1))
def test_linkage_of_any_tree(where, n, shape, seed):
    tree = random_tree(np.random.default_rng(seed), n, shape)
    np.testing.assert_array_equal(matrix(grow(tree, where)), merge_slowly(in_order(tree)))


def merge_in_order(tree, n, where):
    """The kernel's three columns, on the host."""
    src, dst = (where.asarray(np.ascontiguousarray(tree[column]), "int32") for column in ("src", "dst"))
    found = where.kernels("dendrogram").merge_in_order(src, dst, n)
    assert [column.dtype for column in found] == [np.int32] * 3
    return np.column_stack([to_host(column) for column in found])


@given(
    n=st.integers(1, 60),
    shape=st.sampled_from(SHAPES),
    order=st.sampled_from(ORDERS),
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0, 0.3, 0.8, 1]),
    extra=st.integers(0, 3),
)
def test_merging_any_forest_in_any_order(where, n, shape, order, seed, share, extra):
    """Trees, forests, and graphs whose further edges close cycles: long ones, parallel edges, self-loops."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, n, shape)
    further = edges(rng.integers(0, n, extra), rng.integers(0, n, extra), np.zeros(extra))
    tree = pd.concat([tree[rng.random(n - 1) < share], further], ignore_index=True)
    tree = rank_edges(rng, tree, order)
    expected = merge_slowly(tree, n)
    np.testing.assert_array_equal(merge_in_order(tree, n, where), expected[:, [0, 1, 3]])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_large_trees_merge_the_same_on_both_devices(where, shape, order):
    rng = np.random.default_rng(0)
    tree = rank_edges(rng, random_tree(rng, DEEP, shape), order)
    found = merge_in_order(tree, DEEP, where)
    np.testing.assert_array_equal(found, merge_in_order(tree, DEEP, CPU))
    assert hierarchy.is_valid_linkage(np.column_stack([found[:, :2], np.arange(DEEP - 1), found[:, 2]]).astype(float))


@given(
    ends=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20),
    weights=st.lists(st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1.0, np.inf]), min_size=20, max_size=20),
)
def test_edges_sort_in_the_total_order(where, ends, weights):
    src, dst = np.array(ends, dtype=np.int32).reshape(-1, 2).T
    weight = np.array(weights[: len(ends)], dtype=float)
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    expected = sorted(zip(weight.tolist(), low.tolist(), high.tolist(), strict=True))
    found = in_order(on_device(edges(src, dst, weight), where))
    assert list(found.columns) == ["src", "dst", "weight"]
    columns = (to_host(found[column].values).tolist() for column in ("weight", "src", "dst"))
    assert list(zip(*columns, strict=True)) == expected


@given(st.integers(0, 700), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_following_pointers(where, size, reach, seed):
    rng = np.random.default_rng(seed)
    pointers = np.arange(size) + rng.integers(1, reach + 1, size)
    pointers = np.where((pointers >= size) | (rng.random(size) < 0.05), -rng.integers(1, 9, size), pointers)
    expected = pointers.tolist()
    for i in reversed(range(size)):
        expected[i] = expected[expected[i]] if expected[i] >= 0 else expected[i]
    found = where.asarray(pointers, "int32")
    where.kernels("dendrogram").follow_pointers(found)
    assert found.tolist() == expected


def test_following_one_long_way(where):
    pointers = where.xp.arange(1, DEEP + 1, dtype="int32")
    pointers[-1] = -5
    where.kernels("dendrogram").follow_pointers(pointers)
    assert bool((pointers == -5).all())


@given(st.lists(st.integers(0, 9), max_size=300))
def test_first_rows(where, groups):
    found = where.kernels("dendrogram").first_rows(where.asarray(np.array(groups, dtype=np.int32)), 10)
    assert found.dtype == np.int32
    assert found.tolist() == [groups.index(g) if g in groups else len(groups) for g in range(10)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_smallest_trees(where, n):
    tree = edges(range(n - 1), range(1, n), range(n - 1))
    found = grow(tree, where)
    assert matrix(found).tolist() == [[0, 1, 0, 2], [2, 3, 1, 3]][: n - 1]
    for k in range(1, n + 1):
        assert (
            labels_of(found, n_clusters=k).tolist()
            == [[[0]], [[0, 0], [0, 1]], [[0, 0, 0], [0, 0, 1], [0, 1, 2]]][n - 1][k - 1]
        )


def test_linkage_leaves_its_input_alone_and_takes_other_columns(device):
    tree = edges([2, 1], [1, 0], [5, 3], ids=np.int64).assign(note="x")
    before = tree.copy()
    assert matrix(linkage(tree, device=device)).tolist() == [[0, 1, 3, 2], [2, 3, 5, 3]]
    pd.testing.assert_frame_equal(tree, before)


def test_weights_may_be_zero_negative_or_integer(where):
    tree = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3], "weight": [0, -2, 7]})
    assert matrix(grow(tree, where))[:, 2].tolist() == [-2, 0, 7]


def test_linkage_stays_with_its_kind_of_frame(where, device):
    tree = where.frame({"src": where.xp.array([0]), "dst": where.xp.array([1]), "weight": where.xp.array([2.0])})
    assert isinstance(linkage(tree, device=device), where.frames.DataFrame)
    assert isinstance(linkage(edges([0], [1], [2]), device=device), pd.DataFrame)
    assert isinstance(cut(linkage(tree, device=device), n_clusters=1), where.frames.Series)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (edges([0, 1, 0], [1, 2, 2], [1, 2, 3]).assign(dst=[1, 2, 2]), r"edge 0 - 2 closes a cycle"),
        (edges([0, 2], [1, 2], [1, 2]), "edge 2 - 2 closes a cycle"),
        (edges([0, 1], [1, 3], [1, 2]), r"node ids must be from 0 to 2 .*for a forest, pass n_nodes\), found 3"),
        (edges([0, -1], [1, 2], [1, 2]), "node ids must be from 0 to 2 .*, found -1"),
        (edges([0], [2**40], [1], ids=np.int64), "node ids must be from 0 to 1 .*, found 1099511627776"),
        (edges([0], [1], [np.nan]), "column 'weight' of the tree holds nulls or NaN"),
        (edges([0], [1], [1]).astype({"src": "Int32"}).assign(src=lambda t: t["src"].shift()), "column 'src' .* nulls"),
        (edges([0], [1], [1]).drop(columns="dst"), r"columns src, dst, weight; dst not found in \['src', 'weight'\]"),
    ],
)
def test_linkage_refuses_what_is_no_tree(where, tree, message):
    with pytest.raises(ValueError, match=message):
        grow(tree, where)


def test_linkage_refuses_other_types(where):
    with pytest.raises(TypeError, match="column 'src' of the tree must hold integers, got dtype float64"):
        grow(edges([0], [1], [1], ids=float), where)
    with pytest.raises(TypeError, match="tree must be a DataFrame with columns src, dst, weight, got ndarray"):
        linkage(np.zeros((3, 3)), device=where.name)
    with pytest.raises(TypeError, match=r"n_nodes must be an integer, got 2\.0"):
        grow(edges([0], [1], [1]), where, n_nodes=2.0)
    with pytest.raises(ValueError, match="2 edges over n_nodes=2 nodes; a tree has 1, a forest fewer"):
        grow(edges([0, 0], [1, 1], [1, 1]), where, n_nodes=2)
    with pytest.raises(ValueError, match="must have from 1 to 1073741824 nodes, got 0"):
        grow(edges([], [], []), where, n_nodes=0)


def test_forest(where):
    found = grow(edges([0, 4], [3, 1], [2, 1]), where, n_nodes=6)
    assert matrix(found).tolist() == [[1, 4, 1, 2], [0, 3, 2, 2]]
    assert labels_of(found, n_leaves=6, n_clusters=4).tolist() == [0, 1, 2, 0, 1, 3]
    assert labels_of(found, n_leaves=6, n_clusters=5).tolist() == [0, 1, 2, 3, 1, 4]
    assert labels_of(found, n_leaves=6, distance_threshold=np.inf).tolist() == [0, 1, 2, 0, 1, 3]
    with pytest.raises(ValueError, match=r"n_clusters must be from 4 to 6, .*, got 3 \(the graph has 4 components"):
        labels_of(found, n_leaves=6, n_clusters=3)
    with pytest.raises(ValueError, match="cluster ids from 0 to 3; for the linkage of a forest, pass n_leaves"):
        labels_of(found, n_clusters=2)
    assert labels_of(grow(edges([], [], []), where, n_nodes=3), n_leaves=3, n_clusters=3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("ties", [False, True])
def test_cuts_are_scipys_between_heights(where, ties):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 9, (80, 2)).astype(float) if ties else rng.random((80, 2))
    Z = hierarchy.linkage(X, "single")
    frame = grow(spanning_tree(X), where)
    heights = np.unique(Z[:, 2])
    for t in [heights[0] - 1, *(heights[1:] + heights[:-1]) / 2, heights[-1] + 1]:
        labels = labels_of(frame, distance_threshold=t)
        assert labels.dtype == np.int32
        assert same_partition(labels, hierarchy.fcluster(Z, t, "distance"))
        assert in_order_of_appearance(labels)
        assert labels_of(frame, n_clusters=labels.max() + 1).tolist() == labels.tolist()


def test_thresholds_mean_what_they_mean_in_scikit_learn(where):
    X = np.array([[0.0], [1.0], [2.0], [4.0], [6.0], [9.0]])
    frame = grow(spanning_tree(X), where)
    for t in (0.5, 1.0, 1.5, 2.0, 3.0, 3.5):
        model = AgglomerativeClustering(n_clusters=None, distance_threshold=t, linkage="single").fit(X)
        assert same_partition(labels_of(frame, distance_threshold=t).tolist(), model.labels_)


def test_n_clusters_is_met_exactly_where_all_heights_tie(where):
    n = 50
    for tree in (edges(range(n - 1), range(1, n), np.ones(n - 1)), edges(np.zeros(n - 1), range(1, n), np.ones(n - 1))):
        frame = grow(tree, where)
        for k in range(1, n + 1):
            labels = labels_of(frame, n_clusters=k)
            assert labels.max() + 1 == len(set(labels)) == k
            assert in_order_of_appearance(labels)


def cut_slowly(frame, n, k, least=1):
    """Labels by the sets that the kept merges make, least leaves a cluster."""
    sets = {i: [i] for i in range(n)}
    children = zip(to_host(frame["left"].values)[: n - k], to_host(frame["right"].values)[: n - k], strict=True)
    for i, (left, right) in enumerate(children):
        sets[n + i] = sets.pop(left) + sets.pop(right)
    labels = np.full(n, -1)
    for label, leaves in enumerate(sorted((s for s in sets.values() if len(s) >= least), key=min)):
        labels[leaves] = label
    return labels.tolist()


@given(n=st.integers(1, 40), shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_cut_of_any_tree(where, n, shape, seed, data):
    frame = grow(random_tree(np.random.default_rng(seed), n, shape), where)
    k = data.draw(st.integers(1, n))
    assert labels_of(frame, n_clusters=k).tolist() == cut_slowly(frame, n, k)
    least = data.draw(st.integers(1, n + 1))
    assert labels_of(frame, n_clusters=k, min_cluster_size=least).tolist() == cut_slowly(frame, n, k, least)


@given(n=st.integers(1, 40), shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_many_cuts_are_the_single_cuts(where, n, shape, seed, data):
    """In any order, of forests too, with and without small clusters."""
    tree = random_tree(np.random.default_rng(seed), n, shape)
    components = data.draw(st.integers(1, n))
    frame = grow(in_order(tree).iloc[: n - components], where, n_nodes=n)
    least = data.draw(st.sampled_from([1, 2, 5]))
    counts = data.draw(st.lists(st.integers(components, n), min_size=1, max_size=5, unique=True))
    found = cut(frame, n_clusters=counts, min_cluster_size=least, n_leaves=n)
    assert isinstance(found, where.frames.DataFrame)
    assert list(found.columns) == counts
    for k in counts:
        assert found[k].dtype == np.int32
        assert to_host(found[k].values).tolist() == cut_slowly(frame, n, k, least)
    heights = sorted({*to_host(frame["height"].values).tolist(), -np.inf, 0.5, np.inf})
    thresholds = data.draw(st.lists(st.sampled_from(heights), min_size=1, max_size=5, unique=True))
    found = cut(frame, distance_threshold=thresholds, min_cluster_size=least, n_leaves=n)
    assert list(found.columns) == thresholds
    for t in thresholds:
        single = labels_of(frame, distance_threshold=t, min_cluster_size=least, n_leaves=n)
        assert to_host(found[t].values).tolist() == single.tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_many_cuts_of_large_trees(where, shape):
    frame = grow(random_tree(np.random.default_rng(0), DEEP, shape), where)
    counts = [3, DEEP, 1000, 1, DEEP - 1, DEEP // 2]
    found = cut(frame, n_clusters=counts)
    for k in counts:
        labels = to_host(found[k].values)
        assert labels.max() + 1 == k
        np.testing.assert_array_equal(labels, labels_of(frame, n_clusters=k))


@pytest.mark.parametrize("counts", [[3, 1], (3, 1), range(3, 0, -2), np.array([3, 1]), pd.Series([3, 1])])
def test_sequences_that_name_many_cuts(where, counts):
    frame = grow(edges([0, 1], [1, 2], [1, 2]), where)
    found = cut(frame, n_clusters=counts)
    assert list(found.columns) == [3, 1]
    assert all(isinstance(name, int) for name in found.columns)
    assert to_host(found.values).tolist() == [[0, 0], [1, 0], [2, 0]]
    assert cut(frame, n_clusters=[2]).shape == (3, 1)


def test_a_model_cuts_many_times(where):
    X = np.array([[0.0], [1.0], [3.0], [9.0]])
    array = SingleLinkage(2, device=where.name).fit(where.asarray(X)).cut([4, 2, 1])
    assert isinstance(array, where.xp.ndarray)
    assert array.dtype == np.int32
    assert array.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 1, 0]]
    table = on_device(pd.DataFrame({"x": X[:, 0]}, index=[7, 7, 5, 6]), where)
    model = SingleLinkage(2, device=where.name).fit(table)
    frame = model.cut(distance_threshold=[1.5, 6.0], min_cluster_size=2)
    assert isinstance(frame, where.frames.DataFrame)
    assert to_host(frame.index.values).tolist() == [7, 7, 5, 6]
    assert list(frame.columns) == [1.5, 6.0]
    assert to_host(frame.values).tolist() == [[0, 0], [0, 0], [-1, 0], [-1, -1]]
    assert to_host(model.cut(2, min_cluster_size=2).values).tolist() == [0, 0, 0, -1]
    graph = fit_graph(on_device(edges([0, 2], [1, 3], [1, 2]), where), device=where.name)
    found = graph.cut([2, 4])
    assert isinstance(found, where.frames.DataFrame)
    assert to_host(found.values).tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]


@pytest.mark.parametrize("shape", SHAPES)
def test_deep_and_wide_trees(where, shape):
    rng = np.random.default_rng(0)
    tree = random_tree(rng, DEEP, shape)
    tree["weight"] = rng.permutation(DEEP - 1).astype(float)
    frame = grow(tree, where)
    assert hierarchy.is_valid_linkage(matrix(frame))
    kept = in_order(tree).iloc[: DEEP - 1000]
    pieces = grow(kept, where, n_nodes=DEEP)
    labels = labels_of(frame, n_clusters=1000)
    assert labels.max() == 999
    assert (labels_of(pieces, n_leaves=DEEP, n_clusters=1000) == labels).all()


def test_a_chain_in_order(where):
    """Depth n: row i merges leaf i + 1 into all before it."""
    frame = grow(edges(range(DEEP - 1), range(1, DEEP), range(DEEP - 1)), where)
    np.testing.assert_array_equal(matrix(frame)[:, 3], np.arange(2, DEEP + 1))
    np.testing.assert_array_equal(matrix(frame)[:, 1], np.r_[1, np.arange(DEEP, 2 * DEEP - 2)])
    assert labels_of(frame, n_clusters=3).tolist() == [0] * (DEEP - 2) + [1, 2]


def test_stages_inside_the_pipeline(where):
    """`build_linkage` and `cut_labels` take and return what is on the device."""
    xp = where.xp
    tree = where.frame({"src": xp.array([0, 1], xp.int32), "dst": xp.array([2, 2], xp.int32), "weight": xp.ones(2)})
    frame = build_linkage(tree, 4, where)
    assert isinstance(frame, where.frames.DataFrame)
    assert matrix(frame).tolist() == [[0, 2, 1, 2], [1, 4, 1, 3]]
    labels = cut_labels(frame, 4, n_clusters=3)
    assert isinstance(labels, xp.ndarray)
    assert labels.dtype == xp.int32
    assert labels.tolist() == [0, 1, 0, 2]
    with pytest.raises(ValueError, match="edge 0 - 2 closes a cycle"):
        build_linkage(where.frames.concat([tree, tree]), 6, where)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({}, ValueError, "exactly one of n_clusters and distance_threshold, got neither"),
        ({"n_clusters": 2, "distance_threshold": 1.0}, ValueError, "exactly one of .* got both"),
        ({"n_clusters": 0}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 0"),
        ({"n_clusters": 4}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 4"),
        ({"n_clusters": 2.0}, TypeError, r"n_clusters must be an integer, got 2\.0"),
        ({"n_clusters": True}, TypeError, "n_clusters must be an integer, got True"),
        ({"distance_threshold": np.nan}, ValueError, "distance_threshold must not be NaN"),
        ({"distance_threshold": "1"}, TypeError, "distance_threshold must be a number, got '1'"),
        ({"n_clusters": []}, ValueError, "n_clusters must hold at least one value, got none"),
        ({"distance_threshold": []}, ValueError, "distance_threshold must hold at least one value, got none"),
        ({"n_clusters": [1, 3, 1]}, ValueError, "n_clusters must not hold a value twice, .* got 1 twice"),
        ({"distance_threshold": [2, 0.5, 2.0]}, ValueError, "distance_threshold must not hold .* got 2 twice"),
        ({"n_clusters": [1, 4]}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 4"),
        ({"n_clusters": [1, 2.0]}, TypeError, r"n_clusters must be an integer, got 2\.0"),
        ({"n_clusters": {1, 2}}, TypeError, r"n_clusters must be an integer, got {1, 2}"),
        ({"n_clusters": [1, 2], "distance_threshold": 1.0}, ValueError, "exactly one of .* got both"),
        ({"distance_threshold": [1.0, np.nan]}, ValueError, "distance_threshold must not be NaN"),
        ({"distance_threshold": ["1"]}, TypeError, "distance_threshold must be a number, got '1'"),
        ({"n_clusters": 1, "min_cluster_size": 0}, ValueError, "min_cluster_size must be at least 1, got 0"),
        ({"n_clusters": 1, "min_cluster_size": 1.5}, TypeError, r"min_cluster_size must be an integer, got 1\.5"),
        ({"n_clusters": 1, "n_leaves": 2}, ValueError, "linkage has 2 rows, more than the n_leaves - 1 = 1 merges"),
    ],
)
def test_cut_refuses(where, how, error, message):
    frame = grow(edges([0, 1], [1, 2], [1, 2]), where)
    with pytest.raises(error, match=message):
        cut(frame, **how)


def test_cut_refuses_other_frames(where):
    frame = grow(edges([0, 1], [1, 2], [1, 2]), where)
    with pytest.raises(ValueError, match="columns left, right, height, size; height not found"):
        cut(frame.drop(columns="height"), n_clusters=2)
    with pytest.raises(TypeError, match=r"linkage must be a DataFrame with columns .*, got list"):
        cut([[0, 1, 1.0, 2]], n_clusters=2)
    with pytest.raises(TypeError, match="column 'left' of the linkage must hold integers, got float64"):
        cut(frame.assign(left=frame["left"].astype("float64")), n_clusters=2)
    with pytest.raises(ValueError, match="column 'height' of the linkage must not fall"):
        cut(frame.assign(height=-frame["height"]), n_clusters=2)
    for heights in ([1, np.nan], [np.nan, 1]):
        with pytest.raises(ValueError, match=r"column 'height' of the linkage must not fall .* nor hold NaN"):
            cut(frame.assign(height=where.xp.asarray(heights)), n_clusters=2)
    with pytest.raises(TypeError, match="column 'height' of the linkage must hold numbers, got"):
        cut(frame.assign(height=["1", "2"]), n_clusters=2)
    gap = on_device(pd.DataFrame({"left": [0, None], "right": [1, 3], "height": [1.0, 2], "size": [2, 3]}), where)
    with pytest.raises(ValueError, match="column 'left' of the linkage holds nulls"):
        cut(gap.astype({"left": "Int64"} if where is CPU else {"left": "int64"}), n_clusters=2)


def test_extreme_thresholds(where):
    frame = grow(edges([0, 1], [1, 2], [1, 2]), where)
    assert labels_of(frame, distance_threshold=-np.inf).tolist() == [0, 1, 2]
    assert labels_of(frame, distance_threshold=np.float32(2)).tolist() == [0, 0, 1]
    assert labels_of(frame, distance_threshold=3).tolist() == [0, 0, 0]
    assert labels_of(frame, n_clusters=np.int64(2)).tolist() == [0, 0, 1]


def test_a_chain_of_a_million_leaves_overflows_no_stack(where):
    xp, n = where.xp, 1_000_000
    rows = xp.arange(n, dtype="int32")
    tree = where.frame({"src": rows[:-1], "dst": rows[1:], "weight": xp.arange(n - 1, dtype="float64")})
    merges = build_linkage(tree, n, where)
    np.testing.assert_array_equal(to_host(merges["size"].values), np.arange(2, n + 1))
    labels = to_host(cut_labels(merges, n, n_clusters=10))
    np.testing.assert_array_equal(labels, np.maximum(np.arange(n) - (n - 10), 0))


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([0, 1, 2, 3], [7, 5, 6, 4], "row 0 of the linkage merges a cluster that no earlier row has made"),
        ([0, 0], [1, 1], "merges some cluster twice"),
    ],
)
def test_what_is_no_dendrogram_is_refused(left, right, message, where):
    xp, m = where.xp, len(left)
    columns = {"left": left, "right": right, "height": np.arange(m) + 1.0, "size": [2] * m}
    with pytest.raises(ValueError, match=message):
        cut(where.frame({name: xp.asarray(column) for name, column in columns.items()}), n_clusters=1)

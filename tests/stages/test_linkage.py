"""From a tree to SciPy's Z: against SciPy, against union-find in plain Python, and every refusal."""

import sys
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from hard_cases import combinations, every
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from spanning_trees import DEEP, ORDERS, SHAPES, TREES, edges, linkage_on, matrix, points_tree, rank_edges, shaped_tree

from rapids_slink import cut, linkage, ordering
from rapids_slink.dendrogram import build_linkage, cut_labels
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.dendrogram.cutting import CutParameters
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame, on_device
from rapids_slink.runtime.device import to_host

DTYPES = {"left": "int32", "right": "int32", "height": "float64", "size": "int32"}


def in_order(frame):
    """An edge frame in the total order."""
    columns = {name: frame[name].values.astype(dtype) for name, dtype in EDGE_TYPES.items()}
    ordering.sort_in_place(columns, np if isinstance(columns["src"], np.ndarray) else sys.modules["cupy"])
    return type(frame)(columns)


def merge_plainly(tree, n=None):
    """Z of a sorted tree or forest, by union-find in Python; it ends before the first edge that closes a cycle."""
    n = len(tree) + 1 if n is None else n
    parent, cluster, size, rows = list(range(n)), list(range(n)), [1] * n, []

    def root(v):
        while parent[v] != v:
            parent[v] = v = parent[parent[v]]
        return v

    for i, (u, v, weight) in enumerate(zip(*(tree[c].tolist() for c in ("src", "dst", "weight")), strict=True)):
        a, b = root(u), root(v)
        if a == b:
            break
        a, b = (a, b) if size[a] >= size[b] else (b, a)
        parent[b] = a
        size[a] += size[b]
        rows.append((min(cluster[a], cluster[b]), max(cluster[a], cluster[b]), weight, size[a]))
        cluster[a] = n + i
    return np.array(rows, dtype=float).reshape(-1, 4)


def merge_in_order(tree, n, engine):
    """The kernel's three columns as far as edges were merged, on the host."""
    src, dst = (engine.asarray(np.ascontiguousarray(tree[column]), "int32") for column in ("src", "dst"))
    found = [engine.xp.empty_like(src) for _ in range(3)]
    merged = dendrogram_kernels(engine).merge_in_order(src, dst, n, *found)
    return np.column_stack([to_host(column)[:merged] for column in found]), merged


SIZES = [(1, 1), (256, 1), (257, 1), (2000, 3), (40_000, 1), (40_000, 3), (50_000, 200), (50_000, 4000),
         (33_000, 10**9)]  # fmt: skip
STEPS = [(0, 1 / 7), (1, 2.0**-50), (-1e-41, 2.0**-148), (1e300, 1e290)]


@pytest.mark.parametrize(("size", "values"), combinations(SIZES, STEPS, quick=zip(SIZES, cycle(STEPS), strict=False)))
def test_ties_go_by_ids(size, values, engine):
    """Runs of one row, of as many as are compared with each other, and of more; some tie only in float32."""
    (n, values), (start, step) = size, values
    rng = np.random.default_rng(values)
    u, v = rng.permutation(n).astype(np.int32), (n + rng.permutation(n)).astype(np.int32)
    u, v = np.where(rng.random(n) < 0.5, (u, v), (v, u))
    weight = start + step * rng.integers(0, values, n)
    given = {"src": u, "dst": v, "weight": weight}
    found = {name: engine.asarray(part, EDGE_TYPES[name]) for name, part in given.items()}
    ordering.sort_in_place(found, engine.xp)
    low, high = np.minimum(u, v), np.maximum(u, v)
    expected = np.lexsort((high, low, weight))
    for part, column in zip(found.values(), (low, high, weight), strict=True):
        np.testing.assert_array_equal(to_host(part), column[expected])


@given(
    ends=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20),
    weights=st.lists(st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1.0, np.inf]), min_size=20, max_size=20),
)
def test_edges_sort_in_the_total_order(engine, ends, weights):
    src, dst = np.array(ends, dtype=np.int32).reshape(-1, 2).T
    weight = np.array(weights[: len(ends)], dtype=float)
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    expected = sorted(zip(weight.tolist(), low.tolist(), high.tolist(), strict=True))
    found = in_order(on_device(edges(src, dst, weight), engine))
    assert list(found.columns) == ["src", "dst", "weight"]
    columns = (to_host(found[column].values).tolist() for column in ("weight", "src", "dst"))
    assert list(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("n", [0, 1, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint64"])
def test_equal_numbers_keep_their_order(n, dtype, engine):
    rng = np.random.default_rng(n)
    if dtype.startswith("float"):
        values = rng.choice(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-30, 2.0, np.inf, *rng.normal(size=50)], dtype), n)
    else:
        kind = np.iinfo(dtype)
        values = rng.choice(rng.integers(kind.min, kind.max, 50, dtype=dtype, endpoint=True), n)
    found = to_host(ordering.stable_order(engine.asarray(values), engine.xp))
    np.testing.assert_array_equal(found, np.argsort(values, kind="stable"))


@pytest.mark.parametrize("n", [2, 3, 10, 200])
def test_linkage_is_scipys(engine, n):
    X = np.random.default_rng(n).random((n, 3))
    expected = hierarchy.linkage(X, "single")
    found = linkage_on(engine, points_tree(X).sample(frac=1, random_state=0))
    assert found.dtypes.astype(str).to_dict() == DTYPES
    assert matrix(found).tobytes() == expected.tobytes()


@given(n=st.integers(1, 40), **TREES)
def test_linkage_of_any_tree(engine, n, shape, seed):
    tree = shaped_tree(np.random.default_rng(seed), n, shape)
    np.testing.assert_array_equal(matrix(linkage_on(engine, tree)), merge_plainly(in_order(tree)))


@given(
    n=st.integers(1, 60), order=st.sampled_from(ORDERS), share=st.sampled_from([0, 0.3, 0.8, 1]),
    extra=st.integers(0, 3), **TREES,
)  # fmt: skip
def test_merging_any_forest_in_any_order(engine, n, shape, order, seed, share, extra):
    """Trees, forests, and graphs whose further edges close cycles: long ones, parallel edges, self-loops."""
    rng = np.random.default_rng(seed)
    tree = shaped_tree(rng, n, shape)
    further = edges(rng.integers(0, n, extra), rng.integers(0, n, extra), np.zeros(extra))
    tree = pd.concat([tree[rng.random(n - 1) < share], further], ignore_index=True)
    tree = rank_edges(rng, tree, order)
    expected = merge_plainly(tree, n)
    found, merged = merge_in_order(tree, n, engine)
    assert merged == len(expected)
    if merged == len(tree):
        np.testing.assert_array_equal(found, expected[:, [0, 1, 3]])


@pytest.mark.parametrize(("shape", "order"), every(SHAPES, ORDERS, quick=[("chain", "rising"), ("random", "shuffled")]))
def test_deep_and_wide_trees(engine, shape, order):
    rng = np.random.default_rng(0)
    tree = rank_edges(rng, shaped_tree(rng, DEEP, shape), order)
    np.testing.assert_array_equal(merge_in_order(tree, DEEP, engine)[0], merge_plainly(tree)[:, [0, 1, 3]])


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1], [2, 1, 7, 3], [4] * 1000, [3000, 2, 3000]])
def test_groups(engine, sizes):
    """The merges of a forest of groups, whose rows lie anywhere, are those of any forest."""
    rng = np.random.default_rng(len(sizes))
    n, starts = sum(sizes), np.cumsum([0, *sizes[:-1]])
    trees = [shaped_tree(rng, size, "random") + start for size, start in zip(sizes, starts, strict=True)]
    tree = rank_edges(rng, pd.concat(trees, ignore_index=True), "shuffled")
    group = np.repeat(np.arange(len(sizes)), sizes)[tree["src"].to_numpy(dtype=int)]
    place = rng.permutation(n)
    columns = {name: engine.asarray(place[tree[name].to_numpy(dtype=int)], "int32") for name in ("src", "dst")}
    columns["weight"] = engine.asarray(tree["weight"].to_numpy(), "float64")
    forest = PreallocatedFrame(columns, engine)
    found = build_linkage(forest, n, (engine.asarray(group, "int32"), len(sizes)))
    for name, column in build_linkage(forest, n).columns.items():
        np.testing.assert_array_equal(to_host(found.columns[name]), to_host(column))


def test_a_chain_of_a_million_leaves_overflows_no_stack(engine):
    xp, n = engine.xp, 1_000_000
    rows = xp.arange(n, dtype="int32")
    edges = {"src": rows[:-1], "dst": rows[1:], "weight": xp.arange(n - 1, dtype="float64")}
    merges = build_linkage(PreallocatedFrame(edges, engine), n)
    np.testing.assert_array_equal(to_host(merges.columns["size"]), np.arange(2, n + 1))
    np.testing.assert_array_equal(to_host(merges.columns["right"]), np.r_[1, np.arange(n, 2 * n - 2)])
    labels = to_host(cut_labels(merges, n, CutParameters(10)).columns["label"])
    np.testing.assert_array_equal(labels, np.maximum(np.arange(n) - (n - 10), 0))


def test_linkage_leaves_its_input_alone_and_takes_other_columns(device):
    tree = edges([2, 1], [1, 0], [5, 3]).assign(note="x")
    before = tree.copy()
    assert matrix(linkage(tree, device=device)).tolist() == [[0, 1, 3, 2], [2, 3, 5, 3]]
    pd.testing.assert_frame_equal(tree, before)


def test_linkage_stays_with_its_kind_of_frame(engine, device):
    tree = on_device(edges([0], [1], [2.0]), engine)
    assert isinstance(linkage(tree, device=device), engine.frames.DataFrame)
    assert isinstance(linkage(edges([0], [1], [2]), device=device), pd.DataFrame)
    assert isinstance(cut(linkage(tree, device=device), n_clusters=1), engine.frames.Series)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (edges([0, 1, 0], [1, 2, 2], [1, 2, 3]), r"edge 0 - 2 closes a cycle"),
        (edges([0, 2], [1, 2], [1, 2]), "edge 2 - 2 closes a cycle"),
        (edges([0, 1], [1, 3], [1, 2]), r"node ids must be from 0 to 2 .*for a forest, pass n_nodes\), found 3"),
        (edges([0, -1], [1, 2], [1, 2]), "node ids must be from 0 to 2 .*, found -1"),
        (edges([0], [2**40], [1]), "node ids must be from 0 to 1 .*, found 1099511627776"),
        (edges([0], [1], [np.nan]), "column 'weight' of the tree holds nulls or NaN"),
        (edges([0], [1], [1]).astype({"src": "Int32"}).assign(src=lambda t: t["src"].shift()), "column 'src' .* nulls"),
        (edges([0], [1], [1]).drop(columns="dst"), r"columns src, dst, weight; dst not found in \['src', 'weight'\]"),
    ],
)
def test_linkage_refuses_what_is_no_tree(engine, tree, message):
    with pytest.raises(ValueError, match=message):
        linkage_on(engine, tree)


def test_linkage_refuses_other_types(engine):
    with pytest.raises(TypeError, match=r"n_nodes must be an integer, got 2\.0"):
        linkage_on(engine, edges([0], [1], [1]), n_nodes=2.0)
    with pytest.raises(ValueError, match="2 edges over n_nodes=2 nodes; a tree has 1, a forest fewer"):
        linkage_on(engine, edges([0, 0], [1, 1], [1, 1]), n_nodes=2)
    with pytest.raises(ValueError, match="must have from 1 to 1073741824 nodes, got 0"):
        linkage_on(engine, edges([], [], []), n_nodes=0)

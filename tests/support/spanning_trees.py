"""Graphs, trees of every shape, and their spanning trees in plain Python and NumPy."""

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from oracles import tree_of
from scipy.spatial.distance import pdist, squareform

from rapids_slink import linkage
from rapids_slink.points.output import on_device
from rapids_slink.runtime.device import to_host

COLUMNS = ["src", "dst", "weight"]
DEEP = 100_000
SHAPES = ["balanced", "caterpillar", "chain", "random", "star"]
#: Draws of `shaped_tree`, by the names of its parameters.
TREES = {"shape": st.sampled_from(SHAPES), "seed": st.integers(0, 2**32 - 1)}
ORDERS = ["rising", "falling", "valley", "hill", "shuffled", "bit-reversed"]

#: Ids of every kind for nodes that are numbered.
NAMES = {
    "strings": lambda i: pd.Series([f"node {j}" for j in i], dtype=object),
    "str": lambda i: pd.Series([f"node {j}" for j in i], dtype="string"),
    "categories": lambda i: pd.Series(pd.Categorical([f"node {j}" for j in i], [f"node {j}" for j in range(30)])),
    "own categories": lambda i: pd.Series(pd.Categorical([f"node {j}" for j in i])),
    "dates": lambda i: pd.Series(np.datetime64("2023-09-18", "s") + np.asarray(i)),
    "floats": lambda i: pd.Series(np.asarray(i) + 0.5),
    "negative": lambda i: pd.Series(-5 * np.asarray(i)),
    "large": lambda i: pd.Series(2**40 + np.asarray(i)),
}


def edges(src, dst, weight, ids="int64", weights="float64"):
    """Return an edge frame of pandas."""
    return pd.DataFrame({"src": np.array(src, ids), "dst": np.array(dst, ids), "weight": np.array(weight, weights)})


def random_graph(rng, n, m, weights=None):
    """Return `m` edges among `n` nodes, with self-loops and parallel edges; real weights unless `weights` are given."""
    weight = rng.normal(size=m) if weights is None else rng.choice(weights, m)
    return edges(rng.integers(0, n, m), rng.integers(0, n, m), weight)


def kruskal(frame, maximum=False):
    """Return the rows of the minimum spanning forest in merge order: by weight, then row.

    Python's numbers compare exactly.
    """
    sign = -1 if maximum else 1
    rows = zip(frame["weight"].tolist(), range(len(frame)), frame["src"].tolist(), frame["dst"].tolist(), strict=True)
    parent = {}

    def root(v):
        while parent.setdefault(v, v) != v:
            parent[v] = v = parent[parent[v]]
        return v

    taken = []
    for _, row, u, v in sorted((sign * weight, *rest) for weight, *rest in rows):
        if root(u) != root(v):
            parent[root(u)] = root(v)
            taken.append(row)
    return taken


def all_pairs_tree(distances):
    """Return the minimum spanning tree of a symmetric matrix in the total order; src < dst."""
    return edges(*tree_of(distances))


def points_tree(X):
    """Return the minimum spanning tree of all pairs of rows, in the total order."""
    return all_pairs_tree(squareform(pdist(X)))


def shaped_tree(rng, n, shape):
    """Return a tree of n nodes, its ids shuffled and its weights of few values."""
    i = np.arange(1, n)
    end = {
        "balanced": (i - 1) // 2,
        "caterpillar": np.where(i % 2, np.maximum(i - 2, 0), i - 1),
        "chain": i - 1,
        "random": (rng.random(n - 1) * i).astype(int),
        "star": 0 * i,
    }[shape]
    names = rng.permutation(n)
    return edges(names[end], names[i], rng.integers(0, max(2, n // 3), n - 1), ids="int32")


def rank_edges(rng, tree, order):
    """Return the tree's edges in a merge order that makes deep, flat or mixed dendrograms."""
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


def linkage_on(engine, tree, **parameters):
    """Return the linkage of a pandas tree, computed and kept on the device."""
    return linkage(on_device(tree, engine), device=engine.name, **parameters)


def matrix(frame):
    """Return a linkage frame as SciPy's Z."""
    return np.column_stack([to_host(frame[c].values) for c in ("left", "right", "height", "size")]).astype(float)


def assert_same_edges(found, expected):
    """Assert that edge frames of either device are the same, in the same order."""
    for name in COLUMNS:
        np.testing.assert_array_equal(to_host(found[name].values), expected[name].to_numpy())


def by_appearance(labels):
    """Return labels renumbered 0, 1, ... in the order in which they first appear; -1, which is noise, stays."""
    labels = np.asarray(labels)
    numbers = np.full(labels.size, -1)
    numbers[labels >= 0] = pd.factorize(labels[labels >= 0])[0]
    return numbers


def bits(result):
    """Return all that a call returned, on the host, as bytes."""
    if hasattr(result, "linkage_"):
        return bits(result.linkage_), bits(result.mst_), bits(result.labels_)
    if hasattr(result, "columns"):
        return tuple(bits(result[name]) for name in result.columns)
    values = to_host(result.values if hasattr(result, "values") else result)
    return values.tolist() if values.dtype == object else values.tobytes()

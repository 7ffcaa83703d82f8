"""Trees of boxes: what a k-d tree is, and that a box is no farther than its points."""

import math

import numpy as np
import pytest
from hard_cases import CASES
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from rapids_slink.neighbors import kdtree
from rapids_slink.neighbors.exact.cpu import components, pair_distances
from rapids_slink.neighbors.kdtree import build
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU
from rapids_slink.settings import metric_of


@pytest.mark.parametrize(
    "name", ["filaments", "cauchy_3d", "repeated_rows_2d", "all_rows_equal_1d", "one_row", "two_rows"]
)
def test_tree_is_a_partition_in_boxes(name):
    X = CASES[name]("float32")
    tree = build(X)
    assert sorted(tree.order) == list(range(len(X)))
    np.testing.assert_array_equal(tree.order[tree.position], np.arange(len(X)))
    points = tree.columns[:, : len(X)].T
    np.testing.assert_array_equal(points, X[tree.order].astype(np.float64))
    leaves = (tree.low.shape[0] + 1) // 2
    assert (tree.first[0], tree.last[0]) == (0, len(X))
    for v in range(tree.low.shape[0]):
        inside = points[tree.first[v] : tree.last[v]]
        if len(inside):
            np.testing.assert_array_equal(tree.low[v], inside.min(axis=0))
            np.testing.assert_array_equal(tree.high[v], inside.max(axis=0))
            assert tree.least[v] == tree.order[tree.first[v] : tree.last[v]].min()
        if v < leaves - 1:
            left, right = 2 * v + 1, 2 * v + 2
            assert (tree.first[left], tree.last[right]) == (tree.first[v], tree.last[v])
            assert tree.last[left] == tree.first[right]
            assert abs(tree.last[left] - tree.first[left] - (tree.last[right] - tree.first[right])) <= 1


def test_components_of_lists():
    """Sparse lists make chains, and others one component."""
    for seed, k, width in ((0, 1, 3), (1, 1, 300), (2, 2, 300), (3, 3, 2)):
        rng = np.random.default_rng(seed)
        rows = np.arange(300)[:, None]
        ids = np.clip(rows + rng.integers(-width, width + 1, (300, k)), 0, 299).astype(np.int32)
        graph = csr_matrix((np.ones(ids.size), (np.repeat(rows, k), ids.ravel())), shape=(300, 300))
        label = connected_components(graph, directed=False)[1]
        least = np.array([np.flatnonzero(label == one)[0] for one in label])
        np.testing.assert_array_equal(components(ids), least)


@njit
def box_to_box(formula, lowest, highest, low, high, v):
    return kdtree.box_to_box(formula, lowest, highest, low, high, v)


@njit
def to_boxes(formula, points, low, high, v, out):
    lowest, highest = np.empty(points.shape[0]), np.empty(points.shape[0])
    for f in range(lowest.size):
        lowest[f], highest[f] = points[f].min(), points[f].max()
    kdtree.to_boxes(formula, points, low, high, v, out, kdtree.may_wrap(formula, lowest, highest, low, high, v))


@njit
def to_points(formula, points, p, columns, a, out, low, high, v):
    point = points[:, p].copy()
    kdtree.to_points(formula, points, p, columns, a, out, kdtree.may_wrap(formula, point, point, low, high, v))


METRICS = [
    metric_of(name, p)
    for name, p in (("euclidean", 2.0), ("cityblock", 2.0), ("chebyshev", 2.0), ("minkowski", 3.0), ("minkowski", 1.7))
]
SPACES = [
    metric_of("euclidean", box=[4.0, math.inf, 1.1]),
    metric_of("cityblock", box=1.1),
    metric_of("chebyshev", box=4.0),
    metric_of("euclidean", scales={(0, 1): 0.7, 2: 3.0}),
    metric_of("euclidean", box=1.1, scales={0: 0.7, (1, 2): 3.0}),
]


@pytest.mark.full  # whose functions are compiled for it alone
@pytest.mark.parametrize("metric", [*METRICS, *SPACES], ids=lambda metric: f"{metric.name}-{metric.p}-{metric.space}")
def test_boxes_are_nearer_than_their_points(metric):
    metric = metric.of_columns(None, 3)
    formula, first, rest = metric.cpu_formula, np.zeros(20, np.int32), np.arange(1, 21, dtype=np.int32)
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e-12):
        both = 1 + scale * rng.normal(size=(3, 20_016)) * np.where(np.arange(20_016) < 16, 3, 1)
        both = metric_rows(metric, both.T.copy(), CPU).T.copy()
        x, inside = both[:, :16].copy(), both[:, 16:].copy()
        around = x.min(axis=1), x.max(axis=1)
        values, of_boxes = np.empty(20), np.empty(16)
        for at in range(0, 20_000, 20):
            part = inside[:, at : at + 20]
            box = part.min(axis=1)[None], part.max(axis=1)[None], 0
            to_boxes(formula, x, *box, of_boxes)
            assert box_to_box(formula, *around, *box) <= of_boxes.min()
            i = at // 20 % 16
            point = x[:, i].copy()
            assert box_to_box(formula, point, point, *box) == of_boxes[i]
            to_points(formula, x, i, inside, at, values, *box)
            assert of_boxes[i] <= values.min()
            of_rows = pair_distances(np.array([point, *part.T]), first, rest, metric)
            np.testing.assert_array_equal(values, of_rows)

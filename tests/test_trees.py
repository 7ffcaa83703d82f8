"""Trees of boxes: what a k-d tree is, and that a box is no farther than its points."""

import numpy as np
import pytest
from hard_cases import CASES

from rapids_slink.metrics import get_metric
from rapids_slink.neighbors.exact.cpu import pair_distances
from rapids_slink.neighbors.trees import tree
from rapids_slink.neighbors.trees.tree import build


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


@pytest.mark.parametrize(
    ("metric", "p"),
    [("euclidean", 2.0), ("cityblock", 2.0), ("chebyshev", 2.0), ("minkowski", 3.0), ("minkowski", 1.7)],
)
def test_boxes_are_nearer_than_their_points(metric, p):
    metric = get_metric(metric, p)
    formula, first, rest = metric.cpu_formula, np.zeros(20, np.int32), np.arange(1, 21, dtype=np.int32)
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e-12):
        inside = 1 + scale * rng.normal(size=(3, 20_000))
        x = 1 + 3 * scale * rng.normal(size=(3, 16))
        around = x.min(axis=1), x.max(axis=1)
        values, to_boxes = np.empty(20), np.empty(16)
        for at in range(0, 20_000, 20):
            part = inside[:, at : at + 20]
            box = part.min(axis=1)[None], part.max(axis=1)[None], 0
            tree.to_boxes(formula, x, *box, to_boxes)
            assert tree.box_to_box(formula, *around, *box) <= to_boxes.min()
            i = at // 20 % 16
            point = x[:, i].copy()
            assert tree.box_to_box(formula, point, point, *box) == to_boxes[i]
            tree.to_points(formula, x, i, inside, at, values)
            assert to_boxes[i] <= values.min()
            of_rows = pair_distances(np.array([point, *part.T]), first, rest, metric)
            np.testing.assert_array_equal(values, of_rows)

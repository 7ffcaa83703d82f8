"""The minimum spanning tree of points of one feature: a sort.

Equal points join at zero, each to the one of the least id. Each value joins the next value by the points of least ids
of the two. No other pair across that gap has an equally small weight, unless rounding makes a larger difference equal
to it. If a check finds that, `tree_of_line` returns None.
"""

from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.ordering import sort_in_place, stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem

#: Bytes per point at the peak: values, ids and weights in order, and the edges during their sort.
POINT_BYTES = {"cpu": 112, "cuda": 144}


def serves(problem: Problem) -> bool:
    """Points of one feature whose distance is one operation on a difference."""
    return not problem.by_reachability and problem.d == 1 and problem.metric.formula.is_one_operation


def prepare(problem: Problem, rows: Array, report: Report, _: Prepare) -> Prepared | None:
    """The tree of the points, or None if rounding makes the sorted order insufficient."""
    with report.stage("spanning_tree", problem.device):
        edges = tree_of_line(rows, problem.metric, problem.device)
    if edges is None:
        return None
    report.count("spanning_tree", rows_sorted=problem.n)
    return Prepared(lambda: (edges, 1), lambda: MemoryEstimate(POINT_BYTES[problem.device.name] * problem.n))


def tree_of_line(rows: Array, metric: Metric, device: Device) -> PreallocatedFrame | None:
    """n - 1 edges in the total order, their weights surrogate distances; None if a sort does not give the tree.

    `rows`, (n, 1), n at least 2, is the result of `neighbors.rows.metric_rows`.
    """
    xp, n = device.xp, len(rows)
    x = rows[:, 0].astype("float64")
    order = stable_order(x, xp).astype("int32")
    x = x[order]
    is_first = xp.concatenate([xp.ones(1, bool), x[1:] != x[:-1]])
    first = xp.flatnonzero(is_first)
    ids, values = order[first], x[first]
    weight = _weights(values, 1, metric)
    longer = _weights(values, 2, metric)
    if not all(map(all_true, (weight > 0, longer > weight[:-1], longer > weight[1:]))):
        return None
    repeated = xp.flatnonzero(~is_first)
    tree = PreallocatedFrame.empty(device, n - 1, EDGE_TYPES)
    for column, of_repeated, of_next in zip(
        tree.columns.values(),
        (ids[xp.searchsorted(first, repeated, side="right") - 1], order[repeated], 0.0),
        (ids[:-1], ids[1:], weight),
        strict=True,
    ):
        column[: repeated.size], column[repeated.size :] = of_repeated, of_next
    sort_in_place(tree.columns, xp)
    return tree


def _weights(values: Array, steps: int, metric: Metric) -> Any:
    """The surrogate distance between each of some ascending values and the one `steps` places further on."""
    difference = values[steps:] - values[:-steps]
    return difference * difference if metric.formula == "squared_euclidean" else difference

"""The minimum spanning tree of points of one feature: a sort.

Equal points join at zero, each to the one of the least id. Each value joins the next value by the points of least ids
of the two. No other pair across that gap has an equally small weight, unless rounding makes a larger difference equal
to it. If a check finds that, `tree_of_line` returns None.

*In a box that repeats* the line is a ring, and the last value joins the first. The tree is all of these edges but the
last in the total order, across a gap h. For take any other gap i. The pairs between the two arcs that i and h leave
cross one of both gaps either way round. Those but the edges themselves cross a further gap with it, so they weigh more
than one of the two edges, and of these that across i comes first. Half a spacing of the length is lost at each of two
differences, so here a longer way must be longer by more than that.
"""

import math
from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.ordering import sort_in_place, stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem

#: Bytes per point at the peak: values, ids and weights in order, and the edges during their sort.
POINT_BYTES = {"cpu": 128, "cuda": 160}
#: More than rounding takes of two ways round a ring, in lengths of the box.
SLACK = 2.0**-49


def serves(problem: Problem) -> bool:
    """Points of one feature whose distance is one operation on a difference."""
    is_served = problem.metric.formula.is_one_operation or problem.metric.space is not None
    return not problem.by_reachability and problem.d == 1 and is_served


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
    period = math.inf if metric.space is None else metric.space.periods[0]
    is_ring = values.size > 2 and period < math.inf
    step, two_steps = values[1:] - values[:-1], values[2:] - values[:-2]
    if is_ring:
        step = xp.concatenate([step, period - (values[-1:] - values[:1])])
        two_steps = xp.concatenate([two_steps, period - (values[-2:] - values[:2])]) - SLACK * period
    weight, of_step = _surrogates(xp.minimum(step, period - step), metric, xp), _surrogates(step, metric, xp)
    longer, following = _surrogates(xp.maximum(two_steps, 0), metric, xp), xp.roll(of_step, -1)
    if not all(map(all_true, (weight > 0, longer > of_step[: longer.size], longer > following[: longer.size]))):
        return None
    repeated = xp.flatnonzero(~is_first)
    tree = PreallocatedFrame.empty(device, repeated.size + weight.size, EDGE_TYPES)
    for column, of_repeated, of_next in zip(
        tree.columns.values(),
        (ids[xp.searchsorted(first, repeated, side="right") - 1], order[repeated], 0.0),
        (ids[: weight.size], xp.roll(ids, -1)[: weight.size], weight),
        strict=True,
    ):
        column[: repeated.size], column[repeated.size :] = of_repeated, of_next
    sort_in_place(tree.columns, xp)
    return tree.head(n - 1)


def _surrogates(difference: Array, metric: Metric, xp: Any) -> Any:
    """The surrogate distances of pairs, by their differences."""
    if metric.space is None:
        return difference * difference if metric.formula == "squared_euclidean" else difference
    scale = metric.space.scales[0] if metric.space.scales else None
    if metric.space.within != "squared_euclidean":
        return difference if scale is None else difference / scale
    square = difference * difference
    return square if scale is None else xp.sqrt(square) / scale

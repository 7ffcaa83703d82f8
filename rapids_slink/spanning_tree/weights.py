"""Rows that count as several equal ones: their core distances.

A row of weight w has w - 1 copies at distance zero. Its core distance is the least within which the weights of other
rows and of its copies add up to `min_samples`.
"""

from dataclasses import replace
from math import ceil

from rapids_slink.metrics import distances
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.plan import prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array
from rapids_slink.spanning_tree.problem import Problem


def weighted_problem(values: Array, weights: Array, problem: Problem, report: Report) -> tuple[Problem, Array]:
    """The problem with the core distances of weighted rows, and these as they are reported."""
    device, metric, m, n = problem.device, problem.metric, problem.settings.min_samples, problem.n
    if n == 1:
        return problem, device.xp.zeros(1)
    xp, k = device.xp, min(n - 1, ceil((m + 1) / min(1.0, float(weights.min()))))
    with report.stage("neighbors", device):
        search = prepare_search(metric_rows(metric, values, device), device, Report(), metric=metric)
        lists = neighbor_lists(search, n, k, device)
        rows, copies = xp.arange(n, dtype="int32"), weights - 1
        enough = xp.cumsum(weights[lists.ids], axis=1) + copies[:, None] >= m * (1 - 2.0**-40)  # sums are rounded
        at = xp.where(enough[:, -1], enough.argmax(axis=1), k - 1)
        surrogate, ids = lists.weights[rows, at], lists.ids[rows, at]
        core = xp.where(copies >= m, 0.0, distances(metric, surrogate, (rows, ids), (values, values), device))
    return replace(problem, core=xp.where(copies >= m, 0.0, surrogate)), core

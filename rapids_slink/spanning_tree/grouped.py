"""The minimum spanning tree of each group of rows: nothing is compared across groups.

    rows by group ──▶ small groups: a tree each, all at once; large ones: their usual way, one by one

Within a group rows keep their order. So the total order of its edges is the same by the group's own numbers as by those
of all rows, and each group's tree is that of the group alone, to the last bit.
"""

from dataclasses import replace

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors import estimate_search
from rapids_slink.neighbors.choose import few_points
from rapids_slink.neighbors.rows import require_common_features, undefined_for_zeros, zero_rows
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.keys import Groups
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate
from rapids_slink.spanning_tree import kernels
from rapids_slink.spanning_tree.pairs import stores_distances
from rapids_slink.spanning_tree.problem import Problem, Tree
from rapids_slink.spanning_tree.ways import estimate_tree, tree_of_rows

#: The most rows of a small group, whose tree one block of a GPU makes, or a thread of a CPU that stores the distances,
#: which stay in its cache.
MAX_ROWS, MAX_STORED = 2048, 512


def is_stored(metric: Metric, min_samples: int, compact: bool) -> bool:
    """Return whether a CPU stores the distances of a group."""
    return metric.missing or stores_distances(1, metric, min_samples, CPU, compact)


def forest_of_groups(
    problem: Problem, rows: Array, groups: Groups, values: Array, report: Report, numbers: Array = None
) -> Tree:
    """Return the trees of all groups in the total order, and the number of their components in k-NN graphs.

    The weights are surrogate distances. `problem` and `values` are those of all points, and `rows` is what the metric's
    formula reads of the values. Raises ValueError if a pair of a group has no distance, and names the rows by their
    `numbers` if these are given.
    """
    device, metric, sizes, starts, order = problem.device, problem.metric, groups.sizes, groups.starts, groups.order
    is_large = sizes > most_rows(problem)
    large, small = np.flatnonzero(is_large), np.flatnonzero(~is_large & (sizes > 1))
    check_zeros(values, groups, metric, device, numbers)
    large_trees, components = [], len(groups) - large.size
    for own in (order[starts[g] : starts[g + 1]] for g in large.tolist()):
        if metric.formula.is_undefined_without_common:
            require_common_features(values[own], "X", device, own)
        tree_report = Report()
        settings = replace(problem.settings, clipped=True).for_rows(own.size)
        tree, count = tree_of_rows(replace(problem, settings=settings, n=own.size), rows[own], tree_report)
        tree_report.pop("way")
        src, dst, weight = tree.columns.values()
        large_trees.append((own[src], own[dst], weight))
        components += count
        report.add(tree_report)
    with report.stage("spanning_tree", device):
        begin = int(sizes[small].sum()) - small.size
        forest = PreallocatedFrame.empty(device, begin + sum(part[2].size for part in large_trees), EDGE_TYPES)
        edges = list(forest.columns.values())
        if small.size:
            small_edges = [column[:begin] for column in edges]
            first, size = starts[small], sizes[small]
            samples = min(problem.settings.min_samples, int(size.max()))
            undefined = kernels(device).trees_of_groups(rows, metric, samples, order, first, size, small_edges)
            if undefined >= 0:
                own = order[first[undefined] :][: size[undefined]]
                require_common_features(values[own], "X", device, own)
        for part in large_trees:
            for column, its_own in zip(edges, part, strict=True):
                column[begin : begin + its_own.size] = its_own
            begin += part[2].size
        sort_in_place(forest.columns, device.xp)
    report.count("spanning_tree", groups=len(groups), large_groups=large.size)
    return forest, components


def most_rows(problem: Problem) -> int:
    """Return the most rows of a small group: more rows take less time in their usual way."""
    if forced().tree not in (None, "pairs"):
        return 1
    if problem.device.is_gpu:
        return MAX_ROWS
    is_matrix = is_stored(problem.metric, problem.settings.min_samples, problem.is_compact)
    return MAX_STORED if is_matrix else few_points(problem.d, problem.metric)


def estimate_groups(problem: Problem, sizes: np.ndarray) -> MemoryEstimate:
    """Return the bytes of the metric's rows, the trees of groups of these sizes, their core distances, and the rest."""
    n, d, metric, device, largest = problem.n, problem.n_features, problem.metric, problem.device, int(sizes.max())
    later, itemsize, samples = TREE_BYTES[device.name], problem.itemsize, problem.settings.min_samples
    if problem.by_reachability and metric.is_of_ends:  # then core distances are searched for among all rows
        needed = estimate_search(n, d, itemsize, samples, device, metric=metric, later=later)
    else:
        needed = MemoryEstimate((metric.rows.row_bytes(d) + later) * n)
    if device.is_gpu:  # the rows of each group by columns
        needed += MemoryEstimate((metric.rows.row_bytes(d) or itemsize * d) * n)
    if largest > most_rows(problem):
        settings = replace(problem.settings, clipped=True).for_rows(largest)
        needed += estimate_tree(replace(problem, settings=settings, n=largest))
    return needed


def check_zeros(values: Array, groups: Groups, metric: Metric, device: Device, numbers: Array = None) -> None:
    """Raise ValueError if two rows of a group are zero and have no distance by this metric."""
    if not metric.formula.is_undefined_for_zeros:
        return
    zeros = to_host(zero_rows(values, device))
    number = to_host(groups.number)[zeros]
    order = np.argsort(number, kind="stable")
    same = np.flatnonzero(number[order][1:] == number[order][:-1])
    if same.size:
        pair = zeros[order[same[0] : same[0] + 2]]
        first, second = pair.tolist() if numbers is None else to_host(numbers)[pair].tolist()
        raise undefined_for_zeros(f"rows {first} and {second} of X", metric)

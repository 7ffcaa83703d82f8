"""Repeated rows: they join first, in the total order, and only distinct rows are searched.

The equal row with the smallest id represents the others. Its edges to them weigh what the metric says of the row with
itself, which is zero or, for cosine, what rounding leaves of it. Among edges of equal rows these come first by their
ids. Between two distinct rows the first edge in the total order joins their representatives. So these edges and the
tree of the distinct rows form the tree of all rows if no edge of that tree is as light as one of them. Otherwise, for
instance if products of tiny numbers underflow, all rows are searched.
"""

from dataclasses import dataclass, replace

import numpy as np

from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.ordering import stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes, sequential
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem, Tree

#: The sample has SAMPLE_FACTOR √n rows. If every row occurs c times, about 8c pairs of the sample are equal.
SAMPLE_FACTOR = 4
#: All rows are compared if the sample has at least this many equal pairs, and joined if this share of them is repeated.
MIN_EQUAL, MIN_REPEATED = 16, 1 / 64
BLOCK = 2**18  # values that are compared at a time
ID_BYTES = 16  # of a row, kept: which rows are distinct and which repeat, and of what row
ROW_BYTES = 64  # of a row at the peak: hashes, their order, and the numbers of equal rows
JOIN_BYTES = 50  # of a row while its edges are sorted and joined to those of distinct rows


@dataclass(frozen=True)
class Repeats:
    """Which rows are equal."""

    first: Array  # (m,) array, the smallest id of each distinct row, ascending
    repeated: Array  # (n - m,) array, the other ids, ascending
    of_repeated: Array  # (n - m,) array, for each of them, the smallest id of its row

    def join(self, tree: PreallocatedFrame, of_equal: Array, device: Device) -> PreallocatedFrame | None:
        """The tree of all rows from that of the distinct ones, None if that has an edge as light as of equal rows.

        `of_equal`, (n - m,) float64, are the weights between each repeated row and the first one.
        """
        src, dst, weight = tree.columns.values()
        xp, m = device.xp, self.repeated.size
        if weight.size and not float(weight[0]) > float(of_equal.max()):
            return None
        whole = PreallocatedFrame.empty(device, m + weight.size, EDGE_TYPES)
        order = stable_order(self.of_repeated, xp)
        order = order[stable_order(of_equal[order], xp)]
        parts = (self.of_repeated, self.first[src]), (self.repeated, self.first[dst]), (of_equal, weight)
        for column, (equal, of_tree) in zip(whole.columns.values(), parts, strict=True):
            column[:m] = equal[order]
            column[m:] = of_tree
        return whole


def serves(problem: Problem) -> bool:
    """Points whose equal rows are nearest to each other, without core distances, which would separate them.

    Rows with missing values are often at zero from rows that are not equal.
    """
    metric = problem.metric
    return metric.formula.has_equal_rows_first and not (problem.by_reachability or metric.missing)


def prepare(problem: Problem, rows: Array, report: Report, ways: Prepare) -> Prepared | None:
    """The way by distinct rows, or None unless many rows are equal."""
    device = problem.device
    with report.stage("neighbors", device):
        repeats = find_repeats(rows, device)
    if repeats is None:
        return None
    report.count("spanning_tree", repeated_rows=repeats.repeated.size)
    of_distinct = next(ways(replace(problem, n=repeats.first.size), rows[repeats.first], report))

    def make() -> Tree | None:
        tree = of_distinct.make()
        if tree is None:
            return None
        with report.stage("spanning_tree", device):
            first, other = repeats.of_repeated.astype("int32"), repeats.repeated.astype("int32")
            of_equal = kernels(device).pair_distances(rows, first, other, problem.metric)
            edges = repeats.join(tree[0], of_equal, device)
        return None if edges is None else (edges, tree[1])

    n, m = problem.n, repeats.first.size
    kept = m * problem.d * rows.dtype.itemsize + n * ID_BYTES
    looking = MemoryEstimate(n * (problem.metric.rows.row_bytes(problem.n_features) + ROW_BYTES), kept)
    return Prepared(make, lambda: sequential(looking, of_distinct.estimate(), MemoryEstimate(n * JOIN_BYTES)))


def find_repeats(values: Array, device: Device) -> Repeats | None:
    """Which rows, as the metric's formula reads them, are equal; None if hardly any are."""
    xp, (n, d), hash_rows = device.xp, values.shape, kernels(device).hash_rows
    if values.nbytes > free_bytes():
        return None
    size = int(SAMPLE_FACTOR * n**0.5)
    gaps = np.random.default_rng(0).standard_exponential(size) * (n / size)
    rows = np.cumsum(gaps.astype("int64") + 1) - 1  # ascending, each row with nearly the same probability
    rows = rows[rows < n]
    sample = np.sort(to_host(hash_rows(values, xp.asarray(rows))))
    if (sample[1:] == sample[:-1]).sum() < MIN_EQUAL:
        return None
    _, first, number = xp.unique(hash_rows(values), return_index=True, return_inverse=True)
    if first.size > n * (1 - MIN_REPEATED):
        return None
    of_row = first[number.reshape(-1)]  # the smallest id with the same hash
    if not all(all_true(values[rows] == values[of_row[rows]]) for rows in row_blocks(n, d, BLOCK)):
        return None
    is_repeated = of_row != xp.arange(n)
    repeated = xp.flatnonzero(is_repeated)
    return Repeats(xp.flatnonzero(~is_repeated), repeated, of_row[repeated])

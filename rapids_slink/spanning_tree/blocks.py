"""The way by blocks: the tree up to a distance of many rows that are near few others.

    rows ──▶ blocks around pivots ──▶ the edges of each block's tree by lists ──▶ the tree of these edges

Each two rows within the distance meet in a block (`neighbors/pivots.py`). A pair that is in no tree of a block in which
it meets is the heaviest of a cycle of pairs within the distance, so it is not in the tree of all rows either. A block's
rows are in the order of their numbers, and so its edges are in the total order.

The rows of a sample tell how many pairs meet in blocks. All pairs are searched if most meet, as those of noise.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.neighbors.choose import MAX_BLOCKS, PIVOT_PAIRS, block_rows
from rapids_slink.neighbors.pivots import candidates, deal_out, pivots_of, radius_of
from rapids_slink.neighbors.task import golden_stride
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate
from rapids_slink.spanning_tree import lists
from rapids_slink.spanning_tree.graphs import EdgeList, forest_of_edges
from rapids_slink.spanning_tree.problem import Look, Prepared, Problem, Tree

FEWEST = 3  # blocks: in two of them at least half of all pairs meet
#: Rows by which the share of the pairs that meet is estimated.
SAMPLED_ROWS = 2**12


def may_serve(problem: Problem) -> bool:
    """Return whether blocks may serve a problem up to a distance: the values decide."""
    if problem.by_reachability or problem.part_lists is not None:
        return False
    return problem.metric.filter == "product" and not problem.is_compact


def prepare(look: Look) -> Prepared | None:
    """Return the way by blocks; None unless few pairs meet in them."""
    problem, rows, device, is_wanted = look.problem, look.rows, look.problem.device, forced().tree == "blocks"
    n, xp, is_cosine = problem.n, device.xp, problem.metric.formula.is_of_unit_rows
    count = max(FEWEST * is_wanted, n // block_rows(device))
    if count < FEWEST or look.max_weight == inf or not (look.search.is_over_all_pairs or is_wanted):
        return None
    radius = radius_of(problem.metric, problem.max_weight, problem.n_features, device)
    if radius is None:
        return None
    with look.report.stage("neighbors", device):
        values = rows[:, : problem.n_features]
        pivots = pivots_of(values[device.asarray(candidates(n, count))], radius, is_cosine, count, device)
        count = int(pivots[-1, 0]) + 1

        def meeting(values: Array) -> Iterator[tuple[slice, Array]]:
            """Yield ranges of rows, and in which blocks each of these meets others, (blocks, m) bool."""
            for some, block, may_be_near in deal_out(values, pivots, radius, is_cosine, device):
                number = xp.arange(count)[:, None]
                yield some, (number == block) | (may_be_near & (number < block))

        sample = device.asarray(np.sort(np.arange(min(n, SAMPLED_ROWS)) * golden_stride(n) % n))
        shares = sum(meets.sum(axis=1) for _, meets in meeting(values[sample])) / sample.size
        share = float((shares * shares).sum())
    if not is_wanted and share + 2 * PIVOT_PAIRS * len(pivots) / n > MAX_BLOCKS:
        return None
    look.report.count("neighbors", blocks=count, pairs_of_rows=int(share * n * n / 2))

    def make() -> Tree:
        del look.search  # those of the blocks take its memory
        with look.report.stage("neighbors", device):
            meets = xp.empty((count, n), bool)
            for some, meets_some in meeting(values):
                meets[:, some] = meets_some
        trees = [_edges_of(look, xp.flatnonzero(block).astype("int32")) for block in meets]
        with look.report.stage("spanning_tree", device):
            src, dst, weight = (xp.concatenate([tree[column] for tree in trees]) for column in range(3))
            return forest_of_edges(EdgeList(src, dst, weight, n), 1, device)[0][0], 1

    def estimate() -> MemoryEstimate:
        largest = min(n, int(1.1 * n * float(shares.max())) + 1)
        kept = n * (count + TREE_BYTES[device.name]) + largest * rows.shape[1] * rows.dtype.itemsize
        return MemoryEstimate(kept) + lists.estimate(replace(problem, n=largest))

    return Prepared(make, estimate)


def _edges_of(look: Look, numbers: Array) -> tuple[Array, Array, Array]:
    """Return src, dst and weight of the edges up to the largest weight of the tree of some rows, by their numbers."""
    problem, xp = look.problem, look.problem.device.xp
    if numbers.size < 2:
        return numbers[:0], numbers[:0], xp.empty(0)
    part = Look(replace(problem, n=numbers.size), look.rows[numbers], look.report)
    near = lists.lists_of(part)
    search = part.search.for_connecting(near.ids)()
    tree = lists.tree_of_lists(near, search, problem.device, look.report, part.max_weight)
    src, dst, weight = tree.columns.values()
    kept = weight <= problem.max_weight
    return numbers[src[kept]], numbers[dst[kept]], weight[kept]

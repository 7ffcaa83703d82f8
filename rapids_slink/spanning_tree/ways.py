"""The ways to the tree of points in their order. The first way that serves the points makes the tree.

A way without an estimate looks at the rows first and may return None. It needs no more memory than the ways after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rapids_slink.report import Report
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.spanning_tree import boxes, line, lists, pairs, repeats
from rapids_slink.spanning_tree.problem import Grow, Problem, Tree

#: Bytes of a tree's edge.
EDGE_BYTES = 20


@dataclass(frozen=True)
class Way:
    """A way: its name for reports, which points it serves, the tree or None, and its memory."""

    name: str
    serves: Callable[[Problem], bool]
    tree: Callable[[Problem, Array, Report, Grow], Tree | None]
    estimate: Callable[[Problem], MemoryEstimate] | None = None


WAYS = (
    Way("line", line.serves, line.tree),  # one feature: n log n, a sort
    Way("pairs", pairs.serves, pairs.tree, pairs.estimate),  # few points, or given distances: n²
    Way("repeats", repeats.serves, repeats.tree),  # repeated rows: n, and the tree of the distinct rows
    Way("boxes", boxes.serves, boxes.tree, boxes.estimate),  # few features on a GPU: n log n
    Way("lists", lists.serves, lists.tree, lists.estimate),  # all others: n² tests, or n log n if a tree searches
)


def grow_tree(problem: Problem, rows: Array, report: Report) -> Tree:
    """The minimum spanning tree of the problem's points; `rows` is the result of `neighbors.rows.metric_rows`."""
    if problem.n == 1:
        return PreallocatedFrame.empty(problem.device, 0, EDGE_TYPES), 1
    for way in WAYS:
        if way.serves(problem):
            tree = way.tree(problem, rows, report, grow_tree)
            if tree is not None:
                report.setdefault("way", way.name)
                return tree
    raise AssertionError("lists serve all points")


def way_of(problem: Problem) -> str:
    """The name of the first way that serves the points whatever their values are."""
    return next(way.name for way in WAYS if way.estimate is not None and way.serves(problem))


def estimate_tree(problem: Problem) -> MemoryEstimate:
    """Bytes of the metric's rows and the tree of the points; the tree is retained."""
    tree = next(way.estimate(problem) for way in WAYS if way.estimate is not None and way.serves(problem))
    return replace(tree, retained=EDGE_BYTES * problem.n)

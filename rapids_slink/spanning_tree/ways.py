"""The ways to the tree of points in their order. The first way that serves the points makes the tree.

A way without an estimate serves only some values of the points. It needs no more memory than the ways after it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rapids_slink.report import Report
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.spanning_tree import boxes, line, lists, pairs, repeats
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem, Tree

#: Bytes of a tree's edge.
EDGE_BYTES = 20


@dataclass(frozen=True)
class Way:
    """A way: its name for reports, which points it may serve, a look at them, and its memory whatever their values."""

    name: str
    serves: Callable[[Problem], bool]
    prepare: Callable[[Problem, Array, Report, Prepare], Prepared | None]
    estimate: Callable[[Problem], MemoryEstimate] | None = None


WAYS = (
    Way("line", line.serves, line.prepare),  # one feature: n log n, a sort
    Way("pairs", pairs.serves, pairs.prepare, pairs.estimate),  # few points, or given distances: n²
    Way("repeats", repeats.serves, repeats.prepare),  # repeated rows: n, and the tree of the distinct rows
    Way("boxes", boxes.serves, boxes.prepare, boxes.estimate),  # few features on a GPU: n log n
    Way("lists", lists.serves, lists.prepare, lists.estimate),  # all others, or their boxes: n² tests, or n log n
)


def grow_tree(problem: Problem, rows: Array, report: Report) -> Tree:
    """The minimum spanning tree of the problem's points; `rows` is the result of `neighbors.rows.metric_rows`."""
    for prepared in prepared_ways(problem, rows, report):
        tree = prepared.make()
        if tree is not None:
            return tree
        report.pop("way")
    raise AssertionError("lists serve all points")


def prepared_ways(problem: Problem, rows: Array, report: Report) -> Iterator[Prepared]:
    """The ways that serve the points, in their order. The report names the last one that was asked for."""
    if problem.n == 1:
        yield Prepared(lambda: (PreallocatedFrame.empty(problem.device, 0, EDGE_TYPES), 1), lambda: MemoryEstimate(0))
        return
    for way in WAYS:
        if way.serves(problem):
            prepared = way.prepare(problem, rows, report, prepared_ways)
            if prepared is not None:
                report.setdefault("way", way.name)
                yield prepared


def way_of(problem: Problem) -> str:
    """The name of the first way that serves the points whatever their values are."""
    return next(way.name for way in WAYS if way.estimate is not None and way.serves(problem))


def estimate_tree(problem: Problem) -> MemoryEstimate:
    """Bytes of the metric's rows and the tree of the points; the tree is retained."""
    tree = next(way.estimate(problem) for way in WAYS if way.estimate is not None and way.serves(problem))
    return retaining_tree(tree, problem.n)


def retaining_tree(estimate: MemoryEstimate, n: int) -> MemoryEstimate:
    """The bytes of a way to a tree of n points, of which the tree is retained."""
    return replace(estimate, retained=EDGE_BYTES * n)

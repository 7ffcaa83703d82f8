"""``python -m rapids_slink.spanning_tree.ahead`` compiles the CPU's kernels of the stages after the neighbour lists.

Numba compiles one function at a time in a process. So on a new machine a process of its own compiles these while the
first fit compiles its search. It runs the stages on twelve points, whose lists leave several components.
"""

import numpy as np

from rapids_slink.dendrogram import build_linkage, cut_labels
from rapids_slink.dendrogram.cutting import CutParameters
from rapids_slink.neighbors.task import NeighborLists, SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU
from rapids_slink.spanning_tree.connect import spanning_tree
from rapids_slink.spanning_tree.kernels import kernels

#: Points on a line, in pairs: each point lists the other of its pair.
LINE = np.repeat(100.0 * np.arange(6) ** 2, 2) + np.tile([0.0, 1.0], 6)


class AllPairs:
    """A search of `LINE` without a kernel."""

    def find(self, task: SearchTask) -> SearchResult:
        """The nearest point outside each row's group."""
        squares = (LINE[task.rows, None] - LINE) ** 2
        squares[task.row_group[task.rows, None] == task.point_group] = np.inf
        ids = squares.argmin(axis=1).astype(np.int32)[:, None]
        weights = np.take_along_axis(squares, ids, axis=1)
        return SearchResult(ids, weights, weights[:, 0].copy())


def compile_kernels() -> int:
    """Run the stages; returns the number of clusters."""
    n = LINE.size
    lists = NeighborLists((np.arange(n, dtype=np.int32) ^ 1)[:, None], np.ones((n, 1)))
    kernels(CPU).connected_components(lists.ids)
    merges = build_linkage(spanning_tree(lists, AllPairs(), CPU, Report()), n)
    return int(cut_labels(merges, n, CutParameters(2)).columns["label"].max()) + 1


if __name__ == "__main__":
    compile_kernels()

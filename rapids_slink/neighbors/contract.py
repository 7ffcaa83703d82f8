"""What every neighbour search is asked and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

#: The columns of an edge frame.
EDGE_TYPES = {"src": "int32", "dst": "int32", "weight": "float64"}


def shown(parts: Iterable[Any], total: int, what: str, progress: bool) -> Iterable[Any]:
    """`parts`, behind a progress bar if one is wanted."""
    if not progress:
        return parts
    from tqdm.auto import tqdm

    return tqdm(parts, total=total, desc=what, leave=False)


def stride(n: int) -> int:
    """A number near n/φ that shares no factor with n: its multiples modulo n are scattered, any leading part evenly."""
    found = max(1, round(n * 0.6180339887498949))
    while gcd(found, n) != 1:
        found += 1
    return found


def growing(first: int, last: int, growth: int) -> list[slice]:
    """0 to `last` in slices, of which the first ends at `first` and each further one `growth` times as far."""
    ends, end = [0], first
    while end < last:
        ends.append(end)
        end *= growth
    return [slice(a, b) for a, b in pairwise([*ends, last]) if a < b]


@dataclass(frozen=True)
class Task:
    """For each row, find the `k` least columns, in the total order, outside the row's group.

    Attributes
    ----------
    rows : (m,) int32 array
        Which of the search's query points.
    k : int
    row_group, column_group : int32 arrays
        A group for each query point and each column. Pairs within one group are not looked at. `row_group` may be
        `rows` itself if these are all points in order, each a group of its own.
    upper : (m,) float64 array, optional
        No kernel value above this is wanted; infinite where there is no bound. By default there is none.
    shared : bool
        Whether a value found by one row bounds all rows of its group (`k` is 1): only each group's least is wanted.
        The groups' numbers are below that of the query points.
    core : (n,) float64 array, optional
        If given, a pair weighs the largest of its kernel value and the cores of its two points: "kernel value" here
        and in the answer then means that. The queries have to be the columns themselves.
    meanwhile : callable, optional
        What the host may do while a GPU works, before it waits for the answer. A search may call it several times, or
        not at all, and passes over a MemoryError.
    """

    rows: Any
    k: int
    row_group: Any
    column_group: Any
    upper: Any = None
    shared: bool = False
    core: Any = None
    meanwhile: Callable[[], Any] | None = None

    @property
    def whole(self) -> bool:
        """Whether this is the k-NN graph: every point a row, in order, and a group of its own."""
        return self.row_group is self.rows and self.column_group is self.rows

    def groups(self, rows: Any) -> Any:
        """The groups of some of the rows."""
        return rows if self.row_group is self.rows else self.row_group[rows]

    def bounds(self, xp: Any) -> Any:
        """The rows' bounds, for the search to lower."""
        return xp.full(self.rows.size, xp.inf) if self.upper is None else self.upper.copy()

    @property
    def name(self) -> str:
        """What a progress bar calls it."""
        return "bridges" if self.shared else "neighbours"


@dataclass(frozen=True)
class Found:
    """The answer to a task.

    Attributes
    ----------
    ids : (m, k) int32 array
        Columns in the total order; -1 where there are fewer within the bound.
    weights : (m, k) float64 array
        Their exact kernel values, infinite where the id is -1.
    upper : (m,) float64 array
        The bound that was reached. A column outside the group that is not listed comes after the last one listed, if
        the list is full, and is above this bound if it is not.
    """

    ids: Any
    weights: Any
    upper: Any


def drop_late(ids: Any, weights: Any, upper: Any, xp: Any) -> None:
    """Empty the entries above the bound that a shared task reached.

    What a row listed before another row of its group lowered the bound need not be its nearest.
    """
    late = weights > upper[:, None]
    xp.copyto(ids, -1, where=late)
    xp.copyto(weights, float("inf"), where=late)


@dataclass(frozen=True)
class NeighborLists:
    """The k-NN graph as lists.

    Attributes
    ----------
    ids : (n, k) int32 array
        Each row's nearest others in the total order; the row itself is not among them.
    weights : (n, k) float64 array
        Their weights, ascending along each row: kernel values or, if there are cores, mutual reachability.
    core : (n,) float64 array, optional
        Each row's core; see `mutual_reachability`.
    bound : ((n,) int32 array, (n,) float64 array), optional
        An id and a weight for each row: the edge to an unlisted point comes after that of this weight to this id.
        By default the last listed.
    """

    ids: Any
    weights: Any
    core: Any = None
    bound: tuple[Any, Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether every row lists all others."""
        return bool(self.ids.shape[1] >= self.ids.shape[0] - 1)

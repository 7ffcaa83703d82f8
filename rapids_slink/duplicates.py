"""Near duplicates: which rows go, and which row each of them goes to.

    rows ──▶ those near a row of another table ──▶ in the order of their rank ──▶ a rule ──▶ which row each goes to

The labels of `fit(X, max_distance=...)` give the components. The other rules are about pairs of a row and a row that
ranks before it, see `neighbors.queries`. Near rows are in one component, so these rules take only the rows that are not
alone in theirs, in the order of their rank.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rapids_slink.metrics import PRECOMPUTED, MetricName
from rapids_slink.neighbors.within import PairTask
from rapids_slink.points.check import column_values
from rapids_slink.points.keys import GroupBy, check_keys, read_groups, without_columns
from rapids_slink.points.output import (
    OutputKind,
    Rows,
    as_frame,
    as_known,
    column_names,
    is_collection,
    library_of,
    number_of_rows,
    on_host,
    take_rows,
)
from rapids_slink.report import Report, counted, with_hints
from rapids_slink.runtime.device import Device, is_on_gpu, resolve, to_host
from rapids_slink.runtime.memory import run_scope
from rapids_slink.settings import metric_of
from rapids_slink.single_linkage import PARAMETERS, SingleLinkage, engine_of
from rapids_slink.stages import limit_of, require_one, task_of

#: The rules that choose the rows that go.
RULES = ("components", "ranked", "leaders")
#: The names that parameters have elsewhere, and their names here.
MEANINGS = {
    "n_clusters": "max_distance", "distance_threshold": "max_distance", "threshold": "max_distance",
    "eps": "max_distance", "similarity": "min_similarity", "order": "keep", "score": "keep", "method": "by",
}  # fmt: skip
#: The value of ``duplicate_of`` for a row that is near a row of another table.
ELSEWHERE = -1


@dataclass(frozen=True)
class Duplicates:
    """The rows that are near duplicates, and the rows that they duplicate.

    Attributes
    ----------
    duplicate_of : Series or array of shape (n,), int32
        See `deduplicate`.
    distance : Series or array of shape (n,), float64
        The distance from each row to the row that it goes to; 0 for a row that stays.
    against : Series or array of shape (n,), int32, or None
        The nearest row of the other table, -1 if none is within the distance; None without such a table.
    report_ : Report
        ``report_["rows"]`` has the numbers of rows that are ``kept`` and ``removed``, and the ``largest_group``: the
        most rows that go to one row, itself among them. The report also has the seconds of each stage.
    """

    duplicate_of: Rows
    distance: Rows
    against: Rows | None
    report_: Report


@with_hints(MEANINGS)
def deduplicate(
    X: Any,
    *,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    keep: Any = "first",
    by: str | None = None,
    against: Any = None,
    groups: Any = None,
    dropna: bool = True,
    details: bool = False,
    metric: MetricName | Literal["precomputed"] = "euclidean",
    p: float = 2.0,
    missing: str | None = None,
    missing_value: float | str | Collection[float | str] | None = None,
    box: float | Collection[float] | None = None,
    scales: Mapping[Any, float] | None = None,
    n_neighbors: int | None = None,
    min_samples: int | None = None,
    device: str = "auto",
    progress: bool | str = False,
    memory_limit: int | str | None = None,
) -> Rows | Duplicates:
    """Tell which row each row is a near duplicate of.

    Two rows are near if their distance is at most `max_distance`. The near pairs are never listed.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        See `SingleLinkage.fit`. A Dask collection is for ``by="components"`` with ``keep="first"`` alone.
    max_distance : float
        The largest distance of near rows.
    min_similarity : float
        The least similarity of near rows, in place of `max_distance`. See `SingleLinkage`.
    keep : {"first", "last"}, column name, or array of shape (n,)
        Which rows rank first: the earlier ones, the later ones, or those with the larger number in a column of `X` or
        in an array. Of equal numbers the earlier row ranks first. The column is no feature.
    by : {"components", "ranked", "leaders"}
        The rule by which rows go. "components": chains of near rows connect rows to a component, and only its first
        rank stays. "ranked": a row goes if any row that ranks before it is near. "leaders": from the first rank to the
        last, a row goes if a row that stayed is near. By default "components", or no rule if `against` is given.
    against : dataframe or array, (m, d)
        Another table. First the rows of `X` that are near one of its rows go. If `by` is given, the others are then
        compared among themselves.
    groups : column name, list of names, Series, array or DataFrame, optional
        Only rows of one group are duplicates: a column or columns of `X`, or a key for each row. Not with `against`.
    dropna : bool
        Whether missing keys are an error. False makes them a group of their own.
    details : bool
        Return `Duplicates`, which has the distances too.
    metric, p, missing, missing_value, box, scales : optional
        See `SingleLinkage`. "precomputed" is for ``by="components"``.
    n_neighbors, min_samples : optional
        See `SingleLinkage`; for ``by="components"``.
    device, progress, memory_limit : optional
        See `SingleLinkage`.

    Returns
    -------
    Series or array of shape (n,), int32, or Duplicates
        For each row the number of the row that it duplicates: its own number if it stays, -1 if it is near a row of
        `against`. By components that is the row of its component that stays. Otherwise it is the nearest of the rows
        because of which it goes, and of equally near ones the first rank. A Series ``duplicate_of`` with the index of
        `X` if `X` is a frame.

    Raises
    ------
    ValueError, TypeError, DeviceMemoryError
        See `SingleLinkage.fit`.

    Notes
    -----
    "ranked" removes what NeMo Curator's semantic deduplication removes within one of its cells. "leaders" is the sphere
    exclusion of chemistry, RDKit's ``LeaderPicker``: every row that goes is near a row that stays, and no two rows that
    stay are near. "ranked" keeps fewer rows than "leaders", because rows that go also remove others. "components" keeps
    the fewest.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> X = np.array([[5.0], [0.0], [5.1], [7.0], [5.2]])
    >>> first = rapids_slink.deduplicate(X, max_distance=0.15, device="cpu")
    >>> first.tolist()
    [0, 1, 0, 3, 0]
    >>> X[first == np.arange(5)].ravel().tolist()
    [5.0, 0.0, 7.0]
    >>> rapids_slink.deduplicate(X, max_distance=0.15, by="leaders", device="cpu").tolist()
    [0, 1, 0, 3, 4]
    """
    parameters = locals()
    require_one(max_distance, min_similarity)
    by = rule_of(by, against, groups)
    model = SingleLinkage(**{name: parameters[name] for name in PARAMETERS if name in parameters})
    if by == "components" and isinstance(keep, str) and keep == "first" and against is None and not details:
        duplicate_of = model.fit(X, groups=groups, dropna=dropna)._first_rows()
        return duplicate_of.rename("duplicate_of") if hasattr(duplicate_of, "rename") else duplicate_of
    if is_collection(X) or is_collection(against):
        raise TypeError("X is a Dask collection, of which only by='components' with keep='first' is made: compute() it")
    if by != "components" and not (n_neighbors is None and min_samples is None):
        raise TypeError("n_neighbors and min_samples are for by='components'")
    if metric == PRECOMPUTED.name:
        raise ValueError("metric='precomputed' takes by='components' with keep='first' alone, without details")
    X, keep, against = map(as_known, (X, keep, against))
    chosen = metric_of(metric, p, missing, box, scales)
    task = task_of(
        [limit_of(chosen, max_distance, min_similarity)], chosen, missing, missing_value, memory_limit, False, progress
    )
    if not library_of(keep) and np.ndim(keep) == 0 and keep in (column_names(against) or ()):
        against = without_columns(against, [keep])
    return _Run(X, keep, resolve(device, X, against), task, model).result(by, against, groups, dropna, details)


def rule_of(by: str | None, against: Any, groups: Any) -> str | None:
    """Return the rule by which rows go, None if they only go because of another table; raise unless all go together."""
    if by is not None and by not in RULES:
        raise ValueError(f"by must be one of {', '.join(map(repr, RULES))}, got {by!r}")
    if against is not None and groups is not None:
        raise TypeError("groups are of one table: pass groups or against")
    return "components" if by is None and against is None else by


class _Run:
    """What a call needs of the rows, the order of their ranks, and the rows that go so far."""

    def __init__(self, X: Any, keep: Any, device: Device, task: PairTask, model: SingleLinkage) -> None:
        self.device, self.task, self.model = device, task, model
        unwrapped, self.output = OutputKind.of(X, device)
        self.index = self.output.index_of(unwrapped)
        self.X, self.order = _without_ranks(X, keep, device)
        self.n = number_of_rows(self.X)
        self.duplicate_of, self.distance = np.arange(self.n, dtype=np.int32), np.zeros(self.n)
        self.report = Report(device=device.name, metric=task.metric.name)

    def result(self, by: str | None, against: Any, groups: Any, dropna: bool, details: bool) -> Rows | Duplicates:
        """Return which row each row goes to, with the details if they are asked for."""
        elsewhere, group = None, None
        if against is not None:
            with self.report.stage("against", self.device):
                elsewhere, distance = engine_of(self.X, against, metric=self.task.metric).nearest_rows(
                    self.X, against, self.task, self.device
                )
                goes = elsewhere >= 0
                self.duplicate_of[goes], self.distance[goes] = ELSEWHERE, distance[goes]
        if groups is not None:
            keys, metric = GroupBy(groups, dropna), self.task.metric
            with run_scope(self.device, self.task.memory_limit):
                self.X, keyed = read_groups(self.X, keys, metric, self.device, Report())
            check_keys(keyed.number.size, self.n)
            group = to_host(keyed.number)
        if by is not None:
            order = self.order if elsewhere is None else self.order[elsewhere[self.order] < 0]
            if order.size:
                with self.report.stage(by, self.device):
                    if by == "components":
                        self._by_components(order, group, details)
                    else:
                        self._by_pairs(order, group, by == "leaders")
        stays = self.duplicate_of == np.arange(self.n)
        kept = int(stays.sum())
        largest = int(np.bincount(self.duplicate_of[self.duplicate_of >= 0], minlength=1).max())
        self.report.count("rows", kept=kept, removed=self.n - kept, largest_group=largest)
        duplicate_of = self._series(self.duplicate_of, "duplicate_of")
        if not details:
            return duplicate_of
        near = None if elsewhere is None else self._series(elsewhere, "against")
        return Duplicates(duplicate_of, self._series(self.distance, "distance"), near, self.report)

    def _series(self, values: np.ndarray, name: str) -> Rows:
        return self.output.from_cuml_setting().labels(values, self.index, name)

    def _components(self, order: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        """Return the component of each of these rows, int32; rows of two groups are in two components."""
        rows = np.sort(order)
        some = None if group is None else group[rows]
        component = np.empty(self.n, np.int32)
        component[rows] = on_host(self.model.fit(_rows_of(self.X, rows), groups=some).labels_)
        return component[order]

    def _by_components(self, order: np.ndarray, group: np.ndarray | None, details: bool) -> None:
        """Let each row of a component go to the one that ranks first; `order` has the rows that take part, by rank."""
        component = self._components(order, group)
        first = np.empty(self.n, np.int32)
        first[component[::-1]] = order[::-1]  # the last write to an entry stays: the first rank
        self.duplicate_of[order] = first[component]
        goes = np.flatnonzero((self.duplicate_of != np.arange(self.n)) & (self.duplicate_of >= 0))
        if details and goes.size:
            ends = goes.astype(np.int32), self.duplicate_of[goes]
            engine = engine_of(self.X, metric=self.task.metric)
            self.distance[goes] = engine.pair_distances(self.X, ends, self.task, self.device)

    def _by_pairs(self, order: np.ndarray, group: np.ndarray | None, leaders: bool) -> None:
        """Let each row go to the nearest row that ranks before it, or with `leaders` to the nearest that stayed."""
        component = self._components(order, group)
        has_others = np.bincount(component)[component] > 1
        order, component = order[has_others], component[has_others]
        if not order.size:
            return
        nearest, distance = engine_of(self.X, metric=self.task.metric).nearest_rows(
            _rows_of(self.X, order), None, self.task, self.device, leaders=leaders, group=component
        )
        goes = nearest >= 0
        self.duplicate_of[order[goes]], self.distance[order[goes]] = order[nearest[goes]], distance[goes]


def _without_ranks(X: Any, keep: Any, device: Device) -> tuple[Any, np.ndarray]:
    """Return `X` without the column of ranks, and the numbers of its rows by rank, (n,) int64."""
    n = number_of_rows(X)
    if isinstance(keep, str) and keep in ("first", "last"):
        return X, np.arange(n) if keep == "first" else np.arange(n)[::-1]
    if not library_of(keep) and np.ndim(keep) == 0:
        if keep not in (column_names(X) or ()):
            raise ValueError(f"keep must be 'first', 'last', a column of X or a number for each row, got {keep!r}")
        column, X = X[keep], without_columns(X, [keep])
    else:
        column = keep
    column = as_frame(column)
    with run_scope(device):
        rank = column_values(column, device) if library_of(column) else column
        rank = np.asarray(to_host(rank) if is_on_gpu(rank) else rank)
    if rank.shape != (n,):
        raise ValueError(f"keep must hold one number for each of {counted(n, 'row')}, got shape {rank.shape}")
    if rank.dtype.kind not in "biuf":
        raise TypeError(f"keep must hold numbers, got dtype {rank.dtype}")
    if rank.dtype.kind == "f" and np.isnan(rank).any():
        raise ValueError(f"keep must have no missing values, got {int(np.isnan(rank).sum())} NaN")
    return X, order_of(rank)


def order_of(rank: np.ndarray) -> np.ndarray:
    """Return the rows by rank, (n,) int64: the largest is first, and among equal ones the earlier row."""
    return rank.size - 1 - np.argsort(rank[::-1], kind="stable")[::-1]


def _rows_of(X: Any, rows: np.ndarray) -> Any:
    """Return rows of `X`, which is itself if these are all in their order."""
    return X if rows.size == number_of_rows(X) and bool((rows[1:] > rows[:-1]).all()) else take_rows(X, rows)

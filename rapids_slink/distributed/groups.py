"""Groups of rows of a Dask collection: the trees of groups that lie whole in a partition are made where it is.

partitions ──keys──▶ one table of groups ──▶ whole groups stay, the rows of others meet ──▶ trees ──▶ one forest
"""

from dataclasses import replace
from operator import getitem
from time import perf_counter
from typing import Any

import numpy as np

from rapids_slink.dendrogram.cutting import ClusterRule, Cut, GroupedCut
from rapids_slink.distributed.cluster import Run, concatenate, on_worker, one_frame
from rapids_slink.distributed.points import Partitions, attributes, is_frame, model_attributes, read_points
from rapids_slink.distributed.trees import DISTANCE_COLUMNS, attributes_of_tree
from rapids_slink.metrics import distances
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.ordering import edge_codes, stable_order
from rapids_slink.pipeline import size_attributes, within_distance
from rapids_slink.points.keys import GroupBy, names_of, numbered
from rapids_slink.points.output import is_collection
from rapids_slink.report import Report, counted, listed
from rapids_slink.runtime.device import CPU, Device, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame, frame_of
from rapids_slink.runtime.memory import check_memory
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.problem import Problem, reported_cores
from rapids_slink.spanning_tree.ways import estimate_groups, forest_of_groups

#: The number of meetings for each worker. At a meeting the rows of groups that lie in several partitions come together.
MEETINGS = 2


def fit_groups(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model fitted with `Settings.groups`: a column, several, or a Dask Series."""
    assert isinstance(rule, Cut)
    X, settings, key_columns = _with_keys(X, settings)
    report, start = Report(device="", metric=settings.metric.name), perf_counter()
    with Run() as run:
        with report.stage("input", CPU):
            points = read_points(run, X, settings)
            n, settings = points.n_rows, replace(points.settings, groups=None)
            GroupedCut(rule, None, None, None).check_rows(n)
            if not settings.clipped or settings.min_samples > 1:
                report["min_samples"] = settings.min_samples
            report["device"] = settings.device
        with report.stage("groups", CPU):
            tables, groups, meetings = _groups_of(run, points)
        with report.stage("spanning_tree", CPU):
            trees = _trees_of_partitions(run, points, settings, tables, groups, meetings)
            run.wait(trees)
        report["way"] = "groups"
        layout, names, d = points.layout, points.names, points.n_features
        results = run.task("linkage", _fit_forest, settings, rule, trees, groups, n)
        del points, tables, groups, trees
        fitted = attributes(run, results, layout)
        components = fitted.pop("components")
        report.add(fitted.pop("report_"))
        report.count("cluster", **run.counts())
    fitted |= size_attributes(n, d, components, names)
    fitted |= {"_key_columns_": key_columns, "_cut_per_group_": rule.distance_threshold is None}
    return model_attributes(fitted, layout, report, start)


def _with_keys(X: Any, settings: Settings) -> tuple[Any, Settings, tuple[Any, ...]]:
    """Return a frame with the keys as columns, settings that name them, and the columns of `X` that are keys."""
    by = settings.groups
    if not is_frame(X):
        raise ValueError("groups of a Dask Array have no column: make a Dask DataFrame of it and the keys")
    if is_collection(by.groups) and getattr(by.groups, "ndim", 0) == 1 and is_frame(by.groups):
        name = by.groups.name
        name = "group" if name is None or name in X.columns else name
        return X.assign(**{name: by.groups}), replace(settings, groups=GroupBy([name], by.dropna)), ()
    names = None if is_collection(by.groups) else names_of(X, by.groups)
    if names is None:
        others = [name for name in by.groups if name not in X.columns] if isinstance(by.groups, list) else []
        got = f", and {others[0]!r} is not in [{listed(X.columns)}]" if others else ""
        raise ValueError(f"groups of a Dask DataFrame must be a column, columns, or a Dask Series like it{got}")
    return X, replace(settings, groups=GroupBy(names, by.dropna)), tuple(names)


def _groups_of(run: Run, points: Partitions) -> tuple[list[Any], Any, list[list[int]]]:
    """Return each partition's table of groups, the table of all groups, and the meetings of each partition's rows."""
    filled, sizes = _filled_partitions(points), points.layout.sizes
    tables = [run.task("keys", _table_of_keys, read, i, index=(p,), worker=holder) for p, read, i, holder in filled]
    own = [run.task("key-table", getitem, table, 1, index=(p,)) for p, table in enumerate(tables)]
    starts = [sum(sizes[:p]) for p, *_ in filled]
    count = MEETINGS * max(1, len(run.workers))
    groups = run.task("groups", _number_groups, own, starts, count)
    (meetings,) = run.gather([run.task("meetings", _meetings, groups)])
    return tables, groups, meetings


def _filled_partitions(points: Partitions) -> list[tuple[int, Any, int, str | None]]:
    """Return the partitions with rows: number, the task that read it, its place there, and who holds that."""
    filled = [
        (p, read, i, holder)
        for group, read, holder in points.read
        for i, p in enumerate(group)
        if points.layout.sizes[p]
    ]
    return sorted(filled, key=lambda entry: entry[0])


def _table_of_keys(read: dict[str, Any], i: int) -> tuple[Any, dict[str, Any]]:
    """Return the number of each row's group in one partition, and a table of each group's key, rows and first row."""
    groups = numbered(read["keys"][i], CPU)
    return groups.number, {"keys": groups.keys, "sizes": groups.sizes, "first": groups.first}


def _number_groups(tables: list[dict[str, Any]], starts: list[int], meetings: int) -> dict[str, Any]:
    """Return the groups of all partitions, in order of first appearance.

    ``of`` has the number of each partition's groups; ``sizes``, ``first`` and ``keys`` are those of `GroupedCut`;
    ``meeting`` is where the rows of a group meet, -1 if they are all in one partition.
    """
    frames = [table["keys"] for table in tables]
    groups, lengths = numbered(one_frame(frames), CPU), list(map(len, frames))
    number, places = groups.number, groups.sizes
    sizes = np.bincount(number, weights=np.concatenate([table["sizes"] for table in tables]))
    first = np.concatenate([table["first"] + start for table, start in zip(tables, starts, strict=True)])[groups.first]
    meeting = np.where(places > 1, np.arange(len(groups)) % meetings, -1)
    of = np.split(number, np.cumsum(lengths)[:-1])
    rows = sizes.astype(np.int64)
    return {"of": of, "starts": starts, "keys": groups.keys, "sizes": rows, "first": first, "meeting": meeting}


def _meetings(groups: dict[str, Any]) -> list[list[int]]:
    """Return where the rows of each partition go: to which meetings, and -1 if some stay."""
    return [np.unique(groups["meeting"][of]).tolist() for of in groups["of"]]


def _trees_of_partitions(
    run: Run, points: Partitions, settings: Settings, tables: list[Any], groups: Any, meetings: list[list[int]]
) -> list[Any]:
    """Return the tasks of all trees: of each partition's groups that stay, and of those of each meeting."""
    together: dict[tuple[int, int], list[Any]] = {}
    for place, (p, read, i, holder) in enumerate(_filled_partitions(points)):
        for at in meetings[place]:
            through_host = at >= 0 and run.copies_through_host(settings)
            piece = run.task(
                "group-rows", _rows_that_meet, read, i, tables[place], groups, place, at, through_host, index=(p, at),
                worker=holder,
            )  # fmt: skip
            together.setdefault((at, p if at < 0 else -1), []).append(piece)
    return [
        run.task("trees", _trees_of_groups, settings, pieces, points.dtype, index=place)
        for place, pieces in sorted(together.items())
    ]


def _rows_that_meet(
    read: dict[str, Any],
    i: int,
    table: tuple[Any, Any],
    groups: dict[str, Any],
    place: int,
    at: int,
    through_host: bool,
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the values, groups and numbers of a partition's rows that go to a meeting, or that stay."""
    group = groups["of"][place][table[0]]
    rows = np.flatnonzero(groups["meeting"][group] == at)
    values = read["values"][i]
    values = values if rows.size == len(values) else values[rows]
    numbers = (groups["starts"][place] + rows).astype(np.int32)
    return to_host(values) if through_host else values, group[rows], numbers


@on_worker
def _trees_of_groups(device: Device, settings: Settings, pieces: list[Any], dtype: str) -> dict[str, Any]:
    """Return the trees of all groups among these rows: edges numbered among all rows, and how they were made."""
    values, group, numbers = (concatenate([piece[i] for piece in pieces], device) for i in range(3))
    values, report, metric = values.astype(dtype, copy=False), Report(), settings.metric
    (n, d), groups = values.shape, numbered(device.frames.DataFrame({"group": group}), device)
    problem = Problem(settings, device, n, d, values.dtype.itemsize)
    check_memory(device, estimate_groups(problem, groups.sizes), f"{counted(n, 'row')} of {counted(d, 'feature')}")
    rows = metric_rows(metric, values, device, alone=False, compact=True)
    forest, components = forest_of_groups(problem.of_rows(rows), rows, groups, values, report, numbers)
    src, dst, weight = forest.columns.values()
    core = reported_cores(forest, values, rows, problem, groups)
    distance = distances(metric, weight, (src, dst), (values, values), device, core=core)
    columns = {"src": numbers[src], "dst": numbers[dst], "weight": weight, "distance": distance, "group": group[src]}
    report.pop("seconds", None)
    return {"edges": frame_of(device, columns), "report": report, "components": components}


@on_worker
def _fit_forest(
    device: Device, settings: Settings, rule: Cut, trees: list[dict[str, Any]], groups: dict[str, Any], n: int
) -> dict[str, Any]:
    """Return the attributes of n rows from the trees of all their groups."""
    xp, report = device.xp, Report()
    with report.stage("spanning_tree", device):
        for part in trees:
            report.add(part["report"])
        edges = one_frame([part["edges"] for part in trees])
        columns = {name: edges[name].values for name in edges}
        order = stable_order(edge_codes(columns["src"], columns["dst"], xp), xp)
        order = order[stable_order(columns["distance" if settings.metric.changes_order else "weight"][order], xp)]
        ordered = {name: columns[name][order] for name in (*DISTANCE_COLUMNS, "group")}
        forest = dict(zip(EDGE_TYPES, (ordered[name] for name in DISTANCE_COLUMNS), strict=True))
        tree = within_distance(PreallocatedFrame.of(device, forest), settings.max_distance)
    merge_group = ordered["group"][: len(tree.columns["src"])].astype("int32")
    keys, sizes, first = groups["keys"], *(to_host(groups[name]) for name in ("sizes", "first"))
    grouped_cut = GroupedCut(rule, keys, sizes, first, merge_group)
    components = sum(part["components"] for part in trees)
    return {**attributes_of_tree(device, grouped_cut, tree, n, report), "components": components}

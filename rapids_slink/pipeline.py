"""The pipeline on one device: each stage's call, in order; the engine of `api`.

The functions of the engine find the device, open a run, and return results in the caller's type. `distributed` has the
same functions for the cluster of a Dask client.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from rapids_slink import dendrogram as dendrograms
from rapids_slink import graph, neighbors
from rapids_slink.dendrogram import build_linkage, cutting, soonest
from rapids_slink.dendrogram.cutting import SERIES_NAMES, ClusterRule, Cut, FlatClusters, GroupedCut, StableClusters
from rapids_slink.graph import CANNOT_LINK, constrained_bytes, constrained_forest, marks_of_rows, read_rows
from rapids_slink.items import search, without_features
from rapids_slink.items.forest import forest_of_items
from rapids_slink.items.search import kind_of, read_items
from rapids_slink.metrics import PRECOMPUTED, Metric, distances
from rapids_slink.neighbors import estimate_search, queries, within
from rapids_slink.neighbors.queries import nearest_earlier, nearest_elsewhere
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import equal_slices
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import Following, Points, as_distances, as_points, is_sparse, warn_of_distances
from rapids_slink.points.check import (
    MAX_ROWS,
    Codes,
    check_finite,
    check_weights,
    column_values,
    require_columns,
)
from rapids_slink.points.keys import KEPT_BYTES, Groups, check_keys, check_values, read_groups
from rapids_slink.points.output import (
    EDGE_TYPES,
    Later,
    OutputKind,
    PreallocatedFrame,
    is_collection,
    library_of,
    with_frames,
)
from rapids_slink.prediction import Fitted, centroids, core_distances, medoids
from rapids_slink.report import Report, counted
from rapids_slink.runtime.compiling import compiling_bar
from rapids_slink.runtime.device import Array, Device, on_current_gpu, resolve, to_host
from rapids_slink.runtime.memory import (
    TREE_BYTES,
    MemoryEstimate,
    check_memory,
    copy_out,
    outside_pool,
    release_cached,
    run_scope,
)
from rapids_slink.settings import Settings, parameters_of
from rapids_slink.spanning_tree import Problem, Tree, reported_cores, weighted_problem
from rapids_slink.spanning_tree.boxes import estimate_friends, label_friends
from rapids_slink.spanning_tree.graphs import (
    NO_NODES,
    EdgeList,
    edges_of_matrix,
    edges_text,
    estimate_given,
    forest_of_edges,
    given_graph,
    is_graph,
    read_graph,
    tree_of_edges,
)
from rapids_slink.spanning_tree.lists import estimate_appended, list_length, tree_of_appended
from rapids_slink.spanning_tree.relational import connect_graph
from rapids_slink.spanning_tree.ways import (
    SharedLists,
    compile_for,
    estimate_groups,
    estimate_tree,
    forest_of_groups,
    tree_of_rows,
)

#: A function that makes the tree of a problem's rows.
MakeTree: TypeAlias = Callable[[Problem, Array, Report], Tree]
APART_ADVICE = "Pass a smaller max_distance, or collect the edges of iter_pairs for fit_graph(edges, cannot_link=...)"
#: The bytes of a listed neighbour.
LIST_BYTES = 12
#: The bytes of a row's results, which a GPU copies out of the run's pool: merges, edges and labels.
RESULT_BYTES = 40


# ---------------------------------------------------------------------------------------------------- the engine


def fit(X: Any, settings: Settings, rule: ClusterRule, fit_rows: Any = None) -> dict[str, Any]:
    """Return the attributes of a model fitted on points: those of `attributes_of`, and ``report_``.

    `fit_rows` is the function that returns those of `attributes_of`, by default `fit_points`, or with `cannot_link`
    `fit_pairs`.
    """
    device = resolve(settings.device, X)
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit), compiling_bar() if settings.progress is True else nullcontext():
        by_default = fit_points if settings.cannot_link is None else fit_pairs
        fitted = (fit_rows or by_default)(X, settings, rule, device, report)
    return {**fitted, "report_": report}


def check_apart(X: Any, settings: Settings) -> None:
    """Raise ValueError for a Dask collection, and for parameters that cannot be combined with `cannot_link`."""
    if is_collection(X):
        raise ValueError(f"{CANNOT_LINK} is for rows on one device, and X is a Dask collection")
    if settings.metric is PRECOMPUTED:
        raise ValueError(f"{CANNOT_LINK} of given distances: pass their edges to fit_graph(edges, {CANNOT_LINK}=...)")
    if settings.max_distance is None:
        raise ValueError(f"{CANNOT_LINK} takes all pairs within a distance: pass max_distance, or min_similarity")
    for parameter, is_set in (
        ("groups", settings.groups is not None),
        ("min_samples above 1", settings.min_samples > 1),
        ("prediction_data=True", settings.prediction_data),  # `append` and `predict` know no constraint
    ):
        if is_set:
            raise ValueError(f"{CANNOT_LINK} cannot be combined with {parameter}")


def append(X: Any, model: Fitted, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model with further rows."""
    device = resolve(settings.device, X, model.rows.values)
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit):
        fitted = append_points(X, model, settings, rule, device, report)
    return {**fitted, "report_": report}


def predict(answer: Callable[..., Any], X: Any, rows: Any, device: str, memory_limit: Any) -> tuple[Any, Report]:
    """Return the answer of a prediction for new rows beside a model's `rows`, and its report."""
    chosen = resolve(device, X, rows)
    report = Report(device=chosen.name)
    with run_scope(chosen, memory_limit):
        return answer(X, device=chosen, report=report), report


def fit_graph(
    edges: Any, *, cut: Cut, n_nodes: Any, complete: str, cannot_link: Any, device: str, memory_limit: Any
) -> graph.GraphHierarchy:
    """Return the hierarchy of a graph; see `api.fit_graph`."""
    source = given_graph(edges)
    chosen = resolve(device, source.frame)
    report = Report(device=chosen.name)
    with run_scope(chosen, memory_limit):
        result = graph.fit_graph(source, cut, n_nodes, complete, cannot_link, chosen, report)
    result.report_ = report
    return result


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: str, memory_limit: Any) -> Any:
    """Return the exact k-NN graph of points; see `api.knn_graph`."""
    _require_features("knn_graph", metric, X)
    chosen = resolve(device, X)
    with run_scope(chosen, memory_limit):
        return neighbors.knn_graph(X, n_neighbors, metric, chosen)


def nearest_neighbors(X: Any, Y: Any, task: queries.NearestTask, device: str) -> Any:
    """Return the nearest rows of Y for each row of X; see `api.nearest_neighbors`."""
    chosen = resolve(device, X, Y)
    find = queries.nearest_neighbors if kind_of(task.metric, X, Y) is None else search.nearest_neighbors
    with run_scope(chosen, task.memory_limit):
        return find(X, Y, task, chosen)


def read_pairs(X: Any, Y: Any, task: within.PairTask, device: Device) -> within.PairFrames:
    """Return the pairs of points or items within the distances of a task, within a run."""
    read = within.NearPairs.read if kind_of(task.metric, X, Y) is None else search.NearItems
    return read(X, Y, task, device)


def pairs(X: Any, Y: Any, task: within.PairTask, device: str) -> Any:
    """Return the pairs of rows within a distance as a frame; see `api.pairs`."""
    chosen = resolve(device, X, Y)
    with run_scope(chosen, task.memory_limit):
        near = read_pairs(X, Y, task, chosen)
        return near.frame(slice(0, near.n_rows))


def count_pairs(X: Any, Y: Any, task: within.PairTask, device: str) -> Any:
    """Count the pairs of rows within each of the task's distances; see `api.count_pairs`."""
    chosen = resolve(device, X, Y)
    with run_scope(chosen, task.memory_limit):
        near = read_pairs(X, Y, replace(task, counts=True), chosen)
        return near.count(slice(0, near.n_rows))


def iter_pairs(X: Any, Y: Any, task: within.PairTask, rows: int, device: str) -> Iterator[Any]:
    """Return an iterator over frames of the pairs of `rows` rows at a time; see `api.iter_pairs`.

    The search is prepared once, and each frame has a run of its own.
    """
    chosen = resolve(device, X, Y)

    def frames() -> Iterator[Any]:
        with run_scope(chosen, task.memory_limit), outside_pool(chosen):  # since the search outlives the run
            near = read_pairs(X, Y, task, chosen)
        for part in equal_slices(slice(0, near.n_rows), rows):
            with run_scope(chosen, task.memory_limit):
                near.check_memory()
                frame = near.frame(part)
            yield frame

    return frames()


def nearest_rows(X: Any, Y: Any, task: within.PairTask, device: Device, **how: Any) -> tuple[Any, Any]:
    """Return the nearest earlier row within a distance of each row, or that of Y: see `neighbors.queries`."""
    with run_scope(device, task.memory_limit):
        if kind_of(task.metric, X, Y) is not None:
            return queries.nearest_of_pairs(search.NearItems(X, Y, task, device), **how)
        points = within.read_pairs(X, Y, task, device)
        if points.is_one:
            return nearest_earlier(points, task, device, **how)
        return nearest_elsewhere(points, task, device)


def pair_distances(X: Any, ends: tuple[Any, Any], task: within.PairTask, device: Device) -> Any:
    """Return the distances of m pairs of rows of X, (m,) float64; `ends` are two (m,) int32 arrays. All on the host."""
    with run_scope(device, task.memory_limit):
        if kind_of(task.metric, X) is not None:
            items, _ = read_items({"X": X}, task.metric, device)
            return to_host(items.distances(device.asarray(ends[0]), device.asarray(ends[1]), inf))
        return within.distances_between(within.read_pairs(X, None, task, device), ends, task.metric, device)


def connect(graph: Any, X: Any, *, certified: bool, metric: Metric, device: str, memory_limit: Any) -> Any:
    """Return the exact minimum spanning tree of points from their k-NN graph; see `api.connect`."""
    _require_features("connect", metric, X)
    chosen = resolve(device, X)
    with run_scope(chosen, memory_limit):
        return connect_graph(graph, X, certified, metric, chosen)


def _require_features(function: str, metric: Metric, X: Any) -> None:
    """Raise ValueError if the rows of X have no features, which a function takes."""
    if kind_of(metric, X) is not None:
        raise ValueError(f"{function} is of rows of features, and {without_features(metric)}. Or use pairs, or fit")


def minimum_spanning_tree(edges: Any, *, maximum: bool, component: bool, device: str, memory_limit: Any) -> Any:
    """Return the minimum spanning tree or forest of a graph, in its type; see `api.minimum_spanning_tree`."""
    if component and is_graph(edges) and not library_of(edges):
        raise ValueError(f"component=True adds a column, and a {type(edges).__name__} has none: pass a DataFrame")
    source = given_graph(edges)
    chosen = resolve(device, source.frame)
    frame, output = OutputKind.of(source.frame, chosen)
    with run_scope(chosen, memory_limit):
        tree = tree_of_edges(frame, chosen, maximum=maximum, component=component)
    return output.frame(tree) if source.as_graph is None else source.as_graph(tree)


def linkage(tree: Any, *, n_nodes: Any, device: str, memory_limit: Any) -> Any:
    """Return the dendrogram of a weighted tree as a frame; see `api.linkage`."""
    chosen = resolve(device, tree)
    tree, output = OutputKind.of(tree, chosen)
    require_columns(tree, ("src", "dst", "weight"), "tree")
    with run_scope(chosen, memory_limit):
        return output.frame(dendrograms.linkage_of_edges(tree, n_nodes, chosen).frame)


def cut(linkage: Any, parameters: cutting.CutParameters, n_leaves: Any) -> Any:
    """Return flat clusters from a linkage; see `api.cut`."""
    linkage, output = OutputKind.of(linkage, resolve("auto", linkage))
    require_columns(linkage, cutting.COLUMNS, "linkage")
    n = cutting.count_leaves(len(linkage), n_leaves)
    check = partial(cutting.check_linkage, linkage, n, is_forest=n_leaves is not None)
    return cutting.cut_frame(linkage, n, parameters, output, check=check)


# ---------------------------------------------------------------------------------------------------- the stages


def fit_points(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Cluster points or items, or those of each group, within a run; return the fitted model's attributes."""
    groups, edges, items, weighted = None, None, None, settings.weights is not None
    kind = kind_of(settings.metric, X)
    if kind is not None:
        _check_settings_of_items(settings, rule)
    if settings.groups is not None:
        X, groups = read_groups(X, settings.groups, settings.metric, device, report)
        rule = within_groups(rule, groups)
    elif rule.friends_within is not None:
        settings = replace(settings, friends_within=rule.friends_within)

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        problem = Problem(settings, device, n, d, itemsize)
        if groups is not None:
            return estimate_fit_of_groups(problem, groups)
        if device.is_gpu:
            compile_for(problem)
        return estimate_fit(problem)

    with report.stage("input", device):
        if kind is None:
            points, edges = read_points(X, settings, device, estimate, groups)
            n, d = points.values.shape if edges is None else 2 * (edges.n_nodes,)
        else:
            items, (points,) = read_items({"X": X}, settings.metric, device, settings.prediction_data)
            n, d = len(items), items.n_features
            if groups is not None:
                check_keys(groups.number.size, n)
        settings = settings.of_columns(points.names, d)
        rule.check_rows(n)
        index = None if edges is not None and is_graph(X) else points.index  # a graph's index is that of its nodes
        weights = check_weights(settings.weights, n, device, index=index) if weighted else None
        if groups is None:  # else each group takes what it has rows for
            settings = settings.for_rows(n if weights is None else int(weights.sum()))
        if not settings.clipped or settings.min_samples > 1:
            report["min_samples"] = settings.min_samples
    if items is not None:
        report["way"] = "items" if groups is None else "groups"
        number = device.xp.zeros(n, "int32") if groups is None else groups.number
        tree = forest_of_items(items, number, settings, report)
        return attributes_of(points, tree, (n, d), settings, rule, device, report, is_own=True, groups=groups)
    problem = Problem(settings, device, n, d, points.values.dtype.itemsize)
    if edges is None and problem.finds_friends:
        assert isinstance(rule, Cut)
        return attributes_of_friends(points, problem, rule, report)
    core = None
    if edges is None:
        if weighted and settings.min_samples > 1:
            problem, core = weighted_problem(points.values, weights, problem, report)
        tree = tree_of_points(points.values, problem, report, tree_of_rows, core=core, groups=groups)
    else:
        with report.stage("spanning_tree", device):
            check_memory(device, estimate_given(edges.src.size, n, settings.min_samples), edges_text(edges))
            tree, core = forest_of_edges(edges, settings.min_samples, device, weights)
        report["way"] = "edges"
    if weighted:
        rule = rule.weighted(to_host(weights), None if core is None else to_host(core))
    return attributes_of(points, tree, (n, d), settings, rule, device, report, groups=groups)


def _check_settings_of_items(settings: Settings, rule: ClusterRule) -> None:
    """Raise ValueError for parameters that need features."""
    for parameter, is_set in (
        ("prediction_data=True of HDBSCAN", settings.prediction_data and rule.predicts_by_density),
        ("gen_min_span_tree=True", settings.gen_min_span_tree),
        ("store_centers", settings.store_centers is not None),
        ("sample_weight", settings.weights is not None),
    ):
        if is_set:
            raise ValueError(f"{parameter} takes the rows' features, and {without_features(settings.metric)}")


def fit_pairs(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Fit rows of which some may not be in one cluster, within a run; return what `fit_points` does.

    All pairs within the distance are needed, not a minimum spanning tree alone: where an edge of it is refused, a
    heavier one may be taken.
    """
    assert settings.max_distance is not None
    with report.stage("input", device):
        X, marked = read_rows(X, settings.cannot_link, device)
        near = read_pairs(X, None, within.PairTask.of(settings, settings.max_distance), device)
        n, points = near.n_rows, near.ends[0]
        warn_of_distances(points.values, device)
        rule.check_rows(n)
        marks = marks_of_rows(marked, n)
    report["way"] = CANNOT_LINK
    with report.stage("pairs", device):
        pairs = near.find_all(slice(0, n), APART_ADVICE)
        # Pairs are sorted by (src, dst), so the edges' numbers have the order of the total order among equal weights.
        edges = EdgeList(pairs.src, pairs.dst, pairs.weight, n)
        report.count("pairs", pairs=pairs.count)
    with report.stage("spanning_tree", device):
        needed = MemoryEstimate(constrained_bytes(pairs.count, marks) + TREE_BYTES[device.name] * n)
        check_memory(device, needed, f"{counted(pairs.count, 'pair')} of {counted(n, 'row')}")
        rows, refused = constrained_forest(edges, marks, device)
        report.count("spanning_tree", refused=refused)
        tree = PreallocatedFrame.empty(device, rows.size, EDGE_TYPES)
        for column, values in zip(tree.columns.values(), (edges.src, edges.dst, edges.weight), strict=True):
            column[...] = values[rows]
    return attributes_of(points, (tree, n - rows.size), (n, near.n_features), settings, rule, device, report)


def within_groups(rule: ClusterRule, groups: Groups) -> GroupedCut:
    """Return the rule that makes a cut within each group."""
    assert isinstance(rule, Cut)
    return GroupedCut(rule, groups.keys, groups.sizes, groups.first)


def select(X: Any, settings: Settings, rules: list[StableClusters], samples: list[int]) -> tuple[Any, Points]:
    """Return the labels of clusters by each rule, of the tree of each number of samples, and the points.

    The labels are a frame of int32 columns, which are numbered rule by rule. One k-NN graph serves all trees, and each
    tree serves all rules.
    """
    device = resolve(settings.device, X)
    with run_scope(device, settings.memory_limit), compiling_bar() if settings.progress is True else nullcontext():
        return _select(X, settings, rules, samples, device)


def _select(
    X: Any, settings: Settings, rules: list[StableClusters], samples: list[int], device: Device
) -> tuple[Any, Points]:
    report, shared = Report(), SharedLists(max(samples))
    settings = replace(settings, min_samples=max(samples))

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        problem = Problem(settings.for_rows(n), device, n, d, itemsize)
        lists, labels = LIST_BYTES * list_length(problem.settings) * n, 4 * n * len(rules) * len(samples)
        return MemoryEstimate(labels + lists) + estimate_fit(problem)

    points, edges = read_points(X, settings, device, estimate)
    n, d = points.values.shape if edges is None else 2 * (edges.n_nodes,)
    settings = settings.of_columns(points.names, d)
    shared.min_samples = settings.for_rows(n).min_samples
    labels = PreallocatedFrame.empty(device, n, dict.fromkeys(map(str, range(len(rules) * len(samples))), "int32"))
    for j, min_samples in enumerate(samples):
        own = replace(settings, min_samples=min_samples).for_rows(n)
        problem = Problem(own, device, n, d, points.values.dtype.itemsize)
        if edges is None:
            tree, _ = tree_of_points(points.values, problem, report, shared.grow)
        else:
            check_memory(device, estimate_given(edges.src.size, n, own.min_samples), edges_text(edges))
            (tree, _), _ = forest_of_edges(edges, own.min_samples, device, None)
        merges = build_linkage(soonest(tree, n), n).on(device)
        cutting.write_labels(rules, merges, n, list(labels.columns.values())[j :: len(samples)])
    return labels.frame, points


def as_given(X: Any, device: Device, estimate: Following, as_edges: bool) -> tuple[Points, EdgeList | None]:
    """Return given distances as a matrix, and as edges if they are a graph, if they lack pairs, or if `as_edges`.

    Otherwise the edges are None. A graph has no matrix: its points have no values.
    """
    if not is_graph(X):
        points, complete = as_distances(X, device, estimate)
        return points, None if complete and not as_edges else edges_of_matrix(points.values, device)
    source = given_graph(X)
    frame, output = OutputKind.of(source.frame, device)
    if is_sparse(X):
        output = replace(output, is_frame=False)
    graph = read_graph(frame, device, most_numbers=None if source.n_nodes is None else MAX_ROWS)
    n = max(source.n_nodes or 0, graph.edges.n_nodes)
    if not n:
        raise ValueError(NO_NODES)
    if n > MAX_ROWS:
        raise ValueError(f"up to {MAX_ROWS} nodes are possible, got {n}")
    index = graph.ids if source.names is None else source.names
    return Points(device.xp.empty((0, 0)), None, index, output), replace(graph.edges, n_nodes=n)


def append_points(
    X: Any, model: Fitted, settings: Settings, rule: ClusterRule, device: Device, report: Report
) -> dict[str, Any]:
    """Add rows to a model on one device, within a run; return the attributes of a model fitted on all rows."""
    if kind_of(model.rows.metric, model.rows.values) is not None:
        return _append_items(X, model, settings, rule, device, report)
    with report.stage("input", device):
        new, (added, old) = model.rows.read(X, device)
        n = len(old) + len(added)
        settings = replace(settings.for_rows(n), metric=model.rows.metric)
        problem = Problem(settings, device, n, old.shape[1], old.dtype.itemsize)
        _check_appended(n, settings, rule)
        copy = MemoryEstimate(n * old.shape[1] * old.dtype.itemsize)
        check_memory(device, copy + estimate_appended(problem, len(old)), f"append to {counted(len(old), 'row')}")
        with outside_pool(device):  # since the model keeps them
            values = device.xp.concatenate([old, added])
        points = Points(values, model.rows.names, model.index_with(new), model.output)
        if values.dtype != "float32":  # whose squares fit into float64
            check_finite({"X": points}, settings.metric, device)

        def column(frame: Any, name: str) -> Array:
            return device.asarray(column_values(frame[name], device), "int32")

        edges = column(model.tree, "src"), column(model.tree, "dst")
        merges = column(model.linkage, "left"), column(model.linkage, "right"), column(model.linkage, "size")

    def grow(problem: Problem, rows: Array, report: Report) -> Tree:
        return tree_of_appended(rows, len(old), edges, merges, problem, report), 1

    report["way"] = "append"
    tree = tree_of_points(values, problem, report, grow)
    return attributes_of(points, tree, values.shape, problem.settings, rule, device, report, is_own=True)


def _append_items(
    X: Any, model: Fitted, settings: Settings, rule: ClusterRule, device: Device, report: Report
) -> dict[str, Any]:
    """Return for items what `append_points` returns for points."""
    report["way"] = "append"
    with report.stage("input", device):
        inputs = {"the model": model.rows.values, "X": model.rows.columns_of(X)}
        items, (old, new) = read_items(inputs, settings.metric, device, is_kept=True)
        n, values = len(items), np.concatenate((old.values, new.values))
        _check_appended(n, settings.for_rows(n), rule)
        points = Points(values, model.rows.names, model.index_with(new), model.output)
        edges = tuple(
            device.asarray(column_values(model.tree[name], device), dtype) for name, dtype in EDGE_TYPES.items()
        )
    tree = forest_of_items(items, device.xp.zeros(n, "int32"), settings, report, (len(old.values), edges))
    return attributes_of(points, tree, (n, items.n_features), settings, rule, device, report, is_own=True)


def _check_appended(n: int, settings: Settings, rule: ClusterRule) -> None:
    """Raise ValueError unless rows can be added to a model, which then has n."""
    if settings.min_samples > 1:
        raise ValueError("append is for min_samples=1: with new rows core distances fall, and no edge is certain")
    rule.check_rows(n)


def attributes_of(
    points: Points,
    tree_and_components: Tree,
    shape: tuple[int, int],
    settings: Settings,
    rule: ClusterRule,
    device: Device,
    report: Report,
    is_own: bool = False,
    groups: Groups | None = None,
) -> dict[str, Any]:
    """Return the attributes of a model of n rows and d features, from its tree, or from the forest of its groups.

    `shape` is (n, d). With `is_own` the model may keep the points themselves, otherwise it copies them.
    """
    (tree, components), (n, d) = tree_and_components, shape
    if groups is not None:
        assert isinstance(rule, GroupedCut)
        rule = replace(rule, merge_group=groups.number[tree.columns["src"]])
    release_cached()
    with report.stage("linkage", device):
        merges = build_linkage(tree if rule.merge_groups else soonest(tree, n), n, rule.merge_groups)
    flat = rule.choose(merges, n, device, report)
    keeps_rows = settings.prediction_data or settings.gen_min_span_tree
    kept = kept_rows(points, settings, rule, device, report, is_own) if keeps_rows else {}
    if settings.store_centers is not None:
        with report.stage("centers", device):
            kept |= centers_of(points, flat, settings, device)
    if settings.weights is not None:
        kept["_weighted_"] = True
    with report.stage("output", device), outside_pool(device):
        linkage = Later(partial(merges.on, device), points.output)
        fitted = {"linkage_": linkage, "mst_": Later(tree, points.output)} | flat_attributes(flat, points)
        if settings.prediction_data:  # predictions read the frames
            fitted = with_frames(fitted)
        fitted = kept | fitted | size_attributes(n, d, components, points.names)
        if isinstance(rule, GroupedCut) and groups is not None:
            fitted |= {
                "groups_": groups.in_types_of_tables(fitted["groups_"]),
                "_key_columns_": groups.columns,
                "_cut_per_group_": rule.cut.distance_threshold is None,
            }
        return fitted


def attributes_of_friends(points: Points, problem: Problem, rule: Cut, report: Report) -> dict[str, Any]:
    """Return the attributes of a model with labels alone; its tree is made when it is first read."""
    device, values, n = problem.device, points.values, problem.n
    report["way"] = "friends"
    with report.stage("neighbors", device):
        rows = metric_rows(problem.metric, values, device, compact=True)
    labels = PreallocatedFrame.empty(device, n, {"label": "int32"}).columns["label"]
    count = label_friends(rows, problem, labels, report)
    flat = cutting.large_clusters(labels, count, rule, device.xp)
    with report.stage("output", device):
        later = LaterTree(copied(values, device), problem, report)
        frames = {name: Later(partial(later.frame, name), points.output) for name in ("linkage_", "mst_")}
        with outside_pool(device):
            return frames | flat_attributes(flat, points) | size_attributes(n, values.shape[1], 1, points.names)


class LaterTree:
    """The tree and the linkage of a model of labels alone, made when either is first asked for, in a run of its own.

    Until then it keeps the rows, and then the report has the tree's seconds and counts too.
    """

    def __init__(self, values: Array, problem: Problem, report: Report) -> None:
        self.values, self.report, self.lock = values, report, Lock()
        self.problem = replace(problem, settings=replace(problem.settings, friends_within=None))
        self.frames: dict[str, PreallocatedFrame] = {}

    def frame(self, name: str) -> PreallocatedFrame:
        """Return the edges, "mst_", or the merges, "linkage_"; the first call makes both."""
        problem, device, report = self.problem, self.problem.device, Report()
        with self.lock:
            if not self.frames:
                with run_scope(device, problem.settings.memory_limit):
                    check_memory(device, estimate_fit(problem), f"the tree of {counted(problem.n, 'row')}")
                    tree, _ = tree_of_points(on_current_gpu(self.values), problem, report, tree_of_rows)
                    release_cached()
                    with report.stage("linkage", device):
                        self.frames = {"mst_": tree, "linkage_": build_linkage(tree, problem.n)}
                self.values = None
                self.report.add(report)
            return self.frames[name]


def centers_of(points: Points, flat: FlatClusters, settings: Settings, device: Device) -> dict[str, Any]:
    """Return `centroids_` and `medoids_`, as far as the settings ask for them, weighted by probabilities."""
    labels, strength = (to_host(flat.rows[name]) for name in ("labels_", "probabilities_"))
    centers, values, k = {}, points.values, flat.n_clusters
    if settings.store_centers in ("centroid", "both"):
        centers["centroids_"] = centroids(values, labels, strength, k, device)
    if settings.store_centers in ("medoid", "both"):
        rows = medoids(values, labels, strength, k, settings.metric, device)
        centers["medoids_"] = values[device.asarray(rows)].astype("float64")
    return {name: points.output.array(copy_out(device, array)) for name, array in centers.items()}


def kept_rows(
    points: Points, settings: Settings, rule: ClusterRule, device: Device, report: Report, is_own: bool
) -> dict[str, Any]:
    """Return the rows that a model keeps, copied unless `is_own`, and core distances if predictions need them."""
    metric, values = settings.metric, points.values
    with report.stage("prediction_data", device):
        rows = values if is_own else copied(values, device)
        if not settings.prediction_data:
            return {"_drawn_": rows}
        kept = {"_metric_": parameters_of(metric), "_missing_values_": settings.missing_values, "_points_": rows}
        if points.names is not None:
            kept["_columns_"] = tuple(points.names)
        if rule.predicts_by_density:
            kept["_core_"] = copy_out(device, core_distances(values, metric, settings.min_samples, device))
    return kept


def copied(values: Array, device: Device) -> Array:
    """Return a copy of some values, in memory that outlives the run."""
    return copy_out(device, values) if device.is_gpu else values.copy()


def read_points(
    X: Any, settings: Settings, device: Device, estimate: Following, groups: Groups | None = None
) -> tuple[Points, EdgeList | None]:
    """Return the points, or the given distances, on the device, and the given edges, if any; else None.

    Raises DeviceMemoryError unless they and the later stages fit into memory. With `groups` only distances within a
    group must be finite.
    """
    if settings.metric is PRECOMPUTED:
        return as_given(X, device, estimate, settings.weights is not None)
    missing, codes = settings.missing_values, None if settings.prediction_data else Codes()  # new rows have others
    points = as_points(
        X, device, estimate, metric=settings.metric, missing_values=missing, codes=codes, checked=groups is None
    )
    if groups is not None:
        check_values(points, groups, settings.metric, device)
    warn_of_distances(points.values, device)
    return points, None


def flat_attributes(flat: FlatClusters, points: Points) -> dict[str, Any]:
    """Return flat clusters as attributes, in the type of the points, and that type and the points' index."""
    output, index = points.output.from_cuml_setting(), points.index
    return {
        "n_clusters_": flat.n_clusters,
        **{name: output.labels(array, index, SERIES_NAMES[name]) for name, array in flat.rows.items()},
        **{name: points.output.array(array) for name, array in flat.clusters.items()},
        **{
            name: Later(frame, points.output) if callable(frame) else points.frame(frame)
            for name, frame in flat.frames.items()
        },
        **flat.values,
        "_output": points.output,
        "_index": index,
    }


def size_attributes(n: int, d: int, components: int, names: list[Any] | None) -> dict[str, Any]:
    """Return the numbers of rows, features and components, and the features' names if all are strings."""
    has_names = names and all(isinstance(name, str) for name in names)
    named = {"feature_names_in_": np.asarray(names, dtype=object)} if has_names else {}
    return {"n_features_in_": d, **named, "n_leaves_": n, "n_connected_components_": components}


def estimate_fit(problem: Problem, tree_estimate: MemoryEstimate | None = None) -> MemoryEstimate:
    """Estimate the bytes of a fit without the points.

    `tree_estimate` is the estimate for the tree if the values are known; by default the tree may have any values. The
    memory of the lists is free again once the tree is made.
    """
    if problem.finds_friends:
        return estimate_friends(problem)
    needed, n, d, itemsize = tree_estimate or estimate_tree(problem), problem.n, problem.n_features, problem.itemsize
    copy, k = n * d * itemsize, problem.settings.min_samples - 1
    if problem.settings.prediction_data:
        cores = estimate_search(n, d, itemsize, max(1, k), problem.device, metric=problem.metric)
        return MemoryEstimate.either(needed, cores) + MemoryEstimate(copy)
    if problem.settings.gen_min_span_tree:  # the copy is made beside the result alone
        return replace(needed, peak=max(needed.peak, (RESULT_BYTES + 8) * n + copy))
    return needed


def estimate_fit_of_groups(problem: Problem, groups: Groups) -> MemoryEstimate:
    """Estimate the bytes of a fit of groups, without the points; raise ValueError unless each row has a key."""
    check_keys(groups.number.size, problem.n)
    keeps_rows = problem.settings.prediction_data or problem.settings.gen_min_span_tree
    row_bytes = KEPT_BYTES + problem.n_features * problem.itemsize * keeps_rows
    return MemoryEstimate(row_bytes * problem.n) + estimate_groups(problem, groups.sizes)


def tree_of_points(
    values: Array,
    problem: Problem,
    report: Report,
    make_tree: MakeTree,
    core: Array = None,
    groups: Groups | None = None,
) -> Tree:
    """Return the exact minimum spanning tree over all pairs of points, in merge order, weighted by distances.

    The points are (n, d); the second result is the number of components of the k-NN graph. `core` is the result of
    `reported_cores`, if it is known. With `groups` the result is the forest of a tree for each group.
    """
    metric, device = problem.metric, problem.device
    with report.stage("neighbors", device):
        rows = metric_rows(metric, values, device, alone=groups is None, compact=True) if problem.n > 1 else values
    if groups is None:
        tree, components = make_tree(problem.of_rows(rows), rows, report)
    else:
        report["way"] = "groups"
        tree, components = forest_of_groups(problem.of_rows(rows), rows, groups, values, report)
    if core is None and problem.by_reachability:
        with report.stage("neighbors", device):
            core = reported_cores(tree, values, rows, problem, groups)
    with report.stage("spanning_tree", device):
        src, dst, weight = tree.columns.values()
        reported = distances(metric, weight, (src, dst), (values, values), device, out=weight, core=core)
        if reported is not weight:
            weight[...] = reported
        if metric.changes_order:
            sort_in_place(tree.columns, device.xp)
        if problem.settings.max_distance is not None:
            tree = within_distance(tree, problem.settings.max_distance)
    return tree, components


def within_distance(tree: PreallocatedFrame, max_distance: float | None) -> PreallocatedFrame:
    """Return the edges of at most this weight, which come first; return all edges for None."""
    if max_distance is None:
        return tree
    xp = tree.device.xp
    count = int(xp.searchsorted(tree.columns["weight"], xp.asarray([max_distance], "float64"), side="right")[0])
    return PreallocatedFrame.of(tree.device, {name: column[:count] for name, column in tree.columns.items()})

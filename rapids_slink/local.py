"""The engine of one device: each function finds the device, opens a run, and returns results in the caller's type."""

from collections.abc import Callable
from functools import partial
from typing import Any

from rapids_slink import dendrogram as dendrograms
from rapids_slink import graph, neighbors, pipeline, planning
from rapids_slink.dendrogram import cutting
from rapids_slink.dendrogram.cutting import ClusterRule
from rapids_slink.metrics import Metric
from rapids_slink.points.columns import require_columns
from rapids_slink.points.output import OutputKind, library_of
from rapids_slink.prediction import Fitted
from rapids_slink.report import Report
from rapids_slink.runtime.device import resolve
from rapids_slink.runtime.memory import run_scope
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.graphs import given_graph, is_graph, tree_of_edges
from rapids_slink.spanning_tree.relational import connect_graph


def fit(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """The attributes of a model fitted on points: those of `pipeline.attributes_of`, and ``report_``."""
    device = resolve(settings.device, X)
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit):
        fitted = pipeline.fit(X, settings, rule, device, report)
    return {**fitted, "report_": report}


def plan(X: Any, settings: Settings) -> Report:
    """`api.plan`."""
    device = resolve(settings.device, *([] if planning.is_shape(X) else [X]))
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit):
        planning.plan(X, settings, device, report)
    return report


def append(X: Any, model: Fitted, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """The attributes of a model with further rows."""
    device = resolve(settings.device, X, model.rows.values)
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit):
        fitted = pipeline.append(X, model, settings, rule, device, report)
    return {**fitted, "report_": report}


def predict(answer: Callable[..., Any], X: Any, rows: Any, device: str, memory_limit: Any) -> tuple[Any, Report]:
    """The answer of a prediction for new rows beside a model's `rows`, and its report."""
    chosen = resolve(device, X, rows)
    report = Report(device=chosen.name)
    with run_scope(chosen, memory_limit):
        return answer(X, device=chosen, report=report), report


def fit_graph(
    edges: Any, *, cut: tuple[Any, Any], n_nodes: Any, complete: str, device: str, memory_limit: Any
) -> graph.GraphHierarchy:
    """`api.fit_graph`; `cut` is `n_clusters` and `distance_threshold`."""
    source = given_graph(edges)
    chosen = resolve(device, source.frame)
    report = Report(device=chosen.name)
    with run_scope(chosen, memory_limit):
        result = graph.fit_graph(source, cut, n_nodes, complete, chosen, report)
    result.report_ = report
    return result


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: str, memory_limit: Any) -> Any:
    """`api.knn_graph`."""
    chosen = resolve(device, X)
    with run_scope(chosen, memory_limit):
        return neighbors.knn_graph(X, n_neighbors, metric, chosen)


def nearest_neighbors(X: Any, Y: Any, metric: Metric, device: str, memory_limit: Any) -> Any:
    """`api.nearest_neighbors`."""
    chosen = resolve(device, X, Y)
    with run_scope(chosen, memory_limit):
        return neighbors.nearest_neighbors(X, Y, metric, chosen)


def connect(graph: Any, X: Any, *, certified: bool, metric: Metric, device: str, memory_limit: Any) -> Any:
    """`api.connect`."""
    chosen = resolve(device, X)
    with run_scope(chosen, memory_limit):
        return connect_graph(graph, X, certified, metric, chosen)


def minimum_spanning_tree(edges: Any, *, maximum: bool, component: bool, device: str, memory_limit: Any) -> Any:
    """`api.minimum_spanning_tree`."""
    if component and is_graph(edges) and not library_of(edges):
        raise ValueError(f"component=True adds a column, and a {type(edges).__name__} has none: pass a DataFrame")
    source = given_graph(edges)
    chosen = resolve(device, source.frame)
    frame, output = OutputKind.of(source.frame, chosen)
    with run_scope(chosen, memory_limit):
        tree = tree_of_edges(frame, chosen, maximum=maximum, component=component)
    return output.frame(tree) if source.as_graph is None else source.as_graph(tree)


def linkage(tree: Any, *, n_nodes: Any, device: str, memory_limit: Any) -> Any:
    """`api.linkage`."""
    chosen = resolve(device, tree)
    tree, output = OutputKind.of(tree, chosen)
    require_columns(tree, ("src", "dst", "weight"), "tree")
    with run_scope(chosen, memory_limit):
        return output.frame(dendrograms.linkage_of_edges(tree, n_nodes, chosen).frame)


def cut(linkage: Any, parameters: cutting.CutParameters, n_leaves: Any) -> Any:
    """`api.cut`."""
    linkage, output = OutputKind.of(linkage, resolve("auto", linkage))
    require_columns(linkage, cutting.COLUMNS, "linkage")
    n = cutting.count_leaves(len(linkage), n_leaves)
    check = partial(cutting.check_linkage, linkage, n, is_forest=n_leaves is not None)
    return cutting.cut_frame(linkage, n, parameters, output, check=check)

"""A fit in which some rows may not be in one cluster, of points and of items.

    X ──▶ all pairs within max_distance ──constrained_forest──▶ forest ──▶ linkage, cut, labels, as those of any points

All pairs are needed, not only a minimum spanning tree: where an edge of it is refused, a heavier one may be taken.
"""

from typing import Any

from rapids_slink import item_pipeline, pipeline
from rapids_slink.dendrogram.cutting import ClusterRule
from rapids_slink.items.search import kind_of
from rapids_slink.metrics import PRECOMPUTED
from rapids_slink.neighbors.within import NearPairs, PairFrames, PairTask, read_pairs, room_for_pairs
from rapids_slink.points import warn_of_distances
from rapids_slink.points.output import is_collection
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, check_memory
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.graphs import EdgeList
from rapids_slink.spanning_tree.graphs.constrained import (
    NAME,
    constrained_bytes,
    constrained_forest,
    marks_of_rows,
    read_rows,
)

ADVICE = "Pass a smaller max_distance, or collect the edges of iter_pairs for fit_graph(edges, cannot_link=...)"


def fit(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model fitted with `Settings.cannot_link`; see `pipeline.fit`."""
    _check(X, settings)
    return pipeline.fit(X, settings, rule, fit_rows)


def _check(X: Any, settings: Settings) -> None:
    """Raise ValueError for a Dask collection, and for parameters that cannot be combined with `cannot_link`."""
    if is_collection(X):
        raise ValueError(f"{NAME} is for rows on one device, and X is a Dask collection")
    if settings.metric is PRECOMPUTED:
        raise ValueError(f"{NAME} of given distances: pass their edges to fit_graph(edges, {NAME}=...)")
    if settings.max_distance is None:
        raise ValueError(f"{NAME} takes all pairs within a distance: pass max_distance, or min_similarity")
    for parameter, is_set in (
        ("groups", settings.groups is not None),
        ("min_samples above 1", settings.min_samples > 1),
        ("prediction_data=True", settings.prediction_data),  # `append` and `predict` know no constraint
    ):
        if is_set:
            raise ValueError(f"{NAME} cannot be combined with {parameter}")


def fit_rows(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Fit rows of which some may not be together, and return the attributes; see `pipeline.fit_points`."""
    assert settings.max_distance is not None
    with report.stage("input", device):
        X, marked = read_rows(X, settings.cannot_link, device)
        task = PairTask.of(settings, settings.max_distance)
        near: PairFrames
        if kind_of(settings.metric, X):
            near = item_pipeline.NearItems(X, None, task, device)
            d = near.distinct.items.n_features
        else:
            points_of_pairs = read_pairs(X, None, task, device)
            warn_of_distances(points_of_pairs.queries.values, device)
            near, d = NearPairs(points_of_pairs, task, device), points_of_pairs.shape[2]
        n, points = near.n_rows, near.ends[0]
        rule.check_rows(n)
        marks = marks_of_rows(marked, n)
    report["way"] = NAME
    with report.stage("pairs", device):
        every, room = slice(0, n), room_for_pairs(device)
        near_pairs = near.find(every, room)
        if near_pairs.src is None:
            near.refuse(near_pairs.count, every, room, ADVICE)
        # Pairs are sorted by (src, dst), so the edges' numbers have the order of the total order among equal weights.
        edges = EdgeList(near_pairs.src, near_pairs.dst, near_pairs.weight, n)
        report.count("pairs", pairs=near_pairs.count)
    with report.stage("spanning_tree", device):
        needed = MemoryEstimate(constrained_bytes(near_pairs.count, marks) + TREE_BYTES[device.name] * n)
        check_memory(device, needed, f"{counted(near_pairs.count, 'pair')} of {counted(n, 'row')}")
        rows, refused = constrained_forest(edges, marks, device)
        report.count("spanning_tree", refused=refused)
        tree = PreallocatedFrame.empty(device, rows.size, EDGE_TYPES)
        for column, values in zip(tree.columns.values(), (edges.src, edges.dst, edges.weight), strict=True):
            column[...] = values[rows]
    return pipeline.attributes_of(points, (tree, n - rows.size), (n, d), settings, rule, device, report)

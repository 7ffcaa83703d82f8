"""What is timed: each stage prepares its input, untimed, and returns the call to time."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import rapids_slink
from bench import first
from bench.cases import Case, SparseCase
from bench.graphs import Graph
from bench.trees import Tree
from rapids_slink.points.output import frame_of
from rapids_slink.runtime.device import Device, resolve

#: A frame that is spread over a cluster has `PARTITIONS` partitions, or more of at least `PARTITION_ROWS` rows each.
PARTITIONS, PARTITION_ROWS = 8, 500_000
#: The neighbours of each query, by stage.
LISTED = {f"nearest_{k}": k for k in (1, 10, 100)}
#: The clusters of the stage that makes many cuts in one call.
MANY_CUTS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
#: The parameters of the stage that chooses clusters by each pair of them.
MANY_SIZES, MANY_SAMPLES = (5, 15, 50), (5, 10, 25)


@dataclass
class Work:
    """A case on a device, and what earlier stages made of it for later ones."""

    case: Case
    device: Device
    folder: Path | None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and of features."""
        n, d = self.points.shape
        return n, d

    @property
    def stages(self) -> set[str]:
        """Return the stages that there is an input for."""
        if self.case.group is not None:
            return {"groups"}
        if self.points.dtype == object:
            return {"fit", "pairs"}
        usual = {"fit", "connect", "linkage", "cut", "cuts", "pairs", "count", "friends", "dbscan"}
        is_plain = self.case.metric == "euclidean" and self.case.box is None
        of_trees = set() if self.case.max_distance is None else {"linkage", "cut", "cuts"}  # they take no forest
        return ({*STAGES} - {"groups"} if is_plain else usual) - of_trees

    @cached_property
    def points(self) -> np.ndarray:
        """Return the points on the host, as the case has them."""
        return self.case.points(self.folder)

    @cached_property
    def group(self) -> np.ndarray:
        """Return the number of each row's group, (n,); without groups in the case each fifty rows are one."""
        n = len(self.points)
        return np.arange(n) // 50 if self.case.group is None else self.case.group(n)

    @cached_property
    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the queries and the searched points of `nearest_neighbors`, on the host."""
        return self.case.split(self.folder)

    @cached_property
    def table(self) -> Any:
        """Return the points as a user holds them: a frame of the device."""
        return frame_of_points(self.points, self.device)

    @cached_property
    def model(self) -> Any:
        """Return a fitted model."""
        return fit(self)()

    @cached_property
    def edges(self) -> Any:
        """Return the k-NN edge frame."""
        return knn(self)()

    @cached_property
    def near(self) -> float:
        """Return the distance within which pairs, or clusters, are wanted.

        It is the case's `near` or `max_distance`, or else the median height of the tree.
        """
        given = [distance for distance in (self.case.near, self.case.max_distance) if distance is not None]
        return given[0] if given else float(self.merges["height"].median())

    @property
    def tree(self) -> Any:
        """Return the minimum spanning tree."""
        return self.model.mst_

    @property
    def merges(self) -> Any:
        """Return the linkage frame."""
        return self.model.linkage_


class SparseWork(Work):
    """Rows in a sparse matrix, on the host as a user has them."""

    @property
    def stages(self) -> set[str]:
        """Return the stages that take such rows."""
        return {"fit", "pairs"}

    @cached_property
    def table(self) -> Any:
        """Return the matrix."""
        return self.points


@dataclass
class NodesWork:
    """What stands in for `Work` where the case has nodes instead of points."""

    case: Any
    device: Device

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of nodes, and 0 for the features."""
        return self.case.n, 0


@dataclass
class TreeWork(NodesWork):
    """A tree on a device."""

    case: Tree

    @property
    def stages(self) -> set[str]:
        """Return the stages that there is an input for."""
        return {"linkage", "cut", "cuts"}

    @cached_property
    def tree(self) -> Any:
        """Return the frame of the tree's edges, in no order."""
        return frame_of(self.device, {name: self.device.asarray(column) for name, column in self.case.edges().items()})

    @cached_property
    def merges(self) -> Any:
        """Return the linkage frame."""
        return linkage(self)()


@dataclass
class GraphWork(NodesWork):
    """A graph on a device."""

    case: Graph

    @property
    def stages(self) -> set[str]:
        """Return the stages that there is an input for."""
        return {"spanning_tree"}

    @cached_property
    def edges(self) -> Any:
        """Return the edge frame."""
        return frame_of(self.device, self.case.edges(self.device))


AnyWork = Work | TreeWork | GraphWork


def work_on(case: Case | Tree | Graph, device: Device, folder: Path | None) -> AnyWork:
    """Return the work that a case is, on a device."""
    if isinstance(case, Tree):
        return TreeWork(case, device)
    if isinstance(case, SparseCase):
        return SparseWork(case, device, folder)
    return GraphWork(case, device) if isinstance(case, Graph) else Work(case, device, folder)


Call = Callable[[], Any]


def fit(work: Work, n_neighbors: int | None = None) -> Call:
    """Prepare the whole pipeline, from a frame."""
    table, case, device = work.table, work.case, work.device.name
    return lambda: rapids_slink.fit(table, case.n_clusters, n_neighbors=n_neighbors, device=device, **case.how)


def fit_array(work: Work) -> Call:
    """Prepare the whole pipeline, from an array to an array of labels."""
    points, case, device = work.device.asarray(work.points), work.case, work.device.name
    return lambda: rapids_slink.fit(points, case.n_clusters, device=device, **case.how)


def forest(work: Work) -> Call:
    """Prepare the whole pipeline through lists of the case's length.

    The reader takes the time of Borůvka's rounds on them from the model.
    """
    return fit(work, work.case.n_neighbors)


def groups(work: Work) -> Call:
    """Prepare the whole pipeline of each group of rows, from a frame and an array of keys."""
    table, k, device = work.table, work.case.n_clusters, work.device.name
    keys = work.device.asarray(work.group)
    return lambda: rapids_slink.fit(table, k, groups=keys, device=device, **work.case.how)


def knn(work: Work) -> Call:
    """Prepare a search of all points among all, from an array."""
    points, k, device = work.device.asarray(work.points), work.case.n_neighbors, work.device.name
    return lambda: rapids_slink.knn_graph(points, k, device=device)


def nearest_neighbors(work: Work) -> Call:
    """Prepare a search for the nearest point of each query."""
    queries, points = (work.device.asarray(part) for part in work.split)
    device = work.device.name
    return lambda: rapids_slink.nearest_neighbors(queries, points, device=device)


def nearest_lists(work: Work, k: int) -> Call:
    """Prepare a search for the k nearest points of each query, from arrays to arrays."""
    queries, points = (work.device.asarray(part) for part in work.split)
    device = work.device.name
    return lambda: rapids_slink.nearest_neighbors(queries, points, k, output="arrays", device=device)


def pairs(work: Work) -> Call:
    """Prepare a search for all pairs within a distance, from a frame."""
    table, distance, device = work.table, work.near, work.device.name
    how = {name: value for name, value in work.case.how.items() if name != "max_distance"}
    return lambda: rapids_slink.pairs(table, max_distance=distance, device=device, **how)


def count(work: Work) -> Call:
    """Prepare a count of the pairs within a distance, from a frame."""
    table, distance, device = work.table, work.near, work.device.name
    how = {name: value for name, value in work.case.how.items() if name != "max_distance"}
    return lambda: rapids_slink.count_pairs(table, max_distance=distance, device=device, **how)


def deduplicate(work: Work) -> Call:
    """Prepare the first row of each row's component of near rows, from a frame."""
    table, distance, device = work.table, work.near, work.device.name
    return lambda: rapids_slink.deduplicate(table, max_distance=distance, device=device)


def friends(work: Work) -> Call:
    """Prepare the clusters that steps within a distance connect, from an array."""
    points, device = work.device.asarray(work.points), work.device.name
    how = work.case.how | {"max_distance": work.near}
    return lambda: rapids_slink.fit(points, device=device, **how).labels_


def dbscan(work: Work) -> Call:
    """Prepare the clusters of DBSCAN, from an array."""
    points, how = work.device.asarray(work.points), {**work.case.how, "device": work.device.name}
    del how["max_distance"]
    model = rapids_slink.DBSCAN(work.near, work.case.min_samples, **how)
    return lambda: model.fit(points).labels_


def append(work: Work) -> Call:
    """Prepare the addition of the queries of `nearest_neighbors` to the searched points' model."""
    new, old = (work.device.asarray(part) for part in work.split)
    k, device = work.case.n_clusters, work.device.name
    model = rapids_slink.SingleLinkage(k, device=device, prediction_data=True).fit(old)
    return lambda: copy(model).append(new)


def spanning_tree(work: Work | GraphWork) -> Call:
    """Prepare the minimum spanning forest of an edge frame: a graph's, or that of the k-NN lists."""
    edges, device = work.edges, work.device.name
    return lambda: rapids_slink.minimum_spanning_tree(edges, device=device)


def linkage(work: Work | TreeWork) -> Call:
    """Prepare the linkage of the tree."""
    tree, device = work.tree, work.device.name
    return lambda: rapids_slink.linkage(tree, device=device)


def cut(work: Work | TreeWork) -> Call:
    """Prepare the labels of one cut of the linkage."""
    merges, n_clusters = work.merges, work.case.n_clusters
    return lambda: rapids_slink.cut(merges, n_clusters=n_clusters)


def cuts(work: Work | TreeWork) -> Call:
    """Prepare the labels of many cuts of the linkage."""
    merges, n_clusters = work.merges, [k for k in MANY_CUTS if k <= work.shape[0]]
    return lambda: rapids_slink.cut(merges, n_clusters=n_clusters)


def hdbscan(work: Work) -> Call:
    """Prepare the tree of mutual reachability, and the clusters that are chosen from it."""
    table, m, device = work.table, work.case.min_samples, work.device.name
    return lambda: rapids_slink.HDBSCAN(m, m, device=device).fit(table)


def hdbscan_many(work: Work) -> Call:
    """Prepare the labels of HDBSCAN by nine pairs of parameters, from one k-NN graph."""
    table, model = work.table, rapids_slink.HDBSCAN(device=work.device.name)
    return lambda: model.select(table, min_cluster_size=MANY_SIZES, min_samples=MANY_SAMPLES)


def partitioned(work: Work) -> Call:
    """Prepare the whole pipeline from a Dask frame whose partitions are on the current client's workers."""
    from dask import dataframe
    from distributed import wait

    case, device, n = work.case, work.device.name, len(work.points)
    if work.device.is_gpu:
        import dask_cudf  # noqa: F401 (so that frames may be cuDF's)
    parts = max(PARTITIONS, n // PARTITION_ROWS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        np.save(path, work.points)
        rows = [slice(n * p // parts, n * (p + 1) // parts) for p in range(parts)]
        meta = rows_of_file(slice(0, 0), path, device)
        frame = dataframe.from_map(rows_of_file, rows, path=path, device=device, meta=meta).persist()
        wait(frame)
    return lambda: rapids_slink.fit(frame, case.n_clusters, device=device, **case.how)


def rows_of_file(rows: slice, path: Path, device: str) -> Any:
    """Return some of a file's points as a frame of the device."""
    return frame_of_points(np.load(path, mmap_mode="r")[rows].copy(), resolve(device))


def frame_of_points(points: np.ndarray, device: Device) -> Any:
    """Return points as a user holds them: a frame of the device."""
    if points.dtype == object:
        return device.frames.DataFrame({"text": points[:, 0].tolist()})
    array = device.asarray(points)
    return device.frames.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])


def seconds_of(stage: str) -> Callable[[Any], float]:
    """Return a function that reads from a fitted model what a stage without a public function took."""
    return lambda model: float(model.report_["seconds"].get(stage, 0.0))


STAGES: dict[str, Callable[[Any], Call]] = {
    "fit": fit,
    "fit-array": fit_array,
    "groups": groups,
    "knn": knn,
    "nearest_neighbors": nearest_neighbors,
    **{stage: partial(nearest_lists, k=k) for stage, k in LISTED.items()},
    "pairs": pairs,
    "count": count,
    "deduplicate": deduplicate,
    "friends": friends,
    "dbscan": dbscan,
    "append": append,
    "spanning_tree": spanning_tree,
    "connect": fit,
    "forest": forest,
    "linkage": linkage,
    "cut": cut,
    "cuts": cuts,
    "hdbscan": hdbscan,
    "hdbscan_many": hdbscan_many,
    "dask": partitioned,
    "first": first.of_script(first.OURS, cached=True),
    "first-compiling": first.of_script(first.OURS, cached=False),
}
READERS = {
    "connect": seconds_of("connect"),
    "forest": seconds_of("spanning_tree"),
    "first": first.seconds,
    "first-compiling": first.seconds,
}

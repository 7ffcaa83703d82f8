"""Labels from a linkage frame, on the frame's device, and the rules by which models choose flat clusters.

A cut keeps a prefix of the merges. Each kept merge points at the kept merge that takes its cluster, and these pointers
lead to the last one. On a GPU pointers are doubled among a sample of the merges, so the time hardly depends on the
shape of the tree. Each of several cuts is made by itself.

Rows in groups have a forest, whose merges are in one order over all groups. A cut by a distance keeps the first merges
of the whole order. A cut by a number of clusters keeps the first merges of each group. Either way the kept merges are
the linkage of a forest, because a merge comes after the merges of its parts, and these belong to its group.

`inherit_labels` is a cut by groupby and merge of frames, `method="merge"` of `api.cut`: an executable definition. Every
cluster inherits the parent of its parent: the table (child, parent) is merged with itself, which doubles how far a row
points, until no row points further. Kernels do the same by gathers, because a merge whose key is a row number is a
gather.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from numbers import Real
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from rapids_slink.dendrogram.condense import (
    Condensed,
    Merges,
    Rule,
    Selected,
    Summary,
    Weighting,
    condense,
    condensed_frame,
    outlier_scores,
    select,
    summarize,
    weigh,
)
from rapids_slink.metrics import SIGNED, Metric, largest_distance
from rapids_slink.points.check import (
    MAX_ROWS,
    as_integer,
    check_weights,
    column_values,
    require_columns,
    require_numbers,
    warn,
)
from rapids_slink.points.keys import GROUP_COLUMNS
from rapids_slink.points.output import OutputKind, PreallocatedFrame, frame_of
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device, all_true, device_of, half, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, copy_out, run_scope

COLUMNS = ("left", "right", "height", "size")
#: Bytes per leaf that checking and cutting take at their peak, and of a label in an array and in a frame.
LEAF_BYTES, LABEL_BYTES = 64, 8
#: Up to this number of leaves the host makes the dendrogram of a GPU's tree faster than the GPU launches kernels.
FEW_LEAVES = 2**11
#: The label of rows in clusters that are too small.
OUTLIER = -1
METHODS = ("kernel", "merge")
#: Passed in place of a number of clusters, this stands for the cut at the widest gap between merges: `at_widest_gap`.
WIDEST_GAP = "widest_gap"
#: Below this many rows a cluster of one row is not taken for an outlier.
FEW_ROWS = 100
#: Names of parameters of a cut in other packages, and the names that these have here.
MEANINGS = {
    "t": "distance_threshold", "h": "distance_threshold", "height": "distance_threshold",
    "threshold": "distance_threshold", "eps": "distance_threshold", "cut_distance": "distance_threshold",
    "k": "n_clusters", "maxclust": "n_clusters", "min_size": "min_cluster_size",
}  # fmt: skip
#: A cut warns of outliers if one cluster has this share of the rows, and most others have one row.
MOST_ROWS = 0.95
#: The sides at which a range up to a threshold is closed: "left" keeps merges below it, "right" also those at it.
CLOSED = ("left", "right")
#: The names of a cluster: its rank in the order of first appearance, or its smallest row number.
NAMES = ("number", "first_row")


class CutOptions(TypedDict, total=False):
    """The parameters that any cut takes beside a number of clusters or a distance, for typing tools."""

    min_cluster_size: int | None
    max_cluster_size: int | None
    count_small: bool
    closed: str
    names: str
    sample_weight: Any


@dataclass(frozen=True)
class CutParameters:
    """The parameters of `api.cut` that say where to cut, and how."""

    n_clusters: Any = None
    distance_threshold: Any = None
    min_cluster_size: int | None = None
    method: str = "kernel"
    closed: str = "left"
    names: str = "number"
    sample_weight: Any = None
    max_distance: float | None = None  # the distance up to which the linkage has merges
    column_values: list[Any] | None = None  # the names of several cuts if these are not the parameter's values
    max_cluster_size: Any = None
    count_small: bool = True
    #: whether the number of clusters is a default, in place of which the nearest is taken that a linkage has
    is_default: bool = False

    @property
    def values(self) -> tuple[list[Any], bool]:
        """Return the values of the parameter that is set, and whether it is a sequence."""
        value = self.distance_threshold if self.n_clusters is None else self.n_clusters
        if getattr(value, "ndim", None) == 1:
            return to_host(value).tolist(), True
        if isinstance(value, list | tuple | range):
            return [one.item() if hasattr(one, "item") else one for one in value], True
        return [value], False

    def checked(self) -> Self:
        """Return the parameters, and raise for sizes that are not valid or do not go together.

        From then on a text in place of a number of clusters is `WIDEST_GAP`. A largest size splits the clusters of the
        threshold, which becomes infinite if it is None.
        """
        least, max_size = self.min_cluster_size, self.max_cluster_size
        is_text = isinstance(self.n_clusters, str)
        if is_text and self.n_clusters != WIDEST_GAP:
            raise TypeError(f"n_clusters must be an integer, got {self.n_clusters!r}")
        if least is not None and as_integer(least, "min_cluster_size") < 1:
            raise ValueError(f"min_cluster_size must be at least 1, got {least}")
        if not self.count_small and (self.n_clusters is None or is_text or least is None):
            raise ValueError("count_small=False takes n_clusters=, a number, and min_cluster_size=")
        if max_size is None:
            return self
        if as_integer(max_size, "max_cluster_size") < max(1, least or 1):
            lowest = "1" if least is None else f"min_cluster_size={least}"
            raise ValueError(f"max_cluster_size must be at least {lowest}, got {max_size}")
        if self.n_clusters is not None:
            raise ValueError("max_cluster_size splits clusters, so that there are more than n_clusters: leave that out")
        return replace(self, distance_threshold=inf) if self.distance_threshold is None else self

    def column_names(self) -> list[Any]:
        """Return the names of the cuts' columns: their values, or "label" for a single cut.

        Raises ValueError unless all values differ, and for parameters that are valid for no linkage.
        """
        for name, valid in (("method", METHODS), ("closed", CLOSED), ("names", NAMES)):
            if getattr(self, name) not in valid:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, valid))}, got {getattr(self, name)!r}")
        for name in ("sample_weight", "max_cluster_size"):
            if self.method == "merge" and getattr(self, name) is not None:
                raise ValueError(f"{name} is for method='kernel'")
        values, many = self.values
        name = "distance_threshold" if self.n_clusters is None else "n_clusters"
        if not values:
            raise ValueError(f"{name} must hold at least one value, got none")
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"{name} must not hold a value twice, since each names a column; got {twice} twice")
        return (self.column_values or values) if many else ["label"]

    def of(self, linkage: PreallocatedFrame, n: int) -> tuple[Self, list[int]]:
        """Return the parameters for this valid linkage of n leaves, and how many of the first merges each cut keeps.

        The widest gap becomes the number of clusters there, and a smallest size that is None its default. A number of
        large clusters becomes the number of all clusters. Raises unless the linkage has all of these cuts.
        """
        if not self.count_small:
            return self._of_large(linkage, n).of(linkage, n)
        if isinstance(self.n_clusters, str):
            if self.sample_weight is not None:
                raise ValueError(f"{WIDEST_GAP!r} counts rows: leave sample_weight out")
            least = self.min_cluster_size or least_size(n)
            return replace(self, n_clusters=at_widest_gap(linkage, n, least), min_cluster_size=least).of(linkage, n)
        height, (values, _), xp = linkage.columns["height"], self.values, linkage.device.xp
        if self.is_default:
            values = [max(n - len(height), min(self.n_clusters, n))]
        for value in values:
            number, distance = (None, value) if self.n_clusters is None else (value, self.distance_threshold)
            check_cut(n, n - len(height), number, distance, self.max_distance)
        if self.n_clusters is not None:
            return self, [n - int(value) for value in values]
        if not len(height):
            return self, [0] * len(values)
        # Heights ascend, so this counts those below the threshold, or those up to it.
        height, thresholds = height.astype("float64", copy=False), xp.asarray(values, "float64")
        return self, xp.searchsorted(height, thresholds, side=self.closed).tolist()

    def _of_large(self, linkage: PreallocatedFrame, n: int) -> Self:
        """Return the parameters with the numbers of all clusters in place of the numbers of large ones.

        Each number is that of the coarsest cut with the given number of clusters of at least this size.
        """
        (values, many), least = self.values, self.min_cluster_size or 1
        large = count_large(linkage, sizes_of(linkage, n, self.weights(n, linkage.device)), least)
        counts = []
        for value in values:
            if as_integer(value, "n_clusters") < 1:
                raise ValueError(f"n_clusters must be at least 1, got {value}")
            undone = int((large == value).argmax())
            if int(large[undone]) != value:
                unit = "rows" if self.sample_weight is None else "by weight"
                raise ValueError(
                    f"no cut has {value} clusters of at least {least:,} {unit}: cuts have from {int(large.min())} to "
                    f"{int(large.max())}"
                )
            counts.append(n - linkage.columns["height"].size + undone)
        numbers = counts if many else counts[0]
        names = self.column_values or values
        return replace(self, n_clusters=numbers, column_values=names, count_small=True)

    def weights(self, n: int, device: Device) -> Array:
        """Return `sample_weight` as an (n,) float64 array of the device, or None if all leaves count as one."""
        return None if self.sample_weight is None else check_weights(self.sample_weight, n, device)


def least_size(n: int) -> int:
    """Return the least number of rows of a cluster that is no outlier: a hundredth of n, at least 5."""
    return max(5, n // 100)


def sizes_of(linkage: PreallocatedFrame, n: int, weights: Array = None) -> Array:
    """Return the number of leaves in each of n leaves and in each merge, or the sums of their weights, (n + merges,).

    Raises ValueError if the sizes in the linkage are not these numbers; with weights they are not read.
    """
    device, xp, size = linkage.device, linkage.device.xp, linkage.columns["size"]
    left_child, right_child = (linkage.columns[side] for side in ("left", "right"))
    if weights is not None:  # on the host, so that both devices sum in one order
        own = to_host(weights)
        return device.asarray(np.concatenate([own, weigh(to_host(left_child), to_host(right_child), own)]))
    sizes = xp.concatenate([xp.ones(n, size.dtype), size])
    if not all_true(sizes[left_child] + sizes[right_child] == size):
        raise ValueError("column 'size' of the linkage must hold how many leaves each cluster has")
    return sizes


def count_large(linkage: PreallocatedFrame, sizes: Array, least: int) -> Array:
    """Count the clusters of at least this size in the coarsest cut, and in each finer one, (merges + 1,) int64.

    From one cut to the next the number changes by one at most.
    """
    xp, large = linkage.device.xp, sizes >= least
    left_child, right_child = (linkage.columns[side] for side in ("left", "right"))
    is_root = xp.ones(large.size, bool)
    is_root[left_child] = is_root[right_child] = False
    parts = large[left_child].astype("int64") + large[right_child]
    gained = (parts - large[large.size - left_child.size :])[::-1]
    return (is_root & large).sum() + xp.concatenate([xp.zeros(1, "int64"), xp.cumsum(gained)])


def at_widest_gap(linkage: PreallocatedFrame, n: int, least: int) -> int:
    """Return the number of clusters at the widest gap between merges that leaves two clusters of at least this size.

    Raises ValueError if no cut has two such clusters.
    """
    xp, heights = linkage.device.xp, linkage.columns["height"][::-1].astype("float64")
    large = count_large(linkage, sizes_of(linkage, n), least)
    if int(large.max()) < 2:
        raise ValueError(f"no cut has two clusters of at least {counted(least, 'row')}: pass a lower min_cluster_size")
    gap = -xp.diff(heights, prepend=heights[:1], append=xp.zeros(1))
    return int(xp.where(large >= 2, gap, -xp.inf).argmax()) + n - heights.size


def small_enough(linkage: PreallocatedFrame, n: int, parameters: CutParameters) -> Array:
    """Return whether each merge makes a cluster of at most the largest size, (merges,) bool.

    If a merge does, so do the merges within it.
    """
    return sizes_of(linkage, n, parameters.weights(n, linkage.device))[n:] <= parameters.max_cluster_size


def warn_of_heavy_rows(parameters: CutParameters, n: int) -> None:
    """Warn if single rows weigh more than the largest cluster may."""
    max_size, weights = parameters.max_cluster_size, parameters.weights(n, CPU)
    heavy = 0 if max_size is None or weights is None else int((weights > max_size).sum())
    if heavy:
        warn(
            f"{counted(heavy, 'row')} of a weight above max_cluster_size={max_size} cannot be split: "
            f"{'it is a cluster' if heavy == 1 else 'each is a cluster'} by itself"
        )


def warn_of_outliers(linkage: Mapping[str, Array], n: int, n_clusters: int) -> None:
    """Warn if one of the clusters of n rows in one tree has nearly all rows, and most others have one.

    `linkage` holds the columns. The last merges are undone: rows that they merge are clusters of one row, and the
    largest of the other merges is the largest cluster.
    """
    kept = n - n_clusters
    if n < FEW_ROWS or not 0 < kept < n - 1 or linkage["size"].size != n - 1:
        return
    single = sum(np.count_nonzero(to_host(linkage[side][kept:]) < n) for side in ("left", "right"))
    if 2 * single <= n_clusters - 1:
        return
    largest = n - single if single == n_clusters - 1 else int(linkage["size"][:kept].max())
    if largest >= MOST_ROWS * n:
        have = "has" if single == 1 else "have"
        warn(
            f"of {n_clusters:,} clusters the largest has {largest / n:.1%} of the rows, and {single:,} {have} one row. "
            f"If these are outliers, n_clusters={WIDEST_GAP!r} cuts between large clusters, and min_cluster_size= "
            "labels the rows of small ones -1"
        )


def cut_frame(
    linkage: Any,
    n_leaves: int,
    parameters: CutParameters,
    output: OutputKind,
    index: Any = None,
    check: Callable[[Device], None] = lambda device: None,
    groups: tuple[Any, Any] | None = None,
) -> Any:
    """Cut a linkage frame in a separate run, on its device, and return what `api.cut` does, of this kind of `output`.

    The labels have the `index`. `check` is called with the device before anything is cut. With `groups`, see
    `cut_groups`, the number of clusters is the number in each group.
    """
    device, merges = device_of(linkage), len(linkage)
    values, many = parameters.values
    with run_scope(device):
        what = f"{counted(len(values), 'cut')} of {counted(merges, 'merge')}"
        check_memory(device, MemoryEstimate((LEAF_BYTES + LABEL_BYTES * len(values)) * n_leaves), what)
        check(device)
        by_size = isinstance(parameters.n_clusters, str) or not parameters.count_small
        read = COLUMNS if by_size or parameters.max_cluster_size is not None else COLUMNS[:3]
        columns = {name: column_values(linkage[name], device) for name in read}
        frame = PreallocatedFrame(columns, device)
        labels = (
            cut_labels(soonest(frame, n_leaves), n_leaves, parameters).on(device)
            if groups is None
            else cut_groups(frame, n_leaves, parameters, groups)
        )
    output = output.from_cuml_setting()
    if not many:
        return output.labels(labels.columns["label"], index)
    return output.frame(labels.frame, index) if output.is_frame else output.array(labels.frame.values)


def soonest(edges: PreallocatedFrame, n: int) -> PreallocatedFrame:
    """Return the edges or merges of n leaves on the device that makes their dendrogram in the least time.

    This is the host for a few leaves, and the device of the edges otherwise.
    """
    return edges.on(CPU) if n <= FEW_LEAVES else edges


def cut_labels(linkage: PreallocatedFrame, n_leaves: int, parameters: CutParameters) -> PreallocatedFrame:
    """Return the labels of each cut of a valid linkage, as `api.cut` does: a row for each leaf, a column for each cut.

    Columns are int32. A column is named by the cut's value, or "label" for a single cut.
    """
    device, n = linkage.device, n_leaves
    parameters, kept = parameters.of(linkage, n)
    fits = None if parameters.max_cluster_size is None else small_enough(linkage, n, parameters)
    labels = PreallocatedFrame.empty(device, n, dict.fromkeys(parameters.column_names(), "int32"))
    for column, merges in zip(labels.columns.values(), kept, strict=True):
        if parameters.method == "merge":
            least = parameters.min_cluster_size or 1
            column[...] = inherit_labels(linkage.frame, n, merges, device.frames, least).values
        else:
            column[...] = label_kept(linkage, merges, n, parameters, fits)
        if parameters.names == "first_row":
            name_by_first_row(column, device.xp)
    return labels


def cut_groups(
    linkage: PreallocatedFrame, n_leaves: int, parameters: CutParameters, groups: tuple[Any, Any]
) -> PreallocatedFrame:
    """Return the labels of cuts by a number of clusters in each group, as `cut_labels` does.

    `groups` holds a model's frames ``_merge_group_`` and ``groups_``.
    """
    values, _ = parameters.values
    for value in values:
        check_number(value, parameters.count_small)
    names, device = parameters.column_names(), linkage.device
    group, rows = (
        column_values(OutputKind.of(frame, device)[0][name], device)
        for frame, name in zip(groups, ("group", "rows"), strict=True)
    )
    labels = PreallocatedFrame.empty(device, n_leaves, dict.fromkeys(names, "int32"))
    rank = half(device, __package__).ranks_in_groups(group, len(rows))
    for column, value in zip(labels.columns.values(), values, strict=True):
        kept = rank < (rows - min(int(value), n_leaves))[group]
        column[...] = label_kept(linkage, kept.size, n_leaves, parameters, kept)
        if parameters.names == "first_row":
            name_by_first_row(column, device.xp)
    return labels


def label_kept(merges: PreallocatedFrame, first: int, n: int, parameters: CutParameters, kept: Array = None) -> Array:
    """Return the labels of the clusters that the first merges of n leaves form, (n,) int32, numbered.

    If there is an array of booleans, `kept`, only those of the merges take place that it marks. Clusters that are too
    small for the `parameters` have the label `OUTLIER`.
    """
    device, xp = merges.device, merges.device.xp
    children = (merges.columns[side][:first].astype("int32", copy=False) for side in ("left", "right"))
    marks = () if kept is None else (kept[:first],)
    labels = half(device, __package__).label_clusters(*children, n, *marks)[:n]
    return without_small(labels, parameters.min_cluster_size, parameters.weights(n, device), xp)


def without_small(labels: Array, least: int | None, weights: Array, xp: Any) -> Array:
    """Return the labels with `OUTLIER` for rows of clusters that have fewer rows, or less weight, than `least`."""
    if least is None or least <= 1:
        return labels
    large = xp.bincount(labels, weights=weights) >= least
    return xp.where(large, xp.cumsum(large, dtype="int32") - 1, OUTLIER).astype("int32", copy=False)[labels]


def name_by_first_row(labels: Array, xp: Any) -> None:
    """Replace the number of each cluster by its smallest row; `OUTLIER` stays."""
    rows = xp.arange(labels.size, dtype="int32")
    first = xp.full(labels.size + 1, labels.size, "int32")
    xp.minimum.at(first, labels, rows)
    first[OUTLIER] = OUTLIER
    labels[...] = first[labels]


def check_max_distance(thresholds: Sequence[Any], max_distance: float | None) -> None:
    """Raise for thresholds above `max_distance`, up to which clusters were merged. None is no limit."""
    for value in thresholds:
        if max_distance is not None and isinstance(value, Real) and float(value) > max_distance:
            raise ValueError(f"distance_threshold must be at most max_distance={max_distance}, got {value}")


def check_distance(value: Any, name: str, metric: str | None = None) -> None:
    """Raise unless the value of the parameter `name` is a distance, which may be infinite.

    If a metric is given, it must be a distance of this metric.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if value != value:
        raise ValueError(f"{name} must not be NaN")
    try:
        float(value)
    except OverflowError as error:
        raise ValueError(f"{name} must fit into float64, or be infinite") from error
    if value < 0 and metric is not None and metric not in SIGNED:
        raise ValueError(f"{name} must be at least 0, as {metric} distances are, got {value}")


def distance_limit(metric: Metric, max_distance: Any, min_similarity: Any) -> float | None:
    """Return the largest distance that one of these parameters gives, None if neither is given. Raise for both."""
    if min_similarity is None:
        if max_distance is not None:
            check_distance(max_distance, "max_distance")
        return max_distance
    if max_distance is not None:
        raise ValueError("give one of max_distance and min_similarity, got both")
    check_distance(min_similarity, "min_similarity")
    return largest_distance(metric, float(min_similarity))


def check_cut(
    n: int, components: int, n_clusters: Any, distance_threshold: Any, max_distance: float | None = None
) -> None:
    """Raise unless n leaves in this number of trees have such a cut.

    `max_distance` is the distance up to which the fit merged clusters. The error names it as the cause of many trees.
    """
    if (n_clusters is None) == (distance_threshold is None):
        count = "neither" if n_clusters is None else "both"
        raise ValueError(f"give exactly one of n_clusters and distance_threshold, got {count}")
    if n_clusters is None:
        check_distance(distance_threshold, "distance_threshold")
    elif not components <= as_integer(n_clusters, "n_clusters") <= n:
        cause = f"the graph has {components} components, which nothing joins"
        if max_distance is not None:
            cause = f"max_distance={max_distance} leaves {components} trees"
        why = f" ({cause})" if components > 1 else ""
        raise ValueError(f"n_clusters must be from {components} to {n}, the number of rows, got {n_clusters}{why}")


def count_leaves(merges: int, n_leaves: int | None) -> int:
    """Return the number of leaves of a dendrogram with this number of merges; raise if ``n_leaves`` is not valid."""
    n = merges + 1 if n_leaves is None else as_integer(n_leaves, "n_leaves")
    if merges > n - 1:
        raise ValueError(f"linkage has {merges} rows, more than the n_leaves - 1 = {n - 1} merges of {n} leaves")
    if n > MAX_ROWS:
        raise ValueError(f"n_leaves must be at most {MAX_ROWS}, got {n}")
    return n


def check_linkage(linkage: Any, n: int, device: Device, is_forest: bool = False) -> None:
    """Raise unless the frame's columns, ids and heights are those of a dendrogram of n leaves."""
    m = len(linkage)
    require_numbers(linkage, "linkage", left="iu", right="iu", height="iuf")
    if m == 0:
        return
    xp = device.xp
    sides = {column: column_values(linkage[column], device) for column in ("left", "right")}
    for column, ids in sides.items():
        if int(ids.min()) < 0 or int(ids.max()) >= n + m - 1:
            hint = "" if is_forest else "; for the linkage of a forest, pass n_leaves"
            raise ValueError(f"column {column!r} of the linkage must hold cluster ids from 0 to {n + m - 2}{hint}")
    left_child, right_child = (ids.astype("int32", copy=False) for ids in sides.values())
    in_time = xp.maximum(left_child, right_child) < xp.arange(n, n + m)
    if not all_true(in_time):
        row = int((~in_time).argmax())
        raise ValueError(f"row {row} of the linkage merges a cluster that no earlier row has made")
    children, number = xp.concatenate((left_child, right_child)), xp.arange(2 * m, dtype="int32")
    position = xp.empty(n + m, "int32")
    position[children] = number
    if not all_true(position[children] == number):  # an id that comes twice has taken another's position
        raise ValueError("the linkage merges some cluster twice")
    height = column_values(linkage["height"], device)
    if not all_true(height[1:] >= height[:-1]):
        raise ValueError("column 'height' of the linkage must not fall from one row to the next")


def check_number(n_clusters: Any, count_small: bool) -> None:
    """Raise unless this is a number of clusters that a cut can make in each group."""
    if not count_small:
        raise ValueError("count_small=False is of one tree, and these rows are in groups: leave it out")
    if isinstance(n_clusters, str):
        raise ValueError(f"{WIDEST_GAP!r} is of one tree, and these rows are in groups: pass a number of clusters")
    if as_integer(n_clusters, "n_clusters") < 1:
        raise ValueError(f"n_clusters must be at least 1, the number of each group's clusters, got {n_clusters}")


def check_groups(linkage: Any, merge_group: Any, groups: Any, n: int) -> None:
    """Raise unless these frames of pandas are valid for a model, and each merge has clusters of one group.

    `label_kept` needs such merges.
    """
    require_columns(merge_group, ("group",), "merges' groups")
    require_columns(groups, GROUP_COLUMNS, "groups", others=True)
    require_numbers(merge_group, "merges' groups", group="iu")
    require_numbers(groups, "groups", **dict.fromkeys(GROUP_COLUMNS, "iu"))
    group, m = merge_group["group"].to_numpy(), len(linkage)
    if group.size != m or (m and not (group.min() >= 0 and group.max() < len(groups))):
        raise ValueError(f"there must be a number of a group for each of {m} merges, below {len(groups)}")
    for side in ("left", "right"):
        child = linkage[side].to_numpy()
        merged = child >= n
        if (group[merged] != group[child[merged] - n]).any():
            raise ValueError("a merge joins clusters of two groups")


def inherit_labels(linkage: Any, n_leaves: int, merges: int, frames: Any, min_cluster_size: int = 1) -> Any:
    """Return the label of each leaf in the clusters that the first `merges` rows of a linkage form, a Series of int32.

    Labels are numbered from 0 in order of first appearance. Leaves of clusters of fewer than `min_cluster_size` leaves
    have the label -1. `frames` is the linkage's library, pandas or cuDF.

    Each merge of two tables costs a sort or a hash of all rows. The number of these is the number of bits of the
    dendrogram's depth, at most 20 for a million leaves.
    """
    kept = linkage[["left", "right"]].head(merges).reset_index(drop=True)
    kept["parent"] = kept.index + n_leaves
    sides = [kept[[side, "parent"]].rename(columns={side: "child"}) for side in ("left", "right")]
    pointers = frames.concat(sides, ignore_index=True).astype("int64")
    while True:
        parents = pointers.rename(columns={"child": "parent", "parent": "grandparent"})
        further = pointers.merge(parents, on="parent", how="left")
        if further["grandparent"].isna().all():
            break
        pointers = further[["child"]].assign(parent=further["grandparent"].fillna(further["parent"]).astype("int64"))
    leaves = frames.DataFrame({"leaf": range(n_leaves)}).astype("int64")
    leaves = leaves.merge(pointers.rename(columns={"child": "leaf", "parent": "cluster"}), on="leaf", how="left")
    leaves["cluster"] = leaves["cluster"].fillna(leaves["leaf"]).astype("int64")
    clusters = leaves.groupby("cluster", as_index=False).agg({"leaf": ["min", "count"]})
    clusters.columns = ["cluster", "first", "size"]
    clusters = clusters[clusters["size"] >= min_cluster_size].sort_values("first", ignore_index=True)
    clusters["label"] = clusters.index
    labels = leaves.merge(clusters[["cluster", "label"]], on="cluster", how="left").sort_values("leaf")
    return labels["label"].fillna(-1).astype("int32")


#: The types of `GROUP_COLUMNS`.
GROUP_TYPES = ("int64", "int64", "int32")
#: The names of Series, by the attributes that hold them.
SERIES_NAMES = {"labels_": "label", "probabilities_": "probability", "outlier_scores_": "outlier_score"}


@dataclass(frozen=True)
class FlatClusters:
    """The chosen clusters, as attributes of a model."""

    n_clusters: int
    rows: Mapping[str, Any]  # dict of (n,) arrays by attribute, a value for each row
    clusters: Mapping[str, Any] = field(default_factory=dict)  # dict of arrays by attribute, a value for each cluster
    #: dict by attribute of DataFrame, or of a function that makes the columns when the frame is first asked for
    frames: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)  # dict of numbers by attribute


@dataclass(frozen=True)
class ClusterRule:
    """The rule by which a model chooses clusters. It may be sent to a Dask worker."""

    predicts_by_density: ClassVar[bool] = False  # whether predictions need core distances
    #: the group of each merge, and how many groups there are, if rows are in groups: see `build_linkage`
    merge_groups: ClassVar[tuple[Array, int] | None] = None
    friends_within: ClassVar[float | None] = None  # what `Settings.friends_within` becomes in a fit without groups

    def weighted(self, weight: np.ndarray, core: np.ndarray | None) -> Self:
        """Return the rule for rows of these weights and core distances. It is the same unless it depends on them."""
        return self

    def check_rows(self, n: int) -> None:
        """Raise unless the rule can cluster n rows."""

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """Return the clusters that the rule chooses from the linkage of n rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Cut(CutParameters, ClusterRule):
    """The rule of a single cut of any tree."""

    warns: bool = False  # whether to warn if most of a number of clusters are outliers
    friends_within: float | None = field(default=None, kw_only=True)  # type: ignore[misc]

    def check_rows(self, n: int, trees: int = 1) -> None:
        """Raise unless n rows in this number of trees have such a cut."""
        if self.count_small and not self.is_default:
            number = trees if isinstance(self.n_clusters, str) else self.n_clusters  # the widest gap is known later
            check_cut(n, trees, number, self.distance_threshold)

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """Return the clusters of the cut of the linkage of n rows."""
        with report.stage("cut", device):
            parameters, (kept,) = self.of(merges, n)
            marks = () if parameters.max_cluster_size is None else (small_enough(merges, n, parameters)[:kept],)
            left_child, right_child = (merges.columns[side][:kept] for side in ("left", "right"))
            labels = PreallocatedFrame.empty(merges.device, n, {"label": "int32"}).columns["label"]
            labels[...] = half(merges.device, __package__).label_clusters(left_child, right_child, n, *marks)[:n]
            count = number_of_clusters(labels) if marks else n - kept
            if self.warns and self.n_clusters is not None and self.n_clusters == parameters.n_clusters:
                warn_of_outliers(merges.columns, n, count)
            if parameters.min_cluster_size in (None, 1) and parameters.max_cluster_size is None:
                return FlatClusters(count, {"labels_": labels})
            return large_clusters(labels, count, parameters, merges.device.xp)


@dataclass(frozen=True)
class GroupedCut(ClusterRule):
    """A cut within each group: by the number of its clusters, or by a distance."""

    cut: Cut
    keys: Any  # frame of pandas or cuDF with a row for each group
    #: (groups,) int64 arrays on the host. `sizes`: the number of rows of each group; `first`: its first row
    sizes: Any
    first: Any
    merge_group: Array = None  # (merges,) int32, the group of each merge

    @property
    def merge_groups(self) -> tuple[Array, int] | None:  # type: ignore[override]
        """Return the group of each merge, and the number of groups; None before the merges' groups are known."""
        return None if self.merge_group is None else (self.merge_group, len(self.sizes))

    def check_rows(self, n: int) -> None:
        """Raise unless n rows in groups have such a cut."""
        if self.cut.distance_threshold is not None:
            self.cut.check_rows(n)
        else:
            check_number(self.cut.n_clusters, self.cut.count_small)

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """Return the clusters of the cut of each group, by the linkage of n rows."""
        xp, count, parameters = device.xp, len(self.sizes), self.cut
        with report.stage("cut", device):
            rows = device.asarray(self.sizes)
            if parameters.n_clusters is None:
                kept = xp.arange(self.merge_group.size) < parameters.of(merges, n)[1][0]
                if parameters.max_cluster_size is not None:
                    kept &= small_enough(merges, n, parameters)
            else:
                rank = half(device, __package__).ranks_in_groups(self.merge_group, count)
                kept = rank < (rows - min(int(parameters.n_clusters), n))[self.merge_group]
            labels = label_kept(merges, kept.size, n, replace(parameters, min_cluster_size=1), kept)
            clusters = rows - xp.bincount(self.merge_group[kept], minlength=count)
            first = labels[device.asarray(self.first)]
            flat = large_clusters(labels, n - int(kept.sum()), parameters, xp)
            if flat.rows["labels_"] is not labels:
                clusters, first = self._of_large(merges, flat.rows["labels_"], n, xp)
            frames = {
                "groups_": frame_of_groups(self.keys, (rows, clusters, first)),
                "_merge_group_": frame_of(device, {"group": self.merge_group}),
            }
        return replace(flat, frames=frames)

    def _of_large(self, merges: PreallocatedFrame, labels: Array, n: int, xp: Any) -> tuple[Array, Array]:
        """Return how many labelled clusters each group has, and the least of these labels, or `OUTLIER`."""
        group = xp.zeros(n, "int32")
        for side in ("left", "right"):  # rows in no merge have no label
            leaf = merges.columns[side] < n
            group[merges.columns[side][leaf]] = self.merge_group[leaf]
        return clusters_of_groups(labels, group, len(self.sizes), xp)


def clusters_of_groups(labels: Array, group: Array, count: int, xp: Any) -> tuple[Array, Array]:
    """Return the number of labelled clusters of each of `count` groups, and the least of their labels, or `OUTLIER`.

    `labels` and `group` are (n,) arrays, the label and the group of each row.
    """
    number = number_of_clusters(labels)
    group_of_label, first = xp.zeros(number, "int32"), xp.full(count, number, "int32")
    group_of_label[labels[labels >= 0]] = group[labels >= 0]
    xp.minimum.at(first, group_of_label, xp.arange(number, dtype="int32"))
    return xp.bincount(group_of_label, minlength=count), xp.where(first < number, first, OUTLIER)


def frame_of_groups(keys: Any, counts: Sequence[Array]) -> Any:
    """Return `groups_` of a model: the frame of the keys with these counts as the columns `GROUP_COLUMNS`."""
    device = device_of(keys)  # the device of their library
    columns = {
        name: (device.asarray(column) if device.is_gpu else to_host(column)).astype(dtype)
        for name, column, dtype in zip(GROUP_COLUMNS, counts, GROUP_TYPES, strict=True)
    }
    return keys.assign(**columns)


@dataclass(frozen=True)
class StableClusters(ClusterRule):
    """HDBSCAN's clusters of at least `min_size` rows. An error for negative heights names the `metric`."""

    min_size: int
    rule: Rule
    metric: str
    weighting: Weighting | None = None

    predicts_by_density: ClassVar[bool] = True

    def weighted(self, weight: np.ndarray, core: np.ndarray | None) -> Self:
        """Return the rule for rows of these weights, (n,), and core distances, (n,) or None."""
        with np.errstate(divide="ignore", over="ignore"):
            rate = np.full(weight.size, np.inf) if core is None else 1 / core
        return replace(self, weighting=Weighting(weight, rate))

    def select(self, merges: PreallocatedFrame, n: int) -> tuple[Condensed, Summary, Selected, Device]:
        """Return the condensed dendrogram of n rows, its summary, the clusters, and the device of the values of rows.

        Raises ValueError if a height is negative.
        """
        columns, tree_device = Merges.of(merges.columns), merges.device
        lowest = float(columns.height[0]) if columns.height.size else 0.0
        if lowest < 0:
            raise ValueError(f"HDBSCAN needs distances that are not negative, and {self.metric} gives {lowest}")
        if tree_device.is_gpu and self.weighting is None and columns.height.size == n - 1 > 0:
            kernels = half(tree_device, __package__)
            tree = kernels.condense(
                columns.left_child, columns.right_child, columns.height, columns.size, self.min_size
            )
        else:
            tree_device, columns = CPU, Merges(*map(to_host, columns))
            tree = condense(columns, n, self.min_size, self.weighting)
        summary = summarize(tree, tree_device, self.weighting)
        return tree, summary, select(tree, self.rule, summary, tree_device), tree_device

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """Return HDBSCAN's clusters of the linkage of n rows."""
        with report.stage("clusters", device):
            tree, summary, selected, tree_device = self.select(merges, n)
            scores = outlier_scores(tree, summary, tree_device)
            rows = {"labels_": selected.labels, "probabilities_": selected.probabilities, "outlier_scores_": scores}
            rows = {name: copy_out(tree_device, values) for name, values in rows.items()}
            tree = tree._replace(
                cluster=copy_out(tree_device, tree.cluster), departure=copy_out(tree_device, tree.departure)
            )
        return FlatClusters(
            selected.persistence.size,
            rows,
            {"cluster_persistence_": selected.persistence, "_selected_": selected.clusters},
            {"_condensed_": partial(condensed_frame, tree, self.weighting, device)},
        )


def write_labels(rules: list[StableClusters], merges: PreallocatedFrame, n: int, columns: list[Array]) -> None:
    """Write the labels of the clusters that each rule chooses from the linkage of n rows into its int32 column."""
    device, merges = merges.device, soonest(merges, n)
    for rule, column in zip(rules, columns, strict=True):
        column[...] = device.asarray(rule.select(merges, n)[2].labels)


def large_clusters(labels: Array, count: int, parameters: CutParameters, xp: Any) -> FlatClusters:
    """Return the clusters of labels 0 to count - 1 that have at least the smallest size, labelled anew."""
    least, max_size = parameters.min_cluster_size or 1, parameters.max_cluster_size
    labels = without_small(labels, least, None, xp)
    large = number_of_clusters(labels) if least > 1 else count
    values = {"_least_size_": least, "_small_clusters_": count - large}
    values |= {} if max_size is None else {"_split_above_": int(max_size)}
    return FlatClusters(large, {"labels_": labels}, values=values)


def number_of_clusters(labels: Array) -> int:
    """Return the number of clusters with these labels, which are numbered from 0."""
    return int(labels.max()) + 1

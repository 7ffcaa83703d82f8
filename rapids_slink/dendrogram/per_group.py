"""Cuts of the linkage of a forest of groups, whose merges are in one order over all groups.

By a distance a cut keeps the first merges of all, by a number of clusters those of each group. Either way
what is kept is the linkage of a forest, because a merge comes after those of its parts, which are of its group.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rapids_slink.dendrogram import kernels
from rapids_slink.dendrogram.cutting import (
    ClusterRule,
    Cut,
    CutParameters,
    FlatClusters,
    adjusted,
    check_cut,
    column_names,
    cut_labels,
    number_of_clusters,
)
from rapids_slink.points.check import as_integer, column_values, require_columns, require_numbers
from rapids_slink.points.keys import GROUP_COLUMNS
from rapids_slink.points.output import OutputKind
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, device_of, to_host
from rapids_slink.runtime.frames import PreallocatedFrame, frame_of


@dataclass(frozen=True)
class GroupedCut(ClusterRule):
    """A cut within each group: by the number of its clusters, or by a distance."""

    cut: Cut
    keys: Any  # frame of pandas or cuDF with a row for each group
    #: `sizes` and `first`: (groups,) int64 arrays, on the host; the rows of each group, and the first of them
    sizes: Any
    first: Any
    merge_group: Array = None  # (merges,) int32, the group of each merge

    row_bytes = 96

    @property
    def merge_groups(self) -> tuple[Array, int] | None:
        """The group of each merge, and how many there are."""
        return None if self.merge_group is None else (self.merge_group, len(self.sizes))

    def check_rows(self, n: int) -> None:
        """Raise unless groups have such a cut."""
        if self.cut.n_clusters is None or self.cut.distance_threshold is not None:
            check_cut(n, 1, self.cut.n_clusters, self.cut.distance_threshold)
        else:
            check_number(self.cut.n_clusters)

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """The clusters of the linkage of n rows in groups."""
        xp, count = device.xp, len(self.sizes)
        with report.stage("cut", device):
            rows = device.asarray(self.sizes)
            if self.cut.n_clusters is None:
                labels = cut_labels(merges, n, CutParameters(None, self.cut.distance_threshold)).columns["label"]
                kept = xp.arange(self.merge_group.size) < n - number_of_clusters(labels, None)
            else:
                place = kernels(device).places_in_groups(self.merge_group, count)
                kept = place < (rows - int(self.cut.n_clusters))[self.merge_group]
                labels = label_kept(merges, kept, n, CutParameters(self.cut.n_clusters))
            clusters = rows - xp.bincount(self.merge_group[kept], minlength=count)
            first = labels[device.asarray(self.first)]
            frames = {
                "groups_": with_keys(self.keys, (rows, clusters, first)),
                "_merge_group_": frame_of(device, {"group": self.merge_group}),
            }
        return FlatClusters(n - int(kept.sum()), {"labels_": labels}, {}, frames)


def cut_of_groups(
    merge_group: Any, groups: Any
) -> Callable[[PreallocatedFrame, int, CutParameters], PreallocatedFrame]:
    """A function like `cut_labels` for numbers of clusters of each group, by a model's frames of these names."""

    def cut(linkage: PreallocatedFrame, n_leaves: int, parameters: CutParameters) -> PreallocatedFrame:
        parameters.check()
        values, many = parameters.values
        for value in values:
            check_number(value)
        names, device = column_names(values, many, "n_clusters"), linkage.device
        frames = (OutputKind.of(frame, device)[0] for frame in (merge_group, groups))
        group, rows = (
            column_values(frame[name], device) for frame, name in zip(frames, ("group", "rows"), strict=True)
        )
        labels = PreallocatedFrame.empty(device, n_leaves, dict.fromkeys(names, "int32"))
        place = kernels(device).places_in_groups(group, len(rows))
        for column, value in zip(labels.columns.values(), values, strict=True):
            column[...] = label_kept(linkage, place < (rows - int(value))[group], n_leaves, parameters)
        return labels

    return cut


def with_keys(keys: Any, columns: tuple[Array, Array, Array]) -> Any:
    """The frame of the groups: their keys, and the other columns in the keys' library."""
    on_gpu = device_of(keys)
    values = (on_gpu.asarray(column) if on_gpu.is_gpu else to_host(column) for column in columns)
    types = ("int64", "int64", "int32")
    return keys.assign(**dict(zip(GROUP_COLUMNS, map(lambda v, t: v.astype(t), values, types), strict=True)))


def check_groups(linkage: Any, merge_group: Any, groups: Any, n: int) -> None:
    """Raise unless these frames of pandas are a model's, whose merges join clusters of one group: see `label_kept`."""
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


def check_number(n_clusters: Any) -> None:
    """Raise unless this is a number of clusters of a group."""
    if as_integer(n_clusters, "n_clusters") < 1:
        raise ValueError(f"n_clusters must be at least 1, the number of each group's clusters, got {n_clusters}")


def label_kept(merges: PreallocatedFrame, kept: Array, n: int, parameters: CutParameters) -> Array:
    """The labels of the clusters that the kept merges of n leaves form, (n,) int32."""
    device = merges.device
    left_child, right_child = (merges.columns[side].astype("int32", copy=False) for side in ("left", "right"))
    labels = kernels(device).label_kept(left_child, right_child, kept, n)
    return adjusted(labels, parameters, device)

"""A catalogue of clusters: the size of each, its centre of mass, and how far its members are from the centre.

    rows, labels ──▶ members by cluster ──▶ means ──▶ distances from the means ──▶ a row for each cluster
                                            `means_of_clusters`, `deviations_of_clusters`

Sums are in float64 and in one order on either device: `PART` members of a cluster are added in the order of their rows,
and then these sums. So all columns have the same bits on both devices, in every run.

A box that repeats has a length for each feature, infinite for a feature that does not repeat. Members are moved by
whole lengths to where they are nearest to the first one, then averaged, and the mean is moved into the box. Distances
from it are those of the nearest images.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rapids_slink.dendrogram import Members, kernels
from rapids_slink.ordering import stable_order
from rapids_slink.points import Points, as_points
from rapids_slink.points.check import check_index, check_weights
from rapids_slink.points.output import TABLES, array_of, column_names, library_of
from rapids_slink.report import counted
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, check_memory

#: The number of members that are summed at a time.
PART = constant("dendrogram/catalogue.cu", "PART")
#: The bytes of a row at the peak, which is while the rows of large clusters are sorted.
ROW_BYTES = 48
#: The columns besides the means.
COLUMNS = ("label", "size", "mass", "radius", "spread")


@dataclass(frozen=True)
class Rows:
    """The rows of a catalogue, with their weights."""

    points: Points  # the features, in which distances are
    others: Points | None  # what is averaged as well
    weight: Array  # (n,) float64, the mass of each row, or None for 1

    @property
    def names(self) -> list[Any]:
        """Return the names of the means: those of the columns, or x0, x1 and so on for arrays."""
        names: list[Any] = []
        for part in filter(None, (self.points, self.others)):
            numbers = range(len(names), len(names) + part.values.shape[1])
            names += [f"x{number}" for number in numbers] if part.names is None else part.names
        return names


def read_rows(
    X: Any, features: list[Any], columns: Any, weights: Any, n: int, device: Device, index: Any = None
) -> Rows:
    """Read the caller's rows, further columns to average, and the rows' weights; within a run.

    `index` is the index of the n rows that were clustered, None if they have none. `columns` and `weights` are values,
    or names of columns of `X`. `features` are the names of the fit's columns, if these had names. If a frame has all of
    these columns, they are the features; otherwise the columns that are not named are. Raises ValueError or TypeError
    for input that is not valid.
    """
    present, further = column_names(X) or [], None
    if isinstance(columns, str) or (isinstance(columns, list | tuple) and all(isinstance(c, str) for c in columns)):
        further = [columns] if isinstance(columns, str) else list(columns)
    named = [*(further or []), *([weights] if isinstance(weights, str) else [])]
    for name in named:
        if name not in present:
            raise ValueError(f"X has no column {name!r}" + (f", only {present}" if present else ": it is an array"))
    if further is not None:
        columns = _only(X, further) if further else None
    if isinstance(weights, str):
        weights = as_points(_only(X, [weights]), device, name="weights").values[:, 0]
    if present:
        whole = features and set(features) <= set(present)
        X = _only(X, features if whole else [name for name in present if name not in named])
    points = _read(X, "X", n, device)
    if points.names is None and len(features) == points.values.shape[1]:
        points = replace(points, names=features)
    index, source = (points.index, "X") if index is None else (index, "model.labels_")
    check_index(columns, index, "columns", source)
    rows = Rows(
        points,
        None if columns is None else _read(columns, "columns", n, device),
        None if weights is None else check_weights(weights, n, device, "weights", index, source),
    )
    names = [*COLUMNS, *rows.names]
    for name in rows.names:
        if names.count(name) > 1:
            raise ValueError(f"the catalogue would have two columns {name!r}: rename the one of the rows")
    return rows


def _only(X: Any, names: list[Any]) -> Any:
    """Return a frame or table with these columns alone, in this order."""
    names = list(dict.fromkeys(names))
    return X.select(names) if library_of(X) in TABLES else X[names]


def _read(X: Any, name: str, n: int, device: Device) -> Points:
    """Read the argument `name` as points, and raise unless it has n rows; a single column is one feature."""
    if column_names(X) is None:
        X = array_of(X) if library_of(X) else X
        X = X[:, None] if getattr(X, "ndim", 2) == 1 else X
    points = as_points(X, device, name=name)
    if len(points.values) != n:
        raise ValueError(f"{name} must have the {n:,} rows that were clustered, got {len(points.values):,}")
    return points


def catalogue_of(
    rows: Rows, labels: Array, min_size: int, device: Device, box: np.ndarray | None = None
) -> PreallocatedFrame:
    """Return a frame with a row for each cluster of at least `min_size` rows, by label; within a run.

    `labels` are (n,) int32; a row whose label is below 0 is in no cluster. `box` is the length of each feature, (d,)
    float64, infinite by default.
    """
    n, (values, weight) = labels.size, (rows.points.values, rows.weight)
    sums = (n // PART + n // min_size) * 16 * (len(rows.names) + 3)  # the bytes of the sums of parts and of clusters
    check_memory(device, MemoryEstimate(ROW_BYTES * n + sums), f"a catalogue of {counted(n, 'row')}")
    label, size, members = members_of(labels, min_size, weight, device)
    lengths = device.asarray(np.full(values.shape[1], np.inf) if box is None else box, "float64")
    mean, mass = kernels(device).means_of_clusters(values, members, lengths)
    radius, spread = kernels(device).deviations_of_clusters(values, members, lengths, mean, mass)
    means = list(mean.T)
    if rows.others is not None:
        others = rows.others.values
        no_box = device.asarray(np.full(others.shape[1], np.inf))
        means += list(kernels(device).means_of_clusters(others, members, no_box)[0].T)
    columns = {"label": label, "size": size} | ({} if weight is None else {"mass": mass})
    columns |= dict(zip(rows.names, map(device.xp.ascontiguousarray, means), strict=True))
    return PreallocatedFrame.of(device, {**columns, "radius": radius, "spread": spread})


def members_of(labels: Array, min_size: int, weight: Array, device: Device) -> tuple[Array, Array, Members]:
    """Return the labels (int32), the sizes (int64) and the members of the clusters of at least `min_size` rows."""
    xp = device.xp
    sizes = xp.bincount(xp.maximum(labels, -1) + 1, minlength=1)[1:]
    label = xp.flatnonzero(sizes >= min_size).astype("int32")
    number = xp.full(sizes.size + 1, -1, "int32")  # the last is that of no cluster
    number[label] = xp.arange(label.size, dtype="int32")
    cluster_of_row = number[labels]
    rows = xp.flatnonzero(cluster_of_row >= 0)
    size, start = sizes[label], xp.zeros(label.size + 1, "int64")
    start[1:] = xp.cumsum(size)
    ordered = rows[stable_order(cluster_of_row[rows], xp)].astype("int64")
    return label, size.astype("int64"), Members(ordered, start, weight)

"""The contents of the explorer: the setting that it turns, and the columns of a table.

A setting is the number of clusters of a cut, or the smallest cluster of HDBSCAN. It has a curve, labels at each of its
values, and a condensed tree that is drawn beside the rows.
"""

from collections.abc import Hashable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.condense import Condensed, Merges, Selected, condense, select, summarize
from rapids_slink.dendrogram.cutting import (
    COLUMNS,
    FEW_ROWS,
    CutParameters,
    at_widest_gap,
    count_large,
    least_size,
    sizes_of,
)
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.palette import COLORS, OTHERS
from rapids_slink.hierarchy.plotting import (
    coordinates_of,
    cut_height,
    cut_label,
    is_logarithmic,
    is_map,
    sample_of_heights,
)
from rapids_slink.points import as_points
from rapids_slink.points.output import column_names, is_collection, library_of, on_host, take_rows
from rapids_slink.report import counted, listed
from rapids_slink.runtime.device import CPU, device_of, on_current_gpu, to_host
from rapids_slink.runtime.frames import PreallocatedFrame

#: The number of sizes of the smallest cluster on HDBSCAN's curve. Each costs a selection.
SIZES = 16
#: The height of a map in pixels, and about the ratio of its width to its height.
MAP_HEIGHT, MAP_ASPECT = 320, 1.9


# ------------------------------------------------------------------------------------------------------ settings


class Setting:
    """The base of the two settings that the explorer turns: the setting's values, and its curve."""

    values: np.ndarray  # (m,), ascending values of the setting
    curve: np.ndarray  # (m,), the curve's height at each of these values
    value: int  # the setting that is shown first
    min_size: int = 1  # the smallest size that is shown first
    range: tuple[int, int]  # the lowest and the highest setting
    label: str  # the name of the setting
    names: list[str]  # the names of the curve's axes
    is_log = False  # whether the curve's heights are on a logarithmic axis

    def __init__(self, model: Any) -> None:
        self.model = model
        self.unit = plotting.unit_of(model)
        self.merges = Merges.of(on_host(model.linkage_))
        heights = self.merges.height[::-1] * self.unit.length
        self.heights, self.trees = heights, model.n_leaves_ - heights.size
        self.is_log_distance = is_logarithmic(heights)
        #: the lowest height if that is below zero, as for inner products; a condensed tree has heights above it
        self.lowest = min(float(heights.min(initial=0.0)), 0.0)


class CutSetting(Setting):
    """The number of clusters of a cut, and the distance of the next merge.

    If no more than one cluster of the model's own cut has a hundredth of the rows, the others are outliers. Then the
    first cut is at the widest gap between merges that leaves two clusters of that size, and smaller clusters are noise.
    """

    label = "clusters"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.names = ["number of clusters", self.unit.axis.replace("distance", "distance of the next merge")]
        self.value, self.min_size = model._cut_clusters, model._least_size_
        self.range = self.trees, model.n_leaves_
        drawn = sample_of_heights(self.heights.size)
        if self.is_log_distance:
            self.is_log, drawn = True, drawn[self.heights[drawn] > 0]
        self.values, self.curve = drawn + self.trees + 1, self.heights[drawn]
        if not drawn.size:
            self.values, self.curve = np.array([self.trees]), np.zeros(1)
        self._tree: Condensed | None = None
        n, least = model.n_leaves_, least_size(model.n_leaves_)
        linkage = PreallocatedFrame(dict(zip(COLUMNS, self.merges, strict=True)), CPU)
        large = count_large(linkage, sizes_of(linkage, n), least)
        if n >= FEW_ROWS and self.min_size == 1 and large[self.value - self.trees] < 2 <= large.max():
            self.value, self.min_size = at_widest_gap(linkage, n, least), least

    def labels(self, value: int, min_size: int) -> Any:
        """Return the labels of the cut, -1 for rows of clusters that are smaller than `min_size`."""
        return self.model._cut(CutParameters(value, min_cluster_size=min_size))

    def text(self, value: int, shown: int, min_size: int) -> str:
        """Return the cut in words: the number of its clusters that are `shown`, and the distances that give them."""
        clusters, _, distances = cut_label(self.heights, value, self.trees, self.unit.name, 3).partition(" (")
        words = clusters if shown == value else f"{shown:,} of {clusters}, those of at least {min_size:,} rows"
        return f"<b>{words}</b>" + (f" ({escape(distances)}" if distances else "")

    def tree(self, value: int) -> Condensed:
        """Return the condensed tree of clusters of at least a hundredth of the rows. All cuts have the same tree."""
        if self._tree is None:
            above = self.merges._replace(height=self.merges.height - self.lowest / self.unit.length)
            self._tree = condense(above, self.model.n_leaves_, least_size(self.model.n_leaves_))
        return self._tree

    def cut(self, value: int) -> float:
        """Return the distance in the middle of those that give this number of clusters."""
        return cut_height(self.heights, value, self.trees, self.lowest, self.is_log_distance)

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """Return the cluster of each bar's part below the cut, that of the row that stays to the bar's end."""
        return labels[bars.rows]

    def distance(self, value: int) -> float:
        """Return a distance threshold that gives this number of clusters, with as few digits as do, at least three."""
        for digits in range(3, 17):
            rounded = float(f"{self.cut(value):.{digits}g}")
            if self.at_distance(rounded) == value:
                return rounded
        undone = value - self.trees
        if undone or not self.heights.size:
            return float(self.heights[undone - 1]) if self.heights.size else 0.0
        return float(np.nextafter(self.heights[0], np.inf))

    def at_distance(self, distance: float) -> int:
        """Return the number of clusters that a distance threshold gives."""
        return int((self.heights >= distance).sum()) + self.trees


class SizeSetting(Setting):
    """The size of HDBSCAN's smallest cluster, and the number of clusters that it gives."""

    label, names = "smallest size", ["rows of the smallest cluster", "number of clusters"]

    def __init__(self, model: Any) -> None:
        if hasattr(model, "_weighted_"):
            raise ValueError("the explorer counts rows, and these have weights: fit without sample_weight")
        super().__init__(model)
        self._selected: tuple[int, Condensed, Selected] | None = None
        self.range, self.value = (2, max(2, model.n_leaves_)), model.min_cluster_size
        self.values = np.unique(np.rint(np.geomspace(2, max(2, model.n_leaves_ // 2), SIZES)).astype(np.int64))
        self.curve = np.array([self._select(size)[1].persistence.size for size in self.values.tolist()], np.float64)

    def _select(self, size: int) -> tuple[Condensed, Selected]:
        if self._selected is None or self._selected[0] != size:
            tree = condense(self.merges, self.model.n_leaves_, size)
            self._selected = size, tree, select(tree, self.model._cluster_rule().rule, summarize(tree))
        return self._selected[1:]

    def labels(self, value: int, min_size: int) -> Any:
        """Return HDBSCAN's labels for clusters of at least `value` rows."""
        return self.model._output.labels(self._select(value)[1].labels, on_current_gpu(self.model._index), "label")

    def text(self, value: int, shown: int, min_size: int) -> str:
        """Return the setting in words, for this number of clusters that are `shown`."""
        return f"<b>{counted(shown, 'cluster')}</b> of at least {value:,} rows"

    def tree(self, value: int) -> Condensed:
        """Return the condensed tree of clusters of at least `value` rows."""
        return self._select(value)[0]

    def cut(self, value: int) -> None:
        """Return None: the tree is not cut at one distance."""

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """Return the selected cluster that each bar is, or is within; -1 for none."""
        return bars.labels_of_clusters(self._select(value)[1].clusters)


def setting_of(model: Any) -> CutSetting | SizeSetting:
    """Return the setting of a model's explorer. Raise for labels that are no cut at one distance and not HDBSCAN's."""
    if model._split_above_ is not None:
        raise ValueError(
            "explore shows cuts at one distance, and the clusters of max_cluster_size have many: fit without it"
        )
    if model._cut_per_group_:
        raise ValueError(
            "explore shows cuts at one distance, and these labels are of a number of clusters in each group: fit with "
            "distance_threshold="
        )
    return CutSetting(model) if model._labels_are_a_cut else SizeSetting(model)


# --------------------------------------------------------------------------------------------------------- tables


def table_of(data: Any) -> Any:
    """Return a table of any library, or an array. A collection of Dask is computed, and a list becomes an array."""
    if is_collection(data):
        return on_host(data)
    return data if data is None or hasattr(data, "shape") else np.asarray(data)


def columns_of(data: Any) -> list[Any]:
    """Return the names of a table's columns, or the numbers of an array's columns."""
    names = column_names(data)
    if names is not None:
        return list(names)
    return list(range(data.shape[1])) if len(data.shape) == 2 else []


def described(data: Any, row: int) -> tuple[str, list[str]]:
    """Return as text a row's name, which is its number if the table has no index, and its values."""
    one = take_rows(data, np.array([row]))
    frame = one if isinstance(one, pd.DataFrame) else one.to_pandas() if library_of(one) else pd.DataFrame(to_host(one))
    name = frame.index[0] if hasattr(one, "index") else row
    values = [frame.iloc[0, i] for i in range(frame.shape[1])]
    words = [f"{value:.6g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name), words


def column_of(data: Any, column: Any, what: str, n: int) -> pd.Series:
    """Return a Series on the host: the column of a table that `column` names, or the values that it holds.

    Raises ValueError, which calls the parameter `what`, unless there is one such column, or a value for each of n rows.
    """
    names = columns_of(data)
    is_name = isinstance(column, str | int) or (isinstance(column, Hashable) and column in names)
    if is_name and names.count(column) != 1:
        there = f"there {names.count(column)} times" if column in names else f"no column: there are {listed(names)}"
        raise ValueError(f"{what}={column!r} is {there}")
    values = column
    if is_name:
        values = data[column] if library_of(data) else data[:, column]
    values = on_host(values) if library_of(values) else to_host(values)
    series = pd.Series(values.to_pandas() if hasattr(values, "to_pandas") else values).reset_index(drop=True)
    if len(series) != n:
        raise ValueError(f"{what} must have a value for each of {n:,} rows, got {len(series):,}")
    return series


def painted(values: pd.Series, name: str) -> tuple[str, np.ndarray, list[str]]:
    """Return a legend as HTML, a number for each row, and a list of colours.

    The number of a row is that of its colour in the list. If the list is empty, it is a place on a gradient. Numbers
    are on a gradient if there are more different ones than colours. Otherwise the commonest values have colours.
    """
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if is_number and values.nunique() > len(COLORS):
        numbers = values.astype("float64").to_numpy()
        finite, missing = numbers[np.isfinite(numbers)], int(np.isnan(numbers).sum())
        low, high = finite.min(), finite.max()
        bar = "linear-gradient(90deg, #440154, #3B528B, #21918C, #5EC962, #FDE725)"
        legend = (
            f'<br>{escape(name)}: {low:,.6g} <span style="display: inline-block; width: 8em; height: 0.8em; '
            f'background: {bar}"></span> {high:,.6g}' + (f", {missing:,} missing, as the least" if missing else "")
        )
        return legend, np.nan_to_num(numbers, nan=low, posinf=high, neginf=low), []
    if values.dtype == object and not all(isinstance(value, Hashable) for value in values):
        values = values.map(str)
    counts = values.value_counts()
    commonest = counts.index[: len(COLORS)]
    code = commonest.get_indexer(pd.Index(values))
    code[code < 0] = commonest.size
    colors = [*COLORS[: commonest.size], *([OTHERS] if (code == commonest.size).any() else [])]
    others = [counted(counts.size - commonest.size, "other")] if counts.size > commonest.size else []
    others += ["missing"] if values.isna().any() else []
    words = [*map(str, commonest), " and ".join(others)][: len(colors)]
    dots = [plotting.dot(color, word) for color, word in zip(colors, words, strict=True)]
    return f"<br>{escape(name)}: {' '.join(dots)}", code, colors


def coordinates(model: Any, X: Any, x: Any, y: Any) -> tuple[np.ndarray, list[str]]:
    """Return two coordinates of each row, (n, 2), and their names: two columns, a map, or the principal axes."""
    if (x is None) != (y is None):
        raise ValueError("x and y name two columns: give both or neither")
    if x is not None:
        columns = [column_of(X, name, axis, model.n_leaves_) for axis, name in (("x", x), ("y", y))]
        return np.column_stack([column.to_numpy(np.float64) for column in columns]), [str(x), str(y)]
    points = as_points(model._features(X), device_of(X))
    return coordinates_of(points.values, np.arange(len(points.values)), points.names, is_map(model))


def equal_scales(coordinates: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return ranges of both axes that give degrees of latitude and of longitude one length.

    The points fill the scatter.
    """
    lowest, highest = coordinates.min(axis=0), coordinates.max(axis=0)
    half = min(max((highest - lowest) / (MAP_ASPECT, 1)) / 2 or 1.0, 90.0)
    (x, y) = (lowest + highest) / 2
    y = np.clip(y, half - 90, 90 - half)  # the range ends at the poles
    return {"x_scale": (x - half, x + half), "y_scale": (y - half, y + half)}

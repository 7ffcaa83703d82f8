"""`Hierarchy.explore`: a scatter of the rows beside the curve of cuts and the condensed tree, for Jupyter.

jupyter-scatter draws the rows, panels.js draws the curve and the tree, and ipywidgets makes the controls. Dragging
changes a setting: the number of clusters of a cut, or the smallest cluster of HDBSCAN. A setting has a curve, labels at
each of its values, and the condensed tree that is drawn beside the rows. A cut takes milliseconds, so the colours
follow.
"""

import warnings
from base64 import b64encode
from collections.abc import Hashable
from functools import cache
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram import cutting
from rapids_slink.dendrogram.condense import Condensed, Merges, Selected, condense, select, summarize
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.exports import needs
from rapids_slink.hierarchy.plotting import COLORS, NOISE, OTHERS, colored_groups, cut_height, is_map
from rapids_slink.hierarchy.trees import Bars
from rapids_slink.points import as_points
from rapids_slink.points.output import PreallocatedFrame, is_collection, library_of, on_host, take_rows
from rapids_slink.report import counted, listed
from rapids_slink.runtime.device import CPU, device_of, on_current_gpu, to_host
from rapids_slink.runtime.memory import usual_errors

#: Up to this many rows the colours follow while the cut is dragged. With more rows they follow when it is let go.
FOLLOWED = 300_000
HEIGHT, CURVE_HEIGHT, TREE_HEIGHT = 440, 220, 240  # pixels
NOISE_SIZE, SIZE_OF_POINTS = 2.0, (3.0, 7.0)  # pixels; the fewer points a cluster has, the larger they are
#: The colour map of a continuous column.
GRADIENT = "viridis"
#: The entry of the colour menu for the clusters of the cut; its other entries are columns of the table.
CLUSTERS = "clusters"
#: The largest number of names on the map; the width of a letter and the height of a line, as shares of the map's.
NAMED, LETTER, LINE = 12, 0.016, 0.06
#: Clusters of at most this share of the largest one's rows have no name on the map.
UNNAMED = 0.01
#: A cluster has the commonest name of its rows if this share of its rows has it.
COMMON = 0.1
#: The largest number of columns in the text beside the pointer.
COLUMNS_SHOWN = 10
#: Names of columns that jupyter-scatter reserves for what it draws.
RESERVED = ("x", "y", "color", "opacity", "size")
INK = "#808080"  # legible on light and on dark pages

#: The number of sizes of the smallest cluster on HDBSCAN's curve. Each costs a selection.
SIZES = 16
#: The height of a map in pixels, and about the ratio of its width to its height.
MAP_HEIGHT, MAP_ASPECT = 320, 1.9


# ------------------------------------------------------------------------------------------------------ settings


class Setting:
    """The base of the two settings that the explorer changes: a setting's values, and its curve."""

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
        self.is_log_distance = plotting.is_logarithmic(heights)
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
        drawn = plotting.sample_of_heights(self.heights.size)
        if self.is_log_distance:
            self.is_log, drawn = True, drawn[self.heights[drawn] > 0]
        self.values, self.curve = drawn + self.trees + 1, self.heights[drawn]
        if not drawn.size:
            self.values, self.curve = np.array([self.trees]), np.zeros(1)
        self._tree: Condensed | None = None
        n, least = model.n_leaves_, cutting.least_size(model.n_leaves_)
        linkage = PreallocatedFrame(dict(zip(cutting.COLUMNS, self.merges, strict=True)), CPU)
        large = cutting.count_large(linkage, cutting.sizes_of(linkage, n), least)
        if n >= cutting.FEW_ROWS and self.min_size == 1 and large[self.value - self.trees] < 2 <= large.max():
            self.value, self.min_size = cutting.at_widest_gap(linkage, n, least), least

    def labels(self, value: int, min_size: int) -> Any:
        """Return the labels of the cut, -1 for rows of clusters that are smaller than `min_size`."""
        return self.model._cut(cutting.CutParameters(value, min_cluster_size=min_size))

    def text(self, value: int, shown: int, min_size: int) -> str:
        """Return the cut in words: the number of its clusters that are `shown`, and the distances that give them."""
        clusters, _, distances = plotting.cut_label(self.heights, value, self.trees, self.unit.name, 3).partition(" (")
        words = clusters if shown == value else f"{shown:,} of {clusters}, those of at least {min_size:,} rows"
        return f"<b>{words}</b>" + (f" ({escape(distances)}" if distances else "")

    def tree(self, value: int) -> Condensed:
        """Return the condensed tree of clusters of at least a hundredth of the rows. All cuts have the same tree."""
        if self._tree is None:
            above = self.merges._replace(height=self.merges.height - self.lowest / self.unit.length)
            self._tree = condense(above, self.model.n_leaves_, cutting.least_size(self.model.n_leaves_))
        return self._tree

    def cut(self, value: int) -> float:
        """Return the distance in the middle of those that give this number of clusters."""
        return cut_height(self.heights, value, self.trees, self.lowest, self.is_log_distance)

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """Return the cluster of each bar's part below the cut, that of the row that stays to the bar's end."""
        return labels[bars.rows]

    def distance(self, value: int) -> float:
        """Return a distance threshold that gives this number of clusters, in as few digits as will do, at least 3."""
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
            rule = self.model._cluster_rule(self.model._settings()).rule
            self._selected = size, tree, select(tree, rule, summarize(tree))
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
    """Return what the explorer changes: the distance of a cut, or HDBSCAN's smallest size. Raise for other labels."""
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


def frame_of(data: Any) -> pd.DataFrame:
    """Return a table of any library, or an array, as a frame of pandas on the host."""
    data = on_host(data) if library_of(data) else to_host(data)
    return data.to_frame() if isinstance(data, pd.Series) else pd.DataFrame(data)


def described(frame: pd.DataFrame, row: int) -> tuple[str, list[str]]:
    """Return as text a row's name, which is its number if the table has no index, and its values."""
    name, values = frame.index[row], [frame.iloc[row, i] for i in range(frame.shape[1])]
    words = [f"{value:.6g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name), words


def column_of(frame: pd.DataFrame, column: Any, what: str) -> pd.Series:
    """Return a Series on the host: the column of a frame that `column` names, or the values that it holds.

    Raises ValueError, which calls the parameter `what`, unless there is one such column, or a value for each row.
    """
    names = list(frame)
    if isinstance(column, str | int) or (isinstance(column, Hashable) and column in names):
        if names.count(column) != 1:
            there = f"there {names.count(column)} times" if column in names else f"no column: there are {listed(names)}"
            raise ValueError(f"{what}={column!r} is {there}")
        return frame[column].reset_index(drop=True)
    values = on_host(column) if library_of(column) else to_host(column)
    series = pd.Series(values).reset_index(drop=True)
    if len(series) != len(frame):
        raise ValueError(f"{what} must have a value for each of {len(frame):,} rows, got {len(series):,}")
    return series


def painted(values: pd.Series, name: str) -> tuple[str, np.ndarray, list[str]]:
    """Return a legend as HTML, a number for each row, and a list of colours.

    The number of a row is that of its colour in the list. If the list is empty, it is a position on a gradient. Numbers
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
        frame = frame_of(X)
        columns = [column_of(frame, name, axis) for axis, name in (("x", x), ("y", y))]
        return np.column_stack([column.to_numpy(np.float64) for column in columns]), [str(x), str(y)]
    points = as_points(model._features(X), device_of(X))
    return plotting.coordinates_of(points.values, np.arange(len(points.values)), points.names, is_map(model))


def equal_scales(coordinates: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the ranges of both axes with which a degree of latitude is as long as one of longitude.

    They are as small as the points allow.
    """
    lowest, highest = coordinates.min(axis=0), coordinates.max(axis=0)
    half = min(max((highest - lowest) / (MAP_ASPECT, 1)) / 2 or 1.0, 90.0)
    (x, y) = (lowest + highest) / 2
    y = np.clip(y, half - 90, 90 - half)  # the range ends at the poles
    return {"x_scale": (x - half, x + half), "y_scale": (y - half, y + half)}


# ------------------------------------------------------------------------------------------------------- widgets


class Explorer:
    """Widgets that show a hierarchy's cuts on its rows; see `Hierarchy.explore`.

    Attributes
    ----------
    labels : Series or array of shape (n,), int32
        The labels of the cut that is shown.
    selected : DataFrame or array
        The selected rows of `data`, or of `X` without it, in its type.
    widget : ipywidgets.Widget
        The widget that Jupyter displays.
    scatter : jscatter.Scatter
    curve, tree : ipywidgets.Widget
        `curve` is the curve along which the cut is dragged: its ``value`` is the setting. `tree` is the condensed tree.
    number, distance, min_size, cluster, color, undo_button : ipywidgets.Widget
        The cut typed as a number or as a distance, in kilometres for haversine; the smallest cluster; the cluster to
        select; what the colours show; the way back.
    """

    _following = False
    _from_menu = False
    _value = 0
    _text = ""

    def __init__(
        self, model: Any, X: Any, x: Any = None, y: Any = None, data: Any = None, color: Any = None, names: Any = None
    ) -> None:
        X, data = table_of(X), table_of(data)
        self._model, self._setting = model, setting_of(model)
        self._data = X if data is None else data
        self._coordinates, self._axis_names = coordinates(model, X, x, y)
        n, drawn = model.n_leaves_, len(self._coordinates)
        if drawn != n:
            raise ValueError(f"X must have the {n:,} rows that were clustered, got {drawn:,}")
        if data is not None and len(data) != n:
            raise ValueError(f"data must have the {n:,} rows that were clustered, got {len(data):,}")
        self._frame = frame_of(self._data)
        self._names = None if names is None else column_of(self._frame, names, "names")
        named = {f"{name} (column)" if name == CLUSTERS else str(name): name for name in self._frame}
        self._columns: dict[str, Any] = {CLUSTERS: None, **named}
        shown = f"{color} (column)" if f"{color} (column)" in named else str(color)
        if color is not None and not (isinstance(color, Hashable) and shown in self._columns):
            shown = "color (given)" if "color" in named else "color"
            self._columns[shown] = column_of(self._frame, color, "color")
        self._history: list[tuple[int, int]] = []
        self.labels = model.labels_
        self._make_panels()
        self._make_controls()
        first = self._setting.value, self._setting.min_size
        model_cut = model._cut_clusters, model._least_size_
        own = isinstance(self._setting, SizeSetting) or first == model_cut
        if not own:
            self._history.append(model_cut)
        self._following = True
        self.min_size.value = first[1]
        self._show(first[0], model.labels_ if own else None)
        for control, change in (
            (self.curve, self._show),
            (self.number, self._show),
            (self.distance, self._show_distance),
            (self.min_size, lambda _: self._show(self._value)),
            (self.cluster, self._select_cluster),
        ):
            control.observe(lambda event, change=change: self._changed(change, event["new"]), "value")
        self.tree.observe(lambda event: self._changed(self._show_distance, event["new"]), "dragged")
        self.tree.observe(lambda event: self.scatter.selection(self._bars.within(event["new"][0])), "clicked")
        for panel in (self.curve, self.tree):
            panel.observe(self._dragged, "dragging")
        self.curve.observe(lambda _: self._write_names(), "ink")
        self.undo_button.on_click(lambda _: self.undo())
        self.color.observe(lambda _: self._paint(), "value")
        self.scatter.widget.observe(lambda _: self._selected_anew(), "selection")
        self.scatter.widget._handle_tooltip = self._answer  # its own handler makes a record of a whole frame of pandas
        if color is not None:
            self.color.value = shown

    def _make_panels(self) -> None:
        """Make the scatter, the curve and the tree."""
        (jscatter, _), (curve, tree) = _packages(), _panels()
        mapped = is_map(self._model)
        scales = equal_scales(self._coordinates) if mapped else {}
        self.scatter = jscatter.Scatter(
            *self._coordinates.T, lasso_color=INK, axes_labels=False, height=MAP_HEIGHT if mapped else HEIGHT,
            background_color=(1, 1, 1, 0), camera_distance=1.1, **scales,
        )  # fmt: skip
        widget, setting, colors = self.scatter.widget, self._setting, list(COLORS[:2])
        widget.axes_color = widget.reticle_color = [0.5, 0.5, 0.5, 1.0]  # `INK`
        shown = ["row", "cluster", *map(str, self._frame)][: COLUMNS_SHOWN + 2]
        self._tooltip = [name + " " * (name in RESERVED) for name in shown]
        widget.tooltip_properties = self._tooltip
        nothing = {"scale": None, "domain": None, "range": None, "histogram": None}
        widget.tooltip_properties_non_visual_info = dict.fromkeys(self._tooltip, nothing)
        widget.tooltip_histograms, widget.tooltip_enable = False, True
        widget.label_placement = _Names(self)
        widget.label_scale_function, widget.label_shadow_color = "constant", "#80808000"
        follows = self._model.n_leaves_ <= FOLLOWED
        self.curve = curve(
            kind="curve", height=CURVE_HEIGHT, names=setting.names, colors=colors, range=list(setting.range),
            is_log=setting.is_log, follows=follows, x=setting.values.tolist(), y=setting.curve.tolist(),
            value=setting.value,
        )  # fmt: skip
        self.tree = tree(
            kind="tree", height=TREE_HEIGHT, names=["rows of each cluster", setting.unit.axis], colors=colors,
            is_log=setting.is_log_distance, follows=follows, range=[0.0, 1.0],
        )  # fmt: skip

    def _make_controls(self) -> None:
        """Make the controls, and lay out all widgets side by side, or below each other on a narrow page."""
        _, widgets = _packages()
        setting, n = self._setting, self._model.n_leaves_
        is_cut = isinstance(setting, CutSetting)
        wide, style = {"width": "auto"}, {"description_width": "100px"}
        field = {"continuous_update": False, "style": style, "layout": wide}
        low, high = setting.range
        self.number = widgets.BoundedIntText(setting.value, min=low, max=high, description=setting.label, **field)
        self.distance = widgets.FloatText(0.0, description=setting.unit.axis, **field)
        self.min_size = widgets.BoundedIntText(1, min=1, max=n, description="smallest size", **field)
        self.cluster = widgets.Dropdown(options=["none"], description="select", style=style, layout=wide)
        self.color = widgets.Dropdown(options=list(self._columns), description="colour", style=style, layout=wide)
        self.undo_button = widgets.Button(
            description="undo",
            tooltip="go back to the cut before",
            layout={"width": "auto", "margin": "2px 2px 2px 104px"},
        )
        self._table, self._count = widgets.HTML(), widgets.HTML()
        fields = [self.number, self.distance, self.min_size] if is_cut else [self.number]
        x, y = (escape(name) for name in self._axis_names)
        above, below = widgets.HTML(f"<b>{y and f'↑ {y}'}</b>"), widgets.HTML(f"<b>{x} →</b>")
        below.layout = {"align_self": "center"}
        half = {"flex": "1 1 360px", "min_width": "min(360px, 100%)", "overflow": "hidden"}
        rows = widgets.VBox([above, self.scatter.show(), below, self.tree], layout=half | {"flex": "3 1 460px"})
        controls = [self.curve, *fields, self.cluster, self.color, self.undo_button, self._count, self._table]
        both = [rows, widgets.VBox(controls, layout=half | {"flex": "2 1 320px"})]
        self.widget = widgets.HBox(both, layout={"flex_flow": "row wrap", "width": "100%"})

    @property
    def selected(self) -> Any:
        """Return the selected rows of `data`, or of `X` without it: all columns, in its type, with its index."""
        return take_rows(self._data, np.sort(np.asarray(self.scatter.selection(), np.int64)))

    def undo(self) -> None:
        """Go back to the cut before, as the button does."""
        while self._history:
            value, size = self._history.pop()
            if (value, size) != (self._value, self.min_size.value):
                self._following = True
                self.min_size.value = size
                self._show(value)
                return

    def to_html(self) -> str:
        """Return the cut that is shown, as a page for a report.

        Returns
        -------
        str
            HTML with pictures inside and without scripts. It loads nothing.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(13, 5), layout="constrained")
        rows_ax, curve_ax = figure.subplots(1, 2, width_ratios=[1.6, 1])
        plotting.plot_clusters(self._coordinates, self.labels, ax=rows_ax)
        rows_ax.set(xlabel=self._axis_names[0], ylabel=self._axis_names[1])
        if is_map(self._model):
            plotting.as_map(rows_ax)
        curve_ax.plot(self._setting.values, self._setting.curve, color=COLORS[0])
        curve_ax.axvline(self._value, color=COLORS[1], linestyle="--")
        curve_ax.set(
            xscale="log", yscale="log" if self._setting.is_log else "linear", xlabel=self._setting.names[0],
            ylabel=self._setting.names[1],
        )  # fmt: skip
        picture = BytesIO()
        figure.savefig(picture, format="png", dpi=110)
        data = b64encode(picture.getvalue()).decode()
        title = escape(f"{type(self._model).__name__}: {counted(self._model.n_leaves_, 'row')}")
        return (
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
            f'<body style="font-family: sans-serif"><h1>{title}</h1>{self._count.value}'
            f'<p><img alt="rows, and the curve of cuts" style="max-width: 100%" src="data:image/png;base64,{data}"></p>'
            f"{self._table.value}</body></html>"
        )

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    @usual_errors()
    def _changed(self, change: Any, new: Any) -> None:
        """Follow a control, unless the change comes from here."""
        if not self._following:
            if not (self.curve.dragging or self.tree.dragging):  # if it is dragged, `_dragged` has remembered the cut
                self._remember()
            change(new)

    def _dragged(self, event: Any) -> None:
        if event["new"]:  # dragging begins
            self._remember()

    def _remember(self) -> None:
        """Let `undo` come back to what is shown."""
        now = self._value, self._shown_size
        if self._history[-1:] != [now]:
            self._history.append(now)

    def _show(self, value: int, labels: Any = None) -> None:
        """Show the cut of this value in every widget."""
        self._following = True
        try:
            self._value, self._shown_size = value, self.min_size.value
            setting = self._setting
            self.labels = setting.labels(value, self._shown_size) if labels is None else labels
            host = np.asarray(on_host(self.labels))
            self._groups = groups = colored_groups(host, len(COLORS))
            self._code = groups.color.astype(np.int64)
            self._code[host < 0] = groups.largest.size + 1
            self.curve.value = self.number.value = value
            if isinstance(setting, CutSetting):
                self.distance.value = setting.distance(value)
            self._text = setting.text(value, groups.order.size, self._shown_size)
            self._draw_tree(host)
            self._paint()
            largest = groups.largest.tolist()
            names = self._names_of(groups.largest, host)
            self._placed = self._places(names, host)
            self._write_names()
            options = [(f"cluster {names[i]} ({counted(groups.sizes[i], 'row')})", i) for i in largest]
            noise = [(f"noise ({counted(groups.noise, 'row')})", -1)] if groups.noise else []
            self.cluster.options = [("none", "none"), *options, *noise]
            self._table.value = plotting.clusters_table(groups, names)
        finally:
            self._following = False

    def _paint(self) -> None:
        """Give the points the colours and sizes of clusters or of a column."""
        name, groups = self.color.value, self._groups
        column = self._columns[name]
        counts = groups.sizes[groups.largest]
        smallest, largest = SIZE_OF_POINTS
        sizes = [*np.clip(9 - 2 * np.log10(np.maximum(counts, 1)), smallest, largest).tolist(), smallest, NOISE_SIZE]
        if column is None:
            self._legend, by, colors = "", self._code, [*COLORS[: groups.largest.size], OTHERS, NOISE]
            used = np.flatnonzero(np.bincount(by, minlength=len(colors)))
        else:
            self._legend, by, colors = painted(column_of(self._frame, column, "color"), name)
            sizes, used = [smallest] * len(colors), np.arange(len(colors))
        with self.scatter.widget.hold_sync():  # in one message, for one drawing
            if colors:
                codes = pd.Series(by).astype("category")  # numbers would be a continuous scale
                self.scatter.color(by=codes, map=[colors[i] for i in used])
                self.scatter.size(by=codes, map=[sizes[i] for i in used])
            else:
                self.scatter.color(by=pd.Series(by), map=GRADIENT).size(by=None, default=smallest)
            self.scatter.widget.non_spatial_points_update = True  # no animation
            self.scatter.widget.points = self.scatter.get_point_list().astype(np.float32)
        self._write_count()

    def _draw_tree(self, labels: np.ndarray) -> None:
        """Draw the tree if it has changed, and then the cut and the colours in it."""
        setting, value = self._setting, self._value
        condensed = setting.tree(value)
        if condensed is not getattr(getattr(self, "_bars", None), "tree", None):
            self._bars = bars = Bars(condensed, setting.unit.length, setting.lowest, setting.is_log_distance)
            self.tree.range = list(bars.range)
            self.tree.titles = [counted(int(size), "row") for size in bars.sizes]
            self.tree.fills = []
            self.tree.bars = bars.corners
        self.tree.fills = self._groups.colors_of(setting.bar_labels(self._bars, value, labels))
        self.tree.cut = setting.cut(value)

    def _names_of(self, clusters: np.ndarray, labels: np.ndarray) -> dict[int, str]:
        """Return the name of each cluster: its number, and the commonest name of its rows or its central row's name."""
        names = {int(i): str(i) for i in clusters}
        if self._names is not None:
            for i in names:
                row_names = self._names[labels == i].dropna()
                counts = row_names.value_counts(sort=False)
                if counts.size:
                    places = self._coordinates[row_names.index]
                    central = np.square(places - np.median(places, axis=0)).sum(axis=1).argmin()
                    is_common = counts.max() >= max(2, COMMON * row_names.size)
                    names[i] = f"{i}: {counts.idxmax() if is_common else row_names.iloc[central]}"
        return names

    def _places(self, names: dict[int, str], labels: np.ndarray) -> list[tuple[str, float, float]]:
        """Return the names of the largest clusters and their positions on the map. None of them covers another."""
        lowest, highest = self._coordinates.min(axis=0), self._coordinates.max(axis=0)
        width, height = np.where(highest > lowest, highest - lowest, 1.0).tolist()
        placed: list[tuple[str, float, float]] = []
        sizes = self._groups.sizes
        for i in [i for i in list(names)[:NAMED] if sizes[i] > sizes.max() * UNNAMED]:
            x, y = np.median(self._coordinates[labels == i], axis=0).tolist()
            if all(
                abs(x - a) > LETTER * width * (len(names[i]) + len(name)) / 2 or abs(y - b) > LINE * height
                for name, a, b in placed
            ):
                placed.append((names[i], x, y))
        return placed

    def _write_names(self) -> None:
        """Put the names on the map, in the colour of the page's text."""
        from jscatter.label_placement import to_js

        self.scatter.widget.labels = to_js(self.scatter.widget.label_placement.get_labels_from_tiles(None))

    def _answer(self, asked: dict[str, Any]) -> None:
        """Send the scatter the text for the row under the pointer: its name, its cluster and its columns."""
        row = int(asked["index"])
        name, values = described(self._frame, row)
        label = int(np.asarray(on_host(self.labels))[row])
        texts = [name, "noise" if label < 0 else str(label), *values]
        words = dict(zip(self._tooltip, texts, strict=False))
        self.scatter.widget.send({"type": "tooltip", "index": row, "preview": None, "properties": words})

    def _write_count(self) -> None:
        noise = f"<br>{counted(self._groups.noise, 'row')} of noise" if self._groups.noise else ""
        selected = counted(len(self.scatter.selection()), "row")
        self._count.value = f"{self._text}{noise}<br>{selected} selected{self._legend}"

    def _selected_anew(self) -> None:
        """Show how many rows are selected, and set the menu to "none" unless it made the selection."""
        if not self._from_menu and self.cluster.value != "none":
            self._following = True
            self.cluster.value = "none"
            self._following = False
        self._write_count()

    def _select_cluster(self, label: int | str) -> None:
        self._from_menu = True
        self.scatter.selection([] if label == "none" else np.flatnonzero(np.asarray(on_host(self.labels)) == label))
        self._from_menu = False

    def _show_distance(self, distance: float) -> None:
        if isinstance(self._setting, CutSetting):
            self._show(self._setting.at_distance(distance))


class _Names:
    """The names on the map. jupyter-scatter asks it for the names in the tiles that are seen."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def get_labels_from_tiles(self, tiles: Any) -> pd.DataFrame:
        """Return all names with their positions and their look, whatever the tiles, because they are few."""
        names = pd.DataFrame(self.explorer._placed, columns=["label", "x", "y"])
        look: dict[str, Any] = {
            "zoom_in": 0.0,
            "zoom_out": np.inf,
            "zoom_fade_extent": 1.0,
            "font_color": self.explorer.curve.ink,
        }
        return names.assign(**look, font_face="sans-serif", font_style="normal", font_weight="bold", font_size=13)


# -------------------------------------------------------------------------------------------------------- panels


def _packages() -> tuple[Any, Any]:
    """Import jupyter-scatter and ipywidgets. Raise an ImportError that names the extra if one is missing."""
    with needs("exploring needs jupyter-scatter and ipywidgets", "explore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pandas warns of calls in jupyter-scatter
        import ipywidgets
        import jscatter
    return jscatter, ipywidgets


@cache
def _panels() -> tuple[Any, Any]:
    """Return the classes of the panels that panels.js draws beside the map: the curve and the tree.

    anywidget, which jupyter-scatter needs too, connects the two.
    """
    import anywidget
    import traitlets

    class Panel(anywidget.AnyWidget):
        """A drawing with a cut that can be dragged."""

        _esm = Path(__file__).with_name("panels.js")
        kind = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)  # pixels
        names: Any = traitlets.List().tag(sync=True)  # the names of the axes
        colors: Any = traitlets.List().tag(sync=True)  # the colours of the curve and of the cut
        #: the least and the largest value of the axis along which the cut moves
        range: Any = traitlets.List().tag(sync=True)
        is_log = traitlets.Bool().tag(sync=True)  # whether the axis of y is logarithmic
        dragging = traitlets.Bool(False).tag(sync=True)
        #: whether values come while the cut is dragged, or only at the end
        follows = traitlets.Bool(True).tag(sync=True)

    class Curve(Panel):
        """The curve, which has a height for each setting."""

        x: Any = traitlets.List().tag(sync=True)
        y: Any = traitlets.List().tag(sync=True)
        value = traitlets.Int().tag(sync=True)  # the setting that is shown
        ink = traitlets.Unicode("#808080").tag(sync=True)  # the colour of the page's text

    class Tree(Panel):
        """The condensed tree as an icicle: a bar for each cluster, whose width is its rows at each distance."""

        bars: Any = traitlets.List().tag(sync=True)  # the corners of each bar: a share of the rows, and a distance
        titles: Any = traitlets.List().tag(sync=True)  # the text of each bar that the pointer shows
        fills: Any = traitlets.List().tag(sync=True)  # the colour of each bar below the cut, "" for none
        cut = traitlets.Float(None, allow_none=True).tag(sync=True)  # the distance; None for no cut
        dragged = traitlets.Float(0.0).tag(sync=True)  # the distance to which the cut is dragged
        clicked = traitlets.List([-1, 0]).tag(sync=True)  # a bar, and the number of clicks

    return Curve, Tree

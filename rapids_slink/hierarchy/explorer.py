"""`Hierarchy.explore`: a scatter of the rows beside the curve of cuts, for Jupyter.

jupyter-scatter draws both, ipywidgets has the controls. The slider sets a number of clusters, or the smallest cluster
of HDBSCAN. A cut takes milliseconds, so the colours follow the slider.
"""

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.condense import Merges, condense, select, summarize
from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.plotting import (
    colored_groups,
    cut_label,
    is_logarithmic,
    map_coordinates,
    plane_coordinates,
    sample_of_heights,
)
from rapids_slink.points import as_points
from rapids_slink.points.output import is_collection, library_of, on_host, take_rows
from rapids_slink.report import counted
from rapids_slink.runtime.device import device_of, on_current_gpu, to_host
from rapids_slink.runtime.memory import usual_errors

#: Sizes of the smallest cluster on HDBSCAN's curve, each of which costs a selection.
SIZES = 16
#: Settings of a slider at most.
STEPS = 400
#: Up to this many rows the colours follow while the slider is dragged, and above when it is let go.
FOLLOWED = 300_000
HEIGHT, CURVE_HEIGHT = 480, 200  # pixels
#: The largest clusters have the colours in turn.
COLORS, COLORED = plotting.COLORS, 60
#: The height of a map in pixels, and its width by its height, about.
MAP_HEIGHT, MAP_ASPECT = 320, 1.5
INK = "#808080"  # legible on light and on dark pages


class Setting:
    """The setting that the slider turns, and its curve."""

    values: np.ndarray  # (m,), ascending values of the setting
    curve: np.ndarray  # (m,), the curve's height at each
    value: int  # the setting that is shown first
    range: tuple[int, int]  # the lowest and the highest setting
    label: str  # of the setting
    names: list[str]  # of the curve's axes
    scale = "linear"  # of the curve's heights, or "log"

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def steps(self) -> np.ndarray:
        """The settings of a slider, evenly by their logarithm, as the curve is drawn."""
        return np.unique(np.rint(np.geomspace(*self.range, STEPS)).astype(np.int64))

    def nearest(self, value: int) -> int:
        """The step that is nearest to this setting."""
        return int(self.steps[np.abs(self.steps - value).argmin()])

    def labels(self, value: int, min_size: int) -> Any:
        """The labels at this setting, those of clusters below a size -1, as `cut` returns them."""
        raise NotImplementedError

    def text(self, value: int) -> str:
        """The setting in words."""
        raise NotImplementedError


class CutSetting(Setting):
    """The number of clusters of a cut, and the distance of the next merge."""

    label, names = "clusters", ["number of clusters", "distance of the next merge"]

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.heights = np.asarray(on_host(model.linkage_["height"]))[::-1]
        self.trees, self.value = model.n_leaves_ - self.heights.size, model.n_clusters_
        self.range = self.trees, model.n_leaves_
        drawn = sample_of_heights(self.heights.size)
        if is_logarithmic(self.heights):
            self.scale, drawn = "log", drawn[self.heights[drawn] > 0]
        self.values, self.curve = drawn + self.trees + 1, self.heights[drawn]
        if not drawn.size:
            self.values, self.curve = np.array([self.trees]), np.zeros(1)

    def labels(self, value: int, min_size: int) -> Any:
        """The labels of the cut."""
        return self.model._cut(CutParameters(value, min_cluster_size=min_size))

    def text(self, value: int) -> str:
        """The cut in words."""
        return cut_label(self.heights, value, self.trees)

    def distance(self, value: int) -> float:
        """A distance threshold that gives this number of clusters."""
        undone = value - self.trees
        if undone or not self.heights.size:
            return float(self.heights[undone - 1]) if self.heights.size else 0.0
        return float(np.nextafter(self.heights[0], np.inf))

    def at_distance(self, distance: float) -> int:
        """The number of clusters of a distance threshold."""
        return int((self.heights >= distance).sum()) + self.trees


class SizeSetting(Setting):
    """The smallest cluster of HDBSCAN, and the number of clusters."""

    label, names = "smallest size", ["rows of the smallest cluster", "number of clusters"]

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if hasattr(model, "_weighted_"):
            raise ValueError("the explorer counts rows, and these have weights: fit without sample_weight")
        self.merges = Merges(*(np.asarray(on_host(model.linkage_[name])) for name in COLUMNS))
        self.range, self.value = (2, max(2, model.n_leaves_)), model.min_cluster_size
        self.values = np.unique(np.rint(np.geomspace(2, max(2, model.n_leaves_ // 2), SIZES)).astype(np.int64))
        self.curve = np.array([self._select(size).persistence.size for size in self.values.tolist()], np.float64)

    def _select(self, size: int) -> Any:
        tree = condense(self.merges, self.model.n_leaves_, size)
        return select(tree, self.model._cluster_rule().rule, summarize(tree))

    def labels(self, value: int, min_size: int) -> Any:
        """HDBSCAN's labels for clusters of at least `value` rows."""
        return self.model._output.labels(self._select(value).labels, on_current_gpu(self.model._index), "label")

    def text(self, value: int) -> str:
        """The setting in words."""
        return f"of at least {value:,} rows"


def setting_of(model: Any) -> Setting:
    """The slider of a model's explorer."""
    if model._cut_per_group_:
        raise ValueError(
            "explore shows cuts at one distance, and these labels are of a number of clusters in each group: fit with "
            "distance_threshold="
        )
    return CutSetting(model) if model._labels_are_a_cut else SizeSetting(model)


# ------------------------------------------------------------------------------------------------------- widgets


class Explorer:
    """Widgets that show a hierarchy's cuts on its rows; see `Hierarchy.explore`.

    Attributes
    ----------
    labels : Series or array of shape (n,), int32
        The labels of the cut that is shown.
    selected : DataFrame or array
        The selected rows of `X`, in its type.
    widget : ipywidgets.Widget
        What Jupyter displays.
    scatter, curve : jscatter.Scatter
    slider, number, distance, min_size, cluster : ipywidgets.Widget
        The cut along the curve; the same typed as a number or as a distance; the smallest cluster; the cluster to
        select.
    """

    _following = False
    _value = 0
    _text = ""

    def __init__(self, model: Any, X: Any, x: Any = None, y: Any = None) -> None:
        X = on_host(X) if is_collection(X) else X
        self._model, self._X, self._setting = model, X, setting_of(model)
        self._coordinates, self._names = coordinates(model, X, x, y)
        n, drawn = model.n_leaves_, len(self._coordinates)
        if drawn != n:
            raise ValueError(f"X must have the {n:,} rows that were clustered, got {drawn:,}")
        self.labels = model.labels_
        self._make_panels()
        self._make_controls()
        self._show(self._setting.value, model.labels_)
        for control, change in (
            (self.slider, self._show),
            (self.number, self._show),
            (self.distance, self._show_distance),
            (self.min_size, lambda _: self._show(self._value)),
            (self.cluster, self._select_cluster),
        ):
            control.observe(lambda event, change=change: self._changed(change, event["new"]), "value")
        self.curve.widget.observe(lambda event: self._changed(self._click, event["new"]), "selection")
        self.scatter.widget.observe(lambda _: self._write_count(), "selection")

    def _make_panels(self) -> None:
        """The scatter and the curve."""
        jscatter, _ = _packages()
        look = {"background_color": (1, 1, 1, 0), "camera_distance": 1.1}
        is_map = _is_map(self._model)
        scales = equal_scales(self._coordinates) if is_map else {}
        size = {"height": MAP_HEIGHT if is_map else HEIGHT}
        self.scatter = jscatter.Scatter(
            *self._coordinates.T, lasso_color=INK, axes_labels=self._names, **size, **scales, **look
        )
        setting = self._setting
        axes = {"x_scale": "log" if setting.values.size > 1 else "linear", "y_scale": setting.scale}
        style = {"height": CURVE_HEIGHT, "axes_labels": setting.names, "color": COLORS[0], "opacity": 1, "size": 4}
        self.curve = jscatter.Scatter(setting.values, setting.curve, **axes, **style, **look)
        for panel in (self.scatter, self.curve):
            panel.widget.axes_color = panel.widget.reticle_color = [0.5, 0.5, 0.5, 1.0]  # `INK`

    def _make_controls(self) -> None:
        """The controls, and all widgets side by side."""
        _, widgets = _packages()
        setting, n = self._setting, self._model.n_leaves_
        wide, style = {"width": "98%"}, {"description_width": "90px"}
        self.slider = widgets.SelectionSlider(
            options=setting.steps.tolist(), value=setting.nearest(setting.value), readout=False, layout=wide,
            continuous_update=n <= FOLLOWED,
        )  # fmt: skip
        field = {"continuous_update": False, "style": style, "layout": wide}
        low, high = setting.range
        self.number = widgets.BoundedIntText(setting.value, min=low, max=high, description=setting.label, **field)
        self.distance = widgets.FloatText(0.0, description="distance", **field)
        self.min_size = widgets.BoundedIntText(1, min=1, max=n, description="smallest size", **field)
        self.cluster = widgets.Dropdown(options=["none"], description="select", style=style, layout=wide)
        self._table, self._count = widgets.HTML(), widgets.HTML()
        fields = [self.number, self.distance, self.min_size] if isinstance(setting, CutSetting) else [self.number]
        curve = self.curve.show(["pan_zoom", "reset"])
        controls = [curve, self.slider, *fields, self.cluster, self._count, self._table]
        rows = widgets.VBox([self.scatter.show()], layout={"width": "62%"})
        self.widget = widgets.HBox([rows, widgets.VBox(controls, layout={"width": "37%", "overflow": "hidden"})])

    @property
    def selected(self) -> Any:
        """The selected rows of `X`: all its columns, in its type, with its index."""
        rows = np.sort(np.asarray(self.scatter.selection(), np.int64))
        if library_of(self._X):
            return take_rows(self._X, rows)
        return (self._X if hasattr(self._X, "shape") else np.asarray(self._X))[rows]

    def to_html(self) -> str:
        """The cut that is shown, as a page for a report.

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
        of_rows, of_curve = figure.subplots(1, 2, width_ratios=[1.6, 1])
        plotting.plot_clusters(self._coordinates, self.labels, ax=of_rows)
        of_rows.set(xlabel=self._names[0], ylabel=self._names[1])
        of_curve.plot(self._setting.values, self._setting.curve, color=plotting.COLORS[0])
        of_curve.axvline(self._value, color=plotting.COLORS[1], linestyle="--")
        of_curve.set(
            xscale="log", yscale=self._setting.scale, xlabel=self._setting.names[0], ylabel=self._setting.names[1]
        )
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
            change(new)

    def _show(self, value: int, labels: Any = None) -> None:
        """Show the cut of this value in every widget."""
        jscatter, _ = _packages()
        self._following = True
        try:
            self._value = value
            self.labels = self._setting.labels(value, self.min_size.value) if labels is None else labels
            groups = colored_groups(np.asarray(on_host(self.labels)), COLORED)
            colors = [COLORS[i % len(COLORS)] for i in range(groups.largest.size)] + [plotting.OTHERS]
            by: Any = pd.Series(groups.color).astype("category")  # numbers would be a continuous scale
            self.scatter.color(by=by, map=colors[: by.cat.categories.size])
            self.scatter.widget.non_spatial_points_update = True  # no animation
            self.scatter.widget.points = self.scatter.get_point_list().astype(np.float32)
            self.curve.annotations([jscatter.VLine(value, line_color=plotting.COLORS[1], line_width=2)])
            self.slider.value, self.number.value = self._setting.nearest(value), value
            if isinstance(self._setting, CutSetting):
                self.distance.value = self._setting.distance(value)
            largest = groups.order[: plotting.LISTED].tolist()
            options = [(f"cluster {i} ({counted(groups.sizes[i], 'row')})", i) for i in largest]
            noise = [(f"noise ({counted(groups.noise, 'row')})", -1)] if groups.noise else []
            self.cluster.options = [("none", "none"), *options, *noise]
            self._table.value = plotting.clusters_table(groups, COLORS)
            shown = counted(groups.sizes.size, "cluster")
            text = self._setting.text(value).removeprefix(shown)
            self._text = f"<b>{shown}</b> {escape(text)}"
            self._write_count()
        finally:
            self._following = False

    def _write_count(self) -> None:
        self._count.value = f"{self._text}<br>{counted(len(self.scatter.selection()), 'row')} selected"

    def _select_cluster(self, label: int | str) -> None:
        self.scatter.selection([] if label == "none" else np.flatnonzero(np.asarray(on_host(self.labels)) == label))

    def _show_distance(self, distance: float) -> None:
        if isinstance(self._setting, CutSetting):
            self._show(self._setting.at_distance(distance))

    def _click(self, points: Any) -> None:
        """A click on the curve."""
        if len(points):
            self._show(int(self._setting.values[int(points[-1])]))


def coordinates(model: Any, X: Any, x: Any, y: Any) -> tuple[np.ndarray, list[str]]:
    """Two coordinates of each row, and their names: two columns, a map, or the principal axes."""
    if (x is None) != (y is None):
        raise ValueError("x and y name two columns: give both or neither")
    if x is not None:
        columns = [X[name] if library_of(X) else np.asarray(to_host(X))[:, name] for name in (x, y)]
        return np.column_stack([np.asarray(on_host(column), np.float64) for column in columns]), [str(x), str(y)]
    device, X = device_of(X), model._features(X)
    points = as_points(X, device)
    values, names = points.values, points.names
    if _is_map(model):
        return map_coordinates(to_host(values))
    return plane_coordinates(values if values.shape[1] > 2 else to_host(values), np.arange(len(values)), names)


def equal_scales(coordinates: np.ndarray) -> dict[str, tuple[float, float]]:
    """Ranges of both axes that give a degree of latitude and of longitude one length; the points fill the scatter."""
    lowest, highest = coordinates.min(axis=0), coordinates.max(axis=0)
    half = max((highest - lowest) / (MAP_ASPECT, 1)) / 2 or 1.0
    (x, y) = (lowest + highest) / 2
    return {"x_scale": (x - half, x + half), "y_scale": (y - half, y + half)}


def _is_map(model: Any) -> bool:
    return getattr(model, "metric", None) == "haversine"


def _packages() -> tuple[Any, Any]:
    try:
        import ipywidgets
        import jscatter
    except ImportError as error:
        raise ImportError(
            "exploring needs jupyter-scatter and ipywidgets: pip install 'rapids_slink[explore]'"
        ) from error
    return jscatter, ipywidgets

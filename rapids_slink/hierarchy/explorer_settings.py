"""What the explorer turns: the number of clusters of a cut, or the smallest cluster of HDBSCAN.

A setting has a curve, labels at each of its values, and a condensed tree that is drawn beside the rows.
"""

from html import escape
from typing import Any

import numpy as np

from rapids_slink.dendrogram.condense import Condensed, Merges, Selected, condense, enclosing, select, summarize
from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters
from rapids_slink.hierarchy.plotting import cut_label, is_logarithmic, sample_of_heights
from rapids_slink.points.output import on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import on_current_gpu
from rapids_slink.trigonometry import EARTH_RADIUS

#: Sizes of the smallest cluster on HDBSCAN's curve, each of which costs a selection.
SIZES = 16
#: Below this many rows the cut that is shown first is the model's own.
FEW_ROWS = 100


class Setting:
    """The setting that the explorer turns, and its curve."""

    values: np.ndarray  # (m,), ascending values of the setting
    curve: np.ndarray  # (m,), the curve's height at each
    value: int  # the setting that is shown first
    min_size: int = 1  # and the smallest size
    range: tuple[int, int]  # the lowest and the highest setting
    label: str  # of the setting
    names: list[str]  # of the curve's axes
    is_log = False  # whether the curve's heights are on a logarithmic axis

    def __init__(self, model: Any) -> None:
        self.model = model
        #: of distances: great circles are shown in kilometres
        self.unit, self.unit_name = (EARTH_RADIUS, " km") if is_map(model) else (1.0, "")
        self.merges = Merges(*(np.asarray(on_host(model.linkage_[name])) for name in COLUMNS))
        heights = self.merges.height[::-1] * self.unit
        self.heights, self.trees = heights, model.n_leaves_ - heights.size
        self.of_distance = f"distance{self.unit_name and ' (km)'}"
        self.is_log_distance = is_logarithmic(heights)
        #: below zero for inner products; a condensed tree is of heights above it
        self.lowest = min(float(heights.min(initial=0.0)), 0.0)

    def labels(self, value: int, min_size: int) -> Any:
        """The labels at this setting, those of clusters below a size -1, as `cut` returns them."""
        raise NotImplementedError

    def text(self, value: int, shown: int, min_size: int) -> str:
        """The setting in words, where this number of clusters is shown."""
        raise NotImplementedError

    def tree(self, value: int) -> Condensed:
        """The condensed tree that is drawn at this setting."""
        raise NotImplementedError

    def cut(self, value: int) -> float | None:
        """The distance at which the tree is cut, if it is."""
        return None

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """The cluster of each bar of the tree, or of its part below the cut; -1 for none."""
        raise NotImplementedError


class CutSetting(Setting):
    """The number of clusters of a cut, and the distance of the next merge.

    If no more than one cluster of the model's own cut has a hundredth of the rows, the others are outliers. Then the
    first cut is at the widest gap between merges that leaves two clusters of that size, the smallest that is shown.
    """

    label = "clusters"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.names = ["number of clusters", f"{self.of_distance} of the next merge".replace(" (km)", "", 1)]
        if self.unit_name:
            self.names[1] += " (km)"
        self.value, self.range = model.n_clusters_, (self.trees, model.n_leaves_)
        drawn = sample_of_heights(self.heights.size)
        if self.is_log_distance:
            self.is_log, drawn = True, drawn[self.heights[drawn] > 0]
        self.values, self.curve = drawn + self.trees + 1, self.heights[drawn]
        if not drawn.size:
            self.values, self.curve = np.array([self.trees]), np.zeros(1)
        self._tree: Condensed | None = None
        least = least_size(model.n_leaves_)
        large = self.counts(least)
        if model.n_leaves_ >= FEW_ROWS and large[self.value - self.trees] < 2 <= large.max():
            gap = -np.diff(self.heights, prepend=self.heights[:1], append=0.0)
            self.value, self.min_size = int(np.where(large >= 2, gap, -1.0).argmax()) + self.trees, least

    def counts(self, size: int) -> np.ndarray:
        """The clusters of at least this many rows of the cut into `trees` clusters, and of each finer one."""
        n = self.model.n_leaves_
        is_large = np.concatenate([np.full(n, size <= 1), self.merges.size >= size])
        is_root = np.ones(is_large.size, bool)
        is_root[self.merges.left_child] = is_root[self.merges.right_child] = False
        parts = is_large[self.merges.left_child].astype(np.int64) + is_large[self.merges.right_child]
        gained = (parts - is_large[n:])[::-1]
        return int((is_root & is_large).sum()) + np.concatenate([[0], np.cumsum(gained)])

    def labels(self, value: int, min_size: int) -> Any:
        """The labels of the cut."""
        return self.model._cut(CutParameters(value, min_cluster_size=min_size))

    def text(self, value: int, shown: int, min_size: int) -> str:
        """The cut in words: the clusters that are shown, of how many, and the distances that give them."""
        clusters, _, distances = cut_label(self.heights, value, self.trees).partition(" (")
        words = clusters if shown == value else f"{shown:,} of {clusters}, those of at least {min_size:,} rows"
        return f"<b>{words}</b>" + (f" ({escape(distances[:-1])}{self.unit_name})" if distances else "")

    def tree(self, value: int) -> Condensed:
        """The same tree at any cut, of clusters of a hundredth of the rows."""
        if self._tree is None:
            above = self.merges._replace(height=self.merges.height - self.lowest / self.unit)
            self._tree = condense(above, self.model.n_leaves_, least_size(self.model.n_leaves_))
        return self._tree

    def cut(self, value: int) -> float | None:
        """The distance in the middle of those that give this number of clusters."""
        undone = value - self.trees
        above = self.heights[undone] if undone < self.heights.size else self.lowest
        below = self.heights[undone - 1] if undone else above
        return float((above * below) ** 0.5 if self.is_log_distance and above > 0 else (above + below) / 2)

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """The cluster of the row that stays in each bar."""
        return labels[bars.rows]

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
        """HDBSCAN's labels for clusters of at least `value` rows."""
        return self.model._output.labels(self._select(value)[1].labels, on_current_gpu(self.model._index), "label")

    def text(self, value: int, shown: int, min_size: int) -> str:
        """The setting in words."""
        return f"<b>{counted(shown, 'cluster')}</b> of at least {value:,} rows"

    def tree(self, value: int) -> Condensed:
        """The tree of clusters of at least `value` rows."""
        return self._select(value)[0]

    def bar_labels(self, bars: Any, value: int, labels: np.ndarray) -> np.ndarray:
        """The selected cluster that each bar is, or is within."""
        tree, selected = self._select(value)
        number = np.full(tree.parent.size + 1, -1)
        number[selected.clusters] = np.arange(selected.clusters.size)
        return number[enclosing(tree.parent, number[:-1] >= 0)][bars.clusters]


def least_size(n: int) -> int:
    """The rows of a cluster that is no outlier: a hundredth of all, at least 5."""
    return max(5, n // 100)


def setting_of(model: Any) -> Setting:
    """The slider of a model's explorer."""
    if model._cut_per_group_:
        raise ValueError(
            "explore shows cuts at one distance, and these labels are of a number of clusters in each group: fit with "
            "distance_threshold="
        )
    return CutSetting(model) if model._labels_are_a_cut else SizeSetting(model)


def is_map(model: Any) -> bool:
    """Whether the rows are places on a globe."""
    return getattr(model, "metric", None) == "haversine"

"""The slider of `explore`: a number of clusters, or the smallest cluster of HDBSCAN, and the curve along it."""

from typing import Any

import numpy as np

from rapids_slink.dendrogram.condense import Merges, condense, select, summarize
from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.hierarchy.plotted import cut_label, is_logarithmic, sample_of_heights
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import on_current_gpu

#: Sizes of the smallest cluster on HDBSCAN's curve, each of which costs a selection.
SIZES = 16
#: Settings of a slider at most.
STEPS = 400


class Dial:
    """A setting and its curve."""

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


class CutDial(Dial):
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
        return self.model.cut(value, min_cluster_size=min_size)

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


class SizeDial(Dial):
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


def dial_of(model: Any) -> Dial:
    """The slider of a model's explorer."""
    return CutDial(model) if model._labels_are_a_cut else SizeDial(model)

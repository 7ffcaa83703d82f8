"""Flat clusters of a linkage by a rule: a cut at one height, or HDBSCAN's stable clusters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from rapids_slink.dendrogram import condense, selection
from rapids_slink.dendrogram.condense_parallel import condense_by_doubling
from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters, check_cut, cut_labels
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.frames import PreallocatedFrame, frame_of
from rapids_slink.runtime.memory import copy_out

#: The names of Series, by the attributes that hold them.
SERIES_NAMES = {"labels_": "label", "probabilities_": "probability", "outlier_scores_": "outlier_score"}


@dataclass(frozen=True)
class FlatClusters:
    """The chosen clusters, as attributes of a model."""

    n_clusters: int
    rows: Mapping[str, Any]  # dict of (n,) arrays by attribute, a value for each row
    clusters: Mapping[str, Any] = field(default_factory=dict)  # dict of arrays by attribute, a value for each cluster
    frames: Mapping[str, Any] = field(default_factory=dict)  # dict of DataFrame by attribute


@dataclass(frozen=True)
class ClusterRule:
    """How a model chooses clusters. It may be sent to a Dask worker."""

    predicts_by_density: ClassVar[bool] = False  # whether predictions need core distances
    row_bytes: ClassVar[int] = 48  # bytes per row that the choice takes at its peak

    def weighted(self, weight: np.ndarray, core: np.ndarray | None) -> Self:
        """The rule for rows of these weights and core distances: the same, unless it depends on them."""
        return self

    def check_rows(self, n: int) -> None:
        """Raise unless the rule can cluster n rows."""

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """The clusters of the linkage of n rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Cut(ClusterRule):
    """A cut at one height: by the number of clusters, or by a distance."""

    n_clusters: Any = None
    distance_threshold: Any = None

    def check_rows(self, n: int) -> None:
        """Raise unless n rows have such a cut."""
        check_cut(n, 1, self.n_clusters, self.distance_threshold)

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """The clusters of the linkage of n rows."""
        with report.stage("cut", device):
            cut = cut_labels(merges, n, CutParameters(self.n_clusters, self.distance_threshold))
            labels = cut.columns["label"]
        return FlatClusters(number_of_clusters(labels, self.n_clusters), {"labels_": labels})


@dataclass(frozen=True)
class StableClusters(ClusterRule):
    """HDBSCAN's clusters of at least `min_size` rows. An error for negative heights names the `metric`."""

    min_size: int
    rule: selection.Rule
    metric: str
    weighting: condense.Weighting | None = None

    predicts_by_density: ClassVar[bool] = True
    row_bytes: ClassVar[int] = 80

    def weighted(self, weight: np.ndarray, core: np.ndarray | None) -> Self:
        """The rule for rows of these weights and core distances."""
        with np.errstate(divide="ignore", over="ignore"):
            rate = np.full(weight.size, np.inf) if core is None else 1 / core
        return replace(self, weighting=condense.Weighting(weight, rate))

    def choose(self, merges: PreallocatedFrame, n: int, device: Device, report: Report) -> FlatClusters:
        """The clusters of the linkage of n rows."""
        with report.stage("clusters", device):
            columns, place = condense.Merges(*(merges.columns[name] for name in COLUMNS)), device
            if columns.height.size and columns.height[0] < 0:
                lowest = float(columns.height[0])
                raise ValueError(f"HDBSCAN needs distances that are not negative, and {self.metric} gives {lowest}")
            if device.is_gpu and self.weighting is None and columns.height.size == n - 1 > 0:
                tree = condense_by_doubling(columns, self.min_size, device.xp)
            else:
                place, columns = CPU, condense.Merges(*map(to_host, columns))
                tree = condense.condense(columns, n, self.min_size, self.weighting)
            summary = selection.summarize(tree, place, self.weighting)
            selected = selection.select(tree, self.rule, summary, place)
            scores = selection.outlier_scores(tree, summary, place)
            condensed = frame_of(device, condense.columns_of(tree, self.weighting, device))
            rows = {"labels_": selected.labels, "probabilities_": selected.probabilities, "outlier_scores_": scores}
            rows = {name: copy_out(place, values) for name, values in rows.items()}
        return FlatClusters(
            selected.persistence.size,
            rows,
            {"cluster_persistence_": selected.persistence, "_selected_": selected.clusters},
            {"_condensed_": condensed},
        )


def number_of_clusters(labels: Array, n_clusters: Any) -> int:
    """The number of clusters of a cut: `n_clusters`, or the number of labels 0..k-1 if that is None."""
    return int(labels.max()) + 1 if n_clusters is None else int(n_clusters)

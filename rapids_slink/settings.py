"""The parameters of a fit for the engines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from rapids_slink.metrics import Metric


@dataclass(frozen=True)
class Settings:
    """How the tree of points is made: parameters of `SingleLinkage` and `HDBSCAN`."""

    metric: Metric
    device: str = "auto"
    memory_limit: Any = None
    n_neighbors: int | None = None
    min_samples: int = 1  # the number of neighbours of a core distance; 1 for the metric's own distances
    clipped: bool = True  # whether `min_samples` is a default, which is lowered if there are few rows
    progress: bool = False
    max_distance: float | None = None
    #: the distance within which rows are in one cluster, if no more of their tree than these clusters is wanted
    friends_within: float | None = None
    missing_values: tuple[Any, ...] = ()  # of `missing_values_of`
    prediction_data: bool = False  # whether the model keeps its rows and what its predictions read
    gen_min_span_tree: bool = False  # whether the model keeps its rows to draw its tree on them
    weights: Any = None  # array of shape (n,), optional; how many equal rows each counts for
    store_centers: str | None = None
    groups: Any = None  # `points.keys.GroupBy`, optional; rows of different groups are not compared

    def of_columns(self, names: Sequence[Any] | None, d: int) -> Self:
        """The settings for d columns, which may have names: see `Metric.of_columns`."""
        return replace(self, metric=self.metric.of_columns(names, d))

    def for_rows(self, n: int) -> Self:
        """The settings for n rows, which may be too few for `min_samples`."""
        if not self.clipped and self.min_samples > n - 1:
            raise ValueError(f"min_samples must be at most n - 1 = {n - 1}, got {self.min_samples}")
        min_samples = max(1, min(self.min_samples, n - 1))
        return self if min_samples == self.min_samples else replace(self, min_samples=min_samples)

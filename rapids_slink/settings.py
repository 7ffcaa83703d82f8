"""The parameters of a fit for the engines."""

from dataclasses import dataclass, replace
from typing import Any, Self

from rapids_slink.metrics import Metric


@dataclass(frozen=True)
class Settings:
    """How the tree of points is made.

    Attributes
    ----------
    metric : Metric
    device : str
        See `resolve`.
    memory_limit : int or str, optional
    n_neighbors : int, optional
        Length of the neighbour lists.
    min_samples : int
        The number of neighbours of a core distance; 1 for the metric's own distances.
    clipped : bool
        Whether `min_samples` is a default, which is lowered if there are few rows.
    progress : bool
        Whether to show progress bars.
    max_distance : float, optional
        The largest distance at which clusters are merged.
    missing_value : number, optional
        What stands for a missing value, besides NaN and nulls, if the metric takes missing values.
    prediction_data : bool
        Whether the model keeps its points.
    weights : array of shape (n,), optional
        How many equal rows each counts for.
    store_centers : str, optional
        Which points in the middle of clusters are computed.
    """

    metric: Metric
    device: str = "auto"
    memory_limit: Any = None
    n_neighbors: int | None = None
    min_samples: int = 1
    clipped: bool = True
    progress: bool = False
    max_distance: float | None = None
    missing_value: Any = None
    prediction_data: bool = False
    weights: Any = None
    store_centers: str | None = None

    def for_rows(self, n: int) -> Self:
        """The settings for n rows, which may be too few for `min_samples`."""
        if not self.clipped and self.min_samples > n - 1:
            raise ValueError(f"min_samples must be at most n - 1 = {n - 1}, got {self.min_samples}")
        return replace(self, min_samples=max(1, min(self.min_samples, n - 1)))

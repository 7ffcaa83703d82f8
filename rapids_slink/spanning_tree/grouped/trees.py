"""The task of either device's kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.runtime.device import Array


@dataclass(frozen=True)
class Trees:
    """Small groups whose trees are wanted, of at least two rows each."""

    rows: Array  # (n, d) array, as the metric's formula reads them
    metric: Metric
    min_samples: int  # of a core distance in a group, or all other rows of a group that has fewer
    order: Array  # (n,) int32, the rows by group
    #: `first` and `size`: (m,) int64, on the host; where each group's rows are in `order`
    first: np.ndarray
    size: np.ndarray
    #: src, dst and weight of the edges, size - 1 for each group in turn, which are to be written in any order
    edges: Sequence[Array]


def is_stored(metric: Metric, min_samples: int, compact: bool) -> bool:
    """Whether a CPU stores the distances of a group."""
    by_features = metric.has_half_integer_power and metric.space is None
    return compact or min_samples > 1 or metric.missing or not by_features

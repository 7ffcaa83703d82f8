"""The part of a large hierarchy that plots show: a sample of its heights, a sample of its rows."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, is_on_gpu, to_host

#: The largest number of rows that `plot_clusters` draws, and of heights that `plot_heights` draws.
MAX_POINTS = 20_000
MAX_HEIGHTS = 2_000


def sample_of_heights(n: int) -> np.ndarray:
    """At most `MAX_HEIGHTS` numbers below n, evenly by their logarithm, with the first and the last."""
    if n <= MAX_HEIGHTS:
        return np.arange(n)
    return np.unique(np.rint(np.geomspace(1, n, MAX_HEIGHTS)).astype(np.int64)) - 1


def sample_of_rows(group: np.ndarray) -> np.ndarray:
    """At most `MAX_POINTS` rows, in order: the same number of every group, evenly spaced, or all of a small group."""
    if group.size <= MAX_POINTS:
        return np.arange(group.size)
    sizes = np.bincount(group)
    low, high = 0, int(sizes.max())
    while low < high:  # for the largest number that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= MAX_POINTS else (low, middle - 1)
    order = np.argsort(group, kind="stable")
    size = sizes[group[order]]
    position = np.arange(group.size) - (np.cumsum(sizes) - sizes)[group[order]]
    kept = np.minimum(size, low)
    return np.sort(order[(position + 1) * kept // size > position * kept // size])


def drawn_merges(Z: np.ndarray, truncate_mode: str | None, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The merges that a truncated dendrogram shows, ascending, and the corners of each, (merges, 4, 2).

    These are SciPy's: from below the left part over its height and over the right part's back down. Leaves are 10
    apart, and a part whose merges are not shown is a leaf. Without recursion, so that the tree may have any depth.
    """
    n, parts, height = len(Z) + 1, Z[:, :2].astype(np.int64), Z[:, 2]
    shown = np.ones(n - 1, bool)
    if truncate_mode == "lastp":
        shown[: n - p if 0 < p < n else 0] = False
    elif truncate_mode in ("level", "mtica"):
        level = np.zeros(2 * n - 1, np.int64)
        for i in range(n - 2, -1, -1):
            level[parts[i]] = level[n + i] + 1
        shown = level[n:] <= (p if p > 0 else n)
    elif truncate_mode not in (None, "none"):
        raise ValueError(f"truncate_mode must be None, 'lastp' or 'level', got {truncate_mode!r}")
    x, y, leaves, waiting = np.zeros(2 * n - 1), np.zeros(2 * n - 1), 0, [2 * n - 2]
    while waiting:
        node = waiting.pop()
        if node >= n and shown[node - n]:
            waiting += parts[node - n, ::-1].tolist()  # the left part is next
        else:
            x[node], leaves = 10 * leaves + 5, leaves + 1
    merges = np.flatnonzero(shown)
    for i in merges.tolist():
        x[n + i], y[n + i] = x[parts[i]].mean(), height[i]
    left, right = (np.column_stack([x[side], y[side]]) for side in parts[merges].T)
    top = height[merges]
    corners = [left, np.column_stack([left[:, 0], top]), np.column_stack([right[:, 0], top]), right]
    return merges, np.stack(corners, axis=1)


class Groups(NamedTuple):
    """Clusters by the colours of their rows."""

    #: `sizes` and `noise`: (clusters,) int64, int; rows of each cluster, and rows in none
    sizes: np.ndarray
    noise: int
    #: `order` and `largest`: int64 arrays, the clusters from the largest to the smallest; those that have a colour
    order: np.ndarray
    largest: np.ndarray
    color: np.ndarray  # (n,) int8, for each row a position in `largest`, or the length of that for all others


def colored_groups(labels: np.ndarray, colors: int) -> Groups:
    """The clusters of some labels, the largest of which have the colours."""
    sizes, noise = np.bincount(labels[labels >= 0]), int((labels < 0).sum())
    order = np.argsort(-sizes, kind="stable")
    largest = order[:colors]
    color = np.full(sizes.size + 1, largest.size, np.int8)  # the last is for noise, label -1
    color[largest] = np.arange(largest.size)
    return Groups(sizes, noise, order, largest, color[labels])


def is_logarithmic(heights: np.ndarray) -> bool:
    """Whether an axis of descending heights is: none is negative, the positive ones span two orders of magnitude."""
    positive = heights[heights > 0]
    return bool(positive.size and heights[-1] >= 0 and positive[0] > 100 * positive[-1])


def cut_label(heights: np.ndarray, n_clusters: int, trees: int) -> str:
    """The number of clusters of a cut, and the distances that give it."""
    undone = n_clusters - trees
    above = f"{heights[undone]:.6g} < " if undone < heights.size else ""
    below = f" ≤ {heights[undone - 1]:.6g}" if undone else ""
    return counted(n_clusters, "cluster") + (f" ({above}distance{below})" if above or below else "")


def map_coordinates(radians: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Longitudes and latitudes in degrees, and their names, of latitudes and longitudes in radians."""
    return np.degrees(radians[:, ::-1]), ["longitude", "latitude"]


def plane_coordinates(values: Array, rows: np.ndarray, names: Any) -> tuple[np.ndarray, list[str]]:
    """Two coordinates for each of the rows, and their names. Of three and more features they are principal axes."""
    n, d = values.shape
    if d == 1:
        scatter = rows * 0.6180339887498949 % 1  # multiples of the golden ratio are spread evenly
        return np.column_stack([values[:, 0], scatter]), ["feature 0" if names is None else str(names[0]), ""]
    if d == 2:
        return values, [f"feature {i}" if names is None else str(names[i]) for i in range(2)]
    if not (is_on_gpu(values) and find_spec("cuml")):
        values = to_host(values)
    PCA = import_module("cuml.decomposition" if is_on_gpu(values) else "sklearn.decomposition").PCA
    titles = ["first principal component", "second principal component"]
    centred = values.astype(np.float64) - values[0]
    scale = float(abs(centred).max())
    if scale == 0:
        return np.zeros((n, 2)), titles
    model = PCA(2, random_state=0)
    coordinates = to_host(model.fit_transform(centred / scale)) * scale  # scaled, its squares stay in range
    shares = to_host(model.explained_variance_ratio_).tolist()
    return coordinates, [f"{title} ({share:.0%})" for title, share in zip(titles, shares, strict=True)]

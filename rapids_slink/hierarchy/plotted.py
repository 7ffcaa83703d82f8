"""The part of a large hierarchy that plots show: its last merges, a sample of its heights, a sample of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

#: The largest number of rows that `plot_clusters` draws, and of heights that `plot_heights` draws.
MAX_POINTS = 20_000
MAX_HEIGHTS = 2_000


def last_merges(Z: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The top of a tree as a tree of at most `p` leaves, and the cluster in `Z` that each of its ids stands for.

    The last p - 1 merges are kept. The clusters that they join are other kept merges and p further clusters, which are
    the leaves. They keep their order, so left stays below right. A size counts the new leaves, because SciPy refuses
    anything else.
    """
    n = len(Z) + 1
    kept = min(p - 1, n - 1)
    top = Z[n - 1 - kept :].copy()
    first = 2 * n - 1 - kept  # the id of the first kept merge
    children = top[:, :2].astype(np.int64)
    leaves = np.sort(children[children < first])
    top[:, :2] = np.where(children < first, np.searchsorted(leaves, children), children - first + kept + 1)
    size = np.ones(2 * kept + 1)
    for i, (left, right) in enumerate(top[:, :2].astype(np.int64)):
        size[kept + 1 + i] = top[i, 3] = size[left] + size[right]
    return top, np.concatenate([leaves, np.arange(first, 2 * n - 1)])


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


def plane_coordinates(values: np.ndarray, rows: np.ndarray, names: Any) -> tuple[np.ndarray, list[str]]:
    """Two coordinates for each of the rows, and their names."""
    n, d = values.shape
    if d == 1:
        scatter = rows * 0.6180339887498949 % 1  # multiples of the golden ratio are spread evenly
        return np.column_stack([values[:, 0], scatter]), ["feature 0" if names is None else str(names[0]), ""]
    if d == 2:
        return values, [f"feature {i}" if names is None else str(names[i]) for i in range(2)]
    from sklearn.decomposition import PCA

    titles = ["first principal component", "second principal component"]
    centred = values.astype(np.float64) - values[0]
    scale = np.abs(centred).max()
    if scale == 0:
        return np.zeros((n, 2)), titles
    model = PCA(2, random_state=0)
    coordinates = model.fit_transform(centred / scale) * scale  # scaled, its squares stay in range
    return coordinates, [
        f"{title} ({share:.0%})" for title, share in zip(titles, model.explained_variance_ratio_, strict=True)
    ]

"""Names of clusters that stay when rows are added: each takes the name of the old one with most of its rows."""

import numpy as np

#: The columns of `changes_of`.
CHANGES = ("before", "after", "rows", "merged", "split")


def kept_names(before: np.ndarray, after: np.ndarray, clusters: int, unused: int) -> np.ndarray:
    """Return the name of each of these new `clusters`, (clusters,) int32, by the rows that it shares with old ones.

    `before` and `after` are the labels of the same rows, -1 for noise. A new cluster takes the name of the old cluster
    that has most of its rows; of several such clusters, the smallest name. If several new clusters would take one name,
    the one that shares most rows takes it; of several such clusters, the first. All other clusters are numbered from
    `unused` on. Some of these share no row with an old cluster.
    """
    new, old, rows = _common(before, after)
    old, new, rows = (part[new >= 0] for part in (old, new, rows))
    chosen = _first(new, np.lexsort((old, -rows, new)))
    new, old, rows = new[chosen], old[chosen], rows[chosen]
    takes = _first(old, np.lexsort((new, -rows, old)))
    names = np.full(clusters, -1, np.int32)
    names[new[takes]] = old[takes]
    others = np.flatnonzero(names < 0)
    names[others] = unused + np.arange(others.size)
    return names


def changes_of(before: np.ndarray, after: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of a frame with a row for each pair of an old cluster and a present label that share rows.

    ``before`` and ``after`` are these labels, int32; ``after`` is -1 for rows that are noise now. ``rows`` is the
    number of shared rows, int64. ``merged`` is whether the present cluster has rows of several old ones. ``split`` is
    whether rows of the old cluster have several labels now.
    """
    after, before, rows = _common(before, after)
    order = np.lexsort((after, before))
    before, after, rows = before[order], after[order], rows[order]
    merged = (np.bincount(after + 1, minlength=1) > 1)[after + 1] & (after >= 0)
    split = (np.bincount(before, minlength=1) > 1)[before]
    return dict(zip(CHANGES, (before, after, rows, merged, split), strict=True))


def _common(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of a present label and an old cluster that share rows, int32 each, and how many rows, int64."""
    is_old = before >= 0
    width = np.int64(before.max(initial=0)) + 1
    pair, rows = np.unique((after[is_old] + np.int64(1)) * width + before[is_old], return_counts=True)
    return (pair // width - 1).astype(np.int32), (pair % width).astype(np.int32), rows


def _first(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return where each value occurs first in this order."""
    return order[np.unique(values[order], return_index=True)[1]]

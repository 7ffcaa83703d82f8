"""Names of clusters that stay when rows are added: each new cluster takes the name of the old one it has most of."""

import numpy as np

#: The columns of `changes_of`.
CHANGES = ("before", "after", "rows", "merged", "split")


def kept_names(before: np.ndarray, after: np.ndarray, clusters: int, unused: int) -> np.ndarray:
    """The name of each of so many new clusters, int32, by the rows that it has in common with old ones.

    `before` and `after` are the labels of the same rows, -1 of noise. A new cluster takes the name of the old one that
    has most of its rows, of equal ones the smaller name. If several would take one name, the one with the most of these
    rows does, of equal ones the first. All others, some of which have none, are numbered from `unused` on.
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
    """The columns of a frame with a row for each old cluster and label of now that share rows.

    ``before`` and ``after``, int32, -1 of rows that are noise now; ``rows``, int64, how many; ``merged``, whether the
    cluster has rows of several old ones; ``split``, whether rows of the old cluster have several labels now.
    """
    after, before, rows = _common(before, after)
    order = np.lexsort((after, before))
    before, after, rows = before[order], after[order], rows[order]
    merged = (np.bincount(after + 1, minlength=1) > 1)[after + 1] & (after >= 0)
    split = (np.bincount(before, minlength=1) > 1)[before]
    return dict(zip(CHANGES, (before, after, rows, merged, split), strict=True))


def _common(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of a label now and an old cluster that have common rows, int32, and how many rows, int64."""
    is_old = before >= 0
    width = np.int64(before.max(initial=0)) + 1
    pair, rows = np.unique((after[is_old] + np.int64(1)) * width + before[is_old], return_counts=True)
    return (pair // width - 1).astype(np.int32), (pair % width).astype(np.int32), rows


def _first(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The first place of each value in this order, in which equal values stand together."""
    ordered = values[order]
    return order[np.concatenate([np.ones(min(1, order.size), bool), ordered[1:] != ordered[:-1]])]

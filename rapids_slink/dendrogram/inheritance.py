"""A cut as label inheritance by groupby and merge of frames: `method="merge"` of `api.cut`.

Every cluster inherits what its parent is part of: a merge of the table (child, parent) with itself, which doubles how
far a row points, until none points further. `cutting` does the same by gathers, since a merge whose key is a row number
is a gather.
"""

from __future__ import annotations

from typing import Any


def inherit_labels(linkage: Any, n_leaves: int, merges: int, frames: Any, min_cluster_size: int = 1) -> Any:
    """Labels of the clusters that the first merges leave.

    Parameters
    ----------
    linkage : DataFrame
        ``left``, ``right``: the clusters that each merge joins, as `rapids_slink.linkage` returns them.
    n_leaves : int
    merges : int
        How many of the first rows of `linkage` are kept.
    frames : module
        pandas or cuDF: whose frame `linkage` is.
    min_cluster_size : int
        Clusters of fewer leaves are labelled -1.

    Returns
    -------
    Series
        By leaf, the label: numbered from 0 in order of first appearance.

    Notes
    -----
    A merge costs a sort or a hash of all rows, and there are as many as the depth of the dendrogram has bits: for a
    million leaves 20 at most.
    """
    kept = linkage[["left", "right"]].head(merges).reset_index(drop=True)
    kept["parent"] = kept.index + n_leaves
    sides = [kept[[side, "parent"]].rename(columns={side: "child"}) for side in ("left", "right")]
    pointers = frames.concat(sides, ignore_index=True).astype("int64")
    while True:
        parents = pointers.rename(columns={"child": "parent", "parent": "grandparent"})
        further = pointers.merge(parents, on="parent", how="left")
        if further["grandparent"].isna().all():
            break
        pointers = further[["child"]].assign(parent=further["grandparent"].fillna(further["parent"]).astype("int64"))
    leaves = frames.DataFrame({"leaf": range(n_leaves)}).astype("int64")
    leaves = leaves.merge(pointers.rename(columns={"child": "leaf", "parent": "cluster"}), on="leaf", how="left")
    leaves["cluster"] = leaves["cluster"].fillna(leaves["leaf"]).astype("int64")
    clusters = leaves.groupby("cluster", as_index=False).agg({"leaf": ["min", "count"]})
    clusters.columns = ["cluster", "first", "size"]
    clusters = clusters[clusters["size"] >= min_cluster_size].sort_values("first", ignore_index=True)
    clusters["label"] = clusters.index
    labels = leaves.merge(clusters[["cluster", "label"]], on="cluster", how="left").sort_values("leaf")
    return labels["label"].fillna(-1).astype("int32")

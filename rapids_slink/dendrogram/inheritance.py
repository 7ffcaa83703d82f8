"""A cut as label inheritance by groupby and merge of frames: `method="merge"` of `api.cut`.

Every cluster inherits the parent of its parent: the table (child, parent) is merged with itself, which doubles how far
a row points, until no row points further. `cutting` does the same by gathers, because a merge whose key is a row number
is a gather.
"""

from typing import Any


def inherit_labels(linkage: Any, n_leaves: int, merges: int, frames: Any, min_cluster_size: int = 1) -> Any:
    """The label of each leaf in the clusters that the first `merges` rows of a linkage form, a Series of int32.

    Labels are numbered from 0 in order of first appearance; clusters of fewer than `min_cluster_size` leaves are
    labelled -1. `frames` is the linkage's library, pandas or cuDF.

    A merge costs a sort or a hash of all rows. The number of merges is the number of bits of the dendrogram's depth, at
    most 20 for a million leaves.
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

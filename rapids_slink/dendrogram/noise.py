"""Noise to clusters: each row without a label takes the label of the cluster that its branch of the tree meets first.

Go up from a row without a label to the first merge at which its branch meets labelled rows. The edge of this merge ends
at a row of the other branch, and the row takes that row's label. If that row has none itself, it has met labelled rows
before, within its own branch, and has taken their label.

So the edges of merges of two labelled branches are left out. By induction over the merges, a component of the other
edges has exactly one labelled row if its branch has any: an edge connects two components of which at most one has a
labelled row. Every other row takes the label of this one, which it reaches by the path in the tree whose largest edge
is the least in the total order. The forest is the minimum spanning forest that is rooted in the labelled rows
(Cousty et al., "Watershed cuts: minimum spanning forests and the drop of water principle", TPAMI 2009).
The numbers of the clusters do not matter.
"""

from math import inf
from typing import Any

from rapids_slink.dendrogram.cutting import OUTLIER
from rapids_slink.runtime.device import Array, Device, half


def reduce_outliers(
    edges: dict[str, Array], merges: dict[str, Array], labels: Array, max_distance: float | None, device: Device
) -> Array:
    """Return the (n,) int32 labels without noise, except for rows that meet no cluster up to `max_distance`.

    `edges` are int32 ``src`` and ``dst`` of a forest over n rows in merge order, and `merges` int32 ``left``, ``right``
    and float64 ``height`` of its linkage. Labels below 0 are noise. `max_distance` is inclusive; None is no limit.
    """
    xp, n, kernels = device.xp, labels.size, half(device, __package__)
    left_child, right_child, height = merges["left"], merges["right"], merges["height"]
    is_labelled = labels >= 0
    holds = kernels.mark_upwards(left_child, right_child, is_labelled)
    stays = ~(holds[left_child] & holds[right_child]) & (height <= (inf if max_distance is None else max_distance))
    src, dst = edges["src"][stays], edges["dst"][stays]
    first, second, size = xp.empty((3, src.size), "int32")
    kernels.merge_in_order(src, dst, n, first, second, size)
    component = kernels.label_clusters(first, second, n)[:n]
    label_of_component: Any = xp.full(n, OUTLIER, "int32")
    label_of_component[component[is_labelled]] = labels[is_labelled]
    reduced: Array = label_of_component[component]
    return reduced

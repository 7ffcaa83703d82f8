"""The weights at which points join a large cluster, beyond which no list of a tree's search needs to go.

Most edges of a minimum spanning tree join a small cluster, of fewer than `LARGE` points, to another. Let w be the
weight at which a point's cluster becomes large, by the edges found so far. More edges let it become large no later. So
the lightest edge that leaves a small cluster weighs at most the w of each of its points, and lists that are complete up
to each point's own w certify it. Few pairs are that near: w is about the distance of the first or second neighbour, and
the list's last neighbour is the eighth. Searches find the few edges that join large clusters.

No proof rests on this. The weights bound a search, whose result says up to which bounds its lists are complete.
"""

from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.neighbors.task import NeighborLists
from rapids_slink.ordering import NO_EDGE, sort_in_place
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.spanning_tree.forest import Forest, kernels

#: Points of a large cluster.
LARGE = 1024
#: Of fewer points these weights take more time than the pairs above them.
MIN_ROWS = {"cpu": 10_000, "cuda": 2**18}


def join_weights(ids: Array, weights: Array, device: Device) -> Array:
    """The weight, (n,) float64, at which each point joins a large cluster by the edges of lists, infinite if at none.

    `ids`, (n, k) int32, are -1 and `weights`, float64 and ascending, infinite where a list has fewer. The weight of a
    few points is larger: without lower bounds of what is not listed Borůvka's forest is not always the lightest.
    """
    xp, n = device.xp, len(ids)
    rows = xp.arange(n, dtype="int32")
    frame = PreallocatedFrame({name: xp.empty(n - 1, dtype) for name, dtype in EDGE_TYPES.items()}, device)
    forest = Forest.of_components(rows, (xp.full(n, xp.inf), xp.full(n, NO_EDGE)), device, frame)
    lists = NeighborLists(xp.where(ids < 0, rows[:, None], ids), weights)
    m = kernels(device).boruvka_rounds(lists, forest, least_share=n).edges
    del forest, lists  # what follows takes their memory
    edges = {name: column[:m] for name, column in frame.columns.items()}
    sort_in_place(edges, xp)
    src, dst, weight = edges.values()
    first, second, size = xp.empty((3, m), "int32")
    dendrogram_kernels(device).merge_in_order(src, dst, n, first, second, size)
    # Of each cluster, leaves first: the largest that holds it and is not large, and the weight at which it ends.
    merge, within, end = xp.arange(n, n + m, dtype="int32"), xp.arange(n + m, dtype="int32"), xp.full(n + m, xp.inf)
    for child in (first, second):
        within[child] = xp.where(size < LARGE, merge, child)
        end[child] = weight
    for _ in range(LARGE.bit_length()):
        within = within[within]
    joined: Array = end[within[:n]]
    return joined

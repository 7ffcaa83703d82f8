"""Trees of groups of items from the distances of all pairs, which are stored.

Where they fit into memory they take less time than a search that finds some distances anew in each round. An item with
copies counts for all of them in core distances.

Euclidean distances of sparse rows cost a merge of each pair, and lower bounds on them a product. So the bounds are
stored, and a distance takes the place of its bound where the tree depends on it. By the cycle property no edge is in
the tree that is heavier than a path between its ends. Such a path is that in the tree of the bounds, with the distances
of its edges: its heaviest is the *bottleneck* of the pair. A pair whose bound is above its bottleneck keeps the bound,
and is in no tree. Likewise a core distance depends on those pairs alone whose bounds are up to a bound above it.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from rapids_slink.forced import forced
from rapids_slink.items.kind import Items
from rapids_slink.items.search import Pairs, room, rows_at_a_time
from rapids_slink.neighbors.task import equal_slices, row_blocks
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import free_bytes, room_bytes
from rapids_slink.runtime.threads import for_each_chunk
from rapids_slink.spanning_tree import kernels
from rapids_slink.spanning_tree.component_pairs import path_bottlenecks, ranges_between

#: The most bytes of the distances that a CPU stores.
MAX_BYTES = 2**30
#: The share of a GPU's free memory that the distances take at most.
MATRIX_SHARE = 1 / 2
#: How often a GPU reads a row for its core distance at most.
MOST_SAMPLES = 2**8


def serves(items: Items, samples: int, limit: float) -> bool:
    """Return whether all distances of these items are stored, for core distances or for pairs within a limit."""
    device, size = items.device, items.distance_type.itemsize * len(items) ** 2
    if forced().items not in (None, "stored") or not items.is_stored(limit):
        return False
    is_soon = samples <= MOST_SAMPLES if device.is_gpu else size <= MAX_BYTES
    return is_soon and size <= MATRIX_SHARE * min(free_bytes(), room_bytes(device))


def all_distances(items: Items) -> Array:
    """Return the distances of all pairs of items of one class, or lower bounds on them, (n, n); see `Items`.

    What is on the diagonal has no meaning.
    """
    device, n = items.device, len(items)
    matrix, row = device.xp.empty((n, n), items.distance_type), device.xp.arange(n, dtype="int32")

    def fill(rows: slice) -> None:
        distances = items.distances_of_rows(row[rows], slice(rows.start, n))
        matrix[rows, rows.start :], matrix[rows.start :, rows] = distances, distances.T

    for_each_chunk(device, fill, equal_slices(slice(0, n), rows_at_a_time(n, device)))
    return matrix


def tree_of_items(items: Items, samples: int, counts: Array | None) -> tuple[Pairs, Array | None]:
    """Return the edges of the tree, (n - 1,) each, and the core distances, (n,); None unless the tree is by them.

    For core distances `samples` is `min_samples`, and `counts`, (n,) int64, is how many equal rows each item stands
    for. A core distance is infinite if there are fewer rows, and so are the weights of the item's pairs.
    """
    device, matrix, error, core = items.device, all_distances(items), items.errors, None
    xp, on_device = device.xp, kernels(device)
    if counts is not None:
        core = on_device.find_cores(matrix, samples, counts)
        if error is not None:
            upper = xp.sqrt(core * core + error)
            _put_distances(items, matrix, None, lambda rows, later: xp.maximum(upper[rows, None], upper[later]))
            core = on_device.find_cores(matrix, samples, counts)
    edges = PreallocatedFrame.empty(device, len(items) - 1, EDGE_TYPES)
    on_device.tree_of_matrix(matrix, core, edges.columns)
    src, dst, weight = edges.columns.values()
    if error is not None:
        weight = items.distances(src, dst, inf)
        weight = weight if core is None else xp.maximum(weight, xp.maximum(core[src], core[dst]))
        table = device.asarray(path_bottlenecks(to_host(src), to_host(dst), to_host(weight)))
        _put_distances(items, matrix, core, partial(_bottlenecks, table, device))
        on_device.tree_of_matrix(matrix, core, edges.columns)
        src, dst, weight = edges.columns.values()
    return (src, dst, weight), core


def _put_distances(items: Items, matrix: Array, core: Array | None, bound: Callable[[slice, slice], Array]) -> None:
    """Store the distances of those pairs whose weights by the matrix are at most the bounds of rows and later ones."""
    device, n = items.device, len(items)
    xp = device.xp
    for rows in row_blocks(n, n, room(device) // 2):
        later = slice(rows.start, n)
        weight = matrix[rows, later]
        if core is not None:
            weight = xp.maximum(weight, xp.maximum(core[rows, None], core[later]))
        src, dst = (end + rows.start for end in xp.nonzero(weight <= bound(rows, later)))
        src, dst = (end[src < dst].astype("int32") for end in (src, dst))
        for part in equal_slices(slice(0, src.size), room(device)):
            a, b = src[part], dst[part]
            matrix[a, b] = matrix[b, a] = items.distances(a, b, inf)


def _bottlenecks(table: Array, device: Device, rows: slice, later: slice) -> Array:
    """Return the bottlenecks of some rows and later ones, (r, m), by the table of `path_bottlenecks`."""
    position, largest = table[0].astype("int32"), table[1:]
    level, low, last = ranges_between(position[rows, None], position[later], position.size, device)
    return device.xp.maximum(largest[level, low], largest[level, last])

"""Trees of groups of items from the distances of all pairs, which are stored.

On a CPU all distances of up to a few thousand items take less time than a search by levels, which finds the pairs of
each level anew. An item with copies counts for all of them in core distances. A GPU stores the edits of strings, in a
byte or two, as long as they fit into memory.
"""

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items.kind import Items
from rapids_slink.items.kind import kernels as items_kernels
from rapids_slink.items.search import Pairs, pairs_of_ranges
from rapids_slink.runtime.device import CPU, Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import free_bytes, room_bytes
from rapids_slink.spanning_tree import kernels

#: The most items whose distances are stored, and the most steps of finding these.
MAX_ITEMS, MAX_STEPS = 2**13, 2**30
#: Bytes of a pair: its distance, and as much for the scratch of finding it.
PAIR_BYTES = 16
#: The share of a GPU's free memory that the distances take at most.
MATRIX_SHARE = 1 / 2
#: Up to the distance BY_KEYS pairs are found by keys. For a larger one a GPU stores all distances, if they take at most
#: LIMITED_STEPS steps, which are a fifth of a second.
BY_KEYS, LIMITED_STEPS = 2, 2**35


def may_serve(device: Device, has_cores: bool, limit: float) -> bool:
    """Return whether all distances of some items may be stored, for core distances or for pairs within a limit."""
    fits = limit > BY_KEYS and not has_cores if device.is_gpu else limit == np.inf
    return fits and forced().items in (None, "stored")


def serves(items: Items, limit: float) -> bool:
    """Return whether all distances of these items are stored, provided that `may_serve` allows it."""
    n = len(items)
    if items.device.is_gpu:
        fits = items.matrix_bytes() * n * n <= MATRIX_SHARE * min(free_bytes(), room_bytes(items.device))
        return fits and (limit == np.inf or items.steps() <= LIMITED_STEPS)
    return n <= MAX_ITEMS and PAIR_BYTES * n * n <= free_bytes() and items.steps() <= MAX_STEPS


def tree_of_items(items: Items, by_cores: tuple[Array, Array] | None) -> tuple[Pairs, Array | None]:
    """Return the edges of the tree, (n - 1,) each, and the core distances, (n,); None unless the tree is by them.

    For core distances `by_cores` has how many equal rows each item stands for, (n,), and the `min_samples` of each,
    (n,). A core distance is infinite if there are fewer rows, and so are the weights of the item's pairs.
    """
    matrix, n, core = items.matrix(), len(items), None
    if by_cores is not None:
        core = items_kernels(CPU).core_distances(matrix, *by_cores)
    edges = PreallocatedFrame.empty(items.device, n - 1, EDGE_TYPES)
    kernels(items.device).tree_of_matrix(matrix, core, edges.columns)
    src, dst, weight = edges.columns.values()
    return (src, dst, weight), core


def matrix_by_pairs(items: Items) -> np.ndarray:
    """Return the distances of all pairs, (n, n) float64, found pair by pair."""
    n = len(items)
    matrix, row = np.zeros((n, n)), np.arange(n)
    for src, dst in pairs_of_ranges(row + 1, n - 1 - row, CPU):
        weight = items.distances(src.astype("int32"), dst.astype("int32"), np.inf)
        matrix[src, dst] = matrix[dst, src] = weight
    return matrix

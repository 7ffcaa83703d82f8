"""Rows that are equal: the first of each stands for its copies until the tree of the distinct rows is known.

Equal rows are at the same distances to all others, so copies only count for core distances. Their edges come last. Let
w be the weight between the copies of a row: its core distance, or what the metric says of the row with itself, which is
zero or, for cosine, what rounding leaves of it. No pair of the row may be lighter. Then the lightest pairs of a copy
weigh w: those with its first row f, with other copies and with what is at w from f. By the total order Kruskal's
algorithm meets that with the least id i first, and i is at most f. Until then the copy is alone, so it joins i. Next it
is in the component of f, and each of its further pairs comes after that of f with the same row, so it stays a leaf.

The tree has the least id among the distinct rows at w from f: if it is below f, its edge to f is the first of f's edges
that Kruskal's algorithm meets, and so in the tree.
"""

from dataclasses import dataclass
from typing import Any, Self

from rapids_slink.ordering import sort_in_place
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame


@dataclass(frozen=True)
class Copies:
    """Which rows are copies of earlier ones."""

    first: Array  # (m,) integers, the first row of each distinct one, ascending
    repeated: Array  # (n - m,) integers, the other rows, ascending
    number: Array  # (n - m,) integers: which of the distinct rows each of them equals

    @classmethod
    def of(cls, first_equal: Array, xp: Any) -> Self:
        """Return the copies among n rows, from the first row that each equals, (n,) integers."""
        is_first = first_equal == xp.arange(first_equal.size)
        first, repeated = xp.flatnonzero(is_first), xp.flatnonzero(~is_first)
        return cls(first, repeated, xp.searchsorted(first, first_equal[repeated]))

    def counts(self, xp: Any) -> Any:
        """Return how many copies each distinct row has besides the first, (m,) integers."""
        m = self.first.size
        return (
            xp.bincount(self.number, minlength=m) if self.number.size else xp.zeros(m, "int64")
        )  # CuPy counts no empty

    def join(self, tree: PreallocatedFrame, own: Array, device: Device) -> PreallocatedFrame | None:
        """Return the tree of all rows, in the total order; None if a row with copies has a pair lighter than theirs.

        `tree` is the tree or forest of the distinct rows, by their numbers, and `own`, (m,) float64, the weight between
        the copies of each.
        """
        src, dst, weight = tree.columns.values()
        xp, m = device.xp, self.repeated.size
        bound = xp.full(self.first.size, -xp.inf)
        bound[self.number] = own[self.number]
        if not all_true((weight >= bound[src]) & (weight >= bound[dst])):
            return None
        at, least = xp.flatnonzero(weight == own[dst]), xp.arange(self.first.size)
        if at.size:  # CuPy finds nothing unique in nothing
            row, place = xp.unique(dst[at], return_index=True)  # of one weight the edge from the least id is first
            least[row] = src[at[place]]
        whole = PreallocatedFrame.empty(device, m + weight.size, EDGE_TYPES)
        ends, others, weights = whole.columns.values()
        ends[:m], others[:m], weights[:m] = self.first[least][self.number], self.repeated, own[self.number]
        ends[m:], others[m:], weights[m:] = self.first[src], self.first[dst], weight
        del at, least, bound  # the sort takes their memory
        sort_in_place(whole.columns, xp)
        return whole

"""The input of connecting components at once, the weights of pairs of points, and limits by memory."""

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter.bounds import radius_terms
from rapids_slink.neighbors.filter.product import ProductFilter
from rapids_slink.neighbors.slices import BLOCK, row_blocks
from rapids_slink.neighbors.task import mutual_reachability
from rapids_slink.runtime.device import Array, Device, half
from rapids_slink.spanning_tree.component_pairs.components import Components

FOUND_BYTES = 64  # of a pair of points that remains, or a work item
ROUNDING = 1e-9  # relative; above the error of float64 sums of 2²¹ features
WEIGHT_COST = 1024  # of an exact weight, in units of one filter pair
MAX_PAIRS = 2**26

#: Pairs of points, src and dst, and the number of their component pair; None if they are too many.
PointPairs = tuple[Any, Any, Any] | None


@dataclass(frozen=True)
class JoinContext:
    """The components to connect, and the search with its distances and filter."""

    search: BruteForceSearch  # with a `ProductFilter`
    core: Array  # (n,) float64, optional
    components: Components
    budget: int  # the number of pairs of points that rounds of searches would test

    @property
    def device(self) -> Device:
        """The search's."""
        return self.search.device

    @property
    def filter(self) -> ProductFilter:
        """The search's."""
        assert isinstance(self.search.filter, ProductFilter)
        return self.search.filter

    @property
    def kernels(self) -> ModuleType:
        """The device's."""
        return half(self.device, __package__)

    def pair_weights(self, src: Array, dst: Array) -> Any:
        """The weights of pairs of points."""
        weight = self.search.distances(src, dst)
        return weight if self.core is None else mutual_reachability(weight, self.core, src, dst, self.device.xp)

    def tighten(self, bound: Array, src: Array, dst: Array, pair: Any) -> Any:
        """The weights of pairs of points. Lowers `bound`, by component pair, to the least of them."""
        weight = self.pair_weights(src, dst)
        self.search.kernels.scatter_min(bound, pair, weight[:, None])
        return weight

    def capacity(self, bytes_of_each: int) -> int:
        """The number of items of this size that fit into memory."""
        return int(min(self.search.free_bytes / (4 * bytes_of_each), 2**31 - 1))

    @property
    def max_pairs(self) -> int:
        """How many pairs of points may remain."""
        return min(self.budget // WEIGHT_COST, self.capacity(FOUND_BYTES), MAX_PAIRS)

    def blocks(self, n: int, size: int) -> list[slice]:
        """Rows of `size` numbers, a few at a time."""
        return row_blocks(n, size, min(BLOCK, self.capacity(FOUND_BYTES)))

    @cached_property
    def samples(self) -> tuple[Any, Any]:
        """A sample of each component and its mean, the centroid. Separations are valid for any finite centroids."""
        return self.kernels.sample_components(self.filter.points, self.components, self.filter.scaling.centre)

    @cached_property
    def radius_terms(self) -> tuple[float, ...]:
        """The terms of an upper bound of the distance of a pair by its weight, in the filter's scale."""
        return radius_terms(self.filter.n_features, self.filter.scaling.scale * (1 + ROUNDING), self.search.metric)

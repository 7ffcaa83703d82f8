"""Components, pairs of components, and their separations."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array

SAMPLED = constant("spanning_tree/component_pairs/component_pairs.cu", "SAMPLED")  # points of a component


@dataclass(frozen=True)
class Components:
    """Points sorted by component, K components in compressed rows."""

    order: Array  # (n,) int32: the points, those of a component together
    number: Array  # (n,) int32: the component of each, from 0 to K - 1, in that order
    start: Array  # (K + 1,) int64: where each component begins, and n
    of_point: Array  # (n,) int32: the component of each point by its number

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @cached_property
    def size(self) -> Array:
        """The number of points of each."""
        return self.start[1:] - self.start[:-1]

    def points(self, number: int) -> Array:
        """The points of one."""
        return self.order[self.start[number] : self.start[number + 1]]


@dataclass(frozen=True)
class ComponentPairs:
    """Pairs of components, M of them."""

    #: `first` and `second`: (M,) int32
    first: Array
    second: Array
    #: (M,) float64: a lower bound of the distance of their points, in the filter's scale; negative if there is none
    separation: Array
    support: Array  # (2, M) int32: the support points of the first and of the second component

    def take(self, at: Array) -> Self:
        """The pairs at these positions."""
        support = self.support[:, at]
        return type(self)(self.first[at], self.second[at], self.separation[at], support)


@dataclass(frozen=True)
class SeparationErrors:
    """Bounds on the errors of a separation."""

    products: float  # the error of its four products together
    sq_distance: float  # the error of the squared distance of two centroids
    moved: float  # how far quantizing moved two points together

"""Components, pairs of components, and their separations and projections."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

SAMPLED = 64  # points of a component


@dataclass(frozen=True)
class Components:
    """Points sorted by component, K components in compressed rows.

    Attributes
    ----------
    order : (n,) int32 array
        The points, those of a component together.
    number : (n,) int32 array
        The component of each, from 0 to K - 1, in that order.
    start : (K + 1,) int64 array
        Where each component begins, and n.
    of_point : (n,) int32 array
        The component of each point by its number.
    """

    order: Any
    number: Any
    start: Any
    of_point: Any

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @cached_property
    def size(self) -> Any:
        """The number of points of each."""
        return self.start[1:] - self.start[:-1]


@dataclass(frozen=True)
class ComponentPairs:
    """Pairs of components, M of them.

    Attributes
    ----------
    first, second : (M,) int32 arrays
    separation : (M,) float64 array
        A lower bound of the distance of their points, in the filter's scale; negative if there is none.
    support : (2, M) int32 array
        The support points of the first and of the second component.
    """

    first: Any
    second: Any
    separation: Any
    support: Any

    def take(self, at: Any) -> Self:
        """The pairs at these positions."""
        support = self.support[:, at]
        return type(self)(self.first[at], self.second[at], self.separation[at], support)


@dataclass(frozen=True)
class SeparationErrors:
    """Bounds on the errors of a separation.

    Attributes
    ----------
    products : float
        The error of its four products together.
    sq_distance : float
        The error of the squared distance of two centroids.
    moved : float
        How far quantizing moved two points together.
    """

    products: float
    sq_distance: float
    moved: float


class Projections(NamedTuple):
    """Points of component pairs on the line between the centroids.

    Attributes
    ----------
    value : float64 array
        (x - origin)·(centroid of the second - centroid of the first), first for the first component's points, then for
        the second's, pair by pair.
    end : (M,) int64 array
        Where the values of each pair end.
    max_difference : (M,) float64 array
        The largest difference of projections at which two points are kept.
    """

    value: Any
    end: Any
    max_difference: Any

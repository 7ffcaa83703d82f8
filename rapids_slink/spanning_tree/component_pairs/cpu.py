"""The kernels on the CPU, in NumPy and Numba."""

from typing import Any

import numpy as np

from rapids_slink.metrics import true_distance_bound
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.compiling import njit
from rapids_slink.spanning_tree.component_pairs import SAMPLED, ComponentPairs, Components, SeparationErrors


def sort_by_component(component: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """Points sorted by their labels, k different ones of any values: the fields of `Components`."""
    order = stable_order(component, np).astype(np.int32)
    label = component[order]
    start = np.concatenate([[0], np.flatnonzero(label[1:] != label[:-1]) + 1, [label.size]])
    number = np.repeat(np.arange(k, dtype=np.int32), np.diff(start))
    of_point = np.empty_like(number)
    of_point[order] = number
    return order, number, start, of_point


def sample_components(points: np.ndarray, components: Components, otherwise: np.ndarray) -> tuple[Any, Any]:
    """A sample of points of each of K components, (K, SAMPLED) int32, with repeats if it is small; and their means.

    `otherwise`, (d,) float64, replaces the features of means that are not finite.
    """
    positions = components.start[:-1, None] + np.arange(SAMPLED) * components.size[:, None] // SAMPLED
    sample, means = components.order[positions], np.empty((len(components), points.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for at in row_blocks(len(means), SAMPLED * points.shape[1]):
            means[at] = points[sample[at]].mean(axis=1, dtype=np.float64)
    return sample, np.where(np.isfinite(means), means, otherwise)


def new_supports(k: int) -> tuple[np.ndarray, np.ndarray]:
    """The support values and points of every two of k components, for `update_supports`."""
    return np.full((k, k), -np.inf, np.float32), np.zeros((k, k), np.int32)


@njit(cache=True)
def update_supports(product, number, first, supports):
    """For components a and b raise the largest product with b's centroid minus that with a's, over a's points.

    `product`, (m, K) float32, is that of m points with all centroids, and `number` their components; `first` is the
    position of the first of these points among all, sorted by component.
    """
    value, position = supports
    for i in range(number.size):
        a = number[i]
        for b in range(product.shape[1]):
            more = product[i, b] - product[i, a]
            if more > value[a, b]:
                value[a, b], position[a, b] = more, first + i


def measure_pairs(supports: Any, order: np.ndarray, inner: np.ndarray, errors: SeparationErrors) -> tuple[Any, ...]:
    """All pairs of K components: the fields of `ComponentPairs`.

    `supports` are updated with all points, in this `order`; `inner`, (K, K) float64, are the centroids' products.
    """
    value, position = supports
    first, second = (end.astype(np.int32) for end in np.triu_indices(len(inner), 1))
    norm = inner.diagonal()
    length = np.sqrt(norm[first] + norm[second] - 2 * inner[first, second] + errors.sq_distance)
    between = -(value[first, second].astype(np.float64) + value[second, first]) - errors.products
    separation = np.full_like(length, -np.inf)
    np.divide(between, length, out=separation, where=between > 0)
    support = order[np.stack([position[first, second], position[second, first]])]
    return first, second, separation - errors.moved, support


def overlapping(pairs: ComponentPairs, weight: np.ndarray, radius_terms: tuple[float, ...]) -> np.ndarray:
    """Pairs with a separation below half the largest distance of points of the pair's weight."""
    return np.flatnonzero(pairs.separation < _scaled_distance(weight, radius_terms) / 2).astype(np.int32)


def pair_samples(sample: np.ndarray, pairs: ComponentPairs, at: np.ndarray, step: int) -> tuple[Any, Any, Any]:
    """All pairs of points between every `step`-th sampled point of the two components, for the pairs at `at`.

    Returns both points, and the number of the component pair.
    """
    sample = sample[:, ::step]
    a, b = np.broadcast_arrays(sample[pairs.first[at], :, None], sample[pairs.second[at], None, :])
    return a.ravel(), b.ravel(), np.repeat(at, sample.shape[1] ** 2)


def within_bottlenecks(
    pairs: ComponentPairs, bottlenecks: np.ndarray, radius_terms: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with a separation of at most the distance of points of their bottleneck's weight, and the bottlenecks."""
    position, largest = bottlenecks[0].astype(np.int32), bottlenecks[1:]
    ends = position[pairs.first], position[pairs.second]
    low, high = np.minimum(*ends), np.maximum(*ends)
    level = np.frexp(high - low)[1] - 1  # of the largest power of two that is not above the difference
    last, radius = high - (1 << level), _scaled_distance(largest, radius_terms)
    at = np.flatnonzero(pairs.separation <= np.maximum(radius[level, low], radius[level, last])).astype(np.int32)
    low, last, level = low[at], last[at], level[at]
    return at, np.maximum(largest[level, low], largest[level, last])


def _scaled_distance(weight: np.ndarray, radius_terms: tuple[float, ...]) -> Any:
    *rounding_terms, scale = radius_terms[:5]
    return scale * true_distance_bound(weight, rounding_terms, np)

"""The kernels that connect components at once, on each device."""

from typing import Any, Protocol

from rapids_slink.runtime.device import Array, Device
from rapids_slink.spanning_tree.component_pairs.components import ComponentPairs, Components, SeparationErrors


class Kernels(Protocol):
    """`cpu` or `cuda`. Each has its own form of supports."""

    def sort_by_component(self, component: Array, k: int) -> tuple[Array, ...]: ...
    def sample_components(self, points: Array, components: Components, otherwise: Array) -> tuple[Array, Array]: ...
    def new_supports(self, k: int) -> Any: ...
    def update_supports(self, product: Array, number: Array, first: int, supports: Any) -> None: ...
    def measure_pairs(
        self, supports: Any, order: Array, inner: Array, errors: SeparationErrors
    ) -> tuple[Array, ...]: ...
    def overlapping(self, pairs: ComponentPairs, weight: Array, radius_terms: tuple[float, ...]) -> Array: ...
    def pair_samples(
        self, sample: Array, pairs: ComponentPairs, at: Array, step: int
    ) -> tuple[Array, Array, Array]: ...
    def within_bottlenecks(
        self, pairs: ComponentPairs, bottlenecks: Array, radius_terms: tuple[float, ...]
    ) -> tuple[Array, Array]: ...


def kernels(device: Device) -> Kernels:
    """The device's kernels."""
    if device.is_gpu:
        from rapids_slink.spanning_tree.component_pairs import cuda

        return cuda
    from rapids_slink.spanning_tree.component_pairs import cpu

    return cpu

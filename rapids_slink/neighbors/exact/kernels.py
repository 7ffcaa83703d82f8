"""What either device does with surrogate distances and lists."""

from typing import Protocol

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, TopLists
from rapids_slink.runtime.device import Array, Device


class Kernels(Protocol):
    """`cpu` or `cuda`."""

    MAX_LIST: int

    def new_candidates(self, rows: int, k: int, capacity: int | None = None) -> Candidates: ...
    def empty_lists(self, rows: int, k: int) -> TopLists: ...
    def low_discrepancy_order(self, n: int) -> Array: ...
    def rerank(
        self,
        exact: ExactPoints,
        rows: Array,
        candidates: Candidates,
        groups: tuple[Array, Array] | None,
        upper: Array,
        top: TopLists,
        core: Array = None,
    ) -> None: ...
    def scan(
        self, exact: ExactPoints, rows: Array, groups: tuple[Array, Array], upper: Array, k: int, core: Array = None
    ) -> TopLists: ...
    def scan_bytes(self, n: int, k: int) -> int: ...
    def sort_by_reachability(self, ids: Array, weights: Array, core: Array) -> None: ...
    def flatnonzero(self, flags: Array) -> Array: ...
    def scatter_min(self, least: Array, group: Array, weights: Array) -> None: ...
    def pair_distances(self, values: Array, src: Array, dst: Array, metric: Metric) -> Array: ...
    def all_distances(self, values: Array, metric: Metric) -> Array: ...
    def with_norms(self, values: Array, centre: bool) -> Array: ...
    def words_of(self, values: Array) -> Array: ...
    def hash_rows(self, values: Array, rows: Array = None) -> Array: ...


def kernels(device: Device) -> Kernels:
    """Those of the device."""
    if device.is_gpu:
        from rapids_slink.neighbors.exact import cuda

        return cuda
    from rapids_slink.neighbors.exact import cpu

    return cpu

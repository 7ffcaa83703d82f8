"""The choice of the engine: one device, or the cluster of a Dask client."""

from collections.abc import Callable
from typing import Any, Protocol

from rapids_slink import local
from rapids_slink.dendrogram.cutting import ClusterRule, CutParameters
from rapids_slink.metrics import Metric
from rapids_slink.points.output import is_collection
from rapids_slink.prediction import Fitted
from rapids_slink.report import Report
from rapids_slink.settings import Settings


class Engine(Protocol):
    """An engine for the public functions of `api` and the models: `local`, which describes them, or `distributed`."""

    # For models; if there is a ``_layout`` among the attributes of `fit`, its ``cut`` makes the model's further cuts.
    def fit(self, X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]: ...
    def append(self, X: Any, model: Fitted, settings: Settings, rule: ClusterRule) -> dict[str, Any]: ...
    def predict(
        self, answer: Callable[..., Any], X: Any, rows: Any, device: str, memory_limit: Any
    ) -> tuple[Any, Report]: ...

    # The functions of `api`; `cut` is `n_clusters` and `distance_threshold`.
    def fit_graph(
        self, edges: Any, *, cut: tuple[Any, Any], n_nodes: Any, complete: str, device: str, memory_limit: Any
    ) -> Any: ...
    def knn_graph(self, X: Any, n_neighbors: int, metric: Metric, device: str, memory_limit: Any) -> Any: ...
    def nearest_neighbors(self, X: Any, Y: Any, metric: Metric, device: str, memory_limit: Any) -> Any: ...
    def connect(
        self, graph: Any, X: Any, *, certified: bool, metric: Metric, device: str, memory_limit: Any
    ) -> Any: ...
    def minimum_spanning_tree(
        self, edges: Any, *, maximum: bool, component: bool, device: str, memory_limit: Any
    ) -> Any: ...
    def linkage(self, tree: Any, *, n_nodes: Any, device: str, memory_limit: Any) -> Any: ...
    def cut(self, linkage: Any, parameters: CutParameters, n_leaves: Any) -> Any: ...


def engine_of(*inputs: Any) -> Engine:
    """The engine that serves these inputs: the cluster if one is a Dask collection, else one device."""
    if any(map(is_collection, inputs)):
        from rapids_slink import distributed  # it needs Dask

        return distributed
    return local

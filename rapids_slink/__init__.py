"""Exact single-linkage clustering of dataframes on NVIDIA GPUs, with the same answer on a CPU.

::

    points ──▶ k-NN graph ──▶ spanning forest ──▶ connect ──▶ linkage ──▶ cut
    (n, d)     src,dst,       lightest edges of   the rest    SciPy's     labels
               weight         the listed ones     of the tree Z

    neighbors/                spanning_tree/                  dendrogram/

Every arrow is one call in `pipeline.py`, and every stage takes what the one before returned. Edge lists, linkages
and labels are dataframes, cuDF's on a GPU and pandas' on a CPU. The two devices differ in their kernels (`cuda.py` with
its ``.cu`` files, `cpu.py`) and in nothing else; `runtime/` is what all stages run on.

Whole runs: `fit`, `SingleLinkage`, `HDBSCAN`, `fit_graph`. Single stages: `knn_graph`, `nearest_neighbors`,
`minimum_spanning_tree`, `linkage`, `cut`. A model that was saved: `load`.
For a report of a fault: `show_versions`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rapids_slink.dendrogram import cut, linkage
    from rapids_slink.graph import fit_graph
    from rapids_slink.hdbscan import HDBSCAN
    from rapids_slink.hierarchy.storage import load
    from rapids_slink.neighbors import knn_graph, nearest_neighbors
    from rapids_slink.runtime.device import DeviceUnavailableError
    from rapids_slink.runtime.memory import DeviceMemoryError, free_memory
    from rapids_slink.runtime.versions import show_versions
    from rapids_slink.single_linkage import SingleLinkage, fit
    from rapids_slink.spanning_tree import minimum_spanning_tree

__version__ = "0.2.0"

__all__ = [
    "HDBSCAN",
    "DeviceMemoryError",
    "DeviceUnavailableError",
    "SingleLinkage",
    "cut",
    "fit",
    "fit_graph",
    "free_memory",
    "knn_graph",
    "linkage",
    "load",
    "minimum_spanning_tree",
    "nearest_neighbors",
    "show_versions",
]

# Imported at first use: pandas, scikit-learn and the GPU packages cost seconds.
_HOMES = {
    "HDBSCAN": "hdbscan",
    "DeviceMemoryError": "runtime.memory",
    "DeviceUnavailableError": "runtime.device",
    "SingleLinkage": "single_linkage",
    "cut": "dendrogram",
    "fit": "single_linkage",
    "fit_graph": "graph",
    "free_memory": "runtime.memory",
    "knn_graph": "neighbors",
    "linkage": "dendrogram",
    "load": "hierarchy.storage",
    "minimum_spanning_tree": "spanning_tree",
    "nearest_neighbors": "neighbors",
    "show_versions": "runtime.versions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

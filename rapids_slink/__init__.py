"""Exact single-linkage clustering of dataframes on NVIDIA GPUs, with the same answer on a CPU.

::

    points ──▶ k-NN graph ──▶ spanning forest ──▶ connect ──▶ linkage ──▶ cut
    (n, d)     src,dst,       lightest edges of   the rest    SciPy's     labels
               weight         the listed ones     of the tree Z

    neighbors/                spanning_tree/                  dendrogram/

`pipeline.py` calls the stages in order, and every stage takes the result of the one before. Edge lists, linkages and
labels are dataframes, cuDF's on a GPU and pandas' on a CPU. The two devices differ only in their kernels (`cuda.py`
with its ``.cu`` files, `cpu.py`). All stages run on `runtime/`.

Whole runs: `fit`, `SingleLinkage`, `HDBSCAN`, `DBSCAN`, `fit_graph`. Single stages: `knn_graph`, `nearest_neighbors`,
`connect`, `minimum_spanning_tree`, `linkage`, `cut`. Pairs within a distance: `pairs`, `count_pairs`, `iter_pairs`,
`to_csr`, `deduplicate`, and `deduplicate_files` of Parquet. Points of int8 with scales: `Scaled`. Before a run: `plan`,
`compile`. Saved models: `load`. Memory kept for the next call: `free_memory`. Bug reports: `show_versions`.
"""

from typing import TYPE_CHECKING, Any

from rapids_slink.version import __version__ as __version__

if TYPE_CHECKING:
    from rapids_slink.api import *

__all__ = [
    "DBSCAN", "HDBSCAN", "DeviceMemoryError", "DeviceUnavailableError", "Scaled", "SingleLinkage", "compile", "connect",
    "count_pairs", "cut", "deduplicate", "deduplicate_files", "fit", "fit_graph", "free_memory", "iter_pairs",
    "knn_graph", "linkage", "load", "minimum_spanning_tree", "nearest_neighbors", "pairs", "plan", "show_versions",
    "to_csr",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Modules are imported at first use, because pandas, Numba and the GPU packages take seconds to import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rapids_slink import api

    value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

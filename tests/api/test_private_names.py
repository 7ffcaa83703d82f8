"""Names of other packages that are not public: a release without one fails here, and says what is missing then."""

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "name", "feature"),
    [
        ("sklearn.cluster._agglomerative", "_fix_connectivity", "connectivity= of rapids_slink.sklearn's class"),
        ("sklearn.neighbors._base", "NeighborsBase._fit", "rapids_slink.sklearn.NearestNeighbors"),
        ("hdbscan.hdbscan_", "_tree_to_labels", "Hierarchy.to_hdbscan"),
        ("jscatter.widget", "JupyterScatter._handle_tooltip", "what the explorer says of the row under the pointer"),
        ("numba.core.event", "Listener", "the message that kernels are being compiled"),
        ("numba.core.config", "CACHE_DIR", "the folder of the CPU's machine code"),
        ("numba.core.caching", "IndexDataCacheFile", "the files of the CPU's machine code"),
    ],
)
def test_private_names_are_there(module, name, feature):
    package = pytest.importorskip(module.partition(".")[0])
    holder, _, attribute = name.rpartition(".")
    found = import_module(module)
    assert hasattr(getattr(found, holder) if holder else found, attribute), (
        f"{feature} needs {module}.{name}: not in {package.__version__}"
    )

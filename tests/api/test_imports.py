"""Imports: what they cost, that no GPU package comes unasked, and that within the package they run one way."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module

import pytest
from repository import PACKAGE, python

import rapids_slink

GPU_PACKAGES = ["cudf", "cugraph", "cuml", "cupy", "cuvs", "pylibraft", "rmm"]
SLOW_PACKAGES = ["dask", "distributed", "numba", "pandas", "scipy", "sklearn"]
#: The rooms of the package, each of which imports from those after it alone.
ROOMS = [
    "__main__", "cli", "tables", "datasets", "scipy", "sklearn", "__init__", "api", "files", "parquet",
    "duplicates", "stages", "dbscan", "hdbscan", "single_linkage", "distributed",
    "planning", "pipeline", "graph", "hierarchy", "prediction", "items",
    "spanning_tree", "dendrogram", "neighbors", "points", "settings", "metrics", "ordering",
    "report", "runtime", "forced", "version",
]  # fmt: skip


def test_import_is_fast_and_loads_nothing_heavy():
    code = """
import sys, time
start = time.process_time()
import rapids_slink
print(time.process_time() - start, *{name.split(".")[0] for name in sys.modules})
"""
    seconds, *modules = python(code).split()
    assert not {*GPU_PACKAGES, *SLOW_PACKAGES} & set(modules)
    assert float(seconds) < 0.3


def test_cpu_run_imports_no_gpu_package_and_no_scikit_learn(tmp_path):
    """With GPU packages installed that cannot be imported."""
    for name in GPU_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise AssertionError('imported {name}')")
    code = """
import os, sys
sys.path.insert(0, os.environ["FAKES"])
import numpy as np, rapids_slink
model = rapids_slink.fit(np.arange(12.0).reshape(6, 2) ** 2, n_clusters=2, device="cpu")
print(model.labels_.tolist(), "sklearn" in sys.modules)
"""
    assert python(code, FAKES=str(tmp_path)).strip() == "[0, 0, 0, 0, 0, 1] False"


def test_every_public_name_is_there():
    for name in rapids_slink.__all__:
        assert callable(getattr(rapids_slink, name)), name
    assert set(rapids_slink.__all__) <= set(dir(rapids_slink))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rapids_slink.nonsense


def modules():
    """The package's modules by their names."""
    paths = {path.relative_to(PACKAGE.parent).with_suffix(""): path for path in PACKAGE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def statements(tree):
    """All nodes of a module but those for type checkers alone."""
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", None) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    return (node for node in ast.walk(tree) if id(node) not in typing)


def name_of(function):
    return getattr(function, "attr", getattr(function, "id", None))


@cache
def imports():
    """By module, the modules of the package that it imports: at module level, in functions, or by name in a string."""
    names, found = modules(), {}
    for name, path in names.items():
        found[name] = set()
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name} imports relatively"
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {part if part in names else node.module for part in parts}
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and node.value != "rapids_slink":
                found[name].add(node.value)
            elif isinstance(node, ast.Call) and name_of(node.func) in ("import_module", "__import__"):
                assert "rapids_slink" not in ast.unparse(node), f"{name} imports by a name that is made up"
        found[name] &= names.keys() - {name}
    return found


def test_modules_import_without_circles():
    order = list(TopologicalSorter(imports()).static_order())  # raises CycleError
    assert len(order) == len(modules()) > 50


def room(module):
    return module.split(".")[1] if "." in module else "__init__"


def test_rooms_import_one_way():
    assert {room(module) for module in modules()} <= set(ROOMS)
    upwards = {
        (module, other)
        for module, others in imports().items()
        for other in others
        if ROOMS.index(room(module)) > ROOMS.index(room(other))
    }
    assert not upwards


def test_imports_are_found():
    """Otherwise the tests above would pass whatever is imported."""
    found = imports()
    assert "rapids_slink.spanning_tree.lists" in found["rapids_slink.spanning_tree.ways"]
    assert "rapids_slink.neighbors.brute_force" in found["rapids_slink.neighbors"]
    assert "rapids_slink.hierarchy.storage" in found["rapids_slink.hierarchy.model"]
    assert "rapids_slink.distributed" in found["rapids_slink.single_linkage"]  # in a function


def test_no_stage_asks_for_the_class_of_a_search_or_a_filter():
    """They say themselves what they have: `Search` of neighbors/task.py, `TileFilter` of neighbors/filter."""
    asked = re.compile(r"isinstance\([^()]*,\s*\w*(?:Search|Filter)\)")
    assert [str(path) for path in PACKAGE.rglob("*.py") if asked.search(path.read_text())] == []


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

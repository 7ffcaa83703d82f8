"""Imports: what they cost, that no GPU package comes unasked, and that within the package they run one way."""

import ast
import os
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import rapids_slink

ROOT = Path(__file__).parent.parent
PACKAGE = Path(rapids_slink.__file__).parent
GPU_PACKAGES = ["cudf", "cugraph", "cuml", "cupy", "cuvs", "pylibraft", "rmm"]
SLOW_PACKAGES = ["dask", "distributed", "numba", "pandas", "scipy", "sklearn"]
#: The rooms of the package, each of which imports from those after it alone.
ROOMS = [
    "__main__", "cli", "tables", "demo", "datasets", "networkx_backend", "scipy", "sklearn", "single_linkage",
    "hdbscan", "distributed", "pipeline", "graph", "hierarchy", "spanning_tree", "dendrogram", "neighbors", "metrics",
    "trigonometry", "points", "ordering", "union_find", "report", "runtime", "__init__",
]  # fmt: skip


def python(code, **environment):
    """What `code` prints in a process of its own."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


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


def test_cpu_run_imports_no_gpu_package(tmp_path):
    """With packages of those names installed that cannot be imported."""
    for name in GPU_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise AssertionError('imported {name}')")
    code = """
import os, sys
sys.path.insert(0, os.environ["FAKES"])
import numpy as np, rapids_slink
model = rapids_slink.fit(np.arange(12.0).reshape(6, 2) ** 2, n_clusters=2, device="cpu")
print(model.labels_.tolist())
"""
    assert python(code, FAKES=str(tmp_path)).strip() == "[0, 0, 0, 0, 0, 1]"


def test_every_public_name_is_there():
    for name in rapids_slink.__all__:
        assert callable(getattr(rapids_slink, name)), name
    assert set(rapids_slink.__all__) <= set(dir(rapids_slink))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rapids_slink.nonsense


# ------------------------------------------------------------------------------------------- within the package


def modules():
    """The package's modules by their names."""
    paths = {path.relative_to(PACKAGE.parent).with_suffix(""): path for path in PACKAGE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def statements(body):
    """Those that run when a module is imported, type checkers' aside."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        yield statement
        if not isinstance(statement, ast.FunctionDef):
            for field in ("body", "orelse", "handlers", "finalbody"):
                yield from statements(getattr(statement, field, []))


@cache
def imports():
    """By module, the modules of the package that it imports at module level."""
    known, found = modules(), {}
    for name, path in known.items():
        found[name] = set()
        for statement in statements(ast.parse(path.read_text()).body):
            if isinstance(statement, ast.ImportFrom):
                assert not statement.level, f"{name} imports relatively"
                parts = {f"{statement.module}.{alias.name}" for alias in statement.names}
                found[name] |= {part if part in known else statement.module for part in parts}
            elif isinstance(statement, ast.Import):
                found[name] |= {alias.name for alias in statement.names}
        found[name] &= known.keys()
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
    assert "rapids_slink.spanning_tree.connect" in found["rapids_slink.spanning_tree"]
    assert "rapids_slink.neighbors.plan" in found["rapids_slink.neighbors"]
    assert "rapids_slink.hierarchy.storage" in found["rapids_slink.hierarchy.base"]
    assert not found["rapids_slink"]

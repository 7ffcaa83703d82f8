"""Each notebook runs, draws something, and is committed without outputs."""

import ast
import json
import os
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from repository import ROOT

import rapids_slink

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
NEEDS = {"hdbscan": "hdbscan", "jscatter": "explore"}  # what notebooks of such names need besides


def cells_of(name):
    """The notebook's cells of code."""
    return [cell for cell in json.loads(NOTEBOOKS[name].read_text())["cells"] if cell["cell_type"] == "code"]


def imports_of(name):
    """The statements of the notebook's code that import."""
    code = "\n".join("".join(cell["source"]) for cell in cells_of(name))
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]


def required(project, extra):
    """The packages of an extra, of those that it names, and of the package itself."""
    found = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    for line in project["optional-dependencies"][extra]:
        own = re.match(r"rapids_slink\[(.+)\]", line)
        found |= (
            set().union(*(required(project, name) for name in own[1].split(",")))
            if own
            else {re.match(r"[\w-]+", line)[0]}
        )
    return found


def test_the_pages_are_built_with_what_the_notebooks_import():
    """Read the Docs installs the extra docs alone, and runs them."""
    assert "01_quickstart" in NOTEBOOKS
    packages = required(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], "docs")
    provided = packages_distributions()
    for name in NOTEBOOKS:
        nodes = imports_of(name)
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        others = {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {"cuml", "rapids_slink"}
        assert not [module for module in others if not packages & set(provided.get(module, [module]))], name


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_uses_public_names(name):
    """And frames by the name that readers know, of pandas or, in the same line, of cuDF; it carries no outputs.

    Nor does it name a package that an index lacks.
    """
    assert not [cell for cell in cells_of(name) if cell["outputs"] != [] or cell["execution_count"] is not None]
    assert not re.search(r"pip install \W*rapids_slink", NOTEBOOKS[name].read_text())
    imported = imports_of(name)
    modules = {alias.name: alias.asname for node in imported if isinstance(node, ast.Import) for alias in node.names}
    assert modules["pandas"] == "pd"
    public = {f"rapids_slink.{module}" for module in ("datasets", "hdbscan", "scipy", "sklearn")}
    for node in imported:
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "rapids_slink":
            names = {alias.name for alias in node.names}
            assert node.module in public or names <= {*rapids_slink.__all__, "hdbscan"}, ast.unparse(node)
    assert not [module for module in modules if module.startswith("rapids_slink.")]


@pytest.mark.full
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name, tmp_path, monkeypatch):
    for module in ("ipykernel", "matplotlib", "nbclient", *(module for module, word in NEEDS.items() if word in name)):
        pytest.importorskip(module)
    import nbclient
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = [output["text"] for output in outputs if output["output_type"] == "stream"]
    printed += [output["data"].get("text/plain", "") for output in outputs if "data" in output]
    assert not [text for text in printed if text.strip() in ("{}", "[]", "None")]
    if name.startswith("06"):
        assert "adjusted Rand index of the flat clusters: 1.0\n" in "".join(printed)

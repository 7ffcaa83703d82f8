"""Each notebook runs, draws something, and is committed without outputs."""

import json
import os

import pytest
from repository import ROOT

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
NEEDS = {"hdbscan": "hdbscan", "jscatter": "explore"}  # what notebooks of such names need besides


def test_there_are_notebooks():
    assert "01_quickstart" in NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_carries_no_outputs(name):
    for cell in json.loads(NOTEBOOKS[name].read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


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

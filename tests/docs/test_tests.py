"""The tests themselves: no file needs another, and no process is waited for without an end."""

import ast

import pytest
from repository import ROOT


@pytest.fixture(scope="module")
def sources():
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "tests").rglob("*.py"))}


def test_no_test_imports_another(sources):
    for path, tree in sources.items():
        for node in ast.walk(tree):
            names = [alias.name for alias in getattr(node, "names", ()) if isinstance(node, ast.Import)]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[-1].startswith("test_")], path


def test_names_of_files_differ(sources):
    """What is shared is imported by its name alone, and some lists name tests by theirs."""
    names = [path.name for path in sources if path.name != "conftest.py"]
    assert len(set(names)) == len(names) > 90


def test_processes_have_a_time_to_end(sources):
    calls = [(path, node) for path, tree in sources.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    runs = [(path, node) for path, node in calls if ast.unparse(node.func) == "subprocess.run"]
    assert len(runs) > 20
    without = [f"{path}:{node.lineno}" for path, node in runs if "timeout" not in {word.arg for word in node.keywords}]
    assert without == []

"""A plugin of pytest for the tests of SciPy and scikit-learn: our function and class in the place of theirs."""

import importlib.util
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from repository import ROOT
from scipy.cluster import hierarchy

from rapids_slink import sklearn as front
from rapids_slink.scipy import linkage

methods = Counter()
device = os.environ.get("DEVICE", "cpu")


def linkage_here(y, method="single", *arguments, **options):
    methods[method] += 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "method=.* is handed to SciPy")
        return linkage(y, method, *arguments, device=device, **options)


class Counted(front.AgglomerativeClustering):
    def _fit(self, X):
        methods[self.linkage] += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "linkage=.* is handed to scikit-learn")
            return super()._fit(X)


def pytest_collection_modifyitems(items):
    front.fit, front.fit_graph = (partial(function, device=device) for function in (front.fit, front.fit_graph))
    hierarchy.linkage = linkage_here
    for item in items:
        if item.module.__name__.startswith("scipy."):
            item.module.linkage = linkage_here
        else:
            item.module.AgglomerativeClustering = Counted


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"single linkages: {methods['single']}")


def run_tests_of(module, device, plugin=Path(__file__).stem):
    """The tests of an installed module under a plugin: how many single linkages they made on the device."""
    package, _, _ = module.rpartition(".")
    if importlib.util.find_spec(package) is None:  # from 1.18 on SciPy's wheels are without them
        pytest.skip(f"{package} is not installed")
    here = Path(__file__).parent
    arguments = [
        "--pyargs",
        module,
        "-p",
        plugin,
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-c",
        "/dev/null",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    path = os.pathsep.join([str(ROOT), *sys.path])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=here,
        env=environment | {"PYTHONPATH": path, "DEVICE": device},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout
    assert "failed" not in run.stdout
    return int(re.search(r"single linkages: (\d+)", run.stdout)[1])

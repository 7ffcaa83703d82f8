"""A plugin of pytest for the tests of SciPy and scikit-learn: our functions and classes in the place of theirs."""

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
from sklearn import neighbors

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


class Neighbors(front.NearestNeighbors):
    def _fit(self, X, y=None):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is handed to scikit-learn")
            super()._fit(X, y)
        methods["neighbors"] += isinstance(self._tree, front._Rows)
        return self


def pytest_collection_modifyitems(items):
    for name in ("fit", "fit_graph", "nearest_neighbors", "pairs"):
        setattr(front, name, partial(getattr(front, name), device=device))
    hierarchy.linkage = linkage_here
    neighbors.NearestNeighbors = Neighbors
    for item in items:
        if item.module.__name__.startswith("scipy."):
            item.module.linkage = linkage_here
        else:
            item.module.AgglomerativeClustering = Counted


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"calls here: {methods['single'] + methods['neighbors']}")


def run_tests_of(module, device, plugin=Path(__file__).stem, selected=""):
    """Run the selected tests of an installed module under a plugin, and return how many calls they made here."""
    package, _, _ = module.rpartition(".")
    if importlib.util.find_spec(package) is None:  # from 1.18 on SciPy's wheels are without them
        pytest.skip(f"{package} is not installed")
    here = Path(__file__).parent
    arguments = f"--pyargs {module} -p {plugin} -p no:cacheprovider --rootdir . -c /dev/null".split()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    path = os.pathsep.join([str(ROOT), *sys.path])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments, "-k", selected],
        cwd=here,
        env=environment | {"PYTHONPATH": path, "DEVICE": device},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout
    assert "failed" not in run.stdout
    return int(re.search(r"calls here: (\d+)", run.stdout)[1])

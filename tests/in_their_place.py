"""A plugin of pytest for the tests of SciPy and scikit-learn: our function and class in the place of theirs."""

import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

from scipy.cluster import hierarchy

from rapids_slink.scipy import linkage
from rapids_slink.sklearn import AgglomerativeClustering

methods = Counter()


def linkage_on_cpu(y, method="single", *arguments, **options):
    methods[method] += 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "method=.* is handed to SciPy")
        return linkage(y, method, *arguments, device="cpu", **options)


class Counted(AgglomerativeClustering):
    def _fit(self, X):
        methods[self.linkage] += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "linkage=.* is handed to scikit-learn")
            return super()._fit(X)


def pytest_collection_modifyitems(items):
    hierarchy.linkage = linkage_on_cpu
    for item in items:
        if item.module.__name__.startswith("scipy."):
            item.module.linkage = linkage_on_cpu
        else:
            item.module.AgglomerativeClustering = Counted


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"single linkages: {methods['single']}")


def run_tests_of(module):
    """The tests of an installed module under this plugin: how many single linkages they made."""
    here = Path(__file__).parent
    arguments = [
        "--pyargs",
        module,
        "-p",
        Path(__file__).stem,
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-c",
        "/dev/null",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=here,
        env={"PYTHONPATH": str(here.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    assert "failed" not in run.stdout
    return int(re.search(r"single linkages: (\d+)", run.stdout)[1])

"""A plugin of pytest for SciPy's own tests: `rapids_slink.scipy.linkage` in the place of SciPy's once they are read."""

import warnings

from scipy.cluster import hierarchy

from rapids_slink.scipy import linkage

called = {}


def on_cpu(y, method="single", *arguments, **options):
    called[method] = called.get(method, 0) + 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "method=.* is handed to SciPy")
        return linkage(y, method, *arguments, device="cpu", **options)


def pytest_collection_modifyitems(items):
    hierarchy.linkage = on_cpu
    for item in items:
        item.module.linkage = on_cpu


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"single linkages: {called.get('single', 0)}")

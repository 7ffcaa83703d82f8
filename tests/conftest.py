"""What the tests share: the devices, and how many examples Hypothesis tries.

GPU items are deselected where there is no GPU. ``-m full`` selects the items that the quick set leaves out, and
``--hypothesis-profile=random`` draws new examples.
"""

import gc
import logging
import os
import sys
from contextlib import ExitStack
from types import SimpleNamespace

if "PYTEST_XDIST_WORKER" in os.environ:  # threads of BLAS wait by spinning, on cores that the other processes need
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from rapids_slink.forced import force
from rapids_slink.runtime.device import gpu_is_usable, resolve

logging.getLogger("rapids_slink").addHandler(logging.NullHandler())  # in a new environment kernels are compiled
settings.register_profile("quick", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("random", max_examples=200, deadline=None, print_blob=True)
settings.load_profile("quick")


def pytest_collection_finish(session):
    """Garbage is looked for among what tests make: a look at all that was collected takes half a second."""
    gc.collect()
    gc.freeze()


def pytest_pycollect_makeitem(collector, name, obj):
    """Make no items of functions that need a GPU where there is none: they are a quarter of all."""
    marks = [*collector.iter_markers("gpu"), *getattr(obj, "pytestmark", ())] if name.startswith("test_") else []
    return [] if any(mark.name == "gpu" for mark in marks) and not gpu_is_usable() else None


def pytest_collection_modifyitems(config, items):
    if gpu_is_usable():
        return
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=on_gpu)


#: The files whose tests compile most, and the same kernels.
COMPILING = [
    f"test_{name}.py"
    for name in (
        "any_input", "append", "brute_force", "compact", "connect", "digests", "estimator", "knn_graph", "memory",
        "items", "metrics", "missing", "near_pairs", "neighbor_lists", "pairs", "search_tasks", "trees",
    )
]  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of few processes one runs all tests of a file, and of these files: two would compile the same kernels."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "compiling" if file.rpartition("/")[2] in COMPILING or "::test_steps_of_sanitize" in nodeid else file

        def remove_node(self, node):
            """A test that ended its process, as one does that waits for ever, is not tried again in the next."""
            units = self.assigned_work[node].values()
            ended = next((test for unit in units for test, is_done in unit.items() if not is_done), None)
            for unit in units:
                unit.update({ended: True} if ended in unit else {})
            super().remove_node(node)
            return ended

    return Scheduling(config, log) if len(config.getoption("tx")) <= 4 else None


#: Half of all items would be made for nothing where there is no GPU.
DEVICES = ["cpu", *[pytest.param("cuda", marks=pytest.mark.gpu)] * gpu_is_usable()]


@pytest.fixture(scope="session", params=DEVICES)
def device(request):
    """The name of each device in turn."""
    return request.param


@pytest.fixture(scope="session")
def engine(device):
    """The same as a `Device`: its array module, frame module and kernels."""
    return resolve(device)


@pytest.fixture
def set_constants(monkeypatch):
    """Call it with a module and its numbers, `LARGE=8`; one by device is set for each of them."""

    def choose(module, **values):
        for name, value in values.items():
            constant = getattr(module, name)
            by_device = isinstance(constant, dict) and not isinstance(value, dict)
            monkeypatch.setattr(module, name, dict.fromkeys(constant, value) if by_device else value)

    return choose


@pytest.fixture
def pyplot():
    """Matplotlib's, whose figures are closed afterwards."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")  # which opens no windows
    yield pyplot
    pyplot.close("all")


@pytest.fixture
def prescribe():
    """Call it to prescribe ways for the rest of a test: `prescribe(tree="lists")`; see `rapids_slink.forced`."""
    with ExitStack() as prescribed:
        yield lambda **ways: prescribed.enter_context(force(**ways))


@pytest.fixture
def set_costs(monkeypatch):
    """Call it to set what work costs on every device: `set_costs(look=0)`; see `rapids_slink.neighbors.choose`."""

    def change(**costs):
        from rapids_slink.neighbors.choose import COSTS

        for device, cost in COSTS.items():
            monkeypatch.setitem(COSTS, device, cost._replace(**costs))

    return change


@pytest.fixture
def watch(monkeypatch):
    """Call it to note a function's calls: of `watch(owner, "name")` each has the arguments by position, in a tuple.

    `note` makes something else of a call's result and arguments. The function does what it ever did.
    """

    def watch(owner, name, note=lambda result, *given, **more: given):
        function, calls = getattr(owner, name), []

        def watched(*given, **more):
            result = function(*given, **more)
            calls.append(note(result, *given, **more))
            return result

        monkeypatch.setattr(owner, name, watched)
        return calls

    return watch


class Proxy:
    """A stand-in for those of ``cudf.pandas``, which needs a GPU, around an object of the CPU."""

    def __init__(self, inner):
        self.inner = inner

    def as_cpu_object(self):
        return self.inner

    def __getitem__(self, key):
        return self.inner[key]


@pytest.fixture
def cudf_pandas(monkeypatch):
    """The module, installed."""
    module = SimpleNamespace(LOADED=True, is_proxy_object=lambda X: isinstance(X, Proxy), as_proxy_object=Proxy)
    monkeypatch.setitem(sys.modules, "cudf.pandas", module)
    return module

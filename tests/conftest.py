"""What the tests share: the two devices, and how hard Hypothesis tries (``--hypothesis-profile=dev`` tries harder)."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

from rapids_slink.device import gpu_is_usable, resolve

settings.register_profile("ci", max_examples=60, derandomize=True, deadline=None)
settings.register_profile("dev", max_examples=500, deadline=None, print_blob=True)
settings.load_profile("ci")


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """The name of each device in turn; a GPU case is skipped where there is none."""
    if request.param == "cuda":
        if not gpu_is_usable():
            pytest.skip("no usable NVIDIA GPU with CuPy")
        pytest.importorskip("cudf", reason="cuDF is not installed")
    return request.param


@pytest.fixture(scope="session")
def where(device):
    """The same as a `Device`: its array module, frame module and kernels."""
    return resolve(device)


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

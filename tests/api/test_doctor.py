"""The check for ``rapids doctor``."""

import tomllib
from importlib import import_module

import pytest
from repository import ROOT

from rapids_slink import DeviceUnavailableError, api
from rapids_slink.cli import check
from rapids_slink.runtime.device import gpu_is_usable


def test_rapids_cli_finds_it():
    """By the name of the group of entry points that rapids-cli reads, and called as it calls checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["rapids_doctor_check"]["rapids_slink"].split(":")
    assert getattr(import_module(module), name) is check
    assert check.__doc__.splitlines()[0]  # which rapids-cli prints


@pytest.mark.gpu
def test_a_gpu_passes():
    assert check(verbose=True, later=1) == "the heights of 4,999 merges are the CPU's to the last bit"


@pytest.mark.skipif(gpu_is_usable(), reason="there is a GPU")
def test_no_gpu_fails():
    with pytest.raises(DeviceUnavailableError, match="needs an NVIDIA GPU with CuPy and cuDF"):
        check()


@pytest.mark.parametrize(("error", "text"), [(0.0, None), (1e-9, "heights differ in 4999 merges")])
def test_other_heights_fail(error, text, monkeypatch):
    """Here the GPU is a CPU that adds an error."""
    fit = api.fit

    class Hierarchy:
        def __init__(self, Z):
            self.to_scipy = lambda: Z

    def fit_on(rows, n_clusters, device):
        model = fit(rows, n_clusters=n_clusters, device="cpu")
        return Hierarchy(model.to_scipy() + error * (device == "cuda")) if error else model

    monkeypatch.setattr(api, "fit", fit_on)
    if text is None:
        assert "4,999" in check()
    else:
        with pytest.raises(RuntimeError, match=text):
            check()

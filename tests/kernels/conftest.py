"""The bodies of the fused filter's kernel."""

import pytest


@pytest.fixture
def fused_body(monkeypatch, set_constants):
    """Call it to have one body, where the GPU has its instructions; returns the filter's module."""

    def choose(name):
        from rapids_slink.neighbors.filter import fused

        if name == "wgmma" and not fused.is_hopper():
            pytest.skip("wgmma is for Hopper GPUs")
        monkeypatch.setattr(fused, "is_hopper", lambda: name == "wgmma")
        if name == "mma, one stage":  # the shape for the least memory
            set_constants(fused, MMA_SHAPES=fused.MMA_SHAPES[-1:])
            monkeypatch.setattr(fused, "_compiled", fused._compiled.__wrapped__)
        return fused

    return choose

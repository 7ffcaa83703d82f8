"""Running out of memory: one clear error, and nothing left behind."""

import gc
import tracemalloc

import numpy as np
import pytest
from calls import CALLS, Failing, points, spread, stray_threads
from hard_cases import full
from spanning_trees import bits

from rapids_slink import DeviceMemoryError, fit, knn_graph, nearest_neighbors, neighbors
from rapids_slink.neighbors import queries
from rapids_slink.points.output import PreallocatedFrame
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.memory import run_scope

FUNCTIONS = ["empty", "full", "matmul", "concatenate"]
#: What these call at all.
CALLED = {
    "fit, all pairs": FUNCTIONS,
    "fit, a tree": ["empty", "full", "concatenate"],
    "fit_graph": ["empty", "full"],
    "minimum_spanning_tree": ["empty", "full"],
    "linkage": ["empty"],
}
EACH = [(name, function) for name in CALLED for function in CALLED[name]]
LONG = [("fit, all pairs", function) for function in FUNCTIONS if function != "matmul"]


@pytest.mark.parametrize(("cores", "most"), [(1, 2), full(1, 8), full(2, 3)])
@pytest.mark.parametrize(("name", "function"), [full(*one) if one in LONG else one for one in EACH])
def test_running_out_of_memory(monkeypatch, prescribe, name, function, cores, most):
    prescribe(cores=cores)
    call = CALLS[name]
    expected, before = bits(call(device="cpu")), stray_threads()
    failing = Failing(getattr(np, function), MemoryError("Unable to allocate 93.1 TiB"))
    monkeypatch.setattr(np, function, failing)
    call(device="cpu")
    assert failing.calls
    for at in spread(failing.calls, most):
        failing.calls, failing.fails_at = 0, at
        refusal = pytest.raises(DeviceMemoryError, match=r"not enough memory: .* \(Unable to allocate 93.1 TiB\)$")
        try:
            with refusal:
                call(device="cpu")
        except pytest.fail.Exception:  # a thread to which no chunk is left allocates nothing
            assert cores > 1
            assert failing.calls < failing.fails_at
        assert stray_threads() <= before
        assert bits(call(device="cpu")) == expected


def test_running_out_of_memory_leaves_none_taken(monkeypatch):
    X = points(7000, 12)
    fit(X[:6000], 3, device="cpu")
    failing = Failing(np.full, MemoryError())
    monkeypatch.setattr(np, "full", failing)
    tracemalloc.start()
    try:
        fit(X, 3, device="cpu")
        gc.collect()
        before, failing.fails_at = tracemalloc.get_traced_memory()[0], failing.calls - 1
        failing.calls = 0
        with pytest.raises(DeviceMemoryError) as refusal:
            fit(X, 3, device="cpu")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < before + 2**20  # while the error is still at hand
        del refusal
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("error", [RuntimeError("no"), ValueError("no"), KeyboardInterrupt()])
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(type(error)) as raised, run_scope(CPU):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    "call",
    [
        lambda device: knn_graph(points(3000, 12), 5, device=device),
        lambda device: nearest_neighbors(points(7, 12), points(3000, 12, 1), device=device),
        lambda device: nearest_neighbors(points(3000, 12), points(3000, 12, 1), device=device),
    ],
    ids=["knn_graph", "few queries", "many queries"],
)
def test_a_frame_is_there_before_the_kernels_that_write_it(monkeypatch, watch, device, call):
    """So that no memory of a kernel that is under way comes back because there is none for the frame."""
    begun = [watch(module, "prepare_search") for module in (neighbors, queries)]
    if device == "cuda":
        from rapids_slink.neighbors.small_batch import SmallBatchSearch

        begun.append(watch(SmallBatchSearch, "write_edges"))
    monkeypatch.setattr(PreallocatedFrame, "empty", Failing(None, MemoryError("none for a frame"), fails_at=1))
    with pytest.raises(DeviceMemoryError, match="none for a frame"):
        call(device)
    assert not any(begun)

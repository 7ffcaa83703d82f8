"""Running out of memory: one clear error, nothing left behind, and a GPU's pools handed from run to run."""

import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from calls import CALLS, Failing, points, spread, stray_threads
from spanning_trees import bits

from rapids_slink import DeviceMemoryError, fit, knn_graph, nearest_neighbors, neighbors
from rapids_slink.runtime import memory
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import PreallocatedFrame
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


@pytest.mark.parametrize(("name", "function"), [(name, function) for name in CALLED for function in CALLED[name]])
def test_running_out_of_memory(monkeypatch, name, function):
    call = CALLS[name]
    expected, before = bits(call(device="cpu")), stray_threads()
    failing = Failing(getattr(np, function), MemoryError("Unable to allocate 93.1 TiB"))
    monkeypatch.setattr(np, function, failing)
    call(device="cpu")
    assert failing.calls
    for at in spread(failing.calls):
        failing.calls, failing.fails_at = 0, at
        with pytest.raises(DeviceMemoryError, match=r"not enough memory: .* \(Unable to allocate 93.1 TiB\)$"):
            call(device="cpu")
        assert stray_threads() <= before
        assert bits(call(device="cpu")) == expected


def test_running_out_of_memory_leaves_none_taken(monkeypatch):
    X = points(20000, 12)
    fit(X[:5000], 3, device="cpu")
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
def test_a_frame_is_there_before_the_kernels_that_write_it(monkeypatch, device, call):
    """So that no memory of a kernel that is under way comes back because there is none for the frame."""
    begun = []
    monkeypatch.setattr(neighbors, "prepare_search", lambda *_, **__: begun.append("search"))
    if device == "cuda":
        from rapids_slink.neighbors.small_batch import SmallBatchSearch

        monkeypatch.setattr(SmallBatchSearch, "write_edges", lambda *_: begun.append("small batch"))
    monkeypatch.setattr(PreallocatedFrame, "empty", Failing(None, MemoryError("none for a frame"), fails_at=1))
    with pytest.raises(DeviceMemoryError, match="none for a frame"):
        call(device)
    assert not begun


# ------------------------------------------------------------------------------------------- the pools of a GPU


class Pool:
    """As much of CuPy's `MemoryPool` as a run asks for."""

    def __init__(self, allocator):
        self.allocator, self.held, self.used = allocator, 0, 0

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        self.held = max(self.held, size)

    def total_bytes(self):
        return self.held

    def used_bytes(self):
        return self.used

    def free_all_blocks(self):
        self.held = self.used


class CheckedLock:
    """A lock that tells whether it is held."""

    def __init__(self):
        self.lock, self.held = threading.Lock(), False

    def __enter__(self):
        self.lock.acquire()
        self.held = True

    def __exit__(self, *_):
        self.held = False
        self.lock.release()


class CheckedList(list):
    """A list that may only be changed and gone through under the lock."""

    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def append(self, entry):
        assert self.lock.held
        super().append(entry)

    def pop(self, *i):
        assert self.lock.held
        return super().pop(*i)

    def __iter__(self):
        assert self.lock.held
        return super().__iter__()


@pytest.fixture
def fake_gpu(monkeypatch):
    """A `Device` whose pools are lists of numbers, and the idle ones, which are only touched under their lock."""
    allocators = ["usual"]

    @contextmanager
    def using_allocator(allocator):
        allocators.append(allocator)
        yield
        allocators.pop()

    stream = SimpleNamespace(ptr=0)
    cuda = SimpleNamespace(
        MemoryPool=Pool,
        Stream=SimpleNamespace(null=stream),
        get_allocator=lambda: allocators[-1],
        get_current_stream=lambda: stream,
        runtime=SimpleNamespace(getDevice=lambda: 0),
        using_allocator=using_allocator,
    )
    lock = CheckedLock()
    monkeypatch.setattr(memory, "_idle_lock", lock)
    monkeypatch.setattr(memory, "_idle_pools", CheckedList(lock))
    monkeypatch.setattr(memory, "_import_cudf", lambda: None)
    monkeypatch.setattr(memory, "free_on_gpu", lambda cuda: None)
    return Device("cuda", SimpleNamespace(cuda=cuda))


def pool_of_a_run(device, size=0, used=0):
    """The pool that a run has taken so many bytes from, of which some are still used when it is over."""
    with run_scope(device):
        pool = memory._run().pool.pool
        pool.malloc(size)
        pool.used = used
    return pool


def test_an_idle_pool_is_taken_again(fake_gpu):
    first = pool_of_a_run(fake_gpu, size=100)
    assert pool_of_a_run(fake_gpu) is first
    assert first.held == 100
    with run_scope(fake_gpu):
        assert memory._run().pool.pool is first
        assert pool_of_a_run(fake_gpu) is not first  # a run's pool is its own
    memory.release_idle_pools()
    assert first.held == 0


def test_a_limited_run_begins_with_an_empty_pool(fake_gpu):
    first = pool_of_a_run(fake_gpu, size=100)
    with run_scope(fake_gpu, 50):
        assert memory._run().pool.pool is first
        assert (first.held, first.limit) == (0, 50)


def test_a_large_pool_is_emptied_when_its_run_is_over(fake_gpu):
    assert pool_of_a_run(fake_gpu, size=memory.IDLE_BYTES).held == memory.IDLE_BYTES
    assert pool_of_a_run(fake_gpu, size=memory.IDLE_BYTES + 1).held == 0


@pytest.mark.parametrize(
    ("size", "limit", "left"), [(100, None, 100), (memory.IDLE_BYTES + 1, None, 0), (100, "1 GiB", 0)], ids=str
)
def test_what_a_pool_keeps_between_two_stages(fake_gpu, size, limit, left):
    with run_scope(fake_gpu, limit):
        pool = memory._run().pool.pool
        pool.malloc(size)
        memory.release_cached()
        assert pool.held == left


@pytest.mark.parametrize(("share", "left"), [(1 / 100, memory.IDLE_BYTES + 1), (1 / 2, 0)])
def test_what_is_reserved_stays_between_two_stages(fake_gpu, monkeypatch, share, left):
    """It is a small share of the memory that is free."""
    size = memory.IDLE_BYTES + 1
    monkeypatch.setattr(memory, "_free", lambda device, run: int(size / share))
    with run_scope(fake_gpu):
        memory.check_memory(fake_gpu, MemoryEstimate(size), "work")
        pool = memory._run().pool.pool
        pool.malloc(size)
        memory.release_cached()
        assert pool.held == left


def test_a_pool_that_is_still_used_waits(fake_gpu):
    first = pool_of_a_run(fake_gpu, size=100, used=60)
    assert pool_of_a_run(fake_gpu) is not first
    first.used = 0
    assert first in {pool_of_a_run(fake_gpu) for _ in range(2)}


def test_an_interruption_that_thrust_takes_for_a_lack_of_memory(fake_gpu, monkeypatch):
    """It is one where the pool has not run out."""
    with pytest.raises(KeyboardInterrupt), run_scope(fake_gpu):
        raise MemoryError("std::bad_alloc")
    calls = []

    def no_memory(pool, size):
        calls.append(size)
        raise MemoryError("Out of memory allocating 1 byte")

    monkeypatch.setattr(Pool, "malloc", no_memory)

    def sort():
        try:
            fake_gpu.xp.cuda.get_allocator()(1)
        except MemoryError:
            raise MemoryError("std::bad_alloc") from None

    with pytest.raises(DeviceMemoryError), run_scope(fake_gpu):
        sort()
    assert calls == [1, 1]
    with pytest.raises(DeviceMemoryError), run_scope(CPU):
        raise MemoryError("std::bad_alloc")


def test_pools_are_handed_on_under_a_lock(fake_gpu):
    """Whatever ends a run; the list of idle pools says so if somebody else touches it."""

    def work(i):
        for _ in range(50):
            pool_of_a_run(fake_gpu, size=i)
            with pytest.raises(DeviceMemoryError), run_scope(fake_gpu):
                raise MemoryError
            with pytest.raises(KeyboardInterrupt), run_scope(fake_gpu):
                raise KeyboardInterrupt

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))

"""A GPU's memory: all of it rmm's, within the limit, and given back whatever ends a run."""

import gc
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from calls import EVERY_CALL, Failing, least_limit, points, spread
from spanning_trees import bits

import rapids_slink
from rapids_slink import DeviceMemoryError, fit
from rapids_slink.dendrogram import MERGE_TYPES
from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.pipeline import tree_of_points
from rapids_slink.points import output
from rapids_slink.points.output import EDGE_TYPES, frame_of
from rapids_slink.report import Report
from rapids_slink.runtime import memory
from rapids_slink.runtime.device import resolve
from rapids_slink.runtime.memory import as_bytes, copy_out, free_memory, run_scope
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree.ways import tree_of_rows

pytestmark = pytest.mark.gpu


@pytest.fixture
def watched_memory():
    """Statistics of all that is allocated through rmm in the test; idle pools keep nothing when they are asked for."""
    rmm = pytest.importorskip("rmm")
    import cudf  # noqa: F401
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    def statistics():
        gc.collect()
        free_memory()
        return resource.allocation_counts

    free_memory()
    before, allocator = rmm.mr.get_current_device_resource(), cupy.cuda.get_allocator()
    resource = rmm.mr.StatisticsResourceAdaptor(before)
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    yield statistics
    statistics()
    cupy.cuda.set_allocator(allocator)
    rmm.mr.set_current_device_resource(before)


@EVERY_CALL
def test_all_of_a_gpus_memory_comes_from_rmm_and_goes_back(watched_memory, call):
    import cupy

    call(device="cuda")  # compiles
    before = watched_memory()
    free = cupy.get_default_memory_pool().total_bytes()
    found = call(device="cuda")
    during = watched_memory()
    assert during.total_count > before.total_count
    assert during.total_bytes - before.total_bytes > 10_000  # all the arrays were seen
    assert cupy.get_default_memory_pool().total_bytes() == free  # CuPy's own pool was passed by
    del found
    assert watched_memory().current_bytes <= before.current_bytes


@pytest.mark.parametrize("sample_weight", [None, np.ones(5000)], ids=["rows", "weights"])
def test_clusters_are_not_in_the_pool_of_their_run(watched_memory, sample_weight):
    import cupy

    model = rapids_slink.HDBSCAN(10, 4).fit(cupy.asarray(points(5000, 3)), sample_weight=sample_weight)
    assert [idle.pool.used_bytes() for idle in memory._idle_pools if idle.pool.used_bytes()] == []
    assert len(model.labels_) == 5000  # whose results are alive


def test_idle_pools_keep_little(watched_memory):
    """However many runs there are at the same time; and nothing on demand."""

    def idle_bytes():
        gc.collect()
        return sum(idle.release(keep=2**62) for idle in memory._idle_pools)

    X, before = points(4_000_000, 3), watched_memory().current_bytes
    fit(X, 3, device="cuda")
    assert memory.IDLE_BYTES / 4 < idle_bytes() <= memory.IDLE_BYTES
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: fit(X, 3, device="cuda"), range(8)))
    assert 0 < idle_bytes() <= memory.IDLE_BYTES
    rapids_slink.free_memory()
    assert watched_memory().current_bytes <= before


def test_what_bad_alloc_is(watched_memory):
    """The host's is a lack of memory; Thrust's after Ctrl-C is Ctrl-C."""
    with pytest.raises(DeviceMemoryError, match="bad_alloc"), run_scope(resolve("cuda")):
        raise MemoryError("std::bad_alloc")

    def sort():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise MemoryError("std::bad_alloc")

    with pytest.raises(KeyboardInterrupt), run_scope(resolve("cuda")):
        sort()


def test_an_array_that_outlives_its_run(watched_memory):
    """Its pool is not handed on, and gives its memory back once the array is gone."""
    device, kept = resolve("cuda"), []
    before = watched_memory().current_bytes
    with run_scope(device):
        kept.append(device.xp.arange(2**20))
    with run_scope(device):
        other = device.xp.zeros(2**20)
        del other
    assert (kept[0] == device.xp.arange(2**20)).all()
    kept.clear()
    assert watched_memory().current_bytes <= before


def test_what_is_copied_out_of_a_run(watched_memory):
    device = resolve("cuda")
    before = watched_memory().current_bytes
    with run_scope(device):
        kept = copy_out(device, device.xp.arange(1000))
        frame = frame_of(device, {"a": device.xp.arange(1000)})
        nothing = frame_of(device, {})
    assert (kept == device.xp.arange(1000)).all()
    assert frame["a"].to_numpy().tolist() == list(range(1000))
    assert nothing.shape == (0, 0)
    assert watched_memory().current_bytes >= before + 16_000


@pytest.mark.parametrize(("n", "d", "k"), [(400_000, 1, 8), (900_000, 3, 8), (300_000, 32, 8), (100_000, 96, 16)])
def test_estimates(watched_memory, n, d, k):
    """At the least limit the pool takes no more, and at least half of it."""
    import cupy

    X, totals = points(n, d), []

    class Watching(cupy.cuda.MemoryHook):
        name = "watching"

        def malloc_postprocess(self, **sizes):
            totals.append(memory.current_run().pool.pool.total_bytes())

    limit, _ = least_limit(lambda **how: fit(X, 3, n_neighbors=k, **how), "cuda")
    with Watching():
        fit(X, 3, n_neighbors=k, device="cuda", memory_limit=limit)
    assert max(totals) <= as_bytes(limit) <= 2 * max(totals)
    assert watched_memory().peak_bytes < 2 * as_bytes(limit)  # frames of cuDF and the results included


@pytest.mark.parametrize("kind", ["uniform", "clusters"])
def test_few_features_take_little_memory(watched_memory, kind):
    """At most 64 bytes a point beside the input and the result, if a pool keeps nothing between two stages.

    The result is the columns of the tree, of its linkage, and the labels.
    """
    cupy, n = resolve("cuda").xp, 16_000_000
    X = cupy.random.default_rng(0).random((n, 3), dtype="float32")
    if kind == "clusters":
        X = X[cupy.random.default_rng(1).integers(0, 1000, n)] + X * cupy.float32(1e-3)
    before = watched_memory().current_bytes
    fit(X, 3, device="cuda", memory_limit="64GiB")  # with a limit nothing is reserved or kept
    columns = {**EDGE_TYPES, **MERGE_TYPES, "label": "int32"}
    result = sum(np.dtype(dtype).itemsize for dtype in columns.values())
    assert (watched_memory().peak_bytes - before) / n < 64 + result


@pytest.mark.parametrize("limit", [2**21, 2**23, 3 * 2**22])
def test_the_pool_holds_to_the_limit(watched_memory, limit):
    """Whatever an estimate would say, and leaves the GPU as it was."""
    X, device = points(30_000, 32), resolve("cuda")
    expected = bits(fit(X, 3, device="cuda"))
    before = watched_memory().current_bytes

    def grow():
        tree_of_points(device.asarray(X), Problem(Settings(EUCLIDEAN), device, *X.shape, 4), Report(), tree_of_rows)

    text = f"not enough GPU memory: memory_limit={limit} was reached"
    with pytest.raises(DeviceMemoryError, match=text), run_scope(device, limit):
        grow()
    assert watched_memory().current_bytes <= before
    assert bits(fit(X, 3, device="cuda")) == expected


def test_interruptions_leave_the_gpu_as_it_was(watched_memory, monkeypatch):
    X = points(20_000, 16)
    usual = output._columns_of
    counted = Failing(usual, KeyboardInterrupt())
    with monkeypatch.context() as patch:
        patch.setattr(output, "_columns_of", counted)
        expected = bits(fit(X, 3, n_neighbors=2, device="cuda"))
    assert counted.calls
    before = watched_memory().current_bytes
    for at in spread(counted.calls, 4):
        with monkeypatch.context() as patch:
            patch.setattr(output, "_columns_of", Failing(usual, KeyboardInterrupt(), at))
            with pytest.raises(KeyboardInterrupt):
                fit(X, 3, n_neighbors=2, device="cuda")
        assert watched_memory().current_bytes <= before
    assert bits(fit(X, 3, n_neighbors=2, device="cuda")) == expected

"""Memory, bad input, threads and interruptions: what goes wrong is said clearly, and leaves nothing behind."""

import copy
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import rapids_slink
from rapids_slink import (
    DeviceMemoryError,
    SingleLinkage,
    cut,
    fit,
    fit_graph,
    knn_graph,
    linkage,
    memory,
    minimum_spanning_tree,
    nearest_neighbors,
)
from rapids_slink import device as device_module
from rapids_slink.device import CPU, Device, gpu_is_usable, resolve, to_host
from rapids_slink.neighbors import tiles
from rapids_slink.neighbors.cpu import each

ROOT = Path(__file__).parent.parent


def points(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def graph(n, m, names=False):
    rng = np.random.default_rng(0)
    edges = pd.DataFrame({end: rng.integers(0, n, m) for end in ("src", "dst")} | {"weight": rng.random(m)})
    return edges.astype({"src": str, "dst": str}) if names else edges


def bits(result):
    """All that a call returned, on the host, as bytes."""
    if isinstance(result, rapids_slink.hierarchy.Hierarchy):
        return bits(result.linkage_), bits(result.mst_), bits(result.labels_)
    if hasattr(result, "columns"):
        return tuple(bits(result[name]) for name in result.columns)
    values = to_host(result.values if hasattr(result, "values") else result)
    return values.tolist() if values.dtype == object else values.tobytes()


# ----------------------------------------------------------------------------------------------- memory_limit


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (None, None),
        (1, 1),
        (np.int64(5), 5),
        ("1B", 1),
        ("8GiB", 2**33),
        ("500 MB", 500_000_000),
        ("1.5kib", 1536),
        ("2TB", 2 * 10**12),
        (" 3 MiB ", 3 * 2**20),
        ("4096", 4096),
        ("9" * 400 + "GB", (10**400 - 1) * 10**9),
    ],
)
def test_limits_that_are_read(given, size):
    assert memory.as_bytes(given) == size


@pytest.mark.parametrize("given", ["", "much", "8 gigs", "-1GiB", "iB", "1e9", 0, -5, "0GB", "0.1B"])
def test_limits_that_are_no_sizes(given, device):
    with pytest.raises(ValueError, match=f"memory_limit must be .*got {given!r}"):
        fit(np.eye(3), 2, device=device, memory_limit=given)


@pytest.mark.parametrize("given", [1.5, True, [1], b"1GiB"])
def test_limits_of_no_valid_type(given, device):
    with pytest.raises(TypeError, match=r"memory_limit must be a number of bytes or text such as '8GiB' or '500MB'"):
        knn_graph(np.eye(3), 1, device=device, memory_limit=given)


@pytest.mark.parametrize(
    ("size", "words"), [(1, "0.1 MiB"), (2**20, "1.0 MiB"), (2**20 + 1, "1.1 MiB"), (33500000000, "31.2 GiB")]
)
def test_sizes_in_words(size, words):
    assert memory.in_words(size) == words
    assert memory.as_bytes(words) >= size


def test_needs_of_stages_add_up():
    first, second = memory.Need(10, kept=4, chunk=1, lasting=2), memory.Need(3, kept=3, chunk=5, lasting=3)
    whole = memory.in_turn(first, second, memory.Need(8))
    assert whole == memory.Need(15, kept=7, chunk=5, lasting=5)
    assert whole.least == 20


EDGES = graph(3000, 9000)
FOREST = minimum_spanning_tree(EDGES, device="cpu")
TREE = linkage(minimum_spanning_tree(pd.DataFrame({"src": 0, "dst": range(1, 5000), "weight": 1}), device="cpu"))
SOME = points(3000, 12)
PLANE = points(5000, 2).astype(np.float64)
MANY = points(50_000, 12)
OUTLIER = np.concatenate([points(20_000, 12, 1), np.full((1, 12), 1e30, np.float32)])
CALLS = {
    "fit, tiles": lambda **how: fit(SOME, 3, **how),
    "fit, many neighbours": lambda **how: fit(points(2000, 12), 3, n_neighbors=90, **how),
    "fit, few rows of many features": lambda **how: fit(points(300, 500), 3, **how),
    "fit, a tree": lambda **how: fit(PLANE, 3, **how),
    "fit, cores": lambda **how: fit(SOME, 3, min_samples=5, **how),
    "fit, cores in a tree": lambda **how: fit(PLANE, 3, min_samples=5, **how),
    "fit, a frame": lambda **how: fit(pd.DataFrame(points(3000, 9)).astype({0: np.float64}), 3, **how),
    "knn_graph": lambda **how: knn_graph(points(3000, 20), 30, **how),
    "knn_graph, a tree": lambda **how: knn_graph(points(3000, 3), 5, **how),
    "nearest_neighbors": lambda **how: nearest_neighbors(points(4000, 12), points(3000, 12, 1), **how),
    "nearest_neighbors, an outlier": lambda **how: nearest_neighbors(points(400, 12), OUTLIER, **how),
    "nearest_neighbors, few columns": lambda **how: nearest_neighbors(MANY, points(7, 12, 1), **how),
    "nearest_neighbors, two types": lambda **how: nearest_neighbors(SOME, PLANE @ np.eye(2, 12), **how),
    "nearest_neighbors, a tree": lambda **how: nearest_neighbors(points(4000, 2), points(3000, 2, 1), **how),
    "minimum_spanning_tree": lambda **how: minimum_spanning_tree(EDGES, **how),
    "minimum_spanning_tree, dense": lambda **how: minimum_spanning_tree(graph(300, 40000), **how),
    "minimum_spanning_tree, names": lambda **how: minimum_spanning_tree(graph(500, 9000, names=True), **how),
    "fit_graph": lambda **how: fit_graph(EDGES, **how),
    "linkage": lambda **how: linkage(FOREST, n_nodes=3000, **how),
}


def least_limit(call, device):
    """What the refusals of ever larger limits say would do."""
    limit = 1
    for _ in range(4):
        with pytest.raises(DeviceMemoryError, match=r"memory_limit=.* is too small for .*: needs at least") as refusal:
            call(device=device, memory_limit=limit)
        limit = re.search(r"needs at least ([\d.]+ [MG]iB) of (GPU )?memory$", str(refusal.value))[1]
        try:
            return limit, call(device=device, memory_limit=limit)
        except DeviceMemoryError:
            pass
    raise AssertionError(f"{limit} was not enough")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_least_limit_gives_the_same_bits(call, device):
    limit, found = least_limit(call, device)
    assert bits(found) == bits(call(device=device))
    assert memory.as_bytes(limit) < 2**30


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_estimates_on_the_cpu(call):
    """The least that is asked for is what is taken at the peak, as Python's and NumPy's allocators see it, or more."""
    limit, _ = least_limit(call, "cpu")  # which compiles what there is to compile
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call(device="cpu", memory_limit=limit)
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    slack = 2**20  # the call's own input, and what Python's objects take
    assert taken <= memory.as_bytes(limit) + slack
    assert memory.as_bytes(limit) <= 4 * taken + slack


def test_a_limit_makes_smaller_chunks(monkeypatch, device):
    rows = []
    method = tiles.TileSearch._rows_at_once
    monkeypatch.setattr(tiles.TileSearch, "_rows_at_once", lambda *a: rows.append(method(*a)) or rows[-1])
    knn_graph(points(3000, 12), 5, device=device)
    most = max(rows)
    least_limit(lambda **how: rows.clear() or knn_graph(points(3000, 12), 5, **how), device)
    assert tiles.LEAST_ROWS <= max(rows) < most


def test_few_pairs_fit(monkeypatch):
    """Where what it takes to join the last components at once does not fit, rounds of searches find the same tree."""
    X = np.concatenate([points(6000, 9, seed) + 40 * seed for seed in range(3)])
    expected = fit(X, 3, n_neighbors=2, device="cpu")
    assert "joined_at_once" in expected.report_["connect"]
    monkeypatch.setattr(Device, "spare", 2**20)
    found = fit(X, 3, n_neighbors=2, device="cpu")
    assert "joined_at_once" not in found.report_["connect"]
    assert bits(found) == bits(expected)


def free_is(monkeypatch, size):
    monkeypatch.setattr("rapids_slink.device.free_on_host", lambda: size)
    monkeypatch.setattr("rapids_slink.device.free_on_gpu", lambda cuda: size)


def test_what_does_not_fit_is_refused_at_the_start(monkeypatch, device):
    free_is(monkeypatch, 3 * 2**30)
    X = np.broadcast_to(np.float32(0), (2**29, 100))  # of one value: 200 GiB if anything copied it
    start = r"not enough (GPU )?memory for 536,870,912 rows of 100 features: needs about [\d.]+ GiB, 3\.0 GiB are free$"
    for call in (lambda: fit(X, 3, device=device), lambda: knn_graph(X, 3, device=device)):
        with pytest.raises(DeviceMemoryError, match=start):
            call()
    X = np.zeros((2_000_000, 4), np.float32)
    with pytest.raises(DeviceMemoryError, match=r"2,000,000 rows of 4 features: needs about [\d.]+ GiB, 3\.0 GiB"):
        fit(X, 3, n_neighbors=300, device=device)


def test_graphs_that_do_not_fit_are_refused_at_the_start(monkeypatch, device):
    free_is(monkeypatch, 2**20)
    edges = pd.DataFrame({"src": np.zeros(3_000_000, np.int32), "dst": np.int32(1), "weight": np.float32(1)})
    for call in (minimum_spanning_tree, fit_graph):
        with pytest.raises(DeviceMemoryError, match=r"3,000,000 edges: needs about [\d.]+ MiB, 1\.0 MiB are free"):
            call(edges, device=device)
    chain = pd.DataFrame({"src": np.arange(999_999), "dst": np.arange(1, 1_000_000), "weight": 1.0})
    with pytest.raises(
        DeviceMemoryError, match=r"a tree of 999,999 edges: needs about [\d.]+ MiB, [\d.]+ MiB are free"
    ):
        linkage(chain, device=device)


def test_cuts_that_do_not_fit_are_refused_at_the_start(monkeypatch):
    free_is(monkeypatch, 2**20)
    with pytest.raises(
        DeviceMemoryError, match=r"4,000 cuts of 4,999 merges: needs about [\d.]+ MiB, 1\.0 MiB are free"
    ):
        cut(TREE, n_clusters=range(1, 4001))


def test_what_fits_is_not_refused(monkeypatch, device):
    free_is(monkeypatch, None)  # not known
    expected = fit(points(500, 3), 3, device=device)
    free_is(monkeypatch, 0)  # small work does not ask
    assert bits(fit(points(500, 3), 3, device=device)) == bits(expected)


@pytest.mark.parametrize("rows", [2**30 + 1, 2**31, 2**32])
def test_more_rows_than_ids_is_refused(rows, device):
    X = np.broadcast_to(np.float32(0), (rows, 1))
    with pytest.raises(ValueError, match=f"X has {rows} rows; SingleLinkage takes up to {2**30}"):
        fit(X, 2, device=device)
    with pytest.raises(ValueError, match=f"Y has {rows} rows; SingleLinkage takes up to {2**30}"):
        nearest_neighbors(np.eye(1), X, device=device)


@pytest.mark.gpu
def test_more_edges_than_a_frame_of_cudf_holds_are_refused(device):
    if device != "cuda":
        pytest.skip("needs a GPU")
    X = np.broadcast_to(np.float32(0), (2**27, 3))
    with pytest.raises(
        ValueError, match=r"n_neighbors=16 makes 2,147,483,648 edges, and a cuDF frame holds 2,147,483,647"
    ):
        knn_graph(X, 16, device=device)


def host(root, available, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9000 kB\nMemAvailable: {available} kB\n")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return memory.free_on_host(root)


GROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8000 * 1024),
        ({"proc/self/cgroup": "0::/a/b\n", f"{GROUP}/a/b/memory.max": "max\n"}, 8000 * 1024),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                f"{GROUP}/a/memory.max": "5000\n",
                f"{GROUP}/a/memory.current": "3000\n",
                f"{GROUP}/a/memory.stat": "anon 1\ninactive_file 700\n",
            },
            2700,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/docker/x\n3:cpu:/\n",
                f"{GROUP}/memory/memory.limit_in_bytes": "6000",
                f"{GROUP}/memory/memory.usage_in_bytes": "7000",
                f"{GROUP}/memory/memory.stat": "inactive_file 9\ntotal_inactive_file 1500\n",
            },
            500,
        ),
    ],
    ids=["none", "no limit", "second version, above", "first version, in a container"],
)
def test_free_memory_heeds_control_groups(tmp_path, files, free):
    assert host(tmp_path, 8000, files) == free


def test_free_memory_may_be_unknown(tmp_path):
    assert memory.free_on_host(tmp_path) is None
    assert memory.free_on_host() is None or memory.free_on_host() > 0


def resource(name, upstream=None, **numbers):
    made = type(name, (), {})()
    for key, value in numbers.items():
        setattr(made, key, partial(int, value))
    if upstream is not None:
        made.upstream_mr = upstream
    return made


CUDA = resource("CudaMemoryResource")


@pytest.mark.parametrize(
    ("current", "free"),
    [
        (None, 105),
        (CUDA, 105),
        (resource("PoolMemoryResource", resource("LoggingResourceAdaptor", CUDA), pool_size=30), 135),
        (resource("LimitingResourceAdaptor", CUDA, get_allocation_limit=50, get_allocated_bytes=20), 30),
        (resource("ArenaMemoryResource", CUDA), 1000),
        (resource("CudaAsyncMemoryResource"), 1000),
        (resource("PoolMemoryResource", resource("ManagedMemoryResource"), pool_size=30), None),
        (resource("SystemMemoryResource"), None),
    ],
    ids=["no rmm", "plain", "pool", "limit", "arena", "async", "managed", "system"],
)
def test_free_memory_of_a_gpu(monkeypatch, current, free):
    """100 of 1000 bytes are free, and CuPy's own pool holds 5."""
    cuda = SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (100, 1000)))
    pool = SimpleNamespace(free_bytes=lambda: 5)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    rmm = SimpleNamespace(mr=SimpleNamespace(get_current_device_resource=lambda: current))
    monkeypatch.setitem(sys.modules, "rmm", rmm if current else None)
    assert memory.free_on_gpu(cuda) == free


# ---------------------------------------------------------------------------------------------- out of memory


class Failing:
    """An allocating function of NumPy that runs out of memory at its i-th call."""

    def __init__(self, function):
        self.function, self.calls, self.fails_at = function, 0, None
        self.lock = threading.Lock()

    def __call__(self, *args, **kwargs):
        with self.lock:
            self.calls += 1
            fails = self.calls == self.fails_at
        if fails:
            raise MemoryError("Unable to allocate 93.1 TiB")
        return self.function(*args, **kwargs)


def spread(calls, most=8):
    """Some of the calls: the first, the last, and those between at equal distances."""
    return sorted({1 + i * (calls - 1) // (most - 1) for i in range(most)})


@pytest.mark.parametrize("function", ["empty", "full", "matmul", "concatenate"])
@pytest.mark.parametrize("name", ["fit, tiles", "fit, a tree", "fit_graph", "minimum_spanning_tree", "linkage"])
def test_running_out_of_memory(monkeypatch, name, function):
    call = CALLS[name]
    expected, threads = bits(call(device="cpu")), threading.active_count()
    failing = Failing(getattr(np, function))
    monkeypatch.setattr(np, function, failing)
    call(device="cpu")
    for at in spread(failing.calls) if failing.calls else []:
        failing.calls, failing.fails_at = 0, at
        with pytest.raises(DeviceMemoryError, match=r"not enough memory: .* \(Unable to allocate 93.1 TiB\)$"):
            call(device="cpu")
        assert threading.active_count() == threads
        assert bits(call(device="cpu")) == expected


def test_running_out_of_memory_leaves_none_taken(monkeypatch):
    X = points(20000, 12)
    fit(X[:5000], 3, device="cpu")
    failing = Failing(np.full)
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


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("no"), ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, CPU.working():
            raise error
        assert raised.value is error


@pytest.mark.gpu
def test_a_gpus_pool_holds_to_the_limit(monkeypatch, device):
    """Whatever the estimate says: here there is none."""
    if device != "cuda":
        pytest.skip("needs a GPU")
    X = points(30000, 32)
    expected = bits(fit(X, 3, device=device))
    with monkeypatch.context() as patch:
        patch.setattr(Device, "admit", lambda *_, **__: None)
        for limit in ("2MiB", "6MiB", "12MiB"):
            with pytest.raises(DeviceMemoryError, match=f"not enough GPU memory: memory_limit='{limit}' was reached"):
                fit(X, 3, device=device, memory_limit=limit)
    assert bits(fit(X, 3, device=device)) == expected


# -------------------------------------------------------------------------------------- threads and interruptions


def run_at_once(work, count=2):
    """`work` of 0, 1, ... in a thread each, all begun together."""
    barrier = threading.Barrier(count)

    def begin(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


INPUTS = [points(3000, 12), points(4000, 3), points(2500, 40), np.repeat(points(500, 9), 5, axis=0)]


def test_fits_at_the_same_time_give_the_same_bits(device):
    expected = [bits(fit(X, 5, n_neighbors=2, device=device)) for X in INPUTS]
    for _ in range(3):
        found = run_at_once(lambda i: bits(fit(INPUTS[i], 5, n_neighbors=2, device=device)), len(INPUTS))
        assert found == expected


def test_limits_of_fits_at_the_same_time_are_their_own(device):
    def work(i):
        if i == 0:
            with pytest.raises(DeviceMemoryError, match="memory_limit=1000 is too small"):
                fit(INPUTS[0], 5, device=device, memory_limit=1000)
            return None
        return bits(fit(INPUTS[i], 5, device=device, memory_limit="4GiB"))

    for _ in range(3):
        assert run_at_once(work, 3)[1:] == [bits(fit(X, 5, device=device)) for X in INPUTS[1:3]]


def test_blas_gets_its_threads_back():
    def threads():
        return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    inside, release, during = threading.Event(), threading.Event(), []

    def slow(_):
        inside.set()
        release.wait(60)

    first = threading.Thread(target=each, args=(slow, [0]))
    first.start()
    assert inside.wait(60)
    each(lambda _: None, [0])  # comes later and leaves earlier
    release.set()
    first.join()
    assert threads() == before
    each(lambda _: during.append(threads()), [0])
    assert during == [[1] * len(before)]
    assert threads() == before


@pytest.mark.gpu
def test_streams_that_do_not_wait_for_others(device):
    """cuDF works on the default stream: a run must be in order with that and with the stream that it is called in."""
    if device != "cuda":
        pytest.skip("needs a GPU")
    import cupy

    expected = [bits(fit(X, 5, n_neighbors=2, device=device)) for X in INPUTS]

    def work(i):
        with cupy.cuda.Stream(non_blocking=True):
            late = cupy.zeros(INPUTS[i].shape, cupy.float32)
            busy = cupy.ones((3000, 3000), cupy.float32)
            for _ in range(20):
                busy = busy @ busy * cupy.float32(1e-4)
            late += cupy.asarray(INPUTS[i]) + busy[0, 0] * 0  # not there before the products are
            model = fit(late, 5, n_neighbors=2, device=device)
            return model, cut(model.linkage_, n_clusters=5)

    for _ in range(3):
        found = run_at_once(work, len(INPUTS))
        cupy.cuda.Device().synchronize()
        assert [bits(model) for model, _ in found] == expected
        assert [bits(again) for _, again in found] == [bits(model.labels_) for model, _ in found]


def watch(counted):
    """A function, which unlike an object becomes a method where it is put into a class."""
    return lambda *args, **kwargs: counted(*args, **kwargs)  # noqa: PLW0108


class Interrupting:
    """A function that is interrupted, as by Ctrl-C, when it is called for the i-th time, by whichever thread."""

    def __init__(self, function, at):
        self.function, self.at, self.calls, self.counting = function, at, 0, threading.Lock()

    def __call__(self, *args, **kwargs):
        with self.counting:
            self.calls += 1
            due = self.calls == self.at
        if due:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)


def fit_until_called(model, X, interrupting):
    """Fits again where the call that is due does not come: threads lower each other's bounds, and may save one."""
    while interrupting.calls < interrupting.at:
        interrupting.calls = 0
        model.fit(X)


@pytest.mark.parametrize(
    "place",
    [
        "rapids_slink.neighbors.tiles._chunks",
        "rapids_slink.neighbors.tiles._tiles",
        "rapids_slink.device.Device.frame",
        "rapids_slink.device.Device.trim",
        "rapids_slink.device.Device.synchronize",
        "rapids_slink.spanning_tree.connect.grow",
        "rapids_slink.spanning_tree.connect._search_bridges",
        "rapids_slink.ordering.sorting_rows",
        "rapids_slink.dendrogram.cutting._merge_first",
    ],
)
def test_interruptions(monkeypatch, place, device):
    X, threads = INPUTS[0], threading.active_count()
    model = SingleLinkage(5, n_neighbors=1, device=device).fit(X)
    expected = bits(model)
    owner, name = place.rsplit(".", 1)
    module, _, owner_name = owner.rpartition(".")
    owner = getattr(import_module(module), owner_name) if owner_name == "Device" else import_module(owner)
    function = getattr(owner, name)
    calls = Interrupting(function, None)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, watch(calls))
        fit(X, 5, n_neighbors=1, device=device)
    assert calls.calls
    for at in spread(calls.calls, 4):
        with monkeypatch.context() as patch:
            interrupting = Interrupting(function, at)
            patch.setattr(owner, name, watch(interrupting))
            with pytest.raises(KeyboardInterrupt):
                fit_until_called(model, X, interrupting)
        assert threading.active_count() == threads
        assert bits(model) == expected  # of the fit before
        assert bits(fit(X, 5, n_neighbors=1, device=device)) == expected


@pytest.fixture
def quiet_collector():
    """No callbacks of the garbage collector: Hypothesis has one, and Python drops an interruption that comes in it."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


def fit_until_interrupted(X, after, device):
    """Whether a signal after so many seconds ends the fits that go on, and where in the code it comes."""
    places = []

    def interrupt(_signal, frame):
        places.append("".join(traceback.format_stack(frame, 8)))
        raise KeyboardInterrupt

    timer, usual = threading.Timer(after, signal.raise_signal, [signal.SIGINT]), signal.signal(signal.SIGINT, interrupt)
    try:
        timer.start()
        while timer.is_alive():
            fit(X, 5, device=device)
        fit(X, 5, device=device)
    except KeyboardInterrupt:
        return True, places[0]
    finally:
        timer.join()
        signal.signal(signal.SIGINT, usual)
    return False, places[0]


@pytest.mark.usefixtures("quiet_collector")
def test_ctrl_c_stops_soon(device):
    """A signal, which comes whenever it does: parts of the work that wait are not begun, and the next fit is right."""
    X = points(20000, 48)
    expected = bits(fit(X, 5, device=device))
    for after in (0.01, 0.1, 0.3):
        stopped, place = fit_until_interrupted(X, after, device)
        assert stopped, f"the interruption was swallowed, which came in\n{place}"
        assert bits(fit(X, 5, device=device)) == expected


def test_parts_that_wait_are_not_begun_after_an_interruption():
    begun = []

    def work(i):
        begun.append(i)
        if i == 0:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        each(work, range(1000))
    assert len(begun) < 500


# ------------------------------------------------------------------------------------------------- neighbours in RAPIDS

FRAME = pd.DataFrame(INPUTS[0][:90], columns=list("abcdefghijkl"), index=pd.RangeIndex(5, 95))
KINDS = {"numpy": "ndarray", "cupy": "ndarray", "pandas": "Series", "cudf": "Series"}


def kinds_of_answers(X, device):
    """The package and the class of everything that is one value a row or a merge."""
    model = fit(X, 3, device=device)
    ones = [model.labels_, model.cut(4), model.distances_, SingleLinkage(3, device=device).fit_predict(X)]
    ones += [cut(model.linkage_, n_clusters=3)]
    many = [model.children_, model.cut([2, 3]), cut(model.linkage_, n_clusters=[2, 3])]
    assert [answer.ndim for answer in (*ones, *many)] == [1] * len(ones) + [2] * len(many)
    return [{(type(a).__module__.split(".")[0], type(a).__name__) for a in answers} for answers in (ones, many)]


def set_output_type(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "cuml", SimpleNamespace(global_settings=SimpleNamespace(output_type=name)))


@pytest.mark.parametrize("X", [FRAME, FRAME.to_numpy()], ids=["frame", "array"])
@pytest.mark.parametrize("name", ["numpy", "pandas"])
def test_cumls_output_type(monkeypatch, X, name, device):
    set_output_type(monkeypatch, name)
    one, many = kinds_of_answers(X, device)
    assert one == {(name, KINDS[name])}
    assert many == {(name, "ndarray" if name == "numpy" else "DataFrame")}
    model = fit(X, 3, device=device)
    assert isinstance(model.linkage_, pd.DataFrame)  # a frame whatever is asked
    if name == "pandas":
        index = FRAME.index if X is FRAME else pd.RangeIndex(90)
        pd.testing.assert_index_equal(model.labels_.index, index, exact=False)
        assert list(model.cut([2, 3]).columns) == [2, 3]
    edges = model.mst_.astype({"src": str, "dst": str})
    found = fit_graph(edges, 3, device=device)
    for answer in (found.labels_, found.component_, found.cut(2)):
        assert (type(answer).__module__.split(".")[0], type(answer).__name__) == (name, KINDS[name])


@pytest.mark.parametrize("name", [None, "input", "mirror", "array", "numba"])
def test_output_types_that_name_no_kind_mirror_the_input(monkeypatch, name, device):
    expected = [kinds_of_answers(X, device) for X in (FRAME, FRAME.to_numpy())]
    set_output_type(monkeypatch, name)
    assert [kinds_of_answers(X, device) for X in (FRAME, FRAME.to_numpy())] == expected
    assert expected[0][0] == {("pandas", "Series"), ("numpy", "ndarray")}


def test_a_cuml_without_settings_is_no_matter(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuml", SimpleNamespace())
    assert isinstance(fit(FRAME, 3, device="cpu").labels_, pd.Series)


def test_files_and_copies_under_an_output_type(monkeypatch, tmp_path, device):
    for X, name in ((FRAME, "numpy"), (FRAME.to_numpy(), "pandas")):
        set_output_type(monkeypatch, name)
        model = fit(X, 3, device=device)
        model.save(tmp_path / "model")
        for other in (rapids_slink.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.copy(model)):
            assert bits(other) == bits(model)
        assert "90 rows in 3 clusters" in model._repr_html_()


@pytest.mark.gpu
@pytest.mark.parametrize("name", KINDS)
def test_the_real_cumls_output_type(name, device):
    if device != "cuda":
        pytest.skip("needs a GPU")
    cuml, cudf, cupy = (pytest.importorskip(package) for package in ("cuml", "cudf", "cupy"))
    for X in (FRAME, FRAME.to_numpy(), cudf.from_pandas(FRAME), cupy.asarray(FRAME.to_numpy())):
        with cuml.using_output_type(name):
            one, many = kinds_of_answers(X, device)
            model = fit(X, 3, device=device)
            labels = model.labels_
        assert one == {(name, KINDS[name])}
        assert many == {(name, "ndarray" if KINDS[name] == "ndarray" else "DataFrame")}
        if KINDS[name] == "Series" and hasattr(X, "index"):
            assert to_host(labels.index.values).tolist() == FRAME.index.tolist()
        assert bits(labels) == bits(fit(X, 3, device=device).labels_)
        assert type(fit(X, 3, device=device).children_) is type(model.children_)  # asked for when it is read


@pytest.mark.gpu
def test_proxies_of_cudf_pandas_go_the_gpus_way(tmp_path, device):
    """What a user of ``python -m cudf.pandas`` sees: proxies in, proxies out, and the GPU unless it is refused."""
    if device != "cuda":
        pytest.skip("needs a GPU")
    script = tmp_path / "script.py"
    script.write_text(
        """
import cudf.pandas
import numpy as np
import pandas as pd
from rapids_slink import cut, fit, fit_graph, knn_graph, linkage, minimum_spanning_tree

is_proxy = cudf.pandas.is_proxy_object
X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
df = pd.DataFrame(X, columns=list("abc"), index=pd.RangeIndex(7, 307))
assert is_proxy(df)
found = {}
for device in ("auto", "cuda", "cpu"):
    model = fit(df, 4, device=device)
    assert model.report_["device"] == ("cpu" if device == "cpu" else "cuda"), device
    answers = [model.labels_, model.linkage_, model.mst_, model.cut(3), model.cut([2, 3])]
    answers += [knn_graph(df, 3, device=device), minimum_spanning_tree(model.mst_, device=device)]
    answers += [linkage(model.mst_, device=device), cut(model.linkage_, n_clusters=4)]
    answers += [fit_graph(model.mst_, 4, device=device).labels_]
    for i, answer in enumerate(answers):
        assert is_proxy(answer), (device, i, type(answer))
    assert list(model.labels_.index) == list(df.index)
    assert not is_proxy(fit(X, 4, device=device).labels_)  # an array is an array
    found[device] = [a.to_numpy().tobytes() for a in answers]
assert found["auto"] == found["cuda"] == found["cpu"]
mixed = df.assign(d="x")
try:
    fit(mixed, 4)
except TypeError as error:
    assert "column 'd'" in str(error), error
else:
    raise AssertionError("text was clustered")
print("fine")
"""
    )
    run = [sys.executable, "-W", "ignore", "-m", "cudf.pandas", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.stdout == "fine\n", done.stderr


@pytest.fixture
def watched_memory():
    """Statistics of all that is allocated through rmm in the test."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    rmm = pytest.importorskip("rmm")
    import cudf  # noqa: F401
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    before, allocator = rmm.mr.get_current_device_resource(), cupy.cuda.get_allocator()
    resource = rmm.mr.StatisticsResourceAdaptor(before)
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    yield lambda: resource.allocation_counts
    gc.collect()
    cupy.cuda.set_allocator(allocator)
    rmm.mr.set_current_device_resource(before)


@pytest.mark.gpu
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_all_of_a_gpus_memory_comes_from_rmm_and_goes_back(watched_memory, call):
    import cupy

    call(device="cuda")  # compiles
    gc.collect()
    before = watched_memory()
    free = cupy.get_default_memory_pool().total_bytes()
    found = call(device="cuda")
    during = watched_memory()
    assert during.total_count > before.total_count
    assert during.total_bytes - before.total_bytes > 10_000  # all the arrays were seen
    assert cupy.get_default_memory_pool().total_bytes() == free  # CuPy's own pool was passed by
    del found
    gc.collect()
    assert watched_memory().current_bytes <= before.current_bytes


@pytest.mark.gpu
@pytest.mark.usefixtures("watched_memory")
def test_a_run_that_takes_no_memory_gives_back_what_others_left():
    where, left = resolve("cuda"), []
    with where.working():
        left.append(where.xp.zeros(2**20))
    retired = len(device_module._retired)
    left.clear()
    with where.working():
        pass
    assert len(device_module._retired) < retired


@pytest.mark.gpu
def test_what_is_kept_outside_a_run(watched_memory):
    import cupy

    where = resolve("cuda")
    before = watched_memory().current_bytes
    kept = where.keep(cupy.arange(1000))
    assert (kept == cupy.arange(1000)).all()
    assert watched_memory().current_bytes >= before + 8000
    assert where.frame({}).shape == (0, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "d", "k"), [(200_000, 3, 8), (100_000, 32, 8), (100_000, 96, 16), (400_000, 2, 4)])
def test_estimates_on_the_gpu(watched_memory, n, d, k):
    """At the least limit the pool takes no more, and not much less."""
    X = points(n, d)
    limit, _ = least_limit(lambda **how: fit(X, 3, n_neighbors=k, **how), "cuda")
    counted = []
    pool = Device.trim
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Device, "trim", lambda self: counted.append(device_module._run().pool.total_bytes()) or pool(self)
        )
        fit(X, 3, n_neighbors=k, device="cuda", memory_limit=limit)
    size = memory.as_bytes(limit)
    assert size / 4 < max(counted) <= size
    assert watched_memory().peak_bytes < 2 * size  # frames of cuDF and the results included


@pytest.mark.gpu
def test_running_out_of_memory_leaves_the_gpu_as_it_was(watched_memory, monkeypatch):
    X = points(30000, 32)
    expected = bits(fit(X, 3, device="cuda"))
    gc.collect()
    before = watched_memory().current_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Device, "admit", lambda *_, **__: None)
        for limit in (2**21, 2**23, 3 * 2**22):
            with pytest.raises(DeviceMemoryError, match=f"memory_limit={limit} was reached"):
                fit(X, 3, device="cuda", memory_limit=limit)
            gc.collect()
            assert watched_memory().current_bytes <= before
    assert bits(fit(X, 3, device="cuda")) == expected


@pytest.mark.gpu
def test_interruptions_leave_the_gpu_as_it_was(watched_memory, monkeypatch):
    X = points(20000, 16)
    calls = Interrupting(Device.frame, None)
    with monkeypatch.context() as patch:
        patch.setattr(Device, "frame", watch(calls))
        expected = bits(fit(X, 3, n_neighbors=2, device="cuda"))
    gc.collect()
    before = watched_memory().current_bytes
    for at in spread(calls.calls, 4):
        with monkeypatch.context() as patch:
            patch.setattr(Device, "frame", watch(Interrupting(Device.frame, at)))
            with pytest.raises(KeyboardInterrupt):
                fit(X, 3, n_neighbors=2, device="cuda")
        gc.collect()
        assert watched_memory().current_bytes <= before
    assert bits(fit(X, 3, n_neighbors=2, device="cuda")) == expected


# -------------------------------------------------------------------------------------------------- bad input


def oddities(rng):
    """Arrays and other things that somebody may hand in, good and bad."""
    table = rng.normal(size=(6, 3))
    holed = table.copy()
    holed[2, 1] = np.nan
    endless = table.copy()
    endless[0, 0] = -np.inf
    objects = table.astype(object)
    mixed = objects.copy()
    mixed[1, 1] = "x"
    none = objects.copy()
    none[0, 2] = None
    frozen = table.copy()
    frozen.flags.writeable = False
    names = ["a", "b", "c"]
    frame = pd.DataFrame(table, columns=names)
    return {
        **{dtype: (table * 50).astype(dtype) for dtype in ("bool", "int8", "uint16", "int64", "float16", "float32")},
        **{dtype: table.astype(dtype) for dtype in ("longdouble", "complex64", ">f8", ">i4", "U5", "S5", "O")},
        "huge integers": np.array([[10**30, 1], [2, 3]]),
        "uint64": np.array([[2**64 - 1], [0], [5]], np.uint64),
        "overflow": np.array([[1e300], [-1e300]]),
        "NaN": holed,
        "infinity": endless,
        "text among objects": mixed,
        "None": none,
        "dates": np.arange(6).astype("M8[D]").reshape(6, 1),
        "spans of time": np.arange(6).astype("m8[s]").reshape(6, 1),
        "void": np.zeros((3, 2), "V4"),
        "structured": np.zeros(4, dtype=[("x", float), ("y", float)]),
        "Fortran": np.asfortranarray(table),
        "strided": rng.normal(size=(12, 6))[::2, ::-2],
        "broadcast": np.broadcast_to(table[0], (5, 3)),
        "read-only": frozen,
        "masked": np.ma.masked_array(table, table > 1),
        "masked, but nothing is": np.ma.masked_array(table),
        "matrix": np.asmatrix(table),
        **{f"{ndim}-d": np.zeros((2,) * ndim) for ndim in (0, 1, 3, 5)},
        **{f"empty {shape}": np.empty(shape) for shape in ((0, 3), (3, 0), (0, 0), (0,))},
        "one row": table[:1],
        "sparse": sparse.csr_array(table),
        "sparse, of rows": sparse.lil_matrix(table),
        "list": table.tolist(),
        "ragged": [[1, 2], [3]],
        "nested": [[[1], [2]], [[3], [4, 5]]],
        "empty list": [],
        "tuple": tuple(map(tuple, table)),
        "iterator": lambda: iter(table),  # as all functions here, called for a fresh one
        "generator": lambda: (row for row in table),
        "range": range(5),
        "set": {1.0, 2.0},
        "dict": {"a": [1, 2]},
        "text": "abc",
        "bytes": b"abc",
        "nothing": None,
        "a number": 3,
        "a class": np.ndarray,
        "a function": lambda: np.sum,
        "a module": np,
        "frame": frame,
        "series": frame["a"],
        "index": frame.index,
        "frame without columns": pd.DataFrame(index=range(4)),
        "frame without rows": frame[:0],
        "columns of one name": pd.DataFrame(table, columns=["a", "a", "b"]),
        "columns of levels": pd.DataFrame(table, columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])),
        "rows of levels": frame.set_index([["x"] * 6, list(range(6))]),
        "rows of one name": frame.set_axis([0] * 6),
        "nullable": frame.astype("Float64"),
        "nullable with a gap": frame.astype("Float64").mask(frame > 1),
        "nullable integers": pd.DataFrame({"a": pd.array([1, None, 3], "Int32")}),
        "categories": frame.assign(a=pd.Categorical(list("xyxyxy"))),
        "strings": frame.assign(b="1.5"),
        "dates in a frame": frame.assign(c=pd.date_range("2020-01-01", periods=6)),
        "zones": frame.assign(c=pd.date_range("2020-01-01", periods=6, tz="UTC")),
        "periods": frame.assign(c=pd.period_range("2020-01", periods=6, freq="M")),
        "lists in a frame": frame.assign(c=[[1], [2], [3], [4], [5], [6]]),
        "complex in a frame": frame.assign(c=1j),
        "sparse columns": pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 1.0])}),
        "sparse gaps": pd.DataFrame({"a": pd.arrays.SparseArray([np.nan, 0.0, 1.0])}),
        "decimals": pd.DataFrame({"a": [Decimal("1.5"), Decimal("2"), Decimal("-3")]}),
        "intervals": pd.DataFrame({"a": pd.interval_range(0, 3)}),
    }


ODDITIES = oddities(np.random.default_rng(0))
#: Words of which an error about an input has one: the column or the parameter, or scikit-learn's own words for a shape.
NAMES_X = r"\bX\b|\bcolumn\b|Expected 2D array|Found array with|n_clusters|n_neighbors"
NAMES_Y = r"\bY\b|Expected 2D array|Found array with"
PARAMETERS = {
    "n_clusters": [
        1,
        2,
        3,
        7,
        0,
        -1,
        2.0,
        "2",
        None,
        True,
        np.int8(2),
        10**30,
        np.nan,
        [2],
        np.array(2),
        np.array([2]),
    ],
    "distance_threshold": [
        None,
        0,
        0.5,
        -1.0,
        np.nan,
        np.inf,
        "1",
        True,
        10**400,
        1j,
        [0.5],
        np.float32(1),
        Decimal(1),
    ],
    "metric": ["euclidean", "sqeuclidean", "Euclidean", "", None, 3, np.sum, ["euclidean"], b"euclidean"],
    "n_neighbors": [None, 1, 2, 100, 10**30, 0, -3, 1.5, "3", True, np.int64(2), np.nan],
    "min_samples": [None, 1, 3, 8, 9, 10**30, 0, 1.5, "3", True, np.int8(2)],
    "memory_limit": [None, "1GiB", 10**30, "none", -1, 0.5, [], b"1GiB"],
    "progress": [False],
}


def fingerprint(X):
    """All that must not change of an input that a caller has kept."""
    if isinstance(X, np.ndarray):
        values = repr(X.tolist()) if X.dtype == object else X.tobytes()
        return X.dtype, X.shape, X.strides, X.flags.writeable, values
    if isinstance(X, pd.DataFrame | pd.Series):
        frame = pd.DataFrame(X)
        values = [frame.iloc[:, i].tolist() for i in range(frame.shape[1])]
        return repr((frame.dtypes.tolist(), frame.index, frame.columns, values))
    return repr(X) if isinstance(X, list | tuple | dict | set) else None


GOOD = points(9, 3)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64])
def test_small_types_of_parameters_do_not_overflow(kind, device):
    X = points(500, 9)
    assert bits(fit(X, kind(100), n_neighbors=kind(100), device=device)) == bits(fit(X, 100, device=device))
    assert bits(knn_graph(X, kind(100), device=device)) == bits(knn_graph(X, 100, device=device))
    assert bits(fit(X, 2, device=device).cut(kind(100))) == bits(fit(X, 100, device=device).labels_)


@settings(max_examples=200)
@given(data=st.data())
def test_bad_input_is_an_error_that_names_it(device, data):
    """Either it works, or there is a ValueError or a TypeError that says what it was; and the input is as it was."""
    name = data.draw(st.sampled_from(list(ODDITIES)))
    X = ODDITIES[name]() if isinstance(ODDITIES[name], FunctionType) else ODDITIES[name]
    call = data.draw(st.sampled_from(["fit", "knn_graph", "nearest_neighbors", "nearest_neighbors of Y"]))
    before = fingerprint(X)
    try:
        if call == "fit":
            found = fit(X, 1, device=device).labels_
        elif call == "knn_graph":
            found = knn_graph(X, 1, device=device)
        elif call == "nearest_neighbors":
            found = nearest_neighbors(X, X, device=device)
        else:
            found = nearest_neighbors(GOOD, X, device=device)
    except (ValueError, TypeError) as error:
        assert re.search(NAMES_Y if call == "nearest_neighbors of Y" else NAMES_X, str(error)), (name, error)  # noqa: PT017
        assert type(error).__module__ in ("builtins", "rapids_slink.points")  # noqa: PT017
    else:
        assert np.isfinite(to_host(found["weight"].values if hasattr(found, "columns") else found)).all()
    assert fingerprint(X) == before
    assert fit(GOOD, 2, device=device).n_clusters_ == 2


@settings(max_examples=200)
@given(data=st.data())
def test_bad_parameters_are_errors_that_name_them(device, data):
    given_ = {name: data.draw(st.sampled_from(values), label=name) for name, values in PARAMETERS.items()}
    chosen = data.draw(st.sets(st.sampled_from(list(PARAMETERS)), min_size=1, max_size=3))
    parameters = {name: value for name, value in given_.items() if name in chosen}
    try:
        model = SingleLinkage(**parameters, device=device).fit(GOOD)
    except (ValueError, TypeError) as error:
        assert any(name in str(error) for name in ("n_clusters", *chosen)), error  # noqa: PT017
    else:
        labels = to_host(model.labels_)
        assert sorted(set(labels.tolist())) == list(range(model.n_clusters_))


COLUMN_VALUES = {
    "ids": [0, 1, 2, 3],
    "names": list("abca"),
    "negative": [-1, 5, 2, 2],
    "huge": [2**63, 1, 2, 3],
    "beyond": [10**30, 1, 2, 3],
    "float": [0.5, 1.0, 2.0, 2.0],
    "NaN": [np.nan, 1.0, 2.0, 3.0],
    "infinite": [np.inf, 1.0, -np.inf, 3.0],
    "None": [None, 1, 2, 3],
    "bool": [True, False, True, True],
    "complex": [1j, 2, 3, 4],
    "dates": pd.date_range("2020-01-01", periods=4),
    "categories": pd.Categorical(list("xyxy")),
    "lists": [[1], [2], [3], [4]],
    "mixed": [1, "a", 2.5, None],
    "nullable": pd.array([1, None, 3, 4], "Int64"),
    "int8": np.arange(4, dtype=np.int8),
    "float16": np.arange(4, dtype=np.float16),
    "longdouble": np.arange(4, dtype=np.longdouble),
    "swapped": np.arange(4, dtype=">i4"),
    "decimals": [Decimal(1), Decimal(2), Decimal(3), Decimal(4)],
    "uint64": np.array([2**64 - 1, 1, 2, 3], np.uint64),
}
NAMES_EDGES = re.compile(r"src|dst|weight|edge|edges|tree|node|left|right|height|linkage|n_clusters|column")


@settings(max_examples=200)
@given(data=st.data())
def test_bad_edges_are_errors_that_name_them(device, data):
    names = data.draw(st.sampled_from([["src", "dst", "weight"]] * 6 + [["src", "dst"], ["src", "src", "weight"], []]))
    values = [data.draw(st.sampled_from(list(COLUMN_VALUES)), label=name) for name in names]
    edges = pd.concat([pd.Series(COLUMN_VALUES[value]) for value in values], axis=1) if names else pd.DataFrame()
    edges.columns = names
    edges = edges[: data.draw(st.integers(0, 4))]
    if data.draw(st.booleans()):
        edges.index = [5] * len(edges)
    call = data.draw(st.sampled_from([minimum_spanning_tree, fit_graph, linkage]))
    before = fingerprint(edges)
    try:
        call(edges, device=device)
    except (ValueError, TypeError) as error:
        assert NAMES_EDGES.search(str(error)), (values, error)  # noqa: PT017
    assert fingerprint(edges) == before


@settings(max_examples=100)
@given(data=st.data())
def test_bad_linkages_are_errors_that_name_them(data):
    values = [data.draw(st.sampled_from(list(COLUMN_VALUES)), label=name) for name in ("left", "right", "height")]
    frame = pd.DataFrame({name: COLUMN_VALUES[v] for name, v in zip(("left", "right", "height"), values, strict=True)})
    frame = frame.assign(size=2)[: data.draw(st.integers(0, 4))]
    try:
        cut(frame, n_clusters=data.draw(st.sampled_from([1, 2, 5, "2", [1, 2], None, -1])))
    except (ValueError, TypeError) as error:
        assert NAMES_EDGES.search(str(error)), (values, error)  # noqa: PT017


@pytest.mark.parametrize("edges", [None, 3, "edges", [[0, 1, 2.0]], {"src": [0]}, np.zeros((3, 3)), pd.Series([1])])
def test_what_is_no_frame_of_edges_is_refused(edges, device):
    for call, name in ((minimum_spanning_tree, "edges"), (fit_graph, "edges"), (linkage, "tree")):
        with pytest.raises(TypeError, match=f"{name} must be a DataFrame with columns src, dst, weight"):
            call(edges, device=device)

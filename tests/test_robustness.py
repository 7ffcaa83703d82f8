"""Memory, bad input, threads and interruptions: what goes wrong is said clearly, and leaves nothing behind."""

import gc
import re
import signal
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import threadpoolctl

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
from rapids_slink.device import CPU, Device, to_host
from rapids_slink.neighbors import tiles
from rapids_slink.neighbors.cpu import each


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
    first, second, third = memory.Need(10, kept=4, chunk=1), memory.Need(3, kept=3, chunk=5), memory.Need(8)
    whole = memory.in_turn(first, second, third)
    assert whole == memory.Need(15, kept=7, chunk=5)
    assert whole.least == 20


EDGES = graph(3000, 9000)
FOREST = minimum_spanning_tree(EDGES, device="cpu")
TREE = linkage(minimum_spanning_tree(pd.DataFrame({"src": 0, "dst": range(1, 5000), "weight": 1}), device="cpu"))
SOME = points(3000, 12)
PLANE = points(5000, 2).astype(np.float64)
CALLS = {
    "fit, tiles": lambda **how: fit(SOME, 3, **how),
    "fit, many neighbours": lambda **how: fit(points(2000, 12), 3, n_neighbors=90, **how),
    "fit, a tree": lambda **how: fit(PLANE, 3, **how),
    "fit, a frame": lambda **how: fit(pd.DataFrame(points(3000, 9)).astype({0: np.float64}), 3, **how),
    "knn_graph": lambda **how: knn_graph(points(3000, 20), 30, **how),
    "knn_graph, a tree": lambda **how: knn_graph(points(3000, 3), 5, **how),
    "nearest_neighbors": lambda **how: nearest_neighbors(points(4000, 12), points(3000, 12, 1), **how),
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
        with pytest.raises(DeviceMemoryError, match=r"memory_limit=.* is too small: .* needs at least") as refusal:
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
    """Where the pairs that one pass over all would keep do not fit, rounds of searches find the same tree."""
    X = np.concatenate([points(6000, 9, seed) + 40 * seed for seed in range(3)])
    expected = fit(X, 3, n_neighbors=2, device="cpu")
    assert "table_passes" in expected.report_["connect"]
    monkeypatch.setattr(Device, "spare", 2**20)
    found = fit(X, 3, n_neighbors=2, device="cpu")
    assert "table_passes" not in found.report_["connect"]
    assert bits(found) == bits(expected)


def free_is(monkeypatch, size):
    monkeypatch.setattr("rapids_slink.device.free_on_host", lambda: size)
    monkeypatch.setattr("rapids_slink.device.free_on_gpu", lambda cuda: size)


def test_what_does_not_fit_is_refused_at_the_start(monkeypatch, device):
    free_is(monkeypatch, 3 * 2**30)
    X = np.broadcast_to(np.float32(0), (2**29, 100))  # of one value: 200 GiB if anything copied it
    start = r"not enough (GPU )?memory: 536,870,912 rows of 100 features needs about [\d.]+ GiB, 3\.0 GiB are free$"
    for call in (lambda: fit(X, 3, device=device), lambda: knn_graph(X, 4, device=device)):
        with pytest.raises(DeviceMemoryError, match=start):
            call()
    X = np.zeros((2_000_000, 4), np.float32)
    with pytest.raises(DeviceMemoryError, match=r"2,000,000 rows of 4 features needs about [\d.]+ GiB, 3\.0 GiB"):
        fit(X, 3, n_neighbors=300, device=device)


def test_graphs_that_do_not_fit_are_refused_at_the_start(monkeypatch, device):
    free_is(monkeypatch, 2**20)
    edges = pd.DataFrame({"src": np.zeros(3_000_000, np.int32), "dst": np.int32(1), "weight": np.float32(1)})
    for call in (minimum_spanning_tree, fit_graph):
        with pytest.raises(DeviceMemoryError, match=r"3,000,000 edges needs about [\d.]+ MiB, 1\.0 MiB are free"):
            call(edges, device=device)
    chain = pd.DataFrame({"src": np.arange(999_999), "dst": np.arange(1, 1_000_000), "weight": 1.0})
    with pytest.raises(DeviceMemoryError, match=r"a tree of 999,999 edges needs about [\d.]+ MiB, 1\.0 MiB are free"):
        linkage(chain, device=device)


def test_cuts_that_do_not_fit_are_refused_at_the_start(monkeypatch):
    free_is(monkeypatch, 2**20)
    with pytest.raises(
        DeviceMemoryError, match=r"4,000 cuts of 4,999 merges needs about [\d.]+ MiB, 1\.0 MiB are free"
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
    for call in (lambda: fit(X, 2, device=device), lambda: nearest_neighbors(np.eye(1), X, device=device)):
        with pytest.raises(ValueError, match=f"X has {rows} rows; SingleLinkage takes up to {2**30}"):
            call()


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
            again = cut(model.linkage_, n_clusters=5)
            assert bits(again) == bits(model.labels_)
            return bits(model)

    for _ in range(3):
        assert run_at_once(work, len(INPUTS)) == expected


def watch(counted):
    """A function, which unlike an object becomes a method where it is put into a class."""
    return lambda *args, **kwargs: counted(*args, **kwargs)  # noqa: PLW0108


class Interrupting:
    """A function that is interrupted, as by Ctrl-C, when it is called for the i-th time."""

    def __init__(self, function, at):
        self.function, self.at, self.calls = function, at, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)


@pytest.mark.parametrize(
    "place",
    [
        "rapids_slink.neighbors.tiles.reach",
        "rapids_slink.neighbors.tiles._tiles",
        "rapids_slink.device.Device.frame",
        "rapids_slink.device.Device.trim",
        "rapids_slink.device.Device.synchronize",
        "rapids_slink.spanning_tree.connect.grow",
        "rapids_slink.spanning_tree.connect._unsure_rows",
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
            patch.setattr(owner, name, watch(Interrupting(function, at)))
            with pytest.raises(KeyboardInterrupt):
                model.fit(X)
        assert threading.active_count() == threads
        assert bits(model) == expected  # of the fit before
        assert bits(fit(X, 5, n_neighbors=1, device=device)) == expected


def test_ctrl_c_stops_soon(device):
    """A signal, which comes whenever it does: parts of the work that wait are not begun, and the next fit is right."""
    X = points(20000, 48)
    expected = bits(fit(X, 5, device=device))
    for after in (0.01, 0.1, 0.3):
        timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
        timer.start()
        try:
            for _ in range(1000):
                fit(X, 5, device=device)
        except KeyboardInterrupt:
            timer.join()
        else:
            raise AssertionError("the interruption was swallowed")
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

"""Memory: limits as they are given, estimates that hold, and what does not fit refused at the start."""

import os
import sys
import tracemalloc
from functools import partial
from math import inf
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from calls import CALLS, least_limit, points
from hard_cases import full
from scipy import sparse
from spanning_trees import bits

import rapids_slink
from rapids_slink import HDBSCAN, DeviceMemoryError, fit, knn_graph, pairs
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.filter import MIN_ROWS
from rapids_slink.runtime import memory
from rapids_slink.runtime.memory import MemoryEstimate, as_bytes, free_on_host, size_text


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
    assert as_bytes(given) == size


@pytest.mark.parametrize("given", ["", "much", "8 gigs", "-1GiB", "iB", "1e9", 0, -5, "0GB", "0.1B"])
def test_limits_that_are_no_sizes(given, device):
    with pytest.raises(ValueError, match=f"memory_limit must be .*got {given!r}"):
        fit(np.eye(3), 2, device=device, memory_limit=given)
    for other in (1.5, True, [1], b"1GiB"):
        with pytest.raises(
            TypeError, match=r"memory_limit must be a number of bytes or text such as '8GiB' or '500MB'"
        ):
            knn_graph(np.eye(3), 1, device=device, memory_limit=other)


@pytest.mark.parametrize(
    ("size", "text"), [(1, "0.1 MiB"), (2**20, "1.0 MiB"), (2**20 + 1, "1.1 MiB"), (33500000000, "31.2 GiB")]
)
def test_sizes_as_text(size, text):
    assert size_text(size) == text
    assert as_bytes(text) >= size


def test_estimates_add_up():
    whole = MemoryEstimate(10, min_chunk=1, preferred_chunk=2) + MemoryEstimate(3, min_chunk=5, preferred_chunk=3)
    assert whole == MemoryEstimate(13, min_chunk=5, preferred_chunk=3)
    assert (whole.least, whole.preferred) == (18, 18)
    assert MemoryEstimate(3, min_chunk=1, preferred_chunk=4).preferred == 7


@pytest.mark.parametrize("name", [full(name) if i % 2 else name for i, name in enumerate(CALLS)])
def test_the_least_limit_gives_the_same_bits(name, device):
    call = CALLS[name]
    limit, found = least_limit(call, device)
    assert bits(found) == bits(call(device=device))
    assert as_bytes(limit) < 2**30


@pytest.mark.parametrize("falls", [full(False), True])
def test_rows_of_many_features_take_what_is_estimated(falls, set_costs):
    """Whose covariance would take ten times as much; axes are looked for though the rows are few."""
    set_costs(forest=0)
    X = points(400, 6000)
    if falls:
        X = ((X[:, :100] * np.arange(1, 101) ** -1.0) @ points(100, 6000, 1)).astype(np.float32)

    def call(**how):
        return fit(X, 3, n_neighbors=3, **how)

    limit, found = least_limit(call, "cpu")
    assert ("coordinates" in found.report_["neighbors"]["filter"]) is falls
    assert peak_of(lambda: call(device="cpu", memory_limit=limit)) <= as_bytes(limit) + 2**20


def appended(**how):
    return rapids_slink.SingleLinkage(prediction_data=True, **how).fit(points(4000, 12)).append(points(1500, 12, 1))


RNG = np.random.default_rng(0)
WORDS = ["".join(RNG.choice(list("acgt"), size)) for size in RNG.integers(5, 20, 3000)]
ROWS = sparse.csr_matrix(np.maximum(RNG.random((2000, 5000)) - 0.99, 0))
OF_OTHER_ROWS = {
    "text": lambda **how: fit(WORDS, metric="levenshtein", **how),
    "sets": lambda **how: fit(ROWS != 0, metric="jaccard", **how),
    "sparse rows": lambda **how: fit(ROWS, metric="cosine", **how),
    "groups": lambda **how: fit(points(5000, 12), groups=np.arange(5000) % 7, **how),
    "appended": appended,
}
CODED = RNG.integers(0, 4, (6000, 20)).astype(float)
DISTANCES = np.abs(CODED[:1000, :1] - CODED[:1000, 0])
MEASURED = {
    **CALLS,
    **OF_OTHER_ROWS,
    "groups, core distances": lambda **how: fit(points(9000, 3), groups=np.arange(9000) % 700, min_samples=4, **how),
    "one feature": lambda **how: fit(points(9000, 1), 3, **how),
    "repeated rows": lambda **how: fit(np.repeat(points(3000, 12), 3, axis=0), 3, **how),
    "friends": lambda **how: fit(points(20_000, 3), max_distance=0.1, **how),
    "cityblock": lambda **how: fit(points(4000, 20), 3, metric="cityblock", **how),
    "unit rows": lambda **how: fit(points(5000, 20), 3, metric="cosine", n_neighbors=8, **how),
    "codes": lambda **how: fit(CODED, 3, metric="hamming", n_neighbors=8, **how),
    "bits": lambda **how: fit(CODED > 1, 3, metric="jaccard", n_neighbors=8, **how),
    "places on a sphere": lambda **how: fit(points(9000, 2).clip(-1, 1), 3, metric="haversine", **how),
    "HDBSCAN": lambda **how: HDBSCAN(10, 5, prediction_data=True, **how).fit(points(5000, 12)),
    "HDBSCAN, few rows": lambda **how: HDBSCAN(10, 20, prediction_data=True, **how).fit(points(900, 300)),
    "DBSCAN": lambda **how: rapids_slink.DBSCAN(0.3, 5, **how).fit(points(9000, 3)),
    "DBSCAN, pairs": lambda **how: rapids_slink.DBSCAN(2.0, 5, **how).fit(points(4000, 12)),
    "pairs": lambda **how: pairs(points(5000, 12), max_distance=1.0, **how),
    "pairs of two tables": lambda **how: pairs(points(5000, 12), points(3000, 12, 1), max_distance=1.0, **how),
    "a tree to draw": lambda **how: HDBSCAN(gen_min_span_tree=True, **how).fit(points(5000, 64)),
    "predictions": lambda **how: fit(points(9000, 5), 3, prediction_data=True, **how),
    "distances": lambda **how: fit(DISTANCES, 3, metric="precomputed", **how),
}


#: A search of each kind.
QUICK = ("fit, all pairs", "fit, a tree", "nearest_neighbors", "text", "groups", "friends", "codes", "HDBSCAN")


@pytest.mark.parametrize("name", [name if name in QUICK else full(name) for name in MEASURED])
def test_what_is_needed_on_the_cpu(name):
    """It is from once to twice what is taken at the peak, as Python's and NumPy's allocators see it."""
    limit, _ = least_limit(MEASURED[name], "cpu")  # which compiles what there is to compile
    taken = peak_of(lambda: MEASURED[name](device="cpu", memory_limit=limit))
    slack = 2**20  # the call's own input, and what Python's objects take
    assert taken <= as_bytes(limit) + slack
    assert as_bytes(limit) <= 2 * (taken + slack)


@pytest.mark.parametrize("limit", ["16MiB", full("64MiB")])
@pytest.mark.parametrize("name", [full(name) if name in ("sets", "sparse rows") else name for name in OF_OTHER_ROWS])
def test_a_limit_holds_for_other_rows(name, limit):
    """Also for pairs that wait until they are a part of the forest."""
    OF_OTHER_ROWS[name](device="cpu", memory_limit=limit)  # which compiles what there is to compile
    assert peak_of(lambda: OF_OTHER_ROWS[name](device="cpu", memory_limit=limit)) <= as_bytes(limit) + 2**20


def peak_of(call):
    """The bytes that a call takes at its peak, as Python's and NumPy's allocators see it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_limit_makes_smaller_chunks(watch, device):
    rows = watch(BruteForceSearch, "_rows_at_once", lambda result, *_: result)
    knn_graph(points(3000, 12), 5, device=device)
    most = max(rows)
    least_limit(lambda **how: rows.clear() or knn_graph(points(3000, 12), 5, **how), device)
    assert MIN_ROWS <= max(rows) < most


def test_a_chunk_that_does_not_fit_is_refused(prescribe):
    """It is the first one of a search: the estimate of all rows comes before."""
    prescribe(chunk_bytes=2**16)
    text = r"not enough memory for a chunk of 64 rows: needs [\d.]+ MiB, 0\.1 MiB are free$"
    with pytest.raises(DeviceMemoryError, match=text):
        knn_graph(points(3000, 12), 5, device="cpu")


def test_pairs_of_components_fit(prescribe):
    """Where what it takes to connect the last components at once does not fit, searches find the same tree."""
    X = np.concatenate([points(3000, 30, seed) + 6 * seed for seed in range(3)])
    expected = fit(X, 3, n_neighbors=3, device="cpu")
    assert "joined_at_once" in expected.report_["connect"]
    prescribe(chunk_bytes=2**21)
    found = fit(X, 3, n_neighbors=3, device="cpu")
    assert "joined_at_once" not in found.report_["connect"]
    assert bits(found) == bits(expected)


def test_points_that_do_not_fit(prescribe, device):
    X = np.broadcast_to(np.float32(0), (2**29, 100))  # of one value: 200 GiB if anything copied it
    start = r"not enough (GPU )?memory for 536,870,912 rows of 100 features: needs about [\d.]+ GiB, 3\.0 GiB are free$"
    for call in (fit, knn_graph):
        prescribe(free_bytes=3 * 2**30)
        with pytest.raises(DeviceMemoryError, match=start):
            call(X, 3, device=device)
    X = np.zeros((2_000_000, 9), np.float32)
    with pytest.raises(DeviceMemoryError, match=r"2,000,000 rows of 9 features: needs about [\d.]+ GiB, 3\.0 GiB"):
        fit(X, 3, n_neighbors=300, device=device)


def test_graphs_that_do_not_fit(prescribe, device):
    edges = pd.DataFrame({"src": np.zeros(3_000_000, np.int32), "dst": np.int32(1), "weight": np.float32(1)})
    for call in (rapids_slink.minimum_spanning_tree, rapids_slink.fit_graph):
        prescribe(free_bytes=2**20)
        with pytest.raises(DeviceMemoryError, match=r"3,000,000 edges: needs about [\d.]+ MiB, 1\.0 MiB are free"):
            call(edges, device=device)
    chain = pd.DataFrame({"src": np.arange(999_999), "dst": np.arange(1, 1_000_000), "weight": 1.0})
    text = r"a tree of 999,999 edges: needs about [\d.]+ MiB, [\d.]+ MiB are free"
    with pytest.raises(DeviceMemoryError, match=text):
        rapids_slink.linkage(chain, device=device)


def test_cuts_that_do_not_fit(prescribe, device):
    """Of a frame and of a model alike."""
    star = pd.DataFrame({"src": 0, "dst": range(1, 5000), "weight": 1})
    model = rapids_slink.fit_graph(star, device=device)
    merges = rapids_slink.linkage(star, device=device)
    prescribe(free_bytes=2**20)
    for call in (model.cut, partial(rapids_slink.cut, merges)):
        text = r"4,000 cuts of 4,999 merges: needs about [\d.]+ MiB, 1\.0 MiB are free"
        with pytest.raises(DeviceMemoryError, match=text):
            call(n_clusters=range(1, 4001))


def test_what_fits_is_not_refused(prescribe, device):
    prescribe(free_bytes=inf)
    expected = fit(points(500, 3), 3, device=device)
    prescribe(free_bytes=0)  # small work does not ask
    assert bits(fit(points(500, 3), 3, device=device)) == bits(expected)


@pytest.mark.parametrize("rows", [2**30 + 1, 2**31, 2**32])
def test_more_rows_than_ids_is_refused(rows, device):
    X = np.broadcast_to(np.float32(0), (rows, 1))
    with pytest.raises(ValueError, match=f"X has {rows} rows; up to {2**30} are possible"):
        fit(X, 2, device=device)
    with pytest.raises(ValueError, match=f"Y has {rows} rows; up to {2**30} are possible"):
        rapids_slink.nearest_neighbors(np.eye(1), X, device=device)


@pytest.mark.gpu
def test_more_edges_than_a_frame_of_cudf_holds_are_refused():
    X = np.broadcast_to(np.float32(0), (2**27, 3))
    text = r"n_neighbors=16 makes 2,147,483,648 edges, and a cuDF frame holds 2,147,483,647"
    with pytest.raises(ValueError, match=text):
        knn_graph(X, 16, device="cuda")


def host(root, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


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
    assert free_on_host(host(tmp_path, files)) == free


def test_free_memory_may_be_unknown(tmp_path):
    assert free_on_host(tmp_path) is None
    assert (free_on_host() is None) == (not sys.platform.startswith("linux"))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 16),
        ({"proc/self/cgroup": "0::/a/b\n", f"{GROUP}/a/b/cpu.max": "max 100000\n"}, 16),
        ({"proc/self/cgroup": "0::/a/b\n", f"{GROUP}/a/cpu.max": "250000 100000\n"}, 3),
        (
            {
                "proc/self/cgroup": "4:cpuacct,cpu:/docker/x\n",
                f"{GROUP}/cpu/cpu.cfs_quota_us": "200000\n",
                f"{GROUP}/cpu/cpu.cfs_period_us": "100000\n",
                f"{GROUP}/cpu/docker/x/cpu.cfs_quota_us": "-1\n",
                f"{GROUP}/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
    ],
    ids=["none", "no quota", "second version, above", "first version, in a container"],
)
def test_cores_heed_control_groups(tmp_path, files, cores):
    assert min([16, *memory._cores_in_groups(host(tmp_path, files))]) == cores
    assert 1 <= memory.usable_cores(tmp_path) <= min(cores, os.cpu_count())


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

"""``python -m bench.sanitize``: every CUDA kernel on small inputs, for ``compute-sanitizer`` to watch.

Each step is run on both devices, and what they return must be the same to the last bit. A kernel of the package that no
step has launched is an error. Only CuPy is needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

import rapids_slink
from bench.trees import Tree, balanced, chain, random, star
from rapids_slink import device as devices
from rapids_slink.device import CPU, Device, to_host
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import neighbor_lists, prepare
from rapids_slink.neighbors.contract import Task
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.ordering import sort_edges
from rapids_slink.report import Report
from rapids_slink.spanning_tree import couples, spanning_tree
from rapids_slink.spanning_tree import edges as graphs

PACKAGE = Path(rapids_slink.__file__).parent
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
#: Sources and kernels for the fused filter alone, which only Hopper GPUs have.
HOPPERS = {"neighbors/hopper.cu", "neighbors/reach.cu", "pack_bytes", "pack_byte_tails", "scatter_tiles"}
Step = Callable[[Device], tuple[Any, ...]]


def search(kind: str, values: Any, device: Device, queries: Any = None) -> Any:
    """One of the searches; the CPU has but one kind of tiles, and a tree for boxes."""
    if kind != "boxes":
        return TileSearch(values, device, Report(), queries, fused=kind == "fused")
    if device.name == "cuda":
        from rapids_slink.neighbors.bvh import BoxSearch

        return BoxSearch(values, device, Report(), queries)
    from rapids_slink.neighbors.kdtree import TreeSearch

    return TreeSearch(values, device, Report(), queries)


def cluster(device: Device, kind: str, points: np.ndarray, k: int, min_samples: int = 1) -> tuple[Any, ...]:
    """Lists, spanning tree and dendrogram of points."""
    return _cluster(search(kind, device.asarray(points), device), len(points), device, k, min_samples)


def cluster_by_metric(device: Device, metric: str, points: np.ndarray, k: int) -> tuple[Any, ...]:
    """The same by another metric's search."""
    chosen = get_metric(metric)
    rows = metric_rows(chosen, device.asarray(points), device)
    return _cluster(prepare(rows, device, Report(), metric=chosen), len(points), device, k)


def _cluster(among: Any, n: int, device: Device, k: int, min_samples: int = 1) -> tuple[Any, ...]:
    lists = neighbor_lists(among, n, k, device, min_samples)
    src, dst, weight = spanning_tree(lists, among, device, Report())
    merges = device.kernels("dendrogram").merge_in_order(src, dst, n)
    components = device.kernels("spanning_tree").connected_components(lists.ids)
    return lists.ids, lists.weights, src, dst, weight, *merges, components


def lay_out(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """A frame's columns as rows, and whether they are finite."""
    columns = [device.asarray(np.ascontiguousarray(column)) for column in points.T]
    kernels = device.kernels("points")
    if device.name == "cpu":
        rows = np.column_stack(columns).astype(np.float32)
    else:  # a frame as far as the kernel's launcher looks into one
        stood_in = [
            SimpleNamespace(null_count=lambda: 0, offset=lambda: 0, data=lambda at=at: SimpleNamespace(ptr=at.data.ptr))
            for at in columns
        ]
        table = SimpleNamespace(columns=lambda: stood_in)
        frame = SimpleNamespace(shape=points.shape, to_pylibcudf=lambda: (table, None))
        rows = kernels.interleave(frame, points.dtype, np.dtype(np.float32))
    return rows, np.array(kernels.squares_are_finite(rows))


def find_nearest(device: Device, kind: str, queries: np.ndarray, points: np.ndarray) -> tuple[Any, ...]:
    """The nearest of other points."""
    xp = device.xp
    rows = xp.arange(len(queries), dtype="int32")
    among = search(kind, device.asarray(points), device, device.asarray(queries))
    groups = xp.zeros(len(queries), "int32"), xp.ones(len(points), "int32")
    found = among.find(Task(rows, 1, *groups))
    return found.ids, found.weights


def find_for_few(device: Device, queries: np.ndarray, points: np.ndarray) -> tuple[Any, ...]:
    """The nearest of other points, by the search for few queries where the device has one, all of them proven."""
    few = device.kernels("neighbors").few_queries(len(queries), *points.shape, EUCLIDEAN, points.dtype.name)
    if few is None:
        ids, weights = find_nearest(device, "portable", queries, points)
        return ids[:, 0], device.xp.sqrt(weights[:, 0])
    xp, m = device.xp, len(queries)
    src, dst, distance = xp.empty(m, "int32"), xp.empty(m, "int32"), xp.empty(m)
    from rapids_slink.neighbors import nearest

    given = device.asarray(queries), device.asarray(points)
    with patch.object(nearest, "ROOM", 0):  # an allocation, out of whose bounds something may be
        proven, _ = few.write(*given, *(part.data.ptr for part in (src, dst, distance)))
    return dst if proven() else xp.full(m, -1, "int32"), distance


def find_pairs(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Pairs of different components below a bound."""
    xp, n = device.xp, len(points)
    among = search("portable", device.asarray(points), device)
    component = xp.arange(n, dtype="int32") // 64
    table = xp.full((int(component[-1]) + 1,) * 2, 0.6 * points.shape[1])
    src, dst = among.pairs_below(component, table)
    weight = to_host(among.kernels.pair_values(among.values, src, dst))
    src, dst = to_host(src), to_host(dst)
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    rows = np.lexsort((high, low))
    rows = rows[weight[rows] <= 0.6 * points.shape[1]]
    return low[rows], high[rows], weight[rows]


def join(device: Device, points: np.ndarray, by_filter: bool) -> tuple[Any, ...]:
    """Components of 60 points joined at once, by the fused filter or by float64's products."""
    among = search("fused" if by_filter else "portable", device.asarray(points), device)
    component = device.xp.arange(len(points), dtype="int32") // 60 * 60
    ways: dict[str, Any] = {"MOST_CLOSE": len(points), "MANY_COUPLES": 20}
    if not by_filter:
        ways["_by_filter"] = lambda *_: None
    with patch.multiple(couples, **ways):
        bridges = couples.join_components(among, None, component, -(-len(points) // 60), 10**9, device, Report())
    assert bridges is not None
    src, dst, weight = map(device.asarray, bridges)
    return sort_edges(src, dst, weight, device.xp)


def list_by_sorting(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Lists longer than a kernel's."""
    values, rows = device.asarray(points), device.xp.arange(len(points), dtype="int32")
    few = rows[:5]
    return tuple(
        device.kernels("neighbors").rerank_all(
            values, values, few, few, rows, device.xp.full(5, np.inf), len(points) - 1
        )
    )


def span(device: Device, dtype: str, maximum: bool, **limits: int) -> tuple[Any, ...]:
    """The spanning forest of a graph that takes several blocks; `limits` are those of the kernels for large ones."""
    kernels, xp, n, m = device.kernels("spanning_tree.edges"), device.xp, 2000, 12_000
    rng = np.random.default_rng(7)
    src, dst = (device.asarray(ends.astype(np.int32)) for ends in rng.integers(0, n - 5, (2, m)))
    weight = device.asarray(rng.integers(-40, 40, m).astype(dtype))
    edges = graphs.EdgeList(src, dst, weight, n, maximum)
    found: dict[str, Any] = {name: value for name, value in limits.items() if hasattr(kernels, name)}
    with patch.multiple(kernels, **found) if found else nullcontext():
        taken, parent = graphs.spanning_forest(edges, device)
    rows = xp.flatnonzero(taken)
    number = graphs.components(src[taken], parent, device)
    looked_at = [float(value) for value in graphs.inspect(src, dst, weight, device)]
    return taken, number, graphs.merge_order(edges, rows, device), *looked_at


def merge(device: Device, joins: Any, n: int) -> tuple[Any, ...]:
    """The dendrogram of a tree, and what cuts ask of one."""
    columns = Tree("small", n, joins).edges()
    order = np.argsort(columns["weight"])
    src, dst = (device.asarray(columns[name][order]) for name in ("src", "dst"))
    kernels = device.kernels("dendrogram")
    merges = kernels.merge_in_order(src, dst, n)
    pointers = device.asarray(np.append(np.arange(1, n, dtype=np.int32), np.int32(-1)))
    kernels.follow_pointers(pointers)
    groups = device.asarray((np.arange(n) * 7 % 11).astype(np.int32))
    return *merges, pointers, kernels.first_rows(groups, 12)


def steps() -> Iterator[tuple[str, Step]]:
    """What is run, and its name."""
    rng = np.random.default_rng(0)
    islands = np.repeat(30 * rng.normal(size=(11, 20)), 60, axis=0) + rng.normal(size=(660, 20))
    points: dict[str, np.ndarray] = {
        "float32": islands.astype(np.float32),
        "float64, 70 features": rng.normal(size=(520, 70)),
        "bytes": rng.integers(0, 256, (520, 40)).astype(np.float32),
        "all equal": np.ones((400, 12)),
        "300 features": rng.normal(size=(300, 300)).astype(np.float32),
    }
    for kind in ("fused", "portable"):
        for name, rows in points.items():
            yield f"{kind}, {name}", partial(cluster, kind=kind, points=rows, k=3)
        yield f"{kind}, mutual reachability", partial(cluster, kind=kind, points=islands, k=6, min_samples=4)
        yield f"{kind}, two sets", partial(find_nearest, kind=kind, queries=islands[:100], points=islands[100:])
    for dtype in ("float32", "float64"):
        for d in (1, 3):
            few = islands[:, :d].astype(dtype)
            yield f"boxes, {dtype}, {d} features", partial(cluster, kind="boxes", points=few, k=3)
        rows = islands.astype(dtype)
        yield f"few queries, {dtype}", partial(find_for_few, queries=rows[::2] + 1, points=rows)
        yield f"boxes, two sets, {dtype}", partial(find_nearest, kind="boxes", queries=few[:99], points=few[99:])
    yield "boxes, mutual reachability", partial(cluster, kind="boxes", points=few, k=6, min_samples=4)
    for metric in ("cityblock", "cosine"):
        yield f"{metric}, 20 features", partial(cluster_by_metric, metric=metric, points=islands, k=3)
    for d in (3, 70):
        yield f"{d} columns", partial(lay_out, points=rng.integers(0, 256, (300, d)).astype(np.uint8))
    yield "pairs", partial(find_pairs, points=rng.normal(size=(500, 12)))
    for name in ("float32", "bytes", "300 features"):
        yield f"couples by the filter, {name}", partial(join, points=points[name], by_filter=True)
    yield "couples by shadows", partial(join, points=islands, by_filter=False)
    yield "lists by sorting", partial(list_by_sorting, points=rng.integers(0, 4, (1100, 9)).astype(np.float32))
    for dtype in ("int32", "float32", "int64", "float64"):
        yield f"graph, {dtype}", partial(span, dtype=dtype, maximum=dtype == "int64")
        yield f"graph as if large, {dtype}", partial(span, dtype=dtype, maximum=False, LARGE=1, MOST_PACKED=1, FEW=0)
    for joins in (chain, star, random, balanced):
        yield f"tree, {joins.__name__}", partial(merge, joins=joins, n=257)
        yield f"tree of two, {joins.__name__}", partial(merge, joins=joins, n=2)


def kernels_of_package() -> set[tuple[str, str]]:
    """Source and name of each kernel."""
    sources = sorted(PACKAGE.rglob("*.cu"))
    return {(str(path.relative_to(PACKAGE)), name) for path in sources for name in KERNEL.findall(path.read_text())}


def main() -> int:
    """Run all steps; the exit status is 1 if a result differs or a kernel has not been launched."""
    launched = set()
    look_up = devices.cuda_kernel

    def noted(source: str, name: str, *options: str) -> Any:
        launched.add((source, name))
        return look_up(source, name, *options)

    both = CPU, devices.cuda()
    both[1].xp.cuda.set_allocator(None)  # each array an allocation of its own: within a pool nothing is out of bounds
    wrong = 0
    with patch.object(devices, "cuda_kernel", noted):  # the launchers are imported, and take it, at their first use
        for name, step in steps():
            expected, found = ([to_host(part) for part in step(device)] for device in both)
            same = all(np.array_equal(*pair) for pair in zip(expected, found, strict=True))
            print(f"{'same' if same else 'DIFFERENT':>9}  {name}", flush=True)
            wrong += not same
    missing = kernels_of_package() - launched
    from rapids_slink.neighbors import hopper

    if not hopper.usable():
        missing = {kernel for kernel in missing if kernel[0] not in HOPPERS and kernel[1] not in HOPPERS}
    for source, name in sorted(missing):
        print(f"not launched: {name} of {source}")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())

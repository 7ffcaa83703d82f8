"""``python -m bench.sanitize``: every CUDA kernel on small inputs, for ``compute-sanitizer`` to watch.

Each step is run on both devices, and what they return must be the same to the last bit. A kernel of the package that no
step has launched is an error. CuPy and cuDF are needed. With a text as argument, only the steps are run that have it in
their names.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix

import rapids_slink
from bench.trees import Tree, balanced, chain, random, star
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.dendrogram.condense import Merges, condense
from rapids_slink.items.forest import forest_of_items
from rapids_slink.items.search import all_distances
from rapids_slink.items.stored import Sets, SparseRows
from rapids_slink.items.strings import Strings
from rapids_slink.metrics import EUCLIDEAN, ITEM_METRICS, PRECOMPUTED, get_metric
from rapids_slink.neighbors import choose, neighbor_lists, prepare_search
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.rows import Copies, find_repeats, metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.neighbors.within import prepare_pairs
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import as_distances
from rapids_slink.points import interleave as interleaved
from rapids_slink.points.check import check_finite
from rapids_slink.points.keys import groups_of
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame, on_host
from rapids_slink.prediction import catalogue_of, read_rows
from rapids_slink.report import Report
from rapids_slink.runtime import cuda as launches
from rapids_slink.runtime.device import CPU, Device, cuda, to_host
from rapids_slink.settings import Settings, metric_of
from rapids_slink.spanning_tree import Problem, component_pairs, graphs, ways
from rapids_slink.spanning_tree import kernels as tree_kernels
from rapids_slink.spanning_tree.boxes import label_by_boxes, label_by_pairs, label_friends
from rapids_slink.spanning_tree.graphs import kernels as edge_kernels
from rapids_slink.spanning_tree.lists import tree_of_lists
from rapids_slink.spanning_tree.ways import connect_copies, forest_of_groups

PACKAGE = Path(rapids_slink.__file__).parent
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
#: The bodies of the fused filter's kernel; a GPU launches one of them.
BODIES = {"neighbors/filter/fused/wgmma.cu", "neighbors/filter/fused/mma.cu"}
#: The constants that make the edges' kernels take a small graph for a large one, by device.
AS_IF_LARGE: dict[str, dict[str, Any]] = {"cpu": {"LARGE": 1}, "cuda": {"LARGE": 1, "MOST_PACKED": 1}}
Step = Callable[[Device], tuple[Any, ...]]


def search(kind: str, values: Any, device: Device, queries: Any = None) -> Any:
    """Return a search of a kind; on the CPU a k-d tree serves for boxes."""
    if kind != "boxes":
        return (TileSearch if kind == "tiles" else BruteForceSearch)(values, device, Report(), queries)
    if device.is_gpu:
        from rapids_slink.neighbors.bvh import BoxSearch

        return BoxSearch(values, device, Report(), queries)
    from rapids_slink.neighbors.kdtree import TreeSearch

    return TreeSearch(values, device, Report(), queries)


def cluster(device: Device, kind: str, points: np.ndarray, k: int, min_samples: int = 1) -> tuple[Any, ...]:
    """Return the lists, the spanning tree, the dendrogram and the lists' components of points."""
    return _cluster(search(kind, device.asarray(points), device), len(points), device, k, min_samples)


def cluster_by_metric(device: Device, metric: str, points: np.ndarray, k: int, **space: Any) -> tuple[Any, ...]:
    """Return what `cluster` does, by another metric's search.

    The space may be a box, or groups of features that have scales.
    """
    chosen = metric_of(metric, **space).of_columns(None, points.shape[1])
    rows = metric_rows(chosen, device.asarray(points), device)
    return _cluster(prepare_search(rows, device, Report(), metric=chosen), len(points), device, k)


def _cluster(among: Any, n: int, device: Device, k: int, min_samples: int = 1) -> tuple[Any, ...]:
    lists = neighbor_lists(among, n, k, device, min_samples)
    src, dst, weight = tree_of_lists(lists, among, device, Report()).columns.values()
    merges = [device.xp.empty_like(src) for _ in range(3)]
    dendrogram_kernels(device).merge_in_order(src, dst, n, *merges)
    components = tree_kernels(device).connected_components(lists.ids)
    return lists.ids, lists.weights, src, dst, weight, *merges, components


def interleave(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return a frame's columns as rows, and whether they are finite."""
    columns = [device.asarray(np.ascontiguousarray(column)) for column in points.T]
    if device.is_gpu:  # pylibcudf's columns as far as the kernel's launcher looks into them
        same = {"size": partial(int, len(points)), "null_count": partial(int, 0), "offset": partial(int, 0)}
        stand_ins: list[Any] = [
            SimpleNamespace(data=lambda at=at: SimpleNamespace(ptr=at.data.ptr), **same) for at in columns
        ]
        rows = interleaved(stand_ins, points.dtype, np.dtype(np.float32), device)
    else:
        rows = np.column_stack(columns).astype(np.float32)
    return rows, np.array(check_finite({"X": SimpleNamespace(values=rows, names=None)}, EUCLIDEAN, device))


def tree_of_pairs(device: Device, points: np.ndarray, min_samples: int = 1) -> tuple[Any, ...]:
    """Return the tree of all pairs."""
    return tuple(ways.tree_of_pairs(device.asarray(points), EUCLIDEAN, min_samples, device).columns.values())


def trees_of_groups(device: Device, points: np.ndarray, metric: str, min_samples: int = 1) -> tuple[Any, ...]:
    """Return the trees of groups of a few and of hundreds of rows."""
    chosen, (n, d) = get_metric(metric), points.shape
    rows = metric_rows(chosen, device.asarray(points), device, alone=False)
    groups = groups_of(device.asarray(np.arange(n) % 97 // 40 * 100 + np.arange(n) % 3), 300, device)
    problem = Problem(Settings(chosen, min_samples=min_samples), device, n, d, points.itemsize)
    forest, _ = forest_of_groups(problem.of_rows(rows), rows, groups, device.asarray(points), Report())
    return tuple(forest.columns.values())


def tree_of_boxes(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return the tree that boxes give, which a CPU makes from lists."""
    if not device.is_gpu:
        return cluster(device, "boxes", points, 8)[2:5]
    from rapids_slink.spanning_tree import boxes

    columns = boxes.tree_of_boxes(search("boxes", device.asarray(points), device), Report()).columns
    sort_in_place(columns, device.xp)
    return tuple(columns.values())


def friends_of_rows(device: Device, points: np.ndarray, distance: float) -> tuple[Any, ...]:
    """Return the labels of rows that steps of at most a distance connect."""
    settings, xp = Settings(EUCLIDEAN, friends_within=distance), device.xp
    labels = xp.empty(len(points), "int32")
    problem = Problem(settings, device, len(points), points.shape[1], points.dtype.itemsize)
    return np.array(label_friends(device.asarray(points), problem, labels, Report())), labels


def list_clusters(device: Device, points: np.ndarray, box: np.ndarray) -> tuple[Any, ...]:
    """Return a catalogue of clusters of all sizes; some rows have no cluster."""
    n = len(points)
    labels, weight = np.sqrt(np.arange(n)).astype(np.int32) - 2, np.arange(n) + 1.0
    rows = read_rows(device.asarray(points), [], None, weight, n, device)
    return tuple(catalogue_of(rows, device.asarray(labels), 9, device, box).columns.values())


def count_visits(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return how many nodes of a tree of boxes searches visit, counted up to one."""
    visits = search("boxes", device.asarray(points), device).mean_visits(1) if device.is_gpu else 1.0
    return (np.array(visits),)


def expands(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return the expansion of points, and how near others are to some of them."""
    share, nearest = choose.expansion(device.asarray(points), device)
    return np.array(share), np.round(nearest, 4)


def equal_rows(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return which rows are equal."""
    found = find_repeats(device.asarray(points), device)
    assert found is not None
    return found.first, found.number, found.count


def connect_equal_rows(device: Device, points: np.ndarray, are_tied: bool) -> tuple[Any, ...]:
    """Return the distinct ones of rows of which each comes three times, and a chain of these with their copies."""
    n, m, asarray = len(points), len(points) // 3, device.asarray
    first, number, count = np.arange(m, dtype=np.int32), np.arange(n, dtype=np.int32) % m, np.full(m, 3)
    copies = Copies(asarray(first), asarray(number), asarray(count))
    chain = {"src": first[:-1].copy(), "dst": first[1:].copy(), "weight": (1.0 + first[1:]) // 2}
    tree = PreallocatedFrame.of(device, {name: asarray(column) for name, column in chain.items()})
    own = asarray(np.ones(m) if are_tied else (5.0 + first) / n)
    connected = connect_copies(copies, tree, own, device)
    assert connected is not None
    return asarray(points)[copies.first], *connected.columns.values()


def tree_of_matrix(device: Device, points: np.ndarray, min_samples: int = 1) -> tuple[Any, ...]:
    """Return the tree of a distance matrix."""
    matrix = np.abs(points[:, None, 0] - points[None, :, 0])
    given = as_distances(device.asarray(matrix), device)[0].values
    return tuple(ways.tree_of_pairs(given, PRECOMPUTED, min_samples, device).columns.values())


def find_nearest(device: Device, kind: str, queries: np.ndarray, points: np.ndarray) -> tuple[Any, ...]:
    """Return the nearest point of each query, by its number, and its distance."""
    xp = device.xp
    rows = xp.arange(len(queries), dtype="int32")
    among = search(kind, device.asarray(points), device, device.asarray(queries))
    groups = xp.zeros(len(queries), "int32"), xp.ones(len(points), "int32")
    found = among.find(SearchTask(rows, 1, *groups))
    return found.ids[:, 0], xp.sqrt(found.weights[:, 0])


def label_core_rows(device: Device, points: np.ndarray, distance: float) -> tuple[Any, ...]:
    """Return the labels of DBSCAN by boxes and by pairs, for rows that weigh from 0 to 3."""
    settings, xp, n = Settings(EUCLIDEAN, friends_within=distance), device.xp, len(points)
    rows, weights = device.asarray(points), (xp.arange(n) % 4).astype("float64")
    problem = Problem(settings, device, n, points.shape[1], points.dtype.itemsize)
    among = prepare_pairs(rows, None, distance**2, EUCLIDEAN, device).find(slice(0, n), np.inf)
    made = [
        *label_by_boxes(rows, problem, None, 5.0, Report()),
        *label_by_boxes(rows, problem, weights, 5.0, Report()),
        *label_by_pairs(lambda: [(among.src, among.dst)], weights, 5.0, device),
    ]
    return tuple(part.astype("int32") for part in made)


def find_pairs(
    device: Device, points: np.ndarray, limit: float, metric: str = "euclidean", queries: np.ndarray | None = None
) -> tuple[Any, ...]:
    """Return the pairs within a surrogate distance, and their numbers within half of it and within all of it."""
    chosen, given = get_metric(metric), [points] if queries is None else [points, queries]
    rows = [metric_rows(chosen, device.asarray(part), device) for part in given]
    among = prepare_pairs(rows[0], None if queries is None else rows[1], limit, chosen, device)
    every = slice(0, len(given[-1]))
    found = among.find(every, np.inf)
    return found.src, found.dst, found.weight, among.count(every, np.array([limit / 2, limit]))


def strings(device: Device, values: list[str], metric: str) -> tuple[Any, ...]:
    """Return the distances, hashes, keys and bits of strings, and their forests."""
    items = Strings.read({"X": values}, ITEM_METRICS[metric], device)
    n, every = len(items), slice(0, len(items))
    src, dst = (device.asarray(end, "int32") for end in np.indices((n, n)).reshape(2, -1))
    some = items.take(device.xp.arange(0, n, 3))
    made = items.distances(src, dst), items.distances(src, dst, 2), items.hashes(), some.codes
    keys = *items.keys(1, every), *items.keys(2, every), items.projection(2).values
    trees: list[Any] = []
    if items.metric is ITEM_METRICS["levenshtein"]:
        trees.append(all_distances(items).astype("float64"))
    for limit in (2.0, None):
        settings = Settings(items.metric, max_distance=limit)
        tree, _ = forest_of_items(items, device.xp.zeros(n, "int32"), settings, Report())
        trees += tree.columns.values()
    return *made, *keys, *trees


def find_for_few(device: Device, queries: np.ndarray, points: np.ndarray) -> tuple[Any, ...]:
    """Return what `find_nearest` does, by the search for few queries where the device has one.

    All queries must be proven.
    """
    if not device.is_gpu:
        return find_nearest(device, "all pairs", queries, points)
    from rapids_slink.neighbors.small_batch import SmallBatchSearch

    xp, m, (n, d) = device.xp, len(queries), points.shape
    small = SmallBatchSearch(m, n, d, EUCLIDEAN)
    if not small.is_supported:
        return find_nearest(device, "all pairs", queries, points)
    src, dst, distance = xp.empty(m, "int32"), xp.empty(m, "int32"), xp.empty(m)
    proven = small.write_edges(device.asarray(queries), device.asarray(points), src, dst, distance)
    return dst if proven else xp.full(m, -1, "int32"), distance


def connect(device: Device, points: np.ndarray, facing_cost: int) -> tuple[Any, ...]:
    """Return the edges that connect components of 60 points at once.

    They are found among all points or, if these cost too much, among those that face each other.
    """
    among = search("fused", device.asarray(points), device)
    component, k = device.xp.arange(len(points), dtype="int32") // 60 * 60, -(-len(points) // 60)
    rows = component  # all rows would have to search: with `ROUNDS` below, no number of pairs is too large
    n = len(points)
    with patch.multiple(component_pairs, MAX_OVERLAPPING=n, MAX_FACING=n, ROUNDS=2**16, FACING_COST=facing_cost):
        edges = component_pairs.connect_components(among, None, component, k, rows, Report())
    assert edges is not None
    columns = dict(zip(EDGE_TYPES, map(device.asarray, edges), strict=True))
    sort_in_place(columns, device.xp)
    return tuple(columns.values())


def append_rows(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return the tree of points of which the last 60 are appended."""
    model = rapids_slink.fit(points[:-60], 1, prediction_data=True, device=device.name).append(points[-60:])
    return tuple(on_host(model.mst_)[name].to_numpy() for name in EDGE_TYPES)


def list_by_sorting(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return lists longer than a kernel's."""
    values, rows = device.asarray(points), device.xp.arange(len(points), dtype="int32")
    few = rows[:5]
    top = exact_kernels(device).scan(
        ExactPoints(values, values), few, (few, rows), device.xp.full(5, np.inf), len(points) - 1
    )
    return top.ids, top.weights


def list_codes(device: Device, points: np.ndarray) -> tuple[Any, ...]:
    """Return lists of codes longer than a kernel's, by the search that suits the device."""
    metric, few = get_metric("hamming"), device.xp.arange(5, dtype="int32")
    search = prepare_search(metric_rows(metric, device.asarray(points), device), device, Report(), metric=metric)
    groups = device.xp.arange(len(points), dtype="int32")
    lists = search.find(SearchTask(few, len(points) - 1, few, groups))
    return lists.ids, lists.weights


def graph(dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends and the weights of edges over 2,000 nodes, some of which have none."""
    rng = np.random.default_rng(7)
    src, dst = rng.integers(0, 1995, (2, 12_000)).astype(np.int32)
    return src, dst, rng.integers(-40, 40, src.size).astype(dtype)


def span(device: Device, dtype: str, maximum: bool = False, as_if_large: bool = False) -> tuple[Any, ...]:
    """Return the spanning forest of a graph that takes several blocks, its components and its merge order."""
    kernels, xp = edge_kernels(device), device.xp
    src, dst, weight = map(device.asarray, graph(dtype))
    edges = graphs.EdgeList(src, dst, weight, 2000, maximum)
    with patch.multiple(kernels, **AS_IF_LARGE[device.name]) if as_if_large else nullcontext():
        taken, parent = graphs.spanning_forest(edges, device)
    rows = xp.flatnonzero(taken)
    number = graphs.components(src[taken], parent, device)
    return taken, number, graphs.merge_order(edges, rows, device)


def merge(device: Device, joins: Any, n: int) -> tuple[Any, ...]:
    """Return the dendrogram of a tree, and a cut of it."""
    columns = Tree("small", n, joins).edges()
    order = np.argsort(columns["weight"])
    src, dst = (device.asarray(columns[name][order]) for name in ("src", "dst"))
    kernels = dendrogram_kernels(device)
    left, right, size = (device.xp.empty_like(src) for _ in range(3))
    kernels.merge_in_order(src, dst, n, left, right, size)
    return left, right, size, kernels.label_clusters(left[: n // 2], right[: n // 2], n)


def condense_tree(device: Device) -> tuple[Any, ...]:
    """Return the condensed dendrogram of a tree, and heights by the sizes of its clusters."""
    columns = Tree("small", 3000, random).edges()
    order = np.argsort(columns["weight"])
    left, right, size = np.empty((3, order.size), np.int32)
    dendrogram_kernels(CPU).merge_in_order(columns["src"][order], columns["dst"][order], 3000, left, right, size)
    merges = Merges(left, right, columns["weight"][order], size)
    kernels, moved = dendrogram_kernels(device), tuple(map(device.asarray, merges))
    tree = kernels.condense(*moved, 5) if device.is_gpu else condense(merges, 3000, 5)
    return *tree, kernels.heights_of_size(*moved, 5)


def sum_up(device: Device) -> tuple[Any, ...]:
    """Return the sums, the labels and the scores of points in the clusters of a condensed dendrogram.

    One of the clusters has no points.
    """
    rng = np.random.default_rng(0)
    cluster, birth = 2 * rng.integers(0, 4, 3000).astype(np.int32), rng.random(8)
    placed = device.asarray(cluster), device.asarray(birth[cluster] + rng.random(cluster.size))
    label, kernels = np.array([-1, -1, 0, -1, 1, 1, 2, 2], np.int32), dendrogram_kernels(device)
    sums = kernels.sum_up_clusters(*placed, birth, np.empty(0))
    return *sums, *kernels.label_points(*placed, label, 2 * birth, 0.1), kernels.score_points(*placed, 2 * birth)


def compare_items(device: Device, kind: Any, metric: str, rows: Any) -> tuple[Any, ...]:
    """Return the hashes and the distances of sets or sparse rows, which pairs are equal, and the stored matrix.

    For sets the rows of bits follow.
    """
    items = kind.read({"X": rows}, get_metric(metric), device)
    ends = [device.asarray(end.astype(np.int32)) for end in np.triu_indices(len(items), 1)]
    bits = [items.rows_of_bits(128)[0]] if kind is Sets else []
    return items.hashes(), items.distances(*ends), items.equal(*ends), all_distances(items)[tuple(ends)], *bits


def steps() -> Iterator[tuple[str, Step]]:
    """Yield the name of each step, and the step."""
    rng = np.random.default_rng(0)
    islands = np.repeat(30 * rng.normal(size=(11, 20)), 60, axis=0) + rng.normal(size=(660, 20))
    points: dict[str, np.ndarray] = {
        "float32": islands.astype(np.float32),
        "float64, 70 features": rng.normal(size=(520, 70)),
        "bytes": rng.integers(0, 256, (520, 40)).astype(np.float32),
        "all equal": np.ones((400, 12)),
        "300 features": rng.normal(size=(300, 300)).astype(np.float32),
    }
    for name, rows in points.items():
        yield f"lists, {name}", partial(cluster, kind="all pairs", points=rows, k=3)
        yield f"lists in tiles, {name}", partial(cluster, kind="tiles", points=rows, k=3)
    yield "lists, mutual reachability", partial(cluster, kind="all pairs", points=islands, k=6, min_samples=4)
    tight = np.concatenate([1e-5 * rng.normal(size=(700, 20)), rng.normal(size=(700, 20))])
    yield "lists in tiles, twice the digits", partial(cluster, kind="tiles", points=tight, k=3)
    yield "lists in tiles, mutual reachability", partial(cluster, kind="tiles", points=islands, k=6, min_samples=4)
    yield "lists, two sets", partial(find_nearest, kind="all pairs", queries=islands[:100], points=islands[100:])
    for dtype in ("float32", "float64"):
        for d in (1, 3):
            few = islands[:, :d].astype(dtype)
            yield f"boxes, {dtype}, {d} features", partial(cluster, kind="boxes", points=few, k=3)
        rows = islands.astype(dtype)
        yield f"few queries, {dtype}", partial(find_for_few, queries=rows[::2] + 1, points=rows)
        yield f"tree of boxes, {dtype}", partial(tree_of_boxes, points=few[:, :3].copy())
        yield f"visits, {dtype}", partial(count_visits, points=rows)
        yield f"boxes, two sets, {dtype}", partial(find_nearest, kind="boxes", queries=few[:99], points=few[99:])
    for d, limit in ((3, 1.0), (20, 9.0)):
        some = np.tile(islands[:, :d], (2, 1))
        yield f"pairs, {d} features", partial(find_pairs, points=some, limit=limit)
        yield f"pairs of two sets, {d} features", partial(find_pairs, points=some, limit=limit, queries=some[:99] + 0.1)
    yield "boxes, mutual reachability", partial(cluster, kind="boxes", points=few, k=6, min_samples=4)
    yield "boxes, long lists", partial(cluster, kind="boxes", points=few, k=100, min_samples=40)
    for metric in ("cityblock", "cosine"):
        yield f"{metric}, 20 features", partial(cluster_by_metric, metric=metric, points=islands, k=3)
    few, scales = islands[:, :3].copy(), {(0, 2): 2.0, 1: 0.5}
    yield "in a box, 3 features", partial(cluster_by_metric, metric="euclidean", points=few, k=3, box=50.0)
    yield "scales, 3 features", partial(cluster_by_metric, metric="euclidean", points=few, k=3, scales=scales)
    yield "in a box, 20 features", partial(cluster_by_metric, metric="euclidean", points=islands, k=3, box=50.0)
    bits = (rng.random((660, 200)) < rng.choice([0.05, 0.3], 660)[:, None]).astype(np.uint8)
    yield "pairs of bits", partial(find_pairs, points=np.tile(bits, (2, 1)), limit=0.5, metric="jaccard")
    yield "bits", partial(cluster_by_metric, metric="jaccard", points=bits, k=3)
    matrix = csr_matrix(bits * rng.normal(size=bits.shape))
    yield "sets", partial(compare_items, kind=Sets, metric="jaccard", rows=matrix != 0)
    for metric, dtype in (("cosine", "float32"), ("euclidean", "float64")):
        yield (
            f"sparse rows, {metric}",
            partial(compare_items, kind=SparseRows, metric=metric, rows=matrix.astype(dtype)),
        )
    for d in (40, 100):
        codes = rng.integers(0, 9, (660, d)).astype(np.float32)
        yield f"codes, {d} features", partial(cluster_by_metric, metric="hamming", points=codes, k=3)
    words = ["", "é", *("".join(rng.choice(list("abc"), size)) for size in rng.integers(0, 12, 90))]
    for metric in ITEM_METRICS:
        yield f"strings, {metric}", partial(strings, values=[*words, "x" * 150, "y" + "x" * 149], metric=metric)
    for name in ("float32", "float64, 70 features"):
        yield f"all pairs, {name}", partial(tree_of_pairs, points=points[name])
    for name, metric in (("float32", "euclidean"), ("float64, 70 features", "cosine"), ("bytes", "hamming")):
        yield f"groups, {metric}", partial(trees_of_groups, points=points[name], metric=metric)
    yield "groups, mutual reachability", partial(trees_of_groups, points=islands, metric="euclidean", min_samples=4)
    yield "all pairs, mutual reachability", partial(tree_of_pairs, points=islands, min_samples=4)
    for dtype in ("float32", "float64"):
        yield f"expansion, {dtype}", partial(expands, points=rng.integers(0, 99, (2500, 40)).astype(dtype))
    yield "equal rows", partial(equal_rows, points=islands[np.arange(900) % 100])
    for are_tied in (False, True):
        yield (
            f"equal rows, {'' if are_tied else 'not '}tied",
            partial(connect_equal_rows, points=islands, are_tied=are_tied),
        )
    yield "a distance matrix", partial(tree_of_matrix, points=points["bytes"])
    yield "a distance matrix, many samples", partial(tree_of_matrix, points=islands, min_samples=40)
    for d in (3, 70):
        yield f"{d} columns", partial(interleave, points=rng.integers(0, 256, (300, d)).astype(np.uint8))
    for name in ("float32", "bytes", "300 features"):
        for of, facing_cost in (("facing", 0), ("all", 2**16)):
            step = partial(connect, points=points[name], facing_cost=facing_cost)
            yield f"component pairs by the filter, {of} points, {name}", step
        yield f"appended rows, {name}", partial(append_rows, points=points[name])
    yield "lists by sorting", partial(list_by_sorting, points=rng.integers(0, 4, (1100, 9)).astype(np.float32))
    yield "codes, lists by sorting", partial(list_codes, points=rng.integers(0, 9, (2100, 40)).astype(np.float32))
    for dtype in ("int32", "float32", "int64", "float64"):
        yield f"graph, {dtype}", partial(span, dtype=dtype, maximum=dtype == "int64")
        yield f"graph as if large, {dtype}", partial(span, dtype=dtype, as_if_large=True)
    for joins in (chain, star, random, balanced):
        yield f"tree, {joins.__name__}", partial(merge, joins=joins, n=257)
        yield f"tree of two, {joins.__name__}", partial(merge, joins=joins, n=2)
    yield "condensed dendrogram", condense_tree
    yield "sums of clusters", sum_up
    for d, dtype in ((2, "float32"), (3, "float64")):
        some = np.tile(islands[:, :d], (2, 1)).astype(dtype)
        yield f"friends, {d} features", partial(friends_of_rows, points=some, distance=1.5)
        yield f"core rows, {d} features", partial(label_core_rows, points=some, distance=0.75)
        yield f"catalogue, {d} features", partial(list_clusters, points=some, box=np.array([30.0, np.inf, 7.0])[:d])


def kernels_of_package() -> set[tuple[str, str]]:
    """Return the source and the name of each kernel."""
    sources = sorted(PACKAGE.rglob("*.cu"))
    return {(str(path.relative_to(PACKAGE)), name) for path in sources for name in KERNEL.findall(path.read_text())}


def differing(step: Step, *devices: Device) -> bool:
    """Return whether a step returns other bits on one device than on another."""
    first, second = ([to_host(part) for part in step(device)] for device in devices)
    return not all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps, and return the exit status: 1 if a result differs or, of all steps, a kernel was not launched."""
    parser = argparse.ArgumentParser(prog="python -m bench.sanitize", description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="run the steps that have this in their names")
    only = parser.parse_args(arguments).only
    chosen = [(name, step) for name, step in steps() if only in name]
    if not chosen:
        parser.error(f"no step has {only!r} in its name")
    launched = set()
    look_up = launches.cuda_kernel

    def noted(source: str, name: str, options: tuple[str, ...] = ()) -> Any:
        launched.add((source, name))
        return look_up(source, name, options)

    gpu = cuda()
    _ = gpu.frames  # cuDF sets CuPy's allocator when it is imported
    gpu.xp.cuda.set_allocator(None)  # each array is an allocation of its own: in a pool nothing is out of bounds
    wrong = 0
    with patch.object(launches, "cuda_kernel", noted):  # some launchers take it when they are imported, by a step
        for name, step in chosen:
            differs = differing(step, CPU, gpu)
            print(f"{'DIFFERENT' if differs else 'same':>9}  {name}", flush=True)
            wrong += differs
    missing = set() if only else kernels_of_package() - launched
    if any(source in BODIES for source, _ in launched):
        missing = {(source, kernel) for source, kernel in missing if source not in BODIES}
    for source, name in sorted(missing):
        print(f"not launched: {name} of {source}")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())

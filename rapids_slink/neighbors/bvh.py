"""Search by boxes on the GPU: launchers of `bvh.cu` and `nearest.cu`, and the hierarchy of `bvh.cuh`."""

from functools import cached_property
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact.cuda import list_entries
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask, drop_above_bound, inverse
from rapids_slink.runtime.cuda import (
    THREADS,
    WARP,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    launch_resident,
    number_a_block,
    value_option,
)
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.memory import MemoryEstimate

SOURCE, NEAREST = (f"neighbors/{name}.cu" for name in ("bvh", "nearest"))
NO_NODE = constant(SOURCE, "NO_NODE")
MAX_BITS = 31  # a code has at most this number of bits for each feature
#: A code has 63 bits. With more than `MAX_CODED` features each would have few: codes are made of principal coordinates.
MAX_CODED, COORDINATES, PCA_ROWS = 8, 6, 2**12
OUTERMOST = 0.002  # the cube leaves out this share of the sample's points on either side
NODES = 0.75  # nodes of a point, as estimated: twice as many as uniform points have
VISITING_WARPS = 2**10  # warps that show how many nodes a search visits
BOX_THREADS = 2**16  # threads that find the box of the points
#: Lengths of lists that a thread keeps, each compiled for itself. A warp keeps longer ones in shared memory, up to
#: `MAX_LIST`; still longer ones are found by brute force.
LIST_SIZES = (1, 8, 16)
MAX_LIST = 2048
SHARED_ENTRIES, ENTRY_BYTES, MAX_WARPS = 4096, 12, 4  # entries of a block's lists, bytes of each, warps


class BoxSearch(Search):
    """A search by a hierarchy of boxes; see `Search`."""

    name = "bounding volume hierarchy"  # for reports

    def __post_init__(self) -> None:
        values, queries = self.values, self.queries
        check_arrays(values.dtype, values, queries)
        n, d = values.shape
        self.axes: Array = None  # axes of the coordinates that make the codes; None if the features make them
        self.box: Array = None
        if d > MAX_CODED:
            self.axes, self.box = _principal_axes(values)
        codes = self._morton_codes(values)
        along = cp.argsort(codes)
        self.points, self.order = cp.empty_like(values), cp.empty(n, cp.int32)
        level, begins = cp.empty(n, cp.uint8), cp.empty(n, cp.int32)
        self.launch("arrange", n, values, codes, along, n, self.points, self.order, level)
        self.launch("find_leaves", n, level, n, begins)
        self.leaf_of = cp.cumsum(begins, dtype=cp.int32) - np.int32(1)
        leaves = self.leaves = int(self.leaf_of[-1]) + 1
        start, self.parent = cp.empty(leaves, cp.int32), cp.empty(2 * leaves, cp.int32)
        self.nodes = cp.empty((2 * leaves, _node_bytes(d, values.dtype.itemsize)), cp.uint8)
        spans = cp.empty((2 * leaves, 2), cp.int32)
        self.tree = n, leaves, spans, self.nodes  # as kernels take it
        self.launch("list_leaves", n, self.leaf_of, n, start)
        self.launch(
            "build", leaves, self.points, self.order, n, level, start, leaves, self.nodes, spans,
            self.parent, cp.full(leaves, NO_NODE, cp.int32),
        )  # fmt: skip
        self.launch("link", 2 * leaves, leaves, self.nodes)
        self.start = None  # the positions at which the queries start, if there are queries
        if queries is not None:
            position = cp.searchsorted(codes[along], self._morton_codes(queries))
            self.start = position.clip(max=n - 1).astype(cp.int32)
        self.core: Array = None  # the core distances of the last task that had any; for `cores` see `_cores`
        self.cores: tuple[Any, Any] = (None, None)

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Estimate the bytes of a search among n points of d features for the k neighbours of m points or queries."""
        tree = int(n * (d * itemsize + 40 + NODES * (_node_bytes(d, itemsize) + 12)))
        return MemoryEstimate(tree + m * (12 * _list_size(k) + 8))

    @property
    def by_boxes(self) -> "BoxSearch":
        """Return this search; see `Search`."""
        return self

    def check(self) -> None:
        """Raise unless the points and the tree are as kernels read them."""
        n, d = self.values.shape
        check_arrays(self.values.dtype, self.values, self.queries)
        check_arrays(self.values.dtype, self.points, size=n * d)
        check_arrays("int32", self.order, self.leaf_of, size=n)
        check_arrays("uint8", self.nodes, size=2 * self.leaves * _node_bytes(d, self.values.dtype.itemsize))
        check_arrays("int32", self.tree[2], size=4 * self.leaves)

    @cached_property
    def position(self) -> Any:
        """Return the inverse of `order`: each point's position along the curve, (n,) int32."""
        return inverse(self.order, cp)

    def mean_visits(self, limit: int) -> float:
        """Return how many nodes 32 points visit together to find their nearest, on average, counted up to `limit`."""
        self.check()
        n = self.order.size
        warps, visits = min(VISITING_WARPS, n // WARP), cp.zeros(1, cp.uint64)
        step = n // warps
        self.launch(
            "count_visits", warps * WARP, self.points, n, self.leaf_of, self.nodes, step, step * warps, limit, visits
        )
        return int(visits[0]) / warps

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, as a `SearchResult`."""
        m, k = task.rows.size, task.k
        if k > MAX_LIST:
            metric, progress = self.metric, self.progress
            search = BruteForceSearch(self.values, self.device, self.report, self.queries, progress, metric=metric)
            return search.find(task)
        size = _list_size(k)
        ids, weights, upper = cp.empty((m, size), cp.int32), cp.empty((m, size)), task.bounds(cp)
        if not m:
            return SearchResult(ids[:, :k], weights[:, :k], upper)
        self.check()
        check_arrays("int32", task.point_group, size=self.order.size)
        check_arrays("int32", task.rows, task.row_group)
        check_arrays("float64", upper, size=m)
        group = task.point_group[self.order]
        minima = None
        if task.only_minima:  # otherwise no two points, or no point and query, have one exclusion id
            arrived, counters = cp.empty(group.size, cp.uint32), cp.zeros(1, cp.uint64)
            self.launch_resident(
                "write_groups", group.size, group, *self.tree, arrived, number_a_block(SOURCE), counters
            )
            minima = cp.full(task.row_group.size, cp.inf)
        core, least_core = (None, None) if task.core is None else self._cores(task.core)
        start = (self.position if self.start is None else self.start)[task.rows]
        queue = cp.argsort(start).astype(cp.int32)  # neighbours on the curve visit the same nodes
        queries = self.values if self.queries is None else self.queries
        list_size, entries = list_entries(size)
        warps = 0 if size <= LIST_SIZES[-1] else min(MAX_WARPS, SHARED_ENTRIES // entries)
        threads = WARP * warps or THREADS
        launch_blocks(
            NEAREST, "search", (-(-m * (WARP if warps else 1) // threads),), threads, queries, task.rows, m,
            start, task.row_group, self.points, self.order, group, self.leaf_of, *self.tree[2:], core, least_core,
            queue, size, list_size, upper, minima, ids, weights,
            options=(*self._options(), f"-DLIST={0 if warps else size}"), shared_memory=warps * entries * ENTRY_BYTES,
        )  # fmt: skip
        ids, weights = (cp.ascontiguousarray(part[:, :k]) for part in (ids, weights))
        if task.only_minima:
            drop_above_bound(ids, weights, upper, cp)
        return SearchResult(ids, weights, upper)

    def _cores(self, core: Array) -> tuple[Any, Any]:
        """Return the points' core distances along the curve, and the least of each node."""
        if core is not self.core:
            check_arrays("float64", core, size=self.order.size)
            along, least = core[self.order], cp.empty(2 * self.leaves)
            arrived = cp.zeros(self.leaves, cp.uint32)
            self.launch("core_nodes", self.leaves, along, self.leaves, self.nodes, self.parent, arrived, least)
            self.core, self.cores = core, (along, least)
        return self.cores

    def launch(self, name: str, jobs: int, *arguments: Any, source: str = SOURCE, features: int = 0) -> None:
        """Start a kernel that is compiled for the metric and the points, or for another number of `features`."""
        launch(source, name, jobs, *arguments, options=self._options(features))

    def launch_resident(self, name: str, jobs: int, *arguments: Any, source: str = SOURCE) -> None:
        """Start a kernel whose blocks wait for each other."""
        launch_resident(source, name, jobs, *arguments, options=self._options())

    def _options(self, features: int = 0) -> tuple[str, ...]:
        count = f"-DFEATURES={features or self.values.shape[1]}"
        return value_option(self.values.dtype), count, *self.metric.cuda_options

    def _morton_codes(self, values: Array) -> Any:
        """Return the Morton codes of points, (n,) uint64, by where they are in the box.

        The coordinates are the features, in the box of all points, or those on the principal axes, in their cube.
        """
        places = values if self.axes is None else values @ self.axes
        n, d = places.shape
        if self.box is None:
            self.box = cp.full(2 * d, cp.inf)
            self.launch("find_box", min(n, BOX_THREADS), places, n, self.box)
        codes = cp.empty(n, cp.uint64)
        bits = min(MAX_BITS, 63 // d)
        self.launch("morton_codes", n, places, n, self.box, bits, codes, features=d)
        return codes


def _principal_axes(values: Array) -> tuple[Any, Any]:
    """Return the leading principal axes of a sample, (d, `COORDINATES`), and a cube of its coordinates.

    The axes are in the values' type. The cube, float64, has the form of `find_box`. It leaves out the outermost points,
    because one far point would leave only a few codes to all others.
    """
    sample = to_host(values[:: max(1, len(values) // PCA_ROWS)]).astype(np.float64)
    scale = np.abs(sample).max() or 1.0  # squares of larger numbers could overflow
    scaled = sample / scale
    centred = scaled - scaled.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, -COORDINATES:]
    low, high = np.quantile(scaled @ axes, (OUTERMOST, 1 - OUTERMOST), axis=0)
    with np.errstate(over="ignore"):  # then all codes are equal
        cube = scale * np.concatenate((low, -(low + (high - low).max())))
    return cp.asarray(axes, values.dtype), cp.asarray(cube)


def _list_size(k: int) -> int:
    """Return the number of entries with which a list of k is kept."""
    return next((size for size in LIST_SIZES if size >= k), k)


def _node_bytes(d: int, itemsize: int) -> int:
    """Return the bytes of a `Node` of bvh.cuh."""
    return -(-(2 * d * itemsize + 24) // 16) * 16

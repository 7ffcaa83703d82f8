"""Search in tiles of near points: boxes rule pairs of tiles out, and the others are tested at the scale of their cells.

    places ──▶ near order ──▶ tiles ──▶ list of pairs ──▶ products ──▶ candidates ──▶ lists
    order.py                            of boxes          of a cell's own scale       exact distances

Points are in tiles, rows in blocks, and a cell of a few tiles has a centre and a scale of its own. Let x = a + u be a
row, a the centre of its cell, and y = b + v a point. Then

    ‖x - y‖² = ‖x - b‖² + (‖y - a‖² - ‖a - b‖²) - 2 u·v,

and only u·v is multiplied in low precision. The other terms are distances of points from centres: the products of all
points with one centre for a thousand of them, in float64.

*The test.* Let p and q be s·u and t·v, scaled by powers of two, as they are rounded, moved by at most e and f, and let
h = st/2. A pair within U has 2h u·v >= h(‖x - b‖² - U²) + h(‖y - a‖² - ‖a - b‖²), and 2h u·v is at most
p·q + ‖p‖f + (‖q‖ + f)e. So it passes the test product >= threshold, in which

    the product's sum begins at -h(‖y - a‖² - ‖a - b‖²) + L f + K(‖q‖ + f) and what sums may lose,
    the threshold is h(‖x - b‖² - U² - E),

with L the largest ‖p‖ and K the largest e of the row's cell, and E what the three squares may be off by. So a point
that is far from the others of its cell, which round to zero beside it, passes for many rows, but they do not.

With d features a float64 product and the squares of lengths are off by (d + 8)2⁻⁵² of (‖x‖ + ‖y‖)² at most, counted
from the origin of the places. With M the largest ‖q‖ and the largest f of the point's cell, added up, ‖y‖ is at most
‖b‖ + M/t. So the three squares are off by at most

    E = 2(d + 8)2⁻⁵² (‖x‖² + 2‖a‖² + 4‖b‖² + 2M²/t²):

what is near the origin is told apart as well, however far other points are. To these squares `UNDERFLOW` is added, for
products of tiny numbers.

*The lengths.* A product is at most ‖p‖‖q‖. So no pair of a block and a tile passes if the largest of both with the
largest begin of a sum do not reach the least threshold; lengths are rounded up by more than that sum loses. A CPU
checks this first.

*The cells.* A point y is at most M/t from the centre of its cell, b. So no point of the cell is within U of a row with
‖x - b‖ > U + M/t. All features count here, and boxes have the first axes only. ‖x - b‖² is a term of the test; E is
subtracted from it.

*Two steps.* Rows are bounded by neighbours in the order and by the points of two near cells first; if minima of
components are wanted, by a sample of these points for each row. Bounds need no exact distances: a GPU measures these in
float32, rounded up. Then each row is tested with all tiles that its bound leaves, in bands: each tightens the bounds
for the next. A row with more candidates than there is room for is tested again, with more room and, if such rows are
many or this was not enough, with twice the digits.
"""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import Any, Self, cast

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import EPSILON, Metric
from rapids_slink.neighbors.choose import COSTS
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, TopLists
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import ProductFilter, choose_filter, scaling_of, serves_products
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.rows import product_form
from rapids_slink.neighbors.task import (
    ListSearch,
    SearchState,
    SearchTask,
    geometric_slices,
    row_blocks,
)
from rapids_slink.neighbors.tiles.order import (
    AXES,
    BLOCK,
    TILE,
    Axes,
    Balls,
    CommonGroups,
    Lists,
    PlacedTiles,
    Rows,
    Slots,
    cell_size,
    centres_of_cells,
    kernels,
    near_order,
    places_of_slots,
    squares_between,
    squares_of_cells,
    turned,
)
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes
from rapids_slink.runtime.threads import with_progress

#: Binary digits of the largest differences of a cell's points from its centre, scaled.
DIGITS = 14
MAX_EXPONENT = 500  # the largest exponent of a scale: the product of two fits into float64
#: The first bound of a row comes from this many neighbours in the order.
IN_ORDER = 32
#: The number of tiles in the first band of a block's list of near tiles, and of its list of all tiles; the factor by
#: which each further band extends it, for lists and for minima of components.
FIRST_NEAR, FIRST_BAND, GROWTH, GROWTH_OF_MINIMA = 2, 32, 4, 64
#: A row has room for ROOM candidates and 12 k more, and MORE_ROOM times as many when it is tested again.
ROOM, MORE_ROOM = 256, 8
#: If its component's minimum is wanted, a row is compared with this many points of the nearest cells at first.
SAMPLED = 8
#: Standard deviations that are subtracted from the mean squared distance to estimate a cell's nearest point: see
#: `cpu.near_cells`. None is subtracted if a component's minimum is wanted: then few points of a cell meet a row.
DEVIATIONS = 2
#: Blocks of rows, and neighbours of each row, by which the share of needed tiles is estimated.
SHARE_BLOCKS, SHARE_NEIGHBORS = 64, 2
#: Terms and candidates take at most these bytes at a time. A term, of a row or a point for a cell, takes TERM_BYTES,
#: and the product that it comes from PRODUCT_BYTES.
MAX_BYTES, TERM_BYTES, PRODUCT_BYTES = {"cpu": 2**31, "cuda": 2**35}, {"cpu": 32, "cuda": 4}, 8
#: Values that are counted from the origin, in float64, at a time.
CENTRED = 2**28
#: The most bytes of a value in the filter by which components are connected.
FILTER_BYTES = 8
#: The fewest rows of a component in a cell that have blocks of their own.
MIN_GROUP = 128


def estimate_tiles(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
    """Return the bytes of a search in tiles among n points of d features for the k neighbours of m of them."""
    slots = n + n // 2 + 2 * BLOCK  # many blocks end with empty slots
    size, axes, tiles, blocks = cell_size(n), min(AXES, d) + 1, slots // TILE, slots // BLOCK
    cells, unit_rows = slots // size + 1, n * d * itemsize * metric.formula.is_of_unit_rows
    a_row = 8 * -(-d // 64) * 64 if device.is_gpu else 12 * d  # rows are kept rounded and with twice the digits
    kept = unit_rows + n * (8 * axes + 28) + slots * (a_row + 4 * axes + 28)
    listed = int(tiles * blocks * (1 / 2 + 16 / COSTS[device.name].tile))
    peak = kept + max(8 * min(slots * d, CENTRED), 2 * m * (12 * k + 8) + listed)
    term_bytes = TERM_BYTES[device.name]
    slot_bytes = 4 * (ROOM + 12 * k) + (PRODUCT_BYTES + term_bytes) * cells
    cell_bytes = (PRODUCT_BYTES + 2 * term_bytes) * slots
    preferred = min(slot_bytes * slots + cell_bytes * cells, MAX_BYTES[device.name])
    return MemoryEstimate(peak, slot_bytes * size + cell_bytes, preferred)


@dataclass(frozen=True)
class Encoded:
    """Rows in slots as products read them."""

    slots: Slots
    centres: Array  # (cells, d) float64, counted from the origin of the places
    scales: Array  # (cells,) float64, powers of two
    y: Array  # on a CPU (s, d), on a GPU an image of fp16: see fused/pass.cuh
    error: Array  # (s,) float32, how far a row was moved, at most
    length: Array  # (s,) float32, how long it is, at most
    fine: bool
    #: (cells,) float64, for columns alone: the largest of these two of a cell's rows, whether points or queries
    largest_error: Array = None
    largest_length: Array = None
    #: (cells,) float64, for columns alone: the sum of the points' squared lengths, and their number
    squares: Array = None
    sizes: Array = None


@dataclass(frozen=True)
class Terms:
    """The terms of some cells of rows by which the test decides: see the module's docstring."""

    columns: Encoded
    first_cell: int
    first_slot: int  # the first slot of the cells' points
    #: of all centres with these points, float64, and the squares of either's lengths
    products: tuple[Array, Array, Array]
    begins: Array  # (these cells, all points' slots), of the device's `TERM_TYPES`
    squares: Array  # (all cells,) float64: see E


class TileSearch(ListSearch):
    """A search in tiles of near points; see `Search`.

    The metric has a product form. Queries are in the order and in cells, as points are, but no tile has them. A
    `follower` is for clusters that are so wide that a search over all pairs connects them in less time.
    """

    name = "tiles of near points"  # for reports
    estimate = staticmethod(estimate_tiles)

    @np.errstate(over="ignore", invalid="ignore")  # what overflows, or is no number then, is not ruled out
    def __post_init__(self) -> None:
        values, device, queries, metric = self.values, self.device, self.queries, self.metric
        self.for_lists = self.follower is not None
        self.connects_at_once = not device.is_gpu or bool(forced().connect)
        xp, n = device.xp, len(values)
        self.exact = ExactPoints(values if queries is None else queries, values, metric)
        rows = values if queries is None else xp.concatenate((values, queries))
        #: all rows in one array, the points first, and as products read them; the first row that is a query
        self.rows, self.first_query = replace(self.exact, queries=rows, points=rows), n if queries is not None else 0
        points = self.points = product_form(rows, metric)
        self.n_features, self.free_bytes = points.shape[1], free_bytes() - self._peak(values, device, metric, queries)
        self.kernels, self.exact_kernels = kernels(device), exact_kernels(device)
        self.axes = Axes.of(points, device)
        self.places, self.errors, farthest, error = self.axes.places(points)
        far_place = farthest * (1 + 1e-9)
        self.farthest = far_place / self.axes.unit  # the largest distance of a point from the origin
        self.order, self.position_of, begins = near_order(self.places, device)
        self.cell_size, self.slot_of = cell_size(len(points)), xp.empty(len(points), "int32")
        self.slots = Slots.of(self.order, begins, device, slot_of=self.slot_of)
        self.columns_in = self.slots  # the points alone
        if queries is not None:
            is_point = self.order < n
            self.columns_in = replace(self.slots, rows=xp.where(self.slots.rows < n, self.slots.rows, xp.int32(-1)))
            self.position_of = xp.maximum(xp.cumsum(is_point) - 1, 0).astype("int32")[self.position_of]
            self.order = self.order[is_point]
        cells = np.searchsorted(self.slots.cell_of_block, np.arange(self.slots.cells + 1))
        self.first_block = cells  # the first block of each cell, then the number of blocks, on the host
        self.first_tile = device.asarray((cells * (BLOCK // TILE)).astype(np.int32))
        boxes = self.kernels.boxes(self.places, self.errors, self.columns_in.rows)
        lost = 16 * EPSILON**0.5 * far_place + 2 * error  # what float32 places may be off by
        in_slots = places_of_slots(self.places, self.slots.rows, xp)
        self.tiles = PlacedTiles(boxes, turned(boxes, xp), in_slots, lost)
        #: E of the test by its squares
        self.rounding = 2 * (self.n_features + 8) * EPSILON
        rounding = *metric.rounding_terms(self.n_features), 1 + 1e-12, 8 * EPSILON * self.farthest
        self.reach = tuple(map(float, rounding))  # the terms that turn a bound of surrogate distances into a distance
        self._kept_of: slice | None = None  # the cells whose terms are kept, in `_buffer`s
        self._kept = dict[bool, Terms]()
        self._kept_products: Any = None
        self._buffers = dict[str, Array]()

    @classmethod
    def serves(cls, values: Array, device: Device, metric: Metric, queries: Array = None) -> bool:
        """Return whether the device's products prove something of such points and the search's memory is free."""
        if metric.filter != "product" or values.dtype.kind != "f" or not serves_products(values, metric, device):
            return False
        return kernels(device).products_are_precise() and cls._peak(values, device, metric, queries) < free_bytes()

    @staticmethod
    def _peak(values: Array, device: Device, metric: Metric, queries: Array = None) -> int:
        (n, d), itemsize = values.shape, values.dtype.itemsize
        copy = 0 if queries is None else (n + len(queries)) * d * itemsize
        n += copy and len(queries)
        return estimate_tiles(n, n, d, IN_ORDER, itemsize, device, metric).least + copy

    def copy(self) -> Self:
        """Return a copy with terms and buffers of its own."""
        other = copy(self)
        other._kept_of, other._kept, other._buffers = None, {}, {}
        return other

    @np.errstate(over="ignore", invalid="ignore")
    def share(self, within: float = inf) -> float:
        """Estimate the share of pairs of tiles that lists of few neighbours need, by some blocks of rows.

        If `within` is finite, the lists are of all points up to that surrogate distance. The share is 1 if places may
        be off by more than float32 holds: these tell no points apart.
        """
        xp, queries, n = self.device.xp, self.exact.queries, len(self.exact.points)
        if not self.tiles.lost < np.finfo("float32").max:
            return 1.0
        rows = xp.arange(len(queries), dtype="int32")
        task = SearchTask(rows, SHARE_NEIGHBORS, rows, rows if not self.first_query else xp.full(n, -1, "int32"))
        task = self._among_all(task)
        slots = self._slots_of(task, None)
        blocks = slots.cell_of_block.size
        some = np.arange(0, blocks, max(1, blocks // SHARE_BLOCKS))
        slots = slots.some(some, self.device)
        upper = None if within == inf else xp.full(len(queries), within)
        rows = self.kernels.put_rows(slots, task, self.slot_of, (0, 0), upper)
        if upper is None:
            self._bound_in_order(task, rows)
        boxes = self.kernels.boxes(self.places, self.errors, rows.real)
        listed = self._near_tiles(boxes, rows, self._groups_of(task, rows)[1])
        return float(listed.lengths.sum()) / (some.size * len(self.tiles.boxes))

    @cached_property
    def by_products(self) -> ProductFilter | None:
        """Return the product filter for connecting at once; None without precise products or memory for it."""
        points, device = self.points, self.device
        if FILTER_BYTES * points.size > self.free_bytes / 2:
            return None
        if device.is_gpu:
            filter_ = choose_filter(self.exact, device)
        else:  # without a projection: finding its axes takes longer than all use of this filter
            scaling = scaling_of(points, device=device)
            filter_ = filter_kernels(device).BlasFilter(points, points, self.exact, device, scaling)
        if filter_ is None or not filter_.is_of_products:
            return None
        filter_.arrange()
        return cast("ProductFilter", filter_)

    @np.errstate(over="ignore", invalid="ignore")
    def settle(self, task: SearchTask, reached: SearchState, index: Array = None) -> tuple[int, int, int]:
        """Fill the lists of a task's rows: see `ListSearch.settle`.

        If there is an `index`, only these rows of the task, which have overflowed, are searched. The first search
        bounds the rows by near points before it tests all tiles.
        """
        m, unproven, redone, room = task.rows.size, task.rows.size, -1, ROOM + 12 * task.k
        if task.k > self.exact_kernels.MAX_LIST:  # such lists are too long to be kept beside candidates
            self.scan(task, self.device.xp.arange(m, dtype="int32"), reached)
            return 0, 0, m
        among_all, columns = self._among_all(task), self.columns
        while unproven:
            slots, again, room = self._slots_of(among_all, index), redone >= 0, min(room, self.slots.rows.size)
            chunks, progress = self._chunks(slots, room), task.progress(self.progress and not again)
            for cells, part in with_progress(chunks, len(chunks), progress):
                self._search_slots(among_all, part, self._terms(columns, cells), reached, room, again)
            index = self.exact_kernels.flatnonzero(reached.top.overflowed)
            unproven, room = index.size, MORE_ROOM * room
            columns = self.fine if unproven else columns
            redone = redone if again else unproven
        return m - max(redone, 0), max(redone, 0), 0

    def _among_all(self, task: SearchTask) -> SearchTask:
        """Return the task with the numbers of its rows among all rows, and an exclusion id for each of these."""
        if not self.first_query:
            return task
        first = self.device.xp.int32(self.first_query)
        row_group = self.device.xp.concatenate((self.device.xp.zeros(self.first_query, "int32"), task.row_group))
        return replace(task, rows=task.rows + first, row_group=row_group)

    @cached_property
    def columns(self) -> Encoded:
        """Return all points in their slots, with a centre and a scale for each cell."""
        origin = self.axes.centre
        centres = centres_of_cells(self.points, self.slots, self.first_tile, origin, self.device.xp)
        largest = to_host(self.kernels.largest_differences(self.points, self.slots, origin, centres))
        exponent = np.clip(DIGITS - np.frexp(largest)[1], -MAX_EXPONENT, MAX_EXPONENT)
        scales = self.device.asarray(np.where(largest > 0, np.exp2(exponent.astype("float64")), 1.0))
        return self._encode_points(centres, scales, fine=False)

    @cached_property
    def fine(self) -> Encoded:
        """Return all points in their slots, with twice the digits."""
        return self._encode_points(self.columns.centres, self.columns.scales, fine=True)

    @cached_property
    def between(self) -> tuple[Array, Array]:
        """Return the squares of the centres' lengths, (cells,), and of the distances of all pairs, (cells, cells)."""
        return squares_between(self.columns.centres)

    def _encode_points(self, centres: Array, scales: Array, fine: bool) -> Encoded:
        """Return the points as columns of products, counted from the cells' centres and scaled by their scales."""
        y, error, length = self.kernels.encode(
            self.points, self.slots, self.axes.centre, centres, scales, fine, columns=True
        )
        most_moved, longest, squares, sizes = self.kernels.sums_of_cells(self.slots, error, length)
        if self.first_query:
            length = self.device.xp.where(self.columns_in.rows < 0, length.dtype.type(0), length)
            _, _, squares, sizes = self.kernels.sums_of_cells(self.columns_in, error, length)
        return Encoded(self.columns_in, centres, scales, y, error, length, fine, most_moved, longest, squares, sizes)

    def _slots_of(self, task: SearchTask, index: Array) -> Slots:
        """Return the task's rows, or those of an `index`, in slots; each block is of one cell.

        If minima of components are wanted, a component with many rows in a cell has blocks of its own.
        """
        if task.is_knn_graph and index is None:
            return self.slots
        rows, begins, cells = self.kernels.rows_by_cells(
            task.rows, index, self.slot_of, self.slots.cell_of_tile, self.first_tile,
            task.row_group if task.only_minima else None, self.cell_size, MIN_GROUP,
        )  # fmt: skip
        return Slots.of(rows, begins, self.device, cells, self.slots.cells)

    def _chunks(self, slots: Slots, room: int) -> list[tuple[slice, Slots]]:
        """Return ranges of cells whose terms and candidates fit into memory, with the slots of their rows."""
        columns, term_bytes = self.slots, TERM_BYTES[self.device.name]
        max_bytes = min(self.free_bytes / 3, MAX_BYTES[self.device.name])
        slot_bytes = 4 * room + term_bytes * columns.cells
        cell_bytes = (PRODUCT_BYTES + 2 * term_bytes) * columns.rows.size
        if slot_bytes * slots.rows.size + cell_bytes * columns.cells <= max_bytes:
            return [(slice(0, columns.cells), slots)]
        slot_bytes += PRODUCT_BYTES * columns.cells  # these products are not those of the cells' own centres
        ends = np.searchsorted(slots.cell_of_block, np.arange(columns.cells), side="right")  # blocks up to each
        bytes_ = slot_bytes * BLOCK * ends + cell_bytes * np.arange(1, columns.cells + 1)
        chunks, first, begin, bytes_before = [], 0, 0, 0
        while first < columns.cells:
            last = max(first + 1, int(np.searchsorted(bytes_, bytes_before + max_bytes, side="right")))
            end, bytes_before = int(ends[last - 1]), int(bytes_[last - 1])
            if begin < end:
                chunks.append((slice(first, last), slots.blocks(begin, end)))
            first, begin = last, end
        return chunks

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array in the memory of the last one of this name; to find other memory would take long."""
        size = prod(shape)
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers.pop(name, None)  # its memory serves the next one
            self._buffers[name] = self.device.xp.empty(size + size // 4, dtype)
        return self._buffers[name][:size].reshape(shape)

    def _terms(self, columns: Encoded, cells: slice) -> Terms:
        """Return the terms of the rows of some cells; those of the last cells are kept, also for the other digits."""
        if self._kept_of != cells:
            self._kept, self._kept_of = {}, cells
            slots, everyone = self.slots, slice(0, self.slots.cells)
            begin, end = (BLOCK * int(self.first_block[cell]) for cell in (cells.start, cells.stop))
            products = self._products("products", everyone, slots.rows[begin:end])
            centre_products = products
            if cells != everyone:
                centre_products = self._products("products of centres", cells, slots.rows)
            self._kept_products = begin, products, centre_products
        if columns.fine not in self._kept:
            begin, products, centre_products = self._kept_products
            eta = self.kernels.lost_by_sums(self.n_features, columns.fine)
            kind = self.kernels.TERM_TYPES[columns.fine]
            begins = self._buffer(f"begins, {columns.fine}", centre_products[0].shape, kind)
            self.kernels.put_begins(centre_products, self.between[1][cells], columns, cells, eta, begins)
            squares = squares_of_cells(self.between[0], columns)
            self._kept[columns.fine] = Terms(columns, cells.start, begin, products, begins, squares)
        return self._kept[columns.fine]

    def _products(self, name: str, cells: slice, rows: Array) -> tuple[Array, Array, Array]:
        """Return the products of some centres with the points of some slots, and the squares of either's lengths."""
        centres, xp = self.columns.centres[cells], self.device.xp
        products, norms = self._buffer(name, (len(centres), rows.size), "float64"), xp.empty(rows.size)
        for some in row_blocks(rows.size, self.n_features, CENTRED):
            w, norms[some] = self.kernels.centred(self.points, rows[some], self.axes.centre)
            xp.matmul(centres, w.T, out=products[:, some])
        return products, self.between[0][cells], norms

    def _search_slots(
        self, task: SearchTask, slots: Slots, terms: Terms, reached: SearchState, room: int, again: bool
    ) -> None:
        exact, columns, upper, minima = self.exact_kernels, terms.columns, reached.upper, reached.minima
        begin = terms.first_slot, terms.first_cell
        rows = self.kernels.put_rows(slots, task, self.slot_of, begin, upper, minima)
        groups, encoded, boxes = (rows.groups, task.point_group), columns, self.tiles.boxes
        if columns.fine or slots is not self.slots:
            own = replace(slots, rows=rows.real)
            y, error, length = self.kernels.encode(
                self.points, own, self.axes.centre, columns.centres, columns.scales, columns.fine, columns=False
            )
            encoded = replace(columns, slots=own, y=y, error=error, length=length)
            boxes = self.kernels.boxes(self.places, self.errors, rows.real)
        slot_groups, common = self._groups_of(task, rows)
        if minima is not None and not again:
            ids = self._buffer("candidates", (rows.ids.size, SAMPLED), "int32")
            listed = self._near_cells(slots, 0, common)
            some = self.kernels.sample_lists(listed, self.columns_in.rows, rows, task.point_group, ids)
            self._rerank(rows, some, groups, exact.empty_lists(rows.ids.size, 1), minima, task, for_bounds=True)

        def look(listed: Lists, bands: list[slice], for_bounds: bool = False) -> TopLists:
            lists, kind = exact.empty_lists(rows.ids.size, task.k), self.kernels.TERM_TYPES[columns.fine]
            capacity = max(room, 2 * TILE + 4 * task.k) if for_bounds else room
            for band in bands:
                plan = self.kernels.plan_band(listed, band, columns.slots)
                least = self._buffer(f"thresholds, {columns.fine}", (self.slots.cells, rows.ids.size), kind)
                self.kernels.put_thresholds(terms, rows, slots.cell_of_tile, self.reach, self.rounding, plan, least)
                ids = self._buffer("candidates", (rows.ids.size, capacity), "int32")
                sums, both = (least, terms.begins, rows.cells), (rows.groups, slot_groups)
                into = self.kernels.append(encoded, columns, sums, listed, band, plan, both, ids, columns.fine)
                self._rerank(rows, into, None, lists, minima, task, for_bounds)  # none is of the row's exclusion id
            return lists

        if minima is None and not again:
            self._bound_in_order(task, rows)
            near_cells = self._near_cells(slots, DEVIATIONS, common)
            bands = geometric_slices(FIRST_NEAR + 4 * task.k // TILE, near_cells.longest, GROWTH)
            look(near_cells, bands, for_bounds=True)
        listed = self._near_tiles(boxes, rows, common, terms)
        pairs, formed = slots.cell_of_block.size * len(self.tiles.boxes), listed.lengths.sum()
        stage = "connect" if task.only_minima else "neighbors"
        self.report.count(stage, tile_pairs=pairs, tile_pairs_formed=formed)
        growth = GROWTH if minima is None else GROWTH_OF_MINIMA
        lists = look(listed, geometric_slices(FIRST_BAND, listed.longest, growth))
        exact.put_lists(reached, slots.rows, rows.bound, lists)

    def _rerank(
        self,
        rows: Rows,
        candidates: Candidates,
        groups: Groups | None,
        lists: TopLists,
        minima: Array,
        task: SearchTask,
        for_bounds: bool = False,
    ) -> None:
        """Insert candidates into the lists of rows, and tighten their bounds, by their components' `minima` if given.

        If `for_bounds`, lists may hold upper bounds of the candidates' weights, since only the rows' bounds are wanted.
        """
        ids, bound, core = rows.ids, rows.bound, task.core
        if for_bounds:
            self.kernels.bound_rows(self.rows, self.points, self.axes.unit, ids, candidates, groups, bound, lists, core)
        else:
            self.kernels.rerank(self.rows, ids, candidates, groups, bound, lists, core)
        if minima is not None:  # a minimum bounds many rows at once; empty slots' lists have no finite weight
            self.exact_kernels.scatter_min(minima, rows.groups, lists.weights)
            self.device.xp.minimum(rows.bound, minima[rows.groups], out=rows.bound)

    def _groups_of(self, task: SearchTask, rows: Rows) -> tuple[Array, CommonGroups]:
        """Return each slot's exclusion id, and the ids that blocks of rows and tiles of points share."""
        if task.is_knn_graph:
            return self.slots.rows, None
        slot_groups, tile_groups = self.kernels.groups_of_slots(self.columns_in.rows, task.point_group, TILE)
        return slot_groups, (self.kernels.groups_of_slots(rows.real, task.row_group, BLOCK)[1], tile_groups)

    def _bound_in_order(self, task: SearchTask, rows: Rows) -> None:
        """Tighten the rows' bounds by the distances of their neighbours in the order."""
        groups = rows.groups, task.point_group
        width = min(self.order.size, max(IN_ORDER, 4 * task.k))
        top = self.exact_kernels.empty_lists(rows.ids.size, task.k)
        candidates = self.kernels.near_in_order(rows.ids, self.position_of, self.order, width, groups)
        self._rerank(rows, candidates, groups, top, None, task, for_bounds=True)

    def _near_tiles(self, row_boxes: Array, rows: Rows, common: CommonGroups, terms: Terms | None = None) -> Lists:
        """Return the tiles that may have a point within the bound of a row of each block, by boxes, places and cells.

        Cells are looked at if places leave features out, and if the `terms` of these rows are at hand.
        """
        balls = None
        if terms is not None and self.n_features > AXES:
            balls = Balls(terms.products, rows.in_terms, terms.columns, self.rounding, (1 + 1e-12) / self.axes.stretch)
        reach = self.kernels.reach(rows.bound, self.reach, self.axes.stretch)
        return self.kernels.near_tiles(row_boxes, self.tiles, rows.where, reach, common, balls)

    def _near_cells(self, slots: Slots, deviations: float, common: CommonGroups) -> Lists:
        """Return the tiles of two near cells for each block of rows."""
        between, size = self.between[1], self.cell_size // TILE
        return self.kernels.near_cells(
            slots.cell_of_tile, between, self.columns, self.first_tile, size, deviations, common
        )

"""Trees of boxes over points, `kdtree.py` on a CPU and `bvh.py` on a GPU; by a sample, which points suit them; boxes.

The sample shows whether their dimension is high, and how near each other they are.

A sample is evenly spread, but at no distance that could be that of a pattern, such as noise in each tenth row.

Of points in D dimensions a ball that is twice as wide holds 2^D times as many (Karger and Ruhl 2002). A mean over balls
also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show clusters
of high dimension if each has many points in the sample.
"""

from typing import Any

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.task import golden_stride, row_blocks
from rapids_slink.runtime.cuda import WARP, check_arrays, constant, launch, launch_blocks, value_option
from rapids_slink.runtime.device import Array, Device, to_host

SOURCE, FACING = (f"neighbors/trees/{name}.cu" for name in ("dimension", "facing"))
#: Balls, and the points of the sample.
BALLS, POINTS, THREADS = (constant(SOURCE, name) for name in ("BALLS", "POINTS", "THREADS"))
#: Points whose nearest is found among all, points by which a mean is estimated, and the values that are read at once.
SOME, OF_MEAN, AT_ONCE = 2**6, 2**10, 2**26
SHARES = 16  # blocks of threads that share the others of a point
FACING_ROWS = 2**12  # whose boxes a CPU's thread looks for at a time
#: Parts of a group of rows, at most, of which a GPU makes boxes, and rows of a part, about, at least.
MAX_PARTS, PART_ROWS, BOX_THREADS = 64, 8, constant(FACING, "BOX_THREADS")


def expansion(values: Array, device: Device, times: float = 2) -> float:
    """The share of a sample of (n, d) points, at least `POINTS`, within some `times` the distance to the nearest.

    It is the mean over the sample's rows, by Euclidean distances, whatever the metric.
    """
    n, d = values.shape
    if device.is_gpu:
        check_arrays(values.dtype, values)
        within = device.xp.empty(BALLS, "int32")
        arguments = values, np.int64(n), np.int32(d), np.int64(golden_stride(n)), np.float64(times**2), within
        launch_blocks(SOURCE, "count_within", (BALLS,), THREADS, *arguments, options=(value_option(values.dtype),))
        return float(to_host(within).sum()) / (BALLS * POINTS)
    from rapids_slink.neighbors.exact.cpu import distances_between

    order = np.arange(POINTS + BALLS) * golden_stride(n) % n
    points, centres = np.split(order.astype("int32"), [POINTS])
    squares = distances_between(values, centres, points)
    squares[centres[:, None] == points] = np.inf
    return float((squares <= times**2 * squares.min(axis=1)[:, None]).mean())


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # then no point seems near
def nearest_by_spread(values: Array, device: Device) -> float:
    """How far the nearest of (n, d) points is, the median of some, by the root mean square distance from the mean.

    About 1 for noise of many features, and next to nothing for points in tiny clusters. By Euclidean distances in
    float32, whatever the metric.
    """
    sample = _sample(values, min(len(values), OF_MEAN), device).astype("float64")
    mean = sample.mean(axis=0)
    per_spread = np.sqrt(len(sample) / ((sample - mean) ** 2).sum())
    some = ((sample[:SOME] - mean) * per_spread).astype("float32")
    least = _least_squares_on_gpu if device.is_gpu else _least_squares
    squares = np.nan_to_num(least(values, some, mean, per_spread, device), nan=np.inf)
    return float(np.sqrt(max(np.median(squares), 0)))


def _sample(values: Array, size: int, device: Device) -> Any:
    """The first points of a sample, on the host."""
    n, d = values.shape
    if not device.is_gpu:
        return values[np.arange(size) * golden_stride(n) % n]
    check_arrays(values.dtype, values)
    out, options = device.xp.empty((size, d), values.dtype), (value_option(values.dtype),)
    arguments = values, np.int32(d), np.int64(n), np.int64(golden_stride(n)), np.int64(size), out
    launch(SOURCE, "gather_sample", out.size, *arguments, options=options)
    return to_host(out)


def _least_squares(values: Array, some: Array, mean: Array, per_spread: float, _: Device) -> Array:
    """The squares of the distances of some points from the nearest others, all scaled as `some` are."""
    (n, d), norms = values.shape, (some * some).sum(axis=1)
    least, at = np.full(SOME, np.inf, "float32"), np.arange(SOME) * golden_stride(n) % n
    for rows in row_blocks(n, d, AT_ONCE):
        others = ((values[rows] - mean) * per_spread).astype("float32")
        squares = norms[:, None] + (others * others).sum(axis=1) - 2 * (some @ others.T)
        squares[at[:, None] == np.arange(rows.start, rows.stop)] = np.inf
        np.minimum(least, squares.min(axis=1), out=least)
    return least


def _least_squares_on_gpu(values: Array, some: Array, mean: Array, per_spread: float, device: Device) -> Array:
    """The results of `_least_squares`, in which negative ones, of rounding, are 0."""
    check_arrays(values.dtype, values)
    xp, (n, d), options = device.xp, values.shape, (value_option(values.dtype),)
    least, centre, queries = (
        device.asarray(np.full(SOME, np.inf, "float32")),
        device.asarray(mean),
        device.asarray(some),
    )
    own = device.asarray((some * some).sum(axis=1))
    for rows in row_blocks(n, d, AT_ONCE):
        m = rows.stop - rows.start
        others, norms = xp.empty((m, d), "float32"), xp.empty(m, "float32")
        arguments = values[rows], np.int32(d), np.int64(m), centre, np.float64(per_spread), others, norms
        launch(SOURCE, "scale_points", m * WARP, *arguments, options=options)
        products = xp.matmul(queries, others.T)
        sizes = map(np.int64, (rows.start, m, n, golden_stride(n)))
        launch_blocks(
            SOURCE, "lower_least", (SOME, SHARES), THREADS, products, own, norms, *sizes, least, options=options
        )
    return to_host(least)


def boxes_of_groups(
    rows: Array, bound: Array, group: Array, groups: int, device: Device
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least and the greatest value of each column in groups of (n, d) rows, and the largest bound of theirs.

    `bound` is (n,) float64 and `group` (n,) int32. The result is float64 on the host: two (groups, d) arrays and
    (groups,). A group without rows has infinity, -infinity and -infinity.
    """
    xp, d = device.xp, rows.shape[1]
    order = xp.argsort(group, kind="stable") if not device.is_gpu else xp.argsort(group)
    start = xp.searchsorted(group[order], xp.arange(groups + 1))
    if device.is_gpu:
        check_arrays(rows.dtype, rows)
        check_arrays("float64", bound)
        check_arrays("int64", order, start)
        parts = max(1, min(MAX_PARTS, len(rows) // (PART_ROWS * groups)))
        low, high = xp.empty((2, groups, parts, d + 1))
        arguments = rows, np.int32(d), bound, order, start, low, high
        launch_blocks(
            FACING, "box_groups", (groups, parts), BOX_THREADS, *arguments, options=(value_option(rows.dtype),)
        )
        low, high = to_host(low.min(axis=1)), to_host(high.max(axis=1))
        return low[:, :d].copy(), high[:, :d].copy(), high[:, d].copy()
    low, high, largest = np.full((groups, d), np.inf), np.full((groups, d), -np.inf), np.full(groups, -np.inf)
    filled = np.flatnonzero(start[1:] > start[:-1])
    in_order, begins = rows[order], start[filled]
    low[filled], high[filled] = np.minimum.reduceat(in_order, begins), np.maximum.reduceat(in_order, begins)
    largest[filled] = np.maximum.reduceat(bound[order], begins)
    return low, high, largest


def facing_blocks(
    rows: Array,
    cell_of_row: Array,
    bound: Array,
    low: Array,
    high: Array,
    limit: Array,
    block_of_cell: Array,
    bit_of_cell: Array,
    own: int,
    metric: Metric,
    device: Device,
) -> Array:
    """The bits of the cells whose boxes are near each row, (n,) uint32, without those of its own block.

    A box is near if its least surrogate distance is within the larger of the row's bound and the limit of both cells.
    That is a lower bound for the points inside, as they are computed (`tree.box_to_box`).

    Parameters
    ----------
    rows : (n, d) array
        As `neighbors.rows.metric_rows` makes them, of a metric whose distances boxes bound.
    cell_of_row : (n,) int32 array
    bound : (n,) float64 array
    low, high : (cells, d) float64 arrays
        The lowest and the highest value of each column, of the boxes.
    limit : (cells of rows, cells) float64 array
    block_of_cell, bit_of_cell : (cells,) int32 arrays
        Bits are below 32.
    own : int
        The block of the rows.
    """
    (n, d), cells = rows.shape, block_of_cell.size
    bits, of_cells = device.xp.empty(n, "uint32"), (low, high, limit, block_of_cell, bit_of_cell)
    if not device.is_gpu:
        from rapids_slink.neighbors.trees.tree import find_facing
        from rapids_slink.runtime.threads import for_each_chunk

        def look(some: slice) -> None:
            of_rows = rows[some], cell_of_row[some], bound[some]
            find_facing(metric.cpu_formula, *of_rows, *of_cells, own, bits[some])

        for_each_chunk(device, look, row_blocks(n, 1, FACING_ROWS))
        return bits
    check_arrays(rows.dtype, rows)
    check_arrays("float64", bound, low, high, limit)
    check_arrays("int32", cell_of_row, block_of_cell, bit_of_cell)
    sizes, options = (np.int32(d), np.int64(n)), (value_option(rows.dtype), *metric.cuda_options)
    arguments = *of_cells, np.int32(cells), np.int32(own), bits
    launch(FACING, "facing_blocks", n, rows, *sizes, cell_of_row, bound, *arguments, options=options)
    return bits

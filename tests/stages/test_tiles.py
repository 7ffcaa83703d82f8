"""The search in tiles of near points: its order, its bounds, and when it serves."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hard_cases import combinations, full
from oracles import assert_lists, assert_neighbors, least, squared_distances, without_self
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

import rapids_slink
from rapids_slink.forced import force
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import choose, neighbor_lists, prepare_search, tiles
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import accumulation_bound
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchState, SearchTask, golden_stride
from rapids_slink.neighbors.tiles import TileSearch, order
from rapids_slink.neighbors.tiles.order import BLOCK, TILE, Lists, kernels
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, cuda, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, run_scope


def nested(rng, n, d):
    """Clusters in clusters in clusters, each level a thousand times as small."""
    size = round(n ** (1 / 3)) + 1
    points = np.zeros((1, d))
    for scale in (1, 1e-3, 1e-6):
        points = np.repeat(points, size, axis=0) + scale * rng.normal(size=(len(points) * size, d))
    return rng.permutation(points)[:n]


def line(rng, n, d):
    """Clusters of 500 along a line."""
    at = 50 * (np.arange(n) // 500)[:, None]
    return rng.permutation(at * np.eye(d)[0] + rng.normal(size=(n, d)))


def core(rng, n, d):
    """A dense core amid a wide cloud."""
    return rng.permutation(np.vstack((rng.normal(size=(n // 2, d)), 1e5 * rng.normal(size=(n - n // 2, d)))))


def sheet(rng, n, d):
    """A plane with noise in all features."""
    return rng.random((n, 2)) @ rng.normal(size=(2, d)) + 1e-4 * rng.normal(size=(n, d))


def pairs_of_clusters(rng, n, d):
    """Two clusters a hair's breadth apart, for their distance from the others."""
    centres = np.repeat(1e4 * rng.normal(size=(-(-n // 1000), d)), 2, axis=0)
    centres[1::2, 0] += 1e-3
    return np.repeat(centres, 500, axis=0)[:n] + 1e-4 * rng.normal(size=(n, d))


FAMILIES = [nested, line, core, sheet, pairs_of_clusters]
by_family = pytest.mark.parametrize("points", FAMILIES, ids=lambda family: family.__name__)


def search_of(X, engine, report=None, metric=EUCLIDEAN):
    report = Report() if report is None else report
    return TileSearch(engine.asarray(np.ascontiguousarray(X)), engine, report, metric=metric)


# ------------------------------------------------------------------------------------------------------------- order


@by_family
def test_places_are_no_farther_apart_than_their_points(points):
    X = points(np.random.default_rng(0), 600, 40)
    axes = order.Axes.of(X, CPU)
    places, errors, farthest, error = axes.places(X)
    assert places.shape == (600, order.AXES + 1)
    assert farthest == pytest.approx(np.sqrt((places**2).sum(axis=1)).max())
    assert error == errors.max()
    lost = 2 * (errors[:, 0].max() * order.AXES**0.5 + errors[:, 1].max())
    assert (pdist(places) <= pdist(X) * axes.stretch + lost).all()
    assert pdist(places).max() > 0.5 * axes.unit * pdist(X).max()  # they tell something


@by_family
def test_slots_hold_each_row_once_and_blocks_are_of_one_cell(points, engine):
    search = search_of(points(np.random.default_rng(1), 9000, 20), engine)
    slots = search.slots
    rows, cells = to_host(slots.rows), to_host(slots.cell_of_tile)
    np.testing.assert_array_equal(np.sort(rows[rows >= 0]), np.arange(9000))
    assert rows.size % BLOCK == 0
    assert (cells[::2] == cells[1::2]).all()
    np.testing.assert_array_equal(np.unique(cells), np.arange(slots.cells))
    assert (np.diff(cells) >= 0).all()
    assert np.bincount(cells).max() * TILE <= search.cell_size
    np.testing.assert_array_equal(rows[to_host(search.slot_of)], np.arange(9000))


def test_clusters_far_apart_share_no_block(engine):
    rng = np.random.default_rng(2)
    cluster = np.repeat(np.arange(5), 3000)
    X = rng.normal(size=(15_000, 30)) + 1000 * rng.normal(size=(5, 30))[cluster]
    rows = to_host(search_of(X, engine).slots.rows).reshape(-1, BLOCK)
    assert all(np.unique(cluster[block[block >= 0]]).size == 1 for block in rows)


# ------------------------------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "size", "d"), [(1, 1, 3), (90, 90, 33), (300, 300, 33), (5000, 700, 70)])
def test_kernel_of_samples(n, size, d, dtype, engine):
    X = (5 + 1e3 * np.random.default_rng(n).normal(size=(n, d))).astype(dtype)
    X[:, ::5] = np.rint(X[:, ::5] / 1e3)  # equal values
    sample, centre, unit = order.centred_sample(engine.asarray(X), size, engine.xp)
    some = X[np.arange(size) * order.sample_stride(n, size) % n].astype(float)
    ranked = np.sort(some[:: max(1, size // 127)][:127], axis=0)
    np.testing.assert_array_equal(to_host(centre), ranked[min(size, 127) // 2])
    np.testing.assert_array_equal(to_host(sample), some - to_host(centre))
    assert n == 1 or 0.5 <= abs(to_host(sample)).max() * unit < 1
    assert np.unique(some, axis=0).shape[0] == size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "m"), [(1, 5, 5), (303, 16, 16), (4099, 70, 16), (50, 1, 1), (130, 17, 16)])
def test_kernel_of_places(n, d, m, dtype, engine):
    rng = np.random.default_rng(d)
    X, centre = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=d)
    axes = np.linalg.qr(rng.normal(size=(d, m)))[0].T
    places, errors, farthest, error = kernels(engine).places_of_points(
        *map(engine.asarray, (X, centre)), 0.25, engine.asarray(np.ascontiguousarray(axes)), 1e-14
    )
    places, errors = to_host(places), to_host(errors)
    w = (X.astype(np.longdouble) - centre) / 4
    on_axes, square = w @ axes.T, (w * w).sum(axis=1)
    rest = np.sqrt(np.maximum(square - (on_axes**2).sum(axis=1), 0)) if m < d else np.zeros(n)
    assert (abs(places[:, :m] - on_axes) <= errors[:, :1]).all()
    assert (abs(places[:, m] - rest) <= errors[:, 1]).all()
    assert errors.max() < 1e-5
    assert (errors[:, 1] == 0).all() == (m == d)
    assert farthest == pytest.approx(np.sqrt((places**2).sum(axis=1)).max(), rel=1e-12)
    assert error == errors.max()


@pytest.mark.parametrize("m", [3, 16])
def test_places_of_points_whose_lengths_overflow(m, engine):
    """They are at the origin, and may be anywhere: nothing is NaN, and boxes with them are infinite."""
    X = np.random.default_rng(0).normal(size=(TILE, m if m == 3 else 40))
    X[5], X[9, 0] = -1e152, 1e150
    axes = engine.asarray(np.ascontiguousarray(np.eye(X.shape[1])[:m]))
    with np.errstate(over="ignore", invalid="ignore"):  # as searches do
        placed = kernels(engine).places_of_points(engine.asarray(X), engine.xp.zeros(X.shape[1]), 2.0**10, axes, 1e-14)
    places, errors, farthest, error = map(to_host, placed)
    assert (places[5] == 0).all()
    assert (errors[5] == [np.inf, 0 if m == 3 else np.inf]).all()
    assert farthest == error == np.inf
    assert places[9, 0] == 2.0**10 * 1e150
    others = np.delete(np.arange(TILE), 5)
    assert np.isfinite(places[others]).all()
    assert np.isfinite(errors[others]).all()
    boxes = to_host(kernels(engine).boxes(*placed[:2], engine.xp.arange(TILE, dtype="int32")))
    assert (boxes[0, 0, :m] == -np.inf).all()
    assert (boxes[0, 1, :m] == np.inf).all()


@pytest.mark.parametrize("n", [1, 40, 3000])
def test_kernel_of_orders(n, engine):
    rng = np.random.default_rng(n)
    begins = np.sort(rng.permutation(500)[: min(n, 30)])
    leaf, breaks = np.concatenate((begins, rng.choice(begins, n - begins.size))), np.zeros(501, "int32")
    leaf = rng.permutation(leaf).astype(np.int32)
    breaks[begins[1::3]] = 1
    given = engine.asarray(leaf), engine.asarray(breaks if engine.is_gpu else breaks > 0)
    in_order, position_of, at = order.order_by_leaf(*given, engine.xp)
    expected = np.argsort(leaf, kind="stable")
    np.testing.assert_array_equal(to_host(in_order), expected)
    np.testing.assert_array_equal(to_host(position_of)[expected], np.arange(n))
    first = np.concatenate(([True], np.diff(leaf[expected]) > 0))
    np.testing.assert_array_equal(at, [i for i in np.flatnonzero(first) if i == 0 or breaks[leaf[expected[i]]]])


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("of_groups", [0, 1, 3, 200])
@pytest.mark.parametrize("n", [1, 9000])
def test_kernel_of_rows_by_cells(n, of_groups, some, engine):
    """Each row once, by cell, group and slot; blocks begin at other cells, and beside groups of many rows."""
    rng, many = np.random.default_rng(n), 64
    slot_of = rng.permutation(20 * TILE * -(-n // 2000))[:n].astype(np.int32)
    first_tile = np.concatenate(([0], np.cumsum(rng.integers(1, 9, 200)))).astype(np.int32)
    cell_of_tile = np.repeat(np.arange(200), np.diff(first_tile)).astype(np.int32)
    group = rng.geometric(1 / max(of_groups, 1), n).astype(np.int32) * 10**5
    rows = rng.permutation(n)[: -(-n // 2)].astype(np.int32)
    index = rng.permutation(rows.size)[::2].astype(np.int32) if some else None
    given = rows, index, slot_of, cell_of_tile, first_tile, group if of_groups else None
    on_device = [None if part is None else engine.asarray(part) for part in given]
    found, begins, cells = kernels(engine).rows_by_cells(*on_device, 1024, many)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels(engine), "FEW", 3, raising=False)  # as if there were too many runs for one copy
        np.testing.assert_array_equal(kernels(engine).rows_by_cells(*on_device, 1024, many)[1], begins)
    found, own = to_host(found), rows[to_host(found)]
    np.testing.assert_array_equal(np.sort(found), np.arange(rows.size) if index is None else np.sort(index))
    cell, group = cell_of_tile[slot_of[own] // TILE], group if of_groups else np.zeros(n, np.int32)
    np.testing.assert_array_equal(np.lexsort((slot_of[own], group[own], cell)), np.arange(own.size))
    part = np.unique(np.stack((cell, group[own])), axis=1, return_inverse=True)[1].ravel()
    size = np.bincount(part)[part]
    next_cell, is_large = np.diff(cell) != 0, np.maximum(size[1:], size[:-1]) >= many
    expected = np.flatnonzero(np.concatenate(([True], next_cell | ((np.diff(part) != 0) & is_large))))
    np.testing.assert_array_equal(begins, expected)
    np.testing.assert_array_equal(cells, cell[expected])


def test_keys_of_rows_have_63_bits(engine):
    none = engine.xp.zeros(1, "int32")
    first_tile = engine.xp.zeros(2**12 + 1, "int32")
    assert kernels(engine).rows_by_cells(none, None, none, none, first_tile, None, 2**20, 9)[1].tolist() == [0]
    with pytest.raises(AssertionError, match="4096 cells of 2097152 slots have no keys of 63 bits"):
        kernels(engine).rows_by_cells(none, None, none, none, first_tile, None, 2**21, 9)


@pytest.mark.parametrize("begins", [[0], [0, 1, 700, 956], [0, 256, 3000]])
def test_kernel_of_slots(begins, engine):
    """Runs begin at blocks of their own; `some` has the same blocks again."""
    rows, slot_of = np.random.default_rng(0).permutation(4000).astype(np.int32), engine.xp.empty(4000, "int32")
    slots = order.Slots.of(engine.asarray(rows), np.array(begins), engine, slot_of=slot_of)
    found, first, cells = to_host(slots.rows), 0, []
    for begin, end in zip(begins, [*begins[1:], 4000], strict=True):
        size = -(-(end - begin) // BLOCK) * BLOCK
        np.testing.assert_array_equal(found[first : first + end - begin], rows[begin:end])
        assert (found[first + end - begin : first + size] == -1).all()
        cells.extend(np.arange(size // BLOCK) // 4 + (cells[-1] + 1 if cells else 0))
        first += size
    assert found.size == first
    np.testing.assert_array_equal(slots.cell_of_block, cells)
    np.testing.assert_array_equal(to_host(slots.cell_of_tile), np.repeat(cells, 2))
    assert slots.cells == cells[-1] + 1
    np.testing.assert_array_equal(found[to_host(slot_of)], np.arange(4000))
    blocks = np.arange(0, len(cells), 3)
    some = slots.some(blocks, engine)
    np.testing.assert_array_equal(to_host(some.rows), found.reshape(-1, BLOCK)[blocks].ravel())
    np.testing.assert_array_equal(to_host(some.cell_of_tile), np.repeat(some.cell_of_block, 2))


@pytest.mark.parametrize("with_balls", [False, True])
@pytest.mark.parametrize(
    ("n", "n_tiles", "m", "with_groups"),
    [
        (1, 4, 4, False), (1, 4, 4, True), (2900, 24, 17, False), (2900, 24, 9, True), full(1500, 280, 4, False),
        full(1500, 280, 4, True),
    ],
)  # fmt: skip
def test_kernel_of_near_tiles(n, n_tiles, m, with_groups, with_balls, engine):
    """All tiles with a point in reach of a row's place are listed, none whose box is not in reach of the block's.

    Nor those of cells of four tiles whose balls are in reach of none of the block's rows.
    """
    rng, of = np.random.default_rng(n), kernels(engine)
    places, errors = rng.normal(size=(n, m)) * np.where(np.arange(m) < 4, 1, 0.01), np.full((n, 2), 1e-3)
    places = places[np.argsort(places[:, 0])]
    slots = np.full(n_tiles * TILE, -1, np.int32)
    slots[np.sort(rng.permutation(slots.size)[:n])] = np.arange(n)
    bound = np.where(slots >= 0, 0.2 * rng.random(slots.size), -1.0)
    bound[2 * BLOCK : 3 * BLOCK] = -1
    of_rows, of_blocks = np.float32(bound * 1.001), bound.reshape(-1, BLOCK).max(axis=1)
    groups = [rng.integers(-1, 2, slots.size // size).astype(np.int32) for size in (BLOCK, TILE)]
    boxes = of.boxes(*map(engine.asarray, (places, errors, slots)))
    in_slots = order.places_of_slots(*map(engine.asarray, (places, slots)), engine.xp)
    where = np.arange(slots.size, dtype="int32")
    reach = order.Reach(engine.asarray(of_rows), engine.asarray(of_blocks))
    common = tuple(map(engine.asarray, groups)) if with_groups else None
    at, balls, centres, cell = engine.asarray(where), None, rng.normal(size=(n_tiles // 4, m)), np.arange(n_tiles) // 4
    norms, x = (centres**2).sum(axis=1), places[np.maximum(slots, 0)]
    from_centres = np.where(slots >= 0, cdist(centres, x), 0)
    own_cell = np.arange(slots.size) // (4 * TILE) == np.arange(len(centres))[:, None]
    radius = np.where(own_cell, from_centres, 0).max(axis=1)
    if with_balls:
        scales = 2.0 ** np.arange(len(centres))
        parts = centres @ x.T, norms, (x**2).sum(axis=1), 0.5 * radius * scales, 0.5 * radius * scales, scales
        *products, moved, length, scale = map(engine.asarray, parts)
        encoded = SimpleNamespace(
            slots=SimpleNamespace(cell_of_tile=engine.asarray(cell.astype(np.int32))),
            largest_error=moved, largest_length=length, scales=scale,
        )  # fmt: skip
        balls = order.Balls(tuple(products), at, encoded, 1e-9, 1 / 1.001)
    points = order.PlacedTiles(boxes, order.turned(boxes, engine.xp), in_slots, 1e-2)
    listed = of.near_tiles(boxes, points, at, reach, common, balls)
    begins, ends, tiles = (to_host(part) for part in (listed.begins, listed.ends, listed.tiles))
    edges = to_host(boxes)
    np.testing.assert_array_equal(to_host(in_slots), places[np.maximum(slots, 0)].T.astype(np.float32))
    np.testing.assert_array_equal(listed.lengths, ends - begins)
    assert listed.longest == (ends - begins).max()
    stride, distance = golden_stride(len(edges)), cdist(places, places)
    for b in range(slots.size // BLOCK):
        rows, found = slice(b * BLOCK, (b + 1) * BLOCK), tiles[begins[b] : ends[b]]
        position = found * pow(stride, -1, len(edges)) % len(edges) if len(edges) > 1 else found
        assert (np.diff(position) > 0).all()
        own, box = slots[rows], edges[2 * b : 2 * b + 2]
        lowest, highest = box[:, 0].min(axis=0), box[:, 1].max(axis=0)
        within = bound[rows][own >= 0, None]
        for t in range(len(edges)):
            theirs = slots[t * TILE : (t + 1) * TILE]
            near = (distance[np.ix_(own[own >= 0], theirs[theirs >= 0])] <= within).any()
            gap = np.maximum(np.maximum(edges[t, 0] - highest, lowest - edges[t, 1]), 0)
            same = with_groups and groups[0][b] >= 0 and groups[0][b] == groups[1][t]
            may_be = of_blocks[b] >= 0 and (gap**2).sum() <= of_blocks[b] ** 2
            if with_balls:
                beyond = from_centres[cell[t], rows][own >= 0] - radius[cell[t]]
                may_be &= (beyond <= within[:, 0] + 1e-4).any()
            assert (near and not same) <= (t in found) <= (may_be and not same)


@pytest.mark.parametrize("with_bounds", [False, True])
def test_kernel_of_rows_in_slots(with_bounds, engine):
    rng, of = np.random.default_rng(0), kernels(engine)
    slots = np.where(rng.random(2 * BLOCK) < 0.9, 1, -1).astype(np.int32)
    slots[0] = 1
    m = int((slots > 0).sum())
    slots[slots > 0] = rng.permutation(m)
    rows, slot_of, group = (rng.permutation(1000).astype(np.int32) for _ in range(3))
    group, rows, cell = group // 100, rows[:m], np.repeat(np.array([5, 7], np.int32), 2)
    upper, least = (rng.random(size) if with_bounds else None for size in (m, 10))
    given = order.Slots(engine.asarray(slots), engine.asarray(cell), cell[::2], 9)
    arrays = [None if part is None else engine.asarray(part) for part in (upper, least)]
    rows_on_device, group_on_device, slot_of_row = map(engine.asarray, (rows, group, slot_of))
    put = of.put_rows(given, SearchTask(rows_on_device, 1, group_on_device, None), slot_of_row, (11, 5), *arrays)
    found, real = type(put)(*map(to_host, put)), slots >= 0
    np.testing.assert_array_equal(found.ids[real], rows[slots[real]])
    assert np.isin(found.ids, rows).all()
    np.testing.assert_array_equal(found.real, np.where(real, found.ids, -1))
    np.testing.assert_array_equal(found.groups, group[found.ids])
    np.testing.assert_array_equal(found.where, slot_of[found.ids])
    np.testing.assert_array_equal(found.in_terms, found.where - 11)
    np.testing.assert_array_equal(found.cells, cell - 5)
    bound = np.minimum(upper[slots], least[found.groups]) if with_bounds else np.full(slots.size, np.inf)
    np.testing.assert_array_equal(found.bound, np.where(real, bound, -np.inf))
    for k in (1, 5):
        exact = exact_kernels(engine)
        top, lists, bounds = exact.empty_lists(m, k), exact.empty_lists(slots.size, k), engine.xp.zeros(m)
        lists.ids[...], lists.weights[...] = (engine.asarray(rng.integers(0, 99, (slots.size, k))) for _ in range(2))
        lists.overflowed[...] = engine.asarray(rng.random(slots.size) < 0.5)
        exact.put_lists(SearchState(bounds, top), given.rows, put.bound, lists)
        place = np.argsort(np.where(real, slots, m), kind="stable")[:m]
        np.testing.assert_array_equal(to_host(bounds), found.bound[place])
        for to, part in ((top.ids, lists.ids), (top.weights, lists.weights), (top.overflowed, lists.overflowed)):
            np.testing.assert_array_equal(to_host(to), to_host(part)[place])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("metric", "d", "k", "scale"), [
    ("euclidean", 1, 1, 1.0), ("euclidean", 50, 8, 1e-30), ("euclidean", 70, 40, 1e30), ("cosine", 9, 5, 1.0),
])  # fmt: skip
@pytest.mark.parametrize("with_core", [False, True])
def test_kernel_of_bounds(metric, d, k, scale, with_core, dtype, engine):
    """No bound is below the weight of the k-th candidate of another group, and hardly any above; bounds only fall."""
    rng, n, width = np.random.default_rng(d), 400, 75
    X = engine.asarray((scale * rng.normal(size=(n, d))).astype(dtype))
    metric = get_metric(metric)
    search = TileSearch(metric_rows(metric, X, engine), engine, Report(), metric=metric)
    rows, group = rng.integers(0, n, 2 * n).astype(np.int32), rng.integers(0, 9, n).astype(np.int32)
    ids, count = rng.permuted(np.tile(np.arange(n), (2 * n, 1)), axis=1)[:, :width], rng.integers(0, 99, 2 * n)
    weights = to_host(exact_kernels(engine).all_distances(search.exact.points, metric))
    core = np.quantile(weights, 0.1) * rng.random(n) if with_core else np.zeros(n)
    weights = np.maximum(weights, np.maximum(core, core[:, None]))[rows[:, None], ids]
    near = (np.arange(width) < count[:, None]) & (group[ids] != group[rows][:, None])
    if not engine.is_gpu:  # a GPU looks at the groups, and past the others' place
        ids = np.take_along_axis(ids, np.argsort(~near, axis=1, kind="stable"), axis=1)
    numbers = near.sum(axis=1) if not engine.is_gpu else count
    upper = np.where(rng.random(2 * n) < 0.5, np.inf, np.median(weights))
    given = [engine.asarray(np.ascontiguousarray(part, np.int32)) for part in (rows, ids, numbers)]
    bound, lists = engine.asarray(upper.copy()), exact_kernels(engine).empty_lists(2 * n, k)
    on_device = engine.asarray(group[rows]), engine.asarray(group)
    candidates, cores = Candidates(given[1], given[2]), engine.asarray(core) if with_core else None
    own = search.exact, search.points, search.axes.unit, given[0]
    kernels(engine).bound_rows(*own, candidates, on_device, bound, lists, cores)
    in_reach = np.sort(np.where(near, weights, np.inf), axis=1)[:, k - 1]
    expected = np.minimum(upper, in_reach)
    bound = to_host(bound)
    assert (bound >= expected).all()
    assert (bound <= upper).all()
    tight = in_reach < upper * (1 - 1e-5)
    assert tight.sum() > n / 2
    np.testing.assert_allclose(bound[tight], expected[tight], rtol=1e-5)


@pytest.mark.parametrize(("n", "width"), [(1, 1), (50, 9), (1000, 33)])
def test_kernel_of_neighbours_in_the_order(n, width, engine):
    rng = np.random.default_rng(n)
    in_order, ids = rng.permutation(n).astype(np.int32), rng.integers(0, n, 2 * n).astype(np.int32)
    position_of, group = np.argsort(in_order).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    groups = engine.asarray(group[ids]), engine.asarray(group)
    near = kernels(engine).near_in_order(*map(engine.asarray, (ids, position_of, in_order)), width, groups)
    for row, listed, count in zip(ids, to_host(near.ids), to_host(near.count), strict=True):
        first = min(max(position_of[row] - width // 2, 0), n - width)
        expected = in_order[first : first + width]
        if not engine.is_gpu:  # a GPU's `rerank` leaves out those of the row's group
            expected = np.where(group[expected] != group[row], expected, -1)
        np.testing.assert_array_equal(listed[:count], expected)


def test_kernel_of_samples_of_lists(engine):
    """Rows have some points of each tile of their block's list, and empty slots none."""
    rng, of, size = np.random.default_rng(0), kernels(engine), 16
    slots = np.where(rng.random(12 * TILE) < 0.9, rng.permutation(12 * TILE), -1).astype(np.int32)
    group = rng.integers(0, 4, slots.size).astype(np.int32)
    begins, ends, tiles = np.array([3, 0, 4, 9]), np.array([7, 0, 5, 12]), np.arange(12, dtype=np.int32)[::-1].copy()
    bound = rng.choice([np.inf, 3.0, -np.inf], 4 * BLOCK)
    lists = Lists(*map(engine.asarray, (begins, ends, tiles)), 4, None)
    rows = SimpleNamespace(bound=engine.asarray(bound), groups=engine.asarray(rng.integers(0, 4, bound.size, "int32")))
    ids = engine.xp.full((bound.size, size), -1, "int32")
    found = of.sample_lists(lists, engine.asarray(slots), rows, engine.asarray(group), ids)
    listed, count, own = to_host(found.ids), to_host(found.count), to_host(rows.groups)
    tile_of = np.full(slots.size + 1, -1)
    tile_of[slots] = np.arange(slots.size) // TILE
    for b in range(4):
        expected = np.sort(tiles[begins[b] : ends[b]])
        for i in range(b * BLOCK, (b + 1) * BLOCK):
            some = listed[i, : count[i]]
            if bound[i] == -np.inf or not expected.size:
                assert not count[i]
                continue
            assert count[i] == size
            if not engine.is_gpu:  # a GPU's `rerank` looks at the groups
                assert (group[some[some >= 0]] != own[i]).all()
                assert (some >= 0).sum() >= size // 3
            assert np.isin(tile_of[some[some >= 0]], expected).all()
            assert not engine.is_gpu or np.unique(tile_of[some[some >= 0]]).size == expected.size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cells", [1, 5])
def test_kernels_of_cells(cells, dtype, engine):
    """Centres, their distances, and the tiles of the nearest cell and of that of the nearest points expected."""
    rng, of, d = np.random.default_rng(cells), kernels(engine), 40
    X, origin = rng.normal(size=(cells * BLOCK, d)).astype(dtype), rng.normal(size=d)
    rows = np.where(rng.random(len(X)) < 0.9, rng.permutation(len(X)), -1).astype(np.int32)
    rows[::TILE] = np.arange(rows.size // TILE)
    first_tile, cell = np.arange(0, 2 * cells + 1, 2, dtype=np.int32), np.repeat(np.arange(cells, dtype=np.int32), 2)
    slots = order.Slots(engine.asarray(rows), engine.asarray(cell), cell[::2], cells)
    centres = order.centres_of_cells(engine.asarray(X), slots, *map(engine.asarray, (first_tile, origin)), engine.xp)
    some = rows.reshape(cells, -1)[:, :: BLOCK // 32]
    some = np.where(some < 0, some[:, :1], some)
    np.testing.assert_allclose(to_host(centres), (X[some] - origin).mean(axis=1), rtol=1e-12, atol=1e-13)
    squares, between = map(to_host, order.squares_between(centres))
    np.testing.assert_allclose(squares, (to_host(centres) ** 2).sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose(between, cdist(to_host(centres), to_host(centres), "sqeuclidean"), atol=1e-11)
    sums, scales, size = rng.random(cells), 2.0 ** rng.integers(0, 3, cells), np.array([0.0, 3, 9, 1, 2])[:cells]
    given = {"squares": sums * [1e3, 1, 1, 1, 1e3][:cells], "sizes": size, "scales": scales}
    points = SimpleNamespace(centres=centres, **{name: engine.asarray(part) for name, part in given.items()})
    spread = given["squares"] / np.maximum(size, 1) / scales**2
    differ = False
    for groups in (None, (rng.integers(-1, 3, cells), rng.integers(-1, 3, 2 * cells))):
        common = None if groups is None else tuple(engine.asarray(part.astype(np.int32)) for part in groups)
        given = engine.asarray(cell), engine.asarray(between), points, engine.asarray(first_tile), 2, 3.0
        lists = of.near_cells(*given, common)
        begins, ends, tiles = (to_host(part) for part in (lists.begins, lists.ends, lists.tiles))
        assert lists.lengths is None
        for b in range(cells):
            mean = np.where(size == 0, np.inf, between[b] + spread)  # an empty cell is of queries alone
            if groups is not None and groups[0][b] >= 0:
                mean[groups[1][::2] == groups[0][b]] = np.inf
            allowed = [c for c in np.argsort(mean) if mean[c] < np.inf]
            from_row = mean + spread[b]
            by_least = sorted(allowed[1:], key=lambda c: from_row[c] - 2 * 3 * (from_row[c] * spread[c] / d) ** 0.5)
            differ |= by_least[:1] != allowed[1:2]
            expected = [t for c in allowed[:1] + by_least[:1] for t in (2 * c, 2 * c + 1)]
            np.testing.assert_array_equal(tiles[begins[b] : ends[b]], expected)
            assert len(expected) <= lists.longest
    assert differ or cells == 1


@pytest.mark.gpu
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("band", [slice(0, 1), slice(0, 40), slice(3, 9), slice(20, 400)])
def test_kernel_of_bands(band, known):
    """Items of a band have each of its tiles once; those without tiles are where lengths are not known."""
    rng, gpu = np.random.default_rng(0), cuda()
    of = kernels(gpu)
    lengths = np.array([0, 1, 40, 3, 9, 0, 27])
    starts = 7 * np.arange(lengths.size) + np.concatenate(([0], np.cumsum(lengths[:-1])))
    tiles, cell = rng.integers(0, 50, starts[-1] + lengths[-1] + 1).astype(np.int32), np.arange(50, dtype="int32") // 4
    lists = Lists(*map(gpu.asarray, (starts, starts + lengths, tiles)), 40, lengths if known else None)
    slots = order.Slots(None, gpu.asarray(cell), None, 13)
    plan = of.plan_band(lists, band, slots)
    needed, items = to_host(plan.needed), to_host(plan.items)
    assert int(plan.next_item[0]) == 0
    seen = []
    for row_tile, first, last, _ in items.tolist():
        b = row_tile // 2
        if first == last:
            assert not known
            assert first == 1
            continue
        assert starts[b] + band.start <= first < last <= starts[b] + min(lengths[b], band.stop)
        seen += range(first, last)
    expected = [starts[b] + i for b in range(lengths.size) for i in range(lengths[b])[band]]
    assert sorted(seen) == expected
    for b, own in enumerate(needed):
        of_band = tiles[starts[b] : starts[b] + lengths[b]][band]
        np.testing.assert_array_equal(np.flatnonzero(own), np.unique(cell[of_band]))


# ------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("points", "d", "dtype"),
    [
        (points, d, dtype) if (points, d) == (nested, 20) else full(points, d, dtype)
        for points, (d, dtype) in product(FAMILIES, ((3, "float64"), (20, "float32"), (130, "float64")))
    ],
)
def test_lists_are_the_nearest(points, d, dtype, engine):
    X = points(np.random.default_rng(d), 3000, d).astype(dtype)
    search = search_of(X, engine)
    for k in (1, 8, 60):
        assert_neighbors(neighbor_lists(search, 3000, k, engine), X, k, 19)


@pytest.mark.parametrize("kind", ["tail", full("outliers")])
def test_far_points_hide_no_others(kind, engine):
    """Few rows are searched again, whether a few points are 10⁸ times as far away as the others or many a bit each."""
    rng, report = np.random.default_rng(3), Report()
    X = rng.normal(size=(6000, 24))
    if kind == "outliers":
        X[rng.choice(6000, 12, replace=False)] *= 1e8
    else:
        X *= rng.random((6000, 1)) ** -2
    found = neighbor_lists(search_of(X, engine, report), 6000, 5, engine)
    assert_neighbors(found, X, 5, 17)
    assert report["neighbors"]["rows_redone"] < 1000


@pytest.mark.parametrize("size", [1e-157, *map(full, (1e-154, 1e-158, 1e-160))])
def test_products_that_underflow_lose_no_pairs(size, engine):
    rng = np.random.default_rng(0)
    X = (0.01 * rng.normal(size=(3000, 3)) + rng.normal(size=(8, 3))[rng.integers(0, 8, 3000)]) * size
    found = neighbor_lists(search_of(X, engine), 3000, 5, engine)
    assert_neighbors(found, X, 5)


@pytest.mark.parametrize("far", [1e30, *map(full, (1e40, 1e100, 5e152))])
def test_a_value_beyond_the_sample_of_the_axes(far, engine, monkeypatch):
    """Places overflow float32 or float64: no pair is lost, and tiles that tell no points apart are not chosen."""
    monkeypatch.setattr(order, "AXIS_ROWS", 256)
    rng, n = np.random.default_rng(0), 2000
    X = 1e-3 * (rng.random((9, 20))[rng.integers(0, 9, n)] + 0.003 * rng.normal(size=(n, 20)))
    sampled = np.arange(256) * order.sample_stride(n, 256) % n
    X[np.setdiff1d(np.arange(n), sampled)[5], 0] = far
    search = search_of(X, engine)
    assert (search.share() == 1) == (far > 1e40)
    assert_neighbors(neighbor_lists(search, n, 5, engine), X, 5)


def test_what_is_no_number_is_near(engine):
    """Of places, boxes, and what bounds stand for."""
    of, places, errors = kernels(engine), np.arange(8 * TILE * 3.0).reshape(-1, 3), np.full((8 * TILE, 2), 0.5)
    where, n_blocks = np.arange(8 * TILE, dtype=np.int32), 8 * TILE // BLOCK
    slots, on_device = engine.asarray(where), engine.asarray

    def listed(reach, lost=0.0, boxes=None, in_slots=None):
        if boxes is None:
            boxes = of.boxes(on_device(places), on_device(errors), slots)
        if in_slots is None:
            in_slots = order.places_of_slots(on_device(places), slots, engine.xp)
        reaches = on_device(np.full(slots.size, reach, np.float32)), on_device(np.full(n_blocks, float(reach)))
        points = order.PlacedTiles(boxes, order.turned(boxes, engine.xp), in_slots, lost)
        return of.near_tiles(boxes, points, slots, order.Reach(*reaches), None).lengths

    assert (listed(1.0) < 8).all()
    assert (listed(np.inf) == 8).all()
    assert (listed(1.0, lost=np.inf) < 8).all()  # the boxes alone
    nowhere = on_device(np.full((8, 2, 3), np.nan))
    assert (listed(1.0, lost=np.nan, boxes=nowhere) == 8).all()
    assert (listed(1.0, boxes=nowhere, in_slots=on_device(np.full((3, slots.size), np.nan, np.float32))) == 8).all()
    bounds = on_device(np.where(where % 2, 1.0, -np.inf))
    row, block = map(to_host, of.reach(bounds, (0.0, 1.0, 1.0, 0.0, 1.0, np.nan), 1.0))
    np.testing.assert_allclose(row, np.where(where % 2, np.inf, -1), rtol=1e-6)
    assert (block == np.inf).all()


@pytest.mark.full
def test_trees_and_cuts_with_a_value_beyond_the_sample(engine):
    rng, n, d = np.random.default_rng(0), 9000, 100
    label, wide = rng.integers(0, 30, n), rng.random(n) < 0.2
    X = 1e-3 * (rng.random((30, d))[label] + 0.003 * rng.normal(size=(n, d)))
    X[:, 0] += 1e-2 * wide
    seen = np.arange(4096) * order.sample_stride(n, 4096) % n
    X[np.setdiff1d(np.arange(n), seen)[5], 0] = 5e152
    graph = rapids_slink.knn_graph(X, 3, device=engine.name)
    assert int(graph["dst"].min()) >= 0
    assert float(graph["weight"].max()) == pytest.approx(5e152)
    for how in ({}, {"min_samples": 4}):
        assert rapids_slink.fit(X, max_distance=1e-3, device=engine.name, **how).n_clusters_ == 61
    assert rapids_slink.fit(X, max_distance=1e153, device=engine.name).n_clusters_ == 1


def test_lengths_of_many_decades(engine):
    """Whose mean is far from nearly all points, and of which shorter ones are nearest on average, but not the nearest.

    By the mean, and by the two nearest cells, two thirds of the rows are searched again.
    """
    rng, n, report = np.random.default_rng(0), 6000, Report()
    X = rng.normal(size=(n, 40)) * 10 ** rng.uniform(-8, 8, (n, 1))
    found = neighbor_lists(search_of(X, engine, report), n, 5, engine)
    assert_neighbors(found, X, 5, 17)
    assert report["neighbors"]["rows_redone"] < n / 4
    assert report["neighbors"]["tile_pairs_formed"] < report["neighbors"]["tile_pairs"] / 3


def test_the_sum_of_a_column_may_overflow(engine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 8))[rng.integers(0, 24, 2**13)] + 1e-3 * rng.normal(size=(2**13, 8))
    search = search_of(np.column_stack((X, np.full(2**13, 1e305))), engine)
    assert_neighbors(neighbor_lists(search, 2**13, 5, engine), X, 5, 17)


def test_rows_with_many_candidates_are_searched_with_twice_the_digits(engine):
    """Points of which fp16 and float32 tell none from another, at the scale of their cell."""
    rng = np.random.default_rng(0)
    X, report = np.vstack((3 + 1e-9 * rng.normal(size=(700, 12)), rng.normal(size=(1300, 12)))), Report()
    found = neighbor_lists(search_of(X, engine, report), 2000, 5, engine)
    assert_neighbors(found, X, 5)
    assert report["neighbors"]["rows_redone"] >= 500
    assert report["neighbors"]["rows_scanned_exactly"] == 0


def test_twice_the_digits_of_a_cpu_tell_nearly_equal_distances_apart(watch):
    """Categories are equally far from each other, but for a narrow feature: by float32 a third of all pairs tie."""
    rng, n = np.random.default_rng(0), 2400
    label = rng.integers(0, 40, n).astype(np.int32)
    X = np.column_stack((1e-2 * rng.random(n), np.eye(40)[label]))
    passed = watch(kernels(CPU), "append", lambda result, *given: int(result.count.sum()) * given[-1])
    report = Report()
    task = SearchTask(np.arange(n, dtype=np.int32), 1, label, label, only_minima=True)
    found = search_of(X, CPU, report).find(task)
    distances = squared_distances(X)
    distances[label[:, None] == label] = np.inf
    for one in range(40):
        assert found.weights[label == one].min() == distances[label == one].min()
    assert report["connect"]["rows_redone"] > n / 2
    assert sum(passed) < 10 * n


@pytest.mark.full
def test_lengths_leave_tiles_out_on_a_cpu(watch):
    """Of tight clusters that are equally far apart no ball is beyond a bound, but most tiles hold no extreme points."""
    rng, n, d = np.random.default_rng(1), 20_000, 20
    label = rng.integers(0, d, n).astype(np.int32)
    X, report = np.eye(d)[label] + 1e-3 * rng.normal(size=(n, d)), Report()
    formed = watch(kernels(CPU), "_append", lambda result, product, tiles_of_block, *_: tiles_of_block.size)
    task = SearchTask(np.arange(n, dtype=np.int32), 1, label, label, only_minima=True)
    found = search_of(X, CPU, report).find(task).weights[:, 0]
    assert report["connect"]["rows_redone"] < n / 10
    assert sum(formed) < report["connect"]["tile_pairs_formed"] / 4
    for one in range(0, d, 7):
        distances = cdist(X[label == one], X[label != one], "sqeuclidean")
        assert found[label == one].min() == pytest.approx(distances.min(), rel=1e-12)


@pytest.mark.parametrize(("room", "d"), combinations((2**15, 2**20, 2**35), (12, 40), quick=[(2**20, 12)]))
def test_cells_are_taken_in_turn_if_memory_is_short(room, d, engine, monkeypatch):
    """For lists, and for the least weights of groups, which all parts have in common."""
    monkeypatch.setitem(tiles.MAX_BYTES, engine.name, room)
    X = nested(np.random.default_rng(3), 2500, d)
    search, distances = search_of(X, engine), squared_distances(X)
    assert_lists(neighbor_lists(search, 2500, 6, engine), least(without_self(distances), 6))
    group = np.random.default_rng(4).integers(0, 9, 2500).astype(np.int32)
    distances[group[:, None] == group] = np.inf
    on_device = engine.asarray(group)
    task = SearchTask(engine.xp.arange(2500, dtype="int32"), 1, on_device, on_device, only_minima=True)
    found = to_host(search.find(task).weights)[:, 0]
    for one in range(9):
        assert found[group == one].min() == distances[group == one].min()


@pytest.mark.parametrize(("size", "most_pairs", "most_redone"), [(600, 0.3, 0.3), full(100, 0.05, 0.02)])
def test_least_distances_of_clusters_need_few_pairs_of_tiles(size, most_pairs, most_redone, engine):
    """Of clusters in more features than places have, by balls, or of their parts; few points of each row bound them."""
    rng, n, report = np.random.default_rng(5), 12_000, Report()
    X = 1e-3 * rng.normal(size=(n, 60))
    for of, scale in ((600, 1), (100, 0.03)):
        X += np.repeat(scale * rng.normal(size=(n // of, 60)), of, axis=0)
    shuffled, cluster = rng.permutation(n), np.arange(n, dtype="int32") // size
    group = engine.asarray(cluster[shuffled])
    task = SearchTask(engine.xp.arange(n, dtype="int32"), 1, group, group, only_minima=True)
    found = to_host(search_of(X[shuffled], engine, report).find(task).weights)[:, 0]
    assert report["connect"]["tile_pairs_formed"] < most_pairs * report["connect"]["tile_pairs"]
    most = 0.5 if engine.is_gpu else most_redone  # a launch's rows do not see the minima that it finds
    assert report["connect"]["rows_redone"] < most * n
    for one in range(0, n // size, n // size // 3):
        distance = cdist(X[cluster == one], X[cluster != one], "sqeuclidean")
        assert found[cluster[shuffled] == one].min() == pytest.approx(distance.min(), rel=1e-12)


@pytest.mark.parametrize("n_features", [1, 64, 20_000])
def test_what_sums_of_two_numbers_a_value_lose(n_features, engine):
    """By the sizes of their products: of first numbers, and twice of a first and a second, of 2⁻¹⁰ of its length."""
    lost, size = kernels(engine).lost_by_sums(n_features, True), 1 + 2 * 2.0**-10 + 2.0**-20
    assert lost >= (accumulation_bound(3 * n_features) * size if engine.is_gpu else (n_features + 2) * 2.0**-53)


def test_lists_by_cosines(engine):
    X = 1 + 1e-3 * nested(np.random.default_rng(5), 3000, 16)
    metric = get_metric("cosine")
    rows = metric_rows(metric, engine.asarray(X), engine)
    found, expected = (
        neighbor_lists(kind(rows, engine, Report(), metric=metric), 3000, 5, engine)
        for kind in (TileSearch, BruteForceSearch)
    )
    assert_lists(found, (to_host(expected.ids), to_host(expected.weights)))


@pytest.mark.parametrize(("points", "m", "n"), [
    (core, 1500, 1300), full(line, 5000, 400), full(nested, 2500, 2200), full(sheet, 2500, 2200), full(core, 5000, 400),
    full(nested, 300, 5000), full(pairs_of_clusters, 300, 5000),
])  # fmt: skip
def test_queries_are_in_tiles(points, m, n, engine):
    """Some are where no point is, and some are equal to points."""
    rng, k = np.random.default_rng(m), 4
    X = points(rng, n + m, 20)
    X[n : n + m // 9] += 50
    X[-20:] = X[:20]
    search = TileSearch(engine.asarray(X[:n]), engine, Report(), engine.asarray(X[n:]))
    distances = squared_distances(X[n:], X[:n])
    xp, rows = engine.xp, engine.xp.arange(m, dtype="int32")
    assert 0 < search.share() <= 1
    no_group, some = xp.full(n, -1, "int32"), rows[::3].copy()
    for length in (k, min(n, search.exact_kernels.MAX_LIST + 1)):
        found = search.find(SearchTask(some, length, rows, no_group))
        assert_lists(found, least(distances[::3], length))
    upper = np.quantile(distances.min(axis=1), 0.6)
    found = search.find(SearchTask(rows, k, rows, no_group, xp.full(m, upper)))
    ids, weights = least(distances, k)
    ours = to_host(found.ids), to_host(found.weights)
    np.testing.assert_array_equal(ours[0][weights <= upper], ids[weights <= upper])
    np.testing.assert_array_equal(ours[1][weights <= upper], weights[weights <= upper])
    groups = rows % 5, xp.arange(n, dtype="int32") % 7
    distances[to_host(groups[0])[:, None] == to_host(groups[1])] = np.inf
    assert_lists(search.find(SearchTask(rows, k, *groups)), least(distances, k))
    found = to_host(search.find(SearchTask(rows, 1, *groups, only_minima=True)).weights)
    assert [found[g::5].min() for g in range(5)] == [distances[g::5].min() for g in range(5)]


def test_rows_that_another_search_leaves_are_searched_alone(engine):
    """These have overflowed; the lists of all other rows stay as they are."""
    n, k, xp = 2500, 4, engine.xp
    X = nested(np.random.default_rng(0), n, 20)
    rows, some = xp.arange(n, dtype="int32"), xp.arange(0, n, 7, dtype="int32")
    reached = SearchState(xp.full(n, xp.inf), exact_kernels(engine).empty_lists(n, k))
    reached.top.overflowed[some] = True
    search_of(X, engine).settle(SearchTask(rows, k, rows, rows), reached, some)
    expected = least(without_self(squared_distances(X)), k)
    for found, wanted in zip((reached.top.ids, reached.top.weights), expected, strict=True):
        np.testing.assert_array_equal(to_host(found)[::7], wanted[::7])
    assert (to_host(reached.top.ids)[np.arange(n) % 7 > 0] == -1).all()
    assert not to_host(reached.top.overflowed).any()


# ------------------------------------------------------------------------------------------------------ when it serves


def filter_of(X, engine):
    report = Report()
    prepare_search(engine.asarray(X), engine, report)
    return report["neighbors"]["filter"]


#: The fewest points of up to 64 features that are looked at.
FEWEST = {"cpu": 2**13, "cuda": 2**16}


@pytest.mark.parametrize("points", [nested, line, pairs_of_clusters], ids=lambda family: family.__name__)
def test_tiles_serve_points_that_are_near_each_other(points, engine):
    n, d = FEWEST[engine.name], 60 if engine.is_gpu else 70  # wide on a GPU; for a tree on a CPU
    X = points(np.random.default_rng(6), n, d).astype(np.float32)
    assert filter_of(X, engine) == "tiles of near points"
    assert filter_of(X[: n - 1], engine) != "tiles of near points"


@pytest.mark.gpu
def test_tiles_serve_fewer_wide_points():
    X = nested(np.random.default_rng(6), 2**14, 1024).astype(np.float32)
    assert filter_of(X, cuda()) == "tiles of near points"
    assert filter_of(X[:-1], cuda()) != "tiles of near points"


def test_tiles_do_not_serve_noise_nor_clusters_as_wide_as_they_are_apart(engine):
    rng, n = np.random.default_rng(7), FEWEST[engine.name]
    noise = rng.normal(size=(n, 70)).astype(np.float32)
    clusters = noise + 2 * rng.normal(size=(20, 70)).astype(np.float32)[rng.integers(0, 20, n)]
    for X in (noise, clusters):
        assert filter_of(X, engine) != "tiles of near points"


def test_tiles_serve_if_they_fit():
    X = line(np.random.default_rng(6), 2**13, 70)
    least_ = tiles.estimate_tiles(*X.shape[:1], *X.shape, tiles.IN_ORDER, 8, CPU, EUCLIDEAN).least
    for free, fits in ((least_ + 1, True), (least_, False)):
        with run_scope(CPU, free):
            check_memory(CPU, MemoryEstimate(0), "a search")
            assert (filter_of(X, CPU) == "tiles of near points") is fits


def test_how_near_points_are_to_each_other(engine):
    rng = np.random.default_rng(8)
    noise = rng.normal(size=(5000, 50))
    points = {"noise": noise, "tight": 0.01 * noise + rng.normal(size=(10, 50))[rng.integers(0, 10, 5000)]}
    nearest = {name: choose.expansion(engine.asarray(X), engine)[1] for name, X in points.items()}
    for name, X in points.items():
        spread = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        distances = np.sort(cdist(X[:64], X[64 : 64 + choose.POINTS]), axis=1)[:, 0]
        assert nearest[name] == pytest.approx(np.median(distances) / spread, rel=0.1)
    assert nearest["noise"] > 0.5 > 0.1 > nearest["tight"]
    for X in (np.full((2500, 3), 1e300), np.zeros((2500, 3)), 1e-320 * noise):
        assert choose.expansion(engine.asarray(X), engine)[1] >= 0


@pytest.mark.parametrize(("connect", "min_samples"), [("at once", 1), full("rounds", 1), full("at once", 4)])
def test_tight_clusters_are_joined_at_once(connect, min_samples, engine, prescribe):
    """In place of searches in tiles, if that is prescribed or on a CPU."""
    rng, n, d = np.random.default_rng(11), 3000, 70
    prescribe(search="tiles", connect=connect)
    tight = rng.normal(size=(6, d))[rng.integers(0, 6, n)] + 1e-3 * rng.normal(size=(n, d))
    model = rapids_slink.fit(tight, device=engine.name, n_neighbors=4, min_samples=min_samples)
    counts = model.report_["connect"]
    assert model.report_["neighbors"]["filter"] == "tiles of near points"
    assert ("tile_pairs_formed" in counts) is (connect == "rounds")
    assert counts.get("joined_at_once", 0) == (connect != "rounds")
    assert (counts.get("rows_searched", 0) < n / 10) is (connect != "rounds")
    if min_samples == 1:
        np.testing.assert_array_equal(to_host(model.distances_), linkage(tight, "single")[:, 2])
    prescribe(search="all pairs", connect=None)
    others = rapids_slink.fit(tight, device=engine.name, n_neighbors=4, min_samples=min_samples)
    assert others.report_["neighbors"]["filter"] != "tiles of near points"
    assert model.mst_.equals(others.mst_)


@pytest.mark.parametrize("min_samples", [4, full(1)])
def test_tiles_make_the_lists_of_wide_clusters(min_samples, engine):
    """And all pairs connect them."""
    rng = np.random.default_rng(10)
    n = 9000 if engine.is_gpu else 2**13
    apart = rng.normal(size=(n, 30)) + 3 * rng.normal(size=(12, 30))[rng.integers(0, 12, n)]
    apart *= np.arange(1, 31) ** -0.5
    trees = {}
    for way in ("tiles for lists", "all pairs"):
        with force(search=way):
            trees[way] = rapids_slink.fit(apart, 3, min_samples=min_samples, device=engine.name)
        filter_ = trees[way].report_["neighbors"]["filter"]
        assert (filter_ == "tiles of near points") is (way == "tiles for lists")
        assert "tile_pairs" not in trees[way].report_["connect"]
    np.testing.assert_array_equal(*(to_host(tree.distances_) for tree in trees.values()))


@pytest.mark.parametrize(
    "points", [line, *map(full, (core, nested, sheet, pairs_of_clusters))], ids=lambda f: f.__name__
)
def test_heights_are_scipys(points, engine):
    n = 9000 if engine.is_gpu else 2500
    X = points(np.random.default_rng(9), n, 70)
    expected = linkage(X, "single")[:, 2]
    for k in (2, 8):
        with force(search="tiles"):
            model = rapids_slink.fit(X, 3, n_neighbors=k, device=engine.name)
        np.testing.assert_array_equal(to_host(model.distances_), expected)
        if points is line:
            counts = model.report_["neighbors"]
            assert counts["filter"] == TileSearch.name
            assert counts["rows_certified"] + counts["rows_redone"] + counts["rows_scanned_exactly"] == n
            assert 0 < counts["tile_pairs_formed"] < counts["tile_pairs"]

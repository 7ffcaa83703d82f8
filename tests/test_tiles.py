"""The search in tiles of near points: its order, its bounds, and when it serves."""

import numpy as np
import pytest
from oracles import assert_lists, least, squared_distances, without_self
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import neighbor_lists, plan, prepare_search, tiles
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.neighbors.tiles import TileSearch, order
from rapids_slink.neighbors.tiles.sizes import BLOCK, TILE
from rapids_slink.neighbors.trees.dimension import nearest_by_spread
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, to_host


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
    places, errors = axes.places(X)
    assert places.shape == (600, order.AXES + 1)
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


# ------------------------------------------------------------------------------------------------------------- lists


@by_family
@pytest.mark.parametrize(("d", "dtype"), [(3, "float64"), (20, "float32"), (130, "float64")])
def test_lists_are_the_nearest(points, d, dtype, engine):
    X = points(np.random.default_rng(d), 5000, d).astype(dtype)
    search, rows = search_of(X, engine), np.arange(0, 5000, 7)
    for k in (1, 8, 60):
        found = neighbor_lists(search, 5000, k, engine)
        distances = cdist(X[rows].astype(float), X.astype(float), "sqeuclidean")
        distances[np.arange(rows.size), rows] = np.inf
        ids, weights = least(distances, k)
        np.testing.assert_array_equal(to_host(found.ids)[rows], ids)
        np.testing.assert_array_equal(to_host(found.weights)[rows], weights)


def test_rows_with_many_candidates_are_searched_with_twice_the_digits(engine):
    """Points of which fp16 and float32 tell none from another, at the scale of their cell."""
    rng = np.random.default_rng(0)
    X, report = np.vstack((1e-9 * rng.normal(size=(1000, 12)), rng.normal(size=(1000, 12)))), Report()
    found = neighbor_lists(search_of(X, engine, report), 2000, 5, engine)
    assert_lists(found, least(without_self(squared_distances(X)), 5))
    assert report["neighbors"]["rows_redone"] >= 500
    assert report["neighbors"]["rows_scanned_exactly"] == 0


@pytest.mark.parametrize("room", [2**15, 2**20, 2**35])
def test_cells_are_taken_in_turn_if_memory_is_short(room, engine, monkeypatch):
    """For lists, and for the least weights of groups, which all parts have in common."""
    monkeypatch.setitem(tiles.MAX_BYTES, engine.name, room)
    X = nested(np.random.default_rng(3), 4000, 12)
    search, distances = search_of(X, engine), squared_distances(X)
    assert_lists(neighbor_lists(search, 4000, 6, engine), least(without_self(distances), 6))
    group = np.random.default_rng(4).integers(0, 9, 4000).astype(np.int32)
    distances[group[:, None] == group] = np.inf
    on_device = engine.asarray(group)
    task = SearchTask(engine.xp.arange(4000, dtype="int32"), 1, on_device, on_device, per_group_minimum=True)
    found = to_host(search.find(task).weights)[:, 0]
    for one in range(9):
        assert found[group == one].min() == distances[group == one].min()


def test_lists_by_cosines(engine):
    X = 1 + 1e-3 * nested(np.random.default_rng(5), 3000, 16)
    metric = get_metric("cosine")
    rows = metric_rows(metric, engine.asarray(X), engine)
    found, expected = (
        neighbor_lists(kind(rows, engine, Report(), metric=metric), 3000, 5, engine)
        for kind in (TileSearch, BruteForceSearch)
    )
    assert_lists(found, (to_host(expected.ids), to_host(expected.weights)))


def test_tiles_are_of_one_set(engine):
    X = engine.asarray(np.eye(9))
    with pytest.raises(ValueError, match="tiles are of one set of points"):
        TileSearch(X, engine, Report(), X[:2])


# ------------------------------------------------------------------------------------------------------ when it serves


def filter_of(X, engine):
    report = Report()
    prepare_search(engine.asarray(X), engine, report)
    return report["neighbors"]["filter"]


@pytest.mark.parametrize("points", [nested, line, pairs_of_clusters], ids=lambda family: family.__name__)
def test_tiles_serve_points_that_are_near_each_other(points, engine):
    n = plan.STRUCTURED_POINTS[engine.name]
    X = points(np.random.default_rng(6), n, 70).astype(np.float32)
    assert filter_of(X, engine) == "tiles of near points"
    assert filter_of(X[: n - 1], engine) != "tiles of near points"


def test_tiles_do_not_serve_noise_nor_clusters_as_wide_as_they_are_apart(engine):
    rng, n = np.random.default_rng(7), plan.STRUCTURED_POINTS[engine.name]
    noise = rng.normal(size=(n, 70)).astype(np.float32)
    clusters = noise + 2 * rng.normal(size=(20, 70)).astype(np.float32)[rng.integers(0, 20, n)]
    for X in (noise, clusters):
        assert filter_of(X, engine) != "tiles of near points"


def test_tiles_serve_if_they_fit(monkeypatch):
    X = line(np.random.default_rng(6), 2**13, 70)
    least_ = tiles.estimate_tiles(*X.shape[:1], *X.shape, tiles.IN_ORDER, 8, CPU, EUCLIDEAN).least
    for free, fits in ((least_ + 1, True), (least_, False)):
        monkeypatch.setattr(tiles, "free_bytes", lambda free=free: free)
        assert (filter_of(X, CPU) == "tiles of near points") is fits


def test_nearest_by_spread(engine):
    rng = np.random.default_rng(8)
    noise = rng.normal(size=(5000, 50))
    points = {"noise": noise, "tight": 0.01 * noise + rng.normal(size=(10, 50))[rng.integers(0, 10, 5000)]}
    nearest = {name: nearest_by_spread(engine.asarray(X), engine) for name, X in points.items()}
    for name, X in points.items():
        at = np.arange(64) * (5000 // 64) + 5000 // 128
        distances = cdist(X[at], X)
        distances[np.arange(64), at] = np.inf
        spread = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert nearest[name] == pytest.approx(np.median(distances.min(axis=1)) / spread, rel=0.05)
    assert nearest["noise"] > 0.5 > 0.1 > nearest["tight"]
    for X in (np.full((70, 3), 1e300), np.zeros((70, 3)), 1e-320 * noise):
        assert nearest_by_spread(engine.asarray(X), engine) >= 0


@by_family
def test_heights_are_scipys(points, engine):
    n = 9000 if engine.is_gpu else 2**13
    X = points(np.random.default_rng(9), n, 70)
    for k in (2, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plan, "STRUCTURED_POINTS", {"cpu": 0, "cuda": 0})
            model = rapids_slink.fit(X, 3, n_neighbors=k, device=engine.name)
        np.testing.assert_array_equal(to_host(model.distances_), linkage(X, "single")[:, 2])

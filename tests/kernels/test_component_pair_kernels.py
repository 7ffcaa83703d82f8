"""What is known of components and pairs of them, and the kernels that find it, each alone."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hard_cases import CASES, full
from oracles import every_pair
from scipy.spatial.distance import pdist, squareform

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import QuantizedPoints
from rapids_slink.report import Report
from rapids_slink.runtime.device import resolve, to_host
from rapids_slink.spanning_tree import component_pairs
from rapids_slink.spanning_tree import kernels as pair_kernels
from rapids_slink.spanning_tree.component_pairs import Components, ConnectContext, Ends


@pytest.fixture
def kernels(engine):
    return pair_kernels(engine)


@pytest.fixture
def components_of(engine, kernels):
    """A function from labels to their components."""

    def components(label):
        return Components.of(engine.asarray(label.astype(np.int32)), np.unique(label).size, engine.xp)

    return components


def pairs_of(engine, first, second, separation=None):
    """Component pairs, of which no support points are known."""
    ends = (engine.asarray(end.astype(np.int32)) for end in (first, second))
    separation = np.zeros(len(first)) if separation is None else separation
    return component_pairs.ComponentPairs(*ends, engine.asarray(separation), engine.xp.zeros((2, len(first)), "int32"))


@pytest.mark.parametrize(("n", "k"), [(2, 2), (1000, 1), (5000, 700), full(300_000, 3)])
def test_components(n, k, components_of):
    """Points sorted by component, stably, with labels in any order."""
    rng = np.random.default_rng(n)
    number = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    rng.shuffle(number)
    components = components_of(np.sort(rng.choice(n, k, replace=False))[number])
    assert len(components) == k
    np.testing.assert_array_equal(to_host(components.order), np.argsort(number, kind="stable"))
    np.testing.assert_array_equal(to_host(components.number), np.sort(number))
    np.testing.assert_array_equal(to_host(components.start), np.searchsorted(np.sort(number), np.arange(k + 1)))
    np.testing.assert_array_equal(to_host(components.of_point), number)
    np.testing.assert_array_equal(to_host(components.size), np.bincount(number))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples(dtype, engine, components_of):
    """Of small components every point, of large ones points from all over; and their means."""
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(4), [1, 7, 64, 900])
    X = rng.normal(size=(972, 300)).astype(dtype)
    X[number == 1, 5] = np.finfo("float64").max if dtype == "float64" else 1.0
    otherwise = engine.xp.full(300, 0.5)
    given = engine.asarray(X), components_of(number), otherwise, 10**5, engine.xp
    sample, centroids = map(to_host, component_pairs.sample_components(*given))
    for a, size in enumerate([1, 7, 64, 900]):
        points = np.flatnonzero(number == a)
        assert np.isin(sample[a], points).all()
        assert np.unique(sample[a]).size == min(size, 64)
        assert np.searchsorted(points, sample[a]).max() >= size * 63 // 64
    with np.errstate(over="ignore"):
        means = X[sample].mean(axis=1, dtype="float64")
    off = {"rtol": 1e-6, "atol": 1e-7} if centroids.dtype == "float32" else {"rtol": 1e-13, "atol": 1e-15}
    np.testing.assert_allclose(centroids, np.where(np.isfinite(means), means, 0.5), **off)
    assert (dtype == "float32") or centroids[1, 5] == 0.5


@pytest.mark.parametrize(("m", "k"), [(1, 2), (1000, 3), (900, 150), full(5_000_000, 2)])
def test_supports(m, k, engine, kernels):
    """The largest difference of two products, and the first place where it is; given in two parts."""
    rng = np.random.default_rng(k)
    number = np.concatenate([np.arange(k), rng.integers(0, k, m)]) if m > 1 else np.arange(k)
    number = np.sort(number).astype(np.int32)
    product = rng.integers(-9, 10, (number.size, k)).astype(np.float32)
    supports, middle = kernels.new_supports(k), number.size // 2
    for part in (slice(0, middle), slice(middle, None)):
        rows, of = engine.asarray(product[part]), engine.asarray(number[part])
        kernels.update_supports(rows, of, part.start, supports)
    order, y = engine.xp.arange(number.size, dtype="int32"), np.zeros((k, -(-k // 8) * 8))
    y[np.arange(k), np.arange(k)] = 8.0
    y = engine.asarray(y, "float16" if engine.is_gpu else "float32")
    separations = component_pairs.Separations(QuantizedPoints(y, None, None), supports, 0.0, 0.0)
    first, second, separation, support = map(to_host, kernels.measure_pairs(separations, order))
    assert list(zip(first, second, strict=True)) == list(zip(*np.triu_indices(k, 1), strict=True))
    more = product - product[np.arange(number.size), number][:, None]
    start = np.searchsorted(number, np.arange(k + 1))
    most = np.maximum.reduceat(more, start[:-1], axis=0)
    between = -(most[first, second] + most[second, first]).astype(np.float64)
    exact = np.where(between > 0, between / 128**0.5, -np.inf)
    assert (separation <= exact).all()
    np.testing.assert_allclose(separation, exact, rtol=1e-4)
    for points, of, other in ((support[0], first, second), (support[1], second, first)):
        for point, a, b in list(zip(points, of, other, strict=True))[:: max(1, first.size // 50)]:
            assert point == start[a] + more[start[a] : start[a + 1], b].argmax()


@pytest.mark.parametrize("name", ["few_big_clusters", "offset_1e7", "cauchy", "mixed_magnitudes", "repeated_rows"])
def test_separations_are_below_distances(name, engine, components_of):
    X = CASES[name]("float64")[:600]
    by_position = np.argsort(np.argsort(X[:, 0])) * 9 // len(X)
    search = BruteForceSearch(engine.asarray(X), engine, Report())
    scaling, distances = search.filter.scaling, squareform(pdist(X))
    found_any = False
    for component in (np.random.default_rng(0).permutation(by_position), by_position):
        context = ConnectContext(search, search.by_products, None, components_of(component), 0)
        pairs, _ = component_pairs._separations(context)
        first, second, separation, support = map(
            to_host, (pairs.first, pairs.second, pairs.separation, pairs.support)
        )  # fmt: skip
        for a, b, below, points in zip(first, second, separation, support.T, strict=True):
            assert [component[p] for p in points] == [a, b]
            assert below <= scaling.scale * distances[component == a][:, component == b].min() * (1 + 1e-9)
        found_any |= bool((separation > 0).any())
    assert found_any or name in ("cauchy", "mixed_magnitudes")


@pytest.mark.parametrize("step", [full(1), 3, full(8)])
def test_samples_of_pairs(step, engine):
    rng = np.random.default_rng(step)
    first, second = np.triu_indices(30, 1)
    pairs, sample = pairs_of(engine, first, second), rng.integers(0, 999, (30, 64)).astype(np.int32)[:, ::step]
    at = rng.permutation(first.size)[:90].astype(np.int32)
    found = component_pairs.pair_samples(engine.asarray(sample), pairs, engine.asarray(at), engine.xp)
    a, b, of_pair = map(to_host, found)
    expected = [(i, j, c) for c in at.tolist() for i in sample[first[c]] for j in sample[second[c]]]
    assert sorted(zip(a.tolist(), b.tolist(), of_pair.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9, 60])
def test_path_bottlenecks(n, engine):
    rng = np.random.default_rng(n)
    src, dst = np.arange(1, n), (rng.random(n - 1) * np.arange(1, n)).astype(int)
    weight = rng.integers(0, 9, n - 1).astype(float)
    expected = np.full((n, n), np.inf)
    expected[src, dst] = expected[dst, src] = weight
    np.fill_diagonal(expected, 0)
    for v in range(n):  # Floyd and Warshall's algorithm, for the heaviest edge on the path
        expected = np.minimum(expected, np.maximum(expected[:, [v]], expected[[v]]))
    some = rng.permutation(n - 1)
    bottlenecks = engine.asarray(component_pairs.path_bottlenecks(src[some], dst[some], weight[some]))
    first, second = np.triu_indices(n, 1)
    distance = 2 * np.sqrt(expected[first, second])
    context = SimpleNamespace(
        device=engine, flatnonzero=exact_kernels(engine).flatnonzero,
        scaled_distance=lambda weight: 2 * engine.xp.sqrt(weight),
    )  # fmt: skip
    for separation, all_within in ((distance * (1 - 1e-6) - 1e-6, True), (distance * (1 + 1e-6) + 1e-6, False)):
        pairs = pairs_of(engine, first, second, separation)
        ends, found = component_pairs.within_bottlenecks(pairs, bottlenecks, context)
        a, b, upper = map(to_host, (*ends, found))
        assert sorted(zip(a, b, strict=True)) == (sorted(zip(first, second, strict=True)) if all_within else [])
        np.testing.assert_array_equal(upper, expected[a, b])


@pytest.mark.parametrize("free", [math.inf, 4096])
def test_capacities_are_whole_numbers(free, engine, components_of):
    search = BruteForceSearch(engine.asarray(np.eye(300)), engine, Report())
    search.free_bytes = free
    context = ConnectContext(search, search.by_products, None, components_of(np.arange(300) % 3), 10**9)
    for found in (context.capacity(64), context.max_pairs):
        assert isinstance(found, int)
        assert found == 16 if free == 4096 else found > 16


@pytest.mark.gpu
@pytest.mark.parametrize(("first", "most", "tried"), [(50, 50, [50]), (50, 99, [50, 99]), (200, 99, [99])])
def test_capacities_that_are_tried(first, most, tried, set_constants):
    """A small one first, none twice."""
    from rapids_slink.neighbors.filter.fused import filter as fused

    set_constants(fused, FIRST_PAIRS=first)
    engine, capacities = resolve("cuda"), []
    search = BruteForceSearch(engine.asarray(np.random.default_rng(0).normal(size=(600, 20))), engine, Report())
    if not search.filter.is_symmetric:
        pytest.skip("this GPU has no fused filter")
    search.filter._listed_pairs = lambda items, radii, thresholds, capacity, components: capacities.append(capacity)
    arguments = engine.xp.arange(600, dtype="int32"), None, engine.xp.ones(1), most
    assert search.filter.component_pairs(*arguments) is None
    assert capacities == tried


@pytest.mark.gpu
@pytest.mark.parametrize("k", [2, 10, full(40), 300])
def test_items_of_blocks_of_several_components(k):
    """Each block of rows meets each tile from its own on that has points of a pair, by that of the largest bound."""
    engine = resolve("cuda")
    kernels = pair_kernels(engine)
    from rapids_slink.neighbors.filter.fused import BLOCK_ROWS, TILE

    rng = np.random.default_rng(k)
    size = rng.integers(1, 12_000 // k, k)
    component, leaf = np.repeat(np.arange(k, dtype=np.int32), size), rng.permutation(k).astype(np.int32)
    ends = np.stack(np.triu_indices(k, 1))
    ends = ends[:, rng.random(len(ends[0])) < 0.3] if k > 2 else ends
    upper, on_device = rng.integers(1, 5, len(ends[0])).astype(float), engine.asarray(ends.astype(np.int32, order="C"))
    number = component_pairs.pair_numbers(Ends(*on_device), engine.asarray(leaf), engine.xp)
    table = np.full((k, k), -1)
    table[leaf[ends[0]], leaf[ends[1]]] = table[leaf[ends[1]], leaf[ends[0]]] = np.arange(len(ends[0]))
    np.testing.assert_array_equal(to_host(number), table)
    given = engine.asarray(component), number, engine.asarray(upper)
    plan = kernels.plan_blocks(*given)
    items = to_host(kernels.block_items(*given, plan))
    assert len(items) == plan.n_items
    tiles = items[:, 2] - items[:, 1]
    assert tiles.min() > 0
    assert plan.formed == (tiles + 1).sum() * BLOCK_ROWS * TILE
    expected = {}
    bound = np.where(table >= 0, upper[table], -1)
    for row in range(0, component.size, BLOCK_ROWS):
        for point in range(row, component.size, TILE):
            own, others = np.unique(component[row:][:BLOCK_ROWS]), np.unique(component[point:][:TILE])
            largest = bound[np.ix_(own, others)].max()
            if largest >= 0:
                expected[row // TILE, point // TILE] = largest
    found = {(row, tile): upper[pair] for row, begin, end, pair in items.tolist() for tile in range(begin, end)}
    assert found == expected
    assert len(found) == tiles.sum()


@pytest.mark.gpu
@pytest.mark.parametrize("spread", [0.0, 2.0, 9.0])
def test_facing_points(spread, prescribe):
    """The bins of two points within their component pair's distance are at most BINS together."""
    prescribe(connect="facing")
    engine, rng = resolve("cuda"), np.random.default_rng(7)
    component = rng.choice(5, 2000, p=[0.4, 0.3, 0.2, 0.09, 0.01]).astype(np.int32)
    X = rng.normal(size=(5, 6))[component] * spread + rng.normal(size=(2000, 6))
    search = BruteForceSearch(engine.asarray(X.astype(np.float32)), engine, Report())
    if not search.filter.is_symmetric:
        pytest.skip("this GPU has no fused filter")
    components = Components.of(engine.asarray(component), 5, engine.xp)
    context = ConnectContext(search, search.by_products, None, components, 10**12)
    pairs, separations = component_pairs._separations(context)
    upper, ends = rng.uniform(0.1, 4.0, 10) * (1 + spread**2), Ends(pairs.first, pairs.second)
    keys, start, _ = component_pairs._facing(context, ends, engine.asarray(upper), separations)
    src, dst, weight = every_pair(search)
    keys, start, first, second = (to_host(part) for part in (keys, start, *ends))
    bin_of = np.full((20, 2000), 10_000)
    for side in range(20):
        own = keys[start[side] : start[side + 1]]
        assert (own >> component_pairs.SET_SHIFT == side).all()
        bin_of[side, own % 2**26] = own >> 26 & 255
    assert len(set(bin_of[bin_of < 256].tolist())) > 100
    for c, (a, b, most) in enumerate(zip(first, second, upper, strict=True)):
        near = weight <= most
        for p, q in ((src, dst), (dst, src)):
            of_pair = near & (component[p] == a) & (component[q] == b)
            assert (bin_of[2 * c, p[of_pair]] + bin_of[2 * c + 1, q[of_pair]] <= 256).all()


@pytest.mark.gpu
def test_items_of_facing_points():
    """Of each block the tiles whose first point may be near to the block's first, by their bins."""
    engine = resolve("cuda")
    kernels, rng, (rows, points) = pair_kernels(engine), np.random.default_rng(0), (256, 128)
    sizes = np.array([9000, 20_000, 1, 700, 0, 900])
    bins, start = [np.sort(rng.integers(0, 256, size)) for size in sizes], np.concatenate([[0], np.cumsum(sizes)])
    keys = np.concatenate([(s << 34) + (of << 26) + np.arange(of.size) for s, of in enumerate(bins)])
    ends = [np.int32([0, 2, 4, 3]), np.int32([1, 3, 5, 3])]
    on_device = engine.asarray(keys), engine.asarray(start), Ends(*map(engine.asarray, ends))
    plan = kernels.plan_items(*on_device[1:])
    items = to_host(kernels.work_items(*on_device, plan)[1])
    expected, first_tile = [], np.concatenate([[0], np.cumsum(-(-sizes // rows))]) * (rows // points)
    for c, (a, b) in enumerate(zip(*ends, strict=True)):
        a, b = (a, b) if sizes[a] >= sizes[b] else (b, a)
        for block, least in enumerate(bins[a][::rows]):
            of_tiles = bins[b][::points] + least <= 256
            for at in range(0, of_tiles.size, 64):
                tile, near = first_tile[b] + at, int(of_tiles[at : at + 64].sum())
                expected.append((first_tile[a] + 2 * block, tile, tile + near, c))
    assert sorted(map(tuple, items.tolist())) == sorted(expected)
    assert {last - first for _, first, last, _ in expected} >= {0, 40, 64}


@pytest.mark.gpu
@pytest.mark.parametrize("of_bytes", [False, True])
@pytest.mark.parametrize("d", [5, 130, 784, full(64), full(300)])
@pytest.mark.parametrize("k", [10, 100])
def test_component_pairs_in_the_fused_filter(k, d, of_bytes):
    """Every pair within its component pair's threshold is found, each once; of more than fit there are none.

    In blocks of one component, or of several.
    """
    engine = resolve("cuda")
    kernels = pair_kernels(engine)
    rng = np.random.default_rng(d)
    label = np.sort(np.concatenate([rng.integers(0, k - 1, 2400), np.full(600, k - 1)])).astype(np.int32)
    X = rng.integers(0, 256, (3000, d)) if of_bytes else rng.normal(size=(3000, d))
    search = BruteForceSearch(engine.asarray(X.astype(np.float32)), engine, Report())
    if not search.filter.is_symmetric:
        pytest.skip("this GPU has no fused filter")
    components = Components.of(engine.asarray(label), k, engine.xp)
    first, second = np.triu_indices(k, 1)
    pairs = pairs_of(engine, first, second)
    ends = Ends(pairs.first, pairs.second)
    plan = kernels.plan_items(components.start, ends)
    assert plan.formed >= 4_000_000
    of_one = *kernels.work_items(components.order.astype("int64"), components.start, ends, plan), (None, None)
    number = np.zeros((k, k), int)
    number[first, second] = np.arange(first.size)
    numbers = component_pairs.pair_numbers(ends, engine.xp.arange(k, dtype="int32"), engine.xp)
    src, dst, weight = every_pair(search)
    crosses, pair = label[src] != label[dst], number[label[src], label[dst]]
    for share in (0.0, 0.001, 0.02):
        upper = np.quantile(weight, share) * rng.uniform(0.8, 1.0, first.size)
        bound = engine.asarray(upper)
        tested = components.number, numbers
        items = kernels.block_items(*tested, bound, kernels.plan_blocks(*tested, bound))
        for order, listed, of_each in (of_one, (components.order, items, tested)):
            pairs_up_to = lambda most: search.filter.component_pairs(order, listed, bound, most, of_each)  # noqa: B023, E731
            a, b, of_pair = map(to_host, pairs_up_to(10_000_000))
            np.testing.assert_array_equal(np.minimum(label[a], label[b]), first[of_pair])
            np.testing.assert_array_equal(np.maximum(label[a], label[b]), second[of_pair])
            found = set(zip(np.minimum(a, b).tolist(), np.maximum(a, b).tolist(), strict=True))
            assert len(found) == a.size
            wanted = crosses & (weight <= upper[pair])
            assert set(zip(src[wanted].tolist(), dst[wanted].tolist(), strict=True)) <= found
            if of_bytes:
                assert len(found) <= (crosses & (weight <= upper[pair] * (1 + 1e-5) + 2)).sum()
            if wanted.sum() > 100:
                assert pairs_up_to(99) is None

"""The last components all at once, by every way to find the pairs of points between them, against all of the pairs."""

from functools import partial

import numpy as np
import pytest
from hard_cases import CASES
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.csgraph import minimum_spanning_tree as scipys_tree
from scipy.spatial.distance import pdist, squareform

from rapids_slink.device import to_host
from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import metric_rows
from rapids_slink.neighbors.operand import reach_numbers
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.ordering import edge_codes
from rapids_slink.report import Report
from rapids_slink.spanning_tree import couples
from rapids_slink.spanning_tree.couples import Components, Couples, Job, join_components
from rapids_slink.spanning_tree.couples.cpu import heaviest_on_ways, tree_of_all

ENDLESS = 10**9  # rows that would have to search: everything is cheaper
WAYS = ["filter", "both", "narrowed", "shadows", "products"]


def needs_fused_filter(where):
    if where.kernels("neighbors").fused_filter() is None:
        pytest.skip("there is no fused filter here")


@pytest.fixture(params=WAYS)
def search_by(request, where, monkeypatch):
    """A function from points to a search whose components are joined in one of the ways."""
    way = request.param
    if way in ("filter", "both", "narrowed"):
        needs_fused_filter(where)
    monkeypatch.setattr(couples, "MOST_CLOSE", ENDLESS)
    monkeypatch.setattr(couples, "LARGE", 30 if way in ("both", "narrowed") else ENDLESS)
    if way in ("shadows", "products"):
        monkeypatch.setattr(couples, "_by_filter", lambda *_: None)
    if way == "products":
        monkeypatch.setattr(couples, "_by_shadows", lambda *_: None)
    if way == "both":  # all that is cheaper than what the shadows' limit is set by
        monkeypatch.setattr(couples, "SHADOW_PAIRS", 0)
        monkeypatch.setattr(couples, "TEST_PAIRS", 0)
        monkeypatch.setattr(couples, "WEIGHT_PAIRS", 1)
    if way == "narrowed":  # no more pairs may be left than the shadows' points, which the filter then looks at
        monkeypatch.setattr(couples, "SHADOW_PAIRS", 0)
        monkeypatch.setattr(couples, "MOST_TESTS", -1)
    return partial(TileSearch, fused=way != "products")


def every_pair(search):
    """The ids of all pairs of points and their kernel values."""
    src, dst = np.triu_indices(len(search.values), 1)
    ids = (search.device.asarray(end.astype(np.int32)) for end in (src, dst))
    return src, dst, to_host(search.kernels.pair_values(search.values, *ids, metric=search.metric))


def bridges(src, dst, weight, component):
    """Kruskal's algorithm in the total order, on the pairs of different components."""
    apart = component[src] != component[dst]
    src, dst, weight = src[apart], dst[apart], weight[apart]
    root = {label: label for label in component.tolist()}

    def find(label):
        while root[label] != label:
            label = root[label]
        return label

    taken = []
    for e in np.lexsort((edge_codes(src, dst, np), weight)).tolist():
        a, b = find(component[src[e]]), find(component[dst[e]])
        if a != b:
            root[a] = b
            taken.append((int(src[e]), int(dst[e]), float(weight[e])))
            if len(taken) == len(root) - 1:
                break
    return taken


def joined(search, component, core=None):
    """What `join_components` finds, as rows in the total order."""
    device, report = search.device, Report()
    core = None if core is None else device.asarray(core)
    k = np.unique(component).size
    found = join_components(search, core, device.asarray(component), k, ENDLESS, device, report)
    assert report["connect"]["joined_at_once"] == 1
    src, dst, weight = (to_host(part) for part in found)
    order = np.lexsort((edge_codes(src, dst, np), weight))
    return list(zip(*(part[order].tolist() for part in (src, dst, weight)), strict=True))


def partitions(n, rng, weight):
    """Components of n points: any, near ones together, and one with all but a few; a label is one of its points."""
    tree = scipys_tree(squareform(weight + 1e-300)).tocoo()
    kept = np.argsort(tree.data)[: max(0, n - 9)]
    graph = coo_array((np.ones(kept.size), (tree.row[kept], tree.col[kept])), shape=(n, n))
    given = {
        "any": rng.integers(0, 7, n),
        "most": np.where(rng.random(n) < 0.9, 0, np.arange(n)),
        "near": connected_components(graph, directed=False)[1],
    }
    for name, label in given.items():
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        if first.size > 1:
            yield name, first[inverse].astype(np.int32)


@pytest.mark.parametrize("name", CASES)
def test_hard_cases(name, search_by, where):
    X = CASES[name]("float64" if len(name) % 2 else "float32")
    X = np.ascontiguousarray(X[:: max(1, len(X) // 250)])
    if len(X) < 4:
        pytest.skip("too few points")
    search = search_by(where.asarray(X), where, Report())
    if not search.tests_pairs:
        pytest.skip("nothing can be proven of products")
    pairs = every_pair(search)
    np.testing.assert_array_equal(pairs[2], pdist(X, "sqeuclidean"))
    for kind, component in partitions(len(X), np.random.default_rng(1), pairs[2]):
        assert joined(search, component) == bridges(*pairs, component), kind


@pytest.mark.parametrize("n_clusters", [2, 3, 40, 150])
@pytest.mark.parametrize("apart", [0.0, 1.7, 10.0, 1e4])
def test_clusters(apart, n_clusters, search_by, where):
    rng = np.random.default_rng(n_clusters)
    label = rng.integers(0, n_clusters, 900)
    X = (apart * rng.normal(size=(n_clusters, 40)))[label] + rng.normal(size=(900, 40))
    search = search_by(where.asarray(X.astype(np.float32)), where, Report())
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    component = first[inverse].astype(np.int32)
    assert joined(search, component) == bridges(*every_pair(search), component)


@pytest.mark.parametrize("kind", ["bytes", "cosine", "correlation", "cores", "large cores"])
def test_other_weights(kind, search_by, where):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 12, 500)
    X = rng.normal(size=(12, 30))[label] * 4 + rng.normal(size=(500, 30))
    X = np.clip(10 * X + 128, 0, 255).round() if kind == "bytes" else X
    metric = get_metric(kind) if kind in ("cosine", "correlation") else EUCLIDEAN
    search = search_by(metric_rows(metric, where.asarray(X), where), where, Report(), metric=metric)
    src, dst, weight = every_pair(search)
    core = None
    if "cores" in kind:
        core = np.quantile(weight, 0.9 if kind == "large cores" else 0.1) * rng.random(500)
        weight = np.maximum(weight, np.maximum(core[src], core[dst]))
    for name, component in [*partitions(500, rng, weight), ("label", np.unique(label, return_index=True)[1][label])]:
        component = component.astype(np.int32)
        assert joined(search, component, core) == bridges(src, dst, weight, component), name


@pytest.mark.parametrize("apart", [5, 0])
def test_many_couples_are_thinned_out_first(apart, search_by, where, monkeypatch):
    """Also where all are left, in another order."""
    kernels = where.kernels("spanning_tree.couples")
    within = kernels.within
    monkeypatch.setattr(kernels, "within", lambda *given: tuple(part[::-1].copy() for part in within(*given)))
    monkeypatch.setattr(couples, "MANY_COUPLES", 50)
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(0, 60, 800))
    X = (apart * rng.normal(size=(60, 20)))[label] + rng.normal(size=(800, 20))
    search = search_by(where.asarray(X), where, Report())
    component = np.searchsorted(label, label).astype(np.int32)
    assert joined(search, component) == bridges(*every_pair(search), component)


@pytest.fixture
def ways(monkeypatch):
    """What each way to find pairs was tried with, and whether it found them, as they are called."""
    tried = []

    def noted(name, way):
        def look(*given, **more):
            found = way(*given, **more)
            tried.append((name, found is not None))
            return found

        return look

    for name in ("_by_size", "_by_filter", "_by_shadows", "_by_products"):
        monkeypatch.setattr(couples, name, noted(name, getattr(couples, name)))
    return tried


def test_too_many_pairs_are_left_to_rounds(where, ways, monkeypatch):
    """Whatever the limit: of samples, of float64's products, of their tests, of pairs that are left."""
    X = np.random.default_rng(0).normal(size=(1000, 16))
    search = TileSearch(where.asarray(X), where, Report())
    component = where.asarray((np.arange(1000) % 20).astype(np.int32))
    report = Report()
    monkeypatch.setattr(couples, "TEST_PAIRS", 16)

    def join():
        ways.clear()
        return join_components(search, None, component, 20, 1000, where, report)

    assert join() is None
    assert not ways  # the samples are too many
    assert "connect" not in report
    monkeypatch.setattr(couples, "LEAST_SAMPLED", 1)
    without = search.filter is None  # else products are not tried
    for limit in ("SHADOW_PAIRS", "TEST_PAIRS", "WEIGHT_PAIRS"):
        assert (join() is None) == (not without)
        again = [("_by_filter", False)] * (not without and limit != "SHADOW_PAIRS")  # of what shadows leave
        found = ("_by_shadows", False), ("_by_products", without)
        assert ways == [("_by_size", False), ("_by_filter", False), *again, *found]
        monkeypatch.setattr(couples, limit, 1 if limit == "WEIGHT_PAIRS" else 0)
    assert join() is not None
    assert ("_by_products", True) not in ways


def test_more_shadows_than_there_is_room_for(where, ways, monkeypatch):
    """They are looked for again, with room for all."""
    monkeypatch.setattr(couples, "MOST_CLOSE", ENDLESS)
    monkeypatch.setattr(couples, "_by_filter", lambda *_: None)
    monkeypatch.setattr(couples, "FIRST_ROOM", 20)
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 900)
    X = (4 * rng.normal(size=(4, 16)))[label] + rng.normal(size=(900, 16))
    component = np.unique(label, return_index=True)[1][label].astype(np.int32)
    search = TileSearch(where.asarray(X), where, Report())
    rooms, look = [], where.kernels("spanning_tree.couples").facing_pairs

    def noted(*given):
        rooms.append(given[-1])
        return look(*given)

    monkeypatch.setattr(where.kernels("spanning_tree.couples"), "facing_pairs", noted)
    assert joined(search, component) == bridges(*every_pair(search), component)
    assert rooms[0] == 20 < rooms[1]
    assert ways[-1] == ("_by_shadows", True)


@pytest.mark.gpu
def test_large_couples_go_by_shadows(where, ways, monkeypatch):
    needs_fused_filter(where)
    monkeypatch.setattr(couples, "LARGE", 100)
    monkeypatch.setattr(couples, "SHADOW_PAIRS", 0)
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(0, 4, 2000))
    label[:60] = 4
    X = (20 * rng.normal(size=(5, 16)))[label] + rng.normal(size=(2000, 16))
    search = TileSearch(where.asarray(X), where, Report())
    component = np.unique(label, return_index=True)[1][label].astype(np.int32)
    assert joined(search, component) == bridges(*every_pair(search), component)
    assert ways[-1] == ("_by_size", True)
    assert ("_by_shadows", True) in ways


@pytest.mark.parametrize("far", [1e307, 2.8e306, 1e150])
def test_means_that_overflow(far, search_by, where):
    """A constant column near the largest number: its sum is none."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 300)
    X = np.column_stack([(9 * rng.normal(size=(4, 10)))[label] + rng.normal(size=(300, 10)), np.full(300, far)])
    search = search_by(where.asarray(X), where, Report())
    component = np.unique(label, return_index=True)[1][label].astype(np.int32)
    assert joined(search, component) == bridges(*every_pair(search), component)


def test_middles_that_hardly_differ(search_by, where):
    """By less than the root of the smallest number, beside shadows of another size."""
    A, B = [[0.3, 0.5], [-0.3, -0.5]] * 32, [[0.3, 1], [-0.3, -1]] * 31 + [[0, 0], [0, 1e-170]]
    search = search_by(where.asarray(np.array(A + B)), where, Report())
    component = np.repeat([0, 64], 64).astype(np.int32)
    assert joined(search, component) == bridges(*every_pair(search), component)


def test_pays(where):
    X = np.random.default_rng(0).normal(size=(10_000, 16)).astype(np.float32)
    search = TileSearch(where.asarray(X), where, Report())
    n = 200_000
    assert couples.pays(search, 500, n, n)
    assert not couples.pays(search, 5000, n, n)  # components
    assert not couples.pays(search, 500, n // 20, n)  # most points are certain
    assert not couples.pays(search, 30, 100, 200)  # too little to do
    search.room = 2**20
    assert not couples.pays(search, 500, n, n)  # no room


# ------------------------------------------------------------------------------------------------- the parts


@pytest.mark.parametrize(("n", "k"), [(2, 2), (1000, 1), (5000, 700), (300_000, 3)])
def test_components(n, k, where):
    """Points sorted by component, stably, with labels in any order."""
    rng = np.random.default_rng(n)
    number = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    rng.shuffle(number)
    label = np.sort(rng.choice(n, k, replace=False))[number].astype(np.int32)
    parts = Components.of(where.asarray(label), k, where)
    np.testing.assert_array_equal(to_host(parts.order), np.argsort(number, kind="stable"))
    np.testing.assert_array_equal(to_host(parts.number), np.sort(number))
    np.testing.assert_array_equal(to_host(parts.start), np.searchsorted(np.sort(number), np.arange(k + 1)))
    np.testing.assert_array_equal(to_host(parts.of_point), number)
    sizes = np.sort(np.bincount(number))
    assert k < 2 or parts.largest_couple == tuple(sizes[-2:])


def test_points_that_face_each_other(where):
    """Each couple's, by component; those of one component may be in several couples."""
    xp, kernels = where.xp, where.kernels("spanning_tree.couples")
    rng = np.random.default_rng(0)
    number = np.sort(np.concatenate([np.arange(5), rng.integers(0, 5, 300)]))
    label = rng.permutation(number).astype(np.int32)
    parts = Components.of(where.asarray(label), 5, where)
    first, second = (end.astype(np.int32) for end in np.triu_indices(5, 1))
    two = Couples(*map(where.asarray, (first, second)), xp.zeros(10), None, 1.0)
    end = xp.cumsum(parts.size[two.first] + parts.size[two.second])
    shadow, upper = where.asarray(rng.normal(size=int(end[-1]))), xp.ones(10)
    far = where.asarray(np.linspace(-9, 1, 10))  # of the first none are left
    near, count = kernels.facing_points(shadow, parts, two, end, far, upper, None)
    facing = couples._facing_parts(parts, two, end, near, count, xp)
    order, start = to_host(facing.order), to_host(facing.start)
    cast, last, sizes = to_host(shadow), to_host(end), np.bincount(label)
    points = [np.flatnonzero(label == a) for a in range(5)]
    for c, (a, b) in enumerate(zip(first, second, strict=True)):
        of_a, of_b = np.split(cast[last[c] - sizes[a] - sizes[b] : last[c]], [sizes[a]])
        apart = of_b[None].min() - of_a, of_b - of_a.max()
        for side, (which, gaps) in enumerate(zip((a, b), apart, strict=True)):
            expected = points[which][gaps <= to_host(far)[c]]
            kept = order[start[2 * c + side] : start[2 * c + side + 1]]
            np.testing.assert_array_equal(np.sort(kept), expected)
    assert start[2] == 0 < start[-1] == order.size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples(dtype, where):
    """Of small components every point, of large ones points from all over; and their means."""
    rng = np.random.default_rng(0)
    number = np.sort(np.concatenate([np.repeat(np.arange(4), [1, 7, 64, 900])]))
    X = rng.normal(size=(972, 300)).astype(dtype)
    X[number == 1, 5] = np.finfo("float64").max if dtype == "float64" else 1.0
    parts = Components.of(where.asarray(number.astype(np.int32)), 4, where)
    otherwise = where.xp.full(300, 0.5)
    sample, middles = map(
        to_host, where.kernels("spanning_tree.couples").sample_components(where.asarray(X), parts, otherwise)
    )
    for a, size in enumerate([1, 7, 64, 900]):
        points = np.flatnonzero(number == a)
        assert np.isin(sample[a], points).all()
        assert np.unique(sample[a]).size == min(size, 64)
        assert np.searchsorted(points, sample[a]).max() >= size * 63 // 64
    with np.errstate(over="ignore"):
        means = X[sample].mean(axis=1, dtype="float64")
    np.testing.assert_allclose(middles, np.where(np.isfinite(means), means, 0.5), rtol=1e-13, atol=1e-15)
    assert (dtype == "float32") or middles[1, 5] == 0.5


@pytest.mark.parametrize("values", ["any", "few", "zeros", "infinite"])
@pytest.mark.parametrize("n", [2, 3, 50])
def test_tree_of_all_couples(n, values):
    """As heavy as SciPy's, which takes no weights of zero for edges."""
    rng = np.random.default_rng(n)
    weight = rng.random(n * (n - 1) // 2)
    if values in ("few", "zeros"):
        weight = np.floor(3 * weight) * (values == "few")
    if values == "infinite":
        weight[weight < 0.5] = np.inf
    src, dst, found = tree_of_all(weight, n)
    table = squareform(weight)
    np.testing.assert_array_equal(table[src, dst], found)
    assert connected_components(coo_array((np.ones(n - 1), (src, dst)), shape=(n, n)), directed=False)[0] == 1
    expected = scipys_tree(np.where(np.isinf(table), 9.0, table + 1.0)).data
    np.testing.assert_allclose(np.sort(np.where(np.isinf(found), 9.0, found + 1.0)), np.sort(expected))


@pytest.mark.parametrize("n", [1, 33, 100_000])
def test_largest_norm_and_error(n, where):
    rng = np.random.default_rng(n)
    norm, error = rng.random((2, n)).astype(np.float32)
    largest, kernels = where.xp.zeros(2, "float32"), where.kernels("spanning_tree.couples")
    kernels.raise_largest(largest, where.asarray(norm))
    np.testing.assert_array_equal(to_host(largest), [norm.max(), 0])
    kernels.raise_largest(largest, where.asarray(norm / 2), where.asarray(error))
    np.testing.assert_array_equal(to_host(largest), [norm.max(), error.max()])


@pytest.mark.parametrize("step", [1, 3, 8])
def test_samples_of_close_couples(step, where):
    rng = np.random.default_rng(step)
    first, second = (end.astype(np.int32) for end in np.triu_indices(30, 1))
    gap, weight = rng.normal(size=first.size), rng.random(first.size)
    some = Couples(*map(where.asarray, (first, second, gap)), where.xp.zeros((2, first.size), "int32"), 1.0)
    sample = rng.integers(0, 999, (30, 64)).astype(np.int32)
    kernels, lowered = where.kernels("spanning_tree.couples"), where.asarray(weight.copy())
    at = kernels.close(some, lowered, reach_numbers(5, 2.0, EUCLIDEAN))
    on_host = to_host(at)
    np.testing.assert_array_equal(np.sort(on_host), np.flatnonzero(gap < np.sqrt(weight)))
    a, b, of_pair = kernels.pair_samples(where.asarray(sample), some, at, step)
    value = lambda i, j: (i * 31_337 + j * 17_389) % 10_000_019 / 10_000_019  # noqa: E731
    where.kernels("neighbors").lower_groups(lowered, of_pair, value(a, b)[:, None])
    expected = weight.copy()
    for c in on_host:
        pairs = value(sample[first[c], ::step, None], sample[second[c], None, ::step])
        expected[c] = min(weight[c], pairs.min())
    np.testing.assert_array_equal(to_host(lowered), expected)


@pytest.mark.parametrize("sizes", [(1, 1), (128, 1024), (129, 1025), (40, 5000), (5000, 33)])
def test_facing_pairs(sizes, where):
    """Of three components, every two points whose shadows are near, no matter how many of either are; each once."""
    rng = np.random.default_rng(sum(sizes))
    kernels, number = where.kernels("spanning_tree.couples"), np.repeat([0, 1, 2], [*sizes, 7])
    parts = Components.of(where.asarray(rng.permutation(number).astype(np.int32)), 3, where)
    order, start = to_host(parts.order), to_host(parts.start)
    pair = np.array([[0, 0, 1], [1, 2, 2]], np.int32)
    some = Couples(*map(where.asarray, pair), where.xp.zeros(3), where.xp.zeros((2, 3), "int32"), 1.0)
    size = np.diff(start)
    end = np.cumsum(size[pair[0]] + size[pair[1]])
    shadow, far = rng.normal(size=end[-1]), np.array([0.01, -0.3, 0.2])
    given = where.asarray(shadow), parts, some, where.asarray(end), where.asarray(far)
    core, upper = rng.random(order.size), np.full(3, 0.9)
    for cores in (None, where.asarray(core)):
        near, count = kernels.facing_points(*given, where.asarray(upper), cores)
        found, n_found = kernels.facing_pairs(given[0], near, count, *given[1:], 2_000_000)
        assert n_found <= 2_000_000
        found = set(map(tuple, to_host(found)[:, :n_found].T.tolist()))
        assert len(found) == n_found
        expected = set()
        for c, (a, b) in enumerate(pair.T):
            of_a, of_b = (np.arange(start[x], start[x + 1]) for x in (a, b))
            begin = end[c] - size[a] - size[b]
            apart = shadow[begin + size[a] : end[c]] - shadow[begin : begin + size[a], None]
            faces = apart <= far[c]
            if cores is not None:
                faces &= (core[order[of_a]] <= 0.9)[:, None] & (core[order[of_b]] <= 0.9)
            i, j = np.nonzero(faces)
            expected |= {(*ends, c) for ends in zip(order[of_a[i]].tolist(), order[of_b[j]].tolist(), strict=True)}
        assert found == expected
        assert kernels.facing_pairs(given[0], near, count, *given[1:], 1)[1] == n_found


def test_light_pairs(where):
    rng = np.random.default_rng(0)
    src, dst, of_point = (rng.integers(0, 99, 5000).astype(np.int32) for _ in range(3))
    couple, weight, upper = rng.integers(0, 20, 5000).astype(np.int32), rng.random(5000), rng.random(20)
    pairs = tuple(map(where.asarray, (src, dst, couple)))
    kept, light = where.kernels("spanning_tree.couples").keep_light(
        pairs, *map(where.asarray, (weight, upper, of_point))
    )
    at = np.flatnonzero(weight <= upper[couple])
    expected = zip(weight[at], src[at], dst[at], of_point[src[at]], of_point[dst[at]], strict=True)
    assert sorted(zip(to_host(light), *to_host(kept).T, strict=True)) == sorted(expected)


@pytest.mark.parametrize(("m", "k"), [(1, 2), (1000, 3), (900, 150), (5_000_000, 2)])
def test_supports(m, k, where):
    """The largest difference of two products, and the first place where it is; given in two parts."""
    rng = np.random.default_rng(k)
    number = np.concatenate([np.arange(k), rng.integers(0, k, m)]) if m > 1 else np.arange(k)
    number = np.sort(number).astype(np.int32)
    product = rng.integers(-9, 10, (number.size, k)).astype(np.float32)
    kernels = where.kernels("spanning_tree.couples")
    found, middle = kernels.new_supports(k), number.size // 2
    for part in (slice(0, middle), slice(middle, None)):
        rows, of = where.asarray(product[part]), where.asarray(number[part])
        kernels.offer_supports(rows, of, part.start, found)
    order = where.xp.arange(number.size, dtype="int32")
    first, second, gap, facing = (
        to_host(part) for part in kernels.couples(found, order, where.xp.eye(k), 0.0, 2.0, 0.0)
    )
    more = product - product[np.arange(number.size), number][:, None]
    start = np.searchsorted(number, np.arange(k))
    most = np.maximum.reduceat(more, start, axis=0)
    between = -(most[first, second] + most[second, first]).astype(np.float64)
    np.testing.assert_allclose(gap, np.where(between > 0, between / 2, -np.inf))
    for points, of, other in ((facing[0], first, second), (facing[1], second, first)):
        ends = np.append(start, number.size)
        for point, a, b in list(zip(points, of, other, strict=True))[:: max(1, first.size // 50)]:
            assert point == ends[a] + more[ends[a] : ends[a + 1], b].argmax()


@pytest.mark.parametrize("name", ["few_big_clusters", "offset_1e7", "cauchy", "mixed_magnitudes", "repeated_rows"])
def test_gaps_are_below_distances(name, where):
    X = CASES[name]("float64")[:600]
    rng = np.random.default_rng(0)
    by_place = np.argsort(np.argsort(X[:, 0])) * 9 // len(X)
    label = rng.permutation(by_place)
    search = TileSearch(where.asarray(X), where, Report())
    apart = squareform(pdist(X))
    found_any = False
    for component in (label, by_place):
        parts = Components.of(where.asarray(component.astype(np.int32)), 9, where)
        found = couples._couples(Job(search, None, parts, 0, where))
        assert len(parts) == 9
        first, second, gap, facing = (to_host(part) for part in (found.first, found.second, found.gap, found.facing))
        assert list(zip(first, second, strict=True)) == list(zip(*np.triu_indices(9, 1), strict=True))
        for a, b, least, points in zip(first, second, gap, facing.T, strict=True):
            assert [component[p] for p in points] == [a, b]
            assert least <= search.scaling.scale * apart[component == a][:, component == b].min() * (1 + 1e-9)
        found_any |= bool((gap > 0).any())
        centre = to_host(search.scaling.centre)
        assert found.radius >= np.sqrt(((X - centre) ** 2).sum(axis=1)).max() * (1 - 1e-9)
    assert found_any or name in ("cauchy", "mixed_magnitudes")


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9, 60])
def test_the_heaviest_edge_on_every_way(n, where):
    rng = np.random.default_rng(n)
    src, dst = np.arange(1, n), (rng.random(n - 1) * np.arange(1, n)).astype(int)
    weight = rng.integers(0, 9, n - 1).astype(float)
    expected = np.full((n, n), np.inf)
    expected[src, dst] = expected[dst, src] = weight
    np.fill_diagonal(expected, 0)
    for v in range(n):  # Floyd and Warshall's algorithm, for the heaviest edge on the way
        expected = np.minimum(expected, np.maximum(expected[:, [v]], expected[[v]]))

    def couples_of(first, second, gap):
        ids = (where.asarray(end.astype(np.int32)) for end in (first, second))
        return Couples(*ids, where.asarray(gap), where.xp.zeros((2, len(gap)), "int32"), 1.0)

    some = rng.permutation(n - 1)
    ways = where.asarray(heaviest_on_ways(src[some], dst[some], weight[some]))
    reach = reach_numbers(3, 2.0, EUCLIDEAN)
    first, second = np.triu_indices(n, 1)
    far = 2 * np.sqrt(expected[first, second])
    for gap in (far * (1 - 1e-6) - 1e-6, far * (1 + 1e-6) + 1e-6):
        at, upper = where.kernels("spanning_tree.couples").within(couples_of(first, second, gap), ways, reach)
        at, upper = to_host(at), to_host(upper)
        assert sorted(at) == (list(range(first.size)) if gap[0] < far[0] else [])
        np.testing.assert_array_equal(upper, expected[first[at], second[at]])


@pytest.mark.parametrize("values", [None, [0.0], [0.0, 1.0, 2.0]])
@pytest.mark.parametrize(("n", "m"), [(2, 1), (30, 300), (400, 3000)])
def test_tree_of_components(n, m, values, where):
    """A forest of no more weight than SciPy's."""
    rng = np.random.default_rng(m)
    src, dst = rng.integers(0, n, m).astype(np.int32), rng.integers(0, n, m).astype(np.int32)
    src[: n // 2], dst[: n // 2] = np.arange(n // 2), n // 2
    weight = (rng.normal(size=m) if values is None else rng.choice(values, m)).astype(np.float32).astype(float)
    edges = tuple(where.asarray(part) for part in (src, dst, weight))
    flags = couples._tree(*edges, n, where)
    taken = to_host(flags)
    some = Couples(*edges[:2], None, None, 1.0)
    listed = where.kernels("spanning_tree.couples").list_tree(flags, some, edges[2], int(taken.sum()))
    expected = [part[taken].tolist() for part in (src, dst, weight)]
    assert sorted(zip(*(part.tolist() for part in listed), strict=True)) == sorted(zip(*expected, strict=True))
    lightest = {}
    for a, b, w in zip(np.minimum(src, dst), np.maximum(src, dst), weight - weight.min() + 1, strict=True):
        if a != b:
            lightest[a, b] = min(w, lightest.get((a, b), np.inf))
    ends = np.array(list(lightest)).reshape(-1, 2).T
    expected = scipys_tree(coo_array((list(lightest.values()), ends), shape=(n, n)))
    assert taken.sum() == expected.nnz
    np.testing.assert_allclose((weight[taken] - weight.min() + 1).sum(), expected.sum(), rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("of_bytes", [False, True])
@pytest.mark.parametrize("d", [5, 64, 130, 300, 784])
def test_couples_in_the_fused_filter(d, of_bytes, where):
    """Every pair within its couple's reach is found, each once; of more than there is room for there are none."""
    needs_fused_filter(where)
    xp, kernels = where.xp, where.kernels("spanning_tree.couples")
    rng = np.random.default_rng(d)
    n, label = 3000, np.sort(np.concatenate([rng.integers(0, 9, 2400), np.full(600, 9)]))
    X = rng.integers(0, 256, (n, d)) if of_bytes else rng.normal(size=(n, d))
    search = TileSearch(where.asarray(X.astype(np.float32)), where, Report())
    assert of_bytes == search.filter.BYTES
    parts = Components.of(where.asarray(label.astype(np.int32)), 10, where)
    first, second = np.triu_indices(10, 1)
    some = Couples(
        *(where.asarray(end.astype(np.int32)) for end in (first, second)), xp.zeros(45), xp.zeros((2, 45)), 1.0
    )
    src, dst, weight = every_pair(search)
    for share in (0.0, 0.001, 0.02):
        upper = np.quantile(weight, share) * rng.uniform(0.8, 1.0, 45)
        plan = kernels.plan_items(parts, some, search.filter.BLOCK, search.filter.TILE)
        order, items = kernels.items(parts, some, plan)
        assert plan.formed >= 4_000_000
        bound = where.asarray(upper)
        a, b, couple = (to_host(part) for part in search.pairs_of(order, items, bound, 10_000_000))
        low, high = np.minimum(label[a], label[b]), np.maximum(label[a], label[b])
        np.testing.assert_array_equal(low, first[couple])
        np.testing.assert_array_equal(high, second[couple])
        found = set(zip(np.minimum(a, b).tolist(), np.maximum(a, b).tolist(), strict=True))
        assert len(found) == a.size
        number = np.zeros((10, 10), int)
        number[first, second] = np.arange(45)
        between = label[src] != label[dst]
        wanted = between & (weight <= upper[number[label[src], label[dst]]])
        assert set(zip(src[wanted].tolist(), dst[wanted].tolist(), strict=True)) <= found
        if of_bytes:
            assert len(found) <= (between & (weight <= upper[number[label[src], label[dst]]] + 2)).sum()
        if wanted.sum() > 100:
            assert search.pairs_of(order, items, bound, 99) is None

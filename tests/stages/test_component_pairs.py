"""The last components connected all at once, by every way to find the pairs of points between them."""

import numpy as np
import pytest
from hard_cases import CASES, cases, combinations, full
from oracles import core_distances, every_pair, mutual_reachability, squared_distances, tree_of
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.csgraph import minimum_spanning_tree as scipys_tree
from scipy.spatial.distance import pdist, squareform

from rapids_slink.metrics import EUCLIDEAN, get_metric
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.ordering import edge_codes
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, resolve, to_host
from rapids_slink.spanning_tree import component_pairs
from rapids_slink.spanning_tree import lists as by_lists
from rapids_slink.spanning_tree.component_pairs import ROUNDS, connect_components, is_worthwhile

MANY_ROUNDS = 100_000  # of searches: everything is cheaper


@pytest.fixture(params=["all points", pytest.param("facing points", marks=pytest.mark.gpu)])
def make_search(request, engine, prescribe):
    """A function from points to a search whose components are connected all at once, whatever it costs.

    A GPU forms the pairs of all points of two components, or those of facing points alone.
    """
    if request.param == "facing points" and not engine.is_gpu:
        pytest.skip("a CPU lists no facing points")
    prescribe(connect="facing" if request.param == "facing points" else "at once")

    def search(values, metric=EUCLIDEAN):
        rows = metric_rows(metric, engine.asarray(values), engine)
        return BruteForceSearch(rows, engine, Report(), metric=metric)

    return search


def crossing_edges(src, dst, weight, component):
    """SciPy's tree of the components, by the ranks of the pairs between them in the total order."""
    assert (np.diff(edge_codes(src, dst, np)) > 0).all()
    order = np.argsort(weight, kind="stable")
    src, dst, weight = src[order], dst[order], weight[order]
    label = np.unique(component, return_inverse=True)[1]
    k, ends = label.max() + 1, np.sort([label[src], label[dst]], axis=0)
    pair, first = np.unique(ends[0] * k + ends[1], return_index=True)
    crosses = pair // k != pair % k
    graph = coo_matrix((first[crosses] + 1.0, divmod(pair[crosses], k)), shape=(k, k))
    taken = np.sort(scipys_tree(graph).data).astype(int) - 1
    return list(zip(src[taken].tolist(), dst[taken].tolist(), weight[taken].tolist(), strict=True))


def by_first_point(label):
    """Labels as the forest has them: a component's is one of its points."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int32)


def connected(search, component, core=None):
    """What `connect_components` finds, which it has to."""
    report, engine = Report(), search.device
    core = None if core is None else engine.asarray(core)
    k, rows = np.unique(component).size, engine.xp.arange(component.size)
    found = connect_components(search, core, engine.asarray(component), k, rows, report)
    assert report["connect"]["joined_at_once"] == 1
    return list(zip(*(to_host(part).tolist() for part in found), strict=True))


def partitions(n, rng, weight):
    """Components of n points: any, near ones together, and one with all but a few."""
    tree = scipys_tree(squareform(weight + 1e-300)).tocoo()
    kept = np.argsort(tree.data)[: max(0, n - 9)]
    graph = coo_matrix((np.ones(kept.size), (tree.row[kept], tree.col[kept])), shape=(n, n))
    given = {
        "any": rng.integers(0, 7, n),
        "most": np.where(rng.random(n) < 0.9, 0, np.arange(n)),
        "near": connected_components(graph, directed=False)[1],
    }
    return {name: by_first_point(label) for name, label in given.items() if np.unique(label).size > 1}


@pytest.mark.parametrize("name", cases(min_rows=4))
def test_hard_cases(name, make_search):
    X = CASES[name]("float64" if len(name) % 2 else "float32")
    X = np.ascontiguousarray(X[:: -(-len(X) // 180)])
    search = make_search(X)
    pairs = every_pair(search)
    np.testing.assert_array_equal(pairs[2], pdist(X, "sqeuclidean"))
    for kind, component in partitions(len(X), np.random.default_rng(1), pairs[2]).items():
        assert connected(search, component) == crossing_edges(*pairs, component), kind


@pytest.mark.parametrize(
    ("n_clusters", "spread"),
    combinations((2, 3, 40, 100), (0.0, 1.7, 10.0, 1e4), quick=[(2, 1.7), (3, 1e4), (40, 0.0), (100, 10.0)]),
)
def test_clusters(n_clusters, spread, make_search):
    rng = np.random.default_rng(n_clusters)
    label = rng.integers(0, n_clusters, 600)
    X = (spread * rng.normal(size=(n_clusters, 40)))[label] + rng.normal(size=(600, 40))
    search, component = make_search(X.astype(np.float32)), by_first_point(label)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


@pytest.mark.parametrize("kind", ["bytes", "cosine", "cores", *map(full, ("correlation", "large cores"))])
def test_other_weights(kind, make_search):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 12, 500)
    X = rng.normal(size=(12, 30))[label] * 4 + rng.normal(size=(500, 30))
    X = np.clip(10 * X + 128, 0, 255).round() if kind == "bytes" else X
    search = make_search(X, get_metric(kind) if kind in ("cosine", "correlation") else EUCLIDEAN)
    src, dst, weight = every_pair(search)
    core = None
    if "cores" in kind:
        core = np.quantile(weight, 0.9 if kind == "large cores" else 0.1) * rng.random(500)
        weight = np.maximum(weight, np.maximum(core[src], core[dst]))
    given = partitions(500, rng, weight) | {"label": by_first_point(label)}
    assert len(given) == 4
    for name, component in given.items():
        assert connected(search, component, core) == crossing_edges(src, dst, weight, component), name


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_tiles_join_components_on_a_cpu(name, prescribe):
    """By a filter of their own, which is made for that alone."""
    prescribe(connect="at once")
    rng, metric = np.random.default_rng(0), get_metric(name)
    label = rng.integers(0, 12, 500)
    X = rng.normal(size=(12, 30))[label] * 4 + rng.normal(size=(500, 30))
    search = TileSearch(metric_rows(metric, X, CPU), CPU, Report(), metric=metric)
    component = by_first_point(label)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


@pytest.mark.parametrize("spread", [5, 0])
def test_component_pairs_may_come_in_any_order(spread, make_search, monkeypatch):
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(0, 30, 500))
    search = make_search((spread * rng.normal(size=(30, 20)))[label] + rng.normal(size=(500, 20)))
    within = component_pairs.within_bottlenecks

    def reversed_(*given):
        ends, upper = within(*given)
        return component_pairs.Ends(*(part[::-1].copy() for part in ends)), upper[::-1].copy()

    monkeypatch.setattr(component_pairs, "within_bottlenecks", reversed_)
    component = by_first_point(label)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


@pytest.mark.parametrize("far", [1e307, 2.8e306, 1e150])
def test_means_that_overflow(far, make_search):
    """A constant column near the largest number: its sum is none."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 300)
    X = np.column_stack([(9 * rng.normal(size=(4, 10)))[label] + rng.normal(size=(300, 10)), np.full(300, far)])
    search, component = make_search(X), by_first_point(label)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


def test_centroids_that_hardly_differ(make_search):
    """By less than the root of the smallest number, beside projections of another size."""
    A, B = [[0.3, 0.5], [-0.3, -0.5]] * 32, [[0.3, 1], [-0.3, -1]] * 31 + [[0, 0], [0, 1e-170]]
    search, component = make_search(np.array(A + B)), np.repeat([0, 64], 64).astype(np.int32)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


@pytest.mark.parametrize("kind", ["grid", *map(full, ("spread", "alike"))])
def test_the_same_tree_as_by_rounds(kind, engine, prescribe):
    rng = np.random.default_rng(0)
    n, centres = 1200, 40 * np.eye(12)[rng.integers(0, 7, 1200)]
    within = {"spread": rng.normal(size=(n, 12)), "grid": rng.integers(0, 2, (n, 12)), "alike": np.zeros((n, 12))}
    X = centres + within[kind]
    distances = squared_distances(X)
    expected = tree_of(mutual_reachability(distances, core_distances(distances, 3)))
    for at_once in (True, False):
        prescribe(connect="at once" if at_once else "rounds")
        search, report = BruteForceSearch(engine.asarray(X), engine, Report()), Report()
        tree = by_lists.tree_of_lists(neighbor_lists(search, n, 4, engine, 3), search, engine, report)
        for name, column in zip(("src", "dst", "weight"), expected, strict=True):
            np.testing.assert_array_equal(to_host(tree.columns[name]), column)
        assert report["connect"].get("joined_at_once", 0) == at_once


@pytest.mark.gpu
def test_pairs_that_int8_cannot_tell_apart(monkeypatch, set_constants):
    """Clusters so far apart that int8 errs by more than they are wide: it leaves too many, and fp16 takes over."""
    monkeypatch.setattr("rapids_slink.neighbors.choose.FP16_SURVIVORS", 0)
    set_constants(component_pairs, ROUNDS=MANY_ROUNDS, MAX_PAIRS=4000)
    rng, engine = np.random.default_rng(0), resolve("cuda")
    label = np.arange(800) % 8
    X = (30 * rng.normal(size=(8, 64))[label] + rng.normal(size=(800, 64))).astype(np.float32)
    search, component = BruteForceSearch(engine.asarray(X), engine, Report()), by_first_point(label)
    assert connected(search, component) == crossing_edges(*every_pair(search), component)


@pytest.mark.parametrize("is_bounded", [False, full(True)])
def test_clusters_that_no_filter_tells_apart(is_bounded, engine, prescribe):
    """Products in float64, or tiles, connect them."""
    prescribe(connect="at once")
    if engine.is_gpu:
        prescribe(candidates=16)  # otherwise rows have room for their cluster when they are searched again
    rng, n = np.random.default_rng(0), 1500
    X = (1e6 * rng.normal(size=(5, 40)))[np.arange(n) % 5] + rng.normal(size=(n, 40))
    search, report = BruteForceSearch(engine.asarray(X), engine, Report()), Report()
    lists, expected = neighbor_lists(search, n, 3, engine), tree_of(squared_distances(X))
    limit = expected[2][-9] if is_bounded else np.inf
    tree, kept = by_lists.tree_of_lists(lists, search, engine, report, limit).columns, (expected[2] <= limit).sum()
    for name, column in zip(("src", "dst", "weight"), expected, strict=True):
        np.testing.assert_array_equal(to_host(tree[name])[:kept], column[:kept])
    if engine.is_gpu:  # tiles, which tell them apart
        assert search.in_tiles
        assert search.filter is None
        assert "joined_at_once" not in report["connect"]
    elif not is_bounded:
        assert report["connect"]["joined_at_once"] == 1


def test_what_is_worthwhile(engine):
    X = np.random.default_rng(0).normal(size=(10_000, 16)).astype(np.float32)
    search = BruteForceSearch(engine.asarray(X), engine, Report())
    n = 200_000

    def worthwhile(components, rows, points):
        return is_worthwhile(search, components, points, rows)

    assert worthwhile(500, n, n)
    assert not worthwhile(5000, n, n)  # components
    assert worthwhile(500, 2**24, 2**26)
    assert not worthwhile(500, 2**24, 2**26 + 1)  # points
    assert not worthwhile(500, n // 20, n)  # most points are certain
    assert not worthwhile(50, 1000, 2000)  # most components are small


def test_components_are_not_joined_without_memory(engine, prescribe):
    prescribe(connect="at once")
    rows, component = engine.xp.arange(900), (engine.xp.arange(900) % 30).astype("int32")
    search = BruteForceSearch(engine.asarray(np.random.default_rng(0).normal(size=(900, 16))), engine, Report())
    assert connect_components(search, None, component, 30, rows, Report()) is not None
    search.free_bytes = 2**17
    assert connect_components(search, None, component, 30, rows, Report()) is None


def test_too_many_pairs_are_left_to_rounds(engine, watch, set_constants, set_costs):
    """Whatever the limit: of samples, of what is formed, of pairs that pass."""
    X = np.random.default_rng(0).normal(size=(1000, 16))
    search, report = BruteForceSearch(engine.asarray(X), engine, Report()), Report()
    component = (engine.xp.arange(1000) % 20).astype("int32")
    name = "_by_filter" if engine.is_gpu else "_by_products"
    tried = watch(component_pairs, name, lambda found, *_: found is not None)

    def join(**constants):
        set_constants(component_pairs, **constants)
        tried.clear()
        return connect_components(search, None, component, 20, engine.xp.arange(1000), report)

    assert join() is None
    assert not tried  # the samples are too many
    assert "connect" not in report
    too_little = [(ROUNDS, 1024)] if engine.is_gpu else [(0.4, 512), (ROUNDS, 10_000)]
    for rounds, weight in too_little:
        set_costs(weight=weight)
        assert join(MIN_SAMPLED=1, ROUNDS=rounds) is None
        assert tried == [False]
    if not engine.is_gpu:
        set_costs(weight=1)
    found = join(**({"ROUNDS": MANY_ROUNDS} if engine.is_gpu else {}))
    assert found is not None
    assert tried == [True]

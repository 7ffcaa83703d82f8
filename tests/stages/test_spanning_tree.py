"""The tree of points, or of any dissimilarity, from neighbour lists: certificates, the edges' frame, connecting."""

from itertools import pairwise

import numpy as np
import pytest
from hard_cases import CASES, full, shape
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import blobs, least, searches, squared_distances, without_self
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from spanning_trees import COLUMNS, all_pairs_tree, assert_same_edges, by_appearance

from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.task import NeighborLists, Search, SearchResult
from rapids_slink.ordering import NO_EDGE
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, cpu, kernels
from rapids_slink.spanning_tree.lists import Forest, connect_forest, tree_of_lists, tree_of_two_parts
from rapids_slink.spanning_tree.ways import tree_of_rows


class MatrixSearch(Search):
    """Answers a task from a matrix of any symmetric dissimilarities, by looking at all of them."""

    def __init__(self, distances, device):
        self.distances, self.device = distances, device

    def find(self, task):
        rows, group, upper = (to_host(part) for part in (task.rows, task.row_group, task.upper))
        distances = np.where(group[rows][:, None] != group, self.distances[rows], np.inf)
        distances[distances > upper[:, None]] = np.inf
        ids, weights = least(distances, task.k)
        return SearchResult(*(self.device.asarray(part) for part in (ids.astype(np.int32), weights, upper)))


def lists_of(distances, k, engine):
    """The k least others of each row of a matrix."""
    ids, weights = least(without_self(distances), k)
    return NeighborLists(engine.asarray(ids.astype(np.int32)), engine.asarray(weights))


def random_matrix(rng, n, values=None):
    """Symmetric, with no triangle inequality; `values` says of which few numbers."""
    distances = rng.random((n, n)) if values is None else rng.choice(values, (n, n))
    distances = np.triu(distances, 1)
    return distances + distances.T


def tree_by_lists(distances, k, engine, report=None):
    """The frame of the tree from lists of k and a search of the matrix."""
    lists = lists_of(distances, k, engine)
    return tree_of_lists(lists, MatrixSearch(distances, engine), engine, Report() if report is None else report).frame


def tree_by_search(search, n, k, engine):
    """The frame of the tree of n points by one of the searches."""
    return tree_of_lists(neighbor_lists(search, n, k, engine), search, engine, Report()).frame


def same_components(component, ends, n):
    """Whether the labels are those of the graph of these edges."""
    graph = coo_matrix((np.ones(len(ends)), ends.T), shape=(n, n))
    _, expected = connected_components(graph, directed=False)
    return by_appearance(component).tolist() == by_appearance(expected).tolist()


def rows_of(frame):
    """The edges of a frame as tuples."""
    return list(zip(*(to_host(frame[name].values).tolist() for name in COLUMNS), strict=True))


def certain_edges(lists, engine):
    """What the lists alone certify, the rows' components afterwards and their number."""
    forest = Forest.of_points(lists, engine)
    growth = kernels(engine).grow_forest(lists, forest)
    taken, components = growth.edges, growth.components
    assert taken == int(forest.n_taken[0]) == len(to_host(lists.ids)) - components
    assert taken <= growth.certified <= 2 * taken  # an edge is chosen from one end or from both
    found = rows_of(forest.edges.frame.iloc[:taken])
    assert all(src < dst for src, dst, _ in found)
    return found, to_host(forest.component), components


@pytest.mark.parametrize("values", [None, [0.0, 1.0], list(np.arange(20.0))])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_lists_certify_only_edges_of_the_tree(k, values, engine):
    rng = np.random.default_rng(k)
    for distances in (random_matrix(rng, 90, values), squareform(pdist(rng.normal(size=(200, 2)) ** 3))):
        n = len(distances)
        found, component, components = certain_edges(lists_of(distances, k, engine), engine)
        assert len(set(found)) == len(found) == n - components
        assert set(found) <= set(rows_of(all_pairs_tree(distances)))
        assert len(found) >= n / 4  # at the start each row's nearest is certain
        assert same_components(component, np.array([edge[:2] for edge in found]), n)
        assert (component[component] == component).all()


def test_certificates_wait_for_the_bound(engine):
    """0-1 and 2-3 pair up. Then all lists are used up: nothing may be chosen before a search has found 1-2."""
    distances = squareform([1.0, 2.0, 9.0, 1.5, 9.0, 1.2])  # 01 02 03 12 13 23
    found, _, components = certain_edges(lists_of(distances, 1, engine), engine)
    assert {edge[:2] for edge in found} == {(0, 1), (2, 3)}
    assert components == 2
    report = Report()
    assert rows_of(tree_by_lists(distances, 1, engine, report)) == [(0, 1, 1.0), (2, 3, 1.2), (1, 2, 1.5)]
    assert report["spanning_tree"]["edges_certified_by_lists"] == 2
    assert report["connect"]["edges_certified_by_search"] == 1


def test_a_tie_at_the_bound_is_not_certain(engine):
    """Row 1 lists 0; an unlisted point as far away might come before any edge of equal weight and later code."""
    tree = tree_by_lists(np.ones((6, 6)) - np.eye(6), 1, engine)
    assert rows_of(tree) == [(0, v, 1.0) for v in range(1, 6)]


def test_the_edges_are_one_frame_from_the_first_round_on(engine):
    """The rounds and the searches write into its columns, each behind what is there."""
    n = 120
    distances = random_matrix(np.random.default_rng(0), n)
    lists = lists_of(distances, 1, engine)
    forest = Forest.of_points(lists, engine)
    assert isinstance(forest.edges, PreallocatedFrame)
    frame = forest.edges.frame
    assert isinstance(frame, engine.frames.DataFrame)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == EDGE_TYPES
    assert len(frame) == n - 1
    taken = kernels(engine).grow_forest(lists, forest).edges
    certified = rows_of(frame.iloc[:taken])
    expected = rows_of(all_pairs_tree(distances))
    assert 0 < taken < n - 1
    assert set(certified) < set(expected)
    connect_forest(forest, lists, MatrixSearch(distances, engine), engine, Report())
    assert forest.edges.frame is frame
    assert int(forest.n_taken[0]) == n - 1
    assert rows_of(frame)[:taken] == certified
    assert sorted(rows_of(frame)) == sorted(expected)


@pytest.mark.parametrize("max_weight", [np.inf, 2.0])
def test_a_search_that_finds_nothing_is_an_error(max_weight, engine):
    """Whether or not the tree ends at a weight: with no edge and no higher bound a round would follow for ever."""

    class Blind(MatrixSearch):
        def find(self, task):
            found = super().find(task)
            none = engine.xp.full(found.upper.size, -np.inf)
            return SearchResult(engine.xp.full_like(found.ids, -1), engine.xp.full_like(found.weights, np.inf), none)

    distances = random_matrix(np.random.default_rng(0), 100)
    lists = lists_of(distances, 1, engine)
    with pytest.raises(RuntimeError, match="a search has made no component certain of an edge"):
        tree_of_lists(lists, Blind(distances, engine), engine, Report(), max_weight)


@settings(max_examples=4 * settings().max_examples)
@given(
    n=st.sampled_from([2, 3, 10, 120]) | st.integers(2, 25), k=st.sampled_from([1, 2, 3, 30]) | st.integers(1, 6),
    ties=st.sampled_from([0, 1, 2, 3, 4, 6]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_tree_of_any_dissimilarity(n, k, ties, seed, engine):
    """Without ties, or of so many values."""
    distances = random_matrix(np.random.default_rng(seed), n, np.arange(float(ties)) if ties else None)
    report = Report()
    tree = tree_by_lists(distances, min(k, n - 1), engine, report)
    assert_same_edges(tree, all_pairs_tree(distances))
    searched = report.get("connect", {}).get("edges_certified_by_search", 0)
    assert report.get("spanning_tree", {}).get("edges_certified_by_lists", 0) + searched == n - 1


@given(st.integers(2, 300), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.booleans(),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_tree_of_points_on_small_grids(n, d, k, side, by_tree, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float64)
    search = (TreeSearch if by_tree else BruteForceSearch)(X, CPU, Report())
    assert_same_edges(tree_by_search(search, n, k, CPU), all_pairs_tree(squareform(pdist(X, "sqeuclidean"))))


@pytest.mark.parametrize("threads", [1, full(2), 5])
def test_same_tree_whoever_searches_when(threads, prescribe):
    """Threads of a CPU lower the bounds of components without a lock."""
    X = np.round(blobs(0, d=3, n=1200), 1)
    prescribe(cores=threads)
    tree = tree_by_search(TreeSearch(X, CPU, Report()), len(X), 1, CPU)
    assert_same_edges(tree, all_pairs_tree(squared_distances(X)))


def test_equal_points_are_not_all_compared():
    """A search by a tree that visits each of its equals takes minutes here."""
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 100_000, axis=0)
    tree = tree_by_search(TreeSearch(X, CPU, Report()), len(X), 3, CPU)
    assert set(tree["src"][: len(X) - 3]) == {0, 100_000, 200_000}
    assert (tree["weight"][: len(X) - 3] == 0).all()


HARD = [
    "filaments", "uneven_blobs_8d", "few_big_clusters", "tight_clusters", "integer_grid", "integer_grid_10d",
    "repeated_rows", "all_rows_equal", "equal_weight_path", "chain", "star", "exponential_gaps_12d", "last_bit",
]  # fmt: skip


@pytest.mark.parametrize("k", [1, full(2), full(3)])
@pytest.mark.parametrize(
    ("make_search", "name"), searches(*((name,) for name in HARD), features=lambda name: shape(name)[1], in_turn=True)
)
def test_tree_of_points(make_search, name, k):
    X = CASES[name]("float64")
    X = X[:: max(1, len(X) // 350)]
    tree = tree_by_search(make_search(X), len(X), k, make_search.engine)
    assert_same_edges(tree, all_pairs_tree(squareform(pdist(X, "sqeuclidean"))))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 4, 100, 3000])
def test_count_connected_components(n, k, engine):
    rng = np.random.default_rng(n)
    k = min(k, n - 1)
    for span in (2, 20, n):  # from many small components to few
        ids = (np.arange(n)[:, None] + rng.integers(1, min(span, n) + 1, (n, k))) % n
        ids = np.where(rng.random((n, k)) < 0.7, ids, ids[:, :1]).astype(np.int32)
        ids[: n // 2] = np.minimum(ids[: n // 2], n // 2 - 1)
        lists = NeighborLists(engine.asarray(ids), engine.xp.zeros((n, k)))
        graph = coo_matrix((np.ones(n * k), (np.repeat(np.arange(n), k), ids.ravel())), shape=(n, n))
        assert kernels(engine).connected_components(lists.ids) == connected_components(graph, directed=False)[0]


def test_many_components(engine):
    """Pairs, and one long path of neighbours."""
    pairs = engine.asarray((np.arange(1000, dtype=np.int32) ^ 1)[:, None])
    assert kernels(engine).connected_components(pairs) == 500
    path = engine.asarray(np.maximum(np.arange(-1, 999), 0).astype(np.int32)[:, None])
    assert kernels(engine).connected_components(path) == 1


@pytest.mark.parametrize("n", [1, 31, 32, 33, 257, 10_000])
def test_all_but_the_largest_component_search(n, engine):
    """Of equally large ones the largest is that of the least label."""
    rng, xp = np.random.default_rng(n), engine.xp
    for labels in (rng.integers(0, n, n), np.sort(rng.integers(0, max(1, n // 50), n)), np.full(n, n - 1)):
        bound = xp.zeros(n), xp.zeros(n, "int64")
        forest = Forest.of_components(engine.asarray(labels.astype(np.int32)), bound, engine)
        forest.best_weight[:], forest.best_code[:] = 1.0, 0
        rows = to_host(kernels(engine).rows_to_search(forest))
        np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(labels != np.bincount(labels).argmax()))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_rounds_from_given_components(k, engine):
    """What they take is in the tree, and what the last round has found is right, against a few lines of Python."""
    rng = np.random.default_rng(k)
    n, distances = 60, random_matrix(rng, 60, [1.0, 2.0, 3.0, 4.0])
    lists = lists_of(distances, k, engine)
    forest = Forest.of_points(lists, engine)
    given = rng.integers(0, 25, n)
    given = np.array([np.flatnonzero(given == c)[0] for c in given], np.int32)
    forest.component[:] = engine.asarray(given)
    growth = kernels(engine).grow_forest(lists, forest)
    component = to_host(forest.component)
    assert growth.components == np.unique(component).size
    assert growth.edges == np.unique(given).size - growth.components == int(forest.n_taken[0])
    taken = rows_of(forest.edges.frame.iloc[: growth.edges])
    together = given[:, None] == given
    assert set(taken) <= set(rows_of(all_pairs_tree(np.where(together, 0.0, distances))))
    ends = np.concatenate([[edge[:2] for edge in taken], np.column_stack([given, np.arange(n)])])
    assert same_components(component, ends, n)
    assert (component[component] == component).all()

    ids, weights = to_host(lists.ids), to_host(lists.weights)
    best, bound, none = {}, {}, (np.inf, NO_EDGE)

    def key(v, u, w):
        return w, (min(u, v) << 32) | max(u, v)

    for v in range(n):
        outside = np.flatnonzero(component[ids[v]] != component[v])
        assert int(forest.cursor[v]) == (outside[0] if outside.size else k)
        c = int(component[v])
        if outside.size:
            u, w = int(ids[v, outside[0]]), float(weights[v, outside[0]])
            for end in (c, int(component[u])):
                best[end] = min(best.get(end, none), key(v, u, w))
        bound[c] = min(bound.get(c, none), key(v, int(ids[v, -1]), float(weights[v, -1])))
    certain = {c for c in best if bound[c] >= best[c]}
    for c in np.unique(component).tolist():
        assert (float(forest.best_weight[c]), int(forest.best_code[c])) == best.get(c, none)
        assert bool(forest.certified[c]) == (c in certain)
    assert growth.components == 1 or not len(certain)


@given(n=st.integers(2, 60), k=st.integers(1, 4), ties=st.booleans(), seed=st.integers(0, 2**16))
def test_certified_components_halve_from_round_to_round(n, k, ties, seed):
    """By lists, and after each search: that bounds the number of rounds. See forest.cu."""
    rounds, propose, grow = [], cpu._propose_edges, cpu.grow_forest
    rng = np.random.default_rng(seed)
    distances = random_matrix(rng, n, [1.0, 2.0, 3.0] if ties else None)

    def noted(*given):
        rounds[-1].append(propose(*given))
        return rounds[-1][-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "_propose_edges", noted)
        patch.setattr(cpu, "grow_forest", lambda *given: rounds.append([]) or grow(*given))
        tree_by_lists(distances, min(k, n - 1), CPU)
    for certified in rounds:
        counts = [count for _, count in certified]
        assert all(2 * later <= earlier for earlier, later in pairwise(counts))


@pytest.mark.parametrize("leaves", [5, 62, 63, 100])
def test_rounds_end_at_their_bound(leaves, engine):
    """One point lists all others, which list nothing, and no bound tells: each round finds an edge."""
    n, xp = leaves + 1, engine.xp
    rows = np.arange(n, dtype=np.int32)
    ids, weights = np.repeat(rows[:, None], leaves, axis=1), np.full((n, leaves), np.inf)
    ids[0], weights[0] = rows[1:], rows[1:]
    forest = Forest.of_components(engine.asarray(rows), (xp.full(n, xp.inf), xp.full(n, NO_EDGE)), engine)
    lists = NeighborLists(engine.asarray(ids), engine.asarray(weights))
    growth = kernels(engine).grow_forest(lists, forest)
    found = min(leaves, kernels(engine).MAX_ROUNDS - 1) if engine.is_gpu else leaves
    assert (growth.edges, growth.rounds, growth.components) == (found, found, n - found)
    taken = rows_of(forest.edges.frame.iloc[: growth.edges])
    assert set(taken) == {(0, leaf, float(leaf)) for leaf in range(1, found + 1)}


@pytest.mark.parametrize("large", [None, full(8)])
@pytest.mark.parametrize("has_cores", [False, True])
@pytest.mark.parametrize("limit", [None, 0.5, full(0.9)])
@pytest.mark.parametrize("split", [256, full(1), full(697)])
def test_two_parts_whose_trees_are_known(split, limit, has_cores, large, engine, prescribe):
    """Ties and copies among them; up to a distance that ends in each part, and by given core distances."""
    rng, xp, parts = np.random.default_rng(0), engine.xp, (slice(0, split), slice(split, 700))
    prescribe(tree="lists", large_cluster=large)
    copies = rng.normal(size=(140, 12))[rng.integers(140, size=700)]
    for X in (rng.normal(size=(700, 12)), rng.integers(0, 2, (700, 12)) * 1.0, copies):
        distance = None if limit is None else float(np.quantile(squared_distances(X) ** 0.5, limit / 20))
        how = Settings(EUCLIDEAN, engine.name, max_distance=distance, n_neighbors=4)
        rows, core = engine.asarray(X), engine.asarray(rng.random(700)) if has_cores else None

        def problem(part, rows=rows, core=core, how=how):
            own = None if core is None else core[part].copy()
            return Problem(how, engine, len(rows[part]), 12, 8, core=own), rows[part].copy(), Report()

        known = [tree_of_rows(*problem(part))[0].columns for part in parts]
        whole, values, report = problem(slice(0, 700))
        found, expected = tree_of_two_parts(values, split, known, whole, report), tree_of_rows(whole, values, report)[0]
        kept, wanted = (tree.columns["weight"] <= whole.max_weight for tree in (found, expected))
        for name, column in found.columns.items():
            assert xp.array_equal(column[kept], expected.columns[name][wanted])

"""Neighbour lists and trees from their definition, and every search that they are compared with."""

import importlib
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hard_cases import CASES
from scipy.cluster.hierarchy import linkage
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import minimum_spanning_tree as scipys_tree
from scipy.spatial.distance import cdist, pdist, squareform

from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.kdtree import TreeSearch
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report
from rapids_slink.runtime.device import gpu_is_usable, resolve, to_host

MAX_TREE_FEATURES = 20  # features of a GPU's tree in tests: each number is compiled


def generic_hdbscan(X, m, **parameters):
    """Fit hdbscan's generic algorithm on SciPy's distances.

    hdbscan's own distances, by a matrix product, are less precise.
    """
    hdbscan = pytest.importorskip("hdbscan")
    distances = squareform(pdist(X))
    return hdbscan.HDBSCAN(min_samples=m, metric="precomputed", algorithm="generic", **parameters).fit(distances)


def squared_distances(X, Y=None):
    """Return all squared distances from their definition, (n, m) float64, summed feature after feature.

    A few rows at a time stay in the cache.
    """
    X, Y = X.astype(np.float64), (X if Y is None else Y).astype(np.float64)
    total, columns = np.zeros((len(X), len(Y))), np.ascontiguousarray(Y.T)
    for begin in range(0, len(X), 16):
        of_rows = total[begin : begin + 16]
        for f, column in enumerate(columns):
            gap = X[begin : begin + 16, f, None] - column
            of_rows += gap * gap
    return total


def without_self(distances):
    """Return distances without those of each row to itself, which become infinite."""
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    return distances


def least(distances, k):
    """Return the ids and values of each row's k least columns, (n, k).

    Equal values go by column. The id is -1 for columns at infinity.
    """
    k = min(k, distances.shape[1])
    row, column = np.nonzero(distances <= np.partition(distances, k - 1, axis=1)[:, k - 1 : k])
    order = np.lexsort((column, distances[row, column], row))
    ids = column[order[np.searchsorted(row, np.arange(len(distances)))[:, None] + np.arange(k)]]
    weights = np.take_along_axis(distances, ids, axis=1)
    return np.where(np.isinf(weights), -1, ids), weights


@cache
def case_lists(name, dtype, most, k):
    """Return the first rows of a case, and their lists, as long as they can be up to k."""
    X = CASES[name](dtype)[:most]
    return X, least(without_self(squared_distances(X)), min(k, len(X) - 1))


def assert_lists(found, expected):
    np.testing.assert_array_equal(to_host(found.ids), expected[0])
    np.testing.assert_array_equal(to_host(found.weights), expected[1])


def assert_neighbors(found, X, k, step=1):
    """Assert that the list of every `step`-th row has its k nearest rows, by all its distances."""
    rows = np.arange(0, len(X), step)
    distances = cdist(X[rows].astype(np.float64), X.astype(np.float64), "sqeuclidean")
    distances[np.arange(rows.size), rows] = np.inf
    ids, weights = least(distances, k)
    np.testing.assert_array_equal(to_host(found.ids)[rows], ids)
    np.testing.assert_array_equal(to_host(found.weights)[rows], weights)


def assert_edges(frame, expected):
    """Assert that a frame of edges, k for each row, holds these ids and distances."""
    ids, distances = expected
    np.testing.assert_array_equal(frame["src"].to_numpy(), np.repeat(np.arange(len(ids)), ids.shape[1]))
    np.testing.assert_array_equal(frame["dst"].to_numpy(), ids.ravel())
    np.testing.assert_array_equal(frame["weight"].to_numpy(), distances.ravel())


def assert_unlisted_are_above(found, distances):
    """Assert that what a row does not list comes after its last entry, or above its bound.

    The bound counts if it is lower than the last entry or the list is not full.
    """
    ids, weights, upper = (to_host(part) for part in (found.ids, found.weights, found.upper))
    unlisted = np.isfinite(distances)
    row, at = np.nonzero(ids >= 0)
    unlisted[row, ids[row, at]] = False
    is_full = (ids >= 0).all(axis=1) & (weights[:, -1] <= upper)
    bound = np.where(is_full, weights[:, -1], upper)[:, None]
    tied_after = (distances == bound) & is_full[:, None] & (np.arange(distances.shape[1]) > ids[:, -1:])
    assert ((distances > bound) | tied_after | ~unlisted).all()


def core_distances(distances, m):
    """Return each row's m-th least distance, itself not counted: (n,)."""
    return np.partition(without_self(distances), m - 1, axis=1)[:, m - 1].copy()


def heights_of(distances):
    """Return SciPy's heights of a matrix of distances."""
    return linkage(squareform(distances, checks=False), "single")[:, 2]


def mutual_reachability(distances, core):
    weights = np.maximum(distances, np.maximum(core[:, None], core))
    np.fill_diagonal(weights, 0)
    return weights


def tree_of(matrix):
    """Return the minimum spanning tree in the total order: the columns src, dst and weight.

    It is SciPy's tree with each pair's rank in that order for a weight.
    """
    n = len(matrix)
    src, dst = np.triu_indices(n, 1)
    weight = matrix[src, dst]
    order = np.argsort(weight, kind="stable")  # of equal weights the lower numbers are first
    src, dst, weight = src[order], dst[order], weight[order]
    tree = scipys_tree(coo_matrix((np.arange(1.0, src.size + 1), (src, dst)), shape=(n, n)))
    taken = np.sort(tree.data).astype(int) - 1
    return src[taken], dst[taken], weight[taken]


def assert_tree(frame, expected):
    for name, column in zip(("src", "dst", "weight"), expected, strict=True):
        np.testing.assert_array_equal(to_host(frame[name].values), column)


def blobs(seed, d=2, n=400, noise=40):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(6, d)) * 6
    X = centers[rng.integers(0, 6, n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 1.2, (n, 1))
    return np.concatenate([X, rng.uniform(-12, 12, (noise, d))])


def every_pair(search):
    """Return the ids of all pairs of points and their surrogate distances."""
    src, dst = np.triu_indices(len(search.exact.points), 1)
    return src, dst, to_host(kernels(search.device).all_distances(search.exact.points, search.metric))[src, dst]


class SearchKind(NamedTuple):
    """A search of a device, whether or not it suits the points: called with NumPy's it is one among them."""

    device: str
    way: str

    @property
    def engine(self):
        return resolve(self.device)

    def serves(self, d):
        """Return whether there is such a search for points of d features."""
        return self.way != "tree" or self.device == "cpu" or d <= MAX_TREE_FEATURES

    def __call__(self, values, queries=None, report=None, **options):
        kind = TileSearch if self.way == "tiles" else BruteForceSearch
        if self.way == "tree":
            in_boxes = self.device == "cuda"
            kind = importlib.import_module("rapids_slink.neighbors.bvh").BoxSearch if in_boxes else TreeSearch
        queries = None if queries is None else self.engine.asarray(queries)
        values = np.ascontiguousarray(values)
        return kind(self.engine.asarray(values), self.engine, report or Report(), queries, **options)


OF_QUERIES = "brute_force", "tree"  # these search among points for neighbours of other points
DEVICES = "cpu", *["cuda"] * gpu_is_usable()  # half of all items would be made for nothing where there is no GPU
SEARCHES = [(device, way) for device in DEVICES for way in (*OF_QUERIES, "tiles")]


def searches(*parameters, features=None, two_sets=False, in_turn=False):
    """Return the parameters ``make_search, ...``: every search with each of the others that it serves, maybe one alone.

    `features` tells how many features the points of some parameters have; by default they are few. `two_sets` is
    whether the queries are other rows than the points. `in_turn`: one search of a device for each quick case is quick.
    """
    found = []
    for turn, given in enumerate(parameters or [()]):
        given = given if isinstance(given, type(pytest.param())) else pytest.param(*given)
        for kind in (SearchKind(*search) for search in SEARCHES):
            if two_sets and kind.way not in OF_QUERIES:
                continue
            if features is None or kind.serves(features(*given.values)):
                is_due = not in_turn or kind.way == (*OF_QUERIES, "tiles")[turn % 3]
                marks = [*given.marks, *[pytest.mark.gpu] * (kind.device == "cuda"), *[pytest.mark.full] * (not is_due)]
                id_ = "-".join([*kind, *map(str, given.values)])
                found.append(pytest.param(kind, *given.values, marks=marks, id=id_))
    return found

"""What each stage's result must equal, to the last bit, and which oracle says so.

A check returns (exact, checked_against): (None, None) where no oracle can be had in reasonable time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from scipy.sparse import coo_array, issparse

import rapids_slink
from bench.blocks import in_blocks
from bench.first import First
from bench.stages import LISTED, GraphWork, TreeWork, Work, pairs
from rapids_slink.dendrogram.cpu import merge_in_order
from rapids_slink.points.output import EDGE_TYPES, frame_of
from rapids_slink.runtime.device import to_host

Verdict = tuple[bool | None, str | None]

SCIPY_ROWS = 20_000  # pdist holds n²/2 float64, other oracles n²
SCIPY_EDGES = 10**8
ALL_PAIRS_WORK = 2e11  # n²·d that an oracle of all pairs does in a minute or two
GROUPS = 1000  # groups whose trees are checked
SAMPLE, FEW_ROWS = 64, 4  # rows whose neighbours are checked, and the least number whose pairs are
PAIRS_WORK = 4e9  # features that are compared to check pairs, about
CYCLE_ROWS = 16
MINKOWSKI_ULP = 4  # a library computes the powers
RADIANS = 4e-15  # a library computes an angle's sines too
ROUNDED = 1e-12  # cdist sums products in another order
BLOCK = 2**16  # rows or edges that a thread works on at a time
VALID_ROWS = 2_000_000


def heights(work: Work, model: Any) -> Verdict:
    """Check merge heights against SciPy, known sums or a brute-force tree, or else by the tree's cycles.

    The cycles are checked where the others take too long.
    """
    n, d = work.points.shape
    is_text = work.points.dtype == object
    if is_text or work.case.missing or work.case.max_distance or work.case.box:  # SciPy has none of them
        return None, None
    found = model.to_scipy()[:, 2]
    if work.case.squared_sums is not None:
        squares = np.rint(found**2).astype(np.int64)
        sums = (int(squares.sum()), int(squares.max()))
        right = np.array_equal(np.sqrt(squares), found) and sums == work.case.squared_sums
        return right, "known sum and largest of the squared weights"
    has_oracle = n * n * d <= ALL_PAIRS_WORK
    if n <= SCIPY_ROWS and has_oracle:
        expected = scipys(work)()[:, 2]
        off = {"minkowski": MINKOWSKI_ULP * np.spacing(expected), "haversine": RADIANS}.get(work.case.metric, 0.0)
        return bool((abs(found - expected) <= off).all()), "scipy.cluster.hierarchy.linkage"
    if issparse(work.points) or work.case.metric not in ("euclidean", "haversine"):
        return None, None
    if work.case.metric == "euclidean" and has_oracle:
        squares = np.sort(brute_force_tree(np.ascontiguousarray(_float64(work.points).T)))
        return _same(found, np.sqrt(squares)), "brute-force spanning tree"
    tree = model.mst_.compute() if hasattr(model.mst_, "compute") else model.mst_
    right = cycles(work.points, tree, found, work.case.metric)
    return right, f"cycle property of {CYCLE_ROWS} rows' pairs with all others"


def heights_of_groups(work: Work, model: Any) -> Verdict:
    """Check the heights of some groups, the largest among them, against SciPy's of each alone."""
    from scipy.cluster.hierarchy import linkage

    if work.points.dtype == object:
        return None, None
    group, n_groups = work.group, int(work.group[-1]) + 1
    tree = {name: _column(model.mst_, name) for name in ("src", "dst", "weight")}
    of_edge = group[tree["src"]]
    rng, size = np.random.default_rng(0), np.bincount(group)
    some = {int(size.argmax()), *rng.choice(n_groups, min(n_groups, GROUPS), replace=False).tolist()}
    right = bool((of_edge == group[tree["dst"]]).all()) and len(of_edge) == len(group) - n_groups
    order = np.argsort(of_edge, kind="stable")
    begin = np.searchsorted(of_edge[order], np.arange(n_groups + 1))
    starts = np.searchsorted(group, np.arange(n_groups + 1))
    for g in some:
        rows = _float64(work.points[starts[g] : starts[g + 1]])
        expected = linkage(rows, "single")[:, 2] if len(rows) > 1 else np.empty(0)
        right = right and _same(tree["weight"][order[begin[g] : begin[g + 1]]], expected)
    return right, f"scipy.cluster.hierarchy.linkage of {len(some)} groups"


def appended(work: Work, model: Any) -> Verdict:
    """Check the linkage of all rows against that of a fit."""
    new, old = (work.device.asarray(part) for part in work.split)
    expected = rapids_slink.fit(work.device.xp.concatenate((old, new)), device=work.device.name).linkage_
    right = all(_same(_column(model.linkage_, name), _column(expected, name)) for name in expected.columns)
    return right, "fit of all rows"


def first_heights(work: Work, first: First) -> Verdict:
    """Check a new process's merge heights against SciPy."""
    if len(work.points) > SCIPY_ROWS:
        return None, None
    return _same(first.heights, scipys(work)()[:, 2]), "scipy.cluster.hierarchy.linkage"


def scipys(work: Work) -> Callable[[], np.ndarray]:
    """Return a call for SciPy's linkage of the case."""
    from scipy.cluster.hierarchy import linkage

    points = work.points if work.points.dtype == bool else _float64(work.points)
    return lambda: linkage(_condensed(points, work.case.metric, work.case.p), "single")


def _condensed(points: np.ndarray, metric: str, p: float) -> np.ndarray:
    """Return the distances of all pairs by SciPy's `pdist`; NumPy and scikit-learn serve the metrics that it lacks."""
    from scipy.spatial.distance import pdist, squareform

    if metric == "inner_product":
        return squareform(-(points @ points.T), checks=False)
    if metric == "haversine":
        from sklearn.metrics.pairwise import haversine_distances

        return squareform(haversine_distances(points), checks=False)
    if metric == "containment":
        common, ones = points.astype(np.int64) @ points.T.astype(np.int64), points.sum(axis=1)
        fewer = np.minimum(ones[:, None], ones)
        return squareform((fewer - common) / fewer, checks=False)
    return pdist(points, metric, **({"p": p} if metric == "minkowski" else {}))


def mutual_heights(work: Work, clusters: Any) -> Verdict:
    """Check the heights of hdbscan's tree against SciPy's of mutual reachability.

    For more than `SCIPY_ROWS` rows, check the tree's cycles, with core distances of lists that are checked in part.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    if len(work.points) > SCIPY_ROWS:
        core, right = _core_squares(work)
        right = right and cycles(work.points, clusters.mst_, clusters.to_scipy()[:, 2], core=core)
        return right, f"cycle property of {CYCLE_ROWS} rows' pairs with all others, in mutual reachability"
    weights = squareform(pdist(_float64(work.points)))
    core = np.array([np.partition(row, work.case.min_samples)[work.case.min_samples] for row in weights])
    np.maximum(weights, core, out=weights)
    np.maximum(weights, core[:, None], out=weights)
    expected = linkage(squareform(weights, checks=False), "single")[:, 2]
    found = clusters.to_scipy()[:, 2]
    return _same(found, expected), "scipy.cluster.hierarchy.linkage of mutual reachability"


def own_fits(work: Work, labels: Any) -> Verdict:
    """Check each column of labels against a fit of its own; for many rows, only the first and the last column."""
    pairs = list(labels.columns)
    of_many = len(work.points) > SCIPY_ROWS
    for size, m in (pairs[0], pairs[-1]) if of_many else pairs:
        own = rapids_slink.HDBSCAN(size, m, device=work.device.name).fit(work.table)
        if not bool((own.labels_ == labels[size, m]).all()):
            return False, "fits of their own"
    return len(pairs) == len(set(pairs)), "fits of their own" + " (two)" * of_many


def _core_squares(work: Work) -> tuple[np.ndarray, bool]:
    """Return the square of each row's distance from its `min_samples`-th nearest other row, by lists of neighbours.

    The second result is whether the lists of sampled rows are right, by SciPy's `cdist`.
    """
    points, m = work.points, work.case.min_samples
    edges = rapids_slink.knn_graph(work.device.asarray(points), m, device=work.device.name)
    src, dst = (_column(edges, name)[m - 1 :: m] for name in ("src", "dst"))
    squares, none = np.empty(len(points)), np.zeros(len(points))
    in_blocks(lambda at: _lengths(points, none, src[at], dst[at], False, squares[at]), len(points), BLOCK)
    return squares, _has_nearest(points, edges, m)[0]


def cycles(
    points: np.ndarray, tree: Any, found: np.ndarray, metric: str = "euclidean", core: np.ndarray | None = None
) -> bool:
    """Return whether the heights are the tree's exact weights and no pair that holds a sampled row undercuts the tree.

    A spanning tree is minimal if and only if every pair of points is at least as far apart as the longest edge on the
    tree's path between them. Angles may be off by `RADIANS`. With the squares of core distances two points are as far
    apart as their mutual reachability.
    """
    from scipy.sparse.csgraph import breadth_first_order

    n, are_angles = len(points), metric == "haversine"
    core = np.zeros(n) if core is None else core
    src, dst, weight = (_column(tree, name) for name in ("src", "dst", "weight"))
    lengths = np.empty(len(src))
    in_blocks(lambda at: _lengths(points, core, src[at], dst[at], are_angles, lengths[at]), len(src), BLOCK)
    distance, off = (lengths, RADIANS) if are_angles else (np.sqrt(lengths), 0.0)
    if len(src) != n - 1 or not (np.abs(weight - distance) <= off).all() or not _same(found, np.sort(weight)):
        return False
    ends = coo_array((np.ones(n - 1), (src, dst)), shape=(n, n)).tocsr()
    order, parent = breadth_first_order(ends, 0, directed=False)
    if len(order) != n:
        return False
    up = np.empty(n)
    up[np.where(parent[src] == dst, src, dst)] = lengths - off
    rows = np.random.default_rng(0).choice(n, min(n, CYCLE_ROWS), replace=False)
    return not any(
        in_blocks(lambda at: _is_undercut(points, core, order, parent, up, are_angles, rows[at.start]), rows.size, 1)
    )


@njit(cache=True, nogil=True)
def _lengths(points, core, src, dst, are_angles, out):  # type: ignore[no-untyped-def]
    """Write the lengths of the edges between pairs of rows to `out`: angles, or squared distances."""
    for e in range(src.size):
        out[e] = max(_length(points, src[e], dst[e], are_angles), core[src[e]], core[dst[e]])


@njit(cache=True, nogil=True)
def _length(points, i, j, is_angle):  # type: ignore[no-untyped-def]
    """Return the angle between two places, by the haversine formula, or a squared distance."""
    if is_angle:
        latitude, other = np.float64(points[i, 0]), np.float64(points[j, 0])
        north, east = np.sin((latitude - other) / 2), np.sin((np.float64(points[i, 1]) - points[j, 1]) / 2)
        haversine = north * north + np.cos(latitude) * np.cos(other) * east * east
        return 2 * np.arcsin(np.sqrt(min(haversine, 1.0)))
    total = 0.0
    for f in range(points.shape[1]):
        total += (np.float64(points[i, f]) - np.float64(points[j, f])) ** 2
    return total


@njit(cache=True, nogil=True)
def _is_undercut(points, core, order, parent, up, are_angles, row):  # type: ignore[no-untyped-def]
    """Return whether `row` is nearer to some point than the longest edge on their path in a tree.

    The tree is given by its nodes from the root on, their parents and the lengths of the edges to these.
    """
    longest = np.full(order.size, -1.0)
    longest[row] = 0.0
    v = row
    while parent[v] >= 0:
        longest[parent[v]] = max(longest[v], up[v])
        v = parent[v]
    for v in order:
        if longest[v] < 0:
            longest[v] = max(longest[parent[v]], up[v])
        if max(_length(points, row, v, are_angles), core[row], core[v]) < longest[v]:
            return True
    return False


def neighbours(work: Work, edges: Any) -> Verdict:
    """Check the distances of sampled rows' lists against SciPy's `cdist`."""
    right, rows = _has_nearest(work.points, edges, work.case.n_neighbors)
    return right, f"scipy.spatial.distance.cdist, {rows} rows"


def _has_nearest(points: np.ndarray, edges: Any, k: int) -> tuple[bool, int]:
    """Return whether the k distances of sampled rows are those of SciPy's `cdist`, and the number of these rows."""
    rows = np.random.default_rng(0).choice(len(points), min(SAMPLE, len(points)), replace=False)
    expected = _nearest_distances(points[rows], points, k, rows)
    found = _column(edges, "weight").reshape(len(points), k)[rows]
    return _same(found, expected), len(rows)


def nearest(work: Work, edges: Any) -> Verdict:
    """Check the distances of sampled queries against SciPy's `cdist`."""
    queries, points = work.split
    rows = np.random.default_rng(0).choice(len(queries), min(SAMPLE, len(queries)), replace=False)
    expected = _nearest_distances(queries[rows], points, 1)[:, 0]
    found = _column(edges, "weight")
    return found.size == len(queries) and _same(found[rows], expected), (
        f"scipy.spatial.distance.cdist, {len(rows)} rows"
    )


def nearest_lists(work: Work, lists: Any, k: int) -> Verdict:
    """Check the lists of sampled queries against SciPy's `cdist`.

    The listed rows must be at these distances, in the total order.
    """
    queries, points = work.split
    distances, ids = (to_host(part) for part in lists)
    rows = np.random.default_rng(0).choice(len(queries), min(SAMPLE, len(queries)), replace=False)
    against = f"scipy.spatial.distance.cdist, {len(rows)} rows"
    expected = _nearest_distances(queries[rows], points, k)
    if distances.shape != (len(queries), k) or not _same(distances[rows], expected):
        return False, against
    gaps = _float64(queries[rows])[:, None] - _float64(points[ids[rows]])
    squares = np.add.accumulate(gaps**2, axis=2)[:, :, -1]
    is_after = (squares[:, 1:] > squares[:, :-1]) | (
        (squares[:, 1:] == squares[:, :-1]) & (ids[rows, 1:] > ids[rows, :-1])
    )
    return _same(np.sqrt(squares), expected) and bool(is_after.all()), against


def near_pairs(work: Work, found: Any) -> Verdict:
    """Check the pairs that hold one of some rows against SciPy's distances.

    Euclidean distances must agree to the last bit.
    """
    if work.case.metric == "levenshtein":
        return near_strings(work, found)
    metric, points, near = work.case.metric, work.points, work.near
    if metric not in ("euclidean", "cosine", "jaccard", "bit_jaccard") or work.case.missing:
        return None, None
    if metric == "bit_jaccard":
        metric, points = "jaccard", np.unpackbits(points, axis=1).view(bool)
    is_sparse = hasattr(points, "tocsr")
    points = points if is_sparse or points.dtype == bool else _float64(points)
    (n, d), (src, dst, weight) = points.shape, (_column(found, name) for name in EDGE_TYPES)
    if (src >= dst).any() or (np.diff(src.astype(np.int64) * n + dst) <= 0).any():
        return False, "order"
    off, against = 0.0 if metric == "euclidean" else ROUNDED, "scipy.spatial.distance.cdist"
    size = min(n, SAMPLE, max(FEW_ROWS, int(PAIRS_WORK / (n * d))))
    distances: Callable[[int], np.ndarray] = partial(_distances_from, points, metric)
    if is_sparse:
        distances, against = partial(_of_row, points, metric), "plain sums"
    elif metric == "jaccard":
        distances, against = _jaccard_from(points), "NumPy's counts"
    elif work.case.box is not None:
        distances, against = partial(_distances_in_box, points, work.case.box), "NumPy's distances in the box"
    for row in np.random.default_rng(0).choice(n, size, replace=False).tolist():
        expected = distances(row)
        expected[row] = np.inf
        own = (src == row) | (dst == row)
        listed = np.full(n, np.inf)
        listed[np.where(src[own] == row, dst[own], src[own])] = weight[own]
        wrong = np.isfinite(listed) != (expected <= near)
        wrong &= abs(expected - near) > off
        both = np.isfinite(listed)
        if wrong.any() or (abs(listed[both] - expected[both]) > off).any():
            return False, f"{against} of {size} rows"
    return True, f"{against} of {size} rows"


def counted(work: Work, found: Any) -> Verdict:
    """Check the number of pairs against SciPy's distances of all pairs."""
    n, d = work.shape
    if work.case.metric != "euclidean" or work.case.missing or work.case.box or n * n * d > ALL_PAIRS_WORK:
        return None, None
    points = _float64(work.points)
    within = sum(int((_distances_from(points, "euclidean", row)[row + 1 :] <= work.near).sum()) for row in range(n))
    return found == within, "scipy.spatial.distance.cdist"


def _distances_from(points: np.ndarray, metric: str, row: int) -> np.ndarray:
    """Return the distances of a row to all, by SciPy: (n,) float64."""
    from scipy.spatial.distance import cdist

    distances: np.ndarray = cdist(points[row : row + 1], points, metric)[0]
    return distances


def _distances_in_box(points: np.ndarray, box: float, row: int) -> np.ndarray:
    """Return the Euclidean distances of a row to all rows of a box that repeats, (n,).

    The squares are summed in the order of the features.
    """
    gaps = abs(points[row] - points)
    squares = np.minimum(gaps, box - gaps) ** 2
    return np.sqrt(np.add.accumulate(squares, axis=1)[:, -1])


def _jaccard_from(points: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a function from a row's number to its Jaccard distances to all rows of booleans, (n,).

    SciPy's `cdist` takes 40 s for 1,000,000×2,048.
    """
    sizes = points.sum(axis=1)

    def distances(row: int) -> np.ndarray:
        both = points[:, points[row]].sum(axis=1)
        either = sizes + sizes[row] - both
        return np.divide(either - both, either, where=either > 0, out=np.zeros(len(points)))

    return distances


def first_rows(work: Work, found: Any) -> Verdict:
    """Check the row that each goes to against the first one of its component of all pairs within the distance."""
    n, d = work.shape
    if n * n * d > ALL_PAIRS_WORK:
        return None, None
    near = pairs(work)()
    label = _components(_column(near, "src"), _column(near, "dst"), np.arange(n))
    first = np.unique(label, return_index=True)[1]
    return bool((found.to_numpy() == first[label]).all()), "scipy.sparse.csgraph.connected_components"


def friends(work: Work, labels: Any) -> Verdict:
    """Check labels against the components of all pairs within the distance, in the order of their first rows."""
    found = pairs(work)()
    src, dst = (_column(found, name) for name in ("src", "dst"))
    return _same(to_host(labels), _components(src, dst, np.arange(work.shape[0]))), (
        "scipy.sparse.csgraph.connected_components of all pairs"
    )


def dbscan(work: Work, labels: Any) -> Verdict:
    """Check labels against the definition of DBSCAN, by all pairs within the distance."""
    found, n = pairs(work)(), work.shape[0]
    src, dst = (_column(found, name) for name in ("src", "dst"))
    is_core = 1 + np.bincount(src, minlength=n) + np.bincount(dst, minlength=n) >= work.case.min_samples
    of_cores, core = is_core[src] & is_core[dst], np.flatnonzero(is_core)
    expected = np.full(n, n)
    expected[core] = _components(src[of_cores], dst[of_cores], core)
    for row, other in ((src, dst), (dst, src)):
        border = is_core[other] & ~is_core[row]
        np.minimum.at(expected, row[border], expected[other[border]])
    return _same(to_host(labels), np.where(expected < n, expected, -1)), "all pairs"


def _components(src: np.ndarray, dst: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the number of the component of each of some rows, in the order of their first rows."""
    from scipy.sparse.csgraph import connected_components

    n = int(rows.max(initial=-1)) + 1
    graph = coo_array((np.ones(src.size, np.int8), (src, dst)), shape=(n, n)).tocsr()
    label = connected_components(graph, directed=False)[1][rows]
    _, first, number = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def _of_row(matrix: Any, metric: str, row: int) -> np.ndarray:
    """Return the distances of a row of a sparse matrix to all, jaccard or cosine: (n,)."""
    own = matrix[[row]]
    at = np.minimum(np.searchsorted(own.indices, matrix.indices), own.nnz - 1)
    shared = np.flatnonzero(own.indices[at] == matrix.indices)
    of_entry = np.searchsorted(matrix.indptr, shared, side="right") - 1
    products = matrix.data[shared].astype(np.float64) * own.data[at[shared]]
    dots = np.bincount(of_entry, weights=products, minlength=matrix.shape[0])
    if metric == "jaccard":
        return 1 - dots / (np.diff(matrix.indptr) + own.nnz - dots)
    lengths = np.sqrt(np.add.reduceat(matrix.data**2, matrix.indptr[:-1]))
    return 1 - dots / (lengths * lengths[row])


def near_strings(work: Work, found: Any) -> Verdict:
    """Check the pairs that hold one of some strings against rapidfuzz."""
    if importlib.util.find_spec("rapidfuzz") is None:
        return None, None
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    strings, near = work.points[:, 0].tolist(), work.near
    src, dst, weight = (_column(found, name) for name in EDGE_TYPES)
    rows = np.random.default_rng(0).choice(len(strings), min(len(strings), SAMPLE), replace=False)
    expected = cdist([strings[row] for row in rows], strings, scorer=Levenshtein.distance, score_cutoff=near)
    for row, distance in zip(rows.tolist(), expected, strict=True):
        own = (src == row) | (dst == row)
        listed = np.full(len(strings), near + 1)
        listed[np.where(src[own] == row, dst[own], src[own])], listed[row] = weight[own], 0
        if not np.array_equal(listed, np.minimum(distance, near + 1)):
            return False, f"rapidfuzz of {len(rows)} rows"
    return True, f"rapidfuzz of {len(rows)} rows"


def _nearest_distances(queries: np.ndarray, points: np.ndarray, k: int, own: np.ndarray | None = None) -> np.ndarray:
    """Return the k least distances of each query, in order, (m, k).

    A query's distance to its point in `own` does not count.
    """
    from scipy.spatial.distance import cdist

    queries = _float64(queries)

    def search(at: slice) -> np.ndarray:
        distance = cdist(queries, _float64(points[at]))
        if own is not None:
            inside = np.flatnonzero((own >= at.start) & (own < at.stop))
            distance[inside, own[inside] - at.start] = np.inf
        return np.partition(distance, k - 1, axis=1)[:, :k] if k < distance.shape[1] else distance

    return np.sort(np.hstack(in_blocks(search, len(points), BLOCK)), axis=1)[:, :k]


def forest(work: Work | GraphWork, tree: Any) -> Verdict:
    """Check the weights of a forest against another package's.

    All minimum spanning forests have the same multiset of weights.
    """
    on_gpu = work.device.is_gpu and importlib.util.find_spec("cugraph") is not None
    if isinstance(work, GraphWork) and on_gpu:
        import cugraph

        expected = cugraph.minimum_spanning_tree(cugraph_graph(simple(work))).view_edge_list().iloc[:, -1].to_numpy()
        return _same(np.sort(_column(tree, "weight")), np.sort(expected)), "cugraph.minimum_spanning_tree"
    if len(work.edges) > SCIPY_EDGES:
        return None, None
    from scipy.sparse.csgraph import minimum_spanning_tree

    expected = minimum_spanning_tree(sparse(simple(work), work.shape[0])).data
    found = _column(tree, "weight")
    # SciPy takes a zero for no edge.
    return _same(np.sort(found[found > 0]), np.sort(expected)), "scipy.sparse.csgraph.minimum_spanning_tree"


def simple(work: Work | GraphWork) -> Any:
    """Return the edge frame without self-loops, and with only the lightest of parallel edges.

    Other packages take no others.
    """
    edges, xp, n = work.edges, work.device.xp, work.shape[0]
    if not (isinstance(work, GraphWork) and work.case.parallels):
        return edges
    src, dst = edges["src"].values, edges["dst"].values
    pair = xp.minimum(src, dst).astype("int64") * n + xp.maximum(src, dst)
    frame = frame_of(work.device, {"pair": pair, "weight": edges["weight"].values})[src != dst]
    frame = frame.groupby("pair", sort=False).min().reset_index()
    pair = frame["pair"].values
    ends = {"src": (pair // n).astype("int32"), "dst": (pair % n).astype("int32")}
    return frame_of(work.device, {**ends, "weight": frame["weight"].values})


def cugraph_graph(edges: Any) -> Any:
    """Return an edge frame as cuGraph's graph."""
    import cugraph

    graph = cugraph.Graph()
    edges = edges if edges["weight"].dtype.kind == "f" else edges.astype({"weight": "float32"})  # exact up to 2**24
    graph.from_cudf_edgelist(edges, source="src", destination="dst", edge_attr="weight")
    return graph


def merges(work: Work | TreeWork, found: Any) -> Verdict:
    """Check every column of the linkage against union-find on the host.

    SciPy's `is_valid_linkage` checks up to `VALID_ROWS` merges, too.
    """
    from scipy.cluster.hierarchy import is_valid_linkage

    src, dst, weight = (_column(work.tree, name) for name in ("src", "dst", "weight"))
    rows = np.lexsort((np.maximum(src, dst), np.minimum(src, dst), weight))
    expected = np.empty((3, len(rows)), np.int32)
    merge_in_order(src[rows], dst[rows], work.shape[0], *expected)
    columns = dict(zip(("left", "right", "size"), expected, strict=True), height=weight[rows])
    right = all(_same(_column(found, name), column) for name, column in columns.items())
    if len(found) <= VALID_ROWS:
        table = [_column(found, name).astype(np.float64) for name in ("left", "right", "height", "size")]
        right = right and bool(is_valid_linkage(np.column_stack(table)))
    return right, "union-find, scipy.cluster.hierarchy.is_valid_linkage"


def partition(work: Work | TreeWork, labels: Any) -> Verdict:
    """Check labels against the components of the tree without its n_clusters - 1 heaviest edges."""
    right = _is_partition(work, labels.to_numpy() if hasattr(labels, "to_numpy") else labels, work.case.n_clusters)
    return right, "components of the lightest tree edges"


def partitions(work: Work | TreeWork, labels: Any) -> Verdict:
    """Check each column of labels as `partition` does."""
    right = all(_is_partition(work, _column(labels, n_clusters), n_clusters) for n_clusters in labels.columns)
    return right and len(labels.columns) > 1, "components of the lightest tree edges"


def _is_partition(work: Work | TreeWork, labels: Any, n_clusters: int) -> bool:
    from scipy.sparse.csgraph import connected_components

    n, found = work.shape[0], to_host(labels)
    src, dst, weight = (_column(work.tree, name) for name in ("src", "dst", "weight"))
    kept = np.argsort(weight, kind="stable")[: n - n_clusters]  # the fitted tree is in merge order
    ends = coo_array((np.ones(kept.size, np.int8), (src[kept], dst[kept])), shape=(n, n)).tocsr()
    count, expected = connected_components(ends, directed=False)
    match = np.full(count, -1)
    match[expected] = found
    return count == n_clusters == len(np.unique(match)) and bool((match[expected] == found).all())


CHECKS: dict[str, Callable[[Any, Any], Verdict]] = {
    "fit": heights,
    "fit-array": heights,
    "groups": heights_of_groups,
    "knn": neighbours,
    "nearest_neighbors": nearest,
    **{stage: partial(nearest_lists, k=k) for stage, k in LISTED.items()},
    "pairs": near_pairs,
    "count": counted,
    "deduplicate": first_rows,
    "friends": friends,
    "dbscan": dbscan,
    "append": appended,
    "spanning_tree": forest,
    "connect": heights,
    "forest": heights,
    "linkage": merges,
    "cut": partition,
    "cuts": partitions,
    "hdbscan": mutual_heights,
    "hdbscan_many": own_fits,
    "dask": heights,
    "first": first_heights,
    "first-compiling": first_heights,
}


def sparse(edges: Any, n: int) -> Any:
    """Return an edge frame as a SciPy matrix."""
    ends = (_column(edges, "src"), _column(edges, "dst"))
    return coo_array((_column(edges, "weight"), ends), shape=(n, n)).tocsr()


@njit(cache=True)
def brute_force_tree(columns):  # type: ignore[no-untyped-def]
    """Return the squared weights of the minimum spanning tree, (n - 1,), by Prim's algorithm over all pairs.

    `columns` is (d, n).
    """
    d, n = columns.shape
    outside = columns.copy()
    sq_distance = np.full(n, np.inf)
    tree = np.empty(n - 1)
    current = outside[:, 0].copy()
    outside[:, 0] = outside[:, n - 1]
    sums = np.empty(n)
    for m in range(n - 1, 0, -1):  # m points are not in the tree yet
        sums[:m] = 0.0
        for f in range(d):
            for j in range(m):
                sums[j] += (outside[f, j] - current[f]) * (outside[f, j] - current[f])
        closest = 0
        for j in range(m):
            sq_distance[j] = min(sq_distance[j], sums[j])
            if sq_distance[j] < sq_distance[closest]:
                closest = j
        tree[m - 1] = sq_distance[closest]
        current[:] = outside[:, closest]
        outside[:, closest] = outside[:, m - 1]
        sq_distance[closest] = sq_distance[m - 1]
    return tree


def _float64(points: np.ndarray) -> np.ndarray:
    return points.astype(np.float64, copy=False)


def _column(frame: Any, name: str) -> np.ndarray:
    return frame[name].to_numpy()


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and bool((found == expected).all())

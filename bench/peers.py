"""Other packages doing the same work in the same process: each is used where it is installed.

A peer takes a stage's input in the form it likes best, untimed, and returns the call to time.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench import arborx, ecl, first
from bench.cases import Case
from bench.checks import cugraph_graph, scipys, simple, sparse
from bench.stages import LISTED, AnyWork, Call, GraphWork, SparseWork, TreeWork, Work, pairs
from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.metrics import METRICS


@dataclass(frozen=True)
class Peer:
    """One package's answer to one stage.

    Attributes
    ----------
    name, stage : str
    module : str
        What must be importable, or ``$NAME``, the environment variable that has to name the peer's executable.
    device : {"cpu", "cuda"}
    prepare : callable
    most_work : float
        The largest n²·d that the peer is asked for: above it minutes, or all the memory, are spent.
    tree_features : int
        Up to this number of features the peer does not look at all pairs, and is asked for any size.
    read : callable, optional
        The seconds in what the call returns, for a peer that has a clock of its own.
    works : tuple of types
        The kinds of work that the peer takes.
    metrics : collection of str, optional
        The metrics by which the peer measures rows, in no box; None for a peer that reads no rows.
    """

    name: str
    stage: str
    module: str
    device: str
    prepare: Callable[[Any], Call]
    most_work: float = float("inf")
    tree_features: int = 0
    read: Callable[[Any], float] | None = None
    works: tuple[type, ...] = (Work, TreeWork, GraphWork)
    metrics: Collection[str] | None = tuple(METRICS)

    def can_do(self, work: AnyWork) -> bool:
        """Return whether the peer is installed, takes such rows, works on the device and would end in time."""
        n, d = work.shape
        if self.module.startswith("$"):
            available = bool(os.environ.get(self.module[1:]))
        else:
            available = importlib.util.find_spec(self.module.split(".")[0]) is not None
        in_time = 0 < d <= self.tree_features or float(n) * n * d <= self.most_work
        if type(work) not in self.works or work.device.name != self.device:
            return False
        case, metrics = work.case, self.metrics
        measures = metrics is None or (isinstance(case, Case) and case.metric in metrics and case.box is None)
        return available and measures and in_time


def peers_of(stage: str, names: list[str]) -> list[Peer]:
    """Return the peers of a stage whose names are given."""
    return [peer for peer in PEERS if peer.stage == stage and peer.name in names]


def _float64(work: Work) -> np.ndarray:
    return np.ascontiguousarray(work.points, np.float64)


def _float32_on_gpu(points: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(points, dtype=cupy.float32, order="C")


GROUPS_A_TASK = 1000
#: The metrics by our names, under the names that these packages have for them.
SKLEARN_METRICS = {
    # scikit-learn's braycurtis divides by |x| + |y|, SciPy's and ours by |x + y|.
    **{name: name for name in METRICS if name not in ("minkowski", "inner_product", "braycurtis", "containment")},
    "cityblock": "manhattan",
}
EUCLIDEAN = ("euclidean",)
CUML_METRICS = {"euclidean": "euclidean", "cosine": "cosine", "cityblock": "manhattan"}


def scipy_groups(work: Work) -> Call:
    """Prepare SciPy's linkage of each group in a loop."""
    points, starts = _float64(work), _starts(work)
    return lambda: _each_by_scipy(points, starts)


def joblib_groups(work: Work) -> Call:
    """Prepare SciPy's linkage of each group on all cores, some groups a task."""
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    points, starts = _float64(work), _starts(work)
    parts = [starts[a : a + GROUPS_A_TASK + 1] for a in range(0, len(starts) - 1, GROUPS_A_TASK)]
    tasks = [(points[part[0] : part[-1]], part - part[0]) for part in parts]
    return lambda: Parallel(n_jobs=-1)(delayed(_each_by_scipy)(*task) for task in tasks)


def _starts(work: Work) -> np.ndarray:
    """Return where each group begins, then the number of rows."""
    return np.searchsorted(work.group, np.arange(int(work.group[-1]) + 2))


def _each_by_scipy(points: np.ndarray, starts: np.ndarray) -> list[Any]:
    from scipy.cluster.hierarchy import linkage

    return [linkage(points[a:b], "single") for a, b in pairwise(starts.tolist()) if b - a > 1]


def fastcluster_fit(work: Work) -> Call:
    import fastcluster

    points, metric = work.points, work.case.metric
    points = points if points.dtype == bool else _float64(work)
    power = work.case.p if metric == "minkowski" else None
    return lambda: fastcluster.linkage_vector(points, "single", metric=metric, extraarg=power)


def sklearn_fit(work: Work) -> Call:
    from sklearn.cluster import AgglomerativeClustering

    metric = SKLEARN_METRICS[work.case.metric]
    points = _float64(work)
    model = AgglomerativeClustering(n_clusters=work.case.n_clusters, linkage="single", metric=metric)
    return lambda: model.fit(points)


def quitefastmst_fit(work: Work) -> Call:
    """Prepare a call for the spanning tree alone."""
    from quitefastmst import mst_euclid

    points = _float64(work)
    return lambda: mst_euclid(points)


def cuml_fit(work: Work) -> Call:
    from cuml.cluster import AgglomerativeClustering

    metric = CUML_METRICS[work.case.metric]
    points = _float32_on_gpu(work.points)
    # With connectivity="pairwise" cuML has no cosine and no manhattan: cuVS refuses (26.10, pairwise_distance_kmeans).
    model = AgglomerativeClustering(
        n_clusters=work.case.n_clusters, linkage="single", metric=metric, connectivity="knn"
    )
    return lambda: model.fit(points)


def arborx_fit(work: Work, result: str = "dendrogram") -> Call:
    """Prepare ArborX's executable, on a file.

    It counts from the points being in GPU memory to the result being there.
    """
    path = Path(tempfile.mkdtemp()) / "points.arborx"
    arborx.write(path, work.points)
    return _with_file(path, lambda: arborx.run(os.environ["ARBORX"], path, result))


def sklearn_knn(work: Work) -> Call:
    from sklearn.neighbors import NearestNeighbors

    points, k = _float64(work), work.case.n_neighbors
    return lambda: NearestNeighbors(n_neighbors=k, n_jobs=-1).fit(points).kneighbors()


def cuvs_knn(work: Work) -> Call:
    from cuvs.neighbors import brute_force

    points, k = _float32_on_gpu(work.points), work.case.n_neighbors + 1  # it lists each point itself
    return lambda: brute_force.search(brute_force.build(points), points, k)


def sklearn_nearest(work: Work, k: int = 1) -> Call:
    from sklearn.neighbors import NearestNeighbors

    queries, points = (np.ascontiguousarray(part, np.float64) for part in work.split)
    return lambda: NearestNeighbors(n_neighbors=k, n_jobs=-1).fit(points).kneighbors(queries)


def cuvs_nearest(work: Work, k: int = 1) -> Call:
    from cuvs.neighbors import brute_force

    queries, points = (_float32_on_gpu(part) for part in work.split)
    return lambda: brute_force.search(brute_force.build(points), queries, k)


def faiss_nearest(work: Work, k: int) -> Call:
    """Prepare a search of faiss's flat index, in float32, which holds the points already.

    If the case is on a GPU, so is the index.
    """
    faiss: Any = importlib.import_module("faiss")
    queries, points = (np.ascontiguousarray(part, np.float32) for part in work.split)
    index = faiss.IndexFlatL2(points.shape[1])
    if work.device.is_gpu:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    index.add(points)
    return lambda: index.search(queries, k)


def certex_nearest(work: Work, k: int) -> Call:
    """Prepare a search in certex's index, which holds the points already, as they are."""
    certex: Any = importlib.import_module("certex")
    queries, points = (work.device.asarray(part) for part in work.split)
    index = certex.Index(dim=points.shape[1])
    index.add(points)
    return lambda: index.search(queries, k=k)


def cuml_nearest(work: Work) -> Call:
    from cuml.neighbors import NearestNeighbors

    queries, points = (_float32_on_gpu(part) for part in work.split)
    return lambda: NearestNeighbors(n_neighbors=1, algorithm="brute").fit(points).kneighbors(queries)


def scipy_pairs(work: Work) -> Call:
    from scipy.spatial import cKDTree

    points, near = _float64(work), work.near
    return lambda: cKDTree(points).query_pairs(near, output_type="ndarray")


def scipy_friends(work: Work) -> Call:
    """Prepare a call for the components of all pairs within the distance."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    find, n = scipy_pairs(work), len(work.points)

    def call() -> Any:
        src, dst = find().T
        return connected_components(coo_array((np.ones(src.size, np.int8), (src, dst)), shape=(n, n)), directed=False)

    return call


def pyfof_friends(work: Work) -> Call:
    friends_of_friends = importlib.import_module("pyfof").friends_of_friends
    points, near = _float64(work), work.near
    return lambda: friends_of_friends(points, near)


def jztree_friends(work: Work) -> Call:
    """Prepare a call for labels in float32, in the order of the input, as ours."""
    jax: Any = importlib.import_module("jax")
    labels = importlib.import_module("jztree.fof").fof_labels
    points, near = jax.numpy.asarray(work.points, "float32"), float(work.near)
    return lambda: jax.block_until_ready(labels.jit(points, rlink=near, output_order="input")[1])


def sklearn_dbscan(work: Work) -> Call:
    from sklearn.cluster import DBSCAN

    points, model = _float64(work), DBSCAN(eps=work.near, min_samples=work.case.min_samples, n_jobs=-1)
    return lambda: model.fit(points).labels_


def cuml_dbscan(work: Work) -> Call:
    from cuml.cluster import DBSCAN

    points, model = _float32_on_gpu(work.points), DBSCAN(eps=work.near, min_samples=work.case.min_samples)
    return lambda: model.fit(points).labels_


def pypi_dbscan(work: Work) -> Call:
    """Prepare the DBSCAN of Wang, Gu and Shun, which takes up to 20 features, and minutes for 16."""
    cluster, points = importlib.import_module("dbscan").DBSCAN, _float64(work)
    return lambda: cluster(points, eps=work.near, min_samples=work.case.min_samples)


def rapidfuzz_pairs(work: Work) -> Call:
    """Prepare the distances of all pairs of strings on all cores.

    The pairs within the distance are read from the matrix.
    """
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    strings, near = work.points[:, 0].tolist(), work.near
    how = {"scorer": Levenshtein.distance, "score_cutoff": near, "workers": -1, "dtype": np.uint8}
    return lambda: np.nonzero(np.triu(cdist(strings, strings, **how) <= near, 1))


def faiss_pairs(work: Work) -> Call:
    """Prepare faiss's search within a radius, of float32 rows among themselves."""
    faiss: Any = importlib.import_module("faiss")
    points, is_cosine = np.ascontiguousarray(work.points, np.float32), work.case.metric == "cosine"
    if is_cosine:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    index = (faiss.IndexFlatIP if is_cosine else faiss.IndexFlatL2)(points.shape[1])
    index.add(points)
    radius = 1 - work.near if is_cosine else work.near**2

    def call() -> Any:
        starts, _, listed = index.range_search(points, radius)
        src = np.repeat(np.arange(len(points)), np.diff(starts.astype(np.int64)))
        return src[src < listed], listed[src < listed]

    return call


def cuvs_pairs(work: Work) -> Call:
    """Prepare a search for the 64 nearest of each row, of which those within the distance count.

    The share of the pairs that it finds is printed.
    """
    from cuvs.neighbors import brute_force

    metric = work.case.metric
    points, near, k = _float32_on_gpu(work.points), work.near, 64

    def call() -> Any:
        import cupy

        lengths, ids = (cupy.asarray(part) for part in brute_force.search(brute_force.build(points, metric), points, k))
        own = cupy.arange(len(ids))[:, None]
        listed = (lengths <= near) & (ids != own)
        src, dst = cupy.broadcast_to(own, ids.shape)[listed], ids[listed].astype(cupy.int64)
        return cupy.unique(cupy.minimum(src, dst) * len(points) + cupy.maximum(src, dst))

    _print_share(work, f"cuVS, {k} nearest", len(call()))
    return call


def semdedup_pairs(work: Work) -> Call:
    """Prepare SemDeDup's way: k-means, then fp16 products within the cells.

    The share of the pairs that it finds is printed.
    """
    torch: Any = importlib.import_module("torch")
    points, near = torch.nn.functional.normalize(torch.as_tensor(work.points, device="cuda")), work.near
    n, cells = len(points), max(1, len(points) // 1000)

    def call() -> Any:
        centres = points[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:cells]]
        for _ in range(5):
            cell = torch.cat([(part @ centres.T).argmax(1) for part in points.split(2**14)])
            centres = torch.nn.functional.normalize(torch.zeros_like(centres).index_add_(0, cell, points))
        order = cell.argsort(stable=True)
        found = []
        for rows in order.split(torch.bincount(cell, minlength=cells).tolist()):
            some = points[rows].half()
            i, j = torch.nonzero(torch.triu(some @ some.T, 1) >= 1 - near, as_tuple=True)
            found.append(torch.stack((rows[i], rows[j])))
        return torch.cat(found, 1)

    _print_share(work, f"k-means of {cells} cells", call().shape[1])
    return call


def scipy_products(work: SparseWork) -> Call:
    """Prepare SciPy's products of the matrix with itself, a thousand rows at a time."""
    from scipy.sparse import csr_matrix, triu

    metric, near = work.case.metric, work.near
    points: Any = work.points
    if metric == "jaccard":  # columns without an element would take memory
        held, columns = np.unique(points.indices, return_inverse=True)
        points = csr_matrix((np.ones(points.nnz, np.int32), columns, points.indptr), (points.shape[0], held.size))
    sizes, transposed = np.diff(points.indptr), points.T.tocsr()

    def call() -> Any:
        found = []
        for start in range(0, points.shape[0], 1000):
            part = triu(points[start : start + 1000] @ transposed, start + 1).tocoo()
            if metric == "jaccard":
                either = sizes[part.row + start] + sizes[part.col] - part.data
                within = part.data >= (1 - near) * either
            else:
                within = part.data >= 1 - near
            found.append(np.column_stack([part.row[within] + start, part.col[within]]))
        return np.concatenate(found)

    return call


def _print_share(work: Work, name: str, found: int) -> None:
    of = len(pairs(work)())
    print(f"{name}: {found:,} of {of:,} pairs, {of - found:,} missed", flush=True)


def scipy_tree(work: Work | GraphWork) -> Call:
    from scipy.sparse.csgraph import minimum_spanning_tree

    graph = sparse(simple(work), work.shape[0])
    return lambda: minimum_spanning_tree(graph)


def cugraph_tree(work: Work | GraphWork) -> Call:
    import cugraph

    graph = cugraph_graph(simple(work))
    return lambda: cugraph.minimum_spanning_tree(graph)


def ecl_tree(work: GraphWork) -> Call:
    """Prepare ECL-MST's executable, on a file.

    It counts from the graph being in GPU memory to the forest being there.
    """
    path = Path(tempfile.mkdtemp()) / "graph.egr"
    ecl.write(path, simple(work), work.shape[0], work.device.xp)
    return _with_file(path, lambda: ecl.run(os.environ["ECL_MST"], path))


def _with_file(path: Path, call: Call) -> Call:
    """Return the call, and remove the folder of its file when the call is deleted."""
    weakref.finalize(call, shutil.rmtree, path.parent)
    return call


def scipy_cut(work: Work | TreeWork) -> Call:
    from scipy.cluster.hierarchy import fcluster

    merges, n_clusters = to_scipy(work.merges), work.case.n_clusters
    return lambda: fcluster(merges, n_clusters, "maxclust")


def hdbscan_clusters(work: Work, algorithm: str = "best") -> Call:
    """Prepare hdbscan with the exact tree, which is not its default."""
    from hdbscan import HDBSCAN

    points, m = _float64(work), work.case.min_samples
    model = HDBSCAN(m, min_samples=m, algorithm=algorithm, approx_min_span_tree=False, core_dist_n_jobs=-1)
    return lambda: model.fit(points)


def fast_clusters(work: Work) -> Call:
    from fast_hdbscan import HDBSCAN

    points, m = _float64(work), work.case.min_samples
    return lambda: HDBSCAN(min_cluster_size=m, min_samples=m).fit(points)


def sklearn_clusters(work: Work) -> Call:
    from sklearn.cluster import HDBSCAN

    points, m = _float64(work), work.case.min_samples
    model = HDBSCAN(m, min_samples=m + 1, n_jobs=-1, copy=True)  # it counts the row itself
    return lambda: model.fit(points)


def cuml_clusters(work: Work) -> Call:
    from cuml.cluster import HDBSCAN

    points, m = _float32_on_gpu(work.points), work.case.min_samples
    return lambda: HDBSCAN(min_cluster_size=m, min_samples=m).fit(points)


PEERS = (
    Peer("scipy", "fit", "scipy", "cpu", scipys, 3e10),
    Peer("fastcluster", "fit", "fastcluster", "cpu", fastcluster_fit, 5e10),
    Peer("sklearn", "fit", "sklearn", "cpu", sklearn_fit, 5e10, metrics=SKLEARN_METRICS),
    Peer("quitefastmst", "fit", "quitefastmst", "cpu", quitefastmst_fit, 5e10, tree_features=8, metrics=EUCLIDEAN),
    Peer("cuml", "fit", "cuml", "cuda", cuml_fit, 2e14, metrics=CUML_METRICS),
    *(
        Peer(name, "fit", "$ARBORX", "cuda", prepare, 0, tree_features=3, read=float, metrics=EUCLIDEAN)
        for name, prepare in (("arborx", arborx_fit), ("arborx-mst", partial(arborx_fit, result="tree")))
    ),
    Peer("scipy", "groups", "scipy", "cpu", scipy_groups),
    Peer("joblib", "groups", "joblib", "cpu", joblib_groups),
    Peer("sklearn", "knn", "sklearn", "cpu", sklearn_knn, 2e12),
    Peer("cuvs", "knn", "cuvs", "cuda", cuvs_knn, 2e14),
    Peer("sklearn", "nearest_neighbors", "sklearn", "cpu", sklearn_nearest),
    Peer("cuvs", "nearest_neighbors", "cuvs", "cuda", cuvs_nearest),
    Peer("cuml", "nearest_neighbors", "cuml", "cuda", cuml_nearest),
    *(
        Peer(name, stage, name, device, partial(prepare, k=k), most_work)
        for stage, k in LISTED.items()
        for name, device, prepare, most_work in (
            ("sklearn", "cpu", sklearn_nearest, 2e14),
            ("faiss", "cpu", faiss_nearest, 2e14),
            ("faiss", "cuda", faiss_nearest, float("inf")),
            ("cuvs", "cuda", cuvs_nearest, 2e15),
            ("certex", "cuda", certex_nearest, float("inf")),
        )
    ),
    Peer("scipy", "pairs", "scipy", "cpu", scipy_pairs, 0, tree_features=8, metrics=EUCLIDEAN),
    Peer("scipy", "pairs", "scipy", "cpu", scipy_products, works=(SparseWork,), metrics=("jaccard", "cosine")),
    Peer("rapidfuzz", "pairs", "rapidfuzz", "cpu", rapidfuzz_pairs, 1e9, metrics=("levenshtein",)),
    Peer("faiss", "pairs", "faiss", "cpu", faiss_pairs, 2e12, metrics=("euclidean", "cosine")),
    Peer("cuvs", "pairs", "cuvs", "cuda", cuvs_pairs, 2e15, metrics=("euclidean", "cosine")),
    Peer("semdedup", "pairs", "torch", "cuda", semdedup_pairs, 2e15, metrics=("cosine",)),
    Peer("scipy", "friends", "scipy", "cpu", scipy_friends, 0, tree_features=8, metrics=EUCLIDEAN),
    Peer("pyfof", "friends", "pyfof", "cpu", pyfof_friends, 1e12, metrics=EUCLIDEAN),
    Peer("jztree", "friends", "jztree", "cuda", jztree_friends, 0, tree_features=3, metrics=EUCLIDEAN),
    Peer("sklearn", "dbscan", "sklearn", "cpu", sklearn_dbscan, 5e12, tree_features=3, metrics=EUCLIDEAN),
    Peer("cuml", "dbscan", "cuml", "cuda", cuml_dbscan, 2e15, metrics=EUCLIDEAN),
    Peer("dbscan", "dbscan", "dbscan", "cpu", pypi_dbscan, 0, tree_features=8, metrics=EUCLIDEAN),
    Peer("scipy", "spanning_tree", "scipy", "cpu", scipy_tree, metrics=None),
    Peer("cugraph", "spanning_tree", "cugraph", "cuda", cugraph_tree, metrics=None),
    Peer("ecl-mst", "spanning_tree", "$ECL_MST", "cuda", ecl_tree, read=float, works=(GraphWork,), metrics=None),
    Peer("scipy", "cut", "scipy", "cpu", scipy_cut, metrics=None),
    Peer("hdbscan", "hdbscan", "hdbscan", "cpu", hdbscan_clusters, 5e10, tree_features=8),
    Peer("hdbscan-generic", "hdbscan", "hdbscan", "cpu", partial(hdbscan_clusters, algorithm="generic"), 1e9),
    Peer("fast-hdbscan", "hdbscan", "fast_hdbscan", "cpu", fast_clusters, 5e10, tree_features=8),
    Peer("sklearn", "hdbscan", "sklearn", "cpu", sklearn_clusters, 5e10),
    Peer("cuml", "hdbscan", "cuml", "cuda", cuml_clusters, 2e14),
    *(
        Peer(name, stage, name, device, first.of_script(script, stage == "first"), 3e10, read=first.seconds)
        for stage in ("first", "first-compiling")
        for name, device, script in (
            ("scipy", "cpu", first.SCIPY),
            ("sklearn", "cpu", first.SKLEARN),
            ("cuml", "cuda", first.CUML),
        )
    ),
)
NAMES = sorted({peer.name for peer in PEERS})

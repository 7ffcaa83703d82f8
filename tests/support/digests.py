"""Small calls of every kind, and the digests of what they return, which no change of the package may change.

A tree is unique in the total order of edges, so `digests.json` holds for either device and whatever way is taken.
``python -m tests.support.digests`` rewrites the file. A digest that was wrong is changed in a commit of its own.

The inputs are made of integers: random numbers of other libraries, and powers and roots, differ between versions and
machines. Powers of minkowski are those of a library. So its weights are rounded to 40 bits before they are hashed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from rapids_slink import (
    DBSCAN,
    HDBSCAN,
    SingleLinkage,
    connect,
    count_pairs,
    cut,
    deduplicate,
    fit,
    fit_graph,
    iter_pairs,
    knn_graph,
    linkage,
    minimum_spanning_tree,
    nearest_neighbors,
    pairs,
)
from rapids_slink.metrics import METRICS
from rapids_slink.points.output import on_host

FILE = Path(__file__).with_suffix(".json")
#: The calls by name, each a function of the device's name.
CALLS: dict[str, Callable[[str], Any]] = {}
#: The calls that need a client of Dask.
DASK_CALLS: dict[str, Callable[[str], Any]] = {}


# ---------------------------------------------------------------------------------------------------------- the inputs


def integers(high, *shape, seed=0):
    """Return numbers from 0 to `high` - 1, int64: the generator splitmix64."""
    with np.errstate(over="ignore"):
        z = np.arange(1, prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z >> np.uint64(40)) % np.uint64(high)).astype(np.int64).reshape(shape)


def uniform(*shape, seed=0):
    """Return multiples of 2⁻²⁴ in [0, 1)."""
    return integers(2**24, *shape, seed=seed) * 2.0**-24


def bell(*shape, seed=0):
    """Return sums of four of these, about zero."""
    return uniform(4, *shape, seed=seed).sum(axis=0) - 2


def blobs(n, d, k=6, apart=8.0, seed=0):
    """Return clusters of unequal widths."""
    which = integers(k, n, seed=seed + 1)
    return apart * bell(k, d, seed=seed + 2)[which] + bell(n, d, seed=seed) * 2.0 ** -(which[:, None] % 4)


def ones(n, d, seed=0):
    """Return rows of booleans as floats, none of which is all zeros."""
    X = (integers(5, n, d, seed=seed) < 2).astype(float)
    X[np.arange(n), integers(d, n, seed=seed + 1)] = 1
    return X


def on_earth(n, seed=0):
    """Return latitudes and longitudes in radians."""
    return (uniform(n, 2, seed=seed) - 0.5) * np.array([3.125, 6.25])


def steps(n, d):
    """Return a path whose steps grow."""
    return np.cumsum(bell(n, d) * np.arange(1, n + 1)[:, None] / n, axis=0)


def nested(n, d):
    """Return clusters within clusters within clusters, each 32 times as tight as the one around it."""
    place = np.arange(n)
    return sum(bell(n, d, seed=level)[place // 5**level] * 32.0**level for level in range(4))


def low(n, d, features=2):
    """Return a plane in many features: products of integers, which are exact."""
    return (integers(2**12, n, features) @ (integers(9, features, d, seed=1) - 4)).astype(float)


def scattered(X, at, value):
    X = X.copy()
    X[at] = value
    return X


#: Families of rows, (600, d).
FAMILIES = {
    "noise": bell(600, 8),
    "noise of float32": bell(600, 16).astype(np.float32),
    "uniform in 3": uniform(600, 3),
    "blobs": blobs(600, 8),
    "blobs in 2": blobs(600, 2),
    "blobs in 40": blobs(600, 40),
    "blobs in 90": blobs(600, 90),
    "tight clusters": blobs(600, 8, k=20, apart=2.0**12),
    "nested": nested(600, 5),
    "path": steps(600, 6),
    "plane in 12": low(600, 12),
    "line": bell(600, 1),
    "line of integers": integers(300, 600, 1),
    "grid": integers(8, 600, 3).astype(float),
    "repeats": bell(80, 6)[integers(80, 600)],
    "images": np.clip(integers(400, 600, 16) - 150, 0, 255).astype(np.uint8),
    "mostly zeros": integers(4, 600, 20, seed=1) * (integers(8, 600, 20) == 0).astype(np.float32),
    "far outliers": scattered(bell(600, 8), [[3], [77]], 2.0**30),
    "an offset": bell(600, 8).astype(np.float32) + np.float32(2**20),
    "tiny": bell(600, 5) * 2.0**-530,
    "huge": bell(600, 5) * 2.0**500,
    "magnitudes": bell(600, 6) * 2.0 ** (integers(60, 600, 1, seed=2) - 30),
    "more features than rows": bell(60, 150),
    "two rows": bell(2, 3),
}


def rows_for(metric, n=300, seed=0):
    """Return rows that a metric takes."""
    kind = METRICS[metric].rows
    if kind == "packed":
        return integers(256, n, 4, seed=seed).astype(np.uint8)
    if kind == "boolean":
        return ones(n, 14, seed)
    if kind == "sphere":
        return on_earth(n, seed)
    return integers(4, n, 12, seed=seed).astype(float) if metric == "hamming" else blobs(n, 7, seed=seed)


def words(n, letters="ABC", seed=0):
    """Return strings of up to nine letters, half of them an edit away from others."""
    size, letter = integers(10, n, seed=seed), integers(len(letters), n, 9, seed=seed + 1)
    made = ["".join(letters[i] for i in row[:length]) for row, length in zip(letter, size, strict=True)]
    for i in range(1, n, 2):
        word, at = made[i - 1], int(size[i]) % (len(made[i - 1]) + 1)
        made[i] = word[:at] + letters[letter[i, 0]] + word[at + int(size[i]) % 2 :]
    return made


def codes(n, seed=0):
    """Return strings of eight letters."""
    return ["".join("ACGT"[i] for i in row) for row in integers(4, n, 8, seed=seed) * (integers(3, n, 8) > 0)]


def sets(n, elements=400, seed=0):
    """Return sets of up to 20 numbers, half of them much like the one before."""
    size, member = integers(20, n, seed=seed) + 1, integers(elements, n, 20, seed=seed + 1)
    made = [set(row[:k].tolist()) for row, k in zip(member, size, strict=True)]
    for i in range(1, n, 2):
        made[i] = {*sorted(made[i - 1])[1:], *member[i, :2].tolist()}
    return made


def sparse_rows(n, d=60, seed=0):
    """Return rows of counts, one value in ten of them."""
    X = integers(20, n, d, seed=seed) * (integers(10, n, d, seed=seed + 1) == 0)
    X[np.arange(n), integers(d, n, seed=seed + 2)] += 1
    return sparse.csr_matrix(X.astype(float))


def gaps(X, seed=5):
    """Return the rows, of which one value in nine is missing."""
    return np.where(integers(9, *X.shape, seed=seed) == 0, np.nan, X)


def distances(n, missing=False):
    """Return a symmetric matrix, with ties."""
    X = integers(500, n, n).astype(float)
    X = np.minimum(X, X.T) + 1
    X[np.diag_indices(n)] = 0
    if missing:
        X[X > 470] = np.inf
    return X


def graph(n, m):
    """Return edges with ties among the weights, self-loops and parallel edges."""
    return pd.DataFrame({"src": integers(n, m), "dst": integers(n, m, seed=1), "weight": integers(m, m, seed=2) / 4})


def keys(n, groups=9):
    """Return numbers of groups, of unequal sizes."""
    return np.minimum(integers(groups, n), integers(groups, n, seed=1))


# ----------------------------------------------------------------------------------------------------------- the calls


def appended(X, first, device, **parameters):
    """Return a model of the first rows, to which the others are added."""
    return fitted(X[:first], device, prediction_data=True, **parameters).append(X[first:])


def fitted(X, device, model=SingleLinkage, weights=None, groups=None, n_clusters=3, **parameters):
    """Return a model of the rows."""
    if model is HDBSCAN:
        return model(device=device, **parameters).fit(X, sample_weight=weights)
    return model(n_clusters, device=device, **parameters).fit(X, groups=groups)


def fit_call(name, X, **parameters):
    """Register a fit of rows, or of those that a function makes."""
    call(name, fitted, X, **parameters)


def call(name, function, *given, **parameters):
    """Register a call of a function that takes a device; what is a function among its arguments makes one."""
    CALLS[name] = lambda device: function(
        *(one() if callable(one) else one for one in given), device=device, **parameters
    )


POWERS = [("minkowski", p) for p in (0.6, 1.5, 3.0, inf)]
for metric, p in [*((name, 2.0) for name in METRICS if name != "minkowski"), *POWERS]:
    label = f"{metric} {p:g}" if metric == "minkowski" else metric
    fit_call(f"fit {label}", partial(rows_for, metric), metric=metric, p=p)
    fit_call(f"fit {label}, lists", partial(rows_for, metric, 260, 3), metric=metric, p=p, n_neighbors=4)
for family, rows in FAMILIES.items():
    fit_call(f"fit {family}", rows, n_clusters=min(3, len(rows)))
    if len(rows) > 60:
        fit_call(f"fit {family}, lists", rows, n_neighbors=5)
fit_call("fit 3000 of noise", partial(bell, 3000, 12))
fit_call("fit 5000 of noise in 2", partial(bell, 5000, 2))
fit_call("fit 3000 of blobs", partial(blobs, 3000, 10, 12))

for metric in ("euclidean", "cosine", "cityblock", "hamming", "jaccard"):
    fit_call(f"cores {metric}", partial(rows_for, metric), metric=metric, min_samples=4)
    fit_call(f"cores {metric}, lists", partial(rows_for, metric), metric=metric, min_samples=3, n_neighbors=6)
fit_call("cores of repeats", FAMILIES["repeats"], min_samples=5, n_neighbors=6)
fit_call("cores in 2", FAMILIES["blobs in 2"], min_samples=7)
fit_call("cores of many", partial(blobs, 600, 4), min_samples=60)
for metric in ("euclidean", "cityblock", "cosine"):
    fit_call(f"weights {metric}", blobs(200, 5), model=HDBSCAN, metric=metric, weights=integers(4, 200, seed=3) + 1)
fit_call("HDBSCAN", blobs(500, 6), model=HDBSCAN)
fit_call("HDBSCAN, leaves", blobs(500, 3), model=HDBSCAN, min_cluster_size=12, cluster_selection_method="leaf")
fit_call("HDBSCAN manhattan", blobs(400, 3), model=HDBSCAN, metric="manhattan", min_samples=3, min_cluster_size=8)
fit_call("HDBSCAN, an epsilon", blobs(400, 4), model=HDBSCAN, cluster_selection_epsilon=0.5, min_cluster_size=4)
fit_call("HDBSCAN precomputed", partial(distances, 120), model=HDBSCAN, metric="precomputed")

fit_call("groups", blobs(700, 4), groups=keys(700))
fit_call("groups, cores", blobs(500, 4), groups=keys(500), n_clusters=None, distance_threshold=0.5, min_samples=2)
fit_call("groups of one feature", bell(500, 1), groups=keys(500, 40), n_clusters=None, distance_threshold=0.01)
for metric, threshold in (("cosine", 0.1), ("hamming", 0.3)):
    how = {"metric": metric, "n_clusters": None, "distance_threshold": threshold}
    fit_call(f"groups {metric}", rows_for(metric), groups=keys(300), **how)
for metric in ("euclidean", "cosine", "cityblock", "jaccard"):
    call(f"append {metric}", appended, partial(rows_for, metric, 400), 330, metric=metric)
call("append in 2", appended, partial(blobs, 600, 2), 200)

for metric, limit in (
    ("euclidean", 1.25), ("sqeuclidean", 1.5), ("cosine", 0.01), ("cityblock", 3.0), ("chebyshev", 0.75),
    ("hamming", 0.4), ("jaccard", 0.4), ("bit_hamming", 0.25), ("haversine", 0.125), ("inner_product", -900.0),
):  # fmt: skip
    call(f"pairs {metric}", pairs, partial(rows_for, metric), metric=metric, max_distance=limit)
call("pairs in 2", pairs, partial(blobs, 800, 2), max_distance=0.125)
call("pairs of two tables", pairs, partial(blobs, 400, 8), partial(blobs, 300, 8), max_distance=2.0)
call("pairs of two tables in 3", pairs, partial(uniform, 400, 3), partial(uniform, 300, 3, seed=1), max_distance=0.125)
call("count_pairs", count_pairs, partial(blobs, 600, 9), max_distance=[0.5, 1.0, 2.0, 8.0])
call("count_pairs in 2", count_pairs, partial(blobs, 800, 2), max_distance=[0.0, 0.125, 1.0])
call("count_pairs of two tables", count_pairs, partial(blobs, 400, 8), partial(blobs, 300, 8), max_distance=2.0)
CALLS["iter_pairs"] = lambda device: pd.concat(
    [on_host(part) for part in iter_pairs(blobs(300, 6), max_distance=2.0, rows=64, device=device)]
)
call("deduplicate", deduplicate, partial(blobs, 500, 6), max_distance=0.5)
call("deduplicate, ranked", deduplicate, partial(blobs, 500, 6), max_distance=0.5, by="ranked", keep="last")
call("deduplicate, leaders", deduplicate, partial(blobs, 500, 6), max_distance=0.5, by="leaders")
call("deduplicate in 3", deduplicate, partial(blobs, 900, 3), max_distance=0.125)
call("friends", fit, partial(blobs, 900, 3), max_distance=0.25)


def dbscan(X, eps, min_samples, device, weights=None, groups=None, **how):
    """Return the labels of DBSCAN."""
    model = DBSCAN(eps, min_samples, device=device, **how).fit(X, sample_weight=weights, groups=groups)
    return np.append(on_host(model.labels_), on_host(model.core_sample_indices_))


call("DBSCAN in 3", dbscan, partial(blobs, 900, 3), 0.375, 5)
call("DBSCAN", dbscan, partial(blobs, 600, 9), 1.25, 4)
call("DBSCAN cosine", dbscan, partial(rows_for, "cosine"), 0.01, 4, metric="cosine")
call("DBSCAN, weights", dbscan, partial(blobs, 900, 2), 0.25, 9, weights=integers(9, 900, seed=3) - 2)
call("DBSCAN, groups", dbscan, partial(blobs, 700, 4), 0.75, 3, groups=keys(700))
call("friends, a whole tree", fit, partial(blobs, 500, 9), max_distance=1.5, n_clusters=80)
fit_call("cores haversine", partial(on_earth, 400), metric="haversine", min_samples=4)
call("friends haversine", fit, partial(on_earth, 600), max_distance=0.0625, metric="haversine")

fit_call("box", uniform(500, 3), box=1.0)
fit_call("box of one feature", uniform(500, 1), box=1.0)
fit_call("box, lists", uniform(400, 9), box=1.0, n_neighbors=5)
fit_call("box cityblock", uniform(400, 2), box=(1.0, 0.5), metric="cityblock", min_samples=3)
call("box, pairs", pairs, partial(uniform, 400, 3), box=1.0, max_distance=0.125)
call("box, friends", fit, partial(uniform, 600, 3), box=1.0, max_distance=0.0625)
fit_call("scales", blobs(400, 4), scales={(0, 1): 1.0, (2, 3): 0.25})
fit_call("scales, lists", blobs(400, 4), scales={(0, 1): 1.0, 2: 3.0, 3: 0.5}, n_neighbors=5, metric="chebyshev")

for metric, strings in (("levenshtein", partial(words, 260)), ("string_hamming", partial(codes, 260))):
    fit_call(f"text {metric}", strings, metric=metric)
    fit_call(f"text {metric}, a limit", strings, metric=metric, max_distance=2, n_clusters=None)
    fit_call(f"text {metric}, cores", strings, metric=metric, min_samples=3)
    call(f"text {metric}, pairs", pairs, strings, metric=metric, max_distance=1)
    call(f"text {metric}, nearest", nearest_neighbors, strings, partial(strings.func, 200, seed=9), metric=metric)
    of_two = strings, partial(strings.func, 200, seed=9)
    call(f"text {metric}, nearest 7", nearest_neighbors, *of_two, 7, metric=metric)
fit_call("text, groups", words(260), metric="levenshtein", max_distance=1, n_clusters=None, groups=keys(260))
call("text, duplicates", deduplicate, partial(words, 260), metric="levenshtein", max_distance=1)
for metric in ("jaccard", "dice"):
    fit_call(f"sets {metric}", partial(sets, 240), metric=metric)
    call(f"sets {metric}, pairs", pairs, partial(sets, 240), metric=metric, max_distance=0.5)
fit_call("sets jaccard, a limit", partial(sets, 300), metric="jaccard", max_distance=0.6, n_clusters=None)
fit_call("sets jaccard, cores", partial(sets, 240), metric="jaccard", min_samples=3)
fit_call("sets containment", partial(sets, 240), metric="containment")
call("sets containment, pairs", pairs, partial(sets, 240), metric="containment", max_distance=0.5)
call("sets jaccard, nearest", nearest_neighbors, partial(sets, 240), partial(sets, 200, seed=7), metric="jaccard")
call("sets jaccard, nearest 7", nearest_neighbors, partial(sets, 240), partial(sets, 200, seed=7), 7, metric="jaccard")
fit_call("sparse rows", partial(sparse_rows, 240))
fit_call("sparse rows, cores", partial(sparse_rows, 240), min_samples=3)
call("sparse rows, pairs", pairs, partial(sparse_rows, 240), max_distance=20.0)
fit_call("sparse rows cosine", partial(sparse_rows, 240), metric="cosine")
call("sparse rows cosine, pairs", pairs, partial(sparse_rows, 240), metric="cosine", max_distance=0.5)

for metric in ("euclidean", "cityblock", "hamming"):
    fit_call(f"missing {metric}", gaps(blobs(300, 14).round()), metric=metric, missing="pairwise")
fit_call("missing, lists", gaps(blobs(400, 14)), missing="pairwise", n_neighbors=5)
fit_call("missing hiercc", gaps(rows_for("hamming")) + 1, metric="hamming", missing="hiercc")
call("missing, pairs", pairs, partial(gaps, blobs(300, 14)), missing="pairwise", max_distance=1.0)
fit_call("precomputed", partial(distances, 150), metric="precomputed")
fit_call("precomputed, cores", partial(distances, 150), metric="precomputed", min_samples=4)
call("graph", fit_graph, partial(graph, 300, 900))
call("graph, a tree", minimum_spanning_tree, partial(graph, 300, 900))
call("graph, the maximum", minimum_spanning_tree, partial(graph, 300, 900), maximum=True, component=True)
call("graph, dense", fit_graph, partial(graph, 60, 3000), 4)
call("linkage", linkage, partial(minimum_spanning_tree, graph(300, 900), device="cpu"), n_nodes=300)
CALLS["cut"] = lambda device: cut(
    linkage(minimum_spanning_tree(graph(300, 5000), device=device), device=device), n_clusters=[2, 9, 50]
)
call("knn_graph", knn_graph, partial(blobs, 400, 9), 7)
call("knn_graph in 2", knn_graph, partial(blobs, 600, 2), 5)
call("knn_graph of many", knn_graph, partial(bell, 300, 6), 120)
for metric in ("cosine", "canberra", "hamming", "jaccard"):
    call(f"knn_graph {metric}", knn_graph, partial(rows_for, metric), 6, metric=metric)
call("nearest", nearest_neighbors, partial(blobs, 300, 9), partial(blobs, 400, 9, seed=5))
call("nearest in 2", nearest_neighbors, partial(blobs, 300, 2), partial(blobs, 400, 2, seed=5))
of_two = partial(blobs, 300, 9), partial(blobs, 400, 9, seed=5)
call("nearest 33", nearest_neighbors, *of_two, 33)
call("nearest 33 in groups", nearest_neighbors, *of_two, 33, groups=(keys(300), keys(400)))
for metric in ("cosine", "chebyshev", "jaccard"):
    queries, rows = partial(rows_for, metric), partial(rows_for, metric, seed=5)
    call(f"nearest {metric}", nearest_neighbors, queries, rows, metric=metric)
CALLS["connect"] = lambda device: connect(knn_graph(blobs(300, 6), 3, device=device), blobs(300, 6), device=device)
CALLS["predict"] = lambda device: fitted(blobs(300, 6), device, prediction_data=True).predict(bell(90, 6))


def dask_frame(X, parts=3):
    """Return the rows as a Dask DataFrame of some partitions."""
    import dask.dataframe

    return dask.dataframe.from_pandas(pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]), npartitions=parts)


DASK_CALLS |= {
    "Dask, fit": lambda device: fitted(dask_frame(blobs(600, 6)), device),
    "Dask, fit in 2": lambda device: fitted(dask_frame(blobs(600, 2)), device),
    "Dask, cores": lambda device: fitted(dask_frame(blobs(400, 6)), device, min_samples=3),
    "Dask, cosine": lambda device: fitted(dask_frame(blobs(300, 6)), device, metric="cosine"),
    "Dask, pairs": lambda device: pairs(dask_frame(blobs(400, 6)), max_distance=1.0, device=device).compute(),
    "Dask, DBSCAN": lambda device: DBSCAN(1.25, 4, device=device).fit(dask_frame(blobs(600, 9))).labels_.compute(),
    "Dask, knn_graph": lambda device: knn_graph(dask_frame(blobs(300, 6)), 4, device=device).compute(),
}


# ------------------------------------------------------------------------------------------------------ forced ways


@dataclass(frozen=True)
class ForcedWay:
    """A way that is prescribed, and what it is tried by."""

    ways: dict[str, Any]  # the arguments of `force`
    calls: list[str]
    #: whether the report of a model says that the way was taken
    is_taken: Callable[[Any], bool] = lambda report: True
    on: str | None = None  # the device that has it, if one does not


def _by_filter(name):
    return lambda report: report["neighbors"]["filter"].startswith(name)


def _joined(report):
    return report["connect"].get("joined_at_once") == 1


ROWS = [f"fit {family}" for family in ("noise", "blobs", "blobs in 40", "nested", "far outliers", "an offset", "grid")]
IN_BOXES = ["fit noise", "fit uniform in 3", "fit blobs in 2", "fit plane in 12", "fit chebyshev", "cores in 2"]
CLUSTERS = ["fit tight clusters", "fit blobs in 40"]
PAIRS = ["pairs euclidean", "pairs cosine", "count_pairs", "pairs of two tables"]
PAIRS_IN_BOXES = ["pairs cityblock", "pairs in 2", "count_pairs in 2", "pairs of two tables in 3", "box, pairs"]
ITEMS = [name for name in CALLS if name.startswith(("text", "sets jaccard", "sparse rows"))]
BY_LISTS = {"tree": "lists", "search": "all pairs"}
TILES = {"tree": "lists", "search": "tiles"}
TREES = ("k-d tree", "bounding volume hierarchy")
FORCED = {
    "line": ForcedWay({"tree": "line"}, ["fit line", "fit line of integers"], lambda report: report["way"] == "line"),
    "pairs": ForcedWay(
        {"tree": "pairs"},
        ["fit repeats", "fit line", "fit 3000 of noise", "groups"],
        lambda report: report["way"] != "lists",
    ),
    "repeats": ForcedWay(
        {"tree": "repeats"},
        ["fit repeats", "cores of repeats"],
        lambda report: report["spanning_tree"]["repeated_rows"] > 0,
    ),
    "boxes": ForcedWay(
        {"tree": "boxes", "search": "tree"}, IN_BOXES[:-1], lambda report: report["way"] == "boxes", on="cuda"
    ),
    "a tree": ForcedWay({"tree": "lists", "search": "tree"}, IN_BOXES, _by_filter(TREES)),
    "lists": ForcedWay(
        BY_LISTS,
        [*ROWS, "fit cosine", "fit hamming", "fit jaccard", "cores euclidean", "fit line", "friends", "groups"],
    ),
    "tiles": ForcedWay(TILES, ROWS, _by_filter("tiles")),
    "tiles for lists": ForcedWay({**TILES, "search": "tiles for lists"}, ROWS, _by_filter("tiles")),
    "no filter": ForcedWay({**BY_LISTS, "filter": "none"}, ROWS, _by_filter("none")),
    "products": ForcedWay({**BY_LISTS, "filter": "products"}, ["fit blobs in 40"], _by_filter("float32"), on="cpu"),
    "int8": ForcedWay({**BY_LISTS, "filter": "int8"}, ROWS, on="cuda"),
    "fp16": ForcedWay({**BY_LISTS, "filter": "fp16"}, ROWS, on="cuda"),
    "axes": ForcedWay({**BY_LISTS, "filter": "axes"}, ["fit more features than rows", "fit blobs in 90"]),
    "rounds": ForcedWay(
        {**BY_LISTS, "connect": "rounds"}, CLUSTERS, lambda report: "joined_at_once" not in report["connect"]
    ),
    "joined at once": ForcedWay({**BY_LISTS, "connect": "at once"}, CLUSTERS, _joined),
    "joined by facing points": ForcedWay({**BY_LISTS, "connect": "facing"}, CLUSTERS, _joined, on="cuda"),
    "tiles, joined at once": ForcedWay({**TILES, "connect": "at once"}, CLUSTERS, _joined),
    "ended lists": ForcedWay({**BY_LISTS, "large_cluster": 8}, ROWS),
    "lists that do not end": ForcedWay({**BY_LISTS, "large_cluster": 0}, ["fit 3000 of noise"]),
    "near pairs by a tree": ForcedWay({"pairs": "tree"}, [*PAIRS, *PAIRS_IN_BOXES]),
    "near pairs by a filter": ForcedWay({"pairs": "filter"}, [*PAIRS, *PAIRS_IN_BOXES]),
    "near pairs by tiles": ForcedWay({"pairs": "tiles"}, [*PAIRS, *PAIRS_IN_BOXES]),
    "near pairs by distances": ForcedWay({"pairs": "distances"}, [*PAIRS, *PAIRS_IN_BOXES]),
    "items by keys": ForcedWay({"items": "keys"}, ITEMS),
    "items by projections": ForcedWay({"items": "projections"}, ITEMS),
    "items by distances": ForcedWay({"items": "distances"}, ITEMS),
    "few queries": ForcedWay({"search": "few queries"}, ["nearest", "nearest in 2"], on="cuda"),
    "many queries": ForcedWay({"search": "all pairs"}, ["nearest", "nearest in 2", "nearest cosine", "nearest 33"]),
    "blocks": ForcedWay({"blocks": 3}, [*DASK_CALLS]),
}


# --------------------------------------------------------------------------------------------------------- the digests


def digests_of(result, rounded=False):
    """Return the digests of a call's result: src, dst, weight, the linkage and the labels, or of those that it has."""
    if hasattr(result, "linkage_"):
        frames = {**_columns(result.mst_), "linkage": result.linkage_, "labels": result.labels_}
    elif hasattr(result, "columns"):
        columns = _columns(result)
        frames = columns if "weight" in columns else {"frame": result}
    else:
        frames = {"values": result}
    return {name: _hash(value, rounded) for name, value in frames.items()}


def _columns(frame):
    frame = on_host(frame)
    return {str(name): frame[name] for name in frame.columns}


def _hash(value, rounded):
    """Hash the bits of numbers as int64 or float64; of the columns of a frame one after the other."""
    value = on_host(value)
    digest = blake2b(digest_size=6)
    for column in [value[name] for name in value.columns] if isinstance(value, pd.DataFrame) else [value]:
        array = np.asarray(column)
        if array.dtype.kind == "f":
            array = array.astype("<f8")
            if rounded:
                fraction, exponent = np.frexp(array)
                array = np.ldexp(np.rint(np.ldexp(fraction, 40)), exponent - 40)
        else:
            array = array.astype("<i8")
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def digest_of_call(name, device):
    """Return the digests of a call by its name."""
    return digest_of(name, (CALLS | DASK_CALLS)[name](device))


def digest_of(name, result):
    """Return the digests of what a call returned."""
    return digests_of(result, rounded="minkowski" in name)


@cache
def expected():
    """Return the digests that calls have."""
    return json.loads(FILE.read_text())


def main():
    from dask_clusters import workers_within_this_process

    with workers_within_this_process(1) as cluster, cluster.get_client():
        made = {name: digest_of_call(name, "cpu") for name in [*CALLS, *DASK_CALLS]}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in made.items())
    FILE.write_text(f"{{\n{lines}\n}}\n")
    print(f"{len(made)} calls")


if __name__ == "__main__":
    main()

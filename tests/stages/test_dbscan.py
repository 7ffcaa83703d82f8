"""DBSCAN: the labels of scikit-learn, by boxes and by pairs, of rows of every kind; what comes out; what is refused."""

import pickle
from itertools import product
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, combinations, full
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import ALL_METRICS, points, without_zeros
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone
from sklearn.cluster import DBSCAN as SklearnDBSCAN

import rapids_slink
from rapids_slink import DBSCAN, DeviceMemoryError, fit, pairs
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.points.output import as_frame, on_device, on_host
from rapids_slink.runtime.device import to_host
from rapids_slink.spanning_tree import boxes, kernels
from rapids_slink.spanning_tree.boxes import in_units


@pytest.fixture(autouse=True)
def few_rows(prescribe):
    """Boxes serve few rows, too, although all pairs take less time."""
    prescribe(tree="friends")


FAR = 1e300


def all_distances(X, device="cpu", **how):
    """A matrix of the distances of all rows, by `pairs`; those beyond float64 are far."""
    frame = pairs(X, max_distance=np.inf, device=device, **how)
    src, dst, weight = (to_host(frame[name].values) for name in ("src", "dst", "weight"))
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    matrix = np.full((n, n), FAR)
    matrix[src, dst] = matrix[dst, src] = weight
    np.fill_diagonal(matrix, 0)
    return matrix


def expected(matrix, eps, m, weights=None):
    """scikit-learn's labels and core rows, by distances that are given. A row is always near itself."""
    near = (matrix <= eps) | np.eye(len(matrix), dtype=bool)
    model = SklearnDBSCAN(eps=max(eps, 5e-324), min_samples=m, metric="precomputed")
    model.fit(np.where(near, 0, FAR), sample_weight=weights)
    return model.labels_, model.core_sample_indices_


def assert_labels(model, matrix, eps, m, weights=None):
    labels, core = expected(matrix, eps, m, weights)
    np.testing.assert_array_equal(to_host(as_array(model.labels_)), labels)
    np.testing.assert_array_equal(to_host(model.core_sample_indices_), core)
    assert model.n_clusters_ == labels.max() + 1


def as_array(labels):
    return on_host(labels).to_numpy() if hasattr(labels, "to_numpy") else labels


def some_distances(matrix):
    """Distances that occur, and the next smaller numbers."""
    weight = matrix[np.triu_indices(len(matrix), 1)]
    weight = weight[weight < FAR]
    some = np.quantile(weight, [0.0, 0.02, 0.1, 0.4], method="nearest") if weight.size else np.ones(1)
    return np.unique([*some, *np.nextafter(some, -np.inf)])


# ----------------------------------------------------------------------------------------------------- scikit-learn


WEIGHTS = {
    "none": lambda rng, n: None,
    "copies": lambda rng, n: rng.integers(1, 4, n),
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, 3.0),
    "signed": lambda rng, n: rng.integers(-4, 9, n) / 4,
}


@given(
    st.integers(2, 120), st.integers(1, 5), st.integers(1, 9), st.sampled_from([0.5, 1.0, 2.0, 2.5]),
    st.integers(1, 8), st.sampled_from([*WEIGHTS]), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_labels_are_those_of_sklearn(device, n, d, side, eps, m, weighing, single, seed):
    """On grids, where many rows are equal and many distances are eps: its squares are exact there."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, side + 1, (n, d)).astype(np.float32 if single else np.float64)
    weights = WEIGHTS[weighing](rng, n)
    if weights is not None and not weights.any():
        weights[0] = 1
    theirs = SklearnDBSCAN(eps=eps, min_samples=m, algorithm="brute").fit(X.astype(float), sample_weight=weights)
    model = DBSCAN(eps, m, device=device).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(to_host(model.labels_), theirs.labels_)
    np.testing.assert_array_equal(to_host(model.core_sample_indices_), theirs.core_sample_indices_)
    np.testing.assert_array_equal(to_host(model.components_), theirs.components_)


@pytest.mark.parametrize(("weighing", "way", "d"), combinations(WEIGHTS, ("friends", "lists"), (2, 3), quick=2))
def test_both_ways(d, way, weighing, device, prescribe):
    """Islands, a dense core and a border between two clusters, by boxes and by pairs."""
    rng = np.random.default_rng(d)
    X = np.concatenate([rng.normal(size=(500, d)), 6 + rng.normal(size=(300, d)) * 0.01, rng.uniform(-9, 9, (400, d))])
    X = X[rng.permutation(len(X))]
    weights, matrix = WEIGHTS[weighing](rng, len(X)), all_distances(X)
    prescribe(tree=way)
    for eps, m in product((0.05, 0.4, 1.5), (1, 4, 30)):
        model = DBSCAN(eps, m, device=device).fit(X, sample_weight=weights)
        assert model.report_["way"] == ("boxes" if way == "friends" else "pairs")
        assert_labels(model, matrix, eps, m, weights)


def test_the_first_cluster_takes_a_border(device):
    """The row between two clusters is in the first, by rows, whichever is nearer."""
    X = np.array([[0, 0], [20, 0], [21, 0], [22, 0], [21, 1], [18, 0], [16, 0], [15, 0], [14, 0], [15, 1]])
    for order in (np.arange(10), np.arange(10)[::-1], np.array([5, 9, 1, 0, 2, 6, 3, 4, 7, 8])):
        theirs = SklearnDBSCAN(eps=2.0, min_samples=4, algorithm="brute").fit(X[order])
        model = DBSCAN(2.0, 4, device=device).fit(X[order])
        np.testing.assert_array_equal(to_host(model.labels_), theirs.labels_)
        assert sorted(set(theirs.labels_)) == [-1, 0, 1]
        assert 5 not in order[theirs.core_sample_indices_]
        assert theirs.labels_[order == 5] == 0


@pytest.mark.parametrize("weighing", ["signed", *map(full, ("none", "zeros"))])
@pytest.mark.parametrize("metric", ["euclidean", full("cosine")])
def test_few_pairs_at_a_time(metric, weighing, device, set_constants):
    """Parts of few pairs; and if none is kept all come again."""
    set_constants(boxes, LEAST_PAIRS=0, PAIRS_A_ROW=0.5)
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(400, 12)) + 0.5, WEIGHTS[weighing](rng, 400)
    matrix = all_distances(X, metric=metric)
    for share, m in product((0.01, 0.2), (2, 9)):
        eps = float(np.quantile(matrix, share))
        model = DBSCAN(eps, m, metric=metric, device=device).fit(X, sample_weight=weights)
        assert_labels(model, matrix, eps, m, weights)


@given(
    st.integers(2, 200), st.integers(5, 12), st.integers(1, 4), st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    st.integers(1, 12), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_labels_by_trees(device, n, d, side, eps, m, seed):
    """Where there are more pairs than a few for each row."""
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32)
    with patch.multiple("rapids_slink.dbscan", FEW_PAIRS=0, FEW_PAIRS_A_ROW=1):
        model = DBSCAN(eps, m, device=device).fit(X)
    theirs = SklearnDBSCAN(eps=max(eps, 0.1), min_samples=m, algorithm="brute").fit(X.astype(float))
    np.testing.assert_array_equal(to_host(model.labels_), theirs.labels_)
    np.testing.assert_array_equal(to_host(model.core_sample_indices_), theirs.core_sample_indices_)


@pytest.mark.parametrize("metric", ["jaccard", *map(full, ("euclidean", "cosine", "chebyshev"))])
def test_a_dense_core_by_trees(metric, device):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(1900, 20)) * 0.1, rng.normal(size=(300, 20)) * 5])
    X = (X > 0.05).astype(float) if metric == "jaccard" else X + 3.0
    X[~X.any(axis=1), 0] = 1
    matrix = all_distances(X, metric=metric)
    eps = float(np.quantile(matrix, 0.6))
    model = DBSCAN(eps, 30, metric=metric, device=device).fit(X)
    assert model.report_["way"] == "trees"
    assert_labels(model, matrix, eps, 30)


@pytest.mark.full
@pytest.mark.parametrize("d", [3, 2, 4])
def test_many_rows(d, device):
    """Several threads, and cells of many points: the clusters of core rows are those of mutual reachability."""
    rng = np.random.default_rng(d)
    X = np.concatenate(
        [rng.random((6000, d)), 0.5 + rng.normal(size=(4000, d)) * 1e-3, rng.random((10, d)).repeat(100, 0)]
    ).astype(np.float32)
    X = X[rng.permutation(len(X))]
    for scale, m in product((0.1, 0.7, 1.5), (2, 8)):
        eps = scale * len(X) ** (-1 / d)
        model = DBSCAN(eps, m, device=device).fit(X)
        labels = to_host(model.labels_)
        whole = to_host(fit(X, max_distance=eps, min_samples=m - 1, device=device).labels_)
        core = to_host(model.core_sample_indices_)
        groups = pd.DataFrame({"ours": labels[core], "theirs": whole[core]}).drop_duplicates()
        assert groups["ours"].is_unique
        assert groups["theirs"].is_unique
        near = pairs(X[:2000], X, max_distance=eps, device=device)
        src, dst = (to_host(near[name].values) for name in ("src", "dst"))
        is_core = np.zeros(len(X), bool)
        is_core[core] = True
        np.testing.assert_array_equal(np.bincount(src, minlength=2000) >= m, is_core[:2000])
        least = pd.Series(labels[dst[is_core[dst]]]).groupby(src[is_core[dst]]).min()
        np.testing.assert_array_equal(labels[:2000], least.reindex(range(2000), fill_value=-1))


def test_weights_that_are_no_integers(device):
    """Their sums do not depend on the order of the rows: three tenths are as much as 0.3 in any."""
    rng = np.random.default_rng(0)
    X, weights = rng.integers(0, 5, (200, 2)).astype(float), rng.choice([0.1, 0.2, 0.7, 1e-9], 200)
    model = DBSCAN(1.0, 3, device=device).fit(X, sample_weight=weights)
    order = rng.permutation(200)
    again = DBSCAN(1.0, 3, device=device).fit(X[order], sample_weight=weights[order])
    is_core = np.zeros((2, 200), bool)
    is_core[0, to_host(model.core_sample_indices_)] = is_core[1, order[to_host(again.core_sample_indices_)]] = True
    np.testing.assert_array_equal(*is_core)
    units, enough = in_units(np.array([0.5, 0.25, -3.0]), 2, rapids_slink.runtime.device.CPU)
    np.testing.assert_array_equal(units / units[0], [1, 0.5, -6])
    assert enough == 4 * units[0]
    huge = DBSCAN(1.0, 3, device=device).fit(X[:2], sample_weight=[1e300, -1e-300])
    assert to_host(huge.core_sample_indices_).tolist() == ([0, 1] if (X[0] == X[1]).all() else [0])
    tiny = DBSCAN(1.0, 3, device=device).fit(X, sample_weight=np.full(200, 5e-324))
    assert to_host(tiny.labels_).tolist() == [-1] * 200


# ------------------------------------------------------------------------------------------------------- every kind


@pytest.mark.parametrize(
    ("metric", "p"), [one if one[0] in ("euclidean", "cosine", "jaccard") else full(*one) for one in ALL_METRICS]
)
def test_each_metric(metric, p, device):
    X = without_zeros(points("decimal_grid", metric).copy(), metric)[:200]
    if METRICS[metric].rows in ("normed", "centred"):
        X = X / (3 * np.abs(X).max()) + np.arange(1, 1 + X.shape[1])
    matrix = all_distances(X, metric=metric, p=p)
    for eps, m in product(some_distances(matrix), (2, 5)):
        if eps >= 0 or metric == "inner_product":
            assert_labels(DBSCAN(eps, m, metric=metric, p=p, device=device).fit(X), matrix, eps, m)


@pytest.mark.parametrize("name", [name if name in ("decimal_grid", "repeated_rows") else full(name) for name in CASES])
def test_hard_cases(name, device):
    X = CASES[name]("float64")[:400, :3]
    if len(X) > 1:
        matrix = all_distances(X)
        for eps in some_distances(matrix):
            if eps >= 0:
                assert_labels(DBSCAN(eps, 3, device=device).fit(X), matrix, eps, 3)


IN_BOX = np.random.default_rng(0).integers(0, 20, (300, 3)) / 2
GAPS = np.random.default_rng(0).integers(1, 4, (200, 8)).astype(float)
GAPS[np.random.default_rng(1).random(GAPS.shape) < 0.1] = np.nan


@pytest.mark.parametrize(
    ("X", "how"),
    [
        full(IN_BOX, {"box": 10.0}),
        full(IN_BOX, {"box": [10.0, np.inf, 5.0]}),
        full(IN_BOX, {"scales": {(0, 1): 1.0, 2: 2.0}}),
        (np.random.default_rng(0).uniform(-0.1, 0.1, (300, 2)), {"metric": "haversine"}),
        (GAPS, {"missing": "pairwise"}),
        (GAPS, {"missing": "hiercc", "metric": "hamming"}),
    ],
)
def test_boxes_angles_and_gaps(X, how, device):
    matrix = all_distances(X, **how)
    for eps in some_distances(matrix)[1:]:
        model = DBSCAN(eps, 4, device=device, **how).fit(X)
        assert_labels(model, matrix, eps, 4)
        assert on_host(model.components_).shape == (model.core_sample_indices_.size, X.shape[1])


TEXTS = ["graph", "grape", "grapes", "grope", "trees", "tree", "treat", "graph", "zebra", "tree"] * 3
SETS = sparse.random(90, 40, 0.1, "csr", random_state=0) > 0


def test_text(device):
    matrix = all_distances(TEXTS, metric="levenshtein")
    for eps, m in product((0, 1, 2), (2, 4, 7)):
        model = DBSCAN(eps, m, metric="levenshtein", device=device).fit(TEXTS)
        assert_labels(model, matrix, eps, m)
        assert model.components_ == [TEXTS[row] for row in to_host(model.core_sample_indices_).tolist()]
    weights = np.arange(30) % 3
    model = DBSCAN(1, 5, metric="levenshtein", device=device).fit(pd.Series(TEXTS), sample_weight=weights)
    assert_labels(model, matrix, 1, 5, weights)
    assert model.labels_.index.equals(pd.RangeIndex(30))


def test_sets_and_sparse_rows(device):
    matrix = all_distances(SETS, metric="jaccard")
    model = DBSCAN(0.8, 3, metric="jaccard", device=device).fit(SETS)
    assert_labels(model, matrix, 0.8, 3)
    assert (model.components_ != SETS[to_host(model.core_sample_indices_)]).nnz == 0
    rows = sparse.random(90, 40, 0.2, "csr", random_state=1)
    matrix = all_distances(rows, metric="euclidean")
    eps = float(np.quantile(matrix, 0.1))
    assert_labels(DBSCAN(eps, 3, device=device).fit(rows), matrix, eps, 3)


def test_given_distances(device):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 7, (120, 3)).astype(float)
    matrix = all_distances(X)
    for dtype in ("float64", "float32"):
        given = matrix.astype(dtype)
        model = DBSCAN(2.0**0.5, 5, metric="precomputed", device=device).fit(given)
        assert_labels(model, given.astype(float), 2.0**0.5, 5)
        np.testing.assert_array_equal(to_host(model.components_), given[to_host(model.core_sample_indices_)])
    with_gaps = np.where(matrix < 3, matrix, np.inf)
    weights = rng.integers(-1, 3, 120)
    model = DBSCAN(1.0, 4, metric="precomputed", device=device).fit(with_gaps, sample_weight=weights)
    assert_labels(model, np.where(matrix < 3, matrix, FAR), 1.0, 4, weights)


def test_graphs(device):
    """A sparse matrix of distances with stored zeros, as scikit-learn takes it; edges, each once or more often."""
    X = np.random.default_rng(0).integers(0, 7, (120, 3)).astype(float)
    near, matrix = pairs(X, max_distance=1.5, device="cpu"), all_distances(X)
    graph = rapids_slink.to_csr(near, len(X))
    theirs = SklearnDBSCAN(eps=1.0, min_samples=5, metric="precomputed").fit(graph)
    model = DBSCAN(1.0, 5, metric="precomputed", device=device).fit(graph)
    np.testing.assert_array_equal(to_host(model.labels_), theirs.labels_)
    both = pd.concat([near, near.rename(columns={"src": "dst", "dst": "src"}), near], ignore_index=True)
    for edges in (near, both):
        model = DBSCAN(1.0, 5, metric="precomputed", device=device).fit(edges)
        n = to_host(as_array(model.labels_)).size
        assert_labels(model, matrix[:n, :n], 1.0, 5)
        assert not hasattr(model, "components_")


def test_a_matrix_in_parts(device, prescribe):
    prescribe(values=300)
    matrix = all_distances(np.random.default_rng(0).integers(0, 9, (100, 2)).astype(float))
    assert_labels(DBSCAN(1.0, 4, metric="precomputed", device=device).fit(matrix), matrix, 1.0, 4)


@pytest.mark.parametrize(
    ("metric", "weighing"), combinations(("euclidean", "cosine", "levenshtein"), ("none", "signed"), quick=3)
)
def test_groups(metric, weighing, device):
    """Small and large ones: each has the clusters of a fit of it alone."""
    rng = np.random.default_rng(0)
    key = np.where(np.arange(1500) < 1100, 7, rng.integers(0, 40, 1500))
    order = rng.permutation(1500)
    key, X = key[order], rng.integers(1, 12, (1500, 3)).astype(float)
    if metric == "levenshtein":
        key, X = key[:400], np.array(TEXTS)[rng.integers(0, 30, 400)]
    weights = WEIGHTS[weighing](rng, len(X))
    eps = 0.004 if metric == "cosine" else 1.0
    model = DBSCAN(eps, 4, metric=metric, device=device).fit(X, sample_weight=weights, groups=key)
    labels, cores = to_host(model.labels_), []
    assert model.report_["way"] == "groups"
    table = as_frame(model.groups_)
    for group, row in zip(pd.unique(key), on_host(table).itertuples(), strict=True):
        own = np.flatnonzero(key == group)
        of_own = None if weights is None else weights[own]
        if of_own is not None and not of_own.any():  # which a fit of it alone refuses
            assert (labels[own] == -1).all()
            assert (row.rows, row.clusters, row.first_label) == (own.size, 0, -1)
            continue
        alone = DBSCAN(eps, 4, metric=metric, device=device).fit(X[own], sample_weight=of_own)
        mapping = pd.DataFrame({"ours": labels[own], "alone": to_host(alone.labels_)}).drop_duplicates()
        assert mapping["ours"].is_unique
        assert mapping["alone"].is_unique
        assert ((mapping["ours"] < 0) == (mapping["alone"] < 0)).all()
        cores += own[to_host(alone.core_sample_indices_)].tolist()
        kept = labels[own][labels[own] >= 0]
        assert (row.group, row.rows, row.clusters) == (group, own.size, alone.n_clusters_)
        assert row.first_label == (kept.min() if kept.size else -1)
    assert sorted(cores) == to_host(model.core_sample_indices_).tolist()
    first = [labels[core] for core in sorted(cores)]
    assert list(pd.unique(np.array(first))) == list(range(model.n_clusters_))


def test_groups_by_a_column(device):
    df = pd.DataFrame({"film": ["a", "a", "b", "b", "b"], "x": [0.0, 0.1, 0.0, 0.2, 5.0]})
    model = DBSCAN(0.5, 2, device=device).fit(df, groups="film")
    assert on_host(model.labels_).tolist() == [0, 0, 1, 1, -1]
    assert model.n_features_in_ == 1
    pd.testing.assert_frame_equal(model.components_, df.iloc[:4])


# ---------------------------------------------------------------------------------------------------- what comes out


def test_kinds_of_results(device):
    X = np.random.default_rng(0).integers(0, 6, (90, 2)).astype(np.float32)
    arrays = DBSCAN(1.0, 5, device=device).fit(X)
    assert (arrays.labels_.dtype, arrays.core_sample_indices_.dtype, arrays.components_.dtype) == (
        np.int32, np.int64, np.float32,
    )  # fmt: skip
    df = pd.DataFrame(X, columns=["x", "y"], index=np.arange(90) + 1000)
    frames = DBSCAN(1.0, 5, device=device).fit(df)
    assert frames.labels_.index.equals(df.index)
    assert frames.labels_.name == "label"
    pd.testing.assert_frame_equal(frames.components_, df.iloc[arrays.core_sample_indices_])
    assert frames.feature_names_in_.tolist() == ["x", "y"]
    assert frames.n_features_in_ == 2
    np.testing.assert_array_equal(frames.labels_, arrays.labels_)
    assert isinstance(frames.core_sample_indices_, np.ndarray)
    on_gpu = DBSCAN(1.0, 5, device=device).fit(on_device(df, rapids_slink.runtime.device.resolve(device)))
    assert type(on_gpu.labels_).__module__.split(".")[0] == ("cudf" if device == "cuda" else "pandas")
    np.testing.assert_array_equal(DBSCAN(1.0, 5, device=device).fit_predict(X.tolist()), arrays.labels_)
    copied = pickle.loads(pickle.dumps(frames))
    pd.testing.assert_series_equal(copied.labels_, frames.labels_)
    assert clone(frames).get_params() == frames.get_params()
    assert not hasattr(clone(frames), "labels_")


def test_few_rows_and_extremes(device):
    for metric in ("euclidean", "cosine"):
        for n, m, label in ((1, 1, 0), (1, 2, -1), (2, 3, -1), (2, 2, 0), (2, 1, 0)):
            model = DBSCAN(0.5, m, metric=metric, device=device).fit(np.ones((n, 3)))
            assert to_host(model.labels_).tolist() == [label] * n
            assert model.n_clusters_ == label + 1
    X = np.array([[0.0, 0], [1e300, 0], [5e-324, 0], [0, -1e-160]]) * 1e-150
    assert to_host(DBSCAN(0.0, 1, device=device).fit(X).labels_).max() >= 1
    assert to_host(DBSCAN(np.inf, 4, device=device).fit(X).labels_).tolist() == [0] * 4


# ------------------------------------------------------------------------------------------------------- the kernels


@pytest.mark.parametrize("n", [1, 2, 9, 700])
@pytest.mark.parametrize("d", [2, 3])
def test_reduced_near_points(n, d, engine):
    rng, xp = np.random.default_rng(n), engine.xp
    X, weights = rng.integers(0, 9, (n, d)).astype(np.float32), rng.integers(0, 5, n).astype(float)
    metric = get_metric("euclidean")
    near = ((X[:, None] - X) ** 2).sum(axis=2) <= 2
    tree = kernels(engine).make_boxes(engine.asarray(X), metric)
    for values in (None, weights):
        for enough in (1.0, 6.0, np.inf):
            total = xp.zeros(n)
            given = None if values is None else engine.asarray(values)
            kernels(engine).reduce_near_points(tree, 2.0, metric, given, total, enough)
            sums = (near * (1.0 if values is None else values)).sum(axis=1)
            np.testing.assert_array_equal(np.minimum(to_host(total), enough), np.minimum(sums, enough))
    least = np.where(rng.random(n) < 0.5, np.inf, weights)
    total = engine.asarray(least.copy())
    kernels(engine).reduce_near_points(tree, 2.0, metric, total, total, None)
    expected = np.where(least < np.inf, least, np.where(near, least, np.inf).min(axis=1))
    np.testing.assert_array_equal(to_host(total), expected)


@pytest.mark.parametrize("m", [0, 1, 50, 4000])
def test_joined_pairs(m, engine):
    rng, n = np.random.default_rng(m), 1000
    src, dst = rng.integers(0, n, (2, m)).astype(np.int32)
    parent = engine.xp.arange(n, dtype="int32")
    kernels(engine).unite_pairs(parent, engine.asarray(src), engine.asarray(dst))
    root = to_host(parent)
    for _ in range(n.bit_length()):
        root = root[root]
    label = connected_components(sparse.coo_matrix((np.ones(m), (src, dst)), (n, n)), directed=False)[1]
    first = np.full(n, n)
    np.minimum.at(first, label, np.arange(n))
    np.testing.assert_array_equal(root, first[label])


# --------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"eps": -1.0}, ValueError, "eps must be at least 0, as euclidean distances are, got -1.0"),
        ({"eps": "0.5"}, TypeError, "eps must be a number, got '0.5'"),
        ({"eps": np.nan}, ValueError, "eps must not be NaN"),
        ({"min_samples": 0}, ValueError, "min_samples must be at least 1, got 0"),
        ({"min_samples": 2.5}, TypeError, "min_samples must be an integer, got 2.5"),
        ({"metric": "euclid"}, ValueError, "metric must be one that is known, got 'euclid'"),
        ({"metric_params": {"V": 1}}, ValueError, "metric_params must be None"),
        ({"output_type": "numpy"}, ValueError, "output_type must be None"),
        ({"device": "tpu"}, ValueError, "device must be one of"),
        ({"box": 0.0}, ValueError, "box must be above 0"),
        ({"memory_limit": "much"}, ValueError, "memory_limit"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        DBSCAN(**parameters).fit(np.ones((3, 2)))


def test_bad_input(device):
    X = np.ones((3, 2))
    model = DBSCAN(device=device)
    for weights, error, message in (
        ([1, 2], ValueError, "sample_weight must hold one number for each of 3 rows"),
        ([1, 2, np.nan], ValueError, "sample_weight must be finite: that of row 2 is nan"),
        ([1, np.inf, 1], ValueError, "sample_weight must be finite: that of row 1 is inf"),
        ([0, 0, 0], ValueError, "sample_weight must contain at least one non-zero number"),
        (["a", "b", "c"], TypeError, "sample_weight must hold numbers"),
    ):
        with pytest.raises(error, match=message):
            model.fit(X, sample_weight=weights)
    with pytest.raises(ValueError, match="groups must hold one key for each of 3 rows, got 2"):
        model.fit(X, groups=[0, 1])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.array([[0.0], [np.nan]]))
    with pytest.raises(ValueError, match="metric='precomputed' takes no groups"):
        DBSCAN(metric="precomputed", device=device).fit(np.zeros((3, 3)), groups=[0, 0, 1])
    with pytest.raises(ValueError, match="must be symmetric"):
        DBSCAN(metric="precomputed", device=device).fit(np.triu(np.ones((3, 3)), 1))
    with pytest.raises(TypeError, match=r"DBSCAN has no parameter 'min_sample'\. Did you mean 'min_samples'\?"):
        DBSCAN(min_sample=3)
    assert not hasattr(model, "labels_")


def test_a_failed_fit_keeps_the_one_before(device):
    model = DBSCAN(device=device).fit(np.zeros((9, 2)))
    with pytest.raises(ValueError, match="must be finite"):
        model.fit(np.zeros((9, 2)), sample_weight=np.full(9, np.inf))
    assert to_host(model.labels_).tolist() == [0] * 9


@pytest.mark.parametrize("d", [3, 40])
def test_memory(d, device):
    X = np.random.default_rng(0).normal(size=(20_000, d)).astype(np.float32)
    with pytest.raises(DeviceMemoryError, match="memory_limit='200kB' is too small"):
        DBSCAN(0.1, device=device, memory_limit="200kB").fit(X)

"""Callers whose NumPy raises for every floating-point error: all calls work, and give the same bits.

Tiny values underflow in the course of the work, and infinite rates are part of HDBSCAN's definitions.
"""

import warnings
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from hard_cases import combinations, full
from metric_cases import ALL_METRICS, PACKED, takes_booleans, without_zeros

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage, hdbscan
from rapids_slink.points.output import on_host
from rapids_slink.scipy import linkage

#: Rows in two groups, some of them repeated, are multiplied by these.
SCALES = {"tiny": 1e-200, "denormal": 5e-320, "mixed": np.array([1e-200, 1e-100, 1e120]), "large": 1e150, "huge": 1e200}


@contextmanager
def strict():
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rows(scale, metric="euclidean"):
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(80, 3)) + np.repeat([0, 8], 40)[:, None])
    X[:5] = X[5:10]
    if metric in PACKED:
        return (X * 20).astype(np.uint8)
    if takes_booleans(metric):
        return without_zeros(np.median(X, axis=0) < X, metric)
    X = X * SCALES[scale]
    return X[:, :2] if metric == "haversine" else X


def outcome(call):
    """What a call returns, as bytes, or why it refuses the rows."""
    try:
        found = call()
    except ValueError as error:
        return str(error)
    values = found if isinstance(found, tuple | list) else [found]
    return [np.asarray(on_host(value)).tobytes() for value in values]


def outcomes(X, metric, p, device):
    """The outcome of every function and method."""
    how = {"metric": metric, "p": p, "device": device}
    few, new, weights = X[:60], X[::7], np.arange(1, len(X) + 1)
    single, grown = (SingleLinkage(3, prediction_data=True, **how) for _ in range(2))
    by_lists, near = SingleLinkage(3, n_neighbors=3, **how), SingleLinkage(None, max_distance=1e-200, **how)
    dense = HDBSCAN(5, prediction_data=True, store_centers="both", **how)

    def parts(model):
        return model.labels_, model.linkage_, model.mst_

    calls = {
        "fit": lambda: parts(single.fit(X)),
        "cut": lambda: (single.cut(4), single.cut([2, 5], min_cluster_size=3), single.cut(distance_threshold=1e-200)),
        "predict": lambda: single.predict(new),
        "medoids": lambda: single.to_frame(medoids=True),
        "append": lambda: parts(grown.fit(few).append(X[60:])),
        "fit by lists": lambda: parts(by_lists.fit(X)),
        "fit up to a distance": lambda: parts(near.fit(X)),
        "HDBSCAN": lambda: (*parts(dense.fit(X)), dense.centroids_, dense.medoids_, dense.condensed_tree_.frame),
        "HDBSCAN of weights": lambda: parts(HDBSCAN(5, **how).fit(X, sample_weight=weights)),
        "relative_validity_": lambda: dense.relative_validity_,
        "approximate_predict": lambda: dense.approximate_predict(new),
        "approximate_predict_scores": lambda: hdbscan.approximate_predict_scores(dense, new),
        "membership_vector": lambda: dense.membership_vector(new),
        "all_points_membership_vectors": dense.all_points_membership_vectors,
        "to_newick": dense.to_newick,
        "knn_graph": lambda: rapids_slink.knn_graph(X, 4, **how),
        "connect": lambda: rapids_slink.connect(rapids_slink.knn_graph(X, 2, **how), X, **how),
        "nearest_neighbors": lambda: rapids_slink.nearest_neighbors(new, X, **how),
        "plan": lambda: rapids_slink.plan(X, **how)["way"],
    }
    return {name: outcome(call) for name, call in calls.items()}


EVERY_METRIC = [*ALL_METRICS, *((name, 2.0) for name in PACKED), ("haversine", 2.0)]
QUICK = [((name, 2.0), "tiny") for name in ("euclidean", "cosine", "bit_jaccard")]


@pytest.mark.parametrize(("metric", "scale"), combinations(EVERY_METRIC, SCALES, quick=QUICK))
def test_calls(metric, scale, device):
    metric, p = metric
    X = rows(scale, metric)
    expected = outcomes(X, metric, p, device)
    with strict():
        assert outcomes(X, metric, p, device) == expected
    if scale == "tiny" and metric not in ("cosine", "correlation"):  # whose squared norms are zero
        assert all(isinstance(found, list) for found in expected.values())


@pytest.mark.parametrize("scale", SCALES)
def test_given_distances_and_missing_values(scale, device):
    X = rows(scale)
    with np.errstate(all="ignore"):
        D = np.maximum.reduce([np.abs(np.subtract.outer(column, column)) for column in X.T])
    X[::7, 0] = np.nan

    def results():
        yield outcome(lambda: SingleLinkage(3, metric="precomputed", device=device).fit(D).mst_)
        yield outcome(lambda: HDBSCAN(5, metric="precomputed", device=device).fit(D).probabilities_)
        yield outcome(lambda: linkage(np.abs(X[:3]), device=device))
        for metric in ("euclidean", "cityblock", "hamming"):
            model = SingleLinkage(3, metric=metric, missing="pairwise", prediction_data=True, device=device)
            yield outcome(lambda model=model: (model.fit(X).mst_, model.predict(X[:9])))

    expected = list(results())
    with strict():
        assert list(results()) == expected


@pytest.mark.parametrize("scale", [full(scale) if i % 2 else scale for i, scale in enumerate([*SCALES][:-1])])
@pytest.mark.parametrize("model", [SingleLinkage(3, device="cpu"), HDBSCAN(5, gen_min_span_tree=True, device="cpu")])
def test_plots(model, scale, pyplot):
    pytest.importorskip("hdbscan")
    X = rows(scale)
    model.fit(X)
    draw = [model.plot, model.plot_heights, model.plot_condensed]
    draw += [partial(model.plot_clusters, X), partial(model.plot_tree, X)]
    if isinstance(model, HDBSCAN):
        trees = model.condensed_tree_, model.single_linkage_tree_, model.minimum_spanning_tree_
        draw += [tree.plot for tree in trees]
    for picture in draw:
        pyplot.figure()
        with strict():
            picture()
    with strict():
        assert "80 rows" in model._repr_html_()

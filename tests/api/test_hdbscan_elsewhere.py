"""HDBSCAN in the place of the classes of hdbscan, scikit-learn and cuML: their parameters, and hdbscan's trees."""

import inspect
import json
import pickle
import re
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from joblib import Memory
from oracles import blobs
from repository import ROOT, python
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone

import rapids_slink
from rapids_slink import HDBSCAN, fit
from rapids_slink.hdbscan import FIXED, approximate_predict
from rapids_slink.hierarchy.plotting import drawn_merges
from rapids_slink.points.output import on_host

hdbscan = pytest.importorskip("hdbscan")
#: cuML 26.10's parameters with their defaults; where it is installed, its own.
CUML = {
    "min_cluster_size": 5,
    "min_samples": None,
    "cluster_selection_epsilon": 0.0,
    "max_cluster_size": 0,
    "metric": "euclidean",
    "alpha": 1.0,
    "p": None,
    "cluster_selection_method": "eom",
    "allow_single_cluster": False,
    "gen_min_span_tree": False,
    "verbose": False,
    "output_type": None,
    "prediction_data": False,
    "build_algo": "brute_force",
    "build_kwds": None,
    "device_ids": None,
}
#: Another value of each parameter that changes no result.
IGNORED = {
    "algorithm": "boruvka_kdtree",
    "leaf_size": 7,
    "memory": Memory(None, verbose=0),
    "approx_min_span_tree": True,
    "gen_min_span_tree": True,
    "core_dist_n_jobs": 3,
    "n_jobs": -1,
    "copy": False,
    "verbose": 6,
    "build_algo": "nn_descent",
    "build_kwds": {"nnd_graph_degree": 32},
    "device_ids": "all",
}
#: And of each that would change it.
REFUSED = {
    "alpha": 0.5,
    "cluster_selection_persistence": 0.1,
    "match_reference_implementation": True,
    "branch_detection_data": True,
    "metric_params": {"V": 1},
    "output_type": "numpy",
}
#: Parameters that choose the tree or its clusters, whose effect other tests compare.
CHOSEN = {
    "min_cluster_size", "min_samples", "metric", "p", "cluster_selection_method", "cluster_selection_epsilon",
    "cluster_selection_epsilon_max", "allow_single_cluster", "max_cluster_size", "prediction_data", "store_centers",
}  # fmt: skip


def defaults_of(kind):
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return {one.name: one.default for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)}


def packages():
    found = {"hdbscan": defaults_of(hdbscan.HDBSCAN), "sklearn": defaults_of(sklearn.cluster.HDBSCAN), "cuml": CUML}
    if find_spec("cuml"):
        from cuml.cluster import HDBSCAN as OfCuml

        found["cuml"] = defaults_of(OfCuml)
    return found


@pytest.mark.parametrize("package", ["hdbscan", "sklearn", "cuml"])
def test_every_parameter_is_taken_or_refused_by_name(package):
    defaults = packages()[package]
    assert set(defaults) <= CHOSEN | set(IGNORED) | set(REFUSED)
    X = blobs(0)
    expected = HDBSCAN(device="cpu").fit_predict(X)
    np.testing.assert_array_equal(HDBSCAN(**defaults, device="cpu").fit_predict(X), expected)
    ignored = {name: value for name, value in IGNORED.items() if name in defaults}
    np.testing.assert_array_equal(HDBSCAN(**ignored, device="cpu").fit_predict(X), expected)
    for name in set(REFUSED) & set(defaults):
        with pytest.raises(ValueError, match=rf"{name} must be .*, got {re.escape(repr(REFUSED[name]))}: \w+"):
            HDBSCAN(**{name: REFUSED[name]}).fit(X)


def test_parameters_make_the_round_trip():
    given = {**IGNORED, **{name: values[0] for name, (values, _) in FIXED.items()}}
    model = HDBSCAN(**given, device="cpu").fit(blobs(0)[:60])
    for again in (clone(model), HDBSCAN(**model.get_params()), pickle.loads(pickle.dumps(model))):
        assert {name: repr(value) for name, value in again.get_params().items()} == {
            name: repr(value) for name, value in model.get_params().items()
        }
    theirs = hdbscan.HDBSCAN(min_cluster_size=7, gen_min_span_tree=True)
    assert HDBSCAN(**theirs.get_params()).get_params().items() >= theirs.get_params().items()


def test_page_has_every_parameter_of_other_packages():
    page = (ROOT / "docs" / "coming-from.md").read_text()
    table = page[page.index("| parameter |") : page.index("\n\n", page.index("| parameter |"))]
    first = "".join(row.split("|")[1] for row in table.splitlines())
    assert set(re.findall(r"`(\w+)", first)) == set(IGNORED) | set(FIXED)
    assert set(FIXED) == set(REFUSED)


def test_p_may_be_none():
    X = blobs(0, 3)
    for metric in ("euclidean", "minkowski"):
        np.testing.assert_array_equal(
            HDBSCAN(metric=metric, p=None, device="cpu").fit(X).to_scipy(), HDBSCAN(device="cpu").fit(X).to_scipy()
        )


@pytest.mark.parametrize(("largest", "error"), [(0.1, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_largest_epsilon_is_checked(largest, error):
    with pytest.raises(error, match="cluster_selection_epsilon_max must be"):
        HDBSCAN(cluster_selection_epsilon=0.5, cluster_selection_epsilon_max=largest).fit(blobs(0))


def test_topic_models_call(device):
    """The calls that BERTopic makes of a model of the package hdbscan."""
    X = blobs(0, 5)
    model = HDBSCAN(
        min_cluster_size=10,
        metric="euclidean",
        cluster_selection_method="eom",
        prediction_data=True,
        gen_min_span_tree=True,
    )
    model.set_params(device=device).fit(X, y=None)
    model.generate_prediction_data()
    labels, probabilities = approximate_predict(model, X[:9])
    assert len(on_host(labels)) == len(on_host(probabilities)) == 9
    memberships = on_host(rapids_slink.hdbscan.all_points_membership_vectors(model))
    assert memberships.shape == (len(X), model.n_clusters_)
    with pytest.raises(ValueError, match="keeps no rows: fit it with prediction_data=True"):
        HDBSCAN(device=device, gen_min_span_tree=True).fit(X).generate_prediction_data()


TOPICS = """
import sys
if {stand_in}:
    sys.path.insert(0, "tests/support")
    import topics
    sys.modules["bertopic"] = topics
import numpy as np
rng = np.random.default_rng(0)
group = np.repeat([0, 1, 2], [60, 40, 30])
embeddings = rng.normal(size=(130, 5)) * 0.3 + np.eye(5)[group] * 9
documents = [f"word{{g}} of{{g}} document{{g}} {{i}}" for i, g in enumerate(group)]
new_documents, new_embeddings = documents[:9], embeddings[:9] + 0.01
{recipe}
probabilities, new_probabilities = np.asarray(probabilities), np.asarray(new_probabilities)
assert probabilities.shape == (130, 3) and new_probabilities.shape == (9, 3), probabilities.shape
assert [group[np.flatnonzero(np.array(topics) == t)[0]] for t in range(3)] == [0, 1, 2]  # by size
assert new_topics[0] == topics[0] == probabilities[0].argmax() == 0
assert len(set(model.topics_)) <= 10
print(type(clusters).__module__, topics, probabilities.round(9).tolist(), np.asarray(new_topics).tolist(),
      new_probabilities.round(9).tolist(), sep="\\n")
"""


@pytest.mark.full
@pytest.mark.parametrize("stand_in", [False, True], ids=["bertopic", "its calls"])
def test_recipe_of_topics(stand_in):
    """The page's, with the matrix of probabilities that the package hdbscan gives."""
    if not stand_in:
        pytest.importorskip("bertopic", reason="bertopic is not installed")
    page = (ROOT / "docs" / "density.md").read_text()
    recipe = page[page.index("```{code-block} python\n") :].split("\n", 1)[1].partition("```")[0]
    ours = recipe.replace("prediction_data=True", "prediction_data=True, device='cpu'")
    theirs = recipe.replace('sys.modules["hdbscan"] = hdbscan', "").replace(
        "from rapids_slink import hdbscan", "import hdbscan"
    )
    theirs = theirs.replace("prediction_data=True", "prediction_data=True, algorithm='generic'")
    answers = [python(TOPICS.format(stand_in=stand_in, recipe=code)).splitlines()[-5:] for code in (ours, theirs)]
    assert [answer[0].split(".")[0] for answer in answers] == ["rapids_slink", "hdbscan"]
    assert answers[0][1] == answers[1][1]
    assert answers[0][3] == answers[1][3]
    for line in (2, 4):
        np.testing.assert_allclose(*(np.array(json.loads(answer[line])) for answer in answers), atol=1e-6)


@pytest.fixture
def both(device):
    """Our model, and the package's with the trees of ours."""
    X = blobs(0)
    model = HDBSCAN(10, 4, gen_min_span_tree=True, device=device).fit(X)
    theirs = model.to_hdbscan(10)
    tree = on_host(model.mst_).to_numpy(np.float64)
    return model, {
        "condensed_tree_": theirs.condensed_tree_,
        "single_linkage_tree_": theirs.single_linkage_tree_,
        "minimum_spanning_tree_": hdbscan.plots.MinimumSpanningTree(tree, X),
    }


@pytest.mark.parametrize("name", ["single_linkage_tree_", "minimum_spanning_tree_"])
def test_trees_are_the_packages(name, both):
    model, theirs = both
    ours, theirs = getattr(model, name), theirs[name]
    np.testing.assert_array_equal(ours.to_numpy(), theirs.to_numpy())
    pd.testing.assert_frame_equal(ours.to_pandas(), theirs.to_pandas(), check_dtype=False)
    graph, expected = ours.to_networkx(), theirs.to_networkx()
    assert type(graph) is type(expected)
    assert dict(graph.nodes(data=True)) == dict(expected.nodes(data=True))
    assert nested(graph) == nested(expected)


def nested(graph):
    return {node: {other: data["weight"] for other, data in graph[node].items()} for node in graph}


def test_condensed_tree_is_the_packages(both):
    """Up to the numbers of clusters."""
    model, theirs = both
    ours, theirs, n = model.condensed_tree_, theirs["condensed_tree_"], model.n_leaves_
    assert ours.to_numpy().dtype.names == theirs.to_numpy().dtype.names
    for name in ("lambda_val", "child_size"):
        np.testing.assert_array_equal(np.sort(ours.to_numpy()[name]), np.sort(theirs.to_numpy()[name]))
    pd.testing.assert_frame_equal(ours.to_pandas(), pd.DataFrame(ours.to_numpy()))
    points, others = (tree[tree["child"] < n].sort_values("child") for tree in (ours.to_pandas(), theirs.to_pandas()))
    np.testing.assert_array_equal(points["lambda_val"], others["lambda_val"])
    by_pairs = pd.crosstab(points["parent"].to_numpy(), others["parent"].to_numpy()) > 0
    assert (by_pairs.sum() == 1).all()  # one cluster of ours is one of theirs
    assert (by_pairs.sum(axis=1) == 1).all()
    graph, expected = ours.to_networkx(), theirs.to_networkx()
    assert graph.number_of_nodes() == expected.number_of_nodes()
    for row in range(n):
        (edge,), (other,) = graph.in_edges(row, data="weight"), expected.in_edges(row, data="weight")
        assert edge[2] == other[2]
        assert graph.nodes[row] == expected.nodes[row] == {"size": 1}


def test_flat_clusters_at_a_distance(both):
    model, theirs = both
    expected = theirs["single_linkage_tree_"].get_clusters(1.0, min_cluster_size=3)
    for labels in (model.single_linkage_tree_.get_clusters(1.0, min_cluster_size=3), model.dbscan_clustering(1.0, 3)):
        labels = on_host(labels)
        assert ((labels < 0) == (expected < 0)).all()
        assert len(set(zip(labels.tolist(), expected.tolist(), strict=True))) == len(set(expected.tolist()))


def test_rows_are_kept_for_the_drawing(device, tmp_path):
    X = pd.DataFrame(blobs(0, 3), columns=list("abc"))
    model = HDBSCAN(10, gen_min_span_tree=True, device=device).fit(X)
    X.loc[:, :] = 0.0  # the model has a copy
    path = tmp_path / "model.slink"
    model.save(path)
    for one in (model, rapids_slink.load(path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(on_host(one.minimum_spanning_tree_.rows), blobs(0, 3))
    assert HDBSCAN(10, device=device).fit(X).minimum_spanning_tree_.rows is None
    letters = pd.DataFrame({"a": list("abcabc"), "b": list("xyxyxy")})
    assert HDBSCAN(2, metric="hamming", gen_min_span_tree=True, device=device).fit(letters).n_leaves_ == 6
    of_distances = HDBSCAN(10, metric="precomputed", gen_min_span_tree=True, device=device)
    assert of_distances.fit(squareform(pdist(blobs(0)))).minimum_spanning_tree_.rows is None
    assert rapids_slink.plan((10**6, 64), device=device)["memory"]


@pytest.mark.parametrize("mode", [{}, {"truncate_mode": "lastp", "p": 7}, {"truncate_mode": "level", "p": 3}])
@pytest.mark.parametrize("X", [np.random.default_rng(0).normal(size=(60, 2)), [[0.0], [1.0]], [[0.0]]], ids=len)
def test_merges_are_drawn_where_scipy_draws_them(X, mode):
    Z = fit(np.asarray(X), 1, device="cpu").to_scipy()
    merges, corners = drawn_merges(Z, mode.get("truncate_mode"), mode.get("p", 0))
    assert merges.size == len(corners)
    if len(Z):
        expected = hierarchy.dendrogram(Z, no_plot=True, **mode)
        drawn = np.stack([expected["icoord"], expected["dcoord"]], axis=2)
        assert sorted(corners.tolist()) == sorted(drawn.tolist())


def test_linkage_tree_is_drawn_with_the_packages_options(both, pyplot):
    model, theirs = both
    figure, axes = pyplot.subplots(1, 2)
    options = {"truncate_mode": None, "p": 0, "vary_line_width": True, "cmap": "viridis", "colorbar": True}
    assert model.single_linkage_tree_.plot(axis=axes[0], **options) is axes[0]
    theirs["single_linkage_tree_"].plot(axis=axes[1], **options)
    sides = axes[0].collections[0]
    assert len(sides.get_segments()) == 2 * (model.n_leaves_ - 1)
    widths = sorted(line.get_linewidth() for line in axes[1].lines[::1])
    assert sorted([*sides.get_linewidths(), *[1.0] * (model.n_leaves_ - 1)]) == pytest.approx(widths)
    assert axes[0].get_ylim() == pytest.approx(axes[1].get_ylim())
    assert figure.axes[2].get_ylabel() == figure.axes[3].get_ylabel() == "log(Number of points)"
    black = model.single_linkage_tree_.plot(cmap="none", vary_line_width=False, truncate_mode="lastp", p=5)
    assert len(black.collections[-2].get_segments()) == 8
    with pytest.raises(ValueError, match="truncate_mode must be None, 'lastp' or 'level', got 'top'"):
        model.single_linkage_tree_.plot(truncate_mode="top")


def test_a_deep_linkage_tree_is_drawn(pyplot):
    """hdbscan recurses, and reaches Python's limit."""
    model = HDBSCAN(5, 1, device="cpu").fit(np.arange(3000.0)[:, None] ** 1.1)
    assert len(model.single_linkage_tree_.plot().collections[0].get_segments()) == 2 * 2999
    with pytest.raises(RecursionError):
        model.to_hdbscan().single_linkage_tree_.plot()


@pytest.mark.parametrize("d", [1, 2, 5])
def test_spanning_tree_is_drawn_with_the_packages_options(d, device, pyplot):
    X = np.vstack([blobs(0, d), blobs(0, d)[:5]])  # equal rows, too
    model = HDBSCAN(10, 1, gen_min_span_tree=True, device=device).fit(X)
    options = {"edge_cmap": "viridis", "edge_alpha": 0.6, "node_size": 80, "edge_linewidth": 2}
    ax = model.minimum_spanning_tree_.plot(**options, axis=pyplot.figure().gca())
    lines, nodes = ax.collections
    assert len(lines.get_segments()) == len(X) - 1
    assert np.isfinite(lines.get_linewidths()).all()
    assert len(nodes.get_offsets()) == len(X)
    if d == 2:
        other = pyplot.figure().gca()
        tree = on_host(model.mst_).to_numpy(np.float64)
        hdbscan.plots.MinimumSpanningTree(tree[5:], X).plot(axis=other, **options)
        theirs = next(part for part in other.get_children() if type(part) is type(lines))
        np.testing.assert_allclose(lines.get_linewidths()[5:], theirs.get_linewidths())
        np.testing.assert_array_equal(lines.get_segments()[5:], theirs.get_segments())
    with pytest.raises(ValueError, match=r"fit it with gen_min_span_tree=True, or draw model\.plot_tree\(X\)"):
        HDBSCAN(10, device=device).fit(X).minimum_spanning_tree_.plot()


def test_selected_clusters_are_drawn(both, pyplot):
    """One bar is whole in each colour, or several within it."""
    model, _ = both
    ax = model.condensed_tree_.plot(axis=pyplot.figure().gca())
    _, fills = ax.collections
    assert model.n_clusters_ > 3
    assert len(np.unique(fills.get_facecolors(), axis=0)) == model.n_clusters_
    ax = model.condensed_tree_.plot(select_clusters=False, axis=pyplot.figure().gca())
    assert not len(ax.collections[1].get_facecolors())


def test_trees_of_a_forest(device):
    """Of two components and a single row."""
    networkx = pytest.importorskip("networkx")
    matrix = np.full((9, 9), np.inf)
    for part in (slice(0, 4), slice(4, 8)):
        matrix[part, part] = 1.0
    np.fill_diagonal(matrix, 0.0)
    model = HDBSCAN(3, 1, metric="precomputed", device=device).fit(matrix)
    graph = model.minimum_spanning_tree_.to_networkx()
    assert sorted(map(len, networkx.connected_components(graph))) == [1, 4, 4]
    assert len(model.minimum_spanning_tree_.to_numpy()) == len(model.single_linkage_tree_.to_pandas()) == 6
    for refuse in (model.single_linkage_tree_.to_numpy, model.single_linkage_tree_.plot):
        with pytest.raises(ValueError, match="this hierarchy is one of 3 trees"):
            refuse()

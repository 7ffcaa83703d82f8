"""`HDBSCAN`: its clusters beside those of the package hdbscan, from the same tree and from the points."""

import itertools
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from hard_cases import combinations, full
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import blobs, core_distances, generic_hdbscan
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics.pairwise import haversine_distances
from spanning_trees import by_appearance
from tests_of_others import run_tests_of

from rapids_slink import HDBSCAN, SingleLinkage, fit, fit_graph
from rapids_slink.datasets import load_cities
from rapids_slink.dendrogram import condense
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import CPU, cuda

hdbscan = pytest.importorskip("hdbscan")

OPTIONS = [
    {},
    {"cluster_selection_method": "leaf"},
    {"cluster_selection_epsilon": 1.5},
    {"cluster_selection_method": "leaf", "cluster_selection_epsilon": 1.5},
    {"allow_single_cluster": True, "min_cluster_size": 150},
    {"allow_single_cluster": True, "min_cluster_size": 150, "cluster_selection_epsilon": 1.0},
    {"max_cluster_size": 60},
]


def grid():
    """Distances tie everywhere, and none is zero."""
    return np.array(list(itertools.product(range(12), range(9)))) + np.repeat([[0, 0], [40, 3]], 54, axis=0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("points", [blobs(0), blobs(1, 10), grid()], ids=["blobs", "wide", "ties"])
def test_clusters_are_hdbscans_of_the_same_tree(points, options, device):
    parameters = {"min_cluster_size": 6, **options}
    ours = HDBSCAN(min_samples=4, device=device, **parameters).fit(points)
    theirs = SingleLinkage(min_samples=4, device=device).fit(points).to_hdbscan(**parameters)
    assert theirs.get_params().items() >= parameters.items()
    labels = on_host(ours.labels_)
    np.testing.assert_array_equal(labels, by_appearance(theirs.labels_))
    np.testing.assert_array_equal(on_host(ours.probabilities_), theirs.probabilities_)
    np.testing.assert_allclose(on_host(ours.outlier_scores_), theirs.outlier_scores_, rtol=1e-12, atol=1e-15)
    assert ours.n_clusters_ == labels.max() + 1 == len(ours.cluster_persistence_)
    # With an epsilon hdbscan takes what is within a cluster for its own stability, and for one cluster it divides by
    # the rows that stay in it to the end.
    if "cluster_selection_epsilon" not in options and not options.get("allow_single_cluster"):
        first = [np.flatnonzero(labels == cluster)[0] for cluster in range(ours.n_clusters_)]
        expected = np.asarray(theirs.cluster_persistence_)[theirs.labels_[first]]
        np.testing.assert_allclose(on_host(ours.cluster_persistence_), expected, rtol=1e-9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("points", [blobs(0), grid()], ids=["blobs", "ties"])
def test_persistence_is_what_its_docstring_says(points, options):
    """By the condensed tree, for all options: it is a share of what it would be if no row ever left."""
    model = HDBSCAN(min_samples=4, device="cpu", **{"min_cluster_size": 6, **options}).fit(points)
    tree, n = model.condensed_tree_.to_pandas(), len(points)
    clusters = tree[tree["child"] >= n].set_index("child")
    birth, size = {n: 0.0, **clusters["lambda_val"]}, {n: n, **clusters["child_size"]}
    lasting = (tree["lambda_val"] - tree["parent"].map(birth)) * tree["child_size"]
    share = {k: part.sum() / size[k] / tree["lambda_val"].max() for k, part in lasting.groupby(tree["parent"])}
    expected = [min(share[n + k], 1) for k in model._selected_.tolist()]
    assert model.cluster_persistence_.tolist() == pytest.approx(expected, rel=1e-9)
    assert ((model.cluster_persistence_ >= 0) & (model.cluster_persistence_ <= 1)).all()


@pytest.mark.parametrize("seed", [0, full(1), full(2)])
@pytest.mark.parametrize("step", [full(0.0), 0.25, full(1.0)], ids=lambda step: f"steps of {step}")
def test_clusters_by_all_combinations_of_options_are_hdbscans(step, seed):
    """From the same tree: the labels and the probabilities of points without and with much structure.

    On a grid most distances tie, many rows are equal, and an epsilon is a height of the tree.
    """
    rng = np.random.default_rng(seed)
    names = ("cluster_selection_method", "cluster_selection_epsilon", "cluster_selection_epsilon_max")
    names += ("allow_single_cluster", "max_cluster_size")
    found = []
    for min_cluster_size, n in ((2, 30), (5, 90), (12, 26), (3, 120)):
        X = rng.normal(size=(n, 2)) * rng.choice([0.2, 1.0], (n, 1)) + rng.integers(0, 2, (n, 1)) * 3
        X = np.round(X / step) * step if step else X
        tree = SingleLinkage(min_samples=1 if step == 0 else 3, device="cpu").fit(X)
        height = rng.choice(tree.distances_[tree.distances_ > 0], 2)
        factors = ("eom", "leaf"), (0.0, 0.3, min(height)), (np.inf, 1.0, max(height)), (False, True), (0, 20, 40)
        for values in itertools.product(*factors):
            options = dict(zip(names, values, strict=True), min_cluster_size=min_cluster_size)
            if options["cluster_selection_epsilon"] > options["cluster_selection_epsilon_max"]:
                continue
            ours = HDBSCAN(min_samples=tree.min_samples, device="cpu", **options).fit(X)
            theirs = tree.to_hdbscan(**options)
            numbers = set(theirs.labels_) - {-1}
            if len(numbers) > max(numbers, default=-1):  # else there is a cluster without points: see `_above`
                assert ours.labels_.tolist() == by_appearance(theirs.labels_).tolist(), options
                assert ours.probabilities_.tolist() == theirs.probabilities_.tolist(), options
                found.append((n, *ours.labels_))
    assert len(set(found)) >= 7


@pytest.mark.parametrize(
    ("epsilon", "last"), [(1.0, [0, 1, 2, -1, 3]), (1.5, [0, 0, 1, -1, 2]), (2.0, [0, 0, 1, 0, 2])]
)
def test_an_epsilon_that_is_a_height(epsilon, last):
    """Leaves split at 4, at 2 and at 1, and a row falls out at 3. At exactly epsilon a leaf stays, and what is around
    one is passed over, so that the row is in a cluster. It is so in the package hdbscan.
    """
    X = np.cumsum([0, 0.5, 0.5, 1, 0.5, 0.5, 2, 0.5, 0.5, 3, 4, 0.5, 0.5])[:, None]
    options = {"cluster_selection_epsilon": epsilon, "cluster_selection_method": "leaf"}
    labels = HDBSCAN(3, 1, device="cpu", **options).fit_predict(X)
    assert labels[[0, 3, 6, 9, 10]].tolist() == last
    theirs = SingleLinkage(device="cpu").fit(X).to_hdbscan(3, **options)
    np.testing.assert_array_equal(labels, by_appearance(theirs.labels_))


def test_min_samples_defaults_to_min_cluster_size(device):
    X = blobs(3)
    default, named = HDBSCAN(7, device=device).fit(X), HDBSCAN(7, 7, device=device).fit(X)
    np.testing.assert_array_equal(default.to_scipy(), named.to_scipy())
    assert default.report_["min_samples"] == 7
    assert HDBSCAN(50, device=device).fit(X[:9]).report_["min_samples"] == 8


def test_few_rows(device):
    assert HDBSCAN(device=device).fit_predict([[1.0]]).tolist() == [-1]
    assert HDBSCAN(device=device).fit_predict([[1.0], [2.0]]).tolist() == [-1, -1]
    assert HDBSCAN(2, device=device, allow_single_cluster=True).fit_predict([[1.0], [2.0]]).tolist() == [0, 0]
    for more_than_all in (10**20, 2**63, 2**31):
        assert HDBSCAN(more_than_all, device=device).fit_predict([[1.0], [2.0], [2.5]]).tolist() == [-1, -1, -1]


def test_repeated_rows_are_certain(device):
    X = np.repeat([[0.0, 0.0], [9.0, 0.0], [30.0, 1.0]], [20, 20, 1], axis=0)
    model = HDBSCAN(5, device=device).fit(X)
    assert on_host(model.labels_).tolist() == [0] * 20 + [1] * 20 + [-1]
    assert on_host(model.probabilities_).tolist() == [1.0] * 40 + [0.0]
    assert on_host(model.outlier_scores_).tolist() == [0.0] * 40 + [1.0]
    assert on_host(model.cluster_persistence_).tolist() == [1.0, 1.0]


def test_distances_whose_inverse_overflows_are_as_zero(device):
    """Two groups 20 apart, each of two parts that are nearer to each other than 1 / the largest float64."""
    steps = np.r_[np.arange(10), 30 + np.arange(10)] * 1e-310
    X = np.column_stack([np.tile(steps, 2), np.repeat([0.0, 20.0], 20)])
    for method in ("eom", "leaf"):
        model = HDBSCAN(5, 1, metric="cityblock", cluster_selection_method=method, device=device).fit(X)
        assert on_host(model.labels_).tolist() == [0] * 20 + [1] * 20
        assert model.condensed_tree_.to_pandas()["lambda_val"].value_counts().to_dict() == {np.inf: 40, 1 / 20.0: 2}
        assert on_host(model.cluster_persistence_).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("scale", [1e-300, 1e-306, 1e-308, 1e-310])
def test_stabilities_that_overflow_are_still_numbers(scale):
    X = blobs(0)[:200] * scale
    model = HDBSCAN(5, 1, metric="cityblock", allow_single_cluster=True, device="cpu").fit(X)
    assert model.n_clusters_ >= 1
    for values in (model.probabilities_, model.outlier_scores_, model.cluster_persistence_):
        assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.hypothesis
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 2)), elements=st.integers(-4, 4)),
    st.integers(2, 8),
    st.integers(1, 6),
    st.sampled_from(OPTIONS),
)
def test_repeated_rows_stay_together(X, min_cluster_size, min_samples, options):
    options = {**options, "min_cluster_size": min_cluster_size}
    model = HDBSCAN(min_samples=min(min_samples, max(1, len(X) - 1)), device="cpu", **options)
    if len(X) == 1:
        model.min_samples = None
    model.fit(X)
    for values in (model.probabilities_, model.outlier_scores_, model.cluster_persistence_):
        assert ((values >= 0) & (values <= 1)).all()
    if model.min_samples == 1:  # a core separates rows at distance zero
        groups = pd.DataFrame({"row": [tuple(row) for row in X], "label": model.labels_}).groupby("row")
        large = groups["label"].transform("size") >= min_cluster_size
        assert (groups["label"].transform("nunique")[large] == 1).all()
    assert np.array_equal(by_appearance(model.labels_), model.labels_)


def test_persistence_and_scores_without_splits():
    """A chain of equal steps is one cluster whose points leave together."""
    tree = condense.condense(condense.Merges(*map(np.array, ([0, 2, 3], [1, 4, 5], [1.0] * 3, [2, 3, 4]))), 4, 2)
    assert tree.parent.tolist() == [-1]
    assert tree.departure.tolist() == [1.0] * 4
    summary = condense.summarize(tree)
    assert condense.outlier_scores(tree, summary).tolist() == [0.0] * 4
    flat = condense.select(tree, condense.Rule(allow_single=True), summary)
    assert (flat.labels.tolist(), flat.persistence.tolist()) == ([0] * 4, [1.0])


def test_kinds_and_names(engine):
    X = blobs(0)
    index = pd.Index([f"row {i}" for i in range(len(X))], name="name")
    frame = pd.DataFrame(X, columns=["x", "y"], index=index)
    model = HDBSCAN(10, device=engine.name).fit(frame)
    names = {"labels_": "label", "probabilities_": "probability", "outlier_scores_": "outlier_score"}
    for attribute, name in names.items():
        series = getattr(model, attribute)
        assert series.name == name
        assert series.index.equals(index)
    assert isinstance(model.condensed_tree_.frame, type(model.linkage_))
    assert model.feature_names_in_.tolist() == ["x", "y"]
    arrays = HDBSCAN(10, device=engine.name).fit(engine.asarray(X))
    assert type(arrays.labels_) is type(arrays.probabilities_) is type(engine.asarray(X))
    np.testing.assert_array_equal(on_host(arrays.labels_), model.labels_)
    page = model._repr_html_()
    assert "noise" in page
    assert "distance ≤" not in page  # that is for a cut at one height


def test_plots(device, pyplot):
    X = blobs(0)
    model = HDBSCAN(10, device=device).fit(X)
    noise = int((on_host(model.labels_) < 0).sum())
    ax = model.plot_clusters(X)
    assert ax.get_legend().get_texts()[-1].get_text() == f"noise ({noise} rows)"
    pyplot.figure()
    assert model.plot_heights().get_legend() is None
    condensed = model.condensed_tree_.to_numpy()
    assert hdbscan.plots.CondensedTree(condensed, on_host(model.labels_)).plot() is not None


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"min_cluster_size": 1}, ValueError, "min_cluster_size must be at least 2, got 1"),
        ({"min_cluster_size": 2.5}, TypeError, r"min_cluster_size must be an integer, got 2\.5"),
        ({"min_samples": 0}, ValueError, "min_samples must be at least 1, got 0"),
        ({"min_samples": 300}, ValueError, "min_samples must be at most n - 1 = 9, got 300"),
        ({"cluster_selection_method": "best"}, ValueError, r"must be one of \('eom', 'leaf'\), got 'best'"),
        ({"cluster_selection_epsilon": -1}, ValueError, "cluster_selection_epsilon must be finite and at least 0"),
        ({"cluster_selection_epsilon": "1"}, TypeError, "cluster_selection_epsilon must be a number, got '1'"),
        ({"max_cluster_size": -3}, ValueError, "max_cluster_size must be at least 0, got -3"),
        ({"metric": "inner_product"}, ValueError, "needs distances that are not negative, and inner_product gives -"),
    ],
)
def test_refused(parameters, error, message, device):
    with pytest.raises(error, match=message):
        HDBSCAN(**parameters, device=device).fit(blobs(0)[:10])


@pytest.mark.parametrize("min_size", [2, 5, 30, 1000])
@pytest.mark.parametrize("points", [blobs(0), grid(), np.repeat(blobs(1), 3, axis=0), np.arange(9.0)[:, None] ** 2])
@pytest.mark.gpu
def test_a_gpu_condenses_as_the_host_does(points, min_size):
    """Bit for bit; chains, ties and equal rows among them."""
    for min_samples in (1, 4):
        linkage = SingleLinkage(min_samples=min_samples, device="cpu").fit(points).linkage_
        merges = condense.Merges(*(linkage[name].to_numpy() for name in ("left", "right", "height", "size")))
        expected = condense.condense(merges, len(points), min_size)
        found = dendrogram_kernels(cuda()).condense(*map(cuda().asarray, merges), min_size)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(on_host(one), other)
        columns = condense.columns_of(condense.Condensed(*found), device=cuda())
        for name, column in condense.columns_of(expected).items():
            assert columns[name].dtype == column.dtype
            np.testing.assert_array_equal(on_host(columns[name]), column)


@pytest.mark.parametrize("min_size", [2, 7, 1000])
def test_heights_at_which_clusters_have_a_size(min_size, engine):
    points = blobs(0)
    model = SingleLinkage(1, device="cpu").fit(points)
    columns = [model.linkage_[name].to_numpy() for name in ("left", "right", "height", "size")]
    found = on_host(dendrogram_kernels(engine).heights_of_size(*map(engine.asarray, columns), min_size))
    for height in (0.1, 0.5, 1.0, 3.0):
        labels = model.cut(distance_threshold=height, closed="right")
        np.testing.assert_array_equal(found <= height, np.bincount(labels)[labels] >= min(min_size, len(points)))


@pytest.mark.parametrize("sizes", [[1], [0, 1, 0], [255, 256, 257, 0, 1000], [3] * 400], ids=str)
def test_sums_of_clusters(sizes):
    """Beside NumPy's: clusters without points, of whole and of broken parts, and infinite λ."""
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    birth = rng.random(len(sizes))
    departure = birth[cluster] + rng.exponential(size=cluster.size) ** 9
    departure[::100] = np.inf
    total, largest, first = dendrogram_kernels(CPU).sum_up_clusters(cluster, departure, birth, condense.NOTHING)
    for c in range(len(sizes)):
        rows = np.flatnonzero(cluster == c)
        parts = (departure[part] - birth[c] for part in np.split(rows, np.arange(256, rows.size, 256)))
        assert total[c] == sum(float(np.add.accumulate(part)[-1]) for part in parts if part.size)
        assert (largest[c], first[c]) == (departure[rows].max(initial=0.0), min(rows, default=cluster.size))


@pytest.mark.parametrize(
    ("seed", "d", "m"), combinations((0, 1, 2, 3), (2, 10), (1, 3, 5, 10), quick=[(0, 2, 1), (1, 10, 5), (2, 2, 10)])
)
def test_hdbscans_heights_and_clusters(seed, d, m, device):
    """Labels differ at most where ties decide: at points whose core is a height of several merges."""
    X = blobs(seed, d)
    theirs = generic_hdbscan(X, m, min_cluster_size=10)
    model = fit(X, min_samples=m, device=device)
    ours = model.to_hdbscan(min_cluster_size=10)
    merges = model.to_scipy()[:, 2]
    np.testing.assert_array_equal(merges, theirs.single_linkage_tree_.to_numpy()[:, 2])
    np.testing.assert_array_equal(ours.single_linkage_tree_.to_numpy(), model.to_scipy())
    height, times = np.unique(merges, return_counts=True)
    tied = np.isin(core_distances(squareform(pdist(X)), m), height[times > 1]) if m > 1 else np.zeros(len(X), bool)
    assert tied.mean() < 0.4
    mine, other = (by_appearance(np.where(tied, -1, one.labels_)) for one in (ours, theirs))
    np.testing.assert_array_equal(mine, other)
    assert mine.max() >= 1
    if np.array_equal(
        by_appearance(ours.labels_), by_appearance(theirs.labels_)
    ):  # a cluster's are parts of its largest
        np.testing.assert_array_equal(ours.probabilities_[~tied], theirs.probabilities_[~tied])
    else:
        assert m > 1  # otherwise nothing ties
    assert len(ours.cluster_persistence_) == ours.labels_.max() + 1 == theirs.labels_.max() + 1
    assert ours.outlier_scores_.shape == (len(X),)
    assert set(ours.condensed_tree_.to_pandas()["child"]) >= set(range(len(X)))


@pytest.mark.parametrize("rows", [600, full(6000)])
def test_cities_beside_scikit_learn(rows, device):
    """On the sphere, by the matrix of angles."""
    cities = load_cities()
    X = np.radians(cities[["latitude", "longitude"]].to_numpy())[:: len(cities) // rows][:rows]
    theirs = sklearn.cluster.HDBSCAN(min_cluster_size=15, min_samples=16, metric="precomputed", copy=True)
    theirs.fit(haversine_distances(X))
    ours, given = (HDBSCAN(15, metric=metric, device=device) for metric in ("haversine", "precomputed"))
    np.testing.assert_array_equal(on_host(ours.fit_predict(X)), on_host(given.fit_predict(haversine_distances(X))))
    np.testing.assert_allclose(on_host(ours.distances_), theirs._single_linkage_tree_["value"], rtol=1e-13, atol=4e-15)
    # Edges tie. Their sort orders equal ones by the processor's instructions, so the clusters are those of their tree.
    tree = theirs._single_linkage_tree_
    merges = [tree[name] for name in ("left_node", "right_node", "value", "cluster_size")]
    tree = condense.condense(condense.Merges(*map(np.ascontiguousarray, merges)), len(X), 15)
    labels = condense.select(tree, condense.Rule(), condense.summarize(tree)).labels
    np.testing.assert_array_equal(labels, by_appearance(theirs.labels_))


def test_what_is_spec_of_the_tree():
    X = blobs(0)
    model = fit(X, min_samples=7, metric="sqeuclidean", device="cpu")
    made = model.to_hdbscan()
    assert (made.min_samples, made.metric, made.min_cluster_size) == (7, "sqeuclidean", 5)
    assert fit(X, device="cpu").to_hdbscan().min_samples == 1
    assert HDBSCAN(8, device="cpu").fit(X).to_hdbscan(8).min_samples == 8
    assert HDBSCAN(8, device="cpu").fit(X[:6]).set_params(min_samples=3).to_hdbscan().min_samples == 5
    src, dst = np.triu_indices(len(X), 1)
    graph = fit_graph(pd.DataFrame({"src": src, "dst": dst, "weight": pdist(X)}), device="cpu")
    from_graph = graph.to_hdbscan()
    assert from_graph.metric == "precomputed"
    np.testing.assert_array_equal(from_graph.labels_, fit(X, device="cpu").to_hdbscan().labels_)


def test_what_hdbscan_cannot_have(monkeypatch):
    model = fit(blobs(0), min_samples=3, device="cpu")
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2, got 1"):
        model.to_hdbscan(min_cluster_size=1)
    with pytest.raises(TypeError, match=r"min_cluster_size must be an integer, got 2\.5"):
        model.to_hdbscan(min_cluster_size=2.5)
    with pytest.raises(TypeError, match=r"takes hdbscan's cluster_selection_method, .*, got 'gen_min_span_tree'"):
        model.to_hdbscan(gen_min_span_tree=True)
    with pytest.raises(ValueError, match="at least two rows"):
        fit(np.zeros((1, 2)), 1, device="cpu").to_hdbscan()
    with pytest.raises(ValueError, match="2 trees"):
        fit_graph(pd.DataFrame({"src": [0], "dst": [1], "weight": [1.0]}), n_nodes=3, device="cpu").to_hdbscan()
    monkeypatch.setitem(sys.modules, "hdbscan", None)
    with pytest.raises(ImportError, match=r"pip install 'rapids_slink\[hdbscan\]'"):
        model.to_hdbscan()


@pytest.mark.full
@pytest.mark.parametrize("module", ["hdbscan.tests.test_hdbscan", "sklearn.cluster.tests.test_hdbscan"])
def test_their_tests(module, device):
    assert run_tests_of(module, device, "tests_of_hdbscan") > 100

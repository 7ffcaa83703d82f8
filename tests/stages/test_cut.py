"""Cuts against SciPy's and scikit-learn's partitions, and against the same by groupby and merge; every refusal."""

import numpy as np
import pandas as pd
import pytest
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from spanning_trees import DEEP, SHAPES, TREES, by_appearance, edges, linkage_on, matrix, points_tree, shaped_tree

from rapids_slink import SingleLinkage, cut, fit, fit_graph, load
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.points.output import frame_of, on_device
from rapids_slink.runtime.device import CPU, to_host

LARGE_SHAPES = [shape if shape in ("chain", "random") else full(shape) for shape in SHAPES]


def labels_of(frame, **how):
    return to_host(cut(frame, **how).values)


def same_partition(a, b):
    pairs = len(set(zip(a, b, strict=True)))
    return pairs == len(set(a)) == len(set(b))


def in_order_of_appearance(labels):
    return by_appearance(labels).tolist() == list(labels)


def cut_plainly(frame, n, k, least=1):
    """Labels by the sets that the kept merges make, least leaves a cluster."""
    sets = {i: [i] for i in range(n)}
    children = zip(to_host(frame["left"].values)[: n - k], to_host(frame["right"].values)[: n - k], strict=True)
    for i, (left, right) in enumerate(children):
        sets[n + i] = sets.pop(left) + sets.pop(right)
    labels = np.full(n, -1)
    for label, leaves in enumerate(sorted((s for s in sets.values() if len(s) >= least), key=min)):
        labels[leaves] = label
    return labels.tolist()


# -------------------------------------------------------------------------------------------------- the kernels


@given(n=st.integers(1, 700), **TREES)
def test_clusters_of_the_first_merges(engine, n, shape, seed):
    """Of leaves and of merges."""
    rng = np.random.default_rng(seed)
    merges = linkage_on(engine, shaped_tree(rng, n, shape)).head(int(rng.integers(0, n)))
    children = [engine.asarray(merges[side].values, "int32") for side in ("left", "right")]
    found = to_host(dendrogram_kernels(engine).label_clusters(*children, n))
    assert found.dtype == np.int32
    assert found[:n].tolist() == cut_plainly(merges, n, n - len(merges))
    assert all((found[to_host(side)] == found[n:]).all() for side in children)


# ------------------------------------------------------------------------------------------------------ one cut


@pytest.mark.parametrize("n", [1, 2, 3])
def test_smallest_trees(engine, n):
    found = linkage_on(engine, edges(range(n - 1), range(1, n), range(n - 1)))
    assert matrix(found).tolist() == [[0, 1, 0, 2], [2, 3, 1, 3]][: n - 1]
    expected = [[[0]], [[0, 0], [0, 1]], [[0, 0, 0], [0, 0, 1], [0, 1, 2]]][n - 1]
    assert [labels_of(found, n_clusters=k).tolist() for k in range(1, n + 1)] == expected


def test_forest(engine):
    found = linkage_on(engine, edges([0, 4], [3, 1], [2, 1]), n_nodes=6)
    assert matrix(found).tolist() == [[1, 4, 1, 2], [0, 3, 2, 2]]
    assert labels_of(found, n_leaves=6, n_clusters=4).tolist() == [0, 1, 2, 0, 1, 3]
    assert labels_of(found, n_leaves=6, n_clusters=5).tolist() == [0, 1, 2, 3, 1, 4]
    assert labels_of(found, n_leaves=6, distance_threshold=np.inf).tolist() == [0, 1, 2, 0, 1, 3]
    with pytest.raises(ValueError, match=r"n_clusters must be from 4 to 6, .*, got 3 \(the graph has 4 components"):
        labels_of(found, n_leaves=6, n_clusters=3)
    with pytest.raises(ValueError, match="cluster ids from 0 to 3; for the linkage of a forest, pass n_leaves"):
        labels_of(found, n_clusters=2)
    without = linkage_on(engine, edges([], [], []), n_nodes=3)
    assert labels_of(without, n_leaves=3, n_clusters=3).tolist() == [0, 1, 2]


def test_thresholds_mean_what_they_mean_in_scikit_learn(engine):
    X = np.array([[0.0], [1.0], [2.0], [4.0], [6.0], [9.0]])
    frame = linkage_on(engine, points_tree(X))
    for t in (0.5, 1.0, 1.5, 2.0, 3.0, 3.5):
        model = AgglomerativeClustering(n_clusters=None, distance_threshold=t, linkage="single").fit(X)
        assert same_partition(labels_of(frame, distance_threshold=t).tolist(), model.labels_)


def test_extreme_thresholds(engine):
    frame = linkage_on(engine, edges([0, 1], [1, 2], [1, 2]))
    assert labels_of(frame, distance_threshold=-np.inf).tolist() == [0, 1, 2]
    assert labels_of(frame, distance_threshold=np.float32(2)).tolist() == [0, 0, 1]
    assert labels_of(frame, distance_threshold=3).tolist() == [0, 0, 0]
    assert labels_of(frame, n_clusters=np.int64(2)).tolist() == [0, 0, 1]


@given(n=st.integers(1, 40), **TREES)
def test_thresholds_that_are_closed_on_the_right(engine, n, shape, seed):
    """What is at the threshold merges as well: fcluster's meaning."""
    tree = shaped_tree(np.random.default_rng(seed), n, shape)
    frame = linkage_on(engine, tree)
    thresholds = [-1.0, *np.unique(to_host(frame["height"].values)).tolist()]
    cuts = cut(frame, distance_threshold=thresholds, closed="right")
    for t in thresholds:
        kept = int((to_host(frame["height"].values) <= t).sum())
        assert to_host(cuts[t].values).tolist() == cut_plainly(frame, n, n - kept)


@given(n=st.integers(1, 40), least=st.integers(1, 3), method=st.sampled_from(["kernel", "merge"]), **TREES)
def test_clusters_named_by_their_first_row(engine, n, shape, seed, least, method):
    frame = linkage_on(engine, shaped_tree(np.random.default_rng(seed), n, shape))
    counts, how = sorted({1, n, (n + 1) // 2}), {"min_cluster_size": least, "method": method}
    numbered, named = (cut(frame, n_clusters=counts, names=names, **how) for names in ("number", "first_row"))
    for k in counts:
        labels = to_host(numbered[k].values).tolist()
        assert named[k].dtype == np.int32
        expected = [label if label < 0 else labels.index(label) for label in labels]
        assert to_host(named[k].values).tolist() == expected


# ------------------------------------------------------------------------------------- by groupby and merge alone


def assert_inherited(frame, n, **parameters):
    """The labels that the kernels give."""
    expected, merged = (cut(frame, n_leaves=n, method=method, **parameters) for method in ("kernel", "merge"))
    assert type(merged) is type(expected)
    np.testing.assert_array_equal(to_host(merged.values), to_host(expected.values))


@given(n=st.integers(1, 40), data=st.data(), **TREES)
def test_labels_are_inherited_by_groupby_and_merge(engine, n, shape, seed, data):
    components = data.draw(st.integers(1, n))
    forest = shaped_tree(np.random.default_rng(seed), n, shape).iloc[: n - components]
    frame = linkage_on(engine, forest, n_nodes=n)
    size = data.draw(st.integers(1, 4))
    assert_inherited(frame, n, n_clusters=data.draw(st.integers(components, n)), min_cluster_size=size)
    heights = sorted({*to_host(frame["height"].values).tolist(), -np.inf, np.inf})
    thresholds = data.draw(st.lists(st.sampled_from(heights), min_size=1, max_size=3, unique=True))
    assert_inherited(frame, n, distance_threshold=thresholds, min_cluster_size=size)


@pytest.mark.parametrize("shape", ["chain", full("random"), full("star")])
@pytest.mark.parametrize("components", [1, 50])
def test_labels_of_deep_trees_are_inherited(engine, shape, components):
    n = 20_000
    forest = shaped_tree(np.random.default_rng(0), n, shape).iloc[: n - components]
    assert_inherited(linkage_on(engine, forest, n_nodes=n), n, n_clusters=100)


@pytest.mark.parametrize(
    ("name", "valid", "value"),
    [
        ("method", "'kernel', 'merge'", ""),
        ("closed", "'left', 'right'", "both"),
        ("names", "'number', 'first_row'", None),
    ],
)
def test_choices_are_checked(name, valid, value):
    with pytest.raises(ValueError, match=f"{name} must be one of {valid}, got {value!r}"):
        cut(linkage_on(CPU, edges([0], [1], [1.0])), n_clusters=1, **{name: value})


# ----------------------------------------------------------------------------------------------------- many cuts


@given(n=st.integers(1, 40), data=st.data(), **TREES)
def test_many_cuts_are_the_single_cuts(engine, n, shape, seed, data):
    """In any order, of forests too, with and without small clusters."""
    tree = shaped_tree(np.random.default_rng(seed), n, shape)
    components = data.draw(st.integers(1, n))
    frame = linkage_on(engine, tree.iloc[: n - components], n_nodes=n)
    least = data.draw(st.sampled_from([1, 2, 5]))
    counts = data.draw(st.lists(st.integers(components, n), min_size=1, max_size=5, unique=True))
    for size in (1, data.draw(st.integers(1, n + 1))):
        single = labels_of(frame, n_clusters=counts[0], min_cluster_size=size, n_leaves=n).tolist()
        assert single == cut_plainly(frame, n, counts[0], size)
    found = cut(frame, n_clusters=counts, min_cluster_size=least, n_leaves=n)
    assert isinstance(found, engine.frames.DataFrame)
    assert list(found.columns) == counts
    for k in counts:
        assert found[k].dtype == np.int32
        assert to_host(found[k].values).tolist() == cut_plainly(frame, n, k, least)
    heights = sorted({*to_host(frame["height"].values).tolist(), -np.inf, 0.5, np.inf})
    thresholds = data.draw(st.lists(st.sampled_from(heights), min_size=1, max_size=5, unique=True))
    found = cut(frame, distance_threshold=thresholds, min_cluster_size=least, n_leaves=n)
    assert list(found.columns) == thresholds
    for t in thresholds:
        single = labels_of(frame, distance_threshold=t, min_cluster_size=least, n_leaves=n)
        assert to_host(found[t].values).tolist() == single.tolist()


@pytest.mark.parametrize("shape", LARGE_SHAPES)
def test_many_cuts_of_large_trees(engine, shape):
    tree = shaped_tree(np.random.default_rng(0), DEEP, shape)
    frame = linkage_on(engine, tree)
    counts = [3, DEEP, 1000, 1, DEEP - 1, DEEP // 2]
    found = cut(frame, n_clusters=counts)
    for k in counts:
        labels = to_host(found[k].values)
        assert labels.max() + 1 == k
        np.testing.assert_array_equal(labels, labels_of(frame, n_clusters=k))
    pieces = frame.iloc[: DEEP - 1000]  # the same cut of the forest that its kept merges are
    np.testing.assert_array_equal(labels_of(pieces, n_leaves=DEEP, n_clusters=1000), to_host(found[1000].values))


@pytest.mark.parametrize("counts", [[3, 1], (3, 1), range(3, 0, -2), np.array([3, 1]), pd.Series([3, 1])])
def test_sequences_that_name_many_cuts(engine, counts):
    frame = linkage_on(engine, edges([0, 1], [1, 2], [1, 2]))
    found = cut(frame, n_clusters=counts)
    assert list(found.columns) == [3, 1]
    assert all(isinstance(name, int) for name in found.columns)
    assert to_host(found.values).tolist() == [[0, 0], [1, 0], [2, 0]]
    assert cut(frame, n_clusters=[2]).shape == (3, 1)


def test_a_model_cuts_many_times(engine):
    X = np.array([[0.0], [1.0], [3.0], [9.0]])
    array = SingleLinkage(2, device=engine.name).fit(engine.asarray(X)).cut([4, 2, 1])
    assert isinstance(array, engine.xp.ndarray)
    assert array.dtype == np.int32
    assert array.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 1, 0]]
    table = on_device(pd.DataFrame({"x": X[:, 0]}, index=[7, 7, 5, 6]), engine)
    model = SingleLinkage(2, device=engine.name).fit(table)
    frame = model.cut(distance_threshold=[1.5, 6.0], min_cluster_size=2)
    assert isinstance(frame, engine.frames.DataFrame)
    assert to_host(frame.index.values).tolist() == [7, 7, 5, 6]
    assert list(frame.columns) == [1.5, 6.0]
    assert to_host(frame.values).tolist() == [[0, 0], [0, 0], [-1, 0], [-1, -1]]
    assert to_host(model.cut(2, min_cluster_size=2).values).tolist() == [0, 0, 0, -1]
    graph = fit_graph(on_device(edges([0, 2], [1, 3], [1, 2]), engine), device=engine.name)
    found = graph.cut([2, 4])
    assert isinstance(found, engine.frames.DataFrame)
    assert to_host(found.values).tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({}, ValueError, "exactly one of n_clusters and distance_threshold, got neither"),
        ({"n_clusters": 2, "distance_threshold": 1.0}, ValueError, "exactly one of .* got both"),
        ({"n_clusters": 0}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 0"),
        ({"n_clusters": 4}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 4"),
        ({"n_clusters": 2.0}, TypeError, r"n_clusters must be an integer, got 2\.0"),
        ({"n_clusters": True}, TypeError, "n_clusters must be an integer, got True"),
        ({"distance_threshold": np.nan}, ValueError, "distance_threshold must not be NaN"),
        ({"distance_threshold": "1"}, TypeError, "distance_threshold must be a number, got '1'"),
        ({"n_clusters": []}, ValueError, "n_clusters must hold at least one value, got none"),
        ({"distance_threshold": []}, ValueError, "distance_threshold must hold at least one value, got none"),
        ({"n_clusters": [1, 3, 1]}, ValueError, "n_clusters must not hold a value twice, .* got 1 twice"),
        ({"distance_threshold": [2, 0.5, 2.0]}, ValueError, "distance_threshold must not hold .* got 2 twice"),
        ({"n_clusters": [1, 4]}, ValueError, "n_clusters must be from 1 to 3, the number of rows, got 4"),
        ({"n_clusters": [1, 2.0]}, TypeError, r"n_clusters must be an integer, got 2\.0"),
        ({"n_clusters": {1, 2}}, TypeError, r"n_clusters must be an integer, got {1, 2}"),
        ({"n_clusters": [1, 2], "distance_threshold": 1.0}, ValueError, "exactly one of .* got both"),
        ({"distance_threshold": [1.0, np.nan]}, ValueError, "distance_threshold must not be NaN"),
        ({"distance_threshold": ["1"]}, TypeError, "distance_threshold must be a number, got '1'"),
        ({"n_clusters": 1, "min_cluster_size": 0}, ValueError, "min_cluster_size must be at least 1, got 0"),
        ({"n_clusters": 1, "min_cluster_size": 1.5}, TypeError, r"min_cluster_size must be an integer, got 1\.5"),
        ({"n_clusters": 1, "n_leaves": 2}, ValueError, "linkage has 2 rows, more than the n_leaves - 1 = 1 merges"),
    ],
)
def test_cut_refuses(engine, how, error, message):
    frame = linkage_on(engine, edges([0, 1], [1, 2], [1, 2]))
    with pytest.raises(error, match=message):
        cut(frame, **how)


def test_cut_refuses_other_frames(engine):
    frame = linkage_on(engine, edges([0, 1], [1, 2], [1, 2]))
    with pytest.raises(ValueError, match="columns left, right, height, size; height not found"):
        cut(frame.drop(columns="height"), n_clusters=2)
    with pytest.raises(TypeError, match=r"linkage must be a DataFrame with columns .*, got list"):
        cut([[0, 1, 1.0, 2]], n_clusters=2)
    with pytest.raises(TypeError, match="column 'left' of the linkage must hold integers, got dtype float64"):
        cut(frame.assign(left=frame["left"].astype("float64")), n_clusters=2)
    with pytest.raises(ValueError, match="column 'height' of the linkage must not fall"):
        cut(frame.assign(height=-frame["height"]), n_clusters=2)
    for heights in ([1, np.nan], [np.nan, 1]):
        with pytest.raises(ValueError, match="column 'height' of the linkage holds nulls or NaN"):
            cut(frame.assign(height=engine.xp.asarray(heights)), n_clusters=2)
    with pytest.raises(TypeError, match="column 'height' of the linkage must hold numbers, got"):
        cut(frame.assign(height=["1", "2"]), n_clusters=2)
    gap = on_device(pd.DataFrame({"left": [0, None], "right": [1, 3], "height": [1.0, 2], "size": [2, 3]}), engine)
    with pytest.raises(ValueError, match="column 'left' of the linkage holds nulls"):
        cut(gap.astype({"left": "Int64" if engine is CPU else "int64"}), n_clusters=2)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([0, 1, 2, 3], [7, 5, 6, 4], "row 0 of the linkage merges a cluster that no earlier row has made"),
        ([0, 0], [1, 1], "merges some cluster twice"),
    ],
)
def test_what_is_no_dendrogram_is_refused(left, right, message, engine):
    xp, m = engine.xp, len(left)
    columns = {"left": left, "right": right, "height": np.arange(m) + 1.0, "size": [2] * m}
    frame = frame_of(engine, {name: xp.asarray(column) for name, column in columns.items()})
    with pytest.raises(ValueError, match=message):
        cut(frame, n_clusters=1)


# ------------------------------------------------------------------------------------------------------ outliers


@pytest.fixture(scope="module")
def two_groups():
    """Two groups of 300 rows, and two rows that are far from both and from each other."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(300, 2)), rng.normal((12, 0), size=(300, 2)), [[100.0, 100.0], [-90.0, 30.0]]]
    return pd.DataFrame(np.concatenate(rows), columns=["x", "y"])


def test_a_script_whose_outliers_are_the_clusters(two_groups, device):
    """It is warned, and each of the ways that the warning names has the two groups."""
    said = r"of 2 clusters the largest has 99\.8% .* 1 has one row\. .* n_clusters='widest_gap' .* min_cluster_size="
    with pytest.warns(UserWarning, match=said) as warned:
        model = fit(two_groups, n_clusters=2, device=device)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match=said):
        model.cut(2)
    expected = np.repeat([0, 1, -1], [300, 300, 2])
    for made in (
        fit(two_groups, "widest_gap", device=device),
        fit(two_groups, n_clusters=4, min_cluster_size=10, device=device),
        fit(two_groups, distance_threshold=4.0, min_cluster_size=10, device=device),
        fit(two_groups, max_distance=4.0, min_cluster_size=10, device=device),  # without a tree
        fit(two_groups, 4, max_distance=20.0, min_cluster_size=10, device=device),
    ):
        assert np.array_equal(to_host(made.labels_.values), expected)
        assert made.n_clusters_ == 2
        assert "4 clusters (" in made._repr_html_()  # of the cut
    found = [model.cut("widest_gap"), cut(model.linkage_, n_clusters="widest_gap")]
    assert all(np.array_equal(to_host(labels.values), expected) for labels in found)


def test_the_widest_gap_is_found_by_trying_all_cuts(engine):
    tree = shaped_tree(np.random.default_rng(3), 60, "random")
    frame = linkage_on(engine, tree)
    heights = to_host(frame["height"].values)[::-1].tolist()
    for size in (1, 2, 3):
        gaps = {}
        for k in range(2, 60):
            large = np.bincount(cut_plainly(frame, 60, k)) >= size
            if large.sum() >= 2:
                gaps[k] = heights[k - 2] - heights[k - 1]
        if size == 1:
            gaps[60] = heights[-1]
        k = max(gaps, key=gaps.get)
        expected = labels_of(frame, n_clusters=k, min_cluster_size=size)
        assert np.array_equal(labels_of(frame, n_clusters="widest_gap", min_cluster_size=size), expected)


def test_few_rows_and_thresholds_are_not_warned_of(recwarn, device):
    rows = np.append(np.linspace(0, 1, 98), 9.0)[:, None]
    fit(rows, 2, device=device)  # 99 rows
    rows = np.append(np.linspace(0, 1, 400), 9.0)[:, None]
    fit(rows, distance_threshold=1.0, device=device)
    fit(rows, 2, min_cluster_size=1, device=device)  # who asks for it knows
    assert not [one for one in recwarn if "the largest has" in str(one.message)]


def test_sizes_within_groups(two_groups, device):
    keys = np.append(np.repeat(["a", "b"], 300), ["a", "b"])
    for how in ({"n_clusters": 2}, {"distance_threshold": 4.0}, {}):
        model = fit(two_groups, groups=keys, min_cluster_size=10, device=device, **how)
        assert np.array_equal(to_host(model.labels_.values), np.repeat([0, 1, -1], [300, 300, 2]))
        assert to_host(model.groups_[["clusters", "first_label"]].values).tolist() == [[1, 0], [1, 1]]
        assert model.n_clusters_ == 2
    with pytest.raises(ValueError, match="'widest_gap' is of one tree, and these rows are in groups"):
        fit(two_groups, "widest_gap", groups=keys, device=device)


def test_sizes_in_graphs_predictions_and_files(two_groups, device, tmp_path):
    chain = pd.DataFrame({"src": [0, 1, 2, 4], "dst": [1, 2, 3, 5], "weight": [1.0, 1.0, 1.0, 1.0]})
    graph = fit_graph(chain, min_cluster_size=3, device=device)
    assert to_host(graph.labels_.values).tolist() == [0, 0, 0, 0, -1, -1]
    assert graph.n_clusters_ == 1
    model = fit(two_groups, 4, min_cluster_size=10, prediction_data=True, device=device)
    new = pd.DataFrame({"x": [0.0, 12.0, 100.0], "y": [0.0, 0.0, 100.0]})
    assert to_host(model.predict(new).values).tolist() == [0, 1, -1]
    model.save(tmp_path / "model.slink")
    assert load(tmp_path / "model.slink")._repr_html_() == model._repr_html_()


def test_no_cut_has_two_clusters_of_that_size(device):
    with pytest.raises(ValueError, match="no cut has two clusters of at least 5 rows: pass a lower min_cluster_size"):
        fit(np.arange(8.0)[:, None], "widest_gap", device=device)
    with pytest.raises(ValueError, match="'widest_gap' counts rows: leave sample_weight out"):
        fit(np.arange(20.0)[:, None] ** 2, device=device).cut("widest_gap", sample_weight=np.ones(20))

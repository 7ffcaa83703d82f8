"""Boxes that repeat and scales of groups of columns: the definition, images, and every call that takes them."""

import math
import threading
from contextlib import suppress
from itertools import product

import numpy as np
import pandas as pd
import pytest
from fake_gpu import CONSTANT_MEMORY, FakeDevice, fake_gpu
from hard_cases import combinations, full
from hypothesis import given
from hypothesis import strategies as st
from oracles import heights_of, least, mutual_reachability, without_self
from sklearn.base import clone
from spanning_trees import bits

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage, count_pairs, fit, iter_pairs, knn_graph, nearest_neighbors, pairs, plan
from rapids_slink.neighbors.exact import formulas
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.points.output import on_device
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import ConstantOption, c_struct, launch_blocks, parameters
from rapids_slink.runtime.device import CPU, cuda, to_host
from rapids_slink.settings import MAX_COLUMNS, metric_of

MIXED = [10.0, math.inf, 7.3]
SPACES = {
    "box": {"box": 10.0},
    "mixed": {"box": MIXED},
    "scales": {"scales": {(2, 0): 2.5, 1: 0.5}},
    "both": {"box": MIXED, "scales": {(2, 0): 2.5, 1: 0.5}},
}
METRICS = ["euclidean", "sqeuclidean", "cityblock", "chebyshev"]
#: Metrics in spaces; scales take no sqeuclidean.
CASES = [(m, name) for m in METRICS for name in SPACES if m != "sqeuclidean" or name in ("box", "mixed")]


def lengths_of(box, d):
    return [math.inf] * d if box is None else [box] * d if np.ndim(box) == 0 else list(box)


def wrapped(X, box):
    """The coordinates outside the box by `numpy.mod` of float64, in X's type."""
    Z = X.astype(np.float64)
    for f, length in enumerate(lengths_of(box, X.shape[1])):
        outside = (Z[:, f] < 0) | (Z[:, f] >= length)
        if length < math.inf and outside.any():
            rest = np.mod(Z[outside, f], length)
            rest[rest < np.finfo(X.dtype).tiny] = 0
            rest = rest.astype(X.dtype).astype(np.float64)
            Z[outside, f] = np.where(rest >= length, 0, rest)
    return Z


def distances_of(X, Y=None, metric="euclidean", box=None, scales=None):
    """All distances from their definition, float64."""
    x, y, lengths = wrapped(X, box), wrapped(X if Y is None else Y, box), lengths_of(box, X.shape[1])

    def of_columns(columns):
        total = np.zeros((len(x), len(y)))
        for f in columns:
            gap = abs(x[:, None, f] - y[None, :, f])
            gap = np.minimum(gap, lengths[f] - gap)
            if metric == "chebyshev":
                total = np.maximum(total, gap)
            else:
                total = total + (gap if metric == "cityblock" else gap * gap)
        return np.sqrt(total) if metric == "euclidean" else total

    if scales is None:
        return of_columns(range(X.shape[1]))
    groups = [(group if isinstance(group, tuple) else (group,), scale) for group, scale in scales.items()]
    return np.max([of_columns(columns) / scale for columns, scale in groups], axis=0)


def heights(model):
    return to_host(model.linkage_["height"].values)


def scattered(n, d=3, dtype="float64", seed=0):
    return np.random.default_rng(seed).uniform(-5, 15, (n, d)).astype(dtype)


# -------------------------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize(
    ("case", "dtype", "size"),
    combinations(
        CASES, ("float32", "float64"), ((60, None), (60, 2), (2100, None)),
        quick=[(case, "float32", (2100 if case[1] == "both" else 60, None)) for case in CASES],
    ),
)  # fmt: skip
def test_heights(case, dtype, size, device):
    """By all pairs, by lists, and by a tree of boxes."""
    (metric, space), (n, n_neighbors) = case, size
    X, how = scattered(n, dtype=dtype), SPACES[space]
    model = fit(X, 1, metric=metric, n_neighbors=n_neighbors, device=device, **how)
    matrix = distances_of(X, metric=metric, **how)
    np.testing.assert_array_equal(heights(model), heights_of(matrix))
    src, dst, weight = (to_host(model.mst_[name].values) for name in ("src", "dst", "weight"))
    np.testing.assert_array_equal(weight, matrix[src, dst])


@pytest.mark.parametrize(
    ("n", "space"), combinations((300, 2200), SPACES, quick=[*((300, space) for space in SPACES), (2200, "both")])
)
def test_ties(n, space, device):
    """Of integers, many of them equal, and many at opposite faces."""
    X, how = np.floor(scattered(n)), SPACES[space]
    np.testing.assert_array_equal(heights(fit(X, 1, device=device, **how)), heights_of(distances_of(X, **how)))
    graph = knn_graph(X, 7, device=device, **how)
    ids, weights = least(without_self(distances_of(X, metric="euclidean", **how)), 7)
    np.testing.assert_array_equal(to_host(graph["weight"].values), weights.ravel())
    if "scales" not in how:  # else distances are compared in place of squares
        ids, _ = least(without_self(distances_of(X, metric="sqeuclidean", **how)), 7)
    np.testing.assert_array_equal(to_host(graph["dst"].values), ids.ravel())


@pytest.mark.parametrize("d", [1, 2, 3])
def test_least_of_all_images(d, device):
    X, length = np.random.default_rng(d).uniform(0, 2, (80, d)), 2.0
    gaps = X[:, None] - X[None]
    steps = [np.array(step) for step in product((-length, 0, length), repeat=d)]
    matrix = np.min([np.sqrt(((gaps + step) ** 2).sum(axis=-1)) for step in steps], axis=0)
    np.testing.assert_allclose(heights(fit(X, 1, box=length, device=device)), heights_of(matrix), rtol=1e-12)


def test_faces_edges_and_corners(device):
    """Next to a corner of the unit cube from each of its eight sides: all within one step through the corner."""
    near, far = 2.0**-10, 1 - 2.0**-10
    X = np.array(list(product((near, far), repeat=3)))
    model = fit(np.concatenate([X, [[0.5, 0.5, 0.5]]]), 2, box=1.0, device=device)
    np.testing.assert_array_equal(heights(model)[:7], 2 * near)
    assert to_host(model.labels_).tolist() == [0] * 8 + [1]
    found = pairs(X, max_distance=2 * near, metric="chebyshev", box=1.0, device=device)
    assert len(found) == 28
    assert (to_host(found["weight"].values) == 2 * near).all()


@pytest.mark.parametrize("n", [1, 400])
def test_points_that_are_equal_across_a_face(n, device):
    """0 and the length are one coordinate, and so are all that differ by it; the least id comes first."""
    X = np.tile([[0.0, 1.0], [5.0, 1.0], [-5.0, 6.0], [10.0, -4.0], [-0.0, 1.0]], (n, 1))
    assert (heights(fit(X, 1, box=5.0, device=device)) == 0).all()
    found = nearest_neighbors(np.array([[15.0, 11.0]]), X, box=5.0, device=device)
    assert (int(found["dst"].iloc[0]), float(found["weight"].iloc[0])) == (0, 0.0)


def test_a_box_smaller_than_the_distances(device):
    X = scattered(300) * 100
    for box in (0.5, [0.5, 1e-3, math.inf]):
        matrix = distances_of(X, box=box)
        np.testing.assert_array_equal(heights(fit(X, 1, box=box, device=device)), heights_of(matrix))
        assert matrix.max() <= (math.sqrt(3) * 0.25 if box == 0.5 else math.inf)


@pytest.mark.parametrize("n", [2, 50, 2100, full(9000)])
def test_one_dimension(n, device):
    X = np.random.default_rng(0).uniform(0, 1, (n, 1))
    for values in (X, np.round(X, 2)):
        ring = np.sort(values[:, 0])
        gaps = np.sort(np.append(np.diff(ring), 1 - (ring[-1] - ring[0])))
        found = heights(fit(values, 1, box=1.0, device=device))
        np.testing.assert_allclose(found, gaps[:-1] if n > 2 else [min(gaps)], atol=1e-15)
        if n <= 2100:
            np.testing.assert_array_equal(found, heights_of(distances_of(values, box=1.0)))
    assert fit(X, 1, box=1.0, device=device).report_["way"] == "line"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [2, 12, full(70)])
def test_an_infinite_box_is_none(d, metric, device):
    X = scattered(600, d)
    found, expected = (fit(X, 1, metric=metric, device=device, **how) for how in ({"box": math.inf}, {}))
    assert bits(found) == bits(expected)


@pytest.mark.parametrize(
    ("d", "space"),
    combinations((7, 12, 70), ("box", "scales", "both"), quick=[(7, "both"), (12, "box"), (70, "scales")]),
)
def test_many_features(d, space, device):
    """By a tree, by all pairs, and by more features than are held at a time; the groups are of several sizes."""
    X, half = scattered(700, d), d // 2
    scales = {tuple(range(half)): 3.0, half: 2.0, tuple(range(d - 1, half, -1)): 1.5}
    how = {"box": {"box": 9.0}, "scales": {"scales": scales}, "both": {"box": 9.0, "scales": scales}}[space]
    matrix = distances_of(X, **how)
    np.testing.assert_array_equal(heights(fit(X, 1, n_neighbors=3, device=device, **how)), heights_of(matrix))
    graph = knn_graph(X, 5, device=device, **how)
    np.testing.assert_array_equal(to_host(graph["weight"].values), least(without_self(matrix), 5)[1].ravel())


def test_one_group_of_scale_one(device):
    X = scattered(500)
    model = fit(X, 1, scales={(0, 1, 2): 1.0}, device=device)
    np.testing.assert_array_equal(heights(model), heights(fit(X, 1, device=device)))


coordinates = st.one_of(st.integers(-8, 8).map(float), st.floats(-9, 9, width=32), st.sampled_from([-1e-30, 3.9999998]))
sizes = st.sampled_from([math.inf, 4.0, 3.3, 0.1])


@pytest.mark.hypothesis
@given(
    st.data(), st.integers(1, 4), st.sampled_from(["float32", "float64"]), st.sampled_from(METRICS[:1] + METRICS[2:])
)
def test_any_points(data, d, dtype, metric):
    rows = data.draw(st.lists(st.tuples(*[coordinates] * d), min_size=2, max_size=12))
    box = data.draw(st.one_of(st.none(), sizes, st.tuples(*[sizes] * d).map(list)))
    split, scale = data.draw(st.integers(1, d)), data.draw(st.sampled_from([1.0, 0.3, 1e-5]))
    scales = {tuple(range(split)): scale} | ({tuple(range(split, d)): 2.0} if split < d else {})
    X = np.array(rows, dtype)
    for how in ({"box": box}, {"box": box, "scales": scales}):
        matrix = distances_of(X, metric=metric, **how)
        for n_neighbors in (None, 1):
            found = heights(fit(X, 1, metric=metric, n_neighbors=n_neighbors, device="cpu", **how))
            np.testing.assert_array_equal(found, heights_of(matrix))


@pytest.mark.hypothesis
@given(st.data(), st.integers(1, 3), st.sampled_from(METRICS[:1] + METRICS[2:]), st.booleans())
def test_bounds_between_boxes_of_points(data, d, metric, scaled):
    """No point of one is nearer to one of the other than the lower bound, or farther than the upper."""
    point = st.tuples(*[st.floats(0, 4, exclude_max=True)] * d)
    a, b = (np.array(data.draw(st.lists(point, min_size=1, max_size=5))) for _ in range(2))
    periods = list(data.draw(st.tuples(*[st.sampled_from([4.0, math.inf, 5.1])] * d)))
    chosen = metric_of(metric, 2.0, None, periods, {tuple(range(d)): 0.3} if scaled else None).of_columns(None, d)
    surrogate = metric if scaled or metric != "euclidean" else "sqeuclidean"
    matrix = distances_of(a, b, surrogate, periods, {tuple(range(d)): 0.3} if scaled else None)
    boxes = a.min(axis=0), a.max(axis=0), b.min(axis=0)[None], b.max(axis=0)[None], 0
    assert formulas.box_to_box_in_space(chosen.cpu_formula, *boxes) <= matrix.min()
    assert formulas.farthest_in_space(chosen.cpu_formula, *boxes) >= matrix.max()
    near = np.empty(len(a))
    wraps = formulas.may_wrap_in_space(chosen.cpu_formula, *boxes)
    formulas.to_boxes_in_space(chosen.cpu_formula, np.ascontiguousarray(a.T), *boxes[2:], near, wraps)
    assert (near <= matrix.min(axis=1)).all()


# ------------------------------------------------------------------------------------------------------- wrapping


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coordinates_are_wrapped(dtype, device):
    X = scattered(400, dtype=dtype) * 30
    X[:6, 0] = [-1e-30, 10, -10, 20, -0.0, 9.999999]
    model = fit(X, 1, box=MIXED, device=device)
    assert bits(model) == bits(fit(wrapped(X, MIXED).astype(dtype), 1, box=MIXED, device=device))


def test_rows_within_the_box_are_not_copied():
    X = np.random.default_rng(0).random((9, 3))
    assert metric_rows(metric_of("euclidean", box=1.0).of_columns(None, 3), X, CPU) is X
    assert metric_rows(metric_of("euclidean", box=1.0).of_columns(None, 3), X - 1, CPU) is not X


# ------------------------------------------------------------------------------------------------------- the calls


@pytest.mark.parametrize(
    ("n", "space", "dtype"),
    combinations((200, 2300), SPACES, ("float32", "float64"), quick=[(200, space, "float64") for space in SPACES]),
)
def test_calls(n, space, dtype, device):
    X, Y, how = scattered(n, dtype=dtype), scattered(150, dtype=dtype, seed=1), SPACES[space]
    matrix, between = distances_of(X, **how), distances_of(Y, X, **how)
    t = float(np.quantile(heights_of(matrix), 0.4))
    found = pairs(X, max_distance=t, device=device, **how)
    src, dst = np.nonzero(np.triu(matrix <= t, 1))
    for name, expected in (("src", src), ("dst", dst), ("weight", matrix[src, dst])):
        np.testing.assert_array_equal(to_host(found[name].values), expected)
    limits = [t / 2, t, 5 * t, 1e9]
    counts = [int((matrix[np.triu_indices(n, 1)] <= limit).sum()) for limit in limits]
    assert count_pairs(X, max_distance=limits, device=device, **how).tolist() == counts
    assert sum(len(part) for part in iter_pairs(X, max_distance=t, rows=70, device=device, **how)) == src.size
    assert len(pairs(Y, X, max_distance=t, device=device, **how)) == (between <= t).sum()
    for k in (1, 9):
        nearest, _ = nearest_neighbors(Y, X, k, output="arrays", device=device, **how)
        np.testing.assert_array_equal(to_host(nearest), np.sort(between, axis=1)[:, :k])
    forest = fit(X, max_distance=t, device=device, **how)
    expected = heights_of(matrix)
    np.testing.assert_array_equal(heights(forest), expected[expected <= t])
    core = np.sort(without_self(matrix), axis=1)[:, 3].copy()
    by_core = fit(X, 1, min_samples=4, device=device, **how)
    np.testing.assert_array_equal(heights(by_core), heights_of(mutual_reachability(matrix, core)))
    graph = knn_graph(X, 3, device=device, **how)
    tree = rapids_slink.connect(graph, X, device=device, **how)
    np.testing.assert_array_equal(to_host(tree["weight"].values), expected)


@pytest.mark.parametrize("space", [*map(full, SPACES)])
def test_groups(space, device):
    X, keys, how = scattered(900), np.random.default_rng(2).integers(0, 40, 900), SPACES[space]
    model = fit(X, 1, groups=keys, device=device, **how)
    each = [heights_of(distances_of(X[keys == key], **how)) for key in np.unique(keys)]
    np.testing.assert_array_equal(heights(model), np.sort(np.concatenate(each)))


def test_hdbscan(device):
    X = scattered(500)
    model = HDBSCAN(8, box=10.0, prediction_data=True, store_centers="medoid", device=device).fit(X)
    given = HDBSCAN(8, metric="precomputed", device=device).fit(distances_of(X, box=10.0))
    np.testing.assert_array_equal(heights(model), heights(given))
    np.testing.assert_array_equal(to_host(model.labels_), to_host(given.labels_))
    shifted, _ = model.approximate_predict(X + 10.0)
    np.testing.assert_array_equal(to_host(shifted), to_host(model.approximate_predict(X)[0]))


def test_frames_go_by_name(device, engine):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"t": rng.uniform(0, 9e3, 300), "x": rng.uniform(0, 2e3, 300), "y": rng.uniform(0, 2e3, 300)})
    scales = {("x", "y"): 500.0, "t": 3600.0}
    model = fit(on_device(frame, engine), scales=scales, max_distance=1.0, prediction_data=True, device=device)
    matrix = distances_of(frame.to_numpy(), scales={(1, 2): 500.0, 0: 3600.0})
    expected = heights_of(matrix)
    np.testing.assert_array_equal(heights(model), expected[expected <= 1])
    by_place = fit(frame, scales={(1, 2): 500.0, 0: 3600.0}, max_distance=1.0, device="cpu")
    np.testing.assert_array_equal(heights(by_place), heights(model))
    other_order = on_device(frame[["y", "t", "x"]].iloc[:20], engine)
    np.testing.assert_array_equal(to_host(model.predict(other_order)), to_host(model.labels_)[:20])
    found = nearest_neighbors(frame[:30], frame[30:], scales=scales, device=device)
    np.testing.assert_array_equal(found["weight"], matrix[:30, 30:].min(axis=1))


@pytest.mark.parametrize("space", SPACES)
def test_models_go_on(space, tmp_path, device):
    """Rows are appended, new ones are predicted, and a saved model does the same; a clone has the parameters."""
    X, how = scattered(300), SPACES[space]
    model = SingleLinkage(4, prediction_data=True, device=device, **how).fit(X[:220])
    model.append(X[220:])
    assert bits(model) == bits(fit(X, 4, device=device, **how))
    model.save(tmp_path / "model")
    loaded = rapids_slink.load(tmp_path / "model", device=device)
    assert {name: getattr(loaded, name) for name in how} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in how.items()
    }
    new = scattered(40, seed=3)
    np.testing.assert_array_equal(to_host(loaded.predict(new)), to_host(model.predict(new)))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert bits(copy.fit(X)) == bits(model)
    model.box = 3.0
    with pytest.raises(ValueError, match="append continues a fit by euclidean"):
        model.append(X[:3])


@pytest.mark.parametrize(
    "space",
    [
        ((0, 1, 2), (10.0,), ()),
        ((0, 1, 7), (10.0, 10.0, 10.0), ()),
        ((0, 1, 2), (10.0, 10.0, 0.0), ()),
        ((0, 1, 2), (10.0, 10.0, 10.0), (1.0,)),
        ((0, 1, 2), (10.0, 10.0, 10.0), (1.0, 1.0, 0.0)),
    ],
)
def test_damaged_files_are_refused(space, tmp_path):
    """Compiled code reads as many lengths as rows have columns."""
    model = fit(scattered(30), 2, box=10.0, prediction_data=True, device="cpu")
    model._metric_ = (*model._metric_[:3], space)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="box= and scales= of the metric are not those of 3 columns"):
        rapids_slink.load(tmp_path / "model", device="cpu")


def test_dask_collections():
    from dask_clusters import dask, dask_distributed, dd, workers_within_this_process

    X, how = scattered(600), SPACES["both"]
    frame, scales = pd.DataFrame(X, columns=list("xyt")), {("t", "x"): 2.5, "y": 0.5}
    with workers_within_this_process(1) as cluster, dask_distributed.Client(cluster):
        model = fit(dask.array.from_array(X, chunks=(170, 3)), 1, device="cpu", **how)
        assert bits(model.linkage_.compute()) == bits(fit(X, 1, device="cpu", **how).linkage_)
        collection = dd.from_pandas(frame, npartitions=3)
        found = pairs(collection, max_distance=1.0, scales=scales, box=MIXED, device="cpu").compute()
        expected = pairs(X, max_distance=1.0, device="cpu", **how)
        assert bits(found.sort_values(["src", "dst"])) == bits(expected)
        graph = knn_graph(collection, 4, scales=scales, box=MIXED, device="cpu").compute()
        assert bits(graph) == bits(knn_graph(X, 4, device="cpu", **how))


def test_plan():
    assert plan((100_000, 3), box=1.0, device="cpu")["neighbors"]["filter"] == "k-d tree"
    assert plan(scattered(50), scales={0: 1.0, (1, 2): 2.0}, device="cpu")["fits"]


# --------------------------------------------------------------------------------------------------- what is refused


X3 = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"box": 0.0}, "box must be above 0; an infinite one does not repeat, got 0.0"),
        ({"box": -1}, "box must be above 0"),
        ({"box": math.nan}, "box must be above 0"),
        ({"box": [1.0, 2.0]}, "box must have a length for each of 3 columns, or one for all, got 2"),
        ({"box": [1.0, 0.0, 2.0]}, "length 1 of box must be above 0"),
        ({"box": "1"}, "box must be a length, or a list of one for each column, got '1'"),
        ({"box": True}, "box must be a number, got True"),
        ({"box": {"x": 1.0}}, "box must be a length, or a list"),
        ({"box": [1.0, "a", 2.0]}, "length 1 of box must be a number, got 'a'"),
        ({"box": 1.0, "metric": "cosine"}, "box= takes the metrics 'euclidean', .*, got 'cosine'"),
        ({"box": 1.0, "metric": "minkowski", "p": 3}, "box= takes the metrics .*, got 'minkowski'"),
        ({"box": 1.0, "metric": "precomputed"}, "box= takes points, and metric='precomputed' has distances"),
        ({"box": 1.0, "missing": "pairwise"}, "box= takes no missing values: leave missing= out"),
        ({"scales": {0: 1.0}, "metric": "sqeuclidean"}, "scales= takes the metrics .*, got 'sqeuclidean'"),
        ({"scales": [1.0]}, "scales must be a dictionary such as"),
        ({"scales": {}}, "scales must have at least one column in each group"),
        ({"scales": {(): 1.0}}, "scales must have at least one column in each group"),
        ({"scales": {(0, 1): 1.0}}, "scales leaves column 2 of X out: each is in a group, or drop it from X"),
        ({"scales": {(0, 1): 1.0, (1, 2): 1.0}}, "scales has column 1 twice: each is in one group"),
        ({"scales": {(0, 1): 1.0, 3: 1.0}}, "scales has column 3, and the columns of X are positions from 0 to 2"),
        ({"scales": {(0, 1): 1.0, "t": 1.0}}, "scales has column 't', and the columns of X are positions from 0 to 2"),
        ({"scales": {(0, 1): 0.0, 2: 1.0}}, r"the scale of \(0, 1\) must be from 1e-150 to 1e\+150, got 0.0"),
        ({"scales": {(0, 1): "a", 2: 1.0}}, r"the scale of \(0, 1\) must be a number, got 'a'"),
    ],
)
def test_what_is_refused(how, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(X3, device="cpu", **how)


def test_more_that_is_refused():
    with pytest.raises(ValueError, match=r"scales has column 'z', and the columns of X are \['x', 'y'\], or positions"):
        fit(pd.DataFrame({"x": [1.0, 2.0], "y": 0.0}), scales={("x", "y"): 1.0, "z": 1.0}, device="cpu")
    with pytest.raises(ValueError, match=f"box= and scales= take up to {MAX_COLUMNS:,} columns, and X has 3,000"):
        fit(np.zeros((2, 3000)), box=1.0, device="cpu")
    with pytest.raises(ValueError, match="store_centers='centroid' takes means, which a box has not: take 'medoid'"):
        HDBSCAN(2, box=1.0, store_centers="centroid", device="cpu").fit(X3)
    with pytest.raises(ValueError, match="box= takes the metrics"):
        knn_graph(X3, 1, metric="haversine", box=1.0, device="cpu")


def test_kernels_are_compiled_once_for_all_boxes():
    """A box's lengths are written into constant memory where it holds others, not into the source."""
    with fake_gpu() as gpu:
        from rapids_slink.neighbors.bvh import BoxSearch

        options = set()
        for box, of_file in ((5.0, True), (6.0, True), (6.0, False)):
            metric = metric_of("euclidean", box=[box, math.inf, 0.1]).of_columns(None, 3)
            if not of_file:
                gpu.constants["SPACE"][:] = bytes(len(gpu.constants["SPACE"]))
            BoxSearch(cuda().xp.zeros((300, 3), "float32"), cuda(), Report(), metric=metric)
            held = bytes(gpu.constants["SPACE"])
            assert np.frombuffer(held[:24]).tolist() == ([box, math.inf, 0.1] if of_file else [0, 0, 0])
            below = np.frombuffer(held[48:60], np.float32)
            assert (below <= [box, math.inf, 0.1]).all()
            assert not of_file or (np.nextafter(below, np.float32(np.inf)) > [box, 0, 0.1]).all()
            options |= {launch.options for launch in gpu.launches if launch.kernel == "arrange"}
        assert len(options) == 1


def start_rerank(box, blocks=1):
    """Launch a kernel that reads the space of a box, with as many blocks and no arrays."""
    source, name = "neighbors/exact/rerank.cu", "rerank"
    options = metric_of("euclidean", box=box).of_columns(None, 1).cuda_options
    kinds = parameters(source, name, options)
    nothing = [None if type(kind) is str else c_struct(0) if kind is np.void else 0 for kind in kinds]
    launch_blocks(source, name, (blocks,), 32, *nothing, options=options)


def test_a_launch_reads_the_space_of_its_thread(watch):
    """Two threads launch one kernel with different spaces: none writes between the other's write and its launch."""
    barrier, read = threading.Barrier(2), {}

    def wait(*_):
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.1)

    watch(ConstantOption, "write", wait)
    with fake_gpu() as gpu:
        gpu.run = lambda launch: read.update({launch.grid[0]: bytes(gpu.constants["SPACE"][:8])})
        threads = [threading.Thread(target=start_rerank, args=(float(blocks), blocks)) for blocks in (5, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {blocks: float(np.frombuffer(period)[0]) for blocks, period in read.items()} == {5: 5.0, 6: 6.0}


def test_a_space_is_written_while_the_gpu_rests(watch):
    """Launches of other streams may still read the former bytes, and later ones must read the new."""
    rests = watch(FakeDevice, "synchronize", lambda *_: bytes(gpu.constants["SPACE"][:8]))
    with fake_gpu() as gpu:
        gpu.constants["SPACE"] = bytearray(CONSTANT_MEMORY)
        for box in (5.0, 5.0, 6.0, 6.0, 5.0):
            start_rerank(box)
    assert [float(np.frombuffer(rest)[0]) for rest in rests] == [0, 5, 5, 6, 6, 5]

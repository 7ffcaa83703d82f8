"""Labels within a distance, of which no tree is made before it is asked for: which labels, and when there is a tree."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, combinations, full
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from spanning_trees import by_appearance

import rapids_slink
from rapids_slink import DeviceMemoryError, SingleLinkage, deduplicate, fit
from rapids_slink.metrics import get_metric
from rapids_slink.pipeline import estimate_fit
from rapids_slink.points.output import on_device
from rapids_slink.runtime.device import resolve, to_host
from rapids_slink.runtime.memory import required_bytes, run_scope
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem, cpu


@pytest.fixture(autouse=True)
def few_rows(prescribe):
    """Labels alone are made of few rows, too, although all pairs take less time."""
    prescribe(tree="friends")


METRICS = ["euclidean", "sqeuclidean", "cityblock", "chebyshev"]


def components(X, t, metric="euclidean"):
    """By all pairs, numbered in the order of their first rows."""
    near = squareform(pdist(X.astype(float), metric)) <= t
    return by_appearance(connected_components(near, directed=False)[1])


def assert_friends(X, t, device, metric="euclidean"):
    model = fit(X, max_distance=t, metric=metric, device=device)
    assert (model.report_["way"] == "friends") == (2 <= X.shape[1] <= {"cpu": 4, "cuda": 3}[device])
    expected = components(X, t, metric)
    np.testing.assert_array_equal(to_host(model.labels_), expected)
    assert model.n_clusters_ == expected.max() + 1
    assert model.labels_.dtype == np.int32


def rows_of(kind, n, d, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "uniform": lambda: rng.random((n, d)),
        "grid": lambda: rng.integers(0, 12, (n, d)) * 0.1,
        "equal": lambda: np.ones((n, d)),
        "two places": lambda: rng.integers(0, 2, (n, 1)) * np.ones(d),
        "islands": lambda: 50 * rng.random((9, d))[rng.integers(0, 9, n)] + rng.normal(size=(n, d)) * 1e-2,
        "cauchy": lambda: rng.standard_cauchy((n, d)),
        "comet": lambda: rng.random((n, 1)) ** 8 * rng.normal(size=(n, d)),
        "subnormal": lambda: rng.normal(size=(n, d)) * 1e-160,
        "large": lambda: rng.normal(size=(n, d)) * 1e150,
    }[kind]()


KINDS = ["uniform", "grid", "equal", "two places", "islands", "cauchy", "comet", "subnormal", "large"]


@pytest.mark.parametrize(
    ("kind", "d", "dtype", "n", "metric"),
    [
        *combinations(
            KINDS, (2, 3, 4), ("float32", "float64"), (2, 33, 700), METRICS[:1],
            quick=[(kind, 2 + i % 3, ("float32", "float64")[i % 2], n, METRICS[0])
                   for n in (33, 700) for i, kind in enumerate(KINDS, n)],
        ),
        *combinations(KINDS[:-1], (2, 3, 4), ("float32", "float64"), (33,), METRICS[1:], quick=[]),
    ],
)  # fmt: skip
def test_labels(kind, d, dtype, n, metric, device):
    """Distances that occur are within, the next smaller numbers are not: the definition decides, in float64."""
    with np.errstate(over="ignore", under="ignore"):
        X = rows_of(kind, n, d).astype(dtype)
    X = X if np.isfinite(X).all() else np.clip(X, *np.array([-1, 1]) * np.finfo(np.float32).max)
    weight = np.unique(pdist(X.astype(float), metric))
    some = np.quantile(weight, [0, 0.001, 0.01, 0.1, 1], method="nearest")
    for t in np.unique([-1.0, 0.0, *some, *np.nextafter(some, 0)]):
        assert_friends(X, t, device, metric)


@pytest.mark.parametrize("name", [name if name in ("decimal_grid", "repeated_rows") else full(name) for name in CASES])
def test_labels_of_hard_cases(name, device):
    X = CASES[name]("float64")[:800, :3]
    if X.shape[1] > 1 and len(X) > 1:
        for t in np.quantile(pdist(X), [0.0, 0.001, 0.02, 0.3], method="nearest"):
            assert_friends(X, t, device)


@given(st.integers(2, 300), st.integers(2, 4), st.integers(1, 12), st.floats(0, 3), st.integers(0, 2**32 - 1))
def test_ties(device, n, d, side, t, seed):
    X = np.random.default_rng(seed).integers(0, side + 1, (n, d)).astype(np.float32 if seed % 2 else np.float64)
    assert_friends(X, t, device)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_many_rows(d, device):
    """Subtrees of several threads, and cells of many points, against the cut of the whole tree."""
    rng = np.random.default_rng(d)
    core = 0.5 + rng.normal(size=(10_000, d)) * 1e-3
    X = np.concatenate([rng.random((20_000, d)), core, rng.random((10, d)).repeat(300, 0)])
    X = X[rng.permutation(len(X))]
    whole = fit(X, 1, device=device)
    for t in np.array([0.0, 0.1, 0.5, 1, 20]) * len(X) ** (-1 / d):
        model = fit(X, max_distance=t, device=device)
        expected = whole.cut(distance_threshold=t, closed="right")
        np.testing.assert_array_equal(to_host(model.labels_), to_host(expected))


def test_rows_within_the_distance_are_not_all_compared(device):
    """With all pairs this would take minutes."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.random((100_000, 3)) * 1e-3, rng.random((100_000, 3)) * 1e-3 + [3, 0, 0]])
    model = fit(X, max_distance=1.5, device=device)
    assert model.n_clusters_ == 2


def test_a_threshold_below_the_distance(device):
    X = np.array([[0.0, 0], [1, 0], [3, 0], [3.5, 0]])
    for threshold, expected in ((1, [0, 1, 2, 2]), (np.nextafter(1, 2), [0, 0, 1, 1]), (0.5, [0, 1, 2, 3])):
        model = fit(X, distance_threshold=threshold, max_distance=2, device=device)
        assert model.report_["way"] == "friends"
        assert to_host(model.labels_).tolist() == expected
        assert to_host(model.cut(distance_threshold=2, closed="right")).tolist() == [0, 0, 0, 0]  # and the tree up to 2


def is_made(model):
    return "spanning_tree" in model.report_["seconds"] or "linkage" in model.report_["seconds"]


def test_the_tree_follows(engine):
    """It is that of the rows as they were, and the report has its seconds."""
    X = np.random.default_rng(0).random((3000, 3))
    kept = X.copy()
    model = fit(on_device(pd.DataFrame(X, index=np.arange(3000) + 7), engine), max_distance=0.05, device=engine.name)
    assert not is_made(model)
    assert list(to_host(model.labels_.index.values[:2])) == [7, 8]
    frame = pd.DataFrame(kept)
    X[:] = 0
    whole = fit(frame, 1, device=engine.name)
    m = len(model.mst_)
    assert is_made(model)
    for name in ("mst_", "linkage_"):
        assert getattr(model, name).equals(getattr(model, name))
        for column in getattr(model, name):
            expected = to_host(getattr(whole, name)[column].values)[:m]
            np.testing.assert_array_equal(to_host(getattr(model, name)[column].values), expected)
    assert m == 3000 - model.n_clusters_
    assert model.report_["way"] == "friends"


def test_arrays_are_copied(engine):
    X = engine.asarray(np.random.default_rng(0).random((500, 2)))
    model, expected = fit(X, max_distance=0.1, device=engine.name), fit(X, 1, device=engine.name)
    heights = to_host(expected.linkage_["height"].values)
    X[:] = 0
    np.testing.assert_array_equal(to_host(model.linkage_["height"].values), heights[heights <= 0.1])


def test_what_needs_no_tree(device):
    X = np.random.default_rng(0).random((400, 2))
    model = SingleLinkage(None, max_distance=0.05, device=device).fit(X)
    repr(model), str(model.report_), model.n_clusters_, copy.copy(model).labels_
    assert not is_made(model)
    first = deduplicate(X, max_distance=0.05, device=device)
    labels = to_host(model.labels_)
    np.testing.assert_array_equal(to_host(first), np.unique(labels, return_index=True)[1][labels])


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "save", "copy"])
def test_copies_have_the_tree(how, device, tmp_path):
    X = np.random.default_rng(0).random((400, 2))
    model, expected = (fit(X, max_distance=0.05, device=device) for _ in range(2))
    if how == "save":
        model.save(tmp_path / "model.slink")
        other = rapids_slink.load(tmp_path / "model.slink", device=device)
    else:
        make = {"pickle": lambda model: pickle.loads(pickle.dumps(model)), "deepcopy": copy.deepcopy, "copy": copy.copy}
        other = make[how](model)
    np.testing.assert_array_equal(to_host(other.linkage_.values), to_host(expected.linkage_.values))
    np.testing.assert_array_equal(to_host(other.mst_.values), to_host(expected.mst_.values))
    np.testing.assert_array_equal(to_host(other.labels_), to_host(expected.labels_))


@pytest.mark.parametrize(
    ("X", "how"),
    [
        (np.random.default_rng(0).random((300, 3)), {"n_clusters": 300}),
        (np.random.default_rng(0).random((300, 3)), {"prediction_data": True}),
        (np.random.default_rng(0).random((300, 3)), {"min_samples": 3}),
        full(np.random.default_rng(0).random((300, 3)), {"metric": "minkowski", "p": 3.0}),  # by roots
        (np.random.default_rng(0).random((300, 2)), {"metric": "haversine"}),
        (np.random.default_rng(0).random((300, 1)), {}),
        (np.random.default_rng(0).random((300, 12)), {}),
        (np.ones((1, 3)), {}),
    ],
)  # fmt: skip
def test_other_fits_make_the_tree(X, how, device):
    model = fit(X, max_distance=0.1, device=device, **how)
    assert model.report_.get("way") != "friends"
    assert is_made(model) or len(X) == 1
    assert "n_clusters" in how or len(np.unique(to_host(model.labels_))) == model.n_clusters_


def test_few_rows_have_their_tree(prescribe):
    prescribe(tree=None)
    X = np.random.default_rng(0).random((257, 2))
    assert fit(X[:256], max_distance=0.1, device="cpu").report_["way"] == "pairs"
    assert fit(X, max_distance=0.1, device="cpu").report_["way"] == "friends"


def test_engines_that_make_the_tree(device, monkeypatch):
    """Groups and collections have their trees at once, and what is estimated is the memory of these."""
    X = np.random.default_rng(0).random((2000, 2))
    expected = fit(X, max_distance=0.01, device=device)
    by_group = fit(X, max_distance=0.01, groups=np.zeros(len(X), int), device=device)
    assert by_group.report_["way"] == "groups"
    np.testing.assert_array_equal(to_host(by_group.labels_), to_host(expected.labels_))
    dask, seen = pytest.importorskip("dask.array"), []
    distributed = pytest.importorskip("rapids_slink.distributed")
    monkeypatch.setattr(distributed, "fit", lambda X, settings, rule: seen.append(settings) or {})
    fit(dask.from_array(X), max_distance=0.01, device=device)
    assert (seen[0].max_distance, seen[0].friends_within) == (0.01, None)


def test_memory(device):
    """Of labels alone it is less than that of the tree, which then has no room."""
    on = resolve(device)
    X = on.asarray(np.random.default_rng(0).random((200_000, 2)))  # the tree takes no copy of them
    peaks = [
        rapids_slink.plan(X, n_clusters=n_clusters, max_distance=1e-3, device=device)["memory"]["peak_bytes"]
        for n_clusters in (None, len(X))
    ]
    assert peaks[0] < peaks[1]
    problem = Problem(Settings(get_metric("euclidean"), max_distance=1e-3), on, *X.shape, X.itemsize)
    with run_scope(on):
        limit = required_bytes(on, estimate_fit(problem)) - 1
    model = fit(X, max_distance=1e-3, memory_limit=limit, device=device)
    with pytest.raises(DeviceMemoryError, match=f"memory_limit={limit} is too small for the tree of 200,000 rows"):
        model.linkage_  # noqa: B018
    with pytest.raises(DeviceMemoryError, match="memory_limit='1MiB' is too small for 200,000 rows"):
        fit(X, max_distance=1e-3, memory_limit="1MiB", device=device)


def test_plan(device):
    X = np.random.default_rng(0).random((20_000, 3))
    plan = rapids_slink.plan(X, n_clusters=None, max_distance=0.01, device=device)
    report = fit(X, max_distance=0.01, device=device).report_
    assert plan["way"] == report["way"] == "friends"
    assert plan["neighbors"]["filter"] == report["neighbors"]["filter"]
    assert rapids_slink.plan((20_000, 3), n_clusters=None, max_distance=0.01, device=device)["way"] == "friends"


@pytest.mark.parametrize("sizes", [(40, 30), (30, 40), (35, 35)])
def test_of_a_pair_of_nodes_no_leaf_is_split(sizes):
    """Whichever of the two has more points: of three nodes the first has two leaves."""
    first = np.array([0, 0, sizes[0]])
    tree = SimpleNamespace(first=first, last=first + np.array([sizes[0], sizes[1], sizes[1]]))
    for a, b in ((0, 1), (1, 0)):
        pairs = np.zeros((4, 2), np.int64)
        assert cpu._split_pair.py_func(tree, a, b, pairs, 0) == 2
        assert pairs[:2].tolist() == ([[1, b], [2, b]] if a == 0 else [[a, 1], [a, 2]])

"""`rapids_slink.scipy.linkage` in the place of SciPy's function."""

import re

import numpy as np
import pandas as pd
import pytest
from fake_gpu import FakeArray, fake_gpu
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist
from tests_of_others import run_tests_of

import rapids_slink.points
from rapids_slink import fit
from rapids_slink.runtime.device import cuda, resolve, to_host
from rapids_slink.scipy import OWN_METRICS, cophenet, fcluster, leaves_list, linkage


@pytest.fixture
def X():
    return np.random.default_rng(0).random((80, 6)) + 0.1


@pytest.mark.parametrize("metric", sorted(OWN_METRICS))
def test_metrics(metric, X, device):
    expected = hierarchy.linkage(X, "single", metric)
    found = linkage(X, "single", metric, device=device)
    np.testing.assert_array_max_ulp(found[:, 2], expected[:, 2], 4 if metric == "minkowski" else 0)
    if metric != "hamming":  # ties
        np.testing.assert_array_equal(found[:, [0, 1, 3]], expected[:, [0, 1, 3]])


def test_metrics_of_scipy_alone(X, device):
    for metric in ("seuclidean", "jensenshannon", lambda u, v: abs(u - v).max()):
        np.testing.assert_array_equal(linkage(X, metric=metric, device=device), hierarchy.linkage(X, "single", metric))
    true = X > 0.5
    for metric in ("dice", "jaccard", "yule"):
        heights = hierarchy.linkage(true, "single", metric)[:, 2]
        np.testing.assert_array_equal(linkage(true, metric=metric, device=device)[:, 2], heights)


def test_condensed_and_ordered(X, device):
    np.testing.assert_array_equal(linkage(pdist(X), device=device), hierarchy.linkage(X))
    for y in (X, pdist(X)):
        found = linkage(y, optimal_ordering=True, device=device)
        np.testing.assert_array_equal(found, hierarchy.linkage(y, optimal_ordering=True))


def test_other_methods_are_scipys(X):
    with pytest.warns(UserWarning, match="method='ward' is handed to SciPy"):
        np.testing.assert_array_equal(linkage(X, "ward"), hierarchy.linkage(X, "ward"))
    with pytest.raises(ValueError, match="Invalid method: nonsense"):
        linkage(X, "nonsense")


@pytest.mark.parametrize("frames", ["pandas", pytest.param("cudf", marks=pytest.mark.gpu)])
def test_frames_and_series(frames, X):
    frames = pytest.importorskip(frames)
    expected = hierarchy.linkage(X)
    np.testing.assert_array_equal(linkage(frames.DataFrame(X)), expected)
    np.testing.assert_array_equal(linkage(frames.Series(pdist(X))), expected)
    with pytest.warns(UserWarning, match="method='ward' is handed to SciPy"):
        np.testing.assert_array_equal(linkage(frames.DataFrame(X), "ward"), hierarchy.linkage(X, "ward"))


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((2, 2, 2)),
        np.array([["a", "b"], ["c", "d"]]),
        pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}),
        "abc",
        np.array([1.0, np.nan, 2]),
        np.ones(4),
        [],
        np.ones((1, 3)),
    ],
)
def test_errors_are_scipys(y, device):
    with pytest.raises(ValueError) as expected:  # noqa: PT011
        hierarchy.linkage(y)
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        linkage(y, device=device)


def test_square_matrix_of_distances_is_warned_of(device):
    y = np.array([[0.0, 1, 5], [1, 0, 4], [5, 4, 0]])
    for metric in ("euclidean", "seuclidean"):
        with pytest.warns(hierarchy.ClusterWarning, match="pass squareform") as warned:
            linkage(y, metric=metric, device=device)
        assert [one.filename for one in warned] == [__file__]
    with pytest.warns(hierarchy.ClusterWarning, match="pass squareform"):
        linkage(y.astype(int), metric="seuclidean", device=device)


def test_what_is_copied_to_the_host(watch, X, device):
    """To see whether SciPy would warn: the diagonal of a square array, and no whole array except distances.

    And some triangles of these, which tell whether they are in SciPy's order.
    """
    shapes = []
    for module in (rapids_slink.scipy, rapids_slink.points):
        watch(module, "to_host", lambda result, y: shapes.append(y.shape))
    for y in (X, X[:6], pdist(X)):
        linkage(resolve(device).asarray(y), device=device)
    assert shapes[:2] == [(6,), (80 * 79 // 2,)]
    assert all(np.prod(shape) <= 2**12 for shape in shapes[2:])


@pytest.mark.full
def test_tests_of_scipy(device):
    """All of SciPy's tests of hierarchies: those of other methods come back from SciPy."""
    assert run_tests_of("scipy.cluster.tests.test_hierarchy", device) > 30


@pytest.mark.parametrize("on", ["host", "frame", pytest.param("gpu", marks=pytest.mark.gpu), "a stand-in"])
def test_functions_of_a_linkage(on, X):
    """Their results are SciPy's, on the device of the linkage."""
    Z = hierarchy.linkage(X)
    R, heights = hierarchy.inconsistent(Z), hierarchy.maxdists(Z)

    def check(given, kind):
        for t, criterion, more in ((0.2, "distance", {}), (7, "maxclust", {}), (0.9, "inconsistent", {"R": R}),
                                   (0.2, "monocrit", {"monocrit": heights})):  # fmt: skip
            found, expected = fcluster(given, t, criterion, **more), hierarchy.fcluster(Z, t, criterion, **more)
            assert isinstance(found, kind)
            assert (found.dtype, to_host(found).tolist()) == (expected.dtype, expected.tolist())
        correlation, distances = cophenet(given, pdist(X))
        assert (correlation, to_host(distances).tolist()) == (
            hierarchy.cophenet(Z, pdist(X))[0], hierarchy.cophenet(Z).tolist()
        )  # fmt: skip
        for found in (distances, cophenet(given), leaves_list(given)):
            assert isinstance(found, kind)
        assert to_host(leaves_list(given)).tolist() == hierarchy.leaves_list(Z).tolist()

    if on == "a stand-in":
        with fake_gpu():
            check(cuda().xp.array(Z), FakeArray)
    elif on == "gpu":
        check(cuda().xp.asarray(Z), cuda().xp.ndarray)
    else:
        given = Z if on == "host" else pd.DataFrame(Z, columns=["left", "right", "height", "size"])
        check(given, np.ndarray)


def test_functions_of_a_models_linkage(X):
    model = fit(pd.DataFrame(X), 3, device="cpu")
    assert (
        fcluster(model.linkage_, 3, "maxclust").tolist() == hierarchy.fcluster(model.to_scipy(), 3, "maxclust").tolist()
    )
    with pytest.raises(ValueError, match="Invalid cluster formation criterion: nonsense"):
        fcluster(model.linkage_, 3, "nonsense")

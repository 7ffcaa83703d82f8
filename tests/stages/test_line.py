"""Points of one feature: the tree by a sort is that of all pairs, and where rounding makes pairs tie there is none."""

import math

import numpy as np
import pytest
from hard_cases import full
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rapids_slink
from rapids_slink.metrics import EUCLIDEAN
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.runtime.device import CPU
from rapids_slink.settings import metric_of
from rapids_slink.spanning_tree.ways import tree_of_line, tree_of_pairs

METRICS = ("euclidean", "sqeuclidean", "cityblock", "chebyshev")


def edges(tree):
    return list(tree.frame.itertuples(index=False, name=None))


@pytest.mark.hypothesis
@given(
    st.one_of(
        hnp.arrays(np.float64, st.integers(2, 40), elements=st.integers(-6, 6)),
        hnp.arrays(np.float32, st.integers(2, 40), elements=st.floats(-4, 4, width=16)),
        hnp.arrays(
            np.float64,
            st.integers(2, 12),
            elements=st.sampled_from([0.0, -0.0, 1e-200, 1.0, 1 + 2**-52, 1e16, 1e16 + 2]),
        ),
    ),
    st.sampled_from(METRICS),
    st.sampled_from([None, math.inf, 5.0, 0.3, 1e17]),
    st.sampled_from([None, 0.7]),
)
def test_tree_is_that_of_all_pairs(x, name, box, scale):
    metric = metric_of(name, box=box, scales=None if scale is None or name == "sqeuclidean" else {0: scale})
    metric = metric.of_columns(None, 1)
    rows = metric_rows(metric, x[:, None], CPU)
    tree = tree_of_line(rows, metric, CPU)
    if tree is not None:
        assert edges(tree) == edges(tree_of_pairs(rows, metric, 1, CPU))


@pytest.mark.parametrize("x", [[0.0, 1e-200, 1.0], [0.0, 1.0, 1e16, 1e16 + 2], [1.0, 1 + 2**-52, 2.0**53]], ids=str)
def test_ties_by_rounding_are_seen(x):
    """A longer difference that weighs as little might be the edge of the tree."""
    assert tree_of_line(np.array(x)[:, None], EUCLIDEAN, CPU) is None


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.normal(size=3000),
        lambda rng: rng.integers(0, 200, 3000),
        lambda rng: np.cumsum(rng.exponential(size=3000)) + 1.7e9,
    ],
    ids=["distinct", "repeats", "time stamps"],
)
@pytest.mark.parametrize("box", [None, 3.0, full(100.0), full(math.inf)])
def test_the_same_as_by_lists(make, name, box, device, prescribe):
    X = make(np.random.default_rng(0))[:, None]
    found = rapids_slink.fit(X, 5, metric=name, box=box, device=device)
    assert found.report_["spanning_tree"] == {"rows_sorted": 3000}
    assert found.n_connected_components_ == 1
    prescribe(tree="lists")
    expected = rapids_slink.fit(X, 5, metric=name, box=box, n_neighbors=4, device=device)
    assert "rows_sorted" not in expected.report_["spanning_tree"]
    assert found.mst_.equals(expected.mst_)
    assert found.linkage_.equals(expected.linkage_)


def test_two_equal_points(device):
    assert rapids_slink.fit([[3.0], [3.0]], 1, device=device).mst_.iloc[0].tolist() == [0, 1, 0.0]


@pytest.mark.parametrize(("name", "X"), [("canberra", [[1.0], [2.0]]), ("euclidean", [[1.0, 2.0], [3.0, 4.0]])])
def test_others_are_not_sorted(name, X):
    assert rapids_slink.fit(X, 1, metric=name, device="cpu").report_["way"] == "pairs"

"""Input that would give nonsense, or an error from deep inside, is refused by name."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rapids_slink
from rapids_slink.points.check import MAX_ROWS


@pytest.fixture
def frame():
    return pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["x", "y"])


@pytest.fixture
def linkage(frame):
    return rapids_slink.fit(frame, device="cpu").linkage_


def test_columns_in_another_order(frame):
    with pytest.raises(ValueError, match=r"same order, but column 0 is 'x' in X and 'y' in Y"):
        rapids_slink.nearest_neighbors(frame, frame[["y", "x"]], device="cpu")
    with pytest.raises(ValueError, match="column 1 is 'y' in X and 'z' in Y"):
        rapids_slink.nearest_neighbors(frame, frame.rename(columns={"y": "z"}), device="cpu")
    expected = rapids_slink.nearest_neighbors(frame, frame, device="cpu")
    numbered = frame.set_axis([0, 1], axis=1)
    pd.testing.assert_frame_equal(rapids_slink.nearest_neighbors(frame, numbered, device="cpu"), expected)


@pytest.mark.parametrize("path", ["points.csv", Path("points.csv")])
def test_path_in_the_place_of_a_table(path):
    for function in (rapids_slink.fit, rapids_slink.HDBSCAN().fit, lambda X: rapids_slink.knn_graph(X, 1)):
        with pytest.raises(TypeError, match=r"X is the text 'points\.csv'. Read a file first"):
            function(path)


def test_column_that_is_there_twice(linkage):
    edges = pd.DataFrame([[0, 1, 1.0, 2.0]], columns=["src", "dst", "weight", "weight"])
    for function in (rapids_slink.minimum_spanning_tree, rapids_slink.linkage, rapids_slink.fit_graph):
        with pytest.raises(ValueError, match="'weight' is there 2 times"):
            function(edges, device="cpu")
    with pytest.raises(ValueError, match="'height' is there 2 times"):
        rapids_slink.cut(pd.concat([linkage, linkage[["height"]]], axis=1), n_clusters=2)


def test_more_leaves_than_can_be_numbered(linkage):
    with pytest.raises(ValueError, match=f"n_leaves must be at most {MAX_ROWS}"):
        rapids_slink.cut(linkage, n_clusters=2**31 - 5, n_leaves=2**31)


@pytest.mark.parametrize(
    ("p", "error"), [(-1, ValueError), (float("nan"), ValueError), ("2", TypeError), (True, TypeError)]
)
def test_p_of_any_metric(p, error, frame):
    with pytest.raises(error, match="p must be"):
        rapids_slink.fit(frame, p=p, device="cpu")


def test_integers_beyond_float64():
    X = pd.DataFrame({"a": [1, 2], "b": [1, 10**400]}, dtype=object)
    with pytest.raises(ValueError, match="column 'b' holds an integer beyond float64's range"):
        rapids_slink.fit(X, device="cpu")


class Tensor:
    """A stand-in for a tensor of PyTorch whose sign is still to be applied."""

    def __init__(self, values, is_resolved=False):
        self.values, self.is_resolved = values, is_resolved

    def detach(self):
        return self

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return Tensor(-self.values, is_resolved=True)

    def __array__(self, dtype=None, copy=None):
        if not self.is_resolved:
            raise RuntimeError(
                "Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy()"
            )
        return np.asarray(self.values, dtype)


def test_tensor_with_a_negative_bit(frame):
    X = frame.to_numpy()
    found = rapids_slink.fit(Tensor(-X), device="cpu")
    np.testing.assert_array_equal(found.distances_, rapids_slink.fit(X, device="cpu").distances_)

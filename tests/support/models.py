"""Rows for small models, linkages as frames, and whether two models are the same."""

import numpy as np
import pandas as pd
from scipy.cluster import hierarchy

from rapids_slink.points.output import on_host

FRAME = pd.DataFrame({"x": [0.0, 0.1, 0.3, 5.0, 5.4, 9.0], "y": [0.0, 0.0, 0.0, 5.0, 5.0, 0.0]})


def frame_of(Z):
    """Return SciPy's matrix as a linkage frame."""
    made = pd.DataFrame(Z, columns=["left", "right", "height", "size"])
    return made.astype({"left": "int32", "right": "int32", "size": "int32"})


def grown(n, seed=0):
    """Return the linkage of n random points."""
    return frame_of(hierarchy.linkage(np.random.default_rng(seed).random((n, 2)), "single"))


def assert_same(found, expected):
    """Assert that two models have the same attributes, to the last bit, on the host."""
    assert type(found) is type(expected)
    assert vars(found).keys() == vars(expected).keys()
    for name, value in vars(expected).items():
        other, value = on_host(vars(found)[name]), on_host(value)
        assert type(other) is type(value), name
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(other, value, check_exact=True)
            for column in value.select_dtypes("number").columns:
                assert other[column].to_numpy().tobytes() == value[column].to_numpy().tobytes()
        elif isinstance(value, pd.Series):
            pd.testing.assert_series_equal(other, value, check_exact=True)
        elif isinstance(value, pd.Index):
            pd.testing.assert_index_equal(other, value, exact=True)
        elif isinstance(value, np.ndarray):
            assert other.dtype == value.dtype
            assert other.tolist() == value.tolist()
        else:
            assert other == value, name

"""Frames as tables of Polars, of Arrow, and of what exports Arrow's stream; arrays that export it, too."""

import numpy as np
import pytest


def to_polars(frame):
    return pytest.importorskip("polars").DataFrame({str(name): frame[name].to_numpy() for name in frame})


def to_arrow(frame):
    return pytest.importorskip("pyarrow").table({str(name): frame[name].to_numpy() for name in frame})


def to_batch(frame):
    return to_arrow(frame).to_batches()[0]


class Exported:
    """A table of a library that this package does not know, which exports Arrow's stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def to_stream(frame):
    pytest.importorskip("pyarrow", "15")
    return Exported(to_arrow(frame))


class LabelledArray:
    """An array that exports the stream of a table with a row for each element, as xarray's do."""

    def __init__(self, values):
        self.values = np.asarray(values)

    ndim, dtype, shape = (
        property(lambda self, name=name: getattr(self.values, name)) for name in ("ndim", "dtype", "shape")
    )

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __arrow_c_stream__(self, requested_schema=None):
        places = {f"dim_{i}": places.ravel() for i, places in enumerate(np.indices(self.shape))}
        table = pytest.importorskip("pyarrow").table({**places, "values": self.values.ravel()})
        return table.__arrow_c_stream__(requested_schema)

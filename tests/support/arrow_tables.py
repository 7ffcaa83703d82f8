"""Frames as tables of Polars, of Arrow, and of what exports Arrow's stream."""

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

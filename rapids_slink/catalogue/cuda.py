"""Sums over the members of clusters on a GPU: launchers of `catalogue.cu`."""

from typing import TYPE_CHECKING, Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import check_arrays, constant, launch, value_option
from rapids_slink.runtime.device import Array

if TYPE_CHECKING:
    from rapids_slink.catalogue import Members

SOURCE = "catalogue/catalogue.cu"
PART = constant(SOURCE, "PART")


def means(values: Array, members: "Members", box: Array) -> tuple[Array, Array]:
    """See `rapids_slink.catalogue.cpu.means`, for CuPy arrays."""
    clusters, d = members.start.size - 1, values.shape[1]
    rows, parts = _checked(values, members, box)
    sums, mean, mass = cp.empty((parts, d + 1)), cp.empty((clusters, d)), cp.empty(clusters)
    options = (value_option(values.dtype),)
    launch(SOURCE, "sum_gaps", parts * (d + 1), *rows, members.weight, box, sums, options=options)
    launch(SOURCE, "write_means", clusters * d, *rows, box, sums, mean, mass, options=options)
    return mean, mass


def deviations(values: Array, members: "Members", box: Array, mean: Array, mass: Array) -> tuple[Array, Array]:
    """See `rapids_slink.catalogue.cpu.deviations`, for CuPy arrays."""
    clusters = members.start.size - 1
    rows, parts = _checked(values, members, box)
    check_arrays("float64", mean, size=clusters * values.shape[1])
    check_arrays("float64", mass, size=clusters)
    largest, sums, radius, spread = cp.empty(parts), cp.empty(parts), cp.empty(clusters), cp.empty(clusters)
    options = (value_option(values.dtype),)
    launch(SOURCE, "sum_squares", parts, *rows, members.weight, box, mean, largest, sums, options=options)
    *_, first_part, count = rows
    launch(
        SOURCE, "write_deviations", clusters, count, first_part, largest, sums, mass, radius, spread, options=options
    )
    return radius, spread


def _checked(values: Array, members: "Members", box: Array) -> tuple[tuple[Any, ...], int]:
    """The rows, as kernels take them, and the number of parts at most."""
    n, d = values.shape
    clusters = members.start.size - 1
    check_arrays(values.dtype, values)
    check_arrays("int64", members.rows, members.start)
    check_arrays("float64", members.weight, size=n)
    check_arrays("float64", box, size=d)
    first_part = cp.zeros(clusters + 1, cp.int64)
    first_part[1:] = cp.cumsum(-(-cp.diff(members.start) // PART))
    return (values, np.int32(d), members.rows, members.start, first_part, np.int32(clusters)), (
        members.rows.size // PART + clusters
    )

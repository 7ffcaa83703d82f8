"""Given distances: a square matrix or SciPy's condensed vector."""

from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np

from rapids_slink.points import Following, Points, as_array, as_points
from rapids_slink.points.kernels import kernels
from rapids_slink.points.output import OutputKind, array_of, library_of
from rapids_slink.points.validate import warn
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.memory import MemoryEstimate, sequential

TILE = {"cpu": 2**8, "cuda": 2**12}  # rows and columns that are compared with their transpose at a time


def as_distances(X: Any, device: Device, estimate: Following = None) -> tuple[Points, bool]:
    """The distances `X`, checked, as a square matrix on `device`, and whether all are finite.

    `X` is a frame, an array or nested lists, (n, n), symmetric, zero on the diagonal, infinite for pairs that are not
    joined; or a vector or list of the entries above the diagonal, row by row, as `scipy.spatial.distance.pdist` returns
    them. The two entries of a pair may differ, and a diagonal entry may differ from zero, by the rounding error of a
    difference of squares: √ε times the largest finite entry (1.5e-8 in float64, 3.5e-4 in float32). Then the entry
    above the diagonal counts, and the diagonal is ignored. `estimate` and the errors are those of `as_points`. If `X`
    is not a distance matrix, the message names the rows.
    """
    plain, output = OutputKind.of(X, device)
    if not output.is_frame:
        X = as_array(plain, device, "X")
    elif plain.ndim == 1:  # a Series is a vector, and its index is not that of the rows
        X = array_of(plain)
    if library_of(X) or X.ndim != 1:
        points = as_points(X, device, estimate, checked=False)
        matrix, complete = _checked(points.values, device)
        return replace(points, values=matrix), complete

    def of_square(_: int, m: int, itemsize: int) -> MemoryEstimate:
        n = _side(m)
        matrix = MemoryEstimate(2 * n * n * itemsize, n * n * itemsize)
        return matrix if estimate is None else sequential(matrix, estimate(n, n, itemsize))

    points = as_points(X[None, :], device, of_square, checked=False)
    matrix = _square(points.values[0], device)
    complete = all_true(device.xp.isfinite(points.values)) or _checked(matrix, device)[1]  # which names the rows
    return replace(points, values=matrix), complete


def warn_of_distances(values: Array, device: Device) -> None:
    """Warn if points, (n, d), look like a matrix of distances, by the rule of SciPy's `linkage`, and are not all zero.

    For nearly all points the shape or the diagonal decides.
    """
    n, size = len(values), TILE[device.name]
    is_square = values.shape == (n, n) and n > 1 and values.dtype.kind in "biuf"
    if not (is_square and np.allclose(to_host(values.diagonal()), 0)):
        return
    tiles, largest = [slice(a, a + size) for a in range(0, n, size)], 0.0
    for i, rows in enumerate(tiles):
        for columns in tiles[i:]:
            upper, lower = (tile.astype("float64") for tile in (values[rows, columns], values[columns, rows].T))
            if not (all_true((upper >= 0) & (lower >= 0)) and all_true(abs(upper - lower) <= 1e-8 + 1e-5 * lower)):
                return
            largest = max(largest, float(upper.max()))
    if not largest:
        return
    from scipy.cluster.hierarchy import ClusterWarning  # SciPy's own, for whoever filters it

    warn(
        "X looks like a square matrix of distances, and its rows are taken for points: pass metric='precomputed' (in "
        "SciPy's linkage: pass squareform(X))",
        ClusterWarning,
    )


def _side(m: int) -> int:
    """The n of a condensed vector of m = n(n - 1)/2 distances."""
    n = (1 + isqrt(1 + 8 * m)) // 2
    if n * (n - 1) // 2 != m:
        raise ValueError(f"a condensed distance vector has n(n - 1)/2 entries for some n, got {m}")
    return n


def _square(condensed: Array, device: Device) -> Any:
    """The square matrix of a condensed vector."""
    n = _side(condensed.size)
    matrix = device.xp.zeros((n, n), condensed.dtype)
    for row in range(n - 1):
        start = row * (2 * n - row - 1) // 2
        matrix[row, row + 1 :] = condensed[start : start + n - row - 1]
    for a in range(0, n, TILE[device.name]):
        rows = slice(a, a + TILE[device.name])
        matrix[rows, :a] = matrix[:a, rows].T
        matrix[rows, rows] += matrix[rows, rows].T.copy()
    return matrix


def _checked(matrix: Array, device: Device) -> tuple[Any, bool]:
    """The matrix, symmetric to the last bit: itself, or a copy if only rounding makes it asymmetric.

    And whether all entries are finite.
    """
    n, size, xp = len(matrix), TILE[device.name], device.xp
    if matrix.shape != (n, n):
        raise ValueError(f"metric='precomputed' takes a square matrix or a condensed vector, got shape {matrix.shape}")
    is_symmetric = kernels(device).is_symmetric(matrix)  # else find where it is not
    tiles = [] if is_symmetric else [slice(a, min(a + size, n)) for a in range(0, n, size)]
    uneven, complete = [], True
    for i, rows in enumerate(tiles):
        for columns in tiles[i:]:
            for a, b in ((rows, columns), (columns, rows)):
                if not all_true(matrix[a, b] > -xp.inf):  # NaN is not
                    _raise_for_value(matrix[a, b], a, b, device)
                complete = complete and all_true(matrix[a, b] < xp.inf)
            if not all_true(matrix[rows, columns] == matrix[columns, rows].T):
                uneven.append((rows, columns))
    diagonal = abs(matrix.diagonal())
    if float(diagonal.max()) > 0 and float(diagonal.max()) > _rounding(matrix):
        u = int(diagonal.argmax())
        raise ValueError(
            f"X must hold distances: that of row {u} to itself is {float(matrix[u, u])!r}, not zero. Similarities s "
            "become distances as 1 - s, for example"
        )
    return (_mirrored(matrix, uneven, device) if uneven else matrix), complete


def _rounding(matrix: Array) -> float:
    """The largest rounding error of an entry; see `as_distances`."""
    largest = max(float(matrix.max()), -float(matrix.min()))
    if largest == np.inf:
        blocks = (abs(matrix[a : a + TILE["cpu"]]) for a in range(0, len(matrix), TILE["cpu"]))
        largest = max((float(block[block < np.inf].max()) for block in blocks if (block < np.inf).any()), default=0.0)
    return float(np.finfo(matrix.dtype).eps) ** 0.5 * largest


def _mirrored(matrix: Array, uneven: list[tuple[slice, slice]], device: Device) -> Any:
    """A copy with the entries above the diagonal mirrored below; raise if they differ by more than rounding."""
    xp = device.xp
    allowed, mirrored = _rounding(matrix), matrix.copy()
    for rows, columns in uneven:
        upper, lower = matrix[rows, columns], matrix[columns, rows].T
        with np.errstate(invalid="ignore"):
            differ = xp.abs(upper - lower) > allowed
        if not all_true(~differ):
            u, v = _first(differ, rows, columns, device)
            raise ValueError(
                f"X must be symmetric, but the distance of rows {u} and {v} is {float(matrix[u, v])!r} and that of "
                f"rows {v} and {u} is {float(matrix[v, u])!r}"
            )
        mirrored[columns, rows] = (xp.triu(upper) + xp.triu(upper, 1).T if rows == columns else upper).T
    return mirrored


def _raise_for_value(tile: Any, rows: slice, columns: slice, device: Device) -> None:
    u, v = _first(~(tile > -device.xp.inf), rows, columns, device)
    value = float(tile[u - rows.start, v - columns.start])
    raise ValueError(f"the distance of rows {u} and {v} is {value}: X must hold numbers, or infinity for no distance")


def _first(flags: Any, rows: slice, columns: slice, device: Device) -> tuple[int, int]:
    """The matrix' row and column of the first flag in a tile."""
    row, column = divmod(int(device.xp.flatnonzero(flags)[0]), flags.shape[1])
    return rows.start + row, columns.start + column

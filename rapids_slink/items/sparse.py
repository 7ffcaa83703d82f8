"""Sparse rows: matrices of numbers of which only the entries that are not zero are stored.

    matrix ──read──▶ SparseRows ──projection──▶ dense rows, whose pairs are found ──distances──▶ the pairs within

The metrics are those of dense rows, cosine and euclidean, with their bits: features that are zero in both rows change
no sum, so the terms of the others, in the order of the columns, are the whole sum. A dot product has two sums, of even
and of odd columns. One thing differs: two equal rows are at distance 0 by definition, where the cosine of dense rows
may leave a rounding error of up to 4e-16.

The projection leaves no pair out. The columns with the largest squares keep an axis each. The others are put into
buckets, each with an axis, on which a row has the norm of its part in the bucket. By the inequality of Cauchy and
Schwarz two rows' dot product on an axis is at least that of their parts in the bucket, and their norms stay. So

    ‖p(a) - p(b)‖² = ‖a‖² + ‖b‖² - 2p(a)·p(b) ≤ ‖a - b‖².

For cosine the rows are divided by their norms: ‖a - b‖² is then twice the distance. `_bound` bounds the roundings.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import frexp, hypot, inf, sqrt
from typing import Any, Self

import numpy as np

from rapids_slink.items.kind import Projection, StoredRows, cheapest_size, kernels, row_of_entries, stored_entries
from rapids_slink.metrics import EPSILON, EUCLIDEAN, OVERFLOW, Metric
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.points import is_sparse
from rapids_slink.points.output import OutputKind
from rapids_slink.runtime.device import Array, Device, all_true

#: The numbers of axes to choose from, the share of them that heavy columns take, and how many rows are sampled.
AXES, HEAVY, SAMPLE = tuple(2**i for i in range(5, 12)), 1 / 4, 128
#: The time of one step of a merge, in axes that are compared.
STEP_AXES = 100.0
#: Values of the projection that are summed at a time; the spacing of float32 above 1; and the least positive numbers
#: of float32 and of float64.
BLOCK, FLOAT32, LEAST_FLOAT32, LEAST = 2**24, 2.0**-23, 2.0**-149, 2.0**-1074


@dataclass(frozen=True)
class SparseRows(StoredRows):
    """n rows on a device; see `items.kind`."""

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """Return the rows of sparse matrices; entries that are stored twice are added up, as SciPy does.

        Raises ValueError if a value is not finite or so large that distances may overflow, or if a row has no distance.
        """
        xp = device.xp

        def check(values: Array, starts: Array, name: str) -> None:
            size = abs(values.astype("float64"))
            limit = metric.formula.largest_span(n_features) / 2
            if not values.size or bool(size.max() <= limit):
                return
            at = int((~(size <= limit)).argmax())
            row, value = int(xp.searchsorted(starts, xp.asarray(at), side="right")) - 1, float(values[at])
            if abs(value) < inf:
                raise ValueError(
                    f"{metric.name} distances may overflow float64: row {row} of {name} has the value {value:.3g}, and "
                    f"up to {limit:.3g} is valid. Rescale {name}."
                )
            raise ValueError(f"row {row} of {name} has the value {value}, which is not finite. Drop or fill it.")

        parts = {name: _canonical(OutputKind.of(X, device)[0]) for name, X in inputs.items()}
        n_features = max((int(X.shape[-1]) for X in parts.values() if is_sparse(X)), default=1)
        starts, columns, values, n_features = stored_entries(parts, device, check)
        values = values if values.dtype == "float32" else values.astype("float64", copy=False)
        rows = cls(metric, device, starts, columns, values, xp.zeros(0), n_features)
        every = xp.arange(len(rows), dtype="int32")
        dots = kernels(device).compare_rows("dot_products", rows, every, every)
        rows = replace(rows, norms=xp.sqrt(dots))
        if metric.name == "cosine":
            rows._check_norms([(name, int(X.shape[0])) for name, X in parts.items()])
        return rows

    def distances(self, src: Array, dst: Array, cutoff: float = inf) -> Array:
        """Return the distances of pairs, (m,) float64, to the bit those of the same dense rows; 0 for equal rows."""
        xp = self.device.xp
        if self.metric.name == "euclidean":
            return xp.sqrt(kernels(self.device).compare_rows("squared_distances", self, src, dst))
        return self._distances_of(kernels(self.device).compare_rows("dot_products", self, src, dst), src, dst)

    def _distances_of(self, dots: Array, src: Array, dst: Array) -> Array:
        """Return the cosine distances of pairs with these dot products."""
        xp = self.device.xp
        weight = 1.0 - xp.clip(dots / (self.norms[src] * self.norms[dst]), -1.0, 1.0)
        near = xp.nonzero(weight < 16 * EPSILON)
        equal = self.equal(*(xp.broadcast_to(end, weight.shape)[near] for end in (src, dst)))
        weight[near] = xp.where(equal, 0.0, weight[near])
        return weight

    def _bounds_of(self, dots: Array, src: Array, dst: Array) -> Array:
        """Return lower bounds on the euclidean distances of pairs with these dot products; see `_rounding`."""
        xp, square, (share, rest) = self.device.xp, self.norms * self.norms, self._rounding()
        squares = square[src] + square[dst]
        return xp.sqrt(xp.maximum(squares - 2 * dots - (share * squares + rest), 0.0))

    @cached_property
    def _most_entries(self) -> int:
        """Return an upper bound of the entries of two rows together."""
        return 2 * int((self.starts[1:] - self.starts[:-1]).max()) if len(self) else 0

    def _rounding(self) -> tuple[float, float]:
        """Return how far ‖a‖² + ‖b‖² - 2a·b is from ‖a - b‖², as a share of ‖a‖² + ‖b‖² and besides.

        Both are computed. Let m be the most entries of two rows, u = 2⁻⁵², and S = ‖a‖² + ‖b‖². Each of S and 2a·b is
        off by at most (m + 4)uS, since 2|a||b| ≤ S, and their difference by 4uS more. The sum of (m + 4) roundings of
        ‖a - b‖² ≤ 2S is off by at most 2(m + 4)uS. These are below 4(m + 8)uS, with room for the roundings of the bound
        itself. Products next to zero are off by up to 2⁻¹⁰⁷⁵ each besides.
        """
        m = self._most_entries
        return 4 * (m + 8) * EPSILON, 8 * (m + 8) * LEAST

    @cached_property
    def errors(self) -> Array | None:
        """Return the errors of the lower bounds on euclidean distances, (n,) float64; None by cosine."""
        square, (share, rest) = self.norms * self.norms, self._rounding()
        return None if self.metric.name == "cosine" else 3 * (share * (square + square.max()) + rest)

    def distances_of_rows(self, rows: Array, points: slice) -> Array:
        """Return the distances of some rows, (m,) int32, from a range of rows, (m, p) float64; by euclidean bounds."""
        dots = kernels(self.device).sums_of_rows(self, rows, points)
        distances_or_bounds = self._distances_of if self.metric.name == "cosine" else self._bounds_of
        return distances_or_bounds(dots, rows[:, None], self.device.xp.arange(points.start, points.stop, dtype="int32"))

    def projection(self, limit: float) -> Projection:
        """Return dense rows whose near pairs hold the pairs within a limit.

        Their axes are heavy columns, and buckets of the other columns.
        """
        scale = self._scale()
        values = self.dense_rows(self.suitable_axes(limit), scale)
        return Projection(values, EUCLIDEAN, self._bound(limit, values.shape[1], scale))

    def dense_rows(self, n_axes: int, scale: float) -> Array:
        """Return the rows on the axes of the projection, (n, d) float32; for euclidean multiplied by `scale`."""
        xp, n, column = self.device.xp, len(self), self.column_numbers
        row, count = row_of_entries(self.starts, self.device), int(column.max()) + 1 if column.size else 1
        value = self.values.astype("float64")
        value = value * scale if self.metric.name == "euclidean" else value / self.norms[row]
        if count <= n_axes:
            axis, n_heavy, n_axes = xp.arange(count), count, count
        else:
            n_heavy = int(HEAVY * n_axes)
            order = xp.argsort(-xp.bincount(column, weights=value * value, minlength=count))
            axis = xp.empty(count, "int64")
            axis[order] = xp.arange(count)
            light = axis >= n_heavy
            axis[light] = n_heavy + (axis[light] - n_heavy) % (n_axes - n_heavy)
        at, out = axis[column], xp.empty((n, n_axes), "float32")
        value = xp.where(at < n_heavy, value, value * value)
        for block in row_blocks(n, n_axes, BLOCK):
            own = slice(int(self.starts[block.start]), int(self.starts[block.stop]))
            place, size = (row[own] - block.start) * n_axes + at[own], (block.stop - block.start) * n_axes
            sums = xp.bincount(place, weights=value[own], minlength=size).reshape(-1, n_axes)
            sums[:, n_heavy:] = xp.sqrt(sums[:, n_heavy:])
            out[block] = sums
        return out

    def suitable_axes(self, limit: float) -> int:
        """Return the number of axes with which a search for pairs within a limit takes the least time, by a sample.

        The time is that of the axes of each pair, and of the steps of a merge of each pair that passes.
        """
        sample, first, second = self.sample(SAMPLE)
        steps, scale = 2 * STEP_AXES * float(sample.columns.size) / len(sample) / max(1, first.size), sample._scale()
        merged = steps * int((sample.distances(first, second) <= limit).sum())

        def measure(n_axes: int) -> tuple[float, float, bool]:
            rows = sample.dense_rows(n_axes, scale)
            squares = (rows * rows).sum(axis=1)
            gaps = squares[first] + squares[second] - 2 * (rows @ rows.T)[first, second]
            passes = gaps <= np.float64(sample._bound(limit, rows.shape[1], scale) + 1e-5)  # may be above float32
            return rows.shape[1], steps * int(passes.sum()), rows.shape[1] < n_axes

        return cheapest_size(AXES, merged, measure)

    def _bound(self, limit: float, n_axes: int, scale: float) -> float:
        """Return a bound on the surrogate distances of the dense rows of pairs within the limit.

        Let m be the most entries of two rows, and u = 2⁻⁵². The computed distance is off by at most (m + 8)u of
        itself for euclidean, and by (2m + 16)u for cosine: see `Metric.true_distance_bound`. So the true distance D of
        the rows, scaled or divided by their norms, is bounded. An entry of the dense rows is rounded in float64 by at
        most (m + 8)u of itself and to float32 by 2⁻²⁴ of itself, or by 2⁻¹⁵⁰ next to zero. No row is longer than 1 +
        (m + 8)u. So two rows move by at most 2(2⁻²⁴ + 2(m + 8)u) + 2√d 2⁻¹⁵⁰. Their squared distance is summed in
        float64, by d terms, each an error of at most u.

        Squares and products next to zero are off by up to 2⁻¹⁰⁷⁵ besides, a sum of them by m 2⁻¹⁰⁷⁵: for euclidean that
        adds to the squared distance, for cosine it is a share of the least squared norm.
        """
        m = self._most_entries
        error = (m + 8) * EPSILON
        if self.metric.name == "cosine":
            error += m * LEAST / float(self.norms.min()) ** 2 if len(self) else 0.0
            distance = sqrt(2 * max(0.0, limit + 2 * error)) if limit < 2 else 2.0
        else:
            distance = scale * hypot(limit * (1 + error), sqrt(m * LEAST))
        distance = distance * (1 + 8 * EPSILON) + FLOAT32 + 4 * error + 2 * sqrt(n_axes) * LEAST_FLOAT32
        return min(distance * distance * (1 + (n_axes + 8) * EPSILON), OVERFLOW)

    def _scale(self) -> float:
        """Return a power of two by which the longest row becomes at most as long as 1."""
        longest = float(self.norms.max()) if len(self) else 0.0
        return 2.0 ** -max(-1000, frexp(longest)[1])

    def _check_norms(self, inputs: list[tuple[str, int]]) -> None:
        """Raise unless every row has a cosine distance, as rows.py does for dense rows."""
        valid = (self.norms > 0) & (self.norms <= OVERFLOW**0.5 / 2)
        if all_true(valid):
            return
        row = int((~valid).argmax())
        what = "its squares sum to zero" if float(self.norms[row]) == 0 else "its values are too large"
        for name, length in inputs:
            if row < length:
                raise ValueError(f"row {row} of {name} has no cosine distance: {what}. Drop or rescale it.")
            row -= length


def _canonical(X: Any) -> Any:
    """Return a sparse matrix by rows, with ascending columns and one entry for each; anything else as it is."""
    if not is_sparse(X):
        return X
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows

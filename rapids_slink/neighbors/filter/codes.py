"""A GPU's filter of codes: how many features differ, by hashes of 16 bits, in tiles of rows and points (`codes.cu`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates, ExactPoints
from rapids_slink.neighbors.filter.direct import THREADS, TILE
from rapids_slink.neighbors.filter.product import SEEDS_BY_DISTANCE, TileFilter
from rapids_slink.runtime.cuda import check_arrays, launch_blocks, value_option
from rapids_slink.runtime.device import Array, Device

SOURCE = "neighbors/filter/codes.cu"
WARP = 32


@dataclass(frozen=True)
class HashedRows:
    """Rows as the filter's kernel reads them.

    Attributes
    ----------
    words : (n, width) uint32 array
        Two features' hashes in each.
    mask : (n, mask width) uint32 array
        The bits of the features that are present; empty if all are.
    present : (n,) int32 array
        Their number.
    """

    words: Array
    mask: Array
    present: Array

    def take(self, rows: Any) -> HashedRows:
        """Some rows (an index array or a slice)."""
        return HashedRows(self.words[rows], self.mask[rows], self.present[rows])


class CodeFilter(TileFilter):
    """The filter of codes.

    Parameters
    ----------
    exact : ExactPoints
        Of a metric whose filter is "codes".
    device : Device
    """

    name = "hashes of 16 bits"
    first_band = 4 * SEEDS_BY_DISTANCE

    def __init__(self, exact: ExactPoints, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact.metric, device)
        self.exact = exact
        self.options = *exact.metric.cuda_options, value_option(exact.points.dtype)
        self.n_features = exact.points.shape[1] - (exact.metric.rows == "counted")

    def quantize(self, values: Array, order: Array = None) -> HashedRows:
        """The hashes of the values of `order` (default: all)."""
        check_arrays(values.dtype, values)
        check_arrays("int32", order)
        n = len(values) if order is None else order.size
        width, mask_width = -(-self.n_features // 2), -(-self.n_features // WARP) * self.metric.missing
        words, mask = cp.empty((n, width), cp.uint32), cp.empty((n, mask_width), cp.uint32)
        arguments = values, np.int32(values.shape[1]), order, np.int32(width), np.int32(mask_width), words, mask
        launch_blocks(SOURCE, "put_hashes", (n,), WARP, *arguments, options=self.options)
        if self.metric.rows == "counted":
            present = (values if order is None else values[order])[:, -1].astype(cp.int32)
        else:
            present = cp.zeros(n, cp.int32)
        return HashedRows(words, mask, present)

    def radius(self, bound: Array, rows: HashedRows) -> Array:
        """The bounds themselves."""
        return bound

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, ids: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        check_arrays("uint32", rows.words, rows.mask, points.words, points.mask)
        check_arrays("float64", radius)
        check_arrays("int32", rows.present, points.present, *groups, ids, into.ids, into.count)
        (m, width), n = rows.words.shape, len(points.words)
        launch_blocks(
            SOURCE, "append_candidates", (-(-n // TILE), -(-m // TILE)), THREADS,
            rows.words, rows.mask, rows.present, np.int64(m), points.words, points.mask, points.present, np.int64(n),
            np.int32(width), np.int32(rows.mask.shape[1]), np.int32(self.n_features),
            radius, *groups, ids, np.int32(into.capacity), into.ids, into.count, options=self.options,
        )  # fmt: skip

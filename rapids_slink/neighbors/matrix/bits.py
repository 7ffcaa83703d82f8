"""The counts of common ones of all pairs of rows of bits: the launcher of `bits.cu`."""

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import WORD_BITS, ExactPoints
from rapids_slink.neighbors.filter.fused.counts import Bits
from rapids_slink.neighbors.filter.fused.launch import PIECE_BYTES, TILE, has_bit_products, padded
from rapids_slink.runtime.cuda import check_arrays, cuda_kernel
from rapids_slink.runtime.device import Array

THREADS, STAGES = 128, 2  # as in bits.cu
MAX_BITS = 2**16 - 1  # of a row, whose counts are stored in 16 bits


def counts_in_16_bits(words: int) -> bool:
    """Whether the GPU counts common ones, and rows of this number of words are no longer than `MAX_BITS`."""
    return has_bit_products() and WORD_BITS * words <= MAX_BITS


class CommonBits:
    """The counts of points and queries, rows of words and their numbers of ones, for a `MatrixSearch`."""

    name = "common bits (all pairs)"

    def __init__(self, points: Array, queries: Array, metric: Metric) -> None:
        self.n, self.is_among_points, self.dtype = len(points), queries is points, np.dtype("uint16")
        self.queries, self.encoding = queries, Bits(ExactPoints(queries, points, metric))
        self.options = *metric.bit_options, "-DCOMMON_BITS=1"
        self.row_bytes = self.encoding.atoms * PIECE_BYTES // TILE
        self.image = self._image(points, cp.arange(self.n, dtype=cp.int32))
        self.ones = tuple(cp.ascontiguousarray(part[:, -1]).astype(cp.uint16) for part in (queries, points))

    def put(self, rows: Array | None, out: Array) -> None:
        """Write the counts of some queries, or of all points, with all points."""
        check_arrays("uint16", out)
        image, m = (self.image, self.n) if rows is None else (self._image(self.queries, rows), rows.size)
        kernel = cuda_kernel("neighbors/matrix/bits.cu", "put_counts")
        kernel.max_dynamic_shared_size_bytes = shared = 2 * STAGES * PIECE_BYTES
        arguments = (
            image, np.int32(m), self.image, np.int32(self.n), np.int32(self.encoding.atoms), np.bool_(rows is None),
            np.int64(out.shape[1]), out,
        )  # fmt: skip
        kernel((-(-self.n // TILE), -(-m // TILE)), (THREADS,), arguments, shared_mem=shared)

    def _image(self, values: Array, rows: Array) -> Array:
        return self.encoding.encode(values, rows, padded(rows.size, TILE)).y

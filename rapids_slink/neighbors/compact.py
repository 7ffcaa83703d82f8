"""Rows of few distinct values in fewer bytes, for the same distances, to the bit.

    words    rows of zeros and ones: uint64, 64 features in each, and one more with the number of ones
    codes    rows of small integers for hamming, on a CPU: uint8 or uint16, 0 for a missing value

All that the formulas read of zeros and ones are counts, |a∩b|, |a| and |b|, and hamming compares for equality alone.
"""

from typing import Any

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import kernels, word_count
from rapids_slink.neighbors.slices import BLOCK, row_blocks
from rapids_slink.runtime.device import Array, Device, all_true

#: Formulas of counts.
OF_COUNTS = ("squared_euclidean", "manhattan", "braycurtis", "hamming", "jaccard", "cosine")  # cosine on a CPU alone
#: Up to this number of features a CPU's trees may search points, and matrix products take little time.
FEW_FEATURES = 64
EXACT = 2.0**52  # integers up to here, and their differences, are exact


def compact_rows(metric: Metric, values: Array, device: Device) -> Array | None:
    """The rows as words or codes if that is faster, otherwise None. `values` are valid for the metric."""
    if metric.rows not in ("given", "normed", "counted"):
        return None
    by_product = metric.filter == "product" or metric.boxes
    is_slow = not device.is_gpu and values.shape[1] > FEW_FEATURES if by_product else True
    if metric.formula in OF_COUNTS and is_slow and all(all_true((p == 0) | (p == 1)) for p in _parts(values)):
        words: Array = kernels(device).words_of(values)
        return words if metric.formula != "cosine" or all_true(words[:, -1] > 0) else None
    return None if device.is_gpu or metric.filter != "codes" else codes_of(metric, values)


def words_of_bytes(values: Array, device: Device) -> Array:
    """Rows of bits, eight in each uint8, as words."""
    xp, (n, d) = device.xp, values.shape
    words = xp.zeros((n, word_count(8 * d)), "uint64")
    words.view("uint8")[:, :d] = values
    bits_of_byte = np.unpackbits(np.arange(256, dtype="uint8")[:, None], axis=1)
    ones_of_byte = xp.asarray(bits_of_byte.sum(axis=1, dtype="uint8"))
    for rows in row_blocks(n, d, 8 * BLOCK):
        words[rows, -1] = ones_of_byte[values[rows]].sum(axis=1, dtype="uint64")
    return words


def codes_of(metric: Metric, values: np.ndarray) -> np.ndarray | None:
    """Rows of integers as codes; None if they are no integers or span too many."""
    n, d = values.shape
    least, largest, offset = np.inf, -np.inf, 1 if metric.missing else 0
    for part in _parts(values):
        here = part[part == part] if metric.missing else part
        if not (here == np.floor(here)).all():
            return None
        if here.size:
            least, largest = min(least, float(here.min())), max(largest, float(here.max()))
    is_counted = metric.rows == "counted"
    codes = max(largest - least + offset, d if is_counted else 0)
    if codes > np.iinfo("uint16").max or max(largest, -least) > EXACT:
        return None
    rows = np.zeros((n, d + is_counted), "uint8" if codes <= np.iinfo("uint8").max else "uint16")
    for block in row_blocks(n, d):
        part = values[block]
        present = part == part
        rows[block, :d] = np.where(present, part.astype("float64") - (least - offset), 0)
        if is_counted:
            rows[block, d] = present.sum(axis=1)
    return rows


def _parts(values: Array) -> Any:
    return (values[rows] for rows in row_blocks(*values.shape))

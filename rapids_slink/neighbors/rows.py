"""Points as the formula of their metric reads them.

    given            the rows themselves
    boolean          zeros and ones: the bits of uint64 words, followed by the number of ones
    packed           the same of uint8 rows, which hold eight bits each
    normed           float64, each row's features followed by its norm
    centred          the same of the rows minus their mean
    counted          each row's features followed by the number of its values that are not missing
    sphere           (x, y, z) of latitude and longitude
    placed           wrapped into a box, and columns in groups: see rapids_slink/settings.py

A mean is NumPy's (sums of eight lanes, in halves above 128 features) and the square of a norm is summed as a dot
product is; see `metrics`. Rows for which the metric is not defined are refused here.

Rows of few distinct values may take fewer bytes, for the same distances, to the bit:

    words    rows of zeros and ones: uint64, 64 features in each, and one more with the number of ones
    codes    rows of small integers for hamming, on a CPU: uint8 or uint16, 0 for a missing value

All that the formulas read of zeros and ones are counts, |a∩b|, |a| and |b|, and hamming compares for equality alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rapids_slink.metrics import MAX_ANGLE, OVERFLOW, Metric, Rows, in_chunks, sine_and_cosine, word_count
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import BLOCK_VALUES, row_blocks
from rapids_slink.points.check import warn
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.memory import free_bytes


def metric_rows(
    metric: Metric, values: Array, device: Device, *, name: str = "X", alone: bool = True, compact: bool = False
) -> Array:
    """Return the (n, d') array that the formula reads for the (n, d) array `values`, which is the argument `name`.

    `alone` is whether pairs are formed among these rows. `compact` is whether they are all the rows that are compared:
    then their values choose the form in which they are compared fastest; see `compact_rows`.

    Raises
    ------
    ValueError
        A row has no distance from others in this metric.
    """
    if metric.rows is Rows.SPHERE:
        return _on_sphere(values, name, device)
    if metric.rows is Rows.PLACED:
        return _in_space(values, metric.of_columns(None, values.shape[1]).space, device)
    if metric.rows is Rows.BOOLEAN:
        _require_booleans(values, metric, name, device)
    if metric.formula.is_undefined_for_zeros and (alone or metric.formula.is_undefined_for_zero):
        zeros = zero_rows(values, device)
        if zeros.size and metric.formula.is_undefined_for_zero:
            raise ValueError(f"row {int(zeros[0])} of {name} has no {metric.name} distance: it is zero in every column")
        if zeros.size > 1:
            raise undefined_for_zeros(f"rows {int(zeros[0])} and {int(zeros[1])} of {name}", metric)
    if metric.formula.is_undefined_without_common and alone:
        require_common_features(values, name, device)
    if metric.rows is Rows.PACKED:
        return words_of_bytes(values, device)
    if metric.rows is Rows.BOOLEAN:
        return kernels(device).words_of(values)
    if compact and (rows := compact_rows(metric, values, device)) is not None:
        return rows
    if metric.rows is Rows.COUNTED:
        count = (values == values).sum(axis=1, keepdims=True)
        return device.xp.concatenate((values, count.astype(values.dtype)), axis=1)
    if metric.formula.is_product:
        _require_finite_squares(values, metric, name, device)
    if not metric.rows.have_norms:
        return values
    rows = kernels(device).with_norms(values, metric.rows is Rows.CENTRED)
    _check_norms(rows, metric, name)
    return rows


def rows_of_both(metric: Metric, both: tuple[Array, Array], device: Device) -> tuple[Array, Array]:
    """Return `metric_rows` of X and of Y, the arrays `both`, for pairs of a row of X and a row of Y."""
    x, y = (metric_rows(metric, part, device, name=name, alone=False) for part, name in zip(both, "XY", strict=True))
    return x, y


def zero_rows(values: Array, device: Device) -> Array:
    """Return the numbers of the rows that are zero in every column."""
    return device.xp.flatnonzero(~values.any(axis=1))


def undefined_for_zeros(rows: str, metric: Metric) -> ValueError:
    """Return the error for two rows of zeros, which `rows` names."""
    return ValueError(f"{rows} are zero in every column: their {metric.name} distance is not defined. Drop one")


def check_zeros_between(x: Sequence[int], y: Sequence[int], metric: Metric) -> None:
    """Raise ValueError if there are rows x of X and y of Y, which are zero in every column and so have no distance."""
    if len(x) and len(y):
        raise undefined_for_zeros(f"row {int(x[0])} of X and row {int(y[0])} of Y", metric)


def in_one_type(x: Array, y: Array) -> tuple[Array, Array]:
    """Return two arrays in one type: both in float64 if their types differ."""
    return (x, y) if x.dtype == y.dtype else (x.astype("float64", copy=False), y.astype("float64", copy=False))


def bound_for_filter(metric: Metric, bound: float, *tables: Array) -> float:
    """Return a bound of surrogate distances, or infinity if no pair of rows of the tables is above it.

    A filter in float32 does not take bounds of any size. The metric has a product form.
    """
    if metric.formula.is_of_unit_rows:
        return bound if bound < 2 else np.inf
    d = tables[0].shape[1]
    # By columns CuPy takes thirty times as long, and a single block of threads reduces 2³¹ values or more at once.
    parts = [table[rows] for table in tables for rows in row_blocks(len(table), d, EXTREMES)]
    span = max(float(part.max()) for part in parts) - min(float(part.min()) for part in parts)
    return bound if bound < span * span * d else np.inf


def product_form(rows: Array, metric: Metric) -> Array:
    """Return rows whose Euclidean distance tells their surrogate distance: unit rows for cosine."""
    return rows[:, :-1] / rows[:, -1:] if metric.formula.is_of_unit_rows else rows


def norms_are_within(rows: Array, least: float, largest: float) -> bool:
    """Return whether the norms at the ends of rows, (n, d + 1) float64, are numbers above `least`, up to `largest`."""
    norm = rows[:, -1]
    return all_true((norm > least) & (norm <= largest))  # NaN is neither


def _on_sphere(values: Array, name: str, device: Device) -> Array:
    """Return the unit vectors, (n, 3) float64, of latitudes and longitudes in radians.

    Raise ValueError for angles out of range, and warn if a longitude seems to be in degrees.
    """
    if values.shape[1] != 2:
        raise ValueError(
            f"metric='haversine' takes two columns, latitude and longitude in radians; {name} has {values.shape[1]}"
        )
    latitude, longitude = values[:, 0].astype("float64"), values[:, 1].astype("float64")
    for angles, what, limit, limit_text in (
        (latitude, "latitudes", np.pi / 2 * (1 + 1e-6), "π/2"),  # as float32 rounds it
        (longitude, "longitudes", MAX_ANGLE, f"{MAX_ANGLE:.0f}"),
    ):
        size = abs(angles)
        if not bool(size.max() <= limit):
            row = int(size.argmax())
            raise ValueError(
                f"metric='haversine' takes {what} from -{limit_text} to {limit_text}: row {row} of {name} has "
                f"{float(angles[row]):g}. Latitude comes first; convert degrees to radians."
            )
    if float(size.max()) > 2 * np.pi * (1 + 1e-6):
        row = int(size.argmax())
        warn(
            f"row {row} of {name} has the longitude {float(longitude[row]):g}, and metric='haversine' takes radians: "
            "numpy.radians converts degrees"
        )
    return in_chunks(_unit_vectors, device, latitude, longitude)


def _unit_vectors(latitude: Array, longitude: Array, xp: Any) -> Array:
    (sin_lat, cos_lat), (sin_lon, cos_lon) = sine_and_cosine(latitude, xp), sine_and_cosine(longitude, xp)
    return xp.stack([cos_lat * cos_lon, cos_lat * sin_lon, sin_lat], axis=1)


def _in_space(values: Array, space: Any, device: Device) -> Array:
    """Return the columns in the order of the space, wrapped into its box; `values` itself if it is so already."""
    if space.columns != tuple(range(values.shape[1])):
        values = device.xp.ascontiguousarray(values[:, device.asarray(np.array(space.columns))])
    return kernels(device).wrapped(values, np.array(space.periods)) if min(space.periods) < np.inf else values


def _require_booleans(values: Array, metric: Metric, name: str, device: Device) -> None:
    other = device.xp.flatnonzero(((values != 0) & (values != 1)).any(axis=1))
    if other.size:
        raise ValueError(f"metric={metric.name!r} takes booleans (0, 1): row {int(other[0])} of {name} has others")


def require_common_features(values: Array, name: str, device: Device, numbers: Array = None) -> None:
    """Raise ValueError if no feature is present in both of some two rows; it gives their `numbers` in `name`."""
    if pair := _pair_without_common_feature(values, values, device):
        first, second = sorted(pair if numbers is None else (int(numbers[row]) for row in pair))
        raise ValueError(
            f"rows {first} and {second} of {name} have no feature that is present in both, so no distance. Drop "
            "one of them, or fill its missing values."
        )


def require_common_features_with(new: Array, fitted: Array, device: Device) -> None:
    """Raise ValueError if no feature is present in both a new and a fitted row."""
    pair = _pair_without_common_feature(new, fitted, device)
    if pair is None and (reverse := _pair_without_common_feature(fitted, new, device)):
        pair = reverse[::-1]
    if pair:
        raise ValueError(
            f"row {pair[0]} of X and row {pair[1]} of the fitted rows have no feature that is present in both, so no "
            "distance. Drop the row of X, or fill its missing values."
        )


def _pair_without_common_feature(values: Array, others: Array, device: Device) -> tuple[int, int] | None:
    """Return a row of `values` with at most half of all features, and one of `others` that has none of these, or None.

    Two rows with more than half of all features have one in common. `others` may be `values` itself.
    """
    xp, d = device.xp, values.shape[1]

    def present(array: Array, rows: slice | Array) -> Array:
        return (array[rows] == array[rows]).astype("float32")

    arrays = (values,) if others is values else (values, others)
    count = xp.concatenate([present(a, rows).sum(axis=1) for a in arrays for rows in row_blocks(len(a), d)])
    count, others_count = count[: len(values)], count[-len(others) :]
    few, eligible = xp.flatnonzero(2 * count <= d), xp.flatnonzero(others_count <= d - count.min())
    for rows in (few[block] for block in row_blocks(few.size, d)):
        is_present = present(values, rows)
        for columns in (eligible[block] for block in row_blocks(eligible.size, d)):
            without = is_present @ present(others, columns).T == 0
            if others is values:
                without &= rows[:, None] != columns
            if not all_true(~without):
                i, j = divmod(int(without.argmax()), columns.size)
                return int(rows[i]), int(columns[j])
    return None


def _require_finite_squares(values: Array, metric: Metric, name: str, device: Device) -> None:
    xp = device.xp
    largest = xp.maximum(values.max(axis=1), -values.min(axis=1)).astype("float64")
    limit = (OVERFLOW / (2 * values.shape[1])) ** 0.5
    if not bool(largest.max() <= limit):
        row = int(largest.argmax())
        raise ValueError(f"row {row} of {name} is too long for metric={metric.name!r}: rescale it")


def _check_norms(rows: Array, metric: Metric, name: str) -> None:
    """Raise ValueError unless every norm is a number above zero whose products with others are finite."""
    limit, norm = OVERFLOW**0.5 / 2, rows[:, -1]
    if norms_are_within(rows, 0.0, limit):
        return
    row = int((~((norm > 0) & (norm <= limit))).argmax())
    if float(norm[row]) != 0:
        what = "its values are too large"
    else:
        what = "its squares sum to zero" if metric.rows is Rows.NORMED else "all its values are equal"
    raise ValueError(f"row {row} of {name} has no {metric.name} distance: {what}. Drop or rescale it.")


EXTREMES = 2**30  # values of which the least and the largest are found at a time
#: Up to this number of features a CPU's trees may search points, and matrix products take little time.
FEW_FEATURES = 64
EXACT = 2.0**52  # integers up to here, and their differences, are exact


def compact_rows(metric: Metric, values: Array, device: Device) -> Array | None:
    """Return the rows as words or codes if that is faster, otherwise None; `values` are valid for the metric."""
    if metric.rows not in (Rows.GIVEN, Rows.NORMED, Rows.COUNTED):
        return None
    by_product = metric.filter == "product" or metric.boxes
    is_slow = not device.is_gpu and values.shape[1] > FEW_FEATURES if by_product else True
    if metric.formula.is_of_counts and is_slow and all(all_true((p == 0) | (p == 1)) for p in _parts(values)):
        words: Array = kernels(device).words_of(values)
        return words if not metric.formula.is_of_unit_rows or all_true(words[:, -1] > 0) else None
    return None if device.is_gpu or metric.filter != "codes" else codes_of(metric, values)


def words_of_bytes(values: Array, device: Device) -> Array:
    """Return rows of bits, eight in each uint8, as words: uint64, and one more with the number of ones."""
    xp, (n, d) = device.xp, values.shape
    words = xp.zeros((n, word_count(8 * d)), "uint64")
    words.view("uint8")[:, :d] = values
    bits_of_byte = np.unpackbits(np.arange(256, dtype="uint8")[:, None], axis=1)
    ones_of_byte = xp.asarray(bits_of_byte.sum(axis=1, dtype="uint8"))
    for rows in row_blocks(n, d, 8 * BLOCK_VALUES):
        words[rows, -1] = ones_of_byte[values[rows]].sum(axis=1, dtype="uint64")
    return words


def codes_of(metric: Metric, values: np.ndarray) -> np.ndarray | None:
    """Return rows of integers as codes, uint8 or uint16; None if they are no integers or span too many."""
    n, d = values.shape
    least, largest, offset = np.inf, -np.inf, 1 if metric.missing else 0
    for part in _parts(values):
        here = part[part == part] if metric.missing else part
        if not (here == np.floor(here)).all():
            return None
        if here.size:
            least, largest = min(least, float(here.min())), max(largest, float(here.max()))
    is_counted = metric.rows is Rows.COUNTED
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


#: The sample has SAMPLE_FACTOR √n rows. If every row occurs c times, about 8c pairs of the sample are equal.
SAMPLE_FACTOR = 4
#: All rows are compared if the sample has at least MIN_EQUAL equal pairs. That serves if MIN_REPEATED are repeated.
MIN_EQUAL, MIN_REPEATED = 16, 1 / 64
ID_BYTES = 16  # bytes of a row that are kept: which rows are distinct, which of them each row equals, how many each has


@dataclass(frozen=True)
class Copies:
    """The rows that are copies of earlier ones: equal rows are searched, and their pairs counted, once.

    Each row is entered into a table of open addressing by a hash of its values, and compared with the rows that are
    there. So equal rows share an entry, and different rows do not.
    """

    first: Array  # (m,) int32, the first row of each distinct one, ascending
    number: Array  # (n,) int32, which of the distinct rows each row equals
    count: Array  # (m,) int64, how many rows equal each distinct one, itself included

    @classmethod
    def of(cls, first_equal: Array, xp: Any) -> Self:
        """Return the copies among n rows, from the first row that each equals, (n,) int32."""
        first = xp.flatnonzero(first_equal == xp.arange(first_equal.size)).astype("int32")
        number = xp.searchsorted(first, first_equal).astype("int32")
        some = number.size > 0  # CuPy counts nothing in nothing
        return cls(first, number, xp.bincount(number, minlength=first.size) if some else xp.zeros(0, "int64"))

    @property
    def repeated(self) -> int:
        """Return the number of rows that are copies of earlier ones."""
        return int(self.number.size - self.first.size)


def find_repeats(values: Array, device: Device, max_distinct: float = np.inf) -> Copies | None:
    """Return which rows, as the metric's formula reads them, are copies of others; None if hardly any are.

    It is None as well if more than `max_distinct` rows are distinct.
    """
    n, own = len(values), kernels(device)
    if values.nbytes + ID_BYTES * n > free_bytes():  # a copy of most rows may come on top of another way's memory
        return None
    size = int(SAMPLE_FACTOR * n**0.5)
    gaps = np.random.default_rng(0).standard_exponential(size) * (n / size)
    rows = np.cumsum(gaps.astype("int64") + 1) - 1  # ascending, each row with nearly the same probability
    sample = np.sort(to_host(own.hash_rows(values, device.xp.asarray(rows[rows < n]))))
    if (sample[1:] == sample[:-1]).sum() < MIN_EQUAL:
        return None
    equal = own.equal_rows(values, int(min(max_distinct, n * (1 - MIN_REPEATED))))
    if equal is None:
        return None
    first, number, count = equal
    return Copies(first, number, count)

"""Rows of which some entries are stored: sets, and sparse rows of numbers.

Sets are rows of ones and zeros of which only the ones are stored.

    matrix or column ──read──▶ Sets ──projection──▶ rows of bits, whose pairs are found ──distances──▶ the pairs within

The metrics are those of rows of booleans: jaccard, dice and containment, functions of |a∩b|, |a| and |b|.

Rows of bits leave no pair out. Every element is hashed to a bit of the first part of a row, so a set a has p(a) ≤ |a|
ones there: elements may share a bit. In the second part the first |a| - p(a) bits are ones, so a row has |a| ones in
all. Let the first parts of two rows have c ones in common. Every element of a∩b falls on one of them. In a, only
|a| - p(a) elements fall on a bit that an earlier element has taken, so at most as many elements of a∩b do. Hence
|a∩b| ≤ c + |a| - p(a), likewise for b, and

    |a∩b| ≤ c + min(|a| - p(a), |b| - p(b)).

The right side is the number of ones that the two rows have in common in both parts. The distances fall as |a∩b| grows,
so the distance of the rows of bits is at most that of the sets. Each is one quotient, whose rounding keeps this order.

The second part may end early, so that a few large sets do not make all rows long. A set that lacks more ones is
*large*, and its row has fewer than |a| ones. With a set b that is not large it still has |b| - p(b) of the second part
in common, and the distances fall as a set loses elements that are not common. Only two large sets have no bound.

Keys leave no pair out either (Chaudhuri, Ganti and Kaushik, "A primitive operator for similarity joins", 2006). Let
elements be in one order for all sets, and let every pair within a distance have at least o(a) ≤ |a| elements in common,
where o(a) depends on a alone. The first of these in this order has at least o(a) - 1 others after it, so it is among
the first |a| - o(a) + 1 elements of a; likewise of b. These elements are the keys. In the order of how many sets have
an element, few sets share a key. Within a distance t, with s = 1 - t, the common elements are at least s|a| for
jaccard, s|a| / (1 + t) for dice, and s min(|a|, the size of the smallest set) for containment.

Sparse rows are rows of matrices of numbers, of which only the entries that are not zero are stored.

    matrix ──read──▶ SparseRows ──projection──▶ dense rows, whose pairs are found ──distances──▶ the pairs within

The metrics are those of dense rows, cosine and euclidean, with their bits: features that are zero in both rows change
no sum, so the terms of the others, in the order of the columns, are the whole sum. A dot product has two sums, of even
and of odd columns. One thing differs: two equal rows are at distance 0 by definition, where the cosine of dense rows
may leave a rounding error of up to 4e-16.

The projection leaves no pair out. The columns with the largest squares keep an axis each. The others are put into
buckets. Each bucket has an axis, and a row's coordinate on it is the norm of its part in the bucket. By the inequality
of Cauchy and Schwarz the product of two rows' coordinates is at least the dot product of their parts in the bucket, and
the rows keep their norms. So

    ‖p(a) - p(b)‖² = ‖a‖² + ‖b‖² - 2p(a)·p(b) ≤ ‖a - b‖².

For cosine the rows are divided by their norms: ‖a - b‖² is then twice the distance. `_bound` bounds the roundings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import frexp, hypot, inf, sqrt
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items import Items, Projection, entries_of, kernels, row_of_entries, without_features
from rapids_slink.metrics import EPSILON, EUCLIDEAN, METRICS, OVERFLOW, SET_METRICS, WORD_BITS, Metric, Rows
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.ordering import stable_order
from rapids_slink.points import is_sparse
from rapids_slink.points.check import LISTS, InputTypeError, check_shape, is_list_type
from rapids_slink.points.output import TABLES, OutputKind, is_collection, is_dataframe, library_of, number_of_rows
from rapids_slink.runtime.device import CPU, Array, Device, all_true, is_on_gpu, on_current_gpu, to_host

#: The metrics of sets, as they read packed rows of bits.
OF_BITS = {name: replace(METRICS[name], name=f"bit_{name}", rows=Rows.PACKED) for name in SET_METRICS}
#: The numbers of bits to which elements may be hashed, and how many rows are sampled to choose one, or the axes.
WIDTHS, SAMPLE = tuple(2**i for i in range(7, 17)), 128
#: The times of a step of a pass over two sets and of a pair that shares a key, on a CPU, in words of bits that are
#: compared; and the words of small sets.
STEP_WORDS, PAIR_WORDS, LEAST_WORDS = 8.0, 1e3, 4
#: The most that rounding takes from a number of common elements.
ROUNDING = 1e-6
#: The most keys of a set on average: more take longer than rows of bits.
MOST_KEYS = 160
#: The types of Python and NumPy that hold the elements of a set.
HOLDERS = (set, frozenset, list, tuple, np.ndarray)
#: A function that raises if the values, (m,), of rows with these starts are not valid for the argument of this name.
Check = Callable[[Array, Array, str], None]
#: The numbers of axes to choose from, and the share of them that heavy columns take.
AXES, HEAVY = tuple(2**i for i in range(5, 12)), 1 / 4
#: The time of one step of a pass over two rows, in axes that are compared.
STEP_AXES = 100.0
#: Values of the projection that are summed at a time; the spacing of float32 above 1; and the least positive numbers
#: of float32 and of float64.
BLOCK_VALUES, FLOAT32, LEAST_FLOAT32, LEAST = 2**24, 2.0**-23, 2.0**-149, 2.0**-1074


class Holders(NamedTuple):
    """The entries of some rows, stored column by column."""

    starts: Array  # (c + 1,) int64: where the entries of each number of a column begin; see `column_numbers`
    rows: Array  # (m,) int32, the row of each entry, ascending in each column
    values: Array  # (m,) float32 or float64; None for sets


@dataclass(frozen=True)
class StoredRows(Items):
    """The shared implementation of `Items` for sets and sparse rows: n rows on a device."""

    metric: Metric
    device: Device
    starts: Array  # (n + 1,) int64
    columns: Array  # int32 or int64; those of row i ascend from starts[i] to starts[i + 1], each once
    values: Array  # float32 or float64, none of them zero; None for sets
    norms: Array  # (n,) float64, as the cosine of dense rows has them; None for sets
    n_features: int
    possible_sizes: ClassVar[tuple[int, ...]]  # of projections
    step_bytes: ClassVar[
        float
    ]  # bytes of projected rows that are compared in the time of a step of a pass over two rows

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """Raise ValueError: a model that predicts takes rows of features."""
        raise ValueError(f"prediction_data=True takes the rows' features, and {without_features(metric)}")

    def take(self, rows: Array) -> Self:
        """Return these rows, in their order."""
        rows = self.device.asarray(rows, "int64")
        begins, at = entries_of(self.starts, rows, self.device)
        some = replace(self, starts=begins, columns=self.columns[at])
        return some if self.values is None else replace(some, values=self.values[at], norms=self.norms[rows])

    def hashes(self) -> Array:
        """Return a hash of each row, (n,) uint64, the same for equal rows."""
        return kernels(self.device).hash_rows(self)

    def equal(self, src: Array, dst: Array) -> Array:
        """Return whether both rows of each pair have the same entries, (m,) bool."""
        return kernels(self.device).compare_rows("equal_rows", self, src, dst)

    @cached_property
    def column_numbers(self) -> Array:
        """Return the number of each entry's column, (m,) integers, on a GPU int32, in the order of the columns.

        Only columns with entries are numbered, from 0 on, unless few columns are empty: then all columns are.
        """
        number = self.columns
        if not self.fit(min(4 * number.size + 1024, 2**31)):
            number = self.device.xp.unique(number, return_inverse=True)[1].reshape(-1)
        return number.astype("int32", copy=False) if self.device.is_gpu else number

    @cached_property
    def holders(self) -> Holders:
        """Return the rows that hold each column."""
        xp, number = self.device.xp, self.column_numbers
        row, entries = row_of_entries(self.starts, self.device).astype("int32"), stable_order(number, xp)
        begins = xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(xp.bincount(number))))
        return Holders(begins, row[entries], None if self.values is None else self.values[entries])

    def fit(self, width: int) -> bool:
        """Return whether all columns are numbers from 0 to below `width`."""
        return not self.columns.size or (int(self.columns.min()) >= 0 and int(self.columns.max()) < width)

    def projected(self, size: int, limit: float) -> Projection:
        """Return `projection` of rows of this number of bits or axes."""
        raise NotImplementedError

    def projection(self, limit: float) -> Projection:
        """Return rows of bits, or dense rows, whose near pairs include all pairs within a limit."""
        return self.projected(self.suitable_size(limit), limit)

    def suitable_size(self, limit: float) -> int:
        """Return the number of bits or axes with which a search for pairs within a limit takes the least time.

        The time is that of the bytes of each pair of projected rows, and of the steps of a pass over both rows of each
        pair that passes the test. Up to `SAMPLE` rows, evenly spread, tell it, so it is the same on either device.
        """
        some = self.take(np.linspace(0, len(self) - 1, min(len(self), SAMPLE)).astype(np.int64))
        arrays = {name: getattr(some, name) for name in ("starts", "columns", "values", "norms")}
        arrays = {name: CPU.asarray(array) for name, array in arrays.items() if array is not None}
        sample = replace(some, device=CPU, **arrays)
        first, second = (end.astype(np.int32) for end in np.triu_indices(len(sample), 1))
        steps = 2 * self.step_bytes * np.minimum(sample.sizes[first], sample.sizes[second]) / max(1, first.size)
        least = float(steps[sample.distances(first, second, limit) <= limit].sum())
        best, time = self.possible_sizes[0], inf
        for size in self.possible_sizes:
            values, metric, bound, _ = sample.projected(size, limit)
            lower = exact_kernels(CPU).all_distances(metric_rows(metric, values, CPU, alone=False), metric)
            pair_time = values[0].nbytes
            if (total := pair_time + float(steps[lower[first, second] <= bound].sum())) < time:
                best, time = size, total
            if pair_time + least >= time:  # more bits or axes cannot take less
                break
        return best


def ascending(starts: Array, columns: Array, device: Device) -> tuple[Array, Array]:
    """Return the starts and the columns, with those of each row in ascending order, each once.

    If they are so already, the arguments themselves are returned.
    """
    xp, row = device.xp, row_of_entries(starts, device)
    is_first = xp.ones(row.size, bool)
    is_first[1:] = row[1:] != row[:-1]
    if all_true(is_first[1:] | (columns[1:] > columns[:-1])):
        return starts, columns
    columns = kernels(device).sort_rows(starts, columns, row)
    is_first[1:] |= columns[1:] != columns[:-1]
    return xp.searchsorted(row[is_first], xp.arange(starts.size), side="left"), columns[is_first]


def stored_entries(inputs: dict[str, Any], device: Device, check: Check) -> tuple[Array, Array, Array, int]:
    """Return the nonzero entries of sparse matrices of SciPy or CuPy, one matrix after the other.

    They are the rows' starts, (n + 1,) int64, the columns and the values, (m,) each, in the order in which they are
    stored, and the number of columns. `check` sees the values before the zeros are dropped. Raises InputTypeError for
    what is no sparse matrix of numbers, and ValueError if the numbers of columns differ.
    """
    parts, widths = [], []
    for name, X in inputs.items():
        if not is_sparse(X):
            raise InputTypeError(f"{name} must be a sparse matrix as the other rows are, got {type(X).__name__}")
        if X.dtype.kind not in "biuf":
            what = "Complex data not supported" if X.dtype.kind == "c" else "X must hold numbers"
            raise InputTypeError(f"{what}: {name} has dtype {X.dtype}")
        if len(X.shape) != 2:
            raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead: {name}")
        rows = on_current_gpu(X).tocsr()
        check_shape(rows.shape, name)
        starts, columns = device.asarray(rows.indptr, "int64"), device.asarray(rows.indices)
        values = device.asarray(rows.data)
        check(values, starts, name)
        is_stored = values != 0
        if not all_true(is_stored):
            before = device.xp.concatenate((device.xp.zeros(1, "int64"), device.xp.cumsum(is_stored)))
            starts, columns, values = before[starts], columns[is_stored], values[is_stored]
        parts.append((starts, columns, values))
        widths.append(int(rows.shape[1]))
    if len(set(widths)) > 1:
        raise ValueError(f"X and Y must have the same number of features, got {' and '.join(map(str, widths))}")
    if len(parts) == 1:
        return *parts[0], widths[0]
    xp = device.xp
    sizes = xp.concatenate([starts[1:] - starts[:-1] for starts, *_ in parts])
    columns, values = (xp.concatenate([part[i] for part in parts]) for i in (1, 2))
    return xp.concatenate((xp.zeros(1, "int64"), xp.cumsum(sizes))), columns, values, widths[0]


# ----------------------------------------------------------------------------------------------------------------- sets


@dataclass(frozen=True)
class Sets(StoredRows):
    """n sets of numbered elements on a device; see `items`."""

    possible_sizes, step_bytes = WIDTHS, 8 * STEP_WORDS

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """Return the sets of all inputs, one input after the other.

        A row of a sparse matrix is the set of the columns in which it has a one. The elements of a column of sets are
        integers, or any hashable values; equal values are one element.

        Raises ValueError if a value is neither 0 nor 1, if a row or an element is missing, or if sets have no distance;
        InputTypeError if a row is no set, or an element is not hashable.
        """
        parts = {name: OutputKind.of(X, device)[0] for name, X in inputs.items()}
        if any(is_sparse(X) for X in parts.values()):
            starts, elements, n_features = _entries_of_matrices(parts, metric, device)
        else:
            starts, elements, n_features = *_elements_of_columns(parts, device), 1
        sets = cls(metric, device, *ascending(starts, elements, device), None, None, n_features)
        sets._check_empty(list(inputs), [number_of_rows(X) for X in parts.values()])
        return sets

    def distances(self, src: Array, dst: Array, cutoff: float = np.inf) -> Array:
        """Return the distances of the pairs, (m,) float64, to the bit those of the same rows of booleans."""
        common, sizes = kernels(self.device).compare_rows("count_common", self, src, dst), self.sizes
        return distances_of(self.metric, common, sizes[src], sizes[dst], self.device.xp)

    def distances_of_rows(self, rows: Array, points: slice) -> Array:
        """Return the distances of some sets, (m,) int32, from a range of sets, (m, p) float64."""
        common, sizes = kernels(self.device).sums_of_rows(self, rows, points), self.sizes
        return distances_of(self.metric, common, sizes[rows, None], sizes[points], self.device.xp)

    def keys_an_item(self, limit: float) -> float:
        """Return the mean number of keys of a set; infinite where rows of bits take less time, as on a GPU.

        On a CPU rows of bits take less time if sets have many keys, or if many pairs share one.
        """
        if limit >= 1 or self.device.is_gpu:  # at 1 sets without a common element are within the limit
            return np.inf
        mean, size = float(self._key_counts(limit).mean()), float(np.median(self.sizes))
        if mean > MOST_KEYS:
            return np.inf
        _, key = self.keys(limit, slice(0, len(self)))
        sharing = np.bincount(key.astype(np.int64)).astype(np.float64)
        pairs = float((sharing * (sharing - 1)).sum())
        by_bits = float(len(self)) ** 2 * (LEAST_WORDS + 2 * size / WORD_BITS)
        return mean if forced().items or pairs * (PAIR_WORDS + 2 * size * STEP_WORDS) <= by_bits else np.inf

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """Return the sets of a range, (k,) int32, and their keys, (k,) uint64.

        The keys of a set are its first elements in the order of how many sets have them.
        """
        xp, first = self.device.xp, self.starts[rows.start : rows.stop]
        ends = xp.cumsum(self._key_counts(limit)[rows])
        at = xp.arange(int(ends[-1]) if ends.size else 0, dtype="int64")
        row = xp.searchsorted(ends, at, side="right")
        before = xp.concatenate((xp.zeros(1, "int64"), ends))
        return (row + rows.start).astype("int32"), self._by_rarity[first[row] + at - before[row]].astype("uint64")

    def _key_counts(self, limit: float) -> Array:
        """Return the number of keys of each set, (n,) int64."""
        xp, share, sizes = self.device.xp, 1 - limit, self.sizes
        if self.metric.name == "dice":
            share /= 1 + limit
        least = xp.minimum(sizes, sizes.min()) if self.metric.name == "containment" else sizes
        common = xp.maximum(xp.ceil(share * least - ROUNDING), 1).astype("int64")
        return xp.maximum(sizes - common + 1, 0)

    @cached_property
    def _by_rarity(self) -> Array:
        """Return the elements of each set by the number of sets that have them, numbered in this order."""
        xp, counts = self.device.xp, self.device.xp.bincount(self.column_numbers)
        rank = xp.empty(counts.size, "int64")
        rank[xp.argsort(counts)] = xp.arange(counts.size)
        return ascending(self.starts, rank[self.column_numbers], self.device)[1]

    def projected(self, size: int, limit: float) -> Projection:
        """Return rows of bits whose near pairs include all pairs of sets within a limit."""
        bits, large = self.rows_of_bits(size)
        return Projection(bits, OF_BITS[self.metric.name], limit, large)

    def rows_of_bits(self, width: int) -> tuple[Array, Array]:
        """Return rows of bits, (n, d) uint8, and the large sets, (m,) integers: see the module.

        Unless both sets of a pair are large, the distance of their rows by `OF_BITS` is at most theirs. The first part
        of a row has `width` bits. If the elements are numbers below `width`, each has its own bit.
        """
        xp, n = self.device.xp, len(self)
        words, ones = kernels(self.device).hashed_bits(self, width, self.fit(width))
        lacking = self.sizes - ones
        order = xp.argsort(-lacking)
        n_large, longest = self._large_sets(to_host(lacking[order]), to_host(self.sizes[order]))
        large, more = order[:n_large], -(-longest // WORD_BITS)
        if not more:
            return words.view("uint8"), large
        count = xp.clip(lacking[:, None] - WORD_BITS * xp.arange(more), 0, WORD_BITS).astype("uint64")
        one, all_ones = np.uint64(1), np.uint64(2**WORD_BITS - 1)
        second = xp.where(count == WORD_BITS, all_ones, (one << xp.minimum(count, np.uint64(WORD_BITS - 1))) - one)
        bits = xp.ascontiguousarray(xp.concatenate((words, second.reshape(n, more)), axis=1)).view("uint8")
        return bits, large

    @staticmethod
    def _large_sets(lacking: np.ndarray, sizes: np.ndarray) -> tuple[int, int]:
        """Return how many sets are large, and the most ones that another lacks, so that all pairs take the least time.

        `lacking` descends. A further word of a row is compared for all pairs, and a further large set is compared with
        each set before it in a pass over both.
        """
        n = lacking.size
        large = np.concatenate(([0], np.cumsum(sizes[:-1]))) * np.maximum(np.arange(n) - 1, 0) * STEP_WORDS
        count = int((large + n * n / 2 * -(-lacking // WORD_BITS)).argmin())
        return count, int(lacking[count])

    def _check_empty(self, names: list[str], lengths: list[int]) -> None:
        """Raise ValueError if empty sets have no distance: by containment to any set, by dice to one another."""
        if self.metric.name == "jaccard" or all_true(self.sizes > 0):
            return
        begins = np.concatenate(([0], np.cumsum(lengths)))
        rows = to_host(self.device.xp.flatnonzero(self.sizes == 0))
        rows = rows[:2] if len(names) == 1 else rows[[0, -1]]  # of two inputs: the first and the last
        at = [int(part) for part in np.searchsorted(begins, rows, side="right") - 1]
        first, *others = (f"row {row - begins[i]} of {names[i]}" for row, i in zip(rows, at, strict=True))
        if self.metric.name == "containment":
            raise ValueError(f"{first} is an empty set, which has no containment distance. Drop it")
        if others and (len(names) == 1 or at[0] < at[1]):
            raise ValueError(f"{first} and {others[0]} are empty sets: their dice distance is not defined. Drop one")


def distances_of(metric: Metric, common: Array, sizes: Array, others: Array, xp: Any) -> Array:
    """Return the distances of pairs of sets by their sizes and numbers of common elements, all int64; see `metrics`."""
    if metric.name == "containment":
        either, distance_of_empty = xp.minimum(sizes, others), OVERFLOW
        differ = either - common
    else:
        differ, distance_of_empty = sizes + others - 2 * common, 0.0 if metric.name == "jaccard" else OVERFLOW
        either = sizes + others - common if metric.name == "jaccard" else sizes + others
    return xp.where(either > 0, differ / xp.maximum(either, 1), distance_of_empty)


# ------------------------------------------------------------------------------------------------------- the input


def holds_sets(X: Any) -> bool:
    """Return whether this is a sparse matrix, a list of Python's sets, or a column of lists or sets."""
    if is_sparse(X):
        return True
    if is_collection(X):  # its values are not there yet
        return False
    if isinstance(X, list | tuple):
        return isinstance(next((row for row in X if not _is_missing(row)), None), set | frozenset)
    if library_of(X) in TABLES:
        return any(str(kind).lower().startswith(LISTS) for kind in _column_types(X))
    if is_dataframe(X):
        return any(holds_sets(X.iloc[:, i]) for i, kind in enumerate(X.dtypes) if kind.kind == "O")
    kind = getattr(X, "dtype", None)
    if kind is None or getattr(X, "ndim", 0) != 1:
        return False
    if is_list_type(kind):
        return True
    if kind != np.dtype(object) or is_on_gpu(X):
        return False
    return isinstance(next((row for row in X if not _is_missing(row)), None), HOLDERS)


def _is_missing(row: Any) -> bool:
    return row is None or row is CPU.frames.NA or (isinstance(row, float) and row != row)


def _column_types(table: Any) -> list[Any]:
    """Return a list of the types of the columns of a table of Polars or Arrow, or of the type of one column."""
    if hasattr(table, "schema"):
        return list(table.schema.types if hasattr(table.schema, "types") else table.schema.values())
    return [table.dtype if hasattr(table, "dtype") else table.type]


def _values(X: Any, name: str) -> list[Any]:
    """Return the rows of a column or a list; raise InputTypeError for several columns."""
    if is_dataframe(X):
        if X.shape[1] != 1:
            raise InputTypeError(f"{name} must be one column of sets, got a frame of {X.shape[1]} columns")
        X = X.iloc[:, 0]
    if not isinstance(X, list | tuple) and getattr(X, "ndim", 1) != 1:
        raise InputTypeError(f"{name} must be a column of sets as the other rows are, got {X.ndim} dimensions")
    return list(X.to_pandas() if library_of(X) == "cudf" else X)


def _entries_of_matrices(inputs: dict[str, Any], metric: Metric, device: Device) -> tuple[Array, Array, int]:
    """Return the starts and the columns of the ones of each row, and how many columns there are."""

    def check(values: Array, starts: Array, name: str) -> None:
        is_other = (values != 0) & (values != 1)
        if not all_true(~is_other):
            row = int(device.xp.searchsorted(starts, is_other.argmax(), side="right")) - 1
            raise ValueError(f"metric={metric.name!r} takes booleans (0, 1): row {row} of {name} has others")

    starts, elements, _, n_features = stored_entries(inputs, device, check)
    return starts, elements, n_features


def _elements_of_columns(inputs: dict[str, Any], device: Device) -> tuple[Array, Array]:
    """Return the starts of the rows of columns of sets, and the elements as numbers, in the order of each row."""
    rows: list[Any] = []
    owners: list[str] = []
    for name, X in inputs.items():
        values = _values(X, name)
        check_shape((len(values), 1), name)
        for i, row in enumerate(values):
            if not isinstance(row, HOLDERS) or getattr(row, "ndim", 1) != 1:
                raise _no_set(row, f"row {i} of {name}")
        is_bit = (isinstance(bit, Real | np.bool_) and bit in (0, 1) for row in values for bit in row)
        if len(values[0]) > 2 and len(set(map(len, values))) == 1 and all(is_bit):
            raise InputTypeError(
                f"{name} holds vectors of 0 and 1, not sets of elements: numpy.stack({name}) makes an array of a column"
            )
        rows += values
        owners += [f"row {i} of {name}" for i in range(len(values))]
    starts = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
    elements = _integers(rows)
    if elements is None:
        elements = _numbered(rows, starts, owners)
    return device.asarray(starts), device.asarray(elements)


def _no_set(row: Any, what: str) -> Exception:
    if _is_missing(row):
        return ValueError(f"{what} is missing (null or NaN): drop or fill it")
    return InputTypeError(f"{what} must be a set or a list of elements, got {row!r}")


def _integers(rows: list[Any]) -> np.ndarray | None:
    """Return all elements as int64, those above its range as negative ones; None unless all are integers from 0 on."""
    held = [row for row in rows if len(row)]
    if not held:
        return np.empty(0, np.int64)
    if all(isinstance(row, np.ndarray) and row.dtype.kind in "iu" for row in held):
        if any(row.dtype.kind == "i" and row.min() < 0 for row in held):
            return None
        return np.concatenate([row.astype(np.uint64, copy=False) for row in held]).view(np.int64)
    flat = list(chain.from_iterable(held))
    if not all(kind is int or issubclass(kind, np.integer) for kind in set(map(type, flat))):
        return None
    if min(flat) < 0 or max(flat) >= 2**64:
        return None
    return np.fromiter(flat, np.uint64, len(flat)).view(np.int64)


def _numbered(rows: list[Any], starts: np.ndarray, owners: list[str]) -> np.ndarray:
    """Return a number for each element, int32, the same for equal ones."""
    flat = np.empty(int(starts[-1]), object)
    flat[:] = list(chain.from_iterable(row.tolist() if isinstance(row, np.ndarray) else row for row in rows))
    try:
        numbers: np.ndarray = CPU.frames.factorize(flat)[0].astype(np.int32)
    except TypeError as error:
        raise InputTypeError(f"the elements of sets must be hashable: {error}") from error
    if (numbers < 0).any():
        row = int(np.searchsorted(starts, (numbers < 0).argmax(), side="right")) - 1
        raise ValueError(f"{owners[row]} holds a missing element (null or NaN): drop it")
    return numbers


# ---------------------------------------------------------------------------------------------------------- sparse rows


@dataclass(frozen=True)
class SparseRows(StoredRows):
    """n rows on a device; see `items`."""

    possible_sizes, step_bytes = AXES, 4 * STEP_AXES

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
        return 2 * int(self.sizes.max()) if len(self) else 0

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

    def projected(self, size: int, limit: float) -> Projection:
        """Return dense rows whose near pairs include all pairs within a limit.

        An axis is a heavy column or a bucket of other columns.
        """
        scale = self._scale()
        values = self.dense_rows(size, scale)
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
        for block in row_blocks(n, n_axes, BLOCK_VALUES):
            own = slice(int(self.starts[block.start]), int(self.starts[block.stop]))
            entry, size = (row[own] - block.start) * n_axes + at[own], (block.stop - block.start) * n_axes
            sums = xp.bincount(entry, weights=value[own], minlength=size).reshape(-1, n_axes)
            sums[:, n_heavy:] = xp.sqrt(sums[:, n_heavy:])
            out[block] = sums
        return out

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

"""Sets: rows of ones and zeros of which only the ones are stored.

    matrix or column ──read──▶ Sets ──projection──▶ rows of bits, whose pairs are found ──distances──▶ the pairs within

The metrics are those of rows of booleans: jaccard, dice and containment, functions of |a∩b|, |a| and |b|.

Rows of bits leave no pair out. Every element is hashed to one of some bits, and a set a has the bits of its elements.
These are p(a) ≤ |a| ones. As many more as are lacking, |a| - p(a), are the first ones of a second part of the row. So a
row has |a| ones. Let two rows have c ones of the first part in common. An element of a∩b falls on one of them. As many
elements of a as lack ones, |a| - p(a), fall on a bit that another element has taken, and so at most as many of a∩b.
Hence |a∩b| ≤ c + |a| - p(a), likewise for b, and

    |a∩b| ≤ c + min(|a| - p(a), |b| - p(b)),

the ones that the two rows have in common in both parts. The distances fall as |a∩b| grows, so that of the rows of bits
is at most that of the sets; rounding, of one quotient each, keeps this order.

So that a few large sets do not make all rows long, the second part may end early. A set that lacks more ones is
*large*, and its row has fewer than |a| ones. With a set b that is not large it still has |b| - p(b) of the second part
in common, and the distances fall as a set loses elements that are not common. Only two large sets have no bound.

Keys leave no pair out either (Chaudhuri, Ganti and Kaushik, "A primitive operator for similarity joins", 2006). Let
elements be in one order for all sets, and let every pair within a distance have at least o(a) ≤ |a| elements in common,
where o(a) depends on a alone. The first of these in this order has at least o(a) - 1 others after it, so it is among
the first |a| - o(a) + 1 elements of a; likewise of b. These elements are the keys. In the order of how many sets have
an element, few sets share a key. With s = 1 - t the common elements are at least s|a| for jaccard, s|a| / (1 + t) for
dice, and s min(|a|, the size of the smallest set) for containment.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.items.kind import Projection, StoredRows, ascending, cheapest_size, kernels, stored_entries
from rapids_slink.metrics import METRICS, OVERFLOW, SET_METRICS, WORD_BITS, Metric, Rows
from rapids_slink.points import is_sparse
from rapids_slink.points.check import LISTS, InputTypeError, check_shape, is_list_type
from rapids_slink.points.output import TABLES, OutputKind, is_collection, is_dataframe, library_of, number_of_rows
from rapids_slink.runtime.device import CPU, Array, Device, all_true, is_on_gpu, to_host

#: The metrics of sets, as they read packed rows of bits.
OF_BITS = {name: replace(METRICS[name], name=f"bit_{name}", rows=Rows.PACKED) for name in SET_METRICS}
#: The numbers of bits to which elements may be hashed, and how many sets are sampled to choose one.
WIDTHS, SAMPLE = tuple(2**i for i in range(7, 17)), 128
#: The time of one step of a merge, and of a pair that shares a key, on a CPU, in words of bits that are compared; and
#: the words of small sets.
STEP_WORDS, PAIR_WORDS, LEAST_WORDS = 8.0, 1e3, 4
#: The most that rounding takes from a number of common elements.
ROUNDING = 1e-6
#: The most keys of a set on average: more take longer than rows of bits.
MOST_KEYS = 160
#: The types of Python and NumPy that hold the elements of a set.
HOLDERS = (set, frozenset, list, tuple, np.ndarray)


@dataclass(frozen=True)
class Sets(StoredRows):
    """n sets of numbered elements on a device; see `items.kind`."""

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
            starts, elements, n_features = _of_matrices(parts, metric, device)
        else:
            starts, elements, n_features = *_of_columns(parts, device), 1
        sets = cls(metric, device, *ascending(starts, elements, device), None, None, n_features)
        sets._check_empty(list(inputs), [number_of_rows(X) for X in parts.values()])
        return sets

    @property
    def sizes(self) -> Array:
        """Return the number of elements of each set, (n,) int64."""
        return self.starts[1:] - self.starts[:-1]

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

    def projection(self, limit: float) -> Projection:
        """Return rows of bits whose near pairs hold the pairs of sets within a limit."""
        bits, large = self.rows_of_bits(self.suitable_width(limit))
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

        `lacking` descends. A further word of a row is compared for all pairs, and a further large set is merged with
        each set before it.
        """
        n = lacking.size
        merges = np.concatenate(([0], np.cumsum(sizes[:-1]))) * np.maximum(np.arange(n) - 1, 0) * STEP_WORDS
        count = int((merges + n * n / 2 * -(-lacking // WORD_BITS)).argmin())
        return count, int(lacking[count])

    def suitable_width(self, limit: float) -> int:
        """Return the number of bits with which a search for pairs within a limit takes the least time, by a sample.

        The time is that of the words of bits of each pair, and of the steps of a merge of each pair that passes. The
        result is the same for the same sets on either device.
        """
        sample, first, second = self.sample(SAMPLE)
        sizes, n_pairs = sample.sizes, max(1, first.size)
        steps = 2 * STEP_WORDS * np.minimum(sizes[first], sizes[second]) / n_pairs
        merged = float(steps[sample.distances(first, second) <= limit].sum())

        def measure(width: int) -> tuple[float, float, bool]:
            bits, _ = sample.rows_of_bits(width)
            unpacked = np.unpackbits(bits, axis=1).astype(np.float32)
            common = (unpacked @ unpacked.T).astype(np.int64)[first, second]
            passes = distances_of(self.metric, common, sizes[first], sizes[second], np) <= limit
            return bits.shape[1] * 8 / WORD_BITS, float(steps[passes].sum()), self.fit(width)

        return cheapest_size(WIDTHS, merged, measure)

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


def _of_matrices(inputs: dict[str, Any], metric: Metric, device: Device) -> tuple[Array, Array, int]:
    """Return the starts and the columns of the ones of each row, and how many columns there are."""

    def check(values: Array, starts: Array, name: str) -> None:
        is_other = (values != 0) & (values != 1)
        if not all_true(~is_other):
            row = int(device.xp.searchsorted(starts, is_other.argmax(), side="right")) - 1
            raise ValueError(f"metric={metric.name!r} takes booleans (0, 1): row {row} of {name} has others")

    starts, elements, _, n_features = stored_entries(inputs, device, check)
    return starts, elements, n_features


def _of_columns(inputs: dict[str, Any], device: Device) -> tuple[Array, Array]:
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

"""Strings: edits, and the differing characters of equally long ones.

A character is a code point, as in Python's ``len``. The store has the characters of all strings one after the other,
numbered from 0 in their order. Input is a Series or column of pandas, cuDF, Polars or Arrow, an array or a list. All
Python strings are encoded at once, four bytes a character; strings of cuDF stay on their GPU.

Keys. Two strings within t edits become equal if up to t characters of each are deleted: from the one those that an edit
replaces or deletes, from the other those that an edit replaces or inserts. So the strings that are left after deletions
of up to t characters are keys. For equally long strings that differ at up to t positions, a key also has the positions
that are left out. The two keys that leave out the differing positions are equal.

The hash of a string x is Σ (x[i] + 1) rⁱ modulo 2⁶⁴, r odd. Deleting a character divides what follows by r, which is a
multiplication by the inverse of r, so that a hash with deletions takes a few operations on sums of prefixes.

Projection. For edits characters are hashed into buckets, and each bucket has as many ones as characters of the string,
up to a largest number. An edit changes the counts of up to two buckets by one. For differing characters each position
with its character sets one bit, so one difference changes up to two bits. In both cases the hamming distance of the
bits is at most 2t. Counts above the largest number, and characters that share a bit, only make it smaller.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, inf
from typing import Any, Self

import numpy as np

from rapids_slink.items import Items, Projection, entries_of, kernels
from rapids_slink.metrics import ITEM_METRICS, METRICS, Metric
from rapids_slink.points.check import MAX_ROWS, InputTypeError
from rapids_slink.points.output import OutputKind, column_names, is_dataframe, library_of
from rapids_slink.report import counted, listed
from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu

#: With more deletions, strings are searched by their projections, or a GPU stores all distances if they take at most
#: LIMITED_STEPS steps, which are a fifth of a second.
MOST_DELETED, LIMITED_STEPS = 2, 2**35
#: The number of buckets of characters. A bucket has up to FEW_ONES to MANY_ONES ones, by the strings' mean length.
#: Positions with their characters are hashed to PLACE_BITS bits.
BUCKETS, FEW_ONES, MANY_ONES, PLACE_BITS = 32, 4, 32, 256
LEVENSHTEIN, STRING_HAMMING = ITEM_METRICS["levenshtein"], ITEM_METRICS["string_hamming"]
#: The largest cutoff that a kernel takes.
NO_CUTOFF = 2**31 - 1
#: Strings that are encoded at a time.
ENCODED = 2**20


@dataclass(frozen=True)
class Strings(Items):
    """Strings on a device; an `Items`."""

    codes: Array  # (characters,) int32, the number of each character
    starts: Array  # (n + 1,) int64: where each string begins in `codes`, and their end
    metric: Metric
    device: Device
    n_characters: int  # how many numbers there are
    n_features: int = 1

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """Return the strings of all inputs, one input after the other; see `characters_of` for the errors."""
        xp, parts = device.xp, [characters_of(X, metric, device, name) for name, X in inputs.items()]
        points = parts[0][0] if len(parts) == 1 else xp.concatenate([part for part, _ in parts])
        lengths = parts[0][1] if len(parts) == 1 else xp.concatenate([part for _, part in parts])
        starts = xp.zeros(lengths.size + 1, "int64")
        xp.cumsum(lengths, out=starts[1:])
        occurs = xp.zeros(int(points.max()) + 1 if points.size else 0, "int32")
        occurs[points] = 1
        codes = (xp.cumsum(occurs) - 1).astype("int32")[points]
        return cls(codes, starts, metric, device, int(occurs.sum()))

    @classmethod
    def kept(cls, X: Any, metric: Metric, device: Device) -> np.ndarray:
        """Return the strings of an input, (n,) Python objects."""
        column, _ = column_of(X, metric, device, "X")
        return _objects(column.to_pandas() if library_of(column) == "cudf" else column).copy()

    @cached_property
    def longest(self) -> int:
        """Return the length of the longest string, 0 if there is none."""
        return int(self.sizes.max()) if len(self) else 0

    def take(self, rows: Array) -> Self:
        """Return the strings of these rows, in their order."""
        starts, at = entries_of(self.starts, rows, self.device)
        return replace(self, codes=self.codes[at], starts=starts)

    def classes(self) -> Array | None:
        """Return the strings' lengths, if only equally long strings are compared; None for edits."""
        return None if self.metric is LEVENSHTEIN else self.sizes

    def hashes(self) -> Array:
        """Return a hash of each string, (n,) uint64, the same for equal strings."""
        return kernels(self.device).hash_strings(self)

    def equal(self, src: Array, dst: Array) -> Array:
        """Return whether both strings of each pair are equal, (m,) bool."""
        return kernels(self.device).differences(self, src, dst, 0) == 0

    def distances(self, src: Array, dst: Array, cutoff: float = inf) -> Array:
        """Return the distance of each pair, (m,) float64, infinite above the cutoff."""
        cutoff = floor(min(cutoff, NO_CUTOFF))
        find = kernels(self.device).edits if self.metric is LEVENSHTEIN else kernels(self.device).differences
        return find(self, src, dst, cutoff)

    @cached_property
    def distance_type(self) -> np.dtype:
        """Return the type of small integers that hold the distances; float64 for very long strings.

        A CPU takes no bytes, so that its kernels are compiled once.
        """
        kind = np.promote_types(np.min_scalar_type(self.longest), "uint8" if self.device.is_gpu else "uint16")
        return kind if kind.itemsize <= 2 else np.dtype("float64")

    @cached_property
    def table(self) -> Array:
        """Return the characters of equally long strings, (n, longest), as numbers from 1 on in the smallest type."""
        width = max(1, self.longest)
        kind = np.min_scalar_type(self.n_characters)
        codes = (self.codes + 1).astype(kind if kind.itemsize <= 2 else "float64")
        return codes.reshape(len(self), -1) if codes.size else self.device.xp.ones((len(self), width), "uint8")

    def distances_of_rows(self, rows: Array, points: slice) -> Array:
        """Return the distances of some strings, (m,) int32, from a range of strings of their class, (m, p)."""
        on_device = kernels(self.device)
        find = on_device.edits_of_rows if self.metric is LEVENSHTEIN else on_device.differences_of_rows
        return find(self, rows, points)

    def is_stored(self, limit: float) -> bool:
        """Return whether there is no limit, or a GPU finds all edits soon and the limit is too large for keys."""
        is_soon = self.device.is_gpu and self.metric is LEVENSHTEIN and limit >= MOST_DELETED + 1
        return limit == inf or (is_soon and kernels(self.device).steps(self) <= LIMITED_STEPS)

    def keys_an_item(self, limit: float) -> float:
        """Return the mean number of keys of a string, for pairs within a limit; infinite if the limit is too large."""
        return inf if limit >= MOST_DELETED + 1 else float(self._counts(floor(limit), slice(0, len(self))).mean())

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """Return the strings of a range, (k,) int32, each once for each of its keys, and the keys, (k,) uint64."""
        xp, deleted = self.device.xp, floor(limit)
        counts = self._counts(deleted, rows)
        ends = xp.cumsum(counts)
        total = int(ends[-1]) if ends.size else 0
        item, key = xp.empty(total, "int32"), xp.empty(total, "uint64")
        kernels(self.device).make_keys(self, rows, deleted, ends - counts, item, key)
        return item, key

    def _counts(self, deleted: int, rows: slice) -> Array:
        """Return how many keys each string of a range has, int64."""
        n = self.sizes[rows]
        return 1 + (deleted > 0) * n + (deleted > 1) * (n * (n - 1) // 2)

    def projection(self, limit: float) -> Projection:
        """Return rows of bits whose near pairs include all pairs of strings within a limit."""
        n, ones = len(self), 0
        if self.metric is LEVENSHTEIN:
            mean = self.codes.size / max(1, n)
            ones = int(min(MANY_ONES, max(FEW_ONES, 2 ** round(np.log2(max(mean / 4, 1))))))
        bits = BUCKETS * ones if ones else PLACE_BITS
        values = kernels(self.device).project_strings(self, ones, BUCKETS, bits)
        return Projection(values, METRICS["bit_hamming"], 2.0 * floor(limit))


# ------------------------------------------------------------------------------------------------------------ the input


def characters_of(X: Any, metric: Metric, device: Device, name: str) -> tuple[Array, Array]:
    """Return the code points of all strings, one after the other, (c,) int32, and the strings' lengths, (n,) int64.

    Raises InputTypeError for an input without text, and ValueError for nulls, several columns, and no or too many rows.
    """
    column, label = column_of(X, metric, device, name)
    if not len(column):
        raise ValueError(f"{name} has no rows")
    if len(column) > MAX_ROWS:
        raise ValueError(f"up to {MAX_ROWS} rows are possible, got {len(column)}")
    if library_of(column) == "cudf":
        if column.dtype.kind not in "OT" or getattr(column, "str", None) is None:
            raise InputTypeError(f"metric={metric.name!r} takes text, and {label} has dtype {column.dtype}")
        if missing := int(column.isna().sum()):
            raise _null_error(label, missing)
        if device.is_gpu:
            points = column.str.code_points().values.astype("int32")
            return _decoded(points, device), column.str.len().values.astype("int64")
        column = column.to_pandas()
    values = _objects(column)
    _check(values, metric, label)
    strings = values.tolist()
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    encoded = [
        "".join(strings[i : i + ENCODED]).encode("utf-32-le", "surrogatepass") for i in range(0, len(strings), ENCODED)
    ]
    points = np.frombuffer(encoded[0] if len(encoded) == 1 else b"".join(encoded), np.int32)
    return device.asarray(points), device.asarray(lengths)


def _objects(column: Any) -> np.ndarray:
    return column.to_numpy(dtype=object) if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)


def column_of(X: Any, metric: Metric, device: Device, name: str) -> tuple[Any, str]:
    """Return the one column of text, a Series or a one-dimensional array, and what messages call it."""
    X, _ = OutputKind.of(X, device)
    if is_dataframe(X):
        if X.shape[1] != 1:
            held = f"{name} has {counted(X.shape[1], 'column')}"
            advice = f": pass one of [{listed(X)}], and others as groups" if X.shape[1] else ""
            raise ValueError(f"metric={metric.name!r} takes one column of text, and {held}{advice}")
        return X.iloc[:, 0], f"column {column_names(X)[0]!r} of {name}"  # type: ignore[index]
    if library_of(X):
        return X, name if X.name is None else f"column {X.name!r} of {name}"
    if is_on_gpu(X) or isinstance(X, str | bytes | Set | Mapping) or not hasattr(X, "__len__"):
        raise InputTypeError(f"metric={metric.name!r} takes text, and {name} is of type {type(X).__name__}")
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise _null_error(name, int(np.ma.count_masked(X)))
    if not hasattr(X, "dtype"):
        column = np.empty(len(X), object)
        column[:] = [x[0] if isinstance(x, list | tuple) and len(x) == 1 else x for x in X]
        return column, name
    if X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if X.ndim != 1:
        raise ValueError(f"metric={metric.name!r} takes one column of text, and {name} has shape {tuple(X.shape)}")
    return X, name


def _check(values: np.ndarray, metric: Metric, label: str) -> None:
    """Raise unless all objects are strings."""
    kinds = set(map(type, values))
    if kinds <= {str}:
        return
    missing = int(CPU.frames.isna(values).sum())
    if missing:
        raise _null_error(label, missing)
    row = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
    if row is not None:
        raise InputTypeError(
            f"metric={metric.name!r} takes text, and {label} holds {values[row]!r} in row {row}, of type "
            f"{type(values[row]).__name__}"
        )


def _null_error(label: str, missing: int) -> ValueError:
    return ValueError(f"{label} has {counted(missing, 'null')}: drop these rows, or fill them with a text")


def _decoded(words: Array, device: Device) -> Array:
    """Return the code points of characters in UTF-8, int32.

    The bytes of each character come as one number, its first byte in the highest place, as cuDF stores them.
    """
    if not words.size:
        return words
    words, at = device.xp.unique(words.view("uint32"), return_inverse=True)
    encoded = (word.to_bytes(4, "big").lstrip(b"\0") or b"\0" for word in words.tolist())
    points = np.array([ord(character.decode()) for character in encoded], np.int32)
    return device.asarray(points)[at.reshape(-1)]

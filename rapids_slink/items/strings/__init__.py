"""Strings: edits, and the differing characters of equally long ones.

A character is a code point, as in Python's ``len``. The store has the characters of all strings one after the other,
numbered from 0 in their order.

Keys. Of two strings within t edits each becomes a common one by deleting up to t characters: those that an edit
replaces or deletes, of the one, and those that it replaces or inserts, of the other. So the strings that deletions of
up to t characters make are keys. Of two equally long strings that differ in up to t places all keys are equal that
leave out these places: t places of each are left out in every way.

The hash of a string x is Σ (x[i] + 1) rⁱ modulo 2⁶⁴, r odd. Deleting a character divides what follows by r, which is a
multiplication by the inverse of r, so that a hash with deletions takes a few operations on sums of prefixes.

Projection. Of edits: characters are hashed into buckets, and a bucket's count in a string is as many ones, up to a
largest number. An edit changes the counts of up to two buckets by one. Of differing characters: a place with its
character sets one bit, so one difference changes up to two bits. Both ways hamming's distance of the bits is at most
2t. What a largest count and shared bits hide makes it smaller.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import floor, inf
from typing import Any, Self

import numpy as np

from rapids_slink.items.kind import Projection
from rapids_slink.items.strings.read import characters_of, strings_of
from rapids_slink.metrics import ITEM_METRICS, METRICS, Metric
from rapids_slink.runtime.device import Array, Device, half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: Strings with more keys, on average, are searched by their projections.
MOST_DELETED = 2
#: Buckets of characters, the most ones of a bucket, by the strings' mean length, and bits of places with characters.
BUCKETS, FEW_ONES, MANY_ONES, PLACE_BITS = 32, 4, 32, 256
LEVENSHTEIN, STRING_HAMMING = ITEM_METRICS["levenshtein"], ITEM_METRICS["string_hamming"]
#: The most edits that a kernel takes for a cutoff.
NO_CUTOFF = 2**31 - 1


@dataclass(frozen=True)
class Strings:
    """Strings on a device; an `Items`."""

    codes: Array  # (characters,) int32, the number of each character
    starts: Array  # (n + 1,) int64: where each string begins in `codes`, and their end
    metric: Metric
    device: Device
    n_characters: int  # how many numbers there are
    n_features: int = 1

    @classmethod
    def serves(cls, metric: Metric, X: Any) -> bool:
        """See `Items`: whatever the input is, so that numbers are refused by the metric's name."""
        return metric in (LEVENSHTEIN, STRING_HAMMING)

    @classmethod
    def read(cls, inputs: dict[str, Any], metric: Metric, device: Device) -> Self:
        """See `Items`."""
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
        """See `Items`: (n,) objects."""
        return strings_of(X, metric, device)

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    @property
    def lengths(self) -> Array:
        """(n,) int64."""
        return self.starts[1:] - self.starts[:-1]

    @cached_property
    def longest(self) -> int:
        """The length of the longest one."""
        return int(self.lengths.max()) if len(self) else 0

    def take(self, rows: Array) -> Self:
        """See `Items`."""
        xp, lengths = self.device.xp, self.lengths[rows]
        starts = xp.zeros(lengths.size + 1, "int64")
        xp.cumsum(lengths, out=starts[1:])
        codes = xp.empty(int(starts[-1]), "int32")
        kernels(self.device).copy_strings(self, rows.astype("int32"), starts, codes)
        return replace(self, codes=codes, starts=starts)

    def classes(self) -> Array | None:
        """See `Items`: lengths, if only equal ones are compared."""
        return None if self.metric is LEVENSHTEIN else self.lengths

    def hashes(self, seed: int) -> Array:
        """See `Items`."""
        return kernels(self.device).hash_strings(self, seed)

    def equal(self, src: Array, dst: Array) -> Array:
        """See `Items`."""
        return kernels(self.device).differences(self, src, dst, 0) == 0

    def distances(self, src: Array, dst: Array, cutoff: float = inf) -> Array:
        """See `Items`."""
        most = floor(min(cutoff, NO_CUTOFF))
        find = kernels(self.device).edits if self.metric is LEVENSHTEIN else kernels(self.device).differences
        return find(self, src, dst, most)

    def keys_an_item(self, limit: float) -> float:
        """See `Items`."""
        return inf if limit >= MOST_DELETED + 1 else float(self._counts(floor(limit), slice(0, len(self))).mean())

    def keys(self, limit: float, rows: slice) -> tuple[Array, Array]:
        """See `Items`."""
        xp, deleted = self.device.xp, floor(limit)
        counts = self._counts(deleted, rows)
        ends = xp.cumsum(counts)
        total = int(ends[-1]) if ends.size else 0
        item, key = xp.empty(total, "int32"), xp.empty(total, "uint64")
        make = kernels(self.device).delete_characters
        if self.metric is STRING_HAMMING:
            make = kernels(self.device).mask_characters
        make(self, rows, deleted, ends - counts, item, key)
        return item, key

    def _counts(self, deleted: int, rows: slice) -> Array:
        """How many keys each string of a range has, int64."""
        n = self.lengths[rows]
        if self.metric is LEVENSHTEIN:
            return 1 + (deleted > 0) * n + (deleted > 1) * (n * (n - 1) // 2)
        deleted = self.device.xp.minimum(n, deleted)
        return self.device.xp.where(deleted == 2, n * (n - 1) // 2, self.device.xp.where(deleted == 1, n, 1))

    def projection(self, limit: float) -> Projection:
        """See `Items`."""
        n, ones = len(self), 0
        if self.metric is LEVENSHTEIN:
            mean = self.codes.size / max(1, n)
            ones = int(min(MANY_ONES, max(FEW_ONES, 2 ** round(np.log2(max(mean / 4, 1))))))
        bits = BUCKETS * ones if ones else PLACE_BITS
        values = kernels(self.device).project(self, ones, BUCKETS, bits)
        return Projection(values, METRICS["bit_hamming"], 2.0 * floor(limit))

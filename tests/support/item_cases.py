"""Strings, sets and sparse rows: some of each, and the distances of their definitions."""

import random
from functools import cache
from math import inf

import numpy as np
import pandas as pd
import pytest
from oracles import squared_distances
from scipy import sparse

STRINGS, SETS, SPARSE = ("levenshtein", "string_hamming"), ("jaccard", "dice", "containment"), ("cosine", "euclidean")
ITEM_METRICS = (*STRINGS, *SETS, *SPARSE)
EVERY_STRING_METRIC, EVERY_SET_METRIC, EVERY_SPARSE_METRIC, EVERY_ITEM_METRIC = (
    pytest.mark.parametrize("metric", metrics) for metrics in (STRINGS, SETS, SPARSE, ITEM_METRICS)
)
SPECIAL = [
    "", "a", "b", "é", "e\u0301", "😀", "😀a", "a😀", "ab", "", "\0", "日本語", "日本", "😀😁", "😁😀", "a" * 63,
    "a" * 64, "a" * 65, "b" + "a" * 64, "a" * 64 + "b", "ab" * 64, "ba" * 64, "a" * 128, "a" * 129,
    "xyz" * 70,
]  # fmt: skip


def edits(a, b):
    """The table of Wagner and Fischer, row by row."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def differing(a, b):
    return sum(x != y for x, y in zip(a, b, strict=True)) if len(a) == len(b) else inf


def of_sets(a, b, metric):
    common, smaller = len(a & b), min(len(a), len(b))
    if metric == "containment":
        return (smaller - common) / smaller
    total = len(a | b) if metric == "jaccard" else len(a) + len(b)
    return (len(a) + len(b) - 2 * common) / total if total else 0.0


def of_rows(X, Y, metric):
    """One operation after the other, in the order of the columns."""
    if metric == "euclidean":
        return np.sqrt(squared_distances(X, Y))
    lengths = np.sqrt(dots(X, X).diagonal())[:, None] * np.sqrt(dots(Y, Y).diagonal())
    return np.where((X[:, None] == Y).all(axis=2), 0, 1 - np.clip(dots(X, Y) / lengths, -1, 1))


def dots(X, Y):
    sums, d = np.zeros((2, len(X), len(Y))), X.shape[1]
    for i in range(d - d % 2):
        sums[i % 2] += X[:, i, None] * Y[:, i]
    return sums[0] + sums[1] + (X[:, -1, None] * Y[:, -1] if d % 2 else 0.0)


@cache
def _table(x, y, metric):
    distance = {"levenshtein": edits, "string_hamming": differing}.get(metric, lambda a, b: of_sets(a, b, metric))
    if x == y:  # each pair once
        lower = [[distance(a, b) if j <= i else 0.0 for j, b in enumerate(x)] for i, a in enumerate(x)]
        distances = np.maximum(lower, np.transpose(lower))
    else:
        distances = np.array([[distance(a, b) for b in y] for a in x], float)
    distances.flags.writeable = False
    return distances


def table(metric, x, y=None):
    """The distances of all pairs of two collections, or of one with itself, (n, m)."""
    y = x if y is None else y
    if metric in SPARSE:
        return of_rows(*(np.asarray(part, float) for part in (x, y)), metric)
    return _table(*(tuple(map(frozenset, part) if metric in SETS else part) for part in (x, y)), metric)


def pairs_within(distances, limit):
    """The pairs of one collection within a distance, as the package has them."""
    src, dst = np.nonzero(np.triu(distances <= limit, 1))
    return pd.DataFrame({"src": src.astype("int32"), "dst": dst.astype("int32"), "weight": distances[src, dst]})


def all_ends(n):
    """Both ends of all pairs of n items, each with itself, too."""
    return (end.astype(np.int32) for end in np.indices((n, n)).reshape(2, -1))


def words(n, letters="ABC", longest=9, seed=0):
    """Random words, some of which are equal or one edit from others."""
    rng = random.Random(seed)
    made = ["".join(rng.choices(letters, k=rng.randint(0, longest))) for _ in range(n // 2)]
    for _ in range(n - len(made)):
        word = rng.choice(made)
        at = rng.randint(0, len(word))
        made.append(rng.choice((word, word[:at] + rng.choice(letters) + word[at + rng.randint(0, 1) :], word[1:])))
    return made


def families(n, elements=3000, seed=0):
    """Sets of one to a hundred elements: some equal, some alike, some within others."""
    rng = np.random.default_rng(seed)
    made = [set(rng.integers(0, elements, rng.integers(1, 100)).tolist()) for _ in range(n // 2)]
    while len(made) < n:
        own = sorted(made[rng.integers(n // 2)])
        kept = set(own[: rng.integers(1, len(own) + 1)])
        made.append(kept | set(rng.integers(0, elements, rng.choice([0, 0, 3, 20])).tolist()))
    return made


def matrix(sets, columns=3000, kind=sparse.csr_matrix, dtype=bool):
    X = np.zeros((len(sets), columns), dtype)
    for row, held in zip(X, sets, strict=True):
        row[list(held)] = 1
    return kind(X)


def rows(n, d, share=0.1, seed=0, dtype=np.float64):
    """Rows of which a share of the values is not zero: equal ones, parallel ones, and ones that differ a little."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < share, rng.normal(size=(n, d)), 0)
    X[~X.any(axis=1), 0] = 1
    X[n // 2 : n // 2 + 4], X[n // 2 + 4] = X[:4], 3 * X[5]
    X[n // 2 + 5 : -4] += np.where(rng.random((n - n // 2 - 9, d)) < 0.02, 0.1, 0) + 0.0
    X[n // 2 + 5 : -4] = np.where(X[: n - n // 2 - 9] != 0, X[: n - n // 2 - 9] * (1 + 0.02 * rng.normal()), 0)
    return X.astype(dtype)


def some_items(metric, n, seed=0):
    if metric in STRINGS:
        return words(n, seed=seed)
    return families(n, seed=seed) if metric in SETS else rows(n, 91, seed=seed)


def tied_items(metric, n, seed=0):
    """Items of which many are equal, and many distances, too."""
    rng = np.random.default_rng(seed)
    if metric in STRINGS:
        return words(n, letters="AB", longest=4, seed=seed)
    if metric in SETS:
        return [set(rng.integers(0, 6, rng.integers(1, 5)).tolist()) for _ in range(n)]
    X = rng.integers(-1, 2, (n, 5)).astype(float)
    X[~X.any(axis=1), 0] = 1
    X[::4] *= 3
    return X


def forms(metric, values, way=None):
    """The collections in which the package takes them; one of them for a prescribed way."""
    if metric in SPARSE:
        found = [sparse.csr_matrix(values), sparse.csr_array(values)]
    else:
        found = [values, matrix(values)] if metric in SETS else [values]
    return found[-1:] if way else found

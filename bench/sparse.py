"""Sets and sparse rows for the benchmark: sketches of genomes, and counted words of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.blocks import as_rows

SEED = 20230918
#: Columns of a matrix of sets: the possible hashes.
HASHES = 2**31 - 1


@as_rows
def sketches(n: int, size: int, family: int = 8) -> Any:
    """Draw sets of `size` hashes, like the sketches of Mash: a boolean CSR matrix of SciPy.

    Each sketch of a family shares so many hashes with the family's first one that their Jaccard similarity is from 0.5
    to 0.9.
    """
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(SEED)
    hashes = rng.integers(0, HASHES, (n, size), np.int32)
    for rows in range(0, n, family):
        first = hashes[rows]
        for row in range(rows + 1, min(rows + family, n)):
            similarity = rng.uniform(0.5, 0.9)
            shared = int(2 * size * similarity / (1 + similarity))
            hashes[row, :shared] = rng.choice(first, shared, replace=False)
    hashes.sort(axis=1)
    matrix = csr_matrix(
        (np.ones(n * size, bool), hashes.ravel(), np.arange(0, n * size + 1, size, dtype=np.int64)), (n, HASHES)
    )
    matrix.sum_duplicates()
    return matrix


@as_rows
def tfidf(n: int, d: int, length: int = 150, family: int = 5) -> Any:
    """Draw unit rows of words by Zipf's law, (n, d) float64: a CSR matrix.

    They are weighted as by scikit-learn's ``TfidfVectorizer``. The first text of a family has a fifth of its words
    replaced in each of the others.
    """
    from scipy.sparse import csr_matrix, diags

    rng = np.random.default_rng(SEED)
    frequency = np.cumsum(1 / np.arange(1, d + 1))
    words = np.searchsorted(frequency, rng.random((n, length)) * frequency[-1]).astype(np.int32)
    first = np.arange(n) // family * family
    kept = (rng.random((n, length)) < 0.8) | (first == np.arange(n))[:, None]
    words = np.where(kept, words[first], words)
    words[np.arange(length) >= rng.poisson(0.8 * length, n)[first, None]] = -1
    row, at = np.nonzero(words >= 0)
    counts = csr_matrix((np.ones(row.size), (row, words[row, at])), (n, d))
    counts.sum_duplicates()
    rarity = np.log((1 + n) / (1 + np.bincount(counts.indices, minlength=d))) + 1
    weighted = csr_matrix(counts @ diags(rarity))
    return csr_matrix(diags(1 / np.sqrt(weighted.multiply(weighted).sum(axis=1)).A1) @ weighted)


@as_rows
def zipf(n: int, d: int, size: int, *, are_sets: bool) -> Any:
    """Draw rows of `size` of d columns by Zipf's law, (n, d): a CSR matrix.

    They are booleans, or normal float64 numbers.
    """
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(SEED)
    frequency = np.cumsum(1 / np.arange(1, d + 1))
    draws = np.searchsorted(frequency, rng.random((n, 4 * size)) * frequency[-1]).astype(np.int32)
    columns = np.array([np.sort(list(dict.fromkeys(row.tolist()))[:size]) for row in draws], np.int32)
    values = np.ones(n * size, bool) if are_sets else rng.standard_normal(n * size)
    return csr_matrix((values, columns.ravel(), np.arange(0, n * size + 1, size)), (n, d))

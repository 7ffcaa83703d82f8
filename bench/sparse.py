"""Sets and sparse rows for the benchmark: sketches of genomes, and counted words of texts."""

from typing import Any

import numpy as np

#: Columns of hashes.
HASHES = 2**31 - 1


def sketches(n: int, size: int, family: int = 8) -> Any:
    """A boolean CSR matrix of n sets of `size` hashes, like the sketches of Mash.

    Families have a first sketch, of which the others share so many hashes that their Jaccard similarity is from 0.5 to
    0.9.
    """
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
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


def tfidf(n: int, d: int, length: int = 150, family: int = 5) -> Any:
    """A CSR matrix, (n, d) float64, of unit rows: words of Zipf's law, as scikit-learn's ``TfidfVectorizer`` has them.

    Of each family of texts the others have a fifth of the words of the first one replaced.
    """
    from scipy.sparse import csr_matrix, diags

    rng = np.random.default_rng(0)
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

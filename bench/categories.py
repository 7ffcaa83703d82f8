"""Bits and categories: molecular fingerprints, and allele profiles of bacteria."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.blocks import Rows, as_rows, in_blocks

SEED = 20230918
BLOCK = 2**13  # rows that one generator draws
ALLELES = 300
RARE = 10  # bit f has the popularity 1 / (f + RARE)
#: Shares of loci at which a genome differs from the founder of its family, and how often each occurs.
MUTATIONS = (0.001, 0.005, 0.02, 0.1), (0.4, 0.3, 0.2, 0.1)


@as_rows
def fingerprints(n: int, d: int, members: int = 16) -> np.ndarray:
    """Draw sparse bits of skewed popularity, bool.

    They are families of about `members` rows, with up to 92 ones in each row.
    """
    cumulated = np.cumsum(1 / (np.random.default_rng(SEED).permutation(d) + RARE))
    cumulated /= cumulated[-1]
    points = np.zeros((n, d), bool)
    families = max(1, n // members)
    scaffold_size = np.random.default_rng(SEED + 1).integers(3, 80, families)
    shares = [np.random.default_rng([SEED, 1, family]).random(size) for family, size in enumerate(scaffold_size)]
    scaffolds = np.split(np.searchsorted(cumulated, np.concatenate(shares)), np.cumsum(scaffold_size)[:-1])

    def draw(at: slice) -> None:
        rng, block = np.random.default_rng([SEED, at.start]), points[at]
        for row, family in zip(block, rng.integers(0, families, len(block)), strict=True):
            own = np.searchsorted(cumulated, rng.random(rng.integers(1, 12)))
            row[scaffolds[family]] = True
            row[own] ^= True
            row[own[:1]] = True

    in_blocks(draw, n, BLOCK)
    return points


def packed(bits: Rows) -> Rows:
    """Return a function that packs eight bits into each uint8, as `numpy.packbits` does."""

    def rows(folder: Path | None, extra: int) -> np.ndarray:
        return np.packbits(bits(folder, extra), axis=1)

    return rows


@as_rows
def profiles(n: int, loci: int, gaps: float = 0.0, members: int = 50) -> np.ndarray:
    """Draw alleles, numbered from 1, int16.

    They are families of about `members` genomes with mutations. A share `gaps` of the alleles is missing: 0.
    """
    points = np.empty((n, loci), np.int16)
    founders = np.random.default_rng(SEED).integers(1, ALLELES, (max(1, n // members), loci), np.int16)

    def draw(at: slice) -> None:
        rng, block = np.random.default_rng([SEED, at.start]), points[at]
        block[...] = founders[rng.integers(0, len(founders), len(block))]
        share = rng.choice(MUTATIONS[0], len(block), p=MUTATIONS[1])
        chance = rng.random(block.shape, np.float32)
        mutated = chance < share[:, None]
        block[mutated] = rng.integers(1, ALLELES, int(mutated.sum()), np.int16)
        if gaps:
            block[rng.random(block.shape, np.float32) < gaps] = 0

    in_blocks(draw, n, BLOCK)
    return points

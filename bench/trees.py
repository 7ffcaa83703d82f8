"""Trees of known shapes with random weights, for the stages that start from a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SEED = 20240114
Joins = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Tree:
    """A tree whose nodes are numbered, and whose edges are listed, in no order.

    Attributes
    ----------
    name : str
    n : int
        Nodes.
    joins : callable
        ``joins(i, rng)`` gives the node below i that each node i of 1..n-1 hangs at, before they are renumbered.
    n_clusters : int
        Where it is cut.
    """

    name: str
    n: int
    joins: Joins
    n_clusters: int = 10

    def edges(self) -> dict[str, np.ndarray]:
        """Return the columns ``src``, ``dst`` (int32) and ``weight`` (float64, uniform in [0, 1)), n - 1 rows."""
        rng = np.random.default_rng(SEED)
        nodes = np.arange(1, self.n)
        number = rng.permutation(self.n).astype(np.int32)
        row = rng.permutation(self.n - 1)
        src, dst = number[self.joins(nodes, rng)[row]], number[nodes[row]]
        return {"src": src, "dst": dst, "weight": rng.random(self.n - 1)}


def chain(i: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    return i - 1


def star(i: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    return np.zeros_like(i)


def caterpillar(i: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    """Return the node that each node hangs at: odd nodes form a path, and one even node hangs at each of them."""
    return np.where(i % 2 == 1, np.maximum(i - 2, 0), i - 1)


def random(i: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the node that each node hangs at: any earlier one."""
    return (rng.random(i.size) * i).astype(np.int64)


def balanced(i: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    return (i - 1) // 2


MILLION = 1_000_001  # a million edges
TREES = (
    Tree("chain-1m", MILLION, chain),
    Tree("star-1m", MILLION, star),
    Tree("caterpillar-1m", MILLION, caterpillar),
    Tree("random-1m", MILLION, random),
    Tree("balanced-1m", MILLION, balanced),
    Tree("random-24m", 24_000_000, random),
)

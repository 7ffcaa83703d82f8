"""Ways that a test or a benchmark prescribes, in place of those that the package chooses.

    with force(search="tiles", connect="rounds"):
        model = fit(X)

Every way has the same result. So this says how the work is done and no more, and no public function takes it. It holds
for the calls of the thread in the block. What is None is chosen as ever, and so is what does not serve the points: no
tree of boxes bounds a cosine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Forced:
    """The ways that are prescribed; each field is read by the one who chooses among its values."""

    #: to the tree: "line", "pairs", "repeats", "boxes" or "lists", by `spanning_tree.ways`. Other than by "friends"
    #: labels alone are those of the tree, and of groups all are large, unless it is "pairs"
    tree: str | None = None
    #: of neighbours, by `neighbors`: "all pairs", "tree", "tiles", "tiles for lists", which all pairs connect, or
    #: "few queries", which a GPU has
    search: str | None = None
    #: of all pairs, by `neighbors.filter`: "none", "products" of all features, "axes" of a projection; on a GPU the
    #: first two are "int8" and "fp16"
    filter: str | None = None
    #: the last components, by `spanning_tree.component_pairs`: in "rounds", or "at once" by all points, by "facing"
    #: points on a GPU, or "late", after a search in tiles
    connect: str | None = None
    #: lists end where clusters of this many points do, by `spanning_tree.lists`; 0: nowhere
    large_cluster: int | None = None
    #: within a distance, by `neighbors.within`: "tree", "filter" or "distances"
    pairs: str | None = None
    #: the most rows of which all pairs are found at once, by `neighbors.within.nearest`
    block: int | None = None
    #: without coordinates, by `items.search`: "keys", "projections" or "distances"; by `items.dense` "stored"
    items: str | None = None
    #: the number of blocks of a Dask collection, by `distributed`
    blocks: int | None = None


NOTHING = Forced()
_forced = ContextVar("forced", default=NOTHING)


def forced() -> Forced:
    """Return what is prescribed here."""
    return _forced.get()


@contextmanager
def force(**ways: Any) -> Iterator[None]:
    """Prescribe ways in a block, by the fields of `Forced`; the others stay as they are."""
    token = _forced.set(replace(_forced.get(), **ways))
    try:
        yield
    finally:
        _forced.reset(token)

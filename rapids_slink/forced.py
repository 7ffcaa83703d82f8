"""Ways that a test or a benchmark prescribes, in place of those that the package chooses.

    with force(search="tiles", connect="rounds"):
        model = fit(X)

Every way has the same result. So this only says how the work is done, and no public function has a parameter for it. It
holds for the calls of the thread in the block. If a field is None, or names a way that does not serve the points, such
as a tree of boxes for cosine, the package chooses as usual.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Forced:
    """The ways that are prescribed. The function that chooses among the values of a field reads it."""

    #: the way to the tree, read by `spanning_tree.ways`: "line", "pairs", "repeats", "boxes", "blocks" or
    #: "lists". "friends" makes labels without a tree; every other way makes them from the tree. With every way except
    #: "pairs" all groups count as large
    tree: str | None = None
    #: the search for neighbours, read by `neighbors`: "all pairs", "tree", "tiles", "tiles for lists", which all pairs
    #: connect, or "few queries", which a GPU has. With any of them each group of queries has a search of its own
    search: str | None = None
    #: the filter of all pairs, read by `neighbors.filter`: "none", "products" of all features, "axes" of a projection;
    #: on a GPU "int8" or "fp16" are the types of products
    filter: str | None = None
    #: how the last components are connected, read by `spanning_tree.component_pairs`: in "rounds", "at once" by all
    #: points, or by "facing" points on a GPU
    connect: str | None = None
    #: lists end at the heights of clusters of this many points, read by `spanning_tree.lists`; with 0 they do not end
    large_cluster: int | None = None
    #: the search for pairs within a distance, read by `neighbors.within`: "tree", "tiles",
    #: "filter" or "distances"
    pairs: str | None = None
    #: the most rows whose pairs are all found at once, read by `neighbors.queries`
    block: int | None = None
    #: the search for pairs of items, read by `items.search`: "keys", "projections" or "distances". With "distances" a
    #: tree of all pairs compares them pair by pair, with "stored" it stores what it can, and
    #: with the others it is made by lists
    items: str | None = None
    #: the number of blocks of a Dask collection, read by `distributed` and `distributed.within`
    blocks: int | None = None
    #: the most rows of files that are searched together, read by `files`
    file_rows: int | None = None
    #: room for this many candidates of a row, read by `neighbors.exact`, the fused filter and `neighbors.small_batch`
    candidates: int | None = None
    #: the number of threads that work on a CPU, read by `runtime.threads`
    cores: int | None = None
    #: the most values of a block of rows, read by `neighbors.task`
    values: int | None = None
    #: the bytes that are free on the device, and those that chunks of work may take, read by `runtime.memory`
    free_bytes: float | None = None
    chunk_bytes: float | None = None


NOTHING = Forced()
_forced = ContextVar("forced", default=NOTHING)
#: Returns the ways that are prescribed in this context.
forced = _forced.get


@contextmanager
def force(**ways: Any) -> Iterator[None]:
    """Prescribe ways in a block, by the fields of `Forced`; the others stay as they are."""
    token = _forced.set(replace(_forced.get(), **ways))
    try:
        yield
    finally:
        _forced.reset(token)

"""Rows that have no coordinates, or only few of them stored: strings, sets and sparse rows.

    X ──kind_of──▶ Items ──ItemSearch──▶ pairs within a distance ──▶ forest.py ──▶ the tree, as that of any points
                   kind.py  search.py

One idea carries all kinds: rule pairs out by something that the package searches already, decide by the definition.
"""

from typing import Any

from rapids_slink.items.kind import Items
from rapids_slink.items.sets import Sets
from rapids_slink.items.sparse import SparseRows
from rapids_slink.items.strings import Strings
from rapids_slink.metrics import Metric

KINDS: tuple[type[Items], ...] = (Strings, Sets, SparseRows)  # one is chosen by the metric and the type of the input


def kind_of(metric: Metric, *inputs: Any) -> type[Items] | None:
    """The kind of items that inputs are for a metric; None if they are points."""
    return next((kind for kind in KINDS if any(kind.serves(metric, X) for X in inputs)), None)

"""Rows that have no coordinates, or only few of them stored: strings, sets and sparse rows.

    X ──kind_of──▶ Items ──ItemSearch──▶ pairs within a distance ──▶ the tree, as that of any points
                   kind.py  search.py

One idea carries all kinds: rule pairs out by something that the package searches already, decide by the definition.
"""

from typing import Any

from rapids_slink.items.kind import Items
from rapids_slink.items.stored import Sets, SparseRows, holds_sets
from rapids_slink.items.strings import Strings
from rapids_slink.metrics import SET_METRICS, SPARSE_ROW_METRICS, Formula, Metric
from rapids_slink.points import is_sparse


def kind_of(metric: Metric, *inputs: Any) -> type[Items] | None:
    """Return the class of items that the inputs hold for a metric; None if they are points.

    A metric of strings makes `Strings` of any input, so that the error about numbers names the metric.
    """
    if metric.formula is Formula.ITEMS:
        return Strings
    if metric.name in SET_METRICS:
        return Sets if any(map(holds_sets, inputs)) else None
    takes_sparse_rows = metric.name in SPARSE_ROW_METRICS and not metric.missing and metric.space is None
    return SparseRows if takes_sparse_rows and any(map(is_sparse, inputs)) else None

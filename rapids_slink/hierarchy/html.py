"""A summary of a hierarchy as HTML for Jupyter: plain tables in the page's own colours, which load nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rapids_slink.hierarchy.plotted import Groups, colored_groups, cut_label
from rapids_slink.points.output import on_host
from rapids_slink.report import counted, entry_text, in_words

if TYPE_CHECKING:
    from rapids_slink.hierarchy.base import Hierarchy

#: The largest number of clusters that are listed.
LISTED = 10
BLOCK = 'style="display: inline-block; vertical-align: top; margin: 0.3em 2em 0.3em 0"'


def to_html(model: Hierarchy) -> str:
    """A fitted model's clusters by size, the cut, what was proven and the stages' times.

    One ``div`` without scripts, links or style sheets; every text in it is escaped.
    """
    groups = colored_groups(np.asarray(on_host(model.labels_)), LISTED)
    others = groups.order[LISTED:]
    clusters = [(str(cluster), groups.sizes[cluster]) for cluster in groups.largest.tolist()]
    clusters += [(counted(others.size, "other"), groups.sizes[others].sum())] if others.size else []
    clusters += [("noise", groups.noise)] if groups.noise else []
    seconds, counts = model.report_.stages()
    proven = [(stage, *entry_text(name, v)) for stage, entry in counts.items() for name, v in entry.items()]
    times = [*((in_words(stage), value) for stage, value in seconds.items()), ("total", sum(seconds.values()))]
    blocks = [
        _block("Clusters", ["cluster", "rows"], [(name, f"{size:,}") for name, size in clusters]),
        _block("Proven", ["stage", "count", ""], proven),
        _block("Time", ["stage", "seconds"], [(stage, f"{value:.4f}") for stage, value in times if seconds]),
    ]
    title = f"{type(model).__name__}: {counted(model.n_leaves_, 'row')} in {counted(groups.sizes.size, 'cluster')}"
    settings = [f"{key} {value}" for key, value in model.report_.items() if not isinstance(value, dict)]
    lines = [f"<b>{escape(title)}</b>", escape(_cut(model)), escape(", ".join(settings))]
    return f"<div>{'<br>'.join(line for line in lines if line)}<div>{''.join(blocks)}</div></div>"


def clusters_table(groups: Groups, colors: Sequence[str]) -> str:
    """The largest clusters with their colours, sizes and shares, as a table."""
    largest = groups.order[:LISTED]
    dots = [f'<span style="color: {colors[i % len(colors)]}">●</span> {label}' for i, label in enumerate(largest)]
    shares = [f"{size / groups.color.size:.1%}" for size in groups.sizes[largest]]
    table = pd.DataFrame({"cluster": dots, "rows": [f"{size:,}" for size in groups.sizes[largest]], "": shares})
    return _table(table, escape=False)


def _cut(model: Hierarchy) -> str:
    """The distances that give the cut of `labels_`."""
    if not model._labels_are_a_cut:
        return ""
    heights = np.asarray(on_host(model.linkage_["height"]))[::-1]
    return cut_label(heights, model.n_clusters_, model.n_leaves_ - heights.size)


def _block(title: str, names: list[str], rows: Sequence[tuple[str, ...]]) -> str:
    return f"<div {BLOCK}><b>{escape(title)}</b>{_table(pd.DataFrame(rows, columns=names))}</div>" if rows else ""


def _table(table: pd.DataFrame, escape: bool = True) -> str:
    with pd.option_context("display.max_colwidth", None):
        return table.to_html(index=False, border=0, escape=escape)

"""A summary of a hierarchy as HTML for Jupyter: plain tables in the page's own colours, which load nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from rapids_slink.points.output import on_host
from rapids_slink.report import count_text, counted, in_words
from rapids_slink.runtime.arrays import Array

if TYPE_CHECKING:
    from rapids_slink.hierarchy.base import Hierarchy
    from rapids_slink.hierarchy.plotted import Groups

#: The largest number of clusters that are listed.
LISTED = 10
NUMBER = 'style="text-align: right; padding: 0.1em 0.8em"'
TEXT = 'style="text-align: left; padding: 0.1em 0.8em"'
BLOCK = 'style="display: inline-block; vertical-align: top; margin: 0.3em 2em 0.3em 0"'


def to_html(model: Hierarchy) -> str:
    """The clusters' sizes, the cut, what was proven and the stages' times.

    Parameters
    ----------
    model : SingleLinkage or GraphHierarchy
        Fitted.

    Returns
    -------
    str
        One ``div`` without scripts, links or style sheets; every text in it is escaped.
    """
    labels = np.asarray(on_host(model.labels_))
    sizes, noise = np.bincount(labels[labels >= 0]), int((labels < 0).sum())
    title = f"{type(model).__name__}: {counted(model.n_leaves_, 'row')} in {counted(sizes.size, 'cluster')}"
    report = getattr(model, "report_", {})
    counts = {stage: entry for stage, entry in report.items() if isinstance(entry, dict) and stage != "seconds"}
    proven = [(stage, in_words(name), count_text(v)) for stage, entry in counts.items() for name, v in entry.items()]
    seconds = report.get("seconds", {})
    blocks = [
        _table("Clusters", ("cluster", "rows"), [*_largest(sizes), *([("noise", count_text(noise))] if noise else [])]),
        _table("Proven", ("stage", "count", ""), proven),
        _table("Time", ("stage", "seconds"), [*_times(seconds)]),
    ]
    settings = [f"{key} {value}" for key, value in report.items() if not isinstance(value, dict)]
    lines = [f"<b>{escape(title)}</b>", escape(_cut(model)), escape(", ".join(settings))]
    return f"<div>{'<br>'.join(line for line in lines if line)}<div>{''.join(blocks)}</div></div>"


def _largest(sizes: np.ndarray) -> list[tuple[str, str]]:
    order = np.argsort(-sizes, kind="stable")
    rows = [(str(cluster), f"{sizes[cluster]:,}") for cluster in order[:LISTED].tolist()]
    rest = order[LISTED:]
    return [*rows, (counted(rest.size, "other"), f"{sizes[rest].sum():,}")] if rest.size else rows


def clusters_table(groups: Groups, colors: Sequence[str]) -> str:
    """The largest clusters with their colours, sizes and shares, as a table."""
    n = groups.color.size
    lines = []
    for i, label in enumerate(groups.order[:LISTED].tolist()):
        dot = f'<span style="color: {colors[i % len(colors)]}">●</span> '
        cells = f"{groups.sizes[label]:,}", f"{groups.sizes[label] / n:.1%}"
        numbers = "".join(f"<td {NUMBER}>{cell}</td>" for cell in cells)
        lines.append(f"<tr><td {TEXT}>{dot}{label}</td>{numbers}</tr>")
    heads = "".join(f"<th {style}>{head}</th>" for head, style in (("cluster", TEXT), ("rows", NUMBER), ("", NUMBER)))
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>"


def _cut(model: Hierarchy) -> str:
    """The heights between which the tree was cut."""
    if not model._labels_are_a_cut:
        return ""
    height = on_host(model.linkage_["height"])
    undone = model.n_clusters_ - (model.n_leaves_ - len(model.linkage_))
    kept = len(model.linkage_) - undone
    parts = []
    for words, row in (("merged up to distance", kept - 1), ("apart from distance", kept)):
        if 0 <= row < len(model.linkage_):
            parts.append(f"{words} {float(height.iloc[row]):.6g}")
    return ", ".join(parts)


def _times(seconds: dict[str, float]) -> list[tuple[str, str]]:
    rows = [(in_words(stage), f"{value:.4f}") for stage, value in seconds.items()]
    return [*rows, ("total", f"{sum(seconds.values()):.4f}")] if rows else rows


def _table(title: str, heads: tuple[str, ...], rows: Array) -> str:
    if not rows:
        return ""
    lines = [_row("th", heads), *(_row("td", row) for row in rows)]
    return f"<div {BLOCK}><b>{escape(title)}</b><table>{''.join(lines)}</table></div>"


def _row(tag: str, cells: Any) -> str:
    """A row whose last cell is a number."""
    styles = [TEXT] * (len(cells) - 1) + [NUMBER]
    return f"<tr>{''.join(f'<{tag} {s}>{escape(str(c))}</{tag}>' for c, s in zip(cells, styles, strict=True))}</tr>"

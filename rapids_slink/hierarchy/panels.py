"""The explorer's panels beside the map: the curve of settings, along which the cut is dragged, and the condensed tree.

Both are drawn by panels.js in the colours of the page. anywidget, which jupyter-scatter needs too, connects the two.
"""

from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from rapids_slink.dendrogram.condense import Condensed

#: The largest number of bars of a tree, and of places at which the width of a bar is drawn.
MAX_BARS, WIDTHS = 300, 24


class Panel(anywidget.AnyWidget):
    """A drawing with a cut that can be dragged."""

    _esm = Path(__file__).with_suffix(".js")
    kind = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int().tag(sync=True)  # pixels
    names: Any = traitlets.List().tag(sync=True)  # of the axes
    colors: Any = traitlets.List().tag(sync=True)  # of the curve and of the cut
    range: Any = traitlets.List().tag(
        sync=True
    )  # the least and the largest value of the axis along which the cut moves
    is_log = traitlets.Bool().tag(sync=True)  # whether the axis of y is logarithmic
    dragging = traitlets.Bool(False).tag(sync=True)
    follows = traitlets.Bool(True).tag(sync=True)  # whether values come while the cut is dragged, or only at the end


class Curve(Panel):
    """The curve: for each setting a height."""

    x: Any = traitlets.List().tag(sync=True)
    y: Any = traitlets.List().tag(sync=True)
    value = traitlets.Int().tag(sync=True)  # the setting that is shown
    ink = traitlets.Unicode("#808080").tag(sync=True)  # the colour of the page's text


class Tree(Panel):
    """The condensed tree as an icicle: a bar for each cluster, whose width is its rows at each distance."""

    bars: Any = traitlets.List().tag(sync=True)  # for each the corners: a share of the rows, and a distance
    titles: Any = traitlets.List().tag(sync=True)  # for each the text that the pointer shows
    fills: Any = traitlets.List().tag(sync=True)  # for each the colour below the cut, "" for none
    cut = traitlets.Float(None, allow_none=True).tag(sync=True)  # the distance; None for no cut
    dragged = traitlets.Float(0.0).tag(sync=True)  # the distance to which the cut is dragged
    clicked = traitlets.List([-1, 0]).tag(sync=True)  # a bar, and the number of clicks


class Bars:
    """The bars of a condensed tree: the largest `MAX_BARS` clusters, and how they are drawn.

    Attributes
    ----------
    clusters : ndarray of shape (bars,), int64
        Their numbers in the tree. A bar comes after those around it.
    corners : list of lists of pairs
        For each the corners of its outline.
    sizes : ndarray of shape (bars,)
        Rows at the cluster's birth.
    rows : ndarray of shape (bars,), int64
        For each a row that stays to the end of it, and then in the larger of the two that it splits into.
    range : pair of float
        The least and the largest distance that is drawn.
    """

    def __init__(self, tree: Condensed, unit: float, lowest: float, is_log: bool) -> None:
        self.tree, self.n = tree, tree.cluster.size
        self._order = np.lexsort((tree.departure, tree.cluster))
        self._ends = np.cumsum(np.bincount(tree.cluster, minlength=tree.parent.size))
        largest = np.argsort(-tree.size, kind="stable")[:MAX_BARS]
        self.clusters = np.sort(largest)
        self.sizes = tree.size[self.clusters]
        with np.errstate(divide="ignore"):
            birth, departure = unit / tree.birth + lowest, unit / tree.departure + lowest
        inside = np.concatenate([birth[1:], departure])
        inside = inside[np.isfinite(inside) & ((inside > 0) | (not is_log))]
        low, high = (float(inside.min()), float(inside.max())) if inside.size else (lowest, lowest + 1.0)
        low = low if is_log else lowest
        self.range = low, (high if high > low else low + 1.0)
        birth[0] = self.range[1]
        self.corners = self._corners(np.clip(birth, *self.range), np.clip(departure, *self.range))
        self.rows = self._rows()

    def _members(self, cluster: int) -> np.ndarray:
        """The rows that fall out of a cluster, the first to fall first."""
        return self._order[self._ends[cluster - 1] if cluster else 0 : self._ends[cluster]]

    def _corners(self, birth: np.ndarray, departure: np.ndarray) -> list[Any]:
        parent, size = self.tree.parent, self.tree.size
        split = np.zeros(parent.size)  # the rows of the two clusters that each one splits into
        np.add.at(split, parent[1:], size[1:])
        death = np.full(parent.size, self.range[0])
        np.maximum.at(death, parent[1:], birth[1:])
        middle, taken = np.full(parent.size, self.n / 2), np.zeros(parent.size)
        corners = []
        for c in self.clusters.tolist():
            if c:
                p = parent[c]
                middle[c] = middle[p] - split[p] / 2 + taken[p] + size[c] / 2
                taken[p] += size[c]
            rows = self._members(c)
            at = np.unique(np.linspace(0, rows.size, WIDTHS).astype(np.int64))[:-1] if rows.size else rows
            height = np.concatenate([[birth[c]], departure[rows[at]], [death[c]] if split[c] else []])
            left = np.concatenate([[size[c]], size[c] - at - 0.0, [split[c]] if split[c] else []]) / 2
            sides = [np.column_stack([(middle[c] + side * left) / self.n, height]) for side in (-1, 1)]
            corners.append(np.concatenate([sides[0], sides[1][::-1]]).tolist())
        return corners

    def _rows(self) -> np.ndarray:
        parent, size = self.tree.parent, self.tree.size
        larger = np.full(parent.size, -1)
        order = 1 + np.argsort(size[1:], kind="stable")
        larger[parent[order]] = order  # the last one stays
        rows = []
        for c in self.clusters.tolist():
            while larger[c] >= 0:
                c = larger[c]
            rows.append(self._members(c)[-1])
        return np.array(rows, np.int64)

    def within(self, bar: int) -> np.ndarray:
        """The rows of a bar and of all bars within it, ascending."""
        inside = np.zeros(self.tree.parent.size, bool)
        inside[self.clusters[bar]] = True
        for c in range(self.clusters[bar] + 1, inside.size):
            inside[c] |= inside[self.tree.parent[c]]
        return np.flatnonzero(inside[self.tree.cluster])

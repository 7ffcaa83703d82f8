"""``python docs/figures.py``: draw the figures of the README and the documentation into docs/_static."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from PIL import Image
from sklearn.datasets import make_circles, make_moons

import rapids_slink
from bench import recipe
from rapids_slink import demo

FOLDER = Path(__file__).parent / "_static"
DPI = 90


def main(folder: Path = FOLDER) -> None:
    """Draw all."""
    folder.mkdir(exist_ok=True)
    for draw in (cities, clusters, forests):
        figure = draw()
        path = folder / f"{draw.__name__}.png"
        figure.savefig(path, dpi=DPI)
        plt.close(figure)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(64)
        small.save(path, optimize=True)


def cities() -> Any:
    """The demo's: the world's cities by great-circle distance."""
    return demo.figure(*demo.cluster("cpu"))


def clusters() -> Any:
    """What a fitted model draws: its clusters, its heights, its dendrogram."""
    moons, _ = make_moons(1500, noise=0.05, random_state=0)
    rings, _ = make_circles(1500, factor=0.5, noise=0.04, random_state=0)
    xy = np.vstack([moons, rings + np.array([3.7, 0.25])])
    model = rapids_slink.fit(xy, n_clusters=4, device="cpu")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained", width_ratios=[1.6, 1, 1])
    model.plot_clusters(xy, ax=axes[0], s=2)
    axes[0].get_legend().remove()
    axes[0].set(aspect="equal", title="plot_clusters()")
    model.plot_heights(ax=axes[1])
    axes[1].get_legend().remove()
    axes[1].set_title("plot_heights()")
    model.plot(ax=axes[2], p=16)
    axes[2].set_title("plot()")
    return figure


def forests() -> Any:
    """A part of the strings of groups: the recipe's tree beside the exact one."""
    points = recipe.CASES[0].points()
    k = recipe.neighbors(len(points))
    theirs = recipe.recipe(points, k)
    ours = rapids_slink.fit(points, device="cpu").mst_
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharex=True, sharey=True)
    for panel, title, tree, other in (
        (axes[0], f"the recipe's tree, {k} neighbours", theirs, ours),
        (axes[1], "the minimum spanning tree", ours, theirs),
    ):
        alone = ~np.isin(_codes(tree), _codes(other))
        segments = points[tree[["src", "dst"]].to_numpy()]
        panel.add_collection(LineCollection(segments[~alone], colors="#0072B2", linewidths=0.8, label="edges of both"))
        panel.add_collection(
            LineCollection(segments[alone], colors="#D55E00", linewidths=1.2, label="of this one alone")
        )
        panel.scatter(*points.T, s=1.5, color="black", linewidths=0)
        panel.set(xlim=(0.3, 0.62), ylim=(0.3, 0.52), xticks=[], yticks=[], title=title, aspect="equal")
        panel.legend(loc="lower left", fontsize="small")
    return figure


def _codes(tree: Any) -> np.ndarray:
    """One number an edge, whichever way round it stands."""
    ends = np.sort(tree[["src", "dst"]].to_numpy().astype(np.int64), axis=1)
    return ends[:, 0] << 32 | ends[:, 1]


if __name__ == "__main__":
    main()

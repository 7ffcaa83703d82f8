"""``python docs/figures.py``: draw the figures of the README and the documentation into docs/_static.

``python docs/figures.py gallery`` runs the notebooks and keeps a picture of each.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from PIL import Image, ImageOps
from sklearn.datasets import make_circles, make_moons

import rapids_slink
from bench import recipe, report
from bench.cases import SCALING
from rapids_slink import cli
from rapids_slink.hierarchy.plotting import plot_clusters

FOLDER = Path(__file__).parent / "_static"
DPI = 90
THUMBNAIL = (480, 320)  # pixels
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000", "#999999")


def main(folder: Path = FOLDER) -> None:
    """Draw all but the gallery."""
    folder.mkdir(exist_ok=True)
    for draw in (choosing, cities, clusters, forests, pictures, scaling, stages):
        figure = draw()
        path = folder / f"{draw.__name__}.png"
        figure.savefig(path, dpi=DPI)
        plt.close(figure)
        with Image.open(path) as image:
            _save(image, path)


def gallery(folder: Path = FOLDER / "gallery") -> None:
    """The last picture of each notebook, small."""
    import nbclient
    import nbformat

    folder.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with TemporaryDirectory() as here:
            nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": here}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        with Image.open(BytesIO(b64decode(pictures[-1]))) as image:
            if image.height > image.width:  # panels below each other: the last
                image = image.crop((0, image.height - image.width * 11 // 20, *image.size))
            _save(ImageOps.pad(image.convert("RGB"), THUMBNAIL, color="white"), folder / f"{path.stem}.png")


def _save(image: Any, path: Path) -> None:
    """In few colours and bytes."""
    image.convert("RGB").quantize(64).save(path, optimize=True)


def cities() -> Any:
    """The demo's: the world's cities by great-circle distance."""
    return cli.map_of(*cli.cluster_cities("cpu"))


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


def choosing() -> Any:
    """Four ways to flat clusters of the same rows: the page "Choosing a method"."""
    rng = np.random.default_rng(4)
    moons, _ = make_moons(1200, noise=0.06, random_state=4)
    dense, sparse = rng.normal((-1.7, 0.9), 0.07, (400, 2)), rng.normal((3.4, 0.3), 0.42, (300, 2))
    xy = np.vstack([moons, dense, sparse, rng.uniform((-2.3, -1.2), (4.9, 2.0), (90, 2))])
    single = rapids_slink.fit(xy, n_clusters=4, device="cpu")
    reachable = rapids_slink.fit(xy, min_samples=9, device="cpu")
    hdbscan = rapids_slink.HDBSCAN(min_cluster_size=60, min_samples=9, device="cpu").fit(xy)
    figure, axes = plt.subplots(2, 2, figsize=(10, 5.6), layout="constrained", sharex=True, sharey=True)
    for panel, title, labels in zip(
        axes.flat,
        ("n_clusters=4", "distance_threshold=0.11, min_cluster_size=20", "DBSCAN: min_samples=9, threshold 0.13",
         "HDBSCAN: min_cluster_size=60"),
        (single.labels_, single.cut(distance_threshold=0.11, min_cluster_size=20),
         reachable.cut(distance_threshold=0.13, min_cluster_size=2), hdbscan.labels_),
        strict=True,
    ):  # fmt: skip
        plot_clusters(xy, labels, ax=panel, s=3)
        panel.get_legend().remove()
        panel.set(title=title, xticks=[], yticks=[], xlabel="", ylabel="", aspect="equal")
    return figure


def pictures() -> Any:
    """The pictures of a whole tree: the condensed tree, the spanning tree on the rows, the dendrogram's top."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=8, size=(7, 2))
    xy = centres[rng.integers(0, 7, 20_000)] + rng.normal(size=(20_000, 2)) * rng.uniform(0.4, 1.2, (20_000, 1))
    model = rapids_slink.fit(xy, n_clusters=12, device="cpu")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    model.plot_condensed(ax=axes[0]).set_title("plot_condensed()")
    model.plot_tree(xy, ax=axes[1]).set_title("plot_tree()")
    axes[1].get_legend().remove()
    model.plot(ax=axes[2], p=16).set_title("plot()")
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


def scaling() -> Any:
    """Seconds against rows, a panel for each number of features and device, from the result files."""
    rows = _results([case.name for case in SCALING])
    devices = sorted({row["device"] for row in rows})
    features = sorted({row["d"] for row in rows})
    shape = len(devices), len(features)
    figure, axes = plt.subplots(
        *shape, figsize=(11, 0.5 + 3.2 * shape[0]), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    names = ["rapids_slink", *sorted({name for row in rows for name in row["peers"]})]
    for line, device in zip(axes, devices, strict=True):
        for panel, d in zip(line, features, strict=True):
            here = sorted((r for r in rows if (r["device"], r["d"]) == (device, d)), key=lambda row: row["n"])
            for i, name in enumerate(names):
                seconds = {row["n"]: row["seconds"] if i == 0 else row["peers"].get(name) for row in here}
                found = [(n, s) for n, s in seconds.items() if s is not None]
                if found:
                    panel.plot(
                        *zip(*found, strict=True), "o-", color=PALETTE[i], markersize=3 + 2 * (i == 0), label=name
                    )
            panel.set(xscale="log", yscale="log", title=f"{d} features, {device}")
            panel.grid(alpha=0.3)
        line[0].set_ylabel("seconds, points to labels")
    for panel in axes[-1]:
        panel.set_xlabel("rows")
    handles = {line.get_label(): line for panel in axes.flat for line in panel.lines}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    return figure


def stages() -> Any:
    """What part of a run each stage takes, a bar for each case and device, from the result files."""
    rows = [row for row in _results() if row.get("stage_seconds")]
    names = list(dict.fromkeys(name for row in rows for name in row["stage_seconds"]))
    figure, panel = plt.subplots(figsize=(8.2, 1 + 0.2 * len(rows)), layout="constrained")  # as wide as the page's text
    left = np.zeros(len(rows))
    for i, name in enumerate(names):
        seconds = np.array([row["stage_seconds"].get(name, 0.0) for row in rows])
        share = seconds / [sum(row["stage_seconds"].values()) for row in rows]
        panel.barh(range(len(rows)), share, left=left, color=PALETTE[i], label=name.replace("_", " "))
        left += share
    labels = [f"{row['case']}, {row['device']}: {report.shown(sum(row['stage_seconds'].values()))}" for row in rows]
    panel.set_yticks(range(len(rows)), labels, fontsize="small")
    panel.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1), xticks=[])
    figure.legend(loc="outside upper center", ncols=len(names), fontsize="small", columnspacing=1, handlelength=1)
    return figure


def _results(cases: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The newest results of whole runs, of these cases or of all but the scaling and the other metrics'."""
    rows = report.pick(report.load(report.FOLDER), ["fit", *(["scaling"] if cases else [])])
    return [row for row in rows if row["stage"] == "fit" and (not cases or row["case"] in cases)]


def _codes(tree: Any) -> np.ndarray:
    """One number an edge, whichever way round it stands."""
    ends = np.sort(tree[["src", "dst"]].to_numpy().astype(np.int64), axis=1)
    return ends[:, 0] << 32 | ends[:, 1]


if __name__ == "__main__":
    gallery() if sys.argv[1:] == ["gallery"] else main()

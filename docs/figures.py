"""``python docs/figures.py``: draw the figures of the README and the documentation into docs/_static.

``python docs/figures.py gallery`` runs the notebooks and keeps a picture of each, or of those that are named after it.
``python docs/figures.py explorer`` opens the explorer in JupyterLab and Chromium, and keeps pictures of it.
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
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyBboxPatch
from notebook_pages import jupyterlab, opened, run_cell, write_notebook
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
EXPLORER = "09_explore"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000", "#999999")


def main(folder: Path = FOLDER) -> None:
    """Draw all but the gallery."""
    folder.mkdir(exist_ok=True)
    for draw in (choosing, cities, cluster, clusters, forests, pictures, pipeline, scaling, stages):
        figure = draw()
        path = folder / f"{draw.__name__}.png"
        figure.savefig(path, dpi=DPI)
        plt.close(figure)
        with Image.open(path) as image:
            _save(image, path)


def gallery(names: Sequence[str] = (), folder: Path = FOLDER / "gallery") -> None:
    """Draw the last picture of each notebook, or of those of these names, small; the explorer has its own."""
    import nbclient
    import nbformat

    folder.mkdir(exist_ok=True)
    with Image.open(FOLDER / "explorer" / "cities-light.png") as image:
        image.convert("RGB").resize(THUMBNAIL, Image.Resampling.LANCZOS).save(folder / f"{EXPLORER}.png", optimize=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if path.stem == EXPLORER or (names and path.stem not in names):
            continue
        notebook = nbformat.read(path, as_version=4)
        with TemporaryDirectory() as here:
            nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": here}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        with Image.open(BytesIO(b64decode(pictures[-1]))) as image:
            if image.height > image.width:  # panels below each other: the last
                image = image.crop((0, image.height - image.width * 11 // 20, *image.size))
            _save(ImageOps.pad(image.convert("RGB"), THUMBNAIL, color="white"), folder / f"{path.stem}.png")


#: What the pictures of the explorer show: each the code of a cell.
EXPLORED = {
    "cities-light": """
import numpy as np
import rapids_slink
from rapids_slink.datasets import load_cities
cities = load_cities().sort_values("population", ascending=False)
X = np.radians(cities[["latitude", "longitude"]])
model = rapids_slink.fit(X, distance_threshold=75 / 6371, metric="haversine", device="cpu")
model.explore(X, data=cities, names="name")
""",
    "points-light": """
import numpy as np, pandas as pd
import rapids_slink
centres = np.repeat([[0, 0], [9, 1], [4, 8], [-6, 5]], (400, 300, 200, 100), axis=0)
X = pd.DataFrame(centres + np.random.default_rng(0).normal(size=(1000, 2)), columns=["x", "y"])
rapids_slink.fit(X, n_clusters=22, device="cpu").explore(X)
""",
}


def explorer(folder: Path = FOLDER / "explorer") -> None:
    """Open the explorer of `EXPLORED` in JupyterLab, and keep a picture of each."""
    folder.mkdir(exist_ok=True)
    for name, code in EXPLORED.items():
        with TemporaryDirectory() as here:
            write_notebook(Path(here), code)
            with jupyterlab(Path(here), "JupyterLab Light") as address, opened(Path(here), address) as page:
                page.set_viewport_size({"width": 1540, "height": 1300})
                run_cell(page, 0)
                page.locator(".slink-handle").first.wait_for()
                shown = page.locator(".jp-OutputArea-output").last
                shown.scroll_into_view_if_needed()
                page.wait_for_timeout(4000)  # until the points have moved to their places
                with Image.open(BytesIO(shown.screenshot())) as image:
                    _save(image, folder / f"{name}.png")


def _save(image: Any, path: Path) -> None:
    """In few colours and bytes."""
    image.convert("RGB").quantize(method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def pipeline() -> Any:
    """Draw the stages on a few points: each panel adds what the stage makes."""
    rng = np.random.default_rng(3)
    centres = np.array([[0, 0], [4.6, 0.7], [1.6, 3.6]])
    xy = centres[np.repeat(range(3), (22, 16, 14))] + rng.uniform(-1.1, 1.1, (52, 2))
    graph = rapids_slink.knn_graph(xy, 3, device="cpu")
    tree = rapids_slink.connect(graph, xy, device="cpu")
    listed = np.isin(_codes(tree), _codes(graph))
    model = rapids_slink.fit(xy, n_clusters=3, device="cpu")
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    blue, red, grey = PALETTE[0], PALETTE[1], "#B8B8B8"
    panels = (
        ("points", []),
        ("k-NN graph: the nearest of each", [(graph, grey)]),
        ("spanning forest: the lightest edges", [(graph, grey), (tree[listed], blue)]),
        ("connect: edges between its trees", [(tree[listed], blue), (tree[~listed], red)]),
    )
    for panel, (title, edges) in zip(axes.flat, panels, strict=False):
        for frame, color in edges:
            lines = list(xy[frame[["src", "dst"]].to_numpy()])
            panel.add_collection(LineCollection(lines, colors=color, linewidths=0.8 if color == grey else 1.8))
        panel.scatter(*xy.T, s=14, color="black", zorder=3)
        panel.set(title=title, xticks=[], yticks=[], aspect="equal")
    model.plot(ax=axes[1, 1], truncate_mode=None, no_labels=True, color_threshold=0, above_threshold_color=blue)
    axes[1, 1].axhline(_middle_of_cut(model), color=red, linestyle="--")
    axes[1, 1].set(title="linkage: the merges, and a cut", xlabel="", xticks=[])
    plot_clusters(xy, model.labels_, ax=axes[1, 2], s=22)
    axes[1, 2].get_legend().remove()
    axes[1, 2].set(title="cut: the labels", xticks=[], yticks=[], xlabel="", ylabel="", aspect="equal")
    for number, panel in enumerate(axes.flat, start=1):
        panel.set_title(f"{number}  {panel.get_title()}", loc="left", fontsize="medium", weight="bold")
        panel.set_title("")
    return figure


def _middle_of_cut(model: Any) -> float:
    """Return a distance between the last merge below the cut and the first one above it."""
    heights = model.linkage_["height"].to_numpy()
    return float(heights[-model.n_clusters_ :][:2].mean())


def cluster() -> Any:
    """Draw what the workers of a Dask cluster do, as boxes and arrows: of one block, and of several."""
    steps = (
        ("partitions", "checked\nwhere they are"),
        ("blocks", "b of n/b rows"),
        ("own trees", "of each block:\nb tasks"),
        ("trees", "of pairs of blocks:\nb(b-1)/2 tasks"),
        ("one tree", "of all their edges"),
        ("linkage", "on one worker"),
        ("labels", "sliced when\nthey are computed"),
    )
    figure, panel = plt.subplots(figsize=(10, 2.9), layout="constrained")
    boxes = [(1.6 * i, 1.15, title, text) for i, (title, text) in enumerate(steps)]
    boxes += [
        (1.6, -0.6, "one block", "if it takes\nleast time"),
        (6.4, -0.6, "one fit", "of one device,\non one worker"),
    ]
    for x, y, title, text in boxes:
        box = FancyBboxPatch((x - 0.62, y - 0.5), 1.24, 1.0, boxstyle="round,pad=0.05", fc="#EEF4F9", ec=PALETTE[0])
        panel.add_patch(box)
        panel.text(x, y + 0.22, title, ha="center", va="center", weight="bold", fontsize=9)
        panel.text(x, y - 0.2, text, ha="center", va="center", fontsize=7.5, linespacing=1.1)
    arrow = {"arrowstyle": "-|>", "color": "#606060", "shrinkA": 0, "shrinkB": 0}
    ways = [((x + 0.67, 1.15), (x + 0.93, 1.15)) for x in 1.6 * np.arange(6)]
    ways += [((0.3, 0.62), (0.95, -0.4)), ((2.27, -0.6), (5.73, -0.6)), ((7.07, -0.4), (9.3, 0.62))]
    for start, end in ways:
        panel.annotate("", end, start, arrowprops=arrow)
    panel.set(xlim=(-0.8, 10.4), ylim=(-1.25, 1.8))
    panel.axis("off")
    return figure


def cities() -> Any:
    """Draw the demo's picture: the world's cities by great-circle distance."""
    return cli.map_of(*cli.cluster_cities("cpu"))


def clusters() -> Any:
    """Draw what a fitted model draws: its clusters, its heights, its dendrogram."""
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
    """Draw the pictures of a whole tree: the condensed tree, the spanning tree on the rows, the dendrogram's top."""
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
    """Draw a part of the strings of groups: the recipe's tree beside the exact one."""
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
    """Draw what part of a run each stage takes, a bar for each case and device, from the result files."""
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
    """Return the newest results of whole runs, of these cases or of all but the scaling and the other metrics'."""
    rows = report.pick(report.load(report.FOLDER), ["fit", *(["scaling"] if cases else [])])
    return [row for row in rows if row["stage"] == "fit" and (not cases or row["case"] in cases)]


def _codes(tree: Any) -> np.ndarray:
    """One number an edge, whichever way round it stands."""
    ends = np.sort(tree[["src", "dst"]].to_numpy().astype(np.int64), axis=1)
    return ends[:, 0] << 32 | ends[:, 1]


if __name__ == "__main__":
    {"gallery": lambda: gallery(sys.argv[2:]), "explorer": explorer}.get("".join(sys.argv[1:2]), main)()

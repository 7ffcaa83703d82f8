"""``python -m bench.recipe``: how far the usual recipe's clusters are from the exact ones, as a dated result file.

The recipe is that of the cuSLINK paper: the minimum spanning forest of the k-NN graph, and while that is not connected
(its Algorithm 2), each component's edge to the nearest point outside and the minimum spanning forest of the edges so
far. Every step is done exactly here, on the CPU, so that the recipe causes every error that remains. On a GPU, cuML is
measured, which follows the recipe.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

import rapids_slink
from bench import report, results
from bench.cases import SEED
from rapids_slink.runtime.device import DEVICE_NAMES, Device, resolve, to_host

FOLDER = results.FOLDER / "recipe"
#: The recipe makes a search for each component here, which only small cases allow.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Case:
    """A set of points in the plane, float32, and where its tree is cut."""

    name: str
    what: str
    points: Callable[[], np.ndarray]
    n_clusters: int


def galaxies(strings: int) -> Callable[[], np.ndarray]:
    """Return a function that draws strings of tight groups in a sparse field of single points, float32.

    A string has 8 groups of 40 points each, and the field 20 points for each string.
    """

    def points() -> np.ndarray:
        rng = np.random.default_rng(SEED)
        side = np.sqrt(strings / 30)
        turn = rng.uniform(0, 2 * np.pi, (strings, 1)) + rng.normal(0, 0.3, (strings, 8)).cumsum(axis=1)
        steps = 0.012 * np.stack([np.cos(turn), np.sin(turn)], axis=2)
        groups = rng.uniform(0, side, (strings, 1, 2)) + steps.cumsum(axis=1)
        members = groups.reshape(-1, 1, 2) + rng.normal(0, 3e-4, (strings * 8, 40, 2))
        field = rng.uniform(0, side, (20 * strings, 2))
        return np.concatenate([members.reshape(-1, 2), field]).astype(np.float32)

    return points


def filaments() -> np.ndarray:
    """Draw 30 random walks in the plane, each with steps of its own length: (4020, 2) float32."""
    rng = np.random.default_rng(SEED)
    scale = 10 ** rng.uniform(-2.5, -1, (30, 1, 1))
    walks = rng.uniform(-3, 3, (30, 1, 2)) + (rng.normal(size=(30, 134, 2)) * scale).cumsum(axis=1)
    return walks.reshape(-1, 2).astype(np.float32)


CASES = [
    Case("strings-10k", "10,200 points: 30 strings of tight groups in a sparse field", galaxies(30), 100),
    Case("walks-4k", "4,020 points: 30 random walks of uneven density", filaments, 100),
    Case("strings-1m", "1,020,000 points: 3,000 strings of tight groups in a sparse field", galaxies(3000), 10_000),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases and save them."""
    parser = argparse.ArgumentParser(prog="python -m bench.recipe", description=__doc__)
    parser.add_argument("--device", choices=DEVICE_NAMES, default="auto")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the result files")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the result file (default: today)")
    parser.add_argument("--commit", help="what is measured (default: git's HEAD)")
    options = parser.parse_args(arguments)
    device = resolve(options.device)
    header = results.header(device, options.date, options.commit)
    for case in CASES:
        found = measure(case, device)
        if found["others"]:
            path = results.save(options.out, header, {"case": case.name, "stage": "recipe", **found})
            print(f"{case.name:>12} {found['others']}  -> {path}", flush=True)
    return 0


def measure(case: Case, device: Device) -> dict[str, Any]:
    """Compare the others' clusters with the exact ones, and return the fields of the result."""
    points = case.points()
    model = rapids_slink.fit(points, n_clusters=case.n_clusters, device=device.name)
    exact, heights = to_host(model.labels_), to_host(model.distances_)
    others = {}
    if not device.is_gpu and len(points) <= MOST_ROWS:
        merges = rapids_slink.linkage(recipe(points, neighbors(len(points))), device="cpu")
        theirs = merges["height"].to_numpy()
        labels = rapids_slink.cut(merges, n_clusters=case.n_clusters).to_numpy()
        others["recipe"] = {
            "adjusted_rand": adjusted_rand_score(exact, labels),
            "tree_length": float(theirs.sum() / heights.sum()),
            "wrong_heights": int((theirs != heights).sum()),
        }
    if device.is_gpu and importlib.util.find_spec("cuml") is not None:
        others["cuml"] = {"adjusted_rand": adjusted_rand_score(exact, cuml_labels(points, case.n_clusters))}
    counts = {"n": len(points), "n_clusters": case.n_clusters, "n_neighbors": neighbors(len(points))}
    return {"what": case.what, **counts, "others": others}


def neighbors(n: int) -> int:
    """Return how long the lists of n points are: as cuML's are by default."""
    return int(np.log2(n)) + 15


def recipe(points: np.ndarray, k: int) -> pd.DataFrame:
    """Return the spanning tree that the recipe ends with, from lists of k neighbours."""
    n = len(points)
    edges = rapids_slink.minimum_spanning_tree(rapids_slink.knn_graph(points, k, device="cpu"), device="cpu")
    while len(edges) < n - 1:
        component = rapids_slink.fit_graph(edges, n_nodes=n, device="cpu").component_.to_numpy()
        crossing_edges = [nearest_outside(points, component == c) for c in range(component.max() + 1)]
        edges = rapids_slink.minimum_spanning_tree(pd.concat([edges, *crossing_edges], ignore_index=True), device="cpu")
    return edges


def nearest_outside(points: np.ndarray, inside: np.ndarray) -> pd.DataFrame:
    """Return the shortest edge between the points of a component and the others."""
    rows, others = np.flatnonzero(inside), np.flatnonzero(~inside)
    nearest = rapids_slink.nearest_neighbors(points[rows], points[others], device="cpu")
    edge = nearest.iloc[[int(nearest["weight"].to_numpy().argmin())]]
    return edge.assign(src=rows[edge["src"]], dst=others[edge["dst"]])


def cuml_labels(points: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the labels that cuML finds."""
    import cupy
    from cuml.cluster import AgglomerativeClustering

    model = AgglomerativeClustering(n_clusters=n_clusters, connectivity="knn", linkage="single")
    return to_host(model.fit(cupy.asarray(points)).labels_)


def table(folder: Path = FOLDER) -> str:
    """Return what the result files hold, as a Markdown table."""
    lines = [
        "| points | cut into | by | adjusted Rand index | wrong heights | tree's length | result file |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report.load(folder):
        for name, found in row["others"].items():
            by = "the recipe" if name == "recipe" else f"cuML, {row['device']}"
            rand = f"{found['adjusted_rand']:.2f}"
            wrong = f"{found['wrong_heights']:,} of {row['n'] - 1:,}" if "wrong_heights" in found else "–"
            length = f"{found['tree_length']:.2%}" if "tree_length" in found else "–"
            link = f"[{row['date']}](bench/results/recipe/{row['file']})"
            cells = [row["what"], f"{row['n_clusters']:,}", by, rand, wrong, length, link]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

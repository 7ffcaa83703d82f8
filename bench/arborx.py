"""ArborX (Prokopenko et al., ICPP 2022) as a peer: an executable that reads points from a file and prints its seconds.

It is a hundred lines of C++ around ``ArborX::Experimental::MinimumSpanningTree`` and ``ArborX::Experimental::hdbscan``
with ``core_min_size = 1``, is called as ``EXECUTABLE FILE tree`` or ``EXECUTABLE FILE dendrogram``, and prints
``seconds S``, the median of warm runs from points in GPU memory to the result there. Name it in the environment
variable ``ARBORX``. It works in float32 where ours works in float64, and neither makes labels nor checks its input.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np


def write(path: Path, points: np.ndarray) -> None:
    """Write points as the file that the executable reads, in the format of ArborX's own benchmarks.

    The file holds the numbers of points and of features, int32, then the points, float32. A single feature gets a
    second one, of zeros.
    """
    n, d = points.shape
    padded = np.zeros((n, max(d, 2)), np.float32)
    padded[:, :d] = points
    with path.open("wb") as file:
        np.array(padded.shape, np.int32).tofile(file)
        padded.tofile(file)


def run(executable: str, path: Path, result: str) -> float:
    """Return the seconds that the executable prints for a tree, or for tree and dendrogram in one."""
    command = [executable, str(path), result]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    for line in printed.splitlines():
        if line.startswith("seconds "):
            return float(line.split()[1])
    raise RuntimeError(f"{executable} printed no time")

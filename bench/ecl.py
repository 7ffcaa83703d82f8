"""ECL-MST (Fallin et al., SC 2023) as a peer: an executable that reads a graph from a file and prints its seconds.

Build it from its public source with ``nvcc -O3``, and name the executable in the environment variable ``ECL_MST``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from rapids_slink.runtime.device import to_host


def write(path: Path, edges: Any, n: int, xp: Any) -> None:
    """Write an edge frame of a simple graph as the file that the executable reads.

    All is int32: the nodes, the edges, where each node's neighbours start, the neighbours, the weights; every edge is
    there in both directions. Weights that are floats must not be negative: their bits are in the same order.
    """
    src, dst, weight = (edges[name].values for name in ("src", "dst", "weight"))
    if weight.dtype.kind == "f":
        weight = weight.astype("float32").view("int32")
    start = xp.concatenate([src, dst])
    order = xp.argsort(start.astype("int64") * n + xp.concatenate([dst, src]))
    degree = to_host(xp.bincount(start, minlength=n))
    with path.open("wb") as file:
        np.array([n, start.size], np.int32).tofile(file)
        np.concatenate([[0], np.cumsum(degree)]).astype(np.int32).tofile(file)
        for first, second in ((dst, src), (weight, weight)):
            to_host(xp.concatenate([first, second])[order]).astype(np.int32, copy=False).tofile(file)


def run(executable: str, path: Path) -> float:
    """Return the seconds that the executable prints for the GPU, without waiting for its check on the CPU."""
    environment = {**os.environ, "CUDA_MODULE_LOADING": "EAGER"}  # its first launch is within what it times
    environment.pop("LD_PRELOAD", None)
    command = ["stdbuf", "-oL", executable, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            for line in process.stdout or ():
                if line.startswith("Dev"):
                    return float(line.split()[1])
        finally:
            process.kill()
    raise RuntimeError(f"{executable} printed no time")

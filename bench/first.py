"""The first call of a new process, imports included: what somebody waits for who runs a script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from bench.stages import Call, Work

#: The environment variables that say where compiled kernels are kept.
CACHES = ("CUPY_CACHE_DIR", "NUMBA_CACHE_DIR")
SCRIPT = """
import sys, time
start = time.perf_counter()
import numpy as np
points, n_clusters, device = np.load(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
{fit}
seconds = time.perf_counter() - start
np.save(sys.argv[4], heights)
print(seconds)
"""
OURS = """
import rapids_slink
model = rapids_slink.fit(points, n_clusters, device=device)
heights = model.to_scipy()[:, 2]
"""
SCIPY = """
from scipy.cluster.hierarchy import fcluster, linkage
Z = linkage(points, "single")
labels, heights = fcluster(Z, n_clusters, "maxclust"), Z[:, 2]
"""
SKLEARN = """
from sklearn.cluster import AgglomerativeClustering
labels, heights = AgglomerativeClustering(n_clusters, linkage="single").fit(points).labels_, []
"""
CUML = """
from cuml.cluster import AgglomerativeClustering
labels, heights = AgglomerativeClustering(n_clusters=n_clusters, linkage="single").fit(points).labels_, []
"""


class First(NamedTuple):
    """What a new process took, and the heights that it found."""

    seconds: float
    heights: np.ndarray


def of_script(fit: str, cached: bool) -> Callable[[Work], Call]:
    """Return a function that prepares a call: it runs a script in a process of its own.

    If `cached`, compiled kernels are kept from call to call; otherwise each call compiles them.
    """

    def prepare(work: Work) -> Call:
        folder = tempfile.mkdtemp()
        points, heights = Path(folder, "points.npy"), Path(folder, "heights.npy")
        np.save(points, work.points)
        given = [str(points), str(work.case.n_clusters), work.device.name, str(heights)]
        command = [sys.executable, "-c", SCRIPT.format(fit=fit), *given]

        def call() -> First:
            with tempfile.TemporaryDirectory() as empty:
                kept = folder if cached else empty
                environment = {**os.environ, **dict.fromkeys(CACHES, kept)}
                run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            return First(float(run.stdout), np.load(heights))

        weakref.finalize(call, shutil.rmtree, folder)
        return call

    return prepare


def seconds(first: Any) -> float:
    """Return the seconds that a process took."""
    return float(first.seconds)

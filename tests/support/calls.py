"""Calls of every public function, of every way through them; what they take and how they are disturbed."""

import re
import threading

import numpy as np
import pandas as pd
import pytest
from spanning_trees import random_graph

from rapids_slink import DeviceMemoryError, fit, fit_graph, knn_graph, linkage, minimum_spanning_tree, nearest_neighbors
from rapids_slink.runtime import threads
from rapids_slink.runtime.cuda import COMPILERS


def fingerprint(X):
    """Return all that must not change of an input that a caller has kept; None for other kinds of input."""
    if isinstance(X, np.ndarray):
        values = repr(X.tolist()) if X.dtype.hasobject else X.tobytes()
        return X.dtype, X.shape, X.strides, X.flags.writeable, values
    if isinstance(X, pd.DataFrame | pd.Series):
        frame = pd.DataFrame(X)
        values = [frame.iloc[:, i].tolist() for i in range(frame.shape[1])]
        return repr((frame.dtypes.tolist(), frame.index, frame.columns, values))
    return repr(X) if isinstance(X, list | tuple | dict | set) else None


def points(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def graph(n, m):
    return random_graph(np.random.default_rng(0), n, m)


EDGES = graph(3000, 9000)
NAMED = graph(500, 9000).astype({"src": str, "dst": str})
DENSE = graph(300, 40_000)
FOREST = minimum_spanning_tree(EDGES, device="cpu")
SOME, FEW = points(3000, 12), points(7, 12, 1)
PLANE = points(5000, 2).astype(np.float64)
MANY = points(50_000, 12)
OUTLIER = np.concatenate([points(20_000, 12, 1), np.full((1, 12), 1e30, np.float32)])
MIXED = pd.DataFrame(points(3000, 9)).astype({0: np.float64})
CALLS = {
    "fit, few rows": lambda **how: fit(SOME, 3, **how),
    "fit, all pairs": lambda **how: fit(SOME, 3, n_neighbors=8, **how),
    "fit, many neighbours": lambda **how: fit(points(2000, 12), 3, n_neighbors=90, **how),
    "fit, few rows of many features": lambda **how: fit(points(300, 500), 3, n_neighbors=8, **how),
    "fit, a tree": lambda **how: fit(PLANE, 3, **how),
    "fit, core distances": lambda **how: fit(SOME, 3, min_samples=5, **how),
    "fit, core distances in a tree": lambda **how: fit(PLANE, 3, min_samples=5, **how),
    "fit, a frame": lambda **how: fit(MIXED, 3, n_neighbors=8, **how),
    "knn_graph": lambda **how: knn_graph(points(3000, 20), 30, **how),
    "knn_graph, a tree": lambda **how: knn_graph(points(3000, 3), 5, **how),
    "nearest_neighbors": lambda **how: nearest_neighbors(points(4000, 12), points(3000, 12, 1), **how),
    "nearest_neighbors, an outlier": lambda **how: nearest_neighbors(points(400, 12), OUTLIER, **how),
    "nearest_neighbors, few points": lambda **how: nearest_neighbors(MANY, FEW, **how),
    "nearest_neighbors, few queries": lambda **how: nearest_neighbors(FEW, MANY, **how),
    "nearest_neighbors, two types": lambda **how: nearest_neighbors(SOME, PLANE @ np.eye(2, 12), **how),
    "nearest_neighbors, a tree": lambda **how: nearest_neighbors(points(4000, 2), points(3000, 2, 1), **how),
    "minimum_spanning_tree": lambda **how: minimum_spanning_tree(EDGES, **how),
    "minimum_spanning_tree, dense": lambda **how: minimum_spanning_tree(DENSE, **how),
    "minimum_spanning_tree, names": lambda **how: minimum_spanning_tree(NAMED, **how),
    "fit_graph": lambda **how: fit_graph(EDGES, **how),
    "linkage": lambda **how: linkage(FOREST, n_nodes=3000, **how),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def least_limit(call, device):
    """Return the least limit that the refusals of ever larger limits say would do, and what the call then returns."""
    limit = 1
    for _ in range(4):
        with pytest.raises(DeviceMemoryError, match=r"memory_limit=.* is too small for .*: needs at least") as refusal:
            call(device=device, memory_limit=limit)
        limit = re.search(r"needs at least ([\d.]+ [MG]iB) of (GPU )?memory$", str(refusal.value))[1]
        try:
            return limit, call(device=device, memory_limit=limit)
        except DeviceMemoryError:
            pass
    raise AssertionError(f"{limit} was not enough")


def spread(calls, most=8):
    """Return the numbers of some of the calls: the first, the last, and those between at equal distances."""
    return sorted({1 + i * (calls - 1) // (most - 1) for i in range(most)})


class Failing:
    """A function that raises an error at its i-th call, by whichever thread; called at all, it counts."""

    def __init__(self, function, error, fails_at=None):
        self.function, self.error, self.fails_at = function, error, fails_at
        self.calls, self.lock = 0, threading.Lock()

    def __call__(self, *args, **kwargs):
        with self.lock:
            self.calls += 1
            fails = self.calls == self.fails_at
        if fails:
            raise self.error
        return self.function(*args, **kwargs)

    def as_method(self):
        """Return a function that does the same: a class makes methods of functions, but not of other objects."""
        return lambda *args, **kwargs: self(*args, **kwargs)  # noqa: PLW0108


def stray_threads():
    """Return all threads except those that are kept for this thread's next run, and those that compile."""
    helpers = threads._kept.helpers
    others = {thread for thread in threading.enumerate() if not thread.name.startswith(COMPILERS)}
    return others - (set() if helpers is None else {*helpers.threads})

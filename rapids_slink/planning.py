"""The decisions of a fit before it runs: the pipeline up to the choice of the way and of the search."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rapids_slink.metrics import PRECOMPUTED
from rapids_slink.neighbors.plan import DEFAULT_NEIGHBORS
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.pipeline import estimate_fit, read_points
from rapids_slink.points.columns import as_integer
from rapids_slink.points.validate import check_shape
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential, size_text
from rapids_slink.runtime.memory import DeviceMemoryError, check_memory, checked_estimate, required_bytes, run_scope
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.edges import EdgeList
from rapids_slink.spanning_tree.graphs import estimate_given
from rapids_slink.spanning_tree.problem import Problem
from rapids_slink.spanning_tree.ways import estimate_tree, prepared_ways, way_of

#: Rows of the sample that stands for points of which only the shape is known.
SAMPLE_ROWS = 2**11
#: Bytes of a row's results, which a GPU copies out of the run's pool: merges, edges and labels.
RESULT_BYTES = 40


def plan(X: Any, settings: Settings, device: Device, report: Report) -> None:
    """Write into the report what a fit decides about points, or about a shape (n, d); within a run."""
    problem: Problem | None = None
    edges: EdgeList | None = None

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        nonlocal problem
        problem = Problem(settings.for_rows(n), device, n, d, itemsize)
        return estimate_fit(problem)

    values: Any = None
    try:
        if is_shape(X):
            n, d = (as_integer(size, "a size of the shape X") for size in X)
            if min(n, d) < 0 or (settings.metric is PRECOMPUTED and n != d):
                raise ValueError(f"X is no shape of points, or of a square matrix of distances: {X}")
            check_shape((n, d), "X")
            itemsize = 1 if settings.metric.rows == "packed" else 8
            check_memory(device, estimate(n, d, itemsize), f"{counted(n, 'row')} of {counted(d, 'feature')}")
        else:
            points, edges = read_points(X, settings, device, estimate)
            values = points.values
        refused = ""
    except DeviceMemoryError as error:
        refused = str(error)
    assert problem is not None
    if values is None and settings.metric is not PRECOMPUTED:
        values = _sample(problem)
    if edges is None:
        of_tree = _prepared_estimate(problem, values, report)
    else:
        report["way"] = "edges"
        of_tree = estimate_given(edges.src.size, edges.n_nodes, problem.settings.min_samples)
    checked, reserved = checked_estimate()
    copied = checked.retained - estimate_fit(problem).retained if checked else 0  # of X
    copy = MemoryEstimate(2 * copied, copied)
    whole = sequential(copy, estimate_fit(problem, of_tree))
    report.pop("seconds", None)
    peak = max(whole.preferred, reserved) + RESULT_BYTES * problem.n * device.is_gpu
    report["memory"] = {"peak_bytes": peak}
    report["fits"] = not refused
    if refused:
        report["refused"] = refused
        report["instead"] = "; ".join(_alternatives(problem, copy))


def _prepared_estimate(problem: Problem, values: Array, report: Report) -> MemoryEstimate:
    """Bytes of the tree by the first way that serves the points; `values` is None for distances of which none is there.

    The arrays of the way are gone at the end.
    """
    if values is None:
        report["way"] = way_of(problem)
        return estimate_tree(problem)
    rows = values if problem.n == 1 else metric_rows(problem.metric, values, problem.device, compact=True)
    return next(prepared_ways(problem.of_rows(rows), rows, report)).estimate()


def is_shape(X: Any) -> bool:
    """Whether this is (n, d) instead of points."""
    return isinstance(X, tuple) and len(X) == 2 and all(np.ndim(size) == 0 for size in X)


def _sample(problem: Problem) -> Array:
    """Standard normal rows, or random booleans or bits, in place of points whose values are not known."""
    n, d, rng = min(problem.n, SAMPLE_ROWS), problem.n_features, np.random.default_rng(0)
    if problem.metric.rows == "packed":
        return problem.device.asarray(rng.integers(0, 256, (n, d), "uint8"))
    values = rng.standard_normal((n, d))
    if problem.metric.rows == "boolean":
        values = (values > 0).astype(np.float64)
    return problem.device.asarray(np.clip(values, -1, 1) if problem.metric.rows == "sphere" else values)


def _alternatives(problem: Problem, copy: MemoryEstimate) -> Iterator[str]:
    """Other parameters with which the fit would fit into memory, and the copy of X on the device before it."""
    settings = problem.settings
    if settings.memory_limit is not None and _fits(replace(settings, memory_limit=None), problem, copy):
        yield f"memory_limit={size_text(required_bytes(problem.device, sequential(copy, estimate_fit(problem))))!r}"
    for k in range((settings.n_neighbors or DEFAULT_NEIGHBORS) - 1, 0, -1):
        if _fits(replace(settings, n_neighbors=k), problem, copy):
            yield f"n_neighbors={k}"
            break
    if problem.device.is_gpu and _fits(settings, replace(problem, device=CPU), copy):
        yield "device='cpu'"
    yield "a Dask collection, whose blocks wait outside the memory"


def _fits(settings: Settings, problem: Problem, copy: MemoryEstimate) -> bool:
    device = problem.device
    with run_scope(device, settings.memory_limit):
        try:
            check_memory(device, sequential(copy, estimate_fit(replace(problem, settings=settings))), "")
        except DeviceMemoryError:
            return False
        return True

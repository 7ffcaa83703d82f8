"""A plan says what a fit would do: the way to the tree, the memory, and the time by samples.

points, or their shape ──▶ the search as a fit prepares it ──▶ samples that grow ──▶ a report
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rapids_slink.metrics import PRECOMPUTED, Rows
from rapids_slink.neighbors import DEFAULT_NEIGHBORS, tree_class
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.pipeline import RESULT_BYTES, estimate_fit, estimate_fit_of_groups, read_points, tree_of_points
from rapids_slink.points.check import as_integer, check_shape
from rapids_slink.points.keys import read_groups
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import CPU, Array, Device, resolve
from rapids_slink.runtime.memory import (
    DeviceMemoryError,
    MemoryEstimate,
    check_memory,
    current_run,
    required_bytes,
    run_scope,
    size_text,
)
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree.graphs import EdgeList, estimate_given
from rapids_slink.spanning_tree.ways import estimate_tree, prepared_ways, tree_of_rows, way_of

#: The number of rows of the sample that stands for points of which only the shape is known.
SAMPLE_ROWS = 2**11
#: A plan predicts the time of all rows from a sample whose tree takes at least LEAST_TIMED seconds. BY_BOXES are the
#: filters that are trees of boxes.
LEAST_TIMED, BY_BOXES = 0.2, ("k-d tree", "bounding volume hierarchy")


def plan(X: Any, settings: Settings) -> Report:
    """Return the report of `api.plan`."""
    device = resolve(settings.device, *([] if is_shape(X) else [X]))
    report = Report(device=device.name, metric=settings.metric.name)
    with run_scope(device, settings.memory_limit):
        (plan_points if settings.groups is None else plan_groups)(X, settings, device, report)
    return report


def plan_points(X: Any, settings: Settings, device: Device, report: Report) -> None:
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
            itemsize = 1 if settings.metric.rows.are_packed else 8
            check_memory(device, estimate(n, d, itemsize), f"{counted(n, 'row')} of {counted(d, 'feature')}")
        else:
            points, edges = read_points(X, settings, device, estimate)
            values = points.values
        refused = ""
    except DeviceMemoryError as error:
        refused = str(error)
    assert problem is not None
    names = None if values is None else points.names
    problem = replace(problem, settings=problem.settings.of_columns(names, problem.n_features))
    if values is None and settings.metric is not PRECOMPUTED:
        values = _sample(problem)
    tree_estimate = None
    if problem.finds_friends:
        report["way"] = "friends"
        report.count("neighbors", filter=tree_class(device).name)
    elif edges is None:
        tree_estimate = _prepared_estimate(problem, values, report)
    else:
        report["way"] = "edges"
        tree_estimate = estimate_given(edges.src.size, edges.n_nodes, problem.settings.min_samples)
    run = current_run()
    copy = MemoryEstimate(run.estimate.peak - estimate_fit(problem).peak if run.estimate else 0)  # of X
    whole = copy + estimate_fit(problem, tree_estimate)
    report.pop("seconds", None)
    peak = max(whole.preferred, run.reserved) + RESULT_BYTES * problem.n * device.is_gpu
    report["memory"] = {"peak_bytes": peak}
    is_timed = problem.n > 1 and settings.metric is not PRECOMPUTED and report["way"] != "friends"
    if is_timed and not refused:
        report["time"] = {"about_minutes": float(f"{expected_seconds(problem, values, report) / 60:.2g}")}
    report["fits"] = not refused
    if refused:
        report["refused"] = refused
        report["instead"] = "; ".join(_alternatives(problem, copy))


def plan_groups(X: Any, settings: Settings, device: Device, report: Report) -> None:
    """Write the plan of a fit of groups into the report; see `plan_points`."""
    if is_shape(X):
        raise ValueError("a plan of groups takes the rows and their keys: X is a shape")
    X, groups = read_groups(X, settings.groups, settings.metric, device, Report())
    report["way"], report["fits"] = "groups", True
    report.count("groups", groups=len(groups), rows_of_largest=groups.sizes.max())
    whole = MemoryEstimate(0)

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        nonlocal whole
        whole = estimate_fit_of_groups(Problem(settings, device, n, d, itemsize), groups)
        return whole

    try:
        read_points(X, settings, device, estimate, groups)
    except DeviceMemoryError as error:
        report["fits"], report["refused"] = False, str(error)
        report["instead"] = "a Dask collection, whose groups are spread over the workers"
    report["memory"] = {"peak_bytes": whole.preferred + RESULT_BYTES * groups.number.size * device.is_gpu}


def _prepared_estimate(problem: Problem, values: Array, report: Report) -> MemoryEstimate:
    """Estimate the bytes of the tree by the first way that serves the points.

    `values` is None for distances that are not given. The arrays of the way are freed at the end.
    """
    if values is None:
        report["way"] = way_of(problem)
        return estimate_tree(problem)
    rows = values if problem.n == 1 else metric_rows(problem.metric, values, problem.device, compact=True)
    return next(prepared_ways(problem.of_rows(rows), rows, report)).estimate()


def expected_seconds(problem: Problem, values: Array, report: Report) -> float:
    """Return the seconds of the tree, from those of two samples and from how much more work all rows are.

    The work is n² pairs of rows, those that meet in blocks, or n log n visits if trees of boxes serve. A sample is of
    the points, (m, d), or of others like them if these are fewer than n. Samples grow until one takes `LEAST_TIMED`
    seconds.
    """
    by_boxes = report["way"] == "boxes" or report.get("neighbors", {}).get("filter") in BY_BOXES
    n, device = problem.n, problem.device

    def work(m: int) -> float:
        return m * math.log2(m + 1) if by_boxes else float(m) * m

    def seconds(m: int) -> float:
        rows = values if m == len(values) else _sample(problem, m)
        if m < len(values):
            rows = values[device.asarray(np.sort(np.random.default_rng(0).permutation(len(values))[:m]))]
        timed = Report()
        tree_of_points(rows, replace(problem, n=m), timed, tree_of_rows)
        return float(sum(timed["seconds"].values()) - timed["seconds"].get("compiling", 0.0))

    m = min(n, max(SAMPLE_ROWS, 2 * problem.settings.min_samples))
    seconds(m)  # which loads the kernels
    last = seconds(m)
    rate, whole = last / work(m), work(n)
    if report["way"] == "blocks":
        whole = 2.0 * report["neighbors"]["pairs_of_rows"]
    while m < n and last < LEAST_TIMED:
        before, fewer, m = last, m, min(n, 4 * m)
        last = seconds(m)
        rate = max(last - before, 0.0) / (work(m) - work(fewer))
    return last + rate * max(whole - work(m), 0.0)


def is_shape(X: Any) -> bool:
    """Return whether this is (n, d) instead of points."""
    return isinstance(X, tuple) and len(X) == 2 and all(np.ndim(size) == 0 for size in X)


def _sample(problem: Problem, rows: int = SAMPLE_ROWS) -> Array:
    """Return standard normal rows, or random booleans or bits, in place of points whose values are not known."""
    n, d, rng = min(problem.n, rows), problem.n_features, np.random.default_rng(0)
    if problem.metric.rows.are_packed:
        return problem.device.asarray(rng.integers(0, 256, (n, d), "uint8"))
    values = rng.standard_normal((n, d))
    if problem.metric.rows is Rows.BOOLEAN:
        values = (values > 0).astype(np.float64)
    return problem.device.asarray(np.clip(values, -1, 1) if problem.metric.rows is Rows.SPHERE else values)


def _alternatives(problem: Problem, copy: MemoryEstimate) -> Iterator[str]:
    """Yield other parameters with which the fit, and the copy of X on the device, would fit into memory."""
    settings = problem.settings
    if settings.memory_limit is not None and _fits(replace(settings, memory_limit=None), problem, copy):
        yield f"memory_limit={size_text(required_bytes(problem.device, copy + estimate_fit(problem)))!r}"
    for k in range(settings.n_neighbors - 1 if settings.n_neighbors else DEFAULT_NEIGHBORS, 0, -1):
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
            check_memory(device, copy + estimate_fit(replace(problem, settings=settings)), "")
        except DeviceMemoryError:
            return False
        return True

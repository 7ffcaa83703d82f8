"""New rows beside a fitted model: their nearest rows, their clusters, how far rows belong to each; cluster centres.

A catalogue describes the clusters.

HDBSCAN's definitions are those of the package hdbscan. With m = `min_samples` a new row lists its 2m nearest rows. Its
core distance is that of the m + 1-th nearest, and a fitted row's is that of the m - 1-th nearest other row. The anchor
of a new row is the listed row of the least mutual reachability, the first among equals, at λ = 1 / mutual reachability.
The new row is in the anchor's cluster of the condensed tree, or in the first one around that which was born below λ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rapids_slink.dendrogram import Members
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.dendrogram.condense import Condensed, enclosing, raise_to_those_within, summarize
from rapids_slink.items.search import kind_of, nearest_items
from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors import neighbor_lists, prepare_search
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.queries import NearestTask, nearest_neighbors
from rapids_slink.neighbors.rows import metric_rows, require_common_features_with
from rapids_slink.neighbors.task import SearchTask, row_blocks
from rapids_slink.ordering import stable_order
from rapids_slink.points import Points, as_points
from rapids_slink.points.check import check_index, check_weights
from rapids_slink.points.output import TABLES, OutputKind, PreallocatedFrame, array_of, column_names, library_of
from rapids_slink.report import Report, counted, listed
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device, device_of, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, outside_pool
from rapids_slink.runtime.threads import for_each_chunk

#: The number of pairs whose distances are computed at a time, for medoids.
MEDOID_PAIRS = 2**20
#: A number that replaces an infinite λ, that of equal rows, so that the sums and quotients below stay finite.
LARGEST_RATE = 1e150
#: The number that hdbscan adds to a divisor that may be zero, or takes in its place.
TINY = 1e-8
#: The number of pairs, of two rows or of a row and a cluster, that are computed at a time.
BLOCK_PAIRS = 2**22


@dataclass(frozen=True)
class FittedRows:
    """The rows that a model keeps, with their metric."""

    values: Array  # (n, d) array, of either device
    names: list[Any] | None  # the columns' names
    metric: Metric
    kind: str  # the model's class, for errors
    missing_values: tuple[Any, ...] = ()  # what stands for a missing value in new rows

    def read(self, X: Any, device: Device) -> tuple[Points, tuple[Array, Array]]:
        """Return new rows, and their values and the fitted rows' in one type; a frame's columns go by name."""
        X, output = OutputKind.of(X, device)
        X = self.columns_of(X)
        points = as_points(X, device, metric=self.metric, missing_values=self.missing_values)
        points = replace(points, index=output.index_of(X), output=output)
        d, fitted_d = points.values.shape[1], self.values.shape[1]
        if d != fitted_d:
            raise ValueError(f"X has {d} features, but {self.kind} is expecting {fitted_d} features as input")
        dtype = np.result_type(points.values.dtype, self.values.dtype)
        both = points.values.astype(dtype, copy=False), device.asarray(self.values, dtype)
        return points, both

    def columns_of(self, X: Any) -> Any:
        """Return `X` with the columns of the fit in their order; raise ValueError if it has others."""
        columns = column_names(X)
        if self.names is None or columns is None or columns == self.names:
            return X
        if set(columns) != set(self.names) or len(columns) != len(set(columns)):
            valid = f"X must have the columns that {self.kind} was fitted on, [{listed(self.names)}]"
            raise ValueError(f"{valid}, got [{listed(columns)}]")
        return X[self.names] if library_of(X) else X.select(self.names)


@dataclass(frozen=True)
class Fitted:
    """A model to which rows are added."""

    rows: FittedRows
    #: `tree` and `linkage` are DataFrames: the model's `mst_` and `linkage_`
    tree: Any
    linkage: Any
    index: Any  # the index of the model's rows
    output: OutputKind

    def index_with(self, new: Points) -> Any:
        """Return the index of all rows, None if the model has none; new rows without an index are numbered."""
        if self.index is None:
            return None
        n, m = len(self.index), len(new.values)
        index = new.index if new.index is not None else device_of(self.index).frames.RangeIndex(n, n + m)
        return self.index.append(OutputKind(True, self.output.gpu).index(index))


def nearest_labels(X: Any, fitted: FittedRows, labels: Array, height: float, device: Device, report: Report) -> Any:
    """Return the label of each new row's nearest row if that is nearer than `height`, else -1, in the type of `X`."""
    with report.stage("predict", device):
        X, output = OutputKind.of(X, device)
        if kind := kind_of(fitted.metric, fitted.values):
            X, index = fitted.columns_of(X), output.index_of(X)
            items = kind.read({"X": X, "the model": fitted.values}, fitted.metric, device)
            m = len(items) - len(fitted.values)
            row, weight = (part[:, 0] for part in nearest_items(items, m, height))
            row = row - np.int32(m)
        else:
            points, (new, old) = fitted.read(X, device)
            if fitted.metric.formula.is_undefined_without_common:
                require_common_features_with(new, old, device)
            edges = nearest_neighbors(new, old, NearestTask(fitted.metric), device)
            row, weight = (device.asarray(edges[name].values) for name in ("dst", "weight"))
            index = points.index
        near = weight < height
        label = device.xp.where(near, device.asarray(labels)[row], -1)
        report.count("predict", rows=near.size, noise=near.size - int(near.sum()))
        return results(device, output.from_cuml_setting().labels, label.astype("int32"), index)


def core_distances(values: Array, metric: Metric, min_samples: int, device: Device) -> Array:
    """Return each row's distance from its k-th nearest other row, k = `min_samples` - 1; zeros if that is 0."""
    n, k = len(values), min_samples - 1
    if k == 0:
        return device.xp.zeros(n)
    search = prepare_search(metric_rows(metric, values, device), device, Report(), metric=metric)
    lists = neighbor_lists(search, n, k, device)
    ids, weight = (device.xp.ascontiguousarray(part[:, -1]) for part in (lists.ids, lists.weights))
    return distances(metric, weight, (device.xp.arange(n, dtype="int32"), ids), (values, values), device)


def results(device: Device, convert: Callable[..., Any], values: Array, *names: Any) -> Any:
    """Return the results of a prediction, in memory that outlives the run."""
    with outside_pool(device):
        return convert(values if isinstance(values, np.ndarray) else values.copy(), *names)


# ------------------------------------------------------------------------------------------------------- centres


def centroids(values: Array, labels: np.ndarray, strength: np.ndarray, k: int, device: Device) -> Array:
    """Return the mean of each label's rows, weighted by their strength, (k, d) float64."""
    xp, means = device.xp, device.xp.empty((k, values.shape[1]))
    for label in range(k):
        rows = np.flatnonzero(labels == label)
        weight = device.asarray(strength[rows])[:, None]
        means[label] = (values[device.asarray(rows)] * weight).sum(axis=0, dtype="float64") / weight.sum()
    return xp.ascontiguousarray(means)


def medoids(values: Array, labels: np.ndarray, strength: np.ndarray, k: int, metric: Metric, device: Device) -> Any:
    """Return for each label the row with the least sum of distances to its rows, weighted by strength, (k,) int64."""
    reading, chosen = metric_rows(metric, values, device), np.empty(k, np.int64)
    for label in range(k):
        rows = np.flatnonzero(labels == label)
        total = _distance_sums(values, reading, device.asarray(rows.astype(np.int32)), strength[rows], metric, device)
        chosen[label] = rows[int(total.argmin())]
    return chosen


def _distance_sums(values: Array, reading: Array, rows: Array, strength: Any, metric: Metric, device: Device) -> Array:
    """Return the weighted sum of the distances of each of these rows to all of them, (m,) float64."""
    xp, m, weight = device.xp, rows.size, device.asarray(strength)
    total = xp.empty(m)

    def add(block: slice) -> None:
        some = rows[block]
        src, dst = xp.repeat(some, m), xp.tile(rows, some.size)
        surrogate = kernels(device).pair_distances(reading, src, dst, metric)
        length = distances(metric, surrogate, (src, dst), (values, values), device)
        total[block] = (length.reshape(some.size, m) * weight).sum(axis=1)

    for_each_chunk(device, add, row_blocks(m, m, MEDOID_PAIRS))
    return total


# ------------------------------------------------------------------------------------------------------- HDBSCAN


@dataclass(frozen=True)
class Density:
    """A fitted HDBSCAN as predictions read it."""

    rows: FittedRows
    core: Array  # (n,) array, see `core_distances`
    min_samples: int
    tree: Condensed  # on the host
    selected: np.ndarray  # (k,) array, the cluster of each label in the tree

    @cached_property
    def label(self) -> np.ndarray:
        """Return for each cluster of the tree the label of the selected cluster that is or contains it; -1 if none."""
        selected, label = np.zeros(self.tree.parent.size, bool), np.full(self.tree.parent.size + 1, -1, np.int32)
        selected[self.selected] = True
        label[self.selected] = np.arange(self.selected.size)
        return label[enclosing(self.tree.parent, selected)]

    @cached_property
    def largest(self) -> np.ndarray:
        """Return for each cluster of the tree the largest λ at which a row falls out of it or a cluster splits off."""
        return summarize(self.tree).largest

    @cached_property
    def exemplars(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that stay until the end in a cluster without children, by label, and their labels."""
        ends, (parent, _, _, cluster, departure) = np.ones(self.label.size, bool), self.tree
        ends[parent[1:]] = False
        label = np.where(ends[cluster] & (departure == self.largest[cluster]), self.label[cluster], -1)
        order = np.argsort(label, kind="stable")
        rows = order[np.searchsorted(label[order], 0) :]
        return rows, label[rows]

    def rates(self, cluster: np.ndarray, rate: np.ndarray, device: Device) -> Array:
        """Return the λ at which rows of these clusters and λ part from each selected cluster, (rows, k)."""
        parting_rates = _parting_rates(self.tree.parent, self.tree.birth, self.selected, self.label)
        parted = device.asarray(parting_rates)[device.asarray(cluster)]
        return device.xp.minimum(device.xp.where(parted < 0, device.asarray(rate)[:, None], parted), LARGEST_RATE)

    def anchors(self, X: Any, device: Device) -> tuple[Points, Array, np.ndarray, np.ndarray]:
        """Return new rows as points, their values, and the anchor of each with its λ."""
        points, (new, old) = self.rows.read(X, device)
        metric, n, xp = self.rows.metric, len(old), device.xp
        reading = [metric_rows(metric, part, device, alone=False) for part in (old, new)]
        search = prepare_search(reading[0], device, Report(), queries=reading[1], metric=metric)
        rows, k = xp.arange(len(new), dtype="int32"), min(2 * self.min_samples, n)
        nearest = search.find(SearchTask(rows, k, rows, xp.full(n, -1, "int32")))
        if not float(nearest.weights.max()) < np.inf:
            raise ValueError(f"The {metric.name} distances of X and the fitted rows overflow float64. Rescale both.")
        ids = nearest.ids.ravel()
        length = distances(metric, nearest.weights.ravel(), (xp.repeat(rows, k), ids), (new, old), device)
        length = length.reshape(len(new), k)
        core = length[:, min(self.min_samples, k - 1), None]
        reach = xp.maximum(xp.maximum(device.asarray(self.core)[nearest.ids], core), length)
        at = reach.argmin(axis=1)
        with np.errstate(divide="ignore", over="ignore"):
            rate = 1 / to_host(reach[rows, at])
        return points, new, to_host(nearest.ids[rows, at]), rate


def approximate_predict(X: Any, model: Density, device: Device, report: Report) -> tuple[Any, Any, Any]:
    """Return new rows' labels, probabilities and anchors; see `HDBSCAN.approximate_predict`."""
    with report.stage("predict", device):
        points, _, anchor, rate = model.anchors(X, device)
        tree = model.tree
        cluster = _clusters_around(tree.parent, tree.birth, tree.cluster, tree.departure, anchor, rate)
        label = model.label[cluster]
        largest = np.where(label < 0, np.inf, model.largest[model.selected[label]] if model.selected.size else np.inf)
        probability = np.where(label < 0, 0.0, 1.0)
        finite = (label >= 0) & (rate < largest)
        probability[finite] = rate[finite] / largest[finite]
        report.count("predict", rows=label.size, noise=(label < 0).sum())
        named = (label, "label"), (probability, "probability"), (anchor, "row")
        label, probability, anchor = (results(device, points.labels, part, name) for part, name in named)
    return label, probability, anchor


def predict_scores(X: Any, model: Density, device: Device, report: Report) -> Any:
    """Return the outlier score of each new row; see `hdbscan.approximate_predict_scores`."""
    with report.stage("predict", device):
        points, _, anchor, rate = model.anchors(X, device)
        largest = model.largest.copy()
        raise_to_those_within(model.tree.parent, largest)
        densest = np.minimum(largest[model.tree.cluster[anchor]], LARGEST_RATE)
        score = (densest - np.minimum(rate, LARGEST_RATE)) / densest
        return results(device, points.labels, score, "outlier_score")


def membership_vector(X: Any, model: Density, device: Device, report: Report) -> Any:
    """Return how far new rows belong to each cluster, (m, k); see `HDBSCAN.membership_vector`."""
    with report.stage("predict", device):
        points, new, anchor, rate = model.anchors(X, device)
        clusters, xp = model.tree.cluster[anchor], device.xp
        rate = np.minimum(rate, model.tree.departure[anchor])
        with np.errstate(over="ignore"):
            rounded = rate.astype(np.float32).astype(np.float64)  # as hdbscan takes it for its scores

        def vectors(rows: slice) -> Array:
            cluster = clusters[rows]
            densest = device.asarray(np.minimum(model.largest[cluster], LARGEST_RATE))[:, None]
            room = densest - model.rates(cluster, rounded[rows], device)
            score = densest / xp.where(room > 0, room, TINY)
            score = xp.exp(score - score.max(axis=1, keepdims=True))
            near = _nearness(new[rows], model, device) ** 0.5 * _shares(score, xp) ** 2
            return _shares(near, xp) * _in_some_cluster(model, cluster, rate[rows], TINY, device)[:, None]

        convert = points.output.from_cuml_setting().array
        return results(device, convert, _by_blocks(len(new), model, device, vectors))


def all_membership_vectors(output: OutputKind, model: Density, device: Device, report: Report) -> Any:
    """Return how far fitted rows belong to each cluster; see `HDBSCAN.all_points_membership_vectors`."""
    with report.stage("predict", device):
        values, xp = device.asarray(model.rows.values), device.xp

        def vectors(rows: slice) -> Array:
            cluster, rate = model.tree.cluster[rows], model.tree.departure[rows]
            densest = device.asarray(np.minimum(model.largest[cluster], LARGEST_RATE) + TINY)[:, None]
            with np.errstate(divide="ignore"):
                score = xp.exp(xp.exp(-(densest / model.rates(cluster, rate, device))))
            near = _nearness(values[rows], model, device) * _shares(score, xp)
            return _shares(near, xp) * _in_some_cluster(model, cluster, rate, 0.0, device)[:, None]

        return results(device, output.array, _by_blocks(len(values), model, device, vectors))


def _by_blocks(m: int, model: Density, device: Device, vectors: Callable[[slice], Array]) -> Array:
    """Return the vectors of m rows, (m, k), computed for some rows at a time."""
    k = model.selected.size
    whole = device.xp.empty((m, k))
    for rows in row_blocks(m, k, BLOCK_PAIRS) if k else []:
        whole[rows] = vectors(rows)
    return whole


def _in_some_cluster(model: Density, cluster: np.ndarray, rate: np.ndarray, more: float, device: Device) -> Array:
    """Return the λ at which each row leaves its nearest selected cluster, divided by the larger λ of the two."""
    xp, rates = device.xp, model.rates(cluster, rate, device)
    largest = device.asarray(np.minimum(model.largest[model.selected], LARGEST_RATE))[rates.argmax(axis=1)]
    return rates.max(axis=1) / (xp.maximum(largest, device.asarray(np.minimum(rate, LARGEST_RATE))) + more)


def _shares(values: Array, xp: Any) -> Array:
    """Return each row of (m, k) values that are not negative as shares of its sum."""
    total = values.sum(axis=1, keepdims=True)
    return values / xp.where(total > 0, total, 1.0)


def _nearness(values: Array, model: Density, device: Device) -> Array:
    """Return the inverse distances of rows from the nearest exemplars of each label, as shares, (m, k)."""
    rows, label = model.exemplars
    least = exemplar_distances(values, model.rows, rows, label, model.selected.size, device)
    xp, largest = device.xp, float(np.finfo(np.float64).max) / model.selected.size
    with np.errstate(divide="ignore"):
        return _shares(xp.minimum(1 / least, largest), xp)


def exemplar_distances(values: Array, fitted: FittedRows, rows: Array, label: Array, k: int, device: Device) -> Array:
    """Return the distance of each of m rows from the nearest of the fitted `rows` of each label, (m, k) float64."""
    xp, m, count = device.xp, len(values), rows.size
    chosen = device.asarray(fitted.values)[device.asarray(rows)].astype(values.dtype)
    both = xp.concatenate([values, chosen])
    reading = xp.ascontiguousarray(metric_rows(fitted.metric, both, device, alone=False))
    least = xp.full((m, k), xp.inf)
    ends, groups = m + xp.arange(count, dtype="int32"), device.asarray(label.astype(np.int32))

    def fill(block: slice) -> None:
        size = len(least[block])
        src = xp.repeat(xp.arange(m, dtype="int32")[block], count)
        dst, group = xp.tile(ends, size), xp.repeat(xp.arange(size, dtype="int32") * k, count) + xp.tile(groups, size)
        weight = kernels(device).pair_distances(reading, src, dst, fitted.metric)
        length = distances(fitted.metric, weight, (src, dst), (both, both), device)
        part = xp.full(size * k, xp.inf)
        kernels(device).scatter_min(part, group, length[:, None])
        least[block] = part.reshape(size, k)

    for_each_chunk(device, fill, row_blocks(m, count, BLOCK_PAIRS))
    return least


def relative_validity(labels: np.ndarray, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> float:
    """Return `HDBSCAN.relative_validity_`, from labels and a tree's edges.

    A cluster's sparseness is its heaviest edge, its separation the lightest edge to another cluster. Without such an
    edge the separation is twice the tree's heaviest edge, or for one cluster twice the lightest edge between it and
    noise.
    """
    size = np.bincount(labels + 1, minlength=1)[1:]
    sparseness, separation = np.zeros(size.size), np.full(size.size, np.inf)
    a, b = labels[src], labels[dst]
    same, other, border = (a == b) & (a >= 0), (a != b) & (a >= 0) & (b >= 0), (a >= 0) != (b >= 0)
    np.maximum.at(sparseness, a[same], weight[same])
    for end in (a, b):
        np.minimum.at(separation, end[other], weight[other])
    heaviest = weight.max(initial=0.0)
    alone = weight[border].min() if size.size == 1 and border.any() else heaviest
    separation[separation == np.inf] = 2 * alone
    with np.errstate(invalid="ignore"):
        index = (separation - sparseness) / np.maximum(separation, sparseness)
    return float((size * np.nan_to_num(index)).sum() / labels.size)


@njit(nogil=True, cache=True)
def _clusters_around(parent: Any, birth: Any, cluster: Any, departure: Any, anchor: Any, rate: Any) -> Any:
    """Return each new row's cluster: its anchor's, or the smallest that contains it and was born below the row's λ."""
    around = cluster[anchor]
    for i in range(anchor.size):
        if departure[anchor[i]] > rate[i]:
            while around[i] > 0 and birth[around[i]] >= rate[i]:
                around[i] = parent[around[i]]
    return around


@njit(nogil=True, cache=True)
def _parting_rates(parent: Any, birth: Any, selected: Any, label: Any) -> Any:
    """Return the λ at which each cluster and each selected one part, (clusters, k); -1 if one is in the other."""
    rates = np.zeros((parent.size, selected.size))
    for j in range(selected.size):
        c = selected[j]
        while c >= 0:
            rates[c, j] = -1
            c = parent[c]
    for c in range(1, parent.size):
        for j in range(selected.size):
            around = rates[parent[c], j]
            if rates[c, j] < 0 or label[c] == j:
                rates[c, j] = -1
            else:
                rates[c, j] = birth[c] if around < 0 else around
    return rates


# ------------------------------------------------------------------------------------------------------------ catalogue
#
#     rows, labels ──▶ members by cluster ──▶ means ──▶ distances from the means ──▶ a row for each cluster
#                                             `means_of_clusters`, `deviations_of_clusters`
#
# Sums are in float64 and in one order on either device: `PART` members of a cluster are added in the order of their
# rows, and then these sums. So all columns have the same bits on both devices, in every run.
#
# A box that repeats has a length for each feature, infinite for a feature that does not repeat. Members are moved by
# whole lengths to where they are nearest to the first one, then averaged, and the mean is moved into the box. Distances
# from it are those of the nearest images.

#: The number of members that are summed at a time.
PART = constant("dendrogram/catalogue.cu", "PART")
#: The bytes of a row at the peak, which is while the rows of large clusters are sorted.
CATALOGUE_BYTES = 48
#: The columns besides the means.
COLUMNS = ("label", "size", "mass", "radius", "spread")


@dataclass(frozen=True)
class CatalogueRows:
    """The rows of a catalogue, with their weights."""

    points: Points  # the features, in which distances are
    others: Points | None  # what is averaged as well
    weight: Array  # (n,) float64, the mass of each row, or None for 1

    @property
    def names(self) -> list[Any]:
        """Return the names of the means: those of the columns, or x0, x1 and so on for arrays."""
        names: list[Any] = []
        for part in filter(None, (self.points, self.others)):
            numbers = range(len(names), len(names) + part.values.shape[1])
            names += [f"x{number}" for number in numbers] if part.names is None else part.names
        return names


def read_rows(
    X: Any, features: list[Any], columns: Any, weights: Any, n: int, device: Device, index: Any = None
) -> CatalogueRows:
    """Read the caller's rows, further columns to average, and the rows' weights; within a run.

    `index` is the index of the n rows that were clustered, None if they have none. `columns` and `weights` are values,
    or names of columns of `X`. `features` are the names of the fit's columns, if these had names. If a frame has all of
    these columns, they are the features; otherwise the columns that are not named are. Raises ValueError or TypeError
    for input that is not valid.
    """
    present, further = column_names(X) or [], None
    if isinstance(columns, str) or (isinstance(columns, list | tuple) and all(isinstance(c, str) for c in columns)):
        further = [columns] if isinstance(columns, str) else list(columns)
    named = [*(further or []), *([weights] if isinstance(weights, str) else [])]
    for name in named:
        if name not in present:
            raise ValueError(f"X has no column {name!r}" + (f", only {present}" if present else ": it is an array"))
    if further is not None:
        columns = _only(X, further) if further else None
    if isinstance(weights, str):
        weights = as_points(_only(X, [weights]), device, name="weights").values[:, 0]
    if present:
        whole = features and set(features) <= set(present)
        X = _only(X, features if whole else [name for name in present if name not in named])
    points = _read(X, "X", n, device)
    if points.names is None and len(features) == points.values.shape[1]:
        points = replace(points, names=features)
    index, source = (points.index, "X") if index is None else (index, "model.labels_")
    check_index(columns, index, "columns", source)
    rows = CatalogueRows(
        points,
        None if columns is None else _read(columns, "columns", n, device),
        None if weights is None else check_weights(weights, n, device, "weights", index, source),
    )
    names = [*COLUMNS, *rows.names]
    for name in rows.names:
        if names.count(name) > 1:
            raise ValueError(f"the catalogue would have two columns {name!r}: rename the one of the rows")
    return rows


def _only(X: Any, names: list[Any]) -> Any:
    """Return a frame or table with these columns alone, in this order."""
    names = list(dict.fromkeys(names))
    return X.select(names) if library_of(X) in TABLES else X[names]


def _read(X: Any, name: str, n: int, device: Device) -> Points:
    """Read the argument `name` as points, and raise unless it has n rows; a single column is one feature."""
    if column_names(X) is None:
        X = array_of(X) if library_of(X) else X
        X = X[:, None] if getattr(X, "ndim", 2) == 1 else X
    points = as_points(X, device, name=name)
    if len(points.values) != n:
        raise ValueError(f"{name} must have the {n:,} rows that were clustered, got {len(points.values):,}")
    return points


def catalogue_of(
    rows: CatalogueRows, labels: Array, min_size: int, device: Device, box: np.ndarray | None = None
) -> PreallocatedFrame:
    """Return a frame with a row for each cluster of at least `min_size` rows, by label; within a run.

    `labels` are (n,) int32; a row whose label is below 0 is in no cluster. `box` is the length of each feature, (d,)
    float64, infinite by default.
    """
    n, (values, weight) = labels.size, (rows.points.values, rows.weight)
    sums = (n // PART + n // min_size) * 16 * (len(rows.names) + 3)  # the bytes of the sums of parts and of clusters
    check_memory(device, MemoryEstimate(CATALOGUE_BYTES * n + sums), f"a catalogue of {counted(n, 'row')}")
    label, size, members = members_of(labels, min_size, weight, device)
    lengths = device.asarray(np.full(values.shape[1], np.inf) if box is None else box, "float64")
    mean, mass = dendrogram_kernels(device).means_of_clusters(values, members, lengths)
    radius, spread = dendrogram_kernels(device).deviations_of_clusters(values, members, lengths, mean, mass)
    means = list(mean.T)
    if rows.others is not None:
        others = rows.others.values
        no_box = device.asarray(np.full(others.shape[1], np.inf))
        means += list(dendrogram_kernels(device).means_of_clusters(others, members, no_box)[0].T)
    columns = {"label": label, "size": size} | ({} if weight is None else {"mass": mass})
    columns |= dict(zip(rows.names, map(device.xp.ascontiguousarray, means), strict=True))
    return PreallocatedFrame.of(device, {**columns, "radius": radius, "spread": spread})


def members_of(labels: Array, min_size: int, weight: Array, device: Device) -> tuple[Array, Array, Members]:
    """Return the labels (int32), the sizes (int64) and the members of the clusters of at least `min_size` rows."""
    xp = device.xp
    sizes = xp.bincount(xp.maximum(labels, -1) + 1, minlength=1)[1:]
    label = xp.flatnonzero(sizes >= min_size).astype("int32")
    number = xp.full(sizes.size + 1, -1, "int32")  # the last is that of no cluster
    number[label] = xp.arange(label.size, dtype="int32")
    cluster_of_row = number[labels]
    rows = xp.flatnonzero(cluster_of_row >= 0)
    size, start = sizes[label], xp.zeros(label.size + 1, "int64")
    start[1:] = xp.cumsum(size)
    ordered = rows[stable_order(cluster_of_row[rows], xp)].astype("int64")
    return label, size.astype("int64"), Members(ordered, start, weight)

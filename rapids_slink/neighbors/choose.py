"""Which way is taken: work that is counted, times what it costs on the device. No clock is read.

Calls with the same memory count the same, so they take the same way. A cheap look at a sample of the values can only
exclude a candidate. Then the candidate is prepared, and the pairs of rows that it needs are counted.
CONTRIBUTING has the rules in a table. The unit of most costs is a *product*: of one feature of two rows, in the filter
of all pairs.
"""

from __future__ import annotations

from math import inf, log
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import REST, SAMPLE, PrincipalAxes, Scaling, sample_stride
from rapids_slink.neighbors.task import golden_stride
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, share_true, to_host


class Costs(NamedTuple):
    """What work costs on a device, and how its filter rounds coordinates."""

    product: float  # seconds, of one feature of a pair
    survivor: float  # seconds for a pair that passes the filter
    byte: float  # seconds to read a byte of a survivor's row
    rounding: float  # how far rounding moves a coordinate, as a share of the coordinates' root mean square
    look: float  # the time of a look at a sample of the values, in products
    prepare: float  # the time in which a tree of boxes is made and tried, maybe in vain, in products
    forest: float  # the time of the forest that tells where lists end, or of an order of tiles, in products
    distance: float  # products that take as long as one feature of a pair in float64, where points are few
    visit: float  # products of a visit, for each feature of a point in the leaf; on a GPU, of a node
    tile: float  # products that take as long as one feature of a pair whose tiles are formed
    weight: int  # the time of an exact weight, in pairs of points that a filter tests
    tree_features: int  # up to this many features a tree takes the least time whatever the values are
    low_features: int  # up to this many it does if the values are of low dimension
    axis: float = 0.0  # seconds to project a feature onto an axis
    rest: int = REST  # over how many coordinates the length of the rest is spread
    step: int = 32  # the number of all coordinates is a multiple of this


#: Measured on two cores, which multiply a pair once for both points and move no coordinate far, and on an H100, which
#: rounds a coordinate to a 25th of the coordinates' root mean square. "mma.sync" is a GPU before Hopper.
CUDA = Costs(
    1.0e-15, 3e-10, 4e-13, 1 / 25 / 12**0.5, look=2.0**38, prepare=2.0**38, forest=2.0**42, distance=16,
    visit=1, tile=10 / 3, weight=1024, tree_features=6, low_features=32,
)  # fmt: skip
COSTS = {
    "cpu": Costs(
        1.2e-11, 2e-9, 1.6e-10, 1e-6, look=2.0**30, prepare=2.0**32, forest=6.4e9, distance=4 / 3, visit=16, tile=4,
        weight=512, tree_features=8, low_features=64, axis=6e-11, rest=1, step=16,
    ),
    "cuda": CUDA,
    "mma.sync": CUDA._replace(product=1.9e-15),
}  # fmt: skip
#: A row has at least this many features in a product.
LEAST_FEATURES = 64


def products(m: int, n: int, d: int = 0) -> float:
    """Return the products of all pairs of m rows and n points of d features."""
    return float(m) * n * max(d, LEAST_FEATURES)


def takes_less(name: str, all_pairs: float, share: float, report: Report) -> bool:
    """Return whether a candidate's work is at most that of all pairs, `share` being their quotient; report both."""
    counts = {"work_all_pairs": int(all_pairs), f"work_{name}": int(share * all_pairs)}
    report.setdefault("neighbors", {}).update(counts)
    return share <= 1


# ----------------------------------------------------------------------------------------------------- all distances

#: Up to FEW_POINTS all distances are computed whatever they cost. A matrix of those of MANY_POINTS fits into memory.
FEW_POINTS, MANY_POINTS = 2000, 2**13
#: The most points for each feature whose distances a CPU computes in place of searching a tree.
TREE_POINTS = 400
#: A pair costs PAIR_FEATURES features more than it has. Where there are powers, it costs POWERS times as much on a GPU.
PAIR_FEATURES, POWERS = 8, 32


def takes_all_distances(n: int, d: int, metric: Metric, min_samples: int, device: Device, compact: bool) -> bool:
    """Return whether the distances of all n points make the tree in the least time, wherever they are stored."""
    cost = COSTS[device.name]
    work = n * n * (d + PAIR_FEATURES) * cost.distance * (POWERS if device.is_gpu and metric.formula.has_powers else 1)
    if device.is_gpu:
        return n <= MANY_POINTS and work <= cost.look
    if compact:
        return n <= MANY_POINTS
    if metric.boxes and d <= cost.tree_features:
        return min_samples == 1 and n <= few_points(d, metric)
    return n <= FEW_POINTS or (min_samples == 1 and work <= cost.look)


def few_points(d: int, metric: Metric) -> int:
    """Return the most points of d features whose pairs a CPU compares without storing distances, whatever the work."""
    by_tree = metric.boxes and d <= COSTS["cpu"].tree_features
    return max(FEW_POINTS, TREE_POINTS * d) if by_tree else FEW_POINTS


def takes_all_pairs(pairs: Any, device: Device) -> Any:
    """Return whether weighing all of this number of pairs, or of each of several, takes less than a look at values."""
    cost = COSTS[device.name]
    return pairs * float(cost.weight * LEAST_FEATURES) <= cost.look


# ------------------------------------------------------------------------------------------------------------- trees

#: On a GPU a tree also searches points of 7 and of 8 features, from these numbers of points on: the first with a
#: product filter, the second with another. All pairs are about as fast then for Gaussian points, and take many
#: times as long for points along curves: see bench/NOTES.md.
GPU_TREE_POINTS = {7: (600_000, 30_000), 8: (1_200_000, 60_000)}
#: The largest expansion for which a GPU makes a tree: of many points, and of fewer in proportion. It shows
#: points in space, whose searches visit most nodes, one after the other, however few points they are.
MAX_EXPANSION, EXPANDED = 0.015, 6


def is_searched_by_tree(n: int, d: int, metric: Metric, device: Device) -> bool:
    """Return whether a tree searches n points of d features: a row's time then hardly grows with n."""
    cost = COSTS[device.name]
    if not metric.boxes:
        return False
    if forced().search:
        return forced().search == "tree" and d <= cost.low_features
    fewest = GPU_TREE_POINTS.get(d, (inf, inf))[metric.filter != "product"] if device.is_gpu else inf
    return d <= cost.tree_features or n >= fewest


def takes_friends(n: int, d: int, metric: Metric, device: Device) -> bool:
    """Return whether friends of friends make labels in less time than the tree of n points of d features.

    Surrogate distances have to decide which points are near. With more features too many points are within a distance.
    """
    if metric.changes_order or min(n, d) < 2 or d > COSTS[device.name].tree_features // 2:
        return False
    wanted, are_few = forced().tree, takes_all_pairs(n * (n / 2), device)
    return is_searched_by_tree(n, d, metric, device) and (wanted == "friends" if wanted else not are_few)


def may_be_low_dimensional(n: int, d: int, metric: Metric, device: Device) -> bool:
    """Return whether the values should decide if a tree searches points of many features after all."""
    cost = COSTS[device.name]
    is_between = metric.boxes and cost.tree_features < d <= cost.low_features and not forced().search
    return is_between and is_worth_a_look(n, n, d, device)


def is_worth_a_look(m: int, n: int, d: int, device: Device) -> bool:
    """Return whether all pairs of m rows and n points take longer than to look at values and prepare another search.

    A CPU takes longer to prepare it with more features.
    """
    return products(m, n, d if device.is_gpu else 0) >= COSTS[device.name].prepare


def max_expansion(n: int) -> float:
    """Return the largest expansion of n points for which a GPU makes a tree."""
    return MAX_EXPANSION * min(1.0, (products(n, n) / COSTS["cuda"].prepare) ** 0.5 / EXPANDED)


# ------------------------------------------------------------------------------------------------------------- tiles

#: The searches in tiles: for all tasks, and for lists alone in clusters that are about as wide as they are far apart.
TILES = "tiles", "tiles for lists"
#: Tiles may serve if at most `MAX_SPREAD` of a sample are within `TIMES` the distance to the nearest, and that is
#: within `MAX_NEAREST` of their spread. They may serve for lists if at most `MAX_CLUSTER` of the sample are that near:
#: then most pairs of tiles are of two clusters. Within `BLURRED` of it no filter tells points apart.
TIMES, MAX_SPREAD, MAX_NEAREST, MAX_CLUSTER, BLURRED = 3, 0.4, 0.15, 0.15, 0.02


def possible_tiles(values: Array, n: int, all_pairs: float, device: Device) -> str | None:
    """Return which of `TILES` may serve n points, of which `values` are some; None if neither does.

    `all_pairs` are the products of all pairs. If they take a GPU less time than an order of tiles does, tiles serve
    only points that a filter does not tell apart.
    """
    forest = COSTS[device.name].forest
    farthest = BLURRED if device.is_gpu and all_pairs < forest else MAX_NEAREST
    share, nearest = expansion(values, device, TIMES)
    if share <= MAX_SPREAD and nearest <= farthest:
        return TILES[0]
    are_many = device.is_gpu and products(n, n) >= 8 * forest
    return TILES[1] if are_many and share <= MAX_CLUSTER else None


# ------------------------------------------------------------------------------------------------------------ blocks

#: How many pairs of a search over all take as long as a pair within a block, and as a product with a pivot.
BLOCK_PAIRS, PIVOT_PAIRS = 2, 32


def block_rows(device: Device) -> int:
    """Return about how many rows a block has, so that its products take 256 times as long as a look at the values."""
    return int((256 * COSTS[device.name].look / LEAST_FEATURES) ** 0.5)


def takes_blocks(share: float, pivots: int, n: int, d: int, report: Report) -> bool:
    """Return whether blocks in which a share of the pairs of n points meets take less than a search over all pairs."""
    return takes_less("blocks", products(n, n, d), BLOCK_PAIRS * share + 2 * PIVOT_PAIRS * pivots / n, report)


# -------------------------------------------------------------------------------------------------------- connecting

#: The least share of all points, and the least rows per component, that have to search if components are separated.
MIN_ROW_SHARE, MIN_ROWS_PER_COMPONENT = 1 / 16, 24
ROUNDS = 3  # the estimated number of rounds of searches that connecting at once replaces
#: The estimated rounds where a tree searches. All are connected at once if all products take TIMES_PREPARED_AT_ONCE
#: times as long as preparing a search. 8,192 rows along a curve take 47 ms by the tree, and 157 if connected at once.
ROUNDS_OF_TREE, TIMES_PREPARED_AT_ONCE = 4.5, 4


def ends_lists(n: int, device: Device) -> bool:
    """Return whether lists end at the weights at which clusters of the lists' own forest become large."""
    large = forced().large_cluster
    return products(n, n) >= COSTS[device.name].forest if large is None else large > 0


def connects(components: int, n: int, m: int, report: Report, share: float | None = None) -> str:
    """Return how that many components of n points are connected if m rows search: by "tree", in "rounds", or "at_once".

    Products form each pair from both ends, once, or again in each round. They form all at once if many rows search. In
    a well separated component nearly all rows search, because all their neighbours are in it. With a CPU's tree a row
    visits a `share` of the leaves.
    """
    cost, a_round = COSTS["cpu"], 2 * products(m, n)
    are_many = m >= max(MIN_ROWS_PER_COMPONENT * components, MIN_ROW_SHARE * n)
    at_once = are_many and (share is None or products(n, n) >= TIMES_PREPARED_AT_ONCE * cost.prepare)
    works = {} if share is None else {"tree": share * cost.visit * products(m, n)}
    works |= {"at_once": a_round} if at_once else {"rounds": ROUNDS_OF_TREE * a_round}
    report.count("connect", **{f"work_{name}": int(work) for name, work in works.items()})
    return min(works, key=works.__getitem__)


# -------------------------------------------------------------------------------------------------------- the filter

#: Queries, and points among which survivors are counted.
QUERIES, POINTS = 2**7, 2**11
NEIGHBORS = 8  # each query has this number of neighbours, if there are as many points
#: The numbers of axes that are tried, with the rest, in steps, and their largest share of the features.
STEPS, MAX_AXES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), 0.8
#: Axes are sought if products take this many times as long as a forest. Covariances whose eigenvalues are
#: nearly equal, as tr(C)² over d tr(C²) says, have no few principal axes.
FORESTS, MAX_FLATNESS = 16, 1 / 3
#: fp16 saves a Gaussian point FP16_SURVIVORS survivors, and FP16_LISTED d² for each neighbour of a full list: with many
#: features d distances differ by less than eight bits move a point. See bench/NOTES.md.
FP16_SURVIVORS, FP16_LISTED = 200, 2.0**-11
FP16_PRODUCT = 0.85  # products by which one takes longer in fp16


def int8_saves_time(n: int, d: int, listed: int, cost: Costs) -> bool:
    """Return whether int8 saves more time in the products of a row than fp16 does in its survivors."""
    return n * d * FP16_PRODUCT * cost.product > (FP16_SURVIVORS + FP16_LISTED * d * d * listed) * cost.survivor


def worthwhile_projection(
    points: Array, n_queries: int, scaling: Scaling, costs: Costs, device: Device, within: float = inf
) -> PrincipalAxes | None:
    """Return the projection with which testing all pairs takes the least time; None if no projection takes less.

    Survivors are counted on a sample. They are the pairs whose partial distance, less what rounding may hide, is within
    the exact distance of a query's `NEIGHBORS`-th nearest point. They are counted on a quarter of the sample, too,
    which shows how their number grows. The caller wants no distance above `within`: if it is short, few axes suffice,
    whatever the covariance is.
    """
    xp, (n, d), wanted = device.xp, points.shape, forced().filter == "axes"
    if wanted:
        costs = costs._replace(product=1e3 * costs.product)
    elif forced().filter or float(n_queries) * n * d < FORESTS * costs.forest:
        return None
    if d < LEAST_FEATURES:
        return None
    axes = _leading_axes(points, scaling, within == inf and not wanted, xp)
    if axes is None:
        return None
    rows = ((points[:: sample_stride(n, d, POINTS)] - scaling.centre) * scaling.scale).astype("float32")
    sampled = _Sample(rows, axes.astype("float32"), within * scaling.scale, xp)
    row_time, rest, step = costs.survivor + costs.byte * d * points.dtype.itemsize, costs.rest, costs.step
    best, best_time, ends = d, inf, (step * s - rest for s in STEPS)  # seconds of a query
    for m in [*(end for end in ends if end + rest <= MAX_AXES * d and end <= axes.shape[1]), d]:
        width = m + rest if m < d else -(-d // step) * step
        before = n * width * costs.product + (d * m * costs.axis if m < d else 0)
        if before >= best_time:
            break
        total = before + sampled.survivors(m, costs.rounding * width**0.5, n) * row_time
        if total < best_time:
            best, best_time = m, total
    if best == d:
        return None
    return PrincipalAxes.of(points, scaling, xp.ascontiguousarray(axes[:, :best]), device, rest)


def _leading_axes(points: Array, scaling: Scaling, may_be_flat: bool, xp: Any) -> Array | None:
    """Return nearly the leading principal axes of a sample, (d, m) float64; None where few axes cannot suffice.

    There are as many as features or, if these are more, as rows of the sample. The products of the rows with each other
    have the eigenvalues of the covariance that are not zero.
    """
    sample = points[:: sample_stride(len(points), points.shape[1], SAMPLE)] - scaling.centre
    sample *= scaling.scale
    sample = sample.astype("float64", copy=False)
    sample -= sample.mean(axis=0)
    s, d = sample.shape
    products = (sample.T @ sample if d <= s else sample @ sample.T) / s
    total = float(xp.trace(products))
    is_flat = may_be_flat and total**2 > MAX_FLATNESS * d * float((products**2).sum())
    if not 0 < total < inf or is_flat:
        return None
    products /= total
    spanning = products @ (products @ xp.random.default_rng(0).standard_normal(products.shape))
    if d > s:
        spanning = sample.T @ spanning
    del sample, products  # the factorization takes their memory
    return xp.linalg.qr(spanning)[0]


class _Sample:
    """A sample of points, and of queries among them, on axes; each call adds axes to the partial distances."""

    def __init__(self, rows: Array, axes: Array, within: float, xp: Any) -> None:
        some, self.xp, self.d = slice(None, None, max(1, len(rows) // QUERIES)), xp, len(axes)
        exact = self._distances(rows[some][:QUERIES], rows)
        self.norms = [(part * part).sum(axis=1) for part in (rows[some][:QUERIES], rows)]
        self.z = rows @ axes
        self.queries = self.z[some][:QUERIES]
        self.own = xp.abs(exact) <= 1e-6 * (self.norms[0][:, None] + self.norms[1])
        self.partial, self.axes, self.exact = xp.zeros_like(exact), 0, exact
        exact[self.own] = xp.inf
        self.bounds = []  # each query's, among a quarter of the points and among all
        for some in (slice(None, None, 4), slice(None)):
            among = exact[:, some]
            k = min(NEIGHBORS, among.shape[1])
            nearest = xp.partition(among, k - 1, axis=1)[:, k - 1]
            self.bounds.append((some, xp.minimum(xp.sqrt(xp.maximum(nearest, 0)), within)))

    @staticmethod
    def _distances(a: Array, b: Array) -> Array:
        return (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * (a @ b.T)

    def survivors(self, m: int, rounding: float, n: int) -> float:
        """Estimate how many of n points pass the test on the first m axes, or on all features, over all bands."""
        xp, distances, axes_norms = self.xp, self.exact, self.norms
        if m < self.d:
            more = slice(self.axes, m)
            self.partial += self._distances(self.queries[:, more], self.z[:, more])
            self.axes = m
            axes_norms = [(rows[:, :m] ** 2).sum(axis=1) for rows in (self.queries, self.z)]
            rest = [xp.sqrt(xp.maximum(norm - part, 0)) for norm, part in zip(self.norms, axes_norms, strict=True)]
            distances = self.partial + (rest[0][:, None] - rest[1]) ** 2
        slack = 2 * rounding * (float(axes_norms[1].sum()) / axes_norms[1].size / m) ** 0.5
        counts = []
        for some, bound in self.bounds:
            within = distances[:, some] <= (bound + slack)[:, None] ** 2
            counts.append(max(1.0, len(self.z[some]) * share_true(within & ~self.own[:, some])))
        share = max(1.0, n / len(self.z))
        growth = max(0.0, log(counts[1] / counts[0], 4))
        return counts[1] * share**growth * (1 + log(share))


# ------------------------------------------------------------------------------------------------- a sample of points

BALLS = 2**8  # among `POINTS` points


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # then no point seems near
def expansion(values: Array, device: Device, times: float = 2) -> tuple[float, float]:
    """Return the share of a sample that is within `times` a row's distance to its nearest, and that distance.

    The share is a mean over `BALLS` rows. The distance to the nearest of the sample is the rows' median, divided by the
    root mean square distance of points from their mean: about 1 for noise of many features, and next to nothing for
    points in tiny clusters. Distances are Euclidean, whatever the metric. `values` are (n, d), with n at least
    `POINTS`.

    In D dimensions a ball that is twice as wide holds 2^D times as many points (Karger and Ruhl 2002). A mean over
    balls also shows a few points in space among many on a curve, which would search nearly all boxes. It does not show
    clusters of high dimension if each has many points in the sample. The sample is evenly spread, but its rows do not
    follow each other at a distance that a pattern could have, such as noise in each tenth row.
    """
    xp, n, pairs = device.xp, len(values), BALLS * POINTS
    order = (xp.arange(POINTS + BALLS) * golden_stride(n) % n).astype("int32")
    points, centres = order[:POINTS], order[POINTS:]
    square = exact_kernels(device).distances_between(values, centres, points)
    square[centres[:, None] == points] = np.inf
    nearest = square.min(axis=1)
    share = int((square <= times**2 * nearest[:, None]).sum()) / pairs
    square[~(square < np.inf)] = 0
    by_spread = np.sqrt(2 * pairs * np.median(to_host(nearest)) / np.float64(float(square.sum())))
    return share, float(np.nan_to_num(by_spread, nan=np.inf))

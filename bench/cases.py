"""The data of the benchmarks.

Random cases come from NumPy's seeded generators on either device, so that CPU and GPU work on the same bits. The
largest are drawn in blocks, each by a generator of its own and on all cores: the bits do not depend on how many there
are. Real data is read from a folder that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.blocks import Rows, as_rows, in_blocks
from bench.categories import fingerprints, packed, profiles
from bench.graphs import GRAPHS, Graph
from bench.sparse import sketches, tfidf
from bench.sparse import zipf as zipf_rows
from bench.text import genes, letters, receptors, words
from bench.trees import TREES, Tree

SEED = 20230918
BLOCK = 2**16  # rows that one generator draws, where they are drawn in blocks


class DataMissingError(Exception):
    """A case's file is not there."""


@dataclass(frozen=True)
class Case:
    """A set of points.

    Attributes
    ----------
    name : str
    rows : callable
        ``rows(folder, extra)`` gives the (n + extra, d) array; a file has no extra rows to give.
    n_neighbors : int
        List length of the stages that take one; `fit` always chooses its own.
    n_clusters : int
        Where the tree is cut.
    metric, p : str, float
        The metric of `fit`; the stages that take no metric are for euclidean cases only.
    n_queries : int
        Rows of the stage that searches for others' nearest points.
    min_samples : int
        For the stage `hdbscan` the neighbours in a core, and the rows in the smallest cluster; for `dbscan` the rows
        around a core row, itself among them.
    squared_sums : tuple of int, optional
        Sum and largest of the squared weights of the tree, where they are known integers.
    missing, max_distance, box : str, float, float, optional
        Parameters of `fit`.
    near : float, optional
        The distance of the stages `pairs`, `count`, `friends` and `dbscan`; by default `max_distance` or, without one,
        the median height of the tree.
    group : callable, optional
        ``group(n)`` gives the number of each row's group, in order, of a case for the stage `groups` alone.
    """

    name: str
    rows: Rows
    n_neighbors: int = 16
    n_clusters: int = 10
    metric: str = "euclidean"
    p: float = 2.0
    n_queries: int = 10_000
    min_samples: int = 10
    squared_sums: tuple[int, int] | None = None
    missing: str | None = None
    max_distance: float | None = None
    box: float | None = None
    near: float | None = None
    group: Callable[[int], np.ndarray] | None = None

    @property
    def how(self) -> dict[str, Any]:
        """Return the parameters of `fit` that say what is measured.

        If values are missing, 0 stands for them.
        """
        gaps = {} if self.missing is None else {"missing": self.missing, "missing_value": 0}
        return {"metric": self.metric, "p": self.p, "max_distance": self.max_distance, "box": self.box, **gaps}

    def points(self, folder: Path | None) -> np.ndarray:
        """Return all points, (n, d)."""
        return self.rows(folder, 0)

    def split(self, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
        """Return queries and the points to search: the queries are further draws, or the last rows of a file."""
        both = self.rows(folder, self.n_queries)
        n_queries = min(self.n_queries, len(both) // 2)
        return both[-n_queries:], both[:-n_queries]


class SparseCase(Case):
    """Rows in a sparse matrix of SciPy."""


@as_rows
def gauss(n: int, d: int, dtype: type) -> np.ndarray:
    """Draw standard normal points, of a float type."""
    return np.random.default_rng(SEED).standard_normal((n, d), dtype)


@as_rows
def amid_noise(n: int, d: int) -> np.ndarray:
    """Draw four fifths of the points in 20 blobs and the others evenly among them, float32."""
    rng = np.random.default_rng(SEED)
    blob = rng.uniform(-10, 10, (20, d))[rng.integers(0, 20, n)] + rng.standard_normal((n, d))
    return np.where(rng.random((n, 1)) < 0.8, blob, rng.uniform(-14, 14, (n, d))).astype(np.float32)


@as_rows
def exact(n: int, d: int) -> np.ndarray:
    """Draw standard normal points in multiples of 2**-20, float64.

    Sums of products of them are exact in any order.
    """
    points = np.random.default_rng(SEED).standard_normal((n, d))
    return np.rint(points * 2**20) / 2**20


@as_rows
def places(n: int) -> np.ndarray:
    """Draw latitudes and longitudes in radians, uniform on the sphere, float64."""
    rng = np.random.default_rng(SEED)
    return np.column_stack([np.arcsin(rng.uniform(-1, 1, n)), rng.uniform(-np.pi, np.pi, n)])


@as_rows
def bits(n: int, d: int) -> np.ndarray:
    """Draw fair coins, bool."""
    return np.random.default_rng(SEED).random((n, d)) < 0.5


@as_rows
def repeats(n: int, d: int, distinct: int) -> np.ndarray:
    """Draw each of few distinct standard normal points many times, float64."""
    rng = np.random.default_rng(SEED)
    return rng.standard_normal((distinct, d))[rng.integers(distinct, size=n)]


@as_rows
def levels(n: int, d: int) -> np.ndarray:
    """Draw integers 0, 1 and 2, float32."""
    return np.random.default_rng(SEED).integers(3, size=(n, d)).astype(np.float32)


@as_rows
def counts(n: int, d: int) -> np.ndarray:
    """Draw counts, 97 % of them zero, float32: ties and repeats everywhere."""
    return np.random.default_rng(SEED).poisson(0.03, (n, d)).astype(np.float32)


@as_rows
def outlier(n: int, d: int, every: int | None = None) -> np.ndarray:
    """Draw standard normal points with outliers, float32.

    One point has features of 10⁶; if `every` is given, each `every`-th point is 10⁴ times as far out instead.
    """
    points = np.random.default_rng(SEED).standard_normal((n, d), np.float32)
    if every:
        points[::every] *= 1e4
    else:
        points[0] = 1e6
    return points


@as_rows
def curve(n: int, d: int) -> np.ndarray:
    """Draw points along a closed curve with a little noise, float64."""
    rng = np.random.default_rng(SEED)
    points = np.sin(rng.uniform(0, 50, (n, 1)) * rng.standard_normal((1, d)) + rng.standard_normal(d))
    return points + 1e-3 * rng.standard_normal(points.shape)


@as_rows
def cloud(n: int) -> np.ndarray:
    """Draw points of a sphere with their normals and noisy colours, nine features, float32."""
    normal = directions(n, 3)(None, 0)
    rng = np.random.default_rng(SEED)
    colour = np.sin(3 * normal @ rng.standard_normal((3, 3), np.float32))
    colour += 0.02 * rng.standard_normal(colour.shape, np.float32)
    return np.hstack((10 * normal, normal, colour))


@as_rows
def uniform(n: int, d: int) -> np.ndarray:
    """Draw uniform points in the unit cube, float32."""
    return np.random.default_rng(SEED).random((n, d), np.float32)


@as_rows
def haloes(n: int, centres: int = 200_000) -> np.ndarray:
    """Draw clusters in the unit cube like those of dark matter, (n, 3) float32.

    Their standard deviations are from 10^-4.5 to 10^-2.5. The expected number of members is proportional to the
    deviation to the power of 0.7.
    """
    rng = np.random.default_rng(SEED)
    centre, deviation = rng.random((centres, 3)), 10 ** rng.uniform(-4.5, -2.5, centres)
    share = deviation**0.7
    of_point = rng.choice(centres, n, p=share / share.sum())
    points = rng.standard_normal((n, 3), np.float32)
    points *= deviation[of_point, None]
    points += centre[of_point]
    return points


@as_rows
def coast(n: int) -> np.ndarray:
    """Draw a random walk of steps of some metres, float64.

    The points are latitudes and longitudes in radians.
    """
    steps = np.random.default_rng(SEED).standard_normal((n, 2), np.float32)
    walk = 1e-6 * np.cumsum(steps, axis=0, dtype=np.float64)
    return walk - walk.mean(axis=0)


@as_rows
def mixture(n: int, d: int, centres: int = 1000, spread: float = 0.6) -> np.ndarray:
    """Draw unit noise around normal centres of standard deviation `spread`, float32."""
    rng = np.random.default_rng(SEED)
    centre = rng.standard_normal((centres, d), np.float32) * np.float32(spread)
    points = rng.standard_normal((n, d), np.float32)
    points += centre[rng.integers(centres, size=n)]
    return points


def as_bytes(points: Rows) -> Rows:
    """Return a function that scales drawn points to integers from 0 to 255, uint8.

    The points must have a mean of zero and a standard deviation of about one.
    """

    def rows(folder: Path | None, extra: int) -> np.ndarray:
        values = points(folder, extra)
        values *= 32
        values += 128
        np.rint(values, out=values)
        return np.clip(values, 0, 255, out=values).astype(np.uint8)

    return rows


@as_rows
def bytes_in_blocks(n: int, d: int) -> np.ndarray:
    """Draw what `as_bytes` makes of a `mixture`, in blocks: uint8."""
    points = np.empty((n, d), np.uint8)
    centre = np.random.default_rng(SEED).standard_normal((1000, d), np.float32) * np.float32(0.6)

    def draw(at: slice) -> None:
        rng = np.random.default_rng([SEED, at.start])
        block = rng.standard_normal(points[at].shape, np.float32)
        block += centre[rng.integers(len(centre), size=len(block))]
        points[at] = as_bytes(lambda *_: block)(None, 0)

    in_blocks(draw, n, BLOCK)
    return points


@as_rows
def directions(n: int, d: int, decay: float = 0.0) -> np.ndarray:
    """Draw normal points scaled to length one, float32.

    Before the scaling, feature f = 1, 2, ... has a standard deviation of f**-decay. Without decay the points are
    uniform on the sphere.
    """
    points = np.empty((n, d), np.float32)
    deviation = np.arange(1, d + 1, dtype=np.float32) ** np.float32(-decay)

    def draw(at: slice) -> None:
        block = points[at]
        np.random.default_rng([SEED, at.start]).standard_normal(dtype=np.float32, out=block)
        block *= deviation
        block /= np.linalg.norm(block, axis=1, keepdims=True)

    in_blocks(draw, n, BLOCK)
    return points


@as_rows
def near_duplicates(n: int, d: int, moved: float = 0.005) -> np.ndarray:
    """Draw directions, each of them a second time about `moved` away, in no order."""
    points, rng = directions(n, d)(None, 0), np.random.default_rng(SEED + 1)
    half = len(points) // 2
    step = rng.standard_normal((half, d), np.float32) * np.float32(moved / d**0.5)
    np.add(points[:half], step, out=points[-half:])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points[rng.permutation(len(points))]


@as_rows
def planted(n: int, d: int) -> np.ndarray:
    """Draw random unit rows, float32; the last hundredth are near duplicates of the first."""
    rng = np.random.default_rng(SEED)
    points, copies = rng.standard_normal((n, d), np.float32), max(1, n // 100)
    points[-copies:] = points[:copies] + np.float32(0.2) * rng.standard_normal((copies, d), np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@as_rows
def nested(n: int, d: int) -> np.ndarray:
    """Draw ten clusters of ten of ten of ten, each level ten times tighter, float32."""
    rng = np.random.default_rng(SEED)
    points, size = np.float32(1e-4) * rng.standard_normal((n, d), np.float32), 1
    of_point = np.zeros(n, np.int64)
    for scale in (1.0, 0.1, 0.01, 0.001):
        size, of_point = 10 * size, 10 * of_point + rng.integers(10, size=n)
        points += np.float32(scale) * rng.standard_normal((size, d), np.float32)[of_point]
    return points


@as_rows
def core(n: int, d: int) -> np.ndarray:
    """Draw standard normal points, float32.

    Half of them are scaled by a thousandth: a dense core in the middle of the others.
    """
    points = np.random.default_rng(SEED).standard_normal((n, d), np.float32)
    points[::2] *= np.float32(1e-3)
    return points


@as_rows
def lengths(n: int, d: int, length: Callable[[np.random.Generator, int], np.ndarray]) -> np.ndarray:
    """Draw directions, float32, whose lengths `length(rng, number)` gives."""
    length_of = length(np.random.default_rng(SEED), n).astype(np.float32)
    return directions(n, d)(None, 0) * length_of[:, None]


def documents(n: int, d: int) -> Rows:
    """Return a function that draws directions, float32, whose lengths are the cube of a uniform number."""
    return lengths(n, d, lambda rng, m: rng.random(m) ** 3)


@as_rows
def heavy(n: int, d: int) -> np.ndarray:
    """Draw features of Student's t distribution with two degrees of freedom, float32."""
    return np.random.default_rng(SEED).standard_t(2, (n, d)).astype(np.float32)


@as_rows
def tracks(n: int, d: int) -> np.ndarray:
    """Draw tracks of 400 small steps, rounded to integers, of which many are equal, float32."""
    rng, count = np.random.default_rng(SEED), -(-(n) // 400)
    steps = 0.05 * rng.standard_normal((count, 400, d), np.float32)
    starts = 3 * rng.standard_normal((count, 1, d), np.float32)
    return np.rint(steps.cumsum(axis=1) + starts).reshape(-1, d)[:n]


@as_rows
def patches(n: int, d: int) -> np.ndarray:
    """Draw rows whose features are all equal, one of 256 integers, float32."""
    return np.repeat(np.random.default_rng(SEED).integers(256, size=(n, 1)), d, axis=1).astype(np.float32)


@as_rows
def zipf(n: int, d: int) -> np.ndarray:
    """Draw 2,000 clusters a twentieth as wide as far apart, of Zipf's sizes, float32."""
    rng, share = np.random.default_rng(SEED), 1 / np.arange(1, 2001) ** 1.1
    of_point = rng.choice(2000, n, p=share / share.sum())
    centres = rng.standard_normal((2000, d), np.float32)
    return centres[of_point] + np.float32(0.05) * rng.standard_normal((n, d), np.float32)


@as_rows
def line(n: int, d: int) -> np.ndarray:
    """Draw points along one direction, float32.

    The noise is a hundred-thousandth of the line's length.
    """
    rng = np.random.default_rng(SEED)
    direction = rng.standard_normal((1, d), np.float32)
    points = np.float32(1e-5) * rng.standard_normal((n, d), np.float32)
    return points + rng.random((n, 1), np.float32) * direction / np.linalg.norm(direction)


def far(n: int, d: int) -> Rows:
    """Return a function that draws eight normal clusters, ten thousand times as far apart as wide, float32."""
    return mixture(n, d, centres=8, spread=1e4)


@as_rows
def blobs(n: int, d: int) -> np.ndarray:
    """Draw twenty normal clusters in a cube of side 40, float32.

    A tenth of the points are uniform in a cube of side 50 instead.
    """
    rng = np.random.default_rng(SEED)
    centres = rng.uniform(-20, 20, (20, d)).astype(np.float32)
    points = rng.standard_normal((n, d), np.float32) + centres[rng.integers(20, size=n)]
    points[::10] = rng.uniform(-25, 25, points[::10].shape)
    return points


@as_rows
def activations(n: int, d: int) -> np.ndarray:
    """Draw the output of a layer of rectifiers, float32.

    It is max(N - 1, 0) for standard normal N, times a scale for each feature: many values are zero, and some rows are
    equal.
    """
    rng = np.random.default_rng(SEED)
    points = np.maximum(rng.standard_normal((n, d), np.float32) - 1, 0)
    return points * rng.gamma(1.0, 1.0, d).astype(np.float32)


@as_rows
def cells(n: int, d: int) -> np.ndarray:
    """Draw thirty clusters of uneven sizes, float32.

    Feature j = 1, 2, ... is scaled by 1/√j.
    """
    rng = np.random.default_rng(SEED)
    deviation = np.arange(1, d + 1, dtype=np.float32) ** np.float32(-0.5)
    centres = 3 * rng.standard_normal((30, d), np.float32)
    of_point = rng.choice(30, n, p=rng.dirichlet(np.full(30, 0.7)))
    return (rng.standard_normal((n, d), np.float32) + centres[of_point]) * deviation


@as_rows
def topics(n: int, d: int) -> np.ndarray:
    """Draw unit rows about the leaves of a tree of topics, ten of ten of ten, float32."""
    rng = np.random.default_rng(SEED)
    of_point = rng.integers(1000, size=n)
    points = np.float32(0.5) * rng.standard_normal((n, d), np.float32)
    for size, scale in ((10, 1.0), (100, 0.7), (1000, 0.5)):
        points += np.float32(scale) * rng.standard_normal((size, d), np.float32)[of_point * size // 1000]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points


@as_rows
def twins(n: int, d: int) -> np.ndarray:
    """Draw standard normal points, each four times within 10⁻⁴, in no order, float32."""
    rng = np.random.default_rng(SEED)
    of_point = rng.permutation(n) // 4
    points = rng.standard_normal((int(of_point.max()) + 1, d), np.float32)[of_point]
    return points + np.float32(1e-4 / d**0.5) * rng.standard_normal(points.shape, np.float32)


def digits(_folder: Path | None, _extra: int) -> np.ndarray:
    """Return scikit-learn's handwritten digits, (1797, 64) float64 holding small integers."""
    from sklearn.datasets import load_digits

    return load_digits().data


def mnist(folder: Path | None, _extra: int) -> np.ndarray:
    """Return the 60,000 training images of MNIST, (60000, 784) uint8."""
    with np.load(_file(folder, "mnist.npz")) as archive:
        return archive["X"]


def cities(folder: Path | None, _extra: int) -> np.ndarray:
    """Return places on the unit sphere, (234908, 3) float64, read as (latitude, longitude) in degrees."""
    latitude, longitude = np.radians(np.load(_file(folder, "cities.npy"))).T
    level = np.cos(latitude)
    return np.column_stack([level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)])


def _file(folder: Path | None, name: str) -> Path:
    if folder is None or not (folder / name).is_file():
        raise DataMissingError(f"{name} is missing: name its folder with --data or RAPIDS_SLINK_BENCH_DATA")
    return folder / name


#: A case for each metric except euclidean.
METRICS = (
    *(
        Case(f"gauss-20k-16-{metric}", gauss(20_000, 16, np.float64), metric=metric)
        for metric in ("sqeuclidean", "cosine", "correlation", "cityblock", "chebyshev", "canberra", "braycurtis")
    ),
    *(
        Case(f"gauss-20k-16-minkowski-{p:g}", gauss(20_000, 16, np.float64), metric="minkowski", p=p)
        for p in (1.5, 3.0)
    ),
    *(
        Case(f"bits-20k-64-{metric}", bits(20_000, 64), metric=metric)
        for metric in ("hamming", "rogerstanimoto", "jaccard", "dice", "containment")
    ),
    Case("exact-20k-16-inner_product", exact(20_000, 16), metric="inner_product"),
    Case("places-20k-haversine", places(20_000), metric="haversine"),
)

#: The sizes of the cuSLINK paper's table 2: 100 to 10,000 queries among 100,000 rows.
NEAREST = tuple(
    Case(f"nn1-100k-{name}-{d}", gauss(100_000, d, np.float32), n_queries=n_queries)
    for name, n_queries in (("100", 100), ("1k", 1000), ("10k", 10_000))
    for d in (64, 128, 256)
)
#: Normal points, of ever more rows.
SCALING = tuple(
    Case(f"scaling-{name}-{d}", gauss(n, d, np.float32))
    for d in (3, 16, 128)
    for name, n in (("100", 100), ("1k", 1000), ("10k", 10_000), ("100k", 100_000), ("1m", 10**6), ("10m", 10**7))
)
#: Queries among many more rows; each query finds its nearest 1, 10 or 100.
QUERIES = (
    *(Case(f"queries-10k-1m-{d}", gauss(1_000_000, d, np.float32)) for d in (128, 768)),
    Case("queries-1m-10m-128", bytes_in_blocks(10_000_000, 128), n_queries=1_000_000),
)
#: As many points as most people cluster by coordinates, a million values that repeat, and lists of 32 and of 33.
FEW_FEATURES = (
    *(Case(f"gauss-{n // 1000}k-{d}", gauss(n, d, np.float64)) for n in (5000, 20_000, 60_000) for d in (2, 3)),
    Case("gauss-5k-8", gauss(5000, 8, np.float64)),
    Case("blobs-50k-10", mixture(50_000, 10, centres=30, spread=10)),
    Case("repeats-1m-1", repeats(1_000_000, 1, distinct=100_000)),
    *(Case(f"gauss-1m-3-{k}", gauss(1_000_000, 3, np.float32), n_neighbors=k) for k in (32, 33)),
)
#: What chemistry and typing cluster: fingerprints, and allele profiles without and with gaps.
BITS_AND_ALLELES = (
    *(
        Case(f"fingerprints-{name}-2048", fingerprints(n, 2048), metric="jaccard", near=0.3)
        for name, n in (("8k", 8000), ("50k", 50_000), ("1m", 1_000_000))
    ),
    Case("packed-50k-2048", packed(fingerprints(50_000, 2048)), metric="bit_jaccard"),
    Case("near-1m-2048", fingerprints(1_000_000, 2048), n_clusters=1_000_000, metric="jaccard", max_distance=0.3),
    *(Case(f"alleles-{n // 1000}k-3000", profiles(n, 3000), metric="hamming") for n in (5000, 20_000)),
    *(
        Case(f"gaps-{n // 1000}k-3000", profiles(n, 3000, gaps=0.03), metric="hamming", missing="hiercc")
        for n in (5000, 20_000, 53_000, 100_000)
    ),
)


def groups_of(size: int) -> Callable[[int], np.ndarray]:
    """Return a function that numbers n rows by groups of `size` rows."""
    return lambda n: np.arange(n) // size


def zipf_groups(least: int, most: int) -> Callable[[int], np.ndarray]:
    """Return a function that numbers n rows by groups of from `least` to `most` rows, few of which are large.

    The last group has the rows that are left.
    """

    def numbers(n: int) -> np.ndarray:
        sizes = np.minimum(np.random.default_rng(SEED).zipf(1.5, n // least + 1) + least - 1, most)
        return np.repeat(np.arange(sizes.size), sizes)[:n]

    return numbers


#: Many small clusterings in one call.
GROUPS_OF_ROWS = (
    Case("groups-100k-of-50-3", gauss(5_000_000, 3, np.float64), group=groups_of(50)),
    Case("groups-zipf-16", gauss(300_000, 16, np.float64), group=zipf_groups(5, 2000)),
)


def shape_name(n: int, d: int) -> str:
    """Return rows and features as they stand in a case's name."""
    return f"{n // 10**6}m-{d}" if n >= 10**6 else f"{n // 1000}k-{d}"


#: Data with structure: clusters within clusters, scales, repeats, few true dimensions.
STRUCTURED = tuple(
    Case(f"{kind.__name__}-{shape_name(n, d)}", kind(n, d))
    for kind, sizes in (
        (nested, ((200_000, 64), (200_000, 384), (1_000_000, 50), (50_000, 1024))),
        (core, ((200_000, 64), (200_000, 384), (1_000_000, 50))),
        (line, ((200_000, 64), (200_000, 384), (1_000_000, 50), (50_000, 1024))),
        (far, ((200_000, 64), (200_000, 384), (1_000_000, 50), (20_000, 64), (50_000, 1024))),
        (blobs, ((1_000_000, 8), (1_000_000, 16), (4_000_000, 16), (20_000, 64))),
        (activations, ((1_000_000, 16), (1_000_000, 8))),
        (cells, ((1_000_000, 50), (50_000, 1536), (20_000, 8192), (20_000, 64))),
        (topics, ((1_000_000, 50), (200_000, 384), (50_000, 1536), (50_000, 1024), (200_000, 64))),
        (zipf, ((50_000, 1024),)),
        (documents, ((50_000, 1024),)),
        (tracks, ((200_000, 64),)),
        (twins, ((1_000_000, 50), (1_000_000, 8))),
    )
    for n, d in sizes
)
#: Noise of the shapes of `STRUCTURED`; the case `gauss-20k-64` is there already.
NOISE = tuple(
    Case(f"gauss-{shape_name(n, d)}", gauss(n, d, np.float32))
    for n, d in (
        (200_000, 64), (200_000, 384), (1_000_000, 8), (1_000_000, 16), (4_000_000, 16), (1_000_000, 50),
        (50_000, 1536), (50_000, 1024), (20_000, 8192),
    )
)  # fmt: skip
TINY = ((100, 3), (100, 8), (100, 64), (1000, 8), (1000, 16), (1000, 64), (5000, 16))
#: For all pairs within a distance, at which their trees end.
NEAR_PAIRS = (
    Case("unit-1m-768-planted", planted(1_000_000, 768), n_clusters=990_000, metric="cosine", max_distance=0.05),
    Case("unit-50k-384-planted", planted(50_000, 384), n_clusters=49_500, metric="cosine", max_distance=0.05),
    Case("unit-20k-768-planted", planted(20_000, 768), n_clusters=19_800, metric="cosine", max_distance=0.05),
    Case("uniform-10m-3-near", uniform(10_000_000, 3), n_clusters=10_000_000, max_distance=0.2 * 1e7 ** (-1 / 3)),
    Case("uniform-300k-3-near", uniform(300_000, 3), n_clusters=300_000, max_distance=0.2 * 3e5 ** (-1 / 3)),
)
#: For many answers of one fit; `min_samples` of the stage `hdbscan` is the largest of `MANY_SAMPLES`.
MANY = tuple(
    Case(f"many-{shape_name(n, d)}", amid_noise(n, d), min_samples=25) for n, d in ((1_000_000, 16), (200_000, 384))
)
#: For counts of pairs, most of which are far below the distance or far above it.
COUNTS = tuple(
    Case(f"count-{name}-200k-64", rows)
    for name, rows in (
        ("noise", gauss(200_000, 64, np.float32)),
        ("core", core(200_000, 64)),
        ("documents", documents(200_000, 64)),
        ("shells", lengths(200_000, 64, lambda rng, n: np.exp(rng.integers(0, 8, n)))),
        ("heavy", heavy(200_000, 64)),
        ("far", far(200_000, 64)),
        ("patches", patches(200_000, 64)),
    )
)
#: For clusters of all points within a distance of others. The distances are shares of the mean separation.
FRIENDS = tuple(
    Case(f"{name}-friends-{share}", rows, near=share * separation)
    for name, rows, separation in (
        ("uniform-10m-3", uniform(10_000_000, 3), 1e7 ** (-1 / 3)),
        ("sphere-1.87m-3", directions(1_870_000, 3), (4 * np.pi / 1_870_000) ** 0.5),
    )
    for share in (0.2, 0.7)
)
#: For clusters of DBSCAN, at the distance within which a row has about ten others.
DENSITY = (
    Case("dbscan-10m-3", uniform(10_000_000, 3), near=0.0062, min_samples=5),
    Case("dbscan-1m-16", gauss(1_000_000, 16, np.float32), near=2.0, min_samples=5),
    Case("dbscan-200k-384", gauss(200_000, 384, np.float32), near=23.9, min_samples=5),
    Case("dbscan-100k-2", uniform(100_000, 2), near=0.0056, min_samples=5),
    Case("dbscan-50k-16", gauss(50_000, 16, np.float32), near=2.5, min_samples=5),
    Case("dbscan-10k-384", gauss(10_000, 384, np.float32), near=24.9, min_samples=5),
)
#: Rows whose zeros are not stored.
SPARSE = (
    SparseCase("sketches-85k", sketches(85_205, 1000), n_clusters=85_000, metric="jaccard", max_distance=0.5),
    SparseCase("tfidf-100k-50k", tfidf(100_000, 50_000), n_clusters=100_000, metric="cosine", max_distance=0.3),
    SparseCase("sets-zipf-20k", zipf_rows(20_000, 200_000, 120, are_sets=True), metric="jaccard"),
    *(
        SparseCase(f"sparse-zipf-20k-{metric}", zipf_rows(20_000, 200_000, 120, are_sets=False), metric=metric)
        for metric in ("cosine", "euclidean")
    ),
)
#: Text: whole trees, and trees that end at one edit or at ten.
TEXT = (
    Case("text-random-20k", letters(20_000, 5, 19), metric="levenshtein"),
    Case("text-random-100k", letters(100_000, 5, 19), metric="levenshtein"),
    Case("text-words-20k", words(20_000), metric="levenshtein"),
    Case("text-long-2k", letters(2_000, 150, 300, "ACGT"), metric="levenshtein"),
    Case("text-long-5k", letters(5_000, 150, 300, "ACGT"), metric="levenshtein", n_clusters=5_000, max_distance=10),
    Case("receptors-20k", receptors(20_000), metric="levenshtein", n_clusters=20_000, max_distance=1),
    Case("receptors-1m", receptors(1_000_000), metric="levenshtein", n_clusters=1_000_000, max_distance=1),
    Case("words-275k", words(275_000), metric="levenshtein", n_clusters=275_000, max_distance=1),
    Case(
        "receptors-8m-grouped", receptors(8_000_000), metric="levenshtein", n_clusters=8_000_000, max_distance=1,
        group=genes,
    ),
)  # fmt: skip
CASES: dict[str, Case | Tree | Graph] = {
    case.name: case
    for case in (
        Case("digits", digits),
        Case("gauss-20k-16", gauss(20_000, 16, np.float64)),
        Case("gauss-20k-64", gauss(20_000, 64, np.float64)),
        Case("mnist-60k-784", mnist, squared_sums=(75_925_569_788, 4_673_609)),
        Case("cities-235k-3", cities),
        Case("gauss-100k-128", gauss(100_000, 128, np.float32), n_neighbors=32),
        Case("gauss-1m-128", gauss(1_000_000, 128, np.float32)),
        Case("mixture-290k-256", mixture(290_000, 256)),
        Case("mixture-1m-128", mixture(1_000_000, 128)),
        Case("clusters-300k-128", mixture(300_000, 128, centres=500, spread=10)),
        Case("clusters-300k-896", mixture(300_000, 896, centres=1000, spread=10)),
        Case("tight-300k-128", mixture(300_000, 128, centres=100, spread=1000)),
        Case("far-300k-128", mixture(300_000, 128, centres=10, spread=1000)),
        Case("bytes-1m-128", as_bytes(mixture(1_000_000, 128))),
        Case("sphere-1.87m-3", directions(1_870_000, 3)),
        Case("sphere-10m-3", directions(10_000_000, 3)),
        Case("uniform-10m-3", uniform(10_000_000, 3)),
        Case("uniform-10m-3-box", uniform(10_000_000, 3), box=1.0),
        Case("halo-10m-3", haloes(10_000_000)),
        Case("halo-80m-3", haloes(80_000_000)),
        Case("coast-11m-2", coast(11_000_000)),
        Case("coast-11m-2-haversine", coast(11_000_000), metric="haversine"),
        Case("deep-8m-96", directions(8_000_000, 96, decay=0.5), n_clusters=100),
        Case("deep-40m-96", directions(40_000_000, 96, decay=0.5), n_clusters=100),
        Case("unit-20k-384", directions(20_000, 384, decay=0.5)),
        Case("unit-300k-768", directions(300_000, 768, decay=0.5)),
        *(Case(f"unit-300k-768-k{k}", directions(300_000, 768), n_neighbors=k) for k in (10, 16)),
        Case("unit-1m-768", directions(1_000_000, 768, decay=0.5)),
        Case("duplicates-1m-128", near_duplicates(1_000_000, 128), n_clusters=1_000_000, max_distance=0.02),
        Case("blobs-200k-2", blobs(200_000, 2)),
        *(Case(f"tiny-{n}-{d}", gauss(n, d, np.float64)) for n, d in TINY),
        Case("repeats-200k-16", repeats(200_000, 16, distinct=10)),
        Case("levels-200k-10", levels(200_000, 10)),
        Case("counts-200k-32", counts(200_000, 32)),
        Case("outlier-200k-64", outlier(200_000, 64)),
        Case("outliers-300k-40", outlier(300_000, 40, every=1000), n_clusters=300_000, max_distance=6.0),
        Case("curve-40k-16", curve(40_000, 16)),
        Case("curve-1m-16", curve(1_000_000, 16)),
        *(Case(f"cloud-{n}m-9", cloud(n * 1_000_000)) for n in (1, 4)),
        Case("gauss-1m-1", gauss(1_000_000, 1, np.float64)),
        *NEAREST,
        *QUERIES,
        *METRICS,
        *SCALING,
        *FEW_FEATURES,
        *BITS_AND_ALLELES,
        *STRUCTURED,
        *NOISE,
        *MANY,
        *GROUPS_OF_ROWS,
        *NEAR_PAIRS,
        *COUNTS,
        *FRIENDS,
        *DENSITY,
        *SPARSE,
        *TEXT,
    )
}
CASES.update({tree.name: tree for tree in TREES})
CASES.update({graph.name: graph for graph in GRAPHS})
#: Names that stand for several cases, which have a table of their own.
GROUPS = {
    name: [case.name for case in cases]
    for name, cases in (
        ("metrics", METRICS),
        ("queries", QUERIES),
        ("scaling", SCALING),
        ("few-features", FEW_FEATURES),
        ("bits-and-alleles", BITS_AND_ALLELES),
        ("structured", STRUCTURED + NOISE),
        ("near-pairs", NEAR_PAIRS),
        ("friends-of-friends", FRIENDS),
        ("sparse", SPARSE),
        ("text", TEXT),
    )
}

"""What a fit launches on a GPU, by the way that serves the points: threads compile it while the points are read.

    for noise of 64 features:   points ▶ rows ▶ quantize ▶ the fused filter ▶ rerank ▶ forest ▶ dendrogram

Nothing depends on these lists. A source that is missing is compiled when it is launched, and one too many costs a
thread some time, and all others a little (`compile_ahead`). Within a way the sources come in the order of their first
launches, and last those that only some values need.
"""

from collections.abc import Iterator
from dataclasses import replace

from rapids_slink.dendrogram.cutting import FEW_LEAVES
from rapids_slink.metrics import PRECOMPUTED, Rows
from rapids_slink.neighbors.choose import may_have_tiles
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.points.check import FEW_VALUES
from rapids_slink.runtime.cuda import WARP, Ahead, compile_ahead, power_of_two, value_option
from rapids_slink.runtime.memory import usable_cores
from rapids_slink.settings import Space
from rapids_slink.spanning_tree.lists import length_by_search
from rapids_slink.spanning_tree.problem import Problem
from rapids_slink.spanning_tree.ways import REPEATS, ways_of

#: The sources of a tree by lists.
LISTS = ("neighbors/exact/lists.cu",), ("spanning_tree/forest.cu",)
#: On fewer cores, or for fewer values, the sources that only some values need are compiled when they are launched.
MANY_CORES, MANY_VALUES = 8, 2**20


def compile_for(problem: Problem) -> None:
    """Let threads compile what the tree and the dendrogram of a problem's points need on its GPU."""
    if problem.metric is not PRECOMPUTED and problem.n > 1:
        compile_ahead(list(_work(problem)))


def _work(problem: Problem) -> Iterator[Ahead]:
    metric = problem.metric
    if isinstance(metric.space, Space):  # the columns have not been read
        metric = replace(metric, space=metric.space.like(problem.n_features))
    input_value = value_option("float32" if problem.itemsize == 4 else "float64")
    value = value_option("uint64") if metric.rows.are_words else input_value
    if metric.rows.have_norms or metric.rows is Rows.SPHERE:
        value = value_option("float64")
    formula = value, *(metric.bit_options if metric.rows.are_words else metric.cuda_options)
    boxes = value, f"-DFEATURES={problem.d}", *metric.cuda_options
    if problem.n * problem.n_features > FEW_VALUES:
        yield "points/points.cu", input_value
    if metric.rows is not Rows.GIVEN:
        yield from (("neighbors/rows.cu", input_value), ("neighbors/rows.cu", value))
    if problem.finds_friends:
        yield from (("neighbors/trees/bvh.cu", *boxes), ("spanning_tree/friends.cu", *boxes))
        return
    ways = ways_of(problem)
    if REPEATS in ways:
        yield "neighbors/rows.cu", value
    way = ways[-1].name
    if way == "pairs":
        yield from (
            ("neighbors/exact/all_distances.cu", *formula),
            ("spanning_tree/dense.cu", value_option("float64")),
        )
    elif way == "boxes":
        yield from (("neighbors/trees/bvh.cu", *boxes), ("spanning_tree/boxes.cu", *boxes))
    elif metric.filter == "product" and filter_kernels(problem.device).fused_filter():
        yield from _of_fused_lists(problem, value, formula)
        return
    else:
        yield from (*LISTS, ("neighbors/exact/rerank.cu", *formula))
    yield from _of_tree(problem)


def _of_tree(problem: Problem) -> tuple[Ahead, ...]:
    """Return what sorts the edges of a tree and makes its dendrogram; the host makes that of few."""
    return (("ordering.cu",),) if problem.n <= FEW_LEAVES else (("ordering.cu",), ("dendrogram/dendrogram.cu",))


def _of_fused_lists(problem: Problem, value: str, formula: tuple[str, ...]) -> Iterator[Ahead]:
    """Yield what makes lists by the fused filter, in fp16 and then in int8, connects clusters, and makes tiles."""
    from rapids_slink.neighbors.filter.fused import MIXED, TRIED_STEPS, source_of
    from rapids_slink.neighbors.filter.fused.filter import survivor_capacity

    d, k = problem.n_features, length_by_search(problem)
    keys = max(4, power_of_two(-(-survivor_capacity(k, d) // WARP)))
    fp16, int8 = -(-d // 16), -(-d // MIXED)
    yield from (
        ("neighbors/trees/dimension.cu", value),
        ("neighbors/filter/quantize.cu", value),
        source_of(TRIED_STEPS),
    )
    yield "neighbors/exact/rerank.cu", *formula
    yield from (source_of(fp16, symmetric=True), ("neighbors/filter/fused/tighten.cu",), *LISTS)
    yield "neighbors/filter/filter.cu", f"-DKEYS_PER_LANE={max(1, power_of_two(2 * k) // WARP)}"
    yield "neighbors/filter/fused/tighten.cu", f"-DKEYS_PER_LANE={keys}", "-DINT8=0", value
    if problem.by_reachability:
        yield from (("neighbors/exact/mutual_reachability.cu",), ("dendrogram/clusters.cu",))
    yield from (source_of(fp16), *_of_tree(problem))
    if problem.n * d < MANY_VALUES or usable_cores() < MANY_CORES:
        return
    yield from (source_of(int8, symmetric=True, int8=True), source_of(int8, int8=True))
    yield "neighbors/filter/fused/tighten.cu", f"-DKEYS_PER_LANE={keys}", "-DINT8=1", value
    if problem.metric.formula == "squared_euclidean":  # whole numbers that are not large become bytes
        yield "neighbors/exact/rerank.cu", value_option("uint8"), *problem.metric.cuda_options
    yield from (
        ("spanning_tree/component_pairs.cu",),
        ("spanning_tree/graphs/edges.cu",),
        ("neighbors/exact/pair_distances.cu", *formula),
        source_of(fp16, between=True),
    )
    if may_have_tiles(problem.n, d, problem.metric, problem.device):
        yield from (("neighbors/tiles/order.cu",), ("neighbors/tiles/encode.cu", value), ("neighbors/tiles/tiles.cu",))
        yield from (("neighbors/tiles/bound.cu", value), source_of(fp16, local=True))

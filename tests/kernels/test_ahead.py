"""What threads compile before a fit launches it: sources that are there, with the options that launchers give."""

import re

import numpy as np
import pytest
from fake_gpu import fake_gpu
from nvrtc import assert_compiles, assert_options_compile

import rapids_slink
from rapids_slink import pipeline
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.runtime import cuda
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.device import cuda as gpu
from rapids_slink.settings import Settings, metric_of
from rapids_slink.spanning_tree import Problem, ways

FUSED = "neighbors/filter/fused/"
BODY = "-DRESIDENT_ATOMS={} -DLAST_STEPS=4 -DSYMMETRIC={} -DBETWEEN_COMPONENTS=0 -DLOCAL=0 -DCOUNT=0 -DINT8=0 -DBITS=0"
#: What a fit of 100,000 rows of noise of 64 features launched on an H100.
LAUNCHED = (
    "points/points.cu -DVALUE=float", "neighbors/rows.cu -DVALUE=float",
    "neighbors/exact/all_distances.cu -DVALUE=float -DFORMULA=squared_euclidean",
    "neighbors/filter/quantize.cu -DVALUE=float", f"{FUSED}wgmma.cu -arch=sm_90a -DSTAGES=4 {BODY.format(0, 0)}",
    "neighbors/exact/lists.cu", "neighbors/filter/filter.cu -DKEYS_PER_LANE=1", f"{FUSED}tighten.cu",
    f"{FUSED}wgmma.cu -arch=sm_90a -DSTAGES=8 {BODY.format(1, 1)}",
    f"{FUSED}tighten.cu -DKEYS_PER_LANE=4 -DINT8=0 -DVALUE=float",
    "neighbors/exact/rerank.cu -DVALUE=float -DFORMULA=squared_euclidean", "spanning_tree/forest.cu",
    f"{FUSED}wgmma.cu -arch=sm_90a -DSTAGES=8 {BODY.format(1, 0)}", "ordering.cu", "dendrogram/dendrogram.cu",
)  # fmt: skip
#: What one of cells, of counts and by HDBSCAN launched besides.
LATER = (
    "spanning_tree/component_pairs.cu", "spanning_tree/graphs/edges.cu",
    f"{FUSED}tighten.cu -DKEYS_PER_LANE=4 -DINT8=1 -DVALUE=float",
    "neighbors/exact/rerank.cu -DVALUE=unsigned char -DFORMULA=squared_euclidean",
    "neighbors/exact/pair_distances.cu -DVALUE=float -DFORMULA=squared_euclidean",
)  # fmt: skip
OF_HDBSCAN = (
    "neighbors/filter/filter.cu -DKEYS_PER_LANE=4", f"{FUSED}tighten.cu -DKEYS_PER_LANE=16 -DINT8=0 -DVALUE=float",
    "neighbors/exact/mutual_reachability.cu", "dendrogram/clusters.cu",
)  # fmt: skip
SHAPES = (500, 16), (100_000, 3), (100_000, 64), (100_000, 784)


def sources(n, d, metric="euclidean", min_samples=1, itemsize=4, capability=90, cores=16):
    """Those of a fit."""
    with fake_gpu(capability), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "usable_cores", lambda: cores)
        settings = Settings(get_metric(metric), min_samples=min_samples)
        return list(dict.fromkeys(ways._sources(Problem(settings, gpu(), n, d, itemsize))))


def test_labels_within_a_distance_need_no_tree():
    with fake_gpu(90):
        settings = Settings(get_metric("euclidean"), max_distance=0.1, friends_within=0.1)
        work = [item[0] for item in ways._sources(Problem(settings, gpu(), 100_000, 3, 4))]
    assert all(map(cuda.cuda_source, work))
    assert work[-2:] == ["neighbors/bvh.cu", "spanning_tree/friends.cu"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("space", [{"box": [1.0] * 3}, {"box": 2.0, "scales": {("x", "y"): 500.0, "z": 3.0}}])
def test_spaces_of_columns_that_have_not_been_read(space, shape):
    """The kernels are those of the space in which the columns will be."""
    metric, (n, _) = metric_of("euclidean", **space), shape
    with fake_gpu(90):
        settings = Settings(metric), Settings(metric.of_columns(["x", "y", "z"], 3))
        before, after = (list(ways._sources(Problem(one, gpu(), n, 3, 4))) for one in settings)
    assert before == after
    assert any("-DCOLUMNS=3" in item for item in before)
    assert ("neighbors/rows.cu", "-DVALUE=double") not in before


@pytest.mark.parametrize("metric", METRICS)
def test_sources_are_there(metric):
    for n, d in SHAPES:
        found = sources(n, d, metric)
        assert all(cuda.cuda_source(source) for source, *_ in found)
        assert {"ordering.cu"} | ({"dendrogram/dendrogram.cu"} if n > 2048 else set()) < {
            source for source, *_ in found
        }


def test_what_was_launched_is_there():
    def named(*shape, **more):
        return {(source, *sorted(options)) for source, *options in sources(*shape, **more)}

    def split(names):
        return {(source, *sorted(options)) for source, *options in map(options_of, names)}

    assert split(LAUNCHED) <= named(100_000, 64, cores=2) < named(100_000, 64)
    assert split(LATER) <= named(100_000, 64) - named(100_000, 64, cores=2)
    assert split(OF_HDBSCAN) <= named(100_000, 64, min_samples=50, cores=2)


def options_of(name):
    """A launch's source and options, of which "unsigned char" is one type."""
    return re.split(r" (?=-)", name)


@pytest.mark.parametrize("capability", [75, 80, 90, 120])
def test_they_are_those_of_the_way(capability):
    few, boxes, lists, wide = (dict(sources_by_name(*shape, capability=capability)) for shape in SHAPES)
    assert "spanning_tree/dense.cu" in few
    assert boxes["spanning_tree/boxes.cu"] == ("-DVALUE=float", "-DFEATURES=3", "-DFORMULA=squared_euclidean")
    body = "wgmma.cu" if capability == 90 else "mma.cu"
    for found in (lists, wide):
        assert {f"neighbors/filter/fused/{body}", "neighbors/exact/rerank.cu", "spanning_tree/forest.cu"} < set(found)
    assert "neighbors/exact/mutual_reachability.cu" not in lists
    assert ("neighbors/exact/mutual_reachability.cu",) in sources(100_000, 64, min_samples=5)
    assert ("neighbors/exact/rerank.cu", "-DVALUE=double", "-DFORMULA=cosine") in sources(100_000, 64, "cosine")


def sources_by_name(*shape, **more):
    return ((source, tuple(options)) for source, *options in sources(*shape, **more))


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "jaccard", "hamming"])
def test_they_compile(shape, metric):
    for source, *options in sources(*shape, metric):
        if "wgmma" in source:
            assert_compiles(source, "sm_90a", *(option for option in options if not option.startswith("-arch")))
        else:
            assert_options_compile(source, *options)


def test_a_cpu_compiles_nothing_ahead(watch):
    calls = [watch(pipeline, "compile_for"), watch(ways, "compile_ahead")]
    rapids_slink.fit(np.eye(9)[:, :2], device="cpu")
    ways.compile_for(Problem(Settings(get_metric("precomputed", allow_precomputed=True)), Device("cuda", np), 9, 9, 8))
    assert not any(calls)

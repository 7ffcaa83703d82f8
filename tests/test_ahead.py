"""What threads compile before a fit launches it: sources that are there, with the options that launchers give."""

import numpy as np
import pytest
from fake_gpu import fake_gpu
from test_cuda_sources import assert_compiles

from rapids_slink.dendrogram.cpu import merge_in_order
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.runtime import cuda
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.device import cuda as gpu
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import ahead, component_pairs
from rapids_slink.spanning_tree.problem import Problem

SHAPES = (500, 16), (100_000, 3), (100_000, 64), (100_000, 784)


def sources(n, d, metric="euclidean", min_samples=1, itemsize=4, capability=90):
    """Those of a fit."""
    with fake_gpu(capability):
        settings = Settings(get_metric(metric), min_samples=min_samples)
        work = list(ahead._work(Problem(settings, gpu(), n, d, itemsize)))
    return list(dict.fromkeys(item for item in work if not callable(item)))


@pytest.mark.parametrize("metric", METRICS)
def test_sources_are_there(metric):
    for n, d in SHAPES:
        found = sources(n, d, metric)
        assert all(cuda.kernels_of(source) for source, *_ in found)
        assert {"ordering.cu", "dendrogram/dendrogram.cu"} < {source for source, *_ in found}


@pytest.mark.parametrize("capability", [75, 80, 90, 120])
def test_they_are_those_of_the_way(capability):
    few, boxes, lists, wide = (dict(sources_by_name(*shape, capability=capability)) for shape in SHAPES)
    assert "spanning_tree/pairs/dense.cu" in few
    assert boxes["spanning_tree/boxes/boxes.cu"] == (
        "-DVALUE=float",
        "-DFEATURES=3",
        "-DFORMULA=squared_euclidean",
        "-DLIST=1",
    )
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
        options = [option for option in options if not option.startswith("-arch")]
        assert_compiles(source, "sm_90a" if "wgmma" in source else "compute_90", *options)


def test_a_cpu_compiles_nothing_ahead(monkeypatch):
    monkeypatch.setattr(ahead, "compile_ahead", None)
    ahead.compile_for(Problem(Settings(get_metric("euclidean")), CPU, 9, 2, 8))
    ahead.compile_for(Problem(Settings(get_metric("precomputed", given=True)), Device("cuda", np), 9, 9, 8))


def test_what_joins_few_components_is_compiled_on_the_host():
    """Nothing is compiled of it afterwards: its types are those of the call."""
    component_pairs.compile_on_host()
    functions = component_pairs._order_leaves, merge_in_order
    before = [len(function.signatures) for function in functions]
    heights = component_pairs.path_bottlenecks(
        np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([2.0, 1])
    )
    assert heights[1].max() == 2
    assert [len(function.signatures) for function in functions] == before


def test_operations_run():
    with fake_gpu():
        for function in (ahead.keep_lists, ahead.begin_forest):
            function()

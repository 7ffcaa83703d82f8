"""Filters: low precision rules pairs out, under a bound on its error, and decides nothing else.

    choose.py       the filter that suits the metric, the points and the device
    bounds.py       why products lose no neighbour: points centred, scaled and rounded, how far each was moved, and a
                    trial of a GPU's kernels; the true distances of the proof are `Metric.true_distance_bound`
    product.py      `TileFilter`, what filters have in common; first bounds by products; principal axes to test
    cpu.py          tiles of products by a CPU's BLAS, tested in memory
    cuda.py         points quantized, and first bounds, on a GPU
    fused/          the same products tested in registers and never written, by a GPU's tensor cores
    direct.py       metrics without a product form, on a GPU: sums of float32 terms, and the proof for each metric

`brute_force.BruteForceSearch` re-ranks the pairs that pass a filter.
"""

from functools import partial

from rapids_slink.runtime.device import half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

"""Filters: low precision rules pairs out, under a bound on its error, and decides nothing else.

    choose.py       the filter that suits the metric, the points and the device
    bounds.py       why products lose no neighbour; the true distances of the proof are `Metric.true_distance_bound`
    precision.py    rows by which a GPU's kernels are tried: do their sums keep the bound of the proof
    quantize.py     points centred, scaled and rounded, and how far each was moved: the errors of the proof
    projection.py   the principal axes that a filter may test
    product.py      what filters have in common; first bounds by products (cpu.py and cuda.py have the kernels)
    blas.py         tiles of products by a CPU's BLAS, tested in memory
    fused/          the same products tested in registers and never written, by a GPU's tensor cores
    direct.py       metrics without a product form, on a GPU: sums of float32 terms, and the proof for each metric

`brute_force.BruteForceSearch` re-ranks the pairs that pass a filter.
"""

from functools import partial

from rapids_slink.runtime.device import half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

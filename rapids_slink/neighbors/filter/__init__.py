"""Filters: low precision rules pairs out, under a bound on its error, and decides nothing else.

    bounds.py       why no neighbour is lost
    quantize.py     points centred, scaled and rounded, and how far each was moved
    product.py      products of matrices, tile by tile: BLAS, cuBLAS
    hopper/         the same products tested in registers and never written: Hopper's tensor cores
    direct/         metrics without a product form: sums of float32 terms

A filter serves `brute_force.BruteForceSearch`, which re-ranks what passes.
"""

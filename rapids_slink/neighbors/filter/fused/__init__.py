"""The fused product filter: products are tested in registers by a GPU's tensor cores and never written.

- filter.py: the filter, and groups of rows that have filters of their own; counts.py: the filter of bits
- encodings.py: points as they read them, the errors of these, and whether fp16 sums keep the bound on their error
- launch.py: the arguments of the kernel
- pass.cuh: what the kernel's two bodies share (image.cuh, tile_test.cuh, survivors.cuh); wgmma.cu (wgmma.cuh,
  ring.cuh) is for Hopper, mma.cu (mma.cuh, ../tensor_cores.cuh) for all others
- tighten.cu: bounds from what passed
"""

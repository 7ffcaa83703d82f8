"""The fused product filter: products are tested in registers by a GPU's tensor cores and never written.

- filter.py: the filter; encodings.py: points as it reads them, and what their errors are; image.py: what it shares with
  counts.py, the filter of bits
- surroundings.py: groups of rows that have filters of their own
- launch.py: what the kernel is given; precision.py: whether its fp16 sums keep the bound on their error
- pass.cuh: what the kernel's two bodies share (image.cuh, tile_test.cuh, survivors.cuh); wgmma.cu (wgmma.cuh,
  ring.cuh) is for Hopper, mma.cu (mma.cuh, ../tensor_cores.cuh) for all others
- tighten.cu: bounds from what passed
"""

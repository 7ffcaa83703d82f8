"""The fused product filter of Hopper GPUs: products are tested in registers and never written.

- fused.py, bytes.py: the filter, for fp16 and for bytes
- launch.py: what the kernels are given
- fused.cu (wgmma.cuh, ring.cuh, tile_test.cuh, survivors.cuh): products and tests; tighten.cu: bounds from what passed
"""

from rapids_slink.neighbors.filter.hopper.bytes import ByteFilter
from rapids_slink.neighbors.filter.hopper.fused import FusedFilter
from rapids_slink.neighbors.filter.hopper.launch import is_hopper

__all__ = ["ByteFilter", "FusedFilter", "is_hopper"]

"""The memory of a search by brute force."""

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import candidate_capacity
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.filter.choose import fused_filter
from rapids_slink.neighbors.filter.product import MIN_ROWS, n_seeds
from rapids_slink.neighbors.slices import BLOCK
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.threads import workers

#: Bytes of a value while a CPU quantizes it.
PACKED_BYTES = 32


def estimate_brute_force(
    n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric
) -> MemoryEstimate:
    """Bytes of a search among n points of d features for the k neighbours of m of them, or of as many queries."""
    kernels, lists = filter_kernels(device), m * (12 * k + 8)
    if not device.is_gpu and metric.filter != "product":  # without a filter: tiles, and the lists of a chunk
        from rapids_slink.neighbors.exact.cpu import TILE_BYTES

        tiles = workers(device) * (TILE_BYTES + MIN_ROWS * (12 * k + 64))
        return MemoryEstimate(lists + 44 * m + 4 * n, lists, tiles)
    fused = fused_filter(device) if metric.filter in ("product", "bits") else None
    a_row = fused.row_bytes(d) if fused else (2 if device.is_gpu else 4) * -(-d // 8) * 8 + 8
    a_row += 4 * d * (metric.filter == "direct")
    quantized = n * (a_row + d + 8) + (m * (a_row + d + 4) if m != n else 0)  # d: a copy of small integers
    # In float64: on a GPU a kernel quantizes, and only a random order is made for it.
    packing = 24 * n if device.is_gpu else PACKED_BYTES * min(max(n, m) * d, BLOCK)
    chunks = workers(device) * MIN_ROWS * row_bytes(n, d, k, device)
    if not device.is_gpu and m == n:  # the candidates and lists of blocks that meet
        from rapids_slink.neighbors.filter.cpu import meeting_bytes

        packing_a_tile = meeting_bytes(n, k)
    else:
        packing_a_tile = PACKED_BYTES * workers(device) * min(n, kernels.TILE_POINTS) * d
    peak = quantized + max(packing, lists + m * 44 + packing_a_tile)
    products = m * n_seeds(n, k) if metric.filter == "product" else 0  # of the seeds
    preferred = 4 * min(products, kernels.TILE_ROWS * kernels.TILE_POINTS)
    if fused and m == n:
        preferred += fused.symmetric_bytes(n, k, d)
    return MemoryEstimate(peak, quantized + lists, chunks, preferred)


def row_bytes(n: int, d: int, k: int, device: Device) -> int:
    """Bytes of a row of a chunk: its products, quantized features, candidates and lists."""
    products = 4 * max(filter_kernels(device).TILE_POINTS, n_seeds(n, k))
    of_scan = exact_kernels(device).scan_bytes(n, k)
    return max(products + 32 * d + 4 * (64 + candidate_capacity(k)) + 36 * k + 64, of_scan)

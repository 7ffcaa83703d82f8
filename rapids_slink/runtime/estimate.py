"""How much memory there is, and how much a stage takes: a stage that does not fit is refused before it starts.

Each stage has a function that counts the bytes of the arrays alive at its peak. These are estimates: a run may take
less. On a GPU the run's memory pool enforces the limit whatever the estimate says.
"""

import re
import sys
from dataclasses import astuple, dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

UNITS = {"B": 1} | {f"{c}B": 1000**i for i, c in enumerate("kMGT", 1)}
UNITS |= {f"{c}iB": 1024**i for i, c in enumerate("KMGT", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*((?:[kmgt]i?)?b)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a stage takes."""

    peak: int  # bytes at its peak, without the chunks of its work
    retained: int = 0  # the part of the peak that is kept for later stages
    min_chunk: int = 0  # the chunks at their smallest
    preferred_chunk: int = 0  # the chunks if there is room

    @property
    def least(self) -> int:
        """The bytes that it needs."""
        return self.peak + self.min_chunk

    @property
    def preferred(self) -> int:
        """The bytes with which it is fastest."""
        return self.peak + max(self.min_chunk, self.preferred_chunk)


def sequential(*stages: MemoryEstimate) -> MemoryEstimate:
    """The estimate of stages that follow one another."""
    peak = retained = min_chunk = preferred_chunk = 0
    for stage in stages:
        peak = max(peak, retained + stage.peak)
        retained += stage.retained
        min_chunk, preferred_chunk = max(min_chunk, stage.min_chunk), max(preferred_chunk, stage.preferred_chunk)
    return MemoryEstimate(peak, retained, min_chunk, preferred_chunk)


def either(*estimates: MemoryEstimate) -> MemoryEstimate:
    """An estimate that covers each of several stages, of which one will run."""
    return MemoryEstimate(*(max(values) for values in zip(*map(astuple, estimates), strict=True)))


def as_bytes(limit: Any) -> int | None:
    """The value of ``memory_limit``: None, a number of bytes, or text such as "8GiB" or "500 MB"."""
    if limit is None:
        return None
    valid = "memory_limit must be a number of bytes or text such as '8GiB' or '500MB'"
    if isinstance(limit, str):
        match = _SIZE.fullmatch(limit)
        if not match:
            raise ValueError(f"{valid}, got {limit!r}")
        unit = next(size for name, size in UNITS.items() if name.lower() == (match[2] or "B").lower())
        size = int(Fraction(match[1]) * unit)
    elif isinstance(limit, bool) or not isinstance(limit, Integral):
        raise TypeError(f"{valid}, got {limit!r}")
    else:
        size = int(limit)
    if size < 1:
        raise ValueError(f"memory_limit must be at least 1 byte, got {limit!r}")
    return size


def size_text(size: float) -> str:
    """A number of bytes, rounded up: "31.2 GiB"."""
    unit = "GiB" if size >= 2**30 else "MiB"
    return f"{-(-size * 10 // UNITS[unit]) / 10:.1f} {unit}"


def free_on_gpu(cuda: Any) -> int | None:
    """An upper bound of the bytes that the current GPU has free or that an allocator may hand out again.

    The whole size of rmm's pools counts as free, since nothing else is known of them. Other resources that keep memory
    tell nothing: with one of these the bound is the GPU's whole memory. None where the GPU uses the host's memory.
    `cuda` is CuPy's module.
    """
    free, total = cuda.runtime.memGetInfo()
    free += sys.modules["cupy"].get_default_memory_pool().free_bytes()
    allowed = total
    rmm: Any = sys.modules.get("rmm")
    resource: Any = rmm and rmm.mr.get_current_device_resource()
    while hasattr(resource, "upstream_mr"):
        if hasattr(resource, "get_allocation_limit"):
            allowed = min(allowed, resource.get_allocation_limit() - resource.get_allocated_bytes())
        elif hasattr(resource, "pool_size"):
            free += resource.pool_size()
        elif not type(resource).__name__.endswith("Adaptor"):
            free = total
        resource = resource.upstream_mr
    kind = type(resource).__name__
    if kind.startswith(("Managed", "System", "Sam", "Pinned")):
        return None
    return int(min(allowed, free if resource is None or kind == "CudaMemoryResource" else total))

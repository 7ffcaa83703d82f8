"""What a run proved and how long each stage took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rapids_slink.runtime.device import Device


class Report(dict[str, Any]):
    """A dictionary of plain values whose text is a small table.

    ``report["seconds"]`` maps each stage to its wall time; the other keys, one a stage, map counts by name.
    """

    @contextmanager
    def stage(self, name: str, device: Device) -> Iterator[None]:
        """Time a stage, device work included, and show it as an NVTX range on a GPU."""
        nvtx = device.xp.cuda.nvtx if device.is_gpu else None
        if nvtx is not None:
            nvtx.RangePush(f"rapids_slink.{name}")
        start = time.perf_counter()
        try:
            yield
            device.synchronize()
        finally:
            seconds = self.setdefault("seconds", {})
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
            if nvtx is not None:
                nvtx.RangePop()

    def count(self, stage: str, **counts: Any) -> None:
        """Add to the counts of a stage; values that are not numbers are set."""
        entry = self.setdefault(stage, {})
        for name, value in counts.items():
            entry[name] = value if isinstance(value, str) else entry.get(name, 0) + int(value)

    def __str__(self) -> str:
        lines = []
        for key, value in self.items():
            if isinstance(value, dict):
                shown = (f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in value.items())
                lines.append(f"{key:>14}: " + ", ".join(shown))
            else:
                lines.append(f"{key:>14}: {value}")
        return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """A number and what it counts: "1 row", "1,234 rows"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"

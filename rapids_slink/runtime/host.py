"""The memory and the cores that this process may use, within the limits of its control groups (containers)."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path("/")


def free_on_host(root: Path = ROOT) -> int | None:
    """Bytes that this process may still take: Linux' MemAvailable, or less in a control group; None if unknown."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    return min([total, *_free_in_groups(root)])


@cache
def usable_cores(root: Path = ROOT) -> int:
    """The number of cores that this process may run on, or its control groups' quota, rounded up, if that is less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *_cores_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """The free bytes of each control group that has a limit."""
    for folder, version in _control_groups("memory", root):
        if version == 2:
            limit, usage, cache = "memory.max", "memory.current", "inactive_file"
        else:
            limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        try:
            maximum, used = int((folder / limit).read_text()), int((folder / usage).read_text())
            reclaimable = re.search(rf"^{cache} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
        except (OSError, ValueError):  # no such group, or no limit: "max"
            continue
        yield max(0, maximum - used + (int(reclaimable[1]) if reclaimable else 0))


def _cores_in_groups(root: Path) -> Iterator[int]:
    """The quota of each control group that has one, in cores, rounded up."""
    for folder, version in _control_groups("cpu", root):
        files = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        try:
            quota, period = (int(number) for file in files for number in (folder / file).read_text().split())
        except (OSError, ValueError):  # no such group, or no quota: "max"
            continue
        if quota > 0:  # the first version's -1 is no quota
            yield -(-quota // period)


def _control_groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of the control groups that hold this process, and their version."""
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = top / path.lstrip("/")
        # In a container the path may be the host's, and the container's own group the top.
        for folder in {top, group, *(parent for parent in group.parents if top in parent.parents)}:
            yield folder, 1 if controllers else 2

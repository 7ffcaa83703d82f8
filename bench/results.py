"""The result files: one a day and device, merged by case, stage and memory pool."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rapids_slink
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.memory import usable_cores

FOLDER = Path(__file__).parent / "results"
PACKAGES = ["numpy", "pandas", "scipy", "scikit-learn", "numba", "fastcluster", "hdbscan", "quitefastmst"]
PACKAGES += ["fast-hdbscan", "faiss-cpu", "rapidfuzz", "dbscan", "certex"]
PACKAGES += [f"{name}-{cuda}" for name in ("cudf", "cuml", "cuvs", "cugraph") for cuda in ("cu12", "cu13")]
PACKAGES += ["cupy-cuda12x", "cupy-cuda13x"]


def save(folder: Path, header: dict[str, Any], result: dict[str, Any]) -> Path:
    """Add a result to the day's file of its device, in place of an older one of the same `identity`; return the path.

    A result keeps the commit and the device at which it was measured, since the file may outlive both. One that was
    measured without peers keeps the peers' times of the newest result before it on that device, that day's or an
    earlier one's. `peers_commit` is then the commit at which these were measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{header['date']}-{slug(header)}.json"
    days = sorted(folder.glob(f"????-??-??-{slug(header)}.json"))  # names start with the date
    found = {day: {identity(entry): entry for entry in entries_of(json.loads(day.read_text()))} for day in days}
    key = identity(result)
    before = [entries[key] for day, entries in found.items() if day <= path and key in entries]
    before = [entry for entry in before if entry["device"] == header["device"]]
    result = {**result, "commit": header["commit"], "device": header["device"]}
    if before and before[-1].get("peers") and not result.get("peers"):
        result["peers"] = before[-1]["peers"]
        result["peers_commit"] = before[-1].get("peers_commit", before[-1]["commit"])
    results = [entry for _, entry in sorted({**found.get(path, {}), key: result}.items())]
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({**header, "results": results}, indent=2) + "\n")
    draft.replace(path)
    return path


def entries_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a file's results, each with its device, which older ones do not say."""
    return [{"device": run["device"], **entry} for entry in run["results"]]


def identity(result: dict[str, Any]) -> tuple[str, str, bool, int]:
    """Return what tells results apart: case, stage, whether all memory came from an rmm pool, and workers.

    Older results do not name a pool, and count as measured without one.
    """
    return result["case"], result["stage"], result.get("rmm_pool", False), result.get("workers", 0)


def slug(header: dict[str, Any]) -> str:
    """Return ``cpu``, or the GPU's name as part of a file name."""
    if header["driver"] is None:
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", header["device"].lower().removeprefix("nvidia ")).strip("-")


def header(device: Device, date: str, commit: str | None) -> dict[str, Any]:
    """Return what was measured, on what device and with which versions: the fields at the head of a result file."""
    return {
        "commit": commit or _commit(),
        "date": date,
        "device": _gpu(device) if device.is_gpu else _cpu(),
        "driver": _driver(device) if device.is_gpu else None,
        "versions": _versions(),
    }


def _commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()


def _versions() -> dict[str, str]:
    found = {"rapids_slink": rapids_slink.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _gpu(device: Device) -> str:
    return str(device.xp.cuda.runtime.getDeviceProperties(0)["name"].decode())


def _driver(device: Device) -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"CUDA {device.xp.cuda.runtime.driverGetVersion()}"
    return run.stdout.split()[0]


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {usable_cores()} cores"

"""``python -m bench.from_files``: near duplicates from files to files, and beside NeMo Curator's recipe.

Parquet files of unit rows are made, in one topic per 1,000 rows, of which 5 % are near copies of rows of another file.
Then `deduplicate_files` is timed by its stages, with the peaks of memory; ``--out`` is the folder of the day's result
file. With ``--recipe`` the same rows are searched as NeMo Curator's semantic deduplication does: k-means, then all
pairs within each cell. It tells the time and the share of the near pairs that share a cell.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import rapids_slink
from bench import results
from rapids_slink.runtime.device import DEVICE_NAMES, Device, resolve, to_host

#: Rows and features of the cases.
CASES = {
    "files-20m-384": (20_000_000, 384),
    "files-10m-384": (10_000_000, 384),
    "files-5m-768": (5_000_000, 768),
    "files-1m-384": (1_000_000, 384),
    "files-1m-64": (1_000_000, 64),
    "files-50k-64": (50_000, 64),
}
FILE_ROWS, GROUP_ROWS, TOPIC, COPIES, DISTANCE = 500_000, 50_000, 1000, 20, 0.1
CELLS, ROUNDS = (1000, 10_000), 10  # of k-means


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the files of the cases, measure them, and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.from_files", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["files-50k-64"])
    parser.add_argument("--by", nargs="+", default=["components"])
    parser.add_argument("--recipe", action="store_true", help="measure NeMo Curator's recipe, too")
    parser.add_argument("--array", action="store_true", help="time deduplicate of the rows in one array, too")
    parser.add_argument("--device", choices=DEVICE_NAMES, default="auto")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/from_files"), help="of the files, which are removed")
    parser.add_argument("--out", type=Path, help="folder of result files (default: only print)")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the result file")
    parser.add_argument("--commit", help="what is measured (default: git's HEAD)")
    options = parser.parse_args(arguments)
    device = resolve(options.device)
    header = results.header(device, options.date, options.commit)
    for case in options.cases:
        (n, d), source = CASES[case], options.folder / case
        start = time.perf_counter()
        make_files(source, n, d, device)
        print(f"{case}: files made in {time.perf_counter() - start:.1f} s", flush=True)
        try:
            for by in options.by:
                measured = measure(source, options.folder / f"{case}-{by}", by, device)
                if options.out:
                    sizes = {"case": case, "stage": f"files-{by}", "n": n, "d": d, "rmm_pool": False}
                    results.save(options.out, header, {**sizes, **measured})
            if options.array or options.recipe:
                rows = read(source)
            if options.array:
                start = time.perf_counter()
                rapids_slink.deduplicate(rows, max_distance=DISTANCE, device=device.name)
                print(f"the array: {time.perf_counter() - start:.1f} s", flush=True)
            if options.recipe:
                recipe(rows, device)
        finally:
            shutil.rmtree(options.folder)
    return 0


def make_files(folder: Path, n: int, d: int, device: Device) -> None:
    """Write n unit rows of d features, float16, in files of `FILE_ROWS`; a row has a topic, and may be a copy."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    folder.mkdir(parents=True)
    xp, files = device.xp, max(2, n // FILE_ROWS)
    centres = xp.random.RandomState(0).standard_normal((max(1, n // TOPIC), d)).astype("float32")

    def drawn(seed: int, m: int) -> Any:
        random = xp.random.RandomState(seed)
        rows = random.standard_normal((m, d)).astype("float32")
        return unit(centres[random.randint(0, len(centres), m)] + np.float32(0.5) * rows)

    def unit(rows: Any) -> Any:
        rows /= xp.sqrt((rows * rows).sum(axis=1))[:, None]
        return rows

    def write(file: int, values: np.ndarray) -> None:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), d)
        ids = np.arange(len(values)) + file * (n // files)
        write_table(
            pa.table({"id": ids, "embedding": vectors}), folder / f"{file:04}.parquet", row_group_size=GROUP_ROWS,
            compression="none", use_dictionary=False, write_statistics=["id"],
        )  # fmt: skip

    with ThreadPoolExecutor(16) as threads:
        waiting: list[Any] = []
        for file in range(files):
            m = n // files
            copied, own = (
                drawn(-1 - (file + files // 2) % files + 2**31, m // COPIES),
                drawn(-1 - file + 2**31, m // COPIES),
            )
            noise = xp.random.RandomState(file + 1).standard_normal(copied.shape).astype("float32")
            copied = unit(copied + np.float32(0.02 / d**0.5) * noise)
            rows = xp.concatenate((drawn(file + 2**20, m - 2 * len(own)), own, copied)).astype("float16")
            waiting.append(threads.submit(write, file, to_host(rows)))
            if len(waiting) > 16:
                waiting.pop(0).result()
        for written in waiting:
            written.result()


def read(folder: Path) -> np.ndarray:
    """Return the rows of all files."""
    from rapids_slink.parquet import VectorFiles

    files = VectorFiles.of(folder, "embedding", False)
    values = np.empty((files.n_rows, files.width), files.dtype)
    files.read(0, values)
    return values


class Peak(threading.Thread):
    """The most bytes of the GPU and of the process itself, without mapped files, by a look every ten milliseconds."""

    def __init__(self, device: Device) -> None:
        super().__init__(daemon=True)
        self.on_gpu, self.on_host, self.ended, self.device = 0, 0, threading.Event(), device

    def run(self) -> None:
        while not self.ended.wait(0.01):
            own = next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")
            )
            self.on_host = max(self.on_host, 1024 * int(own.split()[1]))
            if self.device.is_gpu:
                free, total = self.device.xp.cuda.runtime.memGetInfo()
                self.on_gpu = max(self.on_gpu, total - free)


def measure(source: Path, output: Path, by: str, device: Device) -> dict[str, Any]:
    """Run `deduplicate_files` once; print and return the seconds of its stages and the peaks of memory.

    Exactly the copies go, since other rows of a topic are farther apart.
    """
    peak = Peak(device)
    peak.start()
    start = time.perf_counter()
    report = rapids_slink.deduplicate_files(source, output, max_distance=DISTANCE, by=by, device=device.name)
    whole = time.perf_counter() - start
    peak.ended.set()
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report["seconds"].items())
    peaks = f"GPU {peak.on_gpu / 1e9:.1f} GB, host {peak.on_host / 1e9:.1f} GB"
    print(f"{by}: {whole:.1f} s ({stages}); {peaks}; {report['search']}; {report['rows']}", flush=True)
    shutil.rmtree(output)
    rows = report["rows"]
    return {
        "seconds": whole, "least_seconds": whole, "peers": {}, "references": {},
        "exact": rows["removed"] * COPIES == rows["kept"] + rows["removed"], "checked_against": "the planted copies",
        "peak_device_bytes": peak.on_gpu, "peak_host_bytes": peak.on_host, "stages": dict(report["seconds"]),
        "search": dict(report["search"]), "rows": dict(rows),
    }  # fmt: skip


def recipe(rows: np.ndarray, device: Device) -> None:
    """Print the time of all near pairs, and the time of the cells of k-means with the share that they find."""
    start = time.perf_counter()
    near = rapids_slink.pairs(rows, max_distance=DISTANCE, device=device.name)
    src, dst = (device.asarray(near[name].to_numpy()) for name in ("src", "dst"))
    print(f"all pairs: {time.perf_counter() - start:.2f} s, {len(near):,} within {DISTANCE}", flush=True)
    values = device.asarray(rows).astype("float32")
    for k in CELLS:
        if k * 4 > len(rows):
            continue
        start = time.perf_counter()
        cell = kmeans(values, k, device.xp)
        device.synchronize()
        of_cells = time.perf_counter() - start
        pairs_of_cells(values, cell, k, device.xp)
        device.synchronize()
        whole, share = time.perf_counter() - start, float((cell[src] == cell[dst]).sum()) / max(1, len(near))
        print(f"{k:,} cells: {whole:.2f} s, of which k-means {of_cells:.2f}; {share:.4%} of the pairs", flush=True)


def kmeans(values: Any, k: int, xp: Any) -> Any:
    """Return the cell of each unit row by `ROUNDS` rounds of spherical k-means, as NeMo Curator's on normed rows."""
    centres = values[xp.random.RandomState(1).permutation(len(values))[:k]]
    cell = xp.empty(len(values), "int32")
    for _ in range(ROUNDS):
        step = max(1, 2**28 // k)
        for at in range(0, len(values), step):
            cell[at : at + step] = (values[at : at + step] @ centres.T).argmax(axis=1)
        sums = xp.zeros_like(centres)
        xp.add.at(sums, cell, values)
        length = xp.sqrt((sums * sums).sum(axis=1))[:, None]
        centres = xp.where(length > 0, sums / xp.maximum(length, 1e-30), centres)
    return cell


def pairs_of_cells(values: Any, cell: Any, k: int, xp: Any) -> Any:
    """Return for each row the largest product with an earlier row of its cell: all pairs within cells."""
    order = xp.argsort(cell, kind="stable")
    ends = to_host(xp.searchsorted(cell[order], xp.arange(k + 1, dtype="int32"))).tolist()
    largest = xp.full(len(values), -1, "float32")
    for begin, end in pairwise(ends):
        if end - begin > 1:
            rows = values[order[begin:end]]
            largest[order[begin + 1 : end]] = xp.tril(rows @ rows.T, -1)[1:].max(axis=1)
    return largest


if __name__ == "__main__":
    sys.exit(main())

"""``python -m bench``: measure stages of cases, check them, and save the day's result file where ``--out`` says."""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench import peers, results
from bench.cases import CASES, GROUPS, DataMissingError
from bench.checks import CHECKS
from bench.clock import Clock
from bench.cluster import cluster_of
from bench.references import references_of
from bench.stages import READERS, STAGES, AnyWork, work_on
from rapids_slink.runtime.device import DEVICE_NAMES, Device, resolve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, and return the exit status: 1 if a result was not exact."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(["cases:", *CASES, "", "stages:", *STAGES, "", "peers:", *peers.NAMES]))
        return 0
    device = resolve(options.device)
    if options.pool:
        import rmm

        rmm.reinitialize(pool_allocator=True)
    with cluster_of(options.workers, device) if "dask" in options.stages else nullcontext():
        return 1 if _measure_all(options, device) else 0


def _measure_all(options: argparse.Namespace, device: Device) -> int:
    """Measure and save what the options say, and return how many results were not exact."""
    clock = Clock(device.is_gpu, options.repeats, options.budget)
    header = results.header(device, options.date, options.commit)
    inexact = 0
    for name in [name for given in options.cases for name in GROUPS.get(given, [given])]:
        work = work_on(CASES[name], device, options.data)
        try:
            n, d = work.shape
        except DataMissingError as missing:
            print(f"{name}: skipped, {missing}", file=sys.stderr)
            continue
        for stage in options.stages:
            if stage not in work.stages:
                print(f"{name}: no stage {stage}", file=sys.stderr)
                continue
            measured = measure(work, stage, clock, options.peers)
            result = {"case": name, "stage": stage, **measured, "n": n, "d": d, "rmm_pool": options.pool}
            if stage == "dask":
                result.update(workers=options.workers, peak_device_bytes=None)  # the workers'
            saved = f"  -> {results.save(options.out, header, result)}" if options.out else ""
            print(f"{name:>18} {stage:>18} {describe(result)}{saved}", flush=True)
            inexact += result["exact"] is False
    return inexact


def measure(work: AnyWork, stage: str, clock: Clock, peer_names: list[str]) -> dict[str, Any]:
    """Check a stage's result, then time the stage and its peers; return the fields of the result."""
    call = STAGES[stage](work)
    first, first_seconds, peak = clock.warm_up(call)
    exact, against = CHECKS[stage](work, first)
    del first
    seconds = clock.seconds(call, READERS.get(stage)) if clock.repeats else [first_seconds]
    by_stage = {"stage_seconds": call().report_["seconds"]} if stage == "fit" and clock.repeats else {}
    return {
        **by_stage,
        "seconds": statistics.median(seconds),
        "least_seconds": min(seconds),  # a host that others use may be half as fast for seconds on end
        "peers": {peer.name: s for peer in peers.peers_of(stage, peer_names) if (s := time_peer(peer, work, clock))},
        "references": references_of(work.case.name, stage),
        "exact": exact,
        "checked_against": against,
        "peak_device_bytes": peak,
    }


def time_peer(peer: peers.Peer, work: AnyWork, clock: Clock) -> float | None:
    """Return the seconds of a peer, or None if it cannot do the work or fails."""
    if not peer.can_do(work):
        return None
    try:
        call = peer.prepare(work)
        call()
        return clock.median(call, peer.read)
    except Exception as error:  # somebody else's package: say so and go on
        print(f"{work.case.name}: {peer.name} failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def describe(result: dict[str, Any]) -> str:
    """Return a result as one line of text."""
    others = "".join(f", {name} {s:.4g} s" for name, s in {**result["peers"], **result["references"]}.items())
    verdict = {True: "exact", False: "NOT EXACT", None: "not checked"}[result["exact"]]
    return f"{result['seconds']:.4g} s ({verdict}){others}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the cases, stages and peers, and do no more")
    parser.add_argument(
        "--cases", nargs="+", choices=[*CASES, *GROUPS], default=["digits", "gauss-20k-16"], metavar="CASE"
    )
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=["fit", "knn"], metavar="STAGE")
    parser.add_argument("--peers", nargs="*", choices=peers.NAMES, default=peers.NAMES, metavar="PEER")
    parser.add_argument("--device", choices=DEVICE_NAMES, default="auto")
    parser.add_argument(
        "--repeats",
        type=int,
        default=7,
        help="timed calls, if --budget is enough, and of short ones more; 0: the first is timed (default: 7)",
    )
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for them in all (default: 10)")
    data = os.environ.get("RAPIDS_SLINK_BENCH_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), help="folder of mnist.npz and cities.npy")
    folder = results.FOLDER.relative_to(results.FOLDER.parent.parent)
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder of result files, such as {folder}, which git tracks (default: nothing is saved)",
    )
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the result file (default: today)")
    parser.add_argument("--commit", help="what is measured (default: git's HEAD)")
    parser.add_argument("--workers", type=int, default=1, help="of the Dask cluster for the stage dask (default: 1)")
    parser.add_argument("--pool", action="store_true", help="let everybody allocate from an rmm pool")
    return parser


if __name__ == "__main__":
    sys.exit(main())

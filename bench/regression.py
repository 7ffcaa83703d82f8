"""``python -m bench.regression COMMIT``: whether calls on a CPU take half as long again as at another commit.

Both trees make each call in turn, in processes of their own. The least processor time is compared, which depends
little on other work on the machine. The exit status is 1 if a stage of a case takes `--limit` times as long or longer.
A folder with the other tree may be given in place of the commit; its kernels are compiled once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: All pairs, a filter and a tree, each well below a second.
CASES = ["tiny-1000-8", "gauss-20k-16", "curve-40k-16"]
STAGES = ["fit", "cut"]
LIMIT = 1.5
#: Turns of each tree, and the seconds in which a turn repeats its call.
TURNS, REPEATED = 7, 0.1


def main(arguments: list[str] | None = None) -> int:
    """Measure both trees, and return the exit status: 1 if a stage of a case is slower by the limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.regression", description=__doc__.split("\n\n")[0])
    parser.add_argument("other", metavar="COMMIT", help="the other commit, or a folder with its files")
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="CASE")
    parser.add_argument("--stages", nargs="+", default=STAGES, metavar="STAGE")
    parser.add_argument("--limit", type=float, default=LIMIT, help="how many times as long is slow (default: 1.5)")
    given = parser.parse_args(arguments)
    slower = 0
    with folder_of(given.other) as other:
        for case in given.cases:
            for stage in given.stages:
                ours, theirs = in_turn(ROOT, other, case, stage)
                is_slower = ours >= given.limit * theirs
                slower += is_slower
                times = f"{theirs:>10.5f} s {ours:>10.5f} s {ours / theirs:>6.2f}"
                print(f"{f'{case}, {stage}':<40}{times}{' SLOWER' * is_slower}", flush=True)
    return 1 if slower else 0


@contextmanager
def folder_of(other: str) -> Iterator[Path]:
    """Yield the folder that is given, or one with a commit's files."""
    if Path(other).is_dir():
        yield Path(other).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), other], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def in_turn(first: Path, second: Path, case: str, stage: str) -> tuple[float, float]:
    """Return the least seconds of a case's stage in either tree; NaN in one that has no such case or stage."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", __file__, case, stage], env={**os.environ, "PYTHONPATH": str(tree)},
            cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for tree in (first, second)
    ]  # fmt: skip
    least = [float("inf")] * 2
    for _ in range(TURNS):
        for at, process in enumerate(processes):
            with suppress(BrokenPipeError):
                print(file=process.stdin, flush=True)
            least[at] = min(float(process.stdout.readline() or "nan"), least[at])
    for process in processes:
        process.communicate()
    return least[0], least[1]


def serve(case: str, stage: str) -> None:
    """Answer each line with the least processor seconds of a stage's calls, by the sources that Python finds."""
    from bench.cases import CASES
    from bench.stages import STAGES, work_on
    from rapids_slink.runtime.device import resolve

    call = STAGES[stage](work_on(CASES[case], resolve("cpu"), None))
    call()  # reads the kernels
    for _ in sys.stdin:
        begun, seconds = time.perf_counter(), []
        while not seconds or time.perf_counter() < begun + REPEATED:
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        print(min(seconds), flush=True)


if __name__ == "__main__":
    if __package__:
        sys.exit(main())
    serve(*sys.argv[1:])

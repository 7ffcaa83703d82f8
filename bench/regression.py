"""``python -m bench.regression COMMIT``: whether fits of a CPU take half as long again as at another commit.

Both trees run on this machine, in turn. The least time of each stage is compared: other work on the machine makes some
runs longer, and none shorter. The exit status is 1 if a stage of a case is slower by half or more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: All pairs, a filter and a tree, each well below a second.
CASES = ["tiny-1000-8", "gauss-20k-16", "curve-40k-16"]
STAGES = ["fit", "cut"]
LIMIT = 1.5
ROUNDS = 3


def main(commit: str) -> int:
    """Measure both trees, and return the exit status: 1 if a stage of a case is slower by half or more."""
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(other), commit], cwd=ROOT, check=True)
        try:
            times: dict[Path, dict[str, float]] = {ROOT: {}, other: {}}
            for part in range(ROUNDS):
                for tree, least in times.items():
                    seconds = measured(tree, Path(folder) / f"{tree.name}-{part}")
                    least.update({name: min(time, least.get(name, time)) for name, time in seconds.items()})
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(other)], cwd=ROOT, check=True)
    slower = list(compared(times[ROOT], times[other]))
    return 1 if slower else 0


def measured(tree: Path, out: Path) -> dict[str, float]:
    """Run the benchmarks on the sources in a tree, and return the least seconds of each case and stage."""
    command = [sys.executable, "-m", "bench", "--device", "cpu", "--peers", "--repeats", "5", "--out", str(out)]
    subprocess.run([*command, "--cases", *CASES, "--stages", *STAGES], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    (path,) = out.glob("*.json")
    return seconds_of(json.loads(path.read_text())["results"])


def seconds_of(results: Iterable[dict[str, object]]) -> dict[str, float]:
    """Return the least seconds of each result of a file, by case and stage."""
    return {f"{result['case']}, {result['stage']}": float(str(result["least_seconds"])) for result in results}


def compared(ours: dict[str, float], theirs: dict[str, float]) -> Iterable[str]:
    """Print a line for each measurement that both have, and yield the names of those that take too long."""
    for name in sorted(ours.keys() & theirs.keys()):
        ratio = ours[name] / theirs[name]
        print(f"{name:<30}{theirs[name]:>9.4f} s {ours[name]:>9.4f} s {ratio:>6.2f}{' SLOWER' * (ratio >= LIMIT)}")
        if ratio >= LIMIT:
            yield name


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

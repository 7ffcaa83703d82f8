"""``python -m bench.report``: the table and the plot, made from the result files and nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cases import GROUPS
from bench.results import FOLDER, entries_of, identity, slug

README = Path(__file__).parent.parent / "README.md"
MARKERS = ("<!-- bench:start -->", "<!-- bench:end -->")
TABLE_STAGES = ("fit", "spanning_tree")
#: The rows of the README's table: case, stage, and whether it ran on a GPU.
README_ROWS = (
    ("digits", "fit", True),
    ("mnist-60k-784", "fit", True),
    ("mixture-1m-128", "fit", True),
    ("deep-8m-96", "fit", True),
    ("cities-235k-3", "fit", True),
    ("sphere-1.87m-3", "fit", True),
    ("halo-10m-3", "fit", True),
    ("cloud-4m-9", "fit", True),
    ("road-24m", "spanning_tree", True),
    ("gauss-20k-16", "fit", False),
    ("cities-235k-3", "fit", False),
)
GROUP_OF = {case: group for group, cases in GROUPS.items() for case in cases}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it where the options say."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the result files")
    parser.add_argument("--stages", nargs="+", default=list(TABLE_STAGES), help="or groups of cases: metrics")
    parser.add_argument("--readme", type=Path, nargs="?", const=README, help="write README_ROWS into this file's table")
    parser.add_argument("--pool", action="store_true", help="also what was measured with an rmm pool")
    parser.add_argument("--plot", type=Path, help="draw the same rows here")
    options = parser.parse_args(arguments)
    results = load(options.results)
    rows = pick(results, options.stages, options.pool)
    if options.readme:
        options.readme.write_text(put_between(options.readme.read_text(), table(readme_rows(results))))
    if options.plot:
        draw(rows, options.plot)
    if not (options.readme or options.plot):
        print(table(rows))
    return 0


def load(folder: Path) -> list[dict[str, Any]]:
    """The newest result of CPUs, and of each GPU, of each `identity`, with its ``device``, ``date`` and ``file``.

    One without peers does not replace one that was measured beside them.
    """
    newest: dict[Any, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):  # names start with the date
        run = json.loads(path.read_text())
        for result in entries_of(run):
            case, stage, *more = identity(result)
            key = (slug(run), stage, case, *more)
            if result.get("peers") or not (key in newest and newest[key].get("peers")):
                newest[key] = {**result, "date": run["date"], "file": path.name}
    return [newest[key] for key in sorted(newest)]


def pick(rows: list[dict[str, Any]], names: Sequence[str], pool: bool = False) -> list[dict[str, Any]]:
    """The rows of these stages, or those of a group of cases where the group is named; of an rmm pool only if asked."""
    return [
        row for row in rows if GROUP_OF.get(row["case"], row["stage"]) in names and (pool or not row.get("rmm_pool"))
    ]


def readme_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest row of each of `README_ROWS`."""
    newest = {
        (row["case"], row["stage"], not row["file"].endswith("-cpu.json")): row
        for row in sorted(rows, key=lambda row: row["file"])  # names start with the date
        if not row.get("rmm_pool")
    }
    return [newest[key] for key in README_ROWS if key in newest]


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table; an empty text where there are no rows."""
    if not rows:
        return ""
    lines = ["| case | stage | rapids_slink | others | exact | device | result file |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        others = ", ".join(f"{name} {shown(s)}" for name, s in _fastest_first(row))
        exact = {True: "yes", False: "**no**", None: "not checked"}[row["exact"]]
        link = f"[{row['date']}](bench/results/{row['file']})"
        cells = [row["case"], _stage(row), shown(row["seconds"]), others or "–", exact, row["device"], link]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _stage(row: dict[str, Any]) -> str:
    workers = f", {row['workers']} worker{'s' * (row['workers'] > 1)}" if row.get("workers") else ""
    return row["stage"] + workers + (", rmm pool" if row.get("rmm_pool") else "")


def _fastest_first(row: dict[str, Any]) -> list[tuple[str, float]]:
    """The peers', then what was published; older results name nothing published."""
    parts = row["peers"], row.get("references", {})
    return [item for part in parts for item in sorted(part.items(), key=lambda item: item[1])]


def shown(seconds: float) -> str:
    """Three digits and a unit."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def put_between(text: str, middle: str) -> str:
    """`text` with what stands between the markers replaced."""
    start, end = MARKERS
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"the file must hold {start} and {end}, once each")
    before, after = text.split(start)[0], text.split(end)[1]
    return "\n".join(part for part in (before + start, middle, end + after) if part)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A line a row, a dot a package, seconds on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 1.5 + 0.5 * len(rows)), layout="constrained")
    for name in ["rapids_slink", *sorted({name for row in rows for name in row["peers"]})]:
        times = [row["seconds"] if name == "rapids_slink" else row["peers"].get(name, float("nan")) for row in rows]
        axes.plot(times, range(len(rows)), "o", label=name, markersize=9 if name == "rapids_slink" else 6)
    axes.set_yticks(range(len(rows)), [f"{row['case']}, {_stage(row)}\n{row['device']}" for row in rows])
    axes.set(xscale="log", xlabel="seconds", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(alpha=0.4)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m bench.report``: the tables, made from the result files and nothing else."""

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
TABLE_STAGES = ("fit", "spanning_tree")
#: The cases of the README's table, which are fits on one card.
README_CARD = "NVIDIA H100 80GB HBM3"
README_CASES = ("mnist-60k-784", "unit-300k-768", "mixture-1m-128", "cloud-4m-9", "deep-8m-96")
#: The table's cases on CPUs, each with its stage.
README_CPU_CASES = (
    ("blobs-200k-2", "hdbscan"), ("gauss-20k-16", "hdbscan"), ("gauss-20k-16", "fit"), ("tiny-100-8", "fit"),
    ("unit-50k-384-planted", "pairs"), ("receptors-20k", "pairs"), ("uniform-300k-3-near", "pairs"),
)  # fmt: skip
#: The case of the README's first figure.
FIRST_CASE = "mixture-1m-128"
GROUP_OF = {case: group for group, cases in GROUPS.items() for case in cases}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it where the options say."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the result files")
    parser.add_argument("--stages", nargs="+", default=list(TABLE_STAGES), help="or groups of cases: metrics")
    parser.add_argument("--readme", type=Path, nargs="?", const=README, help="write this file's table and first figure")
    parser.add_argument("--pool", action="store_true", help="also what was measured with an rmm pool")
    options = parser.parse_args(arguments)
    results = load(options.results)
    if options.readme:
        options.readme.write_text(filled(options.readme.read_text(), results))
    else:
        print(table(pick(results, options.stages, options.pool)))
    return 0


def load(folder: Path) -> list[dict[str, Any]]:
    """Return the newest result of each `identity`, for CPUs and each GPU, with its ``device``, ``date`` and ``file``.

    A result without peers does not replace one that was measured beside them.
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
    """Return the rows of these stages and groups of cases.

    A row of a case that is in a group is there only if its group is named, and one that was measured with an rmm pool
    only if `pool` is true.
    """
    return [
        row for row in rows if GROUP_OF.get(row["case"], row["stage"]) in names and (pool or not row.get("rmm_pool"))
    ]


def readme_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the newest row of each of `README_CASES`."""
    newest = {
        row["case"]: row
        for row in sorted(rows, key=lambda row: row["file"])  # names start with the date
        if row["stage"] == "fit" and row["device"] == README_CARD and not row.get("rmm_pool")
    }
    return [newest[case] for case in README_CASES if case in newest]


def readme_cpu_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the result on CPUs of each of `README_CPU_CASES`."""
    of_cpus = {(row["case"], row["stage"]): row for row in rows if row["file"].endswith("-cpu.json")}
    return [of_cpus[key] for key in README_CPU_CASES if key in of_cpus]


def filled(text: str, results: list[dict[str, Any]]) -> str:
    """Return the README's text with its table and its first figure made from these results."""
    rows = readme_rows(results)
    return put_between(put_between(text, table(readme_cpu_rows(results) + rows), "bench"), first_figure(rows), "first")


def first_figure(rows: list[dict[str, Any]]) -> str:
    """Return the sentence about `FIRST_CASE`; an empty text if it is not among the rows."""
    row = next((row for row in rows if row["case"] == FIRST_CASE), None)
    if row is None:
        return ""
    n, d = row["n"], row["d"]
    cuml = f", where cuML takes {shown(row['peers']['cuml'])}" if "cuml" in row["peers"] else ""
    link = f"([result file](bench/results/{row['file']}), case `{FIRST_CASE}`)"
    need_not = "cuML's tree [need not be exact](docs/why-exact.md)."
    return f"{n:,} points of {d} features take {shown(row['seconds'])} on an {row['device']}{cuml}\n{link}. {need_not}"


def measured(rows: list[dict[str, Any]], case: str, stage: str, on_gpu: bool = True) -> str:
    """Return the time of a case's newest result with a link to its file, and for a GPU the memory and its name.

    Of several devices the fastest counts.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    found = [
        row
        for row in rows
        if (row["case"], row["stage"]) == (case, stage)
        and row["file"].endswith("-cpu.json") != on_gpu
        and not row.get("rmm_pool")
    ]
    if not found:
        raise ValueError(f"no result file has {case}, {stage}")
    row = min(found, key=lambda row: row["seconds"])
    peak = row.get("peak_device_bytes")
    memory = f"{peak / 1e9:.1f} GB" if peak else ""
    device = row["device"].removeprefix("NVIDIA ").split()[0] if on_gpu else ""
    return ", ".join(filter(None, [f"[{shown(row['seconds'])}](bench/results/{row['file']})", memory, device]))


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table; an empty text where there are no rows."""
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


def beside_noise(rows: list[dict[str, Any]], device: str) -> str:
    """Return a Markdown table of fits of data with structure on a device, beside fits of noise of the same shape.

    Cases that were not measured there are left out, and so are those whose noise was not. The text is empty if none
    remains.
    """
    fits = {
        row["case"]: row for row in rows if (row["stage"], row["device"]) == ("fit", device) and not row.get("rmm_pool")
    }
    lines = ["| case | rows × features | time | noise | time / noise |", "|---|---|---|---|---|"]
    for case in GROUPS["structured"]:
        noise = f"gauss-{case.split('-', 1)[1]}"
        if case != noise and case in fits and noise in fits:
            both = fits[case], fits[noise]
            times = [f"[{shown(row['seconds'])}](bench/results/{row['file']})" for row in both]
            ratio = both[0]["seconds"] / both[1]["seconds"]
            lines.append("| " + " | ".join([case, "{n:,} × {d:,}".format(**both[0]), *times, f"{ratio:.1f}"]) + " |")
    return "\n".join(lines) if lines[2:] else ""


def _stage(row: dict[str, Any]) -> str:
    workers = f", {row['workers']} worker{'s' * (row['workers'] > 1)}" if row.get("workers") else ""
    return row["stage"] + workers + (", rmm pool" if row.get("rmm_pool") else "")


def _fastest_first(row: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the peers' times, then the published ones, each fastest first; older results name nothing published."""
    parts = row["peers"], row.get("references", {})
    return [item for part in parts for item in sorted(part.items(), key=lambda item: item[1])]


def shown(seconds: float) -> str:
    """Return a time as three digits and a unit."""
    value, unit = (seconds, "s") if seconds >= 1 else (1e3 * seconds, "ms")
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f} {unit}" if "e" in digits else f"{digits} {unit}"


def put_between(text: str, middle: str, name: str) -> str:
    """Return `text` with what stands between the markers of this name replaced.

    Raises
    ------
    ValueError
        If a marker is not there exactly once.
    """
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"the file must hold {start} and {end}, once each")
    before, after = text.split(start)[0], text.split(end)[1]
    return "\n".join(part for part in (before + start, middle, end + after) if part)


if __name__ == "__main__":
    sys.exit(main())

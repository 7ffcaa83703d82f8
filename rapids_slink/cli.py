"""The command line: a table in, labels out. `tables` reads the table.

::

    python -m rapids_slink points.csv --n-clusters 10 --output labels.csv
    zcat points.csv.gz | python -m rapids_slink - --output labels.csv
    python -m rapids_slink --demo
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd

import rapids_slink
from rapids_slink.datasets import EARTH_RADIUS, load_cities
from rapids_slink.hierarchy.plotting import COLORS, plot_heights
from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.metrics import ITEM_METRICS
from rapids_slink.points.output import on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import DEVICE_NAMES, Array, resolve
from rapids_slink.tables import DECIMAL_SIGNS, NAMED_SEPARATORS, NO_PYARROW, STANDARD_INPUT, read_table

TABLES = (".csv", ".parquet")
PICTURES = (".pdf", ".png", ".svg")
DEMO_PICTURE = Path("cities.png")
MOST_SIZES = 20  # the largest number of clusters that are printed
#: The options for `read_table` and for `fit`, and those that --demo takes.
TABLE_OPTIONS = ("sep", "decimal", "header", "encoding", "index_column", "columns", "exclude")
FIT_OPTIONS = (
    "n_clusters", "distance_threshold", "metric", "p", "n_neighbors", "min_samples", "device", "progress",
    "memory_limit",
)  # fmt: skip
DEMO_OPTIONS = ("demo", "device", "memory_limit", "plot", "progress")
STEP = 25.0  # km: from any city of a belt one can go to any other in steps shorter than this
BELTS = 10
COLORED = 20  # a belt of at least this many cities has a colour


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for bad data, 2 for bad usage."""
    try:
        return _main(arguments)
    finally:  # argparse exits after --help
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with _while_read(stream):
                stream.flush()


def _main(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    try:
        _run(options)
    except (ImportError, MemoryError, OSError, TypeError, ValueError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        _say(f"{parser.prog}: error: {message}", sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say(f"{parser.prog}: interrupted", sys.stderr)
        return 130
    return 0


def _say(text: str, stream: IO[str] | None) -> None:
    """Print a text, with escapes for what the stream's encoding lacks. None is a stream that is closed."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with _while_read(stream):
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


@contextmanager
def _while_read(stream: IO[str]) -> Iterator[None]:
    """Write to a stream. If its reader has gone, as ``head`` goes, the rest goes nowhere, which is no error."""
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # Python tries again at its end
        os.close(nowhere)


def _parser() -> Parser:
    parser = Parser("rapids_slink", description="Exact single-linkage clustering of a table.", allow_abbrev=False)
    points = "table of one row a point: CSV or its like, also compressed, or Parquet; - is the standard input"
    parser.add_argument("points", nargs="?", type=Path, help=points)
    parser.add_argument("--demo", action="store_true", help="cluster the world's cities instead, on a map")
    group = parser.add_argument_group("table", "How the table is read.")
    group.add_argument("--columns", metavar="NAMES", help="columns to use, separated by commas (default: all)")
    group.add_argument("--exclude", metavar="NAMES", help="columns to leave out, separated by commas")
    group.add_argument(
        "--index-column", metavar="NAMES", help="columns that name the rows, by default the first ones without a name"
    )
    group.add_argument(
        "--sep", type=_separator, help="what separates columns: a character, tab or blanks (default: found)"
    )
    group.add_argument("--decimal", choices=DECIMAL_SIGNS, metavar="SIGN", help="decimal sign: . or , (default: .)")
    group.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="whether the first row names columns (default: found)"
    )
    group.add_argument("--encoding", type=_encoding, help="of the text, such as latin-1 (default: UTF-8)")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument("--n-clusters", type=int, help="cut into this many clusters (default: 2)")
    stop.add_argument("--distance-threshold", type=float, help="cut: do not merge at or above this distance")
    parser.add_argument("--metric", default="euclidean")
    parser.add_argument("--p", type=float, default=2.0, help="exponent of --metric minkowski (default: 2)")
    parser.add_argument("--n-neighbors", type=int, help="size of the neighbour lists; does not change the result")
    parser.add_argument("--min-samples", type=int, help="cluster by mutual reachability, as hdbscan with this number")
    parser.add_argument("--device", default="auto", choices=DEVICE_NAMES)
    parser.add_argument("--memory-limit", help="bytes that may be taken, such as 8GiB (default: what is free)")
    parser.add_argument("--output", type=Path, help="write row and label here (.csv or .parquet)")
    parser.add_argument("--linkage", type=Path, help="write the linkage table here (.csv or .parquet)")
    parser.add_argument("--plot", type=Path, help="draw the dendrogram, or --demo's map, here (.png, .svg or .pdf)")
    parser.add_argument("--progress", action="store_true", help="show progress bars")
    parser.add_argument("--version", action="version", version=f"%(prog)s {rapids_slink.__version__}")
    return parser


def _separator(text: str) -> str:
    separator = NAMED_SEPARATORS.get(text, text.replace(r"\t", "\t"))
    if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in '."\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not one character, tab or blanks")
    return separator


def _encoding(text: str) -> str:
    try:
        "".encode(text)
    except LookupError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _check(parser: Parser, options: argparse.Namespace) -> None:
    """Find every mistake that can be found before any work is done."""
    if (options.points is None) != options.demo:
        parser.error("give one table of points, or --demo")
    if options.demo:
        changed = [name for name, value in vars(options).items() if value != parser.get_default(name)]
        if unused := [name for name in changed if name not in DEMO_OPTIONS]:
            parser.error(f"--demo does not take --{unused[0].replace('_', '-')}")
    if options.metric in ITEM_METRICS:
        parser.error(
            f"--metric {options.metric} takes text, and points are numbers here: use rapids_slink.fit in Python"
        )
    if options.points not in (None, STANDARD_INPUT):
        if not options.points.exists():
            parser.error(f"no such file: {options.points}")
        if options.points.is_dir():
            parser.error(f"cannot read {options.points}: it is a folder")
    for path, suffixes in ((options.output, TABLES), (options.linkage, TABLES), (options.plot, PICTURES)):
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            parser.error(f"cannot write {path}: the suffix must be one of {', '.join(suffixes)}")
        if not path.parent.is_dir():
            parser.error(f"cannot write {path}: no such folder: {path.parent}")
        if path.is_dir():
            parser.error(f"cannot write {path}: it is a folder")
    files = [p.resolve() for p in (options.points, options.output, options.linkage, options.plot) if p is not None]
    if len(set(files)) < len(files):
        parser.error("the input and the files to write must all be different")
    if any(path.suffix.lower() == ".parquet" for path in files) and not _is_installed("pyarrow"):
        parser.error(NO_PYARROW)
    if options.plot is not None and not _is_installed("matplotlib"):
        parser.error("--plot needs matplotlib: pip install 'rapids_slink[plot]'")


def _run(options: argparse.Namespace) -> None:
    if options.demo:
        _demo(options)
        return
    resolve(options.device)  # before a long file is read
    points, summary = read_table(options.points, **{name: getattr(options, name) for name in TABLE_OPTIONS})
    _say(summary, sys.stderr)
    model = rapids_slink.fit(points, **{name: getattr(options, name) for name in FIT_OPTIONS})
    labels = on_host(model.labels_)
    if options.output is not None:
        _write(_label_table(labels), options.output)
    if options.linkage is not None:
        _write(on_host(model.linkage_), options.linkage)
    if options.plot is not None:
        _draw(model, options.plot)
    _say(_summary(labels, options.output), sys.stdout)


def _demo(options: argparse.Namespace) -> None:
    cities, model = cluster_cities(options.device, options.progress, options.memory_limit)
    _say(belts_report(cities, model), sys.stdout)
    if not _is_installed("matplotlib"):
        _say("\nNo map was drawn: matplotlib is missing (pip install 'rapids_slink[plot]').", sys.stdout)
        return
    picture = options.plot or DEMO_PICTURE
    replace_file(picture, lambda draft: map_of(cities, model).savefig(draft, dpi=110))
    _say(f"\nThe map is in {picture}.", sys.stdout)


def _label_table(labels: Array) -> Any:
    """The input's index and ``label``. An index level without a name, or called "label", is ``row`` or ``level_0``."""
    index = labels.index
    names = [f"level_{i}" if name in (None, "label") else str(name) for i, name in enumerate(index.names)]
    index = index.set_names(["row"] if names == ["level_0"] else names)
    return index.to_frame(index=False).assign(label=labels.to_numpy())


def _write(table: Any, path: Path) -> None:
    writer = table.to_csv if path.suffix.lower() == ".csv" else table.to_parquet
    replace_file(path, lambda draft: writer(draft, index=False))


def _draw(model: Any, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure()
    try:
        model.plot(ax=figure.gca())
        replace_file(path, lambda draft: figure.savefig(draft, dpi=150, bbox_inches="tight"))
    finally:
        pyplot.close(figure)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _summary(labels: Array, output: Path | None) -> str:
    """How many rows each cluster has, the largest first."""
    sizes = labels.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    heading = f"{counted(len(labels), 'row')} in {counted(len(sizes), 'cluster')}"
    if output is not None:
        return f"{heading}, written to {output}"
    lines = [f"{'cluster':>10} {'size':>10}"]
    lines += [f"{label:>10} {size:>10,}" for label, size in sizes.head(MOST_SIZES).items()]
    if len(sizes) > MOST_SIZES:
        lines.append(f"... and {len(sizes) - MOST_SIZES:,} smaller ones")
    return "\n".join([f"{heading}:", *lines])


# ------------------------------------------------------------------------------------------------------ the demo


def cluster_cities(device: str = "auto", progress: bool = False, memory_limit: Any = None) -> tuple[pd.DataFrame, Any]:
    """The cities, each with its ``belt``, and the fitted model."""
    cities = load_cities()
    model = rapids_slink.fit(
        np.radians(cities[["latitude", "longitude"]]),
        distance_threshold=STEP / EARTH_RADIUS,
        metric="haversine",
        device=device,
        progress=progress,
        memory_limit=memory_limit,
    )
    return cities.assign(belt=on_host(model.labels_)), model


def largest_belts(cities: pd.DataFrame) -> pd.DataFrame:
    """The most populous belts: the largest city, the number of cities, and their population."""
    ordered = cities.sort_values("population", ascending=False)
    belts = ordered.groupby("belt").agg(
        around=("name", "first"), country=("country", "first"), cities=("name", "size"), people=("population", "sum")
    )
    return belts.nlargest(BELTS, "people")


def map_of(cities: pd.DataFrame, model: Any) -> Any:
    """The heights with the cut, and the world with the largest belts in colours, as a matplotlib Figure."""
    from matplotlib.figure import Figure

    both = Figure(figsize=(15, 5.2), layout="constrained")
    of_heights, of_world = both.subplots(1, 2, width_ratios=[1, 2.6])
    _draw_heights(model, of_heights)
    _draw_world(cities, of_world)
    return both


def _draw_heights(model: Any, ax: Any) -> None:
    linkage = on_host(model.linkage_)
    plot_heights(linkage.assign(height=linkage["height"] * EARTH_RADIUS), len(linkage) + 1, ax=ax)
    ax.axhline(STEP, color=COLORS[1], linestyle="--")
    ax.axvline(model.n_clusters_, color=COLORS[1], linestyle="--")
    clusters = f"{model.n_clusters_:,} clusters\nin steps below {STEP:g} km"
    ax.annotate(clusters, (model.n_clusters_, STEP), (-8, -10), textcoords="offset points", ha="right", va="top")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_ylabel("distance of the next merge (km)")
    ax.set_title("the heights of the merges, and the cut")


def _draw_world(cities: pd.DataFrame, ax: Any) -> None:
    sizes = cities.groupby("belt")["name"].transform("size")
    colors = np.where(sizes >= COLORED, np.take(COLORS, cities["belt"] % len(COLORS)), "#c8c8c8")
    ax.scatter(cities["longitude"], cities["latitude"], s=1.5, color=colors, linewidths=0)
    belts = [
        (f"{i} {belt.around}", cities.loc[cities["belt"] == belt.Index, ["longitude", "latitude"]])
        for i, belt in enumerate(largest_belts(cities).itertuples(), start=1)
    ]
    for i, (text, places) in enumerate(sorted(belts, key=lambda belt: belt[1]["longitude"].mean())):
        color, above = COLORS[i % len(COLORS)], i % 2 == 0  # neighbours in turn
        ax.scatter(*places.to_numpy().T, s=4, color=color, linewidths=0)
        ax.annotate(
            text,
            places.mean(),
            (0, 45 if above else -45),
            textcoords="offset points",
            ha="center",
            va="center",
            color=color,
            weight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},  # over other places
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8},
        )
    ax.set(xlim=(-170, 180), ylim=(-58, 80), xlabel="longitude", ylabel="latitude", aspect=1.25)
    ax.set_title(f"belts of {COLORED} cities and more; the {BELTS} most populous, each named for its largest city")


def belts_report(cities: pd.DataFrame, model: Any) -> str:
    """The belts and what the run proved, as text."""
    belts = largest_belts(cities).reset_index(drop=True)
    belts.index += 1
    belts["people"] = (belts["people"] / 1e6).map("{:.1f} million".format)
    return (
        f"{len(cities):,} cities of the world (GeoNames, CC BY 4.0), clustered by great-circle distance: "
        f"{model.n_clusters_:,} clusters\nin which one can go from any city to any other in steps below {STEP:g} km. "
        f"The {BELTS} most populous:\n\n{belts.to_string()}\n\n"
        f"What was proven, and how long each stage took (seconds):\n{model.report_}"
    )

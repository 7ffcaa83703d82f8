"""The command line: a table in, labels out; or files in, files without near duplicates out.

`tables` reads a table, and `files` removes near duplicates. Here is also the check of ``rapids doctor``.

::

    python -m rapids_slink points.csv --n-clusters 10 --output labels.csv
    python -m rapids_slink points.csv --hdbscan --min-cluster-size 15 --output labels.csv
    zcat points.csv.gz | python -m rapids_slink - --output labels.csv
    python -m rapids_slink points.csv --columns x,y --output - | head
    python -m rapids_slink deduplicate embeddings/ --column embedding --max-distance 0.1 --output kept/
    python -m rapids_slink --demo
"""

import argparse
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd

import rapids_slink
from rapids_slink.datasets import EARTH_RADIUS, load_cities
from rapids_slink.dendrogram.cutting import WIDEST_GAP
from rapids_slink.duplicates import RULES
from rapids_slink.hdbscan import METHODS
from rapids_slink.hierarchy.plotting import COLORS
from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.metrics import ITEM_METRICS, METRICS, PRECOMPUTED
from rapids_slink.parquet import NO_PYARROW
from rapids_slink.points.narrow import NARROW
from rapids_slink.points.output import on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import DEVICE_NAMES, resolve
from rapids_slink.settings import MISSING
from rapids_slink.tables import (
    DECIMAL_SIGNS,
    EMPTY_TEXT,
    NAMED_SEPARATORS,
    STANDARD_INPUT,
    Table,
    read_table,
    split_names,
)

TABLES = (".csv", ".parquet")
STANDARD_OUTPUT = Path("-")
DEDUPLICATE = "deduplicate"  # the first argument if files are cleaned of near duplicates
PICTURES = (".pdf", ".png", ".svg")
DEMO_PICTURE = Path("cities.png")
MOST_SIZES = 20  # the largest number of clusters that are printed
#: The options that `read_table`, both models, `SingleLinkage`, a cut, `HDBSCAN` and --demo take.
TABLE_OPTIONS = ("sep", "decimal", "header", "encoding", "index_column", "columns", "exclude", "groups", "empty_text")
FIT_OPTIONS = ("metric", "p", "n_neighbors", "min_samples", "device", "progress", "memory_limit")
LINKAGE_OPTIONS = ("missing", "missing_value", "max_distance", "min_similarity")
CUT_OPTIONS = ("n_clusters", "distance_threshold", "count_large", "groups", *LINKAGE_OPTIONS)
HDBSCAN_OPTIONS = ("cluster_selection_method", "cluster_selection_epsilon", "allow_single_cluster")
DEMO_OPTIONS = ("demo", "device", "memory_limit", "plot", "progress")
PROBABILITY = "probability"  # the column beside HDBSCAN's labels
STEP = 25.0  # km: from any city of a belt one can go to any other in steps shorter than this
BELTS = 10
COLORED = 20  # a belt of at least this many cities has a colour


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line that says the error, with the option that was probably meant."""
        _, is_unknown, names = message.partition("unrecognized arguments: ")
        if is_unknown and names.startswith("--"):
            unknown = names.partition(" ")[0].partition("=")[0]
            near = get_close_matches(unknown, self._option_string_actions, n=1, cutoff=0.7)
            message += f". Did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 for bad data, 130 after Ctrl-C. Bad usage exits with 2."""
    try:
        return _main(arguments)
    finally:  # argparse exits after --help
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with _while_read(stream):
                stream.flush()


def _main(arguments: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    run: Callable[[argparse.Namespace], None]
    if arguments[:1] == [DEDUPLICATE]:
        parser, run = _deduplicate_parser(), _deduplicate
        options = parser.parse_args(arguments[1:])
    else:
        parser, run = _parser(), _run
        options = parser.parse_args(arguments)
        _check(parser, options)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_, **__: _say(f"{parser.prog}: warning: {text}", sys.stderr)
            run(options)
    except (ImportError, MemoryError, OSError, TypeError, ValueError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        _say(f"{parser.prog}: error: {message}", sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say(f"{parser.prog}: interrupted", sys.stderr)
        return 130
    return 0


def _say(text: str, stream: IO[str] | None) -> None:
    """Print a text, with escapes for what the stream's encoding lacks; print nothing if the stream is None, closed."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with _while_read(stream):
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


@contextmanager
def _while_read(stream: IO[str]) -> Iterator[None]:
    """Let a block write to a stream; if its reader has gone, as ``head`` goes, the rest is silently dropped."""
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
    parser.epilog = f"'{parser.prog} {DEDUPLICATE} --help' is about near duplicates in Parquet files."
    parser.add_argument("--demo", action="store_true", help="cluster the world's cities instead, on a map")
    group = parser.add_argument_group("table", "How the table is read.")
    group.add_argument(
        "--columns", metavar="NAMES",
        help="columns to use, separated by commas; '*' is all (default: all, if none of them seems to name the rows)",
    )  # fmt: skip
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
    group.add_argument("--groups", metavar="NAMES", help="columns whose values are groups, each clustered by itself")
    group.add_argument(
        "--empty-text", choices=EMPTY_TEXT, default="refuse",
        help="of a metric of text, rows with an empty cell or what means nothing, such as NA: refuse the table, keep "
        "them as text, or drop them (default: refuse)",
    )  # fmt: skip
    group.add_argument(
        "--degrees", action="store_true",
        help="of --metric haversine: latitude and longitude are in degrees, and all distances in kilometres",
    )  # fmt: skip
    _add_clusters(parser)
    group = parser.add_argument_group("run")
    group.add_argument("--n-neighbors", type=int, help="size of the neighbour lists; does not change the result")
    _add_run(group)
    group = parser.add_argument_group("results")
    group.add_argument(
        "--output", type=Path,
        help="write the table with a column of labels here (.csv or .parquet); - is the standard output, as CSV",
    )  # fmt: skip
    group.add_argument("--label", metavar="NAME", default="label", help="what this column is called (default: label)")
    group.add_argument("--labels-only", action="store_true", help="write no column of the table beside the labels")
    group.add_argument("--linkage", type=Path, help="write the linkage table here (.csv or .parquet)")
    group.add_argument("--plot", type=Path, help="draw the dendrogram, or --demo's map, here (.png, .svg or .pdf)")
    parser.add_argument("--version", action="version", version=f"%(prog)s {rapids_slink.__version__}")
    return parser


def _add_run(group: argparse._ArgumentGroup) -> None:
    """Add the options of every run."""
    group.add_argument("--device", default="auto", choices=DEVICE_NAMES, help="(default: auto, a GPU if there is one)")
    group.add_argument("--memory-limit", help="bytes that may be taken, such as 8GiB (default: what is free)")
    bars = "show progress bars (default: on a terminal, in a run of more than ten seconds)"
    group.add_argument("--progress", action="store_true", default="auto", help=bars)


def _deduplicate_parser() -> Parser:
    """Return the parser of the options of `deduplicate_files`, by the names of its parameters."""
    what = "Remove near duplicates from Parquet files, exactly, however many rows they have."
    parser = Parser(f"rapids_slink {DEDUPLICATE}", description=what, allow_abbrev=False)
    parser.add_argument("paths", nargs="+", metavar="IN", help="Parquet files, and folders of them")
    parser.add_argument("--output", metavar="DIR", required=True, help="folder of the files without near duplicates")
    parser.add_argument(
        "--column", metavar="NAMES", type=split_names, help="the column of lists, or columns of numbers"
    )
    parser.add_argument(
        "--dtype", choices=NARROW, help="what the bits of integers or bytes stand for: Parquet has none"
    )
    near = parser.add_mutually_exclusive_group(required=True)
    near.add_argument("--max-distance", type=float, help="the largest distance of near rows")
    near.add_argument("--min-similarity", type=float, help="the same by a similarity: cosine, jaccard, dice")
    parser.add_argument("--metric", default="euclidean", help="(default: euclidean)")
    parser.add_argument(
        "--keep", default="first", help="first, last, or a column whose larger number stays (default: first)"
    )
    parser.add_argument(
        "--by", choices=RULES, help=f"the rule by which rows go (default: {RULES[0]}, or none with --against)"
    )
    parser.add_argument("--against", nargs="+", metavar="FILES", help="first, what is near a row of these files goes")
    parser.add_argument("--groups", metavar="NAME", help="only rows of one value of this column are duplicates")
    parser.add_argument("--rows", action="store_true", help="write the rows that go and why, not those that stay")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and say what time and memory it takes")
    _add_run(parser.add_argument_group("run"))
    return parser


def _deduplicate(options: argparse.Namespace) -> None:
    _say(str(rapids_slink.deduplicate_files(**vars(options))), sys.stdout)


def _add_clusters(parser: Parser) -> None:
    """Add to the parser the options that say what a cluster is."""
    group = parser.add_argument_group("clusters")
    stop = group.add_mutually_exclusive_group()
    stop.add_argument(
        "--n-clusters",
        metavar="NUMBERS",
        type=_numbers(int, WIDEST_GAP),
        help=f"cut into this many clusters, or 2,5,10, or {WIDEST_GAP}, between large clusters (default: 2)",
    )
    stop.add_argument(
        "--distance-threshold", metavar="DISTANCES", type=_numbers(float),
        help="cut: do not merge at or above this distance, or 0.1,0.5",
    )  # fmt: skip
    group.add_argument(
        "--min-cluster-size", metavar="ROWS", type=int,
        help="clusters of fewer rows become noise, label -1, after the cut of the tree, which counts them, too "
        "(default: 1); with --hdbscan the least rows by which a part of the tree is a cluster (default: 5)",
    )  # fmt: skip
    group.add_argument(
        "--max-cluster-size", metavar="ROWS", type=int,
        help="split clusters of more rows as the tree splits them, until none has more; with --hdbscan do not choose "
        "larger ones",
    )  # fmt: skip
    group.add_argument(
        "--count-large", action="store_true", help="--n-clusters are of at least --min-cluster-size rows"
    )
    names = [
        name if not metric.aliases else f"{name} ({', '.join(metric.aliases)})" for name, metric in METRICS.items()
    ]
    names += [f"{name} (of one column of text)" for name in ITEM_METRICS]
    metrics = ", ".join([*names, f"or {PRECOMPUTED.name}: the table is a matrix of distances"])
    group.add_argument("--metric", default="euclidean", help=f"{metrics} (default: euclidean)")
    group.add_argument("--p", type=float, default=2.0, help="exponent of --metric minkowski (default: 2)")
    group.add_argument(
        "--missing", choices=MISSING, help="how rows with missing values are compared (default: they are refused)"
    )
    group.add_argument(
        "--missing-value", metavar="VALUES", type=split_names, help="what means missing, such as 0,- or '<=0'"
    )
    group.add_argument("--max-distance", type=float, help="merge up to this distance only, which takes less time")
    group.add_argument("--min-similarity", type=float, help="the same by a similarity: jaccard, dice, cosine")
    group.add_argument("--min-samples", type=int, help="cluster by mutual reachability, as hdbscan with this number")
    group = parser.add_argument_group("HDBSCAN", "Clusters of any density, and noise, in place of a cut.")
    group.add_argument("--hdbscan", action="store_true", help="choose the clusters as HDBSCAN does")
    group.add_argument("--cluster-selection-method", choices=METHODS, default="eom", help="(default: eom)")
    group.add_argument(
        "--cluster-selection-epsilon", metavar="DISTANCE", type=float, default=0.0,
        help="do not split clusters below this distance",
    )  # fmt: skip
    group.add_argument("--allow-single-cluster", action="store_true", help="all rows may be one cluster")


def _numbers(kind: type[int] | type[float], word: str | None = None) -> Callable[[str], list[Any]]:
    """Return a function that reads comma-separated numbers, each once; it also accepts `word` in place of them."""

    def read(text: str) -> list[Any]:
        if text == word:
            return [text]
        try:
            return list(dict.fromkeys(map(kind, text.split(","))))
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid {kind.__name__} value: {text!r}") from None

    return read


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
    """End with an error if the options have a mistake that can be found before any work is done."""
    if (options.points is None) != options.demo:
        parser.error("give one table of points, or --demo")
    changed = [name for name, value in vars(options).items() if value != parser.get_default(name)]
    is_split = options.max_cluster_size is not None and not options.hdbscan
    for is_asked, what, refused in (
        (options.demo, "--demo", {*changed} - {*DEMO_OPTIONS}),
        (options.hdbscan, "--hdbscan", CUT_OPTIONS),
        (not options.hdbscan, "a cut, without --hdbscan,", HDBSCAN_OPTIONS),
        (is_split, "--max-cluster-size", ("n_clusters",)),
        (options.metric not in ITEM_METRICS, f"--metric {options.metric}", ("empty_text",)),
        (options.metric != "haversine", f"--metric {options.metric}", ("degrees",)),
        (options.plot is not None, "--plot, which draws one tree,", ("groups", *LINKAGE_OPTIONS[-2:])),
    ):
        if is_asked and (names := [name for name in changed if name in refused]):
            parser.error(f"{what} does not take --{names[0].replace('_', '-')}")
    if options.points not in (None, STANDARD_INPUT):
        if not options.points.exists():
            parser.error(f"no such file: {options.points}")
        if options.points.is_dir():
            parser.error(f"cannot read {options.points}: it is a folder")
    for path, suffixes in ((options.output, TABLES), (options.linkage, TABLES), (options.plot, PICTURES)):
        if path is None or (path == STANDARD_OUTPUT and path is options.output):
            continue
        if path.suffix.lower() not in suffixes:
            parser.error(f"cannot write {path}: the suffix must be one of {', '.join(suffixes)}")
        if not path.parent.is_dir():
            parser.error(f"cannot write {path}: no such folder: {path.parent}")
        if path.is_dir():
            parser.error(f"cannot write {path}: it is a folder")
    output = None if options.output == STANDARD_OUTPUT else options.output
    if options.output == STANDARD_OUTPUT and sys.stdout is None:
        parser.error("cannot write to the standard output: it is closed")
    files = [p.resolve() for p in (options.points, output, options.linkage, options.plot) if p is not None]
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
    categories = options.metric == "hamming"
    is_text = categories or options.missing_value is not None  # then the fit refuses what is wrong
    how = {name: getattr(options, name) for name in TABLE_OPTIONS}
    how |= {"text": is_text, "categories": categories, "as_written": options.metric in ITEM_METRICS}
    table = read_table(options.points, **how)
    _say(table.summary, sys.stderr)
    if options.degrees:
        table = table._replace(points=_in_radians(table.points))
    columns = table.frame.iloc[:, :0] if options.labels_only else table.frame
    if options.output is not None:
        _check_names(columns, _label_names(options))
    model, labels = (_hdbscan if options.hdbscan else _single_linkage)(table, options)
    if options.output is not None:
        _write(_with_labels(columns, labels), options.output)
    if options.linkage is not None:
        linkage = on_host(model.linkage_)
        _write(linkage.assign(height=linkage["height"] * _unit(options)), options.linkage)
    if options.plot is not None:
        _draw(model, options.plot)
    summary = _summary(labels.iloc[:, :1] if options.hdbscan else labels, options.output)
    _say(summary, sys.stderr if options.output == STANDARD_OUTPUT else sys.stdout)


def _unit(options: argparse.Namespace) -> float:
    """Return the factor from a distance of the fit to one of the options and the results: km with --degrees."""
    return EARTH_RADIUS if options.degrees else 1.0


def _in_radians(points: pd.DataFrame) -> pd.DataFrame:
    """Return latitudes and longitudes in radians, from degrees; raise ValueError unless the latitude is first."""
    latitude = points.iloc[:, 0]
    if str(points.columns[0]).lower().startswith(("lon", "lng")) or (latitude.abs() > 90).any():
        row = int(latitude.abs().argmax())
        raise ValueError(
            f"--degrees takes the latitude first, from -90 to 90, and column {str(latitude.name)!r} has "
            f"{latitude.iloc[row]:g} in row {row}: name the columns in their order (--columns)"
        )
    return pd.DataFrame(np.radians(points))


def _cut_of(options: argparse.Namespace, unit: float = 1.0) -> dict[str, Any]:
    """Return the parameters of `cut`, with distances in a unit; the first one is a list of values."""
    if options.n_clusters is not None:
        return {"n_clusters": options.n_clusters}
    if options.distance_threshold is not None:
        return {"distance_threshold": [distance / unit for distance in options.distance_threshold]}
    if options.min_similarity is not None:
        return {"min_similarity": [options.min_similarity], "closed": "right"}
    if options.max_distance is not None:
        return {"distance_threshold": [options.max_distance / unit], "closed": "right"}
    if options.max_cluster_size is not None:
        return {"distance_threshold": [inf]}  # all of the tree, which is then split
    return {"n_clusters": [2]}


def _label_names(options: argparse.Namespace) -> list[str]:
    """Return the names of the columns that the output has besides the table's."""
    if options.hdbscan:
        return [options.label, PROBABILITY]
    values = next(iter(_cut_of(options).values()))
    return [options.label] if len(values) == 1 else [f"{options.label}_{value:.15g}" for value in values]


def _points_of(table: Table, metric: str) -> Any:
    """Return the rows of numbers, or the one column of strings if the metric compares strings."""
    if metric not in ITEM_METRICS:
        return table.points
    if table.points.shape[1] > 1:
        raise ValueError(f"--metric {metric} takes one column of text, and there are more: name it by --columns")
    return table.points.iloc[:, 0]


def _single_linkage(table: Table, options: argparse.Namespace) -> tuple[Any, pd.DataFrame]:
    """Fit a model to the table; return it and a frame of labels with a column for each cut."""
    parameters = {name: getattr(options, name) for name in (*FIT_OPTIONS, *LINKAGE_OPTIONS)}
    if options.max_distance is not None:
        parameters["max_distance"] /= _unit(options)
    sizes = {"max_cluster_size": options.max_cluster_size, "count_small": not options.count_large}
    cut, sizes["min_cluster_size"] = _cut_of(options, _unit(options)), options.min_cluster_size
    name, values = next(iter(cut.items()))
    first = {} if "closed" in cut else {name: values[0]}  # the clusters within the largest distance are those of a fit
    how = {**first, **sizes, **parameters, "groups": table.groups}
    model = rapids_slink.fit(_points_of(table, options.metric), **how)
    one = len(values) == 1  # no tree need be made
    labels = on_host(model.labels_).to_frame() if one else on_host(model.cut(**cut, **sizes))
    return model, labels.set_axis(_label_names(options), axis=1)


def _hdbscan(table: Table, options: argparse.Namespace) -> tuple[Any, pd.DataFrame]:
    """Fit `HDBSCAN` to the table; return it and a frame of its labels and probabilities."""
    parameters = {name: getattr(options, name) for name in (*FIT_OPTIONS, *HDBSCAN_OPTIONS, "max_cluster_size")}
    parameters["cluster_selection_epsilon"] /= _unit(options)
    size = {} if options.min_cluster_size is None else {"min_cluster_size": options.min_cluster_size}
    model = rapids_slink.HDBSCAN(**size, **parameters).fit(_points_of(table, options.metric))
    columns = [on_host(model.labels_), on_host(model.probabilities_)]
    return model, pd.concat(columns, axis=1).set_axis(_label_names(options), axis=1)


def _demo(options: argparse.Namespace) -> None:
    cities, model = cluster_cities(options.device, options.progress, options.memory_limit)
    _say(belts_report(cities, model), sys.stdout)
    if not _is_installed("matplotlib"):
        _say("\nNo map was drawn: matplotlib is missing (pip install 'rapids_slink[plot]').", sys.stdout)
        return
    picture = options.plot or DEMO_PICTURE
    replace_file(picture, lambda draft: map_of(cities, model).savefig(draft, dpi=110))
    _say(f"\nThe map is in the file {picture.resolve()}.", sys.stdout)


def _check_names(frame: pd.DataFrame, labels: list[str]) -> None:
    """Raise ValueError, before any work is done, if the output would have two columns of one name."""
    names = [*_index_names(frame.index), *map(str, frame), *labels]
    for name in (name for i, name in enumerate(names) if name in names[:i]):
        raise ValueError(
            f"the output would have two columns {name!r}: name the labels otherwise (--label), or say --labels-only"
        )


def _index_names(index: pd.Index) -> list[str]:
    """Return the names of an index's columns; one without a name, or called "label", is "row", or "level_i" of many."""
    names = [f"level_{i}" if name in (None, "label") else str(name) for i, name in enumerate(index.names)]
    return ["row"] if names == ["level_0"] else names


def _with_labels(frame: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    """Return one frame of a table's index, columns and labels."""
    index = frame.index.set_names(_index_names(frame.index)).to_frame(index=False)
    parts = [part.reset_index(drop=True) for part in (index, frame.set_axis(list(map(str, frame)), axis=1), labels)]
    return pd.concat(parts, axis=1)


def _write(table: Any, path: Path) -> None:
    if path == STANDARD_OUTPUT:
        with _while_read(sys.stdout):
            table.to_csv(sys.stdout.buffer, mode="wb", index=False, encoding="utf-8")
        return
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


def _summary(labels: pd.DataFrame, output: Path | None) -> str:
    """Return as text how many clusters each cut has; without output also the sizes of a single cut's clusters."""
    lines = []
    for name, column in labels.items():
        sizes = column[column >= 0].value_counts().sort_index().sort_values(ascending=False, kind="stable")
        noise = len(column) - sizes.sum()
        text = f"{counted(len(column), 'row')} in {counted(len(sizes), 'cluster')}"
        lines.append(text + (f", {counted(noise, 'row')} of noise" if noise else ""))
        if labels.shape[1] > 1:
            lines[-1] = f"{name}: {lines[-1]}"
    if output is not None:
        return "\n".join(lines) + f", written to {'the standard output' if output == STANDARD_OUTPUT else output}"
    if labels.shape[1] > 1:
        return "\n".join(lines)
    lines = [f"{lines[0]}:", f"{'cluster':>10} {'size':>10}"]
    lines += [f"{label:>10} {size:>10,}" for label, size in sizes.head(MOST_SIZES).items()]
    if len(sizes) > MOST_SIZES:
        lines.append(f"... and {len(sizes) - MOST_SIZES:,} smaller ones")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------ the demo


def cluster_cities(
    device: str = "auto", progress: bool | str = "auto", memory_limit: Any = None
) -> tuple[pd.DataFrame, Any]:
    """Cluster the world's cities; return them, each with its ``belt``, and the fitted model."""
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
    """Return the most populous belts: the largest city of each, its country, and the number of cities and people."""
    ordered = cities.sort_values("population", ascending=False)
    belts = ordered.groupby("belt").agg(
        around=("name", "first"), country=("country", "first"), cities=("name", "size"), people=("population", "sum")
    )
    return belts.nlargest(BELTS, "people")


def map_of(cities: pd.DataFrame, model: Any) -> Any:
    """Return a matplotlib Figure of the heights with the cut, and of the world with the largest belts in colours."""
    from matplotlib.figure import Figure

    both = Figure(figsize=(15, 5.7), layout="constrained")
    ax, world_ax = both.subplots(1, 2, width_ratios=[1, 2.6])
    _draw_world(cities, world_ax)
    model.plot_heights(ax).get_legend().remove()
    ax.axhline(STEP, color=COLORS[1], linestyle="--")
    clusters = f"{model.n_clusters_:,} clusters\nin steps below {STEP:g} km"
    ax.annotate(clusters, (model.n_clusters_, STEP), (-8, -10), textcoords="offset points", ha="right", va="top")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_title("the heights of the merges, and the cut")
    return both


def _draw_world(cities: pd.DataFrame, ax: Any) -> None:
    from matplotlib.patheffects import withStroke

    sizes = cities.groupby("belt")["name"].transform("size")
    colors = np.where(sizes >= COLORED, np.take(COLORS, cities["belt"] % len(COLORS)), "#c8c8c8")
    ax.scatter(cities["longitude"], cities["latitude"], s=1.5, color=colors, linewidths=0)
    for i, belt in enumerate(largest_belts(cities).itertuples(), start=1):
        color, places = COLORS[i % len(COLORS)], cities.loc[cities["belt"] == belt.Index, ["longitude", "latitude"]]
        ax.scatter(*places.to_numpy().T, s=4, color=color, linewidths=0, label=f"{i} {belt.around}")
        north = places["longitude"].mean(), places["latitude"].max()
        number = ax.annotate(str(i), north, ha="center", va="bottom", color=color, weight="bold")
        number.set_path_effects([withStroke(linewidth=2.5, foreground="white")])  # over other places
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=BELTS // 2, markerscale=3, handletextpad=0.2)
    ax.set(xlim=(-170, 180), ylim=(-58, 80), xlabel="longitude", ylabel="latitude", aspect=1.25)
    ax.set_title(f"belts of {COLORED} cities and more; the {BELTS} most populous, each named for its largest city")


def belts_report(cities: pd.DataFrame, model: Any) -> str:
    """Return the largest belts and the run's report as text."""
    belts = largest_belts(cities).reset_index(drop=True)
    belts.index += 1
    belts["people"] = (belts["people"] / 1e6).map("{:.1f} million".format)
    return (
        f"{len(cities):,} cities of the world (GeoNames, CC BY 4.0), clustered by great-circle distance: "
        f"{model.n_clusters_:,} clusters\nin which one can go from any city to any other in steps below {STEP:g} km. "
        f"The {BELTS} most populous:\n\n{belts.to_string()}\n\n"
        f"What was proven, and how long each stage took (seconds):\n{model.report_}"
    )


def check(verbose: bool = False, **kwargs: Any) -> str:
    """Check that the heights of a hierarchy made on the GPU are those of the CPU, to the last bit.

    ``rapids doctor``, of rapids-cli, runs this check: its entry point is in pyproject.toml.

    Parameters
    ----------
    verbose : bool
        Ignored, as are all further parameters: later versions of rapids-cli may pass more.
    **kwargs
        Ignored.

    Returns
    -------
    str
        What was compared.

    Raises
    ------
    DeviceUnavailableError
        There is no GPU with CuPy and cuDF.
    RuntimeError
        The heights differ.
    """
    from rapids_slink.api import fit

    rows = np.random.default_rng(0).standard_normal((5000, 16))
    on_gpu, on_cpu = (fit(rows, n_clusters=1, device=device).to_scipy()[:, 2] for device in ("cuda", "cpu"))
    if not np.array_equal(on_gpu, on_cpu):
        raise RuntimeError(f"the GPU's and the CPU's heights differ in {np.count_nonzero(on_gpu != on_cpu)} merges")
    return f"the heights of {len(on_gpu):,} merges are the CPU's to the last bit"

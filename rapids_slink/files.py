"""Near duplicates of Parquet files, whose rows need not fit into memory.

    files ──▶ pieces ──▶ blocks of near rows ──▶ components of each ──▶ packs of components ──▶ a rule ──▶ files

First the rows go that are near a row of another table, whose files follow these. Two near rows are always in one
component, so the components of the other rows are found next: `deduplicate` finds those of each block with the rows
that visit it, and a union-find puts them together. A rule by pairs then takes packs of whole components. Most
components have few rows. One that is larger than memory is taken in chunks, by rank: a row of a later chunk goes to the
nearest row that may remove it, among the earlier chunks and its own.

Each result is saved beside the output as soon as it is found, in a file that gets its name last. So a file that exists
is whole, and a run that ended early goes on after the last whole file. The result depends on none of this.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from rapids_slink.duplicates import MEANINGS, deduplicate, order_of, rule_of
from rapids_slink.forced import forced
from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.metrics import PRECOMPUTED, Metric, MetricName, surrogate_bound
from rapids_slink.neighbors.choose import block_rows, is_searched_by_tree
from rapids_slink.neighbors.pivots import radius_of
from rapids_slink.neighbors.tiles import IN_ORDER, estimate_tiles
from rapids_slink.neighbors.within import PairTask
from rapids_slink.parquet import (
    KEYS,
    Blocks,
    Pieces,
    Search,
    VectorFiles,
    blocks_of_piece,
    boot,
    on_all_cores,
    pivots_of_pieces,
    save,
    saved,
)
from rapids_slink.pipeline import estimate_fit
from rapids_slink.points.check import MAX_ROWS
from rapids_slink.report import Report, with_hints
from rapids_slink.runtime.device import CPU, Device, resolve
from rapids_slink.runtime.memory import (
    MemoryEstimate,
    as_bytes,
    free_on,
    required_bytes,
    run_scope,
    size_text,
)
from rapids_slink.runtime.threads import Progress, shown_progress, with_progress
from rapids_slink.settings import Settings, metric_of
from rapids_slink.single_linkage import engine_of
from rapids_slink.spanning_tree import Problem, kernels
from rapids_slink.stages import limit_of, require_one, task_of

#: The folder beside the output files in which an unfinished run keeps what it has found.
UNFINISHED = ".unfinished"
#: Without a `memory_limit` a search takes at most these bytes, by device, and at most this share of what is free.
MOST_BYTES, SHARE = {"cpu": 16 * 10**9, "cuda": 30 * 10**9}, 0.8
#: The number of rows of a dry run's sample, by device, and the number of positions in the files that they come from.
SAMPLE = {"cpu": 2**14, "cuda": 2**18}
SAMPLED_PLACES = 16
#: While files are written, at most these bytes are in memory: about this number of row groups of each file.
WRITTEN_BYTES, GROUPS_WRITTEN = 8 * 10**9, 4


@with_hints(MEANINGS | {"columns": "column", "features": "column"})
def deduplicate_files(
    paths: Any,
    output: str | PathLike[str],
    *,
    column: Any = None,
    dtype: str | None = None,
    max_distance: float | None = None,
    min_similarity: float | None = None,
    keep: str = "first",
    by: str | None = None,
    against: Any = None,
    groups: str | None = None,
    metric: MetricName = "euclidean",
    p: float = 2.0,
    rows: bool = False,
    dry_run: bool = False,
    device: str = "auto",
    progress: bool | str = "auto",
    memory_limit: int | str | None = None,
) -> Report:
    """Find the near duplicates among the rows of Parquet files, and write similar files without them.

    The rows that stay are those of `deduplicate` for all rows in one array, whatever fits into memory.

    Parameters
    ----------
    paths : path or list of paths
        Parquet files and folders. A folder stands for its ``*.parquet`` files in the order of their names. In all files
        the vectors have the same columns, the same type and the same length.
    output : path
        The folder of the results, with a file for each input file, by its name. The folder is made if it does not
        exist. If the run ends early, a folder ``.unfinished`` is left in it, and the same call continues the run.
    column : str or list of str
        The column of the vectors, whose entries are lists of one length, or several columns of numbers. By default the
        only column of lists. The values are float16, float32, float64, int8 or other numbers.
    dtype : {"bfloat16", "float8_e4m3fn", "float8_e5m2"}, optional
        The type that the stored bits stand for, since Parquet has no such types. The vectors are lists or columns of
        uint16, or of uint8 for float8; or each is a string of bytes, of a fixed length.
    max_distance, min_similarity : float
        See `deduplicate`.
    keep : {"first", "last"} or column name
        Which rows rank first; see `deduplicate`. Rows are in the order of the files.
    by : {"components", "ranked", "leaders"}
        The rule by which rows go; see `deduplicate`.
    against : path or list of paths, optional
        Files of another table, with the same columns of vectors; see `deduplicate`.
    groups : column name, optional
        Only rows with one value in this column are duplicates of each other. Not with `against`.
    metric, p : optional
        See `SingleLinkage`, except "precomputed".
    rows : bool
        Write the rows that go, in place of those that stay: ``file`` and ``row``, ``kept_file`` and ``kept_row`` of the
        row that each duplicates, and their ``distance``. Rows are numbered from 0 in each file, int64.
    dry_run : bool
        Write nothing. A sample is read and searched, and the report estimates the run's time and memory as if all pairs
        of rows were compared.
    device, progress : optional
        See `SingleLinkage`. If there is a Dask client, its workers search, and they must see the files at these paths.
    memory_limit : int or str, optional
        The most bytes that a search takes. By default 30 GB on a GPU and 16 GB on a CPU, or 80 % of the free memory if
        that is less.

    Returns
    -------
    Report
        The seconds of each stage. ``report["rows"]`` has the numbers of rows ``kept`` and ``removed``, and
        ``largest_group``; see `Duplicates`. A dry run has bytes in ``report["memory"]`` and ``report["disk"]``, and
        minutes in ``report["time"]["about_minutes"]``.

    Raises
    ------
    ValueError, TypeError
        A file or a parameter is not valid; the message names the file and the row. Or the output folder has a file of
        the same name, or an unfinished run of other files or parameters. Then no file of the output is written.
    OSError
        A file does not exist, or the disk is full.

    Notes
    -----
    The vectors are decoded once into pieces on the disk of the output, where they take their bytes until the run ends.
    If the rows are too many for one search, and the metric is euclidean, sqeuclidean or cosine, they are dealt out to
    blocks around pivots. A block is searched together with the rows of later blocks that may be near one of its rows:
    few, if the rows have structure. Otherwise all rows meet, and the time grows with the square of their number.

    Examples
    --------
    >>> import rapids_slink
    >>> report = rapids_slink.deduplicate_files(
    ...     "embeddings/", "kept/", column="embedding", max_distance=0.1, keep="score"
    ... )  # doctest: +SKIP
    """
    require_one(max_distance, min_similarity)
    by = rule_of(by, against, groups)
    if metric == PRECOMPUTED.name:
        raise ValueError("metric='precomputed' has no vectors: use deduplicate")
    chosen, device_of_run = metric_of(metric, p), resolve(device)
    distance = limit_of(chosen, max_distance, min_similarity)
    files = VectorFiles.of(paths, column, chosen.formula.is_of_unit_rows, dtype, against)
    limit, name = _bytes_of_search(memory_limit, device_of_run), device_of_run.name
    how = {
        "max_distance": max_distance, "min_similarity": min_similarity, "metric": metric, "p": p, "device": name,
        "memory_limit": limit,
    }  # fmt: skip
    settings = Settings(chosen, name, max_distance=distance)
    max_rows = forced().file_rows or _rows_of_search(files, settings, device_of_run, limit)
    report = Report(device=name, metric=metric)
    if dry_run:
        return _estimated(files, report, how, by, max_rows)
    run = _Run(files, Path(output), keep, by, groups, bool(rows), how, max_rows, shown_progress(progress), report)
    order, keys = _order(files, keep), None if groups is None else files.keys(groups)
    run.open()
    if run.counts is None:
        run.search(chosen, order, keys)
    run.close()
    return report


def _order(files: VectorFiles, keep: str) -> np.ndarray:
    """Return the rows by rank, (n,) int64."""
    if keep in ("first", "last"):
        return np.arange(files.n_cleaned)[:: 1 if keep == "first" else -1]
    return order_of(files.column(keep))


def _bytes_of_search(memory_limit: Any, device: Device) -> int:
    """Return how many bytes a search may take."""
    if memory_limit is not None:
        return int(as_bytes(memory_limit) or 0)
    free = free_on(device)
    return MOST_BYTES[device.name] if free is None else int(min(MOST_BYTES[device.name], SHARE * free))


def _rows_of_search(files: VectorFiles, settings: Settings, device: Device, limit: int) -> int:
    """Return how many rows are searched together: as many as fit into `limit` bytes, with a search in tiles."""
    stored, d, metric = files.dtype.itemsize, files.width, settings.metric
    itemsize = 1 if metric.rows.are_packed else 4 if stored < 4 or files.dtype == np.float32 else 8

    def fits(n: int) -> bool:
        copies = MemoryEstimate((stored + itemsize) * d * n)
        needed = required_bytes(device, copies + estimate_fit(Problem(settings, device, n, d, itemsize)))
        if metric.filter == "product" and not is_searched_by_tree(n, d, metric, device):
            needed += estimate_tiles(n, n, d, IN_ORDER, itemsize, device, metric).least
        return needed <= limit

    if not fits(2):
        raise ValueError(f"memory_limit of {size_text(limit)} holds no search of rows of {d:,} values")
    low, high = 2, MAX_ROWS
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class _Run:
    """A run: its plan, which a manifest keeps, and what it has found so far, in files."""

    def __init__(
        self, files: VectorFiles, output: Path, keep: str, by: str | None, groups: str | None, as_rows: bool,
        how: dict[str, Any], max_rows: int, progress: bool | str, report: Report,
    ) -> None:  # fmt: skip
        self.files, self.output, self.keep, self.by, self.as_rows = files, output, keep, by, as_rows
        self.groups, self.n = groups, files.n_cleaned
        self.how, self.max_rows, self.progress, self.report = how, max_rows, progress, report
        self.folder, self.device = output.resolve() / UNFINISHED, resolve(how["device"])
        self.counts: dict[str, int] | None = None  # once the output files are whole

    # ------------------------------------------------------------------------------------------------- the manifest

    def open(self) -> None:
        """Begin the run, or go on with the one whose manifest is there; raise ValueError if that is another one."""
        names = [path.name for path in self.files.paths[: self.files.n_own]]
        if len(set(names)) < len(names):
            raise ValueError("two input files have one name, and their outputs would, too: rename one")
        if any(path.resolve().parent == self.output.resolve() for path in self.files.paths):
            raise ValueError(f"the input is in the folder of the output, {self.output}: name another one")
        plan = {
            "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in self.files.paths],
            "keep": self.keep, "by": self.by, "rows": self.as_rows, "column": list(self.files.columns),
            "dtype": self.files.narrow, "groups": self.groups, "files_cleaned": self.files.n_own,
        }  # fmt: skip
        plan |= {name: self.how[name] for name in ("max_distance", "min_similarity", "metric", "p")}
        self.manifest = self.folder / "manifest.json"
        if self.manifest.exists():
            unfinished = json.loads(self.manifest.read_text())
            changed = [name for name, value in plan.items() if unfinished["plan"].get(name) != value]
            if changed:
                what = f"the unfinished run in {self.folder} has other {', '.join(changed)}"
                raise ValueError(f"{what}: pass the same to go on, or remove the folder")
            self.max_rows, self.counts = unfinished["most"], unfinished["counts"]
        else:
            there = [name for name in names if (self.output / name).exists()]
            if there:
                raise ValueError(f"the output has {self.output / there[0]}: remove it, or name another folder")
            self.folder.mkdir(parents=True, exist_ok=True)
        self.plan = plan
        n = self.files.n_rows
        count = 1 if n <= self.max_rows else -(-n // max(1, self.max_rows // 2))
        self.pieces = Pieces(self.folder, tuple(n * i // count for i in range(count + 1)))
        self._write_manifest()

    def _write_manifest(self) -> None:
        text = json.dumps({"plan": self.plan, "most": self.max_rows, "counts": self.counts})
        replace_file(self.manifest, lambda draft: draft.write_text(text))

    # --------------------------------------------------------------------------------------------------- the stages

    def search(self, metric: Metric, order: np.ndarray, keys: np.ndarray | None) -> None:
        """Find which row each row goes to, and write the output files into the folder of the unfinished run.

        `order` has the rows by rank, and `keys` the group of each.
        """
        with self.report.stage("read", CPU):
            self._read_pieces()
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        with self.report.stage("blocks", CPU):
            blocks = self._blocks(metric)
        gone = np.zeros((3, 0), np.int64)
        if self.files.n_own < len(self.files.paths):
            with self.report.stage("against", CPU):
                gone = self._elsewhere(blocks)
        parts = [gone]
        if self.by is not None:
            self._write_keys(gone[0], keys)
            with self.report.stage("search", CPU):
                root = self._components(blocks)
            with self.report.stage(self.by, CPU):
                parts.append(self._choose(self.by, root, rank, order))
        every = np.concatenate(parts, axis=1)
        goes, to, distance = every[:, np.argsort(every[0])]
        with self.report.stage("write", CPU):
            self._write(goes, to, distance.view(np.float64))
            duplicate_of = np.arange(self.n)
            duplicate_of[goes] = to
            largest = int(np.bincount(duplicate_of[duplicate_of < self.n], minlength=1).max())
            self.counts = {"kept": self.n - goes.size, "removed": goes.size, "largest_group": largest}
            self._write_manifest()

    def close(self) -> None:
        """Move the output files to their places, and remove all else."""
        assert self.counts is not None
        for path in self.files.paths[: self.files.n_own]:
            if (self._drafts() / path.name).exists():  # else it is in its place
                (self._drafts() / path.name).replace(self.output / path.name)
        for path in self.folder.iterdir():
            if path != self.manifest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.folder)
        self.report.count("rows", **self.counts)

    def _read_pieces(self) -> None:
        """Write the vectors of all rows into pieces; raise ValueError for a bad row, and then leave nothing behind."""
        try:
            for piece, bounds in self._shown("Reading", list(enumerate(pairwise(self.pieces.bounds)))):
                path = self.pieces.path(piece)
                if not path.exists():
                    replace_file(path, partial(_decode, self.files, bounds[0], bounds[1]))
        except ValueError:
            shutil.rmtree(self.folder)
            raise

    def _blocks(self, metric: Metric) -> Blocks:
        """Return the blocks of the rows: those around pivots, or one of all rows if fewer pairs meet in it."""
        pieces, folder, is_cosine = self.pieces, self.folder, metric.formula.is_of_unit_rows
        whole, n_pieces = Blocks(pieces, 1, self.max_rows), len(pieces.bounds) - 1
        count = max(n_pieces, pieces.bounds[-1] // block_rows(self.device))
        distance, width = limit_of(metric, self.how["max_distance"], self.how["min_similarity"]), self.files.width
        radius = radius_of(metric, surrogate_bound(metric, distance, width), width, self.device)
        if count == 1 or radius is None:
            return whole
        with run_scope(self.device, self.how["memory_limit"]):
            pivots = saved(
                folder / "pivots.npy", lambda: pivots_of_pieces(pieces, radius, is_cosine, count, self.device)
            )
        blocks = Blocks(pieces, int(pivots[-1, 0]) + 1, self.max_rows)
        if blocks.count == 1:
            return whole
        for piece in self._shown("Dealing out", range(n_pieces)):
            with run_scope(self.device, self.how["memory_limit"]):
                make = partial(blocks_of_piece, pieces.load(piece), pivots, radius, is_cosine, self.device)
                saved(blocks.path(piece), make)
        return min(blocks, whole, key=Blocks.pairs_of_rows)

    def _results(self, label: str, parts: dict[str, Any], work: Callable[[Any], np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the result of each part of some work: first those that files have already, and then the others."""
        paths = {name: self.folder / f"{name}.npy" for name in parts}
        missing = {name: part for name, part in parts.items() if not paths[name].exists()}
        yield from (np.load(paths[name]) for name in parts if name not in missing)
        for name, result in self._shown(label, _results(work, missing), len(missing)):
            save(paths[name], result)
            yield result

    def _searched(self, name: str, blocks: Blocks, work: Callable[..., np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the result of ``work(search)`` for each search of blocks."""
        named = {f"{name}-{'-'.join(map(str, search))}": search for search in blocks.searches}
        return self._results("Searching", named, work)

    def _elsewhere(self, blocks: Blocks) -> np.ndarray:
        """Return the rows that are near one of another table, the nearest of these, and bits of distances, (3, m)."""
        work = partial(_near_others, blocks, self.how, self.n)
        every = np.concatenate(list(self._searched("near-others", blocks, work)), axis=1)
        row, other, bits = every[:, np.lexsort((every[1], every[2].view(np.float64), every[0]))]
        is_first = np.diff(row, prepend=-1) > 0
        nearest = np.stack((row, other, bits))[:, is_first]
        _, least, distance = nearest[:, np.cumsum(is_first) - 1]
        is_tied = (bits == distance) & (bits > 0) & (other != least)
        if is_tied.any():  # roots of different squares may be equal
            rows = np.unique(row[is_tied])
            others = np.unique(other[np.isin(row, rows)])
            nearest[:, np.searchsorted(nearest[0], rows)] = _nearest_others(self.pieces, self.how, rows, others)
        return nearest

    def _write_keys(self, gone: np.ndarray, keys: np.ndarray | None) -> None:
        """Write which rows are compared among themselves, in the form of `Pieces.keys`; write nothing if all are."""
        if keys is None and self.n == self.files.n_rows:
            return
        every = np.full(self.files.n_rows, -1)
        every[: self.n] = 0 if keys is None else keys
        every[gone] = -1
        save(self.folder / KEYS, every)

    def _components(self, blocks: Blocks) -> np.ndarray:
        """Return the least row of the component of each row, (n,) int64."""
        parent = np.arange(self.n)
        self.report.count("search", searches=len(blocks.searches), pairs_of_rows=blocks.pairs_of_rows())
        for src, dst in self._searched("united", blocks, partial(_pairs_to_unite, blocks, self.how)):
            kernels(CPU).unite_pairs(parent, src, dst)
        while not np.array_equal(upper := parent[parent], parent):
            parent = upper
        return parent

    def _choose(self, by: str, root: np.ndarray, rank: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return the rows that go, the row that each goes to, and the bits of distances, (3, m) int64.

        The distances are zeros unless the rows that go are written.
        """
        work: Callable[[np.ndarray], np.ndarray]
        half = max(1, self.max_rows // 2)
        if by == "components":
            first = np.empty(self.n, np.int64)
            first[root[order[::-1]]] = order[::-1]  # the last write to an entry stays: the first rank
            to = first[root]
            goes = np.flatnonzero(to != np.arange(self.n))
            if not self.as_rows:
                return np.stack((goes, to[goes], np.zeros_like(goes)))
            pairs = np.stack((goes, to[goes]))
            packs = [pairs[:, i : i + half] for i in range(0, goes.size, half)]
            work = partial(_distances, self.pieces, self.how)
        else:
            packs = [np.stack((rows, root[rows])) for rows in self._packs(root, rank)]
            work = partial(_by_pairs, self.pieces, self.how, by == "leaders", half, self.max_rows)
        named = {f"pack-{i}": pack for i, pack in enumerate(packs)}
        return np.concatenate([np.zeros((3, 0), np.int64), *self._results("Choosing", named, work)], axis=1)

    def _packs(self, root: np.ndarray, rank: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows of whole components by rank, as many as fit; a component that does not fit comes alone."""
        sizes = np.bincount(root, minlength=root.size)
        rows = np.flatnonzero(sizes[root] > 1)
        rows = rows[np.argsort(root[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(root[rows], prepend=-1))
        begin = 0
        for start, stop in pairwise([*starts.tolist(), rows.size]):
            if stop - begin > self.max_rows and start > begin:
                yield _by_rank(rows[begin:start], rank)
                begin = start
        if rows.size:
            yield _by_rank(rows[begin:], rank)

    def _write(self, goes: np.ndarray, to: np.ndarray, distance: np.ndarray) -> None:
        drafts = self._drafts()
        drafts.mkdir(exist_ok=True)
        starts = self.files.starts

        def write(file: int) -> None:
            path, (start, stop) = drafts / self.files.paths[file].name, starts[file : file + 2].tolist()
            here = slice(*np.searchsorted(goes, (start, stop)).tolist())
            if path.exists():
                return
            if self.as_rows:
                rows = partial(self._write_rows, file, goes[here], to[here], distance[here])
                replace_file(path, rows)
                return
            kept = np.ones(stop - start, bool)
            kept[goes[here] - start] = False
            replace_file(path, lambda draft: self.files.write_some(file, kept, draft))

        max_threads = max(1, WRITTEN_BYTES // (GROUPS_WRITTEN * max(1, self.files.group_bytes)))
        on_all_cores(write, range(self.files.n_own), max_threads)

    def _write_rows(self, file: int, goes: np.ndarray, to: np.ndarray, distance: np.ndarray, path: Path) -> None:
        """Write a table of rows of a file that go, with their reasons."""
        import pyarrow as pa
        from pyarrow.parquet import write_table

        starts, names = self.files.starts, pa.array([str(path) for path in self.files.paths])
        kept_file = np.searchsorted(starts, to, side="right") - 1
        columns = {
            "file": pa.DictionaryArray.from_arrays(np.full(goes.size, file, np.int32), names),
            "row": goes - starts[file],
            "kept_file": pa.DictionaryArray.from_arrays(kept_file.astype(np.int32), names),
            "kept_row": to - starts[kept_file],
            "distance": distance,
        }
        write_table(pa.table(columns), path)

    def _drafts(self) -> Path:
        return self.folder / f"output-{boot()}"

    def _shown(self, label: str, parts: Iterable[Any], total: int | None = None) -> Iterator[Any]:
        """Yield parts of the work on all rows, with a progress bar."""
        total = len(list(parts)) if total is None else total
        bar = Progress(label, self.files.n_rows, self.progress) if self.progress and total else None
        yield from with_progress(parts, total, bar)


def _decode(files: VectorFiles, start: int, stop: int, path: Path) -> None:
    """Write the vectors of a range of rows into a file of NumPy."""
    mapped = np.lib.format.open_memmap(path, "w+", files.dtype, (stop - start, files.width))
    files.read(start, mapped)


def _by_rank(rows: np.ndarray, rank: np.ndarray) -> np.ndarray:
    return rows[np.argsort(rank[rows])]


# ------------------------------------------------------------------------- what one device does, or a worker of Dask


def _results(work: Callable[[Any], Any], parts: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the name of each part and its result: one after the other, or as a Dask client's workers finish them."""
    distributed: Any = sys.modules.get("distributed")
    try:
        client = distributed and distributed.get_client()
    except ValueError:  # there is none
        client = None
    if not client:
        for name, part in parts.items():
            yield name, work(part)
        return
    names = {client.submit(work, part, pure=False): name for name, part in parts.items()}
    for future, result in distributed.as_completed(list(names), with_results=True):
        yield names.pop(future), result


def _pairs_to_unite(blocks: Blocks, how: dict[str, Any], search: Search) -> np.ndarray:
    """Return pairs of rows that connect the components of the rows of a search, (2, m) int64."""
    row, keys = blocks.rows(search), blocks.pieces.keys()
    groups = None
    if keys is not None:
        row = row[keys[row] >= 0]
        groups = keys[row] if keys[row].any() else None
    if not row.size:
        return np.stack((row, row))
    first = np.asarray(deduplicate(blocks.pieces.take(row), groups=groups, **how))
    goes = np.flatnonzero(first != np.arange(row.size))
    return np.stack((row[goes], row[first[goes]]))


def _task(how: dict[str, Any]) -> PairTask:
    """Return the task of the pairs within the distance of a run."""
    metric = metric_of(how["metric"], how["p"])
    distance = limit_of(metric, how["max_distance"], how["min_similarity"])
    return task_of([distance], metric, None, None, how["memory_limit"])


def _nearest(how: dict[str, Any], X: np.ndarray, Y: np.ndarray | None, **rule: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest earlier row of X, or of Y, within the distance, and how far it is: see `nearest_earlier`."""
    task = _task(how)
    return engine_of(X, metric=task.metric).nearest_rows(X, Y, task, resolve(how["device"]), **rule)


def _near_others(blocks: Blocks, how: dict[str, Any], n: int, search: Search) -> np.ndarray:
    """Return rows below n of a search, each with its nearest row from n on, and the bits of the distance, (3, m)."""
    rows = np.sort(blocks.rows(search))  # of equally near ones the first counts
    own, others = rows[rows < n], rows[rows >= n]
    return _nearest_others(blocks.pieces, how, own, others) if own.size and others.size else np.zeros((3, 0), np.int64)


def _nearest_others(pieces: Pieces, how: dict[str, Any], rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the rows that are near one of some others, the nearest of these, and bits of distances, (3, m) int64."""
    to, distance = _nearest(how, pieces.take(rows), pieces.take(others))
    goes = np.flatnonzero(to >= 0)
    return np.stack((rows[goes], others[to[goes]], distance[goes].view(np.int64)))


def _distances(pieces: Pieces, how: dict[str, Any], pairs: np.ndarray) -> np.ndarray:
    """Return pairs of rows, (2, m) int64, with their distances, the bits of float64: (3, m) int64."""
    rows, ends = np.unique(pairs, return_inverse=True)
    X, task = pieces.take(rows), _task(how)
    first, second = ends.reshape(pairs.shape).astype(np.int32)
    distance = engine_of(X, metric=task.metric).pair_distances(X, (first, second), task, resolve(how["device"]))
    return np.concatenate((pairs, distance.view(np.int64)[None]))


def _by_pairs(
    pieces: Pieces, how: dict[str, Any], leaders: bool, size: int, max_rows: int, pack: np.ndarray
) -> np.ndarray:
    """Return the rows that go, the row that each goes to, and the bits of the distance, (3, m) int64.

    A pack has all rows of some components, by rank, and the component of each. If it has more than `max_rows` rows,
    these are of one component and are taken in chunks of `size`. Only rows that count may remove others: with `leaders`
    those that stay, otherwise all. The rows of earlier chunks that count, and are the nearest ones to a row of this
    chunk, are searched with it. So the rule gives this chunk the result that it gives for all rows up to it.
    """
    rows, component = pack
    chunks = [rows] if rows.size <= max_rows else [rows[i : i + size] for i in range(0, rows.size, size)]
    group = np.unique(component, return_inverse=True)[1].astype(np.int32) if len(chunks) == 1 else None
    counting: list[np.ndarray] = []  # of each earlier chunk
    results = []
    for chunk in chunks:
        X = pieces.take(chunk)
        named, nearest = [], np.full(chunk.size, np.inf)
        for earlier in counting:
            to, distance = _nearest(how, X, pieces.take(earlier))
            goes = np.flatnonzero(to >= 0)
            named.append((goes, earlier[to[goes]], distance[goes]))
            nearest = np.minimum(nearest, distance)
        before = [
            earlier[np.isin(earlier, to[distance <= nearest[goes]])]  # several of a row, if they are as near
            for earlier, (goes, to, distance) in zip(counting, named, strict=True)
        ]
        both = np.concatenate([*before, chunk])
        to, distance = _nearest(how, pieces.take(both) if before else X, None, leaders=leaders, group=group)
        to, distance = to[both.size - chunk.size :], distance[both.size - chunk.size :]
        goes = np.flatnonzero(to >= 0)
        results.append(np.stack((chunk[goes], both[to[goes]], distance[goes].view(np.int64))))
        counts = np.delete(chunk, goes) if leaders else chunk
        counting += [counts] if counts.size else []
    return np.concatenate(results, axis=1)


# ------------------------------------------------------------------------------------------------------- a dry run


def _estimated(files: VectorFiles, report: Report, how: dict[str, Any], by: str | None, max_rows: int) -> Report:
    """Return the report of a dry run: time and memory by a sample of rows from all over the files, if all rows meet."""
    n, size = files.n_rows, min(files.n_rows, SAMPLE[how["device"]])
    values = np.empty((size, files.width), files.dtype)
    start = time.perf_counter()
    bounds = np.linspace(0, size, min(SAMPLED_PLACES, size) + 1).astype(int).tolist()
    for begin, end in pairwise(bounds):
        files.read(begin + (n - size) * begin // size, values[begin:end])
    reading = (time.perf_counter() - start) * n / size
    seconds = []
    for part in (values[: size // 2 + 1], values[: size // 2 + 1], values):  # the first one compiles
        start = time.perf_counter()
        deduplicate(part, by=by, **how)
        seconds.append(time.perf_counter() - start)
    power = float(np.clip(np.log2(seconds[2] / seconds[1]), 1, 2)) if size > 1 else 1.0
    count = 1 if n <= max_rows else -(-n // max(1, max_rows // 2))
    searches = max(1, count * (count - 1) // 2)
    searching = searches * seconds[2] * (min(n, 2 * n / count) / size) ** power
    report.count("rows", rows=n, features=files.width, rows_together=min(n, max_rows), searches=searches)
    report["memory"] = {"peak_bytes": int(how["memory_limit"] * min(1.0, n / max_rows))}
    report["disk"] = {"pieces_bytes": n * files.width * files.dtype.itemsize}
    report["seconds"] = {"read": reading, "search": searching}
    report["time"] = {"about_minutes": float(f"{(2 * reading + searching) / 60:.2g}")}
    return report

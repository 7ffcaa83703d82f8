"""Hierarchies in files: `Hierarchy.save` and `rapids_slink.load`.

A file is a zip archive, so that every part carries a checksum:

    model.json               format, version, the class, its parameters and attributes
    linkage_.parquet, ...    the columns of a frame, Series or array; the levels of the input's index

The file contains no code: only JSON and Parquet are read. JSON holds columns of objects, and the names and the
frequency of an index, which Parquet does not keep. Each table is read back and compared before it goes into the file.

A file may set the attributes that the model's class declares, with values of the declared types. Before a part is
unpacked, its size is compared with the file's and with the free memory. `replace_file` writes any file at once or not
at all.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, astuple
from functools import cache, reduce
from importlib.util import find_spec
from io import BytesIO
from numbers import Real
from operator import or_
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.condense import from_frame
from rapids_slink.dendrogram.cutting import COLUMNS, OUTLIER, check_groups, check_linkage, sizes_of
from rapids_slink.hierarchy.exports import needs
from rapids_slink.items.search import kind_of
from rapids_slink.points import as_points
from rapids_slink.points.check import require_columns, require_numbers
from rapids_slink.points.output import PROXIED, TABLES, OutputKind, PreallocatedFrame, library_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, gpu_is_usable, resolve
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, size_text
from rapids_slink.version import __version__

if TYPE_CHECKING:
    from rapids_slink.hierarchy.model import Hierarchy
FORMAT = "rapids_slink hierarchy"
VERSION = 3
#: A part is unpacked to at most this many bytes, or to this many times its size. Blanks unpack to 1,000 times theirs.
MAX_UNPACKED, MAX_RATIO = 2**26, 100
#: A file has at most this number of rows a byte. Each row has a number of its own in some table, of more than a byte.
MAX_ROWS_A_BYTE = 8
#: Kinds of Python's objects that Parquet gives back as they were, and JSON does not have.
IN_PARQUET = ("bytes", "date", "decimal", "time")
#: Bytes that Python's objects take for each byte of JSON.
JSON_BYTES = 8


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it to `path`: readers see the old file or the new one."""
    path = path.resolve()
    if not path.parent.is_dir():  # otherwise the error would name the draft
        raise FileNotFoundError(f"cannot write {path}: no such folder: {path.parent}")
    draft = path.with_name(f".{path.stem}.{os.getpid()}.{threading.get_ident()}{path.suffix}")
    try:
        write(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def save(model: Hierarchy, path: str | PathLike[str]) -> None:
    """Write a model to a file, as `Hierarchy.save` does. Raise TypeError for a class that is not of this package."""
    with needs("saving and loading need pyarrow", "parquet"):
        import pyarrow  # noqa: F401
    if not type(model).__module__.startswith("rapids_slink."):
        raise TypeError(f"only rapids_slink's own classes can be saved, got {type(model).__name__}")
    with _plain_pandas():
        replace_file(Path(path), lambda draft: _write(model, draft))


def read(path: str | PathLike[str], device: str, classes: Iterable[type]) -> Any:
    """Return the model in a file, as `rapids_slink.load` does, if it is of one of these classes.

    Raises ValueError if the file is damaged or holds none of them.
    """
    with needs("saving and loading need pyarrow", "parquet"):
        import pyarrow  # noqa: F401
    target = resolve(device)
    with Path(path).open("rb") as file:
        try:
            with _plain_pandas(), zipfile.ZipFile(file) as archive:
                model = _read(archive, Path(path), {kind.__name__: kind for kind in classes})
        except MemoryError:
            raise
        except Exception as error:  # a damaged archive may fail in any way
            raise ValueError(
                f"{path} is damaged, or no hierarchy that rapids_slink {__version__} reads: {error}"
            ) from error
    model._output = _output_now(model._output, target.is_gpu if device != "auto" else None)
    for name, value in vars(model).items():
        setattr(model, name, _in_kind(name, value, model._output))
    return model


def _output_now(saved: OutputKind, gpu: bool | None) -> OutputKind:
    """Return the kind of output in this process, on the GPU or not. Frames of pandas are proxies if pandas is proxied.

    Tables of Polars and Arrow are restored unless their library is missing or they are to be on the GPU.
    """
    if saved.wrapper in TABLES and not gpu and find_spec(saved.wrapper):
        return saved
    was_proxy = saved.wrapper == PROXIED
    proxied = bool(getattr(sys.modules.get(PROXIED), "LOADED", False))  # whether it stands in for pandas here
    if gpu is None:
        gpu = saved.gpu and (proxied or not was_proxy) and gpu_is_usable()
    return OutputKind(saved.is_frame, gpu, PROXIED if proxied and saved.is_frame and (was_proxy or not gpu) else "")


def _in_kind(name: str, value: Any, output: OutputKind) -> Any:
    """Return the value of an attribute, which is on the host, in this kind of output."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return output.array(value)
    if not library_of(value):
        return value
    value = OutputKind(is_frame=True, gpu=output.gpu).frame(value)
    return value if name == "_index" else output.wrap(value)  # later results take `_index` as it is


def _plain_pandas() -> AbstractContextManager[Any]:
    """Return a context with pandas itself in place of the proxies of ``cudf.pandas``, which change some indexes."""
    accelerator = sys.modules.get("cudf.pandas.module_accelerator")
    return nullcontext() if accelerator is None else accelerator.disable_module_accelerator()


@cache
def _types(model: type) -> dict[str, Any]:
    """Return the types on the host of the parameters and attributes that a class of models declares, by name."""

    def type_of(hint: Any) -> Any:
        if get_origin(hint) is Annotated:
            return reduce(or_, (getattr(pd, name, np.ndarray) for name in hint.__metadata__))
        if get_origin(hint) is Literal:
            return str
        if get_origin(hint) in (Union, UnionType):
            return reduce(or_, map(type_of, get_args(hint)))
        return Real if hint in (bool, int, float) else get_origin(hint) or hint

    hints = get_type_hints(model, include_extras=True)
    return {name: type_of(hint) for name, hint in hints.items() if hint is not Any and hint is not KW_ONLY}


def _check_type(model: type, name: str, value: Any) -> None:
    """Raise unless the class declares an attribute of this name and type."""
    kind = _types(model).get(name)
    if kind is None:
        raise TypeError(f"{model.__name__} has no attribute {name!r} for a file to hold")
    if not isinstance(value.item() if isinstance(value, np.generic) else value, kind):
        text = kind.__name__ if isinstance(kind, type) else kind
        raise TypeError(f"{name} must be {text}, got {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------- writing


def _write(model: Hierarchy, draft: Path) -> None:
    state = {"_index": None, **model.__getstate__(), "_output": model._output}  # the index first: all Series share it
    state.pop("_metadata_request", None)  # `set_fit_request` made it, an object of scikit-learn
    attributes = {}
    with zipfile.ZipFile(draft, "w") as archive:
        for name, value in state.items():
            try:
                attributes[name] = _encode(archive, name, value, state["_index"])
            except (ImportError, MemoryError):
                raise
            except Exception as error:  # pyarrow's and pandas' errors share no base class
                raise TypeError(f"{name.lstrip('_')} cannot be saved: {error}") from error
            _check_type(type(model), name, value)
        model._check_parameters()
        content = {"format": FORMAT, "version": VERSION, "written_by": __version__, "class": type(model).__name__}
        text = json.dumps({**content, "attributes": attributes}).encode()
        is_short = len(text) <= MAX_UNPACKED
        archive.writestr("model.json", text, zipfile.ZIP_DEFLATED if is_short else zipfile.ZIP_STORED)


def _encode(archive: zipfile.ZipFile, name: str, value: Any, rows: pd.Index | None) -> dict[str, Any]:
    """Describe an attribute in JSON and put its columns into the archive. `rows` is the index of all Series."""
    if isinstance(value, OutputKind):
        return {"kind": "output", "value": astuple(value)}
    if isinstance(value, pd.RangeIndex):
        return {"kind": "range", "value": [value.start, value.stop, value.step], "name": _to_json(value.name)}
    if isinstance(value, pd.Index):
        levels = {str(i): pd.Series(value.get_level_values(i)) for i in range(value.nlevels)}
        spec: dict[str, Any] = {"kind": type(value).__name__, "names": _to_json(tuple(value.names))}
        if isinstance(value, pd.DatetimeIndex | pd.TimedeltaIndex):
            spec["freq"] = value.freqstr
            type(value)(value, freq=spec["freq"])  # raises if the text does not give the frequency back
        return {**spec, "columns": _put(archive, name, pd.DataFrame(levels))}
    if isinstance(value, pd.DataFrame):
        return {"kind": "frame", "columns": _put(archive, name, value.reset_index(drop=True))}
    if isinstance(value, pd.Series):
        if not value.index.equals(pd.RangeIndex(len(value)) if rows is None else rows):
            raise ValueError("its index is not that of the input")
        columns = _put(archive, name, value.reset_index(drop=True).to_frame("0"))
        return {"kind": "series", "columns": columns, "name": _to_json(value.name)}
    if isinstance(value, np.ndarray):
        matrix = value[:, None] if value.ndim == 1 else value
        frame = pd.DataFrame(matrix, columns=list(map(str, range(matrix.shape[1]))), dtype=value.dtype)
        return {"kind": "array" if value.ndim == 1 else "matrix", "columns": _put(archive, name, frame)}
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):  # a parameter may be such a dict
        return {"kind": "mapping", "value": _to_json(tuple(value.items()))}
    if isinstance(value, list | set | frozenset):
        value = tuple(value)
    return {"kind": "value", "value": _to_json(value)}


def _put(archive: zipfile.ZipFile, name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """Write columns: those of objects, if Parquet does not give them back, to JSON, the others to a Parquet file."""
    names, stored = list(frame), [str(i) for i in range(frame.shape[1])]  # Parquet has only text for names
    if not all(isinstance(name, str) for name in names):
        frame = frame.set_axis(stored, axis=1)
    types: dict[Any, Any] = frame.dtypes.to_dict()
    objects = {}
    for column in (column for column, dtype in types.items() if dtype == "object"):
        if pd.api.types.infer_dtype(frame[column]) not in IN_PARQUET:
            objects[column] = _to_json(tuple(frame[column]))
    typed = frame.drop(columns=list(objects))
    # Categories need a dictionary. Other columns must not have one: it is the only encoding that compares floats.
    categories = [column for column, dtype in types.items() if dtype == "category"]
    if any(isinstance(types[column].categories, pd.IntervalIndex) for column in categories):
        raise TypeError("Parquet keeps no categories of intervals, as pandas.cut makes them: take their text")
    buffer = BytesIO()
    typed.to_parquet(buffer, engine="pyarrow", index=False, compression="zstd", use_dictionary=categories)
    again = pd.read_parquet(buffer, engine="pyarrow")
    casts = {column: str(types[column]) for column in typed if again[column].dtype != types[column]}
    again = again.astype(casts)
    for column, values in typed.items():
        is_same = column not in categories or list(values.cat.categories) == list(again[column].cat.categories)
        if not (is_same and again[column].equals(values)):
            raise TypeError(f"Parquet does not give {values.dtype!r} back as it was")
    archive.writestr(f"{name}.parquet", buffer.getvalue())
    names = list(map(_to_json, names))
    return {"part": f"{name}.parquet", "names": names, "stored": list(frame), "objects": objects, "casts": casts}


def _to_json(value: Any) -> Any:
    """Return a value as JSON can hold it. Tuples become lists. Raise TypeError for a value that it cannot hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return [_to_json(entry) for entry in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _to_json(entry) for key, entry in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"it holds {value!r}, of type {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------- reading


def _check_parts(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise if a part is packed more than those of models are, or if the parts do not fit into memory."""
    parts = archive.infolist()
    for part in parts:
        if part.file_size > max(MAX_UNPACKED, MAX_RATIO * part.compress_size):
            raise ValueError(f"{part.filename} of {part.compress_size} bytes unpacks to {size_text(part.file_size)}")
    size = sum(part.file_size for part in parts) + JSON_BYTES * archive.getinfo("model.json").file_size
    check_memory(CPU, MemoryEstimate(size), str(path))


def _check_tables(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise if a table has more rows than a model in a file of this size, or if the tables do not fit into memory."""
    from pyarrow.parquet import ParquetFile

    cells, max_rows = 0, MAX_ROWS_A_BYTE * path.stat().st_size
    for part in set(archive.namelist()) - {"model.json"}:
        with archive.open(part) as stream:
            table = ParquetFile(stream).metadata
        if table.num_rows > max_rows:
            raise ValueError(f"{part} has {table.num_rows} rows, too many for so small a file")
        cells += table.num_rows * table.num_columns
    check_memory(CPU, MemoryEstimate(8 * cells), str(path))


def _read(archive: zipfile.ZipFile, path: Path, classes: dict[str, type]) -> Any:
    """Return the model in the archive at `path`, checked, on the host."""
    _check_parts(archive, path)
    content = json.loads(archive.read("model.json"))
    if content["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if content["version"] != VERSION:
        raise ValueError(
            f"rapids_slink {content['written_by']} wrote version {content['version']} of the format, not {VERSION}"
        )
    _check_tables(archive, path)
    kind = classes[content["class"]]
    model: Any = kind()
    for name, spec in content["attributes"].items():
        value = _decode(archive, spec, model._index) if name in _types(kind) else None
        if _types(kind).get(name) is Report and isinstance(value, dict):
            value = Report(value)
        _check_type(kind, name, value)
        setattr(model, name, value)
    model._check_parameters()
    _check(model)
    return model


def _decode(archive: zipfile.ZipFile, spec: dict[str, Any], rows: pd.Index | None) -> Any:
    """Return the attribute that `_encode` described. `rows` is the index of all Series."""
    kind = spec["kind"]
    if kind == "value":
        return _from_json(spec["value"])
    if kind == "mapping":
        return dict(_from_json(spec["value"]))
    if kind == "output":
        return OutputKind(*spec["value"])
    if kind == "range":
        start, stop, step = spec["value"]
        return pd.RangeIndex(start, stop, step, name=_from_json(spec["name"]))
    columns = _columns(archive, **spec["columns"])
    if kind == "frame":
        return columns
    if kind == "array":
        return columns["0"].to_numpy()
    if kind == "matrix":
        return np.ascontiguousarray(columns.to_numpy())
    if kind == "series":
        series = columns["0"].rename(_from_json(spec["name"]))
        return series if rows is None else series.set_axis(rows)
    names = _from_json(spec["names"])
    if kind == "MultiIndex":
        return pd.MultiIndex.from_frame(columns, names=names)
    index: Any = pd.Index(columns["0"], dtype=columns["0"].dtype).set_names(names)
    if "freq" in spec:
        index.freq = spec["freq"]
    return index


def _columns(
    archive: zipfile.ZipFile, part: str, names: list[Any], stored: list[str], objects: Any, casts: dict[str, str]
) -> Any:
    """Return the frame that `_put` wrote."""
    typed = pd.read_parquet(BytesIO(archive.read(part)), engine="pyarrow").astype(casts)
    cells = {name: pd.Series(_from_json(values), dtype=object) for name, values in objects.items()}
    columns = [cells[name] if name in cells else typed[name] for name in stored]
    return pd.DataFrame(dict(zip(map(_from_json, names), columns, strict=True)))


def _from_json(value: Any) -> Any:
    return tuple(map(_from_json, value)) if isinstance(value, list) else value


def _check(model: Any) -> None:
    """Raise unless the linkage is a dendrogram and the parts fit each other. Compiled code relies on both."""
    declared: Any = type(model)
    n, merges = model.n_leaves_, len(model.linkage_)
    require_columns(model.linkage_, COLUMNS, "linkage")
    require_columns(model.mst_, ("src", "dst", "weight"), "tree")
    if not (isinstance(n, int) and len(model.labels_) == n > merges == len(model.mst_)):
        raise ValueError(f"{len(model.labels_)} labels, {merges} merges, {len(model.mst_)} edges, but {n} leaves")
    check_linkage(model.linkage_, n, CPU, is_forest=True)
    left_child, right_child, size = (model.linkage_[name].to_numpy() for name in ("left", "right", "size"))
    sizes_of(PreallocatedFrame({"left": left_child, "right": right_child, "size": size}, CPU), n)
    if not (isinstance(model.n_clusters_, int) and model._output.wrapper in ("", PROXIED, *TABLES)):
        raise ValueError("n_clusters_ or the kind of output is not valid")
    labels = np.asarray(model.labels_)
    last_label = max(model.n_clusters_, getattr(model, "_next_label_", 0)) - 1
    if labels.dtype.kind not in "iu" or labels.min() < OUTLIER or labels.max() > last_label:
        raise ValueError(f"labels_ must hold integers from {OUTLIER} to {last_label}")
    if model._least_size_ < 1 or not 0 <= model._small_clusters_ <= n - model.n_clusters_:
        raise ValueError(f"{model._small_clusters_} clusters are too small for a label, of {model._least_size_} rows")
    for name in ("_index", "probabilities_", "outlier_scores_", "component_", "_core_", "_points_", "_drawn_"):
        values = getattr(model, name, None)
        if values is not None and len(values) != n:
            raise ValueError(f"{name} has {len(values)} rows, but there are {n} leaves")
    if "_points_" in _types(declared):  # nodes of a graph may have names
        require_numbers(model.mst_, "tree", src="iu", dst="iu", weight="iuf")
        ends = model.mst_[["src", "dst"]].to_numpy()
        if ((ends < 0) | (ends >= n)).any():
            raise ValueError(f"columns 'src' and 'dst' of the tree must hold row numbers from 0 to {n - 1}")
    if hasattr(model, "groups_"):
        check_groups(model.linkage_, model._merge_group_, model.groups_, n)
    if hasattr(model, "_condensed_"):
        from_frame(model._condensed_, n)
    if hasattr(model, "_drawn_"):
        as_points(model._drawn_, CPU, checked=False)
    if hasattr(model, "_points_"):
        rows = model._fitted_rows()
        kind = kind_of(rows.metric, rows.values)
        if kind is None:
            as_points(rows.values, CPU, metric=rows.metric)
        else:
            kind.read({"X": rows.values}, rows.metric, CPU)

"""Hierarchies in files: `Hierarchy.save` and `load`.

A file is a zip archive, so that every part carries a checksum:

    model.json                format, version, the class, its parameters and the attributes that fit into JSON
    linkage_.parquet, ...     one Parquet table a frame, Series or array
    index.0.parquet           the input's index, its levels as columns

Nothing in it is code: JSON and Parquet are all that is read. What JSON cannot spell is tagged, as in
``{"float": "inf"}`` and ``{"tuple": [...]}``. Parquet keeps every bit of a number but not every index: each is decoded
again before it is trusted to a file.
"""

from __future__ import annotations

import json
import sys
import zipfile
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

import rapids_slink
from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.device import gpu_is_usable, resolve
from rapids_slink.files import replace_file
from rapids_slink.points import Caller, on_host, pandas_is_proxied, require_columns
from rapids_slink.report import Report

if TYPE_CHECKING:
    from rapids_slink.hierarchy import Hierarchy

FORMAT = "rapids_slink hierarchy"
VERSION = 1
#: The classes that a file may name, and the modules they live in.
CLASSES = {"GraphHierarchy": "graph", "SingleLinkage": "single_linkage"}


def save(model: Hierarchy, path: str | PathLike[str]) -> None:
    """`Hierarchy.save`."""
    _require_pyarrow()
    name = type(model).__name__
    if CLASSES.get(name) != type(model).__module__.removeprefix("rapids_slink."):
        raise TypeError(f"only {' and '.join(CLASSES)} can be saved, got {name}")
    with _plain_pandas():
        replace_file(Path(path), lambda draft: _write(model, draft))


def load(path: str | PathLike[str], *, device: str = "auto") -> Any:
    """Read a hierarchy that was saved.

    Parameters
    ----------
    path : path
        Written by ``model.save(path)``. Opening a file from somebody else runs no code of theirs.
    device : {"auto", "cpu", "cuda"}
        "auto" gives the frames, Series and arrays in the kinds they had, cuDF's and CuPy's as pandas' and NumPy's
        where there is no GPU; "cpu" gives pandas' and NumPy's, "cuda" cuDF's and CuPy's. Pandas' are what this
        process calls pandas: proxies under ``cudf.pandas``, and otherwise not, whichever they were when they were
        saved. The bits are the same. The model's own parameter ``device``, which its next fit goes by, stays as it
        was.

    Returns
    -------
    SingleLinkage or GraphHierarchy
        Fitted, as it was saved.

    Raises
    ------
    ValueError
        The file is damaged, is no hierarchy, or a newer version of rapids_slink wrote it.
    DeviceUnavailableError
        ``device="cuda"`` and there is no usable GPU.
    FileNotFoundError, ImportError
        There is no such file, or no pyarrow to read it with.

    Examples
    --------
    >>> import tempfile, numpy as np, rapids_slink
    >>> model = rapids_slink.fit(np.array([[0.0], [0.1], [5.0]]), n_clusters=2, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/three.slink")
    ...     rapids_slink.load(f"{folder}/three.slink").labels_.tolist()
    [0, 0, 1]
    """
    _require_pyarrow()
    place = resolve(device)
    path = Path(path)
    with path.open("rb") as file:
        try:
            with _plain_pandas():
                model = _read(file)
        except (_RefusedError, MemoryError):
            raise
        except Exception as error:  # there is no end to the ways in which a damaged archive fails
            file.seek(0)
            what = "is damaged or cut short" if file.read(2) == b"PK" else "is not a hierarchy that rapids_slink saved"
            raise ValueError(f"{path} {what}: {error}") from error
    model._caller = _caller_now(model._caller, place.name == "cuda" if device != "auto" else None)
    for name, value in vars(model).items():
        setattr(model, name, _in_kind(name, value, model._caller))
    return model


def _caller_now(saved: Caller, gpu: bool | None) -> Caller:
    """Who asks for the answers now, of the GPU or not: what was a frame of pandas is one, by proxy or not."""
    proxied = pandas_is_proxied()
    if gpu is None:
        gpu = saved.gpu and (proxied or not saved.proxy) and gpu_is_usable()
    return Caller(saved.frame_given, gpu, proxied and saved.frame_given and (saved.proxy or not gpu))


def _plain_pandas() -> AbstractContextManager[Any]:
    """Under ``cudf.pandas``, pandas itself and not its proxies, which do not give every index back as it was."""
    accelerator = sys.modules.get("cudf.pandas.module_accelerator")
    return nullcontext() if accelerator is None else accelerator.disable_module_accelerator()


class _RefusedError(ValueError):
    """A whole file that is not ours to read."""


def _require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError("saving and loading need pyarrow: pip install 'rapids_slink[parquet]'") from error


# ---------------------------------------------------------------------------------------------------- writing


def _write(model: Hierarchy, draft: Path) -> None:
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    fitted = {name: on_host(value) for name, value in vars(model).items() if name not in parameters}
    if "_caller" in fitted:
        fitted["_caller"] = model._caller
    with zipfile.ZipFile(draft, "w") as archive:
        writer = _Writer(archive)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "written_by": rapids_slink.__version__,
            "class": type(model).__name__,
            "parameters": {name: _pack(value, f"the parameter {name}") for name, value in parameters.items()},
            "attributes": {name: writer.attribute(name, value) for name, value in fitted.items()},
        }
        archive.writestr("model.json", json.dumps(content, indent=1, allow_nan=False))


class _Writer:
    """Puts attributes into an archive and says how and where they are."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.indexes: list[tuple[Any, dict[str, Any]]] = []

    def attribute(self, name: str, value: Any) -> Any:
        import pandas as pd

        if isinstance(value, Caller):
            return {"caller": [value.frame_given, value.gpu, value.proxy]}
        kind = _pandas_kind(value)
        if kind == "DataFrame":
            return self.frame(name, value)
        if kind == "Series":
            values = self.table(f"{name}.parquet", pd.DataFrame({"0": value.to_numpy()}))
            return {
                "series": values,
                "name": _pack(value.name, f"the name of {name}"),
                "index": self.index(value.index),
            }
        if kind == "Index":
            return {"index": self.index(value)}
        if isinstance(value, np.ndarray) and value.dtype != object:
            return {"array": self.table(f"{name}.parquet", pd.DataFrame({"0": value}))}
        return _pack(value, f"the attribute {name}")

    def frame(self, name: str, frame: Any) -> dict[str, Any]:
        """Write a frame whose index says nothing: numbers as a table, columns of other types as indexes are written."""
        import pandas as pd

        types = frame.dtypes.to_dict()
        plain = [c for c, dtype in types.items() if isinstance(dtype, np.dtype) and dtype.kind in "biuf"]
        rest = (c for c in types if c not in plain)
        others = {c: self.index(pd.Index(frame[c], name=None, tupleize_cols=False)) for c in rest}
        table = self.table(f"{name}.parquet", frame[plain].reset_index(drop=True))
        return {"frame": table, "columns": list(frame.columns), "others": others}

    def table(self, part: str, frame: Any) -> str:
        self.archive.writestr(part, _to_parquet(frame))
        return part

    def index(self, index: Any) -> dict[str, Any]:
        """Write an index, unless it has been written already for another attribute."""
        for known, said in self.indexes:
            if known.identical(index):
                return said
        said, table = _encode_index(index)
        if table:
            said["part"] = f"index.{len(self.indexes)}.parquet"
            self.archive.writestr(said["part"], table)
        self.indexes.append((index, said))
        return said


def _pandas_kind(value: Any) -> str:
    """Which of pandas' classes this is of, by name: under ``cudf.pandas`` the classes at hand are proxies."""
    names = (base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] == "pandas")
    return next((name for name in names if name in ("DataFrame", "Series", "Index")), "")


def _to_parquet(frame: Any) -> bytes:
    # Categories are a dictionary, and lost without one. Elsewhere it is the one encoding that compares floats.
    categories = [name for name, dtype in frame.dtypes.items() if dtype == "category"]
    buffer = BytesIO()
    frame.to_parquet(buffer, engine="pyarrow", index=False, compression="zstd", use_dictionary=categories)
    return buffer.getvalue()


def _encode_index(index: Any) -> tuple[dict[str, Any], bytes]:
    """An index as a description and a Parquet table, which is empty if the description says all."""
    import pandas as pd

    said: dict[str, Any] = {"names": [_pack(name, "a name of the index") for name in index.names]}
    kind = type(index).__name__
    if kind == "RangeIndex":
        return {**said, "range": [index.start, index.stop, index.step]}, b""
    said["multi"] = kind == "MultiIndex"
    said["freq"] = index.freqstr if kind in ("DatetimeIndex", "TimedeltaIndex") else None
    columns, said["levels"] = {}, []
    for i in range(index.nlevels):
        level = index.get_level_values(i)
        text = level.dtype == object and pd.api.types.infer_dtype(level, skipna=False) == "string"
        if level.dtype != object or text:
            columns[str(i)] = pd.Series(level.astype("string") if text else level)
            said["levels"].append({"dtype": str(level.dtype)})
        else:
            said["levels"].append({"values": [_pack(value, "the index") for value in level]})
    try:
        table = _to_parquet(pd.DataFrame(columns)) if columns else b""
        again = _decode_index(said, table)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # pyarrow's and pandas' errors share no base class
        raise TypeError(f"the index, of {_types(index)}, cannot be saved: {error}") from error
    if type(again).__name__ != kind or _types(again) != _types(index) or not again.equals(index):
        raise TypeError(f"the index, of {_types(index)}, cannot be saved: Parquet does not give it back as it was")
    return said, table


def _types(index: Any) -> str:
    return ", ".join(f"{index.get_level_values(i).dtype}" for i in range(index.nlevels))


def _pack(value: Any, what: str) -> Any:
    """A value in JSON's terms; `_unpack` is the way back. `what` it is goes into the error."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_pack(entry, what) for entry in value]}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return {"objects": [_pack(entry, what) for entry in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        kind = "report" if isinstance(value, Report) else "dict"
        return {kind: {key: _pack(entry, what) for key, entry in value.items()}}
    raise TypeError(f"{what} cannot be saved: it holds {value!r}, of type {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------- reading


def _read(file: BinaryIO) -> Any:
    """The model in a file, on the host."""
    with zipfile.ZipFile(file) as archive:
        if "model.json" not in archive.namelist():
            raise _RefusedError(f"{file.name} is an archive, but not a hierarchy that rapids_slink saved")
        content = json.loads(archive.read("model.json"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise _RefusedError(f"{file.name} is an archive, but not a hierarchy that rapids_slink saved")
        if content["version"] > VERSION:
            raise _RefusedError(
                f"{file.name} has version {content['version']} of the format, written by rapids_slink "
                f"{content['written_by']}: this one, {rapids_slink.__version__}, reads versions up to {VERSION}"
            )
        home = import_module(f"rapids_slink.{CLASSES[content['class']]}")
        parameters = {name: _unpack(value) for name, value in content["parameters"].items()}
        model = getattr(home, content["class"])(**parameters)
        for name, said in content["attributes"].items():
            setattr(model, name, _attribute(archive, said))
    _check(model)
    return model


def _attribute(archive: zipfile.ZipFile, said: Any) -> Any:
    import pandas as pd

    def table(part: str) -> Any:
        return pd.read_parquet(BytesIO(archive.read(part)), engine="pyarrow")

    def index(said: dict[str, Any]) -> Any:
        return _decode_index(said, archive.read(said["part"]) if "part" in said else b"")

    kind = next(iter(said)) if isinstance(said, dict) else ""
    if kind == "caller":
        return Caller(*said["caller"])
    if kind == "frame":
        others = {name: pd.Series(index(how)) for name, how in said["others"].items()}
        return table(said["frame"]).assign(**others)[said["columns"]]
    if kind == "series":
        return pd.Series(table(said["series"])["0"].to_numpy(), index=index(said["index"]), name=_unpack(said["name"]))
    if kind == "index":
        return index(said["index"])
    if kind == "array":
        return table(said["array"])["0"].to_numpy()
    return _unpack(said)


def _decode_index(said: dict[str, Any], table: bytes) -> Any:
    import pandas as pd

    names = [_unpack(name) for name in said["names"]]
    if "range" in said:
        start, stop, step = said["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    columns: Any = pd.read_parquet(BytesIO(table), engine="pyarrow") if table else {}
    levels: list[Any] = []
    for i, how in enumerate(said["levels"]):
        if "values" in how:
            levels.append(pd.Index([_unpack(value) for value in how["values"]], dtype=object, tupleize_cols=False))
        else:
            level = pd.Index(columns[str(i)])
            levels.append(level if str(level.dtype) == how["dtype"] else level.astype(how["dtype"]))
    if said["multi"]:
        return pd.MultiIndex.from_arrays(levels, names=names)
    if said["freq"] is not None:
        levels[0].freq = said["freq"]
    return levels[0].set_names(names)


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_unpack(entry) for entry in inner)
    if kind == "objects":
        array = np.empty(len(inner), dtype=object)
        array[:] = [_unpack(entry) for entry in inner]
        return array
    if kind in ("dict", "report"):
        entries = {key: _unpack(entry) for key, entry in inner.items()}
        return Report(entries) if kind == "report" else entries
    raise ValueError(f"there is no kind of value called {kind!r}")


def _check(model: Any) -> None:
    """Raise unless the parts fit each other as well as a cut needs it."""
    n, merges = model.n_leaves_, len(model.linkage_)
    require_columns(model.linkage_, COLUMNS, "linkage")
    require_columns(model.mst_, ("src", "dst", "weight"), "tree")
    if not (isinstance(n, int) and len(model.labels_) == n > merges == len(model.mst_)):
        raise ValueError(f"{len(model.labels_)} labels, {merges} merges, {len(model.mst_)} edges, but {n} leaves")
    if not (isinstance(model.n_clusters_, int) and isinstance(model._caller, Caller)):
        raise ValueError("an attribute is not what it should be")


def _in_kind(name: str, value: Any, caller: Caller) -> Any:
    """The attribute of that name, which is on the host, in the kind that `caller` gets."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return caller.array(value)
    if not _pandas_kind(value):
        return value
    if caller.gpu:
        import cudf

        value = cudf.from_pandas(value)
    return value if name.startswith("_") else caller.dress(value)  # an index for later answers stays bare

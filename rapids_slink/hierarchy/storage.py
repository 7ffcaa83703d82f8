"""Hierarchies in files: `Hierarchy.save` and `load`.

A file is a zip archive, so that every part carries a checksum:

    model.json                format, version, the class, its parameters and the attributes that fit into JSON
    linkage_.parquet, ...     one Parquet table a frame, Series or array
    index.0.parquet           the input's index, its levels as columns

Nothing in it is code: JSON and Parquet are all that is read (encoding.py).
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

from rapids_slink.dendrogram.cutting import COLUMNS, check_linkage
from rapids_slink.hierarchy.encoding import decode_index, encode_index, from_json, pandas_kind, to_json, to_parquet
from rapids_slink.hierarchy.files import replace_file
from rapids_slink.points.columns import require_columns
from rapids_slink.points.output import OutputKind, pandas_is_proxied
from rapids_slink.runtime.device import CPU, gpu_is_usable, resolve
from rapids_slink.version import __version__

if TYPE_CHECKING:
    from rapids_slink.hierarchy.base import Hierarchy

FORMAT = "rapids_slink hierarchy"
VERSION = 1
#: The classes that a file may name, and the modules they live in.
CLASSES = {"GraphHierarchy": "graph", "HDBSCAN": "hdbscan", "SingleLinkage": "single_linkage"}
#: What a file calls the attribute that holds the kind of output.
OUTPUT = "_caller"


def save(model: Hierarchy, path: str | PathLike[str]) -> None:
    """`Hierarchy.save`."""
    _require_pyarrow()
    name = type(model).__name__
    if CLASSES.get(name) != type(model).__module__.removeprefix("rapids_slink."):
        raise TypeError(f"only {', '.join(CLASSES)} can be saved, got {name}")
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
    SingleLinkage, HDBSCAN or GraphHierarchy
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
    on = resolve(device)
    path = Path(path)
    with path.open("rb") as file:
        try:
            with _plain_pandas():
                model = _read(file)
        except (_RefusedError, MemoryError):
            raise
        except Exception as error:  # a damaged archive may fail in any way
            file.seek(0)
            what = "is damaged or cut short" if file.read(2) == b"PK" else "is not a hierarchy that rapids_slink saved"
            raise ValueError(f"{path} {what}: {error}") from error
    model._output = _output_now(model._output, on.is_gpu if device != "auto" else None)
    for name, value in vars(model).items():
        setattr(model, name, _in_kind(name, value, model._output))
    return model


def _output_now(saved: OutputKind, gpu: bool | None) -> OutputKind:
    """The kind of output in this process, on the GPU or not: what was a pandas frame is one, as a proxy or not."""
    proxied = pandas_is_proxied()
    if gpu is None:
        gpu = saved.gpu and (proxied or not saved.proxy) and gpu_is_usable()
    return OutputKind(saved.is_frame, gpu, proxied and saved.is_frame and (saved.proxy or not gpu))


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
    fitted = {name: value for name, value in model.__getstate__().items() if name not in parameters}
    if "_output" in fitted:
        fitted["_output"] = model._output
    with zipfile.ZipFile(draft, "w") as archive:
        writer = _Writer(archive)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "written_by": __version__,
            "class": type(model).__name__,
            "parameters": {name: to_json(value, f"the parameter {name}") for name, value in parameters.items()},
            "attributes": {
                OUTPUT if name == "_output" else name: writer.attribute(name, value) for name, value in fitted.items()
            },
        }
        archive.writestr("model.json", json.dumps(content, indent=1, allow_nan=False))


class _Writer:
    """Puts attributes into an archive and says how and where they are."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.indexes: list[tuple[Any, dict[str, Any]]] = []

    def attribute(self, name: str, value: Any) -> Any:
        import pandas as pd

        if isinstance(value, OutputKind):
            return {"caller": [value.is_frame, value.gpu, value.proxy]}
        kind = pandas_kind(value)
        if kind == "DataFrame":
            return self.frame(name, value)
        if kind == "Series":
            values = self.table(f"{name}.parquet", pd.DataFrame({"0": value.to_numpy()}))
            return {
                "series": values,
                "name": to_json(value.name, f"the name of {name}"),
                "index": self.index(value.index),
            }
        if kind == "Index":
            return {"index": self.index(value)}
        if isinstance(value, np.ndarray) and value.dtype != object:
            return {"array": self.table(f"{name}.parquet", pd.DataFrame({"0": value}))}
        return to_json(value, f"the attribute {name}")

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
        self.archive.writestr(part, to_parquet(frame))
        return part

    def index(self, index: Any) -> dict[str, Any]:
        """Write an index, unless it has been written already for another attribute."""
        for known, spec in self.indexes:
            if known.identical(index):
                return spec
        spec, table = encode_index(index)
        if table:
            spec["part"] = f"index.{len(self.indexes)}.parquet"
            self.archive.writestr(spec["part"], table)
        self.indexes.append((index, spec))
        return spec


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
                f"{content['written_by']}: this one, {__version__}, reads versions up to {VERSION}"
            )
        home = import_module(f"rapids_slink.{CLASSES[content['class']]}")
        parameters = {name: from_json(value) for name, value in content["parameters"].items()}
        model = getattr(home, content["class"])(**parameters)
        for name, spec in content["attributes"].items():
            setattr(model, "_output" if name == OUTPUT else name, _attribute(archive, spec))
    _check(model)
    return model


def _attribute(archive: zipfile.ZipFile, spec: Any) -> Any:
    import pandas as pd

    def table(part: str) -> Any:
        return pd.read_parquet(BytesIO(archive.read(part)), engine="pyarrow")

    def index(spec: dict[str, Any]) -> Any:
        return decode_index(spec, archive.read(spec["part"]) if "part" in spec else b"")

    kind = next(iter(spec)) if isinstance(spec, dict) else ""
    if kind == "caller":
        return OutputKind(*spec["caller"])
    if kind == "frame":
        others = {name: pd.Series(index(column)) for name, column in spec["others"].items()}
        return table(spec["frame"]).assign(**others)[spec["columns"]]
    if kind == "series":
        return pd.Series(
            table(spec["series"])["0"].to_numpy(), index=index(spec["index"]), name=from_json(spec["name"])
        )
    if kind == "index":
        return index(spec["index"])
    if kind == "array":
        return table(spec["array"])["0"].to_numpy()
    return from_json(spec)


def _check(model: Any) -> None:
    """Raise unless the linkage is a dendrogram, and the parts fit each other."""
    n, merges = model.n_leaves_, len(model.linkage_)
    require_columns(model.linkage_, COLUMNS, "linkage")
    require_columns(model.mst_, ("src", "dst", "weight"), "tree")
    if not (isinstance(n, int) and len(model.labels_) == n > merges == len(model.mst_)):
        raise ValueError(f"{len(model.labels_)} labels, {merges} merges, {len(model.mst_)} edges, but {n} leaves")
    check_linkage(model.linkage_, n, CPU, is_forest=True)
    left, right, size = (model.linkage_[name].to_numpy() for name in ("left", "right", "size"))
    sizes = np.concatenate([np.ones(n, size.dtype), size])
    if not np.array_equal(sizes[left] + sizes[right], size):
        raise ValueError("column 'size' of the linkage must hold how many leaves each cluster has")
    if not (isinstance(model.n_clusters_, int) and isinstance(model._output, OutputKind)):
        raise ValueError("an attribute is not what it should be")


def _in_kind(name: str, value: Any, output: OutputKind) -> Any:
    """The attribute of that name, which is on the host, in that kind of output."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return output.array(value)
    if not pandas_kind(value):
        return value
    if output.gpu:
        import cudf

        value = cudf.from_pandas(value)
    return value if name.startswith("_") else output.wrap_proxy(value)  # not a proxy: it is an index for later results

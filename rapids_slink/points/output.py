"""Results in the type of the input: pandas or cuDF, NumPy or CuPy, proxies of ``cudf.pandas``.

No GPU package is imported here unless the caller's object comes from one.
"""

import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu, to_host

#: cuML's output types that name a library: whether it has frames, and whether it is on the GPU.
CUML_KINDS = {"numpy": (False, False), "cupy": (False, True), "pandas": (True, False), "cudf": (True, True)}


@dataclass(frozen=True)
class OutputKind:
    """The type of the caller's input, and conversions of results to it."""

    is_frame: bool  # a DataFrame or Series, not an array
    gpu: bool  # from cuDF or in GPU memory, not from pandas, NumPy or plain Python
    proxy: bool = False  # a proxy of ``cudf.pandas``; the results are proxies, too

    @classmethod
    def of(cls, X: Any, device: Device) -> tuple[Any, Self]:
        """`X`, without its proxy if it has one, and its kind."""
        X, proxy = without_proxy(X, device)
        return X, cls(is_frame=bool(library_of(X)), gpu=is_on_gpu(X), proxy=proxy)

    def from_cuml_setting(self) -> Self:
        """The kind that cuML's global output type names; this kind if cuML is not loaded or names none.

        ``cuml.accel`` sets that type for the estimators that it replaces, so it does not count there.
        """
        accelerator = sys.modules.get("cuml.accel")
        if accelerator is not None and accelerator.enabled():
            return self
        settings = getattr(sys.modules.get("cuml"), "global_settings", None)
        kind = CUML_KINDS.get(str(getattr(settings, "output_type", None)))
        return self if kind is None else type(self)(*kind)

    def array(self, array: Array) -> Any:
        """An array of either device as an array of NumPy or CuPy."""
        return self.wrap_proxy(self._move(array))

    def series(self, array: Array, index: Any = None, name: str | None = None) -> Any:
        """An array of either device as a Series of pandas or cuDF."""
        return self.wrap_proxy(self._frames().Series(self._move(array), index=self.index(index), name=name))

    def labels(self, array: Array, index: Any = None, name: str = "label") -> Any:
        """One value per row: a Series for a frame, an array for an array."""
        return self.series(array, index=index, name=name) if self.is_frame else self.array(array)

    def frame(self, frame: Any, index: Any = None) -> Any:
        """A frame of either device as a frame of pandas or cuDF, with this `index` if it is not None."""
        on_gpu = library_of(frame) == "cudf"
        if on_gpu and not self.gpu:
            frame = frame.to_pandas()
        elif self.gpu and not on_gpu:
            frame = self._frames().from_pandas(frame)
        if index is not None:
            frame.index = self.index(index)
        return self.wrap_proxy(frame)

    def wrap_proxy(self, result: Any) -> Any:
        """A result of the caller's library as a proxy, if the input was one."""
        return sys.modules["cudf.pandas"].as_proxy_object(result) if self.proxy else result

    def index(self, index: Any) -> Any:
        """An Index of either library as one of the caller's."""
        if library_of(index) == "cudf" and not self.gpu:
            return index.to_pandas()
        return self._frames().from_pandas(index) if self.gpu and library_of(index) == "pandas" else index

    def _move(self, array: Array) -> Any:
        if not self.gpu:
            return to_host(without_proxy(array, CPU)[0])
        import cupy

        return cupy.asarray(array)

    def _frames(self) -> Any:
        if self.gpu:
            import cudf

            return cudf
        return CPU.frames


def library_of(X: Any) -> str:
    """The library of a DataFrame, Series or Index: "pandas" or "cudf"; "" for anything else."""
    kind: Any = type(X)
    return _library_of_type(kind)


@cache
def _library_of_type(kind: type) -> str:
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("pandas", "cudf") and base.__name__ in ("DataFrame", "Series", "Index"):
            return package
    return ""


def array_of(X: Any) -> Any:
    """The values of a DataFrame or Series as an array: CuPy's for cuDF, NumPy's for pandas."""
    return X.values if library_of(X) == "cudf" else X.to_numpy()


def is_dataframe(X: Any) -> bool:
    """Whether this is a DataFrame of pandas or cuDF."""
    return bool(library_of(X)) and getattr(X, "ndim", 0) == 2 and hasattr(X, "columns")


def column_names(X: Any) -> list[Any] | None:
    """The columns' labels of a frame, also those of other libraries such as Polars and Arrow; None for an array."""
    if is_dataframe(X):
        return list(X)  # iterating over X.columns is slow
    names = next((getattr(X, name) for name in ("column_names", "columns") if hasattr(X, name)), None)
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def is_collection(X: Any) -> bool:
    """Whether this is a Dask collection."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def without_proxy(X: Any, device: Device) -> tuple[Any, bool]:
    """The object inside a ``cudf.pandas`` proxy: on a GPU cuDF's, unless only pandas can hold its values.

    A Dask collection is computed.
    """
    if is_collection(X):
        X = X.compute()
    module = sys.modules.get("cudf.pandas")
    if module is None or not module.is_proxy_object(X):
        return X, False
    if device.is_gpu:
        try:
            return X.as_gpu_object(), True
        except (TypeError, ValueError, NotImplementedError):  # mixed objects: the checks below name the column
            pass
    return X.as_cpu_object(), True


def on_device(frame: Any, device: Device) -> Any:
    """A frame of pandas or cuDF (without a proxy) as one of `device`."""
    return OutputKind(is_frame=True, gpu=device.is_gpu).frame(frame)


def on_host(value: Any) -> Any:
    """A result on the host: cuDF's objects and proxies become pandas', CuPy's arrays NumPy's. Others stay."""
    if isinstance(value, OutputKind):
        return replace(value, gpu=False, proxy=False)
    value, _ = without_proxy(value, CPU)
    if not is_on_gpu(value):
        return value
    return value.to_pandas() if hasattr(value, "to_pandas") else to_host(value)


def pandas_is_proxied() -> bool:
    """Whether ``cudf.pandas`` stands in for pandas in this process."""
    return bool(getattr(sys.modules.get("cudf.pandas"), "LOADED", False))

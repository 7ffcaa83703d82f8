"""The two devices that the pipeline runs on.

A device provides the array module and the frame module:

    device.xp        numpy     or cupy
    device.frames    pandas    or cudf

A folder with kernels for both devices has modules `cpu` and `cuda`, of which `half` returns the device's. A function of
both has the same result.

Of several GPUs the current one serves a call. Arrays on another one are copied: a raw kernel takes a pointer to the
memory of another GPU, but cannot read that memory.
"""

import importlib
import importlib.util
import pickle
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

#: NumPy's array on a CPU, CuPy's on a GPU. It is only a name, because CuPy is an optional dependency.
Array: TypeAlias = Any

DEVICE_NAMES = ("auto", "cpu", "cuda")


class DeviceUnavailableError(ValueError):
    """``device="cuda"`` was given and there is no usable GPU."""


@dataclass(frozen=True)
class Device:
    """Where a pipeline runs."""

    name: str  # {"cpu", "cuda"}
    xp: ModuleType  # NumPy or CuPy

    @cached_property
    def is_gpu(self) -> bool:
        """Return whether this is a GPU."""
        return self.name == "cuda"

    @property
    def frames(self) -> ModuleType:
        """Return the frame module: pandas or cuDF."""
        return importlib.import_module("cudf" if self.is_gpu else "pandas")

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        """Return `array` on this device, copied only if it has to be."""
        if self.is_gpu:
            return self.xp.asarray(on_current_gpu(array), dtype=dtype)
        return to_host(array) if dtype is None else to_host(array).astype(dtype, copy=False)

    def synchronize(self) -> None:
        """Wait for the work of the current stream."""
        if self.is_gpu:
            stream_resources(self.xp.cuda.get_current_stream().ptr, current_gpu()).sync()


CPU = Device("cpu", np)


def all_true(flags: Any) -> bool:
    """Return whether all booleans of an array are true. The kernel of CuPy's own `all` takes seconds to compile."""
    return not flags.size or bool(flags.view("int8").min())


def share_true(flags: Any) -> float:
    """Return the share of true booleans in an array. The kernel of CuPy's own `mean` takes seconds to compile."""
    return float(flags.astype("float64").sum()) / flags.size


@cache
def stream_resources(stream: int, _gpu: int) -> Any:
    """Return RAFT's handle over the current GPU's stream at this address, to wait for the GPU.

    Without pylibraft it is an object with the same method.
    """
    if importlib.util.find_spec("pylibraft") is None:
        return _Stream(stream)
    from pylibraft.common import DeviceResources

    return DeviceResources(stream=stream)


class _Stream:
    def __init__(self, stream: int) -> None:
        self._stream = stream

    def sync(self) -> None:
        sys.modules["cupy"].cuda.runtime.streamSynchronize(self._stream)


def is_on_gpu(x: Any) -> bool:
    """Return whether `x` (array, sparse matrix, frame or series) lives in GPU memory."""
    if type(x) is np.ndarray:
        return False
    package = _package(x)
    if package in ("cudf", "cupy", "cupyx"):
        return True
    if package == "pandas" and "cudf.pandas" not in sys.modules:  # else it may be a proxy of a GPU's
        return False  # a failed attribute lookup of a frame builds an index of its columns
    if isinstance(x, np.ndarray | type):  # a class has the attributes of its objects
        return False
    kind = getattr(x, "__dlpack_device__", None)  # first: a tensor of float8 has no interface, and raises for it
    if kind is not None and int(kind()[0]) == 2:  # kDLCUDA
        return True
    return hasattr(x, "__cuda_array_interface__")


@cache
def has_several_gpus() -> bool:
    """Return whether this process sees more than one GPU."""
    return int(sys.modules["cupy"].cuda.runtime.getDeviceCount()) > 1


def current_gpu() -> int:
    """Return the number of the current GPU."""
    return int(sys.modules["cupy"].cuda.runtime.getDevice())


def is_elsewhere(x: Any) -> bool:
    """Return whether an array, a sparse matrix, or an object of cuDF is on a GPU that is not the current one."""
    return is_on_gpu(x) and has_several_gpus() and _gpu_of(x) != current_gpu()


def on_current_gpu(x: Any) -> Any:
    """Return `x`, copied to the current GPU if it is on another one.

    An array goes from one GPU to the other. An object of several arrays, such as a frame, goes by way of the host.
    """
    if not is_elsewhere(x):
        return x
    cupy, by_host = sys.modules["cupy"], _package(x) in ("cudf", "cupyx")
    with cupy.cuda.Device(_gpu_of(x)) as its_own:
        source: Any = pickle.dumps(x, protocol=5) if by_host else cupy.ascontiguousarray(cupy.asarray(x))
        its_own.synchronize()  # nothing orders a copy between two GPUs after the work of the other one
    return pickle.loads(source) if by_host else source.copy()


def _gpu_of(x: Any) -> int:
    """Return the number of the GPU that holds an object; that of the current one if it holds nothing."""
    parts = {"cudf": lambda: x.device_serialize()[1], "cupyx": lambda: vars(x).values()}.get(_package(x), lambda: [x])
    for part in parts():
        described = getattr(part, "__cuda_array_interface__", None)
        if described and described["data"][0]:
            gpu = int(sys.modules["cupy"].cuda.runtime.pointerGetAttributes(described["data"][0]).device)
            return gpu if gpu >= 0 else current_gpu()  # the host's memory, which all GPUs read
    return current_gpu()


def _package(x: Any) -> str:
    return str(type(x).__module__).partition(".")[0]


@cache
def gpu_is_usable() -> bool:
    """Return whether CuPy and cuDF are installed and there is a GPU."""
    if importlib.util.find_spec("cupy") is None or importlib.util.find_spec("cudf") is None:
        return False
    import cupy

    return bool(cupy.is_available())


@cache
def cuda() -> Device:
    """Return the GPU, whether or not it is usable."""
    import cupy

    return Device("cuda", cupy)


@cache
def half(device: Device, package: str) -> ModuleType:
    """Return the module `cpu` or `cuda` of a package; a function that both have gives the same result in both."""
    return importlib.import_module(f"{package}.{device.name}")


def device_of(x: Any) -> Device:
    """Return the device that an array or a frame is on."""
    return cuda() if is_on_gpu(x) else CPU


def check_device_name(name: str) -> str:
    """Return the parameter ``device``; raise ValueError if it names no device. The device may be missing."""
    if name not in DEVICE_NAMES:
        raise ValueError(f"device must be one of {', '.join(map(repr, DEVICE_NAMES))}, got {name!r}")
    return name


def resolve(name: str, *inputs: Any) -> Device:
    """Return the device for a run.

    ``"auto"`` is the GPU if there is one and cuDF is installed, or if an input lives on it; otherwise the CPU.
    ``"cuda"`` never falls back.
    """
    if check_device_name(name) == "cpu":
        return CPU
    if name == "cuda":
        if not gpu_is_usable():
            raise DeviceUnavailableError(
                "device='cuda' needs an NVIDIA GPU with CuPy and cuDF (pip install 'rapids_slink[cu13]'), and there is "
                "none. Use device='cpu' or device='auto'."
            )
        return cuda()
    return resolve("cuda") if any(is_on_gpu(x) for x in inputs) or gpu_is_usable() else CPU


def to_host(array: Any) -> np.ndarray:
    """Return `array` as a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        import cupy

        return cupy.asnumpy(cupy.asarray(on_current_gpu(array)))
    return np.asarray(array)

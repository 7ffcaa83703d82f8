"""GPUs that compute nothing: CuPy's names over NumPy's arrays. Launchers are tested by what they would launch."""

import importlib.machinery
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import numpy as np

from rapids_slink.runtime import cuda, device

#: Technical specifications by compute capability, in the words of NVIDIA's CUDA C++ Programming Guide, chapter "Compute
#: Capabilities": bytes of shared memory of a block (by opting in) and of a multiprocessor, resident threads and blocks
#: of a multiprocessor. Every capability has 48 KiB of a block without opting in, 1,024 threads a block, 65,536
#: registers of a block and of a multiprocessor, and 255 registers a thread.
KIB = 1024
CAPABILITIES = {
    75: (64 * KIB, 64 * KIB, 1024, 16),
    80: (163 * KIB, 164 * KIB, 2048, 32),
    86: (99 * KIB, 100 * KIB, 1536, 16),
    87: (163 * KIB, 164 * KIB, 1536, 16),
    89: (99 * KIB, 100 * KIB, 1536, 24),
    90: (227 * KIB, 228 * KIB, 2048, 32),
    100: (227 * KIB, 228 * KIB, 2048, 32),
    120: (99 * KIB, 100 * KIB, 1536, 24),
}
WITHOUT_OPTING_IN, BLOCK_THREADS, REGISTERS, THREAD_REGISTERS = 48 * KIB, 1024, 65_536, 255
MULTIPROCESSORS = 10
CONSTANT_MEMORY = 64 * KIB  # of a module
FREE_BYTES = 2**36


@dataclass
class Launch:
    """What a launcher has asked for."""

    code: str  # of the source
    options: tuple[str, ...]
    kernel: str
    grid: tuple[int, ...]
    threads: int
    arguments: tuple
    shared_memory: int
    limit: int  # of the kernel's dynamic shared memory, 0 if it has not been set
    resident: bool  # whether its blocks wait for each other


class FakeArray(np.ndarray):
    """An array on the GPU that was the current one when it was made."""

    __module__ = "cupy"

    def __array_finalize__(self, base):
        self.gpu = getattr(base, "gpu", FakeGpu.current)

    @property
    def device(self):
        return SimpleNamespace(id=self.gpu)

    @property
    def data(self):
        def memset_async(value, size):
            self.reshape(-1).view(np.uint8)[:size] = value

        return SimpleNamespace(ptr=self.ctypes.data, device_id=self.gpu, memset_async=memset_async)

    @property
    def __cuda_array_interface__(self):
        FakeGpu.holders[self.ctypes.data] = self.gpu
        return self.__array_interface__

    def get(self):
        return np.array(self)

    def set(self, values):
        self[...] = values

    def copy(self, order="C"):
        return np.array(self, order=order).view(FakeArray)  # on the current GPU


@dataclass
class FakeDevice:
    """As CuPy's Device: a block in which it is the current one."""

    id: int
    attributes: dict[str, int]

    def __enter__(self):
        self.before, FakeGpu.current = FakeGpu.current, self.id
        return self

    def __exit__(self, *_):
        FakeGpu.current = self.before

    def synchronize(self):
        pass


@dataclass
class Kernel:
    """As CuPy's RawKernel."""

    gpu: "FakeGpu"
    code: str
    options: tuple[str, ...]
    name: str
    max_dynamic_shared_size_bytes: int = 0

    def __call__(self, grid, block, arguments, shared_mem=0, enable_cooperative_groups=False):
        (threads,), limit = block, self.max_dynamic_shared_size_bytes
        of_kernel = self.code, self.options, self.name
        launch = Launch(*of_kernel, grid, threads, arguments, shared_mem, limit, enable_cooperative_groups)
        self.gpu.launches.append(launch)
        self.gpu.run(launch)

    @property
    def kernel(self):
        return self

    @property
    def ptr(self):
        return self


@dataclass
class FakeGpu:
    """GPUs of one compute capability, of which one is current."""

    capability: int
    count: int = 1
    launches: list[Launch] = field(default_factory=list)
    constants: dict[str, bytearray] = field(default_factory=dict)  # constant memory by symbol, of the last module
    run: Callable = lambda launch: None  # what kernels do
    resident: Callable = lambda kernel, threads, shared_memory: 1  # how many blocks a multiprocessor holds
    compile: Callable = lambda code, options: None  # what compiles a module
    current, holders = 0, {}  # of all: GPUs by the pointers of their arrays

    def blocks_of(self, kernel, threads, shared_memory):
        return self.resident(kernel, threads, shared_memory)

    def raw_module(self, code, options):
        """Return what CuPy's RawModule is, which takes no subclass of str.

        Names that the text defines first are options again.
        """
        assert all(type(option) is str and not option.startswith("-D") for option in options)
        names, code = re.fullmatch(r"((?:#define .*\n)*)((?s:.*))", code).groups()
        options += tuple("-D" + name.removeprefix("#define ").replace(" ", "=", 1) for name in names.splitlines())
        return SimpleNamespace(
            get_function=lambda name: Kernel(self, code, options, name),
            get_global=lambda symbol: self.constants.setdefault(symbol, bytearray(CONSTANT_MEMORY)),
            compile=lambda: self.compile(code, options),
        )

    def module(self):
        """Return a stand-in for CuPy."""
        block, multiprocessor, *_ = CAPABILITIES[self.capability]
        numbers = {75: self.capability // 10, 76: self.capability % 10, 16: MULTIPROCESSORS, 97: block}
        names = {"MaxSharedMemoryPerBlockOptin": block, "MaxSharedMemoryPerMultiprocessor": multiprocessor}
        module = ModuleType("cupy")
        module.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
        module.__version__ = "14"
        for name in dir(np):
            if not name.startswith("_"):
                setattr(module, name, on_gpu(getattr(np, name)))
        for make in (np.zeros, np.full, np.arange, np.array):
            setattr(module, make.__name__, lambda *given, make=make, **more: make(*given, **more).view(FakeArray))
        module.asarray = on_current
        module.ascontiguousarray = lambda array, dtype=None: np.ascontiguousarray(array, dtype).view(FakeArray)
        module.empty = lambda shape, dtype=float: np.ones(shape, dtype).view(FakeArray)  # one is a number of something
        module.empty_like = lambda array: module.empty(array.shape, array.dtype)
        module.ndarray = FakeArray
        module.cublas = SimpleNamespace(CUBLAS_OP_N=0, CUBLAS_OP_T=1, gemmEx=lambda *given: None)
        module.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 0)
        module.asnumpy = np.array
        runtime = SimpleNamespace(
            getDevice=lambda: FakeGpu.current, deviceGetAttribute=lambda which, _: numbers[which],
            getDeviceCount=lambda: self.count, memGetInfo=lambda: (FREE_BYTES, FREE_BYTES),
            pointerGetAttributes=lambda pointer: SimpleNamespace(device=FakeGpu.holders[pointer]),
        )  # fmt: skip
        driver = SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=self.blocks_of)
        module.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, Device=lambda gpu: FakeDevice(gpu, names),
            device=SimpleNamespace(get_cublas_handle=lambda: 0),
            nvtx=SimpleNamespace(RangePush=lambda name: None, RangePop=lambda: None),
            get_current_stream=lambda: SimpleNamespace(ptr=0),
        )  # fmt: skip
        module.RawModule = self.raw_module
        return module


def on_gpu(function):
    """Return NumPy's function with results on the GPU; what is no function is returned as it is."""
    if type(function).__name__ not in ("function", "builtin_function_or_method", "_ArrayFunctionDispatcher"):
        return function

    def of_gpu(*given, **more):
        result = function(*given, **more)
        if type(result) is tuple:
            return tuple(part.view(FakeArray) if type(part) is np.ndarray else part for part in result)
        return result.view(FakeArray) if type(result) is np.ndarray else result

    return of_gpu


#: The modules of CuPy that the package imports.
FAKED = "cupy", "cupy_backends.cuda.libs"


def on_current(array, dtype=None):
    """Return an array as ``cupy.asarray`` does: copied if it is on another GPU.

    CuPy cannot copy an array that is not contiguous: NotImplementedError.
    """
    if isinstance(array, FakeArray) and array.gpu == FakeGpu.current:
        return np.asarray(array, dtype).view(FakeArray) if dtype else array
    if isinstance(array, FakeArray) and not array.flags.forc:
        raise NotImplementedError
    return np.array(np.asarray(array), dtype).view(FakeArray)


@contextmanager
def fake_gpu(capability=80, count=1):
    """Run a block in which the package takes its arrays and kernels from a `FakeGpu`, which this yields."""
    gpu = FakeGpu(capability, count)
    module = gpu.module()
    caches = (
        cuda._kernel_on, cuda._cuda_module, cuda._most_resident, device.cuda, device.gpu_is_usable,
        device.has_several_gpus, cuda._attribute_of,
    )  # fmt: skip
    held, before = {name: sys.modules.get(name) for name in FAKED}, taken_out()
    stream_resources, device.stream_resources = device.stream_resources, lambda *_: SimpleNamespace(sync=lambda: None)
    sys.modules.update(dict.fromkeys(FAKED, module))
    try:
        for cached in caches:
            cached.cache_clear()
        cuda._ahead.clear()
        cuda._handed_over.clear()
        cuda._constant_memory.clear()
        yield gpu
    finally:
        FakeGpu.current, device.stream_resources = 0, stream_resources
        taken_out()
        for name, of_device in before.items():
            sys.modules[name] = of_device
            parent, _, own = name.rpartition(".")
            setattr(sys.modules[parent], own, of_device)
        for name in FAKED:
            del sys.modules[name]
        sys.modules.update((name, of_device) for name, of_device in held.items() if of_device)
        for cached in caches:
            cached.cache_clear()


def taken_out():
    """Take the package's modules that hold CuPy out of `sys.modules`, and return them by their names."""
    names = [name for name, module in sys.modules.items() if name.startswith("rapids_slink.") and "cp" in vars(module)]
    modules = {name: sys.modules.pop(name) for name in names}
    for name in names:
        parent, _, own = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(own, None)
    return modules

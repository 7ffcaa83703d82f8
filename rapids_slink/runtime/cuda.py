"""CUDA sources, their compilation and launches. Modules that hold arrays on a GPU import CuPy; this one does not."""

import ast
import hashlib
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from rapids_slink.runtime.compiling import compiling, hash_of_sources
from rapids_slink.runtime.device import current_gpu, has_several_gpus
from rapids_slink.runtime.memory import usable_cores

#: The number of threads of a block, in kernels with one thread per job.
THREADS = 256
#: A null pointer, as a kernel's argument.
NULL = np.uintp(0)
MIN_SHARED_MEMORY = 48 * 1024  # bytes that a block has on every GPU
MAJOR, MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
#: The beginning of the names of the threads that compile.
COMPILERS = "rapids_slink-compile"
#: What threads compile or have compiled. A key is a GPU with a source and its options.
_ahead: dict[tuple[Any, ...], Future[None]] = {}
#: The work that was handed over on a GPU. It is kept because to look for its file takes a tenth of a small fit's time.
_handed_over: set[tuple[Any, ...]] = set()
#: By a GPU, a source and its options: what the source's constant memory holds, and the lock that a thread holds while
#: it loads the source, or writes this memory and launches a kernel.
_constant_memory: dict[tuple[Any, ...], bytes] = {}
_locks: dict[tuple[Any, ...], threading.Lock] = {}
#: A context in place of a lock where threads share nothing.
UNLOCKED = nullcontext()
#: The operations by which a constant may be made of others.
OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
}  # fmt: skip
#: NumPy's types as C++ calls them.
C_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip
#: C++'s types as NumPy calls them; the last names are those of our sources.
NUMPY_NAMES = {
    **{name: dtype for dtype, name in C_NAMES.items()},
    "unsigned": "uint32", "u32": "uint32", "u64": "uint64", "word": "uint64", "word_t": "uint64",
    "byte": "uint8", "int2": "int32", "int4": "int32", "float2": "float32", "double2": "float64",
}  # fmt: skip


@cache
def cuda_source(source: str) -> str:
    """Return the text of a ``.cu`` file, named by its path in this package, with each of our headers inserted once.

    CuPy's compile cache does not look into an ``#include``: otherwise the old machine code would stay in use after a
    header changed.
    """
    return _with_headers(source, set())


def _with_headers(source: str, included: set[str]) -> str:
    lines = []
    for line in (Path(__file__).parent.parent / source).read_text().splitlines():
        header = line.split('"')[1] if line.startswith('#include "') else ""
        if not header:
            lines.append(line)
        elif header not in included:
            included.add(header)
            lines.append(_with_headers(header, included))
    return "\n".join(lines) + "\n"


@cache
def constant(source: str, name: str) -> int:
    """Return a whole number that a ``.cu`` file or a header defines.

    An example is BLOCKS of ``constexpr int SIDE = 3, BLOCKS = 2 * SIDE;``. It may be made of others by arithmetic, but
    not of what an option sets. Numbers that a kernel and its launcher share stand in the source alone. Raises
    LookupError if there is none of this name, or more than one.
    """
    values = [value for of, value in _constants(source) if of == name]
    if len(values) != 1:
        raise LookupError(f"{source} has {len(values)} constants {name}")

    def number(node: ast.AST) -> int:
        match node:
            case ast.Constant(int(value)):
                return value
            case ast.Name(other):
                return constant(source, other)
            case ast.UnaryOp(ast.USub(), operand):
                return -number(operand)
            case ast.BinOp(left, operation, right) if type(operation) in OPERATIONS:
                return OPERATIONS[type(operation)](number(left), number(right))
        raise SyntaxError

    try:
        return number(ast.parse(values[0].replace("/", "//"), mode="eval").body)
    except SyntaxError:
        raise LookupError(f"{name} of {source} is no number of its own: {values[0]}") from None


@cache
def _constants(source: str) -> list[tuple[str, str]]:
    """Return the names and values of a source's own constants."""
    declared = re.findall(r"^constexpr ([^;]*);", cuda_source(source), re.MULTILINE)
    pairs = [pair for text in declared for pair in re.findall(r"(\w+) = ([^,]*)", text)]
    return [(name, re.sub(r"\b(0x\w+?|\d+)(?:[uU]|[lL]){1,3}\b", r"\1", value.strip())) for name, value in pairs]


#: The number of threads that run together.
WARP = constant("runtime/include/threads.cuh", "WARP")


@cache
def _cuda_module(source: str, options: tuple[str, ...]) -> Any:
    """Return a source as CuPy compiles and loads it; its text defines the names of the options.

    They are not passed as options, because CuPy compiles an empty program for each set of options, in every process.
    """
    names = [option.removeprefix("-D").replace("=", " ", 1) for option in options if option.startswith("-D")]
    others = [str(option) for option in options if not option.startswith("-D")]  # CuPy takes no subclass
    code = "".join(f"#define {name}\n" for name in names) + cuda_source(source)
    return sys.modules["cupy"].RawModule(code=code, options=("--std=c++17", *others))


def cuda_kernel(source: str, name: str, options: tuple[str, ...] = ()) -> Any:
    """Return a kernel of the ``.cu`` file `source`, which is compiled once per process, GPU and set of options.

    Short runs have hundreds of launches, and each looks its kernel up: hence the cache by strings.
    """
    return _kernel_on(current_gpu(), source, name, options)


@cache
def _kernel_on(gpu: int, source: str, name: str, options: tuple[str, ...]) -> Any:
    """Return a kernel on the current GPU."""
    with compiling():
        ahead = _ahead.get((gpu, source, *options))
        if ahead is not None and not ahead.cancel():  # no thread has begun what can be cancelled
            wait([ahead])  # an error of the thread is raised below, again
        with _lock_of(source, options):
            return _cuda_module(source, options).get_function(name)


def _lock_of(source: str, options: tuple[str, ...]) -> threading.Lock:
    """Return the lock of a source on the current GPU.

    Without it CuPy would load the source, and its constant memory, for each of two threads.
    """
    return _locks.setdefault((current_gpu(), source, *options), threading.Lock())


#: A source with its options.
Ahead: TypeAlias = tuple[str, ...]


def compile_ahead(work: Sequence[Ahead]) -> None:
    """Let threads compile sources for the current GPU.

    This thread goes on, and `cuda_kernel` waits only for its own source. NVRTC optimizes the programs of several
    threads at the same time, but reads one after another, each in 10 to 40 ms. So few programs are handed over, each a
    whole source. The work comes in the order of the first launches. Where there are few cores, this thread overtakes
    the others, and compiles sources that no thread has begun. Once all kernels are in CuPy's cache, a file there says
    so. Then each launch loads its own source, and no thread loads sources that are not launched.
    """
    gpu = current_gpu()
    if (gpu, *work) in _handed_over:
        return
    _handed_over.add((gpu, *work))
    mark = _mark_of(work)
    if mark is not None and mark.exists():
        return
    new = {(gpu, *item): partial(_compile, item[0], item[1:]) for item in work if (gpu, *item) not in _ahead}
    if new:
        threads = ThreadPoolExecutor(max(1, usable_cores() - 1), COMPILERS)
        _ahead.update({key: threads.submit(_call_on, gpu, job) for key, job in new.items()})
        if mark is not None:
            threads.submit(_mark_if_compiled, mark, [_ahead[key] for key in new])
        threads.shutdown(wait=False)  # each ends when nothing is left


def _compile(source: str, options: tuple[str, ...]) -> None:
    with _lock_of(source, options):
        _cuda_module(source, options).compile()


def _call_on(gpu: int, function: Callable[[], object]) -> None:
    if not threading.main_thread().is_alive():
        raise RuntimeError("Python is about to end")
    with sys.modules["cupy"].cuda.Device(gpu):
        function()


def _mark_of(work: Sequence[Ahead]) -> Path | None:
    """Return the file that says that this work's kernels are in CuPy's cache; None if the cache is not on disk."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    made_of = hash_of_sources(), sys.modules["cupy"].__version__, capability(), *work
    name = f"rapids_slink-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}"
    return Path(os.environ.get("CUPY_CACHE_DIR") or Path("~/.cupy/kernel_cache").expanduser(), name)


def _mark_if_compiled(mark: Path, kernels: list[Future[None]]) -> None:
    wait(kernels)
    if all(kernel.cancelled() or kernel.exception() is None for kernel in kernels):
        with suppress(OSError):
            mark.touch()


class ConstantOption(str):
    """An option that says how many entries a source's constant memory has, and the bytes that a launch writes there.

    It equals the option of other bytes: kernels are compiled once for all.
    """

    symbol: str
    value: bytes

    @classmethod
    def of(cls, text: str, symbol: str, value: bytes) -> Self:
        """Return the option of this text, with the bytes that `symbol` of the source is to hold."""
        option = cls(text)
        option.symbol, option.value = symbol, value
        return option

    def write(self, source: str, options: tuple[str, ...]) -> None:
        """Write the bytes into a source's constant memory unless they are there.

        Launches that read other bytes may be under way, and later launches may be on another stream. So the GPU is
        waited for.
        """
        gpu = current_gpu()
        key = gpu, source, *options
        if _constant_memory.get(key) != self.value:
            _constant_memory.pop(key, None)  # until all are written: an interrupt may come
            synchronize = sys.modules["cupy"].cuda.Device(gpu).synchronize
            synchronize()
            memory = _cuda_module(source, options).get_global(self.symbol)
            array = sys.modules["cupy"].ndarray((len(self.value),), "uint8", memory)
            array.set(np.frombuffer(self.value, np.uint8))
            synchronize()
            _constant_memory[key] = self.value


def _start(
    source: str, name: str, options: tuple[str, ...], grid: tuple[int, ...], threads: int, arguments: tuple[Any, ...],
    **more: Any,
) -> None:  # fmt: skip
    """Start a kernel by CuPy, after writing the constant memory that the options hold."""
    kernel = cuda_kernel(source, name, options).kernel
    constants = [option for option in options if isinstance(option, ConstantOption)]
    with _lock_of(source, options) if constants else UNLOCKED:
        for option in constants:
            option.write(source, options)
        kernel(grid, (threads,), arguments, **more)


def launch(source: str, name: str, jobs: int, *arguments: Any, options: tuple[str, ...] = (), items: int = 1) -> None:
    """Start a kernel with a thread for every `items` of the `jobs`; None is a null pointer, arrays are contiguous."""
    if jobs:
        blocks = -(-jobs // (THREADS * items))
        launch_blocks(source, name, (blocks,), THREADS, *arguments, options=options)


def launch_blocks(
    source: str, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, options: tuple[str, ...] = (),
    shared_memory: int = 0,
) -> None:  # fmt: skip
    """Start a kernel with a grid of blocks of `threads` threads each, unless the grid is empty."""
    checked = _checked(source, name, options, arguments)
    if all(grid):
        _start(source, name, options, grid, threads, checked, shared_mem=shared_memory)


def launch_resident(source: str, name: str, jobs: int, *arguments: Any, options: tuple[str, ...] = ()) -> None:
    """Start a cooperative kernel, whose blocks wait for each other, with a thread for every job if there is room.

    The source defines `THREADS`, the threads of a block, and `BLOCKS`, the most blocks of a multiprocessor.
    """
    blocks, threads = resident_blocks(source, name, jobs, options), constant(source, "THREADS")
    checked = _checked(source, name, options, arguments)
    _start(source, name, options, (blocks,), threads, checked, enable_cooperative_groups=True)


#: The types of integers that numbers become.
INTEGERS = {np.dtype(name).type for name in C_NAMES if name.startswith(("int", "uint"))}


@cache
def parameters(source: str, name: str, options: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """Return what each parameter of a kernel of a source takes; options such as ``-DVALUE=float`` name types.

    A pointer takes an array: the result has the codes of the types that this may have. Integers of one size may or may
    not have signs, and all types are allowed where the source alone knows the type. A number has NumPy's type, and a
    struct has `numpy.void`.
    """
    kernel = rf"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?{name}\s*\(([^)]*)\)"
    declared = re.search(kernel, cuda_source(source))
    if declared is None:
        raise LookupError(f"{source} has no kernel {name}")
    named = dict(option[2:].split("=", 1) for option in options if option.startswith("-D"))
    kinds: list[Any] = []
    for text in declared[1].split(","):
        *words, _ = re.sub(r"\bconst\b|\b__restrict__\b", " ", text).replace("*", " * ").split()
        c_type = " ".join(word for word in words if word != "*")
        numpy_name = "uint64" if words.count("*") > 1 else NUMPY_NAMES.get(named.get(c_type, c_type))
        dtype = np.dtype(numpy_name or "void")
        if "*" not in words:
            kinds.append(dtype.type)
        elif dtype.kind in "iu":
            alike = (code for code in np.typecodes["AllInteger"] if np.dtype(code).itemsize == dtype.itemsize)
            kinds.append("".join(alike))
        else:
            kinds.append(dtype.char if numpy_name else np.typecodes["All"])
    return tuple(kinds)


def _checked(source: str, name: str, options: tuple[str, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a kernel's arguments as CuPy takes them; raise unless they are those that its source declares.

    Python's numbers become the declared ones, and None a null pointer.
    """
    array = sys.modules["cupy"].ndarray
    checked: list[Any] = []
    for argument, kind in zip(arguments, parameters(source, name, options), strict=True):
        takes_array = type(kind) is str
        if type(argument) is kind:
            checked.append(argument)
        elif takes_array and isinstance(argument, array):
            if argument.dtype.char not in kind or not argument.flags.c_contiguous:
                what = f"of {argument.dtype} with strides {argument.strides} as argument {len(checked)}"
                raise TypeError(f"the kernel {name} takes a contiguous array of its type, got one {what}")
            checked.append(argument)
        elif takes_array and argument is None:
            checked.append(NULL)
        elif takes_array or kind is np.void or argument is None or isinstance(argument, array):
            what = "an array" if takes_array else "a struct" if kind is np.void else "a number"
            raise TypeError(f"the kernel {name} takes {what}, got {argument!r} as argument {len(checked)}")
        else:
            checked.append(_integer(kind, argument) if kind in INTEGERS else kind(argument))
    if has_several_gpus():
        _check_gpus(arguments)
    return tuple(checked)


@lru_cache(maxsize=4096, typed=True)
def _integer(kind: Any, number: Any) -> Any:
    """Return an integer in a type of NumPy's: most launches have numbers that an earlier one had."""
    return kind(operator.index(number))


@cache
def c_name(dtype: Any) -> str:
    """Return a type of numbers as a kernel's source calls it."""
    return C_NAMES[np.dtype(dtype).name]


@cache
def value_option(dtype: Any) -> str:
    """Return the compiler's option that tells a source the type of the points."""
    return f"-DVALUE={c_name(dtype)}"


@lru_cache(maxsize=1024, typed=True)
def c_struct(*numbers: Any) -> Any:
    """Return a C struct of numbers, which a kernel takes by value.

    Python's numbers become bool, int, double; NumPy's keep their types.
    """
    types = {bool: np.bool_, int: np.int32, float: np.float64}
    fields = [(f"f{i}", types.get(type(number), type(number))) for i, number in enumerate(numbers)]
    return np.array(numbers, np.dtype(fields, align=True))[()]


def warps_that_fit(warps: int, bytes_a_warp: int) -> int:
    """Return how many of a block's warps, at least one, fit into the shared memory that a block has on every GPU."""
    return max(1, min(warps, MIN_SHARED_MEMORY // bytes_a_warp))


def power_of_two(size: int) -> int:
    """Return the least power of two that is not below `size`: few values, so few versions of a kernel are compiled."""
    return 1 << (size - 1).bit_length()


def capability() -> int:
    """Return the compute capability of the current GPU: 90 for 9.0."""
    return 10 * _attribute(MAJOR) + _attribute(MINOR)


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current GPU."""
    return _attribute(MULTIPROCESSORS)


def resident_blocks(source: str, name: str, jobs: int, options: tuple[str, ...] = ()) -> int:
    """Return how many blocks of a cooperative kernel to start for the jobs: at most those resident at a time."""
    resident = _most_resident(source, name, options, current_gpu())
    return max(1, min(resident, -(-jobs // constant(source, "THREADS"))))


@cache
def _most_resident(source: str, name: str, options: tuple[str, ...], _gpu: int) -> int:
    # Launch bounds do not tell: the compiler ignores them if they ask for more threads than a multiprocessor has.
    ask = sys.modules["cupy"].cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    held = ask(cuda_kernel(source, name, options).kernel.ptr, constant(source, "THREADS"), 0)
    return int(min(held, constant(source, "BLOCKS"))) * multiprocessors()


def number_a_block(source: str) -> Any:
    """Return an array with room for one uint32 number of each block of a cooperative launch."""
    return sys.modules["cupy"].empty(constant(source, "BLOCKS") * multiprocessors(), "uint32")


def _attribute(which: int) -> int:
    return _attribute_of(current_gpu(), which)


@cache
def _attribute_of(gpu: int, which: int) -> int:
    """Return an attribute of a GPU, which the driver may take 20 µs to tell."""
    return int(sys.modules["cupy"].cuda.runtime.deviceGetAttribute(which, gpu))


def check_arrays(dtype: Any, *arrays: Any, size: int | None = None) -> None:
    """Raise unless all arrays are as a kernel reads them: type, layout, GPU and `size`. None is a null pointer."""
    dtype = np.dtype(dtype)
    for array in arrays:
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise TypeError(f"a kernel needs contiguous {dtype} arrays, got {array.dtype} {array.strides}")
        if array is not None and size is not None and array.size != size:
            raise ValueError(f"a kernel needs arrays of {size} numbers, got one of shape {array.shape}")
    if has_several_gpus():
        _check_gpus(arrays)


def _check_gpus(arguments: tuple[Any, ...]) -> None:
    """Raise unless all arrays among a kernel's arguments are on the current GPU."""
    array, gpu = sys.modules["cupy"].ndarray, current_gpu()
    for argument in arguments:
        if isinstance(argument, array) and argument.data.device_id != gpu:
            raise ValueError(f"a kernel of GPU {gpu} got an array of GPU {argument.data.device_id}")

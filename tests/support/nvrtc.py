"""NVRTC, NVIDIA's compiler as a library: it needs no GPU."""

import ctypes
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest
from repository import PACKAGE

from rapids_slink.runtime.cuda import cuda_source

SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.cu"))
PORTABLE = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
#: Machine code in a third of the time.
FASTEST = "--Ofast-compile=max"


def nvidia_folder():
    """Return the folder where NVIDIA's wheels put their files, or None if NVRTC is not installed."""
    spec = importlib.util.find_spec("nvidia")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((Path(place) for place in places if list(Path(place).rglob("libnvrtc.so*"))), None)


@cache
def nvrtc():
    """Return the library; without it skip the test, or fail it in CI."""
    folder = nvidia_folder()
    if folder is None:
        missing = "NVRTC is not installed (pip install -e '.[test]')"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return ctypes.CDLL(str(next(iter(sorted(folder.rglob("libnvrtc.so*"))))))


def headers():
    """Return the options that name the folders of CUDA's headers."""
    nvrtc()
    return [f"-I{folder}" for folder in sorted(nvidia_folder().glob("*/include"))]


def compiled(text, *options):
    """Return the PTX that NVRTC makes of a text, None if it does not compile, and the log."""
    library, program = nvrtc(), ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"source.cu", 0, None, None) == 0
    options = [option.encode() for option in ("--std=c++17", *headers(), *options)]
    failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))

    def output(kind):
        size = ctypes.c_size_t()
        assert getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(library, f"nvrtcGet{kind}")(program, text) == 0
        return text.value.decode()

    ptx, log = None if failed else output("PTX"), output("ProgramLog")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx, log


@cache
def assert_compiles(source: str, architecture: str, *options: str) -> str:
    """Assert that a source of the package, named by its path, compiles, and return the log."""
    ptx, log = compiled(cuda_source(source), f"-arch={architecture}", *options)
    assert ptx is not None, f"{source} {options}: {log}"
    return log


def assert_options_compile(source: str, *options: str) -> None:
    """Assert that a source compiles with a launcher's options, in the least time in which it can be in error.

    To PTX as it is for a debugger: a source is in error before it is optimized. If the options are sizes, which a GPU
    may not have room for, to machine code that is hardly optimized; of bytes, of which NVRTC makes neither, to other.
    """
    text = " ".join(options)
    if "unsigned char" in text:
        assert_compiles(source, "sm_90", *options)
    elif re.search("KEYS_PER_LANE|FEATURES|LIST", text) and "FORMULA" not in text:
        assert_compiles(source, "sm_90", FASTEST, *options)
    else:
        assert_compiles(source, "compute_90", "--device-debug", *options)


def architectures(source: str) -> list[str]:
    """Return what a source is meant for: the ``// architectures:`` of its first lines, or all portable ones."""
    named = re.match(r"(?:.*\n){0,4}// architectures:(.*)", cuda_source(source))
    return re.findall(r"sm_\w+", named[1]) if named else PORTABLE

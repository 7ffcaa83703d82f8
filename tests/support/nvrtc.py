"""NVRTC, NVIDIA's compiler as a library: it needs no GPU."""

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

import pytest

from rapids_slink.runtime.cuda import cuda_source


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


def compiled(text, name, *options):
    """Return the PTX that NVRTC makes of a text, None if it does not compile, and the log."""
    library, program = nvrtc(), ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = library.nvrtcCompileProgram(program, len(options), given)

    def output(kind):
        size = ctypes.c_size_t()
        assert getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(library, f"nvrtcGet{kind}")(program, text) == 0
        return text.value.decode()

    ptx, log = None if failed else output("PTX"), output("ProgramLog")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx, log


def compile_log(text: str, name: str, architecture: str, *options: str) -> tuple[bool, str]:
    """Return whether NVRTC compiles the text, and its log."""
    ptx, log = compiled(text, name, "--std=c++17", f"-arch={architecture}", *headers(), *options)
    return ptx is not None, log


def assert_compiles(source: str, architecture: str, *options: str) -> str:
    """Assert that a source of the package, named by its path, compiles, and return the log."""
    compiles, log = compile_log(cuda_source(source), source, architecture, *options)
    assert compiles, log
    return log

"""The package itself: what importing it costs, what it ships, its CUDA sources, its README and its notebooks."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

import rapids_slink
from rapids_slink.device import cuda_source, gpu_is_usable
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.neighbors.direct import Form

ROOT = Path(__file__).parent.parent
PACKAGE = Path(rapids_slink.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.cu"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PORTABLE = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
GPU_PACKAGES = ["cudf", "cugraph", "cuml", "cupy", "cuvs", "pylibraft", "rmm"]
SLOW_PACKAGES = ["numba", "pandas", "scipy", "sklearn"]


def python(code: str, **environment: str) -> str:
    """What `code` prints in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


# --- importing


def test_import_is_fast_and_loads_nothing_heavy():
    code = """
import sys, time
start = time.perf_counter()
import rapids_slink
print(time.perf_counter() - start, *{name.split(".")[0] for name in sys.modules})
"""
    best = float("inf")
    for _ in range(5):
        seconds, *modules = python(code).split()
        best = min(best, float(seconds))
        assert not {*GPU_PACKAGES, *SLOW_PACKAGES} & set(modules)
    assert best < 0.3


def test_cpu_run_imports_no_gpu_package(tmp_path):
    """With packages of those names installed that cannot be imported."""
    for name in GPU_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise AssertionError('imported {name}')")
    code = """
import os, sys
sys.path.insert(0, os.environ["FAKES"])
import numpy as np, rapids_slink
model = rapids_slink.fit(np.arange(12.0).reshape(6, 2) ** 2, n_clusters=2, device="cpu")
print(model.labels_.tolist())
"""
    assert python(code, FAKES=str(tmp_path)).strip() == "[0, 0, 0, 0, 0, 1]"


def test_every_public_name_is_there():
    for name in rapids_slink.__all__:
        assert callable(getattr(rapids_slink, name)), name
    assert set(rapids_slink.__all__) <= set(dir(rapids_slink))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rapids_slink.nonsense


# --- CUDA sources


def architectures(path: Path) -> list[str]:
    """What a source is meant for: the ``// architectures:`` of its first lines, or all portable ones."""
    for line in path.read_text().splitlines()[:5]:
        if line.startswith("// architectures:"):
            return re.findall(r"sm_\w+", line)
    return PORTABLE


def nvidia_folder() -> Path | None:
    """Where NVIDIA's wheels put their files."""
    spec = importlib.util.find_spec("nvidia")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((Path(place) for place in places if list(Path(place).rglob("libnvrtc.so*"))), None)


@cache
def nvrtc() -> ctypes.CDLL:
    folder = nvidia_folder()
    if folder is None:
        missing = "NVRTC is not installed (pip install -e '.[test]')"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return ctypes.CDLL(str(next(iter(sorted(folder.rglob("libnvrtc.so*"))))))


def compile_log(text: str, name: str, *options: str) -> tuple[bool, str]:
    """Whether NVRTC compiles the text, and its log."""
    library, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = library.nvrtcCompileProgram(program, len(options), given)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return status == 0, log.value.decode()


def test_there_are_cuda_sources():
    assert SOURCES


@pytest.mark.parametrize(
    ("path", "architecture"),
    [
        pytest.param(path, arch, id=f"{path.relative_to(PACKAGE)}-{arch}")
        for path in SOURCES
        for arch in architectures(path)
    ],
)
def test_cuda_source_compiles(path, architecture):
    nvrtc()
    headers = [f"-I{folder}" for folder in sorted(nvidia_folder().glob("*/include"))]
    compiles, log = compile_log(
        cuda_source(str(path.relative_to(PACKAGE))), path.name, "--std=c++17", f"-arch={architecture}", *headers
    )
    assert compiles, log


@pytest.mark.parametrize("source", ["rerank.cu", "bvh.cu", "direct.cu"])
def test_cuda_source_compiles_for_every_metric(source):
    path = PACKAGE / "neighbors" / source
    compiled = 0
    for metric in [*METRICS.values(), *(get_metric("minkowski", p) for p in (2.3, 2.5, 7))]:
        if source == "direct.cu":
            form = Form.of(metric) if metric.filter == "direct" else None
            options = () if form is None else (f"-DFORM={form.kernel}", f"-DHALVES={form.halves}")
        else:
            options = metric.options if source == "rerank.cu" or metric.boxes else ()
        if options:
            compiles, log = compile_log(cuda_source(path), source, "--std=c++17", "-arch=sm_90", *options)
            assert compiles, (metric, log)
            compiled += 1
    assert compiled >= 7


@pytest.mark.parametrize("of_bytes", [0, 1])
@pytest.mark.parametrize("resident", range(5))
def test_tensor_cores_are_not_made_to_wait(resident, of_bytes):
    """The compiler says so if it has each of their instructions wait for the one before."""
    source = PACKAGE / "neighbors" / "hopper.cu"
    for symmetric in (0, 1):
        flags = {"RESIDENT": resident, "LAST_STEPS": 1 + resident % 4, "SYMMETRIC": symmetric, "BYTES": of_bytes}
        options = "--std=c++17", "-arch=sm_90a", *(f"-D{name}={value}" for name, value in flags.items())
        compiles, log = compile_log(cuda_source(source), source.name, *options)
        assert compiles, log
        assert "serialized" not in log


def test_compile_check_can_fail():
    text = 'extern "C" __global__ void f() { nonsense; }'
    compiles, log = compile_log(text, "f.cu", "--std=c++17", "-arch=sm_90")
    assert not compiles
    assert "error" in log


# --- what ships


def test_sources_ship(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel, sdist = next(tmp_path.glob("*.whl")), next(tmp_path.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[-1] for name in archive.getnames()}
    wanted = [p for p in PACKAGE.rglob("*") if p.suffix in (".cu", ".cuh", ".py", ".typed")]
    names = {p.relative_to(PACKAGE.parent).as_posix() for p in wanted}
    assert names <= in_wheel
    assert names | {"LICENSE", "README.md", "pyproject.toml", "bench/__main__.py", "tests/test_package.py"} <= in_sdist
    assert any(name.endswith("licenses/LICENSE") for name in in_wheel)
    assert not [name for name in in_wheel | in_sdist if "__pycache__" in name]
    assert not [name for name in in_wheel if not name.startswith("rapids_slink")]


# --- README


def readme_blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_example_prints_what_it_says():
    assert python(readme_blocks("python")[0]).rstrip() == readme_blocks("text")[0].rstrip()


def test_readme_check_of_exactness_holds():
    example, check = readme_blocks("python")[:2]
    python(example + check)


@pytest.mark.gpu
def test_readme_runs_with_cudf():
    """As its comment says that it does."""
    if not gpu_is_usable():
        pytest.skip("no usable NVIDIA GPU with CuPy")
    pytest.importorskip("cudf")
    example, check = (
        block.replace("import pandas as pd", "import cudf as pd") for block in readme_blocks("python")[:2]
    )
    assert python(example).split() == readme_blocks("text")[0].split()
    python(example + check)


def test_readme_shows_the_pipeline_of_the_docstring():
    diagram = re.findall(r"points ──▶.*\n.*\n.*\n", rapids_slink.__doc__)[0]
    stages = re.findall(r"──▶ ([\w -]+\w)", diagram)
    assert stages == ["k-NN graph", "spanning forest", "connect", "linkage", "cut"]
    assert stages == re.findall(r"──▶ ([\w -]+\w)", readme_blocks("text")[1])


# --- notebooks


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_carries_no_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    for module in ("ipykernel", "matplotlib", "nbclient", *(["hdbscan"] if "hdbscan" in path.stem else [])):
        pytest.importorskip(module)
    import nbclient
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)

"""Who waits for a compiler is told so, once."""

import ast
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import wait
from itertools import groupby

import numpy as np
import pytest
from fake_gpu import fake_gpu
from numba.core.caching import IndexDataCacheFile
from repository import process, python

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage, api, fit
from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.metrics import METRICS
from rapids_slink.neighbors.exact import formulas
from rapids_slink.runtime import compiling, cuda


def test_two_seconds_are_silent(caplog):
    now = [0.0]
    clock = compiling._Clock(lambda: now[0])
    with clock.counting():
        now[0] += 1.5
    with clock.counting(), clock.counting():  # one within the other counts once
        now[0] += 0.4
    now[0] += 100
    assert caplog.records == []
    for _ in range(3):
        with clock.counting():
            now[0] += 1
    (record,) = caplog.records
    assert (record.name, record.levelno, record.message) == ("rapids_slink", logging.WARNING, compiling.TEXT)


EVENTS = """
import sys, numpy, rapids_slink
from numba.core import event
from rapids_slink.runtime import compiling
compiling.SILENT = 0.1
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__module__)
    def on_end(self, event): pass
compiled = []
event.register("numba:compile", Listener())
report = rapids_slink.fit(numpy.random.default_rng(0).normal(size=(9000, 2)), device="cpu").report_
print({name for name in compiled if name.startswith("rapids_slink")}, "|", report["seconds"], "|", sep="")
print(report)
"""


@pytest.mark.full
def test_compiling_is_no_part_of_the_stages(tmp_path):
    """Of a new process whose cache is empty, which says that it compiles; the next need not wait."""
    first, again = (process(EVENTS, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert [done.stderr.count(compiling.TEXT) for done in (first, again)] == [1, 0]
    modules, seconds, text = first.stdout.split("|")
    assert all(name in modules for name in ("neighbors.kdtree", "spanning_tree.cpu", "dendrogram.cpu"))
    spent = ast.literal_eval(seconds).pop("compiling")
    assert spent > 0.5
    assert sum(ast.literal_eval(seconds).values()) < 2 * spent
    assert "\ncompiling " in text
    modules, seconds, text = again.stdout.split("|")
    assert modules == "set()"
    assert "compiling" not in seconds + text


# ------------------------------------------------------------------------------------------------- threads


def test_a_kernel_waits_for_the_thread_that_compiles_it(tmp_path):
    """And for no other: the sources that no thread has begun are left to the launch."""
    begun, go, compiled = threading.Event(), threading.Event(), []

    def compile(code, options):
        begun.set()
        assert go.wait(60)
        compiled.append(options[-1])

    sources = [("ordering.cu", f"-DNUMBER={i}") for i in range(3)]
    with fake_gpu() as gpu, pytest.MonkeyPatch.context() as patch:
        gpu.compile = compile
        patch.setattr(cuda, "usable_cores", lambda: 1)  # one thread
        patch.setenv("CUPY_CACHE_DIR", str(tmp_path))
        cuda.compile_ahead([*sources, sources[0]])
        assert begun.wait(60)
        cuda.cuda_kernel("ordering.cu", "order_ties", ("-DNUMBER=2",))
        assert compiled == []
        threading.Timer(0.1, go.set).start()
        kernel = cuda.cuda_kernel("ordering.cu", "gather_edges", ("-DNUMBER=0",))
        assert kernel.options == ("--std=c++17", "-DNUMBER=0")
        assert compiled[0] == "-DNUMBER=0"
        cuda.cuda_kernel("ordering.cu", "gather_edges", ("-DNUMBER=2",))
        cuda.compile_ahead(sources)  # they are there
        wait(cuda._ahead.values())
        assert compiled == ["-DNUMBER=0", "-DNUMBER=1"]


def test_names_are_defined_in_the_text(watch):
    """CuPy compiles an empty program for every set of options, in each process."""
    with fake_gpu():
        given = watch(sys.modules["cupy"], "RawModule", lambda result, **how: how)
        kernel = cuda.cuda_kernel("ordering.cu", "order_ties", ("-arch=sm_90a", "-DVALUE=unsigned char", "-DNUMBER=1"))
    (how,) = given
    assert how["options"] == ("--std=c++17", "-arch=sm_90a")
    assert how["code"] == "#define VALUE unsigned char\n#define NUMBER 1\n" + cuda.cuda_source("ordering.cu")
    assert kernel.options == (*how["options"], "-DVALUE=unsigned char", "-DNUMBER=1")


def test_a_kernel_waits_for_the_thread_of_its_gpu(monkeypatch, tmp_path):
    """Even if that of another GPU is there: otherwise both would load it."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    begun, compiled = threading.Event(), []

    def compile(code, options):
        begun.set()
        time.sleep(0.1)
        compiled.append(code)

    with fake_gpu(count=2) as gpu:
        gpu.compile = compile
        cuda.cuda_kernel("ordering.cu", "order_ties")
        with sys.modules["cupy"].cuda.Device(1):
            cuda.compile_ahead([("ordering.cu",)])
            assert begun.wait(60)
            cuda.cuda_kernel("ordering.cu", "order_ties")
            assert compiled
        wait(cuda._ahead.values())


def test_threads_compile_once_on_a_machine(monkeypatch, tmp_path):
    """A file in CuPy's cache says that all is there."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    sources, compiled = [("ordering.cu",), ("dendrogram/clusters.cu",)], []
    for capability, memory in ((90, "0"), (90, "0"), (80, "0"), (90, "1"), (90, "1")):
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", memory)
        with fake_gpu(capability) as gpu:
            gpu.compile = lambda code, options: compiled.append(code)
            cuda.compile_ahead(sources)
            wait(cuda._ahead.values())
        compiled.append(None)
        for _ in range(600):
            if memory == "1" or len(list(tmp_path.iterdir())) > (capability == 80):
                break
            time.sleep(0.05)
    counts = [len(list(part)) for is_code, part in groupby(compiled, bool) if is_code]
    assert counts == [2, 2, 2, 2]
    assert compiled[2:4] == [None, None]


def test_a_threads_error_is_left_to_the_launch(monkeypatch, tmp_path):
    def fail(code, options):
        raise RuntimeError

    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    with fake_gpu() as gpu:
        gpu.compile = fail
        cuda.compile_ahead([("ordering.cu",)])
        assert cuda.cuda_kernel("ordering.cu", "order_ties").name == "order_ties"
        wait(cuda._ahead.values())
    assert list(tmp_path.iterdir()) == []  # it is tried again


# ------------------------------------------------------------------------------------------------- compile()


@pytest.fixture
def fitted(monkeypatch, set_constants):
    """What models would be fitted, which are not: kind, metric, device, type and shape."""
    models = []

    def fit(model, X):
        models.append((type(model).__name__, model.metric, model.device, X.dtype.name, X.shape))

    set_constants(api, SHAPES={"cpu": [(12, 16)]})
    for kind in (SingleLinkage, HDBSCAN):
        monkeypatch.setattr(kind, "fit", fit)
    return models


def test_compile_fits_models_of_each_kind(fitted):
    assert rapids_slink.compile("cpu", metrics=["euclidean", "jaccard", "haversine", "bit_jaccard"]) >= 0
    shapes = [("euclidean", type_, (12, 16)) for type_ in 2 * ("float32", "float64")]
    shapes += [("jaccard", "bool", (12, 16)), ("haversine", "float64", (12, 2)), ("bit_jaccard", "uint8", (12, 16))]
    assert fitted == [(kind, metric, "cpu", *rest) for metric, *rest in shapes for kind in ("SingleLinkage", "HDBSCAN")]


@pytest.mark.parametrize("metric", [*METRICS])
def test_compile_takes_every_metric(metric, fitted):
    assert rapids_slink.compile("cpu", metrics=metric) > 0
    assert fitted


def test_compile_refuses_what_is_no_metric():
    for name in ("precomputed", "nonsense"):
        with pytest.raises(ValueError, match=f"metric.*{name}"):
            rapids_slink.compile("cpu", metrics=["euclidean", name])


@pytest.mark.full
def test_after_compile_no_fit_compiles(tmp_path):
    python("import rapids_slink; rapids_slink.compile('cpu')", NUMBA_CACHE_DIR=str(tmp_path))
    assert python(EVENTS, NUMBA_CACHE_DIR=str(tmp_path)).split("|")[0] == "set()"


def test_a_bar_counts_kernels(capsys):
    with compiling.compiling_bar(delay=0):
        for _ in range(3):
            with compiling.compiling():
                pass
        assert "compiling, once on this machine: 3 kernels" in capsys.readouterr().err
    assert capsys.readouterr().err.endswith("\n")  # the bar stays
    with compiling.compiling():
        pass
    assert "kernels" not in capsys.readouterr().err


LOGGED = "import logging; logging.getLogger('rapids_slink').setLevel(logging.WARNING)"
ROWS = "numpy.c_[:9, 1:10, :9, 1:10, :9] ** 2"
FIT = f"import numpy, rapids_slink; print(rapids_slink.fit({ROWS}, device='cpu').distances_.sum())"


@pytest.fixture
def copy_of_package(tmp_path):
    """The package's sources in a folder, and how to run code on them without a cache folder of the user's own."""
    folder = tmp_path / "rapids_slink"
    shutil.copytree(compiling.PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path / "home"  # a file: nothing can be written below it, by any user
    home.touch()
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(code):
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=300
        )

    return folder, run


@pytest.mark.full
def test_an_edit_reaches_what_calls_it(copy_of_package):
    """The k-d tree's kernels and, for more than four features, Prim's have `squared` compiled into them."""
    folder, run = copy_of_package
    formulas = folder / "neighbors" / "exact" / "formulas.py"
    before = run(FIT).stdout
    for one, other in (("difference * difference", "4.0 * difference * difference"), ("gap * gap", "4.0 * gap * gap")):
        formulas.write_text(formulas.read_text().replace(one, other))
    assert float(run(FIT).stdout) == 2 * float(before)
    assert len(list((folder / "__pycache__").iterdir())) == 1  # what the old sources left is gone


def folder_in(configured, package):
    """The folder with this NUMBA_CACHE_DIR and this package, looked for anew."""
    return compiling.cache_folder.__wrapped__(str(configured), package)


def test_a_folder_that_another_process_has_just_made_stays(tmp_path, monkeypatch):
    older = tmp_path / "__pycache__" / "rapids_slink-0"
    folder = folder_in("", tmp_path)
    (folder / "code").touch()
    older.mkdir()
    monkeypatch.setattr(compiling.Path, "exists", lambda path: False)  # as if it was made after this look
    assert folder_in("", tmp_path) == folder
    assert (folder / "code").is_file()
    assert not older.is_dir()


@pytest.mark.full
def test_no_writable_folder(copy_of_package):
    folder, run = copy_of_package
    (folder / "__pycache__").touch()
    done = run(f"{LOGGED}; {FIT}")
    assert float(done.stdout) > 0
    assert done.stderr.count(compiling.NO_FOLDER) == 1


def test_processes_that_compile_at_the_same_time_keep_their_code_apart(tmp_path, monkeypatch):
    """Each has read the index before the other writes it. Numba's own files number both alike."""
    first, second, third = (IndexDataCacheFile(str(tmp_path), "f", "stamp") for _ in range(3))
    monkeypatch.setattr(second, "_load_index", dict)
    for file in (first, second, third):
        compiling.keep_apart(file)
    first.save("key", "code")
    second.save("other key", "other code")
    for file in (first, third):
        assert file.load("key") in ("code", None)
        assert file.load("other key") == "other code"
    first.save("key", "code")
    assert (first.load("key"), first.load("other key")) == ("code", "other code")


FACTORY = """
import numpy as np
from rapids_slink.runtime.compiling import njit

kernel = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

def summing(term):
    term = kernel(term)

    @kernel
    def add(x, y, sums, i, lanes, width, p):
        a, b = np.uint64(lanes[0]), np.uint64(lanes[1])
        for f in range(0, width, 4):
            q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
            for j in range(a, b):
                total = term(term(sums[i, j], q, y[f, j], p), r, y[f + 1, j], p)
                sums[i, j] = term(term(total, s, y[f + 2, j], p), t, y[f + 3, j], p)

    return add

@summing
def ones(total, x, y, p):
    return total + 1.0

@summing
def twos(total, x, y, p):
    return total + (2.0 if x - y == x - y else 1000.0)

@njit(cache=True)
def add_ones(x, y, sums, n, p):
    for i in range(x.shape[0]):
        ones(x, y, sums, i, (0, n), 8, p)
        ones(x, y, sums, i, (0, n), 4, p)

@njit(cache=True)
def add_twos(x, y, sums, n, p):
    for i in range(x.shape[0]):
        twos(x, y, sums, i, (0, n), 8, p)
        twos(x, y, sums, i, (0, n), 4, p)

def run(add):
    sums = np.zeros((2, 16))
    add(np.ones((2, 8)), np.ones((8, 16)), sums, 16, 0.5)
    return sums[0, 0]
"""


@pytest.mark.full
def test_code_of_another_process_is_not_taken_for_ones_own(tmp_path):
    """Of two kernels that one factory makes, which processes compile in another order."""
    (tmp_path / "factory.py").write_text(FACTORY)
    code = f"import sys; sys.path.append({str(tmp_path)!r}); from factory import *; print"
    printed = [
        python(f"{code}({calls})", NUMBA_CACHE_DIR=str(tmp_path)).split()
        for calls in ("run(add_ones)", "run(add_ones), run(add_twos)", "run(add_ones), run(add_twos)")
    ]
    assert printed == [["12.0"], ["12.0", "24.0"], ["12.0", "24.0"]]


def test_kernels_have_names_of_their_own():
    kernels = [value for value in vars(formulas).values() if hasattr(value, "py_func")]
    names = {kernel.py_func.__qualname__ for kernel in kernels}
    assert len(names) == len({id(kernel) for kernel in kernels}) > 20
    assert any("<locals>" in name for name in names)


def test_kernels_are_kept_in_such_files():
    assert find_root._cache._cache_file.save.__module__ == compiling.__name__


@pytest.mark.full
@pytest.mark.parametrize(
    "hide",
    [
        "del caching.IndexDataCacheFile",
        "del caching.IndexDataCacheFile._save_index",
        "caching.FunctionCache._cache_file = property(fset=lambda self, file: None)",
        "del core.event; sys.modules['numba.core.event'] = None",
    ],
)
def test_names_of_numba_that_another_one_may_lack(hide, tmp_path):
    """The kernels are compiled in each process then, or their seconds are not counted; the fit is the same."""
    code = f"import sys; from numba import core; from numba.core import caching; {hide}; {LOGGED}; {FIT}"
    done = process(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert float(done.stdout) == fit(np.c_[:9, 1:10, :9, 1:10, :9] ** 2, device="cpu").distances_.sum()
    assert done.stderr.count(compiling.NO_FILES) == ("event" not in hide)
    assert any(tmp_path.rglob("*.nbc")) == ("event" in hide)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner")
@pytest.mark.parametrize("change", [lambda folder: folder.chmod(0o777), lambda folder: os.chown(folder, 12345, -1)])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, change):
    """Nor is one that belongs to another user."""
    other = tmp_path / "other"
    folder = folder_in(other, tmp_path / "package")
    assert folder.parent == other
    try:
        change(folder)
    except PermissionError:
        pytest.skip("only root can give a folder away")
    assert folder_in(other, tmp_path / "package").parent == tmp_path / "package" / "__pycache__"


def test_a_folder_is_never_made_for_all(tmp_path):
    usual = os.umask(0)
    try:
        assert [folder_in(tmp_path, compiling.PACKAGE).parent for _ in range(2)] == [tmp_path] * 2
    finally:
        os.umask(usual)


@pytest.mark.gpu
@pytest.mark.full
def test_no_program_of_cupys_takes_seconds_to_compile(tmp_path):
    """A reduction of CuPy's by blocks of CUB takes three: a first call had six of them."""
    code = """
        import cupy as cp
        from cupy.cuda import compiler
        import rapids_slink

        sources, compile_one = [], compiler._NVRTCProgram.compile
        def noted(program, *args, **more):
            sources.append(program.src)
            return compile_one(program, *args, **more)
        compiler._NVRTCProgram.compile = noted
        rng = cp.random.default_rng(0)
        X = rng.standard_normal((500, 384))[rng.integers(0, 500, 500_000)]
        X = (X + 0.7 * rng.standard_normal(X.shape)).astype("float32")
        X /= cp.linalg.norm(X, axis=1, keepdims=True)
        sources.clear()
        rapids_slink.deduplicate(X, max_distance=0.1)
        rapids_slink.fit(X, 2)
        rapids_slink.pairs(X[:20_000], max_distance=0.1)
        rapids_slink.fit(X[:20_000], 2, metric="canberra")
        rapids_slink.HDBSCAN(15).fit(X[:20_000, :50])
        assert sources
        slow = [str(source) for source in sources if "<cub/" in str(source)]
        assert not slow, slow
    """
    python(textwrap.dedent(code), CUPY_CACHE_DIR=str(tmp_path))

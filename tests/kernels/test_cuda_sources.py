"""Every CUDA source compiles alone, for every architecture and with every option that a launcher gives."""

import ast
import re
import subprocess
import sys
from contextlib import suppress
from itertools import combinations as pairs_of
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from fake_gpu import fake_gpu
from hard_cases import combinations, covering, full
from nvrtc import FASTEST, SOURCES, architectures, assert_compiles, assert_options_compile, compiled
from repository import PACKAGE

from bench import sanitize
from rapids_slink.metrics import METRICS, get_metric
from rapids_slink.neighbors.filter import filter_formula
from rapids_slink.runtime.cuda import C_NAMES, _constants, constant, resident_blocks, value_option
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.settings import MISSING, metric_of, with_missing


def test_compile_check_can_fail():
    text = 'extern "C" __global__ void f() { nonsense; }'
    ptx, log = compiled(text, "-arch=sm_90")
    assert ptx is None
    assert "error" in log


@pytest.mark.parametrize("options", [("-arch=sm_90", FASTEST), ("-arch=sm_90",)])
def test_shared_memory_beyond_a_blocks_is_an_error(options):
    """However the program is optimized."""
    text = 'extern "C" __global__ void f(int* x) { __shared__ int s[SIZE]; s[threadIdx.x] = *x; *x = s[*x]; }'
    assert [compiled(text, f"-DSIZE={size}", *options)[0] is not None for size in (12_288, 12_289)] == [True, False]


VALUES = [value_option(dtype) for dtype in ("float32", "float64")]
PACKED = value_option("uint8")  # rows of packed bits, or of bytes
SPACES = [
    metric_of("euclidean", box=1.0),
    metric_of("cityblock", scales={(0, 1): 1.0, 2: 1.0}),
    metric_of("chebyshev", box=1.0),
    metric_of("euclidean", scales={(0, 1): 1.0, 2: 1.0}),
]
FORMULAS = [
    *METRICS.values(),
    *(get_metric("minkowski", p) for p in (2.3, 2.5, 7)),
    *(with_missing(METRICS[name], missing) for missing, names in MISSING.items() for name in names),
    *(metric.of_columns(None, 3) for metric in SPACES),
]


def defined(**values) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in values.items())


#: Each formula's options once: metrics share them.
FORMULA_OPTIONS = list(dict.fromkeys(metric.cuda_options for metric in FORMULAS))
BOX_OPTIONS = list(dict.fromkeys(metric.cuda_options for metric in FORMULAS if metric.boxes))


EACH = (*range(1, 10), 32)  # numbers of features that boxes have: all few, and the most


def product_of(values: list[str], formulas: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(value, *formula) for value in values for formula in formulas]


#: Of rows of words.
BIT_OPTIONS = [(value_option("uint64"), f"-DFORMULA=bit_{name}") for name in ("hamming", "jaccard", "braycurtis")]

#: Of codes, and of matrices of distances.
STORED = tuple(map(value_option, ("uint16", "float32", "float64")))
DISTANCES = "-DDISTANCE=unsigned short", "-DDISTANCE=double"
CODE_OPTIONS = list(dict.fromkeys(metric.cuda_options for metric in FORMULAS if metric.filter == "codes"))


#: Of the trees of small groups.
TEAMS = [{"TEAM_WARPS": warps, "ROWS_A_THREAD": rows} for warps, rows in ((1, 2), (1, 8), (8, 8))]


def direct_options() -> list[tuple[str, ...]]:
    formulas = [filter_formula(metric) for metric in FORMULAS if metric.filter == "direct"]
    return list(dict.fromkeys(defined(FORMULA=formula, HALVES=halves) for formula, halves in formulas))


def in_boxes(formulas=BOX_OPTIONS, **more) -> list[tuple[str, ...]]:
    """One, three and eight features, either type, each of the formulas once."""
    usual = [(value, *defined(FEATURES=d, **more)) for value, d in zip([*VALUES, VALUES[0]], (1, 3, 8), strict=True)]
    return usual + [(VALUES[0], *defined(FEATURES=3, **more), *formula) for formula in formulas]


#: By source, the options that its launchers give it, and those that only the full set tries.
OPTIONS = {
    "points/points.cu": (
        [*((f"-DCOLUMN={column}", VALUES[0]) for column in C_NAMES.values()), ("-DCOLUMN=unsigned char", PACKED)],
        [(f"-DCOLUMN={column}", VALUES[1]) for column in C_NAMES.values()],
    ),
    "items/edits.cu": (
        [("-DMASK=unsigned long long", "-DWORDS=5", "-DCOUNT=unsigned short")],
        [("-DMASK=unsigned long long", f"-DWORDS={words}", "-DCOUNT=unsigned char") for words in (1, 2, 4, 8)],
    ),
    "items/rows.cu": ([("-DCOLUMN=int", VALUES[0])], [("-DCOLUMN=long long", VALUES[1])]),
    # `all_distances.cu` compiles in a tenth of the time: it has each formula, `rerank.cu` one of each kind.
    "neighbors/exact/rerank.cu": (
        [BIT_OPTIONS[1], (VALUES[1], "-DFORMULA=hiercc"), (VALUES[1], "-DFORMULA=cosine"), (VALUES[0], "-DMEASURED=1")],
        [(PACKED,), *BIT_OPTIONS, *product_of(VALUES[:1], FORMULA_OPTIONS)],
    ),
    "neighbors/exact/pair_distances.cu": ([BIT_OPTIONS[1], (VALUES[1], "-DFORMULA=cosine")], [(PACKED,), *BIT_OPTIONS]),
    "neighbors/exact/all_distances.cu": (
        [*BIT_OPTIONS, *product_of(VALUES[1:], FORMULA_OPTIONS)],
        product_of(VALUES, FORMULA_OPTIONS),
    ),
    "neighbors/filter/direct.cu": (direct_options(), []),
    "neighbors/matrix/planes.cu": (
        [(VALUES[0], "-DFORMULA=hamming", DISTANCES[0]), (VALUES[1], "-DFORMULA=present_hamming", DISTANCES[1])],
        [(*formula, *rest) for formula in CODE_OPTIONS for rest in product(VALUES, DISTANCES)],
    ),
    "spanning_tree/grouped.cu": (
        [(VALUES[i % 2], *defined(**TEAMS[i % 3]), *formula) for i, formula in enumerate(FORMULA_OPTIONS)],
        [(*bits, *defined(**team)) for bits in BIT_OPTIONS for team in TEAMS],
    ),
    "neighbors/matrix/least.cu": ([(STORED[0],), (PACKED,), (STORED[2],)], []),
    "spanning_tree/dense.cu": ([(option,) for option in STORED], []),
    "neighbors/filter/fused/counts.cu": (
        [(BIT_OPTIONS[0][1], *defined(KEYS_PER_LANE=4))],
        [(option, *defined(KEYS_PER_LANE=keys)) for _, option in BIT_OPTIONS for keys in (4, 256)],
    ),
    # `nearest.cu` has each formula between boxes, for warps' lists; the others take as long for each. The full set has
    # one feature.
    "neighbors/nearest.cu": (
        [*in_boxes(LIST=0)[1:], *in_boxes(BOX_OPTIONS[-1:], LIST=8)[1:]],
        [
            *in_boxes(LIST=8),
            *((VALUES[(d + k) % 2], *defined(FEATURES=d, LIST=k)) for d in EACH for k in (0, 1, 8, 16)),
        ],
    ),
    **dict.fromkeys(
        ["neighbors/bvh.cu", "spanning_tree/boxes.cu"],
        (
            in_boxes(BOX_OPTIONS[-1:])[1:],
            [*in_boxes(), *((value, *defined(FEATURES=d)) for value in VALUES for d in EACH)],
        ),
    ),
    "spanning_tree/friends.cu": (in_boxes(BOX_OPTIONS[-1:])[1:], in_boxes()),
    "neighbors/within/within.cu": (
        in_boxes(BOX_OPTIONS[-1:])[1:],
        [*in_boxes(), *((value, *defined(FEATURES=d)) for value in VALUES for d in EACH[:8])],
    ),
    "neighbors/filter/filter.cu": (
        [defined(KEYS_PER_LANE=keys) for keys in (1, 64)],
        [defined(KEYS_PER_LANE=keys) for keys in (2, 4, 8, 16, 32)],
    ),
    "neighbors/filter/fused/tighten.cu": (
        [defined(KEYS_PER_LANE=4, INT8=int8) for int8 in (0, 1)],
        [defined(KEYS_PER_LANE=keys, INT8=1) for keys in (8, 16, 32, 64, 128, 256, 512)],
    ),
    **dict.fromkeys(
        [
            "dendrogram/catalogue.cu",
            "neighbors/filter/quantize.cu",
            "neighbors/small_batch/nearest.cu",
            "neighbors/tiles/encode.cu",
        ],
        (list(product(VALUES)), []),
    ),
    "neighbors/rows.cu": (list(product([*VALUES, PACKED, value_option("uint64")])), []),
}


@pytest.mark.parametrize("source", [full(source) if source in OPTIONS else source for source in SOURCES])
def test_cuda_source_compiles(source):
    """Without options, to PTX as it is for a debugger. Machine code of each GPU is in test_gpu_limits.py."""
    assert_compiles(source, architectures(source)[0].replace("sm", "compute"), "--device-debug")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(source, options, marks=marks, id=f"{source} {' '.join(options)}")
        for source, (quick, rest) in OPTIONS.items()
        for options, marks in [
            *((o, pytest.mark.full if i else ()) for i, o in enumerate(quick)),
            *((o, pytest.mark.full) for o in rest if o not in quick),
        ]
    ],
)
def test_cuda_source_compiles_with_the_options_of_its_launchers(source, options):
    assert_options_compile(source, *options)


FUSED = "neighbors/filter/fused/"
#: What one launch does: all rows with some points, each pair for both its points, or pairs within the threshold of
#: their components, or of their row and cell with listed tiles, or those within a limit, which are counted.
TYPES = {"fp16": {"INT8": 0, "BITS": 0}, "int8": {"INT8": 1, "BITS": 0}, "bits": {"INT8": 1, "BITS": 1}}
PASSES = {
    "rows": (0, 0, 0, 0),
    "symmetric": (1, 0, 0, 0),
    "between components": (0, 1, 0, 0),
    "in tiles of near points": (0, 0, 1, 0),
    "counted": (0, 1, 0, 1),
}
OF_PRODUCTS = "rows", "symmetric", "between components"  # of bits, too
KINDS = [(pass_, type_) for pass_, type_ in product(PASSES, TYPES) if pass_ in OF_PRODUCTS or type_ != "bits"]
KINDS.remove(("in tiles of near points", "int8"))


@pytest.mark.parametrize(
    ("resident_atoms", "last_steps", "kind"),
    combinations(range(9), range(1, 5), KINDS, quick=[(6, 3, ("symmetric", "int8"))]),
)
def test_tensor_cores_are_not_made_to_wait(resident_atoms, last_steps, kind):
    """The compiler says so if it has each of their instructions wait for the one before."""
    pass_, type_ = kind
    symmetric, between, local, count = PASSES[pass_]
    flags = defined(
        RESIDENT_ATOMS=resident_atoms, LAST_STEPS=last_steps, SYMMETRIC=symmetric, BETWEEN_COMPONENTS=between,
        LOCAL=local, COUNT=count, **TYPES[type_],
    )  # fmt: skip
    assert "serialized" not in assert_compiles(FUSED + "wgmma.cu", "sm_90a", *flags)


#: Warps, stages, whether rows stay, where instructions differ; later GPUs are in test_gpu_limits.py.
LAUNCHES = [(4, 3, 1), (4, 2, 0), (8, 3, 1), (8, 2, 0), (8, 1, 0)]
TARGETS = [*product(("sm_75", "sm_80"), LAUNCHES)]
COMPILED = [(*target, kind) for target, kind in product(TARGETS, KINDS) if kind[1] != "bits" or target[0] == "sm_80"]


@pytest.mark.parametrize(
    ("architecture", "launch", "kind"),
    covering(COMPILED, lambda values: {*pairs_of(values, 2)}, quick=[(*TARGETS[0], ("symmetric", "fp16"))]),
)
def test_mma_compiles(architecture, launch, kind):
    (warps, stages, resident), (pass_, type_) = launch, kind
    symmetric, between, local, count = PASSES[pass_]
    flags = defined(
        WARPS=warps, STAGES=stages, RESIDENT_ATOMS=resident, LAST_STEPS=3, SYMMETRIC=symmetric,
        BETWEEN_COMPONENTS=between, LOCAL=local, COUNT=count, **TYPES[type_],
    )  # fmt: skip
    assert_compiles(FUSED + "mma.cu", architecture, FASTEST, *flags)


def test_every_option_of_a_launcher_is_compiled():
    """Its name at least: what launchers spell is what the tests above give."""
    given = {option for quick, rest in OPTIONS.values() for options in quick + rest for option in options}
    flags = Path(__file__).read_text().split("flags = defined(")[1].split(")")[0] + repr(TYPES)
    launchers = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    (fused,) = re.findall(r'names = ((?:"[A-Z_0-9]+"(?:, )?)+)', launchers)
    spelt = set(re.findall(r"-D[A-Z_0-9]+(?==)", launchers)) - {"-DWARPS", "-DSTAGES"}  # test_mma_compiles has these
    assert {option.split("=")[0] for option in given} == spelt
    assert set(re.findall(r"[A-Z][A-Z_0-9]+(?==|': )", flags)) == set(re.findall(r"[A-Z_0-9]+", fused))


@pytest.mark.parametrize(
    ("jobs", "held", "expected"), [(10**6, 2, 20), (10**6, 4, 20), (10**6, 1, 10), (700, 2, 2), (0, 2, 1)]
)
def test_blocks_that_wait_for_each_other_fit(jobs, held, expected):
    """On ten multiprocessors, each of which holds what launch bounds ask for (two blocks of 512), more or less."""
    with fake_gpu() as gpu:
        gpu.resident = lambda *_: held
        assert resident_blocks("spanning_tree/forest.cu", "grow_forest", jobs) == expected


# --- constants


def test_constants():
    assert constant("neighbors/small_batch/nearest.cu", "PITCH") == 72  # STEP * STEPS + 8
    assert constant("neighbors/filter/quantize.cu", "PADDING_NORM") == 3 << 29  # in a header
    assert constant("neighbors/filter/fused/wgmma.cu", "THREADS") == 640  # 128 * (1 + CONSUMERS)
    assert constant("neighbors/small_batch/nearest.cu", "RERANK_WARPS") == 8  # THREADS / WARP
    assert constant("neighbors/bvh.cuh", "NO_NODE") == -1
    assert constant("ordering.cuh", "NO_EDGE") == 2**63 - 1
    with pytest.raises(LookupError, match="has 0 constants NONE"):
        constant("spanning_tree/forest.cu", "NONE")
    for name in ("TEAMS", "NORM_BYTES"):
        with pytest.raises(LookupError, match=f"{name} of neighbors/filter/fused/wgmma.cu is no number of its own"):
            constant("neighbors/filter/fused/wgmma.cu", name)


def constants_of_module(path: Path) -> dict[str, object]:
    """The numbers that a module sets by themselves, such as ``ROWS, TILE = 2**8, 128``."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and not any(isinstance(part, ast.Name) for part in ast.walk(value)):
                    with suppress(Exception):
                        found[name.id] = eval(compile(ast.Expression(value), "", "eval"), {})
    return found


def test_no_constant_stands_twice():
    """Neither in a module and in a source that it launches, or of its folder, nor beside a word that says so."""
    said, twice = re.compile(r"(?:#|//).*\bas in [\w/.]+\.(?:cu|cuh|py)\b"), []
    sources = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.cu*")}
    for module in PACKAGE.rglob("*.py"):
        text, own = module.read_text(), constants_of_module(module)
        for source, path in sources.items():
            if path.parent == module.parent or source in text or "runtime/include" in source:
                for name in own.keys() & {name for name, _ in _constants(source)}:
                    with suppress(LookupError):
                        twice += [f"{name} of {module} and {source}"] * (constant(source, name) == own[name])
    twice += [f"{path}: {line}" for path in PACKAGE.rglob("*.*") if path.suffix in (".py", ".cu", ".cuh")
              for line in path.read_text().splitlines() if said.search(line)]  # fmt: skip
    assert twice == []


# --- bench.sanitize, which launches every kernel


#: Steps whose kernels on a CPU no other test of the quick set compiles, and those that differ from others in numbers
#: alone, which only a GPU's kernels are compiled for. Of the others every second is quick.
FULL = re.compile(
    "codes, (40|100) features|component pairs by the filter, (float32|300 features)|a distance matrix"
    "|lists in tiles, (float64, 70 features|300 features|all equal|bytes)|expansion, float64|groups, (hamming|cosine)"
)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=name, marks=[pytest.mark.full] * bool(i % 2 or FULL.fullmatch(name)))
        for i, (name, step) in enumerate(sanitize.steps())
    ],
)
def test_steps_of_sanitize_run(step):
    assert not sanitize.differing(step, CPU, CPU)


def test_sanitize_tells_a_difference():
    assert sanitize.differing(lambda device: (np.arange(3), device is CPU), CPU, Device("other", np))


def test_sanitize_knows_every_kernel():
    count = sum((PACKAGE / source).read_text().count("__global__") for source in SOURCES)
    assert len(sanitize.kernels_of_package()) == count > 40


@pytest.mark.gpu
def test_every_kernel_is_launched_and_right():
    """In a process of its own, as compute-sanitizer has it."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.sanitize"], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=540
    )
    assert done.returncode == 0, done.stdout + done.stderr

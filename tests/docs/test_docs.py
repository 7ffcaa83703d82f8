"""The documentation: its examples print what the pages say, it builds without a warning, docstrings are whole."""

import doctest
import inspect
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args, get_overloads, get_type_hints

import pandas as pd
import pytest
from hard_cases import full
from numpydoc import validate
from repository import ROOT, python

import rapids_slink
from bench import __main__ as harness
from bench import recipe, report
from bench.cases import GROUPS
from bench.stages import STAGES
from rapids_slink import cli, graph, hdbscan
from rapids_slink.datasets import load_cities
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.metrics import NAMES, MetricName

PAGES = sorted((ROOT / "docs").glob("*.md"))
HIERARCHY = "rapids_slink.hierarchy"
METHODS = [name for name, _ in inspect.getmembers(Hierarchy, inspect.isfunction) if name[0] != "_"]
PUBLIC = [
    *(f"rapids_slink.{name}" for name in rapids_slink.__all__),
    *(f"{HIERARCHY}.model.Hierarchy.{name}" for name in METHODS),
    f"{HIERARCHY}.explorer.Explorer.to_html",
    "rapids_slink.SingleLinkage.fit",
    "rapids_slink.SingleLinkage.append",
    "rapids_slink.SingleLinkage.predict",
    "rapids_slink.DBSCAN.fit",
    "rapids_slink.HDBSCAN.fit",
    *(f"rapids_slink.HDBSCAN.{name}" for name in ("approximate_predict", "membership_vector")),
    "rapids_slink.HDBSCAN.all_points_membership_vectors",
    *(f"rapids_slink.HDBSCAN.{name}" for name in ("generate_prediction_data", "dbscan_clustering")),
    *(f"rapids_slink.hdbscan.{name}" for name in hdbscan.__all__),
    *(f"{HIERARCHY}.trees.{name}" for name in ("CondensedTree", "SingleLinkageTree", "MinimumSpanningTree")),
    *(f"{HIERARCHY}.trees.CondensedTree.{name}" for name in ("to_pandas", "to_numpy", "to_networkx", "plot")),
    *(f"{HIERARCHY}.trees.SingleLinkageTree.{name}" for name in ("to_numpy", "to_networkx", "plot", "get_clusters")),
    *(f"{HIERARCHY}.trees.MinimumSpanningTree.{name}" for name in ("to_pandas", "to_numpy", "to_networkx", "plot")),
    "rapids_slink.graph.GraphHierarchy",
    f"{HIERARCHY}.model.Hierarchy",
    "rapids_slink.datasets.load_cities",
    "rapids_slink.scipy.linkage",
    "rapids_slink.sklearn.AgglomerativeClustering",
    "rapids_slink.sklearn.NearestNeighbors",
]


def blocks(page: Path) -> list[tuple[str, str]]:
    """A page's fenced blocks: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> str:
    return "".join(text for language, text in blocks(page) if language == "python")


#: See test_package.py for the starting points, and for the first page's example, which is the README's.
EXAMPLES = [page for page in PAGES if code_of(page) and page.stem != "starting-points"]


@pytest.mark.full
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_examples(page, tmp_path):
    printed = "".join(text for language, text in blocks(page) if language == "text")
    here = f"import os; os.chdir({str(tmp_path)!r})\n"
    assert python(here + code_of(page), MPLBACKEND="agg") == printed


COMMANDS = [
    (page, module, arguments)
    for page in [ROOT / "README.md", *PAGES]
    for language, text in blocks(page)
    if language == "sh"
    for module, arguments in re.findall(r"python -m (\w+)(.*)$", text, flags=re.MULTILINE)
    if module != "pytest"
]


def test_there_are_examples_and_commands():
    assert len(EXAMPLES) >= 4
    assert {(page.stem, module) for page, module, _ in COMMANDS} >= {("README", "rapids_slink"), ("README", "bench")}


@pytest.mark.parametrize(("page", "module", "arguments"), [full(*one) if "demo" in one[2] else one for one in COMMANDS])
def test_commands(page, module, arguments, tmp_path, monkeypatch, capsys):
    """The command line's run, on tables such as they speak of; those that measure for minutes are understood."""
    if module == "bench":
        harness._parser().parse_args(shlex.split(arguments))
        return
    assert module == "rapids_slink"
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"name": "a", "x": range(20), "y": 0.5})
    tables = {"points.csv": table, "cities.csv": load_cities().head(50)}
    for name, rows in tables.items():
        rows.to_csv(name, index=False)
    assert cli.main(shlex.split(arguments)) == 0
    written = {name for name in shlex.split(arguments) if name.endswith((".csv", ".png"))} or {"cities.png"}
    assert {path.name for path in tmp_path.iterdir()} == written | tables.keys()
    assert "clusters" in capsys.readouterr().out


#: The other texts of the repository.
TEXTS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]


def test_glossary_is_in_order_and_has_one_sense_for_each_word():
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \| `[^|]+` \|$", page, flags=re.MULTILINE)
    assert 35 <= len(words) <= 50
    assert words == sorted(set(words))


FILE = re.compile(r"`([\w./-]+/[\w.-]*\.(?:py|cuh?|md|ipynb)|\w+\.(?:py|cuh?))`")


@pytest.mark.parametrize("page", [*PAGES, *TEXTS], ids=lambda page: page.stem)
def test_text(page):
    """A page begins with its question, links lead somewhere, and named files are in the repository or the package."""
    text = page.read_text()
    if page in PAGES:
        begins = (ROOT / "CHANGELOG.md").read_text() if page.stem == "changelog" else text
        assert "?" in begins.split("\n\n", 2)[1]
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
    named = FILE.findall(text)
    assert [name for name in named if not any((root / name).exists() for root in (ROOT, ROOT / "rapids_slink"))] == []


def test_files_that_sources_name_exist():
    """By their path in the package or the end of it."""
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "rapids_slink").rglob("*.*")]
    sources = [path for path in paths if path.endswith((".py", ".cu", ".cuh", ".js"))]
    assert len(sources) > 150
    for source in sources:
        for name in re.findall(r"[\w/]+\.(?:py|cuh?|js)\b", (ROOT / source[1:]).read_text()):
            assert any(path.endswith("/" + name.lstrip("/")) for path in paths), f"{source} names {name}"


def test_first_page_shows_the_example_of_the_readme():
    readme = dict(reversed(blocks(ROOT / "README.md")))
    assert {language: readme[language] for language in ("python", "text")} == dict(blocks(ROOT / "docs" / "index.md"))


# --- the build


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages as HTML."""
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", f"{out}-doctrees"]
    build += ["-D", f"nb_execution_cache_path={out}-cache"]
    environment = {**os.environ, "UNEXECUTED_NOTEBOOKS": "*/0[2-9]_* */1*_*"}
    build += ["docs", str(out)]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    return out


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_built(site, page):
    title = re.search(r"^# (.*)$", page.read_text(), flags=re.MULTILINE)
    assert (title[1] if title else "Changelog") in (site / f"{page.stem}.html").read_text()


@pytest.mark.full
def test_notebooks_are_pages(site):
    """And other pages lead to them."""
    linked = (site / "notebooks.html").read_text() + (site / "index.html").read_text()
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert len(notebooks) >= 12
    for notebook in notebooks:
        assert "rapids_slink" in (site / "notebooks" / f"{notebook.stem}.html").read_text()
        assert linked.count(f'href="notebooks/{notebook.stem}.html"') >= 2


def test_what_a_build_makes_is_no_page_of_the_next():
    """Folders in docs that git ignores, except the copies of the notebooks."""
    made = set(re.findall(r"^/docs/(\w+)/$", (ROOT / ".gitignore").read_text(), flags=re.MULTILINE))
    excluded = re.search(r"^exclude_patterns = (\[.*?\])", (ROOT / "docs" / "conf.py").read_text(), flags=re.MULTILINE)
    assert made == {"notebooks", *json.loads(excluded[1])} == {"notebooks", "_build", "jupyter_execute"}


@pytest.mark.full
def test_pages_of_notebooks_have_outputs(site):
    """Of the one that the fixture has executed."""
    page = (site / "notebooks" / "01_quickstart.html").read_text()
    assert "cell_output" in page
    assert "image/png" in page or ".png" in page


@pytest.mark.full
def test_signatures_of_classes_are_real(site):
    page = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    assert "**parameters" not in page
    for name in ("SingleLinkage", "HDBSCAN", "DBSCAN"):
        signature = re.search(rf"class\s+rapids_slink\.{name}\((.*?)\)\s*¶?\n", page, flags=re.DOTALL)[1]
        assert set(re.findall(r"(\w+)=", signature)) == set(inspect.signature(getattr(rapids_slink, name)).parameters)


def test_fit_and_plan_name_the_parameters_of_the_class():
    """With its defaults; without a threshold `fit` and `plan` choose the number of clusters."""
    parameters = inspect.signature(rapids_slink.SingleLinkage).parameters
    wanted = {name: parameter.default for name, parameter in parameters.items()}
    wanted |= {"n_clusters": None, "groups": None, "dropna": True}
    for function, more in ((rapids_slink.fit, {"cannot_link": None}), (rapids_slink.plan, {})):
        named = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
        assert {name: default for name, default in named.items() if name not in ("X", "unknown")} == wanted | more
    of_clusters = {"n_clusters", "distance_threshold", "prediction_data"}
    of_clusters |= {"min_cluster_size", "max_cluster_size", "count_small"}
    assert wanted.keys() - inspect.signature(rapids_slink.deduplicate).parameters.keys() == of_clusters


def test_docstring_of_fit_explains_each_parameter():
    """Not by a reference to another docstring."""
    text = rapids_slink.fit.__doc__
    sections = re.findall(
        r"^    (\w[^\n]*) : [^\n]*\n((?:        [^\n]*\n)+)", text[: text.index("Returns")], flags=re.MULTILINE
    )
    assert len(sections) == len(inspect.signature(rapids_slink.fit).parameters) - 1
    assert not [name for name, what in sections if "," in name or what.strip().startswith("See ")]


def test_typing_tools_know_the_metrics():
    hints = get_type_hints(rapids_slink.SingleLinkage)["metric"]
    assert set(get_args(MetricName)) == set(NAMES)
    assert {name for part in get_args(hints) for name in get_args(part)} == {*NAMES, "precomputed"}
    assert len(get_overloads(Hierarchy.cut)) == len(get_overloads(rapids_slink.cut)) == 3
    assert all("min_similarity" in inspect.signature(overload).parameters for overload in get_overloads(Hierarchy.cut))


def test_the_reference_names_what_there_is():
    named = re.findall(r"^\.\. auto[a-z]+:: (\S+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    assert len(named) > 30
    for name in named:
        pkgutil.resolve_name(name if name.startswith("rapids_slink.") else f"rapids_slink.{name}")


@pytest.mark.full
def test_reference_is_complete(site):
    reference = (site / "api.html").read_text()
    names = [*(f"rapids_slink.{name}" for name in rapids_slink.__all__), "rapids_slink.SingleLinkage.fit"]
    for name in [*names, *(f"{HIERARCHY}.model.Hierarchy.{name}" for name in METHODS)]:
        assert f'id="{name}"' in reference, name


@pytest.mark.full
def test_tables_come_from_the_result_files(site):
    page = (site / "benchmarks.html").read_text()
    assert "<!--" not in page.partition("<article")[2].partition("</article>")[0]
    for cell in ("gauss-20k-16", "mnist-60k-784", "30 strings of tight groups"):
        assert cell in page
    assert "30 strings of tight groups" in (site / "why-exact.html").read_text()


def test_every_stage_and_group_of_the_benchmarks_has_a_table():
    pages = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("benchmarks", "speed")]
    marks = re.findall(r"<!-- bench: ([\w -]+) -->", "".join(pages))
    assert {*STAGES, *GROUPS} == set(" ".join(marks).split())


def test_every_notebook_has_a_picture():
    page = (ROOT / "docs" / "notebooks.md").read_text()
    cards = re.findall(r"\]\(_static/gallery/(\w+)\.png\)\]\(\.\./notebooks/(\w+)\.ipynb\)", page)
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    assert cards == [(name, name) for name in names]
    assert all((ROOT / "docs" / "_static" / "gallery" / f"{name}.png").exists() for name in names)


def test_the_first_code_is_seen_whole():
    first = dict(reversed(blocks(ROOT / "docs" / "index.md")))["python"]
    assert max(map(len, first.splitlines())) <= 80


def test_sizes_are_of_result_files():
    marks = re.findall(r"<!-- measured: (\S+) (\S+)( cpu)? -->", (ROOT / "docs" / "sizes.md").read_text())
    rows = report.load(report.FOLDER)
    assert len(marks) > 15
    for case, stage, cpu in marks:
        text = report.measured(rows, case, stage, on_gpu=not cpu)
        gpu = "" if cpu else r"(, [\d.]+ GB)?, H\d00"
        assert re.fullmatch(r"\[[\d.,]+ m?s\]\(bench/results/\S+\.json\)" + gpu, text)
    with pytest.raises(ValueError, match="no result file has halo-10m-3, knn"):
        report.measured(rows, "halo-10m-3", "knn")


@pytest.mark.full
def test_figures_are_drawn_by_the_script(tmp_path):
    """And those in the repository are small."""
    code = "import pathlib, sys; sys.path.insert(0, 'docs'); import figures; figures.main(pathlib.Path(sys.argv[1]))"
    python(code, tmp_path)
    committed = sorted((ROOT / "docs" / "_static").glob("*.png"))
    assert [path.name for path in committed] == sorted(path.name for path in tmp_path.glob("*.png"))
    assert all(1_000 < path.stat().st_size < 60_000 for path in committed)


# --- docstrings


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_is_whole(name):
    checks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["numpydoc_validation"]["checks"]
    checks = validate.get_validation_checks(set(checks))
    assert {"GL08", "PR01", "PR02", "PR07", "RT01", "RT03"} <= checks
    assert [error for error in validate.validate(name)["errors"] if error[0] in checks] == []


WITH_EXAMPLES = [name for name in PUBLIC if ">>>" in (pkgutil.resolve_name(name).__doc__ or "")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstring(name):
    tests = doctest.DocTestFinder(recurse=False).find(pkgutil.resolve_name(name), name)
    results = [doctest.DocTestRunner().run(test) for test in tests]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


def test_every_example_of_a_docstring_is_run():
    files = [path for path in (ROOT / "rapids_slink").rglob("*.py") if ">>>" in path.read_text()]
    functions = [inspect.unwrap(pkgutil.resolve_name(name)) for name in WITH_EXAMPLES]
    assert {inspect.getsourcefile(function) for function in functions} == set(map(str, files))


def test_class_docstrings_name_every_attribute():
    """What a fitted model has, and what its docstring says."""
    model = rapids_slink.fit([[0.0], [1.0], [5.0]], device="cpu")
    of_graph = rapids_slink.fit_graph(model.mst_, device="cpu")
    for fitted, docstring in (
        (model, rapids_slink.SingleLinkage.__doc__),
        (rapids_slink.HDBSCAN(2, device="cpu").fit([[0.0], [1.0], [5.0]]), rapids_slink.HDBSCAN.__doc__),
        (of_graph, graph.GraphHierarchy.__doc__ + Hierarchy.__doc__),
    ):
        for name in vars(fitted):
            if name.endswith("_") and name[0] != "_":
                assert name in docstring, name


# --- the measurement behind "Why the usual recipe is not exact"


def test_recipe_is_the_recipe():
    """Its tree spans all points; with lists of all others, where nothing is hidden, it is the minimum."""
    points = recipe.CASES[0].points()[::17]
    tree = recipe.recipe(points, 3)
    exact = rapids_slink.fit(points, device="cpu")
    assert len(tree) == len(points) - 1
    assert rapids_slink.fit_graph(tree, device="cpu").n_connected_components_ == 1
    assert tree["weight"].sum() > exact.distances_.sum()
    whole = recipe.recipe(points[:50], 49)
    assert sorted(whole["weight"]) == rapids_slink.fit(points[:50], device="cpu").distances_.tolist()


def test_recipe_is_measured_into_a_file(tmp_path, set_constants):
    set_constants(recipe, CASES=recipe.CASES[:1])
    assert recipe.main(["--device", "cpu", "--out", str(tmp_path), "--date", "2001-02-03", "--commit", "0" * 40]) == 0
    (row,) = recipe.table(tmp_path).splitlines()[2:]
    assert "2001-02-03-cpu.json" in row
    committed = [line for line in recipe.table().splitlines() if "30 strings" in line and "the recipe" in line]
    assert row.split("|")[1:7] == committed[0].split("|")[1:7]

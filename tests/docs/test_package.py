"""What ships, and what the README says."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import numpy as np
import pandas as pd
import pytest
from repository import PACKAGE, ROOT, python, run
from scipy.spatial.distance import pdist, squareform

import rapids_slink
from rapids_slink import api
from rapids_slink.datasets import load_cities


def test_sources_ship(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    wheel, sdist = next(tmp_path.glob("*.whl")), next(tmp_path.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[-1] for name in archive.getnames()}
    wanted = [p for p in PACKAGE.rglob("*") if p.suffix in (".cu", ".cuh", ".gz", ".js", ".py", ".typed")]
    names = {p.relative_to(PACKAGE.parent).as_posix() for p in wanted}
    assert names <= in_wheel
    assert (
        names | {"LICENSE", "README.md", "pyproject.toml", "bench/__main__.py", "tests/docs/test_package.py"}
        <= in_sdist
    )
    assert any(name.endswith("licenses/LICENSE") for name in in_wheel)
    assert not [name for name in in_wheel | in_sdist if "__pycache__" in name]
    assert not [name for name in in_wheel if not name.startswith("rapids_slink")]


def blocks(page, language):
    """The code of a page's fenced blocks, those of Sphinx's directive among them."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```(?:{{code-block}} )?{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def readme_blocks(language):
    return blocks("README.md", language)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_readme_example_prints_what_it_says_and_its_check_of_exactness_holds():
    example, check = readme_blocks("python")
    assert python(example + check).rstrip() == readme_blocks("text")[0].rstrip()


@pytest.mark.full
def test_starting_points_run(tmp_path):
    rng, cities = np.random.default_rng(0), load_cities()
    cities.to_csv(tmp_path / "cities.csv", index=False)
    embedding = rng.normal(size=(300, 5)) + rng.integers(0, 4, (300, 1)) * 9
    np.save(tmp_path / "embedding.npy", embedding)
    np.save(tmp_path / "distances.npy", squareform(pdist(embedding)))
    alleles = pd.DataFrame(rng.integers(0, 4, (60, 40)), columns=[f"locus{f}" for f in range(40)]).astype(str)
    alleles.iloc[::5, ::7] = "LNF"
    alleles.iloc[1::5, ::7] = "INF-" + alleles.iloc[1::5, ::7]
    alleles.to_csv(tmp_path / "profiles.tsv", sep="\t", index_label="genome")
    np.save(tmp_path / "fingerprints.npy", rng.integers(0, 2, (50, 16), np.uint8))
    texts = ["one two three four five six", "one two three four five six", "another text of some words"]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "texts.csv", index=False)
    cells = pd.DataFrame({"v_call": "V1", "j_call": ["J1", "J1", "J2"], "junction_aa": ["CASSF", "CASTF", "CASSF"]})
    cells.to_csv(tmp_path / "receptors.csv", index=False)
    recipes = "".join(blocks("docs/starting-points.md", "python")[:-1])
    here = f"import os; os.chdir({str(tmp_path)!r})\n"
    shown = "assert len(levels.columns) == 8 and len(series) == 50\n"
    shown += "assert first.tolist() == [0, 0, 2]\n"
    shown += "print(cities['belt'].nunique(), len(set(groups)), len(Z), len(set(labels)))\n"
    printed = python(here + recipes + shown)
    assert printed.startswith("4 ")  # clusters
    assert printed.splitlines()[-1] == f"10794 4 {len(cities) - 1} 3"
    assert pd.read_csv(tmp_path / "belts.csv", keep_default_na=False)["belt"].nunique() == 10794


@pytest.mark.full
def test_script_for_a_cluster_runs(tmp_path):
    """As a file, which the workers import, over parts whose indexes are the same."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 2)) + rng.integers(0, 4, (300, 1)) * 9, columns=["x", "y"])
    table["name"] = [f"row {i}" for i in range(300)]
    (tmp_path / "points").mkdir()
    for i in range(3):
        part = table[100 * i : 100 * i + 100].reset_index(drop=True)
        part.to_parquet(tmp_path / "points" / f"{i}.parquet")
    script = blocks("docs/starting-points.md", "python")[-1].replace("n_clusters=100", "n_clusters=4")
    (tmp_path / "cluster.py").write_text(script.replace("Client()", "Client(n_workers=2, dashboard_address=':0')"))
    run("cluster.py", cwd=tmp_path)
    labelled = pd.read_parquet(tmp_path / "labelled")
    assert labelled["name"].tolist() == table["name"].tolist()
    labels = rapids_slink.fit(table[["x", "y"]], n_clusters=4, device="cpu").labels_
    assert labelled["label"].tolist() == labels.tolist()


@pytest.mark.gpu
def test_readme_runs_with_cudf():
    """As its comment says that it does."""
    blocks = [block.replace("import pandas as pd", "import cudf as pd") for block in readme_blocks("python")]
    example, check = blocks[0], blocks[-1]
    assert python(example).split() == readme_blocks("text")[0].split()
    python(example + check)


def test_readme_shows_the_pipeline_of_the_docstring():
    diagram = re.findall(r"points ──▶.*\n.*\n.*\n", rapids_slink.__doc__)[0]
    stages = re.findall(r"──▶ ([\w -]+\w)", diagram)
    assert stages == ["k-NN graph", "spanning forest", "connect", "linkage", "cut"]
    assert stages == re.findall(r"──▶ ([\w -]+\w)", readme_blocks("text")[1])


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def recipe():
    """The conda recipe, with its few variables filled in."""
    yaml, jinja2 = pytest.importorskip("yaml"), pytest.importorskip("jinja2")
    text = jinja2.Template((ROOT / "conda" / "recipe" / "meta.yaml").read_text()).render(PYTHON="python")
    return yaml.safe_load(text)


def test_recipe_asks_for_what_the_project_does():
    found = recipe()
    assert found["package"] == {"name": PROJECT["name"], "version": rapids_slink.__version__}
    python = f"python {PROJECT['requires-python']}"
    wanted = {re.sub(r"(?=[<>=])", " ", name, count=1) for name in PROJECT["dependencies"]} | {python}
    assert set(found["requirements"]["run"]) == wanted
    gpu = {re.sub(r"(-cu|-cuda)1\dx?", "", name) for name in PROJECT["optional-dependencies"]["cu13"]}
    assert gpu <= {name.replace(" ", "") for name in found["requirements"]["run_constrained"]}
    assert found["about"]["summary"] == PROJECT["description"]


def test_citation():
    found = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text())
    assert found["version"] == rapids_slink.__version__
    assert found["license"] == PROJECT["license"]
    assert found["references"][0]["doi"].startswith("10.1007/")


def test_changelog_begins_with_this_version():
    (first, *_) = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert first == rapids_slink.__version__


def test_show_versions(capsys, set_constants):
    rapids_slink.show_versions()
    said = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said["rapids_slink"] == rapids_slink.__version__
    assert said["Python"] == sys.version.split()[0]
    assert re.match(r"\d", said["numpy"])
    set_constants(api, PACKAGES=("no-such-package", "scikit-le"))
    rapids_slink.show_versions()
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["rapids_slink", "Python", "system", "scikit-learn", "GPU"]


def test_issues_ask_for_versions():
    assert "show_versions()" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.md").read_text()


TESTS = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}


def test_no_test_imports_another():
    imported = re.compile(r"^\s*(?:from|import) (?:[\w.]+\.)?test_\w+", re.MULTILINE)
    assert imported.search("    from tests.api.test_cli import run")
    assert [path for path, text in TESTS.items() if imported.search(text)] == []


def test_names_of_files_differ():
    """What is shared is imported by its name alone, and some lists name tests by theirs."""
    names = [path.name for path in TESTS if path.name != "conftest.py"]
    assert len(set(names)) == len(names) > 90


def test_processes_have_a_time_to_end():
    trees = {path: ast.parse(text) for path, text in TESTS.items() if "subprocess.run" in text}
    calls = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    runs = [(path, node) for path, node in calls if ast.unparse(node.func) == "subprocess.run"]
    assert len(runs) > 6
    without = [f"{path}:{node.lineno}" for path, node in runs if "timeout" not in {word.arg for word in node.keywords}]
    assert without == []

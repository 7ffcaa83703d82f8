"""What a release has beside the package: recipe, citation and changelog speak of the same version."""

import re
import sys
import tomllib

import pytest
from repository import ROOT

import rapids_slink
from rapids_slink import api

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

"""The documentation's build: ``python -m sphinx -W -b html docs docs/_build``.

It needs no network. Figures in the pages are put in here, from the result files: where a page says
``<!-- bench: fit knn -->``, ``<!-- beside noise: NVIDIA H200 -->`` or ``<!-- recipe -->`` in a line of its own, it gets
the table, and for ``<!-- measured: halo-10m-3 fit -->`` the time and the memory. The notebooks are pages, too. They are
executed and have outputs, which takes a minute or two; a later build keeps those of notebooks that did not change.
``-D nb_execution_mode=off`` leaves the outputs out.
"""

import inspect
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import rapids_slink
from bench import recipe, report

project = "rapids_slink"
release = version = rapids_slink.__version__
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build", "jupyter_execute"]  # the second holds what the executed notebooks made

default_role = "py:obj"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autosummary_generate = False  # the tables link to the entries below them
autodoc_typehints = "none"  # numpydoc's sections say more
numpydoc_show_class_members = False  # the pages name them
numpydoc_class_members_toctree = False

NOTEBOOKS = Path(__file__).parent / "notebooks"  # copies: Sphinx reads no pages outside of its folder
shutil.rmtree(NOTEBOOKS, ignore_errors=True)
shutil.copytree(ROOT / "notebooks", NOTEBOOKS, ignore=shutil.ignore_patterns(".*"))
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / ".jupyter_cache")
nb_execution_in_temp = nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_excludepatterns = os.environ.get("UNEXECUTED_NOTEBOOKS", "").split()  # patterns of their paths
nb_output_stderr = "remove"  # such as that kernels are being compiled

html_theme = "furo"
pygments_dark_style = "a11y-dark"  # furo's own underlines what is imported
html_title = f"rapids_slink {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_copyright = html_show_sourcelink = False


def prepare_page(app: Any, page: str, source: list[str]) -> None:
    """Put the tables in the place of their marks, and let links lead to the notebooks' pages."""
    results = report.load(report.FOLDER)

    def benchmarks(mark: re.Match[str]) -> str:
        rows = report.pick(results, mark[1].split())
        return _from_here(report.table(rows) or "No result file has these stages yet.")

    def beside_noise(mark: re.Match[str]) -> str:
        return _from_here(report.beside_noise(results, mark[1]) or f"No result file of {mark[1]} has these cases yet.")

    def measured(mark: re.Match[str]) -> str:
        return _from_here(report.measured(results, mark[1], mark[2], on_gpu=not mark[3]))

    source[0] = re.sub(r"^<!-- bench: ([\w -]+) -->$", benchmarks, source[0], flags=re.MULTILINE)
    source[0] = re.sub(r"^<!-- beside noise: ([\w ]+) -->$", beside_noise, source[0], flags=re.MULTILINE)
    source[0] = re.sub(r"<!-- measured: (\S+) (\S+)( cpu)? -->", measured, source[0])
    source[0] = source[0].replace("<!-- recipe -->", _from_here(recipe.table()))
    source[0] = source[0].replace("](../notebooks/", "](notebooks/").replace("](../docs/_static/", "](../_static/")


def _from_here(table: str) -> str:
    """Return a table whose links start at the repository's root as one for a page in this folder."""
    return table.replace("](bench/", "](../bench/")


def keep_bars(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Keep a module's |x| as it reads: between plain bars it would be the name of a substitution."""
    if what == "module":
        lines[:] = [line.replace("|", "\u2223") for line in lines]


def sign_classes(
    app: Any, what: str, name: str, item: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Return a class's signature as Python has it: autodoc would take that of the base's ``__new__``."""
    if what != "class":
        return signature, returned
    plain = [parameter.replace(annotation=parameter.empty) for parameter in inspect.signature(item).parameters.values()]
    return str(inspect.Signature(plain)), None


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-process-signature", sign_classes)
    app.connect("source-read", prepare_page)
    app.connect("autodoc-process-docstring", keep_bars)

"""The user guide's examples, run page by page: they print what the pages say, and what they assert holds."""

import re
from pathlib import Path

import pytest
from test_package import ROOT, python

PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path) -> list[tuple[str, str]]:
    """A page's fenced blocks: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_there_are_pages():
    assert len(PAGES) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples(page):
    found = blocks(page)
    code = "".join(text for language, text in found if language == "python")
    for package in ("hdbscan", "networkx"):
        if f"import {package}" in code:
            pytest.importorskip(package)
    assert code
    assert python(code) == "".join(text for language, text in found if language == "text")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target

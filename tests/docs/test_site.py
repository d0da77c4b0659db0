"""The site of the documentation: it builds without a warning, and a reader needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    site = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    return site


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The pages of the site, by path."""
    return {str(page.relative_to(site)): page.read_text() for page in site.rglob("*.html")}


def test_nothing_of_a_page_comes_from_the_network(pages: dict[str, str]) -> None:
    loaded = r'<(?:script|img|link|iframe|source)\b[^>]*(?:src|href)="((?:https?:)?//[^"]*)"'
    assert {name: found for name, text in pages.items() if (found := re.findall(loaded, text))} == {}


def test_a_list_or_table_of_the_sources_is_one_on_the_site(pages: dict[str, str]) -> None:
    """GitHub needs no empty line before a list, MkDocs does."""
    lost = r"^(?:- |\d+\. |\| ).*"
    found = {
        name: re.findall(lost, re.sub(r"<pre>.*?</pre>", "", text, flags=re.S), re.M) for name, text in pages.items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_every_page_is_there_as_plain_text_that_llms_txt_lists(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\((\S+)\): [A-Z`*]", (site / "llms.txt").read_text(), re.MULTILINE)
    outside = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"]
    assert sorted(listed) == sorted(
        [*(str(page.relative_to("docs")) for page in PAGES if page.parts[0] == "docs"), *outside]
    )
    assert len(list(site.rglob("index.html"))) == len(listed)
    assert all((site / page).read_text().startswith("# ") for page in listed)


def test_a_link_of_a_plain_text_leads_to_a_file_of_the_site(site: Path) -> None:
    texts = {page: re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M) for page in site.rglob("*.md")}
    links = {page: re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", text) for page, text in texts.items()}
    assert sum(map(len, links.values())) > 300
    assert [(page, link) for page, some in links.items() for link in some if not (page.parent / link).exists()] == []


def test_the_plain_text_of_the_python_page_has_signatures_and_docstrings(site: Path) -> None:
    text = (site / "reference" / "python.md").read_text()
    assert ":::" not in text
    assert "`fraudlake.open_lake(dbutils: Any = None, **values: Any) -> Lake`" in text
    assert "Answer a query." in text

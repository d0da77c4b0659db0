"""The site of the documentation: it builds without a warning, and a reader needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of the site, by path."""
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

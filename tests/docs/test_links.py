"""Links of the pages: what they lead to in the repository is there, with its heading."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs import markdown
from tests.docs.markdown import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    lost = []
    for link in markdown.links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / path)) if path else page
        has_heading = not anchor or target.suffix != ".md" or anchor in markdown.anchors(target)
        if not (ROOT / target).exists() or not has_heading:
            lost.append(link)
    assert lost == []

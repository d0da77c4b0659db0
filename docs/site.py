"""Hooks of MkDocs: pages of the repository outside ``docs/`` join the site, and links lead from one to the other."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "benchmarks/*.png")
"""Files outside ``docs/`` that are part of the site, under their own paths."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures outside ``docs/``."""
    for path in (path for pattern in OUTSIDE for path in sorted(ROOT.glob(pattern))):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links, which are right in the repository, into those of the site; what is not in the site becomes text."""
    uri = page.file.src_uri
    source = uri if _is_outside(uri) else f"docs/{uri}"

    def link(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, hash_mark, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        name = "index.md" if wanted == "README.md" else wanted.removeprefix("docs/")
        if files.get_file_from_path(name) is None and not wanted.startswith("docs/"):
            return text
        return f"{mark}[{text}]({posixpath.relpath(name, posixpath.dirname(uri) or '.')}{hash_mark}{anchor})"

    parts = _FENCED.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def _is_outside(uri: str) -> bool:
    return (ROOT / uri).exists() and not (ROOT / "docs" / uri).exists()

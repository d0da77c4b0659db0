"""Hooks of MkDocs: pages outside ``docs/`` join the site, and each page is also plain text, for ``llms.txt``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "benchmarks/*.png")
"""Files outside ``docs/`` that are part of the site, under their own paths."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_API = re.compile(r"^::: (\S+)\n(?: +options:\n(?: +\S.*\n)+)?", re.MULTILINE)
_MEMBERS = re.compile(r"members: \[(.*)\]")
_TEXTS: dict[str, str] = {}
"""The plain text of each page, by its path."""


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
    linked = "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))
    _TEXTS[uri] = _API.sub(_documented, linked + "\n").rstrip() + "\n"
    return linked


def on_post_build(config: Any) -> None:
    """Write the plain text of each page next to it, and ``llms.txt``, which lists them (https://llmstxt.org)."""
    for uri, text in _TEXTS.items():
        file = Path(config.site_dir, uri)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "Each page of the site as Markdown."]
    for entry in config.nav:
        ((section, below),) = entry.items()
        lines += ["", f"## {section}", ""]
        lines += [f"- [{_title(uri)}]({uri}): {_summary(uri)}" for uri in _uris(below)]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n")


def _uris(nav: Any) -> Iterator[str]:
    """Yield the paths of the pages of a part of ``nav``."""
    if isinstance(nav, str):
        yield nav
    else:
        for below in nav.values() if isinstance(nav, dict) else nav:
            yield from _uris(below)


def _title(uri: str) -> str:
    return _TEXTS[uri].partition("\n")[0].removeprefix("# ")


def _summary(uri: str) -> str:
    """Return the first sentence of a page, without links."""
    paragraphs = _LINK.sub(lambda found: "" if found[1] else found[2], _TEXTS[uri]).split("\n\n")[1:]
    first = next(text for text in paragraphs if text.strip() and not re.match(r"[#|<\[ -]", text))
    return re.split(r"(?<=\.)\s", " ".join(first.split()))[0].rstrip(":")


@cache
def _package(name: str) -> griffe.Object | griffe.Alias:
    return griffe.load(name, search_paths=[ROOT / "src"])


def _documented(found: re.Match[str]) -> str:
    """Return the signature and the docstring in place of a directive of mkdocstrings."""
    members = _MEMBERS.search(found[0])
    names = [found[1], *(f"{found[1]}.{name}" for name in (members[1].split(", ") if members else ()))]
    return "".join(_described(name) for name in names)


def _described(name: str) -> str:
    package, _, path = name.partition(".")
    found = _package(package)[path]
    object_ = found.final_target if found.is_alias else found
    label = object_.signature(name=name) if object_.is_function else name
    return f"`{label}`\n\n{object_.docstring.value}\n\n"


def _is_outside(uri: str) -> bool:
    return (ROOT / uri).exists() and not (ROOT / "docs" / uri).exists()

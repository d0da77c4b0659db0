"""Markdown: the blocks of code, links and headings of the repository's pages."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("examples/**/*.md"),
    )
)
_FENCE = re.compile(r"^( *)```(\w*)")
_PROGRAMS = (
    "fraudlake|make|databricks|source|export|python3?|pip|git|tar|cp|mv|rm|cat|cd|for|docker|podman|eval|sed|mkdir|"
    r"\.ci/run|\.venv/bin/\w+"
)
_SHELL = re.compile(rf"(sudo |[A-Z_]+=\S+ )*({_PROGRAMS})(\s|$)")
_SQL = re.compile(r"(SELECT|CREATE|INSERT|UPDATE|GRANT|ALTER|DESCRIBE|WITH|MERGE|OPTIMIZE|VACUUM)\s")


@dataclass(frozen=True)
class Block:
    """A block of code: its page, its first line, its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the settings or SQL file that the lines above give to the block; None: none."""
        above = " ".join((ROOT / self.page).read_text().split("\n")[max(0, self.line - 5) : self.line - 1])
        return next(iter(re.findall(r"`([\w-]+\.(?:toml|sql))`", above)[-1:]), None)

    @property
    def printed(self) -> str | None:
        """The fenced text below the block, at most a line of prose away; None: the page shows none."""
        end = self.line + self.text.count("\n") + 2
        below = (one for one in blocks(self.page) if one.language == "text" and 0 < one.line - end <= 4)
        return next((one.text for one in below), None)

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.language}"


def of_language(*languages: str) -> list[Block]:
    """The blocks of all pages in these languages."""
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced and the indented blocks of a page; one without a language gets the one that it is written in."""
    lines = [*(ROOT / page).read_text().split("\n"), ""]
    number = 0
    while number < len(lines):
        begin, fence = number, _FENCE.match(lines[number])
        if fence:
            number += 1
            while not lines[number].strip().startswith("```"):
                number += 1
            text = "\n".join(line.removeprefix(fence[1]) for line in lines[begin + 1 : number])
            yield Block(page, begin + 1, fence[2] or language_of(text), text)
        elif lines[number].startswith("    ") and not lines[number - 1].strip():
            while lines[number].startswith("    ") or not lines[number].strip():
                number += 1
                if number == len(lines):
                    break
            found = lines[begin:number]
            indent = min(len(line) - len(line.lstrip()) for line in found if line.strip())
            text = "\n".join(line[indent:] for line in found).rstrip()
            if not _continues_a_list(lines, begin):
                yield Block(page, begin + 1, language_of(text), text)
            number -= 1
        number += 1


def _continues_a_list(lines: list[str], number: int) -> bool:
    """Whether an indented paragraph is text of the item of a list above it, not code."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    above = next((line for line in reversed(lines[:number]) if line.strip() and not line.startswith("  ")), "")
    return bool(re.match(r"(- |\d+\. )", above)) and indent < 6


def language_of(text: str) -> str:
    """The language of a block that names none: shell, sql, python, json, toml, or output for anything else."""
    code = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not code:
        return "output"
    if _SHELL.match(code[0]):
        return "shell"
    if _SQL.match(code[0]):
        return "sql"
    if code[0].lstrip().startswith("{"):
        return "json"
    with suppress(SyntaxError):
        if re.match(r"(from|import) \w|\w+(\.\w+)*\(|spark\.", code[0]):
            ast.parse(text)
            return "python"
    with suppress(tomllib.TOMLDecodeError):
        if re.match(r"\[|\w+ = ", code[0]) and tomllib.loads(text) is not None:
            return "toml"
    return "output"


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links, outside blocks of code."""
    text = (ROOT / page).read_text()
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)
    yield from re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its own, and GitHub's of headings, with a number from the second of the same name on."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    seen: dict[str, int] = {}
    made = {*re.findall(r'<a name="([^"]+)">', text)}
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
        made.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return made


def as_json(text: str) -> object:
    """Read JSON, in which a page may leave something out by an ellipsis."""
    return json.loads(re.sub(r",?\s*…", "", text))

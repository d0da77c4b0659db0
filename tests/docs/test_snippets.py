"""Snippets of the pages that are read: the program, the settings and the bundle accept each. Others are executed."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from fraudlake import settings
from fraudlake.settings import Settings
from fraudlake_cli.app import App
from fraudlake_cli.commands import cli
from tests.docs import markdown
from tests.docs.markdown import PAGES, ROOT, Block, as_json

BLOCKS = [block for page in PAGES for block in markdown.blocks(page)]
NOT_RUN = {"text", "output", "diff", "dockerfile"}
"""What a program prints, and the diffs of the recipes, which tests/extensions applies."""
LANGUAGES = {*NOT_RUN, "shell", "console", "python", "sql", "toml", "yaml", "json"}
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def of(*languages: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [one for one in BLOCKS if one.language in languages], ids=str)


def test_every_language_is_known_and_none_is_lost() -> None:
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert sum(block.language == "shell" for block in BLOCKS) > 50


@of("output")
def test_what_looks_like_output_is_no_command(block: Block) -> None:
    assert not re.search(r"^\S*(fraudlake|make) [a-z-]+( |$)", block.text, re.MULTILINE)


@of("shell", "console")
def test_a_shell_accepts_it_and_the_program_every_call(block: Block) -> None:
    text = block.text
    if block.language == "console":
        text = "\n".join(re.findall(r"^\$ (.*(?:\\\n.*)*)", text, re.MULTILINE))
    text = re.sub(r"<(\w+)>", r"\1", text)  # a placeholder, as in dev_<you>_fraudlake
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert checked.stderr == ""
    for words in commands(text):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word and not word.startswith("-")} <= TARGETS
        elif words[0].rpartition("/")[2] == "fraudlake":
            accept(words[1:])


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell's text, without assignments before it and what follows an operator."""
    text = re.sub(r"(^|\s)#\s.*", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    for is_end, words in itertools.groupby(lexer, key=lambda word: not word.strip("();<>|&\n")):
        named = [*itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word) or word in ("do", "sudo"), words)]
        if not is_end and named:
            yield named


def accept(arguments: list[str]) -> None:
    """Read a call of the program, as it reads one before it does anything."""
    command: click.Command = cli
    context = cli.make_context("fraudlake", arguments, obj=App())
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if rest[0] == "COMMAND":  # any
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_command_in_the_text_exists(page: Path) -> None:
    for call in re.findall(r"(?<!`)`fraudlake ([^`]+)`(?!`)", (ROOT / page).read_text()):
        words = re.sub(r"--(lake|config|catalog|schema) \S+ |--json |… ", "", " ".join(call.split())).split(" ")
        command: click.Command = cli
        for word in words:
            if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z-]+", word) or word.startswith("-"):
                break
            assert word in command.commands, call
            command = command.commands[word]


@of("toml")
def test_toml_is_of_settings_that_exist(block: Block, tmp_path: Path) -> None:
    given = tomllib.loads(block.text)
    assert set(given) <= set(Settings.model_fields)
    file = tmp_path / "fraudlake.toml"
    earlier = [
        one.text for one in BLOCKS if one.page == block.page and one.language == "toml" and one.line < block.line
    ]
    declared = "\n".join(text for text in earlier if not set(tomllib.loads(text)) & set(given))
    file.write_text(f"{declared}\n{block.text}")
    assert settings.load(file)


@of("yaml")
def test_yaml_is_part_of_the_bundle(block: Block) -> None:
    assert set(yaml.safe_load(block.text)) <= set(yaml.safe_load((ROOT / "databricks.yml").read_text()))


@of("json")
def test_json_is_json(block: Block) -> None:
    assert as_json(block.text)

"""Snippets of the pages that are executed, with what they print: Python and SQL over the main job's lake, consoles."""

from __future__ import annotations

import ast
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlglot

from fraudlake import tables
from fraudlake.forget.audit import Audit
from fraudlake_patterns import match
from tests.conftest import FraudlakeHere
from tests.docs.markdown import Block, blocks, of_language

NOT_EXECUTED = {
    "GRANT MODIFY ON TABLE main.fraudlake": "rights of Unity Catalog",
    "SELECT coalesce(": "a system table of a workspace: tests/bundle/test_queries.py",
    "$ fraudlake features suggest": "figures of another lake: tests/model/test_suggestion.py",
    "$ fraudlake --catalog main --schema fraud workspace check": "an example: tests/workspace/test_check.py",
    "$ fraudlake --catalog main --schema fraud workspace probe": "an example: tests/workspace/test_probe.py",
}
"""Blocks that need a workspace or other data, by how they begin, and why; SQL among them is parsed."""

RETURNED: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
    "docs/explanation/from-flink.md": lambda rows, names: 0 < rows.count() <= names["buckets"],
    "docs/how-to/forget.md": lambda returned, names: returned == names["row"]["account_hash"],
}
"""What a page says of the last expression of its Python."""


def is_executed(block: Block) -> bool:
    return not block.text.startswith(tuple(NOT_EXECUTED))


def each(language: str, executed: bool = True) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "block", [block for block in of_language(language) if is_executed(block) == executed], ids=str
    )


def test_each_reason_is_that_of_a_block() -> None:
    left = [block for language in ("sql", "console") for block in of_language(language) if not is_executed(block)]
    assert len(left) == len(NOT_EXECUTED)


@pytest.fixture(scope="module")
def folder(main_job: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the main job's lake as ``./lake``, and the truth of its rows as ``simulate --truth`` writes it."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "lake").symlink_to(main_job.root)
    silver = main_job.store.rows(tables.SILVER_TRANSACTIONS)
    truth = pa.table(
        {"file": silver["source"], "row": silver["position"], "fraud": pc.fill_null(silver["label"], False)}
    )
    (folder / "truth").mkdir()
    pq.write_table(truth, folder / "truth" / "part-0.parquet")
    return folder


@pytest.fixture
def names(main_job: Any) -> Iterator[dict[str, Any]]:
    """What the pages' Python may use without having made it; the lake seems to have forgotten the account 4711."""
    spark, audit = main_job.spark, Audit([], "00" * 16, 1000)
    forgotten = [(audit.hash_of("4711"), audit.salt, audit.iterations)]
    spark.createDataFrame(forgotten, "account_hash STRING, salt STRING, iterations BIGINT").createTempView(
        "gold_forgotten"
    )
    yield {"spark": spark, "hashlib": hashlib, "buckets": main_job.settings.buckets}
    spark.catalog.dropTempView("gold_forgotten")


@pytest.mark.long
@pytest.mark.stream
@each("python")
def test_python_does_and_prints_what_the_page_says(
    block: Block,
    folder: Path,
    names: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    # Java, which has started before, is in another folder.
    *body, last = ast.parse(re.sub(r'\b(parquet|load)\("', rf'\1("{folder}/', block.text)).body
    returned = None
    exec(compile(ast.Module(body, []), str(block), "exec"), names)
    if isinstance(last, ast.Expr):
        returned = eval(compile(ast.Expression(last.value), str(block), "eval"), names)
    else:
        exec(compile(ast.Module([last], []), str(block), "exec"), names)

    assert RETURNED.get(str(block.page), lambda *_: True)(returned, names)
    assert block.printed in (None, capsys.readouterr().out.strip())


@pytest.mark.long
@pytest.mark.stream
@each("sql")
def test_sql_is_executed(block: Block, main_job: Any) -> None:
    if "MATCH_RECOGNIZE" in block.text:
        rows = main_job.store.rows(tables.SILVER_TRANSACTIONS).rename_columns(
            {"account_id": "accountId", "timestamp": "dt"}
        )
        assert match(block.text, rows, time="dt", name="transactions").num_columns > 0
    else:
        for statement in block.text.split(";"):
            main_job.spark.sql(statement).collect()


@each("sql", executed=False)
def test_sql_of_a_workspace_is_spark_sql(block: Block) -> None:
    assert sqlglot.parse(block.text, dialect="databricks")


CONSOLES = {block.page for block in of_language("console") if is_executed(block)}
WITH_SPARK = {Path("docs/how-to/rules.md"), Path("docs/how-to/flink-rules.md")}
OVER_THE_MAIN_JOB = {Path("docs/how-to/flink-rules.md")}
"""Pages whose consoles are over the lake of the main job; the others make what they need."""


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(CONSOLES - WITH_SPARK), ids=str)
def test_a_console_prints_what_the_page_shows(page: Path, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    walk(page, tmp_path, fraudlake_here)


@pytest.mark.long
@pytest.mark.stream
@pytest.mark.parametrize("page", sorted(WITH_SPARK), ids=str)
def test_a_console_that_starts_spark_prints_what_the_page_shows(
    page: Path, main_job: Any, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    if page in OVER_THE_MAIN_JOB:
        (tmp_path / "lake").symlink_to(main_job.root)
    walk(page, tmp_path, fraudlake_here)


def walk(page: Path, folder: Path, fraudlake: FraudlakeHere) -> None:
    """Write the files of a page, and enter the commands of its consoles, in order.

    A page may leave out what a command prints, all of it or what ``…`` stands for.
    """
    for block in blocks(page):
        if block.file and block.language in ("sql", "toml"):
            (folder / block.file).write_text(block.text)
        if block.language != "console" or not is_executed(block):
            continue
        for call in block.text.removeprefix("$ ").split("\n$ "):
            command, *shown = call.split("\n")
            done = fraudlake(*shlex.split(command, comments=True)[1:])
            assert done.returncode == 0, done.stderr
            assert {line.rstrip() for line in shown if line.strip() != "…"} <= {
                line.rstrip() for line in done.stdout.splitlines()
            }

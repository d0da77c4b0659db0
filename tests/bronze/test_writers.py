"""Files as other programs write them, value for value as DuckDB and Polars read them (``fixtures/writers``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake.bronze import contract, parquet
from fraudlake.settings import Settings

WRITERS = Path(__file__).parents[2] / "fixtures" / "writers"
ANSWERS = json.loads((WRITERS / "answers.json").read_text())
TERMINALS = contract.make(Settings(columns={"small": "bigint", "terminal": "string"}).columns)


def read(name: str, declared: contract.Contract = contract.FLINKS) -> list[dict[str, Any]]:
    path = str(WRITERS / "files" / name)
    rows = [row for batch in parquet.batches(path, contract=declared) for row in batch.to_pylist()]
    assert parquet.inspect(path) == (len(rows), None)
    return rows


def micros(row: dict[str, Any]) -> int | None:
    return pa.scalar(row["dt"], pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()


def taken(answer: dict[str, Any]) -> tuple[Any, ...]:
    """What the contract takes of another reader's values; decimals are texts in the answers."""
    account, amount, alert = (answer.get(field) for field in ("accountId", "amount", "alert"))
    number = None if amount is None else float(amount)
    return (
        answer.get("dt"),
        None if account is None else str(account),
        None if isinstance(amount, int) and number != amount else number,
        bool(alert) if isinstance(alert, bool | int) else None,
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_of_another_writer_has_the_values_that_other_readers_see(name: str) -> None:
    answers, rows = ANSWERS[name]["rows"], read(name)
    assert [(micros(row), *(row[field] for field in ("accountId", "amount", "alert"))) for row in rows] == [
        taken(answer) for answer in answers
    ]
    for row, answer in zip(rows, answers, strict=True):
        rescued = json.loads(row["_rescued_data"] or "{}")
        assert {field for field in answer if answer[field] is not None and row[field] is None} <= set(rescued)


def test_integers_of_128_bits_are_digits_or_integers_of_64_bits() -> None:
    rows = read("polars_wide", TERMINALS)
    assert [row["terminal"] for row in rows] == ["340282366920938463463374607431768211455", "7", "1", None]
    assert [row["small"] for row in rows] == [-1, 7, 1, None]
    assert json.loads(rows[1]["_rescued_data"]) == {"amount": 9007199254740993}


@pytest.mark.parametrize("name", ["spark_legacy_int64", "spark_legacy_int96"])
def test_days_of_the_julian_calendar_are_those_that_spark_wrote(name: str) -> None:
    rows = read(name)
    assert [str(pa.scalar(row["dt"], pa.timestamp("us")).cast(pa.string())) for row in rows] == [
        "0001-01-01 00:00:00.000000",
        "0999-12-31 23:59:59.999999",
        "1100-02-28 12:00:00.000000",
        "1100-03-01 12:00:00.000000",
        "1500-03-01 00:00:00.000000",
        "1582-10-04 23:59:59.500000",
        "1582-10-15 00:00:00.000000",
        "1969-12-31 23:59:59.999999",
        "2026-03-07 12:00:00.123456",
    ]
    assert [json.loads(row["_rescued_data"])["day"][:7] for row in rows[:3]] == ["0001-01", "0999-12", "1100-02"]


def test_a_time_in_microseconds_that_was_written_as_nanoseconds_is_marked() -> None:
    assert {tuple(row["_misfits"]) for row in read("fp_int96")} == {("dt in milliseconds",)}

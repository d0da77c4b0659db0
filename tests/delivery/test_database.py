from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from fraudlake import tables
from fraudlake.delivery import database, event
from fraudlake.delivery.database import DatabaseSink
from fraudlake.delivery.sink import Outcome
from fraudlake.errors import UsageError

from .alerts import alert

EVENTS = [event.make_event(alert(number), "lake") for number in range(3)]


def sink(file: Path) -> DatabaseSink:
    return DatabaseSink(f"sqlite:///{file}?timeout=0.05", "fraud_alerts", pause=0.05)


def rows(file: Path) -> list[Any]:
    with sqlite3.connect(file) as connection:
        return connection.execute("SELECT * FROM fraud_alerts ORDER BY alert_id").fetchall()


def test_an_event_is_a_row_with_the_columns_of_silver_alerts(tmp_path: Path) -> None:
    assert sink(tmp_path / "db").send(EVENTS, "name") == [Outcome(1)] * 3
    with sqlite3.connect(tmp_path / "db") as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(fraud_alerts)")]
    assert columns == [name for name in tables.SILVER_ALERTS.column_names if name != "evidence_columns"]
    assert dict(zip(columns, rows(tmp_path / "db")[1], strict=True)) == {
        "alert_id": "00000000000000000000000000000001",
        "rule": "small_then_large",
        "account_id": "1",
        "transaction_id": "large-1",
        "timestamp": "2026-03-07 12:00:01.000000",
        "amount": 900.5,
        "explanation": "Konto 1 „zahlte“ 'klein', dann groß\n1",
        "detected_at": "2026-03-07 12:00:01.000000",
        "kind": "small_then_large",
        "evidence": '[{"variable": "SMALL", "transaction_id": "small-1", '
        '"timestamp": "2026-03-07T11:59:59.750000Z", "amount": 0.1}, '
        '{"variable": "LARGE", "transaction_id": "large-1", '
        '"timestamp": "2026-03-07T12:00:01.000000Z", "amount": 900.5}]',
        "measures": '{"seconds_between": "1.25"}',
        "rule_version": 1,
        "entity": "account",
        "entity_key": "1",
    }


def test_a_row_is_updated_by_its_id(tmp_path: Path) -> None:
    changed = {**EVENTS[1], "data": {**EVENTS[1]["data"], "amount": 7.0}}
    sink(tmp_path / "db").send(EVENTS, "name")
    sink(tmp_path / "db").send([changed, *EVENTS[2:]], "name")
    assert [row[5] for row in rows(tmp_path / "db")] == [900.5, 7.0, 900.5]


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    sink(tmp_path / "db").send(EVENTS[:1], "name")
    other = sqlite3.connect(tmp_path / "db", check_same_thread=False, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.4, other.rollback)
    release.start()
    outcomes = DatabaseSink(f"sqlite:///{tmp_path / 'db'}?timeout=0.05", "fraud_alerts", 0.1).send(EVENTS, "name")
    release.join()
    other.close()
    assert {outcome.reason for outcome in outcomes} == {None}
    assert outcomes[0].attempts > 1
    assert len(rows(tmp_path / "db")) == 3


@pytest.mark.slow
def test_a_database_that_stays_away_is_given_up(tmp_path: Path) -> None:
    outcomes = sink(tmp_path / "missing" / "db").send(EVENTS, "name")
    assert outcomes == [Outcome(5, "unable to open database file")] * 3


def test_a_row_that_the_database_refuses_does_not_keep_the_others_back(tmp_path: Path) -> None:
    sink(tmp_path / "db").send(EVENTS[:1], "name")
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON fraud_alerts WHEN NEW.transaction_id = 'large-1' "
            "BEGIN SELECT RAISE(ABORT, 'no such customer'); END"
        )
    outcomes = sink(tmp_path / "db").send(EVENTS, "name")
    assert outcomes == [Outcome(1), Outcome(1, "no such customer", is_refusal=True), Outcome(1)]
    assert [row[3] for row in rows(tmp_path / "db")] == ["large-0", "large-2"]


@pytest.mark.slow
def test_a_table_with_other_columns_is_an_outcome(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("CREATE TABLE fraud_alerts (alert_id TEXT PRIMARY KEY)")
    (outcome,) = sink(tmp_path / "db").send(EVENTS[:1], "name")
    assert outcome.reason is not None and "has no column named rule" in outcome.reason


@pytest.mark.parametrize(
    ("name", "dialect", "clause"),
    [
        ("postgresql", postgresql.dialect(), "ON CONFLICT (alert_id) DO UPDATE SET rule = excluded.rule"),
        ("mysql", mysql.dialect(), "ON DUPLICATE KEY UPDATE rule = "),
        ("mariadb", mysql.dialect(is_mariadb=True), "ON DUPLICATE KEY UPDATE rule = "),
    ],
)
def test_other_databases_have_upserts_of_their_own(name: str, dialect: Any, clause: str) -> None:
    statement = str(database._UPSERTS[name](database.table_of("fraud_alerts", "risk")).compile(dialect=dialect))
    assert statement.startswith("INSERT INTO risk.fraud_alerts (alert_id, rule, ")
    assert clause in statement
    assert "SET alert_id" not in statement


def test_times_keep_their_microseconds_everywhere() -> None:
    table = database.table_of("fraud_alerts")
    assert "detected_at DATETIME(6)" in str(sa.schema.CreateTable(table).compile(dialect=mysql.dialect()))
    assert "detected_at TIMESTAMP WITH TIME ZONE" in str(
        sa.schema.CreateTable(table).compile(dialect=postgresql.dialect())
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:postgresql://host/db?password=hidden", "must be an address of SQLAlchemy"),
        ("hidden", "must be an address of SQLAlchemy"),
        ("postgresql+pg8000://me:hidden@host/db", "its driver 'pg8000' is not installed"),
        ("mssql+nothing://me:hidden@host/db", "must be an address of SQLAlchemy"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_shown(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        DatabaseSink(url, "fraud_alerts")
    assert "hidden" not in str(refused.value)

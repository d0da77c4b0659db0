"""Database: upserts each event's data into a table, by its id."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from fraudlake import tables
from fraudlake.delivery.event import IN_EVIDENCE, Event
from fraudlake.delivery.sink import Outcome, in_batches
from fraudlake.errors import UsageError, first_line

KEY = "alert_id"
_TYPES: dict[str, Any] = {
    "STRING": sa.Text(),
    "DOUBLE": sa.Double(),
    "BIGINT": sa.BigInteger(),
    "TIMESTAMP": sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"),
    tables.EVIDENCE: sa.JSON(none_as_null=True),
    "MAP<STRING,STRING>": sa.JSON(none_as_null=True),
}
_ROWS = 500
"""Rows in a statement and a transaction."""
_ATTEMPTS = 5


class DatabaseSink:
    """Writes rows with the fields of an event's data to a table of PostgreSQL, MySQL, MariaDB or SQLite.

    Args:
        url: SQLAlchemy's address of the database; it may contain a password and is never shown.
        table: the table's name, optionally with its schema; it is created if it does not exist.
        pause: seconds before the second attempt; each further one waits twice as long.

    Raises:
        UsageError: the address is invalid, its driver is not installed, or its database is not one of these.
    """

    def __init__(self, url: str, table: str, pause: float = 1.0) -> None:
        """Load the driver; nothing is connected yet."""
        try:
            # Otherwise error messages would contain the statement's values.
            self._engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool)
        except ModuleNotFoundError as error:
            raise UsageError(f"jdbc_url: its driver '{error.name}' is not installed") from None
        except (sa.exc.ArgumentError, ValueError):
            raise UsageError(
                "jdbc_url: must be an address of SQLAlchemy, such as postgresql+psycopg://USER:PASSWORD@HOST/DATABASE "
                "or sqlite:////FILE"
            ) from None
        if self._engine.dialect.name not in _UPSERTS:
            raise UsageError(f"jdbc_url: {self._engine.dialect.name} is not one of {', '.join(_UPSERTS)}")
        self._upsert = _UPSERTS[self._engine.dialect.name]
        self._pause = pause
        schema, _, name = table.rpartition(".")
        self._table = table_of(name, schema or None)

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Upsert events, at most :data:`_ROWS` per transaction."""
        return in_batches(events, _ROWS, self._write)

    def _write(self, events: Sequence[Event]) -> Outcome:
        rows = [_row(one) for one in events]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._engine.begin() as connection:
                    self._table.create(connection, checkfirst=True)
                    connection.execute(self._upsert(self._table), rows)
                return Outcome(attempt)
            except sa.exc.SQLAlchemyError as error:
                reason = first_line(str(getattr(error, "orig", None) or type(error).__name__))
                is_refusal = isinstance(error, sa.exc.DataError | sa.exc.IntegrityError)
                # Only these may pass: no connection, a lock, a server that is shutting down.
                if not isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
                    break
            if attempt < _ATTEMPTS:
                time.sleep(self._pause * 2 ** (attempt - 1) * random.uniform(1, 1.5))  # noqa: S311
        return Outcome(attempt, reason, is_refusal)


def table_of(name: str, schema: str | None = None) -> sa.Table:
    """Return the table with the fields of an event's data, and ``alert_id`` as primary key."""
    columns = (
        # MySQL cannot index a text without a length.
        sa.Column(column.name, sa.String(64) if column.name == KEY else _TYPES[column.type], primary_key=is_key)
        for column in tables.SILVER_ALERTS.fields
        if column.name != IN_EVIDENCE
        for is_key in [column.name == KEY]
    )
    return sa.Table(name, sa.MetaData(), *columns, schema=schema)


def _on_conflict(insert: Any) -> Any:
    def upsert(table: sa.Table) -> Any:
        statement = insert(table)
        return statement.on_conflict_do_update(index_elements=[KEY], set_=_others(statement.excluded))

    return upsert


def _on_duplicate_key(table: sa.Table) -> Any:
    statement = mysql.insert(table)
    return statement.on_duplicate_key_update(_others(statement.inserted))


def _others(columns: Any) -> dict[str, Any]:
    return {column.name: column for column in columns if column.name != KEY}


_UPSERTS = {
    "postgresql": _on_conflict(postgresql.insert),
    "mysql": _on_duplicate_key,
    "mariadb": _on_duplicate_key,
    "sqlite": _on_conflict(sqlite.insert),
}


def _row(event: Event) -> dict[str, Any]:
    times = {column.name for column in tables.SILVER_ALERTS.fields if column.type == "TIMESTAMP"}
    return {name: datetime.fromisoformat(value) if name in times else value for name, value in event["data"].items()}

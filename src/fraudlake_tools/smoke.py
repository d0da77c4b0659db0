"""Smoke test: lands the ten transactions of Flink's tutorial after a deploy, runs the job, and expects its alerts."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from databricks.sdk.service.catalog import TableType

from fraudlake.errors import FraudlakeError
from fraudlake_workspace import jobs
from fraudlake_workspace.client import asking

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.settings import Settings
    from fraudlake_workspace.sql import Sql

# Account, amount, and whether Flink's detector raised an alert; from 1970-01-01 00:00:01 on, a millisecond apart.
_TRANSACTIONS = (
    ("1", 188.23, False),
    ("2", 0.50, False),
    ("2", 600.00, True),
    ("3", 42.00, False),
    ("1", 0.89, False),
    ("1", 300.00, False),
    ("4", 0.10, False),
    ("4", 520.00, True),
    ("3", 0.75, False),
    ("3", 800.00, True),
)
EXPECTED = ["2", "4", "3"]
"""The accounts of the alerts, in event-time order."""
_DAY = "1970-01-01"


@dataclass(frozen=True)
class Smoke:
    """A smoke test: its id, the path of its file, and the prefix of its accounts.

    Without the prefix, the tutorial's account 2 would share the state of a customer's account 2.
    """

    id: str

    @classmethod
    def new(cls) -> Smoke:
        """Return a smoke test with a random id."""
        return cls(uuid.uuid4().hex[:12])

    @property
    def source(self) -> str:
        """The file, relative to the landing folder."""
        return f"fraudlake_smoke/part-{self.id}-0.parquet"

    @property
    def prefix(self) -> str:
        """The prefix of the accounts' names."""
        return f"smoke-{self.id}-"


def smoke(
    client: WorkspaceClient,
    settings: Settings,
    sql: Sql,
    run_job: Callable[[], jobs.Run],
    smoke_test: Smoke,
) -> jobs.Run:
    """Land the transactions, run the job, compare the alerts, and clean up, also after a failure.

    Raises:
        FraudlakeError: a step failed, or the alerts differ from the tutorial's.
    """
    file = _file(settings, smoke_test)
    with asking(client, f"landing folder {settings.landing_path}"):
        client.files.upload(file, io.BytesIO(transactions(smoke_test)), overwrite=True)
    try:
        run = run_job()
        alerts = sql.rows(
            "SELECT account_id FROM silver_alerts WHERE startswith(account_id, :prefix) ORDER BY timestamp",
            prefix=smoke_test.prefix,
        )
        accounts = [account.removeprefix(smoke_test.prefix) for (account,) in alerts]
        if accounts != EXPECTED:
            raise FraudlakeError(
                f"smoke: the alerts are of the accounts {accounts}, not {EXPECTED}: see the run at {run.url}, and "
                f"silver_quarantine for rows of {smoke_test.source}"
            )
    except FraudlakeError as error:
        _clean_up_after(error, client, settings, sql, smoke_test)
        raise
    clean_up(client, settings, sql, smoke_test)
    return run


def transactions(smoke_test: Smoke) -> bytes:
    """Return the file: ``dt, accountId, amount, alert`` as Flink writes them, in parquet."""
    begun = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    accounts, amounts, alerts = zip(*_TRANSACTIONS, strict=True)
    table = pa.table(
        {
            "dt": pa.array(
                [begun + timedelta(milliseconds=i) for i in range(len(_TRANSACTIONS))], pa.timestamp("us", tz="UTC")
            ),
            "accountId": [smoke_test.prefix + account for account in accounts],
            "amount": amounts,
            "alert": alerts,
        }
    )
    written = io.BytesIO()
    pq.write_table(table, written)
    return written.getvalue()


def _file(settings: Settings, smoke_test: Smoke) -> str:
    return f"{settings.landing_path.rstrip('/')}/{smoke_test.source}"


def _clean_up_after(
    error: FraudlakeError, client: WorkspaceClient, settings: Settings, sql: Sql, smoke_test: Smoke
) -> None:
    try:
        clean_up(client, settings, sql, smoke_test)
    except FraudlakeError as clean_up_error:
        raise FraudlakeError(f"{error}; and cleaning up failed: {clean_up_error}") from None


def clean_up(client: WorkspaceClient, settings: Settings, sql: Sql, smoke_test: Smoke) -> None:
    """Delete the file and its rows, and nothing else.

    The file's entry stays in the ledger, with 0 rows, so that the next ``ingest`` does not report the file as missing.
    The streams skip deletions. The figures of the day are deleted unless other transactions are of that day.
    """
    file = _file(settings, smoke_test)
    with asking(client, file):
        client.files.delete(file)
    sql.rows("UPDATE bronze_files SET rows = 0 WHERE _source_file = :source", source=smoke_test.source)
    tables = columns_by_table(client, settings)
    for table, columns in tables.items():
        if "account_id" in columns:
            by_account = "DELETE FROM IDENTIFIER(:table) WHERE startswith(account_id, :prefix)"
            sql.rows(by_account, table=table, prefix=smoke_test.prefix)
        elif "_source_row" in columns:
            by_file = "DELETE FROM IDENTIFIER(:table) WHERE _source_file = :source"
            sql.rows(by_file, table=table, source=smoke_test.source)
    for table, columns in tables.items():
        if table.startswith("gold_") and "date" in columns:
            sql.rows(
                "DELETE FROM IDENTIFIER(:table) WHERE date = DATE(:day) "
                "AND NOT EXISTS (SELECT 1 FROM silver_transactions WHERE date = DATE(:day))",
                table=table,
                day=_DAY,
            )


def columns_by_table(client: WorkspaceClient, settings: Settings) -> dict[str, set[str]]:
    """Return the columns of each table of the lake, without views, from the catalog.

    The package declares its tables, too, but in modules that need Spark.
    """
    catalog = str(settings.catalog)
    schema = str(settings.schema_name)
    with asking(client, f"tables of {catalog}.{schema}"):
        return {
            str(table.name): {str(column.name) for column in table.columns or ()}
            for table in client.tables.list(catalog, schema)
            if table.table_type in (TableType.MANAGED, TableType.EXTERNAL)
        }

"""Smoke: after a deploy, the ten transactions of Flink's tutorial land, go through the job, and give their alerts."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.workspace import jobs
from fraudlake.workspace.client import asking

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.settings import Settings
    from fraudlake.workspace.sql import Sql

# Account, amount, and whether Flink's detector raised an alert: one millisecond apart from 1970-01-01 00:00:01.
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
"""The accounts of the alerts, in the order of their times."""
_DAY = "1970-01-01"


@dataclass(frozen=True)
class Smoke:
    """One smoke test: where its file lies in the landing folder, and the prefix that makes its accounts its own.

    Without the prefix the tutorial's account 2 would meet the state of a customer's account of that name.
    """

    id: str

    @classmethod
    def new(cls) -> Smoke:
        """Return one that no other can be mistaken for."""
        return cls(uuid.uuid4().hex[:12])

    @property
    def source(self) -> str:
        """The file, relative to the landing folder."""
        return f"fraudlake_smoke/part-{self.id}-0.parquet"

    @property
    def prefix(self) -> str:
        """What stands before the accounts' names."""
        return f"smoke-{self.id}-"


def smoke(
    client: WorkspaceClient,
    settings: Settings,
    sql: Sql,
    run_job: Callable[[], jobs.Run],
    one: Smoke,
) -> jobs.Run:
    """Land the transactions, run the job, compare the alerts, and take away what was landed, whatever came of it.

    Raises:
        FraudlakeError: a step failed, or the alerts are others than the tutorial's.
    """
    file = f"{settings.landing_path.rstrip('/')}/{one.source}"
    with asking(client, f"landing folder {settings.landing_path}"):
        client.files.upload(file, io.BytesIO(transactions(one)), overwrite=True)
    try:
        run = run_job()
        found = sql.rows(
            "SELECT account_id FROM silver_alerts WHERE startswith(account_id, :prefix) ORDER BY timestamp",
            prefix=one.prefix,
        )
        accounts = [account.removeprefix(one.prefix) for (account,) in found]
        if accounts != EXPECTED:
            raise FraudlakeError(
                f"smoke: the alerts are of the accounts {accounts}, not {EXPECTED}: see the run at {run.url}, and "
                f"silver_quarantine for rows of {one.source}"
            )
    except FraudlakeError as error:
        _clean_up_after(error, client, sql, file, one)
        raise
    clean_up(client, sql, file, one)
    return run


def transactions(one: Smoke) -> bytes:
    """Return the file: ``dt, accountId, amount, alert`` as Flink writes them, in parquet."""
    begun = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    accounts, amounts, alerts = zip(*_TRANSACTIONS, strict=True)
    table = pa.table(
        {
            "dt": pa.array(
                [begun + timedelta(milliseconds=i) for i in range(len(_TRANSACTIONS))], pa.timestamp("us", tz="UTC")
            ),
            "accountId": [one.prefix + account for account in accounts],
            "amount": amounts,
            "alert": alerts,
        }
    )
    written = io.BytesIO()
    pq.write_table(table, written)
    return written.getvalue()


def _clean_up_after(error: FraudlakeError, client: WorkspaceClient, sql: Sql, file: str, one: Smoke) -> None:
    try:
        clean_up(client, sql, file, one)
    except FraudlakeError as another:
        raise FraudlakeError(f"{error}; and cleaning up failed: {another}") from None


def clean_up(client: WorkspaceClient, sql: Sql, file: str, one: Smoke) -> None:
    """Take the file and its rows away, and nothing else.

    The ledger keeps the file's entry, with no rows, so that the next ``ingest`` does not miss it; the streams pass over
    deletions. A day's figures go where no other transaction is of that day.
    """
    with asking(client, file):
        client.files.delete(file)
    sql.rows("UPDATE bronze_files SET rows = 0 WHERE _source_file = :source", source=one.source)
    for table in tables.ALL:
        if "account_id" in table.column_names:
            by_account = "DELETE FROM IDENTIFIER(:table) WHERE startswith(account_id, :prefix)"
            sql.rows(by_account, table=table.name, prefix=one.prefix)
        elif "_source_row" in table.column_names:
            by_file = "DELETE FROM IDENTIFIER(:table) WHERE _source_file = :source"
            sql.rows(by_file, table=table.name, source=one.source)
    for table in tables.ALL:
        if table.name.startswith("gold_") and "date" in table.column_names:
            sql.rows(
                "DELETE FROM IDENTIFIER(:table) WHERE date = DATE(:day) "
                "AND NOT EXISTS (SELECT 1 FROM silver_transactions WHERE date = DATE(:day))",
                table=table.name,
                day=_DAY,
            )

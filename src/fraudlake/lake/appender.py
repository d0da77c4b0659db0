"""Appender: writes a micro-batch in one commit, marked with the checkpoint and the micro-batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError
from fraudlake.lake import conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from fraudlake.lake.commit import Commit
    from fraudlake.lake.lake import Lake
    from fraudlake.lake.writer import Compute
    from fraudlake.tables import Table

_LATEST = 20
"""Number of latest commits among which a new one is searched; other writers may have committed since."""


@dataclass(frozen=True)
class Appender:
    """Appends micro-batches to tables exactly once.

    Delta records an application and a version with each commit (``txnAppId``, ``txnVersion``), so a micro-batch that is
    repeated after a crash adds nothing (Delta Lake documentation, "Idempotent table writes in foreachBatch"). The
    application is the checkpoint's id: a new checkpoint has a new id, and counts its micro-batches from 0 again.
    """

    application: str
    repeated: int | None = None
    """The micro-batch that an earlier process began, and this one repeats."""

    @classmethod
    def of(cls, lake: Lake, step: str) -> Appender:
        """Return the appender of a step's stream."""
        checkpoint = lake.checkpoint(step)
        return cls(checkpoint.notes.id, checkpoint.pending_batch())

    def append(
        self,
        lake: Lake,
        rows: DataFrame,
        table: Table,
        batch_id: int,
        compute: Compute | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        """Append a micro-batch's rows to a table, once.

        Args:
            lake: the lake, in the session of the rows.
            rows: the rows, with the table's columns or those that ``compute`` reads.
            table: the table to append to.
            batch_id: the micro-batch's number.
            compute: turns Arrow batches of the rows into batches of the table's schema, in Spark's tasks.
            record: what the commit records next to the application and the micro-batch.
        """
        chosen = rows if compute else rows.select(*lake.table(table).column_names)
        transaction = (self.application, batch_id)
        metadata = json.dumps({"application": self.application, "batch": batch_id, **(record or {})})
        conflict.retried(lambda: lake.writer(table).append(chosen, transaction, compute, metadata))

    def require_rows(self, lake: Lake, tables: Iterable[Table], batch_id: int, expected: int) -> None:
        """Check, before Spark takes a micro-batch as done, that all of its rows are in the tables' commits.

        Raises:
            FraudlakeError: some are missing.
        """
        committed = [self._committed(lake, table, batch_id) for table in tables]
        # Delta may have removed the commit of a repeated micro-batch from the log.
        if sum(filter(None, committed)) != expected and not (None in committed and batch_id == self.repeated):
            raise FraudlakeError(
                f"micro-batch {batch_id} has {expected:,} rows, but its commits have {sum(filter(None, committed)):,}: "
                "the step stops (docs/how-to/workspace.md, 'A micro-batch is read more than once')"
            )

    def rows_since(self, lake: Lake, table: Table, batch_id: int) -> int:
        """Return how many rows a micro-batch and later ones have committed to a table."""
        records = [(commit.record, commit.rows or 0) for commit in lake.store.history(table)]
        return sum(
            rows
            for record, rows in records
            if record.get("application") == self.application and record["batch"] >= batch_id
        )

    def _committed(self, lake: Lake, table: Table, batch_id: int) -> int | None:
        """Return how many rows a micro-batch has committed to a table; None if it has no commit."""
        commit = self.commit(lake, table, batch_id)
        return None if commit is None else commit.rows

    def commit(self, lake: Lake, table: Table, batch_id: int) -> Commit | None:
        """Return a micro-batch's commit to a table, new or from before a repetition; None if it had no rows."""
        history = lake.store.history(table) if batch_id == self.repeated else lake.store.history(table, _LATEST)
        return next((commit for commit in history if commit.is_of(self.application, batch_id)), None)

"""Scratch: temporary tables and a folder of the probe, with unique names in the lake's schema, removed at the end."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from fraudlake.settings import Settings

_STREAM_SECONDS = 300
_LOOK_SECONDS = 5


@dataclass
class Scratch:
    """A session, the lake's settings, and unique names for tables and a folder."""

    spark: SparkSession
    settings: Settings
    receiver: str | None = None
    """``HOST:PORT`` of a receiver of alerts that the compute should reach."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _tables: list[str] = field(default_factory=list)

    def bare_name(self, name: str) -> str:
        """Return a table's name without catalog and schema."""
        return f"fraudlake_probe_{self.id}_{name}"

    def table(self, name: str) -> str:
        """Return a table's quoted name with catalog and schema; the table is dropped at the end if it exists."""
        full = f"`{self.settings.catalog}`.`{self.settings.schema_name}`.`{self.bare_name(name)}`"
        if full not in self._tables:
            self._tables.append(full)
        return full

    @property
    def folder(self) -> Path:
        """The folder, in the volume of the checkpoints."""
        return self.settings.checkpoints_path / f"fraudlake_probe_{self.id}"

    def filled(self, name: str, rows: int = 10) -> str:
        """Append rows ``id BIGINT`` from 0 on to a table, which is created if missing; return its full name."""
        full = self.table(name)
        self.spark.range(rows).write.format("delta").mode("append").saveAsTable(full)
        return full

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return self.spark.table(table).count()

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a stream's checkpoint."""
        return self.folder / name

    def run(
        self,
        name: str,
        writer: DataStreamWriter,
        into: str | None = None,
        is_done: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run a stream over the available rows, into a table or as the writer says, until it ends or ``is_done``.

        Raises:
            FraudlakeError: the stream did not end in time.
        """
        writer = writer.option("checkpointLocation", str(self.checkpoint(name))).trigger(availableNow=True)
        query: StreamingQuery = writer.toTable(into) if into else writer.start()
        deadline = time.monotonic() + _STREAM_SECONDS
        try:
            while not query.awaitTermination(_LOOK_SECONDS) and not is_done():
                if time.monotonic() > deadline:
                    raise FraudlakeError(f"the stream has not ended after {_STREAM_SECONDS} s")
        finally:
            query.stop()

    def stream(self, table: str) -> DataFrame:
        """Return a table as the package streams it."""
        reader = self.spark.readStream.option("skipChangeCommits", "true").option("withEventTimeOrder", "false")
        return reader.table(table)

    def remove(self) -> list[str]:
        """Remove tables and folder; return those that could not be removed."""
        left = []
        for table in self._tables:
            try:
                self.spark.sql(f"DROP TABLE IF EXISTS {table}")
            except Exception:  # continue with the other tables after any error
                left.append(table)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left + ([str(self.folder)] if self.folder.exists() else [])

"""The lake: settings become tables, checkpoints, models and input, on this machine or in a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fraudlake import tables
from fraudlake.bronze import landing, messages
from fraudlake.bronze.landing import File
from fraudlake.checkpoint import Checkpoint
from fraudlake.errors import UsageError
from fraudlake.lake.commit import Commit
from fraudlake.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Mark = tuple[str, int]
"""Who appends, and which of its micro-batches: Delta's ``txnAppId`` and ``txnVersion``."""


class Lake:
    """A lake that is open: ``Lake(settings)`` gives a local one, or where the settings name a catalog, that one.

    Opening makes the tables that are missing, so that every table can be queried by its name from the start.
    """

    settings: Settings
    spark: SparkSession
    name: str
    """What a person calls it: its folder, or catalog and schema."""
    log: str
    """Where Spark's log is."""
    replays: Path
    """Folder of what ``quarantine --replay`` has written down."""

    def __new__(cls, settings: Settings | None = None, spark: SparkSession | None = None) -> Lake:
        """Choose the kind of lake; there are no settings where one comes out of a pickle, to a process of Spark's.

        Raises:
            UsageError: what only local lakes need is not installed.
        """
        if settings is None:
            return object.__new__(cls)
        if settings.catalog:
            from fraudlake.lake.workspace import WorkspaceLake

            return object.__new__(WorkspaceLake)
        try:
            from fraudlake.lake.local import LocalLake
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is not installed: pip install 'fraudlake[local]'") from None
        return object.__new__(LocalLake)

    def __init__(self, settings: Settings, spark: SparkSession | None = None) -> None:
        """Open the lake that the settings name; in a workspace, in this session."""
        raise NotImplementedError

    @property
    def landing(self) -> str:
        """Folder in which Flink's files land."""
        raise NotImplementedError

    @property
    def tracking_uri(self) -> str:
        """MLflow's store of runs."""
        raise NotImplementedError

    @property
    def registry_uri(self) -> str:
        """MLflow's store of registered models."""
        return self.tracking_uri

    @property
    def artifacts(self) -> str | None:
        """Where MLflow keeps the models of a new experiment; None: where its store wants."""
        return None

    @property
    def scratch(self) -> str | None:
        """Folder that all of Spark's machines see, for models on their way; None: there is only one machine."""
        return None

    def read(self, table: tables.Table) -> DataFrame:
        """Return a table as it is now."""
        return self.spark.table(table.name)

    def read_stream(self, table: tables.Table, by_time: str | None = None) -> DataFrame:
        """Return a table as a stream of its appended rows; rows deleted or rewritten upstream are passed over.

        What is in the table when the stream starts comes in the order of its files; with ``by_time``, the column of a
        watermark that follows, in the order of that (Delta Lake documentation, "Process initial snapshot without data
        being dropped").
        """
        reader = self.spark.readStream.option("skipChangeCommits", "true")
        return reader.option("withEventTimeOrder", "true" if by_time else "false").table(table.name)

    def rows(self, table: tables.Table) -> pa.Table:
        """Return all rows of a small table as it is now."""
        return self.read(table).toArrow()

    def append(self, rows: DataFrame, table: tables.Table, mark: Mark, count: int | None = None) -> None:
        """Append rows to a table, in one commit; none, where an earlier commit had this mark or a later one.

        The table takes on columns that it does not have. ``count``, where it is known, is how many rows there are.
        """
        application, version = mark
        takes_on = any(name not in table.column_names for name in rows.columns)
        writer = rows.write.format("delta").mode("append").option("txnAppId", application).option("txnVersion", version)
        writer.option("mergeSchema", str(takes_on).lower()).saveAsTable(table.name)

    def write(self, rows: pa.Table, table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        """Append rows to a table, or put them in the place of its rows; in one commit."""
        raise NotImplementedError

    def append_files(self, files: list[File]) -> None:
        """Append landed files' rows to ``bronze_transactions``, in one commit: all of each, or none of any.

        It fails where a file is not, or no longer, as it is told here.
        """
        raise NotImplementedError

    def append_messages(self, batch: DataFrame, mark: Mark) -> None:
        """Append a micro-batch of Kafka's messages to ``bronze_transactions``, as :meth:`append` appends rows."""
        self.append(messages.from_messages(batch), tables.BRONZE_TRANSACTIONS, mark)

    def version(self, table: tables.Table) -> int:
        """Return a table's version now."""
        raise NotImplementedError

    def history(self, table: tables.Table) -> list[Commit]:
        """Return a table's commits, as far back as its log goes."""
        told = self.spark.sql(f"DESCRIBE HISTORY {table.name}").selectExpr(
            "version", "operation", "unix_millis(timestamp) AS timestamp", "operationParameters", "engineInfo"
        )
        return [Commit.of(row.asDict()) for row in told.collect()]

    def data_version(self, table: tables.Table) -> int:
        """Return the table version that last changed its rows."""
        return max((commit.version for commit in self.history(table) if commit.changes_rows), default=-1)

    def identity(self, table: tables.Table) -> str:
        """Return the identity that Delta gave a table when it was made; one made anew has another."""
        return str(self.spark.sql(f"DESCRIBE DETAIL {table.name}").select("id").collect()[0]["id"])

    def landed(self) -> DataFrame:
        """Return the landing folder as a stream: of its files (``path``), or of their rows, as bronze has them.

        Raises:
            UsageError: there is no such folder.
        """
        raise NotImplementedError

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that a step's stream has ever listed, read or not."""
        raise NotImplementedError

    def has_landed(self) -> bool:
        """Tell whether the landing folder holds any finished file."""
        return any(True for _ in landing.files(self.landing))

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.settings.checkpoints_path

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint."""
        return Checkpoint(step, self.checkpoints / step)

    def exclusive(self, step: str) -> AbstractContextManager[None]:
        """Hold a step for this process, as far as the place allows.

        Raises:
            FraudlakeError: another process holds it.
        """
        raise NotImplementedError


def layout(table: tables.Table, clustering: str) -> str:
    """Return what follows a new table's name in ``CREATE TABLE``: columns, format, clustering and properties."""
    if clustering == "liquid" and table.zorder:  # which excludes partitions
        arranged = f" CLUSTER BY ({', '.join(table.partitioned_by + table.zorder)})"
    else:
        arranged = f" PARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties)
    return f"({table.columns}) USING DELTA{arranged}" + (f" TBLPROPERTIES ({properties})" if properties else "")

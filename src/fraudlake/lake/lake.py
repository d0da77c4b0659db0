"""The lake: settings become tables, checkpoints, models and input, on this machine or in a workspace."""

from __future__ import annotations

import copy
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from fraudlake import tables
from fraudlake.bronze import landing
from fraudlake.bronze.landing import File
from fraudlake.errors import UsageError
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.commit import Commit, Detail
from fraudlake.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Transaction = tuple[str, int]
"""Who appends, and which of its micro-batches: Delta's ``txnAppId`` and ``txnVersion``."""
Compute = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class Lake:
    """A lake that is open: ``Lake(settings)`` gives a local one, or where the settings name a catalog, that one.

    Opening makes the tables that are missing, so that every table can be queried by its name from the start. With
    ``must_exist`` it makes nothing: that is for who only reads.
    """

    settings: Settings
    name: str
    """What a person calls it: its folder, or catalog and schema."""
    log: str
    """Where Spark's log is."""
    replays: Path
    """Folder of what ``quarantine --replay`` has written down."""
    sweep_seconds: float
    """Least time between two listings of the landing folder that look for files changed behind the stream's back."""
    sweeps_at_start: bool
    """Whether a new process begins with such a listing, however short ago the last one was."""

    def __new__(
        cls, settings: Settings | None = None, spark: SparkSession | None = None, must_exist: bool = False
    ) -> Lake:
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

    def __init__(self, settings: Settings, spark: SparkSession | None = None, must_exist: bool = False) -> None:
        """Open the lake that the settings name; in a workspace, in this session.

        Raises:
            FraudlakeError: with ``must_exist``: there is no such lake, or it lacks a table.
        """
        raise NotImplementedError

    @cached_property
    def spark(self) -> SparkSession:
        """The session that reads and writes the tables."""
        raise NotImplementedError

    def within(self, spark: SparkSession) -> Self:
        """Return this lake in another session: that of a micro-batch.

        A micro-batch's function gets a session of its own, whose current catalog and schema need not be the lake's
        (on Databricks they are the workspace's defaults).
        """
        inside = copy.copy(self)
        inside.spark = spark
        return inside

    def __getstate__(self) -> dict[str, Any]:
        """Travel to the process of a micro-batch without the session, which stays here."""
        return {name: value for name, value in vars(self).items() if name != "spark"}

    def name_of(self, table: tables.Table) -> str:
        """Return the name of a table that holds in every session, whatever its current catalog and schema."""
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
    def has_models(self) -> bool:
        """Whether there is a store of models; where there is none, opening it would make it."""
        return True

    def read(self, table: tables.Table) -> DataFrame:
        """Return a table as it is now."""
        return self.spark.table(self.name_of(table))

    def read_stream(self, table: tables.Table, by_time: str | None = None) -> DataFrame:
        """Return a table as a stream of its appended rows; rows deleted or rewritten upstream are passed over.

        What is in the table when the stream starts comes in the order of its files; with ``by_time``, the column of a
        watermark that follows, in the order of that (Delta Lake documentation, "Process initial snapshot without data
        being dropped").
        """
        reader = self.spark.readStream.option("skipChangeCommits", "true")
        return reader.option("withEventTimeOrder", "true" if by_time else "false").table(self.name_of(table))

    def rows(self, table: tables.Table) -> pa.Table:
        """Return all rows of a small table as it is now."""
        return self.read(table).toArrow()

    def query(self, table: tables.Table, columns: str, clauses: str = "") -> pa.Table:
        """Return what ``SELECT columns FROM table clauses`` gives: few rows.

        The SQL is what Spark and DataFusion have in common. DataFusion takes a name without quotes for one in small
        letters, so ``accountId`` cannot be named.
        """
        return self.spark.sql(select(columns, self.name_of(table), clauses)).toArrow()

    def read_version(self, table: tables.Table, version: int) -> DataFrame:
        """Return a table as it was in a version."""
        return self.spark.read.option("versionAsOf", version).table(self.name_of(table))

    def append(
        self,
        rows: DataFrame,
        table: tables.Table,
        transaction: Transaction,
        count: int | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append rows to a table, in one commit; none, where an earlier commit was of this transaction or a later one.

        Args:
            rows: the columns of the table.
            table: the table.
            transaction: who appends, and which micro-batch.
            count: how many rows there are, where that is known.
            metadata: a text that the commit carries; :meth:`history` gives it back.
        """
        application, version = transaction
        writer = rows.write.format("delta").mode("append").option("txnAppId", application).option("txnVersion", version)
        if metadata is not None:
            writer = writer.option("userMetadata", metadata)
        writer.saveAsTable(self.name_of(table))

    def append_computed(
        self, rows: DataFrame, compute: Compute, schema: pa.Schema, table: tables.Table, transaction: Transaction
    ) -> None:
        """Append what ``compute`` makes of rows, as :meth:`append` appends rows; ``schema`` is the table's in Arrow.

        ``compute`` turns Arrow batches into Arrow batches, in Spark's tasks.
        """
        self.append(rows.mapInArrow(compute, table.columns), table, transaction)

    def write(self, rows: pa.Table, table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        """Append rows to a table, or put them in the place of its rows; in one commit."""
        raise NotImplementedError

    def count_rows(self, files: list[File], whole: bool = False) -> list[tuple[int, str | None]]:
        """Return of each landed file how many rows it has or, where it cannot be read, 0 and the reason.

        Args:
            files: the files.
            whole: read each file to its end; by default its footer must do.
        """
        raise NotImplementedError

    def append_files(self, files: list[File]) -> None:
        """Append landed files' rows to ``bronze_transactions``, in one commit: all of each, or none of any.

        It fails where a file has changed since it was listed.
        """
        raise NotImplementedError

    def version(self, table: tables.Table) -> int:
        """Return a table's version now."""
        raise NotImplementedError

    def history(self, table: tables.Table) -> list[Commit]:
        """Return a table's commits, as far back as its log goes."""
        history = self.spark.sql(f"DESCRIBE HISTORY {self.name_of(table)}").selectExpr(
            "version",
            "operation",
            "unix_millis(timestamp) AS timestamp",
            "operationParameters",
            "engineInfo",
            "userMetadata",
        )
        return [Commit.of(row.asDict()) for row in history.collect()]

    def data_version(self, table: tables.Table) -> int:
        """Return the table version that last changed its rows."""
        return max((commit.version for commit in self.history(table) if commit.changes_rows), default=-1)

    def identity(self, table: tables.Table) -> str:
        """Return the identity that Delta gave a table when it was made; a table made in its place has another one."""
        return self.detail(table).id

    def detail(self, table: tables.Table) -> Detail:
        """Return what a table's log says of it as a whole."""
        row = self.spark.sql(f"DESCRIBE DETAIL {self.name_of(table)}").collect()[0]
        layout = (tuple(row["partitionColumns"]), tuple(row["clusteringColumns"]))
        return Detail(row["id"], *layout, row["properties"], is_compact=row["numFiles"] < 2)

    def set_file_size(self, table: tables.Table, size: int) -> None:
        """Have OPTIMIZE make a table's files about so large, in bytes."""
        raise NotImplementedError

    def require_landing(self) -> None:
        """Check that the landing folder is there.

        Raises:
            UsageError: it is not.
        """
        if not Path(self.landing).is_dir():
            raise UsageError(
                f"landing folder {self.landing} does not exist: make it, or name Flink's output with --landing"
            )

    def landed(self) -> DataFrame:
        """Return the landing folder as a stream of its files: ``path, modificationTime, length``.

        Raises:
            UsageError: there is no such folder.
        """
        raise NotImplementedError

    def landed_files(self, batch: DataFrame) -> list[File]:
        """Return the files that a micro-batch of :meth:`landed` names, as they are now."""
        raise NotImplementedError

    def look_again(self, files: list[File]) -> list[File]:
        """Return landed files as they are now; one that is gone has no size."""
        return [
            landing.current_file(file.path, self.landing) or landing.missing_file(file.path, self.landing)
            for file in files
        ]

    def list_files(self) -> Iterator[File]:
        """List the landing folder: the finished files as they are now; none where there is no such folder."""
        raise NotImplementedError

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that a step's stream has ever listed, read or not."""
        raise NotImplementedError

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.settings.checkpoints_path

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint."""
        return Checkpoint(step, self.checkpoints / step)

    @contextmanager
    def scratch_checkpoint(self) -> Iterator[Path]:
        """Return a folder for the checkpoint of a stream that is over, for good, when the block ends."""
        folder = self.checkpoints / "scratch" / uuid.uuid4().hex
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another process has one, too
                folder.parent.rmdir()

    def exclusive(self, step: str) -> AbstractContextManager[None]:
        """Hold a step for this process, as far as the place allows.

        Raises:
            FraudlakeError: another process holds it.
        """
        raise NotImplementedError


def select(columns: str, table: str, clauses: str) -> str:
    """Return a query of one table."""
    return " ".join(("SELECT", columns, "FROM", table, clauses))


def add_columns(spark: SparkSession, name: str, table: tables.Table, present: Iterable[str]) -> None:
    """Add the columns that a table of an earlier version lacks; they are null in the rows that it has."""
    known = set(present)
    missing = [column for column in table.fields if column.name not in known]
    if missing:
        columns = ", ".join(f"{column.name} {column.type}" for column in missing)
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")


def layout(table: tables.Table, clustering: str) -> str:
    """Return what follows a new table's name in ``CREATE TABLE``: columns, format, clustering and properties."""
    if clustering == "liquid" and table.zorder:  # which excludes partitions
        arranged = f" CLUSTER BY ({', '.join(table.partitioned_by + table.zorder)})"
    else:
        arranged = f" PARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties)
    return f"({table.columns}) USING DELTA{arranged}" + (f" TBLPROPERTIES ({properties})" if properties else "")

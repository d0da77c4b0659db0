"""The lake in a Databricks workspace: tables of a Unity Catalog schema, files and checkpoints in its volumes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import FraudlakeError, MissingLakeError, UsageError, first_line
from fraudlake.lake import contents, session
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.lake import Lake, layout
from fraudlake.lake.spark_store import SparkStore
from fraudlake.settings import Settings, secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.lake.definition import Change

_LOG_KEPT = timedelta(days=30)
"""The default of ``delta.logRetentionDuration``."""
_FILE_SIZE = "delta.targetFileSize"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_SESSION = session.COMMON_CONFIGURATION | {
    # The stateful steps need it (Databricks documentation, "Configure RocksDB state store").
    _STATE_STORE: "com.databricks.sql.streaming.state.RocksDBStateStoreProvider",
}


class WorkspaceLake(Lake):
    """A lake in ``catalog.schema``. It uses only Spark Connect's API, so that it works on serverless compute too.

    Raises:
        UsageError: Spark is not installed, or the landing folder is not a path of a volume.
        FraudlakeError: the catalog or the schema does not exist, or may not be used.
        MissingLakeError: with ``must_exist``: a table is missing.
    """

    is_in_workspace = True

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession | None = None,
        must_exist: bool = False,
        change: Change | None = None,
    ) -> None:
        """Open the lake that the settings name, in ``spark`` or in the compute's own session."""
        for setting, path in (("landing", settings.landing_path), ("checkpoints", str(settings.checkpoints_path))):
            if not path.startswith("/"):
                raise UsageError(f"--{setting} {path}: in a workspace it must be a folder in a volume: /Volumes/…")
        self.settings = settings if settings.source == "files" else secret.with_kafka_options(settings)
        self.name = f"{settings.catalog}.{settings.schema_name}"
        self.log = "the log of this compute"
        self.replays = settings.checkpoints_path / "replays"
        self.session = spark or self._start()
        self._use()
        # Each request to the workspace takes a tenth of a second or more.
        rows = self.session.sql(f"SHOW TABLES IN {self._schema}").collect()
        self._there = there = {row["tableName"] for row in rows}
        lacking = [table for table in contents.TABLES if table.name not in there]
        if must_exist and lacking:
            raise MissingLakeError(tables.missing(self.name, lacking[0].name))
        self._completed = {table.name for table in contents.TABLES}
        self._define(must_exist, change)
        self._configure()
        for table in map(self.table, lacking):
            # A user who may only read may not run CREATE TABLE, even if the table exists.
            self._make(table)
        self._completed = {table.name for table in contents.TABLES if must_exist or table in lacking}
        for view in () if must_exist else contents.VIEWS:
            self._complete(view)
        for table in contents.TABLES:
            if self.table(table) != table:  # a declared column may exist with another type
                self.name_of(table)

    @property
    def store(self) -> SparkStore:
        """The store that queries the tables in this lake's session."""
        return SparkStore(self)

    def _start(self) -> SparkSession:
        return compute_session()

    def _use(self) -> None:
        from pyspark.errors import PySparkException

        try:
            self.session.catalog.setCurrentCatalog(str(self.settings.catalog))
            self.session.catalog.setCurrentDatabase(str(self.settings.schema_name))
        except PySparkException as error:
            raise FraudlakeError(
                f"cannot use {self.name} ({first_line(error)}): 'fraudlake workspace check' shows what is missing"
            ) from None

    def _configure(self) -> None:
        from pyspark.errors import PySparkException

        # State partitions beyond the number of buckets stay empty; the default in a workspace is 200.
        partitions = str(self.settings.shuffle_partitions or self.settings.buckets)
        for name, value in {**_SESSION, "spark.sql.shuffle.partitions": partitions}.items():
            # Serverless compute refuses to show or change most settings; its defaults have the needed values.
            with contextlib.suppress(PySparkException):
                if name != _STATE_STORE or "RocksDB" not in str(self.session.conf.get(name)):
                    self.session.conf.set(name, value)

    def name_of(self, table: tables.Table) -> str:
        """Return a table's full name, which is valid in every session, whatever its current catalog and schema."""
        if table.name not in self._completed:
            self._completed.add(table.name)
            self._add_columns(self.table(table))
        return self._full_name(table)

    def _make(self, table: tables.Table) -> None:
        name = self._full_name(table)
        how = layout(table, self.settings.clustering)
        self.session.sql(f"CREATE TABLE IF NOT EXISTS {name} {how}")
        self._there.add(table.name)

    def _complete(self, view: tables.View) -> None:
        """Make a view, or replace it if its SQL has changed."""
        if self._text_of(view).split() != self._query_of(view).split():
            self._make_view(view)

    def _text_of(self, view: tables.View) -> str:
        """Return the SQL of a view in the catalog; empty if the view does not exist."""
        if view.name not in self._there:
            return ""
        rows = self.session.sql(f"DESCRIBE TABLE EXTENDED {self._full_name(view)}").collect()
        described: dict[str, str] = {row["col_name"]: row["data_type"] for row in rows}
        return described.get("View Text", "")

    def has(self, table: tables.Table) -> bool:
        """Return whether a table exists."""
        return table.name in self._there

    @property
    def _schema(self) -> str:
        return f"`{self.settings.catalog}`.`{self.settings.schema_name}`"

    def _full_name(self, table: tables.Table) -> str:
        return f"{self._schema}.{table.name}"

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint.

        Raises:
            FraudlakeError: the volume does not exist, or this machine cannot access it.
        """
        if not self.checkpoints.is_dir():
            raise FraudlakeError(
                f"the folder of the checkpoints {self.checkpoints} does not exist: deploy the bundle, which creates "
                "its volume; outside the workspace no volume is visible: start the job with 'fraudlake workspace run'"
            )
        return super().checkpoint(step)

    def file_retention(self, table: tables.Table) -> timedelta:
        """Return how long VACUUM keeps the files that have left a table.

        Predictive optimization runs VACUUM by itself, by the table's property, even if a stream has still to read a
        file. So tables that streams read keep files as long as their log, which streams need, too.
        """
        retention = self.settings.retention
        return max(retention, _LOG_KEPT) if table.name in tables.STREAMED else retention

    def session_for_files(self, table: tables.Table, size: int) -> SparkSession:
        """Set the size, in bytes, that OPTIMIZE gives the files of a table; return the session.

        It is a table property, because serverless compute does not allow the session's setting.
        """
        properties = self.session.sql(f"DESCRIBE DETAIL {self.name_of(table)}").collect()[0]["properties"]
        if properties.get(_FILE_SIZE) != str(size):
            self.session.sql(f"ALTER TABLE {self.name_of(table)} SET TBLPROPERTIES ('{_FILE_SIZE}' = '{size}')")
        return self.session

    @contextlib.contextmanager
    def exclusive(self, step: str) -> Iterator[None]:
        """Take no lock, since no lock works across clusters.

        Each of the bundle's jobs has one run at a time (``max_concurrent_runs: 1``). If two runs overlap anyway,
        Spark lets only one of them commit a micro-batch to a checkpoint, and Delta appends each micro-batch once.
        """
        yield


def compute_session() -> SparkSession:
    """Return the session of Databricks Connect if it is installed, otherwise that of the runtime."""
    try:
        from databricks.connect import DatabricksSession

        return DatabricksSession.builder.getOrCreate()  # type: ignore[no-any-return]
    except ImportError:
        pass
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise UsageError(
            "--catalog and --schema need the Spark of a Databricks workspace: run this in a job or a notebook there, "
            "or pip install databricks-connect"
        )
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()

"""The lake in a Databricks workspace: tables of a Unity Catalog schema, files and checkpoints in its volumes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from pyspark.sql import functions as F

from fraudlake import secret, tables
from fraudlake.bronze import autoloader, landing, transactions
from fraudlake.bronze.landing import File
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import session
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.lake import Lake, add_columns, layout
from fraudlake.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_GONE = "the file is gone"
_LARGEST_FILE = 2**31 - 1
"""Largest file, in bytes, whose content Spark reads as one value."""
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
        FraudlakeError: the catalog or the schema does not exist, or may not be used; with ``must_exist``: a table is
            missing.
    """

    sweep_seconds = 86_400.0  # Auto Loader is used to avoid listing every file that ever landed.
    sweeps_at_start = False

    def __init__(self, settings: Settings, spark: SparkSession | None = None, must_exist: bool = False) -> None:
        """Open the lake that the settings name, in ``spark`` or in the compute's own session."""
        for setting, path in (("landing", settings.landing_path), ("checkpoints", str(settings.checkpoints_path))):
            if not path.startswith("/"):
                raise UsageError(f"--{setting} {path}: in a workspace it must be a folder in a volume: /Volumes/…")
        self.settings = settings if settings.source == "files" else secret.with_kafka_options(settings)
        self.name = f"{settings.catalog}.{settings.schema_name}"
        self.log = "the log of this compute"
        self.replays = settings.checkpoints_path / "replays"
        self.spark = spark or compute_session()
        self._use()
        for table in tables.ALL:
            # A user who may only read may not run CREATE TABLE, even where the table exists.
            name = self.name_of(table)
            if not self.spark.catalog.tableExists(name):
                if must_exist:
                    raise FraudlakeError(tables.missing(self.name, table.name))
                self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} {layout(table, self.settings.clustering)}")
            elif not must_exist:
                add_columns(self.spark, name, table, self.spark.table(name).columns)

    def _use(self) -> None:
        from pyspark.errors import PySparkException

        # State partitions beyond the number of buckets stay empty; the default in a workspace is 200.
        partitions = str(self.settings.shuffle_partitions or self.settings.buckets)
        for name, value in {**_SESSION, "spark.sql.shuffle.partitions": partitions}.items():
            # Serverless compute refuses to show or change most settings; its defaults have the needed values.
            with contextlib.suppress(PySparkException):
                if name != _STATE_STORE or "RocksDB" not in str(self.spark.conf.get(name)):
                    self.spark.conf.set(name, value)
        try:
            self.spark.catalog.setCurrentCatalog(str(self.settings.catalog))
            self.spark.catalog.setCurrentDatabase(str(self.settings.schema_name))
        except PySparkException as error:
            raise FraudlakeError(
                f"cannot use {self.name} ({str(error).splitlines()[0][:200]}): "
                "'fraudlake workspace check' shows what is missing"
            ) from None

    def name_of(self, table: tables.Table) -> str:
        """Return a table's full name, which is valid in every session, whatever its current catalog and schema."""
        return f"`{self.settings.catalog}`.`{self.settings.schema_name}`.{table.name}"

    @property
    def landing(self) -> str:
        """Folder in which Flink's files land."""
        return os.path.normpath(self.settings.landing_path)

    @property
    def tracking_uri(self) -> str:
        """The workspace's MLflow."""
        return "databricks"

    @property
    def registry_uri(self) -> str:
        """Unity Catalog's registry of models."""
        return "databricks-uc"

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint.

        Raises:
            FraudlakeError: the volume does not exist, or this machine does not see it.
        """
        if not self.checkpoints.is_dir():
            raise FraudlakeError(
                f"the folder of the checkpoints {self.checkpoints} does not exist: deploy the bundle, which creates "
                "its volume; outside the workspace no volume is visible: start the job with 'fraudlake workspace run'"
            )
        return super().checkpoint(step)

    def write(self, rows: pa.Table, table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        """Append rows to a table, or overwrite its rows with them, in one commit."""
        frame = self.spark.createDataFrame(rows).coalesce(1)
        frame.write.format("delta").mode(mode).saveAsTable(self.name_of(table))

    def count_rows(self, files: list[File], whole: bool = False) -> list[tuple[int, str | None]]:
        """Return each landed file's number of rows or, where it cannot be read, 0 and the reason."""
        readable = [file for file in files if _unreadable(file) is None]
        counts = {}
        if readable:
            contents = self._contents(self._present(readable), "true")
            counts = {row["source"]: row for row in transactions.row_counts(contents, whole).collect()}
        return [
            (counts[file.source]["rows"], counts[file.source]["error"])
            if file.source in counts
            else (0, _unreadable(file) or _GONE)
            for file in files
        ]

    def append_files(self, files: list[File]) -> None:
        """Append landed files' rows to ``bronze_transactions``, in one commit: all rows of all files, or none."""
        contents = self._contents(files, "false")
        rows = transactions.from_contents(contents, files, self.settings.landing_timezone)
        rows.write.format("delta").mode("append").saveAsTable(self.name_of(tables.BRONZE_TRANSACTIONS))

    def _contents(self, files: list[File], ignore_missing: str) -> DataFrame:
        """Read the bytes of files: ``source, modified, content``.

        Spark reads them: it is not documented that its Python workers see volumes as files.
        """
        reader = self.spark.read.format("binaryFile").option("ignoreMissingFiles", ignore_missing)
        return reader.load([landing.literal(file.path) for file in files]).select(
            autoloader.source("path", self.landing).alias("source"),
            F.unix_micros("modificationTime").alias("modified"),
            "content",
        )

    def version(self, table: tables.Table) -> int:
        """Return a table's current version."""
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.name_of(table)} LIMIT 1").collect()[0]["version"])

    def set_file_size(self, table: tables.Table, size: int) -> None:
        """Set the size of files, in bytes, that OPTIMIZE aims at in a table.

        It is a table property, because serverless compute does not allow the session's setting.
        """
        properties = self.spark.sql(f"DESCRIBE DETAIL {self.name_of(table)}").collect()[0]["properties"]
        if properties.get(_FILE_SIZE) != str(size):
            self.spark.sql(f"ALTER TABLE {self.name_of(table)} SET TBLPROPERTIES ('{_FILE_SIZE}' = '{size}')")

    def landed(self) -> DataFrame:
        """Return the landing folder as Auto Loader's stream of its files: ``path, modificationTime, length``.

        Raises:
            UsageError: the folder does not exist.
        """
        self.require_landing()
        return autoloader.read_stream(self.spark, self.landing, self.settings)

    def landed_files(self, batch: DataFrame) -> list[File]:
        """Return the files of a micro-batch of :meth:`landed`, as Auto Loader listed them."""
        return list(self._files(batch))

    def look_again(self, files: list[File]) -> list[File]:
        """Return landed files as they are now; a file that is gone, or is empty now, has no size."""
        present = {file.source: file for file in self._present(files)}
        return [present.get(file.source) or landing.missing_file(file.path, self.landing) for file in files]

    def _present(self, files: list[File]) -> list[File]:
        """Return the files that exist, as Spark lists them now."""
        from pyspark.errors import AnalysisException

        paths = {landing.literal(file.path) for file in files}
        while paths:
            try:
                return list(self._files(self.spark.read.format("binaryFile").load(sorted(paths))))
            except AnalysisException as error:  # it names one path that does not exist
                missing = {path for path in paths if path in str(error)}
                if not missing:
                    raise
                paths -= missing
        return []

    def list_files(self) -> Iterator[File]:
        """List the finished files of the landing folder that are not empty, as they are now."""
        if not Path(self.landing).is_dir():
            return
        reader = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        for file in self._files(reader.load(landing.literal(self.landing))):
            if landing.is_finished(file.source):
                yield file

    def _files(self, rows: DataFrame) -> Iterator[File]:
        """Turn rows of Spark's ``binaryFile`` format into files."""
        for row in rows.select("path", F.unix_micros("modificationTime").alias("modified"), "length").collect():
            path = autoloader.posix_path(self.landing, row["path"])
            yield File(path, landing.relative(path, self.landing), row["length"], row["modified"])

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that Auto Loader has ever listed for a step, read or not."""
        checkpoint = self.checkpoint(step)
        if checkpoint.is_new:
            return
        # cloud_files_state takes only a literal, no parameter; the path comes from the operator's settings.
        listed_files = self.spark.sql(f"SELECT path FROM cloud_files_state('{checkpoint.folder}')")  # noqa: S608
        for row in listed_files.collect():
            path = autoloader.posix_path(self.landing, row["path"])
            # It is not documented whether the path has a blank or %20.
            yield path if Path(path).exists() else unquote(path)

    @contextlib.contextmanager
    def exclusive(self, step: str) -> Iterator[None]:
        """Take no lock: there is none that works across clusters.

        Each of the bundle's jobs has one run at a time (``max_concurrent_runs: 1``). Where two runs overlap anyway,
        Spark lets only one of them commit a micro-batch to a checkpoint, and Delta appends each micro-batch once.
        """
        yield


def _unreadable(file: File) -> str | None:
    """Return why a file cannot be read, as far as its size shows; otherwise None."""
    if file.size is None:
        return _GONE
    if file.size == 0:
        return "the file is empty (0 bytes)"
    if file.size > _LARGEST_FILE:
        return f"the file is larger than {_LARGEST_FILE:,} bytes: land smaller ones"
    return None


def compute_session() -> SparkSession:
    """Return the session of Databricks Connect where it is installed, otherwise that of the runtime."""
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

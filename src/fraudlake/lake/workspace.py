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
from fraudlake.checkpoint import Checkpoint
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import session
from fraudlake.lake.lake import Lake, layout
from fraudlake.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_GONE = "the file is gone"
_LARGEST_FILE = 2**31 - 1
"""Bytes of a file that Spark hands over as one value."""
_FILE_SIZE = "delta.targetFileSize"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_SESSION = session.EVERYWHERE | {
    # The stateful steps need it (Databricks documentation, "Configure RocksDB state store").
    _STATE_STORE: "com.databricks.sql.streaming.state.RocksDBStateStoreProvider",
}


class WorkspaceLake(Lake):
    """A lake in ``catalog.schema``. Only what Spark Connect offers is used: it works on serverless compute too.

    Raises:
        UsageError: Spark is not installed, or the landing folder is not a path of a volume.
        FraudlakeError: the catalog or the schema does not exist, or may not be used; with ``must_exist``: a table is
            missing.
    """

    sweep_seconds = 86_400.0  # Auto Loader is there to spare listing all that ever landed.
    sweeps_at_start = False

    def __init__(self, settings: Settings, spark: SparkSession | None = None, must_exist: bool = False) -> None:
        """Open the lake that the settings name, in this session or in the one that the compute offers."""
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
            # Who only reads may not create, not even what is there.
            name = self.name_of(table)
            if not self.spark.catalog.tableExists(name):
                if must_exist:
                    raise FraudlakeError(tables.missing(self.name, table.name))
                self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} {layout(table, self.settings.clustering)}")

    def _use(self) -> None:
        from pyspark.errors import PySparkException

        # More state partitions than buckets would only be empty ones; the default here is 200.
        partitions = str(self.settings.shuffle_partitions or self.settings.buckets)
        for name, value in {**_SESSION, "spark.sql.shuffle.partitions": partitions}.items():
            # Serverless compute lets few settings be seen or changed, and has what is needed as its default.
            with contextlib.suppress(PySparkException):
                if name != _STATE_STORE or "RocksDB" not in str(self.spark.conf.get(name)):
                    self.spark.conf.set(name, value)
        try:
            self.spark.catalog.setCurrentCatalog(str(self.settings.catalog))
            self.spark.catalog.setCurrentDatabase(str(self.settings.schema_name))
        except PySparkException as error:
            raise FraudlakeError(
                f"cannot use {self.name} ({str(error).splitlines()[0][:200]}): "
                "'fraudlake workspace check' tells what is missing"
            ) from None

    def name_of(self, table: tables.Table) -> str:
        """Return the name of a table that holds in every session, whatever its current catalog and schema."""
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
            FraudlakeError: the volume is not there, or this machine does not see it.
        """
        if not self.checkpoints.is_dir():
            raise FraudlakeError(
                f"the folder of the checkpoints {self.checkpoints} is not there: deploy the bundle, which makes its "
                "volume; outside the workspace no volume is seen: start the job with 'fraudlake workspace run'"
            )
        return super().checkpoint(step)

    def write(self, rows: pa.Table, table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        """Append rows to a table, or put them in the place of its rows; in one commit."""
        frame = self.spark.createDataFrame(rows).coalesce(1)
        frame.write.format("delta").mode(mode).saveAsTable(self.name_of(table))

    def count_rows(self, files: list[File], whole: bool = False) -> list[tuple[int, str | None]]:
        """Return of each landed file how many rows it has or, where it cannot be read, 0 and the reason."""
        readable = [file for file in files if _unreadable(file) is None]
        counts = {}
        if readable:
            contents = self._contents(self._present(readable), "true")
            counts = {row["source"]: row for row in transactions.counted(contents, whole).collect()}
        return [
            (counts[file.source]["rows"], counts[file.source]["error"])
            if file.source in counts
            else (0, _unreadable(file) or _GONE)
            for file in files
        ]

    def append_files(self, files: list[File]) -> None:
        """Append landed files' rows to ``bronze_transactions``, in one commit: all of each, or none of any."""
        contents = self._contents(files, "false")
        rows = transactions.from_contents(contents, files, self.settings.landing_timezone)
        rows.write.format("delta").mode("append").saveAsTable(self.name_of(tables.BRONZE_TRANSACTIONS))

    def _contents(self, files: list[File], ignore_missing: str) -> DataFrame:
        """Read the bytes of files: ``source, modified, content``.

        Spark reads them: that its Python workers see volumes as files is not documented.
        """
        reader = self.spark.read.format("binaryFile").option("ignoreMissingFiles", ignore_missing)
        return reader.load([landing.literal(file.path) for file in files]).select(
            autoloader.source("path", self.landing).alias("source"),
            F.unix_micros("modificationTime").alias("modified"),
            "content",
        )

    def version(self, table: tables.Table) -> int:
        """Return a table's version now."""
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.name_of(table)} LIMIT 1").collect()[0]["version"])

    def set_file_size(self, table: tables.Table, size: int) -> None:
        """Have OPTIMIZE make a table's files about so large, in bytes.

        Serverless compute lets no setting of the session say so.
        """
        properties = self.spark.sql(f"DESCRIBE DETAIL {self.name_of(table)}").collect()[0]["properties"]
        if properties.get(_FILE_SIZE) != str(size):
            self.spark.sql(f"ALTER TABLE {self.name_of(table)} SET TBLPROPERTIES ('{_FILE_SIZE}' = '{size}')")

    def landed(self) -> DataFrame:
        """Return the landing folder as a stream of its files, by Auto Loader: ``path, modificationTime, length``.

        Raises:
            UsageError: the folder does not exist.
        """
        self.require_landing()
        return autoloader.read_stream(self.spark, self.landing, self.settings)

    def landed_files(self, batch: DataFrame) -> list[File]:
        """Return the files that a micro-batch of :meth:`landed` names, as Auto Loader saw them."""
        return list(self._files(batch))

    def look_again(self, files: list[File]) -> list[File]:
        """Return landed files as they are now; one that is gone, or is empty by now, has no size."""
        present = {file.source: file for file in self._present(files)}
        return [present.get(file.source) or landing.gone(file.path, self.landing) for file in files]

    def _present(self, files: list[File]) -> list[File]:
        """Return those files that are there, as Spark lists them now."""
        from pyspark.errors import AnalysisException

        paths = {landing.literal(file.path) for file in files}
        while paths:
            try:
                return list(self._files(self.spark.read.format("binaryFile").load(sorted(paths))))
            except AnalysisException as error:  # it names one path that is not there
                missing = {path for path in paths if path in str(error)}
                if not missing:
                    raise
                paths -= missing
        return []

    def list_files(self) -> Iterator[File]:
        """List the landing folder: the finished files that are not empty, as they are now."""
        if not Path(self.landing).is_dir():
            return
        reader = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        for file in self._files(reader.load(landing.literal(self.landing))):
            if landing.is_finished(file.source):
                yield file

    def _files(self, rows: DataFrame) -> Iterator[File]:
        """Turn rows of Spark's format for files of any kind into files."""
        for row in rows.select("path", F.unix_micros("modificationTime").alias("modified"), "length").collect():
            path = autoloader.below(self.landing, row["path"])
            yield File(path, landing.relative(path, self.landing), row["length"], row["modified"])

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that Auto Loader has ever found for a step, read or not."""
        checkpoint = self.checkpoint(step)
        if checkpoint.is_new:
            return
        # It takes a literal only, no parameter; the path is the operator's own.
        found = self.spark.sql(f"SELECT path FROM cloud_files_state('{checkpoint.folder}')")  # noqa: S608
        for row in found.collect():
            path = autoloader.below(self.landing, row["path"])
            # Whether a blank stands for itself or as %20 is not documented.
            yield path if Path(path).exists() else unquote(path)

    @contextlib.contextmanager
    def exclusive(self, step: str) -> Iterator[None]:
        """Hold nothing: there is no lock that one cluster takes and another sees.

        The bundle's jobs run once at a time (``max_concurrent_runs: 1``). Where two runs meet all the same, Spark lets
        only one of them commit a micro-batch to a checkpoint, and Delta takes each micro-batch once.
        """
        yield


def _unreadable(file: File) -> str | None:
    """Tell why a file need not be opened."""
    if file.size is None:
        return _GONE
    if file.size == 0:
        return "the file is empty (0 bytes)"
    if file.size > _LARGEST_FILE:
        return f"the file is larger than {_LARGEST_FILE:,} bytes: land smaller ones"
    return None


def compute_session() -> SparkSession:
    """Return Databricks Connect's session where it is installed, otherwise the runtime's."""
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
